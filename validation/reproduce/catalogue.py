"""Where the experiments are: importing a module of a paper registers what it holds."""

from __future__ import annotations

import importlib

MODULES = (
    "validation.reproduce.wenzel2019.fig1",
    "validation.reproduce.wenzel2019.table1",
    "validation.reproduce.wenzel2019.fig3",
    "validation.reproduce.izmailov2016.curves",
)


def load() -> None:
    """Register all experiments."""
    for module in MODULES:
        importlib.import_module(module)
