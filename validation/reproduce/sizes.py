"""Tables of data sets: the sizes of what the judge loads beside those that a paper prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from validation.claims.verdict import as_printed
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
    """A row for each printed count: ours, the paper's, whether they are equal; data that are not at hand have none.

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
            rows.append((data, quantity, ours.get(quantity), count, as_printed(ours.get(quantity), count)))
    columns = ("data", "quantity", "ours", "paper", "as printed")
    return Outcome(
        {"data": ", ".join(printed)},
        (Table(name, columns, tuple(rows), caption),),
        (),
        (*notes, *missing),
    )
