"""Record who executes each marked function while the checks of `triad verify` run.

The hooks of the markers see every call. The frames above a call say who made it: the nearest marked function, and
beyond it the nearest call of `solve` or else the check that was asked.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

from validation.checks import runner
from validation.jobs.job import Done, Folder, Hear, Job, Work
from validation.jobs.run import Engine
from validation.ledger import executed, static
from validation.ledger.executed import Call
from validation.ledger.registry import PACKAGES, Package

_FRAMES = 16  # that are remembered: they keep their variables alive


class Watch:
    """Sees every call of a marked function below a solve or a check, in this process, while it is installed."""

    def __init__(self, packages: Iterable[Package] = PACKAGES) -> None:
        """Nothing seen yet."""
        self._markers = [importlib.import_module(package.marker) for package in packages]
        # all that a marker wraps runs below one code; by identity, since codes are slow to hash
        self._codes = [marker.equation("any", "id")(lambda: None).__code__ for marker in self._markers]
        self._wrappers = frozenset(map(id, self._codes))
        self._solve: CodeType = importlib.import_module("validation.door.solve").solve.__code__
        self._ask: CodeType = runner.ask.__code__
        self._seen: set[tuple[Callable[..., Any], Callable[..., Any] | None, str, bool]] = set()
        # what is above a frame: a loop calls many functions from one
        self._above: dict[FrameType, tuple[Callable[..., Any] | None, str, bool]] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Inside, the markers' hooks are this watch."""
        earlier = [marker.hook for marker in self._markers]
        for marker in self._markers:
            vars(marker)["hook"] = self._called
        try:
            yield
        finally:
            self._above.clear()
            for marker, hook in zip(self._markers, earlier, strict=True):
                vars(marker)["hook"] = hook

    def calls(self) -> frozenset[Call]:
        """What was seen so far."""
        return frozenset(
            Call(_address(function), "" if caller is None else _address(caller), door, solved)
            for function, caller, door, solved in self._seen
        )

    def _called(self, function: Callable[..., Any], output: Any) -> Any:
        first = frame = sys._getframe(1).f_back
        caller: Callable[..., Any] | None = None
        while frame is not None and frame not in self._above:
            code = frame.f_code
            if id(code) in self._wrappers:
                if caller is None:
                    # the wrapper hands itself to the hook, and so knows itself
                    caller = next(value for value in frame.f_locals.values() if hasattr(value, "__equations__"))
            elif code is self._solve:
                asked = frame.f_locals
                self._above[frame] = None, f"{asked['implementation']} {asked['method']}", True
                break
            elif code is self._ask:
                self._above[frame] = None, frame.f_locals["check"].id, False
                break
            frame = frame.f_back
        if first is not None and frame is not None:
            further, door, solved = self._above[frame]
            self._seen.add((function, caller or further, door, solved))
            if len(self._above) > _FRAMES:
                self._above.clear()
            if not first.f_code.co_flags & inspect.CO_GENERATOR:  # which another caller may resume
                self._above[first] = caller or further, door, solved
        return output


def _address(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


class Recording:
    """An engine that gives its jobs to another one and keeps what they execute in `calls`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.calls: set[Call] = set()

    def spread(
        self, work: Work, jobs: Sequence[Job], listen: Hear, shared: Folder | None = None
    ) -> Generator[Done, None, None]:
        """Yield jobs as they get done."""
        given = {job.name: job for job in jobs}
        watched = [replace(job, unit=(work, job.unit)) for job in jobs]
        with closing(self._engine.spread(recorded, watched, listen, shared)) as answers:
            for done in answers:
                value = done.value
                if done.lost is None:
                    value, calls = done.value
                    self.calls |= calls
                yield replace(done, job=given[done.job.name], value=value)

    def text(self) -> str:
        """The record of these calls, as `executed.json` holds it."""
        return executed.text(executed.record(static.functions(PACKAGES).functions, self.calls))


def recorded(unit: tuple[Work, Any], listen: Hear) -> tuple[Any, frozenset[Call]]:
    """The value of a job and the calls that it made."""
    work, own = unit
    watch = Watch()
    with watch.installed():
        value = work(own, listen)
    return value, watch.calls()
