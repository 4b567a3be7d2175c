"""One name, one quantity: public parameters of the witnesses come from docs/symbols.toml, and are documented."""

import importlib
import inspect
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SYMBOLS = tomllib.loads((ROOT / "docs" / "symbols.toml").read_text(encoding="utf-8"))
WITNESSES = ("reference", "fast", "gibbs")


def public_functions(package_name):
    """(qualified name, function) of every public function defined in a package."""
    package = importlib.import_module(package_name)
    for module_info in pkgutil.walk_packages(package.__path__, package_name + "."):
        if any(part.startswith("_") for part in module_info.name.split(".")):
            continue
        module = importlib.import_module(module_info.name)
        for name, value in vars(module).items():
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
                yield f"{module.__name__}.{name}", value


def problems_of(name, function, symbols):
    """What the vocabulary has against a function."""
    results = []
    doc = inspect.getdoc(function) or ""
    for parameter in inspect.signature(function).parameters:
        if parameter not in symbols:
            results.append(f"{name}: found the parameter {parameter!r}, expected a name of docs/symbols.toml")
        elif not re.search(rf"(?<!\w){re.escape(parameter)}(?!\w)", doc):
            results.append(f"{name}: found no word on the parameter {parameter!r} in the docstring")
    if not doc:
        results.append(f"{name}: found no docstring")
    return results


@pytest.mark.parametrize("package", WITNESSES)
def test_every_public_parameter_is_in_the_vocabulary_and_documented(package):
    results = [line for name, f in public_functions(package) for line in problems_of(name, f, SYMBOLS)]
    assert results == []


def test_the_vocabulary_says_shape_and_meaning_of_each_word():
    assert [word for word, entry in SYMBOLS.items() if set(entry) != {"shape", "meaning"}] == []


def test_a_foreign_word_and_a_silent_docstring_are_seen():
    def function(X, wibble):
        """Say nothing."""

    assert len(problems_of("f", function, SYMBOLS)) == 2
