"""Docstrings as they were written: the first line is prose, the rest keeps its columns.

The docstrings of this project align shapes and formulas by columns, which reStructuredText would take apart. So the
first paragraph is escaped and shown as text, and what follows as a literal block. Where a docstring cites an equation
of a paper ("villacampa2020 (A.20)"), the number is a link to its card in the atlas.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from cited import CODE, Addresses, addresses, cited
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

_SPECIAL = re.compile(r"([\\*`_|])")
# The fields of a NamedTuple have docstrings of its own making, which say nothing.
_ALIAS = re.compile(r"Alias for field number \d+")


def as_written(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:  # the signature is that of the event autodoc-process-docstring
    """Rewrite the lines of one docstring in place."""
    text = list(lines)
    while text and not text[-1].strip():
        text.pop()
    if not text or _ALIAS.fullmatch(text[0].strip()):
        lines[:] = []
        return
    end = next((i for i, line in enumerate(text) if not line.strip()), len(text))
    summary = " ".join(line.strip() for line in text[:end])
    rest = text[end + 1 :]
    lines[:] = [linked(summary, addresses(), prose=True), ""]
    if any(line.strip() for line in rest):
        body = linked("\n".join(rest), addresses()).splitlines()
        lines += [".. parsed-literal::", "   :class: docstring", "", *(f"   {line}".rstrip() for line in body), ""]


def linked(text: str, known: Addresses, *, prose: bool = False) -> str:
    """Text as reStructuredText that shows it as it is, with citations of equations as links.

    In prose, what stands between backquotes is code; elsewhere the quotes are left, they keep the columns.
    """
    return "".join(
        f"\\ :card:`{piece} <{address}>`\\ " if address else _shown(piece, prose=prose)
        for piece, address in cited(text, known)
    )


def _shown(text: str, *, prose: bool) -> str:
    parts = CODE.split(text) if prose else [text]  # every second one stood between backquotes
    return "".join(
        f"\\ ``{part}``\\ " if place % 2 else _SPECIAL.sub(r"\\\1", part) for place, part in enumerate(parts)
    )


class Card(SphinxRole):
    """The role `card`: "text <address from the folder of the atlas>"."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """One link, as short as it can be from this page."""
        text, _, address = self.text.rstrip(">").rpartition(" <")
        uri = posixpath.relpath(f"atlas/{address}", posixpath.dirname(self.env.docname) or ".")
        return [nodes.reference("", text, refuri=uri, internal=True, classes=["card"])], []


_ARRAY = re.compile(r"(?:numpy\.)?ndarray\[tuple\[Any, \.\.\.\], (?:numpy\.)?dtype\[(?:numpy\.)?float64\]\]")


def short_arrays(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """`Array` for the type that nearly every argument has; docstrings say the shapes."""
    return (
        None if signature is None else _ARRAY.sub("Array", signature),
        None if returns is None else _ARRAY.sub("Array", returns),
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the hooks."""
    app.add_role("card", Card())
    app.connect("autodoc-process-docstring", as_written)
    app.connect("autodoc-process-signature", short_arrays)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
