"""Full Gaussian process priors of several classes: covariances at the data, cross-covariances, gradients.

riihimaki2013, section 2. Classes with equal parameters share one matrix: with one kernel for all, K takes n^2 numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fast import _inputs
from fast._inputs import Hyper
from fast._types import FloatArray, IntArray
from fast.kernels import entries_vjp, gram, se_ard
from fast.ledger import equation

_MOST_CLASSES = 2**31 - 1  # more than any array could have rows


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
        array = _inputs.real_numbers(name, value)
        if array.ndim == 0:
            array = np.broadcast_to(array, (n_classes,))
        if array.shape != (n_classes,):
            raise ValueError(f"{name}: found shape {array.shape}, expected ({n_classes},)")
        checked[name] = array
    lengths = _inputs.real_numbers("lengthscales", lengthscales)
    if lengths.ndim == 1:
        lengths = np.broadcast_to(lengths, (n_classes, lengths.size))
    if lengths.shape != (n_classes, n_columns):
        raise ValueError(f"lengthscales: found shape {lengths.shape}, expected ({n_classes}, {n_columns})")
    classes = [
        _inputs.hyper(checked["variance"][k], lengths[k], checked["noise"][k], checked["jitter"][k], n_columns)
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
    array = _inputs.real_array("y", y, 1)
    if array.shape != (n,):
        raise ValueError(f"y: found shape {array.shape}, expected ({n},)")
    if array.dtype.kind == "f":
        raise ValueError(f"y: found dtype {array.dtype}, expected integers 0 to {n_classes - 1}")
    codes = np.asarray(array).astype(np.int64)
    if codes.min() < 0 or codes.max() >= n_classes:
        raise ValueError(f"y: found labels {np.unique(codes)[:6].tolist()}, expected integers 0 to {n_classes - 1}")
    return codes


class MulticlassPrior:
    """Data, labels and the prior covariance of each class. Memory O(n^2) for each distinct kernel."""

    def __init__(self, X: Any, y: Any, n_classes: int, hyper: ClassHyper, shared: bool) -> None:
        self.X = _inputs.finite_rows("X", X)
        self.y = class_labels(y, self.X.shape[0], n_classes)
        self.n_classes, self.hyper, self.shared = n_classes, hyper, shared
        table = np.column_stack([hyper.variance, hyper.lengthscales, hyper.noise, hyper.jitter])
        first, self.kind = np.unique(table, axis=0, return_index=True, return_inverse=True)[1:]
        self.kind = self.kind.ravel()
        self.first = first
        self.matrices = [class_covariance(self.X, hyper.of(int(k))) for k in first]

    @property
    def n(self) -> int:
        """Number of data."""
        return self.y.size

    def K(self, index: int) -> FloatArray:
        """Covariance of the latent values of a class at the data, noise and jitter included: (n, n).

        Parameters
        ----------
        index : int    of the class
        """
        return self.matrices[self.kind[index]]

    def cross(self, X_test: FloatArray) -> list[FloatArray]:
        """Cross-covariances (t, n) of each class; classes with one kernel share one array.

        Parameters
        ----------
        X_test : (t, d)
        """
        found = []
        for k in self.first:
            hyper = self.hyper.of(int(k))
            found.append(se_ard(X_test, self.X, hyper.variance, hyper.lengthscales))
        return [found[kind] for kind in self.kind]

    def test_var(self) -> FloatArray:
        """Prior variance of each class at a test point, noise included: (C,)."""
        return self.hyper.variance + self.hyper.noise

    def pull_back(self, by_K: Any) -> ClassGradients:
        """Gradient with respect to the parameters from that with respect to each K (symmetric, overwritten).

        Time O(n^2 d) for each class, once in all where the classes share their parameters.

        Parameters
        ----------
        by_K : iterable of (n, n)    one a class
        """
        C, d = self.hyper.lengthscales.shape
        variance, lengthscales, noise = np.zeros(C), np.zeros((C, d)), np.zeros(C)
        total: FloatArray | None = None
        for k, gradient in enumerate(by_K):
            if self.shared:
                total = gradient if total is None else total + gradient
                continue
            variance[k], lengthscales[k], noise[k] = self._pull(gradient, k)
        if total is not None:
            variance[:], lengthscales[:], noise[:] = self._pull(total, 0)
        return ClassGradients(variance, lengthscales, noise)

    def _pull(self, gradient: FloatArray, index: int) -> tuple[float, FloatArray, float]:
        by_noise = float(np.trace(gradient))
        part = entries_vjp(gradient, self.X, self.X, self.hyper.of(index))
        return part.variance, part.lengthscales, by_noise


@equation("riihimaki2013", "u2-prior", "u2-se")
def class_covariance(X: FloatArray, hyper: Hyper) -> FloatArray:
    """One diagonal block of the prior covariance, K^k = k(X, X) + (noise + jitter) I: riihimaki2013, section 2.

    Time O(n^2 d), memory n^2.

    Parameters
    ----------
    X : (n, d)
    hyper         parameters of the class
    """
    return gram(X, hyper.variance, hyper.lengthscales, hyper.noise, hyper.jitter)


def prepare(
    X: Any,
    y: Any,
    n_classes: int,
    variance: Any,
    lengthscales: Any,
    noise: Any,
    jitter: Any,
    *,
    shared: bool = False,
) -> MulticlassPrior:
    """Data and priors, checked by name.

    Parameters
    ----------
    X : (n, d)                       real, finite
    y : (n,)                         ints 0..C-1
    n_classes : int                  C >= 2
    variance, noise, jitter : (C,)   > 0, >= 0, >= 0; a number stands for all classes
    lengthscales : (C, d)            > 0; (d,) stands for all classes
    shared : bool                    one parameter vector: gradients are summed over the classes
    """
    n_classes = _inputs.count("n_classes", n_classes)
    if n_classes > _MOST_CLASSES:
        raise ValueError(f"n_classes: found {n_classes}, expected at most {_MOST_CLASSES}")
    if n_classes < 2:
        raise ValueError(f"n_classes: found {n_classes}, expected at least 2")
    X = _inputs.inputs("X", X)
    hyper = class_hyper(variance, lengthscales, noise, jitter, n_classes, X.shape[1])
    shared = _inputs.flag("shared", shared)
    if shared and any(np.unique(part, axis=0).shape[0] > 1 for part in hyper):
        raise ValueError("shared: found parameters that differ between the classes, expected one vector for all")
    return MulticlassPrior(X, y, n_classes, hyper, shared)
