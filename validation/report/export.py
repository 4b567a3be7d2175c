"""A run for other programs: JSON, and JUnit XML as continuous integration reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from validation.checks.core import Result
from validation.checks.runner import Run
from validation.report import table
from validation.report.moved import Move, Verdict
from validation.screen import as_json


def json_text(run: Run, moved: Sequence[Move] | None = None) -> str:
    """The run as one JSON object; a number that is none, or infinite, is null. `moved` only if it was asked for.

    Parameters
    ----------
    run      what `validation.checks.runner.run` gave
    moved    against an earlier run
    """
    content: dict[str, Any] = {
        "summary": {
            **_counts(run.results),
            "kinds": {kind: _counts(results) for kind, results in table.by_kind(run.results).items()},
            "seconds": run.seconds,
            "interrupted": run.interrupted,
            "full": run.full,
        },
        "versions": run.versions,
        "verdicts": [
            {name: getattr(result, name) for name in (*table.COLUMNS, "unit", "question", "reproduce")}
            for result in run.results
        ],
    }
    if moved is not None:
        content["moved"] = [
            {"kind": move.kind, "check": move.check, "problem": move.problem, "sides": move.sides}
            | {"before": _verdict(move.before), "after": _verdict(move.after)}
            for move in moved
        ]
    return as_json.text(content)


def _counts(results: Sequence[Result]) -> dict[str, int]:
    return {word: sum(r.verdict == verdict for r in results) for verdict, word in table.WORDS.items()}


def _verdict(verdict: Verdict | None) -> dict[str, Any] | None:
    return None if verdict is None else verdict._asdict()


def junit(run: Run) -> str:
    """The run as JUnit XML: a suite for each kind of check, a case for each verdict."""
    suites = ElementTree.Element("testsuites", name="triad verify", time=f"{run.seconds:.3f}")
    for kind, results in table.by_kind(run.results).items():
        counts = _counts(results)
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=kind,
            tests=str(len(results)),
            failures=str(counts["failed"]),
            errors=str(counts["errors"]),
            skipped=str(counts["skipped"]),
            time=f"{sum(result.seconds for result in results):.3f}",
        )
        for result in results:
            _case(suite, result)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


_ELEMENTS = {"FAIL": "failure", "ERROR": "error", "SKIP": "skipped"}


def _case(suite: ElementTree.Element, result: Result) -> None:
    name = f"{result.check} on {result.problem}" + (f", {result.unit}" if result.unit else "")
    case = ElementTree.SubElement(
        suite,
        "testcase",
        name=_legal(name),
        classname=result.check.replace("/", "."),
        time=f"{result.seconds:.3f}",
    )
    if result.verdict in _ELEMENTS:
        told = ElementTree.SubElement(case, _ELEMENTS[result.verdict])
        if result.verdict == "FAIL":
            told.set("message", f"observed {table.observed(result)}, limit {table.number(result.limit)}")
        else:
            told.set("message", _legal(result.why))
        if result.verdict != "SKIP":
            told.text = _legal("\n".join(filter(None, (result.why, result.reproduce, result.details))))


def _legal(text: str) -> str:
    """Text without the characters that XML 1.0 does not allow, such as those that colour a terminal."""
    return "".join(c if c in "\t\n\r" or " " <= c <= "\ud7ff" or c >= "\ue000" else "\ufffd" for c in text)
