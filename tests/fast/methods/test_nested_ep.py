"""nested EP and nested IEP: posteriors, evidence and gradients against dense (n C) x (n C) algebra, and robustness."""

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.stats import norm

from fast.core.declare import Options
from fast.core.hyperprior import half_t_scale, log_half_student_t, log_hyperprior
from fast.core.values import Data, Prior
from fast.full_classes import couplings as class_couplings
from fast.full_classes import nested_sites
from fast.full_classes import prior as multiclass_prior
from fast.full_classes.learning import ClassSearch, map_objective, search
from fast.full_classes.prior import class_covariance
from fast.full_classes.sequential_posterior import SequentialPosterior
from fast.methods import nested_ep, nested_iep
from values_given import classes, fitted

PAPER = "riihimaki2013"
METHODS = (nested_ep, nested_iep)


def toy(n=9, C=3, d=2, *, seed=4, variance=None, noise=0.05, jitter=1e-6):
    """Arguments of `fit`: one parameter vector a class unless a variance is given."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (np.sin(2.0 * X) @ rng.normal(size=(d, C)) + 0.4 * rng.normal(size=(n, C))).argmax(axis=1)
    y[:C] = np.arange(C)
    scales = np.linspace(1.0, 3.0, C) if variance is None else np.full(C, variance)
    lengths = 0.8 + 0.1 * np.arange(C)[:, None] * np.ones(d) if variance is None else np.full((C, d), 1.5)
    return X, y, C, scales, lengths, np.full(C, noise), np.full(C, jitter)


def at(i, n, C):
    """Indices of f_i in class-major order."""
    return np.arange(C) * n + i


def dense(prior, Pi, nu):
    """K, T, nu, posterior covariance and mean, class-major."""
    n, C = prior.n, prior.n_classes
    K, T, location = block_diag(*[prior.K(k) for k in range(C)]), np.zeros((n * C, n * C)), np.zeros(n * C)
    for i in range(n):
        T[np.ix_(at(i, n, C), at(i, n, C))], location[at(i, n, C)] = Pi[i], nu[i]
    S = np.linalg.solve(np.eye(n * C) + K @ T, K)
    return K, T, location, S, S @ location


def printed_log_evidence(prior, alpha, beta, Pi, nu, *, independent=False, log_norms=None):
    """(28), term by term; cavities and marginals cut to their diagonal for independent classes."""
    n, C = prior.n, prior.n_classes
    K, T, location, S, mu = dense(prior, Pi, nu)
    total = 0.5 * location @ mu - 0.5 * np.linalg.slogdet(np.eye(n * C) + K @ T)[1]
    for i in range(n):
        index = at(i, n, C)
        m, V = mu[index], S[np.ix_(index, index)]
        V = np.diag(V.diagonal()) if independent else V
        V_ = np.linalg.inv(np.linalg.inv(V) - Pi[i])
        m_ = V_ @ (np.linalg.solve(V, m) - nu[i])
        total += 0.5 * (m_ @ np.linalg.solve(V_, m_) + np.linalg.slogdet(V_)[1])
        total -= 0.5 * (m @ np.linalg.solve(V, m) + np.linalg.slogdet(V)[1])
        total += log_norms[i] if log_norms is not None else log_inner(prior.y[i], m_, V_, alpha[i], beta[i])
    return total


def log_inner(y, m_, V_, alpha, beta):
    """log Z_q of appendix A at given inner sites, in w."""
    C = len(m_)
    B = np.zeros((C + 1, C - 1))
    for column, j in enumerate(k for k in range(C) if k != y):
        B[y, column], B[j, column], B[C, column] = 1.0, -1.0, 1.0
    W, w = block_diag(V_, 1.0), np.append(m_, 0.0)
    Q = np.linalg.inv(np.linalg.inv(W) + B @ np.diag(alpha) @ B.T)
    q = Q @ (np.linalg.solve(W, w) + B @ beta)
    total = 0.5 * (q @ np.linalg.solve(Q, q) + np.linalg.slogdet(Q)[1])
    total -= 0.5 * (w @ np.linalg.solve(W, w) + np.linalg.slogdet(W)[1])
    for j in range(C - 1):
        v, m = B[:, j] @ Q @ B[:, j], B[:, j] @ q
        c, s = 1 / (1 / v - alpha[j]), (m / v - beta[j]) / (1 / v - alpha[j])
        total += norm.logcdf(s / np.sqrt(1 + c)) + 0.5 * (s**2 / c + np.log(c)) - 0.5 * (m**2 / v + np.log(v))
    return total


@pytest.fixture
def some_sites(rng):
    prior = multiclass_prior.prepare(*classes(Options, *toy())[:2])
    alpha = rng.uniform(0.0, 0.9, size=(9, 2))
    alpha[0] = 0.0  # a site that says nothing
    beta = np.where(alpha > 0.0, rng.normal(size=(9, 2)), 0.0)
    others = nested_sites.other_classes(prior.y, 3)
    sites = nested_sites.outer_sites(prior.y, others, alpha, beta)
    return prior, alpha, beta, sites, nested_sites.site_matrices(sites.precision)


@pytest.mark.verifies(PAPER, "u2-prior", "u2-se", route="definition, entry by entry")
def test_a_block_of_the_prior_is_the_kernel_with_noise_and_jitter(dense_kernel):
    prior = multiclass_prior.prepare(*classes(Options, *toy())[:2])
    for k in range(3):
        hyper = prior.hyper.of(k)
        direct = dense_kernel(prior.X, prior.X, hyper.variance, hyper.lengthscales) + (0.05 + 1e-6) * np.eye(9)
        np.testing.assert_allclose(class_covariance(prior.X, hyper), direct, rtol=1e-13)  # a few roundings
        np.testing.assert_array_equal(prior.K(k), class_covariance(prior.X, hyper))


@pytest.mark.verifies(PAPER, "4", "16", "B-M", "B-marginals", route="dense (K^-1 + T)^-1")
def test_posterior_and_marginals_are_those_of_dense_algebra(some_sites):
    prior, _, _, sites, Pi = some_sites
    result = class_couplings.condition(prior, sites.precision, sites.location)
    cov = class_couplings.marginal_covariances(result)
    _, T, location, S, mu = dense(prior, Pi, sites.location)
    # dense inverses of condition 1e3
    np.testing.assert_allclose(result.mean, mu.reshape(3, 9).T, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(result.weights.ravel(), location - T @ mu, rtol=1e-10, atol=1e-12)
    for i in range(9):
        block = S[np.ix_(at(i, 9, 3), at(i, 9, 3))]
        np.testing.assert_allclose(cov[i], block, rtol=1e-10, atol=1e-12)


@pytest.mark.verifies(PAPER, "B-M", route="R'BR from dense inverses")
def test_the_coupling_factor_is_that_of_P(some_sites):
    prior, _, _, sites, Pi = some_sites
    factors = [class_couplings.class_factor(prior.K(k), sites.precision[:, k]) for k in range(3)]
    P = np.zeros((9, 9))
    for k in range(3):
        root = np.sqrt(np.diag(sites.precision[:, k]))
        P += root @ np.linalg.inv(np.eye(9) + root @ prior.K(k) @ root) @ root
    chol = class_couplings.coupling_factor(factors)
    np.testing.assert_allclose(chol @ chol.T, P, rtol=1e-11, atol=1e-13)  # condition below 100
    posterior = class_couplings.condition(prior, sites.precision, sites.location)
    K, T, *_ = dense(prior, Pi, sites.location)
    M = T @ np.linalg.inv(np.eye(27) + K @ T)
    for k, block in enumerate(class_couplings.m_blocks(posterior)):
        np.testing.assert_allclose(block, M[9 * k : 9 * k + 9, 9 * k : 9 * k + 9], rtol=1e-9, atol=1e-12)


@pytest.mark.verifies(PAPER, "B-det", route="determinant of the dense matrix")
def test_the_determinant_is_that_of_the_dense_matrix(some_sites):
    prior, _, _, sites, Pi = some_sites
    factors = [class_couplings.class_factor(prior.K(k), sites.precision[:, k]) for k in range(3)]
    chol = class_couplings.coupling_factor(factors)
    K, T, *_ = dense(prior, Pi, sites.location)
    result = class_couplings.log_determinant(factors, chol, sites.precision.sum(axis=1))
    np.testing.assert_allclose(result, np.linalg.slogdet(np.eye(27) + K @ T)[1], rtol=1e-12)  # 27 pivots


@pytest.mark.verifies(PAPER, "26", "27", route="(26), (27) with dense M")
def test_predictions_are_those_of_dense_algebra(some_sites, dense_kernel, rng):
    prior, _, _, sites, Pi = some_sites
    X_test = rng.normal(size=(4, 2))
    posterior = class_couplings.condition(prior, sites.precision, sites.location)
    K, T, location, *_ = dense(prior, Pi, sites.location)
    M = T @ np.linalg.inv(np.eye(27) + K @ T)
    cross = prior.cross(X_test)
    mean = class_couplings.predictive_mean(posterior.weights, cross)
    cov = class_couplings.predictive_cov(posterior, cross, prior.test_var())
    for t in range(4):
        star = block_diag(*[
            dense_kernel(X_test[t : t + 1], prior.X, prior.hyper.variance[k], prior.hyper.lengthscales[k])
            for k in range(3)
        ])  # fmt: skip
        np.testing.assert_allclose(mean[t], star @ location - star @ M @ K @ location, rtol=1e-9, atol=1e-12)
        direct = np.diag(prior.hyper.variance + 0.05) - star @ M @ star.T
        np.testing.assert_allclose(cov[t], direct, rtol=1e-9, atol=1e-11)  # dense inverse of condition 1e3


@pytest.mark.verifies(PAPER, "28", route="the printed formula with dense matrices, not at a fixed point")
def test_log_evidence_is_the_printed_formula_at_any_sites():
    posterior = nested_ep.fit(*classes(nested_ep.NestedOptions, *toy(), max_iterations=2))
    direct = printed_log_evidence(
        posterior.prior, posterior.alpha_tilde, posterior.beta_tilde, posterior.site_precision, posterior.site_location
    )
    # ep_log_evidence itself, with every factor of its argument
    others = nested_sites.other_classes(posterior.prior.y, 3)
    distribution = nested_sites.augmented_differences(
        nested_sites.differences(posterior.prior.y, others, posterior.latent_mean, posterior.latent_cov),
        posterior.alpha_tilde,
        posterior.beta_tilde,
    )
    from fast.full_classes.inner_ep import log_site_ratios

    again = nested_sites.ep_log_evidence(
        posterior.site_location,
        posterior.latent_mean,
        posterior.posterior.log_det,
        posterior.alpha_tilde,
        posterior.beta_tilde,
        log_site_ratios(
            distribution.mean, np.einsum("nii->ni", distribution.cov), posterior.alpha_tilde, posterior.beta_tilde
        ),
    )
    np.testing.assert_allclose([posterior.log_evidence, again], direct, rtol=1e-10)  # dense inverses, condition 1e3


def test_log_evidence_of_independent_classes_is_the_printed_formula_too():
    posterior = nested_iep.fit(*classes(nested_iep.NestedOptions, *toy(), max_iterations=3))
    direct = printed_log_evidence(
        posterior.prior,
        posterior.alpha_tilde,
        posterior.beta_tilde,
        posterior.site_precision,
        posterior.site_location,
        independent=True,
    )
    np.testing.assert_allclose(posterior.log_evidence, direct, rtol=1e-10)  # dense inverses, condition 1e3


def test_at_the_fixed_point_marginals_have_the_moments_of_inner_ep():
    posterior = nested_ep.fit(*classes(nested_ep.NestedOptions, *toy()))
    assert posterior.converged
    assert posterior.residual <= 1e-10
    target = nested_ep.one_outer_step(posterior.prior, posterior.alpha_tilde, posterior.beta_tilde, inner="converged")
    # residual 1e-10 in units of the marginals, sites of order one
    np.testing.assert_allclose(target[0], posterior.alpha_tilde, rtol=0, atol=1e-8)
    np.testing.assert_allclose(target[1], posterior.beta_tilde, rtol=0, atol=1e-8)


@pytest.mark.verifies(PAPER, "u3.1-schedule", route="the parallel schedule's fixed point; one pass by dense algebra")
def test_a_sequential_pass_visits_data_in_order():
    args = toy(n=6)
    posterior = nested_ep.fit(
        *classes(nested_ep.NestedOptions, *args, schedule="sequential", damping=0.7, max_iterations=1)
    )
    prior = posterior.prior
    others = nested_sites.other_classes(prior.y, 3)
    alpha, beta = np.zeros((6, 2)), np.zeros((6, 2))
    for i in range(6):
        sites = nested_sites.outer_sites(prior.y, others, alpha, beta)
        Pi = nested_sites.site_matrices(sites.precision)
        *_, S, mu = dense(prior, Pi, sites.location)
        one, index = slice(i, i + 1), at(i, 6, 3)
        projected = nested_sites.differences(prior.y[one], others[one], mu[None, index], S[np.ix_(index, index)][None])
        distribution = nested_sites.augmented_differences(projected, alpha[one], beta[one])
        new = nested_ep.inner_proposal(distribution, None, alpha[one], beta[one])
        alpha[one], beta[one] = 0.3 * alpha[one] + 0.7 * new[0], 0.3 * beta[one] + 0.7 * new[1]
    np.testing.assert_allclose(posterior.alpha_tilde, alpha, rtol=1e-9, atol=1e-11)  # dense inverses, condition 1e3
    np.testing.assert_allclose(posterior.beta_tilde, beta, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("module", METHODS)
@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "sequential"},
        {"inner": "incremental", "accelerate": False},
        {"inner_schedule": "parallel", "inner_damping": 0.7, "accelerate": False},
        {"damping": 0.5},
    ],
)
def test_every_road_ends_at_one_fixed_point(module, options):
    plain, other = fitted(module, *toy(), accelerate=False), fitted(module, *toy(), **options)
    assert plain.converged
    assert other.converged
    # both within 1e-10 in a step, contraction below 0.9
    np.testing.assert_allclose(other.latent_mean, plain.latent_mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(other.log_evidence, plain.log_evidence, rtol=1e-9)


def test_the_running_posterior_stays_with_its_sites(rng, some_sites):
    prior, alpha, beta, sites, _ = some_sites
    posterior = class_couplings.condition(prior, sites.precision, sites.location)
    running = SequentialPosterior(prior, posterior, sites.precision, sites.location)
    others = nested_sites.other_classes(prior.y, 3)
    for i in (0, 4, 0, 8):
        alpha[i], beta[i] = rng.uniform(size=2), rng.normal(size=2)
        sites = nested_sites.outer_sites(prior.y, others, alpha, beta)
        running.update(i, sites.precision[i], sites.location[i])
    fresh = class_couplings.condition(prior, sites.precision, sites.location)
    cov = class_couplings.marginal_covariances(fresh)
    for i in range(9):
        mean, block = running.marginal(i)
        np.testing.assert_allclose(mean, fresh.mean[i], rtol=1e-10, atol=1e-12)  # four rank-C updates
        np.testing.assert_allclose(block, cov[i], rtol=1e-10, atol=1e-12)


def central(function, value, index, step):
    """Central difference in one entry."""
    up, down = value.copy(), value.copy()
    up[index] += step
    down[index] -= step
    return (function(up) - function(down)) / (2 * step)


@pytest.mark.verifies(PAPER, "B-gradient", route="central differences of the converged log Z")
def test_gradients_are_those_of_the_converged_evidence():
    check_gradients(nested_ep)


def test_gradients_of_independent_classes_are_those_of_the_converged_evidence():
    check_gradients(nested_iep)


def check_gradients(module):
    X, y, C, variance, lengths, noise, jitter = toy()
    gradients = module.gradients(fitted(module, X, y, C, variance, lengths, noise, jitter, tolerance=1e-12))
    by_variance = lambda v: fitted(module, X, y, C, v, lengths, noise, jitter, tolerance=1e-12).log_evidence  # noqa: E731
    by_length = lambda v: fitted(module, X, y, C, variance, v, noise, jitter, tolerance=1e-12).log_evidence  # noqa: E731
    by_noise = lambda v: fitted(module, X, y, C, variance, lengths, v, jitter, tolerance=1e-12).log_evidence  # noqa: E731
    for k in range(C):
        # central differences of step 1e-4: error 1e-8 of third derivatives of order one, rounding 1e-10
        np.testing.assert_allclose(gradients.variance[k], central(by_variance, variance, k, 1e-4), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(gradients.noise[k], central(by_noise, noise, k, 1e-4), rtol=1e-5, atol=1e-6)
        for j in range(2):
            derivative = central(by_length, lengths, (k, j), 1e-4)
            np.testing.assert_allclose(gradients.lengthscales[k, j], derivative, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("module", METHODS)
def test_shared_parameters_have_summed_gradients(module):
    args = toy(variance=2.0)
    apart, together = module.gradients(fitted(module, *args)), module.gradients(fitted(module, *args, shared=True))
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_allclose(one, np.broadcast_to(other.sum(axis=0), one.shape), rtol=1e-9)  # sums of three


def test_two_classes_are_binary_probit_ep():
    from fast.methods import epgpc

    X, y, *_ = toy(n=10, C=2)
    posterior = nested_ep.fit(Data(X, y, 2), Prior(1.3, [0.9, 1.1], 0.02, 1e-6, shared=True))
    # h = (f_1 - f_0)/sqrt 2 has the prior of one latent; Phi(h sqrt 2/sqrt 2)
    binary = epgpc.fit(Data(X, y), Prior(1.3, np.array([0.9, 1.1]), 0.02, 1e-6))
    np.testing.assert_allclose(posterior.log_evidence, binary.log_evidence, rtol=1e-9)  # both to 1e-10
    h = (posterior.latent_mean[:, 1] - posterior.latent_mean[:, 0]) / np.sqrt(2.0)
    np.testing.assert_allclose(h, binary.latent_mean, rtol=0, atol=1e-8)


@pytest.mark.parametrize("module", METHODS)
def test_classes_and_data_may_be_permuted(module, rng):
    X, y, C, variance, lengths, noise, jitter = toy()
    posterior = fitted(module, X, y, C, variance, lengths, noise, jitter)
    rows, classes = rng.permutation(9), np.array([2, 0, 1])
    back = np.argsort(classes)
    other = fitted(module, X[rows], back[y[rows]], C, variance[classes], lengths[classes], noise, jitter)
    np.testing.assert_allclose(other.log_evidence, posterior.log_evidence, rtol=1e-9)  # both to 1e-10
    np.testing.assert_allclose(other.latent_mean, posterior.latent_mean[rows][:, classes], rtol=0, atol=1e-8)


@pytest.mark.parametrize("module", METHODS)
def test_predictions_do_not_depend_on_the_block(module, rng, tmp_path):
    posterior = fitted(module, *toy())
    X_test = rng.normal(size=(23, 2))
    whole = module.predict(posterior, X_test)
    mapped = np.memmap(tmp_path / "x", dtype=np.float64, mode="w+", shape=X_test.shape)
    mapped[:] = X_test
    for part in (module.predict(posterior, X_test, block_size=4), module.predict(posterior, mapped, block_size=7)):
        for one, other in zip(part, whole, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    assert module.predict(posterior, np.empty((0, 2))).probabilities.shape == (0, 3)
    second = module.predict(posterior, X_test, prediction="quadrature")
    # inner EP's normaliser is biased by less than a percent
    np.testing.assert_allclose(whole.probabilities, second.probabilities, rtol=0, atol=0.01)
    assert np.abs(second.probability_mass - 1.0).max() < 1e-3


@pytest.mark.parametrize("module", METHODS)
@pytest.mark.parametrize("case", ["log variance 8", "near duplicates", "one of a class", "c = 20", "separable"])
def test_hard_cases_converge_or_say_that_they_did_not(module, case, rng):
    X, y, C, *_ = toy(n=24)
    variance, lengths, jitter = 2.0, 1.0, 1e-6
    if case == "log variance 8":
        variance, lengths = np.exp(8.0), np.exp(1.0)
    elif case == "near duplicates":
        X, y, jitter = np.vstack([X, X + 1e-9]), np.append(y, (y + 1) % C), 0.0
    elif case == "one of a class":
        y = np.where(np.arange(24) == 3, 2, y % 2)
    elif case == "c = 20":
        C, y = 20, np.append(np.arange(20), [0, 1, 2, 3])
    else:
        y, variance = (X[:, 0] > 0).astype(int) + (X[:, 0] > 1), 50.0
    posterior = fitted(module, X, y, C, variance, np.full(2, lengths), 0.0, jitter, shared=True, max_iterations=150)
    assert np.isfinite(posterior.latent_mean).all()
    assert np.isfinite(posterior.latent_cov).all()
    assert posterior.log_evidence is None or np.isfinite(posterior.log_evidence)
    assert posterior.converged == (posterior.residual <= 1e-10)
    prediction = module.predict(posterior, rng.normal(size=(3, 2)))
    np.testing.assert_allclose(prediction.probabilities.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"damping": 0.0}, "damping"),
        ({"damping": 1.5}, "damping"),
        ({"schedule": "random"}, "schedule"),
        ({"inner": "often"}, "inner"),
        ({"inner_schedule": "x"}, "inner_schedule"),
        ({"inner_damping": 0.0}, "inner_damping"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"max_iterations": 0}, "max_iterations"),
    ],
)
@pytest.mark.parametrize("module", METHODS)
def test_senseless_options_are_refused_by_name(module, options, word):
    with pytest.raises(ValueError, match=f"^{word}: found"):
        fitted(module, *toy(), **options)


def test_senseless_data_are_refused_by_name():
    X, y, C, variance, lengths, noise, jitter = toy()
    for change, word in (({1: y + 1}, "y"), ({3: -variance}, "variance"), ({4: lengths[:, :1]}, "lengthscales")):
        args = [X, y, C, variance, lengths, noise, jitter]
        for place, value in change.items():
            args[place] = value
        with pytest.raises(ValueError, match=f"^{word}: found"):
            nested_ep.fit(*classes(nested_ep.NestedOptions, *args))
    with pytest.raises(ValueError, match=r"^shared: found"):
        nested_ep.fit(Data(X, y, C), Prior(variance, lengths, noise, jitter, shared=True))


# -- type-II MAP ----------------------------------------------------------------------------------------------------


@pytest.mark.verifies(PAPER, "u5.5-prior", route="SciPy's Student-t density, finite differences")
@pytest.mark.parametrize("value", [0.01, 1.0, 30.0])
def test_the_half_student_t_is_twice_the_density_of_scipy(value):
    from scipy.stats import t as student

    result = log_half_student_t(np.array([value]), 4.0, 10.0)
    np.testing.assert_allclose(result.value[0], np.log(2.0) + student.logpdf(value, 4.0, scale=10.0), rtol=1e-12)
    derivative = central(lambda v: log_half_student_t(np.exp(v), 4.0, 10.0).value[0], np.log([value]), 0, 1e-5)
    np.testing.assert_allclose(
        result.derivative[0], derivative, rtol=1e-7, atol=1e-9
    )  # central difference of step 1e-5
    readings = [half_t_scale(reading=name) for name in ("scale squared", "scale", "moment")]
    np.testing.assert_allclose(readings, [10.0, 100.0, np.sqrt(50.0)], rtol=1e-15)


@pytest.mark.parametrize("distribution", [("half-student-t", 4.0, 3.0), ("log-normal", 0.7, 2.0)])
@pytest.mark.parametrize("prior_on", ["field", "root"])
@pytest.mark.parametrize("map_density", ["value", "log"])
def test_every_reading_of_a_prior_has_its_derivative(distribution, prior_on, map_density):
    for name in ("variance", "lengthscales"):
        value = np.array([0.4, 5.0])
        result = log_hyperprior(name, value, distribution, prior_on=prior_on, map_density=map_density)
        for k in range(2):
            total = lambda v, k=k, name=name: log_hyperprior(  # noqa: E731
                name, np.exp(v), distribution, prior_on=prior_on, map_density=map_density
            ).value[k]
            derivative = central(total, np.log(value), k, 1e-5)
            np.testing.assert_allclose(result.derivative[k], derivative, rtol=1e-6, atol=1e-8)  # central difference


@pytest.mark.verifies(PAPER, "u5.5-map", route="finite differences of evidence plus density")
def test_the_map_objective_has_the_derivative_of_evidence_plus_prior():
    X, y, C, _, _, noise, jitter = toy(variance=2.0)
    distributions = {"variance": ("half-student-t", 4.0, 10.0), "lengthscales": ("half-student-t", 4.0, 10.0)}

    def value_at(vector):
        v, ls = np.exp(vector[0]), np.exp(vector[1:])
        posterior = nested_ep.fit(
            Data(X, y, C), Prior(v, ls, noise, jitter, shared=True), nested_ep.NestedOptions(tolerance=1e-12)
        )
        total = posterior.log_evidence + float(log_half_student_t(np.array([v]), 4.0, 10.0).value[0])
        return posterior, total + float(log_half_student_t(ls, 4.0, 10.0).value.sum())

    start = np.log([2.0, 1.5, 1.5])
    posterior, direct = value_at(start)
    value, derivative = map_objective(
        posterior.log_evidence,
        nested_ep.gradients(posterior),
        posterior.prior.hyper,
        ("variance", "lengthscales"),
        distributions,
        shared=True,
    )
    np.testing.assert_allclose(value, direct, rtol=1e-13)  # one sum in another order
    for k in range(3):
        by_difference = central(lambda v: value_at(v)[1], start, k, 1e-4)
        np.testing.assert_allclose(derivative[k], by_difference, rtol=1e-5, atol=1e-6)


def test_a_search_ends_where_the_gradient_is_zero_and_beats_its_start():
    prior = multiclass_prior.prepare(*classes(Options, *toy(n=16, variance=2.0), shared=True)[:2])
    distributions = {"variance": ("half-student-t", 4.0, 10.0), "lengthscales": ("half-student-t", 4.0, 10.0)}
    optimum = search(
        prior,
        lambda here, start: nested_ep.converge(here, start=start),
        lambda at: (at.log_evidence, nested_ep.gradients(at)),
        ClassSearch(learn=("variance", "lengthscales"), hyperprior=distributions),
        warm_start=lambda at: (at.alpha_tilde, at.beta_tilde),
    )
    assert optimum.converged
    derivative = map_objective(
        optimum.posterior.log_evidence, nested_ep.gradients(optimum.posterior), optimum.hyper,
        ("variance", "lengthscales"), distributions, shared=True,
    )[1]  # fmt: skip
    assert np.abs(derivative).max() < 1e-4  # asked for 1e-5 in the last evaluation but one at most
    start = nested_ep.converge(prior)
    first = map_objective(
        start.log_evidence,
        nested_ep.gradients(start),
        prior.hyper,
        ("variance", "lengthscales"),
        distributions,
        shared=True,
    )[0]
    assert optimum.objective > first
