"""The checks of the search for an energy's optimum, and a mistake in each rule."""

import pytest

from in_every_run import asked_by_verify, others_slow

_COORDINATES, _STEPS = "identity/rpapep/search_coordinates", "identity/rpapep/search_steps"
_PLANTED = (
    (_COORDINATES, "by_T[:, self.index, self.index] *= T", "by_T[:, self.index, self.index] += T"),
    (_COORDINATES, "- change.precision @ mean[:, :, None])", ")"),
    (_COORDINATES, "(2.0 * _DIFFERENCE)", "(1.0 * _DIFFERENCE)"),
    (_COORDINATES, ".max() > bound", ".min() > bound"),
    (_COORDINATES, "return np.inf, np.zeros(x.size)", "return 0.0, np.zeros(x.size)"),
    (_STEPS, "min(2.0 * radius, 4.0)", "min(2.0 * radius, 8.0)"),
    (_STEPS, "radius, fresh = 1.0, False", "radius, fresh = 2.0, False"),
    (_STEPS, "radius = 0.25 *", "radius = 0.5 *"),
    (_STEPS, "stale = not fresh", "stale = fresh"),
    (_STEPS, "shorter > 0.1, False", "shorter > 1.1, False"),
    (
        _STEPS,
        "if hidden else value - new_value > 0.1 * promised",
        "if not hidden else value - new_value > 0.1 * promised",
    ),
    (_STEPS, "if chart.far(x, bound):", "if not chart.far(x, bound):"),
    (_STEPS, "radius < 1e-8", "radius < 1e-4"),
)


@asked_by_verify
@pytest.mark.parametrize("asked", [_COORDINATES, _STEPS])
def test_the_healthy_search_passes(reds, asked):
    assert reds("energy_search", asked) == []


@pytest.mark.parametrize(("asked", "old", "new"), others_slow(_PLANTED, lambda asked, old, new: asked == _STEPS))
def test_a_planted_mistake_is_seen(reds, asked, old, new):
    assert reds("energy_search", asked, ("fast.sparse_classes.alpha_search", old, new))
