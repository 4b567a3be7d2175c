"""A small problem with kernels and inducing inputs of their own for every class, and factors in no special state."""

from types import SimpleNamespace

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(20170806)


@pytest.fixture
def model(rng):
    """Five data, three classes, three inducing points each; class first in every array."""
    s = SimpleNamespace(n=5, C=3, m=3, d=2)
    s.X = rng.normal(size=(s.n, s.d))
    s.y = np.array([0, 1, 2, 1, 0])
    s.Z = 1.5 * rng.normal(size=(s.C, s.m, s.d))
    s.variance = np.array([2.0, 3.0, 1.5])
    s.lengthscales = np.array([[1.0, 0.8], [0.7, 1.2], [1.1, 0.9]])
    s.noise = np.array([0.1, 0.05, 0.2])
    s.jitter = np.array([1e-2, 2e-2, 3e-2])

    def k(A, B, c):
        return s.variance[c] * np.exp(-0.5 * np.sum(((A[:, None] - B[None]) / s.lengthscales[c]) ** 2, axis=2))

    s.kernel = k
    s.K_ZZ = np.stack([k(s.Z[c], s.Z[c], c) + s.jitter[c] * np.eye(s.m) for c in range(s.C)])
    s.K_XZ = np.stack([k(s.X, s.Z[c], c) for c in range(s.C)])
    s.k_xx = np.repeat((s.variance + s.noise)[:, None], s.n, axis=1)
    s.upsilon = np.stack([np.linalg.solve(s.K_ZZ[c], s.K_XZ[c].T).T for c in range(s.C)])
    s.cond_var = np.stack(
        [np.diag(s.noise[c] * np.eye(s.n) + k(s.X, s.X, c) - s.K_XZ[c] @ s.upsilon[c].T) for c in range(s.C)]
    )
    s.inducing_values = rng.normal(size=(s.C, s.m))
    keep = np.arange(s.C) != s.y[:, None]  # nothing stands in the columns of the labels
    s.c1_label = keep * rng.uniform(0.05, 0.3, size=(s.n, s.C))
    s.c1_other = keep * rng.uniform(0.05, 0.3, size=(s.n, s.C))
    s.c2_label = keep * rng.uniform(0.1, 0.8, size=(s.n, s.C))
    s.c2_other = -1.0 * keep * rng.uniform(0.1, 0.8, size=(s.n, s.C))
    s.mean = rng.normal(size=s.m)
    root = rng.normal(size=(s.m, s.m))
    s.cov = root @ root.T + 0.5 * np.eye(s.m)
    root = rng.normal(size=(s.m, s.m))
    s.mean_other, s.cov_other = rng.normal(size=s.m), root @ root.T + 0.5 * np.eye(s.m)
    return s


@pytest.fixture
def fixed_point(model):
    """EP run until only rounding moves it; a function of the prior matrices, for other hyper-parameters too."""
    from reference.villacampa2017.factors import ep_refine_factors, posterior_of
    from reference.villacampa2017.posterior import Coefficients

    s = model

    def run(K_ZZ, K_XZ, k_xx, sweeps=60):
        upsilon = np.stack([np.linalg.solve(K_ZZ[c], K_XZ[c].T).T for c in range(s.C)])
        cond_var = k_xx - np.sum(K_XZ * upsilon, axis=2)
        at = Coefficients(*(np.zeros((s.n, s.C)) for _ in range(4)))
        for _ in range(sweeps):
            q = posterior_of(at, s.y, upsilon, K_ZZ)
            new = ep_refine_factors(at, q, s.y, k_xx, K_XZ, K_ZZ).coefficients
            at = Coefficients(*(0.8 * after + 0.2 * before for after, before in zip(new, at, strict=True)))
        q = posterior_of(at, s.y, upsilon, K_ZZ)
        refined = ep_refine_factors(at, q, s.y, k_xx, K_XZ, K_ZZ)
        return SimpleNamespace(
            coefficients=at, q=q, log_norm=refined.log_norm, refined=refined, upsilon=upsilon, cond_var=cond_var
        )

    return run
