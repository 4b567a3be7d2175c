"""A register of its own for tests that ask for it, and problems that no witness has to answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from validation import problems as built_in
from validation.checks import core
from validation.door.problem import Problem

# a module of checks that came in during a test would be in the register of that test alone, and never again
core.registered()


COSTS = {"easy": 1.0, "hard": 5.0, "huge": 50.0}


def make_problem(name: str) -> Problem:
    if name not in COSTS:
        raise KeyError(f"problem: found {name!r}, expected one of {', '.join(COSTS)}")
    X = np.linspace(-1.0, 1.0, 4)[:, None]
    return Problem(name=name, X=X, y=np.array([0, 1, 0, 1]), n_classes=2, likelihood="logit", variance=1.0,
                   lengthscales=1.0, X_test=X)  # fmt: skip


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Problem]:
    monkeypatch.setattr(core, "_registry", {})
    monkeypatch.setattr(core, "modules", lambda: ())
    monkeypatch.setattr(built_in, "get", make_problem)
    monkeypatch.setattr(built_in, "names", lambda: tuple(COSTS))
    monkeypatch.setattr(built_in, "cost", lambda name: COSTS.get(name, 0.0))
    return make_problem
