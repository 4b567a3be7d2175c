"""Bugs of `fast`'s stochastic natural gradients, of svgpc and of epgpc."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds

_BATCHED = ("three-points-fitc",)
_SMALL = ("two-points", "three-points-fitc")


_bug = Seeds(problems=_BATCHED)


# -- steps on batches --------------------------------------------------------------------------------------------


def _unscaled(original: Any) -> Any:
    return lambda rows, shift, precision, scale, *rest: original(rows, shift, precision, 1.0, *rest)


def _uncorrected(original: Any) -> Any:
    # without bias correction the running means start near zero: a tenth of the derivative, a thousandth of its square
    def step(*arguments: Any, **options: Any) -> Any:
        correct = original(*arguments, **options)
        t = correct.state.iteration
        return correct._replace(step=correct.step * (1.0 - 0.9**t) / np.sqrt(1.0 - 0.999**t))

    return step


def _unmoved(original: Any) -> Any:
    return lambda shift, precision, chol_K, new_chol_K: original(shift, precision, chol_K, chol_K)


_SVI = (
    _bug(
        "x-gpc-svi",
        "batch-not-scaled",
        "the batch counts for itself: n/s is forgotten in the natural gradient",
        "fast.one_latent.stochastic:natural_gradient",
        _unscaled,
        ("identity/x-gpc-svi/steps_*", "invariance/x-gpc-svi/batch_sums"),
    ),
    _bug(
        "x-gpc-svi",
        "rate-of-whitened-norms",
        "the adaptive rate takes its norms in whitened coordinates",
        "fast.one_latent.stochastic:unwhiten",
        lambda original: lambda natural, chol_K: natural,
        "identity/x-gpc-svi/steps_adaptive",
    ),
    _bug(
        "x-gpc-svi",
        "rate-without-memory",
        "the adaptive rate forgets all gradients but the last two",
        "fast.one_latent.stochastic:adaptive_rate",
        lambda original: lambda memory, gradient: _short(original, memory, gradient),
        "identity/x-gpc-svi/steps_adaptive",
    ),
    _bug(
        "x-gpc-svi",
        "decay-one-step-late",
        "the decaying rate counts its steps from zero",
        "fast.one_latent.stochastic:decaying_rate",
        lambda original: lambda iteration, rate: original(iteration - 1, rate),
        "identity/x-gpc-svi/steps_decay",
    ),
    _bug(
        "x-gpc-svi",
        "adam-without-bias-correction",
        "Adam's running means are used as they stand",
        "fast.one_latent.stochastic:adam_step",
        _uncorrected,
        "identity/x-gpc-svi/steps_learning",
    ),
    _bug(
        "x-gpc-svi",
        "kernel-moves-the-mean",
        "the whitened q(v) is kept where the kernel moves: mu and Sigma move along",
        "fast.one_latent.stochastic:move_kernel",
        _unmoved,
        "identity/x-gpc-svi/steps_learning",
    ),
    _bug(
        "x-gpc-svi",
        "estimate-without-divergence",
        "the batch estimate of the bound leaves out KL(q(u) || p(u))",
        "fast.one_latent.stochastic:kl_whitened",
        lambda original: lambda factor, weights: 0.0 * original(factor, weights),
        "identity/x-gpc-svi/steps_fixed",
    ),
)


def _short(original: Any, memory: Any, gradient: Any) -> Any:
    memory.length = min(memory.length, 2.0)
    return original(memory, gradient)


# -- svgpc -------------------------------------------------------------------------------------------------------


def _curvature_added(original: Any) -> Any:
    def target(link: Any, latent_mean: Any) -> Any:
        precision, shift = original(link, latent_mean)
        return precision, shift - 2.0 * precision * latent_mean

    return target


def _without_mean(original: Any) -> Any:
    return lambda posterior, precision: original(posterior._replace(prior_norm=0.0), precision)


def _narrow(original: Any) -> Any:
    def expected(y_sign: Any, latent_mean: Any, latent_var: Any) -> Any:
        return original(y_sign, latent_mean, 0.9 * latent_var)

    return expected


_SVGPC_TARGETS = ("fast.methods.svgpc:expected_log_probit", "fast.methods.svgpc_svi:expected_log_probit")
_SVGPC = (
    _bug(
        "svgpc",
        "natural-gradient-of-wrong-sign",
        "nu = E[g'] + E[g''] m: the curvature's share has the wrong sign",
        "fast.methods.svgpc:natural_target",
        _curvature_added,
        "identity/svgpc/*_mean",
        problems="three-points-fitc",
    ),
    _bug(
        "svgpc",
        "divergence-without-mean",
        "KL(q(u) || p(u)) loses mu' K^-1 mu",
        "fast.methods.svgpc:kl_from_sites",
        _without_mean,
        ("identity/svgpc/log_evidence", "bound/svgpc/log_evidence"),
        problems=_SMALL,
    ),
    _bug(
        "svgpc",
        "conditional-variance-dropped",
        "f_i is taken for determined by the inducing values",
        "fast.methods.svgpc:cond_var_of",
        lambda original: lambda prior: 0.0 * original(prior),
        ("identity/svgpc/*", "bound/svgpc/log_evidence"),
        problems="three-points-fitc",
    ),
    _bug(
        "svgpc",
        "quadrature-too-narrow",
        "E[log Phi] is taken under nine tenths of the variance",
        _SVGPC_TARGETS,
        _narrow,
        ("identity/svgpc/log_evidence", "identity/svgpc/steps_fixed"),
        problems=("two-points", "three-points-fitc"),
    ),
    _bug(
        "svgpc",
        "batch-not-scaled",
        "the batch counts for itself: n/s is forgotten in the natural gradient",
        "fast.one_latent.stochastic:natural_gradient",
        _unscaled,
        ("identity/svgpc/steps_fixed", "invariance/svgpc/batch_sums"),
    ),
)


# -- epgpc -------------------------------------------------------------------------------------------------------


def _own_site(original: Any) -> Any:
    def cavity(mean: Any, var: Any, left: Any, precision: Any, shift: Any) -> Any:
        return original(mean, var, np.ones_like(left), 0.0 * precision, 0.0 * shift)

    return cavity


def _unshrunk(original: Any) -> Any:
    # the tilted moments' own precision in place of what is left after the cavity's
    return lambda mean, var, derivative, curvature: original(mean, 0.0 * var, derivative, curvature)


def _without_log(original: Any) -> Any:
    def scale(log_norm: Any, mean: Any, var: Any, precision: Any, shift: Any) -> Any:
        return original(log_norm, mean, var, precision, shift) - 0.5 * np.log1p(precision * var)

    return scale


def _without_determinant(original: Any) -> Any:
    return lambda posterior, log_scales: original(posterior, log_scales) + 0.5 * posterior.log_det


def _sum_of_variances(original: Any) -> Any:
    def assemble(prior: Any, value: Any, pair: Any, *rest: Any) -> Any:
        # the latent moments that q(u) alone gives: the own label has not seen the variance that u leaves open
        posterior = original(prior, value, pair, *rest)
        object.__setattr__(posterior, "latent_mean", value.sites.proj_mean)
        return posterior

    return assemble


_EP_CAVITY = ("fast.methods.epgpc:cavity", "fast.methods.epgpc_svi:cavity")
_EPGPC = (
    _bug(
        "epgpc",
        "stale-cavity",
        "the cavity keeps its own site",
        _EP_CAVITY,
        _own_site,
        "identity/epgpc/steps_*",
    ),
    _bug(
        "epgpc",
        "site-without-shrinkage",
        "sites forget the cavity's variance: tau = -d2, nu = d1 - m d2",
        "fast.methods.epgpc:match_moments",
        _unshrunk,
        ("identity/epgpc/log_evidence", "identity/epgpc/latent_*"),
        problems=_SMALL,
    ),
    _bug(
        "epgpc",
        "scale-without-half-log",
        "log s_i loses log(1 + tau v)/2",
        "fast.methods.epgpc:log_site_scale",
        _without_log,
        ("identity/epgpc/log_evidence", "discrepancy/epgpc/log_evidence"),
        problems=_SMALL,
    ),
    _bug(
        "epgpc",
        "evidence-without-determinant",
        "log Z loses log|B|/2",
        "fast.methods.epgpc:ep_evidence",
        _without_determinant,
        ("identity/epgpc/log_evidence", "discrepancy/epgpc/log_evidence"),
        problems=_SMALL,
    ),
    _bug(
        "epgpc",
        "conditional-variance-dropped",
        "f_i is taken for determined by the inducing values",
        "fast.methods.epgpc:cond_var_of",
        lambda original: lambda prior: 0.0 * original(prior),
        "identity/epgpc/*",
        problems="three-points-fitc",
    ),
    _bug(
        "epgpc",
        "own-label-unseen",
        "the latent means at the data are those of the inducing values' part",
        ("fast.methods.epgpc:assemble", "fast.methods.epgpc_svi:assemble"),
        _sum_of_variances,
        ("identity/epgpc/latent_mean", "discrepancy/epgpc/latent_mean"),
        problems="three-points-fitc",
    ),
    _bug(
        "epgpc",
        "in-order-is-side-by-side",
        "sites in order are all refreshed from the posterior before the batch",
        "fast.methods.epgpc_svi:SiteRun.step_in_order",
        lambda original: lambda self, batch, view, damping: self.step(batch, view, damping),
        "identity/epgpc/steps_in_order",
    ),
    _bug(
        "epgpc",
        "adam-without-bias-correction",
        "Adam's running means are used as they stand",
        "fast.methods.epgpc_svi:adam_step",
        _uncorrected,
        "identity/epgpc/steps_learning",
    ),
)

FAULTS = _SVI + _SVGPC + _EPGPC
