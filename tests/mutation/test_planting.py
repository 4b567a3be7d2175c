"""Plans hold in the process that starts with one, and in those that it starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import planting

MODULE = """def f(x):
    y = x + 1
    if x > 0:
        return y
    return -y
"""
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import some; print(some.f(2))'], check=True)"
POOL = """import multiprocessing, some
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(some.f, [2])[0])
"""


@pytest.fixture
def run(tmp_path):
    """Run a program under a plan and give what it prints."""
    (tmp_path / "some.py").write_text(MODULE, encoding="utf-8")

    def run_(program, plan, **variables):
        (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        (tmp_path / "program.py").write_text(program, encoding="utf-8")
        paths = os.pathsep.join([str(tmp_path), str(Path(planting.__file__).parent)])
        environment = {**os.environ, "PYTHONPATH": paths, planting.PLAN: str(tmp_path / "plan.json"), **variables}
        command = [sys.executable, str(tmp_path / "program.py")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    return run_


@pytest.mark.parametrize("program", ["import some; print(some.f(2))", CHILD, POOL], ids=["itself", "child", "spawned"])
def test_a_planted_text_holds_in_every_process(run, program):
    assert run(program, {}) == "3"
    assert run(program, {"texts": {"some": MODULE.replace("+ 1", "+ 5")}}) == "7"


@pytest.mark.parametrize("program", ["import some; print(some.f(2))", CHILD, POOL], ids=["itself", "child", "spawned"])
def test_points_are_noted_with_what_is_running_and_change_nothing(run, program, tmp_path):
    plan = {"points": {"some": {"2": [0], "4": [1, 2], "5": [3]}}, "passed": str(tmp_path / "passed.txt")}
    assert run(program, plan, **{planting.MARK: "call a test"}) == "3"
    lines = (tmp_path / "passed.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(lines) == [f"{number}\tcall a test" for number in (0, 1, 2)]


def test_a_module_that_was_imported_before_is_refused(run):
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run("import some, planting; planting.start()", {"texts": {"os": ""}})
    assert "module: found 'os' imported already, expected a fresh process" in caught.value.stderr
