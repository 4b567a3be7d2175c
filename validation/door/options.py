"""The options of every method, from the tables of the witnesses: for `solve`, for the command line and for the docs."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, Protocol

from validation.door.quoting import shown
from validation.door.solve import OWN, find_implementation, methods


class Option(Protocol):
    """What the three tables say of an option; each witness has a type of its own."""

    @property
    def name(self) -> str:
        """Keyword of `solve`."""

    @property
    def default(self) -> Any:
        """Where nobody says."""

    @property
    def meaning(self) -> str:
        """In one line."""

    @property
    def expected(self) -> str:
        """What the value may be, in words."""

    def check(self, value: Any, n: int | None = None) -> Any:
        """The value as the method takes it, or a ValueError; n: data, which indices must be below."""


def options_of(implementation: str, method: str) -> dict[str, Option]:
    """Options that a method of a witness takes, in the order of its signature; none for a third party's."""
    answer = find_implementation(implementation) if implementation in OWN else None
    return {} if answer is None else dict(answer.options(method))  # type: ignore[attr-defined]


def checked(implementation: str, method: str, given: Mapping[str, Any], n: int) -> dict[str, Any]:
    """The options given, each checked, whether the method will use it or not.

    Parameters
    ----------
    implementation, method : str    of a witness, or the judge's own
    given : mapping                 name to value
    n : int                         data of the problem

    Raises
    ------
    ValueError, TypeError           an option that the method does not have (with the near misses), or a bad value
    """
    row = options_of(implementation, method)
    for name in given:
        if name not in row:
            close = get_close_matches(name, list(row), n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            listed = ", ".join(sorted(row))
            raise ValueError(f"option: found {shown(name)}, expected one of {listed}{hint} ({implementation} {method})")
    return {name: row[name].check(value, n) for name, value in given.items()}


class Row(NamedTuple):
    """One option of a method, and the witnesses that take it so."""

    name: str
    expected: str
    default: str
    meaning: str
    witnesses: tuple[str, ...]


def rows(method: str) -> list[Row]:
    """The options of a method, one row for those that several witnesses take alike, in the order of the first.

    Raises ValueError for a method that no witness has, with the near misses.
    """
    results: dict[tuple[Any, ...], Row] = {}
    for witness, has in methods().items():
        for option in options_of(witness, method).values() if method in has else ():
            alike = tuple(getattr(option, name, None) for name in ("name", "kind", "interval", "choices", "default"))
            row = results.get(alike)
            if row is None:
                row = Row(option.name, option.expected, repr(option.default), option.meaning, ())
            results[alike] = row._replace(witnesses=(*row.witnesses, witness))
    if not results:
        known = sorted({name for has in methods().values() for name in has})
        close = get_close_matches(method, known, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"method: found {shown(method)}, expected one of {', '.join(known)}{hint}")
    return sorted(results.values(), key=lambda row: [other.name for other in results.values()].index(row.name))


def markdown() -> str:
    """The page `docs/options.md`: a table for each method."""
    lines = [
        "# Options of the methods",
        "",
        "Every option is checked before any work, whether the method will use it or not. `triad list methods METHOD`",
        "prints one of these tables; on the command line an option is `-o name=value`, in Python a keyword of `solve`.",
        "The page is written by `make options`.",
    ]
    for method in dict.fromkeys(name for has in methods().values() for name in has):
        lines += ["", f"## {method}", "", "| option | may be | default | meaning | taken by |", "|---|---|---|---|---|"]
        for row in rows(method):
            cells = (f"`{row.name}`", row.expected, f"`{row.default}`", row.meaning, ", ".join(row.witnesses))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
