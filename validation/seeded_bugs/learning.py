"""Bugs of learning paths, of searches, of runs that a file continues, and of the rules that end a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import seeded

# -- steps -------------------------------------------------------------------------------------------------------


def _halved(original: Any) -> Any:
    def gradient(self: Any, *arguments: Any) -> Any:
        return 0.5 * original(self, *arguments)

    return gradient


def _grows_always(original: Any) -> Any:
    def step(derivative: Any, state: Any) -> Any:
        return original(np.abs(derivative), state)

    return step


def _unlearned_noise(original: Any) -> Any:
    def gradient(self: Any, gradients: Any, hyper: Any) -> Any:
        return original(self, gradients._replace(noise=0.0 * np.asarray(gradients.noise)), hyper)

    return gradient


def _no_bias(original: Any) -> Any:
    def step(*arguments: Any, **options: Any) -> Any:
        correct = original(*arguments, **options)
        return correct._replace(step=0.9 * correct.step)

    return step


def _root_of_all(original: Any) -> Any:
    def log_hyperprior(
        name: str, value: Any, distribution: Any, *, prior_on: str = "field", map_density: str = "value"
    ) -> Any:
        correct = original(name, value, distribution, prior_on=prior_on, map_density=map_density)
        return correct._replace(derivative=2.0 * correct.derivative) if prior_on == "root" else correct

    return log_hyperprior


_STEPS = (
    *(
        seeded(
            method,
            "learning-derivative-halved",
            "half of the gradient in the logarithms is forgotten: Adam hardly sees it, a search does",
            "fast.sparse_classes.training:ClassPacking.gradient",
            _halved,
            f"identity/{method}/paths",
        )
        for method in ("ep", "pep")
    ),
    seeded(
        "sep",
        "adaptive-rate-only-grows",
        "the adaptive rates take every derivative for one of the same sign, so that they only grow",
        "fast.sparse_classes.training:adaptive_step",
        _grows_always,
        "identity/sep/paths",
    ),
    seeded(
        "label-regression",
        "noise-not-learned",
        "the noise has zero gradient, so it stays where it is",
        "fast.sparse_classes.training:ClassPacking.gradient",
        _unlearned_noise,
        ("identity/label-regression/paths", "limit/label-regression/search_end"),
    ),
    *(
        seeded(
            method,
            "joint-steps-without-bias-correction",
            "Adam's steps of q and prior together are nine tenths of what they should be",
            "fast.sparse_classes.alpha_joint:adam_step",
            _no_bias,
            f"identity/{method}/paths",
        )
        for method in ("arpep", "rpapep")
    ),
    seeded(
        "laplace",
        "distribution-of-root-doubled",
        "where the distribution sits on the root its derivative in the logarithm is taken twice",
        "fast.core.hyperprior:log_hyperprior",
        _root_of_all,
        ("identity/laplace/paths", "limit/laplace/search_end"),
    ),
)


# -- searches ----------------------------------------------------------------------------------------------------


_SEARCHES = (
    seeded(
        "svgpc",
        "search-ends-on-a-derivative",
        "the search is content with derivatives of a third and says that it has converged",
        "fast.one_latent.learning:maximise",
        lambda original: (
            lambda *arguments, **options: original(*arguments, **{**options, "max_iterations": 2})._replace(
                converged=True
            )
        ),
        "limit/svgpc/search_end",
    ),
    seeded(
        "vi-jj",
        "second-stage-ends-at-once",
        "stage 2 of Algorithm 1 leaves the prior where it is",
        "fast.methods.vi_jj:stage_two",
        lambda original: lambda state, learn, n_fun: original(state, learn, 1)._replace(prior=state.prior),
        "limit/vi-jj/search_end",
    ),
)


# -- files and orders --------------------------------------------------------------------------------------------


def _without_moments(original: Any) -> Any:
    def restored(arrays: Any) -> Any:
        correct = original(arrays)
        return correct._replace(second=0.0 * correct.second + correct.first**2)

    return restored


def _last_left(original: Any) -> Any:
    def blocks(n: int, block_size: int) -> Any:
        edges = list(original(n, block_size))
        return iter(edges[:-1] if len(edges) > 1 else edges)

    return blocks


_FILES = (
    *(
        seeded(
            method,
            "running-means-forgotten",
            "a continued run takes Adam's second moments from the first",
            (f"{module}:adam_restored",),
            _without_moments,
            f"run/{method}/*",
            "*",
        )
        for method, module in (
            ("ep", "fast.sparse_classes.training"),
            ("apep", "fast.sparse_classes.alpha_joint"),
            ("x-gpc-svi", "fast.one_latent.stochastic"),
        )
    ),
    seeded(
        "vi-robust",
        "last-block-left-out",
        "the last block of the data is left out of a pass",
        "fast.sparse_classes.data:block_edges",
        _last_left,
        "run/vi-robust/*",
        "*",
        raises=True,  # variances of rows without a latent value come out negative
    ),
)


# -- settings ----------------------------------------------------------------------------------------------------


def _unit_smoothness(original: Any) -> Any:
    return lambda X1, X2, variance, lengthscales, smoothness: original(X1, X2, variance, lengthscales, 1.5)


_SETTINGS = (
    seeded(
        "vi-taylor",
        "matern-of-one-order",
        "the Matérn kernel is that of order 3/2 whatever is asked",
        "fast.one_latent.prior:matern",
        _unit_smoothness,
        "identity/vi-taylor/settings",
    ),
)

FAULTS = (*_STEPS, *_SEARCHES, *_FILES, *_SETTINGS)
