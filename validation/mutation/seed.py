"""Puts a mutant in place of a module while a process imports it; no file changes."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

from validation.quoting import shown


class _Loader(SourceFileLoader):
    """Compiles the text it was given instead of the file's, and looks at no cached bytecode."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        """The mutant, under the file's own name so that tracebacks and coverage point there."""
        return compile(self._text, self.path, "exec", dont_inherit=True)


class _Finder:
    def __init__(self, module: str, text: str) -> None:
        self._module, self._text = module, text
        self.loaded = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The mutant for its own module, nothing for any other."""
        if name != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"module: found no source of {name!r}, expected it on the path", name=name)
        self.loaded = True
        spec.loader = _Loader(name, spec.origin, self._text)
        return spec


def plant(module: str, text: str) -> _Finder:
    """From now on `import module` in this process gives `text`; `.loaded` of the result says whether it was imported.

    Raises
    ------
    RuntimeError    if the module has been imported already: the healthy one would stay in place
    """
    if module in sys.modules:
        raise RuntimeError(f"module: found {shown(module)} imported already, expected a fresh process")
    finder = _Finder(module, text)
    sys.meta_path.insert(0, finder)
    return finder
