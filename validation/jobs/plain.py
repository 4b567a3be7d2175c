"""Values as a JSON tree and plain arrays, and back: no pickles, and only types that the reader names.

Numbers, text, None, tuples, lists, dictionaries, sets of them, arrays, NamedTuples and dataclasses; and what gives and
takes its own arrays by `to_arrays` and `from_arrays`. Floats keep every bit.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.door.storage import FileFormatError

Arrays = dict[str, NDArray[Any]]


def encode(value: Any) -> tuple[Any, Arrays]:
    """A tree that JSON can hold, and the arrays that it refers to.

    Raises
    ------
    TypeError    for anything else than the types of this module's first lines
    """
    arrays: Arrays = {}
    return _encode(value, arrays), arrays


def _encode(value: Any, arrays: Arrays) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        key = f"a{len(arrays)}"
        arrays[key] = np.asarray(value)
        return {"array": key}
    kind = f"{type(value).__module__}:{type(value).__qualname__}"
    if hasattr(value, "to_arrays"):
        return {"own": kind, "arrays": {name: _encode(part, arrays) for name, part in value.to_arrays().items()}}
    if hasattr(value, "_fields"):  # a NamedTuple
        return {"named": kind, "fields": {name: _encode(getattr(value, name), arrays) for name in value._fields}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        return {"named": kind, "fields": {name: _encode(getattr(value, name), arrays) for name in fields}}
    if isinstance(value, (tuple, list)):
        return {"tuple" if isinstance(value, tuple) else "list": [_encode(entry, arrays) for entry in value]}
    if isinstance(value, (set, frozenset)):
        # an order of their own would make two fingerprints of one set
        return {"set": sorted((_encode(entry, arrays) for entry in value), key=json.dumps)}
    if isinstance(value, Mapping):
        return {"pairs": [[_encode(key, arrays), _encode(entry, arrays)] for key, entry in value.items()]}
    raise TypeError(f"value: found {kind}, expected numbers, text, arrays, and tuples or dataclasses of them")


def decode(tree: Any, arrays: Mapping[str, NDArray[Any]], types: Iterable[type]) -> Any:
    """What `encode` was given.

    types    NamedTuples, dataclasses and types with `from_arrays` that may be made

    Raises
    ------
    FileFormatError    for a tree that `encode` does not make, or a type that is not among them
    """
    known = {f"{kind.__module__}:{kind.__qualname__}": kind for kind in types}
    try:
        return _decode(tree, arrays, known)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise FileFormatError(f"value: found a tree that cannot be read ({error}), expected one of encode") from error


def _decode(tree: Any, arrays: Mapping[str, NDArray[Any]], known: Mapping[str, Any]) -> Any:
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    if "array" in tree:
        return arrays[tree["array"]]
    if "own" in tree:
        own = {name: _decode(part, arrays, known) for name, part in tree["arrays"].items()}
        return _type(tree["own"], known).from_arrays(own)
    if "named" in tree:
        fields = {name: _decode(part, arrays, known) for name, part in tree["fields"].items()}
        return _type(tree["named"], known)(**fields)
    if "tuple" in tree:
        return tuple(_decode(entry, arrays, known) for entry in tree["tuple"])
    if "list" in tree:
        return [_decode(entry, arrays, known) for entry in tree["list"]]
    if "set" in tree:
        return frozenset(_decode(entry, arrays, known) for entry in tree["set"])
    return {_decode(key, arrays, known): _decode(entry, arrays, known) for key, entry in tree["pairs"]}


def _type(name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise FileFormatError(f"value: found the type {name}, expected one of {', '.join(sorted(known)) or 'none'}")
    return known[name]


def fingerprint(*values: Any) -> str:
    """Of every byte of some values: sha256 of their trees and arrays."""
    tree, arrays = encode(values)
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True).encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
