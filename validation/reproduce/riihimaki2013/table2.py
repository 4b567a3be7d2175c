"""riihimaki2013, section 5.4, Table 2: what an iteration costs, in factorisations and in evaluations of Φ, counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.riihimaki2013.complexity import complexity_table
from validation.claims.verdict import as_printed
from validation.door import arguments
from validation.door.problem import Problem
from validation.reproduce.experiment import Outcome, Say, Table, experiment
from validation.reproduce.operations import Counter, counted
from validation.reproduce.riihimaki2013 import setting

Array = NDArray[np.float64]

METHODS = ("nested-ep", "qep", "nested-iep", "qiep", "vb-probit", "laplace", "gibbs-probit")
_FEW, _MORE = 1, 3  # iterations of two runs, whose difference is what iterations take
_DRAWS = (20, 60)


def _in_an_iteration(method: str, problem: Problem, count: Callable[[Counter], float], nodes: int, seed: int) -> float:
    """What an iteration adds to a count: two runs of different length, their difference."""
    counts = []
    for place in (0, 1):
        own: dict[str, Any] = {"max_iterations": (_FEW, _MORE)[place], "tolerance": 1e-15}
        if method == "gibbs-probit":
            own = {"n_draws": _DRAWS[place], "n_warmup": 0, "n_chains": 4, "seed": seed}
        elif method in ("nested-ep", "nested-iep"):
            own |= {"accelerate": False, "inner": "incremental"}
        elif method in ("qep", "qiep"):
            own |= {"accelerate": False, "nodes": nodes}
        with counted() as counter:
            setting.answer(method, problem, **own)
            counts.append(count(counter))
    runs = _DRAWS if method == "gibbs-probit" else (_FEW, _MORE)
    return (counts[1] - counts[0]) / (runs[1] - runs[0])


def factors_per_iteration(method: str, problem: Problem, *, nodes: int = 5, seed: int = 0) -> float:
    """Factors of (n, n) matrices in one iteration.

    Parameters
    ----------
    method : str          one of METHODS
    problem : Problem     without test inputs; n is a number of rows that no other matrix has
    nodes : int           of qep and qiep, in each dimension
    seed : int            of the sampler
    """
    arguments.choice(method, METHODS, "method")
    return _in_an_iteration(method, problem, lambda counter: counter.factors.get(problem.n, 0), nodes, seed)


def nodes_per_datum(method: str, problem: Problem, nodes: int) -> float:
    """Points at which an iteration asks for Φ of the c - 1 coordinates of one datum; qiep asks for log Z as well.

    Parameters
    ----------
    method : str          qep or qiep
    problem : Problem     of c classes
    nodes : int           in each dimension
    """
    arguments.choice(method, ("qep", "qiep"), "method")
    values = _in_an_iteration(method, problem, lambda counter: counter.log_normal, nodes, 0)
    return values / (problem.n * (problem.n_classes - 1))


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
            problem = _problem(asked.n, c, asked.seed)
            factors = factors_per_iteration(method, problem, nodes=asked.nodes, seed=asked.seed)
            counts = [("factors of n × n", factors, posterior / float(asked.n) ** 3)]
            if method == "qep":
                counts.append(("nodes a datum", nodes_per_datum(method, problem, asked.nodes), likelihood / asked.n))
            elif method == "qiep":
                printed = 2.0 * (asked.nodes + asked.nodes**2)
                counts.append(
                    ("nodes a datum, moments and log Z", nodes_per_datum(method, problem, asked.nodes), printed)
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
            "serves all the first, and here another serves both the second, each once for the moments and "
            "once for log Z: 2 (n_q + n_q²) is set beside ours",
            "what nested EP, VB, LA and Gibbs sampling take for the likelihood is not counted: it has no unit",
        ),
    )
