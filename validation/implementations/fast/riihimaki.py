"""Methods of riihimaki2013 in `fast`: nested EP and its rivals, full GPs of several classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fast.core.declare import Options, option
from fast.core.options import Blocks, ClassLearning, Gradients, Maximum, Nodes, Predicting, Traced
from fast.core.values import Data, Prior
from fast.full_classes.learning import ClassSearch, Searched, search
from fast.full_classes.prior import MulticlassPrior, prepare
from fast.methods import laplace, nested_ep, nested_iep, quadrature_ep, vb_probit
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.implementations.common import finite_or_none
from validation.implementations.witness import Adapter


@dataclass(frozen=True, kw_only=True, eq=False)
class Searches(ClassLearning, Maximum):
    """What `solve` takes of searches over the prior."""

    optimizer: str = option("choice", "of a search over the prior", choices=("lbfgs",), default="lbfgs")
    learn_tolerance: float = option(
        "number", "projected gradient at which a search over the prior has arrived", "(0, inf)", default=1e-5
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class EitherSearches(Searches):
    """The same with expectation maximisation."""

    optimizer: str = option("choice", "of a search over the prior", choices=("lbfgs", "em"), default="lbfgs")


class Row(NamedTuple):
    """A method: its module and class of options, what is maximised, where the next run starts, what an answer has.

    iterations     where nobody says: without a search
    local          names of the posterior's
    settings       options that the answer names
    """

    method: str
    module: Any
    options: type[Any]
    warm: Callable[[Any], Any]
    iterations: int
    local: tuple[str, ...]
    settings: tuple[str, ...]
    evidence: str = "log_evidence"
    kind: str = "estimate"
    predicting: tuple[str, ...] = ("block_size",)


_NESTED = ("alpha_tilde", "beta_tilde", "site_precision", "site_location", "log_tilted_norm")
_INNER = ("schedule", "damping", "tolerance", "inner", "inner_schedule", "prediction", "accelerate")
_RULES = ("prediction", "prediction_nodes", "block_size")
NESTED_EP = Row(
    "nested-ep", nested_ep, nested_ep.NestedOptions, lambda at: (at.alpha_tilde, at.beta_tilde), 1000, _NESTED, _INNER,
    predicting=_RULES,
)  # fmt: skip
NESTED_IEP = NESTED_EP._replace(method="nested-iep", module=nested_iep, warm=nested_iep.warm)
LAPLACE = Row(
    "laplace", laplace, laplace.LaplaceOptions, lambda at: at.mode.derivative, 100, ("pi",), ("tolerance",),
    predicting=_RULES[1:],
)  # fmt: skip
TKP = LAPLACE._replace(method="laplace-tkp")
VB = Row(
    "vb-probit", vb_probit, vb_probit.VBOptions, lambda at: at.posterior.weights, 10_000, ("expected_auxiliary",),
    ("tolerance", "accelerate"), "elbo", "lower bound",
)  # fmt: skip


def prepared(problem: Problem) -> tuple[Data, Prior]:
    """Data and prior of a problem of several classes."""
    prior = Prior(problem.variance, problem.lengthscales, problem.noise, problem.jitter, shared=problem.shared)
    return Data(problem.X, problem.y, problem.n_classes), prior


def learned_problem(problem: Problem, value: Searched) -> Problem:
    """The problem with the values that were learned."""
    hyper = value.hyper
    return problem.replace(variance=hyper.variance, lengthscales=hyper.lengthscales, noise=hyper.noise)


def _predicted(at_test: Any) -> dict[str, Any]:
    names = ("probabilities", "probability_mass")
    latent = {"test_latent_mean": at_test.latent_mean, "test_latent_cov": at_test.latent_cov}
    return latent | {name: getattr(at_test, name) for name in names}


def _gradients(module: Any, posterior: Any) -> dict[str, Any] | None:
    gradients = module.gradients(posterior)
    return None if gradients is None else dict(gradients._asdict())


def _search(row: Row, problem: Problem, prior: MulticlassPrior, options: Any, own: Any) -> Searched:
    """Parameters at their maximum; own: options of the runs of the method, each from the end of the one before."""
    limits = {"max_iterations": options.max_iterations or 200, "learning_tolerance": options.learn_tolerance}
    if options.optimizer == "em":
        if problem.hyperprior is not None:
            raise ValueError("optimizer: found 'em' with a hyperprior, expected 'lbfgs'")
        return vb_probit.alternate(
            prior, learn=options.learn, tolerance=options.tolerance, callback=options.callback, **limits
        )
    asked = ClassSearch.of(vars(options) | limits | {"hyperprior": problem.hyperprior})
    return search(
        prior,
        lambda here, start: row.module.converge(here, own, start=start),
        lambda posterior: (getattr(posterior, row.evidence), row.module.gradients(posterior)),
        asked,
        warm_start=row.warm,
    )


def _answer(row: Row, problem: Problem, options: Any) -> Solution:
    prior, searched = prepare(*prepared(problem)), None
    own = row.options.of(vars(options) | {"max_iterations": options.max_iterations or row.iterations})
    if options.learn:
        default = row.options().max_iterations
        runs = {"callback": None, "max_iterations": default}
        # Newton's method of the search of vb-probit is that of its defaults
        runs |= {"accelerate": True} if row is VB else {}
        searched = _search(row, problem, prior, options, replace(own, **runs))
        posterior, problem = searched.posterior, learned_problem(problem, searched)
    else:
        posterior = row.module.converge(prior, own)
    settings: dict[str, Any] = {name: getattr(options, name) for name in row.settings}
    local = {name: getattr(posterior, name) for name in row.local}
    fields: dict[str, Any] = {}
    if problem.X_test is not None and row is TKP:
        corrected = laplace.predict_tkp(posterior, problem.X_test)
        fields, local["tkp_scores"] = _predicted(corrected.prediction), corrected.scores
        settings |= {} if corrected.converged else {"extended modes": "not all converged"}
    elif problem.X_test is not None:
        rules = {name: getattr(options, name) for name in row.predicting}
        fields = _predicted(row.module.predict(posterior, problem.X_test, **rules))
    return _solution(row, problem, posterior, options, searched, local=local, settings=settings, **fields)


def _solution(
    row: Row, problem: Problem, posterior: Any, options: Any, searched: Searched | None, **fields: Any
) -> Solution:
    value = getattr(posterior, row.evidence)
    trace = getattr(posterior, "trace", None) if getattr(options, "trace", False) else None
    if searched is not None:
        trace = searched.trace
        fields["settings"] = fields["settings"] | {
            "learning": searched.reason,
            "evaluations": searched.n_evaluations,
            "refused": searched.n_refused,
            "objective": searched.objective,
        }
    kept = trace is not None and (row is VB or row.module is laplace or np.isfinite(trace).all())
    return Solution(
        problem=problem,
        implementation="fast",
        method=row.method,
        log_evidence=value,
        log_evidence_kind=row.kind,
        latent_mean=posterior.latent_mean,
        latent_cov=posterior.latent_cov,
        gradients=_gradients(row.module, posterior) if options.gradients and value is not None else None,
        trace=np.asarray(trace) if kept else np.zeros(0),
        residual=finite_or_none(posterior.residual),
        converged=bool(posterior.converged and (searched is None or searched.converged)),
        n_improper=getattr(posterior, "n_improper", 0),
        iterations=posterior.iterations if searched is None else len(searched.trace),
        **fields,
    )


_QUADRATURE = ("lambda_tilde", "xi", "site_precision", "site_location", "log_tilted_norm")
_NODES = ("schedule", "damping", "tolerance", "max_iterations", "nodes", "accelerate", "prediction")
QEP = Row(
    "qep", quadrature_ep, quadrature_ep.QEPOptions, lambda at: None, 1000, _QUADRATURE, (*_NODES, "lambda_"),
    predicting=_RULES,
)  # fmt: skip
QIEP = QEP._replace(method="qiep", options=quadrature_ep.QIEPOptions, settings=_NODES)


def _quadrature(row: Row, problem: Problem, options: Any) -> Solution:
    if len(options.learn):
        raise ValueError(f"learn: found {shown(options.learn)}, expected (): {row.method} does not learn parameters")
    fit = quadrature_ep.fit_qep if row.method == "qep" else quadrature_ep.fit_qiep
    posterior = fit(*prepared(problem), options)
    fields: dict[str, Any] = {}
    if problem.X_test is not None:
        rules = {name: getattr(options, name) for name in row.predicting}
        fields = _predicted(quadrature_ep.predict(posterior, problem.X_test, **rules))
    local = {name: value for name in row.local if (value := getattr(posterior, name)) is not None}
    settings = {name: getattr(options, name) for name in row.settings}
    return _solution(row, problem, posterior, options, None, local=local, settings=settings, **fields)


def _adapter(row: Row, *parts: type[Options], **defaults: Any) -> Adapter:
    run = _quadrature if row.module is quadrature_ep else _answer
    return Adapter(row.options.joined(*parts, **defaults), partial(run, row))


_QUADRATURES = {"block_size": 1024, "prediction": "quadrature"}
_STAGED = {"max_iterations": None, "block_size": 1024}
TABLE = {
    "nested-ep": _adapter(NESTED_EP, Traced, Blocks, Searches, Gradients, Predicting, **_STAGED),
    "nested-iep": _adapter(NESTED_IEP, Traced, Blocks, Searches, Gradients, Predicting, **_STAGED),
    "qep": _adapter(QEP, Traced, Blocks, ClassLearning, Gradients, Predicting, **_QUADRATURES),
    "qiep": _adapter(QIEP, Traced, Blocks, ClassLearning, Gradients, Predicting, **_QUADRATURES),
    "laplace": _adapter(LAPLACE, Blocks, Searches, Gradients, Nodes, **_STAGED),
    "laplace-tkp": _adapter(TKP, Searches, Gradients, max_iterations=None),
    "vb-probit": _adapter(VB, Traced, Blocks, EitherSearches, Gradients, **_STAGED),
}
