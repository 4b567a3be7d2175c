"""The checks of what is kept, and a mistake in each kind of keeping."""

import pytest

from in_every_run import others_slow

_PASSES, _FACTORS = "identity/ep/kept_projections", "identity/sep/kept_factors"
_CAVITIES, _ENERGIES = "identity/sep/kept_cavities", "identity/apep/kept_energies"
_SWEEPS, _STEPS = "identity/ep/kept_between_sweeps", "identity/gfitc/kept_steps"
_DATA, _VIEWS = "fast.sparse_classes.data", "fast.sparse_classes.projections"
_PLANTED = (
    (_PASSES, _DATA, "self._kept[start] = result", "pass"),
    (_PASSES, _DATA, "keep = 16 * self.n", "keep = 8 * self.n"),
    (_PASSES, _DATA, "self._kept, self._points = {}, points", "self._kept = {}"),
    (_FACTORS, _VIEWS, "S = self._covariance[k] = inverse", "S = inverse"),
    (_FACTORS, _VIEWS, "(view, kept)", "(view, kept[::-1])"),
    (_CAVITIES, "fast.sparse_classes.sep", "self.q, self._cavity = q, None", "self.q = q"),
    (_ENERGIES, "fast.sparse_classes.alpha_runs", "self._here = self._point(self.q)", "return self._point(self.q)"),
    (_STEPS, "fast.sparse_classes.fitc_latents", "4 * data.n * data.n_classes <=", "data.n * data.n_classes <="),
    (_STEPS, "fast.sparse_classes.mixing", "run.sites.size <= _LARGEST", "run.sites.size < _LARGEST"),
    (_SWEEPS, "fast.sparse_classes.inference", "memory_budget=budget)", "memory_budget=0)"),
)
# modules that have what they use of the planted one by name
_IMPORTERS = {"fast.sparse_classes.inference": ("fast.methods.ep",)}
_ASKED = sorted({row[0] for row in _PLANTED})


@pytest.mark.parametrize("asked", _ASKED)
def test_healthy_witnesses_pass(reds, asked):
    assert reds("kept", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), others_slow(_PLANTED, lambda *row: "_kept" in row[2]))
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("kept", asked, (module, old, new), _IMPORTERS.get(module, ()))
