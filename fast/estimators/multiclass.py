"""Classifiers for two or more classes with full GPs: nested EP, its independent variant, Laplace, variational Bayes.

riihimaki2013, section 5.5: one kernel for all classes, parameters by type-II MAP with half-Student-t priors, or fixed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from fast.core import inputs
from fast.core.ending import Watch, ended, ending, time_left
from fast.core.types import FloatArray, IntArray
from fast.core.values import Data, Prior
from fast.estimators._base import ROW_WORTH, GPClassifier
from fast.estimators._cost import seconds_of_iteration
from fast.estimators._guide import probit_parameters_by_ep, sample
from fast.estimators._hyper import Fitted, Start, fitted
from fast.full_classes.learning import ClassSearch, search
from fast.full_classes.prior import MulticlassPrior, prepare
from fast.methods import laplace, nested_ep, nested_iep, vb_probit

_TOLERANCE = 1e-8  # of the inner iteration
_LEARNING_INNER = (
    1e-4  # of it on the way to the best parameters: the evidence errs by its square, derivatives by as much
)
_LEARNING_ITERATIONS = 100  # of the method at parameters on the way, which count as refused where it has not converged
_LEARNING_TOLERANCE = 1e-3  # of the gradient in log parameters: far below what the data resolve
_PART = 400  # rows that learning sees first where there are half as many more

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
                                         by one factor first, then each if that pays; of more than 600
                                         rows, 400 with ten classes, a part decides on them
    prior : str, None or mapping         density of what is learned. "weak": see docs/classifiers.md; None: flat, the
                                         evidence alone decides; "half-student-t", "half-student-t-absolute": those of
                                         riihimaki2013, section 5.5, lengthscales in units of their start or of X; or
                                         field -> (family, df, scale), lengthscales in the units of X
    max_iter : int                       iterations of L-BFGS-B, or of the method where nothing is learned
    max_time : float or None             seconds after which training ends with the best state that it has, which
                                         `stop_reason_` says; None: no limit
    random_state : int, RandomState, None    of the rows that the median distance is taken of, and of the part
    verbose : int                        1: how far training is, at times that grow apart, and how it ended

    Attributes
    ----------
    classes_ : (C,)                      labels
    variance_, lengthscales_, noise_     parameters as learned; lengthscales in the units of X, infinite of a column
                                         that does not vary: new values there have no effect; of k copies of a column,
                                         in whatever units, sqrt(k) times what one would have
    hyper_ : dict                        label to what was learned of its latent function: variance,
                                         lengthscales in the units of X, noise
    log_hyperprior_ : float              log density of what was learned, 0 without a prior; not in log_evidence_
    log_evidence_ : float                {evidence}
    n_iter_, converged_, stop_reason_    how training ended
    jitter_spent_ : float                jitter added beyond `jitter`
    posterior_                           what the method returned, of the columns that vary, one of each set of copies
"""


@dataclass(kw_only=True, eq=False, repr=False)
class _MulticlassClassifier(GPClassifier):
    """Training of the four; fields are parameters, a subclass names its module."""

    _multi_class = True
    _by_ep: ClassVar[bool] = False  # learn="auto": parameters are those that EP finds
    _by_part: ClassVar[bool] = True  # a part of many rows comes first, to decide on them or to be near
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

    def _asks_ep(self) -> bool:
        """Whether EP finds the parameters, which are then held."""
        return self._by_ep and self._chooses()

    def _chooses(self) -> bool:
        """Whether nobody names parameters, to be learned or to be held."""
        return self.hyperparameters == "map" and self._free()

    def _guided(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState) -> Start:
        return probit_parameters_by_ep(self, X, codes, start, rng) if self._asks_ep() else start

    def _moves_lengthscales(self) -> bool:
        return self.hyperparameters == "map" and super()._moves_lengthscales()

    def _learned(self, X: Any) -> tuple[str, ...]:
        named = super()._learned(X)
        return named if self.hyperparameters == "map" and not self._asks_ep() else ()

    def _counted(self) -> tuple[str, ...]:
        return self._auto if self._asks_ep() else super()._counted()

    def _lengthscale_gradient(self, posterior: Any) -> FloatArray:
        gradient: FloatArray = self._module.gradients(posterior).lengthscales[0]
        return gradient

    def _warm(self, posterior: Any) -> Any:
        """Where the next run of the method starts."""
        raise NotImplementedError

    def _widened(self, part: Any, rows: IntArray, n: int) -> Any:
        """Where a run on n rows starts that another one on some of them came before; None: where it starts alone."""
        return None

    def _in_stages(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        """Of many rows a part decides on the parameters, with all its stages; all rows give the posterior there.

        Where EP has decided, the part is still where a method starts that takes long to get near its fixed point.
        Where max_time is too short for all rows by what the part takes, its posterior is the answer.
        """
        size = int(_PART * (3.0 / max(3, len(self.classes_))) ** (1.0 / 3.0))  # the same time for any number of classes
        if 2 * codes.size <= 3 * size:
            return super()._in_stages(X, codes, start, rng, callback)
        by_part, part, begin = self._by_part and self._chooses(), None, start
        limited = not math.isinf(time_left())
        if not (by_part or limited):
            return super()._in_stages(X, codes, start, rng, callback)
        rows = sample(codes, size, rng if by_part else np.random.RandomState(0))
        if by_part:
            with ending(None, worth=ROW_WORTH * size):  # what counts is a gain a row, of those that are looked at
                part = super()._in_stages(X[rows], codes[rows], start, rng, None)
            begin = start._replace(variance=part.variance, lengthscales=part.lengthscales, noise=part.noise)
        if limited:
            reduced = self._reduced(X, codes, begin, rows, part)
            if reduced is not None:
                return self._finish(reduced, callback)
        if part is None:
            return super()._in_stages(X, codes, start, rng, callback)
        near = self._widened(part.posterior, rows, codes.size)
        whole = self._at(X, codes, begin, _LEARNING_ITERATIONS, near)
        converged, reason = whole.converged and part.converged, part.reason if whole.converged else whole.reason
        whole = whole._replace(n_iter=part.n_iter + whole.n_iter, converged=converged, reason=reason)
        return self._finish(whole, callback)

    def _reduced(self, X: Any, codes: IntArray, held: Start, rows: IntArray, part: Fitted | None) -> Fitted | None:
        """The posterior of some rows where all of them would take longer than there is time; None where they do not.

        What these rows take grows with n, and the factorisations in it with n^3.
        """
        started = time.perf_counter()
        tried = self._at(X[rows], codes[rows], held, _LEARNING_ITERATIONS)
        spent, n = time.perf_counter() - started, codes.size
        cubes = tried.n_iter * len(self.classes_) * seconds_of_iteration(n)
        needed = spent * n / rows.size + cubes
        if needed <= time_left():
            return None
        reason = (
            f"max_time of {self.max_time:g} s: all {n} rows would take some {needed:.2g} s more, {rows.size} of them "
            "were used; a sparse classifier, such as EPClassifier, takes all"
        )
        return (tried if part is None else part)._replace(converged=False, reason=reason)

    def _at(self, X: Any, codes: IntArray, held: Start, max_iterations: int, near: Any = None) -> Fitted:
        """The method at parameters that are held, to its fixed point if somebody named them, else while log Z moves."""
        prior = prepare(Data(X, codes, len(self.classes_)), Prior(*held, shared=True))
        with ending(None) as end:
            watch = Watch() if self._chooses() else None
            options = type(self._module.DEFAULTS)(
                tolerance=_TOLERANCE,
                max_iterations=max_iterations,
                callback=None if watch is None else lambda progress: watch.after(progress.objective),
            )
            posterior = self._module.converge(prior, options, start=near)
        converged = posterior.converged or bool(end.stopped)
        reason = "fixed point reached" if posterior.converged else ended() or end.stopped or "iteration limit reached"
        return self._of(posterior, posterior.iterations, converged, reason)

    def _of(self, posterior: Any, n_iter: int, converged: bool, reason: str) -> Fitted:
        value = getattr(posterior, self._evidence)
        end = np.nan if value is None else value, n_iter, converged, reason
        return fitted(self._predicting(), posterior, posterior.prior.hyper.of(0), None, *end)

    def _train(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        max_iter = inputs.count("max_iter", self.max_iter)
        module, evidence = self._module, self._evidence
        learn, own, density = self._learned(X), type(module.DEFAULTS), self._density
        if not learn:
            return self._finish(self._at(X, codes, start, max_iter), callback)
        prior = prepare(Data(X, codes, len(self.classes_)), Prior(*start, shared=True))
        on_the_way = own(tolerance=_LEARNING_INNER, max_iterations=_LEARNING_ITERATIONS)

        def converge(here: MulticlassPrior, warm: Any) -> Any:
            posterior = module.converge(here, on_the_way, start=warm)
            if not (warm is None or posterior.converged or ended()):
                raise ValueError(f"parameters: found no fixed point at them in {_LEARNING_ITERATIONS} iterations")
            return posterior

        optimum = search(
            prior,
            converge,
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
        if not posterior.converged:
            reason = ended() or f"the method did not converge at the best parameters: residual {posterior.residual:.2g}"
        converged = optimum.converged and posterior.converged
        return self._finish(self._of(posterior, optimum.trace.size, converged, reason), callback)


def _among(sites: FloatArray, rows: IntArray, n: int) -> FloatArray:
    """Sites (r, k) of some rows among those of n, 0 for the others."""
    result = np.zeros((n, sites.shape[1]))
    result[rows] = sites
    return result


class NestedEPClassifier(_MulticlassClassifier):
    __doc__ = f"""GP classification by nested EP with all couplings between classes, multinomial probit: riihimaki2013.
    {_PARAMETERS.format(evidence="EP's estimate of log p(y)")}"""
    _module: ClassVar[ModuleType] = nested_ep

    def _warm(self, posterior: Any) -> Any:
        return posterior.alpha_tilde, posterior.beta_tilde

    def _widened(self, part: Any, rows: IntArray, n: int) -> Any:
        return _among(part.alpha_tilde, rows, n), _among(part.beta_tilde, rows, n)


class NestedIEPClassifier(_MulticlassClassifier):
    __doc__ = f"""GP classification by nested EP with independent classes, multinomial probit: riihimaki2013.

    It may have no fixed point at parameters on a search's way: with learn="auto" they are those that EP finds for the
    same model, on 2000 rows at most. Parameters that are named are learned by its own evidence.
    {_PARAMETERS.format(evidence="EP's estimate of log p(y)")}"""
    _module: ClassVar[ModuleType] = nested_iep
    _by_ep: ClassVar[bool] = True

    def _warm(self, posterior: Any) -> Any:
        return nested_iep.warm(posterior)

    def _widened(self, part: Any, rows: IntArray, n: int) -> Any:
        warm = nested_iep.warm(part)
        pair = _among(warm.pair[0], rows, n), _among(warm.pair[1], rows, n)
        return nested_iep.Warm(pair, _among(warm.alpha_tilde, rows, n), _among(warm.beta_tilde, rows, n))


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
    learn="auto" the parameters are those that EP finds for the same model, on 2000 rows at most. Parameters that are
    named are learned by the bound.
    {_PARAMETERS.format(evidence="lower bound on log p(y), every constant in it")}"""
    _module: ClassVar[ModuleType] = vb_probit
    _by_ep: ClassVar[bool] = True
    _by_part: ClassVar[bool] = False  # it takes few sweeps from anywhere
    _evidence = "elbo"

    def _warm(self, posterior: Any) -> Any:
        return posterior.posterior.weights
