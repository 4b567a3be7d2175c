"""Numbers that papers print, read from the tables beside this module: shown beside ours, never compared by a check."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def published(paper: str, name: str) -> dict[str, Any]:
    """What the paper prints in a table or figure: the contents of PAPER/NAME.toml."""
    path = Path(__file__).parent / paper / f"{name}.toml"
    with path.open("rb") as stream:
        return tomllib.load(stream)
