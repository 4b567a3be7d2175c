"""scikit-learn classifiers: each method of `fast` behind fit, predict_proba and the rest of that interface.

`import fast` does not load scikit-learn; this package does.
"""

from fast.estimators.binary import EPGPClassifier, SVGPClassifier, XGPClassifier
from fast.estimators.izmailov import (
    JJClassifier,
    JJFullClassifier,
    JJHybridClassifier,
    SVIClassifier,
    TaylorClassifier,
)
from fast.estimators.multiclass import (
    LaplaceClassifier,
    NestedEPClassifier,
    NestedIEPClassifier,
    VBProbitClassifier,
)

__all__ = [
    "EPGPClassifier",
    "JJClassifier",
    "JJFullClassifier",
    "JJHybridClassifier",
    "LaplaceClassifier",
    "NestedEPClassifier",
    "NestedIEPClassifier",
    "SVGPClassifier",
    "SVIClassifier",
    "TaylorClassifier",
    "VBProbitClassifier",
    "XGPClassifier",
]
