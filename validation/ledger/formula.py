"""The formula of an entry, from the docstrings of the functions that realise it.

A display is indented there. Where there is none, the first line is the formula, or what the entry does, and then the
address.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from validation.ledger.executed import printed_first
from validation.ledger.registry import Function

# a section of a NumPy docstring, after which indented lines are no displays
_SECTION = re.compile(r"^\w[\w ]*\n-{3,}$", re.MULTILINE)
# the address at the end of a first line: ": (33) of villacampa2017.", ": section 4.1."
_ADDRESS = re.compile(r": [^:]*(?:\(|section|appendix|supplement|Figure|Table|Algorithm)[^:]*\.?$", re.IGNORECASE)
_NUMBER = re.compile(r"\(([\w.]+)\)(?=[\s,;]|$)")


def formula(functions: Iterable[Function], id: str) -> str:
    """The display of an entry, of several numbered ones in a docstring that of this number; else the first line."""
    listed = printed_first(functions)
    for function in listed:
        if shown := display(function.docstring, id):
            return shown
    return _ADDRESS.sub("", listed[0].summary) if listed else ""


def display(docstring: str, id: str) -> str:
    """The indented lines of a docstring above its sections, or those that end in the number (id) among them."""
    section = _SECTION.search(docstring)
    head = docstring[: section.start()] if section else docstring
    blocks = [
        block
        for block in (part.strip("\n") for part in re.split(r"\n[ ]*\n", head)[1:])
        if block and all(line.startswith("    ") for line in block.splitlines())
    ]
    for block in blocks:
        lines = block.splitlines()
        ends = [number for number, line in enumerate(lines) if f"({id})" in line[-24:]]
        if ends:
            earlier = [number for number in range(ends[0]) if _NUMBER.search(lines[number][-24:])]
            first = earlier[-1] + 1 if earlier else 0
            return textwrap.dedent("\n".join(lines[first : ends[-1] + 1]))
    return textwrap.dedent("\n\n".join(blocks))
