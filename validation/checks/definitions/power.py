"""Power EP and the alpha energies of villacampa2020 from their definitions: dense algebra, one long trapezoidal rule.

With G(P, h) = h'P^-1 h/2 - log|P|/2 of natural parameters, theta of q, theta_p of the prior, and F_i = log E[p^a]/a of
datum i under some distribution of the inducing values u,

    pep      G(q) - G(p) + sum_i [F_i + (G(theta - a site_i) - G(q))/a]              under theta - a site_i,
    apep     the same with the site (theta - theta_p)/N of every datum,
    arpep    sum_i F_i - KL(q || p)                                                  under q,
    rpapep   G(q) + (1/a) [G(c + a theta_p) - a G(p) - G(q)] + N (G(c) - G(q))/a + sum_i F_i,
             under c = theta (1 - a/(N + 1)).

Everything is as cancelling as it is written, so a is not small here. Nothing is shared with a witness.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.quadrature_rule import kernel

Array = NDArray[np.float64]

# fine enough for latent values whose deviations differ by a factor of twenty
_NODES, _WEIGHTS = (x := np.linspace(-9.0, 9.0, 1201)), np.exp(-0.5 * x * x) * (x[1] - x[0]) / np.sqrt(2.0 * np.pi)


def largest(y: NDArray[np.int64], mean: Array, var: Array) -> Array:
    """(n,) probabilities that the label's latent value is the largest of independent ones, mean and var (n, C)."""
    rows = np.arange(len(y))
    t = mean[rows, y][:, None] + np.sqrt(var[rows, y])[:, None] * _NODES
    terms = log_ndtr((t[:, :, None] - mean[:, None]) / np.sqrt(var)[:, None])
    terms[rows, :, y] = 0.0
    return np.asarray(np.exp(terms.sum(axis=2)) @ _WEIGHTS)


def G(precision: Array, shift: Array) -> float:
    """Log normaliser of the Gaussians of all classes, without 2 pi."""
    if (np.linalg.eigvalsh(precision) <= 0.0).any():
        raise ValueError("precision: found one that is not positive definite, expected a distribution")
    squares = np.einsum("ki,kij,kj->", shift, np.linalg.inv(precision), shift)
    return 0.5 * float(squares - np.linalg.slogdet(precision)[1].sum())


def inverse(matrices: Array) -> Array:
    """Of one matrix or a stack of them."""
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64)


class Dense:
    """The model of a problem: K (C, m, m), upsilon (n, C, m), s (n, C)."""

    def __init__(self, problem: Problem) -> None:
        assert problem.Z is not None
        self.problem, self.y = problem, problem.y
        C = problem.n_classes
        K = [kernel(problem, k, Z, Z) + problem.jitter[k] * np.eye(len(Z)) for k, Z in enumerate(problem.Z)]
        self.K_inv = np.array([np.linalg.inv(part) for part in K])
        cross = [kernel(problem, k, problem.X, problem.Z[k]) for k in range(C)]
        self.upsilon = np.stack([cross[k] @ self.K_inv[k] for k in range(C)], axis=1)
        explained = np.stack([np.einsum("nm,nm->n", cross[k], self.upsilon[:, k]) for k in range(C)], axis=1)
        self.cond_var = problem.variance + problem.noise - explained
        share = problem.epsilon / C
        self.labels = 1.0 - problem.epsilon + share, share  # likelihoods of the right and of a wrong label

    def moments(self, precision: Array, shift: Array) -> tuple[Array, Array]:
        """(n, C) means and variances of the latent values under natural parameters of u."""
        V = inverse(precision)
        mean = np.einsum("nkm,kmj,kj->nk", self.upsilon, V, shift)
        return mean, self.cond_var + np.einsum("nkm,kmj,nkj->nk", self.upsilon, V, self.upsilon)

    def log_powers(self, alpha: float, precision: Array, shift: Array) -> Array:
        """(n,) log E[p(y_i|f_i)^alpha]."""
        right = largest(self.y, *self.moments(precision, shift))
        return np.asarray(np.log(self.labels[0] ** alpha * right + self.labels[1] ** alpha * (1.0 - right)))

    def with_sites(self, alpha: float, c1: Array, c2: Array) -> float:
        """log Z_q of power EP at sites c1, c2 (n, C)."""
        rank_one = np.einsum("nk,nki,nkj->nkij", c1, self.upsilon, self.upsilon)
        linear = c2[:, :, None] * self.upsilon
        return self._with_factors(alpha, rank_one, linear)

    def _with_factors(self, alpha: float, precisions: Array, shifts: Array) -> float:
        P, h = self.K_inv + precisions.sum(axis=0), shifts.sum(axis=0)
        total = G(P, h) - G(self.K_inv, np.zeros_like(h))
        for i, (precision, shift) in enumerate(zip(precisions, shifts, strict=True)):
            cavity = P - alpha * precision, h - alpha * shift
            total += (self.log_powers(alpha, *cavity)[i] + G(*cavity) - G(P, h)) / alpha
        return float(total)

    def log_labels(self, precision: Array, shift: Array) -> Array:
        """(n,) E log p(y_i|f_i)."""
        right = largest(self.y, *self.moments(precision, shift))
        return np.asarray(np.log(self.labels[0]) * right + np.log(self.labels[1]) * (1.0 - right))

    def data_terms(self, method: str, alpha: float, mean: Array, cov: Array) -> Array:
        """(n,) what the data add to the objective at q: F_i as the method weights it, E_q log p for vi-robust."""
        n, P = len(self.y), inverse(cov)
        h = np.einsum("kij,kj->ki", P, mean)
        if method == "vi-robust":
            return self.log_labels(P, h)
        left = {"arpep": 1.0, "rpapep": 1.0 - alpha / (n + 1)}.get(method, 1.0 - alpha / n)
        prior = 0.0 if method in ("arpep", "rpapep") else (1.0 - left) * self.K_inv
        return self.log_powers(alpha, left * P + prior, left * h) / alpha

    def batch_energy(self, method: str, alpha: float, mean: Array, cov: Array, rows: list[int]) -> float:
        """The objective with the terms of some data, n/b times, in the place of all."""
        terms = self.data_terms(method, alpha, mean, cov)
        return (
            self.energy(method, alpha, mean, cov)
            + len(terms) / len(rows) * float(terms[rows].sum())
            - float(terms.sum())
        )

    def energy(self, method: str, alpha: float, mean: Array, cov: Array) -> float:
        """The objective of apep, arpep, rpapep or vi-robust at q = N(mean, cov), (C, m) and (C, m, m)."""
        n, P = len(self.y), inverse(cov)
        h = np.einsum("kij,kj->ki", P, mean)
        if method in ("apep", "bb-alpha"):
            return self._with_factors(
                alpha, np.repeat((P - self.K_inv)[None] / n, n, axis=0), np.repeat(h[None] / n, n, axis=0)
            )
        prior = G(self.K_inv, np.zeros_like(h))
        if method in ("arpep", "vi-robust"):
            quadratic = np.einsum("kij,kij->", self.K_inv, cov + mean[:, :, None] * mean[:, None])
            log_dets = np.linalg.slogdet(cov)[1].sum() - 2.0 * prior
            kl = 0.5 * float(quadratic - mean.size - log_dets)
            return float(self.data_terms(method, alpha, mean, cov).sum()) - kl
        left = 1.0 - alpha / (n + 1)
        total = G(P, h) + (G(left * P + alpha * self.K_inv, left * h) - alpha * prior - G(P, h)) / alpha
        total += n / alpha * (G(left * P, left * h) - G(P, h))
        return total + float(self.log_powers(alpha, left * P, left * h).sum()) / alpha

    def tied_powers(self, power: float, mean: Array, cov: Array) -> Array:
        """(n,) log E_q[(p(y_i|f_i)/phi~)^power], phi~ the tied factor of one datum."""
        n, P = len(self.y), inverse(cov)
        h = np.einsum("kij,kj->ki", P, mean)
        cavity = P - power * (P - self.K_inv) / n, h * (1.0 - power / n)
        return self.log_powers(power, *cavity) + G(*cavity) - G(P, h)

    def derivative(self, method: str, mean: Array, cov: Array, sites: tuple[Array, Array]) -> float:
        """d/d alpha of the objective at alpha = 0, at the common optimum q = N(mean, cov).

        Expansion of a logarithm of a mean: each factor gives half the variance under q of log p - log of what stands
        for it: nothing for arpep, the site for pep, the tied factor for apep, and for rpapep the tied factor of N + 1,
        the prior being one of the factors. Covariances with quadratics in u by Stein's identity.
        """
        n, P = len(self.y), inverse(cov)
        h = np.einsum("kij,kj->ki", P, mean)
        latents = self.moments(P, h)
        right = largest(self.y, *latents)
        gap = float(np.log(self.labels[0]) - np.log(self.labels[1]))
        by_mean, by_var = (gap * derivatives for derivatives in _differences(self.y, *latents))
        total = float((gap**2 * right * (1.0 - right)).sum())
        if method == "arpep":
            return 0.5 * total
        for i in range(n):
            if method == "pep":
                T = np.einsum("k,ki,kj->kij", sites[0][i], self.upsilon[i], self.upsilon[i])
                t = sites[1][i][:, None] * self.upsilon[i]
            elif method == "rpapep":
                T, t = P / (n + 1), h / (n + 1)
            else:
                T, t = (P - self.K_inv) / n, h / n
            projected = np.einsum("kij,kj->ki", cov, self.upsilon[i])  # V upsilon
            pull = t - np.einsum("kij,kj->ki", T, mean)
            total += _quadratic_var(T, t, mean, cov)
            shared = np.einsum("ki,ki,k->", pull, projected, by_mean[i])
            total -= 2.0 * float(shared - np.einsum("ki,kij,kj,k->", projected, T, projected, by_var[i]))
        if method == "rpapep":
            total += _quadratic_var(self.K_inv - P / (n + 1), -h / (n + 1), mean, cov)
        return 0.5 * total


def _quadratic_var(T: Array, t: Array, mean: Array, cov: Array) -> float:
    """Variance of t'u - u'Tu/2 under N(mean, cov), summed over the classes."""
    pull = t - np.einsum("kij,kj->ki", T, mean)
    moved = np.einsum("kij,kjl->kil", T, cov)
    return float(np.einsum("ki,kij,kj->", pull, cov, pull) + 0.5 * np.einsum("kij,kji->", moved, moved))


def _differences(y: NDArray[np.int64], mean: Array, var: Array) -> tuple[Array, Array]:
    """Central differences of `largest` in each mean and each variance, (n, C)."""
    step = 1e-4 * np.sqrt(var)
    by_mean, by_var = np.empty_like(mean), np.empty_like(mean)
    for k in range(mean.shape[1]):
        for result, base, h in ((by_mean, mean, step[:, k]), (by_var, var, step[:, k] * np.sqrt(var[:, k]))):
            ends = []
            for sign in (1.0, -1.0):
                at = base.copy()
                at[:, k] += sign * h
                ends.append(largest(y, at, var) if result is by_mean else largest(y, mean, at))
            result[:, k] = (ends[0] - ends[1]) / (2.0 * h)
    return by_mean, by_var


def power(answer: Solution) -> float:
    """alpha, 0 for the variational bound."""
    return float(answer.settings.get("alpha", 0.0))


def value(answer: Solution, problem: Problem | None = None) -> float:
    """The objective of a solution from its sites, or from its q, with the priors of a problem (its own by default)."""
    dense = Dense(problem or answer.problem)
    alpha = power(answer)
    if answer.method == "pep":
        return dense.with_sites(alpha, answer.local["site_precision"], answer.local["site_shift"])
    assert answer.inducing_mean is not None
    assert answer.inducing_cov is not None
    return dense.energy(answer.method, alpha, answer.inducing_mean, answer.inducing_cov)


def free_gradients(answer: Solution) -> Array:
    """Central differences of the objective in its free numbers, in units of a deviation of q: zero at an optimum."""
    dense, alpha = Dense(answer.problem), power(answer)
    mean, cov = answer.inducing_mean, answer.inducing_cov
    assert mean is not None
    assert cov is not None
    if answer.method == "pep":
        projected = np.einsum("nki,kij,nkj->nk", dense.upsilon, cov, dense.upsilon)
        start = np.array([answer.local["site_precision"], answer.local["site_shift"]])
        units = np.array([1.0 / projected, 1.0 / np.sqrt(projected)])
        return differences(lambda x: dense.with_sites(alpha, x[0], x[1]), start, units)
    R = np.linalg.cholesky(cov)
    C, m = mean.shape
    low = np.tril_indices(m)

    def at(x: Array) -> float:
        """Mean and covariance of L_q^-1 (u - m)."""
        root = np.zeros((C, m, m))
        root[:, *low] = x[:, m:]
        root = R @ (np.eye(m) + root)
        moved = mean + np.einsum("kij,kj->ki", R, x[:, :m])
        return dense.energy(answer.method, alpha, moved, root @ root.transpose(0, 2, 1))

    start = np.zeros((C, m + len(low[0])))
    return differences(at, start, np.ones_like(start))


def differences(function: Callable[[Array], float], start: Array, units: Array, step: float = 1e-4) -> Array:
    """Central differences at `start`, each entry moved by `step` of its unit; derivatives by the units."""
    values = np.empty(start.size)
    for j in range(start.size):
        ends = []
        for sign in (1.0, -1.0):
            at = start.copy()
            at.flat[j] += sign * step * units.flat[j]
            ends.append(function(at))
        values[j] = (ends[0] - ends[1]) / (2.0 * step)
    return values.reshape(start.shape)
