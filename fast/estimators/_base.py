"""What all classifiers share: checks of scikit-learn, codes of the labels, inducing points, predictions.

A subclass gives `_train`: checked data in, a `Fitted` out. Everything that predicts goes through `Fitted.predict`.
"""

from __future__ import annotations

import inspect
import sys
import time
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from fast.core import inputs
from fast.core.checks import shown
from fast.core.columns import columns_of, every_column
from fast.core.ending import ending
from fast.core.errors import NotPositiveDefiniteError
from fast.core.options import check_parameters
from fast.core.threads import blas_threads, length
from fast.core.types import FloatArray, IntArray
from fast.estimators._cost import memory, seconds_of_iteration
from fast.estimators._data import labels, of_X, of_y
from fast.estimators._hyper import Fitted, HyperLearning, Predicted, Start

_SAMPLE = 20_000  # rows that k-means++ looks at: choosing m centres among more costs time and changes nothing
_MOST_IN_ONE = 2**25  # numbers of rows and projections up to which training="auto" takes all of them in every step
_ESCALATIONS = 3
_FEW = 2  # rows of a first batch of which any column is a copy of any other
_RELATIVE_JITTER = 1e-10
_LARGEST = 1e50
_SWEEP = 1e8  # multiplications of a sweep that inducing points may cost: some ten milliseconds of one core
ROW_WORTH = 2e-4  # nats a row that three iterations of a search have to gain: held-out scores are not known that well
_SHORT = 0.1  # seconds that nobody minds beyond max_time
_NO_NOISE = 1e-3  # where the logarithm of a noise that is to be learned starts


def _distinct(classes: Any) -> np.ndarray[Any, Any]:
    """The different labels of a list, ascending."""
    try:
        listed = np.asarray(labels("classes", classes))
        if listed.ndim == 1:
            return np.unique(listed)
    except (ValueError, TypeError, RecursionError):  # lists in lists, labels that have no order
        pass
    raise ValueError(f"classes: found {shown(classes)}, expected a list of labels that can be sorted")


def _entry(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same method, with what it needs around it wherever it is called.

    Linear algebra has the threads that suit the sizes; training keeps their number. Floating-point errors are handled
    as NumPy does by default, whatever the caller has set: exp(-1000) is 0 here, and no error. A lack of memory is told
    with its remedy.
    """

    @wraps(method)
    def suited(self: GPClassifier, X: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("sample_weight", None) is not None:  # not in the signature: it is not supported
            raise TypeError(
                f"sample_weight: found it in {type(self).__name__}.{method.__name__}, expected None: rows weigh alike"
            )
        with blas_threads(*self._sizes(X)) as threads, np.errstate(all="warn", under="ignore"):
            try:
                result = method(self, X, *args, **kwargs)
            except MemoryError as error:
                raise MemoryError(f"{method.__name__.strip('_')}: {error}; {self._remedy()}") from error
        if result is self:
            self.blas_threads_ = threads
        return result

    return suited


class GPClassifier(HyperLearning, ClassifierMixin, BaseEstimator):
    """Base of the classifiers; see its subclasses.

    Linear algebra has one thread, and in large problems as many as the process has, in one library alone
    (`fast.core.threads`); `blas_threads_` is the largest number that a library had in training.
    """

    random_state: Any
    verbose: int | bool
    n_inducing: Any
    inducing_points: Any
    variance: float
    lengthscales: Any
    noise: float
    jitter: float
    max_time: float | None

    _multi_class = False
    _most_inducing = 100  # of n_inducing="auto"

    # -- scikit-learn ----------------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._multi_class
        return tags

    @_entry
    def fit(self, X: Any, y: Any, *, callback: Callable[[Any], None] | None = None) -> Any:
        """Train on inputs X (n, d) and labels y (n,), of any type that scikit-learn takes as classes.

        X may be a numpy.memmap of float32 or float64; it is read in blocks when training uses mini-batches.
        callback(self) is called after each step of training; predictions with the state so far work inside it.
        Ctrl-C ends training with the best state so far, which predicts, and is raised again; a second one at once.

        Raises ValueError for bad input, by name, and for one class only.
        """
        callback = inputs.calls_back("callback", callback)
        self._check_parameters()
        X, codes = self._checked_data(X, y)
        X = self._seen(X)
        rng = self._rng()
        started = time.perf_counter()
        self._spent = 0.0
        if hasattr(self, "_online"):  # fit starts anew, whatever partial_fit had seen
            del self._online
        self._fit_rows = X.shape[0]
        with ending(self.max_time, self._say if self.verbose else None, ROW_WORTH * self._fit_rows) as end:
            fitted = self._with_jitter(X, codes, rng, callback)
        self._keep(fitted)
        self._say(f"{fitted.n_iter} steps in {time.perf_counter() - started:.2f} s: {fitted.reason}")
        if end.interrupted:
            raise KeyboardInterrupt
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Class probabilities (t, C) at X (t, d), columns in the order of `classes_`."""
        return self._predicted(X).probabilities

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """Most probable labels (t,) at X (t, d)."""
        most_probable = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[most_probable]

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Logarithms of class probabilities (t, C) at X (t, d), columns in the order of `classes_`."""
        # the smallest float stands for what underflows: order is kept, and nothing is infinite
        result: FloatArray = np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))
        return result

    def decision_function(self, X: Any) -> FloatArray:
        """Log odds of `classes_[1]` (t,) at X (t, d); with C > 2 classes the log probabilities (t, C)."""
        log_probabilities = self.predict_log_proba(X)
        if len(self.classes_) == 2:
            return log_probabilities[:, 1] - log_probabilities[:, 0]
        return log_probabilities

    def latent_mean_and_variance(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Mean and variance, noise included, of the latent functions at X (t, d): each (t,), or (t, L)."""
        result = self._predicted(X)
        return result.latent_mean, result.latent_var

    # -- training --------------------------------------------------------------------------------------------------

    def _start(self, X: Any, rng: np.random.RandomState) -> Start:
        """Where training starts: what was given, checked, or the defaults."""
        d = X.shape[1]
        self._set_stage(X)
        lengths = self._first_lengthscales(X, rng)
        noise = inputs.scalar("noise", self.noise, positive=False)
        if noise == 0.0 and "noise" in self._learned(X):
            noise = _NO_NOISE
        hyper = inputs.hyper(self.variance, lengths, noise, self.jitter, d, getattr(self, "smoothness", None))
        self._density = self._density_of(X, hyper.lengthscales)
        Z = self._inducing(X, hyper.lengthscales, rng)
        return Start(hyper.variance, hyper.lengthscales, hyper.noise, hyper.jitter, Z)

    def _first_lengthscales(self, X: Any, rng: np.random.RandomState) -> FloatArray:
        d = self._columns.group.size
        if isinstance(self.lengthscales, str):
            if self.lengthscales != "median":
                raise ValueError(
                    f"lengthscales: found {shown(self.lengthscales)}, expected 'median', a number or ({d},)"
                )
            return self._typical(X, np.random.default_rng(rng.randint(np.iinfo(np.int32).max)))
        given = inputs.real_numbers("lengthscales", self.lengthscales)
        if given.shape not in ((), (1,), (d,)):
            raise ValueError(f"lengthscales: found shape {given.shape}, expected 'median', a number or ({d},)")
        lengths = np.array(np.broadcast_to(given, (d,)), dtype=np.float64)
        lengths = self._columns.starts(lengths)
        # distances between rows are taken in these units before the prior sees them
        if not ((lengths >= 1.0 / _LARGEST) & (lengths <= _LARGEST)).all():
            raise ValueError(f"lengthscales: found {lengths}, expected {1.0 / _LARGEST:g} to {_LARGEST:g}")
        return lengths

    def _guided(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState) -> Start:
        """Where training starts after a quicker classifier of the same model has looked, for those that have one."""
        return start

    def _with_jitter(self, X: Any, codes: IntArray, rng: np.random.RandomState, callback: Any) -> Fitted:
        """Train; where K_ZZ has no Cholesky factor, raise the jitter tenfold, three times at most, and say so."""
        start = self._start(X, rng)
        self._check_size(X.shape[0], start.Z)
        start = self._guided(X, codes, start, rng)
        seed = rng.randint(np.iinfo(np.int32).max)
        jitter = start.jitter
        for attempt in range(_ESCALATIONS + 1):
            try:
                # one seed for every attempt: only the jitter differs
                fitted = self._in_stages(X, codes, start._replace(jitter=jitter), np.random.RandomState(seed), callback)
            except NotPositiveDefiniteError:
                if attempt == _ESCALATIONS:
                    raise
                size = "n" if start.Z is None else f"{start.Z.shape[-2]}"
                largest = float(np.max(start.variance))  # EP finds one of each class
                jitter = max(10.0 * jitter, _RELATIVE_JITTER * largest)
                warnings.warn(
                    f"K_ZZ ({size}, {size}) has no Cholesky factor: jitter raised to {jitter:.3g}",
                    RuntimeWarning,
                    stacklevel=3,
                )
                continue
            self._spent = jitter - start.jitter
            return fitted
        raise AssertionError  # the loop returns or raises

    def _finish(self, fitted: Fitted, callback: Any) -> Fitted:
        """The end of training in one step, of which a callback hears."""
        if callback is not None:
            self._keep(fitted)
            callback(self)
        return fitted

    def _keep(self, fitted: Fitted) -> None:
        self.posterior_ = fitted.posterior
        self._predict = fitted.predict
        self.variance_: Any = fitted.variance
        self.lengthscales_ = self._columns.lengthscales(fitted.lengthscales)
        self.noise_: Any = fitted.noise
        self.hyper_ = self._by_class(fitted)
        self.log_hyperprior_ = self._log_prior(fitted)
        self.inducing_points_ = None if fitted.Z is None else self._columns.points(fitted.Z)
        self.log_evidence_ = fitted.log_evidence
        self.n_iter_ = max(1, fitted.n_iter)
        self.converged_ = fitted.converged
        self.stop_reason_ = fitted.reason
        self.jitter_spent_ = self._spent

    def _check_parameters(self) -> None:
        """Refuse bad arguments of __init__, whether training would use them or not."""
        signature = inspect.signature(type(self).__init__)
        defaults = {name: parameter.default for name, parameter in signature.parameters.items()}
        check_parameters(self.get_params(deep=False), defaults)

    def _checked_data(self, X: Any, y: Any) -> tuple[Any, IntArray]:
        """Inputs as float64 or float32, finite; labels as codes 0 .. C - 1. Sets classes_ and n_features_in_."""
        X, y = self._validated(X, y)
        with of_y():
            kind = type_of_target(y, input_name="y", raise_unknown=True)
        if kind != "binary" and not self._multi_class:
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y: found one class, {self.classes_[0]}, expected at least two classes")
        return X, codes.astype(np.int64)

    def _validated(self, X: Any, y: Any, *, reset: bool = True) -> tuple[Any, Any]:
        """Rows and labels by scikit-learn's checks, errors of either named."""
        y = labels("y", y)
        with of_X(X):
            X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], reset=reset)
        with of_y():
            check_classification_targets(y)
        return X, y

    def _remedy(self) -> str:
        """What to do where there is not enough memory."""
        if getattr(self, "n_inducing", None) is None:
            return "use n_inducing and training='minibatch' of a sparse classifier, such as EPClassifier"
        return "set a smaller n_inducing, training='minibatch' or a smaller batch_size"

    def _check_size(self, n: int, Z: FloatArray | None) -> None:
        """Refuse before any work what has no place in memory, and a full GP that has no time."""
        functions = len(self.classes_) if self._multi_class else 1
        if Z is None:
            numbers = (functions + 2) * float(n) ** 2
        else:
            numbers = 0.0 if self._on_batches(n) else 2.0 * functions * n * Z.shape[-2]
        limit = memory()
        if 8.0 * numbers > limit:
            kind = "a full GP" if Z is None else f"{Z.shape[-2]} inducing points"
            raise MemoryError(
                f"X: found {n} rows, for which the matrices of {kind} take {8e-9 * numbers:.3g} GB, expected at most "
                f"the {1e-9 * limit:.3g} GB of this machine"
            )

        if Z is None and self.max_time is not None and hasattr(self, "n_inducing"):
            needed = seconds_of_iteration(n)
            if needed > max(self.max_time, _SHORT):
                raise ValueError(
                    f"max_time: found {self.max_time:g} s, expected at least the {needed:.2g} s of one iteration of a "
                    f"full GP on {n} rows; set n_inducing"
                )

    def _given_points(self) -> FloatArray:
        return np.array(inputs.real_numbers("inducing_points", self.inducing_points), dtype=np.float64)

    def _seen(self, X: Any, few: int = 0) -> Any:
        """The columns of X (n, d) that training sees: all, where somebody gave lengthscales and holds them.

        Else neither columns that do not vary nor copies of others, of which nothing could be learned. So few rows, or
        fewer, say nothing of columns.
        """
        d = X.shape[1]
        chosen = isinstance(self.lengthscales, str) or self._moves_lengthscales()
        if not chosen or X.shape[0] <= few:
            self._columns = every_column(d)
            return X
        more = None if getattr(self, "inducing_points", None) is None else self._given_points()
        if more is not None:
            fits = more.ndim in (2, 3) and more.shape[-1] == d and np.isfinite(more).all()  # else refused by name later
            more = more.reshape(-1, d) if fits else None
        self._columns = columns_of(X, more)
        mapped = isinstance(X, np.memmap) and X.shape[0] > _SAMPLE and self._on_batches(X.shape[0])
        return self._columns.chosen(X, by_rows=mapped)

    def _checked_batch(self, X: Any, y: Any, classes: Any, *, first: bool) -> tuple[Any, IntArray]:
        """A batch for `partial_fit`: its labels as codes of the classes that the first call named."""
        self._check_parameters()
        X, y = self._validated(X, y, reset=first)
        if first:
            known = _distinct(classes)
            if len(known) < 2:
                wanted = "at least two classes" if self._multi_class else "two classes"
                raise ValueError(f"classes: found one class, {known.tolist()}, expected {wanted}")
            if len(known) > 2 and not self._multi_class:
                raise ValueError(
                    f"classes: found {len(known)} classes, expected two. Only binary classification is supported."
                )
            self.classes_ = known
        elif classes is not None and not np.array_equal(_distinct(classes), self.classes_):
            raise ValueError(f"classes: found {shown(classes)}, expected {self.classes_.tolist()} as in the first call")
        foreign = np.setdiff1d(y, self.classes_)
        if foreign.size:
            raise ValueError(f"y: found labels {foreign.tolist()}, expected only {self.classes_.tolist()}")
        return X, np.searchsorted(self.classes_, y).astype(np.int64)

    def _checked_total(self, total_samples: Any, n_rows: int) -> int | None:
        """Rows that a batch stands for: no fewer than it has."""
        if total_samples is None:
            return None
        total = inputs.count("total_samples", total_samples)
        if total < n_rows:
            raise ValueError(f"total_samples: found {total}, expected at least {n_rows}, the rows of X")
        return total

    def _first_start(self, X: Any) -> Start:
        """Where a stream starts, by its first batch; inducing points that this has too few rows for come later."""
        self._spent, self._fit_rows = 0.0, 0
        with warnings.catch_warnings():
            if self._room(0):
                warnings.filterwarnings("ignore", message="n_inducing: found", category=UserWarning)
            return self._start(X, self._rng())

    def _room(self, m: int) -> int:
        """Inducing points still to be chosen by a stream that has m of them; none where they are given or learned."""
        given = self._fit_rows > 0 or self.inducing_points is not None or self.n_inducing is None
        if given or (self.learn != "auto" and "Z" in inputs.names("learn", self.learn)):
            return 0
        auto = isinstance(self.n_inducing, str)
        wanted = self._most_inducing if auto else inputs.count("n_inducing", self.n_inducing)
        return max(0, wanted - m)

    def _sizes(self, X: Any) -> tuple[int, int | None]:
        """Rows that a step works on and inducing points (None: a full GP), as far as they show before any check."""
        rows = n = length(X)
        batch = getattr(self, "batch_size", None)
        if isinstance(batch, int) and self._on_batches(n):
            n = min(n, batch)
        given, wanted = getattr(self, "inducing_points", None), getattr(self, "n_inducing", None)
        if given is not None:
            return n, length(given, axis=-2)
        if wanted is None:
            return max(n, length(getattr(getattr(self, "posterior_", None), "latent_mean", ()))), None
        return n, min(rows, wanted if isinstance(wanted, int) else self._enough_inducing(rows))

    def _on_batches(self, n: int) -> bool:
        """Whether training on n rows sees mini-batches: asked for, or because all rows take too much memory.

        Ten epochs of steps on mini-batches take longer than the search on all rows, whatever n is, and end further from
        the optimum: time is no reason for them.
        """
        training = getattr(self, "training", "batch")
        if not isinstance(training, str) or training != "auto":  # what is no word is refused later
            return isinstance(training, str) and training == "minibatch"
        m = getattr(self, "n_inducing", None)
        if getattr(self, "inducing_points", None) is not None:
            m = length(self.inducing_points, axis=-2)
        elif isinstance(m, str):
            m = self._most_inducing
        elif m is None:  # a full GP, which has no mini-batches, or every row
            m = n if self._multi_class else 0
        functions = len(getattr(self, "classes_", (0, 1))) if self._multi_class else 1
        columns = getattr(self, "n_features_in_", 0)
        return isinstance(m, (int, np.integer)) and n * (functions * int(m) + columns) > _MOST_IN_ONE

    def _enough_inducing(self, n: int) -> int:
        """How many inducing points n rows are given: in batch what a sweep of C n m^2 can afford, all of few rows."""
        if self._on_batches(n):
            return self._most_inducing
        functions = len(getattr(self, "classes_", (0, 1))) if self._multi_class else 1
        return max(self._most_inducing, int((_SWEEP / (functions * max(n, 1))) ** 0.5))

    def _rng(self) -> np.random.RandomState:
        try:
            return check_random_state(self.random_state)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"random_state: found {shown(self.random_state)}, expected None, a numpy.random.RandomState or an "
                "integer from 0 to 2**32 - 1"
            ) from error

    @_entry
    def _predicted(self, X: Any) -> Predicted:
        check_is_fitted(self)
        with of_X(X):
            X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self._predict(self._columns.of(X))

    def _say(self, text: str) -> None:
        if self.verbose:
            sys.stdout.write(f"{type(self).__name__}: {text}\n")
            sys.stdout.flush()

    # -- inducing points -------------------------------------------------------------------------------------------

    def _inducing(self, X: Any, lengthscales: FloatArray, rng: np.random.RandomState) -> FloatArray | None:
        """Inducing points: those given, or centres that k-means++ spreads over the rows; None for a full GP.

        Distances are those of the kernel: in units of the lengthscales (d,), so that neither units nor origin of X
        count.
        """
        if self.inducing_points is not None:
            Z, d = self._given_points(), self._columns.group.size
            if Z.ndim != 2 or Z.shape[1] != d or Z.shape[0] == 0:
                raise ValueError(f"inducing_points: found shape {Z.shape}, expected (m, {d}) with m >= 1")
            return self._columns.chosen(Z)
        wanted = self.n_inducing
        if wanted is None:
            return None
        rows = X if X.shape[0] <= _SAMPLE else _some_rows(X, rng)
        distinct = np.unique(np.asarray(rows[:], dtype=np.float64), axis=0)
        if isinstance(wanted, str) and wanted == "auto":
            wanted = min(self._enough_inducing(X.shape[0]), len(distinct))
        elif isinstance(wanted, (bool, np.bool_)) or not isinstance(wanted, (int, np.integer)) or wanted < 1:
            raise ValueError(f"n_inducing: found {shown(wanted)}, expected 'auto', None or an integer >= 1")
        if wanted > len(distinct):
            warnings.warn(
                f"n_inducing: found {wanted} inducing points for {len(distinct)} distinct rows; "
                f"{len(distinct)} are used",
                UserWarning,
                stacklevel=6,
            )
            wanted = len(distinct)
        if wanted == len(distinct):
            return distinct
        _, chosen = kmeans_plusplus(_Scaled(distinct, lengthscales).rows, int(wanted), random_state=rng)
        return distinct[chosen]


class _Scaled:
    """Rows (n, d) from their mean, in units of lengthscales (d,); far from the origin squares would swallow distances.

    The mean is that of what is left beside the first row: it keeps the digits of rows that share a large offset.
    """

    def __init__(self, rows: FloatArray, lengthscales: FloatArray) -> None:
        moved = rows - rows[0]
        middle = moved.mean(axis=0)
        self.origin, self.lengthscales = rows[0] + middle, lengthscales
        self.rows = (moved - middle) / lengthscales

    def back(self, points: FloatArray) -> FloatArray:
        """Points (m, d) in the units of the rows."""
        return self.origin + points * self.lengthscales


def cluster_centres(X: Any, lengthscales: FloatArray, m: int, rng: np.random.RandomState) -> FloatArray:
    """Centres of m clusters by k-means, (m, d), in the distance of the kernel.

    X (n, d); lengthscales (d,), its units; m <= distinct rows of X; rng.
    """
    scaled = _Scaled(np.asarray(X, dtype=np.float64), lengthscales)
    return scaled.back(KMeans(m, n_init=1, random_state=rng).fit(scaled.rows).cluster_centers_)


def _some_rows(X: Any, rng: np.random.RandomState) -> FloatArray:
    """Rows from random blocks, so that a memory map is not read from end to end."""
    block = 100
    starts = rng.choice(X.shape[0] // block, size=_SAMPLE // block, replace=False) * block
    return np.concatenate([np.asarray(X[s : s + block], dtype=np.float64) for s in np.sort(starts)])
