"""Both sides of the numbers at which the iterations of `fast` change their way: given steps, rates and rises.

Ordinary runs stay on one side of such a number, or end at the same place either way. So the function that decides is
handed steps just below and just above it, and what it then does follows from its documentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]


# -- sites to their fixed point ---------------------------------------------------------------------------------------


def _site_run(steps: Sequence[float], *, monotone: bool = False, rates: Sequence[float] = ()) -> tuple[Any, int, list]:
    """A run of one site whose full steps are so long: its end, how often it mixed, and the distances it told.

    rates : sequence    that past differences show, from the second visit on; none: plain steps
    """
    from fast.solve import site_iteration as iteration

    told: list[float] = []
    shown, mixed, count = iter(rates), [0], [0]

    def visit(precision: Array, shift: Array) -> Any:
        gap = steps[count[0]]
        count[0] += 1
        # sites of their own, so that no step is rounded
        return iteration.Visit(np.ones(1), np.zeros(1), np.ones(1), np.full(1, gap), np.ones(1), 0.0, 0, None)

    def propose(_: Any, point: Any, *__: Any) -> tuple[Array, Array]:
        mixed[0] += 1
        return point.target_precision, point.target_shift

    rules = iteration.SiteSteps(1e-300, len(steps), monotone=monotone, accelerate=bool(rates))
    with (
        mock.patch.object(iteration, "largest_ritz_value", side_effect=lambda *_: next(shown, 0.0)),
        mock.patch.object(iteration._Mixer, "propose", propose),
    ):
        end = iteration.iterate_sites(
            visit, (np.ones(1), np.zeros(1)), rules, lambda progress: told.append(progress.residual)
        )
    return end, mixed[0], told


@check(
    "identity/epgpc/site_limits",
    paper="wenzel2019",
    question="Does an iteration of sites stop mixing where it repels, end at rounding, and hold the rate seen before?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    # the first visit is the best so far: thirty after it where steps are rounding, two hundred where they are not
    ends = [
        ("visits at steps of 9e-9", len(_site_run([9e-9] * 300)[0].trace), 31),
        ("visits at steps of 1.1e-8", len(_site_run([1.1e-8] * 300)[0].trace), 201),
        ("visits at steps of 1", len(_site_run([1.0] * 300)[0].trace), 201),
        (
            "visits at steps of 1, a smaller one at the hundredth",
            len(_site_run([1.0] * 99 + [0.9] * 400)[0].trace),
            300,
        ),
    ]
    yield as_documented(ends, "fast", "ends")

    # twelve visits: mixed after all but the first, until a fourth rate in a row says that the point repels
    rows = []
    for step, rates, times in (
        (9e-3, [1.06] * 20, 3),
        (1.1e-2, [1.06] * 20, 10),
        (9e-3, [1.04] * 20, 10),
        (9e-3, [1.06, 1.06, 1.06, 1.04] * 5, 10),
        (9e-3, [1.04, 1.06, 1.06, 1.06, 1.06, 0.1], 4),
    ):
        mixed = _site_run([step] * 12, rates=rates)[1]
        rows.append((f"mixed at steps of {step:g} with rates {rates[:6]}", mixed, times))
    mixed = _site_run([9e-3] * 12, rates=[1.06] * 20, monotone=True)[1]
    yield as_documented([*rows, ("mixed where a bound rises", mixed, 10)], "fast", "runs")

    # a rate of a half while steps are no rounding: what differences show below 1e-8 is none
    steps = [1e-3, 5e-4, 2.5e-4, *(9e-9 * 0.9**k for k in range(8))]
    told = _site_run(steps, rates=[0.5] * 2 + [0.0] * 20)[2]
    gap = max(abs(distance / (2.0 * step) - 1.0) for distance, step in zip(told[1:], steps[1:], strict=True))
    yield Compared(gap, 1e-12, "a rate of 1/2, seen at steps above rounding: two steps are left", "fast", "definition")


class _Steps:
    """The outer iteration with steps of given sizes."""

    def __init__(self, steps: Sequence[float]) -> None:
        self.steps, self.mixed = iter(steps), 0

    def _mixed(self, _state: Any, _propose: Any, start: Any, *_: Any) -> Any:
        from fast.solve import outer_loop

        self.mixed += 1
        return outer_loop._Mixed(start, 0, np.zeros(1), None)

    def run(self, most: int, *, accelerate: bool = False) -> Any:
        """The end of a run that is allowed so many iterations."""
        from fast.solve import outer_loop

        start = np.zeros(1), np.zeros(1)
        options = outer_loop.OuterOptions(max_iterations=most, tolerance=1e-300, accelerate=accelerate)
        with mock.patch.object(outer_loop, "_mixed", self._mixed):
            return outer_loop.iterate(
                lambda sites: sites, lambda _, sites: outer_loop.Proposal(sites, start[0], start[0], 0), start, options,
                objective=lambda _: 0.0, gap=lambda *_: next(self.steps),
            )  # fmt: skip


@check(
    "identity/nested-ep/outer_limits",
    paper="riihimaki2013",
    question="Does the outer iteration mix where it may take more than fifty, and end at rounding or in circles?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.solve.outer_loop import _Remaining

    rows: list[tuple[str, object, object]] = []
    for most, times in ((50, 0), (51, 1)):
        steps = _Steps([1.0] * 100)
        steps.run(most, accelerate=True)
        rows.append((f"mixed of {most} iterations allowed", steps.mixed, times))
    # one iteration is that of the mixing; the first step after it is the best so far
    for size, accelerate, wanted in ((9e-8, True, 32), (1.1e-7, True, 202), (9e-8, False, 201), (1.0, False, 201)):
        end = _Steps([size] * 400).run(1000, accelerate=accelerate)
        told = f"iterations at steps of {size:g}, mixed first: {accelerate}"
        rows += [(told, end.iterations, wanted), ("converged", end.converged, False)]
    yield as_documented(rows, "fast", "ends")

    # q is the largest of the last five ratios: the slow first one counts in five more steps, and then no more
    remaining, sizes = _Remaining(1.0, None), np.cumprod([1.0, 0.9, *[0.5] * 7])
    distances = np.array([remaining.after(float(size)) for size in sizes])
    left = sizes[1:] / (1.0 - np.repeat([0.9, 0.5], [5, 3]))
    gap = float(np.abs(distances[1:] / left - 1.0).max())
    yield Compared(gap, 1e-12, "of a fall by .9 and seven by .5 the slowest of five counts", "fast", "definition")
    gap = 0.0
    for size, q in ((9e-10, 0.5), (1.1e-9, 0.99)):  # eight steps that fall by .99 stay on their side
        remaining = _Remaining(1.0, None)
        for step in (1.0, 0.5, 0.25, *(size * 0.99**k for k in range(8))):
            distance = remaining.after(step)
        gap = float(np.maximum(gap, abs(distance * (1.0 - q) / step - 1.0)))
    yield Compared(gap, 1e-12, "below 1e-9 ratios are rounding: the rate of 1/2 before is held", "fast", "definition")


@check(
    "identity/ep/mixing_limits",
    paper="villacampa2017",
    question="Are sweeps mixed where more than fifty are allowed and sites are few, and is their rate that of eight?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.sparse_classes import fitc_latents
    from fast.sparse_classes.ep import SiteRun
    from fast.sparse_classes.mixing import worth_mixing
    from fast.sparse_classes.training import SweepDistance

    rows: list[tuple[str, object, object]] = []
    for size, most, wanted in ((8, 50, False), (8, 51, True), (2**18, 51, True), (2**18 + 1, 51, False)):
        run = object.__new__(SiteRun)
        run.sites = np.empty(size)
        rows.append((f"mixed: {size} numbers, {most} sweeps allowed", worth_mixing(run, most), wanted))
    yield as_documented(rows, "fast", "runs")

    points: Any = SimpleNamespace(n_classes=2, m=1)
    rows = []
    for n, wanted in ((2**17, True), (2**17 + 1, False)):  # four numbers of each datum and class
        data: Any = SimpleNamespace(n=n, n_classes=2)
        rows.append((f"gfitc of {n} data mixes", fitc_latents.LatentRun(data, points, mixed=True)._mixed, wanted))
    data = SimpleNamespace(n=1, n_classes=2, blocks=lambda _: ())
    latents: Any = fitc_latents.LatentRun(data, points, mixed=True)
    mixed: list[int] = []
    latents._advance = lambda *_: mixed.append(latents._sweeps)
    for _ in range(52):
        latents.refresh()
    yield as_documented([*rows, ("sweeps of 52 that gfitc mixes", mixed, [51, 52])], "fast", "runs")

    # the fall of eight changes: an early slow one counts while it is among them
    distance, gap = SweepDistance(1.0, 0.0), 0.0
    changes = np.cumprod([1.0, 0.99, *[0.5] * 12])
    for k, change in enumerate(changes):
        last = changes[max(0, k - 7) : k + 1]
        told = distance(float(change))
        if k >= 2:
            fall = (last[-1] / last[0]) ** (1.0 / (len(last) - 1))
            gap = max(gap, abs(told / (change * max(1.0, 1.0 / (1.0 - fall) - 1.0)) - 1.0))
    yield Compared(gap, 1e-12, "of fourteen changes the last eight tell the rate", "fast", "definition")
    distance = SweepDistance(1.0, 0.0)
    for change in (1e-3, 8e-4, 6.4e-4, *[9e-13] * 8):
        told = distance(change)
    gap = abs(told / (9e-13 / 0.2 - 9e-13) - 1.0)
    yield Compared(gap, 1e-9, "changes below 1e-12 are rounding: the rate of .8 before is held", "fast", "definition")


# -- stochastic steps -------------------------------------------------------------------------------------------------


@check(
    "identity/x-gpc-svi/falling_limits",
    paper="wenzel2019",
    question="Does a bound count as sinking after six falling means of twenty, a coin's half a nat below the best?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.solve.stopping import Falling

    n = 10
    enough = 0.5 * n * np.log(2.0)  # of a bound that coin tosses beat by half of log 2 a datum
    rows: list[tuple[str, object, object]] = []
    # a mean that rises first; each fall is then so much, the last one to the limit and a little more or less
    for depths, wanted in (
        ([0.1, 0.2, 0.3, 0.4, 0.5, 1.01], 160),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.99, 1.01], 180),
        ([0.1, 0.2, 0.3, 0.4, 1.01], None),
        ([0.1, 0.2, 0.3, 0.4, 1.02, 1.01, 1.03, 1.04, 1.05, 1.06, 1.07, 1.08], 280),
    ):
        means = [-1.0, 0.0, *(-enough * depth for depth in depths)]
        estimates = np.repeat(means, 20) + np.tile([5.0, -5.0], 10 * len(means))  # what batches add cancels in a mean
        watch = Falling(n)
        ends = [k for k, value in enumerate(estimates, 1) if watch.add(float(value))]
        rows.append((f"means {np.round(means, 2).tolist()}: over at step", ends[0] if ends else None, wanted))
    yield as_documented(rows, "fast", "ends")


def _fading(values: Sequence[Array], decay: float) -> Array:
    """Sum of (1 - decay) decay^k of a value k steps ago, term by term."""
    ages = np.arange(len(values))[::-1]
    return np.sum([(1.0 - decay) * decay**age * value for age, value in zip(ages, values, strict=True)], axis=0)


@check(
    "identity/x-gpc-svi/optimisers",
    paper="wenzel2019",
    question="Are steps of Adam and AdaDelta those of their papers, also where gradients are as small as epsilon?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.solve.ada_delta import AdaDeltaState, ada_delta_step
    from fast.solve.adam import AdamState, adam_step

    rng = np.random.default_rng(8)
    size = 10.0 ** np.array([0.0, -4.0, -8.0, -9.0])
    gradients = [size * rng.standard_normal(4) for _ in range(6)]
    adam, delta, gap = AdamState.start(4), AdaDeltaState.start(4), np.zeros(2)
    bare: list[Array] = []
    for t in range(1, 7):
        past = gradients[:t]
        step = adam_step(past[-1], adam, 0.01)
        adam = step.state
        mean = _fading(past, 0.9) / (1.0 - 0.9**t)
        square = _fading([g**2 for g in past], 0.999) / (1.0 - 0.999**t)
        wanted = 0.01 * mean / (np.sqrt(square) + 1e-8)
        gap[0] = np.maximum(gap[0], np.abs(step.step / wanted - 1.0).max())  # hands NaN on
        taken = ada_delta_step(past[-1], delta, 0.5)
        delta = taken.state
        steps = _fading([s**2 for s in bare], 0.95) if bare else np.zeros(4)
        bare.append(np.sqrt((steps + 1e-6) / (_fading([g**2 for g in past], 0.95) + 1e-6)) * past[-1])
        gap[1] = np.maximum(gap[1], np.abs(taken.step / (0.5 * bare[-1]) - 1.0).max())
    # 1 - 0.999 and the difference of two near decays lose three digits
    yield Compared(float(gap[0]), 1e-11, "Adam: six gradients of sizes 1 to 1e-9", "fast", "definition")
    yield Compared(float(gap[1]), 1e-11, "AdaDelta: the same", "fast", "definition")


# -- searches ---------------------------------------------------------------------------------------------------------


def _hyper_of(asked: Problem) -> Any:
    from fast.core.inputs import hyper

    return hyper(float(asked.variance[0]), asked.lengthscales[0], float(asked.noise[0]), float(asked.jitter[0]), 2)


@check(
    "limit/x-gpc/box_of_a_search",
    paper="wenzel2019",
    question="May a search move a logarithm by two at first, by twenty at all, and no further?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.results import Gradients
    from fast.one_latent.learning import maximise
    from fast.solve.adam import Packing

    hyper = _hyper_of(tiny("logit"))
    for sign in (1.0, -1.0):
        moves: list[Array] = []

        def rising(here: Any, _: Any, sign: float = sign, moves: list[Array] = moves) -> tuple[float, Gradients]:
            ratios = np.array([here.variance / hyper.variance, here.noise / hyper.noise])
            moves.append(sign * np.log(ratios))
            value = float(3.0 * moves[-1][0] + 2.0 * moves[-1][1])
            return value, Gradients(3.0 * sign / here.variance, np.zeros(2), 2.0 * sign / here.noise, None)

        maximise(rising, Packing(("variance", "noise"), hyper, None), max_iterations=60, tolerance=1e-8)
        why = "an objective that rises for ever: e^20 is no kernel for the data any more"
        yield Compared(float(np.abs(moves[-1] - 20.0).max()), 1e-9, why, "fast", "definition", "of the logarithm")
        beyond = next(k for k, move in enumerate(moves) if move.max() > 2.0 + 1e-9)
        gap = float(np.abs(moves[beyond - 1] - 2.0).max())
        why = "no curvature is known at first: both go to the edge of two units before one goes further"
        yield Compared(gap, 1e-9, why, "fast", "definition", "of the logarithm")


def _scripted_search(values: Sequence[float], slopes: Sequence[float]) -> tuple[int, Any]:
    """Rounds of a search whose k-th ends at a place of such a value and slope, and its end; the start is the first."""
    from fast.core.results import Gradients
    from fast.one_latent.learning import maximise
    from fast.solve.adam import Packing
    from fast.solve.lbfgs import End, Search

    hyper = _hyper_of(tiny("logit"))
    calls, rounds = [0], [0]

    def evaluate(here: Any, _: Any) -> tuple[float, Gradients]:
        k = min(calls[0], len(values) - 1)
        calls[0] += 1
        return values[k], Gradients(slopes[k] / here.variance, np.zeros(2), 0.0, None)

    def ended(search: Any, start: Array, *_: Any) -> End:
        rounds[0] += 1
        if rounds[0] < len(values):
            search(start + 1e-3)
        search.trace.append(search.best.place.value)
        return End(search.best.vector, True, "a round of the judge")

    with mock.patch.object(Search, "round", ended):
        end = maximise(evaluate, Packing(("variance",), hyper, None), max_iterations=60, tolerance=1e-8)
    return rounds[0], end


@check(
    "identity/x-gpc/rounds_of_a_search",
    paper="wenzel2019",
    question="Is a search begun again while two rounds gain what counts, and called converged where it is flat?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    rows: list[tuple[str, object, object]] = []
    for slope, converged in ((0.09, True), (0.11, False)):  # a thousandth of the size of the objective
        end = _scripted_search([-100.0] * 3, [slope] * 3)[1]
        rows.append((f"an end at -100 with a slope of {slope:g}: converged", end.converged, converged))
        reason = "a round of the judge" if converged else "no step raises the objective, whose gradient is not zero"
        rows.append((f"a slope of {slope:g}: why", end.reason, reason))
    for gain, wanted in ((0.9e-6, 2), (1.1e-6, 3)):
        values = [-100.0, -100.0, -100.0 + gain, -100.0 + gain]
        count = _scripted_search(values, [1.0] * 4)[0]
        # the third round is one of two units again, and the fourth the one that may end
        rows.append((f"rounds where two gain {gain:g} of 100", min(count, 3), wanted))
    yield as_documented(rows, "fast", "ends")


@check(
    "limit/ep/box_of_a_search",
    paper="villacampa2017",
    question="May a search over priors of classes move a parameter by a factor 1e4, at first by a fifth of its log?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.hyper import class_hyper
    from fast.sparse_classes import training
    from fast.sparse_classes.projections import PointGradients

    asked = tiny("threshold")
    Z: Any = asked.Z
    hyper = class_hyper(asked.variance, asked.lengthscales, asked.noise, asked.jitter, 3, 2)
    edge = float(np.log(1e4))
    for sign in (1.0, -1.0):
        moves: list[float] = []
        points = SimpleNamespace(hyper=hyper, Z=Z)

        class Rising:
            """An evidence that is three times the sum of the logarithms of the variances, or minus that."""

            def __init__(self, points: Any, sign: float, moves: list[float]) -> None:
                self.points, self.sign, self.moves = points, sign, moves

            def restore(self, _state: Any, hyper: Any, Z: Any, _: bool) -> None:
                self.points = SimpleNamespace(hyper=hyper, Z=Z)

            def rebuild(self) -> None:
                return None

            def state(self) -> dict[str, Any]:
                return {}

            def log_evidence(self) -> float:
                steps = self.sign * np.log(self.points.hyper.variance / hyper.variance)
                self.moves.append(float(steps.max()))
                return float(3.0 * steps.sum())

            def gradient(self) -> PointGradients:
                by = 3.0 * self.sign / self.points.hyper.variance
                return PointGradients(by, np.zeros((3, 2)), np.zeros(3), np.zeros(Z.shape))

        run: Any = Rising(points, sign, moves)
        packing = training.ClassPacking(("variance",), hyper, Z, False)
        settled = training.Trained(np.zeros(0), 0.0, True, 1, 0, False, "")
        with mock.patch.object(training, "converge", lambda *_, settled=settled: settled):
            training.search(run, training.Settings(n_steps=60, learn=("variance",)), packing)
        far = sign * np.log(run.points.hyper.variance / hyper.variance)
        why = "an evidence that rises for ever: a factor 1e4"
        yield Compared(float(np.abs(far - edge).max()), 1e-9, why, "fast", "definition", "of the logarithm")
        beyond = next(k for k, move in enumerate(moves) if move > 0.2 * edge + 1e-9)
        gap = abs(max(moves[:beyond]) - 0.2 * edge)
        yield Compared(gap, 1e-9, "near the start first, to the edge", "fast", "definition", "of the logarithm")


# -- ascent on an energy ----------------------------------------------------------------------------------------------


def _energy_run(residual: float = 1.0, value: float = 0.0) -> Any:
    """A run on an energy at which the direction is so long; who asks for another place gets what the judge sets."""
    from fast.sparse_classes import alpha_runs
    from fast.sparse_classes.alpha_energies import Energy, NaturalChange
    from fast.sparse_classes.projections import ClassDistribution

    run = object.__new__(alpha_runs.EnergyRun)
    run.energy, run.epsilon, run.data = Energy("apep", 0.5, 8), 1e-3, None  # type: ignore[assignment]
    run.points = SimpleNamespace(n_classes=1, m=1)  # type: ignore[assignment]
    run.rho, run.unbounded = 1.0, None
    run._set(ClassDistribution.prior(1, 1))
    change = NaturalChange(np.zeros((1, 1, 1)), np.zeros((1, 1)), residual)
    run._here = alpha_runs.Point(None, None, value, change)  # type: ignore[arg-type]
    return run


def _there(run: Any, value: float, residual: float) -> None:
    """Every other place has this value, and a direction so long."""
    place = run._here._replace(value=value, change=run._here.change._replace(residual=residual))
    run._point = lambda _: place


@check(
    "identity/apep/ascent_limits",
    paper="villacampa2020",
    question="Which falls of an energy pass as rounding, when is a run stalled, far, near or without bound?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.sparse_classes.projections import ClassDistribution

    rows: list[tuple[str, object, object]] = []
    for fall, residual, wanted in ((0.9e-12, 0.9, True), (1.1e-12, 0.9, False), (0.9e-12, 1.1, False)):
        run = _energy_run(1.0, 999.0)
        _there(run, 999.0 - 1000.0 * fall, residual)
        taken = run._accept(ClassDistribution.prior(1, 1))
        rows.append((f"a fall of {fall:g} to a direction of {residual:g}: taken", taken, wanted))
    for fall, residual, wanted in ((0.9e-9, 0.49, True), (1.1e-9, 0.49, False), (0.9e-9, 0.51, False)):
        run = _energy_run(1.0, 999.0)
        _there(run, 999.0 - 1000.0 * fall, residual)
        taken = run._accept_root(ClassDistribution.prior(1, 1))
        rows.append((f"Newton's step, a fall of {fall:g} to {residual:g}: taken", taken, wanted))
    yield as_documented(rows, "fast", "steps")

    def shortened(run: Any, most: int) -> list[float]:
        """Steps that are tried until one is half of half of the first, so many times."""
        tried: list[float] = []

        def accept(rho: float | None) -> bool:
            tried.extend([] if rho is None else [rho])
            return rho is not None and rho <= 0.5**most

        run._mixed, run._newton, run._stepped, run._accept = lambda: None, lambda: None, lambda _, rho: rho, accept
        run.refresh()
        return tried

    rows = []
    for halvings, stalled in ((19, False), (20, True)):  # 2^-19 = 1.9e-6, 2^-20 = 0.95e-6
        run = _energy_run(1e-6)
        rows.append((f"steps tried to a half {halvings} times", len(shortened(run, halvings)), halvings + 1))
        rows.append((f"halved {halvings} times: stalled", run.stalled, stalled))
    for residual, times in ((0.9e-4, 1), (1.1e-4, 0)):
        run, roots = _energy_run(residual), [0]

        def root(roots: list[int] = roots) -> None:
            roots[0] += 1

        run._mixed, run._newton, run._come_by_way = lambda: None, root, lambda: False
        run._stepped, run._accept = lambda *_: 1, lambda q: q is not None
        run.refresh()
        rows.append((f"a direction of {residual:g}: Newton's steps asked", roots[0], times))
    for place, size, wanted in (("mean", 0.99e6, False), ("mean", 1.01e6, True), ("variance", 0.99e6, False),
                                ("variance", 1.01e6, True)):  # fmt: skip
        run = _energy_run()
        one = np.ones((1, 1, 1))
        mean = place == "mean"
        run.q = ClassDistribution.of(one if mean else one / size, np.full((1, 1), size if mean else 0.0))
        run._look()
        rows.append((f"a {place} of {size:g}: without bound", run.unbounded is not None, wanted))
        if run.unbounded is not None:
            rows.append(("what a step there says", tuple(run.refresh())[:3], (np.inf, 0, run.unbounded)))
    yield as_documented(rows, "fast", "runs")


@check(
    "identity/apep/searches_by_the_way",
    paper="villacampa2020",
    question="Is a run that is far handed to a search at 40 steps and each doubling, and led there by gentle energies?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.sparse_classes import alpha_runs
    from fast.sparse_classes.alpha_energies import Energy

    rows: list[tuple[str, object, object]] = []
    for residual, places in ((1.1e-5, [40, 80, 160, 320, 640, 1280]), (0.9e-5, [])):
        run = _energy_run(residual)
        run._come_by_way, run._mixed, run._accept = lambda: False, lambda: 1, lambda q: q is not None
        at: list[int] = []
        with mock.patch.object(alpha_runs, "optimise", side_effect=lambda *_, run=run, at=at: at.append(run.steps)):
            for _ in range(2700):
                run.refresh()
        rows.append((f"searches at a direction of {residual:g}", at, places))
    yield as_documented(rows, "fast", "runs")

    # labels cost up to min(1/alpha, log(C/epsilon)) times log P: from ten times on less steep energies lead the way
    rows = []
    for alpha, lengths, wanted in (
        (1.0 / 9.9, [1.0], []),
        (1.0 / 10.1, [1.0], [(0.1, 39)]),
        (1.0 / 2000.0, [1.0], [(0.1, 39), (0.01, 39), (0.001, 39)]),
        (1.0 / 20.0, [1.0, 0.011, 0.0099], [(0.1, 3)]),
    ):
        run = _energy_run()
        way: list[Any] = []
        run.energy, run.epsilon = Energy("apep", alpha, 8), 0.0

        class Easier:
            """A less steep energy, whose directions are so long; the last one for ever."""

            stalled, unbounded, q = False, None, "its end"

            def __init__(self, energy: Any, lengths: Sequence[float]) -> None:
                self.energy, self.lengths, self.count = energy, lengths, 0

            def _set(self, *_: Any, **__: Any) -> None:
                return None

            def refresh(self) -> Any:
                self.count += 1
                return SimpleNamespace(residual=self.lengths[min(self.count, len(self.lengths)) - 1])

        def with_energy(energy: Any, way: list[Any] = way, lengths: Sequence[float] = lengths) -> Any:
            if len(way) > 9:
                raise ArithmeticError("a way without end")
            way.append(Easier(energy, lengths))
            return way[-1]

        run.with_energy, run._accept = with_energy, lambda _: True
        run._come_by_way()
        visited = [(round(each.energy.alpha, 9), each.count) for each in way]
        rows.append((f"alpha of {alpha:.4g}: powers on the way and their steps", visited, wanted))
    yield as_documented(rows, "fast", "ways")


# -- lines, boxes and what is refused ---------------------------------------------------------------------------------


@check(
    "identity/laplace-binary/shortest_steps",
    paper="izmailov2016",
    question="Which falls of an objective pass as rounding, and how often is a step of Newton's method halved at most?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood.quadratic_bounds import Expansion
    from fast.methods import vi_taylor
    from fast.one_latent import mode

    n, eps = 4, float(np.finfo(np.float64).eps)
    rows: list[tuple[str, object, object]] = []
    # looks at the first point, at the full step, and at its halves down to 2^-41, the first below 2^-40
    for falls, looks in ((50.0, 2), (100.0, 43)):
        low = -100.0 - falls * eps * (n + 100.0)
        count = [0]

        def height(*_: Any, low: float = low, count: list[int] = count) -> float:
            count[0] += 1
            if count[0] > 200:
                raise ArithmeticError("a step that is halved without end")
            return -100.0 if count[0] == 1 else low

        def likelihood(_: Array, latent: Array, height: Any = height) -> Expansion:
            # the log joint is what the judge says; the prior's part of it is below 1e-17
            return Expansion(np.full(n, height() / n), np.full(n, 1e-9), np.full(n, -1.0))

        given: Any = SimpleNamespace(K=np.eye(n), y_sign=np.ones(n))
        mode.find_mode(given, likelihood, tolerance=1e-300, max_iterations=1)
        rows.append((f"a log joint of -100 that falls by {falls:g} roundings: looks", count[0], looks))
        count[0] = 0
        climb = vi_taylor.Objective(lambda p: (p[0] + 1.0,), height, lambda *_: 1.0)
        vi_taylor.newton(climb, (np.zeros(1),), n, 1e-300, 1)
        rows.append((f"an expansion's: looks where it falls by {falls:g} roundings", count[0], looks))
    yield as_documented(rows, "fast", "steps")


@check(
    "limit/laplace/box_of_a_search",
    paper="riihimaki2013",
    question="May searches over full processes move a logarithm by log 1e4, joint ones by 20, and xi by any length?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.hyper import ClassGradients
    from fast.core.values import Data, Prior
    from fast.full_classes.learning import ClassSearch, search
    from fast.full_classes.prior import prepare
    from fast.methods import vi_jj
    from fast.solve.lbfgs import End, Search

    asked = tiny("threshold full")
    prior = prepare(
        Data(asked.X, asked.y, asked.n_classes), Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter)
    )
    for sign in (1.0, -1.0):

        def rising(here: Any, sign: float = sign) -> tuple[float, ClassGradients]:
            by = 3.0 * sign / here.hyper.variance
            value = 3.0 * sign * float(np.log(here.hyper.variance / prior.hyper.variance).sum())
            return value, ClassGradients(by, np.zeros((3, 2)), np.zeros(3))

        end = search(prior, lambda here, _: here, rising, ClassSearch(learn=("variance",), max_iterations=60))
        far = sign * np.log(end.hyper.variance / prior.hyper.variance)
        gap = float(np.abs(far - np.log(1e4)).max())
        yield Compared(gap, 1e-9, "an evidence that rises for ever: a factor 1e4", "fast", "definition",
                       "of the logarithm")  # fmt: skip

    binary = tiny("logit")
    assert binary.Z is not None
    boxes: list[tuple[Array, Any]] = []

    def ended(search: Any, start: Array, _: Any, box: Any = None, *__: Any) -> End:
        boxes.append((start, box))
        search(start)
        return End(search.best.vector, True, "a round of the judge")

    alone = Prior(
        binary.variance[0], binary.lengthscales[0], binary.noise[0], binary.jitter[0], binary.Z[0]
    )  # fmt: skip
    with mock.patch.object(Search, "round", ended):
        vi_jj.fit_hybrid(
            Data(binary.X, binary.y, 2), alone, vi_jj.JJHybridOptions(learn=("variance", "noise"), max_iterations=1)
        )
    joint = [(start, box) for start, box in boxes if start.size == 2 + len(binary.y)]
    wrong = not joint
    for start, (low, high) in joint:
        reach = np.concatenate([start - low, high - start])[[0, 1, start.size, start.size + 1]]
        wrong |= bool(np.abs(reach - 20.0).max() > 1e-9)
        wrong |= bool(np.isfinite(low[2:]).any() or np.isfinite(high[2:]).any())
    yield flaws(wrong, f"{len(joint)} joint searches of two parameters and {len(binary.y)} xi", "fast", "boxes")


@check(
    "identity/vi-robust/bounded_rates",
    paper="villacampa2017",
    question="Does an unguarded step move q by half of its scale at most, and by its rate where that is less?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.sparse_classes.robust_variational import bounded_rate

    gap = 0.0
    for residual in (0.0, 0.1, 4.9, 5.1, 9.9, 10.1, 1e6):
        for rate in (0.1, 0.05, 1.0):
            wanted = min(rate, 0.5 / residual) if residual else rate
            gap = max(gap, abs(bounded_rate(residual, rate) / wanted - 1.0))
    yield Compared(gap, 1e-15, "steps of all lengths at three rates", "fast", "definition")


@check(
    "identity/nested-ep/inner_sweeps",
    paper="riihimaki2013",
    question="Do inner runs make a thousand sweeps at most, and rest at 1e-12, or at rounding below 1e-9?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.blockwise.quadratic import estimated_distance
    from fast.core.results import Differences
    from fast.full_classes import inner_ep as inner

    rows: list[tuple[str, object, object]] = []
    for changes, sweeps in (
        ([1.0], 1000),
        ([1e-3, 1.1e-12, 0.9e-12], 3),
        ([1e-3, 1.1e-9], 1000),
        # the second is the best so far: six that are no less, and it rests
        ([1e-3, 0.9e-9], 8),
    ):
        calls = [0]

        def sweep(alpha: Array, beta: Array, q: Any, calls: list[int] = calls, changes: Sequence[float] = changes,
                  **_: Any) -> Any:  # fmt: skip
            change = np.full(1, changes[min(calls[0], len(changes) - 1)])
            calls[0] += 1
            return inner.InnerSites(alpha, beta, q.mean, q.cov, change, change, 1)

        with mock.patch.object(inner, "sweep", sweep):
            zero = np.zeros((1, 2))
            end = inner.run(zero, zero, Differences(zero, np.eye(2)[None]))
        rows.append((f"changes {changes}, the last for ever: sweeps", end.sweeps, sweeps))
        rows.append(("calls", calls[0], sweeps))
    yield as_documented(rows, "fast", "runs")

    # sweeps in parts: ratios below 1e-9 are rounding's
    gap = 0.0
    for steps, rate in (([1.0, 0.5, 0.25, 9e-10, 8.9e-10], 0.5), ([1.0, 0.5, 0.25, 1.2e-9, 1.1e-9], 1.1 / 1.2)):
        gap = max(gap, abs(estimated_distance(steps) * (1.0 - rate) / steps[-1] - 1.0))
    yield Compared(gap, 1e-12, "the slowest ratio above 1e-9", "fast", "definition")


@check(
    "identity/laplace/most_classes",
    paper="riihimaki2013",
    question="Are more classes than any array could have rows refused by name, and no fewer?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.full_classes.prior import prepare

    rows: list[tuple[str, object, object]] = []
    # what comes next refuses inducing points, before anything of so many classes is made
    prior = Prior(1.0, np.ones(1), 0.0, 1e-6, np.zeros((1, 1)))
    for count, name in ((2, "Z"), (2**31 - 1, "Z"), (2**31, "n_classes")):
        try:
            prepare(Data(np.zeros((2, 1)), np.array([0, 1]), count), prior)
            refused = "nothing"
        except ValueError as error:
            refused = str(error).partition(":")[0]
        rows.append((f"{count} classes: refused", refused, name))
    yield as_documented(rows, "fast", "refusals")
