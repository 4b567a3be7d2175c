"""The graph of equations: which entry calls which, measured in a run (`validation.ledger.executed`), drawn as SVG.

An entry stands below all that call it, in rows; entries of one function stand side by side in one box. Calls of one
entry that pass a row share a line there. Where calls go in a circle, the one that leads back up is
not drawn. A picture is drawn for a wide and for a narrow page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape

from validation.door import catalogue
from validation.ledger.audit import Row
from validation.ledger.executed import SOLVES_OF, Executed, printed_first
from validation.ledger.inventory import SLIP

WIDTHS = {"wide": 680.0, "narrow": 330.0}
_HEIGHT, _STEP, _GAP, _LINE = 26.0, 62.0, 8.0, 4.0  # of a box; from row to row; between boxes; room of a line
_LETTER, _PADDING = 7.4, 12.0  # width of a letter of a label, and what is left beside it

_ALL = "all equations"

Name = Callable[[str], str]  # id of an entry -> label, or -> fragment of the address of its card


@dataclass(eq=False)
class _Item:
    """A box of entries, or the place in a row where calls of another box pass."""

    rows: tuple[Row, ...]
    width: float
    place: float  # in the order of the paper, then in its row
    above: list[_Item] = field(default_factory=list, repr=False)
    below: list[_Item] = field(default_factory=list, repr=False)
    x: float = 0.0


def of_paper(rows: Sequence[Row], label: Name, fragment: Name) -> str:
    """Every graph of a paper as HTML, folded: that of each method, then that of all entries. Empty without a record.

    Parameters
    ----------
    rows        of the paper, in its order
    label       gives what a box shows of an id
    fragment    gives the address of a card within the page
    """
    if not rows:
        return ""
    paper = rows[0].entry.paper
    graphs = {
        entry.method: [row for row in rows if f"{SOLVES_OF} {entry.method}" in _executed(row).solve]
        for entry in catalogue.METHODS
        if entry.paper == paper
    }
    calling = {id for row in rows for id in _executed(row).calls}
    graphs[_ALL] = [row for row in rows if _executed(row).calls or row.entry.id in calling]
    slips = " ".join(row.entry.section for row in rows if row.entry.kind == SLIP)
    parts = []
    for name, own in graphs.items():
        if len(own) < 2:
            continue
        drawn = "".join(
            f'<div class="calls {size}">{picture(own, name, width, label, fragment, slips)}</div>'
            for size, width in WIDTHS.items()
        )
        calls = len(_calls(own, name))
        parts.append(
            f'<details class="calls"><summary>{escape(name)}: {len(own)} entries, {calls} call{"s" * (calls != 1)}'
            f"</summary>{drawn}</details>"
        )
    return "\n".join(parts)


def picture(rows: Sequence[Row], name: str, width: float, label: Name, fragment: Name, slips: str = "") -> str:
    """The graph of some entries as SVG.

    Parameters
    ----------
    rows               the entries
    name               of a method: its calls alone are shown, and what its own loop calls is marked
    width              of the picture in pixels; it is wider where a box or the lines of a row need it
    label, fragment    as in `of_paper`
    slips              where the paper has slips: "(8), (11)"
    """
    lines = _arranged(rows, name, width, label)
    wide = max(width, *(_total(line) for line in lines))
    for line in lines:
        _placed(line, wide)
    top = {item: number * _STEP + 2.0 for number, line in enumerate(lines) for item in line}
    solve = f"{SOLVES_OF} {name}"
    links, boxes = [], []
    for item in (item for line in lines for item in line):
        links += [_link(item, other, top) for other in item.above]
        if item.rows:
            x = item.x - item.width / 2
            if item.above:
                y = top[item]
                links.append(f'<path class="tip" d="M{item.x - 4:.0f} {y - 7:.0f}h8l-4 7z"{_ends(item, item)}/>')
            for row in item.rows:
                box = _width(label(row.entry.id))
                loop = solve in _executed(row).loop
                boxes.append(_box(row, x, top[item], box, loop, label, fragment, slips))
                x += box
    height = (len(lines) - 1) * _STEP + _HEIGHT + 4.0
    return (
        f'<svg class="calls" role="group" aria-label="calls between equations: {escape(name)}" width="{wide:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {wide:.0f} {height:.0f}">{"".join(links)}{"".join(boxes)}</svg>'
    )


def callers(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Ids of entries of a paper, each with those that call it.

    Parameters
    ----------
    rows    of the paper
    """
    result: dict[str, list[str]] = {}
    for row in rows:
        for id in _executed(row).calls:
            result.setdefault(id, []).append(row.entry.id)
    return result


def _executed(row: Row) -> Executed:
    return row.executed or Executed()


def _calls(rows: Sequence[Row], name: str) -> list[tuple[str, str]]:
    """Ids of caller and called among the rows, in solves of a method or in all of the run."""
    here = {row.entry.id for row in rows}
    return [
        (row.entry.id, id)
        for row in rows
        for id, solves in _executed(row).calls.items()
        if id in here and (name == _ALL or f"{SOLVES_OF} {name}" in solves)
    ]


def _width(text: str) -> float:
    return len(text) * _LETTER + _PADDING


def _arranged(rows: Sequence[Row], name: str, width: float, label: Name) -> list[list[_Item]]:
    """Boxes and passing lines row by row, each in an order in which few lines cross."""
    grouped: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(item.address for item in printed_first(row.functions)), []).append(row)
    boxes = [
        _Item(tuple(listed), sum(_width(label(row.entry.id)) for row in listed), float(place))
        for place, listed in enumerate(grouped.values())
    ]
    of = {row.entry.id: box for box in boxes for row in box.rows}
    calls: dict[_Item, list[_Item]] = {box: [] for box in boxes}
    for caller, called in _calls(rows, name):
        if of[called] is not of[caller] and of[called] not in calls[of[caller]]:
            calls[of[caller]].append(of[called])
    # lines that pass a row are shared by the calls of one caller, or by those of one called: whichever needs less room
    lines = min((_lined(boxes, calls, width, down) for down in (True, False)), key=lambda lines: sum(map(len, lines)))
    for down in (True, False) * 4:
        for line in lines if down else reversed(lines):
            line.sort(key=lambda item: _middle(item.above if down else item.below, item))
            for place, item in enumerate(line):
                item.place = (place + 0.5) / len(line)
    return lines


def _lined(boxes: Sequence[_Item], calls: Mapping[_Item, list[_Item]], width: float, down: bool) -> list[list[_Item]]:
    """Boxes and the lines that pass, row by row; `down`: each from a caller to all that it calls, else the reverse."""
    level = _levels(boxes, calls, width, down)
    lines: list[list[_Item]] = [[] for _ in range(max(level.values()) + 1)]
    copies = {box: replace(box, above=[], below=[]) for box in boxes}
    for box in boxes:
        lines[level[box]].append(copies[box])
    step = 1 if down else -1
    for hub in boxes:
        ends = [box for box in boxes if (box in calls[hub] if down else hub in calls[box])]
        away = {box: (level[box] - level[hub]) * step for box in ends}  # not above zero where calls go in a circle
        item = copies[hub]
        for distance in range(1, max(away.values(), default=0) + 1):
            for box in ends:
                if away[box] == distance:
                    _join(item, copies[box], down)
            if any(value > distance for value in away.values()):
                passing = _Item((), _LINE, hub.place)
                lines[level[hub] + distance * step].append(passing)
                _join(item, passing, down)
                item = passing
    return lines


def _levels(boxes: Sequence[_Item], calls: Mapping[_Item, list[_Item]], width: float, down: bool) -> dict[_Item, int]:
    """The row of each box: below all that call it, where there is room beside the lines that pass."""
    level: dict[_Item, int] = {}
    waiting = sorted(boxes, key=lambda box: -_depth(box, calls, ()))
    number = 0
    while waiting:
        called = {other for box in waiting for other in calls[box]}
        # where calls go in a circle, the first one starts it
        ready = [box for box in waiting if box not in called] or waiting[:1]
        taken: list[_Item] = []
        for box in ready:
            row = [*taken, box]
            pairs = [(caller, other) for caller in level for other in calls[caller] if other not in (*level, *row)]
            passing = len({pair[0 if down else 1] for pair in pairs})
            if not taken or sum(other.width + _GAP for other in row) + passing * (_LINE + _GAP) <= width:
                taken = row
        level |= dict.fromkeys(taken, number)
        waiting = [box for box in waiting if box not in taken]
        number += 1
    return level


def _depth(box: _Item, calls: Mapping[_Item, list[_Item]], above: tuple[_Item, ...]) -> int:
    """How many boxes the longest chain of calls below a box has."""
    return max((1 + _depth(other, calls, (*above, box)) for other in calls[box] if other not in above), default=0)


def _join(start: _Item, end: _Item, down: bool) -> None:
    upper, lower = (start, end) if down else (end, start)
    upper.below.append(lower)
    lower.above.append(upper)


def _middle(others: Sequence[_Item], item: _Item) -> float:
    return sum(other.place for other in others) / len(others) if others else item.place


def _total(line: Sequence[_Item]) -> float:
    return sum(item.width + _GAP for item in line) - _GAP + 4.0


def _placed(line: Sequence[_Item], width: float) -> None:
    """Give the items of a row their places, with the room that is left between them."""
    spare = (width - _total(line)) / (len(line) + 1)
    x = 2.0
    for item in line:
        x += spare
        item.x = x + item.width / 2
        x += item.width + _GAP


def _link(item: _Item, other: _Item, top: Mapping[_Item, float]) -> str:
    """The line from an item to one in the row above."""
    start, end = top[other] + _HEIGHT, top[item] - (6.0 if item.rows else 0.0)
    middle = (start + end) / 2
    run = f"V{top[item] + _HEIGHT:.0f}" if not item.rows else ""
    return (
        f'<path d="M{other.x:.0f} {start:.0f}C{other.x:.0f} {middle:.0f} {item.x:.0f} {middle:.0f} {item.x:.0f} '
        f'{end:.0f}{run}"{_ends(other, item)}/>'
    )


def _ends(upper: _Item, lower: _Item) -> str:
    """Whose calls a line shows: ids of callers and called, for the script that lights them."""

    def ids(item: _Item, step: str) -> list[str]:
        if item.rows:
            return [row.entry.id for row in item.rows]
        return [id for other in getattr(item, step) for id in ids(other, step)]

    start = ids(upper, "above") if upper is not lower else [id for other in lower.above for id in ids(other, "above")]
    return f' data-from="{escape(" ".join(dict.fromkeys(start)))}" data-to="{escape(" ".join(ids(lower, "below")))}"'


def _box(
    row: Row, x: float, y: float, width: float, loop: bool, label: Name, fragment: Name, slips: str
) -> str:  # fmt: skip
    entry = row.entry
    slip = f"({entry.id})" in slips
    told = f"{label(entry.id)} {entry.title}: {row.state}{', with a slip' if slip else ''}"
    told += ", called by the loop of the method" if loop else ""
    names = " ".join([row.state.replace(" ", "-"), *(["loop"] if loop else [])])
    mark = f'<circle class="slip" cx="{x + width - 3:.1f}" cy="{y + 3:.1f}" r="4"/>' if slip else ""
    return (
        f'<a class="{names}" href="#{escape(fragment(entry.id))}" data-id="{escape(entry.id)}">'
        f"<title>{escape(told)}</title>"
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_HEIGHT:.0f}" rx="4"/>{mark}'
        f'<text x="{x + width / 2:.1f}" y="{y + 17.5:.1f}">{escape(label(entry.id))}</text></a>'
    )
