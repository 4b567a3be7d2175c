"""Priors on variance, lengthscales and noise, as densities of the logarithms: riihimaki2013, section 5.5.

A sampler moves w = log x, so each density of x carries the Jacobian x of the log transform. Two families:

    half-student-t (df, scale)   p(x) = 2 t_df(x/scale)/scale on x > 0; variance before folding scale² df/(df - 2)
    log-normal (df, scale)       log x ~ N(log scale, df²): scale is the median of x, df the standard deviation of log x

riihimaki2013 puts half-Student-t priors "on the lengthscale and magnitude parameters" and calls σ², the variance, the
magnitude: `prior_on="field"` reads it so. `prior_on="root"` puts the prior of variance and noise on their square roots.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gibbs.core.checks import shown
from gibbs.core.errors import Array, _scalar

FAMILIES = ("half-student-t", "log-normal")
FIELDS = ("variance", "lengthscales", "noise")
SITS_ON = ("field", "root")


class LogDensity(NamedTuple):
    """A log density with its gradient."""

    value: Array
    gradient: Array


class Hyperprior(NamedTuple):
    """The prior of one parameter."""

    family: str
    df: float
    scale: float
    root: bool  # the prior sits on √x


def half_student_t(log_value: ArrayLike, df: float, scale: float) -> LogDensity:
    """log p(w) of w = log x for half-Student-t x, every constant and the Jacobian included, with d/dw.

    With r = x²/(df scale²):  log p = log 2 + log Γ((df+1)/2) - log Γ(df/2) - ½ log(df π) - log scale
    - (df+1)/2 log(1+r) + w,  d/dw = 1 - (df+1) r/(1+r). log_value w: any shape, any finite number; df, scale > 0.
    """
    w = np.asarray(log_value, dtype=np.float64)
    log_r = 2.0 * w - math.log(df) - 2.0 * math.log(scale)
    constant = math.lgamma(0.5 * (df + 1.0)) - math.lgamma(0.5 * df) - 0.5 * math.log(df * math.pi)
    value = math.log(2.0) + constant - math.log(scale) - 0.5 * (df + 1.0) * np.logaddexp(0.0, log_r) + w
    share = 0.5 * (1.0 + np.tanh(0.5 * log_r))  # r/(1 + r) without overflow
    return LogDensity(value, 1.0 - (df + 1.0) * share)


def log_normal(log_value: ArrayLike, df: float, scale: float) -> LogDensity:
    """log p(w) of w = log x ~ N(log scale, df²), with d/dw: log-normal x with median scale.

    The Jacobian x cancels the 1/x of the density of x. log_value w: any shape; df, scale > 0.
    """
    white = (np.asarray(log_value, dtype=np.float64) - math.log(scale)) / df
    return LogDensity(-0.5 * white * white - 0.5 * math.log(2.0 * math.pi) - math.log(df), -white / df)


def log_density(log_value: ArrayLike, hyperprior: Hyperprior) -> LogDensity:
    """log p(w) of w = log x under a hyperprior, with d/dw.

    log_value w: any shape; hyperprior: a Hyperprior. On √x the density is taken at w/2 and the Jacobian is ½.
    """
    base = half_student_t if hyperprior.family == "half-student-t" else log_normal
    if not hyperprior.root:
        return base(log_value, hyperprior.df, hyperprior.scale)
    result = base(0.5 * np.asarray(log_value, dtype=np.float64), hyperprior.df, hyperprior.scale)
    return LogDensity(result.value - math.log(2.0), 0.5 * result.gradient)


def joint_log_density(log_hyper: Array, hyperpriors: Sequence[Hyperprior]) -> LogDensity:
    """Sum over the last axis of log_hyper (..., p), one of the hyperpriors for each column; gradient (..., p)."""
    parts = [log_density(log_hyper[..., j], hyperprior) for j, hyperprior in enumerate(hyperpriors)]
    return LogDensity(
        np.sum([part.value for part in parts], axis=0), np.stack([part.gradient for part in parts], axis=-1)
    )


def draw(rng: np.random.Generator, hyperprior: Hyperprior, n_draws: int) -> Array:
    """Draws of x from its prior, (n_draws,). rng gives n_draws normals, and as many chi-squares for half-Student-t.

    hyperprior: a Hyperprior; n_draws: how many.
    """
    if hyperprior.family == "half-student-t":
        x = hyperprior.scale * np.abs(rng.standard_t(hyperprior.df, n_draws))
    else:
        x = hyperprior.scale * np.exp(hyperprior.df * rng.standard_normal(n_draws))
    return np.square(x) if hyperprior.root else x


def check_hyperprior(
    hyperprior: Mapping[str, tuple[str, float, float]] | None, learn: Sequence[str], prior_on: str
) -> dict[str, Hyperprior]:
    """A Hyperprior for each field to learn, in the order of FIELDS.

    hyperprior: field -> (family, df, scale); learn: fields to sample; prior_on: "field" or "root".
    Raises ValueError for an unknown field, family or reading, and for a field without a prior: without one the
    posterior may have no finite mass.
    """
    if isinstance(learn, str) or not learn or any(name not in FIELDS for name in learn):
        raise ValueError(f"learn: found {shown(learn)}, expected at least one out of {FIELDS}")
    if not isinstance(prior_on, str) or prior_on not in SITS_ON:
        raise ValueError(f"prior_on: found {shown(prior_on)}, expected one of {SITS_ON}")
    if hyperprior is not None and not isinstance(hyperprior, Mapping):
        raise ValueError(
            f"hyperprior: found {type(hyperprior).__name__}, expected a mapping of field to (family, df, scale)"
        )
    given = {} if hyperprior is None else dict(hyperprior)
    hyperpriors: dict[str, Hyperprior] = {}
    for name in FIELDS:
        if name not in learn:
            continue
        if name not in given:
            raise ValueError(
                f"hyperprior: found no entry for {name!r}, expected (family, df, scale) for what is learnt, "
                "such as ('half-student-t', 4, 2.0) or ('log-normal', 1.0, 2.0)"
            )
        entry = given[name]
        if not isinstance(entry, list | tuple) or len(entry) != 3:
            raise ValueError(f"hyperprior[{name!r}]: found {shown(entry)}, expected (family, df, scale)")
        family, df, scale = entry
        if not isinstance(family, str) or family not in FAMILIES:
            raise ValueError(f"hyperprior[{name!r}]: found {shown(family)}, expected one of {FAMILIES}")
        numbers = [
            _scalar(f"hyperprior[{name!r}] {what}", x, positive=True) for what, x in (("df", df), ("scale", scale))
        ]
        hyperpriors[name] = Hyperprior(family, numbers[0], numbers[1], prior_on == "root" and name != "lengthscales")
    return hyperpriors
