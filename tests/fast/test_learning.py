"""Learning the prior: gradients of batch estimates, batch searches, default lengthscales, kernels by products."""

import numpy as np
import pytest

from fast.core.values import Data, Prior
from fast.kernel.defaults import default_lengthscales
from fast.kernel.kernels import PreparedKernel, se_ard, se_ard_vjp
from fast.methods import x_gpc
from fast.solve.adam import Packing
from values_given import binary


def largest(left, right):
    return np.abs(np.asarray(left) - np.asarray(right)).max() / max(np.abs(right).max(), 1e-300)


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_a_kernel_by_a_product_is_the_kernel_within_its_stated_error(rng, offset):
    Z, X = offset + rng.normal(size=(30, 3)), offset + rng.normal(size=(50, 3))
    lengths = np.array([0.5, 1.0, 3.0])
    kernel = PreparedKernel(Z, 1.7, lengths)
    exact = se_ard(X, Z, 1.7, lengths)
    got = kernel.cross_by_product(X)
    # stated: 4 eps 256 d within 16 lengthscales; units far from the origin lose offset / lengthscale of eps times 16
    np.testing.assert_allclose(got, exact, rtol=7e-13 + 4e-15 * offset, atol=0)
    assert (got != exact).any()
    weighted = rng.normal(size=exact.shape) * exact
    for left, right in zip(kernel.vjp(weighted, X), se_ard_vjp(weighted, X, Z, 1.7, lengths), strict=True):
        # sums of 50 terms of size 10, of which the result keeps a tenth at least
        assert largest(left, right) < 1e-11 + 1e-14 * offset


@pytest.mark.parametrize("far", ["batch", "inducing points"])
def test_a_kernel_far_out_takes_differences(rng, far):
    Z, X = rng.normal(size=(5, 2)), rng.normal(size=(6, 2))
    if far == "batch":
        X[0] += 40.0
    else:
        Z[0] += 40.0
    kernel = PreparedKernel(Z, 1.0, np.ones(2))
    np.testing.assert_array_equal(kernel.cross_by_product(X), kernel.cross(X))
    weighted = rng.normal(size=(6, 5))
    for left, right in zip(kernel.vjp(weighted, X), se_ard_vjp(weighted, X, Z, 1.0, np.ones(2)), strict=True):
        np.testing.assert_array_equal(left, right)


def separated(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * np.array([1.0, 10.0, 1.0])
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-4.0 * np.sin(2.0 * X[:, 0])))).astype(int)
    return X, y


@pytest.mark.parametrize("full", [False, True])
def test_a_batch_search_ends_where_the_gradients_vanish_and_beats_its_start(full):
    X, y = separated(60 if full else 300)
    Z = None if full else X[:15]
    start = (1.0, np.array([1.0, 10.0, 1.0]), 0.1, 1e-4, Z)
    first = x_gpc.fit(Data(X, y), Prior(*start))
    learn = ("variance", "lengthscales", "noise")
    best, posterior = x_gpc.fit_learning(Data(X, y), Prior(*start), x_gpc.XGPCLearning(learn=learn))
    assert best.elbo > first.elbo + 1.0
    # the search stopped by itself, by its gradient or by a change below 1e-13
    assert posterior.converged
    derivative = Packing(learn, posterior.hyper, posterior.Z).gradient(x_gpc.gradients(best), posterior.hyper)
    # a bound of some hundred nats is flat to 1e-13 of its size where the derivative is below 1e-3
    assert np.abs(derivative).max() < 1e-3
    # the input that matters has the shortest lengthscale in units of its spread
    relative = posterior.hyper.lengthscales / np.array([1.0, 10.0, 1.0])
    assert np.argmin(relative) == 0


def test_restarts_never_end_below_the_first_search_and_one_seed_repeats():
    X, y = separated(80)
    start = (1.0, np.array([30.0, 1.0, 30.0]), 0.1, 1e-4, X[:8])
    options = {"learn": ("variance", "lengthscales"), "learning_iterations": 25}
    alone, _ = x_gpc.fit_learning(*binary(x_gpc.XGPCLearning, X, y, *start, **options))
    best, _ = x_gpc.fit_learning(*binary(x_gpc.XGPCLearning, X, y, *start, **options, restarts=3, seed=5))
    again, _ = x_gpc.fit_learning(*binary(x_gpc.XGPCLearning, X, y, *start, **options, restarts=3, seed=5))
    assert best.elbo >= alone.elbo
    assert best.elbo == again.elbo


def test_moving_inducing_points_raises_the_bound_further():
    X, y = separated(200)
    start = (2.0, np.array([1.0, 30.0, 30.0]), 0.05, 1e-4, X[:6])
    held, _ = x_gpc.fit_learning(
        Data(X, y), Prior(*start), x_gpc.XGPCLearning(learn=("variance",), learning_iterations=40)
    )
    free, posterior = x_gpc.fit_learning(
        Data(X, y), Prior(*start), x_gpc.XGPCLearning(learn=("variance", "Z"), learning_iterations=40)
    )
    assert free.elbo > held.elbo + 1.0
    assert posterior.Z.shape == (6, 3)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"learn": ()}, "learn: found no name"),
        ({"learn": ("Z",)}, "learn: found 'Z', expected inducing points"),
        ({"learn": ("variance", "variance")}, "learn: found .*, expected different names"),
        ({"learn": ("variance",), "restarts": -1}, "restarts: found -1"),
        ({"learn": ("variance",), "learning_iterations": 0}, "learning_iterations: found 0"),
    ],
)
def test_bad_settings_of_a_search_are_named(change, text):
    X, y = separated(20)
    with pytest.raises(ValueError, match=text):
        x_gpc.fit_learning(*binary(x_gpc.XGPCLearning, X, y, 1.0, np.ones(3), 0.1, 1e-4, **change))


def test_a_packing_gives_back_what_it_was_given(rng):
    from fast.core.inputs import hyper

    start, Z = hyper(2.0, np.array([0.5, 3.0]), 0.1, 1e-6, 2), rng.normal(size=(4, 2))
    packing = Packing(("Z", "noise", "variance", "lengthscales"), start, Z)
    again, moved = packing.parameters(packing.vector(start, Z), start, Z)
    np.testing.assert_array_equal(moved, Z)
    assert again.smoothness is None
    for left, right in zip(again[:4], start[:4], strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-15, atol=0)
    with pytest.raises(ValueError, match=r"noise: found a logarithm of -1e\+03"):
        packing.parameters(np.where(np.arange(packing.size) == 3, -1e3, packing.vector(start, Z)), start, Z)


@pytest.mark.parametrize("n", [2, 500, 30_000])
def test_default_lengthscales_make_typical_points_correlate_moderately(n):
    rng = np.random.default_rng(3)
    scales = np.array([1.0, 1e4, 1e-3, 1.0])
    X = rng.normal(size=(n, 4)) * scales + 100.0 * scales
    X[:, 3] = 7.0  # constant
    got = default_lengthscales(X, np.random.default_rng(0))
    k = se_ard(X[: n // 2][:200], X[n // 2 :][:200], 1.0, got)
    # half the pairs are nearer than the median, where the kernel is exp(-1/2); 500 rows resolve the median to 5 %
    assert abs(np.median(k) - np.exp(-0.5)) < (0.05 if n > 2 else 1e-9)
    np.testing.assert_allclose(
        default_lengthscales(X * 8.0, np.random.default_rng(0))[:3], 8.0 * got[:3], rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("X", [np.zeros((5, 2)), np.ones((1, 3)), np.full((4, 1), 1e300)])
def test_default_lengthscales_of_data_without_spread_are_positive_and_finite(X):
    got = default_lengthscales(X, np.random.default_rng(0))
    assert np.isfinite(got).all()
    assert (got > 0).all()


def test_a_search_that_stops_on_a_gradient_is_not_called_converged():
    from fast.core.inputs import hyper
    from fast.core.results import Gradients
    from fast.one_latent.learning import maximise

    start = hyper(2.0, np.array([0.5, 3.0]), 0.1, 1e-6, 2)

    def evaluate(turned):
        def objective(at, Z):
            # -(log variance - 1)²: a maximum at e; turned gives a derivative that leads away from it
            away = np.log(at.variance) - 1.0
            derivative = (2.0 if turned else -2.0) * away / at.variance
            return -(away**2), Gradients(derivative, np.zeros(2), 0.0, None)

        return objective

    packing = Packing(("variance",), start, None)
    right = maximise(evaluate(False), packing, max_iterations=50, tolerance=1e-6)
    assert right.converged
    assert right.hyper.variance == pytest.approx(np.e, rel=1e-5, abs=0)  # gradients below 1e-6
    wrong = maximise(evaluate(True), packing, max_iterations=50, tolerance=1e-6)
    assert not wrong.converged


@pytest.mark.parametrize("start", [0.0, 2.0])
def test_a_search_does_not_leap_over_a_maximum_to_a_plateau(start):
    from fast.core.inputs import hyper
    from fast.core.results import Gradients
    from fast.one_latent.learning import maximise

    def evaluate(at, Z):
        # a hill of height 100 at log variance 1, and beyond 6 a plain of height 70, higher than the start's 61
        x = np.log(at.variance)
        hill, plain = 100.0 * np.exp(-0.5 * (x - 1.0) ** 2), 35.0 * (1.0 + np.tanh(2.0 * (x - 6.0)))
        derivative = (1.0 - x) * hill + 70.0 / np.cosh(2.0 * (x - 6.0)) ** 2
        return hill + plain, Gradients(derivative / at.variance, np.zeros(1), 0.0, None)

    packing = Packing(("variance",), hyper(np.exp(start), np.ones(1), 0.0, 1e-6, 1), None)
    optimum = maximise(evaluate, packing, max_iterations=100, tolerance=1e-6)
    assert optimum.converged
    assert optimum.hyper.variance == pytest.approx(
        np.e, rel=1e-4, abs=0
    )  # the plain's derivative at 1 is 6e-7 of the hill's


def test_the_gradient_through_both_kernels_is_that_through_each(rng):
    Z, blocks = rng.normal(size=(7, 3)), [rng.normal(size=(n, 3)) for n in (4, 9)]
    lengths = np.array([0.5, 1.0, 3.0])
    kernel = PreparedKernel(Z, 1.7, lengths)
    among = rng.normal(size=(7, 7))
    among = (among + among.T) * se_ard(Z, Z, 1.7, lengths)
    weighted = [rng.normal(size=(len(X), 7)) for X in blocks]
    sums = kernel.sums(weighted[0], blocks[0])
    sums.add(kernel.sums(weighted[1], blocks[1]))
    got = kernel.vjp_of_sums(sums, among)
    parts = [se_ard_vjp(P, X, Z, 1.7, lengths) for P, X in zip(weighted, blocks, strict=True)]
    own = se_ard_vjp(among, Z, Z, 1.7, lengths)
    assert got.variance == pytest.approx(sum(part.variance for part in parts) + own.variance, rel=1e-12)
    # sums of some dozen terms of size 10
    assert largest(got.lengthscales, sum(part.lengthscales for part in parts) + own.lengthscales) < 1e-12
    assert largest(got.X2, sum(part.X2 for part in parts) + 2.0 * own.X2) < 1e-12


def test_a_block_too_far_out_for_products_has_no_sums(rng):
    kernel = PreparedKernel(rng.normal(size=(5, 2)), 1.0, np.ones(2))
    assert kernel.sums(np.ones((1, 5)), np.full((1, 2), 40.0)) is None
