"""The atlas of equations: a page for each paper, a card for each entry, as Markdown for the documentation.

A card holds the formula, for a misprint as printed and corrected side by side, the state, the source of the functions
that realise it, the tests with their routes, and who executes it. What is typeset and what is coloured comes from the
two callables that the caller gives, so that the judge itself needs neither library.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import NamedTuple

from validation.ledger import graph
from validation.ledger.audit import STATES, Ledger, Row, counts, routes
from validation.ledger.formula import formula
from validation.ledger.inventory import Equation
from validation.ledger.page import misprints, overview
from validation.ledger.perturb import files
from validation.ledger.perturbed import Outcome, Record
from validation.ledger.registry import Function

Typeset = Callable[[str], str]  # LaTeX of a display -> HTML
Highlight = Callable[[str], str]  # source of a function -> HTML

_WITNESSES = ("reference", "fast", "gibbs", "validation")


class Known(NamedTuple):
    """What a card tells besides the ledger.

    words       name of a parameter -> shape and meaning, as docs/symbols.toml has them
    outcomes    what perturbations did (`validation.ledger.perturbed`)
    root        of the repository, to see whether that was with the code at hand; None where nobody can tell
    """

    words: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    outcomes: Record = MappingProxyType({})
    root: Path | None = None


def anchor(id: str) -> str:
    """The address of an entry within its page: the id itself, without what an address cannot hold.

    Parameters
    ----------
    id    of an entry
    """
    return re.sub(r"[^A-Za-z0-9.\-]", "-", id)


def address(paper: str, id: str) -> str:
    """Where a card stands, from the folder of the atlas: the permanent link of an equation.

    Parameters
    ----------
    paper, id    of an entry
    """
    return f"{paper}.html#{anchor(id)}"


def link(equation: Equation) -> str:
    """Where a card stands, from the first page of the documentation.

    Parameters
    ----------
    equation    paper and id
    """
    return f"atlas/{address(*equation)}"


def page(
    ledger: Ledger,
    key: str,
    functions: Mapping[str, Function],
    typeset: Typeset,
    highlight: Highlight,
    known: Known = Known(),  # noqa: B008 - nothing in it can change
) -> str:
    """The page of one paper, in its order.

    Parameters
    ----------
    ledger       of `validation.ledger.audit.build`
    key          of the paper
    functions    by address, with their sources: a ledger that was kept knows summaries alone
    typeset      gives a formula as HTML
    highlight    gives source as HTML
    known        what cards tell besides
    """
    paper = ledger.inventory.papers[key]
    rows = ledger.select(key)
    total = ", ".join(f"{number} {state}" for state, number in counts(rows).items() if number)
    lines = [
        "---",
        "html_theme.sidebar_secondary.remove: true",
        "---",
        "",
        f"# {key}",
        "",
        f"{_plain(paper.authors)} ({paper.year}). {_plain(paper.title)}. {_plain(paper.venue)}.",
        "",
        f"{len(rows)} entries: {total}.",
        "",
        *_raw(_tools(rows)),
    ]
    if paper.symbols:
        lines += _raw(_symbols(paper.symbols))
    if graphs := graph.of_paper(rows, number, anchor):
        lines += ["## Which equation calls which", "", *_raw(f"{_LEGEND}\n{graphs}")]
    above = graph.callers(rows)
    section = None
    for row in rows:
        if row.entry.section != section:
            section = row.entry.section
            place = _plain(_place(section))
            lines += ["", f"## {place[:1].upper()}{place[1:]}", ""]
        lines += _raw(card(row, functions, typeset, highlight, known, above.get(row.entry.id, ())))
    return "\n".join(lines) + "\n"


def index(ledger: Ledger) -> str:
    """The first page: how far each paper is, links to the pages, and every misprint.

    Parameters
    ----------
    ledger    of `validation.ledger.audit.build`
    """
    pages = [
        f"- [{_plain(paper.title)}]({key}.md): {_plain(paper.authors)} ({paper.year}), `{key}`"
        for key, paper in ledger.inventory.papers.items()
    ]
    lines = [
        "# The atlas of equations",
        "",
        "A page for each paper, a card for each equation: the formula, the source that realises it, the tests with",
        "their routes, and who executes it. `triad audit PAPER:ID` prints a card in the terminal, `--run` its numbers.",
        "",
        *_raw(found(ledger)),
        *pages,
        "",
        "## Misprints and slips",
        "",
        # a card is HTML, whose addresses Sphinx does not know
        *misprints(
            ledger.rows, lambda row: f'<a href="{escape(address(*row.entry.equation))}">{number(row.entry.id)}</a>'
        ),
        "",
        "## How far each paper is",
        "",
        *overview(ledger, ledger.rows),
        "",
        "```{toctree}",
        ":hidden:",
        "",
        *ledger.inventory.papers,
        "```",
    ]
    return "\n".join(lines) + "\n"


def card(
    row: Row,
    functions: Mapping[str, Function],
    typeset: Typeset,
    highlight: Highlight,
    known: Known = Known(),  # noqa: B008 - nothing in it can change
    callers: Sequence[str] = (),
) -> str:
    """One entry as HTML.

    Parameters
    ----------
    row                                     the entry
    functions, typeset, highlight, known    as in `page`
    callers                                 ids of the entries of the paper that call it
    """
    entry = row.entry
    here = anchor(entry.id)
    parts = [
        f'<article class="equation" id="{escape(here)}" data-state="{escape(row.state)}" '
        f'data-words="{escape(_words(row))}">',
        f'<h3><a class="number" href="#{escape(here)}">{escape(number(entry.id))}</a> {escape(entry.title)}</h3>',
        f'<p class="facts"><span class="state {escape(row.state.replace(" ", "-"))}">{escape(row.state)}</span> '
        f"{escape(entry.kind)}, {escape(_place(entry.section))}"
        f"{', executed by ' + escape(row.words.replace(' | ', ', ')) if row.words else ''}</p>",
        _formulas(row, functions, typeset),
    ]
    if entry.inputs or entry.outputs:
        given = escape("; ".join(entry.inputs)) or "nothing"
        parts.append(f'<p class="facts">{given} &#8614; {escape("; ".join(entry.outputs)) or "nothing"}</p>')
    if row.note:
        parts.append(f'<p class="note">{escape(row.note)}</p>')
    parts.append(_reason(row))
    if row.printed:
        proofs = [claim.route for test in row.tests for claim in test.claims if _proves(claim, row)]
        if proofs:
            told = escape("; ".join(dict.fromkeys(proofs)))
            both = _proof(known.outcomes.get(entry.equation))
            parts.append(f'<p class="note">Told apart by: {told}.{both}</p>')
    listed = [functions.get(item.address, item) for item in (*row.printed, *row.functions)]
    parts.append(_parameters(listed, known.words))
    quick = [item.address for item in row.functions if item.package == "fast"]
    if quick:
        named = ", ".join(f"<code>{escape(name)}</code>" for name in quick)
        parts.append(f'<p class="facts">counterpart in fast: {named}</p>')
    parts.append(_neighbours(row, callers))
    for witness in _WITNESSES:
        parts += [_source(item, highlight) for item in listed if item.package == witness]
    outcome = known.outcomes.get(entry.equation)
    parts.append(_tests(row, outcome))
    parts.append(_perturbed(row, outcome, known.root))
    if row.executed is not None and (checks := row.executed.checks):
        items = "".join(f"<li><code>{escape(name)}</code></li>" for name in checks)
        parts.append(
            f"<details><summary>{len(checks)} check{'s' if len(checks) > 1 else ''} of <code>triad verify</code>"
            f"</summary><ul>{items}</ul></details>"
        )
    if row.functions or row.printed:
        parts.append(f'<p class="facts"><code>triad audit {escape(entry.paper)}:{escape(entry.id)} --run</code></p>')
    parts.append("</article>")
    return "\n".join(part for part in parts if part)


def found(ledger: Ledger) -> str:
    """All entries of all papers as one list of links, which a search over it narrows.

    Parameters
    ----------
    ledger    of `validation.ledger.audit.build`
    """
    items = "".join(
        f'<li data-state="{escape(row.state)}" data-words="{escape(f"{row.entry.paper} {_words(row)}")}">'
        f'<span class="soft">{escape(row.entry.paper)}</span>'
        f'<a href="{escape(address(*row.entry.equation))}">{escape(number(row.entry.id))}</a>'
        f'<span class="title">{escape(row.entry.title)}</span><span class="soft state">{escape(row.state)}</span></li>'
        for row in ledger.rows
    )
    return (
        f'{_tools(ledger.rows)}<details class="all-equations"><summary>all {len(ledger.rows)} entries</summary>'
        f'<ul class="found">{items}</ul></details>'
    )


def _words(row: Row) -> str:
    """What an entry is found by: number, words, methods, symbols in and out of it and in its formula, functions."""
    entry = row.entry
    symbols = dict.fromkeys(re.findall(r"\\([A-Za-z]{2,})", entry.latex or ""))
    functions = [item.address.rpartition(".")[2] for item in (*row.printed, *row.functions)]
    parts = [entry.id, f"({entry.id})", entry.title, entry.kind, *_methods(row), *entry.inputs, *entry.outputs]
    return " ".join([*parts, *(name for name in symbols if not _TYPESETTING.fullmatch(name)), *functions]).lower()


# commands of a formula that are no symbols
_TYPESETTING = re.compile(
    r"aligned|begin|bar|[bB]igg?[lr]?|c?dots?|cdot|ldots|end|d?t?frac|hat|int|label|left|limits|log|mark|math\w+|operatorname"
    r"|prod|q?quad|right|sqrt|sum|text|tilde|top"
)


def number(id: str) -> str:
    """(11) for a numbered display, the id itself for what has no number.

    Parameters
    ----------
    id    of an entry
    """
    return f"({id})" if re.fullmatch(r"(?:[A-Z]\.)?\d+", id) else id


_APPENDIX = re.compile(r"[A-Z](?![A-Za-z])")


def _place(section: str) -> str:
    """Where in the paper: section 3.2, appendix A.3, at (8), Table 2."""
    kind = "section" if section[:1].isdigit() else "appendix" if _APPENDIX.match(section) else ""
    kind = kind or ("at" if section.startswith("(") else "")
    return f"{kind} {section}".strip()


def _raw(html: str) -> list[str]:
    """A block of HTML in Markdown."""
    # a blank line is no end of a raw block, a fence of backticks in a docstring would be
    return ["````{raw} html", html, "````", ""]


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|$#~])", r"\\\1", " ".join(text.split()))


def _proves(claim: object, row: Row) -> bool:
    return getattr(claim, "printed", False) and getattr(claim, "equation", None) == row.entry.equation


def _methods(row: Row) -> list[str]:
    """Methods whose solve executes the entry."""
    if row.executed is None:
        return []
    return list(dict.fromkeys(name.split()[-1] for name in row.executed.solve))


def _formulas(row: Row, functions: Mapping[str, Function], typeset: Typeset) -> str:
    """The formula; of a misprint both forms side by side."""
    entry = row.entry
    if not entry.latex:
        listed = [functions.get(item.address, item) for item in row.functions]
        words = formula(listed, entry.id)
        return f"<p>{escape(words)}</p>" if words else ""
    right = f'<div class="formula">{typeset(entry.latex)}</div>'
    if not entry.latex_printed:
        return right
    wrong = f'<div class="formula">{typeset(entry.latex_printed)}</div>'
    return (
        f'<div class="forms"><figure class="printed"><figcaption>as printed</figcaption>{wrong}</figure>'
        f'<figure class="corrected"><figcaption>corrected</figcaption>{right}</figure></div>'
    )


def _reason(row: Row) -> str:
    """Why the print is wrong, the number that decides, and what makes it again."""
    entry = row.entry
    if not entry.because:
        return ""
    decides = ", ".join(f"<code>{escape(item)}</code>" for item in entry.decides)
    return f'<p class="note">Because {escape(entry.because)}. {escape(entry.number)}. Decided by {decides}.</p>'


_LEGEND = (
    '<p class="facts legend">Measured in a run of <code>triad verify</code>: a line leads from an equation down to one '
    'that its function calls; a click leads to the card. <span class="state verified">verified</span> '
    '<span class="state corrected">corrected</span> <span class="slip">&#9679;</span> a slip is reported of it; '
    "a thick frame: called by the method's own loop.</p>"
)


def _neighbours(row: Row, callers: Sequence[str]) -> str:
    """What an entry calls and what calls it, as links."""
    called = () if row.executed is None else row.executed.calls
    parts = []
    for word, ids in (("calls", called), ("called by", callers)):
        links = ", ".join(f'<a href="#{escape(anchor(id))}">{escape(number(id))}</a>' for id in ids)
        parts += [f"{word} {links}"] if ids else []
    return f'<p class="facts">{"; ".join(parts)}</p>' if parts else ""


def _source(function: Function, highlight: Highlight) -> str:
    mark = " (as printed)" if function.as_printed else ""
    package = PurePath(*PurePath(function.file).parts[-1:]).name
    return (
        f"<details><summary><code>{escape(function.address)}</code>{mark}</summary>"
        f'<p class="facts">{escape(package)}:{function.line}</p>{highlight(function.source)}</details>'
    )


def _proof(outcome: Outcome | None) -> str:
    """What both forms give, in a test that tells them apart."""
    if outcome is None or outcome.proof is None:
        return ""
    printed, corrected = outcome.proof
    return f" There: printed {printed:.6g}, corrected {corrected:.6g}."


def _parameters(listed: Sequence[Function], words: Mapping[str, Mapping[str, str]]) -> str:
    """The symbols of the functions: what an argument is in the equation, its shape, what the name always means."""
    message: dict[str, tuple[str, str]] = {}
    for item in listed:
        if item.package == "reference":
            own = parameters(item.docstring)
            for name in _arguments(item):
                if name not in message or (name in own and not message[name][1]):
                    message[name] = own.get(name, ("", ""))
    rows = [
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(here)}</td>"
        f"<td>{escape(shape or words.get(name, {}).get('shape', ''))}</td>"
        f"<td>{escape(words.get(name, {}).get('meaning', ''))}</td></tr>"
        for name, (shape, here) in message.items()
        if here or name in words
    ]
    if not rows:
        return ""
    head = "<tr><th>in code</th><th>in the equation</th><th>shape</th><th>the name means</th></tr>"
    return (
        f'<details class="symbols"><summary>Symbols</summary><table><thead>{head}</thead>'
        f"<tbody>{''.join(rows)}</tbody></table></details>"
    )


_PARAMETER = re.compile(r"(\w+(?:, \w+)*)(?: : (.*?))?(?: {2,}(\S.*)|$)")


def parameters(docstring: str) -> dict[str, tuple[str, str]]:
    """Shape and meaning of each parameter, as the section of that name of a docstring has them.

    Parameters
    ----------
    docstring    without its indentation
    """
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", docstring, re.MULTILINE | re.DOTALL)
    result: dict[str, tuple[str, str]] = {}
    names: list[str] = []
    for line in section[1].splitlines() if section else ():
        if line.startswith(" ") and names:  # goes on with what was said
            for name in names:
                shape, here = result[name]
                result[name] = shape, f"{here} {line.strip()}".strip()
        elif told := _PARAMETER.fullmatch(line.rstrip()):
            names = told[1].split(", ")
            result |= dict.fromkeys(names, (told[2] or "", told[3] or ""))
    return result


def _arguments(function: Function) -> list[str]:
    try:
        made = ast.parse(function.source).body[0]
    except SyntaxError:
        return []
    if not isinstance(made, ast.FunctionDef):
        return []
    return [entry.arg for entry in (*made.args.posonlyargs, *made.args.args, *made.args.kwonlyargs)]


def _perturbed(row: Row, outcome: Outcome | None, root: Path | None) -> str:
    """What happened when the outputs of the functions were perturbed."""
    if outcome is None or not outcome.functions:
        return ""
    items = "".join(
        f"<li><code>{escape(address)}</code> by {tried.size:g} of its largest entry: noticed by {tried.noticed} of "
        f"{tried.pairs} test{'' if tried.pairs == 1 else 's'}{f' ({escape(tried.how)})' if tried.how else ''}</li>"
        for address, tried in outcome.functions.items()
    )
    noticed = sum(tried.noticed > 0 for tried in outcome.functions.values())
    stale = root is not None and outcome.stale(files(row, root))
    note = ", with other code than this" if stale else ""
    where = f"at commit {escape(outcome.commit)}{note}" if outcome.commit else f"measured{note}"
    return (
        f"<details><summary>perturbed: {noticed} of {len(outcome.functions)} noticed</summary><ul>{items}</ul>"
        f'<p class="facts">{where}; <code>make audit TARGET={escape(":".join(row.entry.equation))}</code></p>'
        "</details>"
    )


def _tests(row: Row, outcome: Outcome | None) -> str:
    if not row.tests:
        return ""
    items = []
    for test in row.tests:
        told = escape("; ".join(routes(test, row.entry.equation)))
        ran = None if outcome is None else outcome.tests.get(test.key)
        last = "" if ran is None else f"<br>{escape(ran.words)}"
        items.append(f"<li>{told}<br><code>{escape(test.file)}::{escape(test.name)}</code>{last}</li>")
    number = len(row.tests)
    return f"<details><summary>{number} test{'s' if number > 1 else ''}</summary><ul>{''.join(items)}</ul></details>"


def _tools(rows: Sequence[Row]) -> str:
    """The line that filters the page; without a script it is not shown."""
    present = [state for state in STATES if any(row.state == state for row in rows)]
    options = "".join(f"<option>{escape(state)}</option>" for state in present)
    return (
        '<div class="atlas-tools" hidden><input type="search" placeholder="number, symbol, method, word" '
        'aria-label="filter the equations"><select aria-label="state"><option value="">all states</option>'
        f'{options}</select><span role="status"></span></div>'
    )


def _symbols(symbols: Mapping[str, str]) -> str:
    items = [f"<dt><code>{escape(name)}</code></dt><dd>{escape(told)}</dd>" for name, told in symbols.items()]
    return f'<details class="symbols"><summary>Symbols</summary><dl>{"".join(items)}</dl></details>'
