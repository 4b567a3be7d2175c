"""Pictures of villacampa2020 along an axis that begins at zero, with a gap where there is no optimum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from validation.screen import figures

Array = NDArray[np.float64]


class Line(NamedTuple):
    """One quantity along another; an infinite value is a gap."""

    label: str
    x: Array
    y: Array


def lines(title: str, drawn: Sequence[Line], xlabel: str, name: str) -> Markup:
    """Several quantities on a linear axis, in the style of the reports."""
    with figures.style():
        figure, ax = figures._figure(4.3, 2.6, left=0.65, bottom=0.42)
        for i, line in enumerate(drawn):
            kept = np.isfinite(line.y)
            colour = figures.SERIES[i % len(figures.SERIES)]
            ax.plot(line.x[kept], line.y[kept], color=colour, linewidth=1.3, marker="o", markersize=2.2)
        ax.yaxis.set_major_locator(figures._few_ticks())
        ax.ticklabel_format(axis="y", useOffset=False)
        ax.set_xlabel(xlabel)
        ax.set_title(title, loc="left")
        return figures._svg(figure, name, f"{title}: {', '.join(line.label for line in drawn)}")
