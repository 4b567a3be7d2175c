"""
The evidence as a landscape
===========================

What a search over hyper-parameters climbs: each method's evidence over log variance and log lengthscale, 24 data drawn
from log variance 1 and lengthscale 0.8. Steps are half a nat, the cross is the top of the grid. The three agree there;
to the right the bound of ``x-gpc`` falls faster, because what it loses grows with the variance.
"""

import matplotlib.pyplot as plt
import numpy as np

import triad

problem = triad.problems.get("toy").replace(X_test=None)
variances, lengthscales = np.linspace(-2.0, 5.0, 9), np.linspace(-1.5, 1.5, 9)
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
for axis, method in zip(axes, ("x-gpc", "svi", "vi-taylor"), strict=True):
    heights = np.array(
        [
            [
                triad.solve(
                    "fast", method, problem.replace(variance=[np.exp(a)], lengthscales=[[np.exp(b)]]),
                    gradients=False, tolerance=1e-5,
                ).log_evidence
                for a in variances
            ]
            for b in lengthscales
        ]
    )  # fmt: skip
    top = heights.max()
    axis.contourf(
        variances, lengthscales, heights, levels=top - 0.5 * np.arange(12, -1, -1), extend="min", cmap="viridis"
    )
    row, column = np.unravel_index(heights.argmax(), heights.shape)
    axis.plot(variances[column], lengthscales[row], "x", color="white", markersize=10, markeredgewidth=2)
    axis.set(title=f"{method}: {top:.1f} nat at the top", xlabel="log variance")
axes[0].set_ylabel("log lengthscale")
