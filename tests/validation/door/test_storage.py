import errno
import io
import os
import pickle
import signal
import socket
import stat
import subprocess
import sys
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from validation import Problem
from validation.door import storage
from validation.door.storage import FileFormatError

SCHEMA = "gpc-triad/test/1"


def arrays():
    return {"a": np.arange(12.0).reshape(3, 4), "b": np.asarray("text with ü"), "c": np.array([True, False])}


def parts_left(folder):
    """Names of files that a write left beside its result."""
    return [p.name for p in folder.iterdir() if p.name.endswith((".part", ".probe"))]


# -- reading what is there ---------------------------------------------------------------------------------


def test_arrays_come_back_bit_for_bit(tmp_path):
    path = tmp_path / "x.npz"
    storage.save_npz(path, SCHEMA, arrays())
    got = storage.load_npz(path, SCHEMA)
    assert set(got) == set(arrays())
    for key, array in arrays().items():
        assert got[key].dtype == array.dtype
        assert got[key].tobytes() == array.tobytes()


def test_a_file_holds_its_schema_and_nothing_that_was_not_asked_for(tmp_path):
    path = tmp_path / "x.npz"
    storage.save_npz(path, SCHEMA, arrays())
    with np.load(path, allow_pickle=False) as archive:
        assert sorted(archive.files) == ["a", "b", "c", "schema"]


@pytest.mark.parametrize("name", ["missing.npz", "."])
def test_no_file_is_told_by_its_path(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=r"found no file, expected a \.npz with schema"):
        storage.load_npz(tmp_path / name, SCHEMA)


def test_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(FileNotFoundError, match="found no file"):
        storage.load_npz(tmp_path / "pipe.npz", SCHEMA)


def test_another_schema_is_refused_by_both_names(tmp_path):
    path = tmp_path / "x.npz"
    storage.save_npz(path, "gpc-triad/test/2", arrays())
    with pytest.raises(FileFormatError, match=r"found schema 'gpc-triad/test/2', expected 'gpc-triad/test/1'"):
        storage.load_npz(path, SCHEMA)


def test_an_npz_without_a_schema_is_foreign(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(3))
    with pytest.raises(FileFormatError, match=r"found no field 'schema'"):
        storage.load_npz(tmp_path / "x.npz", SCHEMA)


def test_a_schema_with_axes_is_foreign(tmp_path):
    np.savez(tmp_path / "x.npz", schema=np.array([SCHEMA, SCHEMA]))
    with pytest.raises(FileFormatError, match=r"found schema"):
        storage.load_npz(tmp_path / "x.npz", SCHEMA)


def npy_bytes():
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


def empty_zip():
    buffer = io.BytesIO()
    zipfile.ZipFile(buffer, "w").close()
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        npy_bytes() + empty_zip(),
        b"PK\x03\x04",
        b"PK\x05\x06" + b"\0" * 17,
        b"hello, I am a text\n" * 50,
        pickle.dumps({"a": 1}),
        npy_bytes(),
    ],
    ids=["empty", "npy before zip", "magic only", "cut end record", "text", "pickle", "npy"],
)
def test_a_file_that_is_no_npz_is_refused(tmp_path, content):
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"x\.npz: found .*expected 'gpc-triad/test/1'"):
        storage.load_npz(path, SCHEMA)


@pytest.mark.parametrize(
    "members",
    [{}, {"word/document.xml": b"<x/>"}, {"schema": b"text"}, {"schema.npy": b"no header"}, {"a.npy": npy_bytes()}],
    ids=["no members", "a document", "schema as text", "schema without header", "no schema"],
)
def test_a_zip_that_is_no_npz_is_refused(tmp_path, members):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(FileFormatError, match=r"x\.npz: found "):
        storage.load_npz(path, SCHEMA)


def test_members_that_are_no_arrays_are_refused_beside_good_ones(tmp_path):
    path = tmp_path / "x.npz"
    storage.save_npz(path, SCHEMA, arrays())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "hidden")
    with pytest.raises(FileFormatError, match=r"found members that are no arrays: \['notes\.txt'\]"):
        storage.load_npz(path, SCHEMA)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    storage.save_npz(path, SCHEMA, arrays())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.npy", npy_bytes())
    with pytest.raises(FileFormatError, match=r"found two members of one name"):
        storage.load_npz(path, SCHEMA)


class Explosive:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_a_pickle_inside_is_refused_and_not_run(tmp_path):
    path, trace = tmp_path / "x.npz", tmp_path / "trace"
    np.savez(path, schema=np.asarray(SCHEMA), a=np.array([Explosive(trace)], dtype=object))
    with pytest.raises(FileFormatError, match=r"found content that is no plain array"):
        storage.load_npz(path, SCHEMA)
    assert not trace.exists()


def test_a_pickle_named_npz_is_refused_and_not_run(tmp_path):
    path, trace = tmp_path / "x.npz", tmp_path / "trace"
    path.write_bytes(pickle.dumps(Explosive(trace)))
    with pytest.raises(FileFormatError, match=r"found a file that is no \.npz"):
        storage.load_npz(path, SCHEMA)
    assert not trace.exists()


def test_objects_are_not_written(tmp_path):
    with pytest.raises(TypeError, match=r"a: found dtype object"):
        storage.save_npz(tmp_path / "x.npz", SCHEMA, {"a": np.array([None])})
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    path = tmp_path_factory.mktemp("intact") / "x.npz"
    storage.save_npz(path, SCHEMA, arrays())
    return path


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0.0, 1.0, exclude_max=True))
def test_a_file_cut_anywhere_is_refused(intact, share):
    content = intact.read_bytes()
    cut = intact.with_name("cut.npz")
    cut.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FileFormatError, match=r"cut\.npz: found"):
        storage.load_npz(cut, SCHEMA)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_are_refused_or_leave_the_content_as_it_was(intact, data):
    content = bytearray(intact.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    changed = intact.with_name("changed.npz")
    changed.write_bytes(content)
    try:
        got = storage.load_npz(changed, SCHEMA)
    except FileFormatError:
        return
    # what the checksums do not cover is names and dates: arrays themselves are never silently different
    for key in set(got) & set(arrays()):
        assert got[key].tobytes() == arrays()[key].tobytes()


# -- fields ------------------------------------------------------------------------------------------------


def test_unknown_and_missing_fields_are_named():
    with pytest.raises(FileFormatError, match=r"here: found unknown fields \['z'\], expected only \['a', 'b'\]"):
        storage.check_keys({"a", "z"}, {"a", "b"}, {"a"}, "here")
    with pytest.raises(FileFormatError, match=r"here: found no fields \['a'\]"):
        storage.check_keys({"b"}, {"a", "b"}, {"a"}, "here")


@pytest.mark.parametrize("text", ["{", "", None, 3.5, b"\xff"])
def test_text_that_is_no_json_is_refused(text):
    if text == 3.5:
        with pytest.raises(FileFormatError, match=r"settings: found .*, expected JSON"):
            storage.read_json(text, "settings")
        return
    with pytest.raises(FileFormatError, match=r"expected JSON"):
        storage.read_json(text, "settings")


# -- writing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device"), SystemExit, MemoryError])
def test_a_write_that_is_stopped_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "x.npz"
    path.write_bytes(b"old")

    def write(file):
        file.write(b"half of the new")
        raise error

    with pytest.raises(error if isinstance(error, type) else type(error)):
        storage.write_atomically(path, write)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]


def test_a_write_that_is_stopped_leaves_no_file_where_none_was(tmp_path, monkeypatch, make_problem):
    def interrupted(file, **stored):
        file.write(b"PK\x03\x04half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez_compressed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_problem().save(tmp_path / "x.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_signal_in_the_middle_of_a_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("old", encoding="utf-8")
    code = (
        "import sys, time\n"
        "from validation.door.storage import write_atomically\n"
        "def write(file):\n"
        "    file.write(b'half'); file.flush()\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
        "write_atomically(sys.argv[1], write)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert len(parts_left(tmp_path)) == 1
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert "KeyboardInterrupt" in errors
    assert path.read_text(encoding="utf-8") == "old"
    assert parts_left(tmp_path) == []


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "x.txt"
    storage.write_text(path, "old")

    def write(file):
        file.write(b"new")
        file.flush()
        assert path.read_text(encoding="utf-8") == "old"

    storage.write_atomically(path, write)
    assert path.read_text(encoding="utf-8") == "new"


def test_missing_folders_are_made_and_the_file_is_as_public_as_any_other(tmp_path):
    path = tmp_path / "a" / "b" / "x.txt"
    storage.write_text(path, "ü")
    plain = tmp_path / "plain.txt"
    plain.write_text("ü", encoding="utf-8")
    assert path.read_bytes() == plain.read_bytes()
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_long_name_and_a_name_without_suffix_are_kept(tmp_path, make_problem):
    for name in ("x" * 250, "ü" * 120, "plain", ".hidden"):
        make_problem().save(tmp_path / name)
        assert Problem.load(tmp_path / name).name == "small"
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("write", [storage.check_writable, lambda path: storage.write_text(path, "x")])
def test_a_folder_that_cannot_be_written_is_named(tmp_path, write):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(OSError, match=r"file: found .*, expected a folder that can be written"):
        write(tmp_path / "file" / "x.npz")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
@pytest.mark.parametrize("write", [storage.check_writable, lambda path: storage.write_text(path, "x")])
def test_a_folder_without_permission_is_named(tmp_path, write):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    with pytest.raises(OSError, match=r"closed: found Permission denied, expected a folder that can be written"):
        write(folder / "x.npz")


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="no folder that is closed to everybody")
@pytest.mark.parametrize("write", [storage.check_writable, lambda path: storage.write_text(path, "x")])
def test_a_refusal_of_the_system_is_told_with_the_folder(write):
    with pytest.raises(OSError, match=r"^\[.*/proc: found .*, expected a folder that can be written"):
        write("/proc/x.npz")


@pytest.mark.parametrize("write", [storage.check_writable, lambda path: storage.write_text(path, "x")])
def test_a_folder_is_no_name_for_a_file(tmp_path, write):
    with pytest.raises(IsADirectoryError, match=r"found a folder, expected the name of a file"):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [storage.check_writable, lambda path: storage.write_text(path, "x")])
def test_a_device_or_pipe_is_not_replaced_by_a_file(tmp_path, write):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"pipe: found a device or a pipe, expected the name of a file"):
        write(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_looking_whether_a_file_could_be_written_leaves_nothing_and_keeps_the_old_one(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(b"old")
    storage.check_writable(path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]


def test_names_and_sizes_are_refused_before_anything_is_unpacked(tmp_path):
    path = tmp_path / "bomb.npz"
    storage.save_npz(path, "s/1", {"X": np.zeros(3)})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("bomb.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (2**23,)})
        for _ in range(64):
            member.write(bytes(2**20))
    tracemalloc.start()
    with pytest.raises(storage.FileFormatError, match=r"found unknown fields \['bomb'\], expected only \['X'\]"):
        storage.load_npz(path, "s/1", lambda names: storage.check_keys(names, {"X"}, set(), str(path)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22


def test_more_than_the_largest_file_and_a_header_that_lies_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "large.npz"
    storage.save_npz(path, "s/1", {"X": np.zeros(10**5)})
    with monkeypatch.context() as patch:
        patch.setattr(storage, "LARGEST", 10**5)
        with pytest.raises(storage.FileFormatError, match=r"large\.npz: found arrays of more than 100000 bytes"):
            storage.load_npz(path, "s/1")
    assert storage.load_npz(path, "s/1")["X"].size == 10**5
    with zipfile.ZipFile(path, "a") as archive, archive.open("y.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (10**9,)})
    with pytest.raises(storage.FileFormatError, match=r"large\.npz: found y\.npy with 128 bytes, expected 8000000128"):
        storage.load_npz(path, "s/1")


def test_folders_that_a_zip_program_adds_are_passed_over(tmp_path):
    path = tmp_path / "foreign.npz"
    storage.save_npz(path, "s/1", {"problem/X": np.zeros(3)})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("problem/", b"")
    result = storage.load_npz(path, "s/1", lambda names: storage.check_keys(names, {"problem/X"}, set(), "foreign"))
    assert list(result) == ["problem/X"]


def test_files_that_belong_together_appear_both_or_not_at_all(tmp_path, monkeypatch):
    first, second = tmp_path / "a.csv", tmp_path / "b.html"
    storage.write_together({first: b"old", second: b"old"})
    calls = []

    def full(_):
        calls.append(1)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "fsync", full)
        with pytest.raises(OSError, match=r"b\.html.*: found No space left on device while writing"):
            storage.write_together({first: b"new", second: b"new"})
    assert (first.read_bytes(), second.read_bytes()) == (b"old", b"old")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.csv", "b.html"]
    storage.write_together({first: b"new", second: b"new"})
    assert (first.read_bytes(), second.read_bytes()) == (b"new", b"new")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no signal that ends a process at once")
def test_what_a_killed_writer_left_is_removed_by_the_next_and_what_a_living_one_holds_stays(tmp_path):
    path = tmp_path / "x.txt"
    code = (
        "import sys, time\n"
        "from validation.door.storage import write_atomically\n"
        "def write(file):\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
        "write_atomically(sys.argv[1], write)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        held = parts_left(tmp_path)
        assert len(held) == 1
        storage.write_text(path, "another writer")
        assert parts_left(tmp_path) == held
    finally:
        process.kill()
        process.communicate()
    assert parts_left(tmp_path) == held
    others = [".y.txt.abcdefg1.part", ".x.txt.part", "x.txt.abcdefg1.part"]
    for name in others:
        (tmp_path / name).write_bytes(b"of another file")
    storage.write_together({path: b"the next", tmp_path / "z.txt": b"and its companion"})
    assert sorted(parts_left(tmp_path)) == sorted(others)
    assert path.read_bytes() == b"the next"


def test_a_buffer_that_cannot_be_flushed_names_the_file(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("no device that is always full")

    def write(file):
        file.write(b"some bytes")
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, file.fileno())  # from here on the disk is full
        os.close(full)

    with pytest.raises(OSError, match=r"x\.txt.*: found No space left on device while writing"):
        storage.write_atomically(tmp_path / "x.txt", write)
    assert list(tmp_path.iterdir()) == []


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
    elif kind == "device":  # one of its own: a writer that fails this test replaces it
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except OSError:
            pytest.skip("only the superuser makes devices")
    else:
        path = folder / {"long": "x" * 256, "longer": "x" * 300, "wide": "é" * 128, "deep": "x/" * 3000}[kind]
    return path


UNUSUAL = [
    "pipe", "socket", "link to a pipe", "folder", "link to itself", "device",
    "long", "longer", "wide", "deep",
]  # fmt: skip


@pytest.mark.parametrize("kind", UNUSUAL)
def test_what_is_no_place_for_a_file_is_refused_by_name(kind, tmp_path):
    path = unusual(kind, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for act in (storage.check_writable, lambda path: storage.write_text(path, "x")):
        with pytest.raises(OSError, match=r": found .*expected the name of a file"):
            act(path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_file_has_the_rights_that_the_umask_leaves(mask, tmp_path):
    before = os.umask(mask)
    try:
        storage.write_text(tmp_path / "a.txt", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_its_target_is_written(there, tmp_path):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "b.txt", tmp_path / "a.txt"
    if there:
        target.write_text("old", encoding="utf-8")
    (tmp_path / "between").symlink_to("far/b.txt")
    link.symlink_to("between")
    storage.check_writable(link)
    storage.write_text(link, "new")
    assert link.is_symlink()
    assert not target.is_symlink()
    assert target.read_text(encoding="utf-8") == "new"
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["a.txt", "b.txt", "between", "far"]


def test_two_writers_of_one_file_leave_one_of_the_two_whole(tmp_path):
    path = tmp_path / "a.txt"
    storage.write_text(path, "1" * 500_000)

    def many(who):
        for _ in range(25):
            storage.write_text(path, who * 500_000)

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(many, who) for who in "12"]
        while not all(writer.done() for writer in writers):
            assert path.read_text(encoding="utf-8") in ("1" * 500_000, "2" * 500_000)
    for writer in writers:
        writer.result()
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_the_root_of_the_file_system_is_refused_as_a_folder(tmp_path):
    with pytest.raises(OSError, match="expected the name of a file"):
        storage.check_writable(Path(tmp_path.anchor))
