"""The judge's own truth for n <= 3: a product trapezoidal rule over the latent values of a binary problem.

Problems of several classes go to `quadrature_orthant` (threshold rule and multinomial probit, n <= 2) and
`quadrature_softmax` (n (C - 1) <= 4).

The posterior is a density in at most three dimensions. In coordinates in which the prior is standard normal the
integrand decays like a Gaussian and is analytic in a strip, so that the trapezoidal rule converges exponentially
(Trefethen and Weideman 2014); its error is stated from two spacings. Nothing here is shared with a witness.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.linalg import solve_triangular
from scipy.special import expit, log_expit, log_ndtr, logsumexp, ndtr

from validation.door import arguments
from validation.door.options import checked
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.implementations.common import NotPositiveDefiniteError, cholesky, two_columns
from validation.implementations.quadrature_orthant import LIKELIHOODS, solve_orthant
from validation.implementations.quadrature_rule import kernel, spacing
from validation.implementations.quadrature_softmax import solve_softmax

Array = NDArray[np.float64]

methods = ("exact",)

# half-width in prior standard deviations: the tails left out weigh 2 (1 - Φ(7.5)) ≈ 6e-14
_RADIUS = 7.5

# nodes of the product rule: some ten seconds
_MOST_NODES = 2e7


class _Likelihood(NamedTuple):
    log: Callable[[Array], Array]
    of: Callable[[Array], Array]
    strip: float  # distance from the real line to the nearest singularity, in units of f


_LIKELIHOODS = {
    "logit": _Likelihood(log_expit, expit, np.pi),
    # the normal c.d.f. is entire; its growth off the axis limits the useful strip to about this
    "probit": _Likelihood(log_ndtr, ndtr, 2.0),
}


class _Digits:
    """The one option of the judge's own truth."""

    name, default, expected = "digits", 8.0, "a number in [3, 12]"
    meaning = "digits that the integrals are to have"

    def check(self, value: Any, n: int | None = None) -> float:
        digits = arguments.real(value, self.name)
        if not 3.0 <= digits <= 12.0:
            raise ValueError(f"{self.name}: found {shown(digits)}, expected {self.expected}")
        return digits


def answer(method: str, problem: Problem, **options: object) -> Solution:
    """Evidence, moments and probabilities by quadrature, with their error in `settings`."""
    return _solve(problem, **checked("quadrature", method, options, problem.n))


answer.methods = methods  # type: ignore[attr-defined]
answer.options = lambda method: {"digits": _Digits()}  # type: ignore[attr-defined]


def _solve(problem: Problem, *, digits: float = 8.0) -> Solution:
    if problem.likelihood == "softmax":
        return solve_softmax(problem, digits=digits)
    if problem.likelihood in LIKELIHOODS:
        return solve_orthant(problem, digits=digits)
    if problem.likelihood not in _LIKELIHOODS:
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected logit or probit for quadrature")
    if problem.n > 3:
        raise ValueError(f"X: found n = {problem.n}, expected n <= 3 for quadrature")
    if not 3.0 <= arguments.real(digits, "digits") <= 12.0:
        raise ValueError(f"digits: found {shown(digits)}, expected 3 to 12")
    prior = _prior(problem)
    fine = _integrate(problem, prior, digits)
    # two thirds of the digits: how far the coarse rule is from the fine one bounds the error of the fine one
    coarse = _integrate(problem, prior, digits * 2.0 / 3.0)
    # what rounding leaves in the sums and in the triangular solves (the factor's condition is the root of K's)
    rounding = np.finfo(float).eps * (1e2 + np.sqrt(np.linalg.cond(prior.K)))
    # the prior's mass beyond the radius, in n directions, weighs more where the evidence is small and in f²
    rounding += 2.0 * problem.n * ndtr(-_RADIUS) * (1.0 + _RADIUS**2) / np.exp(float(fine["log_evidence"]))
    errors = {}
    for key, value in fine.items():
        gap = np.abs(np.asarray(value) - np.asarray(coarse[key])).max(initial=0.0)
        errors[f"error_{key}"] = float(gap + rounding * np.abs(value).max(initial=1.0))
    with_test = problem.X_test is not None
    return Solution(
        problem=problem,
        implementation="quadrature",
        method="exact",
        log_evidence=float(fine["log_evidence"]),
        log_evidence_kind="exact",
        latent_mean=fine["latent_mean"][:, None],
        latent_cov=fine["latent_cov"][:, None, None],
        test_latent_mean=fine["test_latent_mean"][:, None] if with_test else None,
        test_latent_cov=fine["test_latent_cov"][:, None, None] if with_test else None,
        probabilities=two_columns(fine["probabilities"]) if with_test else None,
        probability_mass=np.ones(problem.t) if with_test else None,
        inducing_mean=fine["inducing_mean"][None],
        inducing_cov=fine["inducing_cov"][None],
        settings={"digits": digits, **errors},
    )


class _Prior(NamedTuple):
    K: Array  # (n, n) prior covariance of the latent values, under the problem's prior model
    K_test: Array  # (t, n)
    k_test: Array  # (t,)
    K_u: Array  # (m, n)
    K_uu: Array  # (m, m)


def _prior(problem: Problem) -> _Prior:
    X, noise, jitter = problem.X, problem.noise[0], problem.jitter[0]
    X_test = problem.X_test if problem.X_test is not None else np.empty((0, problem.d))
    k_test = np.full(len(X_test), problem.variance[0] + noise)
    if problem.Z is None:
        K = kernel(problem, 0, X, X) + (noise + jitter) * np.eye(problem.n)
        return _Prior(K, kernel(problem, 0, X_test, X), k_test, K, K)
    Z = problem.Z[0]
    K_uu = kernel(problem, 0, Z, Z) + jitter * np.eye(len(Z))
    K_u = kernel(problem, 0, Z, X)
    if problem.prior_model == "full":
        K = kernel(problem, 0, X, X) + noise * np.eye(problem.n)
        return _Prior(K, kernel(problem, 0, X_test, X), k_test, K_u, K_uu)
    root = cholesky(K_uu, "K_ZZ", "raise jitter or remove duplicate rows of Z")
    white = solve_triangular(root, K_u, lower=True)  # (m, n)
    white_test = solve_triangular(root, kernel(problem, 0, Z, X_test), lower=True)  # (m, t)
    K = white.T @ white
    np.fill_diagonal(K, problem.variance[0] + noise)
    return _Prior(K, white_test.T @ white, k_test, K_u, K_uu)


def _integrate(problem: Problem, prior: _Prior, digits: float) -> dict[str, Array]:
    likelihood, n = _LIKELIHOODS[problem.likelihood], problem.n
    root = cholesky(prior.K, "K_XX", "raise noise or jitter, or remove duplicate rows of X")
    # f = root @ white, white ~ N(0, I): everything else is a linear map of white, and no matrix is inverted
    white_test = solve_triangular(root, prior.K_test.T, lower=True).T  # (t, n)
    white_u = solve_triangular(root, prior.K_u.T, lower=True).T  # (m, n)
    test_cond = prior.k_test - (white_test**2).sum(axis=1)
    if test_cond.size and test_cond.min() < -1e-10 * prior.k_test.max():
        raise NotPositiveDefiniteError(
            f"X_test: found the prior variance {test_cond.min():.3g} given the data, expected >= 0; "
            "raise noise or jitter"
        )
    test_cond = np.maximum(test_cond, 0.0)  # rounding at test points that are data

    # the direction that is stretched most decides
    step = spacing(likelihood.strip, np.sqrt(np.linalg.eigvalsh(prior.K)[-1]), digits)
    half_count = int(np.ceil(_RADIUS / step))
    if (2 * half_count + 1) ** n > _MOST_NODES:
        raise ValueError(
            f"variance: found {problem.variance[0]:.6g}, for which {digits:.3g} digits need {2 * half_count + 1}^{n} "
            f"nodes, expected at most {_MOST_NODES:.0e}; lower digits"
        )
    axis = step * np.arange(-half_count, half_count + 1)
    link = [_smoothed_link(likelihood, w, v, digits) for w, v in zip(white_test, test_cond, strict=True)]

    # one slab of the grid at a time: n = 3 has some millions of nodes
    rest = np.stack([g.ravel() for g in np.meshgrid(*[axis] * (n - 1), indexing="ij")], axis=1)
    log_masses, means, seconds, tests = [], [], [], []
    for first in axis:
        white = np.column_stack([np.full(len(rest), first), rest])
        log_weight = likelihood.log(white @ root.T * problem.y_sign).sum(1) - 0.5 * (white**2).sum(1)
        log_mass = logsumexp(log_weight)
        p = np.exp(log_weight - log_mass)
        log_masses.append(log_mass)
        means.append(p @ white)
        seconds.append((white * p[:, None]).T @ white)
        tests.append([p @ g(white @ w) for g, w in zip(link, white_test, strict=True)])
    log_total = logsumexp(log_masses)
    share = np.exp(np.array(log_masses) - log_total)
    mean = share @ np.array(means)
    cov = np.einsum("s,snm->nm", share, np.array(seconds)) - np.outer(mean, mean)
    return {
        "log_evidence": log_total + n * np.log(step / np.sqrt(2.0 * np.pi)),
        "latent_mean": root @ mean,
        "latent_cov": np.diag(root @ cov @ root.T).copy(),
        "test_latent_mean": white_test @ mean,
        "test_latent_cov": test_cond + np.einsum("tn,nm,tm->t", white_test, cov, white_test),
        "probabilities": np.clip(share @ np.array(tests).reshape(len(axis), -1), 0.0, 1.0),
        "inducing_mean": white_u @ mean,
        "inducing_cov": prior.K_uu - white_u @ white_u.T + white_u @ cov @ white_u.T,
    }


def _smoothed_link(likelihood: _Likelihood, weight: Array, cond: float, digits: float) -> Callable[[Array], Array]:
    """E[p(y=1 | s + √cond ξ)] as a function of s, through a cubic spline on a fine grid.

    s = weight @ white with |white| <= _RADIUS √n. Steps of 0.02 leave below 1e-10: h⁴/384 times the fourth derivative.
    """
    reach = float(np.linalg.norm(weight)) * _RADIUS * np.sqrt(len(weight)) * 1.01 + 1.0
    grid = np.linspace(-reach, reach, int(np.ceil(reach / 0.02)) * 2 + 1)
    sd = np.sqrt(cond)
    step = spacing(likelihood.strip, sd, digits)
    half_count = int(np.ceil(_RADIUS / step))
    xi = step * np.arange(-half_count, half_count + 1)
    density = np.exp(-0.5 * xi**2) * step / np.sqrt(2.0 * np.pi)
    values = np.zeros_like(grid)
    for x, w in zip(xi, density, strict=True):
        values += w * likelihood.of(grid + sd * x)
    return CubicSpline(grid, values, extrapolate=False)
