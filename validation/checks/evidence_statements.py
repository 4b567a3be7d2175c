"""Pieces of evidences and of exact draws, each against the sentence that documents it.

Orders by dense conditioning, fits by their estimating equations, averages by a fine rule of the judge's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, expit, log_ndtr, ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Tested, as_documented, check
from validation.problem import Problem

Array = NDArray[np.float64]


def _least_probable_first(G: Array, constraints: int) -> list[int]:
    """Data and their margins in the order least probable first; those before are at their mean inside zero.

    Given that one margin is positive, a Gaussian's mean moves along its covariance with it by φ(a)/Φ(a) over its
    standard deviation, a its mean in such units; the variance left is that of the Gaussian given its value.
    """
    D = len(G)
    mean, cov, order = np.zeros(D), G.copy(), []
    data = list(range(D // constraints))

    def share(row: int) -> float:
        return float(log_ndtr(mean[row] / np.sqrt(cov[row, row])))

    while data:
        rows = {i: [i * constraints + j for j in range(constraints)] for i in data}
        worth = {i: sum(share(row) for row in rows[i]) for i in data}
        chosen = min(data, key=lambda i: (worth[i], i))
        shares = {row: share(row) for row in rows[chosen]}
        for row in sorted(rows[chosen], key=lambda row: (shares[row], row)):
            sd = float(np.sqrt(cov[row, row]))
            a = float(mean[row]) / sd
            mean = mean + cov[:, row] / sd * np.exp(-0.5 * a * a - 0.5 * np.log(2.0 * np.pi) - log_ndtr(a))
            cov = cov - np.outer(cov[:, row], cov[row]) / cov[row, row]
            order.append(row)
        data.remove(chosen)
    return order


@check(
    "identity/gibbs-probit/order_of_data",
    paper="riihimaki2013",
    question="Do particles meet the data least probable first, and does no factor take more than a variance?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import sequential

    rng = np.random.default_rng(12)
    rows: list[tuple[str, object, object]] = []
    for constraints, n in ((1, 5), (2, 4), (3, 3)):
        factor = rng.standard_normal((constraints * n, constraints * n))
        G = factor @ factor.T + 0.3 * np.eye(len(factor))
        came = sequential._order(G, constraints).tolist()
        rows.append((f"{n} data of {constraints} margins", came, _least_probable_first(G, constraints)))
    yield as_documented(rows, "gibbs", "orders")

    mean, var = sequential._without(0.5, 2.0, np.array([0.3, 0.6]), 0.1, least=sequential._LEAST)
    wanted = np.array([2.0 / (1.0 - 0.6), 2.0 / 1e-4])
    gap = float(np.abs(var / wanted - 1.0).max() + np.abs(mean / (0.3 / 2.0 * wanted) - 1.0).max())
    why = "a factor leaves a variance without it, and a ten-thousandth where it took all"
    yield Compared(gap, 1e-12, why, "gibbs", "definition", "relative")


def _box_least_probable_first(cov: Array, low: Array, high: Array) -> list[int]:
    """Variables in the order least probable first, those before at their means between their limits."""
    order: list[int] = []
    at: list[float] = []
    rest = list(range(len(cov)))
    while rest:
        known = np.ix_(order, order)
        found = {}
        for j in rest:
            gain = np.linalg.solve(cov[known], cov[order, j]) if order else np.zeros(0)
            mean, sd = float(gain @ at), float(np.sqrt(cov[j, j] - gain @ cov[order, j]))
            a, b = (low[j] - mean) / sd, (high[j] - mean) / sd
            mass = float(ndtr(b) - ndtr(a))
            heights = np.exp(-0.5 * np.square([a, b])) / np.sqrt(2.0 * np.pi)
            found[j] = mass, mean + sd * float(heights[0] - heights[1]) / mass
        chosen = min(rest, key=lambda j: found[j][0])
        order.append(chosen)
        at.append(found[chosen][1])
        rest.remove(chosen)
    return order


@check(
    "identity/exact-probit/order_of_a_box",
    paper="riihimaki2013",
    question="Do proposals in a box draw the least probable variable first, and are singular covariances refused?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.errors import NotPositiveDefiniteError
    from gibbs.draws import truncated_normal as box

    rng = np.random.default_rng(14)
    rows: list[tuple[str, object, object]] = []
    for D in (3, 6, 6, 7):
        factor = rng.standard_normal((D, D))
        scale = np.exp(rng.standard_normal(D))
        cov = (factor @ factor.T + 0.3 * np.eye(D)) * scale * scale[:, None]
        low = -scale * rng.random(D) + 0.3
        high = np.where(rng.random(D) < 0.5, np.inf, low + 2.0 * scale)
        came = box.tilt(cov, low, high).order.tolist()
        rows.append((f"{D} variables", came, _box_least_probable_first(cov, low, high)))
    taken = 0
    for D in (3, 5, 8, 12):
        factor = rng.standard_normal((D, D))
        factor[-1] = factor[0]  # two variables that are one: what is left of a variance is some roundings of it
        try:
            box.tilt(factor @ factor.T + np.ones((D, D)), -rng.random(D), np.inf)
        except NotPositiveDefiniteError:
            continue
        taken += 1
    rows.append(("of variables two of which are one, taken", taken, 0))
    yield as_documented(rows, "gibbs", "orders")


@check(
    "identity/gibbs-probit/fit_of_a_proposal",
    paper="riihimaki2013",
    question="Does the proposal of a bridge solve its estimating equations in every coordinate?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import fitted

    rng = np.random.default_rng(3)
    n, J, S, epsilon = 3, 2, 60, 0.2
    factor = rng.standard_normal((n * J, n * J))
    chol = np.linalg.cholesky(factor @ factor.T + np.eye(n * J)).astype(np.float64)
    problem = fitted._Problem(chol, J, epsilon, J + 1)
    wrong = rng.random((S, n)) < 0.3
    # coordinates of very different size, so that they come to rest one after the other
    white = np.abs(rng.standard_normal((S, n * J))) * np.array([0.2, 5.0, 1.0, 0.5, 3.0, 1.5])
    fit = fitted._fit(problem, white, wrong)
    free = np.repeat(wrong, J, axis=1)
    # a margin is positive where its white coordinate is above minus what those before give, over its own
    cut = -(white @ np.tril(chol, -1).T) / np.diagonal(chol)
    gap = (cut - fit.cut_mean) / np.sqrt(2.0)
    hazard = np.sqrt(2.0 / np.pi) / erfcx(gap)
    # one draw more of a standard normal about zero keeps a coordinate near its prior
    score = np.where(free, 0.0, white - fit.cut_mean - hazard).sum(axis=0) - fit.cut_mean
    largest = float(np.abs(score).max())
    yield Compared(largest, 1e-5, "locations of what is cut: the score, of 60 draws", "gibbs", "definition", "score")
    mean = np.where(free, white, 0.0).sum(axis=0) / (free.sum(axis=0) + 1.0)
    gap_of_free = float(np.abs(fit.free_mean - mean).max())
    yield Compared(gap_of_free, 1e-12, "locations of what is free: means of draws", "gibbs", "definition", "absolute")
    odds = np.log(epsilon / (J + 1)) - np.log1p(-epsilon) - log_ndtr(-cut[:, ::J])
    score_of_odds = abs(float(wrong.sum() - expit(odds + fit.log_odds).sum() - fit.log_odds))
    why = "the constant in the odds of a random label: its score, of 180 labels"
    yield Compared(score_of_odds, 1e-5, why, "gibbs", "definition", "score")


@check(
    "identity/gibbs-logit/averages_of_logistics",
    paper="wenzel2019",
    question="Are averages of logistic functions exact for Gaussians narrow and wide, near and far?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import bridge

    z = np.linspace(-14.0, 14.0, 28001)
    weights = np.exp(-0.5 * z**2) * (z[1] - z[0]) / np.sqrt(2.0 * np.pi)
    for sd in (0.0, 1e-3, 0.1, 0.3, 0.45, 1.0, 4.0, 30.0):
        mean = np.array([[-6.0, 0.3], [-0.2, 2.0], [0.0, 5.0]])
        exact = np.log(expit(mean[..., None] + sd * z) @ weights).sum(axis=1)
        gap = float(np.abs(bridge._log_averages(mean, np.full(2, sd)) - exact).max())
        yield Compared(gap, 1e-11, f"a standard deviation of {sd:g}", "gibbs", "quadrature", "nat")


@check(
    "identity/mh-softmax/flat_evidence",
    paper="riihimaki2013",
    question="Is the evidence of labels that say nothing their number's, without a power between?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import softmax_annealed

    C, n = 3, 2
    cov = np.stack([1e-12 * np.eye(n)] * C)
    common = softmax_annealed.choose_schedule(np.random.default_rng(1), cov, np.array([0, 2]))
    done = softmax_annealed._run(np.random.default_rng(2), common, (4, 8))
    rows: list[tuple[str, object, object]] = [
        ("powers", common.ladder, [0.0, 1.0]),
        ("Gaussians of paths", len(common.around), 0),
        ("acceptance of no path", done.acceptance, 1.0),
    ]
    yield as_documented(rows, "gibbs", "schedules")
    gap = float(np.abs(done.log_z + n * math.log(C)).max())
    # latent values of a millionth move a logarithm by as much
    yield Compared(gap, 1e-4, "log Z of two labels out of three", "gibbs", "definition", "nat")


@check(
    "identity/gibbs-threshold/taken_back",
    paper="villacampa2017",
    question="Does a path end by itself, whatever the others do, and is one with too many planes taken back?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.moves.region import bounce_move

    L, n, r = 3, 4, 40
    y = np.array([0, 1, 2, 1])
    rng = np.random.default_rng(4)
    start = rng.standard_normal((r, L, n))
    start[:, y, np.arange(n)] = np.abs(start).max(axis=1) + 0.1
    cov = np.stack([np.eye(n)] * L)

    def moved(chains: slice, most: int | None) -> Any:
        """The same velocities for each chain, whichever are asked about."""
        velocities = np.random.default_rng(9).standard_normal((r, L, n))[chains]
        given: Any = SimpleNamespace(standard_normal=lambda shape: velocities.reshape(shape))
        return bounce_move(given, start[chains], cov, cov, y, max_events=most)

    whole = moved(slice(None), None)
    events = np.asarray(whole.events)
    most = int(np.median(events))
    limited = moved(slice(None), most)
    over = events > most
    rows: list[tuple[str, object, object]] = [
        ("paths on both sides of the limit", bool(over.any() and not over.all()), True),
        ("those that moved", np.array_equal(limited.moved, ~over & whole.moved), True),
        ("those taken back", bool(np.array_equal(limited.auxiliary[over], start[over])), True),
        ("the others", bool(np.array_equal(limited.auxiliary[~over], whole.auxiliary[~over])), True),
        ("planes met by those", bool(np.array_equal(limited.events[~over], events[~over])), True),
        ("planes met until a path is given up", sorted(set(limited.events[over].tolist())), [most + 1]),
    ]
    alone = [moved(slice(k, k + 1), None).auxiliary[0] for k in range(6)]
    apart = max(float(np.abs(a - b).max()) for a, b in zip(alone, whole.auxiliary[:6], strict=True))
    yield as_documented(rows, "gibbs", "paths")
    yield Compared(apart, 1e-12, "a path alone and among others", "gibbs", "gibbs", "absolute")


@check(
    "identity/exact-probit/pieces_of_draws",
    paper="wenzel2019",
    question="Are the largest of shifted values the same ones, steps free of the last variable, and draws as many?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.draws import truncated_normal as box
    from gibbs.models import exact_probit

    latent = np.array([[0.3, -0.4, 1.1], [0.0, 2.5, 2.4], [-1.0, -1.0, -1.0]])
    x = np.linspace(-12.0, 14.0, 26001)
    exact = np.stack([
        np.stack([
            np.exp(-0.5 * (x - f[c]) ** 2) / np.sqrt(2.0 * np.pi)
            @ np.prod([ndtr(x - f[j]) for j in range(3) if j != c], axis=0) * (x[1] - x[0])
            for c in range(3)
        ])
        for f in latent
    ])  # fmt: skip
    for shift in (0.0, 60.0, -1e4):
        gap = float(np.abs(exact_probit._largest(latent + shift) - exact).max())
        yield Compared(gap, 1e-11, f"probabilities of values raised by {shift:g}", "gibbs", "quadrature", "absolute")

    # what rounding leaves of a variance follows the units, also of none
    rank_one = np.ones((3, 3))
    least = [float(exact_probit._split((scale * rank_one)[None], 0.0).least[0]) for scale in (1.0, 1e4, 0.0)]
    rows: list[tuple[str, object, object]] = [
        ("noise of classes that are one, in other units", abs(least[1] / least[0] / 1e4 - 1.0) < 1e-9, True),
        ("noise of values without any variance", 0.0 < least[2] < 1e-200, True),
    ]

    cov = np.array([[1.0, 0.6, 0.2], [0.6, 1.5, -0.3], [0.2, -0.3, 0.8]])
    tilting = box.tilt(cov, np.zeros(3), np.full(3, np.inf))
    unit = np.tril(tilting.factor, -1) / np.diagonal(tilting.factor)[:, None]
    limits = (tilting.lower / np.diagonal(tilting.factor), tilting.upper / np.diagonal(tilting.factor))
    point = box._derivatives(unit, *limits, 0.1 * np.ones(3), 0.2 * np.ones(3))
    steps = box._newton_step(unit, point)
    rows.append(("steps of the last variables, which are not free", [float(step[-1]) for step in steps], [0.0, 0.0]))
    # without limits every proposal is taken: a block is enough for as many draws
    everywhere = box.tilt(cov, np.full(3, -np.inf), np.full(3, np.inf))
    for n_draws, blocks in ((1, 1), (box._BLOCK, 1), (box._BLOCK + 1, 2)):
        drawn = box.draw_truncated(np.random.default_rng(0), everywhere, n_draws)
        counts = (len(drawn.white), drawn.probability.n_proposals)
        rows.append((f"{n_draws} draws, proposals", counts, (n_draws, blocks * box._BLOCK)))
    # where every proposal is a draw, thirty blocks give no more; who wants four deviations more of what luck may add
    # (the root of what is wanted) is told after the first twenty, who wants less when they are spent
    most = 30 * box._BLOCK
    for more, blocks in ((500, 30), (1500, 20)):
        try:
            box.draw_truncated(np.random.default_rng(0), everywhere, most + more, max_proposals=most)
            told = "nothing"
        except ValueError as error:
            told = str(error).split(" at ")[0]
        rows.append((f"{more} draws too many", told, f"max_proposals: found {blocks * box._BLOCK} proposals"))
    yield as_documented(rows, "gibbs", "pieces")


@check(
    "identity/exact-probit/steps_to_the_saddle",
    paper="wenzel2019",
    question="Are steps to the saddle point Newton's, by differences of the gradient, and its gradient that of ψ?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.draws import truncated_normal as box

    rng = np.random.default_rng(6)
    for D in (2, 4):
        factor = np.tril(rng.standard_normal((D, D)), -1)
        low, high = -rng.random(D), np.where(np.arange(D) == 1, 0.8, np.inf)
        at = 0.5 * rng.standard_normal(2 * D - 2)

        def point(free: Array, factor: Array = factor, low: Array = low, high: Array = high, D: int = D) -> Any:
            white, mean = (np.append(part, 0.0) for part in np.split(free, 2))
            return box._derivatives(factor, low, high, white, mean)

        def gradient(free: Array, point: Any = point) -> Array:
            here = point(free)
            return np.concatenate([here.grad_white[:-1], here.grad_mean[:-1]])

        def height(free: Array, factor: Array = factor, low: Array = low, high: Array = high, D: int = D) -> float:
            """ψ of Botev (2017): Σ μ²/2 - w μ + log P(l - shift < N(0, 1) < u - shift)."""
            white, mean = (np.append(part, 0.0) for part in np.split(free, 2))
            shift = factor @ white + mean
            mass = ndtr(high - shift) - ndtr(low - shift)
            return float((0.5 * mean**2 - white * mean + np.log(mass)).sum())

        step, eye = 1e-4, np.eye(2 * D - 2)
        slope = np.array([(height(at + step * e) - height(at - step * e)) / (2.0 * step) for e in eye])
        curvature = np.array([(gradient(at + step * e) - gradient(at - step * e)) / (2.0 * step) for e in eye]).T
        apart = float(np.abs(gradient(at) - slope).max())
        # central differences: the square of the step
        yield Compared(apart, 1e-6, f"{D} variables: gradient of ψ, by differences", "gibbs", "definition", "absolute")
        came = np.concatenate([part[:-1] for part in box._newton_step(factor, point(at))])
        wanted = np.linalg.solve(curvature, -gradient(at))
        apart = float(np.abs(came - wanted).max() / np.abs(wanted).max())
        yield Compared(apart, 1e-5, f"{D} variables: Newton's step", "gibbs", "differences")

        derivatives = box._derivatives
        limits: list[Array] = []

        def looked(unit: Array, low: Array, high: Array, *at: Array, limits: list[Array] = limits,
                   derivatives: Any = derivatives) -> Any:  # fmt: skip
            limits.append(np.stack([low, high]))
            return derivatives(unit, low, high, *at)

        root = factor + np.diag(rng.uniform(0.5, 2.0, D))
        counted = mock.Mock(wraps=box._newton_step)
        with mock.patch.object(box, "_derivatives", looked), mock.patch.object(box, "_newton_step", counted):
            tilting = box.tilt(root @ root.T, low, high)
        diagonal = np.diagonal(tilting.factor)
        own_limits = np.stack([tilting.lower, tilting.upper]) / diagonal
        unit = np.tril(tilting.factor, -1) / diagonal[:, None]
        with mock.patch.object(box, "_converged", side_effect=[False, True]):  # where there is something left
            early = box.tilt(root @ root.T, low, high)
        left = derivatives(unit, own_limits[0], own_limits[1], early.saddle, early.mean)
        largest = float(np.abs(np.concatenate([left.grad_mean, left.grad_white])).max())
        rows: list[tuple[str, object, object]] = [
            ("points of the search that are of this box", {bool(np.array_equal(one, own_limits)) for one in limits},
             {True}),
            # digits double from step to step once one is right
            ("search ends within a dozen steps", 0 < tilting.n_steps <= 12, True),
            ("steps", tilting.n_steps, counted.call_count),
            ("largest entry of the gradient left", f"{early.residual:.9e}", f"{largest:.9e}"),
        ]  # fmt: skip
        yield as_documented(rows, "gibbs", "searches")


@check(
    "identity/mh-softmax/pilot_of_half",
    paper="riihimaki2013",
    question="Is log Z by annealed particles that of a schedule which half of the particles choose?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.options import Particles
    from gibbs.evidence import annealed, softmax_annealed

    K = np.array([[1.5, 0.4], [0.4, 1.1]])
    sign, cross = np.array([1.0, -1.0]), np.array([[0.7], [0.2]])
    routes: tuple[tuple[str, Any, Any, Any, tuple[Any, ...]], ...] = (
        ("softmax", softmax_annealed.log_evidence, softmax_annealed.choose_schedule, softmax_annealed.estimate,
         (np.stack([K, 0.5 * K, K]), np.array([0, 2]))),
        ("logit", annealed.log_evidence, annealed.choose_schedule, annealed.estimate, (K, sign)),
        ("logit, FITC", annealed.log_evidence_fitc, annealed.choose_schedule_fitc, annealed.estimate,
         (np.eye(1), cross, np.array([1.5, 1.2]), sign)),
    )  # fmt: skip
    # more than the 256 that a pilot has at least
    options = Particles(n_particles=150, n_islands=4, n_steps=3, max_rounds=1)
    for name, whole, choose, estimate, given in routes:
        rng = np.random.default_rng(7)
        common = choose(rng, *given, n_pilot=300, n_steps=3)
        left, right = whole(np.random.default_rng(7), *given, options=options), estimate(rng, common, options=options)
        yield as_documented([(name, left, right)], "gibbs", "answers")


@check(
    "exactness/gibbs-probit/two_labels_in_error",
    paper="villacampa2017",
    question="Is log Z of two classes with label errors the sum over which labels are in error?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.options import Islands
    from gibbs.evidence import sequential

    epsilon, K, y = 0.3, np.array([[1.5, 0.9], [0.9, 1.2]]), np.array([1, 0])
    one = sequential.log_evidence(np.random.default_rng(1), K[None, :1, :1], y[:1], epsilon)
    # one label of a symmetric prior is either: no particle differs from the others
    yield Compared(abs(one.value - np.log(0.5)), 1e-12, "one datum", "gibbs", "definition", "nat")
    options = Islands(n_particles=400, n_islands=8, max_rounds=1)
    two = sequential.log_evidence(np.random.default_rng(2), K[None], y, epsilon, options)
    both = 0.25 - np.arcsin(K[0, 1] / np.sqrt(K[0, 0] * K[1, 1])) / (2.0 * np.pi)  # a quadrant of labels that differ
    right, wrong = 1.0 - epsilon, 0.5 * epsilon
    truth = right**2 * both + 2.0 * right * wrong * 0.5 + wrong**2
    z = (two.value - np.log(truth)) / two.standard_error
    yield Tested(
        np.array([z]), "two data, 8 islands of 400; two-sided z, Holm over the run at 1e-4", "gibbs",
        "Sheppard's formula", f"a shift of {6.0 * two.standard_error:.2f} nats would show",
    )  # fmt: skip


def _cut_moments(mean: Array, var: Array) -> tuple[Array, Array, Array]:
    """Probability of a positive value, and mean and second moment of those, of normals."""
    z = mean / np.sqrt(var)
    hazard = np.exp(-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))
    first = mean + np.sqrt(var) * hazard
    return ndtr(z), first, var + mean * first  # E x² = var + mean E x, by parts


@check(
    "identity/gibbs-threshold/factors_of_particles",
    paper="villacampa2017",
    question="Do factors match the moments of what labels say, and are labels ahead judged with their own factor out?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import sequential

    rng = np.random.default_rng(18)
    for constraints, epsilon in ((1, 0.0), (1, 0.2), (2, 0.0), (2, 0.3)):
        D, n_classes = 4, constraints + 1
        root = rng.standard_normal((D, D))
        G = 0.4 * root @ root.T + 0.8 * np.eye(D)
        chol: Array = np.asarray(np.linalg.cholesky(G), dtype=np.float64)
        # to the end, and whole: the run itself ends early, and softens factors where labels err
        with (
            mock.patch.object(sequential, "_SWEEPS", 400), mock.patch.object(sequential, "_NEAR", 1e-13),
            mock.patch.object(sequential, "_SOFTER", 1.0),
        ):  # fmt: skip
            factors = sequential._factors(chol, constraints, epsilon, n_classes)
        q = np.linalg.inv(np.linalg.inv(G) + np.diag(factors.precision))
        mean, var = q @ factors.shift, np.diagonal(q)
        without = 1.0 / (1.0 / var - factors.precision)
        at = without * (mean / var - factors.shift)
        p, first, second = _cut_moments(at, without)
        right = np.repeat((1.0 - epsilon) * p.reshape(-1, constraints).prod(axis=1), constraints)
        share = right / (right + epsilon / n_classes)
        tilted = share * first + (1.0 - share) * at
        spread = share * second + (1.0 - share) * (without + at**2) - tilted**2
        gap = float(max(np.abs(tilted - mean).max(), np.abs(spread / var - 1.0).max()))
        what = f"{constraints} a datum, errors {epsilon:g}"
        yield Compared(gap, 1e-7, f"{what}: means and variances under the labels and under factors", "gibbs",
                       "definition", "absolute")  # fmt: skip
        covariance = factors.chol @ factors.chol.T
        gap = float(max(np.abs(covariance - q).max(), np.abs(factors.mean - mean).max()))
        norm = 0.5 * factors.shift @ mean + 0.5 * np.linalg.slogdet(q)[1] - 0.5 * np.linalg.slogdet(G)[1]
        gap = max(gap, abs(factors.log_norm - float(norm)))
        yield Compared(gap, 1e-10, f"{what}: q and its norm, by dense inverses", "gibbs", "dense algebra", "absolute")
        white = rng.standard_normal((D, 3))
        for start in range(0, D, constraints):
            before = factors.mean[:start, None] + factors.chol[:start, :start] @ white[:start]
            wanted = np.zeros(3)
            for r in range(start, start + constraints):
                # q without the factor of this margin, given the margins before the datum
                precision = np.linalg.inv(q) - np.diag(np.eye(D)[r] * factors.precision[r])
                S = np.linalg.inv(precision)
                m = S @ (factors.shift * (1.0 - np.eye(D)[r]))
                gain = np.linalg.solve(S[:start, :start], S[:start, r]) if start else np.zeros(0)
                given = m[r] + gain @ (before - m[:start, None])
                wanted += log_ndtr(given / np.sqrt(S[r, r] - gain @ S[:start, r]))
            gap = float(np.abs(sequential._log_cut(factors, white, start, constraints) - wanted).max())
            yield Compared(gap, 1e-9, f"{what}: margins from {start} on, given those before", "gibbs", "dense algebra",
                           "nat")  # fmt: skip


@check(
    "identity/gibbs-logit/point_of_chib",
    paper="wenzel2019",
    question="Is the point of Chib's identity, where none is given, the mean of the conditional means of the draws?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import chib

    rng = np.random.default_rng(19)
    omega = rng.uniform(0.05, 0.4, (2, 80, 3))
    sign = np.array([1.0, -1.0, 1.0])
    root = rng.standard_normal((5, 5))
    joint = root @ root.T + 0.2 * np.eye(5)
    K, K_ZZ, K_XZ = joint[:3, :3], joint[3:, 3:], joint[:3, 3:]
    flat = omega.reshape(-1, 3)
    f = np.mean([np.linalg.solve(np.linalg.inv(K) + np.diag(w), 0.5 * sign) for w in flat], axis=0)
    left, right = chib.log_evidence_full(K, sign, omega), chib.log_evidence_full(K, sign, omega, f)
    yield Compared(abs(left.value - right.value), 1e-10, "the full GP", "gibbs", "dense algebra", "nat")
    # given u, the data are independent with the variance that u leaves: y/(2ω) is u's observation, of 1/ω more
    gain = np.linalg.solve(K_ZZ, K_XZ.T).T
    rest = np.diagonal(K) - np.einsum("nm,nm->n", gain, K_XZ)
    u = np.mean([
        np.linalg.solve(np.linalg.inv(K_ZZ) + (gain.T / (rest + 1.0 / w)) @ gain,
                        gain.T @ (0.5 * sign / w / (rest + 1.0 / w)))
        for w in flat
    ], axis=0)  # fmt: skip
    given = K_ZZ, K_XZ, np.diagonal(K), sign, omega
    left, right = chib.log_evidence_fitc(*given), chib.log_evidence_fitc(*given, u)
    yield Compared(abs(left.value - right.value), 1e-10, "FITC", "gibbs", "dense algebra", "nat")
