"""First two moments of a Gaussian that is restricted to positive values: closed forms to D = 2, points beyond."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

from reference.common._largest import line_integral
from reference.common._product import orthant_rule
from reference.common.errors import cholesky
from reference.common.probit import mills_derivative

Array = NDArray[np.float64]

LOG2_POINTS = 16
HALVES = 0.01  # largest difference of log P by either half of the points that is not refused


class Truncated(NamedTuple):
    """N(μ, V) restricted to positive values."""

    log_norm: float  # log P(h > 0)
    mean: Array  # (D,)
    cov: Array  # (D, D)


def truncated_gaussian(mean: Array, cov: Array) -> Truncated:
    """log P(h > 0), E[h|h > 0] and Cov[h|h > 0] for h ~ N(mean, cov).

    Parameters
    ----------
    mean : (D,)               μ
    cov : (D, D)              V

    Raises
    ------
    NotPositiveDefiniteError  if cov is singular
    ValueError                D > 2: if the two halves of the points differ by more than 0.01 in log P
    """
    return (_scalar, _pair)[len(mean) - 1](mean, cov) if len(mean) <= 2 else _by_points(mean, cov)


def _scalar(mean: Array, cov: Array) -> Truncated:
    """E = μ + V(log Φ)', Cov = V + V²(log Φ)'', with the derivatives by μ of log Φ(μ/√V)."""
    sd = np.sqrt(cov[0])
    first, second = mills_derivative(mean / sd)
    return Truncated(float(log_ndtr(mean[0] / sd[0])), mean + sd * first, cov * (1.0 + second))


def _pair(mean: Array, cov: Array) -> Truncated:
    """E = μ + V∇log P and Cov = V + V(∇∇log P)V with the derivatives of a bivariate orthant probability P.

        ∂P/∂μ_j = N(0|μ_j, V_jj) P(h_l > 0|h_j = 0),   ∂²P/∂μ_1∂μ_2 = N(0|μ, V)
        ∂²P/∂μ_j² = -(μ_j ∂P/∂μ_j + V_12 ∂²P/∂μ_1∂μ_2)/V_jj

    P is the integral of N(z|0, 1)Φ((μ_2 + L_21 z)/L_22) over z > -μ_1/L_11, on the line with relative errors of 1e-13.
    """
    root = cholesky(cov, "covariance of the differences", "raise jitter or noise")
    white = np.array([mean[0] / root[0, 0], (mean[1] - root[1, 0] * mean[0] / root[0, 0]) / root[1, 1]])
    if root[1, 0] == 0.0:
        log_p = float(np.sum(log_ndtr(white)))
    else:
        offsets = np.array([[-white[0], -mean[1] / root[1, 0]]])
        scales, signs = np.array([[0.0, root[1, 1] / abs(root[1, 0])]]), np.array([[1.0, np.sign(root[1, 0])]])
        log_p = float(line_integral(np.zeros(1), np.ones(1), offsets, scales, signs).log_norm[0])
    both = np.exp(-0.5 * white @ white - np.log(root[0, 0] * root[1, 1]) - np.log(2.0 * np.pi) - log_p)
    first = np.empty(2)
    for j, other in ((0, 1), (1, 0)):
        rest_mean = mean[other] - cov[0, 1] / cov[j, j] * mean[j]
        rest_sd = root[0, 0] * root[1, 1] / np.sqrt(cov[j, j])  # |V| = V_jj times what is left of the other
        log_density = -0.5 * mean[j] ** 2 / cov[j, j] - 0.5 * np.log(2.0 * np.pi * cov[j, j])
        first[j] = np.exp(log_density + log_ndtr(rest_mean / rest_sd) - log_p)
    second = np.array([[0.0, both], [both, 0.0]])
    second[np.diag_indices(2)] = -(mean * first + cov[0, 1] * both) / np.diag(cov)
    return Truncated(log_p, mean + cov @ first, cov + cov @ (second - np.outer(first, first)) @ cov)


def _by_points(mean: Array, cov: Array) -> Truncated:
    """Weighted moments of 65 536 points of `orthant_rule`; the last coordinate by its own truncated moments.

    The points are Sobol's from the 65 537th on. Among the first is the corner of the cube, where all z_j are largest:
    probabilities are bounded there, but squares are not, and of ten classes covariances came out four times too large.
    """
    from scipy.stats import qmc  # loading it takes a second

    points = qmc.Sobol(len(mean) - 1, scramble=False).fast_forward(2**LOG2_POINTS).random_base2(LOG2_POINTS)
    rule = orthant_rule(mean, cov, points)
    halves = logsumexp(rule.log_weights.reshape(2, -1), axis=1)
    if abs(halves[0] - halves[1]) > HALVES:
        raise ValueError(
            f"cavity_cov: found log normalisers that differ by {abs(halves[0] - halves[1]):.2g} between two halves of "
            f"the points, expected at most {HALVES}: the label is too unlikely for these points"
        )
    log_total = float(logsumexp(halves))
    share = np.exp(rule.log_weights - log_total)
    ratio, curvature = mills_derivative(rule.b)
    h = mean + np.column_stack([rule.z, ratio]) @ rule.root.T  # E[z_D|z_D > -b] = φ/Φ, its variance 1 + (log Φ)''
    centre = share @ h
    last = np.outer(rule.root[:, -1], rule.root[:, -1]) * float(share @ (1.0 + curvature))
    return Truncated(log_total - np.log(len(share)), centre, (h - centre).T @ (share[:, None] * (h - centre)) + last)
