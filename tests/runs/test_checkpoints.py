"""Whatever moves a number is in the checkpoint: a resumed run is refused by name, or it is the run that was asked for.

Every method that documents a checkpoint, every one of its options, and every field of the problem.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from in_every_run import others_slow
from validation import problems, solve
from validation.checks import runs
from validation.checks.runs import CATALOGUE, RESUMABLE, differing, documents, numbers, posed
from validation.door.options import options_of
from validation.door.problem import Problem

# the listener and the file are how a run is interrupted; what follows is told from neither
_HOW = ("callback", "checkpoint", "checkpoint_every")
_TOLD = {"prior_on": "laws"}  # what a file calls an option that is stored as what it does
METHODS = others_slow(
    [(w, method) for method in CATALOGUE for w in method.witnesses if documents(w, method.name, *RESUMABLE)],
    lambda witness, method: method.name in ("sep", "gibbs-probit"),
)


class EndedError(Exception):
    """Ends a run."""


def case(witness: str, method: Any) -> tuple[Problem, dict[str, Any]]:
    """A short run that can be interrupted."""
    return posed(method, problems.get(method.problem)), list(runs.runs(witness, method.name).values())[-1]


def interrupt(witness: str, name: str, problem: Problem, options: dict[str, Any], path: Path) -> None:
    """Leave a checkpoint of the first steps."""
    calls = 0

    def end(_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise EndedError

    with suppress(EndedError):
        solve(witness, name, problem, **options, callback=end, checkpoint=path, checkpoint_every=2)
    assert path.exists()


def another(option: Any, value: Any, n: int) -> Any:
    """A value of an option that it does not have, or None if there is none to be told from the table."""
    kind = option.kind
    if kind == "flag":
        return not value
    if kind in ("choice", "names"):
        others = [
            (name,) if kind == "names" else name for name in option.choices if name not in (value, *np.ravel(value))
        ]
        return others[0] if others else None
    if kind == "integer":
        return 2 if value in (None, "auto", "default") else int(value) + 1
    if kind in ("number", "rate"):
        return 0.5 if not isinstance(value, (int, float)) or isinstance(value, bool) else 0.75 * value or 0.5
    return None


def refused_or_right(
    witness: str, name: str, field: str, problem: Problem, options: dict[str, Any], path: Path
) -> None:
    """Resume with what is changed: an error that names it, or the digits of the same run without a file."""
    before = path.read_bytes()
    try:
        fresh = solve(witness, name, problem, **options)
    except (ValueError, TypeError):
        return  # no run at all
    try:
        again = solve(witness, name, problem, **options, checkpoint=path, checkpoint_every=2)
    except (ValueError, TypeError) as error:
        told = str(error)
        right = "checkpoint" in told and _TOLD.get(field, field).split("_")[0] in told
    else:
        told = f"differ: {differing(numbers(fresh), numbers(again))}"
        right = told == "differ: []"
    assert right, f"{field}: {told}"
    path.write_bytes(before)


@pytest.mark.parametrize(("witness", "method"), METHODS, ids=lambda value: getattr(value, "name", value))
def test_a_run_of_other_options_is_refused_by_name_or_is_that_run(witness: str, method: Any, tmp_path: Path) -> None:
    problem, options = case(witness, method)
    path = tmp_path / "run.npz"
    interrupt(witness, method.name, problem, options, path)
    for name, option in options_of(witness, method.name).items():
        value = None if name in _HOW else another(option, options.get(name, option.default), problem.n)
        if value is not None:
            refused_or_right(witness, method.name, name, problem, {**options, name: value}, path)


@pytest.mark.parametrize(("witness", "method"), METHODS, ids=lambda value: getattr(value, "name", value))
def test_a_run_of_other_data_is_refused_by_name_or_is_that_run(witness: str, method: Any, tmp_path: Path) -> None:
    problem, options = case(witness, method)
    path = tmp_path / "run.npz"
    interrupt(witness, method.name, problem, options, path)
    for name in ("X", "variance", "lengthscales", "noise", "jitter", "Z", "X_test"):
        value = getattr(problem, name)
        if value is not None:
            changed = np.array(value)
            last = (-1,) * value.ndim if name.startswith("X") else ...  # a prior that is shared stays so
            changed[last] = np.nextafter(changed[last], np.inf)
            refused_or_right(witness, method.name, name, problem.replace(**{name: changed}), options, path)
    refused_or_right(witness, method.name, "y", problem.replace(y=problem.y[::-1]), options, path)


@pytest.mark.parametrize(("witness", "method"), METHODS, ids=lambda value: getattr(value, "name", value))
def test_a_damaged_file_is_refused_by_name(witness: str, method: Any, tmp_path: Path) -> None:
    problem, options = case(witness, method)
    path = tmp_path / "run.npz"
    interrupt(witness, method.name, problem, options, path)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-1], b"", b"no archive"):
        path.write_bytes(damaged)
        with pytest.raises((ValueError, OSError), match="checkpoint"):
            solve(witness, method.name, problem, **options, checkpoint=path, checkpoint_every=2)
        assert path.read_bytes() == damaged
    for place in np.linspace(0, len(whole) - 1, 7).astype(int):
        turned = bytearray(whole)
        turned[place] ^= 0xFF  # not every byte of an archive says something
        path.write_bytes(bytes(turned))
        refused_or_right(witness, method.name, "", problem, options, path)
