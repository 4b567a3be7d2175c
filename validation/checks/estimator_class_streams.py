"""`partial_fit` of stochastic EP against listed batches and against dense steps: villacampa2017, sections 2.3.1, 2.3.2.

The tied factor of a class stands for n_j factors: its cavity is q without the n_j-th part of it, and a batch replaces
the part that its own factors are, damped. Where n_j grows the factor is raised to the power that it grows by.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.estimator_settings import ENTRIES, Data, data, difference
from validation.checks.estimator_streams import DENSE, LIMIT, PASSES, Points, chosen
from validation.problem import Problem

Array = NDArray[Any]
_PRIOR: dict[str, Any] = {"variance": 2.0, "lengthscales": (0.9, 2.5), "noise": 0.1, "jitter": 1e-3}
_C = 3


def _compared(observed: float, why: str, limit: float = LIMIT, unit: str = "relative difference") -> Compared:
    return Compared(observed, limit, why, "fast", "judge", unit)


def _classifier(**given: Any) -> Any:
    return next(entry for entry in ENTRIES if entry.method == "sep").cls(**_PRIOR | {"random_state": 3} | given)


class TiedSteps:
    """A tied factor for each class, in moments and inverses."""

    def __init__(self, latents: list[Points], count: str, damping: float, known: Array | None = None) -> None:
        self.latents, self.count, self.damping = latents, count, damping
        self.seen = np.zeros(_C) if known is None else known.astype(float)
        self.known = float(self.seen.sum())
        self.factors = self.number(self.seen, self.known)

    def number(self, by_class: Array, n: float) -> Array:
        """Factors that share each tied one: of n data, or of those that touch the class."""
        if self.count == "all":
            return np.full(_C, n * (_C - 1.0))
        return (_C - 1.0) * by_class + (n - by_class)

    def step(self, X: Array, y: Array, n: int) -> None:
        """One batch with codes y (b,) that stands for n rows."""
        in_batch = np.bincount(y, minlength=_C)
        self.seen = self.seen + in_batch
        rows = self.seen.sum()
        factors = self.number(self.seen * n / rows, n)
        for one, old, new in zip(self.latents, self.factors, factors, strict=True):
            if old > 0.0:
                one.precision, one.shift = one.precision * new / old, one.shift * new / old
        self.factors = factors
        sides = [one.projected(X, 1.0 - 1.0 / new) for one, new in zip(self.latents, factors, strict=True)]
        precision, shift = np.zeros((len(y), _C)), np.zeros((len(y), _C))
        for i, own in enumerate(y):
            for other in range(_C):
                if other != own:
                    self._factor(i, own, other, sides, precision, shift)
        damping = self.damping
        if self.known:  # a running average over the rows that q has seen, those of the fit ten times
            damping = min(damping, n / (rows + (PASSES - 1) * self.known))
        part = self.number(in_batch, len(y)) / factors
        for k, one in enumerate(self.latents):
            upsilon = sides[k][2]
            added = np.einsum("bm,b,bp->mp", upsilon, precision[:, k], upsilon)
            one.precision = one.precision + damping * (added - part[k] * one.precision)
            one.shift = one.shift + damping * (upsilon.T @ shift[:, k] - part[k] * one.shift)

    def _factor(self, i: int, own: int, other: int, sides: list[Any], precision: Array, shift: Array) -> None:
        """Moments of Phi matched, 1(f_own > f_other): what the factor says of both projections."""
        mean = {k: sides[k][0][i] for k in (own, other)}
        var = {k: sides[k][1][i] for k in (own, other)}
        total = sum(var[k] + sides[k][3][i] for k in (own, other))
        z = (mean[own] - mean[other]) / np.sqrt(total)
        ratio = np.exp(-0.5 * z**2 - log_ndtr(z)) / np.sqrt(2.0 * np.pi)
        curvature = ratio * (ratio + z) / total
        for k, sign in ((own, 1.0), (other, -1.0)):
            left = 1.0 - curvature * var[k]
            precision[i, k] += curvature / left
            shift[i, k] += (sign * ratio / np.sqrt(total) + curvature * mean[k]) / left


def _off(model: Any, steps: TiedSteps, problem: Data) -> float:
    mean, var = model.latent_mean_and_variance(problem.X_new)
    wanted = [one.latent(problem.X_new) for one in steps.latents]
    return max(
        difference(mean, np.column_stack([one[0] for one in wanted])),
        difference(var, np.column_stack([one[1] for one in wanted])),
        difference(model.inducing_points_, np.stack([one.Z for one in steps.latents])),
        difference(model.log_evidence_, float("nan")),
    )


def brought() -> Iterable[Outcome]:
    """Batches from nothing: inducing points that come with them, classes that the first miss, rows that are counted."""
    problem = data(3, n=36)
    X, y, codes = problem.X, problem.labels, problem.codes
    two = np.nonzero(codes != 1)[0][:5]
    batches = [two, *np.split(np.arange(36), [6, 15, 20])]
    for total, count, number in ((None, "all", 8), (None, "per-class", "given"), (50, "per-class", 100)):
        given: dict[str, Any] = {"learn": (), "count": count, "damping": 0.7}
        given |= {"inducing_points": X[:6]} if number == "given" else {"n_inducing": number}
        model, steps, observed, visited = _classifier(**given), None, 0.0, 0
        for rows in batches:
            model.partial_fit(X[rows], y[rows], classes=problem.alphabet[::-1], total_samples=total)
            visited += len(rows)
            if steps is None:
                Z = X[:6] if number == "given" else np.unique(X[rows], axis=0)
                steps = TiedSteps([Points(Z, **_PRIOR) for _ in range(_C)], count, 0.7)
            elif number != "given":
                more = chosen(steps.latents, X[rows], int(number) - len(steps.latents[0].Z))
                for one in steps.latents:
                    one.grow(more)
            steps.step(X[rows], codes[rows], visited if total is None else total)
            observed = max(observed, _off(model, steps, problem))
        what = f"total_samples {total}, count {count}, n_inducing {number}"
        yield _compared(observed, f"{DENSE}; {what}")
        message = model.stop_reason_ == "5 batches seen" and model.n_iter_ == 5 and not model.converged_
        message = message and model.jitter_spent_ == 0.0
        yield _compared(0.0 if message else 1.0, f"what is said of 5 batches; {what}", 0.0, "departures")
    yield _compared(_defaults(model), "what a stream is without settings, and with bad ones", 0.0, "departures")


def _defaults(model: Any) -> float:
    """Departures of a stream from what is documented, and bad settings that it takes."""
    from fast.sparse_classes.stream import TiedStream

    points = model._online.run.points
    stream = TiedStream(points)
    wrong = (stream.rate, stream.damping, stream.run.count, stream.iterations) != (0.01, 0.5, "all", 0)
    taken = 0
    settings: tuple[dict[str, Any], ...] = ({"rate": 0.0}, {"damping": 0.0}, {"damping": 1.1})
    for bad in settings:
        with suppress(ValueError):
            TiedStream(points, **bad)
            taken += 1
    try:  # fewer rows than the batch has, more than it has columns
        model.partial_fit(np.zeros((8, 2)), ["fig"] * 8, total_samples=3)
        taken += 1
    except ValueError as error:
        taken += not str(error).startswith("total_samples: found 3, expected at least 8")
    TiedStream(points, damping=1.0)
    return float(wrong) + taken


def after_fit() -> Iterable[Outcome]:
    """Batches after a fit: its factors stand for its rows, which count for ten passes."""
    problem = data(3, n=30)
    X, y, codes = problem.X[:28], problem.labels[:28], problem.codes[:28]  # classes of 10, 9 and 9
    for count in ("all", "per-class"):
        given = {"learn": (), "count": count, "inducing_points": X[::4], "damping": 0.6, "max_iter": 30}
        model = _classifier(**given).fit(X, y)
        model.partial_fit(X[:3], y[:3]).fit(X, y)  # what came before a fit is forgotten by it
        steps = TiedSteps([Points(X[::4], **_PRIOR) for _ in range(_C)], count, 0.6, np.bincount(codes))
        for one, precision, shift in zip(steps.latents, *model.posterior_.run.tied(), strict=True):
            one.precision, one.shift = precision, shift
        observed, visited = 0.0, 0
        for rows, total in ((slice(0, 12), None), (slice(8, 28), None), (slice(2, 20), 56), (slice(0, 7), None)):
            model.partial_fit(X[rows], y[rows], total_samples=total)
            visited += len(y[rows])
            steps.step(X[rows], codes[rows], max(28, visited) if total is None else total)
            observed = max(observed, _off(model, steps, problem))
        yield _compared(observed, f"{DENSE}; after a fit, count {count}")
    learns = _classifier(**given | {"learn": ("variance",), "learning_rate": 0.02}).fit(X, y)
    before = np.log(learns.variance_)
    learns.partial_fit(X[:10], y[:10])
    moved = np.abs(np.log(learns.variance_) - before)
    yield _compared(
        float(np.abs(moved / (0.02 * 10 / 38) - 1.0).max()),
        "Adam's first step is its rate but for 1e-8 over the gradient: b / (b + n)", 1e-5,
    )  # fmt: skip


def listed() -> Iterable[Outcome]:
    """Stochastic EP on the same batches, each class in each of them alike, with learning and without."""
    from fast.core.values import Data, Prior
    from fast.methods import sep

    problem = data(3, n=36)
    X, y = problem.X, problem.labels
    batches = [np.arange(k % 4 * 9, k % 4 * 9 + 9) for k in range(6)]
    for learn, count, shared in (((), "per-class", True), (("variance", "lengthscales", "noise", "Z"), "all", False)):
        given = {
            "inducing_points": X[::6],
            "learn": learn,
            "prior": None,
            "learning_rate": 0.05,
            "count": count,
            "damping": 0.4,
        }
        model = _classifier(**given, shared=shared)
        for rows in batches:
            model.partial_fit(X[rows], y[rows], classes=problem.alphabet, total_samples=36)
        options = sep.SEPOptions(
            batches=batches, learn=learn, rate=0.05, count=count, damping=0.4, evaluate=False
        )  # fmt: skip
        prior = Prior(2.0, np.array([0.9, 2.5]), 0.1, 1e-3, X[::6], shared=shared)
        posterior = sep.fit(Data(X, problem.codes, 3), prior, options)
        wanted, hyper = sep.predict(posterior, problem.X_new), posterior.run.points.hyper
        pairs = (
            (model.predict_proba(problem.X_new), wanted.probabilities), (model.variance_, hyper.variance),
            (model.lengthscales_, hyper.lengthscales), (model.noise_, hyper.noise),
            (model.inducing_points_, posterior.run.points.Z),
        )  # fmt: skip
        why = "one step of the same factors, sums in another place in memory"
        yield _compared(max(difference(a, b) for a, b in pairs), f"{why}; learned: {learn}, count {count}")


def grown_while_learning() -> Iterable[Outcome]:
    """Inducing points of classes whose kernels differ, and batches that are refused in between."""
    problem = data(3, n=36)
    X, y = problem.X, problem.labels
    given = {"learn": ("variance", "lengthscales"), "n_inducing": 9, "learning_rate": 0.2}
    model, twin = _classifier(**given), _classifier(**given)
    wrong, observed = 0, 0.0
    for number, rows in enumerate(np.split(np.arange(36), [4, 10, 20])):
        wanted = None
        if number:
            parts = (model.inducing_points_, model.variance_, model.lengthscales_, model.noise_, np.full(3, 1e-3))
            latents = [Points(*part) for part in zip(*parts, strict=True)]
            wanted = np.concatenate([latents[0].Z, chosen(latents, X[rows], 9 - len(latents[0].Z))])
            before = model.predict_proba(problem.X_new)
            for refusal in (patch.object(model._online, "rate", 1e6), patch.object(model._online, "step", _refuse)):
                with refusal:
                    try:
                        model.partial_fit(X[rows] + 5.0, y[rows], total_samples=60)
                        wrong += 1
                    except ValueError as error:
                        wrong += "rate" not in str(error)
            observed = max(observed, difference(model.predict_proba(problem.X_new), before))
        for one in (model, twin):
            one.partial_fit(X[rows], y[rows], classes=problem.alphabet, total_samples=40)
        if wanted is not None:
            observed = max(observed, difference(model.inducing_points_, np.stack([wanted] * _C)))
    observed = max(observed, difference(model.predict_proba(problem.X_new), twin.predict_proba(problem.X_new)))
    yield _compared(observed, "rows that the worst of the classes explains worst; refused batches change no digit", 0.0)
    yield _compared(
        float(wrong), "a step that leaves the numbers is refused by the name of its rate", 0.0, "departures"
    )


def _refuse(*_: Any) -> None:
    raise ValueError("rate: found one that is too large, expected a smaller value")


# -- registration ----------------------------------------------------------------------------------------------------

_QUESTIONS = (
    ("brought_batches", brought, "Is `partial_fit` from nothing the dense step of stochastic EP?"),
    ("brought_after_fit", after_fit, "Is `partial_fit` after a fit the dense step from the factors of the fit?"),
    ("brought_listed", listed, "Does `partial_fit` answer as stochastic EP on the same listed batches?"),
    ("brought_points", grown_while_learning, "Do inducing points come with batches, and refused batches leave none?"),
)


def _register(quantity: str, ask: Any, question: str) -> None:
    @check(f"identity/sep/{quantity}", paper="villacampa2017", question=question, problems=(NO_PROBLEM,))
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        return list(ask())


for _row in _QUESTIONS:
    _register(*_row)
