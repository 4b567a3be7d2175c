"""`fit(data, prior, options)` of a method of `fast`, asked by the names of the fields alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, get_type_hints

from fast.core.declare import Options
from fast.core.values import Data, Prior

_PRIOR = ("variance", "lengthscales", "noise", "jitter", "Z")
_Parameter = inspect.Parameter


def by_name(function: Callable[..., Any], *, binary: bool = False) -> Callable[..., Any]:
    """A function of X, y, (n_classes,) variance, lengthscales, noise, jitter, Z, (epsilon) and all options by keyword.

    A function that does not take `Data` is given back as it is.

    Parameters
    ----------
    function         `fit` of a module of `fast.methods`
    binary : bool    of two classes: no n_classes
    """
    if "data" not in inspect.signature(function).parameters:
        return function
    options = get_type_hints(function)["options"]
    records = options.declared()
    order = ["X", "y", *(() if binary else ("n_classes",)), *_PRIOR]
    if "epsilon" in records:
        order.append("epsilon")
    more = "smoothness" if binary else "shared"
    parameters = [_Parameter(name, _Parameter.POSITIONAL_OR_KEYWORD) for name in order]
    parameters.append(_Parameter(more, _Parameter.KEYWORD_ONLY, default=None if binary else False))
    parameters += [
        _Parameter(name, _Parameter.KEYWORD_ONLY, default=record.default)
        for name, record in records.items()
        if name not in order
    ]

    @wraps(function)
    def asked(*given: Any, **named: Any) -> Any:
        values = dict(zip(order, given, strict=False)) | named
        data = {name: values.pop(name) for name in ("X", "y", "n_classes") if name in values}
        prior = {name: values.pop(name) for name in (*_PRIOR, more) if name in values}
        return function(Data(**data), Prior(**prior), options(**values))

    asked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return asked


def names_of(arguments: tuple[Any, ...], *, binary: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Data, prior and options as the arguments and keywords that `by_name` takes, the options all of them.

    Arguments that are no such values are given back, without keywords.
    """
    if not arguments or not isinstance(arguments[0], Data):
        return arguments, {}
    data, prior, options = arguments
    assert isinstance(options, Options)
    values = {"X": data.X, "y": data.y, "n_classes": data.n_classes, **vars(prior), **vars(options)}
    order = ["X", "y", *(() if binary else ("n_classes",)), *_PRIOR]
    keywords = {name: values[name] for name in options.declared()}
    keywords["smoothness" if binary else "shared"] = values["smoothness" if binary else "shared"]
    return tuple(values[name] for name in order), keywords
