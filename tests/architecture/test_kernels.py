"""The driver of `make test-kernels`: what counts as a kernel that was loaded, what is run, what is green."""

import importlib.util
import os
import re
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load():
    spec = importlib.util.spec_from_file_location("kernels", ROOT / ".ci" / "kernels.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernels"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


kernels = load()
VERSIONS = "Python 3.11.7, NumPy 2.4.6, SciPy 1.17.1"


def probe(*names, threads=1, status=0):
    return kernels.Probe(names, (threads,) * len(names), VERSIONS, status)


def row(verdict):
    return kernels.Row("Haswell", 1, "Haswell", "tests", verdict, 12.3, "")


def test_the_environment_asks_for_kernel_and_threads_and_keeps_the_rest():
    base = {"PATH": "x", "OPENBLAS_CORETYPE": "Nehalem", "OMP_NUM_THREADS": "7"}
    asked = kernels.environment("Haswell", 2, base)
    assert asked["OPENBLAS_CORETYPE"] == "Haswell"
    assert asked["PATH"] == "x"
    assert {asked[name] for name in kernels.THREAD_VARIABLES} == {"2"}
    assert "OPENBLAS_CORETYPE" not in kernels.environment(None, 1, base)
    assert base["OPENBLAS_CORETYPE"] == "Nehalem"


@pytest.mark.parametrize(
    ("kernel", "actual", "why"),
    [
        pytest.param("Haswell", probe("SkylakeX", "SkylakeX"), "found SkylakeX, expected Haswell", id="another"),
        pytest.param("Haswell", probe("Haswell", "SkylakeX"), "found Haswell, SkylakeX, expected Haswell", id="SciPy"),
        pytest.param("Haswell", probe(), "found no OpenBLAS, expected Haswell", id="no OpenBLAS"),
        pytest.param("Haswell", probe("Haswell", threads=2), "found 2 threads, expected 1", id="threads"),
        pytest.param("Haswell", probe("Haswell", status=-signal.SIGSEGV), "dies of SIGSEGV in A @ B.T", id="dies"),
        pytest.param("Haswell", probe("Haswell", status=3), "the library itself is wrong in A @ B.T", id="wrong"),
        pytest.param("Haswell", probe("Haswell", status=1), "is wrong|dies", id="raises"),
    ],
)
def test_what_was_not_loaded_as_asked_has_a_reason_not_to_run(kernel, actual, why):
    assert re.search(why, kernels.obstacle(kernel, 1, actual))


@pytest.mark.parametrize(
    ("kernel", "actual"), [("Haswell", probe("Haswell", "Haswell")), ("Prescott", probe("Katmai", "Prescott"))]
)
def test_a_kernel_loaded_under_any_of_its_names_may_run(kernel, actual):
    assert kernels.obstacle(kernel, 1, actual) == ""


def test_a_misspelt_kernel_is_met_in_a_real_process_and_never_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kernels, "run_task", lambda *_: pytest.fail("ran"))
    assert kernels.main(["--kernel", "Haswel", "--threads", "1", "--output", str(tmp_path)]) == 2
    told = capsys.readouterr().out
    assert "NOT RUN" in told
    assert "0 green, 0 RED, 2 NOT RUN" in told
    assert "expected Haswel in every library" in told


def test_the_kernel_that_is_loaded_now_is_loaded_when_it_is_named():
    own = kernels.probe(None, 1)
    if not set(map(kernels.canonical, own.kernels)) & set(kernels.CLASSES):
        pytest.skip(f"this machine loads {kernels.loaded(own)}, expected one of {', '.join(kernels.CLASSES)}")
    if len(set(map(kernels.canonical, own.kernels))) > 1:
        pytest.skip(f"two libraries load {kernels.loaded(own)} here, expected one name: theirs are of different years")
    name = kernels.canonical(own.kernels[0])
    assert kernels.obstacle(name, 1, kernels.probe(name, 1)) == ""
    assert kernels.obstacle(name, 2, kernels.probe(name, 2)) == ""


def test_the_other_kernels_leave_out_the_own_one_under_all_its_names_and_those_that_cannot_run():
    assert kernels.others(["SkylakeX"], lambda name: True, 2) == ["Haswell", "Prescott"]
    assert kernels.others(["Haswell"], lambda name: True, 2) == ["Prescott", "Sandybridge"]
    assert kernels.others(["Katmai"], lambda name: name != "Haswell", 2) == ["Sandybridge", "Nehalem"]
    assert kernels.others(["SkylakeX"], lambda name: False, 2) == []


def test_too_few_other_kernels_are_not_green(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kernels, "probe", lambda kernel, threads: probe("neoversev1", threads=threads))
    assert kernels.main(["--others", "2", "--output", str(tmp_path)]) == 2
    assert "found 0 other kernels that run here, expected 2" in capsys.readouterr().out


def test_processes_times_threads_stay_within_the_cores(tmp_path):
    verify = kernels.commands("verify", 2, 2, tmp_path)
    assert verify[verify.index("--jobs") :][:4] == ("--jobs", "1", "--threads", "2")
    verify = kernels.commands("verify", 1, 2, tmp_path)
    assert verify[verify.index("--jobs") :][:4] == ("--jobs", "2", "--threads", "1")
    assert "-n" not in kernels.commands("tests", 2, 2, tmp_path)
    assert "-n" in kernels.commands("tests", 1, 2, tmp_path)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["green", "green"], 0),
        (["green", "RED", "NOT RUN"], 1),
        (["green", "NOT RUN"], 2),
        (["NOT RUN"], 2),
        ([], 2),
    ],
)
def test_only_what_ran_and_passed_is_green(verdicts, expected):
    assert kernels.status([row(verdict) for verdict in verdicts]) == expected


def test_the_command_runs_in_the_environment_of_the_probe_and_its_status_decides(tmp_path, monkeypatch, capsys):
    """A stand-in for verify writes down what it was given and fails under one kernel of two."""
    before = os.environ.get("OPENBLAS_CORETYPE")
    program = (
        "import os, sys; k = os.environ['OPENBLAS_CORETYPE']; n = os.environ['OPENBLAS_NUM_THREADS']; print(k, n); "
    )
    program += "print('FAILED planted' if k == 'Nehalem' else '3 passed'); sys.exit(k == 'Nehalem')"
    monkeypatch.setattr(kernels, "probe", lambda kernel, threads: probe(kernel or "Haswell", threads=threads))
    monkeypatch.setattr(kernels, "commands", lambda *_: (sys.executable, "-c", program))
    asked = ["--kernel", "Haswell", "Nehalem", "--threads", "2", "--what", "verify", "--output", str(tmp_path)]
    assert kernels.main([*asked, "--side-by-side"]) == 1
    assert (tmp_path / "Haswell-2" / "verify.log").read_text().split() == ["Haswell", "2", "3", "passed"]
    told = capsys.readouterr().out
    assert "FAILED planted" in told
    assert "1 green, 1 RED, 0 NOT RUN" in told
    assert os.environ.get("OPENBLAS_CORETYPE") == before


def test_the_selection_names_files_that_exist_each_once():
    files = kernels.selection()
    assert files
    assert len(files) == len(set(files))
    assert [file for file in files if not (ROOT / file).is_file()] == []
