"""The report as one HTML page: what was judged, what came nearest to its limit, what moved; it loads nothing.

All is readable without a script; the one that is there filters and sorts the table of checks. The page has a row for
each check; each verdict stands in checks.csv beside it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import jinja2
from markupsafe import Markup

from validation import problems
from validation.checks.core import Result
from validation.checks.runner import Run
from validation.door import premises
from validation.door.solution import Solution
from validation.jobs import place as places
from validation.report import causes, facets, moved, table
from validation.report.sections import distinct, section
from validation.screen import figures

# What comes nearest to its limit is told first.
_WORST = 10

# Checks are grouped by how much of their limit they used; (from this ratio on, heading).
_BANDS = (
    (1.0, "beyond the limit"),
    (0.5, "more than half of the limit"),
    (0.1, "a tenth to a half"),
    (0.01, "a hundredth to a tenth"),
    (0.0, "below a hundredth, where rounding moves"),
    (-math.inf, "no ratio: bounds and orders that hold"),
)

# A page of more bytes opens slowly on a phone: problems are drawn while there is room, others are named.
_MOST_BYTES = 1_900_000

# quantities not judged that the head of the page names; all of them stand among the checks
_MOST_NAMED = 3

# moves of one kind that the page lists
_MOST_MOVES = 40
_MOST_OF_A_CAUSE = 10  # failures that the page shows


class Coverage(TypedDict):
    """One paper of the ledger: how many entries are in each state."""

    paper: str
    verified: int
    corrected: int
    not_executable: int
    open: int


class _Check(NamedTuple):
    """A row of the table of checks: a line of verdicts with an address on the page."""

    id: str
    line: table.Line
    others: tuple[Result, ...]  # after the worst, the next ones on other problems


class _Band(NamedTuple):
    heading: str
    checks: tuple[_Check, ...]
    open: bool


def render(
    run: Run,
    coverage: Sequence[Coverage] | None = None,
    *,
    now: datetime | None = None,
    moves: Sequence[moved.Move] | None = None,
    earlier: str = "",
) -> str:
    """The whole page.

    Parameters
    ----------
    run : Run         what `validation.checks.runner.run` gave
    coverage : list   of the ledger, one entry for each paper; None says that it was not collected
    now : datetime    when the run ended, by default this moment
    moves : list      against an earlier run; None: nothing was asked to be compared
    earlier : str     the name of that run
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=table.number,
        observed=table.observed,
        ratio=table.ratio,
        seconds=table.seconds,
        against=table.against,
        on=table.on,
    )
    solutions = distinct(run.solutions)
    checks = _checks(run.results)
    bands = _bands(checks)
    page = environment.get_template("page.html.j2")
    content = {
        "run": run,
        "places": places.summary(run.places),
        "unlike": places.unlike(place for place, _ in run.places),
        "headline": _headline(run),
        "state": "stopped" if run.interrupted else "red" if run.failed else "green",
        "summary": table.summary(run, most=_MOST_NAMED),
        "date": (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "kinds": [_kind(kind, results) for kind, results in table.by_kind(run.results).items()],
        "causes": causes.causes(result for result in run.results if result.failed),
        "most_of_a_cause": _MOST_OF_A_CAUSE,
        "worst": _worst(checks),
        "bands": bands,
        "count": len(checks),
        "n_problems": len({r.problem for r in run.results} - {"-"}),
        "witnesses": _witnesses(run),
        "chains": [_chain(s) for s in solutions if s.ess is not None or s.r_hat is not None],
        "gate": (premises.GATE_R_HAT, premises.GATE_ESS),
        "coverage": None if coverage is None else [_covered(entry) for entry in coverage],
        "bar": _bar,
        "moves": None if moves is None else _grouped(moves),
        "moved": "" if moves is None else moved.summary(moves),
        "earlier": earlier,
        "legend": facets.LEGEND,
        "full": " --full" if run.full else "",
    }
    empty = len(page.render(sections=(), undrawn=(), named=(), **content).encode())
    sections, undrawn = _sections(run, solutions, environment, _MOST_BYTES - empty)
    # what checks make for themselves nobody can ask for by name
    named = [name for name in undrawn if name in problems.names()]
    return page.render(sections=sections, undrawn=undrawn, named=named, **content)


def _kind(kind: str, results: list[Result]) -> tuple[str, list[int], Result | None]:
    """A kind of check: how many verdicts it gave, all and by verdict, and the one nearest to its limit."""
    counts = [sum(r.verdict == verdict for r in results) for verdict in table.WORDS]
    return kind, [len(results), *counts], table.closest(results)


def _witnesses(run: Run) -> list[str]:
    """Who answered by which methods; implementations of the same methods in one line."""
    groups: dict[str, set[str]] = {}
    for solution in run.solutions:
        groups.setdefault(solution.implementation, set()).add(solution.method)
    by_methods: dict[tuple[str, ...], list[str]] = {}
    for name, methods in sorted(groups.items()):
        by_methods.setdefault(tuple(sorted(methods)), []).append(name)
    return [f"{', '.join(names)}: {', '.join(methods)}" for methods, names in by_methods.items()]


def _headline(run: Run) -> str:
    total = len(run.results)
    if run.interrupted:
        asked = total - sum(result.verdict == "SKIP" and "interrupted" in result.why for result in run.results)
        return f"Interrupted: {asked} of {total} verdicts were reached"
    wrong = run.count("FAIL") + run.count("ERROR")
    if wrong:
        return f"{wrong} of {total} verdicts {'is' if wrong == 1 else 'are'} red"
    skipped = run.count("SKIP")
    if skipped == total:
        return "Nothing was compared"
    if skipped:
        return f"No disagreement: {total - skipped} of {total} verdicts passed, {skipped} skipped"
    return f"All {total} verdicts passed"


def _bar(value: float) -> float:
    """Length of a ratio's bar in percent."""
    return 0.0 if math.isnan(value) else 100.0 * min(1.0, max(0.0, value))


# -- checks --------------------------------------------------------------------------------------------------


def _checks(results: Iterable[Result]) -> list[_Check]:
    """A row for each check and verdict, those nearest to their limits first."""
    by: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        by.setdefault((result.check, result.verdict), []).append(result)
    rows = sorted(table.lines(results), key=lambda line: -_closeness(line.worst))
    checks = []
    for number, line in enumerate(rows, start=1):
        others = sorted(by[line.worst.check, line.worst.verdict], key=lambda result: -_closeness(result))
        named = {result.problem: result for result in reversed(others) if result.problem != line.worst.problem}
        nearest = sorted(named.values(), key=lambda result: -_closeness(result))[:3]
        checks.append(_Check(f"check-{number}", line, () if line.worst.failed else tuple(nearest)))
    return checks


def _closeness(result: Result) -> float:
    """Order of the table: what failed first, then by ratio; a bound that holds has none and comes last."""
    if result.failed:
        return math.inf
    return -1.0 if math.isnan(result.ratio) else result.ratio


def _bands(checks: Sequence[_Check]) -> list[_Band]:
    bands: list[_Band] = []
    judged = [check for check in checks if check.line.worst.verdict != "SKIP"]
    above = math.inf
    for lowest, heading in _BANDS:
        there = tuple(check for check in judged if lowest <= _closeness(check.line.worst) < above)
        if lowest == 1.0:
            there = tuple(check for check in judged if check.line.worst.failed)
        if there:
            bands.append(_Band(heading, there, open=lowest >= 0.5))
        above = lowest
    skipped = tuple(check for check in checks if check.line.worst.verdict == "SKIP")
    if skipped:
        bands.append(_Band("not judged", skipped, open=True))
    return bands


def _worst(checks: Sequence[_Check]) -> list[_Check]:
    """The checks that passed and came nearest to their limits."""
    passed = [check for check in checks if check.line.worst.verdict == "PASS" and check.line.worst.ratio > 0.0]
    return passed[:_WORST]


def _grouped(moves: Sequence[moved.Move]) -> list[tuple[str, int, list[moved.Move]]]:
    """Moves by kind: how many, and the first of them."""
    groups: dict[str, list[moved.Move]] = {}
    for move in moves:
        groups.setdefault(move.kind, []).append(move)
    return [(kind, len(group), group[:_MOST_MOVES]) for kind, group in groups.items()]


# -- problems ------------------------------------------------------------------------------------------------


def _sections(
    run: Run, solutions: Sequence[Solution], environment: jinja2.Environment, room: int
) -> tuple[list[Markup], list[str]]:
    """Problems while there is room, the one that came nearest to a limit first; and the names of the others."""
    template = environment.get_template("section.html.j2")
    by_problem: dict[str, list[Solution]] = {}
    for solution in solutions:
        by_problem.setdefault(solution.problem.name, []).append(solution)
    nearest: dict[str, float] = {}
    for result in run.results:
        nearest[result.problem] = max(nearest.get(result.problem, -1.0), _closeness(result))
    drawn: list[Markup] = []
    undrawn: list[str] = []
    with figures.style():
        for name in sorted(by_problem, key=lambda name: -nearest.get(name, -1.0)):
            if room > 0:
                # safe to mark: the template escapes what came from outside
                text = Markup(template.render(section=section(name, by_problem[name])))
                room -= len(text.encode())
                if room > 0:
                    drawn.append(text)
                    continue
            undrawn.append(name)
    return drawn, sorted(undrawn)


# -- tables --------------------------------------------------------------------------------------------------


def _chain(solution: Solution) -> dict[str, Any]:
    errors = {
        name: float(values.max())
        for name in ("latent_mean_se", "probabilities_se")
        if (values := getattr(solution, name)) is not None and values.size
    }
    scalars = {key: value.item() for key, value in solution.local.items() if value.ndim == 0}
    return {
        "label": solution.label,
        "problem": solution.problem.name,
        "prior": solution.problem.prior_model,
        "r_hat": "" if solution.r_hat is None else f"{solution.r_hat:.4f}",
        "ess": "" if solution.ess is None else f"{solution.ess:,.0f}".replace(",", "\u202f"),
        "met": premises.gate(solution).met,
        "log_evidence_se": "" if solution.log_evidence_se is None else f"{solution.log_evidence_se:.2g}",
        "latent_mean_se": table.number(errors.get("latent_mean_se", math.nan)),
        "probabilities_se": table.number(errors.get("probabilities_se", math.nan)),
        "seconds": table.seconds(solution.seconds),
        "settings": _pairs({**solution.settings, **scalars}),
    }


def _pairs(values: Mapping[str, Any]) -> str:
    def shown(value: Any) -> str:
        text = f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
        return text if len(text) <= 60 else f"{text[:57]}..."

    return ", ".join(f"{key} = {shown(value)}" for key, value in sorted(values.items()))


def _covered(entry: Coverage) -> dict[str, Any]:
    states = ("verified", "corrected", "not_executable", "open")
    counts = {state: int(entry[state]) for state in states}  # type: ignore[literal-required]
    total = sum(counts.values())
    return {
        "paper": entry["paper"],
        "total": total,
        "shares": [(state, counts[state], 100.0 * counts[state] / total if total else 0.0) for state in states],
    }
