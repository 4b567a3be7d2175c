"""Where the experiments are: importing a module of a paper registers what it holds."""

from __future__ import annotations

import importlib

MODULES = tuple(f"validation.reproduce.wenzel2019.{name}" for name in ("fig1", "table1", "fig3"))


def load() -> None:
    """Register all experiments."""
    for module in MODULES:
        importlib.import_module(module)
