"""The checks of regions without a density and of what a form runs, and a mistake in each."""

import pytest

_PLANTED = (
    ("identity/gibbs-logit/paths_through_a_hole", "gibbs.moves.hyper", "alive = alive & np.isfinite(there.value)",
     "pass", ("gibbs.models.hyper_models",)),
    ("identity/gibbs-probit/density_without_a_factor", "gibbs.models.hyper_covariance",
     "np.where(good, value, -np.inf)", "np.where(good, value, np.inf)", ()),
    ("identity/pep/power_zero", "fast.likelihood.power", "log_norm = np.zeros_like(value)",
     "log_norm = np.ones_like(value)", ()),
    ("identity/nested-ep/algebra_of_a_form", "reference.riihimaki2013.fit", 'if form == "printed" else None',
     'if form != "printed" else None', ()),
)  # fmt: skip


@pytest.mark.parametrize("asked", [*(row[0] for row in _PLANTED), "identity/pep/algebra_of_a_form"])
def test_healthy_witnesses_pass(reds, asked):
    assert reds("left_regions", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new", "importers"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new, importers):
    assert reds("left_regions", asked, (module, old, new), importers)
