"""The checks of numbers at which a rule of `gibbs` changes over, and a mistake in each."""

import pytest

from in_every_run import others_slow

_RUNS, _TAILS = "identity/gibbs-logit/run_limits", "identity/exact-probit/tail_limits"
_NEAR, _PARTICLES = "identity/gibbs-logit/near_inputs", "identity/gibbs-probit/particle_limits"
_BOX, _ISLANDS = "gibbs.draws.truncated_normal", "gibbs.evidence.sequential"
_PLANTED = (
    (_RUNS, "gibbs.chains.chain", "_GROWTH = 1.2", "_GROWTH = 2.4"),
    (_RUNS, "gibbs.chains.warmup", "DRIFT_LEVEL = 1e-3", "DRIFT_LEVEL = 2e-3"),
    (_RUNS, "gibbs.core.generators", "_MOST_CHAINS = 1_000_000", "_MOST_CHAINS = 2_000_000"),
    (_RUNS, "gibbs.core.generators", "setattr(_Numbers, _name, _refuse(_name))", "pass"),
    (_TAILS, _BOX, "_TAIL = 5.0", "_TAIL = 10.0"),
    (_TAILS, _BOX, "_SMALLEST_UNIFORM = 2.0**-54", "_SMALLEST_UNIFORM = 2.0**-55"),
    (_TAILS, _BOX, "_MIN_EXPECTED_DRAWS = 25.0", "_MIN_EXPECTED_DRAWS = 50.0"),
    (_TAILS, _BOX, "MAX_DIMENSION = 800", "MAX_DIMENSION = 1600"),
    (_TAILS, "gibbs.draws.univariate_truncated", "_FAR = 4.0", "_FAR = 8.0"),
    (_NEAR, "gibbs.core.kernels", "_LARGE = 25.0", "_LARGE = 50.0"),
    (_PARTICLES, _ISLANDS, "_MOST = 40_000_000", "_MOST = 80_000_000"),
    (_PARTICLES, _ISLANDS, "_WORK = 1.5e10", "_WORK = 3.0e10"),
    (_PARTICLES, _ISLANDS, "30, 0.7, 1e-2", "30, 0.7, 2e-2"),
    (_PARTICLES, _ISLANDS, "_SOFTER = 0.3", "_SOFTER = 0.6"),
    (_PARTICLES, _ISLANDS, "_HOPELESS = 4.0", "_HOPELESS = 8.0"),
)


@pytest.mark.parametrize("asked", [_RUNS, _TAILS, _NEAR, _PARTICLES])
def test_healthy_witnesses_pass(reds, asked):
    assert reds("limits_of_truths", asked) == []


@pytest.mark.parametrize(
    ("asked", "module", "old", "new"), others_slow(_PLANTED, lambda asked, module, old, new: asked != _TAILS)
)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("limits_of_truths", asked, (module, old, new))
