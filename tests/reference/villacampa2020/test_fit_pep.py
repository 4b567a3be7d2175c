"""Power EP as a whole: exact cases, stationarity at its fixed points, gradients, learning, refusals."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from reference.common._steps import Rule
from reference.common._training import State, Task, begin
from reference.common.options import options_of
from reference.common.priors import Prior
from reference.villacampa2020.fit_pep import PEP, PEPLimit, fit_pep, to_fixed_point, training_step
from reference.villacampa2020.hyper import prior_matrices
from reference.villacampa2020.pep import parallel_pep_sweep
from reference.villacampa2020.posterior import Coefficients, posterior_moments

CASES = [(0.0, 1.0), (0.07, 0.6), (0.07, 0.05), (0.07, 0.0)]


@pytest.fixture
def prior(model):
    s = model
    return Prior(s.variance, s.lengthscales, s.noise, s.jitter, s.Z)


def zero(s):
    return Coefficients(np.zeros((s.n, s.C)), np.zeros((s.n, s.C)))


def method_of(s, epsilon, alpha, damping=0.5):
    return PEPLimit(s.y, epsilon, alpha, damping) if alpha == 0.0 else PEP(s.y, epsilon, alpha, damping)


def fixed_point(s, prior, epsilon, alpha):
    method = method_of(s, epsilon, alpha, 0.9)
    task = Task(method, s.X, options_of("pep")(tolerance=1e-12, max_iterations=400), False)
    return method, to_fixed_point(task, begin(task, prior))


def test_one_datum_and_no_power_is_exact():
    """With one factor EP's log Z_q is log p(y): two classes, by the correlated probit of the difference."""
    X, Z = np.array([[0.3]]), np.array([[[0.0], [1.0]], [[0.5], [-1.0]]])
    prior = Prior(np.array([2.0, 0.7]), np.ones((2, 1)), np.array([0.1, 0.3]), np.zeros(2), Z)
    for epsilon in (0.0, 0.2):
        fit = fit_pep(X, np.array([1]), prior, epsilon, alpha=1.0)
        assert fit.converged
        # both prior means are zero: a probability of one half
        assert fit.log_evidence == pytest.approx(np.log((1 - epsilon) * 0.5 + epsilon / 2), rel=1e-9, abs=0)


@pytest.mark.parametrize(("epsilon", "alpha"), CASES)
def test_log_evidence_is_stationary_in_the_sites_at_a_fixed_point(model, prior, epsilon, alpha):
    s = model
    task, run = fixed_point(s, prior, epsilon, alpha)
    K = run.K
    assert run.converged

    def value(coefficients):
        return task.value(coefficients, posterior_moments(*coefficients, K.upsilon, K.K_ZZ), K).log_evidence

    h = 1e-4
    for part in range(2):
        for place in ((0, 0), (3, 1), (4, 2)):
            step = [np.zeros((s.n, s.C)), np.zeros((s.n, s.C))]
            step[part][place] = h
            up, down = (
                value(Coefficients(*(c + sign * d for c, d in zip(run.sites, step, strict=True))))
                for sign in (1.0, -1.0)
            )
            # the second derivative is of order one: a gradient of 1e-6 would be seen; differences round to 1e-10
            assert abs(up - down) / (2 * h) < 1e-7
            far = [c + 0.3 for c in run.sites]
            moved = [value(Coefficients(*(c + sign * d for c, d in zip(far, step, strict=True)))) for sign in (1, -1)]
            assert abs(moved[0] - moved[1]) / (2 * h) > 1e-5


@pytest.mark.parametrize(("epsilon", "alpha"), [(0.0, 1.0), (0.07, 0.6), (0.07, 0.0)])
def test_gradients_are_those_of_the_log_evidence_found_anew(model, prior, epsilon, alpha):
    s, h = model, 1e-4
    task, run = fixed_point(s, prior, epsilon, alpha)
    got = [task.gradients(s.X, run, exact=exact) for exact in (False, True)]
    for name, place in (("variance", 1), ("lengthscales", (2, 0)), ("noise", 0), ("Z", (1, 0, 1))):
        values = []
        for sign in (1.0, -1.0):
            moved = np.array(getattr(prior, name))
            moved[place] += sign * h
            _, there = fixed_point(s, prior._replace(**{name: moved}), epsilon, alpha)
            values.append(task.value(there.sites, there.posterior, there.K).log_evidence)
        for gradients in got:  # central differences: h² times third derivatives
            assert gradients[name][place] == pytest.approx((values[0] - values[1]) / (2 * h), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.6, 0.0])
def test_away_from_a_fixed_point_the_exact_rule_holds_the_numbers(model, prior, alpha):
    s, h = model, 1e-5
    at, task = Coefficients(s.c1, s.c2), method_of(s, s.epsilon, alpha)

    def value(there):
        K = prior_matrices(s.X, there)
        return task.value(at, posterior_moments(*at, K.upsilon, K.K_ZZ), K).log_evidence

    K = prior_matrices(s.X, prior)
    q = posterior_moments(*at, K.upsilon, K.K_ZZ)
    exact, held = (task.gradients(s.X, State(at, q, prior, K), exact=exact) for exact in (True, False))
    for name, place in (("variance", 1), ("lengthscales", (2, 0)), ("noise", 0), ("Z", (1, 0, 1))):
        ends = []
        for sign in (1.0, -1.0):
            moved = np.array(getattr(prior, name))
            moved[place] += sign * h
            ends.append(value(prior._replace(**{name: moved})))
        assert exact[name][place] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6, abs=1e-8)
    assert np.max(np.abs(exact["Z"] - held["Z"])) > 1e-2
    # mini-batches that cover the data once: their terms, n/b times, average to the whole
    parts = [task.gradients(s.X, State(at, q, prior, K), np.array([i])) for i in range(s.n)]
    for name, whole in held.items():
        np.testing.assert_allclose(np.mean([p[name] for p in parts], axis=0), whole, rtol=1e-9, atol=1e-10)


def test_a_vanishing_power_is_the_variational_bound(model, prior):
    """At α = 0 log Z_q at any sites is E_q[log p(y|f)] - KL(q||p), and the limit of small α."""
    s, epsilon = model, 0.07
    K, at = prior_matrices(s.X, prior), Coefficients(s.c1, s.c2)
    q = posterior_moments(*at, K.upsilon, K.K_ZZ)
    bound = 0.0
    for k in range(s.C):
        m, V, P = q.mean[k], q.cov[k], np.linalg.inv(K.K_ZZ[k])
        logs = np.linalg.slogdet(K.K_ZZ[k])[1] - np.linalg.slogdet(V)[1]
        bound -= 0.5 * (np.trace(P @ V) + m @ P @ m - s.m + logs)
    steps = np.linspace(-10.0, 10.0, 2001)
    for i in range(s.n):
        mean = np.array([K.upsilon[k, i] @ q.mean[k] for k in range(s.C)])
        sd = np.sqrt([K.cond_var[k, i] + K.upsilon[k, i] @ q.cov[k] @ K.upsilon[k, i] for k in range(s.C)])
        y, others = s.y[i], [k for k in range(s.C) if k != s.y[i]]
        below = np.prod(norm.cdf((mean[y] + sd[y] * steps[:, None] - mean[others]) / sd[others]), axis=1)
        P = np.sum(norm.pdf(steps) * below) * (steps[1] - steps[0])
        bound += P * np.log(1 - epsilon + epsilon / s.C) + (1 - P) * np.log(epsilon / s.C)
    for alpha, close in ((0.0, 1e-10), (1e-4, 1e-2)):
        got, _ = method_of(s, epsilon, alpha).value(at, q, K)
        assert got == pytest.approx(bound, rel=0, abs=close)  # the derivative in α is of order ten


def test_the_limit_of_the_equations_is_that_of_small_powers(model, prior):
    """Sites after a sweep, and the gradient with the factors held, at α = 0 and by extrapolation of small α."""
    s = model
    K, at, rows = prior_matrices(s.X, prior), Coefficients(s.c1, s.c2), np.array([0, 3])
    q = posterior_moments(*at, K.upsilon, K.K_ZZ)
    results = []
    for alpha in (0.0, 1e-4, 2e-4):
        method = method_of(s, 0.07, alpha)
        gradients = method.gradients(s.X, State(at, q, prior, K), rows)
        swept = method.sweep(at, q, K, rows)
        results.append([*swept.sites, *swept.posterior, *gradients.values(), np.array(swept.residual)])
    for zero, one, two in zip(*results, strict=True):
        # what is left is second order in α, 1e-8, and rounding of some 1e-14/α
        np.testing.assert_allclose(2.0 * one - two, zero, rtol=1e-5, atol=1e-6)


@pytest.mark.verifies("villacampa2020", "u20-joint-optimisation", route="sweep, numerical gradient and Adam by hand")
def test_a_training_step_is_a_sweep_and_a_step_uphill(model, prior):
    s, h, rate = model, 1e-5, 0.02
    task, rows = PEP(s.y, s.epsilon, s.alpha, 0.4), np.arange(s.n)
    K, at = prior_matrices(s.X, prior), Coefficients(s.c1, s.c2)
    q = posterior_moments(*at, K.upsilon, K.K_ZZ)
    state = State(at, q, prior, K, Rule.start(2 * s.C, rate))
    learn = ("variance", "noise")
    got = training_step(Task(task, s.X, options_of("pep")(learn=learn, gradient_rule="exact"), False), state, rows)
    sites = parallel_pep_sweep(at, s.y, K, s.epsilon, s.alpha, 0.4).coefficients
    np.testing.assert_allclose(got.sites, sites, rtol=1e-9, atol=1e-12)

    def value(variance, noise):
        there = prior_matrices(s.X, prior._replace(variance=np.exp(variance), noise=np.exp(noise)))
        return task.value(sites, posterior_moments(*sites, there.upsilon, there.K_ZZ), there).log_evidence

    where = [np.log(prior.variance), np.log(prior.noise)]
    for field, name in enumerate(learn):
        for k in range(s.C):
            ends = []
            for sign in (1.0, -1.0):
                moved = [w.copy() for w in where]
                moved[field][k] += sign * h
                ends.append(value(*moved))
            derivative = (ends[0] - ends[1]) / (2 * h)
            step = np.log(getattr(got.prior, name)[k]) - where[field][k]
            assert step == pytest.approx(rate * derivative / (abs(derivative) + 1e-8), rel=1e-6, abs=0)
            # Adam's memory after its first step
            assert got.rule.adam.first[field * s.C + k] == pytest.approx(0.1 * derivative, rel=1e-5, abs=1e-8)
            assert got.rule.adam.second[field * s.C + k] == pytest.approx(1e-3 * derivative**2, rel=1e-4, abs=1e-10)
    K_new = prior_matrices(s.X, got.prior)
    np.testing.assert_allclose(got.K.cond_var, K_new.cond_var, rtol=1e-12)
    np.testing.assert_allclose(got.posterior.mean, posterior_moments(*sites, K_new.upsilon, K_new.K_ZZ).mean, rtol=1e-9)
    # without fields to learn only the factors of the batch move
    got = training_step(Task(task, s.X, options_of("pep")(), False), state, np.array([2]))
    assert got.prior is prior
    np.testing.assert_array_equal(got.sites.c1[[0, 1, 3, 4]], at.c1[[0, 1, 3, 4]])
    assert np.max(np.abs(got.sites.c1[2] - at.c1[2])) > 1e-3


@pytest.mark.slow
def test_learning_raises_the_log_evidence(model, prior):
    s = model
    start = fit_pep(s.X, s.y, prior, 0.07, alpha=0.5, gradients=False).log_evidence
    posterior = fit_pep(s.X, s.y, prior, 0.07, alpha=0.5, learn=("variance",), n_steps=4, optimizer="lbfgs")
    assert posterior.log_evidence > start + 1e-3
    for settings in ({"optimizer": "adaptive"}, {"optimizer": "adam", "rate": 0.05}, {"batches": [[0, 1], [2, 3, 4]]},
                     {"batch_size": 3}, {"scheme": "outer", "optimizer": "adaptive"}):  # fmt: skip
        steps = 2
        options = {"tolerance": 1e-6, "learn": ("variance", "lengthscales"), "n_steps": steps, "trace": True}
        got = fit_pep(s.X, s.y, prior, 0.07, alpha=0.5, **options, **settings)
        assert len(got.trace) == got.iterations == steps
        assert not got.converged
        assert not np.array_equal(got.prior.variance, prior.variance)
    shared = fit_pep(s.X, s.y, Prior(*(np.repeat(part[:1], 3, axis=0) for part in prior)), 0.07, alpha=0.5, shared=True,
                     learn=("noise",), n_steps=2)  # fmt: skip
    assert np.ptp(shared.prior.noise) == 0.0


def test_impossible_cavities_and_steps_are_counted(model, prior):
    s = model
    s.X[1], s.y[1] = s.X[0], s.y[0]
    K = prior_matrices(s.X, prior)
    size = np.array([K.upsilon[k, 0] @ K.K_ZZ[k] @ K.upsilon[k, 0] for k in range(s.C)])
    at = zero(s)
    at.c1[0], at.c1[1] = 3.0 / size, -2.0 / size  # q is a distribution, the first datum's cavity is none
    q = posterior_moments(*at, K.upsilon, K.K_ZZ)
    task = PEP(s.y, 0.0, 1.0, 0.5)
    got = task.sweep(at, q, K, np.arange(s.n))
    assert got.n_improper == 1
    np.testing.assert_array_equal(got.sites.c1[0], at.c1[0])
    assert task.value(at, q, K).log_evidence is None
    assert task.traced(at, q, K) is None
    for exact in (False, True):
        assert task.gradients(s.X, State(at, q, prior, K), exact=exact) is None


def test_sweeps_that_leave_no_distribution_end_with_the_reason(model, prior):
    s = model
    task = Task(PEP(s.y, 0.1, 0.5, 1.0), s.X, options_of("pep")(), False)
    state = begin(task, prior)
    size = np.einsum("kim,kmp,kip->ik", state.K.upsilon, state.K.K_ZZ, state.K.upsilon)
    got = to_fixed_point(task, state._replace(sites=Coefficients(-3.0 / size, np.zeros((s.n, s.C)))))
    assert (got.converged, got.residual) == (False, np.inf)
    assert got.reason.startswith("a sweep leaves no distribution: posterior precision")


@pytest.mark.parametrize(
    ("name", "settings", "options"),
    [
        ("alpha", {"alpha": 1.2}, {}),
        ("alpha", {"alpha": np.nan}, {}),
        ("epsilon", {"alpha": 0.0}, {}),
        ("damping", {"damping": 1.5}, {}),
        ("scheme", {}, {"scheme": "inside"}),
        ("optimizer", {}, {"optimizer": "sgd"}),
        ("optimizer", {}, {"optimizer": "lbfgs", "batch_size": 2}),
        ("scheme", {}, {"optimizer": "lbfgs", "scheme": "inner"}),
        ("scheme", {}, {"scheme": "outer", "batch_size": 2}),
        ("gradient_rule", {}, {"gradient_rule": "29"}),
        ("batch_size", {}, {"batches": [[0]], "batch_size": 2}),
        ("batches", {}, {"batches": [[9]]}),
        ("n_steps", {}, {"n_steps": 3}),
        ("rate", {}, {"rate": -1.0}),
        ("learn", {}, {"learn": ("jitter",)}),
        ("tolerance", {}, {"tolerance": 0.0}),
        ("callback", {}, {"callback": 3}),
    ],
)
def test_bad_settings_are_refused_by_name(model, prior, name, settings, options):
    with pytest.raises(ValueError, match=name):
        fit_pep(model.X, model.y, prior, **settings, **options)


def test_a_run_that_is_cut_short_says_so(model, prior):
    visited = []
    got = fit_pep(model.X, model.y, prior, 0.07, alpha=0.5, max_iterations=3, trace=True, callback=visited.append)
    assert not got.converged
    assert len(got.trace) == got.iterations == 3
    assert [s.iteration for s in visited] == [1, 2, 3]
    assert got.trace[-1] == pytest.approx(got.log_evidence, rel=1e-12, abs=0)
    assert visited[-1].residual == got.residual > 1e-10


def test_probabilities_follow_the_posterior_of_brute_force():
    """m = n inducing points at the data: EP's means are near those of the exact posterior on a grid, n = 1, C = 2."""
    X, y = np.array([[0.0]]), np.array([0])
    prior = Prior(np.array([1.5, 0.8]), np.ones((2, 1)), np.zeros(2), np.zeros(2), np.zeros((2, 1, 1)))
    fit = fit_pep(X, y, prior, 0.1, alpha=1.0)
    axis = np.linspace(-9.0, 9.0, 1201)
    f = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    p = multivariate_normal.pdf(f, np.zeros(2), np.diag(prior.variance))
    p = p * np.where(f[..., 0] > f[..., 1], 0.95, np.where(f[..., 0] < f[..., 1], 0.05, 0.5))
    p /= np.sum(p)
    np.testing.assert_allclose(fit.posterior.mean[:, 0], np.einsum("ab,abk->k", p, f), atol=1e-4)  # the grid at f₀ = f₁
