"""The cells of claims against the tables that experiments print beside theirs: two copies of one page, made apart."""

import math

import pytest

from validation.claims.inventory import load
from validation.reproduce.published import published

METHODS = {"gfitc": "gfitc", "ep": "ep", "sep": "sep", "vi-robust": "vi"}


def villacampa2017():
    """Ids of cells of Tables 1 to 3 and of section 4.4, with the value and the error that the other copy holds."""
    for data, sizes in published("villacampa2017", "table1").items():
        slug = data.replace("_", "-")
        for letter, column in (("n", "instances"), ("d", "attributes"), ("c", "classes")):
            yield f"table1-{slug}-{column}", sizes[letter], math.nan
    scores = published("villacampa2017", "table2")
    for fraction in ("5", "10", "20"):
        block = scores[f"{fraction}%"]
        for table, score in (("table2", "nll"), ("table3", "error")):
            rows = {data.replace("_", "-"): cells for data, cells in block[score].items()}
            for row, cells in {**rows, "avg-time": block["seconds"]}.items():
                for method, (mean, bar) in zip(scores["methods"], cells, strict=True):
                    yield f"{table}-m{fraction}-{row}-{METHODS[method]}", mean, bar
    text = published("villacampa2017", "text")
    for method in ("sep", "vi-robust"):
        for score in ("error", "nll"):
            yield f"mnist-{METHODS[method]}-{score}", text["mnist"][method][score], math.nan
    yield "airline-rows", text["airline"]["n"], math.nan


def wenzel2019():
    """The same of Table 1."""
    for row in published("wenzel2019", "table1")["row"]:
        slug = row["name"].lower().replace(".", "").replace(" ", "-")
        yield f"table1-sizes-{slug}-rows", row["n"], math.nan
        yield f"table1-sizes-{slug}-inputs", row["d"], math.nan
        for method, column in (("x-gpc-svi", "x-gpc"), ("svgpc", "svgpc"), ("epgpc", "epgpc")):
            for quantity, line in (("error", "error"), ("nll", "nll"), ("seconds", "time")):
                mean, spread = row[method][quantity]
                yield f"table1-{line}-{slug}-{column}", mean, spread


@pytest.mark.parametrize("copy", [villacampa2017, wenzel2019], ids=lambda copy: copy.__name__)
def test_two_copies_of_the_printed_numbers_are_one(copy):
    claims = load()[copy.__name__]
    cells = {claim.id: claim for claim in claims if claim.kind == "cell"}
    other = {id: (mean, error) for id, mean, error in copy() if not math.isnan(mean)}
    assert cells.keys() == other.keys()
    for id, (mean, error) in other.items():
        assert cells[id].printed == mean, id
        assert cells[id].printed_error == (None if math.isnan(error) else error), id
