"""Definitions and protocols of the papers that no solve executes: each on numbers that the judge can count by hand.

Classifiers of a few lines with a clock of their own stand in for those of the papers: what a protocol does with scores,
times, folds and ranks does not depend on who makes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from gibbs.models import multinomial_probit
from reference.izmailov2016.model import mean_vector
from reference.villacampa2017.cavity import cavity_latent_mean
from reference.wenzel2019.updates import check_positive_definite
from validation import datasets
from validation.checks.core import Context, Outcome, Tested, check
from validation.checks.print.printed import held
from validation.checks.print.wenzel2019 import PROBLEM as X_GPC_PROBLEM
from validation.checks.print.wenzel2019 import case
from validation.datasets.dataset import Dataset
from validation.datasets.splits import kfold
from validation.door.problem import Problem
from validation.implementations.quadrature_rule import kernel
from validation.reproduce import protocols
from validation.reproduce.riihimaki2013 import comparison
from validation.reproduce.villacampa2017 import uci as uci_2017
from validation.reproduce.villacampa2020 import fig6, uci
from validation.reproduce.villacampa2020 import setting as setting_2020

Array = NDArray[np.float64]
_COUNTED = "the judge counts on its fingers; rounding leaves 1e-14"
_LIMIT = 1e-12


class Ticking:
    """A binary classifier whose k-th step takes k seconds and whose probability of class 1 is then k/20."""

    def __init__(self, steps: int = 10) -> None:
        """Nothing learned at second 0."""
        self.now, self.steps, self.done = 0.0, steps, 0

    def clock(self) -> float:
        """Seconds; scoring takes some too."""
        return self.now

    def fit(self, X: Array, y: NDArray[np.int64], callback: Any = None) -> Ticking:
        """All steps, each told of."""
        for step in range(1, self.steps + 1):
            self.now += step
            self.done = step
            if callback is not None:
                callback(self)
        return self

    def predict_proba(self, X: Array) -> Array:
        """The same for every row."""
        self.now += 100.0
        return np.tile([1.0 - self.done / 20.0, self.done / 20.0], (len(X), 1))


class Nearest:
    """Class probabilities from distances to the means of the classes; remembers what it was trained on."""

    def __init__(self, seed: int = 0) -> None:
        """Untrained."""
        self.seed = seed
        self.rows: list[Array] = []

    def fit(self, X: Array, y: NDArray[np.int64]) -> Nearest:
        """Means of the classes."""
        self.rows.append(X.copy())
        self.centres = np.array([X[y == k].mean(axis=0) for k in range(int(y.max()) + 1)])
        return self

    def predict_proba(self, X: Array) -> Array:
        """exp(-|x - centre|), normalised."""
        near = np.exp(-np.linalg.norm(X[:, None] - self.centres, axis=2))
        return np.asarray(near / near.sum(axis=1, keepdims=True), dtype=np.float64)

    probabilities = predict_proba


def _counted(name: str, actual: Any, expected: Any, by: str) -> Outcome:
    return held(name, actual, expected, by, limit=_LIMIT, because=_COUNTED)


@check(
    "print/svi/protocols",
    paper="izmailov2016",
    question=(
        "The mean of section 2.1 is taken point by point, and each point of the curve of section 5.2 comes from its "
        "own run."
    ),
    problems=("-",),
)
def izmailov_protocols(context: Context, problem: None) -> Iterable[Outcome]:
    """2.1 and 5.2."""
    X = np.array([[0.3, -1.0], [2.0, 0.5], [-0.7, 1.1]])
    quadratic = 2.0 * X[:, 0] ** 2 - 3.0 * X[:, 0] * X[:, 1]
    result = mean_vector(lambda x: float(2.0 * x[0] ** 2 - 3.0 * x[0] * x[1]), X)
    yield _counted("2.1, mean vector", result, quadratic, "all points at once")
    y = np.array([1, 0, 1, 1])
    models: list[Ticking] = []

    def make(steps: int) -> Ticking:
        models.append(Ticking(steps))
        return models[-1]

    seconds, accuracy = protocols.accuracy_against_time(
        make, (3, 12), np.zeros((4, 1)), y, np.zeros((4, 1)), y, clock=lambda: models[-1].now
    )
    yield _counted("5.2, seconds", seconds, [6.0, 78.0], "1 + 2 + 3 and 1 + ... + 12")
    # below one half all rows are called 0, of which one is right; above it 1, of which three are
    yield _counted("5.2, accuracy", accuracy, [0.25, 0.75], "rows counted")


@check(
    "print/x-gpc/protocols",
    paper="wenzel2019",
    question="Folds, times and inducing points of sections 5.2 and 5.3 give the scores counted by hand.",
    problems=("-",),
)
def wenzel_protocols(context: Context, problem: None) -> Iterable[Outcome]:
    """5.2 and 5.3."""
    data = datasets.load("iris")
    models: list[Nearest] = []

    def make(seed: int) -> Nearest:
        models.append(Nearest(seed))
        return models[-1]

    scores = protocols.cross_validate(data, make, n_splits=5, n_run=4, test_cap=25, seed=3)
    yield _counted("5.2, folds", (len(scores), len({model.seed for model in models})), (4, 4), "each its own seed")
    for score, model, split in zip(scores, models, kfold(data, 5, 3), strict=False):
        rows, test = data.X[split.train], split.test[:25]
        centre, spread = rows.sum(axis=0) / len(rows), np.sqrt(np.mean((rows - rows.mean(axis=0)) ** 2, axis=0))
        yield _counted("5.2, inputs", model.rows[0], (rows - centre) / spread, "moments of the training rows")
        p = model.predict_proba((data.X[test] - centre) / spread)
        right = [row[k] for row, k in zip(p, data.y[test], strict=True)]
        wrong = [row.argmax() != k for row, k in zip(p, data.y[test], strict=True)]
        results = score.nll, score.error
        yield _counted("5.2, scores", results, (-np.mean(np.log(right)), np.mean(wrong)), "row by row, 25 at most")
    ticking, X, y = Ticking(), np.zeros((4, 1)), np.ones(4, dtype=np.int64)
    curve = protocols.performance_against_time(ticking, X, y, X, y, growth=2.0, clock=ticking.clock)
    # 1, 3, 6, 10, 15, ...: at the first step, wherever the time has doubled, and at the end
    yield _counted("5.2, time", curve.seconds, [1.0, 3.0, 6.0, 15.0, 36.0, 55.0], "steps of 1, 2, ... 10 seconds")
    yield _counted("5.2, time, nll", curve.nll, -np.log(np.array([1, 2, 3, 5, 8, 10]) / 20.0), "k/20 after step k")
    ticks = count(1.0)
    curves = protocols.inducing_point_study(Ticking, (3, 7), X, y, X, y, clock=lambda: next(ticks))
    ends = [float(curves[m].nll[-1]) for m in (3, 7)]
    yield _counted("5.3", ends, [-np.log(3 / 20), -np.log(7 / 20)], "m steps with m inducing points")


@check(
    "print/x-gpc/positive_definite",
    paper="wenzel2019",
    question="The smallest eigenvalue after a step of section 4.3 is that of the inverse of the convex combination.",
    problems=(X_GPC_PROBLEM,),
)
def positive_definite(context: Context, problem: Problem) -> Iterable[Outcome]:
    """At fast's q, for a step on all data, on one of them, and no step."""
    given = case(context, problem)
    dense, n = given.dense, problem.n
    before = np.asarray(np.linalg.inv(given.S), dtype=np.float64)
    for batch, rate in ((np.arange(n), 1.0), (np.array([1]), 0.3), (np.arange(n), 1e-9)):
        own = dense.kappa[batch]
        target = dense.inverse + (n / len(batch)) * sum(
            theta * np.outer(row, row) for theta, row in zip(given.theta[batch], own, strict=True)
        )
        mixed = np.linalg.inv((1.0 - rate) * before + rate * target)
        result = check_positive_definite(-0.5 * before, batch, given.theta, dense.kappa, dense.inverse, rate)
        yield held("4.3, positive definite", result, np.linalg.eigvalsh(mixed)[0], "eigenvalues of the inverse itself")
    swapped = float(np.linalg.eigvalsh(given.Sigma)[0])
    precision = np.asarray(np.linalg.inv(given.Sigma), dtype=np.float64)
    result = check_positive_definite(-0.5 * precision, np.arange(n), given.theta, dense.kappa, dense.inverse, 0.5)
    yield held("4.3, positive definite", result, swapped, "at fast's fixed point a step leaves the matrix as it is")


@check(
    "print/ep/cavity_mean",
    paper="villacampa2017",
    question="(35) and (36) are the mean of a latent value when inducing values are drawn from a cavity.",
    problems=("two-points-3-sparse-threshold",),
)
def cavity_mean(context: Context, problem: Problem) -> Iterable[Outcome]:
    """At fast's q in place of a cavity: the rule knows no difference, and fast's latent means are then the answer."""
    solution = context.solve("fast", "ep", problem)
    assert solution.inducing_mean is not None
    assert solution.latent_mean is not None
    assert problem.Z is not None
    for k in range(problem.n_classes):
        K_ZZ = kernel(problem, k, problem.Z[k], problem.Z[k]) + float(problem.jitter[k]) * np.eye(len(problem.Z[k]))
        K_XZ = kernel(problem, k, problem.X, problem.Z[k])
        results = [cavity_latent_mean(np.linalg.solve(K_ZZ, row), solution.inducing_mean[k]) for row in K_XZ]
        yield held(f"({35 + (k > 0)})", results, solution.latent_mean[:, k], "fast's means of the latent values")


@check(
    "print/nested-ep/gibbs_sweep",
    paper="riihimaki2013",
    question="A sweep of the Gibbs sampler of section 4.2.2 draws h given f and y, and then f given h.",
    problems=("-",),
)
def gibbs_sweep(context: Context, problem: None) -> Iterable[Outcome]:
    """Two data, three classes: h is drawn by rejection first, so that a sweep leaves its distribution given f alone."""
    rng = np.random.default_rng(20261122)
    runs, y = 20_000, np.array([0, 2])
    K = np.array([[1.5, 0.6], [0.6, 1.1]])
    K_XX = np.stack([K, 0.7 * K, 1.3 * K])
    f = np.array([[0.4, -0.3], [0.1, 0.2], [-0.2, 0.5]])
    tried = f + rng.standard_normal((runs * 30, 3, 2))
    inside = (tried.argmax(axis=1) == y).all(axis=1)
    kept = tried[inside]
    first, second = kept[:runs], kept[runs : 2 * runs]
    gain, root = multinomial_probit.smoother(K_XX)
    start = np.broadcast_to(f, first.shape).copy()
    drawn, fresh = multinomial_probit.sweep(rng, start, first, y, gain, root)
    z = []
    # the distribution of h given f is that of the other accepted draws
    for power in (1, 2):
        a, b = fresh**power, second**power
        z.append(((a.mean(0) - b.mean(0)) / np.sqrt((a.var(0) + b.var(0)) / runs)).ravel())
    moved = np.mean(fresh != first)
    # f given h: K (K + I)^-1 h and K - K (K + I)^-1 K, by inverses
    for k in range(3):
        smooth = K_XX[k] @ np.linalg.inv(K_XX[k] + np.eye(2))
        cov = K_XX[k] - smooth @ K_XX[k]
        left = drawn[:, k] - fresh[:, k] @ smooth.T
        z.append(left.mean(0) / np.sqrt(np.diag(cov) / runs))
        products = np.array([left[:, 0] ** 2, left[:, 1] ** 2, left[:, 0] * left[:, 1]])
        expected = np.array([cov[0, 0], cov[1, 1], cov[0, 1]])
        spread = np.sqrt(
            np.array([2 * cov[0, 0] ** 2, 2 * cov[1, 1] ** 2, cov[0, 0] * cov[1, 1] + cov[0, 1] ** 2]) / runs
        )
        z.append((products.mean(axis=1) - expected) / spread)
    yield Tested(
        np.concatenate(z),
        "moments of one sweep of 20 000 chains against draws by rejection and dense conditionals",
        "gibbs, one sweep",
        "rejection and inverses",
        "means off by 0.04 standard deviations, variances by 6 %",
    )
    yield _counted("4.2.2, moves", moved, 1.0, "every auxiliary value is drawn anew")


@check(
    "print/nested-ep/comparison",
    paper="riihimaki2013",
    question="The intervals of section 5.5 are those of Dirichlet weights and Dirichlet-multinomial outcomes.",
    problems=("-",),
)
def comparisons(context: Context, problem: None) -> Iterable[Outcome]:
    """Two scores and two outcomes have intervals that are quantiles of a beta distribution."""
    low, high, draws = -1.3, 0.4, 200_000
    result = comparison.bayesian_bootstrap([low, high], n_draws=draws, seed=4)
    # two weights: the first is uniform, so that the mean is uniform between the scores
    yield _counted("5.5, bootstrap, mean", result.mean, 0.5 * (low + high), "the mean of the scores")
    yield _counted("5.5, bootstrap, sd", result.sd, (high - low) / np.sqrt(12.0), "a uniform distribution")
    ends = low + (high - low) * np.array([0.025, 0.975])
    because = "quantiles of 200 000 draws of a uniform distribution have s.e. 3.5e-4 of its width; ten of them"
    yield held(
        "5.5, bootstrap, interval",
        (result.low, result.high),
        ends,
        "a uniform distribution",
        limit=5e-3,
        because=because,
    )
    counts, prior = np.array([3.0, 0.0, 9.0]), 1e-9
    interval = comparison.accuracy_comparison(counts, prior=prior, n_draws=draws, seed=4)
    # without ties and prior the second probability is zero: 2 p - 1 with p ~ Beta(9, 3)
    distribution = beta(9.0, 3.0)
    yield held("5.5, accuracy, mean", interval.mean, 2.0 * distribution.mean() - 1.0, "a beta distribution", limit=1e-7,
               because="a prior of 1e-9 a count in place of none")  # fmt: skip
    yield held("5.5, accuracy, sd", interval.sd, 2.0 * distribution.std(), "a beta distribution", limit=1e-7,
               because="a prior of 1e-9 a count in place of none")  # fmt: skip
    ends = 2.0 * distribution.ppf([0.025, 0.975]) - 1.0
    because = "quantiles of 200 000 draws have s.e. 1e-3 and less; ten of them"
    yield held("5.5, accuracy, interval", (interval.low, interval.high), ends, "a beta distribution", limit=1e-2,
               because=because)  # fmt: skip
    full = comparison.accuracy_comparison([4, 20, 7], n_draws=1000)
    a = np.array([5.0, 21.0, 8.0])
    cov = (np.diag(a) * a.sum() - np.outer(a, a)) / (a.sum() ** 2 * (a.sum() + 1.0))
    step = np.array([-1.0, 0.0, 1.0])
    yield _counted("5.5, accuracy, mean", full.mean, step @ a / a.sum(), "moments of a Dirichlet distribution")
    yield _counted("5.5, accuracy, sd", full.sd, np.sqrt(step @ cov @ step), "moments of a Dirichlet distribution")


@check(
    "print/ep/protocols",
    paper="villacampa2017",
    question="Splits and averages of section 4.1 have the shares, moments and errors counted by hand.",
    problems=("-",),
)
def villacampa2017_protocols(context: Context, problem: None) -> Iterable[Outcome]:
    """4.1."""
    for name, train in (("glass", 0.9), ("satellite", 0.2)):
        plan = uci_2017.uci_protocol(_numbered(name), 0.2, 3, seed=1)
        yield from _split(plan, round(200 * train))
        sizes = plan.n_inducing, plan.n_steps, plan.repetitions
        yield _counted("4.1, plan", sizes, (round(200 * train) // 5, 250, 20), "section 4.1 by eye")
    p = [np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]]), np.array([[0.1, 0.6, 0.3], [0.2, 0.5, 0.3]])]
    result = uci_2017.evaluation_metrics(p, [np.array([0, 2]), np.array([1, 0])], [2.0, 5.0])
    first, second = -0.5 * np.log(0.7 * 0.4), -0.5 * np.log(0.6 * 0.2)
    expected = (0.5 * (first + second), 0.5 * abs(first - second), 0.25, 0.25, 3.5, 1.5)
    yield _counted("4.1, averages", tuple(result), expected, "two repetitions of two rows, half the difference")


def _numbered(name: str) -> Dataset:
    """200 rows whose first input is their number."""
    X = np.column_stack([np.arange(200.0), np.cos(np.arange(200.0))])
    return Dataset(name, X, np.arange(200) % 3, ("a", "b", "c"), ("row", "u"), 0, "none", "made up", "")


def _split(plan: Any, n: int) -> Iterable[Outcome]:
    """A split trains on n of the 200 rows, standardised by themselves, and tests on all others."""
    yield _counted("4.1, rows", (len(plan.y), len(plan.y_test)), (n, 200 - n), "shares of 200 rows")
    yield held("4.1, moments", plan.X.std(axis=0), np.ones(2), "inputs standardised by the training rows", limit=1e-9,
               because="rounding of sums of 200 squares")  # fmt: skip
    rows = np.concatenate([plan.X[:, 0], plan.X_test[:, 0]])
    order = np.argsort(rows)
    gaps = np.diff(rows[order])
    yield held("4.1, every row once", gaps, np.full(199, gaps.mean()), "numbers of rows are evenly spaced", limit=1e-9,
               because="rounding of differences of 200 numbers")  # fmt: skip
    labels = np.concatenate([plan.y, plan.y_test])[order]
    yield _counted("4.1, labels", labels, np.arange(200) % 3, "each row with its own")


@check(
    "print/pep/protocols",
    paper="villacampa2020",
    question="Starts, splits, ranks and additions of section 5 are those counted by hand.",
    problems=("-",),
)
def villacampa2020_protocols(context: Context, problem: None) -> Iterable[Outcome]:
    """5, 5.1, 5.6 and the ranks of Figure D.8."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(30, 2)) * [1.0, 3.0]
    prior = setting_2020.start(X, 4, 3, 1)
    apart = np.median([np.linalg.norm((X[a] - X[b]) / X.std(axis=0)) for a in range(30) for b in range(a)])
    yield _counted("5, lengthscales", prior.lengthscales, np.tile(apart * X.std(axis=0), (3, 1)), "pair by pair")
    scales = np.array([prior.variance, prior.noise])
    yield _counted("5, variance and noise", scales, np.outer([1.0, 0.01], np.ones(3)), "constants")
    members = [[int((z == X).all(axis=1).sum()) for z in Z] for Z in prior.Z]
    yield _counted("5, inducing points", members, np.ones((3, 4)), "each is a row of X")
    plan = uci.uci_protocol(_numbered("glass"), 0.05, 0.7, 3, seed=1)
    yield from _split(plan, 180)
    sizes = plan.n_inducing, plan.alpha, plan.n_steps, plan.repetitions
    yield _counted("5.1, plan", sizes, (9, 0.7, 500, 20), "section 5.1 by eye")
    scores = np.array([[[0.3, 0.1, 0.1], [0.2, np.inf, 0.9]]])
    yield _counted("5.1, ranks", uci.average_ranks(scores), np.array([3.0 + 1.0, 1.5 + 3.0, 1.5 + 2.0]) / 2.0,
                   "ties share the mean of their places, infinity is last")  # fmt: skip
    wrong = np.array([[[2.0, 1.0, 1.0], [1.0, np.inf, 3.0]], [[0.0, 4.0, 2.0], [5.0, 5.0, 5.0]]])
    ranks = uci.error_rank_experiments(wrong, [10, 10])
    heights = np.array([[(3 + 1) / 2, (1.5 + 3) / 2, (1.5 + 2) / 2], [(1 + 2) / 2, (3 + 2) / 2, (2 + 2) / 2]])
    colours = np.array([[(2 + 1) / 2, 1.0, 1.0], [(1 + 2) / 2, 2.0, 2.0]])
    yield _counted("D.8, among alphas", ranks.among_alphas, heights, "places counted")
    yield _counted("D.8, among methods", ranks.among_methods, colours, "places counted")
    for method, steps in (("pep", (50, 5)), ("apep", (250, 25))):
        yield _counted(
            "5.6, schedule", tuple(fig6.printed_schedule(method)), (100, 400, 500, 100, *steps, 100), "by eye"
        )
    yield from _additions()


def _additions() -> Iterable[Outcome]:
    """5.6: the row of the largest entropy is added, the error taken after each addition."""
    pool = fig6.drawn_pool(3, n=12, n_test=40, n_pool=9)
    learner: Any = Nearest()
    result = fig6.active_learning_experiment(learner, pool, rule="entropy", n_additions=5, seed=2)
    mine, errors = Nearest(), []
    X, y, left = pool.X.copy(), pool.y.copy(), list(range(9))
    for _ in range(6):
        mine.fit(X, y)
        p = mine.predict_proba(pool.X_test)
        errors.append(np.mean([row.argmax() != k for row, k in zip(p, pool.y_test, strict=True)]))
        entropies = [-sum(q * np.log(q) for q in mine.predict_proba(pool.X_pool[[i]])[0]) for i in left]
        chosen = left.pop(int(np.argmax(entropies)))
        X, y = np.vstack([X, pool.X_pool[chosen]]), np.append(y, pool.y_pool[chosen])
    yield _counted("5.6, additions", result, errors, "row by row")
