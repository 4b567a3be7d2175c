"""Questions that both witnesses refuse, by the same name: one table over methods.

`refused/*` of `triad verify` asks every option of every method; here stand combinations of problem and options.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from random_problems import binary, classes, conditioned, full_binary, full_classes
from validation import Problem, solve
from validation.implementations.reference.riihimaki import _mass_of_ratios

WITNESSES = ("reference", "fast")
_SITES, _ENERGIES, _POWERS = (
    ("ep", "sep", "gfitc"),
    ("apep", "arpep", "rpapep"),
    ("pep", "apep", "arpep", "rpapep", "bb-alpha"),
)
_BATCHED = ("ep", "sep", "vi-robust", "pep", *_ENERGIES)
_PROBIT, _SOFTMAX = ("nested-ep", "nested-iep", "qep", "qiep", "vb-probit"), ("laplace", "laplace-tkp")
_SPARSE = (*_SITES, "vi-robust", *_POWERS, "label-regression", "laplace-sparse")
_BINARY = ("x-gpc", "svgpc", "epgpc")
_MATERN, _FULL_GP = {"kernel": "matern", "smoothness": 1.5}, {"Z": None, "prior_model": "full"}
_DENSITY = {"hyperprior": {"variance": ("log-normal", 1.0, 1.0)}}


def _problem(method: str) -> Problem:
    """One that the method takes."""
    if method in _BINARY:
        return conditioned(partial(binary, likelihood="logit" if method == "x-gpc" else "probit", sparse=True), 3)
    if method == "laplace-binary":
        return conditioned(lambda rng: full_binary(rng, "logit"), 3)
    if method in _PROBIT + _SOFTMAX:
        likelihood = "multinomial-probit" if method in _PROBIT else "softmax"
        return conditioned(lambda rng: full_classes(rng, likelihood), 3)
    robust = method in ("vi-robust", "label-regression", *_POWERS)
    likelihood = "softmax" if method == "laplace-sparse" else "threshold"
    return conditioned(lambda rng: classes(rng, 2, True, (0.1, 0.3), epsilon=0.05 * robust, likelihood=likelihood), 3)


# methods, the name in the error, what is changed in the problem, options
_Row = tuple[tuple[str, ...], str, Mapping[str, Any], Mapping[str, Any]]
_QUESTIONS: tuple[_Row, ...] = (
    (_SPARSE, "likelihood", {"likelihood": "multinomial-probit", "epsilon": 0.0}, {}),
    (_PROBIT, "likelihood", {"likelihood": "softmax"}, {}),
    (_SOFTMAX, "likelihood", {"likelihood": "multinomial-probit"}, {}),
    ((*_SPARSE, "laplace-binary"), "kernel", _MATERN, {}),
    (_SPARSE, "Z", _FULL_GP, {}),
    (_SITES, "epsilon", {"epsilon": 0.1}, {}),
    (("vi-robust",), "epsilon", {"epsilon": 0.0}, {}),
    (_POWERS, "epsilon", {"epsilon": 0.0}, {"alpha": 0.0}),
    (_SPARSE, "hyperprior", _DENSITY, {}),
    ((*_SITES, "vi-robust", *_POWERS, "laplace-sparse", *_PROBIT, *_SOFTMAX), "tolerance", {}, {"tolerance": 0.0}),
    ((*_SITES, "vi-robust", *_POWERS, "laplace-sparse"), "max_iterations", {}, {"max_iterations": 0}),
    ((*_SITES, "vi-robust", *_POWERS, "label-regression"), "learn", {}, {"learn": ("jitter",)}),
    ((*_SITES, "vi-robust", *_POWERS), "(learn|noise)", {"noise": 0.0}, {"learn": ("noise",)}),
    (_BATCHED, r"batches(\[1\])?", {}, {"batches": [[0], []]}),
    (_BATCHED, r"batches(\[0\])?", {}, {"batches": [[99]]}),
    (_BATCHED, "batch_size", {}, {"batch_size": 0, "n_steps": 1}),
    (("ep", "sep", "vi-robust"), "n_steps", {}, {"n_steps": 3}),
    (_BATCHED, "rate", {}, {"learn": ("Z",), "batches": [[0]], "rate": 0.0}),
    (_BATCHED, "optimizer", {}, {"learn": ("Z",), "optimizer": "sgd"}),
    (("ep", "sep", "pep", *_ENERGIES), "optimizer", {}, {"learn": ("Z",), "optimizer": "lbfgs", "batches": [[0]]}),
    (("ep", "sep"), "scheme", {}, {"learn": ("Z",), "scheme": "inner"}),
    (("pep",), "scheme", {}, {"learn": ("Z",), "scheme": "inner-exact"}),
    (("ep", "sep"), "gradient_rule", {}, {"gradient_rule": "11"}),
    (("pep",), "gradient_rule", {}, {"gradient_rule": "10"}),
    ((*_SITES, "pep"), "damping", {}, {"damping": 0.0}),
    ((*_SITES, "pep"), "damping", {}, {"damping": 1.5}),
    (("ep",), "factors", {}, {"factors": "triple"}),
    (("ep",), "schedule", {}, {"schedule": "random"}),
    (("sep",), "count", {}, {"count": "one"}),
    (("sep",), "optimizer", {}, {"learn": ("Z",), "optimizer": "lbfgs"}),
    (("vi-robust",), "nat_rate", {}, {"nat_rate": 0.0, "batches": [[0]]}),
    *((_POWERS, "alpha", {}, {"alpha": alpha}) for alpha in (-0.1, 1.1, float("nan"))),
    (("apep",), "tied_factor", {}, {"tied_factor": "free"}),
    (("bb-alpha",), "expectation", {}, {"expectation": "exact"}),
    (("bb-alpha",), "n_draws", {}, {"n_draws": 1}),
    (("bb-alpha",), "learn", {}, {"learn": ("Z",), "expectation": "monte-carlo"}),
    (("label-regression",), "optimizer", {}, {"learn": ("Z",), "optimizer": "adam"}),
    (("label-regression",), "rate", {}, {"learn": ("Z",), "optimizer": "adaptive", "rate": 0.0}),
    (("laplace-sparse",), "prediction_nodes", {}, {"prediction_nodes": 1}),
    (("vb-probit",), "optimizer", {"hyperprior": {"variance": ("half-student-t", 4.0, 10.0)}},
     {"learn": ("variance",), "optimizer": "em"}),
    (("laplace-binary",), "learn", {}, {"learn": ("Z",)}),
    (_BINARY, "optimizer", {}, {"learn": ("variance",), "optimizer": "adam"}),
    (_BINARY, "optimizer", {}, {"learn": ("variance",), "optimizer": "newton"}),
    (("svgpc", "epgpc"), "optimizer", {}, {"learn": ("variance",), "optimizer": "lbfgs", "batches": [[0, 1]]}),
)  # fmt: skip


@pytest.mark.parametrize("method", sorted({method for methods, *_ in _QUESTIONS for method in methods}))
def test_both_refuse_the_same_questions(method: str) -> None:
    p = _problem(method)
    for methods, name, changes, options in _QUESTIONS:
        for witness in WITNESSES if method in methods else ():
            with pytest.raises(ValueError, match=rf"^{name}: found"):
                solve(witness, method, p.replace(**changes), **options)


@pytest.mark.parametrize("method", [*_PROBIT, *_SOFTMAX, "laplace-binary"])
def test_a_full_gp_takes_no_inducing_points(method: str) -> None:
    p = _problem(method)
    for witness in WITNESSES:
        with pytest.raises(ValueError, match=r"^Z"):
            solve(witness, method, p.replace(Z=p.X[:2]))


@pytest.mark.parametrize("method", [*_SITES, "vi-robust", *_POWERS])
def test_inducing_points_that_coincide_are_named(method: str) -> None:
    p = _problem(method)
    assert p.Z is not None
    twice = p.replace(Z=np.concatenate([p.Z, p.Z[:, :1]], axis=1), jitter=0.0)
    for witness in WITNESSES:
        with pytest.raises(np.linalg.LinAlgError, match=r"K_ZZ.*raise jitter"):
            solve(witness, method, twice)


def test_a_regression_that_rounding_decides_is_refused() -> None:
    p = _problem("label-regression")
    at_data = p.replace(Z=np.tile(p.X, (p.n_classes, 1, 1)), noise=0.0, jitter=0.0, lengthscales=0.3)
    for witness in WITNESSES:
        with pytest.raises(ValueError, match=r"^noise: found"):
            solve(witness, "label-regression", at_data)


@pytest.mark.parametrize("ratio", [0.0, np.inf, np.nan])
def test_evidence_ratios_that_are_none_are_an_error_and_no_nan(ratio: float) -> None:
    # where a ratio underflows (log variance near 28) is a matter of rounding, so the ratios are given here
    np.testing.assert_array_equal(_mass_of_ratios(np.array([[0.25, 0.75]]), 1e12), [1.0])
    with pytest.raises(
        ValueError, match=r"variance: found 1e\+12, at which the evidences of the data with test point 1"
    ):
        _mass_of_ratios(np.array([[0.25, 0.75], [0.0, ratio]]), 1e12)
