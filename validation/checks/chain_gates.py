"""When a sampler calls its chains a truth: every condition of the gate, met to the last digit or missed by it.

Chains that have met need more draws than a check can pay, and chains that have not fail by several conditions at once.
So what the diagnostics say is put in the place of what they would find, and the run is one that was made: what is left
is the sampler's own verdict.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Context, Outcome, check, flaws
from validation.checks.few_data import Few
from validation.checks.standard_errors import DISTRIBUTIONS, PAPER, Sampler, sampled
from validation.problem import Problem

Array = NDArray[np.float64]
Change = Callable[[Any], Any]  # of a finished run

_DRAWS, _CHAINS, _THIN = 8, 4, 2
# least effective sizes, largest R-hat, longest autocorrelation time in sweeps: what the gate just lets pass
_JUST: Mapping[str, float] = {
    "ess_bulk": 1e4, "ess_tail": 1e4, "r_hat": 1.005, "autocorrelation_time": _DRAWS * _THIN / 100.0,
}  # fmt: skip
_WORSE: Mapping[str, float] = {"ess_bulk": 0.999, "ess_tail": 0.999, "r_hat": 1.001, "autocorrelation_time": 1.001}
_SIZES: Mapping[str, Any] = {"n_draws": _DRAWS, "n_warmup": 1, "thin": _THIN}
_LEARNT: Mapping[str, Any] = {"hyperprior": DISTRIBUTIONS, "learn": ("variance",), "n_steps": 1}


class Judged(NamedTuple):
    """A sampler, the module that gives the verdict, what stands still in it, and what else it must look at.

    still : changes      each of the finished run, after which one chain stands still in one entry
    against : changes    each of the finished run, after which the gate is not met though every chain moves
    """

    sampler: Sampler
    module: str
    still: tuple[Change, ...]
    against: tuple[Change, ...]


def _held(name: str, *entry: int) -> Change:
    """The second chain keeps one entry (the first of each axis beyond) of what was kept."""

    def change(finished: Any) -> Any:
        value = np.array(finished.kept[name])
        where: Any = (1, slice(None), *(entry or (0,) * (value.ndim - 2)))
        value[where] = value[where][0]
        return finished._replace(kept={**finished.kept, name: value})

    return change


def _total(name: str, value: float, chain: int = 1) -> Change:
    def change(finished: Any) -> Any:
        total = np.array(finished.totals[name], dtype=np.float64)
        total[chain] = value
        return finished._replace(totals={**finished.totals, name: total})

    return change


def _told(**fields: Any) -> Change:
    return lambda finished: finished._replace(**fields)


_UNFINISHED = (_told(warmed_up=False), _told(target_reached=False))
JUDGED = (
    Judged(Sampler("gibbs-logit", Few("logit"), {}), "sampling", (_held("latent"),), _UNFINISHED),
    Judged(Sampler("gibbs-probit", Few("multinomial-probit"), {}), "multilatent", (_held("auxiliary"),), _UNFINISHED),
    Judged(Sampler("gibbs-threshold", Few("threshold", 0.3), {}), "multilatent", (_held("auxiliary"),), _UNFINISHED),
    Judged(
        Sampler("mh-softmax", Few("softmax"), {"moves": ("scaled", "flow")}), "softmax",
        (_total("moved", 0.0), _total("acceptance.flow", 0.084 * _DRAWS), _total("acceptance.scaled", 0.024 * _DRAWS),
         _total("log_step.flow", -13.0 * _DRAWS, 0), _total("log_step.scaled", -13.0 * _DRAWS, 0)),
        _UNFINISHED,
    ),
    Judged(Sampler("gibbs-pairwise", Few("threshold", fitc=True), {}), "pairwise", (_held("log_joint"),), ()),
    Judged(
        Sampler("gibbs-probit", Few("probit"), dict(_LEARNT)), "hyper", (_held("hyper", 0, 0), _held("latent")),
        (_total("refused_gradient", 1.0), _total("refused_slice", 1.0)),
    ),
)  # fmt: skip


def _moving(finished: Any, seed: int) -> Any:
    """The run, with kept draws and totals of chains that all move and take whatever is proposed."""
    rng = np.random.default_rng(seed)
    kept = {name: value * np.exp(1e-3 * rng.standard_normal(value.shape)) for name, value in finished.kept.items()}
    totals = {
        name: np.full(value.shape, 0.0 if name.startswith(("refused", "log_step")) else float(_DRAWS))
        for name, value in finished.totals.items()
    }
    return finished._replace(kept=kept, totals=totals)


def _verdicts(entry: Judged) -> Iterable[tuple[str, tuple[bool, bool], tuple[bool, bool]]]:
    """(what was changed, (settled, gate) as they should be, as they are)."""
    module = importlib.import_module(f"gibbs.models.{entry.module}")
    diagnosed, run = module.convergence, module.run
    asked: list[int] = []
    finished: dict[int, Any] = {}

    def verdict(
        chains: int = _CHAINS, change: Change | None = None, said: Mapping[str, float] | None = None
    ) -> tuple[bool, bool]:
        def once(*given: Any, **options: Any) -> Any:
            if chains not in finished:
                finished[chains] = _moving(run(*given, **options), chains)
            return finished[chains] if change is None else change(finished[chains])

        def found(draws: Any, thin: int = 1) -> Any:
            shape = np.shape(draws)[2:]
            values = {name: np.full(shape, limit) for name, limit in _JUST.items()}
            for name, factor in (said or {}).items() if not asked else ():
                values[name].flat[-1] *= factor  # one entry of one quantity
            asked.append(thin)
            return diagnosed(np.arange(8.0).reshape(2, 4), thin)._replace(**values)

        asked.clear()
        with mock.patch.object(module, "run", once), mock.patch.object(module, "convergence", found):
            value = sampled(entry.sampler, 3, n_chains=chains, **_SIZES)
        return bool(value.settled), bool(value.gate)

    yield "all at their limits", (True, True), verdict()
    yield "how many sweeps a draw is", (True, True), (bool(asked), set(asked) == {_THIN})
    yield "three chains", (True, False), verdict(chains=_CHAINS - 1)
    for name, factor in _WORSE.items():
        yield f"{name} beyond", (True, False), verdict(said={name: factor})
    for number, change in enumerate(entry.still):
        yield f"standing still {number}", (False, False), verdict(change=change)
    for number, change in enumerate(entry.against):
        yield f"against {number}", (True, False), verdict(change=change)


def _register(entry: Judged) -> None:
    method = entry.sampler.method
    kind = "sampled" if entry.module == "hyper" else entry.module

    @check(
        f"identity/{method}/gate_of_{kind}",
        paper=PAPER.get(method, "riihimaki2013"),
        question="Is a gate met by chains that just meet each of its conditions, and by none that miss one?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem | None) -> Iterable[Outcome]:
        rows = list(_verdicts(entry))
        wrong = [f"{what}: {result} for {wanted}" for what, wanted, result in rows if wanted != result]
        yield flaws(len(wrong), "; ".join(wrong) or f"{len(rows)} verdicts: settled, and a truth", "gibbs", "verdicts")


for _entry in JUDGED:
    _register(_entry)
