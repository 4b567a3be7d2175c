"""What an audit read, kept beside the repository: read again only when a byte of what it depends on has changed.

Importing four packages and collecting all tests takes half a minute, and says the same as long as no file changes. The
key is the sha256 of every file of the packages, the tests and the docs, of the files at the top of the repository, of
the versions of all installed distributions and of Python; nothing else that is read is younger than that. Only a
collection without problems is kept. The file is written whole or not at all, and one that cannot be read, or is of
another key, counts for nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from validation.ledger.collection import Claim, Collection, MarkedTest
from validation.ledger.registry import Function, Package, Registry

FILE = Path(".triad_cache") / "ledger.json"
SCHEMA = 1


def key(root: Path, packages: Sequence[Package]) -> str:
    """What the reading of these packages and of root/tests depends on, as one sum."""
    result = hashlib.sha256(f"{SCHEMA} {sys.version} {platform.platform()} {packages!r}".encode())
    for name in sorted(f"{entry.name}=={entry.version}" for entry in distributions()):
        result.update(f"{name}\n".encode())
    for name in sorted(os.environ):
        if name.startswith("TRIAD_") or name == "PYTHONPATH":
            result.update(f"{name}={os.environ[name]}\n".encode())
    for file in _files(root, packages):
        content = file.read_bytes()
        result.update(f"{file} {len(content)}\n".encode())
        result.update(content)
    return result.hexdigest()


def _files(root: Path, packages: Sequence[Package]) -> Iterator[Path]:
    folders = {root / "tests", root / "docs"}
    for package in packages:
        spec = importlib.util.find_spec(package.name)
        if spec is not None:
            folders |= {Path(place) for place in spec.submodule_search_locations or ()}
            folders |= {Path(spec.origin)} if spec.origin is not None and not spec.submodule_search_locations else set()
    yield from sorted(path for path in root.iterdir() if path.is_file())
    for folder in sorted(folders):
        for place, below, names in os.walk(folder):
            below[:] = sorted(name for name in below if name not in ("__pycache__", "_build"))
            # a link to nowhere, as editors leave beside an open file, has no content
            yield from (path for path in (Path(place) / name for name in sorted(names)) if path.is_file())


def load(root: Path, wanted: str) -> tuple[Registry, Collection] | None:
    """What was kept under this key, or None."""
    try:
        held = json.loads((root / FILE).read_text(encoding="utf-8"))
        if held["key"] != wanted:
            return None
        functions = tuple(_function(row) for row in held["functions"])
        tests = tuple(
            MarkedTest(**{**row, "claims": tuple(Claim(**claim) for claim in row["claims"])}) for row in held["tests"]
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return Registry(functions, ()), Collection(tests, ())


def save(root: Path, wanted: str, functions: Registry, tests: Collection) -> None:
    """Keep what was read, unless something was wrong with it; a folder that cannot be written to keeps nothing."""
    if functions.problems or tests.problems:
        return
    from validation.storage import write_text  # loads NumPy, which what is kept is read without

    held = {
        "key": wanted,
        "functions": [_row(function) for function in functions.functions],
        "tests": [asdict(test) for test in tests.tests],
    }
    with suppress(OSError):
        write_text(root / FILE, json.dumps(held))


def _row(function: Function) -> dict[str, Any]:
    return {
        "package": function.package,
        "address": function.address,
        "equations": [list(equation) for equation in function.equations],
        "as_printed": function.as_printed,
        "file": function.file,
        "line": function.line,
        "told": function.summary,
    }


def _function(row: dict[str, Any]) -> Function:
    equations = tuple((paper, id) for paper, id in row["equations"])
    return Function(**{**row, "equations": equations, "object": None})
