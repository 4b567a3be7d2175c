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
from fast.estimators.villacampa2017 import EPClassifier, GFITCClassifier, RobustVIClassifier, SEPClassifier
from fast.estimators.villacampa2020 import APEPClassifier, ARPEPClassifier, PEPClassifier, RPAPEPClassifier

__all__ = [
    "APEPClassifier",
    "ARPEPClassifier",
    "EPClassifier",
    "EPGPClassifier",
    "GFITCClassifier",
    "JJClassifier",
    "JJFullClassifier",
    "JJHybridClassifier",
    "LaplaceClassifier",
    "NestedEPClassifier",
    "NestedIEPClassifier",
    "PEPClassifier",
    "RPAPEPClassifier",
    "RobustVIClassifier",
    "SEPClassifier",
    "SVGPClassifier",
    "SVIClassifier",
    "TaylorClassifier",
    "VBProbitClassifier",
    "XGPClassifier",
]
