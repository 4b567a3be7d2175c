"""epgpc: expectation propagation with inducing points for binary probit GP classification. A baseline of wenzel2019.

The model of Hernandez-Lobato and Hernandez-Lobato 2016 for two classes: labels y_i with probability Phi(y_i f_i), the
latent values independent given the inducing values (FITC). Site i is a Gaussian function of the projection
t_i = upsilon_i'u (see `fast.one_latent.sites`), so a cavity is two numbers:

    cavity of t_i: N(m, v),   Z_i = Phi(y_i m / sqrt(1 + v + cond_var_i)),   new site from two derivatives of log Z_i.

log Z_EP = sum_i log s_i - log|B|/2 + nu'E[t]/2 holds every constant. Full GP: t = f, cond_var = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fast.core.declare import takes_values
from fast.core.options import Accelerated, Blocks, Damped, Iteration, Storage, Watched
from fast.core.results import Gradients
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.likelihood.probit import LinkMoments, log_expected_probit
from fast.methods.svgpc import (
    PriorSearch,
    cond_var_of,
    learn_prior,
    predict_sites,
)
from fast.methods.x_gpc import Prepared, prepare
from fast.one_latent.learning import Learned
from fast.one_latent.predict import ProbitPrediction
from fast.one_latent.prior import FullPrior
from fast.one_latent.site_gradients import full_site_gradients, sparse_site_gradients
from fast.one_latent.sites import Cavity, SitePosterior, cavity, condition, ep_evidence, log_site_scale, match_moments
from fast.one_latent.whitened import SitedPosterior
from fast.solve.site_iteration import SiteSteps, Visit, iterate_sites


@dataclass(frozen=True, kw_only=True, eq=False)
class EPGPCOptions(Iteration, Watched, Damped, Accelerated, Storage):
    """Options of `fit`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EPGPCLearning(EPGPCOptions, PriorSearch):
    """Options of `fit_learning`."""


DEFAULTS = EPGPCOptions()


@dataclass(frozen=True, eq=False)
class EPGPCPosterior(SitedPosterior):
    """q(u) and the sites at the fixed point."""

    prior: Prepared
    sites: SitePosterior
    cavity: Cavity
    link: LinkMoments  # log Z_i and its derivatives
    site_precision: FloatArray  # (n,)
    site_shift: FloatArray  # (n,)
    log_scales: FloatArray  # (n,) log s_i
    latent_var: FloatArray  # (n,) variance of q(f_i), its own site included, noise included
    latent_mean: FloatArray  # (n,)
    log_evidence: float  # log Z_EP, every constant in it: an estimate of the FITC model's log p(y)
    trace: FloatArray  # log Z_EP after each sweep (no bound: it may fall)
    residual: float  # estimated scaled distance of the sites from the fixed point
    converged: bool
    n_improper: int  # cavities that were no distribution and were skipped, over all sweeps


def refresh(
    y_sign: FloatArray, cavities: Cavity, cond_var: FloatArray | float
) -> tuple[LinkMoments, FloatArray, FloatArray]:
    """Tilted moments and the matching sites of some data: (link, site_precision, site_shift).

    Parameters
    ----------
    y_sign : (n,)      -1, +1
    cavities           of the projections t_i
    cond_var : (n,)    variance of f_i given t_i
    """
    link = log_expected_probit(y_sign, cavities.mean, cavities.var + cond_var)
    return link, *match_moments(cavities.mean, cavities.var, link.derivative, link.curvature)


class Sweep(NamedTuple):
    """What all sites want at given sites."""

    sites: SitePosterior
    cavity: Cavity
    link: LinkMoments
    log_scales: FloatArray
    target_precision: FloatArray
    target_shift: FloatArray


@one_thread
def sweep(prior: Prepared, site_precision: FloatArray, site_shift: FloatArray) -> Sweep:
    """One parallel pass: q from all sites, their cavities, scales and updates; an improper cavity's site stays.

    Parameters
    ----------
    prior                                from `prepare`
    site_precision, site_shift : (n,)    tau, nu
    """
    sites = condition(prior, site_precision, site_shift)
    cavities = cavity(sites.proj_mean, sites.proj_var, sites.cavity_ratio, site_precision, site_shift)
    link, new_precision, new_shift = refresh(prior.y_sign, cavities, cond_var_of(prior))
    scales = log_site_scale(link.value, cavities.mean, cavities.var, site_precision, site_shift)
    proper = cavities.proper
    return Sweep(
        sites,
        cavities,
        link,
        scales,
        np.where(proper, new_precision, site_precision),
        np.where(proper, new_shift, site_shift),
    )


@one_thread
def converge(
    prior: Prepared,
    options: EPGPCOptions = DEFAULTS,
    *,
    start: tuple[FloatArray, FloatArray] | None = None,
) -> EPGPCPosterior:
    """What `fit` does once data and prior are prepared.

    Parameters
    ----------
    prior                    from `prepare`
    options                  of `fit`
    start : pair of (n,)     sites to start from; default zero
    """

    def visit(site_precision: FloatArray, site_shift: FloatArray) -> Visit:
        result = sweep(prior, site_precision, site_shift)
        proper = result.cavity.proper
        return Visit(
            site_precision,
            site_shift,
            result.target_precision,
            result.target_shift,
            result.sites.proj_var,
            ep_evidence(result.sites, result.log_scales),
            int(proper.size - np.count_nonzero(proper)),
            result,
        )

    n = prior.y_sign.size
    steps = SiteSteps(
        options.tolerance, options.max_iterations, monotone=False, damping=options.damping,
        accelerate=options.accelerate,
    )  # fmt: skip
    end = iterate_sites(visit, (np.zeros(n), np.zeros(n)) if start is None else start, steps, options.callback)
    last = end.visit
    pair = (last.site_precision, last.site_shift)
    return assemble(prior, last.payload, pair, end.trace, end.residual, end.converged, end.n_improper)


@one_thread
def assemble(
    prior: Prepared,
    sweep: Sweep,
    pair: tuple[FloatArray, FloatArray],
    trace: FloatArray,
    residual: float,
    converged: bool,
    n_improper: int,
) -> EPGPCPosterior:
    """Posterior and log Z_EP from a pass over all sites.

    q(f_i) is the Gaussian with the tilted distribution's moments: the site of datum i saw f_i, not only t_i.

    Parameters
    ----------
    prior           from `prepare`
    sweep           from `sweep`
    pair            the sites (tau, nu) of that pass
    trace, residual, converged, n_improper    how the iteration went
    """
    open_var = sweep.cavity.var + cond_var_of(prior)
    return EPGPCPosterior(
        prior,
        sweep.sites,
        sweep.cavity,
        sweep.link,
        *pair,
        sweep.log_scales,
        open_var + open_var**2 * sweep.link.curvature,
        sweep.cavity.mean + open_var * sweep.link.derivative,
        ep_evidence(sweep.sites, sweep.log_scales),
        trace,
        residual,
        converged,
        n_improper,
    )


@takes_values
def fit(data: Data, prior: Prior, options: EPGPCOptions = DEFAULTS) -> EPGPCPosterior:
    """Parallel EP to its fixed point, hyper-parameters held.

    Sites start at zero. Sites whose cavity is improper stay as they are for that sweep and are counted. A step that
    makes the next one more than twice as large is taken back and halved. Time a sweep 2 n m^2 + m^3/3.

    Parameters
    ----------
    data : Data      labels 0, 1
    prior : Prior    of one latent function
    options          tolerance on the scaled distance of the sites from the fixed point (`fast.solve.site_iteration`);
                     the callback is given a Progress after every sweep

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ is singular
    """
    return converge(prepare(data, prior, options), options)


@Blocks.checks
def predict(posterior: EPGPCPosterior, X_test: Any, *, block_size: int = 4096) -> ProbitPrediction:
    """Latent moments and P(y = 1) = Phi(m / sqrt(1 + v)) at test points. Time O(t m (m + d)), with n for m if full.

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    return predict_sites(posterior.prior, posterior.sites, posterior.site_precision, X_test, block_size=block_size)


@one_thread
def gradients(posterior: EPGPCPosterior) -> Gradients:
    """Gradient of log Z_EP at the fixed point: variance float, lengthscales (d,), noise float, Z (m, d) or None.

    Sites and scales are held (log Z_EP is stationary in them): exact at convergence, else off by the residual.

    Parameters
    ----------
    posterior    from `fit`
    """
    prior, sites = posterior.prior, posterior.sites
    if isinstance(prior, FullPrior):
        return full_site_gradients(prior, sites.factor, sites.weights, posterior.site_precision)
    derivative = posterior.site_shift - posterior.site_precision * sites.proj_mean
    open_precision = -(posterior.link.derivative**2 + posterior.link.curvature)
    return sparse_site_gradients(
        prior, sites.factor, sites.weights, derivative, posterior.site_precision, open_precision
    )


@takes_values
def fit_learning(data: Data, prior: Prior, options: EPGPCLearning) -> tuple[EPGPCPosterior, Learned]:
    """Maximise log Z_EP over parameters of the prior by L-BFGS-B, EP converged at every evaluation.

    Parameters
    ----------
    data : Data      labels 0, 1
    prior : Prior    of one latent function, where the search starts
    options          of `fit` and of the search (`fast.methods.svgpc.learn_prior`); the callback is not called
    """
    run = partial(converge, options=replace(options, callback=None))
    return learn_prior(run, lambda posterior: (posterior.log_evidence, gradients(posterior)), data, prior, options)
