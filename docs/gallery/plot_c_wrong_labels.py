"""
Wrong labels
============

Eight labels out of eighty are wrong. With ``epsilon``, the probability that a label is drawn at random, the threshold
likelihood leaves them alone; with next to none, wrong labels bend the boundary.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import triad

X, right = make_moons(80, noise=0.15, random_state=0)
wrong = np.random.default_rng(1).choice(80, 8, replace=False)
y = right.copy()
y[wrong] = 1 - y[wrong]
side = np.linspace(-1.6, 2.6, 50)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for axis, epsilon in zip(axes, (1e-3, 0.2), strict=True):
    model = triad.PEPClassifier(
        n_inducing=15, epsilon=epsilon, variance=20.0, lengthscales=0.5, noise=0.1, learn=(), random_state=0
    ).fit(X, y)
    chance = model.predict_proba(grid)[:, 1].reshape(side.size, side.size)
    axis.contourf(side, side, chance, levels=20, cmap="RdBu_r", alpha=0.6)
    axis.contour(side, side, chance, levels=[0.5], colors="black")
    axis.scatter(*X.T, c=y, cmap="RdBu_r", edgecolors="black", s=20)
    axis.scatter(*X[wrong].T, facecolors="none", edgecolors="black", s=110)
    hits = (model.predict(X) == right).mean()
    axis.set(title=f"epsilon {epsilon:g}: {hits:.0%} of the true labels", xticks=[], yticks=[], ylim=(-1.2, 1.7))
