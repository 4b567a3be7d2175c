"""Pieces of `fast` that ordinary problems leave alone: point masses, tails, stacks with a bad matrix, product rules.

And doors that no method goes through: `fit` of arrays where the methods take a prepared prior. Each is held against
sums over long grids, or against the route that the methods take.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, expit, gammaln, kv, log_expit, log_ndtr, ndtr

from validation.by_name import by_name
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.learning import BATCHES, PAPER, tiny
from validation.problem import Problem

Array = NDArray[np.float64]
_X = np.linspace(-9.5, 9.5, 38_001)
_W = np.exp(-0.5 * _X**2) * (_X[1] - _X[0]) / np.sqrt(2.0 * np.pi)


def _apart(value: Any, wanted: Any) -> float:
    """Largest difference over the largest entry."""
    a, b = np.asarray(value, dtype=float), np.asarray(wanted, dtype=float)
    if a.shape != b.shape:
        return np.inf
    return float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-300))


# -- one point at a time ---------------------------------------------------------------------------


@check(
    "identity/x-gpc/special_functions",
    paper="wenzel2019",
    question="Are expectations under narrow, wide and far Gaussians, and kernels near zero, their integrals?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.kernel.matern import correlation
    from fast.likelihood.logit import expected_log_logit
    from fast.likelihood.polya_gamma import kl_polya_gamma, log_cosh, pg_mean, update_local
    from fast.likelihood.probit import expected_log_probit, log_expected_probit
    from fast.likelihood.region import region_moments

    mean = np.array([-40.0, -6.0, -0.7, 0.0, 0.3, 2.0, 6.0, 1.0, -2.0])
    var = np.array([0.0, 0.3, 0.0, 4.0, 1e-6, 25.0, 0.5, 900.0, 3.0])
    sign = np.array([1.0, -1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 1.0, -1.0])
    f = sign[:, None] * (mean[:, None] + np.sqrt(var)[:, None] * _X)
    ratio = np.exp(-0.5 * f**2 - log_ndtr(f)) / np.sqrt(2.0 * np.pi)
    for name, function, parts in (
        ("logit", expected_log_logit, (log_expit(f), expit(-f), -expit(f) * expit(-f))),
        ("probit", expected_log_probit, (log_ndtr(f), ratio, -ratio * (ratio + f))),
    ):
        result = function(sign, mean, var)
        wanted = [part @ _W for part in parts]
        wanted[1] = sign * wanted[1]
        worst = max(float(np.abs(a / b - 1.0)[np.abs(b) > 1e-250].max()) for a, b in zip(result, wanted, strict=True))
        # rounding of 38 001 nodes; far in the lower tail r + f cancels seven digits of the judge's
        yield Compared(
            worst, 1e-8, f"E log p({name}) with two derivatives, point masses included", "fast", "definition"
        )
    z = sign * mean / np.sqrt(1.0 + var)
    hazard = np.exp(-0.5 * z**2 - log_ndtr(z)) / np.sqrt(2.0 * np.pi)
    link = log_expected_probit(sign, mean, var)
    worst = max(_apart(link.value, log_ndtr(z)), _apart(link.derivative, sign * hazard / np.sqrt(1.0 + var)),
                _apart(link.curvature, -hazard * (hazard + z) / (1.0 + var)))  # fmt: skip
    yield Compared(worst, 1e-9, "log E Φ(y f) and its derivatives", "fast", "definition")

    c = np.array([0.0, 1e-9, 1e-3, 0.4, 2.0, 30.0, 800.0])
    safe = np.where(c == 0.0, 1.0, c)
    wanted_mean = np.where(c == 0.0, 0.25, np.tanh(0.5 * safe) / (2.0 * safe))
    half_c = 0.5 * c
    log_of_cosh = np.logaddexp(half_c, -half_c) - np.log(2.0)
    worst = max(
        _apart(pg_mean(c), wanted_mean), float(np.abs(pg_mean(c) / wanted_mean - 1.0).max()),
        _apart(log_cosh(np.array([-3.0, 0.5, 2.0])), np.log(np.cosh([-3.0, 0.5, 2.0]))),
        _apart(kl_polya_gamma(c), log_of_cosh - 0.5 * half_c * np.tanh(half_c)),
        _apart(update_local(mean, var), np.sqrt(mean**2 + var)),
    )  # fmt: skip
    yield Compared(worst, 1e-12, "Pólya-Gamma means and divergences, from 0 to 800", "fast", "definition")

    worst = 0.0
    for order in (0.5, 0.8, 1.0, 1.5, 2.5, 4.3, 7.0, 40.0, 90.0, 140.0):
        x = np.array([[0.0, 1e-120, 1e-30], [1e-3, 0.3, 2.0], [9.0, 40.0, 300.0]])
        # K_ν overflows near zero: there the series 1 - x²/(4 (ν - 1)) is exact to rounding
        with np.errstate(all="ignore"):
            log_k = (1.0 - order) * np.log(2.0) - gammaln(order) + order * np.log(x) + np.log(kv(order, x))
            exact = np.where(np.isfinite(log_k), np.exp(log_k), 1.0 - 0.25 * x**2 / (order - 1.0))
            exact = np.where((x > 0.0) & (x < 1e-20) & (order > 0.9), 1.0, exact)
        far = np.isfinite(log_k) | (x < 1e-2)
        worst = max(worst, float(np.abs(correlation(x, order) - exact)[far].max()))
    yield Compared(worst, 1e-10, "Matérn correlations of any order, at zero and far out", "fast", "scipy.special")

    rng = np.random.default_rng(61)
    a, b = 2.0 * rng.standard_normal((5, 3)), rng.uniform(0.2, 3.0, (5, 3))
    t = a[:, None, :] + b[:, None, :] * _X[:, None]
    log_terms = log_ndtr(t).sum(axis=2)
    mass = np.exp(log_terms) @ _W
    weight = np.exp(log_terms) * _W / mass[:, None]
    r = np.exp(-0.5 * t**2 - log_ndtr(t)) / np.sqrt(2.0 * np.pi)
    derivative = np.einsum("nu,nuj->nj", weight, r)
    second = np.einsum("nj,nl->njl", derivative, derivative) - np.einsum("nu,nuj,nul->njl", weight, r, r)
    index = np.arange(3)
    second[:, index, index] += np.einsum("nu,nuj->nj", weight, r * (r + t))
    # derivative of r is -r (r + t); off the diagonal only the covariance of the hazards is left, on it r² comes back
    region = region_moments(a, b, curvature=True)
    worst = max(
        _apart(region.log_mass, np.log(mass)), _apart(region.hazards, derivative), _apart(region.curvature, second)
    )
    alone = region_moments(a, b, moments=True)
    worst = max(worst, _apart(alone.hazards, derivative), float(alone.curvature is not None))
    yield Compared(worst, 1e-9, "mass, hazards and curvature of a product of normal tails", "fast", "definition")


# -- the largest value, point masses included ------------------------------------------------------------


def win(mean: Array, var: Array, label: int) -> float:
    """P(f_label is the largest), ties of point masses shared: one row."""
    C = len(mean)
    others = [k for k in range(C) if k != label]
    ties = sum(var[k] == var[label] == 0.0 and mean[k] == mean[label] for k in others)
    f = mean[label] + np.sqrt(var[label]) * _X if var[label] > 0.0 else np.array([mean[label]])
    weight = _W if var[label] > 0.0 else np.ones(1)
    total = np.ones(len(f))
    for k in others:
        if var[k] > 0.0:
            total = total * ndtr((f - mean[k]) / np.sqrt(var[k]))
        else:
            total = total * (np.where(f == mean[k], 1.0, f > mean[k]))
    return float(total @ weight) / (1.0 + ties)


@check(
    "identity/ep/winners",
    paper="villacampa2017",
    question="Is the probability of the largest right where some latent values are known?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.likelihood.largest import argmax_moments, class_probabilities, losing_probability

    mean = np.array([[0.3, -0.2, 0.5], [0.3, 0.3, 0.1], [1.0, 0.4, 0.4], [0.2, 0.7, 0.2], [0.1, 0.1, 0.1],
                     [0.0, 2.0, -1.0], [5.0, -4.0, 0.0]])  # fmt: skip
    var = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 1.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.4], [0.0, 0.0, 0.0],
                    [0.0, 3.0, 0.0], [0.2, 1e-4, 9.0]])  # fmt: skip
    worst, derivatives, zeros = 0.0, 0.0, 0
    for label in range(3):
        y = np.full(len(mean), label)
        wanted = np.array([win(m, v, label) for m, v in zip(mean, var, strict=True)])
        result = argmax_moments(mean, var, y)
        worst = max(worst, float(np.abs(np.exp(result.log_mass) - wanted).max()))
        bare = argmax_moments(mean, var, y, moments=False)
        worst = max(worst, float(np.abs(np.exp(bare.log_mass) - wanted).max()))
        zeros += bare.derivative.size + int(np.sum(result.derivative[wanted == 0.0] != 0.0))
        lost = np.sum([[win(m, v, k) for m, v in zip(mean, var, strict=True)] for k in range(3) if k != label], axis=0)
        worst = max(worst, float(np.abs(losing_probability(mean, var, y) - lost).max()))
        for k in range(3):
            # where at most one value is known, no two point masses meet
            smooth = (wanted > 1e-12) & (np.sum(var == 0.0, axis=1) <= 1)
            up, down = mean[smooth], mean[smooth]
            up[:, k] += 1e-4
            down[:, k] -= 1e-4
            change = (
                argmax_moments(up, var[smooth], y[smooth]).log_mass
                - argmax_moments(down, var[smooth], y[smooth]).log_mass
            ) / 2e-4
            derivatives = max(derivatives, float(np.abs(result.derivative[smooth, k] - change).max(initial=0.0)))
    # the integrand has a step where a rival is known: half a node of 5e-4
    yield Compared(worst, 3e-4, "a sum over 38 001 nodes, which a known rival cuts between two", "fast", "definition")
    yield Compared(
        derivatives, 1e-6, "derivatives of log P in the means, by differences of 1e-4", "fast", "differences"
    )
    yield Compared(float(zeros), 0.0, "gradient 0 where P is zero, none where none is asked for", "fast", "definition",
                   "entries")  # fmt: skip
    found_p = class_probabilities(mean, var)
    yield Compared(
        float(np.abs(found_p.sum(axis=1) - 1.0).max()), 1e-10, "all classes together, ties included, are certain",
        "fast", "definition",
    )  # fmt: skip


@check(
    "limit/x-gpc/known_values",
    paper="wenzel2019",
    question="Is the class probability at a known latent value the logistic of it, and is its error stated as written?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.likelihood import probit, quadrature
    from fast.one_latent.predict import logit_prediction

    mean = np.array([-700.0, -30.0, -1.0, 0.0, 0.3, 5.0, 40.0, 700.0])
    exact = -np.logaddexp(0.0, np.outer(mean, [1.0, -1.0]))
    for var in (0.0, 1e-31, 1e-29, 1e-24):
        found = quadrature.log_class_probabilities(mean, np.full(mean.size, var))
        gap = float((np.abs(found - exact) / (1.0 + np.abs(mean[:, None]) / 100.0)).max())
        why = f"variance {var:g} moves log P by less than it; the stated error of each probability"
        yield Compared(gap, 1e-12 + var, why, "fast", "definition", "nat, of 1 + |mean|/100")
    whole = quadrature.log_class_probabilities(mean, np.linspace(0.1, 9.0, mean.size))
    with mock.patch.object(quadrature, "_CHUNK", 3):
        parts = quadrature.log_class_probabilities(mean, np.linspace(0.1, 9.0, mean.size))
    gap = float((np.abs(parts - whole) / (1.0 + np.abs(whole))).max())
    yield Compared(gap, 1e-13, "three points at a time, and all at once", "fast", "fast", "of 1 + |log P|")
    found = probit.class_probabilities(mean, np.zeros(mean.size))
    gap = float(np.abs(found - ndtr(np.outer(mean, [-1.0, 1.0]))).max())
    yield Compared(gap, 1e-15, "the normal distribution function", "fast", "definition", "difference")
    for largest in (0.0, 5.0, 250.0, 900.0):
        told = logit_prediction(np.array([0.5 * largest, -largest]), np.array([0.4, 2.0])).quadrature_error
        wanted = 1e-12 * (1.0 + largest / 100.0)
        yield Compared(abs(told / wanted - 1.0), 1e-12, f"error stated at means to {largest:g}", "fast", "definition")
    none = logit_prediction(np.zeros(0), np.zeros(0))
    yield Compared(abs(none.quadrature_error / 1e-12 - 1.0), 1e-12, "at no test point", "fast", "definition")


@check(
    "limit/pep/rarest_errors",
    paper="villacampa2020",
    question="Are the logarithms of a likelihood with errors right for the smallest numbers that a float can be?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.likelihood import power

    for C in (2, 3, 7):
        for exponent in (-1, -3, -100, -1022, -1023, -1060, -1074):
            low, high = power._logs(math.ldexp(1.0, exponent), C)
            exact = exponent * math.log(2.0) - math.log(C)
            why = f"epsilon = 2^{exponent}, {C} classes: log(epsilon/C)"
            yield Compared(abs(low / exact - 1.0), 1e-13, why, "fast", "definition")
            exact = math.log1p(-math.ldexp(1.0, exponent) * (C - 1) / C)
            why = f"epsilon = 2^{exponent}, {C} classes: log(1 - epsilon (C - 1)/C)"
            yield Compared(abs(high - exact), 1e-15, why, "fast", "definition", "nat")
        low, high = power._logs(0.0, C)
        yield Compared(float(low != -math.inf or high != 0.0), 0.0, "no errors", "fast", "definition", "flaws")


@check(
    "limit/vb-probit/far_regions",
    paper="riihimaki2013",
    question="Is the mass of a region right, with its derivatives, where it lies far from the mean?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.likelihood.region import region_moments

    # E Phi(a + b u) = Phi(a / sqrt(1 + b^2)); a second half-plane that holds all but e^-800 of it changes nothing
    far, slope = (part.ravel() for part in np.meshgrid([-90.0, -40.0, -15.0, -3.0, 0.0, 5.0], [0.05, 0.7, 3.0, 12.0]))
    z, root = far / np.sqrt(1.0 + slope**2), np.sqrt(1.0 + slope**2)
    log_mass = log_ndtr(z)
    hazard = math.sqrt(2.0 / math.pi) / erfcx(-z / math.sqrt(2.0))
    for second in (False, True):
        a, b = far[:, None], slope[:, None]
        if second:
            a, b = np.column_stack([a, np.full(far.size, 200.0)]), np.column_stack([b, np.full(far.size, 0.01)])
        told = region_moments(a, b, moments=True, curvature=True)
        assert told.hazards is not None
        assert told.curvature is not None
        why = f"one half-plane{' beside a sure one' if second else ''}, up to 90 standard deviations away"
        gaps = {
            "log mass": np.abs(told.log_mass - log_mass) / np.maximum(1.0, np.abs(log_mass)),
            "gradient": np.abs(told.hazards[:, 0] / hazard * root - 1.0),
            "curvature": np.abs(told.curvature[:, 0, 0] * root**2 - hazard * (hazard + z)),
        }
        for name, gap in gaps.items():
            # hazard + z has lost digits to 90^2 eps
            yield Compared(float(gap.max()), 1e-9, f"{name}: {why}", "fast", "definition")


# -- stacks ----------------------------------------------------------------------------------------


def _stack(size: int) -> Array:
    rng = np.random.default_rng(62)
    root = rng.standard_normal((size, 3, 3))
    return np.asarray(root @ root.transpose(0, 2, 1) + 0.1 * np.eye(3), dtype=np.float64)


def _refused(call: Any, *words: str) -> int:
    """1 unless the call raises an error that says all of this."""
    try:
        call()
    except ValueError as error:
        return int(not all(word in str(error) for word in words))
    return 1


@check(
    "identity/gfitc/stacked_factors",
    paper="villacampa2017",
    question="Does a matrix without a factor leave its neighbours in a stack alone, and is it named?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core import linalg as fast
    from gibbs.core import linalg as gibbs

    wrong = 0
    for bad, size in (((), 5), ((0,), 1), ((2,), 9), ((0, 7, 8), 12), ((150,), 300)):
        stack = _stack(size)
        for number, k in enumerate(bad):
            stack[k] = np.nan if number == 1 else -np.eye(3)
        good = np.array([k not in bad for k in range(size)])
        wanted = np.linalg.cholesky(stack[good])
        for witness, value in (("fast", fast.stacked_cholesky(stack)), ("gibbs", gibbs.factor(stack))):
            lower, flags = value
            wrong += int(not np.array_equal(flags, good)) + int(np.abs(lower[good] - wanted).max(initial=0.0) > 1e-14)
            filled = np.isnan(lower[~good]).all() if witness == "fast" else np.array_equal(
                lower[~good], np.broadcast_to(np.eye(3), (len(bad), 3, 3)))  # fmt: skip
            wrong += int(not filled)
        lower, flags = fast.positive_factors(stack)
        wrong += int(not np.array_equal(flags, good))
        wrong += int(not np.array_equal(lower[~good], np.broadcast_to(np.eye(3), (len(bad), 3, 3))))
        if bad:
            wrong += _refused(lambda stack=stack: fast.cholesky_of_all(stack, "what", "do this"), "what", "do this")
            place = f"what[{bad[0]}]"
            wrong += _refused(lambda stack=stack: gibbs.cholesky("what", stack, "do this"), place, "do this")
        else:
            wrong += int(np.abs(fast.cholesky_of_all(stack, "what", "do this") - wanted).max() > 1e-14)
            wrong += int(np.abs(gibbs.cholesky("what", stack, "do this") - wanted).max() > 1e-14)
    nested = _stack(6).reshape(2, 3, 3, 3)
    nested[1, 2] = -nested[1, 2]
    wrong += int(fast.stacked_cholesky(nested).good.tolist() != [[True] * 3, [True, True, False]])
    wrong += _refused(lambda: gibbs.cholesky("what", nested, "do this"), "what[1, 2]", "-")
    single = np.diag([1.0, -0.25])
    wrong += _refused(lambda: gibbs.cholesky("what", single, "do this"), "what (2, 2)", "eigenvalue -0.25")
    wrong += _refused(lambda: gibbs.cholesky("what", single * np.nan, "do this"), "what (2, 2)", "4 entries")
    wrong += _refused(lambda: gibbs.substitute(np.diag([1.0, 0.0]), np.ones((2, 1))), "row 1")
    wrong += _refused(lambda: gibbs.solve("what", np.zeros((2, 2)), np.ones(2), "do this"), "what", "do this")
    wrong += _refused(lambda: gibbs.invert_triangles(np.zeros((1, 2, 2))), "pivots")
    over = np.asfortranarray(np.array([[4.0, 2.0], [2.0, -3.0]]))
    wrong += _refused(lambda: gibbs.factor_over("what", over, "do this"), "what (2, 2)", "eigenvalue -3.53")
    wrong += int(gibbs.solve_factored(np.eye(2), np.zeros((2, 0))).shape != (2, 0))
    yield Compared(float(wrong), 0.0, "flags, factors, what stands in for a bad one, and the names in errors",
                   "fast and gibbs", "NumPy, one matrix at a time", "statements that are wrong")  # fmt: skip


# -- product rules ----------------------------------------------------------------------------------


@check(
    "identity/laplace/product_rules",
    paper="riihimaki2013",
    question="Are class probabilities by product rules and by Sobol's points the same integrals?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.full_classes import predict as fast

    rng = np.random.default_rng(63)
    mean, root = rng.standard_normal((4, 3)), 0.4 * rng.standard_normal((4, 3, 3))
    cov = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(3)
    side = np.linspace(-6.5, 6.5, 131)
    x = np.stack([axis.ravel() for axis in np.meshgrid(side, side, indexing="ij")])
    weight = np.exp(-0.5 * (x**2).sum(axis=0))
    weight /= weight.sum()
    soft, probit = np.empty((4, 3)), np.empty((4, 3))
    for i in range(4):
        for k in range(3):
            D = np.array([np.eye(3)[k] - np.eye(3)[j] for j in range(3) if j != k])
            g = (D @ mean[i])[:, None] + np.linalg.cholesky(D @ cov[i] @ D.T) @ x
            soft[i, k] = (1.0 / (1.0 + np.exp(-g).sum(axis=0))) @ weight
            # P(all of g + e_k - e_j > 0): the noise of the own class is shared
            s = _X[::500]
            noise = np.exp(-0.5 * s**2)
            noise /= noise.sum()
            probit[i, k] = sum(
                w * (ndtr(g[0] + one) * ndtr(g[1] + one) @ weight) for one, w in zip(s, noise, strict=True)
            )
    yield Compared(
        float(np.abs(fast.softmax_probabilities(mean, cov, 40) - soft).max()), 1e-6,
        "softmax: 40 nodes a dimension against 131", "fast", "a long rule",
    )  # fmt: skip
    yield Compared(
        float(np.abs(fast.softmax_probabilities(mean, cov) - soft).max()), 7e-4, "softmax: 4096 points, states 3e-4",
        "fast", "a long rule",
    )  # fmt: skip
    yield Compared(
        float(np.abs(fast.quadrature_probabilities(mean, cov, 40) - probit).max()), 1e-6,
        "probit: 40 nodes a dimension against 131", "fast", "a long rule",
    )  # fmt: skip
    yield Compared(
        float(np.abs(fast.quadrature_probabilities(mean, cov) - probit).max()), 1e-4, "probit: 1024 points: 2e-5",
        "fast", "a long rule",
    )  # fmt: skip


@check(
    "identity/laplace/normalised",
    paper="riihimaki2013",
    question="Are class probabilities that cannot be normalised refused, with the number of the test point?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.full_classes.predict import LatentDistribution, normalised

    distribution = LatentDistribution(np.zeros((3, 2)), np.zeros((3, 2, 2)))
    raw = np.array([[0.2, 0.6], [0.5, 0.5], [1e-9, 3e-9]])
    result = normalised(distribution, raw, 7)
    wrong = int(np.abs(result.probabilities - raw / raw.sum(axis=1, keepdims=True)).max() > 1e-15)
    for bad in (0.0, np.nan, np.inf, -0.7):
        changed = raw.copy()
        changed[1] = bad
        try:
            normalised(distribution, changed, 7)
            wrong += 1
        except FloatingPointError as error:
            wrong += int("test point 8" not in str(error))
    yield Compared(float(wrong), 0.0, "sums of zero, NaN, infinity and below zero", "fast", "its documentation",
                   "statements that are wrong")  # fmt: skip


# -- doors -----------------------------------------------------------------------------------------

_FULL = (("nested-ep", "nested_ep"), ("nested-iep", "nested_iep"), ("laplace", "laplace"), ("vb-probit", "vb_probit"))


def _arguments(problem: Problem) -> dict[str, Any]:
    names = ("X", "y", "n_classes", "variance", "lengthscales", "noise", "jitter")
    return {name: getattr(problem, name) for name in names}


def _register_fit(method: str, module: str) -> None:
    @check(
        f"identity/{method}/fitted_arrays",
        paper=PAPER[method],
        question="Is a fit of plain arrays the fit of the prepared prior, and what a listener is told the answer?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        asked = tiny("softmax full" if method == "laplace" else "multinomial-probit full")
        told: list[Any] = []
        door = import_module(f"fast.methods.{module}")
        result = by_name(door.fit)(**_arguments(asked), tolerance=1e-9, callback=told.append)
        solved = context.solve("fast", method, asked, tolerance=1e-9)
        value = float(result.elbo if method == "vb-probit" else result.log_evidence)
        yield Compared(
            abs(value - float(solved.log_evidence or np.nan)), 1e-12, "log Z: the same computation",
            "fast", "fast", "absolute difference",
        )  # fmt: skip
        yield Compared(
            float(told[-1].iteration != solved.iterations) + float(abs(told[-1].objective - value) > 1e-6),
            0.0, f"the last of {len(told)} calls tells iteration and log Z", "fast", "fast", "fields that differ",
        )  # fmt: skip


for _method, _module in _FULL:
    _register_fit(_method, _module)


@check(
    "identity/epgpc/told_predictions",
    paper=PAPER["epgpc"],
    question="Does a listener of a run on batches predict with what the run ends with?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    asked, told = tiny("probit"), []

    def listen(progress: Any) -> None:
        told.append(progress.run.predict(asked.X_test, block_size=2))

    solved = context.solve("fast", "epgpc", asked, batches=BATCHES, damping=0.7, trace=True, callback=listen)
    worst = max(
        _apart(told[-1].probabilities, solved.probabilities),
        _apart(told[-1].latent_mean, np.ravel(np.asarray(solved.test_latent_mean))),
        _apart(told[-1].latent_var, np.ravel(np.asarray(solved.test_latent_cov))),
    )
    yield Compared(worst, 1e-10, "the same sites after the last step, q(u) kept or recomputed", "fast", "fast")
