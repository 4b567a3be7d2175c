"""Where a number decides which way a run goes: numbers on both sides of it, given by the judge.

Runs of ordinary problems stay on one side. A budget that is one byte too small, islands of particles whose log Z are
far below zero, labels that cancel, a curvature that rounding made negative, a path cut off: each is put before the
function that has to decide, and what it decides is held to its own definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]


def _refused(name: str, function: Callable[..., Any], *given: Any) -> bool:
    """Whether a call is refused by an error that begins with this name."""
    try:
        function(*given)
    except ValueError as error:
        return str(error).startswith(name)
    return False


# -- chains and evidence -------------------------------------------------------------------------------------------


@check(
    "identity/gibbs-logit/budgets",
    paper="wenzel2019",
    question="Are too small budgets of memory and too few draws refused, and those that just do taken?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.chains.store import ThinnedStore
    from gibbs.evidence import bridge, fitted, pairwise, softmax_bridge

    like = {"latent": np.zeros((2, 5)), "log_joint": np.zeros(2)}  # 96 bytes
    wrong = 0
    for n_draws, least in ((100, 8), (8, 8), (3, 3)):
        wrong += not _refused("max_kept_bytes", ThinnedStore, like, n_draws, 96 * least - 1)
        store = ThinnedStore(like, n_draws, 96 * least)
        wrong += store.capacity != least
    yield flaws(wrong, "eight draws, or all where there are fewer: a byte less is refused", "gibbs", "budgets")
    rng = np.random.default_rng(3)
    X = rng.standard_normal((4, 1))
    K = np.exp(-0.5 * np.square(X - X.T)) + 0.1 * np.eye(4)
    sign, y = np.array([1.0, -1.0, 1.0, 1.0]), np.array([0, 1, 2, 0])
    wrong = 0
    for short in (np.zeros((8, 127, 4)), np.zeros((1, 64, 4))):
        values, classes = rng.standard_normal(short.shape), rng.standard_normal((*short.shape, 3))
        wrong += not _refused("latent_values", bridge.log_evidence_full, np.random.default_rng(0), K, sign, values)
        given = np.random.default_rng(0), np.stack([K] * 3), y, classes
        wrong += not _refused("latent_values", softmax_bridge.log_evidence, *given)
    yield flaws(wrong, "chains of fewer than 128 draws: refused", "gibbs", "runs")
    loadings = np.array([[1.0, 0.2]])
    for n_draws, wanted in ((63, True), (64, False)):
        inside = np.abs(rng.standard_normal((2, n_draws, 1, 4))) * sign
        white = rng.standard_normal((2, n_draws, 2))
        given = np.random.default_rng(0), K[None] + np.eye(4), (sign > 0.0).astype(int), inside
        wrong = int(_refused("auxiliary", fitted.log_evidence, *given) != wanted)
        wrong += int(_refused("white", pairwise.log_evidence, np.random.default_rng(0), loadings, white) != wanted)
        yield flaws(wrong, f"chains of {n_draws} draws: {'refused' if wanted else 'taken'}", "gibbs", "bridges")


@check(
    "identity/gibbs-probit/islands",
    paper="riihimaki2013",
    question="Do averages over islands of particles hold at any size of Z, and are uneven islands drawn anew?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.evidence import annealed, sequential, softmax_annealed

    rng = np.random.default_rng(5)
    X = rng.standard_normal((5, 1))
    K = np.exp(-0.5 * np.square(X - X.T)) + 0.1 * np.eye(5)
    sign, y = np.array([1.0, -1.0, 1.0, 1.0, -1.0]), np.array([0, 1, 2, 0, 1])
    spread = 0.01 * rng.standard_normal(8)
    wanted = float(np.exp(spread).std(ddof=1) / np.sqrt(8) / np.exp(spread).mean())

    def apart(module: Any, name: str, fake: Callable[..., Any], ask: Callable[[], Any], at: float) -> Compared:
        with mock.patch.object(module, name, fake):
            result = ask()
        value = at + float(np.log(np.exp(spread).mean()))
        gap = max(abs(result.value - value) / abs(value), abs(result.standard_error / wanted - 1.0))
        wrong = 0.0 if result.trusted else np.inf
        why = f"{module.__name__}: islands {at:g} nat from one; error of their average by the delta method"
        return Compared(gap + wrong, 1e-9, why, "gibbs", "definition")

    for at in (-2000.0, 2000.0):
        done = SimpleNamespace(
            log_z=at + spread, ladder=[0.0, 1.0], references=[], around=[], ess_fraction=1.0, acceptance=0.9
        )
        yield apart(annealed, "_anneal", lambda *a, d=done: d,
                    lambda: annealed.log_evidence(np.random.default_rng(0), K, sign,
                                                  replace(annealed.DEFAULTS, n_islands=8)), at)  # fmt: skip
        yield apart(softmax_annealed, "_anneal", lambda *a, d=done: d,
                    lambda: softmax_annealed.log_evidence(np.random.default_rng(0), np.stack([K] * 3), y,
                                                          replace(softmax_annealed.DEFAULTS, n_islands=8)),
                    at)  # fmt: skip
        one_by_one = iter(at + spread)
        yield apart(sequential, "_island", lambda *a, one=one_by_one: next(one),
                    lambda: sequential.log_evidence_margins(np.random.default_rng(0), K, 2,
                                                            options=replace(sequential.DEFAULTS, n_islands=8)),
                    at)  # fmt: skip
    # islands that are worked apart: a stream for each, and the same averages
    for module, common in (
        (annealed, annealed.choose_schedule(rng, K, sign)),
        (sequential, sequential.choose_schedule(K, 2)),
        (softmax_annealed, softmax_annealed.choose_schedule(rng, np.stack([K] * 3), y)),
    ):
        seeds: list[int] = []

        def given(island: Callable[[Any], Any], parts: Sequence[Any], seeds: list[int] = seeds) -> list[Any]:
            seeds += [part.seed for part in parts]
            return [island(part) for part in parts]

        once = replace(module.DEFAULTS, max_rounds=1)
        together = module.estimate(np.random.default_rng(7), common, options=once)
        alone = module.estimate(np.random.default_rng(7), common, given, once)
        error = float(np.hypot(together.standard_error, alone.standard_error))
        why = f"{module.__name__}: islands worked apart against side by side, along one schedule"
        gap = abs(alone.value - together.value) / error
        yield Compared(gap, 4.9, why, "gibbs", "gibbs", "standard errors")
        ratio = alone.standard_error / together.standard_error
        yield flaws(len(set(seeds)) != 16 or not 0.3 < ratio < 3.0, why, "gibbs", "streams that are not their own")
    drawn: list[int] = []
    systematic = sequential._systematic

    def watched(source: Any, weights: Array) -> Any:
        drawn.append(len(weights))
        return systematic(source, weights)

    # margins that hardly ever are positive together: weights are uneven, of the last too, which are not drawn anew
    for D, times in ((2, range(1)), (6, range(1, 6))):
        drawn.clear()
        nearly = (1.0 - 1e-3) / (D - 1)
        chol: Any = np.linalg.cholesky(np.eye(D) - nearly * (np.ones((D, D)) - np.eye(D)))
        blind = sequential.Factors.of(chol, np.zeros(D), np.zeros(D))  # who knows what comes has even weights
        with mock.patch.object(sequential, "_systematic", watched):
            sequential._island(np.random.default_rng(1), sequential.Schedule(blind, 1, 0.0, 2), 400)
        why = f"particles of {D} margins: drawn anew {len(drawn)} times, not after the last"
        yield flaws(len(drawn) not in times, why, "gibbs", "islands")


@check(
    "identity/gibbs-threshold/cut_paths",
    paper="villacampa2017",
    question="Does a path with too many reflections leave its chain where it was, and say so?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.moves.region import bounce_move

    rng = np.random.default_rng(8)
    r, L, n = 40, 3, 6
    cov = np.stack([np.eye(n)] * L)
    y = np.array([0, 1, 2, 0, 1, 2])
    h = rng.standard_normal((r, L, n))
    h[:, y, np.arange(n)] = np.abs(h).max(axis=1) + 0.1
    results = [bounce_move(np.random.default_rng(2), h, cov, cov, y, max_events=most) for most in (0, 3, 400)]
    wrong = 0
    for most, result in zip((0, 3, 400), results, strict=True):
        still = np.all(result.auxiliary == h, axis=(1, 2))
        wrong += int(np.sum(still == result.moved)) + int(np.sum((result.events > most) == result.moved))
    shares = [float(result.moved.mean()) for result in results]
    wrong += not (shares[0] < shares[1] < shares[2] == 1.0)
    yield flaws(wrong, f"at most 0, 3, 400 reflections: {shares} of the chains move", "gibbs", "chains")


# -- ends of loops ---------------------------------------------------------------------------------------------------


@check(
    "identity/x-gpc/patience",
    paper="wenzel2019",
    question="Does an iteration without a smaller change for two hundred steps end, and not before?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.common._iteration import Arrival

    def stalled(changes: Iterable[float]) -> bool:
        arrival = Arrival(1e-300)
        for moved in changes:
            arrival.see(moved)
        return arrival.stalled

    rows = (
        ([1.0] * 200, False),
        ([1.0] * 201, True),
        ([1.0] * 5 + [0.5] + [1.0] * 199, False),
        ([1.0] * 5 + [0.5] + [1.0] * 200, True),
        ([1.0] * 5 + [0.5] + [1.0] * 199 + [0.4], False),
    )
    wrong = sum(stalled(changes) != expected for changes, expected in rows)
    yield flaws(wrong, "changes of which the smallest lies 199 and 200 steps back", "reference", "runs")
    arrival = Arrival(1e-10)
    for moved in (0.7, 2e-14, 2e-14, 4e-15, 2e-14):
        arrival.see(moved)
    yield flaws(not arrival.converged, "there at once, and rounding afterwards", "reference", "runs")


@check(
    "identity/svi/cancelling_labels",
    paper="izmailov2016",
    question="Does a fit end where labels cancel and its mean is rounding, and are its moments those of the prior?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    asked = tiny("logit")
    assert asked.Z is not None
    X = np.concatenate([asked.X, asked.X])
    pairs = asked.replace(name="each input with both labels", X=X, y=np.arange(len(X)) // len(asked.X))
    for method in ("svi", "vi-jj", "vi-taylor"):
        for implementation in ("reference", "fast"):
            fit = context.solve(implementation, method, pairs)
            assert fit.inducing_mean is not None
            size = float(np.abs(fit.inducing_mean).max()) / float(np.sqrt(asked.variance[0]))
            yield flaws(not fit.converged, f"{method}: {fit.iterations} iterations", implementation, "unconverged fits")
            yield Compared(size, 1e-8, f"{method}: by symmetry the mean is zero", implementation, "symmetry",
                           "prior deviations")  # fmt: skip

    from reference.izmailov2016 import _prior
    from reference.izmailov2016.algorithm1 import Variational, largest_move

    K = _prior.matrices(asked.X, _prior.Prior(1.7, asked.lengthscales[0], 0.2, 2e-3, asked.Z[0]))
    # of labels that all pull one way each adds at most a half of its row to the mean
    pulled = 0.5 * np.abs(K.K_ZZ @ np.linalg.solve(K.K_ZZ, K.K_XZ.T)).sum(axis=1).max()
    unit = np.array([1.0, -0.4, 0.2, 0.0])
    for size, wanted in ((1e-4, 0.5e-2), (0.009, 0.45), (0.02, 0.5), (3.0, 0.5)):
        new, old = (Variational(share * size * pulled * unit, K.K_ZZ, np.zeros(8)) for share in (1.0, 0.5))
        yield Compared(abs(largest_move(new, old, K) / wanted - 1.0), 1e-9,
                       f"a mean of {size:g} of the largest pull, halved before: relative to 1 % of that at least",
                       "reference", "definition")  # fmt: skip

    from reference.wenzel2019 import _prior as augmented
    from reference.wenzel2019 import fit as xgpc
    from reference.wenzel2019 import fit_svgpc as svgpc

    hyper = augmented.check_hyper(1.7, asked.lengthscales[0], 0.2, 2e-3, asked.Z[0], 2)
    K_mm, _, kappa, _ = augmented.matrices(asked.X, hyper)
    for size, wanted in ((1e-4, 0.5e-2), (0.009, 0.45), (0.02, 0.5)):
        now, before = ((share * size * pulled * unit, K_mm, np.ones(8)) for share in (1.0, 0.5))
        yield Compared(abs(xgpc._moved(now, before, kappa) / wanted - 1.0), 1e-9, f"x-gpc: a mean of {size:g}",
                       "reference", "definition")  # fmt: skip
    y = np.where(asked.y == 1, 1.0, -1.0)
    with mock.patch.object(svgpc, "change", side_effect=svgpc.change) as compared:
        end = svgpc._ascend(augmented.Inputs(asked.X, y, hyper), 1e-300, 1, None)
    pulled = 0.5 * np.abs(end.inducing_cov @ kappa.T).sum(axis=1).max()
    floors = np.array([call.args[2] for call in compared.call_args_list])
    gap = float(np.abs(floors - np.array([0.01 * pulled, 0.0])).max() / pulled)
    yield Compared(gap, 1e-12, "svgpc: 1 % of the largest pull on a mean, nothing on covariances", "reference",
                   "definition")  # fmt: skip


@check(
    "identity/nested-ep/inner_ends",
    paper="riihimaki2013",
    question="Does inner EP say what its last sweep changed and whether it ended, and are sites never negative?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.common.options import options_of
    from reference.riihimaki2013 import inner_ep, qep

    rng = np.random.default_rng(12)
    root = rng.standard_normal((3, 3))
    mean, cov = rng.standard_normal(3), root @ root.T + np.eye(3)
    alpha, beta = inner_ep.inner_ep(mean, cov, 1, np.zeros(2), np.zeros(2))[:2]
    wrong, changes = 0, []
    for kind, ends in (("converged", True), ("incremental", True)):
        result = inner_ep.inner_ep(mean, cov, 1, np.zeros(2), np.zeros(2), inner=kind)
        wrong += result.converged is not ends
        changes.append(float(result.change))
    again = inner_ep.inner_ep(mean, cov, 1, alpha, beta, inner="incremental")
    changes.append(float(again.change))
    wrong += not (changes[0] < 1e-6 < changes[1]) + (not changes[2] < 1e-6)
    yield flaws(wrong, f"changes of the last sweep {changes}: small at the end, large after one sweep", "reference",
                 "ends")  # fmt: skip
    sites = qep.QuadratureIEP(np.array([1]), 3, options_of("qiep")(damping=0.7, nodes=12))
    left = sites.cavity(0, mean, cov)
    assert left is not None
    var = np.diag(left.cov)
    hat = qep.qiep_tilted_moments(left.mean, var, 1, 12)
    rounded = hat._replace(cov=np.where(np.arange(3) == 1, hat.cov, var * (1.0 + 1e-11)))
    with mock.patch.object(qep, "qiep_tilted_moments", return_value=rounded):
        step = sites.visit(0, mean, cov)
    least = -float(sites.precision[0].min()) if step is not None else np.inf
    yield Compared(max(0.0, least), 0.0, "a tilted variance that rounding left above the cavity's", "reference",
                   "definition", "precision of a site")  # fmt: skip


@check(
    "identity/pep/halvings",
    paper="villacampa2020",
    question="Is every halving of a step counted, beside cavities that are no distribution?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.linalg import reciprocal_condition
    from fast.core.values import Data, Prior
    from fast.methods import pep
    from fast.sparse_classes.power_factors import PowerRun

    asked = tiny("threshold")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    counts = {}
    for name, size in (("sweep", None), ("step", 4)):
        function = PowerRun._move_damped

        def halved(run: Any, *rest: Any, function: Any = function) -> tuple[float, int]:
            damping, halvings = function(run, *rest)
            return damping, halvings + 3

        options = pep.PEPOptions(alpha=0.5, max_iterations=2) if size is None else pep.PEPOptions(
            alpha=0.5, batch_size=size, n_steps=2
        )  # fmt: skip
        plain = pep.fit(Data(asked.X, asked.y, asked.n_classes), prior, options)
        with mock.patch.object(PowerRun, "_move_damped", halved):
            more = pep.fit(Data(asked.X, asked.y, asked.n_classes), prior, options)
        counts[name] = (more.trained.n_improper - plain.trained.n_improper) / 3.0
    wrong = sum(not (count >= 1.0 and count == int(count)) for count in counts.values())
    yield flaws(wrong, f"three more halvings a step: counted {counts} times", "fast", "kinds of steps")
    rng, observed = np.random.default_rng(4), 0.0
    for m in (1, 3, 8):
        R = np.tril(rng.standard_normal((m, m))) + 3.0 * np.eye(m)
        exact = 1.0 / (np.abs(R).sum(axis=0).max() * np.abs(np.linalg.inv(R)).sum(axis=0).max())
        ratio = reciprocal_condition(R) / exact
        observed = max(observed, 1.0 / ratio if ratio > 0.0 else np.inf, ratio)
    yield Compared(observed, 3.0, "an estimate of the norm of the inverse is seldom off by three", "fast", "definition",
                   "ratio")  # fmt: skip


@check(
    "identity/svi/told_and_ended",
    paper="izmailov2016",
    question="Do runs tell every sweep, end after one step when their time is spent, and say what grows without bound?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.blockwise import quadratic, sep
    from fast.blockwise.rows import rows_of
    from fast.core.ending import ending
    from fast.core.values import Data, Prior
    from fast.methods import apep, svi
    from fast.sparse_classes import alpha_runs

    asked = tiny("threshold")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    told: list[tuple[Any, ...]] = []
    parts = [asked.X[:5], asked.X[5:]], [asked.y[:5], asked.y[5:]]
    sweeps = sep.SEPSweeps(max_iterations=4, tolerance=1e-300, callback=lambda *state: told.append(state))
    end = sep.fit(rows_of(*parts), asked.n_classes, prior, sweeps)
    changes = [change for _, change in told]
    wrong = [number for number, _ in told] != [1, 2, 3, 4] or changes[0] <= changes[-1] or end.iterations != 4
    yield flaws(wrong, f"sep in parts, four sweeps: told {told}", "fast", "runs")
    end = sep.fit(rows_of(*parts), asked.n_classes, prior, sep.SEPSweeps(max_iterations=500, tolerance=1e-3))
    wrong = not end.converged or not 1 < end.iterations < 400 or not end.residual <= 1e-3
    yield flaws(wrong, f"sep in parts to 1e-3: {end.iterations} of 500 sweeps", "fast", "runs")
    binary = tiny("logit")
    alone = Prior(float(binary.variance[0]), binary.lengthscales[0], float(binary.noise[0]), float(binary.jitter[0]),
                  None if binary.Z is None else binary.Z[0])  # fmt: skip
    told.clear()
    options = quadratic.BlockwiseOptions(max_iterations=3, tolerance=1e-300, callback=lambda *s: told.append(s))
    rows = rows_of([binary.X[:5], binary.X[5:]], [binary.y[:5], binary.y[5:]])
    quadratic.fit("vi-jj", rows, alone, options)
    bounds = [value for _, value, _ in told]
    wrong = [number for number, *_ in told] != [1, 2, 3] or sorted(bounds) != bounds or told[0][2] <= told[-1][2]
    yield flaws(wrong, f"vi-jj in parts, three sweeps: told {told}", "fast", "runs")
    steps = []
    with ending(1e-9):
        svi.fit_stochastic(
            Data(binary.X, binary.y, 2), alone,
            svi.SVISteps(batch_size=4, n_steps=50, callback=lambda state: steps.append(state)),
        )  # fmt: skip
    yield flaws(len(steps) != 1, f"no time left: {len(steps)} steps, expected the first", "fast", "runs")
    # the prior has no mean and unit variance there: the mean is the first to pass a bound just above one
    wide = Prior(100.0 * asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    with mock.patch.object(alpha_runs, "UNBOUNDED", 1.01):
        run = apep.fit(Data(asked.X, asked.y, asked.n_classes), wide, apep.EnergyOptions(alpha=0.5))
    wrong = run.trained.converged or "the mean of class" not in str(run.optimum)
    yield flaws(wrong, f"a bound of 1.01 on weights: {run.optimum}", "fast", "runs")
