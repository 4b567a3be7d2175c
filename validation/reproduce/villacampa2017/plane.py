"""A picture of classes in the plane: data, decision boundaries, inducing points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from validation.screen import figures

Array = NDArray[np.float64]
_CELLS = 60  # of the grid, each way


def grid(half_width: float) -> Array:
    """(cells^2, 2) points of a square of side 2 half around zero, row by row."""
    line = np.linspace(-half_width, half_width, _CELLS)
    return np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)


def panel(
    title: str,
    X: Array,
    y: NDArray[np.int64],
    probabilities: Callable[[Array], Array],
    Z: Array,
    half_width: float,
    name: str,
) -> Markup:
    """Data by colour, boundaries of the predicted classes, inducing points of class k as rings of its colour.

    X (n, 2), y (n,), Z (C, m, 2); probabilities maps (t, 2) to (t, C); the square has side 2 half.
    """
    figure, ax = figures._figure(3.1, 3.1, left=0.4, bottom=0.35)
    width = 2.0 if len(X) > 300 else 2.8
    for k in range(Z.shape[0]):
        own = X[y == k]
        colour = figures.SERIES[k % len(figures.SERIES)]
        figures._strokes(ax, own[:, 0], own[:, 1], own[:, 0], own[:, 1], colour, width=width, alpha=0.7)
    line = np.linspace(-half_width, half_width, _CELLS)
    p = probabilities(grid(half_width))
    for k in range(Z.shape[0]):  # the class wins where its probability is above all others
        lead = p[:, k] - np.delete(p, k, axis=1).max(axis=1)
        if lead.min() < 0.0 < lead.max():
            ax.contour(line, line, lead.reshape(_CELLS, _CELLS), levels=[0.0], colors=figures.INK, linewidths=0.9)
    for k, points in enumerate(Z):
        ax.plot(
            points[:, 0], points[:, 1], linestyle="none", marker="o", markersize=4.2,
            markerfacecolor=figures.SERIES[k % len(figures.SERIES)], markeredgecolor=figures.INK, markeredgewidth=0.9,
        )  # fmt: skip
    ax.set_xlim(-1.04 * half_width, 1.04 * half_width)
    ax.set_ylim(-1.04 * half_width, 1.04 * half_width)
    ax.grid(visible=False)
    ax.set_title(title, loc="left")
    return figures._svg(figure, name, f"{title}: data, decision boundaries and inducing points")
