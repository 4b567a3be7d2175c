"""Figures of the report as inline SVG: no fixed black or white, so that light, dark and print all read well.

Matplotlib draws with placeholder colours, which become CSS variables of the page; text inherits the page's font.
Each panel is a small picture of its own, so that a phone stacks what a desktop sets side by side.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
import matplotlib.ticker
import numpy as np
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

INK, GRID, TRUTH = "#000001", "#000002", "#000003"
SERIES = ("#0000a1", "#0000a2", "#0000a3", "#0000a4", "#0000a5", "#0000a6")
_VARIABLES = {
    INK: "currentColor",
    GRID: "var(--grid)",
    TRUTH: "var(--truth)",
    **{colour: f"var(--s{i + 1})" for i, colour in enumerate(SERIES)},
}

# A panel with more points says no more and weighs more: the worst are kept, the rest thinned evenly by rank.
MOST_POINTS = 200
_WORST = 50
_MOST_TRACE = 150


class Cloud(NamedTuple):
    """One approximation against the truth: flat arrays of equal length; its place decides its colour."""

    label: str
    approximation: NDArray[np.float64]
    place: int


class Line(NamedTuple):
    """One objective over iterations; its place among the lines drawn decides its colour."""

    label: str
    values: NDArray[np.float64]


class Curve(NamedTuple):
    """One quantity along another: x, y of equal length; x > 0 where its axis is logarithmic."""

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]


def scatter(
    title: str,
    truth: NDArray[np.float64],
    truth_se: NDArray[np.float64] | None,
    clouds: Sequence[Cloud],
    truth_label: str,
    name: str,
) -> Markup:
    """Approximations against the truth, the diagonal, and bars of two standard errors of the truth."""
    worst = np.zeros(truth.size)
    for cloud in clouds:
        worst = np.maximum(worst, np.abs(cloud.approximation - truth))
    kept = thinned(truth, worst)
    figure, ax = _figure(3.1, 2.9, left=0.5, bottom=0.42)
    x = truth[kept]
    low = min(x.min(), *(cloud.approximation[kept].min() for cloud in clouds))
    high = max(x.max(), *(cloud.approximation[kept].max() for cloud in clouds))
    margin = 0.06 * (high - low) or 0.5 * max(abs(high), 1e-12)
    low, high = low - margin, high + margin
    ax.plot([low, high], [low, high], color=INK, linewidth=0.7, alpha=0.5)
    for i, cloud in enumerate(clouds):
        y = cloud.approximation[kept]
        colour = SERIES[cloud.place % len(SERIES)]
        if truth_se is not None:
            reach = 2.0 * truth_se[kept]
            _strokes(ax, x - reach, y, x + reach, y, colour, width=0.7, alpha=0.5)
        # later dots are smaller: equal answers show as rings and not as one answer
        _strokes(ax, x, y, x, y, colour, width=max(2.4, 5.2 - 2.4 * i), alpha=1.0)
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.xaxis.set_major_locator(_few_ticks())
    ax.yaxis.set_major_locator(_few_ticks())
    ax.set_xlabel(f"{truth_label}, ± 2 s.e." if truth_se is not None else truth_label)
    ax.set_title(title, loc="left")
    caption = f"{title}: {', '.join(cloud.label for cloud in clouds)} against {truth_label}"
    return _svg(figure, name, caption)


def thinned(values: NDArray[np.float64], worst: NDArray[np.float64], most: int = MOST_POINTS) -> NDArray[np.intp]:
    """Indices of at most so many points: those with the largest deviations, and the rest evenly by rank."""
    if values.size <= most:
        return np.arange(values.size)
    first = np.argsort(-worst, kind="stable")[:_WORST]
    rest = np.setdiff1d(np.argsort(values, kind="stable"), first, assume_unique=True)
    rest = rest[np.argsort(values[rest], kind="stable")]
    even = np.unique(np.linspace(0, rest.size - 1, most - _WORST).round().astype(int))
    return np.sort(np.concatenate([first, rest[even]]))


def traces(title: str, lines: Sequence[Line], name: str, *, logarithmic: bool = True) -> Markup:
    """Values after each iteration; objectives on a logarithmic axis, where the first iterations can be seen."""
    figure, ax = _figure(4.3, 2.6, left=0.65, bottom=0.42)
    for i, line in enumerate(lines):
        count = line.values.size
        spaced = np.geomspace(1, count, _MOST_TRACE) if logarithmic else np.linspace(1, count, _MOST_TRACE)
        at = np.unique(spaced.round().astype(int)) - 1
        ax.plot(
            at + 1,
            line.values[at],
            color=SERIES[i % len(SERIES)],
            linewidth=max(1.0, 4.6 - 3.2 * i) if len(lines) > 1 else 1.0,  # one above another, equal ones still show
        )
    longest = max(line.values.size for line in lines)
    if logarithmic:
        ax.set_xscale("log")
        ax.set_xlim(0.9, 1.1 * longest)
        factors = (1, 2, 5) if longest <= 200 else (1,)
        ticks = [f * 10**k for k in range(9) for f in factors if f * 10**k <= longest]
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.minorticks_off()
    else:
        ax.xaxis.set_major_locator(_few_ticks())
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.set_xlabel("iteration")
    ax.set_title(title, loc="left")
    return _svg(figure, name, f"{title}: {', '.join(line.label for line in lines)}")


def curves(
    title: str, lines: Sequence[Curve], xlabel: str, name: str, *, logarithmic: bool = True, truth: float | None = None
) -> Markup:
    """Several quantities along another one, by default on a logarithmic axis; the truth is a level."""
    figure, ax = _figure(4.3, 2.6, left=0.65, bottom=0.42)
    if truth is not None:
        ax.axhline(truth, color=TRUTH, linewidth=1.3)
    for i, line in enumerate(lines):
        ax.plot(line.x, line.y, color=SERIES[i % len(SERIES)], linewidth=1.3, marker="o", markersize=2.2)
    if logarithmic:
        _logarithmic(ax)
    ax.yaxis.set_major_locator(_few_ticks())
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.set_xlabel(xlabel)
    ax.set_title(title, loc="left")
    return _svg(figure, name, f"{title}: {', '.join(line.label for line in lines)}")


def _logarithmic(ax: Axes, *, x: bool = True, y: bool = False, most: int = 6) -> None:
    """Logarithmic axes with labels as 1e-13: Matplotlib's own are formulas, which `style` shows as they are written."""
    if x:
        ax.set_xscale("log")
    if y:
        ax.set_yscale("log")
    for axis in [axis for axis, wanted in ((ax.xaxis, x), (ax.yaxis, y)) if wanted]:
        axis.set_major_locator(matplotlib.ticker.LogLocator(numticks=most))
        axis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        axis.set_minor_locator(matplotlib.ticker.NullLocator())


def _few_ticks() -> matplotlib.ticker.MaxNLocator:
    """At most four intervals, at round numbers: labels of small pictures have little room."""
    return matplotlib.ticker.MaxNLocator(4, steps=[1, 2, 5, 10])


# -- drawing -------------------------------------------------------------------------------------------------


@contextmanager
def style() -> Iterator[None]:
    """Settings of all figures, whatever the user's own are; enter it once around all drawing."""
    settings: Any = {
        "svg.fonttype": "none",
        "font.size": 8.5,
        "axes.titlesize": 9.0,
        "axes.titleweight": "bold",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": INK,
        "axes.linewidth": 0.6,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "xtick.color": INK,
        "ytick.color": INK,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "text.color": INK,
        "path.simplify": False,
        "text.parse_math": False,  # names are names, also with a $ in them
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield


def _figure(
    width: float, height: float, *, left: float, bottom: float, right: float = 0.12, top: float = 0.28
) -> tuple[Figure, Axes]:
    """A figure without a background; all in inches. Margins are given: measuring them would draw everything twice."""
    figure = Figure(figsize=(width, height))
    FigureCanvasSVG(figure)
    figure.patch.set_visible(False)
    ax = figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
    )
    ax.patch.set_visible(False)
    return figure, ax


def _strokes(
    ax: Axes,
    x0: NDArray[np.float64],
    y0: NDArray[np.float64],
    x1: NDArray[np.float64],
    y1: NDArray[np.float64],
    colour: str,
    *,
    width: float,
    alpha: float,
) -> None:
    """Many short strokes as one path: a dot is a stroke without length, and a whole panel stays a few kilobytes."""
    vertices = np.empty((2 * x0.size, 2))
    vertices[0::2] = np.column_stack([x0, y0])
    vertices[1::2] = np.column_stack([x1, y1])
    codes = np.tile([Path.MOVETO, Path.LINETO], x0.size).astype(np.uint8)
    ax.add_patch(
        PathPatch(
            Path(vertices, codes),
            facecolor="none",
            edgecolor=colour,
            linewidth=width,
            alpha=alpha,
            capstyle="round",
        )
    )


_NOTHING = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def _svg(figure: Figure, name: str, caption: str) -> Markup:
    """The figure as an element of the page: no prologue, no foreign names, no fonts, no fixed colours."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):  # the same figure has the same ids in every run
        figure.savefig(buffer, format="svg", metadata=_NOTHING, transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)  # inside a page it would style the whole page
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"xlink:href", "href", text)
    text = re.sub(r' d="([^"]*)"', lambda value: f' d="{_short(value[1])}"', text)
    text = re.sub(r' (x|y|width|height)="([^"]*)"', lambda value: f' {value[1]}="{_rounded(value[2])}"', text)
    text = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", text)
    text = _ungrouped(re.sub(r"<defs>\s*</defs>|<defs/>", "", text))
    text = re.sub(r"font: ([^;\"']*?)([\d.]+)px [^;\"]*", r"font: \1\2px var(--font)", text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", text)
    for placeholder, variable in _VARIABLES.items():
        text = text.replace(placeholder, variable)
    value = re.search(r'viewBox="([^"]*)"', text)
    box = value.group(1) if value else "0 0 300 200"
    width = float(box.split()[2])
    head = (
        f'<svg viewBox="{box}" width="{1.35 * width:.0f}" role="img" aria-label="{escape(caption)}">'
        f"<title>{escape(caption)}</title>"
    )
    text = head + text[text.index(">") + 1 :]
    # safe to mark: drawn here; every text from outside was escaped by Matplotlib or above
    text = re.sub(r' style="[^"]*"', lambda value: re.sub(r"([:;]) +", r"\1", value.group()), text)
    return Markup(re.sub(r">\s+<", "><", re.sub(r"\s*\n\s*", " ", text)))


def _rounded(path: str) -> str:
    """Numbers to a tenth, which is a seventh of a pixel as the pictures are shown."""
    return re.sub(r"-?\d+\.\d+", lambda value: f"{float(value.group()):.1f}".removesuffix(".0"), path)


def _short(path: str) -> str:
    """A path in fewer characters: rounded, and a stroke that ends where it begins as one of no length."""
    text = " ".join(_rounded(path).split())
    text = re.sub(r"M (\S+ \S+) L \1(?= M|$)", r"M\1h0", text)
    return re.sub(r" ?([MLCQZ]) ?", r"\1", text)


def _ungrouped(text: str) -> str:
    """Without the groups that say nothing of what is in them."""
    kept: list[bool] = []
    pieces = []
    for piece in re.split(r"(<g\b[^>]*>|</g>)", text):
        if piece.startswith("<g") and not piece.endswith("/>"):
            kept.append(piece != "<g>")
            pieces.append(piece if kept[-1] else "")
        else:
            pieces.append("" if piece == "</g>" and not kept.pop() else piece)
    return "".join(pieces)
