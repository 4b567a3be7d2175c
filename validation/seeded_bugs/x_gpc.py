"""Bugs of x-gpc in `fast`, and of its sampler and evidences in `gibbs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from validation.selftest import SeededBug

# all that a live chain answers, but for the comparison with an ensemble sampler, which costs more than the chain
_OF_CHAINS = tuple(f"exactness/gibbs-logit/{name}" for name in ("*latent_*", "probabilities", "log_evidence"))
_SMALL = ("three-points", "three-points-fitc")


def _fast(
    name: str,
    description: str,
    targets: tuple[str, ...],
    make: Callable[[Any], Any],
    checks: tuple[str, ...] = ("identity/x-gpc/*",),
    problems: tuple[str, ...] = _SMALL,
) -> SeededBug:
    return SeededBug(f"x-gpc/{name}", "fast", "x-gpc", description, targets, make, problems, checks)


def _gibbs(
    name: str,
    description: str,
    targets: tuple[str, ...],
    make: Callable[[Any], Any],
    problems: tuple[str, ...],
    checks: tuple[str, ...] = _OF_CHAINS,
) -> SeededBug:
    return SeededBug(f"gibbs-logit/{name}", "gibbs", "gibbs-logit", description, targets, make, problems, checks)


# -- fast ----------------------------------------------------------------------------------------------------


def _without_constant(original: Any) -> Any:
    return lambda c, *rest: original(c, *rest) + c.size * np.log(2.0)


def _without_conditional_variance(original: Any) -> Any:
    def whiten(*arguments: Any) -> Any:
        correct = original(*arguments)
        return correct._replace(cond_var=np.zeros_like(correct.cond_var))

    return whiten


def _early(original: Any) -> Any:
    def ascend(evaluate: Any, initial_c: Any, tolerance: Any, *rest: Any) -> Any:
        return original(evaluate, initial_c, 1e-4, *rest)

    return ascend


def _noiseless_test(original: Any) -> Any:
    def latent(*arguments: Any) -> Any:
        correct = original(*arguments)
        hyper = next(a for a in arguments if hasattr(a, "noise"))
        return correct._replace(var=correct.var - hyper.noise)

    return latent


def _replaced(field: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A bug that changes one field of what a function returns."""

    def make(original: Any) -> Any:
        def function(*arguments: Any, **options: Any) -> Any:
            correct = original(*arguments, **options)
            return correct._replace(**{field: change(getattr(correct, field))})

        return function

    return make


def _without_half(original: Any) -> Any:
    # exp(-|x - x'|²/l²) is the usual kernel with lengthscales l/√2
    def kernel(X1: Any, *rest: Any) -> Any:
        scaled = list(rest)
        at = next(i for i, a in enumerate(scaled) if i > 0 and isinstance(a, np.ndarray) and a.ndim == 1)
        scaled[at] = scaled[at] / np.sqrt(2.0)
        return original(X1, *scaled)

    return kernel


_FAST = (
    _fast(
        "bound-without-n-log-2",
        "the bound loses its constant -n log 2, as (10) is printed",
        ("fast.one_latent.prior:collapsed_bound",),
        _without_constant,
        ("identity/x-gpc/log_evidence", "bound/x-gpc/equality"),
    ),
    _fast(
        "theta-doubled",
        "E[ω] = tanh(c/2)/c: the 2 of 2c is lost",
        ("fast.one_latent.prior:pg_mean",),
        lambda original: lambda c: 2.0 * original(c),
    ),
    _fast(
        "local-update-without-mean",
        "c² lacks the term (κμ)²: the variance alone",
        ("fast.one_latent.fixed_point:update_local",),
        lambda original: lambda latent_mean, latent_var: np.sqrt(latent_var),
    ),
    _fast(
        "conditional-variance-dropped",
        "K̃_ii is taken for zero, as if the inducing values determined everything",
        ("fast.one_latent.prior:whiten",),
        _without_conditional_variance,
        problems=("three-points-fitc",),
    ),
    _fast(
        "kernel-without-half",
        "exp(-|x - x'|²/l²): the ½ of the squared exponential is lost",
        ("fast.one_latent.prior:se_ard", "fast.one_latent.prior:gram", "fast.one_latent.predict:se_ard"),
        _without_half,
    ),
    _fast(
        "stops-early",
        "the loop stops at a relative change of 1e-4 and says that it converged",
        ("fast.methods.x_gpc:ascend",),
        _early,
        problems=("toy",),
    ),
    _fast(
        "noise-forgotten-at-test-points",
        "the noise is missing from the predictive variance",
        ("fast.methods.x_gpc:sparse_latent", "fast.methods.x_gpc:full_latent"),
        _noiseless_test,
    ),
    _fast(
        "columns-swapped",
        "p(y = 0) and p(y = 1) in each other's column",
        ("fast.one_latent.predict:log_class_probabilities",),
        lambda original: lambda mean, var: original(mean, var)[:, ::-1],
    ),
    _fast(
        "plug-in-probabilities",
        "σ(mean) in place of E[σ(f)]: the predictive variance is ignored",
        ("fast.one_latent.predict:log_class_probabilities",),
        lambda original: lambda mean, var: original(mean, 0.0 * var),
    ),
    _fast(
        "noise-gradient-sign",
        "the derivative of the bound in the noise has the wrong sign",
        ("fast.methods.x_gpc:sparse_gradients", "fast.methods.x_gpc:full_gradients"),
        _replaced("noise", lambda value: -value),
    ),
    _fast(
        "inducing-gradient-halved",
        "each entry of K_ZZ holds two inducing points, but only one is differentiated",
        ("fast.methods.x_gpc:sparse_gradients",),
        _replaced("Z", lambda value: 0.5 * value),
        problems=("three-points-fitc",),
    ),
)


# -- gibbs ---------------------------------------------------------------------------------------------------


def _mean_omega(original: Any) -> Any:
    def draw_omega(rng: Any, latent_values: Any) -> Any:
        halved = 0.5 * np.maximum(np.abs(latent_values), 1e-300)
        return 0.25 * np.tanh(halved) / halved

    return draw_omega


def _full_label(original: Any) -> Any:
    return lambda rng, K_XX, chol_K, y_sign, omega: original(rng, K_XX, chol_K, 2.0 * y_sign, omega)


def _shrunk_residual(original: Any) -> Any:
    def draw_residual(rng: Any, proj_mean: Any, cond_var: Any, y_sign: Any, omega: Any) -> Any:
        shrink = 1.0 / (1.0 + cond_var * omega)
        mean = np.sqrt(cond_var) * (0.5 * y_sign - omega * proj_mean) * shrink
        return mean + shrink * rng.standard_normal(omega.shape)

    return draw_residual


def _one_dimension(original: Any) -> Any:
    # the same norm in one coordinate: the Jacobian s^p of the move becomes s
    def scale_move(rng: Any, white: Any, *rest: Any, **options: Any) -> Any:
        return original(rng, np.linalg.norm(white, axis=1, keepdims=True), *rest, **options)

    return scale_move


_GIBBS = (
    _gibbs(
        "omega-by-its-mean",
        "E[ω | f] in place of a draw: the sampler becomes an EM of sorts",
        ("gibbs.models.sampling:draw_omega",),
        _mean_omega,
        ("two-points",),
    ),
    _gibbs(
        "tilt-halved",
        "ω ~ PG(1, f/2): half of the latent value tilts the draw",
        ("gibbs.models.sampling:draw_omega",),
        lambda original: lambda rng, latent_values: original(rng, 0.5 * latent_values),
        ("three-points",),
    ),
    _gibbs(
        "prior-omega",
        "ω ~ PG(1, 0): the prior of the auxiliary in place of its conditional",
        ("gibbs.models.sampling:draw_omega",),
        lambda original: lambda rng, latent_values: original(rng, 0.0 * latent_values),
        ("three-points",),
    ),
    _gibbs(
        "wrong-truncation-side",
        "the Pólya-Gamma proposal takes the piece above the truncation point for the one below",
        ("gibbs.draws.polya_gamma:_choose_right",),
        lambda original: lambda rng, z: ~original(rng, z),
        ("two-points",),
    ),
    _gibbs(
        "label-without-half",
        "f | ω, y with y in place of y/2",
        ("gibbs.models.sampling:draw_latent",),
        _full_label,
        ("two-points",),
    ),
    _gibbs(
        "residual-of-wrong-variance",
        "FITC: the residual is drawn with the variance where the standard deviation belongs",
        ("gibbs.models.sampling:draw_residual",),
        _shrunk_residual,
        ("three-points-fitc",),
    ),
    _gibbs(
        "scale-move-without-jacobian",
        "the scale move forgets that p coordinates are stretched, not one",
        ("gibbs.models.sampling:scale_move",),
        _one_dimension,
        ("three-points",),
    ),
    _gibbs(
        "variance-of-means-only",
        "the law of total variance without the mean of the conditional variances",
        ("gibbs.models.sampling:variance_influence",),
        lambda original: lambda draws, cond_var: original(draws, 0.0 * cond_var),
        ("two-points",),
    ),
    _gibbs(
        "test-prior-variance",
        "predictions start from 90 % of the prior variance at the test points",
        ("gibbs.models.sampling:latent_moments",),
        lambda original: lambda K_XX, K_TX, k_tt, *rest: original(K_XX, K_TX, 0.9 * k_tt, *rest),
        ("two-points",),
    ),
    _gibbs(
        "annealed-without-last-datum",
        "the annealed likelihood runs over n - 1 data",
        ("gibbs.evidence.annealed:_log_sigmoid_sum",),
        lambda original: lambda t: original(t[..., :-1]),
        ("two-points",),
    ),
    _gibbs(
        "chib-plug-in-likelihood",
        "Chib's method with σ(E[f | u]) in place of E[σ(f) | u]",
        ("gibbs.evidence.chib:_log_expected_sigmoid",),
        lambda original: lambda mean, var: original(mean, 1e-12 * var),
        ("three-points-fitc",),
    ),
)

FAULTS = _FAST + _GIBBS
