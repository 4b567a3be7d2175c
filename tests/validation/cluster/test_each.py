"""Repetitions of an experiment: the same rows here and on a cluster, and what is kept when one of them fails."""

import numpy as np
import pytest

from validation.command import reproduce as command
from validation.jobs import each
from validation.jobs.job import Job
from validation.jobs.run import run
from validation.reproduce import catalogue
from validation.reproduce.experiment import find


def work(name):
    import cluster_work

    return getattr(cluster_work, name)


def calls(*units):
    return {f"call-{unit}": {"unit": unit, "hear": None} for unit in units}


def test_calls_come_back_in_their_order(engines, tmp_path):
    wanted = each.each(work("fail"), calls(3, 0, 2), ())
    assert wanted == [3, 0, 2]
    with each.spreading(engines(2), tmp_path / "jobs"):
        assert each.each(work("fail"), calls(3, 0, 2), ()) == wanted
        assert len(list((tmp_path / "jobs").iterdir())) == 3
    assert not (tmp_path / "jobs").exists()


def test_what_was_done_before_an_error_is_kept(engines, tmp_path):
    def until_it_fails():
        with each.spreading(engines(1), tmp_path / "jobs"):
            each.each(work("fail"), calls(0, 2), ())
            each.each(work("fail"), calls(1), ())

    with pytest.raises(ArithmeticError, match="made up"):
        until_it_fails()
    assert len(list((tmp_path / "jobs").iterdir())) == 2


def test_an_experiment_in_parts_gives_the_same_rows_on_a_cluster(engines, tmp_path):
    catalogue.load()
    wanted = find("villacampa2017", "table2")
    assert wanted.in_parts
    options = {
        "datasets": ("wine",),
        "methods": ("sep", "gfitc"),
        "n_run": 2,
        "n_steps": 3,
        "n_steps_lbfgs": 2,
        "n_max": 60,
    }
    here = wanted.run(**options)
    with each.spreading(engines(2), tmp_path / "jobs"):
        there = wanted.run(**options)
    held = [
        (left, right)
        for left, right in zip(here.tables[0].rows, there.tables[0].rows, strict=True)
        if not {"time", "seconds"} & set(map(str, left))
    ]
    assert 0 < len(held) < len(here.tables[0].rows)
    assert all(left == right for left, right in held)
    assert here.notes == there.notes
    assert np.shape(here.tables[0].rows) == np.shape(there.tables[0].rows)


def test_an_experiment_without_parts_is_one_job(engines):
    options = {"names": ("wine",)}  # which comes with scikit-learn: nothing is fetched
    here = find_and_run("riihimaki2013", "table3", **options)
    told = []
    (done,) = run(
        command.whole,
        [Job("table3", command.Asked("riihimaki2013", "table3", options))],
        engines(1),
        listen=told.append,
    )
    assert done.value.tables == here.tables
    assert done.value.notes == here.notes


def find_and_run(paper, name, **options):
    catalogue.load()
    return find(paper, name).run(**options)
