"""The inventories of the five papers: what there is to realise, read from `inventory/<paper>.toml`."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, TypeAlias

from validation.door.quoting import shown

Equation: TypeAlias = tuple[str, str]  # (key of the paper, id in its inventory)

KINDS = (
    "definition",
    "identity",
    "bound",
    "approximation",
    "update",
    "objective",
    "gradient",
    "prediction",
    "sampler",
    "protocol",
)
_NUMBER = re.compile(r"(?:[A-Z]\.)?[0-9]{1,6}")  # (11) or (A.3), as papers number their displays
_DECIDING = re.compile(r"tests/[\w/]+\.py::\w+|[\w-]+/[\w-]+/[\w-]+")  # a test, or a check of triad verify
SLIP = "slip"  # kind of an entry that is no formula: a slip of the paper, in words
ALLOW_LIST = "not_executable.toml"

# Keys of a table with the type each must have; those of the second group may be left out.
_PAPER_KEYS: dict[str, type] = {
    "key": str,
    "title": str,
    "authors": str,
    "year": int,
    "venue": str,
    "complete": bool,
}
_PAPER_OPTIONAL: dict[str, type] = {"numbered": str}
_ENTRY_KEYS: dict[str, type] = {
    "id": str,
    "section": str,
    "title": str,
    "kind": str,
    "inputs": list,
    "outputs": list,
    "function": str,
}
_SLIP_KEYS: dict[str, type] = {"id": str, "section": str, "printed": str, "meant": str}
# Why the print is wrong, the independent number that decides, and the tests and checks that make that number again.
_REASON: dict[str, type] = {"because": str, "number": str, "decides": str}
_SLIP_OPTIONAL: dict[str, type] = {"denies": list, **_REASON}
_ENTRY_OPTIONAL: dict[str, type] = {"note": str, "latex": str, "latex_printed": str, "denies": list, **_REASON}


@dataclass(frozen=True, slots=True)
class Entry:
    """One equation, display, algorithm or protocol of a paper; `function` is a proposed name, not an address.

    latex: the formula as it is realised, empty where the entry is none; latex_printed: a misprint as it stands. What
    tells the two apart stands in \\mark{...}. denies: claims of the paper that a misprint or slip contradicts.
    because: why the print is wrong, in a sentence; number: what an independent route gives and what the print gives;
    decides: the tests (FILE::NAME) and checks of `triad verify` that compute the number again.
    """

    paper: str
    id: str
    section: str
    title: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: str
    note: str = ""
    latex: str = ""
    latex_printed: str = ""
    denies: tuple[str, ...] = ()
    because: str = ""
    number: str = ""
    decides: tuple[str, ...] = ()

    @property
    def equation(self) -> Equation:
        """The address (paper, id)."""
        return (self.paper, self.id)


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper and its entries in printed order; `complete` turns an open entry into a failure of the audit."""

    key: str
    title: str
    authors: str
    year: int
    venue: str
    complete: bool
    entries: tuple[Entry, ...]
    numbered: str = ""
    symbols: Mapping[str, str] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the entries, in printed order."""
        return tuple(entry.id for entry in self.entries)

    @property
    def numbers(self) -> str:
        """What the paper numbers, in words: (1) to (28)."""
        parts = [part.partition("-") for part in self.numbered.split(" and ") if part]
        return " and ".join(f"({first}) to ({last})" if last else f"({first})" for first, _, last in parts)

    def near(self, id: str, most: int = 3) -> tuple[str, ...]:
        """Numbers of equations next to one that there is none of, in printed order."""
        letter, _, number = id.rpartition(".")
        same = [name for name in self.ids if _NUMBER.fullmatch(name) and name.rpartition(".")[0] == letter]
        same = same or [name for name in self.ids if _NUMBER.fullmatch(name)]
        closest = sorted(same, key=lambda name: abs(int(name.rpartition(".")[2]) - int(number)))[:most]
        return tuple(name for name in self.ids if name in closest)


@dataclass(frozen=True, slots=True)
class Inventory:
    """All papers by key, and the allow-list: address -> why no program can realise it."""

    papers: Mapping[str, Paper]
    not_executable: Mapping[Equation, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Entry]:
        """Every entry of every paper."""
        for paper in self.papers.values():
            yield from paper.entries

    def paper(self, key: str) -> Paper:
        """The paper with this key. LookupError names the keys nearest to an unknown one."""
        if key not in self.papers:
            raise LookupError(f"paper: found {shown(key)}, expected {nearest(key, self.papers)}")
        return self.papers[key]

    def entry(self, paper: str, id: str) -> Entry:
        """The entry at (paper, id). LookupError names the nearest addresses."""
        for entry in self.paper(paper).entries:
            if entry.id == id:
                return entry
        numbers = self.papers[paper].numbers
        if numbers and _NUMBER.fullmatch(id):
            near = ", ".join(map(repr, self.papers[paper].near(id)))
            raise LookupError(f"id: found {shown(id)} in {paper}, which numbers {numbers}; near it are {near}")
        raise LookupError(f"id: found {shown(id)} in {paper}, expected {nearest(id, self.papers[paper].ids)}")


def nearest(word: str, known: Iterable[str]) -> str:
    """Words of `known` that `word` may have been meant as: close ones, else those that contain it, else a few."""
    words = list(known)
    if not words:
        return "nothing: none is known"
    folded = {other.casefold(): other for other in words}
    close = [folded[name] for name in difflib.get_close_matches(word.casefold(), folded, n=4, cutoff=0.6)]
    close = close or [other for other in words if word and word.casefold() in other.casefold()][:6]
    if not close and len(words) <= 8:
        close = words
    if not close:
        return f"one of {len(words)}, such as {', '.join(map(repr, words[:4]))}"
    return "one of " + ", ".join(map(repr, close)) if len(close) > 1 else repr(close[0])


def check_table(where: str, table: Any, required: dict[str, type], optional: dict[str, type]) -> dict[str, Any]:
    """Check the keys of a TOML table and the types of its values (a float may be an int), and return it.

    Raises ValueError that starts with `where`.
    """
    if not isinstance(table, dict):
        raise ValueError(f"{where}: found {type(table).__name__}, expected a table")  # noqa: TRY004 - the contents of a file are no type
    for name in table:
        if name not in required and name not in optional:
            raise ValueError(f"{where}: found key {name!r}, expected {nearest(name, [*required, *optional])}")
    for name, kind in {**required, **optional}.items():
        if name not in table:
            if name in required:
                raise ValueError(f"{where}: found no {name!r}, expected a value of type {kind.__name__}")
            continue
        value: Any = table[name]
        # bool is an int in Python; a year = true is still a slip.
        fits = isinstance(value, (int, float) if kind is float else kind)
        fits = fits and not (kind in (int, float) and isinstance(value, bool))
        if not fits:
            raise ValueError(f"{where}: {name}: found {shown(value)}, expected a value of type {kind.__name__}")
        if kind is str and not value.strip():
            raise ValueError(f"{where}: {name}: found an empty text, expected some")
        if kind is list and not all(isinstance(item, str) for item in value):
            raise ValueError(f"{where}: {name}: found {shown(value)}, expected a list of texts")
    return table


def read_paper(text: str, name: str) -> Paper:
    """One inventory from its TOML text; `name` is the file's stem and must be the paper's key.

    Raises ValueError: unknown or missing key, wrong type, unknown kind, an id given twice.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name}.toml: found no valid TOML: {error}") from error
    for part in data:
        if part not in ("paper", "symbols", "entry", "slip"):
            raise ValueError(f"{name}.toml: found [{part}], expected [paper], [symbols], [[entry]] or [[slip]]")
    about = check_table(f"{name}.toml [paper]", data.get("paper"), _PAPER_KEYS, _PAPER_OPTIONAL)
    if about["key"] != name:
        raise ValueError(f"{name}.toml [paper]: key: found {shown(about['key'])}, expected {name!r}, the file's name")
    symbols = data.get("symbols", {})
    if not isinstance(symbols, dict) or not all(isinstance(value, str) for value in symbols.values()):
        raise ValueError(f"{name}.toml [symbols]: found {shown(symbols)}, expected texts")
    listed = data.get("entry", [])
    if not isinstance(listed, list):
        raise ValueError(f"{name}.toml: entry: found {type(listed).__name__}, expected [[entry]]")  # noqa: TRY004 - see check_table
    entries: list[Entry] = []
    visited: set[str] = set()
    for number, raw in enumerate(listed, start=1):
        where = f"{name}.toml entry {number}"
        row = check_table(where, raw, _ENTRY_KEYS, _ENTRY_OPTIONAL)
        if row["kind"] not in KINDS:
            raise ValueError(f"{where}: kind: found {shown(row['kind'])}, expected one of {', '.join(KINDS)}")
        if row["id"] in visited:
            raise ValueError(f"{where}: id: found {shown(row['id'])} a second time, expected ids to be unique")
        visited.add(row["id"])
        entries.append(
            Entry(
                paper=name,
                id=row["id"],
                section=row["section"],
                title=row["title"],
                kind=row["kind"],
                inputs=tuple(row["inputs"]),
                outputs=tuple(row["outputs"]),
                function=row["function"],
                note=row.get("note", ""),
                latex=row.get("latex", ""),
                latex_printed=row.get("latex_printed", ""),
                denies=tuple(row.get("denies", ())),
                **_reason(where, row),
            )
        )
    entries += _slips(name, data.get("slip", []), visited)
    return Paper(**about, entries=tuple(entries), symbols=symbols)


def _slips(name: str, listed: Any, observed: set[str]) -> Iterator[Entry]:
    """Slips that change no number, as entries whose title says what is printed and what is meant."""
    if not isinstance(listed, list):
        raise ValueError(f"{name}.toml: slip: found {type(listed).__name__}, expected [[slip]]")  # noqa: TRY004 - see check_table
    for number, raw in enumerate(listed, start=1):
        where = f"{name}.toml slip {number}"
        row = check_table(where, raw, _SLIP_KEYS, _SLIP_OPTIONAL)
        if row["id"] in observed:
            raise ValueError(f"{where}: id: found {shown(row['id'])} a second time, expected ids to be unique")
        observed.add(row["id"])
        title = f"printed: {row['printed']}; meant: {row['meant']}"
        denies = tuple(row.get("denies", ()))
        yield Entry(name, row["id"], row["section"], title, SLIP, (), (), "", denies=denies, **_reason(where, row))


def _reason(where: str, row: Mapping[str, str]) -> dict[str, Any]:
    """Why the print is wrong, as fields of an entry; empty where none of the three keys is given."""
    given = [key for key in _REASON if key in row]
    if not given:
        return {}
    if missing := [key for key in _REASON if key not in row]:
        raise ValueError(
            f"{where}: found {shown(given[0])} without {shown(missing[0])}, expected {', '.join(_REASON)} or none"
        )
    if row["because"].endswith(".") or ". " in row["because"]:
        raise ValueError(f"{where}: because: found {shown(row['because'])}, expected one sentence without a full stop")
    if not re.search("[0-9]", row["number"]):
        raise ValueError(f"{where}: number: found {shown(row['number'])}, expected a text with a number in it")
    decides = tuple(part.strip() for part in row["decides"].split(","))
    for address in decides:
        if not _DECIDING.fullmatch(address):
            raise ValueError(
                f"{where}: decides: found {shown(address)}, expected tests/FILE.py::NAME or KIND/METHOD/NAME"
            )
    return {"because": row["because"], "number": row["number"], "decides": decides}


def read_allow_list(text: str, papers: Mapping[str, Paper]) -> dict[Equation, str]:
    """The allow-list from its TOML text: a table per paper, id = reason. ValueError for an unknown id or no reason."""
    allowed: dict[Equation, str] = {}
    known = Inventory(papers)
    for key, reasons in tomllib.loads(text).items():
        if not isinstance(reasons, dict):
            raise ValueError(f"{ALLOW_LIST}: {key}: found {shown(reasons)}, expected a table")  # noqa: TRY004 - see check_table
        for id, reason in reasons.items():
            try:
                entry = known.entry(key, id)
            except LookupError as error:
                raise ValueError(f"{ALLOW_LIST}: {error.args[0]}") from error
            if not isinstance(reason, str) or not reason.strip():
                raise ValueError(f"{ALLOW_LIST}: {key}:{id}: found {shown(reason)}, expected the reason")
            allowed[entry.equation] = reason
    return allowed


def load(folder: Traversable | None = None) -> Inventory:
    """Every inventory and the allow-list of a folder; by default those that ship with the package.

    Raises ValueError, naming file and entry, for anything that is not as it should be.
    """
    folder = files("validation.ledger") / "inventory" if folder is None else folder
    result = sorted((item for item in folder.iterdir() if item.name.endswith(".toml")), key=lambda item: item.name)
    papers = {
        name: read_paper(item.read_text(encoding="utf-8"), name)
        for item in result
        if item.name != ALLOW_LIST
        for name in [item.name.removesuffix(".toml")]
    }
    if not papers:
        raise ValueError(f"folder: found no inventory in {folder}, expected <paper>.toml")
    lists = [item for item in result if item.name == ALLOW_LIST]
    allowed = read_allow_list(lists[0].read_text(encoding="utf-8"), papers) if lists else {}
    return Inventory(papers, allowed)
