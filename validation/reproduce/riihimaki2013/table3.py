"""riihimaki2013, section 5.5, Table 3: rows, classes and covariates of the seven data sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from validation.datasets.dataset import Dataset
from validation.door import arguments
from validation.reproduce import sizes
from validation.reproduce.experiment import Outcome, Say, experiment
from validation.reproduce.published import published
from validation.reproduce.riihimaki2013 import setting

DATASETS = ("new_thyroid", "teaching", "glass", "wine", "segment", setting.THREE_DIGITS, "usps")


def printed_sizes(name: str) -> sizes.Row:
    """What Table 3 prints of a data set that can be compared: the parts of USPS are cut here, their sum is not."""
    row = published("riihimaki2013", "text")["table3"][arguments.choice(name, DATASETS, "names")]
    parts = {"n train": row["n_train"], "n test": row["n_test"]}
    if name in (setting.THREE_DIGITS, "usps"):
        parts = {"rows in all": sum(parts.values())}
    return {**parts, "classes": row["c"], "covariates": row["d"]}


def our_sizes(name: str, data: Dataset) -> sizes.Row:
    """The same of what is loaded; with cross-validation every row is trained on, and tested, once."""
    train, test = (data.n_train, data.n - data.n_train) if name == "segment" else (data.n, data.n)
    return {
        "n train": train,
        "n test": test,
        "rows in all": data.n,
        "classes": data.n_classes,
        "covariates": data.d,
    }


@dataclass(frozen=True, kw_only=True)
class Table3Options:
    """Options of `table3`."""

    names: Sequence[str] = DATASETS


@experiment(
    "riihimaki2013",
    "table3",
    "sizes of the seven data sets",
    "what the data sets of section 5.5 have of training and test rows, classes and covariates (Table 3)",
    cells=lambda asked: len(asked.names),
    ahead=True,
)
def table3(asked: Table3Options, say: Say) -> Outcome:
    """Sizes of what the other experiments load."""
    notes = [
        "USPS: the paper's parts (Rasmussen and Williams 2006) have no copy at hand and are cut here to the printed "
        "sizes, so that only their sum is compared"
    ]
    printed = {name: printed_sizes(name) for name in asked.names}
    return sizes.compare(
        "table3",
        "Rows, classes and covariates, here and in the paper's Table 3",
        printed,
        lambda name: setting.find(name)[0],
        our_sizes,
        notes=notes,
        say=say,
    )
