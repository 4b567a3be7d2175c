"""wenzel2019 beyond coordinate ascent: stochastic steps on explicit batches, svgpc and epgpc, and learning.

A list of batches makes a stochastic run a deterministic computation that both witnesses must repeat step by step.
Problems are asked with the probit link where the method has it (`validation.checks.witnesses.baselines`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.checks.against_truth import discrepancy
from validation.checks.apart import apart, fields
from validation.checks.core import Compared, Context, Outcome, check
from validation.checks.subjects import SUBJECTS, Subject, as_probit
from validation.checks.witnesses import baselines, bound, identity, invariance
from validation.checks.witnesses.baselines import BASELINES, EPGPC, SVGPC
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.judge.compare import identity_limit, relative_difference

SVI = Subject("x-gpc-svi", "wenzel2019", "gibbs-logit")
X_GPC = SUBJECTS[0]
STEPS = 50
_BATCHED = ("three-points-fitc", "toy-sparse")
_BATCHED_FULL = ("wine", "digits")
_WITNESSES = ("reference", "fast")
_STATE = ("log_evidence", "inducing_mean", "inducing_cov", "test_latent_mean", "test_latent_cov", "probabilities")
_HYPER = ("variance", "lengthscales", "noise", "Z")
_LEARN = MappingProxyType({"learn": _HYPER})
_RUNS: Mapping[str, Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "x-gpc-svi": {
            "steps_adaptive": {"rate": "adaptive"},
            "steps_fixed": {"rate": 0.3},
            "steps_decay": {"rate": ("decay", 1.0, 2.0, 0.7)},
            "steps_learning": {"rate": "adaptive"} | _LEARN,
        },
        "svgpc": {
            "steps_adaptive": {"rate": "adaptive"},
            "steps_fixed": {"rate": 0.3},
            "steps_learning": {"rate": ("decay", 1.0, 2.0, 0.7)} | _LEARN,
        },
        "epgpc": {
            "steps_side_by_side": {"damping": 0.8},
            "steps_in_order": {"parallel": False},
            "steps_learning": dict(_LEARN),
        },
    }
)


def question(subject: Subject, problem: Problem) -> Problem:
    """The problem with the link that the method has."""
    return problem if subject.method.startswith("x-gpc") else as_probit(problem)


def batches(problem: Problem) -> list[NDArray[np.int64]]:
    """Fifty batches of two data or more, never all of them.

    The evidence of one datum is 1/2 whatever the prior: its gradient is zero, and Adam would turn rounding into steps.
    """
    rng = np.random.default_rng(20190127)
    largest = max(3, min(problem.n, 20))
    return [rng.choice(problem.n, int(rng.integers(2, largest)), replace=False) for _ in range(STEPS)]


# -- identity ----------------------------------------------------------------------------------------------------


def steps(context: Context, subject: Subject, problem: Problem, options: Mapping[str, Any]) -> Iterable[Outcome]:
    """Both witnesses after fifty steps on the same batches, and every step's rate and estimate on the way."""
    asked = question(subject, problem)
    left, right = (
        context.solve(witness, subject.method, asked, batches=batches(problem), trace=True, **options)
        for witness in _WITNESSES
    )
    limit, why = identity_limit(asked)
    learn = options.get("learn", ())
    pairs = fields(left, right, _STATE)
    pairs["estimates"] = (left.trace, right.trace)
    pairs |= {f"learned {name}": pair for name, pair in fields(left.problem, right.problem, learn).items()}
    pairs |= {name: (left.local[name], right.local[name]) for name in left.local if name in right.local}
    told = f"after {STEPS} steps on the same batches: no chance is left; {why}"
    yield from apart(pairs, limit, told, *_WITNESSES)


def learned(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """Where both searches by L-BFGS-B end."""
    asked, learn = question(subject, problem), ("variance", "lengthscales")
    left, right = (context.solve(witness, subject.method, asked, learn=learn) for witness in _WITNESSES)
    for solution in (left, right):
        if not solution.converged:
            yield Compared(np.inf, 0.0, "a search that did not converge has no optimum", solution.label, "-")
            return
    yield from apart(
        fields(left.problem, right.problem, learn),
        1e-4,
        "searches stop at derivatives of 1e-5 or below; over curvatures of a tenth that leaves 1e-4",
        *_WITNESSES,
    )
    yield Compared(
        relative_difference(left.log_evidence, right.log_evidence),
        1e-8,
        "log_evidence: at a maximum an error of 1e-4 in the parameters leaves its square",
        *_WITNESSES,
        "relative difference of log_evidence",
    )


# -- bound -------------------------------------------------------------------------------------------------------


def below_optimum(context: Context, problem: Problem) -> Iterable[Outcome]:
    """The bound at the end of a stochastic run, against the optimum of coordinate ascent."""
    best = context.solve("reference", X_GPC.method, problem)
    assert best.log_evidence is not None
    options = _RUNS["x-gpc-svi"]["steps_adaptive"]
    for witness in _WITNESSES:
        solution = context.solve(witness, SVI.method, problem, batches=batches(problem), trace=True, **options)
        assert solution.log_evidence is not None
        yield Compared(
            solution.log_evidence - best.log_evidence,
            1e-9 * abs(best.log_evidence),
            "the bound of all data at any q(u) is at most that at the best one, up to rounding; that one lies below "
            "log Z (bound/x-gpc/log_evidence)",
            f"{witness} x-gpc-svi",
            best.label,
            "bound minus optimum, nat",
        )


# -- limit -------------------------------------------------------------------------------------------------------


def all_data_at_rate_one(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Stochastic steps of rate one on all data, as many as coordinate ascent took."""
    ascent = context.solve("reference", X_GPC.method, problem)
    limit, why = identity_limit(problem)
    everything = [np.arange(problem.n)] * ascent.iterations
    for witness in _WITNESSES:
        solution = context.solve(witness, SVI.method, problem, batches=everything, rate=1.0)
        yield from apart(
            fields(solution, ascent, ("log_evidence", "inducing_mean", "inducing_cov", "latent_cov", "probabilities")),
            limit,
            f"with all data and rate 1 a step is a sweep of coordinate ascent; {why}",
            f"{witness} x-gpc-svi",
            ascent.label,
        )


def inducing_at_data(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """Z = X against no Z. svgpc: without noise; epgpc with noise as well, for FITC's is the full model's."""
    noise = 0.0 if subject.method == "svgpc" else 0.2
    full = question(subject, problem).replace(Z=None, prior_model="full", noise=noise, jitter=0.0)
    sparse = full.replace(Z=problem.X)
    limit, why = identity_limit(sparse)
    for left, right in (("reference", "reference"), ("fast", "fast"), ("fast", "reference")):
        a, b = context.solve(left, subject.method, sparse), context.solve(right, subject.method, full)
        yield from apart(
            fields(a, b, ("log_evidence", "latent_mean", "latent_cov", "test_latent_cov", "probabilities")),
            limit,
            f"with Z = X and no jitter the sparse model is the full one; {why}",
            f"{left}, Z = X",
            f"{right}, full",
        )


# -- invariance --------------------------------------------------------------------------------------------------


def _natural(solution: Solution) -> NDArray[np.float64]:
    """(η₁, η₂) of q(u), one vector."""
    assert solution.inducing_mean is not None
    assert solution.inducing_cov is not None
    precision = np.linalg.inv(solution.inducing_cov[0])
    return np.concatenate([precision @ solution.inducing_mean[0], -0.5 * precision.ravel()])


def batch_sums(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """One step of rate ½ from the prior on each part of the data, averaged with the parts' shares, and on all."""
    asked = question(subject, problem)
    parts = np.array_split(np.random.default_rng(3).permutation(problem.n), 4 if problem.n > 4 else 2)
    shares = [part.size / problem.n for part in parts]
    limit, why = identity_limit(asked)
    for witness in _WITNESSES:

        def after(batch: Any, witness: str = witness) -> Solution:
            return context.solve(witness, subject.method, asked, batches=[batch], rate=0.5)

        mean = sum(share * _natural(after(part)) for part, share in zip(parts, shares, strict=True))
        yield Compared(
            relative_difference(mean, _natural(after(np.arange(problem.n)))),
            limit,
            f"batch gradients weighted with |S|/n average to the full gradient, and a step is linear in it; {why}",
            f"{witness}, {len(parts)} batches averaged",
            f"{witness}, all data",
            "relative difference of natural parameters",
        )


def batch_sites(context: Context, problem: Problem) -> Iterable[Outcome]:
    """The first refresh of epgpc's sites, batch by batch from the prior and all at once."""
    asked = question(EPGPC, problem)
    parts = np.array_split(np.random.default_rng(3).permutation(problem.n), 4 if problem.n > 4 else 2)
    limit, why = identity_limit(asked)
    for witness in _WITNESSES:
        whole = context.solve(witness, EPGPC.method, asked, batches=[np.arange(problem.n)]).local
        for name in ("site_precision", "site_shift"):
            joined = np.zeros(problem.n)
            for part in parts:
                joined[part] = context.solve(witness, EPGPC.method, asked, batches=[part]).local[name][part]
            yield Compared(
                relative_difference(joined, whole[name]),
                limit,
                f"{name}: sites refreshed side by side do not see each other; {why}",
                f"{witness}, {len(parts)} batches",
                f"{witness}, all data",
                f"relative difference of {name}",
            )


# -- registration ------------------------------------------------------------------------------------------------


def _fixed_point(subject: Subject) -> None:
    quick = (*baselines.QUICK, "wine") if subject is SVGPC else (*baselines.QUICK, *baselines.FULL, "wine", "digits")
    full = tuple(name for name in (*baselines.FULL, *baselines.LARGE) if name not in quick)

    def register(quantity: str, sentence: str, extract: Any, problems: tuple[str, ...], more: tuple[str, ...]) -> None:
        @check(
            f"identity/{subject.method}/{quantity}",
            paper=subject.paper,
            question=sentence,
            problems=problems,
            full=more,
        )
        def identity_ask_identity(context: Context, problem: Problem) -> Iterable[Outcome]:
            return identity.compared(context, subject, question(subject, problem), extract)

    for name, sentence in identity.FIELDS.items():
        register(name, sentence, identity.field(name), quick, full)
    for name, sentence in identity.GRADIENTS.items():
        # a full GP has no inducing inputs to differentiate by
        groups = (quick[:-1], (*full, "wine")) if name == "Z" and subject is SVGPC else (quick, full)
        sparse = [tuple(entry for entry in group if name != "Z" or entry in identity.SPARSE) for group in groups]
        register(f"gradient_{name}", sentence, identity.gradient(name), *sparse)


def _steps(subject: Subject, quantity: str, options: Mapping[str, Any]) -> None:
    @check(
        f"identity/{subject.method}/{quantity}",
        paper=subject.paper,
        question=f"Both witnesses make the same {STEPS} steps on the same batches.",
        problems=_BATCHED,
        full=_BATCHED_FULL,
    )
    def ask_identity(context: Context, problem: Problem) -> Iterable[Outcome]:
        return steps(context, subject, problem, options)


def _learned(subject: Subject) -> None:
    @check(
        f"identity/{subject.method}/learned",
        paper=subject.paper,
        question="Both searches end at the same hyper-parameters.",
        problems=("toy",),
    )
    def identity_learned(context: Context, problem: Problem) -> Iterable[Outcome]:
        return learned(context, subject, problem)


def _baseline(subject: Subject) -> None:
    method, paper = subject.method, subject.paper

    @check(
        f"limit/{method}/inducing_at_data",
        paper=paper,
        question="The sparse form with Z = X is the full one.",
        problems=("two-points", "toy-spread"),
    )
    def limit_inducing_at_data(context: Context, problem: Problem) -> Iterable[Outcome]:
        return inducing_at_data(context, subject, problem)

    for quantity, sentence, function in (
        ("data_order", "The answer does not depend on the order of the data.", invariance.permuted_data),
        ("classes", "Swapping the classes mirrors the answer.", invariance.flipped_classes),
    ):

        @check(
            f"invariance/{method}/{quantity}",
            paper=paper,
            question=sentence,
            problems=("toy",) if subject is SVGPC else ("toy", "wine"),
            full=("toy-steep", "toy-sparse", *(("wine",) if subject is SVGPC else ())),
        )
        def ask_invariance(context: Context, problem: Problem, function: Any = function) -> Iterable[Outcome]:
            outcomes: Iterable[Outcome] = function(context, subject, question(subject, problem))
            return outcomes

    for quantity, (sentence, _unit) in discrepancy.QUANTITIES.items():

        @check(
            f"discrepancy/{method}/{quantity}",
            paper=paper,
            question=sentence,
            problems=baselines.JUDGED,
            full=baselines.JUDGED_FULL,
        )
        def ask_discrepancy(context: Context, problem: Problem, quantity: str = quantity) -> Iterable[Outcome]:
            asked = question(subject, problem)
            exact = baselines.truth(context, subject, asked)
            error = baselines.resolution(quantity, exact)
            return discrepancy.compared(context, subject, asked, quantity, exact, error)


def _bounds() -> None:
    @check(
        f"bound/{SVGPC.method}/log_evidence",
        paper=SVGPC.paper,
        question="The lower bound stays below log Z.",
        problems=baselines.JUDGED,
        full=baselines.JUDGED_FULL,
    )
    def log_evidence(context: Context, problem: Problem) -> Iterable[Outcome]:
        asked = question(SVGPC, problem)
        return bound.below(context, SVGPC, asked, baselines.truth(context, SVGPC, asked))

    # The bound knows p(f | u) by its marginals alone, which the full and the FITC prior share: it bounds both.
    @check(
        f"bound/{SVGPC.method}/log_evidence_fitc_prior",
        paper=SVGPC.paper,
        question="The sparse bound stays below the log Z of the FITC prior as well.",
        problems=("three-points-fitc",),
        full=("toy-sparse",),
    )
    def log_evidence_fitc_prior(context: Context, problem: Problem) -> Iterable[Outcome]:
        asked = question(SVGPC, problem)
        return bound.below(context, SVGPC, asked, baselines.truth(context, EPGPC, asked))

    for quantity, sentence, function in (
        ("monotone", "No step lowers the bound.", bound.monotone),
        ("equality", "When the prior variance vanishes, the bound is log Z = -n log 2.", bound.equality),
    ):

        @check(
            f"bound/{SVGPC.method}/{quantity}",
            paper=SVGPC.paper,
            question=sentence,
            problems=("three-points", "three-points-fitc", "toy"),
        )
        def ask_bound(context: Context, problem: Problem, function: Any = function) -> Iterable[Outcome]:
            outcomes: Iterable[Outcome] = function(context, SVGPC, question(SVGPC, problem))
            return outcomes

    @check(
        f"bound/{SVI.method}/optimum",
        paper=SVI.paper,
        question="The bound of a stochastic run stays below the optimum of coordinate ascent.",
        problems=_BATCHED,
        full=_BATCHED_FULL,
    )
    def optimum(context: Context, problem: Problem) -> Iterable[Outcome]:
        return below_optimum(context, problem)

    @check(
        f"limit/{SVI.method}/all_data_at_rate_one",
        paper=SVI.paper,
        question="Steps of rate one on all data are coordinate ascent.",
        problems=_BATCHED,
        full=_BATCHED_FULL,
    )
    def limit_all_data_at_rate_one(context: Context, problem: Problem) -> Iterable[Outcome]:
        return all_data_at_rate_one(context, problem)

    @check(
        f"invariance/{EPGPC.method}/batch_sites",
        paper=EPGPC.paper,
        question="The sites of a batch are those of all data, refreshed from the same posterior.",
        problems=_BATCHED,
    )
    def invariance_batch_sites(context: Context, problem: Problem) -> Iterable[Outcome]:
        return batch_sites(context, problem)


def _sums(subject: Subject) -> None:
    @check(
        f"invariance/{subject.method}/batch_sums",
        paper=subject.paper,
        question="Batch gradients weighted with |S|/n average to the full gradient.",
        problems=_BATCHED,
        full=_BATCHED_FULL,
    )
    def invariance_batch_sums(context: Context, problem: Problem) -> Iterable[Outcome]:
        return batch_sums(context, subject, problem)


for _subject in BASELINES:
    _fixed_point(_subject)
    _baseline(_subject)
for _subject in (SVI, *BASELINES):
    for _quantity, _options in _RUNS[_subject.method].items():
        _steps(_subject, _quantity, _options)
for _subject in (X_GPC, *BASELINES):
    _learned(_subject)
for _subject in (SVI, SVGPC):
    _sums(_subject)
_bounds()
