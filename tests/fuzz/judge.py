"""What may come out of a call: an answer that is finite, or an error that names argument, found and expected."""

from __future__ import annotations

import dataclasses
import math
import re
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

OURS = ("reference", "fast", "gibbs", "validation")
_FORM = re.compile(r"\A[^\n]{1,200}?: (?s:.)*?\b(found|diverged|missing)\b(?s:.)*\bexpected\b")
_KINDS = (ValueError, TypeError, OSError, LookupError)


class Finding(NamedTuple):
    """What is wrong with the outcome of a call."""

    kind: str  # for the counts; what shrinking must keep
    text: str


class Hang(BaseException):
    """The time of a call is over; no `except Exception` on the way may hold it up."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """At most so many seconds of computing for what is inside, and six times that of waiting (POSIX, main thread)."""

    def ring(_: int, frame: FrameType | None) -> None:
        raise Hang(f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "")

    # other processes may take the core: what counts is the time that this one had
    clocks = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, 6.0 * seconds))
    before = [signal.signal(number, ring) for _, number, _ in clocks]
    for clock, _, limit in clocks:
        signal.setitimer(clock, limit)
    try:
        yield
    finally:
        for (clock, number, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(clock, 0.0)
            signal.signal(number, handler)


def outcome(call: Callable[[], Any], seconds: float) -> Finding | None:
    """Nothing if the call ends as it should, else what is wrong."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            with limited(seconds):
                result = call()
        except Hang as error:
            return Finding("hang", f"no end within {seconds:g} s, at {error}")
        except Exception as error:  # noqa: BLE001 - everything that comes out of a door is looked at
            return _of_error(error) or _of_warnings(heard)
        except SystemExit as error:
            return Finding("exit", f"SystemExit {error.code}")
    return _of_warnings(heard) or _of_answer(result)


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return traceback.extract_tb(error.__traceback__)


def _of_error(error: Exception) -> Finding | None:
    """Errors of ours have a form; so have those of scikit-learn about X and y, which are its own."""
    text, kind = str(error), type(error)
    last = _frames(error)[-1]
    names = [frame.filename.replace("\\", "/") for frame in _frames(error)]
    # pandas raises where scikit-learn asks it for an array
    theirs = "/sklearn/" in names[-1] or (
        "/pandas/" in names[-1] and any("/sklearn/utils/validation" in n for n in names)
    )
    if theirs and isinstance(error, (ValueError, TypeError, OverflowError)):
        return None
    place = f"{last.filename.rsplit('/', 3)[-1]}:{last.lineno}"
    own = kind.__module__.partition(".")[0] in OURS
    if not own and not isinstance(error, _KINDS):
        return Finding(kind.__name__, f"{kind.__name__}: {text[:300]} ({place})")
    if isinstance(error, np.linalg.LinAlgError) and not own:
        return Finding("LinAlgError", f"{kind.__name__}: {text[:300]} ({place})")
    made = [
        frame for frame in _frames(error) if frame.filename.replace("\\", "/").endswith("validation/door/solution.py")
    ]
    read = any(frame.name in ("load", "from_arrays") for frame in made)  # the file is bad, not an answer
    if made and not read and not text.startswith("name:"):
        return Finding("answer", f"an answer that is none: {text[:300]}")
    if _FORM.match(text) is None:
        return Finding("form", f"{kind.__name__}: {text[:300]!r} ({place}), expected argument: found ..., expected ...")
    return None


def _of_warnings(heard: list[warnings.WarningMessage]) -> Finding | None:
    for one in heard:
        inside = any(f"/{package}/" in one.filename.replace("\\", "/") for package in OURS)
        if inside and issubclass(one.category, RuntimeWarning) and "jitter raised" not in str(one.message):
            place = f"{one.filename.rsplit('/', 2)[-1]}:{one.lineno}"
            return Finding("warning", f"{one.category.__name__}: {one.message} ({place})")
    return None


def _of_answer(result: Any) -> Finding | None:
    """Numbers of an answer are finite, probabilities sum to one, variances are not negative."""
    for name, value in _leaves(result, "", 3):
        array = np.asarray(value)
        if array.dtype.kind != "f" or array.size == 0:
            continue
        field = name.rpartition(".")[2]
        if field in _MAY_BE_NONE or any(part in name for part in _UNFINISHED):
            continue
        if not np.isfinite(array).all():
            return Finding("nan", f"{name}: found {array[~np.isfinite(array)].flat[0]}, expected finite numbers")
        table = field in ("probabilities", "predict_proba") and array.ndim == 2
        if table and ((array < 0.0).any() or (np.abs(array.sum(axis=1) - 1.0) > 1e-9).any()):
            return Finding("probabilities", f"{name}: found rows that sum to {array.sum(axis=1)}, expected 1")
        if field.endswith("_var") and (array < 0.0).any():
            return Finding("variance", f"{name}: found {array.min():.6g}, expected >= 0")
    return None


# where a number says of itself that there is none: no second iteration to compare with, an estimate not asked for
_MAY_BE_NONE = (
    "residual",
    "r_hat",
    "ess",
    "log_evidence",
    "elbo",
    "ess_bulk",
    "ess_tail",
    "rho",
    "change",
    "objective",
)
_UNFINISHED = ("trace", "convergence", "settings", "error", "_se", "mcse", "autocorrelation", "trained", "prior", "run")


def _leaves(result: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(result, (float, np.floating, np.ndarray)):
        yield name, result
        return
    if depth == 0:
        return
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        for field in dataclasses.fields(result):
            yield from _leaves(getattr(result, field.name), f"{name}.{field.name}", depth - 1)
    elif isinstance(result, tuple) and hasattr(result, "_fields"):
        for field_name in result._fields:
            yield from _leaves(getattr(result, field_name), f"{name}.{field_name}", depth - 1)
    elif isinstance(result, dict):
        for key, value in result.items():
            yield from _leaves(value, f"{name}.{key}", depth - 1)
    elif isinstance(result, (list, tuple)):
        for k, value in enumerate(result[:10]):
            yield from _leaves(value, f"{name}[{k}]", depth - 1)


def honest(converged: Any, residual: Any) -> bool:
    """Whether a flag of convergence goes with its residual."""
    return not (bool(converged) and residual is not None and not math.isfinite(float(residual)))
