"""qep and qiep: rules against adaptive quadrature and dense moments, and both against nested EP."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fast.core.declare import Options
from fast.core.results import Differences
from fast.core.values import Data, Prior
from fast.full_classes import nested_sites
from fast.full_classes import prior as multiclass_prior
from fast.full_classes.dense_couplings import condition_dense, dense_covariance
from fast.full_classes.inner_ep import distribution_with
from fast.full_classes.quadrature_tilt import WhiteMoments, g_sites, independent_tilt, white_moments
from fast.likelihood.product_rule import product_rule
from fast.methods import nested_ep, nested_iep, quadrature_ep
from values_given import classes, options_of

PAPER = "riihimaki2013"


def toy(n=8, C=3, *, seed=7):
    """Arguments of `fit`."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.append(np.arange(C), rng.integers(0, C, n - C))
    lengths = 0.8 + 0.2 * np.arange(C)[:, None] * np.ones(2)
    return X, y, C, np.linspace(1.0, 2.5, C), lengths, np.full(C, 0.05), np.full(C, 1e-6)


def two_dimensional():
    """A distribution of g and its tilted moments by a fine grid."""
    mean, cov = np.array([0.4, -0.6]), np.array([[1.5, 1.1], [1.1, 2.2]])
    inverse, scale = np.linalg.inv(cov), 1.0 / (2 * np.pi * np.sqrt(np.linalg.det(cov)))

    # equal steps on analytic integrands that are gone at the ends: error below 1e-12
    a, b = np.meshgrid(np.linspace(-12, 13, 501), np.linspace(-14, 13, 541), indexing="ij")
    away = np.stack([a, b], axis=-1) - mean
    density = scale * np.exp(-0.5 * np.einsum("abi,ij,abj->ab", away, inverse, away)) * norm.cdf(a) * norm.cdf(b)

    def integral(f):
        return float((f(a, b) * density).sum()) * 0.05 * 0.05

    mass = integral(lambda a, b: 1.0)
    first = np.array([integral(lambda a, b: a), integral(lambda a, b: b)]) / mass
    cross = integral(lambda a, b: a * b) / mass
    second = np.array([[integral(lambda a, b: a * a) / mass, cross], [cross, integral(lambda a, b: b * b) / mass]])
    return Differences(mean[None], cov[None]), mass, first, second - np.outer(first, first)


@pytest.mark.verifies(PAPER, "u3.3-quadrature", "19", "21", "u3.3-diagonal", route="fine grid, dense inverses")
def test_the_rule_finds_tilted_moments_and_sites_that_match_them():
    cavity, mass, mean, cov = two_dimensional()
    moments = white_moments(cavity, 40)
    root = moments.root[0]
    # 40 nodes a dimension on analytic integrands
    np.testing.assert_allclose(moments.log_norm[0], np.log(mass), rtol=0, atol=1e-7)
    np.testing.assert_allclose(cavity.mean[0] + root @ moments.mean[0], mean, rtol=0, atol=1e-6)
    np.testing.assert_allclose(root @ moments.cov[0] @ root.T, cov, rtol=0, atol=1e-6)
    Sigma, mu = cavity.cov[0], cavity.mean[0]
    Lambda = np.linalg.inv(cov) - np.linalg.inv(Sigma)
    full, diagonal = g_sites(cavity, moments, full=True), g_sites(cavity, moments)
    assert full.good[0]
    assert diagonal.good[0]
    np.testing.assert_allclose(full.precision[0], Lambda, rtol=0, atol=1e-5)  # inverses of condition 10
    xi = np.linalg.solve(cov, mean) - np.linalg.solve(Sigma, mu)
    np.testing.assert_allclose(full.location[0], xi, rtol=0, atol=1e-5)
    np.testing.assert_allclose(diagonal.precision[0], np.diag(Lambda.diagonal()), rtol=0, atol=1e-5)
    xi = (np.diag(Lambda.diagonal()) + np.linalg.inv(Sigma)) @ mean - np.linalg.solve(Sigma, mu)
    np.testing.assert_allclose(diagonal.location[0], xi, rtol=0, atol=1e-5)


@pytest.mark.verifies(PAPER, "18", "20", route="dense (Sigma_w^-1 + B~ Lambda B~')^-1")
def test_distributions_with_full_sites_are_dense_ones_in_w(rng):
    root = rng.normal(size=(3, 3))
    cov, mean, y = root @ root.T + 0.4 * np.eye(3), rng.normal(size=3), 1
    half_solved = rng.normal(size=(2, 2))
    Lambda, xi = half_solved @ half_solved.T, rng.normal(size=2)
    B = np.array([[-1.0, 0.0], [1.0, 1.0], [0.0, -1.0], [1.0, 1.0]])
    Sigma_w = np.zeros((4, 4))
    Sigma_w[:3, :3], Sigma_w[3, 3] = cov, 1.0
    S = np.linalg.inv(np.linalg.inv(Sigma_w) + B @ Lambda @ B.T)
    mu = S @ (np.linalg.solve(Sigma_w, np.append(mean, 0.0)) + B @ xi)
    labels = np.array([y])
    others = nested_sites.other_classes(labels, 3)
    cavity = distribution_with(nested_sites.differences(labels, others, mean[None], cov[None]))
    result = nested_sites.full_distribution(cavity, Lambda[None], xi[None])
    np.testing.assert_allclose(result.cov[0], B.T @ S @ B, rtol=1e-9, atol=1e-11)  # condition 100
    np.testing.assert_allclose(result.mean[0], B.T @ mu, rtol=1e-9, atol=1e-11)
    # and the site left on f when u is integrated out
    sites = nested_sites.integrated_sites(Lambda[None], xi[None])
    C_ = B[:3]
    direct = np.linalg.inv(S[:3, :3]) - np.linalg.inv(cov)
    np.testing.assert_allclose(C_ @ sites.precision[0] @ C_.T, direct, rtol=1e-8, atol=1e-9)
    location = np.linalg.solve(S[:3, :3], mu[:3]) - np.linalg.solve(cov, mean)
    np.testing.assert_allclose(C_ @ sites.location[0], location, rtol=1e-8, atol=1e-9)


def test_a_distribution_without_a_factor_is_called_improper_and_no_other_is():
    mean, location = np.zeros((3, 2)), np.ones((3, 2))
    cov = np.array([np.eye(2), -np.eye(2), np.eye(2)])
    precision = np.array([np.eye(2), np.eye(2), -2.0 * np.eye(2)])
    result = nested_sites.full_distribution(nested_sites.Differences(mean, cov), precision, location)
    assert result.proper.tolist() == [True, False, False]
    np.testing.assert_allclose(result.cov[0], 0.5 * np.eye(2), rtol=1e-15, atol=0)  # (1 + 1)^-1, a root and a square


def test_a_datum_whose_distribution_has_no_factor_is_counted_and_keeps_its_site():
    X, y, C, *hyper = toy(n=4)
    run = quadrature_ep._QEP(
        multiclass_prior.MulticlassPrior(X, y, C, multiclass_prior.class_hyper(*hyper, C, 2), False), 8, False
    )
    pair = np.full((4, 2), 0.1), np.zeros((4, 2))
    state = run.at(pair)
    before = run.propose(state, pair)
    broken = state._replace(distribution=state.distribution._replace(proper=np.array([True, False, True, True])))
    after = run.propose(broken, pair)
    assert (before.n_improper, after.n_improper) == (0, 1)
    assert after.target[0][1].tolist() == pair[0][1].tolist()


@pytest.mark.verifies(PAPER, "u3.3-site-precision", "u3.3-site-location", route="printed inverses")
def test_integrated_sites_are_the_printed_ones_singular_or_not(rng):
    root = rng.normal(size=(3, 3))
    Lambda, xi = root @ root.T + 0.1 * np.eye(3), rng.normal(size=3)
    result = nested_sites.integrated_sites(Lambda[None], xi[None])
    direct = np.linalg.inv(np.linalg.inv(Lambda) + 1.0)
    np.testing.assert_allclose(result.precision[0], direct, rtol=1e-9, atol=1e-11)  # condition 100
    one = np.ones(3)
    location = xi - Lambda @ one * (one @ xi) / (1.0 + one @ Lambda @ one)
    np.testing.assert_allclose(result.location[0], location, rtol=1e-12, atol=1e-13)
    zero = nested_sites.integrated_sites(np.zeros((1, 3, 3)), xi[None])
    np.testing.assert_array_equal(zero.precision, np.zeros((1, 3, 3)))


@pytest.mark.verifies(PAPER, "u5.1-qiep", route="adaptive quadrature in two dimensions")
def test_independent_sites_match_exact_means_and_variances():
    m, v, y = np.array([0.3, -0.4, 0.2]), np.array([0.9, 1.4, 0.6]), 1
    others = np.array([[0, 2]])
    result = independent_tilt(m[None], v[None], np.array([y]), others, 60)
    s2 = 1.0 + v[y]
    mass = quad(lambda s: norm.pdf(s, m[y], np.sqrt(s2)) * tail(s, m, v, (0, 2)), -12, 12, epsabs=1e-12)[0]
    moments = np.zeros((3, 2))
    for power in (1, 2):
        # f_y given s = f_y + u: mean m + v (s - m)/(1 + v), variance v/(1 + v)
        def own(s, power=power):
            centre, spread = m[y] + v[y] * (s - m[y]) / s2, v[y] / s2
            return centre if power == 1 else centre**2 + spread

        f = lambda s, own=own: own(s) * norm.pdf(s, m[y], np.sqrt(s2)) * tail(s, m, v, (0, 2))  # noqa: E731
        moments[y, power - 1] = quad(f, -12, 12, epsabs=1e-12)[0] / mass
        for j, other in ((0, 2), (2, 0)):
            g = lambda s, j=j, other=other, power=power: (  # noqa: E731
                norm.pdf(s, m[y], np.sqrt(s2)) * tail(s, m, v, (other,)) * partial_moment(s, m[j], v[j], power)
            )
            moments[j, power - 1] = quad(g, -12, 12, epsabs=1e-12)[0] / mass
    var = moments[:, 1] - moments[:, 0] ** 2
    np.testing.assert_allclose(result.log_norm[0], np.log(mass), rtol=0, atol=1e-9)  # 60 nodes
    np.testing.assert_allclose(result.precision[0], 1 / var - 1 / v, rtol=1e-6)
    np.testing.assert_allclose(result.location[0], moments[:, 0] / var - m / v, rtol=1e-6)


def tail(s, m, v, classes):
    """prod_j Phi((s - m_j)/sqrt(1 + v_j))."""
    return np.prod([norm.cdf((s - m[j]) / np.sqrt(1 + v[j])) for j in classes])


def partial_moment(s, m, v, power):
    """E[f^power Phi(s - f)], f ~ N(m, v)."""
    x, w = np.polynomial.hermite_e.hermegauss(80)
    f = m + np.sqrt(v) * x
    return float((w / w.sum() * f**power * norm.cdf(s - f)).sum())


def test_dense_couplings_are_structured_ones_where_both_exist():
    prior = multiclass_prior.prepare(*classes(Options, *toy())[:2])
    posterior = nested_ep.fit(*classes(nested_ep.NestedOptions, *toy(), max_iterations=2))
    values, vectors = np.linalg.eigh(posterior.site_precision)
    roots = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :])[:, :, 1:]
    dense = condition_dense(prior, roots, posterior.site_location)
    prior_var = np.column_stack([prior.K(k).diagonal() for k in range(3)])
    cov = dense_covariance(dense, [prior.K(k) for k in range(3)], prior_var)
    np.testing.assert_allclose(dense.mean, posterior.latent_mean, rtol=1e-9, atol=1e-11)  # condition 100
    np.testing.assert_allclose(cov, posterior.latent_cov, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(dense.log_det, posterior.posterior.log_det, rtol=1e-9)


@pytest.mark.parametrize("options", [{}, {"accelerate": False}, {"schedule": "sequential"}])
def test_qep_comes_near_nested_ep_by_every_road(options):
    posterior, ep = (
        quadrature_ep.fit_qep(*classes(quadrature_ep.QEPOptions, *toy(), **options)),
        nested_ep.fit(*classes(nested_ep.NestedOptions, *toy())),
    )
    assert posterior.converged
    # inner EP's normaliser is biased a little; moments agree to a percent at these variances
    assert np.abs(posterior.latent_mean - ep.latent_mean).max() < 0.02
    assert abs(posterior.log_evidence - ep.log_evidence) < 0.05
    assert quadrature_ep.gradients(posterior) is None
    base = quadrature_ep.fit_qep(*classes(quadrature_ep.QEPOptions, *toy()))
    np.testing.assert_allclose(posterior.latent_mean, base.latent_mean, rtol=0, atol=1e-8)


def test_a_full_lambda_has_stationary_evidence_and_both_schedules_agree():
    X, y, C, variance, *rest = toy(n=6)
    options = {"lambda_": "full", "nodes": 20}
    posterior = quadrature_ep.fit_qep(*classes(quadrature_ep.QEPOptions, X, y, C, variance, *rest, **options))
    other = quadrature_ep.fit_qep(
        *classes(quadrature_ep.QEPOptions, X, y, C, variance, *rest, schedule="sequential", **options)
    )
    np.testing.assert_allclose(other.latent_mean, posterior.latent_mean, rtol=0, atol=1e-8)
    e = np.array([0.0, 1e-3, 0.0])
    up, down = (
        quadrature_ep.fit_qep(
            *classes(quadrature_ep.QEPOptions, X, y, C, variance + s * e, *rest, **options)
        ).log_evidence
        for s in (1, -1)
    )
    gradient = quadrature_ep.gradients(posterior)
    # exact up to the error of 20 nodes a dimension
    np.testing.assert_allclose(gradient.variance[1], (up - down) / 2e-3, rtol=0, atol=1e-4)
    assert posterior.lambda_tilde.shape == (6, 2, 2)


def test_qiep_comes_near_nested_iep_and_has_its_gradient():
    X, y, C, variance, *rest = toy()
    posterior, ep = (
        quadrature_ep.fit_qiep(*classes(quadrature_ep.QIEPOptions, X, y, C, variance, *rest, nodes=40)),
        nested_iep.fit(*classes(nested_iep.NestedOptions, X, y, C, variance, *rest)),
    )
    assert posterior.converged
    assert np.abs(posterior.latent_mean - ep.latent_mean).max() < 0.02
    sequential = quadrature_ep.fit_qiep(
        *classes(quadrature_ep.QIEPOptions, X, y, C, variance, *rest, nodes=40, schedule="sequential")
    )
    np.testing.assert_allclose(sequential.log_evidence, posterior.log_evidence, rtol=1e-9)  # both to 1e-10
    e = np.array([0.0, 1e-3, 0.0])
    up, down = (
        quadrature_ep.fit_qiep(
            *classes(quadrature_ep.QIEPOptions, X, y, C, variance + s * e, *rest, nodes=40)
        ).log_evidence
        for s in (1, -1)
    )
    gradient = quadrature_ep.gradients(posterior)
    np.testing.assert_allclose(gradient.variance[1], (up - down) / 2e-3, rtol=0, atol=1e-4)  # the rule's error
    mass = quadrature_ep.predict(posterior, X[:3]).probability_mass
    np.testing.assert_allclose(mass, 1.0, rtol=0, atol=1e-12)


def test_rules_are_exact_for_their_degree_and_refuse_what_is_too_large():
    points, weights = product_rule(2, 5)
    np.testing.assert_allclose(weights @ (points[:, 0] ** 4 * points[:, 1] ** 2), 3.0, rtol=1e-12)  # degree 9
    with pytest.raises(ValueError, match=r"^nodes: found 10 in 7 dimensions"):
        product_rule(7, 10)
    with pytest.raises(ValueError, match=r"^nodes: found 1"):
        quadrature_ep.fit_qiep(*classes(quadrature_ep.QIEPOptions, *toy(), nodes=1))
    with pytest.raises(ValueError, match=r"^lambda_: found"):
        quadrature_ep.fit_qep(*classes(quadrature_ep.QEPOptions, *toy(), lambda_="half"))


@pytest.mark.parametrize("fit", [quadrature_ep.fit_qep, quadrature_ep.fit_qiep])
def test_a_large_variance_never_gives_nan(fit):
    X, y, C, *_ = toy(n=12)
    options = options_of(fit)(nodes=6, max_iterations=40)
    posterior = fit(Data(X, y, C), Prior(np.exp(8.0), [2.0, 2.0], 0.0, 1e-6, shared=True), options)
    assert np.isfinite(posterior.latent_mean).all()
    assert np.isfinite(posterior.latent_cov).all()
    assert posterior.log_evidence is None or np.isfinite(posterior.log_evidence)


def test_a_rule_whose_weight_is_at_one_node_is_refused_without_overflow():
    cavity = Differences(np.zeros((2, 2)), np.stack([2.0 * np.eye(2)] * 2))
    # what is left of the variance beside one node: its inverse is beyond the largest double
    cov = np.stack([np.diag([1e-310, 0.5]), 0.5 * np.eye(2)])
    sites = g_sites(cavity, WhiteMoments(np.zeros(2), np.zeros((2, 2)), cov, np.sqrt(cavity.cov)))
    assert list(sites.good) == [False, True]
    assert np.isfinite(sites.precision).all()
