"""What a search tells the optimiser where its objective is refused, and what it keeps of what it saw.

Ordinary problems are seldom refused, and an optimiser forgives much: it arrives in spite of a wrong height beyond a
wall. So the judge puts itself in the optimiser's place, asks for the objective at points of its own, some of them
refused, and looks at what it is told: minus the value and its gradient, or a height above everything so far and no
gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]
_LIMIT = np.log(1e4)


class _Optimiser:
    """Stands where L-BFGS-B stands: asks at listed moves from the start, and says that the last but one was best.

    A move is one of the first entry, and a hundredth of it of the last.
    """

    def __init__(self, moves: Sequence[float]) -> None:
        self._moves = moves
        self.start = np.zeros(0)
        self.told: list[tuple[Array, float, Array]] = []
        self.settings: dict[str, Any] = {}

    def __call__(self, objective: Callable[[Array], tuple[float, Array]], start: Array, **settings: Any) -> Any:
        self.start, self.settings = np.array(start), settings
        at = self.start.copy()  # one array for all places: who keeps it instead of a copy keeps the last
        for move in self._moves:
            at[0], at[-1] = self.start[0] + move, self.start[-1] + 0.01 * move
            where = at.copy()
            value, gradient = objective(at)
            self.told.append((where, float(value), np.array(gradient)))
            if callable(settings.get("callback")):
                try:
                    settings["callback"](SimpleNamespace(x=where, fun=value))
                except StopIteration:
                    break
        where, value, gradient = self.told[max(0, len(self.told) - 2)]
        return SimpleNamespace(x=where, fun=value, jac=gradient, success=True, message="listed", nit=len(self._moves))


@contextmanager
def _listed(module: Any, moves: Sequence[float]) -> Iterator[_Optimiser]:
    """The judge's optimiser in place of SciPy's: in a module that imported it by name, or (None) wherever it is."""
    optimiser = _Optimiser(moves)
    where = mock.patch("scipy.optimize.minimize", optimiser)
    with where if module is None else mock.patch.object(module, "minimize", optimiser):
        yield optimiser


# moves of the first coordinate: up, down, beyond the wall twice, better, not finite, last
_MOVES = (0.0, -0.4, 2.0, 0.3, 3.5, -2.5, 0.29, -0.1)
_WALL, _NAN = 1.0, -2.0


def _hill(move: float) -> float:
    return -7.0 - 3.0 * (move - 0.25) ** 2


def _derivative(move: float) -> float:
    return -6.0 * (move - 0.25)


def _refused(move: float) -> bool:
    return not _NAN < move < _WALL


def _told(
    optimiser: _Optimiser, name: str, left: str, heights: Sequence[float], derivatives: Sequence[float] | None = None
) -> Iterable[Outcome]:
    """What the optimiser was told at each move, by the sentence: minus the value, or above all so far by a thousand."""
    worst, gaps = np.inf, [0.0]
    for k, (move, (_, value, gradient)) in enumerate(zip(_MOVES, optimiser.told, strict=True)):
        if _refused(move):
            wanted = -worst + 1e3 * (1.0 + abs(worst))
            gaps.append(float(np.abs(gradient).max()))
        else:
            wanted = -heights[k]
            worst = min(worst, heights[k])
            if derivatives is not None:
                gaps.append(abs(float(gradient[0]) + derivatives[k]))
        gaps += [abs(value - wanted) / max(1.0, abs(wanted)), 0.0 * float(gradient.sum())]
    yield Compared(float(np.max(gaps)), 1e-9, f"{name}: eight points, three refused; rounding of one evaluation", left,
                   "definition", "difference of what an optimiser is told")  # fmt: skip


def _best() -> int:
    """The place in the list with the largest value."""
    return int(np.argmax([-np.inf if _refused(move) else _hill(move) for move in _MOVES]))


@check(
    "identity/ep/refused_places",
    paper="villacampa2017",
    question="Does the search of all parameters tell and keep what it should where places are refused?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.errors import NotPositiveDefiniteError
    from fast.solve.lbfgs import Place, Round, maximise

    start, box = np.array([0.4, -0.2]), np.array([0.5, np.inf])
    known: list[Any] = []

    def evaluate(vector: Array, best: Any) -> Place:
        move = vector[0] - start[0]
        known.append(None if best is None else best.place.payload)
        if move >= _WALL:
            raise NotPositiveDefiniteError("K_ZZ: found nothing")
        if move <= _NAN:
            raise ValueError("log_evidence: found none")
        return Place(_hill(move), np.array([_derivative(move), 0.1]), move)

    heights = [_hill(move) for move in _MOVES]
    with _listed(None, _MOVES) as optimiser:
        top = maximise(evaluate, start, box, (Round(0.5, 4),), n_iterations=9, tolerance=1e-6)
    yield from _told(optimiser, "one round", "fast", heights, [_derivative(move) for move in _MOVES])
    running = [None, 0.0, 0.0, 0.0, 0.3, 0.3, 0.3, 0.29]
    gap = sum((a is None) != (b is None) or (a is not None and abs(a - b) > 1e-12)
              for a, b in zip(known, running, strict=True))  # fmt: skip
    yield flaws(gap, "each evaluation is handed the best place so far", "fast", "places")
    best = _best()
    there = start + np.array([1.0, 0.01]) * _MOVES[best]
    ahead = np.clip(there + np.array([_derivative(_MOVES[best]), 0.1]), start - box, start + box)
    residual = float(np.abs(ahead - there).max())
    tops = [-np.inf if _refused(move) else _hill(move) for move in _MOVES]
    trace = np.maximum.accumulate(tops)
    wrong = abs(top.best.place.value - heights[best]) > 1e-12 or abs(top.residual - residual) > 1e-12
    wrong |= top.reason != "listed" or not np.allclose(top.trace, trace, rtol=0, atol=1e-12)
    yield flaws(wrong, "the best place, its projected gradient, the best value after each iteration", "fast", "ends")
    limits = np.array(optimiser.settings["bounds"])
    wanted = np.column_stack([start - np.array([0.25, np.inf]), start + np.array([0.25, np.inf])])
    most = optimiser.settings["options"]["maxiter"]
    wrong = not np.array_equal(limits, wanted) or most != 4 or optimiser.settings["options"]["gtol"] != 1e-6
    yield flaws(wrong, "half the box about the start, as many iterations as the round has", "fast", "settings")
    # the second round begins at the best place, with what is left of the iterations
    with _listed(None, _MOVES) as optimiser:
        maximise(evaluate, start, box, (Round(0.5, 4), Round(1.0, 30)), n_iterations=11, tolerance=1e-6)
    gap = abs(float(optimiser.start[0]) - start[0] - _MOVES[best])
    wrong = gap > 1e-12 or optimiser.settings["options"]["maxiter"] != 11 - len(_MOVES)
    yield flaws(wrong, "a second round goes on from the best place", "fast", "starts")
    with _listed(None, (1.2, 0.0)):
        raised = _raises(lambda: maximise(evaluate, start, box, (Round(1.0, 9),), n_iterations=9, tolerance=1e-6))
    yield flaws(not raised, "a start that is refused is an error", "fast", "errors missing")


def _raises(run: Callable[[], Any]) -> bool:
    try:
        run()
    except (ValueError, np.linalg.LinAlgError):
        return True
    return False


@check(
    "identity/laplace/refused_places",
    paper="riihimaki2013",
    question="Do searches over the priors of several classes tell and keep what they should where places are refused?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    yield from _fast_classes()
    yield from _reference_search()


def _fast_classes() -> Iterable[Outcome]:
    from fast.core.errors import NotPositiveDefiniteError
    from fast.core.hyper import ClassGradients, class_hyper
    from fast.full_classes.learning import ClassSearch, search
    from fast.full_classes.prior import MulticlassPrior

    X, y = np.array([[0.1], [0.9], [1.7]]), np.array([0, 2, 1])
    hyper = class_hyper([0.8, 1.7, 1.2], [0.9], 0.1, 1e-3, 3, 1)
    prior = MulticlassPrior(X, y, 3, hyper, False)
    first = np.log(hyper.variance[0])
    starts: list[Any] = []
    heard: list[float] = []

    def move_of(there: Any) -> float:
        return float(np.log(there.variance[0]) - first)

    def converge(here: Any, start: Any) -> Any:
        starts.append(start)
        if move_of(here.hyper) >= 3.0:
            raise NotPositiveDefiniteError("K: found nothing")
        return here.hyper

    def evidence(there: Any) -> tuple[float | None, ClassGradients]:
        move = move_of(there)
        gradients = ClassGradients(
            np.array([_derivative(move), 0.0, 0.0]) / there.variance, np.zeros((3, 1)), np.zeros(3)
        )
        if move <= _NAN:
            return np.nan, gradients
        return (None if move >= _WALL else _hill(move)), gradients

    def run(moves: Sequence[float]) -> tuple[_Optimiser, Any]:
        options = ClassSearch(
            learn=("variance",), max_iterations=7, learning_tolerance=1e-4,
            callback=lambda there: heard.append(move_of(there)),
        )  # fmt: skip
        with _listed(None, moves) as optimiser:
            end = search(prior, converge, evidence, options, warm_start=move_of)
        return optimiser, end

    optimiser, end = run(_MOVES)
    heights = [_hill(move) for move in _MOVES]
    yield from _told(optimiser, "half-t search", "fast", heights, [_derivative(move) for move in _MOVES])
    best = _best()
    wrong = abs(end.objective - heights[best]) > 1e-12 or abs(move_of(end.hyper) - _MOVES[best]) > 1e-12
    wrong |= end.n_refused != sum(map(_refused, _MOVES)) or end.n_evaluations != len(_MOVES)
    wrong |= not end.converged or end.reason != "listed" or end.trace.size != len(_MOVES)
    yield flaws(wrong, "the best place, and counts of evaluations and refusals", "fast", "ends")
    running = [None, 0.0, 0.0, 0.0, 0.3, 0.3, 0.3, 0.29]
    count = sum((a is None) != (b is None) or (a is not None and abs(a - b) > 1e-12)
                for a, b in zip(starts, running, strict=True))  # fmt: skip
    yield flaws(count, "each run starts where the best one so far ended", "fast", "starts")
    asked = [move for move in _MOVES if not _refused(move)]
    yield flaws(not np.allclose(heard, asked, rtol=0, atol=1e-12), "callbacks at places that count", "fast", "calls")
    limits = np.array(optimiser.settings["bounds"])
    start = np.log(hyper.variance)
    wrong = not np.allclose(limits, np.column_stack([start - _LIMIT, start + _LIMIT]), rtol=1e-14, atol=0)
    options = optimiser.settings["options"]
    wrong |= options["maxiter"] != 7 or options["gtol"] != 1e-4
    yield flaws(wrong, "logarithms move by log 1e4 at most", "fast", "settings")
    yield flaws(not _raises(lambda: run((1.5, 0.0))), "a start without evidence is an error", "fast", "errors missing")
    yield flaws(not _raises(lambda: run((-2.5, -2.6))), "no finite place is an error", "fast", "errors missing")


def _reference_search() -> Iterable[Outcome]:
    from reference.common import _search
    from reference.common.errors import NotPositiveDefiniteError

    start, reach = np.array([0.4, -0.2]), np.array([0.5, np.inf])

    def objective(where: Array) -> tuple[float, Array]:
        move = float(where[0] - start[0])
        if _refused(move):
            raise NotPositiveDefiniteError("K", 2, -1.0, "nothing")
        return _hill(move), np.array([_derivative(move), 0.1])

    heard: list[tuple[float, float]] = []

    def run(limits: Any, moves: Sequence[float] = _MOVES, last: int = 99) -> tuple[_Optimiser, Any]:
        def after(where: Array, value: float) -> bool:
            heard.append((float(where[0] - start[0]), value))
            return len(heard) >= last

        heard.clear()
        with _listed(_search, moves) as optimiser:
            return optimiser, _search.maximise(objective, start, limits, reach, after)

    optimiser, top = run(_search.Limits(1e-4, 1e-9, 7, 20, 5))
    gaps = []
    for move, (where, value, gradient) in zip(_MOVES, optimiser.told, strict=True):
        refused = _refused(move)
        wanted = 1e3 * (1.0 + abs(_hill(0.0))) - _hill(0.0) if refused else -_hill(move)
        by = where - start if refused else -np.array([_derivative(move), 0.1])
        gaps += [abs(value - wanted) / abs(wanted), float(np.abs(gradient - by).max())]
    yield Compared(float(np.max(gaps)), 1e-9, "far worse than the start, uphill from it; rounding of one evaluation",
                   "reference", "definition", "difference of what an optimiser is told")  # fmt: skip
    best = _best()
    there = start + np.array([1.0, 0.01]) * _MOVES[best]
    ahead = np.clip(there + np.array([_derivative(_MOVES[best]), 0.1]), start - reach, start + reach)
    tops = np.maximum.accumulate([-np.inf if _refused(move) else _hill(move) for move in _MOVES])
    wrong = abs(top.value - _hill(_MOVES[best])) > 1e-12 or not np.allclose(top.where, there, rtol=0, atol=1e-15)
    wrong |= abs(top.residual - float(np.abs(ahead - there).max())) > 1e-12
    wrong |= not np.allclose(top.trace, tops, rtol=0, atol=1e-12)
    wrong |= top.iterations != len(_MOVES) or top.evaluations != len(_MOVES)
    yield flaws(wrong, "the best place, its projected gradient, the best value after each iteration, counts",
                 "reference", "ends")  # fmt: skip
    told = [(move, -value) for move, (_, value, _) in zip(_MOVES, optimiser.told, strict=True)]
    yield flaws(not np.allclose(heard, told, rtol=0, atol=1e-12), "who listens hears each iteration", "reference",
                 "calls")  # fmt: skip
    limits = np.array(optimiser.settings["bounds"])
    wrong = not np.array_equal(limits, np.column_stack([start - reach, start + reach]))
    wanted_options = {"maxiter": 7, "maxfun": 20, "ftol": 1e-9, "gtol": 1e-4, "maxcor": 5}
    yield flaws(wrong or optimiser.settings["options"] != wanted_options, "within reach of the start, and its limits",
                 "reference", "settings")  # fmt: skip
    _, top = run(_search.Limits(evaluations=3))
    yield flaws(top.evaluations != 3 or top.value != _hill(0.0), "no evaluation more than three", "reference", "ends")
    _, top = run(_search.Limits(), last=2)
    yield flaws(top.iterations != 2 or len(heard) != 2, "who listens may end it", "reference", "ends")
    yield flaws(not _raises(lambda: run(_search.Limits(), (1.5, 0.0))), "a start that is refused is an error",
                 "reference", "errors missing")  # fmt: skip


@check(
    "identity/svi/refused_places",
    paper="izmailov2016",
    question="Do searches over q and the prior together tell and keep what they should where places are refused?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.errors import NotPositiveDefiniteError
    from fast.core.inputs import Hyper
    from fast.methods import svi

    asked = tiny("logit")
    assert asked.Z is not None
    evaluate, values = svi._Vector.evaluate, []

    def walled(form: Any, vector: Array, *arguments: Any) -> tuple[float, Array]:
        move = vector[0]
        if move >= 3.0:
            raise NotPositiveDefiniteError("K_ZZ: found nothing")
        if move >= _WALL:
            raise ValueError("K_ZZ: found nothing")
        value, derivative = evaluate(form, vector, *arguments)
        values.append(value)
        return (value, derivative) if move > _NAN else (value, np.full(derivative.size, np.nan))

    prior = SimpleNamespace(
        hyper=Hyper(float(asked.variance[0]), asked.lengthscales[0], float(asked.noise[0]), float(asked.jitter[0])),
        Z=asked.Z[0], X=asked.X, y_sign=2.0 * asked.y - 1.0,
    )  # fmt: skip
    with mock.patch.object(svi._Vector, "evaluate", walled), _listed(None, _MOVES) as optimiser:
        hyper = svi._search(prior, svi._expected("logit"), ("variance",), 1e-7, 30)
    heights = iter(values)
    told = [0.0 if move >= _WALL else next(heights) for move in _MOVES]
    yield from _told(optimiser, "q(u) and the prior", "fast", told)
    start = np.concatenate([np.zeros(4), np.eye(4)[np.tril_indices(4)], np.log(asked.variance)])
    wrong = not np.allclose(optimiser.start, start, rtol=0, atol=1e-12)
    options = optimiser.settings["options"]
    wrong |= (
        options["maxiter"] != 30
        or options["ftol"] != 1e-7
        or abs(np.log(hyper.variance / asked.variance[0]) - 0.01 * _MOVES[-2]) > 1e-12
    )
    yield flaws(wrong, "from mu = 0 and C = I; the prior is where the optimiser ended", "fast", "starts and ends")

    yield from _joint()


def _joint() -> Iterable[Outcome]:
    """Parameters of the prior and all xi at once."""
    from fast.core.errors import NotPositiveDefiniteError
    from fast.core.values import Data, Prior
    from fast.methods import vi_jj
    from fast.methods.vi_jj import Bound
    from fast.one_latent import quadratic_search

    asked = tiny("logit")
    assert asked.Z is not None
    prepared = vi_jj.prepare(
        Data(asked.X, asked.y),
        Prior(asked.variance[0], asked.lengthscales[0], asked.noise[0], asked.jitter[0], asked.Z[0]),
        vi_jj.DEFAULTS,
    )
    state = quadratic_search.Alternation.start(prepared, Bound())
    state.update()
    first, at, heights = np.log(asked.variance[0]), quadratic_search._Bound.at, []

    def walled(bound: Any, hyper: Any, xi: Array) -> Any:
        move = float(np.log(hyper.variance) - first)
        if move >= _WALL:
            raise NotPositiveDefiniteError("K_ZZ: found nothing")
        prior, end = at(bound, hyper, xi)
        heights.append(end.value)
        return prior, (end if move > _NAN else end._replace(value=np.nan))

    def flat(xi: Array, mean: Array, var: Array) -> Array:
        return np.full(xi.size, 0.25)

    def run(moves: Sequence[float]) -> tuple[_Optimiser, Any]:
        with mock.patch.object(quadratic_search._Bound, "at", walled), _listed(None, moves) as optimiser:
            return optimiser, quadratic_search.joint_search(
                state, ("variance",), flat, max_evaluations=11, max_iterations=5, tolerance=1e-8
            )

    optimiser, stage = run(_MOVES)
    values = iter(heights)
    told = [np.nan if move >= _WALL else next(values) for move in _MOVES]
    yield from _told(optimiser, "the prior and xi", "fast", told)
    best = int(np.nanargmax([np.nan if _refused(move) else height for move, height in zip(_MOVES, told, strict=True)]))
    wrong = stage.value != told[best] or stage.n_evaluations != len(_MOVES)
    wrong |= not np.array_equal(stage.xi[:-1], state.xi[:-1])
    wrong |= abs(stage.xi[-1] - state.xi[-1] - 0.01 * _MOVES[best]) > 1e-12
    yield flaws(wrong, "the best place seen, and how many there were", "fast", "ends")
    derivatives = [
        gradient[1:] for move, (_, _, gradient) in zip(_MOVES, optimiser.told, strict=True) if not _refused(move)
    ]
    yield flaws(any((part != -0.25).any() for part in derivatives), "minus the derivative in xi", "fast", "derivatives")
    yield flaws(not _raises(lambda: run((1.5, 0.0))), "a start that is refused is an error", "fast", "errors missing")
