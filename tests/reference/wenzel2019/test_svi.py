"""Stochastic ascent and learning of x-gpc: dense moment-space steps, finite differences, known fixed points."""

import numpy as np
import pytest
from scipy.optimize import minimize

from reference.common.priors import Hyper
from reference.wenzel2019.bound import xgpc_bound
from reference.wenzel2019.fit import fit_xgpc
from reference.wenzel2019.fit_svi import fit_xgpc_svi, optimise_hyperparameters
from reference.wenzel2019.svi import batch_bound, batch_bound_gradients, svi_gradient

LENGTHSCALES = np.array([0.9, 1.6])
PRIOR = (2.0, LENGTHSCALES, 0.2, 1e-3)


def data(rng, n=24):
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] - 0.5 * X[:, 1] + 0.7 * rng.normal(size=n) > 0, 1.0, -1.0)


def prior_matrices(X, Z, variance, lengthscales, noise, jitter):
    """K_mm, κ and K̃ by linear solves."""

    def k(A, B):
        return variance * np.exp(-0.5 * np.sum(((A[:, None] - B[None]) / lengthscales) ** 2, axis=2))

    K = k(Z, Z) + jitter * np.eye(len(Z))
    kappa = np.linalg.solve(K, k(Z, X)).T
    return K, kappa, variance + noise - np.sum(kappa * k(X, Z), axis=1)


def gradients_by_hand(mu, Sigma, batch, y, K, kappa, cond):
    """(12) for one mini-batch with c from (11), a sum over its data."""
    n, s = len(y), len(batch)
    precision = np.linalg.inv(Sigma)
    g1, g2 = -precision @ mu, -0.5 * np.linalg.inv(K) + 0.5 * precision
    for i in batch:
        c = np.sqrt(cond[i] + kappa[i] @ Sigma @ kappa[i] + (kappa[i] @ mu) ** 2)
        g1 = g1 + n / s * 0.5 * y[i] * kappa[i]
        g2 = g2 - 0.5 * n / s * np.tanh(c / 2) / (2 * c) * np.outer(kappa[i], kappa[i])
    return g1, g2


@pytest.mark.verifies("wenzel2019", "u4.3-svi", route="sum over the mini-batch in moment coordinates")
@pytest.mark.parametrize("rate", ["adaptive", 0.3, ("decay", 0.9, 1.0, 0.7)])
def test_steps_are_those_of_a_plain_loop_over_the_mini_batches(rng, rate):
    X, y = data(rng)
    Z = X[:5] + 0.1
    K, kappa, cond = prior_matrices(X, Z, *PRIOR)
    batches = [rng.choice(24, 6, replace=False) for _ in range(12)]
    init = batches[4:7]
    mu, Sigma = np.zeros(5), K
    eta_1, eta_2 = np.zeros(5), -0.5 * np.linalg.inv(K)
    first = [np.concatenate([a, b.ravel()]) for a, b in (gradients_by_hand(mu, K, S, y, K, kappa, cond) for S in init)]
    g_bar, h_bar, tau = sum(first) / 3, sum(g @ g for g in first) / 3, 3.0
    rates, trace = [], []
    for t, S in enumerate(batches, start=1):
        g1, g2 = gradients_by_hand(mu, Sigma, S, y, K, kappa, cond)
        if rate == "adaptive":
            g = np.concatenate([g1, g2.ravel()])
            g_bar, h_bar = g_bar + (g - g_bar) / tau, h_bar + (g @ g - h_bar) / tau
            rho = g_bar @ g_bar / h_bar
            tau = (1 - rho) * tau + 1
        else:
            rho = rate if isinstance(rate, float) else 0.9 * (t + 1.0) ** -0.7
        eta_1, eta_2 = eta_1 + rho * g1, eta_2 + rho * g2
        Sigma = np.linalg.inv(-2 * eta_2)
        mu = Sigma @ eta_1
        rates.append(rho)
        every = np.sqrt(cond + np.sum(kappa @ Sigma * kappa, axis=1) + (kappa @ mu) ** 2)
        # the data terms of S, scaled, by way of the bound with and without data
        none = xgpc_bound(mu, Sigma, every[:0], y[:0], K, kappa[:0], cond[:0])
        some = xgpc_bound(mu, Sigma, every[S], y[S], K, kappa[S], cond[S])
        trace.append(none + 24 / 6 * (some - none))
    got = fit_xgpc_svi(X, y, *PRIOR, Z, batches=batches, init_batches=init, rate=rate, trace=True)
    # a condition of K_ZZ below 1e4 times eps, over twelve steps
    np.testing.assert_allclose(got.rates, rates, rtol=1e-9, atol=0)
    np.testing.assert_allclose(got.inducing_mean, mu, rtol=0, atol=1e-9)
    np.testing.assert_allclose(got.inducing_cov, Sigma, rtol=0, atol=1e-9)
    np.testing.assert_allclose(got.trace, trace, rtol=1e-9, atol=0)
    assert got.iterations == 12


@pytest.mark.verifies("wenzel2019", "u4.3-svi", route="sum over the mini-batch in moment coordinates")
def test_the_noisy_gradient_sets_the_local_parameters_first(model):
    precision = np.linalg.inv(model.Sigma)
    batch = np.array([4, 0, 3])
    got = svi_gradient(
        precision @ model.mu, -0.5 * precision, batch, model.y, model.kappa, model.cond_var, model.K_ZZ_inv
    )
    wanted = gradients_by_hand(model.mu, model.Sigma, batch, model.y, model.K_ZZ, model.kappa, model.cond_var)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * np.max(np.abs(b)))  # conditions below 1e4


@pytest.mark.verifies("wenzel2019", "10", route="scaled data terms of the bound with and without data")
def test_the_estimate_of_the_bound_is_the_bound_for_all_data_and_its_mean_for_single_ones(model):
    s = model
    c = np.sqrt(s.cond_var + np.sum(s.kappa @ s.Sigma * s.kappa, axis=1) + (s.kappa @ s.mu) ** 2)
    full = xgpc_bound(s.mu, s.Sigma, c, s.y, s.K_ZZ, s.kappa, s.cond_var)
    args = (s.y, s.K_ZZ, s.kappa, s.cond_var)
    none = xgpc_bound(s.mu, s.Sigma, c[:0], s.y[:0], s.K_ZZ, s.kappa[:0], s.cond_var[:0])
    single = []
    for i in range(s.n):
        one = slice(i, i + 1)
        with_i = xgpc_bound(s.mu, s.Sigma, c[one], s.y[one], s.K_ZZ, s.kappa[one], s.cond_var[one])
        single.append(none + s.n * (with_i - none))
    got = [batch_bound(s.mu, s.Sigma, np.array([i]), *args) for i in range(s.n)]
    # sums of ten terms of size up to 10
    np.testing.assert_allclose(got, single, rtol=1e-11, atol=0)
    assert np.mean(got) == pytest.approx(full, rel=1e-11, abs=0)


@pytest.mark.verifies("wenzel2019", "u4.3-hyper", route="finite differences of the estimate of the bound")
@pytest.mark.parametrize("sparse", [True, False])
def test_gradients_of_the_estimate_are_its_differences_at_fixed_moments(rng, sparse):
    X, y = data(rng, n=8)
    batch = np.array([1, 5, 6])
    m = 3 if sparse else 8
    mu, root = rng.normal(size=m), 0.3 * rng.normal(size=(m, m))
    Sigma = root @ root.T + 0.2 * np.eye(m)
    hyper = Hyper(*PRIOR, X[:3] + 0.2 if sparse else None)

    def value(variance, lengthscales, noise, jitter, Z):
        if sparse:
            K, kappa, cond = prior_matrices(X, Z, variance, lengthscales, noise, jitter)
        else:
            K, kappa, cond = prior_matrices(X, X, variance, lengthscales, noise, noise + jitter)
            kappa, cond = np.eye(8), np.zeros(8)
        return batch_bound(mu, Sigma, batch, y, K, kappa, cond)

    got = batch_bound_gradients(X, y, hyper, mu, Sigma, batch)
    assert ("Z" in got) == sparse
    h = 6e-6
    for field, derivative in got.items():
        base = np.asarray(getattr(hyper, field))
        for place in np.ndindex(base.shape):
            move = np.zeros(base.shape)
            move[place] = h
            up, down = (value(*hyper._replace(**{field: base + sign * move})) for sign in (1, -1))
            # step² times third derivatives, and rounding of 1e-12 over the step
            np.testing.assert_allclose(np.asarray(derivative)[place], (up - down) / (2 * h), rtol=1e-5, atol=1e-5)


@pytest.mark.verifies("wenzel2019", "u4.3-svi", route="fixed point of coordinate ascent")
def test_all_data_at_rate_one_is_coordinate_ascent(rng):
    X, y = data(rng)
    exact = fit_xgpc(X, y, *PRIOR, X[:5])
    got = fit_xgpc_svi(X, y, *PRIOR, X[:5], batches=[np.arange(24)] * 80, rate=1.0)
    # contraction below ½ over 80 sweeps; a condition below 1e4
    np.testing.assert_allclose(got.inducing_mean, exact.inducing_mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(got.inducing_cov, exact.inducing_cov, rtol=0, atol=1e-8)
    assert got.elbo == pytest.approx(exact.elbo, rel=1e-10, abs=0)
    assert got.converged is False  # no rule was asked for


@pytest.mark.verifies("wenzel2019", "u4.3-hyper", route="simplex search of the fitted bound")
def test_the_search_ends_where_a_search_without_gradients_does(rng):
    X, y = data(rng, n=40)
    y[:3] *= -1.0  # labels that disagree keep the variance finite
    Z = X[:4]
    got = optimise_hyperparameters(X, y, 1.0, np.ones(2), 0.3, 1e-4, Z, learn=("variance", "noise"))
    assert got.converged
    assert got.fit.elbo >= got.trace[0]

    def loss(logs):
        return -fit_xgpc(X, y, np.exp(logs[0]), np.ones(2), 0.3, 1e-4, Z, tolerance=1e-9).elbo

    one = optimise_hyperparameters(X, y, 1.0, np.ones(2), 0.3, 1e-4, Z, learn=("variance",))
    optimum = minimize(loss, [0.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12})
    # a maximum without gradients is found to the square root of the bound's rounding
    assert np.log(one.hyper.variance) == pytest.approx(optimum.x[0], rel=0, abs=2e-5)
    assert one.fit.elbo == pytest.approx(-optimum.fun, rel=0, abs=1e-9)


def test_the_first_adam_step_moves_every_logarithm_by_the_rate(rng):
    X, y = data(rng)
    Z = X[:5] + 0.1
    visited = []
    fields = ("variance", "lengthscales", "noise", "Z")
    got = fit_xgpc_svi(X, y, *PRIOR, Z, batches=[np.arange(9)], rate=0.5, learn=fields, callback=visited.append)
    still = fit_xgpc_svi(X, y, *PRIOR, Z, batches=[np.arange(9)], rate=0.5)
    signs = batch_bound_gradients(X, y, Hyper(*PRIOR, Z), still.inducing_mean, still.inducing_cov, np.arange(9))
    # g/(|g| + 1e-8) is the sign up to 1e-8/|g|
    assert np.log(got.hyper.variance / 2.0) == pytest.approx(0.01 * np.sign(signs["variance"]), rel=1e-5, abs=0)
    np.testing.assert_allclose(
        np.log(got.hyper.lengthscales / LENGTHSCALES), 0.01 * np.sign(signs["lengthscales"]), rtol=1e-5
    )
    np.testing.assert_allclose(got.hyper.Z - Z, 0.01 * np.sign(signs["Z"]), rtol=1e-4)
    np.testing.assert_array_equal(got.inducing_mean, still.inducing_mean)
    assert visited[0].hyper == got.hyper or visited[0].hyper.variance == got.hyper.variance


def test_drawn_batches_stop_by_the_rule_and_repeat_with_the_seed(rng):
    X, y = data(rng, n=60)
    a, b = (fit_xgpc_svi(X, y, *PRIOR, X[:5], batch_size=20, n_steps=400, stop=0.02, seed=3) for _ in range(2))
    assert a.converged
    assert a.iterations < 400
    assert a.residual < 0.02
    np.testing.assert_array_equal(a.inducing_mean, b.inducing_mean)


RATES = r"'adaptive' or \('decay', rho0, tau, kappa\) or a number in \[1e-8, 1\]"
BAD = [
    ({"batches": [[]]}, r"batches\[0\]: found shape \(0,\), expected a list of at least one index"),
    ({"batches": []}, r"batches: found an empty list"),
    ({"batches": [[0, 24]]}, r"batches\[0\]: found index 24, expected 0 to 23"),
    ({"batches": [[0], [-1]]}, r"batches\[1\]: found index -1, expected >= 0"),
    ({"batches": [[0.5]]}, r"batches\[0\]: found dtype float64, expected whole numbers"),
    ({"batches": [[0], [[1, 2]]]}, r"batches\[1\]: found shape \(1, 2\), expected a list of at least one index"),
    ({"batches": [np.ma.array([1])]}, r"batches\[0\]: found a masked array of dtype int64, expected whole numbers"),
    ({"init_batches": []}, r"init_batches: found an empty list"),
    ({"batches": [[0]], "n_steps": 2}, r"n_steps: found 2, expected at most 1"),
    ({"batch_size": 0}, r"batch_size: found 0"),
    ({"rate": 1.5}, rf"rate: found 1.5, expected {RATES}"),
    ({"rate": 0.0}, rf"rate: found 0.0, expected {RATES}"),
    ({"rate": "fast"}, r"rate: found 'fast', expected 'adaptive'"),
    ({"rate": ("decay", 3.0, 0.0, 0.5)}, r"rate: found .*, which starts above 1"),
    ({"learn": ("jitter",)}, r"learn: found \('jitter',\), expected some of variance, lengthscales, noise, Z, each"),
    ({"learn": "noise", "noise": 0.0}, r"learn: found 'noise' with noise = 0"),
    ({"learn": "Z", "Z": None}, r"learn: found 'Z' in a full GP"),
    ({"stop": "now"}, r"stop: found 'now'"),
    ({"callback": 1}, r"callback: found 1"),
    ({"learn": "variance", "learning_rate": 1e3}, r"learning_rate: found "),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_settings_and_divergence_are_named(rng, change, message):
    X, y = data(rng)
    good = dict(zip(("variance", "lengthscales", "noise", "jitter"), PRIOR, strict=True)) | {"Z": X[:5]}
    with pytest.raises(ValueError, match=message):
        fit_xgpc_svi(X, y, **(good | change))
    if "learn" in change and "learning_rate" not in change:
        with pytest.raises(ValueError, match=message):
            optimise_hyperparameters(X, y, **(good | change))
