"""The two moves of log-parameters: against densities known by quadrature, from overdispersed starts."""

import numpy as np
import pytest

from gibbs.core.hyperpriors import Hyperprior, LogDensity, log_density
from gibbs.models.hyper_covariance import log_normal_density, make_design
from gibbs.moves.hyper import hamiltonian_move, slice_move

DISTRIBUTION = Hyperprior("half-student-t", 4.0, 2.0, False)
X = np.array([[0.0], [0.4], [1.5], [2.0]])
V = np.array([[[[0.5, 0.9, -1.2, -0.4]]]])
DESIGN = make_design(X, X[:0], None, np.array([1e-3]))
BASE = np.array([1.3, 0.8, 0.2])  # variance, lengthscale, noise


def conditional(column, forgotten=False):
    """log p(log θ_j | v) and its derivative, for the column j, the others held; `forgotten`: without the Jacobian."""

    def function(w):
        hyper = np.broadcast_to(BASE, (*w.shape[:-1], 1, 3)).copy()
        hyper[..., 0, column] = np.exp(w[..., 0])
        values = np.broadcast_to(V, (w.shape[0], 1, 1, 4))
        result, prior = log_normal_density(DESIGN, hyper, values), log_density(w[..., 0], DISTRIBUTION)
        value, derivative = result.value[:, 0] + prior.value, result.gradient[:, 0, column] + prior.gradient
        if forgotten:
            value, derivative = value - w[..., 0], derivative - 1.0
        return LogDensity(value, derivative[:, None])

    return function


def moments(function, lowest):
    grid = np.linspace(lowest, 12.0, 4001)[:, None]  # the density is below 1e-9 of its peak at both ends
    value = function(grid).value
    weight = np.exp(value - value.max())
    weight /= weight.sum()
    mean = weight @ grid[:, 0]
    return mean, weight @ (grid[:, 0] - mean) ** 2


def run(rng, function, kind, r=400, sweeps=60):
    w, kept = 2.0 * rng.standard_normal((r, 1)), []
    for sweep in range(sweeps):
        if kind == "gradient":
            moved = hamiltonian_move(rng, w, function, np.full(r, 0.6), 5)
        else:
            moved = slice_move(rng, w, np.ones((r, 1)), lambda rows, x: function(x).value, 3.0)
        w = moved.position
        if sweep >= 15:
            kept.append(w[:, 0])
    return np.array(kept)


def z_statistics(kept, mean, var):
    # chains are independent: the spread of their averages is the error
    first, second = kept.mean(axis=0), np.square(kept - mean).mean(axis=0)
    error = np.sqrt(kept.shape[1])
    return [(first.mean() - mean) / (first.std() / error), (second.mean() - var) / (second.std() / error)]


@pytest.mark.parametrize("column", [0, 1, 2])
@pytest.mark.parametrize("kind", ["gradient", "slice"])
def test_a_parameter_given_the_values_follows_its_conditional(rng, assert_z, kind, column):
    function = conditional(column)
    assert_z(z_statistics(run(rng, function, kind), *moments(function, -25.0)))


@pytest.mark.parametrize("kind", ["gradient", "slice"])
def test_a_forgotten_jacobian_is_seen(rng, kind):
    # the density of the lengthscale taken for that of its logarithm
    kept = run(rng, conditional(1, forgotten=True), kind)
    assert np.abs(z_statistics(kept, *moments(conditional(1), -25.0))).max() > 6.0


def test_a_wrong_gradient_costs_acceptance_and_no_exactness(rng, assert_z):
    right = conditional(0)

    def function(w):
        result = right(w)
        return LogDensity(result.value, 0.3 * result.gradient + 0.2)

    assert_z(z_statistics(run(rng, function, "gradient"), *moments(right, -25.0)))


@pytest.mark.parametrize("kind", ["gradient", "slice"])
def test_a_region_without_density_is_refused_counted_and_left_out(rng, assert_z, kind):
    inner = conditional(0)

    def function(w):
        result, allowed = inner(w), w[:, 0] < 0.5
        bad = -np.inf if kind == "gradient" else np.nan
        return LogDensity(np.where(allowed, result.value, bad), result.gradient)

    r = 400
    w = np.full((r, 1), -1.0)
    kept, refused = [], 0.0
    for sweep in range(80):
        if kind == "gradient":
            moved = hamiltonian_move(rng, w, function, np.full(r, 0.4), 4)
        else:
            moved = slice_move(rng, w, np.ones((r, 1)), lambda rows, x: function(x).value, 3.0)
        w, refused = moved.position, refused + moved.refused.sum()
        if sweep >= 20:
            kept.append(w[:, 0])
    assert refused > 100
    assert np.max(kept) < 0.5
    grid = np.linspace(-25.0, 0.5, 8000)[:, None]
    weight = np.exp(inner(grid).value)
    weight[[0, -1]] *= 0.5  # trapezoid: the cut is not where the density vanishes
    weight /= weight.sum()
    mean = weight @ grid[:, 0]
    assert_z(z_statistics(np.array(kept), mean, weight @ (grid[:, 0] - mean) ** 2))


def test_a_start_without_density_stays(rng):
    def nowhere(w):
        return LogDensity(np.full(w.shape[0], -np.inf), np.zeros(w.shape))

    moved = hamiltonian_move(rng, np.zeros((3, 2)), nowhere, np.ones(3), 2)
    np.testing.assert_array_equal(moved.position, 0.0)
    np.testing.assert_array_equal(moved.refused, 1.0)
    np.testing.assert_array_equal(moved.acceptance, 0.0)


def test_slices_along_random_lines_leave_a_plane_distribution_alone(rng, assert_z):
    cov = np.array([[1.0, 0.8], [0.8, 1.0]])
    precision = np.linalg.inv(cov)
    r = 3000
    x = rng.standard_normal((r, 2)) @ np.linalg.cholesky(cov).T
    start = x.copy()
    for _ in range(12):
        direction = rng.standard_normal((r, 2))
        x = slice_move(
            rng, x, direction, lambda rows, at: -0.5 * np.einsum("ri,ij,rj->r", at, precision, at), 2.0
        ).position
    assert np.all(x != start)
    products = np.stack([x[:, 0], x[:, 1], x[:, 0] ** 2, x[:, 1] ** 2, x[:, 0] * x[:, 1]])
    expected = np.array([0.0, 0.0, 1.0, 1.0, 0.8])
    assert_z((products.mean(axis=1) - expected) / (products.std(axis=1) / np.sqrt(r)))
