"""Data sets for the judge: bundled, from a folder, from OpenML, or generated; and their seeded splits.

    from validation import datasets

    iris = datasets.load("iris").binary("virginica", "versicolor").standardised()
    split = datasets.train_test_split(iris, seed=1, test_size=0.2)

Nothing is committed with this package but the table of what to expect, `expected.toml`.
"""

from validation.datasets.catalogue import Entry, Expected, catalogue, near_misses
from validation.datasets.dataset import Dataset
from validation.datasets.errors import DatasetCorruptError, DatasetNotFoundError
from validation.datasets.loading import check, expected_counts, known_names, load, locate
from validation.datasets.splits import Split, duplicate_groups, kfold, standardise, train_test_split
from validation.datasets.synthetic import (
    draw_labels,
    draw_latents,
    make_gp_classification,
    make_riihimaki2013_toy,
    make_villacampa2017_toy,
    make_waveform,
)

__all__ = [
    "Dataset",
    "DatasetCorruptError",
    "DatasetNotFoundError",
    "Entry",
    "Expected",
    "Split",
    "catalogue",
    "check",
    "draw_labels",
    "draw_latents",
    "duplicate_groups",
    "expected_counts",
    "kfold",
    "known_names",
    "load",
    "locate",
    "make_gp_classification",
    "make_riihimaki2013_toy",
    "make_villacampa2017_toy",
    "make_waveform",
    "near_misses",
    "standardise",
    "train_test_split",
]
