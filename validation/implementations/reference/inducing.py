"""The methods of several classes with inducing points in `reference`, villacampa2017 and villacampa2020: a row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from reference.common.errors import factorise
from reference.common.options import options_of
from reference.common.priors import Prior
from reference.villacampa2017 import prediction as prediction_2017
from reference.villacampa2017.fit import fit_ep, fit_sep
from reference.villacampa2017.gfitc import gfitc_baseline
from reference.villacampa2017.vi_fit import vi_baseline
from reference.villacampa2017.vi_gradients import vi_gradients
from reference.villacampa2020 import prediction as prediction_2020
from reference.villacampa2020.black_box import monte_carlo_log_norms
from reference.villacampa2020.energies import bb_alpha_energy
from reference.villacampa2020.fit_energies import Data, EnergyFit, energy_gradients, fit_energy
from reference.villacampa2020.fit_gaussian_factor import fit_gaussian_factor
from reference.villacampa2020.fit_pep import fit_pep
from reference.villacampa2020.hyper import cross_covariances, inducing_covariances, prior_matrices
from reference.villacampa2020.label_regression import label_regression_baseline
from reference.villacampa2020.laplace_sparse import laplace_baseline, predict_laplace
from reference.villacampa2020.posterior import natural_prior
from reference.villacampa2020.sparse import latent_marginal
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.implementations.common import finite_or_none
from validation.implementations.witness import Adapter

NO_ERRORS, ERRORS, EITHER = "0", "> 0", ""  # probabilities of labelling errors that a method takes
_PAIRS = ("site_precision_label", "site_shift_label", "site_precision_other", "site_shift_other")
Fields = dict[str, Any]


class Row(NamedTuple):
    """What one method has that the others do not.

    method      its id
    epsilon     NO_ERRORS, ERRORS or EITHER
    fit         problem, prior and options -> the fit of `reference`, and fields of the answer that it alone has
    predict     posterior, test inputs, prior and epsilon -> latent values and labels there
    settings    names of options that the answer states
    """

    method: str
    epsilon: str
    fit: Callable[[Problem, Prior, Any], tuple[Any, Fields]]
    predict: Callable[[Any, Any, Prior, float], Any]
    settings: tuple[str, ...] = ()


def _prior(problem: Problem) -> Prior:
    return Prior(*(np.array(getattr(problem, name)) for name in Prior._fields))


def _refuse(problem: Problem, who: str, epsilon: str) -> None:
    """Refuse what no row of the catalogue tells: labelling errors that the method does not have, hyperpriors."""
    if epsilon and (epsilon == ERRORS) != (problem.epsilon > 0.0):
        raise ValueError(f"epsilon: found {shown(problem.epsilon)}, expected {epsilon} for {who}")
    if problem.hyperprior is not None:
        raise ValueError(f"hyperprior: found one, expected None for {who}")


def _diagonal(var: Any) -> Any:
    """(n, C, C) of independent latents."""
    return var[:, :, None] * np.eye(var.shape[1])


def _summed(gradients: Mapping[str, Any] | None, shared: bool) -> Mapping[str, Any] | None:
    """Shared: every row holds the sum over the classes."""
    if gradients is None or not shared:
        return gradients
    return {name: np.broadcast_to(np.sum(value, axis=0), value.shape) for name, value in gradients.items()}


def _latents(fit: Any) -> Fields:
    return {"latents": (fit.latent_mean, fit.latent_var)}


def _read(fit: Any) -> Fields:
    """What most fits hold themselves."""
    return {"log_evidence": fit.log_evidence, "gradients": fit.gradients, **_latents(fit)}


def _answer(row: Row, problem: Problem, options: Any) -> Solution:
    _refuse(problem, f"reference {row.method}", row.epsilon)
    fit, own = row.fit(problem, _prior(problem), options)
    if options.learn:
        problem = problem.replace(**{name: getattr(fit.prior, name) for name in options.learn})
    predicted: Fields = {}
    if problem.X_test is not None:
        new = row.predict(fit.posterior, problem.X_test, _prior(problem), problem.epsilon)
        predicted = {
            "test_latent_mean": new.latent_mean,
            "test_latent_cov": _diagonal(new.latent_var),
            "probabilities": new.probability,
            "probability_mass": new.probability_mass,
        }
    fields: Fields = {
        "trace": fit.trace,
        "residual": finite_or_none(fit.residual),
        "converged": fit.converged,
        "iterations": fit.iterations,
        "n_improper": getattr(fit, "n_improper", 0),
        "inducing_mean": fit.posterior.mean,
        "inducing_cov": fit.posterior.cov,
        **predicted,
        **{name: value for name, value in own.items() if name not in ("gradients", "latents", "settings")},
    }
    mean, var = own["latents"]
    settings = {name: getattr(options, name) for name in row.settings} | own.get("settings", {})
    reason = getattr(fit, "reason", "")
    return Solution(
        problem=problem,
        implementation="reference",
        method=row.method,
        latent_mean=mean,
        latent_cov=_diagonal(var),
        gradients=_summed(own["gradients"], problem.shared),
        settings=settings | ({"reason": reason} if reason else {}),
        **fields,
    )


# -- villacampa2017 --------------------------------------------------------------------------------------------------


def _of_pairs(problem: Problem, options: Any, fit: Any) -> Fields:
    pairwise = getattr(options, "factors", "pairwise") == "pairwise" and problem.n_classes > 2
    target = "pairwise model" if pairwise else "log p(y)"
    return {**_read(fit), "evidence_target": target, "evidence_prior_model": "fitc"}


def _ep(problem: Problem, prior: Prior, options: Any) -> tuple[Any, Fields]:
    fit = fit_ep(problem.X, problem.y, prior, shared=problem.shared, options=options)
    local = fit.sites._asdict() | {"log_tilted_norm": fit.log_norm}
    return fit, {"local": local, **_of_pairs(problem, options, fit)}


def _sep(problem: Problem, prior: Prior, options: Any) -> tuple[Any, Fields]:
    fit = fit_sep(problem.X, problem.y, prior, shared=problem.shared, options=options)
    local = {
        "tied_precision": np.array([each.precision for each in fit.sites]),
        "tied_shift": np.array([each.shift for each in fit.sites]),
        "log_tilted_norm": fit.log_norm,
    }
    return fit, {"local": local, **_of_pairs(problem, options, fit)}


def _gfitc(problem: Problem, prior: Prior, options: Any) -> tuple[Any, Fields]:
    fit = gfitc_baseline(problem.X, problem.y, prior, shared=problem.shared, options=options)
    return fit, {
        **_read(fit),
        "evidence_prior_model": "fitc",
        "local": dict(zip(_PAIRS, fit.sites, strict=True)) | {"log_tilted_norm": fit.log_norm},
    }


def _vi_robust(problem: Problem, prior: Prior, options: Any) -> tuple[Any, Fields]:
    fit = vi_baseline(problem.X, problem.y, prior, problem.epsilon, shared=problem.shared, options=options)
    gradients = None
    if options.gradients:
        gradients = vi_gradients(problem.X, problem.y, fit.prior, fit.posterior, problem.epsilon)
    return fit, {
        **_latents(fit),
        "log_evidence": fit.elbo,
        "log_evidence_kind": "lower bound",
        "evidence_prior_model": "full",
        "gradients": gradients,
        "local": {"label_probability": fit.probability},
        "settings": {"epsilon": problem.epsilon},
    }


# -- villacampa2020 --------------------------------------------------------------------------------------------------


class _Predicted(NamedTuple):
    latent_mean: Any
    latent_var: Any
    probability: Any
    probability_mass: Any


def _predict_2020(posterior: Any, X_test: Any, prior: Prior, epsilon: float) -> _Predicted:
    """(A.31) to (A.34) at the test inputs."""
    at = *cross_covariances(X_test, prior), inducing_covariances(prior)
    latents = prediction_2020.predictive_latent_distribution(posterior, *at)
    return _Predicted(*latents, *prediction_2020.predict(posterior, *at, epsilon))


def _of_powers(alpha: float) -> Fields:
    if alpha == 0.0:
        return {"log_evidence_kind": "lower bound", "evidence_prior_model": "full"}
    return {"evidence_prior_model": "fitc"}


def _pep(problem: Problem, prior: Prior, options: Any) -> tuple[Any, Fields]:
    fit = fit_pep(problem.X, problem.y, prior, problem.epsilon, shared=problem.shared, options=options)
    return fit, {
        **_read(fit),
        "local": {"site_precision": fit.sites.c1, "site_shift": fit.sites.c2, "log_tilted_norm": fit.log_norm},
        **_of_powers(options.alpha),
    }


def _of_energy(method: str, problem: Problem, fit: EnergyFit, alpha: float, gradients: bool) -> Fields:
    """What follows from q at the end of an ascent."""
    K = prior_matrices(problem.X, fit.prior)
    finite = not fit.optimum.startswith("none")
    derivatives, local = None, {"log_tilted_norm": fit.log_norm}
    if gradients and finite:
        at = Data(problem.X, problem.y, method, problem.epsilon, alpha).at(fit.posterior, K)
        derivatives = energy_gradients(problem.X, fit.prior, at, fit.posterior)
    if method in ("apep", "bb-alpha"):
        precision = np.stack([factorise(V, "inducing_cov", "lower damping").inverse for V in fit.posterior.cov])
        shift = np.einsum("kml,kl->km", precision, fit.posterior.mean)
        local |= {"tied_precision": precision - natural_prior(K.K_ZZ).precision, "tied_shift": shift}
    return {
        "log_evidence": fit.value if finite else None,
        "gradients": derivatives,
        "latents": latent_marginal(fit.posterior, K.upsilon, K.cond_var),
        "local": local,
        "settings": {"optimum": fit.optimum},
        **_of_powers(alpha),
    }


def _as_asked(fit: EnergyFit, options: Any) -> EnergyFit:
    return fit if options.trace else fit._replace(trace=np.zeros(0))


def _energy(method: str, problem: Problem, prior: Prior, options: Any) -> tuple[Any, Fields]:
    if getattr(options, "tied_factor", "any") == "gaussian":
        return _gaussian_factor(problem, prior, options)
    fit = fit_energy(problem.X, problem.y, prior, method, problem.epsilon, shared=problem.shared, options=options)
    return _as_asked(fit, options), _of_energy(method, problem, fit, options.alpha, options.gradients)


def _gaussian_factor(problem: Problem, prior: Prior, options: Any) -> tuple[Any, Fields]:
    if options.learn or options.in_parts or options.n_steps is not None or options.optimizer == "adam":
        raise ValueError("tied_factor: found 'gaussian' with learn, mini-batches or n_steps, expected 'any'")
    data = Data(problem.X, problem.y, "apep", problem.epsilon, options.alpha)
    fit = fit_gaussian_factor(data, prior, options.max_iterations)
    own = _of_energy("apep", problem, fit, options.alpha, options.gradients)
    own["settings"] |= {"tied_factor": "gaussian"}
    return _as_asked(fit, options), own


def _bb_alpha(problem: Problem, prior: Prior, options: Any) -> tuple[Any, Fields]:
    """The energy (11) by quadrature, or by draws at the q where quadrature ended."""
    if options.expectation == "quadrature":
        return _energy("bb-alpha", problem, prior, options)
    if options.learn:
        raise ValueError("learn: found names with expectation 'monte-carlo', expected none")
    fit = fit_energy(problem.X, problem.y, prior, "bb-alpha", problem.epsilon, shared=problem.shared, options=options)
    fit = _as_asked(fit, options)
    own = _of_energy("bb-alpha", problem, fit, options.alpha, False)
    if fit.optimum.startswith("none"):
        return fit, own
    K, q = prior_matrices(problem.X, prior), fit.posterior
    draws = monte_carlo_log_norms(q, problem.y, K, problem.epsilon, options.alpha, options.n_draws, options.seed)
    own["settings"] |= {"n_draws": options.n_draws, "expectation": options.expectation}
    zero = int(np.sum(~np.isfinite(draws.log_norm)))
    if zero:
        own["settings"]["zero_expectations"] = zero
        own["log_evidence"] = None
        del own["local"]["log_tilted_norm"]
        return fit, own
    # (11) with the averages already divided by α
    own["log_evidence"] = -bb_alpha_energy(q, K.K_ZZ, problem.n, lambda factor: draws.log_norm, 1.0)
    own["settings"]["log_evidence_se"] = draws.standard_error
    own["local"]["log_tilted_norm"] = draws.log_norm
    return fit, own


def _label_regression(problem: Problem, prior: Prior, options: Any) -> tuple[Any, Fields]:
    fit = label_regression_baseline(problem.X, problem.y, prior, shared=problem.shared, options=options)
    return fit, {
        **_read(fit),
        "log_evidence_kind": "exact",
        "evidence_target": "regression",
        "evidence_prior_model": "fitc",
        "local": {"site_precision": fit.sites.c1, "site_shift": fit.sites.c2},
        "settings": {"epsilon": problem.epsilon},
    }


def _laplace_sparse(problem: Problem, options: Any) -> Solution:
    _refuse(problem, "reference laplace-sparse", EITHER)
    prior = _prior(problem)
    fit = laplace_baseline(problem.X, problem.y, prior, options=options)
    predicted: Fields = {}
    if problem.X_test is not None:
        prediction = predict_laplace(fit, problem.X, problem.X_test, prior, options.prediction_nodes)
        predicted = {
            "test_latent_mean": prediction.latent_mean,
            "test_latent_cov": prediction.latent_cov,
            "probabilities": prediction.probability,
            "probability_mass": prediction.probability_mass,
        }
    return Solution(
        problem=problem,
        implementation="reference",
        method="laplace-sparse",
        log_evidence=fit.log_evidence,
        evidence_prior_model="fitc",
        latent_mean=fit.mode.latent_values,
        latent_cov=fit.latent_cov,
        inducing_mean=fit.inducing.mean,
        inducing_cov=fit.inducing.cov,
        local={"pi": fit.pi},
        residual=finite_or_none(fit.mode.residual),
        converged=fit.mode.converged,
        iterations=fit.mode.iterations,
        settings={"tolerance": options.tolerance},
        **predicted,
    )


_POWER = ("alpha", "tolerance")
_ROWS = (
    Row("ep", NO_ERRORS, _ep, prediction_2017.predict),
    Row("sep", NO_ERRORS, _sep, prediction_2017.predict),
    Row("gfitc", NO_ERRORS, _gfitc, prediction_2017.predict, ("tolerance", "damping")),
    Row("vi-robust", ERRORS, _vi_robust, prediction_2017.predict, ("tolerance",)),
    Row("pep", EITHER, _pep, _predict_2020, (*_POWER, "damping")),
    *(Row(name, EITHER, partial(_energy, name), _predict_2020, _POWER) for name in ("apep", "arpep", "rpapep")),
    Row("bb-alpha", EITHER, _bb_alpha, _predict_2020, _POWER),
    Row("label-regression", EITHER, _label_regression, _predict_2020),
)

TABLE = {row.method: Adapter(options_of(row.method), partial(_answer, row)) for row in _ROWS}
TABLE["laplace-sparse"] = Adapter(options_of("laplace-sparse"), _laplace_sparse)
