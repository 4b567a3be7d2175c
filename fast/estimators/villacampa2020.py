"""Classifiers of villacampa2020 for two or more classes: pep, apep, arpep and rpapep."""

from __future__ import annotations

from typing import Any

from fast.core import inputs
from fast.estimators._classes import ENDING, POINTS, STEPS, TRAINING, SteppingClassifier
from fast.methods import apep, pep

_FEW, _SHORT = 5, 10  # of rpapep: iterations of a search, and steps on q in each of its evaluations
_ALL_ROWS = '"batch": all rows in every step, parameters by L-BFGS-B'
_PARAMETERS = f"""
    Parameters
    ----------
    alpha : float                        power of the likelihood that is matched, in [1e-8, 1] or 0, which is VI
    epsilon : float                      probability of a random label, in [0, 1); > 0 if alpha is 0{POINTS}{
    TRAINING.format(batch=_ALL_ROWS, steps=STEPS)
}{ENDING}"""


class _AlphaClassifier(SteppingClassifier):
    """The four, whose options have the same names."""

    def __init__(
        self,
        *,
        alpha: float = 0.5,
        epsilon: float = 1e-3,
        n_inducing: Any = "auto",
        inducing_points: Any = None,
        variance: float = 1.0,
        lengthscales: Any = "median",
        noise: float = 0.1,
        jitter: float = 1e-6,
        shared: bool = False,
        learn: Any = "auto",
        training: str = "auto",
        batch_size: int = 100,
        max_iter: int | None = None,
        learning_rate: float = 0.01,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())

    def _options(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "epsilon": self.epsilon}


class PEPClassifier(_AlphaClassifier):
    __doc__ = f"""GP classification by power expectation propagation: pep of villacampa2020.

    A site for each row and class is kept, so there is no `partial_fit`.
    {_PARAMETERS.format(evidence="power EP's estimate of log p(y)")}"""
    _module = pep


class _EnergyClassifier(_AlphaClassifier):
    _module, _energy = apep, "apep"

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"energy": self._energy}


class APEPClassifier(_EnergyClassifier):
    __doc__ = f"""GP classification by approximate power EP, one energy maximised over q: apep of villacampa2020.
    {_PARAMETERS.format(evidence="energy of all rows")}"""
    _energy = "apep"


class ARPEPClassifier(_EnergyClassifier):
    __doc__ = f"""GP classification by approximate reparameterised power EP: arpep of villacampa2020.
    {_PARAMETERS.format(evidence="energy of all rows")}"""
    _energy = "arpep"


class RPAPEPClassifier(_EnergyClassifier):
    __doc__ = f"""GP classification by reparameterised approximate power EP: rpapep of villacampa2020.
    At alpha = 1 its energy may have no finite maximum; `stop_reason_` says so.

    Its optima are far from the prior and flat, and q takes many steps to them. So a search in batch is short unless
    `max_iter` says otherwise: {_FEW} iterations, each evaluation with up to {_SHORT} steps on q, of C n m^2 each.
    `converged_` is then False as a rule. On the 150 rows of iris that is a few seconds of one core, a fifteenth of what
    thirty iterations with 25 steps take.
    {_PARAMETERS.format(evidence="energy of all rows")}"""
    _energy = "rpapep"

    def _whole(self, learn: tuple[str, ...]) -> dict[str, Any]:
        whole = super()._whole(learn)
        if learn:
            steps = _FEW if self.max_iter is None else inputs.count("max_iter", self.max_iter)
            whole |= {"n_steps": steps, "max_iterations": _SHORT}
        return whole
