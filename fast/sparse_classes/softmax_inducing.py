r"""One Newton step of a softmax model whose latent values have the FITC covariance, in O(n C^2 m^2).

f_k = A_k'v_k + r_k with v ~ N(0, I) of all classes, C m numbers, and r_ik ~ N(0, s_ik) independent (see
`fast.sparse_classes.projections`), so K = A'A + S. A step of `fast.full_classes.softmax_laplace` conditions on sites
exp(-f'W f/2 + h'f), W_i = diag(pi_i) - pi_i pi_i', 1'h_i = 0. With r integrated out of each datum by itself, what is
left for z = A'v is

    W~_i = (W_i^-1 + S_i)^-1 = diag(g_i) - g_i g_i'/gamma_i,   g = pi/(1 + s pi),  gamma_i = sum_k g_ik,
    h~_i = h_i - W~_i S_i h_i,   |I + S_i W_i| = gamma_i prod_k (1 + s_ik pi_ik),

of the form of W, as sum_k pi_ik = 1. Then P = I + A W~ A' (C m, C m), v = P^-1 A h~, and with b = h~ - W~ z

    f = A'v + S b,   K^-1 f = b,   log|I + K W| = log|P| + sum_i log|I + S_i W_i|,
    cov f_i = S_i - S_i W~_i S_i + J_i cov(z_i) J_i',   J_i = I - S_i W~_i.

Neither W nor S is inverted, nothing has size (n, n): time n C^2 m^2 + (C m)^3 / 3, memory n m for each kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fast.core.linalg import factorise, invert_lower, solve_vector
from fast.core.types import FloatArray
from fast.ledger import equation
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.projections import InducingClasses

_BLOCK = 4096
_REMEDY = "lower variance: precisions of inducing values are out of range"


class _Covariance(NamedTuple):
    """A A' + diag(s) of one class; only its products with vectors are needed."""

    rows: FloatArray  # (n, m)
    cond_var: FloatArray  # (n,)

    def __matmul__(self, vector: FloatArray) -> FloatArray:
        value: FloatArray = self.rows @ (self.rows.T @ vector) + self.cond_var * vector
        return value


class InducingLatents:
    """FITC priors of all classes with their data: what `softmax_laplace.find_mode` reads of a prior."""

    def __init__(self, data: ClassData, points: InducingClasses) -> None:
        self.data, self.points = data, points
        self.n, self.n_classes, self.m = data.n, points.n_classes, points.m
        self.y = data.labels(slice(0, data.n))
        self.rows = [np.empty((data.n, points.m)) for _ in range(points.n_kinds)]
        self.cond_var = np.empty((data.n, points.n_classes))
        for block in data.blocks(points):
            for kept, part in zip(self.rows, block.view.rows, strict=True):
                kept[block.part] = part
            self.cond_var[block.part] = block.view.cond_var

    def of(self, k: int) -> FloatArray:
        """Whitened projections of a class: (n, m).

        Parameters
        ----------
        k : int    class
        """
        return self.rows[self.points.kind[k]]

    def K(self, index: int) -> _Covariance:
        """Covariance of a class at the data, to be multiplied with.

        Parameters
        ----------
        index : int    of the class
        """
        return _Covariance(self.of(index), self.cond_var[:, index])


class EffectiveSites(NamedTuple):
    """W~ of every datum."""

    g: FloatArray  # (n, C)
    gamma: FloatArray  # (n, 1)
    log_det: float  # sum_i log|I + S_i W_i|

    def times(self, z: FloatArray) -> FloatArray:
        """W~ z: (n, C).

        Parameters
        ----------
        z : (n, C)
        """
        moved = self.g * z
        value: FloatArray = moved - self.g * (moved.sum(axis=1, keepdims=True) / self.gamma)
        return value


class InducingMode(NamedTuple):
    """The Gaussian of one Newton step; fields named as those of `fast.full_classes.couplings.Coupled`."""

    weights: FloatArray  # (C, n) b
    mean: FloatArray  # (n, C) f
    log_det: float  # log|I + K W|
    sites: EffectiveSites
    v: FloatArray  # (C, m): mean of the whitened inducing values
    factor: FloatArray  # (C m, C m): lower Cholesky factor of P


def effective_sites(pi: FloatArray, cond_var: FloatArray) -> EffectiveSites:
    """g, gamma and the determinants. Time O(n C).

    Parameters
    ----------
    pi : (n, C)          class probabilities at f
    cond_var : (n, C)    s
    """
    shrink = 1.0 + cond_var * pi
    g = pi / shrink
    gamma = g.sum(axis=1, keepdims=True)
    return EffectiveSites(g, gamma, float(np.log(shrink).sum() + np.log(gamma).sum()))


def inducing_precision(prior: InducingLatents, sites: EffectiveSites) -> FloatArray:
    """P = I + A W~ A': (C m, C m), lower triangle. Time n C^2 m^2.

    Parameters
    ----------
    prior    the data
    sites    W~
    """
    C, m = prior.n_classes, prior.m
    P = np.eye(C * m)
    for start in range(0, prior.n, _BLOCK):
        part = slice(start, min(start + _BLOCK, prior.n))
        g, scale = sites.g[part], 1.0 / np.sqrt(sites.gamma[part])
        joined = np.empty((g.shape[0], C * m))
        for k in range(C):
            columns = slice(k * m, (k + 1) * m)
            a = prior.of(k)[part]
            scaled = a * np.sqrt(g[:, k, None])
            P[columns, columns] += scaled.T @ scaled
            joined[:, columns] = a * (g[:, k, None] * scale)
        P -= joined.T @ joined
    return P


@equation("villacampa2020", "u47-laplace")
def condition_inducing(prior: InducingLatents, pi: FloatArray, location: FloatArray) -> InducingMode:
    """The posterior of one Newton step; a `fast.full_classes.couplings.condition` for the FITC prior. Appendix C.

    Time n C^2 m^2 + (C m)^3 / 3.

    Parameters
    ----------
    prior                the data
    pi : (n, C)          of W
    location : (n, C)    h, its rows sum to zero
    """
    C, m, s = prior.n_classes, prior.m, prior.cond_var
    sites = effective_sites(pi, s)
    P = inducing_precision(prior, sites)
    factor = factorise(P, "I + A W A'", _REMEDY)
    effective = location - sites.times(s * location)
    right = np.concatenate([prior.of(k).T @ effective[:, k] for k in range(C)])
    v = solve_vector(factor, solve_vector(factor, right), transposed=True).reshape(C, m)
    z = np.column_stack([prior.of(k) @ v[k] for k in range(C)])
    weights = effective - sites.times(z)
    log_det = sites.log_det + 2.0 * float(np.log(factor.diagonal()).sum())
    return InducingMode(weights.T.copy(), z + s * weights, log_det, sites, v, factor)


def covariance_of(mode: InducingMode) -> FloatArray:
    """Covariance of the whitened inducing values of all classes: (C, m, C, m). Time (C m)^3 / 2.

    Parameters
    ----------
    mode    from `condition_inducing`
    """
    inverse = invert_lower(mode.factor)
    C, m = mode.v.shape
    result: FloatArray = (inverse.T @ inverse).reshape(C, m, C, m)
    return result


def projected_covariances(rows: list[FloatArray], covariance: FloatArray) -> FloatArray:
    """cov of a_ik'v_k and a_il'v_l: (t, C, C). Time t C^2 m^2 / 2.

    Parameters
    ----------
    rows : list of (t, m)          one a class
    covariance : (C, m, C, m)          of v
    """
    C = covariance.shape[0]
    values = np.empty((rows[0].shape[0], C, C))
    for k in range(C):
        for j in range(k + 1):
            values[:, k, j] = values[:, j, k] = np.einsum("tm,tm->t", rows[k] @ covariance[k, :, j], rows[j])
    return values


def latent_covariances(prior: InducingLatents, mode: InducingMode, covariance: FloatArray) -> FloatArray:
    """Blocks of (K^-1 + W)^-1: (n, C, C). Time n C^2 m^2 / 2.

    Parameters
    ----------
    prior                    the data
    mode                     from `condition_inducing`
    covariance : (C, m, C, m)    of v
    """
    C, s, sites = prior.n_classes, prior.cond_var, mode.sites
    moved = sites.g[:, :, None] * (np.eye(C) - (sites.g / sites.gamma)[:, None, :])  # W~
    turn = np.eye(C) - s[:, :, None] * moved  # J
    cov = turn @ projected_covariances([prior.of(k) for k in range(C)], covariance) @ turn.transpose(0, 2, 1)
    own = turn * s[:, None, :]  # S - S W~ S
    cov += 0.5 * (own + own.transpose(0, 2, 1))
    return cov
