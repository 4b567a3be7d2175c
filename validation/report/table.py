"""Results as lines of text: one for each check, reasons below on request, and the same as a table for pandas."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.text import Text

from validation.checks.core import KINDS, NO_PROBLEM, Result
from validation.checks.runner import NOT_RUN, Run
from validation.ledger import atlas, executed
from validation.report import causes, moved
from validation.report.moved import Move, Verdict, Verdicts
from validation.screen.terminal import columns_of, folded

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "check",
    "kind",
    "paper",
    "method",
    "quantity",
    "left",
    "right",
    "problem",
    "observed",
    "limit",
    "ratio",
    "verdict",
    "seconds",
    "why",
)

# what a verdict counts as in a summary
WORDS = {"PASS": "passed", "FAIL": "failed", "ERROR": "errors", "SKIP": "skipped"}

COLOURS = {
    "PASS": "green",
    "FAIL": "bold red",
    "ERROR": "bold red",
    "SKIP": "yellow",
    "caught": "green",
    "not run": "yellow",
}

# |z| and differences alike: three digits say where a number stands, more would claim what no run repeats
_DIGITS = 3

# checks that the summary names where they were not judged; an interrupted run leaves hundreds
_MOST_NAMED = 20

_RIGHT = "right"
_LEFT = "left"


# -- for pandas ----------------------------------------------------------------------------------------------


def csv_text(results: Iterable[Result]) -> str:
    """All results with the columns of design.md, as CSV."""
    return frame(results).to_csv(index=False)


def frame(results: Iterable[Result]) -> pd.DataFrame:
    """All results as a data frame with the columns of design.md."""
    import pandas as pd  # here, so that a terminal that only wants lines does not wait for it

    return pd.DataFrame([{name: getattr(r, name) for name in COLUMNS} for r in results], columns=list(COLUMNS))


# -- for people ----------------------------------------------------------------------------------------------


def verdicts(results: Iterable[Result]) -> Verdicts:
    """All verdicts as `validation.report.moved` compares them: as checks.csv would be read again."""
    return moved.verdicts({name: getattr(r, name) for name in COLUMNS} for r in results)


def number(value: float) -> str:
    """Three digits, an empty string where there is no number."""
    return "" if math.isnan(value) else f"{value:.{_DIGITS}g}"


def observed(result: Result) -> str:
    """The observed value; a NaN that was judged is shown, it is why the check failed."""
    if math.isnan(result.observed):
        return "nan" if result.verdict == "FAIL" else ""
    return number(result.observed)


def ratio(value: float) -> str:
    """A ratio to the limit: what matters is how close to 1 it is."""
    if math.isnan(value) or value < 0.0:
        return ""
    if value < 1e-3:
        return "<0.001" if value else "0"
    return f"{value:.3f}" if value < 10.0 else f"{value:.3g}"


def on(problem: str) -> str:
    """Where a verdict was reached: " on iris", or nothing for a check that needs no problem."""
    return "" if problem == NO_PROBLEM else f" on {problem}"


def seconds(value: float) -> str:
    """Seconds as one reads them."""
    return f"{value:.1f} s" if value < 100.0 else f"{value / 60.0:.0f} min"


def against(result: Result) -> str:
    """Who was compared with whom."""
    return " vs ".join(side for side in (result.left, result.right) if side)


def closest(results: Iterable[Result]) -> Result | None:
    """The result with the largest finite ratio to its limit."""
    finite = [result for result in results if math.isfinite(result.ratio)]
    return max(finite, key=lambda result: result.ratio, default=None)


def summary(run: Run, most: int = _MOST_NAMED) -> str:
    """One line: counts by kind, time, the ratio nearest to its limit or furthest beyond, and what was not judged.

    Parameters
    ----------
    run     what was judged
    most    quantities that were not judged are named up to so many
    """
    failed = [result for result in run.results if result.verdict == "FAIL"]
    counts = [f"{len(failed)} failed" + (f" ({_by_kind(failed)})" if failed else "")]
    errors = run.count("ERROR")
    if errors:
        counts.append(f"{errors} error{'s' if errors > 1 else ''}")
    counts.append(f"{sum(r.verdict == 'SKIP' and r.why != NOT_RUN for r in run.results)} skipped")
    passed = _by_kind(result for result in run.results if result.verdict == "PASS")
    text = f"passed: {passed or 'none'}; {', '.join(counts)} in {_duration(run.seconds)}"
    largest = closest(run.results)
    if largest is not None:
        text += f"; largest ratio {ratio(largest.ratio) or 0} ({largest.check}{on(largest.problem)})"
    text += f"; not judged: {_not_judged((r for r in run.results if r.why != NOT_RUN), most)}"
    if not run.interrupted:
        return text
    never = {(result.check, result.problem) for result in run.results if result.why == NOT_RUN}
    checks = len({check for check, _ in never})
    rest = f"; not asked: {len(never)} questions of {checks} check{'' if checks == 1 else 's'}" if never else ""
    return f"interrupted: {text}{rest}"


def by_kind(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Results of each kind that there is, in the order of the kinds: a number of one kind is none of another."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.kind, []).append(result)
    return {kind: groups[kind] for kind in KINDS if kind in groups}


def _by_kind(results: Iterable[Result]) -> str:
    return ", ".join(f"{kind} {len(group)}" for kind, group in by_kind(results).items())


def _not_judged(results: Iterable[Result], most: int) -> str:
    """How many quantities were skipped, and which: checks with the problems where they were."""
    where: dict[str, list[str]] = {}
    for result in results:
        if result.verdict == "SKIP":
            names = where.setdefault(result.check, [])
            if result.problem not in names:
                names.append(result.problem)
    if not where:
        return "nothing"
    told = [check if names == [NO_PROBLEM] else f"{check} on {', '.join(names)}" for check, names in where.items()]
    if len(told) > most:
        # a terminal has had them above, the page has them below
        where_told = "above" if most == _MOST_NAMED else "below"
        told[most:] = [f"and {len(told) - most} more, with their reasons {where_told}"]
    count = sum(map(len, where.values()))
    return f"{count} quantit{'y' if count == 1 else 'ies'} ({'; '.join(told)})"


def _duration(value: float) -> str:
    return f"{value:.0f} s" if value >= 9.95 else f"{value:.1f} s"


class Line(NamedTuple):
    """One line of the table: some verdicts of one check, and the one of them that is nearest to its limit."""

    worst: Result
    verdicts: int
    problems: int
    seconds: float
    why: str


def lines(results: Iterable[Result], *, each: bool = False) -> list[Line]:
    """One line for a check that passed (or was skipped), however many its problems; each failure has its own.

    With `each` every verdict has a line.
    """
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for place, result in enumerate(results):
        alone = each or result.failed
        groups.setdefault((result.check, result.verdict, place if alone else None), []).append(result)
    return [_merged(group) for group in groups.values()]


def _merged(group: Sequence[Result]) -> Line:
    # without a ratio (a bound that holds) the largest observed value is nearest to its limit
    worst = max(group, key=lambda r: (_or_least(r.ratio), _or_least(r.observed)))
    reasons = len({result.why for result in group})
    # reasons may differ in a number that belongs to their problem; the report has them all
    why = worst.why if reasons == 1 else f"{worst.why} (and {reasons - 1} more; --verbose shows each)"
    problems = len({result.problem for result in group})
    return Line(worst, len(group), problems, sum(result.seconds for result in group), why)


def _or_least(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def print_run(
    console: Console,
    run: Run,
    *,
    why: bool = False,
    verbose: bool = False,
    quiet: bool = False,
    failures: bool = True,
) -> None:
    """The table, then each failure with its reason and how to see it again, then the summary.

    One line for each check, with the problem on which it came nearest to its limit; one for each verdict if verbose;
    none but those of failures if quiet. More failures than a few are grouped by cause. What a terminal has no room for
    is left to failures, `--why` and the report; the id of a check is never cut.
    """
    if not quiet:
        # an interrupt leaves thousands of checks that nobody was asked; checks.csv has them
        _print_rows(console, lines((r for r in run.results if r.why != NOT_RUN), each=verbose), why=why)
    failed = [result for result in run.results if result.failed] if failures else []
    if len(failed) > MOST_ALONE and not verbose:
        console.print()
        for line in causes.lines(causes.causes(failed), MOST_LINES):
            console.print(Text(folded(line, columns_of(console)), style="red"), soft_wrap=True)
    elif failed:
        console.print()
        for result in failed:
            # alone, a result needs no columns: what is empty takes no room
            _print_rows(console, lines([result]), why=True, header=False)
            if result.question:
                _indented(console, "states", result.question)
            if result.power:
                _indented(console, "power", result.power)
            cards = executed.entries_of(executed.load(), result.check)
            if cards:
                more = f", and {len(cards) - _MOST_CARDS} more" if len(cards) > _MOST_CARDS else ""
                _indented(console, "equations", ", ".join(map(atlas.link, cards[:_MOST_CARDS])) + more)
            console.print(Text("     reproduce: ", style="dim").append(result.reproduce, style="bold"), soft_wrap=True)
            if verbose and result.details:
                console.print(Text(textwrap.indent(result.details.rstrip(), "     "), style="dim"), soft_wrap=True)
    if not quiet or failed:
        console.print()
    style = "yellow" if run.interrupted else "bold red" if run.failed else "green"
    for part in _parts(summary(run)):
        console.print(Text(folded(part, columns_of(console)), style=style), soft_wrap=True)


def _parts(line: str) -> list[str]:
    """The summary line by line: what passed by kind, other counts, the largest ratio, what was not judged."""
    return line.split("; ", 3)


def print_moves(
    console: Console, moves: Sequence[Move], earlier: str, failures: Iterable[Result] = (), where: Sequence[str] = ()
) -> None:
    """What moved against an earlier run, in 40 lines at most: failures by cause, where they are, moves by kind."""
    told = folded(f"against {earlier}: {moved.summary(moves)}", columns_of(console))
    found = causes.causes(failures)
    body = [(line, "red") for line in causes.lines(found, MOST_LINES // 2)] + [(line, "bold") for line in where]
    groups: dict[str, list[Move]] = {}
    for move in moves:
        if not (found and move.kind in _RED):
            groups.setdefault(move.kind, []).append(move)
    for kind, group in groups.items():
        body.append((f"{kind}:", _MOVED.get(kind, "dim")))
        body += [(f"  {move.check}{on(move.problem)}: {moved_numbers(move)}", "") for move in group[:_MOST_MOVES]]
        if len(group) > _MOST_MOVES:
            body.append((f"  and {len(group) - _MOST_MOVES} more (report.html, --json)", "dim"))
    shown = [(line, "bold") for line in told.splitlines()]
    for text, style in body:
        indent = len(text) - len(text.lstrip())
        shown += [(line, style) for line in folded(text.strip(), columns_of(console), indent).splitlines()]
    if len(shown) > MOST_LINES:
        shown[MOST_LINES - 1 :] = [(f"and {len(shown) - MOST_LINES + 1} more lines (report.html, --json)", "dim")]
    for line, style in shown:
        console.print(Text(line, style=style), soft_wrap=True)


MOST_LINES = 40  # of failures by cause, and of a comparison
MOST_ALONE = 5  # failures that are printed one by one
_RED = ("turned red", "still red")
_MOVED = {"turned red": "bold red", "no longer judged": "yellow", "gone": "yellow", "limit raised": "yellow"}
_MOST_MOVES = 5


def moved_numbers(move: Move) -> str:
    """Before and after, as one reads them."""

    def shown(verdict: Verdict | None) -> str:
        if verdict is None:
            return "nothing"
        if math.isnan(verdict.observed):
            return verdict.verdict
        told = f"{verdict.verdict} {_number(verdict.observed)}"
        return told if math.isnan(verdict.ratio) else f"{told} ({ratio(verdict.ratio) or 0} of {number(verdict.limit)})"

    def _number(value: float) -> str:
        return f"{value:.6g}" if move.kind == "number changed" else number(value)

    return f"{shown(move.before)} -> {shown(move.after)}"


_MOST_CARDS = 5  # equations that a failure names
_HEADER = ("", "check", "n", "problem", "left vs right", "difference", "observed", "limit", "ratio", "time")
_ALIGN = (_LEFT, _LEFT, _RIGHT, _LEFT, _LEFT, _LEFT, _RIGHT, _RIGHT, _RIGHT, _RIGHT)
# what a line always has, and what it takes in while there is room, in this order; checks.csv and the report have all
_ALWAYS, _IF_ROOM = (0, 1, 2, 6, 7, 8), (3, 9, 4, 5)
_NARROWEST_PROBLEM = 12  # characters of a problem that are worth a column; the rest of a longer name is cut


def _cells(line: Line) -> tuple[str, ...]:
    result = line.worst
    others = f" and {line.problems - 1} more" if line.problems > 1 else ""
    return (
        result.verdict,
        result.check,
        str(line.verdicts) if line.verdicts > 1 else "",
        result.problem + others,
        against(result),
        result.unit,
        observed(result),
        number(result.limit),
        ratio(result.ratio),
        seconds(line.seconds),
    )


def _layout(widths: Sequence[int], room: int) -> tuple[tuple[int, ...], list[int]]:
    """Columns that are shown and their widths: a problem may be cut, nothing else is."""
    chosen, fitted = list(_ALWAYS), list(widths)
    left = room - sum(widths[i] for i in chosen) - 2 * sum(widths[i] > 0 for i in chosen)
    whole = widths[3] + 2 <= left  # a problem that fits as it is comes before the time, a cut one after it
    for i in _IF_ROOM if whole else (9, 3):
        if i == 3 and not whole and left >= _NARROWEST_PROBLEM + 2:
            fitted[i] = left - 2
        if not widths[i]:
            continue
        if fitted[i] + 2 > left:
            break
        chosen.append(i)
        left -= fitted[i] + 2
    return tuple(sorted(chosen)), fitted


def _print_rows(console: Console, rows: Sequence[Line], *, why: bool, header: bool = True) -> None:
    if not rows:
        return
    table = [(line, _cells(line)) for line in rows]
    widths = [max(len(cells[i]) for _, cells in table) for i in range(len(_HEADER))]
    if header:  # a column that holds nothing needs no name
        widths = [max(width, len(name)) if width else 0 for width, name in zip(widths, _HEADER, strict=True)]
    columns, fitted = _layout(widths, columns_of(console))
    if header:
        console.print(_line(_HEADER, fitted, columns, style="dim"), soft_wrap=True)
    for line, cells in table:
        verdict = line.worst.verdict
        console.print(_line(cells, fitted, columns, verdict=verdict), soft_wrap=True)
        rest = [cells[i] for i in range(len(cells)) if cells[i] and (i not in columns or len(cells[i]) > fitted[i])]
        # failures are told in full below the table
        if rest and (why or verdict == "SKIP"):
            _indented(console, "", " · ".join(rest))
        if why or verdict == "SKIP":
            _indented(console, "why", line.why)


def _line(
    cells: Sequence[str], widths: Sequence[int], columns: Sequence[int], *, verdict: str = "", style: str = ""
) -> Text:
    text = Text(style=style)
    for place, i in enumerate(i for i in columns if widths[i]):
        cell = cells[i] if len(cells[i]) <= widths[i] else f"{cells[i][: widths[i] - 3]}..."
        padded = cell.rjust(widths[i]) if _ALIGN[i] == _RIGHT else cell.ljust(widths[i])
        text.append("  " if place > 1 else " " if place else "")
        text.append(padded, style=COLOURS.get(verdict, "") if i == 0 else "")
    text.rstrip()
    return text


def _indented(console: Console, label: str, content: str) -> None:
    text = " ".join(content.split())
    console.print(
        Text(folded(f"{label}: {text}" if label else text, columns_of(console), 5), style="dim"), soft_wrap=True
    )
