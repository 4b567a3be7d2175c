"""Shared-mode bugs: the same mistake in `reference` and in `fast` at once, three or more for every method.

What two witnesses do wrong alike no comparison of the two shows: only the judge's own definitions can see it. Each
bug names the checks that hold a witness against a definition, and no identity.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import norm

from validation.selftest import SeededBug

Make = Callable[[Any], Any]

_PACKAGES = {
    "reference": ("reference", "validation.implementations.reference"),
    "fast": ("fast", "validation.implementations.fast"),
}


@functools.cache
def _modules(root: str) -> tuple[Any, ...]:
    results = []
    for name in _PACKAGES[root]:
        package = importlib.import_module(name)
        results += [
            package,
            *(importlib.import_module(m.name) for m in pkgutil.walk_packages(package.__path__, f"{name}.")),
        ]
    return tuple(results)


def _everywhere(address: str) -> tuple[str, ...]:
    """Every module that knows a function by its name; one alone for a method of a class, and after "="."""
    module, _, name = address.removeprefix("=").partition(":")
    if "." in name or address.startswith("="):
        return (f"{module}:{name}",)
    function = getattr(importlib.import_module(module), name)
    root = module.partition(".")[0]
    return tuple(f"{each.__name__}:{name}" for each in _modules(root) if vars(each).get(name) is function)


def _shared(
    method: str,
    name: str,
    description: str,
    reference: tuple[Any, ...],
    fast: tuple[Any, ...],
    checks: str | tuple[str, ...],
    problem: str = "",
) -> SeededBug:
    """One mistake, made in both: (address, make), or several such pairs; `checks` without the method."""
    sides = {
        root: dict((side,) if isinstance(side[0], str) else side)
        for root, side in (("reference", reference), ("fast", fast))
    }
    addresses = [address for side in sides.values() for address in side]
    # by the package too, for some functions have one name in both
    changes = {
        (root, address.partition(":")[2]): change for root, side in sides.items() for address, change in side.items()
    }

    def make(original: Any) -> Any:
        return changes[original.__module__.partition(".")[0], original.__qualname__](original)

    chosen = (checks,) if isinstance(checks, str) else checks
    return SeededBug(
        f"shared/{method}/{name}",
        "both",
        method,
        f"{description}, in both witnesses",
        tuple(dict.fromkeys(target for address in addresses for target in _everywhere(address))),
        make,
        (problem or _problem(method),),
        tuple(check.format(method) for check in chosen),
    )


# -- ways to be wrong ------------------------------------------------------------------------------------------------


def _output(*places: int | str, change: Callable[[Any], Any]) -> Make:
    """Fields of what a function returns, by name, by position in a tuple, or all of a plain value."""

    def make(original: Any) -> Any:
        def function(*args: Any, **kwargs: Any) -> Any:
            correct = original(*args, **kwargs)
            if not places:
                return change(correct)
            if isinstance(correct, dict):
                return correct | {place: change(correct[place]) for place in places if place in correct}
            if not hasattr(correct, "_replace"):
                return tuple(change(part) if at in places else part for at, part in enumerate(correct))
            names = [correct._fields[place] if isinstance(place, int) else place for place in places]
            return correct._replace(**{name: change(getattr(correct, name)) for name in names})

        return function

    return make


def _input(place: int, name: str, change: Callable[[Any], Any]) -> Make:
    """One argument, given by position or by name."""

    def make(original: Any) -> Any:
        def function(*args: Any, **kwargs: Any) -> Any:
            if name in kwargs:
                return original(*args, **kwargs | {name: change(kwargs[name])})
            return original(*args[:place], change(args[place]), *args[place + 1 :], **kwargs)

        return function

    return make


def _half(value: Any) -> Any:
    return 0.5 * value


def _plus(extra: Callable[..., Any]) -> Make:
    """A value with something of its arguments added."""
    return lambda original: lambda *args, **kwargs: original(*args, **kwargs) + extra(*args)


_LENGTH = 1.0 / np.sqrt(2.0)

# -- where methods are judged ----------------------------------------------------------------------------------------

_JAAKKOLA = ("vi-jj", "vi-jj-full", "vi-jj-hybrid")
_IZMAILOV = ("svi", *_JAAKKOLA, "vi-taylor")
_WENZEL = ("x-gpc", "x-gpc-svi", "svgpc", "epgpc")
_PROBIT = ("nested-ep", "nested-iep", "qep", "qiep", "vb-probit")
_SOFTMAX = ("laplace", "laplace-tkp")
_PAIRS = ("ep", "sep", "gfitc")
_ENERGIES = ("apep", "arpep", "rpapep", "bb-alpha")
_BINARY_LAPLACE = "laplace-binary"
METHODS = (*_WENZEL, *_IZMAILOV, *_PROBIT, *_SOFTMAX, *_PAIRS, "vi-robust", "pep", *_ENERGIES, "label-regression",
           "laplace-sparse", _BINARY_LAPLACE)  # fmt: skip


def _problem(method: str) -> str:
    if method == _BINARY_LAPLACE:
        return "toy"
    if method in (*_WENZEL, *_IZMAILOV):
        return "three-points-fitc"
    if method in (*_PROBIT, *_SOFTMAX):
        return "two-points-3-softmax" if method in _SOFTMAX else "two-points-3"
    return f"two-points-3-sparse-{'threshold' if method in (*_PAIRS, 'laplace-sparse') else 'errors'}"


def _value(method: str) -> str:
    """The check of fixed point and log Z."""
    if method == "x-gpc-svi":
        return "limit/{}/batch_definition"
    if method == "label-regression":
        return "limit/{}/conditioning"
    return "derivative/{}/stationary" if method in ("x-gpc", "svgpc", *_IZMAILOV) else "limit/{}/definition"


def _gradient(method: str) -> str:
    if method in (*_WENZEL, *_IZMAILOV):
        return "derivative/{}/gradient_definition"
    if method == _BINARY_LAPLACE:
        return "derivative/{}/gradient_definition"
    if method == "gfitc":
        return "derivative/{}/gradients"
    return "derivative/{}/definition" if method == "sep" else _value(method)


# -- every method: kernel, gradient, prediction ----------------------------------------------------------------------


def _kernels() -> Iterable[SeededBug]:
    for method in METHODS:
        full = method in (*_PROBIT, *_SOFTMAX)
        kernel = "riihimaki2013.model:kernel_se_ard" if full else "common.kernels:squared_exponential"
        yield _shared(
            method,
            "kernel-without-half",
            "the kernel is exp(-r^2), without the half",
            (f"reference.{kernel}", _input(3, "lengthscales", lambda x: _LENGTH * x)),
            ("fast.kernel.kernels:PreparedKernel.__init__", _input(3, "lengthscales", lambda x: _LENGTH * x)),
            _value(method),
        )


# where derivatives of a method end: a mapping or a tuple with the field `variance`
_DERIVATIVES = {
    _BINARY_LAPLACE: "reference.common.laplace_binary:laplace_binary_gradients",
    **dict.fromkeys(("x-gpc", "svgpc", "epgpc"), "reference.wenzel2019._prior:gradients"),
    **dict.fromkeys(_IZMAILOV, "reference.izmailov2016._prior:through_kernel"),
    **dict.fromkeys(("nested-ep", "nested-iep", "qiep"), "reference.riihimaki2013.fit:ep_gradients"),
    "vb-probit": "reference.riihimaki2013.variational:vb_gradients",
    **dict.fromkeys(_SOFTMAX, "reference.riihimaki2013.laplace:laplace_gradients"),
    **dict.fromkeys(
        (*_PAIRS, "vi-robust", "pep", *_ENERGIES, "label-regression"), "reference.common._classes:class_gradients"
    ),
}
_MODULES = {
    "vi-jj-full": "vi_jj",
    "vi-jj-hybrid": "vi_jj",
    "qiep": "quadrature_ep",
    "laplace-tkp": "laplace",
    **dict.fromkeys(_ENERGIES, "apep"),
}


def _gradients() -> Iterable[SeededBug]:
    for method, address in _DERIVATIVES.items():
        module = _MODULES.get(method, method.replace("-", "_"))
        there: tuple[tuple[str, Make], ...] = ((address, _output("variance", change=_half)),)
        if method in _PAIRS:  # which do without `class_gradients`, but for the exact gradient
            there = (*there, ("reference.villacampa2017.methods:Pairwise.gradients", there[0][1]))
        yield _shared(
            method,
            "gradient-in-variance-halved",
            "the derivative in the prior variance has half of its size",
            there,
            (f"fast.methods.{module}:gradients", _output("variance", change=_half)),
            _gradient(method),
        )


def _predictions() -> Iterable[SeededBug]:
    message = "latent variances at test points are standard deviations"
    for method in ("x-gpc", "svgpc", "epgpc", *_IZMAILOV):  # x-gpc-svi of `fast` takes its bound from predictions
        paper = "wenzel2019.prediction" if method in _WENZEL else "izmailov2016.sparse"
        yield _shared(
            method,
            "deviation-for-variance",
            message,
            (f"reference.{paper}:predict_latent", _output(1, change=np.sqrt)),
            ("fast.one_latent.predict:sparse_latent", _output(1, change=np.sqrt)),
            "limit/{}/predictions",
        )
    for method in (*_PAIRS, "vi-robust", "pep", *_ENERGIES, "label-regression"):
        paper = "2017" if method in (*_PAIRS, "vi-robust") else "2020"
        there: tuple[tuple[str, Make], ...] = (
            (f"reference.villacampa{paper}.prediction:predictive_latent_variance", _output(change=np.sqrt)),
        )
        here: tuple[tuple[str, Make], ...] = (
            ("fast.sparse_classes.inference:predictive_moments", _output("var", change=np.sqrt)),
        )
        if method in _ENERGIES:
            adapters = "=validation.implementations.{}:{}"
            place = adapters.format("reference.inducing", "latent_marginal")
            there = (*there, (place, _output(1, change=np.sqrt)))
            place = adapters.format("fast.inducing", "data_moments")
            here = (*here, (place, _output("var", change=np.sqrt)))
        yield _shared(
            method,
            "deviation-for-variance",
            message,
            there,
            here,
            "limit/{}/predictions",
        )
    for method in ("nested-ep", "nested-iep", "qep", "qiep", *_SOFTMAX):
        yield _shared(
            method,
            "half-of-predictive-covariance",
            "half of the covariance of a test point's latent values",
            ("reference.riihimaki2013.prediction:predict_latent_covariance", _output(change=_half)),
            ("fast.full_classes.predict:latent_distribution", _output(1, change=_half)),
            _value(method),
        )
    yield _shared(
        "laplace-sparse",
        "half-of-predictive-covariance",
        "half of the covariance of a test point's latent values",
        (
            ("reference.villacampa2020.laplace_sparse:predict_laplace", _output(1, change=_half)),
            ("=reference.villacampa2020.laplace_sparse:softmax_probabilities", _input(1, "cov", _half)),
        ),
        ("fast.methods.laplace_sparse:latent_distribution", _output(1, change=_half)),
        "limit/{}/predictions",
        "toy-3-sparse-softmax",
    )


# -- binary ----------------------------------------------------------------------------------------------------------


def _mean_alone(original: Any) -> Any:
    return lambda mean, cov, upsilon, cond_var: np.abs(upsilon @ mean) + 1e-3


def _share_of_one(original: Any) -> Any:
    def gradient(eta_1: Any, eta_2: Any, batch: Any, y_sign: Any, theta: Any, upsilon: Any, K_inv: Any) -> Any:
        chosen = np.asarray(batch)
        return original(eta_1, eta_2, np.arange(len(chosen)), y_sign[chosen], theta[chosen], upsilon[chosen], K_inv)

    return gradient


def _curved(original: Any) -> Any:
    return lambda y_sign, xi, log_likelihood=None, *rest: original(
        y_sign, xi, lambda y, x: (g := log_likelihood(y, x))._replace(curvature=0.5 * g.curvature)
    )


def _printed_lambda(original: Any) -> Any:
    return lambda xi: np.tanh(xi) / (4.0 * xi)


def _printed_constant(original: Any) -> Any:
    return lambda xi: float(np.sum(-np.logaddexp(0.0, -xi) - 0.5 * xi + 0.25 * xi * np.tanh(xi)))


def _curved_link(original: Any) -> Any:
    return lambda likelihood: _output("curvature", change=_half)(original(likelihood))


def _binary() -> Iterable[SeededBug]:
    lost = ("reference.wenzel2019.bound:kl_inducing", _output(change=_half))
    for method in ("x-gpc", "x-gpc-svi"):
        yield _shared(
            method,
            "local-parameter-of-mean-alone",
            "c is |E f|, without the variance",
            ("reference.wenzel2019.updates:update_local", _mean_alone),
            ("fast.likelihood.polya_gamma:update_local", lambda original: lambda mean, var: np.abs(mean) + 1e-3),
            _value(method),
        )
    yield _shared(
        "x-gpc-svi",
        "share-of-batch-forgotten",
        "a batch stands for itself, not for n/|S| times as much",
        ("reference.wenzel2019.updates:natural_gradient_minibatch", _share_of_one),
        ("fast.solve.natural:natural_gradient", _input(3, "scale", lambda scale: 1.0)),
        "limit/{}/batch_definition",
    )
    yield _shared(
        "x-gpc-svi",
        "divergence-halved",
        "the bound has half of the divergence",
        lost,
        ("fast.one_latent.bound:kl_whitened", _output(change=_half)),
        "limit/{}/batch_definition",
    )
    yield _shared(
        "svgpc",
        "curvature-halved",
        "second derivatives of E log Phi have half of their size",
        ("reference.common.probit:expect_log_phi", _output("second", change=_half)),
        ("fast.likelihood.probit:expected_log_probit", _output("curvature", change=_half)),
        "limit/{}/batch_definition",
    )
    yield _shared(
        "svgpc",
        "divergence-halved-in-batches",
        "the bound of a stochastic run has half of the divergence",
        lost,
        ("fast.one_latent.bound:kl_whitened", _output(change=_half)),
        "limit/{}/batch_definition",
    )
    yield _shared(
        "epgpc",
        "tilted-curvature-halved",
        "the second derivative of a tilted normaliser has half of its size",
        ("reference.wenzel2019.epgpc:ep_tilted", _output("curvature", change=_half)),
        ("fast.likelihood.probit:log_expected_probit", _output("curvature", change=_half)),
        ("limit/{}/definition", "limit/{}/batch_definition"),
    )
    yield _shared(
        "svi",
        "curvature-halved",
        "second derivatives of E log sigma have half of their size",
        ("reference.common.logistic_expectation:expect_log_sigmoid", _output("second", change=_half)),
        ("fast.methods.svi:_expected", _curved_link),
        "limit/{}/batch_definition",
    )
    yield _shared(
        "svi",
        "share-of-batch-forgotten",
        "a batch stands for itself, not for n/|S| times as much",
        ("reference.izmailov2016.bound:elbo_gradient", _input(6, "weight", lambda weight: 1.0)),
        ("fast.one_latent.explicit_q:batch_bound", _input(4, "scale", lambda scale: 1.0)),
        "limit/{}/batch_definition",
    )
    for method in _JAAKKOLA:
        yield _shared(
            method,
            "lambda-as-printed",
            "lambda(xi) is tanh(xi)/(4 xi), as the paper prints it",
            (
                ("reference.izmailov2016.jaakkola_jordan:jj_lambda", _printed_lambda),
                ("reference.izmailov2016.jaakkola_jordan:jj_constant", _printed_constant),
            ),
            ("fast.likelihood.quadratic_bounds:jj_coefficient", _printed_lambda),
            "derivative/{}/stationary",
        )
        yield _shared(
            method,
            "xi-of-mean-alone",
            "xi is |E f|, without the variance",
            ("reference.izmailov2016.jaakkola_jordan:jj_optimal_xi", _input(1, "latent_var", lambda v: 0.0 * v)),
            ("fast.likelihood.quadratic_bounds:jj_local", _input(1, "latent_var", lambda v: 0.0 * v)),
            "derivative/{}/stationary",
        )
    yield _shared(
        "vi-taylor",
        "curvature-halved",
        "the expansion has half of the curvature",
        ("reference.izmailov2016.taylor:taylor_psi", _output(change=_half)),
        ("fast.likelihood.quadratic_bounds:taylor", _curved),
        ("derivative/{}/stationary", "derivative/{}/projected_mode"),
    )


def _mode_held(original: Any) -> Any:
    """Third derivatives of zero, in `reference`: log|B| does not move with the mode."""
    return lambda *given: (correct := original(*given))._replace(third=0.0 * correct.third)


def _mode_held_of_link(original: Any) -> Any:
    """The same in `fast`, whose third derivatives are of the link."""
    return lambda likelihood: replace(original(likelihood), third_derivative=lambda y_sign, f: 0.0 * f)


def _without_label(original: Any) -> Any:
    """Var f_* with (K + W)^-1 in the place of (K + W^-1)^-1, in `reference`."""
    return lambda K, at: original(K, at._replace(second=1.0 / at.second))


def _laplace_binary() -> Iterable[SeededBug]:
    yield _shared(
        _BINARY_LAPLACE,
        "mode-held",
        "the gradient of log Z is taken as if the mode did not move",
        ("reference.common.laplace_binary:laplace_derivatives", _mode_held),
        ("=fast.one_latent.laplace:link_of", _mode_held_of_link),
        "derivative/{}/gradient_definition",
    )
    yield _shared(
        _BINARY_LAPLACE,
        "evidence-without-determinant",
        "log Z is the height of the mode, without its volume",
        (
            "reference.common.laplace_binary:laplace_log_evidence",
            _plus(lambda f, a, K, at: 0.5 * float(np.linalg.slogdet(np.eye(len(f)) - K * at.second)[1])),
        ),
        (
            "fast.one_latent.laplace:gaussian_at",
            lambda original: (
                lambda *given: replace(
                    correct := original(*given), log_evidence=correct.log_evidence + 0.5 * correct.sites.log_det
                )
            ),
        ),
        "limit/{}/definition",
    )
    yield _shared(
        _BINARY_LAPLACE,
        "precision-inverted",
        "the variance at a test point has (K + W)^-1 in the place of (K + W^-1)^-1",
        ("reference.common.laplace_binary:laplace_explained", _without_label),
        ("fast.methods.laplace_binary:full_latent", _inverted_precision),
        "limit/{}/definition",
    )


def _inverted_precision(original: Any) -> Any:
    def latent(X_test: Any, X: Any, hyper: Any, theta: Any, factor: Any, weights: Any, block_size: int) -> Any:
        from fast.one_latent.prior import gram

        K = gram(X, hyper.variance, hyper.lengthscales, hyper.noise, hyper.jitter, hyper.smoothness)
        W = 1.0 / theta
        root = np.sqrt(W)
        wrong = np.linalg.cholesky(np.eye(len(W)) + root[:, None] * K * root)
        return original(X_test, X, hyper, W, np.asfortranarray(wrong), weights, block_size)

    return latent


# -- several classes, sparse -----------------------------------------------------------------------------------------


def _sep_counts(original: Any) -> Any:
    return lambda y, n_classes, count="all": np.full(n_classes, float(len(y)))


def _less_open(original: Any) -> Any:
    return lambda distribution, view: (correct := original(distribution, view))._replace(
        var=correct.var - 0.5 * view.cond_var
    )


def _less_open_pair(original: Any) -> Any:
    return lambda cavities, upsilon, k_xx, k_xZ, K_ZZ: original(
        cavities, upsilon, 0.5 * (k_xx + np.sum(k_xZ * upsilon, axis=1)), k_xZ, K_ZZ
    )


def _less_open_value(original: Any) -> Any:
    return lambda k_xx, k_xZ, K_ZZ, cov: original(0.5 * (k_xx + k_xZ @ np.linalg.solve(K_ZZ, k_xZ)), k_xZ, K_ZZ, cov)


def _flat_factor(original: Any) -> Any:
    def coefficient(alpha: float, beta: float, b_sum: float, upsilon: Any, cavity_cov: Any) -> float:
        v = float(upsilon @ cavity_cov @ upsilon)
        correct = original(alpha, beta, b_sum, upsilon, cavity_cov)
        h = 0.5 * correct / (1.0 + correct * v)
        return h / (1.0 - h * v)

    return coefficient


def _flat_derivative(_: Any) -> Any:
    return lambda alpha, beta, b_sum, upsilon: -0.25 * beta * (alpha - beta) / b_sum * np.outer(upsilon, upsilon)


def _sparse() -> Iterable[SeededBug]:
    for method in ("ep", "sep"):
        yield _shared(
            method,
            "conditional-variance-halved",
            "half of what inducing values leave open of a latent value",
            (("reference.villacampa2017.factors:matched_factor", _less_open_pair),),
            ("fast.sparse_classes.pairwise_factors:pair_tilt", _input(5, "cond_var", _half)),
            "limit/{}/definition",
        )
    for method in _PAIRS:
        yield _shared(
            method,
            "curvature-halved",
            "the second derivative of a factor's normaliser has half of its size",
            (
                ("reference.villacampa2017.factors:update_c1", _flat_factor),
                ("reference.villacampa2017.factors:dlogz_dcov", _flat_derivative),
            ),
            ("fast.sparse_classes.pairwise_factors:pair_tilt", _output("curvature", change=_half)),
            "limit/{}/definition",
        )
    yield _shared(
        "sep",
        "data-not-factors-counted",
        "the n-th root counts data, not factors",
        ("reference.villacampa2017.sep:factor_counts", _sep_counts),
        (
            "fast.sparse_classes.sep:factor_counts",
            lambda original: lambda class_counts, n, count: np.full(class_counts.size, float(n)),
        ),
        "limit/{}/definition",
    )
    yield _shared(
        "sep",
        "share-of-batch-forgotten",
        "learning takes a batch for itself, not for N/|S| times as much",
        ("reference.villacampa2017.gradients:minibatch_scale", lambda original: lambda n, batch_size: 1.0),
        ("fast.sparse_classes.sep:data_scale", lambda original: lambda n, batch_size: 1.0),
        "derivative/{}/batch_definition",
        "toy-3-sparse-threshold",
    )
    yield _shared(
        "sep",
        "damping-of-shift-forgotten",
        "the cavity keeps all of the tied factor's shift",
        ("reference.villacampa2017.sep:sep_cavity", _whole_shift_reference),
        ("fast.sparse_classes.sep:tied_cavity", _whole_shift_fast),
        ("limit/{}/definition", "limit/{}/batch_definition"),
    )
    yield _shared(
        "vi-robust",
        "labelling-errors-halved",
        "the bound takes half of epsilon",
        (
            ("reference.villacampa2017.vi_gradients:expected_terms", _input(3, "epsilon", _half)),
            ("reference.villacampa2017.vi_fit:variational_elbo", _input(5, "epsilon", _half)),
        ),
        ("fast.sparse_classes.alpha_runs:powered_labels", _input(3, "epsilon", _half)),
        "limit/{}/definition",
    )
    yield _shared(
        "vi-robust",
        "conditional-variance-halved",
        "half of what inducing values leave open of a latent value",
        ("reference.villacampa2017.vi:vi_marginal_variance", _less_open_value),
        ("fast.sparse_classes.alpha_runs:data_moments", _less_open),
        "limit/{}/definition",
    )
    for method in ("pep", *_ENERGIES):
        yield _shared(
            method,
            "labelling-errors-halved",
            "powers of the likelihood take half of epsilon",
            ("reference.villacampa2020.power_likelihood:scaled_log_expected_powers", _input(3, "epsilon", _half)),
            (
                ("fast.sparse_classes.alpha_runs:powered_labels", _input(3, "epsilon", _half)),
                ("fast.likelihood.power:robust_probabilities", _input(1, "epsilon", _half)),
            ),
            ("limit/{}/definition", "limit/{}/batch_definition")[: 1 if method == "bb-alpha" else 2],
        )
    yield _shared(
        "label-regression",
        "targets-zero-and-one",
        "targets are 0 and 1, not -1 and 1",
        ("reference.villacampa2020.label_regression:label_targets", _output(change=lambda t: 0.5 + 0.5 * t)),
        ("fast.methods.label_regression:label_targets", _output(change=lambda t: 0.5 + 0.5 * t)),
        "limit/{}/conditioning",
    )
    yield _shared(
        "laplace-sparse",
        "determinant-twice",
        "log Z has the determinant twice",
        ("reference.villacampa2020.laplace_sparse:laplace_log_evidence", _weight_twice),
        ("fast.full_classes.softmax_laplace:laplace_log_evidence", _plus(lambda mode: -0.5 * mode.posterior.log_det)),
        "limit/{}/definition",
    )


def _whole_shift_reference(original: Any) -> Any:
    def cavity(posterior: Any, sites: Any, counts: Any) -> Any:
        return [
            each._replace(shift=q.shift)
            for each, q in zip(original(posterior, sites, counts), posterior, strict=True)
        ]  # fmt: skip

    return cavity


def _whole_shift_fast(original: Any) -> Any:
    return lambda precision, shift, counts: original(precision, shift, counts)._replace(shift=shift.copy())


def _weight_twice(original: Any) -> Any:
    def value(mode: Any, K: Any, y: Any) -> Any:
        from reference.villacampa2020.laplace_sparse import laplace_weight

        return original(mode, K, y) - 0.5 * laplace_weight(mode.latent_values, K)[1]

    return value


# -- several classes, full -------------------------------------------------------------------------------------------


def _lazy_mean(original: Any) -> Any:
    """Inner tilted moments of `reference`: the mean goes half of the way."""

    def moments(cavity_mean: float, cavity_var: float) -> Any:
        correct = original(cavity_mean, cavity_var)
        return correct._replace(mean=0.5 * (correct.mean + cavity_mean))

    return moments


def _lazy_site(original: Any) -> Any:
    """Sites of `fast` for the same: precision-adjusted mean of the site less half of what moved the mean."""

    def site(cavity_mean: Any, cavity_var: Any) -> Any:
        precision, shift = original(cavity_mean, cavity_var)
        scale = np.sqrt(1.0 + cavity_var)
        z = cavity_mean / scale
        moved = np.exp(norm.logpdf(z) - norm.logcdf(z)) / scale * cavity_var
        return precision, shift - 0.5 * moved * (1.0 / cavity_var + precision)

    return site


def _newton_twice(original: Any) -> Any:
    def value(mode: Any, K: Any, y: Any) -> Any:
        from reference.riihimaki2013 import laplace, posterior

        W = laplace.softmax_w_matrix(mode, len(y)).reshape(len(K) // len(y), len(y), -1, len(y))
        blocks = np.stack([W[:, i, :, i] for i in range(len(y))])
        return original(mode, K, y) - 0.5 * posterior.log_det_of(K, blocks)

    return value


def _full() -> Iterable[SeededBug]:
    for method in ("nested-ep", "nested-iep"):
        yield _shared(
            method,
            "tilted-mean-half-way",
            "the mean of a scalar tilted distribution goes half of the way",
            ("reference.riihimaki2013.inner_ep:inner_tilted_moments", _lazy_mean),
            ("fast.full_classes.inner_ep:matched_site", _lazy_site),
            "limit/{}/definition",
        )
    for method in ("qep", "qiep"):
        yield _shared(
            method,
            "log-normaliser-halved",
            "log Z counts half of the tilted normalisers",
            ("reference.riihimaki2013.evidence:ep_log_marginal", _input(3, "log_tilted_norm", _half)),
            _QUADRATURE_NORMS[method],
            "limit/{}/definition",
        )
    yield _shared(
        "vb-probit",
        "region-mean-half-way",
        "expected auxiliary variables go half of the way",
        ("reference.riihimaki2013.variational:region_moments", _lazy_region),
        ("fast.methods.vb_probit:region_terms", _output("derivative", change=_half)),
        "limit/{}/definition",
    )
    yield _shared(
        "vb-probit",
        "determinant-dropped",
        "the bound is without log|I + K|",
        (
            "reference.riihimaki2013.variational:vb_bound",
            _plus(lambda m, w, K, y: 0.5 * np.linalg.slogdet(np.eye(len(K)) + K)[1]),
        ),
        ("fast.methods.vb_probit:vb_bound", _input(3, "log_det", lambda value: 0.0)),
        "limit/{}/definition",
    )
    for method in _SOFTMAX:
        yield _shared(
            method,
            "determinant-twice",
            "log Z has the determinant twice",
            ("reference.riihimaki2013.laplace:laplace_log_marginal", _newton_twice),
            (
                "fast.full_classes.softmax_laplace:laplace_log_evidence",
                _plus(lambda mode: -0.5 * mode.posterior.log_det),
            ),
            "limit/{}/definition",
        )


def _lazy_region(original: Any) -> Any:
    return lambda means, y: (correct := original(means, y))._replace(mean=0.5 * (correct.mean + means))


_QUADRATURE_NORMS: dict[str, tuple[str, Make]] = {
    "qep": ("fast.full_classes.quadrature_tilt:white_moments", _output("log_norm", change=_half)),
    "qiep": ("fast.full_classes.quadrature_tilt:independent_tilt", _output(3, change=_half)),
}

FAULTS: tuple[SeededBug, ...] = (
    *_kernels(),
    *_gradients(),
    *_predictions(),
    *_binary(),
    *_laplace_binary(),
    *_sparse(),
    *_full(),
)
