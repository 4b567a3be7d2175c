"""What `reference` answers to one row is what it answers among others; what is not asked for is not made.

Rows of every kind stand in one call: without variance, far from the others, where a rule changes its form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import Prior
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check, flaws
from validation.checks.learning import PAPER, tiny
from validation.problem import Problem

Array = NDArray[np.float64]


def _apart(together: Any, alone: Any) -> float:
    """Largest difference, relative to entries above one; infinities are equal, and NaN is nothing's equal."""
    a, b = (np.asarray(each, dtype=np.float64) for each in (together, alone))
    both = np.isinf(a) & (a == b)
    with np.errstate(invalid="ignore"):
        return float(np.where(both, 0.0, np.abs(a - b) / np.maximum(1.0, np.abs(b))).max())


@check(
    "invariance/ep/rows_at_once",
    paper="villacampa2017",
    question="Is what is made of one row the same alone and among rows for which other forms of a rule are taken?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _largest, logistic_expectation, probit
    from reference.izmailov2016 import kernels
    from reference.villacampa2020 import power_likelihood

    mean = np.array([
        [0.3, -0.4, 1.1, 0.2], [0.5, 0.5, -1.0, 0.1], [9.0, -8.0, 0.4, -7.0], [-30.0, 1.0, 0.5, 2.0],
        [0.2, 0.1, -0.6, 0.9], [40.0, -40.0, -35.0, -50.0], [1.0, 0.8, 0.7, -0.2], [0.0, 2.0, -1.0, 0.5],
    ])  # fmt: skip
    var = np.array([
        [1.0, 0.8, 1.2, 0.5], [0.0, 0.7, 1.0, 0.3], [0.5, 1.5, 0.1, 0.2], [1.0, 2.0, 1.0, 0.5],
        [9.0, 1e-4, 1.0, 2.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0], [1e4, 0.3, 0.0, 2.0],
    ])  # fmt: skip
    y = np.array([0, 0, 0, 0, 0, 0, 3, 1])
    rows: tuple[tuple[str, Callable[..., Any], tuple[Array, ...]], ...] = (
        ("P and its derivatives, four classes", _largest.largest, (mean, var, y)),
        ("two classes", _largest.largest, (mean[:, :2], var[:, :2], y % 2)),
        ("1 - P", lambda *at: (_largest.log_not_largest(*at),), (mean, var, y)),
        ("the smaller of the two", power_likelihood.log_largest_probability, (mean, var, y)),
        ("powers", lambda m, v, k: power_likelihood.scaled_log_expected_powers(m, v, k, 0.1, 0.7), (mean, var, y)),
        ("log Φ", probit.mills_derivative, (100.0 * mean[:, 0],)),
        ("E log Φ", probit.expect_log_phi, (mean[:, 0], var[:, 0])),
        ("E log σ", logistic_expectation.expect_log_sigmoid, (mean[:, 0], var[:, 0])),
    )
    for name, function, given in rows:
        together = function(*given)
        single = [function(*(part[k : k + 1] for part in given)) for k in range(len(mean))]
        gap = max(_apart(part, np.concatenate([each[k] for each in single])) for k, part in enumerate(together))
        # log P of -500 and sums of panels that two orders of rows add up alike
        yield Compared(gap, 1e-11, f"{name}: eight rows, and each alone", "reference", "reference, row by row")
    # three without variance: the label's is below one of the others, and above the other
    between = _largest.log_largest(np.array([[0.5, 0.9, 0.1, 0.3]]), np.array([[0.0, 0.0, 0.0, 1.0]]), y[:1])
    yield flaws(between[0] != -np.inf, f"log P of a point below another: {between[0]}", "reference", "probabilities")
    for top, wanted in ((1.2, -np.inf), (0.5, 0.0), (0.0, 0.0)):
        at = np.array([[top, 0.9, 0.1]]), np.zeros((1, 3)), y[:1]
        found = float(_largest.log_not_largest(*at)[0])
        yield flaws(found != wanted, f"log(1 - P) of a point at {top:g} beside 0.9 and 0.1: {found}", "reference",
                    "probabilities")  # fmt: skip
    # inputs at one place, near, and so far that the Bessel function underflows
    X = np.array([0.0, 1e-9, 0.3, 4.0, 3000.0])[:, None]
    for smoothness in (0.7, 1.5, 40.0):
        prior = 1.3, np.array([0.8]), "matern", smoothness
        whole = kernels.covariance(X, X[:1], *prior)
        single = [kernels.covariance(X[k : k + 1], X[:1], *prior) for k in range(len(X))]
        yield Compared(_apart(whole, np.concatenate(single)), 1e-12, f"Matérn {smoothness:g}, near and far",
                       "reference", "reference, row by row")  # fmt: skip


# problem and options of short runs of every method that may be asked for gradients
_SHORT: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("ep", "threshold", {}),
    ("sep", "threshold", {}),
    ("pep", "threshold errors", {"alpha": 0.7, "max_iterations": 1}),
    ("apep", "threshold errors", {"alpha": 0.7, "max_iterations": 1}),
    ("arpep", "threshold errors", {"alpha": 0.7, "max_iterations": 1}),
    ("vi-robust", "threshold errors", {"max_iterations": 1}),
    ("label-regression", "threshold errors", {"learn": ("variance",), "n_steps": 1}),
    ("svi", "logit", {}),
    ("vi-jj", "logit", {}),
    ("vi-taylor", "logit", {}),
    ("x-gpc", "logit", {}),
    ("svgpc", "probit", {}),
    ("epgpc", "probit", {}),
    ("laplace", "softmax full", {}),
    ("nested-ep", "multinomial-probit full", {}),
)


def _register(method: str, kind: str, options: dict[str, Any]) -> None:
    @check(
        f"identity/{method}/gradients_not_asked",
        paper=PAPER[method],
        question="Has an answer gradients of log Z where they are asked for, and none otherwise?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, _problem: Problem | None) -> Iterable[Outcome]:
        problem = tiny(kind)
        rows: list[tuple[str, object, object]] = []
        for asked in (True, False):
            named = problem.replace(name=f"{kind}, gradients {asked}")
            short = {} if method == "label-regression" else {"tolerance": 1e-2}
            found = context.solve("reference", method, named, gradients=asked, **short, **options).gradients
            rows.append((f"gradients {asked}: told", found is not None, asked))
        yield as_documented(rows, "reference", "answers")


@check(
    "identity/label-regression/trace_not_asked",
    paper="villacampa2020",
    question="Has a run a value for each of its steps where a trace is asked for, and none otherwise?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    rows: list[tuple[str, object, object]] = []
    two: dict[str, Any] = {"learn": ("variance",), "n_steps": 2}
    for method, options, values in (
        ("label-regression", two | {"optimizer": "lbfgs"}, 2),
        ("label-regression", two | {"optimizer": "adaptive"}, 2),
        ("vi-robust", two | {"optimizer": "adam"}, 2),
        ("vi-robust", {"max_iterations": 3}, 3),
    ):
        for trace in (True, False):
            named = tiny("threshold errors").replace(name=f"{method}, {options}, trace {trace}")
            fit = context.solve("reference", method, named, trace=trace, gradients=False, **options)
            came = None if fit.trace is None else len(fit.trace)
            rows.append((f"{method}, {options}, trace {trace}: values", came, values if trace else 0))
    yield as_documented(rows, "reference", "traces")


class _EnoughError(Exception):
    """What was asked for has been seen."""


@check(
    "identity/apep/forms_of_runs",
    paper="villacampa2020",
    question="Is a search by L-BFGS alone taken for one, over which small problems are not computed as printed?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.villacampa2020 import fit_energies, fit_pep

    rows: list[tuple[str, object, object]] = []
    searches: tuple[tuple[dict[str, Any], bool], ...] = (
        ({}, False),
        ({"learn": ("variance",), "optimizer": "lbfgs"}, True),
        ({"learn": ("variance",), "optimizer": "adam", "n_steps": 2}, False),
        ({"optimizer": "adam", "n_steps": 2, "batch_size": 4}, False),
    )
    for method, place, cases in (
        ("apep", fit_energies, searches),
        ("pep", fit_pep, (
            ({"alpha": 0.5}, False), ({"alpha": 0.0}, True),
            ({"alpha": 0.5, "learn": ("variance",), "optimizer": "lbfgs"}, True),
            ({"alpha": 0.5, "learn": ("variance",), "scheme": "inner", "n_steps": 2}, False),
        )),
    ):  # fmt: skip
        for options, searched in cases:
            with mock.patch.object(place, "form_of", side_effect=_EnoughError) as asked:
                named = tiny("threshold errors").replace(name=f"{method}, {options}")
                with suppress(_EnoughError):
                    context.solve("reference", method, named, **options)
            rows.append((f"{method} {options}: searched", asked.call_args.args[4], searched))
    yield as_documented(rows, "reference", "runs")


@check(
    "identity/svi/refused_predictions",
    paper="izmailov2016",
    question="Does an error of variances that rounding makes negative name the matrix, its size and the lowest row?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import laplace_binary
    from reference.common._learning import Hyper
    from reference.common.errors import NotPositiveDefiniteError
    from reference.izmailov2016 import _prior as priors
    from reference.izmailov2016 import fit as variational
    from reference.wenzel2019 import _prior as augmented

    X, tests = tiny("logit").X, np.zeros((3, 2))
    y = np.where(np.arange(8) % 3 == 0, 1.0, -1.0)
    low = np.array([0.3, -0.2, -0.1])
    moments = SimpleNamespace(latent_mean=np.zeros(3), latent_var=low)
    full = laplace_binary.fit_laplace_binary(X, y, Hyper(1.7, np.array([0.9, 1.4]), 0.2, 1e-3, None))
    rows: list[tuple[str, object, object]] = []
    for Z, begins, remedy in (
        (None, "K_XX (8, 8): found latent variance -0.2 at row 1 of X_test", "noise"),
        (X[:4], "K_ZZ (4, 4): found latent variance -0.2 at row 1 of X_test", "Z"),
    ):
        m = 8 if Z is None else 4
        q = np.zeros(m), np.eye(m)
        hyper = Hyper(1.7, np.array([0.9, 1.4]), 0.2, 1e-3, Z)
        fit: Any = SimpleNamespace(hyper=priors.check_prior(hyper, 2), inducing_mean=q[0], inducing_cov=q[1])
        asked: list[tuple[str, Any, str, Any, tuple[Any, ...]]] = [
            ("izmailov2016", variational, "latent_predictive" if Z is None else "predict_latent", variational.predict,
             (fit, X, tests)),
            ("wenzel2019", augmented, "predict_latent", augmented.predict, (*q, X, tests, hyper)),
        ]  # fmt: skip
        for name, place, replaced, predict, given in asked:
            with mock.patch.object(place, replaced, return_value=moments):
                try:
                    predict(*given)
                    told = "an answer"
                except NotPositiveDefiniteError as error:
                    told = str(error)
            rows.append((f"{name}, {m} values", (told.startswith(begins), remedy in told.rpartition(";")[2]),
                         (True, True)))  # fmt: skip
    # with nothing left over of the prior's variance the explained one is too much
    with mock.patch.object(laplace_binary, "laplace_explained", return_value=2.0 * np.eye(8)):
        try:
            laplace_binary.predict_laplace_binary(full, X, y, X[:3], "logit")
            told = "an answer"
        except NotPositiveDefiniteError as error:
            told = str(error)
    K = 1.7 * np.exp(-0.5 * np.square((X[:3, None] - X) / np.array([0.9, 1.4])).sum(axis=2))
    var = 1.9 - 2.0 * np.square(K).sum(axis=1)
    begins = f"K_XX (8, 8): found latent variance {var.min():.3g} at row {var.argmin()} of X_test"
    rows.append(("laplace-binary", told.startswith(begins), True))
    yield as_documented(rows, "reference", "errors")


@check(
    "identity/qep/stationary_sites",
    paper="riihimaki2013",
    question="Is log Z stationary in the sites but where a diagonal gives up covariances, and has it gradients then?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common.options import options_of
    from reference.riihimaki2013 import fit as place

    X = np.array([[0.0], [0.7], [1.9]])
    rows: list[tuple[str, object, object]] = []
    for C in (2, 3):
        prior = place.Prior(np.ones(C), np.ones((C, 1)), np.full(C, 0.1), np.zeros(C))
        for method, options in (
            ("nested-ep", {}), ("nested-iep", {}), ("qiep", {}), ("qep", {"lambda_": "full"}), ("qep", {})
        ):  # fmt: skip
            asked = options_of(method)(max_iterations=1, **options)
            fit = place.fit_ep(X, np.arange(3) % C, C, prior, options=asked)
            wanted = method != "qep" or bool(options) or C == 2
            try:
                place.ep_gradients(fit, X, prior)
                told = True
            except ValueError:
                told = False
            rows.append((f"{method} {options}, {C} classes", (fit.stationary, told), (wanted, wanted)))
    yield as_documented(rows, "reference", "sites")


@check(
    "identity/svi/ends_of_a_search",
    paper="izmailov2016",
    question="Does L-BFGS over all parameters tell the bound at its end, the gradient left there, and its way?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016 import _prior, svi

    asked = tiny("logit")
    y = np.where(asked.y == 1, 1.0, -1.0)
    assert asked.Z is not None
    hyper = _prior.Prior(1.7, asked.lengthscales[0], 0.2, 2e-3, asked.Z[0])
    for most in (1, 5):
        end = svi.svi_lbfgs(asked.X, y, hyper, ("variance",), max_iterations=most)
        everything = np.arange(asked.n)
        bound = svi.batch_bound(end.parameters, asked.X, y, everything)
        left = np.abs(svi.batch_gradient(end.parameters, asked.X, y, everything, ("variance",))).max()
        gap = max(abs(end.elbo - bound), abs(end.derivative - left), abs(end.trace[-1] - bound))
        yield Compared(float(gap), 1e-9, f"{most} iterations: bound and gradient there", "reference", "definition")
        yield flaws(end.iterations != most or len(end.trace) != most, f"{end.iterations} iterations of {most}",
                    "reference", "statements")  # fmt: skip


@check(
    "identity/ep/where_a_search_ended",
    paper="villacampa2017",
    question="Is what a search answers the fit at its best place, wherever it looked last?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _training
    from reference.common._classes import Found
    from reference.villacampa2017 import vi_fit
    from reference.villacampa2020 import fit_energies, label_regression

    places: tuple[tuple[str, Any, str], ...] = (
        ("ep", _training, "threshold"), ("pep", _training, "threshold errors"),
        ("vi-robust", vi_fit, "threshold errors"), ("apep", fit_energies, "threshold errors"),
        ("label-regression", label_regression, "threshold errors"),
    )  # fmt: skip
    for method, place, kind in places:
        asked = tiny(kind)

        def searched(evidence: Any, prior: Any, *_: Any) -> Found:
            best = prior._replace(variance=1.1 * prior.variance)
            for there in (best, prior._replace(variance=0.8 * prior.variance)):
                evidence(there)
            return Found(best, np.array([-2.0, -1.0]), 0.5e-3, True, 2)

        short = {} if method == "label-regression" else {"tolerance": 1e-6}
        more: dict[str, Any] = {"gradients": False, **short}
        with mock.patch.object(place, "search", searched):
            named = asked.replace(name=f"{method}, a search of two places")
            fit = context.solve("reference", method, named, learn=("variance",), optimizer="lbfgs", **more)
        there = asked.replace(name=f"{method}, the better place", variance=1.1 * asked.variance)
        alone = context.solve("reference", method, there, **more)
        pairs = [
            (fit.problem.variance, there.variance), (fit.log_evidence, alone.log_evidence),
            (fit.inducing_mean, alone.inducing_mean), (fit.inducing_cov, alone.inducing_cov),
        ]  # fmt: skip
        gap = max(_apart(a, b) for a, b in pairs)
        # two ways to one fixed point, each to 1e-6 of a deviation
        yield Compared(gap, 1e-4, f"{method}: as a run there", "reference", "reference, parameters held")
        yield Compared(
            abs(float(fit.residual or 0.0) - 0.5e-3),
            0.0,
            f"{method}: residual of the search",
            "reference",
            "definition",
        )


@check(
    "identity/vi-jj/told_moves",
    paper="izmailov2016",
    question="Is the first move of an algorithm measured by where it leads, and the largest gap of moments told?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016 import _prior, algorithm1
    from reference.riihimaki2013 import fit as several
    from reference.riihimaki2013.sites import Moments
    from reference.villacampa2020 import label_regression

    asked = tiny("logit")
    assert asked.Z is not None
    y, hyper = np.where(asked.y == 1, 1.0, -1.0), _prior.Prior(1.7, asked.lengthscales[0], 0.2, 2e-3, asked.Z[0])
    states: list[Any] = []
    end = algorithm1.vi_jj(asked.X, y, hyper, (), max_iterations=2, callback=states.append)
    mean, cov = [np.zeros(4)], [np.eye(4)]
    for state in states:
        mean.append(state.inducing_mean)
        cov.append(state.inducing_cov)
    wanted = [
        max(
            float(np.abs(new - old).max() / np.abs(new).max())
            for old, new in ((mean[k], mean[k + 1]), (cov[k], cov[k + 1]))
        )
        for k in range(2)
    ]
    gap = float(np.abs(np.array(end.moves) / np.array(wanted) - 1.0).max())
    yield Compared(gap, 1e-9, "two rounds: relative to the new moments", "reference", "definition")

    gaps = iter((1e-9, 3e-9, 2e-9))
    kind: Any = SimpleNamespace(cavity=lambda *_: "a cavity", moment_gap=lambda *_: next(gaps))
    told = several._moment_gap(kind, Moments(np.zeros((3, 2)), np.zeros((3, 2, 2))))
    rows: list[tuple[str, object, object]] = [("gaps of 1e-9, 3e-9 and 2e-9", told, 3e-9)]
    kind.cavity = lambda i, *_: None if i == 1 else "a cavity"
    gaps = iter((1e-9, 3e-9, 2e-9))
    told = several._moment_gap(kind, Moments(np.zeros((3, 2)), np.zeros((3, 2, 2))))
    rows.append(("one cavity is none", told, None))
    # targets without noise are refused before anything is computed of them
    labels = tiny("threshold errors")
    with (
        mock.patch.object(label_regression, "regression_coefficients", side_effect=ValueError("noise: found 0")),
        mock.patch.object(label_regression, "regression_gradients") as gradients,
        mock.patch.object(label_regression, "regression_log_evidence") as evidence,
    ):
        for optimizer in ("lbfgs", "adaptive"):
            prior = Prior(labels.variance, labels.lengthscales, labels.noise, labels.jitter, np.asarray(labels.Z))
            options: dict[str, Any] = {"learn": ("variance",), "n_steps": 2, "optimizer": optimizer, "trace": True}
            try:
                label_regression.label_regression_baseline(labels.X, labels.y, prior, **options)
                said = "an answer"
            except ValueError as error:
                said = str(error)
            rows.append((f"{optimizer}: refused", said, "noise: found 0"))
        rows.append(("computed before", gradients.call_count + evidence.call_count, 0))
    yield as_documented(rows, "reference", "statements")


@check(
    "identity/apep/doubted_factors",
    paper="villacampa2020",
    question="Are the tied factors that are looked at for doubts q over the prior, in natural parameters?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.villacampa2020 import fit_energies as place
    from reference.villacampa2020.posterior import Gaussians

    asked = tiny("threshold errors")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, np.asarray(asked.Z))
    K = place.prior_matrices(asked.X, prior).K_ZZ
    cov: Any = np.linalg.inv(np.linalg.inv(K) + np.eye(4))
    q = Gaussians(np.arange(12.0).reshape(3, 4) / 10.0, cov)
    for method, tied in (("apep", True), ("bb-alpha", True), ("arpep", False), ("rpapep", False)):
        told = place._answer(place.Data(asked.X, asked.y, method, 0.1, 0.7), prior, q, prior)
        yield flaws(("tied_precision" in told) != tied, f"{method}: tied factors are {tied}", "reference", "answers")
        if tied:
            wanted = np.broadcast_to(np.eye(4), K.shape), np.linalg.solve(q.cov, q.mean[..., None])[..., 0]
            gap = max(_apart(told[f"tied_{name}"].value, value) for name, value in
                      zip(("precision", "shift"), wanted, strict=True))  # fmt: skip
            # conditions of K_ZZ below 1e4
            yield Compared(gap, 1e-9, f"{method}: a precision of one over the prior's", "reference", "definition")
            sizes = [told[f"tied_{name}"][1:] for name in ("precision", "shift")]
            yield flaws(sizes != [(0.0, 1.0)] * 2, f"{method}: each by its own size", "reference", "definition")


for _each in _SHORT:
    _register(*_each)
