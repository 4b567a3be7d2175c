"""Section 3, baseline GFITC, by the equations of section 2.2 and the appendices C to F: the form "printed".

GFITC is expectation propagation over the exact factors (1), with the FITC prior in the place of the Gaussian process.
In section 2.2's own terms the latent values at the data are then their own inducing values: K_ZZ = K_XZ = P_k,
κ = diag(P_k), so that υ_i = e_i and nothing lies between f̄ and f, s_i = 0. `gfitc` has the form "projected" of this.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import Prior
from reference.common._learning import FIELDS
from reference.villacampa2017.gradients import Direction, ep_log_evidence_gradient, hyper_directions
from reference.villacampa2017.hyper import Matrices
from reference.villacampa2017.model import projection_vectors
from reference.villacampa2017.posterior import Coefficients, Gaussians
from reference.villacampa2017.printed import PrintedEP

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def latent_matrices(K_XX: Array) -> Matrices:
    """What section 2.2 of villacampa2017 needs of a prior whose inducing values are the latent values at the data.

    Parameters
    ----------
    K_XX : (C, n, n)          P_k, not singular

    Raises
    ------
    NotPositiveDefiniteError  if one of K_XX is singular
    """
    k_xx = np.einsum("kii->ki", K_XX).copy()
    return Matrices(K_XX, projection_vectors(K_XX, K_XX), np.zeros_like(k_xx), K_XX, k_xx)


def fitc_directions(X: Array, prior: Prior, K: Matrices, learn: Sequence[str] = FIELDS) -> dict[str, Direction]:
    """Derivatives of the P_k of villacampa2017's GFITC along each hyper-parameter, every ξ of a field in a first axis.

        dQ = dK_XZ υᵀ + υ dK_ZX - υ dK_ZZ υᵀ,   dP = dQ + diag(dκ - dQ_ii)

    Parameters
    ----------
    X : (n, d)                inputs
    prior : Prior             hyper-parameters of all classes
    K : Matrices              of the prior and the inducing values
    learn : names             the fields
    """
    directions = hyper_directions(X, prior.Z, prior.variance, prior.lengthscales, learn)
    results = {}
    for name, along in directions.items():
        by_P = []
        for dK_ZZ, dK_XZ, dk in along:
            crossed = dK_XZ @ K.upsilon.transpose(0, 2, 1)
            dQ = crossed + crossed.transpose(0, 2, 1) - K.upsilon @ dK_ZZ @ K.upsilon.transpose(0, 2, 1)
            by_P.append(dQ + np.stack([np.diag(new - np.diag(old)) for new, old in zip(dk, dQ, strict=True)]))
        dP = np.stack(by_P)
        results[name] = Direction(dP, dP, np.einsum("hkii->hki", dP))
    return results


def printed_gfitc_gradients(
    sites: Coefficients, X: Array, y: Labels, prior: Prior, K: Matrices, K_XX: Array, learn: Sequence[str] = FIELDS
) -> dict[str, Array]:
    """(10) of villacampa2017 for GFITC, the derivative of log Z where EP has converged.

    Parameters
    ----------
    sites : Coefficients      each (n, C), at a fixed point
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1
    prior : Prior             hyper-parameters of all classes
    K : Matrices              of the prior and the inducing values
    K_XX : (C, n, n)          P_k
    learn : names             the fields

    Returns
    -------
    dict                      field to derivatives, shapes as in the prior; jitter is held

    Raises
    ------
    ValueError                if a cavity is no distribution
    """
    # fmt: off
    method, P = PrintedEP(y, len(K_XX), 1.0, "parallel"), latent_matrices(K_XX)
    q: Gaussians = method.posterior(sites, P)                                                      # (25) to (27)
    distributions = method.distributions(sites, q, P)                                              # (29) to (32)
    return {
        name: ep_log_evidence_gradient(distributions, y, K_XX, along).reshape(getattr(prior, name).shape)  # (10), (62)
        for name, along in fitc_directions(X, prior, K, learn).items()
    }
    # fmt: on
