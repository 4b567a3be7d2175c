"""The two baselines of villacampa2017 of `reference`: gfitc and vi-robust."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reference.common._classes import Prior
from reference.villacampa2017.gfitc import gfitc_baseline, gfitc_gradients
from reference.villacampa2017.prediction import predict
from reference.villacampa2017.vi_fit import vi_baseline
from reference.villacampa2017.vi_gradients import vi_gradients
from validation import arguments
from validation.implementations.common import finite_or_none, refuse, refuse_callback, refuse_switches
from validation.problem import Problem
from validation.quoting import shown
from validation.solution import Solution


def _require(problem: Problem, who: str, robust: bool) -> None:
    """Refuse a problem that a baseline cannot answer."""
    if problem.likelihood != "threshold":
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected 'threshold' for {who}")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {shown(problem.kernel)}, expected 'se' for {who}")
    if problem.Z is None:
        raise ValueError(f"Z: found None, expected inducing inputs for {who}")
    if (problem.epsilon > 0.0) != robust:
        raise ValueError(f"epsilon: found {shown(problem.epsilon)}, expected {'> 0' if robust else '0'} for {who}")
    if problem.hyperprior is not None:
        raise ValueError(f"hyperprior: found one, expected None for {who}")


def _prior(problem: Problem) -> Prior:
    return Prior(**{name: np.array(getattr(problem, name)) for name in Prior._fields})


def _names(learn: Any) -> tuple[str, ...]:
    """A text stands for one name."""
    return (learn,) if isinstance(learn, str) else tuple(learn)


def _as_learned(problem: Problem, prior: Prior, learn: Any) -> Problem:
    return problem.replace(**{name: getattr(prior, name) for name in _names(learn)})


def _gradients(result: dict[str, Any], shared: bool) -> dict[str, Any]:
    """Shared: every row holds the sum over the classes."""
    return {
        name: np.broadcast_to(np.sum(value, axis=0), value.shape) if shared else value for name, value in result.items()
    }


def _diagonal(var: Any) -> Any:
    """(n, C, C) of independent latents."""
    return var[:, :, None] * np.eye(var.shape[1])


def _predicted(problem: Problem, posterior: Any) -> dict[str, Any]:
    if problem.X_test is None:
        return {}
    prediction = predict(posterior, problem.X_test, _prior(problem), problem.epsilon)
    return {
        "test_latent_mean": prediction.latent_mean,
        "test_latent_cov": _diagonal(prediction.latent_var),
        "probabilities": prediction.probability,
        "probability_mass": prediction.probability_mass,
    }


def _gfitc(
    problem: Problem,
    *,
    damping: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    learn: Sequence[str] = (),
    learn_tolerance: float = 1e-5,
    n_steps: int | None = None,
    trace: bool = False,
    form: str | None = None,
    gradients: bool = True,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require(problem, "reference gfitc", robust=False)
    refuse(tolerance, max_iterations)
    refuse_switches(trace=trace, gradients=gradients)
    refuse_callback(callback)
    fit = gfitc_baseline(
        problem.X,
        problem.y,
        _prior(problem),
        damping=arguments.real(damping, "damping"),
        tolerance=tolerance,
        max_iterations=max_iterations,
        learn=_names(learn),
        shared=problem.shared,
        n_steps=n_steps,
        learning_tolerance=learn_tolerance,
        trace=trace,
        callback=callback,
        form=form,
    )
    solved = _as_learned(problem, fit.prior, learn)
    slopes = None
    if gradients and fit.log_evidence is not None:
        slopes = gfitc_gradients(fit.sites, solved.X, solved.y, _prior(solved), form=fit.form)
        slopes = _gradients(slopes, solved.shared)
    return Solution(
        problem=solved,
        implementation="reference",
        method="gfitc",
        log_evidence=fit.log_evidence,
        log_evidence_kind="estimate",
        evidence_target="log p(y)",
        evidence_prior_model="fitc",
        latent_mean=fit.latent_mean,
        latent_cov=_diagonal(fit.latent_var),
        inducing_mean=fit.inducing.mean,
        inducing_cov=fit.inducing.cov,
        gradients=slopes,
        local={
            "site_precision_label": fit.sites.c1_label,
            "site_shift_label": fit.sites.c2_label,
            "site_precision_other": fit.sites.c1_other,
            "site_shift_other": fit.sites.c2_other,
            "log_tilted_norm": fit.log_norm,
        },
        trace=fit.trace,
        residual=finite_or_none(fit.residual),
        converged=fit.converged,
        n_improper=fit.n_improper,
        iterations=fit.iterations,
        settings={"tolerance": tolerance, "damping": damping, "form": fit.form},
        **_predicted(solved, fit.inducing),
    )


def _vi_robust(
    problem: Problem,
    *,
    form: str | None = None,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    nat_rate: float = 0.1,
    learn: Sequence[str] = (),
    optimizer: str | None = None,
    rate: float = 0.001,
    learn_tolerance: float = 1e-5,
    seed: int = 0,
    trace: bool = False,
    gradients: bool = True,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    _require(problem, "reference vi-robust", robust=True)
    refuse(tolerance, max_iterations)
    refuse_switches(trace=trace, gradients=gradients)
    refuse_callback(callback)
    if not 0.0 < arguments.real(nat_rate, "nat_rate") <= 1.0:
        raise ValueError(f"nat_rate: found {shown(nat_rate)}, expected a number in (0, 1]")
    if not arguments.real(rate, "rate") > 0.0:
        raise ValueError(f"rate: found {shown(rate)}, expected a number > 0")
    fit = vi_baseline(
        problem.X,
        problem.y,
        _prior(problem),
        problem.epsilon,
        tolerance=tolerance,
        max_iterations=max_iterations,
        batches=batches,
        batch_size=batch_size,
        n_steps=n_steps,
        learn=_names(learn),
        shared=problem.shared,
        optimizer=optimizer,
        rate=nat_rate,
        learning_rate=rate,
        learning_tolerance=learn_tolerance,
        seed=seed,
        trace=trace,
        callback=callback,
        form=form,
    )
    solved = _as_learned(problem, fit.prior, learn)
    slopes = None
    if gradients:
        result = vi_gradients(solved.X, solved.y, _prior(solved), fit.posterior, solved.epsilon)
        slopes = _gradients(result, solved.shared)
    return Solution(
        problem=solved,
        implementation="reference",
        method="vi-robust",
        log_evidence=fit.elbo,
        log_evidence_kind="lower bound",
        evidence_target="log p(y)",
        evidence_prior_model="full",
        latent_mean=fit.latent_mean,
        latent_cov=_diagonal(fit.latent_var),
        inducing_mean=fit.posterior.mean,
        inducing_cov=fit.posterior.cov,
        gradients=slopes,
        local={"label_probability": fit.probability},
        trace=fit.trace,
        residual=finite_or_none(fit.residual),
        converged=fit.converged,
        iterations=fit.iterations,
        settings={"tolerance": tolerance, "epsilon": problem.epsilon, "form": fit.form}
        | ({"reason": fit.reason} if fit.reason else {}),
        **_predicted(solved, fit.posterior),
    )


TABLE = {"gfitc": _gfitc, "vi-robust": _vi_robust}
