"""What classifiers learn of their priors: by which density, in which stages, and how it is told.

Where nobody says what is learned, lengthscales move by one common factor first. Then each is learned, tied to the
factor by the hyperprior, and kept if that pays: if the evidence with the ratios r of all lengthscales integrated over
their prior N(0, s^2 I), s = `each`, is larger than with r = 0. In Laplace's approximation around the maximum r^

    log of the quotient = gain - 1/2 log det(I + s^2 H),

gain the rise of log evidence and log prior, H = -d^2 log evidence / dr dr' at r^, across the common factor. An input of
which the evidence sees nothing has zeros in H and is free; of one that matters little 1/l^2 is small, the evidence is
linear in it, and h_j = 2 d log evidence / d log l_j. H is not formed: Lanczos steps need it times a vector, which is a
difference of two gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol

import numpy as np

from fast.core import inputs
from fast.core.columns import Columns
from fast.core.ending import ended, ending, enough
from fast.core.errors import NotPositiveDefiniteError
from fast.core.hyperprior import Hyperprior, half_t_scale, weak
from fast.core.learned import field_of
from fast.core.linalg import spectrum
from fast.core.types import FloatArray, IntArray
from fast.estimators._data import check_spread
from fast.kernel.defaults import default_lengthscales

_LANCZOS = 3  # products with H: eigenvalues of I + s^2 H are within some 1 to 10, and log is smooth there
_NUDGE = 0.05  # largest change of a logarithm for a difference of gradients
_CURVED = 1e-10  # what the differences are evaluated to, in nats a row: no search, whose end would be seen in them
_ROWS_EACH = 20  # with fewer the evidence finds lengthscales that new rows do not confirm
_DF = 4.0  # degrees of freedom: riihimaki2013, section 5.5
# prior by name -> whether lengthscales are divided by their start before the density sees them
_UNITS = {"half-student-t": True, "half-student-t-absolute": False}


class Predicted(Protocol):
    """Predictions at t points."""

    @property
    def latent_mean(self) -> FloatArray:
        """(t,) or (t, L)."""

    @property
    def latent_var(self) -> FloatArray:
        """(t,) or (t, L), noise included."""

    @property
    def probabilities(self) -> FloatArray:
        """(t, C), rows sum to one."""


class Start(NamedTuple):
    """Where training starts: what was given, or a default."""

    variance: float
    lengthscales: FloatArray  # (d,)
    noise: float
    jitter: float
    Z: FloatArray | None  # (m, d); None: full GP


class Fitted(NamedTuple):
    """What training leaves behind."""

    predict: Callable[[Any], Predicted]
    posterior: Any  # of the method
    variance: Any  # float; (C,) of each class where they may differ, and (C, d), (C,), (C, m, d) for the next three
    lengthscales: FloatArray
    noise: Any
    Z: FloatArray | None
    log_evidence: float  # bound or estimate of log p(y); of the last epoch's batches if trained on mini-batches
    n_iter: int
    converged: bool
    reason: str  # why training stopped


class Predictor:
    """Predictions of a posterior; an object and no closure, so that classifiers can be pickled."""

    def __init__(self, predict: Callable[..., Any], posterior: Any) -> None:
        self.predict, self.posterior = predict, posterior

    def __call__(self, X: Any) -> Any:
        return self.predict(self.posterior, X)


def fitted(predict: Callable[..., Any], posterior: Any, hyper: Any, Z: Any, *end: Any) -> Fitted:
    """A posterior that predict takes, with its parameters; end: log evidence, n_iter, converged and reason."""
    return Fitted(Predictor(predict, posterior), posterior, hyper.variance, hyper.lengthscales, hyper.noise, Z, *end)


class Learned(NamedTuple):
    """Parameters of one latent function, in the units of X."""

    variance: float
    lengthscales: FloatArray  # (d,)
    noise: float


def quadratures(times: Callable[[FloatArray], FloatArray], probe: FloatArray) -> Iterator[float]:
    """Gauss quadratures of probe' log(I + M) probe by Lanczos steps: upper bounds that fall from step to step.

    Directions in which M is negative count as flat.

    Parameters
    ----------
    times : callable    vector to the symmetric M times it
    probe : (p,)
    """
    length = float(np.linalg.norm(probe))
    basis, diagonal, off = [probe / length], list[float](), list[float]()
    for _ in range(_LANCZOS):
        image = times(basis[-1])
        diagonal.append(float(basis[-1] @ image))
        values, vectors = spectrum(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1), "Lanczos matrix")
        yield length**2 * float(vectors[0] ** 2 @ np.log1p(np.maximum(values, 0.0)))
        for one in basis:
            image = image - one * (one @ image)
        left = float(np.linalg.norm(image))
        if left <= 1e-6 * (1.0 + float(np.abs(values).max())):
            return
        off.append(left)
        basis.append(image / left)


def charge(times: Callable[[FloatArray], FloatArray], functions: int, d: int, gain: float) -> float:
    """1/2 log det(I + M) across the mean of each of some rows of d numbers; an upper bound that is below the gain.

    The trace of log(I + M) from two probes, the cosines and sines of d angles in equal steps: orthogonal to the mean,
    and with the same weight for every input, so that only entries off the diagonal, of either sign, leave an error. Of
    two and three inputs there is none.

    Parameters
    ----------
    times : callable    vector (functions d,) to the symmetric M times it
    functions, d        rows, and numbers in a row
    gain : float        what the charge is compared with
    """
    rng = np.random.default_rng(0)
    angles = np.concatenate([rng.permutation(d) for _ in range(functions)]) * (2.0 * np.pi / d)
    probes = [probe for probe in (np.cos(angles), np.sin(angles)) if np.abs(probe).max() > 1e-6]
    result, last = 0.0, [0.0] * len(probes)
    for values in zip_longest(*(quadratures(times, probe) for probe in probes)):
        last = [old if new is None else new for new, old in zip(values, last, strict=True)]
        result = 0.5 * (d - 1) / d * sum(last)
        if gain > result:
            break
    return result


class HyperLearning:
    """The part of a classifier that learns its prior; a subclass trains with what `_learned` names."""

    classes_: Any
    lengthscales: Any
    learn: Any
    prior: Any

    _multi_class: bool
    _link: str  # what decides between labels: see `fast.core.hyperprior.weak`
    _auto: tuple[str, ...] = ("variance", "lengthscales")  # what learn="auto" stands for
    _by_rows = False  # whether what is learned has an axis of classes
    _density: Hyperprior | None = None
    _each_input: bool  # whether lengthscales are learned one by one, or their factor
    _held = False  # whether nothing is learned for now
    _columns: Columns  # of X that training sees
    _moved: tuple[str, ...]
    _fit_rows: int  # of the last fit; 0: a stream from nothing

    # -- of a subclass -----------------------------------------------------------------------------------------------

    def _train(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        raise NotImplementedError

    def _lengthscale_gradient(self, posterior: Any) -> FloatArray:
        """Gradient of the log evidence, (d,) or (C, d)."""
        raise NotImplementedError

    def _on_batches(self, n: int) -> bool:
        """Whether training on n rows sees mini-batches."""
        return False

    def _functions(self) -> int:
        """Latent functions with parameters of their own."""
        return 1

    # -- density -----------------------------------------------------------------------------------------------------

    def _density_of(self, X: Any, lengthscales: FloatArray) -> Hyperprior | None:
        """Density of what is learned; lengthscales (d,), where they start."""
        if not isinstance(self.prior, str):
            if self.prior is None:
                return None
            given = Hyperprior(self.prior).checked(self._columns.group.size, "prior")
            return self._columns.hyperprior(given)
        if self.prior == "weak":
            typical = lengthscales
            if not isinstance(self.lengthscales, str):  # a start says nothing of what is typical of the data
                typical = self._typical(X, np.random.default_rng(0))
            return weak(typical, self._link).seen_by(self._fit_rows)
        density = ("half-student-t", _DF, half_t_scale())
        units = lengthscales if _UNITS[self.prior] else 1.0
        return Hyperprior(
            {"variance": density, "lengthscales": (*density[:2], density[2] * units), "noise": density}
        ).checked(X.shape[1])

    def _typical(self, X: Any, rng: np.random.Generator) -> FloatArray:
        """Lengthscales by the distances of rows of X, in the columns that training sees."""
        columns = self._columns.first if self._columns.first.size else np.zeros(1, dtype=np.int64)
        return check_spread(default_lengthscales(X, rng), columns)

    def _log_prior(self, fitted: Fitted) -> float:
        """Log density of what was learned; 0 without one."""
        if self._density is None:
            return 0.0
        return self._density.at(map(field_of, self._counted()), self._values(fitted)).value

    def _counted(self) -> tuple[str, ...]:
        """Names of what was learned, by whom ever."""
        return self._moved

    def _values(self, fitted: Fitted) -> Callable[[str], FloatArray]:
        """Field to its values, one row of those that classes share."""
        rows = slice(self._functions()) if self._by_rows else ...
        return lambda field: np.asarray(getattr(fitted, field))[rows]

    # -- one factor of all lengthscales, then each ---------------------------------------------------------------------

    def _in_stages(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        """Training, a second time with lengthscales of their own if that may pay, and the better of the two."""
        self._set_stage(X)
        first = self._train(X, codes, start, rng, callback)
        if not (self._tied() and "scale" in self._moved) or self._on_batches(X.shape[0]) or ended():
            return first
        if enough((0.0, self._most_gain(first)), 1):
            return first
        self._set_stage(X, each_input=True)
        parts = {name: getattr(first, name) for name in ("variance", "lengthscales", "noise", "Z")}
        each = self._train(X, codes, start._replace(**parts), rng, callback)
        gain = each.log_evidence + self._log_prior(each) - first.log_evidence - self._log_prior(first)
        # where time is up the larger of evidence and prior decides: there is none left for what the charge needs
        if gain > 0.0 and (ended() or gain > self._charge(X, codes, start, each, gain)):
            return each._replace(n_iter=first.n_iter + each.n_iter)
        self._set_stage(X, each_input=False)
        return first._replace(converged=False, reason=each.reason) if ended() else first

    def _set_stage(self, X: Any, *, each_input: bool | None = None) -> None:
        """What is learned from here on; None: lengthscales of each input at once only where there is one stage.

        Steps on mini-batches have one.
        """
        n, d = X.shape
        if each_input is None:
            each_input = d == 1 or (self._on_batches(n) and n >= _ROWS_EACH * d * self._functions())
        self._each_input = each_input
        self._moved = self._learned(X)

    def _charge(self, X: Any, codes: IntArray, start: Start, fitted: Fitted, gain: float) -> float:
        """What lengthscales of their own cost at the parameters that were learned, see the top of this module."""
        functions, d = self._functions(), X.shape[1]
        assert self._density is not None
        each = self._density.densities["lengthscales"][1][1]
        at = np.reshape(self._values(fitted)("lengthscales"), (functions, d))
        begin = start._replace(variance=fitted.variance, noise=fitted.noise, Z=fitted.Z)

        def across(vector: FloatArray) -> FloatArray:
            by_row = vector.reshape(functions, d)
            return (by_row - by_row.mean(axis=1, keepdims=True)).ravel()

        def derivative(step: FloatArray) -> FloatArray:
            moved = at * np.exp(step.reshape(functions, d))
            shape = np.shape(fitted.lengthscales)
            here = np.broadcast_to(moved, shape) if len(shape) == 2 else moved[0]
            held = self._train(X, codes, begin._replace(lengthscales=here), np.random.RandomState(0), None)
            gradient = self._lengthscale_gradient(held.posterior).reshape(-1, d)[:functions]
            return (gradient * moved).ravel()

        def times(vector: FloatArray) -> FloatArray:
            scale = _NUDGE / np.abs(vector).max()
            return across(each**2 / scale * (here - derivative(scale * vector)))

        moved, self._held, self._moved = self._moved, True, ()
        try:
            with ending(None, worth=_CURVED * X.shape[0]):
                here = derivative(np.zeros(functions * d))
                return charge(times, functions, d, gain)
        finally:
            self._held, self._moved = False, moved

    def _learned(self, X: Any) -> tuple[str, ...]:
        """Names of what training learns."""
        if self._held:
            return ()
        if not self._free():
            return inputs.names("learn", self.learn)
        by_one = self._tied() and not self._each_input
        return tuple("scale" if name == "lengthscales" and by_one else name for name in self._auto)

    def _tied(self) -> bool:
        """Whether nobody says what is learned, and the prior ties lengthscales to a common factor."""
        return self._free() and isinstance(self.prior, str) and self.prior == "weak"

    def _free(self) -> bool:
        """Whether nobody says what is learned."""
        return isinstance(self.learn, str) and self.learn == "auto"

    def _most_gain(self, fitted: Fitted) -> float:
        """What lengthscales of their own may add to evidence and prior, by derivatives across the common factor.

        A quadratic with these derivatives and the curvature of the prior rises by so much: derivative^2 each^2 / 2 in
        sum. Where the evidence is concave in the logarithms, there is less to gain; it need not be, so that a search is
        left out only where this is less than what it calls enough.
        """
        assert self._density is not None
        value_of = self._values(fitted)
        value = value_of("lengthscales")
        gradient = self._lengthscale_gradient(fitted.posterior).reshape(-1, value.shape[-1])[: self._functions()]
        derivative = gradient.reshape(value.shape) * value
        derivative = derivative + self._density.at(("lengthscales",), value_of).derivatives["lengthscales"]
        derivative = derivative - derivative.mean(axis=-1, keepdims=True)
        each = self._density.densities["lengthscales"][1][1]
        return 0.5 * each**2 * float((derivative**2).sum())

    # -- columns that training sees -------------------------------------------------------------------------------

    def _moves_lengthscales(self) -> bool:
        """Whether lengthscales are learned, by whom ever."""
        return self._free() or not {"scale", "lengthscales"}.isdisjoint(inputs.names("learn", self.learn))

    @contextmanager
    def _or_as_before(self) -> Iterator[None]:
        """What is known of columns after the rows inside, or as it was where a step on them raises."""
        before = self._columns, self._density, self._each_input, self._moved
        try:
            yield
        except (ValueError, NotPositiveDefiniteError):
            self._columns, self._density, self._each_input, self._moved = before
            raise

    def _admitted(
        self, X: Any, lengthscales: FloatArray, Z: FloatArray, put: Callable[[FloatArray, FloatArray], None]
    ) -> Any:
        """The columns that count of a batch X (b, d), among them those that begin to vary, or to differ, with it.

        Parameters
        ----------
        X : (b, d)
        lengthscales, Z    of the columns so far
        put : callable     gets those of the new ones: rows so far keep their kernel
        """
        columns = self._columns.with_rows(X)
        if columns is not self._columns:
            carried = self._carried(columns, X)
            moved = carried(lengthscales), columns.chosen(self._columns.points(Z))
            self._density, self._columns = self._carried_density(columns, carried), columns
            if self._fit_rows == 0:
                self._set_stage(columns.chosen(X))
            put(*moved)
        return columns.chosen(X)

    def _carried(self, columns: Columns, X: Any) -> Callable[[FloatArray], FloatArray]:
        """Lengthscales of the columns so far, (..., k), to those of other columns, as rows X (b, d) have shown.

        The kernel stays what it was for the rows so far. A column that begins to vary begins at its typical lengthscale
        in these rows, or where somebody said, moved as the others are.
        """
        before = self._columns
        rows = columns.chosen(np.concatenate([before.origin[None], np.asarray(X, dtype=np.float64)]))
        given = None if isinstance(self.lengthscales, str) else self.lengthscales
        d = before.group.size
        typical = (
            default_lengthscales(rows, np.random.default_rng(0))
            if given is None
            else columns.starts(np.broadcast_to(np.asarray(given, dtype=np.float64), (d,)))
        )

        def carried(lengthscales: FloatArray) -> FloatArray:
            result = before.carried(lengthscales, columns)
            new = np.isinf(result)
            moved = np.where(new, 0.0, np.log(np.where(new, 1.0, result) / typical))
            known = np.maximum((~new).sum(axis=-1, keepdims=True), 1)
            return np.where(new, typical * np.exp(moved.sum(axis=-1, keepdims=True) / known), result)

        return carried

    def _carried_density(self, columns: Columns, carried: Callable[[FloatArray], FloatArray]) -> Hyperprior | None:
        """The density of what is learned, for other columns."""
        if self._density is None or "lengthscales" not in self._density.densities:
            return self._density
        if not isinstance(self.prior, str):
            return columns.hyperprior(Hyperprior(self.prior).checked(columns.group.size, "prior"))
        family, df, scale = self._density.densities["lengthscales"]
        if np.ndim(scale) == 0:
            return self._density
        new = tuple(carried(np.asarray(scale)).tolist())
        return replace(self._density, densities={**self._density.densities, "lengthscales": (family, df, new)})

    # -- what was learned ----------------------------------------------------------------------------------------------

    def _by_class(self, fitted: Fitted) -> dict[Any, Learned]:
        """Label to the parameters of its latent function; two labels with one function: the second."""
        labels = (self.classes_ if self._multi_class else self.classes_[1:]).tolist()
        lengths = self._columns.lengthscales(fitted.lengthscales)
        if not self._by_rows:
            return {label: Learned(fitted.variance, lengths, fitted.noise) for label in labels}
        rows = zip(labels, fitted.variance, lengths, fitted.noise, strict=True)
        return {
            label: Learned(float(variance), lengthscales, float(noise)) for label, variance, lengthscales, noise in rows
        }
