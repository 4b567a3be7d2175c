"""The table of quality: scores, cuts, ranks, rules, resuming, and the table that ships."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.metrics import log_loss
from typer.testing import CliRunner

from validation.bench.quality import data, fit, programs, rules, run, table
from validation.bench.quality.fit import CutError, Fit
from validation.bench.quality.run import Asked
from validation.command.maintain import app
from validation.door.storage import FileFormatError
from validation.jobs.job import Done, JobLostError
from validation.jobs.run import Processes

CARD = {
    "fits": 2, "rows": 100, "test_rows": 2000, "folds": 3, "n_run": 1, "budget": 20.0, "seed": 0, "not_installed": [],
    "not_found": [], "commit": "", "date": "2026-01-01", "linear_algebra": "none", "versions": {"numpy": "2"},
}  # fmt: skip


def line(program, dataset, nll, *, fold=0, outcome="fitted", n=100, n_classes=2, seconds=1.0, ece=0.01, **others):
    values = {
        "d": 3, "n_test": 50, "error": 0.1, "wall": seconds, "inducing": 0, "converged": None, "stopped": "",
        "n_warnings": 0, "message": "",
    } | others  # fmt: skip
    if outcome != "fitted":
        nll = ece = values["error"] = float("nan")
    return Fit(program=program, dataset=dataset, fold=fold, n=n, n_classes=n_classes, outcome=outcome, nll=nll,
               ece=ece, seconds=seconds, **values)  # fmt: skip


def verdict(fits, word):
    (judged,) = (one for one in rules.verdicts(table.frame(fits)) if word in one.rule)
    return judged


def small_fold():
    return next(data.folds_of("iris", folds=3, n_run=1, rows=60, seed=0))


# -- data and programs -------------------------------------------------------------------------------------------


def test_a_fold_is_standardised_by_its_training_rows_and_shares_none_with_the_test_part():
    first, second = data.folds_of("wine", folds=3, n_run=2, rows=80, seed=3)
    assert first.X.shape == (80, 13)
    assert (first.fold, second.fold) == (0, 1)
    # a mean of 80 numbers of size one: rounding leaves less than 1e-14
    np.testing.assert_allclose(first.X.mean(axis=0), 0.0, rtol=0, atol=1e-13)
    np.testing.assert_allclose(first.X.std(axis=0), 1.0, rtol=1e-12, atol=0)
    back = {row.tobytes() for row in np.round(first.X, 9)}
    assert not any(row.tobytes() in back for row in np.round(first.X_test, 9))
    again = next(data.folds_of("wine", folds=3, n_run=1, rows=80, seed=3))
    np.testing.assert_array_equal(first.X, again.X)


def test_there_are_sixteen_sets_and_a_set_that_is_nowhere_is_named(monkeypatch):
    assert len(set(data.SETS)) == 16
    monkeypatch.delenv("TRIAD_DATA", raising=False)
    here, missing = data.reachable(("iris", "vowel", "no-such-set"))
    assert here == ("iris",)
    assert set(missing) == {"vowel", "no-such-set"}


def test_every_classifier_of_fast_is_a_program_and_binary_ones_are_left_out_of_several_classes():
    from fast import estimators

    assert {f"{name}Classifier" for name in programs.ours()} == set(estimators.__all__)
    several = {name for name in programs.ours() if programs.takes(name, 3)}
    assert {"EP", "Laplace", "SEP"} <= several
    assert not several & {"XGP", "SVI", "JJ", "EPGP"}
    assert all(programs.takes(name, 2) for name in programs.names())


@pytest.mark.parametrize("name", [name for name in programs.PEERS if programs.installed(name)])
def test_each_installed_peer_answers_with_probabilities_better_than_frequencies(name):
    fold = small_fold()
    made = fit.fitted(name, fold, seed=0, budget=60.0)
    assert made.outcome == "fitted", made.message
    share = np.bincount(fold.y) / fold.y.size
    assert made.nll < float(-np.log(share[fold.y_test]).mean())


# -- one fit -----------------------------------------------------------------------------------------------------


def test_scores_are_those_of_scikit_learn_and_of_the_definition():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=200)
    y = rng.integers(0, 4, 200)
    nll, error, ece = fit.scores(p, y)
    # sums of 200 numbers of size one
    np.testing.assert_allclose(nll, log_loss(y, p, labels=range(4)), rtol=1e-12, atol=0)
    assert error == np.mean(np.argmax(p, axis=1) != y)
    confidence, right = p.max(axis=1), np.argmax(p, axis=1) == y
    expected = 0.0
    for low in np.arange(10) / 10:
        inside = (confidence >= low) & (confidence < low + 0.1)
        if inside.any():
            expected += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    np.testing.assert_allclose(ece, expected, rtol=1e-12, atol=0)


def test_a_sure_and_right_program_has_no_calibration_error_and_a_sure_and_wrong_one_has_one():
    assert fit.scores(np.eye(2)[[0, 1, 0]], np.array([0, 1, 0])) == (0.0, 0.0, 0.0)
    nll, error, ece = fit.scores(np.eye(2)[[0, 1, 0]], np.array([1, 0, 1]))
    assert (error, ece) == (1.0, 1.0)
    np.testing.assert_allclose(nll, 52.0 * np.log(2.0), rtol=1e-12, atol=0)  # SMALLEST is 2^-52


def test_probabilities_that_are_none_are_a_failed_fit():
    model = SimpleNamespace(
        fit=lambda X, y: None, classes_=np.arange(3), predict_proba=lambda X: np.full((len(X), 3), 0.5)
    )
    made = fit.fitted("EP", small_fold(), seed=0, budget=10.0, make=lambda *_: model)
    assert made.outcome == "failed"
    assert "sum to one" in made.message
    assert np.isnan(made.nll)


def test_a_fit_beyond_its_budget_is_cut_though_it_catches_every_exception():
    def spend(X=None, y=None):
        while True:
            try:
                sum(range(1000))
            except Exception:  # noqa: BLE001 - what a program might do
                continue

    started = time.process_time()
    made = fit.fitted("EP", small_fold(), seed=0, budget=0.2, make=lambda *_: SimpleNamespace(fit=spend))
    assert made.outcome == "cut"
    assert made.seconds > 0.15
    assert np.isnan(made.nll)
    with fit.limited(0.05):  # the clock of the cut fit is stopped: this one has its own
        pass
    assert time.process_time() > started
    with pytest.raises(CutError), fit.limited(0.05):
        spend()


def test_an_error_and_warnings_are_part_of_the_line():
    def fail(X, y):
        raise ValueError("found /a/b/c.py, expected better")

    model = SimpleNamespace(fit=fail)
    made = fit.fitted("EP", small_fold(), seed=0, budget=10.0, make=lambda *_: model)
    assert (made.outcome, made.message) == ("failed", "ValueError: found c.py, expected better")


def test_a_class_that_no_training_row_has_gets_probability_zero():
    fold = small_fold()
    kept = fold.y != 2
    partial = fold._replace(X=fold.X[kept], y=fold.y[kept])
    made = fit.fitted("Logistic", partial, seed=0, budget=20.0)
    share = np.mean(fold.y_test == 2)
    assert made.nll > share * 36.0  # -log 2^-52 for each of its rows


# -- the rules ---------------------------------------------------------------------------------------------------


def test_ranks_share_ties_and_a_fit_that_was_cut_is_behind_all():
    fits = [line("EP", "a", 0.1), line("SEP", "a", 0.1), line("PEP", "a", 9.0, outcome="cut"), line("GPC", "a", 5.0)]
    ranks = rules.ranks(rules.means(table.frame(fits), "nll"))
    assert ranks.to_dict() == {"EP": 1.5, "SEP": 1.5, "PEP": 4.0, "GPC": 3.0}


def test_one_cut_fold_counts_as_a_lost_set_and_a_set_that_was_not_run_as_nothing():
    fits = [
        line("EP", "a", 0.1),
        line("EP", "a", 0.1, fold=1, outcome="cut"),
        line("EP", "b", 0.2),
        line("XGP", "b", 0.3),
    ]
    nll = rules.means(table.frame(fits), "nll")
    assert np.isinf(nll.loc["a", "EP"])
    assert nll.loc["b", "EP"] == 0.2
    assert np.isnan(nll.loc["a", "XGP"])


@pytest.mark.parametrize(("own", "met"), [(0.30, True), (0.31, False)])
def test_the_median_is_held_against_the_better_baseline_of_the_same_sets(own, met):
    fits = [line("EP", "a", own), line("Logistic", "a", 0.30), line("GPC", "a", 0.9), line("GPC", "b", 0.01)]
    judged = verdict(fits, "median NLL")
    assert judged.met is met
    assert judged.misses == (() if met else ("EP +0.010",))


def test_a_classifier_may_be_behind_the_best_peer_on_two_sets_and_no_more():
    sets = "abcd"
    fits = [line("Forest", name, 0.2) for name in sets]
    two = fits + [line("EP", name, value) for name, value in zip(sets, (0.26, 0.26, 0.24, 0.2), strict=True)]
    three = fits + [line("EP", name, value) for name, value in zip(sets, (0.26, 0.26, 0.26, 0.2), strict=True)]
    assert verdict(two, "behind").met is True
    assert verdict(three, "behind").misses == ("EP 3",)


def test_the_five_must_have_the_five_best_ranks():
    family = ["EP", "SEP", "GFITC", "PEP", "APEP"]
    good = [line(name, "a", 0.1 + 0.01 * k) for k, name in enumerate(family)] + [line("Forest", "a", 0.2)]
    assert verdict(good, "five best").met is True
    bad = [one if one.program != "SEP" else one._replace(nll=0.5) for one in good]
    assert verdict(bad, "five best").misses == ("SEP 6.",)
    assert verdict(good[1:], "five best").met is None


def test_seconds_are_held_against_the_peer_on_equal_rows_from_five_hundred():
    fits = [
        line("EP", "a", 0.1, n=499, seconds=9.0), line("GPC", "a", 0.1, n=499, seconds=1.0),
        line("EP", "b", 0.1, n=500, seconds=2.0), line("GPC", "b", 0.1, n=500, seconds=1.0),
    ]  # fmt: skip
    assert verdict(fits, "that of GPC on").misses == ("EP 2x",)
    assert verdict(fits[:2], "that of GPC on").met is None


def test_no_fit_may_take_more_than_twenty_seconds_up_to_ten_classes():
    fits = [line("EP", "a", 0.1, seconds=19.0), line("EP", "b", 0.1, n_classes=11, seconds=50.0)]
    assert verdict(fits, "no fit above").met is True
    assert verdict([*fits, line("SEP", "a", 0.1, seconds=21.0)], "no fit above").misses == ("SEP 21 s",)


def test_calibration_is_the_median_over_sets():
    fits = [line("EP", name, 0.1, ece=ece) for name, ece in zip("abc", (0.01, 0.059, 0.5), strict=True)]
    assert verdict(fits, "calibration").met is True
    assert verdict([*fits, line("EP", "d", 0.1, ece=0.2)], "calibration").met is False


# -- files and screens -------------------------------------------------------------------------------------------


def test_the_table_is_read_as_it_was_written_and_no_other_is_taken_for_it(tmp_path):
    fits = [line("EP", "a", 0.1, converged=True), line("GPC", "a", 0.2, outcome="failed", message="None")]
    rows = table.frame(fits)
    csv, _ = table.write(rows, CARD, tmp_path)
    again, card = table.read(tmp_path)
    assert card == CARD
    pd.testing.assert_frame_equal(again, rows)
    csv.write_text(csv.read_text().replace("0.1", "0.2", 1))
    with pytest.raises(FileFormatError, match="another content"):
        table.read(tmp_path)
    with pytest.raises(FileNotFoundError, match="triad bench --only quality"):
        table.read(tmp_path / "empty")


def test_the_table_has_eighty_columns_for_all_programs():
    fits = [
        line(name, dataset, 12.345, seconds=123.4, fold=fold, n_classes=2 + 9 * (dataset == "b"))
        for name in programs.names() for dataset in "ab" for fold in range(3)
        if programs.takes(name, 2 + 9 * (dataset == "b"))
    ]  # fmt: skip
    console = Console(width=80, record=True, file=io.StringIO())
    table.show(console, table.frame(fits), CARD)
    text = console.export_text()
    assert max(len(one.rstrip()) for one in text.splitlines()) <= 80
    assert all(name in text for name in programs.names())
    assert "…" not in text


def test_every_row_of_the_markdown_has_as_many_cells_as_its_head():
    fits = [line(name, dataset, 0.1) for name in ("EP", "XGP", "GPC") for dataset in "ab"]
    fits += [line(name, "c", 0.1, n_classes=5) for name in ("EP", "GPC")]
    text = table.markdown(table.frame(fits), CARD)
    assert "**0.100**" in text
    for block in text.split("\n\n"):
        if block.startswith("|"):
            assert len({one.count("|") for one in block.splitlines() if not one.startswith("|---")}) == 1


# -- the run -----------------------------------------------------------------------------------------------------


def test_a_second_run_computes_nothing_that_is_on_the_disk(tmp_path):
    asked = Asked(programs=("Logistic", "Laplace"), sets=("iris",), rows=40, n_run=1, budget=60.0)
    jobs = run.plan(asked).jobs
    assert [job.unit.program for job in jobs] == ["Logistic", "Laplace"]
    told = []
    first = run.fits(jobs, Processes(1), tmp_path, lambda one, before: told.append((one.program, before)))
    next(first)
    first.close()  # an interrupt: what is there stays
    assert len(list((tmp_path / "jobs").iterdir())) == 1
    done = {
        one.program: one
        for one in run.fits(jobs, Processes(1), tmp_path, lambda one, before: told.append((one.program, before)))
    }
    assert told == [("Logistic", False), ("Logistic", True), ("Laplace", False)]
    assert done["Laplace"].outcome == "fitted"
    assert done["Laplace"].converged is True


def test_a_process_that_dies_is_a_cut_fit_and_stays_known(tmp_path):
    class Deadly:
        def spread(self, work, jobs, listen, shared=None):
            for job in jobs:
                yield Done(job, None, None, 3.0, JobLostError("the process ended with -9"))

    jobs = run.plan(Asked(programs=("Logistic",), sets=("iris",), rows=40, n_run=1, budget=60.0)).jobs
    (lost,) = run.fits(jobs, Deadly(), tmp_path, lambda *_: None)
    assert (lost.outcome, lost.seconds, lost.message) == ("cut", 3.0, "the process was ended")
    before = []
    list(run.fits(jobs, Deadly(), tmp_path, lambda one, known: before.append(known)))
    assert before == [True]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (Asked(programs=("EPP",)), "--classifiers: found 'EPP'"),
        (Asked(sets=("nowhere",)), "--sets: found nowhere"),
        (Asked(n_run=4), "--run: found 4"),
    ],
)
def test_what_is_unknown_is_refused_by_name(asked, text):
    with pytest.raises(ValueError, match=text):
        run.plan(asked)


# -- the command -------------------------------------------------------------------------------------------------


def invoke(*words):
    return CliRunner().invoke(app, ["bench", *words])


def test_the_command_writes_the_table_and_shows_it_again(tmp_path):
    words = ("--only", "quality", "--sets", "iris", "--classifiers", "Logistic", "--classifiers", "GPC", "--rows", "40",
             "--run", "1", "--jobs", "1", "--output", str(tmp_path))  # fmt: skip
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "quality.csv").is_file()
    assert "Logistic" in done.output
    shown = invoke("--only", "quality", "--from", str(tmp_path), "--markdown")
    assert shown.exit_code == 0
    assert shown.output.count("| Logistic |") == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--only", "x-gpc/sweep", "--rows", "10"),
        ("--sets", "iris"),
        ("--only", "quality", "--only", "scale"),
        ("--only", "quality", "--stored", "--rows", "10"),
    ],
)
def test_options_of_the_table_go_with_it_alone(words):
    done = invoke(*words)
    assert done.exit_code == 2


def test_the_table_that_ships_is_whole_and_of_all_classifiers():
    rows, card = table.read(table.stored())
    assert card["fits"] == len(rows)
    assert set(programs.ours()) <= set(rows["program"])
    assert set(rows["dataset"]) <= set(data.SETS)
    assert {True, False} == set(rows["n_classes"] == 2)
    assert not rows.duplicated(["program", "dataset", "fold"]).any()
    assert (rows["outcome"] == "fitted").mean() > 0.9
    assert rows.loc[rows["outcome"] == "fitted", "nll"].notna().all()
    shown = invoke("--only", "quality", "--stored")
    assert shown.exit_code == 0
    assert card["commit"] in shown.output
