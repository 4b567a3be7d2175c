"""The flight delays of villacampa2017, section 4.4: what a file of them must hold, and made-up ones in their form."""

from __future__ import annotations

import numpy as np

from validation import datasets
from validation.datasets.dataset import Dataset
from validation.door import arguments

ATTRIBUTES = (
    "age of the aircraft", "distance", "airtime", "departure time", "arrival time", "day of the week",
    "day of the month", "month",
)  # fmt: skip
CLASSES = ("on time", "late", "early")  # more than 5 minutes of delay; more than 5 minutes before time
NAME = "airline"
SYNTHETIC = "synthetic-delays"


def load(name: str, n: int, seed: int) -> Dataset:
    """The data set, checked for its form; "synthetic-delays" are n made-up flights.

    Raises
    ------
    DatasetNotFoundError    no copy within reach; says how a file of one's own is found
    ValueError              another number of attributes or classes
    """
    if arguments.string(name, "dataset") == SYNTHETIC:
        return make_synthetic_delays(n, seed)
    try:
        data = datasets.load(name)
    except datasets.DatasetNotFoundError as error:
        form = f"Its columns: x1..x8 are {', '.join(ATTRIBUTES)}; y is one of {', '.join(CLASSES)}"
        raise datasets.DatasetNotFoundError(
            f"{error}.\n{form}; no value is missing.\nOr run it on made-up data: --dataset {SYNTHETIC}"
        ) from error
    if (data.d, data.n_classes) != (len(ATTRIBUTES), len(CLASSES)):
        text = f"{data.d} attributes and {data.n_classes} classes"
        raise ValueError(f"dataset: found {text} in {name}, expected {len(ATTRIBUTES)} and {len(CLASSES)}")
    return data


def make_synthetic_delays(n: int, seed: int) -> Dataset:
    """n made-up flights in the ranges of the eight attributes; nothing in them is a flight.

    The delay in minutes is a smooth function of departure time, day and distance plus a skewed draw; a third or so of
    the labels can be known from the attributes.
    """
    arguments.integer(n, "n", at_least=3)
    rng = np.random.default_rng(arguments.integer(seed, "seed", at_least=0))
    age, month = rng.gamma(3.0, 4.0, n), rng.integers(1, 5, n).astype(np.float64)
    weekday, monthday = rng.integers(1, 8, n).astype(np.float64), rng.integers(1, 32, n).astype(np.float64)
    distance = rng.gamma(2.0, 350.0, n) + 60.0
    airtime = distance / 7.5 + rng.normal(18.0, 6.0, n)
    departure = rng.uniform(300.0, 1380.0, n)  # minutes after midnight
    arrival = np.mod(departure + airtime + 30.0, 1440.0)
    hour = (departure - 300.0) / 1080.0
    expected = 14.0 * hour**2 * (1.0 + 0.4 * np.sin(2.0 * np.pi * weekday / 7.0)) + 0.2 * age - 4.0
    expected += 5.0 * np.sin(monthday / 5.0) * hour - 6.0 * np.tanh((distance - 900.0) / 500.0)
    delay = expected + 6.0 * (rng.standard_exponential(n) - 1.0) + rng.normal(0.0, 4.0, n)
    y = np.where(delay > 5.0, 1, np.where(delay < -5.0, 2, 0)).astype(np.int64)
    X = np.column_stack([age, distance, airtime, departure, arrival, weekday, monthday, month])
    return Dataset(SYNTHETIC, X, y, CLASSES, ATTRIBUTES, 0, "none", "made up", "")
