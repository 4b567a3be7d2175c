"""Ends and ways round that few runs come to: no memory, one Hessian, islands that are hopeless, words before checks."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Tested, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]


def _logit() -> tuple[Problem, Any, Any]:
    from fast.core.values import Data, Prior

    asked = tiny("logit")
    assert asked.Z is not None
    prior = Prior(asked.variance[0], asked.lengthscales[0], asked.noise[0], asked.jitter[0], asked.Z[0])
    return asked, Data(asked.X, asked.y), prior


def _projected(X: Array, prior: Any) -> Array:
    """K_XZ K_ZZ^-1 K_ZX."""

    def kernel(A: Array, B: Array) -> Array:
        apart = (A[:, None] - B) / prior.lengthscales
        return np.asarray(prior.variance * np.exp(-0.5 * np.square(apart).sum(axis=2)))

    K_XZ = kernel(X, prior.Z)
    return np.asarray(K_XZ @ np.linalg.solve(kernel(prior.Z, prior.Z) + prior.jitter * np.eye(len(prior.Z)), K_XZ.T))


@check(
    "identity/vi-taylor/leapt",
    paper="izmailov2016",
    question="Is an expansion that leapt past the mode made there, and is it told from one that did not?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import vi_taylor
    from fast.one_latent.links import link_of
    from fast.one_latent.quadratic_search import Stage

    asked, data, prior = _logit()
    y, log_likelihood = np.where(asked.y == 1, 1.0, -1.0), link_of("logit").log_likelihood
    states: list[tuple[Array, Array, Array]] = []

    def second(state: Any, *_: Any, **__: Any) -> Any:
        site = vi_taylor.Expanded(log_likelihood).at(y, state.xi)
        states.append((state.xi.copy(), site.precision, site.shift))
        return Stage(state.prior, state.xi, -float(len(states)), 1)

    for leapt in (True, False):
        states.clear()
        with (
            mock.patch.object(vi_taylor, "_overshot", return_value=leapt),
            mock.patch.object(vi_taylor, "stage_two", second),
        ):
            vi_taylor.fit(data, prior, vi_taylor.TaylorOptions(learn=("variance",), n_upd=1, max_iterations=2))
        # at the mode f of the projections: f = Q d log p(y|f)/df
        Q = _projected(asked.X, prior)
        gaps = [float(np.abs(xi - Q @ (y / (1.0 + np.exp(y * xi)))).max()) for xi, _, _ in states]
        if leapt:
            yield Compared(max(gaps), 1e-5, "two rounds begin at the mode, to 1e-6 of its own", "fast", "definition",
                           "difference")  # fmt: skip
        else:
            yield flaws(gaps[0] < 1e-3, f"where it did not, updates stand: {gaps[0]:.2g} off", "fast", "rounds")
    state: Any = SimpleNamespace(prior=SimpleNamespace(y_sign=y), xi=None)
    wrong = []
    for xi, wanted in ((0.1 * y, False), (-0.1 * y, True), (0.0 * y, False), (1e3 * y * np.r_[-1.0, np.ones(7)], True),
                       (np.full(8, np.nan), True)):  # fmt: skip
        state.xi = xi
        wrong += [xi[0]] * (vi_taylor._overshot(state, log_likelihood) is not wanted)
    yield flaws(len(wrong), f"less likely than at zero, or no number: {wrong}", "fast", "answers")


@check(
    "invariance/vi-jj/without_memory",
    paper="izmailov2016",
    question="Are rows that are computed again those that were kept, and are parts told each step?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.blockwise import taylor
    from fast.blockwise.quadratic import BlockwiseOptions
    from fast.blockwise.rows import rows_of
    from fast.methods import vi_jj
    from fast.one_latent.quadratic_sweep import BlockPrior

    asked, data, prior = _logit()
    ends = []
    for budget in (0, 2**24):
        options = vi_jj.JJOptions(block_size=3, memory_budget=budget, accelerate=False, max_iterations=5)
        ends.append(vi_jj.fit(data, prior, options))
    gap = max(
        float(np.abs(ends[0].xi - ends[1].xi).max()), float(np.abs(ends[0].inducing_cov - ends[1].inducing_cov).max())
    )
    yield Compared(gap, 1e-12, "five updates with nothing kept, and with all", "fast", "fast", "difference")
    hyper = ends[0].prior.hyper
    for budget in (0, 2**24):
        kept = BlockPrior(asked.X, np.ones(8), np.asarray(prior.Z), hyper, 3, budget)
        first, again = kept.look(3, 6), kept.look(3, 6)
        same = np.array_equal(first.rows, again.rows) and np.array_equal(first.cond_var, again.cond_var)
        same &= np.shares_memory(first.rows, again.rows) is (budget > 0)
        left = prior.variance + prior.noise - np.square(first.rows).sum(axis=1)
        Q = _projected(asked.X, prior)[3:6, 3:6]
        same &= bool(np.allclose(first.rows @ first.rows.T, Q, rtol=1e-9, atol=1e-12))
        same &= first.cond_var.shape == (3,) and bool(np.allclose(first.cond_var, left, rtol=1e-12, atol=0.0))
        yield flaws(not same, f"budget {budget}: rows of one block, twice", "fast", "blocks")
    told: list[Any] = []
    end = taylor.fit(
        rows_of(asked.X, asked.y, leaf=3), prior, BlockwiseOptions(callback=lambda *line: told.append(line)),
        likelihood="logit",
    )  # fmt: skip
    wanted = [(k, value) for k, value in enumerate(end.trace[1:], start=1)]
    yield flaws([line[:2] for line in told] != wanted, f"{len(told)} steps told", "fast", "calls")


@check(
    "identity/x-gpc/words_before_checks",
    paper="wenzel2019",
    question="Is a parameter that is no word named as such, not as what a table of sizes makes of it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    import fast.estimators as of_fast

    asked = tiny("logit")
    for name in ("XGPClassifier", "SVGPClassifier", "EPGPClassifier"):
        for training in (np.array(["batch", "minibatch"]), ["batch"], 3, None):
            try:
                getattr(of_fast, name)(training=training).fit(asked.X, asked.y)
                told = ""
            except (ValueError, TypeError) as error:
                told = str(error)
            yield flaws(not told.startswith("training: found"), f"{name}: {told[:60]}", "fast", "answers")


@check(
    "identity/x-gpc/sizes_of_steps",
    paper="wenzel2019",
    question="Are the rows and inducing points by which threads are chosen those of a step?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    import fast.estimators as of_fast
    from fast.estimators import _base

    X = np.zeros((37, 2))
    points = np.zeros((5, 2))
    cases: tuple[tuple[str, dict[str, Any], Any, tuple[int, int | None]], ...] = (
        ("XGPClassifier", {"training": "batch", "n_inducing": 7}, X, (37, 7)),
        ("XGPClassifier", {"training": "minibatch", "batch_size": 10, "n_inducing": 50}, X, (10, 37)),
        ("XGPClassifier", {"training": "auto", "batch_size": 10, "n_inducing": 7}, X, (37, 7)),
        ("XGPClassifier", {"training": "batch", "inducing_points": points}, X.tolist(), (37, 5)),
        ("XGPClassifier", {"training": "batch", "n_inducing": None}, X, (37, None)),
        ("XGPClassifier", {"training": "batch", "n_inducing": 7}, 3.0, (0, 0)),
        ("EPClassifier", {"training": "batch", "inducing_points": np.zeros((3, 6, 2))}, X, (37, 6)),
        ("LaplaceClassifier", {}, X, (37, None)),
    )
    for name, options, rows, wanted in cases:
        result = getattr(of_fast, name)(**options)._sizes(rows)
        yield flaws(result != wanted, f"{name} {sorted(options)}: {result}", "fast", "sizes")
    many = _base._MOST_IN_ONE + 1
    result = of_fast.XGPClassifier(training="auto", batch_size=10, n_inducing=7)._sizes(np.zeros((many, 1)))
    yield flaws(result != (10, 7), f"{many} rows, more than are trained on at once: {result}", "fast", "sizes")


@check(
    "identity/qiep/sites_without_sign",
    paper="riihimaki2013",
    question="Are site precisions of independent classes that rounding leaves below zero zero, and others refused?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.results import Differences
    from fast.full_classes import quadrature_tilt

    cov = np.array([[[1.5, 0.0], [0.0, 0.8]]])
    root: Array = np.sqrt(cov)
    mean, moved = np.array([[0.3, -0.4]]), np.array([[0.1, 0.2]])
    for below, good in ((0.3, True), (0.0, True), (-1e-12, True), (-1e-6, False)):
        # tilted variances in white coordinates are 1/(1 + what the site adds)
        white = np.diag([1.0 / (1.0 + below), 1.0 / 1.4])
        moments = quadrature_tilt.WhiteMoments(np.zeros(1), moved, white[None], root)
        sites = quadrature_tilt.g_sites(Differences(mean, cov), moments, full=False)
        inverse = np.linalg.inv(root[0])
        precision = np.diag(inverse.T @ (np.linalg.inv(white) - np.eye(2)) @ inverse)
        wanted = np.maximum(precision, 0.0)
        result = sites[0][0]
        wrong = bool(sites[2][0]) is not good or (good and bool((np.diag(result) < 0.0).any()))
        yield flaws(wrong, f"a site that adds {below:g}: good {bool(sites[2][0])}", "fast", "sites")
        if good:
            gap = float(np.abs(result - np.diag(wanted)).max())
            yield Compared(
                gap, 1e-12, f"a site that adds {below:g}: inverses of 2 x 2", "fast", "definition", "difference"
            )


@check(
    "identity/laplace/shared_gradients",
    paper="riihimaki2013",
    question="Is the derivative that decides on lengthscales of each input that of log Z, all classes together?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    import fast.estimators as of_fast
    from fast.core.values import Data, Prior

    asked = tiny("softmax full")
    data, lengthscales = Data(asked.X, asked.y, 3), np.array([0.9, 1.4])

    def fit(estimator: Any, scales: Array) -> Any:
        ones = np.ones(3)
        return estimator._module.fit(
            data, Prior(1.3 * ones, np.tile(scales, (3, 1)), 0.1 * ones, 1e-6 * ones, shared=True)
        )

    estimator = of_fast.LaplaceClassifier()
    result = np.asarray(estimator._lengthscale_gradient(fit(estimator, lengthscales)))
    step, wanted = 1e-4, np.empty(2)
    for j in range(2):
        up, down = (fit(estimator, lengthscales + sign * step * np.eye(2)[j]).log_evidence for sign in (1.0, -1.0))
        wanted[j] = (up - down) / (2.0 * step)
    gap = float(np.abs(result - wanted).max() / np.abs(wanted).max()) if result.shape == (2,) else np.inf
    yield Compared(gap, 1e-4, "differences over 1e-4", "fast", "finite differences")


@check(
    "identity/rpapep/few_hessians",
    paper="villacampa2020",
    question="Does Newton's method form no more Hessians than it may, and end where a stale one no longer serves?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.sparse_classes import alpha_search

    class Valley:
        """Rosenbrock's valley, whose curvature turns all the way down."""

        size = 2

        def __init__(self) -> None:
            self.formed = 0

        def __call__(self, x: Array) -> tuple[float, Array]:
            bend = x[1] - x[0] ** 2
            return float((1.0 - x[0]) ** 2 + 10.0 * bend**2), np.array(
                [-2.0 * (1.0 - x[0]) - 40.0 * x[0] * bend, 20.0 * bend]
            )

        def far(self, x: Array, bound: float) -> bool:
            return False

        def hessian(self, x: Array) -> Array:
            self.formed += 1
            return np.array([[2.0 - 40.0 * (x[1] - 3.0 * x[0] ** 2), -40.0 * x[0]], [-40.0 * x[0], 20.0]])

    start, heights = np.array([-1.2, 1.0]), []
    for most in (1, 2, 4, 40):
        chart: Any = Valley()
        with mock.patch.object(alpha_search, "_HESSIANS", most):
            end = alpha_search._newton(chart, start, 1e9)
        heights.append(chart(end)[0])
        wrong = chart.formed > most or (most < 40 and chart.formed != most)
        yield flaws(wrong, f"at most {most}: {chart.formed} formed, height {heights[-1]:.3g}", "fast", "Hessians")
    yield flaws(
        heights != sorted(heights, reverse=True) or heights[-1] > 1e-12, "each leads further down", "fast", "ends"
    )


@check(
    "exactness/gibbs-threshold/rounds_of_islands",
    paper="villacampa2017",
    question="Do islands grow by what their error asks for, and end where that is out of reach?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.options import Islands
    from gibbs.evidence import sequential

    common: Any = SimpleNamespace(factors=SimpleNamespace(mean=np.zeros(60)), constraints=1)
    largest = int(min(sequential._MOST / 60, sequential._WORK / (8 * 60 * 80.0)))
    for errors, most in (
        (((0.2, 0.1), (0.04, 0.1)), 5), (((0.2, 0.1), (0.1, 0.1), (0.06, 0.2), (0.01, 0.2)), 3),
        (((0.01, 3.0), (0.01, 0.4)), 5), (((50.0, 9.0),), 5), (((0.05, 0.51), (0.05, 0.5)), 5),
        (((0.3, 0.6), (0.25, 0.6), (0.2, 0.6), (0.2, 0.6), (0.2, 0.6), (0.2, 0.6)), 9),
    ):  # fmt: skip
        sizes: list[int] = []
        told = iter(errors)

        def islands(rng: Any, common: Any, workers: Any, shape: tuple[int, int], sizes: list[int] = sizes) -> Array:
            sizes.append(shape[1])
            return np.zeros(shape[0])

        options = Islands(n_islands=8, n_particles=200, max_rounds=most, target_error=0.05)
        with (
            mock.patch.object(sequential, "_islands", islands),
            mock.patch.object(sequential, "_errors", lambda log_z, told=told: next(told)),
            mock.patch.object(sequential, "_of_islands", lambda log_z, trusted, *_: trusted),
        ):
            trusted: Any = sequential.estimate(np.random.default_rng(0), common, None, options)
        wanted, size = [], 200
        for error, apart in errors[:most]:
            wanted.append(size)
            needed = size * 1.3 * max(error / 0.05, 2.0 * apart) ** 2
            if (error <= 0.05 and apart <= 0.5) or size >= largest or needed > sequential._HOPELESS * largest:
                break
            size = min(int(min(max(np.ceil(needed), 2 * size), 8 * size)), largest)
        last = errors[len(wanted) - 1]
        wrong = sizes != wanted or trusted is not (last[0] <= 0.05 and last[1] <= 0.5)
        yield flaws(wrong, f"errors {errors[: len(wanted)]}: {sizes} particles", "gibbs", "rounds")


@check(
    "exactness/mh-softmax/islands_unbiased",
    paper="riihimaki2013",
    question="Is the estimate of Z by a few annealed particles unbiased, resampling included?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import softmax_annealed

    cov = np.array([[144.0, 96.0], [96.0, 96.0]])
    root = np.linalg.cholesky(cov)
    nodes = np.linspace(-8.0, 8.0, 801)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(nodes, nodes, indexing="ij")])
    weight = np.exp(-0.5 * np.square(grid).sum(axis=0)) * (nodes[1] - nodes[0]) ** 2 / (2.0 * np.pi)
    y = np.array([0, 1])
    f = root @ grid
    truth = float(weight @ (1.0 / (1.0 + np.exp(-f[0])) / (1.0 + np.exp(f[1]))))
    model = softmax_annealed._Model(y, 2, root)
    around = softmax_annealed._Around(np.zeros(2), np.eye(2), 0.6)
    ladder = [0.0, 0.2, 0.6, 1.0]
    count = 4000 if context.quick else 40_000
    common = softmax_annealed.Schedule(model, ladder, [around, around], 1)
    done = softmax_annealed._run(np.random.default_rng(48), common, (count, 5))
    values = np.exp(done.log_z)
    z = (values.mean() - truth) / (values.std(ddof=1) / np.sqrt(count))
    yield Tested(
        np.array([z]), f"{count} islands of 5 particles over three powers; Holm over a run at 1e-4", "gibbs",
        "quadrature", f"a bias of {6.0 * values.std() / truth / np.sqrt(count):.1%} would show",
    )  # fmt: skip


@check(
    "identity/epgpc/changes_in_order",
    paper="wenzel2019",
    question="Is the change of each step measured from before it to after it, relative to after, where it is due?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Data
    from fast.methods import epgpc_svi, x_gpc_svi
    from fast.one_latent import stochastic
    from fast.solve import stopping

    for size in (0.3, 40.0):
        before = (size * np.array([1.0, -0.5]), size * np.array([[2.0, 0.1], [0.1, 0.7]]))
        after = (before[0] * 0.6, before[1] * 1.5)
        wanted = max(0.4 * size / max(1.0, 0.6 * size), size / max(1.0, 3.0 * size))
        result = stopping.parameter_change(before, after)  # type: ignore[arg-type]
        yield Compared(abs(result / wanted - 1.0), 1e-12, f"entries of {size:g}: over those after, or one", "fast",
                       "definition")  # fmt: skip

    asked, _, prior = _logit()
    data = Data(asked.X, asked.y)
    lists = [[0, 3, 5], [6, 1], [3, 2, 7], [1, 4]] * 4
    pairs: list[tuple[Any, Any]] = []

    def noted(before: Any, after: Any) -> float:
        pairs.append((before, after))
        return stopping.parameter_change(before, after)

    due: list[int] = []

    def told(progress: Any) -> None:
        if np.isfinite(progress.change):
            due.append(progress.iteration)

    with mock.patch.object(epgpc_svi, "parameter_change", noted):
        run = epgpc_svi.fit(data, prior, epgpc_svi.EPGPCSteps(batches=lists, stop=1e-9, window=2))
    cases = [("epgpc", list(pairs), run.posterior.inducing_mean, len(lists) - 1, 1)]
    pairs.clear()
    steps = x_gpc_svi.XGPCSteps(batches=lists, n_steps=13, stop=1e-9, window=2, check_every=6, callback=told)
    with mock.patch.object(stochastic, "parameter_change", noted):
        end = x_gpc_svi.fit(data, prior, steps)
    cases.append(("x-gpc-svi", list(pairs), end.inducing_mean, 4, 2))
    for name, observed, last, count, stride in cases:
        wrong = len(observed) != count
        # the second of two that are due together begins where the first has ended
        follows = observed[1::stride] if stride > 1 else observed[1:]
        begun = observed[::stride] if stride > 1 else observed[:-1]
        wrong |= any(not np.array_equal(a[1][0], b[0][0]) for a, b in zip(begun, follows, strict=False))
        if name == "epgpc":
            wrong |= not np.allclose(observed[-1][1][0], last, rtol=1e-9, atol=1e-12)
        yield flaws(wrong, f"{name}: {len(observed)} changes, each from where the last has ended", "fast", "runs")
    yield flaws(due != [5, 6, 11, 12], f"every six steps the last two: {due}", "fast", "steps")


@check(
    "limit/laplace/orthants_of_one_factor",
    paper="riihimaki2013",
    question="Are orthants and softmax expectations of four and five classes those of one factor, by quadrature?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.results import Differences
    from fast.likelihood import sobol_rule

    rng = np.random.default_rng(92)
    z = np.linspace(-9.0, 9.0, 4001)
    weight = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * (z[1] - z[0])
    for D in (2, 3, 4):
        # g = mean + load z + own: given z its entries are independent
        mean, load, own = rng.uniform(-0.5, 1.0, D), rng.uniform(-1.5, 1.5, D), rng.uniform(0.3, 1.0, D)
        cov = np.outer(load, load) + np.diag(own)
        wanted = np.log(weight @ ndtr((mean[:, None] + load[:, None] * z) / np.sqrt(own)[:, None]).prod(axis=0))
        result = sobol_rule.log_orthant(Differences(mean[None], cov[None]))[0]
        # 1024 points of a Sobol sequence: errors below 1e-4 were found, a lost correlation shows at 1e-1
        yield Compared(
            abs(result - wanted), 1e-3, f"{D + 1} classes: log of an orthant", "fast", "quadrature", "difference"
        )
        nodes = np.linspace(-7.0, 7.0, 29)
        weights = np.exp(-0.5 * nodes**2) * (nodes[1] - nodes[0])
        grids = np.stack([axis.ravel() for axis in np.meshgrid(*[nodes] * D, indexing="ij")])
        rule = np.prod(np.stack([axis.ravel() for axis in np.meshgrid(*[weights] * D, indexing="ij")]), axis=0)
        lower: Array = np.asarray(np.linalg.cholesky(cov), dtype=np.float64)
        values = mean[:, None] + lower @ grids
        scores = np.exp(np.vstack([values, np.zeros(rule.size)]))
        expected = (scores / scores.sum(axis=0)) @ rule / (2.0 * np.pi) ** (0.5 * D)
        result = sobol_rule.softmax_of_differences(mean[None], lower[None])[0]
        gap = float(np.abs(result - expected).max())
        yield Compared(gap, 1e-3, f"{D + 1} classes: softmax expectations", "fast", "quadrature", "difference")


# where rows of a run go that a checkpoint of an earlier version holds: keys k * 1000003 mod 2^32, k = 1 .. 6
_ORDER = (29, 36, 14, 20, 26, 10, 5, 2, 17, 25, 34, 9, 19, 24, 33, 27, 8, 16, 23, 0, 21, 1, 18, 31, 4, 12, 32, 3, 13, 7,
          15, 30, 6, 28, 22, 11, 35)  # fmt: skip


@check(
    "invariance/x-gpc-svi/order_of_keys",
    paper="wenzel2019",
    question="Is the order of rows under given keys a permutation, the one on which earlier runs go on?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.solve.minibatch import permuted

    keys: NDArray[np.int64] = np.arange(1, 7) * 1000003 % 2**32
    result = tuple(permuted(index, 37, keys) for index in range(37))
    yield flaws(result != _ORDER, f"37 rows, as recorded: {result[:4]} ...", "fast", "orders")
    rng = np.random.default_rng(93)
    wrong = []
    for count in (1, 2, 3, 16, 17, 100):
        drawn = rng.integers(0, 2**32, 6)
        wrong += [count] * (sorted(permuted(index, count, drawn) for index in range(count)) != list(range(count)))
    yield flaws(len(wrong), f"each place once: {wrong}", "fast", "counts")
