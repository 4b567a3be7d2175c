"""What a search over a prior moves, by name, and in which coordinates: logarithms, and Z as it is.

variance, lengthscales, noise: the logarithms; scale: the mean of the logarithms of the lengthscales, which keep their
ratios, so that one number moves them all. lengthscales may have classes in front, (..., d).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fast.core import inputs
from fast.core.types import FloatArray

FIELDS = ("variance", "lengthscales", "noise")
SCALE = "scale"
LEARNABLE = ("variance", SCALE, "lengthscales", "noise", "Z")  # in the order of a vector


def field_of(name: str) -> str:
    """The field that a learned name moves.

    Parameters
    ----------
    name : str    out of variance, scale, lengthscales, noise, Z
    """
    return "lengthscales" if name == SCALE else name


def learned_names(learn: Iterable[str], noise: Any, *, with_Z: bool = True) -> tuple[str, ...]:
    """Names in the order of a vector, checked.

    Parameters
    ----------
    learn            names; one alone stands for itself
    noise            where it starts: zero has no logarithm
    with_Z : bool    whether there are inducing points to learn
    """
    chosen = inputs.names("learn", learn)
    known = LEARNABLE if with_Z else LEARNABLE[:-1]
    foreign = any(name not in known for name in chosen)
    if foreign or len(set(chosen)) != len(chosen):
        raise ValueError(f"learn: found {chosen}, expected different names of {', '.join(known)}")
    if SCALE in chosen and "lengthscales" in chosen:
        raise ValueError("learn: found 'scale' beside 'lengthscales', expected one of the two")
    if "noise" in chosen and (np.asarray(noise) == 0.0).any():
        raise ValueError("noise: found 0.0, expected > 0 when it is learned: its logarithm moves")
    return tuple(name for name in known if name in chosen)


def coordinates(name: str, value: Any) -> FloatArray:
    """Coordinates of a name where its field has a value.

    Parameters
    ----------
    name : str    learned
    value         of the field, lengthscales (..., d)
    """
    logarithms: FloatArray = np.log(value)
    return logarithms.mean(axis=-1) if name == SCALE else logarithms


def field_at(name: str, coordinate: FloatArray, value: Any) -> FloatArray:
    """The field at coordinates of a name; numbers that leave the range of floats are infinite or zero.

    Parameters
    ----------
    name : str    learned
    coordinate    of it, see `coordinates`
    value         of the field so far: its ratios stay where a scale is learned
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if name != SCALE:
            return np.exp(coordinate)
        factor = np.exp(coordinate - coordinates(name, value))
        return np.asarray(value) * factor[..., None]


def log_derivative(name: str, gradient: Any, value: Any) -> FloatArray:
    """Derivative in the coordinates of a name from the gradient in its field.

    Parameters
    ----------
    name : str    learned
    gradient      in the field
    value         of the field
    """
    derivative: FloatArray = np.multiply(gradient, value)
    return derivative.sum(axis=-1) if name == SCALE else derivative
