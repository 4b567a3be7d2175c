"""A register of its own for every test, and problems that no witness has to answer."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from validation.checks import core
from validation.checks.core import Compared, Context
from validation.door.problem import Problem

# a module of checks that came in during a test would be in the register of that test alone, and never again
core.registered()


def module_path(module: str) -> Path:
    """The file of a module, found without importing it."""
    package, *rest = module.split(".")
    path = Path(str(files(package))).joinpath(*rest)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def source_of(module: str) -> str:
    return module_path(module).read_text(encoding="utf-8")


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


@pytest.fixture
def reds(monkeypatch: pytest.MonkeyPatch, planting: Callable[..., Any]) -> Callable[..., list[str]]:
    """What a check says after a mistake was planted, which is gone when the test ends."""
    return planting(monkeypatch)  # type: ignore[no-any-return]


@pytest.fixture
def planting() -> Callable[..., Any]:
    """A function of a monkeypatch that gives `reds`."""
    return _reds


def _reds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What a check of no problem says is wrong, after a piece of a witness's module was replaced by another.

    Modules that have imported something from the healthy module keep it, but those that are named in `again`. All of
    the witness is imported before: what first came in after the mistake would keep it in the tests that follow.
    """

    def put(name: str, module: ModuleType) -> None:
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, leaf = name.rpartition(".")
        monkeypatch.setattr(importlib.import_module(parent), leaf, module, raising=False)

    def anew(name: str) -> None:
        parent, _, leaf = name.rpartition(".")
        # an import binds the module in its package: what stood there is noted before, and is there again afterwards
        monkeypatch.setattr(importlib.import_module(parent), leaf, None, raising=False)
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.import_module(name)

    def run(
        check: str, asked: str, plant: tuple[str, str, str] | None = None, again: tuple[str, ...] = ()
    ) -> list[str]:  # fmt: skip
        if plant is not None:
            name, old, new = plant
            whole = importlib.import_module(name.partition(".")[0])
            for each in pkgutil.walk_packages(whole.__path__, f"{whole.__name__}."):
                importlib.import_module(each.name)
            healthy, text = importlib.import_module(name), source_of(name)
            assert old in text, f"{name}: no {old!r}"
            module = ModuleType(name)
            module.__dict__.update(__file__=str(module_path(name)), __package__=healthy.__package__)
            put(name, module)
            exec(compile(text.replace(old, new, 1), str(module_path(name)), "exec"), module.__dict__)
        monkeypatch.setattr(core, "_registry", {})  # a check is registered once
        planted = "" if plant is None else plant[0]
        for name in (*(name for name in again if name != planted), f"validation.checks.{check}"):
            anew(name)
        try:
            outcomes = list(core._registry[asked].function(Context(quick=True), None))
        except (ArithmeticError, LookupError, RuntimeError, ValueError, RuntimeWarning) as error:  # a crash is as red
            return [str(error)]
        assert outcomes
        return [each.why for each in outcomes if isinstance(each, Compared) and not each.observed <= each.limit]

    return run
