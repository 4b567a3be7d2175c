"""The directive `vocabulary`: the table of docs/symbols.toml, read when the page is built."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_WIDTHS = (20, 25, 55)


class Vocabulary(SphinxDirective):
    """Name, shape and meaning of every word, in alphabetical order without regard to case."""

    option_spec: ClassVar[dict[str, object]] = {}

    def run(self) -> list[nodes.Node]:
        """One table."""
        path = Path(self.env.srcdir) / "symbols.toml"
        self.env.note_dependency(str(path))
        words = tomllib.loads(path.read_text(encoding="utf-8"))
        rows = (
            (nodes.literal(text=word), nodes.Text(words[word]["shape"]), nodes.Text(words[word]["meaning"]))
            for word in sorted(words, key=lambda entry: (entry.casefold(), entry))
        )
        return [table_of(("name", "shape", "meaning"), _WIDTHS, rows)]


def table_of(titles: Sequence[str], widths: Sequence[int], rows: Iterable[Sequence[nodes.Node]]) -> nodes.table:
    """A table with a head; widths are shares of the line."""
    group = nodes.tgroup(cols=len(widths))
    group += [nodes.colspec(colwidth=width) for width in widths]
    head, body = nodes.thead(), nodes.tbody()
    head += _row(nodes.Text(title) for title in titles)
    body += [_row(row) for row in rows]
    group += [head, body]
    table = nodes.table()
    table += group
    return table


def _row(cells: Iterable[nodes.Node]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        entry, paragraph = nodes.entry(), nodes.paragraph()
        paragraph += cell
        entry += paragraph
        row += entry
    return row


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("vocabulary", Vocabulary)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
