"""What the Makefile and the documentation call: `python -m validation.command.maintain COMMAND`.

These commands have the options of `triad` and those that write records, pages and pictures of this repository.
"""

from __future__ import annotations

import sys

import typer

from validation.command import bench, claims, ledger, peers, reproduce, truth, truths, verify
from validation.command.cli import main
from validation.command.later import STYLE
from validation.door.options import markdown

app = typer.Typer(
    name="maintain", help="Tools of those who maintain GPC Triad; `make help` lists the usual ones.", **STYLE
)


@app.command("options")
def options() -> None:
    """Write docs/options.md to stdout: the options of all methods."""
    sys.stdout.write(markdown())


app.command("audit")(ledger.maintain)
app.command("bench")(bench.maintain)
app.command("claims")(claims.claims)
app.command("league")(peers.league)
app.command("record")(verify.record)
app.command("reproduce")(reproduce.reproduce)
app.command("truth")(truth.truth)
app.command("truths")(truths.truths)

if __name__ == "__main__":
    main(app, "python -m validation.command.maintain")
