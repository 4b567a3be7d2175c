"""Gibbs sampling for the threshold likelihood with labelling errors, full and FITC: villacampa2017 (13), 2020 (2).

p(y | f) = (1 - ε) [f_y is the largest] + ε/C. An indicator per datum says whether its label was drawn at random, from
all C classes: given the indicators f is N(0, K) cut by the regions of the other data, given f they are independent
coins. Gaussian noise is part of K. The plain moves draw one latent value at a time from its univariate truncated
normal; the `bounce` move (gibbs.moves.region) moves all of f at once with the indicators summed out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gibbs.chains.chain import State
from gibbs.core.declare import takes_values
from gibbs.core.errors import Array, _count, _scalar
from gibbs.core.generators import Replay
from gibbs.core.linalg import solve_factored
from gibbs.core.options import ThresholdOptions
from gibbs.core.values import Data, Prior
from gibbs.draws.univariate_truncated import draw_above, draw_below
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
from gibbs.moves.region import Labels, bounce_move, inside, log_step, swap_to_label

PURPOSES = ("start", "latent", "indicator", "bounce")
MOVES = ("components", "bounce")


def log_likelihood(latent_values: Array, y: Labels, epsilon: float) -> Array:
    """Σ_i log[(1 - ε) [f_y is the largest] + ε/C], -inf where ε = 0 and a label is not the largest: (r,).

    latent_values (r, C, n); y (n,); epsilon in [0, 1). villacampa2017 (13).
    """
    hit = inside(latent_values, y)
    floor = epsilon / latent_values.shape[1]
    with np.errstate(divide="ignore"):
        return np.log(np.where(hit, 1.0 - epsilon + floor, floor)).sum(axis=1)


def error_probability(latent_values: Array, y: Labels, epsilon: float) -> Array:
    """P(the label was drawn at random | f, y): one outside its region, (ε/C)/(1 - ε + ε/C) inside.

    latent_values (r, C, n), y (n,), epsilon in [0, 1). Returns (r, n).
    """
    floor = epsilon / latent_values.shape[1]
    return np.where(inside(latent_values, y), floor / (1.0 - epsilon + floor), 1.0)


def draw_indicator(rng: np.random.Generator, latent_values: Array, y: Labels, epsilon: float) -> NDArray[np.bool_]:
    """Draw the indicators | f, y: True where the label was drawn at random. rng gives exactly rn uniforms.

    latent_values (r, C, n), y (n,), epsilon in [0, 1). Returns (r, n).
    """
    probability = error_probability(latent_values, y, epsilon)
    value: NDArray[np.bool_] = rng.random(probability.shape) < probability
    return value


def draw_components(
    rng: np.random.Generator, latent_values: Array, precision: Array, y: Labels, indicator: NDArray[np.bool_]
) -> Array:
    """Move f | indicators, y: each entry in turn from its normal given all others, cut where the label binds.

    latent_values (r, C, n), inside the regions of the data with indicator (r, n) False; precision (C, n, n) inverse
    prior covariances; y (n,). rng gives exactly r exponentials and r normals an entry. Returns new values.
    Time O(r C n²).
    """
    f = latent_values.copy()
    r, C, n = f.shape
    sd = 1.0 / np.sqrt(np.einsum("lnn->ln", precision))
    normals = rng.standard_normal((r, n, C))
    drops = Replay(np.moveaxis(rng.standard_exponential((r, n, C)), 0, 2))
    for i in range(n):
        bound_here = ~indicator[:, i]
        for c in range(C):
            mean = f[:, c, i] - np.einsum("rn,n->r", f[:, c], precision[c, i]) * sd[c, i] ** 2
            free = mean + sd[c, i] * normals[:, i, c]
            if c == y[i]:
                rival = np.delete(f[:, :, i], c, axis=1).max(axis=1)
                cut = draw_above(drops, mean, sd[c, i], rival)
            else:
                cut = draw_below(drops, mean, sd[c, i], f[:, y[i], i])
            f[:, c, i] = np.where(bound_here, cut, free)
    return f


class _Threshold(NamedTuple):
    conditionals: Conditionals  # given f: h and f are the same here
    precision: Array
    y: Labels
    epsilon: float
    moves: tuple[str, ...]

    def start(self, rng: np.random.Generator, n_chains: int) -> State:
        latent = swap_to_label(overdispersed(rng, self.conditionals.chol_cov, n_chains), self.y)
        # exchanging values makes them rough, far out under a smooth prior; towards the apex of the regions all is near
        chol = self.conditionals.chol_cov
        apex = log_prior(chol, np.zeros_like(latent[:1]))
        depth = np.array([float((apex - log_prior(chol, one[None]))[0]) for one in latent])  # alone: same rounding
        latent *= np.sqrt(np.minimum(1.0, 0.5 * latent[0].size / depth))[:, None, None]
        return self._state(rng, latent, np.zeros(n_chains))

    def _state(self, rng: np.random.Generator, latent: Array, events: Array) -> State:
        return {
            "auxiliary": latent,
            "indicator": draw_indicator(rng, latent, self.y, self.epsilon),
            "error": error_probability(latent, self.y, self.epsilon),
            "events": events,
        }

    def step(self, state: State, rngs: Generators) -> State:
        latent, events = state["auxiliary"], state["events"]
        if "components" in self.moves:
            latent = draw_components(rngs["latent"], latent, self.precision, self.y, state["indicator"])
        if "bounce" in self.moves:  # the indicators are summed out here, so they are drawn again right after
            height = log_step(self.epsilon, latent.shape[1])
            result = bounce_move(
                rngs["bounce"],
                latent,
                self.conditionals.cov,
                self.conditionals.chol_cov,
                self.y,
                log_height=height,
            )
            latent, events = result.auxiliary, result.events.astype(np.float64)
        return self._state(rngs["indicator"], latent, events)

    def log_joint(self, auxiliary: Array) -> Array:
        return log_prior(self.conditionals.chol_cov, auxiliary) + log_likelihood(auxiliary, self.y, self.epsilon)

    def latent(self, auxiliary: Array) -> tuple[Array, Array]:
        return auxiliary, np.zeros(auxiliary.shape[-2:])

    def class_probabilities(self, latent_mean: Array, latent_var: Array) -> Array:
        C = latent_mean.shape[1]
        return (1.0 - self.epsilon) * argmax_probability(latent_mean, latent_var) + self.epsilon / C


@takes_values
def sample(data: Data, prior: Prior, options: ThresholdOptions, *, epsilon: float = 0.0) -> MultiLatentChains:
    """Sample p(f | y) under p(y | f) = (1 - ε) [f_y is the largest] + ε/C: villacampa2017 (13), villacampa2020 (2).

    data, prior: see `gibbs.core.values`, L = n_classes; epsilon in [0, 1). options: as in
    `gibbs.models.multinomial_probit.sample`; moves one or both of "components" (univariate conditionals, O(r C n²)) and
    "bounce" (O(r C n) a reflection, n (C - 1) each).

    Raises ValueError on bad input, NotPositiveDefiniteError if the covariance of f (of u) has no Cholesky factor.
    """
    _count("n_classes", data.n_classes, 2)
    error = _scalar("epsilon", epsilon, positive=False)
    if error >= 1.0:
        raise ValueError(f"epsilon: found {error:.6g}, expected a probability in [0, 1)")
    if not options.moves:
        raise ValueError(f"moves: found (), expected at least one out of {MOVES}")
    setting = check(data, prior, data.n_classes)
    given = conditionals(setting.prior, 0.0)
    identity = np.eye(setting.y.size)
    precision = np.stack([solve_factored(chol, identity) for chol in given.chol_cov])
    model = _Threshold(given, precision, setting.y, error, tuple(options.moves))
    settings = {
        "model": f"threshold {prior.prior_model}", "n_classes": int(data.n_classes), "moves": model.moves,
        "epsilon": error,
    }  # fmt: skip
    return sample_model(model, setting.arrays, settings, PURPOSES, options)
