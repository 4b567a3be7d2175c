"""The five methods from inputs and labels: fixed points, gradients, limits, refusals."""

import numpy as np
import pytest

from reference.common.errors import NotPositiveDefiniteError
from reference.izmailov2016 import _prior
from reference.izmailov2016.algorithm1 import vi_jj, vi_taylor
from reference.izmailov2016.bound import elbo
from reference.izmailov2016.fit import METHODS, fit_vi, gradients, predict
from reference.izmailov2016.jaakkola_jordan import jj_collapsed_bound
from reference.izmailov2016.model import Prior
from reference.izmailov2016.taylor import taylor_collapsed_bound

CASES = [(name, "logit") for name in METHODS] + [("svi", "probit"), ("vi-taylor", "probit")]


@pytest.mark.parametrize("sparse", [True, False])
def test_the_three_jj_methods_have_one_fixed_point(model, sparse):
    s = model
    hyper = s.hyper if sparse else s.hyper._replace(Z=None)
    fits = [fit_vi(name, s.X, s.y, hyper) for name in ("vi-jj", "vi-jj-full", "vi-jj-hybrid")]
    for fit in fits[1:]:
        # each within 1e-10
        np.testing.assert_allclose(fit.inducing_mean, fits[0].inducing_mean, rtol=0, atol=2e-9)
        np.testing.assert_allclose(fit.inducing_cov, fits[0].inducing_cov, rtol=0, atol=2e-9)
        np.testing.assert_allclose(fit.xi, fits[0].xi, rtol=0, atol=2e-9)
        assert fit.elbo == pytest.approx(fits[0].elbo, rel=1e-12, abs=0)
        assert fit.converged
    np.testing.assert_allclose(fits[0].xi ** 2, fits[0].latent_mean ** 2 + fits[0].latent_var, rtol=1e-8, atol=0)


@pytest.mark.parametrize("name", ["vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor"])
def test_the_bound_of_what_is_returned_is_the_compact_one_at_its_local_parameters(model, name):
    s = model
    fit = fit_vi(name, s.X, s.y, s.hyper)
    compact = taylor_collapsed_bound if name == "vi-taylor" else jj_collapsed_bound
    # mu and Sigma maximise the bound at that xi; sums of n + m terms below 10, a condition below 1e4
    assert fit.elbo == pytest.approx(compact(fit.xi, s.y, *s.K), rel=1e-11, abs=0)


@pytest.mark.parametrize("n_upd", [1, 3])
@pytest.mark.parametrize("name", ["vi-jj", "vi-taylor"])
def test_with_held_parameters_the_algorithm_comes_first_and_its_iterations_count(model, name, n_upd):
    s = model
    algorithm = vi_jj if name == "vi-jj" else vi_taylor
    visited = []
    fit = fit_vi(name, s.X, s.y, s.hyper, n_upd=n_upd, callback=lambda state: visited.append(state.iteration))
    alone = algorithm(s.X, s.y, s.hyper, (), n_upd=n_upd)
    assert alone.converged
    assert alone.hyper == s.hyper
    np.testing.assert_array_equal(fit.trace[: alone.iterations], alone.trace)
    assert visited == list(range(1, fit.iterations + 1))
    assert fit.iterations == len(fit.trace) > alone.iterations
    # an iteration is n_upd rounds of the first stage: the bound after one is that after as many iterations of one round
    single = algorithm(s.X, s.y, s.hyper, (), n_upd=1, max_iterations=n_upd)
    assert alone.trace[0] == single.trace[-1]


@pytest.mark.parametrize("likelihood", ["logit", "probit"])
@pytest.mark.parametrize("sparse", [True, False])
def test_where_svi_ends_the_bound_is_flat_in_its_gaussian(model, likelihood, sparse):
    s = model
    fit = fit_vi("svi", s.X, s.y, s.hyper if sparse else s.hyper._replace(Z=None), likelihood)
    size = np.max(np.abs(np.linalg.inv(fit.inducing_cov)))
    # q(u) is known to 1e-10, and the curvature of the bound is its precision
    assert np.max(np.abs(fit.derivatives.inducing_mean)) < 1e-8 * size * np.max(np.abs(fit.inducing_mean))
    assert np.max(np.abs(fit.derivatives.inducing_cov)) < 1e-8 * size
    assert np.max(np.abs(fit.derivatives.inducing_chol)) < 1e-8 * size
    early = fit_vi("svi", s.X, s.y, s.hyper, likelihood, max_iterations=1)
    assert np.max(np.abs(early.derivatives.inducing_mean)) > 1e-4
    assert np.max(np.abs(early.derivatives.inducing_cov)) > 1e-4


def test_twenty_nodes_are_exact_for_narrow_latent_values_and_not_for_wide_ones(model):
    s = model
    narrow, wide = (fit_vi("svi", s.X, s.y, s.hyper._replace(variance=v)) for v in (0.3, 3000.0))
    # poles of log sigma at pi i lie six standard deviations off, or a twentieth of one
    assert abs(narrow.quadrature_gap) < 1e-10
    assert 1e-6 < abs(wide.quadrature_gap) < 1.0
    assert fit_vi("svi", s.X, s.y, s.hyper, "probit").quadrature_gap is None
    assert narrow.elbo == elbo(narrow.inducing_mean, narrow.inducing_cov, s.y, *_prior.matrices(s.X, narrow.hyper))


@pytest.mark.parametrize(("name", "likelihood"), [case for case in CASES if case[0] != "vi-taylor"])
@pytest.mark.parametrize("sparse", [True, False])
def test_gradients_are_differences_of_the_reconverged_value(model, name, likelihood, sparse):
    s = model
    hyper = (s.hyper if sparse else s.hyper._replace(Z=None))._replace(kernel="matern", smoothness=1.5)
    fit = fit_vi(name, s.X, s.y, hyper, likelihood)
    got = gradients(name, fit, s.X, s.y, likelihood)
    for field, derivative in got.items():

        def value(v, field=field):
            return fit_vi(name, s.X, s.y, hyper._replace(**{field: v}), likelihood).elbo

        where = np.asarray(getattr(hyper, field), dtype=float)
        places = list(np.ndindex(where.shape))[:2]
        for place in places:
            move = np.zeros(where.shape)
            move[place] = 1e-4
            up, down = value(where + move), value(where - move)
            # step² times third derivatives of size 10
            np.testing.assert_allclose(np.asarray(derivative)[place], (up - down) / 2e-4, rtol=0, atol=1e-6)


@pytest.mark.parametrize("likelihood", ["logit", "probit"])
def test_taylor_gradients_are_differences_at_fixed_xi(model, gradients_of, likelihood):
    s = model
    fit = fit_vi("vi-taylor", s.X, s.y, s.hyper, likelihood)
    for field, derivative in gradients("vi-taylor", fit, s.X, s.y, likelihood).items():

        def value(v, field=field):
            return taylor_collapsed_bound(
                fit.xi, s.y, *_prior.matrices(s.X, s.hyper._replace(**{field: v})), likelihood
            )

        # step² times third derivatives of size 100
        np.testing.assert_allclose(derivative, gradients_of(value, getattr(s.hyper, field)), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "likelihood"), CASES)
def test_inducing_points_at_the_data_are_the_full_process(model, name, likelihood):
    X = 2.0 * model.X
    full = Prior(2.0, np.array([0.9, 1.6]), 0.0, 0.0, None)
    a = fit_vi(name, X, model.y, full, likelihood)
    b = fit_vi(name, X, model.y, full._replace(Z=X), likelihood)
    # a condition below 1e4, both within 1e-10
    assert a.elbo == pytest.approx(b.elbo, rel=1e-9, abs=0)
    np.testing.assert_allclose(a.latent_var, b.latent_var, rtol=1e-8, atol=0)
    p, q = predict(a, X, X[:3] + 0.1, likelihood), predict(b, X, X[:3] + 0.1, likelihood)
    np.testing.assert_allclose(p.probability, q.probability, rtol=0, atol=1e-9)
    np.testing.assert_allclose(p.probability_mass, 1.0, rtol=0, atol=1e-11)
    assert np.min(np.diff(a.trace)) > -1e-9 or name == "vi-taylor"


@pytest.mark.parametrize(("name", "likelihood"), CASES)
def test_labels_far_from_their_prior_do_not_overflow(model, name, likelihood):
    X = np.array([[-1.0, 0.0], [1.0, 0.0], [30.0, 1.0]])
    hyper = Prior(1e6, np.array([1.0, 1.0]), 1e-3, 1e-3, None)
    fit = fit_vi(name, X, np.array([-1.0, 1.0, 1.0]), hyper, likelihood, max_iterations=60)
    assert np.isfinite(fit.elbo)
    assert all(np.all(np.isfinite(part)) for part in (fit.inducing_mean, fit.inducing_cov, fit.latent_var))


@pytest.mark.parametrize("name", METHODS)
def test_duplicate_inducing_points_need_jitter(model, name):
    s = model
    Z = np.vstack([s.Z, s.Z[:1]])
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ \(4, 4\).*raise jitter or remove duplicate rows of Z"):
        fit_vi(name, s.X, s.y, s.hyper._replace(Z=Z, jitter=0.0))
    assert fit_vi(name, s.X, s.y, s.hyper._replace(Z=Z, jitter=1e-4)).converged


@pytest.mark.parametrize(("name", "likelihood"), [("vi-jj", "probit"), ("svi", "softmax"), ("laplace", "logit")])
def test_methods_and_likelihoods_that_do_not_go_together_are_refused(model, name, likelihood):
    with pytest.raises(ValueError, match=r"(likelihood|name): found '.*', expected"):
        fit_vi(name, model.X, model.y, model.hyper, likelihood)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variance": 0.0}, r"variance: found 0, expected > 0"),
        ({"lengthscales": np.ones(3)}, r"lengthscales: found shape \(3,\)"),
        ({"noise": -1.0}, r"noise: found -1"),
        ({"Z": np.ones((2, 5))}, r"Z: found 5 columns"),
        ({"kernel": "cubic"}, r"kernel: found 'cubic'"),
        ({"kernel": "matern"}, r"smoothness: found None"),
        ({"smoothness": 1.5}, r"smoothness: found 1.5, expected None"),
        ({"kernel": "matern", "smoothness": -1.0}, r"smoothness: found -1, expected > 0"),
    ],
)
def test_bad_priors_are_refused_by_name(model, change, message):
    with pytest.raises(ValueError, match=message):
        fit_vi("vi-jj", model.X, model.y, model.hyper._replace(**change))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learn": ("Z",)}, r"learn: found 'Z'"),
        ({"learn": "beta"}, r"learn: found 'beta'"),
        ({"n_upd": 0}, r"n_upd: found 0"),
        ({"n_fun": 1.5}, r"n_fun: found 1.5"),
        ({"tolerance": 0.0}, r"tolerance: found 0"),
        ({"max_iterations": 0}, r"max_iterations: found 0"),
        ({"callback": 3}, r"callback: found 3"),
    ],
)
def test_bad_options_are_refused_by_name(model, options, message):
    with pytest.raises(ValueError, match=message):
        fit_vi("vi-jj", model.X, model.y, model.hyper, **options)


def test_labels_and_inputs_are_checked(model):
    for X, y, message in [
        (model.X, 0 * model.y, r"y_sign: found 0, expected only -1 and \+1"),
        (model.X * np.nan, model.y, r"X: found nan"),
        (model.X, model.y[:3], r"y_sign: found shape \(3,\), expected \(6,\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            fit_vi("vi-jj", X, y, model.hyper)


def test_an_iteration_cut_short_says_so(model):
    for name in METHODS:
        assert not fit_vi(name, model.X, model.y, model.hyper, max_iterations=1).converged


@pytest.mark.parametrize("name", METHODS)
def test_learning_improves_the_value_and_reports_itself(problem, name):
    p = problem
    X, y, hyper = p.X[::2], p.y[::2], p.hyper._replace(Z=p.hyper.Z[::2])
    before = fit_vi(name, X, y, hyper)
    after = fit_vi(name, X, y, hyper, learn="lengthscales", tolerance=1e-6, max_iterations=100)
    assert after.elbo > before.elbo
    assert (after.hyper.noise, after.hyper.variance) == (hyper.noise, hyper.variance)
    assert after.iterations == len(after.trace)


def test_a_probit_ascent_whose_whole_steps_overshoot_still_arrives(rng):
    X = rng.normal(size=(40, 2))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=40) > 0, 1.0, -1.0)
    fit = fit_vi("svi", X, y, Prior(55.0, np.array([2.0, 2.0]), 0.0, 1e-2, None), "probit", max_iterations=300)
    assert fit.converged
