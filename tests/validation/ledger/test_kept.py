"""What an audit keeps is what it would read: under one key only, whole or not at all, and never with a fault."""

from __future__ import annotations

import json

import pytest

from validation.ledger import kept
from validation.ledger.collection import Claim, Collection, MarkedTest
from validation.ledger.registry import Function, Package, Registry


def documented():
    """The first line.

    And more.
    """


FUNCTIONS = Registry((Function("toy", "toy.f", (("toy", "1"), ("toy", "2")), False, "toy.py", 3, documented),), ())
TESTS = Collection(
    (MarkedTest("tests/t.py::t", "toy", "tests/t.py", 4, "t", 2, False, (Claim("toy", "1", "by hand", 0.1),)),), ()
)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("a = 1\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    return tmp_path


def test_what_is_read_back_is_what_was_kept(root):
    key = kept.key(root, ())
    kept.save(root, key, FUNCTIONS, TESTS)
    functions, tests = kept.load(root, key)
    assert functions == FUNCTIONS
    assert functions.functions[0].summary == "The first line."
    assert tests == TESTS
    with pytest.raises(RuntimeError, match=r"toy\.f: found its summary alone"):
        _ = functions.functions[0].source
    assert [path.name for path in (root / kept.FILE).parent.iterdir()] == [kept.FILE.name]


def test_any_byte_any_name_and_any_package_change_the_key(root, monkeypatch):
    keys = {kept.key(root, ())}
    for change in (
        lambda: (root / "tests" / "test_a.py").write_text("a = 2\n"),
        lambda: (root / "tests" / "test_a.py").rename(root / "tests" / "test_b.py"),
        lambda: (root / "tests" / "data.bin").write_bytes(b"\0"),
        lambda: (root / "pyproject.toml").write_text("[project]\n\n"),
        lambda: monkeypatch.setenv("TRIAD_DATA", "elsewhere"),
    ):
        change()
        keys.add(kept.key(root, ()))
    keys.add(kept.key(root, (Package("json", "json.decoder"),)))
    assert len(keys) == 7
    assert kept.key(root, ()) in keys


def test_another_key_and_a_damaged_file_count_for_nothing(root):
    assert kept.load(root, "a") is None
    kept.save(root, "a", FUNCTIONS, TESTS)
    assert kept.load(root, "a") is not None
    assert kept.load(root, "b") is None
    file = root / kept.FILE
    whole = file.read_text()
    for damaged in (whole[:50], "[]", json.dumps({"key": "a"}), whole.replace('"line"', '"lime"')):
        file.write_text(damaged)
        assert kept.load(root, "a") is None


def test_a_reading_with_a_fault_is_not_kept(root):
    kept.save(root, "a", Registry(FUNCTIONS.functions, ("module x: failed to import",)), TESTS)
    kept.save(root, "a", FUNCTIONS, Collection(TESTS.tests, ("test file y: failed to collect",)))
    assert kept.load(root, "a") is None
