"""bb-alpha: the black-box alpha energy with tied factors, by quadrature or by Monte Carlo. villacampa2020, section 4.

Its minimum over q is the maximum of apep, which gives q; the energy is then evaluated with the expectations of (11) as
one-dimensional integrals (-energy is the objective of apep) or as means over draws of q and of the latent noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from fast.core.declare import Options, option
from fast.core.linalg import cholesky_of_all, solve_stack
from fast.core.options import Iteration, Learning, Length, Mislabelled, Powered, SearchEnd, Storage, Traced, Watched
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.ledger import equation
from fast.likelihood.power import _logs as robust_logs
from fast.methods.apep import EnergyPosterior


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawing(Options):
    """How the expectations of the energy are taken by Monte Carlo."""

    n_draws: int = option("integer", "draws of the Monte Carlo expectations", "[2, 2147483647]", default=1000)
    seed: int = option("integer", "of all that is drawn", "[0, inf)", default=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class BBAlphaOptions(Iteration, Powered, Mislabelled, Length, Learning, SearchEnd, Traced, Watched, Storage, Drawing):
    """Options of the whole: q on all data, then the energy there."""

    expectation: str = option(
        "choice",
        "how the energies' expectations are taken",
        choices=("quadrature", "monte-carlo"),
        default="quadrature",
    )


class Sampled(NamedTuple):
    """The energy with its expectations replaced by means over draws."""

    energy: float | None  # None: an expectation was estimated as zero
    log_norm: FloatArray  # (n,) log of each expectation over alpha
    standard_error: float  # of the energy, the draws of different data taken as independent
    zero_expectations: int


@equation("villacampa2020", "11")
@one_thread
def quadrature_energy(posterior: EnergyPosterior) -> float | None:
    """Energy (11) at q, its expectations in closed form and one-dimensional integrals; None: no finite optimum.

    Parameters
    ----------
    posterior    of `fast.methods.apep.fit` with energy="apep"
    """
    return None if posterior.log_evidence is None else -posterior.log_evidence


@Drawing.checks
def monte_carlo_energy(posterior: EnergyPosterior, *, n_draws: int = 1000, seed: int = 0) -> Sampled:
    """Energy (11) at q with n_draws draws for every expectation, shared by the data. Time O(n_draws n C m).

    Biased upwards by the concavity of the logarithm. At alpha = 0 the mean of log p - log phi~ takes its place.
    The draws are z (n_draws, C, m) and xi (n_draws, n, C), in this order: u = m + R z, R = chol(V), f = upsilon'u +
    sqrt(s) xi.

    Parameters
    ----------
    posterior        of `fast.methods.apep.fit` with energy="apep"
    n_draws : int    >= 2
    seed : int       of the draws
    """
    run, q = posterior.run, posterior.run.q
    alpha, n, C = run.energy.alpha, run.data.n, run.points.n_classes
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n_draws, C, run.points.m))
    xi = rng.standard_normal((n_draws, n, C))
    mean, cov = run.points.inducing_moments(q)
    root = cholesky_of_all(cov, "covariance of q(u)", "raise jitter")
    own = np.zeros(n_draws)  # log of all tied factors together, at the draws
    whitened = []
    for k in range(C):
        L = run.points.chol_K[run.points.kind[k]]
        v = solve_stack(L, mean[k][:, None] + root[k] @ z[:, k].T)  # (m, n_draws)
        tied = q.precision[k] - np.eye(v.shape[0])
        own += q.shift[k] @ v - 0.5 * np.einsum("md,md->d", v, tied @ v)
        whitened.append(v)
    low, high = robust_logs(run.epsilon, C)
    log_norm, relative = np.full((2, n), np.nan)  # a row in no block would count as missing
    for block in run.data.blocks(run.points):
        rows = [block.view.rows[run.points.kind[k]] @ whitened[k] for k in range(C)]
        f = np.stack(rows, axis=-1).transpose(1, 0, 2)  # (n_draws, b, C)
        f = f + np.sqrt(block.view.cond_var) * xi[:, block.part]
        wins = f.argmax(axis=2) == block.y
        log_p = np.where(wins, high, low)
        if alpha == 0.0:
            log_norm[block.part] = (log_p - own[:, None] / n).mean(axis=0)
            relative[block.part] = (log_p - own[:, None] / n).var(axis=0) / n_draws
            continue
        terms = alpha * (log_p - own[:, None] / n)
        with np.errstate(divide="ignore"):
            total = logsumexp(terms, axis=0) - np.log(n_draws)
        log_norm[block.part] = total / alpha
        with np.errstate(invalid="ignore"):
            deviation = np.exp(terms - total).var(axis=0)
        relative[block.part] = deviation / (n_draws * alpha * alpha)
    missing = int(np.count_nonzero(~np.isfinite(log_norm)))
    if missing:
        return Sampled(None, log_norm, float("nan"), missing)
    prior = 0.5 * float(q.shift_norm.sum() - q.log_det.sum())  # G(q) - G(p)
    return Sampled(-prior - float(log_norm.sum()), log_norm, float(np.sqrt(relative.sum())), 0)
