"""Slips of papers that contradict their own tables: the numbers of the ledger are counted in the printed cells."""

from validation.claims.inventory import load
from validation.ledger.inventory import load as load_ledger
from validation.ledger.numbers import assert_recorded


def printed(paper, table, row, column):
    """The number of a printed cell."""
    return load()[paper].claim(f"{table}-{row}-{column}").printed


def test_times_of_villacampa2017():
    paper = "villacampa2017"
    times = {
        name: [printed(paper, f"table2-m{m}", "avg-time", name) for m in (5, 10, 20)] for name in ("gfitc", "sep", "vi")
    }
    ratios = [slow / sep for name in ("gfitc", "vi") for slow, sep in zip(times[name], times["sep"], strict=True)]
    assert_recorded(paper, "slip-21", *ratios)


def test_displays_of_villacampa2017_stand_where_its_ledger_has_them():
    known = load_ledger()
    first, second = known.entry("villacampa2017", "8"), known.entry("villacampa2017", "18")
    assert (first.section, second.section) == ("2.2", "B")
    assert first.latex == second.latex
    sections = [entry.section for entry in known.papers["villacampa2017"].entries if entry.id.isdigit()]
    assert_recorded("villacampa2017", "slip-14", sections.index("B"), 18)


def test_sets_of_wenzel2019():
    paper = "wenzel2019"
    methods = ("x-gpc", "svgpc", "epgpc")
    rows = [claim.id.removeprefix("table1-nll-").removesuffix("-x-gpc") for claim in load()[paper]
            if claim.id.startswith("table1-nll-") and claim.id.endswith("-x-gpc")]  # fmt: skip
    assert_recorded(paper, "slip-4", len(rows), 12)
    nll = {row: [printed(paper, "table1-nll", row, method) for method in methods] for row in rows}
    best = [row for row in rows if nll[row][0] < min(nll[row][1:])]
    assert nll["diabetes"][0] == nll["diabetes"][1]
    assert_recorded(paper, "slip-6", len(best), nll["diabetes"][0], nll["diabetes"][1], 10)


def test_times_of_wenzel2019():
    paper = "wenzel2019"

    def ratio(row, slow, quick):
        return printed(paper, "table1-time", row, slow) / printed(paper, "table1-time", row, quick)

    assert_recorded(paper, "slip-5", *(ratio(row, "x-gpc", "epgpc") for row in ("wxa", "german", "diabetes")))
    errors = [
        printed(paper, "table1-error", row, method) for row in ("higgs", "ijcnn") for method in ("x-gpc", "epgpc")
    ]
    assert_recorded(paper, "slip-7", *errors, ratio("higgs", "epgpc", "x-gpc"), ratio("ijcnn", "epgpc", "x-gpc"))
    higgs, mnist = ([printed(paper, "table1-error", row, name) for name in ("x-gpc", "svgpc", "epgpc")]
                    for row in ("higgs", "mnist"))  # fmt: skip
    assert_recorded(paper, "slip-13", *higgs, *mnist)
