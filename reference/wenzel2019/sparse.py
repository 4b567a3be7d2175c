"""Section 3.2: the sparse Gaussian process, (6), and the sparse augmented joint density, (7)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.wenzel2019.model import log_gaussian

Array = NDArray[np.float64]

_REMEDY = "raise jitter or remove duplicate rows of Z"


class SparsePrior(NamedTuple):
    """p(f|u) = N(mean, cov) and log p(u)."""

    mean: Array  # (n,)   K_nm K_mm⁻¹ u
    cov: Array  # (n, n)  K̃
    log_inducing: float  # log N(u | 0, K_mm)


@equation("wenzel2019", "6")
def sparse_prior(inducing_values: Array, K_ZZ: Array, K_XZ: Array, K_XX: Array) -> SparsePrior:
    """Prior of latent and inducing values: wenzel2019 (6).

        p(f|u) = N(f | K_nm K_mm⁻¹ u, K̃),   K̃ = K_nn - K_nm K_mm⁻¹ K_mn
        p(u) = N(u | 0, K_mm)                                                                 (6)

    Parameters
    ----------
    inducing_values : (m,)    u
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    K_XX : (n, n)             K_nn

    Returns
    -------
    SparsePrior               mean (n,), cov (n, n), log_inducing

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    K_inverse = factorise(K_ZZ, "K_ZZ", _REMEDY).inverse
    mean = K_XZ @ K_inverse @ inducing_values
    K_tilde = K_XX - K_XZ @ K_inverse @ K_XZ.T
    return SparsePrior(mean, K_tilde, log_gaussian(inducing_values, K_ZZ, "K_ZZ"))


@equation("wenzel2019", "7")
def log_joint_sparse(
    latent_values: Array,
    inducing_values: Array,
    omega: Array,
    y_sign: Array,
    K_ZZ: Array,
    K_XZ: Array,
    K_XX: Array,
) -> float:
    """Log joint density of the sparse augmented model without log p(ω): wenzel2019 (7).

        p(y, ω, f, u) = p(y|ω, f) p(ω) p(f|u) p(u)                                            (7)

    Parameters
    ----------
    latent_values : (n,)      f
    inducing_values : (m,)    u
    omega : (n,)              Pólya-Gamma variables
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    K_XX : (n, n)             K_nn

    Returns
    -------
    log p(y, ω, f, u) - log p(ω), -n log 2 included

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ or K̃ is singular; p(f|u) has a density only where no f_i is fixed by u
    """
    f = latent_values
    prior = sparse_prior(inducing_values, K_ZZ, K_XZ, K_XX)
    log_conditional = log_gaussian(f - prior.mean, prior.cov, "K_tilde")
    log_likelihood = float(np.sum(-np.log(2.0) + 0.5 * y_sign * f - 0.5 * omega * f**2))
    return log_likelihood + log_conditional + prior.log_inducing
