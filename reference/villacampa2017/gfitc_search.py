"""What the two baselines of section 3 share: checked input, a search over the hyper-parameters, predictions."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._learning import Hyper, Slope, check_learn, each_parameter, maximise
from reference.common.kernels import squared_exponential
from reference.villacampa2017.fit import Prior
from reference.villacampa2017.model import add_latent_noise, inducing_covariances
from reference.villacampa2017.posterior import Gaussians
from reference.villacampa2017.prediction import (
    predictive_class_probability,
    predictive_distribution,
    predictive_latent_distribution,
)

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

Evidence = Callable[[Prior], tuple[float, dict[str, Array]]]


class Found(NamedTuple):
    """Where a search ended."""

    prior: Prior
    trace: Array  # objective after each iteration of the search
    residual: float  # largest entry of the projected gradient in the coordinates
    converged: bool
    iterations: int


class BaselinePrediction(NamedTuple):
    """At new inputs."""

    latent_mean: Array  # (t, C)
    latent_var: Array  # (t, C)  noise included
    probability: Array  # (t, C)  rows sum to one
    probability_mass: Array  # (t,)  their sums before


def checked_input(X: Any, y: Any, prior: Any) -> tuple[Array, Labels, Prior]:
    """Data and prior in the shapes that villacampa2017's baselines need.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1
    prior : Prior             hyper-parameters and inducing inputs of all classes

    Raises
    ------
    ValueError                if one of them does not fit
    """
    X = _check.points(X, "X")
    n, d = X.shape
    Z = _check.array(prior.Z, "Z", 3)
    C = len(Z)
    if C < 2 or Z.shape[1] == 0 or Z.shape[2] != d:
        raise ValueError(f"Z: found shape {Z.shape}, expected (C, m, {d}) with C >= 2 and m >= 1")
    labels = _check.integers(y, "y")
    if labels.shape != (n,):
        raise ValueError(f"y: found {labels.dtype} of shape {labels.shape}, expected whole numbers ({n},)")
    if np.min(labels) < 0 or np.max(labels) >= C:
        raise ValueError(f"y: found labels {np.min(labels)} to {np.max(labels)}, expected 0..{C - 1}")
    values = {"Z": Z}
    for name, shape, low in (
        ("variance", (C,), "> 0"),
        ("lengthscales", (C, d), "> 0"),
        ("noise", (C,), ">= 0"),
        ("jitter", (C,), ">= 0"),
    ):
        found = _check.array(getattr(prior, name), name, len(shape))
        if found.shape != shape:
            raise ValueError(f"{name}: found shape {found.shape}, expected {shape}")
        if np.any(found < 0.0) or (low == "> 0" and np.any(found == 0.0)):
            raise ValueError(f"{name}: found {np.min(found):.6g}, expected {low}")
        if low == "> 0":
            _check.within_range(found, name)
        values[name] = found
    return X, labels.astype(np.int64), Prior(**values)


def fields_to_learn(learn: Any, prior: Prior) -> tuple[str, ...]:
    """The names in learn in the order of a vector; the noise of the prior must be above zero to be learned.

    Parameters
    ----------
    learn : names             of "variance", "lengthscales", "noise", "Z"; a text stands for one
    prior : Prior             their present values
    """
    stands_for_all = Hyper(1.0, prior.lengthscales[0], float(np.min(prior.noise)), 0.0, prior.Z[0])
    return check_learn(learn, stands_for_all)


def class_gradients(slope: Sequence[Slope], X: Array, prior: Prior, learn: Sequence[str]) -> dict[str, Array]:
    """Derivatives in every hyper-parameter of every class, fields with shapes as in the prior.

    Parameters
    ----------
    slope : sequence          one a class: dK_ZZ (m, m), dK_XZ (n, m), dk (n,) to the derivative of the objective
    X : (n, d)                the inputs that the slopes are about
    prior : Prior             where
    learn : names             the fields
    """
    each = [
        each_parameter(of_class, prior.Z[k], X, Hyper(float(prior.variance[k]), prior.lengthscales[k],
                       float(prior.noise[k]), float(prior.jitter[k]), prior.Z[k]), learn)
        for k, of_class in enumerate(slope)
    ]  # fmt: skip
    return {name: np.stack([np.asarray(found[name]) for found in each]) for name in learn}


def first_row(prior: Prior, shared: bool) -> Prior:
    """What is learned: all classes of the prior, or the first alone where they share everything (shared)."""
    return Prior(*(part[:1] for part in prior)) if shared else prior


def every_row(new: Prior, prior: Prior) -> Prior:
    """The inverse of `first_row`: a row of `new` for every class of the prior."""
    return Prior(*(np.broadcast_to(part, old.shape).copy() for part, old in zip(new, prior, strict=True)))


def row_gradients(gradients: dict[str, Array], shared: bool) -> dict[str, Array]:
    """The gradients in what is learned: parameters that are shared move all classes, whose derivatives add up."""
    return {name: np.sum(slope, axis=0, keepdims=True) if shared else slope for name, slope in gradients.items()}


def search(
    evidence: Evidence, prior: Prior, learn: Sequence[str], shared: bool, n_steps: int, tolerance: float
) -> Found:
    """The maximum of an objective by L-BFGS-B, in the coordinates of `reference.common._learning.maximise`.

    Parameters
    ----------
    evidence : callable       Prior to objective and its derivatives, shapes as in the prior
    prior : Prior             start
    learn : names             fields to learn
    shared : bool             one vector for all classes
    n_steps : int             largest number of iterations
    tolerance : float         largest entry of the projected gradient of a search that has converged
    """

    def objective(row: Prior) -> tuple[float, dict[str, Array]]:
        value, slopes = evidence(every_row(row, prior))
        return value, row_gradients(slopes, shared)

    # the fields of Prior are those of Hyper with the class first, which the packing does not look at
    found = maximise(cast(Any, objective), cast(Any, first_row(prior, shared)), learn, n_steps, tolerance)
    return Found(
        every_row(cast(Prior, found.hyper), prior), found.trace, found.residual, found.converged, found.iterations
    )


def predict(posterior: Gaussians, X_test: Array, prior: Prior, epsilon: float = 0.0) -> BaselinePrediction:
    """Latent values by (65) to (67) and labels by (11) of villacampa2017 at new inputs, normalised.

    With labelling errors labels are (68), of which each sum keeps 1 - ε.

    Parameters
    ----------
    posterior : Gaussians     q of the inducing values
    X_test : (t, d)           new inputs, perhaps none
    prior : Prior             hyper-parameters of all classes, as learned
    epsilon : float           probability of a label drawn at random: each sum gets its share of it, as in (13)

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X_test = _check.points(X_test, "X_test", prior.Z.shape[2], allow_empty=True)
    K_ZZ = inducing_covariances(prior.Z, prior.variance, prior.lengthscales, prior.jitter)
    K_TZ = np.stack(
        [squared_exponential(X_test, prior.Z[k], prior.variance[k], prior.lengthscales[k]) for k in range(len(K_ZZ))]
    )
    k_tt = add_latent_noise(np.repeat(prior.variance[:, None], len(X_test), axis=1), prior.noise)
    latents = predictive_latent_distribution(posterior, k_tt, K_TZ, K_ZZ)  # (65) to (67)
    if epsilon == 0.0:
        found = predictive_distribution(posterior, k_tt, K_TZ, K_ZZ)  # (11)
        return BaselinePrediction(latents.mean, latents.var, found.probability, found.probability_mass)
    raw = (1.0 - epsilon) * predictive_class_probability(*latents) + epsilon / len(K_ZZ)
    mass = np.sum(raw, axis=1)
    return BaselinePrediction(latents.mean, latents.var, raw / mass[:, None], mass)
