"""Checkpoints that are either whole or absent, and refuse to continue another run."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SCHEMA = "fast-checkpoint/1"


def fingerprint(settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    """A digest of what a run depends on: settings by their JSON, arrays by dtype, shape and bytes.

    Parameters
    ----------
    settings    names and plain values
    arrays      names and arrays (for large data: a part of them)
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def save(checkpoint: str | os.PathLike[str], mark: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file that replaces the old one in a single step: a kill leaves the old or the new one.

    Parameters
    ----------
    checkpoint : path    .npz file
    mark : str           fingerprint of the run
    arrays               names and arrays
    """
    path = Path(checkpoint)
    handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **{"schema": np.array(SCHEMA), "mark": np.array(mark), **arrays})
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(checkpoint: str | os.PathLike[str], mark: str) -> dict[str, np.ndarray] | None:
    """Arrays of a checkpoint; None if there is no such file.

    Parameters
    ----------
    checkpoint : path    .npz file
    mark : str           fingerprint that it must carry

    Raises
    ------
    ValueError    the file is no checkpoint of this format, or belongs to another run
    """
    path = Path(checkpoint)
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"checkpoint: found {path} that cannot be read, expected a .npz file") from error
    if str(arrays.pop("schema", "")) != SCHEMA:
        raise ValueError(f"checkpoint: found {path} without the mark {SCHEMA!r}, expected a checkpoint of this package")
    if str(arrays.pop("mark", "")) != mark:
        raise ValueError(
            f"checkpoint: found {path} of a run with other data or settings, expected the same; "
            "remove the file to start anew"
        )
    return arrays
