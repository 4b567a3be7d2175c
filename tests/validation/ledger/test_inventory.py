"""The inventories that ship, and what their reader refuses."""

import re
from pathlib import Path

import pytest

from validation.ledger.inventory import KINDS, load, nearest, read_allow_list, read_paper

COUNTS = {"izmailov2016": 74, "riihimaki2013": 102, "villacampa2017": 143, "villacampa2020": 128, "wenzel2019": 69}

GOOD = """
[paper]
key = "toy"
title = "T"
authors = "A"
year = 2000
venue = "V"
complete = false

[[entry]]
id = "1"
section = "2"
title = "Display"
kind = "definition"
inputs = ["x ()"]
outputs = ["y ()"]
function = "f"
"""


def test_the_five_inventories_ship_with_all_their_entries():
    known = load()
    assert {key: len(paper.entries) for key, paper in known.papers.items()} == COUNTS
    assert len(list(known)) == sum(COUNTS.values())
    assert {entry.kind for entry in known} == {*KINDS, "slip"}


def test_every_address_leads_to_its_own_entry():
    known = load()
    assert all(known.entry(*entry.equation) is entry for entry in known)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('key = "toy"', 'key = "tot"', "key: found 'tot', expected 'toy'"),
        ("year = 2000", 'year = "2000"', "year: found '2000', expected a value of type int"),
        ("year = 2000", "year = true", "year: found True"),
        ("complete = false", "", "found no 'complete'"),
        ('kind = "definition"', 'kind = "remark"', "entry 1: kind: found 'remark', expected one of definition"),
        ('section = "2"', 'sektion = "2"', "entry 1: found key 'sektion', expected 'section'"),
        ('title = "Display"', 'title = " "', "entry 1: title: found an empty text"),
        ('inputs = ["x ()"]', "inputs = [1]", "entry 1: inputs: found .1., expected a list of texts"),
        ("[[entry]]", "[[enttry]]", r"found .enttry., expected .paper."),
        ("[[entry]]", "[[entry", "no valid TOML"),
    ],
)
def test_a_fault_in_an_inventory_is_an_error_that_names_it(old, new, match):
    assert old in GOOD
    with pytest.raises(ValueError, match=match):
        read_paper(GOOD.replace(old, new), "toy")


def test_an_id_given_twice_is_an_error():
    twice = GOOD + GOOD[GOOD.index("[[entry]]") :]
    with pytest.raises(ValueError, match="entry 2: id: found '1' a second time"):
        read_paper(twice, "toy")


def test_a_folder_without_inventories_is_an_error(tmp_path: Path):
    with pytest.raises(ValueError, match="found no inventory"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('[toy]\n"9" = "prose"', "found '9' in toy, expected '1'"),
        ('[tay]\n"1" = "prose"', "found 'tay', expected 'toy'"),
        ('[toy]\n"1" = ""', "toy:1: found '', expected the reason"),
        ('toy = "prose"', "expected a table"),
    ],
)
def test_a_fault_in_the_allow_list_is_an_error_that_names_it(text, match):
    papers = {"toy": read_paper(GOOD, "toy")}
    with pytest.raises(ValueError, match=match):
        read_allow_list(text, papers)


def test_the_allow_list_is_read_beside_the_inventories(tmp_path: Path):
    (tmp_path / "toy.toml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "not_executable.toml").write_text('[toy]\n"1" = "a remark"', encoding="utf-8")
    assert load(tmp_path).not_executable == {("toy", "1"): "a remark"}


@pytest.mark.parametrize(
    ("paper", "id", "match"),
    [
        ("wenzel", "11", "expected 'wenzel2019'"),
        ("wenzel2019", "u4.3-stpe", "expected .*'u4.3-step'"),
        ("wenzel2019", "zzzzzz", "one of 69, such as '1'"),
    ],
)
def test_an_unknown_address_is_answered_with_near_ones(paper, id, match):
    with pytest.raises(LookupError, match=match):
        load().entry(paper, id)


def test_nearest_of_nothing_says_so():
    assert re.search("none is known", nearest("x", []))


SLIP = """
[[slip]]
id = "slip-1"
section = "2"
printed = "a"
meant = "b"
"""


def test_a_slip_is_an_entry_in_words():
    entry = read_paper(GOOD + SLIP, "toy").entries[-1]
    assert (entry.id, entry.kind, entry.title) == ("slip-1", "slip", "printed: a; meant: b")


REASON = """because = "a is no letter here"
number = "count: 2; printed: 3"
decides = "tests/a/test_b.py::test_c, print/ep/d"
"""


def test_a_misprint_and_a_slip_may_say_why_by_which_number_and_what_makes_it_again():
    for entry in read_paper(GOOD + REASON + SLIP + REASON, "toy").entries:
        assert (entry.because, entry.number) == ("a is no letter here", "count: 2; printed: 3")
        assert entry.decides == ("tests/a/test_b.py::test_c", "print/ep/d")


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('number = "count: 2; printed: 3"\n', "", "slip 1: found 'because' without 'number', expected because, number"),
        ("here", "here. Nor there", "because: found .*, expected one sentence"),
        ("here", "here.", "because: found .*, expected one sentence"),
        ("count: 2; printed: 3", "two; printed: three", "number: found 'two; printed: three', expected .* a number"),
        ("print/ep/d", "somewhere", "decides: found 'somewhere', expected tests/FILE.py::NAME or KIND/METHOD/NAME"),
    ],
)
def test_a_fault_of_a_reason_is_an_error_that_names_it(old, new, match):
    assert old in REASON
    with pytest.raises(ValueError, match=match):
        read_paper(GOOD + SLIP + REASON.replace(old, new), "toy")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (SLIP + SLIP, "slip 2: id: found 'slip-1' a second time"),
        (SLIP.replace('meant = "b"', ""), "slip 1: found no 'meant'"),
        ('[slip]\nid = "slip-1"\n', "expected .*slip"),
    ],
)
def test_a_fault_of_a_slip_is_an_error_that_names_it(text, match):
    with pytest.raises(ValueError, match=match):
        read_paper(GOOD + text, "toy")
