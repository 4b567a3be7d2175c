"""Classifiers for two or more classes with full GPs: nested EP, its independent variant, Laplace, variational Bayes.

riihimaki2013, section 5.5: one kernel for all classes, parameters by type-II MAP with half-Student-t priors, or fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from fast.core import inputs
from fast.core.ending import ended
from fast.core.types import FloatArray, IntArray
from fast.core.values import Data, Prior
from fast.estimators._base import GPClassifier
from fast.estimators._guide import probit_parameters_by_ep
from fast.estimators._hyper import Fitted, Start, fitted
from fast.full_classes.learning import ClassSearch, search
from fast.full_classes.prior import prepare
from fast.methods import laplace, nested_ep, nested_iep, vb_probit

_TOLERANCE = 1e-8  # of the inner iteration
_LEARNING_INNER = (
    1e-4  # of it on the way to the best parameters: the evidence errs by its square, derivatives by as much
)
_LEARNING_TOLERANCE = 1e-3  # of the gradient in log parameters: far below what the data resolve

_PARAMETERS = """
    Full GPs: time C n^3 an iteration, memory C n^2.

    Parameters
    ----------
    variance : float                     of the squared exponential kernel, > 0: a start if learned
    lengthscales : "median", float, (d,) > 0; "median": median distance of two rows, per input
    noise : float                        added to the variance of every latent value, >= 0: a start if learned, then
                                         0.001 stands for 0, which has no logarithm
    jitter : float                       on the diagonal of K_XX
    hyperparameters : str                "map": maximise evidence times prior; "fixed": as given
    learn : "auto" or tuple of str       names out of "variance", "lengthscales", "noise"; () for none, as "fixed";
                                         "scale" instead of "lengthscales": one factor of all of them.
                                         "auto": variance and lengthscales, under the prior "weak"
                                         by one factor first, then, in batch, each if that pays
    prior : str, None or mapping         density of what is learned. "weak": see docs/classifiers.md; None: flat, the
                                         evidence alone decides; "half-student-t", "half-student-t-absolute": those of
                                         riihimaki2013, section 5.5, lengthscales in units of their start or of X; or
                                         field -> (family, df, scale), lengthscales in the units of X
    max_iter : int                       iterations of L-BFGS-B, or of the method where nothing is learned
    max_time : float or None             seconds after which training ends with the best state that it has, which
                                         `stop_reason_` says; None: no limit
    random_state : int, RandomState, None    of the subsample that the median distance is taken of
    verbose : int                        1: how far training is, at times that grow apart, and how it ended

    Attributes
    ----------
    classes_ : (C,)                      labels
    variance_, lengthscales_, noise_     parameters as learned
    hyper_ : dict                        label to what was learned of its latent function: variance,
                                         lengthscales in the units of X, noise
    log_hyperprior_ : float              log density of what was learned, 0 without a prior; not in log_evidence_
    log_evidence_ : float                {evidence}
    n_iter_, converged_, stop_reason_    how training ended
    jitter_spent_ : float                jitter added beyond `jitter`
    posterior_                           what the method returned
"""


@dataclass(kw_only=True, eq=False, repr=False)
class _MulticlassClassifier(GPClassifier):
    """Training of the four; fields are parameters, a subclass names its module."""

    _multi_class = True
    _module: ClassVar[ModuleType]
    _evidence, _link = "log_evidence", "probit"

    variance: float = 1.0
    lengthscales: Any = "median"
    noise: float = 0.0
    jitter: float = 1e-6
    hyperparameters: str = "map"
    learn: Any = "auto"
    prior: Any = "weak"
    max_iter: int = 100
    max_time: float | None = None
    random_state: Any = None
    verbose: int = 0

    def _predicting(self) -> Callable[..., Any]:
        """What predicts from a posterior: (posterior, X)."""
        predict: Callable[..., Any] = self._module.predict
        return predict

    def _inducing(self, X: Any, lengthscales: FloatArray, rng: np.random.RandomState) -> None:
        return None

    def _learned(self, X: Any) -> tuple[str, ...]:
        named = super()._learned(X)
        return named if self.hyperparameters == "map" else ()

    def _lengthscale_gradient(self, posterior: Any) -> FloatArray:
        gradient: FloatArray = self._module.gradients(posterior).lengthscales[0]
        return gradient

    def _warm(self, posterior: Any) -> Any:
        """Where the next run of the method starts."""
        raise NotImplementedError

    def _train(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        prior = prepare(Data(X, codes, len(self.classes_)), Prior(*start, shared=True))
        max_iter = inputs.count("max_iter", self.max_iter)
        module, evidence = self._module, self._evidence
        learn, own, density = self._learned(X), type(module.DEFAULTS), self._density
        if learn:
            optimum = search(
                prior,
                lambda here, warm: module.converge(here, own(tolerance=_LEARNING_INNER), start=warm),
                lambda at: (getattr(at, evidence), module.gradients(at)),
                ClassSearch(
                    learn=learn,
                    hyperprior=None if density is None else density.densities,
                    map_density="value" if density is None else density.map_density,
                    max_iterations=max_iter,
                    learning_tolerance=_LEARNING_TOLERANCE,
                ),
                warm_start=self._warm,
            )
            reason = optimum.reason
            posterior = module.converge(
                optimum.posterior.prior, own(tolerance=_TOLERANCE), start=self._warm(optimum.posterior)
            )
            n_iter, converged = optimum.trace.size, optimum.converged and posterior.converged
            if not posterior.converged:
                reason = (
                    ended() or f"the method did not converge at the best parameters: residual {posterior.residual:.2g}"
                )
        else:
            posterior = module.converge(prior, own(tolerance=_TOLERANCE, max_iterations=max_iter))
            n_iter, converged = posterior.iterations, posterior.converged
            reason = "fixed point reached" if converged else ended() or "iteration limit reached"
        hyper = posterior.prior.hyper.of(0)
        value = getattr(posterior, evidence)
        end = np.nan if value is None else value, n_iter, converged, reason
        return self._finish(fitted(self._predicting(), posterior, hyper, None, *end), callback)


class NestedEPClassifier(_MulticlassClassifier):
    __doc__ = f"""GP classification by nested EP with all couplings between classes, multinomial probit: riihimaki2013.
    {_PARAMETERS.format(evidence="EP's estimate of log p(y)")}"""
    _module: ClassVar[ModuleType] = nested_ep

    def _warm(self, posterior: Any) -> Any:
        return posterior.alpha_tilde, posterior.beta_tilde


class NestedIEPClassifier(_MulticlassClassifier):
    __doc__ = f"""GP classification by nested EP with independent classes, multinomial probit: riihimaki2013.
    {_PARAMETERS.format(evidence="EP's estimate of log p(y)")}"""
    _module: ClassVar[ModuleType] = nested_iep

    def _warm(self, posterior: Any) -> Any:
        return nested_iep.warm(posterior)


class LaplaceClassifier(_MulticlassClassifier):
    __doc__ = f"""GP classification by Laplace's approximation of the softmax model: riihimaki2013, section 4.1.

    Predictions are around the mean of the latent values to first order (`fast.methods.laplace.mean_corrected`), as the
    mode is far from it where labels are nearly sure; `fast.methods.laplace.predict` has those around the mode.
    {_PARAMETERS.format(evidence="Laplace's estimate of log p(y)")}"""
    _module: ClassVar[ModuleType] = laplace
    _link = "softmax"

    def _predicting(self) -> Callable[..., Any]:
        return laplace.predict_mean_corrected

    def _warm(self, posterior: Any) -> Any:
        return posterior.mode.derivative


class VBProbitClassifier(_MulticlassClassifier):
    __doc__ = f"""GP classification by factorised variational Bayes, multinomial probit: riihimaki2013, section 4.3.

    The bound is the less tight the larger the variance, and prefers one at which nearly nothing is learned: with
    learn="auto" the parameters are those that EP finds for the same model, on 400 rows at most. Parameters that are
    named are learned by the bound.
    {_PARAMETERS.format(evidence="lower bound on log p(y), every constant in it")}"""
    _module: ClassVar[ModuleType] = vb_probit
    _evidence = "elbo"

    def _asks_ep(self) -> bool:
        """Whether EP finds the parameters, which are then held."""
        return self.hyperparameters == "map" and isinstance(self.learn, str) and self.learn == "auto"

    def _guided(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState) -> Start:
        return probit_parameters_by_ep(self, X, codes, start, rng) if self._asks_ep() else start

    def _learned(self, X: Any) -> tuple[str, ...]:
        return () if self._asks_ep() else super()._learned(X)

    def _counted(self) -> tuple[str, ...]:
        return self._auto if self._asks_ep() else super()._counted()

    def _warm(self, posterior: Any) -> Any:
        return posterior.posterior.weights
