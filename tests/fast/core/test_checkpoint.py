"""Checkpoints: any other byte of the data and any other setting is refused by name, damage has one error, no debris."""

import errno
import json
import multiprocessing
import os
import platform
import signal
import socket
import stat
import subprocess
import sys
import time
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy
from threadpoolctl import threadpool_info

from fast.core import checkpoint as checkpoints
from fast.core.places import here
from fast.methods import apep, ep, pep, sep, vi_robust, x_gpc_svi
from values_given import binary, fitted

CLASSES = {"ep": ep, "sep": sep, "pep": pep, "apep": apep, "vi-robust": vi_robust}


class InterruptedRunError(Exception):
    """Stands for a kill."""


def data(n=300):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 2))
    return X, (X[:, 0] + 0.5 * rng.normal(size=n) > 0.0).astype(int)


def options(path, **more):
    return {"batch_size": 20, "n_steps": 12, "learn": ("variance",), "checkpoint": path, "checkpoint_every": 3, **more}


def fit(method, path, X, y, Z=None, *, prior=None, stop_at=None, **more):
    """A run of some steps, killed where it is told to be."""

    def kill(progress):
        if progress.iteration == stop_at:
            raise InterruptedRunError

    prior = {"variance": 2.0, "lengthscales": np.ones(2), "noise": 0.1, "jitter": 1e-4, **(prior or {})}
    Z = X[:7] if Z is None else Z
    settings = options(path, callback=kill, **more)
    if method == "x-gpc-svi":
        return x_gpc_svi.fit(*binary(x_gpc_svi.XGPCSteps, X, y, *prior.values(), Z, **settings))
    if method in ("pep", "apep", "vi-robust"):
        settings.setdefault("epsilon", 0.001)
    return fitted(CLASSES[method], X, y, 2, *prior.values(), Z=Z, **settings)


def killed(method, path, X, y, **more):
    with pytest.raises(InterruptedRunError):
        fit(method, path, X, y, stop_at=7, **more)
    assert path.exists()


METHODS = ["x-gpc-svi", *CLASSES]


@pytest.mark.parametrize("method", METHODS)
def test_another_label_or_input_anywhere_and_another_inducing_point_are_refused_by_name(method, tmp_path):
    X, y = data()
    path = tmp_path / "run.npz"
    killed(method, path, X, y)
    before = path.read_bytes()
    for row in (0, 111, 200, 299):
        other = y.copy()
        other[row] = 1 - other[row]
        with pytest.raises(
            ValueError, match=r"^checkpoint: found .*run\.npz of a run with another y, expected the same"
        ):
            fit(method, path, X, other)
    for row, column in ((150, 1), (299, 0)):
        other = X.copy()
        other[row, column] = np.nextafter(other[row, column], np.inf)
        with pytest.raises(ValueError, match=r"of a run with another X, expected"):
            fit(method, path, other, y, X[:7])
    with pytest.raises(ValueError, match=r"of a run with another Z, expected"):
        fit(method, path, X, y, X[1:8])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("method", "changed"),
    [
        *((method, {"seed": 5}) for method in METHODS),
        *((method, {"batch_size": 21}) for method in METHODS),
        *((method, {"block_size": 17}) for method in METHODS),
        *((method, {"learn": ("noise",)}) for method in METHODS),
        *((method, {"trace": True}) for method in METHODS),
        ("x-gpc-svi", {"rate": 0.3}),
        ("x-gpc-svi", {"learning_rate": 0.3}),
        ("x-gpc-svi", {"pool_size": 1000}),
        ("x-gpc-svi", {"window": 7}),
        *((method, {"rate": 0.3}) for method in CLASSES),
        *((method, {"shared": True}) for method in CLASSES),
        ("ep", {"factors": "datum"}),
        ("ep", {"damping": 0.3}),
        ("sep", {"count": "per-class"}),
        ("pep", {"alpha": 0.7}),
        ("pep", {"epsilon": 0.01}),
        ("apep", {"alpha": 0.7}),
        ("apep", {"energy": "rpapep"}),
        ("vi-robust", {"nat_rate": 0.3}),
        ("vi-robust", {"epsilon": 0.01}),
    ],
)
def test_another_setting_is_refused_by_name_with_both_values(method, changed, tmp_path):
    X, y = data(60)
    path = tmp_path / "run.npz"
    killed(method, path, X, y)
    (name,) = changed
    with pytest.raises(ValueError, match=rf"of a run with {name} = .*, expected {name} = .*remove the file"):
        fit(method, path, X, y, **changed)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["variance", "lengthscales", "noise", "jitter"])
def test_another_prior_is_refused_by_name(method, name, tmp_path):
    X, y = data(60)
    path = tmp_path / "run.npz"
    killed(method, path, X, y)
    value = np.full(2, 1.5) if name == "lengthscales" else 0.5
    with pytest.raises(ValueError, match=rf"of a run with (another )?{name}"):
        fit(method, path, X, y, prior={name: value})


@pytest.mark.parametrize("method", METHODS)
def test_the_same_run_continues_also_from_other_types_of_the_same_numbers(method, tmp_path):
    X, y = data()
    whole = fit(method, tmp_path / "whole.npz", X, y)
    path = tmp_path / "run.npz"
    killed(method, path, X, y)
    X.tofile(tmp_path / "X.bin")
    mapped = np.memmap(tmp_path / "X.bin", dtype=np.float64, shape=X.shape, mode="r")
    again = fit(method, path, mapped, y.astype(np.int32), X[:7])
    one, other = (
        (whole.inducing_mean, again.inducing_mean)
        if method == "x-gpc-svi"
        else (whole.run.points.hyper.variance, again.run.points.hyper.variance)
    )
    np.testing.assert_array_equal(one, other)


def test_blocks_count_to_the_last_byte_and_so_do_their_cuts(tmp_path):
    X, y = data()
    path = tmp_path / "run.npz"
    blocks = [(X[k : k + 50], y[k : k + 50]) for k in range(0, 300, 50)]

    def run(blocks, stop_at=None):
        return fit("x-gpc-svi", path, blocks, None, X[:7], stop_at=stop_at)

    with pytest.raises(InterruptedRunError):
        run(blocks, 7)
    other = y.copy()
    other[299] = 1 - other[299]
    with pytest.raises(ValueError, match="of a run with another y,"):
        run([(X[k : k + 50], other[k : k + 50]) for k in range(0, 300, 50)])
    with pytest.raises(ValueError, match="of a run with another blocks,"):
        run([(X[k : k + 60], y[k : k + 60]) for k in range(0, 300, 60)])
    run(blocks)


def test_hold_out_data_and_first_batches_count(tmp_path):
    X, y = data()
    path = tmp_path / "run.npz"
    given = {"holdout": (X[:30], y[:30]), "init_batches": [np.arange(20), np.arange(20, 40)]}
    killed("x-gpc-svi", path, X, y, **given)
    with pytest.raises(ValueError, match="another holdout y,"):
        fit("x-gpc-svi", path, X, y, **{**given, "holdout": (X[:30], 1 - y[:30])})
    with pytest.raises(ValueError, match="another init_batches,"):
        fit("x-gpc-svi", path, X, y, **{**given, "init_batches": [np.arange(20), np.arange(20, 39)]})


def test_a_digest_reads_in_blocks_and_knows_type_shape_and_every_entry(tmp_path):
    X = np.random.default_rng(0).normal(size=(400_000, 10))
    X.tofile(tmp_path / "X.bin")
    mapped = np.memmap(tmp_path / "X.bin", dtype=np.float64, shape=X.shape, mode="r")
    tracemalloc.start()
    result = checkpoints.digest(mapped)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24  # the data are 32 megabytes, a block 4
    assert (
        result
        == checkpoints.digest(X)
        == checkpoints.digest(np.asfortranarray(X))
        == checkpoints.digest(X.astype(">f8"))
    )
    assert result != checkpoints.digest(X.reshape(200_000, 20))
    for row in (0, 399_999):
        other = X.copy()
        other[row, 9] = np.nextafter(other[row, 9], 0.0)
        assert result != checkpoints.digest(other)
    assert checkpoints.digest(np.arange(3)) != checkpoints.digest(np.arange(3.0))


def stored(path):
    """A checkpoint of a run, and a call that continues it."""
    X, y = data(60)
    killed("sep", path, X, y)
    return lambda: fit("sep", path, X, y)


def outcome(call):
    """Text of the ValueError of a call, None without one."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return None


def test_every_kind_of_damage_is_one_error_that_names_the_file(tmp_path):
    path = tmp_path / "run.npz"
    resume = stored(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    damaged = [whole[:k] for k in (0, 1, 30, len(whole) // 2, len(whole) - 1)]
    for place in rng.integers(0, len(whole), 300):
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.integers(8)
        damaged.append(bytes(changed))
    refused = 0
    for content in [*damaged, b"nonsense", b"PK\x05\x06" + bytes(18)]:
        path.write_bytes(content)
        answer = outcome(resume)
        assert answer is None or answer.startswith(f"checkpoint: found {path} "), answer
        refused += answer is not None
    # what is left are bits of dates, rights and versions of the archive, which no array depends on
    assert refused > 0.8 * len(damaged)


def rewritten(path, **changes):
    """The file with some of its arrays changed, and marked as a whole one."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    mark = str(arrays.pop("mark"))
    arrays = {name: value for name, value in {**arrays, **changes}.items() if value is not None}
    del arrays["content"], arrays["schema"]
    checkpoints.save(path, mark, arrays)


@pytest.mark.parametrize(
    ("changes", "actual"),
    [
        ({"shift": np.zeros((2, 8))}, r"shift has shape \(2, 8\), not \(2, 7\)"),
        ({"shift": np.zeros(14)}, "shift has shape"),
        ({"precision": np.zeros((2, 7, 7), dtype=np.float32)}, "precision has type float32"),
        ({"more": np.zeros(3)}, r"arrays \['more'\] too many"),
        ({"shift": None}, r"\['shift'\] too few"),
        ({"rng": np.zeros(1)}, "rng has type"),
    ],
)
def test_wrong_names_types_and_shapes_are_refused_from_the_headers(changes, actual, tmp_path):
    path = tmp_path / "run.npz"
    resume = stored(path)
    rewritten(path, **changes)
    with pytest.raises(ValueError, match=rf"^checkpoint: found .*run\.npz that cannot be read \(.*{actual}"):
        resume()


def test_an_array_that_was_changed_afterwards_is_noticed(tmp_path):
    path = tmp_path / "run.npz"
    resume = stored(path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["shift"] = arrays["shift"] + 1e-9
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=r"^checkpoint: found .*run\.npz with content that was changed"):
        resume()


def test_a_file_of_another_schema_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    resume = stored(path)
    np.savez(path, a=np.zeros(1))
    with pytest.raises(ValueError, match=r"checkpoint: found .* with no schema, expected 'fast-checkpoint/2'"):
        resume()
    np.savez(path, schema=np.array("fast-checkpoint/1"), mark=np.array("00"), a=np.zeros(1))
    with pytest.raises(ValueError, match=r"with schema 'fast-checkpoint/1', expected 'fast-checkpoint/2'; remove"):
        resume()


def test_no_file_can_unpack_to_more_than_it_is(tmp_path):
    path = tmp_path / "run.npz"
    resume = stored(path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez_compressed(path, **{**arrays, "trace": np.zeros(2**24)})
    tracemalloc.start()
    with pytest.raises(ValueError, match="is packed"):
        resume()
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


def test_pickles_are_refused(tmp_path):
    path = tmp_path / "run.npz"
    resume = stored(path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(path, **{**arrays, "trace": np.array([{}], dtype=object)})
    with pytest.raises(ValueError, match=r"checkpoint: found .*trace holds objects"):
        resume()


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs limits of file sizes")
def test_a_full_disk_names_the_file_and_leaves_the_old_one(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "run.npz"
    checkpoints.save(path, checkpoints.fingerprint({}, {}), {"a": np.arange(3)})
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        with pytest.raises(OSError, match=r"checkpoint: found .* when writing .*run\.npz") as caught:
            checkpoints.save(path, checkpoints.fingerprint({}, {}), {"a": np.zeros(10**6)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]


def test_a_failed_sync_names_the_file_too(tmp_path, monkeypatch):
    path = tmp_path / "run.npz"

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoints.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.* when writing .*run\.npz"):
        checkpoints.save(path, "{}", {"a": np.zeros(3)})
    assert list(tmp_path.iterdir()) == []


def _write_slowly(path, started):
    class Slow:
        def __array__(self, dtype=None, copy=None):
            return np.zeros(3)

    def write(file):
        file.write(b"half")
        file.flush()
        started.set()
        time.sleep(60.0)

    checkpoints._replace(path, write)


@pytest.mark.skipif(checkpoints.fcntl is None, reason="needs locks of files")
def test_what_a_killed_writer_left_is_removed_and_what_a_living_one_holds_is_not(tmp_path):
    path = tmp_path / "run.npz"
    foreign = [tmp_path / name for name in ("other.npzabcdefgh.part", ".other.npz.abcdefgh.part", "run.npz.part")]
    for name in foreign:
        name.write_bytes(b"not ours")
    old = tmp_path / "run.npzabc_ef12.part"  # as the former format named them
    old.write_bytes(b"half")
    context = multiprocessing.get_context("fork")
    started = context.Event()
    writer = context.Process(target=_write_slowly, args=(path, started))
    writer.start()
    try:
        assert started.wait(30.0)
        (held,) = set(tmp_path.iterdir()) - {*foreign, old}
        assert checkpoints.load(path, "{}") is None
        assert held.exists()
        assert not old.exists()
        checkpoints.save(path, "{}", {"a": np.zeros(3)})
        assert held.exists()
    finally:
        writer.kill()
        writer.join()
    assert held.exists()
    assert checkpoints.load(path, "{}")["a"].shape == (3,)
    assert sorted(tmp_path.iterdir()) == sorted([path, *foreign])


def test_the_mark_says_settings_as_they_are():
    mark = json.loads(checkpoints.fingerprint({"rate": 0.1, "learn": ("a", "b")}, {"X": np.zeros(3)}))
    assert mark["settings"] == {"rate": 0.1, "learn": ["a", "b"]}
    assert list(mark["arrays"]) == ["X"]


def test_a_checkpoint_is_stored_as_it_is(tmp_path):
    stored(tmp_path / "run.npz")
    with zipfile.ZipFile(tmp_path / "run.npz") as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "\N{MATHEMATICAL SCRIPT CAPITAL A}" * 63, "a.npz"])
def test_every_name_that_the_file_system_takes_is_written(name, tmp_path):
    checkpoints.save(tmp_path / name, "{}", {"a": np.arange(3)})
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    np.testing.assert_array_equal(checkpoints.load(tmp_path / name, "{}")["a"], np.arange(3))


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
    for act in (lambda: checkpoints.save(path, "{}", {"a": np.arange(3)}), lambda: checkpoints.load(path, "{}")):
        with pytest.raises(ValueError, match=r"^checkpoint: found .*expected a (path|file)"):
            act()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_file_has_the_rights_that_the_umask_leaves(mask, tmp_path):
    before = os.umask(mask)
    try:
        checkpoints.save(tmp_path / "a.npz", "{}", {"a": np.arange(3)})
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
    checkpoints.save(link, "{}", {"a": np.arange(3)})
    assert link.is_symlink()
    assert not target.is_symlink()
    np.testing.assert_array_equal(checkpoints.load(target, "{}")["a"], np.arange(3))
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["a.npz", "b.npz", "between", "far"]


def test_two_writers_of_one_file_leave_one_of_the_two_whole(tmp_path):
    path = tmp_path / "a.npz"
    checkpoints.save(path, "{}", {"who": np.zeros(50_000)})

    def many(who):
        for _ in range(25):
            checkpoints.save(path, "{}", {"who": np.full(50_000, who)})

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(many, who) for who in (1.0, 2.0)]
        while not all(writer.done() for writer in writers):
            assert np.unique(checkpoints.load(path, "{}")["who"]).size == 1
    for writer in writers:
        writer.result()
    assert np.unique(checkpoints.load(path, "{}")["who"]) in (1.0, 2.0)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npz"]


def test_another_kernel_of_linear_algebra_is_told_at_the_resume(tmp_path):
    """A file of one process, read in another that differs in its kernel alone, and in one that does not."""
    code = (
        "import sys, warnings\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "import scipy.linalg\n"
        "from fast.core.checkpoint import load, save\n"
        "path = Path(sys.argv[1])\n"
        "if not path.exists():\n"
        "    save(path, '{}', {'a': np.arange(3.0)})\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    load(path, '{}')\n"
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
        here.cache_clear()
        checkpoints.save(tmp_path / "a.npz", "{}", {"a": np.arange(3)})
    here.cache_clear()
    with pytest.warns(RuntimeWarning, match=rf"^checkpoint: found .*written by {library.__name__} 0\.1 .*expected"):
        checkpoints.load(tmp_path / "a.npz", "{}")
