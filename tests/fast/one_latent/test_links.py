"""The table of links: a row is of one likelihood, methods take what it says, and no link stands in for another."""

import importlib
import pkgutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import fast.methods
from fast.blockwise import quadratic, taylor
from fast.blockwise.rows import rows_of
from fast.core import options
from fast.core.hyperprior import weak
from fast.core.values import Data, Prior
from fast.likelihood.probit import LinkMoments
from fast.likelihood.quadratic_bounds import Expansion
from fast.methods import laplace_binary, svi, vi_taylor
from fast.one_latent import laplace
from fast.one_latent.links import LINKS, BinaryLink, link_of
from fast.one_latent.predict import Prediction

NAMES = ", ".join(map(repr, LINKS))
REFUSED = f"likelihood: found 'no-link', expected one of {NAMES}"
# methods whose options list links, with the classes of those options
METHODS = {
    svi: (svi.SVIOptions, svi.SVISteps),
    vi_taylor: (vi_taylor.TaylorOptions,),
    laplace_binary: (laplace_binary.LaplaceBinaryOptions, laplace_binary.LaplaceBinaryLearning),
}
CLASSES = [kind for kinds in METHODS.values() for kind in kinds]


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((60, 2))
    y = (rng.random(60) < 1.0 / (1.0 + np.exp(-2.0 * np.sin(2.0 * X[:, 0]) - X[:, 1]))).astype(np.int64)

    def prior(scale=1.0, full=False):
        return Prior(1.7 * scale, np.array([0.8, 1.3]), 0.05 * scale, 1e-6 * scale, None if full else X[::6].copy())

    return SimpleNamespace(data=Data(X, y), prior=prior, X_test=2.0 * rng.standard_normal((9, 2)))


def steep_link():
    """sigma(2 y f): with a prior of variance s what the logit is with 4 s."""
    logit = LINKS["logit"]

    def log_likelihood(y_sign, f):
        g = logit.log_likelihood(y_sign, 2.0 * f)
        return Expansion(g.value, 2.0 * g.derivative, 4.0 * g.curvature)

    def expected(y_sign, mean, var):
        e = logit.expected(y_sign, 2.0 * mean, 4.0 * var)
        return LinkMoments(e.value, 2.0 * e.derivative, 4.0 * e.curvature)

    return BinaryLink(
        log_likelihood=log_likelihood,
        third_derivative=lambda y_sign, f: 8.0 * logit.third_derivative(y_sign, 2.0 * f),
        expected=expected,
        prediction=lambda mean, var: logit.prediction(2.0 * mean, 4.0 * var)._replace(latent_mean=mean, latent_var=var),
    )


def listed(monkeypatch, name):
    """From now on the options of every method list one link more."""
    for kind in CLASSES:
        record = kind.declared()["likelihood"]
        monkeypatch.setitem(kind.declared(), "likelihood", replace(record, choices=(*record.choices, name)))
    record = svi.predict.options["likelihood"]
    monkeypatch.setitem(svi.predict.options, "likelihood", replace(record, choices=(*record.choices, name)))


@pytest.fixture
def steep(monkeypatch):
    """A third link, as one who adds it would: a row of the table, a choice of the options."""
    monkeypatch.setitem(LINKS, "steep", steep_link())
    listed(monkeypatch, "steep")
    return "steep"


# -- rows --------------------------------------------------------------------------------------------------------------

EVERY = {**LINKS, "steep": steep_link()}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_derivatives_of_a_row_are_those_of_its_log_likelihood(name, sign):
    link, f, h = EVERY[name], np.array([-6.0, -1.1, 0.0, 0.4, 3.0]), 1e-5
    y_sign = np.full(f.size, sign)
    here, low, high = (link.log_likelihood(y_sign, f + step) for step in (0.0, -h, h))
    third = link.third_derivative(y_sign, f)
    for derivative, below, above in (
        (here.derivative, low.value, high.value),
        (here.curvature, low.derivative, high.derivative),
        (third, low.curvature, high.curvature),
    ):
        # central differences of values up to 20: 20 eps/h = 4e-10, and h^2 times a third derivative below 10
        np.testing.assert_allclose(derivative, (above - below) / (2.0 * h), rtol=0, atol=5e-9)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("mean", "var"), [(0.3, 0.5), (-2.0, 4.0), (1.5, 1e-2)])
def test_the_averages_of_a_row_are_those_of_its_log_likelihood(name, mean, var):
    link, sd = EVERY[name], np.sqrt(var)

    def average(of):
        def integrand(f):
            return of(link.log_likelihood(np.ones(1), np.array([f]))) * norm.pdf(f, mean, sd)

        return quad(integrand, mean - 12.0 * sd, mean + 12.0 * sd, epsabs=1e-13, epsrel=1e-12, limit=200)[0]

    got = link.expected(np.ones(1), np.array([mean]), np.array([var]))
    # Bonnet and Price: derivatives in the mean are averages of derivatives. The tails beyond 12 sd hold 1e-32
    wanted = [average(lambda g, part=part: getattr(g, part)[0]) for part in Expansion._fields]
    np.testing.assert_allclose([part[0] for part in got], wanted, rtol=0, atol=1e-11)
    probability = link.prediction(np.array([mean]), np.array([var])).probabilities[0, 1]
    np.testing.assert_allclose(probability, average(lambda g: np.exp(g.value[0])), rtol=0, atol=1e-11)


# -- names -------------------------------------------------------------------------------------------------------------


def test_options_and_hyperprior_list_the_links_of_the_table():
    assert options.Link.declared()["likelihood"].choices == tuple(LINKS)
    for name in LINKS:
        weak(np.ones(2), name)


def test_the_methods_of_these_tests_are_all_whose_options_list_links():
    listing = set()
    for each in pkgutil.iter_modules(fast.methods.__path__, "fast.methods."):
        module = importlib.import_module(each.name)
        kinds = {kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, options.Link)}
        if any(kind.__module__ == module.__name__ for kind in kinds):
            listing.add(module)
    assert listing == set(METHODS)


# -- an unknown link ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["no-link", "Probit", "", None, 1])
def test_a_name_that_is_not_in_the_table_has_no_row(name):
    with pytest.raises(ValueError, match=rf"likelihood: found .*, expected one of {NAMES}"):
        link_of(name)


@pytest.mark.parametrize("kind", CLASSES)
def test_options_refuse_an_unknown_link(kind):
    with pytest.raises(ValueError, match=REFUSED):
        kind(likelihood="no-link")


def test_the_hyperprior_refuses_an_unknown_link():
    with pytest.raises(ValueError, match="link: found 'no-link', expected one of 'logit', "):
        weak(np.ones(2), "no-link")


def test_a_method_refuses_a_link_that_its_options_list_and_the_table_does_not_have(case, monkeypatch):
    listed(monkeypatch, "no-link")
    full = case.prior(full=True)
    for fit, prior, asked in (
        (svi.fit, case.prior(), svi.SVIOptions(likelihood="no-link")),
        (svi.fit_learning, full, svi.SVIOptions(likelihood="no-link", learn=("variance",))),
        (svi.fit_stochastic, case.prior(), svi.SVISteps(likelihood="no-link", n_steps=1)),
        (vi_taylor.fit, case.prior(), vi_taylor.TaylorOptions(likelihood="no-link")),
        (laplace_binary.fit, full, laplace_binary.LaplaceBinaryOptions(likelihood="no-link")),
        (laplace_binary.fit_learning, full,
         laplace_binary.LaplaceBinaryLearning(likelihood="no-link", learn=("variance",))),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=REFUSED):
            fit(case.data, prior, asked)
    posterior, _ = svi.fit(case.data, case.prior())
    with pytest.raises(ValueError, match=REFUSED):
        svi.predict(posterior, case.X_test, likelihood="no-link")


def test_a_posterior_of_an_unknown_link_gives_neither_prediction_nor_gradient(case):
    run = replace(svi.fit_stochastic(case.data, case.prior(), svi.SVISteps(n_steps=1)), likelihood="no-link")
    expanded = vi_taylor.fit(case.data, case.prior())
    object.__setattr__(expanded, "likelihood", "no-link")
    at_mode = replace(laplace_binary.fit(case.data, case.prior(full=True)), likelihood="no-link")
    for ask in (
        lambda: svi.predict_run(run, case.X_test),
        lambda: svi.bound(run, case.data.X, case.data.y),
        lambda: vi_taylor.predict(expanded, case.X_test),
        lambda: vi_taylor.gradients(expanded),
        lambda: laplace_binary.predict(at_mode, case.X_test),
        lambda: laplace.total_gradients(at_mode),
    ):
        with pytest.raises(ValueError, match=REFUSED):
            ask()


def test_data_in_parts_refuse_an_unknown_link(case):
    rows = rows_of(case.data.X, case.data.y, leaf=20)
    with pytest.raises(ValueError, match=REFUSED):
        taylor.fit(rows, case.prior(), likelihood="no-link")
    posterior = replace(taylor.fit(rows, case.prior()), likelihood="no-link")
    with pytest.raises(ValueError, match=REFUSED):
        list(quadratic.predictions(posterior, rows_of(case.X_test)))
    leaf = taylor.look(rows.leaves[0], points=posterior.points, method="vi-taylor")
    zero = np.zeros(len(posterior.points.Z))
    for sums in (taylor.leaf_sums, taylor.leaf_height):
        with pytest.raises(ValueError, match=REFUSED):
            sums(leaf, taylor.State(zero, zero, "no-link"))


# -- a known link ------------------------------------------------------------------------------------------------------


def answers(case, name, scale=1.0):
    """What every method that lists links says with one of them, under a prior scaled by a factor."""
    sparse, full, data, X_test = case.prior(scale), case.prior(scale, full=True), case.data, case.X_test
    for prior in (sparse, full):
        posterior, _ = svi.fit(data, prior, svi.SVIOptions(likelihood=name))
        yield svi, posterior.elbo, svi.gradients(posterior), svi.predict(posterior, X_test, likelihood=name)
        expanded = vi_taylor.fit(data, prior, vi_taylor.TaylorOptions(likelihood=name))
        yield vi_taylor, expanded.elbo, vi_taylor.gradients(expanded), vi_taylor.predict(expanded, X_test)
    at_mode = laplace_binary.fit(data, full, laplace_binary.LaplaceBinaryOptions(likelihood=name))
    gradient = laplace_binary.gradients(at_mode)
    yield laplace_binary, at_mode.log_evidence, gradient, laplace_binary.predict(at_mode, X_test)
    parts = taylor.fit(rows_of(data.X, data.y, leaf=20), sparse, likelihood=name)
    ((_, prediction),) = quadratic.predictions(parts, rows_of(X_test))
    yield taylor, parts.elbo, None, prediction


@pytest.mark.parametrize("name", LINKS)
def test_every_method_that_lists_links_takes_each_of_the_table(case, name):
    modules = set()
    for module, value, _, prediction in answers(case, name):
        modules.add(module)
        assert np.isfinite(value)
        own = LINKS[name].prediction(prediction.latent_mean, prediction.latent_var)
        np.testing.assert_array_equal(prediction.probabilities, own.probabilities)
    assert modules >= set(METHODS)


def test_a_third_link_is_taken_by_every_method_and_for_no_other(case, steep):
    pairs = zip(answers(case, steep), answers(case, "logit", scale=4.0), strict=True)
    for (module, value, gradient, prediction), (_, wanted, of_logit, right) in pairs:
        # f of the one is half of the other's, by powers of two: what differs is where iterations end, at 1e-8 of q,
        # where the values are flat; xi of vi-taylor moves (19) to first order, after Newton's last step by less
        what = module.__name__
        np.testing.assert_allclose(value, wanted, rtol=1e-10, atol=0, err_msg=what)
        assert isinstance(prediction, Prediction), what
        np.testing.assert_allclose(prediction.latent_mean, 0.5 * right.latent_mean, rtol=0, atol=1e-6, err_msg=what)
        np.testing.assert_allclose(prediction.probabilities, right.probabilities, rtol=0, atol=1e-6, err_msg=what)
        if gradient is not None:
            scale = np.abs(of_logit.lengthscales).max()
            np.testing.assert_allclose(gradient.variance, 4.0 * of_logit.variance, rtol=0, atol=1e-6 * 4.0 * scale)
            np.testing.assert_allclose(gradient.lengthscales, of_logit.lengthscales, rtol=0, atol=1e-6 * scale)


def test_a_stochastic_run_takes_a_third_link(case, steep):
    y_sign = np.where(case.data.y == 1, 1.0, -1.0)
    asked = {"batch_size": len(y_sign), "n_steps": 1}
    runs = {name: svi.fit_stochastic(case.data, case.prior(), svi.SVISteps(likelihood=name, **asked))
            for name in (steep, "logit")}  # fmt: skip
    start = replace(runs["logit"], inducing_mean=np.zeros(10), chol_cov=np.eye(10))
    moments = svi.latent(start, case.data.X)
    # of all rows the first estimates differ by the two averages alone: the divergence is the same
    sums = {name: link_of(name).expected(y_sign, *moments).value.sum() for name in runs}
    apart = runs[steep].trace[0] - runs["logit"].trace[0]
    np.testing.assert_allclose(apart, sums[steep] - sums["logit"], rtol=0, atol=1e-10 * abs(sums[steep]))
    prediction = svi.predict_run(runs[steep], case.X_test)
    own = link_of(steep).prediction(*svi.latent(runs[steep], case.X_test))
    np.testing.assert_array_equal(prediction.probabilities, own.probabilities)
