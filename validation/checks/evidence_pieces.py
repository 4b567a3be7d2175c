"""Pieces of the routes to log Z against their definitions: weights, tails, bridges, boxes, errors and what is trusted.

`standard_errors` judges each route as a whole. Here its parts stand alone, where a mistake that the whole forgives (a
proposal that is worse, a tail index of another sample, a threshold on what is trusted) has nothing to hide behind.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp
from scipy.stats import multivariate_normal, norm, truncnorm

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Tested, check
from validation.checks.few_data import Few
from validation.checks.standard_errors import PAPER, ROUTES
from validation.problem import Problem

Array = NDArray[np.float64]


# -- tails -----------------------------------------------------------------------------------------


def tail_index(weights: Array) -> float:
    """Shape of a generalised Pareto distribution of the largest weights' excesses: Zhang & Stephens (2009, 3 and 4).

    The posterior mean of θ = -k/σ over their grid, with their prior; then k is the mean of log(1 - θ x).
    """
    size = len(weights)
    count = int(min(0.2 * size, 3.0 * np.sqrt(size)))
    order = np.sort(weights)[::-1]
    x = np.sort(order[:count] - order[count])
    m = 30 + int(np.sqrt(count))
    quartile = x[int(count / 4.0 + 0.5) - 1]
    theta = [1.0 / x[-1] + (1.0 - np.sqrt(m / (j - 0.5))) / (3.0 * quartile) for j in range(1, m + 1)]
    profile = []
    for t in theta:
        k = float(np.mean(np.log1p(-t * x)))
        profile.append(count * (np.log(-t / k) - k - 1.0))
    share = [1.0 / sum(np.exp(other - own) for other in profile) for own in profile]
    best = float(np.dot(share, theta))
    return float(np.mean(np.log1p(-best * x)))


@check(
    "identity/gibbs-logit/tail_index",
    paper="wenzel2019",
    question="Is the tail index of weights that of their distribution, and its estimator the one of the paper?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.evidence.chib import _pareto_k

    rng = np.random.default_rng(41)
    for k in (0.1, 0.5, 0.7, 1.2):
        z = []
        worst = 0.0
        for size in (400, 900, 4000):
            for _ in range(8):
                log_w = -k * np.log(rng.random(size)) + 3.0
                result = _pareto_k(log_w)
                worst = max(worst, abs(result - tail_index(np.exp(log_w - log_w.max()))))
                tail = min(0.2 * size, 3.0 * np.sqrt(size))
                # the smallest of the tail ties with the largest below it: its excess is zero, that of others is not
                tied = np.sort(log_w)
                tied[-int(tail) - 1] = tied[-int(tail)]
                worst = max(worst, abs(_pareto_k(tied) - tail_index(np.exp(tied - tied[-1]))))
                # asymptotic error of the estimate, (1 + k)/√tail; the prior of the grid costs or gives a third of it
                z.append((result - k) * np.sqrt(tail) / (1.0 + k))
        yield Compared(worst, 1e-9, f"index {k}: the same formula, without logarithms of sums", "gibbs", "definition")
        yield Compared(
            abs(float(np.mean(z))), 1.3, f"index {k}: mean of 24 standardised errors, known to 0.2, its bias below one",
            "gibbs", "the distribution of the weights", "standard errors",
        )  # fmt: skip
    ends = float(_pareto_k(np.zeros(100)) != 0.0) + float(_pareto_k(np.arange(24.0)) != np.inf)
    ends += float(not np.isfinite(_pareto_k(np.arange(25.0) / 7.0)))
    yield Compared(ends, 0.0, "equal weights: 0; a tail of less than five of 24: unknown; of five: known", "gibbs",
                   "its documentation", "statements that are wrong")  # fmt: skip


# -- what an answer says ---------------------------------------------------------------------------


@check(
    "identity/gibbs-logit/chib_summary",
    paper="wenzel2019",
    question="Are value, error, effective size and trust of Chib's route what its densities say?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.evidence.chib import _finish

    rng = np.random.default_rng(42)
    for r, s, spread in ((4, 160, 0.7), (3, 101, 0.2), (40, 70, 0.4), (1, 640, 1.5)):
        log_p = spread * rng.standard_normal((r, s)) - 700.0
        result = _finish(2.5, log_p, 0.05)
        p = np.exp(log_p + 700.0)
        count = max(32 // r, 2)
        width = s // count
        batches = np.array([p[k, s - (j + 1) * width : s - j * width].mean() for k in range(r) for j in range(count)])
        error = batches.std(ddof=1) / p.mean() / np.sqrt(len(batches))
        size, index = p.sum() ** 2 / np.square(p).sum(), tail_index(p.ravel() / p.max())
        wanted = {
            "value": (result.value, 2.5 - np.log(p.mean()) + 700.0),
            "standard error": (result.standard_error, error),
            "mean of logarithms": (result.mean_log, 2.5 - np.log(batches).mean() + 700.0),
            "bias": (result.bias, 0.5 * error**2),
            "effective size": (result.detail["weight_ess"], size),
            "tail index": (result.detail["pareto_k"], index),
            "spread": (result.detail["log_density_spread"], log_p.std()),
        }
        worst = max(wanted, key=lambda name: abs(wanted[name][0] - wanted[name][1]))
        # logarithms near 700 leave 1e-13 of a density
        yield Compared(
            abs(wanted[worst][0] - wanted[worst][1]) / max(1.0, abs(wanted[worst][1])), 1e-9,
            f"{r} chains of {s}: {worst} is worst of {len(wanted)}", "gibbs", "definition",
        )  # fmt: skip
        trusts = [
            (_finish(2.5, log_p, target).trusted, bool(error <= target and index < 0.7 and size >= 200.0))
            for target in (0.99 * error, 1.01 * error)
        ]
        yield Compared(
            float(sum(a != b for a, b in trusts)), 0.0,
            f"{r} chains of {s}: trusted within the target, with an index below 0.7 and a size of 200", "gibbs",
            "its documentation", "answers that differ",
        )  # fmt: skip


def _trust(method: str) -> Iterable[Outcome]:
    """Every route with a target just above and just below the error that it states."""
    for entry in ROUTES:
        if entry.method != method or method == "exact-probit":
            continue
        answers = {}
        plain = entry.answer(np.random.default_rng(43), entry.few)
        for name, factor in (("above", 1.0 + 1e-9), ("below", 1.0 - 1e-9)):
            target = {"target_error": factor * plain.standard_error}
            answers[name] = entry.answer(np.random.default_rng(43), entry.few, **target)
        wrong = float(answers["above"].trusted != _others(answers["above"]))
        wrong += float(answers["below"].trusted) + float(answers["above"].standard_error != plain.standard_error)
        yield Compared(
            wrong, 0.0, f"{entry.name}: trusted where its error is within the target, not where it is beyond by 1e-9",
            "gibbs", "its documentation", "answers that differ",
        )  # fmt: skip


def _others(value: Any) -> bool:
    """What else a route trusts by."""
    detail = value.detail
    if "island_spread" in detail:
        return bool(detail["island_spread"] <= 0.5 and detail.get("acceptance", 1.0) >= 0.3)
    if "overlap" in detail:
        # the errors of both halves are not told; a gap of two of their mean is within four of their root
        return bool(detail["overlap"] >= 0.02)
    return bool(detail["pareto_k"] < 0.7 and detail["weight_ess"] >= 200.0)


def _register_trust(method: str) -> None:
    @check(
        f"identity/{method}/evidence_trusted",
        paper=PAPER.get(method, "riihimaki2013"),
        question="Does every route to log Z trust itself exactly where its stated error is within what was asked?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> list[Outcome]:
        return list(_trust(method))


for _method in dict.fromkeys(entry.method for entry in ROUTES if entry.method != "exact-probit"):
    _register_trust(_method)


# -- bridges, powers, particles --------------------------------------------------------------------


@check(
    "identity/gibbs-logit/evidence_parts",
    paper="wenzel2019",
    question="Do bridges, powers, tilted moments and resampling hold what defines them?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.evidence import annealed, bridge, sequential

    rng = np.random.default_rng(44)
    worst = 0.0
    for share in (0.5, 0.3):
        post, fit = 2.0 + 0.6 * rng.standard_normal(300), 1.6 + 0.6 * rng.standard_normal(500)

        def gap(log_z: float, post: Array = post, fit: Array = fit, share: float = share) -> float:
            # Meng & Wong (1996): both sides of Z = E_q[p h]/E_p[q h] at the optimal h = 1/(s p/Z + (1 - s) q)
            top = np.mean(np.exp(fit) / (share * np.exp(fit - log_z) + 1.0 - share))
            bottom = np.mean(1.0 / (share * np.exp(post - log_z) + 1.0 - share))
            return float(np.log(top / bottom) - log_z)

        low, high = -5.0, 9.0  # gap falls
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if gap(middle) > 0.0 else (low, middle)
        worst = max(worst, abs(bridge._log_bridge(post, fit, share) - low))
    yield Compared(worst, 1e-9, "the fixed point of the optimal bridge, found as a root", "gibbs", "definition")

    values = rng.standard_normal((3, 107))
    count, width = 32 // 3, 107 // (32 // 3)
    means = np.array(
        [values[k, 107 - (j + 1) * width : 107 - j * width].mean() for k in range(3) for j in range(count)]
    )
    apart = abs(bridge._batch_error(values) - means.std(ddof=1) / np.sqrt(len(means)))
    yield Compared(apart, 1e-12, "error of a mean by 30 batches, the last draws", "gibbs", "definition")

    mean, var, sign = rng.standard_normal(6), rng.uniform(0.05, 9.0, 6), np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
    result = annealed._tilted(sign, 0.7, mean, var)
    x = np.linspace(-12.0, 12.0, 24_001)
    f = mean[:, None] + np.sqrt(var)[:, None] * x
    weight = np.exp(-0.5 * x**2) * (1.0 / (1.0 + np.exp(-sign[:, None] * f))) ** 0.7
    weight /= weight.sum(axis=1, keepdims=True)
    centre = (weight * f).sum(axis=1)
    spread = (weight * (f - centre[:, None]) ** 2).sum(axis=1)
    apart = max(float(np.abs(result[0] - centre).max()), float(np.abs(result[1] / spread - 1.0).max()))
    # a rule that only centres proposals: 57 nodes to seven deviations
    yield Compared(apart, 1e-6, "moments under a power of the likelihood, by 24 001 nodes", "gibbs", "definition")
    # on the wrong side of zero and far out σ(t) is e^t, which moves a normal by its variance
    far = annealed._tilted(np.array([1.0, -1.0]), 1.0, np.array([-900.0, 900.0]), np.array([1.0, 0.5]))
    apart = float(np.abs(np.array(far) - [[-899.0, 899.5], [1.0, 0.5]]).max())
    yield Compared(apart, 1e-6, "moments where the likelihood is below what float64 holds", "gibbs", "its limit")

    log_lik, log_weights = -4.0 * rng.random(200), rng.standard_normal(200)
    power = annealed._next_power(log_lik, log_weights, 0.1)
    w = np.exp(log_weights - logsumexp(log_weights))
    u = np.exp((power - 0.1) * log_lik)
    fraction = float((w @ u) ** 2 / (w @ u**2))
    yield Compared(abs(fraction - 0.9), 1e-9, "nine tenths of the particles' worth are kept", "gibbs", "definition")
    power = annealed._next_power(1e4 * log_lik, log_weights, 0.1)
    u = np.exp((power - 0.1) * 1e4 * (log_lik - log_lik.max()))
    fraction = float((w @ u) ** 2 / (w @ u**2))
    yield Compared(abs(fraction - 0.9), 1e-9, "so where likelihoods are far apart", "gibbs", "definition")
    risen = annealed._next_power(1e20 * log_lik, log_weights, 0.1)
    yield Compared(abs(risen - 0.1 - 1e-6), 1e-12, "a millionth is the least step", "gibbs", "definition", "absolute")
    last = annealed._next_power(1e-3 * log_lik, log_weights, 0.1)
    yield Compared(abs(last - 1.0), 0.0, "a likelihood that hardly differs takes one step", "gibbs", "definition")

    # expectation propagation's fixed point: tilted moments are those of the Gaussian
    few = Few("logit")
    A: Array = np.asarray(np.linalg.cholesky(few.cov[0]), dtype=np.float64)
    y_sign: Array = np.asarray(2.0 * few.y - 1.0, dtype=np.float64)
    sites = np.zeros((2, 2))
    for _ in range(30):
        around, sites = annealed._match(A, y_sign, 0.6, sites)
    cov = np.linalg.inv(np.linalg.inv(few.cov[0]) + np.diag(sites[0]))
    mean = cov @ sites[1]
    own = np.diagonal(cov)
    cavity: Array = np.asarray(1.0 / (1.0 / own - sites[0]), dtype=np.float64)
    cavity_mean: Array = np.asarray(cavity * (mean / own - sites[1]), dtype=np.float64)
    tilted = annealed._tilted(y_sign, 0.6, cavity_mean, cavity)
    root = np.linalg.inv(around.R).T
    apart = max(
        float(np.abs(tilted[0] - mean).max()), float(np.abs(tilted[1] - own).max()),
        float(np.abs(A @ around.centre - mean).max()), float(np.abs(A @ root @ root.T @ A.T - cov).max()),
    )  # fmt: skip
    yield Compared(apart, 1e-7, "after many sweeps sites match moments, and the Gaussian is the sites'", "gibbs",
                   "definition")  # fmt: skip

    wrong = 0
    for systematic in (annealed._systematic, sequential._systematic):
        weights = rng.dirichlet(np.full(40, 0.3))
        counts = np.array([np.bincount(systematic(rng, weights), minlength=40) for _ in range(400)])
        wrong += int(np.any(np.abs(counts - 40.0 * weights) >= 1.0))
        wrong += int(np.abs(counts.mean(axis=0) - 40.0 * weights).max() > 5.0 * 0.5 / np.sqrt(400))
        late: Any = SimpleNamespace(
            random=lambda: 1.0 - 2.0**-53
        )  # the last position, beyond what rounding left of one
        wrong += int(systematic(late, np.array([0.5, 0.5 - 1e-9])).max() > 1)
    yield Compared(float(wrong), 0.0, "every particle comes as often as its weight says, up to less than one", "gibbs",
                   "definition", "rules that differ")  # fmt: skip

    log_p = np.array([-1e-6, -0.1, -0.7, -5.0, -80.0, -599.0, -601.0, -3000.0])
    apart = float(np.abs(log_ndtr(-sequential._upper_quantile(log_p)) / log_p - 1.0).max())
    # at 1e-6 of certainty the probability itself has ten digits of its logarithm
    yield Compared(apart, 1e-9, "quantiles in the upper tail, also far out", "gibbs", "scipy.special")


@check(
    "exactness/gibbs-threshold/islands_unbiased",
    paper="villacampa2017",
    question="Is the estimate of Z by a few particles unbiased, resampling and label errors included?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.evidence import sequential

    rng = np.random.default_rng(45)
    root = rng.standard_normal((6, 6))
    cov = root @ root.T + 0.3 * np.eye(6)
    for constraints, epsilon, n_classes in ((2, 0.0, 3), (2, 0.4, 3), (1, 0.2, 2)):
        n, truth = 6 // constraints, 0.0
        for wrong in itertools.product((False, True), repeat=n):
            weight = float(np.prod([epsilon / n_classes if w else 1.0 - epsilon for w in wrong]))
            rows = [i * constraints + j for i in range(n) for j in range(constraints) if not wrong[i]]
            if weight > 0.0:
                truth += weight * (_orthant(cov[np.ix_(rows, rows)]) if rows else 1.0)
        common = sequential.choose_schedule(cov, n_classes, epsilon)
        count = 400 if context.quick else 20_000
        result = np.exp([sequential._island(rng, common, 5) for _ in range(count)])
        z = (result.mean() - truth) / (result.std(ddof=1) / np.sqrt(count))
        yield Tested(
            np.array([z]), f"{count} islands of 5, {constraints} a datum, errors {epsilon}; Holm over a run at 1e-4",
            "gibbs", "orthants of scipy", f"a bias of {6.0 * result.std() / truth / np.sqrt(count):.0%} would show",
        )  # fmt: skip


def _orthant(cov: Array) -> float:
    if len(cov) == 1:
        return 0.5
    zero = np.zeros(len(cov))
    rng = np.random.default_rng(0)
    return float(multivariate_normal.cdf(zero, zero, cov, maxpts=200_000, abseps=1e-5, releps=1e-5, rng=rng))


# -- boxes -----------------------------------------------------------------------------------------

_INF = np.inf
BOXES = (
    (np.array([[1.0, 0.5, 0.2], [0.5, 2.0, -0.3], [0.2, -0.3, 0.7]]), [0.3, -1.0, 0.8], [_INF, _INF, _INF]),
    (np.array([[1.0, 0.5, 0.2], [0.5, 2.0, -0.3], [0.2, -0.3, 0.7]]), [0.3, -1.0, -_INF], [1.4, _INF, -0.5]),
    (np.array([[4.0, -1.0], [-1.0, 0.6]]), [-0.6, 0.2], [2.5, 1.0]),
)


@check(
    "identity/exact-probit/boxes",
    paper="riihimaki2013",
    question="Are proposals in a box, their weights, bound and probability what minimax tilting defines?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.draws import truncated_normal as box

    for number, (cov, lower, upper) in enumerate(BOXES):
        low, high = np.array(lower), np.array(upper)
        tilting = box.tilt(cov, low, high)
        rng = np.random.default_rng(46 + number)
        white, log_weight = box.propose(rng, tilting, 3000)
        # weight: the density of N(0, Σ) over that of the proposal, each coordinate a cut normal of scipy
        x = tilting.factor @ white
        log_q = np.zeros(3000)
        for k, diagonal in enumerate(np.diagonal(tilting.factor)):
            before = tilting.factor[k, :k] @ white[:k]
            mean = tilting.mean[k]
            a, b = (tilting.lower[k] - before) / diagonal - mean, (tilting.upper[k] - before) / diagonal - mean
            log_q += truncnorm.logpdf(white[k], a, b, loc=mean)
        worst = float(np.abs(norm.logpdf(white).sum(axis=0) - log_q - log_weight).max())
        yield Compared(worst, 1e-9, f"box {number}: log weights of 3000 proposals", "gibbs", "scipy.stats")
        outside = int(np.any((x < tilting.lower[:, None] - 1e-12) | (x > tilting.upper[:, None] + 1e-12)))
        outside += int(
            np.abs(tilting.factor @ tilting.factor.T - cov[np.ix_(tilting.order, tilting.order)]).max() > 1e-12
        )
        outside += int(not np.array_equal(tilting.lower, low[tilting.order]))
        outside += int(not np.array_equal(tilting.upper, high[tilting.order])) + int(tilting.residual > 1e-8)
        outside += int(log_weight.max() > tilting.log_bound + 1e-9)
        outside += int((tilting.mean[-1], tilting.saddle[-1]) != (0.0, 0.0))  # the last variables are not free
        yield Compared(float(outside), 0.0, f"box {number}: proposals inside, no weight above its bound", "gibbs",
                       "definition", "statements that are wrong")  # fmt: skip
        # ψ at the saddle point is the bound, the least over μ of the largest over w
        yield Compared(
            max(0.0, *(_psi(tilting, tilting.saddle + d, tilting.mean) - tilting.log_bound for d in _nudges(len(cov)))),
            1e-12, f"box {number}: ψ falls from the saddle point in w", "gibbs", "definition",
        )  # fmt: skip
        yield Compared(
            max(0.0, *(tilting.log_bound - _psi(tilting, tilting.saddle, tilting.mean + d) for d in _nudges(len(cov)))),
            1e-12, f"box {number}: ψ rises from it in μ", "gibbs", "definition",
        )  # fmt: skip

        truth = _probability(cov, low, high)
        result = box.log_probability(np.random.default_rng(47 + number), tilting, target_error=0.02)
        drawn = box.draw_truncated(np.random.default_rng(48 + number), tilting, 4000)
        z = [(result.value - np.log(truth)) / result.standard_error,
             (drawn.probability.value - np.log(truth)) / drawn.probability.standard_error]  # fmt: skip
        draws = np.empty_like(drawn.white)
        draws[:, tilting.order] = drawn.white @ tilting.factor.T
        first, second = _moments(cov, low, high)
        pairs = np.triu_indices(len(cov))
        terms = np.concatenate([draws, draws[:, pairs[0]] * draws[:, pairs[1]]], axis=1)
        gap = terms.mean(axis=0) - np.concatenate([first, second[pairs]])
        z += list(gap / (terms.std(axis=0, ddof=1) / np.sqrt(len(terms))))
        yield Tested(
            np.array(z), f"box {number}: probability, means and second moments of 4000 draws; Holm over a run at 1e-4",
            "gibbs", "a product rule", "a tenth of a deviation would show",
        )  # fmt: skip
    tilting = box.tilt(*BOXES[1])
    limits = []
    for most, target in ((1, 1e-9), (box._BLOCK * 7, 1e-9), (box._BLOCK * 7 + 1, 1e-9), (10**7, 0.9), (10**7, 0.004)):
        result = box.log_probability(np.random.default_rng(49), tilting, target_error=target, max_proposals=most)
        if target < 1e-8:
            limits.append(result.n_proposals == -(-most // box._BLOCK) * box._BLOCK)
        else:
            limits.append(result.standard_error <= target and result.n_proposals >= 5 * box._BLOCK)
    # a box of 10⁻³ and less, where proposals are accepted once in so many, is refused with what was seen
    hard = box.tilt(np.eye(40) * 0.02 + 0.98, np.full(40, -0.1), np.full(40, _INF))
    far = _hopeless(box)
    for most, observed, call in (
        (box._BLOCK, 1, lambda rng, most: box.draw_truncated(rng, hard, 10**6, max_proposals=most)),
        (2 * box._BLOCK, 2, lambda rng, most: box.log_probability(rng, far, max_proposals=most)),
        # forty thousand proposals are enough to see that a million will not do
        (10**6, 20, lambda rng, most: box.log_probability(rng, far, max_proposals=most)),
        (10**6, 20, lambda rng, most: box.draw_truncated(rng, far, 100, max_proposals=most)),
    ):
        try:
            call(np.random.default_rng(50), most)
            limits.append(False)
        except ValueError as error:
            limits.append(
                f"max_proposals: found {observed * 2048} proposals" in str(error) and f"within {most}" in str(error)
            )
    yield Compared(float(sum(not holds for holds in limits)), 0.0, "proposals end at the limit or the error asked for",
                   "gibbs", "its documentation", "runs that end otherwise")  # fmt: skip


def _hopeless(box: Any) -> Any:
    """A tilting whose bound is stated e²⁰ too high: no weight comes near it."""
    tilting = box.tilt(*BOXES[0])
    return tilting._replace(log_bound=tilting.log_bound + 20.0)


def _nudges(size: int) -> Iterable[Array]:
    for k in range(size - 1):
        for step in (1e-3, -1e-3, 0.05, -0.05):
            yield step * np.eye(size)[k]


def _psi(tilting: Any, white: Array, mean: Array) -> float:
    """ψ(w, μ) = Σ μ²/2 - w μ + log P(l - μ < N(0, 1) < u - μ)."""
    factor, low, high = tilting.factor, tilting.lower, tilting.upper
    total = 0.0
    for k in range(len(white)):
        before = factor[k, :k] @ white[:k]
        a, b = ((limit[k] - before) / factor[k, k] - mean[k] for limit in (low, high))
        total += 0.5 * mean[k] ** 2 - white[k] * mean[k] + np.log(norm.cdf(b) - norm.cdf(a))
    return float(total)


def _clenshaw_curtis(n: int) -> tuple[Array, Array]:
    """n + 1 nodes and weights on [-1, 1], n even: interpolation at cos(π k/n), integrated."""
    k, j = np.arange(n + 1), np.arange(1, n // 2 + 1)
    twice = np.where(j == n // 2, 1.0, 2.0) / (4.0 * j**2 - 1.0)
    weights = (1.0 - np.cos(2.0 * np.pi * np.outer(k, j) / n) @ twice) * np.where((k == 0) | (k == n), 1.0, 2.0) / n
    return np.cos(np.pi * k / n), weights


def _grid(cov: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Points (k, D) of a product rule on the box, cut at nine deviations, and weights times the density."""
    sd = np.sqrt(np.diagonal(cov))
    nodes, weights = _clenshaw_curtis(120 if len(cov) < 3 else 60)
    axes, parts = [], []
    for k, scale in enumerate(sd):
        a, b = max(low[k], -9.0 * scale), min(high[k], 9.0 * scale)
        axes.append(0.5 * (b - a) * nodes + 0.5 * (a + b))
        parts.append(0.5 * (b - a) * weights)
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    weight = np.prod(np.stack([axis.ravel() for axis in np.meshgrid(*parts, indexing="ij")]), axis=0)
    return points, weight * multivariate_normal.pdf(points, np.zeros(len(cov)), cov)


def _probability(cov: Array, low: Array, high: Array) -> float:
    return float(_grid(cov, low, high)[1].sum())


def _moments(cov: Array, low: Array, high: Array) -> tuple[Array, Array]:
    points, weight = _grid(cov, low, high)
    weight = weight / weight.sum()
    return weight @ points, np.einsum("k,ka,kb->ab", weight, points, points)
