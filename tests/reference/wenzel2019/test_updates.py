"""Local and global updates of wenzel2019: numerical derivatives and maxima of the bound, and the Fisher matrix."""

from itertools import combinations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from reference.common.errors import NotPositiveDefiniteError
from reference.wenzel2019.bound import xgpc_bound
from reference.wenzel2019.updates import (
    check_positive_definite,
    from_natural,
    gradient_mu,
    gradient_sigma,
    local_curvature,
    local_gradient,
    natural_from_euclidean,
    natural_gradient,
    natural_gradient_minibatch,
    natural_gradient_step,
    to_natural,
    update_eta1,
    update_eta2,
    update_local,
    update_mu,
)

STEP = 6e-6  # about eps^(1/3)


def bound_at(s, mu=None, Sigma=None, c=None):
    """The bound of a model with some of μ, Σ, c replaced."""
    mu, Sigma, c = (s.mu if mu is None else mu), (s.Sigma if Sigma is None else Sigma), (s.c if c is None else c)
    return xgpc_bound(mu, Sigma, c, s.y, s.K_ZZ, s.kappa, s.cond_var)


def derivative_mu(s, mu, Sigma=None):
    """∇_μ L: the bound is quadratic in μ, so central differences with a step of ½ are exact."""
    return np.array([bound_at(s, mu + 0.5 * e, Sigma) - bound_at(s, mu - 0.5 * e, Sigma) for e in np.eye(s.m)])


def derivative_Sigma(s, Sigma, mu=None):
    """∇_Σ L with dL = tr(∇_Σ L dΣ): central differences, off-diagonal pairs moved together."""
    G = np.empty((s.m, s.m))
    for i in range(s.m):
        for j in range(i + 1):
            D = np.zeros((s.m, s.m))
            D[i, j] = D[j, i] = STEP
            change = (bound_at(s, mu, Sigma + D) - bound_at(s, mu, Sigma - D)) / (2 * STEP)
            G[i, j] = G[j, i] = change if i == j else change / 2
    return G


def natural_gradient_by_fisher(s, mu, Sigma):
    """F(η)⁻¹ ∇_η L in the coordinates η₁ and the lower triangle of η₂, all by central differences."""
    rows, columns = np.tril_indices(s.m)

    def moments(eta):
        eta_2 = np.zeros((s.m, s.m))
        eta_2[rows, columns] = eta_2[columns, rows] = eta[s.m :]
        cov = np.linalg.inv(-2 * eta_2)
        return cov @ eta[: s.m], cov

    def expected_statistics(eta):
        mean, cov = moments(eta)
        second = cov + np.outer(mean, mean)
        weight = np.where(rows == columns, 1.0, 2.0)  # uᵀη₂u counts each off-diagonal entry twice
        return np.concatenate([mean, weight * second[rows, columns]])

    precision = np.linalg.inv(Sigma)
    eta = np.concatenate([precision @ mu, -0.5 * precision[rows, columns]])
    steps = STEP * np.eye(len(eta))
    fisher = np.array([(expected_statistics(eta + e) - expected_statistics(eta - e)) / (2 * STEP) for e in steps])
    derivative = np.array(
        [(bound_at(s, *moments(eta + e)) - bound_at(s, *moments(eta - e))) / (2 * STEP) for e in steps]
    )
    natural = np.linalg.solve(fisher, derivative)
    second = np.zeros((s.m, s.m))
    second[rows, columns] = second[columns, rows] = natural[s.m :]
    return natural[: s.m], second


def assert_close_matrices(got, wanted, digits):
    """Entries agree relative to the largest one."""
    np.testing.assert_allclose(got, wanted, rtol=0, atol=digits * np.max(np.abs(wanted)))


@pytest.mark.verifies("wenzel2019", "11", route="numerical maximum of the bound in each tilt")
def test_the_local_update_maximises_the_bound(model):
    got = update_local(model.mu, model.Sigma, model.kappa, model.cond_var)
    for i in range(model.n):

        def loss(tilt, i=i):
            c = model.c.copy()
            c[i] = tilt
            return -bound_at(model, c=c)

        optimum = minimize_scalar(loss, bounds=(1e-3, 20.0), method="bounded", options={"xatol": 1e-10})
        # a maximum is found to the square root of the bound's rounding, 1e-7
        np.testing.assert_allclose(got[i], optimum.x, rtol=1e-5, atol=0)


@pytest.mark.verifies("wenzel2019", "11", route="second moment of q(f_i) by quadrature")
def test_the_local_update_is_the_root_mean_square_of_the_latent_value(model, gaussian_expectation):
    mean = model.kappa @ model.mu
    var = model.cond_var + np.diag(model.kappa @ model.Sigma @ model.kappa.T)
    wanted = [np.sqrt(gaussian_expectation(lambda f: f**2, m, v)) for m, v in zip(mean, var, strict=True)]
    # the quadrature asks for 1e-12
    np.testing.assert_allclose(
        update_local(model.mu, model.Sigma, model.kappa, model.cond_var), wanted, rtol=1e-10, atol=0
    )


def test_a_second_moment_below_zero_is_an_error(model):
    with pytest.raises(ValueError, match=r"cond_var: found E\[f_i\^2\] = -"):
        update_local(model.mu, model.Sigma, model.kappa, model.cond_var - 100.0)


def derivative_in_mpmath(c, A, order):
    """The derivative of the terms of (10) that hold c, with 40 digits."""
    with mpmath.workdps(40):

        def terms(x):
            theta = mpmath.tanh(x / 2) / (2 * x)
            return (-theta * A + x**2 * theta - 2 * mpmath.log(mpmath.cosh(x / 2))) / 2

        return float(mpmath.diff(terms, mpmath.mpf(c), order))


TILTS = np.array([1e-4, 0.02, 0.29, 0.31, 1.0, 3.0, -2.0, 25.0])


@pytest.mark.verifies("wenzel2019", "A.3-local-gradient", route="differentiation in mpmath")
def test_the_local_gradient_is_the_derivative_of_the_bound(make_model):
    s = make_model(8, 3)
    A = s.cond_var + np.diag(s.kappa @ s.Sigma @ s.kappa.T) + (s.kappa @ s.mu) ** 2
    wanted = [derivative_in_mpmath(c, a, 1) for c, a in zip(TILTS, A, strict=True)]
    # near |c| = 0.3 the closed form loses two digits of sixteen
    np.testing.assert_allclose(local_gradient(TILTS, s.mu, s.Sigma, s.kappa, s.cond_var), wanted, rtol=1e-12, atol=0)


@pytest.mark.verifies("wenzel2019", "A.3-local-gradient", route="the product form of the paper, and its two zeros")
def test_the_local_gradient_is_the_product_with_two_zeros(model):
    s = model
    A = s.cond_var + np.diag(s.kappa @ s.Sigma @ s.kappa.T) + (s.kappa @ s.mu) ** 2
    args = (s.mu, s.Sigma, s.kappa, s.cond_var)
    product = 0.5 * (A / s.c - s.c) * (s.theta + s.c**2 * s.theta**2 - 0.25)
    # the product loses digits as c² for small c; here c >= 0.2
    np.testing.assert_allclose(local_gradient(s.c, *args), product, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(local_gradient(np.zeros(s.n), *args), 0.0, rtol=0, atol=0)
    # θ' is below 1/24 · c and c² - A is a rounding of A
    np.testing.assert_allclose(local_gradient(np.sqrt(A), *args), 0.0, rtol=0, atol=1e-14)


@pytest.mark.verifies("wenzel2019", "A.3-local-curvature", route="differentiation in mpmath")
def test_the_local_curvature_is_the_second_derivative_of_the_bound(make_model):
    s = make_model(8, 3)
    A = s.cond_var + np.diag(s.kappa @ s.Sigma @ s.kappa.T) + (s.kappa @ s.mu) ** 2
    wanted = [derivative_in_mpmath(c, a, 2) for c, a in zip(TILTS, A, strict=True)]
    # near |c| = 0.3 the closed form loses three digits of sixteen
    np.testing.assert_allclose(local_curvature(TILTS, s.mu, s.Sigma, s.kappa, s.cond_var), wanted, rtol=1e-11, atol=0)


def test_the_derivatives_in_a_huge_tilt_are_those_of_its_linear_growth(model):
    huge = np.full(model.n, 1e130)
    args = (model.mu, model.Sigma, model.kappa, model.cond_var)
    # the terms with c are -c/4 + log 2/2 - A/(4c): one or two roundings
    np.testing.assert_allclose(local_gradient(huge, *args), -0.25, rtol=1e-14, atol=0)
    assert np.all(np.abs(local_curvature(huge, *args)) < 1e-129)


@pytest.mark.verifies("wenzel2019", "A.3-local-curvature", route="Taylor series of θ at the two zeros")
def test_the_nonzero_zero_is_a_maximum_and_zero_is_a_minimum(model):
    s = model
    A = s.cond_var + np.diag(s.kappa @ s.Sigma @ s.kappa.T) + (s.kappa @ s.mu) ** 2
    args = (s.mu, s.Sigma, s.kappa, s.cond_var)
    assert np.all(local_curvature(np.sqrt(A), *args) < 0.0)
    # θ = ¼ - c²/48 + ..., so the curvature at 0 is A/48
    np.testing.assert_allclose(local_curvature(np.zeros(s.n), *args), A / 48, rtol=1e-12, atol=0)


@pytest.mark.verifies("wenzel2019", "15", route="central differences of the bound, entry by entry")
def test_the_gradient_in_the_covariance_is_the_central_difference(model):
    got = gradient_sigma(model.Sigma, model.theta, model.kappa, model.K_ZZ_inv)
    # rounding of the bound / step = 1e-14 / 1e-5, and step² times a third derivative below 1e2
    assert_close_matrices(got, derivative_Sigma(model, model.Sigma), 1e-7)


@pytest.mark.verifies("wenzel2019", "16", route="exact differences of the quadratic bound")
def test_the_gradient_in_the_mean_is_the_difference_of_the_bound(model):
    got = gradient_mu(model.mu, model.theta, model.kappa, model.y, model.K_ZZ_inv)
    # differences of a quadratic of size 1e3 at most: rounding 1e-13
    assert_close_matrices(got, derivative_mu(model, model.mu), 1e-10)


@pytest.mark.verifies("wenzel2019", "17", route="inverse Fisher matrix times gradient, both by differences")
def test_the_natural_gradient_follows_from_euclidean_gradients(make_model):
    s = make_model(4, 2)
    got = natural_from_euclidean(derivative_mu(s, s.mu), derivative_Sigma(s, s.Sigma), s.mu)
    wanted_1, wanted_2 = natural_gradient_by_fisher(s, s.mu, s.Sigma)
    # differences good to 1e-8, times the condition of the Fisher matrix, below 1e3
    assert_close_matrices(got.eta_1, wanted_1, 1e-5)
    assert_close_matrices(got.eta_2, wanted_2, 1e-5)


@pytest.mark.verifies("wenzel2019", "A.3-natural", route="inverse Fisher matrix times gradient, both by differences")
def test_the_full_natural_gradient_is_fisher_preconditioned(make_model):
    s = make_model(4, 2)
    precision = np.linalg.inv(s.Sigma)
    got = natural_gradient(precision @ s.mu, -0.5 * precision, s.theta, s.kappa, s.y, s.K_ZZ_inv)
    wanted_1, wanted_2 = natural_gradient_by_fisher(s, s.mu, s.Sigma)
    # differences good to 1e-8, times the condition of the Fisher matrix, below 1e3
    assert_close_matrices(got.eta_1, wanted_1, 1e-5)
    assert_close_matrices(got.eta_2, wanted_2, 1e-5)


@pytest.mark.verifies("wenzel2019", "12", route="mean over all mini-batches against the Fisher-preconditioned gradient")
def test_mini_batch_gradients_are_unbiased(make_model):
    s = make_model(4, 2)
    precision = np.linalg.inv(s.Sigma)
    batches = [np.array(batch) for batch in combinations(range(s.n), 2)]
    parts = [
        natural_gradient_minibatch(precision @ s.mu, -0.5 * precision, batch, s.y, s.theta, s.kappa, s.K_ZZ_inv)
        for batch in batches
    ]
    wanted_1, wanted_2 = natural_gradient_by_fisher(s, s.mu, s.Sigma)
    # differences good to 1e-8, times the condition of the Fisher matrix, below 1e3
    assert_close_matrices(np.mean([part.eta_1 for part in parts], axis=0), wanted_1, 1e-5)
    assert_close_matrices(np.mean([part.eta_2 for part in parts], axis=0), wanted_2, 1e-5)


@pytest.mark.verifies("wenzel2019", "12", route="sums written out datum by datum")
def test_a_mini_batch_stands_for_the_whole_data_set_with_weight_n_over_s(model):
    batch = np.array([4, 1])
    eta_1, eta_2 = np.arange(3.0), -np.eye(3)
    wanted_1, wanted_2 = -eta_1, -0.5 * model.K_ZZ_inv - eta_2
    for i in batch:
        wanted_1 = wanted_1 + 6 / 2 * 0.5 * model.y[i] * model.kappa[i]
        wanted_2 = wanted_2 - 6 / 2 * 0.5 * model.theta[i] * np.outer(model.kappa[i], model.kappa[i])
    got = natural_gradient_minibatch(eta_1, eta_2, batch, model.y, model.theta, model.kappa, model.K_ZZ_inv)
    # a handful of additions
    assert_close_matrices(got.eta_1, wanted_1, 1e-13)
    assert_close_matrices(got.eta_2, wanted_2, 1e-13)


@pytest.mark.verifies("wenzel2019", "u4.3-natural-params", route="log density ratio in exponential-family form")
def test_natural_parameters_give_the_gaussian_density_up_to_a_constant(model, rng):
    got = to_natural(model.mu, model.Sigma)
    u = rng.normal(size=(20, 3))
    exponent = u @ got.eta_1 + np.einsum("sm,mp,sp->s", u, got.eta_2, u)
    gap = multivariate_normal.logpdf(u, model.mu, model.Sigma) - exponent
    # log densities below 100, condition of Σ below 100
    np.testing.assert_allclose(gap, gap[0], rtol=0, atol=1e-11)


@pytest.mark.verifies("wenzel2019", "u4.3-natural-params", route="log density ratio in exponential-family form")
def test_moments_from_natural_parameters_have_the_exponential_family_density(rng):
    root = rng.normal(size=(3, 3))
    eta_1, eta_2 = rng.normal(size=3), -(root @ root.T + 0.5 * np.eye(3))
    got = from_natural(eta_1, eta_2)
    u = rng.normal(size=(20, 3))
    gap = multivariate_normal.logpdf(u, got.inducing_mean, got.inducing_cov)
    gap = gap - u @ eta_1 - np.einsum("sm,mp,sp->s", u, eta_2, u)
    # log densities below 100, condition below 100
    np.testing.assert_allclose(gap, gap[0], rtol=0, atol=1e-11)


def test_natural_parameters_without_a_gaussian_are_refused():
    with pytest.raises(NotPositiveDefiniteError, match=r"-2 eta_2 \(2, 2\): found smallest eigenvalue -2"):
        from_natural(np.zeros(2), np.diag([-1.0, 1.0]))


@pytest.mark.verifies("wenzel2019", "u4.3-step", route="entry by entry")
@pytest.mark.parametrize("rate", [0.01, 0.6, 1.0])
def test_a_step_moves_each_entry_by_the_rate_times_the_gradient(rate):
    eta_1, eta_2 = np.array([1.0, -2.0]), np.array([[-3.0, 0.5], [0.5, -1.0]])
    grad_1, grad_2 = np.array([0.7, 4.0]), np.array([[0.1, -0.2], [-0.2, -5.0]])
    got = natural_gradient_step(eta_1, eta_2, grad_1, grad_2, rate)
    for i in range(2):
        assert got.eta_1[i] == pytest.approx(eta_1[i] + rate * grad_1[i], rel=1e-15, abs=1e-15)
        for j in range(2):
            assert got.eta_2[i, j] == pytest.approx(eta_2[i, j] + rate * grad_2[i, j], rel=1e-15, abs=1e-15)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, float("nan")])
def test_a_rate_outside_the_unit_interval_is_refused(rate):
    with pytest.raises(ValueError, match=r"rate: found .*, expected a number in \(0, 1\]"):
        natural_gradient_step(np.zeros(1), -np.eye(1), np.zeros(1), np.zeros((1, 1)), rate)


@pytest.mark.verifies("wenzel2019", "u4.3-posdef", route="dense inverse and eigenvalues of the mixed precision")
@pytest.mark.parametrize("rate", [0.05, 0.5, 1.0])
def test_the_smallest_eigenvalue_after_a_step_is_that_of_the_mixed_precision(model, rate):
    batch = np.array([0, 3, 5])
    precision = (1 - rate) * np.linalg.inv(model.Sigma) + rate * model.K_ZZ_inv
    for i in batch:
        precision = precision + rate * 2.0 * model.theta[i] * np.outer(model.kappa[i], model.kappa[i])
    wanted = np.min(np.linalg.eigvalsh(np.linalg.inv(precision)))
    eta_2 = -0.5 * np.linalg.inv(model.Sigma)
    got = check_positive_definite(eta_2, batch, model.theta, model.kappa, model.K_ZZ_inv, rate)
    # condition of the precision below 1e3
    np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=0)


@given(seed=st.integers(0, 2**32 - 1), rate=st.floats(1e-3, 1.0), scale=st.floats(1e-3, 1e3))
@settings(deadline=None, max_examples=50)
def test_the_covariance_stays_positive_definite_whatever_the_step(seed, rate, scale):
    draw = np.random.default_rng(seed)
    root, prior = draw.normal(size=(3, 3)), draw.normal(size=(3, 3))
    eta_2 = -0.5 * scale * (root @ root.T + 1e-3 * np.eye(3))
    K_ZZ_inv = prior @ prior.T + 1e-3 * np.eye(3)
    theta, kappa = draw.uniform(1e-3, 0.25, size=5), scale * draw.normal(size=(5, 3))
    assert check_positive_definite(eta_2, np.array([0, 4]), theta, kappa, K_ZZ_inv, rate) > 0.0


def numerical_maximum_in_mu(s, Sigma):
    """The μ that maximises the bound: one Newton step on exact differences of a quadratic."""
    start = derivative_mu(s, np.zeros(s.m), Sigma)
    curvature = np.array([derivative_mu(s, e, Sigma) - start for e in np.eye(s.m)])
    return -np.linalg.solve(curvature, start)


@pytest.mark.verifies("wenzel2019", "18", route="numerical gradient of the bound vanishes")
def test_the_second_natural_parameter_is_where_the_gradient_in_the_covariance_vanishes(model):
    Sigma = np.linalg.inv(-2.0 * update_eta2(model.theta, model.kappa, model.K_ZZ_inv))
    gradient = derivative_Sigma(model, Sigma)
    # differences of the bound leave 1e-8 where terms of size |K_ZZ⁻¹| cancel; changing η₂ by 1e-3 would leave 1e-3
    assert np.max(np.abs(gradient)) < 1e-6 * np.max(np.abs(model.K_ZZ_inv))


@pytest.mark.verifies("wenzel2019", "A.4-mu", route="numerical maximum of the bound")
def test_the_mean_is_the_numerical_maximum(model):
    got = update_mu(model.theta, model.kappa, model.y, model.K_ZZ_inv)
    # exact differences up to rounding 1e-13, condition below 1e3
    assert_close_matrices(got, numerical_maximum_in_mu(model, model.Sigma), 1e-9)


@pytest.mark.verifies("wenzel2019", "A.4-eta1", route="numerical maximum of the bound")
def test_the_first_natural_parameter_is_precision_times_the_numerical_maximum(model):
    precision = model.K_ZZ_inv + model.kappa.T @ np.diag(model.theta) @ model.kappa
    mu = numerical_maximum_in_mu(model, np.linalg.inv(precision))
    # exact differences up to rounding 1e-13, condition below 1e3
    assert_close_matrices(update_eta1(model.kappa, model.y), precision @ mu, 1e-9)


@pytest.mark.verifies("wenzel2019", "A.4-eta1", route="a natural-gradient step of rate one ends there")
def test_a_step_of_rate_one_is_coordinate_ascent(model):
    eta = to_natural(model.mu, model.Sigma)
    gradient = natural_gradient(*eta, model.theta, model.kappa, model.y, model.K_ZZ_inv)
    stepped = natural_gradient_step(*eta, *gradient, 1.0)
    # one subtraction and one addition of the same number
    assert_close_matrices(update_eta1(model.kappa, model.y), stepped.eta_1, 1e-12)
    assert_close_matrices(update_eta2(model.theta, model.kappa, model.K_ZZ_inv), stepped.eta_2, 1e-12)
