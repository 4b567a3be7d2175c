"""Checks of arguments: each error names the argument, what was found, and what was expected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from validation.door.quoting import shown

LONGEST = 2**31 - 1  # rows or columns; beyond, no array of ours fits into memory


def float_array(value: ArrayLike | None, name: str) -> NDArray[np.float64]:
    """The argument as float64, or an error that names it."""
    array = _plain_array(value, name, "an array of real numbers")
    if array.dtype.kind not in "fiub":
        text = f"{type(value).__name__} of dtype {array.dtype}"
        raise TypeError(f"{name}: found {text}, expected an array of real numbers")
    with np.errstate(over="ignore"):  # a long double beyond float64 becomes inf here and is refused as such
        return array.astype(np.float64)


def matrix(value: ArrayLike, name: str) -> NDArray[np.float64]:
    """A finite array with two axes."""
    array = float_array(value, name)
    if array.ndim != 2:
        raise ValueError(f"{name}: found shape {array.shape}, expected two axes, points and inputs")
    return finite(array, name)


def finite(array: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """The array itself, if it holds no NaN and no infinity."""
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):  # not .size: an array without axes has one entry and no index
        at = tuple(int(i) for i in bad[0])
        where = f" at {at} ({len(bad)} such entries)" if at else ""
        raise ValueError(f"{name}: found {array[at]}{where}, expected finite numbers")
    return array


def positive_array(array: NDArray[np.float64], name: str) -> None:
    """Refuse an array that holds anything but finite numbers > 0."""
    finite(array, name)
    if not (array > 0.0).all():
        raise ValueError(f"{name}: found {array.min():.6g}, expected numbers > 0")


def per_latent(value: ArrayLike, L: int, name: str, *, positive: bool) -> NDArray[np.float64]:
    """One number for each latent; a scalar stands for all."""
    array = float_array(value, name)
    if array.ndim == 0:
        array = np.broadcast_to(array, (L,))
    check_shape(array, (L,), name)
    if positive:
        positive_array(array, name)
    elif not (finite(array, name) >= 0.0).all():
        raise ValueError(f"{name}: found {array.min():.6g}, expected numbers >= 0")
    return array


def check_shape(array: NDArray[Any], expected: tuple[int, ...], name: str) -> None:
    """Refuse an array of another shape."""
    if array.shape != expected:
        raise ValueError(f"{name}: found shape {array.shape}, expected {expected}")


def labels(value: ArrayLike, n: int, n_classes: int, name: str) -> NDArray[np.int64]:
    """(n,) integer labels 0..n_classes-1."""
    array = _plain_array(value, name, f"integer labels 0..{n_classes - 1}")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: found dtype {array.dtype}, expected integer labels 0..{n_classes - 1}")
    check_shape(array, (n,), name)
    if n and (array.min() < 0 or array.max() >= n_classes):
        wrong = array.min() if array.min() < 0 else array.max()
        raise ValueError(f"{name}: found the label {wrong}, expected 0..{n_classes - 1}")
    return array.astype(np.int64)


def choice(value: Any, known: tuple[str, ...], name: str) -> str:
    """One of the known strings."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}: found {shown(value)}, expected one of {', '.join(known)}")
    return str(value)


def string(value: Any, name: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: found {type(value).__name__}, expected a string")
    return str(value)


def label(value: Any, name: str) -> str:
    """A name that reports can show on one line; files would lose a NUL at its end."""
    text = string(value, name)
    if not text.strip() or not text.isprintable():
        raise ValueError(f"{name}: found {shown(text)}, expected a name of printable characters on one line")
    return text


def mapping(value: Any, name: str) -> dict[str, Any]:
    """A copy of a mapping whose keys are names."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name}: found {type(value).__name__}, expected a mapping")
    return {label(key, f"{name} key"): entry for key, entry in value.items()}


def json_mapping(value: Any, name: str) -> dict[str, Any]:
    """A mapping as JSON keeps it (tuples become lists, NumPy numbers plain ones), so that files give back the same."""
    checked: dict[str, Any] = {}
    for key, entry in mapping(value, name).items():
        try:
            checked[key] = json.loads(json.dumps(entry, default=_plain_value))
        except (TypeError, ValueError, RecursionError) as error:  # the last: lists too deep in lists
            raise TypeError(
                f"{name}[{key!r}]: found {type(entry).__name__} ({error}), expected numbers, text, lists or mappings"
            ) from error
    return checked


def boolean(value: Any, name: str) -> bool:
    """A truth value."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: found {type(value).__name__}, expected True or False")
    return bool(value)


def integer(value: Any, name: str, *, at_least: int) -> int:
    """An integer that is no truth value."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: found {_typed(value)}, expected an integer")
    if abs(int(value)) >= 2**63:
        raise ValueError(f"{name}: found an integer of {int(value).bit_length()} bits, expected one of 64")
    if value < at_least:
        raise ValueError(f"{name}: found {value}, expected at least {at_least}")
    return int(value)


def size(value: Any, name: str) -> int:
    """Length of an axis: an integer >= 1 that an array could have."""
    result = integer(value, name, at_least=1)
    if result > LONGEST:
        raise ValueError(f"{name}: found {result}, expected at most {LONGEST}")
    return result


def generator(value: Any, name: str) -> np.random.Generator:
    """A source of random numbers."""
    if not isinstance(value, np.random.Generator):
        raise TypeError(f"{name}: found {_typed(value)}, expected a numpy.random.Generator")
    return value


def real(value: Any, name: str) -> float:
    """One finite number."""
    if isinstance(value, str):
        raise TypeError(f"{name}: found {_typed(value)}, expected one finite number")
    array = float_array(value, name)
    if array.ndim:
        raise ValueError(f"{name}: found shape {array.shape}, expected one number")
    return float(finite(array, name))


def _typed(value: Any) -> str:
    """Type and value, where the value is short enough to be one."""
    kind = type(value).__name__
    return f"{kind} {value!r}" if isinstance(value, (str, int, float, np.generic)) and len(repr(value)) < 40 else kind


def _plain_array(value: Any, name: str, expected: str) -> NDArray[Any]:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise TypeError(f"{name}: found a masked array with entries missing, expected {expected}")
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:  # ragged lists, objects that refuse to be arrays
        raise TypeError(f"{name}: found {type(value).__name__} ({error}), expected {expected}") from error


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.floating):
        return float(value)  # item() of a long double is the long double again
    if isinstance(value, np.generic) and type(value.item()) is not type(value):
        return value.item()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} inside")


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A private copy that cannot be written."""
    own = np.array(array, order="C")
    own.flags.writeable = False
    return own
