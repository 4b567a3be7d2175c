"""The graph of equations: every call is drawn once, downwards, and nothing lies on anything else."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from validation.ledger import graph
from validation.ledger.audit import Row
from validation.ledger.executed import Executed
from validation.ledger.inventory import Entry
from validation.ledger.registry import Function


def row(id, *, calls=(), function="", state="verified", loop=False, solves=("reference ep",), kind="update", at="1"):
    entry = Entry(paper="villacampa2017", id=id, section=at, title=f"Title <{id}>", kind=kind,
                  inputs=(), outputs=(), function="f")  # fmt: skip
    own = (Function("reference", f"reference.{function or id}", (entry.equation,), False, "", 0),)
    by = Executed(solve=solves, loop=solves if loop else (), calls=dict.fromkeys(calls, solves))
    return Row(entry, state, own, (), (), (), (), "", by)


def drawn(rows, name="ep", width=330.0, slips=""):
    picture = graph.picture(rows, name, width, lambda id: f"({id})", lambda id: f"to-{id}", slips)
    return ElementTree.fromstring(picture)


def boxes(svg):
    return {
        link.get("data-id"): tuple(float(rect.get(name)) for name in ("x", "y", "width", "height"))
        for link in svg.iter("a")
        for rect in link.iter("rect")
    }


def ends(svg):
    """Caller and called of every line that arrives at a box."""
    tips = [path for path in svg.iter("path") if path.get("class") == "tip"]
    return {
        pair for tip in tips for pair in itertools.product(tip.get("data-from").split(), tip.get("data-to").split())
    }


def many(count):
    """A random graph without circles, with ids of many lengths."""
    rng = np.random.default_rng(5)
    ids = [f"{number}{'x' * (number % 7)}" for number in range(count)]
    called = [[ids[other] for other in range(place + 1, count) if rng.random() < 0.12] for place in range(count)]
    return [row(id, calls=calls) for id, calls in zip(ids, called, strict=True)]


@pytest.mark.parametrize("width", graph.WIDTHS.values())
def test_boxes_lie_beside_one_another_and_every_caller_above_what_it_calls(width):
    rows = many(60)
    svg = drawn(rows, width=width)
    places = boxes(svg)
    assert set(places) == {each.entry.id for each in rows}
    for (x, y, w, h), (u, v, a, b) in itertools.combinations(places.values(), 2):
        assert x + w <= u or u + a <= x or y + h <= v or v + b <= y
    assert ends(svg) == {(each.entry.id, id) for each in rows for id in each.executed.calls}
    for upper, lower in ends(svg):
        assert places[upper][1] + places[upper][3] < places[lower][1]
    assert all(x >= 0 and x + w <= float(svg.get("width")) for x, _, w, _ in places.values())
    assert all(y + h <= float(svg.get("height")) for _, y, _, h in places.values())


def test_graphs_fit_a_phone_also_where_one_equation_calls_many_or_is_called_by_many():
    assert float(drawn(many(15), width=330.0).get("width")) == 330.0
    ids = [f"A.{number}" for number in range(30)]
    assert float(drawn([row("1", calls=ids), *map(row, ids)], width=330.0).get("width")) == 330.0
    assert float(drawn([*(row(id, calls=["1"]) for id in ids), row("1")], width=330.0).get("width")) == 330.0


def test_entries_of_one_function_share_a_box_and_call_nothing_of_their_own():
    rows = [row("1", calls=("2", "3"), function="f"), row("2", calls=("3",), function="f"), row("3")]
    svg = drawn(rows)
    places = boxes(svg)
    assert places["1"][0] + places["1"][2] == pytest.approx(places["2"][0], abs=0.11)
    assert places["1"][1] == places["2"][1] < places["3"][1]
    assert len([path for path in svg.iter("path") if path.get("class") == "tip"]) == 1


def test_calls_in_a_circle_are_drawn_as_far_as_they_lead_down():
    svg = drawn([row("1", calls=("2",)), row("2", calls=("1", "3")), row("3")])
    assert ends(svg) == {("1", "2"), ("2", "3")}


def test_a_box_leads_to_its_card_and_shows_its_state():
    rows = [row("1", loop=True, calls=("2",)), row("2", state="corrected"), row("3", state="not executable")]
    links = {link.get("data-id"): link for link in drawn(rows, slips="(2), (7) and below").iter("a")}
    assert links["1"].get("href") == "#to-1"
    assert links["1"].get("class") == "verified loop"
    assert links["2"].get("class") == "corrected"
    assert links["3"].get("class") == "not-executable"
    assert [id for id, link in links.items() if link.find("circle") is not None] == ["2"]
    assert links["2"].find("title").text == "(2) Title <2>: corrected, with a slip"


def test_a_method_shows_the_calls_of_its_own_solves_and_all_equations_every_call():
    both, sep = ("reference ep", "reference sep"), ("reference sep",)
    rows = [
        row("1", calls=("2",), solves=both),
        row("2", solves=both),
        row("3", calls=("1",), solves=sep),
        row("4", solves=()),
        row("slip-1", kind="slip", at="(1)", solves=()),
    ]
    html = graph.of_paper(rows, str, str)
    assert re.findall(r"<summary>(.*?)</summary>", html) == [
        "ep: 2 entries, 1 call", "sep: 3 entries, 2 calls", "all equations: 3 entries, 2 calls",
    ]  # fmt: skip
    assert html.count("<svg") == 2 * 3  # for two widths
    assert 'class="slip"' in html
    assert graph.callers(rows) == {"1": ["3"], "2": ["1"]}


def test_without_a_record_there_is_no_graph():
    from dataclasses import replace

    assert graph.of_paper([replace(row("1"), executed=None), replace(row("2"), executed=None)], str, str) == ""
    assert graph.of_paper([], str, str) == ""
