"""The part of the mutation tests that runs inside pytest: it records which test passes which point, or tries a mutant.

Loaded by `-p mutation_plugin` before any test is imported. The plan says which of the two it does.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import planting

_GRACE, _PATIENCE = 30.0, 10.0  # under a mutant a test may take this many seconds, and this many times its healthy ones


class Recorder:
    """Seconds of tests and of the questions that they ask the judge's context, and what each of them passes."""

    def __init__(self, folder: Path, passed: planting.Passed) -> None:
        self._folder, self._passed = folder, passed
        self._seconds: dict[str, float] = {}
        self._asked: dict[str, list[str]] = {}
        self._failed: list[str] = []
        self._now = ""

    @contextmanager
    def _during(self, mark: str, after: str) -> Iterator[None]:
        forget()
        self._passed.switch(mark)
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[mark] = time.perf_counter() - started
            self._passed.switch(after)

    @contextmanager
    def solving(self, key: str) -> Iterator[None]:
        """What is passed inside belongs to the question `key` and to every test that asks it."""
        with self._during(f"solve {key}", f"call {self._now}"):
            yield
        forget()

    def asked(self, key: str) -> None:
        """The present test depends on the question `key`."""
        self._asked.setdefault(self._now, []).append(key)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: Any) -> Iterator[None]:
        with self._during(f"setup {item.nodeid}", ""):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        self._now = item.nodeid
        with self._during(f"call {item.nodeid}", ""):
            return (yield)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if self._seconds:  # none in the process that only hands tests out
            content = {"seconds": self._seconds, "asked": self._asked, "failed": self._failed}
            (self._folder / f"healthy-{os.getpid()}.json").write_text(json.dumps(content), encoding="utf-8")


class Trial:
    """Runs the tests of the plan in its order and writes who failed; one that takes too long ends all by SIGALRM."""

    def __init__(self, seconds: dict[str, float], failure: Path) -> None:
        self._seconds, self._failure = seconds, failure

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        place = {name: k for k, name in enumerate(self._seconds)}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in place])
        items[:] = sorted((item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[Any]:
        signal.setitimer(signal.ITIMER_REAL, _GRACE + _PATIENCE * self._seconds[item.nodeid])
        return (yield)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = str(report.longrepr if crash is None else crash.message)
            self._failure.write_text(json.dumps([report.nodeid, text[:300]]), encoding="utf-8")

    pytest_collectreport = pytest_runtest_logreport


def forget() -> None:
    """Empty the functools caches of the witnesses, so that no test lives on what an earlier one has computed."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in planting.PACKAGES and module is not None:
            for value in list(vars(module).values()):
                while value is not None:
                    if isinstance(value, functools._lru_cache_wrapper):
                        value.cache_clear()
                    value = getattr(value, "__wrapped__", None) if callable(value) else None


def pytest_configure(config: Any) -> None:
    """Record or try, as the plan says."""
    plan, passed = planting.plan(), planting.passed()
    if passed is not None:
        config.pluginmanager.register(Recorder(Path(plan["passed"]).parent, passed), "mutation-recorder")
    elif plan:
        config.pluginmanager.register(
            Trial(plan["tests"], Path(os.environ[planting.PLAN]).with_name("failure.json")), "mutation-trial"
        )
