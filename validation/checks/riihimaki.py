"""riihimaki2013: nested-ep, nested-iep, qep, qiep, vb-probit, laplace and laplace-tkp, by both witnesses and truths.

The truths are quadrature for two data, and stored draws: exact ones for the multinomial probit, chains for softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.checks import bound, identity
from validation.checks.core import Compared, Context, Outcome, Skipped, check
from validation.checks.subjects import Subject, exact
from validation.compare import identity_limit, relative_difference
from validation.problem import Problem
from validation.solution import Solution

PROBIT = tuple(
    Subject(method, "riihimaki2013", "exact-probit")
    for method in ("nested-ep", "nested-iep", "qep", "qiep", "vb-probit")
)
SOFTMAX = tuple(Subject(method, "riihimaki2013", "mh-softmax") for method in ("laplace", "laplace-tkp"))
NESTED_EP, NESTED_IEP, QEP, QIEP, VB = PROBIT
EPGPC = "epgpc"
_WITNESSES = ("reference", "fast")
_FIELDS = ("log_evidence", "latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities",
           "probability_mass")  # fmt: skip


def _unconverged(solutions: Iterable[Solution]) -> Iterable[Outcome]:
    for solution in solutions:
        if not solution.converged:
            yield Compared(np.inf, 0.0, "an iteration that did not converge has no fixed point", solution.label, "-")


# -- identity ------------------------------------------------------------------------------------------------------


def gradient(context: Context, subject: Subject, problem: Problem, name: str) -> Iterable[Outcome]:
    """One derivative of both witnesses at their fixed points."""
    left, right = identity.pair(context, subject, problem)
    yield from _unconverged((left, right))
    slopes = [(solution.gradients or {}).get(name) for solution in (left, right)]
    assert left.log_evidence is not None
    # what a derivative is taken by; noise adds to the variance
    unit = problem.variance + problem.noise if name == "noise" else getattr(problem, name)
    floor = 0.01 * abs(left.log_evidence) / float(np.min(unit))
    limit, why = identity_limit(problem)
    yield Compared(
        np.inf if any(slope is None for slope in slopes) else relative_difference(slopes[0], slopes[1], floor),
        max(1e-7, 10.0 * limit),
        f"gradient in {name}: terms of the size of 1 % of log Z over the parameter and more cancel, at fixed points "
        f"known to 1e-10; {why}",
        *_WITNESSES,
        f"relative difference of the gradient in {name}",
    )


# -- limit: two classes --------------------------------------------------------------------------------------------


def two_classes(context: Context, problem: Problem) -> Iterable[Outcome]:
    """nested-ep with two classes against epgpc without inducing points.

    All that the likelihood sees is h = (f1 - f0)/sqrt 2, whose prior is that of either latent, and p(y = 1) = Phi(h).
    """
    binary = problem.replace(likelihood="probit", Z=None, prior_model="full", noise=0.05)
    both = {
        name: np.repeat(getattr(binary, name), 2, axis=0) for name in ("variance", "lengthscales", "noise", "jitter")
    }
    twice = binary.replace(likelihood="multinomial-probit", shared=True, **both)
    limit, condition = identity_limit(binary)
    for left, right in (("reference", "reference"), ("fast", "fast"), ("fast", "reference")):
        # the last change of epgpc bounds its own error less closely
        a = context.solve(left, NESTED_EP.method, twice)
        b = context.solve(right, EPGPC, binary, tolerance=1e-11)
        yield from _unconverged((a, b))
        pairs = {
            "log_evidence": (a.log_evidence, b.log_evidence),
            "latent_mean": (_half_difference(a.latent_mean), _column(b.latent_mean)),
            "latent_cov": (_half_difference_var(a.latent_cov), _column(b.latent_cov)),
            "test_latent_mean": (_half_difference(a.test_latent_mean), _column(b.test_latent_mean)),
            "test_latent_cov": (_half_difference_var(a.test_latent_cov), _column(b.test_latent_cov)),
            "probabilities": (a.probabilities, b.probabilities),
        }
        for name, (x, y) in pairs.items():
            yield Compared(
                relative_difference(x, y),
                limit,
                f"{name}: with two classes inner sites are exact, and h = (f1 - f0)/sqrt 2 is all; {condition}",
                a.label,
                b.label,
                f"relative difference of {name}",
            )


def _half_difference(mean: NDArray[np.float64] | None) -> NDArray[np.float64]:
    assert mean is not None
    return np.asarray((mean[:, 1] - mean[:, 0]) / np.sqrt(2.0))


def _half_difference_var(cov: NDArray[np.float64] | None) -> NDArray[np.float64]:
    assert cov is not None
    return np.asarray(0.5 * (cov[:, 0, 0] + cov[:, 1, 1] - 2.0 * cov[:, 0, 1]))


def _column(values: NDArray[np.float64] | None) -> NDArray[np.float64]:
    assert values is not None
    return values.reshape(len(values))


# -- invariance ----------------------------------------------------------------------------------------------------


def permuted_classes(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """The same data with the classes renamed."""
    order = np.roll(np.arange(problem.n_classes), 1)  # new class k is old class order[k]
    rename = np.argsort(order)
    other = problem.replace(
        y=rename[problem.y],
        y_test=None if problem.y_test is None else rename[problem.y_test],
        **{name: getattr(problem, name)[order] for name in ("variance", "lengthscales", "noise", "jitter")},
    )
    limit, why = identity_limit(problem)
    for witness in _WITNESSES:
        plain, renamed = (context.solve(witness, subject.method, asked) for asked in (problem, other))
        yield from _unconverged((plain, renamed))
        assert plain.latent_mean is not None
        assert plain.latent_cov is not None
        assert plain.probabilities is not None
        for name, left, right in (
            ("log_evidence", renamed.log_evidence, plain.log_evidence),
            ("latent_mean", renamed.latent_mean, plain.latent_mean[:, order]),
            ("latent_cov", renamed.latent_cov, plain.latent_cov[:, order][:, :, order]),
            ("probabilities", renamed.probabilities, plain.probabilities[:, order]),
        ):
            yield Compared(
                relative_difference(left, right),
                limit,
                f"{name}: classes come in no order; {why}",
                witness,
                "classes renamed",
                f"relative difference of {name}",
            )


# -- discrepancy ---------------------------------------------------------------------------------------------------


class Distance(NamedTuple):
    """What was measured against the stored truth: the largest |p - truth|, and the mean of var/var_truth."""

    probabilities: float
    variance_ratio: float


RECORDED = {
    "nested-ep": {
        "toy-3": Distance(0.0021, 0.993),
        "toy-4-steep": Distance(0.0227, 0.948),
        "iris-3": Distance(0.0104, 0.954),
    },
    "nested-iep": {
        "toy-3": Distance(0.0095, 0.675),
        "toy-4-steep": Distance(0.0399, 0.626),
        "iris-3": Distance(0.0357, 0.506),
    },
    "qep": {"toy-3": Distance(0.0027, 0.992), "toy-4-steep": Distance(0.0323, 0.947)},
    "qiep": {"toy-3": Distance(0.0093, 0.674), "toy-4-steep": Distance(0.0405, 0.625)},
    "vb-probit": {"toy-3": Distance(0.0113, 0.234), "toy-4-steep": Distance(0.171, 0.025)},
    "laplace": {"toy-3-softmax": Distance(0.0437, 0.956), "toy-4-steep-softmax": Distance(0.356, 0.930)},
    "laplace-tkp": {"toy-3-softmax": Distance(0.0100, 0.956), "toy-4-steep-softmax": Distance(0.0496, 0.930)},
}
# room for the draws of another truth, too little for a change of the method
MARGIN = 1.5
# a mean over n C variances, each sampled to a few percent
RATIO_BAND = 0.03


def ratio(answer: Solution, true: Solution) -> float:
    """Mean over data and classes of the variance over the true one."""
    assert answer.latent_cov is not None
    assert true.latent_cov is not None
    return float(np.mean(np.einsum("ncc->nc", answer.latent_cov) / np.einsum("ncc->nc", true.latent_cov)))


def from_truth(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """Class probabilities and latent variances against the stored truth, within the recorded bands."""
    true = context.stored(problem)
    if true is None or true.probabilities is None:
        yield Skipped(f"truth: found none stored for {problem.name}, expected one")
        return
    recorded = RECORDED[subject.method][problem.name]
    error = 0.0 if true.probabilities_se is None else 4.0 * float(np.max(true.probabilities_se))
    for witness in _WITNESSES:
        answer = context.solve(witness, subject.method, problem)
        assert answer.probabilities is not None
        yield Compared(
            float(np.abs(answer.probabilities - true.probabilities).max()),
            MARGIN * recorded.probabilities + error,
            f"recorded {recorded.probabilities:.3g}, held below 1.5 times as much; the truth leaves {error:.2g} open",
            witness,
            true.label,
            "largest difference in probability",
        )
        found = ratio(answer, true)
        yield Compared(
            abs(found - recorded.variance_ratio),
            RATIO_BAND,
            f"mean var/var_truth {found:.4g}, recorded {recorded.variance_ratio:.4g}: the method's own error",
            witness,
            true.label,
            "difference of the mean variance ratio",
        )


def narrower(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Mean of var_IEP/var_truth below that of var_EP/var_truth."""
    true = context.stored(problem)
    if true is None:
        yield Skipped(f"truth: found none stored for {problem.name}, expected one")
        return
    for witness in _WITNESSES:
        whole, factorised = (
            ratio(context.solve(witness, subject.method, problem), true) for subject in (NESTED_EP, NESTED_IEP)
        )
        yield Compared(
            factorised - whole,
            0.0,
            f"var_IEP/var_truth {factorised:.4g} on average, var_EP/var_truth {whole:.4g}: without the couplings "
            "between classes variances come out too small",
            f"{witness} {NESTED_IEP.method}",
            f"{witness} {NESTED_EP.method}",
            "difference of the mean variance ratios",
        )


# -- registration --------------------------------------------------------------------------------------------------

_Function = Callable[[Context, Subject, Problem], Iterable[Outcome]]


def _add(
    kind: str,
    subject: Subject,
    quantity: str,
    question: str,
    function: _Function,
    problems: tuple[str, ...],
    full: tuple[str, ...] = (),
) -> None:
    @check(f"{kind}/{subject.method}/{quantity}", paper=subject.paper, question=question, problems=problems, full=full)
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        return function(context, subject, problem)


def _comparing(extract: Callable[[Solution], Any]) -> _Function:
    return lambda context, subject, problem: identity.compared(context, subject, problem, extract)


def _slope_in(name: str) -> _Function:
    return lambda context, subject, problem: gradient(context, subject, problem, name)


for _subject in (*PROBIT, *SOFTMAX):
    _end = "-softmax" if _subject in SOFTMAX else ""
    _quick, _full = (f"two-points-3{_end}", f"toy-3{_end}"), (f"two-points-3-steep{_end}", f"toy-4-steep{_end}")
    for _name in _FIELDS:
        _add("identity", _subject, _name, identity.FIELDS[_name], _comparing(identity.field(_name)), _quick, _full)
    for _name in ("variance", "lengthscales", "noise"):
        if _subject is not QEP:  # with diagonal sites its evidence is not stationary: no gradient is claimed
            _add("identity", _subject, f"gradient_{_name}", identity.GRADIENTS[_name], _slope_in(_name), _quick, _full)
    _add("discrepancy", _subject, "stored_truth", "Is the method as near to the stored truth as it was recorded to be?",
         from_truth, (f"toy-3{_end}",), tuple(RECORDED[_subject.method])[1:])  # fmt: skip

# the rules of qep and qiep, and the product rules of predictions, know an order of the classes
for _subject in (NESTED_EP, NESTED_IEP, VB):
    _add("invariance", _subject, "classes", "Do the names of the classes not matter?", permuted_classes,
         ("two-points-3", "toy-3") if _subject is NESTED_EP else ("two-points-3",),
         ("toy-4-steep",) if _subject is NESTED_EP else ("toy-3",))  # fmt: skip

_add("limit", NESTED_EP, "epgpc", "With two classes, is this binary EP?",
     lambda context, _, problem: two_classes(context, problem), ("two-points", "toy"), ("toy-steep",))  # fmt: skip
_add("bound", VB, "quadrature", "Does the lower bound stay below log Z?",
     lambda context, subject, problem: bound.below(context, subject, problem, exact(context, problem, 6.0)),
     ("two-points-3",), ("two-points-3-steep",))  # fmt: skip


def _below_stored(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    true = context.stored(problem)
    if true is None:
        return (Skipped(f"truth: found none stored for {problem.name}, expected one"),)
    return bound.below(context, subject, problem, true)


_add("bound", VB, "stored_truth", "Does the lower bound stay below the log Z of the stored truth?", _below_stored,
     ("toy-3",), ("toy-4-steep",))  # fmt: skip
_add("discrepancy", NESTED_IEP, "narrower", "Are variances without couplings between classes smaller than with them?",
     lambda context, _, problem: narrower(context, problem), ("toy-3",), ("toy-4-steep", "iris-3"))  # fmt: skip
