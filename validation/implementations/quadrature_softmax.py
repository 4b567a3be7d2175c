"""The judge's own truth for tiny softmax problems, full GP and FITC: a product trapezoidal rule over class differences.

The likelihood sees e_c = f_c - f_0, c = 1..C-1, only: n (C - 1) <= 4 dimensions, whose prior is Gaussian; all else is
linear in e. In white coordinates the integrand decays like a Gaussian and is analytic in a strip, so that the rule
converges exponentially (Trefethen and Weideman 2014); its error is stated from two spacings. For the class at a test
point the coordinates are turned so that the first C - 1 of them carry all that the data say there: the softmax is
smoothed once for each of their nodes, by a rule of the same kind.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, cho_solve
from scipy.special import ndtr, softmax

from validation.door import arguments
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.implementations.common import cholesky
from validation.implementations.quadrature_orthant import LatentPrior, latent_prior
from validation.implementations.quadrature_rule import spacing

Array = NDArray[np.float64]
_MOST_NODES = 2e7
_DIMENSIONS = 4


class _Setting(NamedTuple):
    priors: list[LatentPrior]
    A: Array  # (p, C n) differences with class 0, of values in the order of classes and then of data
    S: Array  # (p, p) their prior covariance
    root: Array  # (p, p) its lower factor
    stretch: float  # largest prior sd of a difference between two classes, at the data and test points


def solve_softmax(problem: Problem, *, digits: float = 8.0) -> Solution:
    """Evidence, moments and class probabilities, with their errors in `settings`.

    Raises ValueError for another likelihood, for n (C - 1) > 4, and where the likelihood is so sharp under the prior
    that the rule would need more than twenty million nodes. Ten million nodes take some seconds, and as long again for
    each test point.
    """
    if problem.likelihood != "softmax":
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected 'softmax' for softmax quadrature")
    if not 3.0 <= arguments.real(digits, "digits") <= 12.0:
        raise ValueError(f"digits: found {shown(digits)}, expected 3 to 12")
    n, C = problem.n, problem.n_classes
    dimensions = n * (C - 1)
    if dimensions > _DIMENSIONS:
        raise ValueError(f"X: found n (C - 1) = {dimensions}, expected at most {_DIMENSIONS} for softmax quadrature")
    setting = _prepare(problem)
    fine, coarse = (_answers(problem, setting, q) for q in (digits, digits * 2.0 / 3.0))
    # the prior's mass beyond the radius weighs more where the evidence is small, and in the squares of moments
    radius = _radius(digits)
    tail = 2.0 * float(ndtr(-radius)) * dimensions * (1.0 + radius**2) / np.exp(fine["log_evidence"])
    rounding = np.finfo(float).eps * (1e2 + np.sqrt(np.linalg.cond(setting.S))) + tail
    errors = {
        f"error_{key}": float(np.abs(np.subtract(value, coarse[key])).max(initial=0.0))
        + rounding * float(np.abs(value).max(initial=1.0))
        for key, value in fine.items()
    }
    return Solution(
        problem=problem,
        implementation="quadrature",
        method="exact",
        log_evidence_kind="exact",
        settings={"digits": digits, **errors},
        **fine,
    )


def _prepare(problem: Problem) -> _Setting:
    n, C = problem.n, problem.n_classes
    priors = [latent_prior(problem, c) for c in range(C)]
    A = np.concatenate([-np.tile(np.eye(n), (C - 1, 1)), np.eye((C - 1) * n)], axis=1)
    S = A @ block_diag(*[prior.cov for prior in priors]) @ A.T
    root = cholesky(S, "differences of K_XX", "raise noise or jitter, or remove duplicate rows of X")
    # the two broadest classes at a point: the softmax has no pole while all differences stay within π of the axis
    at_data = np.sort(np.array([np.diag(prior.cov) for prior in priors]), axis=0)[-2:].sum(axis=0)
    at_test = np.sort(np.array([prior.test_var for prior in priors]), axis=0)[-2:].sum(axis=0)
    return _Setting(priors, A, S, root, float(np.sqrt(max(at_data.max(), at_test.max(initial=0.0)))))


def _radius(digits: float) -> float:
    """Half-width in prior standard deviations: the density beyond it is 10^-(digits + 1.5) of its peak."""
    return float(np.sqrt(2.0 * (digits + 1.5) * np.log(10.0)))


def _axis(setting: _Setting, p: int, digits: float) -> tuple[float, Array]:
    step = spacing(np.pi, setting.stretch, digits)
    half_count = int(np.ceil(_radius(digits) / step))
    nodes = float(2 * half_count + 1) ** p
    if nodes > _MOST_NODES:
        raise ValueError(
            f"variance: found differences of sd {setting.stretch:.3g}, for which {digits:.3g} digits need {nodes:.1e} "
            f"nodes, expected at most {_MOST_NODES:.0e}; lower digits"
        )
    return step, np.asarray(step * np.arange(-half_count, half_count + 1), dtype=np.float64)


def _grid(axis: Array, dimensions: int) -> Array:
    """All nodes of a product rule, (k^dimensions, dimensions); one empty row for none."""
    mesh = np.meshgrid(*[axis] * dimensions, indexing="ij")
    return np.stack([g.ravel() for g in mesh], axis=1) if dimensions else np.zeros((1, 0))


def _likelihood(problem: Problem, e: Array) -> Array:
    """p(y | e), (k,), for differences e (k, p)."""
    by_class = e.T.reshape(problem.n_classes - 1, problem.n, len(e))
    out = np.ones(len(e))
    with np.errstate(over="ignore"):  # 1/inf = 0 is right to 1e-308
        for i, label in enumerate(problem.y):
            own = by_class[label - 1, i] if label else np.zeros(len(e))
            others = [by_class[c - 1, i] - own for c in range(1, problem.n_classes) if c != label]
            out /= 1.0 + np.exp(-own) * bool(label) + np.sum([np.exp(gap) for gap in others], axis=0)
    return out


def _answers(problem: Problem, setting: _Setting, digits: float) -> dict[str, Any]:
    p, C = len(setting.root), problem.n_classes
    step, axis = _axis(setting, p, digits)
    rest = _grid(axis, p - 1)
    bell = np.exp(-0.5 * np.square(rest).sum(axis=1))
    mass, first, second = 0.0, np.zeros(p), np.zeros((p, p))
    for x in axis:  # one slab at a time
        white = np.column_stack([np.full(len(rest), x), rest])
        weight = np.exp(-0.5 * x * x) * bell * _likelihood(problem, white @ setting.root.T)
        mass += float(weight.sum())
        first += weight @ white
        second += (white * weight[:, None]).T @ white
    centre = first / mass
    mean = setting.root @ centre
    cov = setting.root @ (second / mass - np.outer(centre, centre)) @ setting.root.T
    log_evidence = float(np.log(mass) + p * np.log(step / np.sqrt(2.0 * np.pi)))

    # E[target | y] and the shift of its covariance: gain of each class's targets on e, (k, p)
    gains = []
    for c, prior in enumerate(setting.priors):
        block = np.zeros((len(prior.cross), C * problem.n))
        block[:, c * problem.n : (c + 1) * problem.n] = prior.cross
        gains.append(cho_solve((setting.root, True), setting.A @ block.T).T)
    means = np.array([gain @ mean for gain in gains])  # (C, k)
    n, t = problem.n, problem.t
    between = np.einsum("akp,pq,bkq->kab", np.array(gains), cov - setting.S, np.array(gains))
    for c, prior in enumerate(setting.priors):
        between[:, c, c] += np.diag(prior.target_cov)
    out: dict[str, Any] = {"log_evidence": log_evidence, "latent_mean": means[:, :n].T, "latent_cov": between[:n]}
    if problem.X_test is not None:
        out |= {"test_latent_mean": means[:, n : n + t].T, "test_latent_cov": between[n : n + t]}
        at_test = np.array(gains)[:, n : n + t]
        chosen = np.array([_chosen(problem, setting, at_test[:, j], j, digits) for j in range(t)]).reshape(t, C)
        out |= {"probabilities": chosen / chosen.sum(axis=1, keepdims=True), "probability_mass": chosen.sum(axis=1)}
    if problem.Z is not None:
        out["inducing_mean"] = means[:, n + t :]
        out["inducing_cov"] = np.array(
            [
                prior.target_cov[n + t :, n + t :] + gain[n + t :] @ (cov - setting.S) @ gain[n + t :].T
                for prior, gain in zip(setting.priors, gains, strict=True)
            ]
        )
    return out


def _chosen(problem: Problem, setting: _Setting, gains: Array, test: int, digits: float) -> Array:
    """p(y* = c | y), (C,), at one test point: gains (C, p) of the latent values there on e."""
    C, p = problem.n_classes, len(setting.root)
    step, axis = _axis(setting, p, digits)
    differences = np.concatenate([-np.ones((C - 1, 1)), np.eye(C - 1)], axis=1)
    gain = differences @ gains @ setting.root  # e* given white: gain white + N(0, left)
    prior = differences @ np.diag([float(q.test_var[test]) for q in setting.priors]) @ differences.T
    values, vectors = np.linalg.eigh(prior - gain @ gain.T)
    spread = vectors * np.sqrt(np.maximum(values, 0.0))
    turn, triangle = np.linalg.qr(gain.T, mode="complete")  # gain = triangleᵀ turnᵀ
    carried, rest = _grid(axis, C - 1), _grid(axis, p - (C - 1))
    xi = carried
    mass = np.empty(len(carried))
    rows = max(1, int(2e5) // len(rest))
    from_carried, from_rest = np.split(setting.root @ turn, [C - 1], axis=1)
    left = rest @ from_rest.T
    bell = np.exp(-0.5 * np.square(rest).sum(axis=1))
    for start in range(0, len(carried), rows):
        part = carried[start : start + rows]
        e = (part @ from_carried.T)[:, None] + left
        inner = _likelihood(problem, e.reshape(-1, p)).reshape(len(part), -1) @ bell
        mass[start : start + rows] = inner * np.exp(-0.5 * np.square(part).sum(axis=1))
    mass /= mass.sum()
    moved = carried @ triangle[: C - 1]
    shifts, weight = xi @ spread.T, np.exp(-0.5 * np.square(xi).sum(axis=1)) * (step / np.sqrt(2.0 * np.pi)) ** (C - 1)
    result = np.zeros(C)
    rows = max(1, int(1e6) // len(shifts))
    for start in range(0, len(moved), rows):
        e = moved[start : start + rows, None] + shifts
        probability = softmax(np.concatenate([np.zeros((*e.shape[:2], 1)), e], axis=2), axis=2)
        result += np.einsum("k,s,ksc->c", mass[start : start + rows], weight, probability, optimize=True)
    return result
