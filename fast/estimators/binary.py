"""Binary classifiers: x-gpc (logit, Pólya-Gamma), svgpc (probit, variational) and epgpc (probit, EP)."""

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
from fast.estimators._base import _FEW, GPClassifier, _entry
from fast.estimators._hyper import Fitted, Start, fitted
from fast.methods import epgpc, epgpc_svi, svgpc, svgpc_svi, x_gpc, x_gpc_svi
from fast.one_latent.online import Known, Online, OnlineOptions, OnlinePosterior

_PARAMETERS = """
    Parameters
    ----------
    n_inducing : "auto", int or None     inducing points, placed by k-means++; "auto": on mini-batches 100, in batch
                                         sqrt(1e8/n) if that is more, at most every distinct row: all of 460 rows, 250
                                         of 1600; None: a full GP (trained in batch). More than there are distinct rows:
                                         that many are used, with a warning
    inducing_points : (m, d) or None     these instead
    variance : float                     of the squared exponential kernel, > 0: a start if learned
    lengthscales : "median", float, (d,) > 0; "median": median distance of two rows, per input
    noise : float                        added to the variance of every latent value, >= 0: a start if learned, then
                                         0.001 stands for 0, which has no logarithm
    jitter : float                       on the diagonal of K_ZZ; where K_ZZ has no Cholesky factor it is raised tenfold
                                         up to three times, with a warning: `jitter_spent_` says by how much
    learn : "auto" or tuple of str       names out of "variance", "lengthscales", "noise", "Z"; () for none;
                                         "scale" instead of "lengthscales": one factor of all of them.
                                         "auto": variance and lengthscales, under the prior "weak"
                                         by one factor first, then, in batch, each if that pays
    prior : str, None or mapping         density of what is learned. "weak": see docs/classifiers.md; None: flat, the
                                         evidence alone decides; "half-student-t", "half-student-t-absolute": those of
                                         riihimaki2013, section 5.5, lengthscales in units of their start or of X; or
                                         field -> (family, df, scale), lengthscales in the units of X
    training : str                       "batch": all rows in every step, parameters by L-BFGS-B; "minibatch":
                                         `batch_size` rows, parameters by Adam; "auto": batch, unless the rows and
                                         their projections are more than 2^25 numbers, some 300 000 rows
    batch_size : int                     rows of a mini-batch
    max_iter : int or None               iterations of L-BFGS-B, or steps on mini-batches; None: 100, or 10 epochs and
                                         at least 1000 steps
    learning_rate : float                of Adam
    max_time : float or None             seconds after which training ends with the best state that it has, which
                                         `stop_reason_` says; None: no limit
    random_state : int, RandomState, None    of inducing points and of the order of the rows
    verbose : int                        1: how far training is, at times that grow apart, and how it ended; 2: lines
                                         after so many steps as well

    Attributes
    ----------
    classes_ : (2,)                      labels; `decision_function` is positive where the second is more probable
    variance_, lengthscales_, noise_     parameters as learned; lengthscales in the units of X, infinite of a column
                                         that does not vary: new values there have no effect; of k copies of a column,
                                         in whatever units, sqrt(k) times what one would have
    hyper_ : dict                        label to what was learned of its latent function (the second label): variance,
                                         lengthscales in the units of X, noise
    log_hyperprior_ : float              log density of what was learned, 0 without a prior; not in log_evidence_
    inducing_points_ : (m, d) or None    as used, or learned
    log_evidence_ : float                {evidence}
    n_iter_, converged_, stop_reason_    how training ended
    jitter_spent_ : float                jitter added beyond `jitter`
    posterior_                           what the method returned, of the columns that vary, one of each set of copies
"""


@dataclass(kw_only=True, eq=False, repr=False)
class _BinaryClassifier(GPClassifier):
    """Training of the three; fields are parameters, a subclass names its modules."""

    _batch: ClassVar[ModuleType]
    _stochastic: ClassVar[ModuleType]
    _evidence: ClassVar[str]
    _learning: ClassVar[Any]  # class of the options of fit_learning
    _steps: ClassVar[Any]  # of fit on mini-batches

    n_inducing: Any = "auto"
    inducing_points: Any = None
    variance: float = 1.0
    lengthscales: Any = "median"
    noise: float = 0.0
    jitter: float = 1e-6
    learn: Any = "auto"
    prior: Any = "weak"
    training: str = "auto"
    batch_size: int = 100
    max_iter: int | None = None
    learning_rate: float = 0.01
    max_time: float | None = None
    random_state: Any = None
    verbose: int = 0

    def _lengthscale_gradient(self, posterior: Any) -> FloatArray:
        gradient: FloatArray = self._batch.gradients(posterior).lengthscales
        return gradient

    def _train(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        stochastic = self._on_batches(X.shape[0])
        if stochastic and start.Z is None:
            raise ValueError("n_inducing: found None with training on mini-batches, expected inducing points")
        train = self._train_on_batches if stochastic else self._train_on_all
        return train(X, codes, start, rng, callback)

    def _train_on_all(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        module, evidence = self._batch, self._evidence
        learn = self._learned(X)
        if learn:
            iterations = 100 if self.max_iter is None else inputs.count("max_iter", self.max_iter)
            options = self._learning(learn=learn, hyperprior=self._density, learning_iterations=iterations)
            posterior, learned = module.fit_learning(Data(X, codes), Prior(*start), options)
            n_iter, converged, reason = learned.trace.size, learned.converged, learned.reason
        else:
            posterior = module.fit(Data(X, codes), Prior(*start), module.DEFAULTS)
            n_iter, converged = posterior.iterations, posterior.converged
            reason = "fixed point reached" if converged else ended() or "iteration limit reached"
        prior = posterior.prior
        Z, value = None if start.Z is None else prior.Z, getattr(posterior, evidence)
        end = fitted(module.predict, posterior, prior.hyper, Z, value, n_iter, converged, reason)
        return self._finish(end, callback)

    def _n_steps(self, n: int) -> int:
        if self.max_iter is not None:
            return inputs.count("max_iter", self.max_iter)
        return max(1000, 10 * n // inputs.count("batch_size", self.batch_size))

    def _step_options(self, X: Any, rng: np.random.RandomState, **own: Any) -> Any:
        """Options of a run on mini-batches; own: those of the method."""
        return self._steps(
            batch_size=self.batch_size,
            n_steps=self._n_steps(X.shape[0]),
            learn=self._learned(X),
            hyperprior=self._density,
            learning_rate=self.learning_rate,
            seed=int(rng.randint(np.iinfo(np.int32).max)),
            **own,
        )

    def _train_on_batches(
        self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any
    ) -> Fitted:
        raise NotImplementedError

    def _watch(self, callback: Any, keep: Callable[[Any], None]) -> Callable[[Any], None] | None:
        """What a method calls after every step: the state so far becomes the classifier's, then the user is called."""
        if callback is None and self.verbose < 2:
            return None

        def after_step(progress: Any) -> None:
            if self.verbose > 1 and progress.iteration % 100 == 0:
                self._say(f"step {progress.iteration} of {progress.n_steps}")
            if callback is not None:
                keep(progress)
                callback(self)

        return after_step


class _NaturalGradientClassifier(_BinaryClassifier):
    """Mini-batches by natural gradients, and one batch at a time through `partial_fit`."""

    _rate: Any

    def _fitted(self, posterior: Any, log_evidence: float, reason: str) -> Fitted:
        end = log_evidence, posterior.iterations, posterior.converged, reason
        return fitted(self._stochastic.predict, posterior, posterior.hyper, posterior.Z, *end)

    def _train_on_batches(
        self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any
    ) -> Fitted:
        def keep(progress: Any) -> None:
            self._keep(self._fitted(OnlinePosterior(progress.state, progress.iteration), np.nan, "in training"))

        options = self._step_options(X, rng, rate=self._rate, callback=self._watch(callback, keep))
        posterior = self._stochastic.fit(Data(X, codes), Prior(*start), options)
        if posterior.diverged:
            raise ValueError(f"learning_rate: training diverged ({posterior.reason}), expected a smaller value")
        return self._fitted(posterior, self._stochastic.bound(posterior, X, codes), posterior.reason)

    @_entry
    def partial_fit(self, X: Any, y: Any, classes: Any = None, *, total_samples: int | None = None) -> Any:
        """One natural-gradient step on a batch X (b, d), y (b,), and one of Adam if parameters are learned.

        Goes on from where `fit` ended; without a fit, classes (C,) is needed in the first call and gives all labels,
        lengthscales are chosen from the first batch unless given, and inducing points from this and later ones, until
        there are n_inducing, unless given or learned. A batch may miss a class.
        A column counts from the first batch on in which it varies, copies apart from the first in which they differ;
        where the first batch has one or two rows, all columns count at once.
        total_samples: rows that the batches stand for, no fewer than those of X. Give it where rows come again in later
        calls. None: the rows of `fit`, or those seen by `partial_fit` so far if they are more.

        What to expect, as rates follow from what q knows (`fast.one_latent.online.Online`): after `fit` a pass over its
        rows leaves the held-out log-likelihood within 2 % of what it was. From nothing, with total_samples, inducing
        points and lengthscales given, ten passes end at most 5 % above `fit`; where parameters are learned, a hundred
        passes.
        """
        first = not hasattr(self, "posterior_")
        if first and classes is None:
            raise ValueError("classes: found None in the first call of partial_fit, expected all labels")
        X, codes = self._checked_batch(X, y, classes, first=first)
        wanted = self._checked_total(total_samples, X.shape[0])
        online = getattr(self, "_online", None)
        if online is None:
            self._rows = 0
            online = self._begin(self._seen(X, _FEW)) if first else self._continue()
        rows = self._rows + X.shape[0]
        total = max(rows, self._fit_rows) if wanted is None else wanted
        room = self._room(len(online.posterior.Z)) if hasattr(self, "_online") else 0
        here = online.posterior
        with self._or_as_before(), online.whole():
            X = self._admitted(
                X, here.hyper.lengthscales, here.Z,
                lambda lengths, Z: online.in_columns(lengths, Z, self._moved, self._density),
            )  # fmt: skip
            if room:
                online.grow(online.candidates(np.array(X, dtype=np.float64), room))
            online.step(X, np.where(codes == 1, 1.0, -1.0), total)
        self._online, self._rows = online, rows
        posterior = self._online.posterior
        self._keep(self._fitted(posterior, self._online.estimate, f"{posterior.iterations} batches seen"))
        return self

    def _begin(self, X: Any) -> Online:
        start = self._first_start(X)
        if start.Z is None:
            raise ValueError("n_inducing: found None in partial_fit, expected inducing points")
        return self._at(start, None)

    def _continue(self) -> Online:
        """From where `fit` ended."""
        if self.inducing_points_ is None:
            raise ValueError("n_inducing: found None in partial_fit, expected inducing points")
        lengthscales, Z = self._columns.own(self.lengthscales_), self._columns.chosen(self.inducing_points_)
        start = Start(self.variance_, lengthscales, self.noise_, self.jitter + self.jitter_spent_, Z)
        return self._at(start, Known(*self._whitened(self.posterior_), self._fit_rows))

    def _at(self, start: Start, known: Known | None) -> Online:
        options = OnlineOptions(learn=self._moved, learning_rate=self.learning_rate, hyperprior=self._density)
        return Online(self._likelihood(), Prior(*start), options, known)

    def _whitened(self, posterior: Any) -> tuple[FloatArray, FloatArray]:
        """R and p of q(v), from a posterior of either module."""
        if hasattr(posterior, "state"):
            return posterior.state.factor, posterior.state.weights
        inner = posterior.evaluation if hasattr(posterior, "evaluation") else posterior.sites
        return inner.factor, inner.weights

    def _likelihood(self) -> Any:
        raise NotImplementedError


class XGPClassifier(_NaturalGradientClassifier):
    __doc__ = f"""Binary GP classification with the logit link and Pólya-Gamma variables: x-gpc of wenzel2019.

    Batch training runs coordinate ascent to its fixed point, mini-batches take natural gradients in closed form with an
    adaptive rate.
    {_PARAMETERS.format(evidence="lower bound on log p(y), every constant in it")}"""
    _batch: ClassVar[ModuleType] = x_gpc
    _stochastic: ClassVar[ModuleType] = x_gpc_svi
    _evidence, _rate, _link = "elbo", "adaptive", "logit"
    _learning, _steps = x_gpc.XGPCLearning, x_gpc_svi.XGPCSteps

    def _likelihood(self) -> Any:
        return x_gpc_svi.PolyaGamma()


class SVGPClassifier(_NaturalGradientClassifier):
    __doc__ = f"""Binary variational GP classification with the probit link and natural gradients: svgpc of wenzel2019.
    {_PARAMETERS.format(evidence="lower bound on log p(y), every constant in it")}"""
    _batch: ClassVar[ModuleType] = svgpc
    _stochastic: ClassVar[ModuleType] = svgpc_svi
    _evidence, _rate, _link = "elbo", 0.1, "probit"
    _learning, _steps = svgpc.SVGPCLearning, svgpc_svi.SVGPCSteps

    def _likelihood(self) -> Any:
        return svgpc_svi.Probit()


class EPGPClassifier(_BinaryClassifier):
    __doc__ = f"""Binary expectation propagation with the probit link and inducing points: epgpc of wenzel2019.

    A site for each row is kept, so there is no `partial_fit`.
    {_PARAMETERS.format(evidence="EP's estimate of log p(y) under the FITC prior")}"""
    _batch: ClassVar[ModuleType] = epgpc
    _stochastic: ClassVar[ModuleType] = epgpc_svi
    _evidence, _link = "log_evidence", "probit"
    _learning, _steps = epgpc.EPGPCLearning, epgpc_svi.EPGPCSteps

    def _train_on_batches(
        self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any
    ) -> Fitted:
        def keep(progress: Any) -> None:
            run = progress.run
            self._keep(
                Fitted(
                    run.predict, run, run.hyper.variance, run.hyper.lengthscales, run.hyper.noise, run.Z, np.nan,
                    progress.iteration, False, "in training",
                )
            )  # fmt: skip

        # a moved kernel meets all n sites twice an epoch: that costs as much as the epoch's own steps
        rebuild_every = max(1, X.shape[0] // (2 * self.batch_size))
        options = self._step_options(X, rng, rebuild_every=rebuild_every, callback=self._watch(callback, keep))
        run = epgpc_svi.fit(Data(X, codes), Prior(*start), options)
        if run.diverged:
            raise ValueError(f"learning_rate: training diverged ({run.reason}), expected a smaller value")
        return self._fitted(run.posterior, run.iterations, run.converged, run.reason)

    def _fitted(self, posterior: Any, n_iter: int, converged: bool, reason: str) -> Fitted:
        prior, end = posterior.prior, (posterior.log_evidence, n_iter, converged, reason)
        return fitted(epgpc.predict, posterior, prior.hyper, prior.Z, *end)
