"""The checks of both sides of the numbers at which integrals change their form, and a mistake in each."""

import pytest

from in_every_run import others_slow

_PROBIT, _SERIES, _THIRD = (
    "limit/svgpc/rules_of_the_probit",
    "limit/vi-jj/series_of_the_bound",
    "limit/laplace-binary/third_derivatives_left",
)
_STEPS, _FAR_OUT = "limit/ep/narrow_and_wide_steps", "limit/laplace/truncated_far_out"
_ROUNDED, _SURE = "limit/qep/sites_that_rounding_leaves", "limit/label-regression/sure_answers"
_NEARLY = "limit/rpapep/nearly_sure_labels"
_PLANTED = (
    (_PROBIT, "fast.likelihood.probit", "_SPLIT = 3.0", "_SPLIT = -3.0"),
    (_PROBIT, "fast.likelihood.probit", "_FAR = 12.0", "_FAR = -12.0"),
    (_PROBIT, "fast.likelihood.logit", "_TINY = 1e-30", "_TINY = -1e-30"),
    (_SERIES, "fast.likelihood.quadratic_bounds", "np.arange(9)", "np.arange(5)"),
    (_THIRD, "fast.likelihood.third_derivatives", "_LEFT = -4.0", "_LEFT = -8.0"),
    (_STEPS, "fast.likelihood.largest", "= 4.5, 2.0, 8.5", "= 9.0, 2.0, 8.5"),
    (_FAR_OUT, "fast.likelihood.sobol_rule", "_TAIL = -30.0", "_TAIL = -60.0"),
    (_FAR_OUT, "fast.likelihood.sobol_rule", "SOFTMAX_POINTS = 4096", "SOFTMAX_POINTS = 2048"),
    (_FAR_OUT, "fast.likelihood.sobol_rule", "ORTHANT_POINTS = 1024", "ORTHANT_POINTS = 2048"),
    (_FAR_OUT, "fast.likelihood.product_rule", "_LARGEST = 10**6", "_LARGEST = 10**5"),
    (_ROUNDED, "fast.full_classes.quadrature_tilt", "_SLIGHTLY_NEGATIVE = -1e-9", "_SLIGHTLY_NEGATIVE = -2e-9"),
    (_ROUNDED, "fast.full_classes.quadrature_tilt", "_SMALLEST_PIVOT = 1e-150", "_SMALLEST_PIVOT = -1e-150"),
    (_SURE, "fast.methods.label_regression", "SURE = 1e-8", "SURE = 2e-8"),
    (_NEARLY, "fast.likelihood.power", "= 1e-3, 1e-2", "= 1e-3, -1e-2"),
)


@pytest.mark.parametrize("asked", sorted({row[0] for row in _PLANTED}))
def test_healthy_witnesses_pass(reds, asked):
    assert reds("limits_of_integrals", asked) == []


@pytest.mark.parametrize(
    ("asked", "module", "old", "new"), others_slow(_PLANTED, lambda asked, module, old, new: asked != _PROBIT)
)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("limits_of_integrals", asked, (module, old, new))
