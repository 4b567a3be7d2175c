"""What classifiers learn of their priors: by which density, in which stages, and how it is told.

Where nobody says what is learned, lengthscales move by one common factor first. Then each is learned, tied to the
factor by the hyperprior, and kept if that pays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from fast.core import inputs
from fast.core.ending import ended
from fast.core.hyperprior import Hyperprior, half_t_scale, weak
from fast.core.learned import field_of
from fast.core.types import FloatArray, IntArray
from fast.kernel.defaults import default_lengthscales

_WORTH = 1.0  # nats that lengthscales of their own may gain for training to try
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


def pays(gain: float, most: float, n_more: int) -> bool:
    """Whether parameters more raise the evidence that is left when they are integrated over their prior.

    In Laplace's approximation that is gain - sum of log(1 + each^2 h_j) / 2, h_j the curvatures of the evidence. If
    they are all alike, the gain is most / (1 + each^2 h), so that what was gained tells them.

    gain : float     of evidence and prior at their maximum
    most : float     what the gain would be if the evidence were linear
    n_more : int     parameters more
    """
    return gain > 0.0 and gain > 0.5 * n_more * np.log(max(most / gain, 1.0))


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
            return None if self.prior is None else Hyperprior(self.prior).checked(X.shape[1], "prior")
        if self.prior == "weak":
            typical = lengthscales
            if not isinstance(self.lengthscales, str):  # a start says nothing of what is typical of the data
                typical = default_lengthscales(X, np.random.default_rng(0))
            return weak(typical, self._link)
        density = ("half-student-t", _DF, half_t_scale())
        units = lengthscales if _UNITS[self.prior] else 1.0
        return Hyperprior(
            {"variance": density, "lengthscales": (*density[:2], density[2] * units), "noise": density}
        ).checked(X.shape[1])

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
        most = self._most_gain(first)
        if not most > _WORTH:
            return first
        self._set_stage(X, each_input=True)
        parts = {name: getattr(first, name) for name in ("variance", "lengthscales", "noise", "Z")}
        each = self._train(X, codes, start._replace(**parts), rng, callback)
        gain = each.log_evidence + self._log_prior(each) - first.log_evidence - self._log_prior(first)
        if pays(gain, most, (X.shape[1] - 1) * self._functions()):
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

    def _learned(self, X: Any) -> tuple[str, ...]:
        """Names of what training learns."""
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
        sum. Where the evidence is concave in the logarithms, there is less to gain.
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

    # -- what was learned ----------------------------------------------------------------------------------------------

    def _by_class(self, fitted: Fitted) -> dict[Any, Learned]:
        """Label to the parameters of its latent function; two labels with one function: the second."""
        labels = (self.classes_ if self._multi_class else self.classes_[1:]).tolist()
        if not self._by_rows:
            return {label: Learned(fitted.variance, fitted.lengthscales, fitted.noise) for label in labels}
        rows = zip(labels, fitted.variance, fitted.lengthscales, fitted.noise, strict=True)
        return {
            label: Learned(float(variance), lengthscales, float(noise)) for label, variance, lengthscales, noise in rows
        }
