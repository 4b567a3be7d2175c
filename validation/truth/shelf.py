"""The made truths of the library on the disk: one .npz and one card each, in `library/`; and any truth by its name.

A file whose rows come from scikit-learn or from a generator holds its problem. Where they come from $TRIAD_DATA no row
is in it: the problem is made from the table and joined when it is read, and its digest says whether it fits.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path

from validation.door import storage
from validation.door.solution import SCHEMA, Solution
from validation.truth import library, store, withheld
from validation.truth.card import EvidenceCard
from validation.truth.evidence import agreement, mcse, routes_of
from validation.truth.make import Truth


def folder() -> Path:
    """Where the files of the library are."""
    return Path(str(resources.files("validation.truth"))) / "library"


def is_made(name: str) -> bool:
    """Whether there is a file for it, made of the problem that the table has today."""
    path = folder() / f"{name}.toml"
    return path.is_file() and EvidenceCard.load(path).problem_sha256 == library.fingerprints().get(name)


def made() -> tuple[str, ...]:
    """Names of the posteriors of the library that are made, in the table's order."""
    return tuple(name for name in library.posteriors() if is_made(name))


def names() -> tuple[str, ...]:
    """Names of all truths at hand: those that `triad verify` reads, those of withheld data, those of the library."""
    return (*store.names(), *withheld.SETTINGS, *made())


def card_of(name: str) -> EvidenceCard:
    """The card of a truth, which needs no data.

    Raises
    ------
    KeyError             no truth has that name
    FileNotFoundError    the library defines it, and it is not made
    """
    return EvidenceCard.load(_path(name).with_suffix(".toml"))


def full_card(name: str) -> EvidenceCard:
    """The card of a truth, with what older ones do not have: log Z by each route, and the largest standard errors.

    Raises
    ------
    KeyError, FileNotFoundError    as `card_of`
    """
    return load(name).card if name in store.RECIPES else card_of(name)


def _completed(truth: Truth) -> Truth:
    """The truths that `triad verify` reads are older than these fields: their solutions have the numbers."""
    routes = routes_of(truth.solution)
    about = agreement(routes, "no route gives it", "no second route is in its file")
    return Truth(truth.solution, replace(truth.card, evidence=routes, mcse=mcse(truth.solution), **about))


@cache
def load(name: str) -> Truth:
    """A truth by its name: problem, solution and card, and `to_arviz()`.

    Raises
    ------
    KeyError                   no truth has that name
    FileNotFoundError          the library defines it, and it is not made: `triad truth make NAME`
    DatasetNotFoundError       its rows come from a folder, and $TRIAD_DATA does not have them
    storage.FileFormatError    what is at hand is not what the truth is of
    """
    if name in store.RECIPES:
        return _completed(store.load(name))
    if name in withheld.SETTINGS:
        return _completed(withheld.load(name))
    path = _path(name)
    if not library.get(name).withheld:
        return Truth.load(path)
    problem = library.question(name)
    card = EvidenceCard.load(path.with_suffix(".toml"))
    card.check_moments(path)
    arrays = storage.load_npz(path, withheld.SCHEMA)
    arrays |= {f"problem/{key}": value for key, value in problem.to_arrays().items()}
    return Truth(Solution.from_arrays(arrays, where=name), card)


def save(name: str, truth: Truth) -> None:
    """Put a truth of the library in its place; nothing of the problem where its rows come from a folder."""
    card = replace(truth.card, problem_sha256=library.fingerprint(library.question(name)))
    arrays = truth.solution.to_arrays()
    if not library.get(name).withheld:
        card.save_with(folder() / f"{name}.npz", storage.npz_bytes(SCHEMA, arrays))
    else:
        kept = {key: value for key, value in arrays.items() if not key.startswith("problem/")}
        card.save_with(folder() / f"{name}.npz", storage.npz_bytes(withheld.SCHEMA, kept))
    load.cache_clear()


def _path(name: str) -> Path:
    if name in store.RECIPES:
        return store.folder() / f"{name}.npz"
    if name in withheld.SETTINGS:
        return withheld.folder() / f"{name}.npz"
    library.get(name)
    path = folder() / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(f"{name}: found no file, expected {path}: `triad truth make {name}` makes it")
    return path
