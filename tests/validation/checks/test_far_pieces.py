"""The checks of far pieces, and a mistake in each of them."""

import pytest

from gibbs.models.hyper_models import HyperModel

_PLANTED = (
    ("identity/nested-ep/tails", "reference.riihimaki2013._phi", "x + k / tail", "x - k / tail"),
    ("identity/nested-ep/tails", "reference.riihimaki2013._phi", "range(40, 1, -1)", "range(40, 2, -1)"),
    (
        "identity/svi/point_masses",
        "reference.common.quadrature",
        "Integral(exp(log_function(mean)), 0.0)",
        "Integral(exp(log_function(mean)), 1.0)",
    ),
    (
        "identity/svi/point_masses",
        "reference.common.quadrature",
        "Integral(function(mean), 0.0)",
        "Integral(-function(mean), 0.0)",
    ),
    ("identity/ep/singular", "reference.common.algebra", "np.min(", "np.max("),
)


@pytest.mark.parametrize("asked", sorted({row[0] for row in _PLANTED}))
def test_healthy_witnesses_pass(reds, asked):
    assert reds("far_pieces", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("far_pieces", asked, (module, old, new))


@pytest.mark.parametrize("factor", [1.0, -1.0])
def test_a_shift_that_is_wrong_is_seen(reds, monkeypatch, factor):
    draw = HyperModel.draw_shift
    assert reds("far_pieces", "identity/mh-softmax/shift") == []
    monkeypatch.setattr(HyperModel, "draw_shift", lambda *asked: factor * draw(*asked) + 0.5 * (1.0 + factor))
    assert reds("far_pieces", "identity/mh-softmax/shift")
