"""Exact moves for latent values under the softmax likelihood: riihimaki2013 (1) and section 4.2.1.

The likelihood sees differences between classes only. With orthonormal contrasts T (C - 1, C), T 1 = 0, it is a function
of d = T f, and f is d with the common shift 1ᵀf/C, which is Gaussian given d and drawn exactly. All other moves act on
d in white coordinates: d = L ξ, ξ ~ N(0, I) a priori, p = (C - 1) n of them. Arrays are (r, p), chains first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from gibbs.core.errors import Array
from gibbs.core.linalg import cholesky, solve, solve_factored, substitute
from gibbs.ledger import equation
from gibbs.moves.region import Labels


class Target(NamedTuple):
    """The posterior of ξ."""

    y: Labels  # (n,)
    basis: Array  # (C - 1, C) orthonormal contrasts
    factor: Array  # (p, p) lower Cholesky factor L of the prior covariance of d

    def latent(self, white: Array) -> Array:
        """Tᵀd, (r, C, n): the latent values less their mean over the classes."""
        return np.matmul(self.basis.T, (white @ self.factor.T).reshape(len(white), len(self.basis), self.y.size))

    def log_likelihood(self, white: Array) -> Array:
        """log p(y | f), (r,)."""
        return log_likelihood(self.latent(white), self.y)


class Reference(NamedTuple):
    """A Gaussian N(mean, root rootᵀ) of ξ near the posterior, and what moves around it need."""

    mean: Array  # (p,) m
    root: Array  # (p, p) lower, G
    map_to_contrast: Array  # (p, p) L G
    centre: Array  # (p,) L m
    gram: Array  # (p, p) GᵀG
    shift: Array  # (p,) Gᵀm
    half_norm: float  # |m|²/2


class ShiftDistribution(NamedTuple):
    """Common shift s(x_i) given the contrasts: N(-Σ_c weights_c f_c, cov) for f with zero class mean."""

    weights: Array  # (C, n, n), they sum to the identity: (Σ_j K_j⁻¹)⁻¹ K_c⁻¹
    cov: Array  # (n, n) (Σ_j K_j⁻¹)⁻¹
    root: Array  # (n, n) a square root of cov


@equation("riihimaki2013", "1")
def log_likelihood(latent_values: Array, y: Labels) -> Array:
    """Σ_i log [exp f_y / Σ_j exp f_j], riihimaki2013 (1): latent_values (r, C, n), y (n,). Returns (r,)."""
    top = latent_values.max(axis=1)
    total = np.exp(latent_values - top[:, None]).sum(axis=1)
    own = latent_values[:, y, np.arange(y.size)]
    return np.asarray((own - top - np.log(total)).sum(axis=1))


def contrasts(n_classes: int) -> Array:
    """Helmert's orthonormal contrasts, (C - 1, C), for n_classes C: rows of unit length that sum to zero."""
    basis = np.tril(np.ones((n_classes, n_classes)), -1)[1:] - np.diag(np.arange(n_classes, dtype=np.float64))[1:]
    return basis / np.linalg.norm(basis, axis=1)[:, None]


def _one_for_all(cov: Array) -> bool:
    """Whether all classes have one covariance; where it is stored once, that is seen at once."""
    return cov.strides[0] == 0 or bool(np.all(cov == cov[:1]))


def make_target(cov: Array, y: Labels) -> Target:
    """The posterior of the white contrasts: cov (C, n, n) prior covariances, noise included; y (n,).

    Raises NotPositiveDefiniteError if the covariance of the contrasts, Σ_c T_c T_cᵀ ⊗ K_c, has no Cholesky factor.
    """
    C, n = cov.shape[:2]
    basis = contrasts(C)
    remedy = "raise noise or jitter, or remove duplicate rows of X"
    if _one_for_all(cov):  # then the contrasts are independent
        block = np.kron(np.eye(C - 1), cholesky("K_XX", cov[0], remedy))
        return Target(y, basis, np.asarray(block, dtype=np.float64))
    joint = np.einsum("ac,bc,cnm->anbm", basis, basis, cov).reshape((C - 1) * n, (C - 1) * n)
    return Target(y, basis, cholesky("contrasts of K_XX", joint, remedy))


# -- the shift the likelihood does not see -------------------------------------------------------------------------


def shift_distribution(cov: Array) -> ShiftDistribution:
    """The distribution of the common shift under independent priors: cov (C, n, n).

    Classes are joined one at a time by (A⁻¹ + B⁻¹)⁻¹ = A (A + B)⁻¹ B, so that no covariance is inverted on its own.
    Raises NotPositiveDefiniteError where a sum of covariances, or the result, has no Cholesky factor.
    """
    C, n = cov.shape[:2]
    remedy = "raise noise or jitter, or remove duplicate rows of X"
    if _one_for_all(cov):
        weights = np.broadcast_to(np.eye(n) / C, (C, n, n))
        return ShiftDistribution(weights, cov[0] / C, cholesky("K_XX", cov[0], remedy) / np.sqrt(C))
    joined, weights = cov[0], np.empty((C, n, n))
    weights[0] = np.eye(n)
    for c in range(1, C):
        chol = cholesky("sum of K_XX", joined + cov[c], remedy)
        earlier = solve_factored(chol, cov[c]).T  # B (A + B)⁻¹, the weight of what is joined already
        weights[:c] = np.matmul(earlier, weights[:c])
        weights[c] = solve_factored(chol, joined).T
        joined = earlier @ joined
        joined = 0.5 * (joined + joined.T)
    return ShiftDistribution(weights, joined, cholesky("covariance of the shift", joined, remedy))


def shift_mean(latent_values: Array, distribution: ShiftDistribution) -> Array:
    """E[s | contrasts], (..., n): latent_values (..., C, n) with any shift, distribution a ShiftDistribution.

    latent_values + s replaces the shift that latent_values has by one with the right distribution.
    """
    if distribution.weights.strides[0] == 0:
        return np.asarray(-latent_values.mean(axis=-2))
    return np.asarray(-np.einsum("cnm,...cm->...n", distribution.weights, latent_values))


def draw_shift(rng: np.random.Generator, latent_values: Array, distribution: ShiftDistribution) -> Array:
    """Draw f + s | contrasts of f: latent_values (r, C, n), distribution of the shift. rng gives exactly rn normals."""
    r, _, n = latent_values.shape
    s = shift_mean(latent_values, distribution) + rng.standard_normal((r, n)) @ distribution.root.T
    return latent_values + s[:, None, :]


# -- moves around the prior ----------------------------------------------------------------------------------------


@equation("riihimaki2013", "u4.2.1-smh")
def scaled_move(
    rng: np.random.Generator, white: Array, target: Target, step_size: float, n_steps: int
) -> tuple[Array, Array]:
    """Neal's (1998) scaled Metropolis-Hastings: ξ' = √(1 - ε²) ξ + ε η, accepted with min(1, L(f')/L(f)).

    white (r, p); target a Target; step_size ε in (0, 1]; n_steps steps. The proposal is reversible under the prior,
    so the ratio holds likelihoods only. Returns new coordinates and the share (r,) of accepted proposals. rng gives
    exactly n_steps (rp normals, r uniforms). Time O(r p²) a step.
    """
    log_lik = target.log_likelihood(white)
    accepted = np.zeros(len(white))
    for _ in range(n_steps):
        proposal = np.sqrt(1.0 - step_size**2) * white + step_size * rng.standard_normal(white.shape)
        new = target.log_likelihood(proposal)
        take = np.log1p(-rng.random(len(white))) < new - log_lik
        white, log_lik = np.where(take[:, None], proposal, white), np.where(take, new, log_lik)
        accepted += take
    return white, accepted / n_steps


def ellipse_move(rng: np.random.Generator, white: Array, target: Target, n_steps: int) -> tuple[Array, Array]:
    """Elliptical slice sampling (Murray, Adams & MacKay 2010) around the prior.

    white (r, p); target a Target; n_steps steps. Returns new coordinates and the mean (r,) of |sin angle|, the size of
    the step. How many numbers rng gives is not fixed.
    """
    size = np.zeros(len(white))
    for _ in range(n_steps):
        other = rng.standard_normal(white.shape)
        here, there = target.latent(white), target.latent(other)
        level = log_likelihood(here, target.y) + np.log1p(-rng.random(len(white)))
        angle = rng.uniform(0.0, 2.0 * np.pi, len(white))
        low, high, live = angle - 2.0 * np.pi, angle.copy(), np.arange(len(white))
        while live.size:
            a = angle[live, None, None]
            live = live[log_likelihood(np.cos(a) * here[live] + np.sin(a) * there[live], target.y) < level[live]]
            below = angle[live] < 0.0
            low[live[below]], high[live[~below]] = angle[live[below]], angle[live[~below]]
            angle[live] = low[live] + (high[live] - low[live]) * rng.random(live.size)
        white = np.cos(angle)[:, None] * white + np.sin(angle)[:, None] * other
        size += np.abs(np.sin(angle))
    return white, size / n_steps


# -- a move around a Gaussian near the posterior ---------------------------------------------------------------------


def make_reference(mean: Array, root: Array, target: Target) -> Reference:
    """A Reference N(mean, root rootᵀ) of ξ: mean (p,), root (p, p) lower with a positive diagonal; target a Target."""
    return Reference(
        mean, root, target.factor @ root, target.factor @ mean, root.T @ root, root.T @ mean, 0.5 * float(mean @ mean)
    )


def laplace(target: Target, max_iterations: int = 60) -> tuple[Array, Array]:
    """Mode of ξ and lower factor of its inverse Hessian, by Newton's method with step halving.

    target: a Target, whose log density is concave, so that every halved step rises. max_iterations bounds the loop:
    the result only centres moves that are exact around any Gaussian. Time O(p³) an iteration.
    """
    L, p = target.factor, len(target.factor)
    n, k = target.y.size, len(target.basis)
    white = np.zeros(p)

    def value(at: Array) -> float:
        return float(target.log_likelihood(at[None])[0] - 0.5 * at @ at)

    here = value(white)
    for _ in range(max_iterations):
        prob = _softmax(target.latent(white[None]))[0]  # (C, n)
        gradient = (target.basis @ (_indicator(target.y, k + 1) - prob)).ravel()
        whitened = target.basis @ prob  # T π
        # W: for every datum T (diag π - π πᵀ) Tᵀ, scattered to (k n, k n)
        blocks = np.einsum("ac,bc,cn->abn", target.basis, target.basis, prob) - whitened[:, None] * whitened[None]
        W = np.zeros((k, n, k, n))
        W[:, np.arange(n), :, np.arange(n)] = np.moveaxis(blocks, 2, 0)
        H = np.eye(p) + L.T @ W.reshape(p, p) @ L
        step = solve("I + LᵀWL", H, L.T @ gradient - white, "lower variance")
        scale = 1.0
        while (new := value(white + scale * step)) < here and scale > 1e-6:
            scale *= 0.5
        if new < here:
            break
        white, rise, here = white + scale * step, new - here, new
        if rise < 1e-9:
            break
    root = cholesky("I + LᵀWL", H, "lower variance")
    inverse = solve_factored(root, np.eye(p))
    return white, cholesky("(I + LᵀWL)⁻¹", 0.5 * (inverse + inverse.T), "lower variance")


def _indicator(y: Labels, C: int) -> Array:
    return (y == np.arange(C)[:, None]).astype(np.float64)


def _softmax(latent: Array) -> Array:
    e = np.exp(latent - latent.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def energy(white_ref: Array, target: Target, reference: Reference) -> tuple[Array, Array]:
    """Potential -log [p(y|f) p(ξ)] up to a constant and its gradient, at ξ = m + G z.

    white_ref (r, p) z; target a Target, reference a Reference. Returns (r,) and (r, p):
    gradient = (L G)ᵀ T (π - 1_y) + GᵀG z + Gᵀm.
    """
    r, y = len(white_ref), target.y
    contrast = reference.centre + white_ref @ reference.map_to_contrast.T
    latent = np.matmul(target.basis.T, contrast.reshape(r, len(target.basis), y.size))
    top = latent.max(axis=1)
    e = np.exp(latent - top[:, None])
    total = e.sum(axis=1)
    columns = np.arange(y.size)
    log_lik = (latent[:, y, columns] - top - np.log(total)).sum(axis=1)
    e /= total[:, None]
    e[:, y, columns] -= 1.0
    along = white_ref @ reference.gram
    potential = 0.5 * np.einsum("rp,rp->r", along, white_ref) + white_ref @ reference.shift + reference.half_norm
    gradient = np.matmul(target.basis, e).reshape(r, -1) @ reference.map_to_contrast
    return potential - log_lik, gradient + along + reference.shift


def flow_move(
    rng: np.random.Generator,
    white: Array,
    target: Target,
    reference: Reference,
    step_size: float,
    n_kicks: int,
) -> tuple[Array, Array]:
    """Split Hamiltonian dynamics (Shahbaba, Lan, Johnson & Neal 2014): rotations under the reference, kicks between.

    In z = G⁻¹(ξ - m) the reference is N(0, I), whose dynamics are rotations of (z, v) and conserve its energy; what the
    posterior adds enters by kicks ∇U - z. The end is accepted by the total energy, which keeps the posterior exactly
    whatever the reference. white (r, p); target, reference; step_size: angle of a rotation, varied by ±25 % from chain
    to chain and move to move; n_kicks rotations. Returns new coordinates and the acceptance probability (r,).
    rng gives exactly r uniforms, rp normals, r uniforms. Time O(n_kicks r p²).
    """
    r = len(white)
    angle = step_size * rng.uniform(0.75, 1.25, r)[:, None]
    velocity = rng.standard_normal(white.shape)
    start = substitute(reference.root, (white - reference.mean).T)
    z = np.ascontiguousarray(start.T)
    potential, gradient = energy(z, target, reference)
    before = potential + 0.5 * np.einsum("rp,rp->r", velocity, velocity)
    cos, sin = np.cos(angle), np.sin(angle)
    for _ in range(n_kicks):
        velocity = velocity - 0.5 * angle * (gradient - z)
        z, velocity = cos * z + sin * velocity, cos * velocity - sin * z
        potential, gradient = energy(z, target, reference)
        velocity -= 0.5 * angle * (gradient - z)
    change = before - potential - 0.5 * np.einsum("rp,rp->r", velocity, velocity)
    probability = np.exp(np.minimum(change, 0.0))
    take = rng.random(r) < probability
    return np.where(take[:, None], reference.mean + z @ reference.root.T, white), probability


def to_white(latent_values: Array, target: Target) -> Array:
    """Coordinates ξ (r, p) of latent_values (r, C, n): target a Target; the common shift is dropped."""
    contrast = np.matmul(target.basis, latent_values).reshape(len(latent_values), -1)
    return np.asarray(solve_triangular(target.factor, contrast.T, lower=True).T)
