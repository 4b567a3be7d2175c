"""Files of chains: refused by name for another run, one error for every damage, no debris, a full disk by name."""

import errno
import multiprocessing
import os
import time

import numpy as np
import pytest

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
    checkpoint._locked(path)
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
