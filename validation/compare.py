"""Two solutions side by side: what may be compared, how far apart they are, and against which limit.

Three relations, told from what the solutions say of themselves:

identity      neither is sampled or exact: two computations of one thing, limit max(1e-8, 100 eps cond(K))
exactness     one is a truth (sampled or exact), the other a chain: z statistics
discrepancy   one is a truth, the other an approximation: bands, and a lower bound must lie below log Z

Rows on what the solutions say of themselves come first: an iteration that did not converge FAILs, and two methods or
settings that differ are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.special import gammaln, kve, ndtri

from validation import premises
from validation.problem import Problem
from validation.solution import Solution

# quantities in the order of reports; `gradients/...` and `local/...` follow where both sides have them
QUANTITIES = (
    "log_evidence",
    "latent_mean",
    "latent_cov",
    "test_latent_mean",
    "test_latent_cov",
    "probabilities",
    "inducing_mean",
    "inducing_cov",
)

# How far an approximation may be from the truth unless the caller says otherwise, each with its reason.
DEFAULT_BANDS: Mapping[str, tuple[float, str]] = {
    "log_evidence": (0.05, "5 % of |log Z|: about what the Laplace and variational methods leave on small problems"),
    "latent_mean": (0.15, "15 % of the largest latent mean: variational and Laplace means shrink by about that much"),
    "test_latent_mean": (0.15, "as for the latent means at the data"),
    "probabilities": (0.05, "0.05 in probability: what is called a good approximation in the papers' scatter plots"),
}

# level of the z statistics of one row together
LEVEL = 1e-4


# an identity limit beyond this (a condition number of 5e10) would pass what is plainly different
WIDEST_LIMIT = 1e-3

# two values that are both called exact: quadrature states its error at about this
EXACT_LIMIT = 1e-6


# rows on how two solutions came about; their reasons are the news, not their numbers
PREMISES = ("converged", "method", "settings")


class Row(NamedTuple):
    """One compared quantity: PASS iff observed <= limit; INFO where no limit applies; SKIP where none was possible.

    A row of PREMISES is on how the solutions came about: `converged` is FAIL or SKIP, `method` and `settings` are INFO.
    """

    quantity: str
    kind: str
    observed: float
    limit: float
    verdict: str
    why: str


def compare(
    left: Solution, right: Solution, bands: Mapping[str, float] | None = None, limit: float | None = None
) -> list[Row]:
    """Judge two solutions of one problem, quantity by quantity.

    Parameters
    ----------
    left, right : Solution     the same problem; if one of them is a truth (sampled or exact), the other is judged by it
                               and what both learned is compared like an answer
    bands : mapping            quantity -> largest discrepancy from the truth, in place of DEFAULT_BANDS
    limit : float              identity limit in place of max(1e-8, 100 eps cond(K)), of gradients too

    Raises
    ------
    ValueError                 if the problems differ, a band names an unknown quantity, or a band or the limit has
                               nothing to judge here
    """
    different = left.problem.differences(right.problem, ignore=("name", "prior_model", *_learned(left, right)))
    if different:
        raise ValueError(f"right: found a solution of another problem (it differs in {different}), expected the same")
    for name, band in (bands or {}).items():
        if name not in QUANTITIES:
            raise ValueError(f"bands: found {name!r}, expected one of {', '.join(QUANTITIES)}")
        if not band >= 0.0:
            raise ValueError(f"bands[{name!r}]: found {band!r}, expected a number >= 0")
    if limit is not None and not limit > 0.0:
        raise ValueError(f"limit: found {limit!r}, expected a number > 0")
    if is_truth(left) and not is_truth(right):
        left, right = right, left
    if not is_truth(right):
        if bands:
            raise ValueError(
                f"bands: found {', '.join(bands)}, expected none: neither side is sampled or exact, "
                "and an identity has one limit"
            )
        return _stated_rows(left, right) + _identity_rows(left, right, limit)
    if limit is not None:
        raise ValueError(f"limit: found {limit!r} for a comparison with a truth ({right.label}), expected bands")
    rows = _convergence_rows(left, right) + _truth_rows(left, right, bands or {})
    judged = {row.quantity for row in rows if row.kind == "discrepancy" and row.verdict != "SKIP"}
    if unused := sorted(set(bands or {}) - judged):
        raise ValueError(
            f"bands: found {', '.join(unused)}, expected quantities whose distance from the truth is judged here: "
            f"{', '.join(sorted(judged - set(PREMISES))) or 'none'}"
        )
    return rows


def _learned(left: Solution, right: Solution) -> tuple[str, ...]:
    """Fields of the problem that both sides were asked to learn."""
    names = [solution.settings.get("learn") or () for solution in (left, right)]
    asked = [{entry} if isinstance(entry, str) else set(entry) for entry in names]
    return tuple(sorted(asked[0] & asked[1]))


def is_truth(solution: Solution) -> bool:
    """Sampled or exact: what approximations are judged by."""
    return solution.log_evidence_kind in ("sampled", "exact") or solution.latent_mean_se is not None


def has_errors(solution: Solution) -> bool:
    """Whether the solution carries standard errors."""
    return solution.latent_mean_se is not None or solution.log_evidence_se is not None


def relative_difference(left: Any, right: Any, floor: float = 0.0) -> float:
    """Largest difference over the largest entry of the two arrays; NaN anywhere gives NaN, empty arrays 0.

    The largest entry and not each one scales, so that an entry near zero asks for no more digits than its array has.
    Symmetric, at most 2, and so never infinite: a zero array differs from any other by 1. floor is the smallest
    scale: with 1 the differences of arrays below one are absolute ones.
    """
    a, b = np.asarray(left, dtype=float), np.asarray(right, dtype=float)
    if a.shape != b.shape:
        raise ValueError(f"right: found shape {b.shape}, expected {a.shape}")
    if a.size == 0:
        return 0.0
    scale = np.max([np.abs(a).max(), np.abs(b).max(), floor])  # np.max hands NaN on, max would not
    return float(np.abs(a - b).max() / scale) if scale > 0.0 or np.isnan(scale) else 0.0


def prior_condition(problem: Problem) -> float:
    """Condition number of the matrix that is factorised: K_ZZ, or K_XX for a full GP (the worst latent)."""
    worst = 1.0
    for latent in range(1 if problem.shared else problem.n_latents):
        points = problem.X if problem.Z is None else problem.Z[latent]
        scaled = points / problem.lengthscales[latent]
        if problem.smoothness is None:
            correlation = np.exp(-0.5 * cdist(scaled, scaled, "sqeuclidean"))
        else:
            correlation = _matern(cdist(scaled, scaled), float(problem.smoothness[latent]))
        diagonal = problem.jitter[latent] + (problem.noise[latent] if problem.Z is None else 0.0)
        K = problem.variance[latent] * correlation + diagonal * np.eye(len(points))
        worst = max(worst, float(np.linalg.cond(K)))
    return worst


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


def z_statistics(
    left: Solution, right: Solution, quantity: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """(z, standard error) of left minus right, entry by entry, where at least one has standard errors.

    None where a side lacks the quantity or neither has an error. An entry without any error (an exact zero on both
    sides) must agree exactly: its z is 0 or infinite.
    """
    a, b = getattr(left, quantity), getattr(right, quantity)
    if a is None or b is None:
        return None
    errors = [getattr(s, f"{quantity}_se") for s in (left, right)]
    if all(e is None for e in errors):
        return None
    se = np.sqrt(sum(np.square(np.asarray(e, dtype=float)) for e in errors if e is not None))
    se = np.atleast_1d(se)
    gap = np.atleast_1d(np.asarray(a, dtype=float) - np.asarray(b, dtype=float))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(se > 0.0, gap / se, np.where(np.abs(gap) < 1e-12, 0.0, np.inf))
    return z, se


def same_evidence(left: Solution, right: Solution) -> str | None:
    """Why two log evidences are not comparable, or None if they are."""
    if left.log_evidence is None or right.log_evidence is None:
        return "one side has no log evidence"
    if left.evidence_target != right.evidence_target:
        return f"different targets: {left.evidence_target!r} and {right.evidence_target!r}"
    if left.prior_model != right.prior_model:
        return f"different priors: {left.prior_model!r} and {right.prior_model!r}"
    return None


def _stated_rows(left: Solution, right: Solution) -> list[Row]:
    """What the two sides say of themselves that keeps them from being two computations of one fixed point."""
    rows = []
    if found := premises.unfinished(left, right):
        rows.append(Row("converged", "identity", found.residual, found.tolerance, "FAIL", found.why))
    if left.method != right.method:
        why = f"{left.method!r} and {right.method!r}, compared as if theory made them equal"
        rows.append(Row("method", "identity", np.nan, np.nan, "INFO", why))
    if differing := premises.different_settings(left, right):
        rows.append(Row("settings", "identity", np.nan, np.nan, "INFO", f"the sides were asked with {differing}"))
    return rows


def _convergence_rows(candidate: Solution, truth: Solution) -> list[Row]:
    """An approximation is judged at its fixed point; a truth whose chain stood still is shown as no gate met."""
    rows = []
    chains = [side for side in (candidate, truth) if is_truth(side) and not side.converged]
    if not is_truth(candidate) and (found := premises.unfinished(candidate)):
        rows.append(Row("converged", "discrepancy", found.residual, found.tolerance, "FAIL", found.why))
    elif chains:
        why = f"gate not met: {' and '.join(side.label for side in chains)} did not converge, and is no truth yet"
        rows.append(Row("converged", "exactness", np.nan, np.nan, "SKIP", why))
    return rows


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


def _identity_rows(left: Solution, right: Solution, limit: float | None) -> list[Row]:
    bound, why = identity_limit(left.problem) if limit is None else (limit, "limit given by the caller")
    slope_bound, slope_why = gradient_limit(bound, why) if limit is None else (bound, why)
    rows = []
    for name, a, b in _shared_arrays(left, right):
        reason = same_evidence(left, right) if name == "log_evidence" else None
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
            rows.append(Row(name, "identity", observed, slope_bound, _verdict(observed, slope_bound), slope_why))
            continue
        observed = relative_difference(a, b, _no_signal(left.problem, name))
        rows.append(Row(name, "identity", observed, bound, _verdict(observed, bound), why))
    return rows


def _no_signal(problem: Problem, name: str) -> float:
    """Size below which a latent mean is what rounding leaves of labels that cancel: a millionth of the prior's sd.

    Means are sums of terms up to that sd. A floor of a millionth still asks for 1e-14 of the sd at a limit of 1e-8.
    """
    if not name.endswith("_mean"):
        return 0.0
    return 1e-6 * float(np.sqrt((problem.variance + problem.noise).max()))


def _truth_rows(candidate: Solution, truth: Solution, bands: Mapping[str, float]) -> list[Row]:
    rows = _evidence_rows(candidate, truth, bands)
    for name in QUANTITIES[1:]:
        a, b = getattr(candidate, name), getattr(truth, name)
        if a is None or b is None or b.size == 0:
            continue
        if is_truth(candidate) and (has_errors(candidate) or has_errors(truth)):
            rows.append(_z_row(candidate, truth, name))
            continue
        if is_truth(candidate):
            observed = relative_difference(a, b)
            verdict = _verdict(observed, EXACT_LIMIT)
            rows.append(Row(name, "exactness", observed, EXACT_LIMIT, verdict, "two exact values"))
            continue
        if name == "probabilities":
            observed, unit = float(np.abs(a - b).max()), "largest difference"
        else:
            observed, unit = relative_difference(a, b), "relative difference"
        error = getattr(truth, f"{name}_se")
        resolved = "" if error is None else f"; the truth's largest standard error is {error.max():.2g}"
        if name in bands or name in DEFAULT_BANDS:
            band, why = (bands[name], "band given by the caller") if name in bands else DEFAULT_BANDS[name]
            rows.append(Row(name, "discrepancy", observed, band, _verdict(observed, band), f"{unit}: {why}{resolved}"))
        else:
            rows.append(Row(name, "discrepancy", observed, np.nan, "INFO", f"{unit}: no band set{resolved}"))
    return rows


def _evidence_rows(candidate: Solution, truth: Solution, bands: Mapping[str, float]) -> list[Row]:
    name = "log_evidence"
    if reason := same_evidence(candidate, truth):
        return [Row(name, "discrepancy", np.nan, np.nan, "SKIP", reason)]
    assert candidate.log_evidence is not None  # same_evidence has seen to it
    assert truth.log_evidence is not None
    error = float(np.hypot(truth.log_evidence_se or 0.0, candidate.log_evidence_se or 0.0))
    gap = candidate.log_evidence - truth.log_evidence
    if is_truth(candidate):
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
    distance = f"{gap:+.4f} nat (s.e. {error:.2g})"
    if name not in bands and candidate.log_evidence_kind == "lower bound":
        # how loose a bound is says something of the method, not of its implementation
        rows.append(Row(name, "discrepancy", observed, np.nan, "INFO", f"{distance}; no band set for a lower bound"))
        return rows
    band, why = (bands[name], "band given by the caller") if name in bands else DEFAULT_BANDS[name]
    rows.append(Row(name, "discrepancy", observed, band, _verdict(observed, band), f"{distance}; {why}"))
    return rows


def _z_row(candidate: Solution, truth: Solution, name: str) -> Row:
    found = z_statistics(candidate, truth, name)
    if found is None:
        return Row(name, "exactness", np.nan, np.nan, "SKIP", "neither side has standard errors")
    z, se = found
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
    for name in _learned(left, right):
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
