"""What runs promise of single steps: which are kept, what is carried over, what is not looked at twice.

Where a run ends does not show whether it kept to that. So single steps are held against the sentences that promise it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
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


def zero_of(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function changes its sign, by halving: both ends differ in sign."""
    below = function(low) < 0.0
    for _ in range(120):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if (function(middle) < 0.0) is below else (low, middle)
    return 0.5 * (low + high)


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
        module = import_module(f"fast.methods.{name}")
        run = module.fit(Data(asked.X, asked.y, 3), prior).run
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
        refused = _refused(
            module.fit, Data(asked.X, asked.y, 3), replace(prior, variance=np.ones(3), jitter=near.jitter, Z=Z)
        )
        yield flaws(not refused, f"{name}: such a K_ZZ is refused where a run begins", "fast", "answers")
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
    lowest, back = 0.0, 0
    for _ in range(12):
        X, y = rng.uniform(-1.5, 1.5, (8, 2)), np.append([0, 1], rng.integers(0, 2, 6))
        prior = Prior(150.0, np.array([0.9, 1.4]), 0.2, 0.3, X[:4] + 0.2)
        plain = svgpc.SVGPCOptions(accelerate=False, max_iterations=12, tolerance=1e-12)
        trace = svgpc.fit(Data(X, y), prior, plain).trace
        lowest = min(lowest, float((np.diff(trace) / (1.0 + np.abs(trace[1:]))).min()))
        back += int(np.any(np.diff(trace) == 0.0))
    why = f"twelve problems of variance 150, {back} with a step that is taken back: how far the bound falls"
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
        kappa: Array = np.asarray(np.linalg.solve(K, kernel(Z, X)).T, dtype=np.float64)
        return K, kappa, variance + noise - np.einsum("nm,mp,np->n", kappa, K, kappa)

    variances = (1.7, 3.0, 0.6, 0.6)
    rules: tuple[tuple[str, Any, str, Any, Any, Any, bool], ...] = (
        ("vi-taylor", vi_taylor, "stage_two", vi_taylor.fit, vi_taylor.TaylorOptions, _taylor, False),
        ("vi-jj", vi_jj, "stage_two", vi_jj.fit, vi_jj.JJOptions, _jaakkola, False),
        ("vi-jj-hybrid", vi_jj, "joint_search", vi_jj.fit_hybrid, vi_jj.JJHybridOptions, _jaakkola, True),
    )
    for label, module, name, fit, options, expand, joint in rules:
        result: list[Array] = []
        moves = (np.linspace(0.5, 1.5, asked.n), np.linspace(1.4, 0.6, asked.n), np.ones(asked.n))

        def second(state: Any, *_: Any, **__: Any) -> Any:
            k = len(result)  # noqa: B023
            result.append(state.xi.copy())  # noqa: B023
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
        if len(result) == len(wanted):
            gap = float(np.abs(np.array(result) - wanted).max() / np.abs(wanted).max())
        why = f"{label}: xi of three rounds of one update, each to another variance, dense; matrices 4 x 4"
        yield Compared(gap, 1e-9, why, "fast", "definition")


# -- labels that are nearly sure ------------------------------------------------------------------------------------


def losing(mean: Array, var: Array, y: int) -> float:
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
        left = losing(mean[0], var[0], 1)
        for alpha in (1e-5, 5e-4):
            value = powered_labels(np.array([1]), ScalarMoments(mean, var), alpha, 0.0).value[0]
            gap = abs(value * alpha / np.log1p(-left) - 1.0)
            yield Compared(gap, 1e-9, f"1 - P = {left:.1e}, alpha {alpha:g}: quadrature to 1e-11", "fast", "definition")


# -- starts and what is learned of steps ----------------------------------------------------------------------------


@check(
    "identity/vi-taylor/starts",
    paper="izmailov2016",
    question="Does Newton's method begin where it was told to, and does mixing learn the steps that were made?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import apep, vi_taylor
    from fast.one_latent.links import link_of
    from fast.solve.mixing import Mixing
    from fast.sparse_classes.alpha_runs import EnergyRun

    asked = tiny("logit")
    for Z in (asked.Z, None):
        prior = Prior(
            asked.variance[0], asked.lengthscales[0], asked.noise[0], asked.jitter[0], None if Z is None else Z[0]
        )
        data = Data(asked.X, asked.y)
        prepared, expansion = vi_taylor.prepare(data, prior), vi_taylor.Expanded(link_of("logit").log_likelihood)
        mode, plain, _, _ = vi_taylor._newton(prepared, expansion, None, 1e-10, 100, None)
        again, short, _, converged = vi_taylor._newton(prepared, expansion, mode, 1e-6, 100, None)
        what = "a full GP" if Z is None else "inducing points"
        wrong = len(short) != 2 or len(plain) < 4 or not converged
        yield flaws(wrong, f"{what}: {len(plain) - 1} steps from zero, {len(short) - 1} from the mode", "fast", "runs")
        yield Compared(
            abs(short[0] / plain[-1] - 1.0), 1e-9, f"{what}: it starts at the height of the mode", "fast", "fast"
        )
        yield Compared(float(np.abs(again - mode).max()), 1e-9, f"{what}: and ends there", "fast", "fast", "difference")

    learnt: list[tuple[Array, Array]] = []
    places: list[tuple[Array, Array]] = []
    learn, accept = Mixing.learn, EnergyRun._accept

    def taken(self: Any, q: Any) -> bool:
        before = self.q, self.here.change.flat
        moved = accept(self, q)
        if moved:
            flat = [np.concatenate([at.precision.ravel(), at.shift.ravel()]) for at in (before[0], self.q)]
            places.append((flat[1] - flat[0], self.here.change.flat - before[1]))
        return moved

    def noted(self: Any, moved: Array, changed: Array) -> None:
        learnt.append((moved, changed))
        learn(self, moved, changed)

    asked = tiny("threshold errors")
    distribution = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    with mock.patch.object(Mixing, "learn", noted), mock.patch.object(EnergyRun, "_accept", taken):
        apep.fit(Data(asked.X, asked.y, 3), distribution, apep.EnergyOptions(alpha=0.5, epsilon=0.05, max_iterations=6))
    gap = np.inf
    if len(learnt) == len(places) > 3:
        gap = max(float(np.abs(a - b).max()) for pair, other in zip(learnt, places, strict=True)
                  for a, b in zip(pair, other, strict=True))  # fmt: skip
    why = f"{len(learnt)} steps of an energy: what moved, and by what its direction changed"
    yield Compared(gap, 1e-12, why, "fast", "definition", "difference")


@check(
    "identity/epgpc/mixed_signs",
    paper="wenzel2019",
    question="Is a mixed precision that is no longer positive given up for the plain one, where signs are not allowed?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.solve.site_iteration import SiteSteps, Visit, iterate_sites

    shrink, away = np.array([0.9, 0.8]), np.array([0.0, 0.02])
    for signed, rules in ((False, {}), (True, {"signed": True})):
        places: list[Array] = []

        def visit(precision: Array, shift: Array, places: list[Array] = places) -> Visit:
            places.append(precision.copy())
            return Visit(precision, shift, shrink * precision - away, shift, np.ones(2), 0.0, 0, None)

        steps = SiteSteps(1e-300, 3, monotone=False, **rules)
        iterate_sites(visit, (np.ones(2), np.ones(2)), steps)
        # the first step, and the mixture of it with the second whose own step would be the least
        first = shrink - away
        gaps = np.array([first - 1.0, shrink * first - away - first])
        bend = gaps[1] - gaps[0]
        mixed = first + gaps[1] - (gaps[1] @ bend) / (bend @ bend) * (gaps[0] + bend)
        plain = first + gaps[1]
        wanted = mixed if signed else np.where(mixed > 0.0, mixed, plain)
        gap = max(float(np.abs(places[1] - first).max()), float(np.abs(places[2] - wanted).max()))
        why = f"signs {'' if signed else 'not '}allowed: {wanted[0]:.3f}, {wanted[1]:.3f}"
        yield Compared(gap, 1e-9, why, "fast", "definition", "difference")


@check(
    "identity/ep/mixing_led_nowhere",
    paper="villacampa2017",
    question="Do sweeps start over, as if nothing had been mixed, where mixing led to no point that they certify?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import ep
    from fast.sparse_classes import training
    from fast.sparse_classes.mixing import Mixed
    from validation.implementations.fast.inducing import given

    asked = tiny("threshold")
    data, prior = given(asked)

    def mix(run: Any, *, tolerance: float, max_iterations: int, spent: int, why: str) -> Mixed:
        run.sites[...] = 0.3
        run.rebuild()
        return Mixed(spent, 7, 0.0, why)

    def told(run: Any) -> tuple[Any, ...]:
        return run.trained.reason, run.trained.iterations, run.trained.n_improper, run.trained.converged

    for most, lost, why in ((60, True, ""), (60, True, "P has no factor"), (400, False, "")):
        options = ep.EPOptions(max_iterations=most, tolerance=1e-10)
        with mock.patch.object(training, "worth_mixing", return_value=False):
            plain = ep.fit(data, prior, options)
        with mock.patch.object(training, "mix", partial(mix, spent=most if lost else 20, why=why)):
            result = ep.fit(data, prior, options)
        reason, *numbers = told(plain)
        end = f"; plain sweeps alone: {why or 'mixing led to no point that sweeps certify'}"
        if lost:
            same = told(result) == (reason + end, *numbers) and np.array_equal(result.run.sites, plain.run.sites)
        else:
            same = result.trained.reason == reason and result.trained.n_improper == 7 and result.trained.iterations > 20
        yield flaws(not same, f"{most} sweeps, {lost=}: {result.trained.reason}", "fast", "runs")


# -- tables, files, lines -------------------------------------------------------------------------------------------


@check(
    "invariance/laplace/tables",
    paper="riihimaki2013",
    question="Are sums over nodes the same however many rows share a table?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.results import Differences
    from fast.full_classes import predict, quadrature_tilt
    from fast.likelihood import largest, probit, region, sobol_rule

    rng = np.random.default_rng(91)
    t = 7
    mean, var, y = rng.standard_normal((t, 3)), rng.uniform(0.2, 2.0, (t, 3)), rng.integers(0, 3, t)
    roots = rng.standard_normal((t, 2, 4))
    cov = roots @ np.swapaxes(roots, 1, 2) + 0.3 * np.eye(2)
    nodes, weights = rng.standard_normal((5, 2)), rng.random(5)
    differences = Differences(mean[:, :2], cov)
    lower: Array = np.asarray(np.linalg.cholesky(cov), dtype=np.float64)
    signs: Array = np.where(y > 0, 1.0, -1.0)
    asked: dict[str, tuple[Any, Callable[[], Any]]] = {
        "softmax of differences": (sobol_rule, lambda: sobol_rule.softmax_of_differences(mean[:, :2], lower)),
        "orthants": (sobol_rule, lambda: sobol_rule.log_orthant(differences)),
        "tilted moments": (quadrature_tilt, lambda: tuple(quadrature_tilt.white_moments(differences, 5))),
        "probabilities by a rule": (
            predict, lambda: predict._by_rule(differences, nodes, weights, "f", lambda at: np.cos(at).sum(axis=2))
        ),
        "regions": (region, lambda: tuple(region.region_moments(mean, var, moments=True, curvature=True))),
        "the largest": (largest, lambda: tuple(largest.argmax_moments(mean, var, y))),
        "expected log Phi": (
            probit, lambda: tuple(probit.expected_log_probit(signs, 3.0 * mean[:, 0], 9.0 * var[:, 1]))
        ),
    }  # fmt: skip

    def parts(value: Any) -> list[Array]:
        return [np.asarray(part) for part in (value if isinstance(value, tuple) else (value,)) if part is not None]

    for name, (module, ask) in asked.items():
        gap = 0.0
        whole = parts(ask())
        # a row a table; three rows of the smallest; all rows
        for cells in (1, 3 * 4096 * 6, 2**40):
            with mock.patch.object(module, "_CELLS", cells):
                result = parts(ask())
            gap = max(gap, *(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(result, whole, strict=True)))
        yield Compared(gap, 1e-12, f"{name} of seven rows, one a table, some, all", "fast", "fast")


@check(
    "invariance/x-gpc-svi/whole_files",
    paper="wenzel2019",
    question="Is a checkpoint whole on the disk before it takes the old one's place?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core import checkpoint as of_fast
    from gibbs.chains import checkpoint as of_gibbs

    content = b"whole" * 20
    writers: dict[str, tuple[Any, Callable[[Path], None]]] = {
        "fast": (of_fast, lambda path: of_fast._replace(path, lambda file: file.write(content))),
        "gibbs": (of_gibbs, lambda path: of_gibbs.write(path, "{}", {"a": np.arange(3.0)})),
    }
    sync, rename = os.fsync, os.replace
    for left, (module, write) in writers.items():
        with tempfile.TemporaryDirectory(prefix="triad-whole-") as folder:
            path = Path(folder) / "run.npz"
            path.write_bytes(b"old")
            events: list[tuple[str, int]] = []

            def synced(handle: int, events: list[tuple[str, int]] = events, path: Path = path) -> None:
                events.append(("synced" if path.read_bytes() == b"old" else "late", os.fstat(handle).st_size))
                sync(handle)

            def renamed(source: Any, target: Any, events: list[tuple[str, int]] = events) -> None:
                events.append(("renamed", Path(source).stat().st_size))
                rename(source, target)

            with mock.patch.object(module.os, "fsync", synced), mock.patch.object(module.os, "replace", renamed):
                write(path)
            size = path.stat().st_size
        yield flaws(events != [("synced", size), ("renamed", size)], f"{size} bytes: {events}", left, "files")


@check(
    "identity/svi/lines_of_progress",
    paper="izmailov2016",
    question="Do lines of progress begin after a second and come half as far again apart each time?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core import ending

    clock, told = [0.0], list[str]()
    with mock.patch.object(ending, "time", SimpleNamespace(perf_counter=lambda: clock[0])):
        due, wanted = 1.0, []
        with ending.ending(None, told.append):
            for k in range(1, 400):
                clock[0] = 0.05 * k
                ending.reached(f"step {k}", float("nan") if k % 2 else 0.25 * k)
                if clock[0] >= due:
                    objective = "" if k % 2 else f", objective {0.25 * k:.6g}"
                    wanted.append(f"step {k}{objective}, {clock[0]:.1f} s")
                    due = 1.5 * clock[0]
        yield flaws(told != wanted, f"{len(told)} lines in twenty seconds, {len(wanted)} expected", "fast", "lines")
        clock[0], spent = 5.0, []
        with ending.ending(2.0) as here:
            for seconds in (5.0, 6.9, 7.1):
                clock[0] = seconds
                spent.append(here.why())
    yield flaws(
        spent != ["", "", "max_time of 2 s spent"], f"seconds that are counted from now: {spent}", "fast", "ends"
    )
