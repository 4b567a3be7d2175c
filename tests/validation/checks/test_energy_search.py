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


_LAST, _ORDER = "identity/apep/last_steps", "identity/apep/order_of_steps"
_STEPS_OF_RUNS = (
    (_LAST, "0.5 * here.change.residual", "2.0 * here.change.residual"),
    (_LAST, "/ (2.0 * h)", "/ h"),
    (_LAST, "10.0 * steep", "1e9 * steep"),
    (_LAST, "self._start = None\n", "pass\n"),
    (_ORDER, "if self.stalled:", "if not self.stalled:"),
    (_ORDER, "< _NEWTON_BELOW and", "> _NEWTON_BELOW and"),
    (_ORDER, "min(1.0, 2.0 * rho)", "2.0 * rho"),
    (_ORDER, "rho < _SHORTEST and not (far and", "rho < _SHORTEST and not ("),
    (_ORDER, "and not predicts()", ""),
    (_ORDER, "(40, 80, 160, 320, 640, 1280)", "(40, 80, 160, 320, 640)"),
    (_ORDER, "_HALVINGS = 60", "_HALVINGS = 59"),
)


@pytest.mark.parametrize(
    ("asked", "old", "new"), others_slow(_STEPS_OF_RUNS, lambda asked, old, new: asked == _ORDER and "rho" in old)
)
def test_a_mistake_in_the_order_of_steps_is_seen(reds, asked, old, new):
    assert reds("energy_search", asked, ("fast.sparse_classes.alpha_runs", old, new), ("fast.methods.apep",))
