"""laplace-binary, by both witnesses, by the judge's own definition, and by two methods that must coincide with it.

The definition is whitened: f = L v with K = L L' by eigenvectors, the mode by damped Newton steps in v, H = I + L'WL,

    log Z = log p(y|f) - |v|^2/2 - log|H|/2,    Cov f = L H^-1 L',    Cov f_* = K_** - K_*(K + W^-1)^-1 K_*'.

Neither witness has this form. Its differences in the prior are the total derivative, for each has its own mode.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr
from scipy.stats import norm

from validation.checks.apart import apart, unconverged
from validation.checks.core import Compared, Context, Outcome
from validation.checks.definitions.differences import parameter_differences
from validation.checks.definitions.predictive_integrals import rule_error
from validation.checks.subjects import Asked, Subject, add, as_probit
from validation.checks.witnesses import bound, identity, invariance
from validation.checks.witnesses.izmailov import TAYLOR, gradient, learned, same, variants
from validation.door.catalogue import METHODS
from validation.door.problem import Problem
from validation.implementations.quadrature_rule import kernel
from validation.judge.compare import gradient_unit, identity_limit, relative_difference

Array = NDArray[np.float64]

LAPLACE = Subject("laplace-binary", {entry.method: entry.paper for entry in METHODS}["laplace-binary"], "gibbs-logit")
SOFTMAX = "laplace"
_WITNESSES = ("reference", "fast")
_PAIRS = (("reference", "reference"), ("fast", "fast"), ("fast", "reference"))
_HYPER = ("variance", "lengthscales", "noise")
_QUICK, _FULL = ("two-points", "three-points", "toy", "toy-steep", "iris"), ("iris-steep", "breast-cancer-full")
_SMALL = ("two-points", "three-points", "toy")
# E g(f) for f = m + S z by the trapezoidal rule, as in `validation.checks.witnesses.izmailov`
_NODES = np.linspace(-10.0, 10.0, 4001)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.sqrt(2.0 * np.pi) * (_NODES[1] - _NODES[0])


def links(context: Context, subject: Subject, problem: Problem, function: Any) -> Iterable[Outcome]:
    """What a function says of a problem with the logistic link and of the same with the probit one."""
    for asked in (problem, as_probit(problem)):
        yield from function(context, subject, asked)


# -- definition ----------------------------------------------------------------------------------------------------


class Terms(NamedTuple):
    """log p(y|f), its gradient and W = -Hessian, of one label each."""

    value: Array
    first: Array
    W: Array


def terms(problem: Problem, f: Array) -> Terms:
    """log-likelihood terms at latent values (n,)."""
    y = 2.0 * problem.y - 1.0
    z = y * f
    if problem.likelihood == "probit":
        value = log_ndtr(z)
        ratio = np.exp(norm.logpdf(z) - value)
        return Terms(value, y * ratio, ratio * (z + ratio))
    value = -np.logaddexp(0.0, -z)
    right = np.exp(value)
    return Terms(value, y * (1.0 - right), right * (1.0 - right))


class Definition(NamedTuple):
    """Laplace's approximation."""

    log_evidence: float
    f: Array
    cov: Array
    K: Array
    at: Terms


def definition(problem: Problem) -> Definition:
    """Mode, covariance and log Z, in whitened coordinates."""
    n = problem.n
    K = kernel(problem, 0, problem.X, problem.X) + (problem.noise[0] + problem.jitter[0]) * np.eye(n)
    sizes, vectors = np.linalg.eigh(K)
    L = vectors * np.sqrt(np.maximum(sizes, 0.0))

    def height(v: Array) -> float:
        return float(terms(problem, L @ v).value.sum() - 0.5 * v @ v)

    v = np.zeros(n)
    for _ in range(200):
        at = terms(problem, L @ v)
        H = np.eye(n) + (L.T * at.W) @ L
        step = np.linalg.solve(H, L.T @ at.first - v)
        share, floor = 1.0, height(v) - 1e-12 * (1.0 + abs(height(v)))  # lower by more than rounding
        while height(v + share * step) < floor and share > 1e-9:
            share *= 0.5
        v = v + share * step
        if np.abs(step).max() < 1e-14 * (1.0 + np.abs(v).max()):
            break
    at = terms(problem, L @ v)
    H = np.eye(n) + (L.T * at.W) @ L
    value = float(at.value.sum() - 0.5 * v @ v - 0.5 * np.linalg.slogdet(H)[1])
    return Definition(value, L @ v, L @ np.linalg.solve(H, L.T), K, at)


def as_defined(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """Everything that a witness reports against the judge's own."""
    right = definition(problem)
    limit, why = identity_limit(problem)
    assert problem.X_test is not None
    cross = kernel(problem, 0, problem.X_test, problem.X)
    mean = cross @ right.at.first
    explained = np.linalg.solve(right.K + np.diag(1.0 / right.at.W), cross.T)
    var = problem.variance[0] + problem.noise[0] - np.einsum("tn,nt->t", cross, explained)
    f = mean[:, None] + np.sqrt(var)[:, None] * _NODES
    p = (norm.cdf(f) if problem.likelihood == "probit" else np.exp(-np.logaddexp(0.0, -f))) @ _WEIGHTS
    for witness in _WITNESSES:
        answer = context.solve(witness, subject.method, problem)
        yield from unconverged((answer,))
        stated = {
            "log_evidence": (answer.log_evidence, right.log_evidence),
            "latent_mean": (answer.latent_mean, right.f[:, None]),
            "latent_cov": (answer.latent_cov, np.diagonal(right.cov)[:, None, None]),
            "inducing_mean": (answer.inducing_mean, right.f[None]),
            "inducing_cov": (answer.inducing_cov, right.cov[None]),
            "test_latent_mean": (answer.test_latent_mean, mean[:, None]),
            "test_latent_cov": (answer.test_latent_cov, var[:, None, None]),
            "probabilities": (answer.probabilities, np.stack([1.0 - p, p], axis=1)),
            "site_precision": (answer.local["site_precision"], right.at.W),
        }
        told = f"{problem.likelihood}: in whitened coordinates, and by a trapezoidal rule; {why}"
        yield from apart(stated, limit, told, answer.label)


def derivatives(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """Reported derivatives against differences of the judge's own log Z, the mode found anew at each end."""
    for witness in _WITNESSES:
        answer = context.solve(witness, subject.method, problem)
        assert answer.log_evidence is not None
        for name, given in (answer.gradients or {}).items():
            whole, shorter = (
                parameter_differences(lambda there: definition(there).log_evidence, problem, name, step)
                for step in (1e-4, 5e-5)
            )
            right = (4.0 * shorter - whole) / 3.0
            yield Compared(
                relative_difference(given * gradient_unit(problem, name), right, 0.01 * abs(answer.log_evidence)),
                1e-6,
                f"{problem.likelihood}, gradient in {name}: differences of 1e-4 units, extrapolated, leave 1e-8; what "
                "moves through the mode is 1e-2",
                answer.label,
                "differences of the definition",
                f"relative difference of the gradient in {name}",
            )


# -- limits --------------------------------------------------------------------------------------------------------


def expanded(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """vi-taylor of a full GP: its points of expansion end at the mode, and (19) there is Laplace's log Z.

    Sum_i W_i Var f_i + tr(K^-1 Cov f) = n: what the expansion loses in the first, the divergence has in the second.
    """
    for left, right in _PAIRS:
        a, b = context.solve(left, subject.method, problem), context.solve(right, TAYLOR.method, problem)
        yield from same(problem, a, b, f"{problem.likelihood}: a second-order expansion at the mode is Laplace's")


def two_classes(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """Softmax of two classes: h = f1 - f0 is all that the labels see, and p(y = 1) = sigma(h).

    With half of the prior for each class h has the prior of the binary problem, f0 + f1 is independent of it, and
    Laplace's approximation in linear coordinates is one and the same.
    """
    both = {name: np.repeat(0.5 * getattr(problem, name), 2) for name in ("variance", "noise", "jitter")}
    both["lengthscales"] = np.repeat(problem.lengthscales, 2, axis=0)
    twice = problem.replace(likelihood="softmax", shared=True, **both)
    limit, why = identity_limit(problem)
    for left, right in _PAIRS:
        a, b = context.solve(left, subject.method, problem), context.solve(right, SOFTMAX, twice)
        yield from unconverged((a, b))
        pairs = {
            "log_evidence": (a.log_evidence, b.log_evidence),
            "latent_mean": (a.latent_mean, _difference(b.latent_mean)),
            "latent_cov": (a.latent_cov, _variance(b.latent_cov)),
            "test_latent_mean": (a.test_latent_mean, _difference(b.test_latent_mean)),
            "test_latent_cov": (a.test_latent_cov, _variance(b.test_latent_cov)),
        }
        yield from apart(pairs, limit, f"h = f1 - f0 is all that two classes see; {why}", a.label, b.label)
        assert a.log_evidence is not None
        for name in _HYPER:
            share = 1.0 if name == "lengthscales" else 0.5
            unit = gradient_unit(problem, name)
            mine, theirs = (np.asarray((side.gradients or {}).get(name, np.full(1, np.nan))) for side in (a, b))
            yield Compared(
                relative_difference(mine * unit, share * theirs[:1] * unit, 0.01 * abs(a.log_evidence)),
                10.0 * limit,
                f"gradient in {name}: each class has half of the variance; {why}",
                a.label,
                b.label,
                f"relative difference of the gradient in {name}",
            )
        assert a.probabilities is not None
        assert b.probabilities is not None
        yield Compared(
            float(np.abs(a.probabilities - b.probabilities).max()),
            rule_error(b),
            f"softmax integrates by a rule that states {rule_error(b):.2g}",
            a.label,
            b.label,
            "largest difference in probability",
        )


def _difference(mean: Any) -> Array:
    return np.asarray(mean[:, 1:] - mean[:, :1])


def _variance(cov: Any) -> Array:
    return np.asarray(cov[:, 1:, 1:] + cov[:, :1, :1] - cov[:, 1:, :1] - cov[:, :1, 1:])


# -- registration ----------------------------------------------------------------------------------------------------


def _add(kind: str, *row: Any) -> None:
    add(__name__, kind, LAPLACE, *row)


def _derivative_in(name: str) -> Asked:
    return lambda context, subject, problem: gradient(context, subject, problem, name)


def _of_both_links(function: Asked) -> Asked:
    return lambda context, subject, problem: links(context, subject, problem, function)


for _name, _question in identity.FIELDS.items():
    _add("identity", _name, _question, identity.comparing(identity.field(_name)), _QUICK, _FULL)
for _name in _HYPER:
    _add("identity", f"gradient_{_name}", identity.GRADIENTS[_name], _derivative_in(_name), _QUICK, _FULL)
_add("identity", "site_precision", "Both witnesses have the same curvatures at the mode.",
     identity.comparing(lambda solution: solution.local.get("site_precision")), _SMALL, ("toy-steep",))  # fmt: skip
_add("identity", "probit", "Both witnesses agree with the probit link.",
     lambda context, subject, problem: variants(context, subject, [as_probit(problem)]), _QUICK, _FULL)  # fmt: skip
_add("identity", "learned", "Both searches end at the same hyper-parameters.",
     _of_both_links(learned), ("toy",))  # fmt: skip
_add("limit", "definition", "Mode, covariances, log Z and probabilities are the judge's own.",
     _of_both_links(as_defined), (*_SMALL, "toy-steep"), ("iris",))  # fmt: skip
_add("limit", "vi-taylor", "This is the expansion of vi-taylor on a full GP.", _of_both_links(expanded), _SMALL,
     ("toy-steep", "iris"))  # fmt: skip
_add("limit", "softmax", "With two classes this is the softmax method.", two_classes, _SMALL, ("toy-steep", "iris"))
_add("derivative", "gradient_definition", "The gradient is the total one of the judge's own log Z.",
     _of_both_links(derivatives), ("three-points", "toy"), ("toy-steep",))  # fmt: skip
_add("bound", "equality", "When the prior variance vanishes, log Z = -n log 2.", _of_both_links(bound.equality),
     _SMALL)  # fmt: skip
_add("invariance", "data_order", (
    "The answer does not depend on the order of the data."
), _of_both_links(invariance.permuted_data),
     ("toy", "iris"), ("toy-steep",))  # fmt: skip
_add("invariance", "classes", "Swapping the classes mirrors the answer.",
     _of_both_links(invariance.flipped_classes), ("toy", "iris"), ("toy-steep",))  # fmt: skip
