"""The bound (11), its terms and its gradient: quadrature, dense Gaussians, differences."""

import mpmath
import numpy as np
import pytest
from scipy.special import log_ndtr

from reference.common.logistic_expectation import expect_log_sigmoid
from reference.izmailov2016 import _prior
from reference.izmailov2016.bound import (
    elbo,
    elbo_gradient,
    expected_log_likelihood,
    gauss_hermite_expectation,
    kl_gaussian,
    kl_joint,
)
from reference.izmailov2016.model import Prior


def log_sigmoid(f):
    return -np.logaddexp(0.0, -f)


def divergence(s):
    """KL of q(u) and prior, from eigenvalues of K⁻¹Σ."""
    values = np.linalg.eigvals(np.linalg.solve(s.K_ZZ, s.Sigma)).real
    return 0.5 * (np.sum(values - np.log(values) - 1.0) + s.mu @ np.linalg.solve(s.K_ZZ, s.mu))


@pytest.mark.verifies("izmailov2016", "u3.1-ell-sum", route="adaptive quadrature of each marginal")
@pytest.mark.parametrize(("likelihood", "log_p"), [("logit", log_sigmoid), ("probit", log_ndtr)])
def test_the_expected_log_likelihood_is_a_sum_of_integrals(model, expectation, likelihood, log_p):
    s = model
    wanted = sum(expectation(lambda f, i=i: log_p(s.y[i] * f), s.mean[i], s.var[i]) for i in range(s.n))
    # the quadrature asks for 1e-12
    assert expected_log_likelihood(s.mean, s.var, s.y, likelihood) == pytest.approx(wanted, rel=1e-11, abs=0)


@pytest.mark.verifies("izmailov2016", "u3.1-kl-gauss", "u3.1-kl-collapse", route="eigenvalues of the pencil (Σ, K)")
def test_the_joint_divergence_collapses_to_that_of_u(model):
    s = model
    # conditions below 1e4
    assert kl_gaussian(s.mu, s.Sigma, s.K_ZZ) == pytest.approx(divergence(s), rel=1e-10, abs=0)
    assert kl_joint(s.mu, s.Sigma, s.K_ZZ, s.K_XZ, s.K_XX) == pytest.approx(divergence(s), rel=1e-9, abs=0)


def test_the_divergence_is_zero_at_the_prior(model):
    assert kl_gaussian(np.zeros(model.m), model.K_ZZ, model.K_ZZ) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.verifies("izmailov2016", "11", route="adaptive quadrature minus eigenvalues of the pencil")
@pytest.mark.parametrize(("likelihood", "log_p"), [("logit", log_sigmoid), ("probit", log_ndtr)])
def test_the_bound_is_its_definition(model, expectation, likelihood, log_p):
    s = model
    data = sum(expectation(lambda f, i=i: log_p(s.y[i] * f), s.mean[i], s.var[i]) for i in range(s.n))
    # the quadrature asks for 1e-12, conditions below 1e4
    assert elbo(s.mu, s.Sigma, s.y, *s.K, likelihood) == pytest.approx(data - divergence(s), rel=1e-10, abs=0)


def test_saturated_labels_do_not_overflow(model):
    s = model
    far = 1e4 * np.linalg.solve(s.kappa.T @ s.kappa + 1e-9 * np.eye(s.m), s.kappa.T @ s.y)
    assert np.max(np.abs(s.kappa @ far)) > 700
    assert np.isfinite(elbo(far, s.Sigma, s.y, *s.K))
    got = elbo_gradient(far, s.L, s.y, *s.K)
    assert all(np.all(np.isfinite(part)) for part in (*got[:3], *got.derivatives))


@pytest.mark.verifies("izmailov2016", "u3.2-quadrature", route="adaptive quadrature")
def test_gauss_hermite_converges_to_the_expectation(model, expectation):
    s = model
    wanted = [expectation(lambda f, i=i: log_sigmoid(s.y[i] * f), s.mean[i], s.var[i]) for i in range(s.n)]
    got = {k: gauss_hermite_expectation(s.mean, s.var, s.y, k) for k in (5, 20, 100)}
    # poles at distance π: 100 nodes leave 1e-10 at variances below 4
    np.testing.assert_allclose(got[100], wanted, rtol=0, atol=1e-9)
    errors = [np.max(np.abs(got[k] - wanted)) for k in (5, 20, 100)]
    assert errors[0] > 10 * errors[1] > 100 * errors[2]


@pytest.mark.parametrize(
    ("mean", "var"), [(0.0, 1.0), (-2.0, 4.0), (30.0, 1.0), (30.0, 100.0), (5.0, 400.0), (100.0, 1e4)]
)
def test_the_expectations_of_this_package_have_relative_accuracy(mean, var):
    with mpmath.workdps(25):
        sd = mpmath.sqrt(var)
        low = -min(sd, max(mean / sd, 0)) - 14
        edges = sorted(
            {low, *(p for p in (-3, 0, 3, -mean / sd - 10 / sd, -mean / sd, -mean / sd + 10 / sd) if low < p < 14)}
        )
        wanted = [
            float(mpmath.quad(lambda t, g=g: mpmath.npdf(t) * g(mean + sd * t), [*edges, 14]))
            for g in (
                lambda z: -mpmath.log1p(mpmath.exp(-z)),
                lambda z: 1 / (1 + mpmath.exp(z)),
                lambda z: -1 / (2 + mpmath.exp(z) + mpmath.exp(-z)),
            )
        ]
    got = expect_log_sigmoid(np.array([mean]), np.array([var]))
    # stated: 1e-13
    np.testing.assert_allclose(np.ravel(got), wanted, rtol=1e-12, atol=0)


@pytest.mark.parametrize("latent_var", [-1.0, np.nan, np.inf])
def test_a_variance_that_is_none_is_refused(latent_var):
    with pytest.raises(ValueError, match=r"latent_var: found"):
        expect_log_sigmoid(np.zeros(1), np.array([latent_var]))


@pytest.mark.verifies("izmailov2016", "u3.2-svi-gradient", route="central differences")
@pytest.mark.parametrize(("likelihood", "weight"), [("logit", 1.0), ("probit", 2.5)])
def test_the_gradient_is_that_of_the_bound(model, gradients_of, likelihood, weight):
    s = model
    got = elbo_gradient(s.mu, s.L, s.y, *s.K, weight, likelihood)

    def value(mu=s.mu, Sigma=s.Sigma, K_ZZ=s.K_ZZ, K_XZ=s.K_XZ, k_xx=s.k_xx):
        kl = kl_gaussian(mu, Sigma, K_ZZ)
        return weight * (elbo(mu, Sigma, s.y, K_ZZ, K_XZ, k_xx, likelihood) + kl) - kl

    def even(function, where):
        """Differences along symmetric moves of a matrix."""
        values = np.empty(where.shape)
        for i, j in np.ndindex(where.shape):
            move = np.zeros(where.shape)
            move[i, j] = move[j, i] = 6e-6
            # a pair of entries moves off the diagonal
            values[i, j] = (function(where + move) - function(where - move)) / 12e-6 / (1.0 if i == j else 2.0)
        return values

    wanted = (
        gradients_of(lambda mu: value(mu=mu), s.mu),
        even(lambda Sigma: value(Sigma=Sigma), s.Sigma),
        np.tril(gradients_of(lambda L: value(Sigma=np.tril(L) @ np.tril(L).T), s.L)),
    )
    for values, right in zip(got[:3], wanted, strict=True):
        # step² times third derivatives of size 100, and rounding of 1e-12 over the step
        np.testing.assert_allclose(values, right, rtol=0, atol=1e-6)
    by_mm = 0.5 * (got.derivatives.by_mm + got.derivatives.by_mm.T)
    np.testing.assert_allclose(by_mm, even(lambda K: value(K_ZZ=K), s.K_ZZ), rtol=0, atol=1e-5)
    np.testing.assert_allclose(got.derivatives.by_nm, gradients_of(lambda K: value(K_XZ=K), s.K_XZ), rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        got.derivatives.by_diagonal, gradients_of(lambda k: value(k_xx=k), s.k_xx), rtol=0, atol=1e-7
    )


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(("kernel", "nu"), [("se", None), ("matern", 1.7)])
def test_derivatives_pass_through_the_kernel(rng, model, gradients_of, sparse, kernel, nu):
    hyper = Prior(1.6, np.array([0.9, 1.3]), 0.2, 0.05, model.Z if sparse else None, kernel, nu)
    m = model.m if sparse else model.n
    mu, L = 0.5 * rng.normal(size=m), np.eye(m) + 0.1 * np.tril(rng.normal(size=(m, m)))
    K = _prior.matrices(model.X, hyper)
    got = _prior.through_kernel(elbo_gradient(mu, L, model.y, *K).derivatives, model.X, hyper)
    assert set(got) == {"variance", "lengthscales", "noise"} | ({"Z"} if sparse else set())
    for field, derivative in got.items():

        def value(v, field=field):
            return elbo(mu, L @ L.T, model.y, *_prior.matrices(model.X, hyper._replace(**{field: v})))

        # step² times third derivatives of size 100
        np.testing.assert_allclose(derivative, gradients_of(value, getattr(hyper, field)), rtol=0, atol=1e-6)


def test_derivatives_at_the_maximum_are_those_at_any_q_where_nothing_cancels():
    from reference.izmailov2016.bound import elbo_gradients_at_maximum
    from reference.izmailov2016.fit import fit_vi

    rng = np.random.default_rng(6)
    X, y_sign = rng.standard_normal((9, 2)), np.where(rng.uniform(size=9) < 0.5, -1.0, 1.0)
    hyper = Prior(1.7, np.array([0.8, 1.3]), 0.3, 1e-2, rng.standard_normal((3, 2)))
    fit = fit_vi("svi", X, y_sign, hyper, tolerance=1e-13)
    K = _prior.matrices(X, hyper)
    L = np.linalg.cholesky(fit.inducing_cov)
    plain = elbo_gradient(fit.inducing_mean, L, y_sign, *K).derivatives
    stable = elbo_gradients_at_maximum(fit.inducing_mean, fit.inducing_cov, y_sign, *K)
    for name, value in plain._asdict().items():
        # both are exact where q is the maximum, which is known to 1e-13; entries of K^-1 are below 1e2
        np.testing.assert_allclose(getattr(stable, name), value, rtol=0, atol=1e-9 * np.abs(value).max(), err_msg=name)
