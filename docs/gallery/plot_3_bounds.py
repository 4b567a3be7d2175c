"""
Bounds as rungs under log Z
===========================

What each method reports as evidence, in nats from the true log Z. A lower bound must lie below, and does; an estimate
may lie on either side. The true values are those of stored chains and exact draws, with four standard errors as a band.
"""

import matplotlib.pyplot as plt

import triad

LADDERS = {
    "iris": ("vi-jj", "x-gpc", "svi", "vi-taylor"),
    "toy-probit": ("svgpc", "svi", "epgpc", "vi-taylor"),
    "iris-3": ("vb-probit", "nested-iep", "qiep", "nested-ep", "qep"),
}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
for axis, (name, methods) in zip(axes, LADDERS.items(), strict=True):
    truth = triad.truths.load(name).solution
    axis.axhspan(-4 * truth.log_evidence_se, 4 * truth.log_evidence_se, color="0.75")
    axis.axhline(0.0, color="black", linewidth=1.0)
    for place, method in enumerate(methods):
        answer = triad.solve("fast", method, truth.problem)
        bound = answer.log_evidence_kind == "lower bound"
        height = answer.log_evidence - truth.log_evidence
        axis.hlines(height, place - 0.4, place + 0.4, color="C0" if bound else "C1", linewidth=3)
        axis.annotate(f"{height:+.2g}", (place, height), (0, -4), textcoords="offset points", ha="center", va="top")
    axis.set_xticks(range(len(methods)), methods, rotation=30, ha="right")
    axis.set(title=name, yscale="symlog" if name == "iris-3" else "linear")
    axis.margins(y=0.25)
axes[0].set_ylabel("nat from log Z")
axes[0].plot([], color="C0", linewidth=3, label="lower bound")
axes[0].plot([], color="C1", linewidth=3, label="estimate")
axes[0].legend(loc="lower right")
