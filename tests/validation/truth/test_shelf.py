"""The made truths of the library: each is of its table's problem, vouched for by its card, and small."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from scipy.stats import norm

from validation import solve
from validation.datasets.errors import DatasetNotFoundError
from validation.datasets.folder import data_folder
from validation.door import storage
from validation.door.statistics import z_statistics
from validation.truth import evidence, library, load, making, shelf, store, withheld
from validation.truth.card import EvidenceCard

MADE = shelf.made()
OPEN = [name for name in MADE if not library.get(name).withheld]
HIDDEN = [name for name in MADE if library.get(name).withheld]


def test_the_files_are_those_of_made_truths_and_fit_in_the_package():
    files = list(shelf.folder().iterdir())
    # 20 MB hold the library; its share of a wheel is kept in view
    assert sum(file.stat().st_size for file in files) < 20e6
    expected = {f"{name}{end}" for name in MADE for end in (".npz", ".toml")}
    assert {file.name for file in files} - {making.REFUSED} == expected
    assert OPEN
    assert HIDDEN


@pytest.mark.parametrize("name", MADE)
def test_a_made_truth_met_its_gates(name):
    card, posterior = EvidenceCard.load(shelf.folder() / f"{name}.toml"), library.get(name)
    assert card.certified
    assert card.problem == name
    assert card.problem_sha256 == library.fingerprints()[name]
    assert dict(card.recipe) == posterior.recipe()
    assert card.target_ess == making.TARGET_ESS
    assert card.seed == library.SEED
    assert card.evidence_note
    if posterior.route != "quadrature":
        assert card.ess >= making.TARGET_ESS
    assert (card.second_z is None) == (card.second_route == "none")
    if card.evidence_z is not None:
        sure = [r for r in card.evidence.values() if r[2] and r[1] <= making.MOST_ERROR]
        assert len(sure) >= 2
        assert card.evidence_z <= card.evidence_limit
    data = (shelf.folder() / f"{name}.npz").read_bytes()
    assert hashlib.sha256(data).hexdigest() == card.moments_sha256


@pytest.mark.parametrize("name", store.RECIPES)
def test_a_truth_that_is_older_than_its_cards_fields_says_log_z_by_each_route(name):
    truth, card = shelf.load(name), shelf.full_card(name)
    assert card == truth.card
    sure = {label: r for label, r in card.evidence.items() if r[2] and r[1] <= evidence.MOST_ERROR}
    assert min(r[1] for r in sure.values()) == pytest.approx(truth.solution.log_evidence_se)
    assert truth.solution.log_evidence in [pytest.approx(r[0]) for r in sure.values()]
    if len(sure) > 1:
        assert card.evidence_z <= card.evidence_limit
    else:
        assert card.evidence_note.endswith("no second route is in its file")
    assert set(card.mcse) >= {"log_evidence", "latent_mean", "latent_cov", "probabilities"}
    assert max(card.mcse.values()) < 0.05


@pytest.mark.parametrize("name", HIDDEN)
def test_a_truth_of_a_folders_data_holds_no_row_of_it(name):
    arrays = storage.load_npz(shelf.folder() / f"{name}.npz", withheld.SCHEMA)
    assert not [key for key in arrays if key.startswith("problem")]


@pytest.mark.parametrize("name", OPEN)
def test_a_truth_is_loaded_with_its_problem_and_every_error(name):
    truth = load(name)
    solution = truth.solution
    assert truth.problem is solution.problem
    if not library.get(name).learn:
        assert truth.problem.differences(library.question(name), ignore=("X", "X_test", "Z")) == []
    assert making.mcse(solution) == dict(truth.card.mcse)
    exact = library.get(name).route == "quadrature"
    for quantity in ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities"):
        assert getattr(solution, quantity) is not None
        assert (getattr(solution, f"{quantity}_se") is None) == exact


@pytest.mark.skipif(data_folder() is None, reason="needs $TRIAD_DATA")
@pytest.mark.parametrize("name", HIDDEN)
def test_a_withheld_truth_is_joined_to_its_data(name):
    truth = load(name)
    assert truth.problem.differences(library.question(name)) == []
    assert making.mcse(truth.solution) == dict(truth.card.mcse)


def test_without_the_data_a_card_is_read_and_a_truth_is_refused(monkeypatch):
    monkeypatch.delenv("TRIAD_DATA", raising=False)
    for cached in (shelf.load, library.question, library._distinct):
        cached.cache_clear()
    assert shelf.card_of(HIDDEN[0]).certified
    with pytest.raises(DatasetNotFoundError, match="TRIAD_DATA"):
        load(HIDDEN[0])


def test_moments_of_another_pair_are_refused(tmp_path, monkeypatch):
    name, other = OPEN[:2]
    for end, source in ((".toml", name), (".npz", other)):
        (tmp_path / f"{name}{end}").write_bytes((shelf.folder() / f"{source}{end}").read_bytes())
    monkeypatch.setattr(shelf, "folder", lambda: tmp_path)
    shelf.load.cache_clear()
    with pytest.raises(storage.FileFormatError, match="not those of"):
        load(name)
    shelf.load.cache_clear()


def test_a_truth_that_is_not_made_says_how_it_is(monkeypatch, tmp_path):
    monkeypatch.setattr(shelf, "folder", lambda: tmp_path)
    shelf.load.cache_clear()
    with pytest.raises(FileNotFoundError, match=f"triad truth make {OPEN[0]}"):
        load(OPEN[0])
    assert shelf.made() == ()


def test_an_unknown_truth_is_told_with_the_near_miss():
    with pytest.raises(KeyError, match=r"did you mean 'iris-2-40-probit-v4'"):
        load("iris-2-40-probit-v44")


def test_all_truths_at_hand_have_different_names():
    names = shelf.names()
    assert len(set(names)) == len(names)
    assert {"toy-3", "glass", *OPEN} <= set(names)


@pytest.mark.parametrize("name", ["iris-2-40-probit-v4", "riihimaki-15-mprobit-v4.62", "iris-36-thr-v1"])
def test_a_short_fresh_run_agrees(name):
    stored = load(name).solution
    fresh = solve("gibbs", "exact-probit", library.question(name), n_draws=500, seed=4711)
    quantities = ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities", "log_evidence")
    z = np.concatenate([np.ravel(z_statistics(fresh, stored, quantity)[0]) for quantity in quantities])
    # two-sided, Bonferroni at 1e-4
    assert np.abs(z).max() < norm.isf(0.5e-4 / z.size)
