"""Section 2.2: what hyper-parameters and inducing inputs of all classes say of the data."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.kernels import squared_exponential
from reference.common.priors import Prior
from reference.villacampa2017.model import add_latent_noise, inducing_covariances, projection_vectors

Array = NDArray[np.float64]


class Matrices(NamedTuple):
    """What the prior says of the data."""

    K_ZZ: Array  # (C, m, m)
    upsilon: Array  # (C, n, m)
    cond_var: Array  # (C, n)
    K_XZ: Array  # (C, n, m)
    k_xx: Array  # (C, n)  noise included

    def rows(self, batch: NDArray[np.intp]) -> "Matrices":
        """The same of the data of a batch (b,)."""
        return Matrices(self.K_ZZ, *(part[:, batch] for part in self[1:]))


def prior_matrices(X: Array, prior: Prior) -> Matrices:
    """K_ZZ, υ and s of villacampa2017 for all classes.

    Parameters
    ----------
    X : (n, d)                inputs
    prior : Prior             hyper-parameters

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    K_ZZ = inducing_covariances(prior.Z, prior.variance, prior.lengthscales, prior.jitter)
    K_XZ = np.stack(
        [squared_exponential(X, prior.Z[k], prior.variance[k], prior.lengthscales[k]) for k in range(len(K_ZZ))]
    )
    upsilon = projection_vectors(K_XZ, K_ZZ)
    k_xx = add_latent_noise(np.repeat(prior.variance[:, None], len(X), axis=1), prior.noise)
    return Matrices(K_ZZ, upsilon, np.maximum(k_xx - np.sum(K_XZ * upsilon, axis=2), 0.0), K_XZ, k_xx)
