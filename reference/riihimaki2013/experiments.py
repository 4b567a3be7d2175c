"""Section 5.1: tilted moments of every datum by the rivals, against closed forms or the paper's own baseline."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.algebra import inverted, solution
from reference.common.ledger import equation
from reference.riihimaki2013 import _check
from reference.riihimaki2013.fit import Prior, fit_ep
from reference.riihimaki2013.inner_ep import inner_ep, inner_log_normaliser
from reference.riihimaki2013.quadrature_ep import (
    cavity_covariance_g,
    diagonal_lambda,
    lambda_from_moments,
    quadrature_site,
    tilted_moments_full_quadrature,
    tilted_moments_quadrature,
    tilted_multinomial_probit,
    xi_from_moments,
)
from reference.riihimaki2013.sites import Moments, Tilted, augmented_tilted, cavity, difference_matrix

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Differences(NamedTuple):
    """A rule's tilted moments less those of the baseline."""

    log_norm: Array  # (n,)
    mean: Array  # (n, c)
    cov: Array  # (n, c, c)


def tilted_by_inner_ep(cavity: Moments, y_i: int) -> Tilted:
    """Tilted moments by the inner algorithm from zero sites; y_i is the label of the cavity."""
    start = np.zeros(len(cavity.mean) - 1)
    result = inner_ep(cavity.mean, cavity.cov, y_i, start, start)
    w = augmented_tilted(cavity.mean, cavity.cov, y_i)
    norm = float(np.exp(inner_log_normaliser(w, result.alpha, result.beta)))
    return Tilted(norm, result.mean[:-1], result.cov[:-1, :-1])


def tilted_by_differences(cavity: Moments, y_i: int, nodes: int, diagonal: bool) -> Tilted:
    """Tilted moments of f that the site of section 3.3 makes: its rule over g, then Λ, or its diagonal, and ξ.

    Parameters
    ----------
    cavity : Moments          of the datum
    y_i : int                 label
    nodes : int               per dimension
    diagonal : bool           Λ cut to its diagonal
    """
    B = difference_matrix(len(cavity.mean), y_i)
    hat = tilted_moments_quadrature(B.T @ cavity.mean, cavity_covariance_g(cavity.cov, B), nodes)
    Lambda = lambda_from_moments(hat.cov, cavity.cov, B)
    if diagonal:
        Lambda = np.diag(diagonal_lambda(Lambda))
    site = quadrature_site(Lambda, xi_from_moments(hat.mean, hat.cov, cavity.mean, cavity.cov, B, diagonal), y_i)
    cov = np.asarray(
        inverted(inverted(cavity.cov, "cavity covariance") + site.precision, "precision"),
        dtype=np.float64,
    )
    return Tilted(hat.norm, cov @ (solution(cavity.cov, cavity.mean, "cavity covariance") + site.location), cov)


@equation("riihimaki2013", "u5.1-tilted-study")
def compare_tilted_moments(
    X: Array, y: Labels, n_classes: int, prior: Prior, baseline: str = "differences", nodes: int | None = None
) -> dict[str, Differences]:
    """Differences of log Ẑ, mean and covariance after two parallel outer iterations: Figure 1 of riihimaki2013.

    The rules: inner EP, Q5, Q10, QD5 and QD10 (5 and 10 nodes per dimension over g, full and diagonal Λ).

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels
    n_classes : int           c
    prior : Prior             hyper-parameters; the paper's are log σ² = log l = 1
    baseline : str            "differences": `tilted_multinomial_probit`, whose errors are 1e-12 to three classes and
                              stated there for more; "augmented": the paper's product rule over w = (f, u)
    nodes : int or None       of the baseline, per dimension; None: no product rule over the differences, the paper's
                              10 over w

    Raises
    ------
    ValueError                for another baseline, for a rule of more than 1e6 points, and where the baseline refuses
    """
    _check.choice(baseline, ("differences", "augmented"), "baseline")
    fit = fit_ep(X, y, n_classes, prior, schedule="parallel", max_iterations=2)
    rows: dict[str, list[tuple[float, Array, Array]]] = {}
    for i in range(len(y)):
        label = int(y[i])
        without = cavity(fit.latent_mean[i], fit.latent_cov[i], fit.site_precision[i], fit.site_location[i])
        if baseline == "differences":
            right = tilted_multinomial_probit(without.mean, without.cov, label, nodes)
        else:
            right = tilted_moments_full_quadrature(without.mean, without.cov, label, 10 if nodes is None else nodes)
        results = {
            "inner-ep": tilted_by_inner_ep(without, label),
            "Q5": tilted_by_differences(without, label, 5, False),
            "Q10": tilted_by_differences(without, label, 10, False),
            "QD5": tilted_by_differences(without, label, 5, True),
            "QD10": tilted_by_differences(without, label, 10, True),
        }
        for name, one in results.items():
            gap = float(np.log(one.norm) - np.log(right.norm))
            rows.setdefault(name, []).append((gap, one.mean - right.mean, one.cov - right.cov))
    return {
        name: Differences(*(np.array([row[part] for row in each]) for part in range(3))) for name, each in rows.items()
    }
