"""Hyper-parameters and inducing inputs of all classes: what they say of the data, as coordinates, as arguments."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._learning import Hyper, Slope, check_learn, each_parameter, maximise
from reference.common.kernels import squared_exponential
from reference.villacampa2020.model import add_latent_noise
from reference.villacampa2020.sparse import fitc_conditional

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
    k_xx: Array  # (C, n) noise included
    K_XZ: Array  # (C, n, m)

    def of(self, rows: Batch) -> "Matrices":
        """The same of some data, (b,) indices."""
        by_datum = (self.upsilon[:, rows], self.cond_var[:, rows], self.k_xx[:, rows], self.K_XZ[:, rows])
        return Matrices(self.K_ZZ, *by_datum)


class Found(NamedTuple):
    """Where a search ended."""

    prior: Prior
    trace: Array  # objective after each iteration of the search
    residual: float  # largest entry of the projected gradient in the coordinates
    converged: bool
    iterations: int


class Cross(NamedTuple):
    """What the prior says of new inputs."""

    k_tt: Array  # (C, t) noise included
    K_TZ: Array  # (C, t, m)


def inducing_covariances(prior: Prior) -> Array:
    """K_ZZ (C, m, m), jitter included, of villacampa2020.

    Parameters
    ----------
    prior : Prior             hyper-parameters
    """
    each = zip(prior.Z, prior.variance, prior.lengthscales, prior.jitter, strict=True)
    return np.stack([squared_exponential(Z, Z, v, ell) + jitter * np.eye(len(Z)) for Z, v, ell, jitter in each])


def cross_covariances(X: Array, prior: Prior) -> Cross:
    """Prior variances with noise, and covariances with the inducing values, of latent values at X: villacampa2020.

    Parameters
    ----------
    X : (n, d)                inputs
    prior : Prior             hyper-parameters
    """
    each = zip(prior.Z, prior.variance, prior.lengthscales, strict=True)
    K_XZ = np.stack([squared_exponential(X, Z, v, ell) for Z, v, ell in each])
    return Cross(add_latent_noise(np.repeat(prior.variance[:, None], len(X), axis=1), prior.noise), K_XZ)


def prior_matrices(X: Array, prior: Prior) -> Matrices:
    """K_ZZ, and υ and s of p(f_i|f̄), of villacampa2020 for all classes.

    Parameters
    ----------
    X : (n, d)                inputs
    prior : Prior             hyper-parameters

    Raises
    ------
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    K_ZZ, cross = inducing_covariances(prior), cross_covariances(X, prior)
    given = fitc_conditional(np.zeros(K_ZZ.shape[:2]), cross.k_tt, cross.K_TZ, K_ZZ)
    return Matrices(K_ZZ, given.upsilon, given.var, cross.k_tt, cross.K_TZ)


def checked_input(X: Any, y: Any, prior: Any) -> tuple[Array, Labels, Prior]:
    """Data and prior of villacampa2020's methods in their shapes.

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
    """The names in learn in the order of a vector; noise must be above zero to be learned, villacampa2020.

    Parameters
    ----------
    learn : names             of "variance", "lengthscales", "noise", "Z"; a text stands for one
    prior : Prior             their present values
    """
    stands_for_all = Hyper(1.0, prior.lengthscales[0], float(np.min(prior.noise)), 0.0, prior.Z[0])
    return check_learn(learn, stands_for_all)


def class_gradients(slope: Sequence[Slope], X: Array, prior: Prior, learn: Sequence[str]) -> dict[str, Array]:
    """Derivatives in every hyper-parameter of every class, fields with shapes as in the prior, villacampa2020.

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
    """What is learned: all classes of the prior, or the first alone where they share everything, villacampa2020.

    Parameters
    ----------
    prior : Prior             of all classes
    shared : bool             one vector for all
    """
    return Prior(*(part[:1] for part in prior)) if shared else prior


def every_row(new: Prior, prior: Prior) -> Prior:
    """The inverse of `first_row`: a row of `new` for every class of villacampa2020's prior.

    Parameters
    ----------
    new : Prior               one row, or a row a class
    prior : Prior             of all classes
    """
    return Prior(*(np.broadcast_to(part, old.shape).copy() for part, old in zip(new, prior, strict=True)))


def row_gradients(gradients: dict[str, Array], shared: bool) -> dict[str, Array]:
    """The gradients in what is learned: shared parameters move all classes, whose derivatives add up, villacampa2020.

    Parameters
    ----------
    gradients : dict          field to derivatives
    shared : bool             one vector for all
    """
    return {name: np.sum(slope, axis=0, keepdims=True) if shared else slope for name, slope in gradients.items()}


def search(
    evidence: Callable[[Prior], tuple[float, dict[str, Array]]],
    prior: Prior,
    learn: Sequence[str],
    shared: bool,
    n_steps: int,
    tolerance: float,
) -> Found:
    """The maximum of an objective of villacampa2020 by L-BFGS-B, in the coordinates of `maximise`.

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


def batch_plan(n: int, batches: Any, batch_size: Any, n_steps: Any, seed: Any) -> list[Batch]:
    """Indices of each step, each once and ascending: mini-batches of villacampa2020, or all data.

    Parameters
    ----------
    n : int                   number of data
    batches : lists of ints   one a step; None: drawn
    batch_size : int or None  drawn without replacement in each step, at most n; None: all data
    n_steps : int or None     steps; None: as many as batches, or 250
    seed : int                of the drawn mini-batches

    Raises
    ------
    ValueError                for an empty or foreign mini-batch, or more steps than batches
    """
    if batches is None:
        steps = 250 if n_steps is None else _check.count(n_steps, "n_steps")
        if batch_size is None:
            return [np.arange(n)] * steps
        size, rng = min(_check.count(batch_size, "batch_size"), n), np.random.default_rng(seed)
        return [np.sort(rng.choice(n, size, replace=False)) for _ in range(steps)]
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
    steps = len(found) if n_steps is None else _check.count(n_steps, "n_steps")
    if steps > len(found):
        raise ValueError(f"n_steps: found {steps}, expected at most {len(found)}, the number of batches")
    return found[:steps]
