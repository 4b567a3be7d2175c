"""
The posterior on a plane
========================

Class probabilities of three approximations, and those of a Pólya-Gamma chain, on one problem with two classes. Lines
are drawn at 0.1, 0.5 and 0.9. At this prior variance (log variance 3) the mode of ``vi-taylor`` is no mean: it is
less sure than the data allow.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import triad

X, y = make_moons(40, noise=0.25, random_state=3)
side = np.linspace(-1.7, 2.7, 18)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
problem = triad.Problem(
    name="moons", X=X, y=y, n_classes=2, likelihood="logit", variance=np.exp(3.0), lengthscales=0.8, X_test=grid
)  # fmt: skip
answers = {name: triad.solve("fast", name, problem) for name in ("x-gpc", "svi", "vi-taylor")}
answers["gibbs-logit"] = triad.solve(
    "gibbs", "gibbs-logit", problem, n_chains=8, n_draws=150, n_warmup=100, evidence="chains"
)

figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), sharey=True, layout="constrained")
truth = answers["gibbs-logit"].probabilities[:, 1]
for axis, (name, answer) in zip(axes, answers.items(), strict=True):
    chance = answer.probabilities[:, 1]
    shape = (side.size, side.size)
    axis.contourf(side, side, chance.reshape(shape), levels=20, cmap="RdBu_r", vmin=0.0, vmax=1.0, alpha=0.7)
    axis.contour(side, side, chance.reshape(shape), levels=[0.1, 0.5, 0.9], colors="black", linewidths=1.0)
    axis.scatter(*X.T, c=y, cmap="RdBu_r", edgecolors="black", s=25)
    off = "" if answer.implementation == "gibbs" else f"\nat most {np.abs(chance - truth).max():.2f} off"
    axis.set(title=f"{name}{off}", xticks=[], yticks=[])
