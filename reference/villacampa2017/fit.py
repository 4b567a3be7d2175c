"""Section 2.2: hyper-parameters, what the prior says of the data, the loop to a fixed point of any method."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _sweeps
from reference.common._classes import Prior
from reference.common._sweeps import Run, Step, Sweeps
from reference.common.kernels import squared_exponential
from reference.villacampa2017.model import add_latent_noise, inducing_covariances, projection_vectors

if TYPE_CHECKING:  # the methods need the matrices that are defined here
    from reference.villacampa2017.methods import Method

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


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


def to_fixed_point(
    method: "Method",
    sites: Any,
    K: Matrices,
    tolerance: float,
    max_iterations: int,
    monitor: Callable[[Step], None] | None = None,
) -> Run:
    """Sweeps over all data until no factor wants to move: villacampa2017, 2.2.

    Parameters
    ----------
    method : Method           how factors are refined
    sites : object            where to start
    K : Matrices              of the prior
    tolerance : float         estimated distance of a factor from the fixed point at which it ends, unless a cavity was
                              no distribution
    max_iterations : int      sweeps after which it gives up, as it does if 300 do not halve the residual; `converged`
                              is then False
    monitor : callable        told the outcome of every sweep
    """
    everything = np.arange(K.upsilon.shape[1])
    return _sweeps.to_fixed_point(
        lambda at, q: method.step(at, q, K, everything),
        lambda at: method.posterior(at, K),
        sites,
        Sweeps(method.damping, tolerance),
        max_iterations,
        monitor,
    )
