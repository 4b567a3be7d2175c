"""What `triad truth list` lists: every truth at hand and every posterior that the library defines, a row each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fnmatch import fnmatch
from typing import NamedTuple

from validation.truth import library, making, shelf, store, withheld
from validation.truth.card import EvidenceCard

STATES = ("made", "missing", "refused")


class Row(NamedTuple):
    """One truth. log_variance is that of the largest variance; m is 0 for a full process.

    state     "made", "missing" (`triad truth make '*'` makes it), "refused" (made once; it missed its gates)
    seconds   that it took, or that it is thought to take
    reason    of what is refused
    """

    name: str
    dataset: str
    likelihood: str
    prior_model: str
    n: int
    n_classes: int
    m: int
    log_variance: float
    epsilon: float
    per_input: bool
    learn: tuple[str, ...]
    withheld: bool
    state: str
    seconds: float
    route: str
    reason: str


class Filter(NamedTuple):
    """Which rows are wanted; what is None, or 0 for `max_n`, leaves all."""

    pattern: str | None = None
    likelihood: str | None = None
    prior: str | None = None
    classes: int | None = None
    dataset: str | None = None
    max_n: int = 0
    log_variance: float | None = None
    epsilon: float | None = None
    state: str | None = None

    def admits(self, row: Row) -> bool:
        """Whether a row is wanted; names of data sets and the pattern may have wildcards, numbers agree to 0.005."""
        return (
            (self.pattern is None or fnmatch(row.name, self.pattern))
            and self.likelihood in (None, row.likelihood, library.SHORT.get(row.likelihood))
            and self.prior in (None, row.prior_model)
            and self.classes in (None, row.n_classes)
            and (self.dataset is None or fnmatch(row.dataset, self.dataset.replace("-", "_")))
            and (not self.max_n or row.n <= self.max_n)
            and _near(self.log_variance, row.log_variance)
            and _near(self.epsilon, row.epsilon)
            and self.state in (None, row.state)
        )


def _near(wanted: float | None, value: float) -> bool:
    # the tables print two digits
    return wanted is None or abs(wanted - value) <= 0.005


def rows() -> tuple[Row, ...]:
    """All of them: those that `triad verify` reads, those of withheld data, the library."""
    return (*map(_stored, store.names()), *map(_withheld, withheld.SETTINGS), *_library())


def chosen(wanted: Filter) -> tuple[Row, ...]:
    """The rows that a filter admits."""
    return tuple(row for row in rows() if wanted.admits(row))


def _stored(name: str) -> Row:
    truth = store.load(name)
    p = truth.solution.problem
    head = name.partition("-")[0]
    dataset = {"toy": "gp", "breast": "breast_cancer"}.get(head, head)
    return Row(
        name, dataset, p.likelihood, p.prior_model, p.n, p.n_classes, p.m or 0, math.log(p.variance.max()), p.epsilon,
        bool((p.lengthscales != p.lengthscales[:, :1]).any()), (), False, "made", truth.card.seconds,
        store.RECIPES[name].method, "",
    )  # fmt: skip


def _withheld(name: str) -> Row:
    # its size is in the card alone where the data are not at hand
    card, setting = EvidenceCard.load(withheld.folder() / f"{name}.toml"), withheld.SETTINGS[name]
    sizes = dict(part.split(" = ") for part in card.model.split(", ") if " = " in part)
    return Row(
        name, setting.dataset, card.model.split(",")[0], "full", int(sizes["n"]), int(sizes["C"]), 0,
        setting.log_variance, 0.0, False, (), True, "made", card.seconds, card.route.split()[1], "",
    )  # fmt: skip


def _library() -> Iterable[Row]:
    refused = making.refused()
    for p in library.posteriors().values():
        made, reason = shelf.is_made(p.name), ""
        seconds = shelf.card_of(p.name).seconds if made else p.seconds
        if not made and p.name in refused:
            seconds, reason = refused[p.name].seconds, refused[p.name].reason
        state = "made" if made else "refused" if reason else "missing"
        yield Row(
            p.name, p.dataset, p.likelihood, p.prior_model, p.n, p.n_classes, p.m, p.log_variance, p.epsilon,
            p.per_input, p.learn, p.withheld, state, seconds, p.route, reason,
        )  # fmt: skip


def markdown(listed: Iterable[Row]) -> str:
    """Rows as a table of the docs."""
    lines = [
        "| truth | data set | likelihood | prior | n | C | log variance | state |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in listed:
        likelihood = row.likelihood + (f", epsilon {row.epsilon:g}" if row.epsilon else "")
        prior = f"FITC, m = {row.m}" if row.m else "full"
        state = {"made": "made", "refused": "gates missed", "missing": f"about {_duration(row.seconds)}"}[row.state]
        mark = " *" if row.withheld else ""
        lines.append(
            f"| `{row.name}`{mark} | {row.dataset} | {likelihood} | {prior} | {row.n} | {row.n_classes} "
            f"| {row.log_variance:.3g} | {state} |"
        )
    return "\n".join([*lines, ""])


def _duration(seconds: float) -> str:
    """Seconds below two minutes, minutes below two hours, hours."""
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 7200.0 else f"{seconds / 3600.0:.0f} h"


def state(row: Row) -> str:
    """The state of a row in a table: what is missing says its cost."""
    return row.state if row.state != "missing" else _duration(row.seconds)
