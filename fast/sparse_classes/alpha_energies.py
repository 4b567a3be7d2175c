r"""Three energies of villacampa2020 over a free Gaussian q of each class: value, natural direction, parts of gradients.

In whitened coordinates u = L v the prior is N(0, I) and q(v) = N(m, S), P = S^-1, w = P m, for each class. With
G(P, w) = w'P^-1 w/2 - log|P|/2, D the sum of F_i = log E[p(y_i|f_i)^alpha]/alpha over the data, the expectation under
the distribution c, and a the share of q that c leaves out,

    apep    c = ((1 - a) P + a I, (1 - a) w),  a = alpha/N:      G(q) + (G(c) - G(q))/a + D
    arpep   c = q:                                               -KL(q || p) + D
    rpapep  c = (1 - a)(P, w),  a = alpha r,  r = 1/(N + 1):     G(q) + N (G(c) - G(q))/alpha + (G(b) - G(q))/alpha + D,
            b = ((1 - a) P + alpha I, (1 - a) w).

Nothing large is subtracted: by the resolvent identity, with s_j the eigenvalues of S and z = P_c^-1 (w - m),

    (log|P_c| - log|P|)/a = sum_j log1p(a (s_j - 1))/a,    (S_c - S)/a = S_c - S_c S,    (m_c - m)/a = (1 - a) z - m,

and likewise for b; at alpha = 0 these are the derivatives, and the three energies the variational bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fast.core.linalg import eigenvalues, invert_lower, solve_rows, solve_vector, squared_norms
from fast.core.types import FloatArray
from fast.ledger import equation
from fast.likelihood.power import log1p_quotient
from fast.sparse_classes.projections import ClassDistribution

ENERGIES = ("apep", "arpep", "rpapep")


class Distributions(NamedTuple):
    """q, and the distributions that an energy makes of it."""

    q: ClassDistribution
    data: ClassDistribution  # c: what the data are seen under
    prior: ClassDistribution | None  # b: what rpapep sees the prior under


class NaturalChange(NamedTuple):
    """Differences of whitened natural parameters: the gradient in expectation parameters."""

    precision: FloatArray  # (C, m, m): change of P
    shift: FloatArray  # (C, m): change of w
    residual: float  # largest change in units of q itself, sqrt tr(S dP S dP) and sqrt(r'S r), r = dw - dP m

    @property
    def flat(self) -> FloatArray:
        """Both as one vector."""
        return np.concatenate([self.precision.ravel(), self.shift.ravel()])


@equation("villacampa2017", "15")
def divergence(q: ClassDistribution) -> float:
    """sum_k KL(q(u_k) || p(u_k)) = sum_k (tr S + m'm - dim + log|P|)/2: villacampa2017 (15). Time C m^3 / 3.

    Parameters
    ----------
    q      q(v)
    """
    trace = sum(float(np.vdot(halved, halved)) for halved in (invert_lower(R) for R in q.factor))
    return 0.5 * (trace + float(squared_norms(q.weights).sum()) - q.weights.size + float(q.log_det.sum()))


@equation("villacampa2017", "u21-vi-baseline")
def natural_target(curvature: FloatArray, derivative: FloatArray, mean: FloatArray) -> tuple[FloatArray, FloatArray]:
    """P* = I - 2 Q and w* = t - 2 Q m, where a whole natural-gradient step of D - KL leads: villacampa2017, section 3.

    D sees a latent value through its mean a_i'm and its variance s_i + a_i'S a_i. P* need not be positive definite:
    dF_i/dv_i > 0 where a label is far from right. Time m^2.

    Parameters
    ----------
    curvature : (m, m)    Q, sum_i dF_i/dv_i a_i a_i'
    derivative : (m,)          t, sum_i dF_i/dm_i a_i
    mean : (m,)           m
    """
    precision = -2.0 * curvature
    shift = derivative + precision @ mean
    precision.flat[:: mean.size + 1] += 1.0
    return precision, shift


def _lengths(R: FloatArray, d_precision: FloatArray, free: FloatArray) -> tuple[float, float]:
    """sqrt tr(S dP S dP) and sqrt(r'S r), S = (R R')^-1. Time 2 m^3."""
    whitened = solve_rows(R, np.ascontiguousarray(solve_rows(R, d_precision.copy()).T))
    return float(np.sqrt(np.vdot(whitened, whitened))), float(np.linalg.norm(solve_vector(R, free)))


@dataclass(frozen=True)
class Energy:
    """One of the three, for N data and one alpha in [0, 1]."""

    kind: str
    alpha: float
    n: int

    @property
    def removed(self) -> float:
        """a: share of q that the data do not see."""
        return self.alpha / {"apep": self.n, "arpep": np.inf, "rpapep": self.n + 1}[self.kind]

    @property
    def variational(self) -> bool:
        """Whether the data are seen under q itself and the rest is -KL(q || p): arpep at every alpha, apep at 0."""
        return self.removed == 0.0 and self.kind != "rpapep"

    @equation("villacampa2020", "u21-apep-cavity", "u24-rpapep-free-gaussian")
    def distributions(self, q: ClassDistribution) -> Distributions:
        """q, c and b of the text of the module. Time C m^3 / 3 (apep, rpapep).

        Parameters
        ----------
        q    distribution of the whitened inducing values
        """
        if self.variational:
            return Distributions(q, q, None)
        a = self.removed
        index = np.arange(q.precision.shape[1])
        precision, shift = (1.0 - a) * q.precision, (1.0 - a) * q.shift
        if self.kind == "rpapep":
            observed = precision.copy()
            observed[:, index, index] += self.alpha
            data = ClassDistribution(precision, shift, [np.sqrt(1.0 - a) * R for R in q.factor])
            return Distributions(q, data, ClassDistribution.of(observed, shift))
        precision[:, index, index] += a
        return Distributions(q, ClassDistribution.of(precision, shift), None)

    @equation("villacampa2020", "9", "10", "u22-apep-objective")
    def own_value(self, distributions: Distributions) -> float:
        """The energy without its sum over data. Time O(C m^3).

        Parameters
        ----------
        distributions  from `distributions`
        """
        q = distributions.q
        a, m = self.removed, q.shift.shape[1]
        if self.variational:
            return -divergence(q)
        squared = q.shift_norm  # w'P^-1 w
        quadratic = 0.5 * squared - 0.5 * q.log_det  # G(q)
        total = 0.0
        remaining, share = 1.0 - a, 1.0 / (self.n + 1)
        for k in range(q.shift.shape[0]):
            w, p = q.shift[k], q.weights[k]
            # P has a factor, so what is below zero here is rounding of the largest eigenvalue
            s = np.maximum(eigenvalues(q.covariance(k), "covariance of q(v)"), 0.0)
            if distributions.prior is not None:
                data = (1.0 - share) * (-squared[k] - m * float(log1p_quotient(a, np.array([-1.0]))[0]))
                # b: G(b) - G(q) over alpha, twice
                mean = distributions.prior.weights[k] / remaining  # P_b^-1 w
                prior = share * (a - 2.0) * squared[k] - remaining * remaining * float(mean @ (p - share * w))
                prior -= float(log1p_quotient(self.alpha, s - share).sum())
                total += quadratic[k] + 0.5 * (data + prior)
            else:
                mean = distributions.data.weights[k] / remaining  # P_c^-1 w
                change = (a - 2.0) * squared[k] + remaining * remaining * float(mean @ (w - p))
                total += quadratic[k] + 0.5 * (change - float(log1p_quotient(a, s - 1.0).sum()))
        return total

    def direction(self, distributions: Distributions, curvature: FloatArray, derivative: FloatArray) -> NaturalChange:
        """Gradient in the expectation parameters of q: a difference of natural parameters. Time about 6 C m^3.

        Zero where q has the mean of the moments of all tilted distributions (apep, rpapep), or where no site moves
        (arpep).

        Parameters
        ----------
        distributions             from `distributions`
        curvature : (C, m, m)     sum_i dF_i/dv_i a_i a_i'
        derivative : (C, m)            sum_i dF_i/dm_i a_i
        """
        q = distributions.q
        d_precision, d_shift = np.empty_like(q.precision), np.empty_like(q.shift)
        residual = 0.0
        for k in range(q.shift.shape[0]):
            P, p = q.precision[k], q.weights[k]
            if self.variational:
                target, shift = natural_target(curvature[k], derivative[k], p)
                d_precision[k], d_shift[k] = target - P, shift - q.shift[k]
                free = derivative[k] - p  # dw - dP m
            else:
                d_mean, d_cov = self._moment_changes(k, distributions, curvature[k], derivative[k])
                d_precision[k] = -(P @ d_cov @ P)
                d_precision[k] = 0.5 * (d_precision[k] + d_precision[k].T)
                free = P @ d_mean
                d_shift[k] = free + d_precision[k] @ p
            residual = max(residual, *_lengths(q.factor[k], d_precision[k], free))
        return NaturalChange(d_precision, d_shift, residual)

    def _moment_changes(
        self, k: int, distributions: Distributions, curvature: FloatArray, derivative: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Changes of mean and covariance of class k: the gradient in natural parameters."""
        a, left = self.removed, 1.0 - self.removed
        q = distributions.q
        S, S_c, w, p = q.covariance(k), distributions.data.covariance(k), q.shift[k], q.weights[k]
        pulled = S_c @ derivative
        cov = 2.0 * (S_c @ curvature @ S_c)
        if distributions.prior is None:
            gap = left * (S_c @ (w - p)) - p  # (m_c - m)/a
            crossed = S_c @ S
            cov += S_c - 0.5 * (crossed + crossed.T)
            cov += np.outer(gap, a * gap + pulled * a) + a * np.outer(pulled, gap)
            return left * (gap + pulled), left * cov
        share = 1.0 / (self.n + 1)
        S_b = distributions.prior.covariance(k)
        gap = -share * p - left * (S_b @ (p - share * w))  # (m_b - m)/alpha
        crossed = S_b @ S
        cov += share * S_b - 0.5 * (crossed + crossed.T) + ((1.0 - share) / left) * S
        cov += self.alpha * np.outer(gap, gap)
        return left * (gap + pulled), left * cov

    @property
    def prior_moves_data(self) -> bool:
        """Whether the distribution that the data are seen under moves with the prior where q is held: apep's does."""
        return self.kind == "apep" and not self.variational

    def kernel_distribution(self, distributions: Distributions) -> ClassDistribution:
        """The distribution whose moments K pulls at: what the prior is seen under.

        Parameters
        ----------
        distributions  from `distributions`
        """
        return distributions.data if distributions.prior is None else distributions.prior

    def kernel_moment(
        self, covariance: FloatArray, mean: FloatArray, curvature: FloatArray, derivative: FloatArray
    ) -> FloatArray:
        """M of L'(dE/dK) L = (M - I)/2 of a class, mean and covariance of u held: (m, m).

        It is the second moment of `kernel_distribution`, and of what moves the data with the prior where
        `prior_moves_data`.

        Parameters
        ----------
        covariance : (m, m)         covariance under `kernel_distribution`
        mean : (m,)             likewise
        curvature : (m, m)      sum_i dF_i/dv_i a_i a_i', weighted as in the energy; not looked at unless
                                `prior_moves_data`
        derivative : (m,)            sum_i dF_i/dm_i a_i; likewise
        """
        moment = covariance + np.outer(mean, mean)
        if self.prior_moves_data:
            pulled = np.outer(covariance @ derivative, mean)
            moment += self.removed * (2.0 * (covariance @ curvature @ covariance) + pulled + pulled.T)
        return moment
