"""Learning paths step by step: every schedule, rate, optimiser and search of both witnesses from the same start.

Eight data, two or three steps. A step is a deterministic computation, so both must be at the same place after each,
to rounding, before differences of their routes can grow. The problems leave no setting at a value that hides a mistake:
jitter and noise are positive, inducing points correlated, parameters differ from class to class, an index stands twice
in a batch, and damping is not one half.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.door.catalogue import METHODS
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.judge.compare import identity_limit, relative_difference

WITNESSES = ("reference", "fast")
HYPER = ("variance", "lengthscales", "noise")
ALL = (*HYPER, "Z")
PAPER = {entry.method: entry.paper for entry in METHODS}
# 3 stands twice in the first, and the last begins with an index of the first
BATCHES = ((0, 3, 3, 5), (1, 6), (3, 2, 7, 1))
DISTRIBUTIONS: Mapping[str, tuple[str, float, float]] = MappingProxyType(
    {"variance": ("half-student-t", 4.0, 2.0), "lengthscales": ("half-student-t", 4.0, 1.5),
     "noise": ("log-normal", 1.0, 0.3)}
)  # fmt: skip
_FIELDS = (
    "log_evidence", "latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities",
    "probability_mass", "inducing_mean", "inducing_cov", "trace", "residual", "iterations", "n_improper", "converged",
)  # fmt: skip
# what depends on how a fixed point was approached, and not on where it is
ROUTE = ("trace", "residual", "iterations")


@cache
def tiny(kind: str) -> Problem:
    """Eight data in two dimensions.

    kind : str    the likelihood, then what differs from the ordinary: "threshold shared", "logit full", ...; of labels
                  drawn at random ("errors"), one parameter vector ("shared"), no inducing points ("full"), a Matérn
                  kernel ("matern"), a distribution of the parameters ("distributions"), variances below 1/1000
                  ("small"), 150 data ("many")
    """
    likelihood, *words = kind.split()
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.5, 1.5, (8, 2))
    binary = likelihood in ("logit", "probit")
    one = binary or "shared" in words
    scale = 3e-4 if "small" in words else 1.0
    Z = np.stack([X[:4] + 0.2, X[2:6] - 0.3, X[4:8] + np.array([0.1, -0.2])])
    Z[:, 1] = Z[:, 0] + np.array([0.35, 0.1])  # a third of a lengthscale apart: correlated
    y = np.array([0, 1, 1, 0, 1, 0, 1, 1] if binary else [0, 1, 2, 0, 1, 2, 1, 0])
    if "many" in words:
        rng = np.random.default_rng(6)
        X, y = rng.uniform(-1.5, 1.5, (150, 2)), rng.permutation(np.resize(y, 150))
    return Problem(
        name=kind,
        X=X,
        y=y,
        n_classes=2 if binary else 3,
        likelihood=likelihood,
        variance=scale * np.array(1.7 if one else [0.8, 1.7, 3.1]),
        lengthscales=[0.9, 1.4] if one else [[0.9, 1.4], [1.2, 0.8], [1.6, 1.1]],
        noise=scale * np.array(0.2 if one else [0.3, 0.1, 0.2]),
        jitter=scale * np.array(2e-3 if one else [1e-3, 3e-3, 2e-3]),
        kernel="matern" if "matern" in words else "se",
        smoothness=1.3 if "matern" in words else None,
        Z=None if "full" in words else Z[0] if one else Z,
        shared="shared" in words,
        prior_model="full" if "full" in words else "fitc",
        epsilon=0.05 if "errors" in words else 0.0,
        hyperprior=DISTRIBUTIONS if "distributions" in words else None,
        X_test=np.vstack([rng.uniform(-1.5, 1.5, (3, 2)), X[:1]]),
    )


class Run(NamedTuple):
    """One question to both witnesses.

    label : str           what is asked
    kind : str            of `tiny`
    options : mapping     of `solve`
    fast : mapping        more of them for `fast` alone: they are to change nothing
    apart : names         fields that say how a witness came to the answer, in which they may differ
    limit, why            in place of the limit of an identity, and its reason
    full : bool           asked by a full run only: what it shows another row shows too, or it takes long
    """

    label: str
    kind: str
    options: Mapping[str, Any]
    fast: Mapping[str, Any] = MappingProxyType({})
    apart: tuple[str, ...] = ()
    limit: float | None = None
    why: str = "two or three steps leave no room for more than rounding"
    full: bool = False


# -- rows --------------------------------------------------------------------------------------------------------

_BLOCKS = MappingProxyType({"block_size": 3})
_LISTED: Mapping[str, Any] = MappingProxyType({"batches": BATCHES, "trace": True})
_SEEDED: Mapping[str, Any] = MappingProxyType({"batch_size": 3, "n_steps": 4, "seed": 3, "trace": True})


def _classes(damping: bool, **common: Any) -> dict[str, Any]:
    return {"trace": True, **({"damping": 0.7} if damping else {}), **common}


def _ep(method: str) -> tuple[Run, ...]:
    """ep and sep: schemes, optimisers, batches listed and drawn."""
    steps = _classes(True, learn=ALL, n_steps=3, rate=0.05)
    listed = _classes(True, learn=ALL, rate=0.05, batches=BATCHES)
    results = [
        # an outer step follows sweeps to a tolerance, whose last change is rounding
        Run("scheme outer", "threshold", steps | {"scheme": "outer"}, _BLOCKS, ("residual",)),
        *(Run(f"scheme {name}", "threshold", steps | {"scheme": name}, _BLOCKS) for name in _INNER),
        Run("adaptive rates", "threshold", steps | {"optimizer": "adaptive"}),
        Run("adaptive rates, batches", "threshold", listed | {"optimizer": "adaptive"}),
        *(Run(f"batches, {name}", "threshold", listed | {"scheme": name}, _BLOCKS) for name in _INNER),
        Run("batches, one prior", "threshold shared", listed),
        Run("batches, nothing learned", "threshold", _classes(True, batches=BATCHES), _BLOCKS),
        Run("batches drawn", "threshold", {**_SEEDED, "damping": 0.3, "learn": HYPER}),
    ]
    if method == "ep":
        results += [
            Run("search", "threshold", _classes(True, learn=ALL, n_steps=3, optimizer="lbfgs")),
            Run("sites of data", "threshold", steps | {"factors": "datum"}, _BLOCKS),
            Run("sites of data, batches", "threshold", listed | {"factors": "datum"}),
            Run("in order", "threshold", steps | {"schedule": "sequential"}),
        ]
    else:
        results.append(Run("factors counted by class", "threshold", listed | {"count": "per-class"}))
    return tuple(results)


_INNER = ("inner-approximate", "inner-exact")


def _pep() -> tuple[Run, ...]:
    common = _classes(True, alpha=0.7, learn=ALL, rate=0.05)
    return (
        Run(
            "scheme outer",
            "threshold errors",
            common | {"n_steps": 2, "scheme": "outer"},
            apart=("residual",),
            full=True,
        ),
        Run("scheme inner", "threshold errors", common | {"n_steps": 3, "scheme": "inner"}),
        Run("adaptive rates", "threshold errors", common | {"n_steps": 3, "optimizer": "adaptive"}),
        Run("batches", "threshold errors", common | {"batches": BATCHES}),
        Run("batches, one prior", "threshold errors shared", common | {"batches": BATCHES}),
        Run("batches drawn", "threshold errors", {**_SEEDED, "alpha": 0.7, "damping": 0.3, "learn": HYPER}),
        Run("search", "threshold errors", _classes(True, alpha=0.7, learn=HYPER, n_steps=1, optimizer="lbfgs")),
        *(
            Run(f"rule {rule}", "threshold errors", common | {"n_steps": 2, "gradient_rule": rule})
            for rule in ("28", "exact")
        ),
    )


# where all classes are alike every label has probability 1/C, whatever the parameters that they share
_ALIKE = (
    "at q = p the gradient in the shared prior is rounding of 1e-16, which Adam, whose smallest divisor is 1e-8, turns "
    "into steps of 1e-9; in the steps after it curvatures of 1e3 and less make 1e-5 of that"
)


def _energy(method: str) -> tuple[Run, ...]:
    common = _classes(False, alpha=0.7, learn=ALL, rate=0.05)
    results = [
        Run("all together", "threshold errors", common | {"n_steps": 3, "optimizer": "adam"}),
        Run("batches", "threshold errors", common | {"batches": BATCHES}),
        Run("batches, one prior", "threshold errors shared", common | {"batches": BATCHES}, limit=1e-4, why=_ALIKE),
        Run("batches, nothing learned", "threshold errors", common | {"batches": BATCHES, "learn": ()}),
        Run("batches drawn", "threshold errors", {**_SEEDED, "alpha": 0.7, "learn": HYPER}),
        Run("alpha 0", "threshold errors", common | {"batches": BATCHES, "alpha": 0.0}),
    ]
    if method != "rpapep":  # whose inner optimum takes seconds
        search = {**_SEARCH, "alpha": 0.7, "learn": HYPER, "optimizer": "lbfgs"}
        results.append(Run("search", "threshold errors", search, full=method == "arpep"))
    return tuple(results)


_SEARCH: Mapping[str, Any] = MappingProxyType({"n_steps": 1, "trace": True})


def _robust() -> tuple[Run, ...]:
    common = {"trace": True, "learn": ALL, "rate": 0.05, "nat_rate": 0.3}
    return (
        Run("in turn", "threshold errors", common | {"n_steps": 3, "optimizer": "adam"}, _BLOCKS),
        Run("batches", "threshold errors", common | {"batches": BATCHES}, _BLOCKS),
        Run("batches, one prior", "threshold errors shared", common | {"batches": BATCHES}),
        Run("batches, nothing learned", "threshold errors", common | {"batches": BATCHES, "learn": ()}),
        Run("batches drawn", "threshold errors", {**_SEEDED, "nat_rate": 0.3, "learn": HYPER}),
        Run("search", "threshold errors", {**_SEARCH, "learn": HYPER, "optimizer": "lbfgs"}, _BLOCKS),
    )


def _binary(method: str, kind: str) -> tuple[Run, ...]:
    """x-gpc-svi and svgpc on batches."""
    results = [
        Run(f"rate {rate}", kind, {**_LISTED, "rate": rate, "learn": learn})
        for rate in ("adaptive", 0.3, ("decay", 1.0, 2.0, 0.7))
        for learn in ((), ALL)
    ]
    results += [
        Run("first looks", kind, {**_LISTED, "rate": "adaptive", "learn": ALL, "init_batches": ((1, 2), (4, 4, 7))}),
        Run("until it stops", kind, {"batches": BATCHES * 12, "window": 3, "stop": 0.05, "trace": True, "rate": 0.3}),
        Run("learning until it stops", kind,
            {"batches": BATCHES * 40, "window": 2, "stop": 0.05, "trace": True, "rate": 0.3, "learn": ("variance",)},
            full=True),
    ]  # fmt: skip
    # a threshold of None is handed to `fast` as zero: never
    results.append(Run("never stops", kind, {"batches": BATCHES * 4, "stop": None, "trace": True, "rate": 0.3}))
    return tuple(entry._replace(apart=("residual",)) for entry in results)


def _epgpc() -> tuple[Run, ...]:
    results = [
        Run(f"{'side by side' if side else 'in order'}, {'learned' if learn else 'held'}", "probit",
            {**_LISTED, "damping": 0.7, "parallel": side, "learn": learn}, apart=("residual",))
        for side in (True, False) for learn in ((), ALL)
    ]  # fmt: skip
    return tuple(results)


def _full(kind: str, **more: Any) -> tuple[Run, ...]:
    """Searches of full GPs: plain and with a distribution of the parameters, which sits on the field or on its root."""
    common: dict[str, Any] = {"learn": HYPER, "max_iterations": 2, **more}
    distributions = f"{kind} distributions"
    results = [
        Run("search", kind, common),
        Run("search, one prior", f"{kind} shared", common | {"learn": ("variance", "lengthscales")}),
        Run("search with distributions", distributions, common),
        Run("distributions of logarithms", distributions, common | {"map_density": "log"}),
        Run("distributions of roots", distributions, common | {"prior_on": "root"}),
        Run("distributions, one prior", f"{distributions} shared", common),
    ]
    return tuple(entry._replace(apart=("residual",)) for entry in results)


def _nested() -> tuple[Run, ...]:
    kind = "multinomial-probit full"
    common: dict[str, Any] = {"damping": 0.7, "max_iterations": 3, "trace": True}
    ways = [
        Run(f"{schedule}, inner {inner} {order}", kind,
            common | {"schedule": schedule, "inner": inner, "inner_schedule": order, "inner_damping": 0.8},
            apart=("residual", "converged"))
        for schedule, inner in (("parallel", "incremental"), ("sequential", "converged"))
        for order in ("sequential", "parallel")
    ]  # fmt: skip
    return (*ways, *(run._replace(full=True) for run in _full(kind)[2:3]))


_INNER_SEARCH = (
    "a step of the parameters is a search of its own, which stops at derivatives of 1e-6 over curvatures of 1/10"
)

RUNS: Mapping[str, tuple[Run, ...]] = MappingProxyType(
    {
        "ep": _ep("ep"),
        "sep": _ep("sep"),
        "gfitc": (
            Run("search", "threshold", _classes(True, learn=ALL, n_steps=2), _BLOCKS),
        ),
        "vi-robust": _robust(),
        "pep": _pep(),
        **{method: _energy(method) for method in ("apep", "arpep", "rpapep")},
        "label-regression": (
            Run("adaptive rates", "threshold errors",
                {"learn": ALL, "optimizer": "adaptive", "n_steps": 3, "trace": True}),
            Run("adaptive rates, one prior", "threshold errors shared",
                {"learn": HYPER, "optimizer": "adaptive", "n_steps": 3, "trace": True}),
        ),
        "x-gpc-svi": _binary("x-gpc-svi", "logit"),
        "svgpc": _binary("svgpc", "probit"),
        "epgpc": _epgpc(),
        "x-gpc": (
            Run("search", "logit", {"learn": ALL, "learning_iterations": 2}, _BLOCKS, ("residual",)),
            Run("search, full", "logit full", {"learn": HYPER, "learning_iterations": 2}, apart=("residual",)),
        ),
        "svi": tuple(
            Run(f"batches{kernel}", f"{link}{kernel}", {"batches": BATCHES, "learn": learn, "rate": 0.5},
                apart=("trace", "residual"))
            for link, kernel in (("logit", ""), ("probit", " matern")) for learn in ((), HYPER)
        ),
        "nested-ep": _nested(),
        "nested-iep": _nested(),
        "laplace": _full("softmax full"),
        "vb-probit": (
            Run("in turn", "multinomial-probit full", {"learn": HYPER, "optimizer": "em", "max_iterations": 1},
                apart=("residual",), limit=1e-4, why=_INNER_SEARCH),
        ),
    }
)  # fmt: skip


# -- comparing ---------------------------------------------------------------------------------------------------


def numbers(solution: Solution, apart: Iterable[str] = ()) -> dict[str, NDArray[np.float64]]:
    """Everything numeric that a solution says, by name."""
    values = {name: getattr(solution, name) for name in _FIELDS if name not in apart}
    values |= {f"learned {name}": getattr(solution.problem, name) for name in ALL}
    values |= {f"gradient {name}": value for name, value in (solution.gradients or {}).items()}
    values |= {name: value for name, value in solution.local.items() if value.dtype.kind in "fib"}
    return {name: np.asarray(value, dtype=np.float64) for name, value in values.items() if value is not None}


def farthest(left: Solution, right: Solution, apart: Iterable[str] = ()) -> tuple[float, str, int]:
    """The largest relative difference of anything that both say, what it is, and how many things were compared."""
    a, b = numbers(left, apart), numbers(right, apart)
    both = [name for name in a if name in b]
    missing = {"log_evidence", "latent_mean", "latent_cov", "probabilities"} - set(both)
    if missing:
        return np.inf, f"{sorted(missing)[0]} is missing", 0
    apart_by = {
        name: np.inf if a[name].shape != b[name].shape else relative_difference(a[name], b[name])
        for name in both
        if a[name].size or b[name].size
    }
    worst = max(apart_by, key=lambda name: np.inf if np.isnan(apart_by[name]) else apart_by[name])
    return apart_by[worst], worst, len(apart_by)


def side_by_side(context: Context, method: str, runs: Iterable[Run]) -> Iterable[Outcome]:
    """Both witnesses asked the same, run by run."""
    for run in runs:
        if run.full and context.quick:
            continue
        problem = tiny(run.kind)
        left = context.solve("reference", method, problem, **run.options)
        right = context.solve("fast", method, problem, **run.options, **run.fast)
        limit, why = identity_limit(problem)
        observed, worst, count = farthest(left, right, run.apart)
        yield Compared(
            observed,
            run.limit or limit,
            f"{run.label} ({run.kind}): of {count} quantities {worst} is worst; {run.why}; {why}",
            *WITNESSES,
            f"relative difference of {worst}",
        )


def told(context: Context, method: str, run: Run) -> Iterable[Outcome]:
    """A listener of a run on batches, and how many steps the answer says were made."""
    for witness in WITNESSES:
        visited: list[int] = []

        def listen(progress: Any, visited: list[int] = visited) -> None:
            visited.append(int(progress.iteration))

        answer = context.solve(witness, method, tiny(run.kind), callback=listen, **run.options)
        wanted = list(range(1, len(run.options["batches"]) + 1))
        yield Compared(
            float(visited != wanted) + float(answer.iterations != len(wanted)),
            0.0,
            f"{len(wanted)} batches are as many steps; told of {visited}, counted {answer.iterations}",
            witness,
            "the definition",
            "whether the steps told of, or their count, are others",
        )


def _register_told(method: str) -> None:
    run = next(run for run in RUNS[method] if "batches" in run.options)

    @check(
        f"invariance/{method}/told",
        paper=PAPER[method],
        question="A callback is called once for every step of a run on batches, in order.",
        problems=(NO_PROBLEM,),
    )
    def invariance_told(context: Context, problem: Problem) -> Iterable[Outcome]:
        return told(context, method, run)


def _register(method: str, runs: tuple[Run, ...]) -> None:
    @check(
        f"identity/{method}/paths",
        paper=PAPER[method],
        question="Both witnesses make the same steps on every schedule, with every rate and in every search.",
        problems=(NO_PROBLEM,),
    )
    def paths(context: Context, problem: Problem) -> Iterable[Outcome]:
        return side_by_side(context, method, runs)


for _method, _runs in RUNS.items():
    _register(_method, _runs)
for _method in ("ep", "sep", "pep", "apep", "vi-robust", "x-gpc-svi", "svgpc", "epgpc", "svi"):
    _register_told(_method)
