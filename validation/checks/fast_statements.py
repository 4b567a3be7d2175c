"""Sentences of `fast` and `reference` about single steps, each against what it says: masks, ends, starts, options.

Every piece is called by itself, on numbers or stand-ins that the judge makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.by_name import by_name
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]
_FIELDS = ("variance", "lengthscales", "noise", "jitter", "Z")


def _given(kind: str) -> dict[str, Any]:
    """Arguments of a method by name."""
    asked = tiny(kind)
    values = {name: getattr(asked, name) for name in _FIELDS}
    if asked.n_classes == 2 and kind.split()[0] in ("logit", "probit"):
        values = {name: value[0] for name, value in values.items()}
        return {"X": asked.X, "y": asked.y} | values
    return {"X": asked.X, "y": asked.y, "n_classes": asked.n_classes} | values


class _Caught(Exception):  # noqa: N818 - nothing is wrong
    """Carries what the judge wanted to see out of a fit."""


@check(
    "identity/nested-iep/rows_that_stay",
    paper="riihimaki2013",
    question="Does a datum move only where both its cavity and its tilted distribution are distributions?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.results import ScalarMoments
    from fast.full_classes import independent_sites
    from fast.sparse_classes import power_factors

    seen: dict[str, Any] = {}

    def caught(condition: Any, propose: Any, *_: Any, **__: Any) -> None:
        seen["propose"] = propose

    good, proper = np.array([True, True, False, False]), np.array([True, False, True, False])
    tilted = SimpleNamespace(
        good=good, precision=np.full((4, 2), 7.0), location=np.full((4, 2), 8.0), change=np.arange(1.0, 5.0)
    )
    prior: Any = SimpleNamespace(n=4)
    options: Any = SimpleNamespace(damping=0.5, schedule="parallel")
    anything: Any = None
    with mock.patch.object(independent_sites, "iterate", caught):
        independent_sites.settle_independent(prior, lambda *_: tilted, anything, options, start=anything)  # type: ignore[arg-type]
    zeros = np.zeros((4, 2))
    state = SimpleNamespace(cavity_mean=zeros, cavity_var=zeros, proper=proper, mean=zeros, var=zeros)
    told = seen["propose"](state, (zeros - 1.0, zeros - 2.0))
    rows: list[tuple[str, object, object]] = [
        ("precisions of four data", told.target[0].tolist(), [[7.0] * 2, [-1.0] * 2, [-1.0] * 2, [-1.0] * 2]),
        ("locations", told.target[1].tolist(), [[8.0] * 2, [-2.0] * 2, [-2.0] * 2, [-2.0] * 2]),
        ("improper", told.n_improper, 3),
        ("change beside that of sites", told.extra, 1.0),
    ]
    yield as_documented(rows, "fast", "data")

    # powers of factors whose site would not be finite in one class: all classes of that datum stay
    factors = power_factors.PowerDatum(0.5, 0.0)
    y = np.array([0, 1, 2])
    moments = SimpleNamespace(mean=np.array([[0.1, -0.2, 0.3]] * 3), var=np.full((3, 3), 0.8))
    sites = (np.full((3, 3), 0.1), np.full((3, 3), 0.2))
    new = (np.full((3, 3), 0.4), np.full((3, 3), 0.5))
    new[0][1, 2], new[1][2, 0] = np.inf, np.nan
    with mock.patch.object(power_factors, "power_sites", return_value=new):
        visit = factors.visit(y, ScalarMoments(moments.mean, moments.var), np.full((3, 3), 0.3), sites)
    rows = [
        ("improper", visit.n_improper, 2),
        ("precisions", visit.target[0].tolist(), [[0.4] * 3, [0.1] * 3, [0.1] * 3]),
        ("locations", visit.target[1].tolist(), [[0.5] * 3, [0.2] * 3, [0.2] * 3]),
    ]
    yield as_documented(rows, "fast", "data")


@check(
    "identity/vi-robust/optimisers",
    paper="villacampa2020",
    question="Is the bound climbed by L-BFGS on all data and by Adam where steps or batches are asked for?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import vi_robust

    def started(*_: Any, scheme: str, optimizer: str, **__: Any) -> Any:
        raise _Caught(scheme, optimizer)

    rows: list[tuple[str, object, object]] = []
    batches = [np.arange(4)] * 3
    for asked, optimizer in (
        ({}, "lbfgs"),
        ({"n_steps": 3}, "adam"),
        ({"n_steps": 3, "optimizer": "lbfgs"}, "lbfgs"),
        ({"n_steps": 3, "optimizer": "adam"}, "adam"),
        ({"optimizer": "adam"}, "adam"),
        ({"batches": batches}, "adam"),
        ({"batches": batches, "optimizer": "adam"}, "adam"),
        ({"batch_size": 4, "n_steps": 2}, "adam"),
    ):
        scheme = "outer" if optimizer == "lbfgs" else "inner-approximate"
        with mock.patch.object(vi_robust, "start", started):
            try:
                by_name(vi_robust.fit)(**_given("threshold errors"), epsilon=0.1, **asked)
                came: tuple[Any, ...] = ()
            except _Caught as error:
                came = error.args
        rows.append((f"{sorted(asked.items(), key=str)}", came, (scheme, optimizer)))
    yield as_documented(rows, "fast", "fits")


@check(
    "identity/vi-taylor/steps_allowed",
    paper="izmailov2016",
    question="Does Newton's method make as many steps as it is allowed, and none when it is at rest?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import vi_taylor

    class Halves:
        """Each step goes half of the way to zero, and is as long."""

        def height(self, position: Any) -> float:
            return -float(np.abs(position[0]).max())

        def target(self, position: Any) -> Any:
            return (0.5 * position[0],)

        def length(self, position: Any, move: Any) -> float:
            return float(np.abs(move[0]).max())

    rows: list[tuple[str, object, object]] = []
    for most in (1, 2, 7):
        told: list[float] = []
        start = (np.array([64.0]),)
        top = vi_taylor.newton(Halves(), start, 1, 1e-300, most, told.append)  # type: ignore[arg-type]
        rows += [
            (f"{most} steps allowed: made", len(told), most),
            ("heights", top.trace, [-64.0 * 0.5**k for k in range(most + 1)]),
            ("converged", top.converged, False),
        ]
    yield as_documented(rows, "fast", "runs")


@check(
    "identity/gfitc/mixed_sweeps",
    paper="villacampa2017",
    question="Is a sweep that is not mixed the damped one, and one that goes wrong taken back to it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.sparse_classes.fitc_latents import LatentRun

    data: Any = SimpleNamespace(n=2, n_classes=3, labels=lambda rows: np.array([0, 2]))
    points: Any = SimpleNamespace(n_classes=3, m=1)
    shape = (4, 2, 3)
    rng = np.random.default_rng(1)
    mean, var = rng.standard_normal((2, 3)), rng.random((2, 3)) + 0.5
    run = LatentRun(data, points, damping=0.3, mixed=True)
    run.sites[...] = 1.0
    gaps = [rng.random(shape), rng.random(shape)]
    run._advance(gaps[0], mean, var, 1.0, 0)
    first = 1.0 + 0.3 * gaps[0]
    gap = float(np.abs(run.sites - first).max())
    yield Compared(gap, 1e-14, "nothing to mix yet: 0.3 of the way to the proposals", "fast", "definition", "absolute")
    run._advance(gaps[1], mean, var, 0.5, 0)
    mixed = run._was_mixed
    # a mixed sweep whose residual is more than twice that of the one before is taken back, to the damped one
    run._advance(rng.random(shape), mean, var, 1.1, 0)
    gap = float(np.abs(run.sites - (first + 0.3 * gaps[1])).max()) if mixed else np.inf
    yield Compared(gap, 1e-14, "a mixed sweep that went wrong is taken back", "fast", "definition", "absolute")


class _Collection:
    """Blocks that tell their number and come one after the other, but not by their number."""

    def __init__(self, blocks: list[Any]) -> None:
        self.blocks = blocks

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.blocks)


@check(
    "identity/x-gpc-svi/pools",
    paper="wenzel2019",
    question="Does a pool hold no more blocks than it needs, and is any collection of blocks one?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.solve.minibatch import Shuffled

    n = 40
    X, y = np.arange(2.0 * n).reshape(n, 2), np.resize([0, 1], n)
    rows: list[tuple[str, object, object]] = []
    fill = Shuffled._fill
    for pool, wanted in ((8, [8] * 5), (9, [12, 12, 12, 4]), (12, [12, 12, 12, 4]), (40, [40]), (41, [40])):
        sizes: list[int] = []

        def filled(self: Any, sizes: list[int] = sizes) -> None:
            fill(self)
            sizes.append(self._pool.X.shape[0])

        with mock.patch.object(Shuffled, "_fill", filled):
            source = Shuffled(X, y, 4, 3, block_size=4, pool_size=pool)
            for _ in range(n // 4):
                source.draw()
        rows.append((f"blocks of 4, pools of {pool}", sizes, wanted))
    blocks = [(X[start : start + 8], y[start : start + 8]) for start in range(0, n, 8)]
    by_number = Shuffled(blocks, None, 4, 3, n=n)
    one_by_one = Shuffled(_Collection(blocks), None, 4, 3, n=n)
    rows.append(("digests of blocks by number and one by one", one_by_one.digests(), by_number.digests()))
    drawn = np.concatenate([one_by_one.draw().X for _ in range(n // 4)])
    rows.append(("rows of an epoch", bool(np.array_equal(np.sort(drawn[:, 0]), X[:, 0])), True))
    yield as_documented(rows, "fast", "sources")


@check(
    "identity/vb-probit/alternations",
    paper="riihimaki2013",
    question="Is the expected logarithm of the prior its definition's, and does the reason say how learning ended?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import vb_probit

    rng = np.random.default_rng(3)
    n, count = 4, 2
    factor = rng.standard_normal((n, n))
    K, root = factor @ factor.T + np.eye(n), np.tril(rng.standard_normal((n, n))) + 2.0 * np.eye(n)
    means = rng.standard_normal((count, n))
    group: Any = SimpleNamespace(first=0, means=means, root=root.T, classes=[0, 1])
    prior: Any = SimpleNamespace(n=n, K=lambda k: K.copy(), vjp=lambda by_K: by_K)
    value, by_K = vb_probit._expected_log_prior([group], prior)
    # E log N(f; 0, K) of f ~ N(m, root root') for each of two functions
    V, inverse = root @ root.T, np.linalg.inv(K)
    exact = -0.5 * count * (n * np.log(2.0 * np.pi) + np.linalg.slogdet(K)[1] + np.trace(inverse @ V))
    exact -= 0.5 * float(np.einsum("ki,ij,kj->", means, inverse, means))
    yield Compared(abs(value - exact), 1e-11, "E log p(f) of two functions", "fast", "definition", "nat")
    slope = 0.5 * (inverse @ (count * V + means.T @ means) @ inverse - count * inverse)
    made: Any = by_K
    gap = float(np.abs(made[0] - slope).max())
    yield Compared(gap, 1e-11, "its derivative by the entries of K", "fast", "definition", "absolute")

    given = _given("threshold shared full")
    given.pop("Z")
    rows: list[tuple[str, object, object]] = []
    for most, tolerance, converged, reason in (
        (1, 1e-9, False, "iteration limit reached"),
        (400, 0.5, True, "logarithms at rest"),
    ):
        data, held = _data_and_prior(given)
        end = vb_probit.alternate(
            vb_probit.prepare(data, held), learn=("variance",), max_iterations=most, learning_tolerance=tolerance
        )
        rows.append((f"{most} iterations, to {tolerance:g}", (end.converged, end.reason), (converged, reason)))
    yield as_documented(rows, "fast", "fits")


@check(
    "identity/ep/ends_of_training",
    paper="villacampa2017",
    question="Do sweeps end where there is nothing to come to, and is a search left at its best evaluation?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.solve.mixing import Mixing
    from fast.sparse_classes import training
    from fast.sparse_classes.ep import Swept

    class Run:
        """Sweeps whose residuals the judge sets; it remembers where it was put."""

        damping = 1.0

        def __init__(self, residuals: list[float]) -> None:
            self.points = SimpleNamespace(hyper=0.0, Z=0.0)
            self.residuals, self.swept, self.number = residuals, 0, 0.0

        def refresh(self) -> Swept:
            self.swept += 1
            return Swept(self.residuals[min(self.swept, len(self.residuals)) - 1], 0, "why")

        def log_evidence(self) -> float:
            return -((self.points.hyper - 1.0) ** 2)

        def gradient(self) -> float:
            return 0.0

        def state(self) -> dict[str, Any]:
            return {"number": np.array(self.number)}

        def rebuild(self) -> None:
            """Nothing to do."""

        def restore(self, arrays: Any, hyper: float, Z: float, moved: bool) -> None:
            self.points, self.number = SimpleNamespace(hyper=hyper, Z=Z), float(arrays["number"])

    rows: list[tuple[str, object, object]] = []
    settings = training.Settings(max_iterations=9, tolerance=1e-6)
    for residuals, swept, converged in (
        ([0.5, 0.4, np.inf], 3, False), ([0.5, np.nan], 2, False), ([0.5, 0.4, 0.0], 3, True), ([0.5], 9, False),
    ):  # fmt: skip
        run: Any = Run(residuals)
        heard: list[Any] = []
        end = training._plain(run, settings, heard.append, 0, 0)
        rows.append((f"residuals {residuals}", (run.swept, end.iterations, len(heard), end.converged),
                     (swept, swept, swept, converged)))  # fmt: skip

    # evaluations at 0, 1 and 3, of which the second is the best; the state of each has its number
    run = Run([])

    def converge(run: Any, _: Any) -> Any:
        run.number = 10.0 + run.points.hyper
        return training.Trained(np.zeros(0), 0.0, True, 1, 0, False, "")

    def maximise(evaluate: Any, start: Any, *_: Any, **__: Any) -> Any:
        best = None
        for vector in (0.0, 1.0, 3.0):
            place = evaluate(np.array([vector]), best)
            if best is None or place.value > best.place.value:
                best = SimpleNamespace(place=place, vector=np.array([vector]))
        return SimpleNamespace(best=best, enough=False, residual=0.0, trace=np.zeros(2), reason="end")

    packing: Any = SimpleNamespace(
        vector=lambda hyper, Z: np.zeros(1), parameters=lambda vector, *_: (float(vector[0]), 0.0), parts={},
        prior=lambda hyper: (0.0, np.zeros(1)), gradient=lambda gradient, hyper: np.zeros(1),
    )  # fmt: skip
    run.points = SimpleNamespace(hyper=0.0, Z=0.0)
    with mock.patch.multiple(training, converge=converge, maximise=maximise):
        training.search(run, training.Settings(n_steps=5), packing)
    # an evaluation starts at the best state before it, so that the last one had moved both
    rows.append(("a search is left at its best parameters and state", (run.points.hyper, run.number), (1.0, 11.0)))

    mixing, rates = Mixing(4), []
    for _ in range(3):
        rates.append(mixing.rate(lambda part: part))
        mixing.learn(np.array([1.0, 0.5 * len(rates)]), np.array([-0.4, -0.2 * len(rates)]))
    rows.append(("rates of nothing, one and two steps", [round(rate, 9) for rate in rates], [0.0, 0.0, 0.6]))
    yield as_documented(rows, "fast", "ends")


@check(
    "identity/pep/counted_halvings",
    paper="villacampa2020",
    question="Do steps that are halved count as improper, in parts too, and is the share that was taken kept?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.blockwise import sites
    from fast.full_classes import inner_ep
    from fast.full_classes import predict as of_classes
    from fast.methods import epgpc_svi
    from fast.sparse_classes.ep import Swept

    run: Any = object.__new__(sites.PowersInParts)
    run.leaves, run._taken = None, 0.0
    run.q = SimpleNamespace(precision=np.ones((3, 1, 1)), shift=np.ones((3, 1)))
    moves: list[Any] = []
    told = sites._Summed(np.full((3, 1, 1), 4.0), np.full((3, 1), 2.0), Swept(0.5, 2))

    def move(by_precision: Array, by_shift: Array, damping: float) -> tuple[float, int]:
        moves.append((by_precision.ravel().tolist(), by_shift.ravel().tolist(), damping))
        return 0.125 * damping, 3

    shares: list[float] = []

    def state(run: Any, damping: float) -> None:
        shares.append(damping)

    with mock.patch.multiple(sites, _summed=lambda *_: told, _state=state):
        run._move_damped = move
        swept = [run.sweep(0.8), run.sweep(0.4)]
    rows: list[tuple[str, object, object]] = [
        ("improper cavities and halvings", [(one.residual, one.n_improper) for one in swept], [(0.5, 5)] * 2),
        ("moves", moves, [([3.0] * 3, [1.0] * 3, 0.8), ([3.0] * 3, [1.0] * 3, 0.4)]),
        ("shares taken before", [round(share, 12) for share in (*shares, run._taken)], [0.0, 0.1, 0.05]),
    ]

    # tiles of a leaf: cavities add up, of changes the largest counts
    total = sites._Total(run.q)
    with mock.patch.object(sites, "add_projected"):
        for gap, count in ((0.5, 2), (0.25, 3)):
            total.add(SimpleNamespace(gap=gap, n_improper=count), None, np.zeros(1), np.zeros(1))
    *_, improper, largest = total.sums()
    rows.append(("improper cavities and change of two tiles", (float(improper[0]), largest.value), (5.0, 0.5)))

    # two inner sites that are alike: the sum of their changes is twice the largest, in either order of updates
    cov = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    start: Any = inner_ep.Differences(np.array([[0.3, 0.3]]), cov)
    zeros = np.zeros((1, 2))
    for schedule in ("parallel", "sequential"):
        there: Any = inner_ep.Differences(start.mean.copy(), cov.copy())
        end = inner_ep.sweep(zeros, zeros, there, schedule=schedule, damping=1.0, cavity=start)
        gap = abs(float(end.change[0] / end.largest[0]) - 2.0)
        rows.append((f"changes of two equal sites, {schedule}", gap < 1e-12 and end.largest[0] > 0.01, True))

    # a product rule has as many dimensions as there are differences of classes
    asked: list[int] = []

    def rule(dimension: int, *_: Any) -> Any:
        asked.append(dimension)
        raise _Caught

    for C in (2, 3, 5):
        with mock.patch.object(of_classes, "product_rule", rule):
            try:
                prior: Any = SimpleNamespace(X=np.zeros((4, 2)), n_classes=C)
                of_classes.predict_distribution(prior, prior, np.zeros((0, 2)), prediction_nodes=3)
            except _Caught:
                continue
    rows.append(("dimensions of product rules", asked, [1, 2, 4]))

    # the gradient that moves the prior is that of the batch and of the density of what is learned
    seen: list[Any] = []

    def adam(derivative: Array, *_: Any) -> Any:
        seen.append(derivative.tolist())
        raise _Caught

    packing: Any = SimpleNamespace(prior=lambda hyper: (7.0, np.array([0.25, -4.0])))
    steps: Any = SimpleNamespace(
        run=SimpleNamespace(gradient=lambda *_: np.array([1.0, 2.0]), hyper=None), packing=packing, adam=None,
        options=SimpleNamespace(learning_rate=0.1), iteration=0,
    )  # fmt: skip
    anything: Any = None
    with mock.patch.object(epgpc_svi, "adam_step", adam):
        try:
            epgpc_svi._Steps._move_kernel(steps, anything, anything)
        except _Caught:
            rows.append(("gradient of a step of the prior", seen, [[1.25, -2.0]]))
    yield as_documented(rows, "fast", "sweeps")


@check(
    "identity/laplace/first_steps",
    paper="riihimaki2013",
    question="Is the first step from a start that is given a whole one, and does who looks on wait for enough values?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.ending import Watch, ending
    from fast.full_classes import independent_sites, softmax_laplace
    from fast.methods import laplace, quadrature_ep

    given = _given("softmax full")
    given.pop("Z")
    data, held = _data_and_prior(given)
    prior = laplace.prepare(data, held)
    there = softmax_laplace.find_mode(prior, tolerance=1e-12, max_iterations=50)
    begin = 30.0 * there.posterior.weights.T
    latent = np.column_stack([prior.K(k) @ begin[:, k] for k in range(3)])
    whole = softmax_laplace.newton_step(prior, latent, softmax_laplace.softmax_terms(latent, prior.y)).mean
    one = softmax_laplace.find_mode(prior, tolerance=1e-12, max_iterations=1, start=begin).posterior.mean
    far = float(np.abs(latent - there.posterior.mean).max() / np.abs(whole - there.posterior.mean).max())
    yield Compared(1.0 / far, 0.5, "a whole step leads nearer to the mode", "fast", "definition", "of the distance")
    # what is told has the moments of the expansion at its end: where another step leads
    step = softmax_laplace.newton_step(prior, whole, softmax_laplace.softmax_terms(whole, prior.y)).mean
    gap = float(np.abs(one - step).max() / np.abs(step).max())
    yield Compared(gap, 1e-9, "and is what is made", "fast", "definition")

    rows: list[tuple[str, object, object]] = []
    free = Watch(2)
    for value in (1.0, 1.1, 1.2, 1.3, 1.4):
        free.after(value)
    with ending(None, worth=1.0) as here:
        watch, stopped = Watch(3), []
        for value in (5.0, 5.1, 5.2, 5.2, 5.3):
            watch.after(value)
            stopped.append(bool(here.why()))
    rows.append(("ended after as many changes as it waits for", stopped, [False] * 4 + [True]))

    # in order, a datum whose cavity is none in one class stays, and is counted
    caught: dict[str, Any] = {}

    def iterate(*_: Any, sequential: Any, **__: Any) -> None:
        caught["pass"] = sequential

    class Running:
        """Marginals that no site moves."""

        def __init__(self, *_: Any) -> None:
            self.updated: list[int] = []
            caught["running"] = self

        def marginal(self, i: int) -> tuple[Array, Array]:
            return np.zeros(2), 0.5 * np.eye(2)

        def update(self, i: int, *_: Any) -> None:
            self.updated.append(i)

    def tilt(*_: Any) -> Any:
        full = np.full((1, 2), 0.5)
        return SimpleNamespace(good=np.array([True]), precision=full, location=full, change=np.zeros(1))

    anything: Any = SimpleNamespace(n=4)
    options: Any = SimpleNamespace(schedule="sequential", damping=1.0)
    with mock.patch.multiple(independent_sites, iterate=iterate, SequentialPosterior=Running,
                             condition_independent=mock.DEFAULT):  # fmt: skip
        independent_sites.settle_independent(anything, tilt, anything, options, start=anything)
        tau = np.array([[1.0, 1.0], [3.0, 1.0], [1.0, 2.0], [2.5, 2.5]])
        (new, _), _, improper = caught["pass"]((tau, np.zeros((4, 2))))
    rows += [("data that moved", caught["running"].updated, [0]), ("improper", improper, 3),
             ("their sites", new.tolist(), [[0.5, 0.5], *tau[1:].tolist()])]  # fmt: skip

    # the change of a site that is where it should be is none, of one that is not it is that of its worse part
    qep: Any = object.__new__(quadrature_ep._QEP)
    qep.full = True
    matrices, locations = np.tile(0.3 * np.eye(2), (3, 1, 1)), np.full((3, 2), 0.7)
    proposal: Any = quadrature_ep.Proposal((matrices, locations), np.zeros((3, 2)), np.ones((3, 2)), 0)
    rows.append(("change of sites at rest", qep.gap((matrices, locations), proposal), 0.0))
    beside = matrices + 0.2 * (1.0 - np.eye(2))  # what stands beside the diagonal has no unit of its own
    rows.append(("beside the diagonal", qep.gap((beside, locations), proposal), 0.0))
    rows.append(("of a location", qep.gap((matrices, locations + np.eye(3, 2)), proposal) > 0.1, True))
    rows.append(("of a precision", qep.gap((matrices + 0.5 * np.eye(2), locations), proposal) > 0.1, True))
    yield as_documented(rows, "fast", "steps")


def _data_and_prior(given: dict[str, Any]) -> tuple[Any, Any]:
    from fast.core.values import Data, Prior

    rest = {name: value for name, value in given.items() if name not in ("X", "y", "n_classes")}
    return Data(given["X"], given["y"], given["n_classes"]), Prior(**rest)


@check(
    "identity/gfitc/form_while_learning",
    paper="villacampa2017",
    question="Does the reference learn in the contracted form where none is asked for?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.villacampa2017 import gfitc

    def caught(X: Any, y: Any, there: Any, last: Any, options: Any) -> Any:
        raise _Caught(options.form)

    rows: list[tuple[str, object, object]] = []
    for asked, form in (
        ({"learn": ("variance",)}, "projected"),
        ({}, None),
        ({"form": "printed"}, "printed"),
        ({"learn": ("variance",), "form": "printed"}, "printed"),
    ):
        with mock.patch.object(gfitc, "_expectation_propagation", caught):
            try:
                gfitc.gfitc_baseline(*_reference_question("threshold"), **asked)
                came: Any = "no run"
            except _Caught as error:
                came = error.args[0]
        rows.append((f"{asked}: form", came, form))
    yield as_documented(rows, "reference", "fits")


def _reference_question(kind: str) -> tuple[Any, Any, Any]:
    from reference.villacampa2017.hyper import Prior

    asked = tiny(kind)
    return asked.X, asked.y, Prior(**{name: getattr(asked, name) for name in Prior._fields if hasattr(asked, name)})
