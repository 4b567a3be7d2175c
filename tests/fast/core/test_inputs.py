"""What enters from outside is looked at without being loaded."""

from __future__ import annotations

import numpy as np
import pytest

from fast.core import inputs
from fast.estimators import XGPClassifier

LONG = np.dtype(np.longdouble)
beyond_float64 = pytest.mark.skipif(LONG.itemsize == 8, reason="long double is float64 on this machine")


@beyond_float64
def test_long_doubles_become_float64():
    assert inputs.real_numbers("X", np.ones((2, 1), LONG)).dtype == np.float64


@beyond_float64
@pytest.mark.parametrize("look", [lambda X: inputs.real_numbers("X", X), lambda X: inputs.inputs("X", X)])
def test_a_memmap_of_long_doubles_stays_on_disk(tmp_path, look):
    stored = np.memmap(tmp_path / "X", LONG, "w+", shape=(5, 2))
    stored[:] = 1.0
    result = look(stored)
    assert isinstance(result, np.memmap)
    assert np.shares_memory(result, stored)


@beyond_float64
def test_a_long_double_beyond_float64_is_refused_in_a_memmap_too(tmp_path):
    stored = np.memmap(tmp_path / "X", LONG, "w+", shape=(5, 2))
    stored[3] = np.longdouble("1e400")
    with pytest.raises(ValueError, match=r"X: found a value that is not finite in row 3"):
        inputs.inputs("X", stored)


@beyond_float64
@pytest.mark.parametrize(
    ("name", "actual"), [("inducing_points", "Z: found a value that is not finite"), ("lengthscales", "found .*inf")]
)
def test_an_argument_beyond_float64_is_refused_by_name_alone(name, actual):
    X = np.linspace(-1.0, 1.0, 6)[:, None]
    huge = np.full((2, 1) if name == "inducing_points" else (1,), np.longdouble("1e400"))
    with pytest.raises(ValueError, match=actual):  # no warning of overflow, which would be an error here
        XGPClassifier(**{name: huge}).fit(X, np.array([0, 1, 0, 1, 0, 1]))
