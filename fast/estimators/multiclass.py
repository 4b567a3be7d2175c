"""Classifiers for two or more classes with full GPs: nested EP, its independent variant, Laplace, variational Bayes.

riihimaki2013, section 5.5: one kernel for all classes, parameters by type-II MAP with half-Student-t priors, or fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from fast import _inputs
from fast._types import IntArray
from fast.defaults import default_lengthscales
from fast.estimators._base import Fitted, GPClassifier, Start
from fast.methods import laplace, nested_ep, nested_iep, vb_probit
from fast.multiclass_learning import half_t_scale, search
from fast.multiclass_prior import prepare
from fast.outer_loop import one_of

_TOLERANCE = 1e-8  # of the inner iteration
_LEARNING_TOLERANCE = 1e-3  # of the slope in log parameters: far below what the data resolve
_NO_NOISE = 1e-3  # where the logarithm of a noise that is to be learned starts

_PARAMETERS = """
    Full GPs: time C n^3 an iteration, memory C n^2.

    Parameters
    ----------
    variance : float                     of the squared exponential kernel, > 0: a start if learned
    lengthscales : "median", float, (d,) > 0; "median": median distance of two rows, per input
    noise : float                        added to the variance of every latent value, >= 0
    jitter : float                       on the diagonal of K_XX
    hyperparameters : str                "map": maximise evidence times prior; "fixed": as given
    learn : tuple of str                 which ones "map" moves, out of "variance", "lengthscales", "noise"
    hyperprior : "half-student-t", None or mapping    prior of what is learned: half-Student-t with 4 degrees of freedom
                                         and scale 10, none, or field -> (family, df, scale)
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
        one_of("hyperparameters", self.hyperparameters, ("map", "fixed"))
        d = X.shape[1]
        if isinstance(self.lengthscales, str):
            if self.lengthscales != "median":
                raise ValueError(f"lengthscales: found {self.lengthscales!r}, expected 'median', a number or ({d},)")
            lengths = default_lengthscales(X, np.random.default_rng(rng.randint(np.iinfo(np.int32).max)))
        else:
            lengths = np.array(np.broadcast_to(np.asarray(self.lengthscales, dtype=np.float64), (d,)))
        learned = self.hyperparameters == "map" and "noise" in self.learn
        hyper = _inputs.hyper(self.variance, lengths, self.noise or (_NO_NOISE if learned else 0.0), self.jitter, d)
        return Start(hyper.variance, hyper.lengthscales, hyper.noise, hyper.jitter, None)

    def _laws(self) -> Any:
        if isinstance(self.hyperprior, str):
            one_of("hyperprior", self.hyperprior, ("half-student-t",))
            return dict.fromkeys(("variance", "lengthscales", "noise"), ("half-student-t", 4.0, half_t_scale()))
        return self.hyperprior

    def _warm(self, posterior: Any) -> Any:
        """Where the next run of the method starts."""
        raise NotImplementedError

    def _train(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        prior = prepare(
            X, codes, len(self.classes_), start.variance, start.lengthscales, start.noise, start.jitter, shared=True
        )
        max_iter = _inputs.count("max_iter", self.max_iter)
        module, evidence = self._module, self._evidence
        learn = tuple(self.learn) if self.hyperparameters == "map" else ()
        if learn:
            found = search(
                prior,
                lambda here, warm: module.converge(here, tolerance=_TOLERANCE, start=warm),
                lambda at: (getattr(at, evidence), module.gradients(at)),
                learn=learn,
                hyperprior=self._laws(),
                max_iterations=max_iter,
                learning_tolerance=_LEARNING_TOLERANCE,
                warm_start=self._warm,
            )
            posterior, reason = found.posterior, found.reason
            n_iter, converged = found.trace.size, found.converged and posterior.converged
        else:
            posterior = module.converge(prior, tolerance=_TOLERANCE, max_iterations=max_iter)
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
