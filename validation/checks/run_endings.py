"""How a run is told to end, and what it says meanwhile: seconds that are spent, Ctrl-C, progress that is told rarely.

The clock is the judge's own, so that nothing waits and nothing depends on how fast a machine is.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

from validation.checks.core import NO_PROBLEM, Context, Outcome, Skipped, check, flaws
from validation.problem import Problem


@contextmanager
def _clock() -> Iterator[list[float]]:
    """The time that `fast.core.ending` sees, in one entry that a test sets."""
    from fast.core import ending

    now = [100.0]
    with mock.patch.object(ending, "time", SimpleNamespace(perf_counter=lambda: now[0])):
        yield now


def _reasons() -> list[str]:
    """Why a run has to end, inside and outside of two that have ten and three seconds."""
    from fast.core.ending import ended, ending

    with _clock() as now:
        why = [ended()]
        with ending(10.0):
            with ending(3.0):
                for second in (0.0, 3.0, 3.1, 10.0, 10.1):
                    now[0] = 100.0 + second
                    why.append(ended())
            for second in (10.0, 10.1):
                now[0] = 100.0 + second
                why.append(ended())
        with ending(None):
            now[0] = 1e9
            why.append(ended())
    return [*why, ended()]


def _lines(first: float, growth: float) -> tuple[list[str], list[str]]:
    """Lines that are told in six seconds, looked at ten times a second; those that should be."""
    from fast.core.ending import ending, reached

    told: list[str] = []
    wanted: list[str] = []
    due = first
    with _clock() as now, ending(None, told.append):
        reached("nobody listens before", 1.0)
        for tenth in range(1, 61):
            now[0] = 100.0 + 0.1 * tenth
            value = -0.25 * tenth if tenth > 12 else math.nan
            reached(f"step {tenth}", value)
            spent = now[0] - 100.0
            if spent >= due:
                wanted.append(f"step {tenth}{f', objective {value:.6g}' if tenth > 12 else ''}, {spent:.1f} s")
                due = growth * spent
        with ending(None):
            reached("a run inside that tells nobody", 1.0)
    reached("nobody listens after", 1.0)
    return told, wanted


@check(
    "identity/svi/time_and_progress",
    paper="izmailov2016",
    question="Does a run end when its seconds, or those of a run around it, are spent, and tell less and less often?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.ending import ending, enough, predicts

    inner, outer = "max_time of 3 s spent", "max_time of 10 s spent"
    expected = ["", "", "", inner, inner, outer, "", outer, "", ""]
    why = _reasons()
    yield flaws(sum(a != b for a, b in zip(why, expected, strict=True)), f"{why}", "fast", "answers")
    told, wanted = _lines(1.0, 1.5)
    yield flaws(
        told != wanted or len(told) < 4, f"after 1 s, then half as late again: {told}", "fast", "lists of lines"
    )
    found = []
    values = [0.0, 5.0, 5.5, 5.75, 6.0]
    for worth in (0.0, 0.75, 1.0, 1.25):
        with ending(None, worth=worth):
            found.append((enough(values), enough(values[:3]), enough(values[:4]), enough(values, 1), predicts()))
    found.append((enough(values), predicts()))
    settled = [(False,) * 5, (False, False, False, True, True), (False, False, False, True, True),
               (True, False, False, True, True), (False, False)]  # fmt: skip
    wrong = sum(a != b for a, b in zip(found, settled, strict=True))
    yield flaws(
        wrong, "three iterations together have to gain what counts, and four values are needed", "fast", "answers"
    )


def _pressed() -> str:
    """What the present handler raises; "" if nothing."""
    handler = signal.getsignal(signal.SIGINT)
    assert callable(handler)
    try:
        handler(signal.SIGINT, None)
    except (KeyboardInterrupt, TypeError) as error:
        return type(error).__name__
    return ""


@check(
    "identity/svi/interrupts",
    paper="izmailov2016",
    question="Does the first Ctrl-C ask a run to end and the second end it, and are handlers of others left alone?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.ending import ended, ending

    if threading.current_thread() is not threading.main_thread():
        yield Skipped("signals reach the main thread only, and this is another")
        return
    wrong = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with ending(None) as outer:
            said = _pressed()
            wrong += ["not asked"] * (bool(said) or not outer.interrupted or ended() != "interrupted")
            with ending(None) as inner:
                wrong += ["a run inside goes on"] * (ended() != "interrupted" or inner.interrupted)
            wrong += ["the second was not raised"] * (_pressed() != "KeyboardInterrupt")
        wrong += ["not put back"] * (signal.getsignal(signal.SIGINT) is not signal.default_int_handler)
        with ending(None):
            wrong += ["still ended"] * (ended() != "")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with ending(None):
            wrong += ["another handler was taken"] * (signal.getsignal(signal.SIGINT) is not signal.SIG_IGN)
        wrong += ["another handler was replaced"] * (signal.getsignal(signal.SIGINT) is not signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGINT, before)
    raised: list[str] = []

    def elsewhere() -> None:
        try:
            with ending(None):
                pass
        except ValueError as error:  # Python lets the main thread alone change handlers
            raised.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    told = "; ".join(wrong + raised) or "asked, raised, put back; nothing in another thread"
    yield flaws(len(wrong + raised), told, "fast", "answers")
