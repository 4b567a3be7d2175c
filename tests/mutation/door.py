"""The checks of a quick `triad verify` as tests, one for each pair of check and problem.

Collected only when this file is named. A healthy run stores the answers of all implementations; under a mutant only
the implementations of its package are asked again, because the others cannot have changed.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import planting
from validation.checks import core, runner
from validation.checks.core import NO_PROBLEM, Compared, Context, Tested
from validation.door.problem import digest
from validation.door.solution import Solution

STORE = "TRIAD_DOOR"  # folder of the healthy run
_selection = runner.select()
_contexts: dict[str, Context] = {}


class _Remembering(Context):
    """A context that records which questions are asked, and that remembers what the planted mutant cannot touch."""

    def __init__(self, recorder: Any) -> None:
        super().__init__()
        self._recorder = recorder
        self._known: set[str] = set()

    def solve(self, implementation: str, method: str, problem: Any, **options: Any) -> Solution:
        question = (implementation, method, digest(problem), core.frozen(options))
        key = hashlib.sha256(repr(question).encode()).hexdigest()[:24]
        path = _folder() / "answers" / f"{key}.npz"
        if self._recorder is None:
            if implementation != _package() and path.exists() and not _calls_back(options):
                return Solution.load(path)
            return super().solve(implementation, method, problem, **options)
        self._recorder.asked(key)
        if key in self._known:
            return super().solve(implementation, method, problem, **options)
        self._known.add(key)
        with self._recorder.solving(key):
            answer = super().solve(implementation, method, problem, **options)
        if not path.exists() and not _calls_back(options):
            answer.save(path)
        return answer


def _calls_back(options: dict[str, Any]) -> bool:
    return any(callable(value) for value in options.values())


def _folder() -> Path:
    return Path(os.environ[STORE])


@cache
def _package() -> str:
    return str(planting.plan()["package"])


@pytest.fixture
def recorder(request: pytest.FixtureRequest) -> Any:
    return request.config.pluginmanager.get_plugin("mutation-recorder")


def _pairs() -> list[runner.Pair]:
    """Those of the plan, where it has a mutant: to collect thousands takes seconds."""
    tests = planting.plan().get("tests")
    chosen = {name.partition("[")[2] for name in tests or ()}
    return [pair for pair in _selection.pairs if tests is None or f"{_id(pair)}]" in chosen]


def _id(pair: runner.Pair) -> str:
    return f"{pair.check}-{pair.problem}"


@pytest.mark.parametrize("pair", _pairs(), ids=_id)
def test_the_check_passes(pair: runner.Pair, recorder: Any) -> None:
    check = core.imported(_selection.modules)[pair.check]
    if pair.problem not in _contexts or pair.problem == NO_PROBLEM:
        _contexts[pair.problem] = _Remembering(recorder)
    context = _contexts[pair.problem]
    problem = None if pair.problem == NO_PROBLEM else context.problem(pair.problem)
    answer = runner.ask(check, context, problem, pair)
    if recorder is not None:
        _keep(answer)
    if answer.error is not None:
        pytest.fail(f"crash: {answer.error[0]}", pytrace=False)
    for outcome in answer.outcomes:
        if isinstance(outcome, Compared) and not outcome.observed <= outcome.limit:
            pytest.fail(f"wrong value: {outcome.observed:.3g}, limit {outcome.limit:.3g}", pytrace=False)
    if recorder is None and any(isinstance(outcome, Tested) for outcome in answer.outcomes):
        # z statistics are judged among those of the whole run, as they would be in one
        answers = {**_healthy(), pair: answer}
        for result in runner.judge(answers.values(), _selection.modules):
            if result.failed and (result.check, result.problem) == (pair.check, pair.problem):
                pytest.fail(f"wrong value: |z| {result.observed:.3g}, limit {result.limit:.3g}", pytrace=False)


def _keep(answer: runner.Answered) -> None:
    if any(isinstance(outcome, Tested) for outcome in answer.outcomes):
        with (_folder() / f"tested-{os.getpid()}.pkl").open("ab") as file:
            pickle.dump(answer, file)


@cache
def _healthy() -> dict[runner.Pair, runner.Answered]:
    """Answers with z statistics of the healthy run, which this tool has written itself."""
    result = {}
    for path in sorted(_folder().glob("tested-*.pkl")):
        with path.open("rb") as file:
            while True:
                try:
                    answer = pickle.load(file)
                except EOFError:
                    break
                result[answer.pair] = answer
    return result
