"""Learning under a hyperprior: searches end where evidence plus density is flat, steps count the density once."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from fast.core.hyperprior import weak
from fast.core.values import Data, Prior
from fast.methods import (
    apep,
    ep,
    epgpc,
    epgpc_svi,
    gfitc,
    sep,
    svgpc,
    svi,
    vi_jj,
    vi_robust,
    vi_taylor,
    x_gpc,
    x_gpc_svi,
)
from fast.one_latent import online, stochastic
from fast.sparse_classes import alpha_joint, stream, training
from fast.sparse_classes.projections import InducingClasses

TYPICAL = np.array([1.5, 2.5])
LEARN = ("variance", "lengthscales")


def two(n=24):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 2)) * [1.0, 2.0]
    return X, (np.sin(1.3 * X[:, 0]) + 0.6 * rng.normal(size=n) > 0).astype(int)


def three(n=24):
    X, _ = two(n)
    y = np.digitize(X[:, 0] + 0.5 * np.random.default_rng(6).normal(size=n), [-0.4, 0.4])
    return X, y


def density(link, variance, lengthscales, noise=None):
    """Log density of docs/classifiers.md, of one class."""
    of_link = {"logit": np.pi**2 / 3.0, "probit": 1.0, "threshold": 0.1}[link]
    deviation = 1.5 / np.sqrt(2.0) if link == "threshold" else 1.5
    total = norm.logpdf(np.log(variance), np.log(10.0 * of_link), deviation)
    if noise is not None:
        total += norm.logpdf(np.log(noise), np.log(of_link), deviation)
    return total + multivariate_normal.logpdf(np.log(lengthscales / TYPICAL), np.zeros(2), 0.25 * np.eye(2) + 1.0)


def differences(value, vector, step=1e-4):
    """Central differences."""
    moves = step * np.eye(vector.size)
    return np.array([(value(vector + move) - value(vector - move)) / (2.0 * step) for move in moves])


SEARCHES = {
    "x-gpc": ("logit", x_gpc, lambda *a, **k: x_gpc.fit_learning(*a, x_gpc.XGPCLearning(**k))[0], "elbo", 1e-3),
    "svgpc": ("probit", svgpc, lambda *a, **k: svgpc.fit_learning(*a, svgpc.SVGPCLearning(**k))[0], "elbo", 1e-3),
    "epgpc": (
        "probit", epgpc, lambda *a, **k: epgpc.fit_learning(*a, epgpc.EPGPCLearning(**k))[0], "log_evidence", 1e-3,
    ),
    "vi-jj": ("logit", vi_jj, lambda *a, **k: vi_jj.fit(*a, vi_jj.JJOptions(max_iterations=400, **k)), "elbo", 1e-2),
    "vi-jj-full": ("logit", vi_jj, lambda *a, **k: vi_jj.fit_full(*a, vi_jj.JJFullOptions(**k)), "elbo", 1e-2),
}  # fmt: skip


@pytest.mark.parametrize("method", SEARCHES)
def test_a_search_of_one_function_ends_where_evidence_and_density_are_flat(method):
    link, module, learned, evidence, limit = SEARCHES[method]
    X, y = two()
    Z = X[::4]
    posterior = learned(Data(X, y), Prior(1.0, TYPICAL, 0.1, 1e-4, Z), learn=LEARN, hyperprior=weak(TYPICAL, link))
    hyper = posterior.prior.hyper

    def total(vector):
        variance, lengthscales = np.exp(vector[0]), np.exp(vector[1:])
        held = module.fit(Data(X, y), Prior(variance, lengthscales, 0.1, 1e-4, Z))
        return getattr(held, evidence) + density(link, variance, lengthscales)

    # searches that take turns end where a round gains less than 1e-10 of the objective, of which 1e-3 is a derivative
    derivatives = differences(total, np.log([hyper.variance, *hyper.lengthscales]))
    np.testing.assert_allclose(derivatives, 0.0, rtol=0, atol=limit)
    bare = learned(Data(X, y), Prior(1.0, TYPICAL, 0.1, 1e-4, Z), learn=LEARN)
    assert abs(np.log(bare.prior.hyper.variance / hyper.variance)) > 0.01


def test_a_search_at_the_mode_held_ends_where_its_objective_and_density_are_flat():
    X, y = two()
    options = vi_taylor.TaylorOptions(learn=LEARN, hyperprior=weak(TYPICAL, "logit"), max_iterations=400)
    posterior = vi_taylor.fit(Data(X, y), Prior(1.0, TYPICAL, 0.1, 1e-4, X[::4]), options)
    hyper, by_evidence = posterior.prior.hyper, vi_taylor.gradients(posterior)  # at the point of the expansion
    vector = np.log([hyper.variance, *hyper.lengthscales])
    by_density = differences(lambda v: density("logit", np.exp(v[0]), np.exp(v[1:])), vector)
    by_evidence = np.exp(vector) * [by_evidence.variance, *by_evidence.lengthscales]
    # rounds end where one gains less than 1e-10 of the objective, of which 1e-3 is a derivative
    np.testing.assert_allclose(by_evidence + by_density, 0.0, rtol=0, atol=1e-2)


CLASSES = {
    "gfitc": (gfitc, gfitc.GFITCOptions, {}),
    "ep": (ep, ep.EPOptions, {"optimizer": "lbfgs"}),
    "vi-robust": (vi_robust, vi_robust.RobustOptions, {"epsilon": 0.05, "optimizer": "lbfgs"}),
}


@pytest.mark.parametrize("method", CLASSES)
@pytest.mark.parametrize("learn", [("variance", "lengthscales", "noise"), ("variance", "scale", "noise")])
def test_a_search_of_several_classes_ends_where_evidence_and_density_are_flat(method, learn):
    module, options, own = CLASSES[method]
    X, y = three(18)
    Z, prior = X[::4], weak(TYPICAL, "threshold")
    own = own | {"tolerance": 1e-9}
    asked = options(learn=learn, hyperprior=prior, learn_tolerance=1e-5, n_steps=100, **own)
    posterior = module.fit(Data(X, y, 3), Prior(1.0, TYPICAL, 0.3, 1e-4, Z, shared=True), asked)
    assert posterior.trained.converged
    hyper = posterior.run.points.hyper
    own.pop("optimizer", None)

    def total(vector):
        values = np.exp(vector)
        lengthscales = values[1:3] if "lengthscales" in learn else TYPICAL * values[1]
        start = Prior(values[0], lengthscales, values[-1], 1e-4, Z, shared=True)
        held = module.fit(Data(X, y, 3), start, options(**own))
        return held.log_evidence + density("threshold", values[0], lengthscales, values[-1])

    lengths = hyper.lengthscales[0] if "lengthscales" in learn else hyper.lengthscales[0, :1] / TYPICAL[0]
    derivatives = differences(total, np.log([hyper.variance[0], *lengths, hyper.noise[0]]))
    # gradients below 1e-5 at the end, q to 1e-9, differences of step 1e-4
    np.testing.assert_allclose(derivatives, 0.0, rtol=0, atol=1e-4)


class _StepError(Exception):
    """Carries the first gradient of a run out of it."""


def first_gradient(monkeypatch, module, name, run):
    """The gradient that the first step of a run is given."""

    def stub(gradient, *_, **options):
        raise _StepError(gradient.copy())

    with monkeypatch.context() as patched:
        patched.setattr(module, name, stub)
        with pytest.raises(_StepError) as caught:
            run()
    return caught.value.args[0]


def _of_one(fit, options):
    X, y = two()
    learn = ("variance", "scale", "noise")
    return lambda prior, size: fit(
        Data(X, y), Prior(2.0, 0.7 * TYPICAL, 0.2, 1e-4, X[::6]),
        options(learn=learn, hyperprior=prior, batch_size=size, n_steps=1),
    )  # fmt: skip


def _of_classes(module, options, **own):
    X, y = three()
    learn = ("variance", "scale", "noise")
    return lambda prior, size: module.fit(
        Data(X, y, 3), Prior(2.0, 0.7 * TYPICAL, 0.2, 1e-4, X[::6]),
        options(learn=learn, hyperprior=prior, batch_size=size, n_steps=1, optimizer="adam", **own),
    )  # fmt: skip


def _online(prior, size):
    X, y = two()
    options = online.OnlineOptions(learn=("variance", "scale", "noise"), hyperprior=prior)
    run = online.Online(x_gpc_svi.PolyaGamma(), Prior(2.0, 0.7 * TYPICAL, 0.2, 1e-4, X[::6]), options)
    run.step(X[:size], 2.0 * y[:size] - 1.0, len(X))


def _tied(prior, size):
    X, y = three()
    points = InducingClasses(
        training.class_hyper(2.0, 0.7 * TYPICAL, 0.2, 1e-4, 3, 2), np.stack([X[::6]] * 3), shared=False
    )
    run = stream.TiedStream(points, learn=("variance", "scale", "noise"), hyperprior=prior)
    run.step(X[:size], y[:size], len(X))


STEPS = {
    "x-gpc-svi": (stochastic, "adam_step", _of_one(x_gpc_svi.fit, x_gpc_svi.XGPCSteps), "logit", 1),
    "epgpc-svi": (epgpc_svi, "adam_step", _of_one(epgpc_svi.fit, epgpc_svi.EPGPCSteps), "probit", 1),
    "svi": (svi, "ada_delta_step", _of_one(svi.fit_stochastic, svi.SVISteps), "logit", 1),
    "online": (stochastic, "adam_step", _online, "logit", 1),
    "ep": (training, "adam_step", _of_classes(ep, ep.EPOptions), "threshold", 3),
    "sep": (training, "adam_step", _of_classes(sep, sep.SEPOptions), "threshold", 3),
    "apep": (alpha_joint, "adam_step", _of_classes(apep, apep.EnergyOptions, epsilon=0.05), "threshold", 3),
    "stream": (stream, "adam_step", _tied, "threshold", 3),
}


@pytest.mark.parametrize("method", STEPS)
@pytest.mark.parametrize("size", [6, 24])
def test_a_step_on_a_batch_adds_the_derivative_of_the_density_once(method, size, monkeypatch):
    module, name, run, link, rows = STEPS[method]
    prior = weak(TYPICAL, link)
    with_prior, without = (first_gradient(monkeypatch, module, name, lambda p=p: run(p, size)) for p in (prior, None))
    of_link = {"logit": np.pi**2 / 3.0, "probit": 1.0, "threshold": 0.1}[link]
    deviation = 1.5 / np.sqrt(2.0) if link == "threshold" else 1.5
    noise = of_link if link == "threshold" else 0.1 * of_link
    # of Gaussian logarithms; two lengthscales .7 of their medians: covariance (.25 + 2) along the common factor
    wanted = [
        -np.log(2.0 / (10.0 * of_link)) / deviation**2,
        -2.0 * np.log(0.7) / 2.25,
        -np.log(0.2 / noise) / deviation**2,
    ]
    size_of_learned = 3 * rows
    moved = (with_prior - without)[-size_of_learned:]
    size_of_gradient = np.abs(without).max() + 1.0
    np.testing.assert_allclose(moved, np.repeat(wanted, rows), rtol=0, atol=1e-12 * size_of_gradient)  # one sum
    np.testing.assert_array_equal(with_prior[:-size_of_learned], without[:-size_of_learned])  # q feels nothing of it
