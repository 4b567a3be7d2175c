"""Densities of the parameters of a prior, which a search adds to log evidence, and their derivatives in logarithms.

A hyperprior has a density for each field: a family, a second number and a scale. `half-student-t` is that of
riihimaki2013, section 5.5: "half Student-t with four degrees of freedom and variance equal to one hundred" can be read
in several ways, see `half_t_scale` for what is one hundred, `prior_on` for what the density sits on, `map_density` for
whose mode is meant. A lengthscale has the units of its input: a scale (d,) says what is large in each of them.

`weak` is the hyperprior of the classifiers, a density of logarithms; docs/classifiers.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lgamma
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.checks import shown
from fast.core.inputs import one_of
from fast.core.learned import FIELDS, SCALE, field_of
from fast.core.types import FloatArray
from fast.ledger import equation

# family, df, scale: a scale of lengthscales may be (d,); df of "tied-log-normal" is a pair
Density = tuple[str, Any, Any]


class LogDensity(NamedTuple):
    """Log prior density and its derivative in the logarithm of the value, entry by entry."""

    value: FloatArray
    derivative: FloatArray


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


def log_tied_lognormal(value: FloatArray, df: tuple[float, float], scale: Any) -> LogDensity:
    """Density of d values whose logarithms a common term and one of each move away from those of their scales.

    log value_j = log scale_j + s + r_j, s ~ N(0, common^2), r_j ~ N(0, each^2): logarithms are Gaussian with the
    covariance C = each^2 I + common^2 11'. Entry j has x_j (C^-1 x)_j of the quadratic form and 1/d of the constant.

    Parameters
    ----------
    value : (..., d)    > 0
    df                  common and each, standard deviations > 0
    scale               > 0, a number or one for each column of value
    """
    common, each = df
    x = np.log(value) - np.log(scale)
    d = x.shape[-1]
    largest = each**2 + d * common**2  # eigenvalue of C, the others are each^2
    solved = (x - x.sum(axis=-1, keepdims=True) * (common**2 / largest)) / each**2
    constant = 0.5 * np.log(2.0 * np.pi) + ((d - 1) * np.log(each) + 0.5 * np.log(largest)) / d
    return LogDensity(-np.log(value) - constant - 0.5 * x * solved, -1.0 - solved)


_TIED = "tied-log-normal"
_FAMILIES: dict[str, Callable[..., LogDensity]] = {
    "half-student-t": log_half_student_t,
    "log-normal": log_lognormal,
    _TIED: log_tied_lognormal,
}


def _families(field: str) -> tuple[str, ...]:
    """Names of families that a field may have: what ties values needs several."""
    return tuple(name for name in _FAMILIES if name != _TIED or field == "lengthscales")


def _pair(name: str, value: Any) -> tuple[float, float]:
    pair = isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2
    if not pair:
        raise ValueError(f"{name}: found {shown(value)}, expected two numbers > 0")
    return inputs.scalar(name, value[0], positive=True), inputs.scalar(name, value[1], positive=True)


def checked_hyperprior(hyperprior: Any, n_columns: int, argument: str = "hyperprior") -> dict[str, Density] | None:
    """Priors of the parameters, checked by name.

    Parameters
    ----------
    hyperprior         None, or field -> (family, df, scale), fields out of variance, lengthscales, noise; df and scale
                       > 0, the scale of lengthscales a number or one for each input (d,), their df two numbers where
                       the family is tied
    n_columns : int    d
    argument : str     what errors call it

    Raises
    ------
    ValueError    naming the field
    """
    if hyperprior is None:
        return None
    mapped = isinstance(hyperprior, Mapping)
    if not mapped:
        raise ValueError(
            f"{argument}: found {shown(hyperprior)}, expected None or a mapping field -> (family, df, scale)"
        )
    checked: dict[str, Density] = {}
    for field, density in hyperprior.items():
        if not isinstance(field, str) or field not in FIELDS:
            raise ValueError(f"{argument}: found field {field!r}, expected names of {', '.join(FIELDS)}")
        if isinstance(density, str) or not isinstance(density, Sequence) or len(density) != 3:
            raise ValueError(f"{argument}[{field!r}]: found {shown(density)}, expected (family, df, scale)")
        family, df, scale = density
        one_of(f"{argument}[{field!r}]", family, _families(field))
        if family == _TIED:
            df = _pair(f"{argument}[{field!r}] df", df)
        else:
            df = inputs.scalar(f"{argument}[{field!r}] df", df, positive=True)
        name = f"{argument}[{field!r}] scale"
        if field == "lengthscales" and np.ndim(scale) == 1:
            scale = np.array(inputs.real_numbers(name, scale), dtype=np.float64)
            if scale.shape != (n_columns,) or not (np.isfinite(scale).all() and (scale > 0).all()):
                raise ValueError(f"{name}: found {scale}, expected a number or ({n_columns},), finite and > 0")
        else:
            scale = inputs.scalar(name, scale, positive=True)
        checked[field] = (family, df, scale)
    return checked


def log_hyperprior(
    name: str, value: FloatArray, density: Density, *, prior_on: str = "field", map_density: str = "value"
) -> LogDensity:
    """Log prior of a field and its derivative in log value.

    Parameters
    ----------
    name : str               of the field
    value                    entries of the field
    density                      family, df, scale
    prior_on : str            "field", or "root": on the square root of variance and noise
    map_density : str        "value": the mode in the value itself; "log": in its logarithm
    """
    family, df, scale = density
    one_of("hyperprior", family, tuple(_FAMILIES))
    power = 0.5 if prior_on == "root" and name in ("variance", "noise") else 1.0
    result = _FAMILIES[family](value**power, df, scale)
    if map_density == "log":
        return LogDensity(result.value + power * np.log(value), power * (result.derivative + 1.0))
    return LogDensity(result.value, power * result.derivative)


@dataclass(frozen=True, eq=False)
class Hyperprior:
    """Densities of what is learned of a prior, rows of several classes independent."""

    densities: Mapping[str, Density]  # field -> (family, df, scale); fields without one are flat
    prior_on: str = "field"  # see `log_hyperprior`
    map_density: str = "value"

    def checked(self, n_columns: int, argument: str = "hyperprior") -> Hyperprior:
        """The same with densities checked by name, plain numbers in them: two that are equal have one repr.

        Parameters
        ----------
        n_columns : int    d
        argument : str     what errors call the densities
        """
        densities = checked_hyperprior(self.densities, n_columns, argument)
        one_of("prior_on", self.prior_on, ("field", "root"))
        one_of("map_density", self.map_density, ("value", "log"))
        plain = {
            field: (family, df, tuple(scale.tolist()) if isinstance(scale, np.ndarray) else scale)
            for field, (family, df, scale) in (densities or {}).items()
        }
        return Hyperprior(plain, self.prior_on, self.map_density)

    @classmethod
    def given(cls, value: Any, n_columns: int, argument: str = "hyperprior") -> Hyperprior | None:
        """A checked hyperprior from what a caller gave: None, or one of this class.

        Raises
        ------
        TypeError    anything else
        """
        if value is None:
            return None
        if not isinstance(value, cls):
            raise TypeError(f"{argument}: found {shown(value)}, expected None or a Hyperprior")
        return value.checked(n_columns, argument)

    def seen_by(self, n_rows: int) -> Hyperprior:
        """The same for the lengthscales of more inputs than rows: each may leave the common factor further.

        With logarithms of lengthscales that deviate by s from their common factor, 1/l^2 is log-normal and d inputs
        vary as much as d exp(-4 s^2) equal ones. n rows cannot tell more than n directions apart, so s grows from its
        value at d = n such that this number stays what it is there.

        Parameters
        ----------
        n_rows : int    0: not known
        """
        family, df, scale = self.densities["lengthscales"]
        d = np.size(scale)
        if family != _TIED or not 0 < n_rows < d:
            return self
        each = float(np.sqrt(df[1] ** 2 + 0.25 * np.log(d / n_rows)))
        return replace(self, densities={**self.densities, "lengthscales": (family, (df[0], each), scale)})

    def at(self, names: Iterable[str], value_of: Callable[[str], FloatArray]) -> LogPrior:
        """Log density of what is learned, and its derivatives.

        Parameters
        ----------
        names                  of what is learned; those without a density do not count
        value_of : callable    field -> its values, lengthscales (..., d)
        """
        total, derivatives = 0.0, {}
        for name in names:
            field = field_of(name)
            if field not in self.densities:
                continue
            density, value = self.densities[field], np.asarray(value_of(field))
            result = log_hyperprior(field, value, density, prior_on=self.prior_on, map_density=self.map_density)
            total += float(result.value.sum())
            derivatives[name] = result.derivative.sum(axis=-1) if name == SCALE else result.derivative
        return LogPrior(total, derivatives)


class LogPrior(NamedTuple):
    """Log density of what is learned of a prior."""

    value: float
    derivatives: Mapping[
        str, FloatArray
    ]  # name -> derivatives in the coordinates of a search, for names that have a density


def prior_gradients(
    hyperprior: Hyperprior | None, parts: Mapping[str, slice], size: int, value_of: Callable[[str], FloatArray]
) -> tuple[float, FloatArray]:
    """Log density of what is learned, and its derivatives as one vector; zero where there is no hyperprior.

    Parameters
    ----------
    hyperprior             checked
    parts                  name -> its part of the vector
    size : int             of the vector
    value_of : callable    field -> its values, one row a class or one for all
    """
    derivatives = np.zeros(size)
    if hyperprior is None:
        return 0.0, derivatives
    result = hyperprior.at(parts, value_of)
    for name, derivative in result.derivatives.items():
        derivatives[parts[name]] = np.ravel(derivative)
    return result.value, derivatives


# Variance of what decides between two labels besides the latent functions, a class: of the logistic distribution, of
# the normal one, of Gumbel's; of the threshold model it is the noise, learned or held, whose median this is.
LINK_VARIANCES = {"logit": np.pi**2 / 3.0, "probit": 1.0, "softmax": np.pi**2 / 6.0, "threshold": 0.1}
_SIGNAL = 10.0  # median of variance, in variances of the link
_SIGNAL_DEVIATION = 1.5  # of the logarithm of that ratio
_COMMON, _EACH = 1.0, 0.5  # deviations of the logarithm of all lengthscales together, and of each beside the others
_EXCESS = 0.1  # median of a noise beside a link that has its own, in variances of the link


def weak(lengthscales: FloatArray, link: str) -> Hyperprior:
    """The weakly informative hyperprior: log-normal densities of logarithms, lengthscales tied to a common factor.

    Parameters
    ----------
    lengthscales : (d,)    median distance of two rows, input by input
    link : str             "logit", "probit", "softmax" or "threshold"

    Returns
    -------
    variance                median 10 variances of the link, factor e^1.5
    lengthscales            a common factor around 1, factor e, and one of each, factor e^.5
    noise                   median 1/10 of the variance of the link, factor e^1.5; of the threshold model, where only
                            the ratio of variance and noise counts, 1/10, and both factors e^(1.5 / sqrt 2)
    """
    one_of("link", link, tuple(LINK_VARIANCES))
    of_link = LINK_VARIANCES[link]
    alone = link == "threshold"
    deviation = _SIGNAL_DEVIATION / np.sqrt(2.0) if alone else _SIGNAL_DEVIATION
    return Hyperprior(
        {
            "variance": ("log-normal", float(deviation), _SIGNAL * of_link),
            "lengthscales": (_TIED, (_COMMON, _EACH), np.asarray(lengthscales, dtype=np.float64)),
            "noise": ("log-normal", float(deviation), of_link if alone else _EXCESS * of_link),
        },
        map_density="log",
    ).checked(len(lengthscales))
