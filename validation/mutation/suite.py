"""Mutants against the test suite: which tests execute a line, and whether they see that it was changed.

The suite runs once under coverage, with a context for each test; `validation.mutation.plugin` writes what it saw. What
a fixture executes belongs to every test of its module, because fixtures are shared and the test that sets one up is
seldom the one that looks at it. A mutant then runs the tests that execute it in a fresh pytest, the cheapest first, to
the first failure.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from validation import storage
from validation.jobs import run as jobs_run
from validation.jobs.job import Job
from validation.jobs.run import Engine
from validation.mutation.statements import PACKAGES, Mutant, mutated_source
from validation.mutation.trial import GRACE, PATIENCE, Outcome, watched

RECORD, PLANT = "TRIAD_RECORD_LINES", "TRIAD_PLANT"  # what the plugin reads: a folder, a file
_PLUGIN = "validation.mutation.plugin"
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Suite:
    """A healthy run of the tests: seconds of each, and the tests that execute each line of each module."""

    root: Path  # of the checkout
    seconds: dict[str, float]
    tests: dict[str, dict[int, tuple[str, ...]]]  # module -> line -> ids of tests

    def touched(self, module: str, lines: Iterable[int]) -> list[str]:
        """Tests that execute one of these lines, the cheapest first."""
        known = self.tests.get(module, {})
        results = {test for line in lines for test in known.get(line, ())}
        return sorted(results, key=lambda test: (self.seconds[test], test))


def root() -> Path:
    """The checkout that the packages are imported from.

    Raises
    ------
    ValueError    if there are no tests beside the packages: a wheel has none
    """
    here = Path(str(files("validation"))).parent
    if not (here / "tests").is_dir() or not (here / "pyproject.toml").is_file():
        raise ValueError(f"against: found no folder of tests beside {here / 'validation'}, expected a checkout")
    return here


def fingerprint(selected: Sequence[str] = ()) -> str:
    """Of the packages, the tests and what is asked of them."""
    here = root()
    digest = hashlib.sha256(repr(tuple(selected)).encode())
    for folder in (*PACKAGES, "validation", "tests"):
        for path in sorted((here / folder).rglob("*")):
            if path.suffix in (".py", ".toml", ".npz", ".json") and "mutation" not in path.parts:
                digest.update(f"{path.relative_to(here)}".encode() + path.read_bytes())
    return f"tests-{digest.hexdigest()[:16]}"


def measure(
    folder: Path, *, jobs: int, selected: Sequence[str] = (), tell: Callable[[str], None] = lambda text: None
) -> Suite:
    """Run the tests once under coverage, unless the folder has that; `selected`: files or ids, all by default.

    Raises
    ------
    RuntimeError    if the suite is not green without any mutant
    """
    if not (folder / "suite.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("lines-*.json"):
            stale.unlink()
        tell("healthy run of the tests, under coverage")
        many = ["-n", str(jobs)] if jobs > 1 else []
        run = _pytest([*many, *selected], {RECORD: str(folder.resolve())}, None)
        if run.returncode != 0:
            raise RuntimeError(
                f"tests: found exit code {run.returncode} without any mutant, expected 0: mutants tell nothing before "
                f"that\n{run.stdout[-3000:]}{run.stderr[-1000:]}"
            )
        _merge(folder)
    stored = json.loads((folder / "suite.json").read_text(encoding="utf-8"))
    names = stored["tests"]
    return Suite(
        root(),
        dict(zip(names, stored["seconds"], strict=True)),
        {
            module: {int(line): tuple(names[k] for k in known) for line, known in lines.items()}
            for module, lines in stored["lines"].items()
        },
    )


class Trial(NamedTuple):
    """What a process needs to hold one mutant against the tests that execute it."""

    mutant: Mutant
    tests: tuple[str, ...]  # the cheapest first
    seconds: float  # of these tests without a mutant


def run(mutants: Sequence[Mutant], suite: Suite, engine: Engine) -> Iterator[Outcome]:
    """Outcomes as they come; a pytest for each mutant, killed when it is out of patience."""
    work = []
    for mutant in mutants:
        tests = tuple(suite.touched(mutant.module, watched(mutant)))
        if not tests:
            yield Outcome(mutant.name, "never executed", "", "", 0, 0.0)
            continue
        seconds = sum(suite.seconds[test] for test in tests)
        work.append(Job(mutant.name, Trial(mutant, tests, seconds), seconds))
    with closing(jobs_run.run(attempt, work, engine)) as value:
        for done in value:
            yield Outcome(done.job.name, "crash", "", str(done.lost), 0, 0.0) if done.lost else Outcome(*done.value)


def attempt(unit: Trial, listen: object) -> tuple[str, str, str, str, int, float]:
    """The fields of an Outcome. Nobody listens meanwhile."""
    mutant = unit.mutant
    started = time.perf_counter()
    patience = GRACE + PATIENCE * unit.seconds
    with tempfile.TemporaryDirectory(prefix="triad-mutant-") as name:
        plan, chosen = Path(name) / "plant.json", Path(name) / "tests.txt"
        storage.write_text(plan, json.dumps({"module": mutant.module, "text": mutated_source(mutant)}))
        storage.write_text(chosen, "\n".join(unit.tests) + "\n")
        try:
            result = _pytest(["-x", f"@{chosen}"], {PLANT: str(plan)}, patience)
        except subprocess.TimeoutExpired:
            return mutant.name, "crash", "", f"no answer after {patience:.0f} s", len(unit.tests), patience
    spent = time.perf_counter() - started
    if result.returncode == 0:
        return mutant.name, "survived", "", "", len(unit.tests), spent
    failed = [line for line in result.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    by, _, note = failed[0].partition(" ")[2].partition(" - ") if failed else ("", "", result.stdout[-300:])
    # 1: a test failed; anything else did not get that far
    state = "red" if result.returncode == 1 and failed and failed[0].startswith("FAILED ") else "crash"
    return mutant.name, state, by, note[:300], len(unit.tests), spent


def _pytest(
    arguments: Sequence[str], variables: dict[str, str], patience: float | None
) -> subprocess.CompletedProcess[str]:
    here = root()
    command = [sys.executable, "-m", "pytest", "-q", "-p", _PLUGIN, "-p", "no:cacheprovider", "-m", "not slow"]
    paths = os.pathsep.join(entry for entry in (str(here), os.environ.get("PYTHONPATH", "")) if entry)
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    environment |= dict.fromkeys(_THREADS, "1")
    return subprocess.run(
        [*command, *arguments], cwd=here, env=environment, capture_output=True, text=True, check=False, timeout=patience
    )


def _merge(folder: Path) -> None:
    """One file from those of the plugin's processes."""
    seconds: dict[str, float] = {}
    own: dict[str, dict[str, set[int]]] = {}
    shared: dict[str, dict[str, set[int]]] = {}
    parts = sorted(folder.glob("lines-*.json"))
    for part in parts:
        stored = json.loads(part.read_text(encoding="utf-8"))
        seconds |= stored["seconds"]
        for mark, lines in stored["lines"].items():
            kind, _, name = mark.partition(" ")
            target = own if kind == "call" else shared
            key = name if kind == "call" else name.partition("::")[0]
            for module, numbers in lines.items():
                target.setdefault(key, {}).setdefault(module, set()).update(numbers)
    names = sorted(seconds)
    results: dict[str, dict[int, list[int]]] = {}
    for k, name in enumerate(names):
        for lines_of in (own.get(name, {}), shared.get(name.partition("::")[0], {})):
            for module, numbers in lines_of.items():
                known = results.setdefault(module, {})
                for line in numbers:
                    listed = known.setdefault(line, [])
                    if not listed or listed[-1] != k:
                        listed.append(k)
    stored_whole = {"tests": names, "seconds": [seconds[name] for name in names], "lines": results}
    storage.write_text(folder / "suite.json", json.dumps(stored_whole))
    for part in parts:
        part.unlink()
