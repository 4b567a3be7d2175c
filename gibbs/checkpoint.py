"""Files from which an interrupted run goes on: whole or absent, of one run only."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCHEMA = "gibbs-chain-2"


def fingerprint(settings: Mapping[str, object], arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of everything a run depends on: a checkpoint is resumed only under the same value.

    settings: names and values that JSON can hold; arrays: names and arrays. Returns 64 hexadecimal digits.
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def write(path: Path, mark: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write beside the target and rename: the target is the old file or the new one, never half of either.

    path: an .npz file; mark: fingerprint of the run; arrays: what it goes on from.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, allow_pickle=False, schema=np.array(SCHEMA), fingerprint=np.array(mark), **arrays)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def read(path: Path, mark: str) -> dict[str, NDArray[Any]]:
    """What `write` put into path under the same mark; ValueError if it is unreadable, foreign or of another run."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"checkpoint: found {path.name} unreadable ({error}), expected a file of a run") from error
    schema = str(arrays.pop("schema", "none"))
    if schema != SCHEMA:
        raise ValueError(f"checkpoint: found schema {schema!r} in {path.name}, expected {SCHEMA!r}")
    if str(arrays.pop("fingerprint", "")) != mark:
        raise ValueError(
            f"checkpoint: found {path.name} of another run, expected one of the same inputs, settings and seed; "
            "remove the file to start afresh"
        )
    return arrays
