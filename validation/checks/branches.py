"""Arrays whose entries take different branches: far and near limits, broad and narrow, with and without a factor.

Where all entries of an array go one way a wrong condition goes unseen. Here each array holds both, on both sides of
where the code changes its formula, and is held against one definition that knows no branch: long grids, or dense
algebra of the whole matrices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_ndtr, logsumexp, ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.checks.villacampa2020_dense import inverse
from validation.problem import Problem

Array = NDArray[np.float64]


def _near(actual: Any, expected: Any, limit: float, why: str, left: str) -> Compared:
    """Largest difference over the largest entry; infinite where an entry is no number."""
    a, b = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    gap = float(np.abs(a - b).max() / max(1e-300, float(np.abs(b).max()))) if a.shape == b.shape else np.inf
    return Compared(gap if np.isfinite(gap) else np.inf, limit, why, left, "definition", "relative difference")


# -- stacks of cavities -------------------------------------------------------------------------------------------


def _stack() -> tuple[Array, Array, NDArray[np.bool_]]:
    """H and S (8, 3, 3), and whether both H and what is left without the site are distributions."""
    rng = np.random.default_rng(81)
    H, S = np.empty((8, 3, 3)), np.empty((8, 3, 3))
    # whether H has a factor, and eigenvalues of S in units of its inverse
    rows = (
        (True, (0.3, 0.5, 0.1)),
        (True, (-2.0, 0.4, 0.2)),
        (True, (1.6, 0.2, 0.1)),
        (False, (0.2, 0.1, 0.3)),
        (False, (1.5, 0.2, 2.0)),
        (True, (0.0, 0.0, 0.9)),
        (True, (1.2, 1.3, 1.4)),
        (False, (0.0, 0.0, 0.0)),
    )
    for k, (solid, shares) in enumerate(rows):
        root = np.eye(3) + 0.4 * rng.standard_normal((3, 3))
        draw = rng.standard_normal((3, 3))
        axes = np.linalg.eigh(draw + draw.T)[1]
        back = np.linalg.inv(root)
        H[k], S[k] = root @ root.T, back.T @ (axes * np.array(shares)) @ axes.T @ back
        if not solid:
            H[k] = root @ np.diag([1.0, -0.2, 0.7]) @ root.T
    return H, S, np.array([solid and max(shares) < 1.0 for solid, shares in rows])


@check(
    "identity/qep/full_cavities",
    paper="riihimaki2013",
    question="Is a cavity q divided by the site, and proper only where q and what is left both are distributions?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.results import Differences
    from fast.full_classes.nested_sites import FullSites, full_cavity

    H, S, proper = _stack()
    rng = np.random.default_rng(82)
    h, location = rng.standard_normal((8, 3)), rng.standard_normal((8, 3))
    result = full_cavity(Differences(h, H), FullSites(S, location))
    yield flaws(int(np.sum(result.proper != proper)), "H without a factor, what is left without one, both, neither",
                "fast", "flags")  # fmt: skip
    for k in np.flatnonzero(proper):
        whole = inverse(H[k])
        cov = inverse(whole - S[k])
        shift = whole @ h[k] - location[k]
        mean = cov @ shift
        # the integral of N(h|mean, cov) exp(λ'h - h'Sh/2), squares completed
        log_site = 0.5 * ((whole @ h[k]) @ h[k] - shift @ mean)
        log_site -= 0.5 * float(np.linalg.slogdet(cov)[1] - np.linalg.slogdet(H[k])[1])
        why = f"matrices 3 x 3 with conditions below 1e3, row {k}"
        yield _near(result.mean[k], mean, 1e-11, f"mean: {why}", "fast")
        yield _near(result.cov[k], cov, 1e-11, f"covariance: {why}", "fast")
        yield _near(result.log_site[k], log_site, 1e-10, f"integral of the site: {why}", "fast")


# -- functions of one number --------------------------------------------------------------------------------------


@check(
    "identity/laplace-binary/third_derivatives",
    paper="wenzel2019",
    question="Are third derivatives of log p(y|f) right in an array of far and near latent values?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.one_latent.links import link_of

    f = np.array([-1e3, -30.0, -8.0, -4.5, -4.001, -3.999, -1.0, 0.0, 0.7, 3.0, 6.0])
    # Φ(z) is exp(-z²/2) times the integral of exp(zt - t²/2) over t > 0: its logarithm's derivatives are cumulants
    s = np.linspace(-4.6, 4.6, 6001)
    t = np.exp(s - np.exp(-s)) / np.maximum(1.0, -f)[:, None]
    log_weight = f[:, None] * t - 0.5 * t * t + np.log(t) + np.log1p(np.exp(-s))
    weight = np.exp(log_weight - logsumexp(log_weight, axis=1, keepdims=True))
    mean = (weight * t).sum(axis=1)
    third = (weight * (t - mean[:, None]) ** 3).sum(axis=1)
    p = expit(f)
    for sign in (1.0, -1.0):
        result = link_of("probit").third_derivative(np.full(f.size, sign), sign * f)
        # far right the cumulant is what is left of a mean of six: its terms have rounding of 1e-16 times 6³
        gap = np.abs(sign * result - third) / np.where(f > 2.0, 1e-3, np.abs(third))
        yield Compared(float(gap.max()), 1e-9, f"probit, y = {sign:+g}: third cumulants of a cut-off normal", "fast",
                       "definition", "relative difference")  # fmt: skip
        wanted = -sign * p * (1.0 - p) * (1.0 - 2.0 * p)
        result = link_of("logit").third_derivative(np.full(f.size, sign), sign * f)
        yield _near(result, wanted, 1e-13, f"logit, y = {sign:+g}: products of its probabilities", "fast")


@check(
    "identity/laplace/odds_of_differences",
    paper="riihimaki2013",
    question="Is the softmax of differences right where others are far below, far above, or one of each?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.full_classes.predict import _logistic_of_differences

    ends = (-3000.0, -650.0, -2.0, 0.3, 5.0, 650.0, 800.0, 3000.0)
    d = np.array([[a, b] for a in ends for b in ends])
    wanted = np.exp(-np.logaddexp(0.0, np.logaddexp(-d[:, 0], -d[:, 1])))
    came = _logistic_of_differences(d[None])[0]
    yield _near(came, wanted, 1e-13, "1/(1 + sum exp(-d)) in logarithms", "fast")
    # exp(-650) has lost 650 roundings
    far = np.abs(d).max(axis=1) < 700.0
    yield _near(came[far] / wanted[far], np.ones(far.sum()), 1e-11, "each of them, however small", "fast")


@check(
    "identity/mh-softmax/smoothed_gumbel",
    paper="riihimaki2013",
    question="Is a Gumbel variable plus a narrow or a broad normal one distributed as the integral over either says?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.models.softmax_probability import _smoothed_gumbel

    t = np.array([-9.0, -2.0, -0.3, 0.0, 0.8, 2.5, 7.0, 19.0])
    for sd in (0.0, 0.02, 0.5, 1.5, 1.59, 1.61, 1.8, 4.0, 11.0):
        s, step = np.linspace(-9.0 * sd, 9.0 * sd, 4001 if sd > 0.0 else 1, retstep=True)
        weight = np.exp(-0.5 * np.square(s / sd)) * step / (sd * np.sqrt(2.0 * np.pi)) if sd > 0.0 else np.ones(1)
        e = np.exp(np.minimum(s - t[:, None], 600.0))
        value, density = _smoothed_gumbel(t, sd)
        for name, actual, expected in (("probability", value, np.exp(-e)), ("density", density, e * np.exp(-e))):
            gap = float(np.abs(actual - expected @ weight).max())
            yield Compared(gap, 1e-9, f"{name}, deviation {sd:g}: the table's stated error", "gibbs", "definition",
                           "absolute difference")  # fmt: skip


class _Uniforms:
    """In the place of a generator: numbers that the judge knows."""

    def __init__(self, values: Array) -> None:
        self._values = values

    def random(self, shape: Any) -> Array:
        return np.broadcast_to(self._values, shape).copy()


@check(
    "identity/gibbs-pairwise/inverted_intervals",
    paper="villacampa2017",
    question="Does a draw between two limits cut the mass between them in the ratio that its uniform number says?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.draws.truncated_normal import draw_interval

    near = ((-1.0, 2.0), (-np.inf, 0.3), (4.0, 4.9), (0.1, 0.1001), (-0.5, np.inf), (4.9, 5.2))
    far = ((5.5, 6.0), (5.01, np.inf), (9.0, 9.001), (30.0, 31.0), (60.0, np.inf))
    limits = np.array([*near, *far, *((-b, -a) for a, b in (*near, *far))])
    low, high = limits.T
    # mass above x, or below it where the interval lies left: logarithms of a small number, not of one near 1
    left = np.abs(low) > np.abs(high)
    for share in (1e-12, 0.03, 0.5, 0.9):
        drawn = draw_interval(_Uniforms(np.full(low.shape, share)), low, high)  # type: ignore[arg-type]
        inner, outer, x = (np.where(left, -a, b) for a, b in ((high, low), (low, high), (drawn, drawn)))
        log_inner, log_x = log_ndtr(-inner), log_ndtr(-x)
        whole = -np.expm1(log_ndtr(-outer) - log_inner)
        cut = -np.expm1(log_x - log_inner) / whole  # mass between the inner limit and the draw, over all of it
        inside = (low <= drawn) & (drawn <= high)
        # either end may be the one that the uniform counts from; logarithms of 1800 nats have 13 digits, 1/whole is 1e4
        gap = np.minimum(np.abs(cut - share), np.abs(cut - (1.0 - share)))
        gap = np.where(inside & np.isfinite(gap), gap, np.inf)
        yield Compared(float(gap.max()), 1e-8, f"{low.size} intervals at once, a uniform of {share:g}", "gibbs",
                       "definition", "share of the mass")  # fmt: skip


# -- the smallest change that an ascent tells ---------------------------------------------------------------------


@check(
    "identity/vi-jj/told_changes",
    paper="izmailov2016",
    question="Is the change that a stage of the alternation tells the largest relative one of its local parameters?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods.vi_jj import Bound
    from fast.one_latent.quadratic_search import Alternation, prepare

    for kind in ("logit", "logit full", "logit small", "logit full small"):
        asked = tiny(kind)
        Z = None if asked.Z is None else asked.Z[0]
        prior = Prior(asked.variance[0], asked.lengthscales[0], asked.noise[0], asked.jitter[0], Z)
        state = Alternation.start(prepare(Data(asked.X, asked.y), prior), Bound())
        for turn in range(3):
            before = state.xi.copy()
            told = state.update()
            # the maximum over xi is the root of the mean square itself, by which changes are measured
            wanted = float(np.max(np.abs(state.xi - before) / state.xi))
            yield Compared(abs(told - wanted), 1e-12, f"{kind}, update {turn + 1}: rounding of a ratio", "fast",
                           "definition", "difference")  # fmt: skip


# -- predictions with labelling errors ----------------------------------------------------------------------------


@check(
    "identity/ep/predicted_errors",
    paper="villacampa2017",
    question="Do predictions share 1 - ε of an argmax with ε of a label at random, for ε of 0, 1/5 and 1?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.villacampa2017.posterior import Gaussians
    from reference.villacampa2017.prediction import predict

    asked = tiny("threshold")
    assert asked.Z is not None
    assert asked.X_test is not None
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    rng = np.random.default_rng(83)
    root = 0.3 * rng.standard_normal((3, 4, 4))
    posterior = Gaussians(rng.standard_normal((3, 4)), root @ root.transpose(0, 2, 1) + 0.1 * np.eye(4))
    f = np.linspace(-25.0, 25.0, 50_001)
    for epsilon in (0.0, 0.2, 1.0):
        result = predict(posterior, asked.X_test, prior, epsilon)
        mean, sd = result.latent_mean, np.sqrt(result.latent_var)
        largest = np.empty_like(mean)
        for i in range(len(mean)):
            below = ndtr((f[:, None] - mean[i]) / sd[i])
            density = np.exp(-0.5 * np.square((f[:, None] - mean[i]) / sd[i])) / (sd[i] * np.sqrt(2.0 * np.pi))
            for k in range(3):
                others = [j for j in range(3) if j != k]
                largest[i, k] = float((density[:, k] * below[:, others].prod(axis=1)).sum()) * (f[1] - f[0])
        raw = (1.0 - epsilon) * largest + epsilon / 3.0
        yield _near(result.probability, raw / raw.sum(axis=1, keepdims=True), 1e-8, f"ε = {epsilon:g}: 50 001 nodes",
                    "reference")  # fmt: skip
        yield _near(result.probability_mass, raw.sum(axis=1), 1e-8, f"ε = {epsilon:g}: the sums before", "reference")
