"""
Active learning
===============

Labels are asked for one at a time: of the row whose class probabilities have the largest entropy, or at random. Good
predictive variances pay here: the rows that are asked for lie where the classes meet.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.metrics import log_loss

import triad

X, y = make_moons(300, noise=0.2, random_state=0)
X, X_test, y, y_test = X[:150], X[150:], y[:150], y[150:]
start = np.concatenate([np.flatnonzero(y == k)[:2] for k in (0, 1)])
curves, asked = {}, {}
for how in ("by entropy", "at random"):
    rng, known, losses = np.random.default_rng(5), list(start), []
    for _ in range(22):
        model = triad.EPGPClassifier(n_inducing=None, variance=10.0, lengthscales=0.6, learn=()).fit(X[known], y[known])
        losses.append(log_loss(y_test, model.predict_proba(X_test)))
        left = np.setdiff1d(np.arange(len(y)), known)
        chance = model.predict_proba(X[left])
        entropy = -(chance * np.log(chance)).sum(axis=1)
        known.append(int(left[entropy.argmax()] if how == "by entropy" else rng.choice(left)))
    curves[how], asked[how] = losses, known

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for how, losses in curves.items():
    left.plot(range(4, 4 + len(losses)), losses, label=how)
left.set(xlabel="labels known", ylabel="log-loss on other rows")
left.legend()
right.scatter(*X.T, color="0.8", s=12)
rows = X[asked["by entropy"]]
right.scatter(*rows.T, c=np.arange(len(rows)), cmap="viridis", edgecolors="black")
right.set(title="rows asked for by entropy, dark ones first", xticks=[], yticks=[])
