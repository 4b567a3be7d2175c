"""Both sides of the numbers at which integrals, series and rules of `fast` change their form, against other forms.

Each form is right on its own side and a little beyond, and what ordinary runs ask lies far from the change. The judge
asks on both sides: sums of many more nodes, closed forms, more digits; and what is refused is refused from there on.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, localcontext
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, expit, log_ndtr, ndtr, ndtri

from validation.by_name import by_name
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]

_ROOT_2PI = float(np.sqrt(2.0 * np.pi))


def _gap(came: Any, wanted: Any) -> float:
    """Largest relative difference, entry by entry; NaN if there is one."""
    a, b = np.asarray(came, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return float(np.abs(a / b - 1.0).max())


def _hazard(f: Array) -> Array:
    """phi/Phi, by the scaled error function: both underflow."""
    return np.sqrt(2.0 / np.pi) / erfcx(-f / np.sqrt(2.0))


# -- labels of two classes --------------------------------------------------------------------------------------------


@check(
    "limit/svgpc/rules_of_the_probit",
    paper="wenzel2019",
    question="Are E[log Phi], E[log sigma] and their derivatives sums of many nodes wherever their rules change?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood.logit import expected_log_logit
    from fast.likelihood.probit import expected_log_probit

    # deviations around 3, means around -12 deviations; far right the bend is all that counts
    scales = (1e-3, 0.5, 2.9, 3.1, 5.9, 6.1, 20.0)
    shares = (-25.0, -12.1, -11.9, -3.0, -0.5, 0.4, 2.0, 5.0)
    mean, scale = (part.ravel() for part in np.meshgrid(shares, scales))
    mean = mean * scale
    wanted: dict[str, list[Array]] = {"probit": [], "logit": []}
    for m, s in zip(mean, scale, strict=True):
        # mass sits at the mean, at the bend, or between; zeros of Phi, and poles of sigma, are 2.8 from the real axis
        length = 24.0 + abs(m) / s
        count = int(np.ceil(40.0 * length * max(s, 1.0)))
        nodes = 12.0 + max(-m, 0.0) / s - length * np.linspace(1.0, 0.0, 1 + count)
        weights = np.exp(-0.5 * nodes * nodes) * (length / count) / _ROOT_2PI
        f = m + s * nodes
        ratio = _hazard(f)
        wanted["probit"].append(np.array([weights @ log_ndtr(f), weights @ ratio, -weights @ (ratio * (ratio + f))]))
        above, below = np.logaddexp(0.0, -f), np.logaddexp(0.0, f)  # minus log sigma of f and of -f
        terms = np.array([-above, np.exp(-below), -np.exp(-above - below)])
        wanted["logit"].append(terms @ weights)
    for link, rule, limits in (
        ("probit", expected_log_probit, (1e-11, 1e-11, 1e-8)),
        ("logit", expected_log_logit, (3e-11, 3e-11, 3e-11)),
    ):
        sums = np.array(wanted[link]).T
        for sign in (1.0, -1.0):
            result = rule(np.full(mean.size, sign), sign * mean, scale**2)
            came = result.value, sign * result.derivative, result.curvature
            for name, one, other, limit in zip(("value", "slope", "curvature"), came, sums, limits, strict=True):
                why = f"{link}, {name}: states 1e-12; r + f of the judge cancels to f^2 eps" if limit > 1e-10 else (
                    f"{link}, {name}: states 1e-12 (1 + |mean|/100) at most"
                )  # fmt: skip
                yield Compared(_gap(one, other), limit, why, "fast", "definition")
        # a Gaussian without a width is its mean, and one of 1e-20 differs by less than rounding
        points = np.array([-30.0, -1.5, 0.0, 0.7, 9.0])
        exact = log_ndtr(points) if link == "probit" else -np.logaddexp(0.0, -points)
        for var in (0.0, 1e-300, 1e-40, 1e-20):
            value = rule(np.ones(5), points, np.full(5, var)).value
            yield Compared(_gap(value, exact), 1e-12, f"{link}: variance {var:g}", "fast", "definition")


@check(
    "limit/vi-jj/series_of_the_bound",
    paper="izmailov2016",
    question="Is the derivative of lambda(xi) that of its series at 0, and of its formula, on both sides of xi = 1?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood.quadratic_bounds import jj_coefficient_derivative

    def wanted(x: Decimal) -> Decimal:
        """(x - sinh x) / (4 x^2 (1 + cosh x))."""
        up, down = x.exp(), (-x).exp()
        return (x - (up - down) / 2) / (4 * x * x * (1 + (up + down) / 2))

    xi = np.array([1e-3, 0.01, 0.1, 0.3, 0.6, 0.9, 0.999, 1.001, 1.3, 2.0, 5.0, 30.0])
    with localcontext() as digits:
        digits.prec = 50
        exact = np.array([float(wanted(Decimal(float(x)))) for x in xi])
    for sign in (1.0, -1.0):
        gap = _gap(jj_coefficient_derivative(sign * xi), sign * exact)
        # beyond 1 the numerator is a tenth of its terms at least
        yield Compared(gap, 1e-14, "fifty digits; a few roundings, ten times as many at 1", "fast", "definition")


@check(
    "limit/laplace-binary/third_derivatives_left",
    paper="izmailov2016",
    question="Has the third derivative of log Phi all its digits where its formula loses them?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood.third_derivatives import probit_third

    def wanted(x: Decimal) -> Decimal:
        """r (e (r + e) - 1) at z = -x, with e = 1/(x + 2/(x + 3/(x + ...))) and r = x + e."""
        tail = x
        for level in range(900, 1, -1):  # at x = 2 the levels leave exp(-2 x sqrt(2 * 900)) = 1e-73
            tail = x + level / tail
        excess = 1 / tail
        return (x + excess) * (excess * (x + 2 * excess) - 1)

    x = np.array([2.0, 3.0, 3.9, 4.1, 5.0, 6.5, 7.9, 8.1, 20.0, 1e3])
    with localcontext() as digits:
        digits.prec = 60
        exact = np.array([float(wanted(Decimal(float(value)))) for value in x])
    near = x < 4.0
    for sign in (1.0, -1.0):
        came = sign * probit_third(np.full(x.size, sign), -sign * x)
        why = "right of -4 terms cancel to 1/x^6 of them: 4^6 eps is 9e-13, 8^6 eps would be 6e-11"
        yield Compared(_gap(came[near], exact[near]), 5e-12, why, "fast", "definition")
        yield Compared(_gap(came[~near], exact[~near]), 1e-14, "nothing cancels left of -4", "fast", "definition")


# -- several classes --------------------------------------------------------------------------------------------------


@check(
    "limit/ep/narrow_and_wide_steps",
    paper="villacampa2017",
    question="Is the probability of the larger of two exact at any ratio of widths, whoever lies far below?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood.largest import argmax_moments

    # t wins against one other if t - f is positive; a third one that lies far below both decides nothing
    rng = np.random.default_rng(12)
    ratio = 10.0 ** np.concatenate([np.linspace(-8.0, 8.0, 33), np.linspace(0.8, 1.6, 33)])
    for third in (False, True):
        n = ratio.size
        gap = rng.uniform(-8.0, 3.0, n)
        var = np.stack([np.ones(n), ratio**2], axis=1)
        mean = np.stack([gap * np.sqrt(var.sum(axis=1)), np.zeros(n)], axis=1)
        if third:
            narrow = 1e-3 * np.minimum(1.0, ratio)
            low = mean.min(axis=1) - 60.0 * np.sqrt(var.max(axis=1))
            var, mean = np.column_stack([var, narrow**2]), np.column_stack([mean, low])
        result = argmax_moments(mean, var, np.zeros(n, dtype=np.int64))
        z = mean[:, 0] / np.sqrt(var[:, 0] + var[:, 1])
        slope = _hazard(z) / np.sqrt(var[:, 0] + var[:, 1])
        why = f"Phi((m_y - m)/sqrt(v_y + v)) at ratios of widths 1e-8 to 1e8{', a third far below' * third}"
        yield Compared(_gap(result.log_mass, log_ndtr(z)), 3e-13, f"{why}: states 1e-14 of P, log P at least 1e-3",
                       "fast", "definition")  # fmt: skip
        yield Compared(_gap(result.derivative[:, 0], slope), 3e-12, why, "fast", "definition")
    # two others that are all but known: only the higher one counts, where both steps lie in the same panel or apart
    gap, width = np.array([1e-3, 0.03, 0.3, 1.0, 3.0, 9.0]), 1e-6
    mean = np.stack([np.zeros(6), np.full(6, 0.4), 0.4 - gap], axis=1)
    var = np.stack([np.ones(6), np.full(6, width**2), np.full(6, width**2)], axis=1)
    result = argmax_moments(mean, var, np.zeros(6, dtype=np.int64))
    exact = log_ndtr(-0.4 / np.sqrt(1.0 + width**2))
    yield Compared(_gap(result.log_mass, np.full(6, exact)), 3e-13, "two narrow steps, the lower one hidden", "fast",
                   "definition")  # fmt: skip


@check(
    "limit/laplace/truncated_far_out",
    paper="riihimaki2013",
    question="Are quantiles below a bound right where they go over to logarithms, and rules those of so many points?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.results import Differences
    from fast.likelihood.product_rule import product_rule
    from fast.likelihood.sobol_rule import _truncated, log_orthant, softmax_of_differences

    u = np.array([1e-3, 0.2, 0.5, 0.9])
    b = np.array([[-200.0], [-59.0], [-40.0], [-37.0], [-30.1], [-29.9], [-3.0], [2.0]])
    log_p, below = _truncated(b, u)
    yield Compared(_gap(log_p, log_ndtr(b)), 1e-12, "log Phi(b)", "fast", "definition")
    wanted = np.log(u) + log_ndtr(b)
    # at -200 an error of rounding of the quantile moves log Phi by 200^2 eps, of 2e4
    yield Compared(_gap(log_ndtr(below), wanted), 1e-12, "log Phi(quantile) = log u + log Phi(b)", "fast", "definition")

    # one difference: the midpoint rule of 4096 points; two: of 1024 in the first, each with the weight of the second
    mean, root = np.array([-3.0, 0.2, 1.5]), np.array([0.5, 3.0, 1.0])
    x = ndtri((np.arange(4096) + 0.5) / 4096.0)
    wanted = expit(mean[:, None] + root[:, None] * x).mean(axis=1)
    came = softmax_of_differences(mean[:, None], root[:, None, None])[:, 0]
    yield Compared(_gap(came, wanted), 1e-12, "the logistic, by the midpoint rule", "fast", "definition")
    # values so far apart that their exponentials are no numbers: the largest has all of the probability
    apart = np.array([[900.0, -900.0], [-900.0, 900.0], [-900.0, -900.0], [900.0, 0.0]])
    came = softmax_of_differences(apart, np.stack([1e-3 * np.eye(2)] * 4))
    gap = float(np.abs(came - np.eye(3)[[0, 1, 2, 0]]).max())
    yield Compared(gap, 1e-15, "the largest of values far apart is sure", "fast", "definition")
    cov = np.array([[1.3, 0.8], [0.8, 2.0]])
    at = np.array([[0.4, -0.6], [-1.5, 0.3], [2.0, 1.0]])
    sd, u = np.sqrt(1.3), (np.arange(1024) + 0.5) / 1024.0
    above = -ndtri(u * ndtr(at[:, :1] / sd))  # the first, standardised, where it is positive
    second = (at[:, 1:] + 0.8 / sd * above) / np.sqrt(2.0 - 0.8**2 / 1.3)
    wanted = np.log(ndtr(at[:, 0] / sd) * ndtr(second).mean(axis=1))
    orthant = log_orthant(Differences(at, np.stack([cov] * 3)))
    yield Compared(_gap(orthant, wanted), 1e-11, "both positive, by the midpoint rule in the first", "fast",
                   "definition")  # fmt: skip

    refused = []
    with mock.patch("fast.likelihood.product_rule.hermite_rule", side_effect=lambda k: (np.zeros(k), np.zeros(k))):
        for nodes in (10**6, 10**6 + 1):
            try:
                refused.append(len(product_rule(1, nodes)[1]) != nodes)
            except ValueError:
                refused.append(True)
    yield flaws(refused != [False, True], f"a million points and one more: refused {refused}", "fast", "refusals")


@check(
    "limit/laplace/nodes_allowed",
    paper="riihimaki2013",
    question="Are nodes of a rule for C classes counted in C - 1 dimensions, before any point is looked at?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import laplace, laplace_sparse, nested_ep

    asked = tiny("softmax")
    rows: list[tuple[str, object, object]] = []
    for C, nodes, taken in ((3, 101, True), (4, 100, True), (4, 101, False)):  # 100^3 points are a million
        names = ("variance", "lengthscales", "noise", "jitter", "Z")
        given = {name: np.concatenate([getattr(asked, name)] * 2)[:C] for name in names}
        full = {name: value for name, value in given.items() if name != "Z"}
        for name, module, prior, asking in (
            ("laplace", laplace, full, {}),
            ("laplace-sparse", laplace_sparse, given, {}),
            ("nested-ep", nested_ep, full, {"prediction": "quadrature"}),
        ):
            posterior = by_name(module.fit)(X=asked.X, y=asked.y, n_classes=C, max_iterations=2, **prior)
            try:
                came = module.predict(posterior, asked.X[:0], prediction_nodes=nodes, **asking).probabilities.shape
            except ValueError as error:
                came = str(error).partition(",")[0]
            wanted = (0, C) if taken else f"prediction_nodes: found {nodes} in {C - 1} dimensions"
            rows.append((f"{name}, {nodes} nodes", came, wanted))
    yield as_documented(rows, "fast", "rules")


@check(
    "limit/qep/sites_that_rounding_leaves",
    paper="riihimaki2013",
    question="Are sites kept that rounding made a little negative, and refused beyond 1e-9 or without a variance?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.results import Differences
    from fast.full_classes.quadrature_tilt import WhiteMoments, g_sites

    # in one dimension Lambda Sigma is 1/V - 1; a pivot is the root of V
    excess = np.array([0.9e-9, 1.1e-9, 0.0, -1e-3, 1e-290 - 1.0, 1e-302 - 1.0])
    wanted = [True, False, True, True, True, False]
    V = np.where(excess > -1.0, 1.0 + excess, 0.0)
    V[-2:] = 1e-290, 1e-302
    n = V.size
    cavity = Differences(np.full((n, 1), 0.3), np.full((n, 1, 1), 4.0))
    tilted = WhiteMoments(np.zeros(n), np.full((n, 1), 0.1), V[:, None, None], np.full((n, 1, 1), 2.0))
    for full in (False, True):
        good = [bool(each) for each in g_sites(cavity, tilted, full=full).good]
        why = f"tilted variances 1 + 9e-10, 1 + 1.1e-9, 1, .999, 1e-290, 1e-302 of the cavity's: kept {good}"
        yield flaws(good != wanted, why, "fast", "sites")
    # 1/V of 1e290 in units of a variance of 1e-20 is beyond float64
    narrow = Differences(np.zeros((2, 1)), np.array([[[1e-20]], [[1.0]]]))
    tilted = WhiteMoments(np.zeros(2), np.zeros((2, 1)), np.full((2, 1, 1), 1e-290), np.array([[[1e-10]], [[1.0]]]))
    for full in (False, True):
        with np.errstate(over="ignore", invalid="ignore"):
            good = [bool(each) for each in g_sites(narrow, tilted, full=full).good]
        yield flaws(good != [False, True], f"a precision that overflows, and one that does not: kept {good}", "fast",
                    "sites")  # fmt: skip


@check(
    "limit/label-regression/sure_answers",
    paper="villacampa2017",
    question="Is an answer in closed form called one where shifts in the last digits move it by 1e-8 at most?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import label_regression
    from validation.checks.learning import tiny

    asked = tiny("threshold")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    for doubt, wanted in ((0.9e-8, True), (1.1e-8, False)):
        with mock.patch.object(label_regression, "uncertainty", return_value=doubt):
            trained = label_regression.fit(Data(asked.X, asked.y, asked.n_classes), prior).trained
        wrong = trained.converged is not wanted or (not wanted and trained.residual != doubt)
        yield flaws(wrong, f"a doubt of {doubt:g}: converged {trained.converged}", "fast", "ends")


@check(
    "limit/rpapep/nearly_sure_labels",
    paper="villacampa2020",
    question="Is log P/alpha of a label that is nearly sure exact where a small alpha magnifies what is left of 1?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.results import ScalarMoments
    from fast.likelihood.power import powered_labels

    # two classes: P = Phi(z), and 1 - P has all digits as Phi(-z); 1 - P on both sides of 1e-2, and tiny
    z = np.array([0.3, 2.29, 2.36, 4.0, 6.0, 8.0, 12.0])
    mean = np.stack([z * np.sqrt(2.0), np.zeros(z.size)], axis=1)
    moments = ScalarMoments(mean, np.ones((z.size, 2)))
    for alpha in (9e-4, 1e-8):
        value = powered_labels(np.zeros(z.size, dtype=np.int64), moments, alpha, 0.0).value
        # where 1 - P is not summed, it is that of log P to 1e-14 of one, of 1e-2 at least
        gap = _gap(value, np.log1p(-ndtr(-z)) / alpha)
        yield Compared(gap, 3e-12, f"alpha = {alpha:g}, 1 - P from .4 to 1e-33", "fast", "definition")
    # 1.1e-3 is no longer magnified: log P has absolute digits only
    value = powered_labels(np.zeros(z.size, dtype=np.int64), moments, 1.1e-3, 0.0).value
    gap = float(np.abs(value - np.log1p(-ndtr(-z)) / 1.1e-3).max())
    yield Compared(gap, 1e-11, "alpha = 1.1e-3: 1e-14 over alpha", "fast", "definition", "difference")


@check(
    "exactness/ep/the_larger_of_two",
    paper="villacampa2017",
    question="Is the probability that one of two values is the larger Phi of their standardised difference?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood.largest import argmax_moments
    from reference.common._largest import log_largest

    rng, n = np.random.default_rng(5), 400
    mean, var = 3.0 * rng.standard_normal((n, 2)), 10.0 ** rng.uniform(-6.0, 4.0, (n, 2))
    y, rows = rng.integers(2, size=n), np.arange(n)
    wanted = log_ndtr((mean[rows, y] - mean[rows, 1 - y]) / np.sqrt(var.sum(axis=1)))
    for witness, asked in (
        ("reference", lambda mean, var: log_largest(mean, var, y)),
        ("fast", lambda mean, var: argmax_moments(mean, var, y).log_mass),
    ):
        # a third one far below has no part in it
        for far in (False, True):
            both = np.column_stack([mean, np.full(n, -1e4)]) if far else mean
            came = asked(both, np.column_stack([var, np.ones(n)]) if far else var)
            gap = float((np.abs(came - wanted) / np.maximum(1.0, np.abs(wanted))).max())
            why = f"deviations from 1e-3 to 1e2, {'a third value far below' if far else 'two values'}"
            yield Compared(gap, 1e-12, why, witness, "definition")


@check(
    "identity/svi/rows_at_a_time",
    paper="izmailov2016",
    question="Are expectations of many rows those of each alone, however many are made at a time?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood import largest, logit

    rng = np.random.default_rng(9)
    sign, mean, var = rng.choice([-1.0, 1.0], 11), rng.standard_normal(11), np.exp(rng.standard_normal(11))
    with mock.patch.object(logit, "_CHUNK", 4):
        came = logit.expected_log_logit(sign, mean, var)
    alone = [logit.expected_log_logit(sign[k : k + 1], mean[k : k + 1], var[k : k + 1]) for k in range(11)]
    wanted = np.array([[float(part[0]) for part in one] for one in alone]).T
    yield Compared(float(np.abs(np.array(came) - wanted).max()), 1e-13, "logit, four of eleven at a time", "fast",
                   "fast, one by one", "difference")  # fmt: skip
    many, spread, y = rng.standard_normal((11, 3)), np.exp(rng.standard_normal((11, 3))), np.arange(11) % 3
    with mock.patch.object(largest, "_CELLS", 700):  # a row has hundreds
        came_ = largest.argmax_moments(many, spread, y)
    for name in ("log_mass", "derivative", "curvature"):
        one_by_one = [getattr(largest.argmax_moments(many[[k]], spread[[k]], y[[k]]), name)[0] for k in range(11)]
        gap = float(np.abs(getattr(came_, name) - np.array(one_by_one)).max())
        yield Compared(gap, 1e-12, f"the largest of three, few at a time: {name}", "fast", "fast, one by one",
                       "difference")  # fmt: skip
