"""Islands of particles: rounds until an error is met, islands that others work, particles drawn anew, ladders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Tested, as_documented, check, flaws
from validation.checks.paths import three_classes
from validation.problem import Problem

Array = NDArray[np.float64]
PAPER = "riihimaki2013"


@check(
    "identity/mh-softmax/rounds_of_particles",
    paper=PAPER,
    question="Are particles multiplied by what their error asks for, twice to eight times, until it is met?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.options import Particles
    from gibbs.evidence import result

    rng = np.random.default_rng(37)
    shape = rng.standard_normal(8)
    shape = (shape - shape.mean()) / shape.std(ddof=1)
    rows: list[tuple[str, object, object]] = []
    for spreads, seen, most, target in (
        ((0.2, 0.1, 0.04), (0.5, 0.5, 0.5), 5, 0.02), ((0.2, 0.1, 0.04), (0.5, 0.5, 0.5), 2, 0.02),
        ((0.04,), (0.5,), 5, 0.02), ((0.04, 0.04), (0.29, 0.3), 3, 0.02), ((3.0, 2.0, 1.0), (0.5,) * 3, 3, 0.02),
        ((0.51, 0.49), (0.5, 0.5), 3, 0.5),
    ):  # fmt: skip
        options = Particles(n_particles=10, n_islands=8, max_rounds=most, target_error=target)
        sizes: list[int] = []

        def work(size: int, sizes: list[int] = sizes, spreads: Any = spreads, seen: Any = seen) -> Any:
            sizes.append(size)
            return -7.0 + spreads[len(sizes) - 1] * shape, seen[len(sizes) - 1]

        answer = result._of_annealed(work, options, 5, "number", least=0.3)
        wanted, size, trusted = [], 10, False
        for spread, number in list(zip(spreads, seen, strict=True))[:most]:
            wanted.append(size)
            relative = np.exp(spread * shape)
            error = float(relative.std(ddof=1) / relative.mean() / np.sqrt(8.0))
            trusted = error <= target and spread <= 0.5 and number >= 0.3
            if trusted:
                break
            size *= int(min(max(np.ceil(1.3 * (error / target) ** 2), 2), 8))
        told = (sizes, answer.trusted, answer.detail["rounds"], answer.detail["n_particles"], answer.detail["number"],
                answer.detail["n_powers"], round(answer.detail["island_spread"], 12))  # fmt: skip
        last = len(wanted) - 1
        rows.append((f"spreads {spreads}", told, (wanted, trusted, len(wanted), 8.0 * wanted[-1], seen[last], 4.0,
                                                 spreads[last])))  # fmt: skip
        # the jackknife: left out one by one, as if the number of islands were the size of a sample
        p = np.exp(spreads[last] * shape)
        left = np.array([np.log(np.delete(p, k).mean()) for k in range(8)])
        average = float(np.log(p.mean()))
        error = float(p.std(ddof=1) / p.mean() / np.sqrt(8.0))
        came = np.array([answer.value, answer.bias, answer.mean_log, answer.standard_error])
        gap = np.abs(came - [average - 7.0, 7.0 * (left.mean() - average), -7.0, error]).max()
        yield Compared(float(gap), 1e-12, f"spreads {spreads}: average, bias, error", "gibbs", "definition", "absolute")
    yield as_documented(rows, "gibbs", "rounds")


@check(
    "identity/mh-softmax/islands_of_others",
    paper=PAPER,
    question="Are islands that workers return taken in their order, with the least acceptance and the mean fraction?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.options import Particles
    from gibbs.evidence import annealed, softmax_annealed

    told = np.array([[-3.0, 0.9], [-3.02, 0.4], [-2.99, 0.7], [-3.01, 0.8], [-3.0, 0.6]])
    options = Particles(n_particles=4, n_islands=5, max_rounds=1, target_error=0.1)
    rows: list[tuple[str, object, object]] = []
    for module, name, number in (
        (softmax_annealed, "acceptance", 0.4), (annealed, "ess_fraction", float(told[:, 1].mean()))
    ):  # fmt: skip
        asked: list[Any] = []

        def workers(function: Any, parts: Any, asked: list[Any] = asked) -> Iterable[Array]:
            asked.extend((function, part) for part in parts)
            return iter(told)

        common: Any = mock.Mock(ladder=[0.0, 0.5, 1.0])
        result = module.estimate(np.random.default_rng(1), common, workers, options)
        log_z, seen = module._islands(np.random.default_rng(1), common, workers, (5, 4))
        rows += [
            (f"{name}: number", (round(result.detail[name], 12), round(seen, 12)), (round(number, 12),) * 2),
            (f"{name}: islands", log_z.tolist(), told[:, 0].tolist()),
            (f"{name}: who works", {function for function, _ in asked}, {module.island}),
            (f"{name}: seeds that differ", len({part.seed for _, part in asked}), 5),
            (f"{name}: particles", {part.n_particles for _, part in asked}, {4}),
            (f"{name}: one common part", all(part.common is common for _, part in asked), True),
            (f"{name}: powers", result.detail["n_powers"], 2.0),
            (f"{name}: trusted", result.trusted, True),
        ]
        gap = abs(result.value - float(np.log(np.exp(told[:, 0]).mean())))
        yield Compared(gap, 1e-12, f"{name}: log of the average", "gibbs", "definition", "nat")
    yield as_documented(rows, "gibbs", "answers")


@check(
    "exactness/gibbs-threshold/resampled_islands",
    paper="villacampa2017",
    question="Is Z unbiased where particles know nothing of the labels ahead and are drawn anew again and again?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import sequential

    D, rho = 6, 0.9
    # equal correlations by one common factor: the orthant is an integral in one variable
    sign = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    cov = (rho + (1.0 - rho) * np.eye(D)) * sign * sign[:, None]
    z = np.linspace(-9.0, 9.0, 2001)
    weight = np.exp(-0.5 * z**2) * (z[1] - z[0]) / np.sqrt(2.0 * np.pi)
    at = sign[:, None] * np.sqrt(rho / (1.0 - rho)) * z
    chol: Array = np.asarray(np.linalg.cholesky(cov), dtype=np.float64)
    blind = sequential.Factors.of(chol, np.zeros(D), np.zeros(D))
    count = 250 if context.quick else 20_000
    z_values = []
    for constraints, epsilon, n_classes in ((1, 0.0, 2), (2, 0.2, 3)):
        inside = ndtr(at).reshape(-1, constraints, z.size).prod(axis=1)
        truth = float(weight @ ((1.0 - epsilon) * inside + epsilon / n_classes).prod(axis=0))
        common = sequential.Schedule(blind, constraints, epsilon, n_classes)
        rng, drawn_anew = np.random.default_rng(25), 0
        systematic = sequential._systematic

        def counted(rng: np.random.Generator, weights: Array, systematic: Any = systematic) -> Any:
            nonlocal drawn_anew
            drawn_anew += 1
            return systematic(rng, weights)

        with mock.patch.object(sequential, "_systematic", counted):
            islands = np.exp([sequential._island(rng, common, 6) for _ in range(count)])
        z_values.append((islands.mean() - truth) / (islands.std(ddof=1) / np.sqrt(count)))
        yield flaws(drawn_anew < count // 5, f"{constraints} a datum: drawn anew {drawn_anew} times", "gibbs", "runs")
    yield Tested(
        np.array(z_values), f"{count} islands of 6; two-sided z, Holm over the run at 1e-4", "gibbs",
        "quadrature", f"a bias of {6.0 * float(islands.std()) / truth / np.sqrt(count):.0%} would show",
    )  # fmt: skip


@check(
    "identity/gibbs-logit/ladders",
    paper="wenzel2019",
    question="Does a ladder rise from no likelihood to all of it, with a Gaussian for every power between?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import annealed, softmax_annealed

    cov, y = three_classes()
    sign = np.array([1.0, -1.0, 1.0])
    rows: list[tuple[str, object, object]] = []
    for name, module, given, gaussians in (
        ("logit", annealed, (9.0 * cov[0], sign), "references"),
        ("softmax", softmax_annealed, (16.0 * cov, y), "around"),
    ):
        common = module.choose_schedule(np.random.default_rng(26), *given, n_pilot=300)
        ladder = common.ladder
        rows += [
            (f"{name}: ends", (ladder[0], ladder[-1]), (0.0, 1.0)),
            (f"{name}: powers between", len(ladder) > 3, True),
            (f"{name}: rising", bool(np.all(np.diff(ladder) > 0.0)), True),
            (f"{name}: Gaussians", len(getattr(common, gaussians)), len(ladder) - 2),
        ]
    yield as_documented(rows, "gibbs", "ladders")
