"""What a command prints for people: lines that fit, in which no number is cut and no name is shortened."""

from __future__ import annotations

import os
import textwrap
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

PIPED = 100  # columns where there is no terminal and COLUMNS is not set
WIDEST = 120  # columns of a sentence: longer lines are hard to read
_NARROWEST = 24  # columns in which a sentence is worth reading beside a record; below that it goes under it
_GAP = "  "


def columns_of(console: Console) -> int:
    """Columns to fill: those of the terminal; in a pipe or a file COLUMNS, or else 100."""
    if console.is_terminal:
        return console.width
    told = os.environ.get("COLUMNS", "")
    return int(told) if told.isdigit() and int(told) > 0 else PIPED


def folded(text: str, width: int, indent: int = 0) -> str:
    """Text in lines of at most 120 columns; a word longer than that (a path, a command) stays whole."""
    first, later = " " * indent, " " * (indent + 2)
    return textwrap.fill(
        text,
        max(40, min(width, WIDEST)),
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def say(console: Console, text: str, *, indent: int = 0, style: str = "") -> None:
    """Print a sentence, folded: names in it are text and no markup."""
    console.print(Text(folded(text, columns_of(console), indent), style=style), soft_wrap=True)


@contextmanager
def waiting(
    console: Console, what: str, tell: Callable[[], str] | None = None, *, after: float = 3.0
) -> Iterator[None]:
    """Say on a terminal what is being computed, since when, and how far it is as far as somebody knows.

    Parameters
    ----------
    console : Console    usually of stderr; where it is no terminal nothing is written
    what : str           a few words
    tell : callable      how far it is, asked some times a second; "" while it cannot be told
    after : float        seconds of silence before
    """
    if not console.is_terminal:
        yield
        return
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TimeElapsedColumn

    class Told(ProgressColumn):
        """What is computed, and under it how far it is: beside each other they fit few terminals."""

        def render(self, task: Task) -> Text:
            far = "" if tell is None else tell()
            lines = (task.description, far) if far else (task.description,)
            return Text("\n".join(lines))

    columns = SpinnerColumn(), TimeElapsedColumn(), Told()
    bar = Progress(*columns, console=console, transient=True, refresh_per_second=4)
    bar.add_task(what)
    late = threading.Timer(after, bar.start)
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()
        late.join()
        bar.stop()


class Grid(NamedTuple):
    """A table that fits: as many columns as there is room for, the others under their record, named.

    header    names of the columns, an empty one for none
    prose     the column that may be folded beside the others; those behind it are the first to go under the record
    right     columns of numbers
    """

    header: Sequence[str]
    prose: int
    right: Collection[int] = ()

    def lines(self, rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
        """The lines of the header, then those of each record."""
        widths = [max(map(cell_len, column)) for column in zip(self.header, *rows, strict=True)]
        shown = len(self.header)
        while shown > 1 and self._taken(widths, shown) > width:
            shown -= 1
        others = self._taken(widths, self.prose) + len(_GAP)
        if shown < len(self.header) and shown <= self.prose + 1 and width - others >= _NARROWEST:
            shown = self.prose + 1
            widths[self.prose] = min(widths[self.prose], width - others)
        records = [self._record(row, widths, shown, width) for row in rows]
        return [self._record(self.header, widths, shown, width)[:1], *records]

    @staticmethod
    def _taken(widths: Sequence[int], shown: int) -> int:
        return sum(widths[:shown]) + len(_GAP) * (shown - 1)

    def _record(self, row: Sequence[str], widths: Sequence[int], shown: int, width: int) -> list[str]:
        cells = [[cell] for cell in row[:shown]]
        if shown > self.prose and cell_len(row[self.prose]) > widths[self.prose]:
            cells[self.prose] = textwrap.wrap(row[self.prose], widths[self.prose], break_on_hyphens=False)
        lines = []
        for place in range(max(map(len, cells))):
            parts = [cell[place] if place < len(cell) else "" for cell in cells]
            padded = [self._padded(part, widths[i], i) for i, part in enumerate(parts)]
            lines.append(_GAP.join(padded).rstrip())
        named = zip(self.header[shown:], row[shown:], range(shown, len(row)), strict=True)
        # a sentence says by itself what it is
        below = [cell if i == self.prose else f"{name}: {cell}" for name, cell, i in named if cell]
        return lines + folded("; ".join(below), width, 4).splitlines()

    def _padded(self, text: str, width: int, column: int) -> str:
        blanks = " " * (width - cell_len(text))
        return blanks + text if column in self.right else text + blanks


def print_grid(
    console: Console, grid: Grid, rows: Sequence[Sequence[str]], styles: Sequence[str] = (), width: int | None = None
) -> None:
    """Print a header and records, each with its style; `width` in place of the columns of the console."""
    head, *records = grid.lines(rows, width or columns_of(console))
    if any(line.strip() for line in head):
        console.print(Text("\n".join(head), style="bold"), soft_wrap=True)
    for place, lines in enumerate(records):
        console.print(Text("\n".join(lines), style=styles[place] if styles else ""), soft_wrap=True)
