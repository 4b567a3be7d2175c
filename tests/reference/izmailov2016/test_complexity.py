"""Costs of izmailov2016 counted in the operations, and the vectors that the searches are given."""

import numpy as np
import pytest

from reference.izmailov2016 import algorithm1, svi
from reference.izmailov2016.complexity import complexity_table
from reference.izmailov2016.jaakkola_jordan import jj_optimal_covariance

LEARN = ("variance", "lengthscales", "noise")


@pytest.mark.verifies("izmailov2016", "u3.2-costs", route="multiplications counted one by one")
def test_costs_are_those_of_the_operations(model, multiplications):
    s = model
    v = multiplications.count(np.sqrt(2.0 * s.lam)[:, None] * s.K_XZ)
    B = v.T @ v + multiplications.count(s.K_ZZ)  # of (14)
    covariance = s.K_ZZ @ np.linalg.solve(multiplications.plain(B), s.K_ZZ)
    np.testing.assert_allclose(covariance, jj_optimal_covariance(s.xi, s.K_ZZ, s.K_XZ), rtol=1e-7, atol=1e-9)
    multiplications.inverse(B)
    for method in ("svi", "vi-jj", "vi-taylor", "vi-jj-full", "vi-jj-hybrid"):
        assert complexity_table(method, s.n, s.m).operations == multiplications.total
    multiplications.total = 0
    multiplications.inverse(multiplications.count(s.K_XX))
    assert complexity_table("full", s.n, s.m).operations == multiplications.total
    with pytest.raises(ValueError, match="method: found 'vi'"):
        complexity_table("vi", s.n, s.m)


@pytest.mark.verifies("izmailov2016", "u3.2-costs", route="length of the vectors that the optimiser is given")
def test_as_many_numbers_are_searched_as_the_optimiser_is_given(model, monkeypatch):
    s, lengths = model, []
    for module in (algorithm1, svi):
        right = module.maximise

        def maximise(objective, start, *rest, right=right):
            lengths.append(len(start))
            return right(objective, start, *rest)

        monkeypatch.setattr(module, "maximise", maximise)
    theta = 2 + s.X.shape[1]
    runs = {
        "vi-jj": lambda: algorithm1.vi_jj(s.X, s.y, s.hyper, LEARN, max_iterations=1),
        "vi-jj-hybrid": lambda: algorithm1.vi_jj_hybrid(s.X, s.y, s.hyper, LEARN, max_iterations=1),
        "vi-jj-full": lambda: algorithm1.vi_jj_full(s.X, s.y, s.hyper, LEARN, max_iterations=1),
        "vi-taylor": lambda: algorithm1.vi_taylor(s.X, s.y, s.hyper, LEARN, max_iterations=1),
        "svi": lambda: svi.svi_lbfgs(s.X, s.y, s.hyper, LEARN, max_iterations=1),
    }
    for method, run in runs.items():
        lengths.clear()
        run()
        assert lengths
        assert set(lengths) == {theta + complexity_table(method, s.n, s.m).searched}, method
