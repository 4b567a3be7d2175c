"""Energies of villacampa2020 over a free q: definitions in dense algebra, quadrature on grids, finite differences."""

from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

import sparse_models
from fast.core.results import ScalarMoments
from fast.likelihood.power import powered_labels
from fast.methods import apep, bb_alpha
from fast.sparse_classes.alpha_energies import Energy
from fast.sparse_classes.alpha_joint import (
    Coordinates,
    JointSteps,
    cholesky_of,
    distribution_of,
    joint_gradient,
    start_at_prior,
    whitened,
)
from fast.sparse_classes.alpha_runs import EnergyRun
from fast.sparse_classes.alpha_search import optimise
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.inference import inducing_classes
from fast.sparse_classes.projections import ClassDistribution
from fast.sparse_classes.training import ClassTraining, Settings, settings_of, train
from in_every_run import others_slow
from sparse_models import dense, log_normaliser, log_power
from values_given import classes, fitted

C, M, D, N = 3, 3, 2, 7
EPSILON = 0.1
KINDS = ("apep", "arpep", "rpapep")


problem = partial(sparse_models.problem, n=N, m=M, epsilon=EPSILON)


def dense_energy(kind, p, mean, cov, alpha, rows=None):
    """The three objectives as they are printed, and the variational bound at alpha = 0."""
    K, upsilon, s = dense(p)
    n = p["X"].shape[0]
    rows = range(n) if rows is None else rows
    T_p, T = np.linalg.inv(K), np.linalg.inv(cov)
    t = (T @ mean[:, :, None])[:, :, 0]
    zero = np.zeros_like(t)
    if alpha == 0.0 or kind == "arpep":
        trace = np.einsum("kij,kji->", T_p, cov) + np.einsum("ki,kij,kj->", mean, T_p, mean) - mean.size
        own = -0.5 * (trace + np.linalg.slogdet(K)[1].sum() - np.linalg.slogdet(cov)[1].sum())
        T_c, t_c = T, t
    elif kind == "apep":
        T_c, t_c = (1.0 - alpha / n) * T + (alpha / n) * T_p, (1.0 - alpha / n) * t
        own = (
            log_normaliser(T, t)
            - log_normaliser(T_p, zero)
            + (n / alpha) * (log_normaliser(T_c, t_c) - log_normaliser(T, t))
        )
    else:
        left = 1.0 - alpha / (n + 1)
        T_c, t_c = left * T, left * t
        observed = log_normaliser(T_c + alpha * T_p, t_c) - alpha * log_normaliser(T_p, zero) - log_normaliser(T, t)
        own = log_normaliser(T, t) + observed / alpha + (n / alpha) * (log_normaliser(T_c, t_c) - log_normaliser(T, t))
    V = np.linalg.inv(T_c)
    m_c = (V @ t_c[:, :, None])[:, :, 0]
    total = 0.0
    for i in rows:
        e = np.einsum("km,km->k", upsilon[:, i], m_c)
        v = s[i] + np.einsum("km,kmp,kp->k", upsilon[:, i], V, upsilon[:, i])
        total += log_power(e, v, p["y"][i], alpha, p["epsilon"])
    return own + total * n / len(rows)


def some_q(p, seed=5):
    """Mean and covariance of u, about as wide as the prior."""
    rng = np.random.default_rng(seed)
    K = dense(p)[0]
    half_solved = np.linalg.cholesky(K) @ (0.7 * np.eye(K.shape[1]) + 0.2 * rng.standard_normal(K.shape))
    return rng.standard_normal(K.shape[:2]), half_solved @ half_solved.transpose(0, 2, 1)


def run_at(p, kind, alpha, mean, cov):
    """A run whose q has these moments."""
    data = ClassData(p["X"], p["y"], p["n_classes"])
    points = inducing_classes(data, classes(apep.EnergyOptions, **p)[1])
    run = EnergyRun(data, points, Energy(kind, alpha, data.n), p["epsilon"])
    L = np.array([points.chol_K[kind] for kind in points.kind])
    precision = L.transpose(0, 2, 1) @ np.linalg.inv(cov) @ L
    run._set(ClassDistribution.of(precision, (precision @ np.linalg.solve(L, mean[:, :, None]))[:, :, 0]))
    return run, L


@pytest.mark.verifies("villacampa2020", "u27-power-expectation", route="quadrature and finite differences")
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_powered_labels_are_the_expectation_and_its_derivatives(alpha):
    rng = np.random.default_rng(1)
    mean, var, y = rng.standard_normal((4, C)), rng.uniform(0.4, 2.0, (4, C)), np.array([0, 2, 1, 1])
    result = powered_labels(y, ScalarMoments(mean, var), alpha, EPSILON)
    h = 1e-4
    for i in range(4):
        value = log_power(mean[i], var[i], y[i], alpha, EPSILON)
        # both rules stand at 1e-12
        np.testing.assert_allclose(result.value[i], value, rtol=1e-11, atol=1e-12)
        for k in range(C):
            e = np.eye(C)[k] * h
            up, down = (log_power(mean[i] + w * e, var[i], y[i], alpha, EPSILON) for w in (1, -1))
            wide, tight = (log_power(mean[i], var[i] + w * e, y[i], alpha, EPSILON) for w in (1, -1))
            # central differences: h^2 = 1e-8 times third derivatives; second ones lose 1e-14 / h^2 = 1e-6
            np.testing.assert_allclose(result.derivative[i, k], (up - down) / (2 * h), rtol=1e-6, atol=1e-8)
            np.testing.assert_allclose(result.by_variance[i, k], (wide - tight) / (2 * h), rtol=1e-6, atol=1e-8)
            np.testing.assert_allclose(result.curvature[i, k], (up - 2 * value + down) / h**2, rtol=1e-5, atol=3e-6)


@pytest.mark.verifies("villacampa2020", "u21-apep-cavity", route="definition: powers of densities")
@pytest.mark.verifies("villacampa2020", "u24-rpapep-free-gaussian", route="definition: powers of densities")
@pytest.mark.parametrize("kind", KINDS)
def test_the_distributions_are_the_powers_of_densities_that_the_methods_name(kind):
    rng = np.random.default_rng(2)
    alpha, n = 0.7, 4
    root = rng.standard_normal((C, M, M))
    q = ClassDistribution.of(root @ root.transpose(0, 2, 1) + np.eye(M), rng.standard_normal((C, M)))
    distributions = Energy(kind, alpha, n).distributions(q)
    v = rng.standard_normal((40, M))

    def log_density(mean, cov):
        away = v - mean
        return -0.5 * np.einsum("di,ij,dj->d", away, np.linalg.inv(cov), away)

    for k in range(C):
        own = log_density(np.linalg.solve(q.precision[k], q.shift[k]), np.linalg.inv(q.precision[k]))
        prior = -0.5 * (v**2).sum(axis=1)
        share = {"apep": alpha / n, "arpep": 0.0, "rpapep": alpha / (n + 1)}[kind]
        wanted = (1.0 - share) * own + (share * prior if kind == "apep" else 0.0)
        result = log_density(distributions.data.weights[k], distributions.data.covariance(k))
        # densities up to a factor: differences from the first draw; logarithms of size 50 to fourteen digits
        np.testing.assert_allclose(result - result[0], wanted - wanted[0], rtol=0.0, atol=1e-11)
        if kind == "rpapep":
            observed = log_density(distributions.prior.weights[k], distributions.prior.covariance(k))
            wanted = wanted + alpha * prior
            np.testing.assert_allclose(observed - observed[0], wanted - wanted[0], rtol=0.0, atol=1e-11)
        else:
            assert distributions.prior is None


@pytest.mark.verifies("villacampa2020", "9", route="the printed objective with dense matrices")
@pytest.mark.verifies("villacampa2020", "10", route="the printed objective with dense matrices")
@pytest.mark.verifies("villacampa2020", "u22-apep-objective", route="the printed objective with dense matrices")
@pytest.mark.parametrize("kind", KINDS)
def test_the_energies_are_the_printed_objectives_and_continuous_at_zero(kind):
    p = problem()
    mean, cov = some_q(p)
    for alpha in (0.05, 0.5, 1.0):
        # the printed form subtracts numbers N/alpha times larger: 1e-15 * 1e3 * condition of K
        wanted = dense_energy(kind, p, mean, cov, alpha)
        np.testing.assert_allclose(run_at(p, kind, alpha, mean, cov)[0].here.value, wanted, rtol=1e-10, atol=0.0)
    bound = dense_energy(kind, p, mean, cov, 0.0)
    near = [run_at(p, kind, alpha, mean, cov)[0].here for alpha in (0.0, 1e-300, 1e-12, 1e-8)]
    np.testing.assert_allclose(near[0].value, bound, rtol=1e-11, atol=0.0)
    np.testing.assert_allclose(near[1].value, near[0].value, rtol=1e-13, atol=0.0)  # rounding
    np.testing.assert_allclose(near[2].value, near[0].value, rtol=1e-10, atol=0.0)  # derivative in alpha below 100
    # the derivative at 0 from alpha = 1e-8 is that of the printed form: second differences of size alpha
    derivative = (dense_energy(kind, p, mean, cov, 2e-3) - dense_energy(kind, p, mean, cov, 1e-3)) / 1e-3
    far = dense_energy(kind, p, mean, cov, 4e-3) - dense_energy(kind, p, mean, cov, 3e-3)
    at_zero = derivative - 0.75 * (far / 1e-3 - derivative)  # extrapolated: error 1e-6, rounding 1e-10 / 1e-3
    np.testing.assert_allclose((near[3].value - near[0].value) / 1e-8, at_zero, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(near[2].change.precision, near[0].change.precision, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(near[2].change.shift, near[0].change.shift, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_the_direction_is_the_derivative_in_moments_of_q(kind, alpha):
    p = problem(1)
    mean, cov = some_q(p)
    run, L = run_at(p, kind, alpha, mean, cov)
    change, m = run.here.change, np.linalg.solve(L, mean[:, :, None])[:, :, 0]
    rng = np.random.default_rng(8)
    h = 1e-5
    for _ in range(3):
        dm, dS = rng.standard_normal((C, M)), rng.standard_normal((C, M, M))
        dS = 0.1 * (dS + dS.transpose(0, 2, 1))
        second = dS + np.einsum("ki,kj->kij", m, dm) + np.einsum("ki,kj->kij", dm, m)
        wanted = float(np.sum(change.shift * dm) - 0.5 * np.sum(change.precision * second))
        by_u, cov_u = (L @ dm[:, :, None])[:, :, 0], L @ dS @ L.transpose(0, 2, 1)
        up, down = (dense_energy(kind, p, mean + w * h * by_u, cov + w * h * cov_u, alpha) for w in (1, -1))
        # central differences: h^2 = 1e-10 times third derivatives, rounding 1e-13 / h
        np.testing.assert_allclose((up - down) / (2 * h), wanted, rtol=1e-6, atol=1e-6)
    # the residual, in units of q itself
    S = np.array([run.q.covariance(k) for k in range(C)])
    free = change.shift - (change.precision @ m[:, :, None])[:, :, 0]
    moved = [np.trace(S[k] @ change.precision[k] @ S[k] @ change.precision[k]) for k in range(C)]
    wanted = np.sqrt(max(*moved, *np.einsum("ki,kij,kj->k", free, S, free)))
    np.testing.assert_allclose(change.residual, wanted, rtol=1e-9, atol=0.0)  # a sum of a few terms


@pytest.mark.parametrize(
    ("kind", "alpha", "shared"), [("apep", 0.6, False), ("arpep", 0.0, True), ("rpapep", 0.6, False)]
)
def test_gradients_in_the_priors_are_differences_with_mean_and_covariance_held(kind, alpha, shared):
    p = problem(2, shared=shared)
    mean, cov = some_q(p)
    run, _ = run_at(p, kind, alpha, mean, cov)
    result = run.gradient()._asdict()
    _compare_derivatives(result, p, lambda changed: dense_energy(kind, changed, mean, cov, alpha))


def _compare_derivatives(actual, p, objective, names=("variance", "lengthscales", "noise", "Z"), tolerance=2e-6):
    h = 1e-5
    for name in names:
        for place in np.ndindex(actual[name].shape):
            if p["shared"] and place[0]:
                continue
            values = []
            for sign in (1, -1):
                moved = p[name].copy()
                moved[(slice(None), *place[1:]) if p["shared"] else place] += sign * h
                values.append(objective(p | {name: moved}))
            # central differences: h^2 = 1e-10 times third derivatives up to 1e3, rounding 1e-12 / h
            derivative = (values[0] - values[1]) / (2 * h)
            np.testing.assert_allclose(actual[name][place], derivative, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "alpha", "batch"), [("apep", 0.5, [0, 2, 5]), ("arpep", 1.0, None), ("rpapep", 0.5, [1, 4])]
)
def test_the_joint_gradient_is_the_difference_in_every_coordinate(kind, alpha, batch):
    p = problem(3, n=6)
    mean, cov = some_q(p)
    run, _ = run_at(p, kind, alpha, mean, cov)
    factor = np.linalg.cholesky(cov)
    index = np.arange(M)
    factor[:, index, index] = np.log(factor[:, index, index])
    at = Coordinates(mean, factor)
    white = whitened(run.points, at)
    distribution = distribution_of(white)
    np.testing.assert_allclose(distribution.precision, run.q.precision, rtol=1e-9, atol=1e-10)  # condition of K
    np.testing.assert_allclose(distribution.weights, run.q.weights, rtol=1e-9, atol=1e-10)
    rows = None if batch is None else np.array(batch)
    gradients = joint_gradient(run, white, rows, priors=True)

    def value(p, at):
        R = cholesky_of(at)
        return dense_energy(kind, p, at.mean, R @ R.transpose(0, 2, 1), alpha, rows)

    h = 1e-5
    for name, derivative in (("mean", gradients.by_mean), ("factor", gradients.by_factor)):
        for place in np.ndindex(derivative.shape):
            if name == "factor" and place[2] > place[1]:
                continue
            values = []
            for sign in (1, -1):
                moved = getattr(at, name).copy()
                moved[place] += sign * h
                values.append(value(p, at._replace(**{name: moved})))
            # as for the other gradients
            np.testing.assert_allclose(derivative[place], (values[0] - values[1]) / (2 * h), rtol=2e-6, atol=2e-6)
    _compare_derivatives(gradients.by_prior._asdict(), p, lambda changed: value(changed, at))


def test_the_start_of_adam_is_the_prior():
    p = problem()
    run, L = run_at(p, "apep", 0.5, *some_q(p))
    at = start_at_prior(run.points)
    np.testing.assert_allclose(cholesky_of(at), L, rtol=1e-14, atol=0.0)  # a logarithm and back
    np.testing.assert_allclose(whitened(run.points, at).factor, np.tile(np.eye(M), (C, 1, 1)), atol=1e-14)


def _grid(p, posterior):
    """A fine grid over the inducing values of two classes with one inducing point each, and log q and log p there."""
    mean, cov = posterior.inducing_mean[:, 0], posterior.inducing_cov[:, 0, 0]
    K, upsilon, s = dense(p)
    axes = [mean[k] + 9.0 * np.sqrt(cov[k]) * np.linspace(-1.0, 1.0, 361) for k in range(2)]
    u = np.stack(np.meshgrid(*axes, indexing="ij"))
    log_q = sum(norm.logpdf(u[k], mean[k], np.sqrt(cov[k])) for k in range(2))
    log_p = sum(norm.logpdf(u[k], 0.0, np.sqrt(K[k, 0, 0])) for k in range(2))
    cell = np.prod([axis[1] - axis[0] for axis in axes])

    def powered(i, alpha):
        """E[p(y_i|f)^alpha | u], f independent given u."""
        label, other = p["y"][i], 1 - p["y"][i]
        gap = upsilon[label, i, 0] * u[label] - upsilon[other, i, 0] * u[other]
        P = norm.cdf(gap / np.sqrt(s[i].sum()))
        low, high = p["epsilon"] / 2, 1.0 - p["epsilon"] / 2
        return high**alpha * P + low**alpha * (1.0 - P)

    return u, log_q, log_p, cell, powered


def _moments(u, density):
    """Means and second moments of both inducing values."""
    weight = density / density.sum()
    return np.array([[(weight * u[k]).sum(), (weight * u[k] ** 2).sum()] for k in range(2)])


@pytest.mark.parametrize("kind", ["apep", "rpapep"])
def test_at_the_optimum_q_has_the_mean_of_the_tilted_moments(kind):
    p = problem(4, n=4, n_classes=2, m=1)
    alpha, n = 0.6, 4
    posterior = fitted(apep, **p, energy=kind, alpha=alpha)
    assert posterior.optimum == "finite"
    assert posterior.trained.residual <= 1e-10
    u, log_q, log_p, _, powered = _grid(p, posterior)
    parts = []
    for i in range(n):
        share = alpha / n if kind == "apep" else alpha / (n + 1)
        distribution = (1.0 - share) * log_q + (share * log_p if kind == "apep" else 0.0)
        parts.append(_moments(u, np.exp(distribution - distribution.max()) * powered(i, alpha)))
    if kind == "rpapep":
        distribution = (1.0 - alpha / (n + 1)) * log_q + alpha * log_p
        parts.append(_moments(u, np.exp(distribution - distribution.max())))
    # the trapezoidal rule of 361 points over 18 standard deviations is exact to 1e-13; residual 1e-10
    np.testing.assert_allclose(np.mean(parts, axis=0), _moments(u, np.exp(log_q)), rtol=1e-8, atol=1e-8)


@pytest.mark.verifies("villacampa2020", "11", route="quadrature of the expectations over inducing values")
def test_the_black_box_energy_is_the_printed_one():
    p = problem(5, n=4, n_classes=2, m=1)
    alpha, n = 0.4, 4
    posterior = fitted(apep, **p, energy="apep", alpha=alpha)
    _, log_q, log_p, cell, powered = _grid(p, posterior)
    T, K = 1.0 / posterior.inducing_cov[:, 0, 0], dense(p)[0][:, 0, 0]
    t = T * posterior.inducing_mean[:, 0]
    # phi~ without a normaliser: exp of (theta_post - theta_prior)'T(u) / N
    prior, own = (log_normaliser(np.array(P)[:, None, None], w[:, None]) for P, w in ((1.0 / K, 0.0 * t), (T, t)))
    constant = own - prior  # log q - log p = (theta_post - theta_prior)'T(u) - constant, 2 pi cancels
    tied = (log_q - log_p + constant) / n
    logs = [np.log(cell * np.sum(np.exp(log_q - alpha * tied) * powered(i, alpha))) for i in range(n)]
    energy = prior - own - sum(logs) / alpha
    result = bb_alpha.quadrature_energy(posterior)
    # grid exact to 1e-13, times 1/alpha
    np.testing.assert_allclose(result, energy, rtol=1e-10, atol=0.0)
    # what the energy owes to the tied factor alone is the same for every datum
    shift = apep.log_norms(posterior) - np.array(logs) / alpha
    np.testing.assert_allclose(shift, shift[0], rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_the_monte_carlo_energy_uses_the_stated_draws(alpha):
    p = problem(6)
    posterior = fitted(apep, **p, energy="apep", alpha=alpha)
    n_draws = 60
    result = bb_alpha.monte_carlo_energy(posterior, n_draws=n_draws, seed=4)
    rng = np.random.default_rng(4)
    z, xi = rng.standard_normal((n_draws, C, M)), rng.standard_normal((n_draws, N, C))
    K, upsilon, s = dense(p)
    mean, cov = posterior.inducing_mean, posterior.inducing_cov
    T = np.linalg.inv(cov) - np.linalg.inv(K)
    t = np.linalg.solve(cov, mean[:, :, None])[:, :, 0]
    u = mean + np.einsum("kij,dkj->dki", np.linalg.cholesky(cov), z)
    tied = np.einsum("ki,dki->d", t, u) - 0.5 * np.einsum("dki,kij,dkj->d", u, T, u)
    f = np.einsum("kim,dkm->dik", upsilon, u) + np.sqrt(s) * xi
    likelihood = np.where(f.argmax(axis=2) == p["y"], 1.0 - EPSILON + EPSILON / C, EPSILON / C)
    if alpha:
        each = np.log(np.mean(likelihood**alpha * np.exp(-alpha / N * tied[:, None]), axis=0)) / alpha
    else:
        each = np.mean(np.log(likelihood) - tied[:, None] / N, axis=0)
    own = log_normaliser(np.linalg.inv(K), np.zeros((C, M))) - log_normaliser(np.linalg.inv(cov), t)
    # inverses of K cost twelve of sixteen digits at most
    np.testing.assert_allclose(result.energy, own - each.sum(), rtol=1e-9, atol=0.0)
    assert result.zero_expectations == 0
    assert result.standard_error > 0.0


def test_the_monte_carlo_energy_is_the_quadratures_in_the_mean():
    p = problem(7, n=3)
    alpha, n_draws, repeats = 0.5, 2000, 40
    posterior = fitted(apep, **p, energy="apep", alpha=alpha)
    exact = bb_alpha.quadrature_energy(posterior)
    results = [bb_alpha.monte_carlo_energy(posterior, n_draws=n_draws, seed=seed) for seed in range(repeats)]
    energies = np.array([one.energy for one in results])
    # log is concave: the energy is alpha se^2 / 2 too high, to first order in 1/n_draws
    bias = 0.5 * alpha * np.mean([one.standard_error**2 for one in results])
    z = (energies.mean() - exact - bias) / (energies.std(ddof=1) / np.sqrt(repeats))
    assert 2.0 * norm.sf(abs(z)) > 1e-4  # level of the run
    by_datum = np.array([one.log_norm for one in results])
    gaps = by_datum - apep.log_norms(posterior)  # the same for every datum but for the draws
    gaps = gaps[:, 1:] - gaps[:, :1]
    z = gaps.mean(axis=0) / (gaps.std(axis=0, ddof=1) / np.sqrt(repeats))
    assert (2.0 * norm.sf(np.abs(z)) > 1e-4 / 2).all()  # biases differ by less than 0.1 standard errors; two statistics


def test_an_expectation_that_no_draw_hits_is_said_to_be_missing():
    p = problem(8, n=12, epsilon=0.0) | {"X": np.zeros((12, D)), "y": np.array([0] * 11 + [1])}
    posterior = fitted(apep, **(p | {"noise": np.full(C, 1e-6), "variance": np.full(C, 100.0)}), alpha=1.0)
    result = bb_alpha.monte_carlo_energy(posterior, n_draws=2, seed=0)
    assert result.energy is None
    assert result.zero_expectations >= 1


def test_the_ascent_never_falls_and_nothing_nearby_is_better():
    p = problem(9)
    for kind in KINDS:
        posterior = fitted(apep, **p, energy=kind, alpha=0.4, trace=True)
        assert posterior.trained.converged
        trace = posterior.trained.trace
        assert (np.diff(trace) >= -1e-9 * (1.0 + np.abs(trace[1:]))).all()  # what rounding explains
        mean, cov = posterior.inducing_mean, posterior.inducing_cov
        np.testing.assert_allclose(dense_energy(kind, p, mean, cov, 0.4), posterior.log_evidence, rtol=1e-9, atol=0.0)
        rng = np.random.default_rng(0)
        for _ in range(3):
            A = 0.03 * rng.standard_normal((C, M, M)) + np.eye(M)
            other = dense_energy(
                kind, p, mean + 0.05 * rng.standard_normal((C, M)), A @ cov @ A.transpose(0, 2, 1), 0.4
            )
            assert other < posterior.log_evidence


def test_at_alpha_zero_the_three_are_one_bound():
    p = problem(10)
    results = [fitted(apep, **p, energy=kind, alpha=0.0) for kind in KINDS]
    for other in results[1:]:
        # the same optimum, residual 1e-10
        np.testing.assert_allclose(other.log_evidence, results[0].log_evidence, rtol=1e-11, atol=0.0)
        np.testing.assert_allclose(other.inducing_mean, results[0].inducing_mean, rtol=1e-8, atol=1e-8)
    near = fitted(apep, **p, energy="apep", alpha=1e-8)
    np.testing.assert_allclose(near.log_evidence, results[0].log_evidence, rtol=1e-6, atol=0.0)  # gradient below 100


def test_an_energy_without_a_finite_optimum_says_so():
    # far from all data nothing but the prior's factor holds the variance, and at alpha = 1 it does not
    p = problem(11, n=4) | {"Z": np.random.default_rng(0).standard_normal((C, M, D)) + 30.0}
    posterior = fitted(apep, **p, energy="rpapep", alpha=1.0)
    assert posterior.optimum.startswith("none: the variance of class")
    assert posterior.log_evidence is None
    assert not posterior.trained.converged
    assert np.isfinite(posterior.inducing_cov).all()


def test_an_optimum_far_from_the_prior_is_reached():
    # as many inducing points as data: at this power some variances grow several thousand times
    p = problem(0, n=5, m=5, epsilon=0.05)
    posterior = fitted(apep, **p, energy="rpapep", alpha=0.8, max_iterations=60)
    assert posterior.optimum == "finite"
    assert posterior.trained.residual <= 1e-10
    assert max(np.linalg.eigvalsh(posterior.run.q.covariance(k))[-1] for k in range(C)) > 1e3


@pytest.mark.parametrize("kind", ["apep", "arpep"])
def test_a_steep_energy_is_come_to_by_way_of_less_steep_ones(kind):
    # one datum, two equal classes with one inducing point on it: q is symmetric, a mean and a variance
    variance, noise, jitter, alpha = 1.5, 0.2, 1e-3, 1e-8
    posterior = fitted(
        apep, np.zeros((1, 1)), np.array([1]), 2, variance, np.ones(1), noise, jitter, np.zeros((1, 1)), 0.0,
        energy=kind, alpha=alpha, tolerance=1e-7,
    )  # fmt: skip
    assert posterior.optimum == "finite"
    a = variance / np.sqrt(variance + jitter)
    s = variance + noise - a * a

    def loss(x):
        mean, log_var = x
        var = np.exp(log_var)
        z = 2.0 * a * mean / np.sqrt(2.0 * (s + a * a * var))
        return var + mean**2 - 1.0 - log_var - norm.logcdf(z) / alpha

    wanted = min(
        (minimize(loss, (mean, -3.0), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-9, "maxiter": 4000})
         for mean in (2.0, 4.0)), key=lambda end: end.fun,
    )  # fmt: skip
    # log P is known to 1e-16, which 1e8 makes 1e-8; apep differs from arpep by its derivative in alpha, below 100
    np.testing.assert_allclose(posterior.log_evidence, -wanted.fun, rtol=0.0, atol=2e-6)
    white = posterior.run.q.weights[:, 0]
    np.testing.assert_allclose(white, [-wanted.x[0], wanted.x[0]], rtol=0.0, atol=1e-3)  # the root of 1e-6


@pytest.mark.parametrize("kind", others_slow(["apep", "arpep"], lambda kind: kind == "apep"))
def test_steep_energies_of_several_data_are_reached(kind):
    p = problem(15, epsilon=0.0) | {"noise": np.full(C, 0.1)}
    posterior = fitted(apep, **p, energy=kind, alpha=1e-8, tolerance=1e-6, max_iterations=400)
    assert posterior.optimum == "finite"
    # F rises with alpha at any q. A separation by z, with 1 - P about alpha, needs a divergence of about z^2/2,
    # log(1/alpha), which is half at 1e-4: four times leaves room, and a run that stalls ends a million times lower
    gentle = fitted(apep, **p, energy=kind, alpha=1e-4)
    assert 4.0 * gentle.log_evidence < posterior.log_evidence < gentle.log_evidence


def test_priors_that_move_after_each_step_call_no_search(monkeypatch):
    p = problem(19, n=20)
    run, _ = run_at(p, "apep", 0.5, *some_q(p))

    def no_search(*arguments):
        raise AssertionError("a search for q, which the next move makes worthless")

    monkeypatch.setattr("fast.sparse_classes.alpha_runs.optimise", no_search)
    options = ClassTraining(
        learn=("variance", "Z"), scheme="inner-approximate", optimizer="adam", n_steps=60, rate=0.02
    )  # fmt: skip
    settings = settings_of(20, options)
    ended = train(run, settings)
    assert ended.reason == "60 steps made"
    assert ended.residual > 1e-5  # still far: without moves a search would have come
    # nor does a run that has come to a standstill stay there under other priors
    run.stalled = True
    before = run.q.precision.copy()
    run.move(run.points.hyper._replace(variance=2.0 * run.points.hyper.variance), run.points.Z)
    held = run.q.precision.copy()
    run.refresh()
    assert not np.array_equal(before, held)
    assert not np.array_equal(run.q.precision, held)


def test_a_search_that_cannot_begin_says_that_there_is_no_optimum():
    p = problem(11, n=4) | {"Z": np.random.default_rng(0).standard_normal((C, M, D)) + 30.0}
    with pytest.raises(ValueError, match=r"log_evidence: found none: the variance of class \d grows without bound"):
        fitted(apep, **p, energy="rpapep", alpha=1.0, learn=("variance",))


def test_the_search_reaches_the_same_optimum_as_steps():
    p = problem(18)
    steps = fitted(apep, **p, energy="rpapep", alpha=0.4)
    run = fitted(apep, **p, energy="rpapep", alpha=0.4, max_iterations=1).run
    distribution = optimise(run.q, run._point, 1e6)
    # its gradient ends at 1e-9
    np.testing.assert_allclose(distribution.weights, steps.run.q.weights, rtol=0.0, atol=1e-7)
    np.testing.assert_allclose(distribution.precision, steps.run.q.precision, rtol=1e-7, atol=1e-7)


def test_learning_and_adam_improve_the_energy_and_batches_are_reproducible():
    p = problem(12, n=30)
    held = fitted(apep, **p, alpha=0.5)
    learned = fitted(apep, **p, alpha=0.5, learn=("variance", "Z"), n_steps=5)
    assert learned.log_evidence > held.log_evidence
    steps = [fitted(apep, **p, alpha=0.5, batch_size=10, n_steps=60, rate=0.05, seed=1) for _ in range(2)]
    assert steps[0].log_evidence == steps[1].log_evidence
    start = fitted(apep, **p, alpha=0.5, batch_size=10, n_steps=1, rate=1e-9)
    assert start.log_evidence < steps[0].log_evidence < held.log_evidence
    # one step of Adam on all data: every coordinate moves by the rate, in the sign of its derivative
    run, _ = run_at(p, "apep", 0.5, *some_q(p))
    joint = JointSteps(run, Settings(n_steps=1, rate=1e-3))
    before = joint.coordinates
    derivative = joint_gradient(run, joint.white, None, priors=False)
    joint.step(None)
    moved = joint.coordinates.mean - before.mean
    np.testing.assert_allclose(moved, 1e-3 * np.sign(derivative.by_mean), rtol=1e-4, atol=0.0)  # epsilon of Adam 1e-8


@pytest.mark.parametrize("rate", [5.0, 13.0, 30.0])
@pytest.mark.parametrize("energy", ["apep", "arpep", "rpapep"])
def test_a_rate_that_is_too_large_ends_diverged_at_the_last_state_that_is_a_distribution(energy, rate):
    p = problem(12, n=20)
    posterior = fitted(
        apep, **p, alpha=0.5, energy=energy, optimizer="adam", learn=("variance",), rate=rate, n_steps=40
    )
    trained = posterior.trained
    assert not trained.converged
    assert np.isfinite(posterior.log_evidence)
    assert trained.diverged == (trained.iterations < 40)
    assert trained.diverged or rate < 30.0  # the variance moves by e^30 a step
    if trained.diverged:
        assert trained.reason.startswith(f"step {trained.iterations + 1}: ")


def test_a_killed_run_of_adam_continues_identically(tmp_path):
    p = problem(13, n=20) | {
        "batch_size": 6,
        "learn": ("variance", "Z"),
        "seed": 3,
        "checkpoint_every": 4,
        "n_steps": 11,
    }

    def kill(progress):
        if progress.iteration == 7:
            raise KeyboardInterrupt

    whole = fitted(apep, **p, energy="rpapep")
    file = tmp_path / "run.npz"
    with pytest.raises(KeyboardInterrupt):
        fitted(apep, **p, energy="rpapep", checkpoint=file, callback=kill)
    again = fitted(apep, **p, energy="rpapep", checkpoint=file)
    assert np.array_equal(whole.run.q.precision, again.run.q.precision)
    assert np.array_equal(whole.run.points.Z, again.run.points.Z)
    assert whole.log_evidence == again.log_evidence


def test_blocks_and_memory_maps_change_nothing(tmp_path):
    p = problem(14, n=150)
    mapped = np.memmap(tmp_path / "X", np.float64, "w+", shape=p["X"].shape)
    mapped[:] = p["X"]
    whole = fitted(apep, **p, energy="arpep", batch_size=20, n_steps=6)
    cut = fitted(apep, **(p | {"X": mapped}), energy="arpep", batch_size=20, n_steps=6, block_size=64, memory_budget=0)
    assert np.array_equal(whole.run.q.precision, cut.run.q.precision)
    # the stated invariance
    np.testing.assert_allclose(whole.log_evidence, cut.log_evidence, rtol=1e-12, atol=0.0)
    np.testing.assert_allclose(apep.log_norms(whole), apep.log_norms(cut), rtol=1e-12, atol=1e-12)
    for name, derivative in apep.gradients(whole)._asdict().items():
        # a sum over blocks in another order
        np.testing.assert_allclose(getattr(apep.gradients(cut), name), derivative, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_problems_give_finite_numbers_or_say_why(kind):
    cases = [
        ({"epsilon": 0.5}, 1e-8),
        ({"epsilon": 0.0}, 1e-8),
        ({"variance": np.full(C, 1e8)}, 0.5),
        ({"variance": np.full(C, 1e-8), "noise": np.zeros(C), "jitter": 1e-11}, 0.5),
        ({"variance": np.array([1e8, 1.0, 1e-8]), "noise": np.zeros(C), "jitter": 1e-11}, 0.25),
    ]
    for changed, alpha in cases:
        p = problem(15) | changed
        posterior = fitted(apep, **p, energy=kind, alpha=alpha, max_iterations=25)
        value = posterior.log_evidence
        assert posterior.optimum.startswith("none") if value is None else np.isfinite(value)
        prediction = apep.predict(posterior, np.concatenate([p["X"], 1e3 * p["X"]]))
        assert np.isfinite(prediction.latent_mean).all()
        assert np.isfinite(prediction.probabilities).all()
        np.testing.assert_allclose(prediction.probability_mass, 1.0, rtol=0.0, atol=1e-11)  # the stated error
        if value is not None:
            assert all(np.isfinite(part).all() for part in apep.gradients(posterior))


def test_fifty_classes_and_improbable_ones():
    p = problem(16, n=60, n_classes=50, m=2, epsilon=1e-3)
    posterior = fitted(apep, **p, alpha=0.5, max_iterations=10)
    assert np.isfinite(posterior.log_evidence)
    # two classes whose means are up to 37 standard deviations apart at the test point
    p = problem(17, n=2, n_classes=2, m=1, epsilon=0.0) | {"Z": np.zeros((2, 1, D)), "noise": np.full(2, 0.1)}
    K = dense(p)[0][:, 0, 0]
    for z in (5.0, 37.0):
        mean = np.array([[1.0], [-1.0]])
        run, _ = run_at(p, "arpep", 0.5, mean, 1e-9 * np.ones((2, 1, 1)))
        gap = float((mean[:, 0] / K * p["variance"]) @ [1.0, -1.0])
        noise = p["variance"] + 0.1 - p["variance"] ** 2 / K
        run, _ = run_at(p, "arpep", 0.5, mean * z * np.sqrt(noise.sum()) / gap, 1e-9 * np.ones((2, 1, 1)))
        prediction = apep.predict(apep.EnergyPosterior(run, None, None, ""), np.zeros((1, D)))
        mean, var = prediction.latent_mean[0], np.diagonal(prediction.latent_cov[0])
        wanted = norm.cdf((mean[1] - mean[0]) / np.sqrt(var.sum()))
        assert wanted > 0.0
        # the stated error, and 1e-16 times the size of log P
        np.testing.assert_allclose(prediction.probabilities[0, 1], wanted, rtol=1e-11, atol=0.0)


def test_what_cannot_be_is_refused_by_name():
    p = problem()
    for changed, name in (
        ({"alpha": -0.1}, "alpha"),
        ({"alpha": 1.1}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"alpha": 0.0, "epsilon": 0.0}, "epsilon: found 0"),
        ({"epsilon": 1.0}, "epsilon"),
        ({"energy": "pep"}, "energy"),
        ({"optimizer": "lbfgs", "batch_size": 3}, "optimizer"),
        ({"Z": None}, "Z"),
        ({"X": p["X"][:1], "y": p["y"][:1], "alpha": 1.0}, "alpha"),
    ):
        with pytest.raises(ValueError, match=name):
            fitted(apep, **(p | changed))
    with pytest.raises(ValueError, match="n_draws"):
        bb_alpha.monte_carlo_energy(fitted(apep, **p), n_draws=1)
