"""Seeded bugs fit the code that they are put into: a bug that cannot be called turns nothing red."""

from __future__ import annotations

import inspect

import pytest

from validation import selftest
from validation.seeded_bugs import all_bugs
from validation.selftest import SeededBug


@pytest.mark.parametrize("bug", all_bugs(), ids=lambda bug: bug.name)
def test_a_bug_takes_the_arguments_of_the_function_that_it_replaces(bug: SeededBug):
    for target in bug.targets:
        owner, name = selftest._place(target)
        stored = inspect.getattr_static(owner, name)
        original = stored.__func__ if isinstance(stored, (staticmethod, classmethod)) else getattr(owner, name)
        parameters = inspect.signature(original).parameters.values()
        by_place = [entry for entry in parameters if entry.kind in (entry.POSITIONAL_ONLY, entry.POSITIONAL_OR_KEYWORD)]
        by_name = {entry.name: None for entry in parameters if entry.kind == entry.KEYWORD_ONLY}
        inspect.signature(bug.make(original)).bind(*by_place, **by_name)
