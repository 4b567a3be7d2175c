"""Section 5.5: half Student-t priors of magnitude and lengthscales, and what their "variance" can mean."""

from math import lgamma, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from reference.common.ledger import equation
from reference.riihimaki2013 import _check

Array = NDArray[np.float64]

READINGS = ("scale squared", "scale", "moment")


@equation("riihimaki2013", "u5.5-prior")
def log_half_student_t(values: Array, df: float, scale: float) -> float:
    """Σ log[2 t_df(x/scale)/scale] over positive x: the priors of section 5.5 of riihimaki2013.

    Parameters
    ----------
    values : (k,)             x
    df : float                degrees of freedom; the paper takes four
    scale : float             of `half_t_scale`
    """
    constant = log(2.0) + lgamma(0.5 * (df + 1.0)) - lgamma(0.5 * df) - 0.5 * log(df * pi) - log(scale)
    return float(np.sum(constant - 0.5 * (df + 1.0) * np.log1p((np.asarray(values) / scale) ** 2 / df)))


def log_half_student_t_derivative(values: Array, df: float, scale: float) -> Array:
    """Derivative of `log_half_student_t` in each of values (k,); df and scale as there."""
    return -(df + 1.0) * values / (df * scale**2 + values**2)


def half_t_scale(variance: float = 100.0, df: float = 4.0, reading: str = "scale squared") -> float:
    """The scale of a Student-t whose "variance equal to one hundred" is read in one of three ways.

    Parameters
    ----------
    variance : float          the number that the paper gives
    df : float                degrees of freedom
    reading : str             "scale squared": scale² = variance; "scale": scale = variance; "moment": the t before
                              it is halved has that variance, scale² df/(df - 2) = variance

    Raises
    ------
    ValueError                for another reading, or the moment of a t with df <= 2
    """
    _check.choice(reading, READINGS, "reading")
    if reading == "scale":
        return variance
    if reading == "scale squared":
        return sqrt(variance)
    if df <= 2.0:
        raise ValueError(f"df: found {df:.6g}, expected > 2 for a t with a variance")
    return sqrt(variance * (df - 2.0) / df)


def log_normal(values: Array, df: float, scale: float) -> float:
    """Σ of the log densities of log-normals with median scale and standard deviation df of the logarithm, at values."""
    z = np.log(np.asarray(values) / scale) / df
    return float(np.sum(-0.5 * z**2 - np.log(values) - log(df) - 0.5 * log(2.0 * pi)))


def log_normal_derivative(values: Array, df: float, scale: float) -> Array:
    """Derivative of `log_normal` in each of values (k,); df and scale as there."""
    return -(1.0 + np.log(values / scale) / df**2) / values


FAMILIES = {
    "half-student-t": (log_half_student_t, log_half_student_t_derivative),
    "log-normal": (log_normal, log_normal_derivative),
}
