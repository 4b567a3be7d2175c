"""Runs of `fast` asked a second way that must give the same: other columns, other entry points, other bookkeeping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.by_name import by_name, sampler_by_name
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Tested, check, flaws
from validation.checks.few_data import Few
from validation.checks.learning import tiny
from validation.checks.villacampa2020_dense import Dense, G
from validation.problem import Problem

Array = NDArray[np.float64]
_RNG = np.random.default_rng(31)
_X = _RNG.standard_normal((12, 2))
_X_TEST = _RNG.standard_normal((4, 2))
_Z = _RNG.standard_normal((4, 2))
_Y = np.arange(12) % 3
_PRIOR = (np.array([1.3, 0.8, 2.1]), np.array([[0.9, 1.4], [1.2, 0.7], [1.0, 1.1]]), 0.1, 1e-4)


def _same(actual: Any, expected: Any, limit: float, why: str) -> Compared:
    """Largest difference over the largest entry; shapes that differ fail."""
    left, right = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    gap = np.inf if left.shape != right.shape else float(np.abs(left - right).max()) / max(1.0, np.abs(right).max())
    return Compared(float(gap), limit, why, "fast", "fast, asked otherwise")


# -- columns that say nothing -------------------------------------------------------------------------------------

_COLUMNS = 66  # from 64 on distances come from matrix products
_STEPS: Mapping[str, Any] = MappingProxyType(
    {"batches": ((0, 1, 4, 7), (2, 2, 5, 9), (3, 6, 8, 10, 11)), "learn": ("variance", "lengthscales", "Z"),
     "optimizer": "adam", "rate": 0.05}
)  # fmt: skip
_WIDE: tuple[tuple[str, str, str, tuple[Any, ...], Mapping[str, Any]], ...] = (
    ("ep", "villacampa2017", "ep", (), _STEPS),
    ("sep", "villacampa2017", "sep", (), _STEPS),
    ("vi-robust", "villacampa2017", "vi_robust", (0.05,), _STEPS),
    ("apep", "villacampa2020", "apep", (0.05,), _STEPS),
    ("gfitc", "villacampa2020", "gfitc", (), {}),
    ("label-regression", "villacampa2020", "label_regression", (0.05,), {}),
)


def _padded(inputs: Array) -> Array:
    return np.concatenate([inputs, np.zeros((len(inputs), _COLUMNS - 2))], axis=1)


def _wide(method: str, paper: str, module: str, extra: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    @check(
        f"invariance/{method}/constant_columns",
        paper=paper,
        question="Do 64 columns that are zero everywhere, with distances from matrix products, change nothing?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        import importlib

        own = importlib.import_module(f"fast.methods.{module}")
        variance, lengthscales, noise, jitter = _PRIOR
        results = []
        for wide in (False, True):
            X, Z, X_test = (_padded(a) if wide else a for a in (_X, _Z, _X_TEST))
            scales = np.concatenate([lengthscales, np.ones((3, _COLUMNS - 2))], axis=1) if wide else lengthscales
            posterior = by_name(own.fit)(X, _Y, 3, variance, scales, noise, jitter, Z, *extra, **options)
            predicted = own.predict(posterior, X_test)
            results.append((predicted, posterior.run.points))
        (narrow, old), (broad, new) = results
        why = "a product loses |x|²/l² epsilon of a squared distance, 1e-14; a fixed point to 1e-10 and its condition"
        yield _same(broad.probabilities, narrow.probabilities, 1e-8, why)
        yield _same(broad.latent_mean, narrow.latent_mean, 1e-7, why)
        yield _same(new.hyper.variance, old.hyper.variance, 1e-8, why)
        yield _same(new.hyper.lengthscales[:, :2], old.hyper.lengthscales, 1e-8, why)
        yield _same(new.Z[:, :, :2], old.Z, 1e-7, why)
        yield _same(new.Z[:, :, 2:], 0.0 * new.Z[:, :, 2:], 1e-12, "columns that are zero have zero gradient")


for _row in _WIDE:
    _wide(*_row)


# -- one call, or the parts that it is made of --------------------------------------------------------------------

_ONE_CALL = (
    ("laplace", "laplace"),
    ("nested-ep", "nested_ep"),
    ("nested-iep", "nested_iep"),
    ("vb-probit", "vb_probit"),
)


def _one_call(method: str, module: str) -> None:
    @check(
        f"invariance/{method}/one_call",
        paper="riihimaki2013",
        question="Does fit find what preparing the prior and converging on it does, options included?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        import importlib

        from fast.core.values import Data, Prior

        own = importlib.import_module(f"fast.methods.{module}")
        told: list[int] = []
        for options in ({}, {"max_iterations": 2}, {"tolerance": 1e-3, "callback": lambda at: told.append(1)}):
            for shared, prior in ((False, _PRIOR), (True, (1.3, np.array([0.9, 1.4]), 0.1, 1e-4))):
                asked = type(own.DEFAULTS)(**options)
                whole = by_name(own.fit)(_X, _Y, 3, *prior, shared=shared, **options)
                n_told = len(told)
                given = replace(Prior(*prior), shared=shared)
                parts = own.converge(own.prepare(Data(_X, _Y, 3), given), asked)
                yield _same(whole.latent_mean, parts.latent_mean, 0.0, "the same calls, every digit")
                if "callback" in options:
                    yield _same(len(told) - n_told, n_told, 0.0, "the listener is told as often")
                    told.clear()


for _method, _module in _ONE_CALL:
    _one_call(_method, _module)


@check(
    "invariance/x-gpc-svi/predict_blocks",
    paper="wenzel2019",
    question="Are predictions of blocks that come one by one those of all rows at once?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import x_gpc_svi

    prior, options = Prior(1.3, np.array([0.9, 1.4]), 0.1, 1e-4, _Z), x_gpc_svi.XGPCSteps(n_steps=5, batch_size=4)
    posterior = x_gpc_svi.fit(Data(_X, _Y % 2), prior, options)
    whole = x_gpc_svi.predict(posterior, _X)
    parts = list(x_gpc_svi.predict_blocks(posterior, [_X[:5], _X[5:]], block_size=2))
    for name in ("latent_mean", "latent_var", "probabilities", "probability_mass"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        yield _same(joined, getattr(whole, name), 1e-13, f"{name}: sums of four terms, in blocks of two rows")


@check(
    "identity/epgpc-svi/moved_sums",
    paper="wenzel2019",
    question="Do sums of sites that are moved with the kernel equal those summed anew, where u is f at the data?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import epgpc_svi

    results = []
    for every in (1, 4):
        options = epgpc_svi.EPGPCSteps(
            batch_size=5,
            n_steps=8,
            learn=("variance", "lengthscales"),
            learning_rate=0.05,
            rebuild_every=every,
            trace=True,
        )
        results.append(epgpc_svi.fit(Data(_X, _Y % 2), Prior(1.3, np.array([0.4, 0.5]), 0.1, 1e-9, _X), options))
    why = (
        "projections onto u are unit vectors whatever the kernel: only jitter of 1e-9 and rounding times its condition"
    )
    yield _same(results[1].trace, results[0].trace, 1e-6, why)
    yield _same(results[1].posterior.inducing_mean, results[0].posterior.inducing_mean, 1e-6, why)


# -- bookkeeping --------------------------------------------------------------------------------------------------


@check(
    "invariance/gfitc/restored",
    paper="villacampa2020",
    question="Does a run that is set back go on as one that was never anywhere else?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import gfitc
    from fast.sparse_classes.data import ClassData
    from fast.sparse_classes.fitc_latents import LatentRun

    start = gfitc.fit(Data(_X, _Y, 3), Prior(*_PRIOR, _Z), gfitc.GFITCOptions(max_iterations=8)).run
    held = {name: np.array(value) for name, value in start.state().items()}
    sites = []
    for elsewhere, mixed in ((0, True), (54, True), (60, True), (0, False)):  # mixing begins after 50
        run = LatentRun(ClassData(_X, _Y, 3, block_size=5, memory_budget=2**26), start.points, mixed=mixed)
        for _ in range(elsewhere):
            run.refresh()
        run.restore(held, start.points.hyper, start.points.Z, False)
        for _ in range(5):
            run.refresh()
        sites.append(run.sites.copy())
    for other in sites[1:3]:
        yield _same(other, sites[0], 0.0, "past steps of another place are forgotten: the same sums, every digit")
    mixes = bool(np.abs(sites[3] - sites[0]).max() > 1e-6)
    yield flaws(not mixes, "near the end of another run steps are mixed at once, which moves sites", "fast", "runs")


@check(
    "identity/bb-alpha/draws_of_an_energy",
    paper="villacampa2020",
    question="Are an energy from draws and its error those of the documented draws, by dense algebra?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.methods import apep, bb_alpha

    asked = tiny("threshold errors")
    assert asked.Z is not None
    dense, (n, C), m, draws = Dense(asked), (asked.n, asked.n_classes), asked.Z.shape[1], 400
    given = {name: getattr(asked, name) for name in ("variance", "lengthscales", "noise", "jitter", "Z")}
    for alpha in (0.0, 0.3, 0.7):
        fit = by_name(apep.fit)(X=asked.X, y=asked.y, n_classes=C, **given, alpha=alpha, epsilon=asked.epsilon)
        came = bb_alpha.monte_carlo_energy(fit, n_draws=draws, seed=4)
        mean, cov = fit.run.points.inducing_moments(fit.run.q)
        rng = np.random.default_rng(4)
        z, xi = rng.standard_normal((draws, C, m)), rng.standard_normal((draws, n, C))
        u = mean + np.einsum("kij,dkj->dki", np.linalg.cholesky(cov), z)
        f = np.einsum("nki,dki->dnk", dense.upsilon, u) + np.sqrt(dense.cond_var) * xi
        log_p = np.log(np.where(f.argmax(axis=2) == asked.y, *dense.labels))
        # log q(u)/p(u) less the log ratio of their normalisers
        precision = np.linalg.inv(cov)
        shift = np.einsum("kij,kj->ki", precision, mean)
        own = np.einsum("ki,dki->d", shift, u) - 0.5 * np.einsum("dki,kij,dkj->d", u, precision - dense.K_inv, u)
        terms = log_p - own[:, None] / n
        if alpha:
            weights = np.exp(alpha * terms)
            log_norm, share = np.log(weights.mean(axis=0)) / alpha, weights.std(axis=0) / weights.mean(axis=0) / alpha
        else:
            log_norm, share = terms.mean(axis=0), terms.std(axis=0)
        energy = -(G(precision, shift) - G(dense.K_inv, 0.0 * shift)) - log_norm.sum()
        for name, ours, theirs in (
            ("energy", came.energy, energy),
            ("its terms", came.log_norm, log_norm),
            ("its error", came.standard_error, np.sqrt((share**2).sum() / draws)),
        ):
            apart = float(np.abs(np.asarray(ours) / theirs - 1.0).max())
            yield Compared(apart, 1e-7, f"alpha {alpha:g}: {name}", "fast", "definition")


@check(
    "exactness/bb-alpha/drawn_energies",
    paper="villacampa2020",
    question="Is the standard error of an energy from draws the spread over seeds, at other alphas too?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import apep, bb_alpha

    z = []
    for alpha in (0.0, 0.05, 0.8):  # a power of alpha too many is a ratio of 20
        options = apep.EnergyOptions(alpha=alpha, epsilon=0.1)
        posterior = apep.fit(Data(_X, _Y, 3), Prior(*_PRIOR, _Z), options)
        results = [bb_alpha.monte_carlo_energy(posterior, n_draws=1500, seed=seed) for seed in range(32)]
        stated = np.sqrt(np.mean([one.standard_error**2 for one in results]))
        spread = np.array([one.log_norm for one in results]).var(axis=0, ddof=1).sum()
        # a sum of 12 variances, 31 degrees of freedom each: relative deviation sqrt(2/31/12) if equal, 1/4 at the most
        z.append(np.log(spread / stated**2) / np.sqrt(2.0 / 31.0))
    yield Tested(
        np.array(z), "log of a ratio of variances over its deviation if one datum had all of it", "fast", "definition",
        "a ratio of 2.7 would show",
    )  # fmt: skip


@check(
    "exactness/gibbs-probit/odd_halves",
    paper="riihimaki2013",
    question="Is the evidence by a bridge right where an odd number of draws cannot be halved?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.evidence import fitted

    rng, few = np.random.default_rng(32), Few("multinomial-probit")
    draws = few.draws(rng, 4 * 161).reshape(4, 161, few.n_latents, -1)
    estimate = fitted.log_evidence(rng, few.cov, few.y, draws, few.epsilon)
    yield Tested(
        np.array([(estimate.value - few.log_evidence()) / estimate.standard_error]), "stated error; Holm at 1e-4",
        "gibbs", "scipy.stats",
        "four stated errors would show",
    )  # fmt: skip


@check(
    "invariance/gibbs-pairwise/tuned_step",
    paper="villacampa2017",
    question="Is the step of a path the longest doubling that four paths in five accept?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.models import pairwise

    wrong = 0
    for k, scale in enumerate(np.geomspace(0.5, 60.0, 24)):
        n = 4 + k % 5
        model = sampler_by_name(pairwise.prepare)(_X[:n], _Y[:n], 3, scale, np.array([0.9, 1.4]), 0.1, 1e-4, _Z, "fitc")
        peak = pairwise._peak(model.loadings)
        sampler = pairwise._Sampler(model.loadings, peak, peak.step)
        value = sampler.tuned(np.random.default_rng(k)).step_size
        rng, expected = np.random.default_rng(k), peak.step
        zeta = rng.standard_normal((32, model.loadings.shape[1]))
        while expected < pairwise._LENGTH / 2.0:
            rounds = []
            for _ in range(4):
                zeta, accepted = sampler._replace(step_size=2.0 * expected).path(rng, zeta)
                rounds.append(accepted)
            if np.mean(rounds) < 0.8:
                break
            expected *= 2.0
        wrong += value != expected
    yield Compared(
        float(wrong), 0.0, "32 walkers, four paths each, the mean of all 128", "gibbs", "definition", "steps"
    )
