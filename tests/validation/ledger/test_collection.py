"""Which tests the ledger finds, and what it says of markers that are not of the agreed form."""

import threading
import time

import pytest

from validation.ledger import collection
from validation.ledger.collection import Claim, NoTestsError, StoppedError, read_claims


def test_a_marker_gives_one_claim_per_id():
    assert read_claims(("toy", "1", "2"), {"route": " by hand ", "resolves": 0.05, "printed": True}) == [
        Claim("toy", "1", "by hand", 0.05, True),
        Claim("toy", "2", "by hand", 0.05, True),
    ]


@pytest.mark.parametrize(
    ("args", "kwargs", "match"),
    [
        (("toy", "1"), {}, "route: found None"),
        (("toy", "1"), {"route": "  "}, "route: found '  '"),
        (("toy", "1"), {"route": "r", "resolve": 0.1}, "resolve: found an unknown keyword"),
        (("toy", "1"), {"route": "r", "resolves": 2.0}, "resolves: found 2.0"),
        (("toy", "1"), {"route": "r", "resolves": True}, "resolves: found True"),
        (("toy", "1"), {"route": "r", "printed": 1}, "printed: found 1"),
        (("toy",), {"route": "r"}, "ids: found none"),
        ((), {"route": "r"}, "paper, .ids: found"),
        (("toy", 11), {"route": "r"}, "paper, .ids: found .'toy', 11., expected texts"),
    ],
)
def test_a_marker_of_another_form_is_an_error_that_names_the_argument(args, kwargs, match):
    with pytest.raises(ValueError, match=match):
        read_claims(args, kwargs)


def test_cases_are_grouped_under_their_function_and_faults_are_named(build):
    sources = build(
        {},
        {
            "toy/test_a": """
                pytestmark = pytest.mark.verifies("toy", "1", route="of the module")

                @pytest.mark.verifies("toy", "2", route="own", resolves=0.05)
                @pytest.mark.parametrize("x", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
                def test_cases(x): ...

                class TestGroup:
                    @pytest.mark.slow
                    def test_inner(self): ...
            """,
            "toy/sub/test_a": """
                def test_unmarked(): ...

                @pytest.mark.verifies("toy", "1")
                def test_without_route(): ...
            """,
            "test_top": '@pytest.mark.verifies("toy", "1", route="r")\ndef test_beside_the_packages(): ...',
            "toy/test_broken": "import a_module_that_is_not_there",
        },
    )
    name = sources.packages[0].name
    result = collection.collect(sources.root, sources.packages)
    assert [test.key for test in result.tests] == [
        "tests/test_top.py::test_beside_the_packages",
        f"tests/{name}/test_a.py::TestGroup::test_inner",
        f"tests/{name}/test_a.py::test_cases",
    ]
    top, inner, cases = result.tests
    assert (top.package, inner.package) == ("", name)
    assert (inner.slow, cases.slow) == (True, False)
    assert (cases.cases, cases.name, cases.file, cases.line) == (3, "test_cases", f"tests/{name}/test_a.py", 6)
    assert cases.claims == (Claim("toy", "2", "own", 0.05), Claim("toy", "1", "of the module"))
    assert len(result.problems) == 2
    assert "test_broken.py: failed to collect: ModuleNotFoundError" in result.problems[0]
    assert "test_without_route: marker verifies: route: found None" in result.problems[1]


def test_a_suite_that_pytest_refuses_is_a_problem_with_its_words(build):
    sources = build({}, {"toy/conftest": "raise RuntimeError('no fixtures today')"})
    result = collection.collect(sources.root, sources.packages)
    assert result.tests == ()
    assert any("no fixtures today" in problem for problem in result.problems)


def test_a_folder_without_tests_is_an_error(tmp_path):
    with pytest.raises(NoTestsError, match="expected a folder tests/"):
        collection.collect(tmp_path)


def test_a_missing_pytest_is_an_error_that_says_how_to_install_it(build, monkeypatch):
    sources = build({}, {"toy/test_a": ""})
    monkeypatch.setattr(collection.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoTestsError, match=r"pytest: found none, .*gpc-triad\[test\]"):
        collection.collect(sources.root, sources.packages)


def test_only_a_clone_of_this_project_is_taken_for_its_repository(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "another"\n', encoding="utf-8")
    with pytest.raises(NoTestsError, match="expected a clone of the repository"):
        collection.find_root(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "gpc-triad"\n', encoding="utf-8")
    assert collection.find_root(tmp_path) == tmp_path


def test_options_meant_for_another_pytest_do_not_reach_the_collection(build, monkeypatch):
    sources = build({}, {"toy/test_a": '@pytest.mark.verifies("toy", "1", route="r")\ndef test_one(): ...'})
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing_matches")
    assert len(collection.collect(sources.root, sources.packages).tests) == 1


def test_collecting_leaves_no_file_behind(build):
    sources = build({}, {"toy/test_a": '@pytest.mark.verifies("toy", "1", route="r")\ndef test_one(): ...'})
    collection.collect(sources.root, sources.packages)
    left = {path.name for path in sources.root.rglob(".*")} | {path.name for path in sources.root.glob("*")}
    assert left == {"pyproject.toml", "tests", sources.packages[0].name}


def test_one_paper_is_read_from_the_files_that_name_it(build):
    marked = """
        @pytest.mark.verifies({!r}, "1", route="by hand")
        def test_it():
            pass
        """
    sources = build({}, {"toy/test_a": marked.format("made2000"), "toy/test_b": "raise RuntimeError('was read')\n"})
    result = collection.collect(sources.root, sources.packages, paper="made2000")
    assert [test.name for test in result.tests] == ["test_it"]
    assert result.problems == ()
    assert len(collection.collect(sources.root, sources.packages).problems) == 1
    assert collection.collect(sources.root, sources.packages, paper="nobody1999") == collection.Collection((), ())


def test_a_collection_that_is_called_off_ends_its_process_at_once(build):
    sources = build({}, {"toy/test_a": "import time\n\ntime.sleep(60)\n"})
    stop = threading.Event()
    timer = threading.Timer(1.0, stop.set)
    timer.start()
    started = time.monotonic()
    with pytest.raises(StoppedError, match="found the reading of them called off"):
        collection.collect(sources.root, sources.packages, stop)
    # half of what the file would take; the process is waited for, so none is left
    assert time.monotonic() - started < 30.0
