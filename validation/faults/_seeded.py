"""One way to write a fault down: what all of a module's have in common is bound by `functools.partial`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from validation.selftest import Fault

Names = str | tuple[str, ...]


def seeded(
    method: str,
    name: str,
    description: str,
    targets: Names,
    make: Callable[[Any], Any],
    checks: Names,
    problems: Names = "-",
    *,
    witness: str = "fast",
    raises: bool = False,
) -> Fault:
    """A `Fault` called method/name; one target, problem or check stands for itself, {} in a check for the method."""
    asked = tuple(check.replace("{}", method) for check in _tuple(checks))
    return Fault(
        f"{method}/{name}", witness, method, description, _tuple(targets), make, _tuple(problems), asked, raises
    )


def _tuple(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
