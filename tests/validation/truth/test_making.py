"""Making truths of the library: the cheapest first, what misses its gates is told and not stored, and log Z twice."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from validation import Solution
from validation.datasets.errors import DatasetNotFoundError
from validation.door.solve import ImplementationError
from validation.jobs.run import Processes
from validation.truth import library, making, shelf
from validation.truth.make import Pair

NAME = "gp-2-3-probit-v0"


@pytest.fixture
def shelf_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(shelf, "folder", lambda: tmp_path)
    shelf.load.cache_clear()
    yield tmp_path
    shelf.load.cache_clear()


def made_once(monkeypatch, truth):
    """`making.make` without its seconds of work."""
    monkeypatch.setattr(making, "make", lambda name: truth)


def test_a_truth_is_made_stored_and_missing_no_more(shelf_folder):
    chosen = making.missing(lambda name: name == NAME, making.LONGEST)
    assert [p.name for p in chosen] == [NAME]
    (outcome,) = making.make_all(chosen, Processes(1))
    assert (outcome.name, outcome.what) == (NAME, "made")
    truth = shelf.load(NAME)
    assert truth.card.certified
    assert set(truth.card.evidence) == {"exact", "exact-probit"}
    assert truth.card.problem_sha256 == library.fingerprints()[NAME]
    assert making.missing(lambda name: name == NAME, making.LONGEST) == []
    # the recipe fixes every digit of the moments
    again = making.make(NAME)
    np.testing.assert_array_equal(again.solution.latent_mean, truth.solution.latent_mean)
    assert again.card.second_z == truth.card.second_z


def test_the_cheapest_come_first_and_the_dear_only_when_asked():
    todo = making.missing(lambda name: True, float("inf"), again=True)
    seconds = [p.seconds for p in todo]
    assert seconds == sorted(seconds)
    assert all(p.seconds <= 60.0 for p in making.missing(lambda name: True, 60.0))
    assert all(not shelf.is_made(p.name) for p in todo)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gate": "not met", "gate_reason": "ESS 12"}, "gate not met: ESS 12"),
        ({"second_z": 9.0}, "disagrees: .z. 9.00"),
        ({"second_z": float("nan")}, "disagrees: .z. nan"),
        ({"evidence_z": 9.0, "evidence_limit": 4.0}, "routes to log Z disagree: .z. 9.00"),
    ],
)
def test_what_misses_a_gate_is_written_down_and_not_stored(shelf_folder, monkeypatch, change, reason):
    import re

    truth = making.make(NAME)
    made_once(monkeypatch, truth._replace(card=replace(truth.card, **change)))
    (outcome,) = making.make_all([library.get(NAME)], Processes(1))
    assert outcome.what == "refused"
    assert re.search(reason, outcome.line)
    assert not shelf.is_made(NAME)
    assert making.refused()[NAME].reason == outcome.line
    # it is not tried in vain each time, but on request
    assert making.missing(lambda name: name == NAME, making.LONGEST) == []
    again = making.missing(lambda name: name == NAME, making.LONGEST, again=True)
    assert [p.name for p in again] == [NAME]
    made_once(monkeypatch, truth)
    (outcome,) = making.make_all(again, Processes(1))
    assert outcome.what == "made"
    assert making.refused() == {}


def test_a_sampler_that_gives_up_is_told(shelf_folder, monkeypatch):
    def give_up(name):
        raise ImplementationError("gibbs exact-probit: acceptance 1e-9")

    monkeypatch.setattr(making, "make", give_up)
    (outcome,) = making.make_all([library.get(NAME)], Processes(1))
    assert (outcome.what, "acceptance 1e-9" in outcome.line) == ("refused", True)


def test_one_without_its_data_is_told_and_the_others_are_made(shelf_folder, monkeypatch):
    def without(name):
        raise DatasetNotFoundError("name: found 'german', expected a data set within reach")

    healthy = making.make
    monkeypatch.setattr(making, "make", lambda name: healthy(name) if name == NAME else without(name))
    outcomes = list(making.make_all([library.get("german-100-logit-v2-m12"), library.get(NAME)], Processes(1)))
    assert {(outcome.name, outcome.what) for outcome in outcomes} == {
        ("german-100-logit-v2-m12", "without data"),
        (NAME, "made"),
    }
    assert not (shelf_folder / making.REFUSED).exists()  # it may be made where the data are


def test_what_another_run_made_meanwhile_is_not_made_again(shelf_folder, monkeypatch):
    chosen = [library.get(NAME)]
    list(making.make_all(chosen, Processes(1)))
    before = (shelf_folder / f"{NAME}.npz").read_bytes()
    made_once(monkeypatch, None)
    (outcome,) = making.make_all(chosen, Processes(1))
    assert (outcome.what, outcome.line) == ("made", "by another run meanwhile")
    assert (shelf_folder / f"{NAME}.npz").read_bytes() == before


def test_after_its_time_nothing_is_begun(shelf_folder):
    (outcome,) = making.make_all([library.get(NAME)], Processes(1), until=time.time() - 1.0)
    assert outcome.what == "later"
    assert not list(shelf_folder.iterdir())


def test_a_refusal_of_another_problem_is_forgotten(shelf_folder):
    (shelf_folder / making.REFUSED).write_text(f'"{NAME}" = {{ fingerprint = "0", reason = "old", seconds = 1.0 }}\n')
    assert making.refused() == {}


def agreement(name: str = NAME, **routes):
    return making._agreement({key.replace("_", " "): value for key, value in routes.items()}, library.get(name))


def test_log_z_is_held_by_the_two_surest_of_those_that_trust_themselves():
    fields = agreement(first=(-3.0, 0.001, 1), second=(-3.04, 0.01, 1), wild=(-9.0, 0.001, 0), vague=(-9.0, 0.3, 1))
    assert fields["evidence_z"] == pytest.approx(0.04 / np.hypot(0.001, 0.01))
    # two-sided at 1e-4, one statistic
    assert fields["evidence_limit"] == pytest.approx(3.8906, abs=1e-4)
    assert "first" in fields["evidence_note"]
    assert "second" in fields["evidence_note"]
    assert "vague" not in fields["evidence_note"]


def test_a_card_says_where_log_z_or_its_second_route_is_out_of_reach():
    assert agreement(only=(-3.0, 0.001, 1)) == {"evidence_note": "log Z by only; no second route is sure to 0.05 nat"}
    assert agreement(vague=(-3.0, 0.2, 1)) == {"evidence_note": "no log Z is sure to 0.05 nat: vague has 0.2"}
    assert agreement("gp-2-20-probit-v0-learnt") == {"evidence_note": "no log Z: its parameters are sampled"}


def test_every_route_to_log_z_of_both_sides_is_read():
    problem = library.question(NAME)
    chain = Solution(
        problem, "gibbs", "gibbs-probit", log_evidence=-2.0, log_evidence_se=0.01, log_evidence_kind="sampled",
        local={"log_evidence_bridge": [-2.0, 0.01], "log_evidence_sequential": [-2.1, 0.02]},
        settings={"trusted_bridge": True, "trusted_sequential": False},
    )  # fmt: skip
    exact = Solution(problem, "quadrature", "exact", log_evidence=-2.05, log_evidence_kind="exact",
                     settings={"error_log_evidence": 1e-9})  # fmt: skip
    pair = Pair(making.make(NAME), exact, chain)
    assert making.evidence_routes(pair) == {
        "exact": (-2.05, 1e-9, 1),
        "gibbs-probit bridge": (-2.0, 0.01, 1),
        "gibbs-probit sequential": (-2.1, 0.02, 0),
    }


def test_errors_are_told_in_posterior_standard_deviations():
    problem = library.question(NAME)
    n = problem.n
    solution = Solution(
        problem, "gibbs", "exact-probit", latent_mean=np.zeros((n, 1)), latent_mean_se=np.full((n, 1), 0.1),
        latent_cov=np.full((n, 1, 1), 4.0), latent_cov_se=np.full((n, 1, 1), 0.2), log_evidence=-1.0,
        log_evidence_se=0.03, log_evidence_kind="sampled",
    )  # fmt: skip
    assert making.mcse(solution) == {"log_evidence": 0.03, "latent_mean": 0.05, "latent_cov": 0.05}
