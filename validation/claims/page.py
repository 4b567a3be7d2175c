"""The claims as tables and lines: the headline, one paper, one claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import Any

from validation.claims.inventory import CELLS, MATHEMATICS, PARTS, SENTENCES, STATES, Claim, Claims
from validation.claims.verdict import Pool, pooled

COUNTED = (MATHEMATICS, CELLS, SENTENCES)
WIDTH = 80
_SURE = 0.01  # p of a sign test below which a data set or method is named


def counts(papers: Mapping[str, Claims]) -> list[tuple[str, ...]]:
    """A header and a row for each part of the headline: how many claims there are, and how many in each state."""
    rows: list[tuple[str, ...]] = [("part", "all", *STATES)]
    for about in PARTS:
        totals = Counter[str]()
        for claims in papers.values():
            totals.update(claims.counts(about))
        label = about if about in COUNTED else f"({about})"
        rows.append((label, str(totals.total()), *(str(totals[state]) for state in STATES)))
    return rows


def by_paper(papers: Mapping[str, Claims]) -> list[tuple[str, ...]]:
    """The same by paper, without sizes of data sets and absolute seconds."""
    rows: list[tuple[str, ...]] = [("paper", "all", *STATES)]
    for key, claims in papers.items():
        totals = Counter(claim.state for claim in claims if claim.about in COUNTED)
        rows.append((key, str(totals.total()), *(str(totals[state]) for state in STATES)))
    return rows


def by_table(claims: Iterable[Claim]) -> list[tuple[str, ...]]:
    """The experimental cells by table: how many are in each state."""
    groups: dict[str, Counter[str]] = {}
    for claim in claims:
        if claim.about == CELLS:
            groups.setdefault(_table(claim), Counter())[claim.state] += 1
    rows: list[tuple[str, ...]] = [("cells", "all", *STATES)]
    for name, totals in groups.items():
        rows.append((name, str(totals.total()), *(str(totals[state]) for state in STATES)))
    return rows


def _table(claim: Claim) -> str:
    """As the paper numbers it."""
    return claim.where.partition(",")[0].partition(";")[0] if claim.row else "single numbers"


def by_state(claims: Iterable[Claim], about: str) -> list[str]:
    """The ids of sentences by state, in lines of at most WIDTH columns; no id is broken."""
    groups: dict[str, list[str]] = {state: [] for state in STATES}
    for claim in claims:
        if claim.about == about:
            groups[claim.state].append(claim.id)
    lines = []
    for state, ids in groups.items():
        if ids:
            text = f"{state}: {', '.join(ids)}"
            lines += wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return lines


def described(claim: Claim) -> list[str]:
    """A claim in a few lines of at most WIDTH columns: id and state, numbers with their resolution, why."""
    lines = [f"{claim.id}  [{claim.state}]"]
    texts = [claim.text]
    if claim.printed is not None:
        texts.append("; ".join(filter(None, (f"printed {printed(claim)}", resolution(claim)))))
    texts.append(claim.reason)
    for text in filter(None, texts):
        lines += wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return lines


def resolution(claim: Claim) -> str:
    """Our number, how far print may be from it, and how many other methods' numbers would agree as well."""
    if claim.ours is None:
        return ""
    text = f"here {ours(claim)}"
    if claim.repetitions is not None:
        text += f" of {claim.repetitions}"
    if claim.half_width is not None:
        text += f", half width {claim.half_width:.2g}"
    if claim.others:
        text += f", {claim.passing} of {claim.others} other values pass"
    return text


def listed(claims: Iterable[Claim]) -> list[tuple[str, ...]]:
    """A header and a row for each claim."""
    rows: list[tuple[str, ...]] = [
        ("id", "where", "claim", "state", "printed", "ours", "half width", "others that pass")
    ]
    for claim in claims:
        reach = "" if claim.half_width is None else f"{claim.half_width:.2g}"
        passing = f"{claim.passing} of {claim.others}" if claim.others else ""
        rows.append((claim.id, claim.where, claim.text, claim.state, printed(claim), ours(claim), reach, passing))
    return rows


def printed(claim: Claim) -> str:
    """The printed number with its error, in as many digits as the paper has."""
    if claim.printed is None:
        return ""
    digits = 0 if claim.unit is None or claim.unit >= 1.0 else len(f"{claim.unit:.12f}".rstrip("0").partition(".")[2])
    number = f"{claim.printed:.{digits}f}"
    return number if claim.printed_error is None else f"{number} ± {claim.printed_error:g}"


def ours(claim: Claim) -> str:
    """Our number with its standard error."""
    return "" if claim.ours is None else f"{claim.ours:.4g} ± {claim.ours_error or 0.0:.2g}"


def pools(claims: Iterable[Claim]) -> dict[str, list[Pool]]:
    """Sign tests of our numbers against print by data set and by method, over all cells that have a number of ours."""
    cells = [claim for claim in claims if claim.about == CELLS and claim.row and claim.ours is not None]
    triples = [(claim, claim.ours or 0.0, claim.printed or 0.0) for claim in cells]
    return {
        "by data set": pooled((_label(claim, "row"), mine, theirs) for claim, mine, theirs in triples),
        "by method": pooled((_label(claim, "column"), mine, theirs) for claim, mine, theirs in triples),
    }


def _label(claim: Claim, kind: str) -> str:
    return claim.where.partition(f", {kind} ")[2].partition(", column ")[0]


def pool_lines(claims: Iterable[Claim]) -> list[str]:
    """The data sets and methods whose cells are on one side of print, by a sign test."""
    return [
        f"{pool.name}: {pool.below} of {pool.below + pool.above} cells below print (sign test {pool.p:.1g})"
        for group in pools(claims).values()
        for pool in group
        if pool.p < _SURE
    ]


def readings(claims: Iterable[Claim]) -> list[tuple[str, ...]]:
    """The sensitivity table: numbers of runs that depart from the registered protocol, beside print."""
    rows: list[tuple[str, ...]] = [("id", "printed", "ours", "reading")]
    rows += [
        (claim.id, printed(claim), ours(claim), claim.departure)
        for claim in claims
        if claim.ours is not None and claim.departure
    ]
    return rows


def card(claim: Claim) -> list[tuple[str, str]]:
    """What is known of one claim, key by key; what is not known is left out."""
    return [
        (key.replace("_", " "), f"{value:g}" if isinstance(value, float) else str(value))
        for key, value in _known(claim).items()
    ]


def _known(claim: Claim) -> dict[str, Any]:
    return {key: value for key, value in asdict(claim).items() if value not in (None, "")}


def markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """A table of Markdown from a header and rows; numbers to the right."""
    header, *body = rows
    right = [all(row[k].lstrip("-").isdigit() for row in body) for k in range(len(header))]
    lines = [_line(header), _line("---:" if each else "---" for each in right)]
    return "\n".join([*lines, *(_line(cell.replace("|", r"\|") for cell in row) for row in body)]) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_json(papers: Mapping[str, Claims], chosen: Iterable[Claim]) -> dict[str, Any]:
    """The counts of each paper and part, and the claims that were asked for."""
    return {
        "counts": {key: {about: claims.counts(about) for about in PARTS} for key, claims in papers.items()},
        "claims": [_known(claim) for claim in chosen],
    }
