"""What a run of the judge came to: every case, suspects, power, and the lines in which it is told."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from validation.door.quoting import shown
from validation.judge.compare import Row

MOST = 5  # suspects that are listed

# the order of computation: of two quantities that are wrong the first one may be why the other is
ORDER = (
    "inducing_mean",
    "inducing_cov",
    "latent_mean",
    "latent_cov",
    "log_evidence",
    "test_latent_mean",
    "test_latent_cov",
    "probabilities",
)

_COMPARED = ("identity", "discrepancy", "exactness", "bound")  # what suspects are tried for


class Case(NamedTuple):
    """One verdict: which method, which problem, which kind of question, and a row of `validation.judge.compare`."""

    method: str
    problem: str
    row: Row
    against: str

    @property
    def name(self) -> str:
        """method/problem/kind/quantity."""
        return f"{self.method}/{self.problem}/{self.row.kind}/{self.row.quantity}"


class Suspicion(NamedTuple):
    """A suspect with the problems on which it would explain what failed."""

    name: str
    text: str
    problems: tuple[str, ...]


class Twin(NamedTuple):
    """The method of `fast` that gives a program's answers, and the largest relative difference from them."""

    method: str
    apart: float


class Verdict(NamedTuple):
    """What a run came to; `str` of it is what the command prints.

    cases        every verdict, in the order in which they were reached
    suspicions   suspects, those that explain the most problems first
    seen         well-known mistakes that would have turned a verdict red in this run, and features that were asked
    unseen       those that would not, and features that were not asked
    not_judged   quantity or problem -> why nothing was said of it
    twins        method of another name than those of `fast` -> the one of `fast` that gives the same answers
    precision    "float64", or "float32" where the program's numbers are float32 ones: limits are wider then
    unexpected   id of a check whose failure was expected -> what came instead
    """

    program: str
    cases: tuple[Case, ...]
    suspicions: tuple[Suspicion, ...]
    seen: tuple[str, ...]
    unseen: tuple[str, ...]
    not_judged: Mapping[str, str]
    twins: Mapping[str, Twin] = MappingProxyType({})
    precision: str = "float64"
    unexpected: Mapping[str, str] = MappingProxyType({})

    @property
    def failed(self) -> tuple[Case, ...]:
        """Cases whose verdict is FAIL."""
        return self._with("FAIL")

    @property
    def passed(self) -> tuple[Case, ...]:
        """Cases whose verdict is PASS."""
        return self._with("PASS")

    @property
    def inexact(self) -> tuple[Case, ...]:
        """Cases of a method that `fast` does not have, further from the truth than the band: a bias or a mistake."""
        return self._with("INEXACT")

    @property
    def verdict(self) -> str:
        """DISAGREE, INEXACT (consistent, but far from the truth), UNDECIDED (nothing could be judged), or AGREE."""
        if self.failed:
            return "DISAGREE"
        return "INEXACT" if self.inexact else "AGREE" if self.passed or self._with("XFAIL") else "UNDECIDED"

    def expecting(self, expected: Mapping[str, str]) -> Verdict:
        """The verdict where failures of checks are expected: id -> reason. They are XFAIL, and passes are reported.

        An id of `expected` that names no check of this run is reported too: it says nothing any more.
        """
        known = {case.name for case in self.cases}
        cases = []
        for case in self.cases:
            if case.name in expected and case.row.verdict in ("FAIL", "INEXACT"):
                why = f"expected: {expected[case.name]}; {case.row.why}"
                case = case._replace(row=case.row._replace(verdict="XFAIL", why=why))
            cases.append(case)
        failed = {case.name for case in cases if case.row.verdict == "XFAIL"}
        passed = {case.name for case in cases if case.row.verdict == "PASS"} - failed
        told = {name: "passes, a failure was expected" for name in expected if name in passed}
        told |= {name: "no check of this run has that id" for name in expected if name not in known}
        return self._replace(cases=tuple(cases), unexpected=told)

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def _with(self, verdict: str) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.row.verdict == verdict)


def lines(verdict: Verdict) -> list[str]:
    """Worst entries, suspects, power, what was not judged, the verdict."""
    told = [f"  {case.name}: worst at {case.row.worst}" for case in verdict.failed if case.row.worst]
    told += [f"  {case.name}: {case.row.why}" for case in verdict.failed if not case.row.worst]
    told += [f"  {case.name}: {case.row.why}" for case in verdict.inexact]
    for method, twin in verdict.twins.items():
        told.append(f"{method} gives the answers of fast {twin.method} to {twin.apart:.1g}: judged as that method")
    for place, suspicion in enumerate(verdict.suspicions[:MOST], start=1):
        told.append(f"suspect {place}: {suspicion.text} ({', '.join(suspicion.problems)})")
    if any(case.row.kind in _COMPARED for case in verdict.failed) and not verdict.suspicions:
        told.append(f"no usual suspect explains what failed{_first_wrong(verdict)}")
    if verdict.seen:
        told.append(f"this run could have seen: {', '.join(verdict.seen)}")
    if verdict.unseen:
        told.append(f"this run could not have seen: {', '.join(verdict.unseen)}")
    by_reason: dict[str, list[str]] = {}
    for what, why in verdict.not_judged.items():
        by_reason.setdefault(why, []).append(what)
    told += [f"not judged: {', '.join(what)}: {why}" for why, what in by_reason.items()]
    told += [f"expected failure {name}: {what}" for name, what in verdict.unexpected.items()]
    if verdict.precision != "float64":
        told.append(f"numbers of this program are {verdict.precision} ones: limits are what {verdict.precision} leaves")
    excused = len(verdict._with("XFAIL"))
    inexact = f"{excused} expected to fail, " if excused else ""
    inexact += f"{len(verdict.inexact)} inexact, " if verdict.inexact else ""
    precision = "" if verdict.precision == "float64" else f" in {verdict.precision}"
    told.append(f"{verdict.verdict}{precision}: {len(verdict.passed)} passed, {len(verdict.failed)} failed, {inexact}"
                f"{len(verdict.not_judged)} not judged ({verdict.program})")  # fmt: skip
    return told


def _first_wrong(verdict: Verdict) -> str:
    """Which quantity is the first to be wrong in the order of computation, and on which problems those before agree."""
    by_problem: dict[str, set[str]] = {}
    for case in verdict.failed:
        if case.row.kind in _COMPARED:
            name = "log_evidence" if case.row.quantity == "bound - log Z" else case.row.quantity
            by_problem.setdefault(case.problem, set()).add(name)
    first = {problem: min(names & set(ORDER), key=ORDER.index, default="") for problem, names in by_problem.items()}
    told = [
        f"{name} ({', '.join(problem for problem, it in first.items() if it == name)})"
        for name in ORDER
        if name in first.values()
    ]
    return f"; first wrong in the order of computation: {', '.join(told)}" if told else ""


def as_mapping(verdict: Verdict) -> dict[str, Any]:
    """The verdict as a mapping of text, numbers and lists."""

    return {
        "program": verdict.program,
        "verdict": verdict.verdict,
        "precision": verdict.precision,
        "twins": {method: twin._asdict() for method, twin in verdict.twins.items()},
        "cases": [
            {
                "check": case.name, "verdict": case.row.verdict, "observed": case.row.observed,
                "limit": case.row.limit, "against": case.against, "why": case.row.why, "worst": case.row.worst,
            }
            for case in verdict.cases
        ],
        "suspects": [suspicion._asdict() for suspicion in verdict.suspicions],
        "seen": list(verdict.seen),
        "unseen": list(verdict.unseen),
        "not_judged": dict(verdict.not_judged),
        "unexpected": dict(verdict.unexpected),
    }  # fmt: skip


def read_expected(path: str | PathLike[str]) -> dict[str, str]:
    """Expected failures of a file, id -> reason: a line each, "id: reason"; empty lines and those with # are none.

    Raises
    ------
    ValueError    naming the line, if it has no reason or its id came before
    """
    results: dict[str, str] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = (part.strip() for part in line.partition(": "))
        if not reason:
            raise ValueError(f"{path}:{number}: found {shown(line)}, expected the id of a check, a colon, and a reason")
        if name in results:
            raise ValueError(f"{path}:{number}: found {shown(name)} again, expected each check once")
        results[name] = reason
    return results
