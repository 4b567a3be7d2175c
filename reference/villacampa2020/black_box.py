r"""Section 4: the energy (11) with its expectations over q replaced by averages of draws."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._gaussians import Gaussians, natural_parameters
from reference.common._options import shown
from reference.common.errors import cholesky
from reference.villacampa2020.hyper import Matrices
from reference.villacampa2020.model import label_from_latents, robust_likelihood
from reference.villacampa2020.posterior import SITES_REMEDY, natural_prior
from reference.villacampa2020.tied import tied_factor_parameters

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Averages(NamedTuple):
    """Of (p(y_i|f_i)/φ̃)^α over draws from q."""

    log_norm: Array  # (n,) (1/α) log of the averages, minus infinity for an average of zero
    standard_error: float  # of the sum over data, to first order, as if the data had draws of their own


def monte_carlo_log_norms(
    posterior: Gaussians, y: Labels, K: Matrices, epsilon: float, alpha: float, n_draws: int = 1000, seed: int = 0
) -> Averages:
    """(1/α) log E_q[(p(y_i|f_i)/φ̃)^α] of every datum by draws: (11) of villacampa2020, the black-box way.

    First all draws of the inducing values, then all of the latent values given them. The logarithm of an average is
    biased downwards, by half its relative variance to first order.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    y : (n,)                  labels, 0..C-1
    K : Matrices              of the prior and these data
    epsilon : float           ε in [0, 1)
    alpha : float             α in [0, 1]; 0 averages log p(y_i|f_i) - log φ̃
    n_draws : int             at least 2
    seed : int                of the draws

    Raises
    ------
    ValueError                for fewer than two draws
    NotPositiveDefiniteError  if one of the matrices is not a covariance
    """
    if _check.count(n_draws, "n_draws") < 2:
        raise ValueError(f"n_draws: found {shown(n_draws)}, expected at least 2")
    (C, m), n = posterior.mean.shape, len(y)
    rng = np.random.default_rng(seed)
    white, extra = rng.standard_normal((n_draws, C, m)), rng.standard_normal((n_draws, n, C))
    roots = np.stack([cholesky(V, "inducing_cov", SITES_REMEDY) for V in posterior.cov])
    values = posterior.mean + np.einsum("kij,rkj->rki", roots, white)
    factor = tied_factor_parameters(natural_parameters(posterior), natural_prior(K.K_ZZ), n)
    log_factor = np.einsum("ki,rki->r", factor.shift, values)
    log_factor -= 0.5 * np.einsum("rki,kij,rkj->r", values, factor.precision, values)
    latent = np.einsum("kim,rkm->rik", K.upsilon, values) + np.sqrt(K.cond_var.T) * extra
    wins = label_from_latents(latent.reshape(-1, C)).reshape(n_draws, n) == y
    first = np.eye(C)[0]
    high, low = (robust_likelihood(first, label, epsilon) for label in (0, 1))  # (2) has two values
    with np.errstate(divide="ignore"):  # the logarithm of a likelihood that can be zero
        log_p = np.log(np.where(wins, high, low))
    log_ratio = log_p - log_factor[:, None]
    if alpha == 0.0:
        deviations = np.std(log_ratio, axis=0, ddof=1) / np.sqrt(n_draws)
        return Averages(np.mean(log_ratio, axis=0), float(np.sqrt(np.sum(deviations**2))))
    largest = np.max(log_ratio, axis=0)
    safe = np.where(np.isfinite(largest), largest, 0.0)
    scaled = np.exp(alpha * (log_ratio - safe))
    average = np.mean(scaled, axis=0)
    if not np.all(average > 0.0):
        log_norm = np.where(average > 0.0, safe + np.log(np.where(average > 0.0, average, 1.0)) / alpha, -np.inf)
        return Averages(log_norm, np.inf)
    relative = np.std(scaled, axis=0, ddof=1) / np.sqrt(n_draws) / average
    return Averages(safe + np.log(average) / alpha, float(np.sqrt(np.sum(relative**2))) / alpha)
