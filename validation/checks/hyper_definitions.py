"""Densities, gradients and conditional moments behind the chains over kernel parameters, and type-II MAP objectives.

Each is held against its definition in `validation.checks.hyper_model`, gradients against differences of that
definition. No chain runs here: what is wrong by a factor is seen to ten digits and not to two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import softmax
from scipy.stats import norm

from validation.by_name import sampler_by_name
from validation.checks import hyper_model as own
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Tested, check
from validation.problem import Problem

Array = NDArray[np.float64]
PAPER = "riihimaki2013"

# condition numbers stay below 1e4 here: dense solves on either side leave 1e4 eps = 2e-12, sums of some dozens of them
# a tenth of this limit
EXACT = 1e-9
# differences of fourth order leave 1e-11 of the value's size, which is up to a hundred here
DERIVATIVE = 1e-8

DISTRIBUTIONS: Mapping[str, own.Distribution] = MappingProxyType(
    {
        "variance": ("half-student-t", 4.0, 3.0),
        "lengthscales": ("log-normal", 0.8, 0.7),
        "noise": ("log-normal", 0.7, 0.3),
    }
)
METHODS = (
    ("gibbs-logit", "logit", 2, 0.0),
    ("gibbs-probit", "probit", 2, 0.0),
    ("mh-softmax", "softmax", 3, 0.0),
    ("gibbs-probit", "multinomial-probit", 3, 0.0),
    ("gibbs-threshold", "threshold", 3, 0.0),
    ("gibbs-threshold", "threshold", 3, 0.2),
)
X = np.array([[-1.0, 0.3], [0.2, -0.4], [0.7, 0.9]])
X_TEST = np.array([[0.4, 0.1], [1.5, -0.6]])
Z = np.array([[-0.6, 0.2], [0.5, 0.4]])


class Case(NamedTuple):
    """A likelihood with a prior model, and whether latents share their parameters."""

    likelihood: str
    n_classes: int
    epsilon: float
    fitc: bool
    shared: bool
    learn: tuple[str, ...]

    @property
    def n_latents(self) -> int:
        """L."""
        return 1 if self.likelihood in own.BINARY else self.n_classes

    @property
    def given(self) -> own.Given:
        """Inputs and jitter."""
        return own.Given(X, X_TEST, Z if self.fitc else None, 1e-3)


def cases(likelihood: str, n_classes: int, epsilon: float) -> Iterable[Case]:
    """Full and FITC, shared and not, all fields learnt or the noise held."""
    for fitc, shared, learn in (
        (False, True, own.FIELDS),
        (False, False, ("variance", "noise")),
        (True, False, own.FIELDS),
        (True, True, ("lengthscales",)),
    ):
        yield Case(likelihood, n_classes, epsilon, fitc, shared or likelihood in own.BINARY, learn)


def _labels(case: Case) -> NDArray[np.int64]:
    return np.array([1, 0, 1]) if case.n_classes == 2 else np.array([2, 0, 1])


def _model(case: Case) -> Any:
    from gibbs.models.hyper import make_model

    theta = np.array([1.3, 0.8, 1.1, 0.4])
    model, _ = sampler_by_name(make_model, n_warmup=0)(
        case.likelihood, X, _labels(case), case.n_classes, theta[0], theta[1:-1], theta[-1], 1e-3, case.given.Z,
        "fitc" if case.fitc else "full", X_TEST, case.epsilon,
        hyperprior=dict(DISTRIBUTIONS), learn=case.learn, shared=case.shared,
    )  # fmt: skip
    return model


class _State(NamedTuple):
    hyper: Array  # (r, B, 2 + d)
    values: Array  # (r, L, n)
    state: dict[str, Array]


def _state(rng: np.random.Generator, case: Case, r: int = 2) -> _State:
    L = case.n_latents
    B = 1 if case.shared else L
    hyper = np.exp(0.4 * rng.standard_normal((r, B, 4)))
    hyper[..., -1] *= 0.4
    values = rng.standard_normal((r, L, len(X)))
    if case.likelihood in (
        "multinomial-probit",
        "threshold",
    ):  # inside the constraints, but for the last where labels err
        for k in range(r - (case.epsilon > 0.0)):
            for i, label in enumerate(_labels(case)):
                top = int(values[k, :, i].argmax())
                values[k, [label, top], i] = values[k, [top, label], i]
    state = {"hyper": hyper, "latent": values, "omega": rng.uniform(0.1, 0.4, (r, len(X)))}
    state["normals"] = rng.standard_normal((r, 8, L, len(X_TEST)))
    return _State(hyper, values, state)


def _log_prior(w: Array, case: Case) -> float:
    distributions = own.distributions_of(DISTRIBUTIONS, case.learn, X.shape[1])
    return float(sum(own.log_density(w[j], distribution) for j, (_, distribution) in enumerate(distributions)))


def densities(case: Case) -> Iterable[tuple[str, float, float]]:
    """(what, difference, limit) of log densities and their gradients."""
    from gibbs.models.hyper import log_joint
    from gibbs.models.hyper_covariance import log_normal_density

    rng, model = np.random.default_rng(5), _model(case)
    hyper, values, state = _state(rng, case)
    r, B, columns = len(hyper), hyper.shape[1], own.positions(case.learn, X.shape[1])
    per_block, given = values.reshape(r, B, -1, len(X)), case.given
    w = np.log(hyper[..., columns])
    result = model.log_hyperprior(w)
    expected = [[_log_prior(w[k, b], case) for b in range(B)] for k in range(r)]
    gradient = [[own.derivative(lambda at: _log_prior(at, case), w[k, b]) for b in range(B)] for k in range(r)]
    yield "log hyperprior", own.difference(result.value, expected), EXACT
    yield "gradient of the log hyperprior", own.difference(result.gradient, gradient), DERIVATIVE
    beyond = np.where(np.arange(w.shape[-1]) == 0, 116.0, 0.0)
    yield "log hyperprior beyond e^115", float(not np.isneginf(model.log_hyperprior(beyond).value)), 0.0

    extra = rng.uniform(0.2, 2.0, (r, B, len(X)))
    result = log_normal_density(model.design, hyper, per_block, extra)

    def density(log_theta: Array, k: int, b: int) -> float:
        cov = own.blocks(np.exp(log_theta), given).data + np.diag(extra[k, b])
        return sum(own.log_gaussian(v, cov) for v in per_block[k, b])

    expected = [[density(np.log(hyper[k, b]), k, b) for b in range(B)] for k in range(r)]
    gradient = [
        [own.derivative(lambda at, k=k, b=b: density(at, k, b), np.log(hyper[k, b])) for b in range(B)]  # type: ignore[misc]
        for k in range(r)
    ]
    yield "log N(v; 0, S + extra)", own.difference(result.value, expected), EXACT
    yield "its gradient in log parameters", own.difference(result.gradient, gradient), DERIVATIVE
    joint = []
    for k in range(r):
        unit = own.unit_noise(case.likelihood) * np.eye(len(X))
        total = sum(_log_prior(w[k, b], case) for b in range(B))
        for latent in range(case.n_latents):
            b = 0 if case.shared else latent
            total += own.log_gaussian(values[k, latent], own.blocks(hyper[k, b], given).data + unit)
        constraints = case.likelihood == "probit"
        joint.append(
            total if constraints else total + own.log_likelihood(case.likelihood, values[k], model.y, case.epsilon)
        )
    yield "log joint", own.difference(log_joint(model, state), joint), EXACT


def likelihoods(case: Case) -> Iterable[tuple[str, float, float]]:
    """(what, difference, limit) of what labels say of smooth parts of the latent values, and of its gradient."""
    rng, model = np.random.default_rng(6), _model(case)
    _, values, _ = _state(rng, case)
    sd, u = rng.uniform(0.3, 1.5, values.shape[:2]), rng.standard_normal((len(values), len(X)))
    result = model.log_likelihood(values, sd, u)
    if case.likelihood in own.SMOOTH:
        expected = [own.log_likelihood(case.likelihood, f, model.y, 0.0) for f in values]
        derivatives = [
            own.derivative(lambda f: own.log_likelihood(case.likelihood, f, model.y, 0.0), values[k])
            for k in range(len(values))
        ]
        yield "gradient of log p(y | f)", own.difference(model.log_likelihood_gradient(values), derivatives), DERIVATIVE
    elif case.likelihood == "probit":
        sign = np.where(model.y == 1, 1.0, -1.0)
        expected = [float(own.log_ndtr(sign * g[0] / s[0]).sum()) for g, s in zip(values, sd, strict=True)]
    else:
        rows = list(zip(values, sd, u, strict=True))
        expected = [own.log_smoothed(g, s, e, model.y, case.epsilon) for g, s, e in rows]
    yield "log p(y | smooth part)", own.difference(result, expected), EXACT


def moments(case: Case) -> Iterable[tuple[str, float, float]]:
    """(what, difference, limit) of moments given the parameters and the auxiliary, and of class probabilities."""
    from gibbs.models.hyper import class_probabilities, conditional_moments

    rng, model = np.random.default_rng(7), _model(case)
    hyper, values, state = _state(rng, case)
    result = conditional_moments(model, state)
    unit = own.unit_noise(case.likelihood)
    expected = []
    for k in range(len(hyper)):
        for latent in range(case.n_latents):
            v, extra = values[k, latent], np.full(len(X), unit)
            if case.likelihood == "logit":
                v, extra = (model.y - 0.5) / state["omega"][k], 1.0 / state["omega"][k]
            expected.append(own.conditional(own.blocks(hyper[k, 0 if case.shared else latent], case.given), v, extra))
    for name in own.Moments._fields:
        right = [getattr(entry, name) for entry in expected]
        left = getattr(result, name)
        if right[0] is None:
            yield name, float(left is not None), 0.0
            continue
        shape = (len(hyper), case.n_latents, *np.shape(right[0]))
        yield name, np.inf if left is None else own.difference(left, np.reshape(right, shape)), EXACT
    found_p = class_probabilities(model, state, result.test_mean, result.test_var)
    right_p = []
    for k in range(len(hyper)):
        for i in range(len(X_TEST)):
            mean, var = result.test_mean[k, :, i], result.test_var[k, :, i]
            if case.likelihood == "softmax":
                drawn = mean + np.sqrt(var) * state["normals"][k, :, :, i]
                right_p.append(softmax(drawn, axis=1).mean(axis=0))
            else:
                right_p.append(own.class_probabilities(case.likelihood, mean, var, unit, case.epsilon))
    # both rules state 1e-10 for latents whose deviations differ by less than a hundred
    yield "class probabilities", own.difference(found_p, np.reshape(right_p, found_p.shape)), EXACT


_QUESTIONS = {
    "hyper_densities": (
        densities,
        "Are the log densities of parameters and latent values, and their gradients, right?",
    ),
    "hyper_likelihoods": (likelihoods, "Is what the labels say given the smooth part of the latent values right?"),
    "hyper_moments": (moments, "Are the moments given parameters and auxiliary those of dense algebra?"),
}


def worst(value: Iterable[tuple[str, float, float]], where: str) -> Iterable[Outcome]:
    """One outcome for each quantity."""
    for name, observed, limit in value:
        yield Compared(
            observed,
            limit,
            f"{name}, {where}: an identity, on either side to rounding" if limit else f"{name}, {where}: none",
            "gibbs",
            "definition",
        )


def gathered(name: str, method: str) -> Iterable[Outcome]:
    """All cases of a method: for each quantity the largest difference."""
    function = _QUESTIONS[name][0]
    largest: dict[str, tuple[float, float, str]] = {}
    for own_method, *distribution in METHODS:
        if own_method == method:
            for case in cases(*distribution):  # type: ignore[arg-type]
                for what, observed, limit in function(case):
                    if not observed <= largest.get(what, (-1.0,))[0]:
                        largest[what] = (observed, limit, f"{case.likelihood}, {'FITC' if case.fitc else 'full'}")
    for what, (observed, limit, where) in largest.items():
        yield from worst([(what, observed, limit)], f"largest at {where}")


def _register(method: str, name: str) -> None:
    @check(f"identity/{method}/{name}", paper=PAPER, question=_QUESTIONS[name][1], problems=(NO_PROBLEM,))
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        return gathered(name, method)


for _method in dict.fromkeys(entry[0] for entry in METHODS):
    for _name in _QUESTIONS:
        _register(_method, _name)


# -- hyperpriors --------------------------------------------------------------------------------------------------


@check(
    "identity/mh-softmax/hyperpriors",
    paper=PAPER,
    question="Are both families of hyperpriors the densities of scipy.stats, on a field and on its root?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.core.hyperpriors import Hyperprior, log_density
    from gibbs.core.hyperpriors import draw as drawn

    def log_density_at(distribution: own.Distribution, root: bool, at: Array) -> float:
        return float(own.log_density(at, distribution, root=root))

    w = np.linspace(-6.0, 6.0, 13)
    for distribution in (("half-student-t", 4.0, 3.0), ("half-student-t", 1.5, 0.2), ("log-normal", 0.8, 0.7)):
        for root in (False, True):
            result = log_density(w, Hyperprior(*distribution, root))
            yield from worst(
                [
                    ("log density", own.difference(result.value, own.log_density(w, distribution, root=root)), EXACT),
                    (
                        "its derivative",
                        own.difference(
                            result.gradient,
                            [own.derivative(partial(log_density_at, distribution, root), np.array(x)) for x in w],
                        ),
                        DERIVATIVE,
                    ),
                ],
                f"{distribution[0]}{', on the root' if root else ''}",
            )
            x = drawn(np.random.default_rng(8), Hyperprior(*distribution, root), 4000)
            fine = np.log(distribution[2]) * (2.0 if root else 1.0) + np.linspace(-40.0, 40.0, 40001)
            cdf = np.cumsum(np.exp(own.log_density(fine, distribution, root=root))) * (fine[1] - fine[0])
            p = stats.kstest(np.interp(np.log(x), fine, cdf), "uniform").pvalue
            yield Tested(
                np.array([norm.isf(0.5 * max(p, 1e-300))]),
                "draws of the prior: Kolmogorov and Smirnov's test, its p read as a z",
                "gibbs",
                "scipy.stats",
                "a shift of the distribution function by 4 % would show",
            )


# -- type-II MAP --------------------------------------------------------------------------------------------------


def _smooth_evidence(log_theta: Array) -> float:
    """A function of all log parameters (C, 2 + d) without symmetry, in place of log Z."""
    weight = 0.3 + 0.1 * np.arange(log_theta.size).reshape(log_theta.shape)
    return float((np.sin(weight * log_theta) - 0.2 * log_theta**2).sum() + log_theta[0, 0] * log_theta[-1, -1])


def _map_value(log_theta: Array, learn: tuple[str, ...], shared: bool, prior_on: str, density: str) -> float:
    """The function above plus log prior densities of what has one: one for each class, once where shared."""
    total = _smooth_evidence(log_theta)
    distributions = own.distributions_of(DISTRIBUTIONS, own.FIELDS, log_theta.shape[1] - 2)
    for j, (name, distribution) in enumerate(distributions):
        root = prior_on == "root" and name != "lengthscales"
        if name in learn:
            for w in log_theta[: 1 if shared else None, j]:
                # the density of the value that the distribution sits on, or of that value's logarithm
                value = 0.5 * w if root else w
                total += float(own.log_density(value, distribution)) - (value if density == "value" else 0.0)
    return total


def _witness_objective(
    witness: str, log_theta: Array, learn: tuple[str, ...], shared: bool, prior_on: str, density: str
) -> tuple[float, Array]:
    theta, C = np.exp(log_theta), len(log_theta)
    value, derivative = _smooth_evidence(log_theta), own.derivative(_smooth_evidence, log_theta) / theta
    distributions = {name: DISTRIBUTIONS[name] for name in learn}
    if witness == "fast":
        from fast.core.hyper import ClassGradients, ClassHyper
        from fast.full_classes.learning import map_objective

        if shared:  # each row holds the sum over the classes
            derivative = np.broadcast_to(derivative.sum(axis=0), derivative.shape)
        gradients = ClassGradients(derivative[:, 0], derivative[:, 1:-1], derivative[:, -1])
        hyper = ClassHyper(theta[:, 0], theta[:, 1:-1], theta[:, -1], np.zeros(C))
        result = map_objective(
            value, gradients, hyper, learn, distributions, shared=shared, prior_on=prior_on, map_density=density
        )
        return float(result[0]), np.asarray(result[1])
    from reference.riihimaki2013.fit import Gradients, Prior
    from reference.riihimaki2013.type2 import type2_map_objective

    prior = Prior(theta[:, 0], theta[:, 1:-1], theta[:, -1], np.zeros(C))
    parts = Gradients(derivative[:, 0], derivative[:, 1:-1], derivative[:, -1])
    result = type2_map_objective(lambda _: (value, parts), prior, distributions, learn, shared, prior_on, density)
    return float(result[0]), np.asarray(result[1])


def _map_difference(witness: str, learn: tuple[str, ...], shared: bool, prior_on: str, density: str) -> Iterable[float]:
    rng, C, d = np.random.default_rng(9), 3, 2
    log_theta = 0.7 * rng.standard_normal((1 if shared else C, 2 + d)) * np.ones((C, 1))
    columns = own.positions(learn, d)
    free = log_theta[:1, columns] if shared else log_theta[:, columns]

    def value(at: Array) -> float:
        full = log_theta.copy()
        full[:, columns] = at
        return _map_value(full, learn, shared, prior_on, density)

    result, gradient = _witness_objective(witness, log_theta, learn, shared, prior_on, density)
    yield own.difference(result, value(free))
    expected = own.derivative(value, free)
    # fields in turn, classes within a field
    at = [own.positions((name,), d) for name in own.FIELDS if name in learn]
    order = [[columns.index(column) for column in part] for part in at]
    yield own.difference(gradient, np.concatenate([expected[:, part].ravel() for part in order]))


_OUTER = ("variance", "noise")


@check(
    "identity/laplace/map_objective",
    paper=PAPER,
    question="Are the objective of type-II MAP and its gradient log Z plus the log prior, for every reading of it?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    for witness in ("reference", "fast"):
        values, gradients = [], []
        for learn, shared in ((own.FIELDS, False), (own.FIELDS, True), (("lengthscales",), True), (_OUTER, False)):
            for prior_on in ("field", "root"):
                for density in ("value", "log"):
                    value, gradient = _map_difference(witness, learn, shared, prior_on, density)
                    values.append(value)
                    gradients.append(gradient)
        why = "three sets of fields, shared or not, on the field or its root, mode in the value or its logarithm"
        yield Compared(max(values), EXACT, f"objective, {why}", witness, "definition")
        yield Compared(max(gradients), DERIVATIVE, f"gradient, {why}", witness, "differences of the definition")
