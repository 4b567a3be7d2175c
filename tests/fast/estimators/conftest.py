"""One thread for both sides: a classifier takes one where matrices are small, a method what it finds.

Digits are compared to the last bit, and two threads add in another order.
"""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True)
def _one_thread():
    with threadpool_limits(limits=1, user_api="blas"):
        yield
