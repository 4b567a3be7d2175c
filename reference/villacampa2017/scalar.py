r"""Appendices C to E seen along υ: every factor acts on two projections υᵀf̄ alone, so all go through at once.

This is the form "projected" of EP: (29) to (32) and (35) to (38) contracted with υ, and (39) to (53) for all factors
at once. `factors` has the form "printed", one factor after another with its matrices; tests and the judge's check
identity/ep/forms hold the two equal.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from reference.common.probit import mills_derivative
from reference.villacampa2017.posterior import Coefficients, Gaussians

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Projected(NamedTuple):
    """Gaussians of υᵀf̄."""

    mean: Array
    var: Array


class Cavities(NamedTuple):
    """Gaussians of υᵀf̄ without one factor."""

    mean: Array  # of no meaning where left is not positive
    var: Array
    left: Array  # 1 - C¹ υᵀVυ, the share of the projection's precision that stays


class ProjectedFactors(NamedTuple):
    """Factors after a sweep."""

    coefficients: Coefficients
    log_norm: Array  # (n, C) log Z_{i,k}, zero in the columns of the labels and for factors that were skipped
    n_improper: int  # factors left as they were because a cavity was no distribution


class Tilted(NamedTuple):
    """log Z of cavity times factor, and its derivatives in the mean of one latent value."""

    log_norm: Array
    derivative: Array  # first derivative, for the label's class; the other class of a pair has the opposite
    curvature: Array  # minus the second derivative, the same for both classes of a pair


def projections(posterior: Gaussians, upsilon: Array) -> Projected:
    """Moments of υ_iᵀf̄^k under q, each (n, C).

    Parameters
    ----------
    posterior : Gaussians     q(f̄) of villacampa2017
    upsilon : (C, n, m)       υ_i^k
    """
    mean = np.einsum("kim,km->ik", upsilon, posterior.mean)
    return Projected(mean, np.einsum("kim,kim->ik", upsilon @ posterior.cov, upsilon))


def scalar_cavities(projected: Projected, c1: Array, c2: Array) -> Cavities:
    r"""υᵀm\ and υᵀV\υ: (29) to (32) of villacampa2017 multiplied by υ, shapes as c1.

        υᵀV\υ = q/(1 - C¹q),   υᵀm\ = (p - C²q)/(1 - C¹q),   p = υᵀm,  q = υᵀVυ

    Parameters
    ----------
    projected : Projected     p and q
    c1 : (n, C)               C¹ of the factors to remove
    c2 : (n, C)               their C²
    """
    remaining = 1.0 - c1 * projected.var
    safe = np.where(remaining > 0.0, remaining, 1.0)
    return Cavities((projected.mean - c2 * projected.var) / safe, projected.var / safe, remaining)


def pairwise_tilted(mean_label: Array, var_label: Array, mean_other: Array, var_other: Array) -> Tilted:
    """log Z_{i,k} = log Φ(α̂) and its derivatives: (34), (39) to (42) of villacampa2017 before υ enters.

    Parameters
    ----------
    mean_label : array        a_y, cavity means of f_y
    var_label : array         b_y, cavity variances of f_y
    mean_other : array        a_k
    var_other : array         b_k
    """
    b_sum = var_label + var_other
    alpha = (mean_label - mean_other) / np.sqrt(b_sum)
    first, second = mills_derivative(alpha)
    return Tilted(log_ndtr(alpha), first / np.sqrt(b_sum), -second / b_sum)


def site_of(derivative: Array, curvature: Array, cavity: Cavities) -> tuple[Array, Array]:
    """C¹ and C² of factors with the tilted moments: (48), (49), (52) and (53) of villacampa2017.

        C¹ = h/(1 - h v),   C² = (g + h e)/(1 - h v),   e, v: moments of the projection under the cavity

    Parameters
    ----------
    derivative : array             g, with the sign of the class
    curvature : array         h
    cavity : Cavities         e and v
    """
    rest = 1.0 - curvature * cavity.var
    return curvature / rest, (derivative + curvature * cavity.mean) / rest


def own_columns(y: Labels, n_classes: int) -> NDArray[np.bool_]:
    """(n, C), true in the columns of the labels y (n,) of n_classes classes: no factor stands there."""
    return np.arange(n_classes) == y[:, None]


def refine_projected(
    coefficients: Coefficients, posterior: Gaussians, y: Labels, upsilon: Array, cond_var: Array
) -> ProjectedFactors:
    """All factors of `factors.ep_refine_factors` at once, along υ: (29) to (53) of villacampa2017 contracted.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄)
    y : (n,)                      labels, 0..C-1
    upsilon : (C, n, m)           υ_i^k
    cond_var : (C, n)             s_i^k

    Returns
    -------
    ProjectedFactors              coefficients, undamped; log Z_{i,k}; number of improper cavities
    """
    label, other = pair_cavities(coefficients, projections(posterior, upsilon), y)
    own = own_columns(y, len(upsilon))
    improper = ~own & ~((label.left > 0.0) & (other.left > 0.0))
    new, tilted = refined_pairs(label, other, y, cond_var)
    kept = Coefficients(*(np.where(improper, old, part) for part, old in zip(new, coefficients, strict=True)))
    return ProjectedFactors(kept, np.where(improper, 0.0, tilted.log_norm), int(np.sum(improper)))


def pair_cavities(coefficients: Coefficients, projected: Projected, y: Labels) -> tuple[Cavities, Cavities]:
    """Both cavities of all factors, each (n, C): of the label's class, and of class k.

    Parameters
    ----------
    coefficients : Coefficients   of all factors of villacampa2017, each (n, C)
    projected : Projected         moments of υᵀf̄ under q, each (n, C)
    y : (n,)                      labels, 0..C-1
    """
    at = np.arange(len(y)), y
    of_label = Projected(projected.mean[at][:, None], projected.var[at][:, None])
    return (
        scalar_cavities(of_label, coefficients.c1_label, coefficients.c2_label),
        scalar_cavities(projected, coefficients.c1_other, coefficients.c2_other),
    )


def refined_pairs(label: Cavities, other: Cavities, y: Labels, cond_var: Array) -> tuple[Coefficients, Tilted]:
    """The factors that have the tilted moments, and log Z_{i,k} with its derivatives; zero in the labels' columns.

    Parameters
    ----------
    label : Cavities          of the label's class, (n, C) or (n, 1)
    other : Cavities          of class k, (n, C)
    y : (n,)                  labels of villacampa2017, 0..C-1
    cond_var : (C, n)         s_i^k
    """
    keep = ~own_columns(y, len(cond_var))
    s_label = cond_var[y, np.arange(len(y))][:, None]
    tilted = pairwise_tilted(label.mean, label.var + s_label, other.mean, other.var + cond_var.T)
    c1_label, c2_label = site_of(tilted.derivative, tilted.curvature, label)
    c1_other, c2_other = site_of(-tilted.derivative, tilted.curvature, other)
    parts = (np.where(keep, part, 0.0) for part in (c1_label, c2_label, c1_other, c2_other))
    return Coefficients(*parts), Tilted(*(np.where(keep, part, 0.0) for part in tilted))
