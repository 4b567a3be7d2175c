"""
Every method on a plane
=======================

Class probabilities of all methods, each beside the exact posterior of its own likelihood (in a frame), drawn by Gibbs
or Metropolis sampling or exactly. Above each stands the largest difference of a probability on the plane. Lines are
drawn at 0.1, 0.5 and 0.9. Sparse methods have ten of the thirty data as inducing points, which costs them most here.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import triad

X, y = make_moons(30, noise=0.25, random_state=3)
side = np.linspace(-1.7, 2.7, 12)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
inducing = {"Z": X[::3], "jitter": 1e-6}
posed = {"X": X, "y": y, "n_classes": 2, "lengthscales": 0.8, "X_test": grid}
chains = {"n_chains": 8, "n_draws": 100, "n_warmup": 60, "evidence": "none"}
# likelihood: problem, truth, its options, methods on all data, methods on inducing points
rows = {
    "logit": ({"variance": np.exp(3.0)}, "gibbs-logit", chains, "x-gpc svi vi-jj vi-jj-full vi-jj-hybrid vi-taylor "
              "laplace-binary", "x-gpc-svi"),
    "probit": ({"variance": np.exp(3.0)}, "exact-probit", {"n_draws": 1000}, "svgpc epgpc", ""),
    "multinomial-probit": ({"variance": np.exp(3.0) / 2}, "exact-probit", {"n_draws": 1000},
                           "nested-ep nested-iep qep qiep vb-probit", ""),
    "softmax": ({"variance": np.exp(3.0) / 2}, "mh-softmax", chains, "laplace laplace-tkp", "laplace-sparse"),
    "threshold": ({"variance": np.exp(3.0) / 2}, "exact-probit", {"n_draws": 1000}, "",
                  "ep sep gfitc pep apep arpep rpapep bb-alpha label-regression"),
    "threshold, 1% errors": ({"variance": np.exp(3.0) / 2, "epsilon": 0.01}, "gibbs-threshold", chains, "",
                             "vi-robust"),
}  # fmt: skip
panels = []
for title, (values, sampler, drawn, dense, sparse) in rows.items():
    posed["likelihood"] = title.partition(",")[0]
    problem = triad.Problem(name="moons", **posed, **values)
    exact = triad.solve("gibbs", sampler, problem, **drawn).probabilities[:, 1]
    panels.append((f"{title}\n{sampler}", exact, None))
    reduced = triad.Problem(name="moons", **posed, **values, **inducing)
    asked = [(name, problem) for name in dense.split()] + [(name, reduced) for name in sparse.split()]
    panels += [(name, triad.solve("fast", name, one).probabilities[:, 1], exact) for name, one in asked]

figure, axes = plt.subplots(-(-len(panels) // 6), 6, figsize=(10, 11), layout="constrained")
for axis in axes.flat[len(panels) :]:
    axis.remove()
for axis, (name, chance, exact) in zip(axes.flat, panels, strict=False):
    surface = chance.reshape(side.size, side.size)
    axis.contourf(side, side, surface, levels=20, cmap="RdBu_r", vmin=0.0, vmax=1.0, alpha=0.7)
    axis.contour(side, side, surface, levels=[0.1, 0.5, 0.9], colors="black", linewidths=0.8)
    axis.scatter(*X.T, c=y, cmap="RdBu_r", edgecolors="black", s=10, linewidths=0.5)
    off = "" if exact is None else f"\n{np.abs(chance - exact).max():.2f} off"
    axis.set_title(f"{name}{off}", fontsize=9, fontweight="bold" if exact is None else "normal")
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set_linewidth(2.5 if exact is None else 0.5)
