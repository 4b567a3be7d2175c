"""What posteriors of batch methods say of u: q in white coordinates, one Gaussian site a datum."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fast.core.linalg import solve_rows
from fast.core.types import FloatArray
from fast.one_latent.prior import FullPrior


class White(NamedTuple):
    """q of a posterior, B = I + A T A' = R R'."""

    factor: FloatArray  # R, (m, m) or (n, n)
    weights: FloatArray  # (m,) mean of v; not used by a full GP
    mean: FloatArray  # (n,) of the projections, of f for a full GP
    site_precision: FloatArray  # (n,) diagonal of T


class WhitePosterior:
    """Base of posteriors whose prior is whitened; a subclass has the fields and `_white`."""

    prior: Any  # SparsePrior or FullPrior
    trace: FloatArray

    @property
    def _white(self) -> White:
        raise NotImplementedError

    @property
    def iterations(self) -> int:
        """Iterations made."""
        return self.trace.size

    @property
    def inducing_mean(self) -> FloatArray:
        """Mean of u under q: (m,); of all latent values for a full GP."""
        prior, q = self.prior, self._white
        return q.mean.copy() if isinstance(prior, FullPrior) else np.asarray(prior.chol_K @ q.weights)

    @property
    def inducing_cov(self) -> FloatArray:
        """Its covariance: (m, m), computed when asked for in O(m^3); of all latent values for a full GP."""
        prior, q = self.prior, self._white
        if isinstance(prior, FullPrior):
            explained = solve_rows(q.factor, prior.K * np.sqrt(q.site_precision))  # row i: R^-1 S k_i
            return prior.K - explained @ explained.T
        # a copy even for m = 1, where one order of memory is the other: the solve is in place
        whitened = solve_rows(q.factor, np.array(prior.chol_K, order="C"))  # row i: R^-1 (row i of L)
        return whitened @ whitened.T


class EvaluatedPosterior(WhitePosterior):
    """Those that hold an `Evaluation` at their local parameters."""

    evaluation: Any
    site_precision: Any  # (n,)

    @property
    def _white(self) -> White:
        q = self.evaluation
        return White(q.factor, q.weights, q.latent_mean, self.site_precision)

    @property
    def latent_mean(self) -> FloatArray:
        """Mean of q(f_i): (n,)."""
        mean: FloatArray = self.evaluation.latent_mean
        return mean

    @property
    def latent_var(self) -> FloatArray:
        """Variance of q(f_i), noise included: (n,)."""
        var: FloatArray = self.evaluation.latent_var
        return var


class SitedPosterior(WhitePosterior):
    """Those that hold a `SitePosterior` given their sites."""

    sites: Any
    site_precision: Any  # (n,)

    @property
    def _white(self) -> White:
        return White(self.sites.factor, self.sites.weights, self.sites.proj_mean, self.site_precision)
