"""Checkpoints that are either whole or absent, and continue one run only: same data to the last byte, same settings.

A file holds arrays, the marks of its run and a digest of both. Before an array is read its name, type and shape are
taken from the header and held against what the run expects; members are stored as they are, so no file can unpack to
more than it is. A writer locks its temporary file: one that nobody holds was left by a process that was killed, and is
removed by the next run that looks.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from fast.core.by_rows import ByRows
from fast.core.checks import file_name, part_name, shown
from fast.core.places import Place, here

try:
    import fcntl
except ImportError:  # Windows, which does not let a file be removed that somebody has open
    fcntl = None  # type: ignore[assignment]

SCHEMA = "fast-checkpoint/2"
_BLOCK_BYTES = 2**22  # read at a time for a digest
# what zipfile and NumPy raise on bytes that were changed or cut off
_DAMAGE = (
    zipfile.BadZipFile,
    OSError,
    EOFError,
    KeyError,
    ValueError,
    TypeError,
    struct.error,
    RuntimeError,
    OverflowError,
    SyntaxError,
    tokenize.TokenError,
)


class Digest:
    """SHA-256 of rows that come block by block: type of the numbers, shape of a row, bytes; their cuts are no part.

    Booleans and integers count as int64, real numbers as float64: what a run computes with.
    """

    def __init__(self) -> None:
        self._sha, self._rows, self._row = hashlib.sha256(), 0, ""

    def add(self, rows: Any) -> None:
        """More rows: (b, ...)."""
        block = np.asarray(rows)
        if block.dtype.kind in "biu":
            block = block.astype("<i8", copy=False)
        elif block.dtype.kind == "f":
            block = block.astype("<f8", copy=False)
        block = np.ascontiguousarray(block)
        self._row = f"{block.dtype.str} {block.shape[1:]}"
        self._rows += block.shape[0]
        self._sha.update(block.data)

    def __str__(self) -> str:
        """64 hexadecimal digits."""
        whole = self._sha.copy()
        whole.update(f"{self._rows} {self._row}".encode())
        return whole.hexdigest()


def digest(array: Any) -> str:
    """Digest of every entry of an array or memory map, in one sequential read with a few megabytes of memory.

    Parameters
    ----------
    array : (n, ...)    or a number
    """
    result = Digest()
    given: Any = array if isinstance(array, (np.ndarray, ByRows)) else np.asarray(array)
    if given.ndim == 0:
        given = given[None]
    rows = max(1, _BLOCK_BYTES // max(1, given[:1].nbytes))
    for start in range(0, given.shape[0], rows):
        result.add(given[start : start + rows])
    return str(result)


def lists_digest(lists: Iterable[Any]) -> str:
    """Digest of arrays of different lengths, in their order.

    Parameters
    ----------
    lists    arrays (b,)
    """
    parts = [digest(part) for part in lists]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def fingerprint(settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    """What a run depends on, by name: settings as they are, arrays by their digests; JSON.

    Parameters
    ----------
    settings    names and plain values
    arrays      names and arrays (n, ...), or digests of what was read block by block
    """
    plain = {name: json.loads(json.dumps(value, default=repr)) for name, value in settings.items()}
    digests = {name: value if isinstance(value, str) else digest(value) for name, value in arrays.items()}
    return json.dumps({"settings": plain, "arrays": digests}, sort_keys=True)


def save(checkpoint: str | os.PathLike[str], mark: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file that replaces the old one in a single step: a kill leaves the old or the new one.

    Parameters
    ----------
    checkpoint : path    .npz file
    mark : str           fingerprint of the run
    arrays               names and arrays

    Raises
    ------
    OSError       naming the file, which is then what it was before
    ValueError    the path is no place for a file
    """
    path = file_name("checkpoint", checkpoint)
    stored = {name: np.asarray(value) for name, value in arrays.items()}
    stored["numerics"] = np.array(json.dumps(here()))
    stored |= {"schema": np.array(SCHEMA), "mark": np.array(mark), "content": np.array(_content(mark, stored))}
    _replace(path, lambda file: np.savez(file, **stored))  # type: ignore[arg-type]


def load(
    checkpoint: str | os.PathLike[str],
    mark: str,
    like: Mapping[str, Any] | None = None,
    growing: Iterable[str] = (),
    optional: Iterable[str] = (),
) -> dict[str, np.ndarray] | None:
    """Arrays of a checkpoint; None if there is no such file. What a killed writer left beside it is removed.

    A RuntimeWarning names another code, Python, NumPy, SciPy or kernel of linear algebra that the file was written by.

    Parameters
    ----------
    checkpoint : path    .npz file
    mark : str           fingerprint that it must carry
    like                 what `save` would be given now: names, types and shapes are held against it; None: not at all
    growing              names whose shape may differ
    optional             names that may be missing

    Raises
    ------
    ValueError    the file is damaged or no checkpoint of this format, or belongs to another run: the first array or
                  setting that differs is named; or the path is no place for a file
    """
    path = file_name("checkpoint", checkpoint)
    _remove_orphans(path)
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = _members(archive, file)
            text = _text(archive, members, "schema")
            if text != SCHEMA:
                value = "no schema" if text is None else f"schema {text[:40]!r}"
                raise _ForeignError(f"with {value}, expected {SCHEMA!r}; remove the file to start anew")
            _same_run(str(_text(archive, members, "mark")), mark)
            if like is not None:
                _same_arrays(members, like, set(growing), set(optional))
            arrays = {name: _read(archive, member) for name, member in members.items()}
    except _ForeignError as error:
        raise ValueError(f"checkpoint: found {path} {error}") from None
    except _DAMAGE as error:
        raise ValueError(
            f"checkpoint: found {path} that cannot be read ({_first_line(error)}), expected a .npz file as it was "
            "written; remove the file to start anew"
        ) from error
    stored = str(arrays.pop("content", ""))
    del arrays["schema"], arrays["mark"]
    if stored != _content(mark, arrays):
        raise ValueError(
            f"checkpoint: found {path} with content that was changed, expected it as it was written; remove the file "
            "to start anew"
        )
    _warn_of_other_numerics(path, arrays.pop("numerics", None))
    return arrays


def _warn_of_other_numerics(path: Path, stored: np.ndarray | None) -> None:
    """A file of an earlier version does not say where it was written."""
    found = ["unknown numerics"] if stored is None else Place(*json.loads(str(stored))).differences(here())
    if found:
        warnings.warn(
            f"checkpoint: found {path} written by {'; '.join(found)}, expected the same; the last digits may differ",
            RuntimeWarning,
            stacklevel=2,
        )


class _ForeignError(Exception):
    """A whole file that is not of this run; the text says how."""


class _Member(NamedTuple):
    """An array of an archive, by its header."""

    info: zipfile.ZipInfo
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def _content(mark: str, arrays: Mapping[str, Any]) -> str:
    sha = hashlib.sha256(mark.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"\n{name} {array.dtype.str} {np.shape(arrays[name])}\n".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def _members(archive: zipfile.ZipFile, file: IO[bytes]) -> dict[str, _Member]:
    """Headers of all arrays. Nothing is unpacked: members are refused unless they are stored as they are."""
    size = os.fstat(file.fileno()).st_size
    if sum(info.compress_size for info in archive.infolist()) > size:
        raise ValueError("arrays are larger than the file")
    members: dict[str, _Member] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ValueError(f"{name} is packed")
        if name in members or name == info.filename:
            raise ValueError(f"{info.filename} is there twice or is no array")
        with archive.open(info) as stream:
            version = np.lib.format.read_magic(stream)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, _, dtype = read(stream)
            header = stream.tell()
        if dtype.hasobject:
            raise ValueError(f"{name} holds objects")
        if any(axis < 0 for axis in shape) or header + dtype.itemsize * math.prod(shape) != info.file_size:
            raise ValueError(f"{name} is not as large as its header has it")
        members[name] = _Member(info, dtype, tuple(shape))
    return members


def _read(archive: zipfile.ZipFile, member: _Member) -> np.ndarray:
    """An array; reading a member to its end checks its sum."""
    array: np.ndarray = np.lib.format.read_array(io.BytesIO(archive.read(member.info)), allow_pickle=False)
    return array


def _text(archive: zipfile.ZipFile, members: Mapping[str, _Member], name: str) -> str | None:
    member = members.get(name)
    if member is None or member.dtype.kind != "U" or member.shape:
        return None
    return str(_read(archive, member))


def _same_run(actual: str, expected: str) -> None:
    """Refuse another run by the names of what differs."""
    if actual == expected:
        return
    here, there = _parsed(expected), _parsed(actual)
    if here is None or there is None:
        raise _ForeignError("of another run, expected the same; remove the file to start anew")
    other = [name for name in _names(here, there, "arrays") if _differs(here, there, "arrays", name)]
    if other:
        raise _ForeignError(
            f"of a run with another {', '.join(other)}, expected the same; remove the file to start anew"
        )
    changed = [name for name in _names(here, there, "settings") if _differs(here, there, "settings", name)]
    was = ", ".join(f"{name} = {there['settings'].get(name)!r}" for name in changed)
    now = ", ".join(f"{name} = {here['settings'].get(name)!r}" for name in changed)
    raise _ForeignError(f"of a run with {was}, expected {now}; remove the file to start anew")


def _parsed(mark: str) -> dict[str, dict[str, Any]] | None:
    try:
        content = json.loads(mark)
    except ValueError:
        return None
    whole = isinstance(content, dict) and all(isinstance(content.get(key), dict) for key in ("settings", "arrays"))
    return content if whole else None


def _names(here: Mapping[str, Any], there: Mapping[str, Any], kind: str) -> list[str]:
    return sorted({*here[kind], *there[kind]})


def _differs(here: Mapping[str, Any], there: Mapping[str, Any], kind: str, name: str) -> bool:
    # NaN is no setting that passes, so equality is enough; a name that only one side has differs from None
    return bool(here[kind].get(name) != there[kind].get(name) or (name in here[kind]) != (name in there[kind]))


def _same_arrays(
    members: Mapping[str, _Member], like: Mapping[str, Any], growing: set[str], optional: set[str]
) -> None:
    own = {"schema", "mark", "content"}
    foreign = sorted(set(members) - set(like) - own - {"numerics"})
    missing = sorted((set(like) | own) - optional - set(members))
    if foreign or missing:
        raise ValueError(f"arrays {foreign} too many, {missing} too few")
    for name, value in like.items():
        if name not in members:
            continue
        expected, member = np.asarray(value), members[name]
        text = expected.dtype.kind == "U" == member.dtype.kind
        if member.dtype != expected.dtype and not text:
            raise ValueError(f"{name} has type {member.dtype}, not {expected.dtype}")
        if len(member.shape) != expected.ndim or (member.shape != expected.shape and name not in growing):
            raise ValueError(f"{name} has shape {member.shape}, not {expected.shape}")


def _replace(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a temporary file beside the target, then rename it."""
    _remove_orphans(path)
    try:
        file, temporary = _temporary(path)
        try:
            with file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
                if fcntl is not None:
                    os.replace(temporary, path)
            if fcntl is None:
                os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            error.errno, f"checkpoint: found {shown(reason)} when writing {path}, expected a folder with room for it"
        ) from error


def _temporary(path: Path) -> tuple[IO[bytes], Path]:
    """A new file that this process holds. One that was taken for an orphan before it was locked is given up."""
    while True:
        temporary = part_name(path, secrets.token_hex(4))
        try:
            file = temporary.open("xb")  # as readable as the umask has it
        except FileExistsError:
            continue
        if fcntl is None:
            return file, temporary
        with contextlib.suppress(OSError):  # a file system without locks: nothing is removed there either
            fcntl.flock(file, fcntl.LOCK_EX)
        if _still_there(file.fileno(), temporary):
            return file, temporary
        file.close()


def _still_there(handle: int, path: str | os.PathLike[str]) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _orphans(path: Path) -> Iterator[Path]:
    """Temporary files of this target, by name; those of the former format had no dot in front."""
    name = re.escape(path.name)
    pattern = re.compile(rf"({name}|\.{re.escape(path.name[:40])}\.)[a-z0-9_]{{8}}\.part")
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                yield path.parent / entry.name


def _remove_orphans(path: Path) -> None:
    """Remove temporary files that no living process holds."""
    for orphan in list(_orphans(path)):
        if fcntl is None:
            with contextlib.suppress(OSError):
                orphan.unlink()
            continue
        try:
            handle = os.open(orphan, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still_there(handle, orphan):  # its writer may have renamed it meanwhile
                orphan.unlink()
        except OSError:  # somebody writes it
            pass
        finally:
            os.close(handle)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
