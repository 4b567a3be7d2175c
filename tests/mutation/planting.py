"""Puts a changed text in place of a module while a process imports it; no file changes."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType


class _Loader(SourceFileLoader):
    """Compiles the text it was given instead of the file's, and reads no cached bytecode."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        """The changed module, under the file's own name so that tracebacks and coverage point there."""
        return compile(self._text, self.path, "exec", dont_inherit=True)


class _Finder:
    def __init__(self, module: str, text: str) -> None:
        self._module, self._text = module, text

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The changed text for its own module, nothing for any other."""
        if name != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"module: found no source of {name!r}, expected it on the path", name=name)
        spec.loader = _Loader(name, spec.origin, self._text)
        return spec


def plant(module: str, text: str) -> None:
    """From now on `import module` in this process gives `text`.

    Raises
    ------
    RuntimeError    if the module has been imported already: the healthy one would stay in place
    """
    if module in sys.modules:
        raise RuntimeError(f"module: found {module!r} imported already, expected a fresh process")
    sys.meta_path.insert(0, _Finder(module, text))
