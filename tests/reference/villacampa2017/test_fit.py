"""Fixed points, their independence of damping and order, and where the tied version must agree with the other."""

import numpy as np
import pytest

from reference.common.errors import NotPositiveDefiniteError
from reference.common.priors import Prior
from reference.villacampa2017.errata import update_c2_other_as_printed
from reference.villacampa2017.evidence import factor_log_scale_rank_one
from reference.villacampa2017.factors import ep_refine_factors
from reference.villacampa2017.fit import fit_ep, fit_sep
from reference.villacampa2017.hyper import prior_matrices
from reference.villacampa2017.sep import factor_counts

NEAR = {"rtol": 0, "atol": 1e-8}  # both runs end within 1e-10 of the fixed point, in standardised coordinates


@pytest.fixture
def prior(model):
    s = model
    return Prior(s.variance, s.lengthscales, s.noise, s.jitter, s.Z)


def test_prior_matrices_are_those_of_the_definitions(model, prior):
    K = prior_matrices(model.X, prior)
    np.testing.assert_allclose(K.K_ZZ, model.K_ZZ, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(K.upsilon, model.upsilon, rtol=1e-9, atol=1e-11)  # condition of K_ZZ below 1e3
    np.testing.assert_allclose(K.cond_var, model.cond_var, rtol=1e-9, atol=1e-11)


def test_ep_ends_where_refinement_moves_nothing(model, prior):
    s = model
    fit = fit_ep(s.X, s.y, prior)
    assert fit.converged
    assert fit.n_improper == 0
    again = ep_refine_factors(fit.sites, fit.posterior, s.y, s.k_xx, s.K_XZ, s.K_ZZ)
    for new, old in zip(again.coefficients, fit.sites, strict=True):
        np.testing.assert_allclose(new, old, **NEAR)
    scales = factor_log_scale_rank_one(again.log_norm, fit.sites, fit.posterior, s.y, s.upsilon)
    wanted = np.sum(scales)
    for m, V, K in zip(fit.posterior.mean, fit.posterior.cov, s.K_ZZ, strict=True):
        wanted += 0.5 * np.linalg.slogdet(V)[1] - 0.5 * np.linalg.slogdet(K)[1] + 0.5 * m @ np.linalg.solve(V, m)
    assert fit.log_evidence == pytest.approx(wanted, rel=0, abs=1e-8)


def test_damping_and_mini_batches_leave_the_fixed_point(model, prior):
    s = model
    fit = fit_ep(s.X, s.y, prior)
    order = [[0, 1], [2, 4], [3], [1, 1, 4]] * 40
    for other in (
        fit_ep(s.X, s.y, prior, damping=0.9),
        fit_ep(s.X, s.y, prior, damping=0.8, batches=order),
    ):
        np.testing.assert_allclose(other.posterior.mean, fit.posterior.mean, **NEAR)
        np.testing.assert_allclose(other.posterior.cov, fit.posterior.cov, **NEAR)
        assert other.log_evidence == pytest.approx(fit.log_evidence, rel=0, abs=1e-8)
    assert not other.converged


def test_a_permutation_of_data_and_of_classes_permutes_the_answer(model, prior):
    s = model
    order, classes = np.array([3, 0, 4, 1, 2]), np.array([2, 0, 1])
    where = np.argsort(classes)
    for fit in (fit_ep, fit_sep):
        here = fit(s.X, s.y, prior)
        there = fit(s.X[order], where[s.y[order]], Prior(*(part[classes] for part in prior)))
        np.testing.assert_allclose(there.posterior.mean, here.posterior.mean[classes], **NEAR)
        np.testing.assert_allclose(there.posterior.cov, here.posterior.cov[classes], **NEAR)
        assert there.log_evidence == pytest.approx(here.log_evidence, rel=0, abs=1e-8)


@pytest.mark.parametrize("count", ["all", "per-class"])
def test_one_factor_makes_both_methods_the_same(model, prior, count):
    s = model
    two = Prior(*(part[:2] for part in prior))
    ep, sep = fit_ep(s.X[:1], s.y[1:2], two), fit_sep(s.X[:1], s.y[1:2], two, count=count)
    np.testing.assert_array_equal(factor_counts(s.y[1:2], 2, count), 1.0)
    np.testing.assert_allclose(sep.posterior.mean, ep.posterior.mean, **NEAR)
    np.testing.assert_allclose(sep.posterior.cov, ep.posterior.cov, **NEAR)
    assert sep.log_evidence == pytest.approx(ep.log_evidence, rel=0, abs=1e-8)
    # means of the prior are zero: the label is a fair coin
    assert ep.log_evidence == pytest.approx(np.log(0.5), rel=0, abs=1e-8)


@pytest.mark.parametrize("count", ["all", "per-class"])
def test_the_tied_version_has_one_fixed_point_and_one_batch_of_all_data_is_a_sweep(model, prior, count):
    s = model
    fit, other = fit_sep(s.X, s.y, prior, count=count), fit_sep(s.X, s.y, prior, count=count, damping=0.9)
    assert fit.converged
    assert other.converged
    np.testing.assert_allclose(other.posterior.mean, fit.posterior.mean, **NEAR)
    assert other.log_evidence == pytest.approx(fit.log_evidence, rel=0, abs=1e-8)
    two = fit_sep(s.X, s.y, prior, count=count, max_iterations=2)
    whole = fit_sep(s.X, s.y, prior, count=count, batches=[range(s.n)] * 2)
    for a, b in zip(two.sites, whole.sites, strict=True):
        np.testing.assert_array_equal(a.precision, b.precision)
        np.testing.assert_array_equal(a.shift, b.shift)
    near = fit_ep(s.X, s.y, prior).posterior.mean
    assert 1e-6 < np.max(np.abs(fit.posterior.mean - near)) < 0.5  # an approximation of EP, and not EP


def test_the_printed_sign_of_the_other_class_moves_it_the_wrong_way(model, prior):
    """With (53) as printed a label would raise the latent values of the classes it beats."""
    s = model
    fit = fit_ep(s.X[:1], s.y[:1], prior)
    assert np.all(fit.sites.c2_other[0, 1:] < 0.0)
    assert update_c2_other_as_printed(0.8, 3.0, 0.2, s.upsilon[1, 0], np.zeros(s.m), s.K_ZZ[1]) > 0.0


def test_an_absent_class_is_answered(model, prior):
    fit = fit_ep(model.X, np.minimum(model.y, 1), prior)
    assert fit.converged
    assert np.all(np.isfinite(fit.posterior.mean))
    sep = fit_sep(model.X, np.minimum(model.y, 1), prior, count="per-class")
    assert sep.converged


def test_bad_input_is_refused_by_name(model, prior):
    s = model
    for match, changes in (
        ("y: ", {"y": s.y + 1}),
        ("damping", {"damping": 0.0}),
        ("damping", {"damping": 1.5}),
        ("tolerance", {"tolerance": 0.0}),
        ("max_iterations", {"max_iterations": 0}),
        ("batches", {"batches": []}),
        (r"batches\[0\]", {"batches": [[7]]}),
        ("variance", {"prior": prior._replace(variance=-prior.variance)}),
        ("lengthscales", {"prior": prior._replace(lengthscales=np.ones((3, 1)))}),
        ("Z: ", {"prior": prior._replace(Z=np.ones((3, 3, 1)))}),
    ):
        with pytest.raises(ValueError, match=match):
            fit_ep(**({"X": s.X, "y": s.y, "prior": prior} | changes))
    with pytest.raises(ValueError, match="count"):
        fit_sep(s.X, s.y, prior, count="some")
    same = prior._replace(Z=np.ones_like(s.Z), jitter=np.zeros(3))
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ.*jitter"):
        fit_ep(s.X, s.y, same)
