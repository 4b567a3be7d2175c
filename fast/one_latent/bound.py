"""The bound on log p(y), every constant in it: for any q, and with q(u) at its optimum. wenzel2019 (10), A.2."""

from __future__ import annotations

import numpy as np

from fast.core.linalg import solve_rows
from fast.core.types import FloatArray
from fast.ledger import equation
from fast.likelihood.polya_gamma import kl_polya_gamma, log_cosh, pg_mean


@equation("wenzel2019", "A.2-expectation")
def expected_log_likelihood(
    y_sign: FloatArray, latent_mean: FloatArray, latent_var: FloatArray, theta: FloatArray
) -> FloatArray:
    """E log p(y_i | omega_i, f_i) = -log 2 + y_i m_i / 2 - theta_i (v_i + m_i^2) / 2: wenzel2019, A.2, with its log 2.

    Parameters
    ----------
    y_sign : (n,)         -1, +1
    latent_mean : (n,)    m_i
    latent_var : (n,)     v_i
    theta : (n,)          E[omega_i]

    Returns
    -------
    (n,)                  one term a point
    """
    return -np.log(2.0) + 0.5 * y_sign * latent_mean - 0.5 * theta * (latent_var + latent_mean**2)


@equation("wenzel2019", "A.2-kl-gauss")
def kl_whitened(factor: FloatArray, weights: FloatArray) -> float:
    """KL(N(p, B^-1) || N(0, I)) = (tr B^-1 - m + |p|^2 + log|B|) / 2, B = R R': wenzel2019, A.2, whitened.

    u = L v maps both densities alike, so it is KL(q(u) || p(u)) for any L. Time m^3/3, memory m^2.

    Parameters
    ----------
    factor : (m, m)    R, lower triangular
    weights : (m,)     p, mean of v
    """
    m = len(factor)
    inverse = solve_rows(factor, np.eye(m))
    log_det = 2.0 * float(np.log(factor.diagonal()).sum())
    return 0.5 * (float(np.vdot(inverse, inverse)) - m + float(weights @ weights) + log_det)


@equation("wenzel2019", "10", "A.2-total")
def elbo_terms(y_sign: FloatArray, latent_mean: FloatArray, latent_var: FloatArray, c: FloatArray, kl: float) -> float:
    """L(c, mu, Sigma) for any q, with every constant: wenzel2019 (10), a lower bound on log p(y).

    (10) drops m/2 - n log 2. Time O(n).

    Parameters
    ----------
    y_sign : (n,)         -1, +1
    latent_mean : (n,)    kappa_i mu
    latent_var : (n,)     K_tilde_ii + kappa_i Sigma kappa_i'
    c : (n,)              local parameters
    kl : float            KL(q(u) || p(u))
    """
    local = expected_log_likelihood(y_sign, latent_mean, latent_var, pg_mean(c)) - kl_polya_gamma(c)
    return float(local.sum()) - kl


@equation("wenzel2019", "10")
def collapsed_bound(c: FloatArray, theta: FloatArray, cond_var: FloatArray, shift_norm: float, log_det: float) -> float:
    """max over q(u) of L(c, q(u)): wenzel2019 (10) with (18) and the mean of A.4 put in.

        L = sum_i [-log 2 - theta_i cond_var_i/2 + c_i^2 theta_i/2 - log cosh(c_i/2)] + |w|^2/2 - log|B|/2

    Its largest term is of the size of n: absolute error about eps n. Time O(n).

    Parameters
    ----------
    c, theta : (n,)      local parameters, E[omega]
    cond_var : (n,)      k_ii - |a_i|^2; 0 for the full GP
    shift_norm : float   |w|^2 = y'A B^-1 A'y/4
    log_det : float      log|B|
    """
    # c^2 theta / 2 = c tanh(c/2) / 4
    local = 0.25 * c * np.tanh(0.5 * c) - log_cosh(0.5 * c) - 0.5 * theta * cond_var
    return float(local.sum()) - c.size * float(np.log(2.0)) + 0.5 * (shift_norm - log_det)
