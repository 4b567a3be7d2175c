"""Ctrl-C at any moment: exit code 130, no traceback, nothing left running."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from validation.command import entry

ROOT = Path(__file__).resolve().parents[3]
THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")

# a command line of which each step is known: it says when it begins to work, and does what the test asks for
_PROGRAM = """
import sys, types
from validation.command import entry
def run():
    sys.stdout.write("working\\n"); sys.stdout.flush()
    exec(sys.argv[1])
made = types.ModuleType("validation.command.cli"); made.main = run
sys.modules["validation.command.cli"] = made
entry.main()
"""
WAIT = "import time\nfor _ in range(600): time.sleep(0.1)"


def interrupted(body: str, *, times: int = 1) -> tuple[int, str, float]:
    """Exit code, stderr and seconds to the end of a process that works at `body` when it is interrupted."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, body],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        time.sleep(0.2)
        began = time.monotonic()
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    return process.returncode, errors, time.monotonic() - began


def test_a_command_at_work_ends_with_130_and_no_traceback():
    code, errors, _ = interrupted(WAIT)
    assert (code, errors) == (130, "")


def test_a_storm_of_interrupts_does_not_break_what_ends():
    body = f"try:\n    exec({WAIT!r})\nfinally:\n    time.sleep(0.5); sys.stderr.write('put away')"
    code, errors, _ = interrupted(f"import time\n{body}", times=8)
    assert (code, errors) == (130, "put away")


def test_an_interrupt_that_a_library_makes_another_error_of_is_still_one():
    body = f"try:\n    exec({WAIT!r})\nexcept KeyboardInterrupt:\n    raise ImportError('cannot import name')"
    assert interrupted(body)[:2] == (130, "")


def test_an_interrupt_that_a_library_swallows_ends_the_process_when_its_work_is_done():
    body = f"try:\n    exec({WAIT!r})\nexcept BaseException:\n    pass"
    assert interrupted(body)[:2] == (130, "")


def test_an_interrupt_in_a_finaliser_comes_again_where_it_can_be_heard():
    body = (
        "import time\nclass Slow:\n    def __del__(self):\n        import time\n        end = time.monotonic() + 2\n"
        "        while time.monotonic() < end: pass\nheld = Slow()\ndel held\n" + WAIT
    )
    assert interrupted(body)[:2] == (130, "")


def test_an_interrupt_waits_for_an_import_but_not_for_ever(tmp_path):
    (tmp_path / "slow_to_load.py").write_text(
        "import time\ntime.sleep(1.0)\ntime.sleep(0)\nprint('loaded', flush=True)"
    )
    (tmp_path / "never_loaded.py").write_text(WAIT)
    at = f"sys.path.insert(0, {str(tmp_path)!r})\n"
    code, errors, seconds = interrupted(at + f"import slow_to_load\nsys.stderr.write('whole')\n{WAIT}")
    assert (code, errors) == (130, "whole")
    code, errors, seconds = interrupted(at + "import never_loaded")
    assert (code, errors) == (130, "")
    assert seconds > entry.LONGEST_IMPORT


def test_a_process_started_with_the_signal_ignored_keeps_ignoring_it():
    program = f"import signal, os, sys\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{_PROGRAM}"
    body = "import os, signal; os.kill(os.getpid(), signal.SIGINT); sys.stdout.write('on')"
    done = subprocess.run(
        [sys.executable, "-c", program, body],
        capture_output=True, text=True, check=False, timeout=60, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "working\non")


def test_without_an_interrupt_exit_codes_and_errors_are_those_of_the_command():
    for body, code, line in (("sys.exit(3)", 3, ""), ("pass", 0, ""), ("assert False", 1, "AssertionError")):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, body],
            capture_output=True, text=True, check=False, timeout=60, cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == code
        assert done.stderr.strip().endswith(line)


# -- the real commands, at moments that a seed decides -------------------------------------------------------


def left_running(mark: str) -> list[str]:
    """Command lines of processes that have `mark` in their environment, where /proc tells."""
    results = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                results.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return results


def hit(command: str, delay: float, folder: Path, *, group: bool) -> None:
    """Interrupt a command after `delay` seconds, it alone or, as a terminal does, with all it has started."""
    mark = f"INTERRUPTED_AT={delay!r}"
    name, _, value = mark.partition("=")
    process = subprocess.Popen(
        [sys.executable, "-m", "validation", *command.split()],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True,
        env=os.environ | THREADS | {"PYTHONPATH": str(ROOT), name: value},
    )  # fmt: skip
    try:
        time.sleep(delay)
        ended = process.poll() is not None
        if not ended:
            (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    message = f"{command!r} after {delay:.3f} s: {process.returncode}\n{errors}"
    # it may have been done when the signal came: then its own code stands
    assert process.returncode == 130 or (ended or (process.returncode == 0 and "interrupted" not in errors)), message
    assert "Traceback" not in out + errors, message
    assert "Exception ignored" not in errors, message
    deadline = time.monotonic() + 5.0
    while left_running(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left_running(mark) == [], message


# before this the interpreter itself is starting
FIRST = 0.2


@pytest.mark.parametrize("command", ["--help", "solve fast x-gpc toy"])
def test_a_short_command_is_interrupted_anywhere(command, tmp_path):
    delays = random.Random(command)
    for group in (False, True, False):
        hit(command, delays.uniform(FIRST, 1.5), tmp_path, group=group)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["verify", "audit wenzel2019", "truth make toy --method gibbs-logit", "bench",
     "claims run wenzel2019 fig1", "list data", "list data --check", "solve gibbs gibbs-logit toy", "list methods",
     "list problems"],
)  # fmt: skip
def test_a_long_command_is_interrupted_anywhere(command, tmp_path):
    delays = random.Random(command)
    for k in range(6):
        hit(command, delays.uniform(FIRST, 10.0), tmp_path, group=bool(k % 2))
