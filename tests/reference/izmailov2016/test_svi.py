"""svi: unbiased steps, AdaDelta from its definition, searches over all parameters, the optimum by separate ascent."""

from fractions import Fraction

import numpy as np
import pytest

from reference.izmailov2016 import _prior
from reference.izmailov2016.bound import elbo
from reference.izmailov2016.fit import fit_svi_batches, fit_vi, gradients
from reference.izmailov2016.svi import (
    AdaDeltaMemory,
    Parameters,
    adadelta_step,
    as_vector,
    batch_bound,
    batch_gradient,
    covariance_from_cholesky,
    from_vector,
    svi_adadelta,
    svi_lbfgs,
    svi_step,
)

LEARN = ("variance", "lengthscales", "noise")


def everything(s, sparse=True):
    """Parameters of the model's q(u), and of one on the data for a full process."""
    if sparse:
        return Parameters(s.mu, s.L, s.hyper)
    return Parameters(s.f, np.eye(s.n) + 0.2 * np.tril(np.outer(s.f, s.f)), s.hyper._replace(Z=None))


@pytest.mark.verifies(
    "izmailov2016", "u5.1-cholesky", route="sums of products, entries above the diagonal without effect"
)
def test_the_covariance_is_the_factor_times_its_transpose(rng):
    L = rng.normal(size=(3, 3))
    wanted = [[sum(L[i, k] * L[j, k] for k in range(min(i, j) + 1)) for j in range(3)] for i in range(3)]
    np.testing.assert_allclose(covariance_from_cholesky(L), wanted, rtol=0, atol=1e-14)


def test_the_vector_of_parameters_goes_there_and_back(model):
    given = everything(model)
    back = from_vector(as_vector(given, LEARN), given, LEARN)
    np.testing.assert_array_equal(back.inducing_chol, given.inducing_chol)
    np.testing.assert_allclose(
        _prior.coordinates(back.hyper, LEARN), _prior.coordinates(given.hyper, LEARN), rtol=1e-14
    )


@pytest.mark.verifies("izmailov2016", "u3.2-svi", route="central differences of the mini-batch's estimate")
@pytest.mark.parametrize("sparse", [True, False])
def test_a_step_follows_the_derivative_of_the_batch_estimate(model, gradients_of, sparse):
    s = model
    given, batch = everything(s, sparse), np.array([4, 1, 1])
    new = svi_step(given, s.X, s.y, batch, LEARN, lambda gradient: 0.3 * gradient)
    derivative = gradients_of(
        lambda v: batch_bound(from_vector(v, given, LEARN), s.X, s.y, batch), as_vector(given, LEARN)
    )
    # step² times third derivatives of size 100
    moved = as_vector(new, LEARN) - as_vector(given, LEARN)
    np.testing.assert_allclose(moved, 0.3 * derivative, rtol=0, atol=1e-6)
    np.testing.assert_allclose(new.inducing_chol, np.tril(new.inducing_chol), rtol=0, atol=0)


@pytest.mark.parametrize("sparse", [True, False])
def test_batches_of_a_partition_average_to_the_whole(model, sparse):
    s = model
    given, parts = everything(s, sparse), np.arange(6).reshape(3, 2)
    whole = batch_gradient(given, s.X, s.y, np.arange(6), LEARN)
    mean = np.mean([batch_gradient(given, s.X, s.y, part, LEARN) for part in parts], axis=0)
    # sums of six terms
    np.testing.assert_allclose(mean, whole, rtol=0, atol=1e-11)
    wanted = elbo(
        given.inducing_mean, given.inducing_chol @ given.inducing_chol.T, s.y, *_prior.matrices(s.X, given.hyper)
    )
    assert np.mean([batch_bound(given, s.X, s.y, part) for part in parts]) == pytest.approx(wanted, rel=1e-12, abs=0)


@pytest.mark.verifies("izmailov2016", "u5.1-adadelta", route="weighted sums of squares in rational arithmetic")
def test_adadelta_is_its_definition(rng):
    gradients = rng.integers(-5, 6, size=(6, 2)) / 4.0
    memory = AdaDeltaMemory(np.zeros(2), np.zeros(2))
    steps = np.zeros((0, 2))
    for t, g in enumerate(gradients, start=1):
        ages = [Fraction(19, 20) ** (t - r) / 20 for r in range(1, t + 1)]
        squares = [
            float(sum(a * Fraction(x) ** 2 for a, x in zip(ages, column, strict=True))) for column in gradients[:t].T
        ]
        before = (
            np.array([float(a / Fraction(19, 20)) for a in ages])
            if t == 1
            else np.array([0.95 ** (t - 1 - r) / 20 for r in range(1, t)])
        )
        past = before[: t - 1] @ steps**2 if t > 1 else np.zeros(2)
        wanted = np.sqrt(past + 1e-6) / np.sqrt(np.array(squares) + 1e-6) * g
        got = adadelta_step(g, memory, 0.7)
        # six roundings a step
        np.testing.assert_allclose(got.step, 0.7 * wanted, rtol=1e-13, atol=0)
        np.testing.assert_allclose(got.memory.gradient, squares, rtol=1e-13, atol=0)
        steps = np.vstack([steps, wanted])
        memory = got.memory
    weights = np.array([0.95 ** (6 - r) / 20 for r in range(1, 7)])
    np.testing.assert_allclose(memory.step, weights @ steps**2, rtol=1e-12, atol=0)


@pytest.mark.verifies("izmailov2016", "u5.1-adadelta", route="its recursion written out on differences of the estimate")
def test_the_trajectory_is_adadelta_on_the_batch_estimates(model, gradients_of):
    s = model
    batches = [np.array([0, 3]), np.array([5, 1]), np.array([2, 2])]
    got = svi_adadelta(s.X, s.y, s.hyper, batches, rate=0.8, learn=("variance",), trace=True)
    start = Parameters(np.zeros(3), np.eye(3), s.hyper)
    where = as_vector(start, ("variance",))
    g2 = s2 = np.zeros(len(where))
    for t, batch in enumerate(batches):

        def estimate(v, batch=batch):
            return batch_bound(from_vector(v, start, ("variance",)), s.X, s.y, batch)

        g = gradients_of(estimate, where)
        g2 = 0.95 * g2 + 0.05 * g**2
        step = np.sqrt(s2 + 1e-6) / np.sqrt(g2 + 1e-6) * g
        s2 = 0.95 * s2 + 0.05 * step**2
        where = where + 0.8 * step
        # differences of size 1e-9 over gradients of size 0.1
        np.testing.assert_allclose(got.positions[t], where, rtol=0, atol=1e-6)
        assert got.trace[t] == pytest.approx(estimate(where), rel=1e-6, abs=0)
    np.testing.assert_allclose(as_vector(got.parameters, ("variance",)), where, rtol=0, atol=1e-6)


def test_adadelta_on_all_data_comes_near_the_optimum(model):
    s = model
    best = fit_vi("svi", s.X, s.y, s.hyper).elbo
    run = fit_svi_batches(s.X, s.y, s.hyper, batches=[np.arange(s.n)] * 400, rate=1.0)
    # AdaDelta starts with steps of 1e-3 and never lets them vanish
    assert best - 0.05 < run.elbo <= best + 1e-10


@pytest.mark.verifies("izmailov2016", "u5.1-lbfgs-elbo", route="natural gradients, and derivatives at the end")
def test_the_search_over_mean_and_factor_finds_the_optimum_of_natural_gradients(model):
    s = model
    got = svi_lbfgs(s.X, s.y, s.hyper, tolerance=1e-15)
    fit = fit_vi("svi", s.X, s.y, s.hyper)
    assert got.elbo == pytest.approx(fit.elbo, rel=1e-11, abs=0)
    # derivatives of 1e-5 over curvatures of size 1
    np.testing.assert_allclose(got.parameters.inducing_mean, fit.inducing_mean, rtol=0, atol=1e-4)
    L = got.parameters.inducing_chol
    np.testing.assert_allclose(L @ L.T, fit.inducing_cov, rtol=0, atol=1e-4)
    start = Parameters(np.zeros(len(s.mu)), np.eye(len(s.mu)), s.hyper)
    steepest = [np.max(np.abs(batch_gradient(at, s.X, s.y, np.arange(s.n), ()))) for at in (start, got.parameters)]
    # at the optimum the pulls cancel: what is left of the derivative is known to their rounding
    assert got.derivative == pytest.approx(steepest[1], rel=0, abs=1e-13 * steepest[0])
    assert got.derivative < 1e-5 * steepest[0]
    early = svi_lbfgs(s.X, s.y, s.hyper, max_iterations=2)
    derivative = np.max(np.abs(batch_gradient(early.parameters, s.X, s.y, np.arange(s.n), ())))
    assert derivative > 1e-2 * steepest[0]
    assert early.derivative == pytest.approx(derivative, rel=1e-10, abs=0)
    assert got.trace[-1] == got.elbo
    assert len(got.trace) == got.iterations


def test_learning_with_svi_ends_where_the_bound_is_flat(problem):
    p = problem
    X, y, hyper = p.X[::3], p.y[::3], p.hyper._replace(Z=p.hyper.Z[::2])
    fit = fit_vi("svi", X, y, hyper, learn=("lengthscales",), tolerance=1e-9)
    derivative = gradients("svi", fit, X, y)["lengthscales"] * fit.hyper.lengthscales
    # a relative change of 1e-9 in a value of 9 leaves derivatives of 1e-4
    np.testing.assert_allclose(derivative, 0.0, rtol=0, atol=1e-3)
    assert fit.elbo == pytest.approx(fit.trace[-1], rel=1e-6, abs=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batches": [[0], [9]]}, r"batches\[1\]: found index 9, expected 0 to 5"),
        ({"batches": [[]]}, r"batches\[0\]: found shape \(0,\), expected a list of at least one index"),
        ({"batches": [[0], [-1]]}, r"batches\[1\]: found index -1, expected >= 0"),
        ({"batches": [[0.5]]}, r"batches\[0\]: found dtype float64, expected whole numbers"),
        ({"batches": []}, r"batches: found an empty list, expected at least one mini-batch"),
        ({"batches": [[0]], "n_steps": 2}, r"n_steps: found 2, expected at most 1"),
        ({"rate": 0.0}, r"rate: found 0.0, expected a number in \(0, 1e10\]"),
        ({"batch_size": 0}, r"batch_size: found 0"),
        ({"likelihood": "softmax"}, r"likelihood: found 'softmax', expected 'logit' or 'probit' for svi"),
        ({"learn": ("Z",)}, r"learn: found 'Z'.*keeps Z"),
    ],
)
def test_bad_batches_and_rates_are_refused_by_name(model, options, message):
    with pytest.raises(ValueError, match=message):
        fit_svi_batches(model.X, model.y, model.hyper, **options)


def test_the_same_seed_draws_the_same_batches(model):
    s = model
    a, b = (fit_svi_batches(s.X, s.y, s.hyper, batch_size=2, n_steps=5, seed=3, trace=True) for _ in range(2))
    np.testing.assert_array_equal(a.trace, b.trace)
    assert len(a.trace) == a.iterations == 5
