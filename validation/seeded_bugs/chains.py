"""Bugs of chains over kernel parameters, of type-II MAP and of stated errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds

_bug = Seeds()


def _sampled(*methods: str) -> tuple[str, ...]:
    return tuple(f"exactness/{method}/hyper_{name}" for method in methods for name in ("joint", "prior_only"))


# -- densities and moves -----------------------------------------------------------------------------------------------


def _without_jacobian(original: Any) -> Any:
    def density(log_hyper: Any, distributions: Any) -> Any:
        correct = original(log_hyper, distributions)
        return correct._replace(value=correct.value - log_hyper.sum(axis=-1), gradient=correct.gradient - 1.0)

    return density


def _squared_scale(original: Any) -> Any:
    return lambda log_hyper, distributions: original(
        log_hyper, [distribution._replace(scale=distribution.scale**2) for distribution in distributions]
    )


def _uncorrected(original: Any) -> Any:
    """One step along the gradient and noise, accepted by the density alone: where it comes from does not count."""

    def move(rng: Any, position: Any, function: Any, step_size: Any, n_steps: int) -> Any:
        correct = original(rng, position, function, step_size, 1)
        here, h = function(position), np.full_like(step_size, 0.8)[..., None]
        proposal = position + 0.5 * h**2 * here.gradient + h * rng.standard_normal(position.shape)
        drop = np.minimum(function(proposal).value - here.value, 0.0)
        take = np.log(rng.random(drop.shape)) < drop
        return correct._replace(position=np.where(take[..., None], proposal, position), acceptance=np.exp(drop))

    return move


def _without_noise(original: Any) -> Any:
    return lambda self, rng, smooth, sd, own_noise: original(self, rng, smooth, 0.5 * sd, own_noise)


def _adapting(original: Any) -> Any:
    """The rate of adaptation stays where it was at the end of the warm-up."""

    def step(self: Any, state: Any, rngs: Any) -> Any:
        correct = original(self, state, rngs)
        correct["log_step"] = state["log_step"] + 0.2 * (correct["acceptance"] - 0.8)
        return correct

    return step


# -- type-II MAP -------------------------------------------------------------------------------------------------------


def _prior_downhill(original: Any) -> Any:
    def objective(log_evidence: Any, gradients: Any, hyper: Any, learn: Any, hyperprior: Any, **options: Any) -> Any:
        value, with_prior = original(log_evidence, gradients, hyper, learn, hyperprior, **options)
        without = original(log_evidence, gradients, hyper, learn, None, **options)[1]
        return value, 2.0 * without - with_prior

    return objective


def _first_class(original: Any) -> Any:
    def density(prior: Any, hyperprior: Any, shared: bool, *rest: Any) -> Any:
        return original(prior, hyperprior, True, *rest)

    return density


# -- errors ------------------------------------------------------------------------------------------------------------


def _one_over_n(original: Any) -> Any:
    def average(terms: Any, widths: Any) -> Any:
        correct = original(terms, widths)
        return correct._replace(se=correct.se / np.sqrt(terms.shape[0] * terms.shape[1]))

    return average


def _independent(original: Any) -> Any:
    def error(draws: Any) -> Any:
        flat = np.asarray(draws).reshape(-1, *np.shape(draws)[2:])
        return flat.std(axis=0, ddof=1) / np.sqrt(len(flat))

    return error


def _smaller(original: Any) -> Any:
    def bridge(*arguments: Any) -> Any:
        correct = original(*arguments)
        return correct._replace(standard_error=correct.standard_error / np.sqrt(32.0))

    return bridge


_ALL = ("gibbs-logit", "gibbs-probit", "gibbs-threshold", "mh-softmax")

FAULTS = (
    *(
        _bug(
            method,
            "hyper-without-jacobian",
            "the density of a parameter is taken for that of its logarithm: the Jacobian is left out",
            "gibbs.models.hyper_models:joint_log_density",
            _without_jacobian,
            _sampled(method),
        )
        for method in _ALL
    ),
    _bug(
        "gibbs-logit",
        "hyperprior-scale-squared",
        "the scale of each hyperprior is squared, as if it were a variance",
        "gibbs.models.hyper_models:joint_log_density",
        _squared_scale,
        _sampled("gibbs-logit"),
    ),
    _bug(
        "mh-softmax",
        "hyper-proposal-uncorrected",
        "a step along the gradient is accepted by the density alone: the way back is not as likely as the way there",
        "gibbs.models.hyper_models:hamiltonian_move",
        _uncorrected,
        _sampled("mh-softmax"),
    ),
    _bug(
        "gibbs-probit",
        "hyper-auxiliary-half-noise",
        "given new parameters the auxiliary values get half of their own deviation",
        "gibbs.models.hyper_models:HyperModel.draw_auxiliary",
        _without_noise,
        _sampled("gibbs-probit"),
    ),
    _bug(
        "gibbs-threshold",
        "hyper-adapts-for-ever",
        "the step of the parameters is adapted after the warm-up, and so depends on all that came before",
        "gibbs.models.hyper_models:HyperModel.step",
        _adapting,
        "exactness/gibbs-threshold/hyper_prior_only",
    ),
    _bug(
        "laplace",
        "map-prior-downhill",
        "the gradient of type-II MAP takes the log prior with the wrong sign, its value does not",
        "fast.full_classes.learning:map_objective",
        _prior_downhill,
        "identity/laplace/paths",
    ),
    _bug(
        "laplace",
        "map-prior-of-first-class",
        "classes with parameters of their own count the prior of the first class only",
        "reference.riihimaki2013.type2:log_hyperprior",
        _first_class,
        "identity/laplace/paths",
    ),
    _bug(
        "gibbs-logit",
        "error-over-n",
        "errors of averages fall with the number of batches in place of its root",
        ("gibbs.chains.moments:batch_average", "gibbs.chains.summary:batch_average"),
        _one_over_n,
        "exactness/gibbs-logit/average_errors",
    ),
    _bug(
        "gibbs-logit",
        "error-of-independent-draws",
        "the error of a mean takes the draws of a chain for independent",
        "gibbs.chains.diagnostics:standard_error",
        _independent,
        "exactness/gibbs-logit/average_errors",
    ),
    _bug(
        "gibbs-probit",
        "bridge-error-over-n",
        "the error of a bridge falls with the number of batches in place of its root",
        "gibbs.evidence.fitted:_bridge",
        _smaller,
        "exactness/gibbs-probit/log_evidence_errors",
    ),
)
