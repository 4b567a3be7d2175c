"""The perturbation itself: what becomes of a function's output, leaf by leaf."""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import math
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
    np.ufunc,
    np.vectorize,
)


class Perturber:
    """A hook that changes the outputs of one function and counts what it did.

    scale: size of a change relative to the largest entry of a float leaf (absolute where the leaf is zero).
    calls: how often the function was called; leaves: how many leaves of its outputs were changed.
    """

    def __init__(self, function: Callable[..., Any], scale: float) -> None:
        """function: the marked function, as its package exposes it."""
        self.function = function
        self.scale = scale
        self.calls = 0
        self.leaves = 0

    def __call__(self, function: Callable[..., Any], output: Any) -> Any:
        """The output of any marked function: perturbed if it is the one, else as it is."""
        if function is not self.function:
            return output
        self.calls += 1
        return self.change(output)

    def change(self, value: Any) -> Any:
        """A perturbed copy of value; value itself is never written to. Texts, None and foreign objects pass.

        Floats: + scale · max|entry|, the sign alternating from entry to entry along every axis, so that symmetric
        matrices stay symmetric. Complex numbers: both parts. Flags and 0/1 integers are negated, -1/+1 integers
        change sign, other integers grow by one. Tuples, lists, mappings, dataclasses and objects of the function's
        own package are entered; functions and iterators that are returned have their own outputs changed.
        """
        if value is None or isinstance(value, (str, bytes, enum.Enum, type, types.ModuleType)):
            return value
        if type(value) is float:  # what is called most, integrands for one, without an array
            self.leaves += 1
            return value + self.scale * (abs(value) or 1.0) if math.isfinite(value) else value
        if isinstance(value, (bool, int, complex)) and type(value) in (bool, int, complex):
            return self._array(np.asarray(value)).item()
        if isinstance(value, np.generic):
            return self._array(np.asarray(value))[()]
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, tuple):
            parts = [self.change(part) for part in value]
            return type(value)._make(parts) if hasattr(value, "_make") else type(value)(parts)
        if isinstance(value, list):
            return [self.change(part) for part in value]
        if isinstance(value, (types.MappingProxyType, dict)):
            return self._mapping(value)
        if isinstance(value, _FUNCTIONS):
            return self._callable(value)
        if type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "iloc"):
            return self._table(value)
        if isinstance(value, Iterator):
            return self._iterator(value)
        if dataclasses.is_dataclass(value) or self._own(value):
            return self._object(value)
        return value

    def _array(self, value: np.ndarray) -> np.ndarray:
        """A perturbed copy of an array of any number of axes."""
        kind = value.dtype.kind
        if value.size == 0 or kind not in "biufcO":
            return value
        if kind == "O":
            changed = value.copy()
            for place in np.ndindex(value.shape):
                changed[place] = self.change(value[place])
            return changed
        self.leaves += 1
        if kind == "b":
            return ~value
        if kind in "iu":
            if np.all((value == 0) | (value == 1)):
                return 1 - value
            if kind == "i" and np.all(np.abs(value) == 1):
                return -value
            return value + np.ones_like(value)
        finite = np.abs(value[np.isfinite(value)])
        largest = float(finite.max()) if finite.size else 0.0
        step = self.scale * (largest if largest > 0.0 else 1.0)
        sign = 1.0 - 2.0 * (np.indices(value.shape).sum(axis=0) % 2) if value.ndim else np.float64(1.0)
        changed = np.array(value)
        changed += (sign * step * (1.0 + 1.0j if kind == "c" else 1.0)).astype(value.dtype)
        return changed

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        """A mapping of the same type with perturbed values."""
        changed = {name: self.change(part) for name, part in value.items()}
        if isinstance(value, types.MappingProxyType):
            return types.MappingProxyType(changed)
        twin: Any = copy.copy(value)
        for name, part in changed.items():
            twin[name] = part
        return twin

    def _callable(self, value: Callable[..., Any]) -> Callable[..., Any]:
        """The same function with perturbed outputs."""
        self.leaves += 1

        def changed(*args: Any, **kwargs: Any) -> Any:
            return self.change(value(*args, **kwargs))

        return functools.update_wrapper(changed, value)

    def _iterator(self, value: Iterator[Any]) -> Iterator[Any]:
        """The same iterator with perturbed elements."""
        self.leaves += 1
        return (self.change(part) for part in value)

    def _object(self, value: Any) -> Any:
        """A copy of an object with perturbed attributes; frozen and slotted dataclasses too, no __init__ is run."""
        twin = copy.copy(value)
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        else:
            names = list(vars(value))
        for name in names:
            object.__setattr__(twin, name, self.change(getattr(value, name)))
        return twin

    def _table(self, value: Any) -> Any:
        """A data frame or series with perturbed columns."""
        twin = value.copy()
        if hasattr(value, "columns"):
            for place, name in enumerate(value.columns):
                twin[name] = self._table(value.iloc[:, place])
        elif value.dtype.kind in "biufc":
            twin = type(value)(self._array(value.to_numpy()), index=value.index, name=value.name)
        return twin

    def _own(self, value: Any) -> bool:
        """Whether the object's class comes from the package of the function, and can be entered."""
        package = self.function.__module__.partition(".")[0]
        return hasattr(value, "__dict__") and type(value).__module__.partition(".")[0] == package
