"""The numbers by which the ledger calls something in wenzel2019 a slip, from definitions alone."""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from validation.ledger.numbers import assert_recorded

PAPER = "wenzel2019"


def test_the_transform_of_omega_has_a_minus_sign():
    """A sum of gammas with shape one: both transforms as products over its terms."""
    k = np.arange(200_000) + 0.5
    laplace, moments = (float(np.exp(-np.sum(np.log1p(sign / (2 * np.pi**2 * k**2))))) for sign in (1.0, -1.0))
    # what the product leaves out is below 1 / (2 pi^2 k) = 3e-7
    np.testing.assert_allclose(laplace, 1.0 / np.cosh(np.sqrt(0.5)), rtol=1e-6, atol=0)
    assert_recorded(PAPER, "slip-1", laplace, moments)


def test_probabilities_of_both_labels_add_up_to_one():
    z = 0.7
    assert expit(z) + expit(-z) == 1.0
    assert_recorded(PAPER, "slip-2", float(expit(z)), float(logit(z)))


def test_a_rate_above_one_may_leave_no_covariance(model):
    s = model
    old, target = np.linalg.inv(s.Sigma), np.linalg.inv(s.K_ZZ) + s.kappa.T @ np.diag(s.theta) @ s.kappa
    ends = [float(np.min(np.linalg.eigvalsh((1.0 - rate) * old + rate * target))) for rate in (1.0, 2.0)]
    assert ends[1] < 0.0 < ends[0]
    assert_recorded(PAPER, "slip-3", *ends)


def test_brackets_of_the_divergences():
    printed = "KL(q(u))||p(u))"
    assert_recorded(PAPER, "slip-8", printed.count("("), printed.count(")"))


def test_what_is_said_to_be_positive_definite(model, make_model):
    s = model
    inducing = s.K_ZZ - s.K_ZZ @ np.linalg.solve(s.K_ZZ, s.K_ZZ)  # of data that are inducing points
    assert np.max(np.abs(inducing)) < 1e-12
    assert_recorded(PAPER, "slip-9", *s.kappa.shape, 0.0)
    assert_recorded(PAPER, "slip-12", s.n, s.m)


def test_the_covariance_where_the_gradient_vanishes():
    """One inducing value: the terms of (10) with Sigma, maximised by a search without derivatives."""
    K, kappa, theta = 1.3, np.array([0.9, 0.4, -0.7]), np.array([0.2, 0.22, 0.24])
    found = minimize_scalar(
        lambda S: -0.5 * (np.log(S) - S / K - np.sum(theta * kappa**2) * S), bounds=(1e-3, 10), method="bounded",
        options={"xatol": 1e-10},
    )  # fmt: skip
    np.testing.assert_allclose(found.x, 1.0 / (1.0 / K + kappa @ (theta * kappa)), rtol=1e-6, atol=0)
    assert_recorded(PAPER, "slip-10", -0.5 / found.x)
