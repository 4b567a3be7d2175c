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
from validation.judge import files
from validation.judge.child import Child
from validation.judge.judging import LIMIT, SECONDS, in_child
from validation.judge.judging import judge as ask
from validation.judge.posing import LARGEST, questions_for
from validation.judge.verdict import Verdict, as_mapping, lines, read_expected
from validation.screen import as_json
from validation.screen.forecast import Steps
from validation.screen.terminal import Grid, print_grid, say

_STYLES = {"PASS": "green", "FAIL": "bold red"}
_EXIT = {"AGREE": 0, "DISAGREE": 1, "UNDECIDED": 2, "INEXACT": 3}


def judge(
    program: Annotated[
        str | None, typer.Argument(help="module:function, or the name of an entry point", show_default=False)
    ] = None,
    method: Annotated[str | None, typer.Option("--method", help="one of its methods; by default all it lists")] = None,
    problem: Annotated[list[str] | None, typer.Option("--problem", help="only this problem; repeatable")] = None,
    largest: Annotated[
        int | None,
        typer.Option(
            "--largest",
            min=2,
            help=f"pose every problem up to this size; by default up to {LARGEST}, and the smallest for each feature",
        ),
    ] = None,
    limit: Annotated[float | None, typer.Option("--limit", help=f"of identities; by default {LIMIT:g}")] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="for all questions; the rest is not judged")] = SECONDS,
    power: Annotated[bool, typer.Option("--power/--no-power", help="what this run could have seen")] = True,
    as_html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="write the verdicts as a page")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="a line for each verdict, passed ones too")] = False,
    json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
    expected: Annotated[
        Path | None, typer.Option("--expected", metavar="FILE", help="expected failures, 'check: reason' a line")
    ] = None,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FOLDER", help="write the questions of --method as .npz files")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option("--answers", metavar="FOLDER", help="judge .npz files that answer such questions")
    ] = None,
    likelihood: Annotated[
        list[str] | None, typer.Option("--likelihood", help="of --export and --answers; by default those of the method")
    ] = None,
    kernel: Annotated[list[str] | None, typer.Option("--kernel", help="of --export and --answers: se, matern")] = None,
    points: Annotated[str | None, typer.Option("--points", help="all rows, inducing points or either")] = None,
) -> None:
    """Judge a program of your own on every problem that its method allows; exit 1 if it disagrees.

    Exit code 0: it agrees; 1: it disagrees; 2: nothing could be judged; 3: inexact, a method that fast does not have,
    consistent but far from the truth.
    """
    if as_html is not None:
        storage.check_writable(as_html)
    excused = {} if expected is None else read_expected(expected)
    asked: dict[str, Any] = {"problems": problem or None, "largest": largest}
    words = {"likelihoods": likelihood, "kernels": kernel, "points": points}
    target = _program(program, method, export or answers, words)
    if export is not None:
        written = files.export(export, questions_for(target, method, **asked))
        sys.stdout.write(f"{len(written)} questions in {export}\n")
        return
    with target if isinstance(target, Child) else nullcontext():
        result = _told(target, method, asked, {"limit": limit, "power": power, "seconds": seconds}).expecting(excused)
    if json:
        sys.stdout.write(as_json.text(as_mapping(result)))
    else:
        _shown(result, verbose=verbose)
    if as_html is not None:
        storage.write_text(as_html, page(result))
        if not json:
            sys.stdout.write(f"{as_html}\n")
    if code := _EXIT[result.verdict]:
        raise typer.Exit(code)


def _program(program: str | None, method: str | None, folder: Path | None, words: dict[str, Any]) -> Any:
    """The program to judge: one that runs, or files of answers in its place."""
    if program is not None and folder is None:
        if given := [word for word, value in words.items() if value]:
            raise ValueError(f"{given[0]}: found it beside a program, expected it with --export or --answers alone")
        return in_child(program)
    if program is not None or folder is None or method is None:
        raise ValueError(
            "program: expected module:function or the name of an entry point, or else --method with --export or "
            "--answers"
        )
    return files.Files(folder, method, **words)


def _shown(result: Verdict, *, verbose: bool) -> None:
    """The verdict on the terminal."""
    console = Console(markup=False, emoji=False, highlight=False)
    listed = [case for case in result.cases if verbose or case.row.verdict in ("FAIL", "INEXACT")]
    if listed:
        grid = Grid(("verdict", "observed", "limit", "question", "against"), 3, (1, 2))
        cells = [
            (case.row.verdict, f"{case.row.observed:.3g}", f"{case.row.limit:.3g}", case.name, case.against)
            for case in listed
        ]
        print_grid(console, grid, cells, [_STYLES.get(case.row.verdict, "yellow") for case in listed])
    for line in lines(result):
        say(console, line.lstrip(), indent=len(line) - len(line.lstrip()))


def _told(
    target: Callable[..., Any] | str, method: str | None, asked: dict[str, Any], options: dict[str, Any]
) -> Verdict:
    """The verdict, with a line on stderr for each question as it is asked."""
    errors = Console(stderr=True, markup=False, highlight=False)
    named = [f"{one.method} on {name}" for one in questions_for(target, method, **asked) for name in one.problems]
    steps = Steps(named)
    budget = options["seconds"]

    def listen(what: str) -> None:
        place = f" ({steps.begin()}; at most {budget:g} s in all)" if what in named else ""
        say(errors, f"asking {what}{place}")
        sys.stderr.flush()

    return ask(target, method, **asked, **options, listen=listen)


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
.FAIL{{background:#fde4e1}}.INEXACT{{background:#fff3d6}}
.PASS td:first-child{{color:#176f2c}}.SKIP,.INFO{{color:#666}}</style></head>
<body><h1>{html.escape(verdict.program)}: {verdict.verdict}</h1>
{notes}
<table><tr><th>verdict<th>question<th>against<th>observed<th>limit<th>reason</tr>
{rows}
</table>
<h2>Not judged</h2><ul>{reasons}</ul></body></html>
"""
