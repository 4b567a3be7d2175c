"""Bounds on steps: rates of contraction from 0 to almost 1, acceptances of at most 1, starts that only move inwards.

A run is stopped by an estimate step/(1 - rate). A rate below zero, of an iteration that swings, would promise less than
the step itself; one of 1 or more, where nothing contracts, would promise anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.clamped import Bound, held
from validation.checks.core import NO_PROBLEM, Context, Outcome, check, flaws
from validation.problem import Problem

Array = NDArray[np.float64]

_SLOWEST = 1e9  # 1/(1 - rate) where nothing contracts: far, but a number


@check(
    "identity/x-gpc/distances_of_rates",
    paper="wenzel2019",
    question="Is a fixed point at least as far as a step, a billion steps at most, and as far as the last rates say?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.one_latent import fixed_point
    from fast.solve import mixing, outer_loop, site_iteration
    from fast.sparse_classes import alpha_runs

    def of_sites(step: float, rates: list[float]) -> float:
        mixer = site_iteration._Mixer()
        mixer.rates = rates
        return mixer.distance(step)

    rows: list[Bound] = []
    ways: tuple[tuple[str, Callable[[float, list[float]], float]], ...] = (
        ("quadratic bounds", fixed_point._distance), ("sites", of_sites),
    )  # fmt: skip
    for name, distance in ways:
        for rates, factor in (
            ([-0.5], 1.0),
            ([0.5, -0.5], 2.0),
            ([1.0], _SLOWEST),
            ([3.0], _SLOWEST),
            ([0.9, 0.5, 0.75, 0.2, 0.1, 0.3], 4.0),  # of six the last five
        ):
            ask = lambda distance=distance, rates=rates: distance(0.25, list(rates)) / 0.25  # noqa: E731
            rows += [Bound(f"{name}, rates {rates}: steps to go", ask, factor, 1e-7 * factor)]

    def ritz(value: float) -> float:
        known: Any = mixing.Mixing()
        known.moved, known.changed = [np.ones(2), np.arange(2.0)], [np.ones(2), np.ones(2)]
        with mock.patch.object(mixing, "largest_ritz_value", return_value=value):
            return float(known.rate(lambda part: part))

    def of_energies(rate: float) -> float:
        here = SimpleNamespace(change=SimpleNamespace(residual=2.0))
        run: Any = SimpleNamespace(q=None, _mixing=SimpleNamespace(rate=lambda _: rate), here=here)
        with mock.patch.object(alpha_runs, "_Frame", return_value=SimpleNamespace(into=None)):
            return float(alpha_runs.EnergyRun.distance(run))

    def damped() -> float:
        """Steps that shrink a hundredfold though each goes a tenth of the way: no less than the step is left."""
        remaining = outer_loop._Remaining(0.1, None)
        remaining.after(1.0)
        return remaining.after(0.01)

    rows += [
        Bound("slowest contraction of steps that swing", lambda: ritz(-0.4), 0.0),
        Bound("and of others", lambda: ritz(0.4), 0.4),
        Bound("energies: a rate of a half", lambda: of_energies(0.5), 4.0, 1e-12),
        Bound("energies: a rate above one", lambda: of_energies(1.5) / _SLOWEST, 2.0, 1e-6),
        Bound("damped outer steps", damped, 0.01),
    ]
    yield from held(rows, "fast")


@check(
    "identity/mh-softmax/acceptances",
    paper="riihimaki2013",
    question="Are acceptances of paths probabilities, and are starts moved towards the centre, never away from it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import softmax_annealed
    from gibbs.models import hyper_models, softmax, threshold
    from gibbs.moves import softmax as moves

    rng = np.random.default_rng(17)
    n, C = 4, 3
    X = np.arange(float(n))[:, None]
    cov = np.stack([np.exp(-0.5 * np.square(X - X.T)) + 0.3 * np.eye(n)] * C)
    y = np.array([0, 1, 2, 0])
    target = moves.make_target(cov, y)
    reference = moves.make_reference(*moves.laplace(target), target)
    white = rng.standard_normal((300, target.factor.shape[0]))
    paths = moves.flow_move(rng, white, target, reference, 1.4, 2)[1]

    def climbed(latent: Array, *_: Any) -> Array:
        return -0.7 * np.square(latent).sum(axis=(1, 2))

    model: Any = SimpleNamespace(
        n_latents=C, y=y, grouped=lambda values: values.reshape(len(values), 1, C, n), log_likelihood=climbed,
        log_likelihood_gradient=lambda latent: -1.4 * latent,
    )  # fmt: skip
    turned = hyper_models.HyperModel.rotation_move(
        model, rng, rng.standard_normal((300, 1, C, n)), np.tile(np.eye(n), (300, 1, 1, 1)), np.full(300, 0.8)
    )[1]
    p = white.shape[1]
    annealed, around = softmax_annealed._model(cov, y), softmax_annealed._Around(np.full(p, 0.3), np.eye(p), 1.2)
    alone = np.array([softmax_annealed._path(rng, annealed, 1.0, around, one[None], 2)[1] for one in white[:60]])
    for name, taken in (
        ("rotations around the mode", paths),
        ("rotations around the prior", turned),
        ("particles, one at a time", alone),
    ):
        wrong = int(np.count_nonzero(~((taken >= 0.0) & (taken <= 1.0))))
        yield flaws(wrong, f"{name}: {taken.min():.3g} to {taken.max():.3g}", "gibbs", "probabilities")
        sure = float((taken == 1.0).mean())
        yield flaws(not 0.1 < sure < 0.9, f"{name}: {sure:.0%} go down and are taken for sure", "gibbs", "shares")

    # latent values so near to the centre that nothing is rough: they stay where they are
    start = 1e-3 * rng.standard_normal((2, C, n))
    start[:, y, np.arange(n)] = 2e-2
    given: Any = SimpleNamespace(chol_cov=np.linalg.cholesky(cov))
    shift = moves.shift_distribution(cov)

    def of_softmax() -> Array:
        with mock.patch.object(softmax, "overdispersed", return_value=start):
            made = softmax._Softmax(given, target, shift, (), 0, 1)
            return np.asarray(made.start(np.random.default_rng(1), 2)["white"]) - moves.to_white(start, target)

    def of_threshold() -> Array:
        with mock.patch.object(threshold, "overdispersed", return_value=start):
            made = threshold._Threshold(given, np.asarray(np.linalg.inv(cov), dtype=np.float64), y, 0.1, ())
            return np.asarray(made.start(np.random.default_rng(1), 2)["auxiliary"]) - start

    yield from held(
        [
            Bound("start of softmax near its centre", of_softmax, 0.0),
            Bound("start of threshold near its centre", of_threshold, 0.0),
        ],
        "gibbs",
    )
