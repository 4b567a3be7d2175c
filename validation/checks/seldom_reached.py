"""Rules that ordinary runs do not come to: a factor that touches nothing, an empty cluster, sweeps that are cut short.

Each is asked by itself, with what it is handed made up: the answer follows from its definition.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.problem import Problem


@check(
    "identity/ep/moment_gaps",
    paper="villacampa2017",
    question="Is the gap of a factor the standardised change of its moments, and none where it touches nothing?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.villacampa2017.factors import moment_mismatch

    rng, gap, kinds = np.random.default_rng(51), 0.0, [0, 0]
    for _ in range(24):
        m = 4
        roots = rng.standard_normal((2, m, m + 2))
        old, new = roots @ np.swapaxes(roots, 1, 2) / m
        mean, other, upsilon = rng.standard_normal((3, m))
        var, var_hat = upsilon @ old @ upsilon, upsilon @ new @ upsilon
        changes = abs(var / var_hat - 1.0), abs(upsilon @ (other - mean)) * np.sqrt(var) / var_hat
        kinds[int(np.argmax(changes))] += 1
        result = moment_mismatch(mean, old, SimpleNamespace(mean=other, cov=new), upsilon)  # type: ignore[arg-type]
        gap = max(gap, abs(result / max(changes) - 1.0))
    yield Compared(gap, 1e-12, f"24 factors, {kinds[0]} by their variance, {kinds[1]} by their mean", "reference",
                   "definition")  # fmt: skip
    yield flaws(not min(kinds), f"both occur: {kinds}", "judge", "kinds that are missing")
    nothing = moment_mismatch(mean, old, SimpleNamespace(mean=other, cov=new), np.zeros(m))  # type: ignore[arg-type]
    yield flaws(nothing != 0.0, f"no projection on the inducing values: {nothing}", "reference", "gaps")


@check(
    "print/svi/empty_clusters",
    paper="izmailov2016",
    question="Does a centre that loses all its rows move to the row farthest from its own centre?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016.experiments import kmeans_inducing_points

    X = np.array([[2.0, 1], [2, 1], [5, 6], [2, 0], [7, 2], [7, 3], [4, 0], [5, 4]])
    order: Any = SimpleNamespace(permutation=lambda size: np.array([1, 2, 0, 3, 4, 6, 5])[:size])
    # distinct rows are sorted: it starts at (2, 1), (4, 0), (2, 0); then the first centre is nobody's nearest any more
    one, two = (kmeans_inducing_points(order, X, 3, steps) for steps in (1, 2))
    owner = np.argmin(((X[:, None] - one) ** 2).sum(axis=2), axis=1)
    far = ((X - one[owner]) ** 2).sum(axis=1)
    lost = [p for p in range(3) if not np.any(owner == p)]
    yield flaws(lost != [0], f"without rows after a step: {lost}", "judge", "itself")
    wanted = np.array([X[np.argmax(far)] if p in lost else X[owner == p].mean(axis=0) for p in range(3)])
    gap = float(np.abs(two - wanted).max())
    yield Compared(gap, 1e-12, "means of the rows, and the farthest row", "reference", "definition")
    end = kmeans_inducing_points(order, X, 3, 100)
    owner = np.argmin(((X[:, None] - end) ** 2).sum(axis=2), axis=1)
    gap = float(max(np.abs(X[owner == p].mean(axis=0) - end[p]).max() for p in range(3)))
    yield Compared(gap, 1e-12, "in the end each is the mean of its rows", "reference", "definition")


class _Sweeps:
    """A run of made-up sweeps, each half of the last."""

    def __init__(self, values: Iterable[float] = (), distance: float | None = None) -> None:
        self.points = SimpleNamespace(hyper=None)
        self._residual, self._values = 1.0, iter(values)
        if distance is not None:
            self.distance = lambda: distance
            self.ascended = lambda: next(self._values, 5.0)

    def refresh(self) -> Any:
        self._residual *= 0.5
        return SimpleNamespace(residual=self._residual, n_improper=2, why="")

    def log_evidence(self) -> float:
        return -self._residual


@check(
    "identity/apep/sweeps_end",
    paper="villacampa2020",
    question="Do plain sweeps end converged, by their number, far from an optimum, or by gains that count no more?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.ending import ENOUGH, ending
    from fast.sparse_classes.training import Settings, converge

    told: list[Any] = []
    ends = {}
    run: Any = _Sweeps()
    ends["cut"] = converge(run, Settings(tolerance=1e-300, max_iterations=6, trace=True), told.append)
    wrong = ends["cut"].converged or ends["cut"].n_improper != 12 or ends["cut"].reason != "6 sweeps made"
    wrong = wrong or not np.array_equal(ends["cut"].trace, -(0.5 ** np.arange(1.0, 7.0)))
    observed = [(state.iteration, state.log_evidence, state.residual, state.n_improper) for state in told]
    wrong = wrong or observed != [(k, -(0.5**k), 0.5**k, 2 * k) for k in range(1, 7)]
    yield flaws(wrong, f"six sweeps: {ends['cut'].reason}, told {observed}", "fast", "runs")

    class Proper(_Sweeps):
        def refresh(self) -> Any:
            swept = super().refresh()
            swept.n_improper = 0
            return swept

    for distance, expected in ((None, True), (99.0, True), (101.0, False)):
        run = Proper((), None if distance is None else distance * 1e-3)
        end = converge(run, Settings(tolerance=1e-3, max_iterations=40))
        wrong = end.converged is not expected or end.iterations != 10 or not end.residual <= 1e-3
        wrong = wrong or ("estimated distance of 1.0e-01" in end.reason) is expected
        yield flaws(wrong, f"a distance of {distance} tolerances: {end.reason}", "fast", "runs")

    rises = [1.0 - 0.5**k for k in range(40)]
    with ending(None, worth=2.0**-6):
        run = Proper(rises, 0.0)
        end = converge(run, Settings(tolerance=1e-300, max_iterations=40))
    # eight steps together gain 2^-k (1 - 2^-8) from the k-th on
    wrong = not end.converged or end.reason != ENOUGH or end.iterations != 14
    yield flaws(wrong, f"gains of eight steps below 1/64: {end.reason} after {end.iterations} sweeps", "fast", "runs")
