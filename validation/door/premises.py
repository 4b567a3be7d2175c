"""What two solutions say of how they came about, before any number of theirs is compared.

An iteration that was cut short has no fixed point, chains that have not met say nothing of one posterior, numbers of
two models are no two numbers of one, two methods need not agree, and two powers of one divergence should not: none of
that shows in the arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from validation.door.solution import Solution

# A chain's gate: from here on its own errors can be trusted. R-hat is the rank one, the effective number of draws the
# smallest of bulk and tail over latents, their squares and the log joint.
GATE_R_HAT = 1.005
GATE_ESS = 10_000.0
GATE_CHAINS = 4
GATE_TIMES = 100  # autocorrelation times a chain, which is ESS over the number of chains

# independent draws need no gate; with fewer, z of their variances are visibly no normal ones
LEAST_INDEPENDENT = 1000

# models of which a truth can be had; a regression on labels is exact about labels that nobody measured
TRUTH_TARGETS = ("log p(y)", "pairwise model")

# options by which a run is asked for steps and not for a fixed point
_STEPS = ("n_steps", "batches", "batch_size")

# what a run reports of itself, and what decides only how much of the work is done at a time: never part of the question
_REPORTED = frozenset(
    {
        "blas_threads",
        "block_size",
        "diverged",
        "digits",
        "evaluations",
        "gradients",
        "last_rate",
        "learning",
        "max_iterations",
    }
    | {"memory_budget", "moments", "quadrature_error", "reason", "trace"}
)

# ways to one fixed point: they matter to a run of so many steps, which ends somewhere on the way
_WAYS = frozenset(
    {"accelerate", "damping", "inner", "inner_damping", "inner_schedule", "nat_rate", "optimizer", "rate", "schedule"}
    | {"scheme", "seed", "stop", "window"}
)


class Gate(NamedTuple):
    """Whether errors of a sampled side, or an exact side, can be trusted, and the sentence that says so."""

    met: bool
    why: str


def is_sampled(solution: Solution) -> bool:
    """Whether its numbers come from draws: it says so of log Z, or states a standard error of anything."""
    if solution.log_evidence_kind == "sampled" and solution.log_evidence is not None:
        return True
    return any(getattr(solution, field.name) is not None for field in fields(solution) if field.name.endswith("_se"))


def claims_truth(solution: Solution) -> bool:
    """Whether a solution offers itself as what others are judged by: sampled, or exact; met gate or not."""
    if is_sampled(solution):
        return True
    exact = solution.log_evidence_kind == "exact" and solution.log_evidence is not None
    return exact and solution.evidence_target in TRUTH_TARGETS


def is_truth(solution: Solution, target: str = "log p(y)") -> bool:
    """Whether others may be judged by it: sampled or exact, of that target, and with its gate met."""
    return claims_truth(solution) and solution.evidence_target == target and gate(solution).met


def gate(solution: Solution) -> Gate:
    """The gate of a side that claims to be a truth, from what it states; what is not stated is not met.

    Chains: converged, at least 4 of them, rank R-hat <= 1.005, ESS >= 10 000 and 100 autocorrelation times each (ESS is
    number of chains times length over autocorrelation time, so that this is ESS >= 100 chains). Independent draws
    (method "exact-probit", or the setting independent_draws): 1000 of them. Exact values: converged.
    """
    if not is_sampled(solution):
        return Gate(
            solution.converged, "exact" if solution.converged else f"{_described(solution)}: no exact value yet"
        )
    if solution.method == "exact-probit" or solution.settings.get("independent_draws") is True:
        n = solution.ess
        if n is None:
            return Gate(False, f"{solution.label} states no number of draws, expected it as ess")
        met = solution.converged and n >= LEAST_INDEPENDENT
        return Gate(met, f"{solution.label}: {n:.0f} independent draws (at least {LEAST_INDEPENDENT})")
    chains = solution.settings.get("n_chains")
    n_chains = chains if isinstance(chains, int) and not isinstance(chains, bool) else None
    return chain_gate(solution.label, n_chains, solution.r_hat, solution.ess, _own_reason(solution))


def chain_gate(label: str, n_chains: int | None, r_hat: float | None, ess: float | None, reason: str = "") -> Gate:
    """The gate of chains by their numbers; `reason` is what the sampler itself has against them."""
    if reason.startswith("R-hat"):  # a sentence of this kind already
        return Gate(False, f"{label}: {reason}")
    least = max(GATE_ESS, GATE_TIMES * float(n_chains or 0))
    told, met = [], not reason
    for name, value, digits, fine, expected in (
        ("R-hat", r_hat, ".4f", r_hat is not None and r_hat <= GATE_R_HAT, f"at most {GATE_R_HAT}"),
        ("ESS", ess, ".0f", ess is not None and ess >= least, f"at least {least:.0f}"),
        ("chains", n_chains, "d", n_chains is not None and n_chains >= GATE_CHAINS, f"at least {GATE_CHAINS}"),
    ):
        met &= fine
        if name != "chains" or not fine:
            told.append(f"{name} {'not stated' if value is None else format(value, digits)} ({expected})")
    if reason:
        told.append(reason)
    return Gate(met, f"{label}: {', '.join(told)}")


def _own_reason(solution: Solution) -> str:
    return "" if solution.converged else str(solution.settings.get("reason") or "it says that it did not converge")


class Unfinished(NamedTuple):
    """Which sides did not converge: the largest residual with its tolerance (NaN where unsaid), and the whole text."""

    residual: float
    tolerance: float
    why: str


def asked_for_steps(solution: Solution) -> bool:
    """Whether the settings say that a number of steps was asked for: such a run claims no fixed point.

    Steps of a sampler are its own affair: draws have no fixed point.
    """
    return not is_sampled(solution) and any(solution.settings.get(name) is not None for name in _STEPS)


def unfinished(*sides: Solution) -> Unfinished | None:
    """The sides that were asked for a fixed point and say that they did not reach it; None if there is none."""
    results = [side for side in sides if not side.converged and not asked_for_steps(side)]
    if not results:
        return None
    # a run may stop for another reason than its residual; only a residual above the tolerance explains anything
    known = [(side.residual, _tolerance(side)) for side in results if side.residual is not None]
    residual, tolerance = max(known, default=(np.nan, np.nan))
    told = " and ".join(_described(side) for side in results)
    why = f"{told}: an iteration that did not converge has no fixed point (max_iterations sets how far it may go)"
    return Unfinished(residual, tolerance if residual > tolerance else np.nan, why)


def _described(side: Solution) -> str:
    after = f" after {side.iterations} iterations" if side.iterations else ""
    left = "" if side.residual is None else f" at a residual of {side.residual:.2g}"
    reason = side.settings.get("reason")
    return f"{side.label} not converged{after}{left}" + (f" ({reason})" if reason else "")


def _tolerance(side: Solution) -> float:
    value = side.settings.get("tolerance")
    return float(value) if isinstance(value, (int, float)) else np.nan


def learned(left: Solution, right: Solution) -> tuple[str, ...]:
    """Fields of the problem that both sides were asked to learn."""
    names = [solution.settings.get("learn") or () for solution in (left, right)]
    asked = [{entry} if isinstance(entry, str) else set(entry) for entry in names]
    return tuple(sorted(asked[0] & asked[1]))


def different_settings(left: Solution, right: Solution) -> str:
    """Settings that both sides state, that matter, and that differ, as 'alpha 0.5 and 1.0'; empty if there are none.

    A setting that one side alone states is no difference: witnesses state what they have a choice in.
    """
    ignored = _REPORTED
    if not (asked_for_steps(left) or asked_for_steps(right)):
        ignored |= _WAYS
    return ", ".join(
        f"{name} {a} and {b}" for name, a, b in _both(left.settings, right.settings) if name not in ignored and a != b
    )


# how near a fixed point a run ends, and which derivative it reports there: not where the fixed point is
_NOWHERE = frozenset({"tolerance", "gradient_rule"})


def comparable_settings(solution: Solution) -> dict[str, Any]:
    """The settings that matter to where a fixed point is."""
    return {name: value for name, value in solution.settings.items() if name not in _REPORTED | _WAYS | _NOWHERE}


def same_settings(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether no setting that matters to a fixed point is stated by both and differs."""
    return all(a == b for name, a, b in _both(left, right) if name not in _REPORTED | _WAYS | _NOWHERE)


def _both(left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in sorted(set(left) & set(right)):
        a, b = left[name], right[name]
        if name == "learn":  # a name stands for itself, and the order of several says nothing
            a, b = (sorted({entry} if isinstance(entry, str) else set(entry or ())) for entry in (a, b))
        yield name, a, b
