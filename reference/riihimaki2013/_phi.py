"""log Φ and φ/Φ of one number, for loops that visit scalars one after another."""

from math import erfc, exp, log, log1p, pi, sqrt

_SQRT2, _SQRT2PI, _LOG_SQRT2PI = sqrt(2.0), sqrt(2.0 * pi), 0.5 * log(2.0 * pi)


def log_phi(z: float) -> float:
    """log Φ(z)."""
    if z > 0.0:
        return log1p(-0.5 * erfc(z / _SQRT2))
    return -0.5 * z * z - _LOG_SQRT2PI - log(mills(z)[0])


def mills(z: float) -> tuple[float, float]:
    """r = φ(z)/Φ(z) and z + r, the latter without cancellation where z is far below zero.

    For z < -5 by Laplace's continued fraction: z + r = 1/(|z| + 2/(|z| + 3/(|z| + ...))).
    """
    if z > -5.0:
        ratio = exp(-0.5 * z * z) / (_SQRT2PI * 0.5 * erfc(-z / _SQRT2))
        return ratio, z + ratio
    tail = x = -z
    for k in range(40, 1, -1):
        tail = x + k / tail
    return x + 1.0 / tail, 1.0 / tail
