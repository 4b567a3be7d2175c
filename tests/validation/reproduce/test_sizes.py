"""Tables of data sets: counts beside printed ones, and data that are not at hand."""

from __future__ import annotations

import numpy as np

from validation import datasets
from validation.claims import inventory
from validation.claims.inventory import load
from validation.claims.verdict import FAILS, HOLDS, UNCERTAIN
from validation.datasets.dataset import Dataset
from validation.datasets.errors import DatasetNotFoundError
from validation.reproduce import sizes
from validation.reproduce.riihimaki2013 import table3
from validation.reproduce.villacampa2020.tableb2 import tableb2
from validation.reproduce.wenzel2019 import sizes as wenzel


def test_a_count_that_differs_and_data_that_are_missing_are_told_apart():
    def find(name):
        if name == "iris":
            return datasets.load("iris")
        raise DatasetNotFoundError(f"{name}: not here")

    printed = {"iris": {"n": 150, "d": 5}, "airline": {"n": 7}}
    result = sizes.compare("toy", "caption", printed, find, lambda _, data: {"n": data.n, "d": data.d})
    (table,) = result.tables
    assert table.columns == ("data", "quantity", "ours", "paper", "as printed")
    assert list(table.rows) == [
        ("iris", "n", 150, 150, HOLDS),
        ("iris", "d", 4, 5, FAILS),
        ("airline", "n", None, 7, UNCERTAIN),
    ]
    assert "airline: airline: not here" in result.notes


def test_table_b2_on_the_sets_that_ship_with_the_package_is_as_printed():
    (table,) = tableb2(names=("wine", "waveform")).tables
    assert {row[-1] for row in table.rows} == {HOLDS}
    assert [row[2] for row in table.rows] == [178, 13, 3, 1000, 21, 3]


def test_what_table_3_compares_are_the_cells_of_the_claims_or_their_sums():
    cells = {claim.id: claim.printed for claim in load()["riihimaki2013"] if claim.id.startswith("table3-")}
    slugs = {
        "new_thyroid": "new-thyroid",
        "segment": "image-segmentation",
        "usps-357": "usps-3-vs-5-vs-7",
        "usps": "usps-10-class",
    }
    for name in table3.DATASETS:
        stem = f"table3-{slugs.get(name, name)}"
        for quantity, count in table3.printed_sizes(name).items():
            if quantity == "rows in all":
                assert count == cells[f"{stem}-n-train"] + cells[f"{stem}-n-test"]
            else:
                assert count == cells[f"{stem}-{quantity.replace(' ', '-')}"]


def test_cross_validation_tests_every_row_and_wine_has_the_printed_sizes():
    (table,) = table3.table3(names=("wine",)).tables
    assert [row[1:] for row in table.rows] == [
        ("n train", 178, 178, HOLDS),
        ("n test", 178, 178, HOLDS),
        ("classes", 3, 3, HOLDS),
        ("covariates", 13, 13, HOLDS),
    ]


def made_up(X, y):
    X = np.asarray(X, dtype=np.float64)
    names = tuple(f"x{j + 1}" for j in range(X.shape[1]))
    return Dataset("made-up", X, np.array(y), ("a", "b"), names, 0, "none", "made up", "")


def test_rows_repeat_another_only_with_the_same_label():
    assert wenzel.different_rows(made_up([[1, 2], [1, 2], [1, 2], [3, 2]], [0, 0, 1, 1])) == 3


def test_a_model_matrix_has_a_constant_numbers_and_one_column_less_than_a_category_has_values():
    data = made_up([[0.1, 0, 5], [0.2, 1, 5], [0.7, 2, 6], [0.9, 0, 5]], [0, 1, 0, 1])
    # 1 + {x1} + two of three values + one of two
    assert wenzel.model_matrix_columns(data, (0,)) == 5


def test_the_last_pixel_is_the_last_that_is_ever_on():
    assert wenzel.last_pixel(made_up([[0, 1, 0, 0], [0, 0, 2, 0]], [0, 1])) == 3


def test_every_set_of_table_1_is_counted_once():
    cells = [(part.row, quantity) for part in wenzel.PARTS for quantity in part.counts]
    names = {"n": "rows", "d": "inputs"}
    printed = {claim.id for claim in load()["wenzel2019"] if claim.id.startswith("table1-sizes-")}
    assert len(cells) == len(set(cells)) == 26
    assert {f"table1-sizes-{inventory.slug(row)}-{names[quantity]}" for row, quantity in cells} == printed
