"""Which tests execute a line, and whether they notice that it was changed.

The tests run once under coverage with a context for each of them. A mutant then runs the tests that execute it in a
fresh pytest, the cheapest first, to the first failure. What a fixture executes belongs to every test of its module.
The judge's checks are tests too (`door.py`), so that one mechanism measures both.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mutants import PACKAGES, ROOT, Mutant

HERE = Path(__file__).resolve().parent
TARGETS = {"door": [str(HERE / "door.py")], "tests": ["tests", "-m", "not slow"]}
_GRACE, _PATIENCE = 60.0, 10.0  # a mutant may take this many seconds, and this many times the healthy seconds
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


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
    """A healthy run: seconds of each test, and the tests that execute each line of each file."""

    target: str
    folder: Path
    seconds: dict[str, float]
    tests: dict[str, dict[int, tuple[str, ...]]]

    def touched(self, path: str, lines: Iterable[int]) -> list[str]:
        """Tests that execute one of these lines, the cheapest first."""
        known = self.tests.get(path, {})
        result = {test for line in lines for test in known.get(line, ())}
        return sorted(result, key=lambda test: (self.seconds[test], test))

    def attempt(self, mutant: Mutant) -> Outcome:
        """Run the tests that execute the mutant."""
        tests = self.touched(mutant.path, mutant.watched)
        if not tests:
            return Outcome("never executed")
        patience = _GRACE + _PATIENCE * sum(self.seconds[test] for test in tests)
        with tempfile.TemporaryDirectory(prefix="triad-mutant-") as name:
            plan, chosen = Path(name) / "plant.json", Path(name) / "tests.txt"
            plan.write_text(json.dumps({"module": mutant.module, "text": mutant.text}), encoding="utf-8")
            chosen.write_text("\n".join(tests) + "\n", encoding="utf-8")
            variables = {"TRIAD_PLANT": str(plan), "TRIAD_DOOR": str(self.folder)}
            try:
                result = _pytest(["-x", f"@{chosen}"], variables, patience)
            except subprocess.TimeoutExpired:
                return Outcome("crash", "", f"no answer after {patience:.0f} s")
        if result.returncode == 0:
            return Outcome("survived")
        failed = [line for line in result.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        by, _, note = failed[0].partition(" ")[2].partition(" - ") if failed else ("", "", result.stdout[-300:])
        values = note.removeprefix("Failed: ").startswith(("wrong value", "AssertionError", "assert ", "DID NOT RAISE"))
        return Outcome("wrong value" if values else "crash", by, note[:300])


def measure(target: str, folder: Path, jobs: int) -> Suite:
    """Run the tests of a target once under coverage, unless the folder holds that run of this very code.

    Raises
    ------
    RuntimeError    if they do not pass without any mutant
    """
    folder = folder / f"{target}-{_fingerprint()}"
    if not (folder / "suite.json").exists():
        (folder / "answers").mkdir(parents=True, exist_ok=True)
        for stale in (*folder.glob("lines-*.json"), *folder.glob("tested-*.pkl")):
            stale.unlink()
        sys.stderr.write(f"healthy run of {target}, under coverage\n")
        variables = {"TRIAD_RECORD_LINES": str(folder.resolve()), "TRIAD_DOOR": str(folder.resolve())}
        # checks of one problem share their answers, so that one process asks them all
        many = ["-n", str(jobs), "--dist", "worksteal"] if jobs > 1 and target == "tests" else []
        run = _pytest([*many, *TARGETS[target]], variables, None)
        if run.returncode != 0:
            raise RuntimeError(
                f"{target}: found exit code {run.returncode} without any mutant, expected 0\n{run.stdout[-3000:]}"
                f"{run.stderr[-1000:]}"
            )
        _merge(folder)
    stored = json.loads((folder / "suite.json").read_text(encoding="utf-8"))
    names = stored["tests"]
    tests = {
        path: {int(line): tuple(names[k] for k in known) for line, known in lines.items()}
        for path, lines in stored["lines"].items()
    }
    return Suite(target, folder.resolve(), dict(zip(names, stored["seconds"], strict=True)), tests)


def _fingerprint() -> str:
    """Of the packages and the tests."""
    digest = hashlib.sha256()
    for folder in (*PACKAGES, "validation", "triad", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".toml", ".npz", ".json") and path.name != "power.json":
                digest.update(f"{path.relative_to(ROOT)}".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _pytest(
    arguments: list[str], variables: dict[str, str], patience: float | None
) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(entry for entry in (str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")) if entry)
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    environment |= dict.fromkeys(_THREADS, "1")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mutation_plugin", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=patience
    )


def _merge(folder: Path) -> None:
    """One file from those of the recording processes."""
    seconds: dict[str, float] = {}
    asked: dict[str, set[str]] = {}
    lines: dict[str, dict[str, list[int]]] = {}
    parts = sorted(folder.glob("lines-*.json"))
    for part in parts:
        stored = json.loads(part.read_text(encoding="utf-8"))
        seconds |= stored["seconds"]
        for test, keys in stored["asked"].items():
            asked.setdefault(test, set()).update(keys)
        for mark, value in stored["lines"].items():
            # fixtures are shared, and the test that sets one up is seldom the one that looks at it
            own = f"setup {mark.partition(' ')[2].partition('::')[0]}" if mark.startswith("setup ") else mark
            for path, numbers in value.items():
                lines.setdefault(own, {}).setdefault(path, []).extend(numbers)
    names = sorted(name for name in seconds if not name.startswith("solve "))
    result: dict[str, dict[int, set[int]]] = {}
    whole = []
    for k, name in enumerate(names):
        keys = [f"solve {key}" for key in sorted(asked.get(name, ()))]
        whole.append(seconds[name] + sum(seconds.get(key, 0.0) for key in keys))
        for mark in (f"call {name}", f"setup {name.partition('::')[0]}", *keys):
            for path, numbers in lines.get(mark, {}).items():
                known = result.setdefault(path, {})
                for line in numbers:
                    known.setdefault(line, set()).add(k)
    listed = {path: {line: sorted(known) for line, known in value.items()} for path, value in result.items()}
    text = json.dumps({"tests": names, "seconds": whole, "lines": listed})
    (folder / "suite.json").write_text(text, encoding="utf-8")
    for part in parts:
        part.unlink()
