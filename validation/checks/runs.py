"""Runs: the same answer however it is computed. One table of ways, asked of every method whose options document one.

A run is a question to `solve`: some sweeps, or some steps on mini-batches. It is asked twice, the second time in
another way: interrupted and resumed, in other blocks, with less memory, under other threads, watched, with another
seed. What regroups sums may move the last digits; everything else may move no bit. A seed is asked both ways: the same
one repeats a run, another one gives another run where something is drawn and changes nothing where nothing is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from validation.checks.core import Compared, Context, Outcome, check
from validation.door.catalogue import ALL_ROWS, METHODS, TRUTHS
from validation.door.options import options_of
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.door.solve import solve
from validation.implementations.in_parts import CLASSES, QUADRATIC, in_parts
from validation.jobs.run import Processes
from validation.judge import chains
from validation.judge.compare import identity_limit, relative_difference

_DETERMINISTIC = ("reference", "fast")
_OTHER_SEED = {"seed": 4}
RESUMABLE = ("checkpoint", "callback")
_NO_FILE = ("mh-softmax", "chains")  # takes a checkpoint only where it learns
_ROWS, _POINTS = 12, 4  # of a problem that are asked about, where the number of rows makes no difference
# by likelihood and by whether there are inducing points; a binary likelihood is put in the place of the problem's own
_PROBLEMS: Mapping[tuple[str, bool], str] = {
    ("logit", True): "toy-sparse", ("probit", True): "toy-sparse", ("logit", False): "toy-spread",
    ("threshold", True): "toy-3-sparse-errors", ("softmax", True): "toy-3-sparse-softmax",
    ("softmax", False): "toy-3-softmax", ("multinomial-probit", False): "toy-3",
}  # fmt: skip
_OF_TRUTHS: Mapping[str, str] = {
    "logit": "two-points", "probit": "two-points", "threshold": "two-points-3-threshold",
    "softmax": "two-points-3-softmax",
}  # fmt: skip
_NO_ERRORS = ("ep", "sep", "gfitc")  # their likelihood has no labelling errors
_DENSITY = {"variance": ("log-normal", 1.0, 1.0)}  # of what a chain samples


class Method(NamedTuple):
    """A method of the catalogue: who answers by it, its paper, a likelihood that it takes, and its problem's name."""

    name: str
    witnesses: tuple[str, ...]
    paper: str
    likelihood: str
    problem: str


def _methods() -> Iterator[Method]:
    for row in METHODS:
        link = row.likelihoods[0]
        name = _PROBLEMS[link, row.points != ALL_ROWS]
        name = name.replace("-errors", "-threshold") if row.method in _NO_ERRORS else name
        yield Method(row.method, _DETERMINISTIC, row.paper, link, name)
    for truth in TRUTHS:
        link = truth.likelihoods[0]
        # the paper that the likelihood is of
        paper = next(row.paper for row in METHODS if link in row.likelihoods)
        yield Method(truth.method, (truth.implementation,), paper, link, _OF_TRUTHS[link])


CATALOGUE = tuple(_methods())


def asked_of(method: Method, context: Context) -> tuple[str, ...]:
    """Who is asked: `reference`, which computes equation by equation, in a full run only."""
    return tuple(witness for witness in method.witnesses if witness != "reference" or not context.quick)


def documents(witness: str, method: str, *names: str) -> bool:
    """Whether a witness documents these options of a method."""
    return set(names) <= set(options_of(witness, method))


def posed(method: Method, problem: Problem) -> Problem:
    """The first rows and inducing points of a problem, with the likelihood of the method."""
    assert problem.X_test is not None
    return problem.replace(
        X=problem.X[:_ROWS], y=problem.y[:_ROWS], X_test=problem.X_test[:5], y_test=None,
        Z=None if problem.Z is None else problem.Z[:, :_POINTS],
        likelihood=method.likelihood if problem.n_classes == 2 else problem.likelihood,
        hyperprior=None if method.witnesses == _DETERMINISTIC else _DENSITY,
    )  # fmt: skip


# -- what is run -----------------------------------------------------------------------------------------------------

_LEARN = {"learn": ("variance", "lengthscales", "noise")}
_DRAWN = {"batch_size": 5, "n_steps": 6, "seed": 3}
_RUNS: Mapping[str, Mapping[str, Any]] = {
    "sweeps": {"max_iterations": 4},
    "steps": {**_DRAWN, **_LEARN},
    "chains": {"n_chains": 4, "n_draws": 16, "n_warmup": 5, "seed": 3, "evidence": "none"},
    "draws": {"n_draws": 16, "n_warmup": 5, "seed": 3},
}


def runs(witness: str, method: str) -> dict[str, dict[str, Any]]:
    """Short runs of a method by name, with those options that are documented; the last one draws if any does."""
    known = options_of(witness, method)
    if witness not in _DETERMINISTIC:
        names = ["chains" if "n_chains" in known else "draws"]
    else:
        names = [name for name, needs in (("sweeps", "max_iterations"), ("steps", "batch_size")) if needs in known]
    results = {
        name: {k: v for k, v in _RUNS[name].items() if k in known} for name in names or ["whole"] if name in _RUNS
    }
    if "chains" in results and "learn" in known:
        results["chains that learn"] = {k: v for k, v in results["chains"].items() if k != "evidence"} | {
            "learn": ("variance",)
        }
    return results or {"whole": {}}


def listed(problem: Problem) -> list[Any]:
    """Mini-batches that leave nothing to chance: one row stands twice in the last."""
    order = np.random.default_rng(8).permutation(problem.n)
    return [order[:5], order[4:9], order[[0, 7, 7, 2]]]


# -- two answers -----------------------------------------------------------------------------------------------------

_TELL = ("seconds", "settings", "versions", "problem/name")  # of how an answer was had, not of what it is


def numbers(solution: Solution, without: Iterable[str] = ()) -> dict[str, Any]:
    """Every number of an answer by name, what it learned included."""
    left_out = (*_TELL, *without)
    return {k: v for k, v in solution.to_arrays().items() if k not in left_out and k.partition("/")[0] not in left_out}


def differing(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[str]:
    """Names of the numbers that differ in any bit, or that one side lacks."""
    names = sorted({*left, *right})
    return [
        k for k in names if k not in left or k not in right or not np.array_equal(left[k], right[k], _floats(left[k]))
    ]


def _floats(value: Any) -> bool:
    return bool(np.issubdtype(np.asarray(value).dtype, np.floating))


def same_bits(left: Solution, right: Solution, why: str, way: str, without: Iterable[str] = ()) -> Compared:
    """How many quantities of an answer differ in any bit."""
    parts = differing(numbers(left, without), numbers(right, without))
    told = f"{why}{'; differ: ' + ', '.join(parts) if parts else ''}"
    return Compared(float(len(parts)), 0.0, told, left.label, f"{left.label}, {way}", "quantities that differ in a bit")


def close(left: Solution, right: Solution, why: str, way: str, without: Iterable[str] = ()) -> Compared:
    """The largest relative difference of any quantity of an answer; counts and flags must be equal."""
    a, b = numbers(left, without), numbers(right, without)
    apart = {name: np.inf if name not in a or name not in b else _apart(name, a[name], b[name]) for name in {*a, *b}}
    worst = max(sorted(apart), key=lambda name: apart[name])
    limit, reason = identity_limit(left.problem)
    return Compared(
        float(apart[worst]), limit, f"{why}; {reason}; {worst} differs most of {len(apart)} quantities", left.label,
        f"{left.label}, {way}", "largest relative difference of a quantity",
    )  # fmt: skip


def _apart(name: str, left: Any, right: Any) -> float:
    if np.shape(left) != np.shape(right):
        return np.inf
    if not _floats(left):
        return 0.0 if np.array_equal(left, right) else np.inf
    # a residual is a distance on the scale of what moves, and a derivative is one of log Z, whose terms cancel
    floor = 1.0 if name.startswith(("residual", "gradients/", "local/")) else 0.0
    return float(relative_difference(left, right, floor))


# -- ways that need one more option ----------------------------------------------------------------------------------


class Way(NamedTuple):
    """A second way of a run.

    needs     options that must be documented for it
    changes   what is asked the second time, each of them alone, of a problem in a folder
    bits      whether no bit may differ; else sums are regrouped, and mini-batches are listed ones: which rows are drawn
              together may depend on how many are read together
    without   quantities that only one of the ways has
    """

    statement: str
    needs: tuple[str, ...]
    changes: Callable[[Problem, Path], Iterable[Mapping[str, Any]]]
    why: str
    bits: bool = True
    without: tuple[str, ...] = ()


def _nobody(_: Any) -> None:
    """A listener that does nothing."""


_REGROUPED = "sums of rows in other groups: rounding"
WAYS: Mapping[str, Way] = {
    "block_size": Way(
        "The answer does not depend on block_size.", ("block_size",),
        lambda p, _: ({"block_size": size} for size in (1, 7, p.n)), _REGROUPED, bits=False,
    ),
    "memory_budget": Way(
        "The answer does not depend on memory_budget.", ("memory_budget",),
        lambda p, _: ({"memory_budget": 0.0}, {"memory_budget": 0.0, "block_size": 7}), _REGROUPED, bits=False,
    ),
    "site_file": Way(
        "Sites in a file give the digits of sites in memory.", ("site_file",),
        lambda _, folder: ({"site_file": folder / "sites"},), "a file holds the same numbers",
    ),
    "listener": Way(
        "A callback changes no digit.", ("callback",), lambda *_: ({"callback": _nobody},),
        "a listener that changes nothing",
    ),
    "trace": Way(
        "Keeping log Z of each step changes no digit.", ("trace",), lambda *_: ({"trace": True},),
        "what is kept of the way is no part of it", without=("trace",),
    ),
    "gradients": Way(
        "Leaving out gradients changes no other digit.", ("gradients",), lambda *_: ({"gradients": False},),
        "gradients are worked out at the end", without=("gradients",),
    ),
    "evaluate": Way(
        "Leaving out log Z of all data changes no other digit.", ("evaluate",), lambda *_: ({"evaluate": False},),
        "log Z is worked out at the end, and how far from an optimum it is",
        without=("log_evidence", "gradients", "residual"),
    ),
}  # fmt: skip


def second_way(way: Way, method: Method, context: Context, problem: Problem) -> Iterable[Outcome]:
    """Every run of every witness that documents the option, in a second way."""
    asked = posed(method, problem)
    if not way.bits and asked.Z is not None:
        asked = enlarged(asked).replace(Z=asked.Z)  # the smallest blocks have 64 rows
    for witness in asked_of(method, context):
        if not documents(witness, method.name, *way.needs):
            continue
        for name, options in runs(witness, method.name).items():
            if not way.bits and "batch_size" in options:
                options = {k: v for k, v in options.items() if k not in _DRAWN} | {"batches": listed(asked)}
            first = context.solve(witness, method.name, asked, **options)
            with tempfile.TemporaryDirectory() as folder:
                for changes in way.changes(asked, Path(folder)):
                    again = solve(witness, method.name, asked, **{**options, **changes})
                    told = f"{name}, {', '.join(changes)} otherwise"
                    compare = same_bits if way.bits else close
                    yield compare(first, again, f"{way.why} ({name})", told, way.without)


# -- interrupted -----------------------------------------------------------------------------------------------------


class _EndedError(Exception):
    """What a listener raises to end a run."""


class _Listener:
    """Counts how often it is called, and ends the run at one of the calls."""

    def __init__(self, end_at: int | None = None) -> None:
        self.calls, self.end_at = 0, end_at

    def __call__(self, _: Any) -> None:
        self.calls += 1
        if self.calls == self.end_at:
            raise _EndedError


def interrupted(method: Method, context: Context, problem: Problem) -> Iterable[Outcome]:
    """A run that its listener ends half-way and at the last step, and the same call again."""
    asked = posed(method, problem)
    for witness in asked_of(method, context):
        for name, options in runs(witness, method.name).items():
            if name == "sweeps" or (method.name, name) == _NO_FILE or not documents(witness, method.name, *RESUMABLE):
                continue
            every = 2 if name == "steps" else 4
            whole = _Listener()
            first = solve(witness, method.name, asked, **options, callback=whole)
            with tempfile.TemporaryDirectory() as folder:
                for end in (whole.calls // 2, whole.calls - 1):
                    kept = {"checkpoint": Path(folder) / f"{end}.npz", "checkpoint_every": every}
                    with suppress(_EndedError):
                        solve(witness, method.name, asked, **options, **kept, callback=_Listener(end))
                    rest = _Listener()
                    again = solve(witness, method.name, asked, **options, **kept, callback=rest)
                    way = f"ended at {end} of {whole.calls} and resumed"
                    yield same_bits(first, again, f"a file holds all that later steps depend on ({name})", way)
                    yield Compared(
                        float(rest.calls), float(whole.calls - end + every), "what is in the file is not made again",
                        f"{first.label}, {way}", "steps that are left, and those since the last file", "steps",
                    )  # fmt: skip


# -- seeds -----------------------------------------------------------------------------------------------------------


def drawn(witness: str, method: str) -> dict[str, Any] | None:
    """Options of a run in which something is drawn from `seed`; None if the method documents none."""
    if not documents(witness, method, "seed"):
        return None
    if documents(witness, method, "batch_size") or witness == "gibbs":
        return list(runs(witness, method).values())[-1]
    if documents(witness, method, "expectation", "n_draws"):
        return {"expectation": "monte-carlo", "n_draws": 20, "seed": 3}
    return None


def fixed(witness: str, method: str, problem: Problem) -> dict[str, Any] | None:
    """Options of a run in which nothing is drawn, though the method documents `seed`."""
    if not documents(witness, method, "seed"):
        return None
    if documents(witness, method, "batches"):
        return {"batches": listed(problem), "seed": 3}
    return runs(witness, method)["sweeps"] | {"seed": 3} if witness in _DETERMINISTIC else None


def same_seed(method: Method, context: Context, problem: Problem) -> Iterable[Outcome]:
    """A run that draws, twice."""
    asked = posed(method, problem)
    for witness in asked_of(method, context):
        options = drawn(witness, method.name)
        if options is not None:
            first = context.solve(witness, method.name, asked, **options)
            again = solve(witness, method.name, asked, **options)
            yield same_bits(first, again, "what is drawn follows from the seed", "asked again")


def another_seed(method: Method, context: Context, problem: Problem) -> Iterable[Outcome]:
    """A run that draws, with two seeds: other numbers; a run that does not: the same."""
    asked = posed(method, problem)
    for witness in asked_of(method, context):
        options = drawn(witness, method.name)
        if options is not None:
            first = context.solve(witness, method.name, asked, **options)
            again = solve(witness, method.name, asked, **options | _OTHER_SEED)
            equal = not differing(numbers(first), numbers(again))
            yield Compared(
                float(equal), 0.0, "draws of another seed are others", first.label, f"{first.label}, another seed",
                "answers that are equal in every bit",
            )  # fmt: skip
        options = fixed(witness, method.name, asked)
        if options is not None:
            first = context.solve(witness, method.name, asked, **options)
            again = solve(witness, method.name, asked, **options | _OTHER_SEED)
            yield same_bits(first, again, "nothing is drawn", "another seed")


# -- mini-batches ----------------------------------------------------------------------------------------------------


def batches(method: Method, context: Context, problem: Problem) -> Iterable[Outcome]:
    """Batches with their rows in another order, and batches that are drawn and have all rows: each of them once."""
    asked = posed(method, problem)
    everything = [np.arange(asked.n)] * 3
    for witness in asked_of(method, context):
        if not documents(witness, method.name, "batches"):
            continue
        first = context.solve(witness, method.name, asked, batches=listed(asked), **_LEARN)
        again = solve(witness, method.name, asked, batches=[rows[::-1] for rows in listed(asked)], **_LEARN)
        yield close(first, again, "a batch is a set of rows", "rows of each batch in another order", ("local",))
        first = context.solve(witness, method.name, asked, batches=everything, **_LEARN)
        again = solve(witness, method.name, asked, batch_size=asked.n, n_steps=3, seed=3, **_LEARN)
        yield close(first, again, "a drawn batch of n rows has each row once, with its label", "batches drawn")


# -- threads and workers ---------------------------------------------------------------------------------------------


def enlarged(problem: Problem) -> Problem:
    """A problem of 210 rows (and as many inducing points) of the same kind: its matrices may take several threads."""
    rng = np.random.default_rng(12)
    X = rng.uniform(-2.0, 2.0, (210, problem.d))
    y = (X[:, 0] + 0.5 * rng.standard_normal(210) > 0.0).astype(int) + (X[:, -1] > 1.0) * (problem.n_classes > 2)
    Z = None if problem.Z is None else X + 0.01
    return problem.replace(X=X, y=y, Z=Z, X_test=X[:3], y_test=None, lengthscales=0.3, jitter=1e-2 * problem.variance)


def threads(method: Method, context: Context, problem: Problem) -> Iterable[Outcome]:
    """Two sweeps on one thread of linear algebra and on two."""
    asked = enlarged(posed(method, problem))
    for witness in set(method.witnesses) & {"fast"}:
        known = options_of(witness, method.name)
        few: dict[str, Any] = {"max_iterations": 2, "gradients": False}
        if "max_iterations" not in known and "batch_size" in known:
            few = {"batch_size": asked.n, "n_steps": 2, "seed": 3}
        options = {name: value for name, value in few.items() if name in known}
        with threadpool_limits(limits=1, user_api="blas"):
            one = solve(witness, method.name, asked, **options)
        with threadpool_limits(limits=2, user_api="blas"):
            two = solve(witness, method.name, asked, **options)
        yield close(one, two, "threads add in another order: rounding", "two threads")


def workers(method: Method, context: Context, problem: Problem) -> Iterable[Outcome]:
    """Chains in two groups, in this process and in two others."""
    (witness,), asked = method.witnesses, posed(method, problem)
    options = list(runs(witness, method.name).values())[-1]
    here, there = (chains.solve_groups(method.name, asked, Processes(count), groups=2, **options) for count in (1, 2))
    yield same_bits(here, there, "a group draws from a stream of its own", "two processes")


def parts(method: Method, context: Context, problem: Problem) -> Iterable[Outcome]:
    """Rows that are read part by part, to the fixed point of the same rows in one array."""
    asked = posed(method, problem)
    answer = context.solve("fast", method.name, asked)
    assert answer.probabilities is not None
    for leaf in (5,):
        found = in_parts(method.name, asked, leaf)
        # the compact bounds have no q of their own
        names = [name for name in found if getattr(answer, name) is not None]
        apart = {name: relative_difference(found[name], getattr(answer, name)) for name in names}
        worst = max(sorted(apart), key=lambda name: apart[name])
        limit, why = identity_limit(asked)
        yield Compared(float(apart[worst]), limit, f"{why}; {worst} differs most of {', '.join(apart)}",
                       f"fast {method.name}, {leaf} rows a part", answer.label,
                       "largest relative difference")  # fmt: skip


# -- registration ----------------------------------------------------------------------------------------------------


class Question(NamedTuple):
    """A question to every method of which a witness documents some options; `full`: a full run asks it."""

    statement: str
    needs: tuple[str, ...]
    ask: Callable[[Method, Context, Problem], Iterable[Outcome]]
    full: bool = False


QUESTIONS: Mapping[str, Question] = {
    **{name: Question(way.statement, way.needs, partial(second_way, way)) for name, way in WAYS.items()},
    "interrupted": Question(
        "A run that is ended and resumed has the digits of one that is not.", RESUMABLE, interrupted
    ),
    "same_seed": Question("The same seed gives the same digits.", ("seed",), same_seed),
    "another_seed": Question("Another seed gives another run if anything is drawn.", ("seed",), another_seed),
    "batches": Question("A batch is a set of rows, and a drawn one of n rows has them all.", ("batches",), batches),
    "parts": Question("Rows that are read part by part give the answer of one array.", (), parts),
    "threads": Question(
        "The answer does not depend on the threads of linear algebra.", ("block_size",), threads, full=True
    ),
    "workers": Question("The digits do not depend on the number of workers.", ("n_chains",), workers, full=True),
}


def _register(method: Method, quantity: str, question: Question) -> None:
    """In every run what `fast` or a chain documents; in a full one what takes long or `reference` alone documents."""
    able = {w for w in method.witnesses if documents(w, method.name, *question.needs)}
    if quantity.endswith("seed"):
        able = {w for w in able if drawn(w, method.name) is not None}
    if quantity == "parts":
        able = {"fast"} if method.name in QUADRATIC + CLASSES else set()
    if not able:
        return
    quick = () if question.full or able == {"reference"} else (method.problem,)
    full = () if quick else (method.problem,)

    @check(f"run/{method.name}/{quantity}", paper=method.paper, question=question.statement, problems=quick, full=full)
    def asked(context: Context, problem: Problem) -> Iterable[Outcome]:
        return question.ask(method, context, problem)


for _method in CATALOGUE:
    for _quantity, _question in QUESTIONS.items():
        _register(_method, _quantity, _question)
