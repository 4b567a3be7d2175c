"""SEP: what a loop over it needs, as `methods` has it for EP."""

import numpy as np
from numpy.typing import NDArray

from reference.common._sweeps import Step
from reference.common._training import Value
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2017.cavity import Cavity
from reference.villacampa2017.derivatives import Pull, Weights, tied_pull
from reference.villacampa2017.evidence import ep_log_evidence_from_moments, gaussian_log_normaliser
from reference.villacampa2017.hyper import Matrices
from reference.villacampa2017.methods import OverPrior, at_labels, marginals
from reference.villacampa2017.model import REMEDY
from reference.villacampa2017.posterior import Coefficients, Gaussians, Natural, natural_parameter_sum, per_class
from reference.villacampa2017.scalar import Cavities, Projected, Tilted, projections, refined_pairs
from reference.villacampa2017.sep import factor_counts, sep_batch_update, sep_cavity, sep_tied_factor

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]


def _moments(theta: Natural) -> Cavity:
    cov = factorise(theta.precision, "precision", "lower damping").inverse
    return Cavity(cov @ theta.shift, cov)


def sep_refine_factors(cavities: Gaussians, y: Labels, upsilon: Array, cond_var: Array) -> tuple[Coefficients, Tilted]:
    """Coefficients of all factors and log Z_{i,k}, each (n, C), from one cavity a class: villacampa2017, 2.3.1.

    Parameters
    ----------
    cavities : Gaussians      q(f̄^k) without one n-th of the tied factor
    y : (n,)                  labels, 0..C-1
    upsilon : (C, n, m)       υ_i^k
    cond_var : (C, n)         s_i^k
    """
    projected = projections(cavities, upsilon)
    of_label = at_labels(projected, y)
    other = Cavities(*projected, np.ones_like(projected.mean))
    return refined_pairs(Cavities(*of_label, np.ones_like(of_label.mean)), other, y, cond_var)


class TiedEP(OverPrior):
    """SEP of villacampa2017: factors tied, one precision and one shift kept a class; the form "projected".

    A sweep replaces the part of the tied factor that its data stand for, r of it, by their refined factors:
    T ← T + ρ (Σ new - r T), where r is the share of the data; with the count "per-class", of the factors of a class.
    """

    def __init__(self, y: Labels, n_classes: int, damping: float, count: str) -> None:
        """Labels y (n,) of n_classes classes, damping ρ in (0, 1], count all or per-class."""
        self.y, self.n_classes, self.damping, self.count = y, n_classes, damping, count
        self.counts = factor_counts(y, n_classes, count)

    def start(self, K: Matrices) -> list[Natural]:
        """Factors of one, in the size of K."""
        C, m, _ = K.K_ZZ.shape
        return [Natural(np.zeros((m, m)), np.zeros(m)) for _ in range(C)]

    def _natural(self, sites: list[Natural], K: Matrices) -> list[Natural]:
        return [
            natural_parameter_sum(Natural(factorise(each, "K_ZZ", REMEDY).inverse, np.zeros(len(each))), [tied])
            for each, tied in zip(K.K_ZZ, sites, strict=True)
        ]

    def posterior(self, sites: list[Natural], K: Matrices) -> Gaussians:
        """q(f̄) from sites and K."""
        distributions = [_moments(each) for each in self._natural(sites, K)]
        return Gaussians(
            np.array([distribution.mean for distribution in distributions]),
            np.array([distribution.cov for distribution in distributions]),
        )

    def cavities(self, sites: list[Natural], K: Matrices) -> Gaussians:
        """q without one n-th of the tied factor, from sites and K."""
        distributions = [_moments(each) for each in sep_cavity(self._natural(sites, K), sites, self.counts)]
        return Gaussians(
            np.array([distribution.mean for distribution in distributions]),
            np.array([distribution.cov for distribution in distributions]),
        )

    def matched(self, cavities: Gaussians, y: Labels, K: Matrices) -> tuple[Coefficients, Array]:
        """Coefficients and log Z of all factors of data, each (n, C), from cavities, the labels y and K of the data."""
        refined, tilted = sep_refine_factors(cavities, y, K.upsilon, K.cond_var)
        return refined, tilted.log_norm

    def step(self, sites: list[Natural], posterior: Gaussians, K: Matrices, batch: Batch) -> Step:
        """One sweep from sites and posterior, with K, over batch."""
        here, y = K.rows(batch), self.y[batch]
        refined, _ = self.matched(self.cavities(sites, K), y, here)
        target = sep_tied_factor(refined, y, here.upsilon)
        shares = factor_counts(self.y[batch], self.n_classes, self.count) / self.counts
        sizes, new = [], []
        for k, old in enumerate(sites):
            d_precision = target[k].precision - shares[k] * old.precision
            d_shift = target[k].shift - shares[k] * old.shift
            moved = posterior.cov[k] @ d_precision
            left = d_shift - d_precision @ posterior.mean[k]
            sizes += [float(np.sum(moved * moved.T)), float(left @ posterior.cov[k] @ left)]
            new.append(sep_batch_update(old, target[k], float(shares[k]), self.damping))
        return Step(new, float(np.sqrt(max(0.0, *sizes))), 0)  # all below zero by rounding only

    @equation("villacampa2017", "u43-sep-log-evidence")
    def value(self, sites: list[Natural], posterior: Gaussians, K: Matrices) -> Value:
        r"""log Z_q of villacampa2017 with n factors of one kind a class, from sites, posterior and K.

        P + Σ_i Σ_{k≠y_i} log Z_{i,k} + Σ_k n_k [g(θ\) - g(θ)],   P as in (60)
        """
        cavities = self.cavities(sites, K)
        _, log_norm = self.matched(cavities, self.y, K)
        total = ep_log_evidence_from_moments(posterior, K.K_ZZ, log_norm)
        for k, count in enumerate(self.counts):
            gap = gaussian_log_normaliser(cavities.mean[k], cavities.cov[k])
            gap -= gaussian_log_normaliser(posterior.mean[k], posterior.cov[k])
            total += float(count) * gap
        return Value(total, log_norm)

    def latents(self, sites: list[Natural], posterior: Gaussians, K: Matrices) -> Projected:
        """(66) and (67) at the data, from posterior and K; sites are not looked at."""
        return marginals(posterior, K)

    def pulls(
        self, sites: list[Natural], posterior: Gaussians, K: Matrices, weights: Array, exact: bool
    ) -> list[Pull] | None:
        """(10), or the exact gradient, from sites, posterior and K; weights (n,) of the data's terms."""
        cavities = self.cavities(sites, K)
        _, tilted = sep_refine_factors(cavities, self.y, K.upsilon, K.cond_var)
        by_var = 0.5 * (tilted.derivative**2 - tilted.curvature)
        mean = weights * per_class(tilted.derivative, -tilted.derivative, self.y)
        var = weights * per_class(by_var, by_var, self.y)
        return [
            tied_pull(
                Weights(mean[k], var[k], var[k]),
                Cavity(posterior.mean[k], posterior.cov[k]),
                Cavity(cavities.mean[k], cavities.cov[k]),
                float(self.counts[k]),
                K.upsilon[k],
                K.K_ZZ[k],
                exact,
            )
            for k in range(self.n_classes)
        ]
