"""Gibbs sampling for the probit GP, binary and multinomial, full and FITC: riihimaki2013, section 4.2.2.

Auxiliary variables h = f + e, e ~ N(0, I), make the label a statement about which h is the largest (Girolami & Rogers
2006): f given h is Gaussian with a constant covariance, h given f is a unit normal cut by a region. Both conditionals
move h by about one unit, while the prior may be 50 wide; so the `bounce` move (gibbs.moves.region) draws h with f
integrated out, from N(0, K + I) cut by the region, by one path that a change of scale does not slow down. The binary
model is the same with a second class whose h is zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from gibbs.chains.chain import State
from gibbs.core.checks import shown
from gibbs.core.declare import takes_values
from gibbs.core.errors import Array
from gibbs.core.linalg import spectrum
from gibbs.core.options import ProbitOptions
from gibbs.core.values import Data, Prior
from gibbs.draws.univariate_truncated import draw_above, draw_below
from gibbs.ledger import equation
from gibbs.models.multilatent import (
    Conditionals,
    Generators,
    MultiLatentChains,
    argmax_probability,
    check,
    conditionals,
    log_prior,
    overdispersed,
    sample_model,
)
from gibbs.moves.region import Labels, bounce_move, swap_to_label

PURPOSES = ("start", "auxiliary", "latent", "bounce")
LIKELIHOODS = ("probit", "multinomial-probit")


@equation("riihimaki2013", "24")
def likelihood(latent_values: Array, y: Labels) -> Array:
    """p(y_i | f_i) = ∫ Π_c N(h_c; f_c, 1) [h_y is the largest] dh: riihimaki2013 (24), all but one integral done.

    latent_values (n, C), y (n,). Returns (n,), to an absolute error of QUADRATURE_ERROR of `gibbs.models.multilatent`.
    """
    result = argmax_probability(latent_values, np.ones(latent_values.shape[1]))
    return result[np.arange(y.size), y]


@equation("riihimaki2013", "u4.2.2-gibbs-v")
def draw_auxiliary(rng: np.random.Generator, latent_values: Array, auxiliary: Array, y: Labels) -> Array:
    """Move h | f, y: unit normals around f cut by the region h_y >= h_j, by exact draws of h_y and then of all others.

    rng gives exactly rn + r L n standard exponentials. latent_values f and auxiliary h (r, L, n), y (n,); h is inside
    the region. Returns h, inside the region.
    """
    data = np.arange(y.size)
    others = auxiliary.copy()
    others[:, y, data] = -np.inf
    own = draw_above(rng, latent_values[:, y, data], 1.0, others.max(axis=1))
    out = draw_below(rng, latent_values, 1.0, np.broadcast_to(own[:, None, :], auxiliary.shape))
    out[:, y, data] = own
    return out


def draw_auxiliary_binary(rng: np.random.Generator, latent_values: Array, y: Labels) -> Array:
    """Draw h | f, y of the binary model: N(f, 1) cut to h >= 0 where y = 1 and to h <= 0 where y = 0.

    rng gives exactly one standard exponential an entry. latent_values (r, 1, n), y (n,). Returns h (r, 1, n).
    """
    sign = 2.0 * y - 1.0
    return sign * draw_above(rng, sign * latent_values, 1.0, 0.0)


@equation("riihimaki2013", "u4.2.2-gibbs-f")
def draw_latent(rng: np.random.Generator, gain: Array, root: Array, auxiliary: Array) -> Array:
    """Draw f | h ~ N(K (K + I)⁻¹ h, K (K + I)⁻¹), class by class.

    rng gives exactly r L n normals. gain (L, n, n) is K (K + I)⁻¹ and root (L, n, n) a square root of it; auxiliary
    h (r, L, n). Returns f like h.
    """
    normals = rng.standard_normal(auxiliary.shape)
    # row by row: the rounding of a chain does not hang on how many there are
    value: Array = (np.matmul(gain, auxiliary[..., None]) + np.matmul(root, normals[..., None]))[..., 0]
    return value


@equation("riihimaki2013", "u4.2.2-gibbs")
def sweep(
    rng: np.random.Generator, latent_values: Array, auxiliary: Array, y: Labels, gain: Array, root: Array
) -> tuple[Array, Array]:
    """One sweep of the plain sampler: h | f, y and then f | h. Returns (f, h), each (r, L, n).

    rng, latent_values, auxiliary, y: see `draw_auxiliary`; gain, root: see `draw_latent`.
    """
    fresh = draw_auxiliary(rng, latent_values, auxiliary, y)
    return draw_latent(rng, gain, root, fresh), fresh


def smoother(K_XX: Array) -> tuple[Array, Array]:
    """gain = K (K + I)⁻¹ and a square root of it, per class, from the eigenvalues of K: no inverse of K is needed.

    K_XX (L, n, n). Returns (gain, root), each (L, n, n).
    """
    shared = K_XX.strides[0] == 0
    values, vectors = spectrum("K_XX", K_XX[:1] if shared else K_XX)
    values = np.maximum(values, 0.0)  # what rounding leaves below zero
    root = vectors * np.sqrt(values / (1.0 + values))[:, None, :]
    gain = np.matmul(root, root.transpose(0, 2, 1))
    return tuple(np.broadcast_to(a[0], K_XX.shape) if shared else a for a in (gain, root))  # type: ignore[return-value]


class _Probit(NamedTuple):
    conditionals: Conditionals  # given h
    gain: Array
    root: Array
    y: Labels
    moves: tuple[str, ...]

    @property
    def binary(self) -> bool:
        return self.gain.shape[0] == 1

    def start(self, rng: np.random.Generator, n_chains: int) -> State:
        auxiliary = overdispersed(rng, self.conditionals.chol_cov, n_chains)
        auxiliary = np.abs(auxiliary) * (2.0 * self.y - 1.0) if self.binary else swap_to_label(auxiliary, self.y)
        return {
            "auxiliary": auxiliary,
            "latent": draw_latent(rng, self.gain, self.root, auxiliary),
            "events": np.zeros(n_chains),
        }

    def step(self, state: State, rngs: Generators) -> State:
        if self.binary:
            auxiliary = draw_auxiliary_binary(rngs["auxiliary"], state["latent"], self.y)
        else:
            auxiliary = draw_auxiliary(rngs["auxiliary"], state["latent"], state["auxiliary"], self.y)
        events = state["events"]
        if "bounce" in self.moves:  # f is integrated out here, so it is drawn again right after
            auxiliary, events = self._bounce(rngs["bounce"], auxiliary)
        latent = draw_latent(rngs["latent"], self.gain, self.root, auxiliary)
        return {"auxiliary": auxiliary, "latent": latent, "events": events}

    def _bounce(self, rng: np.random.Generator, auxiliary: Array) -> tuple[Array, Array]:
        cov, chol = self.conditionals.cov, self.conditionals.chol_cov
        if self.binary:  # class 0 has a value of prior variance zero
            cov, chol = (np.concatenate([np.zeros_like(a), a]) for a in (cov, chol))
            auxiliary = np.concatenate([np.zeros_like(auxiliary), auxiliary], axis=1)
        result = bounce_move(rng, auxiliary, cov, chol, self.y)
        return result.auxiliary[:, -self.gain.shape[0] :], result.events.astype(np.float64)

    def log_joint(self, auxiliary: Array) -> Array:
        return log_prior(self.conditionals.chol_cov, auxiliary)

    def latent(self, auxiliary: Array) -> tuple[Array, Array]:
        return np.matmul(self.gain, auxiliary[..., None])[..., 0], np.einsum("lnn->ln", self.gain)

    def class_probabilities(self, latent_mean: Array, latent_var: Array) -> Array:
        if self.binary:
            ratio = latent_mean[:, 0] / np.sqrt(1.0 + latent_var[0])
            return np.stack([ndtr(-ratio), ndtr(ratio)], axis=1)
        return argmax_probability(latent_mean, 1.0 + latent_var)


@takes_values
def sample(
    data: Data, prior: Prior, options: ProbitOptions, *, likelihood: str = "multinomial-probit"
) -> MultiLatentChains:
    """Sample p(f, h | y) of the probit GP: likelihood "multinomial-probit" (L = n_classes) or "probit" (two, L = 1).

    data, prior: see `gibbs.core.values`. options: n_chains run side by side from overdispersed starts; each gives
    n_draws >= 4 draws, one every `thin` sweeps, after n_warmup sweeps ("auto": until the chains agree, at most
    max_warmup), or more, up to max_draws, until bulk and tail effective sizes of latents, their squares and the log
    joint reach target_ess. The seed fixes all randomness, one stream per purpose and chain: a chain is the same
    whatever n_chains. moves () is the plain sampler. callback, checkpoint, checkpoint_every, max_kept_bytes (thins the
    kept draws, not the averages): see `gibbs.chains.chain.run`.
    Factorised once, O(L n³); a sweep takes O(r L n²), and a bounce O(r L n) for each constraint met, about n (L - 1) of
    them. Memory O(L n² + r L (n + t)) and the budget, for FITC as well.

    Raises ValueError on bad input, NotPositiveDefiniteError if K_ZZ has no Cholesky factor.
    """
    if not isinstance(likelihood, str) or likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood: found {shown(likelihood)}, expected one of {LIKELIHOODS}")
    if likelihood == "probit" and data.n_classes != 2:
        raise ValueError(f"n_classes: found {shown(data.n_classes)}, expected 2 for the likelihood 'probit'")
    setting = check(data, prior, 1 if likelihood == "probit" else data.n_classes)
    gain, root = smoother(setting.prior.K_XX)
    model = _Probit(conditionals(setting.prior, 1.0), gain, root, setting.y, tuple(options.moves))
    settings = {"model": f"{likelihood} {prior.prior_model}", "n_classes": int(data.n_classes), "moves": model.moves}
    return sample_model(model, setting.arrays, settings, PURPOSES, options)
