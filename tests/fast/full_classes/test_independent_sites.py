"""Scalar sites of independent classes: one refused datum among others, against densities in natural parameters."""

import numpy as np

from fast.core.hyper import class_hyper
from fast.full_classes.independent_sites import Tilt, settle_independent
from fast.full_classes.prior import MulticlassPrior
from fast.solve.outer_loop import OuterOptions

X, Y = np.array([[0.1], [0.9], [1.7], [-0.6]]), np.array([0, 2, 1, 0])
REFUSED, DAMPING = 1, 0.7


def test_sites_in_order_pass_a_refused_datum_by_and_count_it():
    prior = MulticlassPrior(X, Y, 3, class_hyper([0.8, 1.7, 1.2], [0.9], 0.1, 1e-3, 3, 1), False)
    start = np.full((4, 3), 0.5), np.full((4, 3), 0.2)
    visits = []

    def tilt(rows, mean, var):
        visits.append((int(rows[0]), mean[0].copy(), var[0].copy()))
        return Tilt(np.full((1, 3), 1.0 + rows[0]), 0.3 * mean, np.array([rows[0] != REFUSED]), np.array([0.05]))

    options = OuterOptions(max_iterations=1, damping=DAMPING, schedule="sequential", tolerance=1e-9)
    end = settle_independent(prior, tilt, lambda mean, var: -0.5 * mean.sum(axis=1), options, start=start)
    assert [i for i, _, _ in visits] == [0, 1, 2, 3]
    tau, nu = start[0].copy(), start[1].copy()
    for i, mean, var in visits:
        for k in range(3):
            S = np.linalg.inv(np.linalg.inv(prior.K(k)) + np.diag(tau[:, k]))
            left = 1.0 / S[i, i] - tau[i, k]
            # cavities given what went before: inverses of 4 x 4, conditions below 100
            np.testing.assert_allclose(var[k], 1.0 / left, rtol=1e-11, atol=0)
            np.testing.assert_allclose(mean[k], ((S @ nu[:, k])[i] / S[i, i] - nu[i, k]) / left, rtol=0, atol=1e-12)
        if i != REFUSED:
            tau[i] += DAMPING * (1.0 + i - tau[i])
            nu[i] += DAMPING * (0.3 * mean - nu[i])
    # a damped step of numbers of size one
    np.testing.assert_allclose(end.sites[0], tau, rtol=1e-13, atol=0)
    np.testing.assert_allclose(end.sites[1], nu, rtol=0, atol=1e-12)
    assert end.n_improper == 1
    assert not end.converged
