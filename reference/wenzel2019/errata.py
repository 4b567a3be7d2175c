"""Misprints of wenzel2019 as runnable code; why each is wrong stands in the paper's inventory (`because`)."""

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import cholesky, factorise
from reference.common.ledger import equation
from reference.common.logistic import log_cosh
from reference.wenzel2019.augmentation import pg_mean

Array = NDArray[np.float64]


@equation("wenzel2019", "10", as_printed=True)
def xgpc_bound_as_printed(
    inducing_mean: Array,
    inducing_cov: Array,
    c: Array,
    y_sign: Array,
    K_ZZ: Array,
    upsilon: Array,
    cond_var: Array,
) -> float:
    """(10) of wenzel2019 with the signs of the print, and with the constants that the print leaves out.

        ... + Σ_i { y_i κ_i μ - θ_i (K̃_ii - κ_i Σ κ_iᵀ - μᵀκ_iᵀκ_i μ) + c_i² θ_i - 2 log cosh(c_i/2) } ...

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    c : (n,)                  tilts
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    upsilon : (n, m)          rows κ_i
    cond_var : (n,)           diagonal of K̃

    Raises
    ------
    NotPositiveDefiniteError  if inducing_cov or K_ZZ is singular
    """
    theta = pg_mean(1.0, c)
    spread, square = _moments(inducing_mean, inducing_cov, upsilon)
    quadratic = -theta * (cond_var - spread - square)
    return _rest(inducing_mean, inducing_cov, c, y_sign, K_ZZ, upsilon) + 0.5 * float(np.sum(quadratic))


@equation("wenzel2019", "10", as_printed=True)
def xgpc_bound_as_extracted(
    inducing_mean: Array,
    inducing_cov: Array,
    c: Array,
    y_sign: Array,
    K_ZZ: Array,
    upsilon: Array,
    cond_var: Array,
) -> float:
    """(10) of wenzel2019 read without a bracket behind θ_i, constants added; see `xgpc_bound_as_printed`.

        ... + Σ_i { y_i κ_i μ - θ_i K̃_ii - κ_i Σ κ_iᵀ - μᵀκ_iᵀκ_i μ + c_i² θ_i - 2 log cosh(c_i/2) } ...

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    c : (n,)                  tilts
    y_sign : (n,)             y, labels -1 or +1
    K_ZZ : (m, m)             K_mm
    upsilon : (n, m)          rows κ_i
    cond_var : (n,)           diagonal of K̃

    Raises
    ------
    NotPositiveDefiniteError  if inducing_cov or K_ZZ is singular
    """
    theta = pg_mean(1.0, c)
    spread, square = _moments(inducing_mean, inducing_cov, upsilon)
    quadratic = -theta * cond_var - spread - square
    return _rest(inducing_mean, inducing_cov, c, y_sign, K_ZZ, upsilon) + 0.5 * float(np.sum(quadratic))


@equation("wenzel2019", "A.2-expectation", as_printed=True)
def expected_loglik_as_printed(
    inducing_mean: Array, inducing_cov: Array, c: Array, y_sign: Array, upsilon: Array, cond_var: Array
) -> float:
    """Second display of A.2 of wenzel2019 with θ_i as its text defines it: θ_i = E_{p(ω_i)}[ω_i].

    Parameters
    ----------
    inducing_mean : (m,)      μ
    inducing_cov : (m, m)     Σ
    c : (n,)                  tilts of q(ω_i); without effect here
    y_sign : (n,)             y, labels -1 or +1
    upsilon : (n, m)          rows κ_i
    cond_var : (n,)           diagonal of K̃
    """
    theta = pg_mean(1.0, np.zeros_like(c))  # E_p[ω_i]
    spread, square = _moments(inducing_mean, inducing_cov, upsilon)
    terms = y_sign * (upsilon @ inducing_mean) - theta * (cond_var + spread + square)
    return float(0.5 * np.sum(terms) - len(y_sign) * np.log(2.0))


def _moments(inducing_mean: Array, inducing_cov: Array, upsilon: Array) -> tuple[Array, Array]:
    """κ_i Σ κ_iᵀ and μᵀκ_iᵀκ_i μ, each (n,)."""
    return np.sum((upsilon @ inducing_cov) * upsilon, axis=1), (upsilon @ inducing_mean) ** 2


def _rest(inducing_mean: Array, inducing_cov: Array, c: Array, y_sign: Array, K_ZZ: Array, upsilon: Array) -> float:
    """What (10) and its printed forms share, constants included."""
    K = factorise(K_ZZ, "K_ZZ", "raise jitter or remove duplicate rows of Z")
    chol = cholesky(inducing_cov, "inducing_cov", "pass a positive definite inducing_cov")
    prior = (
        2.0 * np.sum(np.log(np.diag(chol)))
        - K.log_det
        - np.sum(K.inverse * inducing_cov)
        - inducing_mean @ K.inverse @ inducing_mean
    )
    data = y_sign * (upsilon @ inducing_mean) + c**2 * pg_mean(1.0, c) - 2.0 * log_cosh(0.5 * c)
    return float(0.5 * (prior + np.sum(data)) + 0.5 * len(inducing_mean) - len(y_sign) * np.log(2.0))
