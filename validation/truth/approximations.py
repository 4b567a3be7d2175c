"""How good is each approximation: every method of `fast` against every made truth that it can answer.

`python -m validation.truth.approximations [MINUTES] [METHOD ...]` adds the truths that `approximations.csv` does not
have yet, or new methods to those that it has, each on the disk before the next; `maintain truths --approximations`
shows what is there, by log variance and classes.
"""

from __future__ import annotations

import csv
import io
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter

from validation.datasets.errors import DatasetNotFoundError
from validation.door import premises, storage
from validation.door.solution import Solution
from validation.door.solve import ImplementationError, methods, solve
from validation.door.statistics import same_evidence
from validation.truth import library, shelf, store
from validation.truth.make import Truth

FILE = "approximations.csv"
# under which a method answers for p(y), where its default answers for another model
OPTIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"ep": MappingProxyType({"factors": "datum"})})
# upper ends of the bands of log variance that tables show
BANDS = (1.5, 3.5, 5.5, math.inf)
# probabilities below it count as it: an exact predictive of 10 000 draws knows no smaller one
LEAST_PROBABILITY = 1e-6


class Distance(NamedTuple):
    """One method on one truth; NaN where one side does not have the quantity.

    bias             root mean square of (mean - the truth's) in posterior standard deviations, over the latent values
    variance_ratio   geometric mean of variance over the truth's
    log_z_error      log Z or its bound less the truth's log Z, in nats
    excess_nll       mean of -log p less that of the exact predictive, labels drawn from the exact predictive: nats
    overconfidence   mean of (largest class probability less the exact probability of that class)
    seconds          of the solve, one thread, on the machine that made the table
    """

    truth: str
    method: str
    likelihood: str
    prior_model: str
    n: int
    n_classes: int
    log_variance: float
    bias: float
    variance_ratio: float
    log_z_error: float
    excess_nll: float
    overconfidence: float
    seconds: float


MEASURES = ("bias", "variance_ratio", "log_z_error", "excess_nll", "overconfidence", "seconds")


def distance(answer: Solution, truth: Solution) -> dict[str, float]:
    """The numbers of `Distance` but for seconds; NaN where one side does not have the quantity."""
    values = dict.fromkeys(MEASURES[:-1], math.nan)
    mean, cov, exact_cov = answer.latent_mean, answer.latent_var, truth.latent_var
    if mean is not None and truth.latent_mean is not None and exact_cov is not None:
        values["bias"] = float(np.sqrt(np.mean((mean - truth.latent_mean) ** 2 / exact_cov)))
        if cov is not None:
            values["variance_ratio"] = float(np.exp(np.mean(np.log(cov / exact_cov))))
    if same_evidence(answer, truth) is None:
        assert answer.log_evidence is not None
        assert truth.log_evidence is not None
        values["log_z_error"] = answer.log_evidence - truth.log_evidence
    if answer.probabilities is not None and truth.probabilities is not None and len(truth.probabilities):
        p = np.maximum(answer.probabilities, LEAST_PROBABILITY)
        exact = np.maximum(truth.probabilities, LEAST_PROBABILITY)
        values["excess_nll"] = float(np.mean(np.sum(exact * (np.log(exact) - np.log(p)), axis=1)))
        top = np.argmax(p, axis=1)[:, None]
        values["overconfidence"] = float(np.mean(np.take_along_axis(p - exact, top, axis=1)))
    return values


def measured(truth: Truth, only: Sequence[str] = ()) -> Iterator[Distance]:
    """Every method of `fast`, or those of `only`, that answers for the truth's own model and comes to a fixed point."""
    p, card = truth.problem, truth.card
    known = methods()["fast"]
    assert known is not None
    for method in only or known:
        began = time.perf_counter()
        try:
            answer = solve("fast", method, p, **OPTIONS.get(method, {}))
        except (ImplementationError, ValueError):
            continue  # another likelihood or prior
        seconds = time.perf_counter() - began
        other = answer.evidence_target != "log p(y)" or answer.prior_model != p.prior_model
        if other or not answer.converged or premises.asked_for_steps(answer):
            continue
        values = distance(answer, truth.solution)
        yield Distance(
            card.problem, method, p.likelihood, p.prior_model, p.n, p.n_classes, float(np.log(p.variance.max())),
            **values, seconds=seconds,
        )  # fmt: skip


# -- the record ------------------------------------------------------------------------------------------------------


@cache
def recorded() -> tuple[Distance, ...]:
    """What `approximations.csv` has."""
    path = _path()
    if not path.is_file():
        return ()
    types: dict[str, Callable[[str], Any]] = get_type_hints(Distance)
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(Distance(**{key: types[key](value) for key, value in row.items()}) for row in csv.DictReader(file))


def measure(until: float | None = None, only: Sequence[str] = ()) -> None:
    """Add the made truths that are not recorded, the smallest first; those without data at hand are left out.

    only    methods that are new: they are added to recorded truths that have no row of any of them
    """
    rows = list(recorded())
    there = {row.truth for row in rows if not only or row.method in only}
    known = {row.truth for row in rows}
    names = [name for name in (*store.names(), *shelf.made()) if name not in there and (not only or name in known)]
    held = [name for name in names if name in store.RECIPES or not library.get(name).learn]
    for name in sorted(held, key=_size):
        if until is not None and time.time() > until:
            break
        try:
            rows += measured(shelf.load(name), only)
        except DatasetNotFoundError:
            continue
        _write(rows)
        sys.stderr.write(f"{name}\n")


def _size(name: str) -> int:
    if name in store.RECIPES:
        p = store.load(name).problem
        return p.n * (p.n_classes - 1)
    return library.get(name).size


def _write(rows: Sequence[Distance]) -> None:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(Distance._fields)
    for row in sorted(rows, key=lambda row: (row.truth, row.method)):
        writer.writerow([f"{value:.5g}" if isinstance(value, float) else value for value in row])
    storage.write_text(_path(), stream.getvalue())
    recorded.cache_clear()


def _path() -> Path:
    return Path(str(resources.files("validation.truth"))) / FILE


# -- tables and a picture --------------------------------------------------------------------------------------------


def band(log_variance: float) -> int:
    """Which of BANDS a log variance falls into."""
    return next(i for i, end in enumerate(BANDS) if log_variance < end)


def heads() -> list[str]:
    """The bands in words."""
    ends = ["below", *(f"{end:g}" for end in BANDS[:-1])]
    return [f"below {BANDS[0]:g}", *(f"{a} to {b:g}" for a, b in zip(ends[1:], BANDS[1:-1], strict=False)),
            f"above {BANDS[-2]:g}"]  # fmt: skip


def markdown(rows: Iterable[Distance]) -> str:
    """A table for two classes and one for more: by method and log variance, medians over the truths.

    A cell has bias, ratio of variances, and error of log Z in nats; the last columns are over all log variances.
    """
    listed = list(rows)
    parts = []
    for title, many in (("Two classes", False), ("More classes", True)):
        own = [row for row in listed if (row.n_classes > 2) == many]
        columns = ["method", *heads(), "excess NLL", "overconfidence", "seconds", "truths"]
        lines = [f"### {title}", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        for method in sorted({row.method for row in own}):
            mine = [row for row in own if row.method == method]
            cells = [_cell([row for row in mine if band(row.log_variance) == i]) for i in range(len(BANDS))]
            cells += [_number(median(mine, key)) for key in ("excess_nll", "overconfidence", "seconds")]
            lines.append(f"| {method} | {' | '.join(cells)} | {len(mine)} |")
        parts.append("\n".join([*lines, ""]))
    return "\n".join(parts)


def median(rows: Sequence[Distance], key: str) -> float:
    """The median of what is a number; NaN of nothing."""
    values = [value for row in rows if not math.isnan(value := getattr(row, key))]
    return float(np.median(values)) if values else math.nan


def _cell(rows: Sequence[Distance]) -> str:
    if not rows:
        return "-"
    return " / ".join(_number(median(rows, key)) for key in ("bias", "variance_ratio", "log_z_error"))


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2g}"


def draw(rows: Sequence[Distance]) -> Figure:
    """Excess NLL and error of log Z over log variance, a point for each truth and a line through medians of bands."""
    figure = Figure(figsize=(8.4, 7.6), layout="constrained")
    # the third row holds the legends: within a panel they would lie on its lines
    axes = figure.subplots(3, 2, squeeze=False, height_ratios=(1.0, 1.0, 0.4))
    measures = (("excess_nll", "excess NLL, nats", 1e-5), ("log_z_error", "|log Z error|, nats", 1e-4))
    for column, many in enumerate((False, True)):
        own = [row for row in rows if (row.n_classes > 2) == many]
        listed = sorted({row.method for row in own})
        for line, (key, label, least) in enumerate(measures):
            ax = axes[line, column]
            for place, method in enumerate(listed):
                mine = [row for row in own if row.method == method and not math.isnan(getattr(row, key))]
                style: dict[str, Any] = {"color": f"C{place % 10}", "ls": ("-", "--", ":")[place // 10 % 3]}
                groups = [[row for row in mine if band(row.log_variance) == i] for i in range(len(BANDS))]
                x = [float(np.mean([row.log_variance for row in group])) for group in groups if group]
                y = [max(abs(median(group, key)), least) for group in groups if group]
                if x or line == 0:  # of the first row is the legend of the column
                    ax.plot(x, y, marker="o", ms=3.0, lw=1.0, label=method, **style)
            ax.set_yscale("log")
            # as 1e-05: Matplotlib's own labels are formulas, and pictures of truths set none
            ax.yaxis.set_major_formatter(FormatStrFormatter("%g"))
            ax.set_xlabel("log variance")
            ax.set_ylabel(label)
            if line == 0:
                ax.set_title("more classes" if many else "two classes", loc="left")
                axes[2, column].axis("off")
                if ax.lines:
                    axes[2, column].legend(handles=ax.lines, loc="upper left", fontsize=7.0, ncols=3, frameon=False)
    return figure


if __name__ == "__main__":
    measure(time.time() + 60.0 * float(sys.argv[1]) if len(sys.argv) > 1 else None, sys.argv[2:])
