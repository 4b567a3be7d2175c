"""Bugs of `fast`'s pep, apep, arpep, rpapep and bb-alpha."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import seeded
from validation.selftest import SeededBug

_bug = partial(
    seeded,
    checks=("identity/{}/log_evidence", "identity/{}/inducing_*"),
    problems="two-points-3-sparse-errors",
)


# -- pep -----------------------------------------------------------------------------------------------------------


def _whole_site_integral(original: Any) -> Any:
    return lambda side, c1, c2, alpha: original(side, c1, c2, 1.0)


def _whole_refinement(original: Any) -> Any:
    return lambda side, value, alpha: original(side, value, 1.0)


def _shift_kept(original: Any) -> Any:
    return lambda self, y, moments, cond_var, sites: original(self, y, moments, cond_var, (sites[0], 0.0 * sites[1]))


def _power_forgotten(original: Any) -> Any:
    return lambda y, moments, alpha, epsilon: original(y, moments, 1.0, epsilon)


def _conditional_held(original: Any) -> Any:
    def cotangents(*arguments: Any) -> Any:
        correct = original(*arguments)
        return type(correct)(correct[0], correct[1], 0.0 * correct[2])

    return cotangents


_PEP = (
    _bug(
        "pep",
        "whole-site-in-log-z",
        "log Z takes whole sites from q where cavities take a share alpha",
        "fast.sparse_classes.power_factors:site_integral",
        _whole_site_integral,
        checks="identity/{}/log_evidence",
    ),
    _bug(
        "pep",
        "whole-refinement",
        "a refined site is what is left of the tilted distribution, not that over alpha",
        "fast.sparse_classes.power_factors:power_sites",
        _whole_refinement,
    ),
    _bug(
        "pep",
        "stale-cavity-mean",
        "the shift of the site stays in the cavity",
        "fast.sparse_classes.power_factors:PowerDatum.tilted",
        _shift_kept,
    ),
    _bug(
        "pep",
        "power-forgotten",
        "labels enter with their whole likelihood in place of its power",
        "fast.sparse_classes.power_factors:powered_labels",
        _power_forgotten,
    ),
    _bug(
        "pep",
        "conditional-variance-held",
        "gradients are without the dependence of s on the prior",
        "fast.sparse_classes.power_factors:PowerDatum.cotangents",
        _conditional_held,
        checks="identity/{}/gradient_*",
    ),
)

# -- energies ------------------------------------------------------------------------------------------------------


def _cavity_is_q(original: Any) -> Any:
    return lambda self, q: original(self, q)._replace(data=q)


def _log_det_dropped(original: Any) -> Any:
    return lambda self, distributions: original(self, distributions) + 0.5 * float(distributions.q.log_det.sum())


def _mean_outside_kernel(original: Any) -> Any:
    """The distribution that K pulls at is taken for one about zero."""

    return lambda self, spread, mean, curvature, derivative: (
        original(self, spread, mean, curvature, derivative) - np.outer(mean, mean)
    )


def _prior_left_out(original: Any) -> Any:
    def distributions(self: Any, q: Any) -> Any:
        correct = original(self, q)
        return correct if correct.prior is None else correct._replace(prior=correct.data)

    return distributions


def _direction_of_mean_turned(original: Any) -> Any:
    def direction(self: Any, distributions: Any, curvature: Any, derivative: Any) -> Any:
        return original(self, distributions, curvature, -derivative)

    return direction


_GRADIENT = ("identity/{}/gradient_*",)
_ENERGIES = (
    _bug(
        "apep",
        "log-determinant-dropped",
        "the log normaliser of q is without log|S|",
        "fast.sparse_classes.alpha_energies:Energy.own_value",
        _log_det_dropped,
        checks="identity/{}/log_evidence",
    ),
    _bug(
        "apep",
        "power-forgotten",
        "labels enter with their whole likelihood in place of its power",
        "fast.sparse_classes.alpha_runs:powered_labels",
        _power_forgotten,
    ),
    _bug(
        "apep",
        "mean-outside-kernel",
        "the gradient in the prior takes the cavity for a distribution about zero",
        "fast.sparse_classes.alpha_energies:Energy.kernel_moment",
        _mean_outside_kernel,
        checks=_GRADIENT,
    ),
    _bug(
        "arpep",
        "log-determinant-dropped",
        "the divergence of q from the prior is without log|S|",
        "fast.sparse_classes.alpha_energies:Energy.own_value",
        _log_det_dropped,
        checks="identity/{}/log_evidence",
    ),
    _bug(
        "arpep",
        "power-forgotten",
        "labels enter with their whole likelihood in place of its power",
        "fast.sparse_classes.alpha_runs:powered_labels",
        _power_forgotten,
    ),
    _bug(
        "arpep",
        "mean-outside-kernel",
        "the gradient in the prior is without m m'",
        "fast.sparse_classes.alpha_energies:Energy.kernel_moment",
        _mean_outside_kernel,
        checks=_GRADIENT,
    ),
    _bug(
        "rpapep",
        "prior-left-out",
        "the free Gaussian that the prior is seen under is without the prior",
        "fast.sparse_classes.alpha_energies:Energy.distributions",
        _prior_left_out,
    ),
    _bug(
        "rpapep",
        "cavity-is-q",
        "the data are seen under q, not under its share (1 - alpha/(N + 1))",
        "fast.sparse_classes.alpha_energies:Energy.distributions",
        _cavity_is_q,
    ),
    _bug(
        "rpapep",
        "derivative-turned",
        "the direction has the derivative in the means with the other sign",
        "fast.sparse_classes.alpha_energies:Energy.direction",
        _direction_of_mean_turned,
    ),
    _bug(
        "rpapep",
        "mean-outside-kernel",
        "the gradient in the prior is without the mean of the distribution that the prior is seen under",
        "fast.sparse_classes.alpha_energies:Energy.kernel_moment",
        _mean_outside_kernel,
        checks=_GRADIENT,
    ),
)

# -- bb-alpha ------------------------------------------------------------------------------------------------------


def _labels_exchanged(original: Any) -> Any:
    return lambda epsilon, n_classes: original(epsilon, n_classes)[::-1]


def _half_the_draws(original: Any) -> Any:
    return lambda terms, *arguments, **options: original(terms[: len(terms) // 2], *arguments, **options)


_DRAWS = ("exactness/bb-alpha/draws",)
_BLACK_BOX = (
    _bug(
        "bb-alpha",
        "sign",
        "the energy has the sign of the objective of apep",
        "fast.methods.bb_alpha:quadrature_energy",
        lambda original: lambda posterior: -original(posterior),
        checks=("limit/bb-alpha/apep", "identity/bb-alpha/log_evidence"),
    ),
    _bug(
        "bb-alpha",
        "labels-exchanged",
        "draws take the likelihood of a wrong label for the right one",
        "fast.methods.bb_alpha:robust_logs",
        _labels_exchanged,
        checks=_DRAWS,
    ),
    _bug(
        "bb-alpha",
        "half-the-draws",
        "the sum is over half of the draws that it is divided by",
        "fast.methods.bb_alpha:logsumexp",
        _half_the_draws,
        checks=_DRAWS,
    ),
    _bug(
        "bb-alpha",
        "power-forgotten",
        "the optimum that is evaluated is that of power 1",
        "fast.sparse_classes.alpha_runs:powered_labels",
        _power_forgotten,
    ),
)

FAULTS: tuple[SeededBug, ...] = (*_PEP, *_ENERGIES, *_BLACK_BOX)
