"""Bugs of protocols and experiments of the papers, which no solve executes: the checks that repeat them by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import Seeds
from validation.selftest import SeededBug

_REPRODUCE = "validation.reproduce"
# functions that a check has by name
_HERE = "validation.checks.print.protocols"
_THERE = "validation.checks.print.experiments"


_bug = Seeds(asks="print/{}/")


def _from_first(original: Any) -> Any:
    def timed(*args: Any, **options: Any) -> Any:
        seconds, accuracy = original(*args, **options)
        return seconds - seconds[0], accuracy

    return timed


def _first_coordinate(original: Any) -> Any:
    return lambda function, X: original(lambda x: function(np.array([x[0], X[0, 1]])), X)


def _one_seed(original: Any) -> Any:
    return lambda data, make, **options: original(data, lambda seed: make(0), **options)


def _looks_less_often(original: Any) -> Any:
    def timed(*args: Any, **options: Any) -> Any:
        if "growth" in options:
            options["growth"] **= 2
        return original(*args, **options)

    return timed


def _unweighted(original: Any) -> Any:
    def smallest(eta_2: Any, batch: Any, theta: Any, *rest: Any) -> Any:
        return original(eta_2, batch, np.asarray(theta) * len(batch) / len(theta), *rest)

    return smallest


def _nearer(original: Any) -> Any:
    return lambda upsilon, mean: (1.0 - 1e-6) * original(upsilon, mean)


def _stale_auxiliary(original: Any) -> Any:
    return lambda rng, f, h, *rest: (original(rng, f, h, *rest)[0], h)


def _narrow_interval(original: Any) -> Any:
    def bootstrap(*args: Any, **options: Any) -> Any:
        correct = original(*args, **options)
        inset = 0.025 * (correct.high - correct.low)
        return correct._replace(low=correct.low + inset, high=correct.high - inset)

    return bootstrap


def _doubled_prior(original: Any) -> Any:
    return lambda counts, *, prior=1.0, **options: original(counts, prior=2.0 * prior, **options)


def _deviations_for_errors(original: Any) -> Any:
    def averaged(probabilities: Any, *rest: Any) -> Any:
        values = list(original(probabilities, *rest))
        values[1::2] = [np.sqrt(len(probabilities)) * value for value in values[1::2]]
        return values

    return averaged


def _failures_first(original: Any) -> Any:
    return lambda scores: original(np.where(np.isinf(scores), -1.0, scores))


def _labels_turned(original: Any) -> Any:
    def experiment(learner: Any, pool: Any, *, seed: Any, **options: Any) -> Any:
        turned = np.arange(len(pool.y_pool))[::-1]
        return original(learner, pool._replace(y_pool=pool.y_pool[turned]), seed=seed, **options)

    return experiment


def _one_more_iteration(original: Any) -> Any:
    return lambda *args, iterations, **options: original(*args, iterations=iterations + 1, **options)


def _other_damping(original: Any) -> Any:
    return lambda *args, damping, **options: original(*args, damping=0.5 * damping, **options)


def _other_start(original: Any) -> Any:
    return lambda *args, seed, **options: original(*args, seed=seed + 1, **options)


def _other_power(original: Any) -> Any:
    return lambda plan, method, alpha, *rest, **options: original(plan, method, 0.9 * alpha, *rest, **options)


def _truth_twice(original: Any) -> Any:
    return lambda ours, truth: original(truth, truth)


FAULTS: tuple[SeededBug, ...] = (
    _bug("svi", "curve-from-first-run", "times of section 5.2 count from the end of the first run",
           f"{_REPRODUCE}.protocols:accuracy_against_time", _from_first, "protocols"),
    _bug("svi", "mean-of-one-coordinate", "the mean of section 2.1 keeps the first point's second coordinate",
           f"{_HERE}:mean_vector", _first_coordinate, "protocols"),
    _bug("x-gpc", "folds-with-one-seed", "every fold of section 5.2 starts its model from the same seed",
           f"{_REPRODUCE}.protocols:cross_validate", _one_seed, "protocols"),
    _bug("x-gpc", "curve-looks-less-often", "the curve of section 5.2 is read at every second of its times",
           f"{_REPRODUCE}.protocols:performance_against_time", _looks_less_often, "protocols"),
    _bug("x-gpc", "unweighted-batch", "the matrix of section 4.3 counts a mini-batch once in place of n/s times",
           f"{_HERE}:check_positive_definite", _unweighted, "positive_definite", "three-points-fitc"),
    _bug("ep", "nearer-cavity-mean", "(35) and (36) a millionth too small",
           f"{_HERE}:cavity_latent_mean", _nearer, "cavity_mean", "two-points-3-sparse-threshold"),
    _bug("nested-ep", "sweep-with-stale-auxiliaries", "a sweep of section 4.2.2 hands on the auxiliary values it had",
           "gibbs.models.multinomial_probit:sweep", _stale_auxiliary, "gibbs_sweep"),
    _bug("nested-ep", "narrow-intervals", "intervals of section 5.5 leave out a tenth of the draws",
           f"{_REPRODUCE}.riihimaki2013.comparison:bayesian_bootstrap", _narrow_interval, "comparison"),
    _bug("nested-ep", "doubled-prior", "the accuracies of section 5.5 are compared with twice the prior counts",
           f"{_REPRODUCE}.riihimaki2013.comparison:accuracy_comparison", _doubled_prior, "comparison"),
    _bug("ep", "deviations-for-errors", "averages of section 4.1 come with standard deviations for standard errors",
           f"{_REPRODUCE}.villacampa2017.uci:evaluation_metrics", _deviations_for_errors, "protocols"),
    _bug("pep", "failures-rank-first", "a method that failed has the best rank of section 5.1",
           f"{_REPRODUCE}.villacampa2020.uci:average_ranks", _failures_first, "protocols"),
    _bug("pep", "additions-with-other-labels", "rows that section 5.6 adds come with labels of other rows",
           f"{_REPRODUCE}.villacampa2020.fig6:active_learning_experiment", _labels_turned, "protocols"),
    _bug("nested-ep", "one-more-iteration", "the variants of section 5.1 are compared one iteration late",
           f"{_REPRODUCE}.riihimaki2013.table1:compare_ep_variants", _one_more_iteration, "experiments"),
    _bug("ep", "other-damping", "the schedules of Figure 1 run with half of their damping",
           f"{_REPRODUCE}.villacampa2017.fig1:run_schedule_comparison", _other_damping, "experiments"),
    _bug("ep", "other-start", "the run of Figure 4 starts from other inducing points than its seed's",
           f"{_REPRODUCE}.villacampa2017.fig4:training_time_experiment", _other_start, "experiments"),
    _bug("pep", "other-power", "the run of Figure 3 has nine tenths of its alpha",
           f"{_REPRODUCE}.villacampa2020.fig3:training_time_experiment", _other_power, "experiments"),
    _bug("x-gpc", "truth-against-itself", "Figure 1 pairs the chains with themselves",
           f"{_THERE}:compare_with_gibbs", _truth_twice, "compared_with_gibbs", "two-points"),
)  # fmt: skip
