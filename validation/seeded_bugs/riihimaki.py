"""Bugs of `fast`'s nested-ep, nested-iep, qep, qiep, vb-probit, laplace and laplace-tkp."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds
from validation.selftest import SeededBug

_bug = Seeds(checks=("log_evidence", "latent_*"), problems="two-points-3", asks="identity/{}/")
_soft = replace(_bug, problems="two-points-3-softmax")
_bug_alone, _soft_alone = (replace(seeds, asks="limit/{}/") for seeds in (_bug, _soft))


# -- nested EP -----------------------------------------------------------------------------------------------------


def _common_value_fixed(original: Any) -> Any:
    def augmented(projected: Any, alpha_tilde: Any, beta_tilde: Any) -> Any:
        correct = original(projected, alpha_tilde, beta_tilde)
        return correct._replace(cov=correct.cov - 1.0 / (1.0 + alpha_tilde.sum(axis=1))[:, None, None])

    return augmented


def _without_square(original: Any) -> Any:
    def evidence(location: Any, mean: Any, log_det: Any, alpha_tilde: Any, beta_tilde: Any, log_ratio: Any) -> Any:
        correct = original(location, mean, log_det, alpha_tilde, beta_tilde, log_ratio)
        return correct - 0.5 * float((beta_tilde.sum(axis=1) ** 2 / (1.0 + alpha_tilde.sum(axis=1))).sum())

    return evidence


def _without_cavity_mean(original: Any) -> Any:
    def matched(cavity_mean: Any, cavity_var: Any) -> Any:
        alpha, beta = original(cavity_mean, cavity_var)
        return alpha, beta - alpha * cavity_mean

    return matched


_NESTED = (
    _bug(
        "nested-ep",
        "common-value-held",
        "the distribution of g is without 11'/s: the auxiliary value that all differences share is held at its mean",
        "fast.methods.nested_ep:augmented_differences",
        _common_value_fixed,
        raises=True,
    ),
    _bug(
        "nested-ep",
        "class-left-out",
        "P, the matrix that couples the classes, is summed over all classes but the last",
        "fast.full_classes.couplings:coupling_factor",
        lambda original: lambda factors: original(factors[:-1]),
        raises=True,
    ),
    _bug(
        "nested-ep",
        "square-dropped",
        "log Z is without (1'beta)^2/(2 s)",
        "fast.methods.nested_ep:ep_log_evidence",
        _without_square,
        ("log_evidence",),
    ),
    _bug(
        "nested-ep",
        "site-shift-without-mean",
        "the location of an inner site is without alpha times the cavity's mean",
        "fast.full_classes.inner_ep:matched_site",
        _without_cavity_mean,
    ),
    _bug(
        "nested-iep",
        "site-shift-without-mean",
        "the location of an inner site is without alpha times the cavity's mean",
        "fast.full_classes.inner_ep:matched_site",
        _without_cavity_mean,
    ),
)

# -- Laplace -------------------------------------------------------------------------------------------------------


def _curvature_halved(original: Any) -> Any:
    return lambda prior, latent, terms, *more: original(prior, latent, terms._replace(pi=0.5 * terms.pi), *more)


_LAPLACE = (
    _soft(
        "laplace",
        "curvature-halved",
        "W is half of what it is",
        "fast.full_classes.softmax_laplace:newton_step",
        _curvature_halved,
    ),
    _soft(
        "laplace",
        "prior-at-mode-dropped",
        "log Z is without -f'K^-1 f/2",
        "fast.methods.laplace:laplace_log_evidence",
        lambda original: lambda mode: original(mode) + 0.5 * float(np.vdot(mode.latent, mode.derivative)),
        ("log_evidence",),
    ),
    _soft(
        "laplace",
        "mode-held",
        "the gradient of log Z is taken as if the mode did not move",
        "fast.methods.laplace:mode_weights",
        lambda original: lambda mode, cov: 0.0 * original(mode, cov),
        ("gradient_*",),
    ),
    _soft(
        "laplace-tkp",
        "ratio-of-roots",
        "the predictive score is the root of the ratio of evidences",
        "fast.methods.laplace:evidence_ratios",
        lambda original: lambda *arguments: (lambda scores, good: (np.sqrt(scores), good))(*original(*arguments)),
        ("probabilit*",),
    ),
)

# -- variational Bayes ---------------------------------------------------------------------------------------------


def _turned(original: Any) -> Any:
    def terms(mean: Any, y: Any, **options: Any) -> Any:
        correct = original(-mean, y, **options)
        return correct._replace(derivative=-correct.derivative)

    return terms


def _half_variances(original: Any) -> Any:
    def posterior(prior: Any, weights: Any) -> Any:
        correct = original(prior, weights)
        return correct._replace(factors=[one._replace(cond_var=0.5 * one.cond_var) for one in correct.factors])

    return posterior


_VB = (
    _bug(
        "vb-probit",
        "region-turned",
        "the label's auxiliary value is the smallest, not the largest",
        "fast.methods.vb_probit:region_terms",
        _turned,
        ("latent_mean", "probabilities"),
    ),
    _bug(
        "vb-probit",
        "determinant-dropped",
        "the bound is without log|I + K|",
        "fast.methods.vb_probit:vb_bound",
        lambda original: lambda weights, mean, log_mass, log_det: original(weights, mean, log_mass, 0.0),
        ("log_evidence",),
    ),
    _bug(
        "vb-probit",
        "variances-halved",
        "q(f) has half its variances at the data",
        "fast.methods.vb_probit:factorised_posterior",
        _half_variances,
        ("latent_cov",),
    ),
)

# -- quadrature ----------------------------------------------------------------------------------------------------


def _other_rule(original: Any) -> Any:
    return lambda *arguments: original(*arguments[:-1], arguments[-1] - 1)


_QUADRATURE = (
    _bug(
        "qep",
        "one-node-less",
        "the product rule has one node less in each dimension than was asked for",
        "fast.methods.quadrature_ep:white_moments",
        _other_rule,
    ),
    _bug(
        "qiep",
        "one-node-less",
        "the rules have one node less than was asked for",
        "fast.methods.quadrature_ep:independent_tilt",
        _other_rule,
    ),
)

# -- predictions ---------------------------------------------------------------------------------------------------


def _without_unit_noise(original: Any) -> Any:
    return lambda distribution: original(
        distribution._replace(cov=distribution.cov - np.eye(distribution.mean.shape[1]))
    )


def _hundredth_lost(original: Any) -> Any:
    return lambda *arguments: 0.99 * original(*arguments)


# seen without the other witness: both may share a mistake in an integral
_PREDICTIONS = (
    _soft_alone(
        "laplace",
        "last-class-turned",
        "the differences to the last class have the sign of the last class's to the others",
        "fast.full_classes.predict:softmax_of_differences",
        lambda original: lambda mean, root: original(-mean, root),
        ("own_integral",),
    ),
    _bug_alone(
        "qep",
        "unit-noise-forgotten",
        "differences of latent values have to be positive without the noises of their own",
        "fast.full_classes.predict:log_orthant",
        _without_unit_noise,
        ("own_integral",),
    ),
    _bug(
        "qep",
        "mass-lost",
        "a hundredth of each class probability is lost",
        "fast.full_classes.predict:quadrature_probabilities",
        _hundredth_lost,
        ("probability_mass",),
    ),
    _bug_alone(
        "qiep",
        "roots-of-variances",
        "predictive standard deviations are taken for variances",
        "fast.full_classes.predict:independent_probabilities",
        lambda original: lambda mean, var: original(mean, np.sqrt(var)),
        ("own_integral",),
    ),
)

FAULTS: tuple[SeededBug, ...] = (*_NESTED, *_LAPLACE, *_VB, *_QUADRATURE, *_PREDICTIONS)
