"""The checks of what runs promise of single steps, and a mistake in each."""

import pytest

_PRIORS, _KEPT = "identity/ep/priors_of_steps", "identity/epgpc/steps_kept"
_CARRIED, _SURE = "identity/vi-taylor/carried_over", "identity/apep/nearly_sure"
_SPARSE = "fast.sparse_classes."
_AGAIN = tuple(
    f"fast.methods.{name}" for name in ("ep", "sep", "pep", "apep", "vi_robust", "gfitc", "label_regression")
)
_PLANTED = (
    (_PRIORS, _SPARSE + "alpha_runs", "old.shared, in_a_step=True", "old.shared, in_a_step=False"),
    (_PRIORS, _SPARSE + "sep", "in_a_step=moved", "in_a_step=not moved"),
    (_PRIORS, _SPARSE + "fitc_latents", "in_a_step=moved", "in_a_step=True"),
    (_PRIORS, _SPARSE + "ep", "self.points, self.q = before", "pass"),
    (_PRIORS, "fast.methods.label_regression", "self.points, self.q, self.value = before", "pass"),
    (_PRIORS, _SPARSE + "ep", "self.points.shared, in_a_step=True", "self.points.shared"),
    (_KEPT, "fast.methods.epgpc", "monotone=False", "monotone=True"),
    (_KEPT, "fast.methods.svgpc", "monotone=True", "monotone=False"),
    (_CARRIED, "fast.methods.vi_taylor", "joint=False", "joint=True"),
    (_CARRIED, "fast.methods.vi_jj", "joint=False", "joint=True"),
    (_CARRIED, "fast.methods.vi_jj", "joint=True", "joint=False"),
    (_SURE, "fast.likelihood.power", "near = rest < _NEARLY_SURE", "near = rest > _NEARLY_SURE"),
    (_SURE, "fast.likelihood.power", "0.0 < alpha < _MAGNIFIED", "0.0 < alpha < -_MAGNIFIED"),
)  # fmt: skip


@pytest.mark.parametrize("asked", [_PRIORS, _KEPT, _CARRIED, _SURE])
def test_healthy_witnesses_pass(reds, asked):
    assert reds("run_promises", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("run_promises", asked, (module, old, new), again=_AGAIN if asked == _PRIORS else ())
