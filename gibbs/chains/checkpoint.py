"""Files from which an interrupted run goes on: whole or absent, of one run only.

What a run depends on is written into its file by name, so that a refusal says which of it is another. Headers are read
before arrays are, and nothing is compressed: a file gives no more memory work than its own length.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import re
import secrets
import struct
import tokenize
import warnings
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy
from numpy.lib import format as npy
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from gibbs.core.checks import file_name, temporary_name

try:
    import fcntl
except ImportError:  # no locks: a system on which files that are open cannot be removed
    fcntl = None  # type: ignore[assignment]

SCHEMA = "gibbs-chain-3"
_AGAIN = "remove the file to start afresh"
# what readers of zip and npy raise for bytes that were changed
_DAMAGE = (
    OSError, ValueError, EOFError, KeyError, TypeError, AttributeError, RuntimeError, OverflowError, SyntaxError,
    tokenize.TokenError, struct.error, zipfile.BadZipFile,
)  # fmt: skip


def fingerprint(settings: Mapping[str, object], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Everything a run depends on, by name: a checkpoint is resumed only under the same text.

    settings: names and values that JSON can hold; arrays: names and arrays, of which a SHA-256 over type, shape and
    every byte is kept. Returns JSON.
    """
    names = {f"settings.{name}": value for name, value in settings.items()}
    names |= {f"arrays.{name}": _sha256(np.asarray(array)) for name, array in arrays.items()}
    return json.dumps(names, sort_keys=True)


def write(path: Path, mark: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write beside the target and rename: the target is the old file or the new one, never half of either.

    path: an .npz file; mark: fingerprint of the run; arrays: what it goes on from. Raises OSError naming path where the
    disk is full or the folder closed. A writer holds a lock on its temporary file: what a killed one left is removed.
    """
    path = file_name("checkpoint", path)
    sweep_out(path)
    held = {name: np.asarray(array) for name, array in arrays.items()}
    held["schema"], held["fingerprint"] = np.array(SCHEMA), np.array(mark)
    held["numerics"] = np.array(json.dumps(_numerics()))
    held["sum"] = np.array(_sum(held))
    temporary = None
    try:
        stream, temporary = _locked(path)
        with stream:
            np.savez(stream, **held)  # type: ignore[arg-type]
            stream.flush()
            os.fsync(stream.fileno())
            if fcntl is not None:
                os.replace(temporary, path)
        if fcntl is None:
            os.replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, f"checkpoint: found {error.strerror or error} while {path} was written") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def read(path: Path, mark: str) -> dict[str, NDArray[Any]]:
    """What `write` put into path under the same mark; ValueError if it is damaged, foreign or of another run.

    RuntimeWarning if another version of this package, NumPy, SciPy or another kernel of linear algebra wrote it.
    """
    path = file_name("checkpoint", path)
    sweep_out(path)
    try:
        with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            arrays = _unpacked(archive, os.fstat(stream.fileno()).st_size)
    except _DAMAGE as error:
        raise ValueError(
            f"checkpoint: found {path.name} unreadable ({error or type(error).__name__}), expected a file of a run; "
            f"{_AGAIN}"
        ) from error
    schema = str(arrays.get("schema", "none"))
    if schema != SCHEMA:
        raise ValueError(f"checkpoint: found schema {schema[:40]!r} in {path.name}, expected {SCHEMA!r}; {_AGAIN}")
    total = str(arrays.pop("sum", ""))
    if total != _sum(arrays):
        raise ValueError(f"checkpoint: found {path.name} changed after it was written, expected it whole; {_AGAIN}")
    del arrays["schema"]
    _same(path.name, str(arrays.pop("fingerprint", "{}")), mark)
    now, was = _numerics(), json.loads(str(arrays.pop("numerics", "{}")))
    other = [f"{name} {was.get(name, 'unknown')} instead of {now[name]}" for name in now if was.get(name) != now[name]]
    if other:
        warnings.warn(
            f"checkpoint: found {path.name} written by {', '.join(other)}, expected the same; draws may differ",
            RuntimeWarning,
            stacklevel=2,
        )
    return arrays


def _numerics() -> dict[str, str]:
    """What may move the last digits of a run: the text of this package, libraries, kernels of linear algebra."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    kernels = {" ".join(str(pool.get(key)) for key in ("internal_api", "version", "architecture")) for pool in pools}
    return {
        "gibbs": _code(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "kernel": ", ".join(sorted(kernels)) or "unknown",
    }


@cache
def _code() -> str:
    root = Path(__file__).resolve().parents[1]
    text = b"".join(path.read_bytes().replace(b"\r\n", b"\n") for path in sorted(root.rglob("*.py")))
    return hashlib.sha256(text).hexdigest()[:12]


def sweep_out(path: Path) -> None:
    """Remove temporary files of path that no living process holds.

    path: an .npz file
    """
    ours = re.compile(rf"\.{re.escape(path.name[:40])}\.[a-z0-9_]{{8}}\.part")
    with contextlib.suppress(OSError):
        for entry in list(path.parent.iterdir()):
            if ours.fullmatch(entry.name) and entry.is_file() and not entry.is_symlink():
                _remove_if_free(entry)


def _remove_if_free(entry: Path) -> None:
    if fcntl is None:
        with contextlib.suppress(OSError):
            entry.unlink()
        return
    with contextlib.suppress(OSError), entry.open("r+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError: its writer lives
        if os.path.samestat(os.fstat(stream.fileno()), entry.stat()):
            entry.unlink()


def _locked(path: Path) -> tuple[IO[bytes], Path]:
    """A temporary file under a lock; a new one where somebody took it for an orphan before the lock was there.

    It is created with the rights that the umask leaves.
    """
    while True:
        temporary = temporary_name(path, secrets.token_hex(4))
        try:
            stream = temporary.open("xb")
        except FileExistsError:
            continue
        if fcntl is None:
            return stream, temporary
        with contextlib.suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)
        if temporary.exists() and os.path.samestat(os.fstat(stream.fileno()), temporary.stat()):
            return stream, temporary
        stream.close()


def _sha256(array: NDArray[Any]) -> str:
    result = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    result.update(array.tobytes())
    return result.hexdigest()


def _sum(arrays: Mapping[str, NDArray[Any]]) -> str:
    parts = [f"{name} {_sha256(arrays[name])}" for name in sorted(arrays)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _unpacked(archive: zipfile.ZipFile, length: int) -> dict[str, NDArray[Any]]:
    """All arrays, after every header was found to tell the truth about a member that is no longer than the file."""
    entries = archive.infolist()
    names = [entry.filename.removesuffix(".npy") for entry in entries]
    if len(set(names)) != len(names) or sum(entry.file_size for entry in entries) > length:
        raise ValueError("members of one name, or larger than the file")
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or not entry.filename.endswith(".npy"):
            raise ValueError(f"{entry.filename} is compressed, or no array")
        with archive.open(entry) as stream:
            major, _ = npy.read_magic(stream)
            header = npy.read_array_header_1_0 if major == 1 else npy.read_array_header_2_0
            shape, _, dtype = header(stream)
            promised = stream.tell() + dtype.itemsize * math.prod(shape)
        if dtype.hasobject or promised != entry.file_size:
            raise ValueError(f"{entry.filename} holds objects, or not what its header has")
    return {
        name: npy.read_array(io.BytesIO(archive.read(entry)), allow_pickle=False)
        for name, entry in zip(names, entries, strict=True)
    }


def _same(name: str, actual: str, expected: str) -> None:
    """Refuse another run by what is different in it."""
    if actual == expected:
        return
    try:
        was, now = dict(json.loads(actual)), dict(json.loads(expected))
    except (TypeError, ValueError):
        was, now = {}, {}
    missing = object()
    changed = sorted(key for key in {*was, *now} if was.get(key, missing) != now.get(key, missing))
    data = [key.removeprefix("arrays.") for key in changed if key.startswith("arrays.")]
    rest = [key for key in changed if not key.startswith("arrays.")]
    texts = [f"another {key}" for key in data]
    texts += [f"{key.removeprefix('settings.')} = {was.get(key)!r} instead of {now.get(key)!r}" for key in rest]
    what = ", ".join(texts) or "without a readable fingerprint"
    raise ValueError(
        f"checkpoint: found {name} of another run ({what}), expected one of the same inputs, settings and seed; "
        f"{_AGAIN}"
    )
