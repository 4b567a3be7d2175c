"""The papers' experiments at the size of a dozen rows: what they report is what `reference` gives, asked one by one.

An experiment drives `fast` or `gibbs` through schedules, clocks and scores. Here each is run on made-up rows of three
classes, and every number that it reports is had again from solves of `reference` that stop where the experiment looked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.common.priors import Prior
from validation import datasets
from validation.checks.core import Compared, Context, Outcome, check
from validation.checks.print.printed import held
from validation.datasets.splits import Split
from validation.door.problem import Problem
from validation.reproduce.riihimaki2013 import fig2, fig5, fig7, fig8, fig9, table1
from validation.reproduce.riihimaki2013 import setting as setting_2013
from validation.reproduce.villacampa2017 import fig1, fig3, fig4, flights, uci
from validation.reproduce.villacampa2017 import fig5 as digits_2017
from validation.reproduce.villacampa2017 import setting as setting_2017
from validation.reproduce.villacampa2020 import fig2 as points_2020
from validation.reproduce.villacampa2020 import fig3 as times_2020
from validation.reproduce.villacampa2020 import fig4 as digits_2020
from validation.reproduce.villacampa2020 import setting as setting_2020
from validation.reproduce.villacampa2020 import tablec
from validation.reproduce.villacampa2020 import uci as uci_2020
from validation.reproduce.wenzel2019.fig1 import compare_with_gibbs

Array = NDArray[np.float64]
LEARN = ("variance", "lengthscales", "noise", "Z")
_LIMIT = 1e-4
_BECAUSE = "the same few steps by other algebra, class probabilities by two quadratures; 1e-4 is below any step"


def _rows(n: int, t: int, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """n + t rows of three classes in the plane."""
    rng = np.random.default_rng(seed)
    y = np.arange(n + t) % 3
    return rng.normal(np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])[y], 0.7), y


def _sparse(epsilon: float = 0.0) -> tuple[Any, Prior]:
    """Twelve rows, five to test on, three inducing points a class."""
    X, y = _rows(12, 5, 4)
    rng, one = np.random.default_rng(5), np.ones(3)
    Z = np.stack([X[rng.choice(12, 3, replace=False)] for _ in range(3)])
    prior = Prior(1.3 * one, np.tile([0.9, 1.2], (3, 1)), 0.05 * one, 1e-6 * one, Z)
    problem = Problem(
        "dozen", X[:12], y[:12], 3, "threshold", **prior._asdict(), epsilon=epsilon, X_test=X[12:], y_test=y[12:]
    )
    return problem, prior


def _solve(context: Context, *asked: Any, **options: Any) -> Any:
    """What the context answers; these answers have all that is read of them."""
    return context.solve(*asked, **options)


def _clock() -> Callable[[], float]:
    """0, 1, 2, ..."""
    ticks = count()
    return lambda: float(next(ticks))


def _score(y: Sequence[int] | NDArray[np.int64], probabilities: Any) -> tuple[float, float]:
    """Error and mean of -log p, row by row."""
    rows = list(zip(np.asarray(probabilities), y, strict=True))
    return float(np.mean([p.argmax() != k for p, k in rows])), float(-np.mean([np.log(p[k]) for p, k in rows]))


def _same(name: str, actual: Any, expected: Any, by: str = "solves of reference", floor: float = 0.0) -> Compared:
    return held(name, actual, expected, by, limit=_LIMIT, because=_BECAUSE, floor=floor)


def _course(name: str, course: Any, y: NDArray[np.int64], solutions: Iterable[Any]) -> Iterable[Outcome]:
    """Errors and log-likelihoods along a run, and a clock that says 1, 2, ..."""
    expected = np.array([_score(y, solution.probabilities) for solution in solutions])
    yield _same(f"{name}, error", course.error, expected[:, 0], floor=0.1)
    yield _same(f"{name}, nll", course.nll, expected[:, 1])
    yield held(f"{name}, seconds", course.seconds, 1.0 + np.arange(len(expected)), "a second a step", limit=0.0,
               because="a clock of whole seconds")  # fmt: skip


@check(
    "print/nested-ep/experiments",
    paper="riihimaki2013",
    question="The studies of section 5 report the answers of reference and the chains, one by one.",
    problems=("-",),
)
def riihimaki_experiments(context: Context, problem: None) -> Iterable[Outcome]:
    """5.1 to 5.5."""
    X, y = _rows(6, 3, 3)
    cut = setting_2013.Parts("dozen", 3, X[:6], y[:6], X[6:], y[6:], ())
    both = setting_2013.pose(cut, 1.0, 0.3, training=True)
    lengths: dict[str, Any] = {"n_chains": 4, "n_draws": 8, "n_warmup": 4, "seed": 2}
    truth = _solve(context, "gibbs", "gibbs-probit", both, evidence="none", **lengths)
    variants = table1.compare_ep_variants(both, truth, iterations=3, nodes=5, nodes_qiep=5)
    for method, variant in variants.items():
        own = {"inner": "incremental"} if "nested" in method else {"nodes": 5}
        theirs = _solve(context, "reference", method, both, max_iterations=3, damping=0.8, tolerance=1e-12, **own)
        for part, rows in (("training", slice(0, both.n)), ("test", slice(both.n, None))):
            gaps = {
                "latent means": theirs.test_latent_mean - truth.test_latent_mean,
                "latent variances": np.array([np.diag(a - b) for a, b in zip(
                    theirs.test_latent_cov, truth.test_latent_cov, strict=True)]),
                "class probabilities": theirs.probabilities - truth.probabilities,
            }  # fmt: skip
            results = [getattr(variant, part)[name] for name in gaps]
            expected = [(np.abs(gap[rows]).mean(), np.abs(gap[rows]).max()) for gap in gaps.values()]
            yield _same(f"5.1, {method}, {part}", [(one.mean, one.max) for one in results], expected)
    line = np.array([-2.0, 0.5, 2.4])
    few: dict[str, Any] = {"max_iterations": 3, "inner": "incremental"}
    toy = fig2.synthetic_three_class(7, line, methods=("nested-ep",), options={"nested-ep": few})
    posed = Problem("toy", toy.X, toy.y, 3, "multinomial-probit", float(np.exp(4.62)), float(np.exp(0.26)), jitter=1e-6,
                    X_test=line[:, None])  # fmt: skip
    theirs = _solve(context, "reference", "nested-ep", posed, **few)
    yield _same("5.2, labels", np.bincount(toy.y), [5, 5, 5], "five of each class")
    yield _same("5.2, probabilities", toy.probabilities["nested-ep"], theirs.probabilities)
    yield _same("5.2, means", toy.latent_mean["nested-ep"], theirs.test_latent_mean)
    options: dict[str, Any] = {"gibbs-probit": lengths, "nested-ep": {"max_iterations": 3}}
    pairs = fig5.usps_marginals(both, 4, methods=("nested-ep",), options=options)["nested-ep"]
    theirs = _solve(context, "reference", "nested-ep", both, max_iterations=3)
    labels = [*cut.y, *cut.y_test]
    p = [row[k] for row, k in zip(theirs.probabilities, labels, strict=True)]
    q = [row[k] for row, k in zip(truth.probabilities, labels, strict=True)]
    yield _same("5.3, true labels", np.concatenate([pairs.training, pairs.test]), p)
    yield _same("5.3, chains", np.concatenate([pairs.training_truth, pairs.test_truth]), q, "the same chains")
    grid = fig7.hyperparameter_grid("nested-iep", cut, (0.0, 2.0), (0.1,), max_iterations=3, tolerance=1e-9)
    for i, log_variance in enumerate((0.0, 2.0)):
        point = Problem("point", cut.X, cut.y, 3, "multinomial-probit", float(np.exp(log_variance)),
                        float(np.exp(0.1)), jitter=1e-6, X_test=cut.X_test)  # fmt: skip
        theirs = _solve(context, "reference", "nested-iep", point, max_iterations=3, tolerance=1e-9)
        error, nll = _score(cut.y_test, theirs.probabilities)
        cells = grid.log_evidence[i, 0], grid.log_predictive_density[i, 0], grid.accuracy[i, 0]
        yield _same("5.3, grid", cells, (theirs.log_evidence, -3.0 * nll, 1.0 - error))
    posed = setting_2013.pose(cut, 2.0, 0.4)
    study = fig8.convergence_study(posed, "nested-ep", inner="incremental", damping=0.5, iterations=3)
    same: dict[str, Any] = {"damping": 0.5, "inner": "incremental", "tolerance": 1e-12}
    runs = [_solve(context, "reference", "nested-ep", posed, max_iterations=k, **same) for k in (1, 2, 3)]
    yield _same("5.4, log Z", study.negative_log_evidence, [-run.log_evidence for run in runs])
    yield _same("5.4, density", study.mlpd, [-_score(cut.y_test, run.probabilities)[1] for run in runs])
    yield from _benchmark(context)


def _benchmark(context: Context) -> Iterable[Outcome]:
    """5.5: labels are predicted by Laplace at the learned hyper-parameters, row by row."""
    X, y = _rows(21, 0, 3)
    data = datasets.Dataset("dozen", X, y, ("a", "b", "c"), ("u", "v"), 0, "none", "made up", "")
    split = Split(np.arange(18), np.arange(18, 21))
    result = fig9.benchmark(data, "laplace", [split], ard=False, learn_tolerance=1e-3, max_iterations=300)
    mean, sd = X[:18].mean(axis=0), X[:18].std(axis=0)
    posed = Problem(
        "fold", (X[:18] - mean) / sd, y[:18], 3, "softmax", result.variance[0], result.lengthscales[0], jitter=1e-6,
        X_test=(X[18:] - mean) / sd,
    )  # fmt: skip
    p = _solve(context, "reference", "laplace", posed).probabilities
    yield _same("5.5, densities", result.log_density, [np.log(row[k]) for row, k in zip(p, y[18:], strict=True)])
    right = [row.argmax() == k for row, k in zip(p, y[18:], strict=True)]
    yield _same("5.5, accuracy", np.asarray(result.right, dtype=np.float64), np.array(right, dtype=np.float64))


@check(
    "print/ep/experiments",
    paper="villacampa2017",
    question="The experiments of section 4 report reference's answers at the points that they evaluate.",
    problems=("-",),
)
def villacampa2017_experiments(context: Context, problem: None) -> Iterable[Outcome]:
    """Figures 1, 3, 4 and 5."""
    posed, prior = _sparse()
    few: dict[str, Any] = {"n_steps": 3, "rate": 0.01}
    schedules = fig1.run_schedule_comparison(
        posed.X, posed.y, prior, **few, tolerance=1e-6, damping=0.6, clock=_clock()
    )
    for scheme, schedule in schedules.items():
        theirs = _solve(context,
            "reference", "ep", posed, learn=LEARN, scheme=scheme, optimizer="adaptive", **few, tolerance=1e-6,
            damping=0.6, trace=True, gradients=False,
        )  # fmt: skip
        yield _same(f"Figure 1, {scheme}", schedule.log_evidence, theirs.trace)
    toy = datasets.make_villacampa2017_toy(np.random.default_rng(2), 14)
    Z = np.stack([toy.X[k : k + 2] for k in range(3)])
    result = fig3.inducing_point_experiment(toy, Z, "sep", reduce=3 / 2000, rate=0.02)
    start = Problem("toy", toy.X, toy.y, 3, "threshold", 1.0, 1.0, jitter=1e-6, Z=Z)
    theirs = _solve(
        context, "reference", "sep", start, learn=("Z",), optimizer="adaptive", rate=0.02, n_steps=3, gradients=False
    )
    yield _same("Figure 3, inducing points", result.Z, theirs.problem.Z)
    yield _same("Figure 3, log Z", result.log_evidence, theirs.log_evidence)
    plan = uci.Plan(posed.X, posed.y, posed.X_test, posed.y_test, 3, 250, 20)
    run = fig4.training_time_experiment(plan, "sep", **few, growth=1.0001, seed=8, clock=_clock())
    at = posed.replace(**setting_2017.start(posed.X, 3, 3, 8)._asdict())
    stops = [
        _solve(
            context, "reference", "sep", at, learn=LEARN, optimizer="adaptive", rate=0.01, n_steps=k, gradients=False
        )
        for k in (1, 2, 3)
    ]
    yield from _course("Figure 4", run, posed.y_test, stops)
    batched: dict[str, Any] = {"learn": LEARN, "optimizer": "adam", "rate": 0.05, "gradients": False}
    parts = digits_2017.Parts(posed.X, posed.y, posed.X_test, posed.y_test)
    sizes: dict[str, Any] = {"n_inducing": 2, "batch_size": 5, "n_steps": 2, "rate": 0.05, "growth": 1.0001, "seed": 3}
    course = digits_2017.mnist_experiment(parts, "sep", **sizes, clock=_clock())
    batches = setting_2017.minibatches(12, 5, 2, 3)
    at = posed.replace(**setting_2017.start(posed.X, 2, 3, 3, alike=True)._asdict())
    stops = [_solve(context, "reference", "sep", at, batches=batches[:k], **batched) for k in (1, 2)]
    yield from _course("4.3, digits", course, posed.y_test, stops)
    data = flights.make_synthetic_delays(17, 1)
    mean, sd = data.X[:12].mean(axis=0), data.X[:12].std(axis=0)
    X = (data.X - mean) / np.where(sd > 0.0, sd, 1.0)
    parts = digits_2017.Parts(X[:12], data.y[:12], X[12:], data.y[12:])
    delays = digits_2017.airline_experiment(parts, ("sep",), **sizes, clock=_clock())
    at = Problem(
        "flights", X[:12], data.y[:12], 3, "threshold", **setting_2017.start(X[:12], 2, 3, 3)._asdict(), X_test=X[12:]
    )
    stops = [_solve(context, "reference", "sep", at, batches=batches[:k], **batched) for k in (1, 2)]
    yield from _course("4.3, flights", delays.courses["sep"], data.y[12:], stops)


@check(
    "print/pep/experiments",
    paper="villacampa2020",
    question=(
        "The experiments of section 5 and appendix C report reference's answers at the points that they evaluate."
    ),
    problems=("-",),
)
def villacampa2020_experiments(context: Context, problem: None) -> Iterable[Outcome]:
    """Figures 2, 3 and 4, and the baselines of Table C."""
    posed, prior = _sparse(setting_2020.EPSILON)
    common: dict[str, Any] = {"alpha": 0.5, "gradients": False}
    inner: dict[str, Any] = {"scheme": "inner", "optimizer": "adaptive"}
    toy = datasets.Dataset("toy", posed.X, posed.y, ("a", "b", "c"), ("u", "v"), 0, "none", "made up", "")
    result = points_2020.inducing_point_experiment(
        toy, prior.Z, "pep", 0.5, reduce=0.001, batch_size=6, rate=0.02, n_start=0, seed=3
    )
    at = posed.replace(variance=1.0, lengthscales=1.0, noise=0.0)
    theirs = _solve(context, "reference", "pep", at, learn=("Z",), rate=0.02, n_steps=2, **inner, **common)
    yield _same("Figure 2, inducing points", result.Z, theirs.problem.Z)
    at = posed.replace(**setting_2020.start(posed.X, 3, 3, 7)._asdict())
    plan = uci_2020.Plan(posed.X, posed.y, posed.X_test, posed.y_test, 9, 0.0, 500, 20, ("apep",))
    run = times_2020.training_time_experiment(
        plan, "pep", 0.5, 3, n_steps=3, n_start=0, growth=1.01, seed=7, clock=_clock()
    )
    stops = [
        _solve(context, "reference", "pep", at, learn=LEARN, rate=0.01, n_steps=k, **inner, **common) for k in (1, 2, 3)
    ]
    yield from _course("Figure 3", run.course, posed.y_test, stops)
    parts = digits_2017.Parts(posed.X, posed.y, posed.X_test, posed.y_test)
    batches = setting_2017.minibatches(12, 5, 2, 7)
    sizes: dict[str, Any] = {"m": 3, "batch_size": 5, "n_steps": 2, "rate": 0.02, "growth": 1.01, "seed": 7}
    for name, protocol, alike in (
        ("digits", digits_2020.mnist_experiment, True),
        ("flights", digits_2020.airline_experiment, False),
    ):
        method = "apep" if alike else "pep"
        own: dict[str, Any] = {} if alike else {"scheme": "inner"}
        course = protocol(parts, method, 0.5, **sizes, clock=_clock()).course
        at = posed.replace(**setting_2020.start(posed.X, 3, 3, 7, alike=alike)._asdict())
        stops = [
            _solve(context,
                "reference", method, at, learn=LEARN, batches=batches[:k], n_steps=k, optimizer="adam", rate=0.02,
                **own, **common,
            )
            for k in (1, 2)
        ]  # fmt: skip
        yield from _course(f"5.5, {name}", course, posed.y_test, stops)
    yield from _baselines(context, posed, prior)


def _baselines(context: Context, posed: Any, prior: Prior) -> Iterable[Outcome]:
    """Table C: chains at given hyper-parameters, and what is scored beside them."""
    lengths: dict[str, Any] = {"n_chains": 2, "n_draws": 8, "n_warmup": 20, "seed": 2}
    result = tablec.gibbs_baseline(posed.X, posed.y, posed.X_test, prior, epsilon=0.1, **lengths)
    fitc = posed.replace(epsilon=0.1, prior_model="fitc")
    chains = _solve(context, "gibbs", "gibbs-threshold", fitc, evidence="none", **lengths)
    yield _same("C, chains", result.probabilities, chains.probabilities, "the chains of this very model")
    plan = uci_2020.Plan(posed.X, posed.y, posed.X_test, posed.y_test, 3, 1.0, 500, 20, ())
    steps: dict[str, Any] = {"n_steps": 2, "rate": 0.01}
    scores = tablec.baseline_comparison(plan, 3, n_chains=2, n_draws=8, seed=4, clock=_clock(), **steps).scores
    at = posed.replace(**setting_2020.start(posed.X, 3, 3, 4)._asdict())
    theirs = _solve(
        context, "reference", "label-regression", at, learn=LEARN, optimizer="adaptive", gradients=False, **steps
    )
    score = scores["label-regression"]
    yield _same("C, label regression", (score.error, score.nll), _score(posed.y_test, theirs.probabilities))


@check(
    "print/x-gpc/compared_with_gibbs",
    paper="wenzel2019",
    question="The comparison of Figure 1 pairs means, deviations and probabilities with the chains' errors.",
    problems=("two-points",),
)
def compared_with_gibbs(context: Context, problem: Problem) -> Iterable[Outcome]:
    """5.1: datum by datum, from reference's answer and short chains."""
    ours = _solve(context, "reference", "x-gpc", problem)
    truth = _solve(
        context, "gibbs", "gibbs-logit", problem, evidence="none", n_chains=4, n_draws=50, n_warmup=10, seed=3
    )
    result = compare_with_gibbs(ours, truth)
    for name, side in (("approximation", ours), ("truth", truth)):
        mean, sd = getattr(result["mean"], name), getattr(result["sd"], name)
        yield _same(f"5.1, {name}, means", mean, [row[0] for row in side.latent_mean], "one by one")
        yield _same(f"5.1, {name}, deviations", sd**2, [block[0, 0] for block in side.latent_cov], "their squares")
        p = getattr(result["probability"], name)
        yield _same(f"5.1, {name}, probabilities", p, [1.0 - row[0] for row in side.probabilities], "the other class")
    assert truth.latent_cov_se is not None
    spread = 2.0 * np.sqrt([block[0, 0] for block in truth.latent_cov]) * result["sd"].truth_se
    yield _same(
        "5.1, errors of deviations", spread, [block[0, 0] for block in truth.latent_cov_se], "2 sd d(sd) = d(var)"
    )
    yield _same("5.1, errors of means", result["mean"].truth_se, [row[0] for row in truth.latent_mean_se], "one by one")
