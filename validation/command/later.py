"""Commands that are loaded when they are called: `triad --help` lists them without what they compute with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

# The text of a command's help is a plain one, on every terminal and in every file.
STYLE: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}

_loaders: dict[str, Callable[[], Callable[..., Any]]] = {}


class Commands(TyperGroup):
    """A group in which `later` registers a name and a line of help; the command itself is loaded when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that was asked for, with its own options."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, (command if name not in _loaders else _loaded(name)), rest


def later(app: typer.Typer, name: str, summary: str, load: Callable[[], Callable[..., Any]]) -> None:
    """Register a command of `app` by name and by the first line of its help; `load` imports it and returns it."""
    _loaders[name] = load
    app.command(name, help=summary)(_stands_for(name))


def _loaded(name: str) -> Any:
    alone = typer.Typer(**STYLE)
    alone.command(name)(_loaders[name]())
    return get_command(alone)


def _stands_for(name: str) -> Callable[[], None]:
    def stub() -> None:
        raise AssertionError(f"{name}: found its stub called, expected the command itself")

    return stub
