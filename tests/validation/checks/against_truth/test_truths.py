"""The checks of the library's truths: red where a file is not its card's, or its moments are of another posterior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from validation.checks.against_truth import truths
from validation.checks.core import Compared, Context, Tested
from validation.truth import shelf

METHOD = "exact-probit"


@pytest.fixture
def one(monkeypatch):
    """A sample of one truth, so that a test takes a second."""
    name = truths.sample(METHOD)[0]
    monkeypatch.setattr(truths, "sample", lambda method: (name,))
    return name


def statistics(outcomes):
    return np.concatenate([np.ravel(outcome.z) for outcome in outcomes if isinstance(outcome, Tested)])


def test_a_fresh_run_agrees_and_every_card_vouches(one):
    outcomes = list(truths._library(Context(), METHOD))
    (cards,) = [outcome for outcome in outcomes if isinstance(outcome, Compared)]
    assert cards.observed == 0.0
    # 5.5 is the level 1e-4 over some two thousand statistics
    assert np.abs(statistics(outcomes)).max() < 5.5


@pytest.mark.parametrize("field", ["latent_mean", "latent_cov"])
def test_moments_a_tenth_off_are_seen(one, monkeypatch, field):
    truth = shelf.load(one)
    wrong = truth._replace(solution=replace(truth.solution, **{field: 1.1 * getattr(truth.solution, field)}))
    monkeypatch.setattr(shelf, "load", lambda name: wrong)
    # with the 400 draws of a quick run a tenth of a variance is 1.4 standard errors an entry, of a mean several
    context = Context(quick=False)
    assert np.abs(statistics(truths._library(context, METHOD))).max() > 5.5


@pytest.mark.parametrize("change", [{"gate": "not met"}, {"evidence_z": 99.0, "evidence_limit": 4.0}, {"recipe": {}}])
def test_a_card_that_does_not_vouch_is_counted(monkeypatch, change):
    name = truths.sample(METHOD)[0]
    original = shelf.card_of
    monkeypatch.setattr(
        shelf, "card_of", lambda one: replace(original(one), **change) if one == name else original(one)
    )
    (cards,) = truths._cards(METHOD)
    assert cards.observed == 1.0
    assert name in cards.why


def test_a_file_of_another_pair_is_counted(monkeypatch):
    original = shelf.card_of
    name = truths.sample(METHOD)[0]
    monkeypatch.setattr(
        shelf, "card_of", lambda one: replace(original(one), moments_sha256="0" * 64) if one == name else original(one)
    )
    (cards,) = truths._cards(METHOD)
    assert cards.observed == 1.0


def test_a_route_without_made_truths_says_how_to_make_them(monkeypatch):
    monkeypatch.setattr(shelf, "made", lambda: ())
    (skipped,) = truths._cards(METHOD)
    assert "triad truth make '*'" in skipped.why
