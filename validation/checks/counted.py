"""Improper cavities of a run: as many as its sweeps counted, in the answer and in what a listener is told.

Ordinary runs count none, and a sum of zeros has no sign. So the judge has every sweep count what no other counts, a
power of two each, and adds up what was counted: a sweep that is lost, taken twice or subtracted is another number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from importlib import import_module
from typing import Any, NamedTuple
from unittest import mock

from validation.checks.core import NO_PROBLEM, Context, Outcome, check, flaws
from validation.checks.learning import BATCHES, HYPER, PAPER, tiny
from validation.problem import Problem


class _Counter:
    """What is put in place of a function that counts; the k-th call counts 2^k more, up to 2^30."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.counts, self.open = function, list[int](), True

    def of(self, result: Any, more: int) -> Any:
        """The same result, in which more are counted."""
        return result._replace(n_improper=result.n_improper + more)

    def count(self, result: Any) -> int:
        """How many a result counts."""
        return int(result.n_improper)

    def call(self, *arguments: Any, **named: Any) -> Any:
        """In place of the function."""
        if not self.open:
            return self._function(*arguments, **named)
        result = self.of(self._function(*arguments, **named), 2 ** (len(self.counts) % 31))
        self.counts.append(self.count(result))
        return result

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, in whose calls alone it counts."""

        def call(*arguments: Any, **named: Any) -> Any:
            self.open = True
            try:
                return function(*arguments, **named)
            finally:
                self.open = False

        return call


class _Pairs(_Counter):
    """Of a function that returns its count as the second of two."""

    def of(self, result: Any, more: int) -> Any:
        return result[0], result[1] + more

    def count(self, result: Any) -> int:
        return int(result[1])


class _First(_Counter):
    """Of a function that returns a record with its count first, and more."""

    def of(self, result: Any, more: int) -> Any:
        return super().of(result[0], more), *result[1:]

    def count(self, result: Any) -> int:
        return super().count(result[0])


class _Absent(_Counter):
    """Of a visit of one site of eight: the third is told that it has no cavity, in every sweep."""

    def call(self, *arguments: Any, **named: Any) -> Any:
        self.counts.append(int(len(self.counts) % 8 == 2))
        return None if self.counts[-1] else self._function(*arguments, **named)


class Way(NamedTuple):
    """A run, and where its sweeps count.

    where : str           module:function, or module:class.method
    runs : mappings       options of `solve`, a run each
    told : bool           whether listeners are told the sum so far
    within : str          module:class.method in whose calls alone it counts; others look at an evidence or a gradient
    """

    witness: str
    method: str
    kind: str
    where: str
    runs: tuple[Mapping[str, Any], ...]
    counter: type[_Counter] = _Counter
    told: bool = True
    within: str = ""


# a tolerance that the second sweep meets: what keeps the run from its end are the cavities alone
_FEW: Mapping[str, Any] = {"max_iterations": 3, "tolerance": 0.5}
_CLASSES: tuple[Mapping[str, Any], ...] = (
    {**_FEW, "damping": 0.7},
    {"batches": BATCHES, "damping": 0.7},
    *({"learn": HYPER, "n_steps": 2, "rate": 0.01, "scheme": scheme, **_FEW} for scheme in ("inner-exact", "outer")),
)
_POWER = tuple(
    {**options, "alpha": 0.7, **({"scheme": "inner"} if "inner-exact" in options.values() else {})}
    for options in _CLASSES
)
_TURN: Mapping[str, Any] = {"schedule": "sequential", "damping": 0.7, **_FEW}
_NESTED: tuple[Mapping[str, Any], ...] = (_FEW, {**_FEW, "schedule": "sequential"})
_LONGER = tuple({**options, "max_iterations": 6} for options in _NESTED)  # a rate takes three steps to be known
_FULL = "multinomial-probit full"

_SWEEPS = "sparse_classes.ep:SiteRun.refresh"


def _as(form: str, runs: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple({**options, "form": form} for options in runs)


WAYS: tuple[Way, ...] = (
    Way("reference", "ep", "threshold", "villacampa2017.methods:PairwiseEP.step", _as("projected", (*_CLASSES, _TURN))),
    Way("reference", "ep", "threshold", "villacampa2017.printed:PrintedEP.step",
        _as("printed", (*_CLASSES[:2], _TURN))),
    Way("reference", "ep", "threshold", "villacampa2017.methods:DatumEP.step", ({"factors": "datum", **_FEW},)),
    Way("reference", "sep", "threshold", "villacampa2017.tied:TiedEP.step", _CLASSES),
    Way("reference", "gfitc", "threshold", "villacampa2017.gfitc:_Projected.step", _as("projected", _CLASSES[:1])),
    Way("reference", "gfitc", "threshold", "villacampa2017.gfitc:_Printed.step", _as("printed", _CLASSES[:1])),
    Way("reference", "pep", "threshold errors", "villacampa2020.fit_pep:_projected_sweep", _as("projected", _POWER)),
    Way("reference", "pep", "threshold errors", "villacampa2020.fit_pep:_printed_sweep", _as("printed", _POWER[:2])),
    Way("reference", "epgpc", "probit", "wenzel2019.fit_epgpc:_refreshed", (_FEW, {"batches": BATCHES}), _Pairs, False),
    *(
        Way("reference", method, _FULL, f"riihimaki2013.{place}.visit", _LONGER, _Absent)
        for method, place in (
            ("nested-ep", "nested_ep:NestedEP"), ("nested-iep", "nested_ep:NestedIEP"),
            ("qep", "qep:QuadratureEP"), ("qiep", "qep:QuadratureIEP"),
        )
    ),
    Way("fast", "ep", "threshold", "sparse_classes.pairwise_factors:Pairwise.visit", (*_CLASSES, _TURN),
        within=_SWEEPS),
    Way("fast", "ep", "threshold", "sparse_classes.power_factors:PowerDatum.visit", ({"factors": "datum", **_FEW},),
        within=_SWEEPS),
    Way("fast", "pep", "threshold errors", "sparse_classes.power_factors:PowerDatum.visit", _POWER, within=_SWEEPS),
    Way("fast", "gfitc", "threshold", "sparse_classes.fitc_latents:LatentRun.visit", _CLASSES[:1], _First,
        within="sparse_classes.fitc_latents:LatentRun.refresh"),
    # listeners of an outer loop are told of its last iteration
    Way("fast", "nested-ep", _FULL, "methods.nested_ep:_proposal", _NESTED, told=False),
    Way("fast", "qep", _FULL, "methods.quadrature_ep:_QEP.proposal", _NESTED, told=False),
)  # fmt: skip


def _owner(witness: str, where: str) -> tuple[Any, str]:
    """The module or class in which a function stands, and its name."""
    place, _, name = where.partition(":")
    owner: Any = import_module(f"{witness}.{place}")
    *path, attribute = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    return owner, attribute


def _bound(call: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function, which a class binds."""

    def function(*arguments: Any, **named: Any) -> Any:
        return call(*arguments, **named)

    return function


def counted(context: Context, way: Way) -> Iterable[Outcome]:
    """What each run of a way says of its improper cavities, against what its sweeps counted."""
    owner, attribute = _owner(way.witness, way.where)
    name = way.where.partition(":")[2]
    for number, options in enumerate(way.runs):
        counter = way.counter(getattr(owner, attribute))
        asked = tiny(way.kind).replace(name=f"{way.kind}, counted at {name}, {number}")
        told: list[tuple[int, int]] = []

        def listen(progress: Any, counter: _Counter = counter, told: list[tuple[int, int]] = told) -> None:
            told.append((getattr(progress, "n_improper", -1), sum(counter.counts)))

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(owner, attribute, _bound(counter.call)))
            if way.within:
                around, inside = _owner(way.witness, way.within)
                counter.open = False
                stack.enter_context(mock.patch.object(around, inside, _bound(counter.around(getattr(around, inside)))))
            solved = context.solve(way.witness, way.method, asked, callback=listen, **options)
        label = ", ".join(f"{key} {value}" for key, value in options.items() if key != "batches") or "on batches"
        total = sum(counter.counts)
        yield flaws(solved.n_improper != total or not total, f"{name}, {label}: {total} in {len(counter.counts)} calls",
                    way.witness, "sums")  # fmt: skip
        if way.told:
            wrong = sum(message != so_far for message, so_far in told)
            yield flaws(wrong if told else 1, f"{name}, {label}: told {len(told)} times, the sum so far", way.witness,
                        "sums")  # fmt: skip
        yield flaws(solved.converged, f"{name}, {label}: no end while cavities are improper", way.witness, "ends")


def _register(method: str) -> None:
    ways = tuple(way for way in WAYS if way.method == method)

    @check(
        f"identity/{method}/counted",
        paper=PAPER[method],
        question="Are the improper cavities of a run as many as its sweeps counted?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        for way in ways:
            yield from counted(context, way)


for _method in dict.fromkeys(way.method for way in WAYS):
    _register(_method)
