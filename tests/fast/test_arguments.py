"""Arguments that the methods with inducing points share: what is senseless is refused by name before any work."""

from __future__ import annotations

import inspect
import os
import pkgutil
from importlib import import_module

import numpy as np
import pytest

from fast import methods
from fast.core.declare import Options
from fast.core.hyper import class_hyper
from fast.core.values import Data, Prior
from fast.methods import (
    apep,
    ep,
    gfitc,
    label_regression,
    laplace,
    laplace_sparse,
    nested_ep,
    nested_iep,
    pep,
    sep,
    vb_probit,
    vi_robust,
)
from fast.sparse_classes.projections import InducingClasses
from fast.sparse_classes.stream import TiedStream
from values_given import fitted

WITH_EPSILON = (vi_robust, pep, apep, label_regression)
SPARSE = (ep, sep, gfitc, vi_robust, pep, apep, label_regression, laplace_sparse)
TRAINED = (ep, sep, vi_robust, pep, apep)
FULL = (nested_ep, nested_iep, laplace, vb_probit)


FITS = [
    function
    for found in pkgutil.iter_modules(methods.__path__, f"{methods.__name__}.")
    for name, function in vars(import_module(found.name)).items()
    if name.startswith("fit") and inspect.isfunction(function) and function.__module__ == found.name
]


@pytest.mark.parametrize("function", FITS, ids=lambda f: f"{f.__module__.split('.')[-1]}.{f.__name__}")
def test_a_fit_names_what_is_no_data_no_prior_or_not_its_options(function):
    data, prior = Data(np.eye(2), np.array([0, 1])), Prior(1.0, np.ones(2), 0.1, 0.0, np.eye(2))
    for name, wrong in (
        ("data", (None, prior, {"X": 1})),
        ("prior", (None, data)),
        ("options", (None, {"tolerance": 0.1}, Options())),
    ):
        for value in wrong:
            with pytest.raises(ValueError, match=rf"^{name}: found .*, expected "):
                function(**({"data": data, "prior": prior} | {name: value}))


@pytest.fixture
def data(rng):
    X = rng.normal(size=(9, 2))
    return X, np.arange(9) % 3


def fit(module, data, Z=None, **options):
    X, y = data
    given = [X, y, 3, 1.0, np.ones(2), 0.1, 1e-6]
    if module not in SPARSE:
        return fitted(module, *given, **options)
    given.append(X[:4] if Z is None else Z)
    if module in WITH_EPSILON:
        given.append(1e-3)
    return fitted(module, *given, **options)


@pytest.mark.parametrize("module", SPARSE)
@pytest.mark.parametrize("kind", [np.complex128, np.str_])
def test_inducing_points_are_real_numbers(module, kind, data):
    with pytest.raises(ValueError, match=r"^Z: found dtype"):
        fit(module, data, data[0][:4].astype(kind))


@pytest.mark.parametrize("module", SPARSE + FULL)
@pytest.mark.parametrize("shared", ["x", None, 2])
def test_shared_is_a_flag(module, shared, data):
    with pytest.raises(ValueError, match=r"^shared: found"):
        fit(module, data, shared=shared)


@pytest.mark.parametrize("module", SPARSE + FULL)
def test_a_callback_can_be_called(module, data):
    with pytest.raises(ValueError, match=r"^callback: found 5"):
        fit(module, data, callback=5)


@pytest.mark.parametrize("module", [nested_ep, nested_iep, vb_probit])
def test_accelerate_is_a_flag(module, data):
    with pytest.raises(ValueError, match=r"^accelerate: found 'a'"):
        fit(module, data, accelerate="a")


@pytest.mark.parametrize("module", [nested_ep, nested_iep])
@pytest.mark.parametrize("damping", ["a", None, 0.0, 1.1])
def test_inner_damping_is_a_number(module, damping, data):
    with pytest.raises(ValueError, match=r"^inner_damping: found"):
        fit(module, data, inner_damping=damping)


@pytest.mark.parametrize("module", TRAINED)
@pytest.mark.parametrize(
    "options",
    [
        {"trace": "a"},
        {"evaluate": "a"},
        {"evaluate": None},
        {"memory_budget": -1},
        {"memory_budget": np.nan},
        {"learn": None},
        {"learn": 5},
        {"learn": (1,)},
        {"batches": 5},
        {"batches": "ab"},
        {"checkpoint": 5},
    ],
    ids=str,
)
def test_options_are_refused_by_name(module, options, data):
    (name,) = options
    with pytest.raises(ValueError, match=rf"^{name}: found"):
        fit(module, data, **options)


@pytest.mark.parametrize("module", TRAINED)
def test_a_checkpoint_needs_a_folder(module, data, tmp_path):
    with pytest.raises(ValueError, match=r"^checkpoint: found .* expected a path in a folder that exists"):
        fit(module, data, batch_size=3, n_steps=2, checkpoint=tmp_path / "absent" / "run.npz")
    with pytest.raises(ValueError, match=r"^checkpoint: found .* a folder, expected a file"):
        fit(module, data, batch_size=3, n_steps=2, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"^checkpoint: found .* \(File name too long\), expected a path to write"):
        fit(module, data, batch_size=3, n_steps=2, checkpoint=tmp_path / ("x" * 256))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name")
@pytest.mark.parametrize("module", TRAINED)
def test_a_checkpoint_that_is_a_pipe_is_refused_before_it_is_opened(module, data, tmp_path):
    os.mkfifo(tmp_path / "run.npz")
    with pytest.raises(ValueError, match=r"^checkpoint: found .*, a pipe, socket or device, expected a file"):
        fit(module, data, batch_size=3, n_steps=2, checkpoint=tmp_path / "run.npz")


def test_a_file_of_sites_needs_a_folder(data, tmp_path):
    for path in (5, tmp_path / "absent" / "sites.dat"):
        with pytest.raises(ValueError, match=r"^site_file: found"):
            fit(ep, data, site_file=path)


@pytest.mark.parametrize("alpha", [True, [0.1], np.array([0.1]), "a", None, np.nan, -0.1, 1.1])
@pytest.mark.parametrize("module", [pep, apep])
def test_alpha_is_a_number_from_0_to_1(module, alpha, data):
    with pytest.raises(ValueError, match=r"^alpha: found"):
        fit(module, data, alpha=alpha)


def test_a_stream_is_as_before_after_a_batch_that_it_refuses(data):
    X, y = data
    hyper = class_hyper(1.0, np.ones(2), 0.1, 1e-6, 3, 2)
    Z = np.repeat(X[None, :4], 3, axis=0)
    streams = [TiedStream(InducingClasses(hyper, Z, False), learn=("variance",), rate=0.1) for _ in range(2)]
    for stream in streams:
        stream.step(X, y)
    with pytest.raises(ValueError, match=r"^n: found 5, expected at least 9, the rows of X"):
        streams[0].step(X, y, 5)
    streams[0].rate = np.inf
    with pytest.raises(ValueError, match=r"^rate: step diverged"):
        streams[0].step(X, y)
    streams[0].rate = 0.1
    for stream in streams:
        stream.step(X, y)
    np.testing.assert_array_equal(streams[0].run.q.precision, streams[1].run.q.precision)
    np.testing.assert_array_equal(streams[0].class_counts, streams[1].class_counts)
    assert streams[0].iterations == streams[1].iterations == 2
