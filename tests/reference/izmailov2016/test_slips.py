"""Slips of izmailov2016: what is meant, by a route that needs neither wording, beside what is printed."""

import numpy as np
import pytest

from reference.izmailov2016.jaakkola_jordan import jj_bound, jj_collapsed_bound, jj_optimal_covariance, jj_optimal_mean
from reference.izmailov2016.kernels import kernel_squared_exponential
from reference.izmailov2016.model import gram_matrix, logistic_class_probability
from reference.izmailov2016.taylor import (
    taylor_bound,
    taylor_collapsed_bound,
    taylor_optimal_covariance,
    taylor_optimal_mean,
)
from validation.ledger.inventory import SLIP, load
from validation.ledger.numbers import assert_recorded

PAPER = "izmailov2016"


def squared_exponential(a, b):
    return float(np.exp(-np.sum((a - b) ** 2)))


def test_a_gram_matrix_of_k_points_has_k_rows(rng):
    assert_recorded(PAPER, "slip-1", *gram_matrix(squared_exponential, rng.normal(size=(4, 2))).shape)


def test_one_point_given_twice_makes_a_singular_covariance(rng):
    points = rng.normal(size=(3, 2))
    points[2] = points[0]
    matrix = gram_matrix(squared_exponential, points)
    assert_recorded(PAPER, "slip-2", int(np.linalg.matrix_rank(matrix)), len(matrix))


def test_the_variance_is_the_square_of_sigma():
    at = np.zeros((1, 2))
    assert_recorded(PAPER, "slip-3", kernel_squared_exponential(at, at, 1.7, 0.8)[0, 0], 1.7)


def test_without_the_latent_value_both_classes_are_as_likely(expectation):
    def one(f):
        return float(logistic_class_probability(np.array([f]))[0])

    assert_recorded(PAPER, "slip-4", expectation(one, 0.0, 1.6), one(1.0))


def test_inducing_inputs_are_points_and_values_are_numbers(model):
    assert_recorded(PAPER, "slip-5", model.Z.size, model.u.size)


def test_nothing_is_omitted_from_the_compact_bound_of_jaakkola_and_jordan(model):
    s = model
    weights = s.lam
    Sigma = np.linalg.inv(np.linalg.inv(s.K_ZZ) + 2.0 * (s.kappa.T * weights) @ s.kappa)
    top = jj_bound(0.5 * Sigma @ s.kappa.T @ s.y, Sigma, s.xi, s.y, *s.K)
    assert_recorded(PAPER, "slip-6", top, jj_collapsed_bound(s.xi, s.y, *s.K))


def test_the_first_stage_of_taylors_method_is_not_that_of_algorithm_1(model):
    s, ends = model, []
    rules = ((taylor_optimal_mean, taylor_optimal_covariance, s.y), (jj_optimal_mean, jj_optimal_covariance, None))
    for mean_of, cov_of, y in rules:
        mu, Sigma = np.zeros(s.m), np.eye(s.m)
        for _ in range(200):
            m = s.kappa @ mu
            var = s.k_xx - np.sum(s.kappa * s.K_XZ, axis=1) + np.sum(s.kappa @ Sigma * s.kappa, axis=1)
            xi = np.sqrt(m**2 + var) if y is None else m
            mu, Sigma = mean_of(xi, s.y, s.K_ZZ, s.K_XZ), cov_of(xi, *(() if y is None else (y,)), s.K_ZZ, s.K_XZ)
        ends.append(mu)
    # Newton's method on p(u) Π_i σ(y_i κ_i u) ends at the mode
    gradient = s.kappa.T @ (s.y / (1.0 + np.exp(s.y * (s.kappa @ ends[0])))) - np.linalg.solve(s.K_ZZ, ends[0])
    np.testing.assert_allclose(gradient, 0.0, rtol=0, atol=1e-10)
    assert_recorded(PAPER, "slip-7", ends[0][0], ends[1][0])


def test_the_covariance_functions_stand_in_section_2_3():
    sections = [entry.section for entry in load().paper(PAPER).entries if entry.kind != SLIP]
    assert_recorded(PAPER, "slip-8", sections.count("2.3"), sections.count("1"))


def test_the_compact_bound_depends_on_the_local_parameters(model):
    s = model
    assert_recorded(PAPER, "slip-9", *(jj_collapsed_bound(xi, s.y, *s.K) for xi in (np.ones(s.n), np.full(s.n, 2.0))))


def test_the_compact_approximation_needs_the_terms_without_theta(model):
    s = model
    z = s.y * s.xi
    phi, psi = s.y / (1.0 + np.exp(z)), 0.5 * np.exp(z) / (1.0 + np.exp(z)) ** 2
    B = 2.0 * (s.K_XZ.T * psi) @ s.K_XZ + s.K_ZZ
    v = s.K_XZ.T @ (phi + 2.0 * psi * s.xi)
    K_tilde = s.k_xx - np.sum(s.kappa * s.K_XZ, axis=1)
    printed = 0.5 * (v @ np.linalg.solve(B, v) + np.linalg.slogdet(s.K_ZZ)[1] - np.linalg.slogdet(B)[1]) - psi @ K_tilde
    q = (taylor_optimal_mean(s.xi, s.y, s.K_ZZ, s.K_XZ), taylor_optimal_covariance(s.xi, s.y, s.K_ZZ, s.K_XZ))
    top = taylor_bound(*q, s.xi, s.y, *s.K)
    assert taylor_collapsed_bound(s.xi, s.y, *s.K) == pytest.approx(top, rel=1e-11, abs=0)
    assert_recorded(PAPER, "slip-10", top, printed)


def test_the_compact_approximation_exceeds_the_evidence(expectation):
    K = np.full((1, 1), 4.0)
    evidence = np.log(expectation(lambda f: 1.0 / (1.0 + np.exp(-f)), 0.0, 4.0))
    value = taylor_collapsed_bound(np.full(1, 3.0), np.ones(1), K, K, K[0])
    assert value > evidence
    assert_recorded(PAPER, "slip-12", evidence, value)
