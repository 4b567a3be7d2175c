"""The methods of several classes with inducing points in `fast`, villacampa2017 and villacampa2020: a row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from fast.core.declare import Options, option
from fast.core.options import GradientRule, Gradients
from fast.core.values import Data, Prior
from fast.methods import apep, bb_alpha, ep, gfitc, label_regression, pep, sep, vi_robust
from fast.sparse_classes.alpha_runs import data_moments
from fast.sparse_classes.inference import diagonal_covariances
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.implementations.common import finite_or_none
from validation.implementations.witness import Adapter

NO_ERRORS, ERRORS, EITHER = "0", "> 0", ""  # probabilities of labelling errors that a method takes


class Row(NamedTuple):
    """What one method has that the others do not.

    method      its id
    module      of `fast.methods`: gradients and predict
    options     class of the options of its `fit`
    epsilon     NO_ERRORS, ERRORS or EITHER
    evidence    problem and options -> kind, target and prior model of the log evidence
    latents     posterior -> moments of the latent values at the data
    local       posterior and those moments -> arrays of the answer's own
    settings    names of options that the answer states
    fixed       options of `fit` that are not the user's
    finish      changes the fields of the answer by posterior and options
    """

    method: str
    module: ModuleType
    options: type[Options]
    epsilon: str
    evidence: Callable[[Problem, Any], dict[str, Any]]
    latents: Callable[[Any], Any]
    local: Callable[[Any, Any], dict[str, Any]]
    settings: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = MappingProxyType({})
    finish: Callable[[Any, Any, dict[str, Any]], None] = lambda posterior, options, fields: None


class Moments(NamedTuple):
    """Mean and variance of the latent values at the data."""

    mean: Any  # (n, C)
    var: Any  # (n, C)


def given(problem: Problem) -> tuple[Data, Prior]:
    """Data and prior of a problem of several classes."""
    prior = Prior(
        problem.variance, problem.lengthscales, problem.noise, problem.jitter, problem.Z, shared=problem.shared
    )
    return Data(problem.X, problem.y, problem.n_classes), prior


def predictions(at_test: Any) -> dict[str, Any]:
    """Fields of a Solution from a prediction."""
    return {
        "test_latent_mean": at_test.latent_mean,
        "test_latent_cov": at_test.latent_cov,
        "probabilities": at_test.probabilities,
        "probability_mass": at_test.probability_mass,
    }


def refuse_rest(problem: Problem, who: str, epsilon: str) -> None:
    """Refuse what no row of the catalogue tells: labelling errors that the method does not have, hyperpriors."""
    if epsilon and (epsilon == ERRORS) != (problem.epsilon > 0.0):
        raise ValueError(f"epsilon: found {shown(problem.epsilon)}, expected {epsilon} for {who}")
    if problem.hyperprior is not None:
        raise ValueError(f"hyperprior: found {shown(dict(problem.hyperprior))}, expected None for {who}")


def _answer(row: Row, problem: Problem, options: Any) -> Solution:
    refuse_rest(problem, f"fast {row.method}", row.epsilon)
    if getattr(options, "tied_factor", "any") == "gaussian":
        raise ValueError("tied_factor: found 'gaussian', expected 'any' for fast; reference has it")
    if getattr(options, "expectation", "quadrature") == "monte-carlo" and options.learn:
        raise ValueError(f"learn: found {shown(options.learn)}, expected () with expectation='monte-carlo'")
    data, prior = given(problem)
    asked = row.options.of({**vars(options), "epsilon": problem.epsilon, **row.fixed})
    posterior = row.module.fit(data, prior, asked)
    run, trained = posterior.run, posterior.trained
    if tuple(options.learn):
        hyper = run.points.hyper
        problem = problem.replace(
            variance=hyper.variance, lengthscales=hyper.lengthscales, noise=hyper.noise, Z=run.points.Z
        )
    at_data = row.latents(posterior)
    mean, cov = run.points.inducing_moments(run.q)
    fields: dict[str, Any] = {
        "log_evidence": posterior.log_evidence,
        "gradients": _gradients(row, posterior, options),
        "local": row.local(posterior, at_data),
        "settings": {name: getattr(options, name) for name in row.settings}
        | {"reason": trained.reason, "diverged": trained.diverged}
        | {"projections": "kept" if run.data.keeps(run.points) else "recomputed"},
    }
    if problem.X_test is not None:
        fields |= predictions(row.module.predict(posterior, problem.X_test))
    row.finish(posterior, options, fields)
    return Solution(
        problem=problem,
        implementation="fast",
        method=row.method,
        latent_mean=at_data.mean,
        latent_cov=diagonal_covariances(at_data.var),
        inducing_mean=mean,
        inducing_cov=cov,
        trace=trained.trace if np.isfinite(trained.trace).all() else np.zeros(0),
        residual=finite_or_none(trained.residual),
        converged=trained.converged,
        n_improper=trained.n_improper,
        iterations=trained.iterations,
        **row.evidence(problem, options),
        **fields,
    )


def _gradients(row: Row, posterior: Any, options: Any) -> dict[str, Any] | None:
    if not options.gradients or posterior.log_evidence is None:
        return None
    rule = {"gradient_rule": options.gradient_rule} if row.module in (ep, sep) else {}
    return dict(row.module.gradients(posterior, **rule)._asdict())


# -- evidence ------------------------------------------------------------------------------------------------------


def _of_pairs(problem: Problem, options: Any) -> dict[str, Any]:
    pairwise = getattr(options, "factors", "pairwise") == "pairwise" and problem.n_classes > 2
    return {"evidence_target": "pairwise model" if pairwise else "log p(y)", "evidence_prior_model": "fitc"}


def _of_powers(problem: Problem, options: Any) -> dict[str, Any]:
    if options.alpha == 0.0:
        return {"log_evidence_kind": "lower bound", "evidence_prior_model": "full"}
    return {"evidence_prior_model": "fitc"}


def _constant(**fields: Any) -> Callable[[Problem, Any], dict[str, Any]]:
    return lambda problem, options: fields


# -- local arrays --------------------------------------------------------------------------------------------------


def _at_data(posterior: Any) -> Moments:
    run = posterior.run
    parts = [data_moments(run.q, block.view) for block in run.data.blocks(run.points)]
    return Moments(*(np.concatenate([getattr(part, name) for part in parts]) for name in Moments._fields))


def _sites_and_norms(posterior: Any, at_data: Any) -> dict[str, Any]:
    return {**posterior.sites, "log_tilted_norm": at_data.log_tilted_norm}


def _named(names: tuple[str, str], pair: tuple[Any, Any]) -> dict[str, Any]:
    return dict(zip(names, pair, strict=True))


_TIED, _SITES = ("tied_precision", "tied_shift"), ("site_precision", "site_shift")


def _energy_local(tied: bool) -> Callable[[Any, Any], dict[str, Any]]:
    def local(posterior: Any, at_data: Any) -> dict[str, Any]:
        norms = {"log_tilted_norm": apep.log_norms(posterior)}
        return norms | _named(_TIED, posterior.run.tied()) if tied else norms

    return local


# -- options and ends of single methods ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class TiedFactor(Options):
    """What the tied factor of an energy may be."""

    tied_factor: str = option("choice", "what the tied factor may be", choices=("any", "gaussian"), default="any")


def _with_optimum(posterior: Any, options: Any, fields: dict[str, Any]) -> None:
    fields["settings"]["optimum"] = posterior.optimum


def _black_box(posterior: Any, options: Any, fields: dict[str, Any]) -> None:
    """The energy (11) itself, by quadrature or by draws, in the place of apep's."""
    _with_optimum(posterior, options, fields)
    if options.expectation == "quadrature":
        energy = bb_alpha.quadrature_energy(posterior)
        fields["log_evidence"] = None if energy is None else -energy
        return
    sampled = bb_alpha.monte_carlo_energy(posterior, n_draws=options.n_draws, seed=options.seed)
    norms = np.where(np.isfinite(sampled.log_norm), sampled.log_norm, 0.0)
    fields |= {
        "log_evidence": None if sampled.energy is None else -sampled.energy,
        "gradients": None,
        "local": {"log_tilted_norm": norms if sampled.zero_expectations else sampled.log_norm},
    }
    fields["settings"] |= {
        "n_draws": options.n_draws,
        "seed": options.seed,
        "zero_expectations": sampled.zero_expectations,
        "log_evidence_se": finite_or_none(sampled.standard_error),
    }


_ENERGY = ("alpha", "tolerance", "seed")
_ROWS = (
    Row(
        "ep", ep, ep.EPOptions, NO_ERRORS, _of_pairs, ep.latents, _sites_and_norms,
        ("factors", "schedule", "damping", "tolerance", "gradient_rule", "seed"),
    ),
    Row(
        "sep", sep, sep.SEPOptions, NO_ERRORS, _of_pairs, sep.latents,
        lambda posterior, at_data: {**_named(_TIED, posterior.tied), "log_tilted_norm": at_data.log_tilted_norm},
        ("count", "damping", "tolerance", "gradient_rule", "seed"),
    ),
    Row(
        "gfitc", gfitc, gfitc.GFITCOptions, NO_ERRORS, _constant(evidence_prior_model="fitc"), gfitc.latents,
        _sites_and_norms, ("damping", "tolerance"),
    ),
    Row(
        "vi-robust", vi_robust, vi_robust.RobustOptions, ERRORS,
        _constant(log_evidence_kind="lower bound", evidence_prior_model="full"), vi_robust.latents,
        lambda posterior, at_data: {"label_probability": at_data.label_probability},
        ("tolerance", "nat_rate", "rate", "seed"),
    ),
    Row(
        "pep", pep, pep.PEPOptions, EITHER, _of_powers, _at_data,
        lambda posterior, at_data: {**posterior.sites, "log_tilted_norm": pep.log_norms(posterior)},
        ("alpha", "damping", "tolerance", "gradient_rule", "seed"),
    ),
    *(
        Row(
            method, apep, apep.EnergyOptions, EITHER, _of_powers, _at_data, _energy_local(method == "apep"), _ENERGY,
            {"energy": method}, _with_optimum,
        )
        for method in ("apep", "arpep", "rpapep")
    ),
    Row(
        "bb-alpha", apep, apep.EnergyOptions, EITHER, _of_powers, _at_data, _energy_local(True),
        ("alpha", "tolerance", "expectation"), {"energy": "apep"}, _black_box,
    ),
    Row(
        "label-regression", label_regression, label_regression.RegressionOptions, EITHER,
        _constant(log_evidence_kind="exact", evidence_target="regression", evidence_prior_model="fitc"), _at_data,
        lambda posterior, at_data: _named(_SITES, posterior.run.sites()),
    ),
)  # fmt: skip

# what `solve` may be asked: options of `fit`, and of the answer
_ASKED: Mapping[str, type[Options]] = {
    "ep": ep.EPOptions.joined(GradientRule, Gradients),
    "sep": sep.SEPOptions.joined(GradientRule, Gradients),
    **dict.fromkeys(("apep", "arpep", "rpapep"), apep.OneEnergyOptions.joined(TiedFactor, Gradients)),
    "bb-alpha": bb_alpha.BBAlphaOptions.joined(Gradients),
}

TABLE = {
    row.method: Adapter(_ASKED.get(row.method, row.options.joined(Gradients)), partial(_answer, row)) for row in _ROWS
}
