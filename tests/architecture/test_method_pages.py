"""The page of a method says what the judge's own tables say, names every method once, and links to cards there are."""

import importlib.util
import math
import re
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from validation import problems
from validation.door import catalogue
from validation.judge import distances
from validation.ledger import atlas, inventory

DOCS = Path(__file__).resolve().parents[2] / "docs"
TOLD = tomllib.loads((DOCS / "methods.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def extension():
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    spec = importlib.util.spec_from_file_location("method_pages", DOCS / "_ext" / "methods.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["method_pages"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(extension):
    return extension.pages(TOLD)


def test_every_method_has_a_page_and_a_line_in_the_table_of_all(pages):
    methods = [entry.method for entry in catalogue.METHODS]
    assert set(pages) == {f"{name}.md" for name in methods} | {"index.md"}
    assert re.findall(r"^\| \[`([^`]+)`\]", pages["index.md"], re.MULTILINE) == methods


def test_the_table_of_all_names_classifiers_and_truths(pages):
    rows = pages["index.md"].splitlines()
    for entry in catalogue.METHODS:
        (row,) = [line for line in rows if line.startswith(f"| [`{entry.method}`]")]
        assert all(f"`{name}`" in row for name in entry.classifiers), entry.method
    for truth in catalogue.TRUTHS:
        (row,) = [line for line in rows if line.startswith(f"| `{truth.implementation} {truth.method}`")]
        assert all(f"`{name}`" in row for name in truth.likelihoods), truth.method
        assert row.endswith(f"| {truth.evidence} |")


def test_what_is_told_of_other_methods_is_refused(extension):
    fewer = {**TOLD, "methods": {name: TOLD["methods"][name] for name in list(TOLD["methods"])[1:]}}
    with pytest.raises(ValueError, match=r"found \['x-gpc'\], expected the methods of validation.door.catalogue"):
        extension.pages(fewer)
    turned = {**TOLD, "methods": dict(reversed(TOLD["methods"].items()))}
    with pytest.raises(ValueError, match="found another order"):
        extension.pages(turned)


def test_a_page_has_every_part(pages):
    parts = ["Model", "What it approximates", "Algorithm", "Where it fails", "Cost", "Try it", "Options", "Equations"]
    for entry in catalogue.METHODS:
        text = pages[f"{entry.method}.md"]
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == parts, entry.method
        assert all(f"~triad.{name}`" in text for name in entry.classifiers), entry.method
        assert all(TOLD["likelihoods"][name] in text for name in entry.likelihoods), entry.method


def test_equations_lead_to_cards_of_the_atlas(pages):
    known = {atlas.address(*entry.equation) for entry in inventory.load()}
    papers = {entry.paper for entry in inventory.load()}
    for entry in catalogue.METHODS:
        links = set(re.findall(r'href="\.\./atlas/([^"]+)"', pages[f"{entry.method}.md"]))
        assert bool(links) == (entry.paper in papers), entry.method
        assert links <= known, entry.method


def test_problems_on_which_to_try_a_method_are_those_it_takes():
    for entry in catalogue.METHODS:
        asked = problems.get(TOLD["methods"][entry.method]["example"])
        assert asked.likelihood in entry.likelihoods, entry.method
        assert entry.points != catalogue.INDUCING or asked.Z is not None, entry.method
        assert entry.points != catalogue.ALL_ROWS or asked.Z is None, entry.method
        assert not entry.errors or asked.epsilon > 0.0, entry.method


def test_distances_are_those_on_record_in_units_one_reads(extension):
    (row,) = [row for row in extension.measured("x-gpc") if row.problem == "iris"]
    (entry,) = [entry for entry in distances.entries() if (entry.method, entry.problem) == ("x-gpc", "iris")]
    truth = distances.truth_of("iris", None)
    # relative to |log Z|, which is above one here
    assert row.log_evidence == pytest.approx(entry.distances["log_evidence"][0] * abs(truth.log_evidence), rel=1e-12)
    assert math.log(row.variances) == pytest.approx(entry.distances["latent_cov"][1], rel=1e-12)
    assert row.probabilities == entry.distances["probabilities"][0]
    assert row.log_variance == pytest.approx(1.0, abs=1e-12)


def test_the_graph_of_a_model_is_well_formed_and_shows_what_the_method_takes(extension):
    graphs = {}
    for entry in catalogue.METHODS:
        figure = ElementTree.fromstring(extension.picture(entry, ""))
        letters = [node.text for node in figure.iter("tspan")][::2]
        graphs[entry.method] = (letters.count("u"), letters.count("f"), len(list(figure.iter("circle"))))
    assert graphs["x-gpc"] == (3, 3, 9)
    assert graphs["laplace"] == (0, 3, 12)  # two more behind each f: the other classes
    assert graphs["pep"] == (3, 3, 21)
    assert len(re.findall("ω", extension.picture(catalogue.METHODS[0], "ω"))) == 4  # three data and the label


def test_every_name_of_triad_is_on_the_page_of_the_api():
    import triad

    text = (DOCS / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   (\w+)$", text, re.MULTILINE)
    modules = {"problems", "datasets", "truths"}
    assert set(listed) == set(triad.__all__) - modules
    assert len(listed) == len(set(listed))
    assert all(f"`triad.{name}`" in text for name in modules)
