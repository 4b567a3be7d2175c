"""The self-test of the judge: each mistake of `tests/planted.toml` must fail the checks that are named with it.

A mistake is one or more edits of source files. It is planted while a process of its own imports them (`planting.py`),
so that no file changes. The same checks run once without any mistake, where they must pass.

    python tests/mutation/self_test.py             all of them
    python tests/mutation/self_test.py 'fast/*'    those whose ids match a glob
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from planting import PLAN, start

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TABLE = ROOT / "tests" / "planted.toml"
# loaded once, so that each process imports this project alone
_LIBRARIES = (
    "matplotlib.pyplot",
    "pandas",
    "scipy.integrate",
    "scipy.optimize",
    "scipy.stats",
    "sklearn.base",
    "typer",
)
_LIMIT = 600.0  # seconds of one process


class Pair(NamedTuple):
    """A check and the problem it is asked on."""

    check: str
    problem: str


class Edit(NamedTuple):
    """`old` occurs once in the file and is replaced."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Planted:
    """A mistake of the kind that people make.

    sentence    what is wrong
    edits       one, or several where two witnesses share the mistake
    seen_by     each must fail
    crash       an error counts as a failure too, where a wrong matrix has no factor
    """

    id: str
    sentence: str
    edits: tuple[Edit, ...]
    seen_by: tuple[Pair, ...]
    crash: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of the checks that must fail."""
        return tuple(sorted({pair.check.partition("/")[0] for pair in self.seen_by}))

    def texts(self) -> dict[str, str]:
        """The changed text of each module, by its dotted name.

        Raises
        ------
        ValueError    if `old` does not occur exactly once
        """
        result: dict[str, str] = {}
        for edit in self.edits:
            module = edit.file.removesuffix(".py").replace("/", ".")
            text = result.get(module) or (ROOT / edit.file).read_text(encoding="utf-8")
            if text.count(edit.old) != 1:
                raise ValueError(f"old: found {edit.old!r} {text.count(edit.old)} times in {edit.file}, expected once")
            result[module] = text.replace(edit.old, edit.new)
        return result


class Answer(NamedTuple):
    """One result of a check: its verdict, and the observed value over its limit."""

    check: str
    problem: str
    verdict: str
    ratio: float
    why: str


def table(path: Path = TABLE) -> list[Planted]:
    """All mistakes, in the order of the file."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["planted"]
    return [
        Planted(
            row["id"],
            row["sentence"],
            tuple(Edit(**edit) for edit in row["edits"]),
            tuple(Pair(*entry.split(" on ")) for entry in row["seen_by"]),
            row.get("crash", False),
        )
        for row in rows
    ]


def missed(planted: Planted, answers: Iterable[Answer]) -> list[str]:
    """For each check that must fail and does not: its best result, in words."""
    red = ("FAIL", "ERROR") if planted.crash else ("FAIL",)
    answers = list(answers)
    lines = []
    for pair in planted.seen_by:
        of_pair = [answer for answer in answers if (answer.check, answer.problem) == pair]
        if not any(answer.verdict in red for answer in of_pair):
            told = "; ".join(f"{answer.verdict} at {answer.ratio:.2g} of the limit, {answer.why}" for answer in of_pair)
            lines.append(f"{pair.check} on {pair.problem}: {told or 'no result'}"[:300])
    return lines


# -- processes ---------------------------------------------------------------------------------------------------------


class Unit(NamedTuple):
    """What one process does: plant the texts, run the checks."""

    name: str
    texts: dict[str, str]
    pairs: tuple[Pair, ...]


def answers(units: Sequence[Unit], jobs: int) -> Iterator[tuple[Unit, list[Answer] | str, float]]:
    """The answers of each unit, or what ended it, and its seconds; in the order in which they end."""
    for name in _LIBRARIES:
        importlib.import_module(name)
    modules = _ask("modules", {}, _modules)
    running: dict[int, tuple[Unit, Path, float]] = {}
    waiting = list(units)
    with tempfile.TemporaryDirectory(prefix="triad-planted-") as folder:
        while waiting or running:
            if waiting and len(running) < jobs:
                unit = waiting.pop(0)
                home = Path(folder) / str(len(units) - len(waiting))
                home.mkdir()
                running[_started(home, unit.texts, lambda u=unit: _run(u.pairs, modules))] = unit, home, time.time()
                continue
            process, status = os.waitpid(-1, 0)
            unit, home, since = running.pop(process)
            value = _ended(process, status, home)
            told = value if isinstance(value, str) else [Answer(*entry) for entry in value]
            yield unit, told, time.time() - since


def _ask(name: str, texts: dict[str, str], call: Callable[[], Any]) -> Any:
    with tempfile.TemporaryDirectory(prefix=f"triad-{name}-") as folder:
        value = _ended(*os.waitpid(_started(Path(folder), texts, call), 0), Path(folder))
    if isinstance(value, str):
        raise RuntimeError(f"{name}: {value}")  # noqa: TRY004 - what a process says when it fails
    return value


def _started(home: Path, texts: dict[str, str], call: Callable[[], Any]) -> int:
    """Process id of a fork with the texts planted that writes what `call` returns."""
    (home / "plan.json").write_text(json.dumps({"texts": texts}), encoding="utf-8")
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        os.setsid()
        signal.setitimer(signal.ITIMER_REAL, _LIMIT)
        with (home / "output").open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        paths = (str(ROOT), str(HERE), os.environ.get("PYTHONPATH", ""))
        os.environ |= {PLAN: str(home / "plan.json"), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        os.chdir(ROOT)
        sys.path.insert(0, str(ROOT))
        start()
        (home / "value.json").write_text(json.dumps(call()), encoding="utf-8")
        code = 0
    except BaseException:  # noqa: BLE001 - the parent reads it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ended(process: int, status: int, home: Path) -> Any:
    """What the process has returned, or a sentence that says how it ended; processes it has left are ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return f"no answer in {_LIMIT:.0f} s" if name == "SIGALRM" else f"ended by {name}"
    if os.WEXITSTATUS(status):
        return (home / "output").read_text(encoding="utf-8", errors="replace")[-2000:]
    return json.loads((home / "value.json").read_text(encoding="utf-8"))


def _modules() -> dict[str, str]:
    """The module of each check."""
    core = importlib.import_module("validation.checks.core")
    return {name: check.module for name, check in core.registered().items()}


def _run(pairs: Iterable[Pair], modules: dict[str, str]) -> list[tuple[str, str, str, float, str]]:
    runner = importlib.import_module("validation.checks.runner")
    used = tuple(sorted({modules[pair.check] for pair in pairs}))
    asked = [runner.Pair(*pair, full=False) for pair in pairs]
    result = runner.run(runner.Selection(tuple(asked), used, False), jobs=1)
    return [(each.check, each.problem, each.verdict, each.ratio, each.why) for each in result.results]


# -- the command -------------------------------------------------------------------------------------------------------


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 if every check that is named passes without its mistake and fails with it."""
    parser = argparse.ArgumentParser(prog="make self-test", description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", default=["*"], help="ids or globs")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    chosen = [each for each in table() if any(fnmatchcase(each.id, pattern) for pattern in options.ids)]
    if not chosen:
        parser.error(f"ids: found {options.ids}, expected one of {len(table())} ids of {TABLE.name}")
    pairs = sorted({pair for each in chosen for pair in each.seen_by}, key=lambda pair: pair.problem)
    problems = dict.fromkeys(pair.problem for pair in pairs)
    healthy = [Unit(name, {}, tuple(pair for pair in pairs if pair.problem == name)) for name in problems]
    failures = 0
    for unit, told, _ in answers(healthy, options.jobs):
        for text in [told] if isinstance(told, str) else [f"{a.check}: {a.why}" for a in told if a.verdict != "PASS"]:
            failures += 1
            _say(f"not green without a mistake, on {unit.name}: {text}")
    by_id = {each.id: each for each in chosen}
    units = [Unit(each.id, each.texts(), each.seen_by) for each in chosen]
    count = 0
    for unit, told, seconds in answers(units, options.jobs):
        planted = by_id[unit.name]
        lines = [told] if isinstance(told, str) else missed(planted, told)
        count += not lines
        state = "missed" if lines else "seen"
        _say(f"{state:6} {planted.id}: {', '.join(planted.kinds)} ({seconds:.1f} s)")
        for line in lines:
            _say(f"       {line}")
    _say(f"{count} of {len(chosen)} planted mistakes were seen by every check named with them")
    return int(failures > 0 or count < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
