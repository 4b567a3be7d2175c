"""What rounding leaves on the wrong side of a bound: variances below zero, correlations and probabilities above one.

Ordinary numbers stay inside by a wide margin. Here each is handed in a little outside, by 1e-10 and so more than any
order of summation could: a factor that is too small, so that more than a variance is explained, a prior variance just
below what the data explain, an eigenvalue below zero. What comes out is the value on the bound, to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]

OUTSIDE = 1e-10  # far above the rounding of a few sums of numbers of size one, far below what is refused (1e-8)


class Bound(NamedTuple):
    """A quantity that is asked for outside its bound, and the value on the bound."""

    what: str
    ask: Callable[[], Any]
    wanted: Any
    limit: float = 0.0


def held(rows: Iterable[Bound], witness: str) -> Iterable[Outcome]:
    """The largest distance from the bound, and NaN, with which nothing passes, after a root of less than zero."""
    for row in rows:
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.asarray(row.ask(), dtype=np.float64)
        gap = float(np.abs(value - row.wanted).max())
        yield Compared(gap, row.limit, f"{row.what}: on its bound", witness, "definition", "distance from the bound")


def _places(n: int, rng: np.random.Generator) -> Array:
    """Inputs far enough apart that their covariance has a good condition."""
    return np.arange(n)[:, None] * 1.5 + 0.2 * rng.standard_normal((n, 1))


def _kernel(X: Array, Z: Array, variance: float = 1.0) -> Array:
    return variance * np.exp(-0.5 * np.square(X[:, None] - Z[None]).sum(axis=2))


@check(
    "identity/x-gpc/variances_of_rounding",
    paper="wenzel2019",
    question="With more explained than there is, is the noise what a variance given the inducing values has left?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.kernel.kernels import PreparedKernel
    from fast.methods import svi
    from fast.one_latent import explicit_q, predict, prior, sites, stochastic

    rng = np.random.default_rng(11)
    variance, noise, lengthscales = 1.7, 0.3, np.ones(1)
    Z = _places(4, rng)
    small: Any = np.linalg.cholesky(_kernel(Z, Z, variance)) * (1.0 - OUTSIDE)
    kernel = SimpleNamespace(
        hyper=SimpleNamespace(variance=variance, noise=noise, lengthscales=lengthscales, smoothness=None),
        of=PreparedKernel(Z, variance, lengthscales),
        chol_K=small,
    )
    rows: list[Bound] = []
    whitened = "at the inducing points, by a factor that is too small"
    rows += [Bound(f"whiten, {whitened}", lambda: prior.whiten(Z, Z, small, variance, lengthscales, noise)[1], noise)]
    run: Any = SimpleNamespace(
        state=SimpleNamespace(kernel=kernel), packing=SimpleNamespace(size=0), source=SimpleNamespace(n=4)
    )
    batch: Any = SimpleNamespace(X=Z, y=np.ones(4))
    rows += [Bound(f"view of a batch, {whitened}", lambda: stochastic.Run.view(run, batch).cond_var, noise)]
    known: Any = SimpleNamespace(
        kernel=kernel, hyper=kernel.hyper, inducing_mean=np.zeros(4), chol_cov=np.zeros((4, 4), order="F")
    )
    rows += [Bound(f"latent variance of svi, {whitened}", lambda: svi.latent(known, Z)[1], noise)]

    def handed_on() -> Array:
        given: list[Array] = []

        def expected(y_sign: Array, mean: Array, var: Array) -> Any:
            given.append(var)
            return SimpleNamespace(value=mean, derivative=mean, curvature=mean)

        like: Any = kernel
        narrow = 1e-20 * np.eye(4)  # its square is lost beside the noise
        explicit_q.batch_bound(like, expected, Z, np.ones(4), 1.0, np.zeros(4), narrow, learning=False)
        return given[0]

    rows += [Bound(f"variance in the bound of a batch, {whitened}", handed_on, noise)]

    # a factor of one number for all, far apart: k^2 / factor^2 is explained
    apart = np.arange(3.0)[:, None] * 1e3
    over: Any = np.sqrt(variance) * (1.0 - OUTSIDE) * np.eye(3)
    rows += [
        Bound(
            "variance at training inputs by a full prior",
            lambda: predict.full_latent(apart, apart, kernel.hyper, np.ones(3), over, np.zeros(3), 2).var,
            noise,
        )
    ]

    hyper: Any = SimpleNamespace(variance=variance, lengthscales=lengthscales, noise=0.0, jitter=0.0, smoothness=None)
    full = prior.FullPrior(apart, np.array([1.0, -1.0, 1.0]), hyper, 2)

    def explained(module: Any) -> Any:
        return mock.patch.object(module, "squared_norms", lambda given: np.full(len(given), variance * (1.0 + OUTSIDE)))

    def evaluated() -> Array:
        with explained(prior):
            return full.evaluate(np.zeros(3)).latent_var

    def conditioned() -> Array:
        with explained(sites):  # sites so weak that the variance is a difference
            return sites.condition(full, np.full(3, 1e-3), np.zeros(3)).proj_var

    rows += [
        Bound("variance given all quadratic bounds", evaluated, 0.0),
        Bound("variance given all sites", conditioned, 0.0),
    ]
    yield from held(rows, "fast")


@check(
    "identity/x-gpc/probabilities_of_rounding",
    paper="wenzel2019",
    question="Are correlations, probabilities and rates at most one, and logarithms of what underflows finite?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.estimators import XGPClassifier
    from fast.estimators._classes import most_likely_errors
    from fast.kernel import matern
    from fast.likelihood import power
    from fast.methods import x_gpc_svi
    from fast.solve import natural

    def correlation() -> Array:
        with mock.patch.object(matern, "_power_times_bessel", return_value=np.full((1, 2), 1.0 + OUTSIDE)):
            return matern.correlation(np.array([[1e-9, 1e-12]]), 0.9)

    def powers(alpha: float) -> Array:
        """P = 1 by its logarithm, a little above: the likelihood is that of a right label, 1 - eps + eps/C."""
        sure: Any = SimpleNamespace(log_mass=np.full(2, 1e-3), derivative=np.zeros((2, 3)), curvature=np.zeros((2, 3)))
        return power.robust_power(sure, alpha, 0.3, 3).value

    def rate() -> float:
        memory: Any = SimpleNamespace(
            first=np.ones(2), second=np.ones(4), squared_norm=6.0 * (1.0 - OUTSIDE), length=5.0, _average=lambda _: None
        )
        given: Any = None
        rate = natural.adaptive_rate(memory, given)
        return rate + (memory.length - 1.0)  # of the memory nothing is left at the rate one

    def score() -> float:
        """Two points, one with a probability that underflows."""
        chosen = SimpleNamespace(probabilities=np.array([[1.0, 0.0], [0.5, 0.5]]))
        with (
            mock.patch.object(x_gpc_svi, "_latent", return_value=SimpleNamespace(mean=None, var=None)),
            mock.patch.object(x_gpc_svi, "logit_prediction", return_value=chosen),
        ):
            of: Any = x_gpc_svi._holdout_score((np.zeros((2, 1)), np.array([1, 1])), 1)
            return float(of(None))

    smallest = float(np.log(np.finfo(np.float64).tiny))

    def decision(probabilities: Array) -> Array:
        fitted: Any = XGPClassifier()
        fitted.classes_ = np.arange(probabilities.shape[1])
        with mock.patch.object(XGPClassifier, "predict_proba", return_value=probabilities):
            return np.asarray(fitted.decision_function(None))

    def errors() -> float:
        """Of four labels three are as probable as can be, by a hair more than that, and one is as improbable."""
        shares = np.array([1.0, 1.0, 1.0, 0.0]) + 1e-3 * np.array([1.0, 1.0, 1.0, -1.0])
        epsilon, C = 0.3, 3
        right = (1.0 - epsilon) * shares + epsilon / C
        rest = 0.5 * (1.0 - right)
        return most_likely_errors(np.stack([right, rest, rest], axis=1), np.zeros(4, dtype=np.int64), epsilon)

    log_right = float(np.log(1.0 - 0.3 + 0.1))
    rows = [
        Bound("correlation of nearly the same inputs", correlation, 1.0),
        Bound("E log L of a sure label", partial(powers, 0.0), log_right, 1e-15),
        Bound("log E L^(1/2) of a sure label, twice", partial(powers, 0.5), log_right, 1e-15),
        Bound("rate of equal gradients", rate, 1.0),
        Bound("score with a label that underflows", score, 0.5 * (np.log(2.0) - smallest), 1e-12),
        Bound("log odds", lambda: decision(np.array([[1.0, 0.0], [0.0, 1.0]])), [smallest, -smallest]),
        Bound("log probabilities", lambda: decision(np.array([[1.0, 0.0, 0.0]])), [[0.0, smallest, smallest]]),
        Bound("share of random labels, with one of either kind more", errors, (1.0 + 1.0) / 6.0 * 1.5, 1e-15),
    ]
    yield from held(rows, "fast")


@check(
    "identity/ep/variances_of_rounding",
    paper="villacampa2017",
    question="Of classes that Z explains altogether, is the noise left, and is a factor without variance finite?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.solve.site_iteration import standardised_change
    from fast.sparse_classes import alpha_energies, pairwise_factors
    from fast.sparse_classes.projections import InducingClasses

    rng = np.random.default_rng(12)
    Z = np.stack([_places(4, rng) for _ in range(3)])
    noise = np.array([0.0, 0.2, 0.4])
    hyper: Any = SimpleNamespace(
        variance=np.array([1.0, 1.3, 0.7]), lengthscales=np.ones((3, 1)), noise=noise, jitter=np.zeros(3)
    )
    hyper.of = lambda k: SimpleNamespace(
        variance=hyper.variance[k], lengthscales=hyper.lengthscales[k], noise=noise[k], jitter=0.0
    )

    def left(shared: bool) -> Array:
        points = InducingClasses(hyper, Z, shared)
        points.chol_K = [factor * (1.0 - OUTSIDE) for factor in points.chol_K]
        return np.stack([points.view(Z[k]).cond_var[:, k] for k in range(1 if shared else 3)], axis=1)

    rows = [
        Bound("at each class's own inducing points", lambda: left(False), noise),
        Bound("at inducing points that all classes share", lambda: left(True), noise[:1]),
    ]
    below = np.array([-1e-18, -1e-12, 0.0])

    def change() -> Array:
        return standardised_change(np.ones(3), below, np.full(3, -0.5), np.full(3, 2.0))

    rows += [Bound("change of a site on a scalar without variance", change, 0.0, 1e-12)]

    y, zero = np.array([0, 2]), np.zeros((2, 3))

    def tilt(below: float) -> Array:
        """Without any variance Phi is a step: on its right side all is zero."""
        ahead = np.where(np.arange(3) == y[:, None], 1.0, 0.5)
        result = pairwise_factors.pair_tilt(y, np.ones((2, 3)), zero, ahead, zero - below, zero)
        return np.stack(result)

    rows += [Bound("factors without variance", lambda: tilt(0.0), 0.0)]
    rows += [Bound("factors with a variance below zero", lambda: tilt(1e-18), 0.0)]

    def value(kind: str, least: float) -> float:
        """A class whose q has an eigenvalue that is lost beside the largest, which is 1e10."""
        energy = alpha_energies.Energy(kind, 0.5, 6)
        q = alpha_energies.ClassDistribution.of(np.stack([np.diag([1e-10, 1.0])] * 2), np.ones((2, 2)))
        with mock.patch.object(alpha_energies, "eigenvalues", return_value=np.array([least, 1e10])):
            return energy.own_value(energy.distributions(q))

    for kind in ("apep", "rpapep"):
        lost = value(kind, 0.0)
        rows += [Bound(f"{kind}: an eigenvalue of q that is rounding", partial(value, kind, -1e-6), lost)]
    yield from held(rows, "fast")


@check(
    "identity/nested-ep/variances_of_rounding",
    paper="riihimaki2013",
    question="With more explained than there is, have coupled classes no variance left, and is every sum finite?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.results import Differences
    from fast.full_classes import inner_ep
    from fast.full_classes.couplings import ClassFactor, class_factor, predictive_cov
    from fast.full_classes.dense_couplings import Dense, dense_covariance
    from fast.full_classes.quadrature_tilt import WhiteMoments, g_sites
    from fast.full_classes.sequential_posterior import SequentialPosterior

    rows: list[Bound] = []
    # K with a correlation above one by rounding; the second datum is known almost exactly
    beyond = np.array([[1.0, 1.0 + OUTSIDE], [1.0 + OUTSIDE, 1.0]])
    rows += [
        Bound(
            "a datum that its twin determines",
            lambda: class_factor(beyond, np.array([1e-3, 1e12])).cond_var[0],
            0.0,
        )
    ]
    eye, short = np.eye(3), np.full(2, 1.0 - OUTSIDE)
    alone: Any = SimpleNamespace(factors=[ClassFactor(np.ones(3), eye, np.zeros(3), 0.0)] * 2, coupling_chol=None)
    rows += [Bound("covariance at test points", lambda: predictive_cov(alone, [eye, eye], short), 0.0)]
    # loadings that see other points in each class: no covariance between them
    dense = Dense([np.eye(6)[:, :3], np.eye(6)[:, 3:]], np.eye(6), np.zeros((2, 3)), np.zeros((3, 2)), 0.0)
    rows += [Bound("covariance at test points, all coupled", lambda: dense_covariance(dense, [eye, eye], short), 0.0)]
    one_by_one = object.__new__(SequentialPosterior)
    one_by_one.K, one_by_one.B = [2.0 * eye] * 2, [(0.5 + OUTSIDE) * eye] * 2
    one_by_one.location, one_by_one.pulled, one_by_one.P_inverse = np.zeros((3, 2)), [np.zeros(3)] * 2, None
    rows += [Bound("covariance of a datum, site by site", lambda: one_by_one.marginal(1)[1], 0.0)]

    # diagonal sites with a tilted variance above the cavity's by less than is refused
    V = np.array([1.0 + 0.9e-9, 1.0 + 1e-12])
    cavity = Differences(np.full((2, 1), 0.3), np.full((2, 1, 1), 4.0))
    white = WhiteMoments(np.zeros(2), np.full((2, 1), 0.1), V[:, None, None], np.full((2, 1, 1), 2.0))
    rows += [Bound("precision of a site that sees nothing", lambda: g_sites(cavity, white).precision, 0.0)]
    rows += [Bound("its shift, that of the whitened mean alone", lambda: g_sites(cavity, white).location, 0.05, 1e-15)]

    # r (r + z) is below one; where rounding leaves it above, a wide cavity would have a negative precision
    def matched() -> Array:
        beyond = lambda z: (np.full_like(z, 30.0), np.full_like(z, (1.0 + 1e-12) / 30.0))  # noqa: E731
        with mock.patch.object(inner_ep, "hazard", beyond):
            return inner_ep.matched_site(np.full(2, -40.0), np.array([1e13, 1e4]))[0]

    rows += [Bound("precision of an inner site far in the tail", matched, 1.0)]
    below, mean = np.array([-1e-18, -OUTSIDE, 0.0]), np.array([-0.7, 0.3, 1.2])
    r = np.exp(-0.5 * mean**2 - log_ndtr(mean)) / np.sqrt(2.0 * np.pi)
    tau = r * (r + mean)
    at_a_point = np.stack([tau, r + mean * tau])

    def in_sweep() -> Array:
        """A scalar without variance has the precision r (r + z) of Phi at z, its mean."""
        g = Differences(mean[:, None].copy(), below[:, None, None].copy())
        swept = inner_ep.sweep(np.zeros((3, 1)), np.zeros((3, 1)), g, schedule="sequential", damping=1.0)
        return np.stack([swept.alpha_tilde[:, 0], swept.beta_tilde[:, 0]])

    rows += [Bound("sites of scalars without variance", in_sweep, at_a_point, 1e-13)]
    none = np.zeros(3)
    rows += [
        Bound(
            "integral of a site over such a scalar",
            lambda: inner_ep.log_site_integral(none, below, np.full(3, 1e12), none),
            0.0,
        ),
        Bound(
            "Phi at such a scalar",
            lambda: inner_ep.log_site_ratios(mean, np.full(3, -OUTSIDE), none, none),
            log_ndtr(mean),
            1e-13,
        ),
    ]
    yield from held(rows, "fast")
    yield from held([*_last_cavities(), _rooted()], "fast")


def _given() -> tuple[Any, Any]:
    from fast.core.values import Data, Prior

    asked = tiny("multinomial-probit full")
    return Data(asked.X, asked.y, 3), Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter)


def _last_cavities() -> Iterable[Bound]:
    """Normalisers at the last cavities, of which one has no variance, or less than none."""
    from fast.methods import nested_iep, quadrature_ep

    def normalisers(module: Any, fit: Callable[[], Any], last: float) -> Array:
        settle = module.settle_independent

        def changed(*given: Any, **options: Any) -> Any:
            end = settle(*given, **options)
            var = end.state.cavity_var.copy()
            var[0, 0] = last
            names = "sites", "trace", "residual", "converged", "n_improper", "iterations"
            return SimpleNamespace(
                state=end.state._replace(cavity_var=var), **{name: getattr(end, name) for name in names}
            )

        # a datum without variance has no site of its own: what is infinite there is refused later, and is not asked for
        with mock.patch.object(module, "settle_independent", changed), np.errstate(all="ignore"):
            return np.asarray(fit().log_tilted_norm)

    data, prior = _given()
    for module, fit, options in (
        (nested_iep, nested_iep.fit, nested_iep.NestedOptions(max_iterations=2)),
        (quadrature_ep, quadrature_ep.fit_qiep, quadrature_ep.QIEPOptions(max_iterations=2)),
    ):

        def ask(last: float, module: Any = module, fit: Any = fit, options: Any = options) -> Array:
            return normalisers(module, lambda: fit(data, prior, options), last)

        yield Bound(f"{module.__name__}: normaliser at a cavity without variance", partial(ask, -0.5), ask(0.0))


def _rooted() -> Bound:
    """Sites of full matrices whose smallest eigenvalue is lost beside the largest."""
    from fast.methods import quadrature_ep

    data, prior = _given()
    run = quadrature_ep._QEP(quadrature_ep.prepare(data, prior), 4, full=True)
    n = data.y.size

    def cov(least: float) -> Array:
        # one kind of site for all, diagonal, so that its roots are known
        spectra = np.tile([least, 2.0], (n, 1)), np.tile(np.eye(2), (n, 1, 1))
        with mock.patch.object(quadrature_ep, "spectrum", return_value=spectra):
            return run.posterior((np.tile(np.diag([1.0, 2.0]), (n, 1, 1)), np.zeros((n, 2))))[2]

    return Bound("covariances given sites with an eigenvalue that is rounding", lambda: cov(-1e-12), cov(0.0))
