"""How long a run will still take, by what its parts took the last time; where nobody knows, all parts count alike."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean

Part = tuple[str, str]  # (check, problem)

# before so many seconds, or so small a share of the work, nobody can tell
EARLIEST, LEAST = 3.0, 0.02


class Forecast:
    """What is left, in seconds: the work still to do over the speed so far.

    work    seconds that each part is thought to take; only their ratios count
    """

    def __init__(self, work: Mapping[Part, float]) -> None:
        """Nothing is done yet."""
        self._waiting = dict(work)
        self._total = math.fsum(work.values())

    def done(self, part: Part) -> None:
        """A part is over; one that was not asked for changes nothing."""
        self._waiting.pop(part, None)

    def left(self, elapsed: float) -> float | None:
        """Seconds that the rest will take, `elapsed` after the start; None while it is too early to tell."""
        waiting = math.fsum(self._waiting.values())
        share = 1.0 - waiting / self._total if self._total > 0.0 else 1.0
        if elapsed < EARLIEST or share < LEAST:
            return None
        return elapsed * (1.0 - share) / share

    def words(self, elapsed: float) -> str:
        """`left` as one reads it; empty while it is too early, and at the end."""
        left = self.left(elapsed)
        return "" if left is None or not self._waiting else f"about {rounded(left)} left"


class Steps:
    """Steps that are taken one after another and that nobody knows the times of: which one it is, and what is left."""

    def __init__(self, names: Iterable[str]) -> None:
        """None is taken yet; a name that comes twice is two steps."""
        self._names = list(names)
        self._forecast = Forecast({(name, str(place)): 1.0 for place, name in enumerate(self._names)})
        self._begun = 0
        self._since = time.perf_counter()

    def begin(self) -> str:
        """The next step begins, so the one before it is over: "3 of 8; about 20 s left"."""
        if self._begun and self._begun <= len(self._names):
            self._forecast.done((self._names[self._begun - 1], str(self._begun - 1)))
        self._begun += 1
        left = self._forecast.words(time.perf_counter() - self._since)
        return f"{self._begun} of {max(self._begun, len(self._names))}{f'; {left}' if left else ''}"


class Lines:
    """Lines of progress of a run that says a known number of them, each for about as much work as another.

    total    lines in all; None: nobody knows, and nothing is foreseen
    ahead    whether a line says what begins, and not what is done
    """

    def __init__(self, total: int | None, *, ahead: bool = False) -> None:
        """None is said yet."""
        self._total, self._ahead, self._said = total, ahead, 0
        self._since = self._last = time.perf_counter()

    def said(self) -> str:
        """One more line is said: what stands behind it, " (3 of 8; about 20 s left)"."""
        self._said += 1
        self._last = time.perf_counter()
        told = self.words()
        return f" ({told})" if told else ""

    def words(self) -> str:
        """Which line was the last and what is left; empty where nobody knows how many there will be."""
        if not self._total or not self._said:
            return ""
        place = f"{self._said} of {max(self._said, self._total)}"
        done, elapsed = self._said - self._ahead, self._last - self._since
        if not done or elapsed < EARLIEST or done >= self._total:
            return place
        left = elapsed / done * (self._total - done) - (time.perf_counter() - self._last)
        return f"{place}; about {rounded(left)} left" if left > 0.0 else place


def work(parts: Iterable[Part], earlier: Path) -> dict[Part, float]:
    """Seconds of each part as the checks.csv of an earlier run has them; the mean of those for a part it has not.

    A file that is not there, or is no checks.csv, knows nothing: all parts count alike.
    """
    taken: dict[Part, float] = {}
    try:
        with earlier.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                part, seconds = (row["check"], row["problem"]), float(row["seconds"])
                if math.isfinite(seconds) and seconds >= 0.0:
                    taken[part] = taken.get(part, 0.0) + seconds
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError):
        taken = {}
    asked = list(parts)
    known = [taken[part] for part in asked if part in taken]
    usual = fmean(known) if known else 1.0
    return {part: taken.get(part, usual) for part in asked}


def rounded(seconds: float) -> str:
    """To five seconds, or to minutes: more digits would say more than anybody knows."""
    if seconds < 90.0:
        return f"{max(5, 5 * round(seconds / 5.0))} s"
    return f"{round(seconds / 60.0)} min"
