"""Citations of equations in prose: "villacampa2020 (A.20)" and the addresses of the cards that they mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

# what stands between backquotes in prose: every second part of a split
CODE = re.compile(r"`([^`\s](?:[^`\n]*[^`\s])?)`(?!\w)")
_NUMBER = re.compile(r"\((?P<id>(?:[A-Z]\.)?\d+)\)")
# a citation ends with its sentence, at a semicolon and at an empty line
_END = re.compile(r"\n\s*\n|;|\.\s")

Addresses = Mapping[str, Mapping[str, str]]  # paper -> id of an entry -> address of its card within the atlas


def cited(text: str, known: Addresses) -> Iterator[tuple[str, str]]:
    """The text in pieces, each with the address that it leads to, an empty one for none.

    A paper's key leads to its page, the numbers in parentheses that follow it in the same sentence to their cards.
    """
    # within a dotted name or between quotes a key is no citation
    papers = re.compile(rf"(?<![\w./\"'#;-])(?:{'|'.join(map(re.escape, known)) or '(?!)'})(?![\w/\"'&]|\.\w)")
    named = list(papers.finditer(text))
    starts = [match.start() for match in named]
    place = 0
    for match, following in zip(named, [*starts[1:], len(text)][: len(named)], strict=True):
        yield text[place : match.start()], ""
        yield match.group(), f"{match.group()}.html"
        place = match.end()
        end = _END.search(text, place, following)
        for number in _NUMBER.finditer(text, place, end.start() if end else following):
            address = known[match.group()].get(number["id"])
            if address is not None:
                yield text[place : number.start()], ""
                yield number.group(), address
                place = number.end()
    yield text[place:], ""


@cache
def addresses() -> dict[str, dict[str, str]]:
    """Of all cards of the inventories."""
    from validation.ledger import atlas, inventory

    known = inventory.load()
    return {
        key: {entry.id: atlas.address(key, entry.id) for entry in known if entry.paper == key} for key in known.papers
    }
