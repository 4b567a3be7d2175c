"""The Gaussian at a mode, log Z by its volume, and the derivative of log Z through the mode.

With W the negative second derivatives of the log likelihood at the mode f and B = I + W^1/2 K W^1/2,

    q(f) = N(f, (K^-1 + W)^-1),    log Z = log p(y|f) - a'f/2 - log|B|/2,    f = K a,  a = grad log p(y|f).

q is the posterior of sites of precision W and shift W f + a (`fast.one_latent.sites`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fast.core.blocks import block_edges
from fast.core.linalg import solve_rows
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.kernel.kernels import entries_vjp
from fast.one_latent.links import link_of
from fast.one_latent.mode import Mode, damped
from fast.one_latent.prior import FullPrior
from fast.one_latent.site_gradients import full_site_gradients
from fast.one_latent.sites import SitePosterior, condition


@dataclass(frozen=True, eq=False)
class LaplacePosterior:
    """The Gaussian at the mode."""

    prior: FullPrior
    likelihood: str
    mode: Mode
    sites: SitePosterior
    log_evidence: float  # with every constant

    @property
    def residual(self) -> float:
        """The Newton step that is left."""
        return self.mode.residual

    @property
    def converged(self) -> bool:
        """Whether that is below the tolerance."""
        return self.mode.converged

    @property
    def iterations(self) -> int:
        """Newton steps."""
        return self.mode.iterations

    @property
    def trace(self) -> FloatArray:
        """Log joint density at the start and after every step."""
        return self.mode.trace

    @property
    def site_precision(self) -> FloatArray:
        """W: (n,)."""
        return -self.mode.terms.curvature

    @property
    def latent_mean(self) -> FloatArray:
        """The mode: (n,)."""
        return self.mode.latent

    @property
    def latent_var(self) -> FloatArray:
        """Diagonal of (K^-1 + W)^-1: (n,)."""
        return self.sites.proj_var

    @property
    def inducing_mean(self) -> FloatArray:
        """The mode, as the mean of all latent values: (n,)."""
        return self.mode.latent.copy()

    @property
    def inducing_cov(self) -> FloatArray:
        """(K^-1 + W)^-1: (n, n), computed when asked for in O(n^3)."""
        explained = solve_rows(self.sites.factor, self.prior.K * np.sqrt(self.site_precision))  # row i: R^-1 S k_i
        return self.prior.K - explained @ explained.T


def gaussian_at(prior: FullPrior, likelihood: str, mode: Mode) -> LaplacePosterior:
    """The Gaussian at a mode. Time 5 n^3/3.

    Parameters
    ----------
    prior               the training data
    likelihood : str    a name in `fast.one_latent.links.LINKS`
    mode                from `fast.one_latent.mode.find_mode`
    """
    precision = -mode.terms.curvature
    sites = condition(prior, precision, precision * mode.latent + mode.terms.derivative)
    value = float(mode.terms.value.sum()) - 0.5 * (float(mode.weights @ mode.latent) + sites.log_det)
    return LaplacePosterior(prior, likelihood, mode, sites, value)


def total_gradients(posterior: LaplacePosterior) -> Gradients:
    """Total gradient of log Z in variance, lengthscales and noise, through the mode too. Time O(n^3 + n^2 d).

    dlogZ/dK = (a a' - S B^-1 S)/2 + q a' with q = (I + W K)^-1 s and s_i = Var f_i d^3 log p(y_i|f_i)/df_i^3 / 2, the
    gradient of -log|B|/2 in the mode.

    Parameters
    ----------
    posterior    from `gaussian_at`
    """
    prior, mode, W = posterior.prior, posterior.mode, posterior.site_precision
    derivative = mode.terms.derivative  # K^-1 f to the accuracy of f; weights have an error of f times K^-1
    held = full_site_gradients(prior, posterior.sites.factor, derivative, W)
    third_derivative = link_of(posterior.likelihood).third_derivative
    by_mode = 0.5 * posterior.latent_var * third_derivative(prior.y_sign, mode.latent)
    by_mode -= damped(mode.factor, W, prior.K @ by_mode)
    by_variance, by_length = held.variance, held.lengthscales.copy()
    for start, stop in block_edges(by_mode.size, prior.block_size):
        part = entries_vjp(np.outer(by_mode[start:stop], derivative), prior.X[start:stop], prior.X, prior.hyper)
        by_variance += part.variance
        by_length += part.lengthscales
    return Gradients(by_variance, by_length, held.noise + float(by_mode @ derivative), None)
