"""villacampa2017, sections 3, 4.2 and 5: statements about VI's optima, sampled parameters and large data, tried."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from reference.common.priors import Prior
from validation import datasets
from validation.datasets.dataset import Dataset
from validation.datasets.splits import standardise, train_test_split
from validation.door.problem import Problem
from validation.door.solve import solve
from validation.reproduce.averages import pairs, recorded
from validation.reproduce.decisions import Decided, above, surely
from validation.reproduce.experiment import Outcome, Say, experiment
from validation.reproduce.protocols import scores
from validation.reproduce.trials import Trial, TrialOptions, run
from validation.reproduce.villacampa2017 import setting
from validation.reproduce.villacampa2017.fig3 import inducing_point_experiment

Array = NDArray[np.float64]
_TOY, _TOY_TEST = 300, 2000
_STARTS, _DRAWS = 4, 4
_ALIKE = 0.02  # margin within which two test errors count as alike; the paper prints none
_LARGE = 52_000


def _toy(seed: int) -> tuple[Dataset, Array, NDArray[np.int64]]:
    drawn = datasets.make_villacampa2017_toy(np.random.default_rng(seed), _TOY + _TOY_TEST)
    return drawn.rows(np.arange(_TOY)), drawn.X[_TOY:], drawn.y[_TOY:]


# -- section 4.2 ---------------------------------------------------------------------------------------------------


def _in_batch(data: Dataset, Z: Array, method: str = "vi-robust") -> setting.Run:
    """Positions by L-BFGS with q at its optimum before every step, all else at its true value."""
    each = np.ones(data.n_classes)
    prior = Prior(each, np.ones((data.n_classes, 2)), 0.0 * each, setting.JITTER * each, Z)
    training = setting.Training(n_steps=60, learn=("Z",), optimizer="lbfgs", tolerance=1e-3, max_iterations=200)
    return setting.train(method, data.X, data.y, prior, training)


def _local_optima(seed: int) -> Iterable[Decided]:
    data, _, _ = _toy(seed)
    batch, stochastic = [], []
    for start in range(_STARTS):
        Z = setting.start(data.X, 8, data.n_classes, seed + start).Z
        value = _in_batch(data, Z).log_evidence
        placed = inducing_point_experiment(data, Z, "vi-robust", reduce=0.5, seed=seed + start)
        assert value is not None
        assert placed.log_evidence is not None
        batch.append(value)
        stochastic.append(placed.log_evidence)
    text = f"{_TOY} data, m = 8, {_STARTS} starts: range of the bound at the end of batch runs, nat"
    yield above("vi-batch-local-optima", text, max(batch) - min(batch), 1.0)
    text = "bound at the end of batch runs less that of stochastic ones from the same starts"
    yield surely("vi-batch-local-optima", text, batch, stochastic)


def _bad_q(seed: int) -> Iterable[Decided]:
    for m in (4, 8):
        errors: dict[str, list[float]] = {"vi-robust": [], "ep": []}
        for draw in range(seed, seed + _DRAWS):
            data, X_test, y_test = _toy(draw)
            Z = setting.start(data.X, m, data.n_classes, draw).Z
            runs = {
                "vi-robust": _in_batch(data, Z),
                "ep": inducing_point_experiment(data, Z, "ep", reduce=0.1, seed=draw).trained,
            }
            for method, listed in errors.items():
                listed.append(scores(runs[method].probabilities(X_test), y_test)[0])
        means = ", ".join(f"{method} {np.mean(listed):.3f}" for method, listed in errors.items())
        text = f"m = {m}, {_DRAWS} draws, test error {means}: less"
        yield surely("vi-bad-q-at-first", f"{text} {_ALIKE:g}", errors["vi-robust"], errors["ep"], _ALIKE)


# -- sections 3 and 5 ----------------------------------------------------------------------------------------------


def _unneeded(seed: int) -> Iterable[Decided]:
    """Variance and lengthscale on a grid, a flat prior on their logarithms: weights are exp(log Z) of EP."""
    grid = [(v, s) for v in np.geomspace(0.25, 64.0, 5) for s in np.geomspace(0.3, 3.0, 5)]
    gaps: dict[int, list[float]] = {n: [] for n in (15, 60, 240)}
    for draw in range(seed, seed + 12):
        data = datasets.make_villacampa2017_toy(np.random.default_rng(draw), 240 + _TOY_TEST)
        X_test, y_test = data.X[240:], data.y[240:]
        for n, listed in gaps.items():
            if len(set(data.y[:n])) < 3:
                continue
            start = Problem("sampled", data.X[:n], data.y[:n], 3, "threshold", 1.0, [1.0, 1.0], noise=0.01, jitter=1e-4,
                            Z=data.X[: min(n, 25)], X_test=X_test)  # fmt: skip
            answers = [
                solve("fast", "ep", start.replace(variance=v, lengthscales=[s, s]), tolerance=1e-4, gradients=False)
                for v, s in grid
            ]
            log_z = np.array([answer.log_evidence for answer in answers], dtype=np.float64)
            each = np.array([answer.probabilities for answer in answers], dtype=np.float64)
            mean = np.tensordot(softmax(log_z), each, 1)
            nll = [scores(p, y_test)[1] for p in (mean, each[int(log_z.argmax())])]
            listed.append(nll[1] - nll[0])
    few, *more = gaps
    for many in more:
        count = min(len(gaps[few]), len(gaps[many]))
        text = f"nll at the maximum less that averaged over hyper-parameters: absolute, N = {many} less N = {few}"
        left, right = (np.abs(gaps[n][-count:]).tolist() for n in (many, few))
        yield surely("mcmc-unneeded", text, left, right)


def _large(seed: int) -> Iterable[Decided]:
    """GFITC makes one step of L-BFGS, at converged factors; SEP learns from mini-batches for as many seconds."""
    data = datasets.load("shuttle")
    split = train_test_split(data, seed, test_size=data.n - _LARGE, keep_leaks=True)
    X, X_test = standardise(data.X[split.train], data.X[split.test])
    y, y_test = data.y[split.train], data.y[split.test]
    prior = setting.start(X, 20, data.n_classes, seed)
    whole = setting.Training(n_steps=1, optimizer="lbfgs", tolerance=1e-2, max_iterations=50)
    slow = setting.train("gfitc", X, y, prior, whole, setting.Watch(evaluate=False))
    batches = setting.minibatches(len(y), 200, 100_000, seed)
    stochastic = setting.Training(n_steps=100_000, batches=batches, optimizer="adam", rate=0.01)
    watch = setting.Watch(budget=slow.seconds, evaluate=False, test=(X_test, y_test))
    quick = setting.train("sep", X, y, prior, stochastic, watch)
    each = [-np.log(p.probabilities(X_test)[np.arange(y_test.size), y_test]) for p in (quick, slow)]
    text = (
        f"shuttle, {len(y)} rows, {slow.seconds:.0f} s each: nll {each[0].mean():.4f} of SEP and {each[1].mean():.4f}"
    )
    yield surely("beats-gfitc-large", f"{text} of GFITC, over test rows", each[0].tolist(), each[1].tolist())


# -- section 4.1 ---------------------------------------------------------------------------------------------------


def _share_of_quadratures(seed: int) -> float:
    """Of the time of 60 steps of VI on vehicle, what is spent in `fast.likelihood`, where its rules are."""
    data = datasets.load("vehicle")
    X = standardise(data.X, data.X)[0]
    prior = setting.start(X, 38, data.n_classes, seed)
    profile = cProfile.Profile()
    profile.runcall(setting.train, "vi-robust", X, data.y, prior, setting.Training(n_steps=60, optimizer="adam"))
    stats: Any = pstats.Stats(profile)
    inside = "/".join(("fast", "likelihood", ""))
    spent = 0.0  # of its functions themselves, and of compiled ones that they call
    for (file, _, _), (_, _, own, _, callers) in stats.stats.items():
        if inside in file:
            spent += own
        elif file == "~":
            spent += sum(numbers[2] for (caller, _, _), numbers in callers.items() if inside in caller)
    return float(spent / stats.total_tt)


def _slower(seed: int) -> Iterable[Decided]:
    averages = recorded("villacampa2017-table2")
    for rival in ("EP", "SEP"):
        slow, fast = (np.log(each) for each in pairs(averages, "VI", rival, "seconds", ("5%", "10%", "20%")))
        text = f"log seconds of training, {rival} less VI, over {slow.size} data sets and M"
        yield surely("vi-slower", text, fast.tolist(), slow.tolist())
    text = "share of VI's time inside quadratures, all rows of vehicle and 38 points"
    yield above("vi-slower", text, _share_of_quadratures(seed), 0.5)


TRIALS: Mapping[str, Trial] = MappingProxyType({
    "vi-batch-local-optima": _local_optima, "vi-bad-q-at-first": _bad_q, "mcmc-unneeded": _unneeded,
    "beats-gfitc-large": _large, "vi-slower": _slower,
})  # fmt: skip


@experiment(
    "villacampa2017",
    "trials",
    "statements of sections 3, 4.2 and 5, each by a trial",
    "batch VI ends in local optima, since its q is bad at first; sampled hyper-parameters are not needed with much "
    "data; on large data SEP outperforms GFITC",
)
def trials(asked: TrialOptions, say: Say) -> Outcome:
    """On the paper's toy problem and on Shuttle."""
    notes = (
        f"toy: {_TOY} data of the paper's 1000; batch: at most 60 iterations of L-BFGS; stochastic VI 1000 epochs, "
        "EP 200 iterations of 2000",
        "the paper samples no hyper-parameters: flat on a grid of 25 values here; it names no large set: Shuttle here",
    )
    return run(TRIALS, asked, say, notes)
