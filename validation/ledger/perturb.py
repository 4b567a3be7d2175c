"""A test that still passes while its equation is wrong is a defect: the audit of the tests by perturbation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from validation.ledger import collection
from validation.ledger.audit import Ledger, Row
from validation.ledger.collection import MarkedTest
from validation.ledger.inventory import Equation
from validation.ledger.perturbed import Outcome, Ran, Tried, fingerprint
from validation.ledger.registry import Function

# Seconds that one perturbed run may take, or three times its unperturbed time if that is more: an iteration that
# no longer converges must end. Running out of time is noticing.
TIME_LIMIT = 20.0

# Called with (done, total, what is running).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Trial:
    """One test run against one perturbed function.

    status: noticed, survived, not needed (test and function had both been settled), or no case (none of the cases
    passes unperturbed). error: type of the exception by which it was noticed; case: the pytest case that did.
    calls, leaves: how often the function was called, and how many leaves of its outputs were changed.
    """

    test: str
    function: str
    equations: tuple[Equation, ...]
    scale: float
    status: str
    error: str
    case: str
    calls: int
    leaves: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Survivor:
    """A test that notices none of an equation's functions, or a function that no test of the equation notices."""

    paper: str
    id: str
    test: str
    function: str
    reason: str

    @property
    def text(self) -> str:
        """The survivor in one line."""
        return f"{self.paper}:{self.id}: {' / '.join(filter(None, (self.test, self.function)))}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Report:
    """What the perturbations found.

    survivors: defects, one line per test, equation and function; broken: cases that fail unperturbed, with the
    exception's type; skipped: cases that prove nothing here; slow: tests left out; problems: the run itself failed.
    """

    trials: tuple[Trial, ...] = ()
    survivors: tuple[Survivor, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()
    skipped: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    tests: Mapping[str, Ran] = field(default_factory=dict, compare=False)
    proofs: Mapping[Equation, tuple[float, float]] = field(default_factory=dict, compare=False)
    cases: int = 0
    seconds: float = field(default=0.0, compare=False)

    @property
    def failures(self) -> tuple[str, ...]:
        """What makes the audit fail, one text each."""
        broken = (f"{case}: fails unperturbed ({error})" for case, error in self.broken)
        return (*self.problems, *broken, *(item.text for item in self.survivors))


def _silent(done: int, total: int, what: str) -> None:
    """Report to nobody."""


def run(
    ledger: Ledger,
    root: Path,
    rows: Sequence[Row] | None = None,
    slow: bool = False,
    exhaustive: bool = False,
    time_limit: float = TIME_LIMIT,
    progress: Progress = _silent,
) -> Report:
    """Rerun the marked tests of these rows (default: all) under perturbation, in one pytest process.

    slow: run tests marked slow too. exhaustive: try each test with each function, also where it is already known
    that the test notices one and that another test notices the function. Raises NoTestsError without pytest.
    """
    chosen = ledger.rows if rows is None else tuple(rows)
    select = [list(row.entry.equation) for row in chosen if row.tests]
    start = time.perf_counter()
    if not select:
        return Report(survivors=_survivors(chosen, (), {}, slow))
    done, total = 0, 1

    def listen(event: dict[str, Any]) -> None:
        nonlocal done, total
        if event["event"] == "plan":
            total = event["cases"] + event["pairs"]
        elif event["event"] in ("baseline", "trial"):
            done += 1
        progress(done, total, event.get("function", event.get("test", "collecting")))

    plan = {"select": select, "slow": slow, "exhaustive": exhaustive, "time_limit": time_limit}
    # Tracebacks are read by nobody here; the native style is the cheapest to make.
    options = ["--tb=native", "--continue-on-collection-errors", "-p", "no:randomly"]
    code, events, output = collection.run_pytest(root, ledger.packages, plan, options, listen)
    problems = [event["problem"] for event in events if event["event"] == "problem"]
    # 1 only says that perturbed tests failed, which they should; a run that did not end has fewer events than planned.
    if (done < total or code not in (0, 1, 5)) and not problems:
        problems.append(f"perturbation: pytest ended with exit code {code}:\n{collection.tail(output)}")
    trials = tuple(
        Trial(**{name: value for name, value in event.items() if name not in ("event", "equations")}, equations=pairs)
        for event in events
        if event["event"] == "trial"
        for pairs in [tuple((paper, id) for paper, id in event["equations"])]
    )
    baseline = [event for event in events if event["event"] == "baseline"]
    results: dict[str, set[str]] = {}
    for event in baseline:
        results.setdefault(event["test"], set()).add(event["result"])
    return Report(
        trials=trials,
        survivors=() if problems else _survivors(chosen, trials, results, slow),
        broken=tuple((event["case"], event["error"]) for event in baseline if event["result"] == "failed"),
        skipped=tuple(event["case"] for event in baseline if event["result"] == "skipped"),
        slow=() if slow else tuple(dict.fromkeys(test.key for row in chosen for test in row.tests if test.slow)),
        problems=tuple(problems),
        tests=_ran(baseline),
        proofs={
            (paper, id): (printed, corrected)
            for event in baseline
            for (paper, id), (printed, corrected) in event["proofs"]
        },
        cases=len(baseline),
        seconds=time.perf_counter() - start,
    )


def _ran(baseline: Sequence[Mapping[str, Any]]) -> dict[str, Ran]:
    """What each test came to unperturbed, over its cases."""
    result: dict[str, Ran] = {}
    for event in baseline:
        one = Ran(event["result"], event["share"])
        other = result.setdefault(event["test"], one)
        worst = next(name for name in ("failed", "passed", "skipped") if name in (one.result, other.result))
        shares = [value for value in (one.share, other.share) if value is not None]
        result[event["test"]] = Ran(worst, max(shares, default=None))
    return result


def record(report: Report, rows: Sequence[Row], root: Path, commit: str) -> dict[Equation, Outcome]:
    """What is kept of a run (`validation.ledger.perturbed`): an outcome for each entry of which a test ran."""
    result: dict[Equation, Outcome] = {}
    for row in rows:
        equation = row.entry.equation
        tests = {test.key: report.tests[test.key] for test in row.tests if test.key in report.tests}
        mine = [trial for trial in report.trials if equation in trial.equations and trial.status in _TRIED]
        functions: dict[str, Tried] = {}
        for address in dict.fromkeys(trial.function for trial in mine):
            trials = [trial for trial in mine if trial.function == address]
            errors = ", ".join(dict.fromkeys(trial.error for trial in trials if trial.status == "noticed"))
            noticed = sum(trial.status == "noticed" for trial in trials)
            functions[address] = Tried(noticed, len(trials), max(trial.scale for trial in trials), errors)
        if tests:
            proof = report.proofs.get(equation)
            result[equation] = Outcome(commit, fingerprint(files(row, root)), functions, tests, proof)
    return result


_TRIED = ("noticed", "survived")


def files(row: Row, root: Path) -> list[Path]:
    """The files that hold the functions and the tests of an entry."""
    return [*(Path(item.file) for item in (*row.functions, *row.printed)), *(root / test.file for test in row.tests)]


def _survivors(
    rows: Sequence[Row], trials: Sequence[Trial], results: dict[str, set[str]], slow: bool
) -> tuple[Survivor, ...]:
    """Tests that notice none of an equation's functions, and functions that no test of the equation notices."""
    by_pair: dict[tuple[str, str, Equation], Trial] = {}
    noticed: set[tuple[str, Equation]] = set()
    for trial in trials:
        for equation in trial.equations:
            key = (trial.test, trial.function, equation)
            if key not in by_pair or trial.status == "noticed":
                by_pair[key] = trial
            if trial.status == "noticed":
                noticed |= {(trial.test, equation), (trial.function, equation)}
    result: list[Survivor] = []
    for row in rows:
        equation = row.entry.equation
        eligible = [test for test in row.tests if slow or not test.slow]
        able = [test for test in eligible if "passed" in results.get(test.key, set())]
        for test in able:
            own = [item for item in row.functions if item.package == test.package]
            if not own:
                reason = f"marked, but no function of {test.package or 'a package'} carries the equation"
                result.append(Survivor(*equation, test.key, "", reason))
            elif (test.key, equation) not in noticed:
                for item in own:
                    reason = "passes while perturbed" + _hint(by_pair.get((test.key, item.address, equation)))
                    result.append(Survivor(*equation, test.key, item.address, reason))
        for item in row.functions:
            if (item.address, equation) not in noticed:
                reason = _uncaught(item, row.tests, eligible, able)
                result.append(Survivor(*equation, "", item.address, reason))
    return tuple(result)


def _hint(trial: Trial | None) -> str:
    """Why nothing was noticed, where that is known."""
    if trial is None or trial.status == "no case":
        return ": no case with this claim passes unperturbed"
    if trial.calls == 0:
        return ": it never calls the function"
    if trial.leaves == 0:
        return ": nothing in the function's output can be perturbed"
    return f" by {trial.scale:g} of its largest entry"


def _uncaught(
    function: Function, tests: Sequence[MarkedTest], eligible: Sequence[MarkedTest], able: Sequence[MarkedTest]
) -> str:
    """Why no test notices a function."""
    package = function.package
    if not any(test.package == package for test in tests):
        return f"no test under tests/{package} is marked with the equation"
    if not any(test.package == package for test in eligible):
        return f"every test under tests/{package} that is marked with the equation is slow"
    if not any(test.package == package for test in able):
        return f"no test under tests/{package} that is marked with the equation passes unperturbed"
    return "noticed by no test"


def as_json(report: Report) -> dict[str, Any]:
    """The report as plain data."""
    return {
        "cases": report.cases,
        "seconds": round(report.seconds, 3),
        "trials": [
            {
                "test": trial.test,
                "function": trial.function,
                "equations": [list(equation) for equation in trial.equations],
                "scale": trial.scale,
                "status": trial.status,
                "error": trial.error,
                "case": trial.case,
                "calls": trial.calls,
                "leaves": trial.leaves,
                "seconds": round(trial.seconds, 4),
            }
            for trial in report.trials
        ],
        "survivors": [
            {
                "paper": item.paper,
                "id": item.id,
                "test": item.test or None,
                "function": item.function or None,
                "reason": item.reason,
            }
            for item in report.survivors
        ],
        "broken": [{"case": case, "error": error} for case, error in report.broken],
        "skipped": list(report.skipped),
        "slow": list(report.slow),
        "problems": list(report.problems),
    }
