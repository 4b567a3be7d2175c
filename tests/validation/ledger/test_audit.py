"""The states of entries, and the ledger of this repository."""

import json
from pathlib import Path

import pytest

from validation.checks import runner
from validation.ledger import audit, page
from validation.ledger.inventory import load

ROOT = Path(__file__).resolve().parents[3]

FUNCTIONS = """
    @equation("toy", "1")
    def one():
        "The first."

    @equation("toy", "2")
    def two(): ...

    @equation("toy", "3", as_printed=True)
    def three_as_printed():
        "Sign of x | wrong"

    @equation("toy", "3")
    def three(): ...
"""
TESTS = """
    @pytest.mark.verifies("toy", "1", route="defin$ition")
    def test_one(): ...

    @pytest.mark.verifies("toy", "3", route="by hand", printed=True)
    def test_three(): ...

    @pytest.mark.verifies("toy", "4", route="by hand")
    def test_four(): ...
"""


def rows_of(build, functions, tests, folder="toy", **options):
    """Rows by id, and the ledger."""
    ledger = audit.build(build({"m": functions}, {f"{folder}/test_m": tests}, **options))
    return {row.entry.id: row for row in ledger.rows}, ledger


def test_each_entry_is_in_the_state_that_its_functions_and_tests_give_it(build):
    rows, ledger = rows_of(
        build, FUNCTIONS, TESTS, ids="1 2 3 4 5 6", complete=True, allowed={("toy", "5"): "a remark"}
    )
    assert {id: (row.state, row.missing) for id, row in rows.items()} == {
        "1": ("verified", ()),
        "2": ("open", ("no test",)),
        "3": ("corrected", ()),
        "4": ("open", ("no function",)),
        "5": ("not executable", ()),
        "6": ("open", ("no function", "no test")),
    }
    assert ledger.problems == ()
    assert audit.counts(ledger.rows) == {"verified": 1, "corrected": 1, "not executable": 1, "slip": 0, "open": 3}
    failures = ledger.failures(ledger.rows)
    assert [text.partition(" ")[0] for text in failures] == ["toy:2:", "toy:4:", "toy:6:"]
    assert ledger.failures(ledger.select("toy", "1")) == ()
    numbers = audit.per_package(ledger.rows, ledger.packages)
    assert next(iter(numbers.values())) == {"entries": 3, "functions": 3, "tests": 3}


def test_open_entries_of_a_paper_that_is_not_complete_are_no_failure(build):
    _, ledger = rows_of(build, FUNCTIONS, TESTS, ids="1 2 3 4")
    assert ledger.failures(ledger.rows) == ()


@pytest.mark.parametrize(
    ("functions", "tests", "missing"),
    [
        (
            '@equation("toy", "1", as_printed=True)\ndef wrong(): ...',
            '@pytest.mark.verifies("toy", "1", route="r", printed=True)\ndef test_wrong(): ...',
            ("no corrected function",),
        ),
        (
            '@equation("toy", "1", as_printed=True)\ndef wrong(): ...\n@equation("toy", "1")\ndef right(): ...',
            '@pytest.mark.verifies("toy", "1", route="r")\ndef test_right(): ...',
            ("no test with printed=True",),
        ),
        (
            '@equation("toy", "1")\ndef right(): ...',
            '@pytest.mark.verifies("toy", "1", route="r", printed=True)\ndef test_right(): ...',
            ("no function marked as_printed",),
        ),
    ],
)
def test_an_erratum_needs_both_forms_and_a_test_that_shows_it(build, functions, tests, missing):
    rows, _ = rows_of(build, functions, tests, ids="1")
    assert (rows["1"].state, rows["1"].missing) == ("open", missing)


def test_a_test_of_another_package_verifies_nothing(build):
    test = '@pytest.mark.verifies("toy", "1", route="r")\ndef test_one(): ...'
    rows, ledger = rows_of(build, '@equation("toy", "1")\ndef one(): ...', test, folder="elsewhere", ids="1")
    assert rows["1"].missing == (f"no test under tests/{ledger.packages[0].name}",)


def test_unknown_papers_and_ids_are_problems_that_name_near_ones(build):
    functions = '@equation("tay", "1")\ndef f(): ...\n@equation("toy", "u1-means")\ndef g(): ...'
    tests = '@pytest.mark.verifies("toy", "u1-maen", route="r")\ndef test_x(): ...'
    _, ledger = rows_of(build, functions, tests, ids="u1-mean 2")
    assert len(ledger.problems) == 3
    assert "m.f: paper: found 'tay', expected 'toy'" in ledger.problems[0]
    assert "m.g: id: found 'u1-means' in toy, expected 'u1-mean'" in ledger.problems[1]
    assert "test_x: id: found 'u1-maen' in toy, expected 'u1-mean'" in ledger.problems[2]


def test_an_entry_on_the_allow_list_that_is_realised_is_a_problem(build):
    rows, ledger = rows_of(build, FUNCTIONS, TESTS, ids="1 2 3 4", allowed={("toy", "1"): "a remark"})
    assert rows["1"].state == "verified"
    assert "toy:1: found functions or tests" in ledger.problems[0]


def test_json_and_markdown_are_well_formed_and_the_same_each_time(build):
    sources = build({"m": FUNCTIONS}, {"toy/test_m": TESTS}, ids="1 2 3 4 5")
    texts = []
    for _ in range(2):
        ledger = audit.build(sources)
        data = audit.as_json(ledger, ledger.rows, sources.root)
        texts.append((json.dumps(data), page.markdown(ledger, ledger.rows)))
    assert texts[0] == texts[1]
    data = json.loads(texts[0][0])
    assert data["counts"] == {"verified": 1, "corrected": 1, "not executable": 0, "slip": 0, "open": 3}
    first = data["papers"][0]["entries"][0]
    assert (first["id"], first["state"], first["functions"][0]["summary"]) == ("1", "verified", "The first.")
    assert first["tests"][0]["claims"] == [{"route": "defin$ition", "resolves": None, "printed": False}]
    lines = texts[0][1].splitlines()
    tables = [line for line in lines if line.startswith("|")]
    widths = [line.replace(r"\|", "").count("|") for line in tables]
    assert widths == [10] * 3 + [5] * 3 + [7] * 3 + [10] * 7
    assert r"Display 1, a \| b with f\_i" in texts[0][1]
    assert r"`test_one` (defin\$ition)" in texts[0][1]
    assert r"printed: Sign of x \| wrong" in texts[0][1]
    assert texts[0][1].endswith("|\n")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (None, (None, None)),
        ("wenzel2019", ("wenzel2019", None)),
        ("wenzel2019:11", ("wenzel2019", "11")),
        ("wenzel2019:(11)", ("wenzel2019", "11")),
    ],
)
def test_a_target_is_a_paper_or_an_equation(target, expected):
    assert audit.split_target(target, load()) == expected


def test_an_unknown_id_is_looked_for_in_other_papers():
    assert "villacampa2020:A.9" in audit.suggestion("wenzel2019:A.9", load())
    assert audit.suggestion("wenzel:11", load()) == ""


SLIP = """
[[slip]]
id = "slip-1"
section = "2"
printed = "a"
meant = "b"
"""
REASON = """
because = "a | is no letter"
number = "count: 2; printed: 3"
decides = "tests/toy/test_m.py::test_one, print/ep/d"
"""


def test_misprints_and_slips_have_a_reason_or_lack_it(build):
    rows, ledger = rows_of(build, FUNCTIONS, TESTS, ids="1 2 3 4", slips=SLIP + REASON)
    assert audit.reasons(ledger.rows) == (1, 2)
    assert rows["3"].gaps == ("no reason (because, number, decides)",)
    assert rows["slip-1"].gaps == rows["1"].gaps == ()
    assert audit.as_json(ledger, ledger.rows)["papers"][0]["reasons"] == {"given": 1, "wanted": 2}
    assert audit.as_json(ledger, [rows["slip-1"]])["papers"][0]["entries"][0]["number"] == "count: 2; printed: 3"
    table = page.markdown(ledger, ledger.rows)
    assert r"| a \| is no letter | count: 2; printed: 3 | `tests/toy/test_m.py::test_one`<br>`print/ep/d` |" in table
    assert "| 1 / 2 | no |" in table


@pytest.mark.parametrize("paper", load().papers)
def test_every_misprint_and_slip_of_this_repository_says_why_and_by_which_number(paper):
    rows = audit.build(audit.default_sources(), paper).select(paper)
    assert [row.entry.id for row in rows if row.misprint and not (row.entry.because and row.entry.number)] == []
    # nothing else needs a reason
    assert [row.entry.id for row in rows if row.entry.because and not row.misprint] == []


def test_what_decides_a_misprint_of_this_repository_is_a_test_or_a_check():
    ledger = audit.build(audit.default_sources())
    checks = {pair.check for pair in runner.select(full=True).pairs}
    for row in ledger.rows:
        for address in row.entry.decides:
            file, colon, name = address.partition("::")
            if not colon:
                assert address in checks, row.entry.equation
            else:
                assert f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8"), row.entry.equation


def test_without_a_repository_functions_are_shown_and_states_are_not_judged(build):
    given = build({"m": FUNCTIONS}, {}, complete=True)
    ledger = audit.build(audit.Sources(given.inventory, given.packages, None, "no clone"))
    assert ledger.without_tests == "no clone"
    assert ledger.failures(ledger.rows) == ()
    assert len(ledger.rows[0].functions) == 1


def test_the_ledger_of_this_repository_has_no_unknown_id_and_no_faulty_marker():
    ledger = audit.build(audit.default_sources())
    assert ledger.problems == ()
    assert len(ledger.rows) == 516
    assert ledger.failures(ledger.rows) == ()
    # one paper is audited from the files that name it: no marker may stand in another one
    for paper in {row.entry.paper for row in ledger.rows}:
        assert audit.build(audit.default_sources(), paper).select(paper) == ledger.select(paper)
