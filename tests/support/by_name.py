"""`fit(data, prior, options)` of `fast`, and samplers of `gibbs`, asked by the names of the fields alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any, get_type_hints

from fast.core.values import Data, Prior
from gibbs.core import values as of_gibbs

_PRIOR = ("variance", "lengthscales", "noise", "jitter", "Z")
_Parameter = inspect.Parameter
# arguments of a sampler in their order, and the defaults of some
_SAMPLER = ("likelihood", "X", "y", "n_classes", "n_latents", "variance", "lengthscales", "noise", "jitter", "Z",
            "prior_model", "X_test", "epsilon")  # fmt: skip
_LEFT_OUT = {"Z": None, "prior_model": "full", "X_test": None, "epsilon": 0.0, "smoothness": None,
             "shared": False, "hyperprior": None}  # fmt: skip


def named_values(
    function: str, order: Sequence[str], given: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by name, of which some are given in an order.

    Raises
    ------
    TypeError    for more arguments than have a place in the order, or one that is given twice
    """
    if len(given) > len(order):
        raise TypeError(f"{function}: found {len(given)} arguments by position, expected at most {len(order)}")
    values = dict(zip(order[: len(given)], given, strict=True))
    if twice := sorted(values.keys() & named.keys()):
        raise TypeError(f"{function}: found {', '.join(twice)} by position and by name, expected one of them")
    return values | dict(named)


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
        values = named_values(function.__name__, order, given, named)
        data = {name: values.pop(name) for name in ("X", "y", "n_classes") if name in values}
        prior = {name: values.pop(name) for name in (*_PRIOR, more) if name in values}
        return function(Data(**data), Prior(**prior), options(**values))

    asked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return asked


def sampler_by_name(function: Callable[..., Any], *, binary: bool = False, **defaults: Any) -> Callable[..., Any]:
    """A sampler of `gibbs` with flat arguments in the order of `_SAMPLER`, and all options by keyword.

    Parameters
    ----------
    function         takes data and prior of `gibbs`, and options if it has any
    binary : bool    of two classes: no n_classes
    defaults         of fields that have another one here
    """
    taken = inspect.signature(function).parameters
    data, prior = ({one.name for one in fields(cls)} for cls in (of_gibbs.Data, of_gibbs.Prior))
    own = [name for name in taken if name not in ("data", "prior", "options")]
    hidden = {"n_classes"} if binary else set()
    hidden |= {name for name in own if name == "likelihood" and taken[name].default is not _Parameter.empty}
    order = [name for name in _SAMPLER if name in (data | prior | set(own)) - hidden]
    kind = get_type_hints(function).get("options")
    known = {**_LEFT_OUT, **(kind.declared() if kind else {})}
    known = {name: getattr(value, "default", value) for name, value in known.items()} | defaults
    if defaults.get("prior_model") == "fitc":
        del known["Z"]

    def parameter(name: str, kind: Any) -> inspect.Parameter:
        own_default = taken[name].default if name in taken else _Parameter.empty
        return _Parameter(name, kind, default=known.get(name, own_default))

    named = [name for name in (*own, *sorted(data | prior), *(kind.declared() if kind else ())) if name not in order]
    named = [name for name in named if name != "n_classes"]
    positional = [parameter(name, _Parameter.POSITIONAL_OR_KEYWORD) for name in order]

    @wraps(function)
    def asked(*given: Any, **rest: Any) -> Any:
        values = defaults | named_values(function.__name__, order, given, rest)
        parts = [{name: values.pop(name) for name in names & set(values)} for names in (set(own), data, prior)]
        if kind:  # what is left is theirs
            parts[0]["options"] = kind(**values)
        elif values:
            raise TypeError(f"{function.__name__}: found {sorted(values)}, expected none of them")
        return function(data=of_gibbs.Data(**parts[1]), prior=of_gibbs.Prior(**parts[2]), **parts[0])

    asked.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*positional, *(parameter(name, _Parameter.KEYWORD_ONLY) for name in named)]
    )
    return asked
