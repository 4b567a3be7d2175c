"""Sections 3.1 and 3.2: nested EP, and its twin with independent classes; appendix A inside, appendix B around."""

import numpy as np
from numpy.typing import NDArray

from reference.common.options import Options
from reference.riihimaki2013.inner_ep import inner_ep, inner_log_normaliser, inner_posterior
from reference.riihimaki2013.outer import (
    EPFit,
    Evidence,
    Record,
    ended,
    evidence_of,
    independent_cavity,
    largest_step,
    marginal,
    proper_cavity,
)
from reference.riihimaki2013.posterior import (
    Posterior,
    class_blocks,
    ep_log_determinant,
    follow_site,
    independent_m_matrix,
    posterior_m_matrix,
    training_marginals,
)
from reference.riihimaki2013.prediction import predict_latent_covariance, predict_latent_mean
from reference.riihimaki2013.sites import (
    Augmented,
    Site,
    augmented_tilted,
    damp_inner_sites,
    iep_site_update,
    match_moments,
    outer_site,
    site_precision,
    tilted_covariance_augmented,
    tilted_mean_augmented,
)

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def nested_ep(y: Labels, K: Array, options: Options) -> EPFit:
    """Nested EP: section 3.1 of riihimaki2013, with the inner sites α̃, β̃ damped as section 3.2.3 says.

    Parameters
    ----------
    y : (n,)                  labels
    K : (cn, cn)              prior covariance, class-major
    options : Options         of nested-ep
    """
    n, c = len(y), len(K) // len(y)
    # fmt: off
    alpha, beta = np.zeros((2, n, c - 1))                                                     # t̃_i = 1
    sites = [outer_site(alpha[i], beta[i], y[i]) for i in range(n)]
    q, record = Posterior(np.zeros(len(K)), K, 0.0), Record(options)

    def evidence() -> Evidence:
        cavities = [proper_cavity(*marginal(q, i, n), sites[i]) for i in range(n)]            # 3.1
        return evidence_of(q, nu, cavities, lambda i, without: inner_log_normaliser(          # A, (28)
            augmented_tilted(*without, y[i]), alpha[i], beta[i]))

    while not record.ended:
        for i in range(n):
            without = proper_cavity(*marginal(q, i, n), sites[i])                             # 3.1
            if without is None:
                record.left()
                continue
            hat = inner_ep(*without, y[i], alpha[i], beta[i], options=options)                # 3.2.1, A
            record.step(inner_step(augmented_tilted(*without, y[i]), alpha[i], beta[i], hat.alpha, hat.beta))
            alpha[i], beta[i] = damp_inner_sites(                                             # 3.2.3
                alpha[i], beta[i], hat.alpha, hat.beta, options.damping)
            old, sites[i] = sites[i], outer_site(alpha[i], beta[i], y[i])                     # (12), (15)
            if options.schedule == "sequential":
                q = follow_site(q, i, old, sites[i])                                          # 3.1
        nu = np.stack([site.location for site in sites])
        pi = np.stack([site_precision(alpha[i], y[i]).pi for i in range(n)])                  # (12)
        M = posterior_m_matrix(pi, K)                                                         # B
        q = Posterior(predict_latent_mean(K, nu.T.ravel(), M, K),                             # (26)
                      predict_latent_covariance(K, K, M),                                     # (27)
                      ep_log_determinant(pi, K))                                              # B
        record.swept(evidence)
    latent = training_marginals(K, nu.T.ravel(), M, n)                                        # B
    # fmt: on
    fit = ended(record, sites, q, latent, evidence(), {"alpha_tilde": alpha, "beta_tilde": beta}, M)
    return fit._replace(moment_gap=_moment_gap(fit, y))


def nested_iep(y: Labels, K: Array, options: Options) -> EPFit:
    """Nested EP for independent classes: end of section 3.2.2 of riihimaki2013; τ and ν are damped, α̃ and β̃ kept.

    Parameters
    ----------
    y : (n,)                  labels
    K : (cn, cn)              prior covariance, class-major
    options : Options         of nested-iep
    """
    n, c = len(y), len(K) // len(y)
    # fmt: off
    tau, nu = np.zeros((2, n, c))                                                             # t̃_i = 1
    alpha, beta = np.zeros((2, n, c - 1))
    q, record = Posterior(np.zeros(len(K)), K, 0.0), Record(options)

    def evidence() -> Evidence:
        cavities = [independent_cavity(*marginal(q, i, n), tau[i], nu[i]) for i in range(n)]  # 3.1
        return evidence_of(q, nu, cavities, lambda i, without: inner_log_normaliser(          # A, (28)
            augmented_tilted(*without, y[i]), alpha[i], beta[i]))

    while not record.ended:
        for i in range(n):
            mean, cov = marginal(q, i, n)
            without = independent_cavity(mean, cov, tau[i], nu[i])                            # 3.1
            if without is None:
                record.left()
                continue
            hat = inner_ep(*without, y[i], alpha[i], beta[i], options=options)                # 3.2.1, A
            full = iep_site_update(hat.mean[:-1], hat.cov[:-1, :-1], *without)                # 3.2.2
            d_tau, d_nu = np.maximum(full.precision, 0.0) - tau[i], full.location - nu[i]
            step = largest_step(d_tau, d_nu, mean, np.diag(cov))
            if options.inner == "incremental":
                w = augmented_tilted(*without, y[i])                                          # (7)
                step = max(step, inner_step(w, alpha[i], beta[i], hat.alpha, hat.beta))
            record.step(step)
            alpha[i], beta[i] = hat.alpha, hat.beta                                           # 3.2.3
            old = Site(np.diag(tau[i]), nu[i].copy())
            tau[i], nu[i] = tau[i] + options.damping * d_tau, nu[i] + options.damping * d_nu  # 3.1
            if options.schedule == "sequential":
                q = follow_site(q, i, old, Site(np.diag(tau[i]), nu[i]))                      # 3.1
        blocks, log_det = class_blocks(tau, K)                                                # B, T = D
        M = independent_m_matrix(blocks)
        q = Posterior(predict_latent_mean(K, nu.T.ravel(), M, K),                             # (26)
                      predict_latent_covariance(K, K, M), log_det)                            # (27)
        record.swept(evidence)
    latent = training_marginals(K, nu.T.ravel(), M, n)                                        # B
    # fmt: on
    sites = [Site(np.diag(each), location) for each, location in zip(tau, nu, strict=True)]
    return ended(record, sites, q, latent, evidence(), {"alpha_tilde": alpha, "beta_tilde": beta}, M)


def inner_step(w: Augmented, alpha: Array, beta: Array, alpha_proposed: Array, beta_proposed: Array) -> float:
    """The largest change of the scalar sites, each where its g_j has mean 0 and variance 1 under q̂(w).

    Parameters
    ----------
    w : Augmented                     cavity of w
    alpha, beta : (c-1,)              present inner sites
    alpha_proposed, beta_proposed : (c-1,)    what a full step would make of them
    """
    q = inner_posterior(w.mu_w, w.Sigma_w, w.B_tilde, alpha, beta)
    var = np.sum(w.B_tilde * (q.cov @ w.B_tilde), axis=0)
    return largest_step(alpha_proposed - alpha, beta_proposed - beta, w.B_tilde.T @ q.mean, var)


def _moment_gap(fit: EPFit, y: Labels) -> float | None:
    """How far (12) and (15) are from matching the moments (9), (13), section 3.1; None if a cavity is none.

    Largest change of a site in units of the tilted distribution, as section 3.2.2 says zero but for rounding.
    """
    gaps = []
    for i, y_i in enumerate(y):
        site = Site(fit.site_precision[i], fit.site_location[i])
        alpha, beta = fit.local["alpha_tilde"][i], fit.local["beta_tilde"][i]
        # fmt: off
        without = proper_cavity(fit.latent_mean[i], fit.latent_cov[i], site)                  # 3.1
        if without is None:
            return None
        w = augmented_tilted(*without, y_i)                                                   # (7)
        cov = tilted_covariance_augmented(w.Sigma_w, w.B_tilde, alpha)                        # (9)
        mean = tilted_mean_augmented(w.mu_w, w.Sigma_w, w.B_tilde, alpha, beta)               # (13)
        matched = match_moments(mean, cov, *without)                                          # 3.1
        # fmt: on
        sd = np.sqrt(np.diag(cov))
        gaps.append(float(np.max(np.abs(sd[:, None] * (matched.precision - site.precision) * sd))))
        gaps.append(float(np.max(np.abs(sd * (matched.location - site.location)))))
    return max(gaps)
