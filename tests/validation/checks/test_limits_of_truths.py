"""The checks of numbers at which a rule of `gibbs` changes over, and a mistake in each."""

import pytest

from in_every_run import others_slow

_RUNS, _TAILS = "identity/gibbs-logit/run_limits", "identity/exact-probit/tail_limits"
_NEAR, _PARTICLES = "identity/gibbs-logit/near_inputs", "identity/gibbs-probit/particle_limits"
_RULES, _PATHS = "identity/mh-softmax/rule_limits", "identity/mh-softmax/path_limits"
_SURE = "identity/gibbs-logit/sure_draws"
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
    (_RULES, "gibbs.models.quadrature", "_SWITCH = 1.6", "_SWITCH = 3.2"),
    (_RULES, "gibbs.models.multilatent", "_WIDEST_RATIO = 500.0", "_WIDEST_RATIO = 1000.0"),
    (_RULES, "gibbs.models.softmax_probability", "_FINE = 0.00625", "_FINE = 0.0125"),
    (_RULES, "gibbs.models.softmax_probability", "_MOST_NODES = 20_000", "_MOST_NODES = 40_000"),
    (_PATHS, "gibbs.models.softmax", "_MOST_KICKS = 150", "_MOST_KICKS = 300"),
    (_PATHS, "gibbs.models.softmax", "_LEAST_STEP = 1e-6", "_LEAST_STEP = 2e-6"),
    (_PATHS, "gibbs.models.softmax", "_PROBABILITY_DRAWS = 8192", "_PROBABILITY_DRAWS = 4096"),
    (_PATHS, "gibbs.models.pairwise", "_FAR = -1e3", "_FAR = -2e3"),
    (_PATHS, "gibbs.models.pairwise", "_MOST_STEPS = 200", "_MOST_STEPS = 400"),
    (_PATHS, "gibbs.models.hyper_models", "TARGET_ACCEPTANCE = 0.8", "TARGET_ACCEPTANCE = 1.6"),
    (_PATHS, "gibbs.models.hyper_models", "LARGEST_TURN = 0.5 * np.pi", "LARGEST_TURN = np.pi"),
    (_SURE, "gibbs.draws.polya_gamma", "3.0 * np.exp(-4.0", "6.0 * np.exp(-4.0"),
    (_SURE, "gibbs.draws.polya_gamma", "3.0 * np.exp(-4.0 / _T)", "3.0 * np.exp(-5.0 / _T)"),
    (_SURE, "gibbs.draws.polya_gamma", "_Z_CLIP + 2.0", "_Z_CLIP - 2.0"),
    (_PATHS, "gibbs.models.hyper_models", "SMOOTHING = 0.1", "SMOOTHING = -0.1"),
)


@pytest.mark.parametrize("asked", [_RUNS, _TAILS, _NEAR, _PARTICLES, _RULES, _PATHS, _SURE])
def test_healthy_witnesses_pass(reds, asked):
    assert reds("limits_of_truths", asked) == []


@pytest.mark.parametrize(
    ("asked", "module", "old", "new"),
    others_slow(_PLANTED, lambda asked, module, old, new: asked not in (_TAILS, _RULES)),
)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("limits_of_truths", asked, (module, old, new))
