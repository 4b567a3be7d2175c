"""Reading marks from the text of files says what importing and collecting say."""

import re

from validation.ledger import registry, static
from validation.ledger.audit import build as build_ledger
from validation.ledger.audit import default_sources, look_up


def test_the_text_of_this_repository_says_what_its_import_and_its_collection_say():
    sources = default_sources()
    imported = registry.collect(sources.packages)
    read = static.functions(sources.packages)
    assert read.problems == ()
    assert read.functions == imported.functions
    for one, other in zip(read.functions, imported.functions, strict=True):
        assert (one.summary, one.docstring) == (other.summary, other.docstring)
    # whoever builds the ledger of this repository first keeps what pytest collects, for a quarter of a minute, for all
    collected = {test.key: test for row in build_ledger(sources).rows for test in row.tests}
    texts = static.marked_tests(sources.root)
    assert texts.problems == ()
    assert {test.key for test in texts.tests} == set(collected)
    for test in texts.tests:
        other = collected[test.key]
        assert (test.file, test.line, test.name, test.slow, test.package) == (
            other.file, other.line, other.name, other.slow, other.package,
        )  # fmt: skip
        assert set(test.claims) == set(other.claims)


def test_a_look_up_of_a_paper_gives_the_states_of_the_whole_ledger():
    sources = default_sources()
    rows = look_up(sources, "wenzel2019").select("wenzel2019")
    assert {row.state for row in rows} <= {"verified", "corrected", "slip"}
    assert next(row for row in rows if row.entry.id == "11").functions[0].signature.startswith("update_local(")


def test_marks_of_modules_classes_and_cases_are_read(build):
    sources = build(
        {
            "m": '@equation("toy", "1", as_printed=True)\ndef f(): ...\n\n'
            'class A:\n    @equation("toy", "2")\n    def g(self): ...'
        },
        {
            "toy/test_a": """
            PAPER = "toy"
            pytestmark = [pytest.mark.verifies("toy", "1", route="of the module")]

            class TestIt:
                @pytest.mark.slow
                @pytest.mark.verifies(PAPER, "2", route="own", resolves=0.5)
                @pytest.mark.parametrize(
                    "x", [1, pytest.param(2, marks=pytest.mark.verifies(PAPER, "3", route="case"))]
                )
                def test_one(self, x): ...

            @pytest.mark.verifies(PAPER, "4", route=ROUTE)
            def test_two(): ...
            """
        },
    )  # fmt: skip
    functions = static.functions(sources.packages).functions
    assert [(item.address.partition(".")[2], item.as_printed) for item in functions] == [
        ("m.A.g", False),
        ("m.f", True),
    ]
    result = static.marked_tests(sources.root)
    one = next(test for test in result.tests if test.name == "test_one")
    assert one.slow
    assert {claim.id: claim.route for claim in one.claims} == {"1": "of the module", "2": "own", "3": "case"}
    assert "test_two: marker verifies" in result.problems[0]


def test_files_that_cannot_be_parsed_are_problems(build):
    sources = build({"m": '@equation("toy", "1")\ndef f(:'}, {"toy/test_a": "pytest.mark.verifies("})
    assert "m: failed to parse" in static.functions(sources.packages).problems[0]
    assert "test_a.py: failed to parse" in static.marked_tests(sources.root).problems[0]


NUMBER = re.compile(r"\(((?:A\.)?)(\d+)\)(?:(?: to |-)\(((?:A\.)?)(\d+)\))?")


def named(docstring):
    """Numbers of equations that a docstring names, ranges included."""
    result = set()
    for letter, first, _, last in NUMBER.findall(docstring):
        result |= {f"{letter}{number}" for number in range(int(first), int(last or first) + 1)}
    return result


def test_a_function_of_more_than_three_entries_says_which_they_are():
    for function in static.functions(default_sources().packages).functions:
        if len(function.equations) > 3:
            numbers = {id for _, id in function.equations if id[-1].isdigit() and not id.startswith("u")}
            assert numbers <= named(function.docstring), function.address
