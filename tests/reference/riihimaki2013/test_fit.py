"""Fixed points, evidence and gradients of the four variants; identities, invariance and refusals."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from bivariate import bivariate_normal_cdf
from reference.common.errors import NotPositiveDefiniteError
from reference.common.options import options_of
from reference.riihimaki2013.evidence import ep_gradient, ep_log_marginal
from reference.riihimaki2013.fit import Prior, ep_gradients, fit_ep, predict_ep
from reference.riihimaki2013.posterior import ep_posterior, marginals, stack_blocks
from reference.riihimaki2013.prediction import (
    class_probability_from_g,
    independent_class_probabilities,
    predict_class_probabilities,
)


def run(method, *data, **options):
    """`fit_ep` by the method of this name."""
    return fit_ep(*data, options=options_of(method)(**options))


def binary_ep(K, y):
    """Binary probit EP, one site at a time, in its textbook form; y is -1 or +1. Mean, covariance, log Z."""
    n = len(y)
    tau, nu = np.zeros(n), np.zeros(n)
    for _ in range(200):
        for i in range(n):
            cov = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
            mean = cov @ nu
            left = 1.0 / (1.0 / cov[i, i] - tau[i])
            m = left * (mean[i] / cov[i, i] - nu[i])
            z = y[i] * m / np.sqrt(1.0 + left)
            r = norm.pdf(z) / ndtr(z)
            hat_m, hat_v = m + y[i] * left * r / np.sqrt(1 + left), left - left**2 * r * (z + r) / (1.0 + left)
            tau[i], nu[i] = 1.0 / hat_v - 1.0 / left, hat_m / hat_v - m / left
    cov = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
    mean = cov @ nu
    left = 1.0 / (1.0 / np.diag(cov) - tau)
    m = left * (mean / np.diag(cov) - nu)
    log_norm = np.log(ndtr(y * m / np.sqrt(1.0 + left)))
    scale = log_norm + 0.5 * (m**2 / left + np.log(left)) - 0.5 * (mean**2 / np.diag(cov) + np.log(np.diag(cov)))
    return mean, cov, 0.5 * nu @ mean - 0.5 * np.linalg.slogdet(np.eye(n) + K * tau)[1] + np.sum(scale)


@pytest.mark.verifies("riihimaki2013", "28", route="binary probit EP of h = (f¹ - f⁰)/√2 in its textbook form")
def test_two_classes_are_binary_probit_ep(model):
    s = model
    y = np.array([0, 1, 1, 0, 1])
    prior = Prior(*(value[:2] for value in s.prior))
    fit = run("nested-ep", s.X, y, 2, prior)
    assert fit.converged
    mean, cov, log_z = binary_ep(0.5 * (s.blocks[0] + s.blocks[1]), 2.0 * y - 1.0)
    # fixed points to 1e-10 of the sites' own scale
    assert fit.log_evidence == pytest.approx(log_z, rel=1e-9, abs=0)
    h = (fit.latent_mean[:, 1] - fit.latent_mean[:, 0]) / np.sqrt(2.0)
    np.testing.assert_allclose(h, mean, rtol=1e-8, atol=1e-9)
    var = 0.5 * (fit.latent_cov[:, 0, 0] + fit.latent_cov[:, 1, 1]) - fit.latent_cov[:, 0, 1]
    np.testing.assert_allclose(var, np.diag(cov), rtol=1e-8, atol=0)


@pytest.mark.verifies("riihimaki2013", "28", route="Gaussian integrals written out, and their sum")
def test_log_marginal_of_made_up_sites(rng):
    n, c = 2, 2
    root = rng.normal(size=(4, 4))
    K = root @ root.T + np.eye(4)
    T, nu = np.diag([0.3, 0.2, 0.5, 0.1]), rng.normal(size=4)
    cov = np.linalg.inv(np.linalg.inv(K) + T)
    mean = cov @ nu
    latent_mean, latent_cov = mean.reshape(c, n).T, np.stack([cov[i::n, i::n] for i in range(n)])
    left_cov = np.stack([np.linalg.inv(np.linalg.inv(latent_cov[i]) - T[i::n, i::n]) for i in range(n)])
    left_mean = np.stack([left_cov[i] @ (np.linalg.solve(latent_cov[i], latent_mean[i]) - nu[i::n]) for i in range(n)])
    log_norms = np.array([-0.7, -1.3])
    # ∫ N(f|0, K) exp(-½f'Tf + ν'f) df, and the same of each cavity
    wanted = 0.5 * nu @ mean - 0.5 * np.linalg.slogdet(np.eye(4) + K @ T)[1] + np.sum(log_norms)
    for i in range(n):
        site, shift = T[i::n, i::n], nu[i::n]
        inner = np.linalg.inv(left_cov[i]) + site
        total = np.linalg.solve(left_cov[i], left_mean[i]) + shift
        wanted -= 0.5 * total @ np.linalg.solve(inner, total) - 0.5 * left_mean[i] @ np.linalg.solve(
            left_cov[i], left_mean[i]
        )
        wanted += 0.5 * np.linalg.slogdet(np.eye(c) + left_cov[i] @ site)[1]
    log_det = np.linalg.slogdet(np.eye(4) + K @ T)[1]
    got = ep_log_marginal(nu, mean, log_det, log_norms, left_mean, left_cov, latent_mean, latent_cov)
    assert got == pytest.approx(wanted, rel=1e-11, abs=0)


@pytest.mark.parametrize(
    ("method", "options"),
    [("nested-ep", {}), ("nested-iep", {"schedule": "sequential", "damping": 1.0}), ("qiep", {"nodes": 40})],
)
def test_gradients_at_the_fixed_point(model, method, options):
    s = model
    X, y = s.X[:4], s.y[:4]

    def evidence(prior):
        return run(method, X, y, 3, prior, **options).log_evidence

    got = ep_gradients(run(method, X, y, 3, s.prior, **options), X, s.prior)
    for field, where in (("variance", (1,)), ("lengthscales", (2, 0)), ("noise", (0,))):
        ends = []
        for sign in (1.0, -1.0):
            value = getattr(s.prior, field).copy()
            value[where] += 1e-5 * sign
            ends.append(evidence(s.prior._replace(**{field: value})))
        # central differences of a fixed point to 1e-10: 1e-10 / 1e-5 and the cube of the step
        assert getattr(got, field)[where] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-7)


@pytest.mark.verifies("riihimaki2013", "B-gradient", route="central differences of the first two terms of (28)")
def test_explicit_gradient_by_finite_differences(rng):
    root = rng.normal(size=(6, 6))
    K = root @ root.T + np.eye(6)
    T, nu = np.diag(rng.uniform(0.1, 0.9, size=6)), rng.normal(size=6)
    directions = [v + v.T for v in rng.normal(size=(3, 6, 6))]

    def explicit(prior):
        cov = np.linalg.inv(np.linalg.inv(prior) + T)
        return 0.5 * nu @ cov @ nu - 0.5 * np.linalg.slogdet(np.eye(6) + prior @ T)[1]

    wanted = [(explicit(K + 1e-5 * D) - explicit(K - 1e-5 * D)) / 2e-5 for D in directions]
    M = T @ np.linalg.inv(np.eye(6) + K @ T)
    np.testing.assert_allclose(ep_gradient(nu, M, K, directions), wanted, rtol=1e-6, atol=1e-8)  # differences


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize("method", ["nested-ep", "nested-iep", "qep", "qiep"])
def test_appendix_b_is_the_posterior_of_the_whole_site_matrix(model, method, schedule):
    s = model
    fit = run(method, s.X, s.y, 3, s.prior, schedule=schedule)
    assert fit.converged
    whole = ep_posterior(s.K, fit.site_precision, fit.site_location)
    # a norm of K below 100 leaves 1e-13
    np.testing.assert_allclose(fit.posterior.mean, whole.mean, rtol=0, atol=1e-11)
    np.testing.assert_allclose(fit.posterior.cov, whole.cov, rtol=0, atol=1e-11)
    assert fit.posterior.log_det == pytest.approx(whole.log_det, rel=1e-11, abs=0)
    latent = marginals(whole.mean, whole.cov, s.n)
    np.testing.assert_allclose(fit.latent_mean, latent.mean, rtol=0, atol=1e-11)
    np.testing.assert_allclose(fit.latent_cov, latent.cov, rtol=0, atol=1e-11)
    T = stack_blocks(fit.site_precision)
    np.testing.assert_allclose(fit.M, T @ np.linalg.inv(np.eye(15) + s.K @ T), rtol=0, atol=1e-11)


def test_the_sites_match_the_moments_of_their_inner_approximation(model):
    s = model
    # an identity of section 3.2.2, at the fixed point and before it; inverses of conditions below 100
    for steps in (1, 3, 1000):
        assert run("nested-ep", s.X, s.y, 3, s.prior, max_iterations=steps).moment_gap < 1e-12
    assert run("nested-iep", s.X, s.y, 3, s.prior, max_iterations=1).moment_gap is None


def test_schedules_and_inner_runs_share_the_fixed_point(model):
    s = model
    X, y = s.X, s.y
    base = run("nested-ep", X, y, 3, s.prior)
    for options in (
        {"inner": "incremental"},
        {"schedule": "sequential", "damping": 1.0},
        {"inner_schedule": "parallel", "inner": "incremental", "damping": 0.5},
    ):
        other = run("nested-ep", X, y, 3, s.prior, **options)
        assert other.converged
        assert other.log_evidence == pytest.approx(base.log_evidence, rel=1e-10, abs=0)
        np.testing.assert_allclose(other.latent_cov, base.latent_cov, rtol=1e-8, atol=1e-9)  # residual 1e-10


def test_independent_classes_understate_the_variances(model):
    full = run("nested-ep", model.X, model.y, 3, model.prior)
    independent = run("nested-iep", model.X, model.y, 3, model.prior)
    ratio = np.einsum("ikk->ik", independent.latent_cov) / np.einsum("ikk->ik", full.latent_cov)
    assert np.mean(ratio) < 1.0
    off = independent.latent_cov * (1.0 - np.eye(3))
    np.testing.assert_allclose(off, 0.0, rtol=0, atol=1e-14)


def test_quadrature_variants_are_near_their_nested_twins(model):
    X, y = model.X, model.y
    nested, iep = (run(m, X, y, 3, model.prior) for m in ("nested-ep", "nested-iep"))
    qep = run("qep", X, y, 3, model.prior, nodes=12)
    full = run("qep", X, y, 3, model.prior, nodes=12, lambda_="full")
    qiep = run("qiep", X, y, 3, model.prior, nodes=12)
    for left, right in ((qep, nested), (full, nested), (qiep, iep)):
        assert left.converged
        assert np.max(np.abs(left.latent_mean - right.latent_mean)) < 0.03  # 0.01 is typical for variances about 2
        assert left.log_evidence == pytest.approx(right.log_evidence, rel=0, abs=0.1)


def test_permutations_of_data_and_classes_move_nothing(model):
    s = model
    order, classes = np.array([3, 0, 4, 2, 1]), np.array([2, 0, 1])
    base = run("nested-ep", s.X, s.y, 3, s.prior)
    y = np.argsort(classes)[s.y][order]
    moved = run("nested-ep", s.X[order], y, 3, Prior(*(value[classes] for value in s.prior)))
    assert moved.log_evidence == pytest.approx(base.log_evidence, rel=1e-9, abs=0)  # residual 1e-10
    np.testing.assert_allclose(moved.latent_mean, base.latent_mean[order][:, classes], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("method", ["nested-ep", "nested-iep"])
def test_hard_problems_converge_or_say_so(rng, method):
    X = np.repeat(rng.normal(size=(4, 1)), 2, axis=0)
    X[1::2] += 1e-6  # near duplicates
    y = np.array([0, 0, 1, 2, 1, 1, 2, 0])
    prior = Prior(np.full(3, np.exp(8.0)), np.full((3, 1), 2.0), np.zeros(3), np.full(3, 1e-6))
    fit = run(method, X, y, 3, prior, damping=0.5, max_iterations=60)
    assert np.all(np.isfinite(fit.latent_mean))
    assert np.all(np.isfinite(fit.latent_cov))
    assert fit.converged == (fit.residual <= 1e-10)
    raw = predict_ep(fit, X, np.zeros((1, 1)), prior)
    assert np.all(np.isfinite(raw.probability))


@pytest.mark.verifies("riihimaki2013", "25", route="orthant probability by quadrature over one difference")
def test_class_probability_as_an_integral_over_g(model):
    s = model
    for k in range(3):
        B = np.eye(3)[k] - np.delete(np.eye(3), k, axis=0)
        wanted = bivariate_normal_cdf(B @ s.cavity_mean, B @ s.cavity_cov @ B.T + 1.0 + np.eye(2))
        assert class_probability_from_g(s.cavity_mean, s.cavity_cov, k) == pytest.approx(wanted, rel=0, abs=2e-5)
        got = class_probability_from_g(s.cavity_mean, s.cavity_cov, k, nodes=100)
        assert got == pytest.approx(wanted, rel=1e-5, abs=0)  # 100 nodes, bends a quarter as wide as the Gaussian
    two = class_probability_from_g(np.array([0.3, -0.4]), np.diag([0.5, 0.8]), 0)
    assert two == pytest.approx(ndtr(0.7 / np.sqrt(3.3)), rel=1e-14, abs=0)


def test_probabilities_by_default_are_orthants_and_the_mass_says_how_good(model, rng):
    s = model
    X_test = 2.0 * rng.normal(size=(4, 2))
    fit = run("qep", s.X, s.y, 3, s.prior, nodes=12)
    got = predict_ep(fit, s.X, X_test, s.prior, prediction="quadrature")
    # 1e-5 for each class; it is the sum before normalising, and not one by construction
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=0, atol=3e-5)
    assert np.all(got.probability_mass != 1.0)
    np.testing.assert_allclose(np.sum(got.probability, axis=1), 1.0, rtol=1e-14)
    for m, S, value in zip(got.latent_mean, got.latent_cov, got.probability, strict=True):
        B = np.eye(3)[0] - np.eye(3)[1:]
        wanted = bivariate_normal_cdf(B @ m, B @ S @ B.T + 1.0 + np.eye(2))
        assert value[0] == pytest.approx(wanted, rel=0, abs=2e-5)
    by_rule = predict_ep(fit, s.X, X_test, s.prior, prediction="quadrature", prediction_nodes=60)
    np.testing.assert_allclose(by_rule.probability, got.probability, rtol=0, atol=1e-3)  # 60 nodes
    assert np.max(np.abs(by_rule.probability - got.probability)) > 1e-10


def test_no_gradient_of_diagonal_sites_is_claimed(model):
    s = model
    X, y = s.X[:4], s.y[:4]
    with pytest.raises(ValueError, match=r"^fit: found qep with diagonal Λ, expected sites that keep"):
        ep_gradients(run("qep", X, y, 3, s.prior, nodes=12), X, s.prior)
    full = ep_gradients(run("qep", X, y, 3, s.prior, nodes=12, lambda_="full"), X, s.prior)
    nested = ep_gradients(run("nested-ep", X, y, 3, s.prior), X, s.prior)
    np.testing.assert_allclose(full.variance, nested.variance, rtol=0.2, atol=0.02)  # two approximations of one log Z
    two = Prior(*(value[:2] for value in s.prior))
    ep_gradients(run("qep", X, np.minimum(y, 1), 2, two), X, two)  # one difference: its Λ is diagonal and full


@pytest.mark.verifies(
    "riihimaki2013", "B-predict-prob", route="two classes in closed form, three by orthants in a band"
)
def test_class_probabilities_by_the_inner_algorithm(model):
    s = model
    two = predict_class_probabilities(np.array([0.3, -0.4]), np.array([[0.5, 0.1], [0.1, 0.8]]))
    right = ndtr(0.7 / np.sqrt(2.0 + 1.1))
    np.testing.assert_allclose(two, [right, 1.0 - right], rtol=1e-9, atol=0)  # one factor: exact
    three = predict_class_probabilities(s.cavity_mean, s.cavity_cov)
    exact = [class_probability_from_g(s.cavity_mean, s.cavity_cov, k, nodes=100) for k in range(3)]
    np.testing.assert_allclose(three, exact, rtol=0.03, atol=0)  # EP's normaliser is some percent off
    assert 0.95 < np.sum(three) < 1.02


def test_other_probabilities(model):
    s = model
    var = np.array([0.5, 0.8, 0.3])
    got = independent_class_probabilities(s.cavity_mean, var)
    exact = [class_probability_from_g(s.cavity_mean, np.diag(var), k, nodes=80) for k in range(3)]
    np.testing.assert_allclose(got, exact, rtol=1e-8, atol=0)
    assert np.sum(got) == pytest.approx(1.0, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("method", {"method": "ep"}),
        ("schedule", {"schedule": "both"}),
        ("inner", {"inner": "twice"}),
        ("damping", {"damping": 0.0}),
        ("nodes", {"method": "qep", "nodes": 1}),
        ("tolerance", {"tolerance": 2.0}),
        ("max_iterations", {"max_iterations": 0}),
        ("y", {"y": np.array([0, 1, 3, 0, 0])}),
        ("variance", {"prior": Prior(np.zeros(3), np.ones((3, 2)), np.zeros(3), np.zeros(3))}),
        ("lengthscales", {"prior": Prior(np.ones(3), np.ones((3, 4)), np.zeros(3), np.zeros(3))}),
        ("X", {"X": np.full((5, 2), np.nan)}),
    ],
)
def test_bad_input_is_refused_by_name(model, name, options):
    data = {"X": model.X, "y": model.y, "n_classes": 3, "prior": model.prior}
    given = {"method": "nested-ep"} | options
    data |= {key: given.pop(key) for key in list(given) if key in data}
    with pytest.raises(ValueError, match=f"^{name}: found"):
        run(given.pop("method"), *data.values(), **given)


@pytest.mark.parametrize(
    ("variance", "lengthscale", "nodes", "lambda_", "damping"),
    [
        (4e4, 7.0, 5, "diagonal", 1.0),
        (2e3, 1.5, 5, "diagonal", 1.0),
        (40.0, 1.5, 2, "full", 1.0),
        (2e3, 7.0, 3, "full", 0.5),
    ],
)
def test_a_rule_that_sees_one_node_makes_no_site(variance, lengthscale, nodes, lambda_, damping):
    # tilted variances of rounding size: reciprocals that overflow, and posterior variances below zero
    X, y = np.linspace(-1.0, 1.0, 5)[:, None], np.arange(5) % 3
    prior = Prior(np.full(3, variance), np.full((3, 1), lengthscale), np.full(3, 1e-3 * variance), np.zeros(3))
    options = {"nodes": nodes, "lambda_": lambda_, "damping": damping, "max_iterations": 10}
    fit = run("qep", X, y, 3, prior, **options)
    assert fit.n_improper > 0
    assert not fit.converged
    assert fit.reason
    assert np.all(np.linalg.eigvalsh(fit.latent_cov) > 0.0)
    new = predict_ep(fit, X, X, prior, options=options_of("qep")(**options))
    assert np.all(np.linalg.eigvalsh(new.latent_cov) > 0.0)


def test_a_lost_cavity_is_an_error_of_the_evidence_not_of_the_run(model):
    fit = run("qep", model.X, model.y, 3, model.prior, nodes=2, max_iterations=3, damping=1.0)
    assert np.all(np.isfinite(fit.latent_mean))
    assert fit.log_evidence is None or np.isfinite(fit.log_evidence)
    with pytest.raises(NotPositiveDefiniteError):
        ep_log_marginal(
            np.zeros(2),
            np.zeros(2),
            0.0,
            np.zeros(1),
            np.zeros((1, 2)),
            -np.eye(2)[None],
            np.zeros((1, 2)),
            np.eye(2)[None],
        )
