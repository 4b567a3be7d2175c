"""What is said where an option of an experiment is not the paper's."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pytest

from validation import datasets
from validation.reproduce import catalogue, printed
from validation.reproduce.experiment import EXPERIMENTS, Outcome, experiment
from validation.reproduce.printed import option


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of each kind."""

    sets: Sequence[str] = option(("wine",), ("wine", "glass"), "data sets")
    n_run: int = option(2, 100, "repetitions")
    rate: float = option(0.01, 0.001, "rates")
    optimizer: str = option("adaptive", "lbfgs", "optimisers")
    budget: float = option(4.0, np.inf, "seconds")
    same: int = option(200, 200, "rows")
    seed: int = 0


def test_each_option_that_differs_has_a_line():
    assert printed.differences(Options()) == [
        'data sets: wine here, wine, glass in the paper: -o \'sets=["wine", "glass"]\'',
        "repetitions: 2 here, 100 in the paper: -o n_run=100",
        "rates: 0.01 here, 0.001 in the paper: -o rate=0.001",
        "optimisers: adaptive here, lbfgs in the paper: -o optimizer=lbfgs",
        "seconds: 4 here, none in the paper: -o budget=1000000000.0",
    ]


def test_more_than_the_paper_s_differs_too():
    lines = printed.differences(Options(n_run=101, same=400))
    assert "repetitions: 101 here, 100 in the paper: -o n_run=100" in lines
    assert "rows: 400 here, 200 in the paper: -o same=200" in lines


def test_the_paper_s_own_options_have_no_line():
    order = ("glass", "wine")
    asked = Options(sets=order, n_run=100, rate=0.001, optimizer="lbfgs", budget=1e9)
    assert printed.differences(asked) == []


def test_rows_are_told_with_what_asks_for_all():
    full = datasets.load("wine")
    part = full.rows(np.arange(20))
    assert printed.rows_taken(full, full, "n_max") == []
    assert printed.rows_taken(part, full, "n") == ["20 of 178 rows, fewer than the paper's: -o n=178"]
    assert printed.rows_taken(part, full, "n", name="wine")[0].startswith("wine: 20 of")


def test_what_an_experiment_is_asked_goes_to_its_notes():
    try:
        run = experiment("x", "y", "", "")(_study)
        assert run(n_run=3).notes[2] == "repetitions: 3 here, 100 in the paper: -o n_run=100"
        assert run(n_run=3).notes[0] == "own"
        assert EXPERIMENTS["x", "y"].printed["budget"] == np.inf
        assert "seed" not in EXPERIMENTS["x", "y"].printed
    finally:
        del EXPERIMENTS["x", "y"]


def _study(asked: Options, say: object) -> Outcome:
    return Outcome({}, (), (), ("own",))


catalogue.load()


@pytest.mark.parametrize("name", sorted(EXPERIMENTS), ids="-".join)
def test_what_a_note_asks_for_is_taken(name: tuple[str, str]):
    """Each printed value has its option's type, so that the line which a note gives can be given back."""
    wanted = EXPERIMENTS[name]
    for key, paper in wanted.printed.items():
        default = wanted.options[key]
        assert isinstance(paper, (int, float) if isinstance(default, float) else type(default)), key


def test_a_note_s_option_reads_back_as_the_paper_s():
    asked = Options()
    for line in printed.differences(asked):
        (text,) = shlex.split(line.rpartition("-o ")[2])
        key, _, value = text.partition("=")
        paper = {one.name: one.metadata.get("paper") for one in fields(asked)}[key]
        given = value if isinstance(paper, str) else json.loads(value)
        assert printed.differences(Options(**{key: given})) == [
            other for other in printed.differences(asked) if not other.endswith(line.rpartition("-o ")[2])
        ]
