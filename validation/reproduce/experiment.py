"""What an experiment is: a function that gives tables and figures, registered under its paper and name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from types import MappingProxyType
from typing import Any, NamedTuple

from markupsafe import Markup

from validation.door.quoting import shown
from validation.reproduce.printed import differences, of_paper

Say = Callable[[str], object]  # takes a line of progress


class Table(NamedTuple):
    """Rows of numbers and text; its name is part of the name of the CSV."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    caption: str


class Picture(NamedTuple):
    """One figure as inline SVG (`validation.screen.figures`), with the labels of its series in order."""

    caption: str
    legend: tuple[str, ...]
    panels: tuple[Markup, ...]


class Outcome(NamedTuple):
    """What an experiment found."""

    settings: Mapping[str, object]  # everything that a reader needs to do it again
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]
    notes: tuple[str, ...]  # where this differs from what the paper did


class Experiment(NamedTuple):
    """An experiment of a paper."""

    paper: str
    name: str
    title: str
    claim: str  # what the paper says that it shows
    run: Callable[..., Outcome]  # keyword options, and say for progress
    in_parts: bool = False  # its repetitions are calls of `validation.jobs.each`
    cells: Callable[..., int] | None = None  # the same options -> lines of progress; None: too unlike to foresee
    ahead: bool = False  # whether a line says what begins, and not what is done
    printed: Mapping[str, Any] = MappingProxyType({})  # option -> the paper's, where it is not the default

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of what can be set."""
        return {
            name: parameter.default
            for name, parameter in inspect.signature(self.run).parameters.items()
            if name != "say"
        }


EXPERIMENTS: dict[tuple[str, str], Experiment] = {}


def experiment(
    paper: str,
    name: str,
    title: str,
    claim: str,
    *,
    in_parts: bool = False,
    cells: Callable[[Any], int] | None = None,
    ahead: bool = False,
) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Register a function of a value of options and `say`, which takes a line of progress; it is called by keywords.

    The options are a dataclass of the function's module, each with a default; what differs from the paper's values of
    them (`printed.option`) is added to the notes. From `cells`, options -> how many lines
    of progress the function gives, and from whether it gives them `ahead` of the work comes the forecast.
    """

    def register(function: Callable[[Any, Say], Outcome]) -> Callable[..., Outcome]:
        (parameter, _) = inspect.signature(function).parameters.values()
        noted = parameter.annotation
        options = function.__globals__[noted] if isinstance(noted, str) else noted

        @wraps(function)
        def run(*, say: Say = lambda text: None, **given: Any) -> Outcome:
            asked = options(**given)
            outcome = function(asked, say)
            return outcome._replace(notes=tuple(dict.fromkeys((*outcome.notes, *differences(asked)))))

        run.__signature__ = inspect.signature(options)  # type: ignore[attr-defined]
        if (paper, name) in EXPERIMENTS:
            raise ValueError(f"name: found {shown(name)} of {paper} a second time, expected each experiment once")
        count = None if cells is None else lambda **given: cells(options(**given))
        EXPERIMENTS[paper, name] = Experiment(
            paper, name, title, claim, run, in_parts, count, ahead, MappingProxyType(of_paper(options))
        )
        return run

    return register


def find(paper: str, name: str) -> Experiment:
    """The experiment of that name; ValueError with what there is otherwise."""
    papers = sorted({key for key, _ in EXPERIMENTS})
    if paper not in papers:
        raise ValueError(f"paper: found {shown(paper)}, expected one of {_listed(papers, paper)}")
    names = sorted(entry for key, entry in EXPERIMENTS if key == paper)
    if name not in names:
        raise ValueError(f"experiment: found {shown(name)}, expected one of {_listed(names, name)} for {paper}")
    return EXPERIMENTS[paper, name]


def check_options(wanted: Experiment, options: Mapping[str, object]) -> None:
    """Refuse options that the experiment does not have, and values of another type than the default's."""
    known = wanted.options
    for name, value in options.items():
        if name not in known:
            raise ValueError(
                f"option: found {shown(name)}, expected one of {_listed(list(known), name)} ({wanted.name})"
            )
        default = known[name]
        if default is None:
            continue
        if isinstance(value, bool) != isinstance(default, bool) or not isinstance(value, _accepted(default)):
            raise TypeError(f"{name}: found {shown(value)}, expected a value like {default!r}")


def _accepted(default: object) -> tuple[type, ...]:
    if isinstance(default, float):
        return (int, float)
    if isinstance(default, (list, tuple)):
        return (list, tuple)
    return (type(default),)


def _listed(known: list[str], wanted: str) -> str:
    close = get_close_matches(wanted, known, n=1)
    return ", ".join(known) + (f" (did you mean {close[0]!r}?)" if close else "")
