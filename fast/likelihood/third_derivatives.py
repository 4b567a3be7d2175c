"""Third derivatives of log sigma(y f) and log Phi(y f) in f, to the last digits however far out.

What moves log|B| as the mode of a Laplace approximation moves: dW_i/df_i is minus the third derivative.
"""

from __future__ import annotations

import numpy as np

from fast.core.types import FloatArray
from fast.likelihood.probit import hazard

_LEFT = -4.0  # of it the terms of the probit's derivative lose two digits, and more further left
_LEVELS = 60  # of the continued fraction: exact to rounding left of _LEFT


def logit_third(latent_values: FloatArray) -> FloatArray:
    """sigma(f) sigma(-f) tanh(f/2), the same for both labels: (b,).

    Parameters
    ----------
    latent_values : (b,)    f
    """
    shrunk = np.exp(-np.abs(latent_values))
    return shrunk / (1.0 + shrunk) ** 2 * np.tanh(0.5 * latent_values)


def probit_third(y_sign: FloatArray, latent_values: FloatArray) -> FloatArray:
    """y r (e (r + e) - 1) with z = y f, r = phi/Phi and e = r + z: (b,).

    With x = -z and the tails t_k = k/(x + t_{k+1}) of Laplace's continued fraction, r = x + t_1 and e = t_1:
    x t_1 = 1 - t_1 t_2 and 2 t_1 - t_2 = t_1 t_2 (t_3 - t_2) turn the bracket into t_1^2 t_2 (t_3 - t_2), and
    t_3 - t_2 = (x + 3 t_3 - 2 t_4)/((x + t_3)(x + t_4)). Nothing cancels: t_4 is below 4/x, x^2 at least 16.

    Parameters
    ----------
    y_sign : (b,)           -1, +1
    latent_values : (b,)    f
    """
    z = y_sign * latent_values
    ratio, excess = hazard(z)
    third: FloatArray = ratio * (excess * (ratio + excess) - 1.0)
    left = z < _LEFT
    if left.any():
        x = -z[left]
        below, tails = x.copy(), {}  # x + t_{k+1}, t_k
        for level in range(_LEVELS, 1, -1):
            tails[level] = level / below
            below = x + tails[level]
        t_2, t_3, t_4 = tails[2], tails[3], tails[4]
        t_1 = 1.0 / (x + t_2)
        apart = (x + 3.0 * t_3 - 2.0 * t_4) / ((x + t_3) * (x + t_4))
        third[left] = (x + t_1) * t_1 * t_1 * t_2 * apart
    return y_sign * third
