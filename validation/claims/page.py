"""The claims as tables: how many are in which state, those of one paper, one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from validation.claims.inventory import STATES, Claim, Claims


def counts(papers: Mapping[str, Claims]) -> list[tuple[str, ...]]:
    """A header and a row for each paper: how many claims there are, and how many in each state."""
    rows: list[tuple[str, ...]] = [("paper", "claims", *STATES)]
    totals = [0] * (1 + len(STATES))
    for key, claims in papers.items():
        numbers = [len(claims), *claims.counts().values()]
        totals = [total + number for total, number in zip(totals, numbers, strict=True)]
        rows.append((key, *map(str, numbers)))
    if len(papers) > 1:
        rows.append(("all", *map(str, totals)))
    return rows


def listed(claims: Iterable[Claim]) -> list[tuple[str, ...]]:
    """A header and a row for each claim."""
    rows: list[tuple[str, ...]] = [("id", "where", "claim", "state", "printed", "ours", "z")]
    for claim in claims:
        z = "" if claim.z is None else f"{claim.z:.2f}"
        rows.append((claim.id, claim.where, claim.text, claim.state, printed(claim), ours(claim), z))
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


def card(claim: Claim) -> list[tuple[str, str]]:
    """What is known of one claim, key by key; what is not known is left out."""
    known = {key: value for key, value in asdict(claim).items() if value not in (None, "")}
    return [
        (key.replace("_", " "), f"{value:g}" if isinstance(value, float) else str(value))
        for key, value in known.items()
    ]


def markdown(rows: list[tuple[str, ...]]) -> str:
    """A table of Markdown from a header and rows; numbers to the right."""
    header, *body = rows
    right = [all(row[k].lstrip("-").isdigit() for row in body) for k in range(len(header))]
    lines = [_line(header), _line("---:" if each else "---" for each in right)]
    return "\n".join([*lines, *(_line(cell.replace("|", r"\|") for cell in row) for row in body)]) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_json(papers: Mapping[str, Claims], chosen: Iterable[Claim]) -> dict[str, Any]:
    """The counts of each paper, and the claims that were asked for."""
    return {
        "counts": {key: claims.counts() for key, claims in papers.items()},
        "claims": [{key: value for key, value in asdict(claim).items() if value not in (None, "")} for claim in chosen],
    }
