"""Printed equations of izmailov2016 that no solver of `reference` needs, on what `fast` found.

Bounds, distributions and derivatives are evaluated on `fast`'s q(u) and ξ and must give back its latent moments and its
bound. What no fixed point knows is held against scipy's distributions, integrals and dense algebra.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad_vec
from scipy.special import expit, gammaln, kv
from scipy.stats import multivariate_normal, norm

from fast.kernel import kernels as fast_kernels
from fast.likelihood.quadratic_bounds import jj_coefficient
from reference.izmailov2016 import (
    bound,
    complexity,
    errata,
    experiments,
    jaakkola_jordan,
    kernels,
    model,
    sparse,
    taylor,
)
from reference.izmailov2016.model import Prior
from validation.checks.core import Compared, Context, Outcome, check
from validation.checks.print.printed import held, misprint
from validation.door.problem import Problem
from validation.door.solution import Solution

Array = NDArray[np.float64]

PAPER = "izmailov2016"
SPARSE = ("three-points-fitc",)
DENSE = "dense algebra"


class Given(NamedTuple):
    """The prior's matrices by the judge's own algebra."""

    y: Array  # (n,) -1 or +1
    K_ZZ: Array  # (m, m)
    K_XZ: Array  # (n, m)
    K_XX: Array  # (n, n) with noise
    kappa: Array  # (n, m)
    left: Array  # (n,) variances of f given u


def se(problem: Problem, A: Array, B: Array) -> Array:
    """The covariance, without noise."""
    return np.asarray(problem.variance[0] * np.exp(-0.5 * (((A[:, None] - B) / problem.lengthscales[0]) ** 2).sum(-1)))


def given(problem: Problem) -> Given:
    """Of the data and the inducing inputs; without these of the data alone."""
    X = problem.X
    Z = X if problem.Z is None else problem.Z[0]
    extra = problem.noise[0] if problem.Z is None else 0.0
    K_XX = se(problem, X, X) + problem.noise[0] * np.eye(len(X))
    K_ZZ, K_XZ = se(problem, Z, Z) + (problem.jitter[0] + extra) * np.eye(len(Z)), se(problem, X, Z)
    kappa = np.asarray(np.linalg.solve(K_ZZ, K_XZ.T).T)
    left = np.asarray(np.diag(K_XX) - (kappa * K_XZ).sum(1))
    return Given(np.asarray(2.0 * problem.y - 1.0), K_ZZ, K_XZ, K_XX, kappa, left)


def solved(context: Context, method: str, problem: Problem) -> tuple[Solution, Array, Array, Array, Array]:
    """Fast's answer, mean and covariance of its q(u), and its latent means and variances."""
    answer = context.solve("fast", method, problem)
    assert answer.inducing_mean is not None
    assert answer.inducing_cov is not None
    assert answer.latent_mean is not None
    assert answer.latent_cov is not None
    return answer, answer.inducing_mean[0], answer.inducing_cov[0], answer.latent_mean[:, 0], answer.latent_cov[:, 0, 0]


def divergence(mu: Array, Sigma: Array, K: Array) -> float:
    """KL(q(u)||p(u)) by scipy's entropy and density."""
    cross = multivariate_normal(cov=K).logpdf(mu) - 0.5 * np.trace(np.linalg.solve(K, Sigma))
    return float(-multivariate_normal(mu, Sigma).entropy() - cross)


def log_sigmoid(z: Array) -> Array:
    """log σ(z)."""
    return np.asarray(-np.logaddexp(0.0, -z))


def jj_value(xi: Array, K: Given) -> float:
    """(14): the largest bound over q(u), by the integral of prior and quadratics."""
    lam = np.tanh(0.5 * xi) / (4.0 * xi)
    inner = np.linalg.inv(K.K_ZZ) + 2.0 * (K.kappa.T * lam) @ K.kappa
    pull = 0.5 * K.kappa.T @ K.y
    each = log_sigmoid(xi) - 0.5 * xi + lam * xi**2 - lam * K.left
    log_det = np.linalg.slogdet(inner)[1] + np.linalg.slogdet(K.K_ZZ)[1]
    return float(each.sum() + 0.5 * pull @ np.linalg.solve(inner, pull) - 0.5 * log_det)


# -- the model ---------------------------------------------------------------------------------------------------------


@check(
    "print/vi-jj/model",
    paper=PAPER,
    question="(1) to (6) as printed agree with scipy's distributions and integrals, and (4) with fast's predictions.",
    problems=("three-points",),
)
def printed_model(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Section 2 at fast's mean of the latent values."""
    answer, mu, Sigma, _, _ = solved(context, "vi-jj", problem)
    K = given(problem)
    assert problem.X_test is not None
    assert answer.test_latent_mean is not None
    assert answer.test_latent_cov is not None
    gram = model.gram_matrix(lambda a, b: float(se(problem, a[None], b[None])[0, 0] + 0.1 * a[0]), problem.X)
    yield held("(1)", gram, K.K_XX - problem.noise[0] * np.eye(problem.n) + 0.1 * problem.X, DENSE)
    draws = model.sample_gp_prior(np.random.default_rng(3), mu, K.K_XX, 4)
    white = np.linalg.solve(np.linalg.cholesky(K.K_XX), (draws - mu).T).T
    yield held("draws of f", white, np.random.default_rng(3).standard_normal((4, problem.n)), DENSE)
    yield held("(2)", model.logistic_class_probability(mu), expit(mu), "scipy.special")
    density = float(multivariate_normal(cov=K.K_XX).logpdf(mu))
    yield held("N(f|0, K)", model.log_gaussian(mu, K.K_XX, "K_XX", "none"), density, "scipy.stats")
    joint = density + float(log_sigmoid(K.y * mu).sum())
    yield held("(3)", model.log_joint_gpc(mu, K.y, K.K_XX), joint, "scipy.stats")
    across = se(problem, problem.X_test, problem.X)
    diagonal = np.full(len(across), problem.variance[0] + problem.noise[0])
    observed = model.latent_predictive(mu, Sigma, K.K_XX, across, diagonal)
    yield held("(4), means", observed.latent_mean, answer.test_latent_mean[:, 0], "fast")
    yield held("(4), variances", observed.latent_var, answer.test_latent_cov[:, 0, 0], "fast")
    two = np.array([[30.0, 9.0], [9.0, 16.0]])
    root = np.linalg.cholesky(two)

    def inner(z: float) -> Array:
        # f_1 = root_11 z; over f_2 given that the trapezoidal rule
        at = root[1, 0] * z + root[1, 1] * np.linspace(-9.0, 9.0, 181)
        mass = np.sum(norm.pdf(np.linspace(-9.0, 9.0, 181)) * expit(-at)) * 0.1
        return np.asarray(norm.pdf(z) * expit(root[0, 0] * z) * mass)

    area = float(quad_vec(inner, -9.0, 9.0, epsabs=1e-13, epsrel=1e-11)[0])
    estimate = model.log_evidence(np.array([1.0, -1.0]), two)
    yield held("(6)", estimate, np.log(area), "an adaptive integral")
    lower = float(answer.log_evidence or 0.0) - model.log_evidence(K.y[:1], K.K_XX[:1, :1])
    yield Compared(lower, 0.0, "a bound on three labels is below log p of one", "fast", "reference, (6)", "difference")


def mixture(z: Array, nu: float) -> Array:
    """The Matérn correlation as a mean of exp(-z²/(4t)) over t ~ Gamma(ν), by the trapezoidal rule in log t."""
    log_t = np.log(nu) + np.linspace(-30.0, 8.0, 8001) / np.sqrt(min(nu, 4.0)) / max(1.0, np.sqrt(nu) / 4.0)
    log_mass = nu * log_t - np.exp(log_t) - gammaln(nu)
    return np.asarray(np.exp(log_mass - z[:, None] ** 2 / (4.0 * np.exp(log_t))).sum(1) * (log_t[1] - log_t[0]))


@check(
    "print/vi-jj/kernels",
    paper=PAPER,
    question="The covariances of section 2.3 as printed are those of fast and of their definitions.",
    problems=("three-points",),
)
def printed_kernels(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Squared exponential and Matérn, also where the Bessel function overflows; the misprint of the latter."""
    X, Z = problem.X, np.array([[0.3], [-0.6], [1.9]])
    own = kernels.kernel_squared_exponential(X, Z, 1.3, 0.8)
    fast = fast_kernels.se_ard(X, Z, 1.69, np.array([0.8 / np.sqrt(2.0)]))
    yield held("squared exponential", own, fast, "fast")
    distance = np.abs(X - Z.T)
    for nu in (0.5, 1.3, 1.5, 2.5):
        own = kernels.kernel_matern(X, Z, nu, 0.7)
        yield held(f"Matérn, {nu:g}", own, fast_kernels.matern(X, Z, 1.0, np.array([0.7]), nu), "fast")
    yield held("Matérn at one point", np.diag(kernels.kernel_matern(X, X, 1.3, 0.7)), np.ones(len(X)), "one")
    z = np.array([0.0, 9e-4, 0.5, 6.0, 40.0])
    for nu in (1.3, 130.0, 300.0):
        expected = mixture(z[1:], nu)
        result = kernels.matern_profile(z, nu)
        yield held(f"Matérn by a mixture, {nu:g}", result.value[1:], expected, "a trapezoidal rule")
        derivative = mixture(z[2:], nu - 1.0) * nu / (nu - 1.0) if nu > 2.0 else result.decline[2:]
        yield held(f"derivative by a mixture, {nu:g}", result.decline[2:], derivative, "a trapezoidal rule")
    small = kernels.matern_profile(z[1:2], 130.0)
    lost = (1.0 - small.value) * 4.0 * 129.0 / z[1] ** 2
    yield held("Matérn near zero", lost, [1.0], "its series", limit=1e-3,
                because="1 - M = z²/(4(ν-1)) is 2e-9, of which logarithms of size 500 leave four digits")  # fmt: skip
    printed = errata.kernel_matern_as_printed(X, Z, 1.3, 0.7)
    s = np.sqrt(2.6) * distance
    read = (s / 0.7) ** 1.3 * kv(1.3, s * 0.7) * 2.0**-0.3 / np.exp(gammaln(1.3))
    yield from misprint("Matérn", printed, read, kernels.kernel_matern(X, Z, 1.3, 0.7), 0.1)
    yield held("Matérn as printed at one point", np.diag(errata.kernel_matern_as_printed(X, X, 1.3, 0.7)),
                np.ones(len(X)), "one")  # fmt: skip
    with_noise = experiments.kernel_se_with_noise(X, None, 1.3, 0.8, 0.4)
    own = fast_kernels.se_ard(X, X, 1.69, np.array([0.8 / np.sqrt(2.0)])) + 0.4 * np.eye(len(X))
    yield held("kernel with noise", with_noise, own, "fast")
    yield held("kernel across", experiments.kernel_se_with_noise(X, Z, 1.3, 0.8, 0.4), fast, "fast")


# -- inducing inputs ---------------------------------------------------------------------------------------------------


@check(
    "print/svi/inducing",
    paper=PAPER,
    question="(7) to (10) and the terms of (11), evaluated on fast's q(u), are its latent moments and its bound.",
    problems=SPARSE,
)
def printed_inducing(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Joint distributions, the family, its marginals, and the bound as a mean over points."""
    answer, mu, Sigma, mean, var = solved(context, "svi", problem)
    K = given(problem)
    matrices = K.K_ZZ, K.K_XZ, K.K_XX
    n, m = problem.n, len(mu)
    u, f = mu + np.array([0.4, -0.3]), mean + np.array([0.2, -0.5, 0.3])
    joint = np.block([[K.K_XX, K.K_XZ], [K.K_XZ.T, K.K_ZZ]])
    yield held("joint prior", sparse.joint_prior_covariance(*matrices), joint, DENSE)
    log_joint = float(multivariate_normal(cov=joint).logpdf(np.append(f, u)) + log_sigmoid(K.y * f).sum())
    yield held("(7)", sparse.log_joint_augmented(f, u, K.y, *matrices), log_joint, "scipy.stats")
    prior = float(multivariate_normal(cov=K.K_ZZ).logpdf(u))
    yield held("prior of u", sparse.log_prior_inducing(u, K.K_ZZ), prior, "scipy.stats")
    distribution = sparse.conditional_f_given_u(u, *matrices)
    tilde = np.linalg.inv(np.linalg.inv(joint)[:n, :n])
    yield held("(8), means", distribution.mean, K.kappa @ u, DENSE)
    yield held("(8), covariances", distribution.cov, tilde, "the inverse of a block of the precision")
    density = float(multivariate_normal(K.kappa @ u, tilde).logpdf(f) + multivariate_normal(mu, Sigma).logpdf(u))
    yield held("(9)", sparse.variational_family(f, u, mu, Sigma, *matrices), density, "scipy.stats")
    q_f = sparse.marginal_q_f(mu, Sigma, *matrices)
    cov = tilde + K.kappa @ Sigma @ K.kappa.T
    yield held("q(f), means", q_f.mean, mean, "fast")
    yield held("q(f), variances", np.diag(q_f.cov), var, "fast")
    yield held("q(f), covariances", q_f.cov, cov, DENSE)
    kl = divergence(mu, Sigma, K.K_ZZ)
    yield held("divergence of both", bound.kl_joint(mu, Sigma, *matrices), kl, "scipy.stats, of u alone")
    three = bound.gauss_hermite_expectation(mean, var, K.y, 3)
    sd = np.sqrt(3.0 * var)
    by_hand = (4.0 * log_sigmoid(K.y * mean) + log_sigmoid(K.y * (mean - sd)) + log_sigmoid(K.y * (mean + sd))) / 6.0
    yield held("Gauss-Hermite, 3 nodes", three, by_hand, "the rule by hand")
    total = float(np.sum(bound.gauss_hermite_expectation(mean, var, K.y, 120))) - kl
    yield held("(11) by Gauss-Hermite", total, answer.log_evidence, "fast", limit=1e-6,
                because="120 nodes: poles at distance π of the axis leave exp(-2π √120/S), S below 2.5")  # fmt: skip
    # a product rule under q(u, f): of the quadratic parts, it has the mean exactly
    whole = np.block([[cov, K.kappa @ Sigma], [Sigma @ K.kappa.T, Sigma]])
    root, rule = np.linalg.cholesky(whole), ((-np.sqrt(3.0), 1.0 / 6.0), (0.0, 2.0 / 3.0), (np.sqrt(3.0), 1.0 / 6.0))
    places = list(product(rule, repeat=n + m))
    points = np.append(mean, mu) + np.array([[at for at, _ in place] for place in places]) @ root.T
    weights = np.array([np.prod([w for _, w in place]) for place in places])
    ours = [sparse.log_joint_augmented(x[:n], x[n:], K.y, *matrices) for x in points]
    theirs = [sparse.variational_family(x[:n], x[n:], mu, Sigma, *matrices) for x in points]
    result = sparse.elbo_generic(np.array(ours), np.array(theirs), weights)
    expected = float(weights @ log_sigmoid(K.y * points[:, :n]).sum(1)) - kl
    yield held("bound of any q", result, expected, "the same rule and scipy's divergence")


# -- local quadratics --------------------------------------------------------------------------------------------------


@check(
    "print/vi-jj/bound",
    paper=PAPER,
    question=(
        "Section 4.1 and algorithm 1, evaluated on fast's q(u) and ξ, give its bound, and their misprints do not."
    ),
    problems=SPARSE,
)
def printed_bound(context: Context, problem: Problem) -> Iterable[Outcome]:
    """The quadratic bound, λ, and both stages of algorithm 1 as printed."""
    answer, mu, Sigma, mean, var = solved(context, "vi-jj", problem)
    K, xi = given(problem), answer.local["xi"]
    assert answer.log_evidence is not None
    t = K.y * mean
    lam = np.tanh(0.5 * xi) / (4.0 * xi)
    result = jaakkola_jordan.jaakkola_jordan_bound(t, xi)
    yield held("λ of the bound", result.lam, jj_coefficient(xi), "fast")
    value = float(np.sum(result.value - result.lam * var)) - divergence(mu, Sigma, K.K_ZZ)
    yield held("mean of the bound, less the divergence", value, answer.log_evidence, "fast")
    yield held("(14)", jj_value(xi, K), answer.log_evidence, "fast")
    matrices = K.K_ZZ, K.K_XZ, np.diag(K.K_XX)
    value = jaakkola_jordan.jj_bound(mu, Sigma, xi, K.y, *matrices)
    yield held("bound of q and ξ", value, answer.log_evidence, "fast")
    away = mu + np.array([0.3, -0.2])
    observed = K.kappa @ away
    terms = log_sigmoid(xi) + 0.5 * (K.y * observed - xi) - lam * (observed**2 + var - xi**2)
    value = jaakkola_jordan.jj_bound(away, Sigma, xi, K.y, *matrices)
    yield held("bound elsewhere", value, terms.sum() - divergence(away, Sigma, K.K_ZZ), DENSE)
    for name, where in (("ξ", xi), ("-ξ", -xi)):
        met = jaakkola_jordan.jaakkola_jordan_bound(where, xi).value
        yield held(f"bound at {name}", met, log_sigmoid(where), "log σ")
    grid = np.linspace(-12.0, 12.0, 97)
    above = max(
        float(np.max(jaakkola_jordan.jaakkola_jordan_bound(grid, np.full(97, x)).value - log_sigmoid(grid))) for x in xi
    )
    yield Compared(above, 1e-14, "a lower bound: above log σ by rounding only", "reference", "log σ", "difference")
    printed = errata.jaakkola_jordan_bound_as_printed(0.5 * xi, xi)
    wrong = np.tanh(xi) / (4.0 * xi)
    read = log_sigmoid(xi) - 0.25 * xi + 0.75 * wrong * xi**2
    right = jaakkola_jordan.jaakkola_jordan_bound(0.5 * xi, xi).value
    yield from misprint("bound", printed.value, read, right, 0.1)
    yield from misprint("λ of the bound", printed.lam, wrong, lam, 0.1)
    over = float(np.min(log_sigmoid(0.5 * xi) - printed.value))
    yield Compared(over, -0.01, "with λ as printed the parabola lies above log σ between -ξ and ξ",
                   "log σ", "reference, bound as printed", "difference")  # fmt: skip
    yield from misprint("Λ", errata.lambda_matrix_as_printed(xi), wrong, jj_coefficient(xi), 0.1)
    # first stage: the variance squared
    rounds = 2
    printed_q = errata.vi_jj_stage_one_as_printed(mu, Sigma, K.y, *matrices, rounds)
    own_mu, own_Sigma, own_xi = mu, Sigma, xi
    for _ in range(rounds):
        spread = K.left + np.einsum("nm,mk,nk->n", K.kappa, own_Sigma, K.kappa)
        own_xi = np.hypot(K.kappa @ own_mu, spread)
        bent = np.tanh(0.5 * own_xi) / (4.0 * own_xi)
        own_Sigma = np.linalg.inv(np.linalg.inv(K.K_ZZ) + 2.0 * (K.kappa.T * bent) @ K.kappa)
        own_mu = 0.5 * own_Sigma @ K.kappa.T @ K.y
    for name, part, ours, best in (("ξ", printed_q.xi, own_xi, xi), ("μ", printed_q.inducing_mean, own_mu, mu),
                                   ("Σ", printed_q.inducing_cov, own_Sigma, Sigma)):  # fmt: skip
        yield from misprint(f"first stage, {name}", part, ours, best, 0.01)
    # second stage: the bound made small
    assert problem.Z is not None
    variance, noise = float(problem.variance[0]), float(problem.noise[0])
    start = Prior(variance, problem.lengthscales[0], noise, float(problem.jitter[0]), problem.Z[0])
    there = errata.vi_jj_stage_two_as_printed(problem.X, K.y, start, xi, ("variance", "lengthscales"), 6)
    moved = problem.replace(
        variance=np.array([there.hyper.variance]), lengthscales=np.atleast_2d(there.hyper.lengthscales)
    )
    yield held("second stage as printed, its bound", there.bound, jj_value(xi, given(moved)), DENSE)
    yield held("second stage as printed, ξ", there.xi, xi, "fast")
    yield Compared(there.bound - answer.log_evidence, -0.1, "as printed, the bound is made smaller",
                   "reference, second stage as printed", "fast, before", "difference")  # fmt: skip


@check(
    "print/vi-taylor/bound",
    paper=PAPER,
    question="(16) and section 4.2, evaluated on fast's q(u) and ξ, give its objective, and ξ = m is no optimum.",
    problems=SPARSE,
)
def printed_taylor(context: Context, problem: Problem) -> Iterable[Outcome]:
    """The expansion, the bound with it, and its derivative in ξ."""
    answer, mu, Sigma, mean, var = solved(context, "vi-taylor", problem)
    K, xi = given(problem), answer.local["xi"]
    matrices = K.K_ZZ, K.K_XZ, np.diag(K.K_XX)
    f, away = mean + np.array([0.3, -0.4, 0.2]), mean + np.array([0.4, -0.2, 0.5])
    p = expit(K.y * away)
    gap = f - away
    value = np.log(p) + K.y * (1.0 - p) * gap - 0.5 * p * (1.0 - p) * gap**2
    yield held("(16)", taylor.taylor_log_likelihood(f, away, K.y), value, "scipy.special")
    z = K.y * away
    ratio = norm.pdf(z) / norm.cdf(z)
    value = norm.logcdf(z) + K.y * ratio * gap - 0.5 * ratio * (ratio + z) * gap**2
    yield held("(16), probit", taylor.taylor_log_likelihood(f, away, K.y, "probit"), value, "scipy.stats")
    yield held("bound at the fixed point", taylor.taylor_bound(mu, Sigma, xi, K.y, *matrices), answer.log_evidence,
                "fast")  # fmt: skip

    def objective(x: Array, likelihood: str) -> float:
        # a mean of quadratics is their value at the mean less the curvature's share of the variance
        at = taylor.expansion(x, K.y, likelihood)
        data = at.value + at.phi * (mean - x) - at.psi * ((mean - x) ** 2 + var)
        return float(data.sum()) - divergence(mu, Sigma, K.K_ZZ)

    for likelihood in ("logit", "probit"):
        value = taylor.taylor_bound(mu, Sigma, away, K.y, *matrices, likelihood)
        yield held(f"bound elsewhere, {likelihood}", value, objective(away, likelihood), DENSE)
    step, by_differences = 1e-3, []
    for i in range(problem.n):
        to = step * np.eye(problem.n)[i]
        near, wide = (
            (objective(away + h * to, "logit") - objective(away - h * to, "logit")) / (2.0 * h * step)
            for h in (1.0, 2.0)
        )
        by_differences.append((4.0 * near - wide) / 3.0)
    derivative = taylor.taylor_xi_derivative(away, mean, var, K.y)
    yield held("derivative in ξ", derivative, by_differences, "differences of the bound", limit=1e-7,
                because="steps of 1e-3 and 2e-3, extrapolated, leave 1e-12; rounding 1e-12 over the step")  # fmt: skip
    largest = float(np.max(np.abs(taylor.taylor_xi_derivative(mean, mean, var, K.y))))
    yield Compared(-largest, -1e-2, "the paper sets it to zero where ξ = m, and it is not", "reference", "section 4.2",
                   "minus the largest derivative in ξ at ξ = m")  # fmt: skip


# -- settings ----------------------------------------------------------------------------------------------------------


@check(
    "print/svi/settings",
    paper=PAPER,
    question="Settings and preparations of section 5.1 are those of the text.",
    problems=("-",),
)
def printed_settings(context: Context, problem: None) -> Iterable[Outcome]:
    """Rates, batches, clusters, splits, the schedule and what each method searches."""
    yield held("schedule of algorithm 1", experiments.default_schedule(), [3, 5], "section 5.1")
    asked = ("German", 800), ("svmguide", 30), ("other", 5000), ("svmguide1", 3000), ("magic", 20), ("a", 1260)
    sizes = [experiments.batch_size_rule(*each) for each in asked]
    yield held("batch sizes", sizes, [50, 30, 50, 50, 1, 13], "section 5.1")

    def run(rate: float) -> Array:
        # converges as (1 - rate)^k, except that it diverges beyond 0.55 and one rate stops early
        steps = np.arange(1, 40)
        if rate > 0.55:
            return np.full(39, np.nan)
        return -(np.abs(1.0 - 2.1 * rate) ** steps) - (1.0 if rate > 0.45 else 0.0)

    yield held("learning rate", experiments.select_learning_rate(run, 1e-3), 0.4, "runs by hand")
    loose = experiments.select_learning_rate(run, 10.0, 0.02, 4)
    yield held("learning rate, all at once", loose, 0.02, "the smallest of equals")
    rng = np.random.default_rng(11)
    centres = np.array([[0.0, 0.0], [5.0, 1.0], [-3.0, 6.0]])
    X = np.concatenate([at + 0.3 * rng.standard_normal((6, 2)) for at in centres])
    means = X.reshape(3, 6, 2).mean(1)
    best = min(
        (experiments.kmeans_inducing_points(np.random.default_rng(seed), X, 3) for seed in range(6)),
        key=lambda Z: float(((X[:, None] - Z) ** 2).sum(-1).min(1).sum()),
    )
    yield held("clusters", best[np.argsort(best[:, 0])], means[np.argsort(means[:, 0])], "means of the groups")
    one = experiments.kmeans_inducing_points(np.random.default_rng(0), X, 3, 1)
    first = np.unique(X, axis=0)[np.random.default_rng(0).permutation(18)[:3]]
    owner = ((X[:, None] - first) ** 2).sum(-1).argmin(1)
    yield held("clusters, one sweep", one, [X[owner == p].mean(0) for p in range(3)], "one sweep by hand")
    X[:, 1] = 2.0
    y = np.where(np.arange(18) % 3 == 0, 1.0, -1.0)
    order = np.random.default_rng(5).permutation(18)
    result = experiments.prepare_dataset(X, y, 5)
    kept, apart = X[order[:14]], X[order[14:]]
    mean, sd = kept[:, 0].mean(), kept[:, 0].std()
    yield held("training part", result.X, np.stack([(kept[:, 0] - mean) / sd, np.zeros(14)], 1), "by hand")
    yield held("test part", result.X_test, np.stack([(apart[:, 0] - mean) / sd, np.zeros(4)], 1), "by hand")
    labels = np.append(result.y_sign, result.y_test)
    yield held("labels of both", labels, y[order], "the same order")
    few = experiments.prepare_dataset(X[:2], y[:2], 5)
    yield held("split of two", [len(few.X), len(few.X_test)], [1, 1], "one of each")
    whole = experiments.prepare_dataset(X, y, 5, apart, y[order[14:]])
    mean, sd = X[:, 0].mean(), X[:, 0].std()
    yield held("given test part", whole.X_test[:, 0], (apart[:, 0] - mean) / sd, "by hand")
    yield held("whole training part", whole.X[:, 0], (X[:, 0] - mean) / sd, "by hand")
    n, m = 11, 5
    work = sum(m for _ in range(n) for _ in range(m)) + sum(m for _ in range(m) for _ in range(m))
    q = m + len(np.tril_indices(m)[0])
    for method, numbers in {"svi": q, "vi-jj": 0, "vi-taylor": 0, "vi-jj-hybrid": n, "vi-jj-full": n}.items():
        yield held(f"counts of {method}", complexity.complexity_table(method, n, m), (work, numbers), "counted")
    full = sum(n for _ in range(n) for _ in range(n)), 0
    yield held("counts without inducing inputs", complexity.complexity_table("full", n, m), full, "counted")
