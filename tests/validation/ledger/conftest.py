"""A witness of a few lines, with tests, an inventory and its faults, to audit the audit."""

from __future__ import annotations

import importlib
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from validation.ledger.audit import Sources
from validation.ledger.inventory import Inventory, read_paper
from validation.ledger.registry import Package

MARKER = """
import functools

hook = None


def equation(paper, *ids, as_printed=False):
    def mark(function):
        @functools.wraps(function)
        def routed(*args, **kwargs):
            output = function(*args, **kwargs)
            return output if hook is None else hook(routed, output)

        routed.__equations__ = tuple((paper, name) for name in ids)
        routed.__as_printed__ = as_printed
        return routed

    return mark
"""

# Without the two plugins a pytest of its own starts in half the time, and there are some sixty of them.
PROJECT = """
[project]
name = "toy"

[tool.pytest.ini_options]
addopts = ["--import-mode=importlib", "--strict-markers", "--strict-config",
    "-p", "no:xdist", "-p", "no:hypothesispytest"]
filterwarnings = ["error"]
xfail_strict = true
markers = ["verifies(paper, *ids, route, resolves=None, printed=False): checks an equation", "slow: takes long"]
"""

ENTRY = """
[[entry]]
id = "{id}"
section = "2"
title = "Display {id}, a | b with f_i"
kind = "definition"
inputs = ["x (n,)"]
outputs = ["y (n,)"]
function = "f{id}"
"""

_numbers = itertools.count()


def paper_text(key: str, ids: str, complete: bool = False) -> str:
    """The inventory of an invented paper with one entry per word of ids."""
    head = f'[paper]\nkey = "{key}"\ntitle = "T"\nauthors = "A. Uthor"\nyear = 2000\nvenue = "V"\n'
    return head + f"complete = {str(complete).lower()}\n" + "".join(ENTRY.format(id=id) for id in ids.split())


Build = Callable[..., Sources]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Write a package `toyN` (its modules), its tests, an inventory of paper `toy`, and give the sources.

    In the texts `toy.` stands for the package's name, which differs from test to test: modules stay imported.
    """
    names: list[str] = []

    def make(
        modules: Mapping[str, str],
        tests: Mapping[str, str],
        ids: str = "1 2 3",
        complete: bool = False,
        allowed: Mapping[tuple[str, str], str] | None = None,
        slips: str = "",
    ) -> Sources:
        name = f"toy{next(_numbers)}"
        names.append(name)
        header = f"import pytest\nfrom {name} import *\n"
        files = {f"{name}/__init__.py": "", f"{name}/ledger.py": MARKER, "pyproject.toml": PROJECT}
        files |= {
            f"{name}/{module}.py": f"from {name}.ledger import equation\n" + textwrap.dedent(text)
            for module, text in modules.items()
        }
        for place, text in tests.items():
            files[f"tests/{place.replace('toy', name)}.py"] = header + textwrap.dedent(text)
        for place, text in files.items():
            file = tmp_path / name / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("toy.", f"{name}."), encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path / name))
        importlib.invalidate_caches()
        papers = {"toy": read_paper(paper_text("toy", ids, complete) + slips, "toy")}
        return Sources(Inventory(papers, allowed or {}), (Package(name, f"{name}.ledger"),), tmp_path / name)

    yield make
    for module in [item for item in sys.modules if item.partition(".")[0] in names]:
        del sys.modules[module]
