"""Section 4.2 and appendix A.2: the variational family and the lower bound, (8), (9), (10), with every constant."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import cholesky, factorise
from reference.common.ledger import equation
from reference.common.logistic import log_cosh
from reference.wenzel2019.augmentation import pg_log_tilt, pg_mean

Array = NDArray[np.float64]

_REMEDY_K = "raise jitter or remove duplicate rows of Z"
_REMEDY_COV = "pass a positive definite inducing_cov"


class ThetaKappa(NamedTuple):
    """Means of the Pólya-Gamma factors, and the rows κ_i."""

    theta: Array  # (n,)
    upsilon: Array  # (n, m)


class BoundTerms(NamedTuple):
    """The terms of the bound and their sum."""

    expected_loglik: float
    kl_inducing: float
    kl_polya_gamma: float
    elbo: float


@equation("wenzel2019", "8")
def conditional_jensen_bound(
    inducing_values: Array, omega: Array, y_sign: Array, upsilon: Array, cond_var: Array
) -> float:
    """Lower bound on log p(y|ω, u): wenzel2019 (8).

        log p(y|ω, u) = log E_{p(f|u)}[p(y|ω, f)] >= E_{p(f|u)}[log p(y|ω, f)]                (8)

    The right-hand side is Σ_i E[-log 2 + y_i f_i/2 - ω_i f_i²/2] with f_i ~ N(κ_i u, K̃_ii), so it takes the first
    two moments of each f_i. It is met with equality where K̃ = 0.

    Parameters
    ----------
    inducing_values : (m,)    u
    omega : (n,)              Pólya-Gamma variables
    y_sign : (n,)             y, labels -1 or +1
    upsilon : (n, m)          rows κ_i = K_im K_mm⁻¹
    cond_var : (n,)           diagonal of K̃
    """
    first = upsilon @ inducing_values  # E[f_i|u]
    second = first**2 + cond_var  # E[f_i²|u]
    return float(np.sum(-np.log(2.0) + 0.5 * y_sign * first - 0.5 * omega * second))


@equation("wenzel2019", "u4.2-elbo-chain")
def evidence_bound_chain(
    inducing_mean: Array,
    inducing_cov: Array,
    c: Array,
    y_sign: Array,
    K_ZZ: Array,
    upsilon: Array,
    cond_var: Array,
) -> float:
    """The objective as it is defined: wenzel2019, section 4.2, the display between (8) and (9).

        log p(y) >= E_{q(u,ω)}[log p(y|u, ω)] - KL(q(u, ω) || p(u, ω))
                 >= E_{p(f|u)q(u)q(ω)}[log p(y|ω, f)] - KL(q(u, ω) || p(u, ω)) =: L

    The expectation is taken of (8) itself. (8) is linear in each ω_i, so ω_i = E[ω_i] stands for q(ω_i); it is
    quadratic in u, so the mean over the 2m points μ ± √m S_j, with S_j the columns of a square root of Σ, is exact.

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    c : (n,)                  tilts of q(ω_i) = PG(1, c_i)
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    upsilon : (n, m)          rows κ_i
    cond_var : (n,)           diagonal of K̃

    Returns
    -------
    L, a lower bound on log p(y)

    Raises
    ------
    NotPositiveDefiniteError  if inducing_cov or K_ZZ is singular
    """
    omega = pg_mean(1.0, c)
    m = len(inducing_mean)
    steps = np.sqrt(m) * cholesky(inducing_cov, "inducing_cov", _REMEDY_COV).T
    points = np.concatenate([inducing_mean + steps, inducing_mean - steps])
    values = [conditional_jensen_bound(u, omega, y_sign, upsilon, cond_var) for u in points]
    divergence = kl_inducing(inducing_mean, inducing_cov, K_ZZ) + kl_polya_gamma(c)
    return float(np.mean(values)) - divergence


@equation("wenzel2019", "9")
def variational_family(
    inducing_values: Array, omega: Array, inducing_mean: Array, inducing_cov: Array, c: Array
) -> float:
    """Log density of the variational family, relative to PG(1, 0) in each ω_i: wenzel2019 (9).

        q(u, ω) = q(u) Π_i q(ω_i),   q(u) = N(u|μ, Σ),   q(ω_i) = PG(ω_i|1, c_i)              (9)

    Parameters
    ----------
    inducing_values : (m,)    u
    omega : (n,)              Pólya-Gamma variables
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    c : (n,)                  tilts

    Returns
    -------
    log q(u, ω) - Σ_i log PG(ω_i|1, 0): the density of PG(1, 0) itself is never needed

    Raises
    ------
    NotPositiveDefiniteError  if inducing_cov is singular
    """
    factor = factorise(inducing_cov, "inducing_cov", _REMEDY_COV)
    gap = inducing_values - inducing_mean
    log_q_u = -0.5 * (len(gap) * np.log(2.0 * np.pi) + factor.log_det + gap @ factor.inverse @ gap)
    return float(log_q_u + np.sum(pg_log_tilt(omega, 1.0, c)))


@equation("wenzel2019", "10")
def xgpc_bound(
    inducing_mean: Array,
    inducing_cov: Array,
    c: Array,
    y_sign: Array,
    K_ZZ: Array,
    upsilon: Array,
    cond_var: Array,
) -> float:
    """The closed-form bound with every constant: wenzel2019 (10), signs corrected.

        L(c, μ, Σ) = ½ ( log|Σ| - log|K_mm| - tr(K_mm⁻¹Σ) - μᵀK_mm⁻¹μ
                         + Σ_i { y_i κ_i μ - θ_i (K̃_ii + κ_i Σ κ_iᵀ + μᵀκ_iᵀκ_i μ)
                                 + c_i² θ_i - 2 log cosh(c_i/2) } ) + m/2 - n log 2           (10)

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    c : (n,)                  tilts of q(ω_i)
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    upsilon : (n, m)          rows κ_i
    cond_var : (n,)           diagonal of K̃

    Returns
    -------
    L, a true lower bound on log p(y)

    Raises
    ------
    NotPositiveDefiniteError  if inducing_cov or K_ZZ is singular

    Notes
    -----
    Printed up to the constants m/2 - n log 2, which are kept here, and with other signs: see `errata`.
    """
    mu, Sigma = inducing_mean, inducing_cov
    K = factorise(K_ZZ, "K_ZZ", _REMEDY_K)
    log_det_Sigma = 2.0 * np.sum(np.log(np.diag(cholesky(Sigma, "inducing_cov", _REMEDY_COV))))
    theta = pg_mean(1.0, c)
    projected = upsilon @ mu  # κ_i μ
    spread = np.sum((upsilon @ Sigma) * upsilon, axis=1)  # κ_i Σ κ_iᵀ
    data = y_sign * projected - theta * (cond_var + spread + projected**2) + c**2 * theta - 2.0 * log_cosh(0.5 * c)
    prior = log_det_Sigma - K.log_det - np.sum(K.inverse * Sigma) - mu @ K.inverse @ mu
    return float(0.5 * (prior + np.sum(data)) + 0.5 * len(mu) - len(y_sign) * np.log(2.0))


@equation("wenzel2019", "u4.2-theta")
def theta_and_kappa(c: Array, K_XZ: Array, K_ZZ: Array) -> ThetaKappa:
    """θ and κ: wenzel2019, section 4.2, below (10).

        θ_i = tanh(c_i/2) / (2c_i),   κ_i = K_im K_mm⁻¹

    θ_i is the mean of PG(1, c_i), section 3.1.

    Parameters
    ----------
    c : (n,)                  tilts; θ = ¼ at c = 0
    K_XZ : (n, m)             K_nm
    K_ZZ : (m, m)             K_mm

    Returns
    -------
    ThetaKappa                theta (n,), upsilon (n, m)

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular
    """
    return ThetaKappa(pg_mean(1.0, c), K_XZ @ factorise(K_ZZ, "K_ZZ", _REMEDY_K).inverse)


@equation("wenzel2019", "A.2-likelihood")
def expected_conditional_loglik(
    inducing_values: Array, omega: Array, y_sign: Array, K_ZZ: Array, K_XZ: Array, K_XX: Array
) -> float:
    """Expected conditional log-likelihood under p(f|u): wenzel2019, A.2, first display.

        E_{p(f|u)}[log p(y|ω, f)]
            = ½ ( yᵀK_nm K_mm⁻¹u - tr(ΩK̃) - uᵀK_mm⁻¹K_mn Ω K_nm K_mm⁻¹u ) - n log 2

    Parameters
    ----------
    inducing_values : (m,)    u
    omega : (n,)              diagonal of Ω
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    K_XZ : (n, m)             K_nm
    K_XX : (n, n)             K_nn, of which the diagonal matters

    Raises
    ------
    NotPositiveDefiniteError  if K_ZZ is singular

    Notes
    -----
    Printed up to the constant -n log 2, which is kept here.
    """
    K_inverse = factorise(K_ZZ, "K_ZZ", _REMEDY_K).inverse
    Omega = np.diag(omega)
    K_tilde = K_XX - K_XZ @ K_inverse @ K_XZ.T
    linear = y_sign @ K_XZ @ K_inverse @ inducing_values
    quadratic = inducing_values @ K_inverse @ K_XZ.T @ Omega @ K_XZ @ K_inverse @ inducing_values
    return float(0.5 * (linear - np.trace(Omega @ K_tilde) - quadratic) - len(y_sign) * np.log(2.0))


@equation("wenzel2019", "A.2-expectation")
def expected_loglik(
    inducing_mean: Array, inducing_cov: Array, c: Array, y_sign: Array, upsilon: Array, cond_var: Array
) -> float:
    """Expected conditional log-likelihood under q(u)q(ω): wenzel2019, A.2, second display.

        E_{p(f|u)q(u)q(ω)}[log p(y|ω, f)]
            = ½ Σ_i { y_i κ_i μ - θ_i (K̃_ii + κ_i Σ κ_iᵀ + μᵀκ_iᵀκ_i μ) } - n log 2

        θ_i = E_{q(ω_i)}[ω_i] = tanh(c_i/2) / (2c_i)

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    c : (n,)                  tilts of q(ω_i)
    y_sign : (n,)             y, labels -1 or +1
    upsilon : (n, m)          rows κ_i
    cond_var : (n,)           diagonal of K̃

    Notes
    -----
    Printed up to the constant -n log 2, which is kept here; θ_i is the mean under q(ω_i): see `errata`.
    """
    theta = pg_mean(1.0, c)
    projected = upsilon @ inducing_mean
    spread = np.diag(upsilon @ inducing_cov @ upsilon.T)
    terms = y_sign * projected - theta * (cond_var + spread + projected**2)
    return float(0.5 * np.sum(terms) - len(y_sign) * np.log(2.0))


@equation("wenzel2019", "A.2-kl-gauss")
def kl_inducing(inducing_mean: Array, inducing_cov: Array, K_ZZ: Array) -> float:
    """Divergence of q(u) from p(u): wenzel2019, A.2.

        KL(q(u)||p(u)) = ½ ( tr(K_mm⁻¹Σ) + μᵀK_mm⁻¹μ - log|Σ| + log|K_mm| - m )

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    K_ZZ : (m, m)             K_mm

    Raises
    ------
    NotPositiveDefiniteError  if inducing_cov or K_ZZ is singular

    Notes
    -----
    Printed up to the constant -m/2, which is kept here.
    """
    K = factorise(K_ZZ, "K_ZZ", _REMEDY_K)
    Sigma = factorise(inducing_cov, "inducing_cov", _REMEDY_COV)
    trace = np.trace(K.inverse @ inducing_cov)
    quadratic = inducing_mean @ K.inverse @ inducing_mean
    return float(0.5 * (trace + quadratic - Sigma.log_det + K.log_det - len(inducing_mean)))


@equation("wenzel2019", "A.2-kl-pg")
def kl_polya_gamma(c: Array) -> float:
    """Divergence of the Pólya-Gamma factors from their prior: wenzel2019, A.2.

        KL(q(ω)||p(ω)) = Σ_i { log cosh(c_i/2) - c_i² θ_i / 2 },   θ_i = tanh(c_i/2) / (2c_i)

    Parameters
    ----------
    c : (n,)                  tilts of q(ω_i) = PG(1, c_i)

    Notes
    -----
    The display is lost in the extracted text; it follows from the line above it, q(ω_i) = cosh(c_i/2) exp(-c_i²ω_i/2)
    PG(ω_i|1, 0), by taking the mean of log q - log p.
    """
    return float(np.sum(log_cosh(0.5 * c) - 0.5 * c**2 * pg_mean(1.0, c)))


@equation("wenzel2019", "A.2-total")
def assemble_bound(
    inducing_mean: Array,
    inducing_cov: Array,
    c: Array,
    y_sign: Array,
    K_ZZ: Array,
    upsilon: Array,
    cond_var: Array,
) -> BoundTerms:
    """The bound as the sum of its terms: wenzel2019, A.2, last display.

        L = E_{p(f|u)q(u)q(ω)}[log p(y|ω, f)] - KL(q(u)||p(u)) - KL(q(ω)||p(ω))

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    c : (n,)                  tilts of q(ω_i)
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    upsilon : (n, m)          rows κ_i
    cond_var : (n,)           diagonal of K̃

    Returns
    -------
    BoundTerms                expected_loglik, kl_inducing, kl_polya_gamma and elbo, each with its constants

    Raises
    ------
    NotPositiveDefiniteError  if inducing_cov or K_ZZ is singular

    Notes
    -----
    The display is lost in the extracted text; the definition at the head of A.2 gives it.
    """
    loglik = expected_loglik(inducing_mean, inducing_cov, c, y_sign, upsilon, cond_var)
    kl_u = kl_inducing(inducing_mean, inducing_cov, K_ZZ)
    kl_omega = kl_polya_gamma(c)
    return BoundTerms(loglik, kl_u, kl_omega, loglik - kl_u - kl_omega)
