"""What rounding leaves on the wrong side of a bound in the reference: `clamped`, equation by equation.

The papers print differences that are variances, and sums that are probabilities; their text says nothing of rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from validation.checks.clamped import OUTSIDE, Bound, held
from validation.checks.core import NO_PROBLEM, Context, Outcome, check
from validation.problem import Problem

Array = NDArray[np.float64]


@check(
    "identity/ep/printed_variances_of_rounding",
    paper="villacampa2017",
    question="With more explained than there is, are the printed differences zero where they are variances?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.villacampa2017 import datum, hyper, model, prediction, vi

    eye, short = np.eye(3), 1.0 - OUTSIDE
    given = SimpleNamespace(Z=np.zeros((2, 3, 1)), variance=np.full(2, short), lengthscales=np.ones((2, 1)),
                            noise=np.zeros(2), jitter=np.zeros(2))  # fmt: skip
    three = np.stack([eye, eye])

    def matrices() -> Array:
        """Data that are the inducing points, with a prior variance just below what these explain."""
        any_prior: Any = given
        with (
            mock.patch.object(hyper, "inducing_covariances", return_value=three),
            mock.patch.object(hyper, "squared_exponential", return_value=eye),
        ):
            return np.asarray(hyper.prior_matrices(np.zeros((3, 1)), any_prior)[2])

    # a datum that is certain: what is left of its curvature is rounding, of either sign
    below = SimpleNamespace(log_p=np.zeros(2), first=np.zeros((2, 3)), curvature=np.full((2, 3), OUTSIDE))

    def certain() -> Array:
        cavities: Any = SimpleNamespace(mean=np.zeros((2, 3)), var=np.ones((2, 3)))
        with mock.patch.object(datum, "largest", return_value=below):
            return np.asarray(datum.tilted_of_data(cavities, np.array([0, 2]), np.zeros((3, 2))).curvature)

    def alone(points: bool) -> Array:
        """Bends of ln Phi of the wrong sign, by less than their rounding: the weights of a line keep them."""
        bent = lambda z: (np.zeros_like(z), np.full_like(z, OUTSIDE))  # noqa: E731
        var = np.array([1.0, 1.0, 0.0 if points else 1.0])
        with mock.patch.object(datum, "mills_derivative", bent):
            return np.asarray(datum.datum_tilted(np.array([9.0, 0.0, -1.0]), var, 0).curvature)

    yield from held(
        [
            Bound("(5)", lambda: model.conditional_variance(short, eye[0], eye), 0.0),
            Bound("(17)", lambda: vi.vi_marginal_variance(short, eye[0], eye, 0.3 * eye), 0.3),
            Bound("(67)", lambda: prediction.predictive_latent_variance(np.full(3, short), eye, eye, 0.3 * eye), 0.3),
            Bound("s of all classes", matrices, 0.0),
            Bound("curvatures of all data", certain, 0.0),
            Bound("curvatures of one datum", lambda: np.minimum(alone(False), 0.0), 0.0),
            Bound("curvatures of one datum beside a point", lambda: np.minimum(alone(True), 0.0), 0.0),
        ],
        "reference",
    )


@check(
    "identity/pep/printed_variances_of_rounding",
    paper="villacampa2020",
    question="With more explained than there is, are variances zero, eigenvalues too, and log P and log (1 - P)?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.villacampa2020 import power_likelihood, sparse, tied

    eye, short = np.eye(3)[None], np.full((1, 3), 1.0 - OUTSIDE)
    q: Any = (np.zeros((1, 3)), eye)

    def sigma() -> Array:
        turned = np.array([-OUTSIDE, 0.5, 1.0]), np.eye(3)
        with mock.patch.object(tied, "eigenvectors", return_value=turned):
            basis = tied.basis_of(q, eye)
        return np.asarray(basis[2])

    mean, var, y = np.array([[0.0, 1.0]]), np.ones((1, 2)), np.array([0])

    def sure() -> Array:
        """P above one: log P and log (1 - P) of the other event, which is known by itself."""
        with mock.patch.object(power_likelihood._largest, "log_not_largest", return_value=np.array([-60.0])):
            return np.asarray(power_likelihood._both(np.array([OUTSIDE]), mean, var, y)).ravel()

    def impossible() -> Array:
        with mock.patch.object(power_likelihood._largest, "log_not_largest", return_value=np.array([OUTSIDE])):
            return np.asarray(power_likelihood._both(np.array([-1e-3]), mean, var, y))[1]

    yield from held(
        [
            Bound("variances given the inducing values", lambda: sparse.conditional_variances(short, eye, eye), 0.0),
            Bound("eigenvalues of q over the prior", sigma, np.array([0.0, 0.5, 1.0])),
            Bound("log P of a sure label", sure, np.array([-np.exp(-60.0), -60.0]), 1e-15),
            Bound("log (1 - P) of an impossible one", impossible, 0.0),
        ],
        "reference",
    )


@check(
    "identity/x-gpc/printed_variances_of_rounding",
    paper="wenzel2019",
    question="Are expectations at a variance below zero those at zero, and probabilities and rates at most one?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.wenzel2019 import prediction, rates, svgpc

    mean, sign = np.array([-0.7, 0.4]), np.array([1.0, -1.0])

    def data_terms() -> float:
        """A latent value that u fixes, K_ii below what kappa takes back by rounding: log Phi at its mean."""
        return svgpc.probit_data_terms(mean, np.zeros((2, 2)), sign, np.eye(2), np.full(2, -1e-14)).value

    def above(module: Any, ask: Callable[[], Any]) -> Array:
        hit = SimpleNamespace(value=1.0 + 1e-12, error=1e-12)
        with mock.patch.object(module, "gaussian_integral", return_value=hit):
            return np.asarray(ask().probability)

    def rate(now: float, before: float, share: float = 0.0) -> float:
        """A gradient after others, of which the squared norm is kept too small by a share."""
        kept = rates.RateMemory(np.full(3, before), 3.0 * before**2 * (1.0 - share), 10.0)
        return rates.adaptive_learning_rate(np.full(3, now), kept).rate

    yield from held(
        [
            Bound("sum of E log Phi", data_terms, float(log_ndtr(sign * mean).sum()), 1e-13),
            Bound("(14)", partial(above, prediction, lambda: prediction.predict_probability(mean, np.ones(2))), 1.0),
            Bound("rate of equal gradients", lambda: rate(1.0, 1.0, OUTSIDE), 1.0),
            Bound("rate without any", lambda: rate(0.0, 0.0), 1.0),
            Bound("rate of small ones that turn, (0.9 - 0.1)^2", lambda: rate(-0.01, 0.01), 0.64, 1e-13),
        ],
        "reference",
    )


@check(
    "identity/svi/printed_variances_of_rounding",
    paper="izmailov2016",
    question="Are expectations and xi at a variance below zero those at zero, and correlations at most one?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016 import bound, fit, jaakkola_jordan, kernels, model

    mean, below, sign = np.array([-0.7, 0.4, 2.0]), np.array([-1e-14, -1e-18, -OUTSIDE]), np.array([1.0, -1.0, 1.0])
    at_mean = {"logit": -np.log1p(np.exp(-sign * mean)), "probit": log_ndtr(sign * mean)}
    known: Any = SimpleNamespace(latent_mean=mean, latent_var=below)

    def expected(link: str) -> Array:
        return np.asarray(bound.expectations(mean, below, sign, link).value)

    def above() -> Array:
        hit = SimpleNamespace(value=1.0 + 1e-12, error=1e-12)
        with mock.patch.object(model, "gaussian_integral", return_value=hit):
            return np.asarray(model.predictive_probability(mean, np.ones(3)).probability)

    def nearly_one() -> Array:
        log_bessel = kernels._log_bessel
        with mock.patch.object(kernels, "_log_bessel", lambda nu, s: log_bessel(nu, s) + 1e-6):
            return np.asarray(kernels.matern_profile(np.array([1e-9, 0.0]), 1.7).value)

    rows = [Bound(f"E log p, {link}", partial(expected, link), wanted, 1e-13) for link, wanted in at_mean.items()]
    rows += [
        Bound("(15)", lambda: jaakkola_jordan.jj_optimal_xi(mean, below), np.abs(mean)),
        Bound("20 nodes at a point", lambda: fit._quadrature_gap(known, sign), 0.0, 1e-12),
        Bound("(5)", above, 1.0),
        Bound("correlation of nearly the same inputs", nearly_one, 1.0),
    ]
    yield from held(rows, "reference")


@check(
    "identity/nested-ep/printed_variances_of_rounding",
    paper="riihimaki2013",
    question="Are sites whose precision rounding took below zero those of precision zero?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common.options import options_of
    from reference.riihimaki2013 import nested_ep, posterior, qep

    turned = np.stack([np.diag([-1e-12, 1.0, 2.0])] * 2)

    def roots() -> Array:
        root = posterior._roots_and_factor(np.eye(6), turned)[0]
        return root @ root.transpose(0, 2, 1)

    yield from held([Bound("roots of sites", roots, np.stack([np.diag([0.0, 1.0, 2.0])] * 2), 1e-14)], "reference")
    mean, cov = np.array([0.3, -0.2, 0.1]), np.diag([1.0, 1.5, 0.8])

    def independent() -> float:
        sites = nested_ep.NestedIEP(np.array([1]), 3, options_of("nested-iep")(damping=1.0))
        full = SimpleNamespace(precision=np.array([-1e-12, 0.3, 0.2]), location=np.zeros(3))
        with mock.patch.object(nested_ep, "iep_site_update", return_value=full):
            sites.visit(0, mean, cov)
        return min(0.0, float(sites.precision[0].min()))

    def diagonal() -> float:
        sites = qep.QuadratureEP(np.array([1]), 3, options_of("qep")(damping=1.0, nodes=8))
        with mock.patch.object(qep, "diagonal_lambda", return_value=np.array([-1e-12, 0.4])):
            sites.visit(0, mean, cov)
        return min(0.0, float(np.diag(sites.Lambda[0]).min()))

    rows = [
        Bound("nested ep, independent classes", independent, 0.0),
        Bound("quadrature ep, diagonal Lambda", diagonal, 0.0),
    ]
    yield from held(rows, "reference")
