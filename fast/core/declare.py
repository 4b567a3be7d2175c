"""How options are declared: a field of a frozen value that knows its type, its range and what it means.

The values themselves are in `fast.core.options`, one class a concern, and beside the methods, one class a method.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from fast.core.checks import Option, shown
from fast.core.threads import blas_threads, length, one_thread

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound="Options")
_RECORD = "option"


def option(kind: str, meaning: str, interval: str = "", *, default: Any, **rest: Any) -> Any:
    """A field of a class of options.

    kind, meaning, interval : str    as in `Option`
    default                          where nobody says
    rest                             choices, optional: as in `Option`
    """
    return field(default=default, metadata={_RECORD: Option("", kind, meaning, interval, **rest)})


@dataclass(frozen=True, kw_only=True, eq=False)  # arrays among the values have no truth value to compare by
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
            record = next(
                owner.metadata[_RECORD] for owner in owners if owner is not None and _RECORD in owner.metadata
            )
            results[one.name] = replace(record, name=one.name, default=one.default)
        return results

    @classmethod
    def of(cls: type[T], values: Mapping[str, Any]) -> T:
        """Those of the values that this class declares; the others are somebody else's.

        values : mapping    name to value, such as `vars(options)` of another class
        """
        return cls(**{name: value for name, value in values.items() if name in cls.declared()})

    @classmethod
    def joined(cls, *others: type[Options], **defaults: Any) -> type[Options]:
        """One class with the fields of several; where two have a field of one name, the first counts.

        others      classes of options
        defaults    of fields that have another one here
        """
        changed = [(name, Any, value) for name, value in defaults.items()]
        name = "And".join(one.__name__ for one in (cls, *others))
        return make_dataclass(name, changed, bases=(cls, *others), frozen=True, kw_only=True, eq=False)

    @classmethod
    def checks(cls, function: Callable[P, R]) -> Callable[P, R]:
        """The function, checking those of its keywords that are fields of this class before any work.

        function : callable    whose keyword-only parameters all are fields
        """
        return with_checks(function, cls.declared())


def with_checks(function: Callable[P, R], records: Mapping[str, Option]) -> Callable[P, R]:
    """The function, checking its keywords by the records before any work, which has one thread of linear algebra.

    function : callable    whose keyword-only parameters all have a record
    records : mapping      name to declaration
    """
    options = {
        name: replace(records[name], name=name, default=parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    alone = one_thread(function)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in kwargs.items():
            if name in options:
                kwargs[name] = options[name].check(value)
        return alone(*args, **kwargs)

    checked.options = options  # type: ignore[attr-defined]
    return checked


def takes_values(function: Callable[P, R]) -> Callable[P, R]:
    """A door that refuses, by name and before any work, what is no data, no prior, or not the options that it reads.

    The work has the threads of linear algebra that its sizes gain by.

    function : callable    whose data, prior and options are annotated by the plain name of their class; options of
                           another class pass if they declare all that this one does
    """
    parameters = inspect.signature(function).parameters

    @cache
    def classes() -> dict[str, type]:
        """Name of a parameter to its class; asked at a call, as the module may define the class below the door."""
        named = {name: function.__globals__.get(str(one.annotation)) for name, one in parameters.items()}
        return {name: kind for name, kind in named.items() if isinstance(kind, type) and _is_value(kind)}

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        given = dict(zip(parameters, args, strict=False)) | kwargs  # too many: the function itself refuses them
        for name, kind in classes().items():
            if name in given and not _stands_for(given[name], kind):
                raise ValueError(f"{name}: found {shown(given[name])}, expected a {kind.__module__}.{kind.__name__}")
        with blas_threads(*_sizes(given.get("data"), given.get("prior"), given.get("options"))):
            return function(*args, **kwargs)

    return checked


def _sizes(data: Any, prior: Any, options: Any) -> tuple[int, int | None]:
    """Rows that one step works on, and inducing points; nothing is checked yet."""
    n, Z = length(getattr(data, "X", ())), getattr(prior, "Z", None)
    if getattr(options, "stochastic", False):
        n = min(n, options.rows if options.batches is None else max(map(length, options.batches)))
    return n, None if Z is None else length(Z, axis=-2)


def _is_value(kind: type) -> bool:
    return issubclass(kind, Options) or kind.__module__ == "fast.core.values"


def _stands_for(value: Any, kind: type) -> bool:
    if issubclass(kind, Options):
        return isinstance(value, Options) and kind.declared().keys() <= value.declared().keys()
    return isinstance(value, kind)
