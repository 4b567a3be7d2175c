"""The evidence card of a truth: what was run, how far its errors can be trusted, and what a second route said."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from validation.door import arguments, storage
from validation.door.quoting import shown

GATE = ("met", "not met")

# why a file of another version of this page is not read
SCHEMA = "gpc-triad/evidence-card/1"

_TABLES = ("recipe", "evidence", "mcse", "versions")


@dataclass(frozen=True)
class EvidenceCard:
    """What stands behind one truth file.

    problem, problem_sha256    its name, and the fingerprint of every field of it
    model                      likelihood, labelling errors and prior in words
    route                      "method" and the options that matter, as `triad solve` would take them
    chains, draws              of the sampler, draws per chain; 0 and 0 where nothing was sampled
    ess, r_hat                 smallest effective number of draws (bulk or tail), largest rank R-hat; none if exact
    target_ess                 what was asked for
    gate, gate_reason          "met" or "not met", and what decided
    second_route               the other route to the same numbers, or "none"
    second_z                   largest |z| between the two, over `second_count` statistics
    second_limit               the |z| that a true agreement exceeds once in 10 000 cards (Bonferroni)
    seed, seconds, date        seconds of the run that was kept
    versions                   of what the numbers depend on
    moments_sha256             of the bytes of the .npz; none in cards older than this field
    recipe                     of the library: how the problem is made; none elsewhere
    evidence                   of the library: log Z by each route, (value, standard error, 1 if the route trusts it)
    evidence_z                 largest |z| between the surest log Z and the other routes that are sure enough
    evidence_limit             the |z| that a true agreement exceeds once in 10 000 cards
    evidence_note              of the library: which two routes agree, or why there is no second one
    mcse                       of the library: largest standard error of each quantity, in posterior standard deviations
                               for means, in variances for covariances, absolute for probabilities and log Z
    """

    problem: str
    problem_sha256: str
    model: str
    route: str
    chains: int
    draws: int
    target_ess: float
    gate: str
    gate_reason: str
    second_route: str
    seed: int
    seconds: float
    date: str
    ess: float | None = None
    r_hat: float | None = None
    second_z: float | None = None
    second_count: int | None = None
    second_limit: float | None = None
    moments_sha256: str | None = None
    evidence_z: float | None = None
    evidence_limit: float | None = None
    evidence_note: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Sequence[float]] = field(default_factory=dict)
    mcse: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("problem", "problem_sha256", "model", "route", "gate_reason", "second_route", "date"):
            arguments.string(getattr(self, name), name)
        for name in ("chains", "draws", "seed"):
            arguments.integer(getattr(self, name), name, at_least=0)
        for name in ("target_ess", "seconds", "ess", "r_hat", "second_z", "second_limit", "evidence_z",
                     "evidence_limit"):  # fmt: skip
            value = getattr(self, name)
            # NaN and infinity are what a chain that stands still has
            number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
            if not number and (value is not None or name in ("target_ess", "seconds")):
                raise ValueError(f"{name}: found {shown(value)}, expected a number")
        for name in ("target_ess", "seconds"):  # what was asked for, and a clock
            if arguments.real(getattr(self, name), name) < 0.0:
                raise ValueError(f"{name}: found {shown(getattr(self, name))}, expected a number >= 0")
        if self.second_limit is not None and not 0.0 < self.second_limit < math.inf:
            raise ValueError(f"second_limit: found {shown(self.second_limit)}, expected a finite number > 0")
        if self.second_count is not None:
            arguments.integer(self.second_count, "second_count", at_least=0)
        if self.moments_sha256 is not None:
            arguments.string(self.moments_sha256, "moments_sha256")
        if self.evidence_note is not None:
            arguments.string(self.evidence_note, "evidence_note")
        for name in _TABLES:
            arguments.mapping(getattr(self, name), name)
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        arguments.choice(self.gate, GATE, "gate")
        if self.second_route != "none" and (self.second_z is None or self.second_limit is None):
            raise ValueError(f"second_z: found None, expected the largest |z| against {self.second_route}")
        if (self.evidence_z is None) != (self.evidence_limit is None):
            raise ValueError("evidence_limit: found one of evidence_z and evidence_limit, expected both or none")

    @property
    def agrees(self) -> bool:
        """Whether the second route, if there is one, agrees, of log Z too; NaN does not."""
        pairs = (self.second_z, self.second_limit), (self.evidence_z, self.evidence_limit)
        return all(z is None or limit is None or z <= limit for z, limit in pairs)

    @property
    def certified(self) -> bool:
        """The gate is met and the second route agrees."""
        return self.gate == "met" and self.agrees

    def to_toml(self) -> str:
        """Text of the file, one field a line, tables at the end; what a card does not have is left out."""
        lines = ["# The evidence behind the .npz of the same name; made by `triad truth`, not by hand.", ""]
        lines.append(f"schema = {_value(SCHEMA)}")
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name not in _TABLES and value is not None:
                lines.append(f"{entry.name} = {_value(value)}")
        for table in _TABLES:
            if getattr(self, table) or table == "versions":
                lines += ["", f"[{table}]"]
                lines += [f"{_value(name)} = {_value(value)}" for name, value in sorted(getattr(self, table).items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str, where: str = "card") -> EvidenceCard:
        """Inverse of `to_toml`; loud on a field that is unknown or missing."""
        try:
            values: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise storage.FileFormatError(f"{where}: found a damaged card ({error}), expected TOML") from error
        if values.pop("schema", None) != SCHEMA:
            raise storage.FileFormatError(f"{where}: found no schema {SCHEMA!r}, expected it")
        known = {entry.name for entry in fields(cls)}
        optional = {
            entry.name for entry in fields(cls) if entry.default is None or entry.name in set(_TABLES) - {"versions"}
        }
        storage.check_keys(set(values), known, known - optional, where)
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise storage.FileFormatError(f"{where}: {error}") from error

    def save_with(self, path: Path, moments: bytes) -> None:
        """Write moments, the bytes of a .npz, to path, and beside it this card, which holds their digest.

        Both are there under other names before one takes its place; what a kill in between tears apart is refused.
        """
        card = replace(self, moments_sha256=hashlib.sha256(moments).hexdigest())
        storage.write_together({path: moments, path.with_suffix(".toml"): card.to_toml().encode()})

    def check_moments(self, path: Path) -> None:
        """Raise FileFormatError if the .npz at path is not the one that this card came with."""
        if self.moments_sha256 is None:
            return
        if hashlib.sha256(path.read_bytes()).hexdigest() != self.moments_sha256:
            raise storage.FileFormatError(
                f"{path}: found moments that are not those of {path.with_suffix('.toml').name}, expected the pair as "
                "it was written; make both again"
            )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the card, atomically."""
        storage.write_text(path, self.to_toml())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> EvidenceCard:
        """Read what `save` wrote."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: found no file, expected the card of a truth")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise storage.FileFormatError(f"{path}: found a damaged card ({error}), expected TOML in UTF-8") from error
        return cls.from_toml(text, where=str(path))


def _value(value: Any) -> str:
    """TOML of a number or a text: JSON's forms are among TOML's, but for infinities and NaN."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(entry) for entry in value) + "]"
    return json.dumps(value, ensure_ascii=False)
