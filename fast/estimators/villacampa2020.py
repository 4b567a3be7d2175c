"""Classifiers of villacampa2020 for two or more classes: pep, apep, arpep and rpapep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

from fast.core.declare import Options
from fast.estimators._classes import (
    ENDING,
    LABEL_ERRORS,
    POINTS,
    STEPS,
    TRAINING,
    BoundedClassifier,
    SteppingClassifier,
)
from fast.methods import apep, pep

_ALL_ROWS = '"batch": all rows in every step, parameters by L-BFGS-B'
_PARAMETERS = f"""
    Parameters
    ----------
    alpha : float                        power of the likelihood that is matched, in [1e-8, 1] or 0, which is VI
    epsilon : float                      probability of a random label, in [0, 1); > 0 if alpha is 0{{errors}}{POINTS}{
    TRAINING.format(batch=_ALL_ROWS, steps=STEPS)
}{ENDING}"""


@dataclass(kw_only=True, eq=False, repr=False)
class _AlphaClassifier(SteppingClassifier):
    """The four, whose options have the same names."""

    _by_ep: ClassVar[bool] = True

    alpha: float = 0.5
    epsilon: float = 1e-3

    def _options(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "epsilon": self.epsilon}


class PEPClassifier(_AlphaClassifier):
    __doc__ = f"""GP classification by power expectation propagation: pep of villacampa2020.

    A site for each row and class is kept, so there is no `partial_fit`.
    {_PARAMETERS.format(evidence="power EP's estimate of log p(y)", errors="")}"""
    _module: ClassVar[ModuleType] = pep
    _sure_sweeps: ClassVar[int] = 50  # some sites drift on where predictions no longer change
    _asked: ClassVar[Callable[..., Options]] = pep.PEPOptions


class _EnergyClassifier(_AlphaClassifier):
    _module: ClassVar[ModuleType] = apep
    _from_ep: ClassVar[bool] = True
    _asked: ClassVar[Callable[..., Options]] = apep.EnergyOptions
    _energy: ClassVar[str]

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"energy": self._energy}


class APEPClassifier(_EnergyClassifier):
    __doc__ = f"""GP classification by approximate power EP, one energy maximised over q: apep of villacampa2020.
    {_PARAMETERS.format(evidence="energy of all rows", errors="")}"""
    _energy: ClassVar[str] = "apep"


class ARPEPClassifier(_EnergyClassifier):
    __doc__ = f"""GP classification by approximate reparameterised power EP: arpep of villacampa2020.
    {_PARAMETERS.format(evidence="energy of all rows", errors="")}"""
    _energy: ClassVar[str] = "arpep"


@dataclass(kw_only=True, eq=False, repr=False)
class RPAPEPClassifier(BoundedClassifier, _EnergyClassifier):
    __doc__ = f"""GP classification by reparameterised approximate power EP: rpapep of villacampa2020.

    For comparisons with the paper; as its default is near variational inference, `RobustVIClassifier` answers alike.
    At alpha = 1 its energy may have no finite maximum; `stop_reason_` says so. It is near an estimate of log p(y) where
    alpha is small: at alpha = 1/2 its maximum is often above 0, and q there is surer than labels allow, although it
    passes better ones on its way. The default is near the limit alpha = 0, where all energies are one bound.

    Its optima are far from the prior and flat, and q takes many steps to them, on which predictions get no better: with
    learn="auto" each training makes fifty, or as many as 5e9 multiplications allow, at the parameters that EP found and
    from its q. Parameters that are named are learned by its own energy, which takes many times as long.
    {_PARAMETERS.format(evidence="energy of all rows", errors=f"; {LABEL_ERRORS}")}
    epsilon_ : float                     the probability of a random label that was used"""
    _energy: ClassVar[str] = "rpapep"
    _sure_sweeps: ClassVar[int] = 50

    alpha: float = 0.05
    epsilon: Any = "auto"

    def _options(self) -> dict[str, Any]:
        return _EnergyClassifier._options(self) | BoundedClassifier._options(self)
