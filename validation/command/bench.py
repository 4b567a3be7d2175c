"""`triad bench`: measure, print, and say what each ratio is taken to."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from validation.bench import (
    blas_threads,
    evidence,
    izmailov,
    nested_ep,
    nuts,
    peers_multiclass,
    recorded,
    scale,
    villacampa,
    villacampa2020,
    x_gpc,
    x_gpc_svi,
)
from validation.bench import peers as peer_programs
from validation.bench.measure import MET, Row
from validation.bench.quality import command as quality
from validation.bench.quality import table as quality_table
from validation.bench.quality.run import Asked
from validation.door.quoting import shown
from validation.door.solve import versions
from validation.jobs.job import HELP
from validation.screen.forecast import Steps
from validation.screen.terminal import Grid, columns_of, folded, say

BENCHES: dict[str, Callable[[], Iterable[Row]]] = {
    "x-gpc/sweep": x_gpc.sweep,
    "x-gpc-svi/step": x_gpc_svi.step,
    "x-gpc-svi/length": x_gpc_svi.step_against_n,
    "x-gpc-svi/memory": x_gpc_svi.memory_map,
    "vi-jj/iteration": izmailov.iteration,
    "vi-jj/exponents": izmailov.exponents,
    "vi-jj/memory": izmailov.memory_map,
    "nested-ep/step": nested_ep.step,
    "nested-ep/fixed-point": nested_ep.fixed_point,
    "nested-ep/exponents": nested_ep.exponents,
    "gibbs/polya-gamma": x_gpc.polya_gamma,
    "gibbs/chains": x_gpc.chains,
    "sep/step": villacampa.step,
    "sep/length": villacampa.step_against_n,
    "sep/memory": villacampa.memory_map,
    "apep/step": villacampa2020.step,
    "apep/length": villacampa2020.step_against_n,
    "apep/classes": villacampa2020.step_against_classes,
    "blas-threads/rule": blas_threads.rule,
    "scale": scale.scale,
    "peers": peer_programs.peers,
    "peers/multiclass": peers_multiclass.peers,
    "peers/classes-step": peers_multiclass.classes_step,
    "peers/robust": peers_multiclass.robust,
    "gibbs/nuts": nuts.nuts,
    "truth/evidence": evidence.evidence,
}
BY_NAME = (
    "scale",
    "peers",
    "peers/multiclass",
    "peers/classes-step",
    "peers/robust",
    "gibbs/nuts",
    "truth/evidence",
)  # measured only when asked for: they take minutes, and packages that nothing else needs

QUALITY = "quality"  # a table of its own, with options of its own


LEAGUE = "league"  # of other libraries, recorded


def bench(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="a bench by name, quality or league; repeatable"),
    ] = None,
    stored: Annotated[bool, typer.Option("--stored", help="show the measurements that ship")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON only")] = False,
) -> None:
    """Measure speed and memory as ratios to a floor of the same run, or show those that ship.

    --only quality measures every classifier on real data (hours) and --only league shows how far other libraries are
    from the truth.
    """
    if only == [LEAGUE]:
        from validation.command.peers import league

        league(as_json=as_json)
        return
    maintain(only, as_json=as_json, stored=stored)


def maintain(
    only: Annotated[list[str] | None, typer.Option("--only", help="a bench by name; repeatable")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
    rows: Annotated[int | None, typer.Option("--rows", min=20, help="quality: training rows at most [1500]")] = None,
    sets: Annotated[list[str] | None, typer.Option("--sets", help="quality: a data set by name; repeatable")] = None,
    classifiers: Annotated[
        list[str] | None, typer.Option("--classifiers", help="quality: a classifier or peer by name; repeatable")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.1, help="quality: processor time that a fit may take [300]")
    ] = None,
    folds: Annotated[int | None, typer.Option("--folds", min=2, help="quality: parts of a set [3]")] = None,
    run: Annotated[int | None, typer.Option("--run", min=1, help="quality: how many of them are run [all]")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="quality: of folds and classifiers [0]")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="quality: folder of the table and the fits [results/quality]")
    ] = None,
    stored: Annotated[
        bool, typer.Option("--stored", help="show the measurements that ship; quality: the table that ships")
    ] = False,
    table: Annotated[Path | None, typer.Option("--from", help="quality: show the table in this folder")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="quality, and with --stored: as the docs show it")
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="write what is measured to this .json, bench by bench"),
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="quality: fits at once [2]")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help=f"quality: {HELP}")] = None,
) -> None:
    """As `triad bench`, with the options of quality and files of measurements."""
    making = {"--rows": rows, "--sets": sets, "--classifiers": classifiers, "--seconds": seconds, "--folds": folds,
              "--run": run, "--seed": seed, "--output": output, "--jobs": jobs, "--cluster": cluster}  # fmt: skip
    reading = {"--stored": stored or None, "--from": table}
    given = [name for name, value in (making | reading | {"--markdown": markdown or None}).items() if value is not None]
    if QUALITY not in (only or []):
        if stored:
            clash = [name for name in given if name not in ("--stored", "--markdown")]
            clash += [] if record is None else ["--record"]
            if clash:
                raise typer.BadParameter(f"found {', '.join(clash)} with --stored, expected no such option")
            text = recorded.shown(recorded.STORED, only or (), markdown=markdown, as_json=as_json)
            if markdown or as_json:
                sys.stdout.write(text)
            else:
                width = columns_of(Console())
                lines = [folded(line.strip(), width, len(line) - len(line.lstrip())) for line in text.splitlines()]
                sys.stdout.write("\n".join([*lines, ""]))
            return
        if given:
            raise typer.BadParameter(f"found {', '.join(given)}, expected it with --only {QUALITY}")
    elif record is not None:
        raise typer.BadParameter(f"found --record with --only {QUALITY}, expected --output with it")
    elif len(only or []) > 1:
        raise typer.BadParameter(f"found --only {QUALITY} beside others, expected it alone: it is another table")
    else:
        folder = quality_table.stored() if stored else table
        if folder is not None:
            clash = [name for name in given if name in making or (name == "--from" and stored)]
            if clash:
                raise typer.BadParameter(
                    f"found {', '.join(clash)} with a table that is there, expected no such option"
                )
            quality.read(folder, markdown=markdown, as_json=as_json)
            return
        options: dict[str, Any] = {"rows": rows, "budget": seconds, "seed": seed, **Asked.parts(folds, run)}
        asked = Asked(tuple(classifiers or ()), tuple(sets or ()))._replace(
            **{name: value for name, value in options.items() if value is not None}
        )
        quality.made(asked, quality.Where(output or quality.OUTPUT, cluster, jobs), markdown=markdown, as_json=as_json)
        return
    for name in only or []:
        if name not in BENCHES:
            close = get_close_matches(name, (*BENCHES, QUALITY, LEAGUE), n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise typer.BadParameter(
                f"found {shown(name)}, expected one of {', '.join((*BENCHES, QUALITY, LEAGUE))}{hint}"
            )
    _measured(only or [name for name in BENCHES if name not in BY_NAME], as_json=as_json, record=record)


def _measured(names: Iterable[str], *, as_json: bool, record: Path | None) -> None:
    """Run benches; rows are printed as they are known, recorded bench by bench, and an interrupt keeps those there."""
    listed = list(names)
    progress, console, steps = Console(stderr=True), Console(), Steps(listed)
    known: list[Row] = []
    try:
        if not as_json:
            _heading(console)
        for name in listed:
            say(progress, f"measuring {name} ({steps.begin()})")
            before = len(known)
            for row in BENCHES[name]():
                known.append(row)
                if not as_json:
                    _line(console, row)
            if record is not None:
                recorded.add(record, name, known[before:], machine())
    finally:
        if as_json:
            text = json.dumps({"machine": machine(), "rows": [row._asdict() for row in known]}, indent=2)
            sys.stdout.write(text + "\n")
        else:
            for row in known:
                if row.floor:
                    say(console, f"{row.bench}: the floor is {'; '.join(row.floor)}")


_GRID = Grid(("bench", "value", "met", "quantity", "asked"), 3)
# as wide as a line may come: rows are printed before the others are known
_WIDEST = (max(map(len, BENCHES)) * "b", "0.0000 nat", "yes", 120 * "q", 12 * "a")


def _heading(console: Console) -> None:
    for key, value in machine().items():
        say(console, f"{key}: {value}")
    console.print("\n".join(_GRID.lines([_WIDEST], columns_of(console))[0]), style="bold", soft_wrap=True)


def _line(console: Console, row: Row) -> None:
    cells = (row.bench, f"{row.value:.4g} {row.unit}".strip(), MET[row.met], row.quantity, row.target)
    text = "\n".join(_GRID.lines([_WIDEST, cells], columns_of(console))[2])
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def machine() -> dict[str, str]:
    """What the numbers were measured on and with."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    threads = os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or "default"
    return {
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
        "BLAS": f"{blas.get('name')} {blas.get('version')}, threads: {threads}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
