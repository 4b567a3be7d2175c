"""Stochastic natural gradients against the printed formulas in (eta_1, eta_2), dense and with inverses."""

from types import SimpleNamespace

import numpy as np
import pytest

from fast.core.values import Data, Prior
from fast.methods import x_gpc, x_gpc_svi
from fast.one_latent.stochastic import Settings, stochastic_ascent
from fast.solve.adam import AdamState, adam_step
from fast.solve.minibatch import Listed
from fast.solve.natural import (
    Natural,
    RateMemory,
    adaptive_rate,
    decaying_rate,
    natural_gradient,
    natural_step,
    unwhiten,
)
from values_given import binary, model_values


def step_prior(p, hyper, Z, dense_kernel):
    """K_ZZ and kappa(X) at given parameters."""
    K = dense_kernel(Z, Z, hyper["variance"], hyper["lengthscales"]) + p.jitter * np.eye(len(Z))
    inverse = np.linalg.inv(K)

    def at(X):
        K_XZ = dense_kernel(X, Z, hyper["variance"], hyper["lengthscales"])
        kappa = K_XZ @ inverse
        return kappa, hyper["variance"] + hyper["noise"] - np.einsum("bm,bm->b", kappa, K_XZ)

    return K, inverse, at


def batch_bound(p, hyper, Z, mu, Sigma, rows, dense_kernel):
    """(n/s) of the data terms at the best c less KL, from the definition."""
    K, inverse, at = step_prior(p, hyper, Z, dense_kernel)
    kappa, K_tilde = at(p.X[rows])
    mean = kappa @ mu
    c = np.sqrt(K_tilde + np.einsum("bm,mp,bp->b", kappa, Sigma, kappa) + mean**2)
    y = 2.0 * p.y[rows] - 1.0
    theta = np.tanh(c / 2) / (2 * c)
    local = -np.log(2) + y * mean / 2 - theta * c**2 / 2 + c**2 * theta / 2 - np.log(np.cosh(c / 2))
    kl = 0.5 * (
        np.trace(inverse @ Sigma) + mu @ inverse @ mu - len(mu) + np.linalg.slogdet(K)[1] - np.linalg.slogdet(Sigma)[1]
    )
    return len(p.y) / len(rows) * local.sum() - kl


def printed_run(p, batches, rate, dense_kernel, learn=(), learning_rate=0.01, init=None):
    """wenzel2019 (11), (12), the step, Ranganath's rate and Adam, as they are printed; derivatives by differences."""
    hyper = {"variance": p.variance, "lengthscales": np.array(p.lengthscales), "noise": p.noise}
    Z = p.Z.copy()
    n, m = len(p.y), len(p.Z)
    _, inverse, at = step_prior(p, hyper, Z, dense_kernel)
    eta_1, eta_2 = np.zeros(m), -0.5 * inverse

    def gradient(rows):
        Sigma = -0.5 * np.linalg.inv(eta_2)
        mu = Sigma @ eta_1
        kappa, K_tilde = at(p.X[rows])
        c = np.sqrt(K_tilde + np.einsum("bm,mp,bp->b", kappa, Sigma, kappa) + (kappa @ mu) ** 2)
        theta = np.tanh(c / 2) / (2 * c)
        scale = n / len(rows)
        return (
            0.5 * scale * kappa.T @ (2.0 * p.y[rows] - 1.0) - eta_1,
            -0.5 * (inverse + scale * kappa.T @ (theta[:, None] * kappa)) - eta_2,
        )

    looks = [np.concatenate([part.ravel() for part in gradient(rows)]) for rows in (init or batches[:10])]
    g_bar, h_bar, tau = np.mean(looks, axis=0), np.mean([g @ g for g in looks]), len(looks)
    first = second = 0.0
    rates, bounds = [], []
    for t, rows in enumerate(batches, 1):
        g_1, g_2 = gradient(rows)
        if rate == "adaptive":
            g = np.concatenate([g_1, g_2.ravel()])
            g_bar = (1 - 1 / tau) * g_bar + g / tau
            h_bar = (1 - 1 / tau) * h_bar + g @ g / tau
            rho = g_bar @ g_bar / h_bar
            tau = (1 - rho) * tau + 1
        else:
            rho = rate if isinstance(rate, float) else rate[1] * (t + rate[2]) ** -rate[3]
        eta_1, eta_2 = eta_1 + rho * g_1, eta_2 + rho * g_2
        Sigma = -0.5 * np.linalg.inv(eta_2)
        mu = Sigma @ eta_1
        rates.append(rho)
        bounds.append(batch_bound(p, hyper, Z, mu, Sigma, rows, dense_kernel))
        if learn:
            g = derivatives(p, hyper, Z, mu, Sigma, rows, learn, dense_kernel)
            first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
            move = learning_rate * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
            hyper, Z = moved(hyper, Z, learn, move)
            _, inverse, at = step_prior(p, hyper, Z, dense_kernel)
    return SimpleNamespace(
        mu=mu, Sigma=Sigma, rates=rates, bounds=bounds, hyper=hyper, Z=Z, g_bar=g_bar, h_bar=h_bar, tau=tau
    )


def moved(hyper, Z, learn, move):
    """Parameters after a move of their logarithms (of Z itself), in the order of `learn`."""
    hyper, at = dict(hyper), 0
    for name in learn:
        size = Z.size if name == "Z" else np.size(hyper[name])
        part = move[at : at + size]
        if name == "Z":
            Z = Z + part.reshape(Z.shape)
        else:
            hyper[name] = hyper[name] * np.exp(part if name == "lengthscales" else part[0])
        at += size
    return hyper, Z


def derivatives(p, hyper, Z, mu, Sigma, rows, learn, dense_kernel, h=2e-3):
    """Five-point differences of the batch bound: truncation h^4/30 times a fifth derivative, rounding 1e-14/h."""
    size = sum(Z.size if name == "Z" else np.size(hyper[name]) for name in learn)

    def value(step):
        return batch_bound(p, *moved(hyper, Z, learn, step), mu, Sigma, rows, dense_kernel)

    return np.array(
        [(8 * (value(h * e) - value(-h * e)) - value(2 * h * e) + value(-2 * h * e)) / (12 * h) for e in np.eye(size)]
    )


def make_batches(rng, n, size, count):
    return [rng.choice(n, size, replace=False) for _ in range(count)]


RATES = ["adaptive", 0.3, ("decay", 0.9, 1.0, 0.6)]


def close(left, right, tolerance):
    np.testing.assert_allclose(left, right, rtol=0, atol=tolerance * np.abs(right).max())


@pytest.mark.verifies("wenzel2019", "u4.3-svi", route="50 steps in the printed natural parameters, with inverses")
@pytest.mark.parametrize("rate", RATES)
def test_fifty_steps_are_those_of_the_printed_formulas(rng, make_problem, dense_kernel, rate):
    p = make_problem(n=40, m=6, jitter=1e-3)
    batches = make_batches(rng, 40, 7, 50)
    expected = printed_run(p, batches, rate, dense_kernel)
    got = x_gpc_svi.fit(*model_values(p), x_gpc_svi.XGPCSteps(batches=batches, rate=rate, trace=True))
    # condition of K_ZZ below 1e4: inverses lose 1e-12, which 50 steps do not amplify
    close(got.inducing_mean, expected.mu, 1e-10)
    close(got.inducing_cov, expected.Sigma, 1e-10)
    close(got.rates, expected.rates, 1e-10)
    close(got.trace, expected.bounds, 1e-10)
    assert not got.converged
    assert not got.diverged
    hyper = x_gpc_svi.inputs.hyper(p.variance, p.lengthscales, p.noise, p.jitter, 2)
    settings = Settings(50, rate[1:] if isinstance(rate, tuple) else rate, stop=None)
    outcome = stochastic_ascent(Listed(p.X, p.y, batches), x_gpc_svi.PolyaGamma(), hyper, p.Z, settings)
    close(outcome.inducing_mean, expected.mu, 1e-10)
    close(outcome.inducing_cov, expected.Sigma, 1e-10)
    close(outcome.rates, expected.rates, 1e-10)


def test_init_batches_start_the_adaptive_rate(rng, make_problem, dense_kernel):
    p = make_problem(n=40, m=6, jitter=1e-3)
    batches, init = make_batches(rng, 40, 7, 5), make_batches(rng, 40, 9, 3)
    expected = printed_run(p, batches, "adaptive", dense_kernel, init=init)
    got = x_gpc_svi.fit(*model_values(p), x_gpc_svi.XGPCSteps(batches=batches, init_batches=init))
    close(got.rates, expected.rates, 1e-10)  # condition of K_ZZ below 1e4
    other = x_gpc_svi.fit(*model_values(p), x_gpc_svi.XGPCSteps(batches=batches))
    assert abs(other.rates[0] - got.rates[0]) > 1e-3


@pytest.mark.verifies("wenzel2019", "u4.3-hyper", route="Adam on derivatives by finite differences, dense algebra")
@pytest.mark.parametrize(
    "learn", [("variance", "lengthscales", "noise"), ("variance", "lengthscales", "noise", "Z"), ("Z",)]
)
def test_learning_takes_the_steps_of_adam_on_the_derivatives_of_the_batch_bound(rng, make_problem, dense_kernel, learn):
    p = make_problem(n=30, m=4, jitter=1e-2)
    batches = make_batches(rng, 30, 8, 12)
    expected = printed_run(p, batches, "adaptive", dense_kernel, learn=learn, learning_rate=0.05)
    hyper = x_gpc_svi.inputs.hyper(p.variance, p.lengthscales, p.noise, p.jitter, 2)
    settings = Settings(12, learn=learn, learning_rate=0.05, stop=None, trace=True)
    got = stochastic_ascent(Listed(p.X, p.y, batches), x_gpc_svi.PolyaGamma(), hyper, p.Z, settings)
    kernel = got.state.kernel
    # derivatives by differences are good to 1e-9 of the largest; Adam divides small ones by themselves
    np.testing.assert_allclose(kernel.hyper.variance, expected.hyper["variance"], rtol=1e-6, atol=0)
    np.testing.assert_allclose(kernel.hyper.lengthscales, expected.hyper["lengthscales"], rtol=1e-6, atol=0)
    np.testing.assert_allclose(kernel.hyper.noise, expected.hyper["noise"], rtol=1e-6, atol=0)
    np.testing.assert_allclose(kernel.Z, expected.Z, rtol=0, atol=1e-6)
    close(got.inducing_mean, expected.mu, 1e-5)
    close(got.inducing_cov, expected.Sigma, 1e-5)
    close(got.elbo_estimates, expected.bounds, 1e-6)
    close(got.rates, expected.rates, 1e-5)


@pytest.mark.verifies("wenzel2019", "12", "A.3-natural", route="dense printed formula, mapped by explicit inverses")
@pytest.mark.parametrize("scale", [1.0, 3.5])
def test_the_natural_gradient_is_the_printed_one_in_whitened_coordinates(rng, make_problem, dense_sparse, scale):
    p = make_problem(jitter=1e-3)
    dense = dense_sparse(**vars(p))
    theta, y = 0.25 * rng.random(len(p.y)), 2.0 * p.y - 1.0
    m = len(p.Z)
    root = rng.normal(size=(m, m))
    precision, shift = np.eye(m) + root @ root.T, rng.normal(size=m)
    L = np.linalg.cholesky(dense.K_ZZ)
    inverse_L = np.linalg.inv(L)
    eta_1, eta_2 = inverse_L.T @ shift, -0.5 * inverse_L.T @ precision @ inverse_L
    g_1 = 0.5 * scale * dense.kappa.T @ y - eta_1
    g_2 = -0.5 * (dense.inverse + scale * dense.kappa.T @ (theta[:, None] * dense.kappa)) - eta_2
    got = natural_gradient(dense.K_XZ @ inverse_L.T, 0.5 * y, theta, scale, shift, precision)
    close(got.first, L.T @ g_1, 1e-10)  # condition of K_ZZ below 1e4
    close(got.second, L.T @ g_2 @ L, 1e-10)


@pytest.mark.verifies("wenzel2019", "u4.3-natural-params", route="definition by inverses")
def test_unwhitening_gives_the_natural_parameters_and_moments_their_inverse_map(rng, make_problem, dense_sparse):
    p = make_problem(jitter=1e-3)
    got = x_gpc_svi.fit(*model_values(p), x_gpc_svi.XGPCSteps(batches=make_batches(rng, 14, 4, 6)))
    state = got.state
    natural = unwhiten(Natural(state.shift, -0.5 * state.precision), state.kernel.chol_K)
    mu, Sigma = got.moments
    close(natural.first, np.linalg.solve(Sigma, mu), 1e-9)  # condition of Sigma below 1e4
    close(natural.second, -0.5 * np.linalg.inv(Sigma), 1e-9)
    close(natural.second, got.natural.second, 1e-15)
    L = np.linalg.cholesky(dense_sparse(**vars(p)).K_ZZ)
    direct = np.linalg.inv(state.precision)
    close(mu, L @ direct @ state.shift, 1e-10)
    close(Sigma, L @ direct @ L.T, 1e-10)


@pytest.mark.verifies("wenzel2019", "u4.3-step", "A.4-eta1", route="definition, and eta_1 = kappa'y/2 at rate 1")
def test_a_step_adds_the_gradient_and_a_whole_one_lands_on_the_coordinate_optimum(rng, make_problem, dense_sparse):
    p = make_problem(jitter=1e-3)
    dense = dense_sparse(**vars(p))
    m = len(p.Z)
    L = np.linalg.cholesky(dense.K_ZZ)
    rows = np.linalg.solve(L, dense.K_XZ.T).T
    theta, y = 0.25 * rng.random(len(p.y)), 2.0 * p.y - 1.0
    shift, precision = rng.normal(size=m), 3.0 * np.eye(m)
    gradient = natural_gradient(rows, 0.5 * y, theta, 1.0, shift, precision)
    got = natural_step(shift, precision, gradient, 0.25)
    close(got.shift, shift + 0.25 * gradient.first, 1e-14)
    close(-0.5 * got.precision, -0.5 * precision + 0.25 * gradient.second, 1e-14)
    whole = natural_step(shift, precision, gradient, 1.0)
    eta_1 = np.linalg.solve(L.T, whole.shift)
    close(eta_1, 0.5 * dense.kappa.T @ y, 1e-10)  # condition of K_ZZ below 1e4
    eta_2 = -0.5 * np.linalg.inv(L).T @ whole.precision @ np.linalg.inv(L)
    close(eta_2, -0.5 * (dense.inverse + dense.kappa.T @ (theta[:, None] * dense.kappa)), 1e-9)


@pytest.mark.parametrize("shrink", [1.0, 1e-3])
def test_the_precision_stays_above_the_prior_whatever_the_batches(rng, make_problem, shrink):
    p = make_problem(n=40, m=12, jitter=1e-8)
    p.Z = shrink * p.Z  # nearly equal inducing points: K_ZZ is ill conditioned
    got = x_gpc_svi.fit(*model_values(p), x_gpc_svi.XGPCSteps(batches=[np.array([k % 40]) for k in range(80)]))
    # P is a convex combination of matrices >= I, up to rounding of its largest entry
    assert np.linalg.eigvalsh(got.state.precision)[0] > 1.0 - 1e-12 * np.abs(got.state.precision).max()


@pytest.mark.verifies("wenzel2019", "u4.3-adaptive-rate", route="definition on flat vectors")
def test_the_adaptive_rate_is_the_ratio_of_the_running_averages(rng):
    memory = RateMemory.empty(3)
    looks = [Natural(rng.normal(size=3), rng.normal(size=(3, 3))) for _ in range(4)]

    def flat(g):
        return np.concatenate([g.first, g.second.ravel()])

    for g in looks:
        memory.look(g)
    g_bar, h_bar, tau = np.mean([flat(g) for g in looks], axis=0), np.mean([flat(g) @ flat(g) for g in looks]), 4.0
    for _ in range(20):
        g = Natural(0.5 + rng.normal(size=3), rng.normal(size=(3, 3)))
        g_bar = (1 - 1 / tau) * g_bar + flat(g) / tau
        h_bar = (1 - 1 / tau) * h_bar + flat(g) @ flat(g) / tau
        rho = g_bar @ g_bar / h_bar
        tau = (1 - rho) * tau + 1
        # sums of 12 terms, averaged
        np.testing.assert_allclose(adaptive_rate(memory, g), rho, rtol=1e-12, atol=0)
        np.testing.assert_allclose(memory.length, tau, rtol=1e-12, atol=0)


def test_the_adaptive_rate_of_equal_gradients_is_one_and_of_none_too():
    memory = RateMemory.empty(2)
    g = Natural(np.array([1.0, 2.0]), np.eye(2))
    memory.look(g)
    assert [adaptive_rate(memory, g) for _ in range(5)] == pytest.approx([1.0] * 5, rel=1e-15, abs=0)
    empty = RateMemory.empty(2)
    empty.look(Natural(np.zeros(2), np.zeros((2, 2))))
    assert adaptive_rate(empty, Natural(np.zeros(2), np.zeros((2, 2)))) == 1.0


def test_the_decaying_rate_is_a_power_of_time():
    np.testing.assert_allclose(decaying_rate(3, (0.5, 1.0, 0.5)), 0.25, rtol=1e-15, atol=0)


@pytest.mark.verifies("wenzel2019", "u5-adam", route="sums over the whole history instead of recursions")
def test_adam_is_the_ratio_of_weighted_sums_over_the_history(rng):
    state, history = AdamState.start(4), []
    for t in range(1, 30):
        history.append(rng.normal(size=4) * 10.0 ** np.arange(-4, 4, 2))
        step, state = adam_step(history[-1], state, 0.03)
        ages = t - 1 - np.arange(t)
        first = (0.9**ages) @ np.array(history) / (0.9**ages).sum()
        second = (0.999**ages) @ np.array(history) ** 2 / (0.999**ages).sum()
        # thirty terms of one recursion against their sum
        np.testing.assert_allclose(step, 0.03 * first / (np.sqrt(second) + 1e-8), rtol=1e-11, atol=1e-13)
    assert state.iteration == 29
    np.testing.assert_allclose(state.first, 0.1 * (0.9**ages) @ np.array(history), rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(state.second, 0.001 * (0.999**ages) @ np.array(history) ** 2, rtol=1e-11, atol=1e-20)


def test_all_data_at_rate_one_is_coordinate_ascent(make_problem):
    p = make_problem(n=30, m=6)
    everything = [np.arange(30)] * 4
    got = x_gpc_svi.fit(*model_values(p), x_gpc_svi.XGPCSteps(batches=everything, rate=1.0, trace=True))
    prior = x_gpc.prepare(*model_values(p))
    c = np.sqrt(prior.prior_var)  # q(u) = p(u)
    for _ in range(4):
        sweep = x_gpc.sweep(prior, c)
        c = sweep.c
    # the same numbers by another order of summation; condition of I + A Theta A' below 1e2
    close(got.state.weights, sweep.evaluation.weights, 1e-12)
    close(got.state.factor, sweep.evaluation.factor, 1e-12)
    # the batch is all data: its estimate is the bound
    np.testing.assert_allclose(got.trace[-1], x_gpc_svi.bound(got, p.X, p.y), rtol=1e-13, atol=0)


def test_the_run_reaches_the_fixed_point_of_coordinate_ascent():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    y = (rng.random(2000) < 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))).astype(int)
    arguments = (X, y, 2.0, np.ones(2), 0.1, 1e-6, X[:15])
    exact = x_gpc.fit(*binary(x_gpc.XGPCOptions, *arguments))
    got = x_gpc_svi.fit(*binary(x_gpc_svi.XGPCSteps, *arguments, n_steps=4000))
    assert got.converged
    assert "mean change" in got.reason
    # 1/t averaging over 200 epochs: a loss of some nats out of a thousand at the most
    assert 0.0 <= exact.elbo - x_gpc_svi.bound(got, X, y) < 2.0


def test_predictions_are_those_of_coordinate_ascent_at_the_same_posterior(make_problem):
    p = make_problem(n=30, m=6)
    exact = x_gpc.fit(*model_values(p))
    got = x_gpc_svi.fit(*model_values(p), x_gpc_svi.XGPCSteps(batches=[np.arange(30)] * 60, rate=1.0))
    X_test = np.random.default_rng(1).normal(size=(200, 2))
    one, other = x_gpc.predict(exact, X_test), x_gpc_svi.predict(got, X_test)
    # 60 sweeps contract to rounding
    np.testing.assert_allclose(other.probabilities, one.probabilities, rtol=1e-8, atol=0)
    np.testing.assert_allclose(other.latent_var, one.latent_var, rtol=1e-8, atol=0)
    parts = list(x_gpc_svi.predict_blocks(got, [X_test[:77], X_test[77:]], block_size=64))
    np.testing.assert_allclose(
        np.concatenate([part.probabilities for part in parts]), other.probabilities, rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("holdout", [0.5, 3, (1.0,), "ab", np.zeros((2, 2))])
def test_a_holdout_that_is_no_pair_is_refused_by_name(holdout):
    X, y = np.zeros((3, 1)), np.array([-1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"holdout: found .*, expected None or a pair \(X, y\)"):
        x_gpc_svi.fit(
            Data(X, y),
            Prior(variance=1.0, lengthscales=np.ones(1), noise=0.0, jitter=1e-6, Z=np.zeros((1, 1))),
            x_gpc_svi.XGPCSteps(holdout=holdout),
        )
