"""`import triad`: every name by completion, lazily, and words of its own where another module hides a package."""

import ast
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fast.estimators
import triad
import validation.truth
from validation.door.solve import solve
from validation.judge.compare import compare

ROOT = Path(__file__).resolve().parents[2]


def python(program: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A fresh process in `folder`, which it looks into first, with the repository behind."""
    return subprocess.run(
        [sys.executable, *options, "-c", program], capture_output=True, text=True, timeout=120, cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": ""}, check=False,
    )  # fmt: skip


def test_each_name_is_the_object_of_the_package_that_has_it():
    assert triad.solve is solve
    assert triad.compare is compare
    assert triad.truths is validation.truth
    for name in fast.estimators.__all__:
        assert getattr(triad, name) is getattr(fast.estimators, name), name
    assert set(fast.estimators.__all__) < set(triad.__all__) <= set(dir(triad))
    assert triad.__all__ == sorted(triad.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Solver'"):
        _ = triad.Solver


def test_what_type_checkers_read_is_what_is_given():
    tree = ast.parse(Path(triad.__file__).read_text(encoding="utf-8"))
    (block,) = [
        node for node in tree.body if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    ]
    named = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert named - {None} == set(triad.__all__)


def test_every_name_says_what_it_is():
    for name in triad.__all__:
        assert (getattr(triad, name).__doc__ or "").strip(), name


def test_importing_triad_loads_no_numpy_and_no_package_of_ours(tmp_path):
    program = (
        "import sys, triad; dir(triad); loaded = set(sys.modules); "
        "assert not loaded & {'numpy', 'typing', 'validation', 'fast', 'gibbs', 'reference'}, loaded; "
        "assert triad.Problem.__name__ == 'Problem' and 'fast' not in sys.modules"
    )
    done = python(program, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("hidden", ["validation.py", "fast/__init__.py", "reference/__init__.py", "gibbs.py"])
def test_a_module_that_hides_a_package_is_named_with_what_to_do(tmp_path, hidden):
    file = tmp_path / hidden
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    done = python("import triad", tmp_path)
    name = hidden.partition("/")[0].removesuffix(".py")
    last = done.stderr.partition("ImportError: ")[2]
    assert f"{name}: found {file}, expected {ROOT / name / '__init__.py'}" in last
    assert "Rename them" in last
    # what the message advises helps
    assert python("import triad; triad.Problem", tmp_path, "-P").returncode == 0


def test_a_module_of_the_name_that_was_imported_before_is_named_too(tmp_path):
    (tmp_path / "fast.py").write_text("")
    done = python("import fast, sys; sys.path.remove(''); import triad", tmp_path)
    assert f"fast: found {tmp_path / 'fast.py'}, expected" in done.stderr


def test_a_folder_that_is_no_package_hides_nothing(tmp_path):
    (tmp_path / "fast").mkdir()
    assert python("import triad; triad.XGPClassifier", tmp_path).returncode == 0


def test_python_m_triad_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "triad", "--version"], capture_output=True, text=True, timeout=120, cwd=ROOT, check=True
    )
    assert "gpc-triad" in done.stdout


def test_the_package_has_its_version_and_lists_public_names_alone():
    assert triad.__version__ == importlib.metadata.version("gpc-triad")
    names = [name for name in dir(triad) if not name.startswith("__")]
    assert names == sorted(triad.__all__)
