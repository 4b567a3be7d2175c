"""Calls of one function as jobs: where nobody spreads them they run one after the other, in this process."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from validation.jobs import run as jobs_run
from validation.jobs.job import Hear, Job
from validation.jobs.run import Engine
from validation.jobs.store import Store


class Call(NamedTuple):
    """A function of a module by its name, with what it is called with."""

    module: str
    function: str
    arguments: Mapping[str, Any]


class _Who(NamedTuple):
    engine: Engine
    folder: Path


_who: ContextVar[_Who | None] = ContextVar("who", default=None)


@contextmanager
def spreading(engine: Engine, folder: Path) -> Iterator[None]:
    """Inside, `each` gives its calls to an engine and keeps their values in a folder until all of this is done.

    Whoever ends inside by an error or by Ctrl-C finds the values again; who comes to the end has no more use for them.
    """
    token = _who.set(_Who(engine, folder))
    try:
        yield
    finally:
        _who.reset(token)
    Store(folder, None, ()).clear()


def each(function: Callable[..., Any], calls: Mapping[str, Mapping[str, Any]], types: Iterable[type]) -> list[Any]:
    """function(**arguments) for every call, in the order of the calls.

    Parameters
    ----------
    function : callable    of a module, so that another process finds it by its name
    calls : mapping        name of the call -> its arguments, seeds among them; names differ in the whole run
    types : types          that its values are made of, for `validation.jobs.store`

    Raises
    ------
    JobLostError           a call whose workers died
    """
    who = _who.get()
    if who is None:
        return [function(**arguments) for arguments in calls.values()]
    jobs = [
        Job(name, Call(function.__module__, function.__name__, dict(arguments))) for name, arguments in calls.items()
    ]
    values: dict[str, Any] = {}
    store = Store(who.folder, "each", types)
    with closing(jobs_run.run(answer, jobs, who.engine, store=store)) as value:
        for done in value:
            if done.lost is not None:
                raise done.lost
            values[done.job.name] = done.value
    return [values[name] for name in calls]


def answer(call: Call, hear: Hear) -> Any:
    """The value of one call, where it is worked."""
    return getattr(importlib.import_module(call.module), call.function)(**call.arguments)
