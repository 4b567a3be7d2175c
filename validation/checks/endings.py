"""How runs end: extrapolation that leads astray, distances that are left, hold-out scores, bounds that fall for ever.

A fixed point does not know how it was come by, and runs of ordinary problems meet few of these rules. So each is held
against its own sentence, on sequences that the judge makes: geometric series, linear maps, a bound that sinks.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from validation.by_name import by_name
from validation.checks import resumed
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]


def _near(actual: float, expected: float, limit: float, why: str, left: str) -> Compared:
    gap = 0.0 if actual == expected else abs(actual - expected) / max(abs(expected), 1e-300)
    return Compared(gap, limit, why, left, "definition", "relative difference")


# -- sweeps that are extrapolated ---------------------------------------------------------------------------------

# after fifty sweeps, from the last twelve moves; see the class
_FIRST, _SPAN, _GIVEN_UP = 50, 12, 300
# directions of a sweep; fewer than the moves that are looked at, so that the combination is exact
_EIGENVALUES = np.array([0.995, 0.9, -0.6, 0.3])


def _swept(sweeps: object, start: Array, centre: Array, damping: float) -> tuple[Array, int, Array | None]:
    """Sweeps of a linear map until something is proposed: where they are, how many, and the proposal."""
    x = start
    for count in range(1, 4 * _FIRST):
        moved = x + damping * (_EIGENVALUES - 1.0) * (x - centre)
        residual = float(np.abs((_EIGENVALUES - 1.0) * (x - centre)).max())
        if sweeps.see((moved,), residual, 0) is not None:  # type: ignore[attr-defined]
            return moved, count, None
        x = moved
        proposed = sweeps.propose((x,))  # type: ignore[attr-defined]
        if proposed is not None:
            return x, count, proposed[0]
    return x, -1, None


@check(
    "identity/ep/extrapolation",
    paper="villacampa2017",
    question="Is what sweeps of a linear map propose its fixed point, and is a proposal that leads astray taken back?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.common._sweeps import Sweeps

    centre, start, damping = np.array([1.0, -2.0, 0.5, 3.0]), np.zeros(4), 0.7
    sweeps = Sweeps(damping, 1e-12)
    left, count, proposed = _swept(sweeps, start, centre, damping)
    yield flaws(abs(count - _FIRST), "the first proposal comes after fifty sweeps", "reference", "sweeps too many")
    gap = np.inf if proposed is None else float(np.abs(proposed - centre).max())
    yield Compared(
        gap, 1e-9,
        "four directions in twelve moves: the combination is exact, but for rounding over 1 - 0.995 and small moves",
        "reference", "definition", "distance of the proposal",
    )  # fmt: skip
    # the sweep from a proposal has a larger residual, or more improper cavities, or neither
    residual = float(np.abs((_EIGENVALUES - 1.0) * (left - centre)).max()) / (1.0 - damping * 0.005)
    for size, improper, kept in ((2.0, 0, False), (0.5, 1, False), (0.5, 0, True)):
        again = Sweeps(damping, 1e-12)
        left, _, _ = _swept(again, start, centre, damping)
        back = again.see((start,), size * residual, improper)
        right = back is None if kept else back is not None and np.array_equal(back[0], left)
        yield flaws(not right, f"a residual {size:g} times the last, {improper} improper: kept is {kept}", "reference",
                     "proposals decided otherwise")  # fmt: skip
    refused = Sweeps(damping, 1e-12)
    left, _, _ = _swept(refused, start, centre, damping)
    back = refused.refuse()
    yield flaws(not np.array_equal(back[0], left), "sites that are no distribution: back to the sweeps", "reference",
                 "proposals decided otherwise")  # fmt: skip
    _, count, _ = _swept(refused, left, centre, damping)
    yield flaws(abs(count - _SPAN - 1), "moves start anew after that: thirteen sweeps to the next", "reference",
                 "sweeps too many")  # fmt: skip
    still = Sweeps(damping, 1e-12)
    ends = []
    for count in range(1, 2 * _GIVEN_UP):
        still.see((start,), 1.0 if count < 100 else 0.5, 0)
        ends.append(still.stalled)
    yield flaws(abs(ends.index(True) + 1 - (100 + _GIVEN_UP)), "three hundred sweeps after the residual has halved",
                 "reference", "sweeps too many")  # fmt: skip
    there = Sweeps(damping, 1e-12)
    there.see((start,), 0.0, 1)
    improper = there.converged
    there.see((start,), 0.0, 0)
    yield flaws(improper or not there.converged or there.distance != 0.0,
                 "no change and no improper cavity is the end", "reference", "ends elsewhere")  # fmt: skip


# -- what is left of a geometric series ---------------------------------------------------------------------------


@check(
    "identity/ep/what_is_left",
    paper="villacampa2017",
    question="Is the distance that damped sweeps state what is left of the geometric series of their moves?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.solve.outer_loop import _Remaining
    from fast.sparse_classes.training import SweepDistance

    why = "a sum of 20 000 terms of the series, the first of which are told"
    later = np.arange(1.0, 20_000.0)
    for damping, eigenvalue in ((1.0, 0.9), (0.5, 0.97), (0.3, 0.2)):
        factor = 1.0 - damping * (1.0 - eigenvalue)  # of damped sweeps; 0.985^20000 = 0
        changes = 3e-4 * factor ** np.arange(12.0)
        whole = SweepDistance(damping, 0.0)
        for change in changes:
            stated = whole(float(change))
        left = float(max(changes[-1], damping * changes[-1] * (factor**later).sum()))
        yield _near(stated, left, 1e-9, why, "fast")
        # before three changes only the rate that mixing has seen says anything
        early = SweepDistance(damping, eigenvalue)(3e-4)
        yield _near(early, max(3e-4, damping * 3e-4 * float((factor**later).sum())), 1e-9, why, "fast")
        steps = _Remaining(damping, None)
        told = [steps.after(float(change)) for change in changes]
        yield flaws(told[0] != np.inf, "one step tells no rate", "fast", "distances")
        yield _near(told[-1], max(changes[-1], damping * changes[-1] / (1.0 - factor)), 1e-9, why, "fast")
        known = _Remaining(damping, 400.0)
        yield _near(known.after(3e-4), 400.0 * 3e-4, 1e-12, "a factor that mixed steps have seen", "fast")
    growing = SweepDistance(0.5, 0.0)
    grown = [growing(change) for change in (1e-3, 2e-3, 4e-3)]
    yield flaws(grown[-1] != np.inf, "changes that grow leave no distance", "fast", "distances")
    yield flaws(SweepDistance(0.5, 1.0)(1e-3) != np.inf, "a direction that does not shrink", "fast", "distances")
    for rule in (SweepDistance(0.5, 1.0), _Remaining(0.5, None).after):
        yield flaws(rule(0.0) != 0.0, "no change is no distance", "fast", "distances")


# -- stochastic runs ----------------------------------------------------------------------------------------------

_BATCHES = ((0, 3, 5), (1, 6), (2, 7, 4))


@check(
    "identity/x-gpc-svi/holdout",
    paper="wenzel2019",
    question="Are hold-out scores means of -log p at their step, and does a run end where they stand still?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    asked = tiny("logit")
    X, y = np.array([[0.4, -0.3], [-1.1, 0.6], [0.2, 1.3]]), np.array([1, 0, 0])
    options = {"batches": _BATCHES * 40, "rate": 0.05, "holdout": (X, y), "holdout_every": 3}
    posterior = resumed.fit(resumed.Run("until scores stand still", "x-gpc-svi", "x_gpc_svi", "logit", options))
    scores = np.asarray(posterior.holdout_scores)
    for k in (0, 1, len(scores) - 1):
        after = context.solve("fast", "x-gpc-svi", asked.replace(name=f"scored {k}", X_test=X),
                              batches=_BATCHES * (k + 1), rate=0.05)  # fmt: skip
        assert after.probabilities is not None
        own = float(-np.log(after.probabilities[np.arange(3), y]).mean())
        yield _near(float(scores[k]), own, 1e-10, f"a run of {3 * (k + 1)} steps, and its probabilities", "fast")
    means = np.convolve(scores, np.full(5, 0.2), mode="valid")
    ends = [k for k in range(10, len(scores) + 1) if abs(means[k - 5] - means[k - 10]) < 1e-3]
    yield flaws(
        not posterior.converged
        or posterior.diverged
        or posterior.reason != "mean hold-out score stands still"
        or ends[:1] != [len(scores)],
        "the first two windows of five scores whose means differ by less than 1e-3", "fast", "ends elsewhere",
    )  # fmt: skip


@check(
    "identity/x-gpc-svi/sinking",
    paper="wenzel2019",
    question="Does a run whose bound only falls end as diverged, where the rule says, and one that learns nothing not?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.inputs import Hyper
    from fast.methods.x_gpc_svi import PolyaGamma
    from fast.one_latent.stochastic import Settings, stochastic_ascent
    from fast.solve.minibatch import Listed

    class Sinking(PolyaGamma):
        """The expected log density, lower by `fall` a datum with each look at it."""

        def __init__(self, fall: float) -> None:
            self._fall, self._looks = fall, 0

        def expected(self, y: Array, latent_mean: Array, latent_var: Array) -> Array:
            self._looks += 1
            return np.asarray(super().expected(y, latent_mean, latent_var)) - self._fall * self._looks

    asked = tiny("logit")
    assert asked.Z is not None
    hyper = Hyper(float(asked.variance[0]), asked.lengthscales[0], float(asked.noise[0]), float(asked.jitter[0]))
    everything = (np.arange(asked.n),)
    # six means of twenty looks, each below the one before, the last half of log 2 a datum below the best
    for fall, learn, end in ((0.01, ("variance",), 120), (1e-5, ("variance",), None), (0.01, (), None)):
        source = Listed(asked.X, asked.y, everything * 200)
        settings = Settings(200, 0.5, learn, 1e-9, stop=None, trace=True)
        result = stochastic_ascent(source, Sinking(fall), hyper, asked.Z[0], settings)
        right = result.diverged == (end is not None) and len(result.rates) == (end or 200)
        if end is not None:
            right &= result.reason == f"step {end}: the estimate of the bound has been falling without end"
        why = f"a fall of {fall:g} nat a datum and step, learning {learn}: ends at {end or 200}"
        yield flaws(not right, why, "fast", "ends elsewhere")

    # cut off in step 105, continued from the checkpoint of step 100: the watch has seen as many estimates
    def cut(progress: Any) -> None:
        if progress.iteration == 105:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        saved = Settings(
            200, 0.5, ("variance",), 1e-9, stop=None, checkpoint=Path(folder, "run.npz"), checkpoint_every=10
        )
        steep = Sinking(0.01)
        with contextlib.suppress(KeyboardInterrupt):
            source = Listed(asked.X, asked.y, everything * 200)
            stochastic_ascent(source, steep, hyper, asked.Z[0], replace(saved, callback=cut))
        steep._looks = 100
        result = stochastic_ascent(Listed(asked.X, asked.y, everything * 200), steep, hyper, asked.Z[0], saved)
    yield flaws(
        len(result.rates) != 120 or not result.diverged, "continued: ends at 120 as well", "fast", "ends elsewhere"
    )


@check(
    "identity/epgpc/sinking",
    paper="wenzel2019",
    question="Does EP on batches end as diverged once its estimate has fallen by half of log 2 a datum?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.methods import epgpc_svi

    asked = tiny("probit")
    fit = by_name(epgpc_svi.fit, binary=True)
    fields = ("variance", "lengthscales", "noise", "jitter", "Z")
    given = {"X": asked.X, "y": asked.y} | {name: getattr(asked, name)[0] for name in fields}
    # five means below the first of six, by so many shares of what the rule allows
    for share, learn, end in ((1.1, ("variance",), 120), (0.9, ("variance",), 140), (1.1, (), 160)):
        looks = itertools.count()
        step = share * 0.5 * asked.n * np.log(2.0) / 100.0

        def sinking(*_: Any, looks: Iterator[int] = looks, step: float = step) -> float:
            return -step * next(looks)

        with mock.patch.object(epgpc_svi.SiteRun, "estimate", sinking):
            result = fit(**given, batches=[np.arange(asked.n)] * 160, learn=learn, learning_rate=1e-9, trace=True)
        right = result.iterations == end and result.diverged == bool(learn)
        if learn:
            right &= result.reason == f"step {end}: the estimate of log Z_EP has been falling without end"
        why = f"a fall of {share:g} of the limit in five means, learning {learn}: ends at {end}"
        yield flaws(not right, f"{why}; ended at {result.iterations}", "fast", "ends elsewhere")


# -- the peak that a sampler starts from --------------------------------------------------------------------------


@check(
    "identity/gibbs-pairwise/peak",
    paper="villacampa2017",
    question="Does the pairwise sampler start at the mode of its posterior, with the root of the precision there?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.models.pairwise import _peak

    rng = np.random.default_rng(31)
    for size in (0.5, 5.0, 60.0):  # of the loadings, each row by a factor of its own besides
        loadings = size * rng.standard_normal((9, 4)) * np.exp(rng.standard_normal((9, 1)))
        result = _peak(loadings)
        z = loadings @ result.mode
        hazard = np.exp(-0.5 * z * z - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))
        precision = np.eye(4) + (loadings.T * (hazard * (hazard + z))) @ loadings
        gradient = np.linalg.solve(precision, loadings.T @ hazard - result.mode)
        # in units of the posterior's deviations; Newton's steps end at 1e-9 of them
        gap = float(np.sqrt(gradient @ precision @ gradient))
        yield Compared(gap, 1e-7, f"loadings of size {size:g}: the gradient there, in standard deviations", "gibbs",
                       "definition", "standard deviations")  # fmt: skip
        scale = float(np.abs(precision).max())
        gap = float(np.abs(result.R @ result.R.T - precision).max()) / scale
        yield Compared(gap, 1e-9, "dense products of nine rows", "gibbs", "definition", "relative difference")
        gap = float(np.abs(result.turned @ result.R.T - loadings).max()) / float(np.abs(loadings).max())
        gap = max(gap, float(np.abs(result.inverse @ result.R - np.eye(4)).max()))
        gap = max(gap, float(np.abs(result.centre - z).max()) / max(1.0, float(np.abs(z).max())))
        yield Compared(gap, 1e-9, "what is made of it: products with the root", "gibbs", "definition",
                       "relative difference")  # fmt: skip


# -- a step in a ball ---------------------------------------------------------------------------------------------


@check(
    "identity/rpapep/trust_region",
    paper="villacampa2020",
    question="Is a step in a trust region the least point of its quadratic in the ball?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.sparse_classes.alpha_search import _within

    rng = np.random.default_rng(32)
    directions = rng.standard_normal((4000, 3))
    directions /= np.sqrt(np.square(directions).sum(axis=1, keepdims=True))
    derivative = np.array([0.7, -1.1, 0.4])
    # eigenvalues from below: convex with the least point inside and outside, indefinite, and flat
    for values in ([0.5, 2.0, 9.0], [0.05, 0.1, 0.2], [-1.5, 0.3, 4.0], [0.0, 0.3, 4.0]):
        curvature = np.array(values)
        for radius in (0.25, 1.0, 2.5):
            step = _within(curvature, derivative, radius)
            size = float(np.sqrt(step @ step))
            yield flaws(
                not size <= radius * (1.0 + 1e-9), f"radius {radius:g}, eigenvalues {values}", "fast", "outside"
            )
            shift = float(-(curvature * step + derivative) @ step / (step @ step))
            rest = curvature * step + derivative + shift * step
            # stationary on the sphere with a multiplier that makes the quadratic convex, or inside without one
            inside = size < radius * (1.0 - 1e-6)
            multiplier = max(0.0, -shift, -(shift + curvature.min())) if not inside else abs(shift)
            gap = max(float(np.abs(rest).max()), multiplier)
            yield Compared(gap, 1e-9, "sixty halvings of a multiplier leave rounding", "fast", "definition", "gradient")
            value = float(derivative @ step + 0.5 * step @ (curvature * step))
            others = radius * directions * rng.random((4000, 1)) ** (1.0 / 3.0)
            best = float((others @ derivative + 0.5 * np.square(others) @ curvature).min())
            yield Compared(value - best, 0.0, "no point of 4000 in the ball is lower", "fast", "definition", "height")
