"""A picture of a posterior: marginals of the latent values by class, and class probabilities at the test points."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from validation.door import storage
from validation.door.quoting import shown
from validation.truth.make import Truth

FORMATS = (".svg", ".png")
# of a normal with the same mean and variance: the marginals are none, so this is a width and no interval
WIDTH = 2.0
_COLUMNS, _PANEL = 3, (2.6, 1.9)  # panels a row; inches
_SETTINGS: Any = {
    "font.size": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "gpc-triad",  # equal pictures are equal files
    "text.parse_math": False,
}


def draw(truth: Truth) -> Figure:
    """One panel for each latent function, then one of the probabilities at the test points, if there are any.

    Data stand in the order of their classes, each class by the posterior mean of its own latent function.
    """
    solution, problem = truth.solution, truth.solution.problem
    mean, sd = solution.latent_mean, np.sqrt(np.asarray(solution.latent_var))
    assert mean is not None
    L, C = problem.n_latents, problem.n_classes
    own = mean[np.arange(problem.n), problem.y] if C == L else mean[:, 0]
    order = np.lexsort((own, problem.y))
    panels = L + (solution.probabilities is not None)
    columns = min(_COLUMNS, panels)
    rows = -(-panels // columns)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.5), layout="constrained")
        axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
        colours = matplotlib.colormaps["tab10"]
        place = np.arange(problem.n)
        for latent in range(L):
            ax = axes[latent]
            for label in range(C):
                chosen = problem.y[order] == label
                at, rank = order[chosen], place[chosen]
                reach = WIDTH * sd[at, latent]
                ax.vlines(rank, mean[at, latent] - reach, mean[at, latent] + reach, colors=[colours(label)], lw=0.8)
                ax.plot(rank, mean[at, latent], ".", color=colours(label), ms=3.0)
            ax.set_title(
                "latent function" if L == 1 else f"latent function of class {latent}", loc="left", fontsize=8.0
            )
            ax.axhline(0.0, color="0.6", lw=0.5)
            ax.set_xlabel("data, by class")
            ax.yaxis.set_major_locator(MaxNLocator(4))
        if solution.probabilities is not None:
            _probabilities(axes[L], np.asarray(solution.probabilities), colours)
        for ax in axes[panels:]:
            ax.set_visible(False)
        figure.suptitle(f"{truth.card.problem}: {truth.card.model}", x=0.01, ha="left", fontsize=9.0)
    return figure


def _probabilities(ax: Any, probabilities: Any, colours: Any) -> None:
    """Stacked bars, one for each test point."""
    below = np.zeros(len(probabilities))
    for label, column in enumerate(probabilities.T):
        ax.bar(np.arange(len(below)), column, bottom=below, color=colours(label), width=0.9)
        below = below + column
    ax.set_title("class probabilities", loc="left", fontsize=8.0)
    ax.set_xlabel("test points")
    ax.set_ylim(0.0, 1.0)


def save(truth: Truth, path: Path) -> None:
    """Write the picture, atomically; the ending of the name decides its format."""
    check_name(path)
    write(draw(truth), path)


def check_name(path: Path) -> None:
    """Refuse a name whose ending is no format."""
    if path.suffix not in FORMATS:
        raise ValueError(f"--output: found {shown(path.name)}, expected a name that ends in {' or '.join(FORMATS)}")


def write(figure: Figure, path: Path) -> None:
    """Write a figure, atomically; the ending of the name decides its format."""
    check_name(path)
    stream = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        # a date would make every file another one
        metadata: Any = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(stream, format=path.suffix[1:], dpi=150, metadata=metadata)
    storage.write_atomically(path, lambda file: file.write(stream.getvalue()))
