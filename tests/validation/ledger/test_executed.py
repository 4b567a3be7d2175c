"""Who executes an entry: the record, its words, and the measurement that makes it."""

import importlib

import pytest

from validation.ledger import executed, measure, registry
from validation.ledger.audit import assemble, build, default_sources, execution
from validation.ledger.collection import Collection
from validation.ledger.executed import Executed, Record
from validation.ledger.registry import PACKAGES, Function, Registry


def function(address, package="reference", equations=(("toy", "1"),), printed=False):
    return Function(package, address, equations, printed, "", 0)


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (Executed(), "tests alone"),
        (Executed(default=("reference ep",), within=("reference ep",)), "solve (ep; default) | verify"),
        (Executed(default=("reference ep",), option=("reference ep", "reference sep")),
         "solve (ep; default) | solve (sep; with options)"),
        (Executed(quick=("print/x/y",)), "verify"),
        (Executed(full=("print/x/y",)), "verify --full"),
        (Executed(option=("gibbs gibbs-logit",), within=("gibbs gibbs-logit",)),
         "solve (gibbs gibbs-logit; with options) | verify"),
    ],
)  # fmt: skip
def test_words_say_who_executes(by, words):
    assert by.words == words


def test_an_entry_is_executed_by_whoever_executes_its_functions_in_reference():
    record = Record({"r.f": Executed(quick=("a",)), "r.g": Executed(default=("reference ep",)),
                     "fast.f": Executed(within=("fast ep",))})  # fmt: skip
    both = [function("r.f"), function("r.g"), function("fast.f", "fast")]
    assert record.of(both) == Executed(default=("reference ep",), quick=("a",))
    assert record.of([function("fast.f", "fast")]) == Executed(within=("fast ep",))
    assert record.of([function("r.h"), function("fast.f", "fast")]).words == "tests alone"


def test_a_record_is_read_as_it_was_written(tmp_path):
    record = Record(
        {"r.f": Executed(quick=("a", "b"))},
        {"toy": "0f"},
        {"toy": ("r", "checks")},
        {"r.f": (("toy", "1"),), "r.g": (("toy", "2"),)},
    )
    file = tmp_path / "executed.json"
    file.write_text(executed.text(record), encoding="utf-8")
    assert executed.load(file) == record
    file.write_text(executed.text(record).replace('"schema": 2', '"schema": 1'), encoding="utf-8")
    assert executed.load(file) == Record()
    assert executed.load(tmp_path / "none.json") == Record()


def test_a_record_that_lacks_a_function_or_has_one_that_is_gone_is_out_of_date():
    record = Record(known={"r.f": (("toy", "1"),), "r.g": (("toy", "2"),), "r.h": (("other", "1"),)})
    now = [function("r.f"), function("r.new"), function("r.wrong", printed=True)]
    assert record.out_of_date(now, {("toy", "1"), ("toy", "2")}) == ("r.new: not measured", "r.g: measured, and gone")
    moved = [function("r.f", equations=(("toy", "2"),)), function("r.g", equations=(("toy", "2"),))]
    assert record.out_of_date(moved, {("toy", "1"), ("toy", "2")}) == ("r.f: not measured",)


def test_the_code_is_what_it_computes(tmp_path, monkeypatch):
    folder = tmp_path / "measured_code"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    (folder / "__init__.py").write_text('"""One."""\nx = 1  # why\n', encoding="utf-8")
    importlib.invalidate_caches()
    package = ["measured_code", "no_such_package.module"]
    before = executed.fingerprint(package)
    assert executed.fingerprint(package[:1]) != before
    (folder / "__init__.py").write_text('"""Two."""\n\nx = 1\n', encoding="utf-8")
    assert executed.fingerprint(package) == before
    (folder / "__init__.py").write_text('"""Two."""\n\nx = 2\n', encoding="utf-8")
    assert executed.fingerprint(package) != before


def test_a_record_is_stale_by_what_was_read_for_a_paper_and_by_nothing_else(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / "read_code" / name).mkdir(parents=True)
        (tmp_path / "read_code" / name / "loop.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "read_code" / "__init__.py").touch()
    (tmp_path / "read_code" / "checks.py").write_text("y = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    read = {"one": ("read_code.checks", "read_code.one"), "two": ("read_code.two",)}
    record = Record(code={paper: executed.fingerprint(names) for paper, names in read.items()}, read=read)
    assert record.stale() == ()
    (tmp_path / "read_code" / "unread.py").write_text("z = 1\n", encoding="utf-8")
    assert record.stale() == ()
    (tmp_path / "read_code" / "two" / "loop.py").write_text("x = 2\n", encoding="utf-8")
    assert (record.stale(), record.stale("one"), record.stale("two")) == (("two",), (), ("two",))
    (tmp_path / "read_code" / "checks.py").unlink()
    assert record.stale() == ("one", "two")


def test_one_paper_is_not_told_of_functions_that_it_does_not_ask_for():
    # of toy:1 alone r.f is read; fast.f stands beside it there, and alone for other:1, which is not asked for
    record = Record(known={"r.f": (("toy", "1"),)})
    rows = [function("r.f"), function("fast.f", "fast", equations=(("toy", "1"), ("other", "1")))]
    assert record.out_of_date(rows, {("toy", "1")}) == ()
    assert record.out_of_date(rows, {("toy", "1"), ("other", "1")}) == ("fast.f: not measured",)


def test_a_watch_sees_calls_on_the_account_of_who_makes_them():
    from reference.wenzel2019 import augmentation
    from validation import problems

    watch = measure.Watch(PACKAGES)
    solve = importlib.import_module("validation.door.solve")
    with watch.installed():
        augmentation.logit_pg_mixture([0.5])  # on nobody's account
        assert watch.seen == set()
        with watch.at(("quick", "print/x/y")):
            augmentation.logit_pg_mixture([0.5])
            solve.solve("reference", "x-gpc", problems.get("two-points"), max_iterations=2)
        solve.solve("reference", "x-gpc", problems.get("two-points"))
    own = "reference.wenzel2019.augmentation.logit_pg_mixture"
    assert {observed for observed in watch.seen if observed.address == own} == {(own, "quick", "print/x/y")}
    local = "reference.wenzel2019.updates.update_local"
    assert {observed[1:] for observed in watch.seen if observed.address == local} == {
        ("option", "reference x-gpc"), ("within", "reference x-gpc"), ("default", "reference x-gpc"),
    }  # fmt: skip
    marker = importlib.import_module("reference.common.ledger")
    assert marker.hook is None


def test_every_method_has_problems_and_other_values_of_its_options():
    from validation.door.catalogue import METHODS

    for entry in METHODS:
        result = list(measure.scenarios(entry.method))
        assert any(not asked for _, asked in result)
        assert any("learn" in asked for _, asked in result) or "learn" not in measure.options.options_of(
            "reference", entry.method
        )
        assert all(problem.likelihood in entry.likelihoods for problem, _ in result)


def test_what_another_paper_measured_stays_when_one_is_measured_anew():
    functions = Registry((function("r.f"), function("r.g")), ())
    earlier = Record(
        {"r.f": Executed(default=("reference ep", "reference pep"), quick=("mine", "theirs")), "r.old": Executed()},
        {"toy": "before", "other": "before"},
        {"toy": ("old",), "other": ("theirs",)},
    )
    kept = measure._Kept(frozenset({"theirs"}), frozenset({"ep"}))
    result = measure._record(functions, [measure.Seen("r.g", "quick", "mine")], earlier, "toy", kept)
    assert result.functions == {"r.f": Executed(default=("reference pep",), quick=("theirs",)),
                               "r.g": Executed(quick=("mine",))}  # fmt: skip
    assert result.code["other"] == "before"
    assert result.read["other"] == ("theirs",)
    assert result.read["toy"] == ("r", "reference.common", "reference.toy", "validation.implementations.reference")
    assert result.code["toy"] == executed.fingerprint(result.read["toy"])
    assert set(result.known) == {"r.f", "r.g"}


def test_the_record_of_this_repository_fits_its_functions():
    sources = default_sources()
    known = registry.collect(sources.packages)
    addresses = {mark for item in known.functions for mark in item.equations}
    assert executed.load().out_of_date(known.functions, addresses) == (), "triad audit --executed measures anew"


def test_entries_are_counted_by_who_executes_them():
    rows = build(default_sources(), "wenzel2019").select("wenzel2019")
    table = execution(rows)
    assert table["all"]["entries"] == sum(row.entry.kind != "slip" for row in rows)
    assert 0 < table["algorithm"]["entries"] < table["all"]["entries"]
    assert table["algorithm"]["default"] <= table["algorithm"]["option"] <= table["algorithm"]["entries"]


def test_a_complete_paper_needs_every_entry_executed_and_measured(build):
    sources = build(
        {"m": '@equation("toy", "1")\ndef f(): ...\n\n@equation("toy", "2")\ndef g(): ...'}, {}, "1 2", True
    )
    functions = registry.collect(sources.packages)
    names = [item.address for item in functions.functions]

    def failures(record):
        from dataclasses import replace

        result = assemble(replace(sources, record=record), functions, Collection((), ()))
        return [text for text in result.failures(result.rows) if "open" not in text]

    known = {item.address: item.equations for item in functions.functions}
    assert failures(Record()) == []
    assert failures(Record({name: Executed(quick=("a",)) for name in names}, known=known)) == []
    assert "toy:2: found no check or solve" in failures(Record({names[0]: Executed(quick=("a",))}, known=known))[0]
    assert "not measured" in failures(Record(known={names[0]: known[names[0]]}))[0]
