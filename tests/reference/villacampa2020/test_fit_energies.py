"""Sections 3.2 to 3.5: where the searches end, what they learn, and what they refuse."""

import numpy as np
import pytest

from reference.common._ascent import FINITE, step_length, unbounded
from reference.common._gaussians import Gaussians, Natural, moments_of, natural_parameters
from reference.common.priors import Prior
from reference.villacampa2020.energies import apep_objective, energy
from reference.villacampa2020.fit_energies import (
    Data,
    energy_gradients,
    fit_energy,
)
from reference.villacampa2020.fit_gaussian_factor import fit_gaussian_factor
from reference.villacampa2020.hyper import prior_matrices
from reference.villacampa2020.posterior import natural_prior
from reference.villacampa2020.power_likelihood import log_expected_power
from reference.villacampa2020.tied import METHODS, apep_cavity, rpapep_cavity, second_moments


@pytest.fixture
def prior(model):
    s = model
    return Prior(s.variance, s.lengthscales, s.noise, s.jitter, s.Z)


def tilted_moments(cavity, i, s, alpha):
    """Means and second moments of p(y_i|f_i)^α q\\ by Stein's identities."""
    mean = np.array([s.upsilon[k, i] @ cavity.mean[k] for k in range(s.C)])
    var = np.array([s.cond_var[k, i] + s.upsilon[k, i] @ cavity.cov[k] @ s.upsilon[k, i] for k in range(s.C)])
    z = log_expected_power(mean, var, int(s.y[i]), s.epsilon, alpha)
    gain = np.stack([cavity.cov[k] @ s.upsilon[k, i] for k in range(s.C)])
    distribution = Gaussians(
        cavity.mean + gain * z.d_mean[:, None],
        cavity.cov + gain[:, :, None] * gain[:, None, :] * z.d2_mean[:, None, None],
    )
    return distribution.mean, second_moments(distribution)


@pytest.mark.parametrize(("method", "alpha"), [("apep", 0.4), ("apep", 1.0), ("rpapep", 0.4)])
def test_at_the_optimum_q_has_the_average_moments_of_all_tilted_distributions(model, prior, method, alpha):
    s = model
    fit = fit_energy(s.X, s.y, prior, method, s.epsilon, alpha=alpha)
    assert fit.converged
    assert fit.optimum == FINITE
    theta, p = natural_parameters(fit.posterior), natural_prior(s.K_ZZ)
    tied = Natural(theta.precision - p.precision, theta.shift)
    of_method = {"apep": apep_cavity(theta, tied, s.n, alpha), "rpapep": rpapep_cavity(theta, s.n, alpha)}
    cavity = moments_of(of_method[method])
    each = [tilted_moments(cavity, i, s, alpha) for i in range(s.n)]
    if method == "rpapep":
        left = 1.0 - alpha / (s.n + 1)
        distribution = moments_of(Natural(left * theta.precision + alpha * p.precision, left * theta.shift))
        each.append((distribution.mean, second_moments(distribution)))
    # the residual is 1e-10 in units of q, whose variances reach a hundred
    np.testing.assert_allclose(np.mean([m for m, _ in each], axis=0), fit.posterior.mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(
        np.mean([m for _, m in each], axis=0), second_moments(fit.posterior), rtol=1e-7, atol=1e-8
    )


@pytest.mark.parametrize("method", METHODS)
def test_the_optimum_is_above_its_neighbours_and_at_alpha_zero_it_is_that_of_the_bound(model, prior, rng, method):
    s = model
    fit = fit_energy(s.X, s.y, prior, method, s.epsilon, alpha=0.5)
    for _ in range(4):
        turn = 0.01 * rng.normal(size=s.cov.shape)
        near = np.eye(s.m) + turn
        q = Gaussians(
            fit.posterior.mean + 0.01 * rng.normal(size=s.mean.shape),
            near @ fit.posterior.cov @ np.transpose(near, (0, 2, 1)),
        )
        assert energy(method, q, s.y, prior_matrices(s.X, prior), s.epsilon, 0.5).value < fit.value
    zero, other = (fit_energy(s.X, s.y, prior, name, s.epsilon, alpha=0.0) for name in (method, "arpep"))
    # residuals of 1e-10
    np.testing.assert_allclose(zero.posterior.mean, other.posterior.mean, rtol=1e-7, atol=1e-9)
    assert zero.value == pytest.approx(other.value, rel=1e-11)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rows", [None, np.array([1, 2, 4])])
def test_gradients_in_the_prior_are_differences_at_any_q_and_of_mini_batches(model, prior, method, rows):
    s = model
    q = Gaussians(s.mean, s.cov)
    data = Data(s.X, s.y, method, s.epsilon, 0.7)

    def value(there):
        return data.at(q, prior_matrices(s.X, there), rows).value

    at = data.at(q, prior_matrices(s.X, prior), rows)
    got = energy_gradients(s.X, prior, at, q, rows)
    h = 1e-6
    for field in ("variance", "lengthscales", "noise", "Z"):
        base = getattr(prior, field)
        wanted = np.zeros(base.shape)
        for place in np.ndindex(*base.shape):
            step = np.zeros(base.shape)
            step[place] = h
            up, down = (value(prior._replace(**{field: base + sign * step})) for sign in (1.0, -1.0))
            wanted[place] = (up - down) / (2.0 * h)
        # rounding of 1e-14 over h, and h² times third derivatives
        np.testing.assert_allclose(got[field], wanted, rtol=1e-5, atol=1e-6, err_msg=field)


def test_mini_batches_average_to_all_data_and_adam_first_moves_every_coordinate_by_its_rate(model, prior):
    s = model
    q = Gaussians(s.mean, s.cov)
    K = prior_matrices(s.X, prior)
    data = Data(s.X, s.y, "apep", s.epsilon, 0.5)
    parts = [data.at(q, K, np.array([i])) for i in range(s.n)]
    whole = data.at(q, K)
    # sums of five terms
    assert np.mean([part.value for part in parts]) == pytest.approx(whole.value, rel=1e-12)
    np.testing.assert_allclose(np.mean([part.by_cov for part in parts], axis=0), whole.by_cov, rtol=1e-9, atol=1e-12)
    rate = 1e-3
    fit = fit_energy(s.X, s.y, prior, "apep", s.epsilon, alpha=0.5, batches=[[3, 1, 3]], learn="variance", rate=rate)
    assert not fit.converged
    start = Gaussians(np.zeros(s.mean.shape), s.K_ZZ)
    at = data.at(start, K, np.array([1, 3]))
    # Adam's first step is the gradient over its size, but for 1e-8
    np.testing.assert_allclose(fit.posterior.mean, rate * np.sign(at.by_mean), rtol=1e-5, atol=0)
    roots = np.linalg.cholesky(s.K_ZZ)
    by_root = 2.0 * at.by_cov @ roots
    for k in range(s.C):
        new = np.linalg.cholesky(fit.posterior.cov[k])
        moved = np.log(np.diag(new) / np.diag(roots[k]))
        np.testing.assert_allclose(moved, rate * np.sign(np.diag(by_root[k])), rtol=1e-5, atol=0)
        assert new[1, 0] - roots[k, 1, 0] == pytest.approx(rate * np.sign(by_root[k, 1, 0]), rel=1e-5)
    derivatives = energy_gradients(s.X, prior, at, start, np.array([1, 3]), ("variance",))["variance"]
    np.testing.assert_allclose(
        np.log(fit.prior.variance / prior.variance), rate * np.sign(derivatives), rtol=1e-5, atol=0
    )
    more = fit_energy(s.X, s.y, prior, "apep", s.epsilon, alpha=0.5, batch_size=2, n_steps=30, rate=0.05, trace=True)
    assert more.trace.shape == (30,)
    assert more.value > more.trace[0] + 0.5


@pytest.mark.parametrize("rate", [5.0, 13.0, 30.0])
@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("method", ["apep", "arpep", "rpapep"])
def test_a_rate_that_is_too_large_ends_diverged_at_the_last_energy_that_was_a_number(
    model, prior, method, batch_size, rate
):
    s = model
    posterior = fit_energy(
        s.X, s.y, prior, method, 0.05, alpha=0.5, optimizer="adam", learn="variance", n_steps=60, batch_size=batch_size,
        rate=rate,
    )  # fmt: skip
    assert not posterior.converged
    assert np.isfinite(posterior.value)
    if posterior.iterations < 60:
        assert "diverged at step" in posterior.reason
    if rate == 30.0:  # the variance moves by e^30 a step
        assert posterior.iterations < 60


@pytest.mark.slow
def test_learning_on_all_data_ends_where_the_total_derivative_vanishes(model, prior):
    s = model
    same = Prior(*(np.repeat(part[:1], 3, axis=0) for part in prior))
    learning = {"learn": "lengthscales", "shared": True, "learn_tolerance": 1e-4}
    fit = fit_energy(s.X, s.y, same, "arpep", s.epsilon, alpha=0.5, **learning)
    assert fit.converged
    assert fit.value > fit_energy(s.X, s.y, same, "arpep", s.epsilon, alpha=0.5).value + 0.1
    assert 0.5 < fit.prior.lengthscales[0, 0] < 2.0  # inside; the other input tells nothing and its scale goes up
    h = 1e-2
    up, down = (
        fit_energy(
            s.X, s.y, fit.prior._replace(lengthscales=fit.prior.lengthscales * [c, 1.0]), "arpep", s.epsilon, alpha=0.5
        )
        for c in (np.exp(h), np.exp(-h))
    )
    # the tolerance, and h² times third derivatives
    assert (up.value - down.value) / (2.0 * h) == pytest.approx(0.0, abs=2e-4)
    assert max(up.value, down.value) < fit.value


def test_the_refined_prior_widens_q_without_data_and_has_no_optimum_at_one(model, prior):
    s = model
    away = prior._replace(Z=prior.Z + 100.0)  # inducing values that no datum sees
    alpha = 0.6
    fit = fit_energy(s.X, s.y, away, "rpapep", s.epsilon, alpha=alpha)
    left = 1.0 - alpha / (s.n + 1)
    K = prior_matrices(s.X, away).K_ZZ
    # the maximum of -½ [(1 - 1/α) log λ + (1/α) log(left λ + α)] over the precision λ in units of the prior's
    np.testing.assert_allclose(fit.posterior.cov, left / (1.0 - alpha) * K, rtol=1e-8, atol=1e-10)
    for method in ("apep", "arpep"):
        q = fit_energy(s.X, s.y, away, method, s.epsilon, alpha=alpha).posterior
        np.testing.assert_allclose(q.cov, K, rtol=1e-8, atol=1e-10)
    gone = fit_energy(s.X, s.y, away, "rpapep", s.epsilon, alpha=1.0)
    assert gone.optimum.startswith("none: the variance of class")
    assert not gone.converged
    assert (
        unbounded(Gaussians(1e7 * np.ones(s.mean.shape), s.cov), s.K_ZZ)
        == "none: the mean of class 0 grows without bound"
    )


@pytest.mark.slow  # a search by L-BFGS on the printed energy
def test_a_gaussian_tied_factor_is_nowhere_wider_than_the_prior(model, prior):
    s = model
    X = s.X.copy()
    X[1], X[3] = X[0] + 0.01, X[2] + 0.01  # neighbours that contradict one another: some sites are negative
    data = Data(X, s.y, "apep", 0.3, 0.5)
    bounded, free = fit_gaussian_factor(data, prior), fit_energy(X, s.y, prior, "apep", 0.3, alpha=0.5)
    assert bounded.converged
    roots = np.linalg.cholesky(s.K_ZZ)

    def smallest(q):
        """Eigenvalue of the factor's precision in units of the prior."""
        each = zip(q.cov, roots, strict=True)
        return min(np.linalg.eigvalsh(root.T @ np.linalg.inv(V) @ root)[0] - 1.0 for V, root in each)

    assert smallest(bounded.posterior) > -1e-9  # rounding of the inverses
    assert smallest(free.posterior) < -5e-3
    assert bounded.value < free.value
    again = apep_objective(bounded.posterior, s.y, prior_matrices(X, prior), 0.3, 0.5)
    assert bounded.value == pytest.approx(again, rel=1e-10)  # the same sum with other roundings


def test_the_residual_is_a_length_in_the_metric_of_q():
    q = Gaussians(np.array([[1.0]]), np.array([[[4.0]]]))
    direction = Natural(np.array([[[0.5]]]), np.array([[0.8]]))
    residual, length = step_length(direction, q)
    assert residual == pytest.approx(2.0, rel=1e-14)  # √(4·½·4·½)
    assert length == pytest.approx(np.sqrt(2.0 + 0.36), rel=1e-14)  # r = 0.3, rᵀVr = 0.36


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("method", {"method": "pep"}),
        ("alpha", {"alpha": 1.1}),
        ("alpha", {"alpha": float("nan")}),
        ("epsilon", {"alpha": 0.0, "epsilon": 0.0}),
        ("epsilon", {"epsilon": 1.0}),
        ("tolerance", {"tolerance": 0.0}),
        ("max_iterations", {"max_iterations": 0}),
        ("optimizer", {"optimizer": "sgd"}),
        ("optimizer", {"optimizer": "lbfgs", "batch_size": 2}),
        ("batches", {"batches": []}),
        ("batches", {"batches": [[0, 9]]}),
        ("batch_size", {"batch_size": 0}),
        ("n_steps", {"batches": [[0]], "n_steps": 2}),
        ("n_steps", {"n_steps": 2}),
        ("learn", {"learn": ("jitter",)}),
        ("rate", {"rate": 0.0}),
    ],
)
def test_bad_input_is_refused_by_name(model, prior, name, options):
    options = {"method": "apep", "epsilon": model.epsilon, "alpha": 0.5} | options
    with pytest.raises(ValueError, match=f"^{name}"):
        fit_energy(model.X, model.y, prior, **options)


def test_one_datum_at_alpha_one_leaves_nothing_to_fit(model, prior):
    with pytest.raises(ValueError, match=r"^alpha: found 1 with one datum"):
        fit_energy(model.X[:1], model.y[:1], prior, "apep", model.epsilon, alpha=1.0)


@pytest.mark.slow  # a search by L-BFGS on the printed energy
def test_apep_with_any_tied_factor_is_not_table_one_which_has_no_free_gaussian():
    """The numbers of the docs: eight data of three classes, four inducing points each, epsilon 0, alpha 0.5."""
    rng = np.random.default_rng(12)
    X, y, one = rng.normal(size=(8, 2)), rng.integers(0, 3, 8), np.ones(3)
    prior = Prior(4.0 * one, np.tile([0.9, 1.2], (3, 1)), 0.01 * one, 1e-4 * one, np.stack([X[:4]] * 3))
    free = fit_energy(X, y, prior, "apep", 0.0, alpha=0.5)
    proper = fit_gaussian_factor(Data(X, y, "apep", 0.0, 0.5), prior)
    assert (free.optimum, proper.optimum) == (FINITE, FINITE)
    ratios = [np.diagonal(a, axis1=1, axis2=2) for a in (free.posterior.cov, proper.posterior.cov)]
    # the second optimum is on a boundary, reached to derivatives of 1e-6
    assert free.value - proper.value == pytest.approx(5.34e-3, rel=0, abs=1e-5)
    assert np.max(ratios[0] / ratios[1]) == pytest.approx(1.129, rel=0, abs=1e-3)
    # the free factor is no Gaussian: some precision of q is below the prior's
    K_ZZ = prior_matrices(X, prior).K_ZZ
    assert np.min(np.linalg.eigvalsh(np.linalg.inv(free.posterior.cov) - np.linalg.inv(K_ZZ))) < -1e-3
