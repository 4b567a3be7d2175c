"""How far methods are from truths: the numbers themselves, the record, and what is shown of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from validation.command.truths import truths
from validation.truth import approximations as record
from validation.truth import library, shelf, store
from validation.truth.approximations import Distance
from validation.truth.rows import rows

NAME = "gp-2-3-probit-v0"
cli = typer.Typer()
cli.command()(truths)


def test_a_truth_is_no_distance_from_itself():
    truth = shelf.load("toy-3").solution
    values = record.distance(truth, truth)
    assert values == {"bias": 0.0, "variance_ratio": 1.0, "log_z_error": 0.0, "excess_nll": 0.0, "overconfidence": 0.0}


def test_each_number_says_how_far_it_was_moved():
    truth = shelf.load("toy-3").solution
    sd = np.sqrt(truth.latent_var)
    p = truth.probabilities
    top = np.eye(p.shape[1])[p.argmax(axis=1)]
    moved = replace(
        truth, latent_mean=truth.latent_mean + 0.3 * sd, latent_cov=0.5 * truth.latent_cov,
        log_evidence=truth.log_evidence - 0.7, probabilities=0.8 * p + 0.2 * top,
    )  # fmt: skip
    values = record.distance(moved, truth)
    assert values["bias"] == pytest.approx(0.3)
    assert values["variance_ratio"] == pytest.approx(0.5)
    assert values["log_z_error"] == pytest.approx(-0.7)
    assert values["overconfidence"] == pytest.approx(0.2 * np.mean(1.0 - p.max(axis=1)))
    # the definition, a row at a time
    by_hand = np.mean([sum(a * (math.log(a) - math.log(b)) for a, b in zip(*pair, strict=True))
                       for pair in zip(p, 0.8 * p + 0.2 * top, strict=True)])  # fmt: skip
    assert values["excess_nll"] == pytest.approx(by_hand)
    assert by_hand > 0.0


def test_what_a_side_does_not_have_is_no_number():
    truth = shelf.load("toy-3").solution
    bare = replace(truth, log_evidence=None, log_evidence_se=None, probabilities=None, probabilities_se=None,
                   latent_cov=None, latent_cov_se=None)  # fmt: skip
    values = record.distance(bare, truth)
    assert values.pop("bias") == 0.0
    assert all(math.isnan(value) for value in values.values())
    other = replace(truth, evidence_target="pairwise model")
    assert math.isnan(record.distance(other, truth)["log_z_error"])


def test_the_record_is_of_truths_at_hand_by_methods_that_answer_for_them():
    known = {row.name: row for row in rows()}
    assert record.recorded()
    for row in record.recorded():
        truth = known[row.truth]
        assert (row.likelihood, row.prior_model, row.n, row.n_classes) == (
            truth.likelihood, truth.prior_model, truth.n, truth.n_classes,
        )  # fmt: skip
        assert row.bias >= 0.0
        assert row.variance_ratio > 0.0
        # Jensen's inequality, up to what rounding leaves of sums of C logarithms
        assert math.isnan(row.excess_nll) or row.excess_nll > -1e-12
    pairs = [(row.truth, row.method) for row in record.recorded()]
    assert len(set(pairs)) == len(pairs)


@pytest.mark.parametrize("name", [NAME, "toy-2-sparse-threshold"])
def test_the_record_is_what_the_methods_answer_today(name):
    fresh = {row.method: row for row in record.measured(shelf.load(name))}
    held = {row.method: row for row in record.recorded() if row.truth == name}
    assert fresh.keys() == held.keys()
    for method, row in held.items():
        for key in record.MEASURES[:-1]:
            # five digits are recorded; iterations end within 1e-8
            np.testing.assert_allclose(getattr(fresh[method], key), getattr(row, key), rtol=1e-4, atol=1e-6)


def test_measuring_goes_on_where_it_was(monkeypatch, tmp_path):
    monkeypatch.setattr(record, "_path", lambda: tmp_path / "a.csv")
    monkeypatch.setattr(store, "names", lambda: ("toy-2-sparse-threshold",))
    monkeypatch.setattr(shelf, "made", lambda: (NAME,))
    record.recorded.cache_clear()
    record.measure(until=0.0)
    assert record.recorded() == ()
    record.measure()
    first = (tmp_path / "a.csv").read_text()
    assert {row.truth for row in record.recorded()} == {NAME, "toy-2-sparse-threshold"}
    record.measure()
    assert (tmp_path / "a.csv").read_text() == first
    # a method that came later is added to what is recorded, with the same numbers, and to nothing else
    record._write([row for row in record.recorded() if row.method != "epgpc" and row.truth == NAME])
    record.measure(only=["epgpc"])
    assert [row.method for row in record.recorded() if row.truth == NAME].count("epgpc") == 1
    assert {row.truth for row in record.recorded()} == {NAME}
    record.recorded.cache_clear()


def example(method: str, log_variance: float, bias: float, n_classes: int = 2) -> Distance:
    return Distance("a", method, "probit", "full", 9, n_classes, log_variance, bias, 0.5, math.nan, 0.25, 0.1, 2.0)


def test_a_table_has_medians_by_band_of_log_variance_and_by_classes():
    listed = [example("b", 0.0, 1.0), example("b", 1.0, 3.0), example("b", 8.0, 7.0), example("a", 2.0, 4.0, 3)]
    two, _, more = record.markdown(listed).partition("### More classes")
    (row,) = [line for line in two.splitlines() if line.startswith("| b |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["b", "2 / 0.5 / -", "-", "-", "7 / 0.5 / -", "0.25", "0.1", "2", "3"]
    assert "| a | - | 4 / 0.5 / - |" in more
    assert record.heads() == ["below 1.5", "1.5 to 3.5", "3.5 to 5.5", "above 5.5"]


def test_the_command_shows_the_record_of_what_a_filter_admits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = CliRunner().invoke(cli, ["--approximations", "--max-n", "3", "--output", "a.svg"], catch_exceptions=False)
    assert outcome.exit_code == 0
    small = [row for row in record.recorded() if row.n <= 3]
    assert outcome.stdout == record.markdown(small)
    text = (tmp_path / "a.svg").read_text()
    assert all(f">{method}<" in text for method in {row.method for row in small})
    assert "$" not in text  # formulas as labels, which nothing here sets
    assert CliRunner().invoke(cli, ["--approximations", "--make"]).exit_code == 2


def test_only_truths_with_held_parameters_are_measured(monkeypatch):
    assert library.get("gp-2-20-probit-v0-learnt").learn
    monkeypatch.setattr(shelf, "made", lambda: ("gp-2-20-probit-v0-learnt",))
    monkeypatch.setattr(store, "names", lambda: ())
    # nothing is loaded, so nothing fails
    record.measure()
