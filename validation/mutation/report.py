"""What a sample of mutants says of the judge: rates by package and by area, each with the survivors' diffs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from validation.mutation.statements import Mutant, area_names
from validation.mutation.trial import Outcome

# of the executed mutants that are not equivalent, this share has to be red or to crash: over all, and in each area
REACH, AREA_REACH = 0.98, 0.95
# of all that was drawn, at most this share may stand where nothing runs
UNREACHED = 0.01
# and at most this share may be called equivalent
EQUIVALENT = 0.03


class Rates(NamedTuple):
    """Counts of one group of mutants."""

    drawn: int
    red: int
    crash: int
    survived: int
    never: int
    equivalent: int

    @property
    def judged(self) -> int:
        """Executed and not equivalent."""
        return self.red + self.crash + self.survived

    @property
    def caught(self) -> float:
        """Share of the judged that turned a check red or crashed; NaN where nothing was judged."""
        return (self.red + self.crash) / self.judged if self.judged else float("nan")


class Verdict(NamedTuple):
    """What is short of the reach; nothing if the list is empty."""

    missing: tuple[str, ...]

    @property
    def met(self) -> bool:
        """Whether the sample shows the reach."""
        return not self.missing


def known_equivalents() -> list[dict[str, str]]:
    """The reviewed list, each entry with its reason.

    Raises
    ------
    ValueError    for an entry without one of its fields
    """
    entries: list[dict[str, str]] = tomllib.loads(
        (files("validation.mutation") / "equivalent.toml").read_text(encoding="utf-8")
    )["mutant"]
    for entry in entries:
        wanted = {"module", "function", "before", "after", "reason"}
        if set(entry) != wanted or not all(value for name, value in entry.items() if name != "function"):
            raise ValueError(
                f"equivalent.toml: found the fields {sorted(entry)}, expected {sorted(wanted)}, none empty but "
                "the function of what stands at the top of a module"
            )
    return entries


def is_equivalent(mutant: Mutant, known: Iterable[Mapping[str, str]]) -> bool:
    """Whether a reviewed entry describes exactly this change."""
    return any(
        entry["module"] == mutant.module
        and entry["function"] == mutant.function
        and _bare(entry["before"]) == _bare(mutant.before)
        and _bare(entry["after"]) == _bare(mutant.after)
        for entry in known
    )


def _bare(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def rates(mutants: Sequence[Mutant], outcomes: Mapping[str, Outcome], known: Iterable[Mapping[str, str]] = ()) -> Rates:
    """Counts over mutants; one that survived and is reviewed as equivalent is neither caught nor missed."""
    known = list(known)
    count = dict.fromkeys(("red", "crash", "survived", "never executed", "equivalent"), 0)
    for mutant in mutants:
        state = outcomes[mutant.name].state
        count["equivalent" if state == "survived" and is_equivalent(mutant, known) else state] += 1
    return Rates(
        len(mutants), count["red"], count["crash"], count["survived"], count["never executed"], count["equivalent"]
    )


def table(
    mutants: Sequence[Mutant], outcomes: Mapping[str, Outcome], known: Iterable[Mapping[str, str]] = ()
) -> dict[str, Rates]:
    """Rates of each package, of each area and of all, in the order of the report."""
    known = list(known)
    groups: dict[str, list[Mutant]] = {}
    for package in dict.fromkeys(mutant.module.partition(".")[0] for mutant in mutants):
        groups[package] = [mutant for mutant in mutants if mutant.module.partition(".")[0] == package]
    for name in area_names():
        inside = [mutant for mutant in mutants if mutant.area == name]
        if inside:
            groups[name] = inside
    groups["all"] = list(mutants)
    return {name: rates(group, outcomes, known) for name, group in groups.items()}


def verdict(groups: Mapping[str, Rates]) -> Verdict:
    """Hold the rates against the reach."""
    missing = []
    for name, value in groups.items():
        wanted = REACH if name == "all" else AREA_REACH
        if name in ("all", *area_names()) and value.judged and value.caught < wanted:
            missing.append(f"{name}: found {value.caught:.1%} caught, expected at least {wanted:.0%}")
    whole = groups["all"]
    if whole.never > UNREACHED * whole.drawn:
        missing.append(f"all: found {whole.never} of {whole.drawn} never executed, expected at most {UNREACHED:.0%}")
    if whole.equivalent > EQUIVALENT * whole.drawn:
        missing.append(
            f"all: found {whole.equivalent} of {whole.drawn} called equivalent, expected at most {EQUIVALENT:.0%}"
        )
    return Verdict(tuple(missing))


def as_json(
    mutants: Sequence[Mutant], outcomes: Mapping[str, Outcome], groups: Mapping[str, Rates], settings: Mapping[str, Any]
) -> str:
    """The whole sample, mutant by mutant."""
    rows = [
        {
            "mutant": mutant.name,
            "area": mutant.area,
            "function": mutant.function,
            "operator": mutant.operator,
            "diff": mutant.diff,
            **{key: value for key, value in outcomes[mutant.name].plain().items() if key != "name"},
        }
        for mutant in mutants
    ]
    counts = {
        name: {**result._asdict(), "caught": result.caught if result.judged else None}
        for name, result in groups.items()
    }
    missing = list(verdict(groups).missing)
    return json.dumps({"settings": settings, "rates": counts, "missing": missing, "mutants": rows}, indent=2) + "\n"
