"""How far the chains of a run can be trusted, told alike by every adapter: ESS, R-hat, converged or why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gibbs.chains.diagnostics import Convergence
from validation.door.premises import chain_gate


class Diagnosis(NamedTuple):
    """The fields `ess`, `r_hat`, `converged` of a solution, and what its settings say of the chains."""

    ess: float | None
    r_hat: float | None
    converged: bool
    settings: dict[str, Any]


def diagnosed(chains: Any, convergence: Mapping[str, Convergence], n_chains: int) -> Diagnosis:
    """Read a run: chains has gate and settled, and may have warmed_up, target_reached, refused and collapsed.

    Chains converged if they meet the gate (premises.chain_gate), all by itself judged by the sampler: another verdict
    would be a guess. An entry that never changes has no effective size: it is left out of ESS and R-hat and shows in
    `settled`.
    """
    ess = {
        name: float(min(np.nanmin(result.ess_bulk), np.nanmin(result.ess_tail)))
        for name, result in convergence.items()
        if np.any(np.isfinite(result.ess_bulk))
    }
    known = [np.asarray(convergence[name].r_hat)[np.isfinite(convergence[name].r_hat)] for name in ess]
    r_hat = max((float(result.max()) for result in known if result.size), default=None)
    least = min(ess.values(), default=None)
    against = []
    if not chains.settled:
        against.append("a chain stands still")
    if not getattr(chains, "warmed_up", True):
        against.append("the warm-up ended before the chains had forgotten their start")
    if not getattr(chains, "target_reached", True):
        against.append("target_ess was not reached")
    if refused := getattr(chains, "refused", None):
        against += [f"{rate:.2g} {name} proposals a sweep refused" for name, rate in refused.items() if rate]
    if any(np.any(np.isnan(result.r_hat)) for result in convergence.values()):
        against.append("an entry never moves")
    if any(np.any(np.isposinf(result.r_hat)) for result in convergence.values()):
        against.append("halves of chains stand still at different values")
    settings: dict[str, Any] = {
        "gate": bool(chains.gate),
        "settled": bool(chains.settled),
        **{f"ess_{name}": value for name, value in ess.items()},
    }
    if against:  # the sampler's own reasons, beside the numbers of the gate
        settings["against"] = "; ".join(against)
    result = chain_gate("gate not met", n_chains, r_hat, least, "; ".join(against))
    if not chains.gate:
        settings["reason"] = result.why.removeprefix("gate not met: ")
    return Diagnosis(least, r_hat, bool(chains.gate), settings)
