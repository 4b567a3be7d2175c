"""villacampa2020, appendix B, Table B.2: instances, attributes and classes of the eight data sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from validation.datasets.dataset import Dataset
from validation.door import arguments
from validation.reproduce import sizes
from validation.reproduce.experiment import Outcome, Say, experiment
from validation.reproduce.published import published
from validation.reproduce.villacampa2020 import uci


def _sizes(name: str, data: Dataset) -> sizes.Row:
    return {"instances": data.n, "attributes": data.d, "classes": data.n_classes}


@dataclass(frozen=True, kw_only=True)
class Tableb2Options:
    """Options of `tableb2`."""

    names: Sequence[str] = uci.DATASETS
    seed: int = 0


@experiment(
    "villacampa2020",
    "tableb2",
    "sizes of the eight UCI data sets",
    "what the eight data sets of section 5.1 and of the appendices have of instances, attributes and classes "
    "(appendix B, Table B.2)",
    cells=lambda asked: len(asked.names),
    ahead=True,
)
def tableb2(asked: Tableb2Options, say: Say) -> Outcome:
    """Sizes of what the other experiments load: vowel with its first six classes, waveform generated."""
    table = published("villacampa2020", "tableb2")
    printed = {name: table[arguments.choice(name, uci.DATASETS, "names")] for name in asked.names}
    return sizes.compare(
        "tableb2",
        "Instances, attributes and classes, here and in the paper's Table B.2",
        printed,
        lambda name: uci.load(name, asked.seed),
        _sizes,
        notes=("waveform is generated: its 1000 rows are asked for, its attributes and classes are not",),
        say=say,
    )
