"""Files of chains: refused by name for another run, one error for every damage, no debris, a full disk by name."""

import errno
import multiprocessing
import os
import platform
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy
from threadpoolctl import threadpool_info

from gibbs.chains import checkpoint
from gibbs.chains.checkpoint import fingerprint, read, write

ARRAYS = {"state.f": np.arange(12.0).reshape(3, 4), "sweep": np.array(7), "generators": np.array("{}")}
MARK = fingerprint({"seed": 1, "moves": "all"}, {"X": np.eye(3), "y": np.array([0, 1, 1])})


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "a.npz"
    write(path, MARK, ARRAYS)
    result = read(path, MARK)
    assert result.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(result[name], array)


@pytest.mark.parametrize(
    ("settings", "arrays", "named"),
    [
        ({}, {"y": np.array([0, 1, 0])}, r"\(another y\)"),
        ({}, {"X": np.eye(3) + 1e-16 * np.ones((3, 3))}, r"\(another X\)"),
        ({}, {"X": np.eye(3, dtype=np.float32)}, r"\(another X\)"),
        ({}, {"Z": np.eye(2)}, r"\(another Z\)"),
        ({"seed": 2}, {}, r"\(seed = 1 instead of 2\)"),
        ({"moves": "few", "thin": 2}, {}, r"\(moves = 'all' instead of 'few', thin = None instead of 2\)"),
        ({"seed": 2}, {"y": np.array([1, 1, 1])}, r"\(another y, seed = 1 instead of 2\)"),
    ],
)
def test_another_run_is_refused_by_what_is_different(settings, arrays, named, tmp_path):
    path = tmp_path / "a.npz"
    write(path, MARK, ARRAYS)
    other = fingerprint({"seed": 1, "moves": "all"} | settings, {"X": np.eye(3), "y": np.array([0, 1, 1])} | arrays)
    with pytest.raises(ValueError, match=rf"^checkpoint: found a\.npz of another run {named}, expected one of"):
        read(path, other)


def outcome(path):
    """Text of the ValueError of a read, None without one."""
    try:
        read(path, MARK)
    except ValueError as error:
        return str(error)
    return None


def test_every_damage_is_one_error_that_names_the_file(tmp_path):
    path = tmp_path / "a.npz"
    write(path, MARK, ARRAYS)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [whole[:k] for k in range(0, len(whole), 97)]
    for place in rng.integers(0, len(whole), 500):
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.integers(8)
        damaged.append(bytes(changed))
    answers = []
    for content in damaged:
        path.write_bytes(content)
        answers.append(outcome(path))
        assert answers[-1] is None or (answers[-1].startswith("checkpoint: found ") and "a.npz" in answers[-1])
    # bits of dates and rights in the archive may pass: no array depends on them
    assert sum(answer is not None for answer in answers) > 0.75 * len(damaged)


def test_a_changed_array_an_old_schema_and_packed_members_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    write(path, MARK, ARRAYS)
    with np.load(path) as archive:
        stored = {name: archive[name] for name in archive.files}
    np.savez(path, **stored | {"state.f": stored["state.f"] + 1e-12})
    with pytest.raises(ValueError, match=r"found a\.npz changed after it was written"):
        read(path, MARK)
    np.savez(path, schema=np.array("gibbs-chain-2"), fingerprint=np.array("0"))
    with pytest.raises(ValueError, match=r"found schema 'gibbs-chain-2' in a\.npz, expected 'gibbs-chain-3'; remove"):
        read(path, MARK)
    np.savez_compressed(path, **stored | {"state.f": np.zeros(10**7)})
    with pytest.raises(ValueError, match=r"found a\.npz unreadable \(.*larger than the file"):
        read(path, MARK)


def test_a_full_disk_names_the_file_and_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    write(path, MARK, ARRAYS)
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(OSError, match=r"found No space left on device while .*a\.npz was written") as caught:
        write(path, MARK, ARRAYS)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npz"]


def _hold(path, started):
    stream, _ = checkpoint._locked(path)
    with stream:
        started.set()
        time.sleep(60.0)


@pytest.mark.skipif(checkpoint.fcntl is None, reason="needs locks of files")
def test_orphans_go_and_files_of_living_writers_stay(tmp_path):
    path = tmp_path / "a.npz"
    (tmp_path / ".b.npz.abcdefgh.part").write_bytes(b"of another file")
    context = multiprocessing.get_context("fork")
    started = context.Event()
    writer = context.Process(target=_hold, args=(path, started))
    writer.start()
    try:
        assert started.wait(30.0)
        write(path, MARK, ARRAYS)
        assert len(list(tmp_path.iterdir())) == 3
    finally:
        writer.kill()
        writer.join()
    read(path, MARK)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".b.npz.abcdefgh.part", "a.npz"]


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "\N{MATHEMATICAL SCRIPT CAPITAL A}" * 63, "a.npz"])
def test_every_name_that_the_file_system_takes_is_written(name, tmp_path):
    write(tmp_path / name, MARK, ARRAYS)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    np.testing.assert_array_equal(read(tmp_path / name, MARK)["state.f"], ARRAYS["state.f"])


def unusual(kind, folder):
    """A path that is no place for a file."""
    path = folder / "a.npz"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(str(path))
    elif kind == "link to a pipe":
        os.mkfifo(folder / "pipe")
        path.symlink_to("pipe")
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to itself":
        path.symlink_to("a.npz")
    elif kind == "link into no folder":
        path.symlink_to("absent/a.npz")
    elif kind == "device":  # one of its own: a writer that fails this test replaces it
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except OSError:
            pytest.skip("only the superuser makes devices")
    else:
        path = folder / {"long": "x" * 256, "longer": "x" * 300, "wide": "é" * 128, "deep": "x/" * 3000}[kind]
    return path


UNUSUAL = [
    "pipe", "socket", "link to a pipe", "folder", "link to itself", "link into no folder", "device",
    "long", "longer", "wide", "deep",
]  # fmt: skip


@pytest.mark.parametrize("kind", UNUSUAL)
def test_what_is_no_place_for_a_file_is_refused_by_name(kind, tmp_path):
    path = unusual(kind, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for act in (lambda: write(path, MARK, ARRAYS), lambda: read(path, MARK)):
        with pytest.raises(ValueError, match=r"^checkpoint: found .*expected a (path|file)"):
            act()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_file_has_the_rights_that_the_umask_leaves(mask, tmp_path):
    before = os.umask(mask)
    try:
        write(tmp_path / "a.npz", MARK, ARRAYS)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.npz").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_its_target_is_written(there, tmp_path):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "b.npz", tmp_path / "a.npz"
    if there:
        target.write_bytes(b"old")
    (tmp_path / "between").symlink_to("far/b.npz")
    link.symlink_to("between")
    write(link, MARK, ARRAYS)
    assert link.is_symlink()
    assert not target.is_symlink()
    np.testing.assert_array_equal(read(target, MARK)["state.f"], ARRAYS["state.f"])
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["a.npz", "b.npz", "between", "far"]


def test_two_writers_of_one_file_leave_one_of_the_two_whole(tmp_path):
    path = tmp_path / "a.npz"
    write(path, MARK, {"who": np.zeros(50_000)})

    def many(who):
        for _ in range(25):
            write(path, MARK, {"who": np.full(50_000, who)})

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(many, who) for who in (1.0, 2.0)]
        while not all(writer.done() for writer in writers):
            assert np.unique(read(path, MARK)["who"]).size == 1
    for writer in writers:
        writer.result()
    assert np.unique(read(path, MARK)["who"]) in (1.0, 2.0)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npz"]


def test_another_kernel_of_linear_algebra_is_told_at_the_resume(tmp_path):
    """A file of one process, read in another that differs in its kernel alone, and in one that does not."""
    code = (
        "import sys, warnings\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "import scipy.linalg\n"
        "from gibbs.chains.checkpoint import read, write\n"
        "path = Path(sys.argv[1])\n"
        "if not path.exists():\n"
        "    write(path, '{}', {'a': np.arange(3.0)})\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    read(path, '{}')\n"
        "print(*(f'{told.category.__name__} {told.message}' for told in caught))\n"
    )

    def told(kernel):
        command = [sys.executable, "-c", code, str(tmp_path / "a.npz")]
        kept = {**os.environ, "OPENBLAS_CORETYPE": kernel}
        return subprocess.run(command, env=kept, capture_output=True, text=True, check=True, timeout=120).stdout.strip()

    pools = [pool.get("architecture") for pool in threadpool_info() if pool["internal_api"] == "openblas"]
    if not pools or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("needs OpenBLAS with several kernels")
    assert told("Prescott") == ""
    assert told("Prescott") == ""
    other = told("Haswell")
    assert other.startswith("RuntimeWarning checkpoint: found ")
    assert "kernel" in other
    assert "numpy" not in other


@pytest.mark.parametrize("library", [np, scipy])
def test_another_version_of_a_library_is_told_at_the_resume(library, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(library, "__version__", "0.1")
        write(tmp_path / "a.npz", MARK, ARRAYS)
    with pytest.warns(RuntimeWarning, match=rf"^checkpoint: found .*written by {library.__name__} 0\.1 .*expected"):
        read(tmp_path / "a.npz", MARK)
