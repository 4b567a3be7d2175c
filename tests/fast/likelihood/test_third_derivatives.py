"""Third derivatives of the two links against mpmath, in the tails too."""

import mpmath
import numpy as np
import pytest

from fast.likelihood.third_derivatives import logit_third, probit_third


def exact_probit(z):
    with mpmath.workdps(400):
        z = mpmath.mpf(float(z))
        r = mpmath.npdf(z) / (mpmath.erfc(-z / mpmath.sqrt(2)) / 2)
        return float(r * ((r + z) * (2 * r + z) - 1))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_that_of_the_probit_keeps_its_digits_however_far_out(sign):
    z = np.array([-1e4, -300.0, -40.0, -9.0, -8.0, -4.001, -3.999, -1.0, 0.0, 0.4, 3.0, 12.0, 36.0])
    got = probit_third(np.full(z.size, sign), sign * z)
    # right of -4 the bracket loses two digits, in the right tail phi(z) has an error of z^2 eps
    np.testing.assert_allclose(got, [sign * exact_probit(one) for one in z], rtol=1e-12, atol=0)


def test_that_of_the_logit_is_odd_and_does_not_overflow():
    f = np.array([-800.0, -30.0, -1e-9, 0.0, 0.3, 5.0, 700.0])
    with mpmath.workdps(400):
        p = [1 / (1 + mpmath.exp(-mpmath.mpf(float(one)))) for one in f]
        right = [float(one * (1 - one) * (2 * one - 1)) for one in p]
    np.testing.assert_allclose(logit_third(f), right, rtol=1e-13, atol=0)
    np.testing.assert_array_equal(logit_third(-f), -logit_third(f))
