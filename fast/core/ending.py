"""A run that has to end before it is done: its seconds are spent, or somebody asked for it. What it has is kept.

Loops ask `ended()` between two iterations and stop with the state that they have; searches drop an evaluation that was
cut short and return the best one before it. Nobody is asked outside `ending`, where every run goes to its own end. The
same place hears how far a run is: `reached()` prints a line now and then if somebody listens. And it knows when a
search gains nothing that predictions would show: `enough()`. The evidence is the sum of log predictive probabilities of
rows, each given those before it, so that its change over the number of rows is a mean change of those.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

ENOUGH = "further iterations would not change predictions"
_SPAN = 3
_SLOW = 5  # iterations of a method that converges slowly
_FIRST, _GROWTH = 1.0, 1.5  # seconds until the first line of progress, and how much later each further one comes


class EndedError(Exception):
    """An evaluation of a search that was cut short: its value is that of no fixed point."""


class Ending:
    """Of one run: seconds that it may take (None: any), who listens, what gain counts, whether it was interrupted."""

    def __init__(self, seconds: float | None, listen: Callable[[str], None] | None, worth: float) -> None:
        self.started = time.perf_counter()
        self.seconds, self.listen, self.worth = seconds, listen, worth
        self.interrupted = False
        self.stopped = ""  # why somebody who looks on has ended it
        self.outer: Ending | None = None
        self._next = _FIRST

    def why(self) -> str:
        """Why the run has to end now; "" if it has not. A run inside another ends with it."""
        if self.interrupted:
            return "interrupted"
        if self.stopped:
            return self.stopped
        if self.outer is not None and (why := self.outer.why()):
            return why
        if self.seconds is not None and time.perf_counter() - self.started > self.seconds:
            return f"max_time of {self.seconds:g} s spent"
        return ""

    def left(self) -> float:
        """Seconds that the run may still take; infinite where nobody set a limit."""
        outer = math.inf if self.outer is None else self.outer.left()
        if self.seconds is None:
            return outer
        return min(outer, self.started + self.seconds - time.perf_counter())

    def hear(self, what: str, value: float) -> None:
        """Print how far the run is, at times that grow apart."""
        spent = time.perf_counter() - self.started
        if self.listen is None or spent < self._next:
            return
        self._next = _GROWTH * spent
        objective = "" if math.isnan(value) else f", objective {value:.6g}"
        self.listen(f"{what}{objective}, {spent:.1f} s")


_present: ContextVar[Ending | None] = ContextVar("ending", default=None)


@contextmanager
def ending(seconds: float | None, listen: Callable[[str], None] | None = None, worth: float = 0.0) -> Iterator[Ending]:
    """Inside, runs end when their seconds are spent, or after Ctrl-C: who comes to the end then raises it again.

    A second Ctrl-C is raised at once. Signals reach the main thread only, and a handler of somebody else's stays.

    Parameters
    ----------
    seconds : float or None    from now
    listen : callable          gets a line of progress now and then
    worth : float              nats that some iterations have to gain together; 0: as in the run around this one, and
                               without one searches have their own criteria
    """
    outer = _present.get()
    here = Ending(seconds, listen, worth or (0.0 if outer is None else outer.worth))
    here.outer = outer
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )

    def interrupt(number: int, frame: FrameType | None) -> None:
        if here.interrupted:
            signal.default_int_handler(number, frame)
        here.interrupted = True

    token = _present.set(here)
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield here
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _present.reset(token)


def ended() -> str:
    """Why the run that this is part of has to end now; "" if it has not."""
    here = _present.get()
    return "" if here is None else here.why()


def time_left() -> float:
    """Seconds that the run that this is part of may still take; infinite where nobody set a limit."""
    here = _present.get()
    return math.inf if here is None else here.left()


def enough(values: Sequence[float], span: int = _SPAN) -> bool:
    """Whether the last iterations of a search gained too little to go on.

    Parameters
    ----------
    values : sequence    the best value after each iteration, in nats
    span : int           iterations that together have to gain what counts: one may gain little by chance
    """
    here = _present.get()
    if here is None or here.worth <= 0.0 or len(values) <= span:
        return False
    return values[-1] - values[-1 - span] < here.worth


class Watch:
    """Looks on where an iteration has no bound that rises: ends it where its objective stays as it is.

    Give `after` each objective inside the `ending` that it is made in. Values that repeat the last one, as a step that
    was not taken leaves them, do not count.
    """

    def __init__(self, span: int = _SLOW) -> None:
        self.span = span
        self._here, self._values = _present.get(), [math.nan]

    def after(self, value: float) -> None:
        """Take in the objective of one more iteration; nan, where there is none, starts over.

        Parameters
        ----------
        value : float    in nats
        """
        if value != self._values[-1]:
            self._values = [*self._values, value][-1 - self.span :]
        if self._here is None or len(self._values) <= self.span:
            return
        if max(self._values) - min(self._values) < self._here.worth:
            self._here.stopped = ENOUGH


def predicts() -> bool:
    """Whether predictions are all that is asked of a run, and not the last digits of its optimum."""
    here = _present.get()
    return here is not None and here.worth > 0.0


def reached(what: str, value: float = math.nan) -> None:
    """Say how far a run is.

    Parameters
    ----------
    what : str       "step 12"
    value : float    of what is maximised; NaN where it is not known
    """
    here = _present.get()
    if here is not None:
        here.hear(what, value)
