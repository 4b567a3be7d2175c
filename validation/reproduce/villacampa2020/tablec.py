"""villacampa2020, appendix C, Tables C.3 and C.4: power EP beside label regression, Laplace and Gibbs sampling."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fast.core import values
from fast.methods import label_regression, laplace_sparse
from reference.common.priors import Prior
from validation.door import arguments
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.door.solve import solve
from validation.jobs.each import each
from validation.ledger.marker import equation
from validation.reproduce.experiment import Outcome, Say, Table, experiment
from validation.reproduce.printed import option, rows_taken
from validation.reproduce.protocols import Score, scores
from validation.reproduce.published import published
from validation.reproduce.villacampa2020 import setting, uci

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

NAMES: Mapping[str, str] = {
    "gibbs-threshold": "MCMC",
    "laplace-sparse": "Laplace",
    "label-regression": "Label regression",
    "pep 0": "PEP (alpha = 0)",
    "pep 0.5": "PEP (alpha = 0.5)",
    "pep 1": "PEP (alpha = 1)",
}
COLUMNS = tuple(NAMES)
_PASSED = ("n_steps", "rate", "damping", "n_start", "budget", "n_chains", "n_draws")  # from options to each comparison


class Sampled(NamedTuple):
    """What the chains say of the latent values and of the test rows."""

    probabilities: Array  # (t, C)
    latent_mean: Array  # (n, C)
    ess: float | None  # smallest effective sample size
    r_hat: float | None
    settled: bool


class Compared(NamedTuple):
    """Scores of all methods on one split; infinite where there is no optimum."""

    scores: dict[str, Score]
    notes: tuple[str, ...]


def learned_prior(run: setting.Run) -> Prior:
    """Hyper-parameters and inducing points where a run ended."""
    points = run.run.points
    variance, lengthscales, noise, jitter = (np.array(value) for value in points.hyper)
    return Prior(variance, lengthscales, noise, jitter, np.array(points.Z))


@equation("villacampa2020", "u48-mcmc")
def gibbs_baseline(
    X: Array,
    y: Labels,
    X_test: Array,
    prior: Prior,
    *,
    epsilon: float = setting.EPSILON,
    n_chains: int = 8,
    n_draws: int = 500,
    n_warmup: int = 200,
    seed: int = 0,
) -> Sampled:
    """Gibbs sampling of the latent values with hyper-parameters taken from EP: villacampa2020, appendix C.

    The model is EP's: latent values independent given the inducing values, robust likelihood.

    Parameters
    ----------
    X, y                training rows
    X_test : (t, d)     rows to predict
    prior : Prior       hyper-parameters and inducing points of power EP at alpha = 1
    epsilon : float     probability of a random label
    n_chains, n_draws, n_warmup    of the sampler
    seed : int          of the chains
    """
    problem = Problem("baseline", X, y, prior.Z.shape[0], "threshold", *prior[:4], Z=prior.Z, prior_model="fitc",
                      epsilon=epsilon, X_test=X_test)  # fmt: skip
    solution: Solution = solve(
        "gibbs", "gibbs-threshold", problem, n_chains=n_chains, n_draws=n_draws, n_warmup=n_warmup, seed=seed
    )
    assert solution.probabilities is not None  # test rows were given
    assert solution.latent_mean is not None
    return Sampled(
        np.asarray(solution.probabilities),
        np.asarray(solution.latent_mean),
        solution.ess,
        solution.r_hat,
        solution.converged,
    )


@equation("villacampa2020", "u49-baseline-comparison")
def baseline_comparison(
    plan: uci.Plan,
    n_classes: int,
    *,
    methods: Sequence[str] = COLUMNS,
    n_steps: int = 250,
    rate: float = 0.01,
    damping: float = 0.5,
    n_start: int = 60,
    budget: float = np.inf,
    n_chains: int = 8,
    n_draws: int = 500,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Compared:
    """Test error and negative log-likelihood of power EP and three baselines on one split: villacampa2020, appendix C.

    All start alike. Power EP and label regression learn by ascent with adaptive rates; Laplace and Gibbs sampling take
    the hyper-parameters that power EP has learned at alpha = 1, the time of which is not counted for them.

    Parameters
    ----------
    plan : Plan           split and number of inducing points; its alpha is not looked at
    n_classes : int       C
    methods : names       out of gibbs-threshold, laplace-sparse, label-regression, "pep 0", "pep 0.5", "pep 1"
    n_steps : int         steps of the priors
    rate : float          first adaptive rate
    damping : float       of power EP
    n_start : int         sweeps of power EP before the priors move
    budget : float        seconds of one training of power EP
    n_chains, n_draws     of the sampler
    seed : int            of inducing points at the start, and chains
    clock : callable      seconds
    """
    for method in methods:
        arguments.choice(method, COLUMNS, "methods")
    prior = setting.start(plan.X, plan.n_inducing, n_classes, seed)
    results: dict[str, Score] = {}
    notes: list[str] = []
    runs: dict[str, setting.Run] = {}

    def powered(name: str) -> setting.Run:
        if name not in runs:
            training = setting.Training(n_steps=n_steps, rate=rate, damping=damping, n_start=n_start)
            watch = setting.Watch(budget=budget, evaluate=False, clock=clock)
            alpha = float(name.split()[1])
            runs[name] = setting.train("pep", alpha, plan.X, plan.y, prior, training, watch)
            notes.extend(runs[name].notes)
        return runs[name]

    for method in methods:
        label = NAMES[method]
        if method.startswith("pep"):
            run = powered(method)
            results[method] = Score(*run.scores(plan.X_test, plan.y_test), run.seconds)
            continue
        if method != "label-regression" and powered("pep 1").lost:
            notes.append(f"{label}: none, PEP at alpha = 1 gave no hyper-parameters")
            results[method] = Score(np.inf, np.inf, 0.0)
            continue
        started = clock()
        if method == "gibbs-threshold":
            sampled = gibbs_baseline(
                plan.X,
                plan.y,
                plan.X_test,
                learned_prior(powered("pep 1")),
                n_chains=n_chains,
                n_draws=n_draws,
                seed=seed,
            )
            p = sampled.probabilities
            if not sampled.settled:
                notes.append(f"{label}: ESS {_number(sampled.ess)}, R-hat {_number(sampled.r_hat)}, too few draws")
        elif method == "laplace-sparse":
            own = learned_prior(powered("pep 1"))
            mode = laplace_sparse.fit(
                values.Data(plan.X, plan.y, n_classes), values.Prior(*own),
                laplace_sparse.SparseLaplaceOptions(tolerance=1e-6),
            )  # fmt: skip
            p = np.asarray(laplace_sparse.predict(mode, plan.X_test).probabilities)
            if not mode.converged:
                notes.append(f"{label}: mode not reached, residual {mode.residual:.2g}")
        else:
            options = label_regression.RegressionOptions(
                epsilon=setting.EPSILON, learn=setting.LEARN, optimizer="adaptive", n_steps=n_steps, rate=rate
            )
            fitted = label_regression.fit(values.Data(plan.X, plan.y, n_classes), values.Prior(*prior), options)
            p = np.asarray(label_regression.predict(fitted, plan.X_test).probabilities)
            if fitted.trained.diverged:
                notes.append(f"{label}: {fitted.trained.reason}")
        results[method] = Score(*scores(p, plan.y_test), clock() - started)
    return Compared(results, tuple(notes))


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


@dataclass(frozen=True, kw_only=True)
class TablecOptions:
    """Options of `tablec`."""

    datasets: Sequence[str] = option(("new_thyroid", "wine"), uci.DATASETS, "data sets")
    methods: Sequence[str] = COLUMNS
    fractions: Sequence[float] = option((0.05,), uci.FRACTIONS, "shares of inducing points")
    n_run: int = option(2, 100, "repetitions")
    n_draw: int = 1
    n_steps: int = 100
    n_max: int = 1000
    rate: float = 0.01
    damping: float = 0.5
    n_start: int = 60
    budget: float = option(15.0, np.inf, "seconds after which a training of PEP is cut")
    n_chains: int = 8
    n_draws: int = 300
    seed: int = 0


@experiment(
    "villacampa2020",
    "tablec",
    "power EP beside label regression, Laplace and Gibbs sampling on eight data sets",
    "PEP predicts about as well as Gibbs sampling, alpha = 0 with much worse log-likelihoods on some sets; label "
    "regression is worst (appendix C, Tables C.3 and C.4)",
    in_parts=True,
    cells=lambda asked: len(asked.datasets) * len(asked.fractions) * len(asked.methods),
)
def tablec(asked: TablecOptions, say: Say) -> Outcome:
    """n_draw draws of a generated set have n_run splits each."""
    arguments.integer(asked.n_run, "n_run", at_least=1)
    arguments.integer(asked.n_draw, "n_draw", at_least=1)
    printed = published("villacampa2020", "tablec")
    rows: list[tuple[object, ...]] = []
    notes: list[str] = []
    for name in asked.datasets:
        n_draw = asked.n_draw if name in uci.GENERATED else 1
        drawn = [uci.load(name, asked.seed + d) for d in range(n_draw)]
        full = drawn[0]
        sets = [setting.smaller(one, arguments.integer(asked.n_max, "n_max", at_least=20), asked.seed) for one in drawn]
        data = sets[0]
        notes += rows_taken(data, full, "n_max", name=name)
        if n_draw > 1:
            notes.append(f"{name}: {n_draw} draws with {asked.n_run} splits each; {uci.DRAWS}")
        for fraction in asked.fractions:
            plans = [
                uci.uci_protocol(one, fraction, 1.0, k, seed=asked.seed + d)
                for d, one in enumerate(sets)
                for k in range(asked.n_run)
            ]
            same = {name: getattr(asked, name) for name in _PASSED}
            same |= {"n_classes": data.n_classes, "methods": tuple(asked.methods)}
            calls = {f"{name}-{fraction:g}-{k}": {**same, "plan": plan, "seed": k} for k, plan in enumerate(plans)}
            every = each(baseline_comparison, calls, (Compared, Score))
            for k, compared in enumerate(every):
                notes += [f"{name}, repetition {k + 1}: {note}" for note in compared.notes]
            for method in asked.methods:
                kept = [(k // asked.n_run, compared.scores[method]) for k, compared in enumerate(every)
                        if np.isfinite(compared.scores[method].nll)]  # fmt: skip
                mine, draws = [score for _, score in kept], [draw for draw, _ in kept]
                rows += _rows(name, f"{100.0 * fraction:g}%", plans[0], method, mine, draws, printed)
                if mine:
                    nll, error = np.mean([score.nll for score in mine]), np.mean([score.error for score in mine])
                    say(f"{name}, m = {plans[0].n_inducing}, {NAMES[method]}: nll {nll:.3f}, error {error:.3f}")
    notes.append(
        f"{asked.n_steps} steps of PEP and label regression; appendix C does not say how many, section 5.1 has 500"
    )
    notes.append(setting.sweeps(asked.damping, asked.n_start))
    notes += [
        f"start: {setting.START}",
        setting.LIMIT,
        "Gibbs sampling and Laplace: hyper-parameters of PEP at alpha = 1, whose time is not theirs; Laplace: soft-max",
        "seconds are of this machine and of these programs, the paper's are means over the eight sets; its two tables "
        "print one mean time with different error bars",
    ]
    return Outcome(
        {
            "data": ", ".join(asked.datasets),
            "repetitions": asked.n_run,
            "sampler": f"{asked.n_chains} chains, {asked.n_draws} draws each",
            "jitter": setting.JITTER,
            "label errors": setting.EPSILON,
            "seed": asked.seed,
        },
        (
            Table(
                "scores",
                ("data", "M", "m", "n", "method", "score", "here", "±", "paper", "± (paper)", "where", "repetitions"),
                tuple(rows),
                "Averages over repetitions, with standard errors, beside Tables C.3 and C.4",
            ),
        ),
        (),
        tuple(dict.fromkeys(notes)),
    )


def _rows(
    name: str,
    percent: str,
    plan: uci.Plan,
    method: str,
    mine: Sequence[Score],
    draws: Sequence[int],
    printed: Mapping[str, Any],
) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    place = list(printed["methods"]).index(method)
    for field, where in (("nll", "Table C.4"), ("error", "Table C.3"), ("seconds", "Table C.3, eight sets")):
        values = np.array([getattr(score, field) for score in mine])
        bar, repetitions = _bar(values, np.array(draws))
        table = printed.get(percent, {}).get("error" if field == "seconds" else field, {})
        cell = table.get("seconds" if field == "seconds" else name)
        theirs = (None, None, None) if cell is None else (*cell[place], where)
        here = float(values.mean()) if values.size else setting.NONE
        size = (plan.n_inducing, plan.y.size)
        rows.append((name, percent, *size, NAMES[method], field, here, bar, *theirs, repetitions))
    return rows


def _bar(values: Array, draws: NDArray[np.int64]) -> tuple[float | None, int]:
    """Standard error of the mean, and over how many; of several draws of the data, how far one more is from it."""
    means = np.array([values[draws == draw].mean() for draw in np.unique(draws)])
    if means.size > 1:
        return float(means.std(ddof=1) * np.sqrt(1.0 + 1.0 / means.size)), means.size
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else None, values.size
