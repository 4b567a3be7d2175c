"""Who executes an entry: the record, its words, and the run that it is made of."""

import importlib
import json
from dataclasses import replace

import pytest

from validation import problems
from validation.checks import runner
from validation.checks.core import Check, Compared, Context
from validation.checks.selection import Pair
from validation.command import calls
from validation.jobs.job import Job
from validation.jobs.run import Processes
from validation.jobs.run import run as run_jobs
from validation.ledger import executed, registry
from validation.ledger.audit import assemble, build, default_sources, execution
from validation.ledger.collection import Collection
from validation.ledger.executed import Call, Executed
from validation.ledger.registry import Function


def function(address, package="reference", equations=(("toy", "1"),), printed=False):
    return Function(package, address, equations, printed, "", 0)


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (Executed(), "tests alone"),
        (Executed(solve=("reference ep", "reference sep"), checks=("print/x/y",)), "solve (ep, sep)"),
        (Executed(checks=("print/x/y",)), "verify"),
        (Executed(solve=("gibbs gibbs-logit",)), "solve (gibbs gibbs-logit)"),
    ],
)
def test_words_say_who_executes(by, words):
    assert by.words == words


def test_an_entry_is_executed_by_whoever_executes_its_functions_in_reference():
    functions = [function("r.f"), function("r.g"), function("r.wrong", printed=True), function("fast.f", "fast"),
                 function("fast.g", "fast", (("toy", "2"),))]  # fmt: skip
    calls = [Call("r.f", "", "print/x/y", False), Call("r.g", "", "reference ep", True),
             Call("r.wrong", "", "reference sep", True), Call("fast.f", "", "fast ep", True),
             Call("fast.g", "", "fast ep", True)]  # fmt: skip
    result = executed.record(functions, calls)
    assert result["toy", "1"] == Executed(solve=("reference ep",), loop=("reference ep",), checks=("print/x/y",))
    assert result["toy", "2"].solve == ("fast ep",)


def test_a_call_from_within_another_entry_is_kept_with_the_solves_that_make_it():
    functions = [function("r.outer", equations=(("toy", "1"), ("toy", "2"))),
                 function("r.inner", equations=(("toy", "2"), ("toy", "3"), ("other", "9")))]  # fmt: skip
    calls = [Call("r.outer", "", "reference ep", True), Call("r.inner", "r.outer", "reference ep", True),
             Call("r.inner", "r.outer", "print/x/y", False),
             Call("r.inner", "r.unmarked", "reference sep", True)]  # fmt: skip
    result = executed.record(functions, calls)
    assert result["toy", "1"].calls == {"2": ("reference ep",), "3": ("reference ep",)}
    assert result["toy", "2"].calls == {"3": ("reference ep",)}  # and not itself
    assert (result["toy", "3"].loop, result["toy", "3"].checks) == ((), ("print/x/y",))
    assert result["other", "9"].calls == {}


def test_the_record_is_the_same_text_for_the_same_calls_and_read_as_it_was_written(tmp_path):
    functions = [function("r.f"), function("r.g", equations=(("toy", "2"),)), function("r.h", equations=(("a", "1"),))]
    calls = [Call("r.f", "", "reference sep", True), Call("r.g", "r.f", "reference ep", True),
             Call("r.f", "", "reference ep", True)]  # fmt: skip
    text = executed.text(executed.record(functions, calls))
    assert executed.text(executed.record(functions[::-1], [*calls[::-1], *calls])) == text
    assert list(json.loads(text)["entries"]) == ["a:1", "toy:1", "toy:2"]
    file = tmp_path / "executed.json"
    file.write_text(text, encoding="utf-8")
    assert executed.load(file) == executed.record(functions, calls)
    assert executed.entries_of(executed.load(file), "print/x/y") == ()
    file.write_text(text.replace('"schema": 3', '"schema": 2'), encoding="utf-8")
    assert executed.load(file) == {}
    assert executed.load(tmp_path / "none.json") == {}


LOCAL = "reference.wenzel2019.updates.update_local"
MIXTURE = "reference.wenzel2019.augmentation.logit_pg_mixture"


def asking(context, problem):
    """A check that evaluates an equation by itself and asks for a solve."""
    from reference.wenzel2019 import augmentation

    augmentation.logit_pg_mixture([0.5])
    context.solve("reference", "x-gpc", problem, max_iterations=2)
    return Compared(0.0, 0.0, "nothing is compared", "reference", "nobody")


def test_a_watch_sees_calls_on_the_account_of_the_solve_or_else_of_the_check_that_makes_them():
    from reference.wenzel2019 import augmentation

    check = Check("print/x-gpc/toy", "wenzel2019", "It is asked.", ("two-points",), (), asking)
    watch = calls.Watch()
    with watch.installed():
        augmentation.logit_pg_mixture([0.5])  # on nobody's account
        assert watch.calls() == set()
        runner.ask(check, Context(), problems.get("two-points"), Pair(check.id, "two-points", False))
    own = {call for call in watch.calls() if call.function == MIXTURE}
    assert own == {Call(MIXTURE, "", "print/x-gpc/toy", False)}
    local = {call for call in watch.calls() if call.function == LOCAL}
    assert {(call.door, call.solved) for call in local} == {("reference x-gpc", True)}
    assert importlib.import_module("reference.common.ledger").hook is None


def test_callers_are_marked_functions_also_where_another_decorator_stands_between():
    solve = importlib.import_module("validation.door.solve").solve
    watch = calls.Watch()
    with watch.installed():
        solve("reference", "vi-jj", problems.get("three-points-fitc"), max_iterations=2)
        solve("reference", "x-gpc", problems.get("two-points"), learn=("variance",), max_iterations=2)
    seen = watch.calls()
    known = {item.address for item in registry.collect().functions}
    assert {call.caller for call in seen} - {""} <= known
    outer, inner = (f"reference.izmailov2016.algorithm1.{name}" for name in ("vi_jj", "vi_jj_stage_one"))
    assert Call(inner, outer, "reference vi-jj", True) in seen


def working(unit, listen):
    """A job: a solve."""
    solve = importlib.import_module("validation.door.solve").solve
    return solve("reference", unit, problems.get("two-points"), max_iterations=2).iterations


def test_jobs_give_the_same_values_and_what_they_execute_is_kept_beside_them():
    recording = calls.Recording(Processes(1))
    done = list(run_jobs(working, [Job("a", "x-gpc"), Job("b", "x-gpc")], recording))
    assert [(each.job, each.value) for each in done] == [(Job("a", "x-gpc"), 2), (Job("b", "x-gpc"), 2)]
    entries = json.loads(recording.text())["entries"]
    assert entries["wenzel2019:11"] == {"solve": ["reference x-gpc"], "loop": ["reference x-gpc"]}
    assert entries["villacampa2017:28"] == {}


def test_every_entry_of_this_repository_is_in_its_record():
    functions = registry.collect(default_sources().packages).functions
    entries = {mark for marks in executed.shown(functions).values() for mark in marks}
    assert set(executed.load()) == entries, "make executed measures anew"


def test_entries_are_counted_by_who_executes_them():
    rows = build(default_sources(), "wenzel2019").select("wenzel2019")
    table = execution(rows)
    assert table["all"]["entries"] == sum(row.entry.kind != "slip" for row in rows)
    assert 0 < table["algorithm"]["entries"] < table["all"]["entries"]
    for row in table.values():
        assert row["entries"] == row["solve"] + row["verify"] + row["tests"]
        assert row["solve"] > 0


def test_a_complete_paper_needs_every_entry_executed_and_measured(build):
    sources = build(
        {"m": '@equation("toy", "1")\ndef f(): ...\n\n@equation("toy", "2")\ndef g(): ...'}, {}, "1 2", True
    )
    functions = registry.collect(sources.packages)

    def failures(record):
        result = assemble(replace(sources, record=record), functions, Collection((), ()))
        return [text for text in result.failures(result.rows) if "open" not in text]

    one, both = {("toy", "1"): Executed(checks=("a",))}, {("toy", id): Executed(solve=("a b",)) for id in "12"}
    assert failures({}) == []
    assert failures(both) == []
    for record in (one, {**one, ("toy", "2"): Executed()}):
        assert len(failures(record)) == 1
        assert "toy:2: found no check or solve" in failures(record)[0]
        assert "make executed" in failures(record)[0]
