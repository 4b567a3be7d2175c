"""log Z of the softmax model: annealed particles and the bridge against products of one-dimensional rules."""

import numpy as np
import pytest
from scipy.special import log_softmax

from gibbs.core.kernels import squared_exponential
from gibbs.core.options import Particles
from gibbs.evidence import softmax_annealed, softmax_bridge
from gibbs_samplers import sample_softmax

X2 = np.array([[0.0, 0.2], [0.7, -0.5]])
SCALES = np.array([1.0, 1.5])
CASES = {
    "one datum, three classes": (X2[:1], np.array([2]), np.array([4.0, 1.0, 9.0])),
    "two data, two classes": (X2, np.array([0, 1]), np.array([4.0, 1.0])),
}


def covariances(X, variances):
    return np.stack([squared_exponential(X, X, v, SCALES) + 0.1 * np.eye(len(X)) for v in variances])


def quadrature(cov, y, step=0.5, half_width=6.5):
    """log Z over all latent values f, three or four of them, in white coordinates."""
    C, n = cov.shape[:2]
    axis = np.arange(-half_width, half_width + 0.5 * step, step)
    white = np.stack([g.ravel() for g in np.meshgrid(*[axis] * (C * n), indexing="ij")], axis=1)
    f = np.einsum("cnm,rcm->rcn", np.linalg.cholesky(cov), white.reshape(-1, C, n))
    log_lik = log_softmax(f, axis=1)[:, y, np.arange(n)].sum(axis=1)
    weight = np.exp(log_lik - 0.5 * np.square(white).sum(axis=1))
    return float(np.log(weight.sum()) + C * n * np.log(step / np.sqrt(2 * np.pi)))


@pytest.mark.parametrize("case", CASES)
def test_both_routes_find_the_evidence_of_quadrature(assert_z, case):
    X, y, variances = CASES[case]
    cov = covariances(X, variances)
    exact = quadrature(cov, y)
    chains = sample_softmax(
        X, y, len(variances), variances, SCALES, 0.1, 0.0, n_chains=16, n_draws=800, n_warmup=100, seed=1
    )
    routes = {
        "annealed": softmax_annealed.log_evidence(np.random.default_rng(3), cov, y),
        "bridge": softmax_bridge.log_evidence(np.random.default_rng(4), cov, y, chains.latent_draws),
    }
    z = []
    for value in routes.values():
        assert value.trusted
        assert value.standard_error < 0.05
        z.append((value.value - exact) / value.standard_error)
    assert_z(z)


def test_annealing_with_the_likelihood_of_other_labels_is_seen():
    X, y, variances = CASES["one datum, three classes"]
    cov = covariances(X, variances)
    estimate = softmax_annealed.log_evidence(np.random.default_rng(3), cov, (y + 2) % 3)
    assert abs(estimate.value - quadrature(cov, y)) > 6.0 * estimate.standard_error


def test_bad_input_is_refused_by_name():
    X, y, variances = CASES["two data, two classes"]
    cov, rng = covariances(X, variances), np.random.default_rng(0)
    with pytest.raises(ValueError, match="cov"):
        softmax_annealed.log_evidence(rng, cov[0], y)
    with pytest.raises(ValueError, match="y"):
        softmax_annealed.log_evidence(rng, cov, np.array([0, 2]))
    with pytest.raises(ValueError, match="n_islands"):
        softmax_annealed.log_evidence(rng, cov, y, Particles(n_islands=2))
    with pytest.raises(ValueError, match="target_error"):
        softmax_annealed.log_evidence(rng, cov, y, Particles(target_error=0.0))
    with pytest.raises(ValueError, match="latent_values"):
        softmax_bridge.log_evidence(rng, cov, y, np.zeros((4, 200, 2, 3)))
    with pytest.raises(ValueError, match="latent_values"):
        softmax_bridge.log_evidence(rng, cov, y, np.zeros((4, 20, 2, 2)))
    with pytest.raises(np.linalg.LinAlgError):
        softmax_annealed.log_evidence(rng, np.zeros((2, 2, 2)), y)
