"""The one rule by which a solver chooses its form."""

from itertools import product

from reference.common._forms import DIGITS, FORMS, SECONDS, chosen_form


def test_the_form_asked_for_is_the_one_that_runs():
    for form, searched in product(FORMS, (False, True)):
        assert chosen_form(form, seconds=1e6, lost=1e16, searched=searched) == form
        assert chosen_form(form) == form


def test_printed_is_what_is_quick_exact_and_no_search():
    assert chosen_form(None) == "printed"
    assert chosen_form(None, seconds=SECONDS, lost=DIGITS) == "printed"
    assert chosen_form(None, seconds=1.01 * SECONDS) == "projected"
    assert chosen_form(None, lost=1.01 * DIGITS) == "projected"
    assert chosen_form(None, searched=True) == "projected"
