"""Arguments of the samplers: what is refused, by name."""

import numpy as np
import pytest

from gibbs.core import errors
from gibbs.evidence import annealed, bridge


@pytest.mark.parametrize("size", [1e101, -1e308])
def test_numbers_whose_products_overflow_are_refused_by_name(size):
    assert errors._reachable("cov", np.array([1e100, -1e100]), 1).size == 2
    with pytest.raises(ValueError, match=r"cov: found an entry of size 1e\+\d+, expected at most 1e\+100"):
        errors._reachable("cov", np.array([1.0, size]), 1)


def test_routes_to_log_z_refuse_such_covariances():
    with pytest.raises(ValueError, match="K_XX: found an entry of size"):
        annealed.log_evidence(np.random.default_rng(0), np.diag([1.0, 1e308]), np.array([1.0, -1.0]))


def test_halves_without_overlap_are_a_named_error():
    with pytest.raises(ValueError, match="latent_values: found halves that do not overlap"):
        bridge._log_bridge(np.full(100, 3000.0), np.full(100, -3000.0), 0.5)
