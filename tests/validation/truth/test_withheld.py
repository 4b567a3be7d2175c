"""Truths without their data: nothing of the problem is in the file, and only its own data are given it."""

from __future__ import annotations

import numpy as np
import pytest

from validation.door import storage
from validation.truth import withheld
from validation.truth.card import EvidenceCard

NAMES = tuple(withheld.SETTINGS)


def test_no_file_is_left_over_and_none_is_large():
    files = list(withheld.folder().iterdir())
    assert {file.name for file in files} == {f"{name}{end}" for name in NAMES for end in (".npz", ".toml")}
    assert sum(file.stat().st_size for file in files) < 500_000


@pytest.mark.parametrize("name", NAMES)
def test_a_withheld_truth_holds_no_inputs_and_no_labels(name):
    arrays = storage.load_npz(withheld.folder() / f"{name}.npz", withheld.SCHEMA)
    assert not [key for key in arrays if key.startswith("problem")]
    assert {"latent_mean", "latent_cov", "probabilities"} <= set(arrays)


@pytest.mark.parametrize("name", NAMES)
def test_a_withheld_truth_is_certified_by_its_card(name):
    card = EvidenceCard.load(withheld.folder() / f"{name}.toml")
    assert card.certified
    assert card.second_route != "none"
    assert card.ess is not None
    assert card.ess >= card.target_ess


@pytest.mark.parametrize("name", NAMES)
def test_without_the_data_there_is_a_reason_and_no_download(name, monkeypatch):
    monkeypatch.delenv("TRIAD_DATA", raising=False)
    withheld.question.cache_clear()
    result = withheld.at_hand(name)
    assert isinstance(result, str)
    assert result.startswith("data: found no")


def test_other_data_are_not_given_the_truth(monkeypatch):
    rng = np.random.default_rng(0)
    card = EvidenceCard.load(withheld.folder() / "glass.toml")
    other = withheld.Problem(name="glass", X=rng.normal(size=(6, 2)), y=np.arange(6) % 3, n_classes=3,
                             likelihood="multinomial-probit", variance=1.0, lengthscales=1.0)  # fmt: skip
    assert withheld.fingerprint(other) != card.problem_sha256
    assert withheld.fingerprint(other) == withheld.fingerprint(other.replace(X=other.X * (1.0 + 1e-13)))
    monkeypatch.setattr(withheld, "question", lambda name: other)
    with pytest.raises(storage.FileFormatError, match="another digest"):
        withheld.load("glass")
