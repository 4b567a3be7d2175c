"""Every formula of the inventories can be typeset, and a card holds what is known of its entry."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from validation.ledger import atlas, inventory
from validation.ledger.audit import CORRECTED, VERIFIED, Row
from validation.ledger.collection import Claim, MarkedTest
from validation.ledger.executed import Executed
from validation.ledger.inventory import Entry
from validation.ledger.perturbed import Outcome, Ran, Tried
from validation.ledger.registry import Function

EXTENSIONS = Path(__file__).resolve().parents[3] / "docs" / "_ext"
ENTRIES = [entry for entry in inventory.load() if entry.latex]
FORMULAS = [(entry.equation, text) for entry in ENTRIES for text in (entry.latex, entry.latex_printed) if text]
# whole algorithms and what is said in words of them: their cards show the words
IN_WORDS = {
    ("izmailov2016", "u3.2-svi"),
    ("izmailov2016", "alg1"),
    ("izmailov2016", "vi-jj-full"),
    ("izmailov2016", "vi-jj-hybrid"),
    ("izmailov2016", "vi-taylor"),
    ("riihimaki2013", "u4.1.1-la-tkp"),
    ("riihimaki2013", "A-parallel"),
    ("villacampa2017", "u8-ep-refinement"),
    ("villacampa2017", "u11-parallel-updates"),
    ("villacampa2020", "u29-parallel-updates"),
    ("wenzel2019", "u4.3-svi"),
}


@pytest.fixture(scope="module")
def mathml():
    pytest.importorskip("latex2mathml", reason="the extra `docs` is not installed")
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    return extension("atlas").mathml


def extension(name):
    """A module of docs/_ext, which are no package and import one another by their names."""
    spec = importlib.util.spec_from_file_location(f"{name}_extension", EXTENSIONS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXTENSIONS))
        spec.loader.exec_module(module)
    return module


def test_every_formula_is_typeset_without_a_command_left_over(mathml):
    for equation, text in FORMULAS:
        root = ElementTree.fromstring(mathml(text).replace("&nbsp;", " "))
        # \ by itself is the papers' sign of a cavity
        left_over = [word for word in root.itertext() if re.fullmatch(r"\\[A-Za-z]+|&|[{}]{2,}", word)]
        assert not left_over, equation
        assert text.count(r"\mark{") == mathml(text).count('class="differs"'), equation


def test_every_formula_has_its_braces_in_pairs():
    for equation, text in FORMULAS:
        bare = re.sub(r"\\[{}]", "", text)
        assert bare.count("{") == bare.count("}"), equation


def test_what_has_no_formula_is_said_to_have_none():
    kinds = ("protocol", "sampler", inventory.SLIP)
    without = {entry.equation for entry in inventory.load() if not entry.latex and entry.kind not in kinds}
    assert without == IN_WORDS


def test_a_misprint_and_its_correction_both_say_what_differs():
    for entry in ENTRIES:
        if entry.latex_printed:
            assert r"\mark{" in entry.latex_printed, entry.equation


# -- cards -----------------------------------------------------------------------------------------------------------


def function(address: str, *, printed: bool = False) -> Function:
    package = address.partition(".")[0]
    equations = (("villacampa2020", "A.20"),)
    return Function(
        package, address, equations, printed, f"{package}/x.py", 7, docstring="One line.", signature="(x)",
        source=f"def {address.rpartition('.')[2]}(x):\n    return x < 1\n",
    )  # fmt: skip


ENTRY = Entry(
    paper="villacampa2020",
    id="A.20",
    section="A",
    title="Linear <coefficient>",
    kind="update",
    inputs=("g ()",),
    outputs=("C2 ()",),
    function="f",
    latex=r"\alpha \mark{+} 1",
    latex_printed=r"\alpha \mark{-} 1",
)
TEST = MarkedTest(
    "tests/reference/test_x.py::test_a", "reference", "tests/reference/test_x.py", 3, "test_a", False,
    (Claim("villacampa2020", "A.20", "moments by quadrature", printed=True),),
)  # fmt: skip
ROW = Row(
    entry=ENTRY,
    state=CORRECTED,
    functions=(function("reference.a.right"), function("fast.b.quick")),
    printed=(function("reference.a.wrong", printed=True),),
    tests=(TEST,),
    missing=(),
    gaps=(),
    note="printed without the power",
    executed=Executed(solve=("reference pep",), checks=("print/pep/update",), calls={"A.8": ("reference pep",)}),
)


def shown(row: Row) -> str:
    functions = {item.address: item for item in (*row.functions, *row.printed)}
    return atlas.card(row, functions, lambda latex: f"[{latex}]", lambda source: f"<pre>{source}</pre>")


def test_a_card_holds_both_forms_sources_tests_and_who_executes_it():
    html = shown(ROW)
    assert '<article class="equation" id="A.20" data-state="corrected"' in html
    assert html.index(r"[\alpha \mark{-} 1]") < html.index(r"[\alpha \mark{+} 1]")
    for address in ("reference.a.right", "reference.a.wrong</code> (as printed)", "fast.b.quick"):
        assert address in html or address in html.replace("</code>", "", 1)
    assert "Told apart by: moments by quadrature." in html
    assert "print/pep/update" in html
    assert "tests/reference/test_x.py::test_a" in html
    assert "triad audit villacampa2020:A.20 --run" in html


def test_a_card_says_why_the_print_is_wrong_and_by_which_number():
    entry = replace(ENTRY, because="C1 is < α C1", number="division: 0.784; printed: 1.02", decides=("print/pep/d",))
    html = shown(replace(ROW, entry=entry))
    assert "Because C1 is &lt; α C1. division: 0.784; printed: 1.02. Decided by <code>print/pep/d</code>." in html
    assert "Because" not in shown(ROW)


def test_a_card_is_found_by_number_method_and_symbol():
    (words,) = re.findall(r'data-words="([^"]*)"', shown(ROW))
    assert {"(a.20)", "a.20", "pep", "c2"} <= set(words.split())
    # also by a symbol of the formula, which is no command of typesetting, and by the function
    assert {"alpha", "right", "quick"} <= set(words.split())
    assert "mark" not in words.split()


def test_a_card_leads_to_what_the_entry_calls_and_to_what_calls_it():
    html = atlas.card(ROW, {}, str, str, callers=["10", "u3-x y"])
    assert 'calls <a href="#A.8">(A.8)</a>; called by <a href="#10">(10)</a>, <a href="#u3-x-y">u3-x y</a>' in html
    assert "called by" not in shown(ROW)


def test_what_comes_from_a_paper_is_escaped():
    assert "Linear &lt;coefficient&gt;" in shown(ROW)
    assert "<coefficient>" not in shown(ROW)


def test_an_entry_without_a_formula_shows_its_words():
    from dataclasses import replace

    plain = replace(ROW, entry=replace(ENTRY, latex="", latex_printed=""), state=VERIFIED, printed=())
    assert "<p>One line" in shown(plain)


@pytest.mark.parametrize(("id", "expected"), [("A.20", "A.20"), ("11", "11"), ("u3.1-pg mean", "u3.1-pg-mean")])
def test_addresses_hold_only_what_an_address_can(id, expected):
    assert atlas.anchor(id) == expected


def test_addresses_of_one_paper_are_unique():
    for paper in inventory.load().papers.values():
        assert len({atlas.anchor(id) for id in paper.ids}) == len(paper.ids)


def test_a_card_tells_symbols_the_counterpart_and_what_the_perturbation_did(tmp_path):
    source = "def right(alpha, nothing):\n    return alpha"
    functions = {item.address: replace(item, source=source) for item in ROW.functions}
    tried = {"reference.a.right": Tried(2, 3, 1e-3, "AssertionError")}
    outcome = Outcome("abc123", "other", tried, {TEST.key: Ran("passed", 0.25)}, (1.5, 0.25))
    words = {"alpha": {"shape": "()", "meaning": "power of the divergence"}}
    known = atlas.Known(words, {ENTRY.equation: outcome}, tmp_path)
    html = atlas.card(ROW, functions, str, str, known)
    assert "power of the divergence" in html
    assert "counterpart in fast: <code>fast.b.quick</code>" in html
    assert "noticed by 2 of 3 tests (AssertionError)" in html
    assert "at commit abc123, with other code than this" in html
    assert "passed, largest difference 0.25 of what is allowed" in html
    assert "printed 1.5, corrected 0.25" in html


def test_symbols_are_told_in_the_words_of_the_equation_and_else_of_the_name():
    source = "def right(alpha, c1, Z, other):\n    return alpha"
    docstring = (
        "Line.\n\nParameters\n----------\nalpha : float    α in (0, 1],\n    not zero\nc1, c2 : (m,)    C¹\n"
        "side    a cavity\n\nRaises\n------\nValueError    never"
    )
    functions = {item.address: replace(item, docstring=docstring, source=source) for item in ROW.functions}
    words = {"alpha": {"shape": "()", "meaning": "power"}, "Z": {"shape": "(m, d)", "meaning": "inducing inputs"}}
    html = atlas.card(ROW, functions, str, str, atlas.Known(words))
    row = "<tr><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td></tr>"
    assert row.format("alpha", "α in (0, 1], not zero", "float", "power") in html
    assert row.format("c1", "C¹", "(m,)", "") in html
    assert row.format("Z", "", "(m, d)", "inducing inputs") in html
    assert "<code>other</code>" not in html  # nobody says what it is
    assert atlas.parameters(docstring)["side"] == ("", "a cavity")
    assert "ValueError" not in atlas.parameters(docstring)


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ("3.2", "section 3.2"),
        ("A.4", "appendix A.4"),
        ("B, below (24)", "appendix B, below (24)"),
        ("(8)", "at (8)"),
        ("Table 2", "Table 2"),
        ("Appendix I", "Appendix I"),
        ("above (14)", "above (14)"),
    ],
)
def test_a_card_says_where_in_the_paper_it_stands(section, place):
    row = replace(ROW, entry=replace(ENTRY, section=section))
    assert f"{ENTRY.kind}, {place}" in shown(row)


def test_a_link_leads_to_the_card_from_the_first_page():
    assert atlas.link(("villacampa2020", "A.20")) == "atlas/villacampa2020.html#A.20"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("by wenzel2019 (11), (13).", ["wenzel2019", "(11)", "(13)"]),
        ("villacampa2020 (A.20). Then (1)", ["villacampa2020", "(A.20)"]),
        ("(11) of wenzel2019; see (13)", ["wenzel2019"]),
        ("wenzel2019 (1999)", ["wenzel2019"]),
        ('from reference.wenzel2019 import x; @equation("wenzel2019", "11")', []),
    ],
)
def test_citations_are_links_and_identifiers_are_not(text, expected):
    module = extension("cited")
    pieces = list(module.cited(text, module.addresses()))
    assert "".join(piece for piece, _ in pieces) == text
    assert [piece for piece, address in pieces if address] == expected
    assert all(address.startswith(("wenzel2019.html", "villacampa2020.html")) for _, address in pieces if address)


def test_the_search_of_the_documentation_knows_every_equation_by_its_address():
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    domain = extension("atlas").Equations
    known = {name: (page, anchor) for name, _, _, page, anchor, _ in domain.get_objects(domain)}
    assert set(known) == {":".join(entry.equation) for entry in inventory.load()}
    assert known["villacampa2020:A.20"] == ("atlas/villacampa2020", atlas.anchor("A.20"))
