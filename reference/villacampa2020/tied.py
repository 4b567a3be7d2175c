"""Sections 3.2 to 3.4: tied factors and their cavities."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._gaussians import Gaussians, Natural
from reference.common.ledger import equation

Array = NDArray[np.float64]

METHODS = ("apep", "arpep", "rpapep")


class DataTerm(NamedTuple):
    r"""Σ_i (1/α) log E_{q\}[p(y_i|f_i)^α] and its derivatives, weighted for a mini-batch."""

    value: float
    log_norm: Array  # (b,) each datum's, not weighted
    d_mean: Array  # (b, C) by the means of the latent values
    d_var: Array  # (b, C) by their variances


@equation("villacampa2020", "u26-bb-alpha-parameters")
def tied_factor_parameters(posterior: Natural, prior: Natural, n: int) -> Natural:
    """(θ_post - θ_prior)/N, the natural parameters of one of N equal factors: section 4 of villacampa2020.

    Parameters
    ----------
    posterior : Natural       θ_post
    prior : Natural           θ_prior
    n : int                   N
    """
    return Natural((posterior.precision - prior.precision) / n, (posterior.shift - prior.shift) / n)


@equation("villacampa2020", "u21-apep-cavity")
def apep_cavity(theta: Natural, tied_factor: Natural, n: int, alpha: float) -> Natural:
    r"""q^{\αi} ∝ q/φ̃^{α/N}, natural parameters θ - (α/N) θ̃: section 3.2 of villacampa2020.

    Parameters
    ----------
    theta : Natural           θ of q
    tied_factor : Natural     θ̃ of φ̃ = Π_i φ̃_i
    n : int                   N
    alpha : float             α in [0, 1]
    """
    part = alpha / n
    return Natural(theta.precision - part * tied_factor.precision, theta.shift - part * tied_factor.shift)


@equation("villacampa2020", "u24-rpapep-free-gaussian")
def rpapep_cavity(theta: Natural, n: int, alpha: float) -> Natural:
    r"""q^{\αi} ∝ q^{1 - α/(N+1)}: q is N + 1 equal factors, one of them for the prior, section 3.4 of villacampa2020.

    Parameters
    ----------
    theta : Natural           θ of q, any Gaussian
    n : int                   N
    alpha : float             α in [0, 1]
    """
    remaining = 1.0 - alpha / (n + 1)
    return Natural(remaining * theta.precision, remaining * theta.shift)


def second_moments(distribution: Gaussians) -> Array:
    """V + mmᵀ of every class, (C, m, m), villacampa2020.

    Parameters
    ----------
    distribution : Gaussians           means and covariances
    """
    return distribution.cov + distribution.mean[:, :, None] * distribution.mean[:, None, :]
