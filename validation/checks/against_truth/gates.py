"""Gates: chains too short to have met say so, and nothing is judged by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from validation.checks.core import Compared, Context, Outcome, check
from validation.checks.subjects import SEED
from validation.door import premises
from validation.door.problem import Problem
from validation.judge.compare import compare

# a handful of sweeps from starts far apart: R-hat is far from one, ESS a thousandth of the gate's
_SHORT: Mapping[str, Any] = MappingProxyType({"n_chains": 4, "n_draws": 20, "n_warmup": 2, "seed": SEED})


class Short(NamedTuple):
    """A sampler, a problem of its own, and its paper."""

    sampler: str
    problem: str
    paper: str


SAMPLERS = (
    Short("gibbs-logit", "toy", "wenzel2019"),
    Short("gibbs-probit", "toy-3", "riihimaki2013"),
    Short("gibbs-threshold", "toy-3-threshold", "villacampa2017"),
    Short("gibbs-pairwise", "toy-3-sparse-threshold", "villacampa2017"),
    Short("mh-softmax", "toy-3-softmax", "riihimaki2013"),
)


def short_chains(context: Context, short: Short, problem: Problem) -> Iterable[Outcome]:
    """What the chains say of themselves, and what the judge says when they are offered as a truth."""
    solution = context.solve("gibbs", short.sampler, problem, evidence="none", **_SHORT)
    gate = premises.gate(solution)
    told = bool(not solution.converged and str(solution.settings.get("reason", "")).strip())
    twin = context.solve("gibbs", short.sampler, problem, evidence="none", **{**_SHORT, "seed": SEED + 1})
    verdicts = [row.quantity for row in compare(twin, solution) if row.verdict in ("PASS", "FAIL")]
    for observed, why, left in (
        (not told, "80 draws are not converged, and the reason is stated", solution.label),
        (premises.is_truth(solution, solution.evidence_target), f"{gate.why}: no truth", "the judge"),
        (bool(verdicts), f"verdicts issued against them: {', '.join(verdicts) or 'none'}", "compare"),
    ):
        yield Compared(float(observed), 0.0, why, left, "the gate", "1 if taken for a truth")
    # were they mixed after all, this check would ask nothing
    r_hat = np.inf if solution.r_hat is None else solution.r_hat
    yield Compared(
        (premises.GATE_R_HAT - 1.0) / max(r_hat - 1.0, 1e-12),
        1.0,
        f"R-hat {r_hat:.4f} of these chains is beyond the gate's {premises.GATE_R_HAT}: there is something to say",
        solution.label,
        "the gate",
        "the gate's R-hat - 1 over theirs",
    )


def _register(short: Short) -> None:
    @check(
        f"exactness/{short.sampler}/short_chains",
        paper=short.paper,
        question="Chains that have not mixed report it, and nothing is judged by them.",
        problems=(short.problem,),
    )
    def exactness_short_chains(context: Context, problem: Problem) -> Iterable[Outcome]:
        return short_chains(context, short, problem)


for _short in SAMPLERS:
    _register(_short)
