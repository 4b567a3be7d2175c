"""The checks of what runs promise of single steps, and a mistake in each."""

import pytest

_PRIORS, _KEPT = "identity/ep/priors_of_steps", "identity/epgpc/steps_kept"
_CARRIED, _SURE = "identity/vi-taylor/carried_over", "identity/apep/nearly_sure"
_STARTS, _SIGNS = "identity/vi-taylor/starts", "identity/epgpc/mixed_signs"
_NOWHERE, _TABLES = "identity/ep/mixing_led_nowhere", "invariance/laplace/tables"
_FILES, _LINES = "invariance/x-gpc-svi/whole_files", "identity/svi/lines_of_progress"
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
    (_PRIORS, _SPARSE + "projections", "in_a_step: bool = False", "in_a_step: bool = True"),
    (_STARTS, "fast.methods.vi_taylor", "first = result", "pass"),
    (_STARTS, _SPARSE + "alpha_runs", "q.shift - self.q.shift)\n            self._mixing",
     "self.q.shift - q.shift)\n            self._mixing"),
    (_SIGNS, "fast.solve.site_iteration", "signed: bool = False", "signed: bool = True"),
    (_SIGNS, "fast.solve.site_iteration", "np.where(bad, visit.target_precision, precision)", "precision"),
    (_NOWHERE, _SPARSE + "training", "        if not end.converged:", "        if end.converged:"),
    (_NOWHERE, _SPARSE + "training", "run.restore(before, *priors, True)", "pass"),
    (_NOWHERE, _SPARSE + "training", "mixed.n_improper, mixed.rate", "0, mixed.rate"),
    (_TABLES, "fast.likelihood.sobol_rule", "_sequential(mean[part], rows[part], u)", "_sequential(mean, rows, u)"),
    (_TABLES, "fast.full_classes.quadrature_tilt", "slice(start, start + size)", "slice(start, start + 1)"),
    (_FILES, "fast.core.checkpoint", "file.flush()", "pass"),
    (_FILES, "gibbs.chains.checkpoint", "os.fsync(stream.fileno())", "pass"),
    (_LINES, "fast.core.ending", "_FIRST, _GROWTH = 1.0, 1.5", "_FIRST, _GROWTH = 1.0, 3.0"),
    (_LINES, "fast.core.ending", "- self.started > self.seconds", "> self.seconds"),
)  # fmt: skip


@pytest.mark.parametrize("asked", [_STARTS, _SIGNS, _NOWHERE, _TABLES, _FILES, _LINES, _PRIORS, _KEPT, _CARRIED, _SURE])
def test_healthy_witnesses_pass(reds, asked):
    assert reds("run_promises", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds(
        "run_promises", asked, (module, old, new), again=_AGAIN if asked in (_PRIORS, _STARTS, _NOWHERE) else ()
    )
