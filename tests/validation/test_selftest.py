"""The engine of seeded bugs, with a witness, bugs and checks that are made up."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from validation import problems, selftest
from validation.checks import core
from validation.checks.core import Compared, check
from validation.checks.runner import SelectionError
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.selftest import SeededBug, SeededBugError, seeded

SOURCE = "made_up_bugs:all_bugs"


def make_problem(name: str) -> Problem:
    X = np.linspace(-1.0, 1.0, 4)[:, None]
    return Problem(name=name, X=X, y=np.array([0, 1, 0, 1]), n_classes=2, likelihood="logit", variance=1.0,
                   lengthscales=1.0, X_test=X)  # fmt: skip


class Sampler:
    """Something with methods of every sort."""

    def draw(self) -> float:
        return 1.0

    @staticmethod
    def scale() -> float:
        return 1.0

    @classmethod
    def name(cls) -> str:
        return cls.__name__

    @property
    def size(self) -> int:
        return 1


class Special(Sampler):
    pass


@pytest.fixture
def witness(monkeypatch) -> Any:
    """A module `made_up_witness` with functions, and the rest of the frame around it."""
    module: Any = ModuleType("made_up_witness")
    module.theta = lambda c: 0.25 * c
    module.kl = lambda: 2.0
    module.unused = lambda: 0.0
    module.table = functools.lru_cache(maxsize=None)(lambda n: module.kl() * n)
    module.Sampler, module.Special = Sampler, Special
    module.LOG_2 = 0.693
    monkeypatch.setitem(sys.modules, "made_up_witness", module)
    monkeypatch.setattr(core, "_registry", {})
    monkeypatch.setattr(core, "modules", lambda: ())
    monkeypatch.setattr(problems, "get", make_problem)
    monkeypatch.setattr(problems, "names", lambda: ("easy", "hard"))
    monkeypatch.setattr(problems, "cost", lambda name: 1.0)
    return module


@pytest.fixture
def bugs(monkeypatch) -> list[SeededBug]:
    """The list that the self-test reads; append to it."""
    results: list[SeededBug] = []
    module: Any = ModuleType("made_up_bugs")
    module.all_bugs = lambda: tuple(results)
    monkeypatch.setitem(sys.modules, "made_up_bugs", module)
    return results


def bug(*targets: str, name: str = "wrong", make: Any = None, **changes: Any) -> SeededBug:
    values: dict[str, Any] = {"witness": "made_up_witness", "method": "x-gpc", "description": "a number is wrong"}
    return SeededBug(
        name=name,
        targets=tuple(f"made_up_witness:{target}" for target in targets),
        make=make or (lambda original: lambda *args: original(*args) + 1.0),
        **(values | changes),
    )


def register(id: str, function: Any, problems: tuple[str, ...] = ("easy",)) -> None:
    def asked(context: Any, problem: Any) -> Any:
        result = function()
        return result if isinstance(result, core.Skipped) else Compared(result, 0.5, "because", "left", "right")

    check(id, paper="wenzel2019", question="It is so.", problems=problems)(asked)


def trials(**options: Any) -> dict[str, selftest.Trial]:
    result = selftest.run(source=SOURCE, jobs=1, **options)
    return {trial.bug.name: trial for trial in result.trials}


# -- seeding -------------------------------------------------------------------------------------------------


def test_a_bug_is_there_inside_and_gone_outside(witness):
    original = witness.theta
    with seeded(bug("theta")) as calls:
        assert witness.theta(1.0) == 1.25
        assert calls.count == 1
    assert witness.theta is original


def test_a_bug_is_gone_after_an_exception(witness):
    originals = witness.theta, witness.kl
    with pytest.raises(KeyboardInterrupt), seeded(bug("theta", "kl")):
        raise KeyboardInterrupt
    assert (witness.theta, witness.kl) == originals


def test_earlier_targets_are_restored_when_a_later_one_is_not_there(witness):
    original = witness.theta
    match = r"found no 'klo' in made_up_witness, expected it \(did you mean 'kl'"
    with pytest.raises(SeededBugError, match=match), seeded(bug("theta", "klo")):
        pass
    assert witness.theta is original


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("Sampler", "to be a type, expected a function"),
        ("Sampler.size", "to be a property, expected a function"),
        ("LOG_2", "to be a float, expected a function"),
        ("Sampler.absent", "found no 'absent'"),
        ("Absent.draw", "found no 'Absent' on the way"),
    ],
)
def test_a_target_that_is_no_function_is_an_error(witness, target, match):
    with pytest.raises(SeededBugError, match=match), seeded(bug(target)):
        pass


def test_a_target_in_no_module_is_an_error():
    nowhere = SeededBug("x", "fast", "x-gpc", "", ("no_such_module:f",), lambda f: f)
    with pytest.raises(SeededBugError, match="found no module 'no_such_module'"), seeded(nowhere):
        pass
    halved = SeededBug("x", "fast", "x-gpc", "", ("fast.kernel.kernels",), lambda f: f)
    with pytest.raises(SeededBugError, match="expected module:attribute"), seeded(halved):
        pass


def test_methods_of_every_sort_are_replaced_and_restored(witness):
    before = dict(vars(Sampler)), dict(vars(Special))
    sampler = Special()
    with seeded(bug("Special.draw")):
        assert (sampler.draw(), Sampler().draw()) == (2.0, 1.0)
    with seeded(bug("Sampler.scale")):
        assert (sampler.scale(), Sampler.scale()) == (2.0, 2.0)
    with seeded(bug("Sampler.name", make=lambda original: lambda cls: original(cls) + "!")):
        assert (sampler.name(), Sampler.name()) == ("Special!", "Sampler!")
    assert (dict(vars(Sampler)), dict(vars(Special))) == before


def test_memories_of_the_witness_neither_hide_nor_outlive_a_bug(witness):
    assert witness.table(3) == 6.0
    with seeded(bug("kl")):
        assert witness.table(3) == 9.0
    assert witness.table(3) == 6.0


# -- trials --------------------------------------------------------------------------------------------------


def test_a_bug_that_turns_a_check_red_is_caught_by_it(witness, bugs):
    register("identity/x-gpc/theta", lambda: abs(witness.theta(1.0) - 0.25))
    register("identity/x-gpc/kl", lambda: abs(witness.kl() - 2.0))
    bugs.append(bug("theta"))
    trial = trials()["wrong"]
    assert trial.state == "caught"
    assert [(result.check, result.ratio) for result in trial.by] == [("identity/x-gpc/theta", 2.0)]


def test_a_bug_that_no_check_notices_is_missed(witness, bugs):
    register("identity/x-gpc/kl", lambda: 0.1 * witness.kl())
    bugs.append(bug("kl", name="small", make=lambda original: lambda: original() + 0.1))
    result = selftest.run(source=SOURCE, jobs=1)
    assert not result.all_caught
    assert result.trials[0].state == "missed"
    assert "all of 1 verdicts stayed green; closest identity/x-gpc/kl at 0.42" in result.trials[0].note


def test_a_check_that_is_red_without_the_bug_catches_nothing(witness, bugs):
    register("identity/x-gpc/theta", lambda: 1.0 + witness.theta(1.0))
    bugs.append(bug("theta"))
    trial = trials()["wrong"]
    assert trial.state == "not green without bug"
    assert "FAIL identity/x-gpc/theta on easy" in trial.note


def test_checks_that_are_all_skipped_are_not_green(witness, bugs):
    register("identity/x-gpc/theta", lambda: core.Skipped("nothing to compare"))
    bugs.append(bug("theta"))
    assert trials()["wrong"].state == "not green without bug"


def test_a_bug_that_never_ran_says_so(witness, bugs):
    register("identity/x-gpc/kl", lambda: abs(witness.kl() - 2.0))
    bugs.append(bug("unused"))
    trial = trials()["wrong"]
    assert trial.state == "never exercised"
    assert "made_up_witness:unused" in trial.note


def test_an_error_counts_only_for_a_bug_that_says_so(witness, bugs):
    def refuse(original):
        def replacement(*args):
            raise ArithmeticError("K_ZZ: found a negative eigenvalue")

        return replacement

    register("identity/x-gpc/kl", lambda: abs(witness.kl() - 2.0))
    bugs.append(bug("kl", name="silent", make=refuse))
    bugs.append(bug("kl", name="loud", make=refuse, raises=True))
    result = trials()
    assert result["silent"].state == "missed"
    assert "raised ArithmeticError: K_ZZ" in result["silent"].note
    assert result["loud"].state == "caught"


def test_a_bug_that_cannot_be_seeded_is_an_error_and_the_others_go_on(witness, bugs):
    register("identity/x-gpc/kl", lambda: abs(witness.kl() - 2.0))
    bugs.append(bug("absent", name="first"))
    bugs.append(bug("kl", name="second", make=lambda original: 1.0))
    bugs.append(bug("kl", name="third"))
    result = trials()
    assert [trial.state for trial in result.values()] == ["error", "error", "caught"]
    assert "found no 'absent'" in result["first"].note
    assert "make: found float" in result["second"].note


def test_a_bug_sees_only_its_own_problems_and_checks(witness, bugs):
    asked = []
    register("identity/x-gpc/kl", lambda: asked.append("kl") or abs(witness.kl() - 2.0), ("easy", "hard"))
    register("bound/x-gpc/kl", lambda: asked.append("bound") or abs(witness.kl() - 2.0), ("easy", "hard"))
    bugs.append(bug("kl", problems=("hard",), checks=("identity/*",)))
    trial = trials()["wrong"]
    assert [(result.check, result.problem) for result in trial.by] == [("identity/x-gpc/kl", "hard")]
    assert asked == ["kl", "kl"]  # once without the bug, once with it


def test_a_bug_may_be_caught_on_one_of_several_problems(witness, bugs):
    register("identity/x-gpc/theta", lambda: abs(witness.theta(1.0) - 0.25), ("hard",))
    register("identity/x-gpc/kl", lambda: abs(witness.kl() - 2.0), ("easy",))
    bugs.append(bug("theta"))
    assert trials()["wrong"].caught


def test_checks_run_once_without_bug_for_all_bugs(witness, bugs):
    asked = []
    register("identity/x-gpc/kl", lambda: asked.append(witness.kl()) or abs(witness.kl() - 2.0))
    bugs += [bug("kl", name=name) for name in ("a", "b", "c")]
    trials()
    assert asked == [2.0, 3.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("root", "expected"),
    [("gibbs", ["gibbs", "fast", "gibbs"]), ("validation", ["gibbs", "fast", "gibbs", "fast"])],
)
def test_answers_of_other_witnesses_are_kept_and_those_of_the_wrong_one_are_not(
    witness, bugs, monkeypatch, root, expected
):
    asked = []

    def solve(implementation, method, problem, **options):
        asked.append(implementation)
        if implementation == "gibbs":
            sys.modules[f"{root}.made_up"].kl()
        return Solution(problem=problem, implementation=implementation, method=method)

    monkeypatch.setattr(core, "solve", solve)
    monkeypatch.setitem(sys.modules, f"{root}.made_up", witness)

    def answer(context: Any, problem: Any) -> Any:
        for who in ("gibbs", "fast"):
            context.solve(who, "x-gpc", problem)
        return Compared(witness.kl() - 2.0, 0.5, "because", "left", "right")

    check("identity/x-gpc/kl", paper="p", question="So.", problems=("easy",))(answer)
    seed = bug("kl", witness=root)
    bugs.append(SeededBug(**{name: getattr(seed, name) for name in vars(seed)} | {"targets": (f"{root}.made_up:kl",)}))
    assert trials()["wrong"].caught
    assert asked == expected


def test_names_and_methods_select_bugs(witness, bugs):
    register("identity/x-gpc/kl", lambda: abs(witness.kl() - 2.0))
    bugs += [bug("kl", name="a"), bug("kl", name="b", method="vi-jj")]
    assert list(trials(bugs=["a"])) == ["a"]
    assert list(trials(method=["vi-*"])) == ["b"]
    with pytest.raises(SelectionError, match="bug: found 'c', expected one of a, b"):
        trials(bugs=["c"])


def test_a_bug_whose_globs_match_no_check_is_refused_by_name(witness, bugs):
    register("identity/x-gpc/kl", lambda: 0.0)
    bugs.append(bug("kl", checks=("derivative/*",)))
    with pytest.raises(SelectionError, match="bug wrong: check: found 'derivative/"):
        trials()


def test_two_bugs_of_one_name_and_none_at_all_are_refused(witness, bugs):
    register("identity/x-gpc/kl", lambda: 0.0)
    with pytest.raises(SelectionError, match="a judge never seen red is no judge"):
        trials()
    bugs += [bug("kl"), bug("theta")]
    with pytest.raises(SelectionError, match="expected unique names"):
        trials()


def test_an_interrupt_leaves_the_rest_not_run(witness, bugs):
    register("identity/x-gpc/kl", lambda: abs(witness.kl() - 2.0))

    def interrupt(original):
        raise KeyboardInterrupt

    bugs.append(bug("kl", make=interrupt))
    result = selftest.run(source=SOURCE, jobs=1)
    assert result.interrupted
    assert result.trials[0].state == "not run"
    assert not result.all_caught
    assert witness.kl() == 2.0


PROCESS_MODULE = """
import multiprocessing
from validation import problems
from validation.checks.core import Compared, check
from validation.selftest import SeededBug

if multiprocessing.parent_process() is not None:
    problems.get, problems.names = (lambda name: name), (lambda: ())

def kl():
    return 2.0

@check("identity/x-gpc/kl", paper="p", question="So.", problems=("easy", "hard"))
def _(context, problem):
    return Compared(abs(kl() - 2.0), 0.5, "because", "left", problem if isinstance(problem, str) else problem.name)

def all_bugs():
    make = lambda original: lambda: original() + 1.0
    return (SeededBug("kl", __name__, "x-gpc", "KL off by one", (f"{__name__}:kl",), make),)
"""


def test_bugs_run_in_processes_too(witness, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "made_up_process_module.py").write_text(PROCESS_MODULE)
    monkeypatch.delitem(sys.modules, "made_up_process_module", raising=False)
    outcome = selftest.run(source="made_up_process_module:all_bugs", modules=["made_up_process_module"], jobs=2)
    assert outcome.all_caught
    assert [result.problem for result in outcome.trials[0].by] == ["easy", "hard"]


def test_a_mistake_that_one_of_two_packages_never_makes_is_not_exercised():
    calls = selftest.Calls()
    assert calls.count == 0
    calls.by_package |= {"reference": 3, "fast": 0}
    assert calls.count == 0
    calls.by_package["fast"] = 2
    assert calls.count == 2
