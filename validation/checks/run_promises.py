"""What runs promise of single steps: which are kept, what is carried over, what is not looked at twice.

Where a run ends does not show whether it kept to that. So single steps are held against the sentences that promise it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import log_ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)

# -- priors that move -----------------------------------------------------------------------------------------------

_RUNS = (("ep", "threshold"), ("sep", "threshold"), ("pep", "threshold errors"), ("apep", "threshold errors"),
         ("vi_robust", "threshold errors"), ("gfitc", "threshold"), ("label_regression", "threshold"))  # fmt: skip


def _refused(act: Callable[..., object], *arguments: Any) -> bool:
    from fast.core.errors import NotPositiveDefiniteError

    try:
        act(*arguments)
    except NotPositiveDefiniteError:
        return True
    return False


@check(
    "identity/ep/priors_of_steps",
    paper="villacampa2017",
    question="Is the condition of K_ZZ looked at where priors are held, not in steps, and is a refused move undone?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.errors import NotPositiveDefiniteError
    from fast.core.values import Data, Prior
    from fast.sparse_classes.projections import ClassDistribution

    for name, kind in _RUNS:
        asked = tiny(kind)
        assert asked.Z is not None
        prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
        run = import_module(f"fast.methods.{name}").fit(Data(asked.X, asked.y, 3), prior).run
        state = {key: np.array(value) for key, value in run.state().items()}
        # four inducing points in one place: the smallest pivot squared is above the spacing of float64, the reciprocal
        # condition, a sixth of the jitter, below it
        Z = np.repeat(asked.Z[:, :1], 4, axis=1)
        near = run.points.hyper._replace(variance=np.ones(3), jitter=2.0 * _EPS * np.ones(3))
        bad = near._replace(jitter=-0.1 * np.ones(3))
        if hasattr(run, "move"):
            before = run.points, run.q
            undone = _refused(run.move, bad, Z)
            with mock.patch.object(ClassDistribution, "of", side_effect=NotPositiveDefiniteError("none")):
                undone &= _refused(run.move, near, Z)
            undone &= run.points is before[0] and run.q is before[1]
            yield flaws(not undone, f"{name}: where K_ZZ or q has no factor the run is where it was", "fast", "runs")
            taken = not _refused(run.move, near, Z) and run.points.hyper is near
            yield flaws(not taken, f"{name}: a step to a K_ZZ of condition 3e16 is made", "fast", "steps")
        for moved, why in ((True, "restored where priors are learned"), (False, "refused where they are held")):
            refused = _refused(run.restore, state, near, Z, moved)
            yield flaws(refused is moved, f"{name}: such a K_ZZ is {why}", "fast", "answers")


# -- steps on sites -------------------------------------------------------------------------------------------------


@check(
    "identity/epgpc/steps_kept",
    paper="wenzel2019",
    question="Are steps of EP kept where its log Z falls, and does the bound of svgpc fall in no step?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import epgpc, svgpc

    asked = tiny("probit")
    assert asked.Z is not None
    data = Data(asked.X, asked.y)
    for variance in (1.7, 30.0, 300.0):
        prior = Prior(variance, asked.lengthscales[0], asked.noise[0], 1e-3 * variance, asked.Z[0])
        options = epgpc.EPGPCOptions(damping=0.9, accelerate=False, max_iterations=6, tolerance=1e-300)
        run = epgpc.fit(data, prior, options)
        prepared = epgpc.prepare(data, prior)
        sites = np.zeros((2, asked.n))
        for _ in range(5):
            swept = epgpc.sweep(prepared, *sites)
            sites += 0.9 * (np.array([swept.target_precision, swept.target_shift]) - sites)
        falls = int((np.diff(run.trace) < -1e-6).sum())
        gap = float(np.abs(np.array([run.site_precision, run.site_shift]) - sites).max() / np.abs(sites).max())
        why = f"variance {variance:g}: five steps of .9 to what all sites want, log Z falls in {falls} of them"
        yield Compared(gap, 1e-10, why, "fast", "definition")
    rng = np.random.default_rng(3)
    lowest = falls = 0.0
    for _ in range(12):
        X, y = rng.uniform(-1.5, 1.5, (8, 2)), np.append([0, 1], rng.integers(0, 2, 6))
        prior = Prior(150.0, np.array([0.9, 1.4]), 0.2, 0.3, X[:4] + 0.2)
        options = svgpc.SVGPCOptions(accelerate=False, max_iterations=12, tolerance=1e-12)
        trace = svgpc.fit(Data(X, y), prior, options).trace
        lowest = min(lowest, float((np.diff(trace) / (1.0 + np.abs(trace[1:]))).min()))
        falls += float(np.any(np.diff(trace) == 0.0))
    why = f"twelve problems of variance 150, {falls:g} with a step that is taken back: how far the bound falls"
    yield Compared(-lowest, 1e-13, why, "fast", "definition")


# -- what an alternation carries over -------------------------------------------------------------------------------


def _taylor(y: Array, xi: Array) -> tuple[Array, Array]:
    """Precision and shift of the second-order expansion of log sigma(y f) at xi."""
    right = 1.0 / (1.0 + np.exp(-xi))
    precision = right * (1.0 - right)
    return precision, y / (1.0 + np.exp(y * xi)) + precision * xi


def _jaakkola(y: Array, xi: Array) -> tuple[Array, Array]:
    """Precision and shift of the bound of Jaakkola and Jordan, (12) of izmailov2016."""
    return np.tanh(0.5 * xi) / (2.0 * xi), 0.5 * y


@check(
    "identity/vi-taylor/carried_over",
    paper="izmailov2016",
    question="Does algorithm 1 carry mean and covariance to the new kernel, and their optimum where xi moved too?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import vi_jj, vi_taylor
    from fast.one_latent.quadratic_search import Stage, prior_at

    asked = tiny("logit")
    assert asked.Z is not None
    signs = np.where(asked.y == 1, 1.0, -1.0)
    X, Z, jitter, noise = asked.X, asked.Z[0], float(asked.jitter[0]), float(asked.noise[0])

    def projected(variance: float) -> tuple[Array, Array, Array]:
        def kernel(A: Array, B: Array) -> Array:
            scaled = (A[:, None] - B) / asked.lengthscales[0]
            return np.asarray(variance * np.exp(-0.5 * np.square(scaled).sum(axis=2)))

        K = kernel(Z, Z) + jitter * np.eye(len(Z))
        kappa = np.linalg.solve(K, kernel(Z, X)).T
        return K, kappa, variance + noise - np.einsum("nm,mp,np->n", kappa, K, kappa)

    variances = (1.7, 3.0, 0.6, 0.6)
    rules: tuple[tuple[str, Any, str, Any, Any, Any, bool], ...] = (
        ("vi-taylor", vi_taylor, "stage_two", vi_taylor.fit, vi_taylor.TaylorOptions, _taylor, False),
        ("vi-jj", vi_jj, "stage_two", vi_jj.fit, vi_jj.JJOptions, _jaakkola, False),
        ("vi-jj-hybrid", vi_jj, "joint_search", vi_jj.fit_hybrid, vi_jj.JJHybridOptions, _jaakkola, True),
    )
    for label, module, name, fit, options, expand, joint in rules:
        found: list[Array] = []
        moves = (np.linspace(0.5, 1.5, asked.n), np.linspace(1.4, 0.6, asked.n), np.ones(asked.n))

        def second(state: Any, *_: Any, **__: Any) -> Any:
            k = len(found)  # noqa: B023
            found.append(state.xi.copy())  # noqa: B023
            there = prior_at(state.prior, state.prior.hyper._replace(variance=variances[k + 1]))
            return Stage(there, state.xi * moves[k] if joint else state.xi, -float(k), 1)  # noqa: B023

        prior = Prior(asked.variance[0], asked.lengthscales[0], asked.noise[0], asked.jitter[0], Z)
        with mock.patch.object(module, name, second):
            fit(Data(X, asked.y), prior, options(learn=("variance",), n_upd=1, max_iterations=3))
        mean, cov, wanted = np.zeros(len(Z)), np.eye(len(Z)), []
        for k, (here, there) in enumerate(pairwise(variances)):
            K, kappa, rest = projected(here)
            of_f = kappa @ mean
            var = rest + np.einsum("nm,mp,np->n", kappa, cov, kappa)
            wanted.append(of_f if label == "vi-taylor" else np.sqrt(of_f**2 + var))
            xi = wanted[-1]
            if joint:
                xi, (K, kappa, _) = xi * moves[k], projected(there)
            precision, shift = expand(signs, xi)
            cov = np.linalg.inv(np.linalg.inv(K) + (kappa.T * precision) @ kappa)
            mean = cov @ kappa.T @ shift
        gap = np.inf
        if len(found) == len(wanted):
            gap = float(np.abs(np.array(found) - wanted).max() / np.abs(wanted).max())
        why = f"{label}: xi of three rounds of one update, each to another variance, dense; matrices 4 x 4"
        yield Compared(gap, 1e-9, why, "fast", "definition")


# -- labels that are nearly sure ------------------------------------------------------------------------------------


def _losing(mean: Array, var: Array, y: int) -> float:
    """1 - P(f_y is the largest): the others' integrals, each in one dimension."""
    total = 0.0
    for k in range(mean.size):
        if k == y:
            continue
        others = [j for j in range(mean.size) if j != k]

        def density(f: float, k: int = k, others: list[int] = others) -> float:
            rest = log_ndtr((f - mean[others]) / np.sqrt(var[others])).sum()
            return float(np.exp(rest - 0.5 * (f - mean[k]) ** 2 / var[k]) / np.sqrt(2.0 * np.pi * var[k]))

        # the product of Gaussian tails peaks between k and the label
        peak = (mean[k] * var[y] + mean[y] * var[k]) / (var[k] + var[y])
        reach = 12.0 * float(np.sqrt(var.max()))
        edges = np.linspace(min(mean[k], peak) - reach, max(mean[k], mean[y]) + reach, 17)
        total += sum(quad(density, a, b, epsabs=0.0, epsrel=1e-11, limit=200)[0] for a, b in pairwise(edges))
    return total


@check(
    "identity/apep/nearly_sure",
    paper="villacampa2020",
    question="Is log E[p^alpha]/alpha of a label that is nearly sure known from what is left, not from 1 - P?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.results import ScalarMoments
    from fast.likelihood.power import powered_labels

    var = np.array([[0.7, 1.2, 0.4]])
    for ahead in (0.3, 1.5, 3.4, 5.0, 8.0):
        mean = np.array([[0.2, 0.2 + ahead, -0.1]])
        left = _losing(mean[0], var[0], 1)
        for alpha in (1e-5, 5e-4):
            value = powered_labels(np.array([1]), ScalarMoments(mean, var), alpha, 0.0).value[0]
            gap = abs(value * alpha / np.log1p(-left) - 1.0)
            yield Compared(gap, 1e-9, f"1 - P = {left:.1e}, alpha {alpha:g}: quadrature to 1e-11", "fast", "definition")
