"""The evidence card: everything it holds comes back, and nothing else is taken for one."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from validation.door.storage import FileFormatError
from validation.truth.card import EvidenceCard

CARD = EvidenceCard(
    problem='a "quoted" name',
    problem_sha256="ab" * 32,
    model="threshold (epsilon 0.1), full prior, n = 2, C = 3",
    route="gibbs gibbs-threshold, 32 chains x 504 draws",
    chains=32,
    draws=504,
    target_ess=2000.0,
    gate="met",
    gate_reason="ESS 5603 of 2000 asked for",
    second_route="quadrature exact",
    seed=7,
    seconds=1.25,
    date="2026-01-31",
    ess=5603.5,
    r_hat=1.0042,
    second_z=1.92,
    second_count=69,
    second_limit=4.82,
    versions={"numpy": "2.0", "gpc-triad": "0.1.0"},
)


def test_a_card_comes_back_from_its_file_as_it_was(tmp_path):
    CARD.save(tmp_path / "card.toml")
    back = EvidenceCard.load(tmp_path / "card.toml")
    for entry in fields(CARD):
        assert getattr(back, entry.name) == getattr(CARD, entry.name)
    assert EvidenceCard.from_toml(back.to_toml()).to_toml() == CARD.to_toml()


def test_what_a_card_does_not_know_is_left_out_and_comes_back_as_none():
    bare = replace(CARD, ess=None, r_hat=None, second_route="none", second_z=None, second_count=None, second_limit=None)
    back = EvidenceCard.from_toml(bare.to_toml())
    assert (back.ess, back.second_z, back.second_limit) == (None, None, None)
    assert back.agrees
    assert back.certified


OF_THE_LIBRARY = {
    "evidence_z": 0.4,
    "evidence_limit": 3.9,
    "evidence_note": "log Z by one, and by another",
    "recipe": {"n": 3, "learn": [], "classes": ["a", "b"], "per_input": False, "log_variance": 4.0},
    "evidence": {"one route": [-3.5, 0.001, 1], "another": [-3.6, 0.2, 0]},
    "mcse": {"latent_mean": 0.0071},
}


def test_what_the_library_adds_comes_back_and_older_cards_do_not_have_it():
    card = replace(CARD, **OF_THE_LIBRARY)
    back = EvidenceCard.from_toml(card.to_toml())
    for key, value in OF_THE_LIBRARY.items():
        assert getattr(back, key) == value
    assert back.to_toml() == card.to_toml()
    bare = EvidenceCard.from_toml(CARD.to_toml())
    assert (bare.evidence_z, dict(bare.recipe), dict(bare.mcse)) == (None, {}, {})
    assert "evidence" not in CARD.to_toml().replace("evidence-card", "").replace("The evidence behind", "")


def test_one_of_z_and_limit_of_log_z_is_refused():
    with pytest.raises(ValueError, match="evidence_limit: found one of"):
        replace(CARD, evidence_z=1.0)


@pytest.mark.parametrize(
    ("changes", "certified"),
    [
        ({}, True),
        ({"evidence_z": 3.9, "evidence_limit": 3.9}, True),
        ({"evidence_z": 3.91, "evidence_limit": 3.9}, False),
        ({"evidence_z": float("nan"), "evidence_limit": 3.9}, False),
        ({"second_z": 4.82}, True),
        ({"second_z": 4.83}, False),
        ({"second_z": float("nan")}, False),
        ({"second_z": float("inf")}, False),
        ({"gate": "not met"}, False),
    ],
)
def test_only_a_met_gate_and_an_agreeing_second_route_certify(changes, certified):
    card = EvidenceCard.from_toml(replace(CARD, **changes).to_toml())
    assert card.certified is certified


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('schema = "gpc-triad/evidence-card/1"', 'schema = "gpc-triad/evidence-card/2"', "found no schema"),
        ("seed = 7", "", r"found no fields \['seed'\]"),
        ("seed = 7", "seed = 7\ncolour = 3", r"found unknown fields \['colour'\]"),
        ("seed = 7", "seed = = 7", "found a damaged card"),
        ('gate = "met"', 'gate = "perhaps"', "gate: found 'perhaps'"),
        ("seconds = 1.25", "seconds = inf", "seconds: found"),
        ("seconds = 1.25", "seconds = -1.0", "seconds: found -1"),
        ("target_ess = ", "target_ess = nan #", "target_ess: found"),
    ],
)
def test_what_is_no_card_is_refused(old, new, message):
    text = CARD.to_toml()
    assert old in text
    with pytest.raises(FileFormatError, match=message):
        EvidenceCard.from_toml(text.replace(old, new))


@pytest.mark.parametrize(
    "changes",
    [
        {"second_route": float("nan")}, {"chains": 2.5}, {"draws": -1}, {"seconds": "long"}, {"ess": True},
        {"target_ess": None}, {"second_count": "many"}, {"moments_sha256": 3}, {"versions": 3}, {"date": 20260131},
    ],
)  # fmt: skip
def test_a_field_of_another_type_is_refused_by_name(changes):
    with pytest.raises((ValueError, TypeError), match=rf"^{next(iter(changes))}: found .*, expected"):
        replace(CARD, **changes)


def test_a_card_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "card.toml"
    path.write_bytes(b"\xa3" + CARD.to_toml().encode())
    with pytest.raises(FileFormatError, match=r"found a damaged card \(.*, expected TOML in UTF-8"):
        EvidenceCard.load(path)


def test_a_second_route_without_its_z_is_refused():
    with pytest.raises(ValueError, match="second_z: found None, expected the largest"):
        replace(CARD, second_z=None)


def test_a_missing_card_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected the card of a truth"):
        EvidenceCard.load(tmp_path / "none.toml")


def test_a_pair_that_was_torn_apart_is_refused_by_name(tmp_path):
    path = tmp_path / "truth.npz"
    CARD.save_with(path, b"moments")
    card = EvidenceCard.load(tmp_path / "truth.toml")
    card.check_moments(path)
    path.write_bytes(b"of another run")
    with pytest.raises(FileFormatError, match=r"truth\.npz: found moments that are not those of truth\.toml"):
        card.check_moments(path)
    CARD.check_moments(path)  # a card from before the digest was kept has none to hold against
