"""A seeded generator for the tests of the reference."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(20190127)
