"""Truths of data sets that are not committed: moments without the data, for whoever has these at hand.

The files in `withheld/` are those of `store` less every field of the problem. A digest of rows and labels says whose
they are, so that a truth is never given to other data. `python -m validation.truth.withheld` makes them anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from validation import datasets
from validation.datasets.errors import DatasetNotFoundError
from validation.datasets.splits import standardise, train_test_split
from validation.door import storage
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.door.statistics import LEVEL
from validation.truth.card import EvidenceCard
from validation.truth.make import Listener, Truth, agreement_statistics, make_truth

SCHEMA = "gpc-triad/withheld-truth/1"
SEED = 20130101


class Setting(NamedTuple):
    """A training half of a data set under riihimaki2013's prior with one log variance and one log lengthscale."""

    dataset: str
    log_variance: float
    log_lengthscale: float


# riihimaki2013, Table 1
SETTINGS: Mapping[str, Setting] = MappingProxyType({"glass": Setting("glass", 1.0, 1.0)})


@cache
def question(name: str) -> Problem:
    """The problem of that name: half of the rows, standardised, test inputs the training ones.

    Raises
    ------
    DatasetNotFoundError    if $TRIAD_DATA does not have the data
    """
    setting = SETTINGS[name]
    # a check must not wait for a download
    data = datasets.load(setting.dataset, source="folder").without_constant_features()
    train = train_test_split(data, 0, test_size=0.5).train
    (X,) = standardise(data.X[train])
    return Problem(
        name=name,
        X=X,
        y=data.y[train],
        n_classes=data.n_classes,
        likelihood="multinomial-probit",
        variance=float(np.exp(setting.log_variance)),
        lengthscales=float(np.exp(setting.log_lengthscale)),
        jitter=1e-6,
        shared=True,
        X_test=X,
    )


def fingerprint(problem: Problem) -> str:
    """Digest of labels and inputs, the latter to six decimals: sums differ in the last place between machines."""
    # adding 0.0 turns the negative zeros of rounding into zeros
    parts = (np.round(problem.X, 6) + 0.0).astype("<f8"), problem.y.astype("<i8")
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def folder() -> Path:
    """Where the files are."""
    return Path(str(resources.files("validation.truth"))) / "withheld"


def load(name: str) -> Truth:
    """The truth of that name, joined to the data.

    Raises
    ------
    DatasetNotFoundError       without the data
    storage.FileFormatError    if what is at hand is not what the truth is of
    """
    problem = question(name)
    card = EvidenceCard.load(folder() / f"{name}.toml")
    if fingerprint(problem) != card.problem_sha256:
        raise storage.FileFormatError(
            f"{name}: found data with another digest than the truth's, expected the same rows"
        )
    card.check_moments(folder() / f"{name}.npz")
    arrays = storage.load_npz(folder() / f"{name}.npz", SCHEMA)
    arrays |= {f"problem/{key}": value for key, value in problem.to_arrays().items()}
    return Truth(Solution.from_arrays(arrays, where=name), card)


def save(name: str, truth: Truth) -> None:
    """Write moments and card, nothing of the problem but its name and digest."""
    arrays = truth.solution.to_arrays()
    kept = {key: value for key, value in arrays.items() if not key.startswith("problem/")}
    card = replace(truth.card, problem_sha256=fingerprint(truth.solution.problem))
    card.save_with(folder() / f"{name}.npz", storage.npz_bytes(SCHEMA, kept))


def regenerate(name: str, *, target_ess: float = 4_000, n_draws: int = 160, listen: Listener | None = None) -> Truth:
    """Chains of exact HMC in truncated Gaussians, held against shorter ones with the paper's two conditionals alone.

    Parameters
    ----------
    name                name of `SETTINGS`
    target_ess          effective draws, the smallest over all
    n_draws             draws per chain to begin with
    listen              told of every `Attempt`
    """
    problem = question(name)
    common: dict[str, Any] = {"second": "none", "listen": listen}
    made = make_truth(problem, "gibbs-probit", target_ess=target_ess, seed=SEED, first_draws=n_draws, **common)
    # short of its target it still has its errors, which are what it is compared with
    other = make_truth(
        problem, "gibbs-probit", target_ess=0.1 * target_ess, seed=SEED + 1, first_draws=n_draws, max_draws=n_draws,
        options={"moves": []}, **common,
    )  # fmt: skip
    z = agreement_statistics(made.solution, other.solution)
    card = replace(
        made.card,
        second_route=f"gibbs gibbs-probit moves=none, {other.card.chains} chains x {other.card.draws} draws",
        second_z=float(np.abs(z).max()),
        second_count=int(z.size),
        second_limit=float(-ndtri(0.5 * LEVEL / z.size)),
    )
    truth = Truth(made.solution, card)
    save(name, truth)
    return truth


def at_hand(name: str) -> Solution | str:
    """The truth of that name, or why there is none here."""
    try:
        return load(name).solution
    except DatasetNotFoundError:
        return f"data: found no {SETTINGS[name].dataset!r} in $TRIAD_DATA, expected it: no data set is committed"


if __name__ == "__main__":
    for one in SETTINGS:
        regenerate(one)
