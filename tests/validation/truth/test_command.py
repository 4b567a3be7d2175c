"""`triad truth` from the outside: files, exit codes, and what is said."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from validation import Solution, problems
from validation.command.truth import truth
from validation.truth import EvidenceCard, store

cli = typer.Typer()
cli.command()(truth)


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)

    return run


def test_a_truth_and_its_card_are_written_and_agree(invoke, tmp_path):
    outcome = invoke(
        "two-points-3", "--method", "exact-probit", "--target-ess", "1000", "--seed", "3", "--output", "a.npz"
    )
    assert outcome.exit_code == 0, outcome.output
    card, solution = EvidenceCard.load(tmp_path / "a.toml"), Solution.load(tmp_path / "a.npz")
    assert card.certified
    assert card.second_route == "quadrature exact"
    assert solution.problem.differences(problems.get("two-points-3")) == []
    assert (solution.ess, card.seed) == (1000.0, 3)
    assert "second route  quadrature exact" in outcome.stdout
    # progress on stderr
    assert "exact-probit, 1000 draws" in outcome.stderr
    assert "exact-probit, 1000 draws\n" not in outcome.stdout.split("route", 1)[0]


def test_a_problem_from_a_file_will_do(invoke, tmp_path):
    problems.get("two-points-3").save(tmp_path / "mine.npz")
    assert invoke("mine.npz", "--method", "quadrature", "--second", "none").exit_code == 0
    assert EvidenceCard.load(tmp_path / "truth.toml").route == "quadrature exact"


def test_a_gate_that_is_not_met_exits_1_says_so_and_still_writes(invoke, tmp_path):
    arguments = ["two-points-3-errors", "--method", "gibbs-threshold", "--second", "none", "--output", "a.npz"]
    outcome = invoke(*arguments, "--target-ess", "1e9", "--max-draws", "20")
    assert outcome.exit_code == 1
    assert "gate not met: ESS" in outcome.stdout
    assert EvidenceCard.load(tmp_path / "a.toml").gate == "not met"
    assert Solution.load(tmp_path / "a.npz").settings["n_draws"] == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "found no problem or no --method"),
        (["toy-3"], "found no problem or no --method"),
        (["toy-3", "--method", "exact-probit", "--output", "truth.dat"], "expected a name that ends in .npz"),
        (["toy-3", "--stored", "--method", "exact-probit"], "recipes have them"),
    ],
)
def test_a_request_that_makes_no_sense_exits_2(invoke, tmp_path, arguments, message):
    outcome = invoke(*arguments)
    assert outcome.exit_code == 2
    assert message in " ".join(outcome.stderr.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_stored_truths_are_made_by_name_in_the_folder_of_the_package(invoke, monkeypatch, tmp_path):
    monkeypatch.setattr(store, "folder", lambda: tmp_path / "stored")
    monkeypatch.setattr(store, "RECIPES", {"two-points-3": store.Recipe("exact-probit", 1000)})
    store.load.cache_clear()
    outcome = invoke("--stored", "two-points-3")
    assert outcome.exit_code == 0, outcome.output
    assert "two-points-3: gibbs exact-probit, 1000 draws; gate met" in outcome.stdout
    assert store.load("two-points-3").card.seed == store.SEED
    store.load.cache_clear()
    with pytest.raises(KeyError, match="stored: found 'toy'"):
        invoke("--stored", "toy")
