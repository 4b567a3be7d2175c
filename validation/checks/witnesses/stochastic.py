"""wenzel2019 beyond coordinate ascent: stochastic steps on explicit batches, svgpc and epgpc, and learning.

A list of batches makes a stochastic run a deterministic computation that both witnesses must repeat step by step.
Problems are asked with the probit link where the method has it (`validation.checks.witnesses.baselines`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.checks.against_truth import discrepancy
from validation.checks.apart import apart, fields
from validation.checks.core import Compared, Context, Outcome
from validation.checks.subjects import SUBJECTS, Asked, Subject, add, as_probit
from validation.checks.witnesses import baselines, bound, identity, invariance, limit
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


_add = partial(add, __name__)


def _probit(function: Asked) -> Asked:
    """The same of the problem with the link that the method has."""
    return lambda context, subject, problem: function(context, subject, question(subject, problem))


def _distance(quantity: str) -> Asked:
    def ask(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
        exact = baselines.truth(context, subject, problem)
        error = baselines.resolution(quantity, exact)
        return discrepancy.compared(context, subject, problem, quantity, exact, error)

    return _probit(ask)


def _below(truth_of: Subject) -> Asked:
    return _probit(
        lambda context, subject, problem: bound.below(
            context, subject, problem, baselines.truth(context, truth_of, problem)
        )
    )


_Names = tuple[str, ...]
for _subject in BASELINES:
    _quick: _Names
    _full: _Names
    _where: tuple[_Names, _Names]
    _quick, _full = (*baselines.QUICK, "wine"), (*baselines.FULL, "digits", "breast-cancer")
    if _subject is EPGPC:
        _quick, _full = (*baselines.QUICK, *baselines.FULL, "wine", "digits"), ("breast-cancer",)
    for _name, _question in identity.FIELDS.items():
        _add("identity", _subject, _name, _question, _probit(identity.comparing(identity.field(_name))), _quick, _full)
    for _name, _question in identity.GRADIENTS.items():
        _where = (_quick, _full)
        if _name == "Z":  # a full GP has no inducing inputs to differentiate by
            _where = (("three-points-fitc",), ("toy-sparse", "digits", "breast-cancer", "wine"))
            if _subject is EPGPC:
                _where = (("three-points-fitc", "toy-sparse", "wine", "digits"), ("breast-cancer",))
        _add("identity", _subject, f"gradient_{_name}", _question,
             _probit(identity.comparing(identity.gradient(_name))), *_where)  # fmt: skip
    _add("limit", _subject, "inducing_at_data", "The sparse form with Z = X is the full one.",
         _probit(partial(limit.inducing_at_data, noise=0.0 if _subject is SVGPC else 0.2)),
         ("two-points", "toy-spread"))  # fmt: skip
    _where = (("toy", "wine"), ("toy-steep", "toy-sparse"))
    if _subject is SVGPC:
        _where = (("toy",), ("toy-steep", "toy-sparse", "wine"))
    _add("invariance", _subject, "data_order", "The answer does not depend on the order of the data.",
         _probit(invariance.permuted_data), *_where)  # fmt: skip
    _add("invariance", _subject, "classes", "Swapping the classes mirrors the answer.",
         _probit(invariance.flipped_classes), *_where)  # fmt: skip
    for _name, (_question, _) in discrepancy.QUANTITIES.items():
        _add("discrepancy", _subject, _name, _question, _distance(_name), baselines.JUDGED, baselines.JUDGED_FULL)

for _subject in (SVI, *BASELINES):
    for _name, _options in _RUNS[_subject.method].items():
        _add("identity", _subject, _name, f"Both witnesses make the same {STEPS} steps on the same batches.",
             partial(steps, options=_options), _BATCHED, _BATCHED_FULL)  # fmt: skip
for _subject in (X_GPC, *BASELINES):
    _add("identity", _subject, "learned", "Both searches end at the same hyper-parameters.", learned, ("toy",))
for _subject in (SVI, SVGPC):
    _add("invariance", _subject, "batch_sums", "Batch gradients weighted with |S|/n average to the full gradient.",
         batch_sums, _BATCHED, _BATCHED_FULL)  # fmt: skip

_add("bound", SVGPC, "log_evidence", "The lower bound stays below log Z.", _below(SVGPC), baselines.JUDGED,
     baselines.JUDGED_FULL)  # fmt: skip
# The bound knows p(f | u) by its marginals alone, which the full and the FITC prior share: it bounds both.
_add("bound", SVGPC, "log_evidence_fitc_prior", "The sparse bound stays below the log Z of the FITC prior as well.",
     _below(EPGPC), ("three-points-fitc",), ("toy-sparse",))  # fmt: skip
_FEW = ("three-points", "three-points-fitc", "toy")
_add("bound", SVGPC, "monotone", "No step lowers the bound.", _probit(bound.monotone), _FEW)
_add("bound", SVGPC, "equality", "When the prior variance vanishes, the bound is log Z = -n log 2.",
     _probit(bound.equality), _FEW)  # fmt: skip
_add("bound", SVI, "optimum", "The bound of a stochastic run stays below the optimum of coordinate ascent.",
     lambda context, _, problem: below_optimum(context, problem), _BATCHED, _BATCHED_FULL)  # fmt: skip
_add("limit", SVI, "all_data_at_rate_one", "Steps of rate one on all data are coordinate ascent.",
     lambda context, _, problem: all_data_at_rate_one(context, problem), _BATCHED, _BATCHED_FULL)  # fmt: skip
_add("invariance", EPGPC, "batch_sites",
     "The sites of a batch are those of all data, refreshed from the same posterior.",
     lambda context, _, problem: batch_sites(context, problem), _BATCHED)  # fmt: skip
