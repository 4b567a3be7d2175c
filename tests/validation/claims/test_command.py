"""`triad claims list`: counts, lists, one claim, and what it refuses."""

import json
import re
import sys
from collections import Counter

import pytest

from validation.claims import page
from validation.claims.inventory import PARTS, STATES
from validation.claims.results import load
from validation.command import cli, maintain
from validation.reproduce import catalogue


@pytest.fixture
def triad(monkeypatch, capfd):
    """Runs the command inside this process; gives exit code, stdout, stderr."""

    def run(*arguments, columns=200):
        monkeypatch.setattr(sys, "argv", ["maintain", "claims", *arguments])
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as caught:
            cli.main(maintain.app)
        out, err = capfd.readouterr()
        return caught.value.code or 0, out, err

    return run


def test_without_arguments_the_states_are_counted(triad):
    code, out, _ = triad(columns=80)
    assert code == 0
    papers = load()
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.split()}
    everything = [claim for claims in papers.values() for claim in claims]
    for about in PARTS:
        here = Counter(claim.state for claim in everything if claim.about == about)
        label = f"({about})" if about in ("sizes", "seconds") else about
        assert lines[label] == [str(here.total()), *(str(here[state]) for state in STATES)]
    for key, claims in papers.items():  # sizes of data sets and seconds stand outside
        here = Counter(claim.state for claim in claims if claim.about not in ("sizes", "seconds"))
        assert lines[key] == [str(here.total()), *(str(here[state]) for state in STATES)]
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("paper", list(load()))
def test_a_paper_fits_80_columns_and_a_few_screens_with_whole_ids(triad, paper):
    code, out, _ = triad(paper, columns=80)
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 100
    words = set(out.replace(",", " ").split())
    claims = load()[paper]
    assert {claim.id for claim in claims if claim.about in ("sentences", "mathematics")} <= words
    # cells are counted by table; each of them is found by its state
    shown = sum(int(line.split()[-8]) for line in lines if re.match(r"(Table|single)", line))
    assert shown == sum(claim.about == "cells" for claim in claims)
    assert f"stale, since the code of fast has changed: {stale_of(paper)}" in out


def stale_of(paper):
    """How many of a paper's results other code gave."""
    cited = {claim.result.removesuffix(".csv") for claim in load()[paper] if claim.result}
    return f"{len(cited & set(catalogue.stale()))} of {len(cited)}"


@pytest.mark.parametrize("paper", list(load()))
@pytest.mark.parametrize("state", ["differs", "open"])
def test_the_claims_in_a_state_show_their_numbers_in_80_columns(triad, paper, state):
    _, out, _ = triad(paper, "--state", state, columns=80)
    assert max(map(len, out.splitlines())) <= 80
    for claim in load()[paper]:
        assert (f"{claim.id}  [{claim.state}]" in out.splitlines()) == (claim.state == state)
        if claim.state == state == "differs" and claim.ours is not None:
            assert f"half width {claim.half_width:.2g}" in " ".join(out.split())


def test_a_state_chooses_claims(triad):
    chosen = json.loads(triad("--json", "--state", "open")[1])
    assert {claim["state"] for claim in chosen["claims"]} <= {"open"}
    assert len(chosen["claims"]) == sum(n["open"] for parts in chosen["counts"].values() for n in parts.values())


def test_one_claim_shows_all_that_is_known_of_it(triad):
    code, out, _ = triad("wenzel2019:table1-nll-susy-epgpc")
    assert code == 0
    for part in ("0.5", "standard deviation", "Table 1, lines NLL, row SUSY, column EPGPC", "10-fold"):
        assert part in out
    (told,) = json.loads(triad("wenzel2019:table1-nll-susy-epgpc", "--json")[1])["claims"]
    assert (told["printed"], told["unit"], told["repeats"]) == (0.5, 0.01, 10)


def test_numbers_are_shown_in_the_digits_of_the_page():
    claims = load()["wenzel2019"]
    assert page.printed(claims.claim("table1-nll-susy-epgpc")) == "0.50 ± 0"
    assert page.printed(claims.claim("table1-time-susy-epgpc")) == "10000"
    assert page.printed(claims.claim("fig4")) == ""
    assert page.printed(load()["villacampa2017"].claim("airline-rows")) == "2127068"


def test_markdown_is_one_table(triad):
    lines = triad("wenzel2019", "--markdown")[1].splitlines()
    assert len(lines) == 2 + len(load()["wenzel2019"])
    assert {line.count(" | ") for line in lines} == {7}
    assert triad("--markdown")[1].startswith("| part | all | reproduced | consistent |")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["wenzel"], "paper: found 'wenzel', expected 'wenzel2019'"),
        (["wenzel2019:fig9"], "id: found 'fig9' in wenzel2019, expected one of"),
        (["--state", "opened"], "--state: found 'opened', expected 'open'"),
        (["--json", "--markdown"], "--json: found it with --markdown"),
    ],
)
def test_what_there_is_not_is_refused(triad, arguments, match):
    code, out, err = triad(*arguments)
    assert code == 2
    assert out == ""
    assert match in err
