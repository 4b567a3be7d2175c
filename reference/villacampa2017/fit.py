"""Sections 2.2, 2.3 and E: expectation propagation and its tied version, run to a fixed point or over mini-batches."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common.errors import factorise
from reference.common.kernels import squared_exponential
from reference.villacampa2017.cavity import Cavity
from reference.villacampa2017.evidence import (
    ep_log_evidence_from_moments,
    factor_log_scale_rank_one,
    gaussian_log_normaliser,
)
from reference.villacampa2017.factors import (
    damped_update,
    ep_refine_factors,
    pairwise_log_normaliser,
    posterior_of,
    probit_ratio,
    update_c1,
    update_c2_label,
    update_c2_other,
)
from reference.villacampa2017.model import REMEDY, add_latent_noise, inducing_covariances, projection_vectors
from reference.villacampa2017.posterior import Coefficients, Gaussians, Natural, natural_parameter_sum
from reference.villacampa2017.sep import factor_counts, sep_cavity, sep_tied_factor

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]


class Prior(NamedTuple):
    """Hyper-parameters of all classes."""

    variance: Array  # (C,)
    lengthscales: Array  # (C, d)
    noise: Array  # (C,)
    jitter: Array  # (C,)
    Z: Array  # (C, m, d)


class Matrices(NamedTuple):
    """What the prior says of the data."""

    K_ZZ: Array  # (C, m, m)
    upsilon: Array  # (C, n, m)
    cond_var: Array  # (C, n)


class EPFit(NamedTuple):
    """Where expectation propagation ended."""

    posterior: Gaussians
    coefficients: Coefficients
    log_norm: Array  # (n, C) log Z_{i,k} under the last cavities
    log_evidence: float  # log Z_q, every constant included
    residual: float  # largest undamped change of a factor in its own standardised coordinate
    converged: bool
    n_improper: int
    iterations: int


class SEPFit(NamedTuple):
    """Where stochastic expectation propagation ended."""

    posterior: Gaussians
    tied: list[Natural]
    log_norm: Array  # (n, C) log Z_{i,k} under the last cavities
    log_evidence: float
    residual: float  # undamped change of the tied factor in the metric of q
    converged: bool
    iterations: int


def prior_matrices(X: Array, prior: Prior) -> Matrices:
    """K_ZZ, υ and s of villacampa2017 for all classes.

    Parameters
    ----------
    X : (n, d)                inputs
    prior : Prior             hyper-parameters

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    K_ZZ = inducing_covariances(prior.Z, prior.variance, prior.lengthscales, prior.jitter)
    K_XZ = np.stack(
        [squared_exponential(X, prior.Z[k], prior.variance[k], prior.lengthscales[k]) for k in range(len(K_ZZ))]
    )
    upsilon = projection_vectors(K_XZ, K_ZZ)
    k_xx = add_latent_noise(np.repeat(prior.variance[:, None], len(X), axis=1), prior.noise)
    return Matrices(K_ZZ, upsilon, np.maximum(k_xx - np.sum(K_XZ * upsilon, axis=2), 0.0))


def _checked(
    X: Any, y: Any, prior: Any, damping: Any, tolerance: Any, max_iterations: Any
) -> tuple[Array, Labels, Prior]:
    X = _check.points(X, "X")
    n, d = X.shape
    Z = _check.array(prior.Z, "Z", 3)
    C = len(Z)
    if C < 2 or Z.shape[1] == 0 or Z.shape[2] != d:
        raise ValueError(f"Z: found shape {Z.shape}, expected (C, m, {d}) with C >= 2 and m >= 1")
    labels = np.asarray(y)
    if labels.shape != (n,) or labels.dtype.kind not in "iu":
        raise ValueError(f"y: found {labels.dtype} of shape {labels.shape}, expected whole numbers ({n},)")
    if np.min(labels) < 0 or np.max(labels) >= C:
        raise ValueError(f"y: found labels {np.min(labels)} to {np.max(labels)}, expected 0..{C - 1}")
    fields = {"variance": (C,), "lengthscales": (C, d), "noise": (C,), "jitter": (C,)}
    values = []
    for name, shape in fields.items():
        found = _check.array(getattr(prior, name), name, len(shape))
        zero_allowed = name in ("noise", "jitter")
        if found.shape != shape:
            raise ValueError(f"{name}: found shape {found.shape}, expected {shape}")
        if np.any(found < 0.0) or (not zero_allowed and np.any(found == 0.0)):
            raise ValueError(f"{name}: found {np.min(found):.6g}, expected {'>= 0' if zero_allowed else '> 0'}")
        values.append(found)
    if _check.scalar(damping, "damping", zero_allowed=False) > 1.0:
        raise ValueError(f"damping: found {damping!r}, expected a number in (0, 1]")
    _check.scalar(tolerance, "tolerance", zero_allowed=False)
    _check.count(max_iterations, "max_iterations")
    return X, labels.astype(np.int64), Prior(values[0], values[1], values[2], values[3], Z)


def _batches(batches: Any, n: int) -> list[Batch] | None:
    """Index lists, each index once and ascending."""
    if batches is None:
        return None
    found = []
    for place, batch in enumerate(batches):
        rows = np.asarray(batch)
        if rows.ndim != 1 or len(rows) == 0 or rows.dtype.kind not in "iu":
            raise ValueError(f"batches[{place}]: found shape {rows.shape}, expected a list of at least one index")
        if np.min(rows) < 0 or np.max(rows) >= n:
            raise ValueError(f"batches[{place}]: found {np.min(rows)} to {np.max(rows)}, expected 0 to {n - 1}")
        found.append(np.unique(rows).astype(np.intp))
    if not found:
        raise ValueError("batches: found an empty list, expected at least one mini-batch")
    return found


def ep_residual(new: Coefficients, old: Coefficients, posterior: Gaussians, y: Labels, upsilon: Array) -> float:
    """Largest change of a factor, max(|ΔC¹| q, |ΔC² - ΔC¹ p| √q) with p, q the moments of υᵀf̄ under q: villacampa2017.

    Parameters
    ----------
    new : Coefficients        of all factors, undamped
    old : Coefficients        of all factors
    posterior : Gaussians     q(f̄) before the update
    y : (n,)                  labels, 0..C-1
    upsilon : (C, n, m)       υ_i^k
    """
    p = np.einsum("kim,km->ik", upsilon, posterior.mean)
    q = np.einsum("kim,kml,kil->ik", upsilon, posterior.cov, upsilon)
    own = np.arange(len(y)), y
    largest = 0.0
    for c1, c2, at_p, at_q in (
        (new.c1_label - old.c1_label, new.c2_label - old.c2_label, p[own][:, None], q[own][:, None]),
        (new.c1_other - old.c1_other, new.c2_other - old.c2_other, p, q),
    ):
        largest = max(largest, float(np.max(np.abs(c1) * at_q)), float(np.max(np.abs(c2 - c1 * at_p) * np.sqrt(at_q))))
    return largest


def fit_ep(
    X: Array,
    y: Labels,
    prior: Prior,
    damping: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    batches: Sequence[Any] | None = None,
) -> EPFit:
    """Parallel damped expectation propagation of villacampa2017 from factors of one: one site a datum and other class.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1; a class may be absent
    prior : Prior             hyper-parameters and inducing inputs, held
    damping : float           in (0, 1], how much of each move is made
    tolerance : float         residual at which the loop ends, without mini-batches
    max_iterations : int      sweeps after which it gives up; `converged` is then False
    batches : index lists     factors of one list are refined in each step; None: of all data

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X, y, prior = _checked(X, y, prior, damping, tolerance, max_iterations)
    plan = _batches(batches, len(X))
    K = prior_matrices(X, prior)
    at = Coefficients(*(np.zeros((len(X), len(prior.Z))) for _ in range(4)))
    q = posterior_of(at, y, K.upsilon, K.K_ZZ)
    n_improper, iterations, residual, converged = 0, 0, np.inf, False
    while not converged and iterations < (max_iterations if plan is None else len(plan)):
        rows = np.arange(len(X)) if plan is None else plan[iterations]
        part = Coefficients(*(each[rows] for each in at))
        data = y[rows], K.upsilon[:, rows]
        refined = ep_refine_factors(part, q, *data, K.cond_var[:, rows])
        residual = ep_residual(refined.coefficients, part, q, *data)
        at = Coefficients(*(each.copy() for each in at))
        for new, old, each in zip(refined.coefficients, part, at, strict=True):
            each[rows] = damped_update(new, old, damping)
        q = posterior_of(at, y, K.upsilon, K.K_ZZ)
        n_improper += refined.n_improper
        iterations += 1
        converged = plan is None and residual <= tolerance and refined.n_improper == 0
    log_norm = ep_refine_factors(at, q, y, K.upsilon, K.cond_var).log_norm
    scales = factor_log_scale_rank_one(log_norm, at, q, y, K.upsilon)
    log_evidence = ep_log_evidence_from_moments(q, K.K_ZZ, scales)
    return EPFit(q, at, log_norm, log_evidence, residual, converged, n_improper, iterations)


def _moments(theta: Natural) -> Cavity:
    cov = factorise(theta.precision, "precision", "lower damping").inverse
    return Cavity(cov @ theta.shift, cov)


def sep_refine_factors(
    cavities: Sequence[Cavity], y: Labels, upsilon: Array, cond_var: Array
) -> tuple[Coefficients, Array]:
    """Coefficients of all factors and log Z_{i,k}, each (n, C), from one cavity a class: villacampa2017, 2.3.1.

    Parameters
    ----------
    cavities : sequence       moments of q(f̄^k) without one n-th of the tied factor
    y : (n,)                  labels, 0..C-1
    upsilon : (C, n, m)       υ_i^k
    cond_var : (C, n)         s_i^k
    """
    n, C = len(y), len(cavities)
    found, log_norm = Coefficients(*(np.zeros((n, C)) for _ in range(4))), np.zeros((n, C))
    for i in range(n):
        label = int(y[i])
        a = [float(upsilon[k, i] @ cavities[k].mean) for k in range(C)]
        b = [float(cond_var[k, i] + upsilon[k, i] @ cavities[k].cov @ upsilon[k, i]) for k in range(C)]
        for k in range(C):
            if k == label:
                continue
            pair = a[label], a[k], b[label], b[k]
            log_norm[i, k] = pairwise_log_normaliser(*pair)
            ratio, b_sum = probit_ratio(*pair), b[label] + b[k]
            own, other = (upsilon[label, i], *cavities[label]), (upsilon[k, i], *cavities[k])
            c1_label = update_c1(*ratio, b_sum, own[0], own[2])
            c1_other = update_c1(*ratio, b_sum, other[0], other[2])
            found.c1_label[i, k], found.c1_other[i, k] = c1_label, c1_other
            found.c2_label[i, k] = update_c2_label(ratio.beta, b_sum, c1_label, *own)
            found.c2_other[i, k] = update_c2_other(ratio.beta, b_sum, c1_other, *other)
    return found, log_norm


def fit_sep(
    X: Array,
    y: Labels,
    prior: Prior,
    count: str = "all",
    damping: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    batches: Sequence[Any] | None = None,
) -> SEPFit:
    """Stochastic expectation propagation of villacampa2017: factors tied, one precision and shift kept a class.

    A sweep replaces the part of the tied factor that its data stand for, r of it, by their refined factors:
    T ← T + ρ (Σ new - r T), where r is the share of the data; with the count "per-class", of the factors of a class.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1; a class may be absent
    prior : Prior             hyper-parameters and inducing inputs, held
    count : str               "all" or "per-class": see `sep.factor_counts`
    damping : float           ρ in (0, 1]
    tolerance : float         residual at which the loop ends, without mini-batches
    max_iterations : int      sweeps after which it gives up; `converged` is then False
    batches : index lists     data of each step; None: all

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X, y, prior = _checked(X, y, prior, damping, tolerance, max_iterations)
    plan = _batches(batches, len(X))
    K = prior_matrices(X, prior)
    C, m = prior.Z.shape[:2]
    counts = factor_counts(y, C, count)
    base = [Natural(factorise(each, "K_ZZ", REMEDY).inverse, np.zeros(m)) for each in K.K_ZZ]
    tied = [Natural(np.zeros((m, m)), np.zeros(m)) for _ in range(C)]
    iterations, residual, converged = 0, np.inf, False
    while not converged and iterations < (max_iterations if plan is None else len(plan)):
        rows = np.arange(len(X)) if plan is None else plan[iterations]
        theta = [natural_parameter_sum(p, [t]) for p, t in zip(base, tied, strict=True)]
        cavities = [_moments(c) for c in sep_cavity(theta, tied, counts)]
        data = y[rows], K.upsilon[:, rows]
        target = sep_tied_factor(sep_refine_factors(cavities, *data, K.cond_var[:, rows])[0], *data)
        shares = factor_counts(y[rows], C, count) / counts
        residual = 0.0
        for k in range(C):
            step = Natural(
                target[k].precision - shares[k] * tied[k].precision, target[k].shift - shares[k] * tied[k].shift
            )
            mean, V = _moments(theta[k])
            left = step.shift - step.precision @ mean
            moved = V @ step.precision
            residual = max(residual, float(np.sqrt(max(np.sum(moved * moved.T), 0.0))), float(np.sqrt(left @ V @ left)))
            tied[k] = Natural(tied[k].precision + damping * step.precision, tied[k].shift + damping * step.shift)
        iterations += 1
        converged = plan is None and residual <= tolerance
    theta = [natural_parameter_sum(p, [t]) for p, t in zip(base, tied, strict=True)]
    laws, cavities = [_moments(each) for each in theta], [_moments(c) for c in sep_cavity(theta, tied, counts)]
    _, log_norm = sep_refine_factors(cavities, y, K.upsilon, K.cond_var)
    q = Gaussians(np.array([law.mean for law in laws]), np.array([law.cov for law in laws]))
    log_evidence = ep_log_evidence_from_moments(q, K.K_ZZ, log_norm) + sum(
        float(counts[k]) * (gaussian_log_normaliser(*cavities[k]) - gaussian_log_normaliser(*laws[k])) for k in range(C)
    )
    return SEPFit(q, tied, log_norm, log_evidence, residual, converged, iterations)
