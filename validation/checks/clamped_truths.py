"""What rounding leaves on the wrong side of a bound in the truths: `clamped` for chains, exact draws and evidence.

A variance is never negative, a probability lies in [0, 1], a draw does not lie below the limit it is cut off at, chains
that stand still at different values do not agree. Each is handed in a little outside.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.clamped import OUTSIDE, Bound, held
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.problem import Problem

Array = NDArray[np.float64]


@check(
    "identity/gibbs-probit/variances_of_rounding",
    paper="riihimaki2013",
    question="With more explained than there is, are conditional variances of chains and exact draws zero?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core import values
    from gibbs.models import exact_probit, hyper, multilatent, multinomial_probit, pairwise, sampling

    eye, short = np.eye(3), np.full((1, 3), 1.0 - OUTSIDE)
    prior = multilatent.LatentPrior(eye[None], eye[None], short, None, None)
    longer = (1.0 + 0.5 * OUTSIDE) * eye
    rows = [
        Bound("test points that are data", lambda: multilatent.conditionals(prior, 0.0).test_var, 0.0),
        Bound("given the inducing values", lambda: sampling._conditional_variance(1.0, longer, "X"), 0.0),
    ]
    model: Any = SimpleNamespace(
        design=None, grouped=lambda f: f, auxiliary_noise=0.0, likelihood="threshold", n_latents=1, per_latent=np.array
    )
    cross = SimpleNamespace(K_TX=eye[None, None], k_tt=short[None], K_ZX=None, K_ZZ=None)
    state = {"hyper": np.zeros((1, 1, 3)), "latent": np.zeros((1, 1, 3))}

    def with_hyper() -> Array:
        with (
            mock.patch.object(hyper, "covariance", return_value=eye[None, None]),
            mock.patch.object(hyper, "cross_covariance", return_value=cross),
        ):
            return hyper.conditional_moments(model, state).test_var

    rows += [Bound("test points that are data, parameters drawn", with_hyper, 0.0)]
    loadings = np.ones((1, 3, 1))  # one margin, three points, one latent function
    rows += [Bound("points that the margins determine", lambda: exact_probit._conditional(short.T, loadings, "X"), 0.0)]
    # a correlation above one: the smaller eigenvalue is -OUTSIDE
    beyond = np.array([[1.0, 1.0 + OUTSIDE], [1.0 + OUTSIDE, 1.0]])

    def by_root() -> Array:
        root = exact_probit._root(beyond)
        return root @ root.T

    rows += [
        Bound("square root of a covariance without a factor", by_root, 1.0, 10.0 * OUTSIDE),
        Bound("K (K + I)^-1 of one", lambda: multinomial_probit.smoother(beyond[None])[0], 1.0 / 3.0, 10.0 * OUTSIDE),
        Bound("its root", lambda: multinomial_probit.smoother(beyond[None])[1][0, :, 0], 0.0, 1e-300),
    ]
    # squares that do not vary: their variance is a difference of equal sums, of either sign
    rng = np.random.default_rng(13)
    white = np.resize([1.0, -1.0], 6)[:, None]
    flat = rng.uniform(0.1, 3.0, (1, 300, 1))
    given = np.zeros((300, 1, 1))
    rows += [
        Bound(
            "error of a covariance",
            lambda: exact_probit._average(white, flat, given).cov_se / flat[0, :, None] ** 2,
            0.0,
            1e-6,
        )
    ]

    def same_draws() -> Array:
        margins = np.full((7, 1), 0.3)
        return exact_probit._probabilities(rng, margins, flat, given, 1.0).mean_se

    rows += [Bound("error of a probability", same_draws, 0.0, 1e-6)]

    def white_rows(which: str) -> Array:
        """Class 0 has a datum among its inducing points, the others have not; all test points are inducing points."""
        X, Z = np.arange(3.0)[:, None], np.stack([np.array([[0.0], [5.0]]) + shift for shift in (0.0, 0.4, 0.6)])
        given, prior = values.Data(X, np.array([1, 1, 2]), 3, Z[0]), values.Prior(1.0, np.ones(1), 0.0, 0.0, Z, "fitc")
        solve = pairwise.solve_triangular

        def longer(*given: Any, **options: Any) -> Array:
            return np.asarray(solve(*given, **options)) * (1.0 + OUTSIDE)

        with mock.patch.object(pairwise, "solve_triangular", longer):
            result = pairwise.prepare(given, prior)
        return result.cond_var_test[0] if which == "test" else result.cond_var[0, 0]

    rows += [
        Bound("pairwise factors at an inducing point", lambda: white_rows("data"), 0.0),
        Bound("at test points", lambda: white_rows("test"), 0.0),
    ]
    factor = rng.standard_normal((5, 4, 6))
    covariances, centring = factor @ factor.transpose(0, 2, 1), np.eye(4) - 0.25

    def put_together() -> Array:
        """The noise of a covariance as differences see it, and the rest."""
        split = exact_probit._split(covariances, 0.0)
        return split.least[:, None, None] * centring + split.root @ split.root.transpose(0, 2, 1)

    rows += [Bound("a covariance in two parts", put_together, centring @ covariances @ centring, 1e-12)]
    yield from held(rows, "gibbs")
    least = exact_probit._split(np.stack([np.ones((3, 3)) - OUTSIDE * np.eye(3)]), 0.0).least
    why = f"one value for all classes: {least[0]:.3g} of their variance are noise"
    yield flaws(not 0.0 < least[0] < 1e-20, why, "gibbs", "variances")


@check(
    "identity/gibbs-logit/variances_of_rounding",
    paper="wenzel2019",
    question="Are evidences of FITC finite where data are inducing points and rounding leaves less than no variance?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import annealed, bridge, chib

    rng = np.random.default_rng(14)
    Z = 1.5 * np.arange(3)[:, None]
    K = np.exp(-0.5 * np.square(Z - Z.T))
    sign = np.array([1.0, -1.0, 1.0])
    omega, values = rng.uniform(0.1, 0.3, (2, 130, 3)), rng.standard_normal((2, 130, 3))

    def answer(route: str, share: float) -> float:
        k_xx = np.full(3, 1.0 - share)
        if route == "chib":
            result = chib.log_evidence_fitc(K, K, k_xx, sign, omega, np.zeros(3))
        else:
            result = bridge.log_evidence_fitc(np.random.default_rng(2), K, K, k_xx, sign, values)
        return float(result.value)

    def given_u() -> Array:
        short = np.full(3, 1.0 - OUTSIDE)
        return annealed.choose_schedule_fitc(np.random.default_rng(2), K, K, short, sign, n_pilot=64).A[:, 3:]

    rows = [
        Bound(f"{route}: less than none", partial(answer, route, OUTSIDE), answer(route, 0.0), 1e-6)
        for route in ("chib", "bridge")
    ]
    rows += [Bound("annealed: deviations given the inducing values", given_u, 0.0)]
    yield from held(rows, "gibbs")


@check(
    "identity/gibbs-logit/probabilities_of_rounding",
    paper="wenzel2019",
    question="Do probabilities lie in [0, 1] and correlations below 1 where their sums come out above?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core import kernels
    from gibbs.core.hyperpriors import LogDensity
    from gibbs.models import quadrature, softmax_probability
    from gibbs.moves.hyper import hamiltonian_move

    def sure() -> Array:
        with mock.patch.object(quadrature, "_WEIGHT_X", quadrature._WEIGHT_X * (1.0 + OUTSIDE)):
            return quadrature.logistic_normal_mean(np.array([800.0]), 0.01)

    read = softmax_probability._read

    def between_classes(scale: float) -> Array:
        def scaled(*given: Any) -> tuple[Array, Array]:
            value, density = read(*given)
            return value, density * scale

        with mock.patch.object(softmax_probability, "_read", scaled):
            return softmax_probability.softmax_probability(np.array([[0.0, -900.0]]), np.full(2, 0.5))[0]

    def alike() -> Array:
        with mock.patch.object(kernels, "_matern", return_value=np.full((2, 2), 1.0 + OUTSIDE)):
            return kernels.matern(np.zeros((2, 1)), np.ones((2, 1)), 1.7, np.ones(1), 0.9)

    yield from held(
        [
            Bound("P of a sure label", sure, 1.0),
            Bound("P of a sure class", lambda: between_classes(1.0 + 1e-9)[0], 1.0),
            Bound("P where interpolation falls below zero", lambda: between_classes(-1e-12), 0.0),
            Bound("covariance of nearly the same inputs", alike, 1.7),
        ],
        "gibbs",
    )

    def normal(x: Array) -> Any:
        return LogDensity(-0.5 * np.square(x).sum(axis=-1), -x)

    rng = np.random.default_rng(15)
    moved = hamiltonian_move(rng, rng.standard_normal((400, 2)), normal, np.full(400, 1.2), 3)
    wrong = int(np.count_nonzero(~((moved.acceptance > 0.0) & (moved.acceptance <= 1.0))))
    even = float((moved.acceptance == 1.0).mean())  # by symmetry of forth and back at least where the energy falls
    yield flaws(wrong, f"400 moves with coarse steps, {even:.0%} downhill: probabilities", "gibbs", "moves")
    yield flaws(not 0.2 < even < 0.8, "moves down are taken for sure, and are about half of all", "gibbs", "moves")


@check(
    "identity/gibbs-threshold/limits_of_rounding",
    paper="villacampa2017",
    question="Do draws stay above their limits, errors at zero and chains that stand still apart, to the last digit?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains.warmup import Watch
    from gibbs.draws import truncated_normal, univariate_truncated
    from gibbs.moves.region import bounce_move

    rng = np.random.default_rng(16)
    near, far = rng.uniform(-6.0, 5.0, 3000), np.exp(rng.uniform(2.0, 9.0, 3000))
    for name, bounds in (("near", near), ("far", far)):
        for drop in (0.0, 1e-18, 1e-15):
            excess = getattr(univariate_truncated, f"_{name}")(bounds, np.full(3000, drop))
            least = max(0.0, -float(excess.min()))
            yield Compared(least, 0.0, f"{name} limits, an exponential of {drop:g}", "gibbs", "definition", "below")

    def no_spread() -> float:
        weights = object.__new__(truncated_normal._Weights)
        weights.log_bound, weights.size = 0.0, 1
        weights.count, weights.total, weights.square = 10, 1.0, 0.1 * (1.0 - OUTSIDE)
        return weights.probability().standard_error

    yield from held([Bound("error of weights that are all the same", no_spread, 0.0)], "gibbs")

    length = 40.0
    values = np.array([[0.1, 0.1, 0.1], [0.7, 0.7, 0.7]])[None].repeat(2, axis=0)  # window, chain, entry
    sums = np.stack([length * values, length * np.square(values) * (1.0 - OUTSIDE)], axis=1)
    watch: Any = SimpleNamespace(sums={"f": sums})
    agreed = Watch._agree(watch, int(length))
    yield flaws(agreed, "two chains that stand still, a variance below zero: taken for one", "gibbs", "judgements")

    # chains that move: few draws, so that their number counts, and R-hat on both sides of 1.05
    draws = rng.standard_normal((2, 2, 8))  # window, chain, draw
    draws -= draws.mean(axis=2, keepdims=True)
    within, side = float(draws.var(axis=2, ddof=1).mean()), np.array([-1.0, 1.0])
    wrong = 0
    for r_hat, close in ((1.049, True), (1.051, False)):
        between = (r_hat**2 - 7.0 / 8.0) * within  # sample variance of the four means
        apart = draws + np.sqrt(0.75 * between) * side[None, :, None]
        summed = np.stack([apart.sum(axis=2), np.square(apart).sum(axis=2)], axis=1)
        watch.sums = {"f": summed}
        wrong += Watch._agree(watch, 8) is not close
    yield flaws(wrong, "R-hat of pieces of eight draws, 1.049 and 1.051", "gibbs", "judgements")

    cov, y, n = np.stack([np.eye(4)] * 3), np.array([0, 1, 2, 0]), 4
    h = 0.3 * rng.standard_normal((60, 3, n))
    h[:, y, np.arange(n)] = h.max(axis=1) + 0.01
    stopped = 0
    try:
        with np.errstate(invalid="raise"):  # steps of four nat are seldom climbed
            bounce_move(np.random.default_rng(3), h, cov, cov, y, log_height=np.log(50.0))
    except FloatingPointError:
        stopped = 1
    yield flaws(stopped, "steps that are not climbed: roots of what is left of the energy", "gibbs", "roots")
