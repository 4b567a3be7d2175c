"""Write the pages of the atlas of equations before the documentation is read: docs/atlas/<paper>.md.

Formulas become MathML, which browsers typeset themselves, so that a page loads nothing and prints sharply.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, ClassVar

from cited import addresses, cited
from latex2mathml.converter import convert
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.application import Sphinx
from sphinx.domains import Domain, ObjType

_ROOT = Path(__file__).resolve().parents[2]
_COLOUR = "red"  # what \mark becomes on the way; the page's own style decides how it looks


def mathml(latex: str) -> str:
    """A display as MathML.

    latex: amsmath, and \\mark{...} around what tells two forms apart.
    """
    text = latex.replace("{aligned}", "{align*}").replace(r"\mark{", rf"\textcolor{{{_COLOUR}}}{{")
    # a single upright letter would be set in italics
    text = re.sub(r"\\mathrm\{(\w)\}", r"\\text{\1}", text)
    made = convert(text, display="block")
    return re.sub(rf'<mstyle mathcolor="{_COLOUR}">', '<mstyle class="differs">', made)


def source(text: str) -> str:
    """Python in the colours of the theme, with the equations that its docstrings cite as links."""
    html = highlight(text, PythonLexer(), HtmlFormatter(nowrap=True))
    pieces = (f'<a href="{address}">{piece}</a>' if address else piece for piece, address in cited(html, addresses()))
    return f'<div class="highlight"><pre>{"".join(pieces)}</pre></div>'


def write(app: Sphinx) -> None:
    """All pages; one that would be the same as before is left alone, so that it is not read again."""
    from validation.ledger import atlas, audit, perturbed, static

    sources = audit.default_sources()
    ledger = audit.build(sources)
    functions = {item.address: item for item in static.functions(sources.packages).functions}
    folder = Path(app.srcdir) / "atlas"
    folder.mkdir(exist_ok=True)
    words = tomllib.loads((Path(app.srcdir) / "symbols.toml").read_text(encoding="utf-8"))
    known = atlas.Known(words, perturbed.load(), sources.root)
    pages = {f"{key}.md": atlas.page(ledger, key, functions, mathml, source, known) for key in ledger.inventory.papers}
    pages["index.md"] = atlas.index(ledger)
    for name, text in pages.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.glob("*.md"):
        if path.name not in pages:
            path.unlink()


class Equations(Domain):
    """Equations as objects of the documentation, so that its search finds "A.20" and "villacampa2020:A.20"."""

    name = "eq"
    label = "Equations"
    object_types: ClassVar[dict[str, ObjType]] = {"equation": ObjType("equation")}

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        """Name, displayed name, type, page, anchor and priority of each entry of the ledger."""
        from validation.ledger import atlas, inventory

        for paper, known in inventory.load().papers.items():
            for entry in known.entries:
                name = f"{paper}:{entry.id}"
                yield name, name, "equation", f"atlas/{paper}", atlas.anchor(entry.id), 1

    def resolve_any_xref(self, *_: Any) -> list[tuple[str, Any]]:
        """No link: a bare number in the text is no equation of one paper."""
        return []

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        """Nothing is kept: entries come from the inventory."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the hook."""
    app.add_domain(Equations)
    app.connect("builder-inited", write)
    app.add_js_file("atlas.js")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
