"""Puts changed modules in place of those on disk while a process imports them; no file changes.

The environment names a plan, so that it also holds in the processes that tests start (`sitecustomize.py`). A plan
replaces the text of a module, or puts points before statements: a point that is passed is written to a file, with the
test that was running.
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import json
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

PACKAGES = ("fast", "gibbs", "reference")
PLAN, MARK = "TRIAD_PLAN", "TRIAD_MARK"  # variables: a file, what is running
_POINT = "__passed__"


class Passed:
    """Called by each point with its number; writes a line for each pair of number and mark, once."""

    def __init__(self, path: str) -> None:
        self.mark = os.environ.get(MARK, "")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._known: set[tuple[int, str]] = set()

    def __call__(self, number: int) -> None:
        """Note that the point was passed."""
        if (number, self.mark) not in self._known:
            self._known.add((number, self.mark))
            os.write(self._file, f"{number}\t{self.mark}\n".encode())

    def switch(self, mark: str) -> None:
        """From now on, here and in processes started from here, points belong to this mark."""
        self.mark = os.environ[MARK] = mark


class _Loader(SourceFileLoader):
    """Compiles what the plan says instead of the file, and reads no cached bytecode."""

    def __init__(self, name: str, path: str, text: str | None, points: dict[int, list[int]]) -> None:
        super().__init__(name, path)
        self._text, self._points = text, points

    def get_code(self, fullname: str) -> CodeType:
        """The changed module, under the file's own name and lines so that tracebacks point there."""
        tree = ast.parse(Path(self.path).read_text(encoding="utf-8") if self._text is None else self._text)
        for node in list(ast.walk(tree)) if self._points else ():
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list):
                    setattr(node, name, [new for old in block for new in (*self._before(old), old)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # `is` with a literal: what the program does is the question
            return compile(tree, self.path, "exec", dont_inherit=True)

    def _before(self, statement: ast.stmt) -> list[ast.stmt]:
        calls = [ast.parse(f"{_POINT}({number})").body[0] for number in self._points.get(statement.lineno, ())]
        for call in calls:
            for node in ast.walk(call):
                ast.copy_location(node, statement)
        return calls


class _Finder:
    def __init__(self, texts: dict[str, str], points: dict[str, dict[int, list[int]]]) -> None:
        self._texts, self._points = texts, points

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The changed module for its own name, nothing for any other."""
        if name not in self._texts and name not in self._points:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"module: found no source of {name!r}, expected it on the path", name=name)
        spec.loader = _Loader(name, spec.origin, self._texts.get(name), self._points.get(name, {}))
        return spec


def plan() -> dict[str, Any]:
    """The plan of this process; empty without one."""
    path = os.environ.get(PLAN)
    return dict(json.loads(Path(path).read_text(encoding="utf-8"))) if path else {}


def start() -> None:
    """From now on imports in this process follow the plan.

    Raises
    ------
    RuntimeError    if a module of the plan has been imported already: the one on disk would stay in place
    """
    known = plan()
    texts = known.get("texts", {})
    points = {
        name: {int(line): numbers for line, numbers in lines.items()} for name, lines in known.get("points", {}).items()
    }
    for name in (*texts, *points):
        if name in sys.modules:
            raise RuntimeError(f"module: found {name!r} imported already, expected a fresh process")
    if points:
        setattr(builtins, _POINT, Passed(known["passed"]))
    sys.meta_path.insert(0, _Finder(texts, points))


def passed() -> Passed | None:
    """What notes the points of this process, if its plan has any."""
    return getattr(builtins, _POINT, None)
