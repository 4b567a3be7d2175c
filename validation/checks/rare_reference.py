"""Turns of `reference` that few problems take: powers of zero, labels far off, starts and steps that are refused.

Each is led there by numbers that need it, and held against its definition or the road that it falls back to.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.estimator_streams import kernel
from validation.checks.learning import tiny
from validation.checks.run_promises import losing, zero_of
from validation.problem import Problem

Array = NDArray[np.float64]


def _given(kind: str) -> tuple[Problem, Any, Any]:
    """A problem with several classes, its prior as `reference` has it, and the matrices of that."""
    from reference.common._classes import Prior
    from reference.villacampa2020.hyper import prior_matrices

    asked = tiny(kind)
    assert asked.Z is not None
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    return asked, prior, prior_matrices(asked.X, prior)


@check(
    "limit/apep/objectives_at_zero",
    paper="villacampa2020",
    question="Are the three objectives at alpha = 0 the variational bound, of mini-batches too?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.villacampa2020 import energies
    from reference.villacampa2020.posterior import Gaussians

    asked, _, K = _given("threshold errors")
    rng = np.random.default_rng(81)
    mean = 0.4 * rng.standard_normal((3, 4))
    q = Gaussians(mean, np.array([0.6 * each + 0.02 * np.eye(4) for each in K.K_ZZ]))
    of_f = np.einsum("kim,km->ik", K.upsilon, mean)
    var = K.cond_var.T + np.einsum("kim,kmp,kip->ik", K.upsilon, q.cov, K.upsilon)
    divergence = 0.0
    for k in range(3):
        inverse = np.linalg.inv(K.K_ZZ[k])
        divergence += 0.5 * (np.trace(inverse @ q.cov[k]) + mean[k] @ inverse @ mean[k] - 4.0)
        divergence += 0.5 * (np.linalg.slogdet(K.K_ZZ[k])[1] - np.linalg.slogdet(q.cov[k])[1])
    epsilon = asked.epsilon
    expected = np.empty(asked.n)
    for i in range(asked.n):
        missed = losing(of_f[i], var[i], int(asked.y[i]))
        expected[i] = missed * np.log(epsilon / 3.0) + (1.0 - missed) * np.log1p(epsilon / 3.0 - epsilon)
    for name in ("arpep", "rpapep", "apep"):
        objective = getattr(energies, f"{name}_objective")
        whole = objective(q, asked.y, K, epsilon, 0.0)
        gap = abs(whole / (expected.sum() - divergence) - 1.0)
        yield Compared(gap, 1e-9, f"{name}: expected logarithms less the divergence, dense", "reference", "definition")
        rows = np.array([1, 4, 6])
        part = objective(q, asked.y[rows], K.of(rows), epsilon, 0.0, asked.n)
        gap = abs(part / (asked.n / 3.0 * expected[rows].sum() - divergence) - 1.0)
        yield Compared(gap, 1e-9, f"{name}: three data that stand for eight", "reference", "definition")


@check(
    "identity/pep/without_value",
    paper="villacampa2020",
    question="Has PEP no log Z where a cavity is no distribution, in either form, and its parts all the same?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.villacampa2020.fit_pep import PEP
    from reference.villacampa2020.posterior import Coefficients

    asked, _, K = _given("threshold errors")
    for alpha in (0.5, 1.0):
        values = {}
        for bad in (False, True):
            precision = np.full((asked.n, 3), 0.1)
            if bad:
                precision[3, 1] = 1e7  # more than q knows of that projection: without it none is left
            for form in ("printed", "projected"):
                pep = PEP(asked.y, asked.epsilon, alpha, 0.5, form)
                sites = Coefficients(precision, np.full((asked.n, 3), 0.05))
                posterior = pep.posterior(Coefficients(np.full((asked.n, 3), 0.1), sites[1]), K)
                values[bad, form] = pep.value(sites, posterior, K)
        result = [values[key].log_evidence is None for key in sorted(values)]
        yield flaws(
            result != [False, False, True, True], f"alpha {alpha:g}: without a value {result}", "reference", "answers"
        )
        rest = np.arange(asked.n) != 3
        parts = [np.asarray(values[key].log_norm)[rest] for key in sorted(values)]
        gap = max(float(np.abs(part - parts[0]).max()) for part in parts)
        yield Compared(gap, 1e-9, f"alpha {alpha:g}: log Z_i of the other data, four times", "reference", "reference",
                       "difference")  # fmt: skip


@check(
    "identity/ep/far_labels",
    paper="villacampa2017",
    question="Are tilted derivatives of labels far behind those of `fast`, and of near ones beside them?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood.largest import argmax_moments
    from reference.villacampa2017.datum import tilted_of_data
    from reference.villacampa2017.scalar import Cavities

    rng = np.random.default_rng(82)
    behind = np.array([0.0, 3.0, 6.0, 9.0, 15.0, 25.0, 40.0, 1.0])
    y = rng.integers(0, 3, behind.size)
    mean, var = rng.standard_normal((behind.size, 3)), rng.uniform(0.3, 2.0, (behind.size, 3))
    mean[np.arange(y.size), y] -= behind
    rest = rng.uniform(0.05, 0.4, (3, behind.size))
    left = tilted_of_data(Cavities(mean, var, np.ones_like(var)), y, rest)
    right = argmax_moments(mean, var + rest.T, y)
    far = int((right.log_mass < -10.0).sum())
    for name, a, b in (("log Z", left.log_norm, right.log_mass), ("derivatives", left.derivative, right.derivative),
                       ("curvatures", left.curvature, -right.curvature)):  # fmt: skip
        gap = float(np.abs(a / b - 1.0).max())
        yield Compared(gap, 3e-13, f"{name} of eight labels, {far} of them below exp(-10)", "reference", "fast")


@check(
    "identity/vi-jj-full/told_once",
    paper="izmailov2016",
    question="Is who listens to one search told its end, once, and nobody else?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:

    from reference.izmailov2016._prior import Prior
    from reference.izmailov2016.algorithm1 import vi_jj_full

    asked = tiny("logit")
    assert asked.Z is not None
    prior = Prior(asked.variance[0], asked.lengthscales[0], asked.noise[0], asked.jitter[0], asked.Z[0])
    y_sign = np.where(asked.y == 1, 1.0, -1.0)
    told: list[Any] = []
    end = vi_jj_full(asked.X, y_sign, prior, ("variance",), callback=told.append)
    silent = vi_jj_full(asked.X, y_sign, prior, ("variance",))
    wrong = len(told) != 1 or told[0].iteration != end.iterations or told[0].elbo != end.trace[-1]
    wrong = wrong or not np.array_equal(told[0].inducing_mean, end.q.inducing_mean)
    wrong = wrong or told[0].hyper.variance != end.hyper.variance or silent.trace[-1] != end.trace[-1]
    yield flaws(wrong, f"told {len(told)} times, after {end.iterations} iterations", "reference", "calls")
    variance, lengths = float(end.hyper.variance), asked.lengthscales[0]
    K = kernel(asked.Z[0], asked.Z[0], variance, lengths) + asked.jitter[0] * np.eye(len(asked.Z[0]))
    cross = kernel(asked.X, asked.Z[0], variance, lengths)
    lam = np.tanh(0.5 * end.q.xi) / (4.0 * end.q.xi)
    solved = np.linalg.solve(K + 2.0 * (cross.T * lam) @ cross, np.column_stack([K, 0.5 * cross.T @ y_sign]))
    of_q = np.column_stack([end.q.inducing_cov, end.q.inducing_mean])
    gap = float(np.abs(K @ solved - of_q).max() / np.abs(of_q).max())
    yield Compared(gap, 1e-9, "q of (12) and (13) at the parameters found", "reference", "definition", "relative")


@check(
    "identity/vi-robust/starts_refused",
    paper="villacampa2017",
    question="Does an ascent from a q beyond all bounds begin at the prior, and from any other where it is told to?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common.options import options_of
    from reference.villacampa2017 import vi_fit
    from reference.villacampa2020.posterior import Gaussians

    asked, prior, K = _given("threshold errors")
    data = vi_fit.Data(asked.X, asked.y, asked.epsilon)
    options = options_of("vi-robust")(max_iterations=40, tolerance=1e-9)
    plain = vi_fit._ascend(data, prior, None, options)
    for scale, far in ((1e13, True), (1.3, False)):
        there = vi_fit._ascend(data, prior, Gaussians(np.zeros((3, 4)), scale * K.K_ZZ), options)
        same = np.array_equal(there.trace, plain.trace)
        yield flaws(
            same is not far, f"variances {scale:g} times the prior's: {len(there.trace)} steps", "reference", "runs"
        )
        gap = abs(there.elbo / plain.elbo - 1.0)
        yield Compared(gap, 1e-8, f"variances {scale:g} times the prior's: the same bound", "reference", "reference")
    ended = vi_fit._ascend(data, prior, plain.posterior, options)
    yield flaws(
        len(ended.trace) > 2, f"from its end: {len(ended.trace)} steps for {len(plain.trace)}", "reference", "runs"
    )


@check(
    "identity/apep/refused_batches",
    paper="villacampa2020",
    question="Does a run on batches stand at the last place that has an energy, and say at which step it left it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common.options import options_of
    from reference.villacampa2020 import fit_energies

    asked, prior, _ = _given("threshold errors")
    batches = [[0, 3, 5], [6, 1], [3, 2, 7, 1], [4, 0]]
    at = fit_energies.Data.at

    def run(n_steps: int, refused: tuple[int, ...] = (), whole: tuple[int, ...] = ()) -> Any:
        steps, ends = [0], [0]

        def energy(self: Any, q: Any, K: Any, rows: Any = None) -> Any:
            count, without = (ends, whole) if rows is None else (steps, refused)
            count[0] += 1
            if count[0] in without:
                raise ValueError("energy: found none")
            return at(self, q, K, rows)

        options = options_of("apep")(batches=batches, n_steps=n_steps, learn=("variance",), rate=0.05, alpha=0.5)
        with mock.patch.object(fit_energies.Data, "at", energy):
            return fit_energies.fit_energy(asked.X, asked.y, prior, "apep", asked.epsilon, options=options)

    def apart(one: Any, other: Any) -> float:
        gap = float(np.abs(one.posterior.mean - other.posterior.mean).max())
        return max(gap, float(np.abs(one.prior.variance - other.prior.variance).max()))

    one, two, three = run(1), run(2), run(3)
    # an energy that a step finds missing is that of the place it starts from
    cases = (
        (run(4, refused=(3,)), one, 2, "diverged at step 3: energy: found none"),
        (run(3, whole=(1,)), two, 3, "diverged at step 3: energy: found none"),
        (three, three, 3, ""),
        (run(4, refused=(4,), whole=(1,)), one, 3, "diverged at step 4: energy: found none"),
    )
    for result, where, steps, reason in cases:
        wrong = result.reason != reason or result.iterations != steps or result.converged
        yield flaws(wrong, f"{reason or 'no refusal'}: {result.reason}, {result.iterations} steps", "reference", "runs")
        yield Compared(apart(result, where), 0.0, f"{reason or 'taken'}: where it stands", "reference", "reference",
                       "difference")  # fmt: skip
    try:
        run(1, whole=(1, 2, 3))
        told = ""
    except ValueError as error:
        told = str(error)
    yield flaws(told != "energy: found none", f"no place with an energy: {told}", "reference", "answers")


@check(
    "identity/gfitc/refused_extrapolations",
    paper="villacampa2017",
    question="Do sweeps go on where they were if no distribution belongs to extrapolated sites, and end near rounding?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _sweeps
    from reference.common.errors import NotPositiveDefiniteError

    rng = np.random.default_rng(83)
    mirror = rng.standard_normal(5)
    basis = np.eye(5) - 2.0 * np.outer(mirror, mirror) / (mirror @ mirror)
    A = (basis * np.array([0.98, 0.9, 0.5, -0.3, 0.1])) @ basis.T
    b = rng.standard_normal(5)
    fixed = np.linalg.solve(np.eye(5) - A, b)

    def ask(refused: tuple[int, ...]) -> tuple[Any, int]:
        asked, sweeps = [0], _sweeps.Sweeps(1.0, 1e-9)
        leaps = [0]
        propose = sweeps.propose

        def proposed(sites: Any) -> Any:
            leap = propose(sites)
            leaps[0] += leap is not None
            asked[0] = leaps[0] if leap is not None and leaps[0] in refused else 0
            return leap

        def posterior(sites: Any) -> Any:
            if asked[0]:
                asked[0] = 0
                raise NotPositiveDefiniteError("q: none")
            return sites[0].copy()

        sweeps.propose = proposed  # type: ignore[method-assign]

        def sweep(sites: Any, q: Any) -> Any:
            moved = A @ (0.5 * (sites[0] + q)) + b  # q belongs to the sites
            return _sweeps.Step((moved,), float(np.abs(moved - q).max()), 0)

        return _sweeps.to_fixed_point(sweep, posterior, (np.zeros(5),), sweeps, 3000), leaps[0]

    for refused in ((), (1,), (1, 2)):
        run, leaps = ask(refused)
        gap = float(np.abs(run.sites[0] - fixed).max() / np.abs(fixed).max())
        why = f"{len(refused)} of {leaps} extrapolations refused: {run.iterations} sweeps"
        yield Compared(gap, 1e-9, why, "reference", "fixed point")
        yield flaws(not run.converged or leaps <= len(refused), why, "reference", "runs")
    # a refused one leaves sites and q as sweeps left them: all refused, it is plain sweeps
    plain = ask(tuple(range(1, 100)))[0]
    x, count = np.zeros(5), 0
    while np.abs(x - fixed).max() > 1e-9 * np.abs(fixed).max() and count < 3000:
        x, count = A @ x + b, count + 1
    gap = float(np.abs(plain.sites[0] - fixed).max() / np.abs(fixed).max())
    yield Compared(
        gap, 1e-8, f"all refused: {plain.iterations} sweeps, {count} of the map by itself", "reference", "fixed point"
    )
    yield flaws(not 0.9 * count < plain.iterations < 1.5 * count, "as many as those", "reference", "runs")

    # residuals of which all but two are rounding tell no rate: half is taken; equal moves tell no factor
    sweeps = _sweeps.Sweeps(0.5, 1e-9)
    for residual in (1e-3, 1e-13, 3e-14, 2e-14):
        sweeps.see((np.ones(2),), residual, 0)
    yield Compared(abs(sweeps._rate() - 0.5), 0.0, "there at once", "reference", "definition", "difference")
    gap = abs(_sweeps._slowest(np.zeros((4, 3))))
    moves = np.array([0.7**k * np.array([1.0, -2.0]) for k in range(4)])
    gap = max(gap, abs(_sweeps._slowest(moves) - 0.7))
    yield Compared(gap, 1e-9, "moves that vanish have no factor, others that by which they fall", "reference",
                   "definition", "difference")  # fmt: skip


@check(
    "identity/ep/modes_of_rows",
    paper="villacampa2017",
    question="Are modes of the integrands that decide on the largest found row by row, however unlike the rows are?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _largest

    rng = np.random.default_rng(84)
    start = rng.standard_normal((12, 3)) * np.array([0.3, 3.0, 30.0] * 4)[:, None] - np.array([0.0, 20.0] * 6)[:, None]
    rate = np.exp(rng.uniform(-3.0, 4.0, (12, 3)))

    def derivative(row: int, t: float) -> float:
        at = start[row] + rate[row] * t
        # phi/Phi by logarithms
        hazard = np.exp(-0.5 * at**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(at))
        return float(rate[row] @ hazard) - t

    result = _largest._modes(start, rate)
    worst = 0.0
    for row in range(len(start)):
        high = 1.0
        while derivative(row, high) > 0.0:
            high *= 2.0
        zero = zero_of(partial(derivative, row), 0.0, high)
        width = 1.0 / np.sqrt(-(derivative(row, zero + 1e-6) - derivative(row, zero - 1e-6)) / 2e-6)
        worst = max(worst, abs(result[row] - zero) / width)
    why = "twelve rows at once: a tenth of the width of each is asked for"
    yield Compared(worst, 0.3, why, "reference", "definition", "widths")
