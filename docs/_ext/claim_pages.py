"""Write the pages of the claims before the documentation is read, docs/claims/<paper>.md, and link to them.

{claim}`paper:id` is a link to the claim with its state, as it is when the page is built.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def write(app: Sphinx) -> None:
    """A page for each paper; one that would be the same as before is left alone."""
    from validation.claims import atlas, protocol, results
    from validation.reproduce import catalogue

    folder = Path(app.srcdir) / "claims"
    folder.mkdir(exist_ok=True)
    stale = catalogue.stale()
    papers = results.load()
    for key, claims in papers.items():
        path, text = folder / f"{key}.md", atlas.paper_page(claims, protocol.load().get(key, {}), stale)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.glob("*.md"):
        if path.stem not in papers:
            path.unlink()


def claim(_: str, rawtext: str, text: str, *__: Any, **___: Any) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """The role; LookupError for a paper or a claim that there is not."""
    from validation.claims import results

    paper, _, id = text.partition(":")
    state = results.load()[paper].claim(id).state
    link = nodes.reference(rawtext, f"{text}, {state}", refuri=f"claims/{paper}.html#{id}")
    return [link], []


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the hook and the role."""
    app.add_role("claim", claim)
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
