"""villacampa2020, section 5.1 and appendix D: how eight data sets are split, and how methods and alphas are ranked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from validation.datasets.dataset import Dataset
from validation.door import arguments
from validation.door.quoting import shown
from validation.ledger.marker import equation
from validation.reproduce.villacampa2017 import uci as earlier
from validation.reproduce.villacampa2020 import setting

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

DATASETS = earlier.DATASETS
FRACTIONS = earlier.FRACTIONS
GENERATED = earlier.GENERATED
DRAWS = earlier.DRAWS
load = earlier.load


class Plan(NamedTuple):
    """One repetition: what a method is trained on and scored by."""

    X: Array  # standardised by itself
    y: Labels
    X_test: Array
    y_test: Labels
    n_inducing: int  # m
    alpha: float
    n_steps: int  # iterations of training
    repetitions: int  # in all
    quasi_newton: tuple[str, ...]  # methods trained by L-BFGS; PEP is by gradient ascent with adaptive rates


@equation("villacampa2020", "u37-uci-protocol")
def uci_protocol(data: Dataset, fraction: float, alpha: float, repetition: int, *, seed: int = 0) -> Plan:
    """Split, number of inducing points and training of one repetition: villacampa2020, section 5.1.

    90 % of the rows are for training, 20 % of Satellite, 30 % of Waveform, as in villacampa2017; one split serves every
    alpha and every method. Inputs are standardised by the training rows.

    Parameters
    ----------
    data : Dataset       see `load`: six classes of vowel, 1000 generated rows of waveform
    fraction : float     inducing points as a share of the training rows: 0.05, 0.1, 0.2 in the paper
    alpha : float        0 (VB) to 1, in steps of 0.1 in the paper
    repetition : int     from 0; each has a split of its own
    seed : int           of all splits
    """
    if not 0.0 <= arguments.real(alpha, "alpha") <= 1.0:
        raise ValueError(f"alpha: found {shown(alpha)}, expected a number from 0 to 1")
    split = earlier.uci_protocol(data, fraction, repetition, seed=seed)
    quasi_newton = tuple(method for method in setting.METHODS if method != "pep")
    return Plan(*split[:5], float(alpha), 500, 20, quasi_newton)


@equation("villacampa2020", "u38-average-ranks")
def average_ranks(scores: ArrayLike) -> Array:
    """(k,) mean over settings of the rank of each of k candidates, 1 the smallest score: villacampa2020, section 5.1.

    Equal scores share the mean of their ranks; infinite ones are last.

    Parameters
    ----------
    scores : (..., k)    a setting (data set, split, number of inducing points) in each row; smaller is better

    Raises
    ------
    ValueError           no setting, no candidate, or NaN
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim < 2 or table.size == 0:
        raise ValueError(f"scores: found shape {table.shape}, expected settings by candidates")
    if np.isnan(table).any():
        raise ValueError("scores: found NaN, expected numbers; inf stands for a candidate without a score")
    table = table.reshape(-1, table.shape[-1])
    return np.asarray(rankdata(table, axis=1).mean(axis=0))


class Ranks(NamedTuple):
    """Mean ranks of every method and alpha, as Fig. 1 and D.8 have them."""

    among_alphas: Array  # (methods, alphas): height of a point, the method fixed
    among_methods: Array  # (methods, alphas): its colour, alpha fixed


def rank_study(scores: ArrayLike) -> Ranks:
    """Ranks of alphas for each method and of methods for each alpha: (settings, methods, alphas) scores.

    Parameters
    ----------
    scores : (s, methods, alphas)    smaller is better; inf: none
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 3:
        raise ValueError(f"scores: found shape {table.shape}, expected settings by methods by alphas")
    methods, alphas = table.shape[1:]
    heights = np.array([average_ranks(table[:, i, :]) for i in range(methods)])
    colours = np.array([average_ranks(table[:, :, j]) for j in range(alphas)]).T
    return Ranks(heights, colours)


@equation("villacampa2020", "u50-error-ranks")
def error_rank_experiments(wrong: ArrayLike, n_test: ArrayLike) -> Ranks:
    """The ranks of section 5.1 with the test error in place of the log-likelihood: villacampa2020, Fig. D.8.

    Errors are shares of few test rows, so that ties are common: they are looked for in counts, where they are exact.

    Parameters
    ----------
    wrong : (s, methods, alphas)    wrong labels in each setting; inf: the method has no finite optimum there
    n_test : (s,)                   test rows of the setting

    Raises
    ------
    ValueError                      counts that are no counts, or more wrong labels than rows
    """
    table, rows = np.asarray(wrong, dtype=np.float64), np.asarray(n_test, dtype=np.float64)
    if table.ndim != 3 or rows.shape != table.shape[:1]:
        raise ValueError(f"n_test: found shape {rows.shape}, expected one number for each setting of {table.shape}")
    counts = table[np.isfinite(table)]
    if (counts != np.rint(counts)).any() or (counts < 0.0).any() or np.isnan(table).any():
        raise ValueError("wrong: found a value that is no count, expected numbers of wrong labels, or inf")
    if ((table > rows[:, None, None]) & np.isfinite(table)).any():
        raise ValueError("wrong: found more wrong labels than test rows")
    return rank_study(table)
