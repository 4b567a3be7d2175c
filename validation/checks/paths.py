"""Paths and searches, one at a time: slopes, energies, starts, shifts that the likelihood does not see, limits.

Slopes are differences of densities of the judge's own, shifts dense algebra; a path of small steps conserves energy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks import hyper_model as own
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check, flaws
from validation.checks.sweeps import INPUTS, hyper_model
from validation.problem import Problem

Array = NDArray[np.float64]
PAPER = "riihimaki2013"


@check(
    "identity/mh-softmax/rough_starts",
    paper=PAPER,
    question="Is a start that is rough drawn in as far as values are many, and a smooth one left where it is?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import softmax, threshold
    from gibbs.moves import softmax as moves

    cov, y = three_classes()
    target, shift = moves.make_target(cov, y), moves.shift_distribution(cov)
    p = len(target.factor)
    rng = np.random.default_rng(31)
    start = rng.standard_normal((5, 3, 3)) * np.array([0.05, 0.1, 8.0, 20.0, 300.0])[:, None, None]
    for latent in start:
        for i, label in enumerate(y):
            top = int(latent[:, i].argmax())
            latent[[label, top], i] = latent[[top, label], i]
    given: Any = SimpleNamespace(chol_cov=np.linalg.cholesky(cov))
    inverse = np.linalg.inv(cov)
    with mock.patch.object(softmax, "overdispersed", return_value=start):
        white = softmax._Softmax(given, target, shift, (), 0, 1).start(np.random.default_rng(1), 5)["white"]
    with mock.patch.object(threshold, "overdispersed", return_value=start.copy()):
        made = threshold._Threshold(given, np.asarray(inverse, dtype=np.float64), y, 0.1, ())
        latent = made.start(np.random.default_rng(1), 5)["auxiliary"]
    for name, came, plain, depth, size in (
        ("softmax", white, moves.to_white(start, target), lambda at: 0.5 * np.square(at).sum(axis=1), p),
        ("threshold", latent, start, lambda at: 0.5 * np.einsum("rli,lij,rlj->r", at, inverse, at), 9),
    ):  # fmt: skip
        scale = np.sqrt(np.minimum(1.0, 0.5 * size / depth(plain)))
        wanted = plain * scale.reshape(-1, *(1,) * (plain.ndim - 1))
        yield Compared(own.difference(came, wanted), 1e-10, f"{name}: five starts", "gibbs", "definition")
        rows = [(f"{name}: left where they are, drawn in", bool(scale.max() == 1.0 and scale.min() < 0.1), True)]
        yield as_documented(rows, "gibbs", "starts")


def _slopes(function: Callable[[Array], Array], at: Array) -> Array:
    """Derivatives of every value of function(at (1, p)) in every entry of at, by differences of fourth order."""

    def entry(k: int, x: Array) -> float:
        return float(np.ravel(function(x[None]))[k])

    return np.array([own.derivative(partial(entry, k), at) for k in range(np.size(function(at[None])))])


def three_classes() -> tuple[Array, NDArray[np.int64]]:
    """Covariances of three classes at three data, no two alike, and labels."""
    X = np.array([[-0.8], [0.1], [0.9]])
    square = np.square(X - X.T)
    parts = [v * np.exp(-0.5 * square / length**2) + noise * np.eye(3)
             for v, length, noise in ((2.0, 0.9, 0.3), (1.1, 0.5, 0.4), (3.0, 1.4, 0.2))]  # fmt: skip
    return np.stack(parts), np.array([2, 0, 1])


@check(
    "identity/mh-softmax/slopes_of_paths",
    paper=PAPER,
    question="Are the slopes that paths follow those of the densities that decide about them?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import softmax_annealed
    from gibbs.models import pairwise
    from gibbs.moves import softmax as moves

    rng = np.random.default_rng(21)
    cov, y = three_classes()
    target = moves.make_target(cov, y)
    p = len(target.factor)
    root = np.tril(0.3 * rng.standard_normal((p, p)), -1) + np.diag(rng.uniform(0.5, 1.2, p))
    mean = rng.standard_normal(p)
    reference = moves.make_reference(mean, root, target)
    z = rng.standard_normal((2, p))

    def height(at: Array) -> float:
        """-log [p(y | f) N(ξ; 0, I)] at ξ = mean + root z, of values f whose mean over the classes is zero."""
        xi = mean + root @ at
        f = (target.basis.T @ (target.factor @ xi).reshape(2, 3)).T
        return float(0.5 * xi @ xi - own.log_likelihood("softmax", f.T, y, 0.0))

    value, gradient = moves.energy(z, target, reference)
    worst = own.difference(value, [height(at) for at in z])
    yield Compared(worst, 1e-10, "energy around a Gaussian", "gibbs", "definition")
    worst = own.difference(gradient, [own.derivative(height, at) for at in z])
    yield Compared(worst, 1e-8, "its slope, by differences of fourth order", "gibbs", "differences")

    # a shift of all classes, as large as it may be, is not seen
    f = rng.standard_normal((1, 3, 2))
    wanted = np.exp(f - f.max()) / np.exp(f - f.max()).sum(axis=1, keepdims=True)
    for shift in (0.0, 900.0, -900.0):
        worst = own.difference(moves._softmax(f + shift), wanted)
        yield Compared(worst, 1e-12, f"class probabilities of values raised by {shift:g}", "gibbs", "definition")

    model = softmax_annealed._model(cov, y)
    e = rng.standard_normal((2, 6))

    def score(at: Array) -> float:
        f = np.concatenate([at.reshape(2, 3), np.zeros((1, 3))])
        return own.log_likelihood("softmax", f, y, 0.0)

    value, gradient = model.log_lik(e, with_gradient=True)
    worst = max(own.difference(value, [score(at) for at in e]), own.difference(model.log_lik(e)[0], value))
    yield flaws(model.log_lik(e)[1].size, "its slope where nobody asked for it", "gibbs", "entries")
    yield Compared(worst, 1e-10, "log likelihood of differences to the last class", "gibbs", "definition")
    worst = own.difference(gradient, [own.derivative(score, at) for at in e])
    yield Compared(worst, 1e-8, "its slope, by differences of fourth order", "gibbs", "differences")

    loadings = np.array([[1.1, -0.4], [0.3, 0.9], [-0.6, 1.4]])
    sampler = pairwise._Sampler(loadings, pairwise._peak(loadings), 0.3)
    zeta = rng.standard_normal((2, 2))
    for name, density, slope in (
        ("margins, turned", sampler.log_density, sampler.gradient),
        ("margins", lambda at: pairwise.log_joint(loadings, at), lambda at: pairwise.log_joint_gradient(loadings, at)),
    ):
        wanted = np.array([_slopes(density, at)[0] for at in zeta])
        worst = own.difference(slope(zeta), wanted)
        yield Compared(worst, 1e-8, f"{name}: slope of the log density", "gibbs", "differences")


@check(
    "limit/mh-softmax/small_steps",
    paper=PAPER,
    question="Is a path of small steps accepted, to the square of its step, and moved as far as it is long?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.hyperpriors import LogDensity
    from gibbs.evidence import softmax_annealed
    from gibbs.models import pairwise
    from gibbs.moves import softmax as moves
    from gibbs.moves.hyper import hamiltonian_move

    rng = np.random.default_rng(22)
    cov, y = three_classes()
    target = moves.make_target(cov, y)
    p, r = len(target.factor), 60
    root = np.tril(0.2 * rng.standard_normal((p, p)), -1) + np.diag(rng.uniform(0.6, 1.0, p))
    mean = 0.5 * rng.standard_normal(p)
    reference = moves.make_reference(mean, root, target)
    xi = rng.standard_normal((r, p))
    model = softmax_annealed._model(cov, y)
    around = softmax_annealed._Around(mean, root, 0.04)
    chains = hyper_model("softmax", 3, np.array([0, 2, 1, 2, 0]))
    white = rng.standard_normal((r, 1, 3, 5))
    chol = np.tile(np.linalg.cholesky(np.exp(-0.5 * np.square(INPUTS - INPUTS.T)) + 0.1 * np.eye(5)), (r, 1, 1, 1))
    loadings = np.array([[1.1, -0.4], [0.3, 0.9], [-0.6, 1.4]])
    sampler = pairwise._Sampler(loadings, pairwise._peak(loadings), 0.04)
    x = rng.standard_normal((r, 3))

    def quartic(at: Array) -> LogDensity:
        return LogDensity(-0.25 * (at**4).sum(axis=-1), -(at**3))

    moved = hamiltonian_move(rng, x, quartic, np.full(r, 0.04), 25)
    paths: tuple[tuple[str, Any, Any, Any], ...] = (
        ("rotations around a Gaussian", xi, *moves.flow_move(rng, xi, target, reference, 0.04, 25)),
        ("particles", xi, *softmax_annealed._path(rng, model, 0.6, around, xi, 25)),
        ("rotations around the prior", white, *chains.rotation_move(rng, white, chol, np.full(r, 0.04))),
        ("margins", xi[:, :2], *sampler.path(rng, xi[:, :2])),
        ("leapfrog", x, moved.position, moved.acceptance),
    )
    for name, before, after, accepted in paths:
        # errors of energy are a few squares of 0.04, refusals a part of them; a first kick twice as long leaves 0.01
        yield Compared(1.0 - float(np.mean(accepted)), 0.003, f"{name}: refused of paths", "gibbs", "limit", "share")
        # a path of length one half to one and a half in unit coordinates changes each by about that, never by less
        # than a fifth on average
        far = float(np.abs(np.asarray(after) - before).mean())
        yield flaws(not 0.15 < far < 2.0, f"{name}: coordinates change by {far:.2f} on average", "gibbs", "paths")


@check(
    "identity/mh-softmax/common_shifts",
    paper=PAPER,
    question="Has the common shift of the classes the mean and covariance of dense algebra, classes alike or not?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models.hyper_models import HyperModel
    from gibbs.moves import softmax as moves

    rng = np.random.default_rng(23)
    every, _ = three_classes()
    for name, cov in (("three classes", every), ("two", every[:2]), ("alike", np.stack([every[0]] * 3))):
        L, n = cov.shape[:2]
        f = rng.standard_normal((n + 1, L, n))
        given: Any = mock.Mock()
        # no normal, and one at a time: the mean, and the columns of the root
        given.standard_normal.side_effect = lambda shape, n=n: np.concatenate([np.zeros((1, n)), np.eye(n)]).reshape(
            shape
        )
        inverses = np.linalg.inv(cov)
        joined = np.linalg.inv(inverses.sum(axis=0))
        mean = -np.einsum("nm,lmk,rlk->rn", joined, inverses, f)
        distribution = moves.shift_distribution(cov)
        results = [("move", moves.draw_shift(given, f, distribution) - f)]
        alike = name == "alike"
        model: Any = mock.Mock(n_latents=L, hyper=np.zeros((1 if alike else L, 3)), y=np.zeros(n))
        chol = np.linalg.cholesky(np.tile(cov, (n + 1, 1, 1, 1)))
        results.append(("parameters", HyperModel.draw_shift(model, given, chol, f)[:, None] + np.zeros_like(f)))
        for what, moved in results:
            same = float(np.abs(moved - moved[:, :1]).max())
            root = (moved[1:, 0] - mean[1:]).T
            worst = max(same, own.difference(moved[0, 0], mean[0]), own.difference(root @ root.T, joined))
            yield Compared(worst, 1e-9, f"{name}, {what}: one shift for all classes, mean and covariance", "gibbs",
                           "dense algebra")  # fmt: skip
        weights = joined @ inverses
        worst = max(own.difference(distribution.weights, weights), own.difference(distribution.cov, joined))
        yield Compared(worst, 1e-9, f"{name}: weights of the classes", "gibbs", "dense algebra")


@check(
    "identity/gibbs-threshold/planes_by_default",
    paper="villacampa2017",
    question="Is a path taken back from 101 + 50 n (L - 1) planes on, where nothing else is asked for?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.moves.region import bounce_move

    rng = np.random.default_rng(29)
    rows: list[tuple[str, object, object]] = []
    for n, L, most in ((2, 2, 200), (3, 2, 250), (2, 3, 300)):
        # two data that are nearly one, of labels that differ: a wedge between planes in which a path meets hundreds
        rho = float(np.cos(np.pi / 450.0))
        K = np.eye(n)
        K[:2, :2] = [[1.0, rho], [rho, 1.0]]
        cov = np.stack([K] * L)
        y = np.arange(n) % 2
        apart = np.sqrt(2.0 * (1.0 - rho)) * np.abs(rng.standard_normal((40, n))) * np.where(y == 0, 1.0, -1.0)
        start = np.zeros((40, L, n))
        start[:, 0], start[:, 1] = 0.5 * apart, -0.5 * apart
        start[:, :2] += rng.standard_normal((40, 1, 1))
        start[:, 2:] = start.min() - 3.0
        root: Array = np.asarray(np.linalg.cholesky(cov), dtype=np.float64)
        whole = bounce_move(np.random.default_rng(30), start, cov, root, y, max_events=10**6)
        usual = bounce_move(np.random.default_rng(30), start, cov, root, y)
        within = whole.events <= most
        rows += [
            (f"{n} data, {L} classes: moved", bool(np.array_equal(usual.moved, whole.moved & within)), True),
            (f"{n} data, {L} classes: both happen", bool(within.any() and not within.all()), True),
            (f"{n} data, {L} classes: planes met by those taken back", set(usual.events[~within].tolist()),
             {most + 1}),
        ]  # fmt: skip
    yield as_documented(rows, "gibbs", "paths")


@check(
    "identity/gibbs-pairwise/steps_halved",
    paper="villacampa2017",
    question="Is a step to the mode halved as long as the density falls, and the mode found all the same?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import pairwise
    from gibbs.moves import softmax as moves

    loadings = np.array([[1.1, -0.4], [0.3, 0.9], [-0.6, 1.4]])
    cov, y = three_classes()
    target = moves.make_target(cov, y)

    def falling(function: Any, points: list[Array]) -> Any:
        """The same, but for two steps of which it says that they lead down."""

        def told(*given: Any) -> Array:
            points.append(np.array(given[-1][0]))
            value = np.asarray(function(*given))
            return value - 1e9 if len(points) in (2, 3) else value

        return told

    tried: list[Array] = []
    with mock.patch.object(pairwise, "log_joint", falling(pairwise.log_joint, tried)):
        peak = pairwise._peak(loadings)
    mode = peak.mode
    slope = float(np.abs(pairwise.log_joint_gradient(loadings, mode[None])).max())
    curved = _slopes(lambda at: pairwise.log_joint_gradient(loadings, at)[0], mode)
    pieces = (
        (peak.R @ peak.R.T, -curved), (peak.inverse @ peak.R, np.eye(2)),
        (peak.turned @ peak.R.T, loadings), (peak.centre, loadings @ mode),
    )  # fmt: skip
    worst = max(own.difference(came, wanted) for came, wanted in pieces)
    yield Compared(worst, 1e-8, "margins: root of the precision at the mode, and what is turned by it", "gibbs",
                   "differences")  # fmt: skip
    of_classes: list[Array] = []
    met: list[Array] = []

    def latent(white: Array) -> Array:
        met.append(white[0].copy())
        return target.latent(white)

    slow = SimpleNamespace(
        factor=target.factor, y=y, basis=target.basis, latent=latent,
        log_likelihood=falling(target.log_likelihood, of_classes),
    )  # fmt: skip
    white, root = moves.laplace(slow)  # type: ignore[arg-type]
    apart = float(np.abs(met[1] - of_classes[3]).max())
    yield Compared(apart, 0.0, "classes: goes on from the step that is taken", "gibbs", "gibbs", "absolute")
    slopes = own.derivative(lambda at: float(target.log_likelihood(at[None])[0] - 0.5 * at @ at), white)
    for name, points, steepest in (
        ("margins", tried, slope), ("classes", of_classes, float(np.abs(slopes).max()))
    ):  # fmt: skip
        start, whole, half, quarter = points[:4]
        apart = max(
            float(np.abs(half - start - 0.5 * (whole - start)).max()),
            float(np.abs(quarter - start - 0.25 * (whole - start)).max()),
        )
        yield Compared(apart, 1e-12, f"{name}: steps that are tried", "gibbs", "definition", "absolute")
        yield Compared(steepest, 1e-6, f"{name}: slope at the mode", "gibbs", "definition", "absolute")
    curved = _slopes(lambda at: _score(target, at[0]), white)
    worst = own.difference(root @ root.T, np.linalg.inv(-curved))
    yield Compared(worst, 1e-6, "classes: inverse of minus the second derivatives", "gibbs", "differences")


def _score(target: Any, at: Array) -> Array:
    """Gradient of log [p(y | f) N(ξ; 0, I)], by the probabilities of the classes."""
    f = target.latent(at[None])[0]
    p = np.exp(f - f.max(axis=0))
    p /= p.sum(axis=0)
    one_hot = (target.y == np.arange(len(f))[:, None]).astype(np.float64)
    return np.asarray(target.factor.T @ (target.basis @ (one_hot - p)).ravel() - at)


def _path_over_steps(h: Array, w: Array, cov: Array, y: NDArray[np.int64], height: float) -> tuple[Array, int]:
    """Where a quarter turn of one chain ends, h and w (L, n), and how many planes it meets: mechanics, plane by plane.

    The potential rises by `height` for every datum whose label is not the largest. At a plane between two classes of a
    datum the velocity changes along cov times its normal, by so much that the energy stays what it was; where that
    cannot be, it is reflected.
    """
    L, n = h.shape
    planes = [(c, i) for i in range(n) for c in range(L) if c != y[i]]
    above = {(c, i): bool(h[y[i], i] >= h[c, i]) for c, i in planes}
    left, met = 0.5 * np.pi, 0
    while True:
        times = {}
        for c, i in planes:
            # M cos t + Q sin t, M as large as rounding leaves it on its side of zero, ends there within half a turn
            side = 1.0 if above[c, i] else -1.0
            M, Q = max(side * (h[y[i], i] - h[c, i]), 0.0), side * (w[y[i], i] - w[c, i])
            phase = float(np.arctan2(-M, Q))
            times[c, i] = phase + np.pi if phase <= 0.0 else phase
        plane = min(times, key=lambda key: times[key])
        time = min(times[plane], left)
        h, w = np.cos(time) * h + np.sin(time) * w, np.cos(time) * w - np.sin(time) * h
        left -= time
        if left <= 0.0:
            return h, met
        met += 1
        c, i = plane
        rest = all(above[j, i] for j, k in planes if k == i and j != c)
        rise = 0.0 if not rest else height if above[plane] else -height
        speed, variance = w[y[i], i] - w[c, i], cov[y[i], i, i] + cov[c, i, i]
        energy = speed**2 - 2.0 * variance * rise
        if energy > 0.0:
            above[plane] = not above[plane]
            new = np.copysign(np.sqrt(energy), speed)
        else:
            new = -speed
        w = w.copy()
        w[y[i]] += (new - speed) / variance * cov[y[i]][:, i]
        w[c] -= (new - speed) / variance * cov[c][:, i]


@check(
    "identity/gibbs-threshold/hair_outside",
    paper="villacampa2017",
    question="Does a path that rounding has left outside a wall stay where it was, and no other?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.moves import region

    cov, y = three_classes()
    root: Array = np.asarray(np.linalg.cholesky(cov), dtype=np.float64)
    start = np.zeros((4, 3, 3))
    start[:, y, np.arange(3)] = 1.0
    whole = region.bounce_move(np.random.default_rng(40), start, cov, root, y)
    told = np.ones((4, 3), dtype=bool)
    told[1, 2] = False
    with mock.patch.object(region, "inside", return_value=told):
        came = region.bounce_move(np.random.default_rng(40), start, cov, root, y)
    rows: list[tuple[str, object, object]] = [
        ("moved", (whole.moved.tolist(), came.moved.tolist()), ([True] * 4, [True, False, True, True])),
        ("stays", bool(np.array_equal(came.auxiliary[1], start[1])), True),
        ("the others", bool(np.array_equal(came.auxiliary[[0, 2, 3]], whole.auxiliary[[0, 2, 3]])), True),
        ("planes met", came.events.tolist(), whole.events.tolist()),
    ]
    yield as_documented(rows, "gibbs", "paths")


@check(
    "identity/gibbs-threshold/paths_over_steps",
    paper="villacampa2017",
    question="Do paths over steps and against walls end where mechanics has them, plane by plane?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.moves.region import bounce_move, log_step

    cov, y = three_classes()
    root: Array = np.asarray(np.linalg.cholesky(cov), dtype=np.float64)
    r = 30
    for epsilon in (0.05, 0.3, 0.7, 0.0):
        rng = np.random.default_rng(39)
        start = np.einsum("lij,rlj->rli", root, rng.standard_normal((r, 3, 3)))
        if epsilon == 0.0:  # inside
            for latent in start:
                for i, label in enumerate(y):
                    top = int(latent[:, i].argmax())
                    latent[[label, top], i] = latent[[top, label], i]
        normals = rng.standard_normal((r, 3, 3))
        given: Any = SimpleNamespace(standard_normal=lambda _, normals=normals: normals)
        height = log_step(epsilon, 3)
        # a label that is right has the likelihood 1 - ε + ε/C, one that is wrong ε/C
        known = np.inf if epsilon == 0.0 else np.log((1.0 - epsilon + epsilon / 3.0) / (epsilon / 3.0))
        yield flaws(
            not np.isclose(height, known, rtol=1e-12), f"errors {epsilon:g}: height of a step", "gibbs", "steps"
        )
        result = bounce_move(given, start, cov, root, y, log_height=height)
        velocity = np.einsum("lij,rlj->rli", root, normals)
        ends = [_path_over_steps(start[k], velocity[k], cov, y, known) for k in range(r)]
        gap = float(np.abs(result.auxiliary - np.array([end for end, _ in ends])).max())
        # events multiply what rounding leaves
        yield Compared(gap, 1e-8, f"errors {epsilon:g}: ends of {r} paths", "gibbs", "mechanics", "absolute")
        wrong = int(np.count_nonzero(result.events != [met for _, met in ends]))
        yield flaws(wrong, f"errors {epsilon:g}: planes met, {int(result.events.sum())} in all", "gibbs", "paths")
