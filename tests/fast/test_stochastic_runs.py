"""Runs of x-gpc-svi as a whole: continuation, memory maps, stopping, divergence, bad input."""

import numpy as np
import pytest

from fast.core.values import Data, Prior
from fast.methods import x_gpc_svi
from fast.one_latent.stochastic import Kernel, Run, Settings, State
from fast.solve.adam import AdamState, Packing
from fast.solve.minibatch import Listed
from fast.solve.natural import Moments, RateMemory
from fast.solve.stopping import Falling, converged_holdout, converged_parameters, parameter_change
from values_given import binary


def smooth_data(n=600, d=2, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))).astype(int)
    return X, y


def start(X, m=8):
    return (2.0, np.ones(X.shape[1]), 0.1, 1e-4, X[:m])


def same(one, other):
    """Equal to the last bit."""
    np.testing.assert_array_equal(one.inducing_mean, other.inducing_mean)
    np.testing.assert_array_equal(one.inducing_cov, other.inducing_cov)
    np.testing.assert_array_equal(one.rates, other.rates)
    np.testing.assert_array_equal(one.trace, other.trace)
    assert one.hyper.variance == other.hyper.variance
    np.testing.assert_array_equal(one.hyper.lengthscales, other.hyper.lengthscales)
    np.testing.assert_array_equal(one.Z, other.Z)
    assert (one.converged, one.reason, one.iterations) == (other.converged, other.reason, other.iterations)


class InterruptedRunError(Exception):
    """Stands for a kill."""


OPTIONS = {
    "plain": {},
    "learning": {"learn": ("variance", "lengthscales", "noise", "Z"), "trace": True},
    "fixed rate": {"rate": 0.1},
    "stopping": {"check_every": 7, "stop": 3e-3, "n_steps": 2000},
    "listed": {"batches": [np.arange(k, k + 20) for k in range(0, 400, 4)], "learn": ("variance",), "stop": 1e-9},
}


@pytest.mark.parametrize("killed_at", [1, 37, 60])
@pytest.mark.parametrize("case", OPTIONS)
def test_a_killed_run_continues_with_identical_results(tmp_path, case, killed_at):
    X, y = smooth_data()
    options = {"n_steps": 90, "batch_size": 40, "block_size": 16, "pool_size": 128, **OPTIONS[case]}
    whole = x_gpc_svi.fit(*binary(x_gpc_svi.XGPCSteps, X, y, *start(X), **options))
    path = tmp_path / "run.npz"

    def kill(progress):
        if progress.iteration == killed_at:
            raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        x_gpc_svi.fit(
            *binary(
                x_gpc_svi.XGPCSteps, X, y, *start(X), **options, checkpoint=path, checkpoint_every=10, callback=kill
            )
        )
    resumed = []
    again = x_gpc_svi.fit(
        *binary(
            x_gpc_svi.XGPCSteps,
            X,
            y,
            *start(X),
            **options,
            checkpoint=path,
            checkpoint_every=10,
            callback=lambda progress: resumed.append(progress.iteration),
        )
    )
    same(again, whole)
    assert resumed[0] == killed_at // 10 * 10 + 1
    if case == "stopping":
        assert whole.converged


def test_a_run_that_has_begun_continues_another_one_alone():
    X, y = smooth_data(60)
    hyper = x_gpc_svi.inputs.hyper(2.0, np.ones(2), 0.1, 1e-4, 2)
    settings = Settings(8, rate=0.3, stop=1e-9, window=1, check_every=4)

    def begun():
        kernel, source = Kernel(hyper, X[:5]), Listed(X, y, [np.arange(k, k + 9) for k in range(8)])
        nothing = Packing((), hyper, kernel.Z, None)
        state, memory, adam = State.prior(kernel), RateMemory.empty(5), AdamState.start(0)
        run = Run(state, source, x_gpc_svi.PolyaGamma(), settings, memory, nothing, adam, Falling(60))
        run.start()
        return run

    def go_on(run, count):
        for _ in range(count):
            run.measure(run.step(run.source.draw()))

    one, other = begun(), begun()
    go_on(one, 2)  # nothing is measured in the second step of four, the start of other was
    other.restore(one.arrays())
    for count in (0, 1, 0, 0):  # changes that are known after each step
        go_on(one, 1)
        go_on(other, 1)
        assert list(other.changes) == list(one.changes)
        assert len(one.changes) >= count


def test_memory_maps_and_blocks_give_the_results_of_arrays(tmp_path):
    X, y = smooth_data()
    X.tofile(tmp_path / "X.bin")
    mapped = np.memmap(tmp_path / "X.bin", dtype=np.float64, mode="r", shape=X.shape)
    options = {"n_steps": 60, "batch_size": 32, "block_size": 50, "pool_size": 200, "trace": True}
    whole = x_gpc_svi.fit(*binary(x_gpc_svi.XGPCSteps, X, y, *start(X), **options))
    same(x_gpc_svi.fit(*binary(x_gpc_svi.XGPCSteps, mapped, y, *start(X), **options)), whole)
    blocks = [(X[k : k + 50], y[k : k + 50]) for k in range(0, 600, 50)]
    same(x_gpc_svi.fit(*binary(x_gpc_svi.XGPCSteps, blocks, None, *start(X), **options)), whole)


def test_a_falling_change_of_the_parameters_ends_the_run_and_is_the_reason():
    X, y = smooth_data()
    changes = []
    got = x_gpc_svi.fit(
        Data(X, y),
        Prior(*start(X)),
        x_gpc_svi.XGPCSteps(
            batches=[np.arange(600)] * 60,
            rate=1.0,
            stop=1e-3,
            callback=lambda progress: changes.append(progress.change),
        ),
    )
    assert got.converged
    assert np.mean(changes[-5:]) < 1e-3 <= np.mean(changes[-6:-1])
    assert got.iterations < 60
    never = x_gpc_svi.fit(Data(X, y), Prior(*start(X)), x_gpc_svi.XGPCSteps(batches=[np.arange(600)] * 60, rate=1.0))
    assert never.iterations == 60
    assert not never.converged


def test_holdout_scores_end_the_run_when_they_stand_still():
    X, y = smooth_data(1200)
    got = x_gpc_svi.fit(
        Data(X[:600], y[:600]),
        Prior(*start(X)),
        x_gpc_svi.XGPCSteps(holdout=(X[600:], y[600:]), holdout_every=20, n_steps=4000),
    )
    assert got.converged
    scores = got.holdout_scores
    assert abs(scores[-5:].mean() - scores[-10:-5].mean()) < 1e-3
    probabilities = x_gpc_svi.predict(got, X[600:]).probabilities
    # the last score is that of the state returned
    expected = -np.log(probabilities[np.arange(600), y[600:]]).mean()
    np.testing.assert_allclose(scores[-1], expected, rtol=1e-12, atol=0)


@pytest.mark.verifies("wenzel2019", "u5.2-stop-params", route="definition on given changes")
def test_the_mean_change_of_the_window_decides():
    assert not converged_parameters([1e-9] * 4, 5, 1e-4)
    assert converged_parameters([1.0, 1.0] + [0.9e-4] * 5, 5, 1e-4)
    assert not converged_parameters([0.9e-4] * 4 + [1e-3], 5, 1e-4)
    assert converged_parameters([4.9e-4, 0.0, 0.0, 0.0, 0.0], 5, 1e-4)


@pytest.mark.verifies("wenzel2019", "u5.2-stop-holdout", route="definition on given scores")
def test_two_windows_of_scores_decide():
    assert not converged_holdout([0.5] * 9)
    assert converged_holdout([9.0] + [0.5] * 10)
    assert converged_holdout([0.5] * 5 + [0.5009] * 5)
    assert not converged_holdout([0.5] * 5 + [0.5011] * 5)
    assert not converged_holdout([0.5] * 5 + [0.4989] * 5)


def test_the_change_is_relative_for_large_entries_only():
    before = Moments(np.array([0.0, 4.0]), np.eye(2))
    np.testing.assert_allclose(
        parameter_change(before, Moments(np.array([0.1, 4.0]), np.eye(2))), 0.1 / 4.0, rtol=1e-15, atol=0
    )
    np.testing.assert_allclose(
        parameter_change(before, Moments(np.array([0.0, 4.0]), 0.5 * np.eye(2))), 0.5, rtol=1e-15, atol=0
    )


def test_only_a_long_and_deep_fall_counts_as_divergence():
    n = 100
    rng = np.random.default_rng(0)
    noise = Falling(n)
    assert not any(noise.add(-60.0 + 30.0 * rng.normal()) for _ in range(5000))
    falling = Falling(n)
    # six falls are seven means of 20, of which the last is 60 under the first
    assert [falling.add(-60.0 - 0.5 * t) for t in range(400)].index(True) == 7 * 20 - 1
    shallow = Falling(n)
    assert not any(shallow.add(-60.0 - 0.01 * t) for t in range(2000))


@pytest.mark.parametrize("learning_rate", [3.0, 100.0, 1e6])
@pytest.mark.parametrize("learn", [("variance", "lengthscales", "noise"), ("Z",), ("noise",), ("lengthscales",)])
def test_a_rate_that_diverges_is_reported_and_what_is_returned_is_finite(learn, learning_rate):
    X, y = smooth_data()
    got = x_gpc_svi.fit(
        Data(X, y),
        Prior(*start(X)),
        x_gpc_svi.XGPCSteps(learn=learn, learning_rate=learning_rate, n_steps=400, batch_size=20),
    )
    assert got.diverged or np.isfinite(x_gpc_svi.bound(got, X, y))
    if learning_rate == 1e6 and learn != ("Z",):
        assert got.diverged
    if got.diverged:
        assert not got.converged
        assert "step" in got.reason
    assert np.isfinite(got.inducing_mean).all()
    assert np.isfinite(got.inducing_cov).all()
    assert np.isfinite(x_gpc_svi.predict(got, X).probabilities).all()


def test_learning_raises_the_bound():
    X, y = smooth_data(2000)
    arguments = (0.3, np.full(2, 5.0), 0.5, 1e-4, X[:15])
    held = x_gpc_svi.fit(Data(X, y), Prior(*arguments), x_gpc_svi.XGPCSteps(n_steps=600))
    got = x_gpc_svi.fit(
        Data(X, y), Prior(*arguments), x_gpc_svi.XGPCSteps(n_steps=600, learn=("variance", "lengthscales", "noise"))
    )
    assert not got.diverged
    assert x_gpc_svi.bound(got, X, y) > x_gpc_svi.bound(held, X, y) + 20.0


def test_more_inducing_points_than_data_and_batches_of_one_class_are_allowed():
    X, y = smooth_data(10)
    Z = np.random.default_rng(0).normal(size=(25, 2))
    lone = [np.flatnonzero(y == 1), np.flatnonzero(y == 0)]
    got = x_gpc_svi.fit(Data(X, y), Prior(2.0, np.ones(2), 0.1, 1e-4, Z), x_gpc_svi.XGPCSteps(batches=lone))
    assert np.isfinite(x_gpc_svi.bound(got, X, y))


X4, Y4 = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"Z": None}, "Z: found None, expected inducing points"),
        ({"rate": 1.5}, r"rate: found 1.5, expected 'adaptive', a number in \[1e-8, 1\] or \('decay', rho_0"),
        ({"rate": 0.0}, "rate: found 0.0"),
        ({"rate": "fast"}, "rate: found 'fast', expected 'adaptive'"),
        ({"rate": ("decay", 1.0)}, r"rate: found \('decay', 1.0\), expected .* or \('decay', rho_0, tau, kappa\)"),
        ({"rate": ("decay", 5.0, 1.0, 0.5)}, "rate: found 3.54 in the first step, expected at most 1"),
        ({"learn": ("variance", "speed")}, "learn: found .*, expected different names of variance"),
        ({"learn": ("noise",), "noise": 0.0}, "noise: found 0.0, expected > 0 when it is learned"),
        ({"learning_rate": 0.0}, "learning_rate: found 0.0"),
        ({"n_steps": 0}, "n_steps: found 0"),
        ({"n_steps": 3, "batches": [np.arange(2)]}, "n_steps: found 3, expected at most 1"),
        ({"batches": [np.array([], int)]}, r"batches\[0\]: found an empty batch"),
        ({"init_batches": [np.array([9])]}, r"init_batches\[0\]: found index 9"),
        ({"window": 0}, "window: found 0"),
        ({"stop": -1.0}, "stop: found -1.0"),
        ({"checkpoint_every": 0}, "checkpoint_every: found 0"),
        ({"holdout": (X4[:, :1], Y4)}, "holdout: found 1 columns, expected 2"),
        ({"y": np.array(["a", "b", "a", "b"])}, "y: found dtype <U1"),
        ({"variance": -1.0}, "variance: found -1.0"),
        ({"X": [(X4, Y4)], "y": None, "batches": [np.arange(2)]}, "batches: found index arrays, expected None"),
    ],
)
def test_bad_settings_are_named(change, text):
    good = {
        "X": X4,
        "y": Y4,
        "variance": 1.0,
        "lengthscales": np.ones(2),
        "noise": 0.1,
        "jitter": 1e-6,
        "Z": X4[:2] + 0.5,
    }
    with pytest.raises(ValueError, match=text):
        x_gpc_svi.fit(*binary(x_gpc_svi.XGPCSteps, **{**good, **change}))


def test_bad_data_end_a_run_with_an_error_and_not_as_divergence():
    X, y = smooth_data()
    X[300] = np.inf
    with pytest.raises(ValueError, match="X: found a value that is not finite in row 300"):
        x_gpc_svi.fit(Data(X, y), Prior(*start(X)), x_gpc_svi.XGPCSteps(n_steps=50))
