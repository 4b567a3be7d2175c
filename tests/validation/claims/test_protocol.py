"""Registered protocols: what departs from them, and what ships."""

import re
from pathlib import Path

import pytest

from validation.claims import protocol, results
from validation.claims.protocol import options_of, read
from validation.reproduce import catalogue
from validation.reproduce.experiment import EXPERIMENTS, find

TEXT = """
[experiments.table]
counts = "five splits"
settles = "all of it"
[experiments.table.printed]
n_steps = 250
optimizer = "lbfgs"
[experiments.table.silent]
rate = 0.01
[experiments.table.defaults]
n_steps = 30
optimizer = "lbfgs"
rate = 0.01
[experiments.table.only]
n_steps = ["VI", "wine"]
[experiments.table.gates]
"too few draws" = ["MCMC"]
[experiments.table.barred]
GFITC = "not run to its end"
[experiments.table.whole]
rows = "all"
"""


@pytest.mark.parametrize(
    ("command", "notes", "row", "reading", "smaller"),
    [
        ("-o n_steps=250", [], {}, "", ""),
        ("-o n_steps=900", [], {}, "", ""),
        ("", [], {"method": "VI"}, "", "n_steps = 30, printed: 250"),
        ("", [], {"data": "wine"}, "", "n_steps = 30, printed: 250"),
        ("", [], {"method": "EP"}, "", ""),
        ("-o rate=0.1", [], {}, "rate = 0.1, registered: 0.01", ""),
        ("-o 'optimizer=\"adam\"'", [], {}, "optimizer = adam, printed: lbfgs", ""),
        ("", ["MCMC: too few draws"], {"method": "MCMC"}, "the card has: too few draws", ""),
        ("", ["MCMC: too few draws"], {"method": "EP"}, "", ""),
        ("", [], {"method": "GFITC"}, "not run to its end", ""),
        ("", [], {"rows": "6000 of 48842"}, "", "rows: 6000 of 48842"),
    ],
)
def test_a_row_departs_in_what_concerns_it(command, notes, row, reading, smaller):
    registered = read(TEXT, "toy")["table"]
    row = {"rows": "all", "method": "EP", "data": "glass"} | row
    assert registered.departure(f"triad claims run toy table {command}", notes, row) == (reading, smaller)


def test_options_are_those_of_the_command_line():
    command = "triad claims run a b --dataset usps -o 'x=[\"y\", 2]' -o n=3 -o word=plain"
    assert options_of(command) == {"dataset": "usps", "x": ["y", 2], "n": 3, "word": "plain"}


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('counts = "five splits"\n', "", "no 'counts'"),
        ("rate = 0.01\n[experiments.table.only]", "[experiments.table.only]", "defaults: found none for rate"),
        ('n_steps = ["VI", "wine"]', 'n_step = ["VI"]', "found n_step without a value"),
        ("[experiments.table]", "[experiments.table", "no valid TOML"),
    ],
)
def test_a_fault_in_a_protocol_is_an_error_that_names_it(old, new, match):
    assert old in TEXT
    with pytest.raises(ValueError, match=match):
        read(TEXT.replace(old, new, 1), "toy")


def test_each_result_has_a_protocol_whose_defaults_are_those_of_its_experiment():
    catalogue.load()
    bound = {binding.result for binding in results.bindings()[0]} | set(results.statements())
    registered = {f"{paper}-{name}" for paper, group in protocol.load().items() for name in group}
    assert registered == bound
    for paper, group in protocol.load().items():
        for name, one in group.items():
            assert (paper, name) in EXPERIMENTS
            options = find(paper, name).options
            for key, value in one.defaults.items():
                default = options[key]
                assert (list(default) if isinstance(default, tuple) else default) == value, (paper, name, key)


def test_a_run_on_fewer_rows_than_the_papers_is_registered_as_smaller():
    """The notes of a card name sizes that are below the paper's; repetitions alone are not a smaller run."""
    folder = Path(results.__file__).parent / results.FOLDER
    size = re.compile(r"(rows|data|steps|updates|digits|points).*(fewer than the paper's|below the paper's)")
    for name in results.statements():
        paper, _, experiment = name.partition("-")
        notes = [note for card in results.read_cards(folder, name).values() for note in card.notes]
        if any(size.search(note) for note in notes):
            assert protocol.load()[paper][experiment].smaller, name
