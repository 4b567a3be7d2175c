"""Priors of log-parameters: against SciPy's densities, quadrature and finite differences."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from gibbs.core.hyperpriors import Hyperprior, check_hyperprior, draw, joint_log_density, log_density

HYPERPRIORS = [
    Hyperprior("half-student-t", 4.0, 10.0, False),
    Hyperprior("half-student-t", 1.0, 0.3, True),
    Hyperprior("log-normal", 0.7, 2.0, False),
    Hyperprior("log-normal", 1.5, 0.1, True),
]


@pytest.mark.parametrize("hyperprior", HYPERPRIORS)
def test_the_density_of_the_logarithm_has_mass_one(hyperprior):
    # the tails are left out at |w| = 80: below exp(-40) of the mass for df >= 1
    mass = quad(lambda w: np.exp(log_density(w, hyperprior).value), -80, 80, points=[-5.0, 0.0, 5.0], limit=400)[0]
    np.testing.assert_allclose(mass, 1.0, rtol=1e-7)  # quad's own tolerance is 1.5e-8


@pytest.mark.parametrize("hyperprior", HYPERPRIORS)
def test_the_density_is_that_of_scipy_times_the_jacobian(hyperprior):
    w = np.linspace(-9.0, 9.0, 13)
    x = np.exp(0.5 * w if hyperprior.root else w)
    if hyperprior.family == "half-student-t":
        base = np.log(2.0) + stats.t(hyperprior.df, scale=hyperprior.scale).logpdf(x)
    else:
        base = stats.lognorm(hyperprior.df, scale=hyperprior.scale).logpdf(x)
    expected = base + np.log(0.5 * x if hyperprior.root else x)
    # logarithms up to 100 in size keep 13 digits
    np.testing.assert_allclose(log_density(w, hyperprior).value, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("hyperprior", HYPERPRIORS)
def test_the_gradient_is_that_of_finite_differences(hyperprior):
    w, step = np.linspace(-30.0, 30.0, 25), 1e-5
    derivative = (log_density(w + step, hyperprior).value - log_density(w - step, hyperprior).value) / (2.0 * step)
    # central differences: truncation 1e-10, rounding of values up to 500 over 2e-5 about 5e-9
    np.testing.assert_allclose(log_density(w, hyperprior).gradient, derivative, rtol=1e-6, atol=1e-7)


def test_columns_add_up_each_under_its_own_distribution():
    w = np.array([[0.3, -2.0, 1.0, 4.0], [5.0, 0.0, -1.0, 2.0]])
    result = joint_log_density(w, HYPERPRIORS)
    parts = [log_density(w[:, j], hyperprior) for j, hyperprior in enumerate(HYPERPRIORS)]
    np.testing.assert_allclose(result.value, sum(part.value for part in parts), rtol=1e-13)  # a sum of four
    np.testing.assert_array_equal(result.gradient, np.stack([part.gradient for part in parts], axis=1))


@pytest.mark.parametrize("hyperprior", HYPERPRIORS)
def test_extremes_stay_finite(hyperprior):
    result = log_density(np.array([-115.0, 115.0]), hyperprior)
    assert np.all(np.isfinite(result.value))
    assert np.all(np.isfinite(result.gradient))


@pytest.mark.parametrize("hyperprior", HYPERPRIORS)
def test_draws_follow_the_density(rng, assert_z, hyperprior):
    w, n = np.log(draw(rng, hyperprior, 20_000)), 20_000
    grid = np.linspace(-60.0, 60.0, 20_001)
    weight = np.exp(log_density(grid, hyperprior).value)
    weight /= weight.sum()
    mean = weight @ grid
    for power in (1, 2):
        centred = (w - mean) ** power
        assert_z((centred.mean() - weight @ (grid - mean) ** power) / (centred.std() / np.sqrt(n)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learn": ()}, r"learn: found \(\), expected at least one out of"),
        ({"learn": "variance"}, r"learn: found 'variance', expected at least one"),
        ({"learn": ("jitter",)}, r"learn: found \('jitter',\)"),
        ({"learn": ("noise",)}, r"hyperprior: found no entry for 'noise'"),
        ({"hyperprior": None}, r"hyperprior: found no entry for 'variance'"),
        ({"hyperprior": {"variance": ("gamma", 1.0, 1.0)}}, r"hyperprior\['variance'\]: found 'gamma'"),
        ({"hyperprior": {"variance": ("log-normal", 0.0, 1.0)}}, r"hyperprior\['variance'\] df: found 0, expected > 0"),
        ({"hyperprior": {"variance": ("log-normal", 1.0, -1.0)}}, r"\['variance'\] scale: found -1, expected > 0"),
        ({"prior_on": "scale"}, r"prior_on: found 'scale', expected one of"),
    ],
)
def test_a_bad_prior_is_refused_by_name(change, message):
    arguments = {"hyperprior": {"variance": ("log-normal", 1.0, 1.0)}, "learn": ("variance",), "prior_on": "field"}
    with pytest.raises(ValueError, match=message):
        check_hyperprior(**(arguments | change))


def test_lengthscales_have_no_root():
    prior = dict.fromkeys(("variance", "lengthscales", "noise"), ("half-student-t", 4.0, 10.0))
    distributions = check_hyperprior(prior, ("noise", "lengthscales", "variance"), "root")
    assert {name: hyperprior.root for name, hyperprior in distributions.items()} == {
        "variance": True,
        "lengthscales": False,
        "noise": True,
    }
