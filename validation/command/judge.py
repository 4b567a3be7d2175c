"""`triad judge module:function`: every question that a program's method allows, on the terminal or as a page."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from validation.door import storage
from validation.judge.child import Child
from validation.judge.judging import LARGEST, LIMIT, Verdict, in_child, questions_for
from validation.judge.judging import judge as ask
from validation.screen.forecast import Steps
from validation.screen.terminal import Grid, print_grid, say

_STYLES = {"PASS": "green", "FAIL": "bold red"}
_DIFFERENT, _UNDECIDED = 1, 2
_MOST = 5  # suspects that are listed
_COMPARED = ("identity", "discrepancy", "exactness", "bound")  # what suspects are tried for


def judge(
    program: Annotated[str, typer.Argument(help="module:function, or the name of an entry point")],
    method: Annotated[str | None, typer.Option("--method", help="one of its methods; by default all it lists")] = None,
    problem: Annotated[list[str] | None, typer.Option("--problem", help="only this problem; repeatable")] = None,
    largest: Annotated[
        int | None,
        typer.Option(
            "--largest", min=2, help=f"data of a problem at most; by default {LARGEST}, or the smallest that fits"
        ),
    ] = None,
    limit: Annotated[float, typer.Option("--limit", help="of identities")] = LIMIT,
    power: Annotated[bool, typer.Option("--power/--no-power", help="what this run could have seen")] = True,
    as_html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="write the verdicts as a page")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="a line for each verdict, passed ones too")] = False,
) -> None:
    """Judge a program of your own on every question that its method allows; exit 1 if it disagrees.

    Exits 2 if nothing could be judged.
    """
    if as_html is not None:
        storage.check_writable(as_html)
    target = in_child(program)
    with target if isinstance(target, Child) else nullcontext():
        result = _told(target, method, problem or None, largest=largest, limit=limit, power=power)
    console = Console(markup=False, emoji=False, highlight=False)
    listed = [case for case in result.cases if verbose or case.row.verdict == "FAIL"]
    if listed:
        grid = Grid(("verdict", "observed", "limit", "question", "against"), 3, (1, 2))
        cells = [
            (case.row.verdict, f"{case.row.observed:.3g}", f"{case.row.limit:.3g}", case.name, case.against)
            for case in listed
        ]
        print_grid(console, grid, cells, [_STYLES.get(case.row.verdict, "yellow") for case in listed])
    for line in lines(result):
        say(console, line.lstrip(), indent=len(line) - len(line.lstrip()))
    if as_html is not None:
        storage.write_text(as_html, page(result))
        console.print(str(as_html), soft_wrap=True)
    if result.failed:
        raise typer.Exit(_DIFFERENT)
    if not result.passed:
        raise typer.Exit(_UNDECIDED)


def _told(
    target: Callable[..., Any] | str,
    method: str | None,
    problems: list[str] | None,
    *,
    largest: int | None,
    limit: float,
    power: bool,
) -> Verdict:
    """The verdict, with a line on stderr for each question as it is asked."""
    errors = Console(stderr=True, markup=False, highlight=False)
    asked = questions_for(target, method, problems=problems, largest=largest)
    steps = Steps(f"{one.method} on {name}" for one in asked for name in one.problems)

    def listen(what: str) -> None:
        say(errors, f"asking {what} ({steps.begin()})")
        sys.stderr.flush()

    return ask(target, method, problems=problems, largest=largest, limit=limit, power=power, listen=listen)


def lines(verdict: Verdict) -> list[str]:
    """What follows the table: worst entries, suspects, power, what was not judged, the verdict."""
    told = [f"  {case.name}: worst at {case.row.worst}" for case in verdict.failed if case.row.worst]
    told += [f"  {case.name}: {case.row.why}" for case in verdict.failed if not case.row.worst]
    for place, suspicion in enumerate(verdict.suspicions[:_MOST], start=1):
        told.append(f"suspect {place}: {suspicion.text} ({', '.join(suspicion.problems)})")
    if any(case.row.kind in _COMPARED for case in verdict.failed) and not verdict.suspicions:
        told.append("no usual suspect would explain what failed")
    if verdict.seen:
        told.append(f"this run could have seen: {', '.join(verdict.seen)}")
    if verdict.unseen:
        told.append(f"this run could not have seen: {', '.join(verdict.unseen)}")
    by_reason: dict[str, list[str]] = {}
    for what, why in verdict.not_judged.items():
        by_reason.setdefault(why, []).append(what)
    told += [f"not judged: {', '.join(what)}: {why}" for why, what in by_reason.items()]
    told.append(f"{verdict.verdict}: {len(verdict.passed)} passed, {len(verdict.failed)} failed, "
                f"{len(verdict.not_judged)} not judged ({verdict.program})")  # fmt: skip
    return told


def page(verdict: Verdict) -> str:
    """One file of HTML without external parts: the verdict, suspects, power, every case with its reason."""
    rows = "\n".join(
        f'<tr class="{case.row.verdict}">'
        + "".join(
            f"<td>{html.escape(cell)}</td>"
            for cell in (
                case.row.verdict, case.name, case.against, f"{case.row.observed:.3g}", f"{case.row.limit:.3g}",
                f"{case.row.why} {case.row.worst}".strip(),
            )
        )
        + "</tr>"
        for case in verdict.cases
    )  # fmt: skip
    notes = "\n".join(f"<p>{html.escape(line)}</p>" for line in lines(verdict))
    reasons = "\n".join(f"<li>{html.escape(name)}: {html.escape(why)}</li>" for name, why in verdict.not_judged.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(verdict.program)}: {verdict.verdict}</title>
<style>body{{font:15px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em}}
table{{border-collapse:collapse;font-size:13px}}td,th{{padding:.2em .6em;border-bottom:1px solid #ddd;text-align:left}}
.FAIL{{background:#fde4e1}}.PASS td:first-child{{color:#176f2c}}.SKIP,.INFO{{color:#666}}</style></head>
<body><h1>{html.escape(verdict.program)}: {verdict.verdict}</h1>
{notes}
<table><tr><th>verdict<th>question<th>against<th>observed<th>limit<th>reason</tr>
{rows}
</table>
<h2>Not judged</h2><ul>{reasons}</ul></body></html>
"""
