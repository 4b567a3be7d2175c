"""The judge's own truth for tiny softmax problems, full GP: a product trapezoidal rule over class differences.

The likelihood sees e_c = f_c - f_0, c = 1..C-1, only: n (C - 1) <= 4 dimensions, whose prior is Gaussian; all else is
linear in e. In white coordinates the integrand decays like a Gaussian and is analytic in a strip, so that the rule
converges exponentially (Trefethen and Weideman 2014); its error is stated from two spacings.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, cho_solve
from scipy.special import log_softmax

from validation.implementations.common import cholesky
from validation.problem import Problem
from validation.solution import Solution

Array = NDArray[np.float64]
_RADIUS = 6.5  # in prior standard deviations: the tails left out weigh 8e-11 each
_MOST_NODES = 2e7
_DIMENSIONS = 4


def solve_softmax(problem: Problem) -> Solution:
    """Evidence and moments at data and test points, with their errors in `settings`; no class probabilities.

    Raises ValueError for another likelihood, kernel or prior model, for n (C - 1) > 4, and where the likelihood is so
    sharp under the prior that the rule would need more than twenty million nodes.
    """
    if problem.likelihood != "softmax":
        raise ValueError(f"likelihood: found {problem.likelihood!r}, expected 'softmax' for softmax quadrature")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {problem.kernel!r}, expected 'se' for softmax quadrature")
    if problem.prior_model != "full":
        raise ValueError(f"prior_model: found {problem.prior_model!r}, expected 'full' for softmax quadrature")
    dimensions = problem.n * (problem.n_classes - 1)
    if dimensions > _DIMENSIONS:
        raise ValueError(f"X: found n (C - 1) = {dimensions}, expected at most {_DIMENSIONS} for softmax quadrature")
    n, C = problem.n, problem.n_classes
    prior = np.stack([_kernel(problem, c, problem.X, problem.X) for c in range(C)])
    on_X = problem.noise + (problem.jitter if problem.Z is None else 0.0)
    prior += on_X[:, None, None] * np.eye(n)
    joint = block_diag(*prior)  # class by class
    A = np.concatenate([-np.tile(np.eye(n), (C - 1, 1)), np.eye((C - 1) * n)], axis=1)
    S = A @ joint @ A.T
    root = cholesky(S, "differences of K_XX", "raise noise or jitter, or remove duplicate rows of X")
    # half-width of the strip of log Σ exp is π in f; the most stretched direction decides
    stretch = float(np.sqrt(np.linalg.eigvalsh(S)[-1]))
    spacing = min(0.5, 2.0 * np.pi * (np.pi / stretch) / np.log(1e6))
    nodes = (2.0 * _RADIUS / spacing + 1.0) ** dimensions
    if nodes > _MOST_NODES:
        raise ValueError(
            f"variance: found {problem.variance.max():.6g}, for which the rule needs {nodes:.1e} nodes, "
            f"expected at most {_MOST_NODES:.0e}"
        )
    fine = _integrate(problem, root, spacing)
    coarse = _integrate(problem, root, 1.5 * spacing)
    found, errors = {}, {}
    for key, value in _answers(problem, joint, A, S, root, fine).items():
        other = _answers(problem, joint, A, S, root, coarse)[key]
        found[key] = value
        errors[f"error_{key}"] = float(np.abs(value - other).max(initial=0.0) + 1e-8 * np.abs(value).max(initial=1.0))
    log_evidence = float(found.pop("log_evidence"))
    return Solution(
        problem=problem,
        implementation="quadrature",
        method="exact",
        log_evidence=log_evidence,
        log_evidence_kind="exact",
        settings=errors,
        **found,  # type: ignore[arg-type]
    )


def _kernel(problem: Problem, c: int, A: Array, B: Array) -> Array:
    difference = (A[:, None] - B[None]) / problem.lengthscales[c]
    return np.asarray(problem.variance[c] * np.exp(-0.5 * (difference**2).sum(-1)))


def _integrate(problem: Problem, root: Array, spacing: float) -> tuple[float, Array, Array]:
    """log Z, mean and covariance of e."""
    p, n, C = len(root), problem.n, problem.n_classes
    half = int(np.ceil(_RADIUS / spacing))
    axis = spacing * np.arange(-half, half + 1)
    rest = np.stack([g.ravel() for g in np.meshgrid(*[axis] * (p - 1), indexing="ij")], axis=1)
    mass, first, second = 0.0, np.zeros(p), np.zeros((p, p))
    for x in axis:  # one slab at a time
        white = np.column_stack([np.full(len(rest), x), rest])
        e = white @ root.T
        f = np.concatenate([np.zeros((len(e), 1, n)), e.reshape(len(e), C - 1, n)], axis=1)
        log_lik = log_softmax(f, axis=1)[:, problem.y, np.arange(n)].sum(axis=1)
        weight = np.exp(log_lik - 0.5 * (white**2).sum(axis=1))
        mass += float(weight.sum())
        first += weight @ white
        second += (white * weight[:, None]).T @ white
    mean = first / mass
    cov = second / mass - np.outer(mean, mean)
    return float(np.log(mass) + p * np.log(spacing / np.sqrt(2.0 * np.pi))), root @ mean, root @ cov @ root.T


def _answers(
    problem: Problem, joint: Array, A: Array, S: Array, root: Array, found: tuple[float, Array, Array]
) -> dict[str, Array]:
    log_evidence, mean, cov = found
    C = problem.n_classes

    def moments(cross: Array, prior: Array) -> tuple[Array, Array]:
        """cross (k, C, n) covariances of values, class by class, with f at the data of the same class."""
        means, covs = [], []
        for row in cross:
            gain = cho_solve((root, True), A @ block_diag(*row[:, None]).T).T  # (C, p)
            means.append(gain @ mean)
            covs.append(np.diag(prior) + gain @ (cov - S) @ gain.T)
        return np.array(means).reshape(-1, C), np.array(covs).reshape(-1, C, C)

    n = problem.n
    blocks = np.stack([joint[c * n : (c + 1) * n, c * n : (c + 1) * n] for c in range(C)])
    out: dict[str, Array] = {"log_evidence": np.array(log_evidence)}
    out["latent_mean"], out["latent_cov"] = moments(np.swapaxes(blocks, 0, 1), blocks[:, 0, 0])
    if problem.X_test is not None:
        cross = np.stack([_kernel(problem, c, problem.X_test, problem.X) for c in range(C)], axis=1)
        out["test_latent_mean"], out["test_latent_cov"] = moments(cross, problem.variance + problem.noise)
    return out
