"""The registered protocol of each paper: which runs may decide a claim, and how the others depart from it.

`protocols/<paper>.toml` has a table `[experiments.NAME]` for each experiment of `triad claims run`:

`sets`, `splits`   what the paper prints of data and repetitions
`counts`           what counts as reproduced
`settles`          what would decide what is reduced or open
`smaller`          how the run on record is below the paper's, where its options do not show it
`where`            texts of the rows that `smaller` is about, where it is not about all of them
`reading`          how the run on record departs from the protocol otherwise
`printed`          options that the paper prints. A smaller number is a smaller run; another word is another reading.
`silent`           options that it does not print, with the one value registered here for all sets and methods. Another
                   value is another reading, whose rows are listed as such and decide nothing.
`defaults`         what these options are where a command does not name them
`only`             option = the methods and data sets that it concerns, where it does not concern all
`gates`            text of a note on the card = the methods whose rows it bars, all of them for an empty list
`barred`           method = why no row of it on record may decide anything
`whole`            column = how its text begins where the row is at the paper's size
"""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, NamedTuple

from validation.ledger.inventory import check_table

_TEXTS = ("sets", "splits", "counts", "settles", "smaller", "reading")
_MAPS = ("printed", "silent", "defaults", "only", "gates", "barred", "whole")
_OPTIONAL: dict[str, type] = {"where": list, **dict.fromkeys(_TEXTS, str), **dict.fromkeys(_MAPS, dict)}


class Departure(NamedTuple):
    """How a row of a result departs from the protocol; empty texts where it does not."""

    reading: str = ""
    smaller: str = ""


@dataclass(frozen=True, slots=True)
class Protocol:
    """What is registered for one experiment; the fields are those of the file."""

    sets: str = ""
    splits: str = ""
    counts: str = ""
    settles: str = ""
    smaller: str = ""
    reading: str = ""
    where: Sequence[str] = ()
    printed: Mapping[str, Any] = field(default_factory=dict)
    silent: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gates: Mapping[str, Sequence[str]] = field(default_factory=dict)
    barred: Mapping[str, str] = field(default_factory=dict)
    whole: Mapping[str, str] = field(default_factory=dict)

    def departure(self, command: str, notes: Sequence[str], row: Mapping[str, str]) -> Departure:
        """How a row departs from the protocol.

        Parameters
        ----------
        command, notes    of the card of its run
        row               of the CSV: its values tell which options concern it
        """
        given = {**self.defaults, **options_of(command)}
        names = set(row.values())
        concerned = not self.where or any(text in value for text in self.where for value in names)
        readings, smaller = [self.reading], [self.smaller if concerned else ""]
        for key, wanted in (*self.printed.items(), *self.silent.items()):
            if key in self.only and not names & set(self.only[key]):
                continue
            found = given[key]
            if found == wanted:
                continue
            number = key in self.printed and isinstance(wanted, (int, float))
            if number and found > wanted:
                continue
            text = f"{key} = {_shown(found)}, {'printed' if key in self.printed else 'registered'}: {_shown(wanted)}"
            (smaller if number else readings).append(text)
        for text, methods in self.gates.items():
            if any(text in note for note in notes) and (not methods or names & set(methods)):
                readings.append(f"the card has: {text}")
        readings += [why for method, why in self.barred.items() if method in names]
        for key, begins in self.whole.items():
            if not row[key].startswith(begins):
                smaller.append(f"{key}: {row[key]}")
        return Departure(*("; ".join(filter(None, each)) for each in (readings, smaller)))


def options_of(command: str) -> dict[str, Any]:
    """The options that a command of `triad claims run` names: -o key=value and --dataset."""
    words = shlex.split(command)
    options: dict[str, Any] = {}
    for flag, word in pairwise(words):
        if flag == "-o":
            key, _, value = word.partition("=")
            try:
                options[key] = json.loads(value)
            except json.JSONDecodeError:
                options[key] = value
        elif flag == "--dataset":
            options["dataset"] = word
    return options


def read(text: str, name: str) -> dict[str, Protocol]:
    """The protocols of one paper by experiment.

    Raises
    ------
    ValueError    naming file and key, for what is not as the module says, and for an option without its default
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name}.toml: found no valid TOML: {error}") from error
    check_table(f"{name}.toml", data, {"experiments": dict}, {})
    protocols = {}
    for key, raw in data["experiments"].items():
        where = f"{name}.toml [experiments.{key}]"
        row = check_table(where, raw, {"counts": str, "settles": str}, _OPTIONAL)
        protocol = Protocol(**row)
        asked = {*protocol.printed, *protocol.silent}
        if missing := asked - protocol.defaults.keys():
            raise ValueError(f"{where}: defaults: found none for {', '.join(sorted(missing))}, expected one")
        if unused := {*protocol.only, *protocol.defaults} - asked:
            raise ValueError(f"{where}: found {', '.join(sorted(unused))} without a value printed or registered")
        protocols[key] = protocol
    return protocols


@cache
def load() -> dict[str, dict[str, Protocol]]:
    """The registered protocols of every paper: paper -> experiment -> protocol."""
    folder = files("validation.claims") / "protocols"
    return {
        item.name.removesuffix(".toml"): read(item.read_text(encoding="utf-8"), item.name.removesuffix(".toml"))
        for item in sorted(folder.iterdir(), key=lambda item: item.name)
        if item.name.endswith(".toml")
    }


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
