"""svgpc: the bound, its maximum, steps, gradients and learning, against dense formulas, quadrature and differences."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import log_ndtr
from scipy.stats import multivariate_normal, norm

from fast.core.errors import NotPositiveDefiniteError
from fast.core.values import Data, Prior
from fast.methods import svgpc, svgpc_svi
from values_given import binary


def arguments(p):
    return p.X, p.y, p.variance, p.lengthscales, p.noise, p.jitter, p.Z


def prior_of(p, dense_kernel, dense_sparse):
    """K of u, projection of u to f and what is left open, with explicit inverses."""
    if p.Z is None:
        K = dense_kernel(p.X, p.X, p.variance, p.lengthscales) + (p.noise + p.jitter) * np.eye(len(p.X))
        return K, np.eye(len(p.X)), np.zeros(len(p.X))
    result = dense_sparse(*arguments(p))
    return result.K_ZZ, result.kappa, np.diag(result.K_tilde)


def dense_terms(y, mean, var):
    """E[log Phi(y f)], datum by datum, by adaptive quadrature."""
    values = []
    for sign, m, v in zip(2.0 * y - 1.0, mean, var, strict=True):
        sd = np.sqrt(v)
        values.append(
            quad(lambda x, a=sign * m, sd=sd: log_ndtr(a + sd * x) * norm.pdf(x), -12, 12, epsabs=1e-13, limit=200)[0]
        )
    return np.array(values)


def hermite_terms(y, mean, var):
    """The same by 60 Gauss-Hermite nodes."""
    x, w = np.polynomial.hermite_e.hermegauss(60)
    return log_ndtr((2.0 * y - 1.0)[:, None] * (mean[:, None] + np.sqrt(var)[:, None] * x)) @ (w / w.sum())


def dense_bound(p, mu, Sigma, prior, terms=dense_terms):
    K, projection, open_var = prior
    mean, var = projection @ mu, open_var + np.einsum("nm,mp,np->n", projection, Sigma, projection)
    kl = 0.5 * (
        np.trace(np.linalg.solve(K, Sigma))
        + mu @ np.linalg.solve(K, mu)
        - mu.size
        + np.linalg.slogdet(K)[1]
        - np.linalg.slogdet(Sigma)[1]
    )
    return terms(p.y, mean, var).sum() - kl


@pytest.mark.parametrize("full", [False, True])
def test_the_bound_is_its_definition(make_problem, dense_kernel, dense_sparse, full):
    p = make_problem(n=10, m=4, full=full, jitter=1e-4)
    posterior = svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p)))
    assert posterior.converged
    prior = prior_of(p, dense_kernel, dense_sparse)
    # quad to 1e-13, explicit inverses of condition below 1e5
    np.testing.assert_allclose(
        posterior.elbo, dense_bound(p, posterior.inducing_mean, posterior.inducing_cov, prior), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("full", [False, True])
def test_no_gaussian_has_a_higher_bound(make_problem, dense_kernel, dense_sparse, full):
    p = make_problem(n=5, m=2, full=full, jitter=1e-2)
    posterior = svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p)))
    prior = prior_of(p, dense_kernel, dense_sparse)
    m = posterior.inducing_mean.size
    lower = np.tril_indices(m)

    def negative(packed):
        root = np.zeros((m, m))
        root[lower] = packed[m:]
        return -dense_bound(p, packed[:m], root @ root.T, prior, hermite_terms)

    start = np.concatenate([np.zeros(m), np.linalg.cholesky(prior[0])[lower]])
    best = minimize(negative, start, method="BFGS", options={"gtol": 1e-6})
    # a gradient below 1e-5 with curvature of order one leaves 1e-9 of the maximum; 60 nodes to 1e-9 at variances near 1
    np.testing.assert_allclose(posterior.elbo, -best.fun, rtol=0, atol=1e-7)
    np.testing.assert_allclose(posterior.inducing_mean, best.x[:m], rtol=0, atol=1e-4)


def test_the_bound_is_below_the_truth_and_meets_it_where_the_prior_has_no_variance(make_problem):
    p = make_problem(n=3, full=True, variance=2.0)
    K = p.variance * np.exp(-0.5 * (((p.X[:, None] - p.X[None]) / p.lengthscales) ** 2).sum(-1)) + (
        p.noise + p.jitter
    ) * np.eye(3)
    sign = np.diag(2.0 * p.y - 1.0)
    truth = np.log(multivariate_normal.cdf(np.zeros(3), np.zeros(3), sign @ K @ sign + np.eye(3), abseps=1e-10))
    posterior = svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p)))
    assert posterior.elbo < truth
    assert posterior.elbo > truth - 0.5
    p.variance, p.noise, p.jitter = 1e-9, 0.0, 1e-12
    # the bound misses log Z by a term of the order of the variance
    np.testing.assert_allclose(
        svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p))).elbo, -3 * np.log(2), rtol=0, atol=1e-8
    )


def test_one_datum_is_a_two_parameter_problem():
    posterior = svgpc.fit(Data(np.zeros((1, 1)), np.array([1])), Prior(2.0, np.ones(1), 0.5, 0.0))

    def negative(theta):
        m, v = theta[0], np.exp(theta[1])
        return -(dense_terms(np.array([1]), [m], [v])[0] - 0.5 * (v / 2.5 + m * m / 2.5 - 1 - np.log(v / 2.5)))

    best = minimize(negative, [0.0, 0.0], method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(posterior.elbo, -best.fun, rtol=1e-10)  # stationary: the error is second order
    np.testing.assert_allclose(posterior.latent_mean[0], best.x[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(posterior.latent_var[0], np.exp(best.x[1]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("accelerate", [True, False])
def test_both_roads_reach_one_fixed_point_and_the_bound_never_falls(make_problem, accelerate):
    p = make_problem(n=60, m=8, variance=20.0)
    posterior, other = (
        svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p), accelerate=accelerate)),
        svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p))),
    )
    assert posterior.converged
    assert (np.diff(posterior.trace) >= -1e-11).all()  # rounding of a sum of 60 terms of size ten
    np.testing.assert_allclose(posterior.inducing_mean, other.inducing_mean, rtol=0, atol=1e-8)


@pytest.mark.parametrize("full", [False, True])
def test_inducing_points_at_the_data_give_the_full_process(make_problem, full):
    p = make_problem(n=12, noise=0.0, jitter=1e-5)
    p.Z = None if full else p.X.copy()
    posterior = svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p)))
    p.Z, p.noise = None, 0.0
    whole = svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p)))
    # jitter on K_ZZ and not on K_XX leaves 1e-5 of variance a datum in the sparse bound
    np.testing.assert_allclose(posterior.elbo, whole.elbo, rtol=0, atol=3e-4)


def test_prediction_is_the_dense_formula(make_problem, dense_kernel, dense_sparse):
    for full in (False, True):
        p = make_problem(full=full, jitter=1e-4)
        posterior = svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p)))
        X_test = p.X[:4] + 0.3
        got = svgpc.predict(posterior, X_test)
        K, _, _ = prior_of(p, dense_kernel, dense_sparse)
        k = dense_kernel(X_test, p.X if full else p.Z, p.variance, p.lengthscales)
        kappa = k @ np.linalg.inv(K)
        var = p.variance + p.noise - np.einsum("tm,tm->t", kappa, k)
        var += np.einsum("tm,mp,tp->t", kappa, posterior.inducing_cov, kappa)
        # explicit inverses of condition below 1e5
        np.testing.assert_allclose(got.latent_mean, kappa @ posterior.inducing_mean, rtol=0, atol=1e-8)
        np.testing.assert_allclose(got.latent_var, var, rtol=0, atol=1e-8)
        chance = norm.cdf(got.latent_mean / np.sqrt(1 + got.latent_var))
        np.testing.assert_allclose(got.probabilities[:, 1], chance, rtol=1e-13)
        assert svgpc.predict(posterior, X_test[:0]).probabilities.shape == (0, 2)


def numeric_gradients(p, value):
    """Central differences of a re-converged objective in every parameter of the prior."""

    def derivative(field, index, h=1e-5):
        values = []
        for sign in (1, -1):
            q = SimpleNamespace(**vars(p))
            moved = np.array(getattr(p, field), dtype=float)
            moved[index] += sign * h
            setattr(q, field, moved if moved.ndim else float(moved))
            values.append(value(q))
        return (values[0] - values[1]) / (2 * h)

    Z = None if p.Z is None else np.array([[derivative("Z", (i, j)) for j in range(2)] for i in range(len(p.Z))])
    return derivative("variance", ()), [derivative("lengthscales", j) for j in range(2)], derivative("noise", ()), Z


@pytest.mark.parametrize("full", [False, True])
def test_gradients_are_differences_of_the_reconverged_bound(make_problem, full):
    p = make_problem(n=12, m=3, full=full, jitter=1e-3)
    got = svgpc.gradients(svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p), tolerance=1e-12)))
    variance, lengthscales, noise, Z = numeric_gradients(
        p, lambda q: svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(q), tolerance=1e-12)).elbo
    )
    # central differences: h^2 times a third derivative below 1e3, rounding 1e-14 / h
    np.testing.assert_allclose(got.variance, variance, rtol=1e-6)
    np.testing.assert_allclose(got.lengthscales, lengthscales, rtol=1e-6)
    np.testing.assert_allclose(got.noise, noise, rtol=1e-6)
    if not full:
        np.testing.assert_allclose(got.Z, Z, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("log_variance", [-30.0, -8.0, -2.0, 4.0, 8.0])
@pytest.mark.parametrize("full", [False, True])
def test_extreme_variances_converge_to_a_finite_bound(make_problem, log_variance, full):
    scale = float(np.exp(log_variance))
    p = make_problem(n=40, m=6, variance=scale, noise=0.02 * scale, jitter=1e-4 * scale, full=full)
    posterior = svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p), max_iterations=2000))
    assert posterior.residual < 1e-8  # rounding of K / (posterior variance) may keep it from 1e-10 at e^8
    assert np.isfinite(posterior.elbo)
    assert posterior.elbo <= 0
    assert (np.abs(svgpc.predict(posterior, p.X).probabilities.sum(axis=1) - 1) < 1e-14).all()


def test_saturated_labels_and_duplicates_and_more_inducing_points_than_data_are_served(make_problem):
    p = make_problem(n=8, m=20, jitter=1e-3)
    p.X[4:] = p.X[:4]
    p.y[:] = 1
    p.variance = 1000.0
    posterior = svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p)))
    assert posterior.converged
    assert np.isfinite(svgpc.gradients(posterior).Z).all()
    assert (posterior.latent_mean > 0).all()


def test_inducing_points_that_coincide_are_refused_by_name(make_problem):
    p = make_problem(jitter=0.0)
    p.Z[1] = p.Z[0]
    with pytest.raises(NotPositiveDefiniteError, match="K_ZZ"):
        svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p)))


@pytest.mark.parametrize("memory_budget", [0, 2**30])
def test_block_size_changes_nothing(make_problem, memory_budget):
    p = make_problem(n=700, m=6)
    runs = [
        svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p), block_size=size, memory_budget=memory_budget))
        for size in (64, 4096)
    ]
    # sums in another order
    np.testing.assert_allclose(runs[0].elbo, runs[1].elbo, rtol=1e-12)
    np.testing.assert_allclose(runs[0].inducing_mean, runs[1].inducing_mean, rtol=0, atol=1e-10)
    one, other = (svgpc.predict(run, p.X, block_size=size) for run, size in zip([runs[0]] * 2, (7, 4096), strict=True))
    np.testing.assert_allclose(one.latent_var, other.latent_var, rtol=1e-12)


def test_a_memmap_is_read_in_blocks(make_problem, tmp_path):
    p = make_problem(n=300, m=6)
    plain = svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p)))
    kept = np.memmap(tmp_path / "X", np.float64, "w+", shape=p.X.shape)
    kept[:] = p.X
    p.X = kept
    posterior = svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p), memory_budget=0, block_size=64))
    np.testing.assert_allclose(posterior.elbo, plain.elbo, rtol=1e-12)


def test_learning_ends_where_the_gradient_vanishes(make_problem):
    p = make_problem(n=60, m=5, noise=0.3, jitter=1e-4)
    before = svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p)))
    posterior, search = svgpc.fit_learning(
        *binary(svgpc.SVGPCLearning, *arguments(p), learn=("variance", "lengthscales", "Z"))
    )
    assert search.converged
    assert posterior.elbo > before.elbo
    assert search.hyper.noise == 0.3
    derivatives = svgpc.gradients(posterior)
    # L-BFGS-B stops at 1e-5 in the logarithms, or where the bound stands still to 1e-13
    assert abs(derivatives.variance * search.hyper.variance) < 1e-3
    assert np.abs(derivatives.lengthscales * search.hyper.lengthscales).max() < 1e-3
    assert np.abs(derivatives.Z).max() < 1e-3
    assert (np.diff(search.trace) >= 0).all()


def dense_steps(p, batches, rate, dense_kernel, dense_sparse):
    """Natural-gradient steps in (eta_1, eta_2) with explicit inverses and Gauss-Hermite quadrature."""
    K, projection, open_var = prior_of(p, dense_kernel, dense_sparse)
    inverse, sign, n = np.linalg.inv(K), 2.0 * p.y - 1.0, len(p.y)
    x, w = np.polynomial.hermite_e.hermegauss(120)
    w = w / w.sum()
    eta_1, eta_2 = np.zeros(len(K)), -0.5 * inverse
    for batch in batches:
        Sigma = np.linalg.inv(-2 * eta_2)
        mu, kappa = Sigma @ eta_1, projection[batch]
        mean = kappa @ mu
        sd = np.sqrt(open_var[batch] + np.einsum("nm,mp,np->n", kappa, Sigma, kappa))
        f = sign[batch][:, None] * (mean[:, None] + sd[:, None] * x)
        ratio = np.exp(norm.logpdf(f) - log_ndtr(f))
        by_mean, by_var = sign[batch] * (ratio @ w), -0.5 * (ratio * (ratio + f)) @ w
        scale = n / len(batch)
        grad_mean = scale * kappa.T @ by_mean - inverse @ mu
        grad_cov = scale * kappa.T @ np.diag(by_var) @ kappa - 0.5 * inverse + 0.5 * np.linalg.inv(Sigma)
        eta_1 = eta_1 + rate * (grad_mean - 2 * grad_cov @ mu)
        eta_2 = eta_2 + rate * grad_cov
    Sigma = np.linalg.inv(-2 * eta_2)
    return Sigma @ eta_1, Sigma


def test_mini_batch_steps_are_natural_gradients_in_expectation_parameters(make_problem, dense_kernel, dense_sparse):
    p = make_problem(n=20, m=4, jitter=1e-3)
    rng = np.random.default_rng(5)
    batches = [rng.choice(20, size=6, replace=False) for _ in range(12)]
    posterior = svgpc_svi.fit(*binary(svgpc_svi.SVGPCSteps, *arguments(p), batches=batches, rate=0.2))
    mu, Sigma = dense_steps(p, batches, 0.2, dense_kernel, dense_sparse)
    # Gauss-Hermite with 120 nodes to 1e-10 at these variances, explicit inverses of condition below 1e4
    np.testing.assert_allclose(posterior.inducing_mean, mu, rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.inducing_cov, Sigma, rtol=0, atol=1e-8)


def test_all_data_as_one_batch_meet_the_batch_fit(make_problem):
    p = make_problem(n=40, m=5)
    batch = svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p)))
    posterior = svgpc_svi.fit(
        *binary(svgpc_svi.SVGPCSteps, *arguments(p), batches=[np.arange(40)] * 60, rate=1.0, trace=True)
    )
    np.testing.assert_allclose(posterior.inducing_mean, batch.inducing_mean, rtol=0, atol=1e-8)
    # the estimate over all data is the bound
    np.testing.assert_allclose(posterior.trace[-1], batch.elbo, rtol=1e-11)
    np.testing.assert_allclose(svgpc_svi.bound(posterior, p.X, p.y, block_size=7), batch.elbo, rtol=1e-11)
    one, other = svgpc_svi.predict(posterior, p.X[:5]), svgpc.predict(batch, p.X[:5])
    np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=0, atol=1e-9)


def test_learning_on_batches_raises_the_bound(make_problem):
    p = make_problem(n=120, m=6, variance=0.05)
    before = svgpc.fit(*binary(svgpc.SVGPCOptions, *arguments(p))).elbo
    posterior = svgpc_svi.fit(
        *binary(
            svgpc_svi.SVGPCSteps,
            *arguments(p),
            batch_size=40,
            n_steps=400,
            rate=0.3,
            learn=("variance", "lengthscales", "noise", "Z"),
            stop=0,
        )
    )
    assert not posterior.diverged
    assert svgpc_svi.bound(posterior, p.X, p.y) > before + 1.0


def test_bad_batches_are_refused_by_name(make_problem):
    p = make_problem()
    with pytest.raises(ValueError, match=r"batches\[1\]: found an empty batch"):
        svgpc_svi.fit(*binary(svgpc_svi.SVGPCSteps, *arguments(p), batches=[np.arange(3), np.arange(0)]))
    with pytest.raises(ValueError, match="n_steps: found 3, expected at most 1"):
        svgpc_svi.fit(*binary(svgpc_svi.SVGPCSteps, *arguments(p), batches=[np.arange(3)], n_steps=3))
    with pytest.raises(ValueError, match="noise: found 0"):
        svgpc_svi.fit(
            *binary(
                svgpc_svi.SVGPCSteps, *(*arguments(p)[:4], 0.0, 1e-6, p.Z), batches=[np.arange(3)], learn=("noise",)
            )
        )
    with pytest.raises(ValueError, match="Z: found None"):
        svgpc_svi.fit(*binary(svgpc_svi.SVGPCSteps, *(*arguments(p)[:6], None)))


def test_a_learning_rate_that_diverges_is_reported(make_problem):
    p = make_problem(n=40, variance=0.01)  # far too small: the first step multiplies it by e^100
    p.y = (p.X[:, 0] > 0).astype(int)
    posterior = svgpc_svi.fit(
        *binary(
            svgpc_svi.SVGPCSteps,
            *arguments(p),
            batches=[np.arange(40)] * 5,
            rate=1.0,
            learn=("variance",),
            learning_rate=100.0,
        )
    )
    assert posterior.diverged
    assert posterior.reason
    assert np.isfinite(posterior.inducing_mean).all()


def test_a_batch_of_one_class_is_served(make_problem):
    p = make_problem(n=30)
    posterior = svgpc_svi.fit(*binary(svgpc_svi.SVGPCSteps, *arguments(p), batches=[np.flatnonzero(p.y == 1)] * 5))
    assert np.isfinite(posterior.inducing_cov).all()
