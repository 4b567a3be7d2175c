"""The other EP: one approximate factor a datum for the exact factor (3), by quadrature in one dimension."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from reference.common._largest import largest
from reference.common._probit_line import probit_line
from reference.common.probit import mills_derivative
from reference.villacampa2017.posterior import Gaussians, posterior_moments
from reference.villacampa2017.scalar import Cavities, Projected, Tilted, projections, scalar_cavities, site_of

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

_POINT = 1e-10  # a point mass is widened to this part of the widest Gaussian: 5e-21 of the result
_APART = 40.0  # widths between two constraints at which the lower has no part
_FAR = -10.0  # log Z_i; squared derivatives are below 20 in units of the curvature: two digits are lost


class DatumSites(NamedTuple):
    """Natural parameters of one factor a datum along υ of every class, each (n, C)."""

    site_precision: Array
    site_shift: Array


class RefinedDatum(NamedTuple):
    """Factors after a sweep."""

    sites: DatumSites
    log_norm: Array  # (n,) log Z_i, zero for factors that were skipped
    n_improper: int


def datum_tilted(mean: Array, var: Array, y_i: int) -> Tilted:
    """log Z_i = log P(f_y > f_k for all k ≠ y) and its derivatives in every mean (C,): (3) of villacampa2017.

    Given f_y = t the others lie below it independently. With z_k = (t - mean_k)/√var_k, r = φ/Φ, and means over t
    under N(t | mean_y, var_y) Π_k Φ(z_k), normalised:

        derivative_k = -E r(z_k)/√var_k,                 curvature_k = -(E r'(z_k) + Var r(z_k))/var_k
        derivative_y = E A,  A = Σ_k r(z_k)/√var_k,      curvature_y = -(E Σ_k r'(z_k)/var_k + Var A)

    Parameters
    ----------
    mean : (C,)               of independent Gaussian latent values
    var : (C,)                their variances, not all zero
    y_i : int                 label, 0..C-1

    Returns
    -------
    Tilted                    log_norm a number, derivative with the sign of each class, curvature (C,)

    Notes
    -----
    Without a variance f_j = w, the largest one, bounds f_i: Z is the mass beyond it, and with g(t) the logarithm of
    N(t | mean_y, var_y) Π_k Φ(z_k) over the other classes, h = exp(g(w))/Z, means over t > w,

        derivative_j = -h,    curvature_j = h (g'(w) + h),    derivative_y = h + Σ_k E r(z_k)/√var_k
        curvature_y = h (derivative_y - (w - mean_y)/var_y) - Σ_k Cov(r(z_k)/√var_k, t)/var_y

    Lower ones have no part. Two that are equal, or a label without variance, are narrow Gaussians instead.
    """
    sd = np.sqrt(var)
    points = np.flatnonzero((sd < _POINT * np.max(sd)) & (np.arange(len(mean)) != y_i))
    sd = np.maximum(sd, _POINT * np.max(sd))
    if points.size and sd[y_i] > _POINT * np.max(sd):
        constraint = points[np.argmax(mean[points])]
        if np.all(mean[constraint] - mean[points[points != constraint]] > _APART * sd[constraint]):
            return _beyond_constraint(mean, sd, y_i, int(constraint), points)
    others = np.delete(np.arange(len(mean)), y_i)
    line = probit_line(float(mean[y_i]), float(sd[y_i] ** 2), mean[others], sd[others])
    weights = line.weights
    first, second = mills_derivative(line.z)
    scaled = first / sd[others]
    total = np.sum(scaled, axis=1)
    centre = weights @ scaled
    derivative, curvature = np.empty(len(mean)), np.empty(len(mean))
    derivative[others], derivative[y_i] = -centre, np.sum(centre)
    bend = weights @ (second / sd[others] ** 2)
    curvature[others] = -bend - weights @ (scaled - centre) ** 2
    curvature[y_i] = -np.sum(bend) - weights @ (total - np.sum(centre)) ** 2
    # both are nonnegative; where the label is certain, rounding is all that is left
    return Tilted(np.array(line.log_norm), derivative, np.maximum(curvature, 0.0))


def _beyond_constraint(mean: Array, sd: Array, y_i: int, constraint: int, points: NDArray[np.intp]) -> Tilted:
    """`datum_tilted` where the classes `points` have no variance; constraint: that with the largest mean."""
    behind = np.setdiff1d(np.arange(len(mean)), [y_i, *points])
    others = np.append(behind, constraint)
    line = probit_line(float(mean[y_i]), float(sd[y_i] ** 2), mean[others], sd[others])
    weights, z = line.weights, line.z[:, :-1]
    derivative, curvature = np.zeros(len(mean)), np.zeros(len(mean))
    away = (mean[constraint] - mean[y_i]) / sd[y_i]
    at_constraint = (mean[constraint] - mean[behind]) / sd[behind]
    log_height = -0.5 * away * away - 0.5 * np.log(2.0 * np.pi) - np.log(sd[y_i]) + np.sum(log_ndtr(at_constraint))
    h = np.exp(log_height - line.log_norm)
    rise = -away / sd[y_i] + np.sum(mills_derivative(at_constraint)[0] / sd[behind])  # g'(w)
    derivative[constraint], curvature[constraint] = -h, h * (rise + h)
    first, second = mills_derivative(z)
    scaled = first / sd[behind]
    centre = weights @ scaled
    derivative[behind], derivative[y_i] = -centre, h + np.sum(centre)
    curvature[behind] = -(weights @ (second / sd[behind] ** 2)) - weights @ (scaled - centre) ** 2
    t = line.s / sd[y_i] ** 2
    joint = weights @ ((scaled - centre) * (t - weights @ t)[:, None])
    curvature[y_i] = h * (derivative[y_i] - away / sd[y_i]) - np.sum(joint)
    return Tilted(np.array(line.log_norm), derivative, np.maximum(curvature, 0.0))


def tilted_of_data(cavities: Cavities, y: Labels, cond_var: Array) -> Tilted:
    """log Z_i (n,) of every datum and its derivatives (n, C), as in `datum_tilted`.

    All data at once by the densities of ties, whose curvature is a difference of squares; where those are large, one
    datum after another.

    Parameters
    ----------
    cavities : Cavities       of υᵀf̄, each (n, C)
    y : (n,)                  labels of villacampa2017
    cond_var : (C, n)         s_i^k
    """
    var = cavities.var + cond_var.T
    result = largest(cavities.mean, var, y)
    log_norm, derivative, curvature = result.log_p, result.first.copy(), np.maximum(-result.curvature, 0.0)
    for i in np.flatnonzero(log_norm < _FAR):
        log_norm[i], derivative[i], curvature[i] = datum_tilted(cavities.mean[i], var[i], int(y[i]))
    return Tilted(log_norm, derivative, curvature)


def datum_posterior(sites: DatumSites, upsilon: Array, K_ZZ: Array) -> Gaussians:
    """q(f̄) from the factors by (25) of villacampa2017, with the sites for Δ and μ̃.

    Parameters
    ----------
    sites : DatumSites        each (n, C)
    upsilon : (C, n, m)       υ_i^k
    K_ZZ : (C, m, m)          prior covariances

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular, or factors and prior leave no distribution
    """
    return posterior_moments(sites.site_precision.T, sites.site_shift.T, upsilon, K_ZZ)


def refine_datum_sites(
    sites: DatumSites, posterior: Gaussians, y: Labels, upsilon: Array, cond_var: Array
) -> RefinedDatum:
    """All factors by moment matching from the one q, all classes of a datum removed together.

    A datum with a cavity that is no distribution in any class keeps its factor and is counted.

    Parameters
    ----------
    sites : DatumSites        each (n, C)
    posterior : Gaussians     q(f̄) of villacampa2017
    y : (n,)                  labels, 0..C-1
    upsilon : (C, n, m)       υ_i^k
    cond_var : (C, n)         s_i^k
    """
    cavities = scalar_cavities(projections(posterior, upsilon), *sites)
    proper = np.all(cavities.left > 0.0, axis=1)
    new, log_norm = DatumSites(*(part.copy() for part in sites)), np.zeros(len(y))
    if np.any(proper):
        observed = Cavities(*(part[proper] for part in cavities))
        tilted = tilted_of_data(observed, y[proper], cond_var[:, proper])
        new.site_precision[proper], new.site_shift[proper] = site_of(tilted.derivative, tilted.curvature, observed)
        log_norm[proper] = tilted.log_norm
    return RefinedDatum(new, log_norm, int(np.sum(~proper)))


def datum_log_scales(log_norm: Array, sites: DatumSites, projected: Projected) -> Array:
    r"""log s̃_i = log Z_i + Σ_k [g(θ\_k) - g(θ_k)], (n,): (58) of villacampa2017 for a factor that touches all classes.

    Parameters
    ----------
    log_norm : (n,)           log Z_i
    sites : DatumSites        each (n, C)
    projected : Projected     moments of υᵀf̄ under q, each (n, C)
    """
    (c1, c2), (p, q) = sites, projected
    remaining = 1.0 - c1 * q
    lost = -0.5 * np.log(remaining) + 0.5 * (c1 * p**2 - 2.0 * c2 * p + c2**2 * q) / remaining
    return log_norm + np.sum(lost, axis=1)
