"""What the papers say of cost and memory, by operations counted and numbers held: no clock is read.

As in `validation.checks.print.claims`: each check is `print/METHOD/says_ID`, asked by a full run. Counts are
polynomials in the sizes (`validation.reproduce.operations`): an order of growth is their degree. Where values
decide how many nodes a rule takes, products and factors alone are counted, and a difference below 3 % of the counts is
none.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.print.claims import Statement
from validation.door.problem import Problem
from validation.reproduce.operations import operations, order

Array = NDArray[np.float64]
_TIGHT, _ROUGH = 1e-9, 0.03
_FEW = (2, 4)  # iterations of two runs, whose difference is what iterations take
_BATCH: dict[str, Any] = {"batch_size": 6, "seed": 0}
_HELD: dict[str, Any] = {"tolerance": 1e-14, "gradients": False}
_LEARNING: dict[str, Any] = {**_BATCH, "gradients": False, "learn": ("variance",), "optimizer": "adam", "rate": 0.01}


def says_at_length(paper: str, method: str, claim: str, question: str) -> Callable[[Statement], Statement]:
    """A statement that takes seconds to put to numbers: a full run asks it."""

    def register(statement: Statement) -> Statement:
        def ask(context: Context, problem: Problem) -> Iterable[Outcome]:
            return statement(context)

        ask.__module__ = statement.__module__
        name = f"print/{method}/says_{claim.replace('-', '_')}"
        check(name, paper=paper, question=question, problems=(), full=(NO_PROBLEM,))(ask)
        return statement

    return register


def _problem(
    n: int, m: int = 0, C: int = 3, likelihood: str = "threshold", epsilon: float = 0.0, t: int = 0
) -> Problem:
    """C classes on a circle, labels in turn; m inducing points, none: the full prior; t test points."""
    rng, y = np.random.default_rng(0), np.arange(n) % C
    X = rng.normal(size=(n, 2)) + np.stack([np.cos(y), np.sin(y)], axis=1)
    return Problem(
        "counted", X, y, C, likelihood, 1.0, 1.0, noise=0.1 if likelihood == "threshold" else 0.0, jitter=1e-4,
        Z=np.random.default_rng(1).normal(size=(m, 2)) if m else None, epsilon=epsilon,
        X_test=np.random.default_rng(2).normal(size=(t, 2)) if t else None,
    )  # fmt: skip


def _step(
    implementation: str, method: str, problem: Problem, *, elementwise: bool = True, key: str = "max_iterations",
    **options: Any,
) -> float:  # fmt: skip
    """Operations of one iteration: two runs of different length, their difference."""
    from validation.door.solve import solve

    counts = [
        operations(partial(solve, implementation, method, problem, **{key: k}, **options), elementwise=elementwise)
        for k in _FEW
    ]
    return (counts[1] - counts[0]) / (_FEW[1] - _FEW[0])


def _degree(name: str, counts: Sequence[float], wanted: int, relative: float = _TIGHT) -> Compared:
    try:
        result: int | None = order(counts, relative)
    except ValueError:  # of no order that these sizes tell
        result = None
    listed = ", ".join(f"{count:.5g}" for count in counts)
    return flaws(result != wanted, f"{name}: order {result}, said {wanted}; counts {listed}", "paper", "other orders")


def _by_data(
    name: str, count: Callable[[int, int], float], wanted: int = 2, relative: float = _TIGHT
) -> Iterable[Outcome]:
    """count(n, m): 1 in n; what a datum takes is of the order `wanted` in m."""
    yield _degree(f"{name}, in n", [count(n, 5) for n in (24, 36, 48, 60)], 1, relative)
    more = [(count(60, m) - count(36, m)) / 24.0 for m in (4, 8, 12, 16)]
    yield _degree(f"{name}, a datum's share in m", more, wanted, relative)


# -- the full prior ------------------------------------------------------------------------------------------------


@says_at_length("izmailov2016", "laplace-binary", "cost-full", "An iteration with the full prior takes n³ operations.")
def laplace_binary_cost_full(context: Context) -> Iterable[Outcome]:
    counts = [_step("fast", "laplace-binary", _problem(n, 0, 2, "logit"), **_HELD) for n in (16, 24, 32, 40, 48)]
    yield _degree("laplace-binary, n = 16 to 48", counts, 3)


@says_at_length("wenzel2019", "x-gpc", "cost-full", "A sweep with the full prior takes n³ operations.")
def x_gpc_cost_full(context: Context) -> Iterable[Outcome]:
    sizes = (16, 24, 32, 40, 48)
    counts = [_step("fast", "x-gpc", _problem(n, 0, 2, "logit"), accelerate=False, **_HELD) for n in sizes]
    yield _degree("x-gpc, n = 16 to 48", counts, 3)


def _full_classes(method: str, likelihood: str, **own: Any) -> Iterable[Outcome]:
    def count(n: int, C: int) -> float:
        return _step("fast", method, _problem(n, 0, C, likelihood), **own, **_HELD)

    yield _degree(f"{method}, n = 12 to 36, three classes", [count(n, 3) for n in (12, 18, 24, 30, 36)], 3)
    # the coefficient of n³ is the third difference
    leading = [float(np.diff([count(n, C) for n in (12, 18, 24, 30)], 3)[0]) for C in (2, 3, 4)]
    yield _degree("the coefficient of n³ in C", leading, 1)


@says_at_length(
    "villacampa2017",
    "nested-iep",
    "cost-full",
    ("With C classes and the full prior, an iteration takes C N³ operations."),
)
def nested_iep_cost_full(context: Context) -> Iterable[Outcome]:
    yield from _full_classes("nested-iep", "multinomial-probit", accelerate=False, inner="incremental")


@says_at_length(
    "villacampa2020", "laplace", "cost-full", ("With C classes and the full prior, an iteration takes C N³ operations.")
)
def laplace_cost_full(context: Context) -> Iterable[Outcome]:
    yield from _full_classes("laplace", "softmax")


@says_at_length(
    "riihimaki2013", "nested-ep", "cost-lowrank-naive", "Dense algebra over all latent values takes (c n)³ operations."
)
def nested_ep_cost_lowrank_naive(context: Context) -> Iterable[Outcome]:
    own: dict[str, Any] = {"tolerance": 1e-14, "inner": "incremental"}

    def count(n: int, C: int) -> float:
        return _step("reference", "nested-ep", _problem(n, 0, C, "multinomial-probit"), **own)

    yield _degree("reference, in c at n = 8", [count(8, C) for C in (2, 3, 4, 5, 6)], 3)
    yield _degree("reference, in n at c = 3", [count(n, 3) for n in (6, 8, 10, 12, 14)], 3)


# -- inducing points -----------------------------------------------------------------------------------------------


def _logit(method: str, n: int, m: int) -> float:
    own: dict[str, Any] = {"accelerate": False} if method == "vi-jj" else {}
    return _step("fast", method, _problem(n, m, 2, "logit"), **own, **_HELD)


def _quadratic(n: int, m: int) -> tuple[Array, ...]:
    """xi, labels, K_mm, K_nm and the diagonal of K_nn."""
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(n, 2)), np.random.default_rng(1).normal(size=(m, 2))

    def k(a: Array, b: Array) -> Array:
        return np.asarray(np.exp(-0.5 * ((a[:, None] - b) ** 2).sum(axis=-1)))

    return rng.uniform(0.5, 1.5, n), np.resize([1.0, -1.0], n), k(Z, Z) + 1e-3 * np.eye(m), k(X, Z), np.ones(n)


def _collapsed(n: int, m: int) -> float:
    """Operations of the collapsed bound and its gradient, which vi-jj-full and the hybrid evaluate."""
    given = _quadratic(n, m)

    def run() -> None:
        from reference.izmailov2016 import jaakkola_jordan

        jaakkola_jordan.jj_collapsed_bound(*given)
        jaakkola_jordan.jj_collapsed_gradient(*given)

    return operations(run)


@says_at_length("izmailov2016", "vi-jj", "cost-inducing", "An iteration of each method takes n m² operations.")
def vi_jj_cost_inducing(context: Context) -> Iterable[Outcome]:
    for method in ("svi", "vi-jj", "vi-taylor"):
        yield from _by_data(method, partial(_logit, method))
    yield from _by_data("an evaluation of vi-jj-full and vi-jj-hybrid", _collapsed)


def _sweep(method: str, n: int, m: int, C: int = 3, **own: Any) -> float:
    rough = method == "pep"
    asked = _problem(n, m, C, epsilon=0.01 if rough else 0.0)
    return _step("fast", method, asked, elementwise=not rough, **own, **_HELD)


@says_at_length("villacampa2017", "gfitc", "cost-fitc", "A sweep of GFITC takes N M² operations for each class.")
def gfitc_cost_fitc(context: Context) -> Iterable[Outcome]:
    yield from _by_data("gfitc", partial(_sweep, "gfitc"))
    yield _degree("gfitc, in C", [_sweep("gfitc", 24, 5, C) for C in (2, 3, 4, 5)], 1)


@says_at_length("villacampa2020", "pep", "cost-fitc", "A sweep of PEP in batch takes N M² operations for each class.")
def pep_cost_fitc(context: Context) -> Iterable[Outcome]:
    count = partial(_sweep, "pep", alpha=0.5)
    yield _degree("pep, in N at M = 8", [count(n, 8) for n in (40, 80, 120, 160)], 1, _ROUGH)
    yield _degree("a datum's share in M", [(count(120, m) - count(60, m)) / 60.0 for m in (8, 16, 24, 32)], 2, _ROUGH)
    yield _degree("pep, in C", [count(60, 8, C=C) for C in (2, 3, 4, 5)], 1, _ROUGH)


@says_at_length(
    "villacampa2017", "ep", "cost-ep-time", ("A sweep of EP and its gradient take N M² operations, C times.")
)
def ep_cost_ep_time(context: Context) -> Iterable[Outcome]:
    from validation.door.solve import solve

    def gradient(n: int, m: int, C: int = 3) -> float:
        asked = _problem(n, m, C)
        options: dict[str, Any] = {"max_iterations": 2, "tolerance": 1e-14}
        with_it, without = (
            operations(partial(solve, "fast", "ep", asked, gradients=g, **options), elementwise=False)
            for g in (True, False)
        )
        return with_it - without

    yield from _by_data("a sweep of ep", partial(_sweep, "ep"))
    yield _degree("a sweep of ep, in C", [_sweep("ep", 60, 5, C) for C in (2, 3, 4, 5)], 1)
    yield from _by_data("a gradient of ep", gradient)
    yield _degree("a gradient of ep, in C", [gradient(60, 5, C) for C in (2, 3, 4, 5)], 1)


# -- mini-batches --------------------------------------------------------------------------------------------------


def _batch(method: str, n: int, m: int, C: int = 3, *, elementwise: bool = False, **own: Any) -> float:
    errors = 0.0 if method == "sep" else 0.01
    return _step("fast", method, _problem(n, m, C, epsilon=errors), elementwise=elementwise, key="n_steps", **own,
                 **_LEARNING)  # fmt: skip


@says_at_length("villacampa2017", "sep", "cost-minibatch", "A step of SEP takes C M³ operations, whatever N is.")
def sep_cost_minibatch(context: Context) -> Iterable[Outcome]:
    count = partial(_batch, "sep", elementwise=True)
    yield _degree("in N", [count(n, 5) for n in (30, 60, 120)], 0)
    yield _degree("in M", [count(60, m) for m in (4, 8, 12, 16, 20)], 3)
    yield _degree("in C", [count(60, 5, C) for C in (2, 3, 4, 5)], 1)


def _rough_steps(name: str, count: Callable[..., float]) -> Iterable[Outcome]:
    few, many = count(50, 20), count(200, 20)
    yield Compared(abs(many / few - 1.0), _ROUGH, f"{name}: four times the data, the same batches", "paper", "counts")
    order = float(np.log2(count(100, 80) / count(100, 40)))
    # M³ and less: the order is 3 where M is large beside the batch of six
    yield Compared(
        abs(order - 3.0), 0.15, f"{name}: order {order:.3f} in M from 40 to 80, batches of 6", "paper", "counts"
    )
    four, eight = count(60, 20, 4), count(60, 20, 8)
    why = f"{name}: twice the classes, {eight / four:.3f} times the operations"
    yield Compared(abs(eight / four - 2.0), 2.0 * _ROUGH, why, "paper", "counts")


@says_at_length("villacampa2017", "vi-robust", "vi-same-cost", "VI has the same order of cost as SEP.")
def vi_robust_vi_same_cost(context: Context) -> Iterable[Outcome]:
    yield from _rough_steps("vi-robust", partial(_batch, "vi-robust"))
    yield from _rough_steps("sep", partial(_batch, "sep"))


@says_at_length("villacampa2020", "apep", "cost-minibatch", "A step of APEP takes C M³ operations, whatever N is.")
def apep_cost_minibatch(context: Context) -> Iterable[Outcome]:
    yield from _rough_steps("apep", partial(_batch, "apep", alpha=0.5))


@says_at_length("wenzel2019", "x-gpc-svi", "cost-sparse", "A step takes m³ operations, whatever n is.")
def x_gpc_svi_cost_sparse(context: Context) -> Iterable[Outcome]:
    def count(n: int, m: int) -> float:
        return _step("fast", "x-gpc-svi", _problem(n, m, 2, "logit"), key="n_steps", **_BATCH)

    yield _degree("x-gpc-svi, in n", [count(n, 5) for n in (30, 60, 120)], 0)
    yield _degree("x-gpc-svi, in m", [count(60, m) for m in (4, 8, 12, 16, 20)], 3)


@says_at_length(
    "wenzel2019", "epgpc", "epgpc-cost-like-svgpc", ("A step of epgpc has the same order in m as one of svgpc.")
)
def epgpc_epgpc_cost_like_svgpc(context: Context) -> Iterable[Outcome]:
    for witness, method in (("fast", "epgpc"), ("reference", "svgpc")):
        counts = [
            _step(witness, method, _problem(60, m, 2, "probit"), elementwise=False, key="n_steps", **_BATCH)
            for m in (4, 8, 12, 16, 20)
        ]
        yield _degree(f"{method}, in m", counts, 3)


@says_at_length("wenzel2019", "x-gpc", "prediction-cost", "A test point takes m operations for its mean, m² in all.")
def x_gpc_prediction_cost(context: Context) -> Iterable[Outcome]:
    from validation.door.solve import solve

    def point(m: int) -> float:
        few, many = (
            operations(partial(solve, "fast", "x-gpc", _problem(40, m, 2, "logit", t=t), max_iterations=2,
                                         tolerance=1e-12, gradients=False), elementwise=False)
            for t in (256, 512)
        )  # fmt: skip
        return (many - few) / 256.0

    yield _degree("mean and variance of a test point, in m", [point(m) for m in (4, 8, 12, 16)], 2)
    rng, K = np.random.default_rng(3), np.eye(6) + 0.5
    mean, cov, cross = rng.standard_normal(6), 0.2 * np.eye(6), rng.uniform(0.0, 1.0, (5, 6))
    kept = np.linalg.solve(K, mean)  # K_mm⁻¹ mu: a product of m numbers is left for each test point
    from reference.wenzel2019.prediction import predict_latent

    asked = predict_latent(mean, cov, cross, np.full(5, 2.0), K).latent_mean
    yield Compared(float(np.abs(cross @ kept - asked).max()), 1e-12, "(13) by m products with K_mm⁻¹ mu kept", "paper",
                   "reference")  # fmt: skip


@says_at_length(
    "izmailov2016",
    "vi-jj-full",
    "full-iterations-faster",
    ("An iteration of vi-JJ-full takes less work than one of the others."),
)
def vi_jj_full_full_iterations_faster(context: Context) -> Iterable[Outcome]:
    from validation.door.solve import solve

    def count(method: str, m: int) -> float:
        asked, few = _problem(300, m, 2, "logit"), (2, 8)
        given: dict[str, Any] = {**_HELD, "learn": ("variance", "lengthscales")}
        counts = [operations(partial(solve, "fast", method, asked, max_iterations=k, **given)) for k in few]
        return (counts[1] - counts[0]) / (few[1] - few[0])

    for m in (60, 120):
        ratio = count("vi-jj", m) / count("vi-jj-full", m)
        yield flaws(ratio < 1.2, f"vi-JJ over vi-JJ-full {ratio:.2f} at m = {m}, iterations 3 to 8", "paper", "counts")


# -- likelihoods of riihimaki2013 ----------------------------------------------------------------------------------


@says_at_length("riihimaki2013", "nested-ep", "cost-inner", "Inner EP's moments take n n_in (c - 1)³ operations.")
def nested_ep_cost_inner(context: Context) -> Iterable[Outcome]:
    def count(D: int, n: int = 7, sweeps: int = 1) -> float:
        def run() -> None:
            from fast.core.results import Differences
            from fast.full_classes import inner_ep

            alpha, beta = np.zeros((n, D)), np.zeros((n, D))
            mean, cov = np.zeros((n, D)), np.tile(np.eye(D) + 1.0, (n, 1, 1))
            for _ in range(sweeps):
                alpha, beta, mean, cov, *_ = inner_ep.sweep(
                    alpha, beta, Differences(mean.copy(), cov.copy()), schedule="sequential", damping=1.0
                )

        return operations(run)

    yield _degree("in c - 1", [count(D) for D in (1, 2, 3, 4, 5, 6)], 3)
    yield _degree("in n", [count(3, n) for n in (5, 7, 9)], 1)
    yield _degree("in n_in", [count(3, 5, sweeps) for sweeps in (1, 2, 3)], 1)


@says_at_length("riihimaki2013", "vb-probit", "cost-vb-likelihood", "VB's expectations take n (c - 1) values of Φ.")
def vb_probit_cost_vb_likelihood(context: Context) -> Iterable[Outcome]:
    def count(n: int, D: int) -> float:
        # slopes of 0: the integrand is N(u; 0, 1) times a constant, whose nodes are as many for every n and D
        a, b = np.random.default_rng(0).standard_normal((n, D)), np.zeros((n, D))

        def run() -> None:
            from fast.likelihood import region

            region.region_moments(a, b, moments=True)

        return operations(run)

    yield _degree("in n", [count(n, 3) for n in (5, 7, 9, 11)], 1)
    yield _degree("in c - 1", [count(7, D) for D in (1, 2, 3, 4)], 1)


@says_at_length("riihimaki2013", "laplace", "cost-la-likelihood", "Laplace's derivatives take n c operations.")
def laplace_cost_la_likelihood(context: Context) -> Iterable[Outcome]:
    def count(n: int, c: int) -> float:
        f, y = np.random.default_rng(0).standard_normal(n * c), np.arange(n) % c

        def run() -> None:
            from reference.riihimaki2013 import laplace

            laplace.softmax_table(f, n)
            laplace.softmax_gradient(f, y)

        return operations(run)

    yield _degree("softmax and gradient of its logarithm, in n", [count(n, 3) for n in (5, 7, 9, 11)], 1)
    yield _degree("in c", [count(7, c) for c in (2, 3, 4, 5)], 1)


@says_at_length(
    "riihimaki2013", "laplace-tkp", "la-tkp-cost", ("LA-TKP takes about c + 1 times LA's work for each test input.")
)
def laplace_tkp_la_tkp_cost(context: Context) -> Iterable[Outcome]:
    from validation.door.solve import solve

    def taken(method: str, c: int, t: int) -> float:
        asked = _problem(12, 0, c, "softmax", t=t)
        options: dict[str, Any] = {"max_iterations": 50, "tolerance": 1e-8, "gradients": False}
        return operations(lambda: solve("fast", method, asked, **options), elementwise=False)

    ratios = []
    for c in (2, 3, 4, 5, 6):
        ratio = (taken("laplace-tkp", c, 6) - taken("laplace-tkp", c, 1)) / 5.0 / taken("laplace", c, 0)
        why = f"c = {c}: {ratio:.2f} times LA's operations a test input"
        yield flaws(not 0.5 < ratio / (c + 1.0) < 2.0, why, "paper", "beyond a factor of two of c + 1")
        ratios.append(ratio)
    order = float(np.polyfit(np.log([2, 3, 4, 5, 6]), np.log(ratios), 1)[0])
    yield Compared(abs(order - 1.0), 0.2, f"order {order:.2f} in c", "paper", "counts")


# -- memory --------------------------------------------------------------------------------------------------------


def _held(method: str, n: int, m: int, C: int) -> float:
    """Bytes that an answer of `fast` holds after two steps on mini-batches, but for a label a row."""
    from fast.methods import apep, ep, pep, sep
    from validation.implementations.fast.inducing import given

    steps: dict[str, Any] = {"batch_size": 20, "n_steps": 2, "seed": 0, "learn": ("variance",), "rate": 0.01,
                             "optimizer": "adam", "evaluate": False}  # fmt: skip
    powers: dict[str, Any] = {"alpha": 0.5, "epsilon": 0.01}
    fit: Callable[[Any, Any], Any]
    if method in ("ep", "sep"):
        fit = partial(ep.fit, options=ep.EPOptions(**steps)) if method == "ep" else partial(
            sep.fit, options=sep.SEPOptions(**steps)
        )  # fmt: skip
    elif method == "pep":
        fit = partial(pep.fit, options=pep.PEPOptions(**steps, **powers))
    else:
        fit = partial(apep.fit, options=apep.EnergyOptions(energy=method, **steps, **powers))
    data, prior = given(_problem(n, m, C))
    fit(data, prior)  # what is imported or kept the first time is no part of it
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    answer = fit(data, prior)
    after = tracemalloc.get_traced_memory()[0]
    del answer
    if not tracing:
        tracemalloc.stop()
    return after - before - 8.0 * n


def _order_between(small: float, large: float, factor: float) -> float:
    return float(np.log(large / small) / np.log(factor))


@says_at_length(
    "villacampa2017", "sep", "sep-memory-factor", "EP stores more than SEP by a factor of order N, far below n."
)
def sep_sep_memory_factor(context: Context) -> Iterable[Outcome]:
    C, rows = 3, (1000, 4000)
    ratios = [_held("ep", n, 40, C) / _held("sep", n, 40, C) for n in rows]
    for n, ratio in zip(rows, ratios, strict=True):
        # N M C numbers over C M² are N/M, which is n over M (C - 1) = 80
        why = f"EP over SEP {ratio:.3g} at {n} data, where the paper has n = {n * (C - 1)}"
        yield flaws(ratio > 0.1 * n * (C - 1), why, "paper", "as much as the paper has")
    order = _order_between(ratios[0], ratios[1], 4.0)
    # K_ZZ and its factors are held by both, and are a twentieth of what EP holds of a thousand data
    yield Compared(abs(order - 1.0), 0.15, f"EP over SEP {ratios[0]:.3g} and {ratios[1]:.3g}: order {order:.3f} in N",
                   "paper", "bytes held")  # fmt: skip


@says_at_length("villacampa2017", "ep", "cost-ep-memory", "EP stores N M C numbers.")
def ep_cost_ep_memory(context: Context) -> Iterable[Outcome]:
    base = _held("ep", 1000, 10, 2)
    grown = (("N", _held("ep", 4000, 10, 2)), ("M", _held("ep", 1000, 40, 2)), ("C", _held("ep", 1000, 10, 8)))
    for name, more in grown:
        order = _order_between(base, more, 4.0)
        # K_ZZ and its factors, C M² numbers each, and what a factor has beside its M numbers
        yield Compared(abs(order - 1.0), 0.15, f"order {order:.3f} in {name}, {base:.3g} to {more:.3g} bytes", "paper",
                       "bytes held")  # fmt: skip


def _of_rows(method: str, limit: float = 0.01) -> Compared:
    growth = abs(_held(method, 4000, 40, 3) / _held(method, 500, 40, 3) - 1.0)
    return Compared(growth, limit, f"{method}: eight times the rows, a label each left out", "paper", "bytes held")


def _of_classes_and_points(method: str) -> Iterable[Outcome]:
    by_class = _order_between(_held(method, 500, 80, 3), _held(method, 500, 80, 6), 2.0)
    yield Compared(abs(by_class - 1.0), 0.1, f"{method}: order {by_class:.3f} in C", "paper", "bytes held")
    by_points = _order_between(_held(method, 500, 160, 3), _held(method, 500, 320, 3), 2.0)
    yield Compared(abs(by_points - 2.0), 0.15, f"{method}: order {by_points:.3f} in M", "paper", "bytes held")


@says_at_length("villacampa2017", "sep", "cost-sep-memory", "SEP stores C M² numbers, whatever N is.")
def sep_cost_sep_memory(context: Context) -> Iterable[Outcome]:
    yield _of_rows("sep")
    yield from _of_classes_and_points("sep")


@says_at_length("villacampa2020", "apep", "cost-sep-memory", "Tied factors take C M² numbers, whatever N is.")
def apep_cost_sep_memory(context: Context) -> Iterable[Outcome]:
    yield _of_rows("apep")
    yield from _of_classes_and_points("apep")


@says_at_length(
    "villacampa2020", "apep", "cost-memory-independent", ("No rival of PEP stores more when there are more data.")
)
def apep_cost_memory_independent(context: Context) -> Iterable[Outcome]:
    for energy in ("apep", "arpep", "rpapep"):
        yield _of_rows(energy)


@says_at_length("villacampa2020", "pep", "cost-pep-memory", "PEP stores factors for every datum, and no rival does.")
def pep_cost_pep_memory(context: Context) -> Iterable[Outcome]:
    order = _order_between(_held("pep", 1000, 10, 3), _held("pep", 4000, 10, 3), 4.0)
    yield Compared(abs(order - 1.0), 0.15, f"pep: order {order:.3f} in N", "paper", "bytes held")
    for energy in ("apep", "arpep", "rpapep"):
        yield _of_rows(energy)
