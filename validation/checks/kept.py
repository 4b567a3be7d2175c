"""What is computed once and kept: work is counted, in the order in which questions come.

Whatever is kept changes no number, so that comparisons of answers say nothing of it. Here a function that takes time is
watched, and each question of a list says how often it has to be asked again: never where the answer is at hand, each
time where memory does not suffice, anew where something else is asked for. What was kept is the answer to the last bit.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Context, Outcome, check, flaws
from validation.checks.learning import PAPER, tiny
from validation.problem import Problem

Array = NDArray[np.float64]
Place = tuple[Any, str]  # module or class, and the name of a function in it


class Ask(NamedTuple):
    """A question.

    what : str         in words
    calls : int        of the watched functions that it takes
    ask : callable
    like : str         questions of one such name have one answer; "": any
    """

    what: str
    calls: int
    ask: Callable[[], Any]
    like: str = ""


def _numbers(answer: Any) -> Array:
    """All numbers of an answer, in order."""
    if answer is None:
        return np.zeros(0)
    if isinstance(answer, tuple | list):
        return np.concatenate([np.zeros(0), *map(_numbers, answer)])
    return np.array(answer, dtype=np.float64).ravel()


@contextmanager
def watched(*places: Place) -> Iterator[list[str]]:
    """The names of functions that were called, in order."""
    calls: list[str] = []

    def around(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            calls.append(name)
            return function(*arguments, **named)

        return call

    with ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(mock.patch.object(owner, name, around(getattr(owner, name), name)))
        yield calls


def asked_in_order(witness: str, label: str, places: Sequence[Place], questions: Iterable[Ask]) -> Iterable[Outcome]:
    """Questions one after the other: the calls that each takes, and answers that are to agree.

    What is computed anew may differ from what was kept by rounding, of a billionth of the largest number at most.
    """
    wrong, answers = [], dict[str, Array]()
    with watched(*places) as calls:
        for what, expected, ask, like in questions:
            calls.clear()
            numbers = _numbers(ask())
            if len(calls) != expected:
                wrong.append(f"{what}: {len(calls)} calls, expected {expected}")
            first = answers.setdefault(like or what, numbers)
            if first.shape != numbers.shape or not np.allclose(
                first, numbers, 0.0, 1e-9 * np.abs(first).max(initial=1)
            ):
                wrong.append(f"{what}: another answer")
    yield flaws(len(wrong), "; ".join(wrong) or label, witness, "questions")


# -- several classes -------------------------------------------------------------------------------------------------


def points_of(asked: Problem, scale: float = 1.0, *, in_a_step: bool = False) -> Any:
    """The inducing points of a problem."""
    from fast.core.hyper import class_hyper
    from fast.sparse_classes.projections import InducingClasses

    C, d = asked.n_classes, asked.X.shape[1]
    hyper = class_hyper(scale * asked.variance, asked.lengthscales, asked.noise, asked.jitter, C, d)
    assert asked.Z is not None
    Z = np.broadcast_to(asked.Z, (C, *asked.Z.shape[-2:])).copy()
    return InducingClasses(hyper, Z, asked.shared, in_a_step=in_a_step)


def _passes(words: str) -> Iterable[Outcome]:
    from fast.core.by_rows import ByRows
    from fast.sparse_classes.data import ClassData
    from fast.sparse_classes.projections import InducingClasses

    many = tiny(words)

    class Elsewhere(ByRows):
        """Rows that are read when they are needed."""

        def __getitem__(self, rows: Any) -> Any:
            return many.X[rows]

    points, others = points_of(many), points_of(many)
    unlimited = ClassData(many.X, many.y, 3, block_size=64)
    views = [block.view for block in unlimited.blocks(points, with_cross=True)]
    size, held = len(views), sum(array.nbytes for view in views for array in (*view.rows, *view.K_XZ))

    def passed(data: Any, points: Any, **named: Any) -> Callable[[], Any]:
        def ask() -> Any:
            return [(b.view.rows, b.view.cond_var, b.view.K_XZ if named else (), b.y)
                    for b in data.blocks(points, **named)]  # fmt: skip

        return ask

    def limited(X: Any, memory_budget: int) -> Any:
        return ClassData(X, many.y, 3, block_size=64, memory_budget=memory_budget)

    enough, short = limited(many.X, held), limited(many.X, held - 1)
    elsewhere = limited(Elsewhere(many.X.shape, many.X.dtype), 10 * held)
    why = f"{words}: passes over {size} blocks that take {held} bytes"
    yield from asked_in_order("fast", why, [(InducingClasses, "view")], (
        Ask("first pass", size, passed(enough, points), "rows"),
        Ask("second pass", 0, passed(enough, points), "rows"),
        Ask("a pass that needs k(X, Z)", 0, passed(enough, points, with_cross=True), "cross"),
        Ask("other points, alike", size, passed(enough, others), "rows"),
        Ask("once more", 0, passed(enough, others), "rows"),
        Ask("the points before", size, passed(enough, points), "rows"),
        Ask("a pickled copy", size, passed(pickle.loads(pickle.dumps(enough)), points), "rows"),
        Ask("a byte less", size, passed(short, points), "rows"),
        Ask("a byte less, again", size, passed(short, points), "rows"),
        Ask("a byte less, k(X, Z)", size, passed(short, points, with_cross=True), "cross"),
        Ask("rows elsewhere", size, passed(elsewhere, points), "rows"),
        Ask("rows elsewhere, again", size, passed(elsewhere, points), "rows"),
    ))  # fmt: skip
    wasted = sum(len(block.view.K_XZ) for data in (short, elsewhere) for block in data.blocks(points))
    yield flaws(wasted, f"{words}: k(X, Z) that nobody asked for, where nothing is kept", "fast", "arrays")
    bare, used = len(pickle.dumps(limited(many.X, held))), len(pickle.dumps(enough))
    yield flaws(used > bare, f"{words}: pickled in {bare} bytes, after passes in {used}", "fast", "sizes")


def _lists(words: str) -> Iterable[Outcome]:
    from fast.sparse_classes.data import ClassData
    from fast.sparse_classes.projections import InducingClasses

    many = tiny(words)
    data = ClassData(many.X, many.y, 3, block_size=64)
    points, others, batch, same = points_of(many), points_of(many), np.array([3, 140, 7]), np.array([3, 140, 7])

    def taken(points: Any, batch: Any, **named: Any) -> Callable[[], Any]:
        def ask() -> Any:
            view = data.take(points, batch, **named)
            return view.rows, view.cond_var, view.K_XZ if named else ()

        return ask

    yield from asked_in_order("fast", f"{words}: listed rows", [(InducingClasses, "view")], (
        Ask("listed rows", 1, taken(points, batch), "rows"),
        Ask("the same rows", 0, taken(points, batch), "rows"),
        Ask("with k(X, Z)", 1, taken(points, batch, with_cross=True), "cross"),
        Ask("with k(X, Z), again", 0, taken(points, batch, with_cross=True), "cross"),
        Ask("and without", 0, taken(points, batch), "rows"),
        Ask("another list", 1, taken(points, same), "rows"),
        Ask("other points", 1, taken(others, same), "rows"),
        Ask("once more", 0, taken(others, same), "rows"),
        Ask("as a chunk", 0, lambda: [(c.view.rows, c.view.cond_var) for c in data.chunks(others, same)], "rows"),
        Ask("all data, in three blocks", 3, lambda: len(list(data.chunks(points)))),
        Ask("rows listed before all data", 0, taken(others, same), "rows"),
        Ask("let go", 0, data.forget),
        Ask("after that", 1, taken(others, same), "rows"),
    ))  # fmt: skip
    bare, used = len(pickle.dumps(ClassData(many.X, many.y, 3, block_size=64))), len(pickle.dumps(data))
    yield flaws(used > bare, f"{words}: pickled in {bare} bytes, after questions in {used}", "fast", "sizes")
    fresh, passing = ClassData(many.X, many.y, 3), points_of(many)
    fresh.take(passing, batch)
    fresh.forget()
    gone = weakref.ref(passing)
    del passing
    yield flaws(gone() is not None, f"{words}: points are held whose rows were let go", "fast", "points")


@check(
    "identity/ep/kept_projections",
    paper="villacampa2017",
    question="Are projections kept where they fit the memory, and made anew where a byte is missing or points move?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    for words in ("threshold many", "threshold many shared"):
        yield from _passes(words)
        yield from _lists(words)


def _half_solved(points: Any, X: Array) -> Iterable[Outcome]:
    from fast.sparse_classes import projections
    from fast.sparse_classes.projections import ClassDistribution

    C, m = points.n_classes, points.m
    last = C - 1
    few, again, many = (points.view(X[:b]) for b in (3, 3, 100))
    root = np.random.default_rng(2).standard_normal((C, m, m + 2))
    precision, shift = np.eye(m) + root @ root.transpose(0, 2, 1), root[:, :, 0]
    q, covariances = ClassDistribution.of(precision, shift), np.linalg.inv(precision)

    def rows(view: Any, k: int) -> Array:
        return np.asarray(view.rows[0 if points.shared else k])

    def moments(view: Any) -> Any:
        """By definition."""
        weights = [S @ w for S, w in zip(covariances, shift, strict=True)]
        mean = np.stack([rows(view, k) @ weights[k] for k in range(C)], axis=1)
        var = np.stack([((rows(view, k) @ covariances[k]) * rows(view, k)).sum(axis=1) for k in range(C)], axis=1)
        return mean, var

    def spoiled(view: Any, k: int) -> Array:
        """A product that is written to: nobody else may see that."""
        product = q.times_covariance(view, k)
        result = product.copy()
        product[:] = np.nan
        return result

    def wanted(view: Any, k: int) -> Array:
        return rows(view, k) @ covariances[k]

    def like(view: Any, k: int) -> str:
        return f"{len(view.X)} rows of class {k}"

    def product(view: Any, k: int, calls: int, what: str) -> Ask:
        return Ask(what, calls, partial(spoiled, view, k), like(view, k))

    definition = [
        Ask(f"by definition, {like(view, k)}", 0, partial(wanted, view, k), like(view, k))
        for view in (few, many)
        for k in range(C)
    ]
    solves = [(projections, "solve_rows"), (projections, "invert_lower")]
    yield from asked_in_order("fast", f"rows of a batch and of many, {C} classes, shared: {points.shared}", solves, (
        *definition,
        Ask("moments by definition", 0, partial(moments, few), "moments"),
        product(few, 0, 2, "rows that were not projected"),
        Ask("projections", C, lambda: q.project(few), "moments"),
        product(few, 0, 1, "rows that were projected"),
        product(few, 0, 1, "once more"),
        product(few, last, 1, "of another class"),
        product(again, last, 2, "the same rows in another view"),
        Ask("other projections", C, lambda: q.project(again), "moments"),
        product(few, last, 2, "rows that were projected before"),
        Ask("projections of many", C, lambda: q.project(many)),
        product(again, last, 2, "rows that were projected before many"),
        product(many, 1, 1, "many rows: the inverse"),
        product(many, 1, 0, "once more"),
        product(few, 1, 0, "few rows, the inverse at hand"),
        product(few, 0, 2, "few rows, another class's inverse at hand"),
        Ask("a covariance", 1, lambda: q.covariance(0), "S"),
        Ask("once more", 0, lambda: q.covariance(0), "S"),
        Ask("of the class before", 0, lambda: q.covariance(1)),
        Ask("by definition", 0, lambda: covariances[0], "S"),
    ))  # fmt: skip
    bare = len(pickle.dumps(ClassDistribution.of(precision, shift)))
    q.project(few)
    used = len(pickle.dumps(q))
    yield flaws(used > bare, f"pickled in {bare} bytes, after questions in {used}", "fast", "sizes")
    moved = pickle.loads(pickle.dumps(q))
    yield from asked_in_order("fast", "a pickled copy", solves, (
        Ask("projections", C, lambda: moved.project(few), "moments"),
        Ask("a covariance", 1, lambda: moved.covariance(0), "S"),
        Ask("before it was pickled", 0, lambda: q.covariance(0), "S"),
    ))  # fmt: skip


@check(
    "identity/sep/kept_factors",
    paper="villacampa2017",
    question="Is a distribution's inverse taken once, and are half-solved rows used where they are at hand?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    many, shared = tiny("threshold many"), tiny("threshold many shared")
    assert many.Z is not None
    two = many.replace(
        y=np.minimum(many.y, 1), n_classes=2, Z=many.Z[:2], variance=many.variance[:2], noise=many.noise[:2],
        lengthscales=many.lengthscales[:2], jitter=many.jitter[:2],
    )  # fmt: skip
    for asked in (many, shared, two):
        yield from _half_solved(points_of(asked), asked.X)


@check(
    "identity/sep/kept_cavities",
    paper="villacampa2017",
    question="Is the cavity computed once for each q, and are the rows of a step projected once?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.sparse_classes import projections, sep
    from fast.sparse_classes.data import ClassData
    from fast.sparse_classes.projections import InducingClasses

    many = tiny("threshold errors many")
    data, points = ClassData(many.X, many.y, 3, block_size=64), points_of(many)
    near, batch, listed = points_of(many, 1.1), np.array([3, 140, 7, 8]), np.array([70, 2, 9])
    run = sep.TiedRun(data, points, "class")

    def cavity() -> Any:
        return run.cavity.precision, run.cavity.shift

    def residual() -> float:
        later = run.refresh(batch).later
        return np.nan if later is None else later()

    def held() -> Any:
        return run.restore(run.state(), near.hyper, near.Z, False)

    yield from asked_in_order("fast", "cavities of tied factors", [(sep, "tied_cavity")], (
        Ask("cavity", 1, cavity),
        Ask("once more", 0, cavity),
        Ask("log Z", 0, run.log_evidence),
        Ask("its gradient", 0, lambda: run.gradient(None, "exact")),
        Ask("all factors", 0, lambda: run.refresh().residual),
        Ask("log Z at the new q", 1, run.log_evidence),
        Ask("factors of a batch", 0, lambda: run.refresh(batch).n_improper),
        Ask("cavity of the new q", 1, cavity, "before the priors move"),
        Ask("other priors", 0, lambda: run.move(near.hyper, near.Z)),
        Ask("cavity under them", 1, cavity, "under other priors"),
        Ask("once more", 0, cavity, "under other priors"),
        Ask("as it was stored", 0, held),
        Ask("cavity there", 1, cavity, "under other priors"),
    ))  # fmt: skip
    # conditions of K_ZZ are estimated where a run begins, not in its steps; residuals of steps where somebody asks
    estimates = [(projections, "cholesky"), (sep, "tied_change")]
    yield from asked_in_order("fast", "conditions of K_ZZ and residuals of steps", estimates, (
        Ask("where a run begins", 3, lambda: len(points_of(many).chol_K)),
        Ask("in a step", 0, lambda: len(points_of(many, in_a_step=True).chol_K)),
        Ask("other priors", 0, lambda: run.move(points.hyper, points.Z)),
        Ask("where a run without steps goes on", 3, held),
        Ask("where steps go on", 0, lambda: run.restore(run.state(), points.hyper, points.Z, True)),
        Ask("a sweep", 1, lambda: run.refresh().n_improper),
        Ask("a step", 0, lambda: run.refresh(batch).n_improper),
        Ask("a step, its residual", 1, residual),
    ))  # fmt: skip
    yield from asked_in_order("fast", "a step of tied factors and of the priors", [(InducingClasses, "view")], (
        Ask("factors of a batch", 1, lambda: run.refresh(listed).n_improper),
        Ask("gradient of the same batch", 0, lambda: run.gradient(listed)),
        Ask("once more", 0, lambda: run.gradient(listed)),
    ))  # fmt: skip


def _energy_at(kind: str) -> Iterable[Outcome]:
    from fast.sparse_classes.alpha_energies import Energy
    from fast.sparse_classes.alpha_runs import EnergyRun
    from fast.sparse_classes.data import ClassData

    asked = tiny("threshold errors")
    points, near = points_of(asked), points_of(asked, 1.1)
    run = EnergyRun(ClassData(asked.X, asked.y, 3), points, Energy(kind, 0.5, asked.n), 0.05)
    q, places = run.q, [(EnergyRun, "_point"), (Energy, "distributions")]
    yield from asked_in_order("fast", f"{kind}: the energy at a q", places, (
        Ask("value by a pass", 1, run.log_evidence, "value"),
        Ask("gradient", 1, run.gradient, "gradient"),
        Ask("value and direction", 2, lambda: run.here.value, "value"),
        Ask("once more", 0, lambda: run.here.change.flat),
        Ask("value after that", 0, run.log_evidence, "value"),
        Ask("gradient after that", 0, run.gradient, "gradient"),
        Ask("as a search asks", 0, run.ascended, "value"),
    ))  # fmt: skip
    run.refresh()
    fresh = EnergyRun(run.data, points, run.energy, 0.05)
    fresh.begin_at(run.q)
    yield flaws(run.q is q, f"{kind}: no step from the prior", "fast", "places")
    yield from asked_in_order("fast", f"{kind}: the energy after a step", places, (
        Ask("value", 0, run.log_evidence, "value"),
        Ask("value by a pass", 1, fresh.log_evidence, "value"),
        Ask("other priors", 0, lambda: run.move(near.hyper, near.Z)),
        Ask("value there", 2, lambda: run.here.value, "value under them"),
        Ask("as it was stored", 0, lambda: run.restore(run.state(), near.hyper, near.Z, False)),
        Ask("value there", 2, run.ascended, "value under them"),
        Ask("from elsewhere", 0, lambda: run.begin_at(q)),
        Ask("value there", 2, run.ascended),
    ))  # fmt: skip


@check(
    "identity/apep/kept_energies",
    paper="villacampa2020",
    question="Is an energy computed once for each q, and anew where q is another or priors have moved?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    for kind in ("apep", "arpep", "rpapep"):
        yield from _energy_at(kind)


@check(
    "identity/gfitc/kept_steps",
    paper="villacampa2017",
    question="Are past sites kept for mixing where they are few enough, in memory, and sweeps enough are allowed?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.solve.mixing import Mixing
    from fast.sparse_classes import fitc_latents, mixing
    from fast.sparse_classes.data import ClassData
    from fast.sparse_classes.ep import SiteRun
    from fast.sparse_classes.pairwise_factors import Pairwise

    few = tiny("threshold")
    data, points = ClassData(few.X, few.y, 3), points_of(few)
    for largest, mixed, steps in ((4 * 24, True, 3), (4 * 24 - 1, True, 0), (4 * 24, False, 0)):
        with mock.patch.object(fitc_latents, "_LARGEST", largest), mock.patch.object(fitc_latents, "_PLAIN", 2):
            run = fitc_latents.LatentRun(data, points, mixed=mixed)
            with watched((Mixing, "step")) as calls:
                for _ in range(5):
                    run.refresh()
                first = len(calls)
                run.restore(run.state(), points.hyper, points.Z, False)
                run.refresh()
                later = len(calls) - first
        why = f"96 numbers of 24 latent values, of {largest} that may be kept; mixed: {mixed}; 3 sweeps after two plain"
        yield flaws(first != steps or later != (steps > 0), f"{why}: {first} mixed, {later} after a start", "fast",
                    "steps")  # fmt: skip

    with mock.patch.object(fitc_latents, "_PLAIN", 2):
        used, other = (fitc_latents.LatentRun(data, points, mixed=True) for _ in range(2))
        for _ in range(5):
            used.refresh()
        state = {name: array.copy() for name, array in used.state().items()}
        for run in (used, other):
            run.restore(state, points.hyper, points.Z, False)
            for _ in range(3):
                run.refresh()
    gap = float(np.abs(used.sites - other.sites).max())
    yield flaws(gap != 0.0, f"what came before a state is no part of it: sites apart by {gap:.1e}", "fast", "answers")

    class Mapped(np.memmap):
        """Sites that are in a file, as NumPy's type says it."""

        def __new__(cls, shape: tuple[int, ...]) -> Any:
            return np.zeros(shape).view(cls)

        def __array_finalize__(self, obj: Any) -> None:
            pass

    factors: Any = Pairwise()
    ordinary, mapped = (SiteRun(data, points, factors, sites) for sites in (np.zeros((4, 8, 3)), Mapped((4, 8, 3))))
    rows = (
        ("as many as may be kept", ordinary, 96, 8, True),
        ("one too many", ordinary, 95, 8, False),
        ("no sweep beyond the plain ones", ordinary, 96, 7, False),
        ("in a file", mapped, 96, 8, False),
        ("tied factors", SimpleNamespace(sites=ordinary.sites, may_mix=True), 96, 8, False),
    )
    wrong = []
    with mock.patch.object(mixing, "_PLAIN", 7):
        for what, run_of, largest, sweeps, expected in rows:
            with mock.patch.object(mixing, "_LARGEST", largest):
                wrong += [what] * (mixing.worth_mixing(run_of, sweeps) is not expected)
        with mock.patch.object(SiteRun, "may_mix", False):
            wrong += ["sites elsewhere"] * bool(mixing.worth_mixing(ordinary, 8))
    yield flaws(len(wrong), "; ".join(wrong) or "96 numbers in all sites", "fast", "runs")


def _fits(method: str) -> Iterable[Outcome]:
    """Two sweeps with memory for all projections, and with none."""
    from fast.core.values import Data, Prior
    from fast.sparse_classes.projections import InducingClasses

    many = tiny("threshold many")
    module = import_module(f"fast.methods.{method.replace('-', '_')}")
    given = Data(many.X, many.y, 3)
    prior = Prior(many.variance, many.lengthscales, many.noise, many.jitter, many.Z)
    counts, values = [], []
    with watched((InducingClasses, "view")) as calls:
        for budget in (1e6, 0.0):
            calls.clear()
            options = type(module.DEFAULTS)(max_iterations=2, block_size=64, memory_budget=budget)
            values.append(module.fit(given, prior, options).log_evidence)
            counts.append(len(calls))
    again = counts[0] != 3 or counts[1] < 9 or counts[1] % 3
    wrong = again or not abs(values[1] - values[0]) <= 1e-9 * abs(values[0])
    yield flaws(wrong, f"three blocks are projected {counts} times with and without memory, log Z {values}", "fast",
                "fits")  # fmt: skip


def _register(method: str) -> None:
    @check(
        f"identity/{method}/kept_between_sweeps",
        paper=PAPER[method],
        question="Are projections made once where memory suffices, and in every sweep where there is none?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        yield from _fits(method)


for _method in ("ep", "sep", "gfitc", "pep", "vi-robust", "apep"):
    _register(_method)
