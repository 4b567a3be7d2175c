"""The variational baseline: natural gradients by their definition, a bound that is one, gradients, and mini-batches."""

import numpy as np
import pytest
from scipy.stats import norm

from bivariate import bivariate_normal_cdf
from reference.common._ascent import step_length
from reference.common._gaussians import Gaussians, Natural, along, moments_of, natural_parameters
from reference.common._largest import log_largest
from reference.common.options import options_of
from reference.common.priors import Prior
from reference.villacampa2017 import vi_fit
from reference.villacampa2017.hyper import prior_matrices
from reference.villacampa2017.prediction import predict
from reference.villacampa2017.vi import variational_elbo, vi_latent_marginal
from reference.villacampa2017.vi_fit import vi_baseline
from reference.villacampa2017.vi_gradients import expected_terms, label_probability, natural_target, vi_gradients

FIELDS = ("variance", "lengthscales", "noise", "Z")
EPSILON = 0.05


def problem(n=6, C=2, m=2, d=1, seed=4):
    """Data of which every class has some, and a prior."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % C
    prior = Prior(
        rng.uniform(1.0, 3.0, C),
        rng.uniform(0.7, 1.5, (C, d)),
        rng.uniform(0.05, 0.2, C),
        np.full(C, 1e-2),
        rng.normal(size=(C, m, d)),
    )
    return rng.normal(size=(n, d)) + 0.8 * y[:, None], y, prior


def distribution(C, m, seed=1):
    """A q of no special kind."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(C, m, m))
    return Gaussians(rng.normal(size=(C, m)), root @ root.transpose(0, 2, 1) + 0.3 * np.eye(m))


def bound_at(X, y, prior, q, epsilon=EPSILON):
    """(15) by the functions of its parts, from kernels worked out here."""
    K = prior_matrices(X, prior)
    K_XZ = K.upsilon @ K.K_ZZ
    k_xx = np.repeat((prior.variance + prior.noise)[:, None], len(X), axis=1)
    return variational_elbo(q, y, k_xx, K_XZ, K.K_ZZ, epsilon)


def test_derivatives_of_the_label_probability():
    rng = np.random.default_rng(2)
    mean, var, y = rng.normal(size=(4, 3)), rng.uniform(0.05, 2.0, size=(4, 3)), np.array([0, 2, 1, 1])
    got = label_probability(mean, var, y)
    np.testing.assert_allclose(got.value, np.exp(log_largest(mean, var, y)), rtol=1e-11, atol=0)
    for i, k in np.ndindex(4, 3):
        step = np.zeros(3)
        step[k] = 1e-5
        by_mean = [np.exp(log_largest(mean + s * step, var, y)[i]) for s in (1, -1)]
        by_var = [np.exp(log_largest(mean, var + s * step, y)[i]) for s in (1, -1)]
        # central differences of 1e-5 in numbers good to 1e-13: 1e-8, and truncation of 1e-10 over small variances
        assert got.by_mean[i, k] == pytest.approx((by_mean[0] - by_mean[1]) / 2e-5, rel=1e-6, abs=3e-8)
        assert got.by_var[i, k] == pytest.approx((by_var[0] - by_var[1]) / 2e-5, rel=1e-6, abs=3e-8)


def test_the_natural_gradient_is_the_derivative_in_expectation_parameters():
    X, y, prior = problem(n=5, C=3)
    K, q, rows = prior_matrices(X, prior), distribution(3, 2), np.arange(5)
    target = natural_target(q, K, expected_terms(q, K, y, EPSILON, rows), rows)
    present = natural_parameters(q)

    def at(k, mu_1, mu_2):
        mean, cov = q.mean.copy(), q.cov.copy()
        mean[k], cov[k] = mu_1, mu_2 - np.outer(mu_1, mu_1)
        return bound_at(X, y, prior, Gaussians(mean, cov))

    h = 1e-5
    for k in range(3):
        mu_1, mu_2 = q.mean[k], q.cov[k] + np.outer(q.mean[k], q.mean[k])
        by_shift = target.shift[k] - present.shift[k]
        by_precision = -0.5 * (target.precision[k] - present.precision[k])
        for a in range(2):
            e = h * np.eye(2)[a]
            wanted = (at(k, mu_1 + e, mu_2) - at(k, mu_1 - e, mu_2)) / (2 * h)
            # numbers of size 10 good to 1e-13, over 1e-5; truncation 1e-9
            assert by_shift[a] == pytest.approx(wanted, rel=1e-6, abs=1e-7)
            for b in range(a + 1):
                e = np.zeros((2, 2))
                e[a, b] = e[b, a] = h
                wanted = (at(k, mu_1, mu_2 + e) - at(k, mu_1, mu_2 - e)) / (2 * h)
                assert by_precision[a, b] * (1 if a == b else 2) == pytest.approx(wanted, rel=1e-6, abs=1e-7)


def test_the_length_of_a_step_is_that_of_the_divergence():
    q = distribution(2, 3)
    rng = np.random.default_rng(3)
    change = 1e-4 * rng.normal(size=(2, 3, 3))
    direction = Natural(change + change.transpose(0, 2, 1), change[:, 0])
    _, length = step_length(direction, q)
    moved = moments_of(along(natural_parameters(q), direction, 1.0))
    divergence = 0.0
    for m, S, m_0, S_0 in zip(*moved, *q, strict=True):
        inverse = np.linalg.inv(S_0)
        divergence += 0.5 * (np.trace(inverse @ S) + (m - m_0) @ inverse @ (m - m_0) - 3.0)
        divergence += 0.5 * (np.linalg.slogdet(S_0)[1] - np.linalg.slogdet(S)[1])
    # KL is half the squared length to second order; steps of 1e-4 leave 1e-3 of it, rounding 1e-15/1e-8
    assert length**2 == pytest.approx(2.0 * divergence, rel=1e-2, abs=0)


@pytest.mark.verifies("villacampa2017", "u21-vi-baseline", route="bound and marginals by quadrature over ū")
def test_value_and_marginals_against_integration_over_the_inducing_values():
    X, y, prior = problem(n=3, m=1)
    fit = vi_baseline(X, y, prior, EPSILON)
    K = prior_matrices(X, prior)
    (m_0,), (m_1,) = fit.posterior.mean
    (S_0,), (S_1,) = fit.posterior.cov[:, 0]
    x, w = np.polynomial.hermite_e.hermegauss(100)
    w = np.outer(w, w) / (2.0 * np.pi)
    u_0, u_1 = np.meshgrid(m_0 + np.sqrt(S_0) * x, m_1 + np.sqrt(S_1) * x, indexing="ij")
    total = 0.0
    for i, label in enumerate(y):
        f_0, f_1 = K.upsilon[0, i, 0] * u_0, K.upsilon[1, i, 0] * u_1
        win = np.sum(w * norm.cdf((1 - 2 * label) * (f_0 - f_1) / np.sqrt(np.sum(K.cond_var[:, i]))))
        assert fit.probability[i] == pytest.approx(win, rel=1e-9, abs=0)
        total += win * np.log(1 - EPSILON / 2) + (1 - win) * np.log(EPSILON / 2)
        np.testing.assert_allclose(fit.latent_mean[i], [np.sum(w * f_0), np.sum(w * f_1)], rtol=1e-10, atol=0)
        var = [np.sum(w * f**2) - np.sum(w * f) ** 2 for f in (f_0, f_1)]
        np.testing.assert_allclose(fit.latent_var[i], var + K.cond_var[:, i], rtol=1e-10, atol=0)
    for u, m, S, k in ((u_0, m_0, S_0, 0), (u_1, m_1, S_1, 1)):
        total -= np.sum(w * (norm.logpdf(u, m, np.sqrt(S)) - norm.logpdf(u, 0.0, np.sqrt(K.K_ZZ[k, 0, 0]))))
    assert fit.elbo == pytest.approx(total, rel=1e-9, abs=0)


@pytest.mark.verifies("villacampa2017", "u21-vi-baseline", route="finite differences of (15) in m and in S vanish")
def test_the_ascent_ends_where_no_direction_leads_up():
    X, y, prior = problem(n=6, C=3)
    fit = vi_baseline(X, y, prior, EPSILON, trace=True)
    q = fit.posterior
    assert fit.converged
    assert fit.residual <= 1e-10
    assert fit.elbo == pytest.approx(bound_at(X, y, prior, q), rel=1e-11, abs=0)
    assert np.all(np.diff(fit.trace) >= -1e-11 * abs(fit.elbo))
    assert fit.trace[-1] == pytest.approx(fit.elbo, rel=1e-13, abs=0)
    h, roots = 1e-4, np.linalg.cholesky(q.cov)
    for k in range(3):
        for a in range(2):
            e = np.zeros((3, 2))
            e[k, a] = h
            derivative = bound_at(X, y, prior, q._replace(mean=q.mean + e)) - bound_at(
                X, y, prior, q._replace(mean=q.mean - e)
            )
            assert derivative / (2 * h) == pytest.approx(0.0, rel=0, abs=1e-7)  # third derivatives times h²/6, 1e-13/h
            e = np.zeros((3, 2, 2))
            e[k, a, 1] = e[k, 1, a] = h
            e = roots @ e @ roots.transpose(0, 2, 1)  # in units of q itself
            derivative = bound_at(X, y, prior, q._replace(cov=q.cov + e)) - bound_at(
                X, y, prior, q._replace(cov=q.cov - e)
            )
            assert derivative / (2 * h) == pytest.approx(0.0, rel=0, abs=1e-7)


def test_predictions_mix_the_winner_with_a_label_at_random():
    _, _, prior = problem(C=3)
    T = np.array([[0.3], [-1.0]])
    K, q = prior_matrices(T, prior), distribution(3, 2)
    got = predict(q, T, prior, EPSILON)
    mean = np.einsum("kim,km->ik", K.upsilon, q.mean)
    var = K.cond_var.T + np.einsum("kim,kml,kil->ik", K.upsilon, q.cov, K.upsilon)
    np.testing.assert_allclose(got.latent_mean, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(got.latent_var, var, rtol=1e-10, atol=0)
    for i, k in np.ndindex(2, 3):
        others = [j for j in range(3) if j != k]
        cov = np.diag(var[i, others]) + var[i, k]
        win = bivariate_normal_cdf(mean[i, k] - mean[i, others], cov)
        # the bivariate normal's accuracy
        assert got.probability[i, k] == pytest.approx((1 - EPSILON) * win + EPSILON / 3, rel=1e-8, abs=0)
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=1e-11, atol=0)


def test_the_bound_is_below_the_evidence():
    X, y, prior = problem(n=4, m=3)
    fit = vi_baseline(X, y, prior, EPSILON)
    rng = np.random.default_rng(11)
    draws = 40_000
    gap = 0.0
    for k, sign in ((0, 1.0), (1, -1.0)):
        K = prior.variance[k] * np.exp(-0.5 * ((X - X.T) / prior.lengthscales[k, 0]) ** 2) + prior.noise[k] * np.eye(4)
        gap = gap + sign * rng.standard_normal((draws, 4)) @ np.linalg.cholesky(K).T
    right = np.where(y == 0, 1.0, -1.0) * gap > 0.0
    likelihood = np.prod(np.where(right, 1.0 - EPSILON / 2, EPSILON / 2), axis=1)
    evidence, error = np.mean(likelihood), np.std(likelihood) / np.sqrt(draws)
    assert fit.elbo < np.log(evidence - 4.0 * error)  # 4 standard errors: 3e-5 of a chance
    assert fit.elbo > np.log(evidence) - 5.0  # and not absurdly below: the prior itself as q loses more


def test_a_larger_set_of_inducing_inputs_gives_no_lower_bound():
    X, y, prior = problem(n=5)
    prior = prior._replace(jitter=np.full(2, 1e-8))
    more = prior._replace(Z=np.concatenate([prior.Z, np.broadcast_to(X[:2], (2, 2, 1))], axis=1))
    # the smaller q is one of the larger; jitter adds 1e-8 of itself
    assert vi_baseline(X, y, more, EPSILON).elbo >= vi_baseline(X, y, prior, EPSILON).elbo - 1e-6


def test_the_gradient_is_that_of_the_bound_with_q_held():
    X, y, prior = problem(n=5, C=3, d=2)
    q = distribution(3, 2)
    gradients = vi_gradients(X, y, prior, q, EPSILON)
    for name in FIELDS:
        value = getattr(prior, name)
        assert gradients[name].shape == value.shape
        for at in np.ndindex(value.shape):
            ends = []
            for side in (1e-5, -1e-5):
                moved = value.copy()
                moved[at] += side
                ends.append(bound_at(X, y, prior._replace(**{name: moved}), q))
            # values of size 100 good to 1e-14 of that, over 1e-5
            assert gradients[name][at] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=2e-7), (name, at)


def test_a_mini_batch_gradient_is_that_of_its_own_estimate_and_batches_average_to_the_whole():
    X, y, prior = problem(n=6)
    q = distribution(2, 2)
    whole = vi_gradients(X, y, prior, q, EPSILON)
    parts = [vi_gradients(X, y, prior, q, EPSILON, rows) for rows in (np.array([0, 1, 4]), np.array([2, 3, 5]))]
    for name in FIELDS:
        np.testing.assert_allclose(0.5 * (parts[0][name] + parts[1][name]), whole[name], rtol=1e-10, atol=1e-12)
        assert not np.allclose(parts[0][name], whole[name], rtol=1e-3, atol=0)


def test_a_step_on_a_mini_batch_by_hand():
    X, y, prior = problem(n=6)
    K, rows = prior_matrices(X, prior), [4, 1, 1]  # an index twice counts once
    fit = vi_baseline(X, y, prior, EPSILON, batches=[rows], nat_rate=0.2, trace=True)
    marginal = vi_latent_marginal(
        Gaussians(np.zeros((2, 2)), K.K_ZZ),
        np.repeat((prior.variance + prior.noise)[:, None], 6, axis=1),
        K.upsilon @ K.K_ZZ,
        K.K_ZZ,
    )
    gain = 3.0 * (np.log(1 - EPSILON / 2) - np.log(EPSILON / 2))
    whole = np.zeros((2, 2))
    for k in range(2):
        for i in (1, 4):
            sign = 1.0 if y[i] == k else -1.0
            # f_y - f_k ~ N(0, v): P = Φ(gap/√v) has derivative φ(0)/√v in a mean and none in a variance
            by_mean = gain * sign * norm.pdf(0.0) / np.sqrt(np.sum(marginal.var[i]))
            whole[k] += by_mean * K.upsilon[k, i]
    # of a shift t the mean moves by K t, in the metric of q by √(tᵀKt): by one half at most
    length = max(float(np.sqrt(t @ K.K_ZZ[k] @ t)) for k, t in enumerate(whole))
    assert fit.residual == pytest.approx(length, rel=1e-9, abs=0)
    assert 0.2 * length > 0.5
    for k in range(2):
        np.testing.assert_allclose(np.linalg.inv(fit.posterior.cov[k]), np.linalg.inv(K.K_ZZ[k]), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(fit.posterior.mean[k], K.K_ZZ[k] @ whole[k] * 0.5 / length, rtol=1e-9, atol=0)
    assert fit.elbo == pytest.approx(bound_at(X, y, prior, fit.posterior), rel=1e-11, abs=0)
    assert fit.trace.shape == (1,)
    assert not fit.converged


def test_fixed_small_steps_on_all_data_reach_the_same_maximum():
    X, y, prior = problem()
    slow = vi_baseline(X, y, prior, EPSILON, batches=[range(6)] * 150, nat_rate=0.3)
    fast = vi_baseline(X, y, prior, EPSILON)
    assert slow.elbo == pytest.approx(fast.elbo, rel=1e-10, abs=0)


def test_the_first_step_of_adam_moves_each_coordinate_by_its_rate():
    X, y, prior = problem()
    learn = ("lengthscales", "Z")
    fit = vi_baseline(X, y, prior, EPSILON, batches=[[0, 3, 5]], learn=learn, rate=0.01)
    derivatives = vi_gradients(X, y, prior, fit.posterior, EPSILON, np.array([0, 3, 5]))
    g = derivatives["lengthscales"] * prior.lengthscales  # in the logarithm
    # unbiased averages of one gradient are itself and its square: g/(|g| + 1e-8)
    step = np.log(fit.prior.lengthscales / prior.lengthscales)
    np.testing.assert_allclose(step, 0.01 * g / (np.abs(g) + 1e-8), rtol=1e-9, atol=0)
    g = derivatives["Z"]
    np.testing.assert_allclose(fit.prior.Z - prior.Z, 0.01 * g / (np.abs(g) + 1e-8), rtol=1e-9, atol=0)
    assert np.all(fit.prior.variance == prior.variance)


@pytest.mark.verifies(
    "villacampa2017", "u21-vi-baseline", route="joint maximum: derivatives in the prior vanish as well"
)
def test_learning_ends_where_neither_q_nor_prior_leads_up():
    X, y, prior = problem(n=8)
    same = Prior(*(np.broadcast_to(part[:1], part.shape).copy() for part in prior))
    # a distance of q of 1e-6 moves the bound by 1e-12, and its derivatives by 1e-6
    options = {"shared": True, "learn_tolerance": 1e-4, "tolerance": 1e-6}
    fit = vi_baseline(X, y, same, EPSILON, learn=("variance", "lengthscales"), **options)
    assert fit.converged
    assert fit.elbo > vi_baseline(X, y, same, EPSILON).elbo
    for name in ("variance", "lengthscales"):
        learned = getattr(fit.prior, name)
        assert np.all(learned == learned[:1])
        ends = []
        for side in (1e-4, -1e-4):
            moved = fit.prior._replace(**{name: learned * np.exp(side)})
            ends.append(bound_at(X, y, moved, fit.posterior))
        if np.all(np.abs(np.log(learned / getattr(same, name))) < 0.99 * np.log(1e4)):  # not held by the search's box
            # the search ends at 1e-4
            assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(0.0, rel=0, abs=2e-4)
    assert fit.elbo == pytest.approx(bound_at(X, y, fit.prior, fit.posterior), rel=1e-10, abs=0)


def test_mini_batches_are_drawn_by_the_seed_and_all_data_is_one():
    X, y, prior = problem()
    rng = np.random.default_rng(3)
    drawn = [rng.choice(6, 2, replace=False) for _ in range(4)]
    a = vi_baseline(X, y, prior, EPSILON, batch_size=2, n_steps=4, seed=3)
    b = vi_baseline(X, y, prior, EPSILON, batches=drawn)
    np.testing.assert_array_equal(a.posterior.mean, b.posterior.mean)
    assert a.iterations == b.iterations == 4
    a = vi_baseline(X, y, prior, EPSILON, learn="variance", n_steps=3)
    b = vi_baseline(X, y, prior, EPSILON, learn="variance", batches=[range(6)] * 3)
    np.testing.assert_array_equal(a.prior.variance, b.prior.variance)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1.0}, "epsilon"),
        ({"nat_rate": 0.0}, "nat_rate"),
        ({"nat_rate": 1.5}, "nat_rate"),
        ({"rate": 0.0}, "rate"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"optimizer": "sgd"}, "optimizer"),
        ({"optimizer": "lbfgs", "batch_size": 3}, "optimizer"),
        ({"batches": []}, "batches"),
        ({"batches": [[]]}, "batches"),
        ({"batches": [[6]]}, "batches"),
        ({"batches": [[0]], "n_steps": 2}, "n_steps"),
        ({"batch_size": 0}, "batch_size"),
        ({"n_steps": 3}, "n_steps"),
        ({"learn": ("jitter",)}, "learn"),
    ],
)
def test_a_bad_option_is_refused_by_name(change, name):
    with pytest.raises(ValueError, match=name):
        vi_baseline(*problem(), **change)


def test_a_start_that_is_far_in_the_units_of_the_prior_is_left():
    X, y, prior = problem()
    data, options = vi_fit.Data(X, y, 0.05), options_of("vi-robust")()
    top = vi_fit._ascend(data, prior, None, options)
    far = top.posterior._replace(mean=1e8 + top.posterior.mean)
    again = vi_fit._ascend(data, prior, far, options)
    assert again.converged
    assert again.elbo == pytest.approx(top.elbo, rel=1e-12)
