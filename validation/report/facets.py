"""Small pictures of the report, one for each method: equal answers lie side by side and never on one another.

A colour says who answered and nothing else, on every picture of the page: `reference`, `fast`, a truth, anybody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib.ticker
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from numpy.typing import NDArray

from validation.screen import figures

# implementation -> its colour; others are somebody else's
COLOURS = {
    "reference": figures.SERIES[0],
    "fast": figures.SERIES[1],
    "gibbs": figures.TRUTH,
    "quadrature": figures.TRUTH,
    "": figures.INK,  # nobody: a difference
}
OTHERS = figures.SERIES[3]
# for the legend of the page: CSS variable and words
LEGEND = (("s1", "reference"), ("s2", "fast"), ("truth", "gibbs, quadrature"), ("s4", "another program"))

_WIDTH, _HEIGHT = 1.75, 1.6  # inches
_MOST_POINTS = 120
_MOST_ALONG = 100


class Answer(NamedTuple):
    """What one implementation gave: flat values, in the order of the truth's."""

    who: str
    values: NDArray[np.float64]


class Way(NamedTuple):
    """One quantity of one implementation along another: x, y of equal length."""

    who: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]


def colour(who: str) -> str:
    """The colour of an implementation.

    Parameters
    ----------
    who    its name
    """
    return COLOURS.get(who, OTHERS)


def limits(arrays: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """One axis for several facets: from the least to the largest of all, with a margin.

    Parameters
    ----------
    arrays    values to be seen, at least one
    """
    low, high = min(float(a.min()) for a in arrays), max(float(a.max()) for a in arrays)
    margin = 0.06 * (high - low) or 0.5 * max(abs(high), 1e-12)
    return low - margin, high + margin


def scatter(
    truth: NDArray[np.float64],
    truth_se: NDArray[np.float64] | None,
    answers: Sequence[Answer],
    span: tuple[float, float],
    caption: str,
    name: str,
) -> Markup:
    """Answers of one method over the truth, the diagonal, and bars of two standard errors of the truth.

    Parameters
    ----------
    truth, truth_se    flat, of equal length; None for an exact one
    answers            of the implementations; where they are equal, the second is a dot in the ring of the first
    span               of both axes
    caption, name      what it shows, and where its ids come from
    """
    worst = np.max([np.abs(answer.values - truth) for answer in answers], axis=0)
    kept = figures.thinned(truth, worst, _MOST_POINTS)
    figure, ax = figures._figure(_WIDTH, _HEIGHT, left=0.42, bottom=0.26, top=0.08)
    ax.plot(span, span, color=figures.INK, linewidth=0.7, alpha=0.5, zorder=0.5)  # below the dots, which are small
    x = truth[kept]
    for place, answer in enumerate(answers):
        y = answer.values[kept]
        if truth_se is not None and not place:
            reach = 2.0 * truth_se[kept]
            figures._strokes(ax, x - reach, y, x + reach, y, figures.TRUTH, width=0.8, alpha=0.6)
        figures._strokes(ax, x, y, x, y, colour(answer.who), width=5.2 if not place else 2.6, alpha=1.0)
    ax.set_xlim(*span)
    ax.set_ylim(*span)
    _ticks(ax)
    return figures._svg(figure, name, caption)


def along(
    ways: Sequence[Way],
    caption: str,
    name: str,
    *,
    xlabel: str = "",
    logarithmic: tuple[bool, bool] = (False, False),
    span: tuple[float, float] | None = None,
    level: float | None = None,
) -> Markup:
    """One quantity of one method along another; the second line is thin and dashed, so that an equal one shows.

    Parameters
    ----------
    ways             of the implementations
    caption, name    what it shows, and where its ids come from
    xlabel           words below the axis
    logarithmic      x, y
    span             of y; None: its own
    level            of the truth
    """
    figure, ax = figures._figure(_WIDTH, _HEIGHT, left=0.56, bottom=0.42 if xlabel else 0.26, top=0.08)
    if level is not None:
        ax.axhline(level, color=figures.TRUTH, linewidth=1.3)
    for place, way in enumerate(ways):
        size = way.x.size
        # as the eye sees the axis
        at = np.geomspace(1, size, _MOST_ALONG) if logarithmic[0] else np.linspace(1, size, _MOST_ALONG)
        kept = np.unique(at.round().astype(int)) - 1
        width, dashes = (3.0, "-") if not place and len(ways) > 1 else (1.2, "--" if place else "-")
        marker = "o" if kept.size <= 12 else ""
        ax.plot(way.x[kept], way.y[kept], dashes, color=colour(way.who), linewidth=width, marker=marker, markersize=2.2)
    if span is not None:
        ax.set_ylim(*span)
    _ticks(ax)
    ax.ticklabel_format(useOffset=False)
    figures._logarithmic(ax, x=logarithmic[0], y=logarithmic[1], most=3)
    if logarithmic[0]:
        ax.set_xlim(0.9, 1.1 * max(float(way.x.max()) for way in ways))
    ax.set_xlabel(xlabel)
    return figures._svg(figure, name, caption)


def _ticks(ax: Axes) -> None:
    """Two or three round numbers: there is no room for more, least of all side by side."""
    for axis, most in ((ax.xaxis, 3), (ax.yaxis, 4)):
        axis.set_major_locator(matplotlib.ticker.MaxNLocator(most, steps=[1, 2, 5, 10], min_n_ticks=1))
