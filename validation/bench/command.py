"""`triad bench`: measure, print, and say what each ratio is taken to."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from validation.bench import (
    blas_threads,
    izmailov,
    nested_ep,
    peers_multiclass,
    scale,
    villacampa,
    villacampa2020,
    x_gpc,
    x_gpc_svi,
)
from validation.bench import peers as peer_programs
from validation.bench.measure import Row
from validation.quoting import shown
from validation.solve import versions

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
}
BY_NAME = (
    "scale",
    "peers",
    "peers/multiclass",
)  # measured only when asked for: they take minutes, and packages that nothing else needs


def bench(
    only: Annotated[list[str] | None, typer.Option("--only", help="a bench by name; repeatable")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
) -> None:
    """Measure speed and memory as ratios to a floor of the same run (best of several; takes a minute)."""
    for name in only or []:
        if name not in BENCHES:
            close = get_close_matches(name, BENCHES, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise typer.BadParameter(f"found {shown(name)}, expected one of {', '.join(BENCHES)}{hint}")
    progress = Console(stderr=True)
    rows: list[Row] = []
    for name in only or [name for name in BENCHES if name not in BY_NAME]:
        progress.print(f"measuring {name} ...")
        rows += BENCHES[name]()
    if as_json:
        sys.stdout.write(json.dumps({"machine": machine(), "rows": [row._asdict() for row in rows]}, indent=2) + "\n")
        return
    console = Console()
    for key, value in machine().items():
        console.print(f"{key}: {value}")
    table = Table("bench", "quantity", "value", "asked", "met", box=None)
    for row in rows:
        met = "" if row.met is None else "yes" if row.met else "no"
        table.add_row(row.bench, row.quantity, f"{row.value:.4g} {row.unit}".strip(), row.target, met)
    console.print(table)
    for row in rows:
        if row.floor:
            console.print(f"{row.bench}: the floor is {'; '.join(row.floor)}", soft_wrap=True)


def machine() -> dict[str, str]:
    """What the numbers were measured on and with."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    threads = os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or "default"
    return {
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
        "BLAS": f"{blas.get('name')} {blas.get('version')}, threads: {threads}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
