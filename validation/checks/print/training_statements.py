"""More of what the papers say in words: what is optimised how, sums over data, rates, and answers of rival bounds.

As in `validation.checks.print.claims`: each check is `print/METHOD/says_ID`. Those that train for seconds a full run
asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_ndtr

from validation import problems
from validation.checks.core import Compared, Context, Outcome, flaws
from validation.checks.print.claims import nodes, normal_mean, says
from validation.checks.print.cost_statements import says_at_length
from validation.claims.verdict import CONFIDENCE, smaller
from validation.door.problem import Problem
from validation.door.solve import solve

Array = NDArray[np.float64]


def _flat(gradient: Any) -> Array:
    parts = [getattr(gradient, name) for name in gradient._fields]
    return np.concatenate([np.ravel(part) for part in parts if part is not None])


def _partitioned(name: str, run: Any, n: int, *rule: str) -> Iterable[Outcome]:
    """The gradient on all data beside the mean over the batches of a partition; one batch alone is far from it."""
    whole = _flat(run.gradient(None, *rule))
    scale = float(np.abs(whole).max())
    for size in (6, 12):
        batches = np.random.default_rng(0).permutation(n).reshape(-1, size)
        each = [_flat(run.gradient(np.sort(batch), *rule)) for batch in batches]
        gap = float(np.abs(np.mean(each, axis=0) - whole).max()) / scale
        alone = float(np.abs(each[0] - whole).max()) / scale
        why = f"{name}: mean over {len(batches)} batches of {size}, relative; the first alone is {alone:.2g} off"
        yield Compared(gap, 1e-12, why, "paper", "all data")
        yield flaws(not alone > 0.1, f"{name}: one batch of {size} is no sum", "paper", "batches like the whole")


@says(
    "villacampa2017",
    "ep",
    "sum-over-data",
    ("Log Z and its gradient are sums over the data, except for q and the prior."),
)
def ep_sum_over_data(context: Context) -> Iterable[Outcome]:
    from fast.methods import ep, sep
    from reference.villacampa2017.evidence import Natural, ep_log_evidence
    from validation.implementations.fast.inducing import given

    problem = problems.get("toy-3-sparse-threshold").replace(X_test=None, y_test=None)
    data, prior = given(problem)
    for name, posterior in (
        ("ep", ep.fit(data, prior, ep.EPOptions(max_iterations=5))),
        ("sep", sep.fit(data, prior, sep.SEPOptions(max_iterations=5))),
    ):
        yield from _partitioned(name, posterior.run, problem.n, "10")
    # (9) at a fixed q: what rows add is the same whichever others are there
    rng = np.random.default_rng(1)
    scales = rng.standard_normal((8, 3))
    distributions = [Natural((k + 1.0) * np.eye(4), rng.standard_normal(4)) for k in range(6)]

    def evidence(rows: slice) -> float:
        return ep_log_evidence(distributions[:3], distributions[3:], scales[rows])

    gap = evidence(slice(None)) - evidence(slice(3)) - evidence(slice(3, None)) + evidence(slice(0))
    yield Compared(abs(gap), 1e-12, "(9): all rows less two parts and what q and the prior give", "paper", "reference",
                   "nat")  # fmt: skip


@says(
    "villacampa2017",
    "ep",
    "q-factorises",
    ("q, the prior times all factors, is a product of Gaussians of one class each."),
)
def ep_q_factorises(context: Context) -> Iterable[Outcome]:
    problem = problems.get("toy-3-sparse-threshold").replace(X_test=None, y_test=None)
    answer = context.solve("fast", "ep", problem, tolerance=1e-10)
    assert problem.Z is not None
    assert answer.inducing_cov is not None
    C, m, sites = problem.n_classes, problem.Z.shape[1], answer.local
    joint, projections = np.zeros((C, m, C, m)), []
    per_class = zip(
        np.broadcast_to(problem.Z, (C, m, problem.X.shape[1])),
        np.broadcast_to(problem.variance, C),
        np.broadcast_to(problem.lengthscales, (C, problem.X.shape[1])),
        np.broadcast_to(problem.jitter, C),
        strict=True,
    )
    for k, (Z, variance, lengthscales, jitter) in enumerate(per_class):

        def kernel(a: Array, b: Array, of: Any = variance, by: Any = lengthscales) -> Array:
            return np.asarray(of * np.exp(-0.5 * (((a[:, None] - b) / by) ** 2).sum(axis=-1)))

        K = kernel(Z, Z) + jitter * np.eye(m)
        projections.append(np.linalg.solve(K, kernel(Z, problem.X)).T)
        joint[k, :, k] = np.linalg.inv(K)
    for i, y in enumerate(problem.y):
        for k in (k for k in range(C) if k != y):
            for latent, name in ((k, "c1_other"), (y, "c1_label")):
                row = projections[latent][i]
                joint[latent, :, latent] += sites[name][i, k] * np.outer(row, row)
    covariance = np.linalg.inv(joint.reshape(C * m, C * m)).reshape(C, m, C, m)
    for k in range(C):
        gap = float(np.abs(covariance[k, :, k] - answer.inducing_cov[k]).max())
        yield Compared(gap, 1e-9, f"class {k}: the inverse of prior and factors in all {C * m} values", "paper", "fast")
    across = max(float(np.abs(covariance[k, :, j]).max()) for k in range(C) for j in range(C) if j != k)
    yield Compared(across, 1e-14, "covariances between classes", "paper", "dense algebra")


@says(
    "villacampa2020",
    "apep",
    "evidence-sum",
    ("The gradient of the energy is a sum over the data, so mini-batches estimate it."),
)
def apep_evidence_sum(context: Context) -> Iterable[Outcome]:
    from fast.methods import apep
    from validation.implementations.fast.inducing import given

    problem = problems.get("toy-3-sparse-errors").replace(X_test=None, y_test=None)
    data, prior = given(problem)
    for energy in ("apep", "arpep", "rpapep"):
        options = apep.EnergyOptions(energy=energy, alpha=0.5, epsilon=problem.epsilon, max_iterations=5)
        yield from _partitioned(energy, apep.fit(data, prior, options).run, problem.n)


def _wine(split: int) -> tuple[Problem, NDArray[np.int64]]:
    """Ninety rows of wine with nine inducing points, and the labels of sixty others, where it predicts."""
    from validation import datasets

    data = datasets.load("wine")
    rows = np.random.default_rng(split).permutation(data.n)
    train, test = rows[:90], rows[90:150]
    mean, deviation = data.X[train].mean(axis=0), data.X[train].std(axis=0)
    X = (data.X[train] - mean) / deviation
    problem = Problem(f"wine-{split}", X, data.y[train], 3, "threshold", 1.0, np.full(data.d, np.sqrt(data.d)),
                      noise=0.01, jitter=1e-4, Z=X[:9], X_test=(data.X[test] - mean) / deviation)  # fmt: skip
    return problem, data.y[test]


@says_at_length(
    "villacampa2017", "ep", "pairwise-approximation", "Pairwise factors are as good as one factor a datum on wine."
)
def ep_pairwise_approximation(context: Context) -> Iterable[Outcome]:
    scores: dict[str, list[tuple[float, float]]] = {"pairwise": [], "datum": []}
    for split in range(6):
        problem, labels = _wine(split)
        for factors, listed in scores.items():
            p = context.solve("fast", "ep", problem, factors=factors, tolerance=1e-6).probabilities
            assert p is not None
            true = p[np.arange(labels.size), labels]
            listed.append((float(np.mean(p.argmax(axis=1) != labels)), float(-np.mean(np.log(true)))))
    pairs, whole = (np.array(scores[name]) for name in ("pairwise", "datum"))
    errors = whole.std(axis=0, ddof=1) / np.sqrt(len(whole))
    for k, name in enumerate(("test error", "negative log-likelihood")):
        gap = float(np.mean(pairs[:, k] - whole[:, k]))
        why = f"{name}: {pairs[:, k].mean():.3f} and {whole[:, k].mean():.3f}, six splits of wine; two standard errors"
        yield Compared(abs(gap), 2.0 * float(errors[k]), why, "paper", "factors of a datum")


def _largest_at_data(answer: Any, y: NDArray[np.int64]) -> Array:
    """Probability under q that the label's latent value is the largest, datum by datum, by the trapezoidal rule."""
    mean, var, rows = answer.latent_mean, np.array([np.diag(cov) for cov in answer.latent_cov]), np.arange(len(y))
    f = mean[rows, y][:, None] + np.sqrt(var[rows, y])[:, None] * nodes
    others = [(y + shift) % mean.shape[1] for shift in range(1, mean.shape[1])]
    logs = sum(log_ndtr((f - mean[rows, k][:, None]) / np.sqrt(var[rows, k])[:, None]) for k in others)
    return normal_mean(np.exp(logs))


@says_at_length(
    "villacampa2017", "vi-robust", "vi-nll-reason", "EP's sum of log Z is nearer to log E[p] than VI's E[log p] is."
)
def vi_robust_vi_nll_reason(context: Context) -> Iterable[Outcome]:
    epsilon, of_ep, of_vi = 1e-3, [], []
    for split in range(6):
        problem, _ = _wine(split)
        problem = problem.replace(X_test=None)
        answer = context.solve("fast", "ep", problem, tolerance=1e-6)
        log_mean = np.log(_largest_at_data(answer, problem.y))
        of_ep.append(float(np.mean(np.abs(answer.local["log_tilted_norm"].sum(axis=1) - log_mean))))
        robust = context.solve("fast", "vi-robust", problem.replace(name=f"{problem.name}, errors", epsilon=epsilon),
                               tolerance=1e-6)  # fmt: skip
        p = _largest_at_data(robust, problem.y)
        right, wrong = 1.0 - epsilon + epsilon / 3.0, epsilon / 3.0  # the two values of the likelihood
        mean_log = p * np.log(right) + (1.0 - p) * np.log(wrong)
        of_vi.append(float(np.mean(np.abs(mean_log - np.log(p * right + (1.0 - p) * wrong)))))
    result = smaller(of_ep, of_vi)
    why = (
        f"six splits of wine, mean over data: {np.mean(of_ep):.3f} for EP, {np.mean(of_vi):.3f} for VI; {result.words}"
    )
    yield flaws(result.holds is not True, why, "paper", "other outcomes")


# -- izmailov2016 --------------------------------------------------------------------------------------------------


@says_at_length("izmailov2016", "vi-jj", "table1-variables", "The variables that Table 1 has in closed form are at it.")
def vi_jj_table1_variables(context: Context) -> Iterable[Outcome]:
    from reference.izmailov2016 import jaakkola_jordan, taylor

    whole = problems.get("toy-sparse")
    problem = whole.replace(name="toy-sparse, 24 rows", X=whole.X[:24], y=whole.y[:24], X_test=None, y_test=None)
    m = problem.m or 0
    for method in ("vi-jj", "vi-taylor", "vi-jj-hybrid", "vi-jj-full"):
        answer = solve("fast", method, problem, learn=("variance", "lengthscales", "noise"), max_iterations=20,
                       tolerance=1e-6)  # fmt: skip
        assert answer.latent_mean is not None
        assert answer.latent_cov is not None
        hyper, xi = answer.problem, answer.local["xi"]
        assert hyper.Z is not None

        def k(a: Array, b: Array, hyper: Problem = hyper) -> Array:
            apart = (a[:, None] - b) / hyper.lengthscales[0]
            return np.asarray(hyper.variance[0] * np.exp(-0.5 * (apart**2).sum(axis=-1)))

        K, cross = k(hyper.Z[0], hyper.Z[0]) + hyper.jitter[0] * np.eye(m), k(hyper.X, hyper.Z[0])
        if method == "vi-taylor":
            cov = taylor.taylor_optimal_covariance(xi, hyper.y_sign, K, cross)
            mean = taylor.taylor_optimal_mean(xi, hyper.y_sign, K, cross)
            local = answer.latent_mean[:, 0] - xi
        else:
            cov = jaakkola_jordan.jj_optimal_covariance(xi, K, cross)
            mean = jaakkola_jordan.jj_optimal_mean(xi, hyper.y_sign, K, cross)
            local = np.sqrt(answer.latent_mean[:, 0] ** 2 + answer.latent_cov[:, 0, 0]) - np.abs(xi)
        assert answer.inducing_cov is not None
        assert answer.inducing_mean is not None
        off = max(
            float(np.abs(cov - answer.inducing_cov[0]).max()), float(np.abs(mean - answer.inducing_mean[0]).max())
        )
        yield Compared(off, 1e-6, f"{method}: mu and Sigma at their closed form", "paper", "reference")
        yield Compared(float(np.abs(local).max()), 1e-5, f"{method}: xi at its update, after the last step in theta",
                       "paper", "reference")  # fmt: skip


@says_at_length("izmailov2016", "vi-taylor", "taylor-other-likelihoods", "vi-Taylor also works with the probit link.")
def vi_taylor_taylor_other_likelihoods(context: Context) -> Iterable[Outcome]:
    rng, theirs, ours, ended = np.random.default_rng(1), [], [], 0
    for k in range(12):
        X = rng.uniform(-2.0, 2.0, (360, 1))
        K = 2.5 * np.exp(-0.5 * ((X - X.T) / 0.7) ** 2) + 1e-8 * np.eye(360)
        y = (np.linalg.cholesky(K) @ rng.standard_normal(360) + rng.standard_normal(360) > 0.0).astype(np.int64)
        problem = Problem(f"probit-{k}", X[:60], y[:60], 2, "probit", 2.5, 0.7, jitter=1e-6,
                          Z=np.linspace(-2.0, 2.0, 9)[:, None], X_test=X[60:])  # fmt: skip
        answers = [context.solve("fast", method, problem) for method in ("vi-taylor", "svgpc")]
        ended += answers[0].converged
        errors = [float(np.mean((np.asarray(answer.probabilities)[:, 1] > 0.5) != y[60:])) for answer in answers]
        ours.append(errors[0])
        theirs.append(errors[1])
    yield flaws(12 - ended, "twelve problems drawn from the model, 60 data and 9 points", "paper", "unconverged runs")
    result = smaller(ours, theirs, 0.02)
    yield flaws(result.holds is not True, f"test error below svgpc's + 0.02: {result.words}", "paper", "other outcomes")


# -- wenzel2019 ----------------------------------------------------------------------------------------------------


def _sine(n: int, seed: int) -> Problem:
    """Labels with p = expit(3 sin 2x), twelve inducing points."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 1))
    y = (rng.random(n) < expit(3.0 * np.sin(2.0 * X[:, 0]))).astype(np.int64)
    return Problem(f"sine-{n}-{seed}", X, y, 2, "logit", 4.0, 0.7, jitter=1e-5, Z=np.linspace(-2.0, 2.0, 12)[:, None],
                   X_test=np.linspace(-2.0, 2.0, 9)[:, None])  # fmt: skip


@says_at_length(
    "wenzel2019", "x-gpc", "asymptotically-alike", "X-GPC's predictions come nearer to the best Gaussian's as n grows."
)
def x_gpc_asymptotically_alike(context: Context) -> Iterable[Outcome]:
    apart: dict[int, list[float]] = {n: [] for n in (20, 80, 320)}
    for seed in range(8):
        for n, listed in apart.items():
            problem = _sine(n, seed)
            ours, best = (context.solve("fast", method, problem) for method in ("x-gpc", "svi"))
            assert ours.probabilities is not None
            assert best.probabilities is not None
            listed.append(float(np.abs(ours.probabilities - best.probabilities).max()))
    for few, many in ((20, 80), (80, 320)):
        result = smaller(apart[many], apart[few])
        why = f"largest distance of class probabilities, n = {many} less n = {few}: {result.words}"
        yield flaws(result.holds is not True, why, "paper", "other outcomes")


@says_at_length("wenzel2019", "x-gpc-svi", "rates-below-one", "Mini-batches need rates below one.")
def x_gpc_svi_rates_below_one(context: Context) -> Iterable[Outcome]:
    problem = _sine(320, 0)
    optimum = np.asarray(context.solve("fast", "x-gpc", problem).inducing_mean)
    away: dict[float, list[float]] = {rate: [] for rate in (1.0, 0.3, 0.1)}
    for rate, listed in away.items():
        for seed in range(6):
            run = context.solve("fast", "x-gpc-svi", problem, batch_size=10, n_steps=150, rate=rate, seed=seed)
            listed.append(float(np.linalg.norm(np.asarray(run.inducing_mean) - optimum)))
    for slow, fast in ((0.3, 1.0), (0.1, 0.3)):
        result = smaller(away[slow], away[fast])
        why = (
            f"distance of mu from the optimum in batch after 150 steps, rate {slow} less {fast}, at {CONFIDENCE:.0%}: "
        )
        yield flaws(result.holds is not True, why + result.words, "paper", "other outcomes")
