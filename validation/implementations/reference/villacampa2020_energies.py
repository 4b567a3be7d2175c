"""The energies of villacampa2020 by `reference`: apep, arpep, rpapep and bb-alpha."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import Prior, checked_input
from reference.villacampa2020.black_box import monte_carlo_log_norms
from reference.villacampa2020.energies import bb_alpha_energy
from reference.villacampa2020.fit_energies import FINITE, Data, EnergyFit, energy_gradients, fit_energy
from reference.villacampa2020.fit_gaussian_factor import fit_gaussian_factor
from reference.villacampa2020.forms import form_of
from reference.villacampa2020.hyper import Matrices, cross_covariances, inducing_covariances, prior_matrices
from reference.villacampa2020.posterior import Gaussians, natural_parameters, natural_prior
from reference.villacampa2020.power_likelihood import check_power
from reference.villacampa2020.prediction import predict
from reference.villacampa2020.sparse import latent_marginal
from validation import arguments
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_switches
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution

Array = NDArray[np.float64]

TIED_FACTORS = ("any", "gaussian")
EXPECTATIONS = ("quadrature", "monte-carlo")


def _require(problem: Problem, method: str, alpha: float) -> float:
    """Refuse a problem that the method cannot answer; α as a number."""
    who = f"reference {method}"
    if problem.likelihood != "threshold":
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected 'threshold' for {who}")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {shown(problem.kernel)}, expected 'se' for {who}")
    if problem.Z is None:
        raise ValueError(f"Z: found None, expected inducing inputs for {who}; Z = X is an ordinary case")
    if problem.hyperprior is not None:
        raise ValueError(f"hyperprior: found one, expected None for {who}")
    power = arguments.real(alpha, "alpha")
    check_power(power, problem.epsilon)
    return power


def _prior(problem: Problem) -> Prior:
    return Prior(**{name: np.array(getattr(problem, name)) for name in Prior._fields})


def _names(learn: Any) -> tuple[str, ...]:
    """A text stands for one name."""
    return (learn,) if isinstance(learn, str) else tuple(learn)


def _diagonal(var: Array) -> Array:
    """(n, C, C) of independent latents."""
    return var[:, :, None] * np.eye(var.shape[1])


def _latents(posterior: Gaussians, K: Matrices) -> dict[str, Any]:
    mean, var = latent_marginal(posterior, K.upsilon, K.cond_var)
    return {"latent_mean": mean, "latent_cov": _diagonal(var)}


def _predicted(problem: Problem, posterior: Gaussians) -> dict[str, Any]:
    if problem.X_test is None:
        return {}
    prior = _prior(problem)
    K = prior_matrices(problem.X_test, prior)
    prediction = predict(posterior, *cross_covariances(problem.X_test, prior), K.K_ZZ, problem.epsilon)
    return {
        **{f"test_{name}": value for name, value in _latents(posterior, K).items()},
        "probabilities": prediction.probability,
        "probability_mass": prediction.probability_mass,
    }


def _tied(posterior: Gaussians, K: Matrices) -> dict[str, Array]:
    theta = natural_parameters(posterior)
    return {"tied_precision": theta.precision - natural_prior(K.K_ZZ).precision, "tied_shift": theta.shift}


def _solution(
    problem: Problem, method: str, fit: EnergyFit, alpha: float, gradients: bool, settings: dict[str, Any]
) -> Solution:
    """What follows from q at the end of a fit."""
    prior = _prior(problem)
    K = prior_matrices(problem.X, prior)
    finite = not fit.optimum.startswith("none")
    slopes = None
    if gradients and finite:
        at = Data(problem.X, problem.y, method, problem.epsilon, alpha, fit.form).at(fit.posterior, K)
        result = energy_gradients(problem.X, prior, at, fit.posterior)
        slopes = {
            name: np.broadcast_to(np.sum(value, axis=0), value.shape) if problem.shared else value
            for name, value in result.items()
        }
    return Solution(
        problem=problem,
        implementation="reference",
        method=method,
        log_evidence=fit.value if finite else None,
        log_evidence_kind="estimate" if alpha > 0.0 else "lower bound",
        evidence_target="log p(y)",
        evidence_prior_model="fitc" if alpha > 0.0 else "full",
        inducing_mean=fit.posterior.mean,
        inducing_cov=fit.posterior.cov,
        gradients=slopes,
        local={"log_tilted_norm": fit.log_norm, **(_tied(fit.posterior, K) if method in ("apep", "bb-alpha") else {})},
        trace=fit.trace,
        residual=finite_or_none(fit.residual),
        converged=fit.converged,
        iterations=fit.iterations,
        settings={
            "alpha": alpha,
            "optimum": fit.optimum,
            "form": fit.form,
            **settings,
            **({"reason": fit.reason} if fit.reason else {}),
        },
        **_latents(fit.posterior, K),
        **_predicted(problem, fit.posterior),
    )


def _energy(
    method: str,
    problem: Problem,
    alpha: float,
    tolerance: float,
    max_iterations: int,
    learn: Sequence[str],
    optimizer: str | None,
    rate: float,
    n_steps: int | None,
    batches: Sequence[Any] | None,
    batch_size: int | None,
    learn_tolerance: float,
    seed: int,
    form: str | None,
    gradients: bool,
    trace: bool,
    callback: Callable[[Any], None] | None,
) -> Solution:
    alpha = _require(problem, method, alpha)
    refuse(tolerance, max_iterations)
    refuse_switches(trace=trace, gradients=gradients)
    refuse_callback(callback)
    if not arguments.real(rate, "rate") > 0.0:
        raise ValueError(f"rate: found {shown(rate)}, expected a number > 0")
    fit = fit_energy(
        problem.X,
        problem.y,
        _prior(problem),
        method,
        problem.epsilon,
        alpha,
        tolerance=tolerance,
        max_iterations=max_iterations,
        batches=batches,
        batch_size=batch_size,
        n_steps=n_steps,
        learn=_names(learn),
        shared=problem.shared,
        optimizer=optimizer,
        learning_rate=rate,
        learning_tolerance=learn_tolerance,
        seed=seed,
        trace=trace,
        callback=callback,
        form=form,
    )
    if not trace:
        fit = fit._replace(trace=np.zeros(0))
    solved = problem.replace(**{name: getattr(fit.prior, name) for name in _names(learn)})
    return _solution(solved, method, fit, alpha, gradients, {"tolerance": tolerance})


def _apep(
    problem: Problem,
    *,
    alpha: float = 0.5,
    tied_factor: str = "any",
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    learn: Sequence[str] = (),
    optimizer: str | None = None,
    rate: float = 0.001,
    n_steps: int | None = None,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    learn_tolerance: float = 1e-5,
    seed: int = 0,
    form: str | None = None,
    gradients: bool = True,
    trace: bool = False,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    arguments.choice(tied_factor, TIED_FACTORS, "tied_factor")
    if tied_factor == "any":
        return _energy("apep", problem, alpha, tolerance, max_iterations, learn, optimizer, rate, n_steps, batches,
                       batch_size, learn_tolerance, seed, form, gradients, trace, callback)  # fmt: skip
    alpha = _require(problem, "apep", alpha)
    refuse(tolerance, max_iterations)
    refuse_switches(trace=trace, gradients=gradients)
    refuse_callback(callback)
    arguments.choice(optimizer or "lbfgs", ("lbfgs", "adam"), "optimizer")
    stepwise = batches is not None or batch_size is not None or n_steps is not None or optimizer == "adam"
    if len(_names(learn)) or stepwise:
        raise ValueError("tied_factor: found 'gaussian' with learn, mini-batches or n_steps, expected 'any'")
    X, y, prior = checked_input(problem.X, problem.y, _prior(problem))
    # a search that ends at slopes of 1e-6: contracted unless asked, like one over hyper-parameters
    form = form_of(form, problem.n, inducing_covariances(prior), alpha, searched=True)
    fit = fit_gaussian_factor(Data(X, y, "apep", problem.epsilon, alpha, form), prior, max_iterations)
    if not trace:
        fit = fit._replace(trace=np.zeros(0))
    return _solution(problem, "apep", fit, alpha, gradients, {"tolerance": tolerance, "tied_factor": "gaussian"})


def _arpep(
    problem: Problem,
    *,
    alpha: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    learn: Sequence[str] = (),
    optimizer: str | None = None,
    rate: float = 0.001,
    n_steps: int | None = None,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    learn_tolerance: float = 1e-5,
    seed: int = 0,
    form: str | None = None,
    gradients: bool = True,
    trace: bool = False,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    return _energy("arpep", problem, alpha, tolerance, max_iterations, learn, optimizer, rate, n_steps, batches,
                   batch_size, learn_tolerance, seed, form, gradients, trace, callback)  # fmt: skip


def _rpapep(
    problem: Problem,
    *,
    alpha: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    learn: Sequence[str] = (),
    optimizer: str | None = None,
    rate: float = 0.001,
    n_steps: int | None = None,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    learn_tolerance: float = 1e-5,
    seed: int = 0,
    form: str | None = None,
    gradients: bool = True,
    trace: bool = False,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    return _energy("rpapep", problem, alpha, tolerance, max_iterations, learn, optimizer, rate, n_steps, batches,
                   batch_size, learn_tolerance, seed, form, gradients, trace, callback)  # fmt: skip


def _bb_alpha(
    problem: Problem,
    *,
    alpha: float = 0.5,
    expectation: str = "quadrature",
    n_draws: int = 1000,
    seed: int = 0,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    learn: Sequence[str] = (),
    n_steps: int | None = None,
    learn_tolerance: float = 1e-5,
    form: str | None = None,
    gradients: bool = True,
    trace: bool = False,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    arguments.choice(expectation, EXPECTATIONS, "expectation")
    arguments.integer(n_draws, "n_draws", at_least=2)
    sampled = expectation == "monte-carlo"
    if sampled and len(_names(learn)):
        raise ValueError("learn: found names with expectation 'monte-carlo', expected none")
    result = _energy("bb-alpha", problem, alpha, tolerance, max_iterations, learn, "lbfgs", 0.001, n_steps, None, None,
                    learn_tolerance, seed, form, gradients and not sampled, trace, callback)  # fmt: skip
    if not sampled or result.settings["optimum"] != FINITE:
        return result
    K = prior_matrices(problem.X, _prior(problem))
    assert result.inducing_mean is not None
    assert result.inducing_cov is not None
    q = Gaussians(result.inducing_mean, result.inducing_cov)
    draws = monte_carlo_log_norms(
        q, problem.y, K.upsilon, K.cond_var, K.K_ZZ, problem.epsilon, float(alpha), n_draws, seed
    )
    settings = dict(result.settings) | {"n_draws": n_draws, "expectation": expectation}
    zero = int(np.sum(~np.isfinite(draws.log_norm)))
    evidence = None
    if zero:
        settings["zero_expectations"] = zero
    else:
        # (11) with the averages already divided by α
        evidence = -bb_alpha_energy(q, K.K_ZZ, problem.n, lambda factor: draws.log_norm, 1.0)
        settings["log_evidence_se"] = draws.standard_error
    local = dict(result.local) | {"log_tilted_norm": draws.log_norm}
    if zero:
        del local["log_tilted_norm"]
    return replace(result, log_evidence=evidence, settings=settings, local=local)


TABLE = {"apep": _apep, "arpep": _arpep, "rpapep": _rpapep, "bb-alpha": _bb_alpha}
