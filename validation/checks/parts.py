"""Work in parts: draws, data and particles that are taken so many at a time give what they give all at once.

How many is a constant of each module, larger than the problems of other checks. Here it is a few, so that there are
many parts and the last is shorter than the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from validation.checks import hyper_model as own
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.few_data import Few
from validation.checks.standard_errors import _fitc_parts as fitc_parts
from validation.problem import Problem

Array = NDArray[np.float64]
PAPER = "riihimaki2013"


class Worked(NamedTuple):
    """Something that is worked in parts: the module, how many at a time, and what it gives."""

    what: str
    module: Any
    limits: dict[str, int]
    function: Callable[[], Iterable[Any]]


def _still(uniform: float = 0.5) -> Any:
    """A generator without chance: no normals, and the same uniforms, of one half in other ranges."""
    return SimpleNamespace(
        standard_normal=lambda shape: np.zeros(shape), random=lambda size: np.full(size, uniform),
        uniform=lambda low, high, size: np.full(size, 0.5 * (low + high)),
    )  # fmt: skip


def _worked() -> Iterable[Worked]:
    from gibbs.evidence import bridge, chib, softmax_annealed, softmax_bridge
    from gibbs.models import exact_probit, multilatent, quadrature, softmax_probability

    rng = np.random.default_rng(41)
    mean, var = 2.0 * rng.standard_normal((23, 4)), rng.uniform(0.2, 3.0, 4)
    yield Worked("probabilities of the largest value", multilatent, {"_VALUES": 900},
                 lambda: [multilatent.argmax_probability(mean, var)])  # fmt: skip
    yield Worked("probabilities of the softmax", softmax_probability, {"_BLOCK": 900},
                 lambda: [softmax_probability.softmax_probability(mean, var)])  # fmt: skip
    wide = np.exp(2.0 * rng.standard_normal((23, 4)))
    yield Worked("means of logistics, narrow and wide", quadrature, {"_ROWS": 7},
                 lambda: [quadrature.logistic_normal_mean(mean, wide)])  # fmt: skip

    few = Few("logit", fitc=True)
    sign = np.array([-1.0, 1.0])
    u = rng.standard_normal((2, 130, 2))
    yield Worked("averages over f given u", bridge, {"_BLOCK": 50},
                 lambda: bridge.log_evidence_fitc(np.random.default_rng(1), *fitc_parts(few), sign, u)[:3])  # fmt: skip
    omega = rng.uniform(0.05, 0.3, (2, 70, 2))
    yield Worked("precisions of Chib's densities", chib, {"_BLOCK": 25},
                 lambda: chib.log_evidence_full(few.cov[0], sign, omega)[:3])  # fmt: skip

    classes = Few("softmax")
    f = classes.draws(rng, 2 * 130).reshape(2, 130, 3, 2).swapaxes(2, 3)
    yield Worked("densities of contrasts", softmax_bridge, {"_BLOCK": 50}, lambda: softmax_bridge.log_evidence(
        np.random.default_rng(1), classes.cov, classes.y, f)[:3])  # fmt: skip
    model = softmax_annealed._model(classes.cov, classes.y)
    around = softmax_annealed._Around(np.full(4, 0.2), 0.8 * np.eye(4), 0.1)
    xi = rng.standard_normal((23, 4))
    for name, uniform in (("taken", 0.5), ("refused", 1.0)):
        yield Worked(f"paths of particles, {name}", softmax_annealed, {"_BLOCK": 5}, partial(
            lambda uniform: softmax_annealed._path(_still(uniform), model, 0.7, around, xi, 4), uniform))  # fmt: skip

    white, loadings = rng.standard_normal((23, 4)), rng.standard_normal((4, 5, 3))
    root = rng.standard_normal((5, 3, 3))
    conditional = root @ np.swapaxes(root, 1, 2)
    yield Worked("moments over exact draws", exact_probit, {"_VALUES": 70},
                 lambda: exact_probit._average(white, loadings, conditional))  # fmt: skip


@check(
    "invariance/gibbs-logit/work_in_parts",
    paper="wenzel2019",
    question="Does everything that is worked in parts give what it gives in one?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    for entry in _worked():
        whole = [np.asarray(value) for value in entry.function()]
        with ExitStack() as stack:
            for limit, value in entry.limits.items():
                stack.enter_context(mock.patch.object(entry.module, limit, value))
            parted = [np.asarray(value) for value in entry.function()]
        worst = max(own.difference(a, b) for a, b in zip(parted, whole, strict=True))
        # products of matrices of other shapes are added up in another order
        yield Compared(worst, 1e-11, entry.what, "gibbs", "gibbs")


@check(
    "identity/exact-probit/latent_values_in_parts",
    paper=PAPER,
    question="Are latent values given exact draws those of dense conditioning, in however many parts they are drawn?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import exact_probit

    for few in (Few("multinomial-probit"), Few("threshold"), Few("probit")):
        unit = own.unit_noise(few.likelihood)
        K = few.cov - unit * np.eye(2)
        constraints = exact_probit._constraints(few.y, few.n_classes, few.n_latents)
        D = constraints.datum.size
        order = np.arange(D)[::-1]
        # rows of the constraints, in all values of all latents
        rows = np.zeros((D, few.n_latents, 2))
        rows[np.arange(D), :, constraints.datum] = constraints.signs
        A = rows.reshape(D, -1)
        prior = np.zeros((A.shape[1], A.shape[1]))
        for k, one in enumerate(K):
            prior[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = one
        G = A @ (prior + unit * np.eye(len(prior))) @ A.T
        factor = np.linalg.cholesky(G[np.ix_(order, order)])
        tilting: Any = SimpleNamespace(order=order, factor=factor)
        given: Any = SimpleNamespace(constraints=constraints, unit_noise=unit, tilting=tilting,
                                     prior=SimpleNamespace(K_XX=K))  # fmt: skip
        loadings = exact_probit._loadings(given, K)
        white = np.random.default_rng(42).standard_normal((7, D))
        g = np.empty_like(white)
        g[:, order] = white @ factor.T
        wanted = (g @ np.linalg.solve(G, A @ prior)).reshape(7, few.n_latents, 2)
        for parts in (100, 3):
            with mock.patch.object(exact_probit, "_DRAW_BLOCK", parts):
                came = exact_probit._draw_latent(_still(), given, white, loadings)
            worst = own.difference(came, np.moveaxis(wanted, 1, 2))
            yield Compared(worst, 1e-9, f"{few.likelihood}, {parts} at a time: means given g", "gibbs",
                           "dense algebra", "absolute")  # fmt: skip


@check(
    "identity/exact-probit/averages_in_parts",
    paper=PAPER,
    question="Are probabilities and their errors those of all draws, in however many parts they are worked?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import exact_probit

    rng = np.random.default_rng(33)
    s, t, D = 23, 5, 4
    white = rng.standard_normal((s, D))
    x = np.linspace(-12.0, 12.0, 1201)
    height = np.exp(-0.5 * x**2) * (x[1] - x[0]) / np.sqrt(2.0 * np.pi)
    for L, unit in ((1, 1.0), (2, 0.0), (2, 1.0), (3, 1.0)):
        loadings = rng.standard_normal((D, t, L))
        root = rng.standard_normal((t, L, L))
        # three classes as independent ones of one variance: then nothing is drawn
        conditional = rng.uniform(0.3, 2.0, (t, 1, 1)) * np.eye(L) if L == 3 else root @ np.swapaxes(root, 1, 2)
        means = np.einsum("sd,dtl->stl", white, loadings)
        if L == 3:
            gap = means / np.sqrt(conditional[:, :1, 0] + unit)
            above = ndtr(x + gap[..., :, None, None] - gap[..., None, :, None])  # (s, t, c, j, x)
            above[..., np.arange(3), np.arange(3), :] = 1.0
            p = above.prod(axis=-2) @ height
        else:
            contrast = np.array([1.0]) if L == 1 else np.array([-1.0, 1.0])
            var = np.einsum("l,tlk,k->t", contrast, conditional, contrast) + L * unit
            plus = ndtr(means @ contrast / np.sqrt(var))
            p = np.stack([1.0 - plus, plus], axis=-1)
        p /= p.sum(axis=2, keepdims=True)
        average = p.mean(axis=0)
        wanted = (average / average.sum(axis=1, keepdims=True), p.std(axis=0, ddof=1) / np.sqrt(s))
        for name, limits in (("whole", {}), ("in parts", {"_BLOCK": 2, "_DRAW_BLOCK": 7, "_VALUES": 600})):
            with ExitStack() as stack:
                for limit, value in limits.items():
                    stack.enter_context(mock.patch.object(exact_probit, limit, value))
                came = exact_probit._probabilities(np.random.default_rng(34), white, loadings, conditional, unit)
            worst = max(own.difference(left, right) for left, right in zip(came, wanted, strict=False))
            # of three classes rounding leaves a millionth of a per cent of a deviation to draw
            most = 1e-7 if L == 3 else 1e-10
            yield Compared(worst, most, f"{L} latents, noise {unit:g}, {name}", "gibbs", "definition", "absolute")
            yield Compared(own.difference(came[2], np.ones(t)), 1e-10, f"{L} latents, {name}: all of the mass", "gibbs",
                           "definition", "absolute")  # fmt: skip
