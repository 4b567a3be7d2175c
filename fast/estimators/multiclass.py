"""Classifiers for two or more classes with full GPs: nested EP, its independent variant, Laplace, variational Bayes.

riihimaki2013, section 5.5: one kernel for all classes, parameters by type-II MAP with half-Student-t priors, or fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from fast.core import inputs
from fast.core.types import FloatArray, IntArray
from fast.core.values import Data, Prior
from fast.estimators._base import Fitted, GPClassifier, Start
from fast.full_classes.learning import ClassSearch, checked_hyperprior, half_t_scale, search
from fast.full_classes.prior import prepare
from fast.methods import laplace, nested_ep, nested_iep, vb_probit

_TOLERANCE = 1e-8  # of the inner iteration
_LEARNING_TOLERANCE = 1e-3  # of the slope in log parameters: far below what the data resolve
_DF = 4.0  # degrees of freedom: riihimaki2013, section 5.5
#: hyperprior by name -> whether lengthscales are divided by their start before the density sees them
_UNITS = {"half-student-t": True, "half-student-t-absolute": False}

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
    learn : tuple of str                 which ones "map" moves, out of "variance", "lengthscales", "noise"; () holds
                                         all, as "fixed" does
    hyperprior : str, None or mapping    prior of what is learned. "half-student-t": half-Student-t with 4 degrees of
                                         freedom and scale 10 on variance, noise and lengthscales divided by their
                                         start, so that the units of X do not count; "half-student-t-absolute": on
                                         lengthscales in the units of X, which suits inputs of size one; None: flat;
                                         or field -> (family, df, scale), lengthscales in the units of X, their scale a
                                         number or (d,). 10 is the root of the "variance equal to one hundred" of
                                         section 5.5; `fast.full_classes.learning.half_t_scale` has the other readings
    max_iter : int                       iterations of L-BFGS-B, or of the method where nothing is learned
    random_state : int, RandomState, None    of the subsample that the median distance is taken of
    verbose : int                        1: a line when training ends

    Attributes
    ----------
    classes_ : (C,)                      labels
    variance_, lengthscales_, noise_     parameters as learned
    log_evidence_ : float                {evidence}
    n_iter_, converged_, stop_reason_    how training ended
    jitter_spent_ : float                jitter added beyond `jitter`
    posterior_                           what the method returned
"""


class _Predictor:
    """Predictions of a posterior; an object and no closure, so that classifiers can be pickled."""

    def __init__(self, predict: Callable[..., Any], posterior: Any) -> None:
        self.predict, self.posterior = predict, posterior

    def __call__(self, X: Any) -> Any:
        return self.predict(self.posterior, X)


class _MulticlassClassifier(GPClassifier):
    """Training of the four; a subclass names its module."""

    _multi_class = True
    _module: ModuleType
    _evidence = "log_evidence"

    def __init__(
        self,
        *,
        variance: float = 1.0,
        lengthscales: Any = "median",
        noise: float = 0.0,
        jitter: float = 1e-6,
        hyperparameters: str = "map",
        learn: Any = ("variance", "lengthscales"),
        hyperprior: Any = "half-student-t",
        max_iter: int = 100,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.variance = variance
        self.lengthscales = lengthscales
        self.noise = noise
        self.jitter = jitter
        self.hyperparameters = hyperparameters
        self.learn = learn
        self.hyperprior = hyperprior
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def _start(self, X: Any, rng: np.random.RandomState) -> Start:
        if not isinstance(self.hyperprior, str):  # fields and scales, used or not
            checked_hyperprior(self.hyperprior, X.shape[1])
        return super()._start(X, rng)

    def _inducing(self, X: Any, lengthscales: FloatArray, rng: np.random.RandomState) -> None:
        return None

    def _learned(self, X: Any) -> tuple[str, ...]:
        named = super()._learned(X)
        return named if self.hyperparameters == "map" else ()

    def _laws(self, start: Start) -> Any:
        """Priors of what is learned; under the default one lengthscales count in units of their start."""
        if not isinstance(self.hyperprior, str):
            return self.hyperprior
        scale = half_t_scale()
        law = ("half-student-t", _DF, scale)
        units = start.lengthscales if _UNITS[self.hyperprior] else 1.0
        return {"variance": law, "lengthscales": ("half-student-t", _DF, scale * units), "noise": law}

    def _warm(self, posterior: Any) -> Any:
        """Where the next run of the method starts."""
        raise NotImplementedError

    def _train(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        prior = prepare(Data(X, codes, len(self.classes_)), Prior(*start, shared=True))
        max_iter = inputs.count("max_iter", self.max_iter)
        module, evidence = self._module, self._evidence
        learn, own = self._learned(X), type(module.DEFAULTS)
        if learn:
            found = search(
                prior,
                lambda here, warm: module.converge(here, own(tolerance=_TOLERANCE), start=warm),
                lambda at: (getattr(at, evidence), module.gradients(at)),
                ClassSearch(
                    learn=learn,
                    hyperprior=self._laws(start),
                    max_iterations=max_iter,
                    learning_tolerance=_LEARNING_TOLERANCE,
                ),
                warm_start=self._warm,
            )
            posterior, reason = found.posterior, found.reason
            n_iter, converged = found.trace.size, found.converged and posterior.converged
            if not posterior.converged:
                reason = f"the method did not converge at the best parameters: residual {posterior.residual:.2g}"
        else:
            posterior = module.converge(prior, own(tolerance=_TOLERANCE, max_iterations=max_iter))
            n_iter, converged = posterior.iterations, posterior.converged
            reason = "fixed point reached" if converged else "iteration limit reached"
        hyper = posterior.prior.hyper.of(0)
        value = getattr(posterior, evidence)
        fitted = Fitted(
            _Predictor(module.predict, posterior), posterior, hyper.variance, hyper.lengthscales, hyper.noise, None,
            np.nan if value is None else value, n_iter, converged, reason,
        )  # fmt: skip
        if callback is not None:
            self._keep(fitted)
            callback(self)
        return fitted


class NestedEPClassifier(_MulticlassClassifier):
    __doc__ = f"""GP classification by nested EP with all couplings between classes, multinomial probit: riihimaki2013.
    {_PARAMETERS.format(evidence="EP's estimate of log p(y)")}"""
    _module = nested_ep

    def _warm(self, posterior: Any) -> Any:
        return posterior.alpha_tilde, posterior.beta_tilde


class NestedIEPClassifier(_MulticlassClassifier):
    __doc__ = f"""GP classification by nested EP with independent classes, multinomial probit: riihimaki2013.
    {_PARAMETERS.format(evidence="EP's estimate of log p(y)")}"""
    _module = nested_iep

    def _warm(self, posterior: Any) -> Any:
        return nested_iep.warm(posterior)


class LaplaceClassifier(_MulticlassClassifier):
    __doc__ = f"""GP classification by Laplace's approximation of the softmax model: riihimaki2013, section 4.1.
    {_PARAMETERS.format(evidence="Laplace's estimate of log p(y)")}"""
    _module = laplace

    def _warm(self, posterior: Any) -> Any:
        return posterior.mode.slope


class VBProbitClassifier(_MulticlassClassifier):
    __doc__ = f"""GP classification by factorised variational Bayes, multinomial probit: riihimaki2013, section 4.3.
    {_PARAMETERS.format(evidence="lower bound on log p(y), every constant in it")}"""
    _module, _evidence = vb_probit, "elbo"

    def _warm(self, posterior: Any) -> Any:
        return posterior.posterior.weights
