"""Numbers of `gibbs` at which a rule changes over: what lies just inside and just outside of each.

Chains and islands of ordinary problems stay far from most of them. So states on either side are made up and handed to
the function that decides; where formulas change over, both are held to the definition.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit, ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.problem import Problem

Array = NDArray[np.float64]


def _refusal(function: Callable[..., Any], *given: Any, **named: Any) -> str:
    """What an error says of a call; empty where there is none."""
    try:
        function(*given, **named)
    except (ValueError, TypeError, AttributeError) as error:
        return str(error)
    return ""


# -- chains ----------------------------------------------------------------------------------------------------------


@check(
    "identity/gibbs-logit/run_limits",
    paper="wenzel2019",
    question="Are runs lengthened, warm-ups ended and streams refused where their rules have it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains import chain, warmup
    from gibbs.core.generators import spawn_streams

    lengths = []
    for reached in (99.0, 92.0, 86.0, 60.0, 40.0, 0.0):
        run: Any = SimpleNamespace(
            plan=SimpleNamespace(target_ess=100.0), effective=lambda kept, every, ess=reached: ess, limit=1000,
            store=SimpleNamespace(kept=dict, every=1), n_draws=1000, longest=10_000, done=False,
        )  # fmt: skip
        chain._Course._look(run)
        lengths.append(run.limit)
    # a tenth more than what is missing, at least a fifth of the run and at most all of it
    wanted = [1200, 1200, 1280, 1834, 2000, 2000]
    yield flaws(lengths != wanted, f"a run of 1000 draws that needs more: {lengths}", "gibbs", "runs")

    # Student's t of the change between windows, from eight chains, at a level of 1e-3
    rng = np.random.default_rng(3)
    scatter = rng.standard_normal(8)
    scatter = (scatter - scatter.mean()) / scatter.std(ddof=1)
    ends = []
    for level in (0.7e-3, 1.5e-3):
        change = scatter + float(stats.t.isf(0.5 * level, 7)) / math.sqrt(8.0)
        watch = warmup.Watch(100)
        for sweep in range(1, 101):
            ended = watch.add(sweep, {"x": 10.0 * (-1.0) ** (sweep % 25) + change * (sweep > 75)})
        ends.append((ended, watch.passed))
    yield flaws(ends != [(True, False), (True, True)], f"a drift at a level of 0.7e-3, and at 1.5e-3: {ends}", "gibbs",
                 "warm-ups")  # fmt: skip

    taken = [not _refusal(spawn_streams, 0, (), n_chains) for n_chains in (900_000, 1_500_000)]
    yield flaws(taken != [True, False], f"0.9 and 1.5 million chains: {taken}", "gibbs", "counts")
    streams = spawn_streams(0, ("draws",), 3)["draws"]
    given = {"random", "standard_normal", "standard_exponential", "uniform"}
    others = [name for name in dir(np.random.Generator) if not name.startswith("_") and name not in given]
    wrong = [name for name in others if f"a call of {name}" not in _refusal(getattr(streams, name))]
    yield flaws(len(wrong) + (len(others) < 30), f"{len(others)} other numbers of a generator: refused {wrong}",
                 "gibbs", "numbers")  # fmt: skip


# -- tails -----------------------------------------------------------------------------------------------------------


def _variance_above(a: float) -> float:
    """Variance of N(0, 1) above a > 0, of x - a with density ∝ exp(-a (x - a) - (x - a)²/2), by quadrature."""
    powers = [
        quad(lambda t, k=k: (t / a) ** k * math.exp(-t - 0.5 * (t / a) ** 2), 0.0, 60.0, epsabs=0.0, epsrel=1e-13,
             points=[1.0, 4.0, 12.0, 30.0])[0]
        for k in range(3)
    ]  # fmt: skip
    return float(powers[2] / powers[0] - (powers[1] / powers[0]) ** 2)


@check(
    "identity/exact-probit/tail_limits",
    paper="wenzel2019",
    question="Are truncated normals right where formulas change over, and numbers of draws and dimensions kept to?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.draws import truncated_normal, univariate_truncated

    a = np.linspace(5.05, 10.5, 40)
    var = truncated_normal.interval(a, np.full(a.size, np.inf)).var
    gap = float(max(abs(one / _variance_above(float(at)) - 1.0) for at, one in zip(a, var, strict=True)))
    # 1 - s (s - a) loses a² of its digits: 25 eps and some at the change-over, 100 eps and more at 10
    yield Compared(gap, 1e-13, "variances above 5 to 10.5 deviations", "gibbs", "quadrature")

    # the least uniform that a generator of multiples of 2^-53 gives is 0: as half of its spacing it is a finite draw
    zero: Any = SimpleNamespace(random=lambda shape: np.zeros(shape))
    lower = np.array([-np.inf, -1.0, 0.0, 3.0, 8.0])
    drawn = truncated_normal.draw_interval(zero, lower, np.full(5, np.inf))
    wanted = np.array([stats.norm.isf(2.0**-54 * stats.norm.sf(at)) for at in lower])
    gap = float(np.abs(drawn / wanted - 1.0).max())
    yield Compared(gap, 1e-9, "a uniform of 0 is one of 2^-54", "gibbs", "definition")

    skew = np.eye(810)
    skew[0, 1] = 0.5
    told = [_refusal(truncated_normal.tilt, skew[:size, :size], 0.0, np.inf) for size in (790, 810)]
    wrong = "asymmetric" not in told[0] or "found dimension 810" not in told[1]
    yield flaws(wrong, f"790 and 810 dimensions: {told}", "gibbs", "refusals")

    blocks = []
    flat: Any = SimpleNamespace(log_bound=0.0, mean=np.zeros(1))
    for expected in (30.0, 20.0, 10.0):  # of draws in the five blocks that are made at least

        def even(rng: Any, tilting: Any, size: int, acceptance: float = expected / 10_240.0) -> Any:
            return None, np.full(size, math.log(acceptance))

        with mock.patch.object(truncated_normal, "propose", even):
            result = truncated_normal.log_probability(np.random.default_rng(0), flat, target_error=1.0)
        blocks.append(result.n_proposals // 2048)
    yield flaws(blocks != [5, 7, 13], f"weights add up to 25 times their bound: after {blocks} blocks", "gibbs",
                 "ends")  # fmt: skip

    bound, drop = np.linspace(4.2, 9.0, 60), 1e-9
    fixed: Any = SimpleNamespace(standard_exponential=lambda size: np.full(size, drop))
    excess = univariate_truncated.truncated_excess(fixed, bound)
    hazard = stats.norm.pdf(bound) / stats.norm.sf(bound)
    gap = float(np.abs(excess * hazard / drop - 1.0).max())
    # as a difference of two numbers near 8 an excess of 1e-10 has five digits, by itself seven
    yield Compared(gap, 2.5e-6, "excesses over 4.2 to 9 deviations where log Q falls by 1e-9", "gibbs", "definition")


# -- kernels ---------------------------------------------------------------------------------------------------------


@check(
    "identity/gibbs-logit/near_inputs",
    paper="wenzel2019",
    question="Is a Matérn kernel of inputs that are nearly equal its variance, however smooth it is?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.kernels import matern

    apart = 10.0 ** np.arange(-40.0, -5.5, 0.25)
    for order in (2.2, 12.0, 18.5, 22.0, 24.9, 25.1, 33.0, 49.0):
        M = matern(np.zeros((1, 1)), apart[:, None], 1.0, np.ones(1), order)
        # 1 - M is r²/2 times at most two in units of a lengthscale
        gap = float(np.abs(M - 1.0).max())
        yield Compared(gap, 1e-11, f"smoothness {order:g}, inputs 1e-40 to 3e-6 apart", "gibbs", "definition")


# -- particles -------------------------------------------------------------------------------------------------------


@check(
    "identity/gibbs-probit/particle_limits",
    paper="riihimaki2013",
    question="Do factors of labels ahead, and rounds of particles, end where their rules have it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import sequential

    roots = sequential._roots
    for sd, epsilon in ((1.3, 0.0), (0.8, 0.2)):
        # one margin, whose cavity is its prior: moments of (1 - eps) [g > 0] + eps/2, and sweeps that go 0.7 of the way
        share = 1.0 - epsilon  # of the label being right, which has half of the mass
        var = sd**2 * (1.0 - 2.0 / math.pi * share**2)
        exact, wanted, change = 1.0 / var - 1.0 / sd**2, [0.0], np.inf
        while change >= 1e-2:
            change = (exact - wanted[-1]) / (1.0 / sd**2 + wanted[-1])
            wanted.append(wanted[-1] + 0.7 * (exact - wanted[-1]))
        precisions: list[float] = []

        def watched(chol: Array, precision: Array, precisions: list[float] = precisions) -> Any:
            precisions.append(float(precision[0]))
            return roots(chol, precision)

        with mock.patch.object(sequential, "_roots", watched):
            factors = sequential._factors(np.array([[sd]]), 1, epsilon, 2)
        power = 0.3 if epsilon else 1.0  # softer where labels may be random
        wanted[-1] *= power
        gap = np.inf
        if len(precisions) == len(wanted):
            gap = float(np.abs(np.array(precisions) / exact - np.array(wanted) / exact).max())
            gap = max(gap, abs(float(factors.precision[0]) / wanted[-1] - 1.0))
        why = f"sweeps of damped EP until they change q by less than 1e-2: {len(precisions) - 1} of {len(wanted) - 1}"
        yield Compared(gap, 1e-12, why, "gibbs", "definition")

    def sizes(D: int, n_islands: int, size: int, ratio: float) -> list[int]:
        """Particles of each round, where the error is always so many times the one that is wanted."""
        log_z = np.where(np.arange(n_islands) % 2, 1e-3, -1e-3)
        z = np.exp(log_z)
        error = float(z.std(ddof=1) / math.sqrt(n_islands) / z.mean())
        asked: list[int] = []

        def islands(rng: Any, common: Any, workers: Any, shape: tuple[int, int]) -> Array:
            asked.append(shape[1])
            return log_z

        common: Any = SimpleNamespace(factors=SimpleNamespace(mean=np.zeros(D)))
        options = replace(sequential.DEFAULTS, n_islands=n_islands, n_particles=size, max_rounds=9,
                          target_error=error / ratio)  # fmt: skip
        with mock.patch.object(sequential, "_islands", islands):
            sequential.estimate(np.random.default_rng(0), common, options=options)
        return asked

    wrong = []
    # of 40 million numbers an island at most, and of 1.5e10 a round, D/2 + 50 times met
    for D, n_islands, most in ((2, 4, 20_000_000), (1000, 8, int(1.5e10 / (8 * 1000 * 550.0)))):
        result = sizes(D, n_islands, most // 5, 1.5)  # 2.9 times as many would do
        wrong += [f"{D} margins: {result}"] * (result[-1] != most or len(result) != 3)
        for share, rounds in ((0.9, 2), (1.1, 1)):  # of four times the largest round that would do
            ratio = math.sqrt(share * 4.0 * 5.0 / 1.3)
            result = sizes(D, n_islands, most // 5, ratio)
            wrong += [f"{D} margins, needs {share:g} of four rounds: {result}"] * (len(result) != rounds)
    yield flaws(len(wrong), f"rounds as large as memory and time allow, none for what needs more {wrong}", "gibbs",
                 "rounds")  # fmt: skip


# -- rules of quadrature -----------------------------------------------------------------------------------------------


def _expectation(function: Callable[[float], float], mean: float, sd: float, bend: float) -> float:
    """E[function(f)] for f ~ N(mean, sd²), by adaptive quadrature with panels around the mean and where it bends."""
    points = {mean + sd * step for step in (-9.0, -3.0, 0.0, 3.0, 9.0)} | {bend + step for step in (-30.0, 0.0, 30.0)}
    low, high = mean - 12.0 * sd, mean + 12.0 * sd
    edges = sorted({low, high} | {point for point in points if low < point < high})
    parts = [
        quad(lambda f: function(f) * math.exp(-0.5 * ((f - mean) / sd) ** 2), a, b, epsabs=1e-16, epsrel=1e-12)[0]
        for a, b in itertools.pairwise(edges)
    ]
    return sum(parts) / (sd * math.sqrt(2.0 * math.pi))


@check(
    "identity/mh-softmax/rule_limits",
    paper="riihimaki2013",
    question="Do rules of quadrature keep the error they state where they change over, and refuse what is beyond them?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import multilatent, quadrature, softmax_probability

    # narrow and broad Gaussians have a rule each, which change over at a deviation of 1.6
    gap = 0.0
    for sd in (0.4, 1.5, 1.7, 2.3, 3.1, 9.0):
        for mean in (-3.0, -0.4, 1.1):
            exact = _expectation(lambda f: float(expit(f)), mean, sd, 0.0)
            gap = max(gap, abs(float(quadrature.logistic_normal_mean(mean, sd * sd)) - exact))
    yield Compared(gap, quadrature.QUADRATURE_ERROR, "E[1/(1 + exp(-f))]: as stated", "gibbs", "quadrature", "error")

    def largest(mean: Array, deviation: Array) -> float:
        """P(f_0 is the largest) of three."""

        def others(f: float) -> float:
            return float(ndtr((f - mean[1]) / deviation[1]) * ndtr((f - mean[2]) / deviation[2]))

        return _expectation(others, float(mean[0]), float(deviation[0]), float(mean[1]))

    means = np.array([0.3, 0.1, -0.2])
    gap = 0.0
    for deviations in (np.array([1.0, 0.5, 2.0]), np.array([0.1, 3.0, 0.7])):
        gap = max(
            gap,
            abs(float(multilatent.argmax_probability(means[None], deviations**2)[0, 0]) - largest(means, deviations)),
        )
    yield Compared(gap, multilatent.QUADRATURE_ERROR, "P(f_0 is the largest): as stated", "gibbs", "quadrature",
                   "error")  # fmt: skip
    # deviations below 1/500 of the largest are raised to that
    at = [multilatent.argmax_probability(means[None], np.array([1.0, 0.5, 1.0 / ratio]) ** 2)
          for ratio in (400.0, 500.0, 700.0, 1e6)]  # fmt: skip
    moves = [float(np.abs(one - at[1]).max()) for one in at]
    wrong = max(moves[2:]) > 1e-13 or moves[0] < 1e-9
    yield flaws(wrong, f"deviations of 1/400, 1/500, 1/700, 1e-6 of the largest: moves {moves}", "gibbs", "rules")

    gap = 0.0
    for sd in (0.7, 1.3, 4.0):
        h, nodes = 0.4, 400
        start = np.linspace(-2.0, 0.0, 7) - 7.0 * sd
        value, density = softmax_probability._read(softmax_probability._table(sd, h, nodes), start, sd, h)
        t = start[:, None] + h * np.arange(value.shape[1])
        for row, result in enumerate((value, density)):
            wanted = np.stack([softmax_probability._smoothed_gumbel(one, sd)[row] for one in t])
            gap = max(gap, float(np.abs(result - wanted)[:, : int(20.0 + 30.0 * sd)].max()))
    # a cubic through four nodes 0.00625 apart leaves 0.04 of its fourth power
    yield Compared(
        gap, 1.5e-10, "what tables of Gaussian and Gumbel give between their nodes", "gibbs", "gibbs", "error"
    )
    taken = [not _refusal(softmax_probability.softmax_probability, np.zeros((1, 2)), np.array([0.0, sd * sd]))
             for sd in (500.0, 650.0)]  # fmt: skip
    # (14 sd + 25)/0.4 nodes
    yield flaws(taken != [True, False], f"deviations that ask for 17 600 nodes, and for 22 800: {taken}", "gibbs",
                 "refusals")  # fmt: skip


# -- paths -------------------------------------------------------------------------------------------------------------


@check(
    "identity/mh-softmax/path_limits",
    paper="riihimaki2013",
    question="Are paths as long, steps adapted and draws thinned as their rules have it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.options import SoftmaxOptions
    from gibbs.core.values import Data, Prior
    from gibbs.models import hyper_models, pairwise, softmax

    counts = [softmax.n_kicks_of(step) for step in (0.31, 0.1001, 0.011, 0.0075, 1e-5)]
    yield flaws(counts != [5, 15, 137, 150, 150], f"steps for 1.5 radians, 150 at most: {counts}", "gibbs", "paths")

    def adapted(move: str, log_step: float, acceptance: float) -> float:
        sampler: Any = SimpleNamespace(moves=(move,), _refits=list)
        state = {"tuned": np.zeros(4), f"log_step.{move}": np.full(4, log_step),
                 f"acceptance.{move}": np.full(4, acceptance), "sweep": np.ones(4)}  # fmt: skip
        softmax._Softmax._adapt(sampler, state)
        return float(state[f"log_step.{move}"][0])

    rows = (
        ("scaled", -3.0, 0.25, -3.0),
        ("flow", -3.0, 0.85, -3.0),
        ("scaled", math.log(1.5e-6), 0.0, math.log(1e-6)),
        ("flow", math.log(1.5e-6), 0.0, math.log(1e-6)),
        ("scaled", -0.1, 1.0, 0.0),
        ("flow", -0.4, 1.0, math.log(0.75)),
    )
    gap = max(abs(adapted(move, log_step, accepted) - wanted) for move, log_step, accepted, wanted in rows)
    why = "steps stay where a quarter, or 0.85, is accepted; a millionth at least, 1 or half of a path at most"
    yield Compared(gap, 1e-12, why, "gibbs", "definition", "of a logarithm")

    alpha = np.linspace(-1990.0, -1001.0, 200)
    hazard = pairwise._hazard(alpha)
    gap = float(np.abs(hazard / (-alpha * (1.0 + alpha**-2.0 - 2.0 * alpha**-4.0)) - 1.0).max())
    # the next term is 10 alpha^-6 = 1e-17; a difference of logarithms near alpha^2/2 would leave 1e-10
    yield Compared(gap, 1e-11, "the derivative of log Φ from -1990 to -1001", "gibbs", "its asymptotic series")

    lengths = []
    for size in (0.011, 0.0072):
        forces: list[int] = []

        def gradient(zeta: Array, forces: list[int] = forces) -> Array:
            forces.append(1)
            return -zeta

        peak: Any = SimpleNamespace(
            step_size=size, gradient=gradient, log_density=lambda zeta: -0.5 * np.square(zeta).sum(axis=1)
        )
        pairwise._Sampler.path(peak, np.random.default_rng(0), np.zeros((2, 3)))
        lengths.append(len(forces) - 1)
    yield flaws(lengths != [146, 200], f"steps for a path of 1.6, 200 at most: {lengths}", "gibbs", "paths")

    # parameters and latent values are moved so that four paths in five are accepted, by a quarter turn at most
    forces = []

    def none(latent: Array) -> Array:
        forces.append(1)
        return 0.0 * latent

    hyper: Any = SimpleNamespace(
        n_latents=2, y=np.zeros(3, dtype=int), grouped=lambda values: values.reshape(2, 1, 2, 3), n_warmup=1000,
        log_likelihood=lambda latent, none, zero: np.zeros(2), log_likelihood_gradient=none,
    )  # fmt: skip
    hyper_models.HyperModel.rotation_move(
        hyper, np.random.default_rng(0), np.zeros((2, 1, 2, 3)), np.eye(3)[None, None] + np.zeros((2, 1, 1, 1)),
        np.full(2, 0.1),
    )  # fmt: skip
    quarter = math.log(0.5 * math.pi / (len(forces) - 1))

    def stepped(acceptance: float, log_turn: float) -> tuple[float, float]:
        hyper._sweep = lambda state, rngs, held: {"acceptance": np.full((2, 1), acceptance),
                                                  "taken": np.full(2, acceptance)}  # fmt: skip
        state = {"sweep": np.full(2, 400.0), "log_step": np.full((2, 1), -2.0), "log_turn": np.full(2, log_turn)}
        new = hyper_models.HyperModel.step(hyper, state, {})
        return float(new["log_step"][0, 0]), float(new["log_turn"][0])

    gap = max(
        float(np.abs(np.subtract(stepped(0.8, -3.0), (-2.0, -3.0))).max()),
        abs(stepped(1.0, quarter - 1e-3)[1] - quarter),
        abs(stepped(1.0, quarter - 0.1)[1] - (quarter - 0.1 + 0.2 * 401.0**-0.6)),
    )
    why = f"four in five accepted: no other steps; {len(forces) - 1} rotations make a quarter turn at most"
    yield Compared(gap, 1e-12, why, "gibbs", "definition", "of a logarithm")

    # rows of X that are equal leave h nothing but its noise, 1.2 here, of which a part goes into g
    walls: Any = SimpleNamespace(likelihood="probit", auxiliary_noise=1.0)
    with mock.patch.object(hyper_models, "covariance", return_value=np.ones((1, 1, 4, 4)) + 0.2 * np.eye(4)):
        chol, sd, good = hyper_models.HyperModel.smooth_part(walls, cast("Any", None), np.array([[[1.0, 1.0, 0.2]]]))
    least = float(np.linalg.eigvalsh(chol[0, 0] @ chol[0, 0].T)[0])
    gap = abs(least + float(sd[0, 0]) ** 2 - 1.2) if good.all() and least > 0.05 else np.inf
    yield Compared(gap, 1e-12, f"noise of 1.2 divided between g and h, chol(S_g) away from singular: {least:.3g} of it",
                   "gibbs", "definition", "variance")  # fmt: skip

    strides = []

    def caught(start: Any, step: Any, *rest: Any, **more: Any) -> Any:
        strides.append(step.__self__.stride)
        raise ValueError("caught")

    X = np.linspace(-1.0, 1.0, 4)[:, None]
    data, prior = Data(X, np.array([0, 1, 2, 0]), 3, X[:1]), Prior(1.0, np.ones(1), 0.1, 1e-6)
    for n_draws in (2048, 4095, 4096, 20_480):
        with mock.patch.object(softmax, "run", caught):
            _refusal(softmax.sample, data, prior, SoftmaxOptions(n_chains=4, n_draws=n_draws, n_warmup=10))
    yield flaws(strides != [1, 1, 2, 10], f"every k-th draw gives probabilities, 8192 in all: {strides}", "gibbs",
                 "strides")  # fmt: skip


# -- draws of Pólya and Gamma ------------------------------------------------------------------------------------------


@check(
    "identity/gibbs-logit/sure_draws",
    paper="wenzel2019",
    question="Is a proposal accepted without its series where every partial sum would, and refused where one does not?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.draws import polya_gamma

    # the first partial sum is 1 - 3 exp(-4/x) below 0.64 and 1 - 3 exp(-pi² x) above: least at 0.64, from below
    least = 1.0 - 3.0 * math.exp(-4.0 / 0.64)
    series = polya_gamma._series_accepts
    wrong = []
    for uniform, looks, proposals in ((least - 1e-4, 0, 1), (least + 1e-4, 1, 2)):
        asked: list[int] = []
        proposed: list[int] = []
        numbers = iter((uniform, 0.5))
        rng: Any = SimpleNamespace(random=lambda size, numbers=numbers: np.full(size, next(numbers) if size else 0.0))

        def watched(x: Array, given: Array, asked: list[int] = asked) -> Any:
            asked.append(x.size)
            return series(x, given)

        def propose(_rng: Any, z: Array, proposed: list[int] = proposed) -> Array:
            proposed.append(z.size)
            return np.full(z.size, 0.64)

        with (
            mock.patch.object(polya_gamma, "_propose", propose),
            mock.patch.object(polya_gamma, "_series_accepts", watched),
            mock.patch.object(polya_gamma, "subset", side_effect=lambda rng, rows, size: rng),
        ):
            polya_gamma._jacobi(rng, np.array([0.7]))
        # what is refused is proposed anew, with a uniform of its own that the series is asked about too
        right = (sum(asked) > 0) == (looks > 0) and sum(proposed) == proposals
        wrong += [f"{uniform:.6g}: series of {sum(asked)} draws, {sum(proposed)} proposals"] * (not right)
    yield flaws(len(wrong), f"a uniform just below and just above the least first sum, {least:.6g} {wrong}", "gibbs",
                 "draws")  # fmt: skip
    # beyond a tilt of 40 nothing is proposed above 0.64, and the table of masses has an end
    flat: Any = SimpleNamespace(random=lambda size: np.full(size, 0.5))
    above = polya_gamma._choose_right(flat, np.array([0.0, 39.99, 40.0, 40.01, 700.0])).tolist()
    yield flaws(above != [True, False, False, False, False], f"tilts of 0, 40 and more: {above}", "gibbs", "draws")
