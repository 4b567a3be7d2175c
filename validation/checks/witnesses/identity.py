"""Identity: `reference` and `fast` compute one fixed point by two routes, so they must agree to rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter

import numpy as np

from validation.checks.core import Compared, Context, Outcome, Skipped
from validation.checks.definitions.predictive_integrals import unit_mass
from validation.checks.subjects import LARGER, QUICK, SPARSE, SUBJECTS, Asked, Subject, add
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.judge.compare import identity_limit, prior_condition, relative_difference

# beyond this the prior matrix itself no longer determines the answer to eight digits
MAX_CONDITION = 1e5

FIELDS = {
    "log_evidence": "Both witnesses report the same bound, with every constant.",
    "inducing_mean": "Both witnesses find the same mean at the inducing points.",
    "inducing_cov": "Both witnesses find the same covariance at the inducing points.",
    "latent_mean": "Both witnesses give the same latent means at the data.",
    "latent_cov": "Both witnesses give the same latent variances at the data.",
    "test_latent_mean": "Both witnesses predict the same latent means.",
    "test_latent_cov": "Both witnesses predict the same latent variances.",
    "probabilities": "Both witnesses predict the same class probabilities.",
    "probability_mass": (
        "Both witnesses integrate the predictive density to the same mass, which is one where they integrate."
    ),
}
GRADIENTS = {
    "variance": "Both witnesses give the same derivative of the bound in the prior variance.",
    "lengthscales": "Both witnesses give the same derivatives of the bound in the lengthscales.",
    "noise": "Both witnesses give the same derivative of the bound in the noise variance.",
    "Z": "Both witnesses give the same derivatives of the bound in the inducing inputs.",
}


MASS: Callable[[Solution], object] = attrgetter("probability_mass")


def pair(context: Context, subject: Subject, problem: Problem) -> tuple[Solution, Solution]:
    """The answers of the two deterministic witnesses."""
    return (
        context.solve("reference", subject.method, problem),
        context.solve("fast", subject.method, problem),
    )


def compared(
    context: Context, subject: Subject, problem: Problem, extract: Callable[[Solution], object]
) -> Iterable[Outcome]:
    """One quantity of both witnesses at their fixed points."""
    condition = prior_condition(problem)
    if condition > MAX_CONDITION:
        yield Skipped(
            f"condition {condition:.1e}: found above {MAX_CONDITION:g}, expected a problem that fixes 8 digits"
        )
        return
    reference, fast = pair(context, subject, problem)
    for solution in (reference, fast):
        if not solution.converged:
            yield Compared(np.inf, 0.0, "an iteration that did not converge has no fixed point", solution.label, "-")
            return
    left, right = extract(reference), extract(fast)
    limit, why = identity_limit(problem)
    observed = np.inf if left is None or right is None else relative_difference(right, left)
    yield Compared(observed, limit, why, "reference", "fast")
    if extract is MASS:
        # both may lose the same share
        for solution in (reference, fast):
            yield from unit_mass(solution)


def field(name: str) -> Callable[[Solution], object]:
    """Takes a field out of a solution."""
    return MASS if name == "probability_mass" else lambda solution: getattr(solution, name)


def gradient(name: str) -> Callable[[Solution], object]:
    """Takes a derivative out of a solution."""
    return lambda solution: (solution.gradients or {}).get(name)


def comparing(extract: Callable[[Solution], object]) -> Asked:
    """Asks whether one quantity of both witnesses is the same."""
    return lambda context, subject, problem: compared(context, subject, problem, extract)


for _subject in SUBJECTS:
    _add = partial(add, __name__, "identity", _subject)
    for _name, _question in FIELDS.items():
        _add(_name, _question, comparing(field(_name)), QUICK, LARGER)
    for _name, _question in GRADIENTS.items():
        # a full GP has no inducing inputs to differentiate by
        _where = (SPARSE,) if _name == "Z" else (QUICK, LARGER)
        _add(f"gradient_{_name}", _question, comparing(gradient(_name)), *_where)
    _add("c", "Both witnesses find the same tilts of the Pólya-Gamma variables.",
         comparing(lambda solution: solution.local.get("c")), QUICK, LARGER)  # fmt: skip
