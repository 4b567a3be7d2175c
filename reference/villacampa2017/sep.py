"""Section 2.3.1: stochastic expectation propagation, which keeps the product of all approximate factors alone."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reference.common._options import shown
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.villacampa2017.evidence import ep_log_evidence_from_moments, gaussian_log_normaliser
from reference.villacampa2017.posterior import (
    Coefficients,
    Gaussians,
    Natural,
    aggregate_linear_coefficients,
    aggregate_precision_coefficients,
)

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@equation("villacampa2017", "u15-sep-tied-factor")
def sep_tied_factor(coefficients: Coefficients, y: Labels, upsilon: Array) -> list[Natural]:
    """φ̃ = Π_i Π_{k≠y_i} φ̃_i^k as one precision (m, m) and shift (m,) a class: section 2.3.1 of villacampa2017.

    Parameters
    ----------
    coefficients : Coefficients   of all factors, each (n, C)
    y : (n,)                      labels, 0..C-1
    upsilon : (C, n, m)           υ_i^k
    """
    delta = aggregate_precision_coefficients(coefficients.c1_label, coefficients.c1_other, y)
    mu_tilde = aggregate_linear_coefficients(coefficients.c2_label, coefficients.c2_other, y)
    return [Natural((upsilon[k].T * delta[k]) @ upsilon[k], upsilon[k].T @ mu_tilde[k]) for k in range(len(upsilon))]


@equation("villacampa2017", "u42-sep-factor-count")
def factor_counts(y: Labels, n_classes: int, count: str = "all") -> Array:
    """n of the cavity q/φ̃^{1/n} for each class, (C,): section 2.3.1 of villacampa2017.

    Parameters
    ----------
    y : (n,)                  labels, 0..C-1
    n_classes : int           C
    count : str               "all": the total number N(C - 1) of factors, as printed; "per-class": the number of those
                              that touch the class, (C - 1) N_k + (N - N_k)

    Raises
    ------
    ValueError                for another count
    """
    if not isinstance(count, str) or count not in ("all", "per-class"):
        raise ValueError(f"count: found {shown(count)}, expected all or per-class")
    n = len(y)
    if count == "all":
        return np.full(n_classes, float(n * (n_classes - 1)))
    own = np.bincount(y, minlength=n_classes).astype(np.float64)
    return (n_classes - 1) * own + (n - own)


@equation("villacampa2017", "u44-sep-batch-share")
def sep_batch_update(tied_factor: Natural, new: Natural, share: float, damping: float) -> Natural:
    """T + ρ(Σ new - r T), t + ρ(Σ new - r t) of one class: villacampa2017, 2.3.1 and 2.3.2, in words only.

    Parameters
    ----------
    tied_factor : Natural     T and t
    new : Natural             the refined factors of a mini-batch, summed
    share : float             r, part of the factors of the class that the mini-batch holds
    damping : float           ρ in (0, 1]

    Notes
    -----
    With a list of factors a mini-batch would have its own replaced. Tied, each of them is T/n, and the n r of the
    mini-batch are r T together. All data have r = 1, the whole replacement.
    """
    return Natural(
        tied_factor.precision + damping * (new.precision - share * tied_factor.precision),
        tied_factor.shift + damping * (new.shift - share * tied_factor.shift),
    )


@equation("villacampa2017", "u16-sep-cavity")
def sep_cavity(posterior: Sequence[Natural], sites: Sequence[Natural], counts: Array) -> list[Natural]:
    r"""q\ ∝ q/φ̃^{1/n}, natural parameters of each class: section 2.3.1 of villacampa2017.

    Parameters
    ----------
    posterior : sequence      natural parameters of q(f̄^k)
    sites : sequence          the tied factor, one part a class
    counts : (C,)             n for each class

    Raises
    ------
    NotPositiveDefiniteError  if what remains is not a distribution
    """
    results = []
    for q, tied, n in zip(posterior, sites, counts, strict=True):
        left = Natural(q.precision - tied.precision / n, q.shift - tied.shift / n)
        factorise(left.precision, "cavity precision", "lower damping")
        results.append(left)
    return results


@equation("villacampa2017", "u43-sep-log-evidence")
def sep_log_evidence(cavities: Gaussians, posterior: Gaussians, K_ZZ: Array, counts: Array, log_norm: Array) -> float:
    r"""log Z_q of n equal factors a class: P + Σ_i Σ_{k≠y_i} log Z_{i,k} + Σ_k n_k [g(θ\) - g(θ)], P as in (60).

    Parameters
    ----------
    cavities : Gaussians      q(f̄) of villacampa2017 without one n-th of the tied factor
    posterior : Gaussians     q(f̄)
    K_ZZ : (C, m, m)          prior covariances
    counts : (C,)             n for each class
    log_norm : (n, C)         log Z_{i,k}, zero in the columns of the labels

    Raises
    ------
    NotPositiveDefiniteError  if one of the matrices is not a covariance
    """
    total = ep_log_evidence_from_moments(posterior, K_ZZ, log_norm)  # (60)
    for k, count in enumerate(counts.tolist()):
        gap = gaussian_log_normaliser(cavities.mean[k], cavities.cov[k])  # (59)
        total += count * (gap - gaussian_log_normaliser(posterior.mean[k], posterior.cov[k]))
    return total
