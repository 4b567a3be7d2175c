"""States of the ledger from the page that a wheel carries."""

from dataclasses import replace
from pathlib import Path

import pytest

from validation.ledger import audit, page, stored
from validation.ledger.collection import find_root

PAGE = (find_root(Path(__file__).resolve().parents[3]) / "docs" / "ledger.md").read_text(encoding="utf-8")


def without_repository(monkeypatch, text):
    monkeypatch.setattr(stored, "text", lambda: text)
    return audit.build(replace(audit.default_sources(), root=None, without_tests="tests: found none"))


def test_a_repository_carries_no_page_of_its_own():
    assert stored.text() is None


def test_states_and_tests_are_those_of_the_page(monkeypatch):
    ledger = without_repository(monkeypatch, PAGE)
    assert ledger.stored
    assert not ledger.without_states
    assert not ledger.problems
    counts = audit.counts(ledger.rows)
    assert sum(counts.values()) == len(ledger.rows)
    assert counts["verified"] > 300
    (row,) = ledger.select("wenzel2019", "11")
    assert row.state == "verified"
    assert {test.package for test in row.tests} >= {"reference", "fast"}
    assert all(audit.routes(test, row.entry.equation) for test in row.tests)


def test_what_is_read_back_gives_the_lines_of_the_page_again(monkeypatch):
    ledger = without_repository(monkeypatch, PAGE)
    lines = page.markdown(ledger, ledger.rows).splitlines()
    # of notes only what does not follow from tests is in the inventory
    cut = lambda text: [line.rsplit(" | ", 1)[0] for line in text if line.startswith("| ") and line.count(" | ") > 6]  # noqa: E731
    assert cut(lines) == cut(PAGE.splitlines())


def test_an_entry_with_other_functions_than_the_page_names_is_a_problem(monkeypatch):
    changed = PAGE.replace("`fast.likelihood.polya_gamma.update_local`", "`fast.likelihood.polya_gamma.renamed`")
    assert changed != PAGE
    ledger = without_repository(monkeypatch, changed)
    assert any("wenzel2019:11: found other functions" in line for line in ledger.failures(ledger.rows))


def test_without_a_page_nothing_is_said_about_states(monkeypatch):
    assert without_repository(monkeypatch, None).without_states


def test_a_page_of_another_form_is_refused():
    with pytest.raises(ValueError, match="found a line of 2 cells, expected 9"):
        stored.read("## wenzel2019\n|---|\n| 1 | 2 |\n")
