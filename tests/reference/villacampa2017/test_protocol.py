"""Section 4's settings read from its sentences, and costs counted in the operations themselves."""

import numpy as np
import pytest

from reference.villacampa2017.complexity import complexity_table
from reference.villacampa2017.hyper import prior_matrices
from reference.villacampa2017.methods import EP, SEP
from reference.villacampa2017.protocol import batch_optimiser_choice, initialise_hyperparameters, toy_training_settings


@pytest.mark.verifies("villacampa2017", "u19-costs", route="operations counted one by one, and arrays that are kept")
def test_costs_are_those_of_the_operations(model, multiplications):
    s = model
    K = prior_matrices(
        s.X, initialise_hyperparameters(np.random.default_rng(0), s.X, s.m, s.C, 2.0, np.ones(2), 0.1, 1e-3)
    )
    for rows in (np.arange(s.n), np.array([1, 3])):
        multiplications.total = 0
        for k in range(s.C):
            v = multiplications.count(K.upsilon[k][rows])
            precision = v.T @ v + multiplications.count(np.linalg.inv(K.K_ZZ[k]))
            plain = multiplications.plain(precision)
            inverse = multiplications.plain(multiplications.inverse(precision))
            np.testing.assert_allclose(inverse @ plain, np.eye(s.m), rtol=0, atol=1e-7)
        for method in ("ep", "sep"):
            assert complexity_table(method, s.n, s.m, s.C, len(rows)).operations == multiplications.total
    tied = SEP(s.y, s.C, 1.0, "all").start(K)
    assert complexity_table("sep", s.n, s.m, s.C).memory == sum(each.precision.size for each in tied)
    assert complexity_table("ep", s.n, s.m, s.C).memory == K.upsilon.size
    assert complexity_table("ep", s.n, s.m, s.C) == complexity_table("ep", s.n, s.m, s.C, s.n)
    assert all(part.shape == (s.n, s.C) for part in EP(s.y, s.C, 1.0, "parallel").start(K))
    small, large = (complexity_table("sep", n, 200, 10, 200) for n in (10_000, 10_000_000))
    assert small == large  # cost and memory of a mini-batch do not know n
    with pytest.raises(ValueError, match="method"):
        complexity_table("vi-robust", 1, 1, 2)


@pytest.mark.verifies("villacampa2017", "u31-initialisation", route="rows found among the inputs")
def test_inducing_inputs_are_drawn_from_the_inputs(rng):
    X = rng.normal(size=(30, 2))

    def make(seed):
        return initialise_hyperparameters(np.random.default_rng(seed), X, 8, 3, 2.0, np.array([0.5, 3.0]), 0.1, 1e-4)

    prior = make(1)
    for field, wanted in (("variance", 2.0), ("lengthscales", [0.5, 3.0]), ("noise", 0.1), ("jitter", 1e-4)):
        np.testing.assert_array_equal(getattr(prior, field), np.broadcast_to(wanted, getattr(prior, field).shape))
    assert prior.Z.shape == (3, 8, 2)
    for Z in prior.Z:
        where = [np.flatnonzero(np.all(z == X, axis=1)) for z in Z]
        assert all(len(value) == 1 for value in where)
        assert len({int(value[0]) for value in where}) == 8
    np.testing.assert_array_equal(make(1).Z, prior.Z)
    assert np.any(make(2).Z != prior.Z)
    assert np.any(prior.Z[0] != prior.Z[1])
    with pytest.raises(ValueError, match="n_inducing"):
        initialise_hyperparameters(rng, X, 31, 3, 1.0, np.ones(2), 0.1, 0.0)


@pytest.mark.verifies("villacampa2017", "u34-optimisers", route="sentence of section 4.1")
def test_the_optimiser_of_each_method():
    for method, name in (("gfitc", "lbfgs"), ("vi-robust", "lbfgs"), ("ep", "adaptive"), ("sep", "adaptive")):
        result = batch_optimiser_choice(method)
        assert result == (name, 250, name == "lbfgs")
    with pytest.raises(ValueError, match="method"):
        batch_optimiser_choice("laplace")


@pytest.mark.verifies("villacampa2017", "u37-toy-training", route="sentence of section 4.2")
def test_the_training_of_the_toy():
    for method, name in (("gfitc", "lbfgs"), ("ep", "adaptive"), ("sep", "adaptive")):
        assert toy_training_settings(method) == (name, 2000, 1000, ("Z",))
    assert toy_training_settings("vi-robust") == ("adam", 20_000, 100, ("Z",))  # ten mini-batches an epoch
    assert toy_training_settings("vi-robust", 1001).n_steps == 22_000
    assert toy_training_settings("vi-robust", 40) == ("adam", 2000, 40, ("Z",))
    with pytest.raises(ValueError, match="method"):
        toy_training_settings("laplace")
