"""wenzel2019, section 5.1, Fig. 1: posterior means, variances and class probabilities against long Gibbs runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation import datasets
from validation.datasets.splits import standardise, train_test_split
from validation.door import arguments
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.door.solve import solve
from validation.ledger.marker import equation
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, below
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.screen import figures

Array = NDArray[np.float64]


class Paired(NamedTuple):
    """One quantity of Fig. 1: an approximation beside the chains' value and its Monte Carlo error, entry by entry."""

    approximation: Array
    truth: Array
    truth_se: Array


@equation("wenzel2019", "u5.1-compare")
def compare_with_gibbs(approximation: Solution, truth: Solution) -> dict[str, Paired]:
    """Posterior means µ and standard deviations σ at the data and p(y* = 1) at test points, in pairs.

    wenzel2019, section 5.1. σ of the chains is the root of their variance; its error is that of the variance over 2σ.

    Parameters
    ----------
    approximation : Solution    of x-gpc or of any method with latent moments
    truth : Solution            of gibbs-logit on the same problem

    Raises
    ------
    ValueError                  if the two answer different problems, or the truth has no standard errors
    """
    changed = approximation.problem.differences(truth.problem, ignore=("name", "prior_model"))
    if changed:
        raise ValueError(f"truth: found a solution of another problem, which differs in {changed}")
    if truth.latent_mean_se is None or truth.latent_cov_se is None:
        raise ValueError(f"truth: found {truth.label} without standard errors, expected chains")
    sd = np.sqrt(_first_variance(truth.latent_cov))
    results = {
        "mean": Paired(_first(approximation.latent_mean), _first(truth.latent_mean), _first(truth.latent_mean_se)),
        "sd": Paired(
            np.sqrt(_first_variance(approximation.latent_cov)), sd, _first_variance(truth.latent_cov_se) / (2.0 * sd)
        ),
    }
    if approximation.probabilities is not None and truth.probabilities is not None:
        assert truth.probabilities_se is not None
        results["probability"] = Paired(
            approximation.probabilities[:, 1], truth.probabilities[:, 1], truth.probabilities_se[:, 1]
        )
    return results


def _first(values: Array | None) -> Array:
    if values is None:
        raise ValueError("approximation: found no latent moments, expected means and variances at the data")
    return values[:, 0]


def _first_variance(values: Array | None) -> Array:
    if values is None:
        raise ValueError("approximation: found no latent moments, expected means and variances at the data")
    return values[:, 0, 0]


_CLOSE = 0.2  # what the inventory takes "very close" for; a tenth of it for probabilities
_TITLES = {"mean": "posterior mean µ", "sd": "posterior standard deviation σ", "probability": "p(y* = 1)"}


def decide(value: Mapping[str, Paired]) -> list[Decided]:
    """That the three quantities are very close: largest distances, two Monte Carlo errors of the chains included."""
    mean, sd, probability = (value[key] for key in ("mean", "sd", "probability"))

    def largest(pair: Paired, unit: Array | float, power: int = 1) -> float:
        gap = np.abs(pair.approximation**power - pair.truth**power)
        # the error of a power, to first order
        error = power * pair.truth ** (power - 1) * pair.truth_se
        return float(np.max((gap + 2.0 * error) / unit))

    return [
        below("fig1-means", "largest distance of means in posterior deviations, two Monte Carlo errors included",
              largest(mean, sd.truth), _CLOSE),
        below("fig1-variances", "largest relative distance of variances, two Monte Carlo errors included",
              largest(sd, sd.truth**2, power=2), _CLOSE),
        below("fig1-probabilities", "largest distance of class probabilities, two Monte Carlo errors included",
              largest(probability, 1.0), 0.1 * _CLOSE),
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Fig1Options:
    """Options of `fig1`."""

    dataset: str = "pima"
    n: int = 200
    n_test: int = 100
    n_chains: int = 8
    n_draws: int = 1500
    thin: int = 2
    seed: int = 0


@experiment(
    "wenzel2019",
    "fig1",
    "posterior and class probabilities against Gibbs sampling",
    "on Diabetes the approximation is very close to the true posterior: mean, variance and predictive marginals lie "
    "on the diagonal (section 5.1, Fig. 1)",
)
def fig1(asked: Fig1Options, say: Say) -> Outcome:
    """x-gpc with a full GP and learned hyper-parameters, and Gibbs sampling with the same ones, on n training rows."""
    data = datasets.load(arguments.string(asked.dataset, "dataset"))
    if data.n_classes != 2:
        raise ValueError(f"dataset: found {data.n_classes} classes in {asked.dataset}, expected two")
    arguments.integer(asked.n, "n", at_least=10)
    arguments.integer(asked.n_test, "n_test", at_least=1)
    split = train_test_split(data, asked.seed, test_size=min(asked.n_test, data.n // 2))
    rows = split.train[: asked.n]
    X, X_test = standardise(data.X[rows], data.X[split.test])
    start = Problem(
        name=f"{asked.dataset}-{rows.size}",
        X=X,
        y=data.y[rows],
        n_classes=2,
        likelihood="logit",
        variance=1.0,
        lengthscales=np.full(X.shape[1], np.sqrt(X.shape[1])),
        noise=0.01,
        jitter=1e-8,
        X_test=X_test,
        y_test=data.y[split.test],
    )
    say(f"learning the hyper-parameters of x-gpc on {rows.size} rows of {asked.dataset}")
    fit = solve("fast", "x-gpc", start, learn=("variance", "lengthscales", "noise"))
    say(f"Gibbs sampling with them: {asked.n_chains} chains, {asked.n_draws} draws each, one every {asked.thin} sweeps")
    truth = solve(
        "gibbs",
        "gibbs-logit",
        fit.problem,
        seed=asked.seed,
        n_chains=asked.n_chains,
        n_draws=asked.n_draws,
        thin=asked.thin,
        evidence="none",
    )
    pairs = compare_with_gibbs(fit, truth)
    with figures.style():
        panels = tuple(
            figures.scatter(
                _TITLES[key], pair.truth, pair.truth_se, [figures.Cloud("x-gpc", pair.approximation, 0)],
                "Gibbs", f"fig1-{key}",
            )
            for key, pair in pairs.items()
        )  # fmt: skip
    rows_out = tuple(
        (
            _TITLES[key],
            pair.truth.size,
            float(np.abs(pair.approximation - pair.truth).mean()),
            float(np.abs(pair.approximation - pair.truth).max()),
            float(np.corrcoef(pair.approximation, pair.truth)[0, 1]),
            float(pair.truth_se.max()),
        )
        for key, pair in pairs.items()
    )
    notes = [
        f"n = {rows.size} of {data.n} rows, so that the chains of a full GP take minutes; more with -o n=..."
        if rows.size < data.n - split.test.size
        else f"all {rows.size} training rows",
        "the paper does not say which hyper-parameters it used here: these maximise the bound of x-gpc",
    ]
    if not truth.settings["gate"]:
        notes.append(f"gate not met: smallest effective size {truth.ess:.0f}; the bars show two Monte Carlo errors")
    problem = fit.problem
    return Outcome(
        {
            "data": f"{asked.dataset}: n = {rows.size}, {split.test.size} test rows, standardised by the training rows",
            "hyper-parameters": f"learned by L-BFGS-B: variance {problem.variance[0]:.4g}, lengthscales "
            f"{np.array2string(problem.lengthscales[0], precision=3)}, noise {problem.noise[0]:.3g}",
            "chains": f"{asked.n_chains} of {asked.n_draws} draws, one every {asked.thin} sweeps; ESS {truth.ess:.0f}, "
            f"R-hat {truth.r_hat:.4f}",
            "seed": asked.seed,
        },
        (
            Table(
                "distances",
                ("quantity", "points", "mean distance", "largest distance", "correlation", "largest s.e. of Gibbs"),
                rows_out,
                "x-gpc against Gibbs sampling",
            ),
            decisions.table(decide(pairs), "What section 5.1 says of the figure"),
        ),
        (Picture("x-gpc against Gibbs sampling, with bars of two standard errors", ("x-gpc",), panels),),
        tuple(notes),
    )
