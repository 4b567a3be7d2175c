"""The pages of the claims, and what is said of them in words."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from validation.claims import atlas, page, protocol, results
from validation.claims.inventory import STATES

ROOT = Path(__file__).resolve().parents[3]
FOUND = (ROOT / "docs" / "found.md").read_text(encoding="utf-8")
ITEMS = re.findall(r"^- (?:.|\n(?!- |\n))*", FOUND, flags=re.MULTILINE)
CITED = re.compile(r"\{claim\}`([^:`]+):([^`]+)`")


class Cards(HTMLParser):
    """Ids and states of the cards of a page."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "article":
            self.found.append((dict(attrs)["id"], dict(attrs)["data-state"]))


@pytest.mark.parametrize("paper", list(results.load()))
def test_a_page_has_a_card_for_each_claim_which_the_filter_finds_by_its_state(paper):
    claims = results.load()[paper]
    text = atlas.paper_page(claims, protocol.load()[paper], set())
    cards = Cards(text).found
    assert sorted(cards) == sorted((claim.id, claim.state) for claim in claims)
    assert len({id for id, _ in cards}) == len(cards)
    assert {state for _, state in cards} <= set(STATES)
    assert ", stale" not in text
    for name in protocol.load()[paper]:
        assert f"\n`{name}`\n" in text


def test_a_card_has_both_numbers_the_resolution_the_reason_and_the_command():
    claims = results.load()["villacampa2020"]
    claim = claims.claim("tablec4-m5-wine-pep-1")
    text = atlas.paper_page(claims, protocol.load()["villacampa2020"], {"villacampa2020-tablec"})
    card = re.search(rf'<article[^>]*id="{claim.id}".*?</article>', text)[0]
    resolution = f"half width {claim.half_width:.2g}, {claim.passing} of {claim.others} other values pass"
    numbers = (page.printed(claim), page.ours(claim), f"of {claim.repetitions}", resolution)
    for part in (*numbers, "stale", "triad claims run villacampa2020"):
        assert part in card, part
    assert claim.reason[:40].replace("'", "&#x27;") in card


def test_other_readings_are_rows_of_a_table_and_decide_nothing():
    claims = results.load()["villacampa2020"]
    _, *rows = page.readings(claims)
    listed = {row[0]: row for row in rows}
    claim = claims.claim("tablec4-m5-satellite-pep-0")
    assert claim.state == "open"
    assert "damping = 0.02, registered: 0.5" in listed[claim.id][3]
    assert {claims.claim(id).state for id in listed} <= {"open", "reduced"}


def test_the_sign_tests_count_all_cells_of_a_data_set():
    claims = results.load()["villacampa2017"]
    pools = {pool.name: pool for pool in page.pools(claims)["by data set"]}
    cells = [c for c in claims if c.about == "cells" and c.row and "row Svmguide2" in c.where and c.ours is not None]
    assert pools["Svmguide2"].below == sum(c.ours < c.printed for c in cells)
    assert pools["Svmguide2"].below + pools["Svmguide2"].above == len(cells)


def test_every_item_of_what_was_found_rests_on_claims_that_are_there():
    papers = results.load()
    assert len(ITEMS) > 10
    for item in ITEMS:
        cited = CITED.findall(item)
        assert cited, item
        for paper, id in cited:
            assert papers[paper].claim(id)


@pytest.mark.parametrize(
    ("section", "states"),
    [
        ("What the papers got right", {"reproduced"}),
        ("What does not stand", {"refuted", "differs", "consistent", "reduced"}),
        ("What is missing", {"open", "reduced"}),
    ],
)
def test_what_was_found_says_no_more_than_the_states_of_its_claims(section, states):
    text = FOUND.partition(f"## {section}")[2].partition("\n## ")[0]
    papers = results.load()
    found = {papers[paper].claim(id).state for paper, id in CITED.findall(text)}
    assert found
    assert found <= states


def test_the_totals_of_what_was_found_are_those_of_the_claims():
    everything = [claim for claims in results.load().values() for claim in claims]
    counted = [claim for claim in everything if claim.about in page.COUNTED]
    mathematics = [claim for claim in counted if claim.about == "mathematics"]
    cells = [claim for claim in counted if claim.about == "cells"]
    state = {name: [claim for claim in cells if claim.state == name] for name in STATES}
    decided = len(state["reproduced"]) + len(state["consistent"]) + len(state["differs"])
    held = sum(claim.state == "reproduced" for claim in mathematics)
    text = " ".join(FOUND.split())
    for paper, group, name in (("villacampa2017", "by data set", "Svmguide2"), ("wenzel2019", "by method", "SVGPC")):
        pool = next(one for one in page.pools(results.load()[paper])[group] if one.name == name)
        assert f"{pool.below} of {pool.below + pool.above} cells of Table" in text
    assert f"{len(counted)} claims that can be tested" in text
    assert f"{held} of {len(mathematics)} statements and counts of operations" in text
    assert f"Of {decided} cells with five repetitions" in text
    assert f"{len(state['consistent'])} agree with print and with another" in text
