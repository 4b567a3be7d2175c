"""Tests that claim to verify equations, the repository that holds them, and a pytest process that runs them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from validation.door.quoting import shown
from validation.ledger.inventory import Equation
from validation.ledger.registry import Package

PLAN_VARIABLE = "TRIAD_LEDGER_PLAN"
PLUGIN = "validation.ledger.pytest_plugin"
DISTRIBUTION = 'name = "gpc-triad"'


@dataclass(frozen=True, slots=True)
class Claim:
    """One equation that a test is marked with: by which route, what it resolves, and whether it holds an erratum."""

    paper: str
    id: str
    route: str
    resolves: float | None = None
    printed: bool = False

    @property
    def equation(self) -> Equation:
        """The address (paper, id)."""
        return (self.paper, self.id)


@dataclass(frozen=True, slots=True)
class MarkedTest:
    """A test function with at least one claim, in all its cases together.

    key: file::function below the root; package: the first folder below tests/; slow: all its cases are.
    """

    key: str
    package: str
    file: str
    line: int
    name: str
    slow: bool
    claims: tuple[Claim, ...]

    @property
    def equations(self) -> tuple[Equation, ...]:
        """The addresses it is marked with, each once."""
        return tuple(dict.fromkeys(claim.equation for claim in self.claims))


@dataclass(frozen=True, slots=True)
class Collection:
    """The marked tests, and what went wrong in collecting them."""

    tests: tuple[MarkedTest, ...]
    problems: tuple[str, ...]


class NoTestsError(RuntimeError):
    """There are no tests to read or to run: the package is installed without its repository, or without pytest."""


def read_claims(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Claim]:
    """The claims of one marker `verifies(paper, *ids, route, resolves=None, printed=False)`.

    Raises ValueError, naming the argument, for anything that is not of that form.
    """
    for name in kwargs:
        if name not in ("route", "resolves", "printed"):
            raise ValueError(f"{name}: found an unknown keyword, expected route, resolves or printed")
    if not args or not all(isinstance(item, str) and item for item in args):
        raise ValueError(f"paper, *ids: found {shown(tuple(args))}, expected texts")
    if len(args) < 2:
        raise ValueError(f"ids: found none beside paper = {args[0]!r}, expected at least one")
    route = kwargs.get("route")
    if not isinstance(route, str) or not route.strip():
        raise ValueError(f"route: found {shown(route)}, expected how the test checks the equation")
    resolves = kwargs.get("resolves")
    # A test that cannot tell a number from its double has nothing to claim.
    if resolves is not None and not (isinstance(resolves, float) and 0.0 < resolves <= 1.0):
        raise ValueError(f"resolves: found {shown(resolves)}, expected a float in (0, 1]")
    printed = kwargs.get("printed", False)
    if not isinstance(printed, bool):
        raise ValueError(f"printed: found {shown(printed)}, expected True or False")  # noqa: TRY004 - one kind of error
    return [Claim(args[0], id, route.strip(), resolves, printed) for id in args[1:]]


def find_root(start: Path | None = None) -> Path:
    """The repository whose tests are read: the folder that holds `validation`, else the working directory.

    A folder counts if it has tests/ and the pyproject.toml of this project. Raises NoTestsError if neither does.
    """
    beside = Path(__file__).resolve().parents[2]
    for folder in [start] if start is not None else [beside, Path.cwd()]:
        project = folder / "pyproject.toml"
        if (folder / "tests").is_dir() and project.is_file() and DISTRIBUTION in project.read_text(encoding="utf-8"):
            return folder
    looked = start if start is not None else f"{beside} or {Path.cwd()}"
    raise NoTestsError(
        f"tests: found none in {looked}, expected a clone of the repository around the package or the working directory"
    )


def environment(packages: Iterable[Package], plan: Path, scratch: Path) -> dict[str, str]:
    """The environment of a pytest process that reads `plan`: it imports the very packages imported here."""
    paths: list[str] = []
    for name in ["validation", *(package.name for package in packages)]:
        spec = importlib.util.find_spec(name)
        origin = spec.origin if spec is not None else None
        if origin is not None:
            paths.append(str(Path(origin).resolve().parents[1]))
    paths += [item for item in os.environ.get("PYTHONPATH", "").split(os.pathsep) if item]
    # Options and worker ids of a surrounding pytest are not meant for this one.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return kept | {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(scratch / "hypothesis"),
        PLAN_VARIABLE: str(plan),
        "PYTHONIOENCODING": "utf-8:replace",
    }


def run_pytest(
    root: Path,
    packages: Sequence[Package],
    plan: dict[str, Any],
    options: Sequence[str] = (),
    listen: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[int, list[dict[str, Any]], str]:
    """Run pytest on root/tests with the ledger's plugin.

    Returns its exit code, the plugin's events and its output. listen is called with each event as it arrives. An
    interruption ends the process it started.
    Raises NoTestsError if pytest is not installed.
    """
    if importlib.util.find_spec("pytest") is None:
        raise NoTestsError("pytest: found none, expected it installed: python -m pip install 'gpc-triad[test]'")
    with tempfile.TemporaryDirectory(prefix="triad-ledger-") as folder:
        scratch = Path(folder)
        plan_file, events_file, output_file = scratch / "plan.json", scratch / "events.jsonl", scratch / "output.txt"
        full = plan | {
            "events": str(events_file),
            "root": str(root.resolve()),
            "parent": os.getpid(),
            "packages": [asdict(package) for package in packages],
        }
        plan_file.write_text(json.dumps(full), encoding="utf-8")
        events_file.touch()
        # -P: the working directory must not shadow the packages that are under audit.
        command = [sys.executable, "-P", "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "-q", *options]
        events: list[dict[str, Any]] = []
        with (
            output_file.open("wb") as output,
            _process([*command, "tests"], root, environment(packages, plan_file, scratch), output) as process,
            events_file.open(encoding="utf-8") as stream,
        ):
            for event in _follow(stream, process):
                events.append(event)
                if listen is not None:
                    listen(event)
        return process.returncode, events, output_file.read_text(encoding="utf-8", errors="replace")


@contextmanager
def _process(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], output: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does not outlive the block, whatever ends it."""
    process = subprocess.Popen(
        command, cwd=folder, env=dict(variables), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
    )
    try:
        yield process
        process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _follow(stream: Any, process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Events of a growing file of JSON lines, until its writer has ended."""
    rest = ""
    while True:
        ended = process.poll() is not None
        rest += stream.read()
        *lines, rest = rest.split("\n")
        for line in lines:
            yield json.loads(line)
        if ended:
            return
        try:
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue


def tail(output: str, lines: int = 12) -> str:
    """The last lines of a process's output, for an error message."""
    return "\n".join(output.strip().splitlines()[-lines:])
