"""A program of somebody else that ends its process: the question is named, the others are judged, nothing is green."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from validation import Solution, problems, solve
from validation.door.solve import ImplementationError
from validation.judge.child import Child
from validation.judge.judging import judge
from validation.judge.testing import checks_of

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = '''
import ctypes, os, signal, sys, time
from dataclasses import replace
from validation import solve

def right(method, problem, **options):
    return replace(solve("fast", method, problem), implementation="mine")

def _ends(end):
    """Right on every problem but the smallest, on which it does what ends a process."""
    def answer(method, problem, **options):
        if problem.name == "two-points":
            end()
        return right(method, problem)
    return answer

def _abort():
    os.abort()

def _forks():
    if os.fork() == 0:  # both copies go on, and only one of them is asked
        return
    time.sleep(1.0)
    os._exit(0)

def _leaves_a_process():
    """Ends, while a process that it started has all that it had."""
    if os.fork() == 0:
        time.sleep(5.0)
    os._exit(0)

left = _ends(lambda: os._exit(0))
left_3 = _ends(lambda: os._exit(3))
c_exit = _ends(lambda: ctypes.CDLL(None).exit(0))
sys_exit = _ends(lambda: sys.exit(0))
killed = _ends(lambda: os.kill(os.getpid(), signal.SIGKILL))
aborted = _ends(_abort)
crashed = _ends(lambda: ctypes.string_at(0))
forks = _ends(_forks)
leaves_a_process = _ends(_leaves_a_process)
closes_all = _ends(lambda: os.closerange(0, 100))

def closes_stdout(method, problem, **options):
    if not sys.stdout.closed:
        sys.stdout.close()
        os.open(os.devnull, os.O_WRONLY)  # another file has its number
    return right(method, problem)

def talks(method, problem, **options):
    print("noise of Python")
    ctypes.CDLL(None).puts(b"noise of C")
    ctypes.CDLL(None).fflush(None)
    os.system("echo noise of a program")
    return right(method, problem)

def reads(method, problem, **options):
    return replace(right(method, problem), settings={"read": sys.stdin.read()})

calls = 0

def counts(method, problem, **options):
    global calls
    calls += 1
    return replace(right(method, problem), settings={"calls": calls, "process": os.getpid()})

def small(method, problem, **options):
    raise NotImplementedError("nothing at all")

def hangs(method, problem, **options):
    open("started", "w").close()
    time.sleep(600)

def interrupts(method, problem, **options):
    raise KeyboardInterrupt

right.methods = ("x-gpc",)
right.likelihoods = "logit"
'''
LOADING = {
    "ends_0": "import os\nos._exit(0)\n",
    "ends_c": "import ctypes\nctypes.CDLL(None).exit(0)\n",
}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="what ends a process is written for POSIX here")


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """The folder of a program that can be imported."""
    (tmp_path / "mine_in_child.py").write_text(PROGRAM, encoding="utf-8")
    for name, text in LOADING.items():
        (tmp_path / f"mine_{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def command(*words, cwd, **options):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "validation", *words]
    return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)


ENDS = {
    "left": "exit code 0",
    "left_3": "exit code 3",
    "c_exit": "exit code 0",
    "killed": "signal 9 (SIGKILL)",
    "aborted": "signal 6 (SIGABRT)",
    "crashed": "signal 11 (SIGSEGV)",
    "forks": "exit code 0",
    "leaves_a_process": "exit code 0",
    "closes_all": "exit code ",
}


@pytest.mark.parametrize("name", ENDS)
def test_a_program_that_ends_its_process_fails_that_question_alone(name, beside):
    verdict = judge(f"mine_in_child:{name}", "x-gpc", problems=["two-points", "toy"], power=False)
    assert verdict.verdict == "DISAGREE"
    (case,) = verdict.failed
    assert case.problem == "two-points"
    assert "x-gpc on two-points: its process ended with " + ENDS[name] in case.row.why
    assert {case.problem for case in verdict.passed} >= {"toy"}


def test_a_program_that_leaves_by_sys_exit_is_told_as_before(beside):
    verdict = judge("mine_in_child:sys_exit", "x-gpc", problems=["two-points", "toy"], power=False)
    (case,) = verdict.failed
    assert "x-gpc on two-points: SystemExit: 0 (" in case.row.why
    assert "toy" in {case.problem for case in verdict.passed}


@pytest.mark.parametrize("name", ["right", "closes_stdout", "talks"])
def test_a_right_program_agrees_in_a_process_of_its_own(name, beside):
    verdict = judge(f"mine_in_child:{name}", "x-gpc", problems=["two-points"], power=False)
    assert verdict.verdict == "AGREE", list(verdict.failed)
    assert verdict.program == f"mine_in_child:{name}"


def test_answers_keep_every_bit_and_the_process_its_state(beside):
    problem = problems.get("toy")
    with Child("mine_in_child:counts") as program:
        first, second = program("x-gpc", problem), program("x-gpc", problem)
        assert first.settings["process"] == second.settings["process"] != os.getpid()
        assert (first.settings["calls"], second.settings["calls"]) == (1, 2)
    here = replace(solve("fast", "x-gpc", problem), implementation="mine")
    for name in ("latent_mean", "latent_cov", "test_latent_mean", "probabilities", "trace"):
        assert np.array_equal(getattr(first, name), getattr(here, name))
    assert first.log_evidence == here.log_evidence
    assert isinstance(first, Solution)


def test_what_a_program_says_of_itself_and_refuses_is_as_before(beside):
    with Child("mine_in_child:right") as program:
        assert (program.methods, program.likelihoods) == (("x-gpc",), "logit")
    verdict = judge("mine_in_child:small", "x-gpc", problems=["two-points"])
    assert verdict.verdict == "UNDECIDED"
    assert "refused: nothing at all" in verdict.not_judged.values()
    with pytest.raises(ValueError, match="implementation: found no module 'mine_nowhere', expected module:function"):
        judge("mine_nowhere:answer", "x-gpc")


@pytest.mark.parametrize("name", LOADING)
def test_a_program_that_ends_its_process_while_it_is_loaded_is_said(name, beside):
    with pytest.raises(
        ImplementationError, match=rf"mine_{name}:answer: while it was loaded: .* exit code 0, expected"
    ):
        judge(f"mine_{name}:answer", "x-gpc")


def test_a_program_that_reads_finds_nothing(beside):
    with Child("mine_in_child:reads") as program:
        assert program("x-gpc", problems.get("two-points")).settings["read"] == ""


def test_an_interrupt_inside_a_program_is_one(beside):
    with Child("mine_in_child:interrupts") as program, pytest.raises(KeyboardInterrupt):
        program("x-gpc", problems.get("two-points"))


def test_tests_made_of_a_name_outlive_its_process(beside):
    checks = {check.name: check for check in checks_of("mine_in_child:left", "x-gpc", problems=["two-points", "toy"])}
    with pytest.raises(AssertionError, match="its process ended with exit code 0"):
        checks["x-gpc-two-points-answer"]()
    checks["x-gpc-toy-answer"]()


# -- the commands --------------------------------------------------------------------------------------------


def test_the_command_prints_a_verdict_and_exits_1(beside):
    done = command("judge", "mine_in_child:left", "--method", "x-gpc", "--problem", "two-points", "--problem", "toy",
                   "--no-power", "--html", "page.html", cwd=beside)  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "its process ended with exit code 0" in " ".join(done.stdout.split())
    assert "DISAGREE: " in done.stdout
    assert "DISAGREE" in (beside / "page.html").read_text(encoding="utf-8")


def test_the_command_solve_says_how_the_process_ended_and_writes_nothing(beside):
    done = command("solve", "mine_in_child:c_exit", "x-gpc", "two-points", "--output", "mine.npz", cwd=beside)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: mine_in_child:c_exit x-gpc on two-points: its process ended with exit code 0," in done.stderr
    assert not (beside / "mine.npz").exists()


def test_what_a_program_prints_does_not_come_between_json(beside):
    done = command("solve", "mine_in_child:talks", "x-gpc", "two-points", "--json", cwd=beside)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["implementation"] == "mine"
    for noise in ("noise of Python", "noise of C", "noise of a program"):
        assert noise in done.stderr


def test_verbose_shows_the_traceback_of_the_program(beside):
    (beside / "mine_raising.py").write_text("def answer(method, problem):\n    return {}['key']\n")
    done = command("solve", "mine_raising:answer", "x-gpc", "two-points", "--verbose", cwd=beside)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert "    return {}['key']" in done.stderr
    assert "error: mine_raising:answer x-gpc: KeyError: 'key' (" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_program_that_hangs_ends_with_the_command(number, beside):
    line = [sys.executable, "-m", "validation", "judge", "mine_in_child:hangs", "--method", "x-gpc"]
    process = subprocess.Popen(line, cwd=beside, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE)
    while not (beside / "started").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    message = process.communicate(timeout=60)[1].decode()  # the pipe is closed once the child is gone too
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in message
