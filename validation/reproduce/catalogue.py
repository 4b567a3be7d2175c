"""Where the experiments are: importing a module of a paper registers what it holds."""

from __future__ import annotations

import importlib
from importlib.resources import files
from typing import Any

from validation.claims.results import FOLDER, read_cards
from validation.reproduce import experiment

MODULES = (
    "validation.reproduce.wenzel2019.fig1",
    "validation.reproduce.wenzel2019.table1",
    "validation.reproduce.wenzel2019.fig2",
    "validation.reproduce.wenzel2019.fig3",
    "validation.reproduce.wenzel2019.trials",
    "validation.reproduce.wenzel2019.sizes",
    "validation.reproduce.izmailov2016.curves",
    "validation.reproduce.izmailov2016.sets",
    "validation.reproduce.izmailov2016.trials",
    "validation.reproduce.riihimaki2013.fig1",
    "validation.reproduce.riihimaki2013.table1",
    "validation.reproduce.riihimaki2013.table2",
    "validation.reproduce.riihimaki2013.fig2",
    "validation.reproduce.riihimaki2013.fig5",
    "validation.reproduce.riihimaki2013.fig7",
    "validation.reproduce.riihimaki2013.fig8",
    "validation.reproduce.riihimaki2013.fig9",
    "validation.reproduce.riihimaki2013.table3",
    "validation.reproduce.riihimaki2013.trials",
    "validation.reproduce.riihimaki2013.times",
    "validation.reproduce.villacampa2017.fig1",
    "validation.reproduce.villacampa2017.table2",
    "validation.reproduce.villacampa2017.fig3",
    "validation.reproduce.villacampa2017.fig4",
    "validation.reproduce.villacampa2017.fig5",
    "validation.reproduce.villacampa2017.trials",
    "validation.reproduce.millions",
    "validation.reproduce.villacampa2017.averages",
    "validation.reproduce.villacampa2017.updates",
    "validation.reproduce.villacampa2020.fig1",
    "validation.reproduce.villacampa2020.fig2",
    "validation.reproduce.villacampa2020.fig3",
    "validation.reproduce.villacampa2020.trials",
    "validation.reproduce.villacampa2020.fig4",
    "validation.reproduce.villacampa2020.fig6",
    "validation.reproduce.villacampa2020.tablec",
    "validation.reproduce.villacampa2020.averages",
    "validation.reproduce.villacampa2020.tableb2",
)


def load() -> None:
    """Register all experiments."""
    for module in MODULES:
        importlib.import_module(module)


def module_of(paper: str, name: str) -> str:
    """The module of an experiment, for the fingerprint of its code."""
    load()
    return str(experiment.find(paper, name).run.__module__)


def stale(folder: Any = None) -> dict[str, list[str]]:
    """Results with runs that other code gave: name -> commands to run again."""
    folder = files("validation.claims") / FOLDER if folder is None else folder
    names = sorted(path.name.removesuffix(".csv") for path in folder.iterdir() if path.name.endswith(".csv"))
    listed = {}
    for name in names:
        paper, _, key = name.partition("-")
        module = module_of(paper, key)
        if commands := [card.command for card in read_cards(folder, name).values() if card.stale(module)]:
            listed[name] = commands
    return listed
