"""Type-II MAP of the parameters of several classes: half-Student-t priors, L-BFGS-B in logarithms. riihimaki2013, 5.5.

"Half Student-t with four degrees of freedom and variance equal to one hundred" can be read in several ways: see
`half_t_scale` for what is one hundred, `sits_on` for what the density sits on, `map_density` for whose mode is meant.
A lengthscale has the units of its input: a scale (d,) says what is large in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import lgamma
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.checks import shown
from fast.core.declare import option
from fast.core.errors import NotPositiveDefiniteError
from fast.core.hyper import ClassGradients, ClassHyper
from fast.core.inputs import one_of
from fast.core.options import ClassLearning, Maximum, Watched
from fast.core.types import FloatArray
from fast.full_classes.prior import MulticlassPrior
from fast.ledger import equation

FIELDS = ("variance", "lengthscales", "noise")
_LARGEST_FACTOR = float(np.log(1e4))

Law = tuple[str, float, Any]  # family, df, scale; a scale of lengthscales may be (d,)


class LogDensity(NamedTuple):
    """Log prior density and its derivative in the logarithm of the value, entry by entry."""

    value: FloatArray
    slope: FloatArray


def half_t_scale(*, variance: float = 100.0, df: float = 4.0, reading: str = "scale squared") -> float:
    """The scale of a half-Student-t "with variance ..." under a named reading.

    Parameters
    ----------
    variance : float    the number in the sentence
    df : float          degrees of freedom
    reading : str       "scale squared": scale^2 is it; "scale": the scale is it; "moment": scale^2 df/(df - 2) is it
    """
    one_of("reading", reading, ("scale squared", "scale", "moment"))
    number = inputs.scalar("variance", variance, positive=True)
    if reading == "scale":
        return number
    if reading == "scale squared":
        return float(np.sqrt(number))
    if not df > 2.0:
        raise ValueError(f"df: found {shown(df)}, expected > 2: a Student-t has no variance below")
    return float(np.sqrt(number * (df - 2.0) / df))


@equation("riihimaki2013", "u5.5-prior")
def log_half_student_t(value: FloatArray, df: float, scale: Any) -> LogDensity:
    """log 2 + log t_df(value/scale) - log scale: riihimaki2013, section 5.5. Never overflows.

    Parameters
    ----------
    value            > 0, any shape
    df : float       degrees of freedom
    scale            > 0, a number or one for each column of value
    """
    ratio = np.log(value) - np.log(scale)
    # log(1 + x^2/df) with x = exp(ratio)
    bent = np.logaddexp(0.0, 2.0 * ratio - np.log(df))
    constant = np.log(2.0) + lgamma(0.5 * (df + 1.0)) - lgamma(0.5 * df) - 0.5 * np.log(df * np.pi) - np.log(scale)
    share = np.exp(2.0 * ratio - np.log(df) - bent)  # x^2/df / (1 + x^2/df)
    return LogDensity(constant - 0.5 * (df + 1.0) * bent, -(df + 1.0) * share)


def log_lognormal(value: FloatArray, df: float, scale: Any) -> LogDensity:
    """Density of a value whose logarithm has mean log scale and standard deviation df.

    Parameters
    ----------
    value            > 0, any shape
    df : float       standard deviation of the logarithm
    scale            median, > 0, a number or one for each column of value
    """
    x = (np.log(value) - np.log(scale)) / df
    density = -np.log(value) - np.log(df) - 0.5 * np.log(2.0 * np.pi) - 0.5 * x * x
    return LogDensity(density, -1.0 - x / df)


_FAMILIES = {"half-student-t": log_half_student_t, "log-normal": log_lognormal}


def checked_hyperprior(hyperprior: Any, n_columns: int) -> dict[str, Law] | None:
    """Priors of the parameters, checked by name.

    Parameters
    ----------
    hyperprior         None, or field -> (family, df, scale), fields out of variance, lengthscales, noise; df and scale
                       > 0, the scale of lengthscales a number or one for each input (d,)
    n_columns : int    d

    Raises
    ------
    ValueError    naming the field
    """
    if hyperprior is None:
        return None
    mapped = isinstance(hyperprior, Mapping)
    if not mapped:
        raise ValueError(
            f"hyperprior: found {shown(hyperprior)}, expected None or a mapping field -> (family, df, scale)"
        )
    checked: dict[str, Law] = {}
    for field, law in hyperprior.items():
        if field not in FIELDS:
            raise ValueError(f"hyperprior: found field {field!r}, expected names of {', '.join(FIELDS)}")
        if isinstance(law, str) or not isinstance(law, Sequence) or len(law) != 3:
            raise ValueError(f"hyperprior[{field!r}]: found {shown(law)}, expected (family, df, scale)")
        family, df, scale = law
        one_of(f"hyperprior[{field!r}]", family, tuple(_FAMILIES))
        df = inputs.scalar(f"hyperprior[{field!r}] df", df, positive=True)
        name = f"hyperprior[{field!r}] scale"
        if field == "lengthscales" and np.ndim(scale) == 1:
            scale = np.array(inputs.real_numbers(name, scale), dtype=np.float64)
            if scale.shape != (n_columns,) or not (np.isfinite(scale).all() and (scale > 0).all()):
                raise ValueError(f"{name}: found {scale}, expected a number or ({n_columns},), finite and > 0")
        else:
            scale = inputs.scalar(name, scale, positive=True)
        checked[field] = (family, df, scale)
    return checked


def log_hyperprior(
    name: str, value: FloatArray, law: Law, *, sits_on: str = "field", map_density: str = "value"
) -> LogDensity:
    """Log prior of a field and its derivative in log value.

    Parameters
    ----------
    name : str               of the field
    value                    entries of the field
    law                      family, df, scale
    sits_on : str            "field", or "root": on the square root of variance and noise
    map_density : str        "value": the mode in the value itself; "log": in its logarithm
    """
    family, df, scale = law
    one_of("hyperprior", family, tuple(_FAMILIES))
    power = 0.5 if sits_on == "root" and name in ("variance", "noise") else 1.0
    found = _FAMILIES[family](value**power, df, scale)
    log_value, one = power * np.log(value), np.ones_like(value)
    if map_density == "log":
        return LogDensity(found.value + log_value, power * (found.slope + one))
    return LogDensity(found.value, power * found.slope)


class Searched(NamedTuple):
    """Where the search ended."""

    posterior: Any  # at the best parameters
    hyper: ClassHyper
    objective: float  # log evidence + log prior there
    trace: FloatArray  # objective after each iteration of L-BFGS-B
    converged: bool
    reason: str
    n_evaluations: int
    n_refused: int


class _Coordinates:
    """Learned fields as one vector of logarithms."""

    def __init__(self, learn: Iterable[str], hyper: ClassHyper, shared: bool) -> None:
        chosen = inputs.names("learn", learn)
        foreign = [name for name in chosen if name not in FIELDS]
        if not chosen or foreign or len(set(chosen)) != len(chosen):
            raise ValueError(f"learn: found {chosen}, expected different names of {', '.join(FIELDS)}")
        if "noise" in chosen and (hyper.noise == 0.0).any():
            raise ValueError("noise: found 0.0, expected > 0 when it is learned: its logarithm moves")
        self.names = tuple(name for name in FIELDS if name in chosen)
        self.hyper, self.rows = hyper, 1 if shared else hyper.variance.size

    def vector(self) -> FloatArray:
        return np.concatenate([np.log(getattr(self.hyper, name)[: self.rows]).ravel() for name in self.names])

    def split(self, vector: FloatArray) -> dict[str, FloatArray]:
        parts, at = {}, 0
        for name in self.names:
            shape = getattr(self.hyper, name)[: self.rows].shape
            size = int(np.prod(shape))
            parts[name] = vector[at : at + size].reshape(shape)
            at += size
        return parts

    def at(self, vector: FloatArray) -> ClassHyper:
        changed = {}
        for name, part in self.split(vector).items():
            full = np.broadcast_to(np.exp(part), getattr(self.hyper, name).shape)
            changed[name] = np.array(full)
        return self.hyper._replace(**changed)


def learned_logarithms(learn: Iterable[str], hyper: ClassHyper, shared: bool) -> FloatArray:
    """Logarithms of the learned parameters as one vector.

    Parameters
    ----------
    learn            names out of variance, lengthscales, noise
    hyper            parameters of the classes
    shared : bool    one vector for all classes
    """
    return _Coordinates(learn, hyper, shared).vector()


@equation("riihimaki2013", "u5.5-map")
def map_objective(
    log_evidence: float,
    gradients: ClassGradients,
    hyper: ClassHyper,
    learn: Iterable[str],
    hyperprior: Mapping[str, Law] | None,
    *,
    shared: bool,
    sits_on: str = "field",
    map_density: str = "value",
) -> tuple[float, FloatArray]:
    """log evidence + log prior and its gradient in the logarithms of the learned fields: riihimaki2013, section 5.5.

    Parameters
    ----------
    log_evidence : float
    gradients                  of it; shared: each row holds the sum over the classes
    hyper                      parameters of the classes
    learn                      names out of variance, lengthscales, noise
    hyperprior                 field -> (family, df, scale); fields without one, or not learned, do not count
    shared : bool              one vector, one density
    sits_on, map_density       see `log_hyperprior`
    """
    coordinates = _Coordinates(learn, hyper, shared)
    hyperprior = checked_hyperprior(hyperprior, hyper.lengthscales.shape[1])
    value, slopes = log_evidence, []
    for name in coordinates.names:
        entries = getattr(hyper, name)[: coordinates.rows]
        slope = getattr(gradients, name)[: coordinates.rows] * entries
        if hyperprior and name in hyperprior:
            found = log_hyperprior(name, entries, hyperprior[name], sits_on=sits_on, map_density=map_density)
            value += float(found.value.sum())
            slope = slope + found.slope
        slopes.append(slope.ravel())
    return value, np.concatenate(slopes)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassSearch(Watched, ClassLearning, Maximum):
    """Options of a search over the parameters of full Gaussian processes of several classes."""

    hyperprior: Any = option("data", "field -> (family, df, scale) of its density; None: flat", default=None)
    max_iterations: int = option("integer", "iterations of L-BFGS-B", "[1, inf)", default=200)
    learning_tolerance: float = option(
        "number", "projected gradient at which a search over the prior has arrived", "(0, inf)", default=1e-5
    )


def search(
    prior: MulticlassPrior,
    converge: Callable[[MulticlassPrior, Any], Any],
    value_and_gradients: Callable[[Any], tuple[float | None, ClassGradients]],
    options: ClassSearch,
    *,
    warm_start: Callable[[Any], Any] | None = None,
) -> Searched:
    """Maximise log evidence + log prior by L-BFGS-B, the method converged at every evaluation.

    Logarithms move by at most log 1e4. Parameters that are refused, or whose evidence is none, count as worse than all.

    Parameters
    ----------
    prior                              data, and where the search starts
    converge : callable                (prior, start or None) -> posterior
    value_and_gradients : callable     posterior -> log evidence (or None) and its gradient
    options                            tolerance on the largest entry of the projected gradient; hyperprior, sits_on and
                                       map_density as in `map_objective`; the callback is given the posterior after each
                                       evaluation
    warm_start : callable              posterior -> start of the next run

    Raises
    ------
    ValueError, NotPositiveDefiniteError    if the start itself is refused
    """
    from scipy.optimize import minimize  # here: only some runs need what takes long to load

    callback = options.callback
    hyperprior = checked_hyperprior(options.hyperprior, prior.X.shape[1])
    coordinates = _Coordinates(options.learn, prior.hyper, prior.shared)
    first = coordinates.vector()
    best: tuple[float, Any, ClassHyper] | None = None
    worst, n_evaluations, n_refused = np.inf, 0, 0
    start: Any = None
    trace: list[float] = []

    def objective(vector: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best, worst, n_evaluations, n_refused, start
        n_evaluations += 1
        try:
            hyper = coordinates.at(vector)
            here = MulticlassPrior(prior.X, prior.y, prior.n_classes, hyper, prior.shared)
            posterior = converge(here, start)
            log_evidence, gradients = value_and_gradients(posterior)
            if log_evidence is None:
                raise ValueError("log_evidence: found None, expected a number at the start of the search")
            value, slope = map_objective(
                log_evidence, gradients, hyper, coordinates.names, hyperprior, shared=prior.shared,
                sits_on=options.sits_on, map_density=options.map_density,
            )  # fmt: skip
            refused = not (np.isfinite(value) and np.isfinite(slope).all())
        except (ValueError, NotPositiveDefiniteError):
            if n_evaluations == 1:
                raise
            refused = True
        if refused:
            n_refused += 1
            return -worst + 1e3 * (1.0 + abs(worst)), np.zeros(vector.size)
        worst = min(worst, value)
        if best is None or value > best[0]:
            best = (value, posterior, hyper)
            start = warm_start(posterior) if warm_start is not None else None
        if callback is not None:
            callback(posterior)
        return -value, -slope

    end = minimize(
        objective,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(first - _LARGEST_FACTOR, first + _LARGEST_FACTOR, strict=True)),
        callback=lambda _: trace.append(best[0] if best is not None else np.nan),
        options={"maxiter": options.max_iterations, "gtol": options.learning_tolerance, "ftol": 1e-14, "maxls": 40},
    )
    if best is None:
        raise ValueError("objective: found a value that is not finite at the start, expected a finite number")
    return Searched(
        best[1], best[2], best[0], np.array(trace), bool(end.success), str(end.message), n_evaluations, n_refused
    )
