"""The part of the mutation tests that runs inside pytest: it plants a mutant, or records which test executes what.

Loaded by `-p mutation_plugin` before any test is imported. The environment says which of the two it does.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mutants import PACKAGES, ROOT
from planting import plant

RECORD, PLANT = "TRIAD_RECORD_LINES", "TRIAD_PLANT"  # a folder, a file

if PLANT in os.environ:
    _plan = json.loads(Path(os.environ[PLANT]).read_text(encoding="utf-8"))
    plant(_plan["module"], _plan["text"])


class Recorder:
    """Lines by test: of its body, of its fixtures, and of the questions that it asked the judge's context."""

    def __init__(self, folder: Path) -> None:
        import coverage

        os.environ["COVERAGE_CORE"] = "ctrace"  # the core of newer Pythons has no contexts
        self._folder = folder
        self._seconds: dict[str, float] = {}
        self._asked: dict[str, list[str]] = {}
        self._now = ""
        self._tracer = coverage.Coverage(data_file=None, source_pkgs=list(PACKAGES), config_file=False)
        self._tracer.set_option("run:disable_warnings", ["module-not-imported", "no-data-collected"])
        self._tracer.start()

    @contextmanager
    def solving(self, key: str) -> Iterator[None]:
        """Lines executed inside belong to the question `key` and to every test that asks it."""
        self._tracer.switch_context(f"solve {key}")
        forget()
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[f"solve {key}"] = time.perf_counter() - started
            self._tracer.switch_context(f"call {self._now}")
            forget()

    def asked(self, key: str) -> None:
        """The present test depends on the question `key`."""
        self._asked.setdefault(self._now, []).append(key)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: Any) -> Iterator[None]:
        forget()
        self._tracer.switch_context(f"setup {item.nodeid}")
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        self._now = item.nodeid
        self._tracer.switch_context(f"call {item.nodeid}")
        started = time.perf_counter()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = time.perf_counter() - started

    def pytest_sessionfinish(self) -> None:
        self._tracer.stop()
        if not self._seconds:
            return  # the process that only hands tests out
        content = {"seconds": self._seconds, "asked": self._asked, "lines": _lines(self._tracer.get_data())}
        (self._folder / f"lines-{os.getpid()}.json").write_text(json.dumps(content), encoding="utf-8")


def forget() -> None:
    """Empty the functools caches of the witnesses, so that no test lives on what an earlier one has computed."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES and module is not None:
            for value in list(vars(module).values()):
                while value is not None:
                    if isinstance(value, functools._lru_cache_wrapper):
                        value.cache_clear()
                    value = getattr(value, "__wrapped__", None) if callable(value) else None


def _lines(data: Any) -> dict[str, dict[str, list[int]]]:
    """Context to file to lines."""
    result: dict[str, dict[str, list[int]]] = {}
    for name in data.measured_files():
        path = Path(name).resolve()
        if path.is_relative_to(ROOT):
            for line, marks in data.contexts_by_lineno(name).items():
                for mark in marks:
                    result.setdefault(mark, {}).setdefault(path.relative_to(ROOT).as_posix(), []).append(line)
    return result


def pytest_configure(config: Any) -> None:
    """Start to record, if that was asked for."""
    if RECORD in os.environ:
        config.pluginmanager.register(Recorder(Path(os.environ[RECORD])), "mutation-recorder")
