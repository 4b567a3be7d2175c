"""Bugs of laplace-binary, in `fast` and in `reference`: what people get wrong of Laplace's method."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds

_bug = partial(Seeds(problems="toy"), "laplace-binary")
_MODE = "fast.one_latent.laplace"
_DERIVATIVE = ("identity/{}/gradient_*", "derivative/{}/gradient_definition")


def _evidence(change: Any) -> Any:
    return lambda original: (
        lambda *given: replace(correct := original(*given), log_evidence=correct.log_evidence + change(correct))
    )


def _link(name: str, change: Any) -> Any:
    """One function of the link that is asked for is another."""

    def make(original: Any) -> Any:
        def link_of(likelihood: str) -> Any:
            link = original(likelihood)
            return replace(link, **{name: change(getattr(link, name))})

        return link_of

    return make


def _at(prediction: Any, **changed: Any) -> Any:
    """The prediction with other fields: that of the logit is a tuple, that of the probit a dataclass."""
    return prediction._replace(**changed) if hasattr(prediction, "_replace") else replace(prediction, **changed)


def _plain_curvature(original: Any) -> Any:
    """W = r^2 of the probit, without z r; the mode stays."""

    def mode(prior: Any, log_likelihood: Any, **options: Any) -> Any:
        correct = original(prior, log_likelihood, **options)
        terms = correct.terms._replace(curvature=-np.square(correct.terms.derivative))
        return correct._replace(terms=terms)

    return mode


def _one_step(original: Any) -> Any:
    return lambda *given, **options: original(*given, **options | {"max_iterations": 1})._replace(converged=True)


FAULTS = (
    _bug(
        "one-newton-step",
        "Newton's method makes one step, and says that it has converged",
        "fast.methods.laplace_binary:find_mode",
        _one_step,
        ("identity/{}/latent_mean", "limit/{}/definition"),
    ),
    _bug(
        "prior-at-mode-dropped",
        "log Z is without -f'K^-1 f/2",
        "fast.methods.laplace_binary:gaussian_at",
        _evidence(lambda at: 0.5 * float(at.mode.weights @ at.mode.latent)),
        ("identity/{}/log_evidence", "limit/{}/definition"),
    ),
    _bug(
        "curvature-of-the-derivative",
        "W is the square of the gradient: of the probit it lacks z r, of the logit it is another number",
        "fast.methods.laplace_binary:find_mode",
        _plain_curvature,
        ("identity/{}/probit", "limit/{}/vi-taylor"),
    ),
    _bug(
        "third-derivative-of-the-label",
        "third derivatives have the sign of the label",
        f"{_MODE}:link_of",
        _link("third_derivative", lambda correct: lambda y_sign, f: y_sign * correct(y_sign, f)),
        _DERIVATIVE,
    ),
    _bug(
        "mode-moved-without-data",
        "what moves the mode is the prior alone: ds = dK a, without (I + KW)^-1",
        f"{_MODE}:damped",
        lambda original: lambda *given: 0.0 * original(*given),
        (*_DERIVATIVE, "limit/{}/softmax"),
    ),
    _bug(
        "noise-left-out-at-test",
        "latent variances at test points are without the noise",
        "fast.methods.laplace_binary:full_latent",
        lambda original: (
            lambda X_test, X, hyper, *rest: (correct := original(X_test, X, hyper, *rest))._replace(
                var=correct.var - hyper.noise
            )
        ),
        ("identity/{}/test_latent_cov", "limit/{}/softmax"),
    ),
    _bug(
        "probability-at-the-mean",
        "class probabilities are the link of the mean, and no average",
        "fast.methods.laplace_binary:link_of",
        _link("prediction", lambda correct: lambda mean, var: _at(correct(mean, 0.0 * var), latent_var=var)),
        ("identity/{}/probabilities", "limit/{}/definition"),
    ),
    _bug(
        "determinant-of-the-prior",
        "`reference`: log Z has log|I + K| in the place of log|I + KW|",
        "reference.common.laplace_binary:laplace_log_evidence",
        lambda original: lambda f, a, K, at: original(f, a, K, at._replace(second=-np.ones(len(f)))),
        ("identity/{}/log_evidence", "limit/{}/definition"),
    ),
    _bug(
        "covariance-unweighted",
        "`reference`: the covariance is (K^-1 + I)^-1",
        "reference.common.laplace_binary:laplace_covariance",
        lambda original: lambda K, at: original(K, at._replace(second=-np.ones(len(K)))),
        ("identity/{}/latent_cov", "limit/{}/definition"),
    ),
)
