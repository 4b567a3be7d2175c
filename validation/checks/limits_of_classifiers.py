"""Both sides of the numbers at which classifiers decide: what may pay, what is looked at, which errors are believed.

Training is put aside: a stub answers in the place of the method, and what follows from its answer is documented.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check, flaws
from validation.problem import Problem

Array = NDArray[np.float64]


class _Looked(Exception):  # noqa: N818 - nothing is wrong
    """Carries what the judge has seen out of a fit."""


@check(
    "identity/x-gpc/limits_of_starts",
    paper="wenzel2019",
    question="Are lengthscales from 1e-50 to 1e50 taken, and do iterations count by 2e-4 nat a row?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core import ending
    from fast.estimators import LaplaceClassifier, XGPClassifier

    X = np.arange(12.0).reshape(6, 2)
    rows: list[tuple[str, object, object]] = []
    for length, taken in ((1e50, True), (1.5e50, False), (1e-50, True), (0.7e-50, False)):
        model = XGPClassifier(lengthscales=length)
        try:
            came = bool(np.all(model._first_lengthscales(X, np.random.RandomState(0)) == length))
        except ValueError as error:
            came = not str(error).startswith("lengthscales: found")
        rows.append((f"lengthscales {length:g}: taken", came, taken))
    yield as_documented(rows, "fast", "starts")

    def look(*_: Any, **__: Any) -> Any:
        here = ending._present.get()
        raise _Looked(np.nan if here is None else here.worth)

    # of all rows; of the 400 that learning sees first, fewer where there are more classes
    rng = np.random.default_rng(3)
    for model, n, classes, counted in (
        (XGPClassifier(), 30, 2, 30),
        (LaplaceClassifier(), 600, 3, 600),
        (LaplaceClassifier(), 601, 3, 400),
        (LaplaceClassifier(), 400, 10, 400),
        (LaplaceClassifier(), 401, 10, 267),
    ):
        inputs, labels = rng.standard_normal((n, 2)), np.arange(n) % classes
        with mock.patch.object(type(model), "_train", look):
            try:
                model.fit(inputs, labels)
                worth = np.nan
            except _Looked as seen:
                worth = float(seen.args[0])
        why = f"{type(model).__name__} on {n} rows of {classes} classes: 2e-4 nat of {counted} that are looked at"
        yield Compared(abs(worth / (2e-4 * counted) - 1.0), 1e-12, why, "fast", "definition")


@check(
    "identity/x-gpc-svi/said_steps",
    paper="wenzel2019",
    question="Are steps said from verbose = 2 on, every tenth or hundredth, and is who looks on called after each?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.estimators import EPClassifier, XGPClassifier
    from fast.estimators.multiclass import _among

    rows: list[tuple[str, object, object]] = []
    for verbose in (0, 1, 2):
        for listens in (False, True):
            for kind, every, steps in ((XGPClassifier, 100, 250), (EPClassifier, 10, 25)):
                said: list[str] = []
                called: list[Any] = []
                model: Any = kind(verbose=verbose)
                callback = called.append if listens else None
                with mock.patch.multiple(kind, _say=lambda self, text, said=said: said.append(text),
                                         _keep=mock.DEFAULT, _fitted=mock.DEFAULT):  # fmt: skip
                    keep = (lambda progress: None,) if kind is XGPClassifier else ()
                    watch = model._watch(callback, *keep)
                    for k in range(1, steps + 1) if watch is not None else ():
                        watch(SimpleNamespace(iteration=k, n_steps=steps, run=None, log_evidence=0.0, hyper=None))
                name = f"{kind.__name__}, verbose = {verbose}, {'a callback' if listens else 'no callback'}"
                rows.append((f"{name}: said", len(said), steps // every if verbose == 2 else 0))
                rows.append((f"{name}: calls", len(called), steps if listens else 0))
    # sites of some rows among those of all: the others start from nothing
    sites = np.array([[1.0, 2.0], [3.0, 4.0]])
    whole = _among(sites, np.array([3, 1]), 4).tolist()
    rows.append(("sites of two rows of four", whole, [[0.0, 0.0], [3.0, 4.0], [0.0, 0.0], [1.0, 2.0]]))
    yield as_documented(rows, "fast", "steps")


@check(
    "identity/vi-robust/believed_errors",
    paper="villacampa2017",
    question="Is the probability of a random label that of the bound where that is .2 to .9, and .01 where it is less?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.estimators import RobustVIClassifier
    from fast.estimators._base import Fitted
    from fast.estimators._classes import ClassesClassifier, most_likely_errors

    codes = np.arange(60) % 3
    # of rows at which everything is on the wrong side: e = (n + 1)/(n + 2), epsilon = 3/2 of that, and at most .9
    certain = np.full((60, 3), 0.1 / 3.0)
    certain[np.arange(60), (codes + 1) % 3] += 0.9
    came = most_likely_errors(certain, codes, 0.1)
    yield Compared(abs(came - 0.9), 1e-15, "all labels are wrong", "fast", "definition", "difference")

    rows: list[tuple[str, object, object]] = []
    for likely, wanted in ((0.19, 0.01), (0.21, 0.21), (0.35, 0.35)):
        # shares of the rest that make it likely, the row of either kind more taken off
        wrong = (likely * 2.0 / 3.0 * 62.0 - 1.0) / 60.0
        probabilities = np.full((60, 3), 0.1 / 3.0)
        probabilities[np.arange(60), codes] += 0.9 * (1.0 - wrong)
        probabilities[np.arange(60), (codes + 1) % 3] += 0.9 * wrong
        used: list[float] = []

        def train(self: Any, *_: Any, used: list[float] = used, probabilities: Array = probabilities) -> Any:
            used.append(float(self.epsilon_))
            row: dict[str, Any] = dict.fromkeys(Fitted._fields, 1)
            posterior = SimpleNamespace(run=SimpleNamespace(q=None))
            row["n_iter"] = 10 ** len(used)
            row |= {"posterior": posterior, "predict": lambda _: SimpleNamespace(probabilities=probabilities)}
            return Fitted(**row)

        model = RobustVIClassifier()
        with (
            mock.patch.object(ClassesClassifier, "_train", train),
            mock.patch.object(ClassesClassifier, "_asks_ep", return_value=True),
        ):
            given: Any = None
            whole = model._train(np.zeros((60, 2)), codes, given, given, None)
        rows.append(("steps of both trainings", whole.n_iter, 110))
        rows.append((f"a likely error of {likely}: used", [round(each, 9) for each in used], [0.1, wanted]))
        # a second fit, of rows that are too many to ask, knows nothing of what the first believed
        with (
            mock.patch.object(ClassesClassifier, "_train", train),
            mock.patch.object(ClassesClassifier, "_asks_ep", return_value=False),
        ):
            model._train(np.zeros((60, 2)), codes, given, given, None)
        rows.append(("the next fit: used", used[2:], [0.01]))
    yield as_documented(rows, "fast", "errors")


@check(
    "identity/sep/affordable_sweeps",
    paper="villacampa2017",
    question="May sweeps at EP's parameters be more than are sure where C n m^2 is below 1e8, to ten thousand?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.estimators import PEPClassifier, RPAPEPClassifier, SEPClassifier

    rows: list[tuple[str, object, object]] = []
    # a hundred are sure of tied sites, fifty of powers' and of steps of a flat energy
    for kind, n, m, wanted in (
        (SEPClassifier, 1000, 1000, 100), (SEPClassifier, 1000, 100, 333), (SEPClassifier, 100, 100, 3333),
        (SEPClassifier, 100, 50, 10_000), (SEPClassifier, 20, 10, 10_000),
        (PEPClassifier, 1000, 1000, 50), (PEPClassifier, 1000, 100, 166),
        (RPAPEPClassifier, 1000, 1000, 50), (RPAPEPClassifier, 1000, 100, 166),
    ):  # fmt: skip
        model: Any = kind()
        model.classes_, model._fit_rows, model._fit_points = np.arange(3), n, m
        rows.append((f"{kind.__name__}, {n} rows, {m} points, 3 classes", model._affordable(), wanted))
    yield as_documented(rows, "fast", "sweeps")


@check(
    "identity/laplace/on_the_way",
    paper="riihimaki2013",
    question="Is a method run to 1e-4 at parameters on the way, in a hundred steps at most, or refused there?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.estimators import LaplaceClassifier, multiclass
    from fast.methods import laplace

    X, y = np.random.default_rng(3).standard_normal((30, 2)), np.arange(30) % 3
    asked: list[Any] = []

    def converge(_: Any, options: Any, start: Any = None) -> Any:
        asked.append(options)
        return SimpleNamespace(converged=start is None)

    def search(prior: Any, at: Any, *_: Any, **__: Any) -> Any:
        at(prior, None)
        try:
            at(prior, "warm")
        except ValueError as error:
            raise _Looked(str(error)) from error
        raise _Looked("")

    with mock.patch.object(laplace, "converge", converge), mock.patch.object(multiclass, "search", search):
        try:
            LaplaceClassifier(learn=("variance",)).fit(X, y)
            why = "nothing was searched"
        except _Looked as seen:
            why = str(seen.args[0])
    rows: list[tuple[str, object, object]] = [
        ("steps on the way", [options.max_iterations for options in asked], [100, 100]),
        ("tolerances", [options.tolerance for options in asked], [1e-4, 1e-4]),
        ("refused", why.startswith("parameters: found no fixed point") and "100" in why, True),
    ]
    yield as_documented(rows, "fast", "searches")
    # all rows follow a part of them, at its parameters, by as many steps
    ends: list[int] = []

    def held(_self: Any, _X: Any, _codes: Any, _held: Any, most: int, _near: Any = None) -> Any:
        ends.append(most)
        raise _Looked("")

    def part(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(variance=1.0, lengthscales=np.ones(2), noise=0.0, posterior=None)

    X, y = np.random.default_rng(3).standard_normal((601, 2)), np.arange(601) % 3
    cls = multiclass._MulticlassClassifier
    with (
        mock.patch.object(cls, "_at", held),
        mock.patch.object(multiclass.GPClassifier, "_in_stages", part),
        mock.patch.object(LaplaceClassifier, "_widened", return_value=None),
        suppress(_Looked),
    ):
        LaplaceClassifier().fit(X, y)
    yield flaws(ends != [100], f"steps of all 601 rows: {ends}", "fast", "runs")


@check(
    "identity/sep/explained_rows",
    paper="villacampa2017",
    question="Do rows become inducing points of a stream where more than a thousandth of their variance is left open?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.hyper import class_hyper
    from fast.core.values import Prior
    from fast.one_latent.online import Online
    from fast.sparse_classes.projections import InducingClasses
    from fast.sparse_classes.stream import TiedStream

    # beside a point at 0 a row at r leaves 1 - exp(-r^2) of its variance, but for the jitter, a millionth of that
    left = np.array([0.5e-3, 0.9e-3, 1.1e-3, 1.9e-3])
    X = np.sqrt(-np.log1p(-left))[:, None]
    Z, variance, jitter = np.zeros((1, 1)), 2.5, 2.5e-9
    hyper = class_hyper(variance, np.ones(1), 0.0, jitter, 2, 1)
    tied = TiedStream(InducingClasses(hyper, np.stack([Z, Z]), False))
    likelihood: Any = None
    alone = Online(likelihood, Prior(variance, np.ones(1), 0.0, jitter, Z))
    rows: list[tuple[str, object, object]] = []
    for name, stream in (("two classes", tied), ("one function", alone)):
        for share, row in zip(left, X, strict=True):
            chosen = len(stream.candidates(row[None], 1))
            rows.append((f"{name}, {share:.1e} left: points that come", chosen, int(share > 1e-3)))
    # of a Matern kernel too: with nu = 1/2, exp(-r), what is left is its own, and each row that comes explains others
    rough = Online(likelihood, Prior(variance, np.ones(1), 0.0, jitter, np.array([[0.0], [4.0]]), smoothness=0.5))
    many = np.linspace(-1.0, 4.7, 12)[:, None]
    points = np.array([[0.0], [4.0]])
    open_rows: list[int] = []
    while len(open_rows) < 4:
        K_ZZ, K_ZX = np.exp(-np.abs(points - points.T)), np.exp(-np.abs(points - many.T))
        open_rows.append(
            int(np.argmax(1.0 - np.sum(K_ZX * np.linalg.solve(K_ZZ + 1e-9 * np.eye(len(points)), K_ZX), 0)))
        )
        points = np.concatenate([points, many[open_rows[-1:]]])
    came = rough.candidates(many, 4)
    rows.append(("Matern, the four rows that most is left of", came.ravel().tolist(), many[open_rows].ravel().tolist()))
    # what the points of one class explain, those of another need not
    apart = TiedStream(InducingClasses(class_hyper(variance, np.array([[1.0], [0.1]]), 0.0, jitter, 2, 1),
                                       np.stack([Z, Z]), False))  # fmt: skip
    chosen = len(apart.candidates(X[:1], 1))
    rows.append(("explained in one class of two: points that come", chosen, 1))
    yield as_documented(rows, "fast", "points")


@check(
    "identity/x-gpc/who_is_tied",
    paper="wenzel2019",
    question="Are lengthscales tied only where nobody says what is learned, and has one function the second label?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.estimators import EPClassifier, XGPClassifier

    rows: list[tuple[str, object, object]] = [
        (f"learn={learn!r}, prior={prior!r}", XGPClassifier(learn=learn, prior=prior)._tied(), tied)
        for learn, prior, tied in (
            ("auto", "weak", True), ("auto", None, False), (("variance",), "weak", False), (None, "weak", False),
            (("variance", "scale"), None, False), ("variance", "weak", False),
        )
    ]  # fmt: skip
    fitted: Any = SimpleNamespace(variance=2.0, lengthscales=np.ones(1), noise=0.1)
    of_class: Any = SimpleNamespace(variance=[2.0, 3.0], lengthscales=[np.ones(1)] * 2, noise=[0.1] * 2)
    for model, answer, by_rows, labels in (
        (XGPClassifier(), fitted, False, ["b"]), (EPClassifier(), fitted, False, ["a", "b"]),
        (EPClassifier(), of_class, True, ["a", "b"]),
    ):  # fmt: skip
        model.classes_, model._by_rows = np.array(["a", "b"]), by_rows
        rows.append((f"{type(model).__name__}, labels that have parameters", list(model._by_class(answer)), labels))
    yield as_documented(rows, "fast", "labels")
