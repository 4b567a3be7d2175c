"""Section 3.2 with φ̃ a Gaussian in its own right: q ∝ φ̃ p(f̄) is then nowhere wider than the prior, as table 1 has it.

The precision of φ̃ is a square, L_KᵀT L_K = RRᵀ with R lower triangular; where the energy would rather have a negative
one, R loses rank and the maximum is on the boundary.
"""

import numpy as np
from numpy.typing import NDArray

from reference.common._ascent import FINITE, NOT_REACHED
from reference.common._classes import checked_input
from reference.common._gaussians import Gaussians, Natural, moments_of
from reference.common._search import Limits, maximise
from reference.common.algebra import inverted
from reference.common.errors import cholesky
from reference.common.priors import Prior
from reference.villacampa2020.energies import Energy
from reference.villacampa2020.fit_energies import Data, EnergyFit
from reference.villacampa2020.hyper import prior_matrices
from reference.villacampa2020.posterior import REMEDY

Array = NDArray[np.float64]

CONVERGED = 1e-6  # largest entry of the gradient: a maximum on the boundary is reached no closer
_START = 0.1


def _distribution(where: Array, inverses: Array) -> tuple[Gaussians, Array, Array]:
    """q, R (C, m, m) and natural shift (C, m) from the coordinates, `inverses` those of L_K."""
    C, m, _ = inverses.shape
    low = np.tril_indices(m)
    roots, back = np.zeros((C, m, m)), np.transpose(inverses, (0, 2, 1))
    rows = where.reshape(C, -1)
    for root, row in zip(roots, rows, strict=True):
        root[low] = row[m:]
    shift = np.einsum("kij,kj->ki", back, rows[:, :m])
    precision = back @ (np.eye(m) + roots @ np.transpose(roots, (0, 2, 1))) @ inverses
    return moments_of(Natural(precision, shift), "precision of q"), roots, shift


def _derivatives(at: Energy, q: Gaussians, roots: Array, inverses: Array) -> Array:
    """The energy's derivatives in the coordinates."""
    parts, low = [], np.tril_indices(roots.shape[1])
    for m, V, by_mean, by_cov, root, inverse in zip(*q, at.by_mean, at.by_cov, roots, inverses, strict=True):
        by_shift = V @ by_mean
        outer = np.outer(by_shift, m)
        by_precision = -0.5 * (outer + outer.T) - V @ by_cov @ V
        by_root = 2.0 * inverse @ by_precision @ inverse.T @ root
        parts += [inverse @ by_shift, by_root[low]]
    return np.concatenate(parts)


def fit_gaussian_factor(data: Data, prior: Prior, max_iterations: int = 10_000) -> EnergyFit:
    """The maximum of an energy of villacampa2020 over q ∝ φ̃ p(f̄) with φ̃ a Gaussian, perhaps flat in places.

    Parameters
    ----------
    data : Data               inputs, labels, method, ε and α
    prior : Prior             hyper-parameters
    max_iterations : int      of the search

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X, y, prior = checked_input(data.X, data.y, prior)
    data, K = data._replace(X=X, y=y), prior_matrices(X, prior)
    inverses = np.stack([inverted(cholesky(each, "K_ZZ", REMEDY), "chol K_ZZ") for each in K.K_ZZ])
    C, m, _ = inverses.shape
    start = np.tile(np.concatenate([np.zeros(m), _START * np.eye(m)[np.tril_indices(m)]]), C)

    def objective(where: Array) -> tuple[float, Array]:
        q, roots, _ = _distribution(where, inverses)
        at = data.at(q, K)
        return at.value, _derivatives(at, q, roots, inverses)

    limits = Limits(1e-9, 1e-15, max_iterations, 20 * max_iterations, memory=30)
    top = maximise(objective, start, limits)
    q = _distribution(top.where, inverses)[0]
    at = data.at(q, K)
    converged = top.residual <= CONVERGED
    optimum = FINITE if converged else NOT_REACHED
    return EnergyFit(q, at.value, at.data.log_norm, optimum, top.trace, top.residual, converged, top.iterations, prior)
