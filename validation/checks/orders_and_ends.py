"""Orders that only cost depends on, steps that must not fall, and when a hopeless run is given up.

Which variable comes first, or how soon a sampler says that it will not do, changes no answer, and an accepted step that
falls leads to the same mode in the end. Each is held to its own sentence.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import expit, logsumexp

from validation.by_name import sampler_by_name
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.few_data import Few
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]


@check(
    "identity/exact-probit/least_likely_first",
    paper="riihimaki2013",
    question="Do variables and data come in the order least probable first, given those before?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.draws.truncated_normal import _reorder
    from gibbs.evidence.sequential import _order

    # above 2 with deviation 2 (16 %), above .4 with deviation 1/2 (21 %), above 0 (50 %): independent
    order = _reorder(np.diag([0.25, 4.0, 1.0]), np.array([0.4, 2.0, 0.0]), np.full(3, np.inf), "")[0]
    yield flaws(int(list(order) != [1, 0, 2]), f"independent variables of 21, 16 and 50 %: {list(order)}", "gibbs",
                "orders")  # fmt: skip
    # once the first is positive the third, correlated by -.8 with it, is less probable than the second, by +.8
    covariance = np.array([[1.0, 0.8, -0.8], [0.8, 1.0, -0.5], [-0.8, -0.5, 1.0]])
    order = _order(covariance, 1)
    yield flaws(int(list(order) != [0, 2, 1]), f"data of equal probability, then by correlation: {list(order)}",
                "gibbs", "orders")  # fmt: skip


@check(
    "identity/exact-probit/given_up",
    paper="riihimaki2013",
    question="Is a run given up early only if four standard errors more would still be too few?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.draws import truncated_normal as place

    most, block = 300_000, 2048

    def proposals(acceptance: float, error: float) -> int:
        """How many are made until a run of that acceptance, which never has enough, is given up."""
        made = [0]

        class Weights:
            def __init__(self, _tilting: Any) -> None:
                self.total = 1.0

            def add(self, _log_weight: Any) -> None:
                made[0] += block

            def probability(self) -> Any:
                return place.Probability(0.0, error, 0.0, acceptance, made[0])

        given: Any = SimpleNamespace(mean=np.zeros(3))
        with (
            mock.patch.object(place, "_Weights", Weights),
            mock.patch.object(place, "propose", return_value=(None, None)),
        ):
            try:
                place.log_probability(np.random.default_rng(0), given, max_proposals=most)
            except ValueError:
                return made[0]
        return 0

    whole = -(-most // block) * block
    # 25 acceptances are asked for: twelve and a half expected, raised by four errors of a half or a tenth
    rows = [(0.5, 0.5, whole), (0.5, 0.1, 20 * block), (0.5, np.inf, 20 * block), (1.1, 0.0, whole)]
    listed = [(share, error, proposals(25.0 * share / most, error), wanted) for share, error, wanted in rows]
    wrong = [row for row in listed if row[2] != row[3]]
    yield flaws(len(wrong), f"share of what is needed, error, proposals made and expected: {wrong or listed}", "gibbs",
                "runs")  # fmt: skip


@check(
    "identity/gibbs-logit/averages_of_unequal_spread",
    paper="wenzel2019",
    question="Are averages of the sigmoid right to rounding where data that share nodes differ twofold in deviation?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence.bridge import _log_averages

    mean, sd = np.array([0.3, -0.7, -6.0, 1.0]), np.array([1.05, 1.95, 2.1, 3.9])

    def average(m: float, s: float) -> float:
        def density(z: float) -> float:
            return float(np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * expit(m + s * z))

        return float(quad(density, -12.0, 12.0, epsabs=0.0, epsrel=1e-13, limit=200)[0])

    wanted = sum(np.log(average(m, s)) for m, s in zip(mean, sd, strict=True))
    gap = abs(float(_log_averages(mean[None], sd)[0]) - wanted)
    yield Compared(gap, 1e-11, "adaptive quadrature to 1e-13, four data in two groups", "gibbs", "definition")


# -- Newton's method of several classes ---------------------------------------------------------------------------


@check(
    "identity/laplace/steps_that_rise",
    paper="riihimaki2013",
    question="Does no step of Newton's method lower the log joint by more than rounding?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.full_classes import softmax_laplace as place

    rng = np.random.default_rng(11)
    y, n, C = np.array([0, 1, 2, 0, 1, 2]), 6, 3
    X = rng.standard_normal((n, 1))
    K = 400.0 * np.exp(-0.5 * np.square(X - X.T)) + 0.5 * np.eye(n)
    visited: list[Array] = []

    def watched(prior: Any, latent: Array, derivative: Array) -> float:
        visited.append(latent.copy())
        return healthy(prior, latent, derivative)

    healthy = place.residual_at
    # a start far on the wrong side: full steps overshoot
    start: Array = np.asarray(np.linalg.solve(K, 40.0 * rng.standard_normal((n, C))), dtype=np.float64)
    prior: Any = SimpleNamespace(n=n, C=C, y=y, n_classes=C, K=lambda _k: K)
    with mock.patch.object(place, "residual_at", watched):
        falls = _joints(place, prior, start, visited, K, y)
    why = f"{len(falls)} steps from a start far off; the largest fall {max(falls):.2g} nat"
    yield Compared(max(0.0, *falls), 1e-9, why, "fast", "definition", "nat")


def _joints(place: Any, prior: Any, start: Array, visited: list[Array], K: Array, y: Array) -> list[float]:
    """Falls of the log joint from step to step, formed anew from the latent values."""

    def step(_prior: Any, latent: Array, terms: Any, *_more: Any) -> Any:
        """A Newton step three times as long as it should be, as rounding could never make it."""
        n, C = latent.shape
        pi = np.exp(latent - logsumexp(latent, axis=1, keepdims=True))
        W = np.zeros((n * C, n * C))
        for i in range(n):
            rows = np.arange(C) * n + i
            W[np.ix_(rows, rows)] = np.diag(pi[i]) - np.outer(pi[i], pi[i])
        inverse = np.kron(np.eye(C), np.linalg.inv(K))
        gradient = ((np.eye(C)[y] - pi).T.ravel()) - inverse @ latent.T.ravel()
        moved = latent + 3.0 * np.linalg.solve(inverse + W, gradient).reshape(C, n).T
        return SimpleNamespace(mean=moved, weights=np.linalg.solve(K, moved).T)

    with mock.patch.object(place, "newton_step", step):
        place.find_mode(prior, tolerance=1e-6, max_iterations=60, start=start)
    joints = []
    for latent in visited:
        log_pi = latent - logsumexp(latent, axis=1, keepdims=True)
        joints.append(float(log_pi[np.arange(len(y)), y].sum() - 0.5 * np.sum(latent * np.linalg.solve(K, latent))))
    return [float(before - after) for before, after in pairwise(joints)]


@check(
    "identity/gfitc/back_from_a_mixed_step",
    paper="villacampa2017",
    question="Does a sweep that a mixed proposal has made worse go back, and make the damped step there?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods.vi_jj import _plain
    from fast.sparse_classes.fitc_latents import LatentRun

    rng = np.random.default_rng(2)
    sites, gap, here = rng.standard_normal((3, 2, 4, 3))
    wrong = []
    for residual, improper, back in ((2.1, 0, True), (1.9, 1, True), (np.nan, 0, True)):
        run = LatentRun.__new__(LatentRun)
        run.sites, run.damping, run._was_mixed = here.copy(), 0.3, True
        run._past = SimpleNamespace(sites=sites, gap=gap, residual=1.0)  # type: ignore[assignment]
        run._mixing = mock.MagicMock()
        run._advance(gap[::-1], here[0], here[0], residual, improper)
        returned = bool(np.allclose(run.sites, sites + 0.3 * gap, 1e-14, 1e-14)) and run._past is None
        wrong += [(residual, improper)] if returned != back or run._was_mixed else []
    yield flaws(
        len(wrong), f"residuals over the one before, improper cavities: {wrong or 'all back'}", "fast", "sweeps"
    )
    # an iteration whose first step is none is at its end
    state: Any = SimpleNamespace(update=lambda: 0.0, end=SimpleNamespace(value=-1.5))
    end = _plain(state, 1e-9, 5, None)
    yield flaws(int(end != ([-1.5], 0.0, True)), f"a step of zero ends a run: {end}", "fast", "runs")


@check(
    "identity/exact-probit/evidence_by_name",
    paper="riihimaki2013",
    question="Does the evidence without draws say of each of its numbers what it is?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.draws.truncated_normal import Probability
    from gibbs.models import exact_probit as place

    drawn = Probability(value=-3.0, standard_error=0.5, log_bound=-2.0, acceptance=0.25, n_proposals=99)
    few = Few("multinomial-probit")
    with mock.patch.object(place, "log_probability", return_value=drawn):
        result = sampler_by_name(place.log_evidence)(few.likelihood, **few.arguments(), seed=0)
    wanted = {"log_evidence": -3.0, "log_evidence_se": 0.5, "log_evidence_bound": -2.0, "acceptance": 0.25,
              "dimension": len(few.y) * (few.n_classes - 1), "n_proposals": 99}  # fmt: skip
    yield flaws(int(result._asdict() != wanted), f"{result}", "gibbs", "answers")


@check(
    "identity/label-regression/steps_by_default",
    paper="villacampa2020",
    question="Do both witnesses make the paper's 250 adaptive steps where no number is asked for?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    asked = tiny("threshold errors").replace(name="threshold errors, steps by default")
    for witness in ("reference", "fast"):
        told: list[Any] = []
        context.solve(witness, "label-regression", asked, learn=("variance",), optimizer="adaptive", rate=0.01,
                      callback=told.append)  # fmt: skip
        yield flaws(abs(len(told) - 250), f"{len(told)} steps, of A.7's 250", witness, "steps")


# -- files ----------------------------------------------------------------------------------------------------------


@check(
    "invariance/gibbs-logit/orphans_of_chains",
    paper="wenzel2019",
    question="Does a chain that writes its file remove what killed writers left, and nobody else's?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.checkpoint import digest
    from gibbs.chains import checkpoint

    with tempfile.TemporaryDirectory(prefix="triad-chains-") as folder:
        path = Path(folder) / "chain.npz"
        orphan, other = path.parent / ".chain.npz.ab12cd_9.part", path.parent / ".other.npz.ab12cd_9.part"
        for name in (orphan, other):
            name.write_bytes(b"left")
        checkpoint.write(path, "mark", {"x": np.arange(3.0)})
        left = sorted(entry.name for entry in path.parent.iterdir())
    yield flaws(int(left != sorted(["chain.npz", other.name])), f"beside the new file: {left}", "gibbs", "files")
    empty, other_empty = digest(np.zeros((3, 0))), digest(np.zeros((4, 0)))
    yield flaws(int(empty == other_empty), "rows without entries have a digest, which knows how many they are", "fast",
                "digests")  # fmt: skip
