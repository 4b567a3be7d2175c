"""Rules that ordinary runs do not come to: a factor that touches nothing, an empty cluster, sweeps that are cut short.

Each is asked by itself, with what it is handed made up: the answer follows from its definition.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

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


@check(
    "identity/ep/stages",
    paper="villacampa2017",
    question="Do classifiers learn lengthscales of each input where one factor of all was learned and more may pay?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.ending import ending
    from fast.estimators._base import Fitted
    from fast.estimators._hyper import HyperLearning

    blank = dict.fromkeys(Fitted._fields)
    names = ("variance", "lengthscales", "noise", "Z")

    class Learner(HyperLearning):
        tied, batches, most, gain = True, False, 9.0, 8.0
        stop = False

        def __init__(self) -> None:
            self.stages: list[Any] = []
            self.starts: list[Any] = []

        def _tied(self) -> bool:
            return self.tied

        def _on_batches(self, n: int) -> bool:
            return self.batches

        def _functions(self) -> int:
            return 2

        def _set_stage(self, X: Any, *, each_input: bool | None = None) -> None:
            self.stages.append(each_input)
            self._moved = ("variance", "lengthscales" if each_input else "scale")

        def _most_gain(self, fitted: Any) -> float:
            return self.most

        def _log_prior(self, fitted: Any) -> float:
            return 0.25 * fitted.log_evidence

        def _train(self, X: Any, codes: Any, start: Any, rng: Any, callback: Any) -> Any:
            self.starts.append(start)
            second = len(self.starts) == 2
            if second and self.stop:
                here.interrupted = True
            values = {name: f"{name} of stage {1 + second}" for name in names}
            told = {"n_iter": 3 + 4 * second, "converged": True, "reason": f"stage {1 + second}"}
            row: dict[str, Any] = {**blank, **values, **told, "log_evidence": 0.8 * (5.0 + self.gain * second)}
            return Fitted(**row)

    class Start(NamedTuple):
        variance: Any = None
        lengthscales: Any = None
        noise: Any = None
        Z: Any = None
        other: str = "kept"

    wrong = []
    # three inputs and two functions: four parameters more cost 2 log(most / gain)
    for changes, stages, reason, iterations, converged in (
        ({}, [None, True], "stage 2", 10, True),
        ({"tied": False}, [None], "stage 1", 3, True),
        ({"batches": True}, [None], "stage 1", 3, True),
        ({"most": 0.99}, [None], "stage 1", 3, True),
        ({"gain": 2.5}, [None, True, False], "stage 1", 3, True),
        ({"gain": 2.6}, [None, True], "stage 2", 10, True),
        ({"gain": -1.0}, [None, True, False], "stage 1", 3, True),
        ({"gain": -1.0, "stop": True}, [None, True, False], "stage 2", 3, False),
        ({"stop": True}, [None, True], "stage 2", 10, True),
    ):
        learner: Any = Learner()
        for name, value in changes.items():
            setattr(learner, name, value)
        with ending(None) as here:
            end = learner._in_stages(np.zeros((5, 3)), None, Start(), None, None)
        result = (learner.stages, end.reason, end.n_iter, end.converged)
        wrong += [f"{changes}: {result}"] * (result != (stages, reason, iterations, converged))
        if len(learner.starts) == 2:
            begun = learner.starts[1]
            from_first = all(getattr(begun, name) == f"{name} of stage 1" for name in names) and begun.other == "kept"
            wrong += [f"{changes}: started from {begun}"] * (not from_first)
    yield flaws(len(wrong), "; ".join(wrong) or "nine ways to end", "fast", "fits")
