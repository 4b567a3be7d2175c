"""Commands that are loaded when they are called: `triad --help` lists them without what they compute with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer
from typer.core import TyperGroup
from typer.main import get_command

# The text of a command's help is a plain one, on every terminal and in every file.
STYLE: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
METAVARS = {int: "N", float: "X", Path: "PATH"}  # of options; TEXT for all others

_loaders: dict[str, Callable[[], Callable[..., Any]]] = {}


class Commands(TyperGroup):
    """A group in which `later` registers a name and a line of help; the command itself is loaded when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of that name, with its own options."""
        name, command, rest = super().resolve_command(ctx, args)
        load = _loaders.get(f"{self.name} {name}")
        return name, with_plain_metavars(command if load is None else _loaded(str(name), load)), rest


def group(app: typer.Typer, name: str, summary: str) -> typer.Typer:
    """Add a group of commands to `app`; alone it prints its help."""
    made = typer.Typer(name=name, cls=Commands, help=summary, invoke_without_command=True, **STYLE)

    @made.callback()
    def alone(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    app.add_typer(made, name=name, help=summary)
    return made


def later(app: typer.Typer, name: str, summary: str, load: Callable[[], Callable[..., Any]]) -> None:
    """Register a command of `app` by name and by the first line of its help; `load` imports it and returns it."""
    _loaders[f"{app.info.name} {name}"] = load
    app.command(name, help=summary)(_stands_for(name))


def with_plain_metavars(command: Any) -> Any:
    """The command, whose arguments are named in capitals and whose options take PATH, N, X or TEXT."""
    hints = get_type_hints(inspect.unwrap(command.callback)) if command.callback is not None else {}
    for parameter in command.params:
        if parameter.metavar is None and parameter.param_type_name == "argument":
            parameter.metavar = parameter.name.upper()
        elif parameter.metavar is None and not parameter.is_flag:
            hint = hints.get(parameter.name)
            kinds = (hint, *get_args(hint))
            parameter.metavar = next((name for kind, name in METAVARS.items() if kind in kinds), "TEXT")
    return command


def _loaded(name: str, load: Callable[[], Callable[..., Any]]) -> Any:
    alone = typer.Typer(**STYLE)
    alone.command(name)(load())
    return get_command(alone)


def _stands_for(name: str) -> Callable[[], None]:
    def stub() -> None:
        raise AssertionError(f"{name}: found its stub called, expected the command itself")

    return stub
