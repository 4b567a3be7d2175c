"""Densities of what is learned of a prior: against SciPy, by finite differences, and what they refuse."""

import numpy as np
import pytest
from scipy.stats import lognorm, multivariate_normal, norm

from fast.core.hyperprior import LINK_VARIANCES, Hyperprior, log_hyperprior, log_tied_lognormal, weak

SCALE = np.array([0.5, 3.0, 40.0])
VALUE = np.array([0.9, 1.1, 35.0])


def covariance(common, each, d):
    return each**2 * np.eye(d) + common**2 * np.ones((d, d))


@pytest.mark.parametrize(("common", "each"), [(1.0, 0.5), (0.3, 2.0), (5.0, 0.01)])
def test_tied_values_have_gaussian_logarithms_with_the_covariance_of_a_common_term(common, each):
    got = log_tied_lognormal(VALUE, (common, each), SCALE)
    x = np.log(VALUE / SCALE)
    wanted = multivariate_normal.logpdf(x, np.zeros(3), covariance(common, each, 3)) - np.log(VALUE).sum()
    # SciPy's factorisation of a matrix of condition 3 (5 / .01)^2 = 7.5e5 leaves 1e-10 of a quadratic form of 1e4
    np.testing.assert_allclose(got.value.sum(), wanted, rtol=1e-9, atol=1e-9)
    rows = np.stack([VALUE, 2.0 * VALUE])
    both = log_tied_lognormal(rows, (common, each), SCALE)
    np.testing.assert_allclose(both.value[0], got.value, rtol=1e-14, atol=0)  # the same sums, one class at a time
    assert both.value[0].sum() != both.value[1].sum()


@pytest.mark.parametrize("name", ["variance", "lengthscales", "noise", "scale"])
@pytest.mark.parametrize("map_density", ["value", "log"])
def test_every_derivative_is_that_of_the_density_in_the_coordinates_of_a_search(name, map_density):
    distributions = {
        "variance": ("half-student-t", 4.0, 10.0),
        "lengthscales": ("tied-log-normal", (1.0, 0.5), SCALE),
        "noise": ("log-normal", 0.7, 0.1),
    }
    prior = Hyperprior(distributions, map_density=map_density).checked(3)
    field = "lengthscales" if name == "scale" else name
    value = np.stack([VALUE, 0.4 * VALUE[::-1]]) if field == "lengthscales" else np.array([0.3, 2.5])
    got = prior.at((name,), lambda _: value).derivatives[name]
    step = 1e-5
    for place in np.ndindex(got.shape):
        move = np.zeros(value.shape)
        move[place] = step  # of a scale: all lengthscales of a row
        high, low = (prior.at((name,), lambda _, move=sign * move: value * np.exp(move)).value for sign in (1.0, -1.0))
        # central differences of step 1e-5: eps / step of a value of 30 is 6e-10
        np.testing.assert_allclose(got[place], (high - low) / (2.0 * step), rtol=1e-8, atol=1e-8)


def test_the_weak_prior_is_a_density_of_logarithms_with_its_documented_medians():
    for link, of_link in LINK_VARIANCES.items():
        prior = weak(SCALE, link)
        alone = link == "threshold"
        deviation = 1.5 / np.sqrt(2.0) if alone else 1.5
        value = {"variance": np.array(2.0), "lengthscales": VALUE, "noise": np.array(0.03)}
        wanted = norm.logpdf(np.log(2.0), np.log(10.0 * of_link), deviation)
        wanted += norm.logpdf(np.log(0.03), np.log(of_link if alone else 0.1 * of_link), deviation)
        wanted += multivariate_normal.logpdf(np.log(VALUE / SCALE), np.zeros(3), covariance(1.0, 0.5, 3))
        got = prior.at(("variance", "noise", "lengthscales"), value.__getitem__)
        np.testing.assert_allclose(got.value, wanted, rtol=1e-12, atol=0)  # three sums of a few terms
        medians = {"variance": 10.0 * of_link, "lengthscales": SCALE, "noise": of_link if alone else 0.1 * of_link}
        at_top = prior.at(("variance", "noise", "lengthscales"), lambda field, at=medians: np.asarray(at[field]))
        for derivative in at_top.derivatives.values():
            np.testing.assert_allclose(derivative, 0.0, rtol=0, atol=1e-12)  # the mode of a logarithm is its median


def test_a_median_variance_stands_for_a_bayes_error_of_ten_percent():
    # P = Phi(f), f ~ N(0, v): E min(P, 1 - P) = arctan(1 / sqrt v) / pi, in docs/classifiers.md
    rng = np.random.default_rng(0)
    for variance, documented in ((10.0, 0.10), (10.0 * np.exp(-3.0), 0.30), (10.0 * np.exp(3.0), 0.02)):
        chance = norm.cdf(np.sqrt(variance) * rng.standard_normal(200_000))
        error = np.minimum(chance, 1.0 - chance)
        exact = np.arctan(1.0 / np.sqrt(variance)) / np.pi
        assert abs(error.mean() - exact) < 5.0 * error.std() / np.sqrt(error.size)
        assert abs(exact - documented) < 0.005  # as documented, two digits


def test_what_has_no_distribution_is_flat_and_rows_are_independent():
    prior = Hyperprior({"variance": ("log-normal", 1.0, 2.0)}).checked(3)
    result = prior.at(("lengthscales", "noise", "Z"), lambda _: VALUE)
    assert result.value == 0.0
    assert result.derivatives == {}
    rows = prior.at(("variance",), lambda _: np.array([1.0, 3.0])).value
    np.testing.assert_allclose(rows, lognorm.logpdf([1.0, 3.0], 1.0, scale=2.0).sum(), rtol=1e-14, atol=0)


def test_equal_hyperpriors_have_one_repr_with_every_digit():
    one, two = (weak(np.linspace(0.1, 1.0, 2000) * factor, "logit") for factor in (1.0, 1.0 + 1e-15))
    assert repr(one) == repr(weak(np.linspace(0.1, 1.0, 2000), "logit"))
    assert repr(one) != repr(two)


@pytest.mark.parametrize(
    ("distributions", "text"),
    [
        ({"variance": ("tied-log-normal", (1.0, 1.0), 1.0)}, r"hyperprior\['variance'\]: found 'tied-log-normal'"),
        ({"lengthscales": ("tied-log-normal", 1.0, 1.0)}, r"hyperprior\['lengthscales'\] df: found 1.0, expected two"),
        ({"lengthscales": ("tied-log-normal", (1.0, 0.0), 1.0)}, r"hyperprior\['lengthscales'\] df: found 0.0"),
        ({"lengthscales": ("log-normal", 1.0, [1.0, 2.0])}, r"hyperprior\['lengthscales'\] scale: found"),
        ({"scale": ("log-normal", 1.0, 1.0)}, r"hyperprior: found field 'scale'"),
    ],
)
def test_distributions_that_are_none_are_refused_by_name(distributions, text):
    with pytest.raises(ValueError, match=text):
        Hyperprior(distributions).checked(3)


def test_words_that_are_none_are_refused_by_name():
    with pytest.raises(ValueError, match="prior_on: found 'square'"):
        Hyperprior({}, prior_on="square").checked(1)
    with pytest.raises(ValueError, match="map_density: found 'both'"):
        Hyperprior({}, map_density="both").checked(1)
    with pytest.raises(ValueError, match="link: found 'cauchit'"):
        weak(SCALE, "cauchit")
    with pytest.raises(ValueError, match="hyperprior: found 'cauchy', expected one of"):
        log_hyperprior("variance", VALUE, ("cauchy", 1.0, 1.0))


@pytest.mark.parametrize("value", [3, "weak", {"variance": ("log-normal", 1.0, 1.0)}, False, np.ones(2)])
def test_what_is_no_hyperprior_is_refused_by_type(value):
    with pytest.raises(TypeError, match=r"hyperprior: found .*, expected None or a Hyperprior"):
        Hyperprior.given(value, 1)
    assert Hyperprior.given(None, 1) is None
    distributions = {"variance": ("log-normal", 1.0, 1.0)}
    assert Hyperprior.given(Hyperprior(distributions), 1).densities == distributions


def test_rows_bound_how_many_inputs_a_draw_of_lengthscales_counts():
    rng = np.random.default_rng(0)

    def counted(d, n):  # (sum w)^2 / sum w^2 of w = 1/l^2, by draws of the density's own deviations
        density = weak(np.ones(d), "logit").seen_by(n).densities["lengthscales"]
        w = np.exp(-2.0 * density[1][1] * rng.normal(size=(4000, d)))
        return (w.sum(axis=1) ** 2).mean() / (w**2).sum(axis=1).mean()

    # means of 4000 draws of a log-normal sum: a few per cent
    assert counted(200, 200) == pytest.approx(200 * np.exp(-1.0), rel=0.1)
    assert counted(400, 200) == pytest.approx(counted(200, 200), rel=0.15)
    few = weak(np.ones(5), "logit")
    for n in (5, 100, 0):  # no fewer rows than inputs, or a number that is not known
        assert few.seen_by(n) == few
