"""The state of every entry: which functions realise it, which tests check it, what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from validation.ledger import collection, executed, inventory, perturbed, static, stored
from validation.ledger.collection import Collection, MarkedTest
from validation.ledger.executed import ALGORITHM, Executed, Record
from validation.ledger.inventory import Entry, Equation, Inventory
from validation.ledger.registry import PACKAGES, Function, Package, Registry

VERIFIED, CORRECTED, NOT_EXECUTABLE, SLIP, OPEN = "verified", "corrected", "not executable", "slip", "open"
STATES = (VERIFIED, CORRECTED, NOT_EXECUTABLE, SLIP, OPEN)
SCHEMA = 4


@dataclass(frozen=True, slots=True)
class Sources:
    """What an audit reads: inventories, packages, and the repository with tests/ (None: without_tests says why)."""

    inventory: Inventory
    packages: tuple[Package, ...]
    root: Path | None
    without_tests: str = ""
    record: Record = field(default_factory=dict)
    kept: Path | None = None  # what perturbations did (`validation.ledger.perturbed`)


@dataclass(frozen=True, slots=True)
class Row:
    """One entry with its state, what it lacks for a better one, and what stands behind it.

    missing: why an entry is open; gaps: packages that realise a verified entry without a test of their own, and a
    misprint without its reason; executed: by whom, None for an entry without a corrected function and where nothing
    was measured.
    """

    entry: Entry
    state: str
    functions: tuple[Function, ...]
    printed: tuple[Function, ...]
    tests: tuple[MarkedTest, ...]
    missing: tuple[str, ...]
    gaps: tuple[str, ...]
    note: str
    executed: Executed | None = None

    @property
    def words(self) -> str:
        """By whom it is executed, in words; empty where that is unknown."""
        return "" if self.executed is None else self.executed.words

    @property
    def misprint(self) -> bool:
        """Whether the paper errs here: entries that need a reason."""
        return bool(self.printed) or self.entry.kind == inventory.SLIP


@dataclass(frozen=True, slots=True)
class Ledger:
    """The rows of all papers, and what is wrong with the collection: unknown ids, failed imports, bad markers.

    without_tests: why no test could be read; then nothing is said about states, unless they are the ones that were
    stored when the wheel was built (`stored`).
    """

    inventory: Inventory
    packages: tuple[Package, ...]
    rows: tuple[Row, ...]
    problems: tuple[str, ...]
    without_tests: str = ""
    record: Record = field(default_factory=dict)
    stored: bool = False

    @property
    def without_states(self) -> bool:
        """Whether nothing is known about states."""
        return bool(self.without_tests) and not self.stored

    def select(self, paper: str | None = None, id: str | None = None) -> tuple[Row, ...]:
        """The rows of a paper or of one entry. LookupError, naming near misses, if there is no such thing."""
        if paper is None:
            return self.rows
        self.inventory.paper(paper)
        if id is not None:
            self.inventory.entry(paper, id)
        return tuple(row for row in self.rows if row.entry.paper == paper and id in (None, row.entry.id))

    def failures(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """What makes the audit of these rows fail: every problem; open or never executed entries of complete papers."""
        still_open = [
            f"{row.entry.paper}:{row.entry.id}: open ({', '.join(row.missing)}), but the paper is complete"
            for row in rows
            if row.state == OPEN and self.inventory.papers[row.entry.paper].complete and not self.without_states
        ]
        return (*self.problems, *still_open, *self._never_executed(rows))

    def _never_executed(self, rows: Sequence[Row]) -> list[str]:
        """Entries that no run of `triad verify` executes, or of which the record does not know."""
        return [
            f"{row.entry.paper}:{row.entry.id}: found no check or solve of triad verify that executes it "
            f"({', '.join(item.address for item in executed.printed_first(row.functions))}), but the paper is "
            "complete; make executed measures anew"
            for row in rows
            if row.executed is not None
            and not row.executed.verified
            and self.inventory.papers[row.entry.paper].complete
        ]


def default_sources() -> Sources:
    """The shipped inventories, the four packages, and the repository around them if there is one."""
    try:
        root = collection.find_root()
        return Sources(inventory.load(), PACKAGES, root, record=executed.load(), kept=perturbed.FILE)
    except collection.NoTestsError as error:
        return Sources(inventory.load(), PACKAGES, None, str(error), executed.load(), perturbed.FILE)


def split_target(target: str | None, known: Inventory) -> tuple[str | None, str | None]:
    """PAPER or PAPER:EQ as (paper, id), an absent part None. LookupError, naming near misses, for an unknown one."""
    if target is None:
        return None, None
    paper, colon, id = target.partition(":")
    known.paper(paper)
    if not colon:
        return paper, None
    # (11) and Eq. 11 are written "11" here.
    id = id.strip().removeprefix("(").removesuffix(")")
    known.entry(paper, id)
    return paper, id


def state_of(
    functions: Sequence[Function], printed: Sequence[Function], tests: Sequence[MarkedTest], entry: Entry, allowed: bool
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """State, what is missing (if open), and gaps: packages with a function but no test of their own.

    A test counts for the functions of the package under whose folder it lies: it is rerun with those perturbed.
    """
    if entry.kind == inventory.SLIP:
        # what changes no number has nothing to compute: a number belongs to an entry with a printed form
        claimed = functions or printed or tests
        return (OPEN, ("found functions or tests of a slip, expected none",), ()) if claimed else (SLIP, (), ())
    packages = dict.fromkeys(function.package for function in functions)
    tested = {test.package for test in tests}
    gaps = tuple(f"{package}: no test" for package in packages if package not in tested) if tests else ()
    shows_misprint = any(claim.printed and claim.equation == entry.equation for test in tests for claim in test.claims)
    missing = []
    if not functions:
        missing.append("no corrected function" if printed else "no function")
    if not tests:
        missing.append("no test")
    elif functions and not tested & set(packages):
        missing.append("no test under " + " or ".join(f"tests/{package}" for package in packages))
    if printed and not shows_misprint:
        missing.append("no test with printed=True")
    if shows_misprint and not printed:
        missing.append("no function marked as_printed")
    if not missing:
        return (CORRECTED if printed else VERIFIED), (), gaps
    if allowed and not functions and not printed and not tests:
        return NOT_EXECUTABLE, (), ()
    return OPEN, tuple(missing), gaps


def assemble(sources: Sources, functions: Registry, tests: Collection) -> Ledger:
    """Put inventory, functions and tests together."""
    known = sources.inventory
    problems = [*functions.problems, *tests.problems]
    realised: dict[Equation, list[Function]] = {}
    checked: dict[Equation, list[MarkedTest]] = {}

    def place(equation: Equation, who: str) -> bool:
        try:
            known.entry(*equation)
        except LookupError as error:
            problems.append(f"{who}: {error.args[0]}")
            return False
        return True

    for function in functions.functions:
        for equation in function.equations:
            if place(equation, f"function {function.address}"):
                realised.setdefault(equation, []).append(function)
    for test in tests.tests:
        for equation in test.equations:
            if place(equation, f"test {test.key}"):
                checked.setdefault(equation, []).append(test)
    rows = []
    for entry in known:
        listed = realised.get(entry.equation, [])
        plain = tuple(function for function in listed if not function.as_printed)
        printed = tuple(function for function in listed if function.as_printed)
        own_tests = tuple(checked.get(entry.equation, []))
        reason = known.not_executable.get(entry.equation)
        state, missing, gaps = state_of(plain, printed, own_tests, entry, reason is not None)
        if reason is not None and (listed or own_tests):
            problems.append(
                f"{inventory.ALLOW_LIST}: {entry.paper}:{entry.id}: found functions or tests, expected none: "
                "take it off the list"
            )
        notes = [entry.note, *(f"printed: {function.summary}" for function in printed)]
        if state == NOT_EXECUTABLE:
            notes.append(reason or "")
        if (printed or entry.kind == inventory.SLIP) and not entry.because:
            gaps = (*gaps, "no reason (because, number, decides)")
        note = "; ".join(part for part in [*notes, *missing, *gaps] if part)
        by = sources.record.get(entry.equation, Executed()) if plain and sources.record else None
        rows.append(Row(entry, state, plain, printed, own_tests, missing, gaps, note, by))
    return Ledger(known, sources.packages, tuple(rows), tuple(problems), record=sources.record)


def of_repository(root: Path) -> Ledger:
    """The ledger of the packages and the tests that lie in the folder `root`: what a wheel is built with."""
    sources = Sources(inventory.load(), PACKAGES, root)
    return assemble(sources, static.functions(sources.packages, root=root), static.marked_tests(root))


def build(sources: Sources, paper: str = "") -> Ledger:
    """Read packages and tests, from the text of the files alone (`validation.ledger.static`), and put them together.

    With `paper` only files that name it are read: the rows of other papers then mean nothing. Without a repository the
    ledger has no tests and `without_tests` says why; states are then those that the wheel was built with, where there
    is one (`validation.ledger.stored`).
    """
    functions = static.functions(sources.packages, paper)
    tests = Collection((), ()) if sources.root is None else static.marked_tests(sources.root, paper)
    return _with_stored(replace(assemble(sources, functions, tests), without_tests=sources.without_tests), paper)


def _with_stored(ledger: Ledger, paper: str) -> Ledger:
    """The ledger itself, or one without tests with the states that came with the package.

    Of one paper alone nothing is said about rows of the others: their functions may not have been read.
    """
    held = stored.text() if ledger.without_tests else None
    if held is None:
        return ledger
    own = tuple(row for row in ledger.rows if paper in ("", row.entry.paper))
    restored, problems = stored.restored(own, held)
    known = {row.entry.equation: row for row in restored}
    rows = tuple(known.get(row.entry.equation, row) for row in ledger.rows)
    return replace(ledger, rows=rows, problems=(*ledger.problems, *problems), stored=True)


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows are in each state."""
    result = Counter(row.state for row in rows)
    return {state: result[state] for state in STATES}


def reasons(rows: Sequence[Row]) -> tuple[int, int]:
    """How many misprints and slips have a reason and the number that decides, and how many there are."""
    wanted = [row for row in rows if row.misprint]
    return sum(bool(row.entry.because) for row in wanted), len(wanted)


def per_package(rows: Sequence[Row], packages: Sequence[Package]) -> dict[str, dict[str, int]]:
    """For each package how many entries it realises, by how many functions, checked by how many tests."""
    table = {}
    for package in packages:
        functions = {item.address for row in rows for item in row.functions if item.package == package.name}
        tests = {item.key for row in rows for item in row.tests if item.package == package.name}
        entries = sum(any(item.package == package.name for item in row.functions) for row in rows)
        table[package.name] = {"entries": entries, "functions": len(functions), "tests": len(tests)}
    return table


def execution(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """How many entries with a function are executed by whom: all of them, and those that say what an algorithm does.

    solve: by a solve in a run of `triad verify`; verify: by its checks alone; tests: by tests alone.
    """
    table = {}
    for name, kinds in (("all", inventory.KINDS), ("algorithm", ALGORITHM)):
        own = [row.executed for row in rows if row.executed is not None and row.entry.kind in kinds]
        table[name] = {
            "entries": len(own),
            "solve": sum(bool(by.solve) for by in own),
            "verify": sum(by.verified and not by.solve for by in own),
            "tests": sum(not by.verified for by in own),
        }
    return table


def routes(test: MarkedTest, equation: Equation) -> tuple[str, ...]:
    """The routes by which a test checks an equation."""
    return tuple(dict.fromkeys(claim.route for claim in test.claims if claim.equation == equation))


def _function_json(function: Function, root: Path | None, full: bool) -> dict[str, Any]:
    """One function; with full, its signature, docstring and source."""
    file = Path(function.file)
    if root is not None and file.is_relative_to(root):
        file = file.relative_to(root)
    data: dict[str, Any] = {
        "package": function.package,
        "function": function.address,
        "as_printed": function.as_printed,
        "summary": function.summary,
        "file": file.as_posix(),
        "line": function.line,
    }
    if full:
        data |= {"signature": function.signature, "docstring": function.docstring, "source": function.source}
    return data


def _row_json(row: Row, root: Path | None, full: bool) -> dict[str, Any]:
    """One row."""
    entry = row.entry
    return {
        "paper": entry.paper,
        "id": entry.id,
        "section": entry.section,
        "title": entry.title,
        "kind": entry.kind,
        "inputs": list(entry.inputs),
        "outputs": list(entry.outputs),
        "state": row.state,
        "missing": list(row.missing),
        "gaps": list(row.gaps),
        "executed": None if row.executed is None else {"by": row.words, **asdict(row.executed)},
        "note": row.note,
        "because": entry.because,
        "number": entry.number,
        "decides": list(entry.decides),
        "functions": [_function_json(item, root, full) for item in (*row.functions, *row.printed)],
        "tests": [
            {
                "test": test.key,
                "package": test.package,
                "file": test.file,
                "line": test.line,
                "slow": test.slow,
                "claims": [
                    {"route": claim.route, "resolves": claim.resolves, "printed": claim.printed}
                    for claim in test.claims
                    if claim.equation == entry.equation
                ],
            }
            for test in row.tests
        ],
    }


def as_json(ledger: Ledger, rows: Sequence[Row], root: Path | None = None, full: bool = False) -> dict[str, Any]:
    """The ledger as plain data: the same for the same code, whenever and wherever it is made."""
    by_paper: dict[str, list[Row]] = {}
    for row in rows:
        by_paper.setdefault(row.entry.paper, []).append(row)
    papers: Mapping[str, Any] = ledger.inventory.papers
    return {
        "schema": SCHEMA,
        "papers": [
            {
                "paper": key,
                "title": papers[key].title,
                "complete": papers[key].complete,
                "counts": counts(own),
                "reasons": dict(zip(("given", "wanted"), reasons(own), strict=True)),
                "packages": per_package(own, ledger.packages),
                "executed": execution(own),
                "entries": [_row_json(row, root, full) for row in own],
            }
            for key, own in by_paper.items()
        ],
        "counts": counts(rows),
        "without_tests": ledger.without_tests,
        "stored": ledger.stored,
        "problems": list(ledger.problems),
        "failures": list(ledger.failures(rows)),
    }


def suggestion(target: str, known: Inventory) -> str:
    """Where an unknown id may have been meant to point: addresses in other papers."""
    paper, colon, id = target.partition(":")
    # An id without its paper is as frequent a slip as an id of another paper.
    id = id if colon and paper in known.papers else "" if colon else paper
    elsewhere = [f"{entry.paper}:{entry.id}" for entry in known if entry.id == id]
    return f"; found elsewhere: {', '.join(elsewhere)}" if elsewhere else ""
