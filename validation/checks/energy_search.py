"""The search for the optimum of an energy that natural-gradient steps reach too slowly: its coordinates and its steps.

Runs come here only where an optimum lies far from the prior, on problems that a quick run does not ask. So the
coordinates are held against differences of an energy whose optimum is known, and the steps against functions whose
shape tells what each of them has to be.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]

# third derivatives of these functions are of order ten: a step of 1e-5 leaves 1e-9 of them, and 1e-10 of rounding
_STEP, _DIGITS = 1e-5, 1e-7


def _spread(rng: np.random.Generator, C: int, m: int) -> Array:
    """(C, m, m) positive definite, eigenvalues from about 1/3 to 10."""
    root = rng.standard_normal((C, m, m))
    return np.asarray(root @ np.swapaxes(root, 1, 2) + 0.3 * np.eye(m))


def _energy(target: Any) -> Callable[[Any], tuple[None, None, float, Any]]:
    """E_q[log N(u; target)] plus the entropy of q, up to a constant: its largest value is at the target."""

    def point(q: Any) -> tuple[None, None, float, Any]:
        value = 0.0
        for P, h, own, shift in zip(target.precision, target.shift, q.precision, q.shift, strict=True):
            S = np.linalg.inv(own)
            mean = S @ shift
            value += h @ mean - 0.5 * np.sum(P * (S + np.outer(mean, mean))) - 0.5 * np.linalg.slogdet(own)[1]
        change = SimpleNamespace(precision=target.precision - q.precision, shift=target.shift - q.shift)
        return None, None, float(value), change

    return point


def _distributions(rng: np.random.Generator, C: int, m: int) -> tuple[Any, Any]:
    """Where a search starts, and where the optimum is."""
    from fast.sparse_classes.projections import ClassDistribution

    start, target = (
        ClassDistribution.of(_spread(rng, C, m), rng.standard_normal((C, m))) for _ in range(2)
    )  # fmt: skip
    return start, target


@check(
    "identity/rpapep/search_coordinates",
    paper="villacampa2020",
    question="Are gradient and Hessian of a search differences of its energy, and does it end at the optimum?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.sparse_classes.alpha_search import _Chart, optimise

    rng = np.random.default_rng(41)
    for C, m in ((2, 2), (3, 1)):
        start, target = _distributions(rng, C, m)
        chart = _Chart(start, _energy(target))
        x = 0.3 * rng.standard_normal(chart.size)
        gaps = [np.abs(chart.q(np.zeros(chart.size))[-1].precision - start.precision).max()]
        value, derivative = chart(x)
        gaps.append(abs(value + _energy(target)(chart.q(x)[-1])[2]))
        H = chart.hessian(x)
        for j, one in enumerate(np.eye(chart.size)):
            high, low = chart(x + _STEP * one), chart(x - _STEP * one)
            gaps += [abs((high[0] - low[0]) / (2.0 * _STEP) - derivative[j]),
                     np.abs((high[1] - low[1]) / (2.0 * _STEP) - H[j]).max()]  # fmt: skip
        size = max(1.0, float(np.abs(H).max()))
        yield Compared(float(max(gaps)) / size, _DIGITS, f"{C} classes, {m} points: value, gradient, curvature, steps "
                       f"of {_STEP:g}", "fast", "definition")  # fmt: skip
        mean, T, root, _ = chart.q(x)
        cov = root @ np.swapaxes(root, 1, 2)
        gap = np.abs(cov - np.array([chart.q(x)[-1].covariance(k) for k in range(C)])).max() / np.abs(cov).max()
        gap = max(gap, np.abs(np.triu(T, 1)).max(), np.abs(mean - chart.q(x)[-1].weights).max())
        yield Compared(float(gap), 1e-9, "mean, root and distribution are one distribution", "fast", "definition")
        widest = float(np.einsum("cii->c", cov).max())
        wrong = not chart.far(x, 0.999 * widest) or chart.far(x, 1.001 * widest)
        wrong = wrong or chart(np.full(chart.size, 1e4))[0] != np.inf
        yield flaws(
            wrong, "beyond a sum of variances it is far; without a distribution there is no energy", "fast", "answers"
        )
        end = optimise(start, _energy(target), 1e9)
        gap = np.inf if end is None else np.abs(end.precision - target.precision).max() / np.abs(target.precision).max()
        yield Compared(float(gap), 1e-7, "the least curvature is .1, and gradients end at 1e-9", "fast", "optimum")
        wide = optimise(start, _energy(target), 1e-3)
        yield flaws(wide is None, "a search that went far hands over where it is", "fast", "searches")


class _Shape:
    """A function with gradient and Hessian, and the points at which it was asked."""

    def __init__(self, value: Callable[[Array], float], derivative: Callable[[Array], Array], curvature: Any) -> None:
        self.size = 2
        self.visited: list[Array] = []
        self.formed: list[Array] = []
        self._value, self._derivative, self._curvature = value, derivative, curvature
        self.ends: Callable[[Array], bool] = lambda x: False

    def __call__(self, x: Array) -> tuple[float, Array]:
        self.visited.append(x)
        return float(self._value(x)), np.asarray(self._derivative(x))

    def hessian(self, x: Array) -> Array:
        self.formed.append(x)
        return np.asarray(self._curvature(x))

    def far(self, x: Array, bound: float) -> bool:
        return self.ends(x)


def _bowl(offset: float = 0.0, sign: float = 1.0) -> _Shape:
    curvature = np.diag([1.0, 3.0])
    return _Shape(
        lambda x: offset + 0.5 * float(x @ curvature @ x), lambda x: sign * curvature @ x, lambda x: curvature
    )


def _told(curvature: Array, told: Array) -> _Shape:
    """A bowl so high that rounding hides its shape, and that says of its Hessian what is told."""
    return _Shape(lambda _: 1e14, lambda x: curvature @ x, lambda _: told)


def _valley() -> _Shape:
    """Rosenbrock's."""
    return _Shape(
        lambda x: 100.0 * float(x[1] - x[0] ** 2) ** 2 + float(1.0 - x[0]) ** 2,
        lambda x: np.array([-400.0 * x[0] * (x[1] - x[0] ** 2) - 2.0 * (1.0 - x[0]), 200.0 * (x[1] - x[0] ** 2)]),
        lambda x: np.array([[1200.0 * x[0] ** 2 - 400.0 * x[1] + 2.0, -400.0 * x[0]], [-400.0 * x[0], 200.0]]),
    )


@check(
    "identity/rpapep/search_steps",
    paper="villacampa2020",
    question="Does a search lengthen steps that keep their promise, shorten those that do not, and spare its Hessians?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.sparse_classes.alpha_search import _newton

    bowl = _bowl()
    end = _newton(bowl, np.array([20.5, 0.0]), 1.0)  # type: ignore[arg-type]
    lengths = np.linalg.norm(np.diff(bowl.visited, axis=0), axis=1)
    gap = np.abs(lengths[:7] - [1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 1.5]).max() if len(lengths) >= 7 else np.inf
    yield Compared(float(gap), 1e-9, f"a quadratic is what was promised: 1, 2, 4 and no longer, then there: {lengths}",
                   "fast", "definition", "lengths")  # fmt: skip
    # the gradient was shortened tenfold by no step but the last
    wrong = len(bowl.formed) != 7 or bool(np.linalg.norm(end) > 1e-8)
    yield flaws(wrong, f"{len(bowl.formed)} Hessians for seven steps", "fast", "Hessians")

    # the second step gains 13, all that was promised: nothing but a quadratic doubles the length there
    bowl = _bowl()
    _newton(bowl, np.array([8.5, 0.0]), 1.0)  # type: ignore[arg-type]
    lengths = np.linalg.norm(np.diff(bowl.visited, axis=0), axis=1)
    gap = np.abs(lengths[:4] - [1.0, 2.0, 4.0, 1.5]).max() if len(lengths) >= 4 else np.inf
    yield Compared(float(gap), 1e-9, f"from nearer: 1, 2, 4, then there: {lengths}", "fast", "definition", "lengths")

    bowl = _bowl()
    bowl.ends = lambda x: bool(x[0] < 15.0)
    end = _newton(bowl, np.array([20.5, 0.0]), 1.0)  # type: ignore[arg-type]
    yield Compared(abs(end[0] - 13.5), 1e-9, "ends where it is far, after 1 + 2 + 4", "fast", "definition", "place")

    valley = _valley()
    end = _newton(valley, np.array([0.5, 0.1]), 1.0)  # type: ignore[arg-type]
    values = [valley(x)[0] for x in valley.formed]
    wrong = bool(np.abs(end - 1.0).max() > 1e-9) or any(b > a for a, b in itertools.pairwise(values))
    yield flaws(wrong, f"Rosenbrock's valley: {end}, Hessians at {values}", "fast", "ends")
    yield flaws(max(0, len(valley.formed) - 12), f"{len(valley.formed)} Hessians, twelve at most", "fast", "Hessians")

    # a value that shows nothing at all, whatever the step: shorter gradients are accepted, longer ones are not
    for told in (1.0, 0.1):
        curvature = np.diag([1.0, 3.0])
        flat = _told(curvature, told * curvature)
        begin = np.array([6e-3, 2e-3])
        end = _newton(flat, begin, 1.0)  # type: ignore[arg-type]
        left = float(np.linalg.norm(end) / np.linalg.norm(begin))
        limit = 1e-6 if told == 1.0 else 1.0
        why = f"a value that rounding hides, a Hessian of {told:g} times its size: the gradient decides"
        yield Compared(left, limit, why, "fast", "optimum", "of the distance at the start")
    for size, sign, why in ((1e9, 1.0, "a value that rounding hides"), (0.0, -1.0, "a derivative that leads up")):
        bowl = _bowl(size, sign)
        end = _newton(bowl, np.array([0.6, 0.2]) * (1e-2 if size else 1.0), 1.0)  # type: ignore[arg-type]
        if size:
            yield Compared(
                float(np.linalg.norm(end)), 1e-8, f"{why}: the gradient decides", "fast", "optimum", "distance"
            )
            continue
        lengths = np.linalg.norm(np.array(bowl.visited[1:]) - bowl.visited[0], axis=1)
        ratios = lengths[1:] / lengths[:-1]
        wrong = not np.array_equal(end, bowl.visited[0]) or len(bowl.formed) != 1
        wrong = wrong or bool(np.abs(ratios - 0.25).max() > 1e-6) or not 4e-9 < float(lengths[-1]) < 4e-8
        yield flaws(wrong, f"{why}: quartered to 1e-8 and given up, one Hessian, {lengths}", "fast", "searches")


# -- steps of a run ------------------------------------------------------------------------------------------------


def _run(alpha: float, epsilon: float, sweeps: int) -> Any:
    """A run of apep after so many steps."""
    from fast.core.values import Data, Prior
    from fast.methods import apep

    asked = tiny("threshold")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    options = apep.EnergyOptions(alpha=alpha, epsilon=epsilon, max_iterations=sweeps)
    return apep.fit(Data(asked.X, asked.y, asked.n_classes), prior, options).run


@check(
    "identity/apep/last_steps",
    paper="villacampa2020",
    question="Does Newton's method end a run near its optimum, and a chain of less steep energies lead to a steep one?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.sparse_classes import alpha_runs

    run = _run(0.5, 0.05, 200)
    best, height = run.q, run.here.value
    q = type(best).of(best.precision * (1.0 + 1e-5), best.shift * (1.0 - 1e-5))
    run._set(q)
    before = run.here.change.residual
    wrong = run._accept_root(None) or any(run._accept_root(run._stepped(run.here.change, rho)) for rho in (-1.0, 0.3))
    yield flaws(
        wrong or run.q is not q,
        "no distribution, one farther away, one less than half as near: no move",
        "fast",
        "moves",
    )
    there = run._newton()
    wrong = not run._accept_root(there) or run.q is not there or run.here.value < height - 1e-9
    yield flaws(wrong, "a root of the direction is moved to", "fast", "moves")
    # of errors of 1e-5 a quadratic leaves their squares, the equations to 1e-4, the differences of 1e-4 their squares
    yield Compared(run.here.change.residual / before, 1e-3, f"the direction, {before:.1e} before", "fast", "Newton's",
                   "share that is left")  # fmt: skip

    steep = _run(1e-3, 0.0, 1)
    steep._set(type(steep.q).prior(*steep.q.shift.shape))
    low, size = steep.here.value, steep.here.change.residual
    with mock.patch.object(alpha_runs, "_RUNG", 8):  # steps on each energy: enough to see that they lead the way
        result = [steep._come_by_way(), steep._come_by_way()]
    yield flaws(result != [True, False], f"by energies ten and a hundred times as steep, one a start: {result}", "fast",
                "answers")  # fmt: skip
    gain, left = steep.here.value - low, steep.here.change.residual
    wrong = not gain > 0.1 or not left < 0.1 * size
    yield flaws(wrong, f"{gain:.3g} nat nearer, a direction of {left:.3g}, {size:.3g} before", "fast", "ways")
    for alpha, epsilon in ((0.5, 0.0), (1e-3, 0.05)):  # a label costs at most 2, or log 60
        other = _run(alpha, epsilon, 1)
        at = other.q
        went = other._come_by_way() or other.q is not at
        yield flaws(went, f"alpha {alpha:g}, epsilon {epsilon:g} is not steep", "fast", "ways")


@check(
    "identity/apep/order_of_steps",
    paper="villacampa2020",
    question="Does a step try what was mixed, Newton's where it is near, shorter ones, and searches when due?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.ending import ending
    from fast.sparse_classes import alpha_runs

    class Told(alpha_runs.EnergyRun):
        """Says what it tries; moves to what is named in `takes`."""

        takes: tuple[str, ...] = ()
        residual = 0.5
        above: str | None = None

        def __init__(self) -> None:
            self.tried: list[Any] = []
            self.rho, self.steps, self.stalled, self.unbounded = 0.5, 0, False, None
            self._mixing = SimpleNamespace(clear=lambda: self.tried.append("clear"))  # type: ignore[assignment]
            self.q = self._point = None  # type: ignore[assignment,method-assign]

        @property
        def here(self) -> Any:
            return SimpleNamespace(change=SimpleNamespace(residual=self.residual))

        def _look(self) -> None:
            self.unbounded = self.above

        def _mixed(self) -> Any:
            return "mixed"

        def _newton(self) -> Any:
            return "newton"

        def _stepped(self, change: Any, rho: float) -> Any:
            return f"{rho:g}"

        def _accept(self, q: Any) -> bool:
            self.tried.append(q)
            return q in self.takes

        def _accept_root(self, q: Any) -> bool:
            self.tried.append(q)
            return q in self.takes

        def _come_by_way(self) -> bool:
            self.tried.append("way")
            return "way" in self.takes

    def tried(**state: Any) -> tuple[list[Any], float, bool, float]:
        run = Told()
        for name, value in state.items():
            setattr(run, name, value)
        with mock.patch.object(alpha_runs, "optimise", return_value="search"):
            swept = run.refresh()
        return run.tried, run.rho, run.stalled, swept.residual

    lengths = [f"{0.5 * 0.5**k:g}" for k in range(60)]
    rows: list[tuple[dict[str, Any], Any]] = [
        ({"takes": ("mixed",)}, (["mixed"], 0.5, False, 0.5)),
        ({"takes": ("0.5",)}, (["mixed", "clear", "0.5"], 1.0, False, 0.5)),
        ({"takes": ("0.125",)}, (["mixed", "clear", "0.5", "0.25", "0.125"], 0.25, False, 0.5)),
        ({"takes": ("1",), "rho": 1.0}, (["mixed", "clear", "1"], 1.0, False, 0.5)),
        ({"takes": ("newton",), "residual": 9e-5}, (["mixed", "clear", "newton"], 0.5, False, 9e-5)),
        ({"takes": ("0.5",), "residual": 9e-5}, (["mixed", "clear", "newton", "0.5"], 1.0, False, 9e-5)),
        ({"takes": ("0.5",), "residual": 2e-4}, (["mixed", "clear", "0.5"], 1.0, False, 2e-4)),
        ({}, (["mixed", "clear", *lengths, "way"], 0.5, True, 0.5)),
        ({"takes": ("way",)}, (["mixed", "clear", *lengths, "way"], 0.5, False, 0.5)),
        ({"residual": 9e-6}, (["mixed", "clear", "newton", *lengths], 0.5, True, 9e-6)),
        ({"stalled": True}, ([], 0.5, True, 0.5)),
        ({"above": "far away"}, ([], 0.5, False, np.inf)),
        ({"takes": ("way", "mixed"), "steps": 39}, (["clear", "way"], 0.5, False, 0.5)),
        ({"takes": ("search", "mixed"), "steps": 79}, (["clear", "way", "search"], 0.5, False, 0.5)),
        ({"takes": ("mixed",), "steps": 1279}, (["clear", "way", "search", "mixed"], 0.5, False, 0.5)),
        ({"takes": ("mixed",), "steps": 40}, (["mixed"], 0.5, False, 0.5)),
        ({"takes": ("mixed",), "steps": 39, "residual": 9e-6}, (["mixed"], 0.5, False, 9e-6)),
    ]  # fmt: skip
    wrong = [f"{state}: {result}" for state, wanted in rows if (result := tried(**state)) != wanted]
    with ending(None, worth=1.0):
        if (result := tried(takes=("mixed",), steps=39)) != (["mixed"], 0.5, False, 0.5):
            wrong.append(f"for predictions alone: {result}")
    yield flaws(len(wrong), "; ".join(wrong) or f"{len(rows) + 1} states of a run", "fast", "orders")
