"""The command `triad`: one line of wiring for each subcommand, and errors without tracebacks."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from validation.command import completing
from validation.command.later import STYLE, Commands, group, later
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

app = typer.Typer(
    name="triad",
    cls=Commands,
    help="Three independent witnesses for Gaussian process classification, and a judge that compares them.",
    epilog=(
        "Start here: triad verify (all checks, some five minutes); triad solve fast x-gpc toy (one solution); "
        "triad audit wenzel2019:11 (one equation); triad list methods."
    ),
    **{**STYLE, "add_completion": True},
)

# What `triad` alone prints: three doors, each with a command that runs as it stands.
FIRST = """\
GPC Triad: three witnesses for Gaussian process classification, and a judge.

Audit an equation
  triad audit                       coverage of each paper
  triad audit villacampa2020:A.20   one equation: printed and corrected form

Check an implementation
  triad verify                      all checks: some five minutes
  triad verify --compare OLD.csv    what moved since an earlier checks.csv
  triad judge MODULE:FUNCTION       a program of your own

Solve a problem
  triad list methods                the methods and the truths
  triad list problems               the built-in problems
  triad solve fast x-gpc toy        one solution of one of them

triad COMMAND --help explains a command, triad --help lists all nine,
triad --install-completion completes them.
"""


def command(module: str, name: str) -> Callable[[], Callable[..., Any]]:
    """What imports `validation.command.MODULE` when it is called and returns its function of that name."""

    def load() -> Callable[..., Any]:
        loaded: Callable[..., Any] = getattr(import_module(f"validation.command.{module}"), name)
        return loaded

    return load


later(app, "verify", "Run the checks and print the verdicts; exit 1 if one fails.", command("verify", "verify"))
later(app, "audit", "Show which equations of the papers are implemented and tested.", command("ledger", "audit"))
later(app, "judge", "Judge a program of your own on every problem that its method allows; exit 1 if it disagrees.",
      command("judge", "judge"))  # fmt: skip
later(app, "bench", "Measure speed and memory as ratios to a floor of the same run, or show those that ship.",
      command("bench", "bench"))  # fmt: skip

claims_app = group(app, "claims", "List the claims of the papers; run their experiments.")
later(claims_app, "list", "Count the claims of the papers by part and state, sum up one paper, or show one claim.",
      command("claims", "claims"))  # fmt: skip
later(claims_app, "run", "Rerun a paper's experiment and compare with the published numbers.",
      command("reproduce", "run"))  # fmt: skip

truth_app = group(app, "truth", "List the library of truths, show one, make one.")
later(truth_app, "list", "List the library of truths.", command("truths", "list_truths"))
later(truth_app, "show", "Show one truth: its evidence card, a picture, fresh draws.", command("truths", "show"))
later(truth_app, "make", "Make a truth file with its evidence card, or missing truths of the library.",
      command("truth", "make_one"))  # fmt: skip

list_app = group(app, "list", "List methods, problems or data sets; describe one.")
later(list_app, "data", "List the data sets known by name, show one, or load and check the copies at hand.",
      command("datasets", "data"))  # fmt: skip


STYLES = {"PASS": "green", "FAIL": "bold red"}
USAGE: Any = typer.BadParameter.__base__  # click's UsageError, or that of the click inside typer
EXIT_DIFFERENT, EXIT_UNUSABLE, EXIT_INTERRUPTED = 1, 2, 130
MOST_SUSPECTS = 3  # that are listed

AsJson = Annotated[bool, typer.Option("--json", help="print JSON only")]

OptionValues = Annotated[
    list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="option of the method; repeatable")
]


@list_app.command("problems")
def problems_command(
    name: Annotated[
        str | None,
        typer.Argument(help="a problem to describe; default: list all", autocompletion=completing.problems),
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
    """A row of `triad list problems`."""
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
        bool, typer.Option("--verbose", help="print the traceback if the implementation raises")
    ] = False,
    json_wanted: AsJson = False,
    groups: Annotated[
        int | None,
        typer.Option(
            "--groups",
            min=1,
            help="gibbs: run the chains in this number of groups; with --output a killed run can be resumed",
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="with --groups: number of processes")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help=f"with --groups: {HELP}")] = None,
) -> None:
    """Solve one problem by one implementation."""
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
    band: Annotated[
        list[str] | None,
        typer.Option("--band", metavar="QUANTITY=X", help="largest discrepancy of a quantity; repeatable"),
    ] = None,
    limit: Annotated[float | None, typer.Option("--limit", help="limit of identities; derived by default")] = None,
    why: Annotated[bool, typer.Option("--why", help="explain every limit")] = False,
    json_wanted: AsJson = False,
    usual: Annotated[
        bool,
        typer.Option("--suspects/--no-suspects", help="if they disagree, look for likely bugs (20 s at most)"),
    ] = True,
) -> None:
    """Compare two solutions of one problem; exit 1 if they disagree, 2 if nothing can be compared."""
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


@list_app.command("methods")
def methods_command(
    method: Annotated[
        str | None, typer.Argument(help="a method id: print its options", autocompletion=completing.methods)
    ] = None,
    json_wanted: AsJson = False,
) -> None:
    """List methods, truths and implementations, or the options of one method."""
    if json_wanted:
        sys.stdout.write(as_json.text(_catalogue() if method is None else _options(method)))
    elif method is not None:
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


def _print_options(method: str) -> None:
    from validation.door import options as option_tables

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
        sys.stdout.write(FIRST)


def main(commands: typer.Typer = app, name: str = "triad") -> NoReturn:
    """Entry point: what is wrong with the input is one line on stderr, never a traceback."""
    if not os.environ.get("COLUMNS", "1").strip("0").isdigit():  # rich would print nothing in 0 columns
        del os.environ["COLUMNS"]
    try:
        code = commands(prog_name=name, standalone_mode=False)
    except KeyboardInterrupt:
        fail("interrupted", EXIT_INTERRUPTED)
    except USAGE as error:
        asked = error.ctx.command_path if error.ctx is not None else name
        # what a command itself refuses names its argument; click's own words need the kind of mistake before them
        told = error.format_message() if getattr(error, "param", None) or type(error) is USAGE else error.message
        fail(f"error: {message_of(ValueError(told))} ({asked} --help)", EXIT_UNUSABLE)
    except (ValueError, TypeError, LookupError, OSError, MemoryError, ImplementationError, ClusterError) as error:
        fail(f"error: {message_of(error)}", EXIT_UNUSABLE)
    raise SystemExit(code if isinstance(code, int) else 0)


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
