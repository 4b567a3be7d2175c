"""What the classifiers of villacampa2017 and villacampa2020 share: starts, schedules, inducing points by class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.declare import Options
from fast.core.ending import ENOUGH, ended
from fast.core.types import FloatArray, IntArray
from fast.core.values import Data, Prior
from fast.estimators._base import GPClassifier
from fast.estimators._guide import guide
from fast.estimators._hyper import Fitted, Start, fitted
from fast.sparse_classes.alpha_runs import left_out
from fast.sparse_classes.projections import ClassDistribution
from fast.sparse_classes.training import Trained

_TOLERANCE = 1e-8  # of the iteration on q where nothing is learned
_AT_EP = 1e-4  # of it at parameters that EP found
# At every step of a search q is brought this near its optimum, from where the best step so far has left it. Where
# labels are easy to tell apart q has far to go, slowly, and gains little: it gets so many steps at a time.
_LEARNING_TOLERANCE, _LEARNING_ITERATIONS = 1e-2, 25
_GRADIENT_TOLERANCE = 1e-2  # of the gradient in log parameters: far below what the data resolve
_SEARCH_STEPS = 30
_SWEEPS = 10_000
_WORK = 1e8  # multiplications, C n m^2, that each of the sweeps may take that are sure

POINTS = """
    n_inducing : "auto", int or None     inducing points, placed by k-means++; "auto": on mini-batches 50, in batch
                                         sqrt(1e8/(C n)) if that is more, at most every distinct row: with 3 classes all
                                         of 320 rows, 150 of 1500; None: one at every distinct row. More than there are
                                         distinct rows: that many are used, with a warning
    inducing_points : (m, d), (C, m, d) or None    these instead
    variance : float                     of the squared exponential kernels, > 0: a start if learned
    lengthscales : "median", float, (d,) > 0; "median": median distance of two rows, per input
    noise : float                        added to the variance of every latent value, >= 0: a start if learned, then
                                         0.001 stands for 0, which has no logarithm
    jitter : float                       on the diagonal of K_ZZ; where K_ZZ has no Cholesky factor it is raised tenfold
                                         up to three times, with a warning: `jitter_spent_` says by how much
    shared : bool                        one kernel and one Z for all classes, or one of each for every class
    learn : "auto" or tuple of str       names out of "variance", "lengthscales", "noise", "Z"; () for none;
                                         "scale" instead of "lengthscales": one factor of all of them.
                                         "auto": variance, noise and lengthscales, under the prior "weak"
                                         by one factor first, then, in batch, each if that pays; in batch EP learns
                                         them for SEP, RobustVI, PEP and the energies, which have its model, from 2000
                                         rows at most, and they are held; RobustVI and the energies start at its q
    prior : str, None or mapping         density of what is learned. "weak": see docs/classifiers.md; None: flat, the
                                         evidence alone decides; "half-student-t", "half-student-t-absolute": those of
                                         riihimaki2013, section 5.5, lengthscales in units of their start or of X; or
                                         field -> (family, df, scale), lengthscales in the units of X"""
TRAINING = """
    training : str                       {batch}; "minibatch": `batch_size` rows a step; "auto": batch,
                                         unless the rows and their projections are more than 2^25 numbers, some 300 000
                                         rows of two classes
    batch_size : int                     rows of a mini-batch
    max_iter : int or None               {steps}
    learning_rate : float                of Adam"""
STEPS = """iterations of L-BFGS-B, or of the method where nothing is learned, or steps; None: 30,
                                         or 10 000, or 10 epochs and at least 1000"""
ENDING = """
    max_time : float or None             seconds after which training ends with the best state that it has, which
                                         `stop_reason_` says; None: no limit
    random_state : int, RandomState, None    of inducing points and of the order of the rows
    verbose : int                        1: how far training is, at times that grow apart, and how it ended; 2: lines
                                         after so many steps as well

    Attributes
    ----------
    classes_ : (C,)                      labels
    inducing_points_ : (C, m, d)         of each class, as used or learned
    variance_, noise_ : (C,)             of each class, as learned
    hyper_ : dict                        label to what was learned of its latent function: variance,
                                         lengthscales in the units of X, noise
    log_hyperprior_ : float              log density of what was learned, 0 without a prior; not in log_evidence_
    lengthscales_ : (C, d)               of each class, as learned, in the units of X; infinite of a column that does
                                         not vary: new values there have no effect; of k copies of a column, in
                                         whatever units, sqrt(k) times what one would have
    log_evidence_ : float                {evidence}; NaN where it has no value
    n_iter_, converged_, stop_reason_    how training ended
    jitter_spent_ : float                jitter added beyond `jitter`
    posterior_                           what the method returned, of the columns that vary, one of each set of copies
"""


def _end_of_search(trained: Trained, tolerance: float, n_steps: int) -> str:
    """Why L-BFGS-B stopped, from what it left behind: its own message knows neither the tolerance on the derivative at
    the best parameters nor whether q converged there."""
    if trained.converged and trained.residual > tolerance:
        return ENOUGH
    if trained.converged:
        return f"gradient of the evidence below {tolerance:g}"
    if trained.residual <= tolerance and not ended():
        return "the iteration on q did not converge at the best parameters, though the evidence is flat there"
    limit = "iteration limit reached" if trained.iterations >= n_steps else "no step raises the evidence"
    end = ended() or limit
    return f"{end} with a gradient of {trained.residual:.2g}"


class Running(NamedTuple):
    """A posterior in training: all that predictions need."""

    run: Any


@dataclass(kw_only=True, eq=False, repr=False)
class ClassesClassifier(GPClassifier):
    """Training of the eight; fields are parameters, a subclass names its module and the class of its options."""

    n_inducing: Any = "auto"
    inducing_points: Any = None
    variance: float = 1.0
    lengthscales: Any = "median"
    noise: float = 0.1
    jitter: float = 1e-6
    shared: bool = False
    learn: Any = "auto"
    prior: Any = "weak"
    max_iter: int | None = None
    max_time: float | None = None
    random_state: Any = None
    verbose: int = 0

    _multi_class, _most_inducing, _by_rows = True, 50, True
    _link, _auto = "threshold", ("variance", "noise", "lengthscales")
    _by_ep: ClassVar[bool] = False  # learn="auto" in batch: parameters are those that EP finds
    _sure_sweeps: ClassVar[int] = _SWEEPS  # or steps, at parameters that EP found; more while they cost nothing
    _from_ep: ClassVar[bool] = False  # they start at the q that EP found with them: the method takes one
    _module: ClassVar[ModuleType]
    _asked: ClassVar[Callable[..., Options]]  # the class of the method's options

    # -- starts ----------------------------------------------------------------------------------------------------

    def _inducing(self, X: Any, lengthscales: FloatArray, rng: np.random.RandomState) -> FloatArray:
        given = self.inducing_points
        if given is not None:
            Z = self._given_points()
            if Z.ndim == 3:
                C, d = len(self.classes_), self._columns.group.size
                if Z.shape[0] != C or Z.shape[2] != d or Z.shape[1] == 0:
                    raise ValueError(f"inducing_points: found shape {Z.shape}, expected ({C}, m, {d}), m >= 1")
                return self._columns.chosen(Z)
        centres = super()._inducing(X, lengthscales, rng)
        return np.unique(np.asarray(X, dtype=np.float64), axis=0) if centres is None else centres

    # -- training --------------------------------------------------------------------------------------------------

    def _functions(self) -> int:
        return 1 if self.shared else len(self.classes_)

    def _lengthscale_gradient(self, posterior: Any) -> FloatArray:
        gradient: FloatArray = posterior.run.gradient().lengthscales
        return gradient

    def _asks_ep(self, n: int) -> bool:
        """Whether EP finds the parameters, which are then held."""
        return self._by_ep and self._free() and not self._on_batches(n)

    def _guided(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState) -> Start:
        if not self._asks_ep(X.shape[0]):
            return start
        result = guide(self, X, codes, start, rng, shared=self.shared)
        self._first_q: ClassDistribution | None = result.q if self._from_ep else None  # where training starts
        return result.start

    def _with_jitter(self, X: Any, codes: IntArray, rng: np.random.RandomState, callback: Any) -> Fitted:
        self._first_q = None
        try:
            return super()._with_jitter(X, codes, rng, callback)
        finally:
            self._first_q = None  # nothing to be pickled

    def _learned(self, X: Any) -> tuple[str, ...]:
        return () if self._asks_ep(X.shape[0]) else self._named(X)

    def _counted(self) -> tuple[str, ...]:
        return self._auto if self._asks_ep(self._fit_rows) else self._moved

    def _named(self, X: Any) -> tuple[str, ...]:
        """What is learned, whoever learns it."""
        return super()._learned(X)

    def _options(self) -> dict[str, Any]:
        """Of the method, whatever the training."""
        return {}

    def _affordable(self) -> int:
        """Sweeps at parameters that EP found: those that are sure, and more where they are cheap."""
        most = self._sure_sweeps * _WORK / (len(self.classes_) * self._fit_rows * self._fit_points**2)
        return max(self._sure_sweeps, min(_SWEEPS, int(most)))

    def _whole(self, learn: tuple[str, ...]) -> dict[str, Any]:
        """Of training on all rows: a fixed point, or L-BFGS-B around fixed points."""
        given = None if self.max_iter is None else inputs.count("max_iter", self.max_iter)
        if not learn:
            tolerance, most = (_AT_EP, self._affordable()) if self._free() and not self._held else (_TOLERANCE, _SWEEPS)
            return {"tolerance": tolerance, "max_iterations": given or most}
        steps = given or _SEARCH_STEPS
        return {
            "tolerance": _LEARNING_TOLERANCE,
            "max_iterations": _LEARNING_ITERATIONS,
            "learn_tolerance": _GRADIENT_TOLERANCE,
            "n_steps": steps,
            "optimizer": "lbfgs",
        }

    def _steps(self, n: int, rng: np.random.RandomState) -> dict[str, Any]:
        """Of training on mini-batches."""
        raise NotImplementedError

    def _train(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        stochastic = self._on_batches(X.shape[0])
        learn = self._learned(X)
        assert start.Z is not None
        self._fit_points = start.Z.shape[-2]
        options = self._steps(X.shape[0], rng) if stochastic else self._whole(learn)
        rules = self._options() | options
        asked = self._asked(learn=learn, hyperprior=self._density, callback=self._watch(callback), **rules)
        data, prior = Data(X, codes, len(self.classes_)), Prior(*start, shared=self.shared)
        first = {} if self._first_q is None else {"q": self._first_q}
        posterior = self._module.fit(data, prior, asked, **first)
        trained = posterior.trained
        if trained.diverged:
            raise ValueError(f"learning_rate: training diverged ({trained.reason}), expected a smaller value")
        optimum = getattr(posterior, "optimum", "")  # of the energies: none, where they grow without bound
        if optimum.startswith("none"):
            reason = optimum
        elif learn and not stochastic and "learn_tolerance" in options:
            reason = _end_of_search(trained, options["learn_tolerance"], options["n_steps"])
        else:
            reason = trained.reason
        return self._fitted(posterior, posterior.log_evidence, trained.iterations, trained.converged, reason)

    def _fitted(self, posterior: Any, log_evidence: float | None, n_iter: int, converged: bool, reason: str) -> Fitted:
        points = posterior.run.points
        end = np.nan if log_evidence is None else log_evidence, n_iter, converged, reason
        return fitted(self._module.predict, posterior, points.hyper, points.Z, *end)

    def _watch(self, callback: Any) -> Callable[[Any], None] | None:
        """What a method calls after every step: the state so far becomes the classifier's, then the user is called."""
        if callback is None and self.verbose < 2:
            return None

        def after_step(progress: Any) -> None:
            if self.verbose > 1 and progress.iteration % 10 == 0:
                self._say(f"step {progress.iteration}")
            if callback is not None:
                running = Running(progress.run)
                self._keep(self._fitted(running, progress.log_evidence, progress.iteration, False, "in training"))
                callback(self)

        return after_step


@dataclass(kw_only=True, eq=False, repr=False)
class SteppingClassifier(ClassesClassifier):
    """Those that may see mini-batches."""

    training: str = "auto"
    batch_size: int = 100
    learning_rate: float = 0.01

    def _steps(self, n: int, rng: np.random.RandomState) -> dict[str, Any]:
        size = inputs.count("batch_size", self.batch_size)
        wanted = max(1000, 10 * n // size) if self.max_iter is None else inputs.count("max_iter", self.max_iter)
        return {
            "batch_size": size,
            "n_steps": wanted,
            "optimizer": "adam",
            "rate": float(self.learning_rate),
            "seed": int(rng.randint(np.iinfo(np.int32).max)),
        }


LABEL_ERRORS = """"auto", with
                                         learn="auto" in batch: of 0.1, 0.01 and, if it is more, the one that maximises
                                         the bound at the q that 0.1 leads to, the one whose cavities predict the
                                         labels best, each from the others; else 0.01"""
_FIRST_ERRORS, _USUAL_ERRORS, _MOST_ERRORS = 0.1, 0.01, 0.9


def most_likely_errors(probabilities: FloatArray, codes: IntArray, epsilon: float) -> float:
    """Probability of a random label that maximises the bound at a q, with a row of either kind more.

    The bound has log(1 - e) of a row's share on the side of its label and log(e/(C - 1)) of the rest, where
    e = epsilon (C - 1)/C: it is greatest at e = mean share of the rest.

    Parameters
    ----------
    probabilities : (n, C)    of labels, at the training rows, by that q
    codes : (n,)              labels
    epsilon : float           with which they were predicted
    """
    n, n_classes = probabilities.shape
    right = (probabilities[np.arange(n), codes] - epsilon / n_classes) / (1.0 - epsilon)
    wrong = (float(np.clip(1.0 - right, 0.0, 1.0).sum()) + 1.0) / (n + 2.0)
    return min(_MOST_ERRORS, wrong * n_classes / (n_classes - 1))


class BoundedClassifier(SteppingClassifier):
    """Those near the bound, in which a row on the wrong side costs log(epsilon/C) whatever the noise.

    The bound takes a wide q for wrong labels, since a wide q has some of each row on the wrong side. So the bound only
    proposes an epsilon: what each label's cavity predicts decides, which a wide q leaves as unsure as new rows are, and
    wrong labels surely wrong. `epsilon_` is the probability of a random label that was used, learned or not.
    """

    epsilon: Any
    epsilon_: float

    def _options(self) -> dict[str, Any]:
        if not isinstance(self.epsilon, str):
            self.epsilon_ = self.epsilon
        return {"epsilon": self.epsilon_}

    def _train(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        self.epsilon_ = _USUAL_ERRORS
        if not (isinstance(self.epsilon, str) and self._asks_ep(X.shape[0])):
            return super()._train(X, codes, start, rng, callback)
        trained, errors = dict[float, Fitted](), [_FIRST_ERRORS, _USUAL_ERRORS]
        for self.epsilon_ in errors:
            here = trained[self.epsilon_] = super()._train(X, codes, start, rng, callback)
            if ended():
                break
            if self.epsilon_ == _FIRST_ERRORS:
                self._first_q = here.posterior.run.q
                likely = most_likely_errors(np.asarray(here.predict(X).probabilities), codes, _FIRST_ERRORS)
                errors += [likely] if likely > _FIRST_ERRORS else []
        self.epsilon_ = max(trained, key=lambda errors: float(left_out(trained[errors].posterior.run).sum()))
        n_iter = sum(each.n_iter for each in trained.values())
        return trained[self.epsilon_]._replace(n_iter=n_iter)
