"""A process for one job ends with its job, with its patience, or with whoever started it."""

import os
import subprocess
import sys
import time

import pytest

LOOPS = """
import os, sys, time
from validation.jobs.job import Job
from validation.jobs.run import Processes, run

def loop(unit, hear):
    with open(unit, "w") as file:
        file.write(f"{os.getpid()}\\n")
    while True:
        time.sleep(0.1)

if __name__ == "__main__":
    list(run(loop, [Job("loops", sys.argv[1], 1.0, patience=1000.0)], Processes(1)))
"""


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def alive(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{number}/stat", encoding="utf-8") as file:  # one that has ended may still be listed
        return file.read().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="asks Linux whether a process is alive")
def test_a_job_ends_with_who_started_it_even_if_that_was_killed(tmp_path):
    script, told = tmp_path / "loops.py", tmp_path / "number"
    script.write_text(LOOPS, encoding="utf-8")
    with subprocess.Popen([sys.executable, str(script), str(told)]) as parent:
        wait_for(lambda: told.exists() and told.read_text(encoding="utf-8").endswith("\n"))
        number = int(told.read_text(encoding="utf-8"))
        assert alive(number)
        parent.kill()
    wait_for(lambda: not alive(number))
