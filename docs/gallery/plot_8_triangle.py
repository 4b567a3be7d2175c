"""
Two programs agree, a method does not
=====================================

For each method: how far ``fast`` is from ``reference`` (two programs of one method, which share no code), and how far
both are from the exact posterior (the method itself). Eight orders of magnitude or more lie between the two questions
that the judge keeps apart.
"""

import matplotlib.pyplot as plt
import numpy as np

import triad

ASKED = {
    "iris": ("x-gpc", "vi-jj", "svi", "vi-taylor"),
    "toy-probit": ("epgpc", "svgpc"),
    "toy-3": ("nested-ep", "vb-probit"),
    "toy-3-softmax": ("laplace",),
    "toy-2-sparse-threshold": ("gfitc",),
}
figure, axis = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
labels = []
for name, methods in ASKED.items():
    truth = triad.truths.load(name).solution
    for method in methods:
        fast, reference = (triad.solve(who, method, truth.problem).latent_mean for who in ("fast", "reference"))
        scale = np.abs(truth.latent_mean).max()
        programs = np.abs(fast - reference).max() / scale
        itself = np.abs(fast - truth.latent_mean).max() / scale
        axis.plot([max(programs, 1e-16), itself], [len(labels)] * 2, color="0.8", zorder=0)
        axis.scatter(max(programs, 1e-16), len(labels), color="C0")
        axis.scatter(itself, len(labels), color="C1")
        labels.append(f"{method} on {name}")
axis.set(xscale="log", xlabel="largest difference of latent means, over the largest of them")
axis.set_yticks(range(len(labels)), labels)
axis.scatter([], [], color="C0", label="fast from reference")
axis.scatter([], [], color="C1", label="both from the truth")
axis.legend(loc="center")
