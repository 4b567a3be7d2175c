"""epgpc: EP against exact small cases, a sequential dense EP, orthant probabilities and finite differences."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import multivariate_normal, norm

from fast.core.errors import NotPositiveDefiniteError
from fast.core.values import Data, Prior
from fast.methods import epgpc, epgpc_svi
from fast.solve.adam import Packing
from values_given import binary


def arguments(p):
    return p.X, p.y, p.variance, p.lengthscales, p.noise, p.jitter, p.Z


def latent_prior(p, dense_kernel, dense_sparse):
    """Prior covariance of f: FITC's if there are inducing points."""
    if p.Z is None:
        return dense_kernel(p.X, p.X, p.variance, p.lengthscales) + (p.noise + p.jitter) * np.eye(len(p.X))
    result = dense_sparse(*arguments(p))
    return result.kappa @ result.K_XZ.T + np.diag(np.diag(result.K_tilde))


def sequential_ep(K, sign, sweeps=200):
    """EP on f itself, one site after the other, with explicit inverses: Rasmussen and Williams (2006), section 3.6."""
    n = len(sign)
    tau, nu = np.zeros(n), np.zeros(n)
    for _ in range(sweeps):
        for i in range(n):
            Sigma = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
            mu = Sigma @ nu
            tau_c, nu_c = 1 / Sigma[i, i] - tau[i], mu[i] / Sigma[i, i] - nu[i]
            m, v = nu_c / tau_c, 1 / tau_c
            z = sign[i] * m / np.sqrt(1 + v)
            ratio = np.exp(norm.logpdf(z) - log_ndtr(z))
            mean = m + sign[i] * v * ratio / np.sqrt(1 + v)
            var = v - v**2 * ratio / (1 + v) * (z + ratio)
            tau[i], nu[i] = 1 / var - tau_c, mean / var - nu_c
    Sigma = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
    mu = Sigma @ nu
    var_c = 1 / (1 / np.diag(Sigma) - tau)
    mean_c = var_c * (mu / np.diag(Sigma) - nu)
    # log Z_EP: sites as densities of their mean, (3.65) there
    log_z = log_ndtr(sign * mean_c / np.sqrt(1 + var_c)).sum()
    log_z += (
        0.5 * np.log(2 * np.pi * (var_c + 1 / tau)).sum() + 0.5 * ((mean_c - nu / tau) ** 2 / (var_c + 1 / tau)).sum()
    )
    log_z += multivariate_normal.logpdf(nu / tau, np.zeros(n), K + np.diag(1 / tau))
    return mu, np.diag(Sigma), log_z


@pytest.mark.parametrize("full", [False, True])
def test_the_fixed_point_is_that_of_sequential_ep_on_the_latent_values(make_problem, dense_kernel, dense_sparse, full):
    p = make_problem(n=8, m=3, full=full, jitter=1e-3)
    posterior = epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p), tolerance=1e-12))
    mean, var, log_z = sequential_ep(latent_prior(p, dense_kernel, dense_sparse), 2.0 * p.y - 1, sweeps=60)
    # explicit inverses of condition below 1e4; 60 sweeps contract below rounding
    np.testing.assert_allclose(posterior.latent_mean, mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(posterior.latent_var, var, rtol=0, atol=1e-9)
    np.testing.assert_allclose(posterior.log_evidence, log_z, rtol=0, atol=1e-9)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("full", [False, True])
def test_one_datum_is_exact(label, full):
    Z = None if full else np.array([[0.4]])
    posterior = epgpc.fit(Data(np.zeros((1, 1)), np.array([label])), Prior(2.0, np.ones(1), 0.5, 1e-3, Z))
    var = 2.5 + (1e-3 if full else 0.0)
    sign = 2 * label - 1
    moments = [
        quad(lambda f, k=k: f**k * norm.cdf(sign * f) * norm.pdf(f, 0, np.sqrt(var)), -25, 25, epsabs=1e-13)[0]
        for k in range(3)
    ]
    # quad to 1e-13
    np.testing.assert_allclose(posterior.log_evidence, np.log(0.5), rtol=1e-12)
    np.testing.assert_allclose(posterior.latent_mean[0], moments[1] / moments[0], rtol=1e-10)
    np.testing.assert_allclose(
        posterior.latent_var[0], moments[2] / moments[0] - (moments[1] / moments[0]) ** 2, rtol=1e-9
    )


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("full", [False, True])
def test_log_z_is_near_the_orthant_probability(make_problem, dense_kernel, dense_sparse, n, full):
    p = make_problem(n=n, m=2, full=full, variance=3.0)
    sign = np.diag(2.0 * p.y - 1)
    cov = sign @ latent_prior(p, dense_kernel, dense_sparse) @ sign + np.eye(n)
    truth = np.log(multivariate_normal.cdf(np.zeros(n), np.zeros(n), cov, abseps=1e-10, releps=1e-10))
    # EP is no bound; on three probit data it errs in the third digit of a nat
    np.testing.assert_allclose(
        epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p))).log_evidence, truth, rtol=0, atol=5e-3
    )


def test_data_that_do_not_speak_to_each_other_are_exact(make_problem):
    # far apart under a short lengthscale: f independent, log Z = n log(1/2)
    p = make_problem(n=6, full=True)
    p.X = 100.0 * np.arange(12.0).reshape(6, 2)
    np.testing.assert_allclose(
        epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p))).log_evidence, -6 * np.log(2), rtol=1e-13
    )


@pytest.mark.parametrize(("damping", "accelerate"), [(1.0, False), (0.4, False), (0.4, True)])
def test_every_road_reaches_one_fixed_point(make_problem, damping, accelerate):
    p = make_problem(n=60, m=8, variance=10.0)
    posterior = epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p), damping=damping, accelerate=accelerate))
    other = epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p)))
    assert posterior.converged
    assert posterior.n_improper == 0
    np.testing.assert_allclose(posterior.log_evidence, other.log_evidence, rtol=1e-12)  # stationary in the sites
    np.testing.assert_allclose(posterior.inducing_mean, other.inducing_mean, rtol=0, atol=1e-8)


def test_inducing_points_at_the_data_give_the_full_process(make_problem):
    p = make_problem(n=10, noise=0.2, jitter=0.0)
    p.lengthscales = p.lengthscales / 4  # K_XX well conditioned without jitter
    whole = epgpc.fit(*binary(epgpc.EPGPCOptions, *(*arguments(p)[:6], None)))
    p.Z = p.X.copy()
    posterior = epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p)))
    # f given u at the same inputs is u plus the noise: FITC is the full process. Condition of K_ZZ below 1e4
    np.testing.assert_allclose(posterior.log_evidence, whole.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(posterior.latent_mean, whole.latent_mean, rtol=0, atol=1e-8)
    one, other = epgpc.predict(posterior, p.X + 0.1), epgpc.predict(whole, p.X + 0.1)
    np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=0, atol=1e-9)


def test_prediction_integrates_over_the_inducing_values(make_problem, dense_kernel, dense_sparse):
    p = make_problem(jitter=1e-4)
    posterior = epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p)))
    X_test = p.X[:3] + 0.3
    k = dense_kernel(X_test, p.Z, p.variance, p.lengthscales)
    kappa = k @ dense_sparse(*arguments(p)).inverse
    var = p.variance + p.noise - np.einsum("tm,tm->t", kappa, k)
    var += np.einsum("tm,mp,tp->t", kappa, posterior.inducing_cov, kappa)
    got = epgpc.predict(posterior, X_test)
    # explicit inverses of condition below 1e5
    np.testing.assert_allclose(got.latent_mean, kappa @ posterior.inducing_mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(got.latent_var, var, rtol=0, atol=1e-8)
    chance = norm.cdf(got.latent_mean / np.sqrt(1 + got.latent_var))
    np.testing.assert_allclose(got.probabilities[:, 1], chance, rtol=1e-13)


@pytest.mark.parametrize("full", [False, True])
def test_gradients_are_differences_of_the_reconverged_log_z(make_problem, full):
    p = make_problem(n=12, m=3, full=full, jitter=1e-3)
    got = epgpc.gradients(epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p), tolerance=1e-12)))

    def derivative(field, index, h=1e-5):
        values = []
        for sign in (1, -1):
            q = SimpleNamespace(**vars(p))
            moved = np.array(getattr(p, field), dtype=float)
            moved[index] += sign * h
            setattr(q, field, moved if moved.ndim else float(moved))
            values.append(epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(q), tolerance=1e-12)).log_evidence)
        return (values[0] - values[1]) / (2 * h)

    # central differences: h^2 times a third derivative below 1e3, rounding 1e-14 / h
    np.testing.assert_allclose(got.variance, derivative("variance", ()), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(got.noise, derivative("noise", ()), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        got.lengthscales, [derivative("lengthscales", j) for j in range(2)], rtol=1e-6, atol=1e-8
    )
    if not full:
        numeric = [[derivative("Z", (i, j)) for j in range(2)] for i in range(3)]
        np.testing.assert_allclose(got.Z, numeric, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("log_variance", [-30.0, -8.0, -2.0, 4.0, 8.0, 12.0])
@pytest.mark.parametrize("full", [False, True])
def test_extreme_variances_converge(make_problem, log_variance, full):
    scale = float(np.exp(log_variance))
    p = make_problem(n=40, m=6, variance=scale, noise=0.02 * scale, jitter=1e-4 * scale, full=full)
    posterior = epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p), max_iterations=2000))
    assert posterior.residual < 1e-8  # rounding of K / (posterior variance) may keep it from 1e-10
    assert posterior.n_improper == 0
    assert posterior.log_evidence <= 0
    assert (posterior.latent_var > 0).all()


def test_saturated_labels_and_duplicates_and_more_inducing_points_than_data_are_served(make_problem):
    p = make_problem(n=8, m=20, jitter=1e-3, variance=1000.0)
    p.X[4:] = p.X[:4]
    p.y[:] = 1
    posterior = epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p)))
    assert posterior.converged
    assert np.isfinite(epgpc.gradients(posterior).Z).all()
    np.testing.assert_allclose(
        posterior.site_precision[4:], posterior.site_precision[:4], rtol=1e-6
    )  # alike data, alike sites


def test_data_out_of_reach_of_every_inducing_point_keep_their_own_half(make_problem):
    p = make_problem(n=6, m=3)
    p.X += 1e4
    posterior = epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p)))
    np.testing.assert_allclose(posterior.log_evidence, -6 * np.log(2), rtol=1e-13)


def test_bad_input_is_refused_by_name(make_problem):
    p = make_problem()
    with pytest.raises(ValueError, match=r"damping: found 1\.5"):
        epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p), damping=1.5))
    with pytest.raises(ValueError, match="damping: found 0"):
        epgpc_svi.fit(*binary(epgpc_svi.EPGPCSteps, *arguments(p), damping=0.0))
    with pytest.raises(ValueError, match=r"batches\[0\]: found an empty batch"):
        epgpc_svi.fit(*binary(epgpc_svi.EPGPCSteps, *arguments(p), batches=[[]]))
    with pytest.raises(ValueError, match="Z: found None"):
        epgpc_svi.fit(*binary(epgpc_svi.EPGPCSteps, *(*arguments(p)[:6], None)))
    with pytest.raises(ValueError, match="expected at most 1"):
        epgpc_svi.fit(*binary(epgpc_svi.EPGPCSteps, *arguments(p), batches=[np.arange(3)], n_steps=2))
    p.Z[1], p.jitter = p.Z[0], 0.0
    with pytest.raises(NotPositiveDefiniteError, match="K_ZZ"):
        epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p)))


@pytest.mark.parametrize("memory_budget", [0, 2**30])
def test_block_size_changes_nothing(make_problem, memory_budget):
    p = make_problem(n=700, m=6)
    runs = [
        epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p), block_size=size, memory_budget=memory_budget))
        for size in (64, 4096)
    ]
    # sums in another order
    np.testing.assert_allclose(runs[0].log_evidence, runs[1].log_evidence, rtol=1e-12)
    np.testing.assert_allclose(runs[0].inducing_mean, runs[1].inducing_mean, rtol=0, atol=1e-10)


def test_mini_batches_reach_the_fixed_point_of_all_data(make_problem, tmp_path):
    p = make_problem(n=60, m=6)
    batch = epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p)))
    lists = [np.arange(start, start + 15) for start in range(0, 60, 15)] * 25
    for site_file in (None, tmp_path / "sites"):
        posterior = epgpc_svi.fit(
            *binary(epgpc_svi.EPGPCSteps, *arguments(p), batches=lists, trace=True, site_file=site_file)
        )
        np.testing.assert_allclose(posterior.posterior.log_evidence, batch.log_evidence, rtol=1e-12)
        np.testing.assert_allclose(posterior.posterior.inducing_mean, batch.inducing_mean, rtol=0, atol=1e-9)
        assert posterior.posterior.residual < 1e-9
    # four batches of equal size: the mean of their estimates is log Z_EP
    np.testing.assert_allclose(posterior.trace[-4:].mean(), batch.log_evidence, rtol=1e-10)
    drawn = epgpc_svi.fit(*binary(epgpc_svi.EPGPCSteps, *arguments(p), batch_size=15, n_steps=200, stop=1e-9, seed=3))
    assert drawn.converged
    assert drawn.iterations < 200
    np.testing.assert_allclose(drawn.posterior.log_evidence, batch.log_evidence, rtol=1e-10)


@pytest.mark.parametrize("parallel", [True, False])
def test_a_step_on_a_batch_refreshes_its_sites_and_no_other(make_problem, dense_sparse, parallel):
    p = make_problem(n=10, m=3, jitter=1e-3)
    actual = epgpc_svi.fit(
        *binary(epgpc_svi.EPGPCSteps, *arguments(p), batches=[[0, 1, 2], [2, 5]], damping=0.7, parallel=parallel)
    ).posterior
    prior = dense_sparse(*arguments(p))
    sign, tau, nu = 2.0 * p.y - 1, np.zeros(10), np.zeros(10)
    for batch in ([0, 1, 2], [2, 5]) if parallel else ([0], [1], [2], [2], [5]):
        precision = prior.inverse + prior.kappa.T @ np.diag(tau) @ prior.kappa
        Sigma = np.linalg.inv(precision)
        mu = Sigma @ prior.kappa.T @ nu
        new_tau, new_nu = tau.copy(), nu.copy()
        for i in batch:
            upsilon = prior.kappa[i]
            cavity_cov = np.linalg.inv(precision - tau[i] * np.outer(upsilon, upsilon))
            cavity_mean = cavity_cov @ (precision @ mu - nu[i] * upsilon)
            m, v = upsilon @ cavity_mean, upsilon @ cavity_cov @ upsilon
            width = np.sqrt(1 + v + prior.K_tilde[i, i])
            z = sign[i] * m / width
            ratio = np.exp(norm.logpdf(z) - log_ndtr(z))
            mean, var = m + v * sign[i] * ratio / width, v - v**2 * ratio * (z + ratio) / width**2
            new_tau[i] += 0.7 * (1 / var - 1 / v - tau[i])
            new_nu[i] += 0.7 * (mean / var - m / v - nu[i])
        tau, nu = new_tau, new_nu
    # (m, m) cavities with explicit inverses of condition below 1e4
    np.testing.assert_allclose(actual.site_precision, tau, rtol=0, atol=1e-9)
    np.testing.assert_allclose(actual.site_shift, nu, rtol=0, atol=1e-9)


def test_a_site_refreshed_twice_in_order_counts_its_last_value(make_problem):
    p = make_problem(n=10, m=3)
    one = epgpc_svi.fit(*binary(epgpc_svi.EPGPCSteps, *arguments(p), batches=[[4, 1, 4]], parallel=False, trace=True))
    other = epgpc_svi.fit(*binary(epgpc_svi.EPGPCSteps, *arguments(p), batches=[[4], [1], [4]], parallel=False))
    # rank-one updates against new factors
    np.testing.assert_allclose(one.posterior.site_precision, other.posterior.site_precision, rtol=0, atol=1e-12)
    np.testing.assert_allclose(one.posterior.log_evidence, other.posterior.log_evidence, rtol=1e-12)


@pytest.mark.parametrize("rebuild_every", [1, 7])
def test_learning_on_batches_raises_log_z_and_keeps_q_and_kernel_together(make_problem, rebuild_every):
    p = make_problem(n=120, m=6, variance=0.05)
    before = epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p))).log_evidence
    posterior = epgpc_svi.fit(
        *binary(
            epgpc_svi.EPGPCSteps,
            *arguments(p),
            batch_size=40,
            n_steps=300,
            learn=("variance", "lengthscales", "noise", "Z"),
            rebuild_every=rebuild_every,
        )
    )
    assert not posterior.diverged
    again = epgpc.fit(Data(p.X, p.y), Prior(*posterior.hyper[:4], posterior.Z))
    assert again.log_evidence > before + 1.0
    # sites trail the kernel by an epoch of small steps; log Z_EP is stationary in them
    np.testing.assert_allclose(posterior.posterior.log_evidence, again.log_evidence, rtol=0, atol=1e-2)


def test_gradients_of_batches_average_to_that_of_log_z(make_problem):
    p = make_problem(n=30, m=4)
    posterior = epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p), tolerance=1e-12))
    packing = Packing(("variance", "lengthscales", "noise", "Z"), posterior.prior.hyper, p.Z)
    sites = np.stack([posterior.site_precision, posterior.site_shift])
    run = epgpc_svi.SiteRun(p.X, posterior.prior.y_sign, p.Z, posterior.prior.hyper, sites, 4096)
    whole = packing.gradient(epgpc.gradients(posterior), posterior.prior.hyper)
    every = np.arange(30)
    # at the fixed point; sums in another order
    np.testing.assert_allclose(run.gradient(every, run.view(every), packing), whole, rtol=0, atol=1e-9)
    parts = [run.gradient(batch, run.view(batch), packing) for batch in every.reshape(3, 10)]
    np.testing.assert_allclose(np.mean(parts, axis=0), whole, rtol=0, atol=1e-9)
    assert np.abs(parts[0] - whole).max() > 1e-2  # a batch alone does not know


def test_a_learning_rate_that_diverges_is_reported_with_a_finite_posterior(make_problem):
    p = make_problem(n=40, variance=0.01)  # far too small: the first step multiplies it by e^100
    p.y = (p.X[:, 0] > 0).astype(int)
    posterior = epgpc_svi.fit(
        *binary(
            epgpc_svi.EPGPCSteps, *arguments(p), batches=[np.arange(40)] * 5, learn=("variance",), learning_rate=100.0
        )
    )
    assert posterior.diverged
    assert "variance" in posterior.reason
    assert np.isfinite(posterior.posterior.log_evidence)


def test_learning_ends_where_the_gradient_vanishes(make_problem):
    p = make_problem(n=60, m=5, noise=0.3, jitter=1e-4)
    before = epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p)))
    posterior, search = epgpc.fit_learning(*binary(epgpc.EPGPCLearning, *arguments(p), learn=("lengthscales", "noise")))
    assert search.converged
    assert posterior.log_evidence > before.log_evidence
    assert search.hyper.variance == p.variance
    derivatives = epgpc.gradients(posterior)
    # L-BFGS-B stops at 1e-5 in the logarithms, or where log Z stands still to 1e-13
    assert np.abs(derivatives.lengthscales * search.hyper.lengthscales).max() < 1e-3
    assert abs(derivatives.noise * search.hyper.noise) < 1e-3


def test_a_progress_callback_sees_every_sweep_and_step(make_problem):
    p = make_problem()
    visited = []
    posterior = epgpc.fit(*binary(epgpc.EPGPCOptions, *arguments(p), callback=visited.append))
    assert [state.iteration for state in visited] == list(range(1, posterior.iterations + 1))
    assert visited[-1].objective == posterior.log_evidence
    steps = []
    epgpc_svi.fit(
        *binary(epgpc_svi.EPGPCSteps, *arguments(p), batches=[[0], [1, 2]], callback=steps.append, trace=True)
    )
    assert [state.iteration for state in steps] == [1, 2]
    assert np.isfinite(steps[0].log_evidence)
