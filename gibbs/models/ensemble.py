"""Small posteriors by emcee's affine-invariant ensemble (Foreman-Mackey et al. 2013): a witness of the Gibbs chain.

It knows nothing of Pólya-Gamma variables: only the unnormalised density in white coordinates.
"""

from __future__ import annotations

from typing import NamedTuple

import emcee
import numpy as np
from numpy.typing import ArrayLike

from gibbs.chains.diagnostics import standard_error
from gibbs.core.declare import checked_options
from gibbs.core.errors import Array, _count, _reachable, _signs
from gibbs.core.linalg import cholesky
from gibbs.core.options import Chains, EnsembleOptions


class EnsembleMoments(NamedTuple):
    """Posterior moments of f with Monte Carlo standard errors; draws (steps, walkers, n)."""

    latent_mean: Array
    latent_mean_se: Array
    latent_var: Array
    latent_var_se: Array
    draws: Array
    acceptance: float


@checked_options(EnsembleOptions, Chains)
def sample_ensemble(
    rng: np.random.Generator,
    K_XX: ArrayLike,
    y_sign: ArrayLike,
    *,
    n_walkers: int = 32,
    n_draws: int,
    n_warmup: int,
    thin: int = 1,
) -> EnsembleMoments:
    """Sample p(f | y) of the full GP with logit likelihood, n <= 6, by emcee.

    rng gives the start states and one seed. K_XX (n, n), noise and jitter included; y_sign (n,). n_walkers >= 2n + 2,
    even; n_draws steps are kept, one every `thin`, after n_warmup. Walkers depend on one another, so the errors are
    those of the series of ensemble averages. Raises ValueError on bad input, also for n > 6, where the stretch move
    mixes too slowly to be a witness, and NotPositiveDefiniteError if K_XX has no Cholesky factor.
    """
    K = _reachable("K_XX", K_XX, 2)
    n = len(K)
    if K.shape != (n, n) or not 1 <= n <= 6:
        raise ValueError(f"K_XX: found shape {K.shape}, expected (n, n) with 1 <= n <= 6")
    signs = _signs(y_sign, n)
    _count("n_walkers", n_walkers, 2 * n + 2)
    if n_walkers % 2:
        raise ValueError(f"n_walkers: found {n_walkers}, expected an even number")
    _count("n_draws", n_draws, 8)
    _count("n_warmup", n_warmup, 0)
    _count("thin", thin, 1)
    chol = cholesky("K_XX", K, "raise noise or jitter, or remove duplicate rows of X")

    def log_density(white: Array) -> Array:
        return -np.logaddexp(0.0, -signs * (white @ chol.T)).sum(axis=1) - 0.5 * np.square(white).sum(axis=1)

    sampler = emcee.EnsembleSampler(n_walkers, n, log_density, vectorize=True)
    # emcee draws from a RandomState of its own: it starts from a state spawned by rng
    legacy = np.random.RandomState(np.random.MT19937(rng.bit_generator.seed_seq.spawn(1)[0]))  # type: ignore[attr-defined]
    start = emcee.State(rng.standard_normal((n_walkers, n)), random_state=legacy.get_state())
    if n_warmup:
        start = sampler.run_mcmc(start, n_warmup)
        sampler.reset()
    sampler.run_mcmc(start, n_draws, thin_by=thin)
    draws = sampler.get_chain() @ chol.T
    mean = draws.mean(axis=(0, 1))
    squares = np.square(draws - mean)
    return EnsembleMoments(
        mean,
        standard_error(draws.mean(axis=1)[None]),
        squares.mean(axis=(0, 1)),
        standard_error(squares.mean(axis=1)[None]),
        draws,
        float(np.mean(sampler.acceptance_fraction)),
    )
