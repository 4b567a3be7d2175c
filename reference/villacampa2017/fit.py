"""Section 2.2: hyper-parameters, what the prior says of the data, the loop to a fixed point of any method."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._sweeps import Sweeps
from reference.common.errors import NotPositiveDefiniteError
from reference.common.kernels import squared_exponential
from reference.villacampa2017.model import add_latent_noise, inducing_covariances, projection_vectors
from reference.villacampa2017.posterior import Gaussians

if TYPE_CHECKING:  # the methods need the matrices that are defined here
    from reference.villacampa2017.methods import Method

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Prior(NamedTuple):
    """Hyper-parameters of all classes."""

    variance: Array  # (C,)
    lengthscales: Array  # (C, d)
    noise: Array  # (C,)
    jitter: Array  # (C,)
    Z: Array  # (C, m, d)


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


class Run(NamedTuple):
    """Where a loop over all data ended."""

    sites: Any
    posterior: Gaussians
    residual: float  # largest undamped change of a factor in its own standardised coordinate, in the last sweep
    converged: bool
    n_improper: int
    iterations: int


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
    monitor: Callable[[Any, float, int], None] | None = None,
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
    monitor : callable        told sites, residual and improper cavities after every sweep
    """
    everything = np.arange(K.upsilon.shape[1])
    q = method.posterior(sites, K)
    n_improper, iterations, sweeps = 0, 0, Sweeps(method.damping, tolerance)
    while not sweeps.converged and not sweeps.stalled and iterations < max_iterations:
        step = method.step(sites, q, K, everything)
        sites = step.sites
        q = method.posterior(sites, K) if step.posterior is None else step.posterior
        n_improper += step.n_improper
        iterations += 1
        if monitor is not None:
            monitor(sites, step.residual, step.n_improper)
        back = sweeps.see(sites, step.residual, step.n_improper)
        leap = sweeps.propose(sites) if back is None else back
        if leap is not None:
            try:
                sites, q = leap, method.posterior(leap, K)
            except NotPositiveDefiniteError:
                sites = sweeps.refuse()
    return Run(sites, q, sweeps.change, sweeps.converged, n_improper, iterations)
