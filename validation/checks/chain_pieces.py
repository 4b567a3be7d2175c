"""Pieces that chains are made of, each against its definition: cut normals, Pólya-Gamma draws, kernels, likelihoods."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import erfcx, expit, log_ndtr, ndtr
from scipy.stats import norm, truncnorm

from validation.by_name import sampler_by_name
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Tested, check
from validation.checks.few_data import Few
from validation.implementations.quadrature_rule import matern_correlation
from validation.problem import Problem

Array = NDArray[np.float64]

# one-sided, far out, on either side of zero, mirrored, narrow
INTERVALS = np.array(
    [[-0.7, np.inf], [6.0, np.inf], [-np.inf, -7.0], [-np.inf, 0.4], [-1.5, 0.3], [-0.2, 2.5], [0.5, 1.5], [6.0, 6.4],
     [-9.0, -8.5], [-0.05, 0.04], [1.0, 12.0], [5.5, 30.0], [-np.inf, np.inf]]
)  # fmt: skip


def cut_normal(low: float, high: float) -> tuple[float, float, float]:
    """log probability, mean and variance by a long rule on the interval, taken from its likeliest point."""
    a, b = max(low, -40.0), min(high, 40.0)
    top = float(np.clip(0.0, a, b))
    a, b = max(a, top - 12.0), min(b, top + 12.0)
    x = np.linspace(a, b, 200_001)
    weight = np.exp(-0.5 * (x**2 - top**2))
    weight[[0, -1]] *= 0.5  # trapezoid: an error of the square of the step, 1e-8
    total = weight.sum()
    mean = float(weight @ x / total)
    log_p = float(np.log(total * (x[1] - x[0]))) - 0.5 * top**2 - 0.5 * np.log(2.0 * np.pi)
    return log_p, mean, float(weight @ (x - mean) ** 2 / total)


@check(
    "identity/exact-probit/cut_normals",
    paper="riihimaki2013",
    question="Have normals that are cut on one side or two their probabilities, moments and draws?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.draws.truncated_normal import draw_interval, interval
    from gibbs.draws.univariate_truncated import draw_above, draw_below

    expected = np.array([cut_normal(low, high) for low, high in INTERVALS])
    pieces = [interval(*INTERVALS.T), *(interval(low, high) for low, high in INTERVALS)]
    results = [np.array(pieces[0]).T, np.array([tuple(float(part) for part in piece) for piece in pieces[1:]])]
    for k, name in enumerate(("log probability", "mean", "variance")):
        scale = np.maximum(np.abs(expected[:, k]), 1e-3 if k == 2 else 1e-2)
        worst = max(float(np.abs((at[:, k] - expected[:, k]) / scale).max()) for at in results)
        yield Compared(worst, 1e-6, f"{name}: a rule of 200 001 points, 1e-8 and its square root to spare", "gibbs",
                       "definition")  # fmt: skip
    # far out a normal is an exponential of rate a, up to a few parts in a²; between two limits, a cut one
    for low in (-1e4 - 2e-4, 1e4):
        result = interval([low], [low + 2e-4])  # two units of 1/a: both ends matter
        cut_var = (1.0 - 4.0 * np.exp(2.0) / np.expm1(2.0) ** 2) / 1e8
        worst = abs(float(result.var[0]) / cut_var - 1.0)
        yield Compared(worst, 1e-4, f"variance between {low:g} and 0.0002 above it: of a cut exponential", "gibbs",
                       "its limit")  # fmt: skip
    rng, z, n = np.random.default_rng(12), [], 3000
    for low, high in (*INTERVALS, (0.0, 0.1)):
        for drawn in (
            draw_interval(rng, np.full(n, low), np.full(n, high)),
            draw_interval(rng, [[low], [-1.0]], [[high] * n, [0.5] * n])[0],
        ):
            p = stats.kstest(drawn, truncnorm(low, high).cdf).pvalue
            z.append(norm.isf(0.5 * max(float(p), 1e-300)))
    for bound in (-3.0, 2.0, 5.0, 9.0, 40.0, 300.0):
        drawn = draw_above(rng, np.full(n, 0.7), np.full(n, 2.0), 0.7 + 2.0 * bound)
        lower = -draw_below(rng, np.full(n, -0.7), np.full(n, 2.0), np.full(n, -0.7 - 2.0 * bound))
        for values in (drawn, lower):
            tail = np.exp(log_ndtr(-(values - 0.7) / 2.0) - log_ndtr(-bound))  # uniform
            z.append(norm.isf(0.5 * max(float(stats.kstest(tail, "uniform").pvalue), 1e-300)))
    yield Tested(
        np.array(z), "Kolmogorov and Smirnov's test of draws, its p read as a z; Holm over the run at 1e-4", "gibbs",
        "scipy.stats", "a distribution function that is off by 5 % would show",
    )  # fmt: skip


@check(
    "identity/gibbs-probit/inverted_tails",
    paper="riihimaki2013",
    question="Does a draw above a bound leave the share of the tail that its exponential asks for, near and far out?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.draws.univariate_truncated import truncated_excess

    drop = np.array([1e-9, 1e-3, 0.3, 2.0, 40.0])
    for bounds, limit in (((-6.0, -1.0, 0.0, 2.0, 3.9, 4.0), 1e-7), ((4.0001, 4.5, 8.0, 60.0, 1e4, 1e8), 1e-9)):
        worst = 0.0
        for bound in bounds:
            given: Any = SimpleNamespace(standard_exponential=lambda size: drop)
            x = truncated_excess(given, np.full(5, bound))
            if bound > 4.0:  # Q(z) = exp(-z²/2) erfcx(z/√2)/2, the squares by hand
                ratio = np.log(erfcx((bound + x) / np.sqrt(2.0)) / erfcx(bound / np.sqrt(2.0)))
                came = x * (bound + 0.5 * x) - ratio
            else:
                came = log_ndtr(-bound) - log_ndtr(-(bound + x))
            worst = max(worst, float((np.abs(came - drop) / (1e-3 + drop)).max()))
        # nearer by a quantile of a logarithm, whose digits end at 1e-16 over a part of the tail
        yield Compared(worst, limit, f"bounds from {bounds[0]:g} to {bounds[-1]:g}", "gibbs", "definition")


@check(
    "exactness/gibbs-logit/polya_gamma_moments",
    paper="wenzel2019",
    question="Have Pólya-Gamma draws, sums of several included, their mean and variance?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.draws.polya_gamma import sample_polya_gamma

    rng, n, z = np.random.default_rng(13), 4000, []
    tilts = np.array([0.0, 0.3, -1.7, 6.0, 40.0])
    c = np.where(tilts == 0.0, 1e-4, np.abs(tilts))
    means = np.tanh(0.5 * c) / (2.0 * c)
    # (sinh c - c)/(4 c³ cosh²(c/2)), in exponentials; 1/24 at zero
    variances = np.where(c < 1e-2, 1.0 / 24.0, (1.0 - np.exp(-2.0 * c) - 2.0 * c * np.exp(-c)) / (
        2.0 * c**3 * (1.0 + np.exp(-c)) ** 2))  # fmt: skip
    for counts in (1, 3, np.array([[1], [2], [5]] * (n // 3))):
        shape = (len(counts) if isinstance(counts, np.ndarray) else n, tilts.size)
        drawn = sample_polya_gamma(rng, np.broadcast_to(tilts, shape), counts)
        b = np.broadcast_to(counts, shape)
        gap = drawn - b * means
        z += list(gap.mean(axis=0) / (gap.std(axis=0) / np.sqrt(len(gap))))
        square = gap**2 - b * variances
        # squares of skew draws: their mean is nearly normal after 4000, and 1.3 allows for the rest
        z += list(square.mean(axis=0) / (square.std(axis=0) / np.sqrt(len(square))) / 1.3)
    yield Tested(
        np.array(z), "means and variances; two-sided z, Holm over the run at 1e-4", "gibbs", "definition",
        "a tenth of a deviation, a seventh of a variance would show",
    )  # fmt: skip


@check(
    "identity/gibbs-logit/logistic_means",
    paper="wenzel2019",
    question="Is the mean of a logistic function of a Gaussian right, narrow or wide?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.models.quadrature import logistic_normal_mean

    mean, sd = (grid.ravel() for grid in np.meshgrid([-6.0, -0.3, 0.0, 2.0, 30.0], [1e-3, 0.3, 1.0, 4.0, 20.0, 300.0]))
    x = np.linspace(-8.5, 8.5, 200_001)
    weight = np.exp(-0.5 * x**2)
    weight /= weight.sum()
    # the widest Gaussian has four points to each unit of the logistic: its strip leaves exp(-2 pi² 4)
    expected = np.array([expit(m + s * x) @ weight for m, s in zip(mean, sd, strict=True)])
    worst = float(np.abs(logistic_normal_mean(mean, np.square(sd)) - expected).max())
    yield Compared(worst, 2e-10, "states 1e-10, the judge's rule far less", "gibbs", "definition")


@check(
    "identity/gibbs-logit/kernels",
    paper="wenzel2019",
    question="Are kernels of any smoothness the integral that defines them?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.core.kernels import covariance

    rng = np.random.default_rng(14)
    A, B, scales = rng.standard_normal((4, 2)), rng.standard_normal((3, 2)), np.array([0.7, 1.6])
    B[0] = A[1]
    square = (((A[:, None] - B[None]) / scales) ** 2).sum(axis=-1)
    for order in (None, 0.5, 0.8, 1.5, 2.5, 3.2, 7.0, 24.0, 30.0, 90.0):
        if order is None:
            expected = np.exp(-0.5 * square)
        else:
            expected = np.array([matern_correlation(order, s) for s in np.sqrt(2.0 * order * square.ravel())])
        value = covariance(A, B, 2.3, scales, order) / 2.3
        worst = float(np.abs(value.ravel() / expected.ravel() - 1.0).max())
        # the judge's rule leaves 1e-12 for these orders, logarithms of large factors a digit or two more
        yield Compared(worst, 1e-9, f"smoothness {order}", "gibbs", "quadrature")


@check(
    "identity/gibbs-pairwise/probabilities",
    paper="villacampa2017",
    question="Are the likelihoods of independent latent values what their definitions say?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.models.multinomial_probit import likelihood
    from gibbs.models.pairwise import moments_of_margins, pairwise_probability, prepare

    rng = np.random.default_rng(15)
    mean, var, y = rng.standard_normal((5, 4)), rng.uniform(0.2, 2.0, (5, 4)), np.array([0, 3, 1, 2, 2])
    expected = [
        np.prod([ndtr((m[c] - m[k]) / np.sqrt(v[c] + v[k])) for k in range(4) if k != c])
        for m, v, c in zip(mean, var, y, strict=True)
    ]
    worst = float(np.abs(pairwise_probability(mean, var, y) / expected - 1.0).max())
    yield Compared(worst, 1e-12, "(6): a product of normal probabilities, to rounding", "gibbs", "definition")
    x = np.linspace(-9.0, 9.0, 1801)
    weight = np.exp(-0.5 * x**2) * 0.01 / np.sqrt(2.0 * np.pi)
    expected = [
        np.exp(sum(log_ndtr(f[c] + x - f[k]) for k in range(4) if k != c)) @ weight
        for f, c in zip(mean, y, strict=True)
    ]
    worst = float(np.abs(likelihood(mean, y) - expected).max())
    yield Compared(worst, 1e-9, "(24) of riihimaki2013: both rules state 1e-10", "gibbs", "definition")
    few = Few("threshold", fitc=True)
    model = sampler_by_name(prepare)(**few.arguments())
    signs = []
    # Φ((m^y - m^k)/√(s^y + s^k)) = P(α + e > 0): covariances of α from u, in the order of the data
    parts = few.blocks
    for i, label in enumerate(few.y):
        signs += [(i, int(label), k) for k in range(few.n_classes) if k != label]
    margins = np.eye(len(signs))
    prior = np.array([theta[0] + theta[-1] for theta in few.thetas])
    explained = np.array([_explained(value.cross, value.inducing) for value in parts])  # (L, n, n)
    rest = prior[:, None] - np.einsum("lii->li", explained)
    for a, (i, c, k) in enumerate(signs):
        for b, (j, e, h) in enumerate(signs):
            shared = (c == e) * explained[c, i, j] - (c == h) * explained[c, i, j]
            shared += (k == h) * explained[k, i, j] - (k == e) * explained[k, i, j]
            scale = np.sqrt((rest[c, i] + rest[k, i]) * (rest[e, j] + rest[h, j]))
            margins[a, b] += shared / scale
    worst = float(np.abs(moments_of_margins(model) - margins).max())
    yield Compared(worst, 1e-10, "covariance of the margins of (7), to rounding", "gibbs", "definition")


def _explained(cross: Array | None, inducing: Array | None) -> Array:
    assert cross is not None
    assert inducing is not None
    return np.asarray(cross.T @ np.linalg.solve(inducing, cross))


# -- random numbers ----------------------------------------------------------------------------------------------------


def numbers_apart(used: np.random.Generator, seed: int, normals: int, uniforms: int = 0) -> float:
    """0 if a generator of this seed has given so many normals, then so many uniforms, and nothing else."""
    expected = np.random.default_rng(seed)
    expected.standard_normal(normals)
    expected.random(uniforms)
    return float(used.bit_generator.state != expected.bit_generator.state)


@check(
    "identity/gibbs-logit/numbers_consumed",
    paper="wenzel2019",
    question="Do moves and bridges take as many random numbers as they say, on which a resume depends?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.chains.starts import start_factors
    from gibbs.core.hyperpriors import LogDensity
    from gibbs.evidence import bridge, pairwise, softmax_bridge
    from gibbs.models.logit import draw_latent
    from gibbs.moves.hyper import hamiltonian_move

    results: dict[str, float] = {}
    draws = np.random.default_rng(16)
    f = Few("logit").draws(draws, 3 * 141).reshape(3, 141, 2)
    rng = np.random.default_rng(1)
    bridge.log_evidence_full(rng, Few("logit").cov[0], np.array([-1.0, 1.0]), f)
    results["bridge"] = numbers_apart(rng, 1, 2 * 3 * 70 * 2)
    few = Few("softmax")
    rng = np.random.default_rng(2)
    softmax_bridge.log_evidence(rng, few.cov, few.y, few.draws(draws, 3 * 141).reshape(3, 141, 3, 2).swapaxes(2, 3))
    results["bridge of the softmax"] = numbers_apart(rng, 2, 2 * 3 * 70 * 4)
    rng = np.random.default_rng(3)
    pairwise.log_evidence(rng, draws.standard_normal((3, 2)), draws.standard_normal((3, 141, 2)))
    results["bridge of the pairwise model"] = numbers_apart(rng, 3, 2 * 3 * 70 * 2)
    rng = np.random.default_rng(4)
    hamiltonian_move(rng, np.zeros((5, 3)), lambda x: LogDensity(-(x**2).sum(axis=-1), -2.0 * x), np.ones(5), 2)
    results["Hamiltonian move"] = numbers_apart(rng, 4, 15, 10)
    rng = np.random.default_rng(5)
    cov = Few("logit").cov[0]
    draw_latent(rng, cov, np.linalg.cholesky(cov), np.array([1.0, -1.0]), np.array([0.2, 0.3]))
    results["latent values"] = numbers_apart(rng, 5, 4)
    for name, wrong in results.items():
        yield Compared(wrong, 0.0, f"{name}: so many normals and uniforms", "gibbs", "its documentation", "1 if not")
    factors = start_factors(200)
    wrong = float(not np.array_equal(factors[:7], start_factors(7))) + abs(float(factors[0]) - 1.0)
    ordered = np.sort(np.log(factors))
    wrong += float(ordered[0] < np.log(0.25) or ordered[-1] > np.log(2.0) or np.diff(ordered).max() > 0.03)
    yield Compared(wrong, 1e-12, "starts: the first as the prior, all in [1/4, 2] without a gap, none changed by more",
                   "gibbs", "its documentation", "statements that are wrong")  # fmt: skip
