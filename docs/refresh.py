"""Fill the blocks of real output in README.md and docs/*.md.

    python docs/refresh.py              run every documented command and write its output
    python docs/refresh.py --check      run them and see that they exit as stated; nothing is written
    python docs/refresh.py --page README.md     one page only; repeatable
    python docs/refresh.py --quick      leave blocks marked slow as they are
    python docs/refresh.py --run results/checks.csv     show that run of `triad verify` where a page shows a whole one;
                                        with --check only see that pages count about as many verdicts as it

A block stands between two comments. The first names a command of triad, or `python FILE` with a file of this
repository, or `python -m MODULE`, then options after semicolons:

    <!-- output: triad list methods; lines=8 -->
    <!-- end -->

exit=N        the exit code that is expected, 0 if not said; `any` for a command whose verdict is its news
lines=N       at most N lines of the head are kept, then one line "..."
last=N        the last N lines are kept too (with lines=) or only they
keep=REGEX    only lines in which the expression is found
without=REGEX what is cut out of each line, such as a time that README tells by its own measurement
shown=TEXT    the command line that is shown in place of the one that is run
markdown      the output is Markdown and stands on the page as it is, all of it
slow          --check only asks such a command for its --help, unless --slow is given

Commands of one page run one after another in one empty folder that holds docs/examples, so a file written by one is
there for the next; a slow command that several pages show runs once, on the first of them. Paths below the root of the
repository are shown from there, times are rounded to one digit and colours are off, so that a rerun changes as little
as possible.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 110
_BLOCK = re.compile(r"<!-- output: (?P<head>[^\n]*?) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)
_NUMBERS = ("lines", "last")
_TIMES = (
    # "12.34 s" and "1.2 seconds", but not "4 s.e."; and the rows of tables that hold seconds
    re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<rest> s\b(?!\.)| min\b| seconds\b)"),
    re.compile(r"(?P<rest>\bseconds +)(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)"),
)


@dataclass(frozen=True)
class Block:
    """One documented command and what is shown of its output."""

    page: str
    command: str
    exit: int | None = 0
    lines: int | None = None
    last: int | None = None
    keep: str | None = None
    without: str | None = None
    shown: str | None = None
    slow: bool = False
    markdown: bool = False


def pages() -> list[Path]:
    """The pages that may hold blocks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The blocks of one page, in order. Raises ValueError for an option that is not known."""
    return [parse(match["head"], page.name) for match in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def parse(head: str, page: str) -> Block:
    """A block from the text of its first comment."""
    command, *options = (part.strip() for part in head.split(";"))
    values: dict[str, object] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if key in ("slow", "markdown") and not equals:
            values[key] = True
        elif key == "exit" and equals:
            values["exit"] = None if value == "any" else int(value)
        elif key in _NUMBERS and equals:
            values[key] = int(value)
        elif key in ("keep", "shown", "without") and equals:
            values[key] = value
        else:
            raise ValueError(
                f"{page}: found the option {option!r}, expected exit=, lines=, last=, keep=, without=, shown=, "
                "markdown, slow"
            )
    if not command.startswith(("triad", "python ")):
        raise ValueError(f"{page}: found the command {command!r}, expected one of triad, or python FILE")
    return Block(page, command, **values)  # type: ignore[arg-type]


def trim(text: str, block: Block) -> list[str]:
    """The lines that are shown, by the rule of the block."""
    lines = [_rounded(line.rstrip()) for line in text.rstrip().splitlines()]
    if block.keep is not None:
        lines = [line for line in lines if re.search(block.keep, line)]
    if block.without is not None:
        lines = [re.sub(block.without, "", line) for line in lines]
    if block.lines is None and block.last is None:
        return lines
    head, tail = block.lines or 0, block.last or 0
    if len(lines) <= head + tail:
        return lines
    return lines[:head] + ["..."] * (block.keep is None or bool(tail)) + lines[len(lines) - tail :]


def _rounded(line: str) -> str:
    """The line with its times at one significant digit, in the same columns."""

    def one_digit(match: re.Match[str]) -> str:
        number = match["number"]
        short = f"{float(f'{float(number):.1g}'):g}"
        if match.start("number") < match.start("rest"):
            return short.rjust(len(number)) + match["rest"]
        return match["rest"] + short

    for pattern in _TIMES:
        line = pattern.sub(one_digit, line)
    return line.rstrip()


_RUN: dict[str, tuple[int, str]] = {}  # slow commands that were run


def run_once(command: str, folder: Path) -> tuple[int, str]:
    """As `run`, from memory where the command ran before."""
    if command not in _RUN:
        _RUN[command] = run(command, folder)
    return _RUN[command]


def run(command: str, folder: Path) -> tuple[int, str]:
    """Exit code, and stdout followed by stderr (progress left out)."""
    words = shlex.split(command)
    # FILE of `python FILE` is named from the root of the repository
    python = [sys.executable, words[1] if words[1] == "-m" else str(ROOT / words[1])] if words[0] == "python" else []
    program = python or [str(Path(sys.executable).with_name("triad")), *words[1:2]]
    environment = os.environ | {
        "COLUMNS": str(WIDTH), "TERM": "dumb", "NO_COLOR": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    environment.pop("TRIAD_DATA", None)
    done = subprocess.run(
        [*program, *words[2:]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    # stderr carries progress; it is shown only where the command refused its input
    return done.returncode, done.stdout + (done.stderr if done.returncode == 2 else "")


def refresh(page: Path, *, write: bool, slow: bool, quick: bool = False) -> list[str]:
    """Run the commands of one page; returns what is wrong."""
    text = page.read_text(encoding="utf-8")
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="triad-docs-") as name:
        folder = Path(name)
        shutil.copytree(
            ROOT / "docs" / "examples", folder / "docs" / "examples", ignore=shutil.ignore_patterns("__pycache__")
        )

        def fill(match: re.Match[str]) -> str:
            block = parse(match["head"], page.name)
            command = block.command
            if block.slow and quick:
                return match[0]
            if block.slow and not write and not slow:
                command = " ".join([*command.split()[:2], "--help"])
            sys.stderr.write(f"{page.name}: {command}\n")
            code, output = (run_once if block.slow else run)(command, folder)
            expected = 0 if command != block.command else block.exit
            if expected is not None and code != expected:
                problems.append(f"{page.name}: {command}: found exit code {code}, expected {expected}\n{output}")
                return match[0]
            output = output.replace(f"{ROOT}{os.sep}", "")
            if name in output or str(ROOT) in output:
                problems.append(f"{page.name}: {command}: found a path of this machine in the output, expected none")
                return match[0]
            if block.markdown:
                return f"<!-- output: {match['head']} -->\n\n{output.strip()}\n\n<!-- end -->"
            shown = trim(output, block)
            body = "\n".join([f"$ {block.shown or block.command}", *shown])
            return f"<!-- output: {match['head']} -->\n```console\n{body}\n```\n<!-- end -->"

        filled = _BLOCK.sub(fill, text)
    if write and filled != text:
        page.write_text(filled, encoding="utf-8", newline="\n")
    return problems


WHOLE = "triad verify"
_PASSED = re.compile(r"^passed: (.*(?:\n  .*)*)", re.MULTILINE)  # by kind, folded
MOST_OFF = 0.02  # of the verdicts: what is optional is not there everywhere


def told(file: Path) -> str:
    """What `triad verify` prints of a run of which the table of verdicts was kept; it ended green.

    file    its checks.csv
    """
    from rich.console import Console

    from validation.checks.core import Result
    from validation.checks.runner import Run
    from validation.report import table

    results = []
    with file.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            numbers = {key: float(row.pop(key) or math.nan) for key in ("observed", "limit", "ratio", "seconds")}
            results.append(Result(**row, **numbers))
    text = io.StringIO()
    run = Run(tuple(results), (), sum(result.seconds for result in results if not math.isnan(result.seconds)), {})
    if run.failed:
        raise ValueError(f"{file}: found a run with red verdicts, expected a green one")
    table.print_run(Console(file=text, width=WIDTH, no_color=True, highlight=False), run)
    return f"{text.getvalue()}results/checks.csv, results/report.html\n"


def show(page: Path, output: str) -> None:
    """Write what a whole run printed into the blocks of a page that show one."""

    def fill(match: re.Match[str]) -> str:
        block = parse(match["head"], page.name)
        if block.command != WHOLE:
            return match[0]
        body = "\n".join([f"$ {block.shown or block.command}", *trim(output, block)])
        return f"<!-- output: {match['head']} -->\n```console\n{body}\n```\n<!-- end -->"

    page.write_text(_BLOCK.sub(fill, page.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")


def counts(text: str) -> list[dict[str, int]]:
    """How many verdicts of each kind passed, in each run that a text shows."""
    return [{kind: int(number) for kind, number in re.findall(r"(\w+) (\d+)", line)} for line in _PASSED.findall(text)]


def stale(page: Path, output: str) -> list[str]:
    """What a page says of a whole run that another one does not: its counts of verdicts."""
    (now,) = counts(output)
    bodies = [m["body"] for m in _BLOCK.finditer(page.read_text(encoding="utf-8")) if m["head"].startswith(f"{WHOLE};")]
    return [
        f"{page.name}: {WHOLE}: found {shown.get(kind, 0)} passed of kind {kind}, expected about the "
        f"{now.get(kind, 0)} of this run; python docs/refresh.py --run shows it"
        for body in bodies
        for shown in counts(body)
        for kind in sorted({*shown, *now})
        if abs(shown.get(kind, 0) - now.get(kind, 0)) > MOST_OFF * now.get(kind, 0)
    ]


def main() -> int:
    """Exit 1 if a command did not exit as stated."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; see that every command exits as stated")
    parser.add_argument("--slow", action="store_true", help="with --check: run the slow commands too")
    parser.add_argument("--quick", action="store_true", help="leave blocks marked slow as they are")
    parser.add_argument("--page", action="append", default=[], help="only pages of this name; repeatable")
    parser.add_argument("--run", type=Path, help="checks.csv of a whole run to be shown in place of a new one")
    chosen = parser.parse_args()
    known = {page.name: page for page in pages()}
    for name in chosen.page:
        if name not in known:
            parser.error(f"--page: found {name!r}, expected one of {', '.join(known)}")
    problems: list[str] = []
    output = None if chosen.run is None else told(chosen.run)
    for name in chosen.page or known:
        if output is not None:
            if chosen.check:
                problems += stale(known[name], output)
            else:
                show(known[name], output)
            continue
        problems += refresh(known[name], write=not chosen.check, slow=chosen.slow, quick=chosen.quick)
    for line in problems:
        sys.stderr.write(f"FAIL {line}\n")
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
