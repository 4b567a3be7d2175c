"""
Inducing points that move
=========================

``XGPClassifier`` places ten inducing points by k-means++ and learns where they serve the bound best, with variance and
lengthscales. Crosses are their starts, circles their ends.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import triad

X, y = make_moons(250, noise=0.2, random_state=0)
learn = ("variance", "lengthscales", "Z")
start = triad.XGPClassifier(n_inducing=10, learn=(), random_state=1).fit(X, y)
model = triad.XGPClassifier(n_inducing=10, learn=learn, max_iter=40, random_state=1).fit(X, y)

side = np.linspace(-1.5, 2.5, 60)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
chance = model.predict_proba(grid)[:, 1].reshape(side.size, side.size)
figure, axis = plt.subplots(figsize=(6, 4.6), layout="constrained")
axis.contourf(side, side, chance, levels=20, cmap="RdBu_r", alpha=0.5)
axis.scatter(*X.T, c=y, cmap="RdBu_r", s=8)
for before, after in zip(start.inducing_points_, model.inducing_points_, strict=True):
    axis.annotate("", after, before, arrowprops={"arrowstyle": "-", "color": "0.3"})
axis.scatter(*start.inducing_points_.T, marker="x", color="black", label="start")
axis.scatter(*model.inducing_points_.T, color="gold", edgecolors="black", label="end")
axis.set(ylim=(-1.5, 2.0), title=f"log p(y) >= {start.log_evidence_:.1f}, then {model.log_evidence_:.1f}")
axis.legend()
