"""What the methods of the paper share: checked inputs, matrices of the prior, derivatives through the kernel."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._learning import FIELDS, check_hyper, each_parameter
from reference.common.errors import NotPositiveDefiniteError, factorise
from reference.common.priors import Hyper
from reference.wenzel2019.model import kernel_se_ard_noise
from reference.wenzel2019.prediction import LatentPrediction, predict_latent
from reference.wenzel2019.updates import Gaussian

Array = NDArray[np.float64]

REMEDY_X = "raise noise or jitter, or remove duplicate rows of X"
REMEDY_Z = "raise jitter or remove duplicate rows of Z"


class Matrices(NamedTuple):
    """What the bounds need of the kernel."""

    K_ZZ: Array  # (m, m)
    K_ZZ_inv: Array  # (m, m)
    upsilon: Array  # (n, m)
    cond_var: Array  # (n,)


class Inputs(NamedTuple):
    """Checked inputs."""

    X: Array
    y_sign: Array
    hyper: Hyper


class Weights(NamedTuple):
    """Derivatives of the data terms in the moments of each f_i, and in K̃_ii at given moments of κ_i u."""

    mean: Array  # (n,)    in κ_i μ
    spread: Array  # (n,)  in κ_i Σ κ_iᵀ
    cond: Array  # (n,)    in K̃_ii


def checked(X: Any, y_sign: Any, variance: Any, lengthscales: Any, noise: Any, jitter: Any, Z: Any) -> Inputs:
    """Inputs as float64 arrays, or a ValueError that names the argument."""
    X = _check.points(X, "X")
    y_sign = _check.labels(y_sign, len(X))
    return Inputs(X, y_sign, check_hyper(variance, lengthscales, noise, jitter, Z, X.shape[1]))


def support(X: Array, hyper: Hyper) -> Array:
    """Inputs of u: Z, or X in the full model."""
    return X if hyper.Z is None else hyper.Z


def matrices(X: Array, hyper: Hyper) -> Matrices:
    """K_mm, its inverse, κ and the diagonal of K̃.

    Full (Z is None): u = f, so K_mm = K_nn = k + (noise + jitter) I, κ = I, K̃ = 0.
    """
    variance, lengthscales, noise, jitter, Z = hyper
    if Z is None:
        K_XX = kernel_se_ard_noise(X, None, variance, lengthscales, noise + jitter)
        return Matrices(K_XX, factorise(K_XX, "K_XX", REMEDY_X).inverse, np.eye(len(X)), np.zeros(len(X)))
    K_ZZ = kernel_se_ard_noise(Z, None, variance, lengthscales, jitter)
    K_XZ = kernel_se_ard_noise(X, Z, variance, lengthscales, 0.0)
    K_ZZ_inv = factorise(K_ZZ, "K_ZZ", REMEDY_Z).inverse
    upsilon = K_XZ @ K_ZZ_inv
    cond_var = variance + noise - np.sum(upsilon * K_XZ, axis=1)
    # K̃_ii >= 0, but for rounding of its two terms: a condition of K_ZZ that eats all but three digits is refused
    if np.min(cond_var) < -1e-3 * (variance + noise):
        raise NotPositiveDefiniteError(
            f"K_ZZ {K_ZZ.shape}: found K_tilde_ii = {np.min(cond_var):.3g} by rounding, expected >= 0; {REMEDY_Z}"
        )
    return Matrices(K_ZZ, K_ZZ_inv, upsilon, cond_var)


def gradients(
    X: Array,
    hyper: Hyper,
    K: Matrices,
    q: Gaussian,
    weights: Weights,
    prior_part: Array | None = None,
    batch: NDArray[np.intp] | None = None,
    fields: Sequence[str] = FIELDS,
) -> dict[str, Any]:
    """Derivatives of  Σ_{i in batch} data_i - KL(N(μ, Σ) || N(0, K_mm))  in the kernel's parameters, at fixed μ, Σ.

    One parameter at a time, from dK_mm, dK_nm and the diagonal dk of dK_nn:

        dκ = (dK_nm - κ dK_mm) K_mm⁻¹
        dK̃_ii = dk_i - 2 dK_im κ_iᵀ + κ_i dK_mm κ_iᵀ
        dL = Σ_i { mean_i dκ_i μ + 2 spread_i dκ_i Σ κ_iᵀ + cond_i dK̃_ii }
             - ½ { tr(K_mm⁻¹dK_mm) - tr(K_mm⁻¹dK_mm K_mm⁻¹Σ) - μᵀK_mm⁻¹dK_mm K_mm⁻¹μ }

    of which the matrices that multiply dK_nm and dK_mm are collected once.

    weights are those of the batch (all data if None), scaled as the caller wants them. prior_part is
    K_mm⁻¹ - K_mm⁻¹ΣK_mm⁻¹ - αα' for a caller who has it without the cancellation where q(u) is close to p(u).
    """
    (mu, Sigma), rows = q, slice(None) if batch is None else batch
    kappa = K.upsilon[rows]
    alpha = K.K_ZZ_inv @ mu  # α = K_mm⁻¹μ
    if prior_part is None:
        prior_part = K.K_ZZ_inv - K.K_ZZ_inv @ Sigma @ K.K_ZZ_inv - np.outer(alpha, alpha)

    by_kappa = (np.outer(weights.mean, mu) + 2.0 * weights.spread[:, None] * (kappa @ Sigma)) @ K.K_ZZ_inv
    by_nm = by_kappa - 2.0 * weights.cond[:, None] * kappa
    by_mm = -kappa.T @ by_kappa + (kappa.T * weights.cond) @ kappa
    by_prior = 0.5 * prior_part

    def derivative(dK_mm: Array, dK_nm: Array, dk: Array) -> float:
        """dL for one parameter; in the full model κ = I and K̃ = 0 whatever the kernel."""
        if hyper.Z is None:
            return -float(np.sum(by_prior * dK_mm))
        return float(np.sum(by_nm * dK_nm) + np.sum((by_mm - by_prior) * dK_mm) + weights.cond @ dk)

    return each_parameter(derivative, support(X, hyper), X[rows], hyper, fields)


def prior_part_of_sites(K: Matrices, Sigma: Array, precision: Array, pull: Array) -> Array:
    """K_mm⁻¹ - K_mm⁻¹ΣK_mm⁻¹ - αα' where Σ⁻¹ = K_mm⁻¹ + κᵀ diag(precision) κ and α = K_mm⁻¹μ = κᵀ pull.

    The first two terms are κᵀ diag(precision) κ Σ K_mm⁻¹. Formed by themselves they cancel, and what rounding leaves of
    Σ, or a last step of an iteration, is multiplied by K_mm⁻¹ twice: at a condition of 5e5 a gradient lost four digits.
    """
    alpha = K.upsilon.T @ pull
    return np.asarray((K.upsilon.T * precision) @ K.upsilon @ Sigma @ K.K_ZZ_inv - np.outer(alpha, alpha))


def predict(mu: Array, Sigma: Array, X: Array, X_test: Any, hyper: Hyper) -> LatentPrediction:
    """Latent moments (13) at checked test points; a variance that rounding makes negative is an error."""
    tests = _check.points(X_test, "X_test", X.shape[1], allow_empty=True)
    inputs = support(X, hyper)
    if mu.shape != (len(inputs),):
        raise ValueError(f"fit: found inducing_mean of shape {mu.shape}, expected ({len(inputs)},)")
    on_diagonal = hyper.noise + hyper.jitter if hyper.Z is None else hyper.jitter
    K_ZZ = kernel_se_ard_noise(inputs, None, hyper.variance, hyper.lengthscales, on_diagonal)
    K_TZ = kernel_se_ard_noise(tests, inputs, hyper.variance, hyper.lengthscales, 0.0)
    latent = predict_latent(mu, Sigma, K_TZ, np.full(len(tests), hyper.variance + hyper.noise), K_ZZ)
    if np.any(latent.latent_var < 0.0):
        name, remedy = ("K_XX", REMEDY_X) if hyper.Z is None else ("K_ZZ", REMEDY_Z)
        raise NotPositiveDefiniteError(
            f"{name} {K_ZZ.shape}: found latent variance {np.min(latent.latent_var):.3g} at row "
            f"{np.argmin(latent.latent_var)} of X_test by rounding, expected >= 0; {remedy}"
        )
    return latent


def latent_moments(K: Matrices, mu: Array, Sigma: Array) -> tuple[Array, Array]:
    """Means and variances of q(f_i), each (n,)."""
    return K.upsilon @ mu, K.cond_var + np.sum((K.upsilon @ Sigma) * K.upsilon, axis=1)
