"""The claims as pages for the documentation: one for each paper, a card for each claim, found by word and state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from html import escape

from validation.claims import page
from validation.claims.inventory import CELLS, MATHEMATICS, PARTS, SENTENCES, STATES, Claim, Claims
from validation.claims.protocol import Protocol

_RUN = ("sets", "splits", "counts", "smaller", "reading", "settles")


def paper_page(claims: Claims, protocols: Mapping[str, Protocol], stale: Collection[str]) -> str:
    """One paper: the headline, its registered protocol, other readings, and every claim.

    Parameters
    ----------
    claims       of `validation.claims.results.load`
    protocols    of the paper: experiment -> protocol
    stale        names of results that other code gave than today's
    """
    used = {claim.result.removesuffix(".csv") for claim in claims if claim.result}
    lines = [
        f"# Claims of {claims.paper}",
        "",
        f"[Rules](../claims.md), [what we found](../found.md), [equations](../atlas/{claims.paper}.md).",
        "",
        page.markdown(page.counts({claims.paper: claims})),
        f"{len(used & set(stale))} of {len(used)} results were made with code of `fast` that has changed since: their",
        "numbers stand, and are marked.",
        "",
    ]
    if sides := page.pool_lines(claims):
        lines += [
            "Cells on one side of print, by a sign test over all numbers of ours. Cells of one split are not",
            "independent, so that p is too small; what it shows is a data set or a reading that is not the paper's.",
            "",
            *(f"- {line}" for line in sides),
            "",
        ]
    lines += ["## Registered protocol", "", *_protocols(protocols)]
    if len(rows := page.readings(claims)) > 1:
        lines += [
            "## Other readings and smaller runs",
            "",
            "Numbers of runs that depart from the protocol: how far a reading moves a number. They decide nothing.",
            "",
            _details(f"{len(rows) - 1} cells", page.markdown(rows)),
            "",
        ]
    options = "".join(f'<option value="{escape(state)}">{escape(state)}</option>' for state in STATES)
    lines += [
        "## Claims",
        "",
        '<div class="atlas-tools" hidden><input type="search" placeholder="table, data set, method, word" '
        f'aria-label="filter the claims"><select aria-label="state"><option value="">all states</option>{options}'
        '</select><span role="status"></span></div>',
        "",
    ]
    for about in (SENTENCES, CELLS, MATHEMATICS, *(one for one in PARTS if one not in page.COUNTED)):
        chosen = [claim for claim in claims if claim.about == about]
        if chosen:
            lines += [f"### {PARTS[about].capitalize()}", "", *(_card(claim, stale) for claim in chosen), ""]
    return "\n".join(lines) + "\n"


def _protocols(protocols: Mapping[str, Protocol]) -> Iterable[str]:
    for name, one in protocols.items():
        yield f"`{name}`"
        for key in _RUN:
            if text := getattr(one, key):
                yield f": {key}: {text}"
        for key in ("printed", "silent"):
            if options := getattr(one, key):
                yield f": {key}: {', '.join(f'{option} = {value}' for option, value in options.items())}"
        yield ""


def _details(summary: str, text: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>\n\n{text}\n</details>"


def _card(claim: Claim, stale: Collection[str]) -> str:
    """A claim: what is said and where, both numbers with their errors and the resolution, why, and the command."""
    words = " ".join((claim.id, claim.where, claim.text, claim.state)).lower()
    facts = f'<span class="state">{escape(claim.state)}</span> {escape(claim.where)}'
    if claim.result.removesuffix(".csv") in stale:
        facts += ", stale"
    numbers = "" if claim.printed is None else f"printed {page.printed(claim)}"
    if text := page.resolution(claim):
        numbers += f"; {text}"
    rows = [
        ("", numbers),
        ("decided by", claim.decides),
        ("compared", claim.test),
        ("why", claim.reason),
        ("would be settled by", claim.settles),
    ]
    body = "".join(f"<p>{f'<b>{key}</b> ' if key else ''}{escape(text)}</p>" for key, text in rows if text)
    if claim.command:
        body += f"<details><summary>command</summary><code>{escape(claim.command)}</code></details>"
    return (
        f'<article class="equation" id="{escape(claim.id)}" data-state="{escape(claim.state)}" '
        f'data-words="{escape(words)}"><h3><a class="number" href="#{escape(claim.id)}">{escape(claim.id)}</a> '
        f'{escape(claim.text)}</h3><p class="facts">{facts}</p>{body}</article>'
    )
