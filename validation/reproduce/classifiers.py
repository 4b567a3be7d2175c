"""The classifiers that experiments compare, by method id."""

from __future__ import annotations

from typing import Any

from fast import estimators


def binary_classifier(method: str, *, n_inducing: int, batch_size: int, seed: int) -> Any:
    """A binary classifier of `fast.estimators` as wenzel2019 trains it: evidence alone, one lengthscale, mini-batches.

    The one lengthscale is a factor of the median distance in each input.

    method: x-gpc-svi, svgpc or epgpc; n_inducing points by k-means++; batch_size rows a step; seed of everything.
    """
    table = {
        "x-gpc-svi": estimators.XGPClassifier,
        "svgpc": estimators.SVGPClassifier,
        "epgpc": estimators.EPGPClassifier,
    }
    return table[method](
        n_inducing=n_inducing, batch_size=batch_size, training="minibatch", random_state=seed,
        prior=None, learn=("variance", "scale"),
    )  # fmt: skip


TRACTABLE = {
    "svi": estimators.SVIClassifier,
    "svi-lbfgs": estimators.SVIClassifier,
    "vi-jj": estimators.JJClassifier,
    "vi-jj-full": estimators.JJFullClassifier,
    "vi-jj-hybrid": estimators.JJHybridClassifier,
    "vi-taylor": estimators.TaylorClassifier,
}


def tractable_classifier(method: str, *, n_inducing: int, max_iter: int, seed: int) -> Any:
    """A classifier of izmailov2016 by method id: n_inducing cluster centres, at most max_iter iterations, seed.

    svi makes steps on mini-batches, which is what the paper compares; svi-lbfgs has L-BFGS-B on its bound (11).
    """
    steps: dict[str, Any] = {"svi": {"training": "minibatch"}, "svi-lbfgs": {"training": "batch"}}.get(method, {})
    return TRACTABLE[method](n_inducing=n_inducing, max_iter=max_iter, random_state=seed, **steps)
