"""A register of its own for every test, and problems that no witness has to answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from validation.checks import core
from validation.problem import Problem

COSTS = {"easy": 1.0, "hard": 5.0, "huge": 50.0}


def make_problem(name: str) -> Problem:
    if name not in COSTS:
        raise KeyError(f"problem: found {name!r}, expected one of {', '.join(COSTS)}")
    X = np.linspace(-1.0, 1.0, 4)[:, None]
    return Problem(name=name, X=X, y=np.array([0, 1, 0, 1]), n_classes=2, likelihood="logit", variance=1.0,
                   lengthscales=1.0, X_test=X)  # fmt: skip


@pytest.fixture(autouse=True)
def problems(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Problem]:
    monkeypatch.setattr(core, "_registry", {})
    monkeypatch.setattr(core, "modules", lambda: ())
    fake = SimpleNamespace(get=make_problem, names=lambda: tuple(COSTS), cost=lambda name: COSTS.get(name, 0.0))
    monkeypatch.setitem(sys.modules, "validation.problems", fake)
    return make_problem
