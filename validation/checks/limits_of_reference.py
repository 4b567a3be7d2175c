"""Numbers of `reference` at which a rule changes over: what lies just inside and just outside of each.

Runs stay far from most of them. So states on either side are made up and handed to the function that decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import erfcx, gamma, kv, log_ndtr, ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.problem import Problem

Array = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
# a tenth below a limit and a half above it: far from rounding, and half of the limit or twice it is told apart
_SIDES = ((0.9, True), (1.5, False))


def _covariances() -> Array:
    """Prior covariances of two classes, three points each."""
    rng = np.random.default_rng(11)
    roots = rng.standard_normal((2, 3, 5))
    return np.asarray(roots @ np.swapaxes(roots, 1, 2) / 5.0 + 0.1 * np.eye(3), dtype=np.float64)


def _taken(function: Callable[..., Any], *given: Any) -> bool:
    """Whether a call is answered, by no ValueError."""
    try:
        function(*given)
    except ValueError:
        return False
    return True


# -- what has grown too far ------------------------------------------------------------------------------------------


@check(
    "identity/svi/scale_limits",
    paper="izmailov2016",
    question="Are scales within [1e-50, 1e50] taken by a search for hyper-parameters, and those beyond refused?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._learning import Hyper, moved

    start = Hyper(1.3, np.array([0.7, 2.0]), 0.2, 1e-6, np.zeros((2, 2)))
    wrong = []
    for field, size in (("variance", 1), ("lengthscales", 2), ("noise", 1), ("Z", 4)):
        for share, within in _SIDES:
            for sign in (1.0, -1.0):
                where = np.zeros(size)
                where[-1] = sign * (share * 1e50 if field == "Z" else np.log(share * 1e50))
                wrong += [f"{field} at {where[-1]:.6g}"] * (_taken(moved, start, (field,), where) is not within)
    yield flaws(len(wrong), f"0.9e50 and its inverse are scales, 1.5e50 is none {wrong}", "reference", "scales")


@check(
    "identity/apep/growth_limits",
    paper="villacampa2020",
    question="Does q grow without bound where a variance or a mean is a million times the prior's, and not before?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._ascent import unbounded
    from reference.common._gaussians import Gaussians

    K = _covariances()
    wrong = []
    for share, within in _SIDES:
        cov, mean = K.copy(), np.zeros((2, 3))
        cov[1] *= share * 1e6
        # of length share times a million after whitening, no entry of which is
        mean[1] = np.linalg.cholesky(K[1]) @ (share * 1e6 * np.array([0.6, -0.48, 0.64]))
        for name, q in (("variance", Gaussians(np.zeros((2, 3)), cov)), ("mean", Gaussians(mean, K))):
            told = unbounded(q, K)
            right = told is None if within else told is not None and f"the {name} of class 1" in told
            wrong += [f"{name} {share:g}: {told}"] * (not right)
    yield flaws(len(wrong), f"0.9 and 1.5 million of the prior's {wrong}", "reference", "distributions")


# -- steps of an ascent ----------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """An objective at q whose natural gradient has a given length."""

    value: float
    direction: Any
    by_mean: Any = None
    by_cov: Any = None


def _steps(
    residuals: Callable[[int], float], count: int, value: Callable[[float], float] = lambda mean: 0.0
) -> tuple[list[float], int]:
    """Rates of plain steps of one mean, and how many are made: the natural gradient at place k is residuals(k)."""
    from reference.common._ascent import Goal, mixed_steps
    from reference.common._gaussians import Gaussians, Natural

    means: list[float] = []
    taken: list[float] = []

    def objective(q: Any) -> _Place:
        at, k = float(q.mean[0, 0]), len(taken)
        means.append(at)
        return _Place(value(at), Natural(np.zeros((1, 1, 1)), np.full((1, 1), residuals(k + (len(means) > 1)))))

    start = Gaussians(np.zeros((1, 1)), np.ones((1, 1, 1)))
    goal = Goal(tolerance=0.0, iterations=count, mixed_below=0.0)
    mixed_steps(objective, start.cov, start, goal, lambda value, residual: taken.append(means[-1]))
    places = np.array([0.0, *taken])
    lengths = np.array([residuals(k) for k in range(len(taken))])
    return list(np.diff(places) / lengths), len(taken)


@check(
    "identity/apep/step_limits",
    paper="villacampa2020",
    question="Are steps of an ascent shortened, given up and ended where its rules have it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    # steps that grow lead away, which counts where residuals are below 1e-3: half as long each time, 1/128 at least
    near, _ = _steps(lambda k: 0.5e-3 * 1.05**k, 12)
    wanted = [max(0.5**k, 1.0 / 128.0) for k in range(12)]
    gap = max(abs(a / b - 1.0) for a, b in zip(near, wanted, strict=True))
    # means of 1e-3 and differences of 4e-6 in float64
    yield Compared(gap, 1e-9, "residuals that grow from 0.5e-3 to 0.9e-3: rates 1, 1/2 ... 1/128", "reference",
                   "definition")  # fmt: skip
    far, _ = _steps(lambda k: 1.1e-3 * 1.05**k, 12)
    gap = max(abs(a - 1.0) for a in far)
    yield Compared(gap, 1e-9, "residuals that grow from 1.1e-3 to 1.9e-3: whole steps", "reference", "definition")
    wrong = []
    for name, residuals, most, expected in (
        ("0.8e-3 for ever", lambda k: 0.8e-3, 450, 201),
        ("0.8e-3, half of it from the 151st", lambda k: 0.8e-3 if k <= 150 else 0.4e-3, 450, 351),
        ("0.8e-3, a little more than half of it from the 151st", lambda k: 0.8e-3 if k <= 150 else 0.41e-3, 450, 201),
        ("1.5e-3 for ever", lambda k: 1.5e-3, 250, 250),
    ):
        _, made = _steps(residuals, most)
        wrong += [f"{name}: {made}"] * (made != expected)
    why = f"given up after two hundred steps without half of the best before, below 1e-3 {wrong}"
    yield flaws(len(wrong), why, "reference", "runs")
    # the objective rises within a step of rate 2^-k alone
    rises = [_steps(lambda _: 1.0, 5, lambda mean, r=rate: float(abs(mean) <= r) - 1.0)[1] for rate in (2**-40, 2**-41)]  # type: ignore[misc]
    yield flaws(rises != [1, 0], f"rates down to 2^-40 are tried: {rises} steps", "reference", "runs")


# -- sweeps to a fixed point -----------------------------------------------------------------------------------------


@check(
    "identity/ep/sweep_limits",
    paper="villacampa2017",
    question="Does the stated distance know the last eight residuals, those above rounding, and six cycles before?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._sweeps import Sweeps

    def distance(residuals: Iterable[float]) -> float:
        sweeps = Sweeps(1.0, 0.0)
        for k, residual in enumerate(residuals):
            sweeps.see((np.array([float(k)]),), residual, 0)
        return float(sweeps.distance)

    rng = np.random.default_rng(5)
    residuals = np.cumprod(rng.uniform(0.7, 0.98, 11))
    rho = (residuals[-1] / residuals[-8]) ** (1.0 / 7.0)
    gap = abs(distance(residuals) / (residuals[-1] * rho / (1.0 - rho)) - 1.0)
    yield Compared(gap, 1e-9, "eleven residuals: the mean factor of the last eight", "reference", "definition")
    small = 1e-12 * np.array([1.9, 1.7, 1.5, 1.3, 1.1, 0.9, 0.95])
    rho = (1.1 / 1.9) ** 0.25
    gap = abs(distance(small) / (small[-1] * rho / (1.0 - rho)) - 1.0)
    yield Compared(gap, 1e-9, "residuals about 1e-12: those above tell the factor", "reference", "definition")

    # an extrapolation is kept where the next residual is smaller, with no more improper cavities than before
    for residual, improper, kept in ((0.5, 3, True), (0.5, 0, True), (0.5, 4, False), (2.0, 3, False), (2.0, 0, False)):
        sweeps = Sweeps(1.0, 0.0)
        for k in range(60):
            sites = (np.array([0.99**k]),)
            sweeps.see(sites, 0.01 * 0.99**k, 3)
            leap = sweeps.propose(sites)
            if leap is not None:
                break
        back = sweeps.see((np.array([0.0]),), 0.01 * residual * 0.99**k, improper)
        told = f"residuals times {residual:g}, {improper} improper cavities after three: kept {kept}"
        yield flaws(leap is None or (back is None) != kept, told, "reference", "extrapolations")

    def cycles(count: int) -> float:
        """Distance over residual after 50 sweeps that shrink by 0.97, and cycles of 13 that shrink by 0.9."""
        sweeps, at, made = Sweeps(1.0, 0.0), np.array([1.0]), 0
        factor = 0.97
        for _ in range(50 + 13 * count + 3):
            residual, at = (1.0 - factor) * float(at[0]), factor * at
            sweeps.see((at,), residual, 0)
            if sweeps.propose((at,)) is not None:
                made, factor = made + 1, 0.9
        assert made == count + 1
        return float(sweeps.distance / sweeps.change)

    observed = [cycles(5), cycles(6)]
    gap = max(abs(a / b - 1.0) for a, b in zip(observed, (0.97 / 0.03, 0.9 / 0.1), strict=True))
    yield Compared(gap, 1e-6, "a slow first cycle counts among five more, and not among six", "reference",
                   "definition")  # fmt: skip


# -- what rounding leaves open ---------------------------------------------------------------------------------------


class _Prior(NamedTuple):
    variance: Array
    lengthscales: Array


@check(
    "identity/ep/rounding_limits",
    paper="villacampa2017",
    question="Are errors claimed, and neighbours asked, by condition numbers and changes as the rules have it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._neighbours import Answer, claimed, pushed, rounding_doubt
    from reference.villacampa2020.sparse import conditional_variances

    def matrix(condition: float) -> list[Array]:
        return [np.eye(2), np.diag([1.0, 1.0 / condition])]

    gap = max(
        abs(claimed(matrix(condition)) / wanted - 1.0)
        for condition, wanted in ((1e5, 1e-8), (1e8, 100.0 * _EPS * 1e8), (1e12, 1e-3))
    )
    yield Compared(gap, 1e-9, "1e-8, or 100 eps cond, and 1e-3 at most", "reference", "definition")

    def asked(condition: float, change: float) -> list[_Prior]:
        """The priors that are asked, where a neighbour's answer differs by a share of half of what is claimed."""
        questions: list[_Prior] = []

        def answers(prior: Any) -> dict[str, Answer]:
            questions.append(prior)
            return {"value": Answer(1.0 + 0.5e-8 * change * (prior is not here))}

        here = _Prior(np.array([1.0, 2.0]), np.array([[0.5], [4.0]]))
        rounding_doubt(answers, here, matrix(condition), tolerance=1e-12)
        return questions

    counts = [len(asked(*given)) for given in ((0.9e3, 2.0), (1.5e3, 0.015), (1.5e3, 0.03), (1.5e3, 2.0))]
    why = f"nobody up to 1e3, one neighbour where that changes a fiftieth of what is allowed, else two: {counts}"
    yield flaws(counts != [0, 2, 3, 3], why, "reference", "questions")
    here, *others = asked(1.5e3, 2.0)
    units = np.array([
        [float(np.round(np.ravel(getattr(other, name) / getattr(here, name) - 1.0)[0] / _EPS)) for other in others]
        for name in _Prior._fields
    ])  # fmt: skip
    wrong = np.abs(units).max(axis=1).tolist() != [16.0, 16.0] or np.any(units.min(axis=1) * units.max(axis=1) >= 0.0)
    yield flaws(bool(wrong), f"up to 16 units in the last place, to either side: {units.tolist()}", "reference",
                 "neighbours")  # fmt: skip
    mean, K = np.random.default_rng(2).standard_normal((2, 3)), _covariances()
    # variances given inducing values: below zero by less than a millionth of the prior's they are zero
    for prior_var in (1e-3, 1.0, 1e4):
        below = [
            _taken(conditional_variances, np.full((1, 2), prior_var), np.ones((1, 2, 1)), prior_var * explained)
            for explained in (np.array([[[0.5], [1.0 + share]]]) for share in (0.5e-6, 2e-6))
        ]
        yield flaws(below != [True, False], f"a prior variance of {prior_var:g}, less by 0.5e-6 and 2e-6: {below}",
                    "reference", "refusals")  # fmt: skip
    means, covs = pushed(mean, K)
    white = np.array([np.linalg.solve(np.linalg.cholesky(K[k]), means[k] - mean[k]) for k in range(2)])
    gap = float(np.abs(np.abs(white) / 1e-5 - 1.0).max())
    # differences of 1e-5 of numbers of order one in float64
    yield Compared(gap, 1e-9, "a start beside the optimum: 1e-5 of a deviation in every direction", "reference",
                   "definition")  # fmt: skip
    roots = [np.linalg.inv(np.linalg.cholesky(each)) for each in K]
    turned = np.array([root @ (new - old) @ root.T / 1e-5 for root, new, old in zip(roots, covs, K, strict=True)])
    variances, sizes = np.abs(np.einsum("kii->ki", turned)), np.abs(np.linalg.eigvalsh(turned))
    # a symmetric matrix of random signs over the root of their number: sizes about one, in two directions at least
    wrong = np.abs(turned - turned.transpose(0, 2, 1)).max() > 1e-9 or variances.min() < 0.55 or sizes.max() > 2.0
    wrong |= bool(np.sort(sizes, axis=1)[:, 1].min() < 0.1)
    yield flaws(bool(wrong), f"and every variance by as much, over the root of three: {variances.round(3).tolist()}",
                "reference", "definition")  # fmt: skip


# -- what is refused, and when sweeps end ----------------------------------------------------------------------------


@check(
    "identity/qiep/size_limits",
    paper="riihimaki2013",
    question="Are rules with too many points refused, points as many as promised, and forms chosen by cost and digits?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _product
    from reference.common._forms import chosen_form
    from reference.izmailov2016 import model
    from reference.riihimaki2013 import _truncated
    from reference.villacampa2017.printed import ep_form, sep_form
    from reference.villacampa2020.forms import form_of

    taken = [_taken(_product.check_nodes, *given) for given in ((900, 2), (1200, 2), (95, 3), (110, 3))]
    yield flaws(taken != [True, False, True, False], f"at most 1e6 points: {taken}", "reference", "rules")

    made: list[int] = []

    def counted(function: Callable[..., Any], of: Callable[..., Array]) -> Callable[..., Any]:
        def watched(*given: Any) -> Any:
            result = function(*given)
            made.append(len(of(given, result)))
            return result

        return watched

    mean, cov = np.array([0.3, -0.1, 0.2]), np.eye(3) + 0.3
    with mock.patch.object(_product, "sobol_points", counted(_product.sobol_points, lambda given, result: result)):
        _product.softmax_probabilities(mean, cov)
        _product.log_orthant_probability(mean, cov)
    rule = counted(_truncated.orthant_rule, lambda given, result: given[2])
    with mock.patch.object(_truncated, "orthant_rule", rule):
        _truncated.truncated_gaussian(mean, cov)
    yield flaws(made != [4096, 1024, 65_536], f"points of Sobol: {made}", "reference", "counts")

    answers = []
    for apart in (0.009, 0.015):
        weights = np.repeat([0.0, -apart], 2**15)
        halves = _product.Orthant(weights, np.zeros((2**16, 2)), np.zeros(2**16), np.eye(3))
        with mock.patch.object(_truncated, "orthant_rule", return_value=halves):
            answers.append(_taken(_truncated.truncated_gaussian, mean, cov))
    yield flaws(answers != [True, False], f"halves of the points 0.009 and 0.015 apart in log P: {answers}",
                 "reference", "refusals")  # fmt: skip

    told = []
    for scale in (2.24, 2.65):  # steps of 2 pi/33 of pi over the largest row: 69^4 points are 23 million, 81^4 are 43
        with mock.patch.object(model.np, "linspace", side_effect=RuntimeError):
            try:
                model.log_evidence(np.ones(4), scale**2 * np.eye(4))
            except RuntimeError:
                told.append("taken")
            except ValueError as error:
                told.append(str(error)[:6])
    yield flaws(told != ["taken", "y_sign"], f"grids of 23 and 43 million points: {told}", "reference", "refusals")

    small, large = np.stack([np.eye(2)] * 2), np.stack([np.eye(40)] * 10)
    # "printed" for what takes a second at most and keeps twelve digits; thousands of data take it minutes
    forms = [
        *(chosen_form(None, seconds=seconds) for seconds in (0.5, 0.8)),
        *(chosen_form(None, lost=lost) for lost in (0.8e4, 1.5e4)),
        *(form_of(None, n, K, 1.0, False) for n, K in ((4, small), (5000, large))),
        *(sep_form(None, n, 3) for n in (3, 5000)),
        # 0.0036 seconds a datum, class and inducing point: 0.43, and twice that
        *(form_of(None, 30, np.stack([np.eye(m)] * C), 1.0, False) for C, m in ((2, 2), (4, 2), (2, 2), (2, 4))),
        # conditions of 1e3 and 1e4, times data over α, against 1e4
        *(form_of(None, n, np.stack([np.eye(2), np.diag([1.0, least])]), alpha, False)
          for n, least, alpha in ((5, 1e-3, 1.0), (5, 1e-4, 1.0), (5, 1e-3, 0.8), (5, 1e-3, 0.3), (5, 1e-3, 0.0),
                                  (15, 1e-3, 0.0))),
        # 0.019 seconds a factor: 12 data of 3 classes are 24 factors, 3 data of 12 are 33
        *(sep_form(None, *size) for size in ((12, 3), (3, 12))),
        *(ep_form(None, "pairwise", *size) for size in ((12, 3), (3, 12))),
    ]  # fmt: skip
    yield flaws(forms != ["printed", "projected"] * 11, f"by seconds, digits and size: {forms}", "reference", "forms")


@check(
    "identity/nested-ep/end_limits",
    paper="riihimaki2013",
    question="Do sweeps and visits end, and are precisions below zero dropped, where their rules have it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import quadrature
    from reference.common.options import options_of
    from reference.riihimaki2013 import inner_ep, qep, variational

    rng = np.random.default_rng(12)
    root = rng.standard_normal((3, 3))
    mean, cov = rng.standard_normal(3), root @ root.T + np.eye(3)
    # a step of 2 damping; a thousand of them leave 0.55 of the way, or 0.45: half or more is not worth a second sweep
    moments, counts, none = inner_ep.inner_tilted_moments, [], np.zeros(2)
    for damping in (3e-4, 4e-4):
        visits: list[int] = []

        def watched(*given: Any, visits: list[int] = visits) -> Any:
            visits.append(1)
            return moments(*given)

        with mock.patch.object(inner_ep, "inner_tilted_moments", watched):
            inner_ep.inner_ep(mean, cov, 1, none, none, inner_damping=damping)
        counts.append(len(visits) // 2)
    yield flaws(counts != [1, 1000], f"sweeps that leave more, and less, than half of the way: {counts}", "reference",
                 "runs")  # fmt: skip
    ends = [inner_ep.inner_ep(mean, cov, 1, none, none, inner_damping=damping) for damping in (0.1, 0.2, 0.35)]
    # a sweep leaves more than half of the change: the one before the end is below twice the limit
    gap = max(float(end.change) if end.converged else np.inf for end in ends)
    yield Compared(gap, 1e-12, "the last damped sweep changes less than 1e-12", "reference", "definition", "change")

    sites = qep.QuadratureIEP(np.array([1]), 3, options_of("qiep")(nodes=12))
    left = sites.cavity(0, mean, cov)
    assert left is not None
    var = np.diag(left.cov)
    hat = qep.qiep_tilted_moments(left.mean, var, 1, 12)
    kept = []
    for share in (0.8e-9, 1.5e-9):
        wider = hat._replace(cov=np.where(np.arange(3) == 1, hat.cov, var * (1.0 + share)))
        with mock.patch.object(qep, "qiep_tilted_moments", return_value=wider):
            kept.append(sites.visit(0, mean, cov) is not None)
    yield flaws(kept != [True, False], f"tilted variances 0.8e-9 and 1.5e-9 above the cavity's: {kept}", "reference",
                 "visits")  # fmt: skip

    made = []
    for move in (0.8e-13, 1.5e-13):
        swept = lambda m, y, K, move=move: (m + move, np.zeros(m.size))  # noqa: E731
        with mock.patch.object(variational, "vb_sweep", swept):
            made.append(variational.vb_posterior(np.eye(4), np.array([0, 1]), 1e-300, 40, False).iterations)
    yield flaws(made != [11, 40], f"ten sweeps more where rounding is all that moves: {made}", "reference", "runs")

    taken = []
    for error in (0.8e-11, 1.5e-11):
        with mock.patch.object(quadrature, "_sum_of_panels", return_value=quadrature.Integral(0.5, 0.5 * error)):
            taken.append(_taken(quadrature.gaussian_integral, quadrature.log_sigmoid_scalar, quadrature.sigmoid_minus,
                                0.3, 1.0))  # fmt: skip
    yield flaws(taken != [True, False], f"errors of 0.8e-11 and 1.5e-11 of an integral: {taken}", "reference",
                 "refusals")  # fmt: skip


@check(
    "identity/pep/answer_limits",
    paper="villacampa2020",
    question="Are divergences, variances, ends and wide posteriors taken or refused where their rules have it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._gaussians import Gaussians
    from reference.common._search import Top
    from reference.common.errors import NotPositiveDefiniteError
    from reference.villacampa2020 import divergence, fit_energies, fit_gaussian_factor
    from reference.villacampa2020.power_likelihood import log_largest_probability
    from reference.villacampa2020.sparse import conditional_variances

    first, second = divergence.gaussian_log_density(0.0, 1.0), divergence.gaussian_log_density(0.0, 0.6)
    taken = []
    for left in (0.8e-6, 1.5e-6):  # of p²/q at an end times the range
        near, end = 6.0, 20.0
        for _ in range(50):  # by bisection
            middle = 0.5 * (near + end)
            more = 2.0 * first(middle) - second(middle) + np.log(2.0 * middle / left) > 0.0
            near, end = (middle, end) if more else (near, middle)
        taken.append(_taken(divergence.alpha_divergence, first, second, 2.0, -end, end))
    yield flaws(taken != [True, False], f"0.8e-6 and 1.5e-6 left at the ends: {taken}", "reference", "refusals")
    nearly = divergence.alpha_divergence(first, second, 1e-12, -20.0, 20.0)
    gap = abs(nearly / (0.5 * (0.6 - 1.0 - np.log(0.6))) - 1.0)
    yield Compared(gap, 1e-8, "alpha of 1e-12: KL[q||p], of which differences over alpha would leave nothing",
                   "reference", "definition")  # fmt: skip

    taken = []
    for share in (0.8e-6, 1.5e-6):
        try:
            rest = conditional_variances(np.ones((1, 1)), np.ones((1, 1, 1)), np.full((1, 1, 1), 1.0 + share))
            taken.append(bool(rest[0, 0] == 0.0))
        except NotPositiveDefiniteError:
            taken.append(False)
    yield flaws(taken != [True, False], f"variances of -0.8e-6 and -1.5e-6 of the prior's: {taken}", "reference",
                 "refusals")  # fmt: skip

    # P of 1 - 1e-12: the complement is known by itself, not by a difference
    z = np.array([0.0, 1.0, 3.0, 7.0])
    _, log_q = log_largest_probability(np.stack([z, np.zeros(4)], axis=1), np.full((4, 2), 0.5), np.zeros(4, dtype=int))
    gap = float(np.abs(np.exp(log_q - log_ndtr(-z)) - 1.0).max())
    yield Compared(gap, 1e-11, "1 - P of two classes, down to 1e-12", "reference", "definition")

    K = _covariances()
    data: Any = SimpleNamespace(X=None, form="projected", _replace=lambda **_: data)
    wide = []
    for share in (0.7e-6, 1.5e-6):
        fit: Any = SimpleNamespace(prior=None, posterior=Gaussians(np.zeros((2, 3)), (1.0 + share) * K))
        with (
            mock.patch.object(fit_energies, "prior_matrices", return_value=SimpleNamespace(K_ZZ=K)),
            mock.patch.object(fit_energies, "quasi_newton", side_effect=ValueError),
        ):
            wide.append(not _taken(fit_energies._another_optimum, data, fit, None))
    yield flaws(wide != [False, True], f"q wider than the prior by 0.7e-6, and by 1.5e-6: {wide}", "reference",
                 "searches")  # fmt: skip

    ends = []
    energy = SimpleNamespace(value=0.0, data=SimpleNamespace(log_norm=None))
    asked: Any = SimpleNamespace(X=None, form="projected", at=lambda q, matrices: energy)
    for residual in (0.8e-6, 1.5e-6):
        top = Top(np.zeros(2 * (3 + 6)), 0.0, residual, np.zeros(0), 1, 1)
        with (
            mock.patch.object(fit_gaussian_factor, "prior_matrices", return_value=SimpleNamespace(K_ZZ=K)),
            mock.patch.object(fit_gaussian_factor, "maximise", return_value=top),
        ):
            ends.append(fit_gaussian_factor.fit_gaussian_factor(asked, cast("Any", None)).converged)
    yield flaws(ends != [True, False], f"gradients of 0.8e-6 and 1.5e-6: {ends}", "reference", "ends")


@check(
    "identity/x-gpc-svi/divergence_limits",
    paper="wenzel2019",
    question="Is an ascent called diverged where a mean is a million prior deviations out, and not before?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.wenzel2019._stochastic import _refuse_divergence

    taken = []
    for share, _ in _SIDES:
        q: Any = SimpleNamespace(inducing_mean=np.array([0.1, -share * 1e6 * 3.0]), inducing_cov=np.eye(2))
        hyper: Any = SimpleNamespace(variance=8.0, noise=0.9, jitter=0.1)
        taken.append(_taken(_refuse_divergence, q, None, hyper, 0.1, 7))
    yield flaws(taken != [within for _, within in _SIDES], f"0.9 and 1.5 million deviations: {taken}", "reference",
                 "refusals")  # fmt: skip


# -- integrals on a line ---------------------------------------------------------------------------------------------


def _gaussian_mean(function: Callable[[float], float], mean: float, sd: float, bends: Iterable[float]) -> float:
    """E[function(t)] for t ~ N(mean, sd²), by adaptive quadrature with panels around the mean and at each bend."""
    low, high = mean - 14.0 * sd, mean + 14.0 * sd
    inside = {mean + sd * step for step in (-8.0, -4.0, -1.0, 1.0, 4.0, 8.0)} | set(bends)
    edges = sorted({low, high} | {point for point in inside if low < point < high})
    parts = [
        quad(lambda t: function(t) * np.exp(-0.5 * ((t - mean) / sd) ** 2), a, b, epsabs=0.0, epsrel=1e-13, limit=200)[
            0
        ]
        for a, b in pairwise(edges)
    ]
    return float(sum(parts) / (sd * np.sqrt(2.0 * np.pi)))


@check(
    "identity/ep/line_limits",
    paper="villacampa2017",
    question="Are integrals on a line right far from the mean, in the tails of ties, beside point masses?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _largest
    from reference.common.logistic_expectation import expect_log_sigmoid
    from reference.common.probit import expect_log_phi
    from reference.villacampa2017.datum import datum_tilted

    # log Φ(f) = -Φ(-f) to rounding where f > 9: nearly all of the mean is 13 deviations below that of f
    observed = expect_log_phi(np.array([26.0]), np.ones(1)).value[0]
    gap = abs(float(observed / -ndtr(-26.0 / np.sqrt(2.0))) - 1.0)
    yield Compared(gap, 1e-11, "E[log Φ(f)] of N(26, 1), whose peak is at -13 deviations", "reference", "definition")
    # log σ(f) = -exp(-f) to rounding where f > 40
    observed = expect_log_sigmoid(np.array([400.0]), np.array([169.0])).value[0]
    gap = abs(float(observed / -np.exp(0.5 * 169.0 - 400.0)) - 1.0)
    yield Compared(gap, 1e-11, "E[log σ(f)] of N(400, 13²), whose peak is at -13 deviations", "reference", "definition")
    gap = 0.0
    for mean, sd in ((-20.0, 60.0), (10.0, 130.0), (40.0, 300.0)):
        ramp = mean * ndtr(-mean / sd) - sd * np.exp(-0.5 * (mean / sd) ** 2) / np.sqrt(2.0 * np.pi)  # E[min(f, 0)]
        bend = _gaussian_mean(lambda f: float(np.log1p(np.exp(-abs(f)))), mean, sd, (-30.0, -5.0, 0.0, 5.0, 30.0))
        observed = expect_log_sigmoid(np.array([mean]), np.array([sd**2])).value[0]
        gap = max(gap, abs(float(observed / (ramp - bend)) - 1.0))
    yield Compared(gap, 1e-12, "E[log σ(f)] of deviations of 60 to 300, a ramp with a bend", "reference", "quadrature")

    # the tie with the second class is far in the tail of f_0 being the largest: its integrand is elsewhere
    m, v = np.array([0.0, -12.5, -1.0, 0.5]), np.array([1.0, 0.04, 0.5, 0.8])
    sd = np.sqrt(v)

    def below(classes: Sequence[int]) -> Callable[[float], float]:
        return lambda t: float(np.prod(ndtr([(t - m[j]) / sd[j] for j in classes])))

    probability = _gaussian_mean(below((1, 2, 3)), 0.0, 1.0, m[1:])
    first = _largest.largest(m[None], v[None], np.zeros(1, dtype=int)).first[0]
    gap = 0.0
    for k in (1, 2, 3):
        both = v[0] + v[k]
        centre, width = (m[0] * v[k] + m[k] * v[0]) / both, np.sqrt(v[0] * v[k] / both)
        rest = _gaussian_mean(below([j for j in (1, 2, 3) if j != k]), float(centre), float(width), m[1:])
        density = np.exp(-0.5 * (m[0] - m[k]) ** 2 / both) / np.sqrt(2.0 * np.pi * both)
        gap = max(gap, abs(float(-first[k] / (density * rest / probability)) - 1.0))
    yield Compared(gap, 1e-10, "densities of ties, down to 1e-33 of P", "reference", "quadrature")

    # a class without variance bounds the label's value
    alone = datum_tilted(np.array([0.3, 0.1, -0.2]), np.array([1.0, 0.0, 0.5]), 0)
    wanted = _gaussian_mean(lambda t: float(t > 0.1) * float(ndtr((t + 0.2) / np.sqrt(0.5))), 0.3, 1.0, (0.1,))
    step = _largest.log_largest(np.array([[0.3, 0.1, -0.2]]), np.array([[1.0, 0.0, 0.5]]), np.zeros(1, dtype=int))
    gap = max(abs(float(log_p) - float(np.log(wanted))) for log_p in (alone.log_norm, step[0]))
    equal = datum_tilted(np.array([0.3, 0.1, 0.1]), np.array([1.0, 0.0, 0.0]), 0)
    hazard = float(np.exp(-0.02) / np.sqrt(2.0 * np.pi) / ndtr(0.2))
    halves = np.abs(np.array(equal.derivative) - hazard * np.array([1.0, -0.5, -0.5])).max()
    # two are Gaussians of 1e-10 of the widest, at whose place the derivative is known to some 1e-9
    yield Compared(max(gap, float(halves)), 1e-7, "one point mass, and two at one place that share their part",
                   "reference", "definition")  # fmt: skip


def _third_derivative(x: Array) -> Array:
    """(log Φ)''' at -x by the series log Φ(-x) = -x²/2 - log x + log(1 - u + 3u² - 15u³ + ...) + const., u = x⁻²."""
    size = 12
    mills = [Fraction(1)]
    for k in range(1, size):
        mills.append(-(2 * k - 1) * mills[-1])
    logs = [Fraction(0)]  # of the series: k l_k = k a_k - Σ j l_j a_{k-j}
    for k in range(1, size):
        logs.append(mills[k] - sum((j * logs[j] * mills[k - j] for j in range(1, k)), Fraction(0)) / k)
    # minus the third derivative in x of -log x, and of l_k x^(-2k)
    total = 2.0 / x**3
    for k in range(1, size):
        total = total + float(2 * k * (2 * k + 1) * (2 * k + 2) * logs[k]) * x ** (-2.0 * k - 3.0)
    return np.asarray(total)


@check(
    "identity/laplace-binary/far_thirds",
    paper="wenzel2019",
    question="Is the third derivative of log Φ right to its last digits where its two terms agree to ten and more?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common.laplace_binary import probit_derivatives

    x = np.concatenate([np.linspace(30.05, 33.0, 20), np.linspace(34.0, 58.0, 10)])
    gap = 0.0
    for sign in (1.0, -1.0):
        third = probit_derivatives(-sign * x, np.full(x.size, sign)).third
        gap = max(gap, float(np.abs(sign * third / _third_derivative(x) - 1.0).max()))
    # eight terms of the series leave 1e-14 at 30, the eighth is 4e-13
    yield Compared(gap, 1e-13, "left of -30, by as many terms as that takes", "reference", "definition")


@check(
    "limit/svi/panels_and_point_masses",
    paper="izmailov2016",
    question="Do panels reach as far as documented from any centre, and are latent values without variance points?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import probit, quadrature

    wrong = []
    for centre in (-25.0, -8.0, 0.0, 3.0, 40.0):
        for kink, scale in ((0.0, 1.0), (centre + 2.0, 50.0), (-7.0, 1e-3)):
            points = quadrature._panels(centre, kink, scale)
            ends = points[0] == centre - 10.0 and points[-1] == centre + 10.0
            inside = [centre + step for step in (-6.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0)]
            if not (ends and all(np.diff(points) > 0.0) and set(inside) <= set(points)):
                wrong.append(f"centre {centre:g}, kink {kink:g}")
    yield flaws(len(wrong), "; ".join(wrong) or "15 rows of break points", "reference", "rows")
    # the places of the bends among them, at which a distance over no deviation is no number
    mean = np.array([*probit._BEND, -3.3, 0.4, 7.0])
    came = probit.expect_log_phi(mean, np.zeros(mean.size))
    hazard = np.sqrt(2.0 / np.pi) / erfcx(-mean / np.sqrt(2.0))
    gap = np.abs(came[0] - log_ndtr(mean)) / np.maximum(np.abs(log_ndtr(mean)), 1e-3)
    slope = np.abs(came[1] - hazard) / np.maximum(hazard, 1e-3)
    yield Compared(float(np.max([gap, slope])), 1e-9, "log Phi and its slope at points", "reference", "definition")


@check(
    "identity/svi/matern_orders",
    paper="izmailov2016",
    question="Is the Matern function that of its order, by a polynomial or a Bessel function?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016.kernels import matern_profile

    z = np.array([1e-3, 0.2, 1.0, 4.0, 30.0])
    for nu in (0.3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 5.0):
        constant = 2.0 ** (1.0 - nu) / gamma(nu)
        value, decline = constant * z**nu * kv(nu, z), constant * 2.0 * nu * z ** (nu - 1.0) * kv(nu - 1.0, z)
        came = matern_profile(z, nu)
        gap = max(np.abs(came.value / value - 1.0).max(), np.abs(came.decline / decline - 1.0).max())
        yield Compared(float(gap), 1e-10, f"order {nu:g}", "reference", "definition", "relative")


@check(
    "invariance/ep/unit_of_latent_values",
    paper="villacampa2017",
    question="Does the probability of a label stay where latent values are measured in another unit?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.villacampa2017.datum import datum_tilted

    mean = np.array([0.3, -0.2, 0.1])
    for var in (np.array([1.0, 0.0, 0.5]), np.array([0.0, 2.0, 0.5]), np.array([0.0, 0.0, 1.5])):
        for label in range(3):
            if var[0] == var[label] == 0.0 and label:
                continue  # a known value below another known one never wins
            one = datum_tilted(mean, var, label)
            for unit in (1e-6, 1e3):
                other = datum_tilted(unit * mean, unit**2 * var, label)
                gap = abs(float(other.log_norm) - float(one.log_norm))
                yield Compared(gap, 1e-8, f"variances {var}, label {label}, unit {unit:g}", "reference", "reference",
                               "nat")  # fmt: skip
