"""Section 3, baseline GFITC: expectation propagation over the exact factors (1), inducing values marginalised.

The latent values of class k at the data have the prior N(0, P_k), P_k = Q_k + diag(s^k), Q = K_XZ K_ZZ⁻¹ K_ZX. The
paper prints no equation of it: in section 2.2's own terms the latent values are their own inducing values,
K_ZZ = K_XZ = P_k, κ = diag(P_k), so that υ_i = e_i and nothing lies between f̄ and f, s_i = 0.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import checked_input, fields_to_learn
from reference.common._gaussians import Gaussians
from reference.common._learning import FIELDS
from reference.common._training import Fit, Record, State, Task, begin, by_search, finish
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.common.priors import Prior
from reference.villacampa2017.fit import to_fixed_point
from reference.villacampa2017.gradients import Direction
from reference.villacampa2017.hyper import Matrices, prior_matrices
from reference.villacampa2017.methods import EP
from reference.villacampa2017.model import projection_vectors
from reference.villacampa2017.posterior import (
    Coefficients,
    aggregate_linear_coefficients,
    aggregate_precision_coefficients,
    posterior_moments,
)
from reference.villacampa2017.prediction import Latents

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def fitc_covariance(upsilon: Array, cond_var: Array, K_ZZ: Array) -> Array:
    """P_k = K_XZ K_ZZ⁻¹ K_ZX + diag(s^k), dense, (C, n, n): the FITC prior of section 2.1 of villacampa2017.

    Parameters
    ----------
    upsilon : (C, n, m)       υ_i^k
    cond_var : (C, n)         s_i^k
    K_ZZ : (C, m, m)          prior covariances of the inducing values
    """
    return np.stack([u @ K @ u.T + np.diag(s) for u, s, K in zip(upsilon, cond_var, K_ZZ, strict=True)])


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


def fitc_directions(direction: dict[str, Direction], K: Matrices) -> dict[str, Direction]:
    """Derivatives of the P_k of villacampa2017's GFITC, every ξ of a field in a first axis.

        dQ = dK_XZ υᵀ + υ dK_ZX - υ dK_ZZ υᵀ,   dP = dQ + diag(dκ - dQ_ii)

    Parameters
    ----------
    direction : dict          derivatives of K_ZZ, K_XZ and κ, by field
    K : Matrices              of the prior and the inducing values
    """
    results = {}
    for name, (dK_ZZ, dK_XZ, dk) in direction.items():
        crossed = dK_XZ @ K.upsilon.transpose(0, 2, 1)
        dQ = crossed + crossed.swapaxes(-1, -2) - K.upsilon @ dK_ZZ @ K.upsilon.transpose(0, 2, 1)
        dP = dQ + (dk - np.einsum("hkii->hki", dQ))[..., None] * np.eye(K.upsilon.shape[1])
        results[name] = Direction(dP, dP, np.einsum("hkii->hki", dP))
    return results


class GFITC(EP):
    """EP with the latent values at the data for inducing values: GFITC of villacampa2017."""

    def matrices(self, X: Array, prior: Prior) -> Matrices:
        """P_k, and what section 2.2 needs of it, of a prior at the inputs X (n, d)."""
        K = prior_matrices(X, prior)
        return latent_matrices(fitc_covariance(K.upsilon, K.cond_var, K.K_ZZ))

    def directions(self, X: Array, state: State, learn: Sequence[str] = FIELDS) -> dict[str, Direction]:
        """Derivatives of P_k at X of a state's prior in every ξ of the fields learn."""
        each = super().directions(X, state, learn)
        return fitc_directions(each, prior_matrices(X, state.prior))

    def latents(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> Latents:
        """Moments at the data, which are those of the posterior; sites and K are not looked at."""
        return Latents(posterior.mean.T, np.einsum("kii->ik", posterior.cov))


def inducing_posterior(sites: Coefficients, X: Array, y: Labels, prior: Prior) -> Gaussians:
    """q of the inducing values from the sites, latent values integrated out: GFITC of villacampa2017.

    A factor on f is a wider one on its mean given the inducing values: Δ/(1 + sΔ) and μ̃/(1 + sΔ) in (25).

    Parameters
    ----------
    sites : Coefficients      each (n, C)
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1
    prior : Prior             hyper-parameters of all classes
    """
    K = prior_matrices(X, prior)
    delta = aggregate_precision_coefficients(sites.c1_label, sites.c1_other, y)  # (26)
    mu_tilde = aggregate_linear_coefficients(sites.c2_label, sites.c2_other, y)  # (27)
    wider = 1.0 + K.cond_var * delta
    return posterior_moments(delta / wider, mu_tilde / wider, K.upsilon, K.K_ZZ)  # (25)


@equation("villacampa2017", "u20-gfitc")
@takes("gfitc")
def gfitc_baseline(X: Array, y: Labels, prior: Prior, *, shared: bool = False, options: Options) -> Fit:
    """GFITC: EP over the exact factors with the FITC prior, converged before every step of L-BFGS: villacampa2017.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1; a class may be absent
    prior : Prior             hyper-parameters and inducing inputs of all classes; the start where learned
    shared : bool             one vector of hyper-parameters for all classes
    options : Options         of "gfitc", or each by name; n_steps None: 200

    Returns
    -------
    Fit                       whose posterior is that of the inducing values

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ or P_k is singular
    """
    # fmt: off
    X, y, prior = checked_input(X, y, prior)
    learned = fields_to_learn(options.learn, prior)
    if options.n_steps is not None and not learned:
        raise ValueError(f"n_steps: found {options.n_steps} without learn, expected fields to learn")
    task = Task(GFITC(y, len(prior.Z), options.damping, "parallel"), X, options, shared)
    state, record = begin(task, prior), Record(task)                                               # φ̃ = 1, q = N(0, P)
    if learned:
        fit = by_search(task, state, to_fixed_point)                                               # (9), (10)
    else:
        state = to_fixed_point(task, state, record.tell)                                           # (25) to (53)
        fit = finish(task, state, record.trace, record.count)                                      # (9), (10)
    return fit._replace(posterior=inducing_posterior(fit.sites, X, y, fit.prior))                  # (25) to (27)
    # fmt: on
