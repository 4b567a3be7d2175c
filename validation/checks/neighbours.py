"""What `reference` asks its neighbours, to know what rounding leaves open: answers at the fit and beside it.

Where matrices are well conditioned nobody is asked. So the judge takes what would be asked: at the fit it has to be the
answer, and its differences in a parameter, the sites held, have to be the gradient.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable
from typing import Any
from unittest import mock

import numpy as np

from validation.by_name import by_name
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check, flaws
from validation.checks.learning import PAPER, tiny
from validation.problem import Problem

_STEP = 1e-5
BINARY = {"x-gpc": "logit", "svgpc": "probit", "epgpc": "probit"}
PREDICTING = ("svi", "vi-jj", "vi-taylor")  # whose fits are given the test points


def _sizes(answers: Any, prior: Any, evidence: str) -> int:
    """How many answers measure their errors otherwise than they are said to."""
    widest = math.sqrt(max(np.ravel(prior.variance + prior.noise)))
    wrong = 0
    for name, (_, floor, share) in answers.items():
        if name == evidence:
            wanted = 1.0, 1.0
        elif name.startswith("gradient by "):
            wanted = 0.01 * max(abs(float(answers[evidence].value)), 1e-6), 10.0
        else:
            wanted = 1e-6 * widest * name.endswith("_mean"), 1.0
        wrong += not (math.isclose(floor, wanted[0], rel_tol=1e-9) and share == wanted[1])
    return wrong


def _compared(context: Context, method: str, kind: str, module: Any, options: dict[str, Any]) -> Iterable[Outcome]:
    taken: list[Any] = []

    def take(answers: Any, prior: Any, matrices: Any, **settings: Any) -> str:
        taken.append((answers, prior, settings))
        return ""

    asked = tiny(kind)
    named = asked.replace(name=f"{kind}, neighbours")
    with mock.patch.object(module, "rounding_doubt", take):
        fit = context.solve("reference", method, named, **options)
    answers, prior, settings = taken[0]
    here = answers(prior)
    evidence = "elbo" if "elbo" in here else "log_evidence"
    claimed = (evidence, "inducing_mean", "inducing_cov", "latent_mean", "test_latent_mean")
    names = [name for name in claimed if name in here]
    gap = 0.0
    for name in names:
        value = np.asarray(here[name].value)
        wanted = np.reshape(getattr(fit, "log_evidence" if name == evidence else name), value.shape)
        gap = max(gap, float(np.abs(value - wanted).max() / max(1.0, np.abs(wanted).max())))
    why = f"{kind}: {', '.join(names)} at the parameters of the fit, from its sites"
    least = len(claimed) if method in PREDICTING and asked.X_test is not None else 3
    yield Compared(gap if len(names) >= least else np.inf, 1e-9, why, "reference", "its answer")
    yield Compared(abs(settings["tolerance"] - options["tolerance"]), 0.0, "asked at the tolerance of the run",
                   "reference", "definition", "tolerance")  # fmt: skip
    why = "floors: 1 of log Z, 1e-6 of the widest latent value of means, 1 % of log Z of gradients with tenfold errors"
    yield flaws(_sizes(here, prior, evidence), f"{kind}, {why}", "reference", "answers")
    missing = [field for field in fit.gradients or {} if f"gradient by {field}" not in here]
    yield flaws(len(missing), f"{kind}: gradients that are given and not asked for beside: {missing}", "reference",
                "gradients")  # fmt: skip
    # gradients of what the method does not maximise: tied factors, xi at the means; Laplace's sparse form has none
    if method in ("sep", "vi-taylor", "laplace-sparse"):
        return
    assert fit.gradients is not None
    for field in ("variance", "noise", "lengthscales"):
        old = np.asarray(getattr(prior, field))
        for number, at in enumerate(np.ndindex(old.shape)):
            ends = []
            for sign in (1.0, -1.0):
                new = old.copy()
                new[at] *= np.exp(sign * _STEP)
                ends.append(answers(prior._replace(**{field: new}))[evidence].value)
            derivative = (ends[0] - ends[1]) / (2.0 * _STEP)
            gradient = float(np.ravel(fit.gradients[field])[number]) * float(old[at])
            yield Compared(abs(derivative - gradient), 1e-6,
                           f"{kind}: {field}{list(at)}; steps of {_STEP:g} in a logarithm leave 1e-9 / 1e-5 of log Z",
                           "reference", "its gradient", "nat a logarithm")  # fmt: skip


def _register(method: str, *kinds: str, **options: Any) -> None:
    @check(
        f"identity/{method}/neighbours",
        paper=PAPER[method],
        question="Is what neighbours are asked the answer at the fit, and does it change by the gradient beside it?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        from reference.common import _training
        from reference.izmailov2016 import fit
        from reference.villacampa2020 import laplace_sparse
        from reference.wenzel2019 import _certain

        special = {
            "laplace-sparse": laplace_sparse,
            **dict.fromkeys(PREDICTING, fit),
            **dict.fromkeys(BINARY, _certain),
        }
        module = special.get(method, _training)
        for kind in kinds:
            yield from _compared(context, method, kind, module, {"tolerance": 1e-10, **options})


_register("ep", "threshold")
_register("sep", "threshold")
_register("pep", "threshold errors", alpha=0.7)
_register("laplace-sparse", "softmax")
for _method in PREDICTING:
    _register(_method, "logit")
for _method, _link in BINARY.items():
    _register(_method, _link, f"{_link} full")


@check(
    "identity/label-regression/neighbours",
    paper="villacampa2020",
    question="Is what rounding changes the largest relative change of an answer between two neighbours?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.common.errors import NotPositiveDefiniteError
    from reference.villacampa2020 import label_regression

    asked = tiny("threshold errors")
    assert asked.Z is not None
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)

    def answers(scale: float) -> list[Any]:
        there = asked.replace(name=f"regression {scale:g}", variance=scale * asked.variance)
        fit = context.solve("reference", "label-regression", there)
        assert fit.latent_cov is not None
        var = np.einsum("ncc->nc", fit.latent_cov)
        return [fit.log_evidence, fit.inducing_mean, fit.inducing_cov, fit.latent_mean, var]

    def change(*scales: float) -> float:
        beside = [prior._replace(variance=scale * prior.variance) for scale in scales]
        with (
            mock.patch.object(label_regression, "CERTAIN", 0.0),
            mock.patch.object(label_regression, "neighbours", return_value=beside),
        ):
            return float(label_regression.regression_rounding(asked.X, asked.y, prior))

    here = [np.asarray(part) for part in answers(1.0)]
    for scales in ((1.05,), (1.02, 1.3, 1.1)):
        wanted = max(
            float(np.abs(np.asarray(there) - own).max() / np.abs(own).max())
            for scale in scales for there, own in zip(answers(scale), here, strict=True)
        )  # fmt: skip
        yield Compared(abs(change(*scales) / wanted - 1.0), 1e-9, f"variances times {scales}", "reference",
                       "its answers")  # fmt: skip
    for error in (ValueError("no answer"), NotPositiveDefiniteError("K_ZZ", 2, -1.0, "nothing")):
        with mock.patch.object(label_regression, "regression_log_evidence", mock.Mock(side_effect=[0.3, error])):
            lost = change(1.1)
        yield Compared(float(np.isfinite(lost)), 0.0, f"a neighbour without an answer: {type(error).__name__}",
                       "reference", "definition", "answers")  # fmt: skip
    plain = label_regression.regression_rounding(asked.X, asked.y, prior)
    yield Compared(
        plain, label_regression.CERTAIN, "conditions below 1e4: nobody need be asked", "reference", "definition"
    )


@check(
    "identity/label-regression/shifted_answers",
    paper="villacampa2020",
    question="Is the doubt of fast the largest relative change of its own answers under its shifts of the parameters?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.errors import NotPositiveDefiniteError
    from fast.methods import label_regression

    asked = tiny("threshold errors")

    def answers(up: float, across: float) -> list[Any]:
        there = asked.replace(
            name=f"shifted {up:g} {across:g}",
            variance=(1.0 + up) * asked.variance,
            lengthscales=(1.0 + across) * asked.lengthscales,
        )
        fit = context.solve("fast", "label-regression", there)
        assert fit.latent_cov is not None
        var = np.einsum("ncc->nc", fit.latent_cov)
        return [
            np.asarray(part) for part in (fit.log_evidence, fit.inducing_mean, fit.inducing_cov, fit.latent_mean, var)
        ]

    names = ("variance", "lengthscales", "noise", "jitter", "Z")
    given = {name: getattr(asked, name) for name in names}
    run = by_name(label_regression.fit)(X=asked.X, y=asked.y, n_classes=3, **given).run
    here = answers(0.0, 0.0)
    for shifts in (((6, 2),), ((6, 2), (-5, 9), (3, -7))):
        wanted = max(
            float(np.abs(there - own).max() / np.abs(own).max())
            for up, across in shifts for there, own in zip(answers(0.004 * up, 0.004 * across), here, strict=True)
        )  # fmt: skip
        with (
            mock.patch.object(label_regression, "SURE", 0.0),
            mock.patch.object(label_regression, "_ULP", 0.004),
            mock.patch.object(label_regression, "_SHIFTS", shifts),
        ):
            came = label_regression.uncertainty(run)
        yield Compared(abs(came / wanted - 1.0), 1e-9, f"shifts {shifts}", "fast", "its answers")
    with (
        mock.patch.object(label_regression, "SURE", 0.0),
        mock.patch.object(label_regression, "LabelRun", side_effect=NotPositiveDefiniteError("K_ZZ")),
    ):
        lost = label_regression.uncertainty(run)
    none, some = np.zeros(3), np.array([0.0, 1e-9, 0.0])
    rows = [
        ("a shift without an answer", lost, np.inf),
        ("means that stay zero", label_regression._relative_change(none, none), 0.0),
        ("means that were zero", label_regression._relative_change(some, none), np.inf),
        ("means that are zero now", label_regression._relative_change(none, some), 1.0),
    ]
    yield as_documented(rows, "fast", "changes")


# -- what comes of a doubt ----------------------------------------------------------------------------------------

# the module whose fits ask, and the problem
_ASKS = {
    **dict.fromkeys(("svgpc", "epgpc"), ("reference.wenzel2019._certain", "probit")),
    "x-gpc": ("reference.wenzel2019._certain", "logit"),
    **dict.fromkeys((*PREDICTING, "vi-jj-full", "vi-jj-hybrid"), ("reference.izmailov2016.fit", "logit")),
    **dict.fromkeys(("ep", "sep"), ("reference.common._training", "threshold")),
    "vi-robust": ("reference.villacampa2017.vi_fit", "threshold errors"),
    "arpep": ("reference.villacampa2020.fit_energies", "threshold errors"),
    "laplace-sparse": ("reference.villacampa2020.laplace_sparse", "softmax"),
}  # fmt: skip
# searches whose ends are doubted as well; those that take long end after a step, whatever gradient is left
_SEARCHED = ("svgpc", "epgpc", *PREDICTING, "vi-jj-full", "vi-jj-hybrid")
_SHORT = ("ep", "vi-robust", "arpep")
# whose neighbours are fits of their own; the others hold their sites
_AGAIN = ("x-gpc", "svgpc", "epgpc", "svi", "vi-jj", "vi-taylor", "vi-robust", "arpep", "laplace-sparse")


def _doubted(context: Context, method: str, doubt: str, **options: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    """The answer of a run of which something, or nothing, is doubted; answers and prior of each time it was asked."""
    place, kind = _ASKS[method]
    asked: list[tuple[Any, Any]] = []

    def take(answers: Any, prior: Any, *_: Any, **__: Any) -> str:
        asked.append((answers, prior))
        return doubt

    named = tiny(kind).replace(name=f"{kind}, doubted {doubt}")
    with mock.patch.object(importlib.import_module(place), "rounding_doubt", take):
        fit = context.solve("reference", method, named, **options)
    return fit, asked


def _doubts_register(method: str) -> None:
    @check(
        f"identity/{method}/doubted_answers",
        paper=PAPER[method],
        question="Is a converged answer doubted once, learned or held, no longer called converged then, and told why?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        doubt = "last digits decide"
        runs: list[tuple[str, dict[str, Any]]] = [("held", {})]
        if method in _SEARCHED + _SHORT:
            short = {"n_steps": 1, "optimizer": "lbfgs", "learn_tolerance": 1e9} if method in _SHORT else {}
            runs.append(("learned", {"learn": ("variance",), **short}))
        wrong = []
        for name, options in runs:
            # laplace-sparse has no such option
            more = {} if method == "laplace-sparse" else {"gradients": False}
            fit, asked = _doubted(context, method, doubt, tolerance=1e-3, **options, **more)
            if fit.converged or fit.settings.get("reason") != doubt or len(asked) != 1:
                wrong.append(
                    f"{name}: converged {fit.converged}, {fit.settings.get('reason')}, asked {len(asked)} times"
                )
        sure, asked = _doubted(context, method, "", tolerance=1e-8 if method in _AGAIN else 1e-3)
        if not sure.converged or "reason" in sure.settings or len(asked) != 1:
            wrong.append(f"not doubted: converged {sure.converged}, asked {len(asked)} times")
        answers, prior = asked[0]
        early, asked = _doubted(context, method, doubt, tolerance=1e-12, max_iterations=1)
        if early.converged or early.settings.get("reason") == doubt or asked:
            wrong.append(f"after one iteration: asked {len(asked)} times, {early.settings.get('reason')}")
        yield flaws(len(wrong), "; ".join(wrong) or "doubted, not doubted, and cut short", "reference", "runs")

        if method not in _AGAIN:
            return
        there = answers(prior._replace(variance=1.02 * prior.variance, lengthscales=0.99 * prior.lengthscales))
        kind = tiny(_ASKS[method][1])
        beside = kind.replace(
            name=f"{kind.name}, beside", variance=1.02 * kind.variance, lengthscales=0.99 * kind.lengthscales
        )
        fit = context.solve("reference", method, beside, tolerance=1e-8)
        names = [name for name in ("elbo", "log_evidence", "energy") if name in there]
        why = "floors: 1 of log Z, 1e-6 of the widest latent value of means, 1 % of log Z of gradients"
        yield flaws(_sizes(answers(prior), prior, names[0]) if names else 1.0, why, "reference", "answers")
        gap, fields = 0.0, ("inducing_mean", "inducing_cov", "latent_mean")
        for name, (value, *_) in there.items():
            if name in fields:
                wanted = np.reshape(getattr(fit, name), np.shape(value))
            elif name in ("elbo", "log_evidence", "energy"):
                wanted = np.asarray(fit.log_evidence)
            else:
                continue
            gap = max(gap, float(np.abs(value - wanted).max() / max(1.0, float(np.abs(wanted).max()))))
        yield Compared(gap if len(there) > 3 else np.inf, 1e-6, "two runs to 1e-8: variances times 1.02, from the fit",
                       "reference", "a run there")  # fmt: skip


for _method in _ASKS:
    _doubts_register(_method)
