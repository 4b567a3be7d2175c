"""`triad audit PAPER:EQ --run`: the tests and the checks of one equation, run now, with their numbers."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from validation.checks import runner
from validation.checks.core import Result
from validation.door.statistics import QUANTITIES
from validation.ledger.atlas import link
from validation.ledger.audit import Row, Sources
from validation.ledger.collection import environment, tail
from validation.ledger.executed import SOLVES_OF
from validation.ledger.formula import formula

_STYLE = {"PASS": "green", "FAIL": "red", "ERROR": "red", "SKIP": "yellow"}


class Case(NamedTuple):
    """One case of a test and what became of it: PASS, FAIL, ERROR or SKIP."""

    name: str
    verdict: str
    seconds: float
    text: str = ""


def run(console: Console, sources: Sources, row: Row, *, slow: bool = False) -> list[str]:
    """Run everything that could refute one entry and print it; returns what failed, in words."""
    entry = row.entry
    address = f"{entry.paper}:{entry.id}"

    def line(text: str, verdict: str = "") -> None:
        style = _STYLE.get(verdict, "")
        console.print(f"{verdict:5}{text}", markup=False, highlight=False, soft_wrap=True, style=style)

    line(f"{address}  {entry.title}")
    for shown in formula(row.functions, entry.id).splitlines():
        line(f"    {shown}")
    line(f"docs: {link(entry.equation)}")
    line(f"tests, of {len(row.tests)} functions")
    failures = []
    cases, trouble = run_tests(sources, [test.key for test in row.tests if slow or not test.slow])
    for case in cases:
        line(f" {case.name}  {case.seconds:.2f} s{f'  {case.text}' if case.text else ''}", case.verdict)
        if case.verdict in ("FAIL", "ERROR"):
            failures.append(f"{address}: test {case.name}: {case.text or 'failed'}")
    failures += [f"{address}: {trouble}"] if trouble else []
    if left := [test.key for test in row.tests if test.slow and not slow]:
        line(f"left out as slow, --slow runs them: {', '.join(left)}")
    names = checks_of(row)
    direct = row.executed is not None and row.executed.checks
    line(f"checks{'' if direct else ' of a method whose solves call it'}: {', '.join(names) or 'none'}")
    for result in runner.run(_asked(names, one=not direct), jobs=1).results if names else ():
        line(f" {_described(result)}", result.verdict)
        if result.failed:
            failures.append(f"{address}: check {result.check} on {result.problem}: {result.why}")
    return failures


def _asked(names: Sequence[str], *, one: bool) -> runner.Selection:
    """These checks on their problems, or on the cheapest of them that every check has."""
    result = runner.select(check=names)
    if not one:
        return result
    least = min({pair.problem for pair in result.pairs}, key=runner.cost)
    return result._replace(pairs=tuple(pair for pair in result.pairs if pair.problem == least))


def checks_of(row: Row) -> list[str]:
    """Checks of a quick run that call the entry's functions; else those of what a method that calls them answers."""
    by = row.executed
    if by is None:
        return []
    if by.checks:
        return list(by.checks)
    methods = [name.removeprefix(f"{SOLVES_OF} ") for name in by.solve if name.startswith(f"{SOLVES_OF} ")]
    known = {pair.check for pair in runner.select().pairs}
    answers = [f"identity/{method}/{name}" for method in methods[:1] for name in QUANTITIES]
    return [name for name in answers if name in known]


def run_tests(sources: Sources, keys: Sequence[str]) -> tuple[list[Case], str]:
    """Run tests by their ids in a process of its own: the cases, and what went wrong with the run itself."""
    if sources.root is None or not keys:
        return [], ""
    with tempfile.TemporaryDirectory(prefix="triad-run-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-q", f"--junit-xml={report}", *keys]
        variables = environment(sources.packages, Path(folder) / "plan.json", Path(folder))
        done = subprocess.run(
            command,
            cwd=sources.root,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if not report.exists():
            return [], f"pytest ended with exit code {done.returncode}:\n{tail(done.stdout + done.stderr)}"
        # written by the pytest just started, not by a stranger
        cases = [_case(value) for value in ET.parse(report).getroot().iter("testcase")]
    # 5: no test has that id
    broken = done.returncode not in (0, 1)
    return cases, f"pytest ended with exit code {done.returncode}:\n{tail(done.stdout)}" if broken else ""


def _case(value: ET.Element) -> Case:
    """A case of pytest's report."""
    verdicts = {"failure": "FAIL", "error": "ERROR", "skipped": "SKIP"}
    name = f"{value.get('classname', '')}::{value.get('name', '')}"
    for part in value:
        if part.tag in verdicts:
            text = (part.get("message") or "").partition("\n")[0]
            return Case(name, verdicts[part.tag], float(value.get("time", "0")), text)
    return Case(name, "PASS", float(value.get("time", "0")))


def _described(result: Result) -> str:
    """Check, problem, observed value and limit on a line."""
    where = f"{result.check}  {result.problem}"
    if result.verdict in ("SKIP", "ERROR"):
        return f"{where}  {result.why}"
    return f"{where}  {result.unit or 'observed'}: {result.observed:.3g}, limit {result.limit:.3g}"
