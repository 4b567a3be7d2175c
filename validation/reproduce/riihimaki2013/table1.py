"""riihimaki2013, section 5.1, Table 1: nested and quadrature EP against Gibbs sampling after 30 outer iterations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist

from gibbs.core import options as gibbs_options
from gibbs.core import values
from gibbs.models import multinomial_probit
from validation.door import arguments
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.ledger.marker import equation
from validation.reproduce.experiment import Outcome, Say, Table, experiment
from validation.reproduce.printed import option
from validation.reproduce.published import published
from validation.reproduce.riihimaki2013 import setting

Array = NDArray[np.float64]
METHODS = ("nested-ep", "qep", "nested-iep", "qiep")
QUANTITIES = ("latent means", "latent variances", "class probabilities")
VARIANCES = ("conditional", "drawn")


class Distance(NamedTuple):
    """Of an approximation from the chains, over all entries of one quantity."""

    mean: float
    max: float


class Variant(NamedTuple):
    """One method: distances by quantity, and what it took."""

    training: dict[str, Distance]
    test: dict[str, Distance]
    seconds: float


@equation("riihimaki2013", "u5.1-ep-study")
def compare_ep_variants(
    problem: Problem,
    truth: Solution,
    *,
    methods: Sequence[str] = METHODS,
    iterations: int = 30,
    nodes: int = 10,
    nodes_qiep: int = 10,
    damping: float = 0.8,
) -> dict[str, Variant]:
    """Mean and maximum absolute differences to Gibbs sampling after some outer iterations: Table 1 of riihimaki2013.

    All methods take plain parallel outer iterations from zero sites; the nested ones are incremental, one sweep of
    inner EP a site.

    Parameters
    ----------
    problem : Problem      multinomial probit; its test inputs begin with its n training inputs, so that the first n
                           probabilities are those at the data
    truth : Solution       of gibbs-probit on it
    methods : method ids   out of nested-ep, qep, nested-iep, qiep
    iterations : int       outer ones
    nodes : int            per dimension, of qep: C - 1 dimensions
    nodes_qiep : int       per dimension, of qiep: at most two
    damping : float        of the outer iterations; the paper does not print it

    Raises
    ------
    ValueError             another method, test inputs that do not begin with the data, a truth of another problem
    """
    n = problem.n
    if problem.X_test is None or not np.array_equal(problem.X_test[:n], problem.X):
        raise ValueError("X_test: found other rows than those of X first, expected the training inputs, then the test")
    changed = problem.differences(truth.problem)
    if changed:
        raise ValueError(f"truth: found a solution of another problem, which differs in {changed}")
    right = _quantities(truth)
    results = {}
    for method in methods:
        arguments.choice(method, METHODS, "methods")
        own: dict[str, Any] = {"inner": "incremental"}
        if method in ("qep", "qiep"):
            own = {"nodes": nodes if method == "qep" else nodes_qiep}
        solution = setting.answer(
            method, problem, max_iterations=iterations, damping=damping, accelerate=False, tolerance=1e-12, **own
        )
        gaps = {name: np.abs(value - right[name]) for name, value in _quantities(solution).items()}
        results[method] = Variant(
            {name: _distance(gap[:n]) for name, gap in gaps.items()},
            {name: _distance(gap[n:]) for name, gap in gaps.items()},
            float(solution.seconds or 0.0),
        )
    return results


def _quantities(solution: Solution) -> dict[str, Array]:
    if solution.test_latent_mean is None or solution.test_latent_cov is None or solution.probabilities is None:
        raise ValueError(f"{solution.label}: found no predictions, expected latent moments and class probabilities")
    variances = np.einsum("tcc->tc", solution.test_latent_cov)
    return dict(zip(QUANTITIES, (solution.test_latent_mean, variances, solution.probabilities), strict=True))


def drawn_variances(problem: Problem, latent_draws: Array, rng: np.random.Generator) -> Array:
    """Sample variances of draws at the test inputs: another estimate of the chains' variances, and a noisier one.

    Draws of f at the data are taken as they are; at other inputs f* is drawn given each of them. The table's means stay
    those of conditional means: at inputs far from all data drawn values would miss by sqrt(2 σ²/(π N)) on average.

    Parameters
    ----------
    problem : Problem                  one prior for all classes; its test inputs begin with its n training inputs
    latent_draws : (N, n, C)           of f at the data
    rng : Generator                    of f* given f

    Returns
    -------
    (t, C)                             with N - 1 degrees of freedom
    """
    assert problem.X_test is not None  # compare_ep_variants asks for it
    variance, lengthscales = float(problem.variance[0]), problem.lengthscales[0]
    X, others = problem.X / lengthscales, problem.X_test[problem.n :] / lengthscales
    K = variance * np.exp(-0.5 * cdist(X, X, "sqeuclidean")) + problem.jitter[0] * np.eye(problem.n)
    K_XT = variance * np.exp(-0.5 * cdist(X, others, "sqeuclidean"))
    weights = cho_solve(cho_factor(K, lower=True), K_XT)
    left = np.maximum(variance - np.einsum("nt,nt->t", weights, K_XT), 0.0)  # rounding, at inputs among the data
    means = np.einsum("nt,snc->stc", weights, latent_draws)
    values_there = means + np.sqrt(left)[:, None] * rng.standard_normal(means.shape)
    return np.concatenate([latent_draws.var(axis=0, ddof=1), values_there.var(axis=0, ddof=1)])


def _truth(problem: Problem, asked: Table1Options, seed: int) -> Solution:
    """Of the chains, with variances as asked: those of drawn values come from a second run of the same seed."""
    lengths: dict[str, Any] = {"seed": seed, "n_chains": asked.n_chains, "n_draws": asked.n_draws, "n_warmup": 100}
    truth = setting.answer("gibbs-probit", problem, **lengths)
    if asked.variances == "conditional":
        return truth
    data = values.Data(problem.X, problem.y, problem.n_classes)
    prior = values.Prior(problem.variance, problem.lengthscales, problem.noise, problem.jitter)
    chains = multinomial_probit.sample(data, prior, gibbs_options.ProbitOptions(**lengths))
    draws = chains.latent_draws.reshape(-1, problem.n, problem.n_classes)
    variances = drawn_variances(problem, draws, np.random.default_rng([seed, 1]))
    return replace(truth, test_latent_cov=variances[:, :, None] * np.eye(problem.n_classes))


def _distance(gap: Array) -> Distance:
    return Distance(float(gap.mean()), float(gap.max())) if gap.size else Distance(float("nan"), float("nan"))


class Part(NamedTuple):
    """What one split gave, by part, quantity as the table has it, and method."""

    cells: dict[tuple[str, str, str], float]
    size: tuple[int, int]  # training and test rows
    errors: dict[str, float]  # largest Monte Carlo error of the chains
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Table1Options:
    """Options of `table1`."""

    dataset: str = "glass"
    methods: Sequence[str] = METHODS
    n: int = 2000
    n_test: int = 2000
    iterations: int = 30
    nodes: int = option(5, 10, "nodes per dimension of QEP")
    damping: float = 0.8
    log_variance: float = 1.0
    log_lengthscale: float = 1.0
    n_chains: int = 8
    n_draws: int = 400
    variances: str = "conditional"
    splits: int = 1
    seed: int = 0


@experiment(
    "riihimaki2013",
    "table1",
    "nested and quadrature EP against Gibbs sampling after 30 outer iterations",
    "the differences in accuracy between the methods are small; full couplings give slightly better means and "
    "clearly better variances on Glass; QEP is much slower with six classes (section 5.1, Table 1)",
)
def table1(asked: Table1Options, say: Say) -> Outcome:
    """Glass, or USPS 3 vs. 5 vs. 7 with --dataset usps-357; the paper's rule of QEP has nodes=10.

    The chains' variances are those of conditional means plus the conditional variance, or with variances=drawn those of
    drawn values; the paper says neither which it took nor how many draws.
    """
    arguments.integer(asked.splits, "splits", at_least=1)
    arguments.choice(asked.variances, VARIANCES, "variances")

    def part(number: int) -> Part:
        cut = setting.parts(asked.dataset, n=asked.n, n_test=asked.n_test, seed=asked.seed + number)
        problem = setting.pose(cut, asked.log_variance, asked.log_lengthscale, training=True)
        say(
            f"split {number + 1} of {asked.splits}, Gibbs sampling: n = {problem.n}, {asked.n_chains} chains of "
            f"{asked.n_draws} draws"
        )
        truth = _truth(problem, asked, asked.seed + number)
        say(f"split {number + 1} of {asked.splits}, {asked.iterations} outer iterations of {', '.join(asked.methods)}")
        result = compare_ep_variants(
            problem, truth, methods=asked.methods, iterations=asked.iterations, nodes=asked.nodes, damping=asked.damping
        )
        return Part(
            _cells(result), (problem.n, cut.y_test.size), _errors(truth), (*cut.notes, *setting.chains_note(truth))
        )

    parts = [part(number) for number in range(asked.splits)]
    errors = {name: max(one.errors[name] for one in parts) for name in parts[0].errors}
    notes = [
        *dict.fromkeys(note for one in parts for note in one.notes),
        "Monte Carlo errors of the chains here: "
        + ", ".join(f"{name} at most {error:.2g}" for name, error in errors.items())
        + "; the paper's differences contain those of its own chains, which it does not print",
        "±: what one split of the paper's may be off from the mean of those here, the spread of splits times "
        "the root of 1 + 1/splits; with one split there is none",
    ]
    notes.append("time is relative to the fastest, of predictions too and of these programs")
    return Outcome(
        {
            "data": f"{asked.dataset}: n = {parts[0].size[0]}, {parts[0].size[1]} test rows, {asked.splits} splits",
            "hyper-parameters": f"log variance {asked.log_variance:g}, log lengthscale {asked.log_lengthscale:g}",
            "iterations": f"{asked.iterations} parallel, damping {asked.damping:g}, inner EP incremental",
            "chains": f"{asked.n_chains} of {asked.n_draws} draws, {asked.variances} variances",
            "seed": asked.seed,
        },
        (
            Table(
                "table1",
                ("data", "part", "what", "method", "here", "±", "printed", "repetitions"),
                tuple(_rows(asked.dataset, parts)),
                "Absolute differences to Gibbs sampling, here and in the paper's Table 1",
            ),
        ),
        (),
        tuple(notes),
    )


def _cells(result: Mapping[str, Variant]) -> dict[tuple[str, str, str], float]:
    """Distances and relative times of all methods."""
    fastest = min(variant.seconds for variant in result.values())
    values: dict[tuple[str, str, str], float] = {}
    for method, variant in result.items():
        for name in ("training", "test"):
            for quantity, distance in getattr(variant, name).items():
                for kind in distance._fields:
                    values[name, f"{quantity.capitalize()}, {kind}", method] = getattr(distance, kind)
        values["both", "Relative CPU time", method] = variant.seconds / fastest
    return values


def _errors(truth: Solution) -> dict[str, float]:
    """Largest Monte Carlo errors at the rows that are compared."""
    given = (
        truth.test_latent_mean_se,
        None if truth.test_latent_cov_se is None else np.einsum("tcc->tc", truth.test_latent_cov_se),
        truth.probabilities_se,
    )
    return {name: float(np.max(error)) for name, error in zip(QUANTITIES, given, strict=True) if error is not None}


def _rows(dataset: str, parts: Sequence[Part]) -> Iterator[tuple[object, ...]]:
    """A line a cell: the mean over splits, what one split may be off from it, and the printed number."""
    shared = published("riihimaki2013", "table1")
    printed: Mapping[str, Any] = shared.get(dataset, {})
    for part, what, method in parts[0].cells:
        values = np.array([one.cells[part, what, method] for one in parts])
        here, spread = float(values.mean()), None
        if len(values) > 1:
            spread = float(values.std(ddof=1) * np.sqrt(1.0 + 1.0 / len(values)))
        place = shared["methods"].index(method)
        quantity, _, kind = what.partition(", ")
        listed = printed.get(part, {}).get(quantity.lower(), {}).get(kind)
        theirs = None if listed is None else listed[place]
        if what == "Relative CPU time":
            relative = printed.get("time", {}).get("relative")
            theirs = None if relative is None else relative[place]
        yield (dataset, part, what, setting.NAMES[method], here, spread, theirs, len(values))
