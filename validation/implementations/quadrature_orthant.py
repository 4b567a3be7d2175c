"""The judge's truth for the threshold rule and the multinomial probit, any C and n <= 2, by quadrature.

Both say that of h_i^1 .. h_i^C, Gaussian and independent between classes, the one of the label is the largest; h = f
for the threshold rule, h = f + N(0, 1) for the multinomial probit. Labelling errors mix the subsets of the data whose
labels are believed. Given the values a_i of the labels' own classes in a subset the classes part: each has a Gaussian
density in what is pinned at a and a normal c.d.f., of at most two dimensions, in what lies below a. So the trapezoidal
rule in the a_i is all there is to integrate, and moments within a class are derivatives of its c.d.f. For the class of
a test point one value more, z, is pinned; the other classes' shares below z are an indefinite integral in z, by the
sinc rule. Spectra fall like Gaussians: the rules converge exponentially, and two spacings state the error.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, owens_t, sici

from validation.door import arguments
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.implementations.common import cholesky
from validation.implementations.quadrature_rule import kernel

Array = NDArray[np.float64]

LIKELIHOODS = ("multinomial-probit", "threshold")

# half-width of every rule in prior standard deviations: the tails left out weigh 6e-14
_RADIUS = 7.5

# nodes of a rule in the values of two labels, times those of z: some gigabytes and minutes beyond
_MOST_NODES = 2e7


class LatentPrior(NamedTuple):
    """One latent: covariances of h at the data, and between h and what is asked for."""

    cov: Array  # (n, n) of h
    cross: Array  # (k, n) of the targets (f at the data, f at the test points, u) with h
    target_cov: Array  # (k, k); only its diagonal is used, but for the block of u
    test: Array  # (t, n) of h at the test points with h at the data
    test_var: Array  # (t,) of h at the test points


class _Part(NamedTuple):
    """One believed subset of the data: its probability and the moments of the targets, per class and jointly."""

    weight: float
    mean: Array  # (L, k)
    second: Array  # (L, L, k, k) E[target target'], blocks of different classes only where k is the same
    chosen: Array  # (t, C) probability that class c is the largest at the test point


def solve_orthant(problem: Problem, *, digits: float = 8.0) -> Solution:
    """Evidence, moments and class probabilities of `multinomial-probit` or `threshold`, n <= 2, errors in settings.

    Raises ValueError for another likelihood, n > 2, or values so strongly correlated that
    the rule would need more than some 10^7 nodes.
    """
    if problem.likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected one of {LIKELIHOODS} for quadrature")
    if problem.n > 2:
        raise ValueError(f"X: found n = {problem.n}, expected n <= 2 for quadrature with several classes")
    if not 3.0 <= arguments.real(digits, "digits") <= 12.0:
        raise ValueError(f"digits: found {shown(digits)}, expected 3 to 12")
    priors = [latent_prior(problem, latent) for latent in range(problem.n_classes)]
    fine = _answer(problem, priors, digits)
    coarse = _answer(problem, priors, digits * 2.0 / 3.0)
    rounding = 1e2 * np.finfo(float).eps * max(float(np.linalg.cond(p.cov)) for p in priors)
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


# -- the prior of one latent -----------------------------------------------------------------------------------


def latent_prior(problem: Problem, latent: int) -> LatentPrior:
    """Covariances of one latent function under the problem's prior model, its noise included."""
    variance, noise, jitter = problem.variance[latent], problem.noise[latent], problem.jitter[latent]
    link = 1.0 if problem.likelihood == "multinomial-probit" else 0.0

    def k(A: Array, B: Array) -> Array:
        return kernel(problem, latent, A, B)

    X, X_test = problem.X, problem.X_test if problem.X_test is not None else np.empty((0, problem.d))
    K, test = k(X, X) + noise * np.eye(problem.n), k(X_test, X)
    inducing, inducing_cov = np.empty((0, problem.n)), np.empty((0, 0))
    if problem.Z is None:
        K = K + jitter * np.eye(problem.n)
    else:
        Z = problem.Z[latent]
        inducing, inducing_cov = k(Z, X), k(Z, Z) + jitter * np.eye(len(Z))
        if problem.prior_model == "fitc":
            root = cholesky(inducing_cov, "K_ZZ", "raise jitter or remove duplicate rows of Z")
            white, white_test = np.linalg.solve(root, inducing), np.linalg.solve(root, k(Z, X_test))
            test, K = white_test.T @ white, white.T @ white
            np.fill_diagonal(K, variance + noise)
    n, t, m = problem.n, len(X_test), len(inducing)
    target_cov = np.zeros((n + t + m, n + t + m))
    np.fill_diagonal(target_cov, np.concatenate([np.diag(K), np.full(t, variance + noise), np.zeros(m)]))
    target_cov[n + t :, n + t :] = inducing_cov
    test_var = np.full(t, variance + noise + link)
    return LatentPrior(K + link * np.eye(n), np.vstack([K, test, inducing]), target_cov, test, test_var)


# -- subsets of believed labels --------------------------------------------------------------------------------


def _answer(problem: Problem, priors: list[LatentPrior], digits: float) -> dict[str, Any]:
    n, t, C, epsilon = problem.n, problem.t, problem.n_classes, problem.epsilon
    parts: list[_Part] = []
    for size in range(n, -1, -1):
        share = (1.0 - epsilon) ** size * (epsilon / C) ** (n - size)
        if share > 0.0:
            for subset in combinations(range(n), size):
                part = _part(problem, priors, np.array(subset, dtype=int), digits)
                parts.append(part._replace(weight=share * part.weight))
    evidence = sum(part.weight for part in parts)
    weights = np.array([part.weight for part in parts]) / evidence
    mean = np.tensordot(weights, np.array([part.mean for part in parts]), axes=1)  # (L, k)
    second = np.tensordot(weights, np.array([part.second for part in parts]), axes=1)
    chosen = np.tensordot(weights, np.array([part.chosen for part in parts]), axes=1)
    cov = second - np.einsum("lk,pj->lpkj", mean, mean)
    between = np.einsum("lpkk->klp", cov)  # of the classes, at each target
    results: dict[str, Any] = {
        "log_evidence": float(np.log(evidence)),
        "latent_mean": mean[:, :n].T,
        "latent_cov": between[:n],
    }
    if problem.X_test is not None:
        mixed = (1.0 - epsilon) * chosen + epsilon / C
        results |= {
            "test_latent_mean": mean[:, n : n + t].T,
            "test_latent_cov": between[n : n + t],
            "probabilities": mixed / mixed.sum(axis=1, keepdims=True),
            "probability_mass": mixed.sum(axis=1),
        }
    if problem.Z is not None:
        within = np.einsum("llkj->lkj", cov)
        results |= {"inducing_mean": mean[:, n + t :], "inducing_cov": within[:, n + t :, n + t :]}
    return results


def _part(problem: Problem, priors: list[LatentPrior], subset: NDArray[np.int64], digits: float) -> _Part:
    """Everything given that the labels of `subset` are the largest, and the probability of that."""
    y, C, k = problem.y[subset], problem.n_classes, len(priors[0].target_cov)
    covs = [prior.cov[np.ix_(subset, subset)] for prior in priors]
    nodes, log_cell = _label_rule(covs, y, digits)  # (g, |subset|)
    factors = [_moments(covs[c], nodes, y == c) for c in range(C)]
    joint = np.prod([factor[0] for factor in factors], axis=0)
    total = float(joint.sum())
    # E[h] and E[h h'] of each class given the nodes; a class without mass at a node has none to give
    with np.errstate(invalid="ignore", divide="ignore"):
        means = [np.nan_to_num(first / mass[:, None], posinf=0.0, neginf=0.0) for mass, first, _ in factors]
        seconds = [np.nan_to_num(sec / mass[:, None, None], posinf=0.0, neginf=0.0) for mass, _, sec in factors]
    share = joint / total
    gains = [np.linalg.solve(cov, prior.cross[:, subset].T).T for cov, prior in zip(covs, priors, strict=True)]
    mean, second = np.zeros((C, k)), np.zeros((C, C, k, k))
    for c in range(C):
        mean[c] = gains[c] @ (share @ means[c])
        for other in range(C):
            if other == c:
                inner = np.tensordot(share, seconds[c], axes=1)
                second[c, c] = gains[c] @ (inner - covs[c]) @ gains[c].T + priors[c].target_cov
            else:
                inner = np.einsum("g,gi,gj->ij", share, means[c], means[other])
                second[c, other] = gains[c] @ inner @ gains[other].T
    chosen = np.array([_chosen(priors, subset, y, nodes, covs, j, digits, total) for j in range(problem.t)]).reshape(
        -1, C
    )
    return _Part(total * np.exp(log_cell), mean, second, chosen)


def _step(digits: float) -> float:
    """Spacing in units of the narrowest scale: the spectrum exp(-½(2π/step)²) beyond it weighs 10^-digits."""
    return float(2.0 * np.pi / np.sqrt(2.0 * (digits + 1.5) * np.log(10.0)))


def _label_rule(covs: list[Array], y: NDArray[np.int64], digits: float) -> tuple[Array, float]:
    """(g, s) nodes of the values of the labels' own classes, and log of the cell's volume.

    The narrowest scale of the integrand in one value is that of all classes' conditional precisions together.
    """
    s = len(y)
    if not s:
        return np.zeros((1, 0)), 0.0
    try:
        precision = np.sum([np.diag(np.linalg.inv(cov)) for cov in covs], axis=0)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "noise: found latent values of two data that are one and the same, expected inputs that differ or noise > 0"
        ) from error
    spacings = [_step(digits) / float(np.sqrt(precision[i])) for i in range(s)]
    halves = [int(np.ceil(_RADIUS * np.sqrt(covs[y[i]][i, i]) / spacings[i])) for i in range(s)]
    count = math.prod(2 * halved + 1 for halved in halves)
    if count > _MOST_NODES:
        raise ValueError(
            f"variance: found latent values so alike that {digits:.3g} digits need {count} nodes, "
            f"expected at most {_MOST_NODES:.0e}; lower digits or raise noise"
        )
    axes = [spacing * np.arange(-halved, halved + 1) for spacing, halved in zip(spacings, halves, strict=True)]
    log_cell = float(np.sum(np.log(spacings)))
    return np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1), log_cell


# -- one class given the nodes -----------------------------------------------------------------------------------


def _moments(cov: Array, nodes: Array, own: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Mass (g,), first (g, s) and second (g, s, s) moments of h ~ N(0, cov) pinned to the nodes where own, else below.

    Not normalised: the mass is a density in what is pinned. What lies below is x = b - shift with Stein's identity:
    E[x 1] = -V ∇, E[x xᵀ 1] = V mass + V H V of the c.d.f.'s gradient ∇ and Hessian H in its bounds.
    """
    g, s = nodes.shape
    pinned, below, rows = np.flatnonzero(own), np.flatnonzero(~own), np.arange(g)
    density, mean, left = _conditional(cov, nodes, pinned, below)
    mass, gradient, hessian = _cdf(nodes[:, below] - mean, left)
    first, second = np.zeros((g, s)), np.zeros((g, s, s))
    first[:, pinned] = nodes[:, pinned] * mass[:, None]
    shift = -gradient @ left  # E[x 1], x = h - mean where below
    first[:, below] = mean * mass[:, None] + shift
    inner = left * mass[:, None, None] + left @ hessian @ left
    inner += mean[:, :, None] * shift[:, None, :] + shift[:, :, None] * mean[:, None, :]
    inner += mean[:, :, None] * mean[:, None, :] * mass[:, None, None]
    second[np.ix_(rows, below, below)] = inner
    second[np.ix_(rows, pinned, pinned)] = nodes[:, pinned, None] * nodes[:, None, pinned] * mass[:, None, None]
    cross = nodes[:, pinned, None] * first[:, None, below]
    second[np.ix_(rows, pinned, below)] = cross
    second[np.ix_(rows, below, pinned)] = cross.transpose(0, 2, 1)
    return density * mass, density[:, None] * first, density[:, None, None] * second


def _conditional(
    cov: Array, values: Array, pinned: NDArray[np.int64], rest: NDArray[np.int64]
) -> tuple[Array, Array, Array]:
    """Density (g,) of the pinned values, conditional mean (g, r) and covariance (r, r) of the rest."""
    inner = cov[np.ix_(pinned, pinned)]
    gain = np.linalg.solve(inner, cov[np.ix_(pinned, rest)]).T  # (r, p)
    at = values[:, pinned]
    exponent = -0.5 * np.einsum("gp,gp->g", at, np.linalg.solve(inner, at.T).T)
    density = np.exp(exponent - 0.5 * np.linalg.slogdet(2.0 * np.pi * inner)[1])
    return density, at @ gain.T, cov[np.ix_(rest, rest)] - gain @ cov[np.ix_(pinned, rest)]


def _cdf(bound: Array, cov: Array) -> tuple[Array, Array, Array]:
    """P(x < bound), its gradient and its Hessian in the bounds, x ~ N(0, cov) of 0, 1 or 2 dimensions."""
    g, r = bound.shape
    gradient, hessian = np.zeros((g, r)), np.zeros((g, r, r))
    if r == 0:
        return np.ones(g), gradient, hessian
    sd = np.sqrt(np.diag(cov))
    scaled = bound / sd
    density = np.exp(-0.5 * scaled**2) / (np.sqrt(2.0 * np.pi) * sd)
    if r == 1:
        gradient[:] = density
        hessian[:, 0, 0] = -bound[:, 0] / cov[0, 0] * density[:, 0]
        return ndtr(scaled[:, 0]), gradient, hessian
    rho = cov[0, 1] / (sd[0] * sd[1])
    joint = np.exp(
        -0.5 * (scaled[:, 0] ** 2 - 2.0 * rho * scaled[:, 0] * scaled[:, 1] + scaled[:, 1] ** 2) / (1.0 - rho**2)
    ) / (2.0 * np.pi * sd[0] * sd[1] * np.sqrt(1.0 - rho**2))
    for i, j in ((0, 1), (1, 0)):
        conditional = (scaled[:, j] - rho * scaled[:, i]) / np.sqrt(1.0 - rho**2)
        gradient[:, i] = density[:, i] * ndtr(conditional)
        hessian[:, i, i] = -bound[:, i] / cov[i, i] * gradient[:, i] - rho * sd[j] / sd[i] * joint
        hessian[:, i, j] = joint
    return bivariate_cdf(scaled[:, 0], scaled[:, 1], rho), gradient, hessian


def bivariate_cdf(h: Array, k: Array, rho: float) -> Array:
    """P(x < h, y < k) for standard normals of correlation rho in (-1, 1), by Owen's T function (Owen 1956)."""
    root = np.sqrt(1.0 - rho**2)

    def skew(a: Array, b: Array) -> Array:
        # T(a, (b - rho a)/(a root)); at a = 0 the derivative is infinite with the sign of b, and T is a quarter of it
        safe = np.where(a == 0.0, 1.0, a)
        at_zero = 0.25 * np.sign(b)
        return np.where(a == 0.0, at_zero, owens_t(safe, (b - rho * safe) / (safe * root)))

    opposite = (h * k < 0.0) | ((h * k == 0.0) & (h + k < 0.0))
    value: Array = 0.5 * (ndtr(h) + ndtr(k) - opposite) - skew(h, k) - skew(k, h)
    # both at zero: the formula's limit
    value = np.where((h == 0.0) & (k == 0.0), 0.25 + np.arcsin(rho) / (2.0 * np.pi), value)
    return np.maximum(value, 0.0)


# -- the class of a test point ------------------------------------------------------------------------------------


def _chosen(
    priors: list[LatentPrior],
    subset: NDArray[np.int64],
    y: NDArray[np.int64],
    nodes: Array,
    covs: list[Array],
    test: int,
    digits: float,
    total: float,
) -> Array:
    """(C,) probability that each class is the largest at a test point, given that the labels of subset are."""
    C = len(priors)
    full = []
    for prior, cov in zip(priors, covs, strict=True):
        cross = prior.test[test, subset]
        full.append(np.block([[cov, cross[:, None]], [cross[None], prior.test_var[test]]]))
    # one axis z for all classes: the indefinite integral needs all frequencies below π/spacing
    narrow = min(float(1.0 / np.sqrt(np.linalg.inv(cov)[-1, -1])) for cov in full)
    spacing = 0.5 * _step(digits) * narrow / np.sqrt(2.0)
    half_count = int(np.ceil((_RADIUS + 1.0) * max(np.sqrt(cov[-1, -1]) for cov in full) / spacing))
    z = spacing * np.arange(-half_count, half_count + 1)
    if nodes.shape[0] * z.size > _MOST_NODES:
        raise ValueError(
            f"X_test: found latent values so alike that {digits:.3g} digits need {nodes.shape[0]} x {z.size} nodes, "
            f"expected at most {_MOST_NODES:.0e}; lower digits or raise noise"
        )
    lag = np.arange(-2 * half_count, 2 * half_count + 1)
    step_response = 0.5 + sici(np.pi * lag)[0] / np.pi  # sinc indefinite integration: Haber 1993
    index = np.arange(z.size)
    indefinite = spacing * step_response[index[:, None] - index[None] + 2 * half_count]  # (z, from)
    result = np.zeros(C)
    block = max(1, int(2e6) // z.size)
    for first in range(0, nodes.shape[0], block):
        part = nodes[first : first + block]
        g = part.shape[0]
        values = np.column_stack([np.repeat(part, z.size, axis=0), np.tile(z, g)])
        density = []
        for c in range(C):
            own = np.append(y == c, True)
            pinned, below = np.flatnonzero(own), np.flatnonzero(~own)
            height, mean, left = _conditional(full[c], values, pinned, below)
            density.append((height * _cdf(values[:, below] - mean, left)[0]).reshape(g, z.size))
        share = [d @ indefinite.T for d in density]
        for c in range(C):
            product = density[c].copy()
            for other in range(C):
                if other != c:
                    product *= share[other]
            result[c] += product.sum() * spacing
    return result / total
