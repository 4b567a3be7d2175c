"""villacampa2020, appendix C: label-regression and laplace-sparse, both witnesses, dense algebra, limits and a truth.

The FITC prior of the latent values at X is a Gaussian with covariance Q + diag(s), Q = K_XZ K_ZZ^-1 K_ZX, and dense
matrices of that size say all there is to say: what regression on labels is, and what Newton's method must have found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.special import log_softmax

from validation.checks.apart import apart, gradients_apart, unconverged
from validation.checks.core import Compared, Context, Outcome, Skipped
from validation.checks.definitions.differences import parameter_differences
from validation.checks.definitions.power import largest
from validation.checks.definitions.predictive_integrals import own_integral, rule_error
from validation.checks.subjects import Asked, Subject, add
from validation.checks.witnesses import identity
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.quadrature_rule import kernel
from validation.judge.compare import (
    gradient_unit,
    identity_limit,
    prior_condition,
    relative_difference,
)

PAPER = "villacampa2020"
REGRESSION = Subject("label-regression", PAPER, "gibbs-threshold")
LAPLACE = Subject("laplace-sparse", PAPER, "mh-softmax")
LEARNED = ("variance", "lengthscales", "noise", "Z")
_WITNESSES = ("reference", "fast")
_LOCAL = {
    REGRESSION: ("site_precision", "site_shift"),
    LAPLACE: ("pi",),
}

Array = NDArray[np.float64]


def _asked(subject: Subject, problem: Problem) -> Problem:
    """The problem itself, or its data and prior with the softmax in place of the threshold."""
    if subject == REGRESSION or problem.likelihood == "softmax":
        return problem
    name = problem.name.removesuffix("-threshold") + "-softmax"
    return problem.replace(name=name, likelihood="softmax", epsilon=0.0)


_unconverged = partial(unconverged, valued=True)


# -- identity ------------------------------------------------------------------------------------------------------


def compared(context: Context, subject: Subject, problem: Problem, extract: Callable[[Solution], Any]) -> Iterable[Any]:
    """One quantity of both witnesses."""
    return identity.compared(context, subject, _asked(subject, problem), extract)


def local(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """What both keep of each datum."""
    asked = _asked(subject, problem)
    left, right = identity.pair(context, subject, asked)
    yield from _unconverged((left, right))
    pairs = {name: (left.local.get(name), right.local.get(name)) for name in _LOCAL[subject]}
    yield from apart(pairs, *identity_limit(asked), *_WITNESSES)


def gradient(context: Context, problem: Problem, name: str) -> Iterable[Outcome]:
    """One gradient of the evidence of the regressions, by both witnesses."""
    left, right = identity.pair(context, REGRESSION, problem)
    yield from _unconverged((left, right))
    limit, why = identity_limit(problem)
    told = f"by its unit; terms of the size of 1 % of log Z and more cancel; {why}"
    yield gradients_apart(left, right, name, limit, told)


def learned(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Both witnesses where a search for lengthscales and noise ends."""
    fields = ("lengthscales", "noise")
    left, right = (context.solve(witness, REGRESSION.method, problem, learn=fields) for witness in _WITNESSES)
    yield from _unconverged((left, right))
    yield Compared(
        abs((left.log_evidence or np.nan) - (right.log_evidence or np.nan)),
        1e-6,
        "two searches end where the derivative is 1e-5: values agree to its square over the curvature",
        *_WITNESSES,
        "difference of log Z in nats",
    )


# -- dense algebra -------------------------------------------------------------------------------------------------


class Latent(NamedTuple):
    """The FITC prior of one class."""

    K: Array  # (m, m)
    cross: Array  # (n, m) K_XZ
    prior: Array  # (n, n) Q + diag(s)
    cond_var: Array  # (n,) s
    test: Array  # (t, m) K_*Z
    test_var: Array  # (t,) given the inducing values


def _latent(problem: Problem, k: int) -> Latent:
    assert problem.Z is not None
    Z = problem.Z[k]
    K = kernel(problem, k, Z, Z) + problem.jitter[k] * np.eye(len(Z))
    cross = kernel(problem, k, problem.X, Z)
    X_test = problem.X[:0] if problem.X_test is None else problem.X_test
    test, whole = kernel(problem, k, X_test, Z), problem.variance[k] + problem.noise[k]
    Q = cross @ np.linalg.solve(K, cross.T)
    s = whole - np.diag(Q)
    test_var = whole - np.einsum("tm,tm->t", test, np.linalg.solve(K, test.T).T)
    return Latent(K, cross, Q + np.diag(s), s, test, test_var)


def _targets(problem: Problem) -> Array:
    return np.where(problem.y[:, None] == np.arange(problem.n_classes), 1.0, -1.0)


def regression_value(problem: Problem) -> float:
    """Sum over the classes of log N(t_k | 0, Q_k + diag(s_k))."""
    total = 0.0
    for k, t in enumerate(_targets(problem).T):
        Sigma = _latent(problem, k).prior
        log_det = np.linalg.slogdet(2.0 * np.pi * Sigma)[1]
        total -= 0.5 * float(log_det + t @ np.linalg.solve(Sigma, t))
    return total


def regression_fields(problem: Problem) -> dict[str, Array]:
    """Moments given the targets, by conditioning one Gaussian on another, and probabilities of labels."""
    parts: dict[str, list[Array]] = {}
    C = problem.n_classes
    for k, t in enumerate(_targets(problem).T):
        latent = _latent(problem, k)
        mean = latent.cross.T @ np.linalg.solve(latent.prior, t)
        cov = latent.K - latent.cross.T @ np.linalg.solve(latent.prior, latent.cross)
        results = {"inducing_mean": mean, "inducing_cov": cov}
        for name, rows, var in (
            ("latent", latent.cross, latent.cond_var),
            ("test_latent", latent.test, latent.test_var),
        ):
            upsilon = np.linalg.solve(latent.K, rows.T).T
            results[f"{name}_mean"] = upsilon @ mean
            results[f"{name}_cov"] = var + np.einsum("nm,mj,nj->n", upsilon, cov, upsilon)
        for name, value in results.items():
            parts.setdefault(name, []).append(value)
    fields = {name: np.stack(values, axis=0 if "inducing" in name else 1) for name, values in parts.items()}
    means, variances = fields["test_latent_mean"], fields["test_latent_cov"]
    right = [largest(np.full(len(means), k), means, variances) for k in range(C)]
    raw = (1.0 - problem.epsilon) * np.stack(right, axis=1) + problem.epsilon / C
    fields["probability_mass"] = raw.sum(axis=1)
    fields["probabilities"] = raw / raw.sum(axis=1, keepdims=True)
    for name in ("latent_cov", "test_latent_cov"):
        fields[name] = fields[name][:, :, None] * np.eye(C)
    return fields


def conditioning(context: Context, problem: Problem) -> Iterable[Outcome]:
    """label-regression against exact Gaussian conditioning, and its gradient against differences of the evidence."""
    expected = {"log_evidence": regression_value(problem), **regression_fields(problem)}
    derivatives = {name: parameter_differences(regression_value, problem, name, 2e-6) for name in LEARNED}
    for witness in _WITNESSES:
        answer = context.solve(witness, REGRESSION.method, problem)
        yield from apart(
            {name: (getattr(answer, name), value) for name, value in expected.items()},
            1e-10,
            "the same Gaussian without inducing values in between: dense solves of well conditioned matrices lose some "
            "three digits of sixteen",
            witness,
            "conditioning",
        )
        for name, value in derivatives.items():
            reported, floor = (answer.gradients or {}).get(name), 0.01 * abs(answer.log_evidence or 0.0)
            unit = gradient_unit(problem, name)
            yield Compared(
                np.inf if reported is None else relative_difference(reported * unit, value, floor),
                1e-6,
                f"gradient in {name}: the total derivative; differences of 2e-6 units are good to 1e-7",
                witness,
                "differences of the evidence",
                f"relative difference of the gradient in {name}",
            )


def at_mode(context: Context, problem: Problem) -> Iterable[Outcome]:
    """laplace-sparse: zero gradient at the reported mode, where log Z and all covariances are those of dense algebra.

    With f of all classes one after another, W = diag(pi) - Pi Pi': log Z = log p(y|f) - f'K^-1 f/2 - log|I + K W|/2,
    (K^-1 + W)^-1 = (I + K W)^-1 K, and M = W (I + K W)^-1 is what the data take off every other covariance.
    """
    asked = _asked(LAPLACE, problem)
    n, C = asked.n, asked.n_classes
    latents = [_latent(asked, k) for k in range(C)]
    K = block_diag(*[latent.prior for latent in latents])
    to_u = block_diag(*[latent.cross for latent in latents])
    K_ZZ = block_diag(*[latent.K for latent in latents])
    to_test = block_diag(*[latent.test @ np.linalg.solve(latent.K, latent.cross.T) for latent in latents])
    t, m = len(latents[0].test), len(latents[0].K)
    for witness in _WITNESSES:
        answer = context.solve(witness, LAPLACE.method, asked)
        yield from _unconverged((answer,))
        assert answer.latent_mean is not None
        logs = log_softmax(answer.latent_mean, axis=1)
        pi = np.exp(logs)
        derivative = np.eye(C)[asked.y] - pi
        f, a = answer.latent_mean.T.ravel(), derivative.T.ravel()
        W = np.diag(pi.T.ravel())
        for i in range(n):
            W[i::n, i::n] -= np.outer(pi[i], pi[i])
        turned = np.eye(n * C) + K @ W
        M = W @ np.linalg.inv(turned)
        value = float(logs[np.arange(n), asked.y].sum() - 0.5 * (f @ np.linalg.solve(K, f)))
        value -= 0.5 * float(np.linalg.slogdet(turned)[1])
        whole = np.linalg.solve(turned, K).reshape(C, n, C, n)
        inducing = (K_ZZ - to_u.T @ M @ to_u).reshape(C, m, C, m)
        test = (-to_test @ M @ to_test.T).reshape(C, t, C, t)
        expected: dict[str, tuple[Any, Any]] = {
            "the mode, f = K grad": (f, K @ a),
            "log_evidence": (answer.log_evidence, value),
            "latent_cov": (answer.latent_cov, np.einsum("kili->ikl", whole)),
            "inducing_mean": (answer.inducing_mean, (to_u.T @ a).reshape(C, m)),
            "inducing_cov": (answer.inducing_cov, np.einsum("kikj->kij", inducing)),
            "test_latent_mean": (answer.test_latent_mean, (to_test @ a).reshape(C, t).T),
            "test_latent_cov": (
                answer.test_latent_cov,
                np.einsum("kili->ikl", test) + np.diag(asked.variance + asked.noise),
            ),
            "pi": (answer.local.get("pi"), pi),
        }
        message = "a mode known to 1e-10, and dense algebra of some thousand times rounding"
        yield from apart(expected, 1e-9, message, witness, "dense algebra at the mode")


# -- limits --------------------------------------------------------------------------------------------------------


def dense_laplace(context: Context, problem: Problem) -> Iterable[Outcome]:
    """laplace-sparse with inducing points at the data and no jitter against laplace of riihimaki2013.

    Noise is in s either way; without it s is zero, and the inducing values are the latent ones.
    """
    some = min(problem.n, 8)
    for noise in (0.0, problem.noise):
        few = problem.replace(X=problem.X[:some], y=problem.y[:some], noise=noise, jitter=0.0)
        Z = np.tile(few.X, (few.n_classes, 1, 1))
        at_data = few.replace(Z=Z, prior_model="fitc")
        condition = prior_condition(at_data)
        if condition > identity.MAX_CONDITION:
            yield Skipped(f"condition {condition:.1e}: found above {identity.MAX_CONDITION:g}, expected one below")
            continue
        limit, why = identity_limit(at_data)
        for left, right in (("reference", "reference"), ("fast", "fast"), ("fast", "reference")):
            a = context.solve(left, LAPLACE.method, at_data)
            b = context.solve(right, "laplace", few)
            yield from _unconverged((a, b))
            names = ["log_evidence", "latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov",
                     "probabilities", "probability_mass"]  # fmt: skip
            pairs = {name: (getattr(a, name), getattr(b, name)) for name in names}
            if not np.any(few.noise):
                pairs["inducing_mean"] = (a.inducing_mean, None if b.latent_mean is None else b.latent_mean.T)
            told = f"noise {np.max(few.noise):g}, Z = X: the covariance at the data is K itself; {why}"
            yield from apart(pairs, limit, told, a.label, b.label)


# -- invariance ----------------------------------------------------------------------------------------------------


def permuted(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """The same data in another order, and with the classes renamed."""
    problem = _asked(subject, problem)
    order = np.random.default_rng(11).permutation(problem.n)
    names = np.roll(np.arange(problem.n_classes), 1)  # new class k is old class names[k]
    rename = np.argsort(names)
    fields = ("variance", "lengthscales", "noise", "jitter", "Z")
    other = problem.replace(
        X=problem.X[order], y=rename[problem.y[order]], **{name: getattr(problem, name)[names] for name in fields}
    )
    limit, why = identity_limit(problem)
    for witness in _WITNESSES:
        plain, moved = (context.solve(witness, subject.method, asked) for asked in (problem, other))
        yield from _unconverged((plain, moved))
        assert plain.latent_mean is not None
        assert plain.inducing_mean is not None
        assert plain.inducing_cov is not None
        assert plain.test_latent_mean is not None
        assert plain.test_latent_cov is not None
        pairs: dict[str, tuple[Any, Any]] = {
            "log_evidence": (moved.log_evidence, plain.log_evidence),
            "latent_mean": (moved.latent_mean, plain.latent_mean[order][:, names]),
            "inducing_mean": (moved.inducing_mean, plain.inducing_mean[names]),
            "inducing_cov": (moved.inducing_cov, plain.inducing_cov[names]),
            "test_latent_mean": (moved.test_latent_mean, plain.test_latent_mean[:, names]),
            "test_latent_cov": (moved.test_latent_cov, plain.test_latent_cov[:, names][:, :, names]),
        }
        assert plain.probabilities is not None
        assert moved.probabilities is not None
        if subject == REGRESSION:
            pairs["probabilities"] = moved.probabilities, plain.probabilities[:, names]
        else:
            error = rule_error(plain)
            yield Compared(
                float(np.abs(moved.probabilities - plain.probabilities[:, names]).max()),
                2.0 * error,
                f"probabilities: the rule takes differences to the last class and states {error:.2g}, here twice",
                witness,
                "data permuted, classes renamed",
                "largest difference in probability",
            )
        yield from apart(
            pairs, limit, f"data and classes come in no order; {why}", witness, "data permuted, classes renamed"
        )


# -- discrepancy ---------------------------------------------------------------------------------------------------


class Distance(NamedTuple):
    """What was measured against the truth."""

    probabilities: float  # largest |p - truth|
    variance_ratio: float  # mean of var/var_truth at the data
    means: float  # largest |mean - truth| in the truth's standard deviations
    log_evidence: float  # log Z less the truth


RECORDED = Distance(0.02969, 0.9235, 0.2149, -0.1532)


def from_truth(context: Context, problem: Problem) -> Iterable[Outcome]:
    """laplace-sparse against quadrature of the softmax model under the FITC prior."""
    asked = _asked(LAPLACE, problem)
    true = context.solve("quadrature", "exact", asked, digits=3.0)
    for witness in _WITNESSES:
        result = distance(context.solve(witness, LAPLACE.method, asked), true)
        for name, unit in zip(
            Distance._fields,
            ("largest difference in probability", "mean variance ratio", "standard deviations", "nat"),
            strict=True,
        ):
            recorded = getattr(RECORDED, name)
            yield Compared(
                abs(getattr(result, name) - recorded),
                0.01 * abs(recorded),
                f"{name}: {getattr(result, name):.4g} from the truth, recorded {recorded:.4g}: the method's own error, "
                "held to a hundredth of it; this quadrature leaves a thousandth open",
                witness,
                true.label,
                f"difference from the recorded, {unit}",
            )


def distance(answer: Solution, true: Solution) -> Distance:
    """How far an answer is from the truth."""
    assert answer.probabilities is not None
    assert answer.latent_mean is not None
    assert answer.latent_cov is not None
    assert answer.log_evidence is not None
    assert true.probabilities is not None
    assert true.latent_mean is not None
    assert true.latent_cov is not None
    assert true.log_evidence is not None
    var, exact = (np.einsum("nkk->nk", cov) for cov in (answer.latent_cov, true.latent_cov))
    return Distance(
        float(np.abs(answer.probabilities - true.probabilities).max()),
        float((var / exact).mean()),
        float((np.abs(answer.latent_mean - true.latent_mean) / np.sqrt(exact)).max()),
        answer.log_evidence - true.log_evidence,
    )


# -- registration --------------------------------------------------------------------------------------------------


_add = partial(add, __name__)


def _field(name: str) -> Asked:
    return lambda context, subject, problem: compared(context, subject, problem, identity.field(name))


def _derivative_in(name: str) -> Asked:
    return lambda context, _, problem: gradient(context, problem, name)


def _alone(function: Callable[[Context, Problem], Iterable[Outcome]]) -> Asked:
    return lambda context, _, problem: function(context, problem)


_TINY, _TOY, _STEEP = "two-points-3-sparse-errors", "toy-3-sparse-threshold", "toy-4-sparse-steep-errors"
# data and priors of problems with the threshold are put to the softmax where the problem has none of its own
_FEW, _SOFT, _STEEP_SOFT = "two-points-3-sparse-threshold", "toy-3-sparse-softmax", "toy-4-sparse-steep-threshold"
for _subject, _problems, _full in (
    (REGRESSION, (_TINY, _TOY, _STEEP), ("toy-2-sparse-threshold",)),
    (LAPLACE, (_FEW, _SOFT), (_STEEP_SOFT, "toy-2-sparse-threshold")),
):
    for _name, _question in identity.FIELDS.items():
        _add("identity", _subject, _name, _question, _field(_name), _problems, _full)
    _add(
        "identity",
        _subject,
        "local",
        ("Both witnesses keep the same sites of each datum."),
        local,
        _problems,
        _full,
    )
    _add("invariance", _subject, "permutations", (
        "The answer does not depend on the order of the data or of the classes."
    ), permuted,
         _problems[:2], _full)  # fmt: skip

for _name, _question in identity.GRADIENTS.items():
    _add("identity", REGRESSION, f"gradient_{_name}", _question, _derivative_in(_name), (_TINY, _TOY, _STEEP))
_add(
    "identity", REGRESSION, "learned", "Searches for the prior end at the same evidence.", _alone(learned), (), (_TOY,)
)
_add("limit", REGRESSION, "conditioning", (
    "The answer is exact Gaussian conditioning, with the derivatives of its evidence."
),
     _alone(conditioning), (_TINY, _TOY), (_STEEP,))  # fmt: skip
_add("limit", LAPLACE, "definition", "The mode, log Z and covariances are those of dense algebra.", _alone(at_mode),
     (_FEW, _SOFT), (_STEEP_SOFT,))  # fmt: skip
_add("limit", LAPLACE, "laplace", "With inducing points at the data, this is Laplace's method of the full model.",
     _alone(dense_laplace), ("two-points-3-softmax", "toy-3-softmax"), ("toy-4-steep-softmax",))  # fmt: skip
_add("limit", LAPLACE, "own_integral", "Class probabilities are those of the method's own predictive Gaussian.",
     lambda context, subject, problem: own_integral(context, subject, _asked(subject, problem)), (_FEW, _SOFT),
     (_STEEP_SOFT,))  # fmt: skip
_add("discrepancy", LAPLACE, "quadrature", "The method is as near to the exact posterior as recorded.",
     _alone(from_truth), (_FEW,))  # fmt: skip
