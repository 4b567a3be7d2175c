"""Parameters of the priors of several classes and their gradient, labels of classes: checked once for every family."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.inputs import Hyper
from fast.core.types import FloatArray, IntArray

MOST_CLASSES = 2**31 - 1  # more than any array could have rows


class ClassGradients(NamedTuple):
    """Gradient of a scalar with respect to the parameters of every class; shared: each row holds the sum."""

    variance: FloatArray  # (C,)
    lengthscales: FloatArray  # (C, d)
    noise: FloatArray  # (C,)


class ClassHyper(NamedTuple):
    """Checked parameters of the priors of C classes."""

    variance: FloatArray  # (C,)
    lengthscales: FloatArray  # (C, d)
    noise: FloatArray  # (C,)
    jitter: FloatArray  # (C,)

    def of(self, index: int) -> Hyper:
        """Parameters of one class.

        Parameters
        ----------
        index : int    of the class
        """
        return Hyper(
            float(self.variance[index]), self.lengthscales[index], float(self.noise[index]), float(self.jitter[index])
        )


def class_hyper(
    variance: Any, lengthscales: Any, noise: Any, jitter: Any, n_classes: int, n_columns: int
) -> ClassHyper:
    """Parameters of C classes, checked; a number, or (d,) lengthscales, stand for all classes.

    Parameters
    ----------
    variance, noise, jitter : float or (C,)
    lengthscales : (d,) or (C, d)
    n_classes : int
    n_columns : int    inputs, d

    Raises
    ------
    ValueError    by name, for wrong shapes and values out of range
    """
    checked: dict[str, FloatArray] = {}
    for name, value in (("variance", variance), ("noise", noise), ("jitter", jitter)):
        array = inputs.real_numbers(name, value)
        if array.ndim == 0:
            array = np.broadcast_to(array, (n_classes,))
        if array.shape != (n_classes,):
            raise ValueError(f"{name}: found shape {array.shape}, expected ({n_classes},)")
        checked[name] = array
    lengths = inputs.real_numbers("lengthscales", lengthscales)
    if lengths.ndim == 1:
        lengths = np.broadcast_to(lengths, (n_classes, lengths.size))
    if lengths.shape != (n_classes, n_columns):
        raise ValueError(f"lengthscales: found shape {lengths.shape}, expected ({n_classes}, {n_columns})")
    classes = [
        inputs.hyper(checked["variance"][k], lengths[k], checked["noise"][k], checked["jitter"][k], n_columns)
        for k in range(n_classes)
    ]
    return ClassHyper(
        np.array([one.variance for one in classes]),
        np.array([one.lengthscales for one in classes]),
        np.array([one.noise for one in classes]),
        np.array([one.jitter for one in classes]),
    )


def class_labels(y: Any, n: int, n_classes: int) -> IntArray:
    """Labels, ints 0..C-1.

    Parameters
    ----------
    y : (n,)
    n : int            number of data
    n_classes : int    C >= 2
    """
    array = inputs.real_array("y", y, 1)
    if array.shape != (n,):
        raise ValueError(f"y: found shape {array.shape}, expected ({n},)")
    if array.dtype.kind == "f":
        raise ValueError(f"y: found dtype {array.dtype}, expected integers 0 to {n_classes - 1}")
    codes = np.asarray(array).astype(np.int64)
    if codes.min() < 0 or codes.max() >= n_classes:
        raise ValueError(f"y: found labels {np.unique(codes)[:6].tolist()}, expected integers 0 to {n_classes - 1}")
    return codes
