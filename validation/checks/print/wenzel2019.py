"""wenzel2019 as printed, on what `fast` found for x-gpc: model, augmentation, bound, updates and their misprints.

The judge's own definitions: scipy.stats, the infinite sum of gammas that PG(1, c) is, joint Gaussians by dense
matrices, Gauss-Hermite rules (exact for quadratic functions), and derivatives by complex steps and circles.

    PG(1, c) = 1/(2 pi^2) sum_k g_k/((k - 1/2)^2 + c^2/(4 pi^2)),   g_k ~ Gamma(1, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, polygamma
from scipy.stats import multivariate_normal

from reference.wenzel2019 import (
    augmentation,
    bound,
    complexity,
    errata,
    experiments,
    gibbs_mackay,
    model,
    quality,
    sparse,
    updates,
)
from validation.checks.core import Context, Outcome, check
from validation.checks.definitions.binary import distribution_of, elbo
from validation.checks.print.printed import EXACT, held, missed
from validation.checks.witnesses.izmailov import Objective
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.quadrature_rule import kernel

Array = NDArray[np.float64]

PAPER = "wenzel2019"
PROBLEM = "three-points-fitc"
# the sums over k are taken to here, what is left in powers of 1/k^2: the third is below 1e-13
_TERMS = 400


class Case(NamedTuple):
    """What `fast` found, and a place beside it where nothing vanishes."""

    problem: Problem
    solution: Solution
    dense: Objective
    mu: Array  # (m,)   mean of q(u)
    Sigma: Array  # (m, m)
    c: Array  # (n,)
    theta: Array  # (n,)   E[omega] under PG(1, c), by the sum
    u: Array  # (m,)   beside mu
    S: Array  # (m, m) beside Sigma
    f: Array  # (n,)
    omega: Array  # (n,)
    K_XZ: Array
    K_XX: Array

    @property
    def root(self) -> Array:
        """Lower Cholesky factor of Sigma."""
        return np.asarray(np.linalg.cholesky(self.Sigma), dtype=np.float64)

    @property
    def y(self) -> Array:
        """Labels -1 and +1."""
        return np.asarray(self.dense.y, dtype=np.float64)


def case(context: Context, problem: Problem) -> Case:
    """x-gpc by `fast`."""
    solution = context.solve("fast", "x-gpc", problem)
    dense = Objective(problem)
    q = distribution_of(solution)
    m, n = len(q.mean), problem.n
    c = np.asarray(solution.local["c"], dtype=np.float64)
    u = q.mean + 0.3 + 0.2 * np.arange(m)
    S = 1.3 * q.cov + 0.1 * np.diag(1.0 + np.arange(m)) + 0.02
    f = dense.kappa @ u + 0.4 * np.cos(np.arange(n))
    K_XX = kernel(problem, 0, problem.X, problem.X) + float(problem.noise[0]) * np.eye(n)
    theta = pg_mean(c)
    return Case(
        problem, solution, dense, q.mean, q.cov, c, theta, u, S, f, 0.6 * theta + 0.05 * np.arange(n),
        dense.kappa @ dense.K, K_XX,
    )  # fmt: skip


# -- the judge's definitions ---------------------------------------------------------------------------------------


def log_laplace(t: Array, b: float = 1.0) -> Array:
    """log E exp(-omega t) for omega ~ PG(b, 0), from the sum of gammas."""
    x = np.asarray(t, dtype=np.float64)[..., None] / (2.0 * np.pi**2)
    k = np.arange(_TERMS) + 0.5
    head = np.log1p(x / k**2).sum(axis=-1)
    x = x[..., 0]
    end = _TERMS + 0.5
    return np.asarray(-b * (head + x * polygamma(1, end) - 0.5 * x**2 * polygamma(3, end) / 6.0), dtype=np.float64)


def pg_mean(c: Array) -> Array:
    """E[omega] for omega ~ PG(1, c), from the sum of gammas."""
    x = np.asarray(c, dtype=np.float64)[..., None] ** 2 / (4.0 * np.pi**2)
    k = np.arange(_TERMS) + 0.5
    end = _TERMS + 0.5
    tail = polygamma(1, end) - x[..., 0] * polygamma(3, end) / 6.0
    return np.asarray(((1.0 / (k**2 + x)).sum(axis=-1) + tail) / (2.0 * np.pi**2), dtype=np.float64)


def pg_divergence(c: Array) -> Array:
    """KL(PG(1, c) || PG(1, 0)): the mean of log q - log p = -c^2 omega/2 - log E exp(-c^2 omega/2)."""
    return -0.5 * c**2 * pg_mean(c) - log_laplace(0.5 * c**2)


def conditional(f: Array, omega: Array, y: Array) -> float:
    """log p(y|omega, f) = sum log[exp(y f/2 - omega f^2/2)/2]."""
    return float(np.sum(-np.log(2.0) + 0.5 * y * f - 0.5 * omega * f * f))


def log_density(x: Array, mean: Array, cov: Array) -> float:
    """log N(x | mean, cov)."""
    return float(multivariate_normal(mean, cov).logpdf(x))


def joint(given: Case) -> Array:
    """Prior covariance of (f, u)."""
    return np.block([[given.K_XX, given.K_XZ], [given.K_XZ.T, given.dense.K]])


def on_average(given: Case, mean: Array, var: Array, omega: Array) -> float:
    """E log p(y|omega, f) over independent f_i ~ N(mean_i, var_i), by the three nodes of Gauss and Hermite."""
    terms = [
        weight * conditional(mean + np.sqrt(3.0 * var) * node, omega, given.y)
        for node, weight in ((-1.0, 1.0 / 6.0), (0.0, 2.0 / 3.0), (1.0, 1.0 / 6.0))
    ]
    return float(np.sum(terms))


def log_det(matrix: Any) -> Any:
    """log of the product of the pivots, for a positive definite matrix that may have taken a complex step."""
    left = np.array(matrix)
    total = 0.0
    for k in range(len(left)):
        total = total + np.log(left[k, k])
        left = left - np.outer(left[:, k], left[k]) / left[k, k]
        left[k, k] = 1.0  # its row and column are zero, and never read again
    return total


def bound_of(given: Case, mu: Any, Sigma: Any, c: Any) -> Any:
    """The bound term by term for real or complex arguments, so that complex steps pass through."""
    dense = given.dense
    theta = np.tanh(0.5 * c) / (2.0 * c)
    mean = dense.kappa @ mu
    second = dense.cond_var + np.einsum("nm,mp,np->n", dense.kappa, Sigma, dense.kappa) + mean * mean
    data = -np.log(2.0) + 0.5 * given.y * mean - 0.5 * theta * second
    divergence = 0.5 * (
        np.sum(dense.inverse * Sigma) + mu @ dense.inverse @ mu - log_det(Sigma) + dense.log_det - len(mu)
    )
    return (data - np.log(np.cosh(0.5 * c)) + 0.5 * c * c * theta).sum() - divergence


def complex_step(function: Callable[[Any], Any], at: Array) -> Array:
    """Derivative of a function in every entry of an array, without cancellation."""
    values = np.empty(at.shape)
    for index in np.ndindex(at.shape):
        moved = at.astype(complex)
        moved[index] += 1e-30j
        values[index] = np.imag(function(moved)) / 1e-30
    return values


def on_circle(function: Callable[[Any], Any], at: float, order: int) -> float:
    """Derivative of an analytic function by Cauchy's integral over 64 points, radius 0.7."""
    turn = np.exp(2j * np.pi * np.arange(64) / 64)
    values = np.array([function(at + 0.7 * z) for z in turn])
    return float(np.real(np.mean(values * turn**-order)) / 0.7**order * (1.0, 1.0, 2.0)[order])


def euclidean(given: Case, mu: Array, Sigma: Array, c: Array) -> tuple[Array, Array]:
    """Gradients of the bound in mu and, symmetric, in Sigma."""
    derivative = complex_step(lambda x: bound_of(given, x, Sigma, c), mu)
    steep = complex_step(lambda x: bound_of(given, mu, x, c), Sigma)
    return derivative, 0.5 * (steep + steep.T)


# -- checks --------------------------------------------------------------------------------------------------------


@check(
    "print/x-gpc/model",
    paper=PAPER,
    question="(1) to (8) and the Polya-Gamma identities of section 3.1 hold as printed at fast's answer.",
    problems=(PROBLEM,),
)
def printed_model(context: Context, problem: Problem) -> Iterable[Outcome]:
    """(1) to (8)."""
    given = case(context, problem)
    f, u, omega, y, dense = given.f, given.u, given.omega, given.y, given.dense
    likelihood = float(np.log(expit(y * f)).sum())
    yield held("(1)", model.log_likelihood_logit(f, y), likelihood, "log of scipy's logistic function")
    prior = log_density(f, np.zeros(problem.n), given.K_XX)
    yield held("(2)", model.log_joint(f, y, given.K_XX), likelihood + prior, "and scipy's normal density")
    t = np.append(0.5 * given.c**2, 0.0)
    for b in (1.0, 2.5):
        yield held("(3)", augmentation.pg_laplace_transform(t, b), np.exp(log_laplace(t, b)), f"gammas, b = {b}")
        tilt = -0.5 * given.c**2 * omega - log_laplace(0.5 * given.c**2, b)
        yield held("3.1, tilt", augmentation.pg_log_tilt(omega, b, given.c), tilt, f"normalised by gammas, b = {b}")
    z = np.concatenate([y * f, given.c, [0.0, -3.0]])
    yield held("(4)", augmentation.logit_pg_mixture(z), expit(z), "the logistic function")
    augmented = conditional(f, omega, y)
    yield held("(5)", augmentation.log_joint_augmented(f, omega, y, given.K_XX), augmented + prior, "term by term")
    result = sparse.sparse_prior(u, dense.K, given.K_XZ, given.K_XX)
    precision = np.linalg.inv(joint(given))
    n = problem.n
    cov = np.linalg.inv(precision[:n, :n])
    yield held("(6), mean", result.mean, -cov @ precision[:n, n:] @ u, "blocks of the precision of (f, u)")
    yield held("(6), K~", result.cov, cov, "blocks of the precision of (f, u)")
    yield held("(6), p(u)", result.log_inducing, log_density(u, np.zeros(len(u)), dense.K), "scipy's normal density")
    yield held("(6), K~_ii", np.diag(result.cov), dense.cond_var, "the judge's conditional variances")
    both = log_density(np.concatenate([f, u]), np.zeros(n + len(u)), joint(given)) + augmented
    yield held("(7)", sparse.log_joint_sparse(f, u, omega, y, dense.K, given.K_XZ, given.K_XX), both, "joint Gaussian")
    average = on_average(given, dense.kappa @ u, dense.cond_var, omega)
    jensen = bound.conditional_jensen_bound(u, omega, y, dense.kappa, dense.cond_var)
    yield held("(8)", jensen, average, "Gauss-Hermite nodes")
    printed = bound.expected_conditional_loglik(u, omega, y, dense.K, given.K_XZ, given.K_XX)
    yield held("A.2, likelihood", printed, average, "Gauss-Hermite nodes")


@check(
    "print/x-gpc/bound",
    paper=PAPER,
    question="fast's bound is given by the displays of section 4.2 and of A.2 and A.5.",
    problems=(PROBLEM,),
)
def printed_bound(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Between (8) and (10), A.2, A.5, and the gap of section 4.3."""
    given = case(context, problem)
    dense, y, value = given.dense, given.y, given.solution.log_evidence
    here = given.mu, given.Sigma, given.c, y, dense.K, dense.kappa, dense.cond_var
    beside = given.u, given.S, 1.3 * given.c + 0.2, y, dense.K, dense.kappa, dense.cond_var
    there = float(bound_of(given, *beside[:3]))
    for name, function in (("4.2, chain", bound.evidence_bound_chain), ("(10)", bound.xgpc_bound)):
        yield held(name, function(*here), value, "the bound that fast reports")
        yield held(name, function(*beside), there, "term by term beside fast's q")
    terms = bound.assemble_bound(*here)
    yield held("A.2, total", terms.elbo, value, "the bound that fast reports")
    mean, var = dense.moments(given.mu, given.root)
    yield held("A.2, expectation", terms.expected_loglik, on_average(given, mean, var, given.theta), "Gauss-Hermite")
    divergence = dense.divergence(given.mu, given.root)
    yield held("A.2, KL of u", terms.kl_inducing, divergence, "dense matrices")
    yield held("A.2, KL of omega", terms.kl_polya_gamma, pg_divergence(given.c).sum(), "sums of gammas")
    q = log_density(given.u, given.mu, given.Sigma) + float(
        np.sum(-0.5 * given.c**2 * given.omega - log_laplace(0.5 * given.c**2))
    )
    yield held("(9)", bound.variational_family(given.u, given.omega, *here[:3]), q, "scipy's density and gammas")
    result = bound.theta_and_kappa(np.append(given.c, 0.0), given.K_XZ, dense.K)
    yield held("4.2, theta", result.theta, pg_mean(np.append(given.c, 0.0)), "means of sums of gammas")
    yield held("4.2, kappa", result.upsilon, dense.kappa, "a linear system in place of an inverse")
    f, c = given.f, given.c
    pointwise = -np.log(2.0) + 0.5 * y * f - 0.5 * given.theta * f * f - pg_divergence(c)
    yield held("A.5, augmented", gibbs_mackay.pg_pointwise_bound(f, c, y), pointwise.sum(), "sums of gammas")
    yield held("A.5, augmented", gibbs_mackay.pg_pointwise_bound(f, -f, y), model.log_likelihood_logit(f, y), "c = -f")
    both = gibbs_mackay.bounds_equal(f, c, y)
    yield held("A.5, equality", both.augmented, pointwise, "datum by datum, sums of gammas")
    yield held("A.5, equality", both.gibbs_mackay, both.augmented, "left side and right side")
    z = np.append(y * f, 1.7)
    at = np.append(c, 0.0)
    derivative = np.append((expit(c) - 0.5) / (2.0 * c), 0.125)
    direct = np.log(expit(at)) + 0.5 * (z - at) - derivative * (z * z - at * at)
    yield held("A.5, Gibbs and MacKay", gibbs_mackay.gibbs_mackay_bound(z, at), direct, "logistic function; c = 0 too")
    assert value is not None
    original = elbo(problem, distribution_of(given.solution))
    gap = quality.augmentation_gap(mean, var, c)
    yield held("4.3, gap", gap, original - value, "the bound without Polya-Gamma variables, less fast's")
    gap, lower = quality.augmentation_gap(mean, var, 1.5 * c), float(bound_of(given, given.mu, given.Sigma, 1.5 * c))
    yield held("4.3, gap", gap, original - lower, "the same where c is not at its best")


@check(
    "print/x-gpc/misprints",
    paper=PAPER,
    question="(10) and the mean in A.2 as printed miss fast's bound by the effect of their signs.",
    problems=(PROBLEM,),
)
def misprints(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Each printed form misses, and by the terms that its misprint moves."""
    given = case(context, problem)
    dense, y, value = given.dense, given.y, given.solution.log_evidence
    here = given.mu, given.Sigma, given.c, y, dense.K, dense.kappa, dense.cond_var
    mean, var = dense.moments(given.mu, given.root)
    moved = var - dense.cond_var + mean * mean
    assert value is not None
    yield from missed(
        "(10), signs", errata.xgpc_bound_as_printed(*here), value, float(given.theta @ moved), bound.xgpc_bound(*here)
    )
    excess = 0.5 * float((given.theta - 1.0) @ moved)
    yield from missed("(10), no bracket", errata.xgpc_bound_as_extracted(*here), value, excess, bound.xgpc_bound(*here))
    args = given.mu, given.Sigma, given.c, y, dense.kappa, dense.cond_var
    right = on_average(given, mean, var, given.theta)
    excess = 0.5 * float((given.theta - 0.25) @ (var + mean * mean))
    yield from missed(
        "A.2, E_p[omega]", errata.expected_loglik_as_printed(*args), right, excess, bound.expected_loglik(*args)
    )


@check(
    "print/x-gpc/updates",
    paper=PAPER,
    question="No printed update of section 4.3, A.3 and A.4 moves fast's fixed point, and they are derivatives.",
    problems=(PROBLEM,),
)
def printed_updates(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Derivatives vanish at fast's q and c, and are those of the bound beside them."""
    given = case(context, problem)
    dense, y, theta, mu, Sigma = given.dense, given.y, given.theta, given.mu, given.Sigma
    inverse, kappa = dense.inverse, dense.kappa
    precision = inverse + kappa.T @ (theta[:, None] * kappa)
    linear = 0.5 * kappa.T @ y
    natural = updates.to_natural(mu, Sigma)
    yield held("4.3, eta_1", natural.eta_1, linear, "kappa' y/2 at the fixed point")
    yield held("4.3, eta_2", natural.eta_2, -0.5 * precision, "-(K^-1 + kappa' Theta kappa)/2 at the fixed point")
    yield held("A.4, eta_1", updates.update_eta1(kappa, y), linear, "kappa' y/2")
    yield held("(18)", updates.update_eta2(theta, kappa, inverse), -0.5 * precision, "dense")
    yield held("A.4, mu", updates.update_mu(theta, kappa, y, inverse), mu, "the mean that fast found")
    still = updates.natural_gradient(natural.eta_1, natural.eta_2, theta, kappa, y, inverse)
    floor = float(np.abs(precision).max())
    zero = np.zeros_like
    yield held("A.3, natural, eta_1", still.eta_1, zero(mu), "nothing moves", floor=floor)
    yield held("A.3, natural, eta_2", still.eta_2, zero(Sigma), "nothing moves", floor=floor)
    yield held("(15)", updates.gradient_sigma(Sigma, theta, kappa, inverse), zero(Sigma), "nothing moves", floor=floor)
    yield held("(16)", updates.gradient_mu(mu, theta, kappa, y, inverse), zero(mu), "nothing moves", floor=floor)
    # beside the fixed point they are derivatives
    u, S = given.u, given.S
    derivative, steep = euclidean(given, u, S, given.c)
    yield held("(15)", updates.gradient_sigma(S, theta, kappa, inverse), steep, "complex steps in Sigma")
    yield held("(16)", updates.gradient_mu(u, theta, kappa, y, inverse), derivative, "complex steps in mu")
    P = np.asarray(np.linalg.inv(S), dtype=np.float64)
    away = updates.natural_gradient(P @ u, -0.5 * P, theta, kappa, y, inverse)
    yield held(
        "A.3, natural, eta_1", away.eta_1, derivative - 2.0 * steep @ u, "derivatives in the means of u and u u'"
    )
    yield held("A.3, natural, eta_2", away.eta_2, steep, "derivatives in the means of u and u u'")
    yield from _local(given)


@check(
    "print/x-gpc/ascent",
    paper=PAPER,
    question="At the end of reference's ascent, the derivatives of (15), (16) and A.3 are those of the bound.",
    problems=(PROBLEM,),
)
def derivatives_of_ascent(context: Context, problem: Problem) -> Iterable[Outcome]:
    """After two sweeps, where c has not converged, and at the end, where nothing moves but the curvature is left.

    A sweep ends with mu and Sigma at their maximum for its c: derivatives in these vanish after every sweep, and are
    measured against the terms that cancel in them.
    """
    given = case(context, problem)
    dense = given.dense
    for sweeps in (2, 10_000):
        solution = context.solve("reference", "x-gpc", problem, max_iterations=sweeps, gradients=False)
        q, local, c = distribution_of(solution), solution.local, np.asarray(solution.local["c"], dtype=np.float64)
        at = f"{min(solution.iterations or 0, sweeps)} sweeps"
        second = np.array(
            [
                np.einsum("m,mp,p", k, q.cov, k) + s + (k @ q.mean) ** 2
                for k, s in zip(dense.kappa, dense.cond_var, strict=True)
            ]
        )
        for order, name in ((1, "derivative_c"), (2, "second_derivative_c")):
            expected = np.array([on_circle(local_part(A), x, order) for A, x in zip(second, c, strict=True)])
            yield held(f"A.3, {name}", local[name], expected, f"Cauchy's integral, {at}", floor=0.01)
        derivative, steep = euclidean(given, q.mean, q.cov, c)
        size = float(np.abs(dense.kappa.T @ given.y).max()) / 2.0
        floor = float(np.abs(np.linalg.inv(q.cov)).max())
        by = f"complex steps, {at}"
        yield held("(16), ascent", local["derivative_inducing_mean"], derivative, by, floor=size)
        yield held("(15), ascent", local["derivative_inducing_cov"], steep, by, floor=floor)
        yield held(
            "A.3, natural, eta_1", local["natural_gradient_1"], derivative - 2.0 * steep @ q.mean, by, floor=size
        )
        yield held("A.3, natural, eta_2", local["natural_gradient_2"], steep, by, floor=floor)


def local_part(A: float) -> Callable[[Any], Any]:
    """The bound's terms in one c, for E[f^2] = A."""
    return lambda c: 0.5 * (c * c - A) * np.tanh(0.5 * c) / (2.0 * c) - np.log(np.cosh(0.5 * c))


def _local(given: Case) -> Iterable[Outcome]:
    """A.3 in c: at fast's c, beside it, near zero and at zero."""
    dense = given.dense
    mean, var = dense.moments(given.mu, given.root)
    second = mean * mean + var
    q = given.mu, given.Sigma, dense.kappa, dense.cond_var
    yield held(
        "A.3, local gradient", updates.local_gradient(given.c, *q), np.zeros(len(given.c)), "nothing moves", floor=0.1
    )
    zeros = np.zeros(len(given.c))
    yield held("A.3, local gradient", updates.local_gradient(zeros, *q), zeros, "c = 0 is stationary", floor=0.1)
    yield held("A.3, curvature", updates.local_curvature(zeros, *q), second / 48.0, "A_i/48 at c = 0")
    ramp = np.arange(len(given.c), dtype=np.float64)
    places: tuple[Array, ...] = (given.c, 1.4 * given.c + 0.5, 0.05 + 0.08 * ramp, 0.29 + 0.0 * ramp)
    for c in places:
        # Taylor's series serves below 0.3, and eight terms of it are exact to rounding
        series = bool(np.all(c < 0.3))
        limit, because = (
            (1e-11, "a series that leaves 1e-17; integrals on circles leave 1e-13") if series else (EXACT, "")
        )
        for order, name, function in (
            (1, "A.3, local gradient", updates.local_gradient),
            (2, "A.3, curvature", updates.local_curvature),
        ):
            expected = np.array([on_circle(local_part(A), at, order) for A, at in zip(second, c, strict=True)])
            by = f"Cauchy's integral, c = {c[0]:.3g}"
            yield held(name, function(c, *q), expected, by, floor=0.01, limit=limit, because=because)


@check(
    "print/x-gpc/measures",
    paper=PAPER,
    question="Seeding, measures and hold-out rule of section 5 follow the text, on fast's probabilities.",
    problems=("iris",),
)
def measures(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Error and negative log-likelihood of fast's predictions; k-means++ draw by draw."""
    small = context.problem(PROBLEM)
    probability = context.solve("fast", "x-gpc", small).probabilities
    assert probability is not None
    p = np.append(probability[:, 1], [0.5, 0.8, 0.9])
    # all but the first as predicted; one half counts as -1
    y = np.where((p > 0.5) == (np.arange(len(p)) > 0), 1.0, -1.0)
    prediction = experiments.prediction_metrics(p, y)
    wrong = [((one > 0.5) != (label > 0)) for one, label in zip(p, y, strict=True)]
    yield held("5.2, error", prediction.error, sum(wrong) / len(wrong), "counted one by one")
    scores = [np.log(one) if label > 0 else np.log1p(-one) for one, label in zip(p, y, strict=True)]
    yield held("5.2, nll", prediction.nll, -sum(scores) / len(scores), "summed one by one")
    scores = [score / step for step in (1, 2, 3) for score in scores]  # as training goes on
    late, early = sum(scores[-5:]) / 5, sum(scores[-10:-5]) / 5
    for threshold, stops in ((1.01 * abs(late - early), True), (0.99 * abs(late - early), False)):
        stop = experiments.converged_holdout(scores, threshold=threshold)
        yield held("5.2, hold-out", stop, (abs(late - early), stops), "two windows of five scores")
    yield held("5.2, hold-out", experiments.converged_holdout(scores[:9]).converged, False, "fewer than two windows")
    X = problem.X[::4]
    Z = experiments.kmeanspp_inducing_points(np.random.default_rng(5), X, 7)
    yield held("5, k-means++", Z, _seeds(np.random.default_rng(5), X, 7, 0), "seeding alone, same draws")
    for sweeps in (1, 50):
        Z = experiments.kmeanspp_inducing_points(np.random.default_rng(5), X, 4, sweeps)
        yield held("5, k-means++", Z, _seeds(np.random.default_rng(5), X, 4, sweeps), f"{sweeps} sweeps, same draws")
    for m, s in ((5, 3), (4, 7)):
        work = sum(m for _ in range(s) for _ in range(m)) + sum(m for _ in range(m) for _ in range(m))
        counts = work, m, sum(m for _ in range(m)) + m
        yield held("counts of 3.2 and 4.3", complexity.complexity_table(m, s), counts, "products counted")


def _seeds(rng: np.random.Generator, X: Array, m: int, sweeps: int) -> Array:
    """Arthur and Vassilvitskii (2007), then Lloyd, point by point."""
    chosen = [int(rng.integers(len(X)))]
    while len(chosen) < m:
        near = np.array([min(float(np.linalg.norm(x - X[k])) ** 2 for k in chosen) for x in X])
        chosen.append(int(rng.choice(len(X), p=near / near.sum())))
    Z = X[chosen].copy()
    for _ in range(sweeps):
        owner = np.array([int(np.argmin([np.linalg.norm(x - z) for z in Z])) for x in X])
        Z = np.array([X[owner == k].mean(axis=0) for k in range(m)])
    return Z
