"""Measurements that are kept: bench by bench, shown as lines, Markdown and JSON, and rows that outlive an interrupt."""

import json

import pytest
from typer.testing import CliRunner

from validation.bench import recorded
from validation.bench.measure import Row
from validation.command import bench as command
from validation.command.maintain import app

MACHINE = {"versions": "python 3.11", "BLAS": "openblas", "machine": "x86_64, 2 cores"}
ROWS = (
    Row("a/b", "a step", 1.25, "ms", "", None, ("one product",)),
    Row("a/b", "ratio | floor", 2.0, "", "<= 1.5", False),
    Row("a/b", "peer: not there", float("nan"), "s", "", None),
)


@pytest.fixture
def benches(monkeypatch):
    """Two benches of given rows."""
    made = {"a/b": lambda: iter(ROWS), "c": lambda: iter([Row("c", "seconds", 3.0, "s", "< 4", True)])}
    monkeypatch.setattr(command, "BENCHES", made)
    return made


def run(*arguments):
    return CliRunner().invoke(app, ["bench", *arguments], env={"COLUMNS": "80"})


def test_a_bench_replaces_itself_and_leaves_the_others(tmp_path):
    path = tmp_path / "speed.json"
    recorded.add(path, "a/b", ROWS, MACHINE)
    recorded.add(path, "c", [Row("c", "seconds", 3.0, "s", "< 4", True)], MACHINE)
    recorded.add(path, "a/b", ROWS[:1], MACHINE)
    held = recorded.read(path)
    assert [len(held[name]["rows"]) for name in ("a/b", "c")] == [1, 1]
    assert held["c"]["machine"] == MACHINE
    json.loads(path.read_text(), parse_constant=pytest.fail)  # JSON without NaN


def test_what_is_kept_is_shown_with_what_was_asked(tmp_path):
    path = tmp_path / "speed.json"
    recorded.add(path, "a/b", ROWS, MACHINE)
    lines = recorded.shown(path, (), markdown=False, as_json=False)
    assert "  a step: 1.25 ms" in lines
    assert "  ratio | floor: 2 (asked <= 1.5: no)" in lines
    assert "  peer: not there: -" in lines
    table = recorded.shown(path, ["a/b"], markdown=True, as_json=False)
    assert r"| ratio \| floor | 2 | <= 1.5 | no |" in table
    assert json.loads(recorded.shown(path, (), markdown=False, as_json=True))["a/b"]["rows"][2]["value"] is None
    with pytest.raises(ValueError, match=r"^--only: found 'c', expected one of a/b"):
        recorded.shown(path, ["c"], markdown=False, as_json=False)


def test_what_was_withdrawn_is_shown_with_its_reason_until_it_is_measured_again(tmp_path):
    path = tmp_path / "speed.json"
    recorded.add(path, "a/b", ROWS, MACHINE)
    table = json.loads(path.read_text())
    table["benches"]["a/b"] |= {"rows": [], "withdrawn": "all: the clock ran on"}
    path.write_text(json.dumps(table))
    for markdown in (False, True):
        text = recorded.shown(path, (), markdown=markdown, as_json=False)
        assert text.endswith("Withdrawn until measured again: all: the clock ran on.\n")
        assert "a step" not in text
    recorded.add(path, "a/b", ROWS, MACHINE)
    assert "Withdrawn" not in recorded.shown(path, (), markdown=False, as_json=False)


@pytest.mark.parametrize("text", ["no json", "[1]", '{"schema": "another"}'])
def test_a_file_of_something_else_is_refused_by_name(tmp_path, text):
    path = tmp_path / "speed.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"speed\.json: found "):
        recorded.read(path)


def test_what_ships_can_be_shown():
    outcome = run("--stored")
    assert outcome.exit_code == 0
    assert "commit" in outcome.stdout


def test_rows_are_printed_as_they_are_known_and_an_interrupt_keeps_them(benches, tmp_path):
    def ends():
        yield ROWS[0]
        raise KeyboardInterrupt

    benches["c"] = ends
    path = tmp_path / "speed.json"
    outcome = run("--only", "a/b", "--only", "c", "--record", str(path))
    assert outcome.exit_code == 130
    assert outcome.stdout.count("a step") == 2
    assert "asked: <= 1.5" in outcome.stdout
    assert "the floor is one product" in outcome.stdout
    assert all(len(line) <= 80 for line in outcome.stdout.splitlines())
    assert list(recorded.read(path)) == ["a/b"]
    machine_readable = run("--only", "a/b", "--only", "c", "--json")
    assert len(json.loads(machine_readable.stdout)["rows"]) == 4


@pytest.mark.parametrize("more", [("--rows", "50"), ("--record", "a.json")])
def test_stored_measurements_go_with_nothing_that_measures(more):
    outcome = run("--stored", *more)
    assert outcome.exit_code == 2
    assert "with --stored, expected no such" in " ".join(outcome.stderr.split())
