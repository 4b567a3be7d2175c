"""What commands print fits 80 and 100 columns, on a terminal and in a pipe, and nothing in it is cut."""

import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from validation.command import cli
from validation.door import catalogue
from validation.screen import terminal
from validation.screen.terminal import Grid

ROOT = Path(__file__).resolve().parents[3]
HEADER = ("name", "n", "what it is", "who")
ROWS = [("short", "3", "a sentence that is somewhat long and has to be folded somewhere", "me"),
        ("a-much-longer-name", "1000", "another", "you and me")]  # fmt: skip


def texts(grid, rows, width):
    return [line for record in grid.lines(rows, width) for line in record]


# -- a grid --------------------------------------------------------------------------------------------------


def test_a_grid_with_room_has_a_line_for_each_record():
    assert Grid(HEADER, 2, (1,)).lines(ROWS[1:], 100) == [
        ["name                   n  what it is  who"],
        ["a-much-longer-name  1000  another     you and me"],
    ]


def test_a_grid_without_room_for_all_puts_the_rest_below_by_name():
    assert Grid(HEADER, 2, (1,)).lines(ROWS[:1], 40) == [
        ["name   n  what it is"],
        [
            "short  3  a sentence that is somewhat",
            "          long and has to be folded",
            "          somewhere",
            "    who: me",
        ],
    ]


def test_a_sentence_that_would_be_narrow_stands_below_and_needs_no_name():
    assert Grid(HEADER, 2, (1,)).lines(ROWS[1:], 30) == [
        ["name                   n"],
        ["a-much-longer-name  1000", "    another; who: you and me"],
    ]


@pytest.mark.parametrize("width", [40, 50, 60, 80])
def test_a_grid_fits_and_loses_nothing(width):
    lines = texts(Grid(HEADER, 2, (1,)), ROWS, width)
    assert max(map(cell_len, lines)) <= width
    words = " ".join(lines).replace(";", " ").split()
    assert all(word in words for row in ROWS for cell in row for word in cell.split())


@pytest.mark.parametrize(("seconds", "live", "shown"), [(0.3, True, True), (0.0, True, False), (0.3, False, False)])
def test_what_takes_long_is_said_on_a_terminal_and_only_there(seconds, live, shown):
    stream = io.StringIO()
    with terminal.waiting(Console(file=stream, force_terminal=live, width=80), "fast [x-gpc] on toy", after=0.1):
        time.sleep(seconds)
    assert ("fast [x-gpc] on toy" in stream.getvalue()) == shown


def test_a_pipe_has_the_columns_that_it_is_told_or_a_hundred(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal.columns_of(Console(force_terminal=False)) == 100
    monkeypatch.setenv("COLUMNS", "80")
    assert terminal.columns_of(Console(force_terminal=False)) == 80
    monkeypatch.setenv("COLUMNS", "none")
    assert terminal.columns_of(Console(force_terminal=False)) == 100


# -- the commands --------------------------------------------------------------------------------------------

# those that answer in a second or two; what is Markdown or JSON is no text for a terminal
QUICK = [
    [],
    ["--help"],
    ["verify", "--help"],
    ["list", "methods"],
    ["list", "methods", "x-gpc"],
    ["list", "problems"],
    ["list", "problems", "wine"],
    ["list", "problems", "nosuch"],
    ["solve", "fast", "x-gpc", "two-points"],
    ["solve", "fast", "x-gpc", "nosuch"],
    ["audit", "villacampa2020"],
    ["audit", "villacampa2020:A.20"],
    ["claims", "list"],
    ["claims", "list", "wenzel2019"],
    ["truth", "list"],
    ["truth", "show", "toy"],
    ["list", "data"],
    ["list", "data", "iris"],
    ["list", "data", "nosuch"],
    ["claims", "run"],
    ["judge", "docs.examples.sklearn_laplace:answer", "--problem", "toy", "--no-power"],
]


def run(arguments, capfd, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["triad", *arguments])
    with pytest.raises(SystemExit):
        cli.main()
    out, err = capfd.readouterr()
    # rich draws a line again by moving the cursor; a pattern of escapes is what is left of its colours
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out + err).splitlines()


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("arguments", QUICK, ids=" ".join)
def test_no_line_is_wider_than_the_terminal_and_nothing_is_cut(arguments, width, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")  # which is how rich is told that a stream is a terminal
    monkeypatch.setattr(cli, "on_terminal", lambda: True)
    lines = run(arguments, capfd, monkeypatch)
    assert [line for line in lines if cell_len(line) > width] == []
    assert [line for line in lines if "\N{HORIZONTAL ELLIPSIS}" in line] == []


@pytest.mark.parametrize("width", [80, 100])
def test_what_is_solved_and_compared_fits(width, capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.chdir(tmp_path)  # so that no path is longer than the terminal
    for witness in ("fast", "reference"):
        run(["solve", witness, "x-gpc", "two-points", "--output", f"{witness}.npz"], capfd, monkeypatch)
    lines = run(["compare", "fast.npz", "reference.npz", "--why"], capfd, monkeypatch)
    assert any(line.startswith("AGREE") for line in lines)
    assert [line for line in lines if cell_len(line) > width] == []


PAPERS = ("izmailov2016", "riihimaki2013", "villacampa2017", "villacampa2020", "wenzel2019")
# what prints results without computing them: every command with arguments, every paper, every method
PRINTED = [
    *(["audit", paper] for paper in PAPERS),
    *(["audit", f"{paper}:{id}"] for paper, id in zip(PAPERS, ("11", "22", "30", "A.20", "11"), strict=True)),
    *(["claims", "list", paper] for paper in PAPERS),
    *(["claims", "run", paper] for paper in PAPERS),
    *(["list", "methods", entry.method] for entry in catalogue.METHODS),
    *(["bench", *options] for options in (["--stored"], ["--only", "league"], ["--only", "quality", "--stored"])),
    *(["audit"], ["claims", "list"], ["claims", "list", "izmailov2016:fig7-fastest"], ["list", "problems"]),
    *(["list", "methods"], ["list", "data"], ["list", "data", "iris"], ["truth", "list"], ["truth", "show", "toy"]),
]


@pytest.mark.parametrize("arguments", PRINTED, ids=" ".join)
def test_a_pipe_of_80_columns_fits_too(arguments, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(arguments, capfd, monkeypatch)
    assert lines
    assert [line for line in lines if cell_len(line) > 80] == []


@pytest.mark.parametrize("told", ["0", "00", "-3", "many", ""])
def test_columns_that_are_no_number_or_none_print_as_without(told, capfd, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    expected = run(["truth", "show", "toy"], capfd, monkeypatch)
    monkeypatch.setenv("COLUMNS", told)
    assert run(["truth", "show", "toy"], capfd, monkeypatch) == expected
    assert len(expected) > 10


@pytest.mark.parametrize(
    ("width", "piped"),
    [(80, False), (100, True), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((100, False), (80, True)))],
)
def test_a_run_fits_on_a_real_terminal_and_in_a_pipe(width, piped, tmp_path):
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    command = [sys.executable, "-m", "validation", "verify", "--check", "identity/x-gpc/*", "--problem", "toy",
               "--why", "--output", "results"]  # fmt: skip
    environment = {**os.environ, "COLUMNS": str(width), "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    environment |= {"TERM": "xterm"}
    if piped:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        told = done.stdout + done.stderr
    else:
        master, slave = pty.openpty()
        with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=slave, stderr=slave, stdin=slave) as child:
            os.close(slave)
            parts = []
            while True:
                try:
                    part = os.read(master, 65536)
                except OSError:  # how Linux tells that the other end is closed
                    break
                if not part:
                    break
                parts.append(part)
        os.close(master)
        assert child.returncode == 0
        told = b"".join(parts).decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", told).replace("\r\n", "\n")
    lines = [line.rpartition("\r")[2] for line in plain.split("\n")]
    assert any("passed" in line for line in lines)
    assert [line for line in lines if cell_len(line) > width] == []
