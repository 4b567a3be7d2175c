"""The command `triad`: one line of wiring for each subcommand, and errors without tracebacks."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from validation.command import completing
from validation.command.later import STYLE, Commands, later
from validation.door import catalogue
from validation.door.quoting import shown
from validation.door.solve import JUDGE, WITNESSES, ImplementationError, implementations, methods, solve, versions
from validation.jobs.job import HELP, ClusterError
from validation.screen import as_json
from validation.screen.terminal import Grid, columns_of, folded, print_grid, say, waiting

# What computes is imported by the functions that need it, so that `--help` waits for none of it.
if TYPE_CHECKING:
    from validation.door.problem import Problem
    from validation.door.solution import Solution
    from validation.judge.compare import Row
    from validation.report.page import Coverage

app = typer.Typer(
    name="triad",
    cls=Commands,
    help="Three independent witnesses for Gaussian process classification, and a judge that compares them.",
    epilog=(
        "Start here: triad verify (closes the triangle, one to four minutes); triad solve fast x-gpc toy (one answer); "
        "triad audit wenzel2019:11 (one equation); triad methods (what there is)."
    ),
    **{**STYLE, "add_completion": True},
)

# What `triad` says by itself: three doors, each with a command that works as it stands.
FIRST = """\
GPC Triad: three witnesses for Gaussian process classification, and a judge.

Audit an equation
  triad audit                       how far each paper is
  triad audit villacampa2020:A.20   one of them: what is printed, what is right

Check an implementation
  triad verify                      close the triangle: one to four minutes
  triad verify --compare OLD.csv    what moved since an earlier checks.csv
  triad judge MODULE:FUNCTION       a program of your own

Solve a problem
  triad methods                     the methods and the truths
  triad problems                    the questions
  triad solve fast x-gpc toy        one answer to one of them

triad COMMAND --help says more of each, triad --help lists all,
triad --install-completion completes them.
"""


def _verify() -> Callable[..., Any]:
    from validation.command import verify as verify_command

    verify_command.coverage = ledger_coverage
    return verify_command.verify


def _audit() -> Callable[..., Any]:
    from validation.command.ledger import audit

    return audit


def _data() -> Callable[..., Any]:
    from validation.command.datasets import data

    return data


def _bench() -> Callable[..., Any]:
    from validation.command.bench import bench

    return bench


def _truth() -> Callable[..., Any]:
    from validation.command.truth import truth

    return truth


def _truths() -> Callable[..., Any]:
    from validation.command.truths import truths

    return truths


def _judge() -> Callable[..., Any]:
    from validation.command.judge import judge

    return judge


def _league() -> Callable[..., Any]:
    from validation.command.peers import league

    return league


def _claims() -> Callable[..., Any]:
    from validation.command.claims import claims

    return claims


def _reproduce() -> Callable[..., Any]:
    from validation.command import reproduce as command

    command.parse = parse_options
    return command.reproduce


later(app, "verify", "Close the triangle: ask every check, print the verdicts, exit 1 if one of them is red.", _verify)
later(app, "audit", "Show which equations of the papers are realised and tested.", _audit)
later(app, "data", "List the data sets known by name, show one, or load and check the copies at hand.", _data)
later(app, "bench", "Measure speed and memory as ratios to a floor of the same run (best of several; takes a minute).",
      _bench)  # fmt: skip
later(app, "truth", "Make a truth file with its evidence card; exit 1 if the gate is not met or the second route "
      "disagrees.", _truth)  # fmt: skip
later(app, "truths", "List the library of truths, show one, make what is missing, or make some again; exit 1 if one "
      "fails its gates.", _truths)  # fmt: skip
later(app, "judge", "Judge a program of your own on every question that its method allows; exit 1 if it disagrees.",
      _judge)  # fmt: skip
later(app, "league", "Show how far other libraries are from the truth, or measure those that are installed.",
      _league)  # fmt: skip
later(app, "claims", "Count the claims of the papers by part and state, sum up one paper, or show one claim.",
      _claims)  # fmt: skip
later(app, "reproduce", "Run an experiment of a paper again and set what it prints beside what comes out here.",
      _reproduce)  # fmt: skip


STYLES = {"PASS": "green", "FAIL": "bold red"}
EXIT_DIFFERENT, EXIT_UNUSABLE, EXIT_INTERRUPTED = 1, 2, 130
MOST_SUSPECTS = 3  # that are listed

AsJson = Annotated[bool, typer.Option("--json", help="machine-readable")]

OptionValues = Annotated[
    list[str] | None, typer.Option("--option", "-o", help="method option as name=value; repeatable")
]


@app.command("problems")
def problems_command(
    name: Annotated[
        str | None,
        typer.Argument(help="a problem to describe; all are listed without it", autocompletion=completing.problems),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="write the problem to this .npz")] = None,
    json_wanted: AsJson = False,
) -> None:
    """List the built-in problems, describe one, or write one to a .npz."""
    from validation import problems

    console = plain_console()
    if name is None:
        if output is not None:
            raise typer.BadParameter("--output: found it without a problem, expected the problem's name too")
        if json_wanted:
            sys.stdout.write(as_json.text([_listed(key) for key in problems.names()]))
            return
        grid = Grid(("problem", "likelihood", "n", "d", "C", "m", "prior", "what it is there for"), 7, range(2, 6))
        rows = []
        for key in problems.names():
            p = problems.get(key)
            sizes = (str(p.n), str(p.d), str(p.n_classes), str(p.m or "-"))
            rows.append((key, p.likelihood, *sizes, p.prior_model, problems.purpose(key)))
        print_grid(console, grid, rows)
        return
    problem = load_problem(name)
    if output is not None:
        problem.save(output)
    if json_wanted:
        sys.stdout.write(as_json.text(as_json.problem_values(problem)))
    elif output is not None:
        say(console, f"{output}: {problem.name}, n = {problem.n}, d = {problem.d}")
    else:
        console.print(describe_problem(problem))


def _listed(name: str) -> dict[str, Any]:
    """A row of `triad problems`."""
    from validation import problems

    p = problems.get(name)
    sizes = {"n": p.n, "d": p.d, "n_classes": p.n_classes, "m": p.m, "t": p.t}
    kinds = {"likelihood": p.likelihood, "kernel": p.kernel, "prior_model": p.prior_model, "epsilon": p.epsilon}
    return {"name": name, **kinds, **sizes, "purpose": problems.purpose(name)}


@app.command("solve")
def solve_command(
    implementation: Annotated[
        str,
        typer.Argument(
            help="reference, fast, gibbs, an entry point, or module:function",
            autocompletion=completing.implementations,
        ),
    ],
    method: Annotated[str, typer.Argument(help="a method id such as x-gpc", autocompletion=completing.methods)],
    problem: Annotated[
        str,
        typer.Argument(
            help="a .npz written by Problem.save, or the name of a built-in problem", autocompletion=completing.problems
        ),
    ],
    output: Annotated[Path | None, typer.Option("--output", help="write the solution to this .npz")] = None,
    option: OptionValues = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="the whole traceback if the implementation raises")
    ] = False,
    json_wanted: AsJson = False,
    groups: Annotated[
        int | None,
        typer.Option(
            "--groups",
            min=1,
            help="of gibbs: the chains in so many groups side by side; with --output a killed run goes on",
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="with --groups: processes")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help=f"with --groups: {HELP}")] = None,
) -> None:
    """Ask one implementation for its answer to one problem."""
    from validation.door import storage

    if output is not None:
        storage.check_writable(output)
    if groups is None and (jobs is not None or cluster is not None):
        raise typer.BadParameter("--jobs, --cluster: found one of them alone, expected --groups with it")
    if groups is not None and implementation != "gibbs":
        raise typer.BadParameter(f"--groups: found it with {shown(implementation)}, expected gibbs")
    options, store = parse_options(option or []), None
    asked = load_problem(problem)
    try:
        if groups is None:
            solution = _watched(implementation, method, asked, options)
        else:
            from validation.jobs.run import engine
            from validation.judge.chains import kept_in, solve_groups
            from validation.screen.watching import Counting

            store = None if output is None else kept_in(output.with_suffix(".jobs"))
            with engine(cluster, jobs=jobs) as who:
                workers = Counting(who)
                with waiting(Console(stderr=True), f"{implementation} {method} on {asked.name}", workers.words):
                    solution = solve_groups(method, asked, workers, groups=groups, store=store, **options)
    except ImplementationError as error:
        if verbose:
            import traceback

            cause = error.__cause__
            sys.stderr.write(error.trace or ("".join(traceback.format_exception(cause)) if cause else ""))
        raise
    if output is not None:
        solution.save(output)
        if store is not None:
            store.clear()
    if json_wanted:
        sys.stdout.write(as_json.text(as_json.solution_values(solution)))
        raise typer.Exit(0 if solution.converged else EXIT_DIFFERENT)
    console = plain_console()
    console.print(describe_solution(solution))
    if not solution.converged:
        say(console, f"not converged: {solution.settings.get('reason') or 'no reason stated'}")
        raise typer.Exit(EXIT_DIFFERENT)


def _watched(implementation: str, method: str, problem: Problem, options: dict[str, Any]) -> Solution:
    """The answer; on a terminal it is said how far it is, as the method itself tells."""
    from validation.screen import watching

    errors, watch = Console(stderr=True), None
    if errors.is_terminal:
        watch = watching.of_options(watching.known(implementation, method), options)
    asked = options if watch is None else {**options, "callback": watch}
    tell = None if watch is None else watch.words
    with waiting(errors, f"{implementation} {method} on {problem.name}", tell):
        if implementation in WITNESSES + JUDGE:
            return solve(implementation, method, problem, **asked)
        from validation.judge.child import Child

        with Child(implementation) as program:
            return program.solve(method, problem, **options)


@app.command("compare")
def compare_command(
    left: Annotated[Path, typer.Argument(help="a .npz written by triad solve")],
    right: Annotated[Path, typer.Argument(help="another one, of the same problem")],
    band: Annotated[list[str] | None, typer.Option("--band", help="quantity=largest discrepancy; repeatable")] = None,
    limit: Annotated[float | None, typer.Option("--limit", help="identity limit in place of the derived one")] = None,
    why: Annotated[bool, typer.Option("--why", help="print the reason of every limit")] = False,
    json_wanted: AsJson = False,
    usual: Annotated[
        bool,
        typer.Option("--suspects/--no-suspects", help="if they disagree, try the usual suspects (20 s at most)"),
    ] = True,
) -> None:
    """Judge two solutions of one problem; exit 1 if they disagree, 2 if nothing in them can be judged."""
    from validation.door.solution import Solution
    from validation.judge import compare as comparing

    a, b = Solution.load(left), Solution.load(right)
    bands = parse_options(band or [], "--band")
    for key, value in bands.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"--band {key}: found {shown(value)}, expected a number")
    rows = comparing.compare(a, b, bands, limit)
    failed = [row for row in rows if row.verdict == "FAIL"]
    passed = [row for row in rows if row.verdict == "PASS"]
    if json_wanted:
        sys.stdout.write(as_json.text([row._asdict() for row in rows]))
    else:
        console = plain_console()
        say(console, f"{a.label} against {b.label} on {a.problem.name}")
        grid = Grid(("verdict", "quantity", "kind", "observed", "limit"), 4, (3, 4))
        cells = [(row.verdict, row.quantity, row.kind, number(row.observed), number(row.limit)) for row in rows]
        print_grid(console, grid, cells, [STYLES.get(row.verdict, "yellow") for row in rows])
        for row in rows:
            if why or row.verdict in ("FAIL", "SKIP") or row.quantity in comparing.PREMISES:
                say(console, f"{row.quantity}: {row.why}", indent=2)
            if row.worst:
                say(console, f"worst at {row.worst}", indent=4)
        if usual:
            print_suspects(console, rows, a, b)
        left_out = comparing.unjudged(rows, a, b)
        verdict = "DISAGREE" if failed else "UNDECIDED" if not passed else "AGREE IN PART" if left_out else "AGREE"
        named = f" ({', '.join(left_out)})" if left_out else ""
        say(console, f"{verdict}: {len(passed)} passed, {len(failed)} failed, {len(left_out)} not judged{named}")
    if failed:
        raise typer.Exit(EXIT_DIFFERENT)
    if not passed:
        raise ValueError("right: found no quantity that can be judged on both sides, expected at least one")


def print_suspects(console: Console, rows: list[Row], left: Solution, right: Solution) -> None:
    """Which well-known mistakes would make the sides agree on what failed; nothing where nothing did."""
    from validation.judge.suspects.search import QUANTITIES, SAME, suspects

    failed = [row for row in rows if row.verdict == "FAIL"]
    names = {"log_evidence" if row.quantity == "bound - log Z" else row.quantity for row in failed}
    if not names.intersection(QUANTITIES):
        return
    limits = [row.limit for row in failed if row.kind == "identity" and row.quantity in QUANTITIES]
    suspected = suspects(left, right, names.intersection(QUANTITIES), limit=max(limits, default=SAME))
    if suspected.same:
        say(console, f"{suspected.model} gives the same numbers: the distance is the method's own")
        return
    against = "" if suspected.model in ("left", "right") else f", held against {suspected.model}"
    say(console, f"usual suspects: {len(suspected.ranked)} of {suspected.tried} would explain it{against}")
    for place, suspect in enumerate(suspected.ranked[:MOST_SUSPECTS], start=1):
        say(console, f"{place}. {suspect.sentence}", indent=2)
    if suspected.left_out:
        say(console, suspected.left_out, indent=2)


@app.command("methods")
def methods_command(
    method: Annotated[
        str | None, typer.Argument(help="a method id: print its options", autocompletion=completing.methods)
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="the methods as README shows them")] = False,
    truths: Annotated[bool, typer.Option("--truths", help="with --markdown: the truths instead")] = False,
    options: Annotated[
        bool, typer.Option("--options", help="the options of all methods, as the page of the docs")
    ] = False,
    json_wanted: AsJson = False,
) -> None:
    """List the methods of both witnesses, the truths, and who can be asked; or the options of one method."""
    if truths and not markdown:
        raise typer.BadParameter("--truths: found it alone, expected --markdown too")
    if sum((method is not None, markdown, options)) > 1:
        raise typer.BadParameter("found several of METHOD, --markdown, --options, expected one of them")
    if json_wanted and (markdown or options):
        raise typer.BadParameter("--json: found it with --markdown or --options, expected one of them")
    if json_wanted:
        sys.stdout.write(as_json.text(_catalogue() if method is None else _options(method)))
    elif markdown:
        sys.stdout.write(catalogue.truths_markdown() if truths else catalogue.methods_markdown())
    elif options or method is not None:
        _print_options(method)
    else:
        _print_methods()


def _catalogue() -> dict[str, Any]:
    known = methods()
    return {
        "methods": [entry._asdict() for entry in catalogue.METHODS],
        "truths": [entry._asdict() for entry in catalogue.TRUTHS],
        "implementations": [
            {"implementation": name, "from": origin, "methods": known.get(name)}
            for name, origin in implementations().items()
        ],
    }


def _options(method: str) -> list[dict[str, Any]]:
    from validation.door import options as option_tables

    return [row._asdict() for row in option_tables.rows(method)]


def _print_options(method: str | None) -> None:
    from validation.door import options as option_tables

    if method is None:
        sys.stdout.write(option_tables.markdown())
        return
    grid = Grid(("option", "default", "may be", "meaning", "taken by"), 3)
    rows = [
        (row.name, row.default, row.expected, row.meaning, ", ".join(row.witnesses))
        for row in option_tables.rows(method)
    ]
    print_grid(plain_console(), grid, rows)


def _print_methods() -> None:
    console = plain_console()
    table = Table("method", "paper", "likelihood", "C", "prior on", box=None)
    for entry in catalogue.METHODS:
        classes = "2" if set(entry.likelihoods) <= {"logit", "probit"} else ">= 2"
        table.add_row(entry.method, entry.paper, ", ".join(entry.likelihoods), classes, entry.points)
    console.print(table)
    table = Table("truth", "likelihood", "log Z", box=None)
    for row in catalogue.TRUTHS:
        table.add_row(f"{row.implementation} {row.method}", ", ".join(row.likelihoods), row.evidence)
    console.print(table)
    table = Table("implementation", "from", "methods", box=None)
    known = methods()
    for name, origin in implementations().items():
        listed = known.get(name)
        table.add_row(name, origin, "ask it" if listed is None else str(len(listed)))
    console.print(table)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="print versions and stop", is_eager=True)] = False,
) -> None:
    """Three independent witnesses for Gaussian process classification, and a judge that compares them."""
    if version:
        sys.stdout.write(", ".join(f"{name} {number}" for name, number in versions().items()) + "\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        sys.stderr.write(FIRST)
        raise typer.Exit(EXIT_UNUSABLE)  # nothing was asked, so nothing counts as done


def ledger_coverage() -> list[Coverage] | None:
    """How far each paper is, for the report of `triad verify`; None where there are neither tests nor stored states."""
    from validation.ledger import audit as auditing

    ledger = auditing.build(auditing.default_sources())
    if ledger.without_states or ledger.problems:
        return None
    papers = dict.fromkeys(row.entry.paper for row in ledger.rows)
    results: list[Coverage] = []
    for paper in papers:
        n = auditing.counts([row for row in ledger.rows if row.entry.paper == paper])
        results.append(
            {
                "paper": paper,
                "verified": n["verified"],
                "corrected": n["corrected"],
                "not_executable": n["not executable"],
                "open": n["open"],
            }
        )
    return results


def main() -> None:
    """Entry point: what is wrong with the input is one line on stderr, never a traceback."""
    try:
        app(prog_name="triad")
    except KeyboardInterrupt:
        fail("interrupted", EXIT_INTERRUPTED)
    except (ValueError, TypeError, LookupError, OSError, MemoryError, ImplementationError, ClusterError) as error:
        fail(f"error: {message_of(error)}", EXIT_UNUSABLE)


def message_of(error: BaseException) -> str:
    """What an error says, on one line: without the quotes of a KeyError and the number of an OSError."""
    text = str(error)
    if isinstance(error, KeyError) and len(error.args) == 1:
        text = str(error.args[0])
    elif isinstance(error, OSError) and error.strerror and error.filename is None:
        text = error.strerror
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # a line that ends without a mark would run into the next
    told = [line if line[-1] in ".,:;!?(" else f"{line};" for line in lines[:-1]] + lines[-1:]
    return " ".join(told) or type(error).__name__


def fail(message: str, code: int) -> NoReturn:
    """One line on stderr, folded on a terminal, and an exit code."""
    if on_terminal():
        message = folded(message, columns_of(Console(stderr=True)))
    sys.stderr.write(message + "\n")
    raise SystemExit(code)


def on_terminal() -> bool:
    """Whether somebody reads the errors as they come."""
    return sys.stderr.isatty()


def plain_console() -> Console:
    """A console that takes text as it is: names come from files and are no markup."""
    return Console(markup=False, emoji=False, highlight=False)


def load_problem(name: str) -> Problem:
    """A problem from a .npz, or a built-in one by name (which no file or folder of that name hides)."""
    from validation import problems
    from validation.door.problem import Problem

    if name.endswith(".npz") or (name not in problems.names() and Path(name).is_file()):
        return Problem.load(name)
    return problems.get(name)


def parse_options(pairs: list[str], flag: str = "--option") -> dict[str, Any]:
    """name=value pairs; values are JSON where they parse (numbers, true, lists), text where they do not."""
    parsed: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise typer.BadParameter(f"{flag}: found {shown(pair)}, expected name=value")
        if key in parsed or key in ("implementation", "method", "problem"):
            reason = "twice" if key in parsed else "as an option"
            raise typer.BadParameter(f"{flag}: found {shown(key)} {reason}, expected options of the method, each once")
        try:
            parsed[key] = json.loads(value)
        except (ValueError, RecursionError):  # the second: brackets too deep to be JSON
            parsed[key] = value
    return parsed


def describe_problem(problem: Problem) -> Table:
    """A two-column table of what defines a problem."""
    import numpy as np

    from validation.judge import compare as comparing

    table = Table("field", "value", box=None, title=problem.name, title_justify="left")
    counts = ", ".join(str(c) for c in np.bincount(problem.y, minlength=problem.n_classes))
    for key, value in [
        ("data", f"n = {problem.n}, d = {problem.d}, C = {problem.n_classes} ({counts})"),
        ("likelihood", problem.likelihood + (f", epsilon {problem.epsilon:g}" if problem.epsilon else "")),
        ("kernel", problem.kernel),
        ("variance", _brief(problem.variance)),
        ("lengthscales", _brief(problem.lengthscales)),
        ("noise", _brief(problem.noise)),
        ("jitter", _brief(problem.jitter)),
        ("inducing points", "none: full GP" if problem.m is None else f"m = {problem.m}"),
        ("prior model", problem.prior_model),
        ("test points", str(problem.t)),
        ("condition", f"{comparing.prior_condition(problem):.2e}"),
    ]:
        table.add_row(key, value)
    return table


def describe_solution(solution: Solution) -> Table:
    """A two-column table of what an implementation answered."""
    from validation.judge import compare as comparing

    table = Table(
        "field", "value", box=None, title=f"{solution.label} on {solution.problem.name}", title_justify="left"
    )
    if solution.log_evidence is not None:
        error = "" if solution.log_evidence_se is None else f" ± {solution.log_evidence_se:.2g}"
        kind = f"{solution.log_evidence_kind} of {solution.evidence_target}, {solution.prior_model} prior"
        table.add_row("log evidence", f"{solution.log_evidence:.10g}{error} ({kind})")
    for name in comparing.QUANTITIES[1:]:
        value = getattr(solution, name)
        if value is not None:
            table.add_row(name, f"{value.shape} {_brief(value)}")
    for key, value in (solution.gradients or {}).items():
        table.add_row(f"gradient: {key}", _brief(value))
    for key, entry in (("ess", solution.ess), ("r_hat", solution.r_hat), ("residual", solution.residual)):
        if entry is not None:
            table.add_row(key, f"{entry:.4g}")
    table.add_row("converged", f"{solution.converged} after {solution.iterations} iterations")
    table.add_row("seconds", f"{solution.seconds:.3g}")
    return table


def number(value: float) -> str:
    """Three digits, or a dash where there is no number."""
    return "-" if math.isnan(value) else f"{value:.3g}"


def _brief(values: Any) -> str:
    import numpy as np

    flat = np.ravel(values)
    shown = ", ".join(f"{v:.4g}" for v in flat[:4])
    return shown + (f", ... ({flat.size})" if flat.size > 4 else "")
