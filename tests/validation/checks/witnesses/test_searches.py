"""The judge's own derivatives of distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from validation.checks.witnesses import searches


@pytest.mark.parametrize("prior_on", ["field", "root"])
@pytest.mark.parametrize("map_density", ["value", "log"])
def test_the_derivative_of_a_distribution_is_that_of_scipys_density(prior_on, map_density):
    problem = searches.line("softmax full distributions")
    value = float(problem.variance[0])

    def log_density(log_theta):
        x = np.exp(log_theta * (0.5 if prior_on == "root" else 1.0))
        # the half-t has twice the density of the t: a constant
        result = stats.t(df=4.0, scale=2.0).logpdf(x)
        return result + np.log(x) if map_density == "log" else result

    step = 1e-5
    derivative = (log_density(np.log(value) + step) - log_density(np.log(value) - step)) / (2.0 * step)
    # errors of central differences: 1e-10 of a third derivative below 1, and rounding of 1e-16 over 1e-5
    np.testing.assert_allclose(
        searches.distribution_derivative(problem, "variance", prior_on, map_density), [derivative], rtol=0, atol=1e-8
    )


def test_a_parameter_without_a_distribution_has_zero_gradient():
    assert not searches.distribution_derivative(
        searches.line("softmax full distributions"), "noise", "field", "value"
    ).any()
