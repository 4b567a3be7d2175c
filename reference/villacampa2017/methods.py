"""EP with one factor a datum and other class, and EP with one a datum: what a loop over either needs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import Prior, class_gradients
from reference.common._learning import FIELDS
from reference.common._sweeps import Step
from reference.common._training import State, Value
from reference.villacampa2017.cavity import cavity
from reference.villacampa2017.datum import (
    DatumSites,
    datum_log_scales,
    datum_posterior,
    refine_datum_sites,
    tilted_of_data,
)
from reference.villacampa2017.derivatives import (
    Pull,
    Weights,
    held_cavity_weights,
    held_pull,
    kernel_derivative,
    total_pull,
    total_weights,
)
from reference.villacampa2017.evidence import (
    ep_log_evidence_from_moments,
    factor_log_scale_rank_one,
)
from reference.villacampa2017.factors import (
    damped_update,
    posterior_of,
)
from reference.villacampa2017.gradients import minibatch_scale
from reference.villacampa2017.hyper import Matrices, prior_matrices
from reference.villacampa2017.posterior import Coefficients, Gaussians, per_class
from reference.villacampa2017.scalar import (
    Cavities,
    Projected,
    Tilted,
    own_columns,
    pair_cavities,
    projections,
    refine_projected,
    refined_pairs,
    scalar_cavities,
)

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]


class OverPrior:
    """What all methods do alike: the matrices of the prior, and derivatives by `pulls`."""

    def matrices(self, X: Array, prior: Prior) -> Matrices:
        """K_ZZ, υ and s of a prior at the inputs X (n, d)."""
        return prior_matrices(X, prior)

    def traced(self, sites: Any, posterior: Gaussians, K: Matrices) -> float | None:
        """log Z_q after a sweep, from sites, posterior and K; none if a cavity is no distribution."""
        return self.value(sites, posterior, K).log_evidence

    def gradients(
        self, X: Array, state: State, batch: Batch | None = None, exact: bool = False, learn: Sequence[str] = FIELDS
    ) -> dict[str, Array] | None:
        """The derivative of log Z_q, or (10), in every hyper-parameter; (12) of villacampa2017 for a mini-batch.

        Parameters
        ----------
        X : (n, d)                inputs
        state : State             factors, q, prior and its matrices
        batch : (b,) or None      data whose terms stand for all, n/b times; None: all data
        exact : bool              the whole derivative with the factors' numbers held; False: formula (10)
        learn : names             fields wanted

        Returns
        -------
        dict or None              fields with shapes as in the prior; None if a cavity is no distribution
        """
        weights = np.ones(len(X))
        if batch is not None:
            weights = np.zeros(len(X))
            weights[batch] = minibatch_scale(len(X), len(batch))
        pulls = self.pulls(state.sites, state.posterior, state.K, weights, exact)
        if pulls is None:
            return None
        derivatives = [kernel_derivative(*each) for each in zip(pulls, state.K.upsilon, state.K.K_ZZ, strict=True)]
        return class_gradients(derivatives, X, state.prior, learn)

    def value(self, sites: Any, posterior: Gaussians, K: Matrices) -> Value:
        """log Z_q of all data, from sites, posterior and K."""
        raise NotImplementedError

    def pulls(self, sites: Any, posterior: Gaussians, K: Matrices, weights: Array, exact: bool) -> list[Pull] | None:
        """Derivatives of log Z_q from sites, posterior and K, data weighted; none if a cavity is no distribution."""
        raise NotImplementedError


def standardised_change(d_c1: Array, d_c2: Array, projected: Projected) -> float:
    """Largest max(|ΔC¹| q, |ΔC² - ΔC¹ p| √q), p and q the moments of υᵀf̄ under q: villacampa2017.

    Parameters
    ----------
    d_c1 : (n, C)             undamped change of C¹
    d_c2 : (n, C)             undamped change of C²
    projected : Projected     p and q before the update
    """
    p, q = projected
    return float(max(np.max(np.abs(d_c1) * q), np.max(np.abs(d_c2 - d_c1 * p) * np.sqrt(q))))


def at_labels(projected: Projected, y: Labels) -> Projected:
    """Columns of the labels y (n,) of projected moments (n, C), each (n, 1)."""
    at = np.arange(len(y)), y
    return Projected(*(part[at][:, None] for part in projected))


def marginals(posterior: Gaussians, K: Matrices) -> Projected:
    """(66) and (67) of villacampa2017 at the data of K, under the posterior q, each (n, C)."""
    projected = projections(posterior, K.upsilon)
    return Projected(projected.mean, projected.var + K.cond_var.T)


class _Running:
    """q while factors are put in one after another."""

    def __init__(self, posterior: Gaussians, upsilon: Array) -> None:
        self.posterior = Gaussians(posterior.mean.copy(), posterior.cov.copy())
        self.upsilon = upsilon

    def at(self, i: int) -> Projected:
        """Moments of υ_iᵀf̄, each (1, C)."""
        return projections(self.posterior, self.upsilon[:, i : i + 1])

    def add(self, k: int, i: int, d_c1: float, d_c2: float) -> None:
        """Multiply q by a factor along υ_i^k: the removal of its inverse."""
        q = self.posterior
        q.mean[k], q.cov[k] = cavity(q.mean[k], q.cov[k], self.upsilon[k, i], -d_c1, -d_c2)


class PairwiseEP(OverPrior):
    """(8) of villacampa2017, the form "projected": appendices C to F along υ, see `scalar`; `printed` has the other."""

    def __init__(self, y: Labels, n_classes: int, damping: float, schedule: str) -> None:
        """Labels y (n,) of n_classes classes, damping in (0, 1], schedule parallel or sequential."""
        self.y, self.n_classes, self.damping, self.schedule = y, n_classes, damping, schedule

    def start(self, K: Matrices) -> Coefficients:
        """Factors of one; K is not looked at."""
        return Coefficients(*(np.zeros((len(self.y), self.n_classes)) for _ in range(4)))

    def posterior(self, sites: Coefficients, K: Matrices) -> Gaussians:
        """q(f̄) from sites and K."""
        return posterior_of(sites, self.y, K.upsilon, K.K_ZZ)

    def step(self, sites: Coefficients, posterior: Gaussians, K: Matrices, batch: Batch) -> Step:
        """One sweep from sites and posterior, with K, over batch; sequential: q refreshed after each factor."""
        new = Coefficients(*(part.copy() for part in sites))
        if self.schedule == "sequential":
            return self._one_by_one(new, posterior, K, batch)
        here, y = K.rows(batch), self.y[batch]
        old = Coefficients(*(part[batch] for part in sites))
        refined = refine_projected(old, posterior, y, here.upsilon, here.cond_var)
        for after, target, before in zip(new, refined.coefficients, old, strict=True):
            after[batch] = damped_update(target, before, self.damping)
        change = [target - before for target, before in zip(refined.coefficients, old, strict=True)]
        projected = projections(posterior, here.upsilon)
        residual = max(
            standardised_change(change[0], change[1], at_labels(projected, y)),
            standardised_change(change[2], change[3], projected),
        )
        return Step(new, residual, refined.n_improper)

    def _one_by_one(self, sites: Coefficients, posterior: Gaussians, K: Matrices, batch: Batch) -> Step:
        running = _Running(posterior, K.upsilon)
        residual, n_improper = 0.0, 0
        for i in batch:
            label = int(self.y[i])
            for k in range(self.n_classes):
                if k == label:
                    continue
                observed, row = running.at(i), self.y[i : i + 1]
                old = Coefficients(*(part[i : i + 1].copy() for part in sites))
                of_label, other = pair_cavities(old, observed, row)
                if not (of_label.left[0, k] > 0.0 and other.left[0, k] > 0.0):
                    n_improper += 1
                    continue
                target, _ = refined_pairs(of_label, other, row, K.cond_var[:, i : i + 1])
                change = [float(new[0, k] - was[0, k]) for new, was in zip(target, old, strict=True)]
                for j, d_c1, d_c2 in ((label, change[0], change[1]), (k, change[2], change[3])):
                    one = Projected(observed.mean[0, j], observed.var[0, j])
                    residual = max(residual, standardised_change(np.array(d_c1), np.array(d_c2), one))
                    running.add(j, i, self.damping * d_c1, self.damping * d_c2)
                for part, moved in zip(sites, change, strict=True):
                    part[i, k] += self.damping * moved
        return Step(sites, residual, n_improper)

    def value(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> Value:
        """log Z_q by (60) and the scales below (61), from sites, posterior and K."""
        refined = refine_projected(sites, posterior, self.y, K.upsilon, K.cond_var)
        if refined.n_improper:
            return Value(None, refined.log_norm)
        scales = factor_log_scale_rank_one(refined.log_norm, sites, posterior, self.y, K.upsilon)
        return Value(ep_log_evidence_from_moments(posterior, K.K_ZZ, scales), refined.log_norm)

    def latents(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> Projected:
        """(66) and (67) at the data, from posterior and K; sites are not looked at."""
        return marginals(posterior, K)

    def pulls(
        self, sites: Coefficients, posterior: Gaussians, K: Matrices, weights: Array, exact: bool
    ) -> list[Pull] | None:
        """(10), or the exact gradient, from sites, posterior and K; weights (n,) of the data's terms."""
        projected = projections(posterior, K.upsilon)
        of_label, other = pair_cavities(sites, projected, self.y)
        if np.any((np.minimum(of_label.left, other.left) <= 0.0) & ~own_columns(self.y, self.n_classes)):
            return None
        _, tilted = refined_pairs(of_label, other, self.y, K.cond_var)
        rule = total_weights if exact else held_cavity_weights
        label_part = rule(
            tilted.derivative, tilted.curvature, at_labels(projected, self.y), sites.c1_label, sites.c2_label
        )
        other_part = rule(-tilted.derivative, tilted.curvature, projected, sites.c1_other, sites.c2_other)
        by_class = Weights(*(weights * per_class(a, b, self.y) for a, b in zip(label_part, other_part, strict=True)))
        delta = per_class(sites.c1_label, sites.c1_other, self.y)
        mu_tilde = per_class(sites.c2_label, sites.c2_other, self.y)
        return _factorised_pulls(by_class, delta, mu_tilde, posterior, K, exact)


def _factorised_pulls(
    weights: Weights, delta: Array, mu_tilde: Array, posterior: Gaussians, K: Matrices, exact: bool
) -> list[Pull]:
    results = []
    for k, K_ZZ in enumerate(K.K_ZZ):
        own = Weights(*(part[k] for part in weights))
        distribution = posterior.mean[k], posterior.cov[k], K.upsilon[k], K_ZZ
        results.append(
            total_pull(own, delta[k], mu_tilde[k], *distribution) if exact else held_pull(own, *distribution)
        )
    return results


class DatumEP(OverPrior):
    """One factor a datum, which touches all classes: (3) of villacampa2017 by quadrature."""

    def __init__(self, y: Labels, n_classes: int, damping: float, schedule: str) -> None:
        """Labels y (n,) of n_classes classes, damping in (0, 1], schedule parallel or sequential."""
        self.y, self.n_classes, self.damping, self.schedule = y, n_classes, damping, schedule

    def start(self, K: Matrices) -> DatumSites:
        """Factors of one; K is not looked at."""
        return DatumSites(*(np.zeros((len(self.y), self.n_classes)) for _ in range(2)))

    def posterior(self, sites: DatumSites, K: Matrices) -> Gaussians:
        """q(f̄) from sites and K."""
        return datum_posterior(sites, K.upsilon, K.K_ZZ)

    def step(self, sites: DatumSites, posterior: Gaussians, K: Matrices, batch: Batch) -> Step:
        """One sweep from sites and posterior, with K, over batch; sequential: q refreshed after each datum."""
        new = DatumSites(*(part.copy() for part in sites))
        if self.schedule == "parallel":
            return self._refine(new, posterior, K, batch)
        running = _Running(posterior, K.upsilon)
        steps: list[Step] = []
        for i in batch:
            before = [part[i].copy() for part in new]
            steps.append(self._refine(new, running.posterior, K, np.array([i])))
            change = [part[i] - was for part, was in zip(new, before, strict=True)]
            for k in range(self.n_classes):
                running.add(k, i, float(change[0][k]), float(change[1][k]))
        return Step(new, max(step.residual for step in steps), sum(step.n_improper for step in steps))

    def _refine(self, sites: DatumSites, posterior: Gaussians, K: Matrices, batch: Batch) -> Step:
        """Sites of a batch, moved where they are."""
        here = K.rows(batch)
        old = DatumSites(*(part[batch] for part in sites))
        refined = refine_datum_sites(old, posterior, self.y[batch], here.upsilon, here.cond_var)
        change = [target - was for target, was in zip(refined.sites, old, strict=True)]
        for part, was, target in zip(sites, old, refined.sites, strict=True):
            part[batch] = damped_update(target, was, self.damping)
        residual = standardised_change(change[0], change[1], projections(posterior, here.upsilon))
        return Step(sites, residual, refined.n_improper)

    def value(self, sites: DatumSites, posterior: Gaussians, K: Matrices) -> Value:
        """log Z_q as (60) with one scale a datum, from sites, posterior and K."""
        refined = refine_datum_sites(sites, posterior, self.y, K.upsilon, K.cond_var)
        if refined.n_improper:
            return Value(None, refined.log_norm)
        scales = datum_log_scales(refined.log_norm, sites, projections(posterior, K.upsilon))
        return Value(ep_log_evidence_from_moments(posterior, K.K_ZZ, scales), refined.log_norm)

    def _tilted(self, sites: DatumSites, posterior: Gaussians, K: Matrices) -> tuple[Cavities, Tilted | None]:
        cavities = scalar_cavities(projections(posterior, K.upsilon), *sites)
        proper = bool(np.all(cavities.left > 0.0))
        return cavities, tilted_of_data(cavities, self.y, K.cond_var) if proper else None

    def latents(self, sites: DatumSites, posterior: Gaussians, K: Matrices) -> Projected:
        """Tilted means and variances of the latent values, from sites, posterior and K; q's where a cavity fails."""
        cavities, tilted = self._tilted(sites, posterior, K)
        if tilted is None:
            return marginals(posterior, K)
        var = cavities.var + K.cond_var.T
        return Projected(cavities.mean + var * tilted.derivative, var - var**2 * tilted.curvature)

    def pulls(
        self, sites: DatumSites, posterior: Gaussians, K: Matrices, weights: Array, exact: bool
    ) -> list[Pull] | None:
        """(10), or the exact gradient, from sites, posterior and K; weights (n,) of the data's terms."""
        _, tilted = self._tilted(sites, posterior, K)
        if tilted is None:
            return None
        rule = total_weights if exact else held_cavity_weights
        result = rule(tilted.derivative, tilted.curvature, projections(posterior, K.upsilon), *sites)
        by_class = Weights(*(weights * part.T for part in result))
        return _factorised_pulls(by_class, sites.site_precision.T, sites.site_shift.T, posterior, K, exact)
