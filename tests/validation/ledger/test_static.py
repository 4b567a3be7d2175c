"""Reading marks from the text of files says what importing and collecting say."""

import inspect
import json
import os
import re
import subprocess
import sys

from validation.ledger import registry, static
from validation.ledger.audit import build as build_ledger
from validation.ledger.audit import default_sources
from validation.ledger.collection import read_claims


def test_the_text_of_this_repository_says_what_its_import_says():
    sources = default_sources()
    imported = registry.collect(sources.packages)
    assert imported.problems == ()
    for root in (None, sources.root):  # the packages that an import finds, and those that lie there
        read = static.functions(sources.packages, root=root)
        assert read.problems == ()
        assert read.functions == imported.functions
        for one, other in zip(read.functions, imported.functions, strict=True):
            assert one.docstring == (inspect.getdoc(other.object) or "")


LISTS = """
import json, os

def pytest_collection_finish(session):
    rows = [
        [
            item.nodeid.partition("[")[0],
            (item.location[1] or 0) + 1,
            item.get_closest_marker("slow") is not None,
            [[mark.args, mark.kwargs] for mark in item.iter_markers("verifies")],
        ]
        for item in session.items
    ]
    with open(os.environ["LISTED"], "w") as stream:
        json.dump(rows, stream)
"""


def test_the_text_of_the_tests_says_what_pytest_collects(tmp_path):
    root = default_sources().root
    (tmp_path / "lists.py").write_text(LISTS)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    paths = os.pathsep.join([str(tmp_path), kept.get("PYTHONPATH", "")])
    listed = tmp_path / "listed.json"
    command = [sys.executable, "-m", "pytest", "-p", "lists", "-p", "no:cacheprovider", "--collect-only", "-q", "tests"]
    subprocess.run(
        command, cwd=root, check=True, capture_output=True, env=kept | {"PYTHONPATH": paths, "LISTED": str(listed)}
    )
    collected = {}
    for key, line, slow, marks in json.loads(listed.read_text()):
        claims = {claim for args, kwargs in marks for claim in read_claims(args, kwargs)}
        if claims:
            earlier = collected.get(key, (line, True, set()))
            collected[key] = (line, slow and earlier[1], claims | earlier[2])
    texts = static.marked_tests(root)
    assert texts.problems == ()
    assert {test.key: (test.line, test.slow, set(test.claims)) for test in texts.tests} == collected


def test_the_ledger_of_a_paper_has_states_and_signatures():
    rows = build_ledger(default_sources(), "wenzel2019").select("wenzel2019")
    assert {row.state for row in rows} <= {"verified", "corrected", "slip"}
    assert next(row for row in rows if row.entry.id == "11").functions[0].signature.startswith("update_local(")


def test_a_marker_without_literal_arguments_is_a_problem(build):
    sources = build({"m": '@equation("toy", *numbers())\ndef f(): ...', "n": '@equation("toy", "1")\ndef g(): ...'}, {})
    read = static.functions(sources.packages)
    assert [item.address.rpartition(".")[2] for item in read.functions] == ["g"]
    assert "m: marker equation: " in read.problems[0]


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
