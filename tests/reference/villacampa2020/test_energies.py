"""Sections 3.2 to 3.4 and 4: energies from integrals over the inducing values, and their derivatives by differences."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from reference.common._gaussians import Gaussians, Natural, natural_parameters
from reference.villacampa2020.black_box import monte_carlo_log_norms
from reference.villacampa2020.energies import (
    apep_objective,
    arpep_limit,
    arpep_objective,
    bb_alpha_energy,
    energy,
    rpapep_objective,
    tied_log_norms,
)
from reference.villacampa2020.hyper import Matrices
from reference.villacampa2020.posterior import natural_prior
from reference.villacampa2020.tied import (
    METHODS,
    apep_cavity,
    rpapep_cavity,
    tied_factor_parameters,
)
from reference.villacampa2020.variational import variational_elbo

RULE = {"rtol": 1e-9, "atol": 0}  # product rule and one-dimensional rule agree to 1e-10 here


@pytest.fixture
def small():
    """Two classes with one inducing value each: integrals over q are two-dimensional, Φ is in closed form."""
    s = SimpleNamespace(alpha=0.6, epsilon=0.08, n=3, y=np.array([0, 1, 0]))
    s.K = np.array([[[1.3]], [[0.8]]])
    s.upsilon = np.array([[[0.9], [-0.4], [0.2]], [[0.5], [0.7], [-0.3]]])
    s.cond_var = np.array([[0.3, 0.5, 0.9], [0.4, 0.2, 0.7]])
    s.q = Gaussians(np.array([[0.3], [-0.2]]), np.array([[[0.9]], [[0.6]]]))
    K_XZ = s.upsilon @ s.K
    k_xx = s.cond_var + np.sum(K_XZ * s.upsilon, axis=2)
    s.matrices = Matrices(s.K, s.upsilon, s.cond_var, k_xx, K_XZ)
    x, w = np.polynomial.hermite_e.hermegauss(80)
    s.weights = np.outer(w, w) / (2.0 * np.pi)
    s.u = np.meshgrid(0.3 + np.sqrt(0.9) * x, -0.2 + np.sqrt(0.6) * x, indexing="ij")
    return s


def win_given(s, i):
    """P(the label's latent value is the larger | inducing values) on the grid."""
    sign = 1.0 if s.y[i] == 0 else -1.0
    gap = s.upsilon[0, i, 0] * s.u[0] - s.upsilon[1, i, 0] * s.u[1]
    return norm.cdf(sign * gap / np.sqrt(s.cond_var[0, i] + s.cond_var[1, i]))


def powered(s, win):
    high, low = 1.0 - s.epsilon / 2, s.epsilon / 2
    return high**s.alpha * win + low**s.alpha * (1.0 - win)


def factor_on_grid(s, factor):
    """log φ̃ = -½ P u² + b u summed over classes, scale one."""
    return sum(-0.5 * factor.precision[k, 0, 0] * s.u[k] ** 2 + factor.shift[k, 0] * s.u[k] for k in range(2))


def log_norms(s, factor):
    """log E_q[(p(y_i|f_i)/φ̃)^α], the expectation over f_i given f̄ in closed form."""
    divided = np.exp(-s.alpha * factor_on_grid(s, factor))
    return np.array([np.log(np.sum(s.weights * powered(s, win_given(s, i)) * divided)) for i in range(s.n)])


def marginal_win(s, i):
    mean = s.upsilon[:, i, 0] * s.q.mean[:, 0]
    var = s.cond_var[:, i] + s.upsilon[:, i, 0] ** 2 * s.q.cov[:, 0, 0]
    return norm.cdf((1.0 if s.y[i] == 0 else -1.0) * (mean[0] - mean[1]) / np.sqrt(np.sum(var)))


def divergence(s):
    V, K, m = s.q.cov[:, 0, 0], s.K[:, 0, 0], s.q.mean[:, 0]
    return float(np.sum(0.5 * (V / K + m**2 / K - 1.0 - np.log(V / K))))


def whole(s, alpha=None):
    return s.q, s.y, s.matrices, s.epsilon, s.alpha if alpha is None else alpha


def arguments(s, alpha=None):
    return s.y, s.upsilon, s.cond_var, s.K, s.epsilon, s.alpha if alpha is None else alpha


@pytest.mark.verifies("villacampa2020", "9", route="two classes in closed form")
def test_the_reparameterised_objective(small):
    s = small
    wanted = sum(np.log(powered(s, marginal_win(s, i))) for i in range(s.n)) / s.alpha - divergence(s)
    np.testing.assert_allclose(arpep_objective(*whole(s)), wanted, **RULE)
    # a mini-batch of N = 6: the sum counts twice
    twice = 2.0 * wanted + divergence(s)
    np.testing.assert_allclose(arpep_objective(*whole(s), 6), twice, **RULE)


@pytest.mark.verifies(
    "villacampa2020", "11", "u22-apep-objective", route="integrals over the inducing values by a product rule"
)
def test_the_black_box_energy_is_minus_the_objective_of_the_tied_factor(small):
    s = small
    theta, prior = natural_parameters(s.q), natural_prior(s.K)
    factor = Natural((theta.precision - prior.precision) / s.n, theta.shift / s.n)
    asked = []

    def by_grid(of):
        asked.append(of)
        return log_norms(s, of)

    by_integrals = bb_alpha_energy(s.q, s.K, s.n, by_grid, s.alpha)
    for got, part in zip(asked[0], factor, strict=True):
        np.testing.assert_allclose(got, part, rtol=1e-12, atol=1e-13)
    exact = tied_log_norms(factor, *whole(s))
    np.testing.assert_allclose(exact, log_norms(s, factor), **RULE)
    # log Z_q of (8) in one piece: g(θ) - g(θ_prior) is that of scalar Gaussians
    V, K, m = s.q.cov[:, 0, 0], s.K[:, 0, 0], s.q.mean[:, 0]
    wanted = np.sum(0.5 * np.log(V / K) + 0.5 * m**2 / V) + np.sum(log_norms(s, factor)) / s.alpha
    np.testing.assert_allclose(-by_integrals, wanted, rtol=1e-12, atol=0)  # the same numbers
    np.testing.assert_allclose(apep_objective(*whole(s)), wanted, **RULE)
    # α = 0: the variational bound
    np.testing.assert_allclose(
        apep_objective(*whole(s, 0.0)), variational_elbo(s.q, *arguments(s)[:4], s.epsilon), **RULE
    )


@pytest.mark.verifies("villacampa2020", "10", route="integrals over the inducing values by a product rule")
def test_the_objective_with_the_prior_as_one_more_factor(small):
    s = small
    theta = natural_parameters(s.q)
    factor = Natural(theta.precision / (s.n + 1), theta.shift / (s.n + 1))
    log_prior = sum(norm.logpdf(s.u[k], 0.0, np.sqrt(s.K[k, 0, 0])) for k in range(2))
    of_prior = np.log(np.sum(s.weights * np.exp(s.alpha * (log_prior - factor_on_grid(s, factor)))))
    V, m = s.q.cov[:, 0, 0], s.q.mean[:, 0]
    normaliser = np.sum(0.5 * np.log(2.0 * np.pi * V) + 0.5 * m**2 / V)
    wanted = normaliser + (np.sum(log_norms(s, factor)) + of_prior) / s.alpha
    np.testing.assert_allclose(rpapep_objective(*whole(s)), wanted, **RULE)
    np.testing.assert_allclose(energy("rpapep", *whole(s)).value, wanted, **RULE)


@pytest.mark.verifies(
    "villacampa2020", "u23-arpep-limit", route="closed form of the limit; the tied factor's objective at N"
)
def test_many_data_take_the_tied_objective_to_the_reparameterised_one(small):
    s = small
    wanted = sum(np.log(powered(s, marginal_win(s, i))) for i in range(s.n)) / s.alpha - divergence(s)
    own = -bb_alpha_energy(s.q, s.K, s.n, lambda of: log_norms(s, of), s.alpha)
    np.testing.assert_allclose(arpep_limit(s.q, *arguments(s), s.n), own, **RULE)
    near = [arpep_limit(s.q, *arguments(s), n) for n in (1e3, 1e4)]
    gaps = [value - wanted for value in near]
    assert gaps[0] / gaps[1] == pytest.approx(10.0, rel=1e-2)  # first order in 1/n, the second is 1e-3 of it
    assert (10.0 * near[1] - near[0]) / 9.0 == pytest.approx(wanted, rel=1e-6, abs=0)  # without the first order


def densities(distributions, points):
    """Σ_k -½ P u² + b u at inducing values (r, C, m)."""
    return np.array(
        [sum(-0.5 * u @ P @ u + u @ b for u, P, b in zip(row, *distributions, strict=True)) for row in points]
    )


@pytest.mark.verifies(
    "villacampa2020", "u21-apep-cavity", "u24-rpapep-free-gaussian", "u26-bb-alpha-parameters",
    route="ratios of unnormalised densities at points",
)  # fmt: skip
def test_tied_factors_multiply_to_q_and_cavities_lack_a_power_of_one(model, rng):
    s = model
    theta, prior = natural_parameters(Gaussians(s.mean, s.cov)), natural_prior(s.K_ZZ)
    one = tied_factor_parameters(theta, prior, s.n)
    points = rng.normal(size=(6, s.C, s.m))
    q, p, phi = densities(theta, points), densities(prior, points), densities(one, points)
    np.testing.assert_allclose(p + s.n * phi, q, rtol=1e-10, atol=1e-12)
    tied = Natural(theta.precision - prior.precision, theta.shift - prior.shift)
    left = densities(apep_cavity(theta, tied, s.n, s.alpha), points)
    np.testing.assert_allclose(left, q - s.alpha * phi, rtol=1e-10, atol=1e-12)
    # one of n + 1 factors is the (n + 1)th root of q
    left = densities(rpapep_cavity(theta, s.n, s.alpha), points)
    np.testing.assert_allclose(left, q - s.alpha * q / (s.n + 1), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.5, 1.0])
def test_derivatives_of_an_energy_are_those_of_its_value(model, rng, method, alpha):
    s = model
    root = rng.normal(size=(s.C, s.m, s.m))
    cov = root @ np.transpose(root, (0, 2, 1)) + 0.4 * np.eye(s.m)

    def value(mean, V):
        return energy(method, Gaussians(mean, V), s.y, s.matrices, s.epsilon, alpha).value

    at = energy(method, Gaussians(s.mean, cov), s.y, s.matrices, s.epsilon, alpha)
    h = 1e-5
    for _ in range(3):  # along directions at random
        step, turn = rng.normal(size=s.mean.shape), rng.normal(size=cov.shape)
        turn = turn + np.transpose(turn, (0, 2, 1))
        wanted = (value(s.mean + h * step, cov + h * turn) - value(s.mean - h * step, cov - h * turn)) / (2.0 * h)
        got = np.sum(at.by_mean * step) + np.sum(at.by_cov * turn)
        assert got == pytest.approx(wanted, rel=1e-6, abs=1e-7)  # h² and rounding over h


@pytest.mark.parametrize("method", METHODS)
def test_small_alpha_leads_to_the_variational_bound(model, method):
    s = model
    data = s.y, s.upsilon, s.cond_var, s.K_ZZ
    posterior = Gaussians(s.mean, s.cov)
    wanted = variational_elbo(posterior, *data, s.epsilon)
    zero, *rest = (energy(method, posterior, s.y, s.matrices, s.epsilon, a).value for a in (0.0, 1e-3, 1e-4))
    assert zero == pytest.approx(wanted, rel=1e-11, abs=0)
    above = [value - wanted for value in rest]
    assert above[0] / above[1] == pytest.approx(10.0, rel=0.05)  # first order in alpha, the second is a hundredth of it
    assert 0.0 < above[1] < 1e-2


def test_draws_average_to_the_integrals(small):
    s = small
    factor = tied_factor_parameters(natural_parameters(s.q), natural_prior(s.K), s.n)
    got = monte_carlo_log_norms(s.q, s.y, s.matrices, s.epsilon, s.alpha, n_draws=200_000, seed=3)
    error = np.sum(got.log_norm) - np.sum(log_norms(s, factor)) / s.alpha
    # the data share their draws: the standard error of a sum is at most √n times that of independent ones; level 1e-4
    assert abs(error) < 3.9 * np.sqrt(s.n) * got.standard_error
    again = monte_carlo_log_norms(s.q, s.y, s.matrices, s.epsilon, 0.0, n_draws=200_000, seed=3)
    high, low = np.log(1.0 - s.epsilon / 2), np.log(s.epsilon / 2)
    m, V = s.q.mean[:, 0], s.q.cov[:, 0, 0]
    of_factor = np.sum(-0.5 * factor.precision[:, 0, 0] * (m**2 + V) + factor.shift[:, 0] * m)
    wanted = sum(low + (high - low) * marginal_win(s, i) - of_factor for i in range(s.n))
    assert abs(np.sum(again.log_norm) - wanted) < 3.9 * np.sqrt(s.n) * again.standard_error
    none = monte_carlo_log_norms(s.q, s.y, s.matrices, 0.0, 0.5, n_draws=2, seed=0)
    assert np.all(np.isfinite(none.log_norm) | (none.log_norm == -np.inf))
