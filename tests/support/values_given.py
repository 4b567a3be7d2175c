"""Arguments of a test's model as the methods of `fast` take them: data, prior and options."""

from __future__ import annotations

from typing import get_type_hints

from fast.core.values import Data, Prior

_DATA, _PRIOR = ("X", "y"), ("variance", "lengthscales", "noise", "jitter", "Z")
_NAMED = ("shared", "smoothness")


def model_values(model):
    """Data and prior of a model whose attributes are the fields of the two."""
    return _split(vars(model))[:2]


def options_of(function):
    """The class of the options that a method takes."""
    return get_type_hints(function)["options"]


def binary(options, *given, **named):
    """Data, prior and options of a method of one latent function, from arguments in the order of the fields."""
    return _made(options, (*_DATA, *_PRIOR), given, named)


def classes(options, *given, **named):
    """The same of several classes: their number is the third argument, epsilon the last."""
    return _made(options, (*_DATA, "n_classes", *_PRIOR, "epsilon"), given, named)


def _made(options, order, given, named):
    data, prior, rest = _split(dict(zip(order, given, strict=False)) | named)
    return data, prior, options(**rest)


def _split(values):
    data = {name: values[name] for name in (*_DATA, "n_classes") if name in values}
    prior = {name: values[name] for name in (*_PRIOR, *_NAMED) if name in values}
    rest = {name: value for name, value in values.items() if name not in data and name not in prior}
    return Data(**data), Prior(**prior), rest


def fitted(module, *given, **named):
    """What `module.fit` of several classes answers to arguments in the order of the fields."""
    return module.fit(*classes(type(module.DEFAULTS), *given, **named))
