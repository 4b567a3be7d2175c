"""Cavities that are no distribution: a factor that has one stays, is counted, and leaves no evidence behind.

Likelihoods of ordinary problems are log-concave, and from sites of one no cavity is ever improper. So the sites here
are the judge's: two data at one place, the first with a site far stronger than the prior, the second with one that
takes twice the prior's precision away. Together they leave a distribution, without the first they do not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]
_WHY = "twice the prior's precision is taken away without the first site: no distribution"


def _apart(one: Iterable[Any], other: Iterable[Any]) -> float:
    """Largest difference over the largest entry, of all arrays."""
    gaps = [
        float(np.abs(np.asarray(a) - np.asarray(b)).max()) / max(1.0, float(np.abs(np.asarray(b)).max()))
        for a, b in zip(one, other, strict=True)
    ]
    return max(gaps)


def _twins(kind: str) -> Problem:
    """The eight data of `tiny`, the second where the first is."""
    problem = tiny(kind)
    X = problem.X.copy()
    X[1] = X[0]
    return problem.replace(name=f"twins, {kind}", X=X)


class _Pairwise(NamedTuple):
    """Sites of the judge in three classes; datum 0 has label 0, its factor with class 2 is the one without a cavity."""

    K: Any
    y: NDArray[np.intp]
    label: Array  # precisions of the labels' classes, (n, C)
    other: Array  # of the other classes
    strength: float  # of the sites: the variance of the projected prior, inverted


def _pairwise() -> _Pairwise:
    from reference.common._classes import Prior
    from reference.villacampa2017.hyper import prior_matrices

    problem = _twins("threshold")
    assert problem.Z is not None
    K = prior_matrices(
        problem.X, Prior(problem.variance, problem.lengthscales, problem.noise, problem.jitter, problem.Z)
    )
    strength = 1.0 / float(K.upsilon[2, 0] @ K.K_ZZ[2] @ K.upsilon[2, 0])
    label, other = np.zeros((problem.n, 3)), np.zeros((problem.n, 3))
    other[0, 2], other[1, 2] = 5.0 * strength, -2.0 * strength
    return _Pairwise(K, problem.y, label, other, strength)


@check(
    "identity/ep/improper_factors",
    paper="villacampa2017",
    question="Does a factor without a cavity stay in every schedule and form, counted, and is there no evidence then?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.villacampa2017.factors import Coefficients
    from reference.villacampa2017.methods import PairwiseEP
    from reference.villacampa2017.printed import PrintedEP

    case = _pairwise()
    zero = np.zeros_like(case.label)
    sites = Coefficients(case.label, zero + 0.1 * (case.other != 0.0), case.other, -0.2 * (case.other != 0.0))
    everything = np.arange(len(case.y))
    for schedule in ("parallel", "sequential"):
        steps = []
        for name, form in (("projected", PairwiseEP), ("printed", PrintedEP)):
            method = form(case.y, 3, 0.6, schedule)
            q = method.posterior(sites, case.K)
            step = method.step(sites, q, case.K, everything)
            steps.append(step)
            kept = all(after[0, 2] == before[0, 2] for after, before in zip(step.sites, sites, strict=True))
            moved = [k for k in range(len(case.y)) if (step.sites.c1_other[k] != sites.c1_other[k]).any()]
            wrong = not kept or moved != list(everything) or step.n_improper != 1
            yield flaws(wrong, f"{schedule}, {name}: {_WHY}; all data move but for that factor, counted once",
                         "reference", "factors moved otherwise")  # fmt: skip
            value = method.value(sites, q, case.K)
            yield flaws(value.log_evidence is not None, f"{schedule}, {name}: an improper cavity has no evidence",
                         "reference", "evidences")  # fmt: skip
            none = value.log_norm == 0.0
            wanted = np.eye(3, dtype=bool)[case.y]
            wanted[0, 2] = True
            yield flaws(int((none != wanted).sum()), f"{schedule}, {name}: log Z is zero there and for labels alone",
                         "reference", "normalisers")  # fmt: skip
            yield flaws(method.pulls(sites, q, case.K, np.ones(len(case.y)), False) is not None,
                         f"{schedule}, {name}: nor a gradient", "reference", "gradients")  # fmt: skip
        gap = _apart(steps[0].sites, steps[1].sites)
        yield Compared(gap, 1e-9, f"{schedule}: one sweep, contracted and as printed, of matrices 4 x 4", "reference",
                       "reference, as printed")  # fmt: skip


def _without_normaliser(case: _Pairwise) -> dict[str, list[int]]:
    """Data of which some factor has log Z = 0, by method; the prior is q."""
    from reference.common._classes import Prior
    from reference.villacampa2017.gfitc import refine_sites
    from reference.villacampa2017.posterior import Coefficients, Gaussians
    from reference.villacampa2020.hyper import prior_matrices
    from reference.villacampa2020.pep import pep_refine_factors
    from reference.villacampa2020.posterior import Coefficients as Powers

    zero = np.zeros_like(case.label)
    strong = np.zeros_like(case.label)
    strong[0, 2] = 1.5 * case.strength
    sites = Coefficients(zero, zero, strong, zero)
    latent_var = np.full_like(zero, 1.0 / case.strength)
    found = refine_sites(sites, zero + 0.1 * np.arange(3), latent_var, case.y)
    own = np.eye(3, dtype=bool)[case.y]
    results = {"gfitc": np.flatnonzero(((found.log_norm == 0.0) & ~own).any(axis=1)).tolist()}
    problem = _twins("threshold")
    prior = Prior(problem.variance, problem.lengthscales, problem.noise, problem.jitter, np.asarray(problem.Z))
    q, K = Gaussians(np.zeros(case.K.K_ZZ.shape[:2]), case.K.K_ZZ), prior_matrices(problem.X, prior)
    refined = pep_refine_factors(Powers(strong, zero), q, case.y, K, 0.1, 0.8)
    results["pep"] = np.flatnonzero(refined.log_norm == 0.0).tolist()
    return results


@check(
    "identity/ep/improper_data",
    paper="villacampa2017",
    question="Where the site of a datum has no cavity, are there no evidence and gradient, and moments without it?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.villacampa2017.datum import DatumSites
    from reference.villacampa2017.methods import DatumEP

    case = _pairwise()
    sites = DatumSites(case.other, 0.1 * (case.other != 0.0))
    everything = np.arange(len(case.y))
    for schedule in ("parallel", "sequential"):
        method = DatumEP(case.y, 3, 0.6, schedule)
        q = method.posterior(sites, case.K)
        step = method.step(sites, q, case.K, everything)
        kept = all(np.array_equal(after[0], before[0]) for after, before in zip(step.sites, sites, strict=True))
        moved = sum(bool((step.sites[0][k] != sites[0][k]).any()) for k in everything)
        yield flaws(not kept or step.n_improper != 1 or moved != len(case.y) - 1,
                     f"{schedule}: {_WHY}; the site stays in all classes, counted once", "reference",
                     "sites moved otherwise")  # fmt: skip
    value = method.value(sites, q, case.K)
    yield flaws(value.log_evidence is not None, "an improper cavity has no evidence", "reference", "evidences")
    lost = np.flatnonzero(value.log_norm == 0.0).tolist()
    yield flaws(lost != [0], f"log Z is zero for the first datum alone: {lost}", "reference", "normalisers")
    others = _without_normaliser(case)
    yield flaws(others != {"gfitc": [0], "pep": [0]}, f"for others too: {others}", "reference", "normalisers")
    yield flaws(method.pulls(sites, q, case.K, np.ones(len(case.y)), False) is not None, "nor a gradient",
                 "reference", "gradients")  # fmt: skip
    latents = method.latents(sites, q, case.K)
    mean = np.einsum("kim,km->ik", case.K.upsilon, q.mean)
    var = np.einsum("kim,kmp,kip->ik", case.K.upsilon, q.cov, case.K.upsilon) + case.K.cond_var.T
    gap = _apart(latents, (mean, var))
    yield Compared(gap, 1e-10, "moments of q itself: dense products of 4 x 4", "reference", "definition")


@check(
    "identity/epgpc/improper_sites",
    paper="wenzel2019",
    question="Do sites stay that have no cavity, counted, in order and at once, and do the others move as without?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.inputs import Hyper
    from fast.methods.epgpc_svi import SiteRun

    asked = tiny("probit")
    assert asked.Z is not None
    hyper = Hyper(
        float(asked.variance[0]),
        np.asarray(asked.lengthscales[0], dtype=np.float64),
        float(asked.noise[0]),
        float(asked.jitter[0]),
    )
    runs = [
        SiteRun(asked.X, asked.y_sign.astype(np.float64), asked.Z[0], hyper, np.zeros((2, asked.n)), 3)
        for _ in range(2)
    ]
    passed, plain = runs
    row = passed.view(np.array([0])).rows[0]
    # q knows nothing of this site: without it five times the prior's precision would be missing
    passed.precision[0], passed.shift[0] = 5.0 / float(row @ row), 0.3
    for each, batch in ((passed, np.array([0, 2, 5])), (plain, np.array([2, 5]))):
        each.step_in_order(batch, each.view(batch), 0.7)
    yield flaws(passed.n_improper != 1 or plain.n_improper != 0, "one of three sites is stronger than q", "fast",
                 "improper cavities miscounted")  # fmt: skip
    yield flaws(passed.precision[0] != 5.0 / float(row @ row) or passed.shift[0] != 0.3, "the site stays", "fast",
                 "sites moved otherwise")  # fmt: skip
    gap = _apart((passed.precision[2:], passed.shift[2:], *passed.sums), (plain.precision[2:], plain.shift[2:],
                                                                         *plain.sums))  # fmt: skip
    yield Compared(gap, 1e-12, "the same two sites refreshed without it", "fast", "fast, without that site")

    from reference.wenzel2019 import _prior, epgpc, fit_epgpc

    given = _prior.checked(asked.X, asked.y_sign, hyper.variance, hyper.lengthscales, hyper.noise, hyper.jitter,
                           asked.Z[0])  # fmt: skip
    K = _prior.matrices(given.X, given.hyper)
    reach = np.einsum("im,mp,ip->i", K.upsilon, K.K_ZZ, K.upsilon)  # variances of κu under the prior
    for strong in ([], [3], [0, 3, 6]):
        precision, shift = np.full(asked.n, 0.1), np.full(asked.n, 0.3)
        precision[strong] = 1.2 / reach[strong]
        precision[5] = 0.8 / reach[5]
        # q is the prior, and knows of no site
        q = epgpc.Gaussian(np.zeros(len(K.K_ZZ)), K.K_ZZ)
        sites = fit_epgpc.Sites(precision, shift)
        new, count = fit_epgpc._refreshed(q, sites, np.arange(asked.n), given.y_sign, K, 0.7)
        stay = [k for k in range(asked.n) if new.precision[k] == precision[k] and new.shift[k] == shift[k]]
        yield flaws(count != len(strong) or stay != strong, f"sites {strong} of eight are stronger than q: {count} are "
                    f"counted, {stay} stay", "reference", "improper cavities miscounted")  # fmt: skip


@check(
    "identity/nested-ep/passed_by",
    paper="riihimaki2013",
    question="Do outer and inner sweeps leave a site alone that has no cavity, and see the others as if it were done?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.riihimaki2013 import inner_ep
    from reference.riihimaki2013.fit import evidence_of
    from reference.riihimaki2013.posterior import ep_posterior, outer_schedule
    from reference.riihimaki2013.sites import Site

    rng = np.random.default_rng(41)
    n, c = 4, 3
    root = rng.standard_normal((c * n, 2 * c * n))
    K = root @ root.T / n
    precision, location = np.broadcast_to(np.eye(c), (n, c, c)).copy(), rng.standard_normal((n, c))
    asked: list[tuple[int, Array, Array]] = []

    def visit(i: int, mean: Array, cov: Array) -> Site | None:
        asked.append((i, mean.copy(), cov.copy()))
        return None if i == 1 else Site((2.0 + i) * np.eye(c), np.full(c, 0.1 * i))

    for schedule in ("parallel", "sequential"):
        asked.clear()
        swept = outer_schedule(K, precision, location, visit, schedule)
        wanted_precision, wanted_location = precision.copy(), location.copy()
        gaps = []
        for i, mean, cov in asked:
            stood = (wanted_precision, wanted_location) if schedule == "sequential" else (precision, location)
            q = ep_posterior(K, *stood)
            mine: NDArray[np.intp] = i + n * np.arange(c)
            gaps.append(_apart((mean, cov), (q.mean[mine], q.cov[np.ix_(mine, mine)])))
            if i != 1:
                wanted_precision[i], wanted_location[i] = (2.0 + i) * np.eye(c), np.full(c, 0.1 * i)
        gaps.append(_apart(swept[:2], (wanted_precision, wanted_location)))
        gaps.append(_apart(swept.posterior[:2], ep_posterior(K, wanted_precision, wanted_location)[:2]))
        left_out = [i for i, _, _ in asked] != list(range(n))
        yield Compared(np.inf if left_out else max(gaps), 1e-10, f"{schedule}: marginals from all sites so far, by (4)",
                       "reference", "definition")  # fmt: skip

    # classes that are independent: one of three without a cavity is enough, and a site as strong as the marginal too
    from reference.riihimaki2013.nested_ep import scalar_cavities

    mean, spread = np.array([0.3, -0.2, 0.5]), np.array([1.5, 0.8, 2.2])
    for shares in ((0.4, 0.2, -0.5), (1.2, 0.2, 0.3), (0.2, 1.0, 0.1), (0.1, 0.3, 1.7), (2.0, 2.0, 2.0)):
        site, pull = np.array(shares) / spread, np.array([0.1, 0.4, -0.3])
        found = scalar_cavities(mean, np.diag(spread) + 0.1 * (1.0 - np.eye(3)), site, pull)
        without: tuple[Array, ...] = ()
        if max(shares) < 1.0:
            left = 1.0 / (1.0 / spread - site)
            without = left * (mean / spread - pull), np.diag(left)
        wrong = (found is None) == bool(without) or (found is not None and _apart(found, without) > 1e-12)
        yield flaws(wrong, f"sites with {shares} of the marginal's precisions", "reference", "cavities")

    # an evidence needs every cavity, and every normaliser
    posterior = ep_posterior(K, precision, location)
    for missing in ("cavity", "normaliser", "none"):
        kind = _Kind(missing, precision, location)
        value, norms = evidence_of(cast(Any, kind), posterior, location)
        right = (value is None and norms.size == 0) if missing != "none" else (value is not None and norms.size == n)
        yield flaws(not right, f"an evidence where {missing} is missing: {value}", "reference", "evidences")

    # the first inner cavity is said to have no variance: its site stays, the second moves as with the first held
    mean, cov = np.array([0.2, -0.1, 0.4]), np.diag([1.0, 0.7, 1.4]) + 0.2
    alpha, beta = np.array([0.4, 0.2]), np.array([0.1, -0.3])
    cavity, count = inner_ep.inner_cavity, [0]

    def fails_first(*arguments: float) -> Any:
        count[0] += 1
        left = cavity(*arguments)
        return left._replace(var=np.inf) if count[0] == 1 else left

    with mock.patch.object(inner_ep, "inner_cavity", fails_first):
        passed = inner_ep.inner_ep(mean, cov, 0, alpha, beta, inner="incremental", inner_damping=0.6)
    augmented = inner_ep.augmented_tilted(mean, cov, 0)
    inner = inner_ep.inner_posterior(augmented.mu_w, augmented.Sigma_w, augmented.B_tilde, alpha, beta)
    b = augmented.B_tilde[:, 1]
    m, v = float(b @ inner.mean), float(b @ inner.cov @ b)
    left = cavity(m, v, 0.2, -0.3)
    hat = inner_ep.inner_tilted_moments(left.mean, left.var)
    change = inner_ep.inner_site_change(hat.mean, hat.var, m, v, 0.6)
    gap = _apart((passed.alpha, passed.beta), (alpha + np.array([0.0, change[0]]), beta + np.array([0.0, change[1]])))
    yield Compared(gap, 1e-12, "steps 1 to 3 of appendix A for the second site alone", "reference", "definition")
    yield flaws(passed.n_improper != 1, "one inner cavity is improper", "reference", "improper cavities miscounted")


class _Kind:
    """Sites of the judge for `evidence_of`, of which the third lacks something."""

    independent = False

    def __init__(self, missing: str, precision: Array, location: Array) -> None:
        self._missing, self._precision, self._location = missing, precision, location

    def cavity(self, i: int, mean: Array, cov: Array) -> Any:
        """None where the cavity is missing."""
        from reference.riihimaki2013.sites import cavity

        missing = self._missing == "cavity" and i == 2
        return None if missing else cavity(mean, cov, 0.1 * self._precision[i], 0.1 * self._location[i])

    def log_norm(self, i: int, cavity_mean: Array, cavity_cov: Array) -> float:
        """A number, or the error of a normaliser that is zero."""
        from reference.common.errors import NotPositiveDefiniteError

        if self._missing == "normaliser" and i == 2:
            raise NotPositiveDefiniteError("tilted normaliser: found 0, expected > 0")
        return -0.3 * i


@check(
    "identity/qiep/refused_moments",
    paper="riihimaki2013",
    question="Is a site refused whose tilted distribution is none or wider than the cavity, and rounding cut to zero?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.common.options import options_of
    from reference.riihimaki2013 import qep
    from reference.riihimaki2013.quadrature_ep import qiep_tilted_moments
    from reference.riihimaki2013.sites import Moments, Tilted, difference_matrix

    y, mean = np.array([0, 2, 1]), np.array([0.2, -0.1, 0.4])
    B = difference_matrix(3, 0)
    # shares of the cavity's own variance that the tilted one has, and what becomes of the site
    cases = ((0.6, 0.3, True), (1.0 + 1e-12, 0.3, True), (1.0 + 1e-6, 0.3, False), (0.6, 0.0, False),
             (-0.1, 0.3, False), (0.6, -0.2, False))  # fmt: skip
    for (share, norm, kept), size in itertools.product(cases, (1.0, 1e6)):
        cov = size * (np.diag([1.0, 0.7, 1.4]) + 0.2)
        cov_g = B.T @ cov @ B + 1.0  # of the differences to the label's value, to which one normal is added
        for diagonal in (False, True):
            hat = Tilted(norm, B.T @ mean + 0.1, share * cov_g)
            full = qep.QuadratureEP(
                y, 3, options_of("qep")(damping=0.7, nodes=3, lambda_="diagonal" if diagonal else "full")
            )
            with mock.patch.object(qep, "tilted_moments_quadrature", lambda *_, hat=hat: hat):
                proposal = full._propose(0, Moments(mean, cov))
            yield flaws((proposal is not None) != kept,
                         f"full, diagonal {diagonal}: {share:g} of the variance, mass {norm:g}: kept is {kept}",
                         "reference", "sites decided otherwise")  # fmt: skip
            if proposal is not None and not diagonal:
                wanted = np.linalg.inv(share * cov_g) - np.linalg.inv(cov_g)
                yield Compared(_apart(proposal[:1], (wanted,)), 1e-9, "Λ: differences of inverses 2 x 2", "reference",
                               "definition")  # fmt: skip
            if proposal is not None and diagonal:
                wrong = bool((proposal[0] != np.diag(np.maximum(np.diag(proposal[0]), 0.0))).any())
                yield flaws(wrong, "what is kept is diagonal and at least zero", "reference", "entries")
        scalar = qep.QuadratureIEP(y, 3, options_of("qiep")(damping=0.7, nodes=3))
        var = np.diag(cov)
        hat = Tilted(norm, mean + 0.1, share * var)
        with mock.patch.object(qep, "qiep_tilted_moments", lambda *_, hat=hat: hat):
            step = scalar.visit(0, mean, cov)
        yield flaws((step is not None) != kept,
                     f"independent: {share:g} of the variance, mass {norm:g}: kept is {kept}", "reference",
                     "sites decided otherwise")  # fmt: skip
        wanted = 0.7 * np.maximum(1.0 / (share * var) - 1.0 / var, 0.0) if kept else np.zeros(3)
        shift = 0.7 * ((mean + 0.1) / (share * var) - mean / var) if kept else np.zeros(3)
        gap = _apart((scalar.precision[0], scalar.location[0]), (wanted, shift))
        yield Compared(gap, 1e-12, "τ and ν after one damped step, or none", "reference", "definition")
    # one class so far ahead that no node has any mass
    far = np.array([-100.0, 0.0, 60.0])
    nothing = qiep_tilted_moments(far, np.array([1.0, 0.5, 2.0]), 0, 3)
    wrong = nothing.norm != 0.0 or not np.array_equal(nothing.mean, far)
    yield flaws(wrong or not np.array_equal(nothing.cov, [1.0, 0.5, 2.0]), "no mass at three nodes: the cavity",
                 "reference", "moments")  # fmt: skip


@check(
    "identity/qep/passes_in_order",
    paper="riihimaki2013",
    question="Do sites in order end where all at once do?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import quadrature_ep

    asked = tiny("multinomial-probit full")
    four, prior = (
        Data(asked.X[:4], asked.y[:4], 3),
        Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, None),
    )
    ends = []
    for schedule in ("parallel", "sequential"):
        options = replace(quadrature_ep.DEFAULTS, schedule=schedule, tolerance=1e-9, max_iterations=200)
        ends.append(quadrature_ep.fit_qep(four, prior, options))
    yield flaws(sum(not end.converged or not end.residual <= 1e-9 for end in ends), "both arrive", "fast", "runs")
    log_evidence = np.array([end.log_evidence for end in ends], dtype=np.float64)  # NaN where there is none
    yield Compared(
        abs(float(np.diff(log_evidence)[0])),
        1e-7,
        "log Z of sites to 1e-9 of their scale",
        "fast",
        "fast, all at once",
        "nat",
    )


@check(
    "identity/qiep/passed_by",
    paper="riihimaki2013",
    question="Do sites in order stay where their moments are refused, and the others go on?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.hyper import class_hyper
    from fast.full_classes.independent_sites import Tilt, independent_state, settle_independent
    from fast.full_classes.prior import MulticlassPrior
    from fast.solve.outer_loop import OuterOptions

    X, y = np.array([[0.1], [0.9], [1.7], [-0.6]]), np.array([0, 2, 1, 0])
    prior = MulticlassPrior(X, y, 3, class_hyper([0.8, 1.7, 1.2], [0.9], 0.1, 1e-3, 3, 1), False)
    tau, nu = np.full((4, 3), 0.5), np.full((4, 3), 0.2)
    asked: list[tuple[int, Array, Array]] = []

    def tilt(rows: NDArray[np.intp], mean: Array, var: Array) -> Tilt:
        asked.append((int(rows[0]), mean[0].copy(), var[0].copy()))
        return Tilt(np.full((1, 3), 1.0 + rows[0]), 0.3 * mean, np.array([rows[0] != 1]), np.array([0.05]))

    def log_norm(mean: Array, var: Array) -> Array:
        return -0.5 * mean.sum(axis=1)

    options = OuterOptions(max_iterations=1, damping=0.7, schedule="sequential", tolerance=1e-9)
    done = settle_independent(prior, tilt, log_norm, options, start=(tau, nu))
    at, gaps = (tau.copy(), nu.copy()), []
    K = [prior.K(k) for k in range(3)]
    for i, mean, var in asked:
        for k in range(3):
            # one value of a Gaussian with the other data's sites: densities in natural parameters, dense
            precision = np.linalg.inv(K[k]) + np.diag(at[0][:, k])
            S = np.linalg.inv(precision)
            m = S @ at[1][:, k]
            left = 1.0 / S[i, i] - at[0][i, k]
            gaps += [abs(1.0 / left - var[k]), abs((m[i] / S[i, i] - at[1][i, k]) / left - mean[k])]
        if i != 1:
            at[0][i] += 0.7 * (1.0 + i - at[0][i])
            at[1][i] += 0.7 * (0.3 * mean - at[1][i])
    wrong = [i for i, _, _ in asked] != [0, 1, 2, 3]
    yield Compared(np.inf if wrong else max(gaps), 1e-10, "cavities given what went before: inverses 4 x 4",
                   "fast", "definition", "difference")  # fmt: skip
    yield Compared(_apart(done.sites, at), 1e-11, "the second stays, the others take a damped step", "fast",
                   "definition")  # fmt: skip
    yield flaws(done.n_improper != 1 or done.converged, "one site refused: counted, and no end", "fast", "sites")
    evidence = independent_state(prior, at, log_norm).log_evidence
    gap = abs(float(done.trace[-1]) - evidence)
    yield Compared(gap, 1e-10, "the evidence of the sites that are left", "fast", "fast, from these sites", "nat")


@check(
    "identity/ep/edges_of_cavities",
    paper="villacampa2017",
    question="Is a cavity one that keeps some precision, however little, and does a site without one stay to the bit?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    """Precisions that take all of the marginal's, a little more or less; the numbers are binary, so none is rounded."""
    from fast.core.results import ScalarMoments
    from fast.full_classes import independent_sites
    from fast.likelihood.power import PowerMoments
    from fast.one_latent.sites import cavity
    from fast.sparse_classes import power_factors
    from fast.sparse_classes.pairwise_factors import PairSites, Pairwise

    left = np.array([-4.0, -1.0, -0.5, -(2.0**-30), 0.0, 2.0**-30, 0.5, 0.75])  # 1 - precision x variance
    n, var = left.size, 0.5
    precision, has_one = (1.0 - left) / var, left > 0.0
    rows: list[tuple[str, object, object]] = []
    one = cavity(np.full(n, 0.25), np.full(n, var), 1.0 - precision * var, precision, np.full(n, 0.125))
    rows.append(("of one latent value", one.proper.tolist(), has_one.tolist()))

    # of a factor of two classes each of its two sites may take too much, of a datum each of its classes
    y, moments = np.zeros(n, dtype=np.int64), ScalarMoments(np.full((n, 3), 0.25), np.full((n, 3), var))
    between = np.full((n, 3), 0.125)
    for k, side in ((1, "label"), (1, "other"), (2, "label")):
        sites = {name: np.where(np.arange(3) > 0, np.full((n, 3), 0.25), 0.0) for name in PairSites._fields}
        sites[f"c1_{side}"][:, k] = precision
        told = Pairwise().visit(y, moments, between, tuple(sites.values()))
        old, new = np.stack(tuple(sites.values())), np.stack(told.target)
        stays = (old == new).all(axis=0)[:, 1:]
        wanted = np.zeros((n, 2), dtype=bool)
        wanted[:, k - 1] = ~has_one
        name = f"factor with class {k}, site of its {side}"
        rows += [(f"{name}: stay", stays.tolist(), wanted.tolist()), (f"{name}: counted", told.n_improper, 5),
                 (f"{name}: evidence", bool(np.isnan(told.value)), True)]  # fmt: skip
    # the likelihood is a stand-in's: of variances that are none it has nothing to say
    anything = [np.full(n, -0.5), *(np.full((n, 3), -0.01) for _ in PowerMoments._fields[1:])]
    for alpha in (0.5, 1.0):
        for k in range(3):
            pair = np.full((n, 3), 0.25), np.full((n, 3), 0.125)
            pair[0][:, k] = precision / alpha
            with mock.patch.object(power_factors, "powered_labels", return_value=PowerMoments(*anything)):
                powered = power_factors.PowerDatum(alpha, 0.1).visit(y, moments, between, pair)
            stays = (np.stack(pair) == np.stack(powered.target)).all(axis=(0, 2))
            rows += [(f"power {alpha:g}, class {k}: stay", stays.tolist(), (~has_one).tolist()),
                     (f"power {alpha:g}, class {k}: counted", powered.n_improper, 5)]  # fmt: skip
    for k in range(3):
        tau = np.full((n, 3), 0.25)
        tau[:, k] = precision
        factors = [SimpleNamespace(cond_var=np.full(n, var))] * 3
        posterior = SimpleNamespace(factors=factors, mean=np.full((n, 3), 0.25), log_det=0.0)
        nothing: Any = None
        with mock.patch.object(independent_sites, "condition_independent", return_value=posterior):
            state = independent_sites.independent_state(nothing, (tau, between), lambda *_: np.zeros(n))
        rows += [(f"independent class {k}", state.proper.tolist(), has_one.tolist()),
                 (f"independent class {k}: evidence", bool(np.isnan(state.log_evidence)), True)]  # fmt: skip
    yield as_documented(rows, "fast", "cavities")
