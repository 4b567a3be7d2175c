"""`triad truth list` from the outside: lists, filters, one truth with its picture, and making."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from validation.command.truths import truths
from validation.truth import library, making, picture, shelf, store
from validation.truth.rows import Filter, chosen, rows

cli = typer.Typer()
cli.command()(truths)
NAME = "iris-2-40-probit-v4"


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str, expected: int = 0) -> Any:
        outcome = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
        assert outcome.exit_code == expected, outcome.output
        return outcome

    return run


def test_all_are_listed_in_80_columns(invoke):
    lines = invoke().stdout.splitlines()
    table = lines[: len(rows()) + 1]
    assert max(map(len, table)) <= 80
    names = [line.split()[0] for line in table[1:]]
    assert names == [*store.names(), "glass", *library.posteriors()]
    assert f"{len(names)} posteriors" in lines[len(names) + 1]


@pytest.mark.parametrize(
    ("arguments", "admits"),
    [
        (["--likelihood", "multinomial-probit"], lambda r: r["likelihood"] == "multinomial-probit"),
        (["--likelihood", "mprobit"], lambda r: r["likelihood"] == "multinomial-probit"),
        (["--prior", "fitc"], lambda r: r["prior_model"] == "fitc" and r["m"] > 0),
        (["--classes", "6"], lambda r: r["n_classes"] == 6),
        (["--dataset", "breast-*"], lambda r: r["dataset"].startswith("breast_cancer")),
        (["--max-n", "20"], lambda r: r["n"] <= 20),
        (["--log-variance", "8"], lambda r: abs(r["log_variance"] - 8.0) < 0.01),
        (["--epsilon", "0.05"], lambda r: r["epsilon"] == 0.05),
        (["--state", "made", "--classes", "2"], lambda r: r["state"] == "made" and r["n_classes"] == 2),
    ],
)
def test_a_filter_keeps_what_it_names_and_nothing_else(invoke, arguments, admits):
    every = json.loads(invoke("--json").stdout)
    kept = json.loads(invoke(*arguments, "--json").stdout)
    assert kept == [row for row in every if admits(row)]
    assert 0 < len(kept) < len(every)


def test_a_row_of_a_stored_truth_is_that_of_its_problem():
    for row in chosen(Filter(state="made")):
        if row.name in store.RECIPES:
            p = store.load(row.name).problem
            assert (row.n, row.n_classes, row.m, row.epsilon) == (p.n, p.n_classes, p.m or 0, p.epsilon)
            assert row.likelihood in p.likelihood
    glass = next(row for row in rows() if row.name == "glass")
    assert (glass.n, glass.n_classes, glass.likelihood, glass.withheld) == (106, 6, "multinomial-probit", True)


def test_markdown_has_a_line_for_each(invoke):
    lines = invoke("--markdown", "--dataset", "wine").stdout.splitlines()
    assert lines[1].startswith("|---")
    assert len(lines) == 2 + len(chosen(Filter(dataset="wine")))
    assert all(line.count("|") == 9 for line in lines)


def test_one_truth_shows_its_card(invoke):
    text = " ".join(invoke(NAME).stdout.split())
    card = shelf.card_of(NAME)
    assert card.model in text
    assert f"limit {card.second_limit:.2f}" in text
    for label, (value, _, _) in card.evidence.items():
        assert f"log Z, {label} {value:.4f}" in text
    assert json.loads(invoke(NAME, "--json").stdout)["card"]["evidence_z"] == card.evidence_z
    assert "| gate | met" in invoke(NAME, "--markdown").stdout


def test_a_missing_one_says_what_it_would_cost(invoke, monkeypatch, tmp_path):
    monkeypatch.setattr(shelf, "folder", lambda: tmp_path / "library")  # none of the library is there
    missing = next(iter(making.missing(lambda name: name.endswith("learnt"), float("inf"))))
    assert f"missing; about {missing.seconds:.0f} s" in " ".join(invoke(missing.name).stdout.split())
    with pytest.raises(FileNotFoundError, match="truth make"):
        invoke(missing.name, "--output", "a.svg")


@pytest.mark.parametrize("name", [NAME, "toy-3", "gp-2-3-logit-v2"])
def test_a_picture_has_a_panel_for_each_latent_function_and_one_for_the_probabilities(invoke, tmp_path, name):
    truth = shelf.load(name)
    invoke(name, "--output", "a.svg")
    text = (tmp_path / "a.svg").read_text()
    titles = text.count("latent function")
    assert titles == truth.problem.n_latents
    assert text.count("class probabilities") == 1
    assert truth.card.model in text
    # the same picture is the same file
    picture.save(truth, tmp_path / "b.svg")
    assert (tmp_path / "b.svg").read_text() == text


def test_a_picture_shows_every_datum_with_two_standard_deviations():
    truth = shelf.load("toy-3")
    axes = picture.draw(truth).axes[1]
    dots = {(float(x), float(y)) for line in axes.lines for x, y in zip(*line.get_data(), strict=True)}
    mean = truth.solution.latent_mean[:, 1]
    assert {round(y, 12) for _, y in dots} >= {round(float(value), 12) for value in mean}
    reach = sorted(s[1, 1] - s[0, 1] for lines in axes.collections for s in lines.get_segments())
    assert reach == pytest.approx(sorted(4.0 * truth.solution.latent_var[:, 1] ** 0.5))


def test_a_png_is_one(invoke, tmp_path):
    invoke(NAME, "--output", "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json", "--markdown"], "expected one of them"),
        (["--output", "a.svg"], "without NAME"),
        ([NAME, "--classes", "3"], "with a filter"),
        (["--only", "gp-*"], "expected --make with it"),
        ([NAME, "--make"], "expected --only"),
        (["--make", "--remake", "2"], "expected --only"),
        ([NAME, "--remake", "2"], "expected filters"),
        # typer's own words, "0 is not in the range x>=1." in older versions
        (["--remake", "0"], ("should be greater than or equal to 1", "is not in the range x>=1")),
    ],
)
def test_a_request_that_makes_no_sense_exits_2(invoke, arguments, message):
    told = " ".join(invoke(*arguments, expected=2).stderr.replace("│", " ").split())
    assert any(words in told for words in ([message] if isinstance(message, str) else message))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--likelihood", "logic"], ValueError, "--likelihood: found 'logic', expected 'logit'"),
        (["--prior", "ful"], ValueError, "expected 'full'"),
        (["toy-33"], LookupError, "truth: found 'toy-33', expected one of 'toy-3'"),
        ([NAME, "--output", "a.pdf"], ValueError, "ends in .svg or .png"),
        (["--make", "--only", "nothing-*"], LookupError, "expected a pattern of names"),
        (["--remake", "2", "--only", "nothing-*"], LookupError, "expected a pattern of names"),
        (["--remake", "2", "--longest", "0.001"], ValueError, "no made truth that the filters admit"),
    ],
)
def test_an_unknown_word_is_told_with_the_near_miss(invoke, arguments, error, message):
    with pytest.raises(error, match=message):
        invoke(*arguments)


def test_making_goes_on_where_it_was_and_lists_what_is_dear(invoke, monkeypatch, tmp_path):
    monkeypatch.setattr(shelf, "folder", lambda: tmp_path / "library")
    outcome = invoke("--make", "--only", "gp-2-3-probit-v[02]")
    assert outcome.stdout.startswith("2 made, 0 refused, 0 without data, 0 later, 0 too long")
    assert invoke("--make", "--only", "gp-2-3-probit-v[02]").stdout.startswith("0 made")
    dear = invoke("--make", "--only", "gp-2-*-logit-v2-m24", "--longest", "1").stdout
    assert "2 too long" in dear
    assert "gp-2-2000-logit-v2-m24: about" in dear


def test_a_second_making_is_told_and_exits_1_unless_it_agrees(invoke, monkeypatch):
    name = "gp-2-3-probit-v0"
    table = invoke("--remake", "3", "--only", name, "--seed", "4").stdout
    assert table.splitlines()[1].split()[:2] == [name, "agrees"]
    assert "1 drawn with seed 4: 1 agrees, 0 differs" in table
    (row,) = json.loads(invoke("--remake", "3", "--only", name, "--minutes", "0", "--json", expected=1).stdout)
    assert (row["name"], row["what"], row["worst"]) == (name, "later", None)
    stored = shelf.load(name)
    wrong = replace(stored.solution, log_evidence=stored.solution.log_evidence + 1e-3)
    monkeypatch.setattr(shelf, "load", lambda asked: stored._replace(solution=wrong))
    table = invoke("--remake", "3", "--only", name, expected=1).stdout
    assert "0 agrees, 1 differs" in table
    assert "log_evidence" in table


def test_draws_of_every_truth_that_the_filters_admit_go_to_a_folder(invoke, tmp_path):
    arguments = ["--likelihood", "probit", "--max-n", "3", "--log-variance", "0", "--draws"]
    assert "1 drawn, 0 there, 0 left out" in invoke(*arguments, "all").stdout.replace("\n", " ")
    assert (tmp_path / "all" / "gp-2-3-probit-v0.npz").is_file()
    assert "0 drawn, 1 there" in invoke(*arguments, "all").stdout
    for wrong, message in ((["a.npz"], "expected a folder"), (["all", "--json"], "expected filters and --jobs")):
        assert message in " ".join(invoke(*arguments, *wrong, expected=2).stderr.replace("│", " ").split())
    with pytest.raises(ValueError, match="no made truth that the filters admit"):
        invoke("--state", "missing", "--draws", "all")
