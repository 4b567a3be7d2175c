"""Files: one .npz with a schema, written atomically, read without unpickling, loud on anything unknown."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import secrets
import stat
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from validation.door.quoting import shown

try:
    import fcntl
except ImportError:  # Windows, which does not let a file be removed that somebody has open
    fcntl = None  # type: ignore[assignment]

# what zipfile and NumPy raise on bytes that were changed or cut off, found by changing and cutting them
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    struct.error,
    RuntimeError,  # encrypted, or a compression that is not there
    OverflowError,
    MemoryError,  # a header that promises more than there is
    SyntaxError,  # tokenize.TokenError among them, from the header of an array
    tokenize.TokenError,
    OSError,
)


#: Bytes that the arrays of one file may unpack to: some ten times the largest problem or solution that is asked for.
LARGEST = 2**30


_START = 40  # letters of a name that its temporary files repeat
_TEXT = 4096  # bytes that the name of a schema stays below


class FileFormatError(ValueError):
    """A file that is not what its name promised: truncated, foreign, pickled, of another schema."""


def write_atomically(path: str | PathLike[str], write: Callable[[IO[bytes]], Any]) -> None:
    """Call `write` on a temporary file beside `path`, then rename: a reader sees the old file or the new one.

    Raises
    ------
    OSError    naming the folder, if it cannot be made or written
    """
    _write_all({Path(path): write})


def write_together(files: Mapping[Path, bytes]) -> None:
    """Files that belong together: all are on the disk, under other names, before the first takes its place.

    What goes wrong while they are written (a full disk, Ctrl-C) leaves all old files as they were. A kill between two
    renames leaves a pair that does not fit together: whoever reads pairs compares what one holds of the other.

    Raises
    ------
    OSError    naming the file
    """
    _write_all({path: lambda file, content=content: file.write(content) for path, content in files.items()})  # type: ignore[misc]


def _write_all(files: Mapping[Path, Callable[[IO[bytes]], Any]]) -> None:
    """Write every file under a name of its own beside its place, then rename all of them.

    A temporary file is locked until it has its name: one that nobody holds was left by a process that was killed, and
    the next writer of that file removes it.
    """
    with contextlib.ExitStack() as stack:
        ready: list[tuple[Path, Path, Path]] = []
        for path, write in files.items():
            target = _target(path)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                _remove_orphans(target)
                file, name = _temporary(target)
            except OSError as error:
                raise OSError(
                    error.errno,
                    f"{path.parent}: found {error.strerror or error}, expected a folder that can be written",
                ) from error
            stack.callback(_close, file)
            stack.callback(_remove, name)  # whatever ends the block, Ctrl-C included: no half-written file stays
            with _told(path):
                write(file)
                file.flush()
                os.fsync(file.fileno())
                if fcntl is None:
                    file.close()  # Windows renames no open file
            ready.append((name, path, target))
        for name, path, target in ready:
            with _told(path):
                name.replace(target)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """An OSError inside names the file."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno, f"{path}: found {error.strerror or error} while writing, expected room for the file"
        ) from error


def _remove(name: Path) -> None:
    name.unlink(missing_ok=True)


def _close(file: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # after a write that failed the buffer fails once more
        file.close()


def _part_of(path: Path, random: str) -> Path:
    """Beside `path`; only the start of its name: together they must stay below what file systems take."""
    return path.parent / f".{path.name[:_START]}.{random}.part"


def _temporary(path: Path) -> tuple[IO[bytes], Path]:
    """A new file beside `path`, locked; another one where it was taken for an orphan before the lock stood."""
    while True:
        name = _part_of(path, secrets.token_hex(4))
        try:
            file = name.open("xb")  # a result is as public as any other new file: the umask says how
        except FileExistsError:
            continue
        if fcntl is None:
            return file, name
        with contextlib.suppress(OSError):  # a file system without locks, on which no orphan is removed either
            fcntl.flock(file, fcntl.LOCK_EX)
        if _is_at(file.fileno(), name):
            return file, name
        file.close()


def _is_at(handle: int, name: Path) -> bool:
    """Whether the open file still has this name."""
    try:
        return os.path.samestat(os.fstat(handle), name.stat())
    except FileNotFoundError:
        return False


def _remove_orphans(path: Path) -> None:
    """Remove temporary files of `path` that no living process holds."""
    pattern = re.compile(rf"\.{re.escape(path.name[:_START])}\.[a-z0-9_]{{8}}\.part")
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        names = [Path(entry.path) for entry in entries if pattern.fullmatch(entry.name)]
        for name in names:
            with contextlib.suppress(OSError):  # somebody writes it, or it is another's
                _remove_unless_held(name)


def _remove_unless_held(name: Path) -> None:
    if fcntl is None:  # Windows refuses while somebody has it open
        _remove(name)
        return
    handle = os.open(name, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(handle, name):  # its writer may have renamed it meanwhile
            _remove(name)
    finally:
        os.close(handle)


def write_text(path: str | PathLike[str], text: str) -> None:
    """Write UTF-8 text atomically."""
    write_atomically(path, lambda file: file.write(text.encode("utf-8")))


def npz_bytes(schema: str, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """One compressed .npz of arrays and the name of their schema, in memory."""
    stream = io.BytesIO()
    _write_npz(stream, schema, arrays)
    return stream.getvalue()


def save_npz(path: str | PathLike[str], schema: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays and the name of their schema to one compressed .npz, atomically."""
    _check_plain(arrays)
    write_atomically(path, lambda file: _write_npz(file, schema, arrays))


def _check_plain(arrays: Mapping[str, NDArray[Any]]) -> None:
    for key, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"{key}: found dtype object, expected plain numbers or text (files hold no pickles)")


def _write_npz(file: IO[bytes], schema: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    _check_plain(arrays)
    # objects were refused above; NumPy 2.0 would store the keyword allow_pickle as one more array
    stored: dict[str, Any] = {"schema": np.asarray(schema), **arrays}
    np.savez_compressed(file, **stored)


def load_npz(
    path: str | PathLike[str], schema: str, known: Callable[[set[str]], object] | None = None
) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz written with `schema`. Names, types and sizes are read before any array is unpacked.

    known(names) raises FileFormatError for names, "schema" left out, that such a file cannot have.

    Raises
    ------
    FileNotFoundError     if there is no such file
    FileFormatError       if it is truncated, no .npz, holds pickles, or has another schema
    """
    if not isinstance(path, (str, PathLike)):
        raise TypeError(f"path: found {type(path).__name__}, expected the name of a file")
    path = Path(path)
    try:
        there = path.is_file()
    except OSError as error:  # a name longer than the file system takes
        raise FileNotFoundError(
            error.errno, f"path: found a name of {len(str(path))} characters ({error.strerror}), expected a .npz"
        ) from error
    if not there:
        raise FileNotFoundError(f"{path}: found no file, expected a .npz with schema {schema!r}")
    try:
        # opened here: NumPy leaves its own file open when a damaged archive stops it
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # NumPy guesses at headers that it cannot read, and warns
            archive = np.load(file, allow_pickle=False) if _is_npz(file) else None
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise FileFormatError(f"{path}: found a file that is no .npz (or is cut off), expected {schema!r}")
            with archive:
                _check_headers(archive, path, schema, known)
                files = [key for key in archive.files if not key.endswith("/")]  # zip programs add their folders
                arrays = {key: archive[key] for key in files}
                members = len(files)
    except FileFormatError:
        raise
    except PermissionError as error:
        raise PermissionError(error.errno, f"{path}: found a file that may not be read") from error
    except _DAMAGE as error:
        raise FileFormatError(f"{path}: found a damaged .npz ({_reason(error)}), expected {schema!r}") from error
    except (ValueError, Warning) as error:
        raise FileFormatError(
            f"{path}: found content that is no plain array ({_reason(error)}), expected {schema!r}"
        ) from error
    # NumPy hands over a member that is no array as bytes
    foreign = sorted(key for key, array in arrays.items() if not isinstance(array, np.ndarray))
    if foreign or members != len(arrays):
        found_instead = f"members that are no arrays: {foreign[:3]}" if foreign else "two members of one name"
        raise FileFormatError(f"{path}: found {found_instead}, expected {schema!r}")
    result = arrays.pop("schema", None)
    if result is None:
        raise FileFormatError(f"{path}: found no field 'schema', expected {schema!r}")
    if result.ndim or str(result) != schema:
        raise FileFormatError(f"{path}: found schema {str(result)!r}, expected {schema!r}")
    return arrays


def _check_headers(
    archive: np.lib.npyio.NpzFile, path: Path, schema: str, known: Callable[[set[str]], object] | None
) -> None:
    """Refuse unknown names, headers that lie, and more than a gigabyte, from the first bytes of each member."""
    zipped = archive.zip
    assert zipped is not None
    members = [info for info in zipped.infolist() if not info.is_dir()]
    names = {info.filename.removesuffix(".npy") for info in members}
    # a file of another schema is refused as that, not for its names; the member is a text of a few bytes
    short = "schema.npy" in zipped.namelist() and zipped.getinfo("schema.npy").file_size < _TEXT
    if known is not None and short and str(archive["schema"]) == schema:
        known(names - {"schema"})
    total = 0
    for info in members:
        total += info.file_size
        if total > LARGEST:
            raise FileFormatError(
                f"{path}: found arrays of more than {LARGEST} bytes ({info.filename} among them), expected {schema!r}"
            )
        if not info.filename.endswith(".npy"):
            continue  # refused by name once the arrays are there
        with zipped.open(info) as stream:
            version = np.lib.format.read_magic(stream)
            if version == (1, 0):
                shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
            else:
                shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
            size = stream.tell()
        entries = 1
        for axis in shape:
            entries *= axis
        size += entries * dtype.itemsize
        if not dtype.hasobject and size != info.file_size:
            raise FileFormatError(
                f"{path}: found {info.filename} with {info.file_size} bytes, expected {size} for shape {shape}"
            )


def _is_npz(file: IO[bytes]) -> bool:
    result = zipfile.is_zipfile(file)
    file.seek(0)
    return result


def check_keys(value: set[str], known: set[str], required: set[str], where: str) -> None:
    """Refuse unknown and missing fields, each by name; an extension (`is_extension`) may always be there."""
    value = {name for name in value if not is_extension(name)}
    if value - known:
        raise FileFormatError(f"{where}: found unknown fields {sorted(value - known)}, expected only {sorted(known)}")
    if required - value:
        raise FileFormatError(f"{where}: found no fields {sorted(required - value)}, expected them")


def is_extension(name: str) -> bool:
    """Whether a field is somebody's own, x-..., of which nothing is read and nothing is promised but that it may be."""
    return name.startswith("x-")


def scalar(array: NDArray[Any]) -> Any:
    """The Python value in an array without axes."""
    if array.dtype.kind == "U":
        return str(array)
    return array.item()


def read_json(text: Any, where: str) -> Any:
    """Parse JSON, or say where it went wrong."""
    try:
        return json.loads(text)
    except (TypeError, ValueError) as error:
        raise FileFormatError(f"{where}: found {shown(str(text)[:60])}, expected JSON ({error})") from error


def check_writable(path: str | PathLike[str]) -> None:
    """Find out before the work whether a file could be written there.

    Raises
    ------
    OSError    naming the folder
    """
    target = _target(Path(path))
    probe = target.with_name(f".{target.name[:_START]}.{os.getpid()}.probe")
    write_atomically(probe, lambda file: file.write(b""))
    probe.unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """Where links lead, so that they stay. Refused: what a rename would not write to (a folder, a name that is too
    long), or would replace by a plain file (a device, a pipe).
    """
    target = Path(os.path.realpath(path))
    mode = None
    for name in (_part_of(target, "0" * 8), target):
        try:
            mode = name.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            mode = None
        except OSError as error:  # too long, or a link to itself
            raise OSError(error.errno, f"{path}: found {error.strerror}, expected the name of a file") from error
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, f"{path}: found a folder, expected the name of a file")
    if mode is not None and not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"{path}: found a device or a pipe, expected the name of a file")
    return target


def _reason(error: BaseException) -> str:
    """The first line of an error, or its name where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
