"""villacampa2017 against truths: chains of the pairwise model (7), exact draws of the threshold model; and the two.

(7) multiplies the probabilities that the label's latent value beats each other one as if they were independent given u.
What ep leaves of it is the method's error; how far (7) itself is from the threshold model is the model's, and grows
with the number of classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr
from scipy.stats import multivariate_normal

from validation.checks.against_truth.exactness import routes, tested
from validation.checks.apart import unconverged
from validation.checks.core import Compared, Context, Outcome, Skipped, Tested, check
from validation.checks.subjects import SEED
from validation.checks.witnesses.villacampa2017 import (
    DATUM,
    EP,
    GFITC,
    PAPER,
    PER_CLASS,
    SEP,
    WITNESSES,
    Setup,
    add,
    linear,
)
from validation.door.problem import Problem
from validation.door.solution import Solution

SAMPLER = "gibbs-pairwise"
_FEW, _TOY, _STEEP = "two-points-3-sparse-threshold", "toy-3-sparse-threshold", "toy-4-sparse-steep-threshold"
_CHAINS: Mapping[str, Any] = MappingProxyType({"n_chains": 32, "n_draws": 150, "n_warmup": 30})
_LONGER: Mapping[str, Any] = MappingProxyType({"n_chains": 32, "n_draws": 600, "n_warmup": 50})


def pairwise(context: Context, problem: Problem) -> Solution:
    """Chains of (7); with both routes to its log Z where a quick run can pay for the second."""
    lengths = _CHAINS if context.quick else _LONGER
    evidence = "chains" if context.quick and problem.name == _TOY else "all"
    return context.solve("gibbs", SAMPLER, problem, seed=SEED, evidence=evidence, **lengths)


# -- the chains of (7) -----------------------------------------------------------------------------------------------


class Factors(NamedTuple):
    """The arguments of Phi in (7), linear in u: each row one factor; and the distribution of u."""

    rows: NDArray[np.float64]  # (D, C m)
    prior: NDArray[np.float64]  # (C m, C m)


def factors(problem: Problem) -> Factors:
    """From the definition: (w_y - w_k)/sqrt(s_y + s_k)."""
    assert problem.m is not None
    C, m = problem.n_classes, problem.m
    classes = linear(problem, problem.X)
    rows, prior = [], np.zeros((C * m, C * m))
    for k, each in enumerate(classes):
        prior[k * m : (k + 1) * m, k * m : (k + 1) * m] = each.K
    for i, y in enumerate(problem.y):
        for k in (k for k in range(C) if k != y):
            row = np.zeros((C, m))
            row[y], row[k] = classes[y].upsilon[i], -classes[k].upsilon[i]
            rows.append(row.ravel() / np.sqrt(classes[y].cond_var[i] + classes[k].cond_var[i]))
    return Factors(np.array(rows), prior)


def weighted(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Moments of u under (7) by weighting independent draws of the prior."""
    result = pairwise(context, problem)
    rows, prior = factors(problem)
    draws = np.random.default_rng(SEED).standard_normal((200_000, len(prior))) @ np.linalg.cholesky(prior).T
    weights = np.exp(log_ndtr(draws @ rows.T).sum(axis=1))
    weights /= weights.sum()
    mean = weights @ draws
    centred = draws - mean
    var = weights @ centred**2
    mean_se = np.sqrt(weights**2 @ centred**2)
    var_se = np.sqrt(weights**2 @ (centred**2 - var) ** 2)
    assert result.inducing_mean is not None
    assert result.inducing_mean_se is not None
    assert result.inducing_cov is not None
    assert result.inducing_cov_se is not None
    for name, a, a_se, b, b_se in (
        ("means", result.inducing_mean, result.inducing_mean_se, mean, mean_se),
        (
            "variances",
            np.einsum("lii->li", result.inducing_cov),
            np.einsum("lii->li", result.inducing_cov_se),
            var,
            var_se,
        ),
    ):
        se = np.hypot(a_se.ravel(), b_se)
        yield Tested(
            (a.ravel() - b) / se,
            f"{name} of u: two-sided z, Holm over the run at 1e-4; 200 000 prior draws weighted by (7)",
            result.label,
            "importance sampling",
            f"a difference of {8.0 * float(np.median(se)) / float(np.abs(b).max()):.2%} of the largest would show",
        )


def orthant(context: Context, problem: Problem) -> Iterable[Outcome]:
    """log Z of (7) is the probability that D Gaussians are positive: both routes against SciPy's integral."""
    result = pairwise(context, problem)
    rows, prior = factors(problem)
    cov = rows @ prior @ rows.T + np.eye(len(rows))
    # Genz's lattice rule in four dimensions: 1e-6
    value = float(
        np.log(multivariate_normal(np.zeros(len(rows)), cov, maxpts=400_000, abseps=1e-8, seed=1).cdf(0.0 * cov[0]))
    )
    for route, log_z, error in routes(result):
        yield Tested(
            np.array([(log_z - value) / np.hypot(error, 1e-4)]),
            "two-sided z, Holm over the run at 1e-4",
            f"gibbs {SAMPLER} {route}",
            "orthant probability",
            f"a difference of {7.0 * error:.2g} nat would show",
        )


def both_routes(context: Context, problem: Problem) -> Iterable[Outcome]:
    """The two routes to log Z of (7) against one another."""
    (first, a, a_se), (second, b, b_se) = routes(pairwise(context, problem))
    error = float(np.hypot(a_se, b_se))
    yield Tested(
        np.array([(a - b) / error]),
        "two-sided z, Holm over the run at 1e-4: the two have no code in common",
        f"gibbs {SAMPLER} {first}",
        f"gibbs {SAMPLER} {second}",
        f"a difference of {7.0 * error:.2g} nat would show",
    )


def two_classes(context: Context, problem: Problem) -> Iterable[Outcome]:
    """With two classes (7) is the threshold model: against its exact draws."""
    result, true = pairwise(context, problem), context.stored(problem)
    if true is None:
        yield Skipped(f"truth: found none stored for {problem.name}, expected one")
        return
    for name in ("test_latent_mean", "test_latent_cov", "probabilities", "log_evidence"):
        if name != "log_evidence":
            yield tested(result, true, name)
            continue
        for route, value, se in routes(result):
            assert true.log_evidence is not None
            error = float(np.hypot(se, true.log_evidence_se or 0.0))
            yield Tested(np.array([(value - true.log_evidence) / error]), "two-sided z, Holm over the run at 1e-4",
                         f"gibbs {SAMPLER} {route}", true.label,
                         f"a difference of {7.0 * error:.2g} nat would show")  # fmt: skip


# -- distances -------------------------------------------------------------------------------------------------------


class Distance(NamedTuple):
    """What was measured against long chains or the stored truth."""

    probabilities: float  # largest |p - truth|
    variance_ratio: float  # mean of var/var_truth at the test points
    means: float  # largest |mean - truth| at the test points in the truth's standard deviations
    log_evidence: float  # log Z less the truth


RECORDED = {
    "ep": {
        _TOY: Distance(0.0294, 0.601, 0.0928, -3.141),
        _STEEP: Distance(0.0294, 0.820, 0.128, -2.618),
    },
    "sep": {
        _TOY: Distance(0.0628, 0.627, 0.108, 1.209),
        _STEEP: Distance(0.0774, 0.832, 0.399, 0.722),
    },
    "per_class_sep": {
        _TOY: Distance(0.0629, 0.627, 0.108, 1.208),
        _STEEP: Distance(0.0758, 0.832, 0.400, 0.675),
    },
    "datum_ep": {
        _TOY: Distance(0.0343, 0.606, 0.0949, -3.080),
        _STEEP: Distance(0.0319, 0.820, 0.127, -2.588),
    },
    "gfitc": {
        _TOY: Distance(0.0341, 0.607, 0.0959, -3.113),
        _STEEP: Distance(0.0321, 0.821, 0.128, -2.623),
    },
}
# room for the draws of another truth, too little for a change of the method
MARGIN = 1.5
RATIO_BAND = 0.05


def measured(answer: Solution, true: Solution) -> Distance:
    """The distance of an answer from a truth."""
    for solution in (answer, true):
        assert solution.probabilities is not None
        assert solution.test_latent_mean is not None
        assert solution.test_latent_cov is not None
        assert solution.log_evidence is not None
    var, var_true = (np.einsum("tcc->tc", np.asarray(s.test_latent_cov)) for s in (answer, true))
    return Distance(
        float(np.abs(answer.probabilities - true.probabilities).max()),  # type: ignore[operator]
        float(np.mean(var / var_true)),
        float((np.abs(answer.test_latent_mean - true.test_latent_mean) / np.sqrt(var_true)).max()),  # type: ignore[operator]
        float(answer.log_evidence - true.log_evidence),  # type: ignore[operator]
    )


def from_truth(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """Probabilities, latent moments at test points and log Z against the truth, within the recorded bands.

    ep and sep are held against chains of (7), the others against the stored draws of the threshold model.
    """
    true = pairwise(context, problem) if setup in (EP, SEP, PER_CLASS) else context.stored(problem)
    if true is None or true.probabilities is None:
        yield Skipped(f"truth: found none stored for {problem.name}, expected one")
        return
    recorded = RECORDED[f"{setup.prefix}{setup.method}"][problem.name]
    # `reference` takes seconds beyond two classes
    witnesses = WITNESSES if not context.quick or setup not in (GFITC, DATUM) else ("fast",)
    assert true.test_latent_cov is not None
    assert true.test_latent_mean_se is not None
    assert true.test_latent_cov_se is not None
    var = np.einsum("tcc->tc", true.test_latent_cov)
    ratio_se = np.einsum("tcc->tc", true.test_latent_cov_se) / var
    open_by = Distance(
        4.0 * float(np.max(np.asarray(true.probabilities_se))),
        # errors of one chain go together
        2.0 * float(ratio_se.mean()),
        4.0 * float((true.test_latent_mean_se / np.sqrt(var)).max()),
        4.0 * (true.log_evidence_se or 0.0),
    )
    for witness in witnesses:
        answer = setup.solve(context, witness, problem)
        yield from unconverged((answer,))
        result = measured(answer, true)
        for name, observed, limit, what in (
            ("probabilities", result.probabilities, MARGIN * recorded.probabilities + open_by.probabilities,
             "largest difference in probability"),
            ("means", result.means, MARGIN * recorded.means + open_by.means,
             "largest difference of a latent mean in standard deviations"),
            ("variance_ratio", abs(result.variance_ratio - recorded.variance_ratio),
             RATIO_BAND * recorded.variance_ratio + open_by.variance_ratio, "difference of the mean variance ratio"),
            ("log_evidence", abs(result.log_evidence - recorded.log_evidence),
             0.1 * abs(recorded.log_evidence) + open_by.log_evidence, "difference of the error of log Z in nats"),
        ):  # fmt: skip
            yield Compared(
                observed,
                limit,
                f"{name}: {getattr(result, name):.4g}, recorded {getattr(recorded, name):.4g}: the method's own error, "
                f"held near it; the truth leaves {getattr(open_by, name):.2g} open",
                witness,
                true.label,
                what,
            )


# -- the pairwise model and the threshold model ----------------------------------------------------------------------

CLASSES = (2, 3, 5)


def family(n_classes: int) -> Problem:
    """Eight data given four inducing points: the same inputs, prior and noise for any number of classes."""
    rng = np.random.default_rng(2017)
    X = rng.uniform(-2.0, 2.0, (8, 1))
    return Problem(
        name=f"classes-{n_classes}",
        X=X,
        y=np.arange(8) % n_classes,
        n_classes=n_classes,
        likelihood="threshold",
        variance=np.exp(2.0),
        lengthscales=1.0,
        noise=1.0,
        jitter=1e-6,
        Z=np.linspace(-1.5, 1.5, 4)[:, None],
        shared=True,
        prior_model="fitc",
        X_test=np.linspace(-2.0, 2.0, 7)[:, None],
    )


# number of classes -> log Z of (7) less that of the threshold model, largest difference of a class probability
APART: dict[int, tuple[float, float]] = {2: (0.0, 0.0), 3: (-0.710, 0.046), 5: (-2.599, 0.066)}


def models_apart(context: Context) -> list[tuple[Solution, Solution]]:
    """(7) and the threshold model for each number of classes."""
    return [
        (
            context.solve(
                "gibbs", SAMPLER, family(C), seed=SEED, n_chains=16, n_draws=100, n_warmup=30, evidence="chains"
            ),
            context.solve("gibbs", "exact-probit", family(C), seed=SEED, n_draws=1000),
        )
        for C in CLASSES
    ]


def apart(context: Context, _: None = None) -> Iterable[Outcome]:
    """log Z and class probabilities of (7) against those of the threshold model, and that log Z parts with C."""
    gaps, errors = [], []
    for C, (left, right) in zip(CLASSES, models_apart(context), strict=True):
        assert left.log_evidence is not None
        assert right.log_evidence is not None
        assert left.probabilities is not None
        assert right.probabilities is not None
        gap = left.log_evidence - right.log_evidence
        error = float(np.hypot(left.log_evidence_se or 0.0, right.log_evidence_se or 0.0))
        gaps.append(gap)
        errors.append(error)
        value, probability = APART[C]
        yield Compared(
            abs(gap - value),
            4.0 * error + 0.02,
            f"{C} classes: log Z of (7) is off by {gap:.3g} nats, recorded {value:.3g}; its error {error:.2g}",
            left.label,
            right.label,
            "difference of the recorded distance in nats",
        )
        noise = 4.0 * float(np.hypot(left.probabilities_se, right.probabilities_se).max())  # type: ignore[arg-type]
        largest = float(np.abs(left.probabilities - right.probabilities).max())
        yield Compared(
            abs(largest - probability),
            noise,
            f"{C} classes: probabilities are off by {largest:.3g}, recorded {probability:.3g}; errors {noise:.2g}",
            left.label,
            right.label,
            "difference of the recorded distance",
        )
    for C, before, after, error in zip(CLASSES[1:], gaps, gaps[1:], np.hypot(errors[1:], errors[:-1]), strict=False):
        yield Compared(
            after - before,
            -4.0 * float(error),
            "pairs share the label's latent value, which makes their events likelier together than a product says: the "
            f"more classes the lower log Z of (7), by {before - after:.3g} from the number of classes before",
            f"{C} classes",
            "fewer classes",
            "difference of the gaps in nats",
        )


# -- registration ----------------------------------------------------------------------------------------------------

add(f"exactness/{SAMPLER}/importance", "The chains have the moments of (7).", weighted, (_FEW,))
add(f"exactness/{SAMPLER}/orthant", "Both routes to log Z agree with the orthant probability.", orthant, (_FEW,))
add(f"exactness/{SAMPLER}/log_evidence_routes", "Both routes to log Z agree.", both_routes, (_FEW,), (_TOY, _STEEP))
add(f"exactness/{SAMPLER}/two_classes", "With two classes, (7) is the threshold model.", two_classes,
    ("toy-2-sparse-threshold",))  # fmt: skip
for _setup, _truth in ((EP, "pairwise"), (SEP, "pairwise"), (PER_CLASS, "pairwise"), (DATUM, "stored"),
                       (GFITC, "stored")):  # fmt: skip

    def _held(context: Context, problem: Problem, setup: Setup = _setup) -> Iterable[Outcome]:
        return from_truth(context, setup, problem)

    add(f"discrepancy/{_setup.method}/{_setup.prefix}{_truth}_truth",
        "The method is as near to the truth of its model as recorded.", _held,
        (_TOY,), (_STEEP,))  # fmt: skip


@check(
    f"discrepancy/{SAMPLER}/threshold",
    paper=PAPER,
    question="(7) is as far from the threshold model as recorded, and the distance grows with the number of classes.",
    problems=("-",),
)
def threshold(context: Context, _: None) -> Iterable[Outcome]:
    return apart(context)
