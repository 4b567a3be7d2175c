"""Turns that few runs take: a step that is halved, sites that rounding would make negative, runs that start over.

Each is led there by numbers that need it, and held against the same steps in a few coordinates or by their definition.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr
from scipy.stats import t as student

from validation.checks.chain_states import RUNS, apart
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.checks.run_promises import zero_of
from validation.checks.standard_errors import sampled
from validation.problem import Problem

Array = NDArray[np.float64]

# -- Newton's method ------------------------------------------------------------------------------------------------

# f = X theta with theta ~ N(0, v I): Newton's method from f = 0 overshoots (found among 40000 draws)
_OVERSHOT: tuple[tuple[str, float, list[list[float]], list[float]], ...] = (
    ("probit", 808.0, [[4.0964, 9.3884], [-2.7892, -12.4436], [-0.2302, 0.4598]], [-1.0, -1.0, 1.0]),
    ("probit", 1484.5, [[0.4382, -0.0661], [18.322, -0.6639], [13.904, 0.1314], [-0.4428, -0.0868]],
     [1.0, 1.0, -1.0, 1.0]),
    ("logit", 2255.9, [[3.19784495, 2.84356388, -2.98948784], [-0.5435301, -0.37499125, -2.55908498],
                       [8.37154768, -1.09327378, -40.57062707], [0.23993802, -0.2227291, -0.4510391]],
     [1.0, -1.0, -1.0, -1.0]),
)  # fmt: skip


def _terms(likelihood: str, y: Array, f: Array) -> tuple[float, Array, Array]:
    """log p(y|f), its derivative, and minus its second derivatives."""
    if likelihood == "logit":
        right = 1.0 / (1.0 + np.exp(-f))
        return float(-np.logaddexp(0.0, -y * f).sum()), y / (1.0 + np.exp(y * f)), right * (1.0 - right)
    z = y * f
    hazard = np.exp(-0.5 * z * z - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))
    return float(log_ndtr(z).sum()), y * hazard, hazard * (hazard + z)


def _newton(likelihood: str, y: Array, X: Array, variance: float, start: Array) -> tuple[list[float], int]:
    """Log joints after each Newton step on theta, halved while it lowers them; how many halvings."""
    theta, halvings = start, 0

    def joint(at: Array) -> float:
        return _terms(likelihood, y, X @ at)[0] - 0.5 * float(at @ at) / variance

    values = [joint(theta)]
    while True:
        _, derivative, W = _terms(likelihood, y, X @ theta)
        step = np.linalg.solve((X.T * W) @ X + np.eye(X.shape[1]) / variance, X.T @ derivative - theta / variance)
        if np.abs(X @ step).max() <= 1e-6 * max(1.0, np.abs(X @ theta).max()):
            return values, halvings
        share = 1.0
        while joint(theta + share * step) < values[-1] - 1e-12 * (1.0 + abs(values[-1])):
            share, halvings = 0.5 * share, halvings + 1
        theta = theta + share * step
        values.append(joint(theta))


@check(
    "identity/laplace-binary/halved_steps",
    paper="riihimaki2013",
    question="Is a Newton step that overshoots halved until the log joint does not fall, and no more?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.one_latent import mode
    from fast.one_latent.links import link_of
    from reference.common import laplace_binary

    class Given:
        """All that Newton's method asks of a prior."""

        def __init__(self, K: Array, y_sign: Array) -> None:
            self.K, self.y_sign = K, y_sign

    for likelihood, variance, rows, labels in _OVERSHOT:
        X, y = np.array(rows), np.array(labels)
        K = variance * X @ X.T
        wanted, halvings = _newton(likelihood, y, X, variance, np.zeros(X.shape[1]))
        yield flaws(not halvings, f"{likelihood}: {halvings} halvings in {len(wanted) - 1} steps", "judge", "itself")
        given: Any = Given(K, y)
        log_likelihood = link_of(likelihood).log_likelihood
        result = {
            "fast": mode.find_mode(given, log_likelihood, tolerance=1e-6, max_iterations=60).trace,
            "reference": laplace_binary.laplace_mode(K, y, likelihood, 1e-6, 60).trace,
        }
        for who, trace in result.items():
            gap = float(np.abs(trace - wanted).max()) if len(trace) == len(wanted) else np.inf
            why = f"{likelihood}: log joints of {len(wanted) - 1} steps, Newton's method in {X.shape[1]} coordinates"
            # K is 1e4 to 1e6 times what the data fix, and of two or three dimensions: solves lose as many digits
            yield Compared(gap / abs(wanted[0]), 1e-6, why, who, "definition")


# -- inner sites ----------------------------------------------------------------------------------------------------


@check(
    "identity/nested-ep/inner_edges",
    paper="riihimaki2013",
    question="Do sites of a sure label end at zero and not below, and is a run that damping makes endless cut at once?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.riihimaki2013 import inner_ep

    cov = np.diag([1.0, 0.7, 1.3]) + 0.1
    start = np.array([0.3, 0.2]), np.array([0.1, -0.2])
    lowest = []
    for ahead in (30.0, 45.0, 60.0, 80.0, 120.0):
        for label in range(3):
            for schedule in ("sequential", "parallel"):
                mean = ahead * np.eye(3)[label]
                run = inner_ep.inner_ep(mean, cov, label, *start, inner_schedule=schedule)
                lowest.append(float(run.alpha.min()) if np.isfinite(run.mean).all() and run.converged else -np.inf)
                gap = float(np.abs(run.mean[:3] - mean).max()) / ahead
                yield Compared(gap, 1e-12, f"a label 30 to 120 ahead, {schedule}: q is the cavity", "reference",
                               "definition")  # fmt: skip
    # rounding takes a precision below zero under some kernels only: here every step does by 1e-12
    change = inner_ep.inner_site_change
    with mock.patch.object(inner_ep, "inner_site_change", lambda *at: (change(*at)[0] - 1e-12, change(*at)[1])):
        for label in range(3):
            run = inner_ep.inner_ep(45.0 * np.eye(3)[label], cov, label, *start)
            lowest.append(float(run.alpha.min()) if run.converged else -np.inf)
    yield Compared(-min(lowest), 0.0, "precisions of its sites: none below zero", "reference", "definition", "depth")

    # 1/v - alpha of a site so narrow that q knows its projection by it alone is rounding: no cavity, counted once
    narrow = np.array([1e18, 0.2]), np.array([0.0, -0.2])
    run = inner_ep.inner_ep(np.array([0.4, -0.2, 0.1]), cov, 0, *narrow, inner="incremental")
    yield flaws(run.n_improper != 1 or run.alpha[0] != 1e18, f"{run.n_improper} cavities skipped", "reference", "sites")

    # with 2 delta 100 below log 2, a hundred sweeps leave half of the way: one sweep is made
    mean, told = np.array([0.4, -0.2, 0.1]), []
    moments = inner_ep.inner_tilted_moments
    for damping, sweeps in ((0.0034, 1), (0.0036, 100)):
        calls: list[float] = []

        def counted(m: float, v: float, calls: list[float] = calls) -> Any:
            calls.append(m)
            return moments(m, v)

        with mock.patch.multiple(inner_ep, inner_tilted_moments=counted, CHANGE=0.0, LIMIT=100):
            run = inner_ep.inner_ep(mean, cov, 0, *start, inner_damping=damping)
        told.append(f"damping {damping:g}: {len(calls) // 2} sweeps")
        yield flaws(len(calls) != 2 * sweeps or run.converged, told[-1], "reference", "runs")


# -- runs that end at once, and starts that are refused -------------------------------------------------------------


@check(
    "identity/ep/ended_at_once",
    paper="villacampa2017",
    question="Does a search whose time is over at its start return the start, though a cavity there is improper?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.ending import ending
    from fast.methods import ep
    from fast.sparse_classes.ep import SiteRun
    from validation.implementations.fast.inducing import given

    asked = tiny("threshold")
    data, prior = given(asked)
    options = ep.EPOptions(learn=("variance", "lengthscales"))
    for improper in (False, True):
        with ending(None) as here:
            here.interrupted = True
            if improper:
                with mock.patch.object(SiteRun, "log_evidence", return_value=None):
                    run = ep.fit(data, prior, options)
            else:
                run = ep.fit(data, prior, options)
        points, end = run.run.points, run.trained
        still = float(np.abs(points.hyper.variance / asked.variance - 1.0).max())
        still = max(still, float(np.abs(points.hyper.lengthscales / asked.lengthscales - 1.0).max()))
        wrong = end.converged or still > 1e-12 or end.reason != "interrupted" or not np.isfinite(run.run.q.shift).all()
        yield flaws(wrong, f"interrupted before its first evaluation, {improper=}: {end.reason}", "fast", "runs")
    with mock.patch.object(SiteRun, "log_evidence", return_value=None):
        try:
            ep.fit(data, prior, options)
            told = "nothing"
        except ValueError as error:
            told = str(error)
    wrong = not told.startswith("log_evidence: found an improper cavity")
    yield flaws(wrong, f"nobody asked it to end: {told}", "fast", "answers")


@check(
    "identity/x-gpc/refused_restarts",
    paper="wenzel2019",
    question="Is a restart that the prior refuses none, the start itself an error, and the best of the others kept?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.errors import NotPositiveDefiniteError
    from fast.core.values import Data, Prior
    from fast.methods import x_gpc
    from fast.one_latent import learning

    asked = tiny("logit")
    assert asked.Z is not None
    data = Data(asked.X, asked.y)
    prior = Prior(asked.variance[0], asked.lengthscales[0], asked.noise[0], asked.jitter[0], asked.Z[0])
    options = x_gpc.XGPCLearning(learn=("variance",), restarts=3)
    for refused in (0, 1, 2, 3, None):
        # four searches end at four variances, in an order in which the best is neither first nor last
        ends, count = (4.0, 1.5, 0.3, 0.9), [0]

        def search(evaluate: Any, packing: Any, refused: int | None = refused, count: list[int] = count,
                   ends: tuple[float, ...] = ends, **_: Any) -> Any:  # fmt: skip
            k = count[0]
            count[0] += 1
            if k == refused:
                raise NotPositiveDefiniteError("K_ZZ: refused")
            hyper = packing.parameters(packing.vector(x_gpc_hyper(packing), None), x_gpc_hyper(packing), None)[0]
            return SimpleNamespace(hyper=hyper._replace(variance=ends[k]), Z=prior.Z, k=k)

        def x_gpc_hyper(packing: Any) -> Any:
            from fast.core.inputs import Hyper

            return Hyper(asked.variance[0], asked.lengthscales[0], asked.noise[0], asked.jitter[0], None)

        values = [x_gpc.fit(data, Prior(v, *(getattr(prior, name) for name in ("lengthscales", "noise", "jitter", "Z")))
                            ).elbo for v in ends]  # fmt: skip
        left = [k for k in range(4) if k != refused]
        wanted = max(left, key=lambda k: values[k])
        with mock.patch.object(learning, "maximise", search):
            try:
                posterior, end = x_gpc.fit_learning(data, prior, options)
                learned: Any = end
                result: Any = learned.k if abs(posterior.elbo - values[learned.k]) < 1e-9 else "another"
            except NotPositiveDefiniteError:
                result = None
        wrong = result != (None if refused == 0 else wanted) or count[0] != (1 if refused == 0 else 4)
        yield flaws(wrong, f"search {refused} of four is refused: the best is {result}", "fast", "searches")


@check(
    "invariance/x-gpc-svi/unreadable_orphans",
    paper="wenzel2019",
    question="Does a temporary file that cannot be opened keep no other from being removed?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core import checkpoint

    with tempfile.TemporaryDirectory(prefix="triad-orphans-") as name:
        path = Path(name) / "run.npz"
        files = [path.with_name(f".run.npz.{key}_z9qx.part") for key in ("ab3", "cd4", "ef5")]
        opened = os.open
        for locked in files:
            for each in files:
                each.write_bytes(b"half")

            def refuse(file: Any, *arguments: Any, locked: Path = locked) -> int:
                if Path(file) == locked:
                    raise PermissionError(13, "Permission denied")
                return opened(file, *arguments)

            with mock.patch.object(checkpoint.os, "open", refuse):
                checkpoint._remove_orphans(path)
            left = [each for each in files if each.exists()]
            yield flaws(left != [locked], f"one of three is refused: {len(left)} left", "fast", "files")


# -- chains ---------------------------------------------------------------------------------------------------------


@check(
    "invariance/gibbs-logit/kernel_of_a_file",
    paper="wenzel2019",
    question="Is the file of a chain refused under another kernel, and gone on with under its own, Matérn too?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    for entry in RUNS:
        if "learn" in entry.sampler.options or entry.sampler.method not in ("gibbs-logit", "gibbs-probit"):
            continue
        sampler = entry.sampler._replace(options={"n_chains": 2, "n_draws": 4, "n_warmup": 0})
        with tempfile.TemporaryDirectory(prefix="triad-kernel-") as folder:
            path = Path(folder) / "run.npz"
            first = sampled(sampler, 3, {"smoothness": 1.5}, checkpoint=path)
            again = sampled(sampler, 3, {"smoothness": 1.5}, checkpoint=path)
            name = f"{sampler.method}, {sampler.few.likelihood}"
            yield flaws(apart(first, again), f"{name}: of its own order it is the same run", "gibbs", "arrays")
            refused = 0
            for order in (1.6, None):
                try:
                    sampled(sampler, 3, {"smoothness": order}, checkpoint=path)
                except ValueError as error:
                    refused += "another run" in str(error)
        yield flaws(2 - refused, f"{name}: of another order, or squared exponential, it is refused", "gibbs", "files")


@check(
    "exactness/gibbs-logit/bridge_of_odd_chains",
    paper="wenzel2019",
    question="Is log Z by bridge sampling what its definition says of two halves of chains of odd length?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence.bridge import log_evidence_full

    rng = np.random.default_rng(41)
    K = np.array([[1.4, 0.5], [0.5, 0.9]])
    y = np.array([1.0, -1.0])
    root = np.linalg.cholesky(K)
    for chains, length in ((3, 129), (2, 130), (40, 131)):
        white = np.array([0.3, -0.4]) + 0.8 * rng.standard_normal((chains, length, 2))
        result = log_evidence_full(np.random.default_rng(7), K, y, white @ root.T)
        draws, scaled, values, errors, overlaps = np.random.default_rng(7), length // 2, [], [], []
        # the draw in the middle belongs to no half
        for fitted, other in (
            (white[:, :scaled], white[:, length - scaled :]),
            (white[:, length - scaled :], white[:, :scaled]),
        ):
            fit = fitted.reshape(-1, 2)
            mean, cov = fit.mean(axis=0), np.cov(fit.T)
            theirs = mean + draws.standard_normal((chains * scaled, 2)) @ np.linalg.cholesky(cov).T

            def log_ratio(at: Array, mean: Array = mean, cov: Array = cov) -> Array:
                apart, f = at - mean, at @ root.T
                q = -0.5 * np.einsum("ri,ij,rj->r", apart, np.linalg.inv(cov), apart) - 0.5 * np.linalg.slogdet(cov)[1]
                return np.asarray(-np.logaddexp(0.0, -y * f).sum(axis=1) - 0.5 * np.square(at).sum(axis=1) - q)

            of_chain, of_fit = log_ratio(other.reshape(-1, 2)), log_ratio(theirs)

            def balance(log_z: float, of_chain: Array = of_chain, of_fit: Array = of_fit) -> float:
                return float(
                    (1.0 / (1.0 + np.exp(log_z - of_fit))).mean() - (1.0 / (1.0 + np.exp(of_chain - log_z))).mean()
                )

            log_z = zero_of(balance, -20.0, 5.0)
            sides = 1.0 / (1.0 + np.exp(of_chain - log_z)), 1.0 / (1.0 + np.exp(log_z - of_fit))
            batches = max(32 // chains, 2)
            size = scaled // batches
            means = np.array([
                sides[0].reshape(chains, scaled)[r, scaled - (b + 1) * size : scaled - b * size].mean()
                for r in range(chains) for b in range(batches)
            ])  # fmt: skip
            spread = means.std(ddof=1) / np.sqrt(means.size) / sides[0].mean()
            own = sides[1].std(ddof=1) / np.sqrt(sides[1].size) / sides[1].mean()
            values.append(log_z)
            errors.append(float(np.sqrt(spread**2 + own**2)))
            overlaps.append(2.0 * float(sides[1].mean()))
        wanted = (
            np.mean(values),
            np.mean(errors),
            0.5 * np.mean(errors) ** 2,
            min(overlaps),
            abs(values[0] - values[1]),
        )
        told = (
            result.value,
            result.standard_error,
            result.bias,
            result.detail["overlap"],
            result.detail["gap_between_halves"],
        )
        gap = float(np.abs(np.array(told) - np.array(wanted)).max())
        yield Compared(gap, 1e-8, f"{chains} chains of {length}: value, error, bias, overlap, gap of halves", "gibbs",
                       "definition", "difference")  # fmt: skip
        agree = wanted[4] <= 4.0 * np.hypot(errors[0], errors[1]) and min(overlaps) >= 0.02 and wanted[1] <= 0.05
        yield flaws(result.trusted != bool(agree), f"trusted: {result.trusted}", "gibbs", "answers")


# -- steps that are refused -----------------------------------------------------------------------------------------


@check(
    "identity/epgpc/refused_steps",
    paper="wenzel2019",
    question="Does a run of batches whose new kernel is refused stand under the old one, and one that falls end there?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.errors import NotPositiveDefiniteError
    from fast.core.values import Data, Prior
    from fast.methods import epgpc_svi

    asked = tiny("probit")
    assert asked.Z is not None
    data = Data(asked.X, asked.y)
    prior = Prior(asked.variance[0], asked.lengthscales[0], asked.noise[0], asked.jitter[0], asked.Z[0])

    def run(n_steps: int, every: int = 2) -> Any:
        options = epgpc_svi.EPGPCSteps(
            batches=[[0, 3, 5], [6, 1], [3, 2, 7, 1], [4, 0]], n_steps=n_steps, learn=("variance", "lengthscales"),
            learning_rate=0.05, rebuild_every=every, damping=0.7,
        )  # fmt: skip
        return epgpc_svi.fit(data, prior, options)

    def numbers(end: Any, *, kernel: bool) -> Array:
        hyper = end.posterior.prior.hyper
        parts = (
            [hyper.variance, *hyper.lengthscales]
            if kernel
            else [*end.posterior.site_precision, *end.posterior.site_shift]
        )
        return np.array(parts)

    rebuild, factor = epgpc_svi.SiteRun.rebuild, epgpc_svi.factor_precision
    calls: list[int] = []

    def refuse(self: Any) -> None:
        calls.append(1)
        if len(calls) == 2:  # the first builds the start
            raise NotPositiveDefiniteError("P: refused")
        rebuild(self)

    with mock.patch.object(epgpc_svi.SiteRun, "rebuild", refuse):
        end = run(4)
    before, after = run(1), run(2)
    gap = np.abs(numbers(end, kernel=True) / numbers(before, kernel=True) - 1.0).max()
    gap = max(gap, np.abs(numbers(end, kernel=False) - numbers(after, kernel=False)).max())
    wrong = not end.diverged or end.reason != "step 2: P: refused" or end.iterations != 1 or len(calls) != 3
    yield flaws(wrong, f"ended with: {end.reason}", "fast", "runs")
    yield Compared(float(gap), 1e-12, "the kernel of step 1 under the sites of step 2", "fast", "fast")

    # a q that was carried over to another kernel and has no factor there is built from the sites
    def once(precision: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise NotPositiveDefiniteError("P: refused")
        return factor(precision)

    calls.clear()
    with mock.patch.object(epgpc_svi, "factor_precision", once):
        end = run(4, every=1000)
    move, moves = epgpc_svi.SiteRun.move, []

    def first_built(self: Any, hyper: Any, Z: Any, rebuild: bool) -> None:
        moves.append(rebuild)
        move(self, hyper, Z, rebuild or len(moves) == 1)

    with mock.patch.object(epgpc_svi.SiteRun, "move", first_built):
        other = run(4, every=1000)
    gap = np.abs(numbers(end, kernel=False) - numbers(other, kernel=False)).max()
    yield flaws(end.diverged, f"ended with: {end.reason}", "fast", "runs")
    yield Compared(
        float(gap), 1e-9, "q without a factor in step 1: as where it is built from the sites there", "fast", "fast"
    )

    given: list[float] = []

    def add(estimate: float) -> bool:
        given.append(estimate)
        return len(given) == 3

    with mock.patch.object(epgpc_svi, "Falling", lambda n: SimpleNamespace(add=add, n=n)):
        end = run(4)
    wrong = not end.diverged or end.iterations != 3 or not end.reason.startswith("step 3: the estimate of log Z_EP")
    gap = np.abs(numbers(end, kernel=True) / numbers(run(3), kernel=True) - 1.0).max()
    yield flaws(wrong or not np.isfinite(given).all(), f"ended with: {end.reason}", "fast", "runs")
    yield Compared(float(gap), 0.0, "it stands where three steps end", "fast", "fast")


# -- energies and mixing that are refused ---------------------------------------------------------------------------


def _run_of(name: str, kind: str, **options: Any) -> Any:
    """The run behind a posterior of `fast`, after a fit with these options."""
    from fast.core.values import Data, Prior

    asked = tiny(kind)
    method = import_module(f"fast.methods.{name}")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    made = {"ep": "EPOptions", "apep": "EnergyOptions"}[name]
    return method.fit(Data(asked.X, asked.y, 3), prior, getattr(method, made)(**options)).run


@check(
    "identity/ep/mixing_refused",
    paper="villacampa2017",
    question="Does mixing leave sites to which no distribution belongs, and the run where it was if all are such?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.errors import NotPositiveDefiniteError
    from fast.sparse_classes import ep, mixing

    rebuild = ep.SiteRun.rebuild
    for refused in (1, 2, 3, 5):
        run = _run_of("ep", "threshold", max_iterations=2)
        before, count = run.sites.copy(), [0]

        def failing(self: Any, refused: int = refused, count: list[int] = count) -> None:
            count[0] += 1
            if count[0] == refused:
                raise NotPositiveDefiniteError("P: refused")
            rebuild(self)

        with mock.patch.object(ep.SiteRun, "rebuild", failing):
            mixed = mixing.mix(run, tolerance=1e-9, max_iterations=200)
        if refused == 1:
            same = np.array_equal(run.sites, before) and mixed == mixing.Mixed(0, 0, why="P: refused")
            yield flaws(not same, f"a first visit that is refused: {mixed}", "fast", "runs")
            continue
        left = run.refresh().residual
        why = f"visit {refused} of {count[0]} is refused: what an undamped sweep would change where it ended"
        yield Compared(left, 1e-8, why, "fast", "fixed point", "standardised change")


@check(
    "identity/apep/refused_ways",
    paper="villacampa2020",
    question="Is a way by easier energies that gains nothing undone, and Newton's step without neighbours natural?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.blockwise import energies, multiclass
    from fast.blockwise.rows import rows_of
    from fast.core.values import Prior
    from fast.sparse_classes.alpha_energies import Energy
    from fast.sparse_classes.alpha_runs import EnergyRun

    asked = tiny("threshold")
    run = _run_of("apep", "threshold", alpha=1e-3, max_iterations=3)
    fresh = EnergyRun(run.data, run.points, run.energy, 0.0)
    begun, fresh.rho = fresh.q, 0.125
    with mock.patch.object(EnergyRun, "_accept", return_value=False):
        moved = fresh._come_by_way()
    wrong = moved or fresh.q is not begun or fresh.rho != 0.125 or fresh._come_by_way()
    yield flaws(wrong, "a chain of energies whose end is refused leaves q, and is made once", "fast", "runs")
    fresh = EnergyRun(run.data, run.points, run.energy, 0.0)
    fresh.rho, value = 0.125, fresh.here.value
    # steps of the way say nothing of those that are to come
    wrong = not fresh._come_by_way() or fresh.rho != 1.0 or not fresh.here.value > value or bool(fresh._mixing.moved)
    yield flaws(wrong, f"one that gains {fresh.here.value - value:.3g} nat is taken, full steps follow", "fast", "runs")

    # neighbours that are no distributions: the operator is -I, and the step that of the natural gradient
    moves = EnergyRun._moved

    def without_neighbours(self: Any, difference: Array) -> Any:
        return moves(self, difference) if np.linalg.norm(difference) > 1e-2 else None

    at = EnergyRun(run.data, run.points, Energy("apep", 0.5, 8), 0.1)
    natural = at._stepped(at.here.change, 1.0)
    with mock.patch.object(EnergyRun, "_moved", without_neighbours):
        step = at._newton()
    gap = np.inf if step is None or natural is None else float(np.abs(step.precision - natural.precision).max())
    yield Compared(gap, 1e-9, "a step by minus the unit matrix in the place of differences", "fast", "definition",
                   "difference")  # fmt: skip

    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    make: Any = multiclass.METHODS["apep"].options
    options = make(alpha=0.5, epsilon=0.1, max_iterations=2, tolerance=1e-300)
    made: list[Any] = []
    original = energies.EnergyInParts.terms

    def noted(self: Any, *arguments: Any) -> Any:
        if not made:
            made.append(None)
            made[0] = self.with_energy(Energy("arpep", 0.3, 8)).here.value
        return original(self, *arguments)

    with mock.patch.object(energies.EnergyInParts, "terms", noted):
        multiclass.fit("apep", rows_of(asked.X, asked.y, leaf=3), 3, prior, options)
    whole = EnergyRun(run.data, run.points, Energy("arpep", 0.3, 8), 0.1).here.value
    yield Compared(abs(made[0] / whole - 1.0), 1e-12, "another energy of data in parts, at the prior", "fast", "fast")


@check(
    "identity/apep/unsure_factors",
    paper="villacampa2020",
    question="Are steps whose factors are unsure the same steps, and undone where there is no factor?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.errors import NotPositiveDefiniteError
    from fast.sparse_classes import alpha_energies, alpha_joint

    options: dict[str, Any] = {
        "batches": [[0, 3, 5], [6, 1], [3, 2, 7]], "learn": ("variance", "Z"), "optimizer": "adam", "rate": 0.05,
    }  # fmt: skip
    plain = _run_of("apep", "threshold errors", **options)
    short = _run_of("apep", "threshold errors", **{**options, "n_steps": 1})
    with mock.patch.object(alpha_joint, "_surely_positive", return_value=False):
        unsure = _run_of("apep", "threshold errors", **options)
        looked, count = alpha_energies.Energy.distributions, [0]

        def refused(self: Any, q: Any) -> Any:
            count[0] += 1
            if count[0] == 2:
                raise NotPositiveDefiniteError("cavity: refused")
            return looked(self, q)

        with mock.patch.object(alpha_energies.Energy, "distributions", refused):
            ended = _run_of("apep", "threshold errors", **options)
    for run, other, why in ((unsure, plain, "looked at in each step: three steps"),
                            (ended, short, "the second is refused: one step")):  # fmt: skip
        pairs = ((run.q.precision, other.q.precision), (run.q.shift, other.q.shift), (run.points.Z, other.points.Z),
                 (run.points.hyper.variance, other.points.hyper.variance))  # fmt: skip
        difference = max(float(np.abs(a - b).max()) for a, b in pairs)
        yield Compared(difference, 1e-12, why, "fast", "fast", "difference")


@check(
    "identity/laplace/readings_of_a_variance",
    paper="riihimaki2013",
    question="Are the scales of a half-Student-t with a variance those of the three readings, and is another refused?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.hyperprior import half_t_scale

    for df in (2.5, 4.0, 9.0):
        for variance in (0.3, 100.0):
            result = [
                half_t_scale(variance=variance, df=df, reading=each) for each in ("scale squared", "scale", "moment")
            ]
            moments = (result[0] ** 2, result[1], student(df, scale=result[2]).var())
            gap = max(abs(float(moment) / variance - 1.0) for moment in moments)
            yield Compared(gap, 1e-12, f"df {df:g}, variance {variance:g}: scale squared, scale, second moment", "fast",
                           "definition")  # fmt: skip
    told = []
    for options in ({"df": 2.0, "reading": "moment"}, {"reading": "other"}, {"variance": 0.0}):
        try:
            half_t_scale(**options)
        except ValueError as error:
            told.append(str(error).partition(":")[0])
    yield flaws(told != ["df", "reading", "variance"], f"refused: {told}", "fast", "answers")
    default = abs(half_t_scale() - 10.0)
    yield Compared(default, 1e-12, "the paper's 100, its square the scale's", "fast", "definition", "difference")
