"""Write a page for each method before the documentation is read: docs/methods/<id>.md, and the table of all of them.

What is said by hand stands in docs/methods.toml; likelihoods, classifiers, options, distances from the truth and the
equations that a solve executes are those of the judge's own tables, so that a page cannot say otherwise.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from sphinx.application import Sphinx


def write(app: Sphinx) -> None:
    """All pages; one that would be the same as before is left alone, so that it is not read again."""
    folder = Path(app.srcdir) / "methods"
    folder.mkdir(exist_ok=True)
    written = pages(tomllib.loads((Path(app.srcdir) / "methods.toml").read_text(encoding="utf-8")))
    for name, text in written.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.glob("*.md"):
        if path.name not in written:
            path.unlink()


def pages(told: Mapping[str, Any]) -> dict[str, str]:
    """File name -> text, from what docs/methods.toml tells.

    Raises
    ------
    ValueError    unless it tells of the methods of `validation.door.catalogue`, in its order
    """
    from validation.door import catalogue

    if list(told["methods"]) != [entry.method for entry in catalogue.METHODS]:
        wrong = {*told["methods"]} ^ {entry.method for entry in catalogue.METHODS}
        expected = "the methods of validation.door.catalogue in its order"
        raise ValueError(f"docs/methods.toml: found {sorted(wrong) or 'another order'}, expected {expected}")
    made = {f"{entry.method}.md": page(entry, told) for entry in catalogue.METHODS}
    return made | {"index.md": index(catalogue.METHODS, told)}


def page(entry: Any, told: Mapping[str, Any]) -> str:
    """The page of one method: a row of `validation.door.catalogue.METHODS` and what docs/methods.toml tells."""
    from validation.door import catalogue

    own = told["methods"][entry.method]
    source = catalogue.PAPERS[entry.paper]
    if entry.paper in _papers():
        source += f", [all its equations](../atlas/{entry.paper}.md)"
    classes = "two" if set(entry.likelihoods) <= {"logit", "probit"} else "two or more"
    lines = [
        f"# {own['name']}: `{entry.method}`",
        "",
        own["idea"],
        "",
        "| | |",
        "|---|---|",
        f"| source | {source} |",
        f"| likelihood | {', '.join(f'`{name}`' for name in entry.likelihoods)} |",
        f"| classes | {classes} |",
        f"| prior on | {entry.points} |",
        f"| classifier | {_classifiers(entry.classifiers)} |",
        f"| more | [derivation and notes](../{own['derivation']}.md) |",
        "",
        "## Model",
        "",
        told["points"][entry.points],
        *("" if not i else told["likelihoods"][name] for i, name in _spaced(entry.likelihoods)),
    ]
    if entry.errors:
        lines.append("The method needs labelling errors, $\\epsilon > 0$.")
    lines += ["", "````{raw} html", picture(entry, own.get("auxiliary", "")), "````", ""]
    lines += ["## What it approximates", "", own["approximates"], "", "## Algorithm", ""]
    lines += [f"{number}. {step}" for number, step in enumerate(own["steps"], 1)]
    lines += ["", "## Where it fails", "", own["fails"], "", *distance_table(entry.method)]
    lines += ["", "## Cost", "", own["cost"], "", "## Try it", ""]
    lines += ["```console", f"triad solve fast {entry.method} {own['example']}"]
    lines += [f"triad verify --method {entry.method}", "```", "", "## Options", "", *option_table(entry.method)]
    lines += ["", "## Equations", "", *equation_list(entry.method)]
    return "\n".join(lines) + "\n"


def index(entries: Iterable[Any], told: Mapping[str, Any]) -> str:
    """The table of all methods, by paper, with the largest distances from the truth that are on record."""
    from validation.door import catalogue

    lines = [
        "# The methods",
        "",
        "A page for each: what it computes, where it fails and by how much, what it costs. Every method is in",
        "`reference`, equation by equation, and in `fast`, by other algebra; the judge holds the two together.",
        "",
        "Ratios of variances and differences of class probabilities are the worst over the problems whose truth is on",
        "record, at the default options; each page has them one by one.",
    ]
    for paper, name in catalogue.PAPERS.items():
        lines += ["", f"## {name}", ""]
        lines += [
            "| method | | likelihood | classifier | variances | class probabilities |",
            "|---|---|---|---|---:|---:|",
        ]
        for entry in entries:
            if entry.paper == paper:
                lines.append(_index_row(entry, told["methods"][entry.method]["name"]))
    lines += [
        "",
        "## Truths",
        "",
        "Samplers and rules that compute the exact posterior, hyper-parameters held or sampled:",
        "",
    ]
    lines += ["| truth | likelihood | how | log Z |", "|---|---|---|---|"]
    for truth in catalogue.TRUTHS:
        name, likelihoods = f"`{truth.implementation} {truth.method}`", ", ".join(f"`{n}`" for n in truth.likelihoods)
        lines.append(f"| {name} | {likelihoods} | {truth.what} | {truth.evidence} |")
    derivations = dict.fromkeys(f"../{told['methods'][entry.method]['derivation']}" for entry in entries)
    lines += ["", "```{toctree}", ":hidden:", "", *(entry.method for entry in entries), *derivations, "```"]
    return "\n".join(lines) + "\n"


def _index_row(entry: Any, name: str) -> str:
    known = [row for row in measured(entry.method) if not row.variant]
    ratios = [row.variances for row in known]
    worst = max(ratios, key=lambda ratio: abs(math.log(ratio)), default=None)
    furthest = max((row.probabilities for row in known), default=None)
    cells = (
        f"[`{entry.method}`]({entry.method}.md)",
        name,
        ", ".join(f"`{likelihood}`" for likelihood in entry.likelihoods),
        ", ".join(f"`{name}`" for name in entry.classifiers),
        "" if worst is None else _times(worst),
        "" if furthest is None else f"{furthest:.2g}",
    )
    return f"| {' | '.join(cells)} |"


def _spaced(names: Iterable[str]) -> Iterable[tuple[int, str]]:
    for name in names:
        yield 0, name
        yield 1, name


def _classifiers(names: Iterable[str]) -> str:
    linked = [f"{{py:class}}`~triad.{name}`" for name in names]
    return ", ".join(linked) or "none: by `solve` alone"


# -- how far from the truth ---------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """A method on a problem whose truth is stored: what `validation.judge.distances` has on record, in units one reads.

    variant          options beside the defaults, "" for none
    log_evidence     log Z less the truth, in nats; None where the two are not of the same target
    mean             of latent values: largest difference over the largest entry
    variances        geometric mean of the ratios to the true ones
    probabilities    largest difference
    """

    problem: str
    variant: str
    sizes: str
    log_variance: float
    log_evidence: float | None
    mean: float
    variances: float
    probabilities: float


@cache
def measured(method: str) -> tuple[Measured, ...]:
    """What is on record of a method, by the log variance of the problem; problems of two or three data left out."""
    from validation.judge import distances
    from validation.truth import store

    rows = []
    for entry in distances.entries():
        if entry.method != method or entry.problem in distances.QUADRATURES:
            continue
        asked, known = distances.question(entry.problem), entry.distances
        exact = store.load(entry.problem).solution.log_evidence
        relative = known.get("log_evidence")
        inducing = "" if asked.m is None else f", m = {asked.m}"
        rows.append(
            Measured(
                entry.problem,
                ", ".join(f"{name} = {value}" for name, value in entry.options.items()),
                f"n = {asked.n}, C = {asked.n_classes}{inducing}",
                float(max(map(math.log, asked.variance))),
                None if relative is None or exact is None else relative[0] * max(abs(exact), 1.0),
                known["latent_mean"][0],
                math.exp(known["latent_cov"][1]),
                known["probabilities"][0],
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.log_variance, row.problem, row.variant)))


def distance_table(method: str) -> list[str]:
    """A row for each problem whose truth is stored."""
    rows = measured(method)
    if not rows:
        return ["No distance is on record: the method has no truth of its own target, or its runs end by steps."]
    lines = [
        "Distances from the truth on record (`python -m validation.judge.distances` measures them): log Z less the",
        "truth, the largest difference of latent means over the largest of them, the ratio of variances, and the",
        "largest difference of a class probability.",
        "",
        "| problem | data | log variance | log Z, nat | means | variances | probabilities |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        name = f"`{row.problem}`" + (f", {row.variant}" if row.variant else "")
        nats = "" if row.log_evidence is None else f"{row.log_evidence:+.2g}"
        cells = (name, row.sizes, f"{row.log_variance:.2g}", nats, f"{row.mean:.2g}", _times(row.variances))
        lines.append(f"| {' | '.join(cells)} | {row.probabilities:.2g} |")
    return lines


def _times(ratio: float) -> str:
    return f"× {ratio:.2f}" if ratio < 10 else f"× {ratio:.0f}"


# -- options and equations ----------------------------------------------------------------------------------------


def option_table(method: str) -> list[str]:
    """The options of a method as `triad list methods METHOD` has them."""
    from validation.door import options

    lines = ["| option | may be | default | meaning | taken by |", "|---|---|---|---|---|"]
    for row in options.rows(method):
        cells = (f"`{row.name}`", row.expected, f"`{row.default}`", row.meaning, ", ".join(row.witnesses))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def equation_list(method: str) -> list[str]:
    """The entries that solves by `reference` execute in `triad verify`, each linked to its card in the atlas."""
    from validation.ledger import executed, inventory

    record, solve = executed.load(), f"reference {method}"
    rows = [entry for entry in inventory.load() if solve in record.get(entry.equation, executed.Executed()).solve]
    if not rows:
        return ["Those of its source are not in the ledger."]
    titles = "".join(f"<li>{_linked(entry)} {escape(entry.title)}</li>" for entry in rows)
    return [
        "````{raw} html",
        f"<p>Solves by <code>reference {escape(method)}</code> in <code>triad verify</code> execute:</p>",
        f'<p class="numbers">{" ".join(map(_linked, rows))}</p>',
        f"<details><summary>what each is</summary><ul>{titles}</ul></details>",
        "````",
    ]


@cache
def _papers() -> frozenset[str]:
    """Keys of the papers that the ledger has."""
    from validation.ledger import inventory

    return frozenset(entry.paper for entry in inventory.load())


def _linked(entry: Any) -> str:
    from validation.ledger.atlas import address, number

    href = escape(f"../atlas/{address(*entry.equation)}")
    return f'<a href="{href}" title="{escape(entry.title)}">{escape(number(entry.id))}</a>'


# -- the graphical model ------------------------------------------------------------------------------------------

_COLUMNS = (60, 140, 260)  # of the data 1, 2 and n
_RADIUS = 17


def picture(entry: Any, auxiliary: str) -> str:
    """The model of a method as a graph, inline SVG in the colour of the text.

    entry         row of `validation.door.catalogue.METHODS`
    auxiliary     symbol of a variable that the method adds to each datum, "" for none
    """
    several = not {*entry.likelihoods} <= {"logit", "probit"}
    sparse = entry.points != "all rows"
    top = 95 if sparse else 30
    rows = {"f": top, "y": top + 75}
    parts: list[str] = []
    if sparse:
        middles = (100, 160, 220)
        parts.append(_bar(min(middles), max(middles), 25))
        # stacks lie behind the arrows, whose tips they would hide
        parts += [_behind(column, rows["f"]) for column in _COLUMNS if several]
        parts += [_arrow(x, 25, column, rows["f"]) for x in middles for column in _COLUMNS]
        parts += [_node(x, 25, "u", index, shadow=several) for x, index in zip(middles, ("1", "2", "m"), strict=True)]
    if entry.points != "inducing points":
        parts.append(_bar(_COLUMNS[0], _COLUMNS[-1], rows["f"], dashed=sparse))
    for x, index in zip(_COLUMNS, ("1", "2", "n"), strict=True):
        parts.append(_arrow(x, rows["f"], x, rows["y"]))
        parts.append(_node(x, rows["f"], "f", index, shadow=several and not sparse))
        if auxiliary:
            parts.append(_arrow(x + 42, rows["y"], x, rows["y"]))
            parts.append(_node(x + 42, rows["y"], auxiliary, index))
        parts.append(_node(x, rows["y"], "y", index, seen=True))
    parts.append(f'<text x="205" y="{rows["f"] + 5}" text-anchor="middle">…</text>')
    words = ["Circles are unknown, shaded ones observed; what a bar joins has a Gaussian process prior."]
    if several:
        words.append("Circles in stacks: one for each class.")
    if sparse and entry.points == "either":
        words.append("With inducing points, the $u$; without them the dashed bar alone.".replace("$", ""))
    elif sparse:
        words.append("Given the u, the f are independent.")
    height = rows["y"] + 30
    label = f"graphical model: {'u, ' if sparse else ''}f and y{', ' + auxiliary if auxiliary else ''} of n data"
    head = '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    tip = '<path d="M0,0 L8,4 L0,8 z" /></marker></defs>'
    svg = (
        f'<svg class="model" viewBox="0 0 330 {height}" role="img" aria-label="{escape(label)}">{head}{tip}'
        f"{''.join(parts)}</svg>"
    )
    return f"<figure>{svg}<figcaption>{escape(' '.join(words))}</figcaption></figure>"


def _behind(x: int, y: int) -> str:
    """The stack behind a circle."""
    return "".join(f'<circle class="behind" cx="{x + shift}" cy="{y - shift}" r="{_RADIUS}"/>' for shift in (8, 4))


def _node(x: int, y: int, letter: str, index: str, *, seen: bool = False, shadow: bool = False) -> str:
    kind = "observed" if seen else "unknown"
    return (
        f'{_behind(x, y) if shadow else ""}<circle class="{kind}" cx="{x}" cy="{y}" r="{_RADIUS}"/>'
        f'<text x="{x}" y="{y + 5}" text-anchor="middle"><tspan font-style="italic">{escape(letter)}</tspan>'
        f'<tspan dy="4" font-size="10" font-style="italic">{index}</tspan></text>'
    )


def _arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    length = math.hypot(x2 - x1, y2 - y1)
    dx, dy = (x2 - x1) / length * (_RADIUS + 1), (y2 - y1) / length * (_RADIUS + 1)
    return (
        f'<line class="edge" x1="{x1 + dx:.1f}" y1="{y1 + dy:.1f}" x2="{x2 - dx:.1f}" y2="{y2 - dy:.1f}" '
        'marker-end="url(#tip)"/>'
    )


def _bar(left: int, right: int, y: int, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="7 5"' if dashed else ""
    return f'<line class="bar" x1="{left - 35}" y1="{y}" x2="{right + 35}" y2="{y}"{dashes}/>'


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the hook."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
