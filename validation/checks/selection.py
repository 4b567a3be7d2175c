"""What was asked on the command line, as pairs of check and problem in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from validation import problems
from validation.checks import core
from validation.door.quoting import shown


class SelectionError(ValueError):
    """Nothing, or something unknown, was asked for."""


class Pair(NamedTuple):
    """One check on one problem; `full` as the run (in `select`, before that: whether only a full run asks it)."""

    check: str
    problem: str
    full: bool


class Selection(NamedTuple):
    """What to run: pairs in the order of the report, and the modules that register their checks."""

    pairs: tuple[Pair, ...]
    modules: tuple[str, ...]
    full: bool = False


def select(
    *,
    full: bool = False,
    paper: Iterable[str] = (),
    method: Iterable[str] = (),
    check: Iterable[str] = (),
    problem: Iterable[str] = (),
    modules: Iterable[str] = (),
) -> Selection:
    """The pairs that match every given pattern (shell globs; several of one sort: any of them).

    Raises
    ------
    SelectionError    for a pattern that matches nothing known (with the near misses), or if nothing is left
    """
    checks = core.registered(modules)
    pairs: list[Pair] = []
    for result in checks.values():
        pairs += [Pair(result.id, name, False) for name in result.problems]
        pairs += [Pair(result.id, name, True) for name in result.full]
    sorts: list[tuple[str, Sequence[str], Callable[[Pair], str]]] = [
        ("paper", tuple(paper), lambda pair: checks[pair.check].paper),
        ("method", tuple(method), lambda pair: checks[pair.check].method),
        ("check", tuple(check), lambda pair: pair.check),
        ("problem", tuple(problem), lambda pair: pair.problem),
    ]
    for name, patterns, value in sorts:
        known = sorted({value(pair) for pair in pairs})
        for pattern in patterns:
            if not any(fnmatchcase(entry, pattern) for entry in known):
                raise SelectionError(f"{name}: found {shown(pattern)}, expected {known_names(known, pattern)}")
    matching = [
        pair
        for pair in pairs
        if all(not patterns or any(fnmatchcase(value(pair), p) for p in patterns) for _, patterns, value in sorts)
    ]
    chosen = [pair._replace(full=full) for pair in matching if full or not pair.full]
    if not chosen:
        hint = f"; {len(matching)} match with --full" if matching else ""
        asked = ", ".join(f"{name} {' or '.join(patterns)}" for name, patterns, _ in sorts if patterns) or "all"
        raise SelectionError(f"selection: found no check for {asked}, expected at least one{hint}")
    return _ordered(chosen, checks, full)


def _ordered(pairs: Iterable[Pair], checks: Any, full: bool) -> Selection:
    """Pairs by kind as in the design, then method, quantity and problem as the problems are listed."""
    position = {name: i for i, name in enumerate(_problem_names())}

    def place(pair: Pair) -> tuple[Any, ...]:
        value = checks[pair.check]
        where = position.get(pair.problem, len(position))
        return core.KINDS.index(value.kind), value.method, value.quantity, where, pair.problem

    ordered = tuple(sorted(set(pairs), key=place))
    return Selection(ordered, tuple(sorted({checks[pair.check].module for pair in ordered})), full)


def known_names(known: Sequence[str], wanted: str) -> str:
    close = get_close_matches(wanted, known, n=3)
    if close:
        return f"one of {len(known)} known ones (did you mean {' or '.join(map(repr, close))}?)"
    if len(known) > 12:
        return f"one of {len(known)} known ones, such as {', '.join(known[:6])}"
    return f"one of {', '.join(known) or 'none'}"


def _problem_names() -> tuple[str, ...]:
    return tuple(problems.names())
