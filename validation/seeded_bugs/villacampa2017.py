"""Bugs of `fast`'s ep, sep, gfitc and vi-robust, and of `gibbs`'s chains of the pairwise model (7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds
from validation.selftest import SeededBug

_bug = Seeds(checks=("log_evidence", "inducing_*"), problems="two-points-3-sparse-threshold", asks="identity/{}/")


# -- ep --------------------------------------------------------------------------------------------------------------


def _printed_sign(original: Any) -> Any:
    def sites(tilt: Any, mean_label: Any, var_label: Any, mean_other: Any, var_other: Any) -> Any:
        correct = original(tilt, mean_label, var_label, mean_other, var_other)
        left = 1.0 - tilt.curvature * var_other
        return correct._replace(c2_other=(tilt.curvature * mean_other + tilt.derivative) / left)

    return sites


def _without_cond_var(original: Any) -> Any:
    return lambda y, mean_label, var_label, mean_other, var_other, cond_var: original(
        y, mean_label, var_label, mean_other, var_other, 0.5 * cond_var
    )


def _without_log_integral(original: Any) -> Any:
    def integral(side: Any, *arguments: Any) -> Any:
        return original(side, *arguments) - 0.5 * np.log(side.cavity_ratio)

    return integral


def _label_side_forgotten(original: Any) -> Any:
    def totals(y: Any, sites: Any) -> Any:
        return original(y, sites._replace(c2_label=0.5 * sites.c2_label))

    return totals


_EP = (
    _bug(
        "ep",
        "sign-as-printed",
        "the shift of the other class's site has the sign that (53) prints",
        "fast.sparse_classes.pairwise_factors:pair_sites",
        _printed_sign,
        raises=True,
    ),
    _bug(
        "ep",
        "conditional-variance-of-one",
        "half of the variances of the latent values given the inducing ones is left out of a factor",
        ("fast.sparse_classes.pairwise_factors:pair_tilt", "fast.sparse_classes.sep:pair_tilt"),
        _without_cond_var,
    ),
    _bug(
        "ep",
        "determinant-of-site-dropped",
        "the integral of a site under its cavity is without its determinant",
        ("fast.sparse_classes.pairwise_factors:site_integral",),
        _without_log_integral,
        ("log_evidence",),
    ),
    _bug(
        "ep",
        "label-shift-halved",
        "(27) counts half of the label's side",
        ("fast.sparse_classes.pairwise_factors:pair_totals",),
        _label_side_forgotten,
        raises=True,
    ),
    _bug(
        "ep",
        "covariance-left-out-of-gradient",
        "M of (64) is without K^-1 V K^-1",
        "fast.sparse_classes.ep:prior_cotangent",
        lambda original: lambda spread, weights: original(0.0 * spread, weights),
        ("gradient_*",),
    ),
)

# -- sep -------------------------------------------------------------------------------------------------------------

_SEP = (
    _bug(
        "sep",
        "cavity-is-q",
        "no share of the tied factor is taken out of the cavity",
        "fast.sparse_classes.sep:tied_cavity",
        lambda original: lambda precision, shift, counts: original(precision, shift, np.full_like(counts, np.inf)),
    ),
    _bug(
        "sep",
        "data-not-classes-counted",
        "the n-th root counts data, not factors",
        "fast.sparse_classes.sep:factor_counts",
        lambda original: lambda class_counts, n, count: np.full_like(original(class_counts, n, count), float(n)),
    ),
    _bug(
        "sep",
        "share-of-batch-forgotten",
        "a batch takes the whole of the tied factor away",
        "fast.sparse_classes.sep:tied_update",
        lambda original: (
            lambda precision, shift, added, added_shift, share, damping: original(
                precision, shift, added, added_shift, np.ones_like(share), damping
            )
        ),
        ("batches",),
        "toy-3-sparse-threshold",
    ),
)

# -- gfitc -----------------------------------------------------------------------------------------------------------


def _with_cond_var_twice(original: Any) -> Any:
    def marginals(moments: Any, cond_var: Any, totals: Any) -> Any:
        correct = original(moments, cond_var, totals)
        return correct._replace(var=correct.var + 0.1 * cond_var)

    return marginals


_GFITC = (
    _bug(
        "gfitc",
        "sites-on-projections",
        "sites on latent values are taken for sites on projections",
        "fast.sparse_classes.fitc_latents:effective_sites",
        lambda original: lambda cond_var, totals: original(0.0 * cond_var, totals),
        raises=True,
    ),
    _bug(
        "gfitc",
        "independent-part-counted-twice",
        "marginals of latent values carry a tenth of their independent part once more",
        "fast.sparse_classes.fitc_latents:latent_marginals",
        _with_cond_var_twice,
        raises=True,
    ),
    _bug(
        "gfitc",
        "determinant-dropped",
        "log Z is without log|I + S Delta|",
        "fast.sparse_classes.fitc_latents:latent_log_evidence",
        lambda original: lambda distribution, linear, log_shrink, values: original(distribution, linear, 0.0, values),
        ("log_evidence",),
    ),
)

# -- vi-robust -------------------------------------------------------------------------------------------------------


def _without_variance(original: Any) -> Any:
    def marginals(distribution: Any, view: Any) -> Any:
        correct = original(distribution, view)
        return correct._replace(var=correct.var - 0.5 * view.cond_var)

    return marginals


_VI = (
    _bug(
        "vi-robust",
        "no-labelling-errors",
        "the expectation takes half of epsilon",
        "fast.sparse_classes.alpha_runs:powered_labels",
        lambda original: lambda y, moments, alpha, epsilon: original(y, moments, alpha, 0.5 * epsilon),
        problems="two-points-3-sparse-errors",
    ),
    _bug(
        "vi-robust",
        "divergence-halved",
        "the bound has half of the divergence",
        "fast.sparse_classes.alpha_energies:divergence",
        lambda original: lambda distribution: 0.5 * original(distribution),
        ("log_evidence",),
        problems="two-points-3-sparse-errors",
    ),
    _bug(
        "vi-robust",
        "conditional-variance-halved",
        "(17) has half of the variance of f given u",
        "fast.sparse_classes.alpha_runs:data_moments",
        _without_variance,
        problems="two-points-3-sparse-errors",
    ),
)

# -- one factor a datum, probabilities -------------------------------------------------------------------------------

_SHARED = (
    _bug(
        "ep",
        "curvature-of-datum-halved",
        "the site of a datum has half the curvature of its log Z",
        "fast.sparse_classes.power_factors:power_sites",
        lambda original: (
            lambda side, powers, alpha: original(side, powers._replace(curvature=0.5 * powers.curvature), alpha)
        ),
        ("datum_log_evidence", "datum_inducing_*"),
    ),
    _bug(
        "ep",
        "last-class-left-out",
        "class probabilities are those of the classes but the last, which has none",
        "fast.sparse_classes.inference:class_probabilities",
        lambda original: (
            lambda mean, var: np.concatenate([original(mean[:, :-1], var[:, :-1]), np.zeros((len(mean), 1))], axis=1)
        ),
        ("probabilities",),
    ),
)


# -- gibbs: the pairwise model ---------------------------------------------------------------------------------------


def _chains(
    name: str, description: str, target: str, make: Callable[[Any], Any], checks: tuple[str, ...], raises: bool = False
) -> SeededBug:
    return SeededBug(
        f"gibbs-pairwise/{name}",
        "gibbs",
        "gibbs-pairwise",
        description,
        (target,),
        make,
        ("two-points-3-sparse-threshold",),
        tuple(f"exactness/gibbs-pairwise/{check}" for check in checks),
        raises,
    )


def _steeper(original: Any) -> Any:
    def prepare(*arguments: Any, **options: Any) -> Any:
        correct = original(*arguments, **options)
        return correct._replace(loadings=np.sqrt(2.0) * correct.loadings)

    return prepare


def _flat(original: Any) -> Any:
    return lambda self, zeta: original(self, zeta) + 0.25 * np.square(self.xi(zeta)).sum(axis=1)


_PAIRWISE = (
    _chains(
        "one-conditional-variance",
        "Phi is of a difference over the root of the mean of two variances, not of their sum",
        "gibbs.models.pairwise:prepare",
        _steeper,
        ("importance", "orthant"),
    ),
    _chains(
        "prior-half-as-sharp",
        "the density that paths and slices know has half of the prior's exponent",
        "gibbs.models.pairwise:_Sampler.log_density",
        _flat,
        ("importance",),
    ),
    _chains(
        "prior-left-out-of-bridge",
        "the bridge weighs draws by the likelihood without the prior's norm",
        "gibbs.evidence.pairwise:_log_ratio",
        lambda original: (
            lambda loadings, chol, white, fresh: (
                original(loadings, chol, white, fresh) + 0.05 * np.square(white).sum(axis=1)
            )
        ),
        ("orthant", "log_evidence_routes"),
    ),
    _chains(
        "margins-without-noise",
        "margins of the sequential route have half of their independent noise",
        "gibbs.models.pairwise:moments_of_margins",
        lambda original: lambda model: original(model) - 0.5 * np.eye(len(model.loadings)),
        ("orthant", "log_evidence_routes"),
    ),
)

FAULTS: tuple[SeededBug, ...] = (*_EP, *_SEP, *_GFITC, *_VI, *_SHARED, *_PAIRWISE)
