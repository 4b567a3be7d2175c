"""The checks of the length of the next step, and a mistake in each rule."""

import pytest

from in_every_run import asked_by_verify, others_slow

_SITES, _SVI, _SVGPC, _ROBUST = (
    "identity/epgpc/site_steps",
    "identity/svi/ceilings",
    "identity/svgpc/ceilings",
    "identity/vi-robust/ceilings",
)
_MODULES = {
    _SITES: "fast.solve.site_iteration",
    _SVI: "reference.izmailov2016.fit",
    _SVGPC: "reference.wenzel2019.fit_svgpc",
    _ROBUST: "reference.common._ascent",
}
_PLANTED = (
    (_SITES, "max(0.7 * rate, min(rate, _SMALLEST_SHORTENED))", "max(0.7, min(rate, _SMALLEST_SHORTENED))"),
    (_SITES, "min(rate, _SMALLEST_SHORTENED))", "min(rate, 0.0))"),
    (_SITES, "1.1 * rate", "1.2 * rate"),
    (_SITES, "_SMALLEST_RATE = 2.0**-20", "_SMALLEST_RATE = 2.0**-19"),
    (_SITES, "point.n_improper <= kept.n_improper", "True"),
    (_SITES, "trace.append(kept.objective)", "trace.append(point.objective)"),
    (_SVI, "max(0.5 * ceiling, 0.01)", "max(0.5 * ceiling, 0.02)"),
    (_SVI, "< 1e-6 * (1.0 + abs(now)):", "< 1e-6 * (1.0):"),
    (_SVI, "min(ceiling, 2.0 * rate)", "min(ceiling, rate)"),
    (_SVI, "if moved > last and", "if moved < last and"),
    (_SVGPC, "max(0.5 * rate, _LEAST_CEILING)", "max(-0.5 * rate, _LEAST_CEILING)"),
    (_SVGPC, "_LEAST_CEILING = 0.05", "_LEAST_CEILING = 0.1"),
    (_SVGPC, "> changes[-2] > _ROUNDED", "> changes[-2]"),
    (_ROBUST, "residual < _NEAR and length > before", "length > before"),
    (_ROBUST, "max(0.5 * ceiling, _LEAST_CEILING)", "0.5 * ceiling"),
    (_ROBUST, "rate = min(ceiling, 2.0 * rate)", "rate = 2.0 * rate"),
)


@asked_by_verify
@pytest.mark.parametrize("asked", [_SITES, _SVI, _SVGPC, _ROBUST])
def test_healthy_steps_pass(reds, asked):
    assert reds("step_rules", asked) == []


@pytest.mark.parametrize(("asked", "old", "new"), others_slow(_PLANTED, lambda asked, old, new: asked == _SITES))
def test_a_planted_mistake_is_seen(reds, asked, old, new):
    assert reds("step_rules", asked, (_MODULES[asked], old, new))
