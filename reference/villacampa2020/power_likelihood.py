"""Sections 3.1 and A.4: expectations of powers of the robust likelihood, with their derivatives, in the log domain.

The likelihood of label y has two values: a = 1 - ε + ε/C where f_y is the largest, b = ε/C elsewhere. With P the
probability that f_y is the largest, E = E[p(y|f)^α] = b^α (1 - P) + a^α P. What one observation adds to an energy is
log E/α, which tends to E[log p(y|f)] as α -> 0.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check, _largest
from reference.common._options import shown
from reference.common.ledger import equation

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

_NEARLY_ALL = -1.0  # above this log P the complement 1 - P is integrated for itself


class ExpectedPower(NamedTuple):
    """log E, or log E/α, of one observation, and derivatives."""

    log_expectation: float
    d_mean: Array  # (C,) by each mean
    d_var: Array  # (C,) by each variance
    d2_mean: Array  # (C,) twice by each mean


class ExpectedPowers(NamedTuple):
    """The same for n observations."""

    log_expectation: Array  # (n,)
    d_mean: Array  # (n, C)
    d_var: Array  # (n, C)
    d2_mean: Array  # (n, C)


def check_power(alpha: float, epsilon: float) -> None:
    """Refuse what is no power, no label noise, or a zeroth power of a likelihood that can be zero; villacampa2020.

    Parameters
    ----------
    alpha : float             power, in [0, 1]
    epsilon : float           in [0, 1)

    Raises
    ------
    ValueError                for alpha or epsilon out of range, and for alpha = 0 with epsilon = 0
    """
    alpha, epsilon = _check.scalar(alpha, "alpha", True), _check.scalar(epsilon, "epsilon", True)
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha: found {shown(alpha)}, expected a number in [0, 1]")
    if not 0.0 <= epsilon < 1.0:
        raise ValueError(f"epsilon: found {shown(epsilon)}, expected a number in [0, 1)")
    if alpha == 0.0 and epsilon == 0.0:
        raise ValueError("epsilon: found 0, expected > 0 at alpha = 0, where E[log p(y|f)] is -inf")


@equation("villacampa2020", "u27-power-expectation")
def expected_power_likelihood(latent_mean: Array, latent_var: Array, y_i: int, epsilon: float, alpha: float) -> float:
    """E[p(y_i|f)^α] = (ε/C)^α + [(1 - ε + ε/C)^α - (ε/C)^α] P(f_y is the largest): sections 3.1 and A.4.

    P is the one-dimensional integral ∫ N(t|m_y, v_y) Π_{k≠y} Φ((t - m_k)/√v_k) dt; the relative error is below 1e-12.
    Numbers below 1e-308 are zero here: `log_expected_power` has their logarithm.

    Parameters
    ----------
    latent_mean : (C,)        means of the latent values of villacampa2020
    latent_var : (C,)         their variances, >= 0
    y_i : int                 label, 0..C-1
    epsilon : float           ε in [0, 1)
    alpha : float             α in [0, 1]

    Raises
    ------
    ValueError                as `check_power`, and for variances below zero or numbers that are not finite
    """
    check_power(alpha, epsilon)
    log_p, _ = log_largest_probability(*_single(latent_mean, latent_var, y_i))
    C = np.size(latent_mean)
    inside, outside = (1.0 - epsilon + epsilon / C) ** alpha, (epsilon / C) ** alpha
    return float(outside + (inside - outside) * np.exp(log_p[0]))


def log_expected_power(latent_mean: Array, latent_var: Array, y_i: int, epsilon: float, alpha: float) -> ExpectedPower:
    """log E[p(y_i|f)^α] and its derivatives by the means, by the variances, and twice by the means, villacampa2020.

    Parameters
    ----------
    latent_mean : (C,)        means
    latent_var : (C,)         variances, >= 0
    y_i : int                 label, 0..C-1
    epsilon : float           ε in [0, 1)
    alpha : float             α in [0, 1]

    Raises
    ------
    ValueError                as `expected_power_likelihood`
    """
    many = log_expected_powers(*_single(latent_mean, latent_var, y_i), epsilon, alpha)
    return ExpectedPower(float(many.log_expectation[0]), many.d_mean[0], many.d_var[0], many.d2_mean[0])


def scaled_log_expected_power(
    latent_mean: Array, latent_var: Array, y_i: int, epsilon: float, alpha: float
) -> ExpectedPower:
    """(1/α) log E[p(y_i|f)^α], at α = 0 its limit E[log p(y_i|f)], and its derivatives; villacampa2020.

    Parameters
    ----------
    latent_mean : (C,)        means
    latent_var : (C,)         variances, >= 0
    y_i : int                 label, 0..C-1
    epsilon : float           ε in [0, 1), positive at α = 0
    alpha : float             α in [0, 1]

    Raises
    ------
    ValueError                as `expected_power_likelihood`
    """
    many = scaled_log_expected_powers(*_single(latent_mean, latent_var, y_i), epsilon, alpha)
    return ExpectedPower(float(many.log_expectation[0]), many.d_mean[0], many.d_var[0], many.d2_mean[0])


def log_expected_powers(
    latent_mean: Array, latent_var: Array, y: Labels, epsilon: float, alpha: float
) -> ExpectedPowers:
    """`log_expected_power` of n observations of villacampa2020.

    Parameters
    ----------
    latent_mean : (n, C)      means
    latent_var : (n, C)       variances, >= 0
    y : (n,)                  labels, 0..C-1
    epsilon : float           ε in [0, 1)
    alpha : float             α in [0, 1]

    Raises
    ------
    ValueError                as `expected_power_likelihood`
    """
    scaled = scaled_log_expected_powers(latent_mean, latent_var, y, epsilon, alpha)
    return ExpectedPowers(*(alpha * part for part in scaled))


@equation("villacampa2020", "u27-power-expectation")
def scaled_log_expected_powers(
    latent_mean: Array, latent_var: Array, y: Labels, epsilon: float, alpha: float
) -> ExpectedPowers:
    """(1/α) log E[p(y_i|f_i)^α] of n observations of villacampa2020, E as in `expected_power_likelihood`: A.4.

    Parameters
    ----------
    latent_mean : (n, C)      means
    latent_var : (n, C)       variances, >= 0
    y : (n,)                  labels, 0..C-1
    epsilon : float           ε in [0, 1), positive at α = 0
    alpha : float             α in [0, 1]

    Raises
    ------
    ValueError                as `expected_power_likelihood`

    Notes
    -----
    With L = log(a/b), D = 1 - (b/a)^α and Q = 1 - P: log E = α log a + log(1 - D Q). The logarithm is log1p(-D Q)
    while D Q is at most a half, log((b/a)^α + D P) beyond. The label's being the largest has the tilted probability
    π = D P/(1 - D Q) beyond what it has by chance; derivatives are π times those of log P, and
    ∂² log E = π (∂² log P + (1 - π) (∂ log P)²). π/α is finite at α = 0, where D/α is L.
    """
    check_power(alpha, epsilon)
    latent_mean, latent_var, y = _checked(latent_mean, latent_var, y)
    C = latent_mean.shape[1]
    event = _largest.largest(latent_mean, latent_var, y)
    log_p, log_q = _both(event.log_p, latent_mean, latent_var, y)
    log_a = np.log1p(-epsilon * (1.0 - 1.0 / C))
    gap = log_a - (np.log(epsilon) - np.log(C)) if epsilon > 0.0 else np.inf  # L
    if epsilon == 0.0:
        value, log_pi, rest = log_p / alpha, np.full(len(y), -np.log(alpha)), np.zeros(len(y))
    else:
        log_chance = -alpha * gap  # log (b/a)^α
        ratio = -np.expm1(log_chance) / alpha if alpha > 0.0 else gap  # D/α
        log_mixed = np.where(
            alpha * ratio * np.exp(log_q) <= 0.5,
            np.log1p(-np.minimum(alpha * ratio * np.exp(log_q), 0.5)),
            np.logaddexp(log_chance, _log(alpha * ratio) + log_p),
        )
        value = log_a + (log_mixed / alpha if alpha > 0.0 else -gap * np.exp(log_q))
        log_pi = np.log(ratio) + log_p - log_mixed  # log π/α
        rest = np.exp(log_chance - log_mixed)  # 1 - π
    share = np.exp(log_pi)[:, None]  # zero where P is below 1e-308 and ε > 0: the label is then chance
    d_mean = _product(share, event.first)
    d_var = _product(share, 0.5 * event.second)
    d2_mean = _product(share, event.curvature) + rest[:, None] * _product(share, event.first) * event.first
    return ExpectedPowers(value, d_mean, d_var, d2_mean)


def log_largest_probability(latent_mean: Array, latent_var: Array, y: Labels) -> tuple[Array, Array]:
    """log P(f_y is the largest) and log(1 - P), each (n,), each with a relative error of P and 1 - P below 1e-12.

    Parameters
    ----------
    latent_mean : (n, C)      means of villacampa2020's latent values
    latent_var : (n, C)       variances, >= 0
    y : (n,)                  labels, 0..C-1

    Raises
    ------
    ValueError                for variances below zero or numbers that are not finite
    """
    latent_mean, latent_var, y = _checked(latent_mean, latent_var, y)
    return _both(_largest.log_largest(latent_mean, latent_var, y), latent_mean, latent_var, y)


def _both(log_p: Array, latent_mean: Array, latent_var: Array, y: Labels) -> tuple[Array, Array]:
    """log P and log(1 - P), the smaller of the two integrated and the other its complement."""
    log_p = np.minimum(log_p, 0.0)
    near = log_p > _NEARLY_ALL
    log_q = np.log1p(-np.exp(np.where(near, _NEARLY_ALL, log_p)))
    if np.any(near):
        log_q[near] = np.minimum(_largest.log_not_largest(latent_mean[near], latent_var[near], y[near]), 0.0)
        log_p = np.where(near & (log_q < -np.log(2.0)), np.log1p(-np.exp(np.minimum(log_q, -0.5))), log_p)
    return log_p, log_q


def _single(latent_mean: Array, latent_var: Array, y_i: int) -> tuple[Array, Array, Labels]:
    return np.asarray(latent_mean, dtype=float)[None], np.asarray(latent_var, dtype=float)[None], np.array([y_i])


def _checked(latent_mean: Array, latent_var: Array, y: Labels) -> tuple[Array, Array, Labels]:
    latent_mean, latent_var = np.asarray(latent_mean, dtype=float), np.asarray(latent_var, dtype=float)
    if latent_mean.ndim != 2 or latent_mean.shape[1] < 2 or not np.all(np.isfinite(latent_mean)):
        raise ValueError(f"latent_mean: found shape {latent_mean.shape}, expected finite means of two classes or more")
    if latent_var.shape != latent_mean.shape:
        raise ValueError(f"latent_var: found shape {latent_var.shape}, expected {latent_mean.shape}")
    if not np.all(np.isfinite(latent_var) & (latent_var >= 0.0)):
        raise ValueError(f"latent_var: found {np.min(latent_var):.6g}, expected finite variances >= 0")
    y = np.asarray(y, dtype=np.int64)
    if np.any((y < 0) | (y >= latent_mean.shape[1])):
        raise ValueError(f"y_i: found {y.min()}..{y.max()}, expected labels 0..{latent_mean.shape[1] - 1}")
    return latent_mean, latent_var, y


def _log(number: float) -> float:
    """log, -inf at zero."""
    return float(np.log(number)) if number > 0.0 else -np.inf


def _product(share: Array, part: Array) -> Array:
    """share · part, 0 where the share is zero."""
    return np.where(share > 0.0, share * part, 0.0)
