"""The checks of turns of `reference` that few problems take, and a mistake in each."""

import pytest

_ZERO, _VALUE = "limit/apep/objectives_at_zero", "identity/pep/without_value"
_FAR, _TOLD = "identity/ep/far_labels", "identity/vi-jj-full/told_once"
_STARTS, _BATCHES = "identity/vi-robust/starts_refused", "identity/apep/refused_batches"
_LEAPS = "identity/gfitc/refused_extrapolations"
_ENERGIES, _FIT = "reference.villacampa2020.energies", "reference.villacampa2020.fit_energies"
_MODES = "identity/ep/modes_of_rows"
_SWEEPS = "reference.common._sweeps"
_PLANTED = (
    (_ZERO, _ENERGIES, "y, K, epsilon, 0.0, n)", "y, K, epsilon, 0.0)"),
    (_ZERO, _ENERGIES, "return arpep_objective(", "return -arpep_objective("),
    (_VALUE, "reference.villacampa2020.fit_pep", "if not np.all(at.proper):", "if not np.any(at.proper):"),
    (_VALUE, "reference.villacampa2020.fit_pep", "None if refined.n_improper", "None if not refined.n_improper"),
    (_FAR, "reference.villacampa2017.datum", "_FAR = -10.0", "_FAR = -1e9"),
    (_FAR, "reference.villacampa2017.datum", "cavities.mean[i], var[i]", "cavities.mean[i], cavities.var[i]"),
    (_TOLD, "reference.izmailov2016.algorithm1", "optimum.iterations, optimum.value,", "optimum.iterations, 0.0,"),
    (_STARTS, "reference.villacampa2017.vi_fit", "start = None  #", "pass  #"),
    (_STARTS, "reference.villacampa2017.vi_fit", "(start, K.K_ZZ) is not None", "(start, K.K_ZZ) is None"),
    (_BATCHES, _FIT, "[*places[-1:], (of_q, prior)]\n            new", "[(of_q, prior)]\n            new"),
    (_BATCHES, _FIT, "reason = reason or f", "reason = f"),
    (_BATCHES, _FIT, "if not places:\n                raise", "if not places:\n                return None"),
    (_MODES, "reference.common._largest", "        if np.all(result):", "        if np.any(result):"),
    (_LEAPS, _SWEEPS, "sites = sweeps.refuse()", "sites = sweeps.refuse()[:0]"),
    (_LEAPS, _SWEEPS, "        return 0.5\n", "        return 0.25\n"),
    (_LEAPS, _SWEEPS, "        return 0.0\n    factors", "        return 1.0\n    factors"),
)  # fmt: skip


@pytest.mark.parametrize("asked", [_MODES, _ZERO, _VALUE, _FAR, _TOLD, _STARTS, _BATCHES, _LEAPS])
def test_healthy_witnesses_pass(reds, asked):
    assert reds("rare_reference", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("rare_reference", asked, (module, old, new))
