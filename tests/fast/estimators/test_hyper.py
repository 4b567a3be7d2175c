"""What classifiers learn of their priors: by default, in two stages, under which density, and how it is told."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from fast.core.hyperprior import weak
from fast.core.values import Data, Prior
from fast.estimators import (
    EPClassifier,
    EPGPClassifier,
    GFITCClassifier,
    JJFullClassifier,
    LaplaceClassifier,
    RobustVIClassifier,
    SEPClassifier,
    SVIClassifier,
    VBProbitClassifier,
    XGPClassifier,
)
from fast.kernel.defaults import default_lengthscales
from fast.methods import x_gpc

FAST = (XGPClassifier, EPGPClassifier, JJFullClassifier, LaplaceClassifier, EPClassifier, GFITCClassifier)


@pytest.fixture(scope="module")
def wide():
    """Sixty rows of a dozen inputs, of which two matter, in units far apart; three labels of text."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(60, 12)) * np.logspace(-2, 2, 12)
    signal = X[:, 0] / 0.01 + X[:, 1] / X[:, 1].std()
    return X, (signal + 0.3 * rng.normal(size=60) > 0).astype(int), np.digitize(signal, [-0.8, 0.8])


def ratios(model, X):
    typical = default_lengthscales(X, np.random.default_rng(0))
    return np.atleast_2d(model.lengthscales_) / typical


@pytest.mark.parametrize("cls", [*FAST, RobustVIClassifier, VBProbitClassifier])
def test_nothing_runs_away_on_separable_labels_of_few_rows(cls, wide):
    X, y, _ = wide
    model = cls(random_state=0).fit(X[:40], y[:40])
    # eight standard deviations of every logarithm cost 32 nats: evidence of 40 rows can buy 40 log 2 = 28
    assert np.exp(-12.0) < np.min(model.variance_)
    assert np.max(model.variance_) < 10.0 * 3.3 * np.exp(12.0)
    assert np.abs(np.log(ratios(model, X[:40]))).max() < 8.0 * np.sqrt(1.25)
    if model.learn == "auto" and cls in (EPClassifier, GFITCClassifier, RobustVIClassifier):
        assert np.min(model.noise_) > 0.1 * np.exp(-8.0 * 1.5 / np.sqrt(2.0))
    assert np.isfinite(model.log_hyperprior_)


def test_without_a_prior_it_is_the_method_and_nothing_else(wide):
    X, y, _ = wide
    Z, scales = X[::6], default_lengthscales(X, np.random.default_rng(0))
    model = XGPClassifier(inducing_points=Z, prior=None, max_iter=8).fit(X, y)
    options = x_gpc.XGPCLearning(learn=("variance", "lengthscales"), learning_iterations=8)
    posterior, _ = x_gpc.fit_learning(Data(X, y), Prior(1.0, scales, 0.0, 1e-6, Z), options)
    np.testing.assert_array_equal(model.lengthscales_, posterior.prior.hyper.lengthscales)  # one computation
    assert model.log_evidence_ == posterior.elbo
    assert model.log_hyperprior_ == 0.0


@pytest.mark.parametrize("cls", [*FAST, SEPClassifier, SVIClassifier])
def test_a_scale_keeps_the_ratios_of_lengthscales(cls, wide):
    X, y, _ = wide
    model = cls(learn=("variance", "scale"), random_state=0, max_iter=15).fit(X, y)
    result = ratios(model, X)
    np.testing.assert_allclose(result, np.repeat(result[:, :1], 12, axis=1), rtol=1e-12, atol=0)  # an exp of a mean
    assert (np.abs(np.log(result)) > 1e-3).all()


@pytest.mark.parametrize("cls", FAST)
def test_the_second_stage_ends_no_lower_than_the_first_and_is_kept_only_if_it_pays(cls, wide):
    X, y, _ = wide
    names = ("variance", "noise", "scale") if cls in (EPClassifier, GFITCClassifier) else ("variance", "scale")
    one = cls(learn=names, random_state=0).fit(X, y)
    both = cls(random_state=0).fit(X, y)
    gain = both.log_evidence_ + both.log_hyperprior_ - one.log_evidence_ - one.log_hyperprior_
    result = ratios(both, X)
    tied = np.ptp(np.log(result), axis=1).max() < 1e-9
    # where they are tied the second stage did not count, and the first is the whole training
    assert (abs(gain) < 1e-9) if tied else gain > 0.0
    if not tied:  # the two inputs that matter have the shortest
        assert set(np.argsort(np.log(result).mean(axis=0))[:2]) == {0, 1}


def test_what_is_learned_is_told_by_label(wide):
    X, y, three = wide
    names = np.array(["low", "mid", "high"])[three]
    model = EPClassifier(n_inducing=10, max_iter=3, random_state=0).fit(X, names)
    assert list(model.hyper_) == ["high", "low", "mid"]
    for k, label in enumerate(model.classes_):
        learned = model.hyper_[label]
        assert learned.variance == model.variance_[k]
        assert learned.noise == model.noise_[k]
        np.testing.assert_array_equal(learned.lengthscales, model.lengthscales_[k])
    binary = XGPClassifier(n_inducing=10, max_iter=3, random_state=0).fit(X, y)
    assert list(binary.hyper_) == [1]  # positive where the second label is more probable
    assert binary.hyper_[1].variance == binary.variance_
    shared = LaplaceClassifier(max_iter=3).fit(X, names)
    assert {learned.variance for learned in shared.hyper_.values()} == {shared.variance_}


def test_what_ep_learned_for_another_counts_as_learned(wide):
    X, _, three = wide
    model = SEPClassifier(n_inducing=10, random_state=0).fit(X, three)
    result = {name: np.asarray(getattr(model, f"{name}_")) for name in ("variance", "noise", "lengthscales")}
    wanted = weak(default_lengthscales(X, np.random.default_rng(0)), "threshold").at(result, result.__getitem__).value
    np.testing.assert_allclose(model.log_hyperprior_, wanted, rtol=1e-12, atol=0)  # one sum in another order
    assert SEPClassifier(n_inducing=10, learn=()).fit(X, three).log_hyperprior_ == 0.0


def test_the_start_of_lengthscales_says_nothing_of_what_is_typical(wide):
    X, y, _ = wide
    near = XGPClassifier(learn=("variance", "scale"), n_inducing=None, random_state=0).fit(X, y)
    typical = default_lengthscales(X, np.random.default_rng(0))
    far = XGPClassifier(learn=("variance", "scale"), n_inducing=None, lengthscales=3.0 * typical).fit(X, y)
    # two searches that end at derivatives of 1e-5, or where 1e-13 of some 20 nats is gained: logarithms to 1e-4
    np.testing.assert_allclose(far.lengthscales_, near.lengthscales_, rtol=1e-3, atol=0)
    np.testing.assert_allclose(far.log_hyperprior_, near.log_hyperprior_, rtol=1e-3, atol=0)


@pytest.mark.parametrize("own", [True, False])
def test_two_lengthscales_are_kept_where_the_evidence_integrated_over_their_ratio_is_larger(own):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 2))
    signal = np.sin(3.0 * X[:, 0]) if own else X.sum(axis=1)
    y = (signal + 0.3 * rng.normal(size=40) > 0).astype(int)
    tied = LaplaceClassifier(learn=("variance", "scale")).fit(X, y)
    each = LaplaceClassifier(learn=("variance", "lengthscales")).fit(X, y)
    # r = (x, -x)/sqrt 2 with x ~ N(0, .5^2): at the best variance and factor of either model, by quadrature
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)

    def log_evidence(x):
        scale = np.exp(np.log(each.lengthscales_ / default_lengthscales(X, rng)).mean())
        held = {"variance": each.variance_, "lengthscales": scale * default_lengthscales(X, rng)}
        held["lengthscales"] = held["lengthscales"] * np.exp([x, -x])
        return LaplaceClassifier(learn=(), **held).fit(X, y).log_evidence_

    values = np.array([log_evidence(0.5 * x / np.sqrt(2.0)) for x in nodes])
    integrated = np.log(weights @ np.exp(values - values.max()) / weights.sum()) + values.max()
    assert (integrated > tied.log_evidence_) == own
    ratio = np.ptp(np.log(ratios(LaplaceClassifier().fit(X, y), X)))
    assert (ratio > 1e-6) == own


def test_a_stream_goes_on_under_the_prior_of_the_fit(wide):
    X, y, _ = wide
    ends = []
    for prior in ("weak", None):
        model = XGPClassifier(
            n_inducing=10, learn=("variance", "scale"), prior=prior, learning_rate=0.1, random_state=0
        )
        model.fit(X, y)
        for _ in range(20):
            model.partial_fit(X, y)
        ends.append(model.variance_)
    # the density holds the variance back, the evidence of separable labels does not
    assert ends[0] < ends[1]


@pytest.mark.parametrize("seed", [0, 1])
def test_more_inputs_than_rows_leave_probabilities_as_sure_as_they_are_right(seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 1060)
    X = rng.normal(size=(1060, 1000))
    X[:, :20] += 1.2 * y[:, None]  # 20 of them tell the classes apart
    model = EPGPClassifier(random_state=0).fit(X[:60], y[:60])
    probabilities = model.predict_proba(X[60:])
    right = model.score(X[60:], y[60:])
    assert right > 0.8
    # one standard error of 1000 rows is .013; with the prior of few inputs it is .2 too low
    assert abs(probabilities.max(axis=1).mean() - right) < 0.08
    assert log_loss(y[60:], probabilities) < 0.45
