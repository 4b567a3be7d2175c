"""States of the ledger as a wheel carries them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from validation.ledger import audit, page, stored
from validation.ledger.collection import find_root

ROOT = find_root(Path(__file__).resolve().parents[3])
PAGE = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
HELD = stored.text_of(audit.of_repository(ROOT).rows)


def without_repository(monkeypatch, text):
    monkeypatch.setattr(stored, "text", lambda: text)
    return audit.build(replace(audit.default_sources(), root=None, without_tests="tests: found none"))


def test_a_repository_carries_no_states_of_its_own():
    assert stored.text() is None


def test_states_and_tests_are_those_that_were_stored(monkeypatch):
    ledger = without_repository(monkeypatch, HELD)
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


def test_what_is_read_back_gives_the_lines_of_the_page(monkeypatch):
    ledger = without_repository(monkeypatch, HELD)
    lines = page.markdown(ledger, ledger.rows).splitlines()
    # of notes only what does not follow from tests is in the inventory
    cut = lambda text: [line.rsplit(" | ", 1)[0] for line in text if line.startswith("| ") and line.count(" | ") > 6]  # noqa: E731
    assert cut(lines) == cut(PAGE.splitlines())


def test_an_entry_with_other_functions_than_were_stored_is_a_problem(monkeypatch):
    changed = HELD.replace('"fast.likelihood.polya_gamma.update_local"', '"fast.likelihood.polya_gamma.renamed"')
    assert changed != HELD
    ledger = without_repository(monkeypatch, changed)
    assert any("wenzel2019:11: found other functions" in line for line in ledger.failures(ledger.rows))


def test_a_misprint_that_became_a_function_is_a_problem(monkeypatch):
    table = json.loads(HELD)
    entry = next(row for row in table["entries"] if row["printed"])
    entry["functions"], entry["printed"] = entry["functions"] + entry["printed"], []
    ledger = without_repository(monkeypatch, json.dumps(table))
    assert any(f"{entry['paper']}:{entry['id']}: found other functions" in line for line in ledger.problems)


def test_an_entry_that_was_not_stored_is_a_problem(monkeypatch):
    table = json.loads(HELD)
    first = table["entries"].pop(0)
    ledger = without_repository(monkeypatch, json.dumps(table))
    assert any(f"{first['paper']}:{first['id']}: found no such entry" in line for line in ledger.problems)


def test_without_a_file_nothing_is_said_about_states(monkeypatch):
    assert without_repository(monkeypatch, None).without_states


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ("| a | page |", "found no JSON"),
        ('{"schema": 0, "entries": []}', "found schema 0, expected 2"),
        ("[]", "found schema None"),
        ('{"schema": 2, "entries": [{"paper": "wenzel2019"}]}', "found an entry of another form"),
    ],
)
def test_a_file_of_another_form_is_refused(held, message):
    with pytest.raises(ValueError, match=message):
        stored.read(held)
