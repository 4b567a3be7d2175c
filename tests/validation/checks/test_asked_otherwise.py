"""The check of a GFITC run that is set back, and a mistake in what it goes on with."""

import pytest

_RESTORED = "invariance/gfitc/restored"
_PLANTED = (
    None,
    ("self._sweeps = _PLAIN  # near", "pass  # near"),
    ('arrays["sites"]\n        self._forget()', 'arrays["sites"]'),
)


@pytest.mark.parametrize("plant", _PLANTED)
def test_a_run_that_is_set_back_mixes_at_once_and_remembers_nothing(reds, plant):
    planted = None if plant is None else ("fast.sparse_classes.fitc_latents", *plant)
    assert bool(reds("asked_otherwise", _RESTORED, planted)) == (plant is not None)
