"""What is kept of a perturbation: read as it was written, and said to be old once the code is another."""

import numpy as np
import pytest

from validation.ledger import inventory, numbers, perturbed
from validation.ledger import marker as marking
from validation.ledger.inventory import Inventory, read_paper
from validation.ledger.perturbed import Outcome, Ran, Tried

RECORD = {
    ("toy", "A.1"): Outcome("abc", "0123", {"a.f": Tried(1, 2, 1e-3, "AssertionError")}, {"t::x": Ran("passed", 0.5)}),
    ("toy", "2"): Outcome("", "4567", {}, {"t::y": Ran("failed", None)}, (1.0, 2.5)),
}


def test_a_record_is_read_as_it_was_written(tmp_path):
    file = tmp_path / "perturbed.json"
    file.write_text(perturbed.text(RECORD))
    assert perturbed.load(file) == RECORD


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 0, "entries": {}}', '{"schema": 1, "entries": {"a:1": {}}}'])
def test_what_cannot_be_read_knows_nothing(tmp_path, text):
    file = tmp_path / "perturbed.json"
    file.write_text(text)
    assert perturbed.load(file) == {}
    assert perturbed.load(tmp_path / "nothing") == {}


def test_other_code_is_told_and_another_comment_is_not(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    code = perturbed.fingerprint([file])
    known = Outcome("abc", code, {}, {})
    assert not known.stale([file])
    other = tmp_path / "other" / "a.py"
    other.parent.mkdir()
    other.write_text("x = 1  # a comment\n")
    assert not known.stale([other])
    other.with_name("b.py").write_text("x = 2\n")
    assert known.stale([other, other.with_name("b.py")])


def test_the_shipped_record_names_what_every_tested_function_did():
    known = perturbed.load()
    assert len(known) > 350  # of the 408 entries that are verified or corrected
    assert all(outcome.tests for outcome in known.values())
    assert all(0 <= tried.noticed <= tried.pairs for one in known.values() for tried in one.functions.values())


# -- the numbers of tests -------------------------------------------------------------------------------------


def test_a_comparison_is_measured_as_a_share_of_what_is_allowed():
    with numbers.watch() as watched:
        np.testing.assert_allclose([1.0, 2.0 + 1e-3], [1.0, 2.0], rtol=1e-3)
        np.testing.assert_allclose(np.inf, np.inf)
    assert watched.share == pytest.approx(0.5, rel=1e-9)


def test_the_corrected_form_is_asked_with_the_arguments_of_the_printed_one(monkeypatch):
    @marking.equation("toy", "1")
    def right(x, y):
        return np.array([x, y])

    @marking.equation("toy", "1", as_printed=True)
    def wrong(y, x):
        return np.array([x, -y])

    @marking.equation("toy", "1")
    def of_something_else(z):
        return z

    proof = numbers.Proof([right, wrong, of_something_else])
    monkeypatch.setattr(marking, "hook", proof)
    wrong(3.0, x=1.0)
    wrong(0.0, 5.0)  # where they agree
    assert proof.values == {("toy", "1"): (-3.0, 3.0)}


def test_a_test_may_name_the_numbers_of_both_forms_itself():
    proof = numbers.Proof(())
    with proof.listening():
        numbers.told_apart("toy", "1", [1.0, 2.0], [1.0, 2.5])
        numbers.told_apart("toy", "1", 2.4, 2.5)  # less far apart
    numbers.told_apart("toy", "1", -2.5, 2.5)  # to nobody
    assert proof.values == {("toy", "1"): (2.0, 2.5)}


@pytest.mark.parametrize(
    ("printed", "corrected", "message"),
    [(1.0, 1.0, "equal numbers"), (np.ones(2), np.ones(3), "shapes"), (np.nan, 1.0, "finite")],
)
def test_a_misprint_that_changes_no_number_is_not_told_apart(printed, corrected, message):
    with pytest.raises(AssertionError, match=message):
        numbers.told_apart("toy", "1", printed, corrected)


REASON = """
[paper]
key = "toy"
title = "T"
authors = "A"
year = 2000
venue = "V"
complete = true

[[slip]]
id = "slip-1"
section = "(53)"
printed = "a"
meant = "b"
because = "a is no letter"
number = "quadrature, (53) on 13 data: -0.3794; printed: 1.20e-3, then 0"
decides = "print/ep/d"
"""


@pytest.fixture
def ledger_of_one_slip(monkeypatch):
    known = Inventory({"toy": read_paper(REASON, "toy")})
    monkeypatch.setattr(inventory, "load", lambda: known)


@pytest.mark.parametrize("values", [(-0.37942,), (13, -0.37935, 0.0012049, 0.0), (0.0012,)])
def test_numbers_of_the_ledger_are_those_that_come_out(ledger_of_one_slip, values):
    numbers.assert_recorded("toy", "slip-1", *values)


@pytest.mark.parametrize(
    "values",
    [(0.37942,), (-0.37946,), (0.0012, -0.3794), (12,), (0.00121,), (53.02,)],
    ids=["sign", "digit", "order", "count", "small", "too few digits"],
)
def test_a_number_that_the_ledger_does_not_have_is_an_error(ledger_of_one_slip, values):
    with pytest.raises(AssertionError, match=r"toy:slip-1: computed .*, the ledger has: quadrature"):
        numbers.assert_recorded("toy", "slip-1", *values)


def test_what_is_no_number_is_compared_as_ever():
    original = np.testing.assert_allclose
    with numbers.watch() as watched, pytest.raises(TypeError):
        np.testing.assert_allclose("a", "b")
    assert watched.share is None
    assert np.testing.assert_allclose is original


def test_the_words_of_a_test_hold_its_number():
    assert Ran("passed", 0.012).words == "passed, largest difference 0.012 of what is allowed"
    assert Ran("passed", None).words == "passed"
