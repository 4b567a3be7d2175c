"""When a solver doubts its own answer: what it then reports, refuses or gives up, by numbers of one answer."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]


class _Prior(NamedTuple):
    variance: Any
    lengthscales: Any
    noise: Any = 0.3


@check(
    "identity/vi-robust/doubts",
    paper="villacampa2017",
    question="Is an answer doubted by its largest change beside it, in units of its parameters?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _neighbours

    prior = _Prior(np.array([2.0, 3.0]), np.array([[0.5, 4.0], [1.0, 2.0]]), np.array([0.5, 0.25]))
    given = {
        "variance": np.array([1.0, -2.0]), "noise": np.array([3.0, 4.0]), "lengthscales": np.ones((2, 2)),
        "Z": np.ones((2, 5, 2)),
    }  # fmt: skip
    told = _neighbours.gradient_answers(given, prior, -300.0)
    units = {
        "variance": np.array([2.0, -6.0]), "noise": np.array([7.5, 13.0]), "lengthscales": prior.lengthscales,
        "Z": np.repeat(prior.lengthscales[:, None, :], 5, axis=1),
    }  # fmt: skip
    wrong = [name for name, value in units.items() if not np.array_equal(told[f"gradient by {name}"].value, value)]
    wrong += [name for name in units if told[f"gradient by {name}"][1:] != (3.0, 10.0)]
    yield flaws(bool(wrong), f"derivatives times the units of their parameters {wrong}", "reference", "definition")
    floors = [
        _neighbours.gradient_answers(given, prior, value)["gradient by Z"].floor for value in (0.0, -1.5e-6, 3e-6)
    ]
    gap = float(np.abs(np.array(floors) / np.array([1e-8, 1.5e-8, 3e-8]) - 1.0).max())
    yield Compared(gap, 1e-9, "1 % of log Z, and of a millionth at least", "reference", "definition")

    singular = [np.diag([1.0, 1e-9])]  # a condition of 1e9: 100 eps of it are claimed
    for shares in ((0.5, 3.0), (3.0, 0.5), (0.5, 0.5), (0.0, 3.0)):
        limit = _neighbours.left_open(singular, 1e-10)
        changes = iter((0.0, *shares))

        def answers(_: Any, changes: Any = changes, limit: float = limit) -> dict[str, Any]:
            value = 4.0 * (1.0 + limit * next(changes))
            return {"the answer": _neighbours.Answer(np.array([value, -1.0]), 0.0)}

        doubt = _neighbours.rounding_doubt(answers, _Prior(1.0, np.ones(1)), singular)
        # a first neighbour that changes next to nothing is enough
        largest = 0.0 if shares[0] == 0.0 else max(shares)
        right = f"change the answer by {limit * largest:.1e}" in doubt if largest > 1.0 else doubt == ""
        yield flaws(
            not right, f"changes of {shares} of what is left open: {doubt or 'no doubt'}", "reference", "sentences"
        )

    lost = iter((4.0, np.nan, 4.0))
    doubt = _neighbours.rounding_doubt(
        lambda _: {"the answer": _neighbours.Answer(np.array([next(lost)]))}, _Prior(1.0, np.ones(1)), singular
    )
    yield flaws("the answer by nan" not in doubt, f"one that the first neighbour loses: {doubt}", "reference",
                "sentences")  # fmt: skip

    for beside, there in ((True, 2.0), (False, 2.0), (True, 1.0)):
        doubled = iter((1.0, there, there))

        def twice(_: Any, doubled: Any = doubled) -> dict[str, Any]:
            return {"the answer": _neighbours.Answer(np.array([4.0 * next(doubled)]), 0.0)}

        doubt = _neighbours.rounding_doubt(twice, _Prior(1.0, np.ones(1)), singular, beside)
        begins = "a start beside the optimum and last digits" if beside else "last digits"
        right = doubt == "" if there == 1.0 else doubt.startswith(begins) and "by 1.0e+00," in doubt
        yield flaws(
            not right, f"an answer {there:g} times as large, beside {beside}: {doubt}", "reference", "sentences"
        )


@check(
    "identity/laplace/search_limits",
    paper="riihimaki2013",
    question="Do searches end after the iterations that are asked for, 200 where nobody asks?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.riihimaki2013 import type2

    limits = [type2._limit(cast("Any", SimpleNamespace(max_iterations=most))) for most in (None, 1, 7)]
    yield flaws(limits != [200, 1, 7], f"none, one, seven: {limits}", "reference", "limits")


@check(
    "identity/label-regression/doubtful",
    paper="villacampa2020",
    question="Is a closed form that last digits change called unconverged, with that change as what is left?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import label_regression

    asked = tiny("threshold errors")
    data, prior = (
        Data(asked.X, asked.y, asked.n_classes),
        Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z),
    )
    wrong = []
    for learn in ((), ("variance",)):
        made = label_regression.RegressionOptions(epsilon=asked.epsilon, learn=learn, n_steps=60 if learn else None)
        sure = label_regression.fit(data, prior, made).trained
        with mock.patch.object(label_regression, "uncertainty", return_value=3e-4):
            told = label_regression.fit(data, prior, made).trained
        left = sure.residual if learn else 3e-4
        if not sure.converged or told.converged or told.residual != left or "3.0e-04" not in told.reason:
            wrong.append((learn, told.residual, told.reason))
    yield flaws(bool(wrong), f"held and learned parameters {wrong}", "fast", "runs")


@check(
    "identity/pep/improper_rows",
    paper="villacampa2020",
    question="Is each datum without a cavity counted once, and left where it was, and its halvings not endless?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.linalg import NotPositiveDefiniteError
    from fast.core.values import Data, Prior
    from fast.methods import pep
    from fast.sparse_classes import power_factors
    from fast.sparse_classes.projections import ScalarMoments

    rng = np.random.default_rng(102)
    y, shape = np.array([0, 2, 1, 0, 1]), (5, 3)
    moments = ScalarMoments(rng.standard_normal(shape), rng.uniform(0.5, 2.0, shape))
    factors = power_factors.PowerDatum(0.5, 0.05)
    for rows in ((), (1,), (0, 3)):
        sites = 0.1 * np.ones(shape), 0.2 * rng.standard_normal(shape)
        for row in rows:
            sites[0][row, 1] = 1.01 / (0.5 * moments.var[row, 1])
        told = factors.visit(y, moments, 0.2 * np.ones(shape), sites)
        moved = [bool((told.target[0][i] != sites[0][i]).any()) for i in range(5)]
        wrong = told.n_improper != len(rows) or moved != [i not in rows for i in range(5)]
        wrong |= bool(np.isfinite(told.value)) == bool(rows)
        yield flaws(bool(wrong), f"rows {rows} have no cavity: {told.n_improper} counted", "fast", "data")

    asked = tiny("threshold errors")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    run = pep.fit(
        Data(asked.X, asked.y, asked.n_classes), prior, pep.PEPOptions(epsilon=0.05, alpha=0.5, max_iterations=2)
    ).run
    down, still = -np.array([np.eye(4)] * 3), np.zeros((3, 4))
    least = min(float(np.linalg.eigvalsh(np.tril(P) + np.tril(P, -1).T)[0]) for P in run.q.precision)
    before = run.q
    taken, halvings = run._move_damped(8.0 * least * down, still, 0.9)
    # the largest of .9, .45, ... below 1/8
    yield flaws(
        (taken, halvings) != (0.9 / 8.0, 3), f"a precision that an eighth of the step keeps: {taken:g}", "fast", "steps"
    )
    run.q = before
    try:
        run._move_damped(1e40 * down, still, 1.0)
        wrong = True
    except NotPositiveDefiniteError:
        wrong = run.q is not before
    yield flaws(wrong, "no step at all keeps it: refused, and q stands where it was", "fast", "steps")


@check(
    "identity/qep/refused_sites",
    paper="riihimaki2013",
    question="Is a datum without a site counted and left, and an ascent that is cut short not called an optimum?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.riihimaki2013 import qep
    from reference.villacampa2020 import fit_gaussian_factor
    from validation.solve import solve

    asked = tiny("multinomial-probit full")
    propose = qep.QuadratureEP._propose

    def refused(self: Any, i: int, without: Any) -> Any:
        return None if i == 2 else propose(self, i, without)

    given = {"max_iterations": 2, "nodes": 6, "gradients": False}
    plain = solve("reference", "qep", asked, **given)
    with mock.patch.object(qep.QuadratureEP, "_propose", refused):
        told = solve("reference", "qep", asked, **given)
    wrong = plain.n_improper != 0 or told.n_improper != 2 or bool(np.any(told.local["lambda_tilde"][2]))
    yield flaws(bool(wrong), f"two sweeps without datum 2: {told.n_improper} counted", "reference", "sites")
    errors = tiny("threshold errors")
    end = solve("reference", "apep", errors, tied_factor="gaussian", alpha=0.5, max_iterations=2)
    stopped = end.settings["optimum"]
    yield flaws(
        end.converged or stopped != fit_gaussian_factor.NOT_REACHED, f"two iterations: {stopped}", "reference", "ends"
    )


@check(
    "identity/gfitc/circles",
    paper="villacampa2017",
    question="Does an iteration of sites that only circles end by its own count, and call nothing converged?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.solve import site_iteration as iteration

    def visit(precision: Array, shift: Array) -> Any:
        # a quarter turn of (tau, nu) about (3, 0), by a step that full damping makes
        target = 3.0 - shift, precision - 3.0
        return iteration.Visit(precision, shift, *target, np.ones(1), 0.0, 0, None)

    start = np.array([4.0]), np.array([0.0])
    steps = iteration.SiteSteps(1e-10, 5000, monotone=False, accelerate=False)
    told = iteration.iterate_sites(visit, start, steps)
    # the step never falls below its first value: so many visits after that of the first
    wrong = told.converged or len(told.trace) != iteration._CIRCLES + 1
    yield flaws(wrong, f"ended after {len(told.trace)} visits, converged {told.converged}", "fast", "ends")


@check(
    "identity/apep/doubted_ends",
    paper="villacampa2020",
    question="Is a converged ascent asked for doubts, one that is cut short not, and a bad matrix named?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import algebra
    from reference.common.errors import NotPositiveDefiniteError
    from reference.villacampa2020 import fit_energies
    from validation.solve import solve

    asked = tiny("threshold errors")
    for most, converged in ((1, False), (None, True)):
        calls: list[str] = []

        def doubtful(*_: Any, calls: list[str] = calls, **__: Any) -> str:
            calls.append("asked")
            return "a made-up doubt"

        given = {"tolerance": 1e-4} if most is None else {"max_iterations": most}
        with mock.patch.object(fit_energies, "rounding_doubt", doubtful):
            told = solve("reference", "apep", asked, alpha=0.5, gradients=False, **given)
        wrong = told.converged or (len(calls) == 1) != converged
        yield flaws(wrong, f"max_iterations {most}: asked {len(calls)} times", "reference", "ends")
    bad = np.full((3, 3), np.nan)
    silent = []
    for ask in (
        lambda: algebra.eigenvalues(bad, "the matrix"), lambda: algebra.eigenvectors(bad, "the matrix"),
        lambda: algebra.spectrum(bad, "the matrix"), lambda: algebra.inverted(np.zeros((3, 3)), "the matrix"),
        lambda: algebra.solution(np.zeros((3, 3)), np.ones(3), "the matrix"),
    ):  # fmt: skip
        try:
            value = ask()
            if np.isfinite(np.asarray(value[0] if isinstance(value, tuple) else value)).any():
                silent.append("a number")
        except NotPositiveDefiniteError as error:
            if "the matrix" not in str(error):
                silent.append(str(error))
    yield flaws(bool(silent), f"NaN, or zero where an inverse is asked for {silent}", "reference", "errors")


@check(
    "identity/vi-jj/distance_left",
    paper="izmailov2016",
    question="Is what plain sweeps leave the sum of the steps to come, and the draw of a density a draw of it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import vi_jj
    from gibbs.core.hyperpriors import Hyperprior, draw

    for rate in (0.3, 0.9):
        steps = iter(2.0 * rate ** np.arange(400))
        end = SimpleNamespace(value=0.0)
        state = cast("Any", SimpleNamespace(update=lambda steps=steps: float(next(steps)), end=end))
        trace, residual, converged = vi_jj._plain(state, 1e-4, 400, None)
        # step k is 2 rate^(k - 1), and all steps from it on add up to that over 1 - rate
        wanted = 2.0 * rate ** (len(trace) - 1) / (1.0 - rate)
        wrong = not converged or wanted > 1e-4 or wanted / rate <= 1e-4
        yield flaws(wrong, f"steps that fall by {rate:g}: ended after {len(trace)}", "fast", "sweeps")
        yield Compared(abs(residual / wanted - 1.0), 1e-10, f"steps that fall by {rate:g}", "fast", "definition")

    n = 40_000
    for family, df, distribution in (("half-student-t", 4.0, stats.t(4.0)), ("log-normal", 0.7, stats.norm(scale=0.7))):
        for root in (False, True):
            x = draw(np.random.default_rng(104), Hyperprior(family, df, 3.0, root), n)
            x = np.sqrt(x) if root else x
            below = [0.1, 0.3, 0.5, 0.7, 0.9]
            quantiles = (
                distribution.ppf(0.5 + 0.5 * np.array(below))
                if family == "half-student-t"
                else np.exp(distribution.ppf(below))
            )
            share = (x[:, None] < 3.0 * quantiles).mean(axis=0)
            z = (share - below) / np.sqrt(np.array(below) * (1.0 - np.array(below)) / n)
            # ten z at a level of 1e-4 by Bonferroni; draws of another scale or shape are tens of deviations off
            why = f"{family}, root {root}: shares below quantiles"
            yield Compared(float(np.abs(z).max()), 4.42, why, "gibbs", "scipy.stats", "z")


@check(
    "identity/apep/told_after_steps",
    paper="villacampa2020",
    question="Is a listener told what the trace holds, and does an alternation wait for all parameters?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.hyper import ClassHyper
    from fast.core.values import Data, Prior
    from fast.full_classes.prior import MulticlassPrior
    from fast.methods import apep, ep, pep, sep, vb_probit
    from reference.villacampa2017 import protocol

    asked = tiny("threshold errors")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    lists: dict[str, Any] = {"batches": [[0, 3, 5], [1, 2, 6]], "learn": ("variance",), "trace": True}
    fits: tuple[tuple[Any, Any, bool], ...] = (
        (apep, apep.EnergyOptions, True), (pep, pep.PEPOptions, True), (ep, ep.EPOptions, False),
        (sep, sep.SEPOptions, False),
    )  # fmt: skip
    for module, options, robust in fits:
        events: list[Any] = []
        own: dict[str, Any] = {"epsilon": 0.05} if robust else {}
        made = options(**lists, **own, optimizer="adam", callback=events.append)
        end = module.fit(Data(asked.X, asked.y, asked.n_classes), prior, made).trained
        numbers = [(each.iteration, each.log_evidence, each.n_improper) for each in events]
        wrong = numbers != [(k + 1, value, 0) for k, value in enumerate(end.trace)] or len(numbers) != 2
        wrong |= not np.isfinite(end.trace).all()
        yield flaws(wrong, f"{options.__name__}: {len(numbers)} steps of a run on two batches", "fast", "events")

    full = tiny("multinomial-probit full")
    start = ClassHyper(full.variance, full.lengthscales, full.noise, full.jitter)
    # the variances move in the first round, the noises in the second, and nothing in the third
    first = start._replace(variance=2.0 * start.variance)
    second = first._replace(noise=2.0 * first.noise)
    ahead, rounds = mock.Mock(side_effect=(first, second, second, second)), list[Any]()
    with mock.patch.object(vb_probit, "update_hyperparameters", ahead):
        vb_probit.alternate(
            MulticlassPrior(full.X, full.y, 3, start, False), learn=("variance", "noise"), learning_tolerance=1e-3,
            callback=rounds.append,
        )  # fmt: skip
    yield flaws(len(rounds) != 3, f"rounds until nothing moves: {len(rounds)}", "fast", "rounds")
    for method in ("ep", "x-gpc", ""):
        try:
            protocol.batch_optimiser_choice(method)
            refused = False
        except ValueError as error:
            refused = str(error).startswith("method: found")
        yield flaws(refused != (method != "ep"), f"the protocol of {method or 'no method'}", "reference", "refusals")
