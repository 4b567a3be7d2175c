"""Bugs of `fast`'s svi, vi-jj, vi-jj-full, vi-jj-hybrid and vi-taylor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds
from validation.selftest import SeededBug

_SPARSE = ("three-points-fitc",)
_SMALL = ("two-points", "three-points-fitc")
_LEARNING = ("toy",)


_bug = Seeds(problems=_SPARSE)


_BOTH = ("identity/{}/log_evidence", "identity/{}/latent_*", "derivative/{}/stationary")

# -- Jaakkola and Jordan's bound ---------------------------------------------------------------------------------


def _without_trace(original: Any) -> Any:
    def evaluate(prior: Any, local_quadratic: Any, xi: Any) -> Any:
        correct = original(prior, local_quadratic, xi)
        lost = 0.5 * np.sum(local_quadratic.at(prior.y_sign, xi).precision * prior.cond_var)
        return correct._replace(elbo=correct.elbo + lost)

    return evaluate


def _without_square(original: Any) -> Any:
    def quadratic(y_sign: Any, xi: Any) -> Any:
        correct = original(y_sign, xi)
        return correct._replace(constant=correct.constant - 0.5 * correct.precision * xi * xi)

    return quadratic


def _thrown_away(original: Any) -> Any:
    def alternate(state: Any, second: Any, *rules: Any, **options: Any) -> Any:
        return original(state, lambda state: second(state)._replace(prior=state.prior), *rules, **options)

    return alternate


def _minimised(original: Any) -> Any:
    def search(objective: Any, packing: Any, **options: Any) -> Any:
        def negative(*where: Any) -> Any:
            value, derivatives = objective(*where)
            return -value, type(derivatives)(
                *(None if derivative is None else -derivative for derivative in derivatives)
            )

        return original(negative, packing, **options)

    return search


_XI_DERIVATIVE = ("fast.methods.vi_jj:local_gradient",)


def _derivative_of_means(original: Any) -> Any:
    return lambda xi, latent_mean, latent_var: original(xi, latent_mean, 0.0 * latent_var)


def _gradient(name: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def gradients(*args: Any) -> Any:
            correct = original(*args)
            return correct._replace(**{name: change(getattr(correct, name))})

        return gradients

    return make


_JJ = (
    _bug(
        "vi-jj",
        "lambda-as-printed",
        "lambda(xi) is tanh(xi) / (4 xi), as the paper prints it",
        "fast.likelihood.quadratic_bounds:jj_coefficient",
        lambda original: lambda xi: np.tanh(xi) / (4.0 * xi),
        (*_BOTH, "limit/{}/x-gpc"),
        problems=_SMALL,
    ),
    _bug(
        "vi-jj",
        "variance-squared-twice",
        "xi takes S^2 for S, as Algorithm 1 prints it",
        ("fast.methods.vi_jj:jj_local", "fast.likelihood.quadratic_bounds:jj_local"),
        lambda original: lambda latent_mean, latent_var: np.hypot(latent_mean, latent_var),
        _BOTH,
        problems=_SMALL,
    ),
    _bug(
        "vi-jj",
        "trace-dropped",
        "the bound (14) is without its trace term",
        "fast.methods.vi_jj:evaluate",
        _without_trace,
        _BOTH,
    ),
    _bug(
        "vi-jj",
        "constant-without-square",
        "the bound is without lambda(xi) xi^2",
        "fast.methods.vi_jj:jaakkola_jordan",
        _without_square,
        ("identity/{}/log_evidence", "derivative/{}/stationary"),
        problems=_SMALL,
    ),
    _bug(
        "vi-jj",
        "bound-minimised",
        "stage 2 minimises the bound, as Algorithm 1 prints it",
        "fast.one_latent.quadratic_search:maximise",
        _minimised,
        "identity/{}/learned",
        problems=_LEARNING,
    ),
    _bug(
        "vi-jj-full",
        "xi-derivative-of-means",
        "the gradient of the bound in xi compares xi^2 with m^2 alone",
        _XI_DERIVATIVE,
        _derivative_of_means,
        "identity/{}/learned",
        problems=_LEARNING,
    ),
    _bug(
        "vi-jj-full",
        "stops-after-two",
        "the joint search stops after two evaluations",
        "fast.methods.vi_jj:joint_search",
        lambda original: (
            lambda *args, **options: original(*args, **{**options, "max_evaluations": 2, "max_iterations": 1})
        ),
        "identity/{}/learned",
        problems=_LEARNING,
    ),
    _bug(
        "vi-jj-full",
        "noise-derivative-turned",
        "the derivative in the noise variance has the wrong sign",
        "fast.methods.vi_jj:gradients_at",
        _gradient("noise", lambda derivative: -derivative),
        "identity/{}/gradient_noise",
        problems=_SMALL,
    ),
    _bug(
        "vi-jj-hybrid",
        "stops-early",
        "the stages stop once the bound changes by less than a hundredth",
        "fast.methods.vi_jj:alternate",
        lambda original: (
            lambda state, second, rules, **options: original(state, second, replace(rules, tolerance=1e-2), **options)
        ),
        "identity/{}/learned",
        problems=_LEARNING,
    ),
    _bug(
        "vi-jj-hybrid",
        "prior-thrown-away",
        "what stage 2 found for the prior is not taken over",
        "fast.methods.vi_jj:alternate",
        _thrown_away,
        "identity/{}/learned",
        problems=_LEARNING,
    ),
    _bug(
        "vi-jj-hybrid",
        "lengthscale-of-its-square",
        "the derivative in a lengthscale is that in its square",
        "fast.methods.vi_jj:gradients_at",
        _gradient("lengthscales", lambda derivative: 0.5 * derivative),
        "identity/{}/gradient_lengthscales",
        problems=_SMALL,
    ),
)

# -- Taylor's expansion ------------------------------------------------------------------------------------------


def _stopped(most: int) -> Callable[[Any], Any]:
    """Newton's method that calls itself converged after so many steps, for a wrong one never is."""

    def make(original: Any) -> Any:
        def newton(
            prior: Any, local_quadratic: Any, start: Any, tolerance: float, max_iterations: int, callback: Any
        ) -> Any:
            xi, trace, residual, _ = original(prior, local_quadratic, start, tolerance, most, callback)
            return xi, trace, residual, True

        return newton

    return make


def _expanding(change: Callable[[Any, Any, Any], Any]) -> Callable[[Any], Any]:
    """Changes the quadratic: change(quadratic, xi, derivative of log p at xi)."""

    def make(original: Any) -> Any:
        if original.__name__ == "_newton":
            return _stopped(30)(original)

        def taylor(y_sign: Any, xi: Any, log_likelihood: Any) -> Any:
            return change(original(y_sign, xi, log_likelihood), xi, log_likelihood(y_sign, xi).derivative)

        return taylor

    return make


_EXPANSION = ("fast.methods.vi_taylor:taylor", "fast.methods.vi_taylor:_newton")
_EXPANDED = (*_BOTH, "derivative/{}/projected_mode")

_TAYLOR = (
    _bug(
        "vi-taylor",
        "curvature-halved",
        "Psi, which is half the curvature, stands for the curvature",
        _EXPANSION,
        _expanding(lambda quadratic, xi, derivative: quadratic._replace(precision=0.5 * quadratic.precision)),
        _EXPANDED,
        problems=_SMALL,
    ),
    _bug(
        "vi-taylor",
        "v-without-curvature",
        "v is phi: 2 Psi xi is forgotten",
        _EXPANSION,
        _expanding(lambda quadratic, xi, derivative: quadratic._replace(shift=derivative)),
        _EXPANDED,
        problems=_SMALL,
    ),
    _bug(
        "vi-taylor",
        "v-with-minus",
        "v is phi - 2 Psi xi",
        _EXPANSION,
        _expanding(lambda quadratic, xi, derivative: quadratic._replace(shift=2.0 * derivative - quadratic.shift)),
        _EXPANDED,
        problems=_SMALL,
    ),
    _bug(
        "vi-taylor",
        "xi-of-first-step",
        "xi stays where the first step put it, not at m",
        "fast.methods.vi_taylor:_newton",
        _stopped(1),
        _EXPANDED,
        problems=_SMALL,
    ),
    _bug(
        "vi-taylor",
        "probit-curvature",
        "the curvature of log Phi is r^2 in place of r (r + y f)",
        "fast.likelihood.quadratic_bounds:hazard",
        lambda original: lambda z: (original(z)[0], original(z)[0]),
        "identity/{}/probit",
    ),
)

# -- svi ---------------------------------------------------------------------------------------------------------


def _half_variance(original: Any) -> Any:
    def expected(likelihood: str) -> Any:
        healthy = original(likelihood)
        return lambda y_sign, latent_mean, latent_var: healthy(y_sign, latent_mean, 0.5 * latent_var)

    return expected


def _prior_ignored(original: Any) -> Any:
    def bound(
        kernel: Any, expected: Any, X: Any, y_sign: Any, scale: float, mean: Any, chol: Any, **options: Any
    ) -> Any:
        correct = original(kernel, expected, X, y_sign, scale, mean, chol, **options)
        return correct._replace(inducing_mean=correct.inducing_mean + np.linalg.solve(kernel.K_ZZ, mean))

    return bound


def _without_log_diagonal(original: Any) -> Any:
    def bound(
        kernel: Any, expected: Any, X: Any, y_sign: Any, scale: float, mean: Any, chol: Any, **options: Any
    ) -> Any:
        correct = original(kernel, expected, X, y_sign, scale, mean, chol, **options)
        return correct._replace(chol_cov=correct.chol_cov - np.diag(1.0 / np.diagonal(chol)))

    return bound


def _unscaled(original: Any) -> Any:
    return lambda kernel, expected, X, y_sign, scale, *rest, **options: original(
        kernel, expected, X, y_sign, 1.0, *rest, **options
    )


def _exchanged(original: Any) -> Any:
    def step(gradient: Any, state: Any, rate: float) -> Any:
        correct = original(gradient, state, rate)
        return correct._replace(state=type(state)(correct.state.steps, correct.state.gradients))

    return step


_STEPS = ("identity/{}/steps*",)
_BATCH_BOUND = ("fast.methods.svi:batch_bound",)

_SVI = (
    _bug(
        "svi",
        "half-the-variance",
        "E log p(y | f) is taken at half the variance of q(f)",
        "fast.methods.svi:_expected",
        _half_variance,
        _BOTH,
        problems=_SMALL,
    ),
    _bug(
        "svi",
        "divergence-dropped",
        "the gradient in mu is without that of the divergence",
        _BATCH_BOUND,
        _prior_ignored,
        _STEPS,
    ),
    _bug(
        "svi",
        "diagonal-derivative-dropped",
        "the derivative in the diagonal of the factor of Sigma is without that of log|Sigma|",
        _BATCH_BOUND,
        _without_log_diagonal,
        _STEPS,
    ),
    _bug(
        "svi",
        "batch-not-scaled",
        "the batch counts for itself: n/s is forgotten",
        _BATCH_BOUND,
        _unscaled,
        _STEPS,
    ),
    _bug(
        "svi",
        "accumulators-exchanged",
        "AdaDelta hands its running means on in exchanged places",
        "fast.methods.svi:ada_delta_step",
        _exchanged,
        _STEPS,
    ),
)

FAULTS: tuple[SeededBug, ...] = (*_SVI, *_JJ, *_TAYLOR)
