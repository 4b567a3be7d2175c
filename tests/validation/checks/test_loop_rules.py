"""The checks of rules of loops, and a mistake in each rule."""

import pytest

_FIXED, _TRAINING = "fast.one_latent.fixed_point", "fast.sparse_classes.training"
_PLANTED = (
    ("identity/x-gpc/rounding_ends", _FIXED, "if point.step < best_step", "if point.step > best_step"),
    ("identity/x-gpc/rounding_ends", _FIXED, "if point.step < best_step", "if point.step <= best_step"),
    ("identity/x-gpc/rounding_ends", _FIXED, "_PATIENCE = 50", "_PATIENCE = 51"),
    ("identity/x-gpc/rounding_ends", _FIXED, " and point.step <= _ROUNDED\n", "\n"),
    ("identity/x-gpc/unusable_updates", _FIXED, "(updated > 0.0)", "(updated > -1.0)"),
    ("identity/x-gpc/unusable_updates", _FIXED, "np.argmin(usable)", "np.argmax(usable)"),
    ("identity/ep/settings_left_open", _TRAINING, '200 if optimizer == "lbfgs" else 250', "250"),
    ("identity/ep/settings_left_open", _TRAINING, '"adam": 0.001', '"adam": 0.01'),
    ("identity/ep/settings_left_open", _TRAINING, "np.unique(batch)", "np.asarray(batch)"),
)


@pytest.mark.parametrize("asked", sorted({row[0] for row in _PLANTED}))
def test_healthy_loops_pass(reds, asked):
    assert reds("loop_rules", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("loop_rules", asked, (module, old, new))
