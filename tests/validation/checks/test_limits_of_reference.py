"""The checks of numbers at which a rule of `reference` changes over, and a mistake in each."""

import pytest

from in_every_run import others_slow

_SCALES, _GROWTH, _STEPS = "identity/svi/scale_limits", "identity/apep/growth_limits", "identity/apep/step_limits"
_SWEEPS, _ROUNDING = "identity/ep/sweep_limits", "identity/ep/rounding_limits"
_LEARNING, _ASCENT = "reference.common._learning", "reference.common._ascent"
_RULES, _NEIGHBOURS = "reference.common._sweeps", "reference.common._neighbours"
_PLANTED = (
    (_SCALES, _LEARNING, "LARGEST = 1e50", "LARGEST = 2e50"),
    (_GROWTH, _ASCENT, "_FAR = 1e6", "_FAR = 2e6"),
    (_STEPS, _ASCENT, "_NEAR = 1e-3", "_NEAR = 2e-3"),
    (_STEPS, _ASCENT, "_LEAST_CEILING = 2.0**-7", "_LEAST_CEILING = 2.0**-6"),
    (_STEPS, _ASCENT, "_STALLED = 200", "_STALLED = 400"),
    (_STEPS, _ASCENT, "_SMALLEST_RATE = 2.0**-40", "_SMALLEST_RATE = 2.0**-39"),
    (_SWEEPS, _RULES, "_WINDOW = 8", "_WINDOW = 9"),
    (_SWEEPS, _RULES, "_REMEMBERED = 6", "_REMEMBERED = 7"),
    (_SWEEPS, _RULES, "_ROUNDED = 1e-12", "_ROUNDED = -1e-12"),
    (_ROUNDING, _NEIGHBOURS, "LEAST, LARGEST = 1e-8", "LEAST, LARGEST = 2e-8"),
    (_ROUNDING, _NEIGHBOURS, "_CLEAR = 0.02", "_CLEAR = 0.04"),
    (_ROUNDING, _NEIGHBOURS, "_SURE = 1e3", "_SURE = 2e3"),
    (_ROUNDING, _NEIGHBOURS, "_PUSH = 1e-5", "_PUSH = 2e-5"),
)


@pytest.mark.parametrize("asked", [_SCALES, _GROWTH, _STEPS, _SWEEPS, _ROUNDING])
def test_healthy_witnesses_pass(reds, asked):
    assert reds("limits_of_reference", asked) == []


@pytest.mark.parametrize(
    ("asked", "module", "old", "new"), others_slow(_PLANTED, lambda asked, module, old, new: asked != _STEPS)
)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("limits_of_reference", asked, (module, old, new))
