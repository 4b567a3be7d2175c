"""What the methods of the paper share: checked inputs, matrices of the prior, derivatives through the kernel."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from reference.common import _check, _learning
from reference.common._options import shown
from reference.common.errors import NotPositiveDefiniteError, factorise
from reference.izmailov2016.kernels import KERNELS, covariance, covariance_gradients, covariance_input_gradients
from reference.izmailov2016.model import REMEDY_X, REMEDY_Z, Prior

Array = NDArray[np.float64]

FIELDS = _learning.FIELDS


class Matrices(NamedTuple):
    """What the bounds need of the kernel."""

    K_ZZ: Array  # (m, m)   jitter included
    K_XZ: Array  # (n, m)
    k_xx: Array  # (n,)     noise included


class Derivatives(NamedTuple):
    """Derivatives of an objective in the entries of K_mm, K_nm and the diagonal of K_nn, each on its own."""

    by_mm: Array  # (m, m)
    by_nm: Array  # (n, m)
    by_diagonal: Array  # (n,)


def check_prior(hyper: Any, d: int) -> Prior:
    """Checked parameters of the prior for d inputs."""
    given = Prior(*hyper)
    plain = _learning.check_hyper(given.variance, given.lengthscales, given.noise, given.jitter, given.Z, d)
    if not isinstance(given.kernel, str) or given.kernel not in KERNELS:
        raise ValueError(f"kernel: found {shown(given.kernel)}, expected one of {', '.join(KERNELS)}")
    if given.kernel == "se":
        if given.smoothness is not None:
            raise ValueError(f"smoothness: found {shown(given.smoothness)}, expected None for the kernel 'se'")
        return Prior(*plain)
    if given.smoothness is None:
        raise ValueError("smoothness: found None, expected the order of the Matérn kernel")
    return Prior(*plain, "matern", _check.scalar(given.smoothness, "smoothness", zero_allowed=False))


def check_learn(learn: Any, hyper: Prior) -> tuple[str, ...]:
    """The fields to learn; Z stays where it is in this paper."""
    given = (learn,) if isinstance(learn, str) else tuple(learn)
    if "Z" in given:
        raise ValueError("learn: found 'Z', expected some of variance, lengthscales, noise: izmailov2016 keeps Z")
    return _learning.check_learn(given, cast(Any, hyper))


def coordinates(hyper: Prior, learn: Sequence[str]) -> Array:
    """Logarithms of the learned parameters."""
    return _learning.coordinates(cast(Any, hyper), learn)


def moved(hyper: Prior, learn: Sequence[str], where: Array) -> Prior:
    """The prior at learned logarithms `where`."""
    return cast(Prior, _learning.moved(cast(Any, hyper), learn, where))


def log_derivatives(hyper: Prior, learn: Sequence[str], gradients: dict[str, Any]) -> Array:
    """Derivatives in the logarithms."""
    return _learning.log_derivatives(cast(Any, hyper), learn, gradients)


def _kernel(hyper: Prior) -> tuple[float, Array, str, float | None]:
    return hyper.variance, hyper.lengthscales, hyper.kernel, hyper.smoothness


def support(X: Array, hyper: Prior) -> Array:
    """Inputs of u: Z, or X in the full model."""
    return X if hyper.Z is None else hyper.Z


def matrices(X: Array, hyper: Prior) -> Matrices:
    """K_mm, K_nm and the diagonal of K_nn.

    Full (Z is None): u = f, so all three are k + (noise + jitter) I, by which K_nm K_mm⁻¹ = I and K̃ = 0.
    """
    inputs = support(X, hyper)
    K_ZZ = covariance(inputs, inputs, *_kernel(hyper))
    if hyper.Z is None:
        K_XX = K_ZZ + (hyper.noise + hyper.jitter) * np.eye(len(X))
        return Matrices(K_XX, K_XX, np.diag(K_XX).copy())
    K_XZ = covariance(X, inputs, *_kernel(hyper))
    K = Matrices(K_ZZ + hyper.jitter * np.eye(len(inputs)), K_XZ, np.full(len(X), hyper.variance + hyper.noise))
    inverse = factorise(K.K_ZZ, "K_ZZ", REMEDY_Z).inverse
    cond_var = K.k_xx - np.sum((K_XZ @ inverse) * K_XZ, axis=1)
    # K̃_ii >= 0, but for rounding of its two terms: a condition of K_ZZ that eats all but three digits is refused
    if np.min(cond_var) < -1e-3 * (hyper.variance + hyper.noise):
        raise NotPositiveDefiniteError(
            f"K_ZZ {K.K_ZZ.shape}: found K_tilde_ii = {np.min(cond_var):.3g} by rounding, expected >= 0; {REMEDY_Z}"
        )
    return K


def cross(X_test: Array, X: Array, hyper: Prior) -> Array:
    """Covariance of test points and inducing inputs, (t, m)."""
    return covariance(X_test, support(X, hyper), *_kernel(hyper))


def through_kernel(derivatives: Derivatives, X: Array, hyper: Prior, fields: Sequence[str] = FIELDS) -> dict[str, Any]:
    """Derivatives in the parameters of the prior, from those in the entries of its matrices; the jitter is held.

        ∂F/∂θ = Σ (∂F/∂K_mm) ∂K_mm/∂θ + Σ (∂F/∂K_nm) ∂K_nm/∂θ + Σ_i (∂F/∂K_ii) ∂K_ii/∂θ

    In the full model the three are one matrix, K_nn, on whose diagonal the noise stands.
    """
    inputs = support(X, hyper)
    kernel = _kernel(hyper)
    full = hyper.Z is None
    results: dict[str, Any] = {}
    if "variance" in fields:
        unit = (1.0, *kernel[1:])
        results["variance"] = float(
            np.sum(derivatives.by_mm * covariance(inputs, inputs, *unit))
            + np.sum(derivatives.by_nm * covariance(X, inputs, *unit))
            + np.sum(derivatives.by_diagonal)
        )
    if "lengthscales" in fields:
        dK_ZZ, dK_XZ = covariance_gradients(inputs, inputs, *kernel), covariance_gradients(X, inputs, *kernel)
        results["lengthscales"] = np.array(
            [np.sum(derivatives.by_mm * a) + np.sum(derivatives.by_nm * b) for a, b in zip(dK_ZZ, dK_XZ, strict=True)]
        )
    if "noise" in fields:
        on_matrices = float(np.trace(derivatives.by_mm) + np.trace(derivatives.by_nm)) if full else 0.0
        results["noise"] = float(np.sum(derivatives.by_diagonal)) + on_matrices
    if "Z" in fields and not full:
        dK_ZZ, dK_XZ = (
            covariance_input_gradients(inputs, inputs, *kernel),
            covariance_input_gradients(X, inputs, *kernel),
        )
        # z_p moves column p of K_nm, and column and row p of K_mm
        both = derivatives.by_mm + derivatives.by_mm.T
        results["Z"] = np.stack(
            [
                np.sum(both * a, axis=0) + np.sum(derivatives.by_nm * b, axis=0)
                for a, b in zip(dK_ZZ, dK_XZ, strict=True)
            ],
            axis=1,
        )
    return results


class Inputs(NamedTuple):
    """Checked inputs."""

    X: Array
    y_sign: Array
    hyper: Prior


def checked(X: Any, y_sign: Any, hyper: Any) -> Inputs:
    """Inputs as float64 arrays, or a ValueError that names the argument."""
    X = _check.points(X, "X")
    return Inputs(X, _check.labels(y_sign, len(X)), check_prior(hyper, X.shape[1]))


def remedy(hyper: Prior) -> tuple[str, str]:
    """What the prior's matrix is called, and what helps it."""
    return ("K_XX", REMEDY_X) if hyper.Z is None else ("K_ZZ", REMEDY_Z)
