"""The checks of numbers at which a rule of `reference` changes over, and a mistake in each."""

import pytest

from in_every_run import others_slow

_SCALES, _GROWTH, _STEPS = "identity/svi/scale_limits", "identity/apep/growth_limits", "identity/apep/step_limits"
_SWEEPS, _ROUNDING = "identity/ep/sweep_limits", "identity/ep/rounding_limits"
_SIZES, _ENDS = "identity/qiep/size_limits", "identity/nested-ep/end_limits"
_LINES, _THIRDS = "identity/ep/line_limits", "identity/laplace-binary/far_thirds"
_ANSWERS, _DIVERGED = "identity/pep/answer_limits", "identity/x-gpc-svi/divergence_limits"
_LEARNING, _ASCENT = "reference.common._learning", "reference.common._ascent"
_RULES, _NEIGHBOURS = "reference.common._sweeps", "reference.common._neighbours"
_PLANTED = (
    (_SCALES, _LEARNING, "LARGEST = 1e50", "LARGEST = 2e50"),
    (_GROWTH, _ASCENT, "_FAR = 1e6", "_FAR = 2e6"),
    (_STEPS, _ASCENT, "_NEAR = 1e-3", "_NEAR = 2e-3"),
    (_STEPS, _ASCENT, "_LEAST_CEILING = 2.0**-7", "_LEAST_CEILING = 2.0**-6"),
    (_STEPS, _ASCENT, "_STALLED = 200", "_STALLED = 400"),
    (_STEPS, _ASCENT, "_SMALLEST_RATE = 2.0**-40", "_SMALLEST_RATE = 2.0**-39"),
    (_SWEEPS, _RULES, "_WINDOW = 8", "_WINDOW = 9"),
    (_SWEEPS, _RULES, "_REMEMBERED = 6", "_REMEMBERED = 7"),
    (_SWEEPS, _RULES, "_ROUNDED = 1e-12", "_ROUNDED = -1e-12"),
    (_ROUNDING, _NEIGHBOURS, "LEAST, LARGEST = 1e-8", "LEAST, LARGEST = 2e-8"),
    (_ROUNDING, _NEIGHBOURS, "_CLEAR = 0.02", "_CLEAR = 0.04"),
    (_ROUNDING, _NEIGHBOURS, "_SURE = 1e3", "_SURE = 2e3"),
    (_ROUNDING, _NEIGHBOURS, "_PUSH = 1e-5", "_PUSH = 2e-5"),
    (_SIZES, "reference.common._product", "LARGEST = 1_000_000", "LARGEST = 2_000_000"),
    (_SIZES, "reference.common._product", "LOG2_SOFTMAX = 12", "LOG2_SOFTMAX = 11"),
    (_SIZES, "reference.riihimaki2013._truncated", "HALVES = 0.01", "HALVES = 0.02"),
    (_SIZES, "reference.izmailov2016.model", "_MOST_POINTS = 30_000_000", "_MOST_POINTS = 60_000_000"),
    (_SIZES, "reference.common._forms", "DIGITS = 1e4", "DIGITS = 2e4"),
    (_ENDS, "reference.riihimaki2013.inner_ep", "CHANGE, LIMIT = 1e-12, 1000", "CHANGE, LIMIT = 1e-12, 2000"),
    (_ENDS, "reference.riihimaki2013.qep", "ROUNDING = 1e-9", "ROUNDING = 2e-9"),
    (_ENDS, "reference.riihimaki2013.variational", "_ROUNDING, _FEW = 1e-13, 10", "_ROUNDING, _FEW = 2e-13, 10"),
    (_ENDS, "reference.common.quadrature", "_LIMIT = 1e-11", "_LIMIT = 2e-11"),
    (_ANSWERS, "reference.villacampa2020.divergence", "_STEEP = 50.0", "_STEEP = -50.0"),
    (_ANSWERS, "reference.villacampa2020.sparse", "_ROUNDING = 1e-6", "_ROUNDING = 2e-6"),
    (_ANSWERS, "reference.villacampa2020.power_likelihood", "_NEARLY_ALL = -1.0", "_NEARLY_ALL = 1.0"),
    (_ANSWERS, "reference.villacampa2020.fit_energies", "_WIDER = 1e-6", "_WIDER = 2e-6"),
    (_ANSWERS, "reference.villacampa2020.fit_gaussian_factor", "CONVERGED = 1e-6", "CONVERGED = 2e-6"),
    (_LINES, "reference.common.probit", "_REACH = 12.0", "_REACH = -12.0"),
    (_LINES, "reference.common.logistic_expectation", "_REACH = 12.0", "_REACH = -12.0"),
    (_LINES, "reference.common._largest", "_IN_TAIL = 1e-5", "_IN_TAIL = -1e-5"),
    (_LINES, "reference.common._largest", "_ONE = 1e3", "_ONE = -1e3"),
    (_LINES, "reference.villacampa2017.datum", "_APART = 40.0", "_APART = -40.0"),
    (_THIRDS, "reference.common.laplace_binary", "410014560.0)", "820029120.0)"),
    (_THIRDS, "reference.common.laplace_binary", "_FAR = -30.0", "_FAR = -60.0"),
    (_DIVERGED, "reference.wenzel2019._stochastic", "_LARGEST_LATENT = 1e6", "_LARGEST_LATENT = 2e6"),
)


@pytest.mark.parametrize(
    "asked", [_SCALES, _GROWTH, _STEPS, _SWEEPS, _ROUNDING, _SIZES, _ENDS, _ANSWERS, _DIVERGED, _LINES, _THIRDS]
)
def test_healthy_witnesses_pass(reds, asked):
    assert reds("limits_of_reference", asked) == []


@pytest.mark.parametrize(
    ("asked", "module", "old", "new"),
    others_slow(_PLANTED, lambda asked, module, old, new: asked not in (_STEPS, _SIZES, _ENDS)),
)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("limits_of_reference", asked, (module, old, new))
