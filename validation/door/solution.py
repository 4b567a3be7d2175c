"""The answer of one implementation to one problem, in the shape that the judge compares.

Arrays follow the symbol table: latents at data (n, L), at test points (t, L), at inducing points (L, m).
What a method does not produce stays None; what it does produce is checked here, so that a wrong shape, a NaN or
probabilities that do not sum to one are found where they were made and not where they are compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.door import arguments, storage
from validation.door.problem import Problem

SCHEMA = "gpc-triad/solution/1"

EVIDENCE_KINDS = ("estimate", "lower bound", "sampled", "exact")
EVIDENCE_TARGETS = ("log p(y)", "pairwise model", "projected", "regression")
GRADIENT_FIELDS = ("variance", "lengthscales", "noise", "Z")

# (field, shape in the letters of the problem); every one of them may have a standard error <field>_se
_ARRAYS = {
    "latent_mean": "nL",
    "latent_cov": "nLL",
    "test_latent_mean": "tL",
    "test_latent_cov": "tLL",
    "probabilities": "tC",
    "inducing_mean": "Lm",
    "inducing_cov": "Lmm",
}
_JSON = ("settings", "versions")
_ARRAY_MAPS = ("gradients", "local")


@dataclass(frozen=True, eq=False)
class Solution:
    """What one implementation says about one problem.

    Parameters
    ----------
    problem : Problem                as solved: learned values live here
    implementation, method : str     who answered and how ("reference", "x-gpc")
    log_evidence : float or None     log Z with every constant, natural logarithm
    log_evidence_kind : str          "estimate", "lower bound", "sampled" or "exact"
    evidence_target : str            "log p(y)", "pairwise model", "projected" or "regression"
    evidence_prior_model : str or None   the prior whose evidence it is, where that is not the problem's: a sparse
                                     variational bound bounds the full model's. None: the problem's prior_model
    latent_mean (n, L), latent_cov (n, L, L), test_latent_mean (t, L), test_latent_cov (t, L, L)
    probabilities : (t, C)           rows sum to one; numbers in float32 are normalised in float64
    probability_mass : (t,)          the sum before normalising; 1 up to the method's quadrature error
    inducing_mean (L, m), inducing_cov (L, m, m)   full GPs: none, or the values at the data
    <field>_se                       standard errors of sampled quantities, shapes as the field
    ess, r_hat : float or None       smallest bulk or tail effective sample size, largest rank R-hat
    gradients : mapping or None      variance (L,), lengthscales (L, d), noise (L,), Z (L, m, d) of what is maximised
    local : mapping                  the method's own arrays (xi, sites, alpha_tilde, ...)
    trace : (iterations,)            the objective after each iteration
    residual : float or None         the stopping rule's last value
    converged : bool                 False is an answer too, and says so
    n_improper : int                 cavities or sites skipped because they were no distributions
    iterations : int; seconds : float; settings, versions : mappings
                                     settings["dtype"] becomes "float32" where all of an array are float32 numbers
    """

    problem: Problem
    implementation: str
    method: str
    log_evidence: float | None = None
    log_evidence_kind: str = "estimate"
    evidence_target: str = "log p(y)"
    evidence_prior_model: str | None = None
    latent_mean: NDArray[np.float64] | None = None
    latent_cov: NDArray[np.float64] | None = None
    test_latent_mean: NDArray[np.float64] | None = None
    test_latent_cov: NDArray[np.float64] | None = None
    probabilities: NDArray[np.float64] | None = None
    probability_mass: NDArray[np.float64] | None = None
    inducing_mean: NDArray[np.float64] | None = None
    inducing_cov: NDArray[np.float64] | None = None
    log_evidence_se: float | None = None
    latent_mean_se: NDArray[np.float64] | None = None
    latent_cov_se: NDArray[np.float64] | None = None
    test_latent_mean_se: NDArray[np.float64] | None = None
    test_latent_cov_se: NDArray[np.float64] | None = None
    probabilities_se: NDArray[np.float64] | None = None
    inducing_mean_se: NDArray[np.float64] | None = None
    inducing_cov_se: NDArray[np.float64] | None = None
    ess: float | None = None
    r_hat: float | None = None
    gradients: Mapping[str, NDArray[np.float64]] | None = None
    local: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    trace: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    residual: float | None = None
    converged: bool = True
    n_improper: int = 0
    iterations: int = 0
    seconds: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, value in _checked(self).items():
            object.__setattr__(self, key, value)

    @property
    def latent_var(self) -> NDArray[np.float64] | None:
        """(n, L) variances of q(f_i)."""
        return None if self.latent_cov is None else np.einsum("nll->nl", self.latent_cov)

    @property
    def test_latent_var(self) -> NDArray[np.float64] | None:
        """(t, L) variances at the test points."""
        return None if self.test_latent_cov is None else np.einsum("tll->tl", self.test_latent_cov)

    @property
    def prior_model(self) -> str:
        """The prior whose evidence `log_evidence` is."""
        return self.evidence_prior_model or self.problem.prior_model

    @property
    def label(self) -> str:
        """Who answered: implementation and method."""
        return f"{self.implementation} {self.method}"

    def __reduce__(self) -> tuple[Any, ...]:
        # arrays come out of a pickle writable: rebuilding checks them and closes them again
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        mappings = {key: dict(values[key]) for key in (*_ARRAY_MAPS, *_JSON) if values[key] is not None}
        return _rebuild, (values | mappings,)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, as stored in a .npz."""
        arrays: dict[str, NDArray[Any]] = {f"problem/{k}": v for k, v in self.problem.to_arrays().items()}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "problem" or value is None:
                continue
            if f.name in _ARRAY_MAPS:
                arrays |= {f"{f.name}/{key}": np.asarray(entry) for key, entry in value.items()}
            elif f.name in _JSON:
                arrays[f.name] = np.asarray(json.dumps(dict(value), sort_keys=True))
            else:
                arrays[f.name] = np.asarray(value)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], where: str = "solution") -> Solution:
        """Inverse of `to_arrays`; loud on a field that is unknown or missing."""
        groups: dict[str, dict[str, NDArray[Any]]] = {"problem": {}, **{key: {} for key in _ARRAY_MAPS}}
        plain: dict[str, NDArray[Any]] = {}
        for key, array in arrays.items():
            group, slash, rest = key.partition("/")
            if slash and group in groups:
                groups[group][rest] = array
            else:
                plain[key] = array
        known = {f.name for f in fields(cls)} - {"problem", *_ARRAY_MAPS}
        storage.check_keys(set(plain), known, {"implementation", "method"}, where)
        values: dict[str, Any] = {}
        for key, array in plain.items():
            if storage.is_extension(key):
                continue
            values[key] = storage.scalar(array) if array.ndim == 0 else array
            if key in _JSON:
                values[key] = storage.read_json(values[key], f"{where}: {key}")
        problem = Problem.from_arrays(groups["problem"], where=f"{where}: problem")
        try:
            return cls(problem=problem, gradients=groups["gradients"] or None, local=groups["local"], **values)
        except (TypeError, ValueError) as error:
            raise storage.FileFormatError(f"{where}: {error}") from error

    def save(self, path: str | PathLike[str]) -> None:
        """Write one .npz with the problem inside, atomically."""
        storage.save_npz(path, SCHEMA, self.to_arrays())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Solution:
        """Read what `save` wrote; nothing is unpickled, anything unknown is an error."""
        plain = {f.name for f in fields(cls)} - {"problem", *_ARRAY_MAPS}
        problem = {f.name for f in fields(Problem)}

        def known(names: set[str]) -> None:
            in_maps = {name for name in names if name.partition("/")[0] in _ARRAY_MAPS}
            of_problem = {name for name in names if name.startswith("problem/")}
            storage.check_keys(names - in_maps - of_problem, plain, set(), str(path))
            storage.check_keys({name[8:] for name in of_problem}, problem, set(), f"{path}: problem")

        return cls.from_arrays(storage.load_npz(path, SCHEMA, known), where=str(path))


def is_float32(array: NDArray[np.float64]) -> bool:
    """Whether every number is a float32 one, and some need more digits than a short fraction such as 0.5 has."""
    with np.errstate(over="ignore"):
        single, half = array.astype(np.float32).astype(float), array.astype(np.float16).astype(float)
    return bool(np.array_equal(single, array) and not np.array_equal(half, array))


def _rebuild(values: dict[str, Any]) -> Solution:
    return Solution(**values)


def _checked(solution: Solution) -> dict[str, Any]:
    """The fields as read-only arrays, or an error that names the field."""
    problem = solution.problem
    if not isinstance(problem, Problem):
        raise TypeError(f"problem: found {type(problem).__name__}, expected a validation.Problem")
    m = problem.m if problem.m is not None else problem.n
    sizes = {"n": problem.n, "t": problem.t, "L": problem.n_latents, "C": problem.n_classes, "m": m}
    checked: dict[str, Any] = {
        key: arguments.label(getattr(solution, key), key) for key in ("implementation", "method")
    }
    for name, letters in _ARRAYS.items():
        expected = tuple(sizes[letter] for letter in letters)
        for key in (name, f"{name}_se"):
            value = getattr(solution, key)
            if value is None:
                continue
            array = arguments.float_array(value, key)
            if name.endswith("_cov") and array.shape != expected and array.size == np.prod(expected[:-1]):
                raise ValueError(
                    f"{key}: found shape {array.shape}, expected {expected}: covariances of the latents of a point; "
                    "variances v (n, L) become v[:, :, None] * np.eye(L), and v (n,) of one latent v[:, None, None]"
                )
            arguments.check_shape(array, expected, key)
            checked[key] = arguments.read_only(arguments.finite(array, key))
            if key.endswith("_se") and array.size and array.min() < 0.0:
                raise ValueError(f"{key}: found {array.min():.6g}, expected standard errors >= 0")
    for name in ("latent_cov", "test_latent_cov", "inducing_cov"):
        if name in checked and checked[name].size:
            smallest = float(np.einsum("...ii->...i", checked[name]).min())
            if smallest < 0.0:
                raise ValueError(f"{name}: found a variance {smallest:.6g}, expected variances >= 0")
    single = any(is_float32(checked[name]) for name in _ARRAYS if name in checked)
    if "probabilities" in checked:
        p = checked["probabilities"]
        if is_float32(p):  # C terms of seven digits: what is left of a sum says nothing
            total = p.sum(axis=1, keepdims=True)
            near = np.abs(total - 1.0) < 1e-6 * p.shape[1]
            checked["probabilities"] = p = arguments.read_only(p / np.where(near, total, 1.0))
        # rows are normalised in float64: C terms leave C eps, 1e-9 is where a forgotten normalisation shows
        excess = p.sum(axis=1) - 1.0
        worst = float(excess[np.abs(excess).argmax()]) if excess.size else 0.0
        if abs(worst) > 1e-9:
            raise ValueError(f"probabilities: found a row that sums to 1 {worst:+.3g}, expected 1 within 1e-9")
        if p.size and p.min() < 0.0:
            raise ValueError(f"probabilities: found {p.min():.6g}, expected numbers in [0, 1]")
    if solution.probability_mass is not None:
        mass = arguments.float_array(solution.probability_mass, "probability_mass")
        arguments.check_shape(mass, (problem.t,), "probability_mass")
        checked["probability_mass"] = arguments.read_only(arguments.finite(mass, "probability_mass"))
    for key in ("log_evidence", "log_evidence_se", "ess", "r_hat", "residual"):
        if getattr(solution, key) is not None:
            checked[key] = arguments.real(getattr(solution, key), key)
    checked["seconds"] = arguments.real(solution.seconds, "seconds")
    for key in ("log_evidence_se", "ess", "r_hat", "seconds"):
        if checked.get(key, 0.0) < 0.0:
            raise ValueError(f"{key}: found {checked[key]:.6g}, expected a number >= 0")
    arguments.choice(solution.log_evidence_kind, EVIDENCE_KINDS, "log_evidence_kind")
    arguments.choice(solution.evidence_target, EVIDENCE_TARGETS, "evidence_target")
    if solution.evidence_prior_model is not None:
        arguments.choice(solution.evidence_prior_model, ("full", "fitc"), "evidence_prior_model")
    sampled = solution.log_evidence_kind == "sampled" and solution.log_evidence is not None
    if sampled and solution.log_evidence_se is None:
        raise ValueError("log_evidence_se: found None, expected the standard error of a sampled log evidence")
    if solution.gradients is not None:
        shapes = {"variance": "L", "noise": "L"}
        gradients: dict[str, NDArray[np.float64]] = {}
        for key, value in arguments.mapping(solution.gradients, "gradients").items():
            arguments.choice(key, GRADIENT_FIELDS, "gradients")
            array = arguments.float_array(value, f"gradients[{key!r}]")
            expected = tuple(sizes[letter] for letter in shapes.get(key, ""))
            if key == "lengthscales":
                expected = (problem.n_latents, problem.d)
            elif key == "Z":
                expected = (problem.n_latents, m, problem.d)
            arguments.check_shape(array, expected, f"gradients[{key!r}]")
            gradients[key] = arguments.read_only(arguments.finite(array, f"gradients[{key!r}]"))
        checked["gradients"] = MappingProxyType(gradients) if gradients else None
    local = {key: np.asarray(value) for key, value in arguments.mapping(solution.local, "local").items()}
    for key, array in local.items():
        if array.dtype.hasobject:
            raise TypeError(f"local[{key!r}]: found dtype {array.dtype}, expected plain numbers or text")
    checked["local"] = MappingProxyType({key: arguments.read_only(array) for key, array in local.items()})
    for key in _JSON:
        checked[key] = MappingProxyType(arguments.json_mapping(getattr(solution, key), key))
    if single:
        checked["settings"] = MappingProxyType({**checked["settings"], "dtype": "float32"})
    trace = arguments.float_array(solution.trace, "trace")
    if trace.ndim != 1:
        raise ValueError(f"trace: found shape {trace.shape}, expected one axis")
    checked["trace"] = arguments.read_only(arguments.finite(trace, "trace"))
    for key in ("n_improper", "iterations"):
        checked[key] = arguments.integer(getattr(solution, key), key, at_least=0)
    checked["converged"] = arguments.boolean(solution.converged, "converged")
    return checked
