"""The mechanism of `triad claims run`: registration, options, page and CSV."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pandas as pd
import pytest
from typer.testing import CliRunner

from validation.command import cli
from validation.reproduce import catalogue, page
from validation.reproduce.experiment import (
    EXPERIMENTS,
    Experiment,
    Outcome,
    Picture,
    Say,
    Table,
    check_options,
    experiment,
    find,
)
from validation.screen import figures

runner = CliRunner()
catalogue.load()  # before any test puts another registry in its place


def run(*, size: int = 3, scale: float = 1.0, names: tuple[str, ...] = ("a",), alphas: tuple[float, ...] = (0.0, 1.0),
        dataset: str = "toy", free=None, seed: int = 0, say=lambda text: None) -> Outcome:  # fmt: skip
    say(f"running with {size}, alphas {alphas!r}")
    with figures.style():
        drawn = figures.curves("error", [figures.Curve("<m>", *([[1.0, 2.0]] * 2))], "seconds", "x")
    return Outcome(
        {"size": size, "data": dataset},
        (
            Table("first", ("name", "value"), (("<b>", scale), ("none", None)), "one"),
            Table("second", ("k",), ((1,),), "two"),
        ),
        (Picture("a picture", ("<m>",), (drawn,)),),
        ("fewer <rows> than the paper",),
    )


MADE = Experiment("paper2000", "fig9", "a made-up figure", "that it is so", run)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr("validation.reproduce.experiment.EXPERIMENTS", {**EXPERIMENTS, ("paper2000", "fig9"): MADE})
    monkeypatch.setattr("validation.command.reproduce.EXPERIMENTS", {("paper2000", "fig9"): MADE})


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"siz": 1}, ValueError, r"option: found 'siz', expected one of .*did you mean 'size'"),
        ({"size": "many"}, TypeError, r"size: found 'many', expected a value like 3"),
        ({"size": True}, TypeError, r"size: found True"),
        ({"size": 1.5}, TypeError, r"size: found 1.5"),
        ({"names": "a"}, TypeError, r"names: found 'a'"),
    ],
)
def test_options_are_checked_by_name_and_type(options, error, match):
    with pytest.raises(error, match=match):
        check_options(MADE, options)


def test_whole_numbers_serve_as_real_ones_and_lists_as_tuples():
    check_options(MADE, {"scale": 2, "names": ["b", "c"], "free": 7})


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Options of an experiment."""

    size: int = 3
    name: str = "a"


def test_an_experiment_is_registered_once(monkeypatch):
    def run(asked: Asked, say: Say) -> Outcome:
        say(asked.name)
        return Outcome({"size": asked.size}, (), (), ())

    monkeypatch.setattr("validation.reproduce.experiment.EXPERIMENTS", {})
    experiment("paper2000", "fig9", "title", "claim")(run)
    assert find("paper2000", "fig9").options == {"size": 3, "name": "a"}
    told: list[str] = []
    assert find("paper2000", "fig9").run(size=5, say=told.append).settings == {"size": 5}
    assert told == ["a"]
    with pytest.raises(ValueError, match="name: found 'fig9' of paper2000 a second time"):
        experiment("paper2000", "fig9", "title", "claim")(run)
    with pytest.raises(ValueError, match=r"paper: found 'paper200', .*did you mean 'paper2000'"):
        find("paper200", "fig9")
    with pytest.raises(ValueError, match=r"experiment: found 'fig8', .*did you mean 'fig9'"):
        find("paper2000", "fig8")


def test_the_page_loads_nothing_and_escapes_what_it_shows(tmp_path):
    paths = page.write(MADE, run(), tmp_path)
    assert [path.name for path in paths] == [
        "paper2000-fig9.html",
        "paper2000-fig9-first.csv",
        "paper2000-fig9-second.csv",
    ]
    text = paths[0].read_text(encoding="utf-8")
    assert "<td>&lt;b&gt;</td>" in text
    assert "fewer &lt;rows&gt; than the paper" in text
    assert "<m>" not in text
    assert not re.search(r"(src|href)=\"(?!#)|https?:|@import|url\((?!#)", text)
    assert '<td class="n">1</td>' in text
    assert pd.read_csv(paths[1])["value"].tolist()[0] == 1.0


def test_the_command_runs_prints_and_writes(registered, tmp_path):
    outcome = runner.invoke(
        cli.app,
        [
            "claims",
            "run",
            "paper2000",
            "fig9",
            "--dataset",
            "iris",
            "-o",
            "size=5",
            "-o",
            "names=b",
            "--output",
            str(tmp_path),
        ],
    )
    assert outcome.exit_code == 0, outcome.output
    assert "note: fewer <rows> than the paper" in outcome.output
    assert (tmp_path / "paper2000-fig9.html").is_file()
    assert "iris" in (tmp_path / "paper2000-fig9.html").read_text(encoding="utf-8")


def test_without_a_name_the_experiments_are_listed():
    outcome = runner.invoke(cli.app, ["claims", "run"])
    assert outcome.exit_code == 0
    for name in ("fig1", "table1", "fig3"):
        assert name in outcome.output
    with pytest.raises(ValueError, match=r"paper: found 'nobody1999', expected one of .*wenzel2019"):
        runner.invoke(cli.app, ["claims", "run", "nobody1999"], catch_exceptions=False)


@pytest.mark.parametrize(("given", "taken"), [("0.5", (0.5,)), ("1", (1,)), ("[0.5, 1]", [0.5, 1])])
def test_one_number_serves_where_several_could_stand(registered, tmp_path, given, taken):
    outcome = runner.invoke(
        cli.app, ["claims", "run", "paper2000", "fig9", "-o", f"alphas={given}", "--output", str(tmp_path)]
    )
    assert outcome.exit_code == 0, outcome.output
    assert f"alphas {taken!r}" in outcome.stderr


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ("alphas=true", TypeError, r"alphas: found True, expected a value like \(0\.0, 1\.0\)"),
        ("seed=-1", ValueError, r"seed: found -1, expected at least 0"),
        ("seed=1.5", TypeError, r"seed: found 1\.5"),
    ],
)
def test_a_switch_is_no_number_and_a_seed_is_not_negative(registered, tmp_path, given, error, match):
    with pytest.raises(error, match=match):
        runner.invoke(
            cli.app,
            ["claims", "run", "paper2000", "fig9", "-o", given, "--output", str(tmp_path)],
            catch_exceptions=False,
        )
    assert not list(tmp_path.iterdir())


def test_two_data_sets_for_an_experiment_of_one_are_refused(registered, tmp_path):
    with pytest.raises(ValueError, match="--dataset: found iris, wine, expected what fig9 takes"):
        runner.invoke(
            cli.app,
            ["claims", "run", "paper2000", "fig9", "--dataset", "iris", "--dataset", "wine", "--output", str(tmp_path)],
            catch_exceptions=False,
        )


def test_every_registered_experiment_can_be_asked_for_without_options():
    catalogue.load()
    for value in EXPERIMENTS.values():
        check_options(value, value.options)
        assert value.title
        assert value.claim


@pytest.mark.parametrize(
    ("paper", "name", "options"),
    [
        ("izmailov2016", "curves", {"dataset": "breast_cancer", "n_max": 60, "m": 5, "budgets": [1], "steps": 5}),
        ("izmailov2016", "sets", {"datasets": ["wine"], "n_max": 60, "m": 5, "budgets": [1], "steps": 5, "n_run": 2}),
        ("riihimaki2013", "table2", {"methods": ["laplace", "qiep"], "classes": [3]}),
        ("riihimaki2013", "table3", {"names": ["wine"]}),
        (
            "riihimaki2013",
            "fig7",
            {"dataset": "wine", "n": 20, "n_test": 10, "methods": ["laplace"], "log_variances": [1.0, 2.0],
             "log_lengthscales": [1.0, 2.0]},
        ),
        ("villacampa2017", "fig1", {"dataset": "wine", "n": 20, "n_steps": 3, "n_run": 2}),
        (
            "villacampa2017",
            "table2",
            {"datasets": ["wine"], "methods": ["ep", "sep"], "n_run": 1, "n_steps": 3, "n_max": 60},
        ),
        (
            "villacampa2020",
            "fig3",
            {"dataset": "wine", "m": [4], "methods": ["pep"], "alphas": [0.5, 1.0], "n_max": 60, "n_steps": 3,
             "budget": 1.0},
        ),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_an_experiment_says_as_many_lines_as_it_foresees(paper, name, options):
    told = []
    wanted = find(paper, name)
    wanted.run(**options, say=told.append)
    assert len(told) == wanted.cells(**options)


def test_what_is_foreseen_follows_from_the_options():
    assert find("wenzel2019", "table1").cells(datasets=["a"], methods=["x-gpc-svi"], n_run=3, n_splits=2) == 2
    assert find("riihimaki2013", "fig5").cells(methods=["nested-ep", "nested-iep"]) == 3  # one truth for both
    assert find("wenzel2019", "fig1").cells is None  # learning, then chains: one says nothing of the other
