"""x-gpc end to end: blocks, memory maps, stress, bad input."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fast.core.errors import NotPositiveDefiniteError
from fast.core.values import Data, Prior
from fast.methods import x_gpc
from values_given import binary, model_values


def largest(left, right):
    """Difference relative to the largest entry."""
    return np.abs(np.asarray(left) - np.asarray(right)).max() / max(np.abs(right).max(), 1e-300)


@pytest.mark.parametrize("budget", [0, 2**30])
@pytest.mark.parametrize("block_size", [1, 64, 100, 10_000])
def test_a_sweep_does_not_depend_on_blocks_or_on_the_cache(budget, block_size):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(333, 3))
    y = (X[:, 0] > 0).astype(int)
    arguments = (X, y, 3.0, np.array([1.0, 1.5, 2.0]), 0.1, 1e-6, X[:40])
    c = 0.1 + 5.0 * rng.random(333)
    whole = x_gpc.sweep(x_gpc.prepare(*binary(x_gpc.XGPCOptions, *arguments)), c)
    parts = x_gpc.sweep(
        x_gpc.prepare(*binary(x_gpc.XGPCOptions, *arguments, block_size=block_size, memory_budget=budget)), c
    )
    # sums of 333 terms in another order, B conditioned below 1e2
    assert largest(parts.c, whole.c) < 1e-12
    assert largest(parts.evaluation.latent_mean, whole.evaluation.latent_mean) < 1e-12
    assert largest(parts.evaluation.latent_var, whole.evaluation.latent_var) < 1e-12
    np.testing.assert_allclose(parts.evaluation.elbo, whole.evaluation.elbo, rtol=1e-12, atol=0)


def test_a_memory_map_is_read_in_blocks_and_stays_one(tmp_path):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(500, 2)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    X.tofile(tmp_path / "X.bin")
    mapped = np.memmap(tmp_path / "X.bin", dtype=np.float32, mode="r", shape=(500, 2))
    rest = (y, 3.0, np.array([1.0, 1.5]), 0.1, 1e-6, X[:20])
    got, expected = (
        x_gpc.fit(*binary(x_gpc.XGPCOptions, mapped, *rest, block_size=64, memory_budget=0)),
        x_gpc.fit(*binary(x_gpc.XGPCOptions, X, *rest)),
    )
    assert isinstance(got.prior.X, np.memmap)
    # the tolerance of either fit, with its factor of three
    np.testing.assert_allclose(got.c, expected.c, rtol=6e-10, atol=0)


def test_permuting_the_data_permutes_the_answer(make_problem):
    p = make_problem(n=30)
    order = np.random.default_rng(0).permutation(30)
    one = x_gpc.fit(*model_values(p))
    other = x_gpc.fit(*binary(x_gpc.XGPCOptions, **{**vars(p), "X": p.X[order], "y": p.y[order]}))
    np.testing.assert_allclose(other.c, one.c[order], rtol=6e-10, atol=0)  # the tolerance of either fit
    np.testing.assert_allclose(other.elbo, one.elbo, rtol=1e-12, atol=0)  # stationary in c


def test_swapping_the_classes_flips_the_means(make_problem):
    p = make_problem(n=30)
    one, other = x_gpc.fit(*model_values(p)), x_gpc.fit(*binary(x_gpc.XGPCOptions, **{**vars(p), "y": 1 - p.y}))
    np.testing.assert_array_equal(other.latent_mean, -one.latent_mean)
    assert other.elbo == one.elbo


STRESS = {
    "one point": {"n": 1, "m": 1},
    "more inducing points than data": {"n": 4, "m": 9},
    "as many inducing points as data": {"n": 9, "m": 9},
    "many inputs": {"n": 10, "m": 4, "d": 40},
}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("log_variance", [4.0, 8.0])
@pytest.mark.parametrize("case", STRESS)
def test_odd_shapes_and_large_variances_converge_to_something_finite(make_problem, case, log_variance, full):
    p = make_problem(**STRESS[case], variance=np.exp(log_variance), jitter=1e-6 * np.exp(log_variance), full=full)
    finite_and_consistent(p)


def finite_and_consistent(p):
    posterior = x_gpc.fit(*model_values(p))
    assert posterior.converged
    moment = posterior.latent_var + posterior.latent_mean**2
    # (11) holds to the tolerance of the fit
    np.testing.assert_allclose(posterior.c**2, moment, rtol=1e-9, atol=0)
    assert (posterior.latent_var >= 0).all()
    assert np.isfinite(posterior.elbo)
    assert posterior.elbo <= 0.0
    prediction = x_gpc.predict(posterior, p.X)
    assert np.isfinite(prediction.probabilities).all()
    assert (prediction.latent_var >= 0).all()
    gradients = x_gpc.gradients(posterior)
    assert np.isfinite(gradients.variance)
    assert np.isfinite(gradients.lengthscales).all()
    assert np.isfinite(posterior.inducing_cov).all()


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("length", [1e-8, 1e8])
@pytest.mark.parametrize("change", ["none", "duplicates", "constant feature"])
def test_extreme_lengthscales_duplicates_and_constant_features_converge(make_problem, full, length, change):
    p = make_problem(n=20, variance=np.exp(4.0), jitter=1e-4, full=full)
    p.lengthscales = np.full(2, length)
    if change == "duplicates":
        p.X[1::2] = p.X[::2]
    if change == "constant feature":
        p.X[:, 1] = 3.0
    finite_and_consistent(p)


@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 12),
    st.one_of(st.none(), st.integers(1, 15)),
    st.integers(1, 4),
    st.floats(-6.0, 8.0),
    st.floats(-3.0, 3.0),
    st.floats(0.0, 2.0),
    st.integers(0, 2**32 - 1),
)
def test_any_shape_and_scale_converges(n, m, d, log_variance, log_length, noise, seed):
    from types import SimpleNamespace

    rng = np.random.default_rng(seed)
    variance = np.exp(log_variance)
    finite_and_consistent(
        SimpleNamespace(
            X=rng.normal(size=(n, d)),
            y=rng.integers(0, 2, size=n),
            variance=variance,
            lengthscales=np.exp(log_length) * (0.5 + rng.random(d)),
            noise=noise,
            jitter=1e-6 * variance,
            Z=None if m is None else rng.normal(size=(m, d)),
        )
    )


def test_equal_inducing_points_without_jitter_are_named():
    X = np.array([[0.0], [1.0], [1.0]])
    with pytest.raises(
        NotPositiveDefiniteError, match=r"K_ZZ \(3, 3\): found smallest eigenvalue .* raise jitter or remove"
    ):
        x_gpc.fit(Data(X, np.array([0, 1, 1])), Prior(0.3, np.ones(1), 0.0, 0.0, Z=X))


GOOD = {
    "X": np.array([[0.0], [1.0]]),
    "y": np.array([0, 1]),
    "variance": 1.0,
    "lengthscales": np.ones(1),
    "noise": 0.0,
    "jitter": 1e-6,
    "Z": np.array([[0.5]]),
}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"X": np.array([[0.0], [np.nan]])}, "X: found a value that is not finite in row 1"),
        ({"X": np.array([[np.inf], [0.0]])}, "X: found a value that is not finite in row 0"),
        ({"X": np.zeros(2)}, r"X: found 1 axes \(shape \(2,\)\), expected 2"),
        ({"X": np.empty((0, 1)), "y": np.empty(0, int)}, r"X: found shape \(0, 1\), expected at least one row"),
        ({"X": np.empty((2, 0)), "lengthscales": np.ones(0)}, "X: found shape"),
        ({"X": np.array([["a"], ["b"]])}, "X: found dtype <U1, expected real numbers"),
        ({"X": np.array([[1j], [0j]])}, "X: found dtype complex128"),
        ({"X": np.array([[None], [1.0]], dtype=object)}, "X: found dtype object"),
        ({"y": np.array([0, 2])}, r"y: found labels \[0, 2\], expected only 0 and 1"),
        ({"y": np.array([-1, 1])}, r"y: found labels \[-1, 1\]"),
        ({"y": np.array([0.0, 1.0])}, "y: found dtype float64, expected integers"),
        ({"y": np.array([0, 1, 1])}, r"y: found shape \(3,\), expected \(2,\)"),
        ({"variance": 0.0}, "variance: found 0.0, expected a finite number > 0"),
        ({"variance": np.nan}, "variance: found nan"),
        ({"variance": 1e30}, r"variance: found 1e\+30, expected at most 1e\+12"),
        ({"variance": "big"}, "variance: found 'big'"),
        ({"variance": np.ones(2)}, "variance: found"),
        ({"lengthscales": np.ones(2)}, r"lengthscales: found shape \(2,\), expected \(1,\)"),
        ({"lengthscales": np.array([-1.0])}, "lengthscales: found"),
        ({"lengthscales": 1.0}, "lengthscales: found 0 axes"),
        ({"noise": -1e-3}, "noise: found -0.001, expected a finite number >= 0"),
        ({"jitter": np.inf}, "jitter: found inf"),
        ({"Z": np.array([[np.nan]])}, "Z: found a value that is not finite"),
        ({"Z": np.zeros((1, 2))}, "Z: found 2 columns, expected 1"),
        ({"Z": np.empty((0, 1))}, "Z: found shape"),
        ({"block_size": 0}, "block_size: found 0, expected an integer >= 1"),
        ({"block_size": 2.5}, "block_size: found 2.5"),
        ({"max_iterations": True}, "max_iterations: found True"),
        ({"tolerance": 0.0}, "tolerance: found 0.0"),
        ({"memory_budget": -1}, "memory_budget: found"),
        ({"initial_c": np.array([1.0, 0.0])}, "initial_c: found a value that is not finite or not positive"),
        ({"initial_c": np.ones(3)}, r"initial_c: found shape \(3,\), expected \(2,\)"),
    ],
)
def test_bad_input_is_named_with_what_was_found_and_expected(change, text):
    with pytest.raises(ValueError, match=text):
        x_gpc.fit(*binary(x_gpc.XGPCOptions, **{**GOOD, **change}))


def test_a_bad_row_deep_inside_a_memory_map_is_found_before_any_sweep(tmp_path):
    X = np.zeros((100, 1))
    X[77] = np.nan
    X.tofile(tmp_path / "X.bin")
    mapped = np.memmap(tmp_path / "X.bin", dtype=np.float64, mode="r", shape=(100, 1))
    with pytest.raises(ValueError, match="X: found a value that is not finite in row 77"):
        x_gpc.prepare(Data(mapped, np.zeros(100, int)), Prior(1.0, np.ones(1), 0.0, 1e-6, Z=np.zeros((1, 1))))


def test_the_arguments_are_left_alone(make_problem):
    p = make_problem()
    before = {key: np.array(value, copy=True) for key, value in vars(p).items()}
    posterior = x_gpc.fit(*model_values(p))
    x_gpc.predict(posterior, p.X)
    x_gpc.gradients(posterior)
    for key, value in vars(p).items():
        np.testing.assert_array_equal(value, before[key])


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("m", [1, 5])
def test_asking_for_the_moments_of_the_inducing_values_changes_nothing(make_problem, m, full):
    p = make_problem(n=1 if full and m == 1 else 8, m=m, full=full)
    asked, fresh = x_gpc.fit(*model_values(p)), x_gpc.fit(*model_values(p))
    first = asked.inducing_mean, asked.inducing_cov
    # the solves are in place, and a (1, 1) factor has the same memory in either order
    np.testing.assert_array_equal(asked.inducing_cov, first[1])
    np.testing.assert_array_equal(asked.inducing_mean, first[0])
    for left, right in zip(x_gpc.gradients(asked), x_gpc.gradients(fresh), strict=True):
        np.testing.assert_array_equal(left, right) if right is not None else None
    for left, right in zip(x_gpc.predict(asked, p.X + 0.5), x_gpc.predict(fresh, p.X + 0.5), strict=True):
        np.testing.assert_array_equal(left, right)


def test_importing_the_method_loads_no_scikit_learn():
    code = "import sys, fast, fast.methods.x_gpc; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
