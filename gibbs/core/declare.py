"""How options are declared: a field of a frozen value that knows its type, its range and what it means.

The values themselves are in `gibbs.core.options`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from gibbs.core.checks import Option, shown
from gibbs.core.threads import one_thread
from gibbs.core.values import Data, Prior

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound="Options")


def option(kind: str, meaning: str, interval: str = "", *, default: Any, **rest: Any) -> Any:
    """A field of a class of options: kind, meaning, interval, rest (choices) as in `Option`; default."""
    return field(default=default, metadata={"option": Option("", kind, meaning, interval, **rest)})


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """Base of all options: checks every value by its declaration. Raises ValueError with name, found, expected."""

    def __post_init__(self) -> None:
        for name, record in self.declared().items():
            object.__setattr__(self, name, record.check(getattr(self, name)))

    @classmethod
    @cache
    def declared(cls) -> dict[str, Option]:
        """Name to declaration, default included, in the order of the fields."""
        results = {}
        for one in fields(cls):
            owners = (vars(base).get("__dataclass_fields__", {}).get(one.name) for base in cls.__mro__)
            record = next(owner.metadata["option"] for owner in owners if owner is not None and owner.metadata)
            results[one.name] = replace(record, name=one.name, default=one.default)
        return results

    @classmethod
    def of(cls: type[T], values: Mapping[str, Any]) -> T:
        """Those of the values, by name, that this class declares."""
        return cls(**{name: value for name, value in values.items() if name in cls.declared()})

    @classmethod
    def joined(cls, *others: type[Options], **defaults: Any) -> type[Options]:
        """One class with the fields of several, and other defaults."""
        changed = [(name, Any, value) for name, value in defaults.items()]
        bases = (cls, *others)
        name = "And".join(one.__name__ for one in bases)
        return make_dataclass(name, changed, bases=bases, frozen=True, kw_only=True, eq=False)


def checked_options(*options: type[Options]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A door that checks its keywords, its values, and the generator it draws from, before any work.

    options: classes that declare the keywords.
    """
    row: dict[str, Option] = {name: record for one in options for name, record in one.declared().items()}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters
        records = {
            name: replace(row[name], default=parameter.default)
            for name, parameter in parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        draws = next(iter(parameters), None) == "rng"
        inner = takes_values(function)

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            source = args[0] if args else kwargs.get("rng")
            if draws and not isinstance(source, np.random.Generator):
                raise ValueError(f"rng: found {shown(source)}, expected a numpy.random.Generator")
            for name, value in kwargs.items():
                if name in records:
                    kwargs[name] = records[name].check(value)
            return inner(*args, **kwargs)

        checked.options = records  # type: ignore[attr-defined]
        return checked

    return decorate


def takes_values(function: Callable[P, R]) -> Callable[P, R]:
    """A door that refuses, by name and before any work, what is not of the class it is annotated by.

    The work has one thread of linear algebra.

    function: whose data, prior and options are annotated by the plain name of their class.
    """
    signature = inspect.signature(function)
    annotated = {name: function.__globals__.get(str(one.annotation)) for name, one in signature.parameters.items()}
    classes = {name: kind for name, kind in annotated.items() if isinstance(kind, type) and _is_value(kind)}
    alone = one_thread(function)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        # an argument too many or too few is for the function itself to refuse
        given = dict(zip(signature.parameters, args, strict=False)) | kwargs
        for name, kind in classes.items():
            if name in given and not isinstance(given[name], kind):
                raise ValueError(f"{name}: found {shown(given[name])}, expected a {kind.__module__}.{kind.__name__}")
        return alone(*args, **kwargs)

    return checked


def _is_value(kind: type) -> bool:
    return issubclass(kind, Data | Prior | Options)
