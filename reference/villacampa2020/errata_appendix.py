"""Misprints of section 3.1 and appendix A of villacampa2020 as runnable code; the reasons are in the ledger."""

import numpy as np
from numpy.typing import NDArray

from reference.common._gaussians import Gaussians, natural_parameters
from reference.common.ledger import equation
from reference.villacampa2020.evidence import gaussian_log_normaliser
from reference.villacampa2020.posterior import Site

Array = NDArray[np.float64]


@equation("villacampa2020", "A.1", as_printed=True)
def approximate_factor_as_printed(log_norm: float, precision: Array, shift: Array, inducing_values: Array) -> float:
    """φ̃_i(f̄) = Z̃_i Π_k exp{-½ f̄_kᵀ Ṽ f̄_k + f̄_kᵀ m̃}: (A.1) of villacampa2020 as printed.

    Parameters
    ----------
    log_norm : float          log Z̃_i of (8)
    precision : (C, m, m)     Ṽ_i
    shift : (C, m)            m̃_i
    inducing_values : (C, m)  f̄
    """
    u = inducing_values
    return float(np.exp(log_norm - 0.5 * np.einsum("km,kml,kl->", u, precision, u) + np.sum(u * shift)))


@equation("villacampa2020", "A.9", as_printed=True)
def power_cavity_mean_as_printed(
    inducing_mean: Array, inducing_cov: Array, cavity_cov: Array, c2: float, upsilon: Array
) -> Array:
    r"""m\ = V\ (V⁻¹ m - C² υ), a vector (m,): second line of (A.9) of villacampa2020 as printed.

    Parameters
    ----------
    inducing_mean : (m,)      m
    inducing_cov : (m, m)     V
    cavity_cov : (m, m)       V\
    c2 : float                C²
    upsilon : (m,)            υ_i of the class
    """
    return cavity_cov @ (np.linalg.solve(inducing_cov, inducing_mean) - c2 * upsilon)


@equation("villacampa2020", "A.11", as_printed=True)
def cavity_latent_variance_as_printed(k_xx: float, upsilon: Array, K_ZZ: Array, cavity_cov: Array) -> float:
    r"""κ - υᵀ K⁻¹ υ + υᵀ V\ υ: (A.11) of villacampa2020 as printed.

    Parameters
    ----------
    k_xx : float              κ
    upsilon : (m,)            υ_i of the class
    K_ZZ : (m, m)             K
    cavity_cov : (m, m)       V\
    """
    return float(k_xx - upsilon @ np.linalg.inv(K_ZZ) @ upsilon + upsilon @ cavity_cov @ upsilon)


@equation("villacampa2020", "A.19", as_printed=True)
def factor_linear_as_printed(d_mean: float, c1: float, upsilon: Array, cavity_mean: Array, cavity_cov: Array) -> Array:
    r"""[g + C¹ υᵀm\ + g C¹ υᵀV\υ] υ, C¹ of (A.17), a vector (m,): last line of (A.19) of villacampa2020 as printed.

    Parameters
    ----------
    d_mean : float            g
    c1 : float                C¹
    upsilon : (m,)            υ_i of the class
    cavity_mean : (m,)        m\
    cavity_cov : (m, m)       V\
    """
    return (d_mean + c1 * (upsilon @ cavity_mean) + d_mean * c1 * (upsilon @ cavity_cov @ upsilon)) * upsilon


@equation("villacampa2020", "A.20", as_printed=True)
def update_c2_as_printed(
    d_mean: float, c1: float, upsilon: Array, cavity_mean: Array, cavity_cov: Array, alpha: float
) -> float:
    r"""C² = (1/α) [g + C¹ υᵀm\ + g C¹ υᵀV\υ], C¹ of (A.17): (A.20) of villacampa2020 as printed.

    Parameters
    ----------
    d_mean : float            g
    c1 : float                C¹
    upsilon : (m,)            υ_i of the class
    cavity_mean : (m,)        m\
    cavity_cov : (m, m)       V\
    alpha : float             α
    """
    bracket = d_mean + c1 * (upsilon @ cavity_mean) + d_mean * c1 * (upsilon @ cavity_cov @ upsilon)
    return float(bracket / alpha)


@equation("villacampa2020", "A.22", "A.24", as_printed=True)
def site_log_normaliser_as_printed(log_ratio: float, log_normaliser_cavity: float, log_normaliser: float) -> float:
    r"""log E_q[(p/φ̃_i)^α] + g(θ\) - g(θ): right-hand sides of (A.22) and (A.24) of villacampa2020 as printed.

    Parameters
    ----------
    log_ratio : float               log E_q[(p/φ̃_i)^α]
    log_normaliser_cavity : float   g(θ\)
    log_normaliser : float          g(θ)
    """
    return log_ratio + log_normaliser_cavity - log_normaliser


@equation("villacampa2020", "A.26", as_printed=True)
def pep_log_evidence_from_moments_as_printed(posterior: Gaussians, K_ZZ: Array, log_norm: Array, alpha: float) -> float:
    """Σ_k {½ log|V_k| + ½ m_kᵀV_k⁻¹m_k - ½ |K_k|} + (1/α) Σ_i log Z̃_i: (A.26) of villacampa2020 as printed.

    Parameters
    ----------
    posterior : Gaussians     m (C, m) and V (C, m, m)
    K_ZZ : (C, m, m)          K_k
    log_norm : (n,)           log Z̃_i
    alpha : float             α
    """
    total = float(np.sum(log_norm)) / alpha
    for m, V, K in zip(posterior.mean, posterior.cov, K_ZZ, strict=True):
        total += 0.5 * float(np.linalg.slogdet(V)[1] + m @ np.linalg.solve(V, m) - np.linalg.det(K))
    return total


@equation("villacampa2020", "A.27", as_printed=True)
def site_log_normaliser_from_moments_as_printed(log_ratio: float, cavity_mean: Array, cavity_cov: Array) -> float:
    r"""log E_q[(p/φ̃)^α] + ½ log|V\| + ½ m\ᵀV\⁻¹m\ - ½ log|V\| - ½ m\ᵀV\⁻¹m\, exact by two errors: (A.27) as printed.

    The terms cancel and leave (8) of villacampa2020. It is not (A.24) by (A.25), which it is introduced as.

    Parameters
    ----------
    log_ratio : float         what (A.27) has for the expectation; printed is log E_q[(p/φ̃_i)^α]
    cavity_mean : (m,)        m\ of the label's class
    cavity_cov : (m, m)       V\ of the label's class
    """
    whitened = 0.5 * float(np.linalg.slogdet(cavity_cov)[1] + cavity_mean @ np.linalg.solve(cavity_cov, cavity_mean))
    return log_ratio + whitened - whitened


@equation("villacampa2020", "u30-efficient-scale", as_printed=True)
def cavity_as_printed(posterior: Gaussians, precision: Array, shift: Array) -> Gaussians:
    r"""V\ = (V⁻¹ - Ṽ)⁻¹ and m\ = V\(V⁻¹m - m̃) of every class: below (A.27) of villacampa2020 as printed.

    Parameters
    ----------
    posterior : Gaussians     m (C, m) and V (C, m, m)
    precision : (C, m, m)     Ṽ_i
    shift : (C, m)            m̃_i
    """
    inverse = np.linalg.inv(posterior.cov)
    cov = np.asarray(np.linalg.inv(inverse - precision))
    natural = np.einsum("kml,kl->km", inverse, posterior.mean) - shift
    return Gaussians(np.einsum("kml,kl->km", cov, natural), cov)


@equation("villacampa2020", "A.28", as_printed=True)
def pep_log_evidence_gradient_as_printed(
    prior_part: float, derivatives: Array, cavity_parts: Array, alpha: float
) -> float:
    r"""(η - η_prior)ᵀ∂θ_prior + (1/α) Σ_i {∂ log E_i/∂ξ + (η\ - η)ᵀ∂θ_prior}: (A.28) as printed, brackets put in.

    E_i is the expectation that villacampa2020 prints, that of (p/φ̃_i)^α under q.

    Parameters
    ----------
    prior_part : float        (η - η_prior)ᵀ∂θ_prior
    derivatives : (n,)        ∂ log E_i/∂ξ
    cavity_parts : (n,)       (η\ - η)ᵀ∂θ_prior of every datum
    alpha : float             α
    """
    return prior_part + float(np.sum(derivatives) + np.sum(cavity_parts)) / alpha


@equation("villacampa2020", "u18-pep-update", as_printed=True)
def pep_update_as_printed(new: Gaussians, cavity: Gaussians, alpha: float) -> Site:
    r"""φ̃_i = (q_new/q\)^{1/α} with its scale, without Z_i: step four in section 3.1 of villacampa2020 as printed.

    Parameters
    ----------
    new : Gaussians           moments of q_new
    cavity : Gaussians        moments of q\
    alpha : float             α
    """
    after, before = natural_parameters(new), natural_parameters(cavity)
    log_scale = sum(
        gaussian_log_normaliser(*distribution) * sign
        for sign, distributions in ((1.0, cavity), (-1.0, new)) for distribution in zip(*distributions, strict=True)
    )  # fmt: skip
    return Site(log_scale / alpha, (after.precision - before.precision) / alpha, (after.shift - before.shift) / alpha)
