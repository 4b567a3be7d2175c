"""Adam on a vector of unconstrained parameters, and which parameters of the prior such a vector holds.

wenzel2019, section 5; Kingma and Ba (2014).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.hyperprior import Hyperprior, prior_gradients
from fast.core.inputs import Hyper
from fast.core.learned import coordinates, field_at, field_of, learned_names, log_derivative
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.ledger import equation

_FIRST_DECAY, _SECOND_DECAY, _EPSILON = 0.9, 0.999, 1e-8
_BLOCK = 16384  # numbers; four arrays of them stay in a cache of half a megabyte


class AdamState(NamedTuple):
    """Running moments of the gradient."""

    first: FloatArray  # (p,)
    second: FloatArray  # (p,)
    iteration: int

    @classmethod
    def start(cls, size: int) -> AdamState:
        """No gradient seen."""
        return cls(np.zeros(size), np.zeros(size), 0)


class AdamStep(NamedTuple):
    """What to add to the parameters, and the state after."""

    step: FloatArray  # (p,)
    state: AdamState


@equation("wenzel2019", "u5-adam")
def adam_step(gradient: FloatArray, state: AdamState, learning_rate: float, *, overwrite: bool = False) -> AdamStep:
    """One step uphill: learning_rate m_hat / (sqrt v_hat + 1e-8), decays 0.9 and 0.999, bias-corrected.

    Kingma and Ba (2014), algorithm 1, named in wenzel2019, section 5. In blocks that stay in the cache: with millions
    of parameters the passes over memory are what costs.

    Parameters
    ----------
    gradient : (p,)          of what is maximised
    state                    running moments
    learning_rate : float    largest step of a coordinate, roughly
    overwrite : bool         gradient becomes the step, and the arrays of the state those of the state after
    """
    t = state.iteration + 1
    share, correction = learning_rate / (1.0 - _FIRST_DECAY**t), 1.0 - _SECOND_DECAY**t
    if not overwrite:
        gradient, state = gradient.copy(), state._replace(first=state.first.copy(), second=state.second.copy())
    spare = np.empty_like(gradient[:_BLOCK])
    for start in range(0, gradient.size, _BLOCK):
        g, first, second = (part[start : start + _BLOCK] for part in (gradient, state.first, state.second))
        work = spare[: g.size]
        first *= _FIRST_DECAY
        first += np.multiply(g, 1.0 - _FIRST_DECAY, out=work)
        second *= _SECOND_DECAY
        np.square(g, out=work)
        work *= 1.0 - _SECOND_DECAY
        second += work
        np.divide(second, correction, out=work)
        np.sqrt(work, out=work)
        work += _EPSILON
        np.multiply(first, share, out=g)
        g /= work
    return AdamStep(gradient, state._replace(iteration=t))


class Packing:
    """Chosen parameters of the prior as one vector, see `fast.core.learned`, and the density that they have."""

    def __init__(
        self, learn: Iterable[str], hyper: Hyper, Z: FloatArray | None, hyperprior: Hyperprior | None = None
    ) -> None:
        self.names = learned_names(learn, hyper.noise)
        if "Z" in self.names and Z is None:
            raise ValueError("learn: found 'Z', expected inducing points to learn; this is a full GP")
        self.hyper, self.Z = hyper, Z
        self.hyperprior = Hyperprior.given(hyperprior, hyper.lengthscales.size)
        sizes = {"lengthscales": hyper.lengthscales.size} | ({} if Z is None else {"Z": Z.size})
        edges = np.cumsum([0, *(sizes.get(name, 1) for name in self.names)])
        self.parts = {name: slice(edges[k], edges[k + 1]) for k, name in enumerate(self.names)}
        self.size = int(edges[-1])

    def vector(self, hyper: Hyper, Z: FloatArray | None) -> FloatArray:
        """Parameters to a vector (p,)."""
        values = np.empty(self.size)
        for name, part in self.parts.items():
            if name == "Z":
                assert Z is not None
                values[part] = Z.ravel()
            else:
                values[part] = coordinates(name, getattr(hyper, field_of(name)))
        return values

    def parameters(self, vector: FloatArray, hyper: Hyper, Z: FloatArray | None) -> tuple[Hyper, FloatArray | None]:
        """A vector back to parameters; those that are not in it are taken from hyper and Z.

        Raises ValueError, by name, where the numbers leave the range that the prior may have.
        """
        changed: dict[str, Any] = {}
        for name, part in self.parts.items():
            if name == "Z":
                assert Z is not None
                Z = inputs.finite_rows("Z", vector[part].reshape(Z.shape).copy())
                continue
            field = field_of(name)
            here = vector[part] if name == "lengthscales" else vector[part][0]
            value = field_at(name, here, getattr(hyper, field))
            changed[field] = value if field == "lengthscales" else float(value)
            if value.min() == 0.0:
                raise ValueError(f"{field}: found a logarithm of {vector[part].min():.3g}, expected one in range")
        merged = {**hyper._asdict(), **changed}
        return inputs.hyper(n_columns=hyper.lengthscales.size, **merged), Z

    def gradient(self, gradients: Gradients, hyper: Hyper) -> FloatArray:
        """A gradient with respect to the parameters, in the coordinates of the vector."""
        values = np.empty(self.size)
        for name, part in self.parts.items():
            gradient = getattr(gradients, field_of(name))
            values[part] = (
                np.ravel(gradient) if name == "Z" else log_derivative(name, gradient, getattr(hyper, field_of(name)))
            )
        return values

    def prior(self, hyper: Hyper) -> tuple[float, FloatArray]:
        """Log density of what is learned and its derivatives in the coordinates of the vector; 0 without a hyperprior.

        It counts once, however many batches there are.
        """
        return prior_gradients(self.hyperprior, self.parts, self.size, lambda field: getattr(hyper, field))


def adam_arrays(state: AdamState) -> Mapping[str, np.ndarray]:
    """Arrays of a checkpoint.

    Parameters
    ----------
    state    running moments
    """
    return {"adam_first": state.first, "adam_second": state.second, "adam_iteration": np.array(state.iteration)}


def adam_restored(arrays: Mapping[str, np.ndarray]) -> AdamState:
    """The state that `adam_arrays` was given.

    Parameters
    ----------
    arrays    of a checkpoint
    """
    return AdamState(arrays["adam_first"], arrays["adam_second"], int(arrays["adam_iteration"]))
