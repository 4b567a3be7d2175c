"""Exactness: a chain against a truth known another way, by z statistics that Holm's procedure judges together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy.special import gamma, kv
from scipy.stats import norm

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Skipped, Tested, check
from validation.checks.subjects import (
    CERTIFICATES,
    DRAWN,
    EVIDENCES,
    FEW,
    LARGER,
    PLAIN,
    REAL,
    SEED,
    SUBJECTS,
    THIRD,
    Evidence,
    Subject,
    certificates,
    certified,
    chain,
    exact,
)
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.door.statistics import z_statistics

_MOMENTS = {
    "latent_mean": "The chain has the exact posterior means.",
    "latent_cov": "The chain has the exact posterior variances.",
    "test_latent_mean": "The chain has the exact predictive means.",
    "test_latent_cov": "The chain has the exact predictive variances.",
    "probabilities": "The chain has the exact class probabilities.",
}


def tested(chains: Solution, truth: Solution, quantity: str) -> Outcome:
    """The z statistics of one quantity, with what they can see."""
    result = z_statistics(chains, truth, quantity)
    if result is None:
        return Skipped(f"{quantity}: found no standard errors, expected a sampled side", chains.label, truth.label)
    z, se = result
    if quantity == "probabilities":
        # the two columns are one number: p and 1 - p
        z, se = z[:, 1:], se[:, 1:]
    # eight times the error would be seen with near certainty at the level of a whole run (|z| about 5)
    scale = float(np.abs(np.asarray(getattr(truth, quantity))).max())
    observed = 8.0 * float(np.median(se)) / scale if scale > 0.0 else np.nan
    return Tested(
        z,
        why=f"two-sided z on {z.size} statistics, Holm over the run at 1e-4: one true agreement in 10 000 runs fails",
        left=chains.label,
        right=truth.label,
        power=f"a difference of {observed:.2%} of the largest entry would show",
    )


def _register(subject: Subject) -> None:
    @check(
        f"exactness/{subject.sampler}/log_evidence",
        paper=subject.paper,
        question="Both routes to log Z agree with quadrature.",
        problems=FEW,
        full=THIRD,
    )
    def log_evidence(context: Context, problem: Problem) -> Iterable[Outcome]:
        truth = exact(context, problem)
        chains = chain(context, subject.sampler, problem)
        assert truth.log_evidence is not None
        for route, value, error in routes(chains):
            yield _evidence_test(value, error, truth.log_evidence, 0.0, f"gibbs {route}", truth.label)

    @check(
        f"exactness/{subject.sampler}/log_evidence_routes",
        paper=subject.paper,
        question="Two routes to log Z without shared code agree.",
        problems=DRAWN + REAL,
        full=LARGER,
    )
    def log_evidence_routes(context: Context, problem: Problem) -> Iterable[Outcome]:
        result = list(routes(chain(context, subject.sampler, problem)))
        first = result[0]
        for route, value, error in result[1:]:
            yield _evidence_test(value, error, first[1], first[2], f"gibbs {route}", f"gibbs {first[0]}")

    @check(
        f"exactness/{subject.sampler}/gate",
        paper=subject.paper,
        question="The chains are long enough to serve as truth.",
        problems=DRAWN[1:] + REAL,  # toy-steep is harder than toy
        full=(DRAWN[0], *LARGER),
    )
    def gate(context: Context, problem: Problem) -> Iterable[Outcome]:
        chains = chain(context, subject.sampler, problem)
        assert chains.ess is not None and chains.r_hat is not None and chains.latent_mean_se is not None  # noqa: PT018
        if chains.settings["gate"]:
            why = (
                "on latents, their squares and the log joint; with at least 100 autocorrelation times a chain, "
                "the errors that the chains report can be trusted"
            )
            yield Compared(chains.r_hat - 1.0, 0.005, f"rank R-hat {why}", chains.label, "itself", "R-hat minus 1")
            shortfall = 1e4 / chains.ess
            yield Compared(shortfall, 1.0, f"10 000 effective draws, {why}", chains.label, "itself", "10 000 over ESS")
        else:
            worst = float(chains.latent_mean_se.max())
            yield Skipped(
                f"gate not met: smallest ESS {chains.ess:.0f} (expected 10 000), largest R-hat {chains.r_hat:.4f} "
                f"(expected 1.005); latent means carry errors up to {worst:.2g}, which every comparison takes along",
                chains.label,
                "itself",
            )

    @check(
        f"exactness/{subject.sampler}/ensemble",
        paper=subject.paper,
        question="An ensemble sampler without Pólya-Gamma variables finds the same posterior.",
        problems=("three-points",),
    )
    def exactness_ensemble(context: Context, problem: Problem) -> Iterable[Outcome]:
        chains = chain(context, subject.sampler, problem)
        ensemble = context.solve("gibbs", "ensemble-logit", problem, seed=SEED, n_draws=2500)
        for quantity in ("latent_mean", "latent_cov"):
            yield tested(ensemble, chains, quantity)


def _register_moment(subject: Subject, quantity: str, question: str) -> None:
    @check(f"exactness/{subject.sampler}/{quantity}", paper=subject.paper, question=question, problems=FEW, full=THIRD)
    def ask_exactness(context: Context, problem: Problem) -> Iterable[Outcome]:
        yield tested(chain(context, subject.sampler, problem), exact(context, problem), quantity)


def routes(chains: Solution) -> Iterable[tuple[str, float, float]]:
    """(name, log Z, standard error) of each route that the sampler took."""
    for key in sorted(chains.local):
        if key.startswith("log_evidence_"):
            value, error = chains.local[key]
            yield key.removeprefix("log_evidence_"), float(value), float(error)


def _evidence_test(value: float, error: float, other: float, other_error: float, left: str, right: str) -> Outcome:
    combined = float(np.hypot(error, other_error))
    if not max(error, other_error) <= 0.05:
        worst = max(error, other_error)
        return Skipped(f"log Z: found a standard error of {worst:.3g} nat, expected at most 0.05", left, right)
    z = np.array([(value - other) / combined if combined > 0.0 else 0.0 if abs(value - other) < 1e-8 else np.inf])
    return Tested(
        z,
        why="two-sided z, Holm over the run at 1e-4; both standard errors are at most 0.05 nat",
        left=left,
        right=right,
        power=f"a difference of {(norm.isf(5e-7) + 2.0) * combined:.2g} nat would show",
    )


# -- samplers of the probit family and with several latents ------------------------------------------------------


def _register_certificate(sampler: str, quantity: str, question: str) -> None:
    result = certificates(sampler)
    of_problem = {name: entry for entry in result for name in (*entry.problems, *entry.full)}

    @check(
        f"exactness/{sampler}/{quantity}",
        paper=result[0].paper,
        question=question,
        problems=tuple(name for entry in result for name in entry.problems),
        full=tuple(name for entry in result for name in entry.full),
    )
    def exactness_ask_exactness(context: Context, problem: Problem) -> Iterable[Outcome]:
        left, right = certified(context, of_problem[problem.name], problem)
        yield tested(left, right, quantity)


@check(
    "exactness/exact-probit/log_evidence",
    paper=certificates("exact-probit")[0].paper,
    question="Minimax tilting has the exact log Z.",
    problems=certificates("exact-probit")[0].problems,
    full=certificates("exact-probit")[0].full,
)
def exact_probit_log_evidence(context: Context, problem: Problem) -> Iterable[Outcome]:
    draws, truth = certified(context, certificates("exact-probit")[0], problem)
    assert truth.log_evidence is not None
    assert draws.log_evidence is not None
    assert draws.log_evidence_se is not None
    yield _evidence_test(draws.log_evidence, draws.log_evidence_se, truth.log_evidence, 0.0, draws.label, truth.label)


def _evidences(context: Context, entry: Evidence, problem: Problem) -> Iterable[Outcome]:
    solution = context.solve("gibbs", entry.sampler, problem, seed=SEED, **entry.options)
    if entry.truth == "quadrature":
        truth: Solution | None = exact(context, problem, entry.digits)
    else:
        truth = context.stored(problem)
    if truth is None or truth.log_evidence is None:
        yield Skipped(f"{problem.name}: found no stored log Z; `make truths NAME={problem.name}` makes it")
        return
    label = truth.label if entry.truth == "quadrature" else f"stored {truth.label}"
    for route, value, error in routes(solution):
        yield _evidence_test(
            value, error, truth.log_evidence, truth.log_evidence_se or 0.0, f"gibbs {entry.sampler} {route}", label
        )


def _register_evidences(sampler: str) -> None:
    of_problem = {entry.problem: entry for entry in EVIDENCES if entry.sampler == sampler}

    @check(
        f"exactness/{sampler}/log_evidence_routes",
        paper=certificates(sampler)[0].paper,
        question="Both routes to log Z agree with quadrature, exact draws or the stored chains.",
        problems=tuple(name for name, entry in of_problem.items() if not entry.slow),
        full=tuple(name for name, entry in of_problem.items() if entry.slow),
    )
    def exactness_log_evidence_routes(context: Context, problem: Problem) -> Iterable[Outcome]:
        return _evidences(context, of_problem[problem.name], problem)


@check(
    "exactness/exact-probit/matern",
    paper="riihimaki2013",
    question="Log Z of two data under Matérn kernels, one order a class, is the angle of a quadrant.",
    problems=(NO_PROBLEM,),
)
def quadrants(context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    """Sheppard's formula for the correlation of both margins; each class has variance, lengthscales, noise, order."""

    def correlation(r: float, order: float) -> float:
        s = np.sqrt(2.0 * order) * r
        return float(2.0 ** (1.0 - order) / gamma(order) * s**order * kv(order, s))

    z: list[float] = []
    errors: list[float] = []
    X = np.array([[0.1, -0.4], [0.7, 0.5]])
    for likelihood, y, width in (("probit", [0, 1], 1.0), ("probit", [1, 0], 1.0), ("multinomial-probit", [1, 0], 2.0),
                                 ("multinomial-probit", [0, 1], 2.0)):  # fmt: skip
        L = 1 if likelihood == "probit" else 2
        order, variance = np.array([0.8, 2.3])[:L], np.array([1.7, 0.6])[:L]
        lengthscales, noise = np.array([[0.9, 1.4], [1.2, 0.5]])[:L], np.array([0.2, 0.1])[:L]
        asked = Problem(
            name=f"quadrant {likelihood} {y}", X=X, y=np.array(y), n_classes=2, likelihood=likelihood,
            variance=variance, lengthscales=lengthscales, noise=noise, jitter=1e-3 * np.ones(L), kernel="matern",
            smoothness=order, prior_model="full",
        )  # fmt: skip
        distance = np.sqrt(np.square((X[0] - X[1]) / lengthscales).sum(axis=1))
        joint = sum(v * correlation(r, o) for v, r, o in zip(variance, distance, order, strict=True))
        alone = float((variance + noise + 1e-3).sum()) + width
        # labels differ: margins of one sign have covariance -joint
        truth = np.log(0.25 + np.arcsin(-joint / alone) / (2.0 * np.pi))
        answer = context.solve("gibbs", "exact-probit", asked)
        error = answer.log_evidence_se or 0.0
        errors.append(error)
        z.append(np.nan if answer.log_evidence is None else (answer.log_evidence - truth) / max(error, 1e-12))
    yield Tested(np.array(z), "minimax tilting states its error", "gibbs", "Sheppard's formula",
                 f"standard errors of at most {max(errors):.1g} nat")  # fmt: skip


def _register_plain(sampler: str, name: str, options: Mapping[str, Any]) -> None:
    @check(
        f"exactness/{sampler}/plain_sweeps",
        paper=certificates(sampler)[0].paper,
        question="The sampler without its long moves has the exact posterior too.",
        problems=(name,),
    )
    def plain_sweeps(context: Context, problem: Problem) -> Iterable[Outcome]:
        solution = context.solve("gibbs", sampler, problem, seed=SEED, **options)
        truth = exact(context, problem, certificates(sampler)[0].digits)
        for quantity in ("latent_mean", "latent_cov", "probabilities"):
            yield tested(solution, truth, quantity)


for _plain in PLAIN:
    _register_plain(*_plain)
for _name in dict.fromkeys(entry.sampler for entry in EVIDENCES):
    _register_evidences(_name)
for _subject in SUBJECTS:
    _register(_subject)
    for _quantity, _question in _MOMENTS.items():
        _register_moment(_subject, _quantity, _question)
for _sampler in dict.fromkeys(entry.sampler for entry in CERTIFICATES):
    for _quantity, _question in _MOMENTS.items():
        _register_certificate(_sampler, _quantity, _question)
