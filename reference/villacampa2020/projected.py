r"""Appendices A.3 and A.4 along υ alone: a factor's cavity and refinement need no more of q than υᵀm and υᵀVυ.

What `cavity` and `refinement` write with matrices, for all data and classes at once. The solvers run this; that the
matrices of the paper leave a fixed point of it where it is, is a test (`test_printed_text`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.villacampa2020.posterior import Coefficients, Gaussians
from reference.villacampa2020.power_likelihood import ExpectedPowers, scaled_log_expected_powers

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Projected(NamedTuple):
    """υᵀf̄ under q and the cavities, and the exact factors there; entries of improper data mean nothing."""

    p: Array  # (n, C) υᵀm
    q: Array  # (n, C) υᵀVυ
    left: Array  # (n, C) D = 1 - α C¹ q, positive where the cavity is a distribution
    mean: Array  # (n, C) (p - α C² q)/D, the cavity's
    var: Array  # (n, C) q/D
    proper: NDArray[np.bool_]  # (n,) whether the cavities of all classes are distributions
    likelihood: ExpectedPowers  # F = (1/α) log Z_i and derivatives by mean and variance of f_i


def project(
    coefficients: Coefficients,
    posterior: Gaussians,
    y: Labels,
    upsilon: Array,
    cond_var: Array,
    epsilon: float,
    alpha: float,
) -> Projected:
    """Cavities of villacampa2020 along υ, and the normalisers of the powered likelihoods under them.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    posterior : Gaussians         q(f̄)
    y : (n,)                      labels, 0..C-1
    upsilon : (C, n, m)           υ_i^k
    cond_var : (C, n)             s_i^k
    epsilon : float               label-error probability
    alpha : float                 α in [0, 1]; at 0 the cavity is q
    """
    c1, c2 = coefficients
    p = np.einsum("kim,km->ik", upsilon, posterior.mean)
    q = np.stack([np.sum((u @ V) * u, axis=1) for u, V in zip(upsilon, posterior.cov, strict=True)], axis=1)
    remaining = 1.0 - alpha * c1 * q
    proper = np.all(remaining > 0.0, axis=1)
    safe = np.where(proper[:, None], remaining, 1.0)
    mean, var = (p - alpha * c2 * q) / safe, q / safe
    result = scaled_log_expected_powers(mean[proper], cond_var.T[proper] + var[proper], y[proper], epsilon, alpha)
    parts = []
    for part in result:
        filled = np.zeros((len(y), *part.shape[1:]))
        filled[proper] = part
        parts.append(filled)
    return Projected(p, q, remaining, mean, var, proper, ExpectedPowers(*parts))


def proposals(coefficients: Coefficients, projected: Projected, alpha: float) -> Coefficients:
    r"""Refined factors of villacampa2020, undamped: C¹ = h/(1 - αhv), C² = (g + h e)/(1 - αhv).

    g = ∂F/∂mean, h = αg² - 2 ∂F/∂var = -∂²F/∂mean², e and v the cavity's. At α = 0 these are the limits of (A.17) and
    (A.20), C¹ = -2 ∂F/∂var and C² = g + C¹p, the natural gradient of the variational bound (5).

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    projected : Projected         from these factors; improper data keep theirs
    alpha : float                 α in [0, 1]
    """
    g, h = projected.likelihood.d_mean, -projected.likelihood.d2_mean
    open_part = np.where(
        projected.proper[:, None], 1.0 - alpha * h * projected.var, 1.0
    )  # variance of the tilted distribution over v
    c1 = np.where(projected.proper[:, None], h / open_part, coefficients.c1)
    return Coefficients(c1, np.where(projected.proper[:, None], (g + h * projected.mean) / open_part, coefficients.c2))
