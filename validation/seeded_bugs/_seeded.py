"""One way to write a bug down: what those of a module have in common is said once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from validation.selftest import WITNESSES, SeededBug

Names = str | tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """Makes bugs method/name; {} stands for the method.

    checks, problems : names    of bugs that name none
    asks : str                  before the name of each check
    package : str               before each target
    label : str                 before each name
    """

    checks: Names = ()
    problems: Names = "-"
    asks: str = ""
    package: str = ""
    label: str = ""

    def __call__(
        self,
        method: str,
        name: str,
        description: str,
        targets: Names,
        make: Callable[[Any], Any],
        checks: Names | None = None,
        problems: Names | None = None,
        raises: bool = False,
    ) -> SeededBug:
        """A bug of the witness whose function it replaces, `reference` where that is a protocol of the judge."""
        replaced = tuple(self.package + target for target in _tuple(targets))
        asked = _tuple(self.checks if checks is None else checks)
        package = replaced[0].partition(".")[0]
        return SeededBug(
            f"{method}/{self.label}{name}",
            package if package in WITNESSES else "reference",
            method,
            description,
            replaced,
            make,
            _tuple(self.problems if problems is None else problems),
            tuple((self.asks + check).replace("{}", method) for check in asked),
            raises,
        )


seeded = Seeds()


def _tuple(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
