"""EP on factors Phi((m_y - m_k)/sqrt(s_y + s_k)), one for each datum and class but its own: scalars only.

villacampa2017, section 2.2, supplement B to G. A factor sees two projections, w_y and w_k; its site is

    exp(-c1_label w_y^2/2 + c2_label w_y - c1_other w_k^2/2 + c2_other w_k),

four arrays (b, C) that hold 0 in the column of the label. With p, q mean and variance of a projection under q and
D = 1 - c1 q its cavity is N((p - c2 q)/D, q/D). Everything a site needs follows from z = (e_y - e_k)/sqrt(R),
R = s_y + v_y + s_k + v_k, through r = phi(z)/Phi(z) and r + z, in the log domain (`fast.likelihood.probit.hazard`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from fast.core.results import ScalarMoments
from fast.core.types import BoolArray, FloatArray, IntArray
from fast.ledger import equation
from fast.likelihood.power import log1p_quotient
from fast.likelihood.probit import hazard
from fast.solve.site_iteration import standardised_change

SITES = ("c1_label", "c2_label", "c1_other", "c2_other")


class PairSites(NamedTuple):
    """Coefficients of the sites; column y of each row is 0."""

    c1_label: FloatArray  # (b, C)
    c2_label: FloatArray
    c1_other: FloatArray
    c2_other: FloatArray


class Totals(NamedTuple):
    """What the sites of a datum say of each class together."""

    delta: FloatArray  # (b, C)
    mu_tilde: FloatArray  # (b, C)


class Side(NamedTuple):
    """One of the two projections of every factor under its cavity."""

    mean: FloatArray  # (b, C): e
    var: FloatArray  # (b, C): v
    cavity_ratio: FloatArray  # (b, C): D, 1 where the cavity is improper
    miss: FloatArray  # (b, C): c2 - c1 p


class PairCavities(NamedTuple):
    """Cavities of all factors."""

    label: Side
    other: Side
    proper: BoolArray  # (b, C); True in the column of the label


class PairTilt(NamedTuple):
    """log Z of every factor and its derivatives; 0 in the column of the label."""

    log_norm: FloatArray  # (b, C)
    derivative: FloatArray  # (b, C): g = d log Z / d e_y = - d log Z / d e_k
    curvature: FloatArray  # (b, C): h = - d^2 log Z / d e^2, of either side
    by_var: FloatArray  # (b, C): d log Z / d v, of either side and of s


class Cotangents(NamedTuple):
    """Derivatives of a sum over factors, (b, C) each; what the first two stand for depends on the rule."""

    by_mean: FloatArray
    by_var: FloatArray
    by_cond_var: FloatArray


class Visit(NamedTuple):
    """What the factors of some data say of q."""

    target: tuple[FloatArray, ...]  # sites after an undamped step; where a cavity is improper the old ones
    gap: float  # largest standardised change of that step
    n_improper: int
    log_norm: FloatArray  # log Z of the factors: (b, C), or (b,)
    value: float  # sum of log Z less the log normalisers of the sites under their cavities; NaN if one is improper


def competing(y: IntArray, n_classes: int) -> BoolArray:
    """True for the classes that a datum is not of: (b, C).

    Parameters
    ----------
    y : (b,)           labels
    n_classes : int    C
    """
    return y[:, None] != np.arange(n_classes)


def label_column(y: IntArray, value: FloatArray) -> FloatArray:
    """The entry of each row in the column of its label: (b, 1).

    Parameters
    ----------
    y : (b,)           labels
    value : (b, C)
    """
    return np.take_along_axis(value, y[:, None], axis=1)


def gather(y: IntArray, label: FloatArray, other: FloatArray) -> FloatArray:
    """Sum over the factors of a datum, for each class: `other` in its own column, the sum of `label` in that of y.

    Parameters
    ----------
    y : (b,)                 labels
    label, other : (b, C)    of the two sides of every factor; 0 in the column of the label
    """
    result = other.copy()
    np.put_along_axis(result, y[:, None], label.sum(axis=1, keepdims=True), axis=1)
    return result


@equation("villacampa2017", "26", "27")
def pair_totals(y: IntArray, sites: PairSites) -> Totals:
    """delta (26) and mu_tilde (27) of each datum and class. Time O(b C).

    Parameters
    ----------
    y : (b,)    labels
    sites       of the factors
    """
    return Totals(gather(y, sites.c1_label, sites.c1_other), gather(y, sites.c2_label, sites.c2_other))


def _side(mean: FloatArray, var: FloatArray, c1: FloatArray, c2: FloatArray) -> tuple[Side, BoolArray]:
    cavity_ratio = 1.0 - c1 * var
    proper = cavity_ratio > 0.0
    safe = np.where(proper, cavity_ratio, 1.0)
    return Side((mean - c2 * var) / safe, var / safe, safe, c2 - c1 * mean), proper


@equation("villacampa2017", "29", "30", "31", "32", "35", "36", "37", "38")
def pair_cavities(y: IntArray, moments: ScalarMoments, sites: PairSites) -> PairCavities:
    """Both projections of every factor without its site; where D <= 0 the numbers mean nothing. Time O(b C).

    Of the cavities (29) to (32) of villacampa2017 only the projections (35) to (38) are formed.

    Parameters
    ----------
    y : (b,)    labels
    moments     p and q of every projection under q
    sites       of the factors
    """
    shape = moments.mean.shape
    mean_y, var_y = (np.broadcast_to(label_column(y, part), shape) for part in moments)
    label, proper_label = _side(mean_y, var_y, sites.c1_label, sites.c2_label)
    other, proper_other = _side(moments.mean, moments.var, sites.c1_other, sites.c2_other)
    return PairCavities(label, other, (proper_label & proper_other) | ~competing(y, shape[1]))


@equation("villacampa2017", "34", "39", "40", "41", "42", "u23-beta-alpha-hat")
def pair_tilt(
    y: IntArray,
    mean_label: FloatArray,
    var_label: FloatArray,
    mean_other: FloatArray,
    var_other: FloatArray,
    cond_var: FloatArray,
) -> PairTilt:
    """log Z = log Phi(z) of every factor and its derivatives: villacampa2017 (34), (39) to (42).

    g^2 - h = -r z / R: the derivative in a variance is half of that. Time O(b C).

    Parameters
    ----------
    y : (b,)                         labels
    mean_label, var_label : (b, C)   e_y, v_y under the cavity of the factor
    mean_other, var_other : (b, C)   e_k, v_k
    cond_var : (b, C)                s
    """
    total = label_column(y, cond_var) + var_label + cond_var + var_other
    total = np.maximum(total, np.finfo(np.float64).tiny)
    width = np.sqrt(total)
    z = (mean_label - mean_other) / width
    ratio, excess = hazard(z)
    used = competing(y, cond_var.shape[1])
    return PairTilt(
        np.where(used, log_ndtr(z), 0.0),
        np.where(used, ratio / width, 0.0),
        np.where(used, ratio * excess / total, 0.0),
        np.where(used, -0.5 * ratio * z / total, 0.0),
    )


@equation("villacampa2017", "48", "49", "52", "53")
def pair_sites(
    tilt: PairTilt, mean_label: FloatArray, var_label: FloatArray, mean_other: FloatArray, var_other: FloatArray
) -> PairSites:
    """Sites with the moments of the tilted distributions: villacampa2017 (48), (49), (52), (53).

    c1 = h/(1 - h v), c2 = (+-g + h e)/(1 - h v), + for the label's class and - for the other one: (53) prints + for
    both. h v < 1 since h < 1/R and v < R. Time O(b C).

    Parameters
    ----------
    tilt                             from `pair_tilt`
    mean_label, var_label : (b, C)   of the cavities
    mean_other, var_other : (b, C)
    """
    remaining, right = 1.0 - tilt.curvature * var_label, 1.0 - tilt.curvature * var_other
    return PairSites(
        tilt.curvature / remaining,
        (tilt.derivative + tilt.curvature * mean_label) / remaining,
        tilt.curvature / right,
        (tilt.curvature * mean_other - tilt.derivative) / right,
    )


@equation("villacampa2017", "58", "61", "u26-efficient-scale")
@equation("villacampa2020", "u30-efficient-scale")
def site_integral(side: Side, c1: FloatArray, c2: FloatArray, alpha: float = 1.0) -> FloatArray:
    """psi of every site, (g(theta) - g(theta less the site to the power alpha))/alpha: villacampa2020, A.6. (b, C)

    -log(1 + alpha c1 v)/(2 alpha) + (2 c2 e + alpha c2^2 v - c1 e^2)/(2 (1 + alpha c1 v)), with 1 + alpha c1 v = 1/D.
    With whole sites the log of the integral of a site's exponential under its cavity: what (58) and (61) of
    villacampa2017 have of one site, without a matrix. Time O(b C).

    Parameters
    ----------
    side               cavities
    c1, c2 : (b, C)    of the sites
    alpha : float      share of a site that its cavity lacks, in [0, 1]
    """
    e, v = side.mean, side.var
    exponent = 2.0 * c2 * e + alpha * c2 * c2 * v - c1 * e * e
    return 0.5 * (exponent * side.cavity_ratio - log1p_quotient(alpha, c1 * v))


class Pairwise:
    """The factors of the paper, behind the interface that `fast.sparse_classes.ep` works with."""

    names = SITES
    signed = False  # precisions of sites are never negative

    def groups(self, y: int, n_classes: int) -> list[tuple[int, ...]]:
        """Classes that each factor of a datum sees, in the order of a sequential sweep."""
        return [(y, k) for k in range(n_classes) if k != y]

    def scales(self, y: IntArray, var: FloatArray) -> tuple[FloatArray, ...]:
        """Variances of the projections that the precisions of the sites belong to."""
        return np.broadcast_to(label_column(y, var), var.shape), var

    def totals(self, y: IntArray, sites: tuple[FloatArray, ...]) -> Totals:
        """delta and mu_tilde of each datum and class."""
        return pair_totals(y, PairSites(*sites))

    def visit(self, y: IntArray, moments: ScalarMoments, cond_var: FloatArray, sites: tuple[FloatArray, ...]) -> Visit:
        """Proposals of all factors of some data from one q, and what they add to log Z_q."""
        old = PairSites(*sites)
        cavities = pair_cavities(y, moments, old)
        label, other, proper = cavities
        tilt = pair_tilt(y, label.mean, label.var, other.mean, other.var, cond_var)
        new = pair_sites(tilt, label.mean, label.var, other.mean, other.var)
        for part in new:
            proper = proper & np.isfinite(part)
        target = PairSites(*(np.where(proper, after, before) for after, before in zip(new, old, strict=True)))
        mean_y, var_y = (np.broadcast_to(label_column(y, part), cond_var.shape) for part in moments)
        change = standardised_change(mean_y, var_y, target.c1_label - old.c1_label, target.c2_label - old.c2_label)
        np.maximum(
            change,
            standardised_change(*moments, target.c1_other - old.c1_other, target.c2_other - old.c2_other),
            out=change,
        )
        improper = int(proper.size - np.count_nonzero(proper))
        value = np.nan
        if not improper:
            psi = site_integral(label, old.c1_label, old.c2_label)
            psi += site_integral(other, old.c1_other, old.c2_other)
            value = float(tilt.log_norm.sum() - psi.sum())
        return Visit(tuple(target), float(change.max()), improper, tilt.log_norm, value)

    def cotangents(
        self,
        y: IntArray,
        moments: ScalarMoments,
        cond_var: FloatArray,
        sites: tuple[FloatArray, ...],
        gradient_rule: str,
    ) -> Cotangents:
        """What a gradient needs of the factors, by rule "10" or "exact"; NaN where a cavity is improper.

        "exact": derivatives of sum (log Z - psi) in p, q and s, sites held. "10": L^-1 dF/dupsilon_i is by_mean times
        the mean of v plus by_var times S a_i, the moments of every cavity held.
        """
        held = PairSites(*sites)
        label, other, proper = pair_cavities(y, moments, held)
        tilt = pair_tilt(y, label.mean, label.var, other.mean, other.var, cond_var)
        results = [
            [
                np.where(proper, part, np.nan)
                for part in scalar_cotangents(side, c1, sign * tilt.derivative, tilt.by_var, gradient_rule)
            ]
            for side, c1, sign in ((label, held.c1_label, 1.0), (other, held.c1_other, -1.0))
        ]
        by_s = np.where(proper, tilt.by_var, np.nan)
        return Cotangents(
            gather(y, results[0][0], results[1][0]), gather(y, results[0][1], results[1][1]), gather(y, by_s, by_s)
        )

    def latents(
        self, y: IntArray, moments: ScalarMoments, cond_var: FloatArray, sites: tuple[FloatArray, ...]
    ) -> ScalarMoments:
        """Mean and variance of the latent values at the data, (66) and (67)."""
        return ScalarMoments(moments.mean, cond_var + moments.var)


def scalar_cotangents(
    side: Side, c1: FloatArray, derivative: FloatArray, by_var: FloatArray, gradient_rule: str, alpha: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Derivatives of F - psi in p and q if the rule is "exact", else the weights of the mean of v and of S a_i in dF.

    F is log Z of a factor to the power alpha, over alpha. Through e = (p - alpha c2 q)/D and v = q/D,
    D = 1 - alpha c1 q: with n = c2 - c1 p, r = derivative - n and t = by_var + (c1 D - alpha n^2)/2 the derivatives in
    e and v, those in p and q are r/D and (t - alpha r n)/D^2. With the cavity of v held, upsilon'm and upsilon'V under
    it are a'(p - alpha S a n/D) and a'S/D. Time O(b C).

    Parameters
    ----------
    side                    cavities of the projections
    c1 : (b, C)             of the sites
    derivative : (b, C)          dF/de
    by_var : (b, C)         dF/dv
    gradient_rule : str     "exact", or any other: the cavity is held
    alpha : float           share of a site that its cavity lacks, in [0, 1]
    """
    if gradient_rule != "exact":
        return derivative, (2.0 * by_var - alpha * derivative * side.miss) / side.cavity_ratio
    by_mean = derivative - side.miss
    by_var = by_var + 0.5 * (c1 * side.cavity_ratio - alpha * side.miss * side.miss)
    return by_mean / side.cavity_ratio, (by_var - alpha * by_mean * side.miss) / (side.cavity_ratio * side.cavity_ratio)
