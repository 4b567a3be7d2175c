"""`triad truth list` and `show`: the library of truths, listed and filtered, and one truth with a picture.

`truths` makes what is missing too, makes some again from a fresh seed, and compares approximations with them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from validation.door.problem import LIKELIHOODS, PRIOR_MODELS
from validation.door.quoting import shown
from validation.door.statistics import LEVEL
from validation.jobs.run import Processes
from validation.ledger.inventory import nearest
from validation.screen.terminal import Grid, print_grid, say
from validation.truth import library, making, picture, remaking, rows, shelf
from validation.truth.card import EvidenceCard
from validation.truth.rows import STATES, Filter, Row

MISSED = 1


Likelihood = Annotated[str | None, typer.Option("--likelihood", help=f"one of {', '.join(LIKELIHOODS)}")]
PriorModel = Annotated[str | None, typer.Option("--prior", help="full or fitc")]
Classes = Annotated[int | None, typer.Option("--classes", min=2, help="number of classes")]
DataSet = Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="of a data set; may have wildcards")]
MaxN = Annotated[int, typer.Option("--max-n", min=0, help="largest number of data; 0: any")]
LogVariance = Annotated[float | None, typer.Option("--log-variance", help="of this log variance")]
Epsilon = Annotated[float | None, typer.Option("--epsilon", help="with this probability of a labelling error")]
State = Annotated[str | None, typer.Option("--state", help=f"one of {', '.join(STATES)}")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON only")]


def list_truths(
    likelihood: Likelihood = None,
    prior: PriorModel = None,
    classes: Classes = None,
    dataset: DataSet = None,
    max_n: MaxN = 0,
    state: State = None,
    as_json: AsJson = False,
) -> None:
    """List the library of truths."""
    truths(None, likelihood, prior, classes, dataset, max_n, state=state, as_json=as_json)


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a truth of the library")],
    as_json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="draw its marginals to this .svg or .png")
    ] = None,
    draws: Annotated[
        Path | None, typer.Option("--draws", metavar="FILE", help="sample it again, into this .npz")
    ] = None,
) -> None:
    """Show one truth: its evidence card, a picture, fresh draws."""
    truths(name, as_json=as_json, output=output, draws=draws)


def truths(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="a truth to show; without it all are listed")
    ] = None,
    likelihood: Likelihood = None,
    prior: PriorModel = None,
    classes: Classes = None,
    dataset: DataSet = None,
    max_n: MaxN = 0,
    log_variance: LogVariance = None,
    epsilon: Epsilon = None,
    state: State = None,
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="write a table of Markdown to stdout")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", help="with NAME: draw its marginals to this .svg or .png; with --approximations: the distances"
        ),
    ] = None,
    draws: Annotated[
        Path | None,
        typer.Option(
            "--draws", help="with NAME: draw from it afresh, into this .npz; without: from all, into this folder"
        ),
    ] = None,
    approximations: Annotated[
        bool, typer.Option("--approximations", help="how far each method is from the truths, as Markdown")
    ] = False,
    make: Annotated[
        bool, typer.Option("--make", help="make what the library defines and does not have, cheapest first")
    ] = False,
    only: Annotated[str | None, typer.Option("--only", help="with --make: names that match, as gp-*")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="with --make, --remake, --draws: processes")] = 1,
    longest: Annotated[
        float, typer.Option("--longest", help="with --make: seconds that one may be thought to take")
    ] = making.LONGEST,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="with --make: begin none after so many minutes")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="with --make: also those that missed their gates")] = False,
    remake: Annotated[
        int | None,
        typer.Option(
            "--remake", min=1, help="make so many, drawn at random, from a fresh seed; compare, store nothing"
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="with --remake: draws the truths and their draws")] = 1,
) -> None:
    """The library of truths: list it, show one, make what is missing or some again, compare approximations with it.

    Exit 1 if a truth fails its gates.
    """
    if as_json and markdown:
        raise typer.BadParameter("--json: found it with --markdown, expected one of them")
    wanted = Filter(
        only if make or remake else None, likelihood, prior, classes, dataset, max_n, log_variance, epsilon, state
    )
    _check(wanted)
    if approximations:
        if name is not None or make or as_json or draws is not None:
            raise typer.BadParameter("--approximations: found NAME, --make, --json or --draws, expected filters alone")
        _approximations(wanted, output)
        return
    if make:
        if name is not None or as_json or markdown or output is not None or draws is not None or remake is not None:
            raise typer.BadParameter(
                "--make: found NAME, --json, --markdown, --output, --draws or --remake, expected --only"
            )
        raise typer.Exit(_make(wanted, jobs, longest, minutes, again))
    if remake is not None:
        if name is not None or markdown or output is not None or draws is not None or again:
            raise typer.BadParameter(
                "--remake: found NAME, --markdown, --output, --draws or --again, expected filters, --json and --seed"
            )
        raise typer.Exit(_remake(wanted, remake, Remaking(seed, jobs, longest, minutes), as_json=as_json))
    if only is not None or minutes is not None or again:
        raise typer.BadParameter("--only, --minutes, --again: found one of them alone, expected --make with it")
    if name is None:
        if output is not None:
            raise typer.BadParameter("--output: found it without NAME, expected the truth that is drawn")
        listed = rows.chosen(wanted)
        if draws is not None:
            if as_json or markdown:
                raise typer.BadParameter("--draws: found it with --json or --markdown, expected filters and --jobs")
            _draw_all([row.name for row in listed if rows.state(row) == "made"], draws, jobs)
            return
        if as_json:
            _write_json([row._asdict() for row in listed])
        elif markdown:
            sys.stdout.write(rows.markdown(listed))
        else:
            _print(listed)
        return
    if wanted != Filter():
        raise typer.BadParameter(f"NAME: found {shown(name)} with a filter, expected one of them")
    _show(name, as_json=as_json, markdown=markdown, output=output)
    if draws is not None:
        _draw(name, draws, quiet=as_json or markdown)


def _check(wanted: Filter) -> None:
    """Refuse words that no row could match, with the nearest that one could."""
    known = {
        "likelihood": (*LIKELIHOODS, *library.SHORT.values()),
        "prior": PRIOR_MODELS,
        "state": STATES,
    }
    for key, values in known.items():
        value = getattr(wanted, key)
        if value is not None and value not in values:
            raise ValueError(f"--{key}: found {shown(value)}, expected {nearest(value, values)}")


# -- list ------------------------------------------------------------------------------------------------------------


def _print(listed: tuple[Row, ...]) -> None:
    """A table of at most 80 columns, and what its short forms stand for."""
    grid = Grid(("truth", "likelihood", "n", "C", "m", "v", "ε", "state"), 7, range(2, 7))
    cells = [
        (row.name, library.SHORT.get(row.likelihood, row.likelihood), str(row.n), str(row.n_classes),
         str(row.m or "-"), f"{row.log_variance:.3g}", f"{row.epsilon:g}" if row.epsilon else "-", rows.state(row))
        for row in listed
    ]  # fmt: skip
    console = Console(markup=False, emoji=False, highlight=False)
    print_grid(console, grid, cells)
    counts = ", ".join(f"{sum(row.state == one for row in listed)} {one}" for one in STATES)
    short = ", ".join(f"{word}: {long}" for long, word in library.SHORT.items())
    say(console, f"{len(listed)} posteriors: {counts}. m: inducing points (- full), v: log variance, ε: label errors.")
    say(console, f"{short}. A time is what a missing one is thought to take.")


def _approximations(wanted: Filter, output: Path | None) -> None:
    """The recorded distances on the truths that a filter admits, as a table, and with --output as a picture."""
    from validation.truth import approximations as record

    admitted = {row.name for row in rows.chosen(wanted)}
    listed = [row for row in record.recorded() if row.truth in admitted]
    if output is not None:
        picture.write(record.draw(listed), output)
    sys.stdout.write(record.markdown(listed))


# -- one truth -------------------------------------------------------------------------------------------------------


def _show(name: str, *, as_json: bool, markdown: bool, output: Path | None) -> None:
    row = next((row for row in rows.rows() if row.name == name), None)
    if row is None:
        raise LookupError(f"truth: found {shown(name)}, expected {nearest(name, [row.name for row in rows.rows()])}")
    card = shelf.full_card(name) if row.state == "made" else None
    if output is not None:
        if card is None:
            raise FileNotFoundError(f"{name}: found no file, expected it: `triad truth make {name}` makes it")
        picture.save(shelf.load(name), output)
    fields = _fields(row, card)
    if as_json:
        _write_json({"row": row._asdict(), "card": None if card is None else _card_values(card)})
        return
    if markdown:
        lines = ["| field | value |", "|---|---|", *(f"| {key} | {value} |" for key, value in fields)]
        sys.stdout.write("\n".join([*lines, ""]))
        return
    console = Console(markup=False, emoji=False, highlight=False)
    table = Table("field", "value", box=None, title=name, title_justify="left")
    for key, value in fields:
        table.add_row(key, value)
    console.print(table)
    if output is not None:
        console.print(str(output), soft_wrap=True)


def _draw(name: str, path: Path, *, quiet: bool) -> None:
    """Draw from a truth afresh, into a file."""
    from validation.truth import draws as drawing

    if path.suffix != ".npz":
        raise typer.BadParameter(f"--draws: found {shown(path.name)}, expected a name that ends in .npz")
    truth = shelf.load(name)
    if reason := drawing.refusal(truth):
        raise ValueError(f"--draws: {reason}")
    drawn = drawing.draw(truth.problem, truth.solution.method)
    drawn.save(path)
    if not quiet:
        r, s = drawn.latent.shape[:2]
        Console(markup=False, emoji=False, highlight=False).print(
            f"{path}: {r} chains x {s} draws, {drawn.sampler}", soft_wrap=True
        )


def _draw_all(names: Sequence[str], folder: Path, jobs: int) -> None:
    """Draw from each made truth into a folder, a line for each; what is there stays."""
    from validation.truth import draws as drawing

    if folder.is_file() or folder.suffix == ".npz":
        raise typer.BadParameter(f"--draws: found {shown(folder.name)} without NAME, expected a folder")
    if not names:
        raise ValueError("--draws: found no made truth that the filters admit, expected at least one")
    folder.mkdir(parents=True, exist_ok=True)
    console, errors = Console(markup=False, emoji=False, highlight=False), Console(stderr=True, markup=False)
    counts = dict.fromkeys(("drawn", "there", "left out"), 0)
    for done in drawing.draw_all(names, folder, Processes(jobs)):
        counts[done.what] += 1
        errors.print(f"{done.what} {done.name}: {done.line}", soft_wrap=True)
    console.print(f"{folder}: " + ", ".join(f"{count} {what}" for what, count in counts.items()), soft_wrap=True)


def _fields(row: Row, card: EvidenceCard | None) -> list[tuple[str, str]]:
    """The card as lines, or what is known of a posterior that is not made."""
    data = row.dataset + (": its rows are not in the file, $TRIAD_DATA has them" if row.withheld else "")
    fields = [("data set", data), ("route", row.route), ("log variance", f"{row.log_variance:.3g}")]
    if row.learn:
        fields.append(("sampled too", ", ".join(row.learn)))
    if card is None:
        text = f"refused: {row.reason}" if row.state == "refused" else f"missing; about {row.seconds:.0f} s to make"
        return [*fields, ("state", text)]
    verdict = "agrees" if card.agrees else "DISAGREES"
    second = "none"
    if card.second_z is not None and card.second_limit is not None:
        numbers = f"largest |z| {card.second_z:.2f} of {card.second_count}, limit {card.second_limit:.2f}"
        second = f"{card.second_route}: {verdict}, {numbers}"
    fields[1] = ("route", card.route)
    fields.insert(0, ("model", card.model))
    fields += [("gate", f"{card.gate}: {card.gate_reason}"), ("second route", second)]
    for label, (value, error, trusted) in card.evidence.items():
        fields.append(
            (f"log Z, {label}", f"{value:.4f} ± {error:.2g}" + ("" if trusted else ", does not trust itself"))
        )
    if card.evidence_note:
        limit = (
            ""
            if card.evidence_limit is None
            else f"; largest |z| {card.evidence_z:.2f}, limit {card.evidence_limit:.2f}"
        )
        fields.append(("log Z", card.evidence_note + limit))
    if card.mcse:
        fields.append(("largest error", ", ".join(f"{key} {value:.2g}" for key, value in card.mcse.items())))
    fields += [("seed", str(card.seed)), ("seconds", f"{card.seconds:.1f}")]
    fields.append(("sha256", card.problem_sha256[:16] + "..."))
    return fields


def _card_values(card: EvidenceCard) -> dict[str, Any]:
    from dataclasses import fields

    values = {entry.name: getattr(card, entry.name) for entry in fields(card)}
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _write_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


# -- make ------------------------------------------------------------------------------------------------------------


def _make(wanted: Filter, jobs: int, longest: float, minutes: float | None, again: bool) -> int:
    """Make what is missing; a line for each, and what is left out with its cost."""
    console, errors = Console(markup=False, emoji=False, highlight=False), Console(stderr=True, markup=False)
    admitted = _admitted(wanted)
    todo = making.missing(admitted.__contains__, longest, again)
    dear = making.missing(lambda name: name in admitted and library.get(name).seconds > longest, float("inf"), again)
    until = None if minutes is None else time.time() + 60.0 * minutes
    counts = dict.fromkeys(("made", "refused", "without data", "later"), 0)
    for outcome in making.make_all(todo, Processes(jobs), until):
        counts[outcome.what] += 1
        if outcome.what != "later":
            errors.print(f"{outcome.seconds:7.1f} s  {outcome.what} {outcome.name}: {outcome.line}", soft_wrap=True)
    console.print(", ".join(f"{count} {what}" for what, count in counts.items()) + f", {len(dear)} too long")
    for posterior in dear:
        console.print(
            f"  {posterior.name}: about {posterior.seconds / 60.0:.0f} min; --longest has it made", soft_wrap=True
        )
    return MISSED if counts["refused"] or counts["without data"] else 0


def _admitted(wanted: Filter) -> set[str]:
    """Names that the filters admit; LookupError if no name of the library fits `--only`."""
    if wanted.pattern is not None and not any(fnmatch(name, wanted.pattern) for name in library.posteriors()):
        raise LookupError(
            f"--only: found {shown(wanted.pattern)}, expected a pattern of names that `triad truth list` prints"
        )
    return {row.name for row in rows.rows() if wanted.admits(row)}


# -- make again ------------------------------------------------------------------------------------------------------


class Remaking(NamedTuple):
    """How truths are made again: seed, processes, the dearest that may be drawn (seconds), minutes to begin in."""

    seed: int
    jobs: int
    longest: float
    minutes: float | None


def _remake(wanted: Filter, count: int, how: Remaking, *, as_json: bool) -> int:
    """Make `count` truths again from another seed; a row for each, and 1 unless all that were made agree."""
    names = remaking.lot(remaking.candidates(_admitted(wanted).__contains__, how.longest), count, how.seed)
    until = None if how.minutes is None else time.time() + 60.0 * how.minutes
    console = Console(markup=False, emoji=False, highlight=False)
    errors = Console(stderr=True, markup=False)
    results = []
    for done in remaking.remake_all(names, how.seed, Processes(how.jobs), until):
        results.append(done)
        errors.print(f"{done.seconds:7.1f} s  {done.what} {done.name}: {done.where}", soft_wrap=True)
    results.sort(key=lambda done: done.name)
    if as_json:
        _write_json([{k: None if v != v else v for k, v in done._asdict().items()} for done in results])
    else:
        cells = [
            (done.name, done.what, _plain(done.worst), _plain(done.limit), str(done.entries), done.where)
            for done in results
        ]
        print_grid(
            console, Grid(("truth", "second making", "worst", "limit", "entries", "where"), 5, range(2, 5)), cells
        )
        counts = ", ".join(f"{sum(done.what == what for done in results)} {what}" for what in _MAKINGS)
        say(console, f"{len(results)} drawn with seed {how.seed}: {counts}. worst: |z| of an entry, limit: what the "
            f"largest of so many may reach once in {1 / LEVEL:.0f} truths.")  # fmt: skip
    met = all(done.what in ("agrees", "later") for done in results) and any(done.what == "agrees" for done in results)
    return 0 if met else MISSED


_MAKINGS = ("agrees", "differs", "refused", "later")


def _plain(value: float) -> str:
    return "-" if value != value else f"{value:.2f}"
