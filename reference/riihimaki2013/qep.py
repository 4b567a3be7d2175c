"""Sections 3.3 and 5.1: the two variants of EP whose tilted moments come from quadrature."""

import numpy as np
from numpy.typing import NDArray

from reference.common._product import check_nodes
from reference.common.algebra import eigenvalues, inverted, solution
from reference.common.errors import NotPositiveDefiniteError
from reference.common.options import Options
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
    ep_posterior,
    follow_site,
    independent_m_matrix,
    m_matrix,
    marginals,
    posterior_m_matrix,
    training_marginals,
)
from reference.riihimaki2013.prediction import predict_latent_covariance, predict_latent_mean
from reference.riihimaki2013.quadrature_ep import (
    cavity_covariance_g,
    diagonal_lambda,
    lambda_from_moments,
    qiep_tilted_moments,
    quadrature_site,
    tilted_moments_quadrature,
    xi_from_moments,
)
from reference.riihimaki2013.sites import Moments, Site, difference_matrix, site_precision

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

# relative to the cavity's variances: how far below zero a site precision may come from rounding alone, and how small a
# tilted variance may be: a rule with one node where the likelihood is leaves nothing but rounding, and a site whose
# precision is its reciprocal leaves posterior variances that are differences of equal numbers
ROUNDING = 1e-9


def qep(y: Labels, K: Array, options: Options) -> EPFit:
    """Full EP by (c-1)-dimensional product rules: section 3.3 of riihimaki2013; the sites Λ and ξ are damped.

    Of a diagonal Λ the posterior is that of appendix B with Λ in the place of T̃; of a full one the appendix has none,
    and it is (4).

    Parameters
    ----------
    y : (n,)                  labels
    K : (cn, cn)              prior covariance, class-major
    options : Options         of qep
    """
    n, c = len(y), len(K) // len(y)
    check_nodes(options.nodes, c - 1)
    diagonal = options.lambda_ == "diagonal"
    # fmt: off
    Lambda, xi = np.zeros((n, c - 1, c - 1)), np.zeros((n, c - 1))                            # t̃_i = 1
    sites = [quadrature_site(Lambda[i], xi[i], y[i]) for i in range(n)]
    q, record = Posterior(np.zeros(len(K)), K, 0.0), Record(options)

    def evidence() -> Evidence:
        cavities = [proper_cavity(*marginal(q, i, n), sites[i]) for i in range(n)]            # 3.1
        return evidence_of(q, nu, cavities, lambda i, without: _log_norm(                     # 3.3, (28)
            without, difference_matrix(c, y[i]), options.nodes))

    while not record.ended:
        for i in range(n):
            B = difference_matrix(c, y[i])                                                    # below (9)
            without = proper_cavity(*marginal(q, i, n), sites[i])                             # 3.1
            if without is None:
                record.left()
                continue
            mean_g, cov_g = B.T @ without.mean, cavity_covariance_g(without.cov, B)           # below (19)
            hat = tilted_moments_quadrature(mean_g, cov_g, options.nodes)                     # 3.3
            if hat.norm <= 0.0 or _least(hat.cov, cov_g) <= ROUNDING:
                record.left()
                continue
            full = lambda_from_moments(hat.cov, without.cov, B)                               # (19)
            full_xi = xi_from_moments(hat.mean, hat.cov, *without, B, diagonal)               # (21)
            kept = _kept(full, cov_g, diagonal)                                               # 3.3
            if kept is None:
                record.left()
                continue
            d_Lambda, d_xi = kept - Lambda[i], full_xi - xi[i]
            record.step(_step(d_Lambda, d_xi, mean_g, cov_g, Lambda[i], xi[i]))
            Lambda[i], xi[i] = Lambda[i] + options.damping * d_Lambda, xi[i] + options.damping * d_xi
            old, sites[i] = sites[i], quadrature_site(Lambda[i], xi[i], y[i])                 # 3.3
            if options.schedule == "sequential":
                q = follow_site(q, i, old, sites[i])                                          # 3.1
        nu = np.stack([site.location for site in sites])
        if diagonal:
            pi = np.stack([site_precision(np.diag(Lambda[i]), y[i]).pi for i in range(n)])    # (12)
            M = posterior_m_matrix(pi, K)                                                     # B
            q = Posterior(predict_latent_mean(K, nu.T.ravel(), M, K),                         # (26)
                          predict_latent_covariance(K, K, M),                                 # (27)
                          ep_log_determinant(pi, K))                                          # B
        else:
            T = np.stack([site.precision for site in sites])
            M, q = m_matrix(K, T), ep_posterior(K, T, nu)                                     # (4)
        record.swept(evidence)
    latent = (training_marginals(K, nu.T.ravel(), M, n) if diagonal                           # B
              else marginals(q.mean, q.cov, n))
    # fmt: on
    return ended(record, sites, q, latent, evidence(), {"lambda_tilde": Lambda, "xi": xi}, M, not diagonal or c == 2)


def qiep(y: Labels, K: Array, options: Options) -> EPFit:
    """EP for independent classes by one- and two-dimensional rules: section 5.1 of riihimaki2013; τ and ν are damped.

    Parameters
    ----------
    y : (n,)                  labels
    K : (cn, cn)              prior covariance, class-major
    options : Options         of qiep
    """
    n, c = len(y), len(K) // len(y)
    check_nodes(options.nodes, 2)
    # fmt: off
    tau, nu = np.zeros((2, n, c))                                                             # t̃_i = 1
    q, record = Posterior(np.zeros(len(K)), K, 0.0), Record(options)

    def evidence() -> Evidence:
        cavities = [independent_cavity(*marginal(q, i, n), tau[i], nu[i]) for i in range(n)]  # 3.1
        return evidence_of(q, nu, cavities, lambda i, without: _log(qiep_tilted_moments(      # 5.1, (28)
            without.mean, np.diag(without.cov), y[i], options.nodes).norm))

    while not record.ended:
        for i in range(n):
            mean, cov = marginal(q, i, n)
            without = independent_cavity(mean, cov, tau[i], nu[i])                            # 3.1
            if without is None:
                record.left()
                continue
            var = np.diag(without.cov)
            hat = qiep_tilted_moments(without.mean, var, y[i], options.nodes)                 # 5.1
            if hat.norm <= 0.0 or np.any(hat.cov <= ROUNDING * var):
                record.left()
                continue
            full, full_nu = 1.0 / hat.cov - 1.0 / var, hat.mean / hat.cov - without.mean / var
            if np.any(full * var < -ROUNDING):
                record.left()
                continue
            d_tau, d_nu = np.maximum(full, 0.0) - tau[i], full_nu - nu[i]
            record.step(largest_step(d_tau, d_nu, mean, np.diag(cov)))
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
    return ended(record, sites, q, latent, evidence(), {}, M)


def _kept(Lambda: Array, cov_g: Array, diagonal: bool) -> Array | None:
    """Λ as a site may have it, its diagonal alone or symmetric; None if it is negative beyond rounding."""
    if diagonal:
        kept = diagonal_lambda(Lambda)
        return None if np.any(kept * np.diag(cov_g) < -ROUNDING) else np.diag(np.maximum(kept, 0.0))
    Lambda = 0.5 * (Lambda + Lambda.T)
    return None if _least(Lambda, np.diag(1.0 / np.diag(cov_g))) < -ROUNDING else Lambda


def _least(matrix: Array, unit: Array) -> float:
    """The smallest eigenvalue where each coordinate is measured by the root of the diagonal of unit."""
    scale = 1.0 / np.sqrt(np.diag(unit))
    return float(eigenvalues(scale[:, None] * matrix * scale, "a matrix in units of Σ_g")[0])


def _step(d_Lambda: Array, d_xi: Array, mean_g: Array, cov_g: Array, Lambda: Array, xi: Array) -> float:
    """Size of an undamped step, each g_j with mean 0 and variance 1 under cavity times site, (Σ_g⁻¹ + Λ)⁻¹."""
    cov = inverted(inverted(cov_g, "Σ_g") + Lambda, "Σ_g⁻¹ + Λ")
    mean = cov @ (solution(cov_g, mean_g, "Σ_g") + xi)
    return largest_step(np.diag(d_Lambda), d_xi, mean, np.diag(cov))


def _log_norm(without: Moments, B: Array, nodes: int) -> float:
    """log Ẑ of the rule over g."""
    cov_g = cavity_covariance_g(without.cov, B)
    return _log(tilted_moments_quadrature(B.T @ without.mean, cov_g, nodes).norm)


def _log(norm: float) -> float:
    """log Ẑ; a rule that misses all mass is a failure of the method and has no evidence."""
    if norm <= 0.0:
        raise NotPositiveDefiniteError(f"tilted normaliser: found {norm:.3g}, expected > 0; raise nodes")
    return float(np.log(norm))
