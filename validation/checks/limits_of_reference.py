"""Numbers of `reference` at which a rule changes over: what lies just inside and just outside of each.

Runs stay far from most of them. So states on either side are made up and handed to the function that decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.problem import Problem

Array = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
# a tenth below a limit and a half above it: far from rounding, and half of the limit or twice it is told apart
_SIDES = ((0.9, True), (1.5, False))


def _covariances() -> Array:
    """Prior covariances of two classes, three points each."""
    rng = np.random.default_rng(11)
    roots = rng.standard_normal((2, 3, 5))
    return np.asarray(roots @ np.swapaxes(roots, 1, 2) / 5.0 + 0.1 * np.eye(3), dtype=np.float64)


def _taken(function: Callable[..., Any], *given: Any) -> bool:
    """Whether a call is answered, by no ValueError."""
    try:
        function(*given)
    except ValueError:
        return False
    return True


# -- what has grown too far ------------------------------------------------------------------------------------------


@check(
    "identity/svi/scale_limits",
    paper="izmailov2016",
    question="Are scales within [1e-50, 1e50] taken by a search for hyper-parameters, and those beyond refused?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._learning import Hyper, moved

    start = Hyper(1.3, np.array([0.7, 2.0]), 0.2, 1e-6, np.zeros((2, 2)))
    wrong = []
    for field, size in (("variance", 1), ("lengthscales", 2), ("noise", 1), ("Z", 4)):
        for share, within in _SIDES:
            for sign in (1.0, -1.0):
                where = np.zeros(size)
                where[-1] = sign * (share * 1e50 if field == "Z" else np.log(share * 1e50))
                wrong += [f"{field} at {where[-1]:.6g}"] * (_taken(moved, start, (field,), where) is not within)
    yield flaws(len(wrong), f"0.9e50 and its inverse are scales, 1.5e50 is none {wrong}", "reference", "scales")


@check(
    "identity/apep/growth_limits",
    paper="villacampa2020",
    question="Does q grow without bound where a variance or a mean is a million times the prior's, and not before?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._ascent import unbounded
    from reference.common._gaussians import Gaussians

    K = _covariances()
    wrong = []
    for share, within in _SIDES:
        cov, mean = K.copy(), np.zeros((2, 3))
        cov[1] *= share * 1e6
        # of length share times a million after whitening, no entry of which is
        mean[1] = np.linalg.cholesky(K[1]) @ (share * 1e6 * np.array([0.6, -0.48, 0.64]))
        for name, q in (("variance", Gaussians(np.zeros((2, 3)), cov)), ("mean", Gaussians(mean, K))):
            told = unbounded(q, K)
            right = told is None if within else told is not None and f"the {name} of class 1" in told
            wrong += [f"{name} {share:g}: {told}"] * (not right)
    yield flaws(len(wrong), f"0.9 and 1.5 million of the prior's {wrong}", "reference", "distributions")


# -- steps of an ascent ----------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """An objective at q whose natural gradient has a given length."""

    value: float
    direction: Any
    by_mean: Any = None
    by_cov: Any = None


def _steps(
    residuals: Callable[[int], float], count: int, value: Callable[[float], float] = lambda mean: 0.0
) -> tuple[list[float], int]:
    """Rates of plain steps of one mean, and how many are made: the natural gradient at place k is residuals(k)."""
    from reference.common._ascent import Goal, mixed_steps
    from reference.common._gaussians import Gaussians, Natural

    means: list[float] = []
    taken: list[float] = []

    def objective(q: Any) -> _Place:
        at, k = float(q.mean[0, 0]), len(taken)
        means.append(at)
        return _Place(value(at), Natural(np.zeros((1, 1, 1)), np.full((1, 1), residuals(k + (len(means) > 1)))))

    start = Gaussians(np.zeros((1, 1)), np.ones((1, 1, 1)))
    goal = Goal(tolerance=0.0, iterations=count, mixed_below=0.0)
    mixed_steps(objective, start.cov, start, goal, lambda value, residual: taken.append(means[-1]))
    places = np.array([0.0, *taken])
    lengths = np.array([residuals(k) for k in range(len(taken))])
    return list(np.diff(places) / lengths), len(taken)


@check(
    "identity/apep/step_limits",
    paper="villacampa2020",
    question="Are steps of an ascent shortened, given up and ended where its rules have it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    # steps that grow lead away, which counts where residuals are below 1e-3: half as long each time, 1/128 at least
    near, _ = _steps(lambda k: 0.5e-3 * 1.05**k, 12)
    wanted = [max(0.5**k, 1.0 / 128.0) for k in range(12)]
    gap = max(abs(a / b - 1.0) for a, b in zip(near, wanted, strict=True))
    # means of 1e-3 and differences of 4e-6 in float64
    yield Compared(gap, 1e-9, "residuals that grow from 0.5e-3 to 0.9e-3: rates 1, 1/2 ... 1/128", "reference",
                   "definition")  # fmt: skip
    far, _ = _steps(lambda k: 1.1e-3 * 1.05**k, 12)
    gap = max(abs(a - 1.0) for a in far)
    yield Compared(gap, 1e-9, "residuals that grow from 1.1e-3 to 1.9e-3: whole steps", "reference", "definition")
    wrong = []
    for name, residuals, most, expected in (
        ("0.8e-3 for ever", lambda k: 0.8e-3, 450, 201),
        ("0.8e-3, half of it from the 151st", lambda k: 0.8e-3 if k <= 150 else 0.4e-3, 450, 351),
        ("0.8e-3, a little more than half of it from the 151st", lambda k: 0.8e-3 if k <= 150 else 0.41e-3, 450, 201),
        ("1.5e-3 for ever", lambda k: 1.5e-3, 250, 250),
    ):
        _, made = _steps(residuals, most)
        wrong += [f"{name}: {made}"] * (made != expected)
    why = f"given up after two hundred steps without half of the best before, below 1e-3 {wrong}"
    yield flaws(len(wrong), why, "reference", "runs")
    # the objective rises within a step of rate 2^-k alone
    rises = [_steps(lambda _: 1.0, 5, lambda mean, r=rate: float(abs(mean) <= r) - 1.0)[1] for rate in (2**-40, 2**-41)]  # type: ignore[misc]
    yield flaws(rises != [1, 0], f"rates down to 2^-40 are tried: {rises} steps", "reference", "runs")


# -- sweeps to a fixed point -----------------------------------------------------------------------------------------


@check(
    "identity/ep/sweep_limits",
    paper="villacampa2017",
    question="Does the stated distance know the last eight residuals, those above rounding, and six cycles before?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._sweeps import Sweeps

    def distance(residuals: Iterable[float]) -> float:
        sweeps = Sweeps(1.0, 0.0)
        for k, residual in enumerate(residuals):
            sweeps.see((np.array([float(k)]),), residual, 0)
        return float(sweeps.distance)

    rng = np.random.default_rng(5)
    residuals = np.cumprod(rng.uniform(0.7, 0.98, 11))
    rho = (residuals[-1] / residuals[-8]) ** (1.0 / 7.0)
    gap = abs(distance(residuals) / (residuals[-1] * rho / (1.0 - rho)) - 1.0)
    yield Compared(gap, 1e-9, "eleven residuals: the mean factor of the last eight", "reference", "definition")
    small = 1e-12 * np.array([1.9, 1.7, 1.5, 1.3, 1.1, 0.9, 0.95])
    rho = (1.1 / 1.9) ** 0.25
    gap = abs(distance(small) / (small[-1] * rho / (1.0 - rho)) - 1.0)
    yield Compared(gap, 1e-9, "residuals about 1e-12: those above tell the factor", "reference", "definition")

    def cycles(count: int) -> float:
        """Distance over residual after 50 sweeps that shrink by 0.97, and cycles of 13 that shrink by 0.9."""
        sweeps, at, made = Sweeps(1.0, 0.0), np.array([1.0]), 0
        factor = 0.97
        for _ in range(50 + 13 * count + 3):
            residual, at = (1.0 - factor) * float(at[0]), factor * at
            sweeps.see((at,), residual, 0)
            if sweeps.propose((at,)) is not None:
                made, factor = made + 1, 0.9
        assert made == count + 1
        return float(sweeps.distance / sweeps.change)

    observed = [cycles(5), cycles(6)]
    gap = max(abs(a / b - 1.0) for a, b in zip(observed, (0.97 / 0.03, 0.9 / 0.1), strict=True))
    yield Compared(gap, 1e-6, "a slow first cycle counts among five more, and not among six", "reference",
                   "definition")  # fmt: skip


# -- what rounding leaves open ---------------------------------------------------------------------------------------


class _Prior(NamedTuple):
    variance: Array
    lengthscales: Array


@check(
    "identity/ep/rounding_limits",
    paper="villacampa2017",
    question="Are errors claimed, and neighbours asked, by condition numbers and changes as the rules have it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._neighbours import Answer, claimed, pushed, rounding_doubt

    def matrix(condition: float) -> list[Array]:
        return [np.eye(2), np.diag([1.0, 1.0 / condition])]

    gap = max(
        abs(claimed(matrix(condition)) / wanted - 1.0)
        for condition, wanted in ((1e5, 1e-8), (1e8, 100.0 * _EPS * 1e8), (1e12, 1e-3))
    )
    yield Compared(gap, 1e-9, "1e-8, or 100 eps cond, and 1e-3 at most", "reference", "definition")

    def asked(condition: float, change: float) -> list[_Prior]:
        """The priors that are asked, where a neighbour's answer differs by a share of half of what is claimed."""
        questions: list[_Prior] = []

        def answers(prior: Any) -> dict[str, Answer]:
            questions.append(prior)
            return {"value": Answer(1.0 + 0.5e-8 * change * (prior is not here))}

        here = _Prior(np.array([1.0, 2.0]), np.array([[0.5], [4.0]]))
        rounding_doubt(answers, here, matrix(condition), tolerance=1e-12)
        return questions

    counts = [len(asked(*given)) for given in ((0.9e3, 2.0), (1.5e3, 0.015), (1.5e3, 0.03), (1.5e3, 2.0))]
    why = f"nobody up to 1e3, one neighbour where that changes a fiftieth of what is allowed, else two: {counts}"
    yield flaws(counts != [0, 2, 3, 3], why, "reference", "questions")
    here, *others = asked(1.5e3, 2.0)
    units = np.array([
        [float(np.round(np.ravel(getattr(other, name) / getattr(here, name) - 1.0)[0] / _EPS)) for other in others]
        for name in _Prior._fields
    ])  # fmt: skip
    wrong = np.abs(units).max(axis=1).tolist() != [16.0, 16.0] or np.any(units.min(axis=1) * units.max(axis=1) >= 0.0)
    yield flaws(bool(wrong), f"up to 16 units in the last place, to either side: {units.tolist()}", "reference",
                 "neighbours")  # fmt: skip
    mean, K = np.random.default_rng(2).standard_normal((2, 3)), _covariances()
    means, _ = pushed(mean, K)
    white = np.array([np.linalg.solve(np.linalg.cholesky(K[k]), means[k] - mean[k]) for k in range(2)])
    gap = float(np.abs(np.abs(white) / 1e-5 - 1.0).max())
    # differences of 1e-5 of numbers of order one in float64
    yield Compared(gap, 1e-9, "a start beside the optimum: 1e-5 of a deviation in every direction", "reference",
                   "definition")  # fmt: skip
