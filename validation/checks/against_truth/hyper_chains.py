"""Chains over kernel parameters and latent values: data far apart, and two data against quadrature.

Two data far apart, with the same prior for all classes: by symmetry p(y | θ) is the same for every θ, so the posterior
of θ is the hyperprior, whose moments are known. Two data, two classes: p(y | θ) is a product rule over f, and θ one
more rule around it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Tested, check
from validation.checks.definitions import hyper_model as own
from validation.door.problem import Problem
from validation.door.solution import Solution

Array = NDArray[np.float64]
PAPER = "riihimaki2013"
SEED = 20130101

# short tails, so that a rule of 25 nodes an axis holds the posterior to four digits, which no chain here resolves
DISTRIBUTIONS: Mapping[str, own.Distribution] = MappingProxyType(
    {
        "variance": ("log-normal", 0.9, 1.5),
        "lengthscales": ("log-normal", 0.7, 0.8),
        "noise": ("log-normal", 0.6, 0.4),
    }
)
HEAVY: Mapping[str, own.Distribution] = MappingProxyType({**DISTRIBUTIONS, "variance": ("half-student-t", 4.0, 3.0)})
X2 = np.array([[-0.6], [0.5]])
FAR = np.array([[-1e6], [1e6]])  # whatever the lengthscale is
X_TEST = np.array([[0.2]])
Z1 = np.array([[-0.3]])
NOISE, JITTER = 0.3, 1e-3


class Model(NamedTuple):
    """A method, its likelihood and how many classes it is asked about."""

    method: str
    likelihood: str
    n_classes: int
    epsilon: float = 0.0
    fitc: bool = False
    learn: tuple[str, ...] = own.FIELDS

    @property
    def name(self) -> str:
        """For a report."""
        parts = (self.likelihood, f"{self.n_classes} classes", "FITC" if self.fitc else "full")
        errors = (f"label errors {self.epsilon:g}",) if self.epsilon else ()
        return ", ".join((*parts, *errors))


def _tested(z: Array, why: str, right: str, power: str) -> Tested:
    return Tested(np.asarray(z), f"{why}; two-sided z, Holm over the run at 1e-4", "gibbs", right, power)


# -- data far apart: the hyperprior -----------------------------------------------------------------------------------

FAR_DATA = (
    Model("gibbs-logit", "logit", 2),
    Model("gibbs-probit", "probit", 2),
    Model("gibbs-probit", "multinomial-probit", 3),
    Model("gibbs-threshold", "threshold", 3, 0.2),
    Model("mh-softmax", "softmax", 3),
)


def chains(
    context: Context, model: Model, X: Array, distributions: Mapping[str, own.Distribution], n_draws: int
) -> Solution:
    """The answer of a method that samples parameters of this model on two data, of the first and the last class."""
    problem = Problem(
        model.name, X, np.array([0, model.n_classes - 1]), model.n_classes, model.likelihood, 1.0, 1.0, noise=NOISE,
        jitter=JITTER, Z=Z1 if model.fitc else None, prior_model="fitc" if model.fitc else "full", X_test=X_TEST,
        epsilon=model.epsilon, hyperprior={name: distributions[name] for name in model.learn}, shared=True,
    )  # fmt: skip
    return context.solve("gibbs", model.method, problem, learn=model.learn, n_chains=32, n_draws=n_draws, n_warmup=40,
                         n_steps=4, seed=SEED)  # fmt: skip


def log_pairs(answer: Solution, name: str, truth: tuple[float, float]) -> list[tuple[Any, Any, Any]]:
    """(found, error, truth) of mean and variance of the logarithm."""
    found = answer.local
    return [
        (np.ravel(found[f"log_{name}_{of}"])[0], np.ravel(found[f"log_{name}_{of}_se"])[0], value)
        for of, value in zip(("mean", "var"), truth, strict=True)
    ]


def z_of_pairs(pairs: list[tuple[Any, Any, Any]]) -> Array:
    """(found - truth)/error, all in one; found and truth of one shape.

    Errors from about a thousand effective draws are known to a tenth only: tails of a t, which 1.2 allows for.
    """
    z = []
    for value, error, truth in pairs:
        if np.shape(value) != np.shape(truth):
            raise ValueError(f"truth: found shape {np.shape(truth)}, expected {np.shape(value)}")
        z.append(np.ravel((np.asarray(value) - truth) / error) / 1.2)
    return np.concatenate(z)


def _prior_only(context: Context, model: Model) -> Iterable[Outcome]:
    # one chain forgets its start in some ten sweeps here; 32 chains of 60 draws are about a thousand effective ones
    result = chains(context, model, FAR, HEAVY, 60 if context.quick else 2000)
    pairs = [pair for name in model.learn for pair in log_pairs(result, name, own.log_moments(HEAVY[name]))]
    yield _tested(
        z_of_pairs(pairs),
        f"{model.name}: data far apart, classes that are exchanged freely, p(y | θ) the same for every θ",
        "hyperprior",
        "a shift of log θ by a fifth of its deviation would show",
    )
    assert result.probabilities is not None  # there are test inputs
    normal = float(np.abs(result.probabilities.sum(axis=1) - 1.0).max())
    yield Compared(normal, 1e-12, "class probabilities are normalised", "gibbs", "definition")
    refused = sum(value for name, value in result.settings.items() if name.startswith("refused_"))
    refused += float(not result.settings["settled"])
    yield Compared(refused, 0.0, "nothing here is near singular, and no chain stands still", "gibbs", "itself", "count")


# -- two data: quadrature over parameters and latent values ------------------------------------------------------------


class Posterior(NamedTuple):
    """Moments of log parameters (p,), and of f, f*, with p(y* = 1)."""

    log_mean: Array
    log_var: Array
    latent_mean: Array
    latent_var: Array
    test_mean: Array
    test_var: Array
    inducing_mean: Array
    inducing_cov: Array
    probability: Array


_WIDE = 3.0 * 1.5  # deviations of the hyperprior on either side


def binary_posterior(model: Model, learn: tuple[str, ...], y: Array, nodes: int) -> Posterior:
    """Trapezoidal rules over two log parameters, and in white coordinates over f at two data.

    With learnt priors that are normal in the logarithms, 4.5 deviations and 19 nodes (half a deviation each) leave
    1e-5; f in white coordinates, nine deviations and `nodes` of them. The probit's noise is integrated out: Φ(f).
    """
    from scipy.special import log_ndtr, ndtr

    axes = [
        np.log(DISTRIBUTIONS[name][2]) + DISTRIBUTIONS[name][1] * np.linspace(-_WIDE, _WIDE, 19)
        for name in own.FIELDS
        if name in learn
    ]
    white = np.linspace(-6.5, 6.5, nodes)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(white, white, indexing="ij")])
    log_white = -0.5 * (grid**2).sum(axis=0)
    sign = np.where(y == 1, 1.0, -1.0)[:, None]
    given = own.Given(X2, X_TEST, Z1 if model.fitc else None, JITTER)
    log_weight, rows = [], []
    for at in itertools.product(*axes):
        theta = np.array([1.0, 1.0, NOISE])
        theta[own.positions(learn, 1)] = np.exp(at)
        result = own.blocks(theta, given)
        f = np.linalg.cholesky(result.data) @ grid
        terms = log_expit(sign * f) if model.likelihood == "logit" else log_ndtr(sign * f)
        log_p = log_white + terms.sum(axis=0)
        top = log_p.max()
        weight = np.exp(log_p - top)
        prior = sum(float(own.log_density(w, DISTRIBUTIONS[name])) for w, name in zip(at, learn, strict=True))
        log_weight.append(prior + top + np.log(weight.sum()))
        weight /= weight.sum()
        gain = np.linalg.solve(result.data, result.test.T).T
        at_test, rest = (gain @ f)[0], result.test_var[0] - float((gain @ result.test.T)[0, 0])
        drawn = at_test[:, None] + np.sqrt(rest) * np.linspace(-6.0, 6.0, 25)
        inner = np.exp(-0.5 * np.linspace(-6.0, 6.0, 25) ** 2)
        if model.likelihood == "logit":
            p = float(weight @ (expit(drawn) @ inner) / inner.sum())
        else:
            p = float(weight @ ndtr(at_test / np.sqrt(1.0 + rest)))
        u, u2 = 0.0, 0.0
        if result.cross is not None and result.inducing is not None:
            gain = np.linalg.solve(result.data, result.cross.T).T
            at_u = (gain @ f)[0]
            u = float(weight @ at_u)
            u2 = float(weight @ at_u**2) + float((result.inducing - gain @ result.cross.T)[0, 0])
        rows.append(
            np.concatenate(
                [at, np.square(at), f @ weight, np.square(f) @ weight, [weight @ at_test],
                 [weight @ at_test**2 + rest], [u, u2, p]]
            )
        )  # fmt: skip
    weights = np.exp(np.array(log_weight) - max(log_weight))
    mean = weights @ np.array(rows) / weights.sum()
    w, w2, m, m2, t, t2, u_at, uu, p_at = np.split(mean, [2, 4, 6, 8, 9, 10, 11, 12])
    return Posterior(w, w2 - w**2, m, m2 - m**2, t, t2 - t**2, u_at, uu - u_at**2, p_at)


TWO_DATA = (
    Model("gibbs-logit", "logit", 2, learn=("variance", "lengthscales")),
    Model("gibbs-probit", "probit", 2, fitc=True, learn=("variance", "lengthscales")),
    Model("gibbs-logit", "logit", 2, fitc=True, learn=("variance", "noise")),
    Model("gibbs-probit", "probit", 2, learn=("variance", "noise")),
)


def _two_data(context: Context, model: Model) -> Iterable[Outcome]:
    result = chains(context, model, X2, DISTRIBUTIONS, 80 if context.quick else 2000)
    truth = binary_posterior(model, model.learn, np.array([0, 1]), 27 if context.quick else 61)
    pairs = [
        pair
        for k, name in enumerate(model.learn)
        for pair in log_pairs(result, name, (truth.log_mean[k], truth.log_var[k]))
    ]
    assert result.probabilities is not None  # there are test inputs
    assert result.probabilities_se is not None
    pairs += [
        (result.latent_mean, result.latent_mean_se, truth.latent_mean[:, None]),
        (result.latent_cov, result.latent_cov_se, truth.latent_var[:, None, None]),
        (result.test_latent_mean, result.test_latent_mean_se, truth.test_mean[:, None]),
        (result.test_latent_cov, result.test_latent_cov_se, truth.test_var[:, None, None]),
        (result.probabilities[:, 1], result.probabilities_se[:, 1], truth.probability),
    ]
    if model.fitc:
        pairs.append((result.inducing_mean, result.inducing_mean_se, truth.inducing_mean[:, None]))
        # no error is stated for it: that of the test variance beside it, which is of the same kind, is taken
        pairs.append((result.inducing_cov, result.test_latent_cov_se, truth.inducing_cov[:, None, None]))
    yield _tested(z_of_pairs(pairs), model.name, "quadrature", "a shift by a fifth of a deviation would show")


# -- registration ------------------------------------------------------------------------------------------------------


def _register(method: str) -> None:
    @check(
        f"exactness/{method}/hyper_prior_only",
        paper=PAPER,
        question="If the data do not depend on the kernel parameters, these are drawn from their hyperprior.",
        problems=(NO_PROBLEM,),
    )
    def hyper_prior_only(context: Context, problem: Problem) -> Iterable[Outcome]:
        for model in FAR_DATA:
            if model.method == method:
                yield from _prior_only(context, model)


def _register_two_data(method: str) -> None:
    @check(
        f"exactness/{method}/hyper_two_data",
        paper=PAPER,
        question="Chains over parameters and latent values agree with quadrature over both.",
        problems=(),
        full=(NO_PROBLEM,),
    )
    def hyper_two_data(context: Context, problem: Problem) -> Iterable[Outcome]:
        for model in TWO_DATA:
            if model.method == method:
                yield from _two_data(context, model)


for _method in dict.fromkeys(model.method for model in FAR_DATA):
    _register(_method)
for _method in dict.fromkeys(model.method for model in TWO_DATA):
    _register_two_data(_method)
