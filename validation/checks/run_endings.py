"""How a run is told to end, and what it says meanwhile: seconds that are spent, Ctrl-C, progress that is told rarely.

The clock is the judge's own, so that nothing waits and nothing depends on how fast a machine is.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest import mock

from validation.checks.core import NO_PROBLEM, Context, Outcome, Skipped, check, flaws
from validation.checks.learning import BATCHES, HYPER, tiny
from validation.problem import Problem
from validation.solution import Solution


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
    result: list[tuple[bool, ...]] = []
    values = [0.0, 5.0, 5.5, 5.75, 6.0]
    for worth in (0.0, 0.75, 1.0, 1.25):
        with ending(None, worth=worth):
            result.append((enough(values), enough(values[:3]), enough(values[:4]), enough(values, 1), predicts()))
    result.append((enough(values), predicts()))
    settled = [(False,) * 5, (False, False, False, True, True), (False, False, False, True, True),
               (True, False, False, True, True), (False, False)]  # fmt: skip
    wrong = sum(a != b for a, b in zip(result, settled, strict=True))
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
            message = _pressed()
            wrong += ["not asked"] * (bool(message) or not outer.interrupted or ended() != "interrupted")
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


# -- every loop --------------------------------------------------------------------------------------------------------

_POWER: Mapping[str, Any] = MappingProxyType({"alpha": 0.7})
_BATCHES: Mapping[str, Any] = MappingProxyType({"batches": BATCHES, "trace": True})
_SEARCH: Mapping[str, Any] = MappingProxyType({"learn": HYPER})
_ERRORS, _FULL = "threshold errors", "multinomial-probit full"
# method, kind of `tiny`, options, and after how many iterations a run has looked whether its time is spent
SPENT: tuple[tuple[str, str, Mapping[str, Any], int], ...] = (
    *((method, kind, {}, 1) for method, kind in (
        ("x-gpc", "logit"), ("x-gpc", "logit full"), ("svgpc", "probit"), ("epgpc", "probit"), ("vi-jj", "logit"),
        ("vi-jj-full", "logit full"), ("vi-jj-hybrid", "logit"), ("svi", "logit"), ("ep", "threshold"),
        ("sep", "threshold"), ("gfitc", "threshold"), ("vi-robust", _ERRORS), ("laplace", "softmax full"),
        ("laplace-tkp", "softmax full"), ("laplace-sparse", "softmax"), ("vi-taylor", "logit"),
    )),
    *((method, _ERRORS, _POWER, 1) for method in ("pep", "apep", "arpep", "rpapep", "bb-alpha")),
    *((method, _FULL, {}, 2) for method in ("nested-ep", "nested-iep")),
    *((method, _FULL, {"nodes": 5}, 2) for method in ("qep", "qiep")),
    ("vi-jj", "logit", {"accelerate": False}, 1),
    ("vb-probit", _FULL, {}, 0),
    *((method, kind, _SEARCH, 0) for method, kind in (
        ("x-gpc", "logit"), ("svgpc", "probit"), ("epgpc", "probit"), ("laplace-binary", "logit full"),
        ("nested-ep", _FULL), ("nested-iep", _FULL), ("laplace", "softmax full"), ("vb-probit", _FULL),
        ("vi-robust", _ERRORS), ("gfitc", "threshold"), ("label-regression", _ERRORS), ("ep", "threshold"),
    )),
    *((method, "logit", _SEARCH, 1) for method in ("vi-jj", "vi-jj-hybrid", "vi-taylor")),
    *((method, _ERRORS, {**_POWER, **_SEARCH}, 0) for method in ("pep", "apep", "arpep", "rpapep", "bb-alpha")),
    ("sep", "threshold", _SEARCH, 0),
)  # fmt: skip
IN_STEPS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("x-gpc-svi", "logit", _BATCHES),
    ("svgpc", "probit", _BATCHES),
    ("svgpc", "probit", {**_BATCHES, "trace": False}),
    ("epgpc", "probit", _BATCHES),
    ("ep", "threshold", _BATCHES),
    ("sep", "threshold", _BATCHES),
    ("pep", _ERRORS, {**_BATCHES, **_POWER}),
    ("apep", _ERRORS, {**_BATCHES, **_POWER}),
    ("vi-robust", _ERRORS, _BATCHES),
    ("ep", "threshold", {"learn": HYPER, "optimizer": "adaptive", "n_steps": 3, "rate": 0.05, "trace": True}),
)


def _run(
    context: Context, method: str, kind: str, options: Mapping[str, Any], looks: int | None
) -> tuple[Solution, list[str]]:
    """A run whose time is spent when it has looked so often, and the lines that it tells, without the seconds."""
    from fast.core import ending

    looked, told = [0], []

    def why(self: Any) -> str:
        looked[0] += 1
        return "spent" if looks is not None and looked[0] > looks else ""

    asked = tiny(kind).replace(name=f"{kind}, {'all its time' if looks is None else f'{looks} looks'}")
    with (
        mock.patch.object(ending.Ending, "why", why),
        mock.patch.multiple(ending, _FIRST=-1.0, _GROWTH=0.0),
        ending.ending(None, lambda line: told.append(line.rpartition(", ")[0])),
    ):
        return context.solve("fast", method, asked, **options), told


@check(
    "identity/svi/spent",
    paper="izmailov2016",
    question="Does every loop of `fast` end, unconverged, when it first sees that its time is spent?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    wrong = []
    for method, kind, options, expected in SPENT:
        end, _ = _run(context, method, kind, options, 0)
        if end.iterations != expected or end.converged:
            wrong.append(f"{method} on {kind}{', learning' if 'learn' in options else ''}: {end.iterations} iterations")
    yield flaws(len(wrong), "; ".join(wrong) or f"{len(SPENT)} loops", "fast", "loops that go on")
    wrong = []
    for method, kind, options in IN_STEPS:
        for looks in (0, 2):
            end, told = _run(context, method, kind, options, looks)
            reason = f"spent, {looks} of 3 steps made"
            if end.iterations != looks or end.converged or end.settings.get("reason") != reason or len(told) != looks:
                wrong.append(f"{method}, {looks} looks: {end.iterations} steps, {end.settings.get('reason')}")
    yield flaws(len(wrong), "; ".join(wrong) or f"{len(IN_STEPS)} runs in steps", "fast", "runs that go on")


@check(
    "identity/svi/told_on_the_way",
    paper="izmailov2016",
    question="Does a run tell each of its steps, and each evaluation of a search, with the objective there?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    wrong = []
    for method, kind, options in IN_STEPS:
        end, told = _run(context, method, kind, options, None)
        values = [math.nan] * 3 if end.trace is None or not len(end.trace) else end.trace
        expected = [
            f"step {k} of 3{'' if math.isnan(v) else f', objective {v:.6g}'}" for k, v in enumerate(values, start=1)
        ]
        wrong += [f"{method}: {told}"] * (told != expected)
    yield flaws(len(wrong), "; ".join(wrong) or f"{len(IN_STEPS)} runs in steps", "fast", "runs")
    wrong = []
    for method, kind, steps in (("x-gpc", "logit", "learning_iterations"), ("epgpc", "probit", "learning_iterations"),
                                ("nested-ep", _FULL, "max_iterations")):  # fmt: skip
        end, told = _run(context, method, kind, {"learn": HYPER, steps: 2, "tolerance": 1e-4}, None)
        # the search looks further between two iterations: the last line of each is that of where it went
        last = {line.partition(" of the search, objective ")[0]: line.rpartition(" ")[2] for line in told}
        assert end.trace is not None
        reached = {f"iteration {k}": f"{value:.6g}" for k, value in enumerate(end.trace)}
        wrong += [f"{method}: {told}, trace {end.trace}"] * (last != reached or len(last) != 2)
    for method in ("vi-jj", "vi-taylor"):
        end, told = _run(context, method, "logit", {"learn": HYPER, "max_iterations": 2}, None)
        assert end.trace is not None
        expected = [f"iteration {k + 1}, objective {value:.6g}" for k, value in enumerate(end.trace)]
        wrong += [f"{method}: {told}"] * ([line for line in told if "search" not in line] != expected)
    yield flaws(len(wrong), "; ".join(wrong) or "five searches", "fast", "searches")
