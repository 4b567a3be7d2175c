"""Sections 2.2 and G: finite differences of the log Z_q of EP run anew, and of each closed form."""

import numpy as np
import pytest

from reference.common._steps import AdamState, adam_step
from reference.villacampa2017.cavity import Cavity
from reference.villacampa2017.evidence import ep_log_evidence_from_moments, factor_log_scale_rank_one
from reference.villacampa2017.factors import pairwise_log_normaliser
from reference.villacampa2017.gradients import (
    adaptive_learning_rate,
    cyclic_trace,
    direct_dlogz_dhyper,
    distributions_of,
    ep_log_evidence_gradient,
    hyper_directions,
    minibatch_log_evidence_gradient,
    minibatch_scale,
    prior_term_gradient,
    prior_term_matrix,
)


def matrices(s, variance, lengthscales, noise, Z):
    """K_ZZ, K_XZ, k_xx by another formula of the kernel."""

    def k(A, B, c):
        gap = np.sum(A**2 / lengthscales[c] ** 2, axis=1)[:, None] + np.sum(B**2 / lengthscales[c] ** 2, axis=1)
        return variance[c] * np.exp(-0.5 * gap + (A / lengthscales[c] ** 2) @ B.T)

    K_ZZ = np.stack([k(Z[c], Z[c], c) + s.jitter[c] * np.eye(s.m) for c in range(s.C)])
    K_XZ = np.stack([k(s.X, Z[c], c) for c in range(s.C)])
    return K_ZZ, K_XZ, np.repeat((variance + noise)[:, None], s.n, axis=1)


def along(s, field, entry, step):
    """The matrices after a step in one entry of one field."""
    fields = {name: np.array(getattr(s, name), copy=True) for name in ("variance", "lengthscales", "noise", "Z")}
    fields[field].flat[entry] += step
    return matrices(s, **fields)


ENTRIES = [
    ("variance", 0),
    ("variance", 2),
    ("lengthscales", 1),
    ("lengthscales", 4),
    ("noise", 1),
    ("Z", 0),
    ("Z", 9),
    ("Z", 17),
]


@pytest.mark.parametrize(("field", "entry"), ENTRIES)
def test_directions_are_derivatives_of_the_prior_matrices(model, field, entry):
    s = model
    got = hyper_directions(s.X, s.Z, s.variance, s.lengthscales)[field][entry]
    ends = along(s, field, entry, 1e-6), along(s, field, entry, -1e-6)
    for part, up, down in zip(got, *ends, strict=True):
        # central differences err by 1e-12 and by 1e-16/1e-6
        np.testing.assert_allclose(part, (up - down) / 2e-6, rtol=1e-7, atol=2e-9)


@pytest.mark.verifies("villacampa2017", "10", route="central differences of log Z_q, EP converged anew")
@pytest.mark.verifies("villacampa2017", "62", route="central differences of log Z_q, EP converged anew")
@pytest.mark.verifies("villacampa2017", "12", route="the whole data as mini-batch, and the mean over equal ones")
def test_the_gradient_at_convergence_is_the_derivative_of_log_z(model, fixed_point):
    s = model

    def log_z(K_ZZ, K_XZ, k_xx):
        end = fixed_point(K_ZZ, K_XZ, k_xx)
        scales = factor_log_scale_rank_one(end.log_norm, end.coefficients, end.q, s.y, end.upsilon)
        return ep_log_evidence_from_moments(end.q, K_ZZ, scales)

    here = s.K_ZZ, s.K_XZ, s.k_xx
    end = fixed_point(*here)
    change = max(np.max(np.abs(a - b)) for a, b in zip(end.refined.coefficients, end.coefficients, strict=True))
    assert change < 1e-12  # EP has converged
    directions = hyper_directions(s.X, s.Z, s.variance, s.lengthscales)
    data = distributions_of(end.coefficients, end.q, s.y, *(s.k_xx, s.K_XZ, s.K_ZZ)), s.y, s.K_ZZ
    for field, entry in ENTRIES[::2]:
        direction = directions[field][entry]
        step = 1e-4
        wanted = (log_z(*along(s, field, entry, step)) - log_z(*along(s, field, entry, -step))) / (2 * step)
        # central differences err by step² times a third derivative of size one
        assert ep_log_evidence_gradient(*data, direction) == pytest.approx(wanted, rel=1e-6, abs=1e-7)
        whole = minibatch_log_evidence_gradient(*data, direction, np.arange(s.n))
        assert whole == pytest.approx(wanted, rel=1e-6, abs=1e-7)
        single = [minibatch_log_evidence_gradient(*data, direction, np.array([i])) for i in range(s.n)]
        assert np.mean(single) == pytest.approx(wanted, rel=1e-6, abs=1e-7)


@pytest.mark.verifies("villacampa2017", "63", route="Gaussian sufficient statistics term by term")
@pytest.mark.verifies("villacampa2017", "64", route="Gaussian sufficient statistics term by term")
def test_the_prior_part_is_a_difference_of_expected_statistics(model, rng):
    s = model
    K = s.K_ZZ[0]
    dK = rng.normal(size=(s.m, s.m))
    dK = dK + dK.T
    step = 1e-6
    d_precision = (np.linalg.inv(K + step * dK) - np.linalg.inv(K - step * dK)) / (2 * step)
    # natural parameter -½K⁻¹, statistic ffᵀ, whose means are V + mmᵀ and K
    wanted = np.sum((s.cov + np.outer(s.mean, s.mean) - K) * (-0.5 * d_precision))
    got = prior_term_gradient(prior_term_matrix(s.mean, s.cov, K), dK)
    assert got == pytest.approx(wanted, rel=1e-7, abs=0)  # the difference quotient


@pytest.mark.verifies("villacampa2017", "u25-direct-dependence", route="central differences with cavities held")
def test_the_direct_dependence_of_log_z(model, rng):
    s = model
    cavities = Cavity(s.mean, s.cov), Cavity(s.mean_other, s.cov_other)
    upsilon, var = (s.upsilon[1, 1], s.upsilon[2, 1]), (s.cond_var[1, 1], s.cond_var[2, 1])
    d_upsilon, d_var = rng.normal(size=(2, s.m)), (0.4, -0.3)

    def log_z(step):
        a, b = [], []
        for u, v, du, dv, c in zip(upsilon, var, d_upsilon, d_var, cavities, strict=True):
            moved = u + step * du
            a.append(moved @ c.mean)
            b.append(v + step * dv + moved @ c.cov @ moved)
        return pairwise_log_normaliser(*a, *b)

    wanted = (log_z(1e-5) - log_z(-1e-5)) / 2e-5
    got = direct_dlogz_dhyper(cavities, upsilon, var, d_upsilon, d_var)
    assert got == pytest.approx(wanted, rel=1e-7, abs=0)  # the difference quotient


@pytest.mark.verifies("villacampa2017", "u18-minibatch-ratio", route="count of copies")
def test_the_ratio_of_data_to_batch():
    assert minibatch_scale(60_000, 200) == 300.0


@pytest.mark.verifies("villacampa2017", "u27-trace-rotation", route="trace of the product as it stands")
def test_the_trace_survives_a_rotation(rng):
    A, B, C, D = (rng.normal(size=shape) for shape in ((2, 3), (3, 4), (4, 5), (5, 2)))
    assert cyclic_trace([A, B, C, D]) == pytest.approx(np.trace(A @ B @ C @ D), rel=1e-12, abs=0)


@pytest.mark.verifies("villacampa2017", "u28-adaptive-learning-rate", route="rule read entry by entry")
def test_rates_grow_by_two_per_cent_or_halve():
    got = adaptive_learning_rate(np.array([1.0, -2.0, 3.0, 0.0]), np.array([0.1, -5.0, -1.0, 0.0]), np.full(4, 0.5))
    np.testing.assert_allclose(got, [0.51, 0.51, 0.25, 0.51], rtol=1e-15, atol=0)


@pytest.mark.verifies("villacampa2017", "u29-adam", route="weighted sums of all gradients so far")
def test_adam_from_its_definition(rng):
    gradients = rng.normal(size=(7, 3))
    at, state = np.ones(3), AdamState(np.zeros(3), np.zeros(3), 0)
    wanted = np.ones(3)
    for t in range(1, 8):
        at, state = adam_step(at, gradients[t - 1], state)
        early, late = 0.9 ** np.arange(t)[::-1], 0.999 ** np.arange(t)[::-1]  # normalised weights remove the bias
        mean = early @ gradients[:t] / np.sum(early)
        wanted = wanted + 0.001 * mean / (np.sqrt(late @ gradients[:t] ** 2 / np.sum(late)) + 1e-8)
        np.testing.assert_allclose(at, wanted, rtol=1e-13, atol=0)
        np.testing.assert_allclose(state.first, 0.1 * early @ gradients[:t], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(state.second, 0.001 * late @ gradients[:t] ** 2, rtol=1e-12, atol=0)
        assert state.steps == t
    # the first step of the first coordinate is the rate itself
    first, _ = adam_step(np.zeros(1), np.array([-4.0]), AdamState(np.zeros(1), np.zeros(1), 0))
    assert first[0] == pytest.approx(-0.001, rel=1e-8, abs=0)
