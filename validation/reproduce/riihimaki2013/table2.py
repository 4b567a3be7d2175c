"""riihimaki2013, section 5.4, Table 2: what an iteration costs, in factorisations and in evaluations of Φ, counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import fast.core.linalg
import fast.full_classes.quadrature_tilt
import gibbs.core.linalg
from fast.core.results import Differences
from reference.riihimaki2013.complexity import complexity_table
from validation.claims.verdict import as_printed
from validation.door import arguments
from validation.door.problem import Problem
from validation.reproduce.experiment import Outcome, Say, Table, experiment
from validation.reproduce.riihimaki2013 import setting

Array = NDArray[np.float64]

METHODS = ("nested-ep", "qep", "nested-iep", "qiep", "vb-probit", "laplace", "gibbs-probit")
_FEW, _MORE = 1, 3  # iterations of two runs, whose difference is what iterations take
_DRAWS = (20, 60)


@contextmanager
def counted(n: int) -> Iterator[dict[str, int]]:
    """Counts, inside, Cholesky factors of (n, n) matrices in fast and gibbs, and values of Φ that quadratures ask for.

    Parameters
    ----------
    n : int    rows of the matrices that count; choose a number that nothing else has
    """
    results = {"factors": 0, "values": 0}

    def counting(original: Callable[..., Any], name: str, size: Callable[[Any], int]) -> Callable[..., Any]:
        def call(first: Any, *args: Any, **kwargs: Any) -> Any:
            results[name] += size(np.asarray(first))
            return original(first, *args, **kwargs)

        return call

    def matrices(values: Array) -> int:
        return int(np.prod(values.shape[:-2])) if values.shape[-2:] == (n, n) else 0

    tilt = fast.full_classes.quadrature_tilt
    with (
        patch.object(fast.core.linalg, "dpotrf", counting(fast.core.linalg.dpotrf, "factors", matrices)),
        patch.object(gibbs.core.linalg, "dpotrf", counting(gibbs.core.linalg.dpotrf, "factors", matrices)),
        patch.object(np.linalg, "cholesky", counting(np.linalg.cholesky, "factors", matrices)),
        patch.object(tilt, "log_ndtr", counting(tilt.log_ndtr, "values", lambda values: values.size)),
    ):
        yield results


def factors_per_iteration(method: str, problem: Problem, *, nodes: int = 5, seed: int = 0) -> float:
    """Factors of (n, n) matrices in one iteration: two runs of different length, their difference.

    Parameters
    ----------
    method : str          one of METHODS
    problem : Problem     without test inputs
    nodes : int           of qep and qiep, in each dimension
    seed : int            of the sampler
    """
    arguments.choice(method, METHODS, "method")
    counts = []
    for place in (0, 1):
        own: dict[str, Any] = {"max_iterations": (_FEW, _MORE)[place], "tolerance": 1e-15}
        if method == "gibbs-probit":
            own = {"n_draws": _DRAWS[place], "n_warmup": 0, "n_chains": 4, "seed": seed}
        elif method in ("nested-ep", "nested-iep"):
            own |= {"accelerate": False, "inner": "incremental"}
        elif method in ("qep", "qiep"):
            own |= {"accelerate": False, "nodes": nodes}
        with counted(problem.n) as value:
            setting.answer(method, problem, **own)
        counts.append(value["factors"])
    runs = _DRAWS if method == "gibbs-probit" else (_FEW, _MORE)
    return (counts[1] - counts[0]) / (runs[1] - runs[0])


def nodes_per_datum(method: str, n_classes: int, nodes: int) -> float:
    """Points at which the tilted moments of one datum ask for Φ of their c - 1 coordinates.

    Parameters
    ----------
    method : str       qep or qiep
    n_classes : int    c
    nodes : int        in each dimension
    """
    arguments.choice(method, ("qep", "qiep"), "method")
    tilt, D = fast.full_classes.quadrature_tilt, n_classes - 1
    with counted(0) as value:
        if method == "qep":
            tilt.white_moments(Differences(np.zeros((1, D)), (np.eye(D) + 1.0)[None]), nodes)
        else:
            y, others = np.zeros(1, dtype=np.int64), np.arange(1, n_classes)[None]
            tilt.independent_tilt(np.zeros((1, n_classes)), np.ones((1, n_classes)), y, others, nodes)
    return value["values"] / D


def _problem(n: int, n_classes: int, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.normal(size=(n, 2)) + np.stack([np.cos(y), np.sin(y)], axis=1)
    return Problem(f"classes-{n_classes}", X, y, n_classes, "multinomial-probit", variance=float(np.exp(1.0)),
                   lengthscales=1.0, jitter=setting.JITTER)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Table2Options:
    """Options of `table2`."""

    methods: Sequence[str] = METHODS
    classes: Sequence[int] = (3, 4, 5)
    n: int = 31
    nodes: int = 5
    seed: int = 0


@experiment(
    "riihimaki2013",
    "table2",
    "factorisations and evaluations of an iteration, counted",
    "EP, QEP and LA factorise c + 1 matrices of size n an iteration, IEP, QIEP and Gibbs sampling c, VB one; QEP's "
    "rules have n_q^(c-1) nodes, QIEP's (2c - 1)n_q and 2n_q² (section 5.4, Table 2)",
    cells=lambda asked: len(asked.methods) * len(asked.classes),
    ahead=True,
)
def table2(asked: Table2Options, say: Say) -> Outcome:
    """Exact counts on small problems: what Table 2 has as orders has no constant that seconds could be set beside."""
    rows: list[tuple[object, ...]] = []
    for method in asked.methods:
        for c in asked.classes:
            say(f"{setting.NAMES[method]}, {c} classes")
            posterior, likelihood = complexity_table(method, asked.n, c, 1, asked.nodes, 1)
            factors = factors_per_iteration(
                method, _problem(asked.n, c, asked.seed), nodes=asked.nodes, seed=asked.seed
            )
            counts = [("factors of n × n", factors, posterior / float(asked.n) ** 3)]
            if method == "qep":
                counts.append(("nodes a datum", nodes_per_datum(method, c, asked.nodes), likelihood / asked.n))
            elif method == "qiep":
                counts.append(
                    (
                        "nodes a datum, shared",
                        nodes_per_datum(method, c, asked.nodes),
                        float(asked.nodes + asked.nodes**2),
                    )
                )
            for quantity, ours, theirs in counts:
                rows.append((setting.NAMES[method], c, quantity, ours, theirs, as_printed(ours, theirs)))
    return Outcome(
        {"problem": f"n = {asked.n}, two inputs", "nodes": asked.nodes, "seed": asked.seed},
        (
            Table(
                "table2",
                ("method", "classes", "quantity", "ours", "paper", "as printed"),
                tuple(rows),
                "An iteration of these programs, counted, and the paper's Table 2",
            ),
        ),
        (),
        (
            "Table 2 has fixed hyper-parameters. VB and Gibbs sampling then need the factor of K + I alone, which is "
            "made once: an iteration has none, fewer than printed, and costs cn²",
            "QIEP: Table 2 counts 2c - 1 rules of n_q nodes and two of n_q²; section 5.4 says that one table of values "
            "serves all the first, and here another serves both the second: n_q + n_q² nodes are set beside ours",
            "what nested EP, VB, LA and Gibbs sampling take for the likelihood is not counted: it has no unit",
        ),
    )
