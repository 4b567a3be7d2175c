"""The directive `modules`: every module of the packages named, with the first line of its docstring."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import ClassVar

from cited import CODE, addresses, cited
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from vocabulary import table_of

_ROOT = Path(__file__).resolve().parents[2]


class Modules(SphinxDirective):
    """A heading and a table for each package named; nothing is imported."""

    has_content = False
    optional_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, object]] = {}

    def run(self) -> list[nodes.Node]:
        """The sections."""
        made: list[nodes.Node] = []
        for package in self.arguments[0].split():
            section = nodes.section(ids=[f"package-{package}"])
            section += nodes.title(text=package)
            rows = []
            for file in sorted((_ROOT / package).rglob("*.py")):
                self.env.note_dependency(str(file))
                parts = file.relative_to(_ROOT).with_suffix("").parts
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                rows.append((nodes.literal(text=name), _linked(first_line(file.read_text(encoding="utf-8")))))
            section += table_of(("module", "what it holds"), (40, 60), sorted(rows, key=lambda row: row[0].astext()))
            made.append(section)
        return made


def _linked(text: str) -> nodes.inline:
    """Text with citations of equations as links and `code` as code; the map stands beside the folder of the atlas."""
    made = nodes.inline()
    for piece, address in cited(text, addresses()):
        if address:
            made += nodes.reference("", piece, refuri=f"atlas/{address}", internal=True)
        else:
            made += [
                nodes.literal(text=part) if i % 2 else nodes.Text(part) for i, part in enumerate(CODE.split(piece))
            ]
    return made


def first_line(source: str) -> str:
    """Of the docstring of a module; its first paragraph where that goes over several lines."""
    docstring = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("modules", Modules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
