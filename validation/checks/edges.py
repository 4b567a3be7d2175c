"""Pieces at their edges, each against its definition: point masses, far tails, matrices without a factor, full tables.

What a problem of ordinary size never executes and a user with 10 000 rows, or a prior that hardly holds, does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit, log_ndtr, log_softmax, ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.implementations.quadrature_rule import matern_correlation
from validation.problem import Problem
from validation.quoting import shown

Array = NDArray[np.float64]


def _against(actual: object, expected: object, limit: float, why: str, unit: str = "relative difference") -> Compared:
    """Largest difference over the largest of what is expected; NaN in one place only fails."""
    left, right = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if left.shape != right.shape:
        return Compared(np.inf, limit, f"shapes {left.shape} and {right.shape}; {why}", "fast", "definition", unit)
    with np.errstate(invalid="ignore"):  # infinities that agree
        gap = np.where(left == right, 0.0, left - right)
    finite = np.abs(right[np.isfinite(right)])
    return Compared(
        float(np.abs(gap).max()) / max(float(finite.max(initial=0.0)), 1e-300), limit, why, "fast", "definition", unit
    )


# -- the largest of several, some of them known exactly -----------------------------------------------------------


def log_argmax(mean: Array, var: Array, y: int) -> float:
    """log P(f_y is the largest): a trapezoidal rule above the highest of the values that are known exactly."""
    others = np.delete(np.arange(mean.size), y)
    fixed, loose = others[var[others] == 0.0], others[var[others] > 0.0]
    if var[y] == 0.0:
        if (mean[fixed] > mean[y]).any():
            return -np.inf
        total = log_ndtr((mean[y] - mean[loose]) / np.sqrt(var[loose])).sum()
        return float(total - np.log1p((mean[fixed] == mean[y]).sum()))
    s = np.sqrt(var[y])
    a = max(-10.0, float(((mean[fixed] - mean[y]) / s).max(initial=-10.0)))
    t = np.linspace(-4.5, 4.5, 901)
    beyond = np.exp(t - np.exp(-t))  # the half-line from a, its ends approached double-exponentially
    weights = 0.01 * beyond * (1.0 + np.exp(-t))
    x = a + beyond
    term = log_ndtr((mean[y] + s * x[..., None] - mean[loose]) / np.sqrt(var[loose])).sum(axis=-1) - 0.5 * x * x
    top = term.max()
    return float(top + np.log(weights @ np.exp(term - top)) - 0.5 * np.log(2.0 * np.pi))


# means, variances, label; the last two have values of equal means, both known exactly
_EXACT: tuple[tuple[list[float], list[float], int], ...] = (
    ([0.3, -0.2, 0.5], [0.0, 0.7, 1.3], 1),
    ([0.3, -0.2, 0.5], [0.7, 0.0, 1.3], 1),
    ([0.3, -0.2, 0.5], [0.0, 0.4, 0.0], 1),
    ([1.3, -0.2, 0.5], [0.0, 0.4, 0.0], 0),
    ([0.3, -0.2, 0.5], [0.0, 0.4, 0.0], 0),
    ([0.5, -0.2, 0.5], [0.0, 0.4, 0.0], 0),
    ([0.5, 0.5, 0.5], [0.0, 0.0, 0.0], 2),
)


@check(
    "identity/ep/known_exactly",
    paper="villacampa2017",
    question="Has the largest of several values its probability where some are known exactly, and in any company?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.likelihood.largest import argmax_moments

    mean, var = np.array([row[0] for row in _EXACT]), np.array([row[1] for row in _EXACT])
    y = np.array([row[2] for row in _EXACT])
    result = argmax_moments(mean, var, y)
    expected = [log_argmax(a, b, int(k)) for a, b, k in zip(mean, var, y, strict=True)]
    yield _against(result.log_mass, expected, 1e-10, "states 1e-12; 901 points of a double-exponential rule leave less")
    yield _against(
        argmax_moments(mean, var, y, moments=False).log_mass, result.log_mass, 0.0, "the same sums, and no more"
    )
    step, sure = 1e-3, 4  # rows in which no step of this size meets another
    derivative, curvature = np.empty((sure, 3)), np.empty((sure, 3))
    for i, j in np.ndindex(sure, 3):
        up, here, down = (log_argmax(mean[i] + h * (np.arange(3) == j), var[i], int(y[i])) for h in (step, 0.0, -step))
        derivative[i, j], curvature[i, j] = (up - down) / (2.0 * step), (up - 2.0 * here + down) / step**2
    why = "differences of step 1e-3: a sixth of its square times third derivatives, which are below 5"
    yield _against(result.derivative[:sure], derivative, 1e-5, why)
    yield _against(result.curvature[:sure], curvature, 1e-5, why)
    # deviations four orders apart: panels; so many rows that a table does not hold them
    rng = np.random.default_rng(21)
    mean, var = rng.standard_normal((4000, 3)), 10.0 ** rng.uniform(-7.0, 1.0, (4000, 3))
    y = rng.integers(0, 3, 4000)
    together = argmax_moments(mean, var, y)
    for rows in (slice(0, 60), slice(3940, 4000)):
        alone = argmax_moments(mean[rows], var[rows], y[rows])
        yield _against(together.log_mass[rows], alone.log_mass, 1e-13, "a row's numbers depend on nothing but the row")
        yield _against(
            together.derivative[rows], alone.derivative, 1e-12, "a row's numbers depend on nothing but the row"
        )


# -- matrices without a factor ------------------------------------------------------------------------------------


def _stack() -> tuple[Array, NDArray[np.bool_]]:
    """(300, 3, 3) matrices and which of them have a factor: one has NaN, two are indefinite, in different blocks."""
    rng = np.random.default_rng(22)
    root = rng.standard_normal((300, 3, 3))
    matrices = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(3)
    matrices[[5, 260]] -= 3.0 * matrices[[5, 260]].max() * np.eye(3)
    matrices[111, 1, 1] = np.nan
    return matrices, ~np.isin(np.arange(300), [5, 111, 260])


@check(
    "identity/nested-ep/no_factor",
    paper="riihimaki2013",
    question="Are matrices without a Cholesky factor told from their neighbours, which keep theirs?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core import linalg
    from fast.core.errors import NotPositiveDefiniteError
    from gibbs.core import linalg as chains
    from gibbs.core.errors import NotPositiveDefiniteError as NoFactorError

    matrices, good = _stack()
    wanted = np.array(
        [np.linalg.cholesky(one) if fine else np.eye(3) for one, fine in zip(matrices, good, strict=True)]
    )
    for factors in (linalg.positive_factors, chains.factor):
        lower, result = factors(matrices)
        yield _against(result, good, 0.0, "three of 300 have none", "flags")
        yield _against(lower, wanted, 1e-14, "one matrix at a time, the identity where there is no factor")
    proper = np.where(np.arange(300)[:, None, None] == 111, np.eye(3), matrices).reshape(100, 3, 3, 3)
    smallest = float(np.linalg.eigvalsh(matrices[5])[0])
    for ask, error in ((linalg.cholesky_of_all, NotPositiveDefiniteError), (chains.cholesky, NoFactorError)):
        message = ""
        try:
            ask(proper, "V", "x") if ask is linalg.cholesky_of_all else ask("V", proper, "x")  # type: ignore[arg-type]
        except error as caught:
            message = str(caught)
        named = message.startswith("V[1, 2] (3, 3)") and f"{smallest:.3g}" in message
        yield Compared(float(not named), 0.0, f"the first without a factor, and its eigenvalue: {shown(message)}",
                       "both", "definition", "errors that name another")  # fmt: skip
    flat = np.diag([1.0, 1.0, 1e-17])
    early = np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]])
    refused = 0
    for one in (flat, early, np.full((3, 3), 1.0)):
        try:
            linalg.factorise(np.asfortranarray(one), "V", "x")
        except NotPositiveDefiniteError:
            refused += 1
    yield Compared(float(3 - refused), 0.0, "indefinite, singular, or singular to rounding: none has a factor to use",
                   "fast", "definition", "matrices that were not refused")  # fmt: skip
    kept = linalg.factorise(np.asfortranarray(matrices[0]), "V", "x")
    yield _against(kept, wanted[0], 1e-14, "a matrix that has one")


# -- links and kernels near zero, in the tails --------------------------------------------------------------------


def _gaussian_mean(function: Callable[[Array], Array], mean: float, var: float) -> float:
    x = np.linspace(-9.0, 9.0, 20_001)
    weight = np.exp(-0.5 * x * x)
    return float(weight @ function(mean + np.sqrt(var) * x) / weight.sum())


@check(
    "identity/x-gpc/far_and_near",
    paper="wenzel2019",
    question="Have links, kernels and Pólya-Gamma means their values at zero, at point masses and in the tails?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.kernel.matern import correlation
    from fast.likelihood.logit import expected_log_logit
    from fast.likelihood.polya_gamma import pg_mean
    from fast.likelihood.probit import expected_log_probit

    c = np.array([0.0, 1e-160, 1e-9, 1e-3, 0.4, 60.0, 1e9])
    near = 0.25 - c**2 / 48.0
    with np.errstate(invalid="ignore", divide="ignore"):
        wanted = np.where(c < 1e-2, near, np.tanh(0.5 * c) / (2.0 * c))
    yield _against(pg_mean(c) / wanted, np.ones(c.size), 1e-12, "the next term of the series is c^4/480, below 1e-14")
    x, order = np.array([0.0, 1e-3, 0.02, 0.5]), 161.3
    wanted = np.array([matern_correlation(order, float(at)) for at in x])
    yield _against(correlation(x, order), wanted, 1e-9, "where a Bessel function overflows: the judge's own integral")
    y, mean = np.array([1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0]), np.array([0.3, 0.3, -40.0, 60.0, 2.0, 60.0, -0.4])
    var = np.array([0.0, 0.8, 0.0, 0.0, 2.5, 0.0, 1e-320])
    for name, function, log_p in (
        ("logit", expected_log_logit, log_expit),
        ("probit", expected_log_probit, log_ndtr),
    ):
        result = function(y, mean, var)
        wanted = np.array([_gaussian_mean(log_p, a * m, v) for a, m, v in zip(y, mean, var, strict=True)])
        scale = np.where(wanted == 0.0, 1.0, wanted)
        yield _against(
            result.value / scale, wanted / scale, 1e-9, f"{name}: the mean of the logarithm, point masses too"
        )
        for at in (0, 1, 3, 4, 6):
            shift = 1e-4 * max(1.0, abs(mean[at]))
            ends = [_gaussian_mean(log_p, y[at] * (mean[at] + h), var[at]) for h in (shift, -shift)]
            derivative = (ends[0] - ends[1]) / (2.0 * shift)
            yield _against(result.derivative[at], derivative, 1e-6, f"{name}: a difference of relative step 1e-4")


@check(
    "identity/nested-ep/orthants_in_the_tail",
    paper="riihimaki2013",
    question="Are orthant probabilities right where they are far below what a float holds?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.results import Differences
    from fast.likelihood.sobol_rule import log_orthant

    mean = np.array([[-1.0, 0.4], [-50.0, -45.0], [-33.0, 2.0], [35.0, 31.0], [-29.0, 40.0]])
    cov = np.broadcast_to(np.diag([1.3, 0.8]), (5, 2, 2))
    # independent: the points play no part, and the answer is a sum of two logarithms
    wanted = log_ndtr(mean / np.sqrt([1.3, 0.8])).sum(axis=1)
    why = "independent values: the sum of two logarithms, whatever the points"
    scale = np.maximum(1.0, np.abs(wanted))
    yield _against(log_orthant(Differences(mean, cov)) / scale, wanted / scale, 1e-12, why)
    one = Differences(mean[:, :1], cov[:, :1, :1])
    yield _against(log_orthant(one), log_ndtr(mean[:, 0] / np.sqrt(1.3)), 1e-14, "one value: one logarithm")
    rho = 0.6
    x = np.linspace(0.0, 1.0, 4001)
    for a, b in ((-45.0, -30.0), (-32.0, 1.0), (0.3, -0.4)):
        value = log_orthant(Differences(np.array([[a, b]]), np.array([[[1.0, rho], [rho, 1.0]]])))[0]
        # g_1 = a + e with e > -a, beyond which the density falls by exp(a x) at least where a is far below zero
        e = max(-a, -9.0) + (40.0 / -a if a < -10.0 else 18.0) * x
        term = -0.5 * e * e + log_ndtr((b + rho * e) / np.sqrt(1.0 - rho**2))
        weights = np.full(x.size, e[1] - e[0])
        weights[[0, -1]] *= 0.5
        wanted_one = term.max() + np.log(weights @ np.exp(term - term.max())) - 0.5 * np.log(2.0 * np.pi)
        yield Compared(float(abs(value - wanted_one)), 2e-3, "1024 points in one dimension; a rule of 4001 leaves 1e-4",
                       "fast", "definition", "difference of logarithms")  # fmt: skip


# -- product rules ------------------------------------------------------------------------------------------------


@check(
    "identity/laplace/prediction_nodes",
    paper="riihimaki2013",
    question="Are class probabilities by product rules the integrals that define them?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.full_classes.predict import quadrature_probabilities, softmax_probabilities

    rng = np.random.default_rng(23)
    root = 0.35 * rng.standard_normal((4, 3, 3))
    mean, cov = rng.standard_normal((4, 3)), root @ root.transpose(0, 2, 1) + 0.1 * np.eye(3)
    nodes = np.linspace(-6.3, 6.3, 19)  # of spacing 0.7: exp(-2 pi^2/0.7^2) = 3e-18, and 3e-10 is left out
    weights = 0.7 * np.exp(-0.5 * nodes * nodes) / np.sqrt(2.0 * np.pi)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(nodes, nodes, nodes, indexing="ij")])
    weight = np.prod(np.meshgrid(weights, weights, weights, indexing="ij"), axis=0).ravel()
    f = mean[:, :, None] + np.linalg.cholesky(cov) @ grid
    soft = np.exp(log_softmax(f, axis=1)) @ weight
    why = "40 nodes leave 6e-8 at these deviations, 30 leave 2e-6"
    yield _against(softmax_probabilities(mean, cov, 40), soft, 1e-6, why)
    # P(f_k + u > f_j for all j), u common: Phi of differences
    probit = np.empty((4, 3))
    for k in range(3):
        others = np.delete(np.arange(3), k)
        part = [ndtr(f[:, k] + u - f[:, others[0]]) * ndtr(f[:, k] + u - f[:, others[1]]) for u in nodes]
        probit[:, k] = np.tensordot(weights, np.array(part), 1) @ weight
    yield _against(quadrature_probabilities(mean, cov, 40), probit, 1e-6, why)


# -- rules that stop a run ----------------------------------------------------------------------------------------


@check(
    "identity/x-gpc-svi/falling",
    paper="wenzel2019",
    question="Is a bound called falling where it falls without end, and there only?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.solve.stopping import Falling

    n, steps = 40, np.arange(600)
    limit = 0.5 * n * np.log(2.0)
    wrong = 0
    for values in (
        -0.01 * steps,  # by less than half of what n fair coins cost
        -0.2 * steps,
        np.where(steps < 300, 0.1 * steps, 30.0 - 0.3 * (steps - 300)),
        5.0 * np.cos(0.3 * steps) - 0.02 * steps,
        np.where(steps % 100 < 90, -1.0 * steps, 0.0),  # up again before six means have fallen
    ):
        means = values.reshape(-1, 20).mean(axis=1)
        below = np.diff(means, prepend=np.inf) < 0.0  # the first has fallen from nothing known
        ends = (
            k for k in range(5, means.size) if below[k - 5 : k + 1].all() and means[k] < means[: k + 1].max() - limit
        )
        expected = next((20 * (k + 1) for k in ends), None)
        rule, result = Falling(n), None
        for step, value in enumerate(values, start=1):
            kept = rule.state()
            rule = Falling(n)
            rule.restore(kept)
            if rule.add(float(value)):
                result = step
                break
        wrong += result != expected
        fresh = Falling(n)
        wrong += next((k for k, value in enumerate(values, start=1) if fresh.add(float(value))), None) != expected
    yield Compared(float(wrong), 0.0, "six means of 20 in a row below the one before, and 20 log 2 below the best",
                   "fast", "definition", "sequences that end elsewhere")  # fmt: skip


@check(
    "identity/ep/slowest_factor",
    paper="villacampa2017",
    question="Is the slowest factor of a run's moves the largest that their map has below 1?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.common._sweeps import _slowest

    directions = np.random.default_rng(5).standard_normal((6, 3))
    why = "an eigenvalue of three on the span of the moves, eight digits of which rounding leaves"
    for factors in ((0.9, 0.5, -0.2), (0.3, -0.97, 0.6), (1.2, 0.8, 0.1)):  # what grows says nothing of what is left
        moves = np.array([directions @ np.power(factors, j) for j in range(9)])
        expected = max(abs(factor) for factor in factors if abs(factor) < 1.0)
        yield _against(_slowest(moves), expected, 1e-8, why)._replace(left="reference")


@check(
    "identity/apep/distance",
    paper="villacampa2020",
    question="Is the distance that a run of energies states what is left of a geometric series of its steps?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.sparse_classes.alpha_runs import EnergyRun
    from fast.sparse_classes.projections import ClassDistribution

    for rate in (0.0, 0.5, 0.99):
        run = SimpleNamespace(
            q=ClassDistribution.prior(2, 2),
            here=SimpleNamespace(change=SimpleNamespace(residual=3e-9)),
            _mixing=SimpleNamespace(rate=lambda _, rate=rate: rate),
        )
        series = 3e-9 * np.sum(rate ** np.arange(4000.0))  # 0.99^4000 = 3e-18
        yield _against(EnergyRun.distance(run), series, 1e-10, "a sum of 4000 terms")  # type: ignore[arg-type]


# -- draws --------------------------------------------------------------------------------------------------------


@check(
    "identity/gibbs-logit/series",
    paper="wenzel2019",
    question="Does the alternating series of the Pólya-Gamma density decide as its sum does?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.draws.polya_gamma import _T, _series_accepts

    x = np.repeat(np.array([0.05, 0.3, 0.6, 0.7, 1.2, 3.0]), 4)
    k = np.arange(1, 40)
    decay = np.where(x <= _T, 2.0 / x, 0.5 * np.pi**2 * x)[:, None]
    total = 1.0 + ((-1.0) ** k * (2 * k + 1) * np.exp(-decay * (k * k + k))).sum(axis=1)
    uniform = total * (1.0 + np.tile([-1e-3, 1e-3, -1e-9, 1e-9], 6))
    wrong = float((_series_accepts(x, uniform) != (uniform <= total)).sum())
    yield Compared(wrong, 0.0, "uniform numbers on either side of the sum of 40 terms", "gibbs", "definition",
                   "decisions")  # fmt: skip


@check(
    "identity/gibbs-pairwise/far_derivatives",
    paper="villacampa2017",
    question="Is the derivative of log Φ right where Φ itself is zero in float64?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.models.pairwise import log_joint_gradient

    x = np.array([30.0, 999.0, 1001.0, 2e4, 1e8])
    derivative = x + 1.0 / (
        x + 2.0 / (x + 3.0 / (x + 4.0 / (x + 5.0 / x)))
    )  # Laplace's continued fraction of phi/Phi(-x)
    why = "logarithms of 5e5 cancel to 1e-10 up to 1000, five terms of the fraction leave 1e-12 from 30 on"
    value = log_joint_gradient(np.ones((1, 1)), -x[:, None])[:, 0]
    yield _against(value / x, derivative / x + 1.0, 1e-9, why)._replace(left="gibbs")
