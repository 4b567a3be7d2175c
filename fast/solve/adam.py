"""Adam on a vector of unconstrained parameters, and which parameters of the prior such a vector holds.

wenzel2019, section 5; Kingma and Ba (2014).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.inputs import Hyper
from fast.core.results import Gradients
from fast.core.types import FloatArray
from fast.ledger import equation

LEARNABLE = ("variance", "lengthscales", "noise", "Z")
_FIRST_DECAY, _SECOND_DECAY, _EPSILON = 0.9, 0.999, 1e-8


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
def adam_step(gradient: FloatArray, state: AdamState, learning_rate: float) -> AdamStep:
    """One step uphill: learning_rate m_hat / (sqrt v_hat + 1e-8), decays 0.9 and 0.999, bias-corrected.

    Kingma and Ba (2014), algorithm 1, named in wenzel2019, section 5.

    Parameters
    ----------
    gradient : (p,)          of what is maximised
    state                    running moments
    learning_rate : float    largest step of a coordinate, roughly
    """
    t = state.iteration + 1
    first = _FIRST_DECAY * state.first + (1.0 - _FIRST_DECAY) * gradient
    second = _SECOND_DECAY * state.second + (1.0 - _SECOND_DECAY) * gradient**2
    scale = np.sqrt(second / (1.0 - _SECOND_DECAY**t)) + _EPSILON
    return AdamStep(learning_rate / (1.0 - _FIRST_DECAY**t) * first / scale, AdamState(first, second, t))


class Packing:
    """Chosen parameters of the prior as one vector: log variance, log lengthscales, log noise, Z as it is."""

    def __init__(self, learn: Iterable[str], hyper: Hyper, Z: FloatArray | None) -> None:
        chosen = (learn,) if isinstance(learn, str) else tuple(learn)
        foreign = [name for name in chosen if name not in LEARNABLE]
        if foreign or len(set(chosen)) != len(chosen):
            raise ValueError(f"learn: found {chosen}, expected different names of {', '.join(LEARNABLE)}")
        if "noise" in chosen and hyper.noise == 0.0:
            raise ValueError("noise: found 0.0, expected > 0 when it is learned: its logarithm moves")
        if "Z" in chosen and Z is None:
            raise ValueError("learn: found 'Z', expected inducing points to learn; this is a full GP")
        self.names = tuple(name for name in LEARNABLE if name in chosen)
        self.hyper, self.Z = hyper, Z
        sizes = {"variance": 1, "lengthscales": hyper.lengthscales.size, "noise": 1, "Z": 0 if Z is None else Z.size}
        edges = np.cumsum([0, *(sizes[name] for name in self.names)])
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
                values[part] = np.log(getattr(hyper, name))
        return values

    def parameters(self, vector: FloatArray, hyper: Hyper, Z: FloatArray | None) -> tuple[Hyper, FloatArray | None]:
        """A vector back to parameters; those that are not in it are taken from hyper and Z.

        Raises ValueError, by name, where the numbers leave the range that the prior may have.
        """
        changed: dict[str, Any] = {}
        with np.errstate(over="ignore", under="ignore"):
            for name, part in self.parts.items():
                if name == "Z":
                    assert Z is not None
                    Z = inputs.finite_rows("Z", vector[part].reshape(Z.shape).copy())
                else:
                    value = np.exp(vector[part])
                    changed[name] = value if name == "lengthscales" else float(value[0])
                    if value.min() == 0.0:
                        raise ValueError(
                            f"{name}: found a logarithm of {vector[part].min():.3g}, expected one in range"
                        )
        merged = {**hyper._asdict(), **changed}
        return inputs.hyper(n_columns=hyper.lengthscales.size, **merged), Z

    def slope(self, gradients: Gradients, hyper: Hyper) -> FloatArray:
        """A gradient with respect to the parameters, in the coordinates of the vector."""
        values = np.empty(self.size)
        for name, part in self.parts.items():
            slope = np.ravel(getattr(gradients, name))
            values[part] = slope if name == "Z" else slope * getattr(hyper, name)
        return values


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
