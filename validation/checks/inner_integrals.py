"""Integrals and sums inside solvers, each against a rule of the judge's own: far tails, unlike widths, narrow regions.

Ordinary problems seldom come where these rules differ from simpler ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]


def _panels(cuts: Array, degree: int = 32) -> tuple[Array, Array]:
    """Nodes and weights of Clenshaw and Curtis on each panel between cuts: sums of cosines, which no witness uses."""
    angle = np.pi * np.arange(degree + 1) / degree
    even = np.arange(2, degree + 1, 2)
    share = np.where(even == degree, 1.0, 2.0) / (1.0 - even**2)
    w = (1.0 + np.cos(np.outer(angle, even)) @ share) * 2.0 / degree
    w[[0, -1]] *= 0.5
    half, middle = 0.5 * np.diff(cuts), 0.5 * (cuts[1:] + cuts[:-1])
    return (middle[:, None] + half[:, None] * np.cos(angle)).ravel(), (half[:, None] * w).ravel()


@check(
    "identity/sep/far_products",
    paper="villacampa2017",
    question="Do distances from products keep their digits for inputs many lengthscales from the centre of Z?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.kernel.kernels import PreparedKernel

    rng = np.random.default_rng(95)
    lengthscales = rng.uniform(0.5, 2.0, 64)
    for away in (10.0, 24.0, 60.0):
        Z = rng.standard_normal((6, 64)) * 0.1
        Z[::2] += away
        Z[1::2] -= away
        X = Z + 0.1 * rng.standard_normal((6, 64))
        kernel = PreparedKernel(Z * lengthscales, 1.7, lengthscales)
        K = kernel.cross_by_product(X * lengthscales)
        with np.errstate(under="ignore"):
            wanted = 1.7 * np.exp(-0.5 * np.square(X[:, None] - Z).sum(axis=2))
        gap = float(np.abs(np.diag(K) / np.diag(wanted) - 1.0).max())
        # within 16 lengthscales products may lose 4 eps 256 a column; beyond, differences lose a few roundings
        limit = 4.0 * 2.2e-16 * 256.0 * 64.0 if away < 16.0 else 1e-13
        yield Compared(gap, limit, f"neighbours {away:g} lengthscales out, 64 columns", "fast", "definition")


@check(
    "print/arpep/data_terms",
    paper="villacampa2020",
    question="Is what the data add to a printed objective their weight times the sum of their log expectations?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.villacampa2020 import energies
    from reference.villacampa2020.hyper import prior_matrices
    from reference.villacampa2020.posterior import Gaussians

    asked = tiny("threshold errors")
    assert asked.Z is not None
    K = prior_matrices(asked.X, Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z))
    rng = np.random.default_rng(97)
    q = Gaussians(0.3 * rng.standard_normal((3, 4)), np.array([0.5 * each + 0.02 * np.eye(4) for each in K.K_ZZ]))
    rows = np.array([0, 2, 3, 6])
    for method in ("arpep", "rpapep", "apep"):
        told = energies.printed_energy(method, q, asked.y[rows], K.of(rows), asked.epsilon, 0.6, 8).data
        gap = abs(told.value / (2.0 * float(np.sum(told.log_norm))) - 1.0)
        yield Compared(gap, 1e-13, f"{method}: four of eight data count twice", "reference", "definition")


@check(
    "identity/gibbs-probit/far_tails",
    paper="riihimaki2013",
    question="Does an exponential become the excess whose tail it is, beyond ten standard deviations too?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.draws import univariate_truncated as tail

    nodes, weights = _panels(np.array([0.0, 1.0, 3.0, 7.0, 14.0, 25.0, 45.0]))
    bound = np.array([-3.0, 0.5, 4.0, tail._FAR + 0.1, 20.0, 40.0, 1e3])
    for drop in (1e-3, 0.4, 3.0, 30.0):
        excess = tail._far(bound[3:], np.full(4, drop))
        # Q(z) = phi(z)/z int exp(-t - t^2 / (2 z^2)) dt, so that logarithms of ratios keep their digits
        far = bound[3:]
        there = far + excess
        log_tail = [
            np.log(np.exp(-nodes - 0.5 * (nodes / z[:, None]) ** 2) @ weights) - np.log(z) for z in (far, there)
        ]
        fallen = excess * (far + 0.5 * excess) + log_tail[0] - log_tail[1]
        yield Compared(
            float(np.abs(fallen / drop - 1.0).max()), 1e-9, f"log Q falls by {drop:g}", "gibbs", "definition"
        )


@check(
    "identity/ep/unlike_widths",
    paper="villacampa2017",
    question="Is the probability of the largest value that of a rule cut at every class, however unlike their widths?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood.largest import argmax_moments

    rng = np.random.default_rng(103)
    n, C = 500, 4
    mean = rng.standard_normal((n, C)) * np.exp(rng.uniform(-2.0, 3.0, (n, 1)))
    var, y = np.exp(rng.uniform(-12.0, 6.0, (n, C))), rng.integers(0, C, n)
    rows = np.arange(n)
    behind = (mean - mean[rows, y][:, None]) / np.sqrt(var + var[rows, y][:, None])
    reached = (behind < 5.0).all(axis=1)  # where the label's class may win within thirteen of its deviations
    mean, var, y = mean[reached], var[reached], y[reached]
    told = argmax_moments(mean, var, y)
    assert told.derivative is not None
    gaps = []
    for i in range(len(y)):
        others = np.delete(np.arange(C), y[i])
        m, s, m_y, s_y = mean[i, others], np.sqrt(var[i, others]), mean[i, y[i]], np.sqrt(var[i, y[i]])
        cuts = np.concatenate(
            [m_y + s_y * np.arange(-13.0, 14.0), (m[:, None] + s[:, None] * np.arange(-9.0, 10.0)).ravel()]
        )
        cuts = np.unique(np.clip(cuts, m_y - 13.0 * s_y, m_y + 13.0 * s_y))
        f, weight = _panels(cuts)
        z = (f[:, None] - m) / s
        log_terms = -0.5 * ((f - m_y) / s_y) ** 2 - np.log(s_y) - 0.5 * np.log(2.0 * np.pi) + log_ndtr(z).sum(axis=1)
        top = log_terms.max()
        mass = weight * np.exp(log_terms - top)
        log_P = top + np.log(mass.sum())
        hazard = np.exp(-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))
        by_mean = -(mass @ hazard) / mass.sum()  # times s: in deviations
        gaps.append(
            (abs(told.log_mass[i] - log_P) / max(1.0, -log_P), np.abs(told.derivative[i, others] * s - by_mean).max())
        )
    worst = np.array(gaps).max(axis=0)
    yield Compared(
        float(worst[0]), 1e-11, f"log P of {len(y)} data, widths up to 8000 times apart", "fast", "definition"
    )
    yield Compared(float(worst[1]), 1e-10, "derivatives by the means, in deviations", "fast", "definition")


@check(
    "identity/vi-robust/derivatives_of_the_bound",
    paper="villacampa2017",
    question="Are the derivatives of the bound in q those of its values, and do moves say which of them closed?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.sparse_classes import alpha_joint
    from gibbs.moves.hyper import slice_move
    from reference.common._classes import Prior
    from reference.villacampa2017.hyper import prior_matrices
    from reference.villacampa2017.posterior import Gaussians
    from reference.villacampa2017.vi_fit import Data

    asked = tiny("threshold errors")
    assert asked.Z is not None
    K = prior_matrices(asked.X, Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z))
    rng = np.random.default_rng(105)
    mean, cov = 0.4 * rng.standard_normal((3, 4)), np.array([0.5 * each + 0.05 * np.eye(4) for each in K.K_ZZ])
    along, turned = rng.standard_normal((3, 4)), rng.standard_normal((3, 4, 4))
    turned = turned + np.swapaxes(turned, 1, 2)
    data, h = Data(asked.X, asked.y, asked.epsilon, "projected"), 1e-5
    at = data.at(Gaussians(mean, cov), K)
    ends = [data.at(Gaussians(mean + sign * h * along, cov), K).value for sign in (-1.0, 1.0)]
    gap = abs((ends[1] - ends[0]) / (2.0 * h) / float(np.sum(at.by_mean * along)) - 1.0)
    ends = [data.at(Gaussians(mean, cov + sign * 1e-3 * h * turned), K).value for sign in (-1.0, 1.0)]
    gap = max(gap, abs((ends[1] - ends[0]) / (2e-3 * h) / float(np.sum(at.by_cov * turned)) - 1.0))
    # values of some tens round to 1e-14, over steps of 1e-8
    yield Compared(gap, 1e-4, "by differences in all means, and in all covariances", "reference", "definition")

    # sixty rows of which every third has no other point on its level: its interval closes on the state; nowhere to be
    # is no place of one more row, whose interval never closes
    position = rng.standard_normal((61, 2))
    lonely, nowhere = np.arange(61) % 3 == 1, np.arange(61) == 60

    def height(rows: Array, x: Array) -> Array:
        still = (x == position[rows]).all(axis=1)
        none = (lonely[rows] & ~still) | nowhere[rows]
        return np.where(none, -np.inf, -0.5 * np.sum(x * x, axis=1))

    told = slice_move(np.random.default_rng(106), position, np.ones((61, 2)), cast("Any", height), 2.0)
    moved = (told[0] != position).any(axis=1)
    yield flaws(bool((moved == (lonely | nowhere)).any()), "rows that have somewhere to go move", "gibbs", "rows")
    yield flaws(bool((told[1] == nowhere).any()), "and all intervals close but that of the last", "gibbs", "rows")

    for least, sure in ((1.0, True), (1e-9, False)):
        B = np.array([np.eye(4), np.diag([1.0, 1.0, 1.0, least])])
        wrong = alpha_joint._surely_positive(alpha_joint.White(np.zeros((2, 4)), B)) != sure
        yield flaws(wrong, f"a factor of q with the least entry {least:g}", "fast", "factors")


@check(
    "identity/vb-probit/narrow_regions",
    paper="riihimaki2013",
    question="Are probabilities of a region right where it hardly bends, and where it bends much?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood.region import region_moments

    rng = np.random.default_rng(107)
    u = np.linspace(-12.0, 12.0, 48_001)
    density = np.exp(-0.5 * u * u) * (u[1] - u[0]) / np.sqrt(2.0 * np.pi)
    for width in (1e-3, 0.1, 1.0, 8.0):
        a, b = rng.standard_normal((6, 3)), width * rng.uniform(0.5, 1.0, (6, 3))
        told = region_moments(a, b, moments=True)
        t = a[:, None, :] + b[:, None, :] * u[:, None]
        terms = np.exp(log_ndtr(t).sum(axis=2)) * density
        mass = terms.sum(axis=1)
        hazard = np.exp(-0.5 * t * t - 0.5 * np.log(2.0 * np.pi) - log_ndtr(t))
        gradient = np.einsum("nu,nuj->nj", terms, hazard) / mass[:, None]
        assert told.hazards is not None
        gap = max(float(np.abs(told.log_mass - np.log(mass)).max()), float(np.abs(told.hazards / gradient - 1.0).max()))
        # the hazards of the judge lose digits where log Phi is large
        yield Compared(gap, 1e-11, f"widths up to {width:g}", "fast", "definition")
