"""riihimaki2013, section 5.3, Fig. 7: evidence and predictive performance on a grid of log l and log σ²."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.door import arguments
from validation.ledger.marker import equation
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, above, below
from validation.reproduce.experiment import Outcome, Say, Table, experiment
from validation.reproduce.printed import option
from validation.reproduce.published import published
from validation.reproduce.riihimaki2013 import setting

Array = NDArray[np.float64]
METHODS = ("nested-ep", "nested-iep", "vb-probit", "laplace")


class Surfaces(NamedTuple):
    """Over log σ² (rows) and log l (columns); NaN where a method found no evidence."""

    log_evidence: Array  # a lower bound for vb-probit
    log_predictive_density: Array  # sum over the test labels
    accuracy: Array
    converged: NDArray[np.bool_]


@equation("riihimaki2013", "u5.3-grid")
def hyperparameter_grid(
    method: str,
    cut: setting.Parts,
    log_variances: Sequence[float],
    log_lengthscales: Sequence[float],
    *,
    max_iterations: int = 200,
    tolerance: float = 1e-6,
    say: Callable[[str], object] = lambda text: None,
) -> Surfaces:
    """Log evidence, log predictive density of the test part and its accuracy, point by point: Fig. 7 of riihimaki2013.

    Parameters
    ----------
    method : str               nested-ep, nested-iep, vb-probit or laplace
    cut : Parts                train and test rows
    log_variances : (a,)       of log σ²
    log_lengthscales : (b,)    of log l
    max_iterations, tolerance  of the method at each point
    """
    arguments.choice(method, METHODS, "method")
    shape = (len(log_variances), len(log_lengthscales))
    if 0 in shape:
        raise ValueError(f"log_variances: found a grid of {shape[0]} x {shape[1]}, expected points in both directions")
    evidence, density, accuracy = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    converged = np.zeros(shape, dtype=bool)
    for i, log_variance in enumerate(log_variances):
        for j, log_lengthscale in enumerate(log_lengthscales):
            problem = setting.pose(cut, log_variance, log_lengthscale)
            answer = setting.answer(method, problem, max_iterations=max_iterations, tolerance=tolerance)
            assert answer.probabilities is not None  # the problem has test inputs
            if answer.log_evidence is not None:
                evidence[i, j] = answer.log_evidence
            density[i, j] = cut.y_test.size * setting.mean_log_density(answer.probabilities, cut.y_test)
            accuracy[i, j] = float(np.mean(answer.probabilities.argmax(axis=1) == cut.y_test))
            converged[i, j] = answer.converged
        say(f"{setting.NAMES[method]}: log variance {log_variance:g} done")
    return Surfaces(evidence, density, accuracy, converged)


def decide(surfaces: Mapping[str, Surfaces], log_variances: Sequence[float], log_lengthscales: Sequence[float]
           ) -> list[Decided]:  # fmt: skip
    """What section 5.3 says of the surfaces; densities are sums over the test rows. Needs all four methods."""
    ep, iep, vb, la = (surfaces[method] for method in METHODS)

    def peak(surface: Array) -> tuple[int, int]:
        i, j = np.unravel_index(int(np.nanargmax(surface)), surface.shape)
        return int(i), int(j)

    def lost(of: Surfaces, name: str) -> float:
        """By how much the surface is below its maximum where the evidence is largest."""
        surface = getattr(of, name)
        return float(np.nanmax(surface) - surface[peak(of.log_evidence)])

    density = {method: float(np.nanmean(s.log_predictive_density)) for method, s in surfaces.items()}
    rest = max(value for method, value in density.items() if method != "nested-ep")
    behind = [np.nanmean(ep.log_predictive_density - one.log_predictive_density, axis=1) for one in (vb, la)]
    at_ep = log_variances[peak(ep.log_evidence)[0]]
    top = {method: float(s.accuracy.max()) for method, s in surfaces.items()}
    along = la.accuracy.mean(axis=1)
    listed = [
        below("fig7-ep-agreement", "EP: log predictive density lost where its evidence peaks",
              lost(ep, "log_predictive_density"), 2.0),
        above("fig7-iep-bias", "IEP: log predictive density lost where its evidence peaks, above EP's",
              lost(iep, "log_predictive_density"), lost(ep, "log_predictive_density")),
        above("fig7-ep-highest", "EP: log predictive density, mean over the grid, above the next", density["nested-ep"],
              rest),
        *(above("fig7-vb-la-small", f"{name}: log predictive density behind EP's at the largest sigma², above that at "
                "the smallest", float(gap[-1]), float(gap[0])) for name, gap in zip(("VB", "LA"), behind, strict=True)),
        *(below("fig7-vb-la-small", f"{name}: log sigma² where its evidence peaks, below EP's",
                log_variances[peak(one.log_evidence)[0]], at_ep) for name, one in (("VB", vb), ("LA", la))),
        above("fig7-accuracy", "largest accuracy: the lower of VB's and LA's, above EP's and IEP's",
              min(top["vb-probit"], top["laplace"]), max(top["nested-ep"], top["nested-iep"])),
        above("fig7-accuracy", "VB: accuracy lost where its evidence peaks", lost(vb, "accuracy"), 0.005),
        below("fig7-la-calibrated", "LA: accuracy lost where its evidence peaks", lost(la, "accuracy"), 0.005),
        below("fig7-la-calibrated", "LA: mean accuracy at the largest sigma², below its largest along sigma²",
              float(along[-1]), float(along.max())),
    ]  # fmt: skip
    wanted = (8.0, 2.5)
    if wanted[0] in log_variances and wanted[1] in log_lengthscales:
        place = tuple(log_variances).index(wanted[0]), tuple(log_lengthscales).index(wanted[1])
        listed += [
            below("fig8-good-hyper", f"{name}: log predictive density at log sigma² = 8, log l = 2.5 below the grid's "
                  "largest by", float(np.nanmax(one.log_predictive_density) - one.log_predictive_density[place]), 5.0)
            for name, one in (("EP", ep), ("IEP", iep))
        ]  # fmt: skip
    return [decisions.figure("fig7", [one for one in listed if one.claim.startswith("fig7")]), *listed]


@dataclass(frozen=True, kw_only=True)
class Fig7Options:
    """Options of `fig7`."""

    dataset: str = setting.THREE_DIGITS
    methods: Sequence[str] = METHODS
    n: int = option(200, 1157, "training rows")
    n_test: int = option(300, 1175, "test rows")
    log_variances: Sequence[float] = (0.0, 2.0, 4.0, 6.0, 8.0)
    log_lengthscales: Sequence[float] = (1.5, 2.0, 2.5, 3.0, 3.5)
    max_iterations: int = 200
    seed: int = 0


@experiment(
    "riihimaki2013",
    "fig7",
    "log evidence, log predictive density and accuracy on a grid of hyper-parameters",
    "with EP the maxima of evidence and predictive density agree, with IEP nearly; VB and LA favour small magnitudes, "
    "and their predictive densities are low where log σ² is large; EP has the highest ones (section 5.3, Fig. 7)",
    cells=lambda asked: len(asked.methods) * len(asked.log_variances),
)
def fig7(asked: Fig7Options, say: Say) -> Outcome:
    """Solved, not learned, at each point of the grid."""
    cut = setting.parts(asked.dataset, n=asked.n, n_test=asked.n_test, seed=asked.seed)
    printed = published("riihimaki2013", "text")["grid"] if asked.dataset == setting.THREE_DIGITS else {}
    rows: list[tuple[object, ...]] = []
    best: list[tuple[object, ...]] = []
    stopped = 0
    surfaces: dict[str, Surfaces] = {}
    for method in asked.methods:
        result = hyperparameter_grid(
            method, cut, asked.log_variances, asked.log_lengthscales, max_iterations=asked.max_iterations, say=say
        )
        surfaces[method] = result
        stopped += int(np.size(result.converged) - np.count_nonzero(result.converged))
        for i, a in enumerate(asked.log_variances):
            for j, b in enumerate(asked.log_lengthscales):
                rows.append((setting.NAMES[method], float(a), float(b), *(float(s[i, j]) for s in result[:3])))
        at_evidence = np.unravel_index(np.nanargmax(result.log_evidence), result.log_evidence.shape)
        for name, surface in zip(Surfaces._fields[:3], result[:3], strict=True):
            i, j = divmod(int(np.nanargmax(surface)), surface.shape[1])
            best.append(
                (setting.NAMES[method], name.replace("_", " "), float(surface[i, j]),
                 printed.get(name, {}).get(method), float(asked.log_variances[i]), float(asked.log_lengthscales[j]),
                 float(surface[at_evidence]))
            )  # fmt: skip
    notes = [*cut.notes]
    if stopped:
        notes.append(f"{stopped} points had not converged to 1e-6 after {asked.max_iterations} iterations")
    notes.append("the paper prints no grid; its text quotes the highest contours of IEP alone, of 1157 and 1175 rows")
    message: tuple[Table, ...] = ()
    if set(METHODS) <= surfaces.keys():
        decided = decide(surfaces, asked.log_variances, asked.log_lengthscales)
        message = (decisions.table(decided, "What sections 5.3 and 5.4 say of the surfaces"),)
    return Outcome(
        {"data": f"{asked.dataset}: n = {cut.y.size}, {cut.y_test.size} test rows", "seed": asked.seed},
        (
            Table(
                "maxima",
                ("method", "surface", "largest", "paper", "log variance", "log lengthscale", "where evidence peaks"),
                tuple(best),
                "Where each surface is highest, and its value where the evidence is",
            ),
            Table(
                "grid",
                ("method", "log variance", "log lengthscale", "log evidence", "log predictive density", "accuracy"),
                tuple(rows),
                "All points",
            ),
            *message,
        ),
        (),
        tuple(notes),
    )
