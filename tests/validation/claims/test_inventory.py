"""The inventories of claims: what is read, and what the reader refuses."""

import re
import shlex
from pathlib import Path

import pytest

from validation.checks import core
from validation.claims import results
from validation.claims.inventory import CONSISTENT, DIFFERS, REFUTED, REPRODUCED, UNDECIDABLE, Claim, load, read_claims
from validation.door.catalogue import METHODS
from validation.ledger.inventory import load as load_ledger
from validation.reproduce import catalogue
from validation.reproduce.experiment import EXPERIMENTS

GOOD = """
[paper]
key = "toy"
complete = false

[[claim]]
id = "fig1"
where = "Figure 1"
kind = "figure"
text = "The method is exact"
decides = "largest distance to the truth < 0.01"
state = "open"

[[claim]]
id = "text-error"
where = "Section 4"
kind = "cell"
text = "Test error"
printed = 2
unit = 1
state = "open"

[[table]]
id = "table1"
where = "Table 1"
text = "Error of {column} on {row}"
spread = "standard deviation"
repeats = 10
experiment = "table1"
protocol = "ten folds"
state = "open"
columns = ["EP", "VI (new)"]
[table.rows]
"Bank Market." = ["0.10 ± 0.02", "-0.3"]
glass = ["-", "12 ± 0"]
"""

VERDICT = """
[[verdict]]
id = "table1-glass-vi-new"
state = "reproduced"
ours = 12
ours_error = 0
command = "triad claims run toy table1"
"""


def test_rows_and_cells_are_read_as_they_are_printed():
    claims = read_claims(GOOD, "toy")
    assert [claim.id for claim in claims] == [
        "fig1",
        "text-error",
        "table1-bank-market-ep",
        "table1-bank-market-vi-new",
        "table1-glass-vi-new",
    ]
    assert len(claims) == 5
    assert not claims.complete
    cell = claims.claim("table1-bank-market-ep")
    assert cell == Claim(
        paper="toy",
        id="table1-bank-market-ep",
        where="Table 1, row Bank Market., column EP",
        kind="cell",
        row="table1-bank-market",
        text="Error of EP on Bank Market.",
        state="open",
        printed=0.1,
        printed_error=0.02,
        unit=0.01,
        spread="standard deviation",
        repeats=10,
        experiment="table1",
        protocol="ten folds",
        about="cells",
    )
    assert cell.address == "toy:table1-bank-market-ep"
    alone = claims.claim("table1-bank-market-vi-new")
    assert (alone.printed, alone.printed_error, alone.unit, alone.spread) == (-0.3, None, 0.1, "none")
    assert claims.claim("table1-glass-vi-new").unit == 1.0
    number = claims.claim("text-error").printed
    assert isinstance(number, float)
    assert number == 2.0
    assert {state: n for state, n in claims.counts().items() if n} == {"open": 5}
    assert claims.counts("cells")["open"] == 4
    assert claims.counts("sentences")["open"] == 1


def test_a_table_may_state_the_unit_of_its_last_digit():
    stated = GOOD.replace("repeats = 10", "repeats = 10\nunit = 0.001")
    units = {claim.unit for claim in read_claims(stated, "toy") if claim.id.startswith("table1")}
    assert units == {0.001}


def test_rows_share_a_protocol_by_its_name():
    shared = GOOD.replace('"ten folds"', '"cv"').replace("unit = 1", 'unit = 1\nprotocol = "cv; one run"')
    claims = read_claims(shared + '[protocols]\ncv = "ten folds"', "toy")
    assert [claim.protocol for claim in claims] == ["", "ten folds; one run", *3 * ["ten folds"]]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('[protocols]\ncv = "ten folds"', "protocols.: found cv, which no row names"),
        ("[protocols]\ncv = 10", "cv: found 10, expected a value of type str"),
        ("[[protocols]]", "protocols.: found list, expected a table"),
    ],
)
def test_a_fault_in_the_protocols_is_an_error_that_names_it(text, match):
    with pytest.raises(ValueError, match=match):
        read_claims(GOOD + text, "toy")


def test_a_verdict_joins_the_claim_that_it_names():
    claims = read_claims(GOOD + VERDICT, "toy")
    decided = claims.claim("table1-glass-vi-new")
    assert (decided.state, decided.ours, decided.ours_error) == ("reproduced", 12.0, 0.0)
    assert decided.printed == 12.0
    assert claims.counts()["open"] == 4


def test_an_unknown_claim_is_answered_with_near_ones():
    with pytest.raises(LookupError, match="found 'fig2' in toy, expected 'fig1'"):
        read_claims(GOOD, "toy").claim("fig2")


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('key = "toy"', 'key = "tot"', "key: found 'tot', expected 'toy'"),
        ("complete = false", "complete = true", "complete: found true beside 5 open claims"),
        ('kind = "figure"', 'kind = "figur"', "kind: found 'figur', expected one of cell, figure, prose"),
        ('state = "open"', 'about = "people"\nstate = "open"', "about: found 'people', expected one of mathematics"),
        ('state = "open"', 'state = "opened"', "state: found 'opened', expected one of reproduced, differs"),
        ("standard deviation", "sd", "spread: found 'sd', expected one of standard error"),
        ('text = "The', 'texts = "The', "claim 1: found key 'texts', expected .*'text'"),
        ('text = "Test error"', "", "claim 2: found no 'text'"),
        ("printed = 2\nunit = 1\n", "", "text-error: found a cell without 'printed'"),
        ("printed = 2\n", "", "found a cell without 'printed'"),
        ("printed = 2", "printed = true", "printed: found True, expected a value of type float"),
        ("printed = 2", 'printed = "2"', "printed: found '2', expected a value of type float"),
        ("printed = 2", "printed = nan", "printed: found nan, expected a finite number"),
        ("unit = 1", "unit = -1", "unit: found -1.0, expected a finite number >= 0"),
        ('decides = "largest distance to the truth < 0.01"\n', "", "fig1: found no 'decides'"),
        ('decides = "l', 'unit = 1\ndecides = "l', "fig1: found 'printed_error' or 'unit' without 'printed'"),
        ("unit = 1", "printed_error = 1", "spread: found 'none' with printed_error = 1.0"),
        ("unit = 1", 'spread = "standard error"', "found 'standard error' with printed_error = None"),
        ("repeats = 10\n", "", "found a standard deviation without 'repeats'"),
        ("repeats = 10", "repeats = 0", "repeats: found 0, expected a count from 1"),
        ("repeats = 10", "repeats = 10.0", "repeats: found 10.0, expected a value of type int"),
        ('id = "fig1"', 'id = "text-error"', "claim 2: id: found 'text-error' a second time"),
        ('id = "fig1"', 'id = "Fig 1"', "id: found 'Fig 1', expected lower case"),
        ('"-0.3"]', '"-0.3", "1"]', "table 1, row Bank Market.: found .*, expected a list of 2 cells"),
        ('"-0.3"', '"0.3 +- 1"', "VI .new.: found '0.3 .- 1', expected a text as '0.33 ± 0.01' or '-'"),
        ('"-0.3"', "0.3", "VI .new.: found 0.3, expected a text"),
        ("[[table]]", "[[tables]]", r"found .tables., expected one of paper, protocols"),
        ("[[table]]", "[[table", "no valid TOML"),
        ('state = "open"\n\n[[claim]]', 'state = "open"\nours = 1\n\n[[claim]]', "fig1: found ours of an open claim"),
        ('state = "open"\n\n[[claim]]', 'state = "refuted"\n\n[[claim]]', "'refuted' without 'command'"),
        ('state = "open"\n\n[[claim]]', 'state = "not decidable"\n\n[[claim]]', "without 'reason'"),
        (
            'state = "open"\n\n[[claim]]',
            'state = "reproduced"\ncommand = "triad"\n\n[[claim]]',
            "fig1: found 'reproduced' without 'test'",
        ),
    ],
)
def test_a_fault_in_an_inventory_is_an_error_that_names_it(old, new, match):
    assert old in GOOD
    with pytest.raises(ValueError, match=match):
        read_claims(GOOD.replace(old, new, 1), "toy")


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("glass-vi-new", "glass-ep", "verdict 1: id: found 'table1-glass-ep', expected .*'table1-glass-vi-new'"),
        ("ours = 12", "ours = 13", "found 'reproduced' with ours = 13, printed 12"),
        ('"reproduced"', '"differs"\nreason = "ours"', "found 'differs' with ours = 12, printed 12"),
        ('"reproduced"', '"reduced"\nreason = "ours"', "state: found 'reduced', expected one of reproduced"),
        ("ours_error = 0\n", "", "found 'reproduced' without ours and ours_error, expected both"),
        ("ours_error = 0", "ours_error = 1", "ours_error: found 1, expected 0, the error of a count"),
        ('command = "triad claims run toy table1"\n', "", "found 'reproduced' without 'command'"),
        ("ours_error = 0", "ours_error = -1", "ours_error: found -1.0"),
        ("ours = ", "our = ", "verdict 1: found key 'our', expected 'ours'"),
        ("[[verdict]]", VERDICT + "[[verdict]]", "verdict 2: found a second verdict on 'table1-glass-vi-new'"),
        ("[[verdict]]", "[verdict]", "verdict: found dict, expected"),
    ],
)
def test_a_fault_in_a_verdict_is_an_error_that_names_it(old, new, match):
    assert old in VERDICT
    with pytest.raises(ValueError, match=match):
        read_claims(GOOD + VERDICT.replace(old, new, 1), "toy")


def test_a_paper_without_claims_is_an_error():
    with pytest.raises(ValueError, match="found no claim"):
        read_claims('[paper]\nkey = "toy"\ncomplete = true', "toy")


def test_a_folder_without_inventories_is_an_error(tmp_path: Path):
    with pytest.raises(ValueError, match="found no inventory"):
        load(tmp_path)


def test_a_folder_is_read_paper_by_paper(tmp_path: Path):
    (tmp_path / "toy.toml").write_text(GOOD, encoding="utf-8")
    assert list(load(tmp_path)) == ["toy"]
    assert len(load(tmp_path)["toy"]) == 5


def test_the_papers_that_ship_are_papers_of_the_ledger():
    assert set(load()) <= set(load_ledger().papers)


def test_a_claim_that_the_ledger_denies_is_not_reproduced():
    papers = results.load()
    denied = [(entry.paper, claim) for entry in load_ledger() for claim in entry.denies]
    assert ("villacampa2017", "sep-memory-factor") in denied
    states = {(paper, id): papers[paper].claim(id).state for paper, id in denied}
    assert [key for key, state in states.items() if state in (REPRODUCED, CONSISTENT)] == []


def test_a_claim_that_is_false_or_contradicts_its_paper_is_denied_by_the_ledger():
    """Refuted statements, and those that differ from the paper's own numbers; a slip in a reason names the claim."""
    known = load_ledger()
    for paper, claims in results.load().items():
        denied = {claim for entry in known.papers[paper].entries for claim in entry.denies}
        for claim in claims:
            for id in re.findall(r"slip-\d+|(?<=misprint \()[\w.]+", claim.reason):
                assert claim.id in known.entry(paper, id).denies, (claim.address, id)
            if claim.state == REFUTED or claim.reason.startswith("the paper's own "):
                assert claim.id in denied, claim.address


def test_one_statement_of_two_papers_has_one_verdict():
    """Papers of the same authors repeat claims: the same id, where both are decided, has the same state."""
    papers = results.load()
    for claim in papers["villacampa2020"]:
        if claim.id in {other.id for other in papers["villacampa2017"]} and claim.kind == "prose":
            states = {claim.state, papers["villacampa2017"].claim(claim.id).state} - {"open", UNDECIDABLE}
            assert len(states) <= 1, claim.id


def test_the_experiments_that_claims_name_exist():
    catalogue.load()
    unknown = {
        (claim.paper, claim.experiment)
        for claims in load().values()
        for claim in claims
        if claim.experiment and (claim.paper, claim.experiment) not in EXPERIMENTS
    }
    assert not unknown


def words(text):
    """Lower-case words; those joined by hyphens are one."""
    return set(re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", text.lower()))


def test_what_was_compared_names_every_method_of_what_decides():
    """A verdict on methods that were not run is on something else than the claim."""
    methods = {entry.method for entry in METHODS}
    told = {
        claim.address: (words(claim.decides) & methods) - words(f"{claim.test} {claim.command.replace('/', ' ')}")
        for claims in load().values()
        for claim in claims
        if claim.kind != "cell" and claim.state in (REPRODUCED, DIFFERS, REFUTED)
    }
    assert len(told) > 100
    assert {address: missing for address, missing in told.items() if missing} == {}


def test_a_decided_claim_cites_a_result_a_check_an_entry_or_a_table_that_is_there():
    folder, known = Path(results.__file__).parent / results.FOLDER, load_ledger()
    catalogue.load()
    checks = core.registered()
    for claims in results.load().values():
        for claim in claims:
            if claim.state in (UNDECIDABLE, "open"):
                continue
            kind, *rest = shlex.split(claim.command)[1:]
            if claim.result:
                assert (folder / claim.result).is_file(), claim.address
            elif kind == "verify":
                assert rest[rest.index("--check") + 1] in checks, claim.address
            elif kind == "audit":
                paper, _, entry = rest[0].partition(":")
                assert known.entry(paper, entry), claim.address
            elif (kind, rest[0]) == ("claims", "run"):
                assert (rest[1], rest[2]) in EXPERIMENTS, claim.address
            else:  # the paper's own table, or the rows of a data set
                assert kind in ("claims", "list"), claim.address
                assert claim.state == REFUTED or claim.about == "sizes", claim.address
