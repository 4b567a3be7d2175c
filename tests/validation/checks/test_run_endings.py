"""The checks of how runs end, and a mistake in each rule."""

import pytest

from in_every_run import others_slow

_TIME, _SIGNAL = "identity/svi/time_and_progress", "identity/svi/interrupts"
_PLANTED = (
    (_TIME, "- self.started > self.seconds", "+ self.started > self.seconds"),
    (_TIME, "_GROWTH * spent", "_GROWTH + spent"),
    (_TIME, "spent < self._next", "spent > self._next"),
    (_TIME, "_FIRST, _GROWTH = 1.0, 1.5", "_FIRST, _GROWTH = 2.0, 1.5"),
    (_TIME, "len(values) <= span", "len(values) < span"),
    (_TIME, "values[-1 - span]", "values[1 - span]"),
    (_TIME, "_present.reset(token)", "pass"),
    (_SIGNAL, "default_int_handler(number, frame)", "default_int_handler(frame, number)"),
    (_SIGNAL, "here.interrupted = True", "pass"),
    (_SIGNAL, "signal.signal(signal.SIGINT, interrupt)", "pass"),
    (_SIGNAL, "signal.signal(signal.SIGINT, signal.default_int_handler)", "pass"),
    (_SIGNAL, "is signal.default_int_handler\n", "is not signal.default_int_handler\n"),
    (_SIGNAL, "is threading.main_thread()", "is not None"),
)


@pytest.mark.parametrize("asked", [_TIME, _SIGNAL])
def test_healthy_runs_pass(reds, asked):
    assert reds("run_endings", asked) == []


@pytest.mark.parametrize(("asked", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, old, new):
    assert reds("run_endings", asked, ("fast.core.ending", old, new))


# the door that `solve` goes through, and the adapters behind it
_ADAPTERS = tuple(
    f"validation.{name}"
    for name in (
        *(f"implementations.fast.{part}" for part in ("epgpc", "izmailov", "riihimaki")),
        "implementations.fast",
    )
)
_LOOPS = (
    ("identity/svi/spent", "fast.methods.vb_probit", "stalled or ended():", "stalled:"),
    ("identity/svi/spent", "fast.solve.steps", "why = ended()", 'why = ""'),
    ("identity/svi/spent", "fast.methods.vi_jj", "and not (trace and ended())", ""),
    ("identity/svi/told_on_the_way", "fast.solve.steps", "step {run.iteration} of", "step {number + 1} of"),
)


@pytest.mark.parametrize(
    ("asked", "module", "old", "new"), others_slow(_LOOPS, lambda asked, module, old, new: asked.endswith("on_the_way"))
)
def test_a_loop_that_does_not_look_or_tell_is_seen(reds, asked, module, old, new):
    # a loop is taken from its module by the methods that run it
    again = ("fast.methods.epgpc_svi", *_ADAPTERS) if module == "fast.solve.steps" else _ADAPTERS
    assert reds("run_endings", asked, (module, old, new), again)
