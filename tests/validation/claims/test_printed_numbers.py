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


def villacampa2020():
    """The same of Tables B.2, C.3 and C.4, the digits and the flights."""
    for data, sizes in published("villacampa2020", "tableb2").items():
        for column, size in sizes.items():
            yield f"tableb2-{data.replace('_', '-')}-{column}", size, math.nan
    scores = published("villacampa2020", "tablec")
    columns = ("mcmc", "laplace", "label-regression", "pep-0", "pep-0-5", "pep-1")
    for fraction in ("5", "10", "20"):
        block = scores[f"{fraction}%"]
        for table, score in (("tablec3", "error"), ("tablec4", "nll")):
            for data, cells in block[score].items():
                row = "avg-time" if data == "seconds" else data.replace("_", "-")
                for column, (mean, bar) in zip(columns, cells, strict=True):
                    yield f"{table}-m{fraction}-{row}-{column}", mean, bar
    for id, size in (("mnist-train", 60_000), ("mnist-test", 10_000), ("airline-rows", 2_127_068)):
        yield id, size, math.nan


def riihimaki2013():
    """The same of Tables 1 and 3 and of what the text says of Figures 3, 4 and 7."""
    scores = published("riihimaki2013", "table1")
    columns = ("ep", "qep", "iep", "qiep")
    for data in ("glass", "usps-357"):
        for column, ratio in zip(columns, scores[data]["time"]["relative"], strict=True):
            yield f"table1-{data}-relative-cpu-time-{column}", ratio, math.nan
        for part in ("training", "test"):
            for quantity, both in scores[data][part].items():
                for kind, cells in both.items():
                    for column, value in zip(columns, cells, strict=True):
                        row = f"{quantity.replace(' ', '-')}-{kind}"
                        yield f"table1-{data}-{part}-{row}-{column}", value, math.nan
    text = published("riihimaki2013", "text")
    rows = {
        "new_thyroid": "new-thyroid",
        "segment": "image-segmentation",
        "usps-357": "usps-3-vs-5-vs-7",
        "usps": "usps-10-class",
    }
    for data, sizes in text["table3"].items():
        for key, column in (("n_train", "n-train"), ("n_test", "n-test"), ("c", "classes"), ("d", "covariates")):
            yield f"table3-{rows.get(data, data)}-{column}", sizes[key], math.nan
    for figure, place in (("fig3", "x_i"), ("fig4", "x_j")):
        for method, column in (("gibbs-probit", "mcmc"), ("nested-ep", "ep"), ("nested-iep", "iep")):
            yield f"{figure}-{column}", text["toy"][place][method], math.nan
    yield "fig7-iep-logz", text["grid"]["log_evidence"]["nested-iep"], math.nan
    yield "fig7-iep-lpd", text["grid"]["log_predictive_density"]["nested-iep"], math.nan


@pytest.mark.parametrize(
    "copy", [villacampa2017, wenzel2019, villacampa2020, riihimaki2013], ids=lambda copy: copy.__name__
)
def test_two_copies_of_the_printed_numbers_are_one(copy):
    claims = load()[copy.__name__]
    cells = {claim.id: claim for claim in claims if claim.kind == "cell"}
    other = {id: (mean, error) for id, mean, error in copy() if not math.isnan(mean)}
    assert cells.keys() == other.keys()
    for id, (mean, error) in other.items():
        assert cells[id].printed == mean, id
        assert cells[id].printed_error == (None if math.isnan(error) else error), id
