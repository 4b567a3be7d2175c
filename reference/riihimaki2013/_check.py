"""Checks of what enters this package: argument, what was found, what was expected."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.common._check import array, count, integers, points, within_range
from reference.common._options import shown

Array = NDArray[np.float64]
_LARGEST = 1e12  # of a prior variance: posterior variances are differences from it, to which four digits are left


def choice(value: Any, expected: Sequence[str], name: str) -> None:
    """One of some texts."""
    if not isinstance(value, str) or value not in expected:
        raise ValueError(f"{name}: found {shown(value)}, expected one of {', '.join(expected)}")


def data(X: Any, y: Any, n_classes: Any, prior: Any) -> tuple[Array, NDArray[np.int64], Any]:
    """Inputs (n, d), labels (n,) and the hyper-parameters of n_classes classes, or a ValueError."""
    X = points(X, "X")
    n, d = X.shape
    if count(n_classes, "n_classes") < 2:
        raise ValueError(f"n_classes: found {n_classes}, expected at least 2")
    labels = integers(y, "y")
    if labels.shape != (n,):
        raise ValueError(f"y: found shape {labels.shape}, expected ({n},)")
    if np.any(labels < 0) or np.any(labels >= n_classes):
        wrong = labels[(labels < 0) | (labels >= n_classes)][0]
        raise ValueError(f"y: found the label {wrong}, expected 0..{n_classes - 1}")
    shapes = {"variance": (n_classes,), "lengthscales": (n_classes, d), "noise": (n_classes,), "jitter": (n_classes,)}
    checked = []
    for name, value in zip(shapes, prior, strict=True):
        result = array(value, name, len(shapes[name]))
        if result.shape != shapes[name]:
            raise ValueError(f"{name}: found shape {result.shape}, expected {shapes[name]}")
        zero_allowed = name in ("noise", "jitter")
        if np.any(result < 0.0) or (not zero_allowed and np.any(result == 0.0)):
            raise ValueError(f"{name}: found {np.min(result):.6g}, expected {'>= 0' if zero_allowed else '> 0'}")
        if not zero_allowed:
            within_range(result, name)
        if name != "lengthscales" and np.max(result) > _LARGEST:
            raise ValueError(f"{name}: found {np.max(result):.6g}, expected at most {_LARGEST:g}")
        checked.append(result)
    return X, labels.astype(np.int64), type(prior)(*checked)
