"""Printed equations of villacampa2017 that no solver of `reference` needs, on what `fast` found.

Cavities, tilted moments, factors, evidence and gradient are evaluated on `fast`'s sites and q, where they must give
back its q, its sites, its log Z and its gradient. What no fixed point knows is held against dense algebra.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import multivariate_normal, norm

from reference.common.priors import Prior
from reference.villacampa2017 import (
    cavity,
    complexity,
    datum,
    errata,
    evidence,
    factors,
    gradients,
    model,
    posterior,
    prediction,
    protocol,
    sep,
    vi,
)
from validation.checks.apart import unconverged
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.print.printed import held, misprint
from validation.checks.witnesses.hard_problems import cells
from validation.checks.witnesses.villacampa2017 import DATUM, EP, PAPER, PARAMETERS, SEP, VI, largest, linear
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.judge.compare import WIDEST_LIMIT, identity_limit

Array = NDArray[np.float64]

THRESHOLD = ("two-points-3-sparse-threshold",)
ERRORS = ("two-points-3-sparse-errors",)
DENSE = "dense algebra"


class Given(NamedTuple):
    """The prior's matrices by the judge's own algebra."""

    K_ZZ: Array  # (C, m, m)
    K_XZ: Array  # (C, n, m)
    k_xx: Array  # (C, n)
    upsilon: Array  # (C, n, m)
    cond_var: Array  # (C, n)


def given(problem: Problem, X: Array | None = None) -> Given:
    """Of the data, or of X."""
    at = problem.X if X is None else X
    each = linear(problem, at)
    K_ZZ, upsilon, cond_var = (
        np.stack([getattr(part, name) for part in each]) for name in ("K", "upsilon", "cond_var")
    )
    k_xx = np.repeat((problem.variance + problem.noise)[:, None], len(at), axis=1)
    return Given(K_ZZ, upsilon @ K_ZZ, k_xx, upsilon, cond_var)


def distribution(answer: Solution) -> posterior.Gaussians:
    """q of an answer."""
    assert answer.inducing_mean is not None
    assert answer.inducing_cov is not None
    return posterior.Gaussians(answer.inducing_mean, answer.inducing_cov)


def coefficients(answer: Solution) -> posterior.Coefficients:
    """Sites of an answer of ep."""
    return posterior.Coefficients(*(answer.local[name] for name in posterior.Coefficients._fields))


def pairs(problem: Problem) -> list[tuple[int, int, int]]:
    """(i, y_i, k) of every factor."""
    return [(i, int(y), k) for i, y in enumerate(problem.y) for k in range(problem.n_classes) if k != y]


def g(mean: Array, cov: Array) -> float:
    """The log-normaliser (59), by the density at zero."""
    return -float(multivariate_normal(mean, cov).logpdf(np.zeros(len(mean))))


# -- the model ---------------------------------------------------------------------------------------------------------


@check(
    "print/ep/model",
    paper=PAPER,
    question="(1) to (7), (19) and (33), labels and kernel as printed agree with scipy's distributions.",
    problems=THRESHOLD,
)
def printed_model(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Labels, kernel, prior, conditional, exact and pairwise factors at inducing values that fast's q has in mind."""
    answer = EP.solve(context, "fast", problem)
    yield from unconverged((answer,))
    assert problem.Z is not None
    K, u, C = given(problem), distribution(answer).mean, problem.n_classes
    assert answer.latent_mean is not None
    labels = model.label_from_latents(answer.latent_mean)
    yield held("labels", labels, problem.y, "labels of the data, whose latent means are the largest")
    ties = np.array([0.7, -0.2, 0.7])
    wins = [[model.hard_max_likelihood(f, y) for y in range(C)] for f in (ties, u[:, 0], ties - 1.0, 1.0 - ties)]
    shares = [[0.5, 0.0, 0.5], np.eye(C)[np.argmax(u[:, 0])], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]
    yield held("(1)", wins, shares, "shares of the largest")
    for k in range(C):
        amplitude, scale = float(np.sqrt(problem.variance[k])), problem.lengthscales[k]
        own = model.ard_gaussian_kernel(problem.Z[k], None, amplitude, scale, float(problem.jitter[k]))
        yield held(f"kernel of class {k}", own, K.K_ZZ[k], DENSE)
        cross = model.ard_gaussian_kernel(problem.X, problem.Z[k], amplitude, scale, 5.0)
        yield held(f"kernel of class {k} across", cross, K.K_XZ[k], DENSE)
    points = [problem.replace(Z=np.repeat(problem.X[None], C, axis=0), jitter=np.zeros(C))]
    dense = np.stack([part.K for part in linear(points[0], problem.X)])
    yield held("prior of f", model.gp_prior(problem.X, problem.variance, problem.lengthscales), dense, DENSE)
    prior = sum(multivariate_normal(cov=K.K_ZZ[k]).logpdf(u[k]) for k in range(C))
    yield held("(19)", model.inducing_prior(u, K.K_ZZ), prior, "scipy.stats")
    mean = np.einsum("knm,km->kn", K.upsilon, u)
    by_datum = [model.conditional_variance(float(K.k_xx[0, i]), K.K_XZ[0, i], K.K_ZZ[0]) for i in range(problem.n)]
    yield held("(5)", by_datum, K.cond_var[0], DENSE)
    fitc = model.fitc_conditional(u, K.k_xx, K.K_XZ, K.K_ZZ)
    yield held("(4) in p_FITC", fitc.mean, mean, DENSE)
    yield held("(5) in p_FITC", fitc.var, K.cond_var, DENSE)
    exact, paired = [], []
    for i, y in enumerate(problem.y):
        exact.append(largest(int(y), mean[:, i], K.cond_var[:, i])[0])
        margins = [(mean[y, i] - mean[k, i]) / np.sqrt(K.cond_var[y, i] + K.cond_var[k, i]) for k in range(C)]
        others = [k for k in range(C) if k != y]
        paired.append(sum(norm.logcdf(margins[k]) for k in others))
        for k in others:
            pair = mean[y, i], mean[k, i], K.cond_var[y, i], K.cond_var[k, i]
            yield held(f"margin ({i}, {k})", model.standardised_margin(*pair), margins[k], DENSE)
            yield held(f"(33) of ({i}, {k})", model.pairwise_factor(*pair), norm.cdf(margins[k]), "scipy.stats")
    results = [model.exact_site_factor(mean[:, i], K.cond_var[:, i], int(y)) for i, y in enumerate(problem.y)]
    yield held("(3)", results, np.exp(exact), "an adaptive integral")
    results = [
        model.pairwise_probit_approximation(mean[:, i], K.cond_var[:, i], int(y)) for i, y in enumerate(problem.y)
    ]
    yield held("(6)", results, np.exp(paired), "scipy.stats")
    whole = (u, problem.y, K.k_xx, K.K_XZ, K.K_ZZ)
    yield held("(2)", model.fitc_inducing_posterior(*whole), prior + sum(exact), "an adaptive integral")
    yield held("(7)", model.approximate_inducing_posterior(*whole), prior + sum(paired), "scipy.stats")


# -- factors -----------------------------------------------------------------------------------------------------------


@check(
    "print/ep/factors",
    paper=PAPER,
    question="(20) to (23) and (28) to (55), evaluated on fast's sites and q, give its q and its sites.",
    problems=THRESHOLD,
)
def printed_factors(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Factor by factor: cavity, log Z and its derivatives, tilted moments, the factor that is recovered from them."""
    answer = EP.solve(context, "fast", problem)
    yield from unconverged((answer,))
    K, q, sites = given(problem), distribution(answer), coefficients(answer)
    table: dict[str, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    printed: tuple[list[float], list[float], list[float]] = ([], [], [])

    def note(name: str, actual: Any, expected: Any) -> None:
        table[name][0].append(actual)
        table[name][1].append(expected)

    for i, y, k in pairs(problem):
        c1 = {y: float(sites.c1_label[i, k]), k: float(sites.c1_other[i, k])}
        c2 = {y: float(sites.c2_label[i, k]), k: float(sites.c2_other[i, k])}
        cavities, a, b = {}, {}, {}
        for j in (y, k):
            v, V = K.upsilon[j, i], q.cov[j]
            precision, shift = posterior.factor_precision(c1[j], v), posterior.factor_linear(c2[j], v)
            note("(20), (21)", precision, c1[j] * v[:, None] * v[None])
            note("(22), (23)", shift, [c2[j] * part for part in v])
            left = np.linalg.inv(V) - c1[j] * np.outer(v, v)
            cov = np.linalg.inv(left)
            mean = cov @ (np.linalg.solve(V, q.mean[j]) - c2[j] * v)
            full, short = cavity.cavity_distribution(q.mean[j], V, precision, shift), cavity.cavity(
                q.mean[j], V, v, c1[j], c2[j]
            )  # fmt: skip
            for name, distribution_ in (("(28)", full), ("(29) to (32)", short)):
                note(f"{name}, means", distribution_.mean, mean)
                note(f"{name}, covariances", distribution_.cov, cov)
            cavities[j] = full
            a[j], b[j] = float(v @ mean), float(K.cond_var[j, i] + v @ cov @ v)
            kernel = float(K.k_xx[j, i]), K.K_XZ[j, i], K.K_ZZ[j]
            note("(37), (38)", cavity.cavity_latent_variance(*kernel, full.cov), b[j])
        note("(50)", posterior.factor_precisions(c1[y], c1[k], K.upsilon[y, i], K.upsilon[k, i]),
             [c1[j] * np.outer(K.upsilon[j, i], K.upsilon[j, i]) for j in (y, k)])  # fmt: skip
        b_sum = b[y] + b[k]
        ratio = factors.probit_ratio(a[y], a[k], b[y], b[k])
        alpha = (a[y] - a[k]) / np.sqrt(b_sum)
        note("margin below (42)", ratio.alpha, alpha)
        note("ratio below (42)", ratio.beta, norm.pdf(alpha) / norm.cdf(alpha))
        note("(34)", factors.pairwise_log_normaliser(a[y], a[k], b[y], b[k]), answer.local["log_tilted_norm"][i, k])
        for j in (y, k):
            v = K.upsilon[j, i]
            derivative = (factors.dlogz_dmean_label if j == y else factors.dlogz_dmean_other)(ratio.beta, b_sum, v)
            derivative_cov = factors.dlogz_dcov(*ratio, b_sum, v)
            tilted = cavity.Cavity(
                factors.tilted_mean(*cavities[j], derivative),
                factors.tilted_covariance(cavities[j].cov, derivative, derivative_cov),
            )
            note("(39), (40) in (43), (44)", tilted.mean, q.mean[j])
            note("(41), (42) in (45), (46)", tilted.cov, q.cov[j])
            distributions = q.cov[j], cavities[j].cov
            note("(47)", factors.factor_precision_from_moments(*distributions), c1[j] * np.outer(v, v))
            linear_part = factors.factor_linear_from_moments(q.mean[j], distributions[0], *cavities[j])
            note("(51), (54), (55)", linear_part, c2[j] * v)
            recovered = factors.recover_factor(tilted, cavities[j])
            note("recovered precision", recovered.precision, c1[j] * np.outer(v, v))
            note("recovered linear part", recovered.shift, c2[j] * v)
            note("(48), (49)", factors.update_c1(*ratio, b_sum, v, cavities[j].cov), c1[j])
            parts = ratio.beta, b_sum, c1[j], v, *cavities[j]
            if j == y:
                note("(52)", factors.update_c2_label(*parts), c2[j])
            else:
                note("(53)", factors.update_c2_other(*parts), c2[j])
                beta = norm.pdf(alpha) / norm.cdf(alpha) / np.sqrt(b_sum)
                printed[0].append(errata.update_c2_other_as_printed(*parts))
                printed[1].append(beta + c1[j] * (v @ cavities[j].mean) + beta * c1[j] * (v @ cavities[j].cov @ v))
                printed[2].append(c2[j])
    for name, (actual, expected) in table.items():
        yield held(name, actual, expected, f"fast's sites and q, by {DENSE}")
    yield from misprint("(53)", *printed, 0.1)
    v = K.upsilon[0, 0]
    far, cov = -8.0, 0.5 * distribution(answer).cov[0]
    beta = float(np.exp(norm.logpdf(far) - norm.logcdf(far)))
    bent = beta * (beta + far) / 40.0
    bent /= 1.0 - bent * (v @ cov @ v)
    yield held("(48) far out", factors.update_c1(far, beta, 40.0, v, cov), bent, "scipy.stats")


@check(
    "print/ep/evidence",
    paper=PAPER,
    question="(9), (18), (24), (56) to (61), evaluated on fast's sites and q, give its log Z and the density of q.",
    problems=THRESHOLD,
)
def printed_evidence(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Scales of factors in two forms, log Z_q in two forms, and q as the product of factors and prior."""
    answer = EP.solve(context, "fast", problem)
    yield from unconverged((answer,))
    K, q, sites, C = given(problem), distribution(answer), coefficients(answer), problem.n_classes
    u = q.mean + np.array([[0.3, -0.4], [0.5, 0.2], [-0.1, 0.6]])
    natural = [posterior.Natural(np.linalg.inv(V), np.linalg.solve(V, m)) for m, V in zip(*q, strict=True)]
    scales, by_moments, expected = (np.zeros((problem.n, C)) for _ in range(3))
    printed: tuple[list[float], list[float], list[float]] = ([], [], [])
    whole, products, own = [], [], []
    log_norm = answer.local["log_tilted_norm"]
    for i, y, k in pairs(problem):
        parts = ((y, float(sites.c1_label[i, k]), float(sites.c2_label[i, k])),
                 (k, float(sites.c1_other[i, k]), float(sites.c2_other[i, k])))  # fmt: skip
        left = [
            posterior.Natural(
                natural[j].precision - c1 * np.outer(K.upsilon[j, i], K.upsilon[j, i]),
                natural[j].shift - c2 * K.upsilon[j, i],
            )
            for j, c1, c2 in parts
        ]
        moments = [
            cavity.Cavity(np.asarray(np.linalg.solve(*part)), np.asarray(np.linalg.inv(part.precision)))
            for part in left
        ]
        printed_g = [evidence.gaussian_log_normaliser(*part) for part in moments]
        yield held(f"(59) of ({i}, {k})", printed_g, [g(*part) for part in moments], "minus the log density at 0")
        before, after = sum(g(*part) for part in moments), sum(g(q.mean[j], q.cov[j]) for j in (y, k))
        log_z = float(log_norm[i, k])
        expected[i, k] = log_z + before - after
        scales[i, k] = evidence.factor_log_scale(log_z, left, [natural[j] for j in (y, k)])
        by_moments[i, k] = evidence.factor_log_scale_from_moments(
            log_z, moments, [cavity.Cavity(q.mean[j], q.cov[j]) for j in (y, k)]
        )
        yield from misprint(
            f"(56) of ({i}, {k})",
            errata.factor_scale_as_printed(log_z, before, after),
            expected[i, k],
            np.exp(expected[i, k]),
            0.1,
        )
        printed[0].append(errata.factor_log_scale_from_moments_as_printed(log_z, moments[0]))
        printed[1].append(log_z)
        printed[2].append(expected[i, k])
        site = posterior.Site(
            float(expected[i, k]),
            *(part for j, c1, c2 in parts for part in (
                c1 * np.outer(K.upsilon[j, i], K.upsilon[j, i]), c2 * K.upsilon[j, i])),
        )  # fmt: skip
        whole.append((y, k, site))
        products.append(posterior.approximate_factor(site, u[y], u[k]))
        w = [K.upsilon[j, i] @ u[j] for j, _, _ in parts]
        exponent = sum(c2 * x - 0.5 * c1 * x**2 for x, (_, c1, c2) in zip(w, parts, strict=True))
        own.append(np.exp(expected[i, k] + exponent))
    yield held("(58)", scales, expected, DENSE)
    yield held("(61)", by_moments, expected, DENSE)
    by_rank_one = evidence.factor_log_scale_rank_one(log_norm, sites, q, problem.y, K.upsilon)
    yield held("below (61), of rank one", by_rank_one, expected, DENSE)
    yield from misprint("(61)", *printed, 0.1)
    yield held("(8), (18)", products, own, DENSE)
    assert answer.log_evidence is not None
    prior = [posterior.Natural(np.linalg.inv(part), np.zeros(len(part))) for part in K.K_ZZ]
    yield held("(9), (57)", evidence.ep_log_evidence(natural, prior, scales), answer.log_evidence, "fast, log Z")
    density = sum(multivariate_normal(q.mean[k], q.cov[k]).logpdf(u[k]) for k in range(C))
    result = posterior.posterior_approximation(u, whole, K.K_ZZ, answer.log_evidence)
    yield held("(24)", result, density, "fast's q")
    yield held("(60)", evidence.ep_log_evidence_from_moments(q, K.K_ZZ, scales), answer.log_evidence, "fast, log Z")
    read = answer.log_evidence + 0.5 * sum(
        np.linalg.slogdet(part)[1] - np.prod(np.linalg.eigvalsh(part)) for part in K.K_ZZ
    )
    yield from misprint(
        "(60)", errata.ep_log_evidence_from_moments_as_printed(q, K.K_ZZ, scales), read, answer.log_evidence, 0.1
    )


@check(
    "print/ep/sweep",
    paper=PAPER,
    question="The printed sweep does not move fast's sites, and makes the first sites from nothing.",
    problems=THRESHOLD,
)
def printed_sweep(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Refinement and parallel updates at the fixed point, and from factors of one."""
    answer = EP.solve(context, "fast", problem)
    yield from unconverged((answer,))
    K, q, sites, C = given(problem), distribution(answer), coefficients(answer), problem.n_classes
    refined = factors.ep_refine_factors(sites, q, problem.y, K.k_xx, K.K_XZ, K.K_ZZ)
    for name, value, kept in zip(sites._fields, refined.coefficients, sites, strict=True):
        yield held(f"refinement of {name}", value, kept, "fast's sites")
    yield held("log Z of factors", refined.log_norm, answer.local["log_tilted_norm"], "fast")
    yield held("improper cavities", refined.n_improper, answer.n_improper, "fast")
    # from factors of one: the cavity is the prior, with mean zero
    expected = posterior.Coefficients(*(np.zeros((problem.n, C)) for _ in range(4)))
    derivative = np.sqrt(2.0 / np.pi)
    for i, y, k in pairs(problem):
        # K_ZZ holds jitter: the latent variance is what is left given u, and what u says
        b_sum = sum(K.cond_var[j, i] + K.upsilon[j, i] @ K.K_ZZ[j] @ K.upsilon[j, i] for j in (y, k))
        for j, c1, c2, sign in ((y, *expected[:2], 1.0), (k, *expected[2:], -1.0)):
            observed = K.upsilon[j, i] @ K.K_ZZ[j] @ K.upsilon[j, i]
            c1[i, k] = 1.0 / (b_sum / derivative**2 - observed)
            c2[i, k] = sign * derivative / np.sqrt(b_sum) * (1.0 + c1[i, k] * observed)
    start = posterior.Coefficients(*(np.zeros((problem.n, C)) for _ in range(4)))
    prior = posterior.Gaussians(np.zeros(K.K_ZZ.shape[:2]), K.K_ZZ)
    new, there, _ = factors.parallel_ep_sweep(start, prior, problem.y, K.k_xx, K.K_XZ, K.K_ZZ, 0.3)
    for name, value, part in zip(sites._fields, new, expected, strict=True):
        yield held(f"first {name}, damped", value, 0.3 * part, DENSE)
    precision, shift = np.linalg.inv(K.K_ZZ), np.zeros((C, K.K_ZZ.shape[1]))
    for i, y, k in pairs(problem):
        for j, c1, c2 in ((y, *expected[:2]), (k, *expected[2:])):
            precision[j] += 0.3 * c1[i, k] * np.outer(K.upsilon[j, i], K.upsilon[j, i])
            shift[j] += 0.3 * c2[i, k] * K.upsilon[j, i]
    cov = np.linalg.inv(precision)
    yield held("covariances after a sweep", there.cov, cov, DENSE)
    yield held("means after a sweep", there.mean, np.einsum("kij,kj->ki", cov, shift), DENSE)


@check(
    "print/ep/datum",
    paper=PAPER,
    question="The derivatives of the exact factor's log Z give fast's latent moments.",
    problems=THRESHOLD,
)
def printed_datum(context: Context, problem: Problem) -> Iterable[Outcome]:
    """One factor a datum: log Z of (3), and by its derivatives the moments of the latent values under q."""
    answer = DATUM.solve(context, "fast", problem)
    yield from unconverged((answer,))
    assert answer.latent_mean is not None
    assert answer.latent_cov is not None
    K, q = given(problem), distribution(answer)
    results: tuple[list[Any], ...] = ([], [], [])
    for i, y in enumerate(problem.y):
        observed = K.upsilon[:, i]
        p, v = np.einsum("km,km->k", observed, q.mean), np.einsum("km,kmj,kj->k", observed, q.cov, observed)
        c1, c2 = answer.local["site_precision"][i], answer.local["site_shift"][i]
        mean, var = (p - c2 * v) / (1.0 - c1 * v), v / (1.0 - c1 * v) + K.cond_var[:, i]
        tilt = datum.datum_tilted(mean, var, int(y))
        for part, value in zip(results, (tilt.log_norm, mean + var * tilt.derivative, var - var**2 * tilt.curvature),
                               strict=True):  # fmt: skip
            part.append(value)
    yield held("log Z of (3)", results[0], answer.local["log_tilted_norm"], "fast")
    yield held("means by derivatives of (3)", results[1], answer.latent_mean, "fast")
    yield held("variances by curvatures of (3)", results[2], [np.diag(part) for part in answer.latent_cov], "fast")
    # two values that are known: what is above both is a tail of a Gaussian
    mean, var = np.array([0.3, -0.2, 0.5]), np.array([0.0, 1.7, 0.0])
    found_norm, expected = datum.datum_tilted(mean, var, 1).log_norm, norm.logsf(0.7 / np.sqrt(1.7))
    yield held("log Z of (3), two values known", found_norm, expected, "scipy.stats")


# -- gradient, prediction ----------------------------------------------------------------------------------------------


@check(
    "print/ep/gradient",
    paper=PAPER,
    question="(10), (12), (62) to (64), evaluated on fast's sites, are fast's gradient, and (10) is wrong for SEP.",
    problems=THRESHOLD,
)
def printed_gradient(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Every derivative, of all data and as a mean over mini-batches of one datum."""
    answer, tied = EP.solve(context, "fast", problem), SEP.solve(context, "fast", problem)
    yield from unconverged((answer, tied))
    assert answer.gradients is not None
    assert problem.Z is not None
    K, q, sites = given(problem), distribution(answer), coefficients(answer)
    distributions = gradients.distributions_of(sites, q, problem.y, K.k_xx, K.K_XZ, K.K_ZZ)
    at = distributions, problem.y, K.K_ZZ
    directions = gradients.hyper_directions(problem.X, problem.Z, problem.variance, problem.lengthscales)
    scale = max(float(np.abs(answer.gradients[name]).max()) for name in PARAMETERS)
    for name in PARAMETERS:
        expected = answer.gradients[name].ravel()
        results = [gradients.ep_log_evidence_gradient(*at, along) for along in directions[name]]
        yield held(f"(10) in {name}", np.append(results, scale), np.append(expected, scale), "fast")
        means = [
            np.mean([gradients.minibatch_log_evidence_gradient(*at, along, np.array([i]))
                     for i in range(problem.n)])
            for along in directions[name]
        ]  # fmt: skip
        yield held(f"(12) in {name}, mean", np.append(means, scale), np.append(expected, scale), "fast")
    inverse, along = np.linalg.inv(K.K_ZZ[0]), directions["Z"][0].K_ZZ[0]
    chain = [inverse, q.cov[0], inverse, along]
    yield held("rotated trace", gradients.cyclic_trace(chain), np.trace(inverse @ q.cov[0] @ inverse @ along), DENSE)
    factor = [posterior.Natural(*part) for part in zip(tied.local["tied_precision"], tied.local["tied_shift"],
                                                      strict=True)]  # fmt: skip
    prior = Prior(problem.variance, problem.lengthscales, problem.noise, problem.jitter, problem.Z)
    printed = errata.sep_log_evidence_gradient_as_printed(factor, problem.X, problem.y, prior)
    assert tied.gradients is not None
    right, step = [], 1e-3
    for k in range(problem.n_classes):
        ends = []
        for sign in (1.0, -1.0):
            moved = problem.variance.copy()
            moved[k] *= 1.0 + sign * step
            there = SEP.solve(context, "fast", problem.replace(variance=moved, X_test=None), gradients=False)
            assert there.log_evidence is not None
            ends.append(there.log_evidence)
        right.append((ends[0] - ends[1]) / (2.0 * step * problem.variance[k]))
    for name in PARAMETERS[1:]:
        yield held(f"(10) of SEP in {name} as printed", printed[name], tied.gradients[name], "fast, the same rule")
    yield from misprint("(10) of SEP", printed["variance"], tied.gradients["variance"], right, 0.1)


@check(
    "print/ep/prediction",
    paper=PAPER,
    question="(11), evaluated on fast's q, is fast's distribution of new labels.",
    problems=THRESHOLD,
)
def printed_prediction(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Probabilities and their sum before normalising."""
    answer = EP.solve(context, "fast", problem)
    yield from unconverged((answer,))
    assert problem.X_test is not None
    K = given(problem, problem.X_test)
    result = prediction.predictive_distribution(distribution(answer), K.k_xx, K.K_XZ, K.K_ZZ)
    yield held("(11)", result.probability, answer.probabilities, "fast")
    yield held("sums in (11)", result.probability_mass, np.ones(len(problem.X_test)), "one")


# -- the variational rival ---------------------------------------------------------------------------------------------


@check(
    "print/vi-robust/bound",
    paper=PAPER,
    question="(13) to (17), evaluated on fast's q, are fast's latent moments and its bound.",
    problems=ERRORS,
)
def printed_bound(context: Context, problem: Problem) -> Iterable[Outcome]:
    """The bound in its inner form at fast's q, in its outer form where the Gauss-Hermite rule is exact."""
    answer = VI.solve(context, "fast", problem)
    yield from unconverged((answer,))
    assert answer.latent_mean is not None
    assert answer.latent_cov is not None
    K, q, C, epsilon = given(problem), distribution(answer), problem.n_classes, float(problem.epsilon)
    f = answer.latent_mean[0]
    best = np.where(np.arange(C) == np.argmax(f), 1.0 - epsilon, 0.0) + epsilon / C
    yield held("(13)", [vi.robust_likelihood(f, y, epsilon) for y in range(C)], best, "its two values")
    var = np.stack([np.diag(part) for part in answer.latent_cov])
    results = [vi.vi_marginal_variance(float(K.k_xx[k, 0]), K.K_XZ[k, 0], K.K_ZZ[k], q.cov[k]) for k in range(C)]
    yield held("(17)", results, var[0], "fast")
    observed = vi.vi_latent_marginal(q, K.k_xx, K.K_XZ, K.K_ZZ)
    yield held("(16) for all", observed.mean, answer.latent_mean, "fast")
    yield held("(17) for all", observed.var, var, "fast")
    low, high = np.log(epsilon / C), np.log1p(epsilon / C - epsilon)
    wins = answer.local["label_probability"]
    by_datum = vi.expected_log_likelihood(answer.latent_mean, var, problem.y, epsilon)
    yield held("expected log-likelihood", by_datum, wins * high + (1.0 - wins) * low, "fast")
    found_bound = vi.variational_elbo(q, problem.y, K.k_xx, K.K_XZ, K.K_ZZ, epsilon)
    yield held("(15)", found_bound, answer.log_evidence, "fast")
    values = q.mean + 0.3 * np.arange(C)[:, None]
    given_f = np.stack([K.K_XZ[k] @ np.linalg.solve(K.K_ZZ[k], values[k]) for k in range(C)], axis=1)
    open_var = np.stack(
        [K.k_xx[k] - np.sum(K.K_XZ[k].T * np.linalg.solve(K.K_ZZ[k], K.K_XZ[k].T), axis=0) for k in range(C)], axis=1
    )
    sure = np.exp([largest(int(y), *both)[0] for y, *both in zip(problem.y, given_f, open_var, strict=True)])
    inner = vi.vi_inner_bound(values, problem.y, K.k_xx, K.K_XZ, K.K_ZZ, epsilon)
    yield held("above (14)", inner, np.sum(low + (high - low) * sure), "adaptive integrals")
    # test inputs with labels of the judge's, whose probabilities are adaptive integrals
    assert answer.test_latent_mean is not None
    assert answer.test_latent_cov is not None
    t, labels = 2, np.array([0, 2])
    means, spread = answer.test_latent_mean[:t], np.stack([np.diag(part) for part in answer.test_latent_cov[:t]])
    sure = np.exp([largest(int(labels[j]), means[j], spread[j])[0] for j in range(t)])
    record = vi.record_jensen_gap(means, spread, labels, epsilon)
    outside = np.mean(np.log((1.0 - epsilon) * sure + epsilon / C))
    yield held("log E[p]", record.log_expected, outside, "adaptive integrals")
    yield held("E[log p]", record.expected_log, np.mean(low + (high - low) * sure), "adaptive integrals")
    # polynomials of second degree, whose means a rule of three nodes has exactly
    weights = np.array([[0.3, -0.2], [0.7, 0.4], [-0.5, 0.1]])

    def quadratic(values: Array) -> float:
        return float(np.sum(weights * values) - 0.5 * np.sum(values**2))

    kl = 0.0
    for m, S, prior in zip(q.mean, q.cov, K.K_ZZ, strict=True):
        kl += -multivariate_normal(m, S).entropy() - multivariate_normal(cov=prior).logpdf(m)
        kl += 0.5 * np.trace(np.linalg.solve(prior, S))
    mean = quadratic(q.mean) - 0.5 * sum(np.trace(S) for S in q.cov)
    yield held("(14)", vi.vi_outer_bound(q, quadratic, K.K_ZZ, 3), mean - kl, DENSE)

    def log_polynomial(values: Array) -> float:
        return float(np.log((1.0 + np.sum(weights * values)) ** 2))

    total = 1.0 + sum(w @ prior @ w for w, prior in zip(weights, K.K_ZZ, strict=True))
    printed = errata.log_evidence_as_printed(log_polynomial, K.K_ZZ, 3)
    yield from misprint("(14)", printed, total, np.log(total), 0.1)


# -- protocol ----------------------------------------------------------------------------------------------------------


@check(
    "print/ep/protocol",
    paper=PAPER,
    question="Starts, training settings and counts of the experiments are those of sections 2 and 4.",
    problems=THRESHOLD,
)
def printed_protocol(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Settings of section 4 as numbers, and the costs of section 2 by counting products."""
    X = np.arange(10.0).reshape(5, 2)
    start = protocol.initialise_hyperparameters(np.random.default_rng(7), X, 4, 3, 1.5, np.array([0.5, 0.7]), 0.2, 1e-3)
    rows = [sorted(int(np.flatnonzero((z == X).all(axis=1))[0]) for z in Z) for Z in start.Z]
    yield held("distinct inputs", [len(set(part)) for part in rows], [4, 4, 4], "rows of X")
    shapes = start.variance, start.lengthscales, start.noise, start.jitter
    for name, result, value in zip(PARAMETERS, shapes, (1.5, [0.5, 0.7], 0.2, 1e-3), strict=False):
        yield held(f"start of {name}", result, np.array([value] * 3), "one value a class")
    for method in protocol.METHODS:
        batch, toy = protocol.batch_optimiser_choice(method), protocol.toy_training_settings(method, 950)
        quasi = method in ("gfitc", "vi-robust")
        numbers = batch.iterations, batch.quasi_newton, batch.optimizer == "lbfgs", batch.optimizer == "adaptive"
        yield held(f"training of {method}", numbers, (250, quasi, quasi, not quasi), "section 4.1")
        own = (20_000, 100, True) if method == "vi-robust" else (2000, 950, False)
        steps = toy.n_steps, toy.batch_size, toy.optimizer == "adam"
        yield held(f"toy training of {method}", steps, own, "section 4.2")
        same = toy.optimizer == ("adam" if method == "vi-robust" else batch.optimizer), toy.learn == ("Z",)
        yield held(f"toy optimiser of {method}", same, (True, True), "section 4.2")
    for method, size in itertools.product(("ep", "sep"), (None, 3)):
        counts, n, m, C = complexity.complexity_table(method, 11, 5, 3, size), 11, 5, 3
        work = sum(m * m for _ in range(C) for _ in range(size or n)) + sum(m * m for _ in range(C) for _ in range(m))
        kept = np.zeros((C, n, m) if method == "ep" else (C, m, m)).size
        yield held(f"counts of {method}, {size or 'all'}", counts, (work, kept), "products counted")


# -- hard cases --------------------------------------------------------------------------------------------------------


def hard_fixed_points(context: Context, method: str) -> Iterator[tuple[Solution, float, str]]:
    """What fast claims on the hard cases of a method, with the limit of `compare` and the case's name.

    Where fast claims nothing, or float64 decides less than three digits, there is no fixed point to sweep from.
    """
    for cell in cells(method):
        limit, _ = identity_limit(cell.problem)
        try:
            answer = context.solve("fast", method, cell.problem, **cell.options)
        except (ValueError, np.linalg.LinAlgError):  # refused by name: `identity/METHOD/hard-cases` reads the name
            continue
        if answer.converged and limit <= WIDEST_LIMIT:
            yield answer, limit, cell.problem.name


def unmoved(moved: float, limit: float, name: str) -> Compared:
    """One printed sweep against fast's fixed point."""
    why = f"{name}: largest undamped change of a factor in units of q, at a fixed point within the limit of `compare`"
    return Compared(moved, limit, why, "printed sweep", "fast's fixed point", "change of a factor")


@check(
    "print/ep/hard-cases",
    paper=PAPER,
    question="One printed sweep of EP does not move fast's sites, on every hard case.",
    problems=(),
    full=(NO_PROBLEM,),
)
def printed_ep_hard_cases(context: Context, problem: None) -> Iterable[Outcome]:
    """(29) to (53) from fast's sites and q."""
    for answer, limit, name in hard_fixed_points(context, "ep"):
        K = given(answer.problem)
        refined = factors.ep_refine_factors(
            coefficients(answer), distribution(answer), answer.problem.y, K.k_xx, K.K_XZ, K.K_ZZ
        )
        yield unmoved(refined.mismatch, limit, name)


@check(
    "print/gfitc/hard-cases",
    paper=PAPER,
    question="One printed sweep over latent values does not move fast's sites of GFITC, on every hard case.",
    problems=(),
    full=(NO_PROBLEM,),
)
def printed_gfitc_hard_cases(context: Context, problem: None) -> Iterable[Outcome]:
    """The same with the latent values at the data for inducing values; nothing where their covariance is singular."""
    names = ("site_precision_label", "site_shift_label", "site_precision_other", "site_shift_other")
    for answer, limit, name in hard_fixed_points(context, "gfitc"):
        K, y = given(answer.problem), answer.problem.y
        P = K.upsilon @ K.K_ZZ @ np.swapaxes(K.upsilon, 1, 2) + np.stack([np.diag(s) for s in K.cond_var])
        sites = posterior.Coefficients(*(answer.local[each] for each in names))
        at = P, np.einsum("kii->ki", P).copy()
        eigenvalues = np.linalg.eigvalsh(P)
        smallest = np.maximum(eigenvalues[:, 0], 1e-30 * eigenvalues[:, -1])  # rounding leaves zeros and less
        bound = 100.0 * np.finfo(float).eps * float(np.max(eigenvalues[:, -1] / smallest))
        if bound > WIDEST_LIMIT:
            continue
        q = factors.posterior_of(sites, y, np.stack([np.eye(len(y))] * len(P)), P)
        refined = factors.ep_refine_factors(sites, q, y, at[1], P, P)
        yield unmoved(refined.mismatch, max(limit, bound), name)


@check(
    "print/sep/hard-cases",
    paper=PAPER,
    question="One printed sweep of SEP does not move fast's tied factor, on every hard case.",
    problems=(),
    full=(NO_PROBLEM,),
)
def printed_sep_hard_cases(context: Context, problem: None) -> Iterable[Outcome]:
    """Section 2.3.1 and (33) to (53) from fast's tied factor: what becomes of it, in units of q."""
    for answer, limit, name in hard_fixed_points(context, "sep"):
        K, q, y, C = given(answer.problem), distribution(answer), answer.problem.y, answer.problem.n_classes
        tied = [posterior.Natural(*part) for part in zip(answer.local["tied_precision"], answer.local["tied_shift"],
                                                         strict=True)]  # fmt: skip
        theta = [posterior.Natural(np.linalg.inv(V), np.linalg.solve(V, m)) for m, V in zip(*q, strict=True)]
        without = []
        for each in sep.sep_cavity(theta, tied, sep.factor_counts(y, C)):
            cov: Array = np.asarray(np.linalg.inv(each.precision), dtype=np.float64)
            without.append(cavity.Cavity(cov @ each.shift, cov))
        new = posterior.Coefficients(*(np.zeros((len(y), C)) for _ in range(4)))
        for i, y_i, k in pairs(answer.problem):
            pair = [y_i, k]
            matched = factors.matched_factor(
                (without[y_i], without[k]), K.upsilon[pair, i], K.k_xx[pair, i], K.K_XZ[pair, i], K.K_ZZ[pair]
            )
            for part, value in zip(new, matched.coefficients, strict=True):
                part[i, k] = value
        moved = 0.0
        for wanted, old, m, V in zip(sep.sep_tied_factor(new, y, K.upsilon), tied, *q, strict=True):
            dT = wanted.precision - old.precision
            dt = wanted.shift - old.shift - dT @ m
            moved = max(moved, float(np.sum((V @ dT) * (V @ dT).T)), float(dt @ V @ dt))
        yield unmoved(np.sqrt(moved), limit, name)
