"""The bench of data in parts: its messages are those of its model, and no worker receives more than was asked."""

import sys

import numpy as np
import pytest

from validation.bench import scale


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_messages_are_those_of_the_model(clients, tmp_path, workers):
    m = 60  # sums of 14 kB: well above the messages that carry none
    rows, prior = scale._data(tmp_path, 32 * workers, m, leaf=32)
    result = scale.timed(rows, prior, clients(workers))
    # three arrays, and the tuple around them, which Dask counts as well
    message = 8 * (m * (m + 1) // 2 + m + 1) + sys.getsizeof((None,) * 3)
    sent = workers - 1 + 3 * workers // 2 - 2
    # every other worker needs q; who adds is Dask's choice where a sum is there already, so the rest is a bound
    assert workers - 1 <= result.messages <= sent
    assert result.bytes <= sent * message
    assert result.largest <= 3 * 8 * m * m
    assert len(result.seconds) == scale.SWEEPS - 1


@pytest.mark.slow
def test_the_table_has_every_row_that_was_asked_for():
    rows = {row.quantity: row for row in scale.scale(n=3000, m=20, counted=(4,))}
    assert rows["bounds of one and of two workers differ in bits"].met
    assert rows["bytes that a worker receives in a sweep, two workers"].met
    assert {f"predicted seconds a sweep, n = 3000, {workers} workers" for workers in scale.PREDICTED} <= set(rows)
    assert all(np.isfinite(row.value) for row in rows.values())
