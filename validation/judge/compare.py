"""Two solutions side by side: what may be compared, how far apart they are, and against which limit.

Three relations, told from what the solutions say of themselves:

identity      neither is sampled or exact: two computations of one thing, limit max(1e-8, 100 eps cond(K)). Class
              probabilities of correlated values are integrals by rules that err by more: beyond the limit those of a
              program that is no witness are held to the integral of its own test moments
(validation.judge.class_integrals) exactness     both are truths (sampled or exact): z statistics, or two exact values
discrepancy   one is a truth, the other an approximation: bands, and a lower bound must lie below log Z

A truth has its gate met (validation.door.premises) and is one of its own evidence target only. Rows on what the
solutions say of themselves come first: an iteration that did not converge FAILs; where a gate is not met or the
targets differ, distances are shown and nothing is judged; two methods or settings that differ are named. `unjudged`
says what no verdict was reached on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.special import gammaln, kve, ndtri

from validation.door import premises
from validation.door.premises import is_truth as is_truth
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.door.solve import WITNESSES
from validation.door.statistics import LEVEL, QUANTITIES, same_evidence, z_statistics
from validation.judge import class_integrals, distances
from validation.judge.distances import relative_difference as relative_difference
from validation.judge.suspects.worst import worst_entry

_COVARIANCE = (
    distances.COVARIANCE_BAND,
    f"{distances.COVARIANCE_BAND:g} of the largest covariance: nine of ten recorded distances of the methods here, "
    "over the problems with a truth, are smaller; variances a few percent off do not show in it",
)

# How far an approximation may be from the truth unless the caller says otherwise, each with its reason.
DEFAULT_BANDS: Mapping[str, tuple[float, str]] = {
    "log_evidence": (0.05, "5 % of |log Z|: about what the Laplace and variational methods leave on small problems"),
    "latent_mean": (0.15, "15 % of the largest latent mean: variational and Laplace means shrink by about that much"),
    "latent_cov": _COVARIANCE,
    "test_latent_mean": (0.15, "as for the latent means at the data"),
    "test_latent_cov": _COVARIANCE,
    "probabilities": (0.05, "0.05 in probability: what is called a good approximation in the papers' scatter plots"),
    "inducing_mean": (0.15, "as for the latent means at the data"),
    "inducing_cov": _COVARIANCE,
}

# an identity limit beyond this (a condition number of 5e10) would pass what is plainly different
WIDEST_LIMIT = 1e-3

# two values that are both called exact: quadrature states its error at about this
EXACT_LIMIT = 1e-6


# rows on how two solutions came about; their reasons are the news, not their numbers
PREMISES = ("converged", "gate", "target", "method", "settings")

# the standard error of a mean is the deviation over the root of ESS, or less where draws are averaged conditionally; a
# variance's is sqrt(2/ESS) of it for a Gaussian, and heavier tails add: more than twice that is an error that hides
WIDEST_ERROR = 2.0


class Row(NamedTuple):
    """One compared quantity: PASS iff observed <= limit; INFO where no limit applies; SKIP where none was possible.

    A row of PREMISES is on how the solutions came about: `converged` is FAIL, `gate` and `target` SKIP, `method` and
    `settings` INFO. `worst` of a FAIL is the entry that differs most, left and right as they were given.
    """

    quantity: str
    kind: str
    observed: float
    limit: float
    verdict: str
    why: str
    worst: str = ""


def compare(
    left: Solution,
    right: Solution,
    bands: Mapping[str, float] | None = None,
    limit: float | None = None,
    *,
    why: str = "limit given by the caller",
    sides: tuple[str, str] = ("left", "right"),
) -> list[Row]:
    """Judge two solutions of one problem, quantity by quantity.

    Parameters
    ----------
    left, right : Solution     the same problem; if one of them is a truth (sampled or exact), the other is judged by it
                               and what both learned is compared like an answer
    bands : mapping            quantity -> largest discrepancy from the truth, in place of DEFAULT_BANDS
    limit : float              identity limit in place of max(1e-8, 100 eps cond(K)), of gradients too
    why : str                  the reason for that limit
    sides : (str, str)         words for the two in `worst`

    Raises
    ------
    ValueError                 if the problems differ, a band names an unknown quantity, or a band or the limit has
                               nothing to judge here
    """
    return [
        row._replace(worst=row.worst or _worst(row.quantity, left, right, sides)) if row.verdict == "FAIL" else row
        for row in _judged(left, right, bands, limit, why)
    ]


def _worst(quantity: str, left: Solution, right: Solution, sides: tuple[str, str]) -> str:
    """The entry in which two sides differ most, for a quantity that both have."""
    name = "log_evidence" if quantity == "bound - log Z" else quantity
    group, slash, field = name.partition("/")
    if name not in QUANTITIES and group not in ("learned", "gradients", "local"):
        return ""
    if group == "learned":
        values = [getattr(side.problem, field) for side in (left, right)]
    elif slash:
        values = [(getattr(side, group) or {}).get(field) for side in (left, right)]
    else:
        values = [getattr(side, name) for side in (left, right)]
    a, b = values
    return "" if a is None or b is None else worst_entry(name, a, b, sides)


def _judged(
    left: Solution, right: Solution, bands: Mapping[str, float] | None, limit: float | None, why: str
) -> list[Row]:
    """The rows of `compare`."""
    different = left.problem.differences(right.problem, ignore=("name", "prior_model", *premises.learned(left, right)))
    if different:
        raise ValueError(f"right: found a solution of another problem (it differs in {different}), expected the same")
    for name, band in (bands or {}).items():
        if name not in QUANTITIES:
            raise ValueError(f"bands: found {shown(name)}, expected one of {', '.join(QUANTITIES)}")
        if not band >= 0.0:
            raise ValueError(f"bands[{name!r}]: found {shown(band)}, expected a number >= 0")
    if limit is not None and not limit > 0.0:
        raise ValueError(f"limit: found {shown(limit)}, expected a number > 0")
    # what claims more is the right side: a truth of the left one's model, or else what would be one with its gate met
    if _rank(left, right) > _rank(right, left):
        left, right = right, left
    if not premises.claims_truth(right):
        if bands:
            raise ValueError(
                f"bands: found {', '.join(bands)}, expected none: neither side is sampled or exact, "
                "and an identity has one limit"
            )
        return _stated_rows(left, right) + _identity_rows(left, right, limit, why)
    if limit is not None:
        raise ValueError(f"limit: found {shown(limit)} for a comparison with a truth ({right.label}), expected bands")
    rows = _truth_premises(left, right)
    if any(row.quantity == "gate" for row in rows):
        return rows + _shown_rows(left, right, "gate not met")
    rows += _truth_rows(left, right, bands or {})
    judged = {row.quantity for row in rows if row.kind == "discrepancy" and row.verdict != "SKIP"}
    if unused := sorted(set(bands or {}) - judged):
        raise ValueError(
            f"bands: found {', '.join(unused)}, expected quantities whose distance from the truth is judged here: "
            f"{', '.join(sorted(judged - set(PREMISES))) or 'none'}"
        )
    return rows


def _rank(side: Solution, other: Solution) -> int:
    return int(premises.claims_truth(side)) + int(is_truth(side, other.evidence_target))


def unjudged(rows: list[Row], left: Solution, right: Solution) -> list[str]:
    """Quantities that one side has at least and no verdict was reached on, in the order of reports."""
    reached = {row.quantity for row in rows if row.verdict in ("PASS", "FAIL")}
    if "bound - log Z" in reached:
        reached.add("log_evidence")
    names = [
        name
        for name in QUANTITIES
        if any((value := getattr(side, name)) is not None and np.size(value) for side in (left, right))
    ]
    for group in ("gradients", "local"):
        if group == "local" and any(map(premises.claims_truth, (left, right))):
            continue  # a truth has no sites, and an approximation no draws
        keys = {key: None for side in (left, right) for key, value in (getattr(side, group) or {}).items()
                if value.dtype.kind == "f"}  # fmt: skip
        names += [f"{group}/{key}" for key in keys]
    names += [f"learned/{name}" for name in premises.learned(left, right)]
    return [name for name in names if name not in reached]


def has_errors(solution: Solution) -> bool:
    """Whether the solution carries standard errors."""
    return solution.latent_mean_se is not None or solution.log_evidence_se is not None


def prior_condition(problem: Problem) -> float:
    """Condition number of the matrix that is factorised: K_ZZ, or K_XX for a full GP (the worst latent)."""
    latents = range(1 if problem.shared else problem.n_latents)
    return max(1.0, *(float(np.linalg.cond(prior_matrix(problem, latent))) for latent in latents))


def prior_matrix(problem: Problem, latent: int) -> NDArray[np.float64]:
    """(m, m) or (n, n) matrix of a latent that is factorised: K_ZZ with jitter, or K_XX with noise and jitter."""
    points = problem.X if problem.Z is None else problem.Z[latent]
    diagonal = problem.jitter[latent] + (problem.noise[latent] if problem.Z is None else 0.0)
    return kernel(problem, latent, points, points) + diagonal * np.eye(len(points))


def kernel(problem: Problem, latent: int, A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
    """(a, b) covariances of a latent function between two sets of points, without noise and jitter."""
    a, b = A / problem.lengthscales[latent], B / problem.lengthscales[latent]
    if problem.smoothness is None:
        correlation = np.exp(-0.5 * cdist(a, b, "sqeuclidean"))
    else:
        correlation = _matern(cdist(a, b), float(problem.smoothness[latent]))
    return np.asarray(problem.variance[latent] * correlation)


def _matern(distance: NDArray[np.float64], order: float) -> NDArray[np.float64]:
    """Correlation 2^(1-ν)/Γ(ν) s^ν K_ν(s) at s = √(2ν) r; 1 at r = 0."""
    s = np.sqrt(2.0 * order) * np.where(distance > 0.0, distance, 1.0)
    # kve is exp(s) K_ν(s); in logarithms neither factor overflows
    value = np.exp((1.0 - order) * np.log(2.0) - gammaln(order) + order * np.log(s) + np.log(kve(order, s)) - s)
    return np.where(distance > 0.0, value, 1.0)


def identity_limit(problem: Problem) -> tuple[float, str]:
    """max(1e-8, 100 eps cond) and the reason for it."""
    condition = prior_condition(problem)
    value = max(1e-8, 100.0 * np.finfo(float).eps * condition)
    return value, (
        f"one fixed point in float64: a condition number of {condition:.1e} costs about {condition * 2.2e-16:.0e}; "
        "1e-8 is where a missing term shows"
    )


def _other_model(left: Solution, right: Solution) -> str | None:
    if left.evidence_target == right.evidence_target:
        return None
    return f"different targets: {left.evidence_target!r} and {right.evidence_target!r}"


def _stated_rows(left: Solution, right: Solution) -> list[Row]:
    """What the two sides say of themselves that keeps them from being two computations of one fixed point."""
    rows = _target_rows(left, right, "identity")
    if result := premises.unfinished(left, right):
        rows.append(Row("converged", "identity", result.residual, result.tolerance, "FAIL", result.why))
    if left.method != right.method:
        why = f"{left.method!r} and {right.method!r}, compared as if theory made them equal"
        rows.append(Row("method", "identity", np.nan, np.nan, "INFO", why))
    if differing := premises.different_settings(left, right):
        rows.append(Row("settings", "identity", np.nan, np.nan, "INFO", f"the sides were asked with {differing}"))
    return rows


def _truth_premises(candidate: Solution, truth: Solution) -> list[Row]:
    """An approximation is judged at its fixed point, a truth by its gate, and both are to be of one model."""
    rows = []
    kind = "exactness" if premises.claims_truth(candidate) else "discrepancy"
    if kind == "discrepancy" and (result := premises.unfinished(candidate)):
        rows.append(Row("converged", kind, result.residual, result.tolerance, "FAIL", result.why))
    gates = [premises.gate(side) for side in (candidate, truth) if premises.claims_truth(side)]
    if closed := [gate.why for gate in gates if not gate.met]:
        r_hat = max((s.r_hat for s in (candidate, truth) if s.r_hat is not None), default=np.nan)
        why = f"gate not met, no truth and no verdict: {'; '.join(closed)}"
        rows.append(Row("gate", kind, r_hat, premises.GATE_R_HAT, "SKIP", why))
    return rows + _target_rows(candidate, truth, kind)


def _target_rows(left: Solution, right: Solution, kind: str) -> list[Row]:
    if left.evidence_target == right.evidence_target:
        return []
    why = (
        f"{left.label} answers {left.evidence_target!r}, {right.label} {right.evidence_target!r}: numbers of two "
        "models are shown, and judged by a band that the caller gives"
    )
    return [Row("target", kind, np.nan, np.nan, "SKIP", why)]


def _shown_rows(left: Solution, right: Solution, reason: str) -> list[Row]:
    """Distances without a verdict, each with the standard errors that the sides state."""
    rows = []
    kind = "exactness" if premises.claims_truth(left) else "discrepancy"
    for name in QUANTITIES:
        a, b = getattr(left, name), getattr(right, name)
        if a is None or b is None or np.size(b) == 0:
            continue
        stated = [
            f"{side.label} states a standard error of {float(np.max(error)):.2g}"
            for side in (left, right)
            if (error := getattr(side, f"{name}_se")) is not None
        ]
        observed, unit = distance(name, a, b)
        rows.append(Row(name, kind, observed, np.nan, "SKIP", "; ".join([f"{reason}: {unit} shown", *stated])))
    return rows


def distance(name: str, left: Any, right: Any) -> tuple[float, str]:
    """How far two values of a quantity are apart, and in which unit."""
    a, b = np.asarray(left, dtype=float), np.asarray(right, dtype=float)
    if name == "probabilities":
        return float(np.abs(a - b).max()), "largest difference"
    if name == "log_evidence":
        return float(abs(a - b) / max(abs(a), abs(b), 1.0)), "difference over |log Z|"
    return relative_difference(a, b), "relative difference"


def gradient_limit(bound: float, why: str) -> tuple[float, str]:
    """What `triad verify` allows a gradient where the fixed points themselves are allowed `bound`."""
    return max(1e-7, 10.0 * bound), (
        "gradients, by their units: terms of the size of 1 % of log Z and more cancel in them, at fixed points known "
        f"to 1e-10; {why}"
    )


def gradient_unit(problem: Problem, name: str) -> NDArray[np.float64]:
    """What a derivative is taken by; noise adds to the variance, inducing points move by lengthscales."""
    if name == "noise":
        return problem.variance + problem.noise
    if name == "Z":
        return problem.lengthscales[:, None]
    return np.asarray(getattr(problem, name))


def gradient_difference(left: Solution, right: Solution, name: str) -> float:
    """Largest relative difference of a gradient in its unit; inf where a side has none.

    Near an optimum all that is left of a gradient is rounding of its terms: 1 % of log Z, their size, is the floor.
    """
    a, b = ((solution.gradients or {}).get(name) for solution in (left, right))
    if a is None or b is None:
        return np.inf
    unit = gradient_unit(left.problem, name)
    return relative_difference(a * unit, b * unit, 0.01 * abs(left.log_evidence or 0.0))


def _identity_rows(left: Solution, right: Solution, limit: float | None, given: str) -> list[Row]:
    bound, why = identity_limit(left.problem) if limit is None else (limit, given)
    derivative_bound, derivative_why = gradient_limit(bound, why) if limit is None else (bound, why)
    rows = []
    for name, a, b in _shared_arrays(left, right):
        reason = same_evidence(left, right) if name == "log_evidence" else _other_model(left, right)
        if a.shape != b.shape:
            reason = f"different shapes: {a.shape} and {b.shape}"
        elif not bound <= WIDEST_LIMIT and limit is None:
            reason = f"no agreement can be told from rounding here: {why}"
        if reason:
            rows.append(Row(name, "identity", np.nan, np.nan, "SKIP", reason))
            continue
        group, _, field = name.partition("/")
        if group == "gradients":
            observed = gradient_difference(left, right, field)
            rows.append(
                Row(name, "identity", observed, derivative_bound, _verdict(observed, derivative_bound), derivative_why)
            )
            continue
        observed = relative_difference(a, b, _no_signal(left.problem, name))
        row = Row(name, "identity", observed, bound, _verdict(observed, bound), why)
        if name == "probabilities" and row.verdict == "FAIL":
            row = _integral_row(left, right, bound, why) or row
        rows.append(row)
    return rows


def _integral_row(left: Solution, right: Solution, bound: float, why: str) -> Row | None:
    """Class probabilities of programs that are no witnesses against the judge's integral; None where it has none.

    Integrated is the Gaussian at the test points that the program gives, or, where it gives none, that of the other
    side. The witnesses' rule errs by more than the limit, so that no right program need agree with them; the witnesses
    themselves have one rule by definition.
    """
    rows = []
    for side, other in ((left, right), (right, left)):
        if side.implementation in WITNESSES:
            continue
        given = other if side.test_latent_mean is None or side.test_latent_cov is None else side
        mean, cov = given.test_latent_mean, given.test_latent_cov
        if mean is None or cov is None:
            return None
        result = class_integrals.class_probabilities(side.problem, given.method, mean, cov)
        if result is None:
            return None
        observed, limit = relative_difference(side.probabilities, result.probabilities), bound + result.error
        told = (
            f"{side.label} against the integral over the moments at the test points that {given.label} gives, by a "
            f"rule of the judge's own whose error is {result.error:.1g}"
        )
        words = side.label, "integral"
        worst = worst_entry("probabilities", side.probabilities, result.probabilities, words)
        rows.append(
            Row("probabilities", "identity", observed, limit, _verdict(observed, limit), f"{told}; {why}", worst)
        )
    return max(rows, key=lambda row: row.observed / row.limit, default=None)


def _no_signal(problem: Problem, name: str) -> float:
    """Size below which a latent mean is what rounding leaves of labels that cancel: a millionth of the prior's sd.

    Means are sums of terms up to that sd. A floor of a millionth still asks for 1e-14 of the sd at a limit of 1e-8.
    """
    if not name.endswith("_mean"):
        return 0.0
    return 1e-6 * float(np.sqrt((problem.variance + problem.noise).max()))


def _truth_rows(candidate: Solution, truth: Solution, bands: Mapping[str, float]) -> list[Row]:
    other = _other_model(candidate, truth)
    both = premises.claims_truth(candidate) and other is None
    known = None if both or other or bands else distances.known(candidate, truth)
    rows = _evidence_rows(candidate, truth, bands, known)
    for name in QUANTITIES[1:]:
        a, b = getattr(candidate, name), getattr(truth, name)
        if a is None or b is None or b.size == 0:
            continue
        if both and (has_errors(candidate) or has_errors(truth)):
            rows.append(_z_row(candidate, truth, name))
        elif both:
            observed = relative_difference(a, b)
            verdict = _verdict(observed, EXACT_LIMIT)
            rows.append(Row(name, "exactness", observed, EXACT_LIMIT, verdict, "two exact values"))
        else:
            rows.append(_band_row(candidate, truth, name, bands, known, other))
    if both:
        rows += _error_rows(candidate, truth)
    return rows


def _band_row(
    candidate: Solution,
    truth: Solution,
    name: str,
    bands: Mapping[str, float],
    known: distances.Known | None,
    other: str | None,
) -> Row:
    """An approximation's distance from a truth: the caller's band, else the recorded distance, else the default."""
    observed, unit = distance(name, getattr(candidate, name), getattr(truth, name))
    error = getattr(truth, f"{name}_se")
    resolved = "" if error is None else f"; the truth's largest standard error is {error.max():.2g}"
    if name in bands:
        why = f"{unit}: band given by the caller{resolved}"
        return Row(name, "discrepancy", observed, bands[name], _verdict(observed, bands[name]), why)
    if other:
        return Row(name, "discrepancy", observed, np.nan, "SKIP", f"{unit} shown: {other}")
    if known is not None and (held := known.held(name, candidate, truth)) is not None:
        if held.resolves or held.observed > held.limit:
            verdict = _verdict(held.observed, held.limit)
            return Row(name, "discrepancy", held.observed, held.limit, verdict, held.why + resolved)
        return Row(name, "discrepancy", held.observed, held.limit, "SKIP", held.why + resolved)
    band, why = DEFAULT_BANDS[name]
    verdict = _verdict(observed, band)
    by_name = candidate.method in distances.methods(candidate.problem.likelihood)
    if name.endswith("_cov") and verdict == "PASS" and by_name:
        why = (
            f"{unit}: inside the band of {band:g}, which says little: {candidate.method} has no recorded distance for "
            f"this problem, truth and settings; compare with `triad solve fast {candidate.method}`, limit 1e-8"
        )
        return Row(name, "discrepancy", observed, band, "SKIP", why + resolved)
    return Row(name, "discrepancy", observed, band, verdict, f"{unit}: {why}{resolved}")


def _error_rows(*sides: Solution) -> list[Row]:
    """Standard errors of sampled sides against their own deviations and ESS: errors too large would pass everything.

    Errors too small show in z.
    """
    rows = []
    for name in ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov"):
        results = [(side.label, ratio) for side in sides if (ratio := _error_ratio(side, name)) is not None]
        if results:
            why = (
                "largest standard error over what the side's own variances and ESS leave of a Gaussian: "
                + ", ".join(f"{label} {ratio:.2f}" for label, ratio in sorted(results))
                + f"; above {WIDEST_ERROR:g} it would hide a difference"
            )
            worst = float(np.max([ratio for _, ratio in results]))
            verdict = _verdict(worst, WIDEST_ERROR)
            rows.append(Row(f"{name}_se", "exactness", worst, WIDEST_ERROR, verdict, why))
    return rows


def _error_ratio(side: Solution, name: str) -> float | None:
    error, cov = getattr(side, f"{name}_se"), getattr(side, f"{name.rpartition('_')[0]}_cov")
    if error is None or cov is None or side.ess is None or cov.size == 0:
        return None
    var = np.einsum("...ll->...l", cov)
    if name.endswith("_cov"):
        error, per_draw = np.einsum("...ll->...l", error), np.sqrt(2.0) * var
    else:
        per_draw = np.sqrt(var)
    moves = per_draw > 0.0
    return float(np.sqrt(side.ess) * np.max(error[moves] / per_draw[moves], initial=0.0))


def _evidence_rows(
    candidate: Solution, truth: Solution, bands: Mapping[str, float], known: distances.Known | None
) -> list[Row]:
    name = "log_evidence"
    if reason := same_evidence(candidate, truth):
        return [Row(name, "discrepancy", np.nan, np.nan, "SKIP", reason)]
    assert candidate.log_evidence is not None  # same_evidence has seen to it
    assert truth.log_evidence is not None
    error = float(np.hypot(truth.log_evidence_se or 0.0, candidate.log_evidence_se or 0.0))
    gap = candidate.log_evidence - truth.log_evidence
    if premises.claims_truth(candidate):
        if has_errors(candidate) or has_errors(truth):
            return [_z_row(candidate, truth, name)]
        observed = relative_difference(candidate.log_evidence, truth.log_evidence)
        return [Row(name, "exactness", observed, EXACT_LIMIT, _verdict(observed, EXACT_LIMIT), "two exact values")]
    rows = []
    if candidate.log_evidence_kind == "lower bound":
        # the same slack for rounding as everywhere: 1e-8 of |log Z|
        slack = 4.0 * error + 1e-8 * abs(truth.log_evidence)
        why = f"a lower bound may exceed log Z only by its standard error: 4 s.e. = {4.0 * error:.2g} nat"
        rows.append(Row("bound - log Z", "bound", gap, slack, _verdict(gap, slack), why))
    observed = abs(gap) / max(abs(truth.log_evidence), 1.0)
    apart = f"{gap:+.4f} nat (s.e. {error:.2g})"
    held = known.held(name, candidate, truth) if known is not None else None
    if held is not None and (held.resolves or held.observed > held.limit):
        verdict = _verdict(held.observed, held.limit)
        return [*rows, Row(name, "discrepancy", held.observed, held.limit, verdict, f"{apart}; {held.why}")]
    if name not in bands and candidate.log_evidence_kind == "lower bound":
        # how loose a bound is says something of the method, not of its implementation
        rows.append(Row(name, "discrepancy", observed, np.nan, "INFO", f"{apart}; no band set for a lower bound"))
        return rows
    band, why = (bands[name], "band given by the caller") if name in bands else DEFAULT_BANDS[name]
    rows.append(Row(name, "discrepancy", observed, band, _verdict(observed, band), f"{apart}; {why}"))
    return rows


def _z_row(candidate: Solution, truth: Solution, name: str) -> Row:
    result = z_statistics(candidate, truth, name)
    if result is None:
        return Row(name, "exactness", np.nan, np.nan, "SKIP", "neither side has standard errors")
    z, se = result
    worst, threshold = float(np.abs(z).max()), float(-ndtri(0.5 * LEVEL / z.size))
    why = (
        f"largest |z| of {z.size}; a true agreement passes {threshold:.2f} in all but {LEVEL:g} of cases (Bonferroni); "
        f"differences of {threshold * np.median(se):.2g} would show"
    )
    return Row(name, "exactness", worst, threshold, _verdict(worst, threshold), why)


def _shared_arrays(left: Solution, right: Solution) -> list[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    shared = []
    for name in QUANTITIES:
        a, b = getattr(left, name), getattr(right, name)
        if a is not None and b is not None and np.size(a):
            shared.append((name, np.asarray(a), np.asarray(b)))
    for name in premises.learned(left, right):
        a, b = getattr(left.problem, name), getattr(right.problem, name)
        if a is not None and b is not None:
            shared.append((f"learned/{name}", a, b))
    for group in ("gradients", "local"):
        a, b = getattr(left, group) or {}, getattr(right, group) or {}
        shared += [
            (f"{group}/{key}", a[key], b[key])
            for key in a
            if key in b and a[key].dtype.kind == b[key].dtype.kind == "f"
        ]
    return shared


def _verdict(observed: float, limit: float) -> str:
    return "PASS" if observed <= limit else "FAIL"
