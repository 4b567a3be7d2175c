"""Bridges: models that are one model in other words, asked of exact draws and of chains.

two classes    y = argmax(f_0 + e_0, f_1 + e_1) with unit noise e says that h = (f_1 - f_0)/√2 plus unit noise is
               positive: a binary probit. Cov(h) = (K_0 + K_1)/2, so with equal lengthscales variance, noise and jitter
               are the averages of those of the classes.
noise          the unit noise of the multinomial probit is noise of the threshold rule: noise + 1. At the data f of
               the threshold rule is f + e of the probit; at test points it has the same mean and one more unit of
               variance, and log Z and class probabilities are the same.
inducing       FITC with Z = X and no jitter is the full GP, noise and all.

Exact draws see only the Gaussian vector that is truncated. Both forms give it the same covariance, up to a scale, so
that equal seeds give equal draws and the two answers agree to rounding: the algebra around the draws is what is
compared. Chains of the two forms are different chains, and z statistics compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from validation.checks.against_truth.exactness import tested
from validation.checks.core import Compared, Context, Outcome, Tested, check
from validation.checks.subjects import SEED, as_probit
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.judge.compare import identity_limit, relative_difference

_PAPER = "riihimaki2013"
_CHAINS = {"n_chains": 32, "n_draws": 100, "n_warmup": 20}
_OTHER_SEED = 20190128  # chains of two forms must not share their randomness
LATENTS = ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov")


class Bridge(NamedTuple):
    """Two forms of one model: the second problem, and what the first one's answer is in the second one's words."""

    left: Problem
    right: Problem
    translate: Callable[[Solution], Solution]


def two_classes(problem: Problem) -> Bridge:
    """The multinomial probit of the two classes' data, variances unequal, and the binary probit of h."""
    shares = np.array([0.5, 1.5])  # of the variance: unequal, so that an average is told from either
    classes = problem.replace(
        name=f"{problem.name}-two-classes",
        likelihood="multinomial-probit",
        variance=problem.variance[0] * shares,
        noise=problem.noise[0] * shares[::-1],
        jitter=problem.jitter[0] * shares,
        lengthscales=problem.lengthscales[0],
        Z=None if problem.Z is None else problem.Z[0],
    )
    return Bridge(classes, problem.replace(name=f"{problem.name}-probit", likelihood="probit"), _scaled_difference)


def _scaled_difference(classes: Solution) -> Solution:
    """h = (f_1 - f_0)/√2 from two latents; its errors would need those between the latents, so it has none."""
    contrast = np.array([-1.0, 1.0]) / np.sqrt(2.0)
    binary = classes.problem.replace(
        likelihood="probit",
        variance=classes.problem.variance.mean(),
        noise=classes.problem.noise.mean(),
        jitter=classes.problem.jitter.mean(),
        lengthscales=classes.problem.lengthscales[0],
        Z=None if classes.problem.Z is None else classes.problem.Z[0],
    )
    fields: dict[str, Any] = {}
    for name in ("latent", "test_latent"):
        mean, cov = getattr(classes, f"{name}_mean"), getattr(classes, f"{name}_cov")
        fields[f"{name}_mean"] = (mean @ contrast)[:, None]
        fields[f"{name}_cov"] = np.einsum("l,nlp,p->n", contrast, cov, contrast)[:, None, None]
    return _restated(classes, binary, fields)


def unit_noise(problem: Problem) -> Bridge:
    """The multinomial probit, and the threshold rule with one more unit of noise."""
    probit = problem.replace(likelihood="multinomial-probit", epsilon=0.0)
    threshold = probit.replace(name=f"{problem.name}-noise-1", likelihood="threshold", noise=problem.noise + 1.0)
    return Bridge(probit, threshold, lambda solution: _with_unit_noise(solution, threshold))


def _with_unit_noise(probit: Solution, threshold: Problem) -> Solution:
    assert probit.test_latent_cov is not None
    fields = {
        "test_latent_mean": probit.test_latent_mean,
        "test_latent_mean_se": probit.test_latent_mean_se,
        "test_latent_cov": probit.test_latent_cov + np.eye(threshold.n_classes),
        "test_latent_cov_se": probit.test_latent_cov_se,
    }
    return _restated(probit, threshold, fields)


def inducing_at_data(problem: Problem) -> Bridge:
    """FITC with the data for inducing points, and the full GP; no jitter on either side."""
    bare = as_probit(problem).replace(jitter=0.0)
    Z = np.repeat(problem.X[None], problem.n_latents, axis=0)
    sparse = bare.replace(name=f"{problem.name}-inducing-at-data", Z=Z, prior_model="fitc")
    return Bridge(sparse, bare.replace(Z=None, prior_model="full"), lambda solution: solution)


def _restated(solution: Solution, problem: Problem, fields: dict[str, Any]) -> Solution:
    """The answer with other latents, and what no latents are needed for."""
    return Solution(
        problem=problem,
        implementation=solution.implementation,
        method=solution.method,
        log_evidence=solution.log_evidence,
        log_evidence_se=solution.log_evidence_se,
        log_evidence_kind=solution.log_evidence_kind,
        probabilities=solution.probabilities,
        probabilities_se=solution.probabilities_se,
        **fields,
    )


def identities(context: Context, bridge: Bridge) -> Iterable[Outcome]:
    """Exact draws of both forms with one seed: equal to rounding."""
    left = bridge.translate(context.solve("gibbs", "exact-probit", bridge.left, seed=SEED, n_draws=400))
    right = context.solve("gibbs", "exact-probit", bridge.right, seed=SEED, n_draws=400)
    limit, why = identity_limit(bridge.right)
    for quantity in ("log_evidence", "probabilities", *LATENTS):
        a, b = getattr(left, quantity), getattr(right, quantity)
        if a is None:
            continue
        if quantity == "probabilities" and bridge.right.n_classes > 2:
            # beyond two classes they average random directions, whose signs and order rounding may choose
            yield tested(left, right, quantity)
            continue
        yield Compared(
            observed=relative_difference(a, b, floor=1.0 if quantity == "log_evidence" else 0.0),
            limit=limit,
            why=f"{quantity}: one truncated Gaussian, one seed, so the same draws; {why}",
            left=f"{left.label}, {bridge.left.name}",
            right=f"{right.label}, {bridge.right.name}",
            unit=f"relative difference of {quantity}",
        )


def agreements(context: Context, bridge: Bridge, left: str, right: str) -> Iterable[Outcome]:
    """Chains of both forms, by z on whatever both have with standard errors."""
    a = bridge.translate(context.solve("gibbs", left, bridge.left, seed=SEED, **_CHAINS))
    b = context.solve("gibbs", right, bridge.right, seed=_OTHER_SEED, **_CHAINS)
    for quantity in ("probabilities", *LATENTS):
        if getattr(a, f"{quantity}_se") is not None:
            outcome = tested(a, b, quantity)
            assert isinstance(outcome, Tested)  # both sides have errors
            yield outcome._replace(left=f"{a.label}, {bridge.left.name}", right=f"{b.label}, {bridge.right.name}")


def _register(
    name: str,
    question: str,
    make: Callable[[Problem], Bridge],
    problems: tuple[str, ...],
    chains: tuple[str, str],
    chain_problems: tuple[str, ...],
) -> None:
    @check(f"limit/exact-probit/{name}", paper=_PAPER, question=question, problems=problems)
    def ask_limit(context: Context, problem: Problem) -> Iterable[Outcome]:
        return identities(context, make(problem))

    @check(
        f"limit/{chains[0]}/{name}",
        paper=_PAPER,
        question=f"{question[:-1]}, for chains as well.",
        problems=chain_problems,
    )
    def limit_ask_limit(context: Context, problem: Problem) -> Iterable[Outcome]:
        return agreements(context, make(problem), *chains)


_register(
    "two_classes",
    "The multinomial probit of two classes is the binary probit of their scaled difference.",
    two_classes,
    ("two-points", "three-points-fitc", "toy-spread"),
    ("gibbs-probit", "gibbs-probit"),
    ("three-points-fitc", "toy-spread"),
)
_register(
    "unit_noise",
    "The multinomial probit is the threshold rule with one more unit of noise.",
    unit_noise,
    ("two-points-3", "toy-3-sparse", "toy-4-steep"),
    ("gibbs-probit", "gibbs-threshold"),
    ("two-points-3", "two-points-3-steep"),
)
_register(
    "inducing_at_data",
    "FITC with the data as inducing points is the full GP.",
    inducing_at_data,
    ("two-points-3", "two-points-3-steep-threshold", "toy-spread"),
    ("gibbs-probit", "gibbs-probit"),
    ("two-points-3", "toy-spread"),
)
