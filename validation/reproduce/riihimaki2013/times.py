"""riihimaki2013, section 5.4: how long inference takes at nine values of the hyper-parameters."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from validation.door import arguments
from validation.door.problem import Problem
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, above, below
from validation.reproduce.experiment import Outcome, Say, Table, experiment
from validation.reproduce.riihimaki2013 import setting

Array = NDArray[np.float64]
METHODS = ("laplace", "nested-ep", "vb-probit", "gibbs-probit")
_LA, _EP, _VB, _MCMC = METHODS


def decide(seconds: Mapping[str, Array]) -> list[Decided]:
    """What section 5.4 says of the times: seconds by method, a place of the grid each; of chains, until they serve."""

    def ratio(method: str) -> float:
        return float(np.median(seconds[method] / seconds[_LA]))

    key, text = "la-kinds-of-time", "median over the grid of seconds over LA's"
    return [
        above(key, f"{text}: EP, at least 2", ratio(_EP), 2.0),
        below(key, f"{text}: EP, at most 5", ratio(_EP), 5.0),
        above(key, f"{text}: VB, at least 2", ratio(_VB), 2.0),
        below(key, f"{text}: VB, at most 5", ratio(_VB), 5.0),
        below("vb-should-be-faster", f"{text}: VB by quadrature", ratio(_VB), 3.0),
        above("mcmc-slow", f"{text}: MCMC until each latent value has the effective draws", ratio(_MCMC), 100.0),
    ]


@dataclass(frozen=True, kw_only=True)
class TimesOptions:
    """Options of `times`."""

    n: int = 150
    log_variances: Sequence[float] = (2.0, 5.0, 8.0)
    log_lengthscales: Sequence[float] = (2.0, 2.5, 3.5)
    repeats: int = 3
    tolerance: float = 1e-4
    n_draws: int = 200
    effective: float = 100.0
    seed: int = 0


@experiment(
    "riihimaki2013",
    "times",
    "seconds of inference at nine values of the hyper-parameters",
    "LA is the fastest, EP and VB take about three times as long, MCMC more than a hundred times (section 5.4)",
)
def times(asked: TimesOptions, say: Say) -> Outcome:
    """USPS 3 against 5 against 7, n training rows; the least of `repeats` runs of each, chains once."""
    arguments.integer(asked.repeats, "repeats", at_least=1)
    data, note = setting.find("usps-357")
    rows = np.random.default_rng(asked.seed).permutation(data.n)[: arguments.integer(asked.n, "n", at_least=10)]
    result: dict[str, list[float]] = {method: [] for method in METHODS}
    listed: list[tuple[object, ...]] = []
    for log_variance in asked.log_variances:
        for log_lengthscale in asked.log_lengthscales:
            problem = Problem(
                "usps-357", data.X[rows], data.y[rows], data.n_classes, "multinomial-probit",
                float(np.exp(log_variance)), float(np.exp(log_lengthscale)), jitter=setting.JITTER, shared=True,
            )  # fmt: skip
            for method in METHODS:
                taken, iterations = _seconds(method, problem, asked)
                result[method].append(taken)
                listed.append((log_variance, log_lengthscale, setting.NAMES[method], taken, iterations))
            say(f"log variance {log_variance:g}, log lengthscale {log_lengthscale:g}: "
                + ", ".join(f"{setting.NAMES[method]} {result[method][-1]:.3g} s" for method in METHODS))  # fmt: skip
    return Outcome(
        {"n": rows.size, "tolerance": asked.tolerance, "effective draws": asked.effective, "seed": asked.seed},
        (
            Table(
                "times",
                ("log variance", "log lengthscale", "method", "seconds", "iterations"),
                tuple(listed),
                "Seconds until convergence; of MCMC, until each latent value has the effective draws",
            ),
            decisions.table(decide({name: np.array(each) for name, each in result.items()}), "What section 5.4 says"),
        ),
        (),
        tuple(
            text
            for text in (
                note,
                f"{rows.size} of the paper's 1157 rows; which nine values it took is not printed",
                f"MCMC: {asked.n_draws} draws of four chains, scaled to {asked.effective:g} effective draws each",
                "seconds are of this machine and of these programs",
            )
            if text
        ),
    )


def _seconds(method: str, problem: Problem, asked: TimesOptions) -> tuple[float, int]:
    """Least seconds over repeats and iterations; of chains, scaled to the effective draws."""
    if method == _MCMC:
        began = time.perf_counter()
        answer = setting.answer(method, problem, n_chains=4, n_draws=asked.n_draws, n_warmup=50, seed=asked.seed)
        taken = time.perf_counter() - began
        assert answer.ess is not None
        return taken * asked.effective / float(answer.ess), int(answer.iterations or 0)
    each = []
    for _ in range(asked.repeats):
        began = time.perf_counter()
        answer = setting.answer(method, problem, tolerance=asked.tolerance, gradients=False)
        each.append(time.perf_counter() - began)
    return min(each), int(answer.iterations or 0)
