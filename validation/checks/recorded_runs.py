"""Recorded runs: the numbers that a run from a fixed start or seed passes through, against those recorded.

A stopping rule, a damping, a schedule, a mixing that remembers other sweeps, a step size that adapts otherwise: each
may change and leave the answer where it is, because the fixed point or the target does not depend on it. So the answer
cannot tell; the way to it can. What is recorded is no truth: it says that the way is the one of the day of the record,
and a deliberate change of the way is recorded anew (`python -m validation.checks.recorded_runs`). Truths are the
business of all other checks.

Of every array three numbers are kept: how many entries are finite, a sum with unequal weights, and the norm. A run
draws the same random numbers under the same NumPy; where the generators give others, nothing is compared.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import Compared, Context, Outcome, Skipped

FILE = "recorded_runs.json"
TABLES = (
    "validation.checks.recorded_fast",
    "validation.checks.recorded_gibbs",
    "validation.checks.recorded_reference",
)
# Other kernels move these runs by 1e-6 and less (steep ones; most by 1e-10), a mistake in a step by percents.
LIMIT = 1e-5
# absolute: what is smaller is the rounding of terms of order one
FLOOR = 1e-6
# iterations to the end, which rounding may move: at most so many, or this share
SPARE, SHARE = 1, 0.1
# What is left of larger terms, and ranks: folded about a median the two values beside it are equal but for rounding, so
# that their ranks change places. Kernels move the first by 1e-5, the second by 1e-2.
LOOSE: Mapping[str, float] = MappingProxyType({"residual": 1e-3, "r_hat": 5e-2, "gradient": 1e-3})
_CLOCKS = ("seconds", "sweeps_per_second")
Print = tuple[int, float, float]  # finite entries, weighted sum, norm


class Way(NamedTuple):
    """A run that is recorded.

    method, witness, label : str
    run : callable          of the context, gives what is recorded: NamedTuples, mappings, arrays, numbers
    counts : names          of numbers that rounding may move by SPARE or SHARE
    full : bool             asked by a full run only
    """

    method: str
    witness: str
    label: str
    run: Callable[[Context], Any]
    counts: tuple[str, ...] = ()
    full: bool = False


def leaves(value: Any, name: str = "") -> dict[str, NDArray[np.float64]]:
    """All numbers of an answer by name but what a clock says; words are left out."""
    if isinstance(value, Mapping):
        parts = [(str(key), value[key]) for key in sorted(value, key=str)]
    elif hasattr(value, "_fields"):
        parts = [(field, getattr(value, field)) for field in value._fields]
    elif isinstance(value, (list, tuple)) and value and all(hasattr(entry, "_fields") for entry in value):
        rows = [leaves(entry) for entry in value]
        parts = [(part, np.concatenate([row[part].ravel() for row in rows if part in row])) for part in rows[0]]
    else:
        array = np.asarray(value) if isinstance(value, (int, float, np.generic, np.ndarray, list, tuple)) else None
        return {name: array.astype(np.float64)} if array is not None and array.dtype.kind in "biuf" else {}
    results: dict[str, NDArray[np.float64]] = {}
    for part, entry in parts:
        if part not in _CLOCKS:
            results |= leaves(entry, f"{name}.{part}" if name else part)
    return results


def printed(array: NDArray[np.float64]) -> Print:
    """Finite entries, their sum with weights that tell places apart, their norm."""
    flat = array.ravel()
    finite = np.isfinite(flat)
    weighted = (flat * (1.0 + 0.5 * np.cos(1.0 + np.arange(flat.size))))[finite]
    return int(finite.sum()), float(weighted.sum()), float(np.sqrt(np.square(weighted).sum()))


def numbers() -> Print:
    """What the generators of this NumPy give."""
    rng = np.random.default_rng(20)
    spawned = np.random.default_rng(np.random.SeedSequence(7).spawn(2)[1])
    drawn = [rng.standard_normal(50), rng.random(50), rng.exponential(size=50), rng.standard_gamma(2.5, 50),
             rng.integers(1000, size=50), rng.permutation(50), rng.choice(50, 20), spawned.random(9)]  # fmt: skip
    return printed(np.concatenate([np.asarray(part, dtype=np.float64) for part in drawn]))


@cache
def recorded() -> Mapping[str, Any]:
    """method -> label -> name -> three numbers; and those of the generators."""
    result: Mapping[str, Any] = json.loads(
        resources.files("validation.checks").joinpath(FILE).read_text(encoding="utf-8")
    )
    return result


def distance(value: Mapping[str, Print], wanted: Mapping[str, Print], counts: Iterable[str]) -> tuple[float, str]:
    """The largest distance of a weighted sum over the norm, and of what; infinite where names or sizes differ."""
    if set(value) != set(wanted):
        return np.inf, sorted(set(value) ^ set(wanted))[0]
    apart = {}
    for name, (size, total, norm) in wanted.items():
        if name.rpartition(".")[2] in counts:
            apart[name] = abs(value[name][1] - total) / max(SPARE * (1.0 + 0.5 * np.cos(1.0)), SHARE * total) * LIMIT
        elif value[name][0] != size:
            apart[name] = np.inf
        else:
            # the norm as well: a sum alone may keep its value
            change = max(abs(value[name][1] - total), abs(value[name][2] - norm))
            allowed = LOOSE.get(name.rpartition(".")[2].partition(" ")[0], LIMIT)
            apart[name] = change / max(norm, FLOOR) * (LIMIT / allowed)
    worst = max(apart, key=lambda name: np.inf if np.isnan(apart[name]) else apart[name])
    return apart[worst], worst


def compared(context: Context, way: Way) -> Outcome:
    """One run against its record."""
    wanted = recorded()[way.method][way.label]
    results = {name: printed(array) for name, array in leaves(way.run(context)).items()}
    apart, worst = distance(results, wanted, way.counts)
    return Compared(
        apart, LIMIT, f"{way.label}: {worst} is worst of {len(wanted)}; rounding leaves 1e-6, another way percents",
        way.witness, "recorded", f"relative difference of {worst}",
    )  # fmt: skip


def outcomes(context: Context, ways: Iterable[Way]) -> Iterable[Outcome]:
    """All runs of a check, or why none is compared."""
    if distance({"": numbers()}, {"": tuple(recorded()["numbers"])}, ())[0] > LIMIT:
        yield Skipped("this NumPy draws other random numbers from the same seed than the one of the record")
        return
    for way in ways:
        if not (way.full and context.quick):
            yield compared(context, way)


def record() -> str:
    """Run everything in the tables and list what it gives; returns the text of the file."""
    core = importlib.import_module("validation.checks.core")
    lines = [f'"numbers": {json.dumps(_short(numbers()))}']
    table: dict[str, dict[str, str]] = {}
    for module in TABLES:
        for way in importlib.import_module(module).WAYS:
            result = leaves(way.run(core.Context(quick=True)))
            row = {name: _short(printed(array)) for name, array in sorted(result.items())}
            table.setdefault(way.method, {})[way.label] = json.dumps(row)
    for method in sorted(table):
        rows = ",\n".join(f"{json.dumps(label)}: {row}" for label, row in table[method].items())
        lines.append(f"{json.dumps(method)}: {{\n{rows}\n}}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _short(entry: Print) -> Print:
    return entry[0], float(f"{entry[1]:.9e}"), float(f"{entry[2]:.9e}")


if __name__ == "__main__":
    from pathlib import Path

    from validation.storage import write_text

    write_text(Path(__file__).with_name(FILE), record())
