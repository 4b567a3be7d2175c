"""Coordinate ascent, predictions and gradients of the bound, from inputs and labels."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from reference.common.errors import NotPositiveDefiniteError
from reference.wenzel2019.bound import xgpc_bound
from reference.wenzel2019.fit import bound_gradients, fit_xgpc, predict_xgpc

LENGTHSCALES = np.array([0.9, 1.6])


def data(rng, n=20):
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] - 0.5 * X[:, 1] + 0.7 * rng.normal(size=n) > 0, 1.0, -1.0)


def relative(a, b):
    return np.max(np.abs(a - b)) / np.max(np.abs(b))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("variance", [0.5, 4.0, math.exp(4.5)])
def test_the_stated_residual_is_the_distance_to_the_fixed_point(rng, sparse, variance):
    X, y = data(rng)
    args = (X, y, variance, LENGTHSCALES, 0.1, 1e-6, X[:6] if sparse else None)
    coarse = fit_xgpc(*args, tolerance=1e-6)
    fine = fit_xgpc(*args, tolerance=1e-12)
    assert coarse.converged
    assert fine.converged
    assert coarse.residual < 1e-6
    for name in ("inducing_mean", "inducing_cov", "c", "latent_mean", "latent_var"):
        # the residual estimates the distance: within a factor of two, were the contraction known exactly
        assert relative(getattr(coarse, name), getattr(fine, name)) < 2 * coarse.residual


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("variance", [0.5, 4.0, math.exp(4.5)])
def test_where_the_ascent_ends_all_derivatives_of_the_bound_vanish(rng, sparse, variance):
    X, y = data(rng)
    fit = fit_xgpc(X, y, variance, LENGTHSCALES, 0.1, 1e-6, X[:6] if sparse else None)
    precision = np.linalg.inv(fit.inducing_cov)
    # theirs is a sum of terms as large as the precision, and the fixed point is known to 1e-10 of q(u); a condition
    # of the precision below 1e6 leaves 1e-10 of rounding
    size = np.max(np.abs(precision))
    for derivative in (fit.derivatives.mu, fit.derivatives.eta_1):
        assert np.max(np.abs(derivative)) < 1e-8 * size * np.max(np.abs(fit.inducing_mean))
    for derivative in (fit.derivatives.Sigma, fit.derivatives.eta_2):
        assert np.max(np.abs(derivative)) < 1e-8 * size
    # theta'(c) is below 0.1, its second derivative as well, and so c^2 - A is known to 1e-10 of c^2
    assert np.max(np.abs(fit.derivatives.c)) < 1e-9 * np.max(fit.c) ** 2
    assert np.all(fit.derivatives.curvature < 0.0)


@pytest.mark.parametrize("sparse", [False, True])
def test_an_ascent_cut_short_leaves_derivatives_in_the_tilts_alone(rng, sparse):
    X, y = data(rng)
    fit = fit_xgpc(X, y, 4.0, LENGTHSCALES, 0.1, 1e-3, X[:6] if sparse else None, max_iterations=2)
    # q(u) is at its maximum given c in every sweep, c at its own given the q(u) before: a contraction of some tenths
    assert np.max(np.abs(fit.derivatives.c)) > 1e-4
    assert np.max(np.abs(fit.derivatives.mu)) < 1e-9
    # the objective as section 4.2 defines it and its closed form (10): sums of n + m terms of size 10
    assert fit.elbo == pytest.approx(fit.trace[-1], rel=1e-12, abs=0)


@pytest.mark.parametrize("sparse", [False, True])
def test_no_other_gaussian_and_no_other_tilts_have_a_higher_bound(rng, sparse):
    X, y = data(rng, n=6)
    Z = X[:2] + 0.1 if sparse else None
    fit = fit_xgpc(X, y, 2.0, LENGTHSCALES, 0.1, 1e-3, Z)
    support = X if Z is None else Z

    def k(A, B):
        return 2.0 * np.exp(-0.5 * np.sum(((A[:, None] - B[None]) / LENGTHSCALES) ** 2, axis=2))

    K_ZZ = k(support, support) + (1e-3 if sparse else 0.101) * np.eye(len(support))
    kappa = k(X, Z) @ np.linalg.inv(K_ZZ) if sparse else np.eye(6)
    cond_var = 2.1 - np.sum(kappa * k(X, Z), axis=1) if sparse else np.zeros(6)
    m = len(support)
    lower = np.tril_indices(m)

    def loss(free):
        root = np.zeros((m, m))
        root[lower] = free[m : m + len(lower[0])]
        return -xgpc_bound(free[:m], root @ root.T, free[m + len(lower[0]) :], y, K_ZZ, kappa, cond_var)

    start = np.concatenate([np.zeros(m), np.linalg.cholesky(K_ZZ)[lower], np.full(6, 0.5)])
    optimum = minimize(loss, start, method="BFGS", options={"gtol": 1e-7, "maxiter": 2000})
    # a maximum is found to rounding divided by the finite-difference step of the optimiser
    assert -optimum.fun == pytest.approx(fit.elbo, rel=0, abs=1e-7)
    assert -optimum.fun <= fit.elbo + 1e-9


@pytest.mark.parametrize("sparse", [False, True])
def test_the_gradients_are_those_of_the_bound_converged_anew(rng, sparse):
    X, y = data(rng, n=12)
    Z = X[:4] + 0.1 * rng.normal(size=(4, 2)) if sparse else None
    variance, noise, jitter, step = 3.0, 0.2, 1e-4, 1e-4

    def best(variance=variance, lengthscales=LENGTHSCALES, noise=noise, Z=Z):
        return fit_xgpc(X, y, variance, lengthscales, noise, jitter, Z, tolerance=1e-9).elbo

    got = bound_gradients(
        fit_xgpc(X, y, variance, LENGTHSCALES, noise, jitter, Z), X, y, variance, LENGTHSCALES, noise, jitter, Z
    )

    def difference(change):
        return (best(**change(step)) - best(**change(-step))) / (2 * step)

    wanted = [difference(lambda h: {"variance": variance + h}), difference(lambda h: {"noise": noise + h})]
    wanted += [difference(lambda h, e=e: {"lengthscales": LENGTHSCALES + h * e}) for e in np.eye(2)]
    # the bound is flat at the fixed point, so its error is the square of 1e-9 and rounding, 1e-14, over the step
    # leaves 1e-10; step² times third derivatives of size up to 10 leaves 1e-7
    np.testing.assert_allclose([got.variance, got.noise, *got.lengthscales], wanted, rtol=0, atol=1e-6)
    if Z is None:
        assert got.Z is None
        return
    for p in range(4):
        for j in range(2):
            move = np.zeros((4, 2))
            move[p, j] = 1.0
            derivative = difference(lambda h, move=move: {"Z": Z + h * move})
            assert got.Z[p, j] == pytest.approx(derivative, rel=0, abs=1e-6)


def test_inducing_points_at_the_data_give_the_full_process(rng):
    X, y = data(rng, n=15)
    X = 2.0 * X  # spread out, so that K_XX without noise and jitter has a condition below 1e5
    X_test = rng.normal(size=(7, 2))
    full = fit_xgpc(X, y, 4.0, LENGTHSCALES, 0.0, 0.0)
    sparse = fit_xgpc(X, y, 4.0, LENGTHSCALES, 0.0, 0.0, Z=X)
    # both stop within 1e-10; a condition below 1e5 adds 1e-11
    for name in ("inducing_mean", "inducing_cov", "c", "theta", "latent_mean", "latent_var", "elbo"):
        assert relative(getattr(sparse, name), getattr(full, name)) < 1e-8
    ours = predict_xgpc(full, X, X_test, 4.0, LENGTHSCALES, 0.0, 0.0)
    theirs = predict_xgpc(sparse, X, X_test, 4.0, LENGTHSCALES, 0.0, 0.0, Z=X)
    for a, b in zip(theirs, ours, strict=True):
        assert relative(a, b) < 1e-8


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 8),
    log_variance=st.floats(-4.0, 6.0),
    noise=st.floats(0.0, 2.0),
    m=st.integers(0, 4),
)
@settings(deadline=None, max_examples=40)
def test_no_sweep_lowers_the_bound_and_no_number_is_lost(seed, n, log_variance, noise, m):
    draw = np.random.default_rng(seed)
    X, y = draw.normal(size=(n, 2)), draw.choice([-1.0, 1.0], size=n)
    Z = 2.0 * draw.normal(size=(m, 2)) if m else None
    variance = math.exp(log_variance)
    jitter = 1e-4 * variance
    fit = fit_xgpc(X, y, variance, LENGTHSCALES, noise, jitter, Z, tolerance=1e-6, max_iterations=300)
    # rounding of a bound of size up to 10: log-determinants at conditions up to 1e5
    assert np.all(np.diff(fit.trace) >= -1e-9)
    assert fit.elbo <= 0.0  # log p(y) <= 0
    assert all(np.all(np.isfinite(part)) for part in fit[:8])
    assert np.all(fit.latent_var > 0.0)
    got = predict_xgpc(fit, X, X[:2], variance, LENGTHSCALES, noise, jitter, Z)
    assert np.all((got.probability >= 0.0) & (got.probability <= 1.0))
    assert np.all(np.abs(got.probability_mass - 1.0) < 1e-11)  # what the quadrature states at most


def test_the_order_of_the_data_does_not_matter(rng):
    X, y = data(rng)
    order = rng.permutation(20)
    a = fit_xgpc(X, y, 2.0, LENGTHSCALES, 0.1, 1e-6, X[:5], tolerance=1e-11)
    b = fit_xgpc(X[order], y[order], 2.0, LENGTHSCALES, 0.1, 1e-6, X[:5], tolerance=1e-11)
    # both within 1e-11 of one fixed point, rounding times a condition below 1e4
    assert relative(b.inducing_mean, a.inducing_mean) < 1e-9
    assert relative(b.c, a.c[order]) < 1e-9
    assert b.elbo == pytest.approx(a.elbo, rel=1e-11, abs=0)


def test_flipping_every_label_flips_the_mean_and_nothing_else(rng):
    X, y = data(rng)
    a, b = (fit_xgpc(X, s * y, 2.0, LENGTHSCALES, 0.1, 1e-6, X[:5]) for s in (1.0, -1.0))
    # the labels enter linearly: the two runs round alike
    np.testing.assert_allclose(b.inducing_mean, -a.inducing_mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(b.inducing_cov, a.inducing_cov, rtol=1e-12, atol=1e-14)
    assert b.elbo == pytest.approx(a.elbo, rel=1e-13, abs=0)


def test_labels_that_cancel_leave_a_zero_mean_and_still_converge():
    X = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    fit = fit_xgpc(X, np.array([1.0, -1.0, 1.0, -1.0]), 2.0, LENGTHSCALES, 0.1, 0.0, Z=X[1:3])
    assert fit.converged
    np.testing.assert_allclose(fit.inducing_mean, 0.0, rtol=0, atol=1e-15)  # rounding of cancelling halves


def test_one_class_is_fitted_and_predicted_as_that_class(rng):
    X, _ = data(rng, n=8)
    fit = fit_xgpc(X, np.ones(8), 4.0, LENGTHSCALES, 0.1, 0.0)
    assert fit.converged
    assert np.all(predict_xgpc(fit, X, X, 4.0, LENGTHSCALES, 0.1, 0.0).probability > 0.5)


def test_far_from_the_data_the_prediction_is_the_prior_with_its_noise(rng):
    X, y = data(rng)
    fit = fit_xgpc(X, y, 2.0, LENGTHSCALES, 0.3, 1e-6, X[:5])
    got = predict_xgpc(fit, X, np.array([[1e3, 1e3]]), 2.0, LENGTHSCALES, 0.3, 1e-6, X[:5])
    # exp of -½ 10⁶ is zero: nothing is left of the data
    assert (got.latent_mean[0], got.latent_var[0]) == (0.0, 2.3)
    assert got.probability[0] == pytest.approx(0.5, rel=0, abs=1e-11)  # the quadrature's error


def test_an_empty_test_set_gives_empty_predictions(rng):
    X, y = data(rng)
    fit = fit_xgpc(X, y, 2.0, LENGTHSCALES, 0.1, 0.0)
    got = predict_xgpc(fit, X, np.empty((0, 2)), 2.0, LENGTHSCALES, 0.1, 0.0)
    assert [part.shape for part in got] == [(0,)] * 4


def test_running_out_of_sweeps_is_said_and_the_callback_sees_each_one(rng):
    X, y = data(rng)
    visited = []
    fit = fit_xgpc(X, y, 50.0, LENGTHSCALES, 0.1, 0.0, max_iterations=4, callback=visited.append)
    assert (fit.converged, fit.iterations, fit.trace.shape) == (False, 4, (4,))
    assert [state.iteration for state in visited] == [1, 2, 3, 4]
    assert [state.elbo for state in visited] == list(fit.trace)
    assert visited[-1].residual == fit.residual


def test_a_condition_beyond_rounding_ends_unconverged_instead_of_running_on(rng):
    X, y = data(rng, n=40)
    fit = fit_xgpc(X, y, 1.0, LENGTHSCALES, 0.0, 1e-10)  # condition about 1e10
    assert not fit.converged
    assert fit.iterations < 2000
    assert 1e-10 < fit.residual < 1e-3


def test_singular_prior_covariances_name_what_to_change(rng):
    X, y = data(rng, n=4)
    twice = X[[0, 0, 1, 2]]
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ \(4, 4\).*raise jitter or remove duplicate rows of Z"):
        fit_xgpc(X, y, 1.0, LENGTHSCALES, 0.5, 0.0, Z=twice)
    with pytest.raises(NotPositiveDefiniteError, match=r"K_XX \(4, 4\).*raise noise or jitter, or remove duplicate"):
        fit_xgpc(twice, y, 1.0, LENGTHSCALES, 0.0, 0.0)


@pytest.mark.parametrize("variance", [0.627, 1.0, 2.011, 2.361, 4.146, 5.277])
def test_equal_rows_are_refused_even_where_rounding_leaves_a_cholesky_factor(variance):
    twice = np.array([[0.0, 0.0], [1.0, -1.0], [2.0, 0.5], [1.0, -1.0]])
    y = np.array([1.0, -1.0, 1.0, 1.0])
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ \(4, 4\): found smallest eigenvalue .* raise jitter"):
        fit_xgpc(twice, y, variance, LENGTHSCALES, 0.5, 0.0, Z=twice)
    with pytest.raises(NotPositiveDefiniteError, match=r"K_XX \(4, 4\): found smallest eigenvalue .* raise noise"):
        fit_xgpc(twice, y, variance, LENGTHSCALES, 0.0, 0.0)


def test_variances_that_rounding_turns_negative_name_the_matrix_to_blame(rng):
    X = np.linspace(0.0, 1.0, 51)[:, None]
    y, one = np.where(X[:, 0] > 0.4, 1.0, -1.0), np.ones(1)
    Z = np.linspace(0.0, 1.0, 13)[:, None]  # with a jitter of 1e-10 a condition of 1e14
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ \(13, 13\): found .*expected .*; raise jitter or remove"):
        fit_xgpc(X, y, 3000.0, one, 0.1, 1e-10, Z)
    Z = np.array([[0.0], [1.0]])
    fit = fit_xgpc(X, y, 3000.0, one, 0.0, 1e-3, Z)
    wrong = fit._replace(inducing_cov=-fit.inducing_cov)  # what a lost Σ would be
    with pytest.raises(
        NotPositiveDefiniteError, match=r"K_ZZ \(2, 2\): found latent variance -.* of X_test by rounding"
    ):
        predict_xgpc(wrong, X, X[:3], 3000.0, one, 0.0, 1e-3, Z)


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_of_a_narrow_prior_are_those_of_its_expansion(rng, sparse):
    X, y = data(rng, n=9)
    X = 2.0 * X
    variance, jitter = 1e-11, 1e-14
    Z = X[:4] + 0.3 if sparse else None
    prior = (variance, LENGTHSCALES, 0.0, jitter)
    got = bound_gradients(fit_xgpc(X, y, *prior, Z), X, y, *prior, Z)

    def k(A, B):
        return np.exp(-0.5 * np.sum(((A[:, None] - B[None]) / LENGTHSCALES) ** 2, axis=2))

    # c -> 0, θ -> ¼: the bound is -n log 2 + ⅛ (yᵀQy - Σ_i k_ii) + O(k²) with Q the prior covariance that u can reach
    if sparse:
        kappa = k(X, Z) @ np.linalg.inv(k(Z, Z) + jitter / variance * np.eye(4))
        Q_derivative = 2.0 * kappa @ k(X, Z).T - kappa @ k(Z, Z) @ kappa.T
        noise_derivative = -9 / 8
    else:
        Q_derivative, noise_derivative = k(X, X), 0.0
    # O(k) is 1e-9, a condition below 1e4 leaves 1e-11; K⁻¹ - K⁻¹ΣK⁻¹ taken as a difference leaves 1e-4 and more
    assert got.variance == pytest.approx((y @ Q_derivative @ y - 9) / 8, rel=0, abs=1e-8)
    assert got.noise == pytest.approx(noise_derivative, rel=0, abs=1e-8)


BAD = [
    ({"X": np.array([[0.0, np.nan], [1.0, 1.0]])}, r"X: found nan at \(0, 1\), expected finite values"),
    ({"X": np.array([[0.0, np.inf], [1.0, 1.0]])}, r"X: found inf at \(0, 1\)"),
    ({"X": np.zeros(2)}, r"X: found shape \(2,\), expected 2 axes"),
    ({"X": np.zeros((0, 2))}, r"X: found shape \(0, 2\), expected at least one row"),
    ({"X": np.array([["a", "b"], ["c", "d"]])}, r"X: found dtype .*, expected real numbers"),
    ({"X": np.ones((2, 2), dtype=complex)}, r"X: found dtype complex128, expected real numbers"),
    ({"X": [[1.0, 2.0], [3.0]]}, r"X: found rows of different lengths"),
    ({"y_sign": np.array([1.0, 0.0])}, r"y_sign: found 0, expected only -1 and \+1"),
    ({"y_sign": np.array([1.0])}, r"y_sign: found shape \(1,\), expected \(2,\)"),
    ({"y_sign": np.array([1.0, np.nan])}, r"y_sign: found nan at \(1,\)"),
    ({"variance": 0.0}, r"variance: found 0, expected > 0"),
    ({"variance": np.inf}, r"variance: found inf"),
    ({"variance": np.ones(1)}, r"variance: found shape \(1,\), expected 0 axes"),
    ({"lengthscales": np.array([1.0, -1.0])}, r"lengthscales: found -1, expected > 0"),
    ({"lengthscales": np.ones(3)}, r"lengthscales: found shape \(3,\), expected \(2,\)"),
    ({"noise": -0.1}, r"noise: found -0.1, expected >= 0"),
    ({"jitter": -1e-9}, r"jitter: found -1e-09, expected >= 0"),
    ({"Z": np.zeros((2, 3))}, r"Z: found 3 columns, expected 2 as in X"),
    ({"Z": np.zeros((0, 2))}, r"Z: found shape \(0, 2\)"),
    ({"tolerance": 0.0}, r"tolerance: found 0.0, expected a number in \(0, 1\)"),
    ({"max_iterations": 0}, r"max_iterations: found 0, expected a whole number >= 1"),
    ({"max_iterations": 2.5}, r"max_iterations: found 2.5"),
    ({"callback": 3}, r"callback: found 3, expected a callable or None"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[f"{next(iter(c))}-{i}" for i, (c, _) in enumerate(BAD)])
def test_bad_input_is_named_with_what_was_found_and_expected(change, message):
    good = {
        "X": np.array([[0.0, 0.0], [1.0, 1.0]]),
        "y_sign": np.array([1.0, -1.0]),
        "variance": 1.0,
        "lengthscales": np.ones(2),
        "noise": 0.1,
        "jitter": 0.0,
    }
    with pytest.raises(ValueError, match=message):
        fit_xgpc(**{**good, **change})


def test_predictions_and_gradients_refuse_a_fit_of_another_size(rng):
    X, y = data(rng, n=6)
    fit = fit_xgpc(X, y, 1.0, LENGTHSCALES, 0.1, 0.0)
    with pytest.raises(ValueError, match=r"fit: found inducing_mean of shape \(6,\), expected \(5,\)"):
        predict_xgpc(fit, X[:5], X, 1.0, LENGTHSCALES, 0.1, 0.0)
    with pytest.raises(ValueError, match=r"fit: found inducing_mean of shape \(6,\), expected \(2,\)"):
        bound_gradients(fit, X, y, 1.0, LENGTHSCALES, 0.1, 0.0, Z=X[:2])
    sparse = fit_xgpc(X, y, 1.0, LENGTHSCALES, 0.1, 0.0, Z=X[:2])
    with pytest.raises(ValueError, match=r"fit: found theta of shape \(6,\), expected \(5,\)"):
        bound_gradients(sparse, X[:5], y[:5], 1.0, LENGTHSCALES, 0.1, 0.0, Z=X[:2])
    with pytest.raises(ValueError, match=r"X_test: found 3 columns, expected 2 as in X"):
        predict_xgpc(fit, X, np.zeros((1, 3)), 1.0, LENGTHSCALES, 0.1, 0.0)
