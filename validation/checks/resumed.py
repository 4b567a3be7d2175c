"""Runs of `fast` that are interrupted, read their data in another way, or leave the finite numbers.

Eight data and a few steps for every schedule that has a checkpoint: killed after each step and continued it ends at the
same digits, with its own data and settings only. A memory map, blocks of any size and no memory for projections change
nothing. A run that diverges says so, and stands where the same run ends that makes one step less.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.by_name import by_name
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.learning import ALL, BATCHES, HYPER, PAPER, tiny
from validation.problem import BINARY_LIKELIHOODS, Problem

Array = NDArray[Any]
_EVERY = 2  # steps between two checkpoints
_LISTS = (*BATCHES, *BATCHES)


class Run(NamedTuple):
    """A run of steps: the method, the module of `fast.methods` that has it, the problem, and options of `fit`."""

    label: str
    method: str
    module: str
    kind: str
    options: Mapping[str, Any]


def _rows() -> Iterator[Run]:
    more: dict[str, Any]
    drawn: dict[str, Any] = {"batch_size": 3, "n_steps": 6, "seed": 3, "learn": ALL, "trace": True, "rate": 0.05}
    listed: dict[str, Any] = {"batches": _LISTS, "learn": ALL, "trace": True, "rate": 0.05}
    held: dict[str, Any] = {"batch_size": 3, "n_steps": 6, "trace": True}
    for label, more in (
        ("batches drawn", drawn), ("batches listed", listed), ("nothing learned", held),
        ("adaptive rates", drawn | {"optimizer": "adaptive"}),
        ("all data", {"n_steps": 6, "learn": HYPER, "optimizer": "adam", "rate": 0.05, "trace": True}),
    ):  # fmt: skip
        for method in ("ep", "sep"):
            yield Run(label, method, method, "threshold", {**more, "damping": 0.7})
        yield Run(label, "pep", "pep", "threshold errors", {**more, "damping": 0.7, "alpha": 0.7})
        if "optimizer" not in more or label == "all data":
            yield Run(label, "vi-robust", "vi_robust", "threshold errors", {**more, "nat_rate": 0.3})
            for energy in ("apep", "rpapep"):
                yield Run(label, energy, "apep", "threshold errors", {**more, "alpha": 0.7, "energy": energy})
    for scheme in ("inner-exact", "outer"):
        more = {"n_steps": 6, "learn": HYPER, "scheme": scheme, "optimizer": "adam", "rate": 0.05, "damping": 0.7}
        yield Run(f"scheme {scheme}", "ep", "ep", "threshold", more)
        yield Run(f"scheme {scheme}", "sep", "sep", "threshold", more)
    yield Run("sites of data", "ep", "ep", "threshold", {**drawn, "factors": "datum", "damping": 0.7})
    yield Run("one prior", "ep", "ep", "threshold shared", {**drawn, "damping": 0.7})
    svi: dict[str, Any] = {"batch_size": 3, "n_steps": 6, "seed": 3, "trace": True, "learning_rate": 0.05}
    for label, more in (
        ("adaptive rate", {**svi, "learn": ALL}),
        ("decaying rate", {**svi, "learn": HYPER, "rate": ("decay", 1.0, 2.0, 0.7)}),
        ("nothing learned", {**svi, "stop": 1e-9, "check_every": 1, "window": 3}),
        ("change seldom measured", {**svi, "stop": 1e-9, "check_every": 5, "window": 2}),
        ("an end by changes on both sides", {**svi, "n_steps": 5, "stop": 1e9, "check_every": 5, "window": 2}),
        ("batches listed", {"batches": _LISTS, "learn": ALL, "trace": True}),
        ("first looks", {**svi, "init_batches": ((1, 2), (4, 4, 7))}),
        ("small pools", {**svi, "block_size": 2, "pool_size": 3, "learn": ALL, "n_steps": 7}),
        ("hold-out scores", {**svi, "holdout": True, "holdout_every": 2}),
    ):
        yield Run(label, "x-gpc-svi", "x_gpc_svi", "logit", more)


RUNS = tuple(_rows())


def fit(run: Run, **changes: Any) -> Any:
    """What `fit` of the run's module returns; changes of the problem's arrays or of options."""
    problem = tiny(run.kind)
    binary = problem.likelihood in BINARY_LIKELIHOODS
    function = by_name(import_module(f"fast.methods.{run.module}").fit, binary=binary)
    arguments: dict[str, Any] = {"X": problem.X, "y": problem.y}
    fields = ("variance", "lengthscales", "noise", "jitter", "Z")
    arguments |= {name: getattr(problem, name)[0] if binary else getattr(problem, name) for name in fields}
    if not binary:
        arguments |= {"n_classes": problem.n_classes, "shared": problem.shared}
        if problem.epsilon > 0.0:
            arguments["epsilon"] = problem.epsilon
    arguments |= {**run.options, **changes}
    if arguments.get("holdout") is True:
        arguments["holdout"] = (problem.X[1:6] + 0.1, problem.y[1:6])
    return function(**arguments)


def digits(posterior: Any) -> Array:
    """Every number that a stochastic run ends with, as one vector."""
    if hasattr(posterior, "trained"):
        run, trained = posterior.run, posterior.trained
        hyper, Z = run.points.hyper, run.points.Z
        evidence = posterior.log_evidence
        parts = [
            trained.trace, trained.residual, trained.iterations, trained.n_improper, trained.diverged,
            run.q.precision, run.q.shift, np.nan if evidence is None else evidence,
            *(np.ravel(value) for name, value in sorted(run.state().items())),
        ]  # fmt: skip
    else:
        hyper, Z = posterior.hyper, posterior.Z
        parts = [
            posterior.rates, posterior.trace, posterior.holdout_scores, posterior.inducing_mean,
            posterior.inducing_cov, posterior.converged, posterior.diverged,
        ]  # fmt: skip
    parts += [hyper.variance, hyper.lengthscales, hyper.noise, Z]
    return np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in parts])


def unequal(left: Array, right: Array) -> float:
    """How many numbers differ in any bit; all of them if their counts do."""
    if left.shape != right.shape:
        return float(max(left.size, right.size))
    return float(np.sum(~((left == right) | (np.isnan(left) & np.isnan(right)))))


class _KilledError(Exception):
    """Stands for a kill."""


def _killer(step: int) -> Callable[[Any], None]:
    def kill(progress: Any) -> None:
        if progress.iteration == step:
            raise _KilledError

    return kill


def _numbers(progress: Any) -> list[float]:
    """What a callback is told in numbers."""
    fields = progress._asdict() if hasattr(progress, "_asdict") else vars(progress)
    return [float(value) for value in fields.values() if isinstance(value, (int, float))]


# -- interrupted -------------------------------------------------------------------------------------------------


def interrupted(runs: Iterable[Run], patterns: Iterable[tuple[int, ...]]) -> Iterable[Outcome]:
    """Killed in each step of a pattern in turn, then continued to the end: the same digits every time."""
    for run in runs:
        last = run.options.get("n_steps", len(_LISTS))
        told: dict[int, list[float]] = {}

        def listen(progress: Any, told: dict[int, list[float]] = told) -> None:
            told[progress.iteration] = _numbers(progress)

        whole = digits(fit(run, callback=listen))
        worst = 0.0
        with tempfile.TemporaryDirectory() as folder:
            for number, pattern in enumerate(patterns):
                steps = [min(step, last) for step in pattern]
                path = Path(folder) / f"{number}.npz"
                visited: list[int] = []
                for step in steps:
                    with suppress(_KilledError):
                        fit(run, checkpoint=path, checkpoint_every=_EVERY, callback=_killer(step))

                wrong: list[int] = []

                def note(
                    progress: Any,
                    visited: list[int] = visited,
                    wrong: list[int] = wrong,
                    told: dict[int, list[float]] = told,
                ) -> None:
                    visited.append(progress.iteration)
                    wrong.append(not np.array_equal(_numbers(progress), told[progress.iteration], equal_nan=True))

                again = fit(run, checkpoint=path, checkpoint_every=_EVERY, callback=note)
                worst += unequal(digits(again), whole)
                # where it went on says that a file was read at all
                first = steps[-1] // _EVERY * _EVERY + 1
                worst += visited != list(range(first, last + 1)) or any(wrong)
        yield Compared(
            worst,
            0.0,
            f"{run.label}: a file holds all that later steps depend on, so every digit comes again, and no step is "
            "made twice that the file has",
            "fast",
            "fast",
            f"of {whole.size} numbers, those that differ",
        )


def _by_products(runs: Iterable[Run]) -> Iterable[Outcome]:
    """`interrupted` where kernels of steps are made by products, as of inputs with many columns."""
    from fast.sparse_classes import projections

    with mock.patch.object(projections, "_PRODUCTS_FROM", 1):
        for run in runs:
            yield from interrupted((run._replace(label=f"{run.label}, by products"),), ((5,),))


_CHANGED: Mapping[str, Any] = MappingProxyType(
    {
        "variance": 2.0, "noise": 0.25, "jitter": 5e-3, "seed": 4, "batch_size": 4, "damping": 0.6, "alpha": 0.6,
        "learn": ("variance",), "rate": 0.04, "trace": False, "nat_rate": 0.2, "optimizer": "adaptive",
        "scheme": "inner-exact", "factors": "datum", "count": "per-class", "learning_rate": 0.04, "epsilon": 0.06,
        "tolerance": 1e-6, "max_iterations": 50, "window": 4, "stop": 1e-8, "check_every": 3,
        "block_size": 3, "pool_size": 4,
    }
)  # fmt: skip
# numbers of a run's length, where it is saved, and how much is read at a time change none of its digits
_FREE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"x-gpc-svi": (), **dict.fromkeys(("ep", "sep", "pep", "vi-robust", "apep", "rpapep"), ("block_size",))}
)


def other_runs(run: Run) -> Iterable[Outcome]:
    """A checkpoint is refused, by the name of what differs, by every run that has other data or another setting."""
    import inspect

    problem = tiny(run.kind)
    binary = problem.likelihood in BINARY_LIKELIHOODS
    accepted = inspect.signature(by_name(import_module(f"fast.methods.{run.module}").fit, binary=binary)).parameters
    Z, lengthscales = (np.array(getattr(problem, name)) for name in ("Z", "lengthscales"))
    Z[..., -1, -1] = np.nextafter(Z[..., -1, -1], np.inf)
    lengthscales[-1, -1] = np.nextafter(lengthscales[-1, -1], np.inf)
    X = problem.X.copy()
    X[-1, -1] = np.nextafter(X[-1, -1], np.inf)
    changes = {name: value for name, value in _CHANGED.items() if name in accepted}
    if run.method in ("apep", "rpapep", "vi-robust", "x-gpc-svi"):  # one way only: nothing else to choose
        changes.pop("optimizer", None)
    if run.method == "pep":
        changes.pop("scheme", None)
    if run.method == "x-gpc-svi":
        changes["rate"] = 0.3
    changes |= {"X": X, "y": problem.y[::-1].copy(), "Z": Z[0] if binary else Z}
    changes["lengthscales"] = lengthscales[0] if binary else lengthscales
    for name in _FREE[run.method]:
        changes.pop(name, None)
    silent: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.npz"
        with suppress(_KilledError):
            fit(run, checkpoint=path, checkpoint_every=_EVERY, callback=_killer(3))
        before = path.read_bytes()
        for name, value in changes.items():
            try:
                fit(run, checkpoint=path, checkpoint_every=_EVERY, **{name: value})
            except ValueError as error:
                if "checkpoint" not in str(error) or name not in str(error):
                    silent.append(f"{name}: {error}")
            else:
                silent.append(name)
            if path.read_bytes() != before:
                silent.append(f"{name} (the file was changed)")
                path.write_bytes(before)
    yield Compared(
        float(len(silent)),
        0.0,
        f"every run has a name for what it depends on; accepted, or refused for another reason: {silent or 'none'}",
        "fast",
        "fast",
        f"of {len(changes)} changes, each made alone, those that were not refused by name",
    )


# -- read in another way -----------------------------------------------------------------------------------------


@contextmanager
def mapped(*arrays: Array) -> Iterator[list[Array]]:
    """The same numbers in files."""
    with tempfile.TemporaryDirectory() as folder:
        results: list[Array] = []
        for number, array in enumerate(arrays):
            file = np.memmap(Path(folder) / f"{number}.bin", dtype=array.dtype, mode="w+", shape=array.shape)
            file[...] = array
            file.flush()
            results.append(file)
        yield results
        del results, file


def read_otherwise(runs: Iterable[Run]) -> Iterable[Outcome]:
    """Memory maps, small blocks, no memory to keep projections, sites in a file."""
    for run in runs:
        run = run._replace(kind=f"{run.kind} many")
        problem = tiny(run.kind)
        whole = digits(fit(run))
        ways: dict[str, Mapping[str, Any]] = {"blocks of a tile, nothing kept": {"block_size": 1, "memory_budget": 0}}
        if run.method in ("ep",):
            ways["sites in a file"] = {"site_file": True}
        if run.method == "x-gpc-svi":
            ways = {}
        observed: dict[str, float] = {}
        with mapped(problem.X, problem.y) as (X, y), tempfile.TemporaryDirectory() as folder:
            ways["memory maps"] = {"X": X, "y": y}
            for way, changes in ways.items():
                if "site_file" in changes:
                    changes = {"site_file": Path(folder) / "sites"}
                other = digits(fit(run, **changes))
                same = other.shape == whole.shape
                scale = np.maximum(1.0, np.abs(whole[np.isfinite(whole)]).max())
                observed[way] = float(np.nanmax(np.abs(other - whole)) / scale) if same else np.inf
            del X, y, changes
        worst = max(observed, key=lambda way: observed[way])
        yield Compared(
            observed[worst],
            1e-9,
            f"{run.label}: sums in another order differ by rounding, some 1e-15 a step, times conditions of K_ZZ below "
            f"1e4; of {', '.join(observed)} the worst is {worst}",
            "fast",
            "fast, data read otherwise",
            "largest difference of any number",
        )


def _shards(run: Run) -> Iterable[Outcome]:
    """The same rows as arrays, as a list of blocks and as blocks that can only be read in their order."""
    problem = tiny(run.kind)
    sizes = {"block_size": 3, "pool_size": 8}
    whole = digits(fit(run, **sizes))
    blocks = [(problem.X[k : k + 3], problem.y[k : k + 3]) for k in range(0, problem.n, 3)]
    for name, n in (("counted", None), ("count given", problem.n)):
        other = digits(fit(run, **sizes, X=blocks, y=None, n=n))
        yield Compared(
            unequal(other, whole), 0.0, f"the order of the rows depends on the seed and the blocks alone; rows {name}",
            "fast, arrays", "fast, blocks", f"of {whole.size} numbers, those that differ",
        )  # fmt: skip
    in_order = _InOrder(blocks)
    ends = [digits(fit(run, **sizes, X=in_order, y=None)) for _ in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.npz"
        with suppress(_KilledError):
            fit(run, **sizes, X=in_order, y=None, checkpoint=path, checkpoint_every=_EVERY, callback=_killer(3))
        ends.append(digits(fit(run, **sizes, X=in_order, y=None, checkpoint=path, checkpoint_every=_EVERY)))
    yield Compared(
        unequal(ends[0], ends[1]) + unequal(ends[0], ends[2]), 0.0,
        "blocks that come in their own order come in it every time, after an interruption too",
        "fast", "fast", f"of {whole.size} numbers, those that differ",
    )  # fmt: skip


class _InOrder:
    """Blocks that can be read again and again, and not at random."""

    def __init__(self, blocks: list[tuple[Array, Array]]) -> None:
        self._parts = blocks

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        return iter(self._parts)


# -- runs that diverge -------------------------------------------------------------------------------------------

_WILD_CLASSES: Mapping[str, Any] = MappingProxyType({"batch_size": 3, "seed": 3, "learn": HYPER, "trace": True})
_WILD_BINARY: Mapping[str, Any] = MappingProxyType({"batch_size": 3, "seed": 3, "learn": ALL, "trace": True})
WILD = (
    Run("rate 500", "ep", "ep", "threshold", {**_WILD_CLASSES, "rate": 500.0, "n_steps": 9}),
    Run("rate 500", "sep", "sep", "threshold", {**_WILD_CLASSES, "rate": 500.0, "n_steps": 9}),
    Run("rate 5", "pep", "pep", "threshold errors", {**_WILD_CLASSES, "rate": 5.0, "n_steps": 60, "alpha": 0.7}),
    Run("rate 15", "vi-robust", "vi_robust", "threshold errors", {**_WILD_CLASSES, "rate": 15.0, "n_steps": 60}),
    *(
        Run("rate 30", energy, "apep", "threshold errors",
            {**_WILD_CLASSES, "rate": 30.0, "n_steps": 60, "alpha": 0.7, "energy": energy})
        for energy in ("apep", "arpep", "rpapep")
    ),
    Run("rate 13", "rpapep", "apep", "threshold errors",
        {**_WILD_CLASSES, "rate": 13.0, "n_steps": 60, "alpha": 0.7, "energy": "rpapep"}),
    *(
        Run("rate 200", method, module, kind, {**_WILD_BINARY, "learning_rate": 200.0, "n_steps": 60, **more})
        for method, module, kind, more in (
            ("x-gpc-svi", "x_gpc_svi", "logit", {"rate": 0.3}),
            ("svgpc", "svgpc_svi", "probit", {"rate": 0.3}),
            ("epgpc", "epgpc_svi", "probit", {}),
        )
    ),
)  # fmt: skip


def _hyper(posterior: Any) -> Array:
    """Parameters of the prior at the end of a run."""
    if hasattr(posterior, "trained"):
        hyper, Z = posterior.run.points.hyper, posterior.run.points.Z
    elif hasattr(posterior, "posterior"):
        hyper, Z = posterior.posterior.prior.hyper, posterior.posterior.prior.Z
    else:
        hyper, Z = posterior.hyper, posterior.Z
    return np.concatenate([np.ravel(part) for part in (hyper.variance, hyper.lengthscales, hyper.noise, Z)])


def diverging(runs: Iterable[Run]) -> Iterable[Outcome]:
    """Steps that throw parameters out of the range of a prior, and the same run that ends before the last of them."""
    for run in runs:
        posterior = fit(run)
        trained = getattr(posterior, "trained", posterior)
        made = int(trained.iterations)
        # a step of the classes' runs counts from the moment when its factors are refreshed
        counted = trained.reason.startswith(f"step {made}: ")
        told = trained.diverged and not trained.converged and (counted or f"step {made + 1}: " in trained.reason)
        before = made - counted
        differ = np.inf
        if told and before > 0:
            calm = fit(run, n_steps=before)
            differ = unequal(_hyper(posterior), _hyper(calm)) + float(getattr(calm, "trained", calm).diverged)
            if not counted:  # all of the state is that of the step before
                ends = (
                    [digits(end) for end in (posterior, calm)]
                    if not hasattr(posterior, "posterior")
                    else [np.zeros(0)] * 2
                )
                differ += unequal(*ends) - float(bool(ends[0].size))  # the flag itself
        elif told:
            problem = tiny(run.kind)
            start = [getattr(problem, name) for name in ("variance", "lengthscales", "noise", "Z")]
            differ = unequal(_hyper(posterior), np.concatenate([np.ravel(part) for part in start]))
        yield Compared(
            differ,
            0.0,
            f"{run.label}: the last good state is that of the run which ends there; {made} steps, {trained.reason!r}",
            "fast",
            "fast, one step less",
            "numbers that differ, all of them if the end is not told",
        )


# -- mixing that gives way ---------------------------------------------------------------------------------------


def fallback(method: str) -> Iterable[Outcome]:
    """Mixing that meets a matrix without a factor, and mixing that has a bug."""
    from fast.core.errors import NotPositiveDefiniteError
    from fast.sparse_classes import mixing as class_mixing

    options = {"damping": 0.7, "alpha": 0.7} if method == "pep" else {"damping": 0.7}
    run = Run("", method, method, "threshold errors" if method == "pep" else "threshold", options)
    with mock.patch.object(class_mixing, "_PLAIN", 10**6):
        plain = fit(run)
    with mock.patch.object(class_mixing, "iterate_sites", side_effect=NotPositiveDefiniteError("B of the judge")):
        gave_way = fit(run)
    apart = unequal(digits(gave_way), digits(plain))
    yield Compared(
        apart + float("B of the judge" not in gave_way.trained.reason), 0.0,
        f"without mixing the sweeps are the plain ones, and it is said why: {gave_way.trained.reason!r}", "fast",
        "fast, plain sweeps", "numbers that differ, and a reason that is missing",
    )  # fmt: skip
    hidden = []
    for error in (ValueError, ZeroDivisionError, IndexError, np.linalg.LinAlgError):
        with mock.patch.object(class_mixing, "iterate_sites", side_effect=error("a bug")), suppress(error):
            fit(run)
            hidden.append(error.__name__)
    yield Compared(
        float(len(hidden)), 0.0, f"only a failed factorisation is a reason to go on without mixing; hidden: {hidden}",
        "fast", "the definition", "of four other errors, those that were swallowed",
    )  # fmt: skip


def _register_fallback(method: str) -> None:
    @check(
        f"invariance/{method}/fallback",
        paper=PAPER[method],
        question="Does mixing give way to plain sweeps for a failed factorisation alone, and say so?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> list[Outcome]:
        return list(fallback(method))


for _method in ("ep", "pep"):
    _register_fallback(_method)


def _by_method() -> dict[str, list[Run]]:
    results: dict[str, list[Run]] = {}
    for run in RUNS:
        results.setdefault(run.method, []).append(run)
    return results


def _register(method: str, runs: list[Run]) -> None:
    # the energies share their steps, and with pep the blocks
    labels = ("all data",) if method in ("pep", "apep", "rpapep") else ("batches drawn", "all data", "small pools")
    whole = [run for run in runs if run.label in labels]
    quick, slow = ((2, 5), (6,)), ((2, 5), (3,), (6,))
    for quantity, question, function in (
        (
            "interrupted",
            "Does a run that is killed and continued end at the same digits?",
            lambda context: [
                *interrupted(runs, quick if context.quick else slow),
                *_by_products(run for run in whole if "learn" in run.options and run.method != "x-gpc-svi"),
            ],
        ),
        (
            "other_runs",
            "Is a checkpoint refused by runs of other data or settings, by name?",
            lambda context: other_runs(runs[0]),
        ),
        (
            "reading",
            "Do memory maps, small blocks and little memory change nothing?",
            lambda context: read_otherwise(whole),
        ),
    ):

        @check(f"invariance/{method}/{quantity}", paper=PAPER[method], question=question, problems=(NO_PROBLEM,))
        def _(context: Context, problem: Problem, function: Any = function) -> list[Outcome]:
            return list(function(context))


for _method, _runs in _by_method().items():
    _register(_method, _runs)


def _register_wild(method: str) -> None:
    @check(
        f"invariance/{method}/diverging",
        paper=PAPER[method],
        question="Does a run that leaves the range of its prior say so, and end at the state before?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> list[Outcome]:
        return list(diverging(run for run in WILD if run.method == method))


for _method in dict.fromkeys(run.method for run in WILD):
    _register_wild(_method)


@check(
    "invariance/x-gpc-svi/blocks",
    paper="wenzel2019",
    question="Do arrays, lists of blocks and blocks in their own order give the same run?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> list[Outcome]:
    return list(_shards(next(run for run in RUNS if run.method == "x-gpc-svi")))
