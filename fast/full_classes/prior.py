"""Full Gaussian process priors of several classes: covariances at the data, cross-covariances, gradients.

riihimaki2013, section 2. Classes with equal parameters share one matrix: with one kernel for all, K takes n^2 numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fast.core import inputs
from fast.core.checks import shown
from fast.core.hyper import MOST_CLASSES, ClassGradients, ClassHyper, class_hyper, class_labels
from fast.core.inputs import Hyper
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.kernel.kernels import entries_vjp, gram, se_ard
from fast.ledger import equation


class MulticlassPrior:
    """Data, labels and the prior covariance of each class. Memory O(n^2) for each distinct kernel."""

    def __init__(self, X: Any, y: Any, n_classes: int, hyper: ClassHyper, shared: bool) -> None:
        self.X = inputs.finite_rows("X", X)
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
        results = []
        for k in self.first:
            hyper = self.hyper.of(int(k))
            results.append(se_ard(X_test, self.X, hyper.variance, hyper.lengthscales))
        return [results[kind] for kind in self.kind]

    def test_var(self) -> FloatArray:
        """Prior variance of each class at a test point, noise included: (C,)."""
        return self.hyper.variance + self.hyper.noise

    def vjp(self, by_K: Any) -> ClassGradients:
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


def prepare(data: Data, prior: Prior) -> MulticlassPrior:
    """Data and priors, checked by name.

    Parameters
    ----------
    data : Data      X real and finite, at least two classes
    prior : Prior    full, of squared exponentials; one number or one vector stands for all classes; if it is shared,
                     gradients are summed over the classes
    """
    n_classes = inputs.count("n_classes", data.n_classes)
    if n_classes > MOST_CLASSES:
        raise ValueError(f"n_classes: found {n_classes}, expected at most {MOST_CLASSES}")
    if n_classes < 2:
        raise ValueError(f"n_classes: found {n_classes}, expected at least 2")
    if prior.Z is not None:
        raise ValueError("Z: found inducing points, expected None: these methods take full Gaussian processes")
    if prior.smoothness is not None:
        raise ValueError(f"smoothness: found {shown(prior.smoothness)}, expected None, the squared exponential")
    X = inputs.inputs("X", data.X)
    hyper = class_hyper(prior.variance, prior.lengthscales, prior.noise, prior.jitter, n_classes, X.shape[1])
    shared = inputs.flag("shared", prior.shared)
    if shared and any(np.unique(part, axis=0).shape[0] > 1 for part in hyper):
        raise ValueError("shared: found parameters that differ between the classes, expected one vector for all")
    return MulticlassPrior(X, data.y, n_classes, hyper, shared)
