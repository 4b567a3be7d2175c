"""The methods of riihimaki2013 of `reference`: a row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reference.common.errors import NotPositiveDefiniteError
from reference.common.options import options_of
from reference.riihimaki2013 import fit as ep
from reference.riihimaki2013 import laplace, type2, variational
from reference.riihimaki2013.fit import Gradients, Prediction, Prior
from reference.riihimaki2013.outer import EPFit, State
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.implementations.common import finite_or_none
from validation.implementations.witness import Adapter

Fields = dict[str, Any]


class Row(NamedTuple):
    """What one method has that the others do not.

    method      its id
    fit         data, prior and options -> the fit of `reference`
    evidence    problem and options -> log evidence and its gradient at a prior, for a search; None: there is none
    gradients   fit, problem, prior and options -> those of the log evidence; None: there are none
    predict     fit, problem, prior and options -> latent values and labels at the test inputs
    own         fit, problem, prior and options -> fields of the answer that it alone has
    called      whether the fit calls the callback itself
    """

    method: str
    fit: Callable[..., Any]
    evidence: Callable[[Problem, Any], type2.Evidence] | None
    gradients: Callable[[Any, Problem, Prior, Any], Gradients | None]
    predict: Callable[[Any, Problem, Prior, Any], Prediction]
    own: Callable[[Any, Problem, Prior, Any], Fields]
    called: bool = False


def _prior(problem: Problem) -> Prior:
    return Prior(*(np.array(getattr(problem, name)) for name in Prior._fields))


def _data(problem: Problem) -> tuple[Any, Any, int]:
    return problem.X, problem.y, problem.n_classes


def _summed(result: Gradients | None, shared: bool) -> Fields | None:
    """Shared: every row holds the sum over the classes."""
    if result is None:
        return None
    return {
        name: np.broadcast_to(np.sum(value, axis=0), value.shape) if shared else value
        for name, value in result._asdict().items()
    }


def _search(row: Row, problem: Problem, options: Any) -> type2.Found:
    if row.evidence is None:
        raise ValueError(
            f"learn: found {shown(options.learn)}, expected (): the evidence of {row.method} has no exact gradient"
        )
    if options.optimizer == "em":
        if problem.hyperprior is not None:
            raise ValueError("optimizer: found 'em' with a hyperprior, expected 'lbfgs'")
        return type2.vb_alternate(*_data(problem), _prior(problem), shared=problem.shared, options=options)
    evidence = row.evidence(problem, replace(options, max_iterations=None))
    return type2.type2_map(evidence, _prior(problem), problem.hyperprior, shared=problem.shared, options=options)


def _answer(row: Row, problem: Problem, options: Any) -> Solution:
    search = None
    if options.learn:
        search = _search(row, problem, options)
        problem = problem.replace(**{name: getattr(search.prior, name) for name in options.learn})
        options = replace(options, max_iterations=None)  # of the search alone
    prior = _prior(problem)
    fit = row.fit(*_data(problem), prior, options=options)
    if options.callback is not None and not row.called:
        options.callback(State(fit.iterations, fit.residual, 0))
    fields: Fields = {
        "log_evidence": fit.log_evidence,
        "log_evidence_kind": "estimate",
        "latent_mean": fit.latent_mean,
        "latent_cov": fit.latent_cov,
        "trace": np.zeros(0) if search is None else search.trace,
        "settings": {"tolerance": options.tolerance},
    }
    own = row.own(fit, problem, prior, options)
    own["settings"] = fields["settings"] | own.get("settings", {}) | _reason(fit)
    if problem.X_test is not None:
        new = row.predict(fit, problem, prior, options)
        if "tkp_scores" in own["local"]:
            scores = own["local"]["tkp_scores"]
            mass = _mass_of_ratios(scores, prior.variance.max())
            new = new._replace(probability=scores / mass[:, None], probability_mass=mass)
        fields |= {
            "test_latent_mean": new.latent_mean,
            "test_latent_cov": new.latent_cov,
            "probabilities": new.probability,
            "probability_mass": new.probability_mass,
        }
    end = fit if search is None else search
    return Solution(
        problem=problem,
        implementation="reference",
        method=row.method,
        gradients=_summed(row.gradients(fit, problem, prior, options), problem.shared) if options.gradients else None,
        residual=finite_or_none(end.residual),
        converged=fit.converged and end.converged,
        iterations=end.iterations,
        **(fields | own),
    )


# -- the four variants of EP -----------------------------------------------------------------------------------------


def _ep_evidence(problem: Problem, options: Any) -> type2.Evidence:
    def evidence(prior: Prior) -> tuple[float, Gradients]:
        fit = ep.fit_ep(*_data(problem), prior, options=options)
        if fit.log_evidence is None or not fit.converged:
            raise NotPositiveDefiniteError(
                f"reference {options.method}: found no fixed point, expected one; lower damping"
            )
        return fit.log_evidence, ep.ep_gradients(fit, problem.X, prior)

    return evidence


def _ep_gradients(fit: EPFit, problem: Problem, prior: Prior, options: Any) -> Gradients | None:
    if fit.log_evidence is None or getattr(options, "lambda_", "full") == "diagonal":
        return None
    return ep.ep_gradients(fit, problem.X, prior)


def _reason(fit: Any) -> Fields:
    """Why a fit has not converged, where it says so."""
    reason = getattr(fit, "reason", "")
    return {"reason": reason} if reason else {}


def _ep_own(fit: EPFit, problem: Problem, prior: Prior, options: Any) -> Fields:
    sites = {
        "site_precision": fit.site_precision,
        "site_location": fit.site_location,
        "log_tilted_norm": fit.log_tilted_norm,
    }
    gap = {} if fit.moment_gap is None else {"moment_gap": np.array(fit.moment_gap)}
    own: Fields = {
        "local": fit.local | sites | gap,
        "n_improper": fit.n_improper,
        "settings": {"tolerance": options.tolerance, "damping": options.damping},
    }
    if fit.method in ("nested-iep", "qiep"):
        own["latent_cov"] = fit.latent_cov * np.eye(problem.n_classes)
    return own if options.learn else own | {"trace": fit.trace}


def _ep_predict(fit: EPFit, problem: Problem, prior: Prior, options: Any) -> Prediction:
    return ep.predict_ep(fit, problem.X, problem.X_test, prior, options=options)


# -- Laplace's method and the variational bound ----------------------------------------------------------------------


def _mass_of_ratios(scores: npt.NDArray[np.float64], variance: float) -> npt.NDArray[np.float64]:
    """Sum of the evidence ratios (t, C) of every test point over its classes, near 1; at variances where no mode is
    reached it is 0 or not finite, and then no probability comes of it: ValueError."""
    mass = np.sum(scores, axis=1)
    if not np.all((mass > 0.0) & np.isfinite(mass)):
        at = int(np.flatnonzero(~((mass > 0.0) & np.isfinite(mass)))[0])
        raise ValueError(
            f"variance: found {variance:g}, at which the evidences of the data with test point {at} "
            f"add up to {mass[at]:g} times that without, expected a ratio near 1: their modes are not reached"
        )
    return mass


def _laplace_evidence(problem: Problem, options: Any) -> type2.Evidence:
    def evidence(prior: Prior) -> tuple[float, Gradients]:
        at = laplace.fit_laplace(*_data(problem), prior, options=options)
        return at.log_evidence, laplace.laplace_gradients(at, problem.X, problem.y, prior)

    return evidence


def _laplace_predict(fit: laplace.LaplaceFit, problem: Problem, prior: Prior, options: Any) -> Prediction:
    return laplace.predict_laplace(fit, problem.X, problem.y, problem.X_test, prior, options=options)


def _tkp_own(fit: laplace.LaplaceFit, problem: Problem, prior: Prior, options: Any) -> Fields:
    if problem.X_test is None:
        return {"local": {"pi": fit.pi}}
    data = problem.y, problem.n_classes, options.tolerance
    scores = [laplace.la_tkp(laplace.extended_covariance(problem.X, x, prior), *data) for x in problem.X_test]
    return {"local": {"pi": fit.pi, "tkp_scores": np.array(scores).reshape(problem.t, problem.n_classes)}}


def _vb_evidence(problem: Problem, options: Any) -> type2.Evidence:
    def evidence(prior: Prior) -> tuple[float, Gradients]:
        at = variational.fit_vb(*_data(problem), prior, options=options)
        return at.log_evidence, variational.vb_gradients(at, problem.X, prior)

    return evidence


_NESTED = Row("nested-ep", ep.fit_ep, _ep_evidence, _ep_gradients, _ep_predict, _ep_own, called=True)
_QUADRATURE = _NESTED._replace(evidence=None)
_LAPLACE = Row(
    "laplace",
    laplace.fit_laplace,
    _laplace_evidence,
    lambda fit, problem, prior, _: laplace.laplace_gradients(fit, problem.X, problem.y, prior),
    _laplace_predict,
    lambda fit, *_: {"local": {"pi": fit.pi}},
)
_ROWS = (
    _NESTED,
    _NESTED._replace(method="nested-iep"),
    _QUADRATURE._replace(method="qep"),
    _QUADRATURE._replace(method="qiep"),
    _LAPLACE,
    _LAPLACE._replace(method="laplace-tkp", own=_tkp_own),
    Row(
        "vb-probit",
        variational.fit_vb,
        _vb_evidence,
        lambda fit, problem, prior, _: variational.vb_gradients(fit, problem.X, prior),
        lambda fit, problem, prior, _: variational.predict_vb(fit, problem.X, np.asarray(problem.X_test), prior),
        lambda fit, *_: {
            "log_evidence_kind": "lower bound",
            "local": {"expected_auxiliary": fit.expected_auxiliary},
        },
    ),
)

TABLE = {row.method: Adapter(options_of(row.method), partial(_answer, row)) for row in _ROWS}
