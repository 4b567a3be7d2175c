"""Appendix A: moments of the tilted distribution by expectation propagation on its probit factors."""

from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.algebra import solution
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.riihimaki2013._phi import log_phi, mills
from reference.riihimaki2013.sites import CAVITY, Augmented, Moments, augmented_tilted

Array = NDArray[np.float64]

CHANGE, LIMIT = 1e-12, 1000  # of a sweep at which the inner run ends; sweeps after which it gives up and says so


class Scalar(NamedTuple):
    """Mean and variance of one g_j."""

    mean: float
    var: float


class ScalarTilted(NamedTuple):
    """Logarithm of the normaliser, mean and variance of one scalar tilted distribution."""

    log_norm: float
    mean: float
    var: float


class Inner(NamedTuple):
    """What the inner algorithm returned."""

    alpha: Array  # (c-1,)
    beta: Array  # (c-1,)
    mean: Array  # (c+1,) of w
    cov: Array  # (c+1, c+1)
    change: float  # of the last sweep, summed over the sites
    converged: bool
    n_improper: int


@equation("riihimaki2013", "8")
def inner_posterior(mu_w: Array, Sigma_w: Array, B_tilde: Array, alpha: Array, beta: Array) -> Moments:
    """q̂(w) ∝ N(w|μ_w, Σ_w) Π_j N(w'b̃_j|α_j⁻¹β_j, α_j⁻¹): (8) of riihimaki2013, for α_j >= 0.

    Covariance (Σ_w⁻¹ + B̃T̃B̃')⁻¹ and mean covariance·(Σ_w⁻¹μ_w + B̃β), by the matrix inversion lemma with the square
    root of T̃, so that α_j = 0 and a nearly singular Σ_w are nothing special.

    Parameters
    ----------
    mu_w : (c+1,)             mean of w under the cavity
    Sigma_w : (c+1, c+1)      its covariance
    B_tilde : (c+1, c-1)      columns b̃_j
    alpha : (c-1,)            α̃_i
    beta : (c-1,)             β̃_i
    """
    S = B_tilde * np.sqrt(alpha)
    SS = Sigma_w @ S
    inner = np.eye(len(alpha)) + S.T @ SS
    cov = Sigma_w - SS @ solution(inner, SS.T, "inner")
    cov = 0.5 * (cov + cov.T)
    return Moments(mu_w - SS @ solution(inner, S.T @ mu_w, "inner") + cov @ B_tilde @ beta, cov)


@equation("riihimaki2013", "A-step1")
def inner_cavity(marginal_mean: float, marginal_var: float, alpha: float, beta: float) -> Scalar:
    """v_- = (v⁻¹ - α)⁻¹, m_- = v_-(v⁻¹m - β): step 1 of appendix A of riihimaki2013.

    Parameters
    ----------
    marginal_mean : float     m_j = b̃'μ_q
    marginal_var : float      v_j = b̃'Σ_q b̃
    alpha : float             α̃_j
    beta : float              β̃_j

    Returns
    -------
    Scalar                    mean m_-, var v_-; a variance that is not positive is not a distribution
    """
    var = 1.0 / (1.0 / marginal_var - alpha) if marginal_var * alpha != 1.0 else np.inf
    return Scalar(var * (marginal_mean / marginal_var - beta), var)


@equation("riihimaki2013", "A-step2")
def inner_tilted_moments(cavity_mean: float, cavity_var: float) -> ScalarTilted:
    """Moments of N(g|m_-, v_-)Φ(g): step 2 of appendix A of riihimaki2013.

        Ẑ = Φ(z),  m̂ = m_- + ρ v_-,  v̂ = v_- - v_-²γ
        z = m_-/√(1 + v_-),  ρ = r(z)/√(1 + v_-),  γ = ρ² + zρ/√(1 + v_-) = r(z)(z + r(z))/(1 + v_-),  r = φ/Φ

    Parameters
    ----------
    cavity_mean : float       m_-
    cavity_var : float        v_-

    Returns
    -------
    ScalarTilted              log Ẑ, m̂, v̂
    """
    root = sqrt(1.0 + cavity_var)
    z = cavity_mean / root
    ratio, gap = mills(z)
    rho, gamma = ratio / root, ratio * gap / (1.0 + cavity_var)
    return ScalarTilted(log_phi(z), cavity_mean + rho * cavity_var, cavity_var - cavity_var**2 * gamma)


@equation("riihimaki2013", "A-step3")
def inner_site_change(
    tilted_mean: float, tilted_var: float, marginal_mean: float, marginal_var: float, damping: float
) -> tuple[float, float]:
    """Δα = δ(v̂⁻¹ - v⁻¹), Δβ = δ(v̂⁻¹m̂ - v⁻¹m): step 3 of appendix A of riihimaki2013.

    Parameters
    ----------
    tilted_mean : float       m̂_j
    tilted_var : float        v̂_j
    marginal_mean : float     m_j
    marginal_var : float      v_j
    damping : float           δ in (0, 1], 1 = undamped
    """
    return (
        damping * (1.0 / tilted_var - 1.0 / marginal_var),
        damping * (tilted_mean / tilted_var - marginal_mean / marginal_var),
    )


@equation("riihimaki2013", "A-step4")
def inner_rank_one_update(mean: Array, cov: Array, b_tilde: Array, alpha_change: float, beta_change: float) -> Moments:
    """Σ - φ(1 + Δα v)⁻¹Δα φ' and μ + φ(1 + Δα v)⁻¹(Δβ - Δα m), φ = Σb̃: step 4 of appendix A of riihimaki2013.

    Parameters
    ----------
    mean : (c+1,)             of q̂(w)
    cov : (c+1, c+1)          of q̂(w)
    b_tilde : (c+1,)          b̃_j
    alpha_change : float      Δα̃_j
    beta_change : float       Δβ̃_j
    """
    phi = cov @ b_tilde
    v, m = float(b_tilde @ phi), float(b_tilde @ mean)
    shrink = 1.0 / (1.0 + alpha_change * v)
    return Moments(
        mean + phi * (shrink * (beta_change - alpha_change * m)),
        cov - (shrink * alpha_change) * np.outer(phi, phi),
    )


@equation("riihimaki2013", "A-parallel")
def inner_parallel_update(mu_w: Array, Sigma_w: Array, B_tilde: Array, alpha: Array, beta: Array) -> Moments:
    """One refresh of q̂(w) after a sweep over all j, in place of the rank-one updates: appendix A of riihimaki2013.

    Parameters
    ----------
    mu_w : (c+1,)             mean of w under the cavity
    Sigma_w : (c+1, c+1)      its covariance
    B_tilde : (c+1, c-1)      columns b̃_j
    alpha : (c-1,)            α̃_i
    beta : (c-1,)             β̃_i
    """
    return inner_posterior(mu_w, Sigma_w, B_tilde, alpha, beta)


@equation("riihimaki2013", "A-logz")
def inner_log_normaliser(w: Augmented, alpha: Array, beta: Array) -> float:
    """log Z_q̂ of appendix A of riihimaki2013, with every constant.

        ½μ_q'Σ_q⁻¹μ_q + ½log|Σ_q| - ½μ_w'Σ_w⁻¹μ_w - ½log|Σ_w| + Σ_j log Ẑ_j
        + ½Σ_j (m_-²/v_- + log v_-) - ½Σ_j (m²/v + log v)

    Parameters
    ----------
    w : Augmented             cavity of w, and the directions b̃_j
    alpha : (c-1,)            α̃_i
    beta : (c-1,)             β̃_i

    Raises
    ------
    NotPositiveDefiniteError  if the cavity of w is singular
    """
    q = inner_posterior(w.mu_w, w.Sigma_w, w.B_tilde, alpha, beta)
    after = factorise(q.cov, "covariance of w", CAVITY)
    before = factorise(w.Sigma_w, "cavity covariance of w", CAVITY)
    total = 0.5 * (q.mean @ after.inverse @ q.mean + after.log_det)
    total -= 0.5 * (w.mu_w @ before.inverse @ w.mu_w + before.log_det)
    for j, b in enumerate(w.B_tilde.T):
        m, v = float(b @ q.mean), float(b @ q.cov @ b)
        without = inner_cavity(m, v, float(alpha[j]), float(beta[j]))
        total += inner_tilted_moments(without.mean, without.var).log_norm
        total += 0.5 * (without.mean**2 / without.var + np.log(without.var)) - 0.5 * (m**2 / v + np.log(v))
    return float(total)


@takes("nested-ep")
def inner_ep(cavity_mean: Array, cavity_cov: Array, y_i: int, alpha: Array, beta: Array, *, options: Options) -> Inner:
    """The algorithm of appendix A of riihimaki2013: steps 1 to 4 for j ascending, until nothing moves.

    A change of a site is measured in the coordinate in which g_j has mean 0 and variance 1 under q̂:
    |Δα|v and |Δβ - Δα m|√v, whichever is larger; a sweep's change is the sum over j.

    Parameters
    ----------
    cavity_mean : (c,)        μ_{-i}
    cavity_cov : (c, c)       Σ_{-i}
    y_i : int                 label
    alpha : (c-1,)            start, zeros or the values of an earlier run
    beta : (c-1,)             start
    options : Options         inner "converged": sweeps until one changes less than CHANGE, LIMIT at most;
                              "incremental": one sweep. inner_schedule "sequential": q̂ refreshed after each j;
                              "parallel": after each sweep. inner_damping: δ of step 3

    Notes
    -----
    A damped step leaves at least 1 - 2δ of the way where the undamped one converges. With a δ so small that
    LIMIT of them leave half of it, the run gives up after its first sweep.
    """
    one_sweep, in_turn, damping = (
        options.inner == "incremental",
        options.inner_schedule == "sequential",
        options.inner_damping,
    )
    w = augmented_tilted(cavity_mean, cavity_cov, y_i)
    # fmt: off
    alpha, beta = alpha.copy(), beta.copy()
    mean, cov = inner_posterior(w.mu_w, w.Sigma_w, w.B_tilde, alpha, beta)                    # (8)
    n_improper = 0
    for _ in range(1 if one_sweep else LIMIT):
        change, skipped = 0.0, 0
        for j, b in enumerate(w.B_tilde.T):
            m, v = float(b @ mean), float(b @ cov @ b)
            without = inner_cavity(m, v, float(alpha[j]), float(beta[j]))                     # step 1
            if not 0.0 < without.var < np.inf:
                skipped += 1
                continue
            hat = inner_tilted_moments(without.mean, without.var)                             # step 2
            d_alpha, d_beta = inner_site_change(hat.mean, hat.var, m, v, damping)             # step 3
            if alpha[j] + d_alpha < 0.0:  # a rounding error: Φ is log-concave
                d_alpha = -float(alpha[j])
            alpha[j] += d_alpha
            beta[j] += d_beta
            change += change_of_site(d_alpha, d_beta, m, v)
            if in_turn:
                mean, cov = inner_rank_one_update(mean, cov, b, d_alpha, d_beta)              # step 4
        if not in_turn:
            mean, cov = inner_parallel_update(w.mu_w, w.Sigma_w, w.B_tilde, alpha, beta)      # A, last paragraph
        n_improper += skipped
        if change <= CHANGE and skipped == 0:
            return Inner(alpha, beta, mean, cov, change, True, n_improper)
        if (1.0 - min(2.0 * damping, 1.0)) ** LIMIT > 0.5:
            break
    return Inner(alpha, beta, mean, cov, change, one_sweep, n_improper)
    # fmt: on


def change_of_site(alpha_change: float, beta_change: float, marginal_mean: float, marginal_var: float) -> float:
    """Size of a change of exp(-½αg² + βg) where g has mean 0 and variance 1.

    Parameters
    ----------
    alpha_change : float      Δα
    beta_change : float       Δβ
    marginal_mean : float     m of g
    marginal_var : float      v of g
    """
    return max(
        abs(alpha_change) * marginal_var,
        abs(beta_change - alpha_change * marginal_mean) * sqrt(marginal_var),
    )


@equation("riihimaki2013", "u3.2.3-incremental")
def incremental_inner_update(
    cavity_mean: Array, cavity_cov: Array, y_i: int, alpha: Array, beta: Array, inner_schedule: str = "sequential"
) -> tuple[Array, Array]:
    """One sweep of the inner algorithm from the values of the previous run: section 3.2.3 of riihimaki2013.

    Parameters
    ----------
    cavity_mean : (c,)        μ_{-i}
    cavity_cov : (c, c)       Σ_{-i}
    y_i : int                 label
    alpha : (c-1,)            α̃_i of the previous outer iteration
    beta : (c-1,)             β̃_i of the previous outer iteration
    inner_schedule : str      "sequential" or "parallel"
    """
    swept = inner_ep(cavity_mean, cavity_cov, y_i, alpha, beta, inner="incremental", inner_schedule=inner_schedule)
    return swept.alpha, swept.beta
