r"""Section 3.1: the four steps of power expectation propagation for one factor, as densities and natural parameters.

The likelihood p(y_i|f_i) is what is raised to α; a function of f̄ alone is left when f_i has been integrated out.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2020.evidence import gaussian_log_normaliser
from reference.villacampa2020.posterior import (
    SITES_REMEDY,
    Gaussians,
    Natural,
    Site,
    natural_parameters,
)
from reference.villacampa2020.power_likelihood import log_expected_power
from reference.villacampa2020.refinement import cavity_latent_mean, tilted_covariance, tilted_mean

Array = NDArray[np.float64]


@equation("villacampa2020", "u15-pep-remove")
def pep_remove(posterior: Natural, site: Natural, alpha: float) -> Natural:
    r"""q^{\αi} = q/φ̃_i^α, natural parameters of every class: step one in section 3.1 of villacampa2020.

    Parameters
    ----------
    posterior : Natural       of q
    site : Natural            of φ̃_i
    alpha : float             α in (0, 1]

    Raises
    ------
    NotPositiveDefiniteError  if what remains is no distribution
    """
    left = Natural(posterior.precision - alpha * site.precision, posterior.shift - alpha * site.shift)
    for precision in left.precision:
        factorise(0.5 * (precision + precision.T), "cavity precision", SITES_REMEDY)
    return left


@equation("villacampa2020", "u16-pep-include")
def pep_include(
    cavity: Gaussians, upsilon: Array, cond_var: Array, y_i: int, epsilon: float, alpha: float
) -> Callable[[Array], float]:
    r"""log p̂(f̄) = log E[p(y_i|f_i)^α | f̄] + log q\(f̄), not normalised: step two in section 3.1 of villacampa2020.

    Parameters
    ----------
    cavity : Gaussians        moments of q\
    upsilon : (C, m)          υ_i of every class
    cond_var : (C,)           s_i, variances of f_i given f̄
    y_i : int                 label, 0..C-1
    epsilon : float           label-error probability
    alpha : float             α in (0, 1]

    Returns
    -------
    callable                  from f̄ (C, m) to log p̂(f̄)

    Raises
    ------
    NotPositiveDefiniteError  if the cavity is no distribution
    """
    factors = [factorise(V, "cavity_cov", SITES_REMEDY) for V in cavity.cov]

    def log_tilted(inducing_values: Array) -> float:
        total = log_expected_power(
            np.sum(upsilon * inducing_values, axis=1), cond_var, y_i, epsilon, alpha
        ).log_expectation
        for u, m, factor in zip(inducing_values, cavity.mean, factors, strict=True):
            away = u - m
            total -= 0.5 * float(away @ factor.inverse @ away + factor.log_det + len(m) * np.log(2.0 * np.pi))
        return total

    return log_tilted


@equation("villacampa2020", "u17-pep-project")
def pep_project(
    cavity: Gaussians, upsilon: Array, cond_var: Array, y_i: int, epsilon: float, alpha: float
) -> Gaussians:
    r"""argmin KL[p̂||q*] over independent Gaussians: the moments of p̂, step three in section 3.1 of villacampa2020.

    Parameters
    ----------
    cavity : Gaussians        moments of q\
    upsilon : (C, m)          υ_i of every class
    cond_var : (C,)           s_i, variances of f_i given f̄
    y_i : int                 label, 0..C-1
    epsilon : float           label-error probability
    alpha : float             α in (0, 1]
    """
    C = range(len(upsilon))
    mean = np.array([cavity_latent_mean(upsilon[k], cavity.mean[k]) for k in C])
    var = np.array([float(cond_var[k] + upsilon[k] @ cavity.cov[k] @ upsilon[k]) for k in C])
    z = log_expected_power(mean, var, y_i, epsilon, alpha)
    slopes = [(float(z.d_mean[k]), float(z.d_var[k])) for k in C]
    return Gaussians(
        np.stack([tilted_mean(cavity.mean[k], cavity.cov[k], slopes[k][0], upsilon[k]) for k in C]),
        np.stack([tilted_covariance(cavity.cov[k], *slopes[k], upsilon[k]) for k in C]),
    )


@equation("villacampa2020", "u13-pep-factor-recovery", "u18-pep-update")
def pep_update(log_tilted_norm: float, new: Gaussians, cavity: Gaussians, alpha: float) -> Site:
    r"""φ̃_i = (Z_i q_new/q\)^{1/α} with its scale: section 3.1 of villacampa2020, whose step four lacks Z_i.

    q_new and q\ are normalised: the scale is s̃_i with log s̃_i = [log Z_i + g(θ\) - g(θ_new)]/α.

    Parameters
    ----------
    log_tilted_norm : float   log Z_i, normaliser of p(y_i|f_i)^α under q\
    new : Gaussians           moments of q_new
    cavity : Gaussians        moments of q\
    alpha : float             α in (0, 1]

    Raises
    ------
    NotPositiveDefiniteError  if one of the two is no distribution
    """
    log_scale = log_tilted_norm
    for sign, laws in ((1.0, cavity), (-1.0, new)):
        log_scale += sign * sum(gaussian_log_normaliser(m, V) for m, V in zip(laws.mean, laws.cov, strict=True))
    after, before = natural_parameters(new), natural_parameters(cavity)
    return Site(log_scale / alpha, (after.precision - before.precision) / alpha, (after.shift - before.shift) / alpha)
