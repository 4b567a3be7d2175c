"""Rules, series and ranges of numbers on which `reference` rests: as many nodes as stated, and right at both ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit, log_softmax, softmax

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check
from validation.problem import Problem

Array = NDArray[np.float64]


def _are_gaussian(nodes: Array, count: int) -> bool:
    """Whether rows of nodes are those of Gauss and Legendre, `count` of them between the ends of a panel each."""
    if nodes.shape[1] != count:
        return False
    k = np.arange(1.0, count)
    x = np.linalg.eigvalsh(np.diag(k / np.sqrt(4.0 * k * k - 1.0), -1))  # zeros of P_count: Golub and Welsch (1969)
    middle, half = 0.5 * (nodes[:, 0] + nodes[:, -1]), 0.5 * (nodes[:, -1] - nodes[:, 0]) / x[-1]
    return bool(np.abs(nodes - middle[:, None] - half[:, None] * x).max() < 1e-9)


@check(
    "identity/svi/nodes_of_panels",
    paper="izmailov2016",
    question="Do integrals on a line take as many nodes on each of as many panels as they are said to?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _largest, _probit_line, logistic_expectation, probit

    mean, var = np.array([0.4, -3.0]), np.array([1.3, 20.0])
    rows: list[tuple[str, object, object]] = []
    places: tuple[tuple[Any, str, Any], ...] = (
        (logistic_expectation, "log_sigmoid", logistic_expectation.expect_log_sigmoid),
        (probit, "mills_derivative", probit.expect_log_phi),
    )
    for place, name, expectation in places:
        with mock.patch.object(place, name, side_effect=getattr(place, name)) as asked:
            expectation(mean, var)
        z = asked.call_args.args[0]
        rows.append((f"{expectation.__name__}: data, panels, nodes", z.shape, (2, 35, 24)))
        t = (z - mean[:, None, None]) / np.sqrt(var)[:, None, None]
        rows.append(("nodes of Gauss and Legendre", _are_gaussian(t.reshape(-1, z.shape[-1]), 24), True))
    # the second Φ bends forty deviations away, where nothing is left
    line = _probit_line.probit_line(0.3, 1.7, np.array([0.1, -50.0]), np.array([0.5, 3.0]))
    rows.append(("probit_line: nodes of each panel", _are_gaussian(line.s.reshape(-1, 24), 24), True))
    rows.append(("within ten deviations of the mode", bool(19.0 < np.ptp(line.s) / np.sqrt(1.7) < 20.0), True))
    panels = _largest._panels(mean, np.sqrt(var), np.zeros((2, 3)), np.ones((2, 3)), np.ones((2, 3)))
    rows.append(("line_integral: nodes of each panel", panels.weights.shape[1], 16))
    nothing = _largest.line_integral(mean, var, *np.zeros((3, 2, 0)))
    rows.append(("without a Φ", [part.tolist() for part in nothing], [[0.0, 0.0], [0.0, 0.0]]))
    yield as_documented(rows, "reference", "rules")


@check(
    "derivative/vi-jj/bend_of_lambda",
    paper="izmailov2016",
    question="Is the derivative of lambda(xi) one over a circle about xi, where it is a series and where it is not?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016.jaakkola_jordan import jj_lambda, jj_lambda_derivative

    # the poles of tanh(z/2) nearest to the real axis are at ±iπ: the mean over 64 points is exact to (1.1/π)^64
    circle = 1.1 * np.exp(2j * np.pi * (np.arange(64) + 0.5) / 64)
    xi = np.array([-7.0, -0.101, -0.099, 0.003, 0.05, 0.099, 0.0999, 0.1001, 0.3, 2.0, 30.0])
    z = xi[:, None] + circle
    on_circle = np.tanh(0.5 * z) / (4.0 * z)
    gap = float(np.abs(jj_lambda_derivative(xi) / (on_circle / circle).mean(axis=1).real - 1.0).max())
    yield Compared(gap, 1e-12, "a derivative of 1e-5 and more, sums of numbers of one eighth", "reference",
                   "definition")  # fmt: skip
    gap = float(np.abs(jj_lambda(xi) / on_circle.mean(axis=1).real - 1.0).max())
    yield Compared(gap, 1e-13, "lambda itself, the mean over the circle", "reference", "definition")


@check(
    "limit/laplace/softmax_of_any_size",
    paper="riihimaki2013",
    question="Is softmax, its logarithm and its derivative a number for latent values of any size and common shift?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.riihimaki2013.laplace import log_softmax_sum, softmax_gradient, softmax_table
    from reference.riihimaki2013.model import softmax_likelihood

    f, y = np.array([[0.3, -1.2, 0.9], [2.0, 1.5, -0.5]]), np.array([2, 1])
    for shift, scale in ((0.0, 1.0), (900.0, 1.0), (-900.0, 1.0), (0.0, 500.0), (1e6, 100.0)):
        at = scale * f + shift
        flat, p = at.T.ravel(), softmax(at, axis=1)
        told = (
            (softmax_table(flat, 2), p),
            (softmax_gradient(flat, y), (np.eye(3)[y] - p).T.ravel()),
            (np.array([softmax_likelihood(row, int(k)) for row, k in zip(at, y, strict=True)]), p[[0, 1], y]),
            (np.array(log_softmax_sum(flat, y) / scale), log_softmax(at, axis=1)[[0, 1], y].sum() / scale),
        )
        gap = max(float(np.abs(found - wanted).max()) for found, wanted in told)
        # a common shift of 1e6 leaves ten digits of a difference
        yield Compared(gap, 1e-12 * max(1.0, abs(shift)), f"latent values {scale:g} f + {shift:g}", "reference",
                       "scipy.special", "largest difference")  # fmt: skip


@check(
    "limit/svi/evidence_of_few",
    paper="izmailov2016",
    question="Is the evidence of one label and of two a sum of many more nodes, however wide the prior?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016.model import log_evidence

    step = 0.01  # of deviations, a hundredth of the distance of the nearest pole in units of the widest prior
    z = np.arange(-11.0, 11.0, step)
    weight = step * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    for deviation in (0.5, 2.0, 3.0, 8.0):
        wanted = np.log(weight @ np.exp(log_expit(deviation * z)))
        gap = abs(log_evidence(np.array([1.0]), np.array([[deviation**2]])) - wanted)
        # half by symmetry: the logarithm of it has the sum's own rounding
        yield Compared(gap, 1e-12, f"one label, deviation {deviation:g}", "reference", "a sum of 2200 nodes", "nat")
    first, second = np.meshgrid(z[::5], z[::5], indexing="ij")
    both = np.outer(weight[::5], weight[::5]) * 25.0
    for deviation, share in ((1.0, 0.6), (3.0, -0.4)):
        K = deviation**2 * np.array([[1.0, share], [share, 1.0]])
        a, b = deviation * first, deviation * (share * first + np.sqrt(1.0 - share**2) * second)
        wanted = np.log(np.sum(both * np.exp(log_expit(a) + log_expit(-b))))
        gap = abs(log_evidence(np.array([1.0, -1.0]), K) - wanted)
        yield Compared(gap, 1e-12, f"two labels, deviation {deviation:g}, correlation {share:g}", "reference",
                       "a sum of 440² nodes", "nat")  # fmt: skip
