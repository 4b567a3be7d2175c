"""What is computed once and kept, as in `validation.checks.kept`: one latent function, kernels, starts, samplers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Context, Outcome, check, flaws
from validation.checks.kept import Ask, asked_in_order, points_of, watched
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]


# -- one latent function ---------------------------------------------------------------------------------------------


def _largest(prior: Any) -> int:
    """Bytes of the largest array that is kept."""
    return max(array.nbytes for array in vars(prior).values() if isinstance(array, np.ndarray))


@check(
    "identity/x-gpc/kept_blocks",
    paper="wenzel2019",
    question="Are the rows of all blocks kept where they fit the memory, and made anew where a byte is missing?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.options import Storage
    from fast.core.values import Data, Prior, checked_hyper
    from fast.methods import vi_jj, x_gpc
    from fast.one_latent import prior as priors
    from fast.one_latent import quadratic_search, quadratic_sweep

    many = tiny("logit many")
    assert many.Z is not None
    data = Data(many.X, many.y, 2)
    given = Prior(many.variance[0], many.lengthscales[0], many.noise[0], many.jitter[0], many.Z[0])
    near = checked_hyper(Prior(2.0, many.lengthscales[0], many.noise[0], many.jitter[0]), 2)
    for m in (60, 250):  # so many rows as keep a block of A within the second-level cache, where more are allowed
        Z = np.linspace(-50.0, 50.0, 2 * m).reshape(m, 2)
        for module in (x_gpc, quadratic_search):
            large = module.prepare(data, replace(given, Z=Z, jitter=1.0), Storage(block_size=100_000))
            size = 8 * m * large.block_size
            wrong = not (isinstance(large.block_size, int) and 2**19 < size <= 2**20)
            yield flaws(
                wrong, f"{m} inducing points: blocks of {large.block_size} rows, {size} bytes", "fast", "blocks"
            )
    c, whitened = np.full(many.n, 1.3), [(priors, "whiten")]

    def prepared(module: Any, budget: float) -> Any:
        return module.prepare(data, given, Storage(block_size=64, memory_budget=budget))

    def evaluated(prior: Any) -> Callable[[], Any]:
        return lambda: prior.evaluate(c)[:4]

    held = _largest(prepared(x_gpc, 1e6))
    enough, short = prepared(x_gpc, held), prepared(x_gpc, held - 1)
    yield from asked_in_order("fast", f"three blocks that take {held} bytes, for visits twice a sweep", whitened, (
        Ask("what is needed of all blocks", 3, lambda: prepared(x_gpc, held).cond_var, "variances"),
        Ask("the same with a byte less", 3, lambda: prepared(x_gpc, held - 1).cond_var, "variances"),
        Ask("a sweep", 0, evaluated(enough), "sweep"),
        Ask("a block", 0, lambda: enough.rows(64, 128), "block"),
        Ask("a byte less: a sweep", 6, evaluated(short), "sweep"),
        Ask("a byte less: a block", 1, lambda: short.rows(64, 128), "block"),
    ))  # fmt: skip
    held = _largest(prepared(quadratic_search, 1e6))
    enough, short = prepared(quadratic_search, held), prepared(quadratic_search, held - 1)
    local, start = vi_jj.Bound(), quadratic_sweep.unit_covariance(enough)

    def swept(prior: Any) -> Callable[[], Any]:
        return lambda: quadratic_sweep.sweep(prior, local, c.copy(), start)

    def whole(prior: Any) -> Callable[[], Any]:
        return lambda: quadratic_sweep.evaluate(prior, local, c)

    moved = [quadratic_search.prior_at(prior, near) for prior in (enough, short)]
    yield from asked_in_order("fast", f"three blocks that take {held} bytes, when they are needed", whitened, (
        Ask("nothing yet", 0, lambda: len(prepared(quadratic_search, held).chol_K)),
        Ask("a sweep", 3, swept(enough), "sweep"),
        Ask("another sweep", 0, swept(enough), "sweep"),
        Ask("all moments", 0, whole(enough), "moments"),
        Ask("a byte less: a sweep", 3, swept(short), "sweep"),
        Ask("a byte less: another sweep", 3, swept(short), "sweep"),
        Ask("a byte less: all moments, two visits", 6, whole(short), "moments"),
        Ask("other parameters", 3, whole(moved[0]), "moments there"),
        Ask("other parameters, once more", 0, whole(moved[0]), "moments there"),
        Ask("a byte less: other parameters", 6, whole(moved[1]), "moments there"),
        Ask("the parameters before", 0, whole(enough), "moments"),
    ))  # fmt: skip


@check(
    "identity/svi/kept_kernels",
    paper="izmailov2016",
    question="Is a kernel prepared once where its parameters are held, and are integrals taken once for each q?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.values import Prior, checked_hyper
    from fast.kernel.kernels import PreparedKernel
    from fast.methods import svgpc_svi, svi
    from fast.sparse_classes.projections import _StepKernel

    few = tiny("logit")
    assert few.Z is not None
    hyper = checked_hyper(Prior(few.variance[0], few.lengthscales[0], few.noise[0], few.jitter[0]), 2)
    m = len(few.Z[0])
    for learn, times in (((), 0), (("variance",), 1)):
        vector = svi._Vector(hyper, few.Z[0], learn, None)
        at = vector.pack(np.zeros(m), np.eye(m))

        def kernel(vector: Any = vector, at: Array = at) -> Any:
            return vector.unpack(at)[0].chol_K

        yield from asked_in_order("fast", f"steps in which {learn} move", [(svi, "Kernel")], (
            Ask("first step", 1, kernel, "factor"),
            Ask("second step", times, kernel, "factor"),
            Ask("third step", times, kernel, "factor"),
        ))  # fmt: skip

    rng, link = np.random.default_rng(7), svgpc_svi.Probit()
    y, mean, var = np.array([1.0, -1.0, 1.0]), rng.standard_normal(3), 1.0 + rng.random(3)
    other, wider = mean[::-1].copy(), 2.0 * var
    yield from asked_in_order("fast", "log Phi under q, and its derivatives", [(svgpc_svi, "expected_log_probit")], (
        Ask("derivatives", 1, lambda: link.sites(y, mean, var), "derivatives"),
        Ask("values", 0, lambda: link.expected(y, mean, var), "values"),
        Ask("derivatives again", 0, lambda: link.sites(y, mean, var), "derivatives"),
        Ask("another mean", 1, lambda: link.expected(y, other, var)),
        Ask("another variance", 1, lambda: link.expected(y, other, wider)),
        Ask("the first", 1, lambda: link.expected(y, mean, var), "values"),
        Ask("values of a new one", 1, lambda: svgpc_svi.Probit().expected(y, mean, var), "values"),
    ))  # fmt: skip

    X = rng.uniform(-1.0, 1.0, (5, 2))
    for kind in (PreparedKernel, _StepKernel):
        yield from _prepared_once(kind, few.Z[0], X, np.asarray(hyper.lengthscales))


def _prepared_once(kind: Any, Z: Array, X: Array, lengthscales: Array) -> Iterable[Outcome]:
    """Work of a kernel that is prepared in full, or of one of a step, which scales what it is asked for alone."""
    from fast.kernel import kernels
    from fast.kernel.kernels import PreparedKernel

    in_full = kind is PreparedKernel
    above, below = X.copy(), X.copy()
    above[2, 0], below[2, 0] = 90.0, -90.0  # lengthscales from Z: no product gives such distances
    weights = np.random.default_rng(8).standard_normal((len(X), len(Z)))

    def made(Z: Array) -> Any:
        return kind(Z, 1.7, lengthscales)

    one, shifted, wide = made(Z), made(Z + 50.0), made(60.0 * (Z - Z.mean(axis=0)))
    scales = 1 if in_full else 2
    yield from asked_in_order("fast", f"{kind.__name__}: what is scaled", [(PreparedKernel, "_scale")], (
        Ask("a kernel", int(in_full), lambda: made(Z).variance),
        Ask("near rows by a product", 0, partial(one.cross_by_product, X), "K"),
        Ask("near rows by differences", scales, partial(one.cross, X), "K"),
        Ask("rows of which one is far", scales, partial(one.cross_by_product, above), "above"),
        Ask("by differences", scales, partial(one.cross, above), "above"),
        Ask("on the other side", scales, partial(one.cross_by_product, below), "below"),
        Ask("by differences", scales, partial(one.cross, below), "below"),
        Ask("far from the origin", 0, partial(shifted.cross_by_product, X + 50.0), "K"),
        Ask("inducing points far from each other", scales, partial(wide.cross_by_product, X), "wide"),
        Ask("by differences", scales, partial(wide.cross, X), "wide"),
    ))  # fmt: skip
    again = int(in_full)
    yield from asked_in_order("fast", f"{kind.__name__}: distances from Z", [(PreparedKernel, "_units")], (
        Ask("a kernel", 1, lambda: made(Z).variance),
        Ask("first look", 1, partial(one.cross_by_product, X), "K"),
        Ask("second look", again, partial(one.cross_by_product, X), "K"),
        Ask("a gradient", again, partial(one.sums, weights, X), "sums"),
        Ask("other rows", 1, partial(one.sums, weights, X[::-1])),
        Ask("the first again", 1, partial(one.sums, weights, X), "sums"),
        Ask("inducing points", again, partial(one.cross_by_product, one.Z)),
    ))  # fmt: skip

    def by_differences(rows: Array) -> Any:
        return kernels.se_ard_vjp(weights, rows, Z, 1.7, lengthscales)

    yield from asked_in_order("fast", f"{kind.__name__}: gradients by differences", [(kernels, "se_ard_vjp")], (
        Ask("near rows", 0, partial(one.vjp, weights, X), "gradient"),
        Ask("by differences", 1, partial(by_differences, X), "gradient"),
        Ask("rows of which one is far", 1, partial(one.vjp, weights, above), "above"),
        Ask("by differences", 1, partial(by_differences, above), "above"),
        Ask("on the other side", 1, partial(one.vjp, weights, below)),
        Ask("far from the origin", 0, partial(shifted.vjp, weights, X + 50.0), "gradient"),
        Ask("inducing points far from each other", 1, partial(wide.vjp, weights, X)),
    ))  # fmt: skip


# -- several classes -------------------------------------------------------------------------------------------------


@check(
    "identity/laplace/kept_matrices",
    paper="riihimaki2013",
    question="Are matrices computed once for classes of one kernel, and gradients pulled back once if it is shared?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.full_classes import prior as priors

    few = tiny("softmax full")
    data, X_test = Data(few.X, few.y, 3), few.X[:2] + 0.1
    places = [(priors, "class_covariance"), (priors, "se_ard"), (priors, "entries_vjp")]
    rng = np.random.default_rng(4)
    by_K = [A + A.T for A in rng.standard_normal((3, few.n, few.n))]

    def matrices(one: Any) -> list[Array]:
        return [one.K(k) for k in range(3)]

    def prepared(given: Prior) -> list[Array]:
        return matrices(priors.prepare(data, given))

    def alike(alone: list[Any]) -> list[Array]:
        return [each.K(k) for k, each in enumerate(alone)]

    def crossed(alone: list[Any]) -> list[Array]:
        return [each.cross(X_test)[k] for k, each in enumerate(alone)]

    for variance, shared, kinds in (([0.8, 1.7, 3.1], False, 3), ([3.1, 0.8, 0.8], False, 2), ([2.0] * 3, True, 1)):
        given = Prior(np.array(variance), few.lengthscales[0], 0.1, 1e-3, shared=shared)
        one = priors.prepare(data, given)
        alone = [priors.prepare(data, Prior(v, few.lengthscales[0], 0.1, 1e-3)) for v in variance]

        def pulled(one: Any = one, alone: Any = None, shared: bool = shared) -> Any:
            """The gradient, or each class by itself: the sum where parameters are shared."""
            if alone is None:
                return one.vjp(iter([A.copy() for A in by_K]))[0]
            parts = [p.vjp(iter([A.copy() for A in by_K]))[0][k] for k, p in enumerate(alone)]
            return np.full(3, sum(parts)) if shared else parts

        yield from asked_in_order("fast", f"variances {variance}, shared {shared}", places, (
            Ask("matrices", kinds, partial(prepared, given), "K"),
            Ask("at hand", 0, partial(matrices, one), "K"),
            Ask("by themselves", 0, partial(alike, alone), "K"),
            Ask("test points", kinds, partial(one.cross, X_test), "cross"),
            Ask("by themselves", 3, partial(crossed, alone), "cross"),
            Ask("a gradient", 1 if shared else 3, pulled, "gradient"),
            Ask("by themselves", 9, partial(pulled, alone=alone), "gradient"),
        ))  # fmt: skip


@check(
    "identity/nested-ep/starts_near_the_end",
    paper="riihimaki2013",
    question="Does a run end at once that starts where another one ended, and is that start left as it was?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.full_classes.prior import prepare
    from fast.methods import laplace, nested_ep, nested_iep, vb_probit

    few = tiny("multinomial-probit full")
    prior = prepare(Data(few.X, few.y, 3), Prior(few.variance, few.lengthscales, few.noise, few.jitter))
    rows: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
        (nested_ep, lambda end: (end.alpha_tilde, end.beta_tilde)),
        (nested_iep, nested_iep.warm),
        (laplace, lambda end: end.mode.derivative),
        (vb_probit, lambda end: end.posterior.weights),
    )
    for module, start_of in rows:
        options = type(module.DEFAULTS)(tolerance=1e-8)
        cold = module.converge(prior, options)
        start = start_of(cold)
        before = _arrays(start)
        warm = module.converge(prior, options, start=start)
        kept = all(np.array_equal(a, b) for a, b in zip(before, _arrays(start), strict=True))
        far = np.abs(warm.latent_mean - cold.latent_mean).max() / np.abs(cold.latent_mean).max()
        why = f"{module.__name__}: {cold.iterations} iterations from nowhere, {warm.iterations} from the end"
        late = warm.iterations > 3 or 2 * warm.iterations > cold.iterations
        yield flaws(late or not warm.converged, why, "fast", "iterations")
        yield flaws(not kept or not far < 1e-6, f"{module.__name__}: mean apart by {far:.1e}", "fast", "answers")

    # a start that nobody named is zero, and what of a datum's inner sites was reached counts where they take one step
    n = (few.n, 3)
    inner = np.zeros((few.n, 2))
    zeros = (inner, inner), nested_iep.Warm((np.zeros(n), np.zeros(n)), inner, inner), np.zeros(n), np.zeros(n[::-1])
    for (module, start_of), zero in zip(rows, zeros, strict=True):
        given: dict[str, Any] = {"inner": "incremental"} if module is nested_iep else {}
        one = type(module.DEFAULTS)(max_iterations=1, **given)
        first, named = module.converge(prior, one), module.converge(prior, one, start=zero)
        same = np.array_equal(first.latent_mean, named.latent_mean)
        end = module.converge(prior, type(module.DEFAULTS)(tolerance=1e-10, **given))
        step = module.converge(prior, one, start=start_of(end))
        size = np.abs(end.latent_mean).max()
        near, far = (float(np.abs(other.latent_mean - end.latent_mean).max() / size) for other in (step, first))
        why = f"{module.__name__}: the mean after a step from the end {near:.1e} from there, from zero {far:.1e}"
        yield flaws(not same or not near < 1e-6 < far, why, "fast", "steps")


def _arrays(start: Any) -> list[Array]:
    """Copies of all arrays of a start."""
    if isinstance(start, np.ndarray):
        return [start.copy()]
    parts = start if isinstance(start, tuple) else tuple(vars(start).values())
    return [array for part in parts for array in _arrays(part)]


@check(
    "identity/x-gpc/searches_go_on",
    paper="wenzel2019",
    question="Does each run of a search start where the one before ended, and is no place evaluated twice?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.results import Gradients
    from fast.core.values import Prior, checked_hyper
    from fast.one_latent.learning import WarmSearch
    from fast.solve.adam import Packing

    hyper = checked_hyper(Prior(1.7, np.array([0.9]), 0.2, 1e-3), 1)
    starts: list[Any] = []
    places: list[float] = []

    def run(there: Any, Z: Any, start: Any) -> Any:
        starts.append(start)
        places.append(float(there.variance))
        return len(starts), float(there.variance)

    def objective(end: Any) -> tuple[float, Any]:
        """Of the logarithm of the variance, five times as large at its maximum."""
        away = np.log(end[1] / 8.5)
        return float(np.cos(away) - 0.1 * away**2), Gradients(
            float(-np.sin(away) - 0.2 * away) / end[1], np.zeros(1), 0.0, None
        )

    limits = SimpleNamespace(learning_iterations=50, learning_tolerance=1e-8)
    search = WarmSearch(run, objective, lambda end: f"end of {end[0]}", "given")
    posterior, learned = search.maximum(Packing(("variance",), hyper, None, None), limits)  # type: ignore[arg-type]
    expected = ["given", *(f"end of {k}" for k in range(1, len(starts)))]
    wrong = starts != expected or posterior[0] != len(starts) or len(starts) < 5
    yield flaws(wrong, f"runs that start at {starts[:3]} ...", "fast", "starts")
    again = len(places[:-1]) - len(set(places[:-1]))
    counts = learned.n_evaluations, len(starts) - 1
    yield flaws(again or counts[0] != counts[1], f"(said, made): {counts} evaluations, {again} at a place seen before",
                "fast", "evaluations")  # fmt: skip
    gap = abs(np.log(learned.hyper.variance / 8.5)) + abs(np.log(posterior[1] / 8.5))
    yield flaws(not gap < 1e-6 or not learned.converged, f"the maximum: {gap:.1e} away", "fast", "ends")


@check(
    "identity/sep/kept_products",
    paper="villacampa2017",
    question="Does a gradient pass over Z once for near blocks, by differences for far ones, and is it one sum?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.kernel import kernels
    from fast.kernel.kernels import PreparedKernel
    from fast.sparse_classes.projections import VectorJacobianProduct

    def rows(weights: Array, cut: slice, k: int) -> Array:
        return weights[k][cut].copy()

    rng = np.random.default_rng(9)
    for words in ("threshold", "threshold shared"):
        few = tiny(words)
        points = points_of(few)
        X = few.X.copy()
        X[5:, 0] += 90.0
        weights, by_s = rng.standard_normal((3, len(X), points.m)), rng.standard_normal((len(X), 3))

        def gradient(*cuts: slice, points: Any = points, X: Array = X, by_s: Array = by_s, W: Array = weights) -> Any:
            product = VectorJacobianProduct(points)
            for cut in cuts:
                product.add(points.view(X[cut], with_cross=True), partial(rows, W, cut), by_s[cut])
            return product.finish(lambda k: np.eye(points.m))

        kinds, near, mixed, far = points.n_kinds, slice(0, 5), slice(3, 7), slice(5, 8)
        places = [(kernels, "se_ard_vjp"), (PreparedKernel, "vjp_of_sums")]
        yield from asked_in_order("fast", f"{words}: blocks one after the other", places, (
            Ask("near", kinds, partial(gradient, near), "near"),
            Ask("near, in two", kinds, partial(gradient, slice(0, 2), slice(2, 5)), "near"),
            Ask("near, in three", kinds, partial(gradient, slice(0, 2), slice(2, 4), slice(4, 5)), "near"),
            # without near blocks k(Z, Z) is a product of its own
            Ask("far", 2 * kinds, partial(gradient, far), "far"),
            Ask("far, in two", 3 * kinds, partial(gradient, slice(5, 6), slice(6, 8)), "far"),
            Ask("all by differences", 2 * kinds, partial(gradient, slice(0, 8)), "all"),
            Ask("near, then far", 2 * kinds, partial(gradient, near, far), "all"),
            Ask("far, then near", 2 * kinds, partial(gradient, far, near), "all"),
            Ask("near, both, far", 3 * kinds, partial(gradient, slice(0, 3), mixed, slice(7, 8)), "all"),
            Ask("far twice, near twice", 3 * kinds, partial(gradient, slice(5, 6), slice(6, 8), slice(0, 2),
                                                             slice(2, 5)), "all"),
        ))  # fmt: skip


@check(
    "identity/ep/kept_beginnings",
    paper="villacampa2017",
    question="Are data read for q only where there are sites, and k(X, Z) kept of a batch only where priors move?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.likelihood import sobol_rule
    from fast.sparse_classes.data import ClassData
    from fast.sparse_classes.ep import SiteRun, empty_sites
    from fast.sparse_classes.pairwise_factors import Pairwise
    from fast.sparse_classes.projections import InducingClasses
    from fast.sparse_classes.stream import TiedStream

    few = tiny("threshold")
    data, points = ClassData(few.X, few.y, 3, memory_budget=0), points_of(few)
    factors: Any = Pairwise()

    def begun(fresh: bool) -> Any:
        run = SiteRun(data, points, factors, empty_sites(factors, few.n, 3, None), fresh=fresh)
        return run.q.precision

    run = SiteRun(data, points, factors, empty_sites(factors, few.n, 3, None), fresh=True)
    yield from asked_in_order("fast", "q from sites", [(InducingClasses, "view")], (
        Ask("zero, as is known", 0, lambda: begun(True), "q"),
        Ask("zero, as nobody knows", 1, lambda: begun(False), "q"),
        Ask("anew, after the start", 1, run.rebuild),
        Ask("of which all are zero", 0, lambda: run.q.precision, "q"),
    ))  # fmt: skip

    asked: list[dict[str, Any]] = []
    view = InducingClasses.view

    def looked(self: Any, X: Any, **named: Any) -> Any:
        asked.append(named)
        return view(self, X, **named)

    with mock.patch.object(InducingClasses, "view", looked):
        for learn in ((), ("variance",)):
            TiedStream(points_of(tiny("threshold shared")), count="class", learn=learn).step(few.X[:3], few.y[:3])
    wrong = [one.get("with_cross", False) for one in asked] != [False, True]
    yield flaws(wrong, f"one look at a batch each, priors held and moved: {asked}", "fast", "looks")

    sobol_rule.uniform_points.cache_clear()
    sobol_rule.normal_points.cache_clear()
    yield from asked_in_order("fast", "points of a rule", [(import_module("scipy.stats.qmc"), "Sobol")], (
        Ask("in three dimensions", 1, lambda: sobol_rule.normal_points(3, 64), "normal"),
        Ask("once more", 0, lambda: sobol_rule.normal_points(3, 64), "normal"),
        Ask("of the cube", 0, lambda: sobol_rule.uniform_points(3, 64), "cube"),
        Ask("more", 1, lambda: sobol_rule.uniform_points(3, 128)),
        Ask("in two", 1, lambda: sobol_rule.normal_points(2, 64)),
        Ask("the first", 0, lambda: sobol_rule.uniform_points(3, 64), "cube"),
    ))  # fmt: skip
    # what everybody is given is not to be written to
    shared = sobol_rule.normal_points(3, 64).flags.writeable + sobol_rule.uniform_points(3, 64).flags.writeable
    yield flaws(shared, "points of a rule that may be written to", "fast", "arrays")


@check(
    "identity/ep/work_ends",
    paper="villacampa2017",
    question="Is nothing done for data without sites, for rows that are at their end, or beyond a tolerance?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.linalg import cholesky
    from fast.core.values import Prior, checked_hyper
    from fast.kernel.kernels import gram, se_ard
    from fast.likelihood import largest, region
    from fast.methods import epgpc_svi

    few = tiny("probit")
    assert few.Z is not None
    hyper = checked_hyper(Prior(few.variance[0], few.lengthscales[0], few.noise[0], few.jitter[0]), 2)
    Z, m = few.Z[0], len(few.Z[0])
    L = cholesky(gram(Z, hyper.variance, hyper.lengthscales, 0.0, hyper.jitter), "K", "")
    rows = np.linalg.solve(L, se_ard(few.X, Z, hyper.variance, hyper.lengthscales).T).T
    tau, nu = np.zeros(8), np.zeros(8)
    tau[3], nu[6] = 0.7, -0.4  # a site of either kind, in blocks of their own

    def summed(tau: Array, nu: Array) -> Any:
        return epgpc_svi.sum_sites(few.X, Z, hyper, L, tau, nu, 2)

    def wanted(tau: Array, nu: Array) -> Any:
        return rows.T @ nu, np.eye(m) + (rows.T * tau) @ rows

    both = tau + 1.0, nu + 1.0
    yield from asked_in_order("fast", "four blocks of two data", [(epgpc_svi, "whiten")], (
        Ask("no sites", 0, partial(summed, 0.0 * tau, nu * 0.0)),
        Ask("one precision", 1, partial(summed, tau, 0.0 * nu), "precision"),
        Ask("by definition", 0, partial(wanted, tau, 0.0 * nu), "precision"),
        Ask("one shift", 1, partial(summed, 0.0 * tau, nu), "shift"),
        Ask("by definition", 0, partial(wanted, 0.0 * tau, nu), "shift"),
        Ask("one of each", 2, partial(summed, tau, nu), "two"),
        Ask("by definition", 0, partial(wanted, tau, nu), "two"),
        Ask("all", 4, partial(summed, *both), "all"),
        Ask("by definition", 0, partial(wanted, *both), "all"),
    ))  # fmt: skip

    rng = np.random.default_rng(3)
    a, b = 2.0 * rng.standard_normal((6, 3)), np.exp(rng.standard_normal((6, 3)))
    a[1], a[2], b[4] = 8.0, -30.0, 20.0  # near their ends at once, and far
    W = 1.0 + (b * b).sum(axis=1)

    def evaluated(module: Any, ask: Callable[..., Array], *tables: Array) -> tuple[Array, list[int]]:
        """An answer, and how many rows were looked at for it, time after time."""
        looked, hazard = list[int](), module.hazard

        def count(z: Array) -> Any:
            looked.append(len(z))
            return hazard(z)

        with mock.patch.object(module, "hazard", count):
            return ask(*tables), looked

    modes = largest._mode(a, b, W)
    outside = modes + 40.0 / np.sqrt(W)
    top = largest._log_integrand(a, b, modes) - 2.0
    # by bisection of the slope, which falls, and of the integrand beyond its mode
    slope_at = partial(_slope, largest.hazard, a, b)
    exact = _bisected(lambda u: slope_at(u) > 0.0, np.zeros(6), np.full(6, 100.0))
    late = (modes - exact) * np.sqrt(W)
    yield flaws(not (late <= 1e-9).all() or not (late > -0.1).all(), f"modes apart by {late}", "fast", "rows")
    exact = _bisected(lambda u: largest._log_integrand(a, b, u) > top, modes, outside)
    beyond = (largest._end(a, b, outside, modes, top) - exact) / (outside - modes)
    wrong = not (beyond >= -1e-9).all() or not (beyond * (outside - modes) <= 0.06 * (exact - modes)).all()
    yield flaws(wrong, f"ends beyond those by bisection by {beyond} of their range", "fast", "rows")
    asked: tuple[tuple[str, Callable[..., Array], tuple[Array, ...]], ...] = (
        ("modes", largest._mode, (a, b, W)),
        ("ends", largest._end, (a, b, outside, modes, top)),
    )
    for name, ask, tables in asked:
        together, looked = evaluated(largest, ask, *tables)
        alone = [evaluated(largest, ask, *(table[i : i + 1] for table in tables)) for i in range(len(a))]
        each = [sum(count) for _, count in alone]
        same = np.allclose(together, np.concatenate([value for value, _ in alone]), rtol=1e-12, atol=1e-12)
        why = f"{name}: rows alone are looked at {each} times, together {looked}"
        yield flaws(
            not same
            or sum(looked) != sum(each)
            or len(looked) != max(each)
            or max(each) > 40
            or min(each) == max(each),
            why,
            "fast",
            "rows",
        )
    for name, looks, most in (
        ("six rows", (a, b), 6 * 20), ("a row at its mode", (a[1:2] + 99.0, b[:1]), 1), ("no rows", (a[:0], b[:0]), 0)
    ):  # fmt: skip
        mode, looked = evaluated(region, region._mode, *looks)
        if len(mode):
            slope = (looks[1] * region.hazard(looks[0] + looks[1] * mode[:, None])[0]).sum(axis=1) - mode
            gap = float(np.abs(slope / W.max()).max())
        else:
            gap = 0.0
        yield flaws(
            sum(looked) > most or not gap < 1e-3, f"{name}: {sum(looked)} looked at; {gap:.1e} left", "fast", "rows"
        )


def _slope(hazard: Callable[[Array], Any], a: Array, b: Array, u: Array) -> Array:
    """The derivative of sum log Phi(a + b u) - u^2 / 2."""
    return np.asarray((b * hazard(a + b * u[:, None])[0]).sum(axis=1) - u)


def _bisected(below: Callable[[Array], Any], low: Array, high: Array) -> Array:
    """Where an answer turns from yes to no, row by row."""
    for _ in range(80):
        middle = 0.5 * (low + high)
        yes = below(middle)
        low, high = np.where(yes, middle, low), np.where(yes, high, middle)
    return low


@check(
    "identity/vb-probit/products_end",
    paper="riihimaki2013",
    question="Does a solution by conjugate gradients end where its residual is small enough, and not later?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.full_classes.nested_sites import other_classes
    from fast.full_classes.prior import prepare
    from fast.methods import vb_probit

    few = tiny("multinomial-probit full")
    prior = prepare(Data(few.X, few.y, 3), Prior(few.variance, few.lengthscales, few.noise, few.jitter))
    rng = np.random.default_rng(6)
    root = rng.standard_normal((few.n, 2, 2))
    curvature, rhs = 0.2 * root @ root.transpose(0, 2, 1), 1e5 * rng.standard_normal((3, few.n))
    others = other_classes(prior.y, 3)
    # H by its definition: the curvature of all pairs of a datum, seen through f_y - f_k
    H = np.zeros((3, few.n, 3, few.n))
    for i in range(few.n):
        through = -np.eye(3)[others[i]]
        through[:, few.y[i]] = 1.0
        H[:, i, :, i] = through.T @ curvature[i] @ through
    K = np.zeros_like(H)
    for k in range(3):
        K[k, :, k, :] = prior.K(k)
    size = 3 * few.n
    by_K, by_H = K.reshape(size, size), H.reshape(size, size)
    products: list[int] = []
    for tolerance in (0.5, 1e-1, 1e-2, 1e-4, 1e-8):
        with watched((vb_probit, "_times")) as calls:
            x, K_x = vb_probit._solve(prior, others, curvature, rhs, tolerance)
        left = (np.eye(size) + by_H @ by_K) @ x.ravel() - rhs.ravel()
        residual = float(np.sqrt(left @ by_K @ left / (rhs.ravel() @ by_K @ rhs.ravel())))
        wrong = not 1e-3 * tolerance < residual <= 1.001 * tolerance or not np.allclose(K_x.ravel(), by_K @ x.ravel())
        yield flaws(wrong, f"tolerance {tolerance:g}: residual {residual:.2e}, {len(calls)} products", "fast", "ends")
        products.append(len(calls))
    with watched((vb_probit, "_times")) as calls:
        x = vb_probit._solve(prior, others, curvature, 0.0 * rhs, 1e-2)[0]
    wrong = len(calls) > 1 or bool(x.any()) or products != sorted(set(products)) or products[-1] > size + 1
    yield flaws(wrong, f"products {products}, for a right side of zeros {len(calls)}", "fast", "products")


# -- batches, samplers, the reference ----------------------------------------------------------------------------------


class _Leaf(NamedTuple):
    """Rows of a leaf, and how often a visit came."""

    first: int
    visits: list[int]


def _ready(state: Any) -> Any:
    """What all leaves need of it."""
    return state


def _sums(leaf: _Leaf, state: Any) -> tuple[Array, ...]:
    """How often a visit came, times what it brought."""
    leaf.visits.append(1)
    return (np.array([len(leaf.visits) * float(state)]),)


@check(
    "identity/svi/kept_rows",
    paper="izmailov2016",
    question="Are rows that live elsewhere asked for once a batch, and are visits of leaves made once each?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.blockwise import engines
    from fast.blockwise.batches import batches_from
    from fast.blockwise.rows import rows_of

    few = tiny("logit")
    rows = rows_of([few.X[:3], few.X[3:]], [few.y[:3], few.y[3:]])
    listed, others, none = [5, 2, 2, 7], [5, 2, 7], np.zeros(0, dtype=np.int64)
    with batches_from(rows) as data:
        yield from asked_in_order("fast", "batches of rows that live in two leaves", [(engines.Here, "taken")], (
            Ask("by definition", 0, lambda: few.X[listed], "X"),
            Ask("labels by definition", 0, lambda: few.y[listed], "y"),
            Ask("inputs", 1, lambda: data.X[np.array(listed)], "X"),
            Ask("labels of the same rows", 0, lambda: data.y[np.array(listed)], "y"),
            Ask("inputs, once more", 0, lambda: data.X[np.array(listed)], "X"),
            Ask("labels of other rows", 1, lambda: data.y[np.array(others)], "other y"),
            Ask("labels by definition", 0, lambda: few.y[others], "other y"),
            Ask("inputs of them", 0, lambda: data.X[np.array(others)], "other X"),
            Ask("inputs by definition", 0, lambda: few.X[others], "other X"),
            Ask("all labels in turn", 1, lambda: data.y[0:8], "all y"),
            Ask("by definition", 0, lambda: few.y, "all y"),
            Ask("the rows listed before", 0, lambda: data.X[np.array(others)], "other X"),
            Ask("no rows", 0, lambda: data.X[none].shape),
            Ask("no labels", 0, lambda: data.y[none].shape),
            Ask("no labels in turn", 0, lambda: data.y[3:3].shape),
            Ask("after that", 1, lambda: data.X[np.array(listed)], "X"),
        ))  # fmt: skip
    keeping, looking = engines.Visit(_ready, _sums, keeps=True), engines.Visit(_ready, _sums)
    held = engines._Held([_Leaf(0, []), _Leaf(3, [])])
    past = engines._Past([(keeping, 1.0), (keeping, 2.0), (keeping, 3.0), (keeping, 4.0)])
    yield from asked_in_order("fast", "visits of the two leaves of a part", [(engines._Held, "sums")], (
        Ask("first", 1, lambda: engines._visit(held, keeping, 1.0, 0), "first"),
        Ask("begun again", 0, lambda: engines._visit(held, keeping, 1.0, 0), "first"),
        Ask("visits made", 0, lambda: engines._done(held), "one"),
        Ask("one", 0, lambda: 1, "one"),
        Ask("one that was missed", 1, lambda: engines._missed(held, 0, engines._Past(past.visits[:2]))),
        Ask("once more", 0, lambda: engines._missed(held, 0, engines._Past(past.visits[:2]))),
        Ask("a look", 1, lambda: engines._visit(held, looking, 1.0, 2)),
        Ask("another look", 1, lambda: engines._visit(held, looking, 1.0, 2)),
        Ask("two that were missed", 2, lambda: engines._missed(held, 0, past)),
        Ask("from the third on", 0, lambda: engines._missed(held, 2, engines._Past(past.visits[2:]))),
        Ask("the last, begun again", 0, lambda: engines._visit(held, keeping, 4.0, 3), "last"),
        # two leaves, of which each was visited four times by what keeps, twice by a look
        Ask("by definition", 0, lambda: np.array([2.0 * 4.0 * 6.0]), "last"),
        Ask("the next", 1, lambda: engines._visit(held, keeping, 1.0, 4)),
        Ask("visits made", 0, lambda: engines._done(held), "five"),
        Ask("five", 0, lambda: 5, "five"),
    ))  # fmt: skip
    wrong = 0
    for visit, due in ((keeping, 3), (keeping, 6), (looking, 4), (looking, 6)):
        try:
            engines._visit(held, visit, 1.0, due)
            wrong += 1
        except engines._BehindError:
            pass
    yield flaws(wrong, "a part that has not seen all visits, or more, answers", "fast", "answers")
    here = engines.Here(rows, lambda leaf: _Leaf(leaf.first, []))
    ready: list[Any] = []
    once = engines.Visit(lambda state: ready.append(state) or state, _sums, keeps=True)  # type: ignore[func-returns-value]
    counts = []
    for ask in (here.total, here.missed):
        for visit in (once, once._replace(keeps=False)):
            ready.clear()
            before = sum(len(leaf.visits) for leaf in here._looks)
            ask(visit, 1.0)
            counts.append((len(ready), sum(len(leaf.visits) for leaf in here._looks) - before))
    wrong = counts != [(1, 2), (1, 2), (1, 2), (0, 0)]
    yield flaws(wrong, f"(made ready, leaves visited): {counts}", "fast", "visits")


@check(
    "identity/gibbs-softmax/kept_references",
    paper="riihimaki2013",
    question="Is what paths follow made anew when its parameters have changed, and not otherwise?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.models import softmax

    model: Any = softmax._Softmax(None, None, None, ("flow",), 0, 1)  # type: ignore[arg-type]
    mean, root = np.array([1.0, 2.0]), np.eye(2)
    first, other, wider = (
        {"mean": a, "root": b} for a, b in ((mean, root), (mean.copy(), root), (mean.copy(), 2.0 * root))
    )
    with mock.patch.object(softmax, "make_reference", lambda mean, root, target: (mean.copy(), root.copy())):
        yield from asked_in_order("gibbs", "a quadratic that paths follow", [(softmax, "make_reference")], (
            Ask("first", 1, lambda: model.reference(first), "first"),
            Ask("once more", 0, lambda: model.reference(dict(first)), "first"),
            Ask("another mean", 1, lambda: model.reference(other), "first"),
            Ask("another root", 1, lambda: model.reference({"mean": other["mean"], "root": wider["root"]}), "wider"),
            Ask("by definition", 0, lambda: (other["mean"], wider["root"]), "wider"),
            Ask("once more", 0, lambda: model.reference({"mean": other["mean"], "root": wider["root"]}), "wider"),
            Ask("the first", 1, lambda: model.reference(first), "first"),
        ))  # fmt: skip


@check(
    "identity/vi-jj/kept_matrices",
    paper="izmailov2016",
    question="Are matrices computed once where only local parameters are searched, and in each evaluation else?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.izmailov2016 import _prior, algorithm1

    few = tiny("logit")
    assert few.Z is not None
    hyper = _prior.Prior(few.variance[0], few.lengthscales[0], few.noise[0], few.jitter[0], few.Z[0])
    sign, xi = np.where(few.y == 1, 1.0, -1.0), np.full(few.n, 1.2)
    for learn, joint in (((), True), (("variance",), False), (("variance",), True)):
        stage = partial(algorithm1.vi_jj_stage_two, few.X, sign, hyper, xi, learn, 6, joint)
        evaluations = stage().evaluations
        with watched((_prior, "matrices")) as calls:
            stage()
        expected = evaluations if learn else 1
        why = f"{learn}, local parameters too: {joint}; {len(calls)} of matrices in {evaluations} evaluations"
        yield flaws(len(calls) != expected or evaluations < 3, why, "reference", "searches")
