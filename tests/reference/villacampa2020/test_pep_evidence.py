"""Section 3.1, A.6 and A.7: log Z_q by integrals on grids, its gradient by finite differences, rules for steps."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm

from reference.common._gaussians import natural_parameters
from reference.common._steps import AdamState, adam_step
from reference.villacampa2020.errata_appendix import (
    cavity_as_printed,
    pep_log_evidence_from_moments_as_printed,
    pep_log_evidence_gradient_as_printed,
    site_log_normaliser_as_printed,
    site_log_normaliser_from_moments_as_printed,
)
from reference.villacampa2020.evidence import (
    gaussian_log_normaliser,
    pep_log_evidence_from_moments,
    pep_log_evidence_limit,
    site_log_normaliser,
    site_log_normaliser_from_moments,
    site_log_normaliser_rank_one,
)
from reference.villacampa2020.gradients import (
    Direction,
    adaptive_learning_rate,
    cyclic_trace,
    pep_log_evidence_gradient,
    prior_term_gradient,
    prior_term_matrix,
)
from reference.villacampa2020.hyper import Matrices
from reference.villacampa2020.pep import pep_log_evidence, tilted_distributions
from reference.villacampa2020.posterior import (
    Coefficients,
    Gaussians,
    Natural,
    natural_parameter_sum,
    natural_prior,
)
from reference.villacampa2020.power_likelihood import log_expected_power
from validation.ledger.numbers import assert_recorded, told_apart

CLOSE = {"rel": 1e-9, "abs": 1e-10}  # grids and Hermite rules far beyond it, inverses with conditions below 1e3


def cavity_of(s, i):
    """Moments of every class without the power α of factor i."""
    mean, cov = [], []
    for k in range(s.C):
        u = s.upsilon[k, i]
        cov.append(np.linalg.inv(np.linalg.inv(s.cov[k]) - s.alpha * s.c1[i, k] * np.outer(u, u)))
        mean.append(cov[-1] @ (np.linalg.solve(s.cov[k], s.mean[k]) - s.alpha * s.c2[i, k] * u))
    return Gaussians(np.array(mean), np.array(cov))


def log_tilted(s, i, cavity):
    """log E[p(y_i|f_i)^α] under a cavity."""
    a = np.array([s.upsilon[k, i] @ cavity.mean[k] for k in range(s.C)])
    b = np.array([s.cond_var[k, i] + s.upsilon[k, i] @ cavity.cov[k] @ s.upsilon[k, i] for k in range(s.C)])
    return log_expected_power(a, b, int(s.y[i]), s.epsilon, s.alpha).log_expectation


def log_power_of_ratio(s, i):
    """log E_q[(p(y_i|f_i)/φ̃_i)^α] on grids: w = υᵀf̄ under q for every class, then the largest latent value."""
    y, C = int(s.y[i]), s.C
    high, low = (1 - s.epsilon + s.epsilon / C) ** s.alpha, (s.epsilon / C) ** s.alpha
    steps = np.linspace(-9.0, 9.0, 361)
    distributions = []
    for k in range(C):
        u = s.upsilon[k, i]
        p, q = u @ s.mean[k], u @ s.cov[k] @ u
        w = p + np.sqrt(q) * steps
        weight = norm.pdf(steps) * np.exp(s.alpha * (0.5 * s.c1[i, k] * w**2 - s.c2[i, k] * w)) * (steps[1] - steps[0])
        distributions.append((w, weight, np.sqrt(s.cond_var[k, i])))
    t = np.linspace(-25.0, 25.0, 2001)
    inside = np.ones_like(t)
    for k, (w, weight, sd) in enumerate(distributions):
        z = (t[:, None] - w) / sd
        inside *= (norm.pdf(z) / sd if k == y else ndtr(z)) @ weight
    masses = np.prod([np.sum(weight) for _, weight, _ in distributions])
    return np.log(low * masses + (high - low) * np.sum(inside) * (t[1] - t[0]))


@pytest.mark.verifies("villacampa2020", "A.25", route="logarithm of the integral of exp(-½uᵀPu + bᵀu) on a grid")
def test_the_gaussian_log_normaliser_is_a_log_integral(model):
    mean, cov = model.mean[0], model.cov[0]
    P = np.linalg.inv(cov)
    axis = np.linspace(-12.0, 12.0, 481)
    u = np.stack(np.meshgrid(mean[0] + axis, mean[1] + axis, indexing="ij"), axis=-1)
    form = -0.5 * np.einsum("abi,ij,abj->ab", u, P, u) + u @ (P @ mean)
    wanted = np.log(np.sum(np.exp(form))) + 2 * np.log(axis[1] - axis[0])
    assert gaussian_log_normaliser(mean, cov) == pytest.approx(wanted, **CLOSE)


@pytest.mark.verifies("villacampa2020", "A.22", "A.24", route="E_q[(p/φ̃)^α] on grids", printed=True)
@pytest.mark.verifies("villacampa2020", "A.27", route="E_q[(p/φ̃)^α] on grids", printed=True)
@pytest.mark.verifies("villacampa2020", "u30-efficient-scale", route="E_q[(p/φ̃)^α] on grids", printed=True)
def test_log_normalisers_of_the_data_are_expectations_under_q(model):
    s = model
    q = Gaussians(s.mean, s.cov)
    theta, rows = natural_parameters(q), []
    for i in (1, 4):
        wanted, cavity = log_power_of_ratio(s, i), cavity_of(s, i)
        rows.append((i, log_tilted(s, i, cavity), wanted))
        got = site_log_normaliser(rows[-1][1], natural_parameters(cavity), theta)
        assert got == pytest.approx(wanted, **CLOSE)
        assert site_log_normaliser_from_moments(rows[-1][1], cavity, q) == pytest.approx(wanted, **CLOSE)
        g = [
            sum(gaussian_log_normaliser(*distribution) for distribution in zip(*distributions, strict=True))
            for distributions in (cavity, q)
        ]
        printed = site_log_normaliser_as_printed(wanted, *g)
        assert printed == pytest.approx(wanted + g[0] - g[1], rel=1e-12, abs=0)
        assert abs(printed - wanted) > 1e-2
        told_apart("villacampa2020", "A.22", printed, got)
        told_apart("villacampa2020", "A.24", printed, got)
        if i == 1:
            assert_recorded("villacampa2020", "A.22", wanted, printed)
            assert_recorded("villacampa2020", "A.24", wanted, printed)
        # (A.27) adds nothing. With the expectation that it prints, E_q of the ratio, it is (8) by two errors, and not
        # (A.24) as printed; with that for which (A.24) holds, the cavity's, it is wrong and the corrected form right
        y = int(s.y[i])
        by_two_errors = site_log_normaliser_from_moments_as_printed(wanted, cavity.mean[y], cavity.cov[y])
        assert by_two_errors == pytest.approx(wanted, rel=1e-12, abs=0)
        assert abs(by_two_errors - printed) > 1e-2
        alone = site_log_normaliser_from_moments_as_printed(rows[-1][1], cavity.mean[y], cavity.cov[y])
        assert abs(alone - got) > 1e-2
        told_apart("villacampa2020", "A.27", alone, got)
        if i == 1:
            assert_recorded("villacampa2020", "A.27", wanted, alone)
        # nor are the terms of the label's class enough, those of q put right
        own_class = rows[-1][1] + gaussian_log_normaliser(cavity.mean[y], cavity.cov[y])
        own_class -= gaussian_log_normaliser(s.mean[y], s.cov[y])
        assert abs(own_class - wanted) > 1e-2
        # the cavity below (A.27) lacks the factor's whole instead of its power α
        steps = np.stack([s.c1[i, k] * np.outer(s.upsilon[k, i], s.upsilon[k, i]) for k in range(s.C)])
        shifts = np.stack([s.c2[i, k] * s.upsilon[k, i] for k in range(s.C)])
        narrow = cavity_as_printed(q, steps, shifts)
        left = natural_parameters(narrow)
        np.testing.assert_allclose(left.precision + steps, theta.precision, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(left.shift + shifts, theta.shift, rtol=1e-9, atol=1e-10)
        printed = log_tilted(s, i, narrow) - g[1]
        printed += sum(gaussian_log_normaliser(*distribution) for distribution in zip(*narrow, strict=True))
        assert abs(printed - wanted) > 1e-2
        told_apart("villacampa2020", "u30-efficient-scale", printed, got)
        if i == 1:
            assert_recorded("villacampa2020", "u30-efficient-scale", wanted, printed)
    each = np.zeros(s.n)
    for i, value, _ in rows:
        each[i] = value
    got = site_log_normaliser_rank_one(each, Coefficients(s.c1, s.c2), q, s.upsilon, s.alpha)
    for i, _, wanted in rows:
        assert got[i] == pytest.approx(wanted, **CLOSE)
    with pytest.raises(ValueError, match="coefficients"):
        site_log_normaliser_rank_one(each, Coefficients(1e4 + s.c1, s.c2), q, s.upsilon, s.alpha)


@pytest.mark.verifies(
    "villacampa2020",
    "8",
    "A.23",
    route="the factors' integral under the prior, Gauss-Hermite, and E_q[(p/φ̃)^α] on grids",
)
@pytest.mark.verifies("villacampa2020", "A.26", route="the factors' integral under the prior", printed=True)
def test_log_evidence_is_the_normaliser_of_factors_and_prior(model):
    s = model
    log_norm = np.array([log_power_of_ratio(s, i) for i in range(s.n)])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / np.sqrt(2 * np.pi)
    total = np.sum(log_norm) / s.alpha
    for k in range(s.C):
        grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1) @ np.linalg.cholesky(s.K_ZZ[k]).T
        w = grid @ s.upsilon[k].T
        total += np.log(weights @ np.exp(np.sum(-0.5 * s.c1[:, k] * w**2 + s.c2[:, k] * w, axis=-1)) @ weights)
    q = Gaussians(s.mean, s.cov)
    got = pep_log_evidence(Coefficients(s.c1, s.c2), q, s.y, s.matrices, s.epsilon, s.alpha)
    assert got == pytest.approx(total, **CLOSE)
    assert pep_log_evidence_from_moments(q, s.K_ZZ, log_norm, s.alpha) == pytest.approx(total, **CLOSE)
    printed = pep_log_evidence_from_moments_as_printed(q, s.K_ZZ, log_norm, s.alpha)
    determinants = np.linalg.det(s.K_ZZ)
    assert printed == pytest.approx(total + 0.5 * np.sum(np.log(determinants) - determinants), **CLOSE)
    assert abs(printed - total) > 0.1
    assert_recorded("villacampa2020", "A.26", total, printed)
    # factors whose scale is Z̃_i have an integral that is not Z_q of (8)
    assert_recorded("villacampa2020", "A.1", total, total + (1.0 - 1.0 / s.alpha) * np.sum(log_norm))


def log_evidence_with_matrices_held(s, K_ZZ, K_XZ, k_xx, sites):
    """log Z_q, the list of log E_i and those of g(θ\\) - g(θ), natural parameters of the factors given."""
    upsilon = np.stack([np.linalg.solve(K_ZZ[k], K_XZ[k].T).T for k in range(s.C)])
    s_var = k_xx - np.sum(K_XZ * upsilon, axis=2)

    def moments(P, b):
        return np.linalg.solve(P, b), np.linalg.inv(P)

    def g(distribution):
        return 0.5 * np.linalg.slogdet(distribution[1])[1] + 0.5 * distribution[0] @ np.linalg.solve(
            distribution[1], distribution[0]
        )

    whole = [
        moments(np.linalg.inv(K_ZZ[k]) + sum(P[k] for P, _ in sites), sum(b[k] for _, b in sites)) for k in range(s.C)
    ]
    parts = sum(g(distribution) for distribution in whole) - 0.5 * np.sum(np.linalg.slogdet(K_ZZ)[1])
    each = []
    for i, (P, b) in enumerate(sites):
        cavity = [
            moments(
                np.linalg.inv(distribution[1]) - s.alpha * P[k],
                np.linalg.solve(distribution[1], distribution[0]) - s.alpha * b[k],
            )
            for k, distribution in enumerate(whole)
        ]
        mean = np.array([upsilon[k, i] @ cavity[k][0] for k in range(s.C)])
        var = np.array([s_var[k, i] + upsilon[k, i] @ cavity[k][1] @ upsilon[k, i] for k in range(s.C)])
        log_e = log_expected_power(mean, var, int(s.y[i]), s.epsilon, s.alpha).log_expectation
        each.append((log_e, sum(g(c) - g(w) for c, w in zip(cavity, whole, strict=True))))
        parts += (each[-1][0] + each[-1][1]) / s.alpha
    return parts, np.array(each)


@pytest.mark.verifies("villacampa2020", "u52-pep-limit", route="the bound by entropies of scipy, and quotients in α")
def test_log_evidence_tends_to_the_variational_bound(model):
    s = model
    q, coefficients = Gaussians(s.mean, s.cov), Coefficients(s.c1, s.c2)
    log_likelihoods = np.array([
        log_expected_power(
            np.einsum("km,km->k", s.upsilon[:, i], s.mean),
            s.cond_var[:, i] + np.einsum("km,kml,kl->k", s.upsilon[:, i], s.cov, s.upsilon[:, i]),
            int(y), s.epsilon, 1e-9,
        ).log_expectation / 1e-9
        for i, y in enumerate(s.y)
    ])  # fmt: skip
    divergence = 0.0
    for m, V, K in zip(s.mean, s.cov, s.K_ZZ, strict=True):
        divergence -= multivariate_normal(m, V).entropy()
        divergence -= multivariate_normal.logpdf(m, np.zeros(2), K) - 0.5 * np.trace(np.linalg.solve(K, V))
    got = pep_log_evidence_limit(q, s.K_ZZ, log_likelihoods, coefficients, s.upsilon)
    # the expectations are right to half their variance, below ten, times 1e-9
    assert got == pytest.approx(np.sum(log_likelihoods) - divergence, rel=0, abs=1e-10)
    one, two = (pep_log_evidence(coefficients, q, s.y, s.matrices, s.epsilon, a) for a in (1e-4, 2e-4))
    # 2 L(h) - L(2h) misses the limit by h² times the second derivative, below a hundred; quotients by 1e-16/1e-4 n C
    assert got == pytest.approx(2.0 * one - two, rel=0, abs=1e-6)


@pytest.mark.verifies("villacampa2020", "A.28", route="finite differences, natural parameters held", printed=True)
def test_the_gradient_holds_natural_parameters_of_the_factors(model, rng):
    s = model
    root = rng.normal(size=(s.C, s.m, s.m))
    way = Direction(root + root.transpose(0, 2, 1), rng.normal(size=s.K_XZ.shape), rng.normal(size=s.k_xx.shape))

    def gradient(alpha, weight=1.0):
        """Of all classes at once: the derivatives by one hyper-parameter of each add up."""
        K = Matrices(s.K_ZZ, s.upsilon, s.cond_var, s.k_xx, s.K_XZ)
        at = Coefficients(s.c1, s.c2), Gaussians(s.mean, s.cov)
        distributions = tilted_distributions(*at, s.y, K, s.epsilon, alpha)
        return sum(
            pep_log_evidence_gradient(k, at[1], distributions, K, alpha, Direction(*(part[k] for part in way)), weight)
            for k in range(s.C)
        )

    sites = [
        (np.stack([s.c1[i, k] * np.outer(s.upsilon[k, i], s.upsilon[k, i]) for k in range(s.C)]),
         np.stack([s.c2[i, k] * s.upsilon[k, i] for k in range(s.C)])) for i in range(s.n)
    ]  # fmt: skip
    h = 1e-5
    ends = [
        log_evidence_with_matrices_held(
            s, s.K_ZZ + t * way.K_ZZ, s.K_XZ + t * way.K_XZ, s.k_xx + t * way.k_xx, sites
        ) for t in (h, -h)
    ]  # fmt: skip
    wanted = (ends[0][0] - ends[1][0]) / (2 * h)
    got = gradient(s.alpha)
    assert got == pytest.approx(wanted, rel=1e-7, abs=1e-8)  # central differences
    parts = (ends[0][1] - ends[1][1]) / (2 * h)
    prior = wanted - np.sum(parts) / s.alpha
    # of a mini-batch the sum over data counts n/b times
    assert gradient(s.alpha, 2.5) == pytest.approx(prior + 2.5 * np.sum(parts) / s.alpha, rel=1e-7, abs=1e-8)
    # log E_q[(p/φ̃)^α] has the difference of the two g in it, which the printed terms add once more
    printed = pep_log_evidence_gradient_as_printed(prior, np.sum(parts, axis=1), parts[:, 1], s.alpha)
    assert printed == pytest.approx(wanted + np.sum(parts[:, 1]) / s.alpha, rel=1e-9, abs=1e-9)
    assert abs(printed - wanted) > 1e-2
    told_apart("villacampa2020", "A.28", printed, got)
    assert_recorded("villacampa2020", "A.28", wanted, printed)
    # two data at one place, one site negative: q is a distribution, the other's cavity is none
    s.K_XZ[:, 1], s.c1[:] = s.K_XZ[:, 0], 0.0
    size = np.array([s.K_XZ[k, 0] @ np.linalg.solve(s.K_ZZ[k], s.K_XZ[k, 0]) for k in range(s.C)])
    s.c1[0], s.c1[1] = 3.0 / size, -2.0 / size
    with pytest.raises(ValueError, match="c1"):
        gradient(1.0)


@pytest.mark.verifies("villacampa2020", "A.29", "A.30", route="finite differences of ηᵀθ_prior - g(θ_prior)")
def test_the_prior_part_of_the_gradient(model, rng):
    s, h = model, 1e-5
    dK = rng.normal(size=(s.m, s.m))
    dK = dK + dK.T
    matrix = prior_term_matrix(s.mean[1], s.cov[1], s.K_ZZ[1])
    second = s.cov[1] + np.outer(s.mean[1], s.mean[1])

    def expected_log_prior(K):
        return -0.5 * np.trace(np.linalg.solve(K, second)) - 0.5 * np.linalg.slogdet(K)[1]

    def along(D):
        return (expected_log_prior(s.K_ZZ[1] + h * D) - expected_log_prior(s.K_ZZ[1] - h * D)) / (2 * h)

    assert prior_term_gradient(matrix, dK) == pytest.approx(along(dK), rel=1e-7, abs=1e-9)
    entries = np.array([[along(np.outer(a, b)) for b in np.eye(s.m)] for a in np.eye(s.m)])
    np.testing.assert_allclose(-0.5 * matrix, entries, rtol=1e-6, atol=1e-8)  # central differences


@pytest.mark.verifies("villacampa2020", "u31-natural-sum", route="product of densities at points")
def test_natural_parameters_add_up_to_those_of_q(model):
    s = model
    sites = [
        Natural(np.stack([s.c1[i, k] * np.outer(s.upsilon[k, i], s.upsilon[k, i]) for k in range(s.C)]),
                np.stack([s.c2[i, k] * s.upsilon[k, i] for k in range(s.C)])) for i in range(s.n)
    ]  # fmt: skip
    got = natural_parameter_sum(natural_prior(s.K_ZZ), sites)
    for k in range(s.C):
        np.testing.assert_allclose(np.linalg.inv(got.precision[k]), s.cov[k], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(np.linalg.solve(got.precision[k], got.shift[k]), s.mean[k], rtol=1e-8, atol=1e-10)


@pytest.mark.verifies("villacampa2020", "u32-trace-rotation", route="sum over all indices")
def test_the_trace_does_not_mind_rotation(rng):
    A, B, C, D = (rng.normal(size=shape) for shape in ((2, 3), (3, 4), (4, 2), (2, 2)))
    assert cyclic_trace((A, B, C, D)) == pytest.approx(np.einsum("ab,bc,cd,da->", A, B, C, D), rel=1e-12, abs=0)


@pytest.mark.verifies("villacampa2020", "u33-adaptive-learning-rate", route="three coordinates by hand")
def test_rates_rise_by_two_per_cent_and_halve_at_a_turn():
    got = adaptive_learning_rate(np.array([1.0, -2.0, 3.0]), np.array([0.5, 1.0, -1.0]), np.array([0.1, 0.2, 0.4]))
    np.testing.assert_allclose(got, [0.102, 0.1, 0.2], rtol=1e-14)


@pytest.mark.verifies("villacampa2020", "u34-adam", route="weighted sums over all past gradients")
def test_adam_climbs_by_bias_corrected_averages(rng):
    gradients, where = rng.normal(size=(4, 3)), np.zeros(3)
    state = AdamState(np.zeros(3), np.zeros(3), 0)
    for t, gradient in enumerate(gradients, start=1):
        before = where
        where, state = adam_step(where, gradient, state, 0.01)
        first, second = (
            sum(b ** (t - j) * gradients[j - 1] ** power for j in range(1, t + 1))
            / sum(b ** (t - j) for j in range(1, t + 1))
            for b, power in ((0.9, 1), (0.999, 2))
        )
        np.testing.assert_allclose(where - before, 0.01 * first / (np.sqrt(second) + 1e-8), rtol=1e-9)
        # what is remembered: plain averages, whose weights fall short of one by β^t
        np.testing.assert_allclose(state.first, (1 - 0.9**t) * first, rtol=1e-12)
        np.testing.assert_allclose(state.second, (1 - 0.999**t) * second, rtol=1e-9)  # 1 - β^t loses digits
        assert state.steps == t
