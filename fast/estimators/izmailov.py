"""Binary classifiers of izmailov2016: svi, vi-jj, vi-jj-full, vi-jj-hybrid and vi-taylor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fast.core.ending import ended
from fast.core.types import FloatArray, IntArray
from fast.core.values import Data, Prior
from fast.estimators._base import GPClassifier, cluster_centres
from fast.estimators._hyper import Fitted, Start, fitted
from fast.methods import svi, vi_jj, vi_taylor

_PARAMETERS = """
    Parameters
    ----------
    n_inducing : "auto", int or None     inducing points, centres of k-means; "auto": on mini-batches 100, in batch
                                         sqrt(1e8/n) if that is more, at most every distinct row: all of 460 rows, 250
                                         of 1600; None: a full GP. More than there are distinct rows: that many are
                                         used, with a warning
    inducing_points : (m, d) or None     these instead
    variance : float                     of the kernel, > 0: a start if learned
    lengthscales : "median", float, (d,) > 0; "median": median distance of two rows, per input
    smoothness : float or None           of a Matérn kernel; None: squared exponential
    noise : float                        added to the variance of every latent value, >= 0: a start if learned, then
                                         0.001 stands for 0, which has no logarithm
    jitter : float                       on the diagonal of K_ZZ; where K_ZZ has no Cholesky factor it is raised tenfold
                                         up to three times, with a warning: `jitter_spent_` says by how much
    learn : "auto" or tuple of str       names out of "variance", "lengthscales", "noise"; () for none;
                                         "scale" instead of "lengthscales": one factor of all of them.
                                         "auto": variance and lengthscales, under the prior "weak"
                                         by one factor first, then, in batch, each if that pays
    prior : str, None or mapping         density of what is learned. "weak": see docs/classifiers.md; None: flat, the
                                         evidence alone decides; "half-student-t", "half-student-t-absolute": those of
                                         riihimaki2013, section 5.5, lengthscales in units of their start or of X; or
                                         field -> (family, df, scale), lengthscales in the units of X{own}
    tol : float                          relative change of the objective at which learning stops
    max_iter : int                       iterations of learning
    max_time : float or None             seconds after which training ends with the best state that it has, which
                                         `stop_reason_` says; None: no limit
    random_state : int, RandomState, None    of inducing points and of the order of the rows
    verbose : int                        1: how far training is, at times that grow apart, and how it ended

    Attributes
    ----------
    classes_ : (2,)                      labels; `decision_function` is positive where the second is more probable
    variance_, lengthscales_, noise_     parameters as learned; lengthscales in the units of X, infinite of a column
                                         that does not vary: new values there have no effect; of k copies of a column,
                                         in whatever units, sqrt(k) times what one would have
    hyper_ : dict                        label to what was learned of its latent function (the second label): variance,
                                         lengthscales in the units of X, noise
    log_hyperprior_ : float              log density of what was learned, 0 without a prior; not in log_evidence_
    inducing_points_ : (m, d) or None    as used
    log_evidence_ : float                {evidence}
    n_iter_, converged_, stop_reason_    how training ended
    jitter_spent_ : float                jitter added beyond `jitter`
    posterior_                           what the method returned, of the columns that vary, one of each set of copies
"""
_STAGES = """
    n_upd : int                          closed updates before each search
    n_fun : int                          evaluations of each search"""
_BATCHES = """
    training : str                       "batch": all rows, to the maximum of the bound; "minibatch": `batch_size` rows
                                         a step; "auto": batch, unless the rows and their projections are more
                                         than 2^25 numbers, some 300 000 rows
    batch_size : int                     rows of a mini-batch
    rate : float                         factor on AdaDelta's steps"""
_BOUND = "lower bound on log p(y), every constant in it"
_TOL = "    tol : float                          relative change of the objective at which learning stops\n"
_STEPS = _PARAMETERS.format(own=_BATCHES, evidence=_BOUND).replace(_TOL, "").replace("iterations of learning", "steps")


@dataclass(kw_only=True, eq=False, repr=False)
class _Classifier(GPClassifier):
    """Starts and inducing points of the five; fields are parameters."""

    n_inducing: Any = "auto"
    inducing_points: Any = None
    variance: float = 1.0
    lengthscales: Any = "median"
    smoothness: float | None = None
    noise: float = 0.0
    jitter: float = 1e-6
    learn: Any = "auto"
    prior: Any = "weak"
    max_iter: int = 100
    max_time: float | None = None
    random_state: Any = None
    verbose: int = 0

    _link = "logit"

    def _inducing(self, X: Any, lengthscales: FloatArray, rng: np.random.RandomState) -> FloatArray | None:
        centres = super()._inducing(X, lengthscales, rng)
        if centres is None or self.inducing_points is not None:
            return centres
        distinct = np.unique(np.asarray(X[:], dtype=np.float64), axis=0)
        if len(centres) >= len(distinct):
            return centres  # every row is a centre
        return cluster_centres(distinct, lengthscales, len(centres), rng)

    def _prior(self, start: Start) -> Prior:
        return Prior(*start, smoothness=self.smoothness)


@dataclass(kw_only=True, eq=False, repr=False)
class _QuadraticClassifier(_Classifier):
    """Training of the four that replace the likelihood by quadratics."""

    _fit: ClassVar[Callable[..., Any]]
    _predict_with: ClassVar[Callable[..., Any]]
    _settings: ClassVar[Any]  # class of the options of the fit
    _gradients: ClassVar[Callable[..., Any]] = staticmethod(vi_jj.gradients)

    tol: float = 1e-5

    def _lengthscale_gradient(self, posterior: Any) -> FloatArray:
        gradient: FloatArray = type(self)._gradients(posterior).lengthscales
        return gradient

    def _options(self) -> Any:
        own = {name: getattr(self, name) for name in ("n_upd", "n_fun") if hasattr(self, name)}
        learn, density = self._moved, self._density
        return self._settings(learn=learn, hyperprior=density, tolerance=self.tol, max_iterations=self.max_iter, **own)

    def _train(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        cls = type(self)
        posterior = cls._fit(Data(X, codes), self._prior(start), self._options())
        hyper = posterior.prior.hyper
        learning = posterior.learning
        ends = ("fixed point reached", ended() or "iteration limit reached")
        reason = learning.reason if learning is not None and self._moved else ends[not posterior.converged]
        end = posterior.elbo, posterior.iterations, posterior.converged, reason
        return self._finish(fitted(cls._predict_with, posterior, hyper, start.Z, *end), callback)


@dataclass(kw_only=True, eq=False, repr=False)
class _StagedClassifier(_QuadraticClassifier):
    """Those that alternate closed updates and searches."""

    n_upd: int = 3
    n_fun: int = 5


class JJClassifier(_StagedClassifier):
    __doc__ = f"""Binary GP classification by Jaakkola and Jordan's bound, closed updates: vi-jj of izmailov2016.
    {_PARAMETERS.format(own=_STAGES, evidence=_BOUND)}"""
    _fit, _predict_with, _settings = staticmethod(vi_jj.fit), staticmethod(vi_jj.predict), vi_jj.JJOptions


class JJHybridClassifier(_StagedClassifier):
    __doc__ = f"""As JJClassifier, the search over local parameters too: vi-jj-hybrid of izmailov2016.
    {_PARAMETERS.format(own=_STAGES, evidence=_BOUND)}"""
    _fit, _predict_with = staticmethod(vi_jj.fit_hybrid), staticmethod(vi_jj.predict)
    _settings = vi_jj.JJHybridOptions


class TaylorClassifier(_StagedClassifier):
    __doc__ = f"""Binary GP classification by a second-order expansion at the mode: vi-taylor of izmailov2016.
    {_PARAMETERS.format(own=_STAGES, evidence="estimate of log p(y), every constant in it")}"""
    _fit, _predict_with = staticmethod(vi_taylor.fit), staticmethod(vi_taylor.predict)
    _settings, _gradients = vi_taylor.TaylorOptions, staticmethod(vi_taylor.gradients)


@dataclass(kw_only=True, eq=False, repr=False)
class JJFullClassifier(_QuadraticClassifier):
    __doc__ = f"""As JJClassifier, one search over parameters and local parameters: vi-jj-full of izmailov2016.
    {_PARAMETERS.format(own="", evidence=_BOUND)}"""
    _fit, _predict_with = staticmethod(vi_jj.fit_full), staticmethod(vi_jj.predict)
    _settings = vi_jj.JJFullOptions

    tol: float = 1e-7
    max_iter: int = 500


@dataclass(kw_only=True, eq=False, repr=False)
class SVIClassifier(_Classifier):
    __doc__ = f"""Binary GP classification by the variational bound of the logit link: svi of izmailov2016.

    Batch training goes to the maximum of the bound, mini-batches take steps of AdaDelta towards it.
    {_STEPS}"""

    jitter: float = 1e-3
    training: str = "auto"
    batch_size: int = 50
    rate: float = 1.0
    max_iter: int = 1000

    def _train(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        if not self._on_batches(X.shape[0]):
            return self._train_on_all(X, codes, start, callback)
        if start.Z is None:
            raise ValueError("n_inducing: found None with training on mini-batches, expected inducing points")

        def after_step(progress: Any) -> None:
            self._keep(self._fitted(progress.run, start.Z, np.nan, "in training"))
            callback(self)

        options = svi.SVISteps(
            learn=self._moved,
            hyperprior=self._density,
            batch_size=self.batch_size,
            rate=self.rate,
            n_steps=self.max_iter,
            seed=int(rng.randint(np.iinfo(np.int32).max)),
            callback=None if callback is None else after_step,
        )
        run = svi.fit_stochastic(Data(X, codes), self._prior(start), options)
        why = f"{ended()}, " if ended() else ""
        return self._fitted(run, start.Z, svi.bound(run, X, codes), f"{why}{run.iterations} steps made")

    def _lengthscale_gradient(self, posterior: Any) -> FloatArray:
        return svi.gradients(posterior).lengthscales

    def _train_on_all(self, X: Any, codes: IntArray, start: Start, callback: Any) -> Fitted:
        data, prior = Data(X, codes), self._prior(start)
        options = svi.SVIOptions(learn=self._moved, hyperprior=self._density, max_iterations=self.max_iter)
        if self._moved:
            posterior, learned = svi.fit_learning(data, prior, options)
            n_iter, converged, reason = learned.trace.size, learned.converged, learned.reason
        else:
            posterior, _ = svi.fit(data, prior, options)
            n_iter, converged = posterior.iterations, posterior.converged
            reason = "fixed point reached" if converged else ended() or "iteration limit reached"
        end = posterior.elbo, n_iter, converged, reason
        return self._finish(fitted(svi.predict, posterior, posterior.prior.hyper, start.Z, *end), callback)

    def _fitted(self, run: Any, Z: FloatArray | None, log_evidence: float, reason: str) -> Fitted:
        return fitted(svi.predict_run, run, run.hyper, Z, log_evidence, run.iterations, not ended(), reason)
