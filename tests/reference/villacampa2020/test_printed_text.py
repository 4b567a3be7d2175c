r"""What the solvers find, in the paper's own words: sites that its updates leave, energies that its formulas have."""

import numpy as np
import pytest

from reference.common._ascent import FINITE
from reference.common._gaussians import moments_of, natural_parameters
from reference.common.priors import Prior
from reference.villacampa2020.cavity import power_cavity, power_cavity_covariance, power_cavity_mean
from reference.villacampa2020.energies import (
    apep_objective,
    arpep_objective,
    bb_alpha_energy,
    rpapep_objective,
    tied_log_norms,
)
from reference.villacampa2020.errata_appendix import factor_linear_as_printed, update_c2_as_printed
from reference.villacampa2020.evidence import (
    pep_log_evidence_from_moments,
    site_log_normaliser,
    site_log_normaliser_from_moments,
    site_log_normaliser_rank_one,
)
from reference.villacampa2020.fit_energies import fit_energy
from reference.villacampa2020.fit_pep import fit_pep
from reference.villacampa2020.pep import parallel_pep_sweep, pep_log_evidence
from reference.villacampa2020.posterior import (
    Gaussians,
    Natural,
    factor_linear,
    factor_precision,
    natural_parameter_sum,
    natural_prior,
    posterior_moments,
)
from reference.villacampa2020.power_likelihood import log_expected_power
from reference.villacampa2020.refinement import (
    cavity_latent_mean,
    cavity_latent_variance,
    factor_linear_from_derivatives,
    factor_linear_from_moments,
    factor_precision_from_derivatives,
    factor_precision_from_moments,
    tilted_covariance,
    tilted_mean,
    update_c1,
    update_c2,
)

# the solvers stop at changes of 1e-10; inverses of matrices with conditions below 1e4
CLOSE = {"rtol": 1e-6, "atol": 1e-8}


@pytest.fixture
def prior(model):
    s = model
    return Prior(s.variance, s.lengthscales, s.noise, s.jitter, s.Z)


@pytest.mark.verifies(
    "villacampa2020", "A.2", "A.3", "A.6", "A.7", "A.8", "A.9", "A.10", "A.11", "A.14", "A.15", "A.16", "A.17", "A.18",
    "A.21", "u12-pep-cavity", "u29-parallel-updates", "u31-natural-sum", route="unmoved at the solver's fixed point",
)  # fmt: skip
@pytest.mark.verifies("villacampa2020", "A.19", "A.20", route="unmoved at the solver's fixed point", printed=True)
@pytest.mark.verifies(
    "villacampa2020", "8", "A.22", "A.23", "A.24", "A.26", "A.27", "u30-efficient-scale",
    route="the solver's log Z_q at its fixed point",
)  # fmt: skip
def test_the_printed_refinement_moves_no_site_of_the_solver_and_its_evidence_is_the_solvers(model, prior):
    s, alpha = model, model.alpha
    fit = fit_pep(s.X, s.y, prior, s.epsilon, alpha=alpha, gradients=False)
    assert fit.converged
    (c1, c2), q = fit.sites, fit.posterior
    sites = [
        Natural(np.stack([factor_precision(c1[i, k], s.upsilon[k, i]) for k in range(s.C)]),
                np.stack([factor_linear(c2[i, k], s.upsilon[k, i]) for k in range(s.C)])) for i in range(s.n)
    ]  # fmt: skip
    theta = natural_parameter_sum(natural_prior(s.K_ZZ), sites)
    for distribution in (posterior_moments(c1, c2, s.upsilon, s.K_ZZ), moments_of(theta)):
        np.testing.assert_allclose(distribution.mean, q.mean, **CLOSE)
        np.testing.assert_allclose(distribution.cov, q.cov, **CLOSE)
    log_tilted, log_norms = np.zeros(s.n), np.zeros((2, s.n))
    moved = []  # by (A.20) and the last line of (A.19) as they are printed
    for i in range(s.n):
        u, y = s.upsilon[:, i], int(s.y[i])
        cavity = Gaussians(
            np.stack([power_cavity_mean(q.mean[k], q.cov[k], c1[i, k], c2[i, k], u[k], alpha) for k in range(s.C)]),
            np.stack([power_cavity_covariance(q.cov[k], c1[i, k], u[k], alpha) for k in range(s.C)]),
        )
        by_division = moments_of(power_cavity(theta, sites[i], alpha))
        np.testing.assert_allclose(by_division.mean, cavity.mean, **CLOSE)
        np.testing.assert_allclose(by_division.cov, cavity.cov, **CLOSE)
        a = np.array([cavity_latent_mean(u[k], cavity.mean[k]) for k in range(s.C)])
        b = np.array([cavity_latent_variance(s.k_xx[k, i], u[k], s.K_ZZ[k], cavity.cov[k]) for k in range(s.C)])
        z = log_expected_power(a, b, y, s.epsilon, alpha)
        log_tilted[i] = z.log_expectation
        for k in range(s.C):
            g, by_var, m, V = float(z.d_mean[k]), float(z.d_var[k]), cavity.mean[k], cavity.cov[k]
            tilted = tilted_mean(m, V, g, u[k]), tilted_covariance(V, g, by_var, u[k])
            precision, shift = alpha * sites[i].precision[k], alpha * sites[i].shift[k]
            np.testing.assert_allclose(factor_precision_from_moments(tilted[1], V), precision, **CLOSE)
            np.testing.assert_allclose(factor_precision_from_derivatives(g, by_var, u[k], V), precision, **CLOSE)
            np.testing.assert_allclose(factor_linear_from_moments(*tilted, m, V), shift, **CLOSE)
            new = update_c1(g, by_var, u[k], V, alpha)
            np.testing.assert_allclose(new, c1[i, k], **CLOSE)
            np.testing.assert_allclose(factor_linear_from_derivatives(g, new, u[k], m, V, alpha), shift, **CLOSE)
            np.testing.assert_allclose(update_c2(g, new, u[k], m, V, alpha), c2[i, k], **CLOSE)
            moved.append((update_c2_as_printed(g, new, u[k], m, V, alpha) - c2[i, k],
                          np.max(np.abs(factor_linear_as_printed(g, new, u[k], m, V) - shift))))  # fmt: skip
        log_norms[0, i] = site_log_normaliser(log_tilted[i], natural_parameters(cavity), theta)
        log_norms[1, i] = site_log_normaliser_from_moments(log_tilted[i], cavity, q)
    # the misprints would move the sites
    assert np.all(np.max(np.abs(moved), axis=0) > 1e-2)
    same = parallel_pep_sweep(fit.sites, s.y, s.matrices, s.epsilon, alpha, 1.0).coefficients
    np.testing.assert_allclose(same.c1, c1, **CLOSE)
    np.testing.assert_allclose(same.c2, c2, **CLOSE)
    rank_one = site_log_normaliser_rank_one(log_tilted, fit.sites, q, s.upsilon, alpha)
    whole = pep_log_evidence(fit.sites, q, s.y, s.matrices, s.epsilon, alpha)
    assert whole == pytest.approx(fit.log_evidence, rel=1e-9, abs=0)
    for each in (*log_norms, rank_one):
        estimate = pep_log_evidence_from_moments(q, s.K_ZZ, each, alpha)
        assert estimate == pytest.approx(fit.log_evidence, rel=1e-9, abs=0)


def printed_energy(s, method, q):
    """The objective of one method at q by (9), (10) and (11)."""
    whole = q, s.y, s.matrices, s.epsilon, s.alpha
    if method != "apep":
        return {"arpep": arpep_objective, "rpapep": rpapep_objective}[method](*whole)
    value = apep_objective(*whole)
    black_box = bb_alpha_energy(q, s.K_ZZ, s.n, lambda factor: tied_log_norms(factor, *whole), s.alpha)
    assert value == pytest.approx(-black_box, rel=1e-12, abs=1e-12)  # the same normalisers in another order
    return value


ROUTE = "the solver's value and zero gradient at its optimum"


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("apep", marks=pytest.mark.verifies(
            "villacampa2020", "11", "u21-apep-cavity", "u22-apep-objective", "u26-bb-alpha-parameters", route=ROUTE)),
        pytest.param("arpep", marks=pytest.mark.verifies("villacampa2020", "9", route=ROUTE)),
        pytest.param("rpapep", marks=pytest.mark.verifies(
            "villacampa2020", "10", "u24-rpapep-free-gaussian", route=ROUTE)),
    ],
)  # fmt: skip
def test_printed_energies_are_the_solvers_and_have_no_derivative_at_its_optimum(model, prior, rng, method):
    s = model
    s.alpha = 0.25 if method == "rpapep" else s.alpha  # above that its variances grow far beyond the prior's
    fit = fit_energy(s.X, s.y, prior, method, s.epsilon, alpha=s.alpha)
    assert (fit.converged, fit.optimum) == (True, FINITE)
    q, h = fit.posterior, 1e-4
    assert printed_energy(s, method, q) == pytest.approx(fit.value, rel=1e-9, abs=0)
    roots = np.linalg.cholesky(q.cov)

    def derivative(at, step, turn):
        """Along means and covariances, in units of q."""
        ends = [
            printed_energy(s, method, Gaussians(
                at.mean + t * np.einsum("kij,kj->ki", roots, step),
                at.cov + t * roots @ turn @ np.transpose(roots, (0, 2, 1)))) for t in (h, -h)
        ]  # fmt: skip
        return (ends[0] - ends[1]) / (2.0 * h)

    for _ in range(4):
        step, turn = rng.normal(size=(s.C, s.m)), rng.normal(size=(s.C, s.m, s.m))
        turn = turn + np.transpose(turn, (0, 2, 1))
        away = Gaussians(q.mean + 0.3 * np.einsum("kij,kj->ki", roots, step), 1.2 * q.cov)
        # third derivatives are of order ten; rounding of values of order ten over h
        assert abs(derivative(q, step, turn)) < 1e-6
        assert abs(derivative(away, step, turn)) > 1e-2
