"""The other EP: one approximate factor a datum for the exact factor (3), by quadrature in one dimension.

The paper prints no equation of it but (3): cavities and scales are those of section 2.2, of all classes of a datum.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from reference.common._classes import class_gradients
from reference.common._largest import largest
from reference.common._learning import FIELDS
from reference.common._probit_line import probit_line
from reference.common._training import State, Step, Value
from reference.common.probit import mills_derivative
from reference.villacampa2017.cavity import Cavity, cavity
from reference.villacampa2017.derivatives import Weights, kernel_derivative, projections, total_pull, total_weights
from reference.villacampa2017.evidence import ep_log_evidence_from_moments, factor_log_scale_from_moments
from reference.villacampa2017.factors import damped_update
from reference.villacampa2017.gradients import (
    Direction,
    minibatch_weights,
    prior_changes,
    prior_term_gradient,
    prior_term_matrix,
)
from reference.villacampa2017.hyper import Matrices
from reference.villacampa2017.methods import PriorOfClasses
from reference.villacampa2017.posterior import Gaussians, posterior_moments
from reference.villacampa2017.prediction import Latents, predictive_latent_distribution

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]

_POINT = 1e-10  # a point mass is widened to this part of the widest Gaussian: 5e-21 of the result
_APART = 40.0  # widths between two constraints at which the lower has no part
_FAR = -10.0  # log Z_i; squared derivatives are below 20 in units of the curvature: two digits are lost


class DatumSites(NamedTuple):
    """Natural parameters of one factor a datum along υ of every class, each (n, C)."""

    site_precision: Array
    site_shift: Array


class Tilted(NamedTuple):
    """log Z of cavity times factor, and its derivatives in the means of the latent values."""

    log_norm: Array
    derivative: Array
    curvature: Array  # minus the second derivative


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


def tilted_of_data(mean: Array, var: Array, y: Labels) -> Tilted:
    """log Z_i (n,) of every datum and its derivatives (n, C), as in `datum_tilted`.

    All data at once by the densities of ties, whose curvature is a difference of squares; where those are large, one
    datum after another.

    Parameters
    ----------
    mean : (n, C)             of the latent values under the cavities
    var : (n, C)              their variances
    y : (n,)                  labels of villacampa2017
    """
    result = largest(mean, var, y)
    log_norm, derivative, curvature = result.log_p, result.first.copy(), np.maximum(-result.curvature, 0.0)
    for i in np.flatnonzero(log_norm < _FAR):
        log_norm[i], derivative[i], curvature[i] = datum_tilted(mean[i], var[i], int(y[i]))
    return Tilted(log_norm, derivative, curvature)


class DatumEP(PriorOfClasses):
    """EP of villacampa2017 with one factor a datum, C² υᵀf̄ - ½ C¹ (υᵀf̄)² in every class."""

    def __init__(self, y: Labels, n_classes: int, damping: float, schedule: str) -> None:
        """Labels y (n,) of n_classes classes, damping in (0, 1], schedule parallel or sequential."""
        self.y, self.n_classes, self.damping, self.schedule = y, n_classes, damping, schedule

    def start(self, K: Matrices) -> DatumSites:
        """Factors of one; K is not looked at."""
        return DatumSites(*(np.zeros((len(self.y), self.n_classes)) for _ in range(2)))

    def posterior(self, sites: DatumSites, K: Matrices) -> Gaussians:
        """q(f̄) from sites and K: (25) with the sites for Δ and μ̃."""
        return posterior_moments(sites.site_precision.T, sites.site_shift.T, K.upsilon, K.K_ZZ)  # (25)

    def cavities(self, sites: DatumSites, posterior: Gaussians, K: Matrices, i: int) -> list[Cavity]:
        """q without factor i in every class, from sites, posterior and K; ValueError if one is not a distribution."""
        each = zip(*posterior, K.upsilon[:, i], sites.site_precision[i], sites.site_shift[i], strict=True)
        return [cavity(m, V, u, float(c1), float(c2)) for m, V, u, c1, c2 in each]  # (29) to (32)

    def sweep(self, sites: DatumSites, posterior: Gaussians, K: Matrices, batch: Batch) -> Step:
        """One damped sweep from sites and posterior, with K, over batch; sequential: q rebuilt after each datum."""
        # fmt: off
        new, q, residual, n_improper = DatumSites(*(part.copy() for part in sites)), posterior, 0.0, 0
        for rows in [batch] if self.schedule == "parallel" else batch[:, None]:
            without = {}
            for i in rows.tolist():
                try:
                    without[i] = self.cavities(new, q, K, i)                                       # (29) to (32)
                except ValueError:  # no distribution in some class: the factor stays
                    n_improper += 1
            if not without:
                continue
            tilted = self.tilted(list(without.values()), K, list(without))                         # (3)
            for i, g, h, cavities in zip(without, *tilted[1:], without.values(), strict=True):
                for k, (m, V) in enumerate(cavities):
                    u = K.upsilon[k, i]
                    e, v, p, s = u @ m, u @ V @ u, u @ q.mean[k], u @ q.cov[k] @ u
                    c1, c2 = h[k] / (1.0 - h[k] * v), (g[k] + h[k] * e) / (1.0 - h[k] * v)         # moments match
                    d_c1, d_c2 = c1 - new.site_precision[i, k], c2 - new.site_shift[i, k]
                    residual = max(residual, float(abs(d_c1) * s), float(abs(d_c2 - d_c1 * p) * np.sqrt(s)))
                    for part, after in zip(new, (c1, c2), strict=True):
                        part[i, k] = damped_update(after, part[i, k], self.damping)                # appendix E
            q = self.posterior(new, K)                                                             # (25)
        return Step(new, q, residual, n_improper)
        # fmt: on

    def tilted(self, cavities: Sequence[Sequence[Cavity]], K: Matrices, rows: Sequence[int]) -> Tilted:
        """log Z_i of (3) and its derivatives for rows, from their cavities and K."""
        mean, var = _latents_of(cavities, K, rows)
        return tilted_of_data(mean, var, self.y[rows])

    def all_cavities(self, sites: DatumSites, posterior: Gaussians, K: Matrices) -> list[list[Cavity]] | None:
        """Of every datum, from sites, posterior and K; None if one is not a distribution."""
        try:
            return [self.cavities(sites, posterior, K, i) for i in range(len(self.y))]
        except ValueError:
            return None

    def value(self, sites: DatumSites, posterior: Gaussians, K: Matrices) -> Value:
        """log Z_q as (60) with one scale (61) a datum, from sites, posterior and K."""
        cavities = self.all_cavities(sites, posterior, K)
        if cavities is None:
            return Value(None, np.zeros(len(self.y)))
        log_norm = self.tilted(cavities, K, range(len(self.y))).log_norm
        q = [Cavity(m, V) for m, V in zip(*posterior, strict=True)]
        each = zip(log_norm.tolist(), cavities, strict=True)
        scales = np.array([factor_log_scale_from_moments(log_Z, without, q) for log_Z, without in each])  # (61)
        return Value(ep_log_evidence_from_moments(posterior, K.K_ZZ, scales), log_norm)  # (60)

    def latents(self, sites: DatumSites, posterior: Gaussians, K: Matrices) -> Latents:
        """Tilted means and variances of the latent values, from sites, posterior and K; q's where a cavity fails."""
        cavities = self.all_cavities(sites, posterior, K)
        if cavities is None:
            return predictive_latent_distribution(posterior, K.k_xx, K.K_XZ, K.K_ZZ)  # (65) to (67)
        mean, var = _latents_of(cavities, K, range(len(self.y)))
        tilted = tilted_of_data(mean, var, self.y)
        return Latents(mean + var * tilted.derivative, var - var**2 * tilted.curvature)

    def gradients(
        self, X: Array, state: State, batch: Batch | None = None, exact: bool = False, learn: Sequence[str] = FIELDS
    ) -> dict[str, Array] | None:
        """(10) with the factors (3), or the whole derivative with sites held; a mini-batch stands for all.

        Parameters
        ----------
        X : (n, d)                inputs
        state : State             factors, q, prior and its matrices
        batch : (b,) or None      data whose terms stand for all, n/b times; None: all data
        exact : bool              the whole derivative of log Z_q with the factors' numbers held, in place of (10)
        learn : names             fields wanted

        Returns
        -------
        dict or None              fields with shapes as in the prior; None if a cavity is not a distribution
        """
        sites, q, prior, K = state[:4]
        cavities = self.all_cavities(sites, q, K)
        if cavities is None:
            return None
        tilted, weights = self.tilted(cavities, K, range(len(X))), minibatch_weights(len(X), batch)
        if exact:
            by = total_weights(tilted.derivative, tilted.curvature, projections(q, K.upsilon), *sites)
            of_class = zip(zip(*(weights * part.T for part in by), strict=True), *(part.T for part in sites), *q,
                           K.upsilon, K.K_ZZ, strict=True)  # fmt: skip
            pulls = [total_pull(Weights(*own), *rest) for own, *rest in of_class]
            by_K = [kernel_derivative(*each) for each in zip(pulls, K.upsilon, K.K_ZZ, strict=True)]
            return class_gradients(by_K, X, prior, learn)
        return {
            name: _held_gradient(q, cavities, tilted, K, xi, weights).reshape(getattr(prior, name).shape)
            for name, xi in self.directions(X, state, learn).items()
        }


def _latents_of(cavities: Sequence[Sequence[Cavity]], K: Matrices, rows: Sequence[int]) -> tuple[Array, Array]:
    """(35) to (38): means and variances (b, C) of the latent values under the cavities of rows."""
    upsilon, cond_var = K.upsilon[:, rows], K.cond_var[:, rows]
    mean = [[upsilon[k, j] @ m for k, (m, _) in enumerate(of_datum)] for j, of_datum in enumerate(cavities)]
    var = [
        [cond_var[k, j] + upsilon[k, j] @ V @ upsilon[k, j] for k, (_, V) in enumerate(of_datum)]
        for j, of_datum in enumerate(cavities)
    ]
    return np.array(mean), np.array(var)


def _held_gradient(
    posterior: Gaussians,
    cavities: Sequence[Sequence[Cavity]],
    tilted: Tilted,
    K: Matrices,
    xi: Direction,
    weights: Array,
) -> Array:
    """(10): the prior's part, and log Z_i with the cavities held, for every ξ in a first axis."""
    # fmt: off
    total = np.zeros(xi.K_ZZ.shape[:-3])
    for k, (m, V) in enumerate(zip(*posterior, strict=True)):
        total = total + prior_term_gradient(prior_term_matrix(m, V, K.K_ZZ[k]), xi.K_ZZ[..., k, :, :])   # (63), (64)
    d_upsilon, d_cond_var = prior_changes(xi, K.upsilon, K.K_ZZ)
    for (i, k), g in np.ndenumerate(tilted.derivative):
        (m, V), d_u, by_var = cavities[i][k], d_upsilon[..., k, i, :], 0.5 * (g**2 - tilted.curvature[i, k])
        d_var = d_cond_var[..., k, i] + 2.0 * d_u @ (V @ K.upsilon[k, i])
        total = total + weights[i] * (g * (d_u @ m) + by_var * d_var)                              # below (10)
    return total
    # fmt: on
