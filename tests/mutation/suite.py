"""Which tests pass the statements that mutants change, and whether they notice the change.

The tests run once without any mutant, with a point before each statement of the sample (`planting.py`). A mutant then
runs the tests that pass its points, the cheapest first, to the first failure, in a process forked from one that has
loaded the libraries. What a fixture passes belongs to every test of its module. The judge's checks are tests too
(`door.py`), so that one mechanism measures both.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mutants import ROOT, Mutant, dotted
from planting import PACKAGES, PLAN, start

HERE = Path(__file__).resolve().parent
# a warning of arithmetic is an error of a test, and no answer to a question of the judge
_OF_A_TARGET = {"door": ("-o", "filterwarnings=default"), "tests": ("-m", "not slow")}
_LIBRARIES = ("hypothesis", "matplotlib.pyplot", "pandas", "pytest", "scipy.stats", "sklearn.base", "typer")
_COLLECTION = 300.0  # seconds that a mutant may take until its first test


class Outcome(NamedTuple):
    """What became of a mutant.

    state : str    "wrong value", "crash" (an error or no answer in time), "survived" or "never executed"
    by : str       the test that noticed it
    note : str     what that test says
    """

    state: str
    by: str = ""
    note: str = ""

    @property
    def caught(self) -> bool:
        """Whether some test failed."""
        return self.state in ("wrong value", "crash")


@dataclass(frozen=True)
class Suite:
    """A healthy run: seconds of each test, the tests that a mutant must be held against, those left aside.

    aside : list    tests that fail without any mutant
    """

    target: str
    folder: Path
    seconds: dict[str, float]
    tests: dict[str, tuple[str, ...]]
    aside: list[str]

    def attempt(self, mutants: list[Mutant], jobs: int, until: float) -> Iterator[tuple[Mutant, Outcome]]:
        """Run the tests of each mutant, so many processes at once; none is started after `until` (of `time.time`)."""
        running: dict[int, tuple[Mutant, Path]] = {}
        for name in _LIBRARIES:
            importlib.import_module(name)
        with tempfile.TemporaryDirectory(prefix="triad-mutants-") as folder:
            for count, mutant in enumerate(mutants):
                if time.time() > until:
                    break
                if not self.tests[mutant.name]:
                    yield mutant, Outcome("never executed")
                    continue
                if len(running) == jobs:
                    yield _ended(running)
                home = Path(folder) / str(count)
                home.mkdir()
                running[self._started(mutant, home)] = mutant, home
            while running:
                yield _ended(running)

    def _started(self, mutant: Mutant, home: Path) -> int:
        """Process id of a fork that runs the tests of a mutant in a session of its own."""
        tests = {name: self.seconds[name] for name in self.tests[mutant.name]}
        plan = {"texts": {mutant.module: mutant.text}, "tests": tests, "package": mutant.module.partition(".")[0]}
        (home / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        process = os.fork()
        if process:
            return process
        code = 70
        try:
            os.setsid()
            signal.setitimer(signal.ITIMER_REAL, _COLLECTION)
            with (home / "output").open("wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            os.environ.update(_environment(home / "plan.json", self.folder))
            os.chdir(ROOT)
            sys.path.insert(0, str(ROOT))
            # a process that a test spawns would import this program as its own main module
            sys.modules["__main__"] = types.ModuleType("__main__")
            start()
            files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
            code = int(importlib.import_module("pytest").main([*_OPTIONS, "-x", *files, *_OF_A_TARGET[self.target]]))
        except Exception:  # noqa: BLE001 - the parent reads it
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _ended(running: dict[int, tuple[Mutant, Path]]) -> tuple[Mutant, Outcome]:
    """Wait for one process and end what it has started."""
    process, status = os.waitpid(-1, 0)
    mutant, home = running.pop(process)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    if os.WIFSIGNALED(status):
        why = signal.Signals(os.WTERMSIG(status)).name
        return mutant, Outcome("crash", "", "no answer in time" if why == "SIGALRM" else f"ended by {why}")
    if os.WEXITSTATUS(status) == 0:
        return mutant, Outcome("survived")
    failure = home / "failure.json"
    if failure.exists():
        by, note = json.loads(failure.read_text(encoding="utf-8"))
    else:
        by, note = "", (home / "output").read_text(encoding="utf-8", errors="replace")[-300:]
    values = note.removeprefix("Failed: ").startswith(("wrong value", "AssertionError", "assert ", "DID NOT RAISE"))
    return mutant, Outcome("wrong value" if values else "crash", by, note)


def measure(target: str, mutants: list[Mutant], paths: Iterable[str], folder: Path, jobs: int) -> Suite:
    """Run the tests of a target once, unless the folder holds that run of this very code for these mutants.

    paths    the tests to run; the door has its own

    Raises
    ------
    RuntimeError    if they cannot run
    """
    paths = [str(HERE / "door.py")] if target == "door" else list(paths)
    folder = (folder / f"{target}-{_fingerprint(mutants, paths)}").resolve()
    if not (folder / "suite.json").exists():
        (folder / "answers").mkdir(parents=True, exist_ok=True)
        for stale in (*folder.glob("healthy-*.json"), *folder.glob("tested-*.pkl"), folder / "passed.txt"):
            stale.unlink(missing_ok=True)
        points = [point for mutant in mutants for point in mutant.points]
        numbers = {point: k for k, point in enumerate(dict.fromkeys(points))}
        plan: dict[str, dict[int, list[int]]] = {}
        for (path, line), number in numbers.items():
            plan.setdefault(dotted(path), {}).setdefault(line, []).append(number)
        text = json.dumps({"points": plan, "passed": str(folder / "passed.txt")})
        (folder / "plan.json").write_text(text, encoding="utf-8")
        sys.stderr.write(f"healthy run of {target}\n")
        # checks of one problem share their answers, so that one process asks them all
        many = ["-n", str(jobs), "--dist", "worksteal"] if jobs > 1 and target == "tests" else []
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *_OPTIONS, *many, *paths, *_OF_A_TARGET[target]],
            cwd=ROOT,
            env={**os.environ, **_environment(folder / "plan.json", folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        (folder / "output").write_text(run.stdout + run.stderr, encoding="utf-8")
        if run.returncode not in (0, 1):
            raise RuntimeError(f"{target}: found exit code {run.returncode}, expected 0 or 1\n{run.stdout[-3000:]}")
        _merge(folder, {mutant.name: [numbers[point] for point in mutant.points] for mutant in mutants})
    stored = json.loads((folder / "suite.json").read_text(encoding="utf-8"))
    for name in stored["aside"]:
        sys.stderr.write(f"left aside, fails without any mutant: {name}\n")
    tests = {name: tuple(known) for name, known in stored["tests"].items()}
    return Suite(target, folder, stored["seconds"], tests, stored["aside"])


_OPTIONS = ["-q", "-p", "mutation_plugin", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]


def _environment(plan: Path, folder: Path) -> dict[str, str]:
    paths = os.pathsep.join(entry for entry in (str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")) if entry)
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {"PYTHONPATH": paths, PLAN: str(plan), "TRIAD_DOOR": str(folder), **threads}


def _fingerprint(mutants: Iterable[Mutant], paths: list[str]) -> str:
    """Of the packages, the tests and the sample."""
    digest = hashlib.sha256(" ".join([*paths, *(mutant.name for mutant in mutants)]).encode())
    for folder in (*PACKAGES, "validation", "triad", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".toml", ".npz", ".json") and path.name != "power.json":
                digest.update(f"{path.relative_to(ROOT)}".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _merge(folder: Path, points: dict[str, list[int]]) -> None:
    """One file from those of the recording processes."""
    seconds: dict[str, float] = {}
    asked: dict[str, set[str]] = {}
    failed: set[str] = set()
    for part in sorted(folder.glob("healthy-*.json")):
        stored = json.loads(part.read_text(encoding="utf-8"))
        seconds |= stored["seconds"]
        failed |= set(stored["failed"])
        for test, keys in stored["asked"].items():
            asked.setdefault(test, set()).update(keys)
    passed: dict[str, set[int]] = {}
    path = folder / "passed.txt"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        number, _, mark = line.partition("\t")
        # fixtures are shared, and the test that sets one up is seldom the one that looks at it
        passed.setdefault(mark.partition("::")[0] if mark.startswith("setup ") else mark, set()).add(int(number))
    fixtures: dict[str, float] = {}
    for mark, value in seconds.items():
        if mark.startswith("setup "):
            module = mark.partition("::")[0]
            fixtures[module] = fixtures.get(module, 0.0) + value
    whole: dict[str, float] = {}
    known: dict[str, set[int]] = {}
    for mark in seconds:
        name = mark.removeprefix("call ")
        if name != mark and name not in failed:
            marks = (mark, *(f"solve {key}" for key in sorted(asked.get(name, ()))))
            setup = f"setup {name.partition('::')[0]}"
            whole[name] = sum(seconds.get(entry, 0.0) for entry in marks) + fixtures.get(setup, 0.0)
            known[name] = set().union(*(passed.get(entry, set()) for entry in (*marks, setup)))
    # tests of a module stay together, so that its fixtures are set up once
    modules: dict[str, float] = {}
    for name, value in whole.items():
        module = name.partition("::")[0]
        modules[module] = modules.get(module, 0.0) + value - fixtures.get(f"setup {module}", 0.0)
    ordered = sorted(whole, key=lambda name: (modules[name.partition("::")[0]], whole[name], name))
    tests = {
        mutant: [name for name in ordered if not known[name].isdisjoint(numbers)] for mutant, numbers in points.items()
    }
    text = json.dumps({"seconds": whole, "tests": tests, "aside": sorted(failed)})
    (folder / "suite.json").write_text(text, encoding="utf-8")
