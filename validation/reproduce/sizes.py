"""Tables of data sets: the sizes of what the judge loads beside those that a paper prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from validation.claims.verdict import COLUMNS, verdict, z_of
from validation.datasets.dataset import Dataset
from validation.datasets.errors import DatasetNotFoundError
from validation.reproduce.experiment import Outcome, Table

Row = Mapping[str, int]


def compare(
    name: str,
    caption: str,
    printed: Mapping[str, Row],
    load: Callable[[str], Dataset],
    sizes: Callable[[str, Dataset], Row],
    *,
    notes: Iterable[str] = (),
    say: Callable[[str], object] = lambda text: None,
) -> Outcome:
    """A row for each printed count: ours, the paper's, z and verdict; data that are not at hand have no number.

    Parameters
    ----------
    name, caption : str    of the table
    printed : mapping      data set -> quantity -> count
    load : callable        data set by name; DatasetNotFoundError: not at hand
    sizes : callable       the same quantities of a data set
    notes : texts          where this is not the paper's table
    say : callable         takes a line of progress
    """
    rows: list[tuple[object, ...]] = []
    missing = []
    for data, row in printed.items():
        say(data)
        ours: Row = {}
        try:
            ours = sizes(data, load(data))
        except DatasetNotFoundError as error:
            missing.append(f"{data}: {error}")
        for quantity, count in row.items():
            z = z_of(ours[quantity], 0.0, count, 0.0, 1.0) if ours else None
            rows.append((data, quantity, ours.get(quantity), count, z, verdict(z)))
    columns = ("data", "quantity", "ours", "paper", *COLUMNS)
    return Outcome(
        {"data": ", ".join(printed)},
        (Table(name, columns, tuple(rows), caption),),
        (),
        (*notes, *missing, "a count has no error: z is the difference over the deviation of a rounded unit, 0.29"),
    )
