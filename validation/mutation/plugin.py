"""The part of `validation.mutation.suite` that runs inside pytest: plant a mutant, or write down who executes what.

Loaded by `-p validation.mutation.plugin` before any test is imported. The environment says which of the two it does.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from validation.mutation.baseline import forget, lines_by_mark
from validation.mutation.seed import plant
from validation.mutation.statements import PACKAGES
from validation.mutation.suite import PLANT, RECORD

if PLANT in os.environ:
    _plan = json.loads(Path(os.environ[PLANT]).read_text(encoding="utf-8"))
    plant(_plan["module"], _plan["text"])


class _Recorder:
    """Lines by test: what its body executes, and what its fixtures do."""

    def __init__(self, folder: Path) -> None:
        import coverage

        os.environ["COVERAGE_CORE"] = "ctrace"  # the core of newer Pythons knows no contexts
        self._folder = folder
        self._seconds: dict[str, float] = {}
        self._tracer = coverage.Coverage(data_file=None, source_pkgs=list(PACKAGES), config_file=False)
        self._tracer.set_option("run:disable_warnings", ["module-not-imported", "no-data-collected"])
        self._tracer.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: Any) -> Iterator[None]:
        forget()  # or a test would live on what the one before has computed
        self._tracer.switch_context(f"setup {item.nodeid}")
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
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
        lines = {
            mark: {module: sorted(observed) for module, observed in value.items()}
            for mark, value in lines_by_mark(self._tracer.get_data()).items()
        }
        text = json.dumps({"seconds": self._seconds, "lines": lines})
        (self._folder / f"lines-{os.getpid()}.json").write_text(text, encoding="utf-8")


def pytest_configure(config: Any) -> None:
    """Start to record, if that was asked for."""
    if RECORD in os.environ:
        config.pluginmanager.register(_Recorder(Path(os.environ[RECORD])), "triad-lines")
