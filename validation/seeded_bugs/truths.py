"""Bugs of the truths with several classes: exact draws and Gibbs chains of the probit family, and stored files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds
from validation.selftest import SeededBug

_bug = Seeds(checks=("*latent_*", "probabilities"), problems="two-points-3", asks="exactness/{}/", label="classes-")


def _smallest(original: Any) -> Any:
    def constraints(*arguments: Any) -> Any:
        correct = original(*arguments)
        return correct._replace(signs=-correct.signs)

    return constraints


def _independent_noise(original: Any) -> Any:
    def covariance(constraints: Any, prior: Any, unit_noise: float) -> Any:
        return original(constraints, prior, 0.0) + 2.0 * unit_noise * np.eye(constraints.datum.size)

    return covariance


def _diagonal(original: Any) -> Any:
    def conditional(*arguments: Any) -> Any:
        correct = original(*arguments)
        return correct * np.eye(correct.shape[-1])

    return conditional


def _stale(value: Any, before: Any) -> Any:
    after = value.auxiliary.copy()
    after[:, 0] = before[:, 0]
    return value._replace(auxiliary=after)


def _no_constraints(original: Any) -> Any:
    return lambda *arguments, **options: original(*arguments, **(options | {"log_height": 1e-9}))


FAULTS = (
    _bug(
        "exact-probit",
        "wrong-truncation-side",
        "the label's value is the smallest in place of the largest",
        "gibbs.models.exact_probit:_constraints",
        _smallest,
    ),
    _bug(
        "exact-probit",
        "noise-not-shared",
        "differences of one datum do not share the noise of their label's class",
        "gibbs.models.exact_probit:_constraints_covariance",
        _independent_noise,
    ),
    _bug(
        "exact-probit",
        "between-class-covariance-dropped",
        "the classes are taken for independent given the differences",
        "gibbs.models.exact_probit:_conditional",
        _diagonal,
    ),
    _bug(
        "exact-probit",
        "link-noise-in-threshold",
        "the threshold rule gets the unit noise of the probit",
        "gibbs.models.exact_probit:_constraints_covariance",
        lambda original: lambda constraints, prior, unit_noise: original(constraints, prior, 1.0),
        problems="two-points-3-threshold",
    ),
    _bug(
        "gibbs-probit",
        "truncation-forgotten",
        "the label's value is drawn without its lower limit, the largest of the others",
        "gibbs.models.multinomial_probit:draw_above",
        lambda original: lambda rng, mean, sd, bound: original(rng, mean, sd, np.subtract(bound, 1e3)),
        checks=("plain_sweeps",),
    ),
    _bug(
        "gibbs-probit",
        "stale-auxiliary",
        "the first class keeps the auxiliary values that it had before the move",
        "gibbs.models.multinomial_probit:bounce_move",
        lambda original: lambda rng, before, *rest, **options: _stale(original(rng, before, *rest, **options), before),
    ),
    _bug(
        "gibbs-probit",
        "prior-in-place-of-joint",
        "the constraints have no height: half of each sweep forgets the labels",
        "gibbs.models.multinomial_probit:bounce_move",
        _no_constraints,
    ),
    _bug(
        "gibbs-probit",
        "residual-variance-of-shorter-link",
        "K (K + 2I)⁻¹ in place of K (K + I)⁻¹, in all classes",
        "gibbs.models.multinomial_probit:smoother",
        lambda original: lambda K_XX: original(0.5 * K_XX),
    ),
    _bug(
        "gibbs-probit",
        "predicts-without-link-noise",
        "class probabilities of f in place of f plus unit noise",
        "gibbs.models.multinomial_probit:argmax_probability",
        lambda original: lambda latent_mean, latent_var: original(latent_mean, latent_var - 1.0),
    ),
    SeededBug(
        "exact-probit/stored-of-another-run",
        "validation",
        "exact-probit",
        "the stored moments are those of labels that were permuted on the way",
        ("validation.truth.store:load",),
        lambda original: lambda name: _permuted(original(name)),
        ("toy-3",),
        ("exactness/exact-probit/stored",),
    ),
)


def _permuted(truth: Any) -> Any:
    solution = truth.solution
    fields = {
        key: np.roll(getattr(solution, key), 1, axis=1)
        for key in ("latent_mean", "latent_mean_se", "test_latent_mean", "test_latent_mean_se")
    }
    return truth._replace(solution=replace(solution, **fields))
