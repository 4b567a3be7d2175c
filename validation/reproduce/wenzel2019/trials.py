"""wenzel2019, sections 1, 4.1 and 5.2: rates near one, the stopping rule, and svgpc's noisy steps, each by a trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.door.solve import solve
from validation.reproduce.decisions import Decided, above, below, surely
from validation.reproduce.experiment import Outcome, Say, experiment
from validation.reproduce.protocols import scores
from validation.reproduce.trials import Trial, TrialOptions, parts_of, run

_SETS = ("pima", "german20", "electricity", "bank")
_ROWS, _TEST, _POINTS, _BATCH = 1000, 1000, 50, 100
_RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.99)
_STEPS = (5, 10, 20, 40, 80, 160, 320)
_LINK = {"x-gpc-svi": "logit", "svgpc": "probit"}
_SEEDS = 6
_LONG = 30_000  # steps in which the stopping rule has to end a run


class _End(NamedTuple):
    error: float
    nll: float


def _posed(name: str, method: str, seed: int) -> tuple[Problem, NDArray[np.int64]]:
    X, y, X_test, y_test = parts_of(name, _ROWS, _TEST, seed)
    points = X[np.random.default_rng(seed).permutation(len(X))[:_POINTS]]
    scale = np.full(X.shape[1], np.sqrt(2.0 * X.shape[1]))  # near the median distance of standardised rows
    problem = Problem(name, X, y, 2, _LINK[method], 3.0, scale, jitter=1e-4, Z=points, X_test=X_test)
    return problem, y_test


def _trained(method: str, problem: Problem, n_steps: int, seed: int, **options: Any) -> Solution:
    own = {} if method == "x-gpc-svi" else {"gradients": False}
    return solve(
        "fast", method, problem, batch_size=_BATCH, n_steps=n_steps, seed=seed, **{"stop": None, **own, **options}
    )


def _end(method: str, problem: Problem, y: NDArray[np.int64], n_steps: int, seed: int, **options: Any) -> _End:
    answer = _trained(method, problem, n_steps, seed, **options)
    assert answer.probabilities is not None  # test rows were given
    return _End(*scores(np.asarray(answer.probabilities), y))


def _near_one(seed: int) -> Iterable[Decided]:
    for name in _SETS[:2]:
        largest, soonest = {}, {}
        for method in _LINK:
            problem, y = _posed(name, method, seed)
            courses = {rate: [_end(method, problem, y, n, seed, rate=rate).nll for n in _STEPS] for rate in _RATES}
            best = min(course[-1] for course in courses.values())
            good = {rate: course for rate, course in courses.items() if max(course[-2:]) < best + 0.02}
            largest[method] = max(good)
            soonest[method] = min(
                next(n for n, nll in zip(_STEPS, course, strict=True) if nll < best + 0.02) for course in good.values()
            )
        text = f"{name}: largest constant rate with a final nll within .02 of the best rate's"
        yield above("best-values-speed-natural", f"{text}, x-gpc", largest["x-gpc-svi"], 0.49)
        ratio = largest["x-gpc-svi"] / largest["svgpc"]
        yield above("best-values-speed-natural", f"{text}: x-gpc's over svgpc's {largest['svgpc']:g}", ratio, 1.99)
        text = f"{name}: fewest steps to within .02 of the best nll, x-gpc and svgpc"
        yield below("best-values-speed-natural", text, soonest["x-gpc-svi"], soonest["svgpc"])


def _criterion(seed: int) -> Iterable[Decided]:
    """On two draws of electricity, on which the rule ends a run after some ten thousand steps."""
    learn = {"learn": ("variance", "scale")}
    for draw in (seed, seed + 1):
        problem, y = _posed("electricity", "x-gpc-svi", draw)
        answer = _trained("x-gpc-svi", problem, _LONG, draw, stop=1e-4, check_every=1, **learn)
        assert answer.probabilities is not None  # test rows were given
        assert answer.iterations is not None
        text = f"electricity, draw {draw}"
        yield below("criterion-works", f"{text}: steps until the stop", answer.iterations, _LONG)
        stop = _End(*scores(np.asarray(answer.probabilities), y))
        later = _end("x-gpc-svi", problem, y, 10 * answer.iterations, draw, **learn)
        for field in _End._fields:
            gap = abs(getattr(stop, field) - getattr(later, field))
            yield below("criterion-works", f"{text}: {field} at the stop and after ten times as many steps", gap, 0.01)


def _change(method: str, problem: Problem, n_steps: int, seed: int, **options: Any) -> float:
    before, after = (
        np.asarray(_trained(method, problem, n, seed, **options).inducing_mean) for n in (n_steps, n_steps + 1)
    )
    return float(np.linalg.norm(after - before) / np.linalg.norm(before))


def _noisy(seed: int) -> Iterable[Decided]:
    worse = []
    learn = {"learn": ("variance", "scale")}
    for name in _SETS:
        posed = {method: _posed(name, method, seed) for method in _LINK}
        changes = {
            method: [float(np.log(_change(method, problem, 300, seed + k, **learn))) for k in range(_SEEDS)]
            for method, (problem, _) in posed.items()
        }
        text = f"{name}: log relative change of the inducing mean after 300 steps, x-gpc less svgpc"
        yield surely("svgpc-noisy-parameters", text, changes["x-gpc-svi"], changes["svgpc"])
        problem, y = posed["svgpc"]
        answer = _trained("svgpc", problem, 3000, seed, stop=1e-4, **learn)
        assert answer.probabilities is not None  # test rows were given
        end = _end("svgpc", problem, y, 3000, seed, **learn)
        worse.append(scores(np.asarray(answer.probabilities), y)[0] - end.error)
    text = f"largest error at that stop less that after 3000 steps, of {', '.join(_SETS)}"
    yield above("svgpc-noisy-parameters", text, max(worse), 0.02)


TRIALS: Mapping[str, Trial] = MappingProxyType({
    "best-values-speed-natural": _near_one, "criterion-works": _criterion, "svgpc-noisy-parameters": _noisy,
})  # fmt: skip


@experiment(
    "wenzel2019",
    "trials",
    "statements of sections 1, 4.1 and 5.2, each by a trial",
    "x-gpc takes rates close to one and stops well by a window over its parameters, whose trajectories svgpc has noisy "
    "(sections 1, 4.1, 5.2)",
)
def trials(asked: TrialOptions, say: Say) -> Outcome:
    """On pima, german20, electricity and bank, at most 1000 training rows of each."""
    notes = (
        f"at most {_ROWS} training and {_TEST} test rows of {', '.join(_SETS)}, {_POINTS} inducing points, "
        f"mini-batches of {_BATCH}; the paper names no sets for these statements",
        "svgpc makes natural-gradient steps here, at .1 unless a rate is tried; the paper's is ADAM in TensorFlow",
    )
    return run(TRIALS, asked, say, notes)
