"""Effective sizes and standard errors where they are known, and the class probability's quadrature."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

import gibbs.ledger
from gibbs.chains.diagnostics import Convergence, convergence, long_enough, standard_error, variance_influence
from gibbs.core.errors import NotPositiveDefiniteError
from gibbs.models.ensemble import sample_ensemble
from gibbs.models.quadrature import QUADRATURE_ERROR, logistic_normal_mean


def autoregression(rng, shape, rho):
    draws = rng.standard_normal(shape)
    for s in range(1, shape[1]):
        draws[:, s] = rho * draws[:, s - 1] + np.sqrt(1 - rho**2) * draws[:, s]
    return draws


def test_an_autoregression_has_its_known_effective_size_and_error(rng):
    draws = autoregression(rng, (16, 2000, 3), 0.6)
    time = (1 + 0.6) / (1 - 0.6)
    got = convergence(draws, thin=2)
    # an effective size from 32 000 draws scatters by about 5 %
    np.testing.assert_allclose(got.ess_bulk, 32_000 / time, rtol=0.25)
    np.testing.assert_allclose(got.autocorrelation_time, 2 * time, rtol=0.25)
    np.testing.assert_allclose(standard_error(draws), np.sqrt(time / 32_000), rtol=0.12)
    assert np.all(got.r_hat < 1.01)
    assert not got.gate()  # 8000 effective draws


def test_chains_in_different_places_are_seen():
    draws = np.random.default_rng(1).standard_normal((4, 500))
    draws[0] += 3.0
    assert convergence(draws).r_hat > 1.1


def test_a_column_that_never_moves_is_not_trusted(rng):
    draws = np.concatenate([rng.standard_normal((4, 100, 1)), np.ones((4, 100, 1))], axis=2)
    got = convergence(draws)
    assert np.isnan(got.r_hat[1])
    assert not got.gate()
    assert standard_error(draws)[1] == 0.0


def test_the_influence_terms_average_to_the_total_variance(rng):
    means, cond = rng.standard_normal((3, 50, 2)), rng.random((3, 50, 2))
    expected = cond.mean(axis=(0, 1)) + means.var(axis=(0, 1))
    np.testing.assert_allclose(variance_influence(means, cond).mean(axis=(0, 1)), expected, rtol=1e-13)  # same sums


JUST = {"ess_bulk": 1e4, "ess_tail": 1e4, "r_hat": 1.005, "autocorrelation_time": 7.5}


@pytest.mark.parametrize(
    ("name", "beyond"), [("ess_bulk", 9999.0), ("ess_tail", 9999.0), ("r_hat", 1.00501), ("autocorrelation_time", 7.51)]
)
def test_the_gate_is_passed_at_its_limits_and_closed_by_one_entry_beyond(name, beyond):
    def trusted(**changes):
        columns = {each: np.full((2, 3), value) for each, value in JUST.items()}
        for each, value in changes.items():
            columns[each][1, 2] = value
        q = Convergence(**columns)
        return q.gate() and long_enough({"x": Convergence(**{k: v * np.ones(1) for k, v in JUST.items()}), "f": q}, 750)

    assert trusted()
    assert not trusted(**{name: beyond})
    assert not trusted(**{name: np.nan})


def test_bad_draws_are_refused():
    with pytest.raises(ValueError, match=r"draws: found shape \(2, 3\), expected"):
        convergence(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"draws: found NaN"):
        standard_error(np.full((2, 8), np.nan))
    for draws in ("text", {"a": 1}, 10**400, [[1j] * 8] * 2, [[0.0], [0.0, 1.0]]):
        with pytest.raises(ValueError, match=r"^draws: found .*, expected"):
            standard_error(draws)
    for thin in ([], "text", 0.5, None, 0):
        with pytest.raises(ValueError, match=r"^thin: found .*, expected"):
            convergence(np.zeros((2, 8)), thin)


def test_the_standard_error_of_draws_whose_squares_overflow_is_that_of_scaled_ones(rng):
    draws = rng.standard_normal((4, 100))
    for factor in (2.0**900, 2.0**-900):  # powers of two: nothing is rounded
        assert standard_error(factor * draws) == factor * standard_error(draws)


@pytest.mark.parametrize("sd", [0.0, 1e-6, 0.3, 1.0, 1.599, 1.601, 2.5, 8.0, 100.0, 1e3])
def test_the_class_probability_is_within_its_stated_error(sd):
    for mean in (0.0, 0.4, -3.0, 12.0, -60.0):
        if sd == 0.0:
            expected = expit(mean)
        else:
            # the step of σ is 1/sd wide: the adaptive rule is told where it starts, lies and ends
            points = [p for p in (-mean / sd - 40 / sd, -mean / sd, -mean / sd + 40 / sd) if abs(p) < 11]

            def integrand(x, mean=mean):
                return expit(mean + sd * x) * np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)

            expected = quad(integrand, -11.5, 11.5, points=points, epsabs=1e-13, limit=2000)[0]
        assert abs(float(logistic_normal_mean(mean, sd**2)) - expected) < QUADRATURE_ERROR


def test_one_class_probability_agrees_with_mpmath():
    with mpmath.workdps(30):
        value = mpmath.quad(
            lambda x: mpmath.npdf(x) / (1 + mpmath.exp(-(1 + 2 * x))), [-12, -6, -3, -1, -0.5, 0, 1, 3, 6, 12]
        )
    assert abs(float(logistic_normal_mean(1.0, 4.0)) - float(value)) < QUADRATURE_ERROR


def test_mirrored_means_have_complementary_probabilities(rng):
    mean, var = rng.normal(scale=4, size=500), rng.gamma(1.0, 5.0, size=500)
    total = logistic_normal_mean(mean, var) + logistic_normal_mean(-mean, var)
    np.testing.assert_allclose(total, 1.0, rtol=0, atol=2 * QUADRATURE_ERROR)


def test_negative_variances_and_nan_are_refused():
    with pytest.raises(ValueError, match=r"latent_var: found -1, expected"):
        logistic_normal_mean([0.0], [-1.0])
    with pytest.raises(ValueError, match=r"latent_mean: found 1 entries NaN"):
        logistic_normal_mean([np.nan], [1.0])
    with pytest.raises(ValueError, match=r"latent_var: found shape \(2,\), expected one that goes with \(3,\)"):
        logistic_normal_mean(np.zeros(3), np.ones(2))
    with pytest.raises(ValueError, match=r"latent_mean: found str"):
        logistic_normal_mean("text", 1.0)


def test_the_ensemble_sampler_agrees_with_quadrature(rng, assert_z, quadrature_posterior):
    K, y = np.array([[9.0, 4.0], [4.0, 9.0]]), np.array([1.0, -1.0])
    got = sample_ensemble(rng, K, y, n_draws=1500, n_warmup=200, n_walkers=40)
    truth = quadrature_posterior(K, y, 0.05)
    assert_z((got.latent_mean - truth.mean) / got.latent_mean_se)
    assert_z((got.latent_var - np.diag(truth.cov)) / got.latent_var_se)
    assert np.all(got.latent_mean_se < 0.05 * np.sqrt(np.diag(truth.cov)))


@pytest.mark.parametrize(("n_draws", "n_warmup", "thin"), [(20, 10, 1), (10, 0, 3), (12, 6, 2)])
def test_draws_of_an_ensemble_are_those_of_a_run_that_keeps_all(n_draws, n_warmup, thin):
    K, y = np.array([[1.5, 0.4], [0.4, 1.1]]), np.array([1.0, -1.0])

    def drawn(n_draws, n_warmup, thin):
        rng = np.random.default_rng(28)
        return sample_ensemble(rng, K, y, n_walkers=8, n_draws=n_draws, n_warmup=n_warmup, thin=thin).draws

    whole = drawn(30, 0, 1)
    np.testing.assert_array_equal(drawn(n_draws, n_warmup, thin), whole[n_warmup:][thin - 1 :: thin])


def test_what_is_told_of_an_ensemble_is_told_of_its_draws(rng):
    got = sample_ensemble(rng, np.array([[9.0, 4.0], [4.0, 9.0]]), np.array([1.0, -1.0]), n_draws=24, n_warmup=3,
                          n_walkers=10)  # fmt: skip
    squares = np.square(got.draws - got.draws.mean(axis=(0, 1)))
    for terms, mean, error in (
        (got.draws, got.latent_mean, got.latent_mean_se), (squares, got.latent_var, got.latent_var_se)
    ):  # fmt: skip
        np.testing.assert_allclose(mean, terms.mean(axis=(0, 1)), rtol=1e-12)
        # walkers depend on one another: their average is one series
        np.testing.assert_allclose(error, standard_error(terms.mean(axis=1)[None]), rtol=1e-12)


def test_the_ensemble_sampler_refuses_what_it_cannot_do(rng):
    y = np.array([1.0, -1.0])
    with pytest.raises(ValueError, match=r"K_XX: found shape \(7, 7\)"):
        sample_ensemble(rng, np.eye(7), np.ones(7), n_draws=10, n_warmup=0)
    with pytest.raises(ValueError, match=r"n_walkers: found 33, expected an even number"):
        sample_ensemble(rng, np.eye(2), y, n_walkers=33, n_draws=10, n_warmup=0)
    with pytest.raises(NotPositiveDefiniteError, match=r"K_XX \(2, 2\): found smallest eigenvalue"):
        sample_ensemble(rng, np.ones((2, 2)), y, n_draws=10, n_warmup=0)


def test_the_marker_adds_up_and_the_hook_replaces_outputs(monkeypatch):
    @gibbs.ledger.equation("paper", "1", as_printed=True)
    @gibbs.ledger.equation("paper", "2", "3")
    def double(x):
        return 2 * x

    assert double.__equations__ == (("paper", "1"), ("paper", "2"), ("paper", "3"))
    assert double.__as_printed__ is True
    assert double(2) == 4
    calls = []
    monkeypatch.setattr(gibbs.ledger, "hook", lambda function, output: calls.append(function) or output + 1)
    assert double(2) == 5
    assert calls == [double]
    with pytest.raises(ValueError, match=r"ids: found none"):
        gibbs.ledger.equation("paper")
