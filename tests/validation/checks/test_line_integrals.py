"""The judge's own rule along one latent value, against closed forms, and its checks against planted mistakes."""

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from reference.common import _largest
from validation.checks.core import Context
from validation.checks.line_integrals import integrals, log_integral, log_largest


@pytest.mark.parametrize(
    ("mean", "sd", "offset", "scale"), [(0.3, 0.8, 0.1, 0.7), (-30.0, 0.5, 2.0, 1.1), (1.0, 2.0, 1.4, 1e-4)]
)
def test_one_factor_has_a_closed_form(mean, sd, offset, scale):
    # E[Φ((s - o)/a)] = Φ((m - o)/√(v + a²)); panels leave 1e-15 of logarithms below 1e3
    result = log_integral(mean, sd, np.array([offset]), np.array([scale]), np.array([1.0]))
    assert result == pytest.approx(log_ndtr((mean - offset) / np.hypot(sd, scale)), rel=1e-13)


def test_two_steps_leave_an_interval():
    result = log_integral(0.2, 0.5, np.array([-0.3, 0.6]), np.zeros(2), np.array([1.0, -1.0]))
    assert result == pytest.approx(np.log(ndtr(0.8) - ndtr(-1.0)), rel=1e-13)
    assert log_integral(0.2, 0.5, np.array([0.6, -0.3]), np.zeros(2), np.array([1.0, -1.0])) == -np.inf


def test_a_point_mass_is_the_product_there():
    offsets, signs = np.array([0.1, -0.6]), np.array([1.0, 1.0])
    result = log_integral(0.4, 0.0, offsets, np.array([0.7, 0.0]), signs)
    assert result == pytest.approx(norm.logcdf(0.3 / 0.7), rel=1e-13)
    assert log_integral(-0.7, 0.0, offsets, np.array([0.7, 0.0]), signs) == -np.inf


def test_probabilities_of_all_classes_sum_to_one():
    mean, var = np.array([0.3, -0.2, 0.5, 1.1]), np.array([0.7, 1e-4, 1.3, 0.2])
    total = sum(np.exp(log_largest(mean, var, k)) for k in range(4))
    # four integrals, each to 1e-15
    assert total == pytest.approx(1.0, abs=1e-13)


def test_a_lost_edge_of_a_step_is_seen(monkeypatch):
    panels = _largest._panels
    monkeypatch.setattr(_largest, "_panels", lambda *a: (p := panels(*a))._replace(edge=0.0 * p.edge))
    # no problem is asked for
    outcomes = list(integrals(Context(quick=True), None))
    assert any(outcome.observed > outcome.limit for outcome in outcomes)
