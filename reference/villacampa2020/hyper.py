"""What hyper-parameters and inducing inputs of all classes say of data and of new inputs."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.kernels import squared_exponential
from reference.common.priors import Prior
from reference.villacampa2020.model import add_latent_noise
from reference.villacampa2020.sparse import fitc_conditional

Array = NDArray[np.float64]
Batch = NDArray[np.intp]


class Matrices(NamedTuple):
    """What the prior says of the data."""

    K_ZZ: Array  # (C, m, m)
    upsilon: Array  # (C, n, m)
    cond_var: Array  # (C, n)
    k_xx: Array  # (C, n) noise included
    K_XZ: Array  # (C, n, m)

    def of(self, rows: Batch) -> "Matrices":
        """The same of some data, (b,) indices."""
        by_datum = (self.upsilon[:, rows], self.cond_var[:, rows], self.k_xx[:, rows], self.K_XZ[:, rows])
        return Matrices(self.K_ZZ, *by_datum)


class Cross(NamedTuple):
    """What the prior says of new inputs."""

    k_tt: Array  # (C, t) noise included
    K_TZ: Array  # (C, t, m)


def inducing_covariances(prior: Prior) -> Array:
    """K_ZZ (C, m, m), jitter included, of villacampa2020.

    Parameters
    ----------
    prior : Prior             hyper-parameters
    """
    each = zip(prior.Z, prior.variance, prior.lengthscales, prior.jitter, strict=True)
    return np.stack([squared_exponential(Z, Z, v, ell) + jitter * np.eye(len(Z)) for Z, v, ell, jitter in each])


def cross_covariances(X: Array, prior: Prior) -> Cross:
    """Prior variances with noise, and covariances with the inducing values, of latent values at X: villacampa2020.

    Parameters
    ----------
    X : (n, d)                inputs
    prior : Prior             hyper-parameters
    """
    each = zip(prior.Z, prior.variance, prior.lengthscales, strict=True)
    K_XZ = np.stack([squared_exponential(X, Z, v, ell) for Z, v, ell in each])
    return Cross(add_latent_noise(np.repeat(prior.variance[:, None], len(X), axis=1), prior.noise), K_XZ)


def prior_matrices(X: Array, prior: Prior) -> Matrices:
    """K_ZZ, and υ and s of p(f_i|f̄), of villacampa2020 for all classes.

    Parameters
    ----------
    X : (n, d)                inputs
    prior : Prior             hyper-parameters

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    K_ZZ, cross = inducing_covariances(prior), cross_covariances(X, prior)
    given = fitc_conditional(np.zeros(K_ZZ.shape[:2]), cross.k_tt, cross.K_TZ, K_ZZ)
    return Matrices(K_ZZ, given.upsilon, given.var, cross.k_tt, cross.K_TZ)
