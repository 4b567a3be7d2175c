"""Predictions and bounds of fits of one latent function do not depend on block_size."""

from importlib import import_module

import numpy as np
import pytest

from fast.core.values import Data, Prior

CUT, DRAWN = {"max_iterations": 2}, {"batches": [[0, 3, 5]]}
# method, options, the functions that go through rows, whether a full process
DOORS = [
    ("x_gpc", "XGPCOptions", CUT, ("predict",)),
    ("svgpc", "SVGPCOptions", CUT, ("predict",)),
    ("epgpc", "EPGPCOptions", CUT, ("predict",)),
    ("vi_jj", "JJOptions", CUT, ("predict", "latent")),
    ("vi_taylor", "TaylorOptions", CUT, ("predict",)),
    ("laplace_binary", "LaplaceBinaryOptions", CUT, ("predict",)),
    ("x_gpc_svi", "XGPCSteps", DRAWN, ("predict", "bound")),
    ("svgpc_svi", "SVGPCSteps", DRAWN, ("predict", "bound")),
    ("svi", "SVISteps", DRAWN, ("predict_run", "latent", "bound")),
]


def numbers(result):
    """A number, arrays, or mean and variance of a prediction."""
    if hasattr(result, "latent_mean"):
        result = result.latent_mean, result.latent_var
    return [np.atleast_1d(part) for part in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize(("name", "options", "given", "doors"), DOORS, ids=[row[0] for row in DOORS])
def test_predictions_and_bounds_do_not_depend_on_the_size_of_blocks(rng, name, options, given, doors):
    module = import_module(f"fast.methods.{name}")
    X = rng.normal(size=(150, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=150) > 0.0).astype(int)
    Z = None if name == "laplace_binary" else X[:5] + 0.1
    fit = module.fit_stochastic if name == "svi" else module.fit
    posterior = fit(Data(X, y), Prior(1.7, np.array([0.9, 1.4]), 0.2, 2e-3, Z), getattr(module, options)(**given))
    for door in doors:
        rows = (X, y) if door == "bound" else (X,)
        whole, parts = (numbers(getattr(module, door)(posterior, *rows, block_size=size)) for size in (150, 8))
        for a, b in zip(parts, whole, strict=True):
            # products of matrices of other shapes round differently; conditions below 1e4
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * np.abs(b).max())
