"""
Calibration
===========

How often a class comes when a classifier gives it a probability: points on the diagonal are calibrated. Labels are
drawn from known chances, so that the best possible log-loss is known too. Gaussian processes with
learned hyper-parameters come near it; naive Bayes and three neighbours do not.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import triad

rng = np.random.default_rng(0)
X, X_test = rng.uniform(-3.0, 3.0, (400, 2)), rng.uniform(-3.0, 3.0, (4000, 2))
chance, chance_test = (1.0 / (1.0 + np.exp(-3.0 * np.sin(x[:, 0]) - x[:, 1])) for x in (X, X_test))
y, y_test = (rng.uniform(size=400) < chance).astype(int), (rng.uniform(size=4000) < chance_test).astype(int)
models = {
    "EPGPClassifier": triad.EPGPClassifier(n_inducing=30, random_state=0),
    "XGPClassifier": triad.XGPClassifier(n_inducing=30, random_state=0),
    "naive Bayes": GaussianNB(),
    "3 neighbours": KNeighborsClassifier(3),
}
figure, axis = plt.subplots(figsize=(6, 4.6), layout="constrained")
axis.plot(
    [0, 1], [0, 1], color="black", linewidth=1, label=f"true chances, log-loss {log_loss(y_test, chance_test):.3f}"
)
for name, model in models.items():
    told = model.fit(X, y).predict_proba(X_test)[:, 1]
    share, mean = calibration_curve(y_test, told, n_bins=10)
    axis.plot(mean, share, "o-", label=f"{name}, {log_loss(y_test, told):.3f}")
axis.set(xlabel="probability told", ylabel="share of the class")
axis.legend()
