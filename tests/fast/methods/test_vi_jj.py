"""vi-jj, vi-jj-full and vi-jj-hybrid: fixed point, derivatives, stages, ascent, extremes."""

import numpy as np
import pytest
from scipy.optimize import minimize

from fast.core.errors import NotPositiveDefiniteError
from fast.core.options import Storage
from fast.core.values import Data, Prior
from fast.likelihood.quadratic_bounds import jaakkola_jordan, jj_local
from fast.methods import vi_jj, x_gpc
from fast.one_latent.quadratic_search import Alternation, initial_moments, prepare, stage_one, stage_two
from fast.one_latent.quadratic_sweep import evaluate, gradients_at
from values_given import binary, model_values, options_of

FITS = (vi_jj.fit, vi_jj.fit_full, vi_jj.fit_hybrid)


def dense_bound(p, dense, xi, mu, Sigma):
    """J of izmailov2016, 4.1, from its definition: expectations of the bound, less the divergence."""
    y = np.where(p.y == 1, 1.0, -1.0)
    mean = dense.kappa @ mu
    var = np.diag(dense.K_tilde + dense.kappa @ Sigma @ dense.kappa.T)
    lam = np.tanh(xi / 2) / (4 * xi)
    local = -np.log1p(np.exp(-xi)) + (y * mean - xi) / 2 - lam * (mean**2 + var - xi**2)
    kl = 0.5 * (
        np.trace(dense.inverse @ Sigma)
        + mu @ dense.inverse @ mu
        - mu.size
        + np.linalg.slogdet(dense.K_ZZ)[1]
        - np.linalg.slogdet(Sigma)[1]
    )
    return local.sum() - kl


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("log_variance", [0.5, 4.0])
@pytest.mark.verifies("izmailov2016", "alg1", "vi-jj-full", "vi-jj-hybrid", route="the Pólya-Gamma bound")
def test_at_the_fixed_point_the_bound_is_the_polya_gamma_bound(make_problem, full, log_variance):
    p = vars(make_problem(variance=np.exp(log_variance), full=full))
    other = x_gpc.fit(*binary(x_gpc.XGPCOptions, **p))
    for fit in FITS:
        posterior = fit(*binary(options_of(fit), **p))
        assert posterior.converged
        # two fixed points at 1e-10, the bound stationary there
        np.testing.assert_allclose(posterior.elbo, other.elbo, rtol=1e-12)
        np.testing.assert_allclose(posterior.xi, other.c, rtol=1e-8)
        np.testing.assert_allclose(posterior.inducing_cov, other.inducing_cov, rtol=0, atol=1e-8 * p["variance"])
        np.testing.assert_allclose(posterior.latent_var, other.latent_var, rtol=1e-8)


@pytest.mark.verifies("izmailov2016", "alg1", route="stationarity in mu, Sigma and xi, dense")
def test_the_fixed_point_is_the_maximum_of_the_definition(make_problem, dense_sparse, rng):
    p = make_problem()
    dense = dense_sparse(p.X, p.y, p.variance, p.lengthscales, p.noise, p.jitter, p.Z)
    posterior = vi_jj.fit(*model_values(p))
    mu, Sigma = posterior.inducing_mean, posterior.inducing_cov
    best = dense_bound(p, dense, posterior.xi, mu, Sigma)
    np.testing.assert_allclose(posterior.elbo, best, rtol=1e-10)
    np.testing.assert_allclose(jj_local(posterior.latent_mean, posterior.latent_var), posterior.xi, rtol=1e-9)
    root = np.linalg.cholesky(Sigma)
    for _ in range(20):
        h = 1e-3  # the fall is h^2 times a curvature of order one; rounding 1e-13
        step = h * rng.normal(size=5)
        tilt = np.eye(5) + h * np.tril(rng.normal(size=(5, 5)))
        moved = root @ tilt
        assert dense_bound(p, dense, posterior.xi, mu + root @ step, Sigma) < best
        assert dense_bound(p, dense, posterior.xi, mu, moved @ moved.T) < best
        assert dense_bound(p, dense, posterior.xi * np.exp(h * rng.normal(size=14)), mu, Sigma) < best


@pytest.mark.parametrize("smoothness", [None, 0.7, 1.5])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.verifies("izmailov2016", "u4.1-Jhat-gradient", route="differences")
def test_derivatives_of_the_collapsed_bound(make_problem, full, smoothness, rng):
    p = vars(make_problem(n=12, m=4, full=full, jitter=1e-3)) | {"smoothness": smoothness}
    xi = 0.2 + rng.random(12)

    def value(local=xi, **changed):
        return evaluate(prepare(*binary(Storage, **{**p, **changed})), vi_jj.Bound(), local).elbo

    prior = prepare(*binary(Storage, **p))
    at = evaluate(prior, vi_jj.Bound(), xi)
    got = gradients_at(prior, vi_jj.Bound(), xi, at.factor, at.weights)
    h = 1e-4

    def derivative(f):
        return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)

    def agree(left, right):  # rounding 1e-14 / h
        np.testing.assert_allclose(left, right, rtol=1e-7, atol=2e-9)

    agree(got.variance, derivative(lambda t: value(variance=p["variance"] + t)))
    agree(got.noise, derivative(lambda t: value(noise=p["noise"] + t)))
    for j in range(2):
        agree(got.lengthscales[j], derivative(lambda t, j=j: value(lengthscales=p["lengthscales"] + t * np.eye(2)[j])))
    if not full:
        for i, j in ((0, 0), (3, 1)):
            unit = np.zeros((4, 2))
            unit[i, j] = 1.0
            agree(got.Z[i, j], derivative(lambda t, u=unit: value(Z=p["Z"] + t * u)))
    local = vi_jj.local_gradient(xi, at.latent_mean, at.latent_var)
    for i in (0, 5, 11):
        agree(local[i], derivative(lambda t, i=i: value(xi + t * np.eye(12)[i])))
    # even in xi: nothing moves at 0
    assert vi_jj.local_gradient(np.zeros(1), np.ones(1), np.ones(1))[0] == 0.0


@pytest.mark.verifies("izmailov2016", "alg1-stage1", route="the printed update with explicit inverses")
def test_stage_one_is_the_printed_update(make_problem, dense_sparse):
    p = make_problem(m=4, jitter=1e-2)
    dense = dense_sparse(p.X, p.y, p.variance, p.lengthscales, p.noise, p.jitter, p.Z)
    y = np.where(p.y == 1, 1.0, -1.0)
    mu, Sigma = np.zeros(4), np.eye(4)
    for _ in range(3):
        xi = np.sqrt((dense.kappa @ mu) ** 2 + np.diag(dense.K_tilde + dense.kappa @ Sigma @ dense.kappa.T))
        lam = np.tanh(xi / 2) / (4 * xi)
        Sigma = np.linalg.inv(2 * dense.kappa.T @ np.diag(lam) @ dense.kappa + dense.inverse)
        mu = 0.5 * Sigma @ dense.kappa.T @ y
    prior = prepare(*model_values(p))
    state = Alternation.start(prior, vi_jj.Bound())
    end = stage_one(state, 3)
    np.testing.assert_allclose(state.xi, xi, rtol=1e-9)
    np.testing.assert_allclose(prior.chol_K @ end.weights, mu, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(end.value, dense_bound(p, dense, xi, mu, Sigma), rtol=1e-11)


@pytest.mark.parametrize("full", [False, True])
def test_mu_and_sigma_are_carried_to_another_kernel(make_problem, dense_sparse, full):
    p = make_problem(m=4, jitter=1e-2, full=full)
    state = Alternation.start(prepare(*model_values(p)), vi_jj.Bound())
    stage_one(state, 2)
    if full:
        mean, var = state._moments
        expected = np.hypot(mean, np.sqrt(var))
    else:
        L, end = state.prior.chol_K, state.end
        mu, Sigma = L @ end.weights, L @ np.linalg.inv(end.factor @ end.factor.T) @ L.T
        dense = dense_sparse(p.X, p.y, 2 * p.variance, 1.3 * p.lengthscales, p.noise, p.jitter, p.Z)
        expected = np.sqrt((dense.kappa @ mu) ** 2 + np.diag(dense.K_tilde + dense.kappa @ Sigma @ dense.kappa.T))
    state.move(
        prepare(*binary(Storage, **{**vars(p), "variance": 2 * p.variance, "lengthscales": 1.3 * p.lengthscales}))
    )
    state.update()
    np.testing.assert_allclose(state.xi, expected, rtol=1e-9)


@pytest.mark.verifies("izmailov2016", "alg1-stage2", route="SciPy on the dense bound")
def test_stage_two_climbs_the_collapsed_bound_at_held_xi(make_problem):
    p = make_problem()
    state = Alternation.start(prepare(*model_values(p)), vi_jj.Bound())
    before = stage_one(state, 3).value
    xi = state.xi.copy()
    stage = stage_two(state, ("variance", "lengthscales"), 200)
    np.testing.assert_array_equal(stage.xi, xi)

    def value(logs):
        changed = {"variance": np.exp(logs[0]), "lengthscales": np.exp(logs[1:])}
        return -evaluate(prepare(*binary(Storage, **{**vars(p), **changed})), vi_jj.Bound(), xi).elbo

    start = np.log([p.variance, *p.lengthscales])
    other = minimize(value, start, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12, "maxiter": 4000})
    # both at the maximum: the value agrees to second order
    np.testing.assert_allclose(stage.value, -other.fun, rtol=1e-8)
    assert stage.value > before
    few = stage_two(state, ("variance", "lengthscales"), 5)
    assert few.n_evaluations <= 12  # the step in which they run out is finished
    assert few.value >= before


@pytest.mark.parametrize("fit", FITS)
def test_learning_ends_where_the_bound_of_x_gpc_has_its_maximum(make_problem, fit):
    p = vars(make_problem(n=60, m=8, noise=0.1))
    posterior = fit(*binary(options_of(fit), **p, learn=("variance", "lengthscales"), tolerance=1e-6))
    other, _ = x_gpc.fit_learning(*binary(x_gpc.XGPCLearning, **p, learn=("variance", "lengthscales")))
    # Algorithm 1 stops on relative changes of 1e-6 an iteration, hundreds of which may be left
    np.testing.assert_allclose(posterior.elbo, other.elbo, rtol=5e-4)
    assert posterior.converged
    with pytest.raises(ValueError, match="learn: found 'Z'"):
        fit(*binary(options_of(fit), **p, learn=("Z",)))


def test_updates_never_lower_the_bound_and_a_joint_stage_two_neither(make_problem):
    p = vars(make_problem(n=40, m=6, variance=80.0))
    plain = vi_jj.fit(*binary(vi_jj.JJOptions, **p, accelerate=False))
    assert plain.converged
    assert np.diff(plain.trace).min() > -1e-12  # rounding of a sum of 40 terms
    hybrid = vi_jj.fit_hybrid(
        *binary(vi_jj.JJHybridOptions, **p, learn=("variance", "lengthscales"), tolerance=1e-6, max_iterations=40)
    )
    assert np.diff(hybrid.trace).min() > -1e-11
    # plain and mixed updates end at one point
    np.testing.assert_allclose(plain.xi, vi_jj.fit(*binary(vi_jj.JJOptions, **p)).xi, rtol=1e-8)


def test_a_start_at_zero_is_left(make_problem):
    p = vars(make_problem())
    expected = vi_jj.fit(*binary(vi_jj.JJOptions, **p))
    for fit in FITS:
        np.testing.assert_allclose(
            fit(*binary(options_of(fit), **p, initial_xi=np.zeros(14))).xi, expected.xi, rtol=1e-8
        )


@pytest.mark.parametrize("fit", FITS)
def test_extremes_neither_overflow_nor_pass_silently(fit, rng):
    X = np.linspace(-1, 1, 12)[:, None]
    y = (X[:, 0] > 0).astype(int)
    # separable data under a huge variance: latent values beyond 700
    posterior = fit(
        Data(X, y), Prior(1e8, np.ones(1), 0.0, 1e-2, X[::2]), options_of(fit)(tolerance=1e-7, max_iterations=30)
    )
    assert np.isfinite(posterior.elbo)
    assert posterior.elbo <= 0.0
    assert np.isfinite(posterior.xi).all()
    square = fit(Data(X, y), Prior(2.0, np.full(1, 0.2), 0.0, 1e-6, X))  # m = n
    whole = fit(Data(X, y), Prior(2.0, np.full(1, 0.2), 1e-6, 0.0, None))
    # Z = X with jitter in K_ZZ against jitter as noise: they differ by the order of the jitter
    np.testing.assert_allclose(square.elbo, whole.elbo, rtol=1e-4)
    with pytest.raises(NotPositiveDefiniteError, match="raise jitter or remove duplicate rows of Z"):
        fit(Data(X, y), Prior(2.0, np.ones(1), 0.0, 0.0, np.concatenate([X[:3], X[:3]])))
    doubled = fit(Data(X, y), Prior(2.0, np.ones(1), 0.0, 1e-6, np.concatenate([X[:3], X[:3]])))
    np.testing.assert_allclose(doubled.elbo, fit(Data(X, y), Prior(2.0, np.ones(1), 0.0, 1e-6, X[:3])).elbo, rtol=1e-4)


def test_a_memory_map_in_blocks_gives_the_numbers_of_the_array(tmp_path, rng):
    X = np.memmap(tmp_path / "X", dtype=np.float64, mode="w+", shape=(700, 3))
    X[:] = rng.normal(size=(700, 3))
    y = (X.sum(axis=1) > 0).astype(np.int8)
    a = (2.0, np.ones(3), 0.1, 1e-6, np.array(X[:20]))
    one = vi_jj.fit(Data(np.array(X), y), Prior(*a))
    two = vi_jj.fit(Data(X, y), Prior(*a), vi_jj.JJOptions(block_size=64, memory_budget=0, accelerate=False))
    np.testing.assert_allclose(two.elbo, one.elbo, rtol=1e-12)
    test = rng.normal(size=(50, 3))
    left, right = vi_jj.predict(one, test), vi_jj.predict(one, test, block_size=7)
    np.testing.assert_allclose(left.probabilities, right.probabilities, rtol=0, atol=1e-12)


def test_the_bound_is_below_log_z_by_quadrature():
    # one datum: p(y) = 1/2 by symmetry
    posterior = vi_jj.fit(Data(np.zeros((1, 1)), np.array([1])), Prior(3.0, np.ones(1), 0.0, 0.0))
    assert posterior.elbo < np.log(0.5)
    # a prior that is a point at 0 leaves the bound tight
    tight = vi_jj.fit(Data(np.zeros((1, 1)), np.array([1])), Prior(1e-10, np.ones(1), 0.0, 0.0))
    np.testing.assert_allclose(tight.elbo, np.log(0.5), rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"n_upd": 0}, "n_upd: found 0"),
        ({"n_fun": 1.5}, "n_fun: found 1.5"),
        ({"tolerance": 0.0}, "tolerance: found 0.0"),
        ({"initial_xi": np.zeros(3)}, r"initial_xi: found shape \(3,\)"),
        ({"learn": ("period",)}, "learn: found"),
    ],
)
def test_bad_settings_are_refused_by_name(make_problem, change, match):
    with pytest.raises(ValueError, match=match):
        vi_jj.fit(*binary(vi_jj.JJOptions, **vars(make_problem()), **change))


def test_initial_moments_of_a_full_gp_are_standard(make_problem):
    mean, var = initial_moments(prepare(*model_values(make_problem(full=True))))
    assert (mean == 0).all()
    assert (var == 1).all()
    assert jaakkola_jordan(np.ones(1), np.zeros(1)).precision[0] == 0.25
