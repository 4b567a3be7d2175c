"""The classifiers of `fast.estimators`, their documented settings, and a small problem for each.

Labels are text whose order is not that of the codes, and codes are given to the method by the judge: column j of a
probability belongs to the j-th label in the order of the alphabet.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_NAMES = {2: ("pear", "fig"), 3: ("pear", "quince", "fig")}  # sorted: another order than 0, 1, 2, and no involution

# -- settings as documented ------------------------------------------------------------------------------------------

_COMMON: dict[str, Any] = {
    "variance": 1.0, "lengthscales": "median", "noise": 0.0, "jitter": 1e-6, "random_state": None, "verbose": 0,
    "learn": "auto", "prior": "weak", "max_time": None,
}  # fmt: skip
_SPARSE = {**_COMMON, "n_inducing": "auto", "inducing_points": None}
_STEPS: dict[str, Any] = {"training": "auto", "batch_size": 100, "max_iter": None, "learning_rate": 0.01}
_TWO = {**_SPARSE, **_STEPS}
_QUADRATIC = {**_SPARSE, "smoothness": None}
_STAGED = {**_QUADRATIC, "n_upd": 3, "n_fun": 5, "tol": 1e-5, "max_iter": 100}
_CLASSES = {**_SPARSE, "noise": 0.1, "shared": False}
_ALPHA = {**_CLASSES, **_STEPS, "alpha": 0.5, "epsilon": 1e-3}
_FULL = {**_COMMON, "hyperparameters": "map", "max_iter": 100}


class Entry(NamedTuple):
    """A classifier: method id, paper, name, family, classes of its problem, modules of `fast`, documented defaults."""

    method: str
    paper: str
    name: str
    family: str  # "two", "quadratic", "adadelta", "classes", "full"
    n_classes: int
    modules: tuple[str, ...]  # of training on all rows, of training on mini-batches
    defaults: Mapping[str, Any]
    # of the method; the classifier's name for each is the same, or it has none
    fixed: Mapping[str, Any] = {}

    @property
    def cls(self) -> Any:
        """The classifier."""
        return getattr(importlib.import_module("fast.estimators"), self.name)

    @property
    def steps(self) -> bool:
        """Whether it can be trained on mini-batches."""
        return "training" in self.defaults


ENTRIES = (
    Entry("x-gpc", "wenzel2019", "XGPClassifier", "two", 2, ("x_gpc", "x_gpc_svi"), _TWO, {"rate": "adaptive"}),
    Entry("svgpc", "wenzel2019", "SVGPClassifier", "two", 2, ("svgpc", "svgpc_svi"), _TWO, {"rate": 0.1}),
    Entry("epgpc", "wenzel2019", "EPGPClassifier", "two", 2, ("epgpc", "epgpc_svi"), _TWO),
    Entry("vi-jj", "izmailov2016", "JJClassifier", "quadratic", 2, ("vi_jj", "fit"), _STAGED),
    Entry("vi-jj-hybrid", "izmailov2016", "JJHybridClassifier", "quadratic", 2, ("vi_jj", "fit_hybrid"), _STAGED),
    Entry("vi-taylor", "izmailov2016", "TaylorClassifier", "quadratic", 2, ("vi_taylor", "fit"), _STAGED),
    Entry(
        "vi-jj-full", "izmailov2016", "JJFullClassifier", "quadratic", 2, ("vi_jj", "fit_full"),
        {**_QUADRATIC, "tol": 1e-7, "max_iter": 500},
    ),
    Entry(
        "svi", "izmailov2016", "SVIClassifier", "adadelta", 2, ("svi",),
        {**_QUADRATIC, "jitter": 1e-3, "training": "auto", "batch_size": 50, "rate": 1.0, "max_iter": 1000},
    ),
    Entry(
        "ep", "villacampa2017", "EPClassifier", "classes", 3, ("ep",),
        {**_CLASSES, **_STEPS, "factors": "pairwise", "damping": 0.5},
    ),
    Entry(
        "sep", "villacampa2017", "SEPClassifier", "classes", 3, ("sep",),
        {**_CLASSES, **_STEPS, "count": "all", "damping": 0.5},
    ),
    Entry(
        "gfitc", "villacampa2017", "GFITCClassifier", "classes", 3, ("gfitc",),
        {**_CLASSES, "max_iter": None, "damping": 0.5},
    ),
    Entry(
        "vi-robust", "villacampa2017", "RobustVIClassifier", "classes", 3, ("vi_robust",),
        {**_CLASSES, **_STEPS, "epsilon": "auto"},
    ),
    Entry("pep", "villacampa2020", "PEPClassifier", "classes", 3, ("pep",), _ALPHA),
    Entry("apep", "villacampa2020", "APEPClassifier", "classes", 3, ("apep",), _ALPHA, {"energy": "apep"}),
    Entry("arpep", "villacampa2020", "ARPEPClassifier", "classes", 3, ("apep",), _ALPHA, {"energy": "arpep"}),
    Entry(
        "rpapep", "villacampa2020", "RPAPEPClassifier", "classes", 3, ("apep",),
        {**_ALPHA, "alpha": 0.05, "epsilon": "auto"}, {"energy": "rpapep"},
    ),
    Entry("nested-ep", "riihimaki2013", "NestedEPClassifier", "full", 3, ("nested_ep",), _FULL),
    Entry("nested-iep", "riihimaki2013", "NestedIEPClassifier", "full", 3, ("nested_iep",), _FULL),
    Entry("laplace", "riihimaki2013", "LaplaceClassifier", "full", 3, ("laplace",), _FULL),
    Entry("vb-probit", "riihimaki2013", "VBProbitClassifier", "full", 3, ("vb_probit",), _FULL),
)  # fmt: skip

# -- the problem -----------------------------------------------------------------------------------------------------


class Data(NamedTuple):
    """A small problem: text labels, and the codes that a method should be given for them."""

    X: Array  # (n, 2)
    labels: Array  # (n,) text
    codes: Array  # (n,) places of the labels in the alphabet
    X_new: Array  # (t, 2)
    new_labels: Array  # (t,)
    alphabet: tuple[str, ...]


def data(n_classes: int, n: int = 30, t: int = 9, seed: int = 3) -> Data:
    """Classes around centres that overlap, inputs of unequal spread."""
    rng = np.random.default_rng(seed)
    y = np.arange(n + t) % n_classes
    centres = np.array([[0.0, 0.0], [1.5, 0.4], [0.2, 1.6]])[:n_classes]
    X = (centres[y] + 0.7 * rng.normal(size=(n + t, 2))) * [1.0, 3.0]
    labels = np.array(_NAMES[n_classes])[y]
    alphabet = tuple(sorted(set(labels.tolist())))
    codes = np.array([alphabet.index(label) for label in labels])
    return Data(X[:n], labels[:n], codes[:n], X[n:], labels[n:], alphabet)


# -- differences -----------------------------------------------------------------------------------------------------


def difference(left: Any, right: Any) -> float:
    """Largest relative difference of two numbers or arrays; NaN equals NaN and None equals None."""
    if left is None or right is None or isinstance(left, (str, bool)) or isinstance(right, (str, bool)):
        return 0.0 if left is right or left == right else float("inf")
    a, b = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
        return float("inf")
    a, b = np.nan_to_num(a), np.nan_to_num(b)
    size = float(np.abs(b).max(initial=0.0))
    return float(np.abs(a - b).max(initial=0.0)) / (size or 1.0)
