"""Kernels of chains and of particles, each alone: does one step leave the distribution alone that it is made for?

Exact draws come by rejection from the prior, or from a Gaussian. One step of a kernel is taken from each of them; the
draws after it have the same distribution, so that means and all second moments, cross moments included, may differ by
chance only. The change of each moment is averaged over independent draws: a z statistic, whatever the kernel's
acceptance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from validation.checks.core import NO_PROBLEM, Context, Outcome, Tested, check
from validation.checks.few_data import Few
from validation.checks.standard_errors import LOADINGS, PAPER
from validation.problem import Problem

Array = NDArray[np.float64]
SIZE = 8000
LONG = 16 * SIZE
_BETA = 0.6


class Step(NamedTuple):
    """Independent draws before and after one step, (s, p) each."""

    before: Array
    after: Array


def change(step: Step) -> Array:
    """z of the change of every mean and every second moment."""
    left, right = (value.reshape(len(value), -1) for value in step)
    a, b = np.triu_indices(left.shape[1])
    gap = np.concatenate([right - left, right[:, a] * right[:, b] - left[:, a] * left[:, b]], axis=1)
    error = gap.std(axis=0, ddof=1) / np.sqrt(len(gap))
    # a moment that no step changes is no statistic
    return np.asarray(gap.mean(axis=0)[error > 0.0] / error[error > 0.0])


def _sign(few: Few) -> Array:
    return np.asarray(2.0 * few.y - 1.0, dtype=np.float64)


def _lower(cov: Array) -> Array:
    return np.asarray(np.linalg.cholesky(cov), dtype=np.float64)


def white_logit(rng: np.random.Generator, A: Array, sign: Array, beta: float, size: int) -> Array:
    """Draws of p(ξ) Π σ(y A ξ)^β by rejection: σ^β is at most one."""
    kept, count = [], 0
    while count < size:
        xi = rng.standard_normal((4 * size, A.shape[1]))
        kept.append(xi[rng.random(len(xi)) < expit(sign * (xi @ A.T)).prod(axis=1) ** beta])
        count += len(kept[-1])
    return np.concatenate(kept)[:size]


def _fitc_rows(few: Few) -> tuple[Array, Array]:
    """Rows W with f = W v + √cond e, v and e standard normal, and cond."""
    value = few.blocks[0]
    assert value.cross is not None
    assert value.inducing is not None
    rows: Array = np.asarray(np.linalg.solve(_lower(value.inducing), value.cross).T, dtype=np.float64)
    return rows, np.asarray(few.thetas[0, 0] + few.thetas[0, -1] - np.square(rows).sum(axis=1))


# -- one latent ------------------------------------------------------------------------------------


def _logit(rng: np.random.Generator, size: int) -> Iterator[tuple[str, Step]]:
    from gibbs.draws.polya_gamma import sample_polya_gamma
    from gibbs.evidence import annealed
    from gibbs.models.logit import draw_inducing, draw_latent, draw_residual, ellipse_move, scale_move

    few = Few("logit")
    cov, sign = few.cov[0], _sign(few)
    root = _lower(cov)
    f = few.draws(rng, size)[:, 0]
    yield "ω, then f", Step(f, draw_latent(rng, cov, root, sign, sample_polya_gamma(rng, f)))
    white: Array = np.asarray(np.linalg.solve(root, f.T).T, dtype=np.float64)
    for n_steps in (1, 4):
        factors = scale_move(rng, white, sign * f, n_steps=n_steps)
        yield f"{n_steps} changes of scale", Step(f, factors[:, None] * f)
    prior = rng.standard_normal(f.shape) @ root.T
    cos, sin = ellipse_move(rng, f, prior, sign)
    yield "an ellipse", Step(f, cos[:, None] * f + sin[:, None] * prior)

    rows, cond = _fitc_rows(Few("logit", fitc=True))
    A = np.concatenate([rows, np.diag(np.sqrt(cond))], axis=1)
    xi = white_logit(rng, A, sign, 1.0, size)
    omega = sample_polya_gamma(rng, xi @ A.T)
    v = draw_inducing(rng, rows, cond, sign, omega)
    e = draw_residual(rng, v @ rows.T, cond, sign, omega)
    yield "ω, then u, then f", Step(xi, np.concatenate([v, e], axis=1))

    xi = white_logit(rng, A, sign, _BETA, size)
    around, _ = annealed._match(A, sign, _BETA, np.zeros((2, len(sign))))
    for name, centre in (("the prior", None), ("a Gaussian", around)):
        moved, latent = annealed._slice_moves(rng, A, sign, _BETA, centre, xi, xi @ A.T)
        yield f"an ellipse around {name} at a power", Step(xi, moved)
        yield f"what follows it, around {name}", Step(xi @ A.T, latent)


# -- several latents -------------------------------------------------------------------------------


def _softmax(rng: np.random.Generator, size: int) -> Iterator[tuple[str, Step]]:
    from gibbs.evidence import softmax_annealed
    from gibbs.moves import softmax as moves

    few = Few("softmax")
    f = few.draws(rng, size)
    target = moves.make_target(few.cov, few.y)
    white = moves.to_white(f, target)
    reference = moves.make_reference(*moves.laplace(target), target)
    less = f - f.mean(axis=1, keepdims=True)
    for name, moved in (
        ("three scaled steps", moves.scaled_move(rng, white, target, 0.6, 3)[0]),
        ("two ellipses", moves.ellipse_move(rng, white, target, 2)[0]),
        ("a path around the mode", moves.flow_move(rng, white, target, reference, 0.5, 3)[0]),
        ("a path of large steps", moves.flow_move(rng, white, target, reference, 1.4, 2)[0]),
    ):
        yield name, Step(less, target.latent(moved))
    distribution = moves.shift_distribution(few.cov)
    yield "the common shift", Step(f, moves.draw_shift(rng, less, distribution))

    model = softmax_annealed._model(few.cov, few.y)
    differences = (f[:, :-1] - f[:, -1:]).reshape(size, -1)
    xi: Array = np.asarray(np.linalg.solve(model.factor, differences.T).T, dtype=np.float64)
    p = xi.shape[1]
    around = softmax_annealed._Around(np.full(p, 0.3), _lower(0.4 * np.eye(p) + 0.1), 0.9)
    moved = softmax_annealed._path(rng, model, 1.0, around, xi, 2)[0]
    yield "a path of particles", Step(differences, moved @ model.factor.T)


def _threshold(rng: np.random.Generator, size: int) -> Iterator[tuple[str, Step]]:
    from gibbs.models.threshold import draw_components, draw_indicator
    from gibbs.moves.region import bounce_move, log_step

    for epsilon in (0.0, 0.3):
        few = Few("threshold", epsilon)
        f = few.draws(rng, size)
        precision: Array = np.asarray(np.linalg.inv(few.cov), dtype=np.float64)
        wrong = draw_indicator(rng, f, few.y, epsilon)
        yield f"components, errors {epsilon}", Step(f, draw_components(rng, f, precision, few.y, wrong))
        height = log_step(epsilon, few.n_classes)
        root = _lower(few.cov)
        result = bounce_move(rng, f, few.cov, root, few.y, log_height=height)
        yield f"bounces, errors {epsilon}", Step(f, result.auxiliary)
        result = bounce_move(rng, f, few.cov, root, few.y, log_height=height, max_events=1)
        yield f"bounces, one constraint at most, errors {epsilon}", Step(f, result.auxiliary)


def _probit(rng: np.random.Generator, size: int) -> Iterator[tuple[str, Step]]:
    from gibbs.models.multinomial_probit import draw_auxiliary, draw_auxiliary_binary, draw_latent, smoother, sweep
    from gibbs.moves.region import bounce_move

    few = Few("multinomial-probit")
    h = few.draws(rng, size)
    gain, root = smoother(np.array([value.data for value in few.blocks]))
    f = draw_latent(rng, gain, root, h)
    yield "f, then h", Step(h, draw_auxiliary(rng, f, h, few.y))
    again, fresh = sweep(rng, f, h, few.y, gain, root)
    yield "a sweep", Step(np.concatenate([h, f], axis=1), np.concatenate([fresh, again], axis=1))
    value = bounce_move(rng, h, few.cov, _lower(few.cov), few.y)
    yield "bounces", Step(h, value.auxiliary)
    few = Few("probit")
    h = few.draws(rng, size)
    gain, root = smoother(np.array([value.data for value in few.blocks]))
    f = draw_latent(rng, gain, root, h)
    yield "f, then h, two classes", Step(h, draw_auxiliary_binary(rng, f, few.y))


def _pairwise(rng: np.random.Generator, size: int) -> Iterator[tuple[str, Step]]:
    from gibbs.models import pairwise

    kept, count = [], 0
    while count < size:
        xi = rng.standard_normal((16 * size, 2))
        kept.append(xi[rng.random(len(xi)) < ndtr(xi @ LOADINGS.T).prod(axis=1)])
        count += len(kept[-1])
    xi = np.concatenate(kept)[:size]
    peak = pairwise._peak(LOADINGS)
    zeta = (xi - peak.mode) @ np.linalg.inv(peak.inverse)
    for step in (0.5, 1.4):
        sampler = pairwise._Sampler(LOADINGS, peak, step)
        yield f"a path of steps of {step}", Step(xi, sampler.xi(sampler.path(rng, zeta)[0]))
    yield "an ellipse", Step(xi, sampler.xi(sampler.slices(rng, zeta)))


# -- parameters ------------------------------------------------------------------------------------


def _parameters(rng: np.random.Generator, size: int) -> Iterator[tuple[str, Step]]:
    from gibbs.core.hyperpriors import LogDensity
    from gibbs.moves.hyper import hamiltonian_move, slice_move

    cov = np.array([[1.0, 0.6], [0.6, 0.8]])
    precision, mean = np.linalg.inv(cov), np.array([0.4, -1.0])

    def density(x: Array) -> LogDensity:
        gap = (x - mean) @ precision
        value = -0.5 * (gap * (x - mean)).sum(axis=-1)
        return LogDensity(np.where(x[..., 0] > -0.5, value, -np.inf), -gap)

    x = mean + rng.standard_normal((4 * size, 2)) @ _lower(cov).T
    x = x[x[:, 0] > -0.5][:size]
    for width in (0.4, 1.3):
        yield (
            f"paths of steps of {width}",
            Step(x, hamiltonian_move(rng, x, density, np.full(len(x), width), 3).position),
        )
        line = np.broadcast_to(np.array([1.0, -0.7]), x.shape)

        def along(rows: NDArray[np.int64], at: Array) -> Array:
            return np.asarray(density(at).value)

        yield f"slices of width {4 * width}", Step(x, slice_move(rng, x, line, along, 4 * width).position)


# -- registration ----------------------------------------------------------------------------------


def _outcomes(
    kernels: Callable[[np.random.Generator, int], Iterable[tuple[str, Step]]], size: int
) -> Iterable[Outcome]:
    for name, step in kernels(np.random.default_rng(31), size):
        yield Tested(
            change(step), f"{name}: means and second moments after one step less those before; Holm over a run at 1e-4",
            "gibbs", "exact draws", f"a change by {6.0 / np.sqrt(size):.2f} standard deviations would show",
        )  # fmt: skip


_KERNELS: dict[str, Callable[[np.random.Generator, int], Iterable[tuple[str, Step]]]] = {
    "gibbs-logit": _logit,
    "mh-softmax": _softmax,
    "gibbs-threshold": _threshold,
    "gibbs-probit": _probit,
    "gibbs-pairwise": _pairwise,
}


def _register(
    method: str, kernels: Callable[[np.random.Generator, int], Iterable[tuple[str, Step]]], what: str
) -> None:
    @check(
        f"exactness/{method}/{what}",
        paper=PAPER.get(method, "riihimaki2013"),
        question="Does one step from exact draws leave every mean and second moment alone?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> list[Outcome]:
        return list(_outcomes(kernels, SIZE if context.quick else LONG))


for _method, _kernels in _KERNELS.items():
    _register(_method, _kernels, "one_step")
_register("gibbs-logit", _parameters, "one_step_of_parameters")
