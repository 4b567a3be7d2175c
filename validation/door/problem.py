"""The question that every witness answers: a Gaussian process classification problem, frozen and checked.

A `Problem` is plain arrays. It holds everything that the answer depends on (data, likelihood, kernel, noise,
jitter, inducing inputs, which prior is meant) and nothing that belongs to a method (alpha, damping, tolerance,
seeds: those are options of `validation.solve`), so that one truth serves every method and every setting.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from validation.door import arguments, storage
from validation.door.quoting import shown

SCHEMA = "gpc-triad/problem/1"

LIKELIHOODS = ("logit", "probit", "softmax", "multinomial-probit", "threshold")
BINARY_LIKELIHOODS = ("logit", "probit")
KERNELS = ("se", "matern")
PRIOR_MODELS = ("full", "fitc")
HYPERPRIOR_FIELDS = ("variance", "lengthscales", "noise")
HYPERPRIOR_FAMILIES = ("half-student-t", "log-normal")

# scales and variances lie within 1/LARGEST and LARGEST: what is made of two or three of them stays in float64
LARGEST = 1e50


@dataclass(frozen=True, eq=False)
class Problem:
    """A classification problem with its Gaussian process prior (design: Problem and Solution).

    k(x, x') = variance exp(-½ Σ_j (x_j - x'_j)²/lengthscales_j²), or the Matérn kernel of order `smoothness`.

    Parameters
    ----------
    name : str                    what reports call it
    X : (n, d)                    inputs
    y : (n,)                      labels, ints 0..C-1; at least two classes occur
    n_classes : int               C >= 2
    likelihood : str              logit, probit (binary: C = 2, L = 1); softmax, multinomial-probit, threshold (L = C)
    variance : (L,)               prior variance of each latent function, > 0
    lengthscales : (L, d)         > 0, in the units of X
    noise : (L,)                  >= 0, added to the prior variance of each latent value at data and test points,
                                  independently; never to K_ZZ
    jitter : (L,)                 >= 0, added to the diagonal of K_ZZ (of K_XX for a full GP)
    kernel : str                  "se" or "matern"
    smoothness : (L,) or None     order of the Matérn kernel, > 0; None for "se"
    Z : (L, m, d) or None         inducing inputs; None is the full GP
    shared : bool                 one parameter vector and one Z for all latents
    prior_model : str             what a truth samples: "full", or "fitc" (latent values independent given u; needs Z)
    epsilon : float               label-error probability of the threshold likelihood, in [0, 1)
    hyperprior : None or mapping  field -> (family, df, scale), for variance, lengthscales, noise; half-student-t: scale
                                  times |t_df| on the field itself; log-normal: log x ~ N(log scale, df²)
    X_test : (t, d) or None       where to predict; t = 0 is allowed
    y_test : (t,) or None         labels there, never used by a method

    A scalar stands for all entries; (d,) lengthscales and (m, d) inducing inputs for all latents.

    Raises
    ------
    ValueError, TypeError         naming the argument, what was found and what was expected
    """

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    n_classes: int
    likelihood: str
    variance: NDArray[np.float64]
    lengthscales: NDArray[np.float64]
    noise: NDArray[np.float64] = field(default_factory=lambda: np.zeros(()))
    jitter: NDArray[np.float64] = field(default_factory=lambda: np.zeros(()))
    kernel: str = "se"
    smoothness: NDArray[np.float64] | None = None
    Z: NDArray[np.float64] | None = None
    shared: bool = False
    prior_model: str = "full"
    epsilon: float = 0.0
    hyperprior: Mapping[str, tuple[str, float, float]] | None = None
    X_test: NDArray[np.float64] | None = None
    y_test: NDArray[np.int64] | None = None

    if TYPE_CHECKING:  # what the constructor takes is wider than what the fields hold afterwards

        def __init__(
            self,
            name: str,
            X: ArrayLike,
            y: ArrayLike,
            n_classes: int,
            likelihood: str,
            variance: ArrayLike,
            lengthscales: ArrayLike,
            noise: ArrayLike = ...,
            jitter: ArrayLike = ...,
            kernel: str = ...,
            smoothness: ArrayLike | None = ...,
            Z: ArrayLike | None = ...,
            shared: bool = ...,
            prior_model: str = ...,
            epsilon: float = ...,
            hyperprior: Mapping[str, tuple[str, float, float]] | None = ...,
            X_test: ArrayLike | None = ...,
            y_test: ArrayLike | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        for key, value in _checked(self).items():
            object.__setattr__(self, key, value)

    # -- sizes ---------------------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of data."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Number of inputs."""
        return int(self.X.shape[1])

    @property
    def m(self) -> int | None:
        """Number of inducing points of a latent function, None for a full GP."""
        return None if self.Z is None else int(self.Z.shape[1])

    @property
    def t(self) -> int:
        """Number of test points."""
        return 0 if self.X_test is None else int(self.X_test.shape[0])

    @property
    def n_latents(self) -> int:
        """L: one latent function for a binary likelihood, else one for each class."""
        return 1 if self.likelihood in BINARY_LIKELIHOODS else self.n_classes

    @property
    def y_sign(self) -> NDArray[np.float64]:
        """(n,) labels -1.0, +1.0 of a binary problem."""
        if self.n_classes != 2:
            raise ValueError(f"y_sign: found {self.n_classes} classes, expected a binary problem")
        return 2.0 * self.y.astype(np.float64) - 1.0

    def __reduce__(self) -> tuple[Any, ...]:
        # arrays come out of a pickle writable: rebuilding checks them and closes them again
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return _rebuild, (values | {"hyperprior": None if self.hyperprior is None else dict(self.hyperprior)},)

    # -- identity ------------------------------------------------------------------------------------------

    def differences(self, other: Problem, ignore: tuple[str, ...] = ("name",)) -> list[str]:
        """Names of the fields in which two problems differ (empty: the same question)."""
        return [
            f.name
            for f in fields(self)
            if f.name not in ignore and not _same(getattr(self, f.name), getattr(other, f.name))
        ]

    def replace(self, **changes: Any) -> Problem:
        """A checked copy with some fields changed."""
        unknown = sorted(set(changes) - {f.name for f in fields(self)})
        if unknown:
            raise TypeError(f"replace: found unknown fields {unknown}, expected fields of Problem")
        return Problem(**{f.name: getattr(self, f.name) for f in fields(self)} | changes)

    # -- storage -------------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, as stored in a .npz; fields that are None are left out."""
        arrays: dict[str, NDArray[Any]] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None:
                arrays[f.name] = np.asarray(json.dumps(dict(value)) if f.name == "hyperprior" else value)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], where: str = "problem") -> Problem:
        """Inverse of `to_arrays`; loud on a field that is unknown or missing."""
        known = {f.name for f in fields(cls)}
        required = {"name", "X", "y", "n_classes", "likelihood", "variance", "lengthscales"}
        storage.check_keys(set(arrays), known, required, where)
        values: dict[str, Any] = {}
        for key, array in arrays.items():
            if not storage.is_extension(key):
                values[key] = storage.scalar(array) if array.ndim == 0 else array
        if "hyperprior" in values:
            values["hyperprior"] = storage.read_json(values["hyperprior"], f"{where}: hyperprior")
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise storage.FileFormatError(f"{where}: {error}") from error

    def save(self, path: str | PathLike[str]) -> None:
        """Write one .npz, atomically: a killed run leaves the old file or none."""
        storage.save_npz(path, SCHEMA, self.to_arrays())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Problem:
        """Read what `save` wrote; nothing is unpickled, anything unknown is an error."""
        known = {f.name for f in fields(cls)}
        arrays = storage.load_npz(path, SCHEMA, lambda names: storage.check_keys(names, known, set(), str(path)))
        return cls.from_arrays(arrays, where=str(path))


def _rebuild(values: dict[str, Any]) -> Problem:
    return Problem(**values)


# -- checks ------------------------------------------------------------------------------------------------


def _checked(problem: Problem) -> dict[str, Any]:
    """The fields of a problem as read-only arrays, or an error that names the field."""
    name = arguments.label(problem.name, "name")
    likelihood = arguments.choice(problem.likelihood, LIKELIHOODS, "likelihood")
    kernel = arguments.choice(problem.kernel, KERNELS, "kernel")
    prior_model = arguments.choice(problem.prior_model, PRIOR_MODELS, "prior_model")
    n_classes = arguments.integer(problem.n_classes, "n_classes", at_least=2)
    if likelihood in BINARY_LIKELIHOODS and n_classes != 2:
        raise ValueError(f"n_classes: found {n_classes}, expected 2 for the binary likelihood {likelihood!r}")
    L = 1 if likelihood in BINARY_LIKELIHOODS else n_classes

    X = arguments.matrix(problem.X, "X")
    n, d = X.shape
    if n == 0 or d == 0:
        raise ValueError(f"X: found shape {X.shape}, expected at least one row and one column")
    y = arguments.labels(problem.y, n, n_classes, "y")
    present = np.unique(y)
    if present.size < 2:
        raise ValueError(f"y: found the one class {present.tolist()}, expected at least two classes to tell apart")

    variance = arguments.per_latent(problem.variance, L, "variance", positive=True)
    noise = arguments.per_latent(problem.noise, L, "noise", positive=False)
    jitter = arguments.per_latent(problem.jitter, L, "jitter", positive=False)
    lengthscales = arguments.float_array(problem.lengthscales, "lengthscales")
    if lengthscales.shape in ((), (d,)):
        lengthscales = np.broadcast_to(lengthscales, (L, d))
    arguments.check_shape(lengthscales, (L, d), "lengthscales")
    arguments.positive_array(lengthscales, "lengthscales")

    smoothness = None
    if kernel == "matern":
        if problem.smoothness is None:
            raise ValueError("smoothness: found None, expected the order of the Matérn kernel")
        smoothness = arguments.per_latent(problem.smoothness, L, "smoothness", positive=True)
    elif problem.smoothness is not None:
        raise ValueError(f"smoothness: found {shown(problem.smoothness)}, expected None for the kernel {kernel!r}")

    Z = None
    if problem.Z is not None:
        Z = arguments.float_array(problem.Z, "Z")
        if Z.ndim == 2:
            Z = np.broadcast_to(Z, (L, *Z.shape))
        if Z.ndim != 3 or Z.shape[0] != L or Z.shape[1] == 0 or Z.shape[2] != d:
            raise ValueError(f"Z: found shape {Z.shape}, expected ({L}, m, {d}) with m >= 1")
        arguments.finite(Z, "Z")
    elif prior_model == "fitc":
        raise ValueError("Z: found None, expected inducing inputs for the prior model 'fitc'")

    shared = arguments.boolean(problem.shared, "shared")
    if shared:
        for key, array in [("variance", variance), ("lengthscales", lengthscales), ("noise", noise),
                           ("jitter", jitter), ("smoothness", smoothness), ("Z", Z)]:  # fmt: skip
            if array is not None and not (array == array[:1]).all():
                raise ValueError(f"{key}: found entries that differ between latents, expected equal ones (shared)")

    epsilon = arguments.real(problem.epsilon, "epsilon")
    if not 0.0 <= epsilon < 1.0:
        raise ValueError(f"epsilon: found {shown(epsilon)}, expected a probability in [0, 1)")
    if epsilon and likelihood != "threshold":
        raise ValueError(f"epsilon: found {shown(epsilon)}, expected 0 for the likelihood {likelihood!r}")

    X_test = y_test = None
    if problem.X_test is not None:
        X_test = arguments.matrix(problem.X_test, "X_test")
        if X_test.shape[1] != d:
            raise ValueError(f"X_test: found {X_test.shape[1]} columns, expected {d} as in X")
    if problem.y_test is not None:
        if X_test is None:
            raise ValueError("y_test: found labels without X_test, expected both")
        y_test = arguments.labels(problem.y_test, X_test.shape[0], n_classes, "y_test")

    _check_range((X, X_test, Z), lengthscales, variance)
    for key, array in (("noise", noise), ("jitter", jitter)):
        if not (array <= LARGEST).all():
            raise ValueError(f"{key}: found {array.max():.6g}, expected at most {LARGEST:g}")

    arrays = {"X": X, "y": y, "variance": variance, "lengthscales": lengthscales, "noise": noise, "jitter": jitter,
                  "smoothness": smoothness, "Z": Z, "X_test": X_test, "y_test": y_test}  # fmt: skip
    return {
        "name": name, "n_classes": n_classes, "likelihood": likelihood, "kernel": kernel, "shared": shared,
        "prior_model": prior_model, "epsilon": epsilon, "hyperprior": _hyperprior(problem.hyperprior),
    } | {key: None if a is None else arguments.read_only(a) for key, a in arrays.items()}  # fmt: skip


def _check_range(
    parts: tuple[NDArray[np.float64] | None, ...], lengthscales: NDArray[np.float64], variance: NDArray[np.float64]
) -> None:
    """Refuse numbers whose squares, cubes and ratios overflow or vanish: inf - inf and 0/0 would follow."""
    for key, array in (("lengthscales", lengthscales), ("variance", variance)):
        wrong = array[~((array >= 1.0 / LARGEST) & (array <= LARGEST))]
        if wrong.size:
            raise ValueError(f"{key}: found {wrong[0]:.6g}, expected {1.0 / LARGEST:g} to {LARGEST:g}")
    flat = [np.abs(part).reshape(-1, lengthscales.shape[1]) for part in parts if part is not None]
    largest = np.concatenate(flat).max(axis=0)
    with np.errstate(over="ignore"):
        ratio = largest / lengthscales
    if not (ratio <= LARGEST).all():
        latent, j = (int(i) for i in np.argwhere(~(ratio <= LARGEST))[0])
        raise ValueError(
            f"lengthscales: found {lengthscales[latent, j]:.6g} for input {j}, which reaches {largest[j]:.6g}, "
            f"expected a ratio of at most {LARGEST:g}"
        )


def _hyperprior(value: Any) -> Mapping[str, tuple[str, float, float]] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(f"hyperprior: found {type(value).__name__}, expected a mapping field -> (family, df, scale)")
    checked: dict[str, tuple[str, float, float]] = {}
    for key, entry in value.items():
        arguments.choice(key, HYPERPRIOR_FIELDS, "hyperprior")
        if not isinstance(entry, (tuple, list)) or len(entry) != 3:
            raise ValueError(f"hyperprior[{key!r}]: found {shown(entry)}, expected (family, df, scale)")
        family, df, scale = entry
        arguments.choice(family, HYPERPRIOR_FAMILIES, f"hyperprior[{key!r}]")
        numbers = arguments.real(df, f"hyperprior[{key!r}] df"), arguments.real(scale, f"hyperprior[{key!r}] scale")
        if min(numbers) <= 0.0:
            raise ValueError(f"hyperprior[{key!r}]: found {min(numbers):.6g}, expected df > 0 and scale > 0")
        checked[key] = (family, *numbers)
    return MappingProxyType(checked)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and np.array_equal(left, right)
    return bool(left == right)


def digest(problem: Problem) -> str:
    """A fingerprint of every field of a problem: equal questions have equal fingerprints."""
    return fingerprint(problem.to_arrays())


def fingerprint(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of names, types, shapes and bytes of arrays."""
    result = hashlib.sha256()
    for key in sorted(arrays):
        array = np.ascontiguousarray(arrays[key])
        result.update(f"{key}|{array.dtype.str}|{np.shape(arrays[key])}|".encode())
        result.update(array.tobytes())
    return result.hexdigest()
