"""The form "printed" of EP, SEP and VI: the same numbers as the form "projected", and the rule that chooses."""

import numpy as np
import pytest

from reference.common._classes import Prior
from reference.common._forms import DIGITS, SECONDS
from reference.common._training import State
from reference.common.errors import NotPositiveDefiniteError
from reference.villacampa2017.cavity import Cavity
from reference.villacampa2017.factors import ep_refine_factors, moment_mismatch, posterior_of
from reference.villacampa2017.fit import fit_ep, fit_sep
from reference.villacampa2017.gfitc import gfitc_form
from reference.villacampa2017.hyper import prior_matrices
from reference.villacampa2017.methods import PairwiseEP, standardised_change
from reference.villacampa2017.posterior import Coefficients
from reference.villacampa2017.printed import FACTOR, PrintedEP, ep_form, sep_form
from reference.villacampa2017.scalar import Projected, refine_projected
from reference.villacampa2017.vi_fit import vi_baseline

ALL = ("variance", "lengthscales", "noise", "Z")
STEPS = {"batches": [[0, 3], [1, 2, 4], [3, 0]], "learn": ALL, "optimizer": "adam", "rate": 0.05}


@pytest.fixture
def prior(model):
    s = model
    return Prior(s.variance, s.lengthscales, s.noise, s.jitter, s.Z)


def same(a, b, rtol):
    np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.max(np.abs(b)))


def same_fits(a, b, rtol):
    same(a.posterior.mean, b.posterior.mean, rtol)
    same(a.posterior.cov, b.posterior.cov, rtol)
    same(a.latent_mean, b.latent_mean, rtol)
    same(a.latent_var, b.latent_var, rtol)
    same(a.log_norm, b.log_norm, rtol)
    assert a.log_evidence == pytest.approx(b.log_evidence, rel=rtol, abs=0)
    for name in ALL:
        same(getattr(a.prior, name), getattr(b.prior, name), rtol)
        same(a.gradients[name], b.gradients[name], 10 * rtol)  # differences of larger terms


@pytest.mark.parametrize("more", [{}, {"schedule": "sequential"}, {"shared": True}])
def test_both_forms_of_ep_have_one_fixed_point(model, prior, more):
    s = model
    prior = Prior(*(np.repeat(part[:1], s.C, axis=0) for part in prior)) if more.get("shared") else prior
    a, b = (fit_ep(s.X, s.y, prior, form=form, **more) for form in ("printed", "projected"))
    assert (a.form, b.form) == ("printed", "projected")
    assert a.converged
    assert b.converged
    same_fits(a, b, 2e-9)  # each stops within 1e-10 of the fixed point, by sweeps of its own rounding


@pytest.mark.parametrize("count", ["all", "per-class"])
def test_both_forms_of_sep_have_one_fixed_point(model, prior, count):
    s = model
    a, b = (fit_sep(s.X, s.y, prior, count=count, form=form) for form in ("printed", "projected"))
    assert (a.form, b.form) == ("printed", "projected")
    same_fits(a, b, 2e-9)


@pytest.mark.parametrize("fit", [fit_ep, fit_sep])
@pytest.mark.parametrize("rule", ["10", "exact"])
def test_steps_of_learning_on_mini_batches_are_the_same_in_both_forms(model, prior, fit, rule):
    s = model
    scheme = "inner-exact" if rule == "exact" else None
    a, b = (
        fit(s.X, s.y, prior, form=form, gradient_rule=rule, scheme=scheme, **STEPS) for form in ("printed", "projected")
    )
    assert np.max(np.abs(a.prior.Z - prior.Z)) > 0.05  # it moved
    same_fits(a, b, 1e-10)  # three steps, each accurate to rounding times the condition of K_ZZ, below 1e3


def test_a_mini_batch_in_turn_is_the_same_in_both_forms(model, prior):
    s = model
    K = prior_matrices(s.X, prior)
    sites = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)
    batch = np.array([1, 3])
    steps = []
    for kind in (PrintedEP, PairwiseEP):
        method = kind(s.y, s.C, 0.7, "sequential")
        q = method.posterior(sites, K)
        steps.append(method.step(Coefficients(*(part.copy() for part in sites)), q, K, batch))
    for a, b in zip(steps[0].sites, steps[1].sites, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert steps[0].residual == pytest.approx(steps[1].residual, rel=1e-9, abs=0)
    np.testing.assert_array_equal(sites.c1_label, s.c1_label)  # not written into


def test_the_mismatch_of_moments_is_the_standardised_change_of_the_factors(model):
    s = model
    sites = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)
    q = posterior_of(sites, s.y, s.upsilon, s.K_ZZ)
    got = ep_refine_factors(sites, q, s.y, s.k_xx, s.K_XZ, s.K_ZZ)
    change = [new - old for new, old in zip(got.coefficients, sites, strict=True)]
    p, v = np.einsum("kim,km->ik", s.upsilon, q.mean), np.einsum("kim,kmp,kip->ik", s.upsilon, q.cov, s.upsilon)
    at = np.arange(s.n), s.y
    of_label = Projected(p[at][:, None], v[at][:, None])
    wanted = max(standardised_change(change[0], change[1], of_label), standardised_change(*change[2:], Projected(p, v)))
    assert got.mismatch == pytest.approx(wanted, rel=1e-10, abs=0)
    assert moment_mismatch(q.mean[0], q.cov[0], Cavity(q.mean[0], q.cov[0]), np.zeros(s.m)) == 0.0


def test_projected_factors_are_the_printed_ones(model):
    s = model
    sites = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)
    q = posterior_of(sites, s.y, s.upsilon, s.K_ZZ)
    a = ep_refine_factors(sites, q, s.y, s.k_xx, s.K_XZ, s.K_ZZ)
    b = refine_projected(sites, q, s.y, s.upsilon, s.cond_var)
    for one, other in zip(a.coefficients, b.coefficients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(a.log_norm, b.log_norm, rtol=1e-12, atol=0)


def test_both_forms_of_the_variational_rival_have_one_maximum(model, prior):
    s = model
    a, b = (vi_baseline(s.X, s.y, prior, 0.05, form=form) for form in ("printed", "projected"))
    assert (a.form, b.form) == ("printed", "projected")
    assert a.converged
    assert b.converged
    assert a.elbo == pytest.approx(b.elbo, rel=1e-12, abs=0)  # flat at the maximum
    for name in ("latent_mean", "latent_var", "probability"):
        same(getattr(a, name), getattr(b, name), 1e-9)  # each ascent ends within 1e-10 of the maximum
    assert vi_baseline(s.X, s.y, prior, 0.05, max_iterations=1).form == "printed"
    with pytest.raises(ValueError, match="form: found 1, expected one of printed, projected"):
        vi_baseline(s.X, s.y, prior, 0.05, form=1)


def test_the_rule_of_size_counts_factors(model, prior):
    few = int(SECONDS / FACTOR)
    assert sep_form(None, few // 2, 3) == ep_form(None, "pairwise", few // 2, 3) == "printed"
    assert sep_form(None, few, 3) == ep_form(None, "pairwise", few, 3) == "projected"
    # the same count of factors; with latent values for inducing values the condition of their prior counts too
    P = np.stack([np.eye(2), np.diag([1.0, 0.9 / DIGITS]), np.eye(2)])
    assert gfitc_form(None, np.tile(np.eye(few // 2), (3, 1, 1))) == "printed"
    assert gfitc_form(None, np.tile(np.eye(few), (3, 1, 1))) == gfitc_form(None, P) == "projected"
    assert gfitc_form("printed", P) == "printed"
    assert ep_form(None, "datum", 1, 2) == ep_form("projected", "datum", 1, 2) == "projected"
    s = model  # ten factors
    assert fit_ep(s.X, s.y, prior, max_iterations=1).form == "printed"
    assert fit_ep(s.X, s.y, prior, factors="datum", max_iterations=1).form == "projected"


def test_other_forms_are_refused(model, prior):
    s = model
    for fit in (fit_ep, fit_sep):
        with pytest.raises(ValueError, match="form: found 'literal', expected one of printed, projected"):
            fit(s.X, s.y, prior, form="literal")
    with pytest.raises(ValueError, match="form: found 'printed' with factors = 'datum', expected None or 'projected'"):
        fit_ep(s.X, s.y, prior, factors="datum", form="printed")


def test_an_improper_cavity_leaves_no_evidence_and_no_gradient_as_printed(model, prior):
    s = model
    method = PrintedEP(s.y, s.C, 0.5, "parallel")
    zero = Coefficients(*(np.zeros((s.n, s.C)) for _ in range(4)))
    wide = zero._replace(c1_label=np.where(s.c1_label > 0, 1e6, 0.0))
    K = prior_matrices(s.X, prior)
    q = method.posterior(zero, K)  # the factors are not in q
    assert method.value(wide, q, K).log_evidence is None
    assert method.gradients(s.X, State(wide, q, prior, K), None, False, ALL) is None
    in_turn = PrintedEP(s.y, s.C, 0.5, "sequential")
    assert in_turn.step(wide, q, K, np.array([0])).n_improper >= 1
    with pytest.raises(NotPositiveDefiniteError, match="K_ZZ"):
        method.gradients(s.X, State(zero, q, prior, K._replace(K_ZZ=0.0 * K.K_ZZ)), None, False, ALL)
