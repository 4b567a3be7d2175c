"""The bound of wenzel2019, its pieces and its family: (8), (9), (10), A.2, each from its definition."""

import math

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.linalg import eigh
from scipy.stats import multivariate_normal, norm

from reference.common.errors import NotPositiveDefiniteError
from reference.wenzel2019.bound import (
    assemble_bound,
    conditional_jensen_bound,
    evidence_bound_chain,
    expected_conditional_loglik,
    expected_loglik,
    kl_inducing,
    kl_polya_gamma,
    theta_and_kappa,
    variational_family,
    xgpc_bound,
)
from reference.wenzel2019.errata import (
    expected_loglik_as_printed,
    xgpc_bound_as_extracted,
    xgpc_bound_as_printed,
)
from reference.wenzel2019.fit import fit_xgpc
from validation.ledger.numbers import assert_recorded

FORMS = [xgpc_bound, evidence_bound_chain, lambda *state: assemble_bound(*state).elbo]


def log_gaussian_mixture(y, omega, mean, cov):
    """log ∫ Π ½ exp(y f/2 - ω f²/2) N(f|mean, cov) df by dense algebra."""
    Omega = np.diag(omega)
    pull = 0.5 * y - Omega @ mean
    spread = cov @ np.linalg.inv(np.eye(len(y)) + Omega @ cov)
    log_det = np.linalg.slogdet(np.eye(len(y)) + cov @ Omega)[1]
    level = 0.5 * y @ mean - 0.5 * mean @ Omega @ mean
    return level + 0.5 * pull @ spread @ pull - 0.5 * log_det - len(y) * math.log(2)


def log_factor(y, omega, f):
    """log p(y|ω, f) of one datum."""
    return math.log(0.5 * math.exp(0.5 * y * f - 0.5 * omega * f**2))


def expected_loglik_by_quadrature(s, theta, gaussian_expectation):
    """Σ_i E[log p(y_i|ω_i, f_i)] with f_i from its marginal q(f_i); linear in ω_i, whose mean stands for it."""
    var = s.cond_var + np.diag(s.kappa @ s.Sigma @ s.kappa.T)
    mean = s.kappa @ s.mu
    return sum(
        gaussian_expectation(lambda f, i=i: log_factor(s.y[i], theta[i], f), mean[i], var[i]) for i in range(s.n)
    )


@pytest.mark.verifies("wenzel2019", "8", route="quadrature over each p(f_i|u)")
def test_the_jensen_bound_is_the_expected_log_likelihood_of_each_datum(model, gaussian_expectation):
    mean = model.kappa @ model.u
    wanted = sum(
        gaussian_expectation(lambda f, i=i: log_factor(model.y[i], model.omega[i], f), mean[i], model.cond_var[i])
        for i in range(model.n)
    )
    got = conditional_jensen_bound(model.u, model.omega, model.y, model.kappa, model.cond_var)
    # the quadrature asks for 1e-12
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=0)


@pytest.mark.verifies("wenzel2019", "8", route="exact log p(y|ω, u) by dense algebra, inequality and equality")
def test_the_jensen_bound_lies_below_and_touches_where_nothing_is_left_of_the_prior(model):
    exact = log_gaussian_mixture(model.y, model.omega, model.kappa @ model.u, model.K_tilde)
    assert conditional_jensen_bound(model.u, model.omega, model.y, model.kappa, model.cond_var) < exact
    nothing = np.zeros(model.n)
    at_equality = log_gaussian_mixture(model.y, model.omega, model.kappa @ model.u, np.diag(nothing))
    got = conditional_jensen_bound(model.u, model.omega, model.y, model.kappa, nothing)
    # sums of some ten terms of size 1
    np.testing.assert_allclose(got, at_equality, rtol=1e-12, atol=0)


@pytest.mark.verifies("wenzel2019", "A.2-likelihood", route="quadrature over each p(f_i|u)")
def test_the_matrix_form_is_the_expected_log_likelihood_of_each_datum(model, gaussian_expectation):
    mean = model.kappa @ model.u
    wanted = sum(
        gaussian_expectation(lambda f, i=i: log_factor(model.y[i], model.omega[i], f), mean[i], model.cond_var[i])
        for i in range(model.n)
    )
    got = expected_conditional_loglik(model.u, model.omega, model.y, model.K_ZZ, model.K_XZ, model.K_XX)
    # the quadrature asks for 1e-12
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=0)


@pytest.mark.verifies("wenzel2019", "A.2-expectation", route="quadrature over q(f_i) and over PG(1, c_i)")
def test_the_expected_log_likelihood_is_the_mean_over_latent_values_and_omega(
    model, gaussian_expectation, pg_expectation
):
    theta = [pg_expectation(lambda w: w, c) for c in model.c]
    wanted = expected_loglik_by_quadrature(model, theta, gaussian_expectation)
    got = expected_loglik(model.mu, model.Sigma, model.c, model.y, model.kappa, model.cond_var)
    # both quadratures ask for 1e-12
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=0)


@pytest.mark.verifies(
    "wenzel2019", "A.2-expectation", route="quadrature over q(f_i) and over PG(1, c_i), PG(1, 0)", printed=True
)
def test_the_mean_of_omega_is_taken_under_q_and_not_under_p(model, gaussian_expectation, pg_expectation):
    args = (model.mu, model.Sigma, model.c, model.y, model.kappa, model.cond_var)
    under_q = [pg_expectation(lambda w: w, c) for c in model.c]
    under_p = [pg_expectation(lambda w: w, 0.0) for _ in model.c]
    right = expected_loglik_by_quadrature(model, under_q, gaussian_expectation)
    wrong = expected_loglik_by_quadrature(model, under_p, gaussian_expectation)
    # both quadratures ask for 1e-12
    np.testing.assert_allclose(expected_loglik(*args), right, rtol=1e-9, atol=0)
    np.testing.assert_allclose(expected_loglik_as_printed(*args), wrong, rtol=1e-9, atol=0)
    assert abs(expected_loglik_as_printed(*args) - right) > 0.1  # tilts of 0.2 to 4 move θ from 0.25 to 0.12
    assert_recorded("wenzel2019", "A.2-expectation", right, wrong)


@pytest.mark.verifies("wenzel2019", "A.2-kl-gauss", route="simultaneous diagonalisation")
def test_the_gaussian_divergence_is_that_of_independent_ratios_of_variances(model):
    ratios, basis = eigh(model.Sigma, model.K_ZZ)  # basisᵀ K basis = I, basisᵀ Σ basis = diag(ratios)
    shift = basis.T @ model.mu
    wanted = 0.5 * np.sum(ratios - 1.0 - np.log(ratios) + shift**2)
    # condition of K_ZZ below 1e3
    np.testing.assert_allclose(kl_inducing(model.mu, model.Sigma, model.K_ZZ), wanted, rtol=1e-11, atol=0)


@pytest.mark.verifies("wenzel2019", "A.2-kl-gauss", route="definition by adaptive quadrature in one dimension")
def test_the_gaussian_divergence_is_the_mean_log_ratio(gaussian_expectation):
    mean, var, prior = 0.7, 0.4, 2.1
    wanted = gaussian_expectation(
        lambda u: norm.logpdf(u, mean, math.sqrt(var)) - norm.logpdf(u, 0.0, math.sqrt(prior)), mean, var
    )
    got = kl_inducing(np.array([mean]), np.array([[var]]), np.array([[prior]]))
    # the quadrature asks for 1e-12
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=0)


def test_the_gaussian_divergence_of_the_prior_from_itself_is_zero(model):
    # trace, quadratic form and log-determinants cancel: rounding times a condition below 1e3
    assert kl_inducing(np.zeros(model.m), model.K_ZZ, model.K_ZZ) == pytest.approx(0.0, abs=1e-11)


@pytest.mark.verifies("wenzel2019", "A.2-kl-pg", route="definition by quadrature over the density's series")
def test_the_polya_gamma_divergence_is_the_mean_log_ratio(pg_integral, pg_expectation):
    c = np.array([0.4, 2.0, 7.0])
    wanted = 0.0
    for one in c:
        mass = pg_integral(lambda w, one=one: np.exp(-0.5 * one**2 * w))
        wanted += pg_expectation(lambda w, one=one, mass=mass: -0.5 * one**2 * w - math.log(mass), one)
    # quadratures of relative accuracy 1e-12 on terms below 10
    np.testing.assert_allclose(kl_polya_gamma(c), wanted, rtol=1e-9, atol=0)
    assert kl_polya_gamma(np.zeros(3)) == 0.0


@pytest.mark.verifies("wenzel2019", "A.2-total", route="each term by its own quadrature, one inducing point")
@pytest.mark.verifies("wenzel2019", "10", route="each term by its own quadrature, one inducing point")
@pytest.mark.verifies("wenzel2019", "u4.2-elbo-chain", route="each term by its own quadrature, one inducing point")
def test_the_bound_is_its_definition_term_by_term(make_model, gaussian_expectation, pg_integral, pg_expectation):
    s = make_model(2, 1)
    mu, var, prior = s.mu[0], s.Sigma[0, 0], s.K_ZZ[0, 0]
    loglik = expected_loglik_by_quadrature(s, [pg_expectation(lambda w: w, c) for c in s.c], gaussian_expectation)
    kl_u = gaussian_expectation(
        lambda u: norm.logpdf(u, mu, math.sqrt(var)) - norm.logpdf(u, 0.0, math.sqrt(prior)), mu, var
    )
    kl_omega = 0.0
    for c in s.c:
        mass = pg_integral(lambda w, c=c: np.exp(-0.5 * c**2 * w))
        kl_omega += pg_expectation(lambda w, c=c, mass=mass: -0.5 * c**2 * w - math.log(mass), c)
    got = assemble_bound(*s.state)
    # quadratures of relative accuracy 1e-12 on terms below 10
    np.testing.assert_allclose(got, [loglik, kl_u, kl_omega, loglik - kl_u - kl_omega], rtol=1e-9, atol=0)
    for form in FORMS:
        np.testing.assert_allclose(form(*s.state), loglik - kl_u - kl_omega, rtol=1e-9, atol=0)


@pytest.mark.verifies("wenzel2019", "A.2-total", route="marginals q(f_i) and scipy's Gaussian densities")
@pytest.mark.verifies("wenzel2019", "10", route="marginals q(f_i) and scipy's Gaussian densities")
@pytest.mark.verifies("wenzel2019", "u4.2-elbo-chain", route="marginals q(f_i) and scipy's Gaussian densities")
def test_the_bound_with_several_inducing_points_is_its_definition(model, gaussian_expectation):
    s = model
    loglik = expected_loglik_by_quadrature(s, s.theta, gaussian_expectation)
    # E_q[log q - log p]: the difference is quadratic in u, so 2m symmetric points give it exactly
    root = math.sqrt(s.m) * np.linalg.cholesky(s.Sigma).T
    log_ratio = [
        multivariate_normal.logpdf(u, s.mu, s.Sigma) - multivariate_normal.logpdf(u, np.zeros(s.m), s.K_ZZ)
        for u in np.concatenate([s.mu + root, s.mu - root])
    ]
    kl_omega = np.sum(np.log(np.cosh(s.c / 2)) - s.c * np.tanh(s.c / 2) / 4)
    wanted = loglik - np.mean(log_ratio) - kl_omega
    for form in FORMS:
        # the quadrature asks for 1e-12, the condition of K_ZZ is below 1e3
        np.testing.assert_allclose(form(*s.state), wanted, rtol=1e-9, atol=0)


@pytest.mark.verifies("wenzel2019", "10", route="marginals q(f_i) by quadrature", printed=True)
def test_the_signs_of_the_printed_bound_are_wrong_with_and_without_a_bracket(model, gaussian_expectation):
    s = model
    loglik = expected_loglik_by_quadrature(s, s.theta, gaussian_expectation)
    kl_omega = np.sum(np.log(np.cosh(s.c / 2)) - s.c * np.tanh(s.c / 2) / 4)
    ratios, basis = eigh(s.Sigma, s.K_ZZ)
    kl_u = 0.5 * np.sum(ratios - 1.0 - np.log(ratios) + (basis.T @ s.mu) ** 2)
    wanted = loglik - kl_u - kl_omega
    moved = np.diag(s.kappa @ s.Sigma @ s.kappa.T) + (s.kappa @ s.mu) ** 2
    # the quadrature asks for 1e-12, the condition of K_ZZ is below 1e3
    np.testing.assert_allclose(xgpc_bound(*s.state), wanted, rtol=1e-9, atol=0)
    # the printed forms miss by exactly what their signs, or the missing θ_i, amount to
    np.testing.assert_allclose(xgpc_bound_as_printed(*s.state), wanted + np.sum(s.theta * moved), rtol=1e-9, atol=0)
    np.testing.assert_allclose(
        xgpc_bound_as_extracted(*s.state), wanted - 0.5 * np.sum((1.0 - s.theta) * moved), rtol=1e-9, atol=0
    )
    assert np.sum(s.theta * moved) > 0.1
    assert np.sum((1.0 - s.theta) * moved) > 0.1
    assert_recorded("wenzel2019", "10", wanted, xgpc_bound_as_printed(*s.state), xgpc_bound_as_extracted(*s.state))
    # the half ends behind log |K_mm|, where the text has a bracket that nothing opens
    log_dets = np.linalg.slogdet(s.Sigma)[1] - np.linalg.slogdet(s.K_ZZ)[1]
    constants = 0.5 * len(s.mu) - len(s.y) * math.log(2)
    assert_recorded(
        "wenzel2019", "slip-11", wanted, 0.5 * log_dets + 2.0 * (wanted - constants - 0.5 * log_dets) + constants
    )


def test_the_printed_bound_can_exceed_the_evidence():
    X, y, lengthscales = np.array([[0.0]]), np.array([1.0]), np.array([1.0])
    fit = fit_xgpc(X, y, 4.0, lengthscales, 0.0, 0.0)
    state = (fit.inducing_mean, fit.inducing_cov, fit.c, y, np.array([[4.0]]), np.eye(1), np.zeros(1))
    assert xgpc_bound(*state) < math.log(0.5) < xgpc_bound_as_printed(*state)  # p(y) = ½ by symmetry


@pytest.mark.verifies("wenzel2019", "u4.2-elbo-chain", route="first inequality by quadrature, equality at K̃ = 0")
def test_the_second_step_of_the_chain_costs_nothing_where_inducing_values_fix_the_latent_ones(
    make_model, pg_expectation
):
    s = make_model(1, 1)

    def first_bound(cond_var):
        """E_{q(u)q(ω)}[log p(y|ω, u)] - KL, the middle line of the chain, for one datum."""

        steps = s.mu[0] + math.sqrt(s.Sigma[0, 0]) * np.array([-1.0, 1.0])

        def inner(w):  # log p(y|ω, u) is quadratic in u: its mean over ± one standard deviation is exact
            at = [log_gaussian_mixture(s.y, np.array([w]), s.kappa[0] * u, np.diag(cond_var)) for u in steps]
            return 0.5 * sum(at)

        kl = kl_inducing(s.mu, s.Sigma, s.K_ZZ) + np.log(np.cosh(s.c[0] / 2)) - s.c[0] * np.tanh(s.c[0] / 2) / 4
        return pg_expectation(inner, s.c[0]) - kl

    # the quadrature asks for 1e-12
    got = evidence_bound_chain(s.mu, s.Sigma, s.c, s.y, s.K_ZZ, s.kappa, np.zeros(1))
    np.testing.assert_allclose(got, first_bound(np.zeros(1)), rtol=1e-9, atol=0)
    assert evidence_bound_chain(*s.state) < first_bound(s.cond_var) - 1e-4


@pytest.mark.verifies("wenzel2019", "u4.2-theta", route="quadrature over the density's series; dense solve")
def test_theta_is_the_mean_of_omega_and_kappa_solves_with_the_prior_covariance(model, pg_expectation):
    c = np.array([0.0, 5e-324, 1e-5, 0.3, 2.0, 8.0, 30.0])
    got = theta_and_kappa(c, model.K_XZ, model.K_ZZ)
    # two quadratures of relative accuracy 1e-12
    np.testing.assert_allclose(got.theta, [pg_expectation(lambda w: w, one) for one in c], rtol=1e-10, atol=0)
    # condition of K_ZZ below 1e3
    np.testing.assert_allclose(got.upsilon @ model.K_ZZ, model.K_XZ, rtol=0, atol=1e-11)


@pytest.mark.verifies("wenzel2019", "9", route="normalisation by quadrature over u and ω")
def test_the_family_is_a_normalised_density(make_model, pg_integral):
    s = make_model(1, 1)
    step = 0.75 * math.sqrt(s.Sigma[0, 0])
    grid = s.mu[0] + step * np.arange(-12, 13)

    def over_u(w):
        omega = np.array([w])
        return step * sum(math.exp(variational_family(np.array([u]), omega, s.mu, s.Sigma, s.c)) for u in grid)

    # the trapezoidal rule with a step of ¾ deviation leaves exp(-2π²/0.75²) = 6e-16 for a Gaussian; the outer
    # quadrature asks for 1e-12
    np.testing.assert_allclose(pg_integral(over_u), 1.0, rtol=0, atol=1e-9)


@pytest.mark.verifies("wenzel2019", "9", route="free-form optimum of the mean field at the fixed point")
def test_the_family_holds_the_free_form_optimum(model, rng, gaussian_expectation):
    s = model
    c = s.c
    for _ in range(300):  # coordinate ascent written out with dense inverses
        theta = np.tanh(c / 2) / (2 * c)
        Sigma = np.linalg.inv(s.K_ZZ_inv + s.kappa.T @ np.diag(theta) @ s.kappa)
        mu = Sigma @ s.kappa.T @ s.y / 2
        c = np.sqrt(s.cond_var + np.diag(s.kappa @ Sigma @ s.kappa.T) + (s.kappa @ mu) ** 2)
    theta = np.tanh(c / 2) / (2 * c)

    def free_form(u, omega):
        """log q*(u) + log q*(ω)/PG(ω|1, 0), up to constants: expected log joint under the other factor."""
        mean = s.kappa @ u
        about_u = np.sum(s.y * mean / 2 - theta * mean**2 / 2) - 0.5 * u @ s.K_ZZ_inv @ u
        var = s.cond_var + np.diag(s.kappa @ Sigma @ s.kappa.T)
        second = [gaussian_expectation(lambda f: f**2, m, v) for m, v in zip(s.kappa @ mu, var, strict=True)]
        return about_u - 0.5 * np.sum(omega * np.array(second))

    places = [(rng.normal(size=s.m), rng.uniform(0.05, 0.6, size=s.n)) for _ in range(5)]
    got = np.array([variational_family(u, omega, mu, Sigma, c) for u, omega in places])
    wanted = np.array([free_form(u, omega) for u, omega in places])
    # 300 sweeps reach rounding; log densities below 100
    np.testing.assert_allclose(got - got[0], wanted - wanted[0], rtol=0, atol=1e-9)


def log_evidence(K, y):
    """log p(y) of one or two data by adaptive quadrature of the product of sigmoids."""
    if len(y) == 1:
        return math.log(quad(lambda f: norm.pdf(f, scale=math.sqrt(K[0, 0])) / (1 + math.exp(-y[0] * f)), -60, 60)[0])
    (p, q), (_, r) = np.linalg.inv(K)
    level = 2 * math.pi * math.sqrt(np.linalg.det(K))
    bound = 8 * math.sqrt(K.max())

    def integrand(a, b):
        links = (1 + math.exp(-y[0] * a)) * (1 + math.exp(-y[1] * b))
        return math.exp(-0.5 * (p * a * a + 2 * q * a * b + r * b * b)) / (level * links)

    return math.log(dblquad(integrand, -bound, bound, -bound, bound, epsabs=1e-8, epsrel=1e-8)[0])


@pytest.mark.parametrize("variance", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("labels", [[1.0], [1.0, 1.0], [1.0, -1.0]])
def test_the_bound_never_exceeds_the_evidence(variance, labels):
    y = np.array(labels)
    X = np.array([[0.0], [0.8]])[: len(y)]
    K = variance * np.exp(-0.5 * (X - X.T) ** 2) + 0.1 * np.eye(len(y))
    exact = log_evidence(K, y)
    full = fit_xgpc(X, y, variance, np.ones(1), 0.1, 0.0)
    sparse = fit_xgpc(X, y, variance, np.ones(1), 0.1, 0.0, Z=np.array([[0.3]]))
    # full and sparse lose at least 1e-5 here (at variance 0.1, one datum), the quadrature at most 1e-8
    assert full.elbo < exact - 1e-6
    assert sparse.elbo <= full.elbo + 1e-12  # fewer inducing values never help
    assert full.elbo > exact - 0.5 * len(y)  # and the bound is not vacuous


@pytest.mark.verifies("wenzel2019", "10", route="equality with log p(y) where the latent values cannot move")
def test_the_bound_meets_the_evidence_where_the_prior_is_a_point_mass(rng):
    X, y = rng.normal(size=(5, 2)), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    K = 1e-9 * np.exp(-0.5 * np.sum((X[:, None] - X[None]) ** 2, axis=2)) + 1e-9 * np.eye(5)
    got = xgpc_bound(np.zeros(5), K, np.zeros(5), y, K, np.eye(5), np.zeros(5))
    # log p(y) = -n log 2 up to the prior variance, 1e-9
    np.testing.assert_allclose(got, -5 * math.log(2), rtol=0, atol=1e-8)


@pytest.mark.verifies("wenzel2019", "10", route="log p(y) minus the divergence from the posterior, by quadrature")
def test_the_bound_is_the_evidence_less_the_divergence_from_the_posterior(gaussian_expectation):
    prior, mean, var, c, y = 3.0, 0.9, 0.7, 1.4, 1.0
    theta = math.tanh(c / 2) / (2 * c)
    log_p_y = math.log(0.5)  # a symmetric prior

    def divergence(f):
        log_sigmoid = -math.log1p(math.exp(-y * f))
        log_posterior = norm.logpdf(f, scale=math.sqrt(prior)) + log_sigmoid - log_p_y
        of_omega = math.log(math.cosh(c / 2) / math.cosh(f / 2)) + theta * (f**2 - c**2) / 2
        return norm.logpdf(f, mean, math.sqrt(var)) - log_posterior + of_omega

    wanted = log_p_y - gaussian_expectation(divergence, mean, var)
    got = xgpc_bound(
        np.array([mean]),
        np.array([[var]]),
        np.array([c]),
        np.array([y]),
        np.array([[prior]]),
        np.eye(1),
        np.zeros(1),
    )
    # the quadrature asks for 1e-12
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=0)


def test_a_covariance_of_q_that_is_not_one_is_named(model):
    wrong = model.Sigma - 10 * np.eye(model.m)
    with pytest.raises(NotPositiveDefiniteError, match=r"inducing_cov \(3, 3\): found smallest eigenvalue -"):
        xgpc_bound(model.mu, wrong, *model.state[2:])
