"""Every classifier of this package and the programs that people use, each with the settings that it comes with.

Peers have their defaults but where those would be unfair or fail: LogisticRegression may take 1000 iterations, SVC's
probabilities come from scikit-learn's calibration (its own option is being withdrawn), with as many folds as the rarest
class allows up to five, and GaussianProcessClassifier, whose default kernel is held, stands there a second time with a
variance and a lengthscale that it learns. GPflow's SVGP has what its own notebooks take: 100 inducing points of
k-means, one lengthscale for each input, L-BFGS.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.door.quoting import shown

Labels = NDArray[np.int64]

GP_PEERS = ("GPC", "GPC learned")  # whose seconds count as those of a GaussianProcessClassifier
_SUFFIX = "Classifier"
_GPFLOW_POINTS, _GPFLOW_ITERATIONS = 100, 200


def ours() -> tuple[str, ...]:
    """Names of the classifiers of `fast.estimators`, without their last word."""
    from fast import estimators

    return tuple(name.removesuffix(_SUFFIX) for name in estimators.__all__ if name.endswith(_SUFFIX))


def _class(name: str) -> Any:
    from fast import estimators

    return getattr(estimators, name + _SUFFIX)


def takes(name: str, n_classes: int) -> bool:
    """Whether a program takes so many classes."""
    if name in PEERS or n_classes == 2:
        return True
    from sklearn.utils import get_tags

    return bool(get_tags(_class(name)()).classifier_tags.multi_class)


def installed(name: str) -> bool:
    """Whether a program can be run here."""
    return name != "SVGP (GPflow)" or importlib.util.find_spec("gpflow") is not None


def names() -> tuple[str, ...]:
    """All programs: ours, then peers, installed or not."""
    return (*ours(), *PEERS)


def make(name: str, y: Labels, seed: int) -> Any:
    """A fresh program, which has fit and predict_proba.

    Parameters
    ----------
    name : str    one of `names()`
    y : (n,)      training labels, for folds of a calibration
    seed : int    its `random_state`, where it has one
    """
    if name in PEERS:
        return PEERS[name](y, seed)
    if name not in ours():
        raise ValueError(f"classifier: found {shown(name)}, expected one of {', '.join(names())}")
    return _class(name)(random_state=seed)


def _logistic(y: Labels, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000)


def _svc(y: Labels, seed: int) -> Any:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import SVC

    rarest = int(np.unique(y, return_counts=True)[1].min())
    return CalibratedClassifierCV(SVC(), cv=max(2, min(5, rarest)), ensemble=False)


def _gpc(y: Labels, seed: int) -> Any:
    from sklearn.gaussian_process import GaussianProcessClassifier

    return GaussianProcessClassifier(random_state=seed)


def _gpc_learned(y: Labels, seed: int) -> Any:
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    return GaussianProcessClassifier(ConstantKernel() * RBF(), random_state=seed)


def _forest(y: Labels, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=seed)


def _boosting(y: Labels, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed)


class _GPflow:
    """GPflow's SVGP behind fit and predict_proba; labels are codes 0 .. C - 1."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, X: NDArray[np.float64], y: Labels) -> _GPflow:
        """Train by L-BFGS on all rows."""
        import gpflow
        from sklearn.cluster import KMeans

        self.classes_, codes = np.unique(y, return_inverse=True)
        m = min(_GPFLOW_POINTS, len(np.unique(X, axis=0)))
        Z = KMeans(m, n_init=1, random_state=self.seed).fit(X).cluster_centers_
        C = len(self.classes_)
        likelihood = (
            gpflow.likelihoods.Bernoulli()
            if C == 2
            else gpflow.likelihoods.MultiClass(C, invlink=gpflow.likelihoods.RobustMax(C))
        )
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], np.sqrt(X.shape[1])))
        self.model = gpflow.models.SVGP(kernel, likelihood, Z, num_latent_gps=1 if C == 2 else C)
        loss = self.model.training_loss_closure((X, codes[:, None].astype(np.float64)))
        gpflow.optimizers.Scipy().minimize(
            loss, self.model.trainable_variables, options={"maxiter": _GPFLOW_ITERATIONS}
        )
        return self

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities (t, C); those of several classes are quadratures one by one, and are made to sum to one."""
        mean = np.asarray(self.model.predict_y(X)[0])
        return np.hstack([1.0 - mean, mean]) if mean.shape[1] == 1 else mean / mean.sum(axis=1, keepdims=True)


def _gpflow(y: Labels, seed: int) -> Any:
    import gpflow  # noqa: F401 - seconds of a fit count no loading

    return _GPflow(seed)


PEERS: dict[str, Callable[[Labels, int], Any]] = {
    "Logistic": _logistic,
    "SVC": _svc,
    "GPC": _gpc,
    "GPC learned": _gpc_learned,
    "Forest": _forest,
    "HistGB": _boosting,
    "SVGP (GPflow)": _gpflow,
}
