"""Results of experiments beside the printed cells: the record, its card, the bindings, and what they decide."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from validation.claims import inventory, results
from validation.claims.inventory import CONSISTENT, DIFFERS, OPEN, REDUCED, REPRODUCED
from validation.claims.protocol import Protocol
from validation.command import cli, maintain
from validation.reproduce import catalogue
from validation.reproduce.experiment import find

COLUMNS = ("data", "M", "method", "score", "here", "±", "repetitions")
PROTOCOLS = {"demo": {"table": Protocol(settles="all of it"), "fig1": Protocol(settles="all of it")}}
KEYS = ("data", "M", "method", "score")
CARD = results.Card("triad claims run a b", 1.0, {"numpy": "2"}, "abc", "f00", ("a note",))
PAPER = """
[paper]
key = "demo"
complete = false

[[table]]
id = "t-m5"
where = "Table 1"
text = "Error of {column} on {row}"
spread = "standard error"
state = "open"
columns = ["EP", "GFITC"]
[table.rows]
New-thyroid = ["0.10 ± 0.01", "0.20 ± 0.01"]
"""
BINDINGS = """
[[cells]]
result = "demo-table"
table = "t-m5"
row = "data"
column = "method"
value = "here"
error = "±"
match = { M = "5%", score = "error" }
"""


@pytest.fixture
def claims():
    return {"demo": inventory.read_claims(PAPER, "demo")}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "bindings.toml").write_text(BINDINGS, encoding="utf-8")
    rows = [("new_thyroid", "5%", "EP", "error", 0.11, 0.01, 20), ("new_thyroid", "5%", "EP", "nll", 9.0, 0.01, 20),
            ("new_thyroid", "10%", "EP", "error", 9.0, 0.01, 20)]  # fmt: skip
    results.record(tmp_path, "demo-table", COLUMNS, rows, KEYS, CARD)
    return tmp_path


def test_a_row_decides_the_cell_that_it_is_bound_to_and_no_other(claims, folder):
    decided = results.apply(claims, folder, PROTOCOLS)["demo"]
    ep, gfitc = decided
    assert (ep.state, ep.ours, ep.ours_error, ep.repetitions) == (REPRODUCED, 0.11, 0.01, 20)
    assert (ep.passing, ep.others) == (0, 1)  # GFITC's printed 0.20 is farther than the half width
    assert 0.045 < ep.half_width < 0.06
    assert (ep.command, ep.result) == ("triad claims run a b", "demo-table.csv")
    assert gfitc.state == OPEN
    assert next(iter(claims["demo"])).state == OPEN  # the inventory itself is as it was


def test_a_cell_that_differs_needs_a_reason(claims, folder):
    rows = [("new_thyroid", "5%", "GFITC", "error", 0.9, 0.01, 20)]
    results.record(folder, "demo-table", COLUMNS, rows, KEYS, CARD)
    with pytest.raises(ValueError, match="reason: found none for demo:t-m5-new-thyroid-gfitc, which differs"):
        results.apply(claims, folder, PROTOCOLS)
    text = BINDINGS + '\n[[reason]]\nids = "demo:t-m5-*-gfitc"\ntext = "it is cold"\n'
    (folder / "bindings.toml").write_text(text, encoding="utf-8")
    ep, gfitc = results.apply(claims, folder, PROTOCOLS)["demo"]
    assert (gfitc.state, gfitc.reason) == (DIFFERS, "it is cold")
    assert ep.reason == ""


def test_standard_deviations_are_divided_by_the_root_of_the_repetitions(claims, folder):
    (folder / "bindings.toml").write_text(BINDINGS + 'spread = "standard deviation"\n', encoding="utf-8")
    rows = [("new_thyroid", "5%", "EP", "error", 0.11, 0.02, 16)]
    results.record(folder, "demo-table", COLUMNS, rows, KEYS, CARD)
    assert results.apply(claims, folder, PROTOCOLS)["demo"].claim("t-m5-new-thyroid-ep").ours_error == 0.005


def test_rows_and_columns_may_have_other_names_in_the_table(claims, folder):
    text = BINDINGS + 'names = { thyroid = "New-thyroid", x-ep = "EP" }\n'
    (folder / "bindings.toml").write_text(text, encoding="utf-8")
    results.record(folder, "demo-table", COLUMNS, [("thyroid", "5%", "x-ep", "error", 0.12, 0.01, 20)], KEYS, CARD)
    path = folder / "demo-table.csv"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("new_thyroid")]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert results.apply(claims, folder, PROTOCOLS)["demo"].claim("t-m5-new-thyroid-ep").ours == 0.12


def test_a_later_run_takes_the_place_of_rows_with_the_same_keys(folder):
    rows = [("new_thyroid", "5%", "EP", "error", 0.12, 0.01, 20)]
    path = results.record(folder, "demo-table", COLUMNS, rows, KEYS, CARD._replace(command="again"))
    text = path.read_text(encoding="utf-8").splitlines()
    assert text[0] == "data,M,method,score,here,±,repetitions,run"
    assert "new_thyroid,5%,EP,error,0.12,0.01,20,2" in text
    assert len(text) == 4
    assert {key: card.command for key, card in results.read_cards(folder, "demo-table").items()} == {
        "1": "triad claims run a b", "2": "again",
    }  # fmt: skip
    everything = [
        ("new_thyroid", m, "EP", s, 0.0, 0.0, 20) for m, s in (("5%", "error"), ("5%", "nll"), ("10%", "error"))
    ]
    results.record(folder, "demo-table", COLUMNS, everything, KEYS, CARD)
    assert set(results.read_cards(folder, "demo-table")) == {"3"}  # runs without a row are forgotten


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (("demo-table", "other-table"), "result: found 'other-table'"),
        (('"t-m5"', '"t-m7"'), "found no row of demo-table.csv for t-m7"),
        (('value = "here"\n', ""), "value"),
    ],
)
def test_a_binding_that_fits_nothing_is_an_error(claims, folder, change, word):
    (folder / "bindings.toml").write_text(BINDINGS.replace(*change), encoding="utf-8")
    with pytest.raises(ValueError, match=word):
        results.apply(claims, folder, PROTOCOLS)


def test_a_row_without_its_card_is_an_error(claims, folder):
    (folder / "demo-table.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="run: found '1'"):
        results.apply(claims, folder, PROTOCOLS)


def test_keys_that_are_no_columns_and_results_that_nothing_binds(folder):
    with pytest.raises(ValueError, match="keys: found colour"):
        results.record(folder, "demo-table", COLUMNS, [], ("colour",), CARD)
    assert results.keys_of("demo-table", folder) == ("data", "method", "M", "score")
    with pytest.raises(ValueError, match="result: found 'demo-other'"):
        results.keys_of("demo-other", folder)


def test_the_fingerprint_is_of_the_code_that_a_number_goes_through(tmp_path, monkeypatch):
    package = tmp_path / "fast"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "ep.py").write_text("from fast import steps\n")
    (package / "steps.py").write_text("RATE = 1\n")
    (package / "aside.py").write_text("RATE = 1\n")
    (tmp_path / "experiment_here.py").write_text("from fast.ep import steps\n")
    monkeypatch.syspath_prepend(tmp_path)

    def of():
        results.fingerprint.cache_clear()
        results._is_module.cache_clear()
        return results.fingerprint("experiment_here")

    monkeypatch.setattr(results, "find_spec", lambda name: spec(tmp_path, name))
    before = of()
    (package / "aside.py").write_text("RATE = 2\n")
    assert of() == before
    (package / "steps.py").write_text("RATE = 2\n")
    assert of() != before
    assert CARD.stale("experiment_here")
    assert not CARD._replace(fingerprint=of()).stale("experiment_here")
    results.fingerprint.cache_clear()
    results._is_module.cache_clear()


def spec(root, name):
    """What find_spec says of a module below a folder."""
    path = root.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return type("Spec", (), {"origin": str(path)}) if path.is_file() else None


def test_what_ships_is_bound_has_its_card_and_speaks_of_experiments_that_are_there():
    catalogue.load()
    bound, _ = results.bindings()
    folder = Path(results.__file__).parent / results.FOLDER
    for name in {binding.result for binding in bound} | set(results.statements()):
        paper, _, experiment = name.partition("-")
        find(paper, experiment)
        cards = results.read_cards(folder, name)
        assert cards
        for card in cards.values():
            assert card.command.startswith(f"triad claims run {paper} {experiment}")
            assert card.versions["numpy"]
    stated = set(results.statements())
    assert {path.stem for path in folder.glob("*.csv")} == {binding.result for binding in bound} | stated
    assert sum(path.stat().st_size for path in folder.iterdir()) < 5e6
    decided = [claim for claims in results.load().values() for claim in claims if claim.result]
    assert decided
    states = {REPRODUCED, CONSISTENT, DIFFERS, REDUCED, OPEN}
    assert all(claim.state in states for claim in decided)
    assert all(claim.settles and claim.reason for claim in decided if claim.state in (REDUCED, OPEN))
    catalogue.stale()  # it can say which rows are


def test_a_run_is_recorded_by_the_command(monkeypatch, tmp_path, capfd):
    shipped = Path(results.__file__).parent / results.FOLDER
    shutil.copy(shipped / "bindings.toml", tmp_path)
    arguments = ["maintain", "reproduce", "villacampa2017", "table2", "--dataset", "wine", "-o", "methods=ep"]
    arguments += ["-o", "n_run=2", "-o", "n_steps=2", "--output", str(tmp_path / "pages"), "--record", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as caught:
        cli.main(maintain.app)
    out, err = capfd.readouterr()
    assert not caught.value.code, err
    assert "villacampa2017-table2.csv" in out
    (card,) = json.loads((tmp_path / "villacampa2017-table2.json").read_text(encoding="utf-8")).values()
    assert card["command"].startswith("triad claims run villacampa2017 table2 -o ")
    assert '"wine"' in card["command"]
    assert any("repetitions: 2 here" in note for note in card["notes"])
    # a header; nll, error and seconds
    assert len((tmp_path / "villacampa2017-table2.csv").read_text(encoding="utf-8").splitlines()) == 4


SAID = """
[[claim]]
id = "fig1-low"
where = "Section 1"
kind = "prose"
text = "It is low"
decides = "low < high"
state = "open"

[[claim]]
id = "fig1-high"
where = "Section 1"
kind = "prose"
text = "It is high"
decides = "low < high"
state = "open"
"""


def test_statements_are_decided_by_all_of_their_rows(folder):
    claims = {"demo": inventory.read_claims(PAPER + SAID, "demo")}
    (folder / "bindings.toml").write_text(BINDINGS + '\n[[statements]]\nresult = "demo-fig1"\n', encoding="utf-8")
    assert results.keys_of("demo-fig1", folder) == ("claim",)  # a run again decides it anew, in whatever words
    columns = ("claim", "compared", "observed", "limit", "verdict", "repetitions")
    rows = [
        ("fig1-low", "a below b", 1.0, 2.0, "holds", 9),
        ("fig1-low", "a below c", 1.0, 3.0, "holds", 5),
        ("fig1-high", "a above b", 1.0, 2.0, "fails", 9),
        ("fig1-high", "a above 0", 1.0, 0.0, "holds", 9),
    ]
    results.record(folder, "demo-fig1", columns, rows, ("claim", "compared"), CARD)
    with pytest.raises(ValueError, match="reason: found none for demo:fig1-high"):
        results.apply(claims, folder, PROTOCOLS)
    reason = '\n[[reason]]\nids = "demo:fig1-*"\ntext = "it is cold"\n'
    with (folder / "bindings.toml").open("a", encoding="utf-8") as stream:
        stream.write(reason)
    decided = results.apply(claims, folder, PROTOCOLS)["demo"]
    low, high = decided.claim("fig1-low"), decided.claim("fig1-high")
    assert (low.state, low.reason, low.result) == (REPRODUCED, "", "demo-fig1.csv")
    assert low.test == "a below b: 1, limit 2, holds; a below c: 1, limit 3, holds"
    assert low.repetitions == 5
    assert (high.state, high.reason, high.command) == (DIFFERS, "it is cold", "triad claims run a b")
    other = [("fig1-other", "x", 1.0, 2.0, "holds", 9)]
    results.record(folder, "demo-fig1", columns, other, ("claim", "compared"), CARD)
    with pytest.raises(LookupError, match="fig1-other"):
        results.apply(claims, folder, PROTOCOLS)


def test_behind_solve_the_code_of_every_method_counts():
    results.fingerprint.cache_clear()
    through_solve = results.fingerprint("validation.reproduce.riihimaki2013.table1")
    assert through_solve != results.hashlib.sha256().hexdigest()[:16]  # of nothing


def test_a_run_that_decides_nothing_is_not_recorded(monkeypatch, tmp_path, capfd):
    shipped = Path(results.__file__).parent / results.FOLDER
    shutil.copy(shipped / "bindings.toml", tmp_path)
    arguments = [
        "maintain",
        "reproduce",
        "villacampa2017",
        "fig1",
        "--dataset",
        "wine",
        "-o",
        "n=30",
        "-o",
        "n_steps=2",
    ]
    arguments += ["--output", str(tmp_path / "pages"), "--record", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as caught:
        cli.main(maintain.app)
    assert caught.value.code == 2
    assert "--record: found no table of claims, expected options" in capfd.readouterr().err
    assert not list(tmp_path.glob("villacampa2017-fig1.*"))


def test_rows_that_depart_from_the_protocol_are_told_and_decide_nothing(claims, folder):
    registered = Protocol(printed={"n_steps": 250}, defaults={"n_steps": 30}, settles="250 steps")
    ep, _ = results.apply(claims, folder, {"demo": {"table": registered}})["demo"]
    assert (ep.state, ep.ours, ep.settles) == (REDUCED, 0.11, "250 steps")
    assert ep.reason == ep.departure == "n_steps = 30, printed: 250"
    registered = Protocol(gates={"a note": []}, settles="chains that mix")
    ep, _ = results.apply(claims, folder, {"demo": {"table": registered}})["demo"]
    assert (ep.state, ep.reason) == (OPEN, "the card has: a note")
    with pytest.raises(ValueError, match=r"found no \[experiments.table\]"):
        results.apply(claims, folder, {"demo": {}})


def test_the_narrowest_pattern_gives_the_reason_wherever_it_stands(claims, folder):
    rows = [("new_thyroid", "5%", "GFITC", "error", 0.9, 0.01, 20)]
    results.record(folder, "demo-table", COLUMNS, rows, KEYS, CARD)
    wide = '\n[[reason]]\nids = "demo:t-*"\ntext = "wide"\n'
    narrow = '\n[[reason]]\nids = "demo:*-gfitc"\ntext = "narrow"\n'
    for text in (wide + narrow, narrow + wide):
        (folder / "bindings.toml").write_text(BINDINGS + text, encoding="utf-8")
        _, gfitc = results.apply(claims, folder, PROTOCOLS)["demo"]
        assert gfitc.reason == "narrow"
