"""How far one solve is, from what its own loop tells: iterations of those allowed, draws of those asked, the change.

A witness calls `Watch` after every iteration, step or sweep, as it calls any callback; three numbers of the state are
kept and nothing of the state itself. What is left is only told where it follows from what was measured.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from validation.screen.forecast import EARLIEST, Forecast, rounded

if TYPE_CHECKING:
    from validation.jobs.job import Done, Folder, Hear, Job, Work
    from validation.jobs.run import Engine

# iterations from which a rate of convergence is read, and the share of them, the latest, that it is read from
_FEWEST, _LATEST = 8, 0.5
_KEPT = 4000  # of the changes: as many of the latest iterations as a rate is read from


class _Seen(NamedTuple):
    """After so many iterations: how many seconds, and the logarithm of the change."""

    iteration: int
    seconds: float
    log_change: float


class Watch:
    """The callback of one solve, and what it says of how far that is.

    steps        that the run makes, where that is fixed; None: it ends at a change below `tolerance`
    most         iterations after which it gives up
    tolerance    change at which it has arrived
    draws        independent ones that were asked for
    then         what follows, and takes a time that nobody can tell before
    """

    def __init__(
        self,
        *,
        steps: int | None = None,
        most: int | None = None,
        tolerance: float | None = None,
        draws: int | None = None,
        then: str = "predictions",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Nothing is done yet."""
        self._steps, self._most, self._tolerance, self._draws = steps, most, tolerance, draws
        self._then, self._clock = then, clock
        self._count, self._total, self._noun = 0, steps, "step" if steps else "iteration"
        self._began = self._now = clock()
        self._changes: deque[_Seen] = deque(maxlen=_KEPT)

    def __call__(self, state: Any) -> None:
        """One more iteration is over; whatever a witness hands over of it is looked at and let go."""
        count, total, noun = self._read(state)
        now = self._clock()
        if count <= self._count:  # another loop begins
            self._began, self._changes = self._now, deque(maxlen=_KEPT)
        self._count, self._total, self._noun, self._now = count, total, noun, now
        change = next((value for name in ("residual", "change") if (value := _number(state, name)) is not None), None)
        if total is None and change is not None and 0.0 < change < math.inf:
            self._changes.append(_Seen(count, now, math.log(change)))

    def _read(self, state: Any) -> tuple[int, int | None, str]:
        sweeps = _number(state, "n_sweeps")
        if sweeps is not None:
            return int(_number(state, "sweep") or 0), int(sweeps), "sweep"
        if _number(state, "n_proposals") is not None and self._draws is not None:
            return int(_number(state, "n_draws") or 0), self._draws, "draw"
        count = _number(state, "iteration")
        total = _number(state, "n_steps")
        total = self._steps if total is None else int(total)
        # some states are a number or a posterior, and do not count themselves
        return self._count + 1 if count is None else int(count), total, "step" if total else "iteration"

    def words(self) -> str:
        """How far it is and what is left, as one reads it; empty before the first iteration is over."""
        if not self._count:
            return ""
        if self._total is not None:
            if self._count >= self._total:
                return f"{self._count} {self._noun}s done, now {self._then}"
            return f"{self._noun} {self._count} of {self._total}{self._of(self._left_of_total())}"
        if self._changes and self._tolerance is not None:
            change = math.exp(self._changes[-1].log_change)
            if change <= self._tolerance:
                return f"{self._noun} {self._count} arrived, now {self._then}"
            told = f"change {change:.0e} of {self._tolerance:.0e}"
            return f"{self._noun} {self._count}, {told}{self._of(self._left_of_change())}"
        return f"{self._noun} {self._count}"

    def _of(self, left: float | None) -> str:
        if left is None or self._clock() - self._began < EARLIEST:
            return ""
        # since the last iteration some of it has gone by
        left -= self._clock() - self._now
        return f"; about {rounded(left)} left, then {self._then}" if left > 0.0 else ""

    def _left_of_total(self) -> float | None:
        assert self._total is not None
        return (self._now - self._began) / self._count * max(0, self._total - self._count)

    def _left_of_change(self) -> float | None:
        """Seconds until the change is below the tolerance if it goes on to fall as it did lately, or the loop ends."""
        assert self._tolerance is not None
        last = self._changes[-1]
        wanted = last.iteration * (1.0 - _LATEST)
        first = next((observed for observed in self._changes if observed.iteration >= wanted), last)
        if last.iteration - first.iteration < _FEWEST:
            return None
        each = (last.seconds - first.seconds) / (last.iteration - first.iteration)
        fall = (first.log_change - last.log_change) / (last.iteration - first.iteration)
        missing = last.log_change - math.log(self._tolerance)
        if missing <= 0.0:
            return 0.0
        if fall <= 0.0:  # it does not fall: nobody can tell
            return None
        iterations = missing / fall
        return each * (iterations if self._most is None else min(iterations, max(0, self._most - last.iteration)))


class Counting:
    """An engine that says how many of the jobs it was given are done.

    engine    who works them
    """

    def __init__(self, engine: Engine) -> None:
        """Nothing is done yet."""
        self._engine, self._done, self._jobs = engine, 0, 0
        self._forecast, self._began = Forecast({}), time.perf_counter()

    def spread(
        self, work: Work, jobs: Sequence[Job], listen: Hear, shared: Folder | None = None
    ) -> Generator[Done, None, None]:
        """Yield jobs as they get done; another list begins anew."""
        self._done, self._jobs, self._began = 0, len(jobs), time.perf_counter()
        self._forecast = Forecast({(job.name, ""): job.cost or 1.0 for job in jobs})
        for done in self._engine.spread(work, jobs, listen, shared):
            self._done += 1
            self._forecast.done((done.job.name, ""))
            yield done

    def words(self) -> str:
        """How far they are and what is left, as one reads it; empty before there is a job."""
        if not self._jobs:
            return ""
        left = self._forecast.words(time.perf_counter() - self._began)
        return f"{self._done} of {self._jobs} parts done{f'; {left}' if left else ''}"


def known(implementation: str, method: str) -> Mapping[str, Any]:
    """The options that a method of a witness is known to take; none of what cannot be asked."""
    from validation.door.options import options_of

    try:
        return options_of(implementation, method)
    except (LookupError, ValueError):  # the solve itself says what is wrong
        return {}


def of_options(known: Mapping[str, Any], given: Mapping[str, Any]) -> Watch | None:
    """A watch for a solve with these options, or None where the method takes no callback or that would cost something.

    Parameters
    ----------
    known    name -> option of the method (`validation.door.options.options_of`)
    given    name -> value, as asked
    """
    if "callback" not in known or "callback" in given:
        return None

    def value(name: str) -> Any:
        return given[name] if name in given else known[name].default if name in known else None

    if value("optimizer") == "adam":
        # energies of alpha divergences make q from its coordinates for whoever looks on, at every step
        return None
    batches = value("batches")
    stochastic = batches is not None or value("batch_size") is not None
    steps = len(batches) if isinstance(batches, list) else value("n_steps")
    # a search converges within each of its evaluations, which says nothing about the search itself
    held = not stochastic and not value("learn")
    return Watch(
        steps=_count(steps) if stochastic else None,
        most=_count(value("max_iterations")),
        tolerance=_share(value("tolerance")) if held else None,
        draws=_count(value("n_draws")),
        then="predictions" if value("evidence") in (None, "none") else "log Z",
    )


def _number(state: Any, name: str) -> float | None:
    value = getattr(state, name, None)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _share(value: Any) -> float | None:
    """A number in (0, 1); whatever else was asked the method itself refuses."""
    return float(value) if isinstance(value, (int, float)) and 0.0 < value < 1.0 else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
