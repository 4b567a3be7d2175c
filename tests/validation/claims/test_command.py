"""`triad claims`: counts, lists, one claim, and what it refuses."""

import json
import sys

import pytest

from validation.claims import page
from validation.claims.results import load
from validation.command import cli


@pytest.fixture
def triad(monkeypatch, capfd):
    """Runs the command inside this process; gives exit code, stdout, stderr."""

    def run(*arguments, columns=200):
        monkeypatch.setattr(sys, "argv", ["triad", "claims", *arguments])
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capfd.readouterr()
        return caught.value.code or 0, out, err

    return run


def test_without_arguments_the_states_are_counted(triad):
    code, out, _ = triad(columns=80)
    assert code == 0
    papers = load()
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.split()}
    for key, claims in papers.items():
        assert lines[key] == [str(len(claims)), *(str(n) for n in claims.counts().values())]
    total = sum(len(claims) for claims in papers.values())
    assert lines["all"][0] == str(total)
    assert sum(map(int, lines["all"][1:])) == total
    assert "…" not in out


def test_the_claims_of_a_paper_are_listed_after_their_counts(triad):
    code, out, _ = triad("izmailov2016", columns=80)
    assert code == 0
    assert "…" not in out
    code, out, _ = triad("izmailov2016")
    claims = load()["izmailov2016"]
    assert all(claim.id in out for claim in claims)
    assert "table1-nll-susy-epgpc" not in out


def test_a_state_chooses_claims(triad):
    chosen = json.loads(triad("--json", "--state", "open")[1])
    assert {claim["state"] for claim in chosen["claims"]} <= {"open"}
    assert len(chosen["claims"]) == sum(counted["open"] for counted in chosen["counts"].values())


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
    assert {line.count(" | ") for line in lines} == {6}
    assert triad("--markdown")[1].startswith("| paper | claims | reproduced |")


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
