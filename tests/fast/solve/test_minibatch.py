"""Batch sources: every datum once an epoch, the same batches from arrays, maps and blocks, exact continuation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fast.solve.minibatch import Listed, Shuffled, epochs_of_indices, permuted, random_indices


def numbered(n):
    """Data whose rows say which they are."""
    return np.column_stack([np.arange(n, dtype=float), -np.arange(n, dtype=float)]), np.arange(n) % 2


def epoch(source):
    return [source.draw() for _ in range(source.batches_per_epoch)]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 300), st.integers(1, 400), st.integers(1, 90), st.integers(1, 500), st.integers(0, 2**40))
def test_every_datum_is_seen_once_an_epoch_in_batches_of_equal_size(n, batch_size, block_size, pool_size, seed):
    X, y = numbered(n)
    source = Shuffled(X, y, batch_size, seed, block_size=block_size, pool_size=pool_size)
    for number in range(3):
        assert source.epoch == number
        batches = epoch(source)
        observed = np.concatenate([batch.X[:, 0] for batch in batches])
        np.testing.assert_array_equal(np.sort(observed), np.arange(n))
        for batch in batches:
            np.testing.assert_array_equal(batch.y, 2.0 * (batch.X[:, 0] % 2) - 1.0)
        sizes = [len(batch.y) for batch in batches]
        assert max(sizes) <= batch_size
        assert max(sizes) - min(sizes) <= 1


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5000), st.integers(0, 2**32 - 1))
def test_the_order_of_blocks_is_a_bijection(count, seed):
    keys = np.random.default_rng(seed).integers(0, 2**32, size=6)
    assert sorted(permuted(k, count, keys) for k in range(count)) == list(range(count))


def test_the_order_of_blocks_looks_random():
    rng = np.random.default_rng(5)
    where = np.array([[permuted(k, 50, rng.integers(0, 2**32, size=6)) for k in range(0, 50, 7)] for _ in range(4000)])
    # positions under random keys: uniform on 0 .. 49. Mean and variance of 4000 draws, 16 statistics, level 1e-4 over
    # all of them (two-sided, z < 4.4); the fourth central moment of the uniform distribution is 9/5 of the squared
    # variance
    mean, var = 24.5, (50**2 - 1) / 12
    assert (np.abs(where.mean(axis=0) - mean) < 4.4 * np.sqrt(var / 4000)).all()
    assert (np.abs(where.var(axis=0) - var) < 4.4 * np.sqrt(0.8 * var**2 / 4000)).all()


def test_epochs_and_seeds_differ_and_one_seed_repeats():
    X, y = numbered(200)
    one, again, other = (Shuffled(X, y, 10, seed, block_size=8) for seed in (3, 3, 4))
    first, second = epoch(one), epoch(one)
    np.testing.assert_array_equal(first[0].X, epoch(again)[0].X)
    assert (first[0].X != second[0].X).any()
    assert (first[0].X != epoch(other)[0].X).any()


@pytest.mark.parametrize("drawn", [0, 1, 4, 7, 20, 21, 45])
@pytest.mark.parametrize("kind", ["array", "sequence", "iterable"])
def test_a_source_continues_where_its_state_was_taken(drawn, kind):
    X, y = numbered(203)
    source, fresh = (make_source(kind, X, y, 10) for _ in range(2))
    for _ in range(drawn):
        source.draw()
    fresh.restore(source.state())
    for _ in range(30):
        left, right = source.draw(), fresh.draw()
        np.testing.assert_array_equal(left.X, right.X)
        np.testing.assert_array_equal(left.y, right.y)


class Blocks:
    """Re-iterable blocks without random access."""

    def __init__(self, X, y, size):
        self.X, self.y, self.size = X, y, size

    def __iter__(self):
        for k in range(0, len(self.y), self.size):
            yield self.X[k : k + self.size], self.y[k : k + self.size]


def make_source(kind, X, y, batch_size):
    options = {"block_size": 16, "pool_size": 64}
    if kind == "array":
        return Shuffled(X, y, batch_size, 1, **options)
    blocks = Blocks(X, y, 16)
    return Shuffled(list(blocks) if kind == "sequence" else blocks, None, batch_size, 1, **options)


def test_a_list_of_blocks_gives_the_batches_of_the_array():
    X, y = numbered(203)
    for left, right in zip(
        epoch(make_source("array", X, y, 10)), epoch(make_source("sequence", X, y, 10)), strict=True
    ):
        np.testing.assert_array_equal(left.X, right.X)


def test_a_memory_map_gives_the_batches_of_the_array(tmp_path):
    X, y = numbered(203)
    X.tofile(tmp_path / "X.bin")
    y.astype(np.int8).tofile(tmp_path / "y.bin")
    mapped = np.memmap(tmp_path / "X.bin", dtype=np.float64, mode="r", shape=(203, 2))
    labels = np.memmap(tmp_path / "y.bin", dtype=np.int8, mode="r", shape=(203,))
    for left, right in zip(
        epoch(make_source("array", X, y, 10)), epoch(make_source("array", mapped, labels, 10)), strict=True
    ):
        np.testing.assert_array_equal(left.X, right.X)
        np.testing.assert_array_equal(left.y, right.y)


def test_an_iterable_is_read_in_its_order_and_shuffled_by_pools():
    X, y = numbered(200)
    batches = epoch(make_source("iterable", X, y, 10))
    first = np.concatenate([batch.X[:, 0] for batch in batches])[:64]
    np.testing.assert_array_equal(np.sort(first), np.arange(64))
    assert (first != np.arange(64)).any()


@pytest.mark.parametrize(("n", "text"), [(190, "found more rows than 190"), (210, "found fewer rows than 210")])
def test_a_wrong_number_of_rows_is_seen_at_the_end_of_the_epoch(n, text):
    source = Shuffled(Blocks(*numbered(200), 16), None, 10, 0, n=n)
    with pytest.raises(ValueError, match=text):
        epoch(source)


def test_a_batch_may_lack_a_class():
    X, y = numbered(20)
    batch = Listed(X, y, [np.array([1, 3, 5])]).draw()
    np.testing.assert_array_equal(batch.y, 1.0)


BAD = [
    ({"X": np.array([["a"]])}, "X: found dtype"),
    ({"X": np.empty((0, 2)), "y": np.empty(0, int)}, "X: found shape"),
    ({"y": np.array(["no", "yes"] * 10)}, "y: found dtype <U3, expected real numbers"),
    ({"y": np.arange(20)}, "y: found labels"),
    ({"y": np.zeros(20)}, "y: found dtype float64, expected integers"),
    ({"y": np.zeros(19, int)}, r"y: found shape \(19,\)"),
    ({"batch_size": 0}, "batch_size: found 0"),
    ({"seed": -1}, "seed: found -1, expected an integer >= 0"),
    ({"X": iter([]), "y": None}, "X: found list_iterator, expected arrays X and y, or blocks"),
    ({"X": [np.zeros((3, 2))], "y": None}, "expected pairs"),
    ({"X": [], "y": None}, "X: found no data"),
    ({"X": [(np.zeros((2, 2)), np.zeros(2, int)), (np.zeros((2, 3)), np.zeros(2, int))], "y": None}, "X: found 3 col"),
]


@pytest.mark.parametrize(("change", "text"), BAD)
def test_bad_data_are_named_when_they_are_read(change, text):
    X, y = numbered(20)
    arguments = {"X": X, "y": y, "batch_size": 5, "seed": 0, **change}
    with pytest.raises(ValueError, match=text):
        epoch(Shuffled(**arguments))


def test_a_bad_row_is_named_by_its_number_when_its_block_is_read():
    X, y = numbered(100)
    X[77, 1] = np.nan
    with pytest.raises(ValueError, match="X: found a value that is not finite in row 77"):
        epoch(Shuffled(X, y, 5, 0, block_size=7, pool_size=20))


@pytest.mark.parametrize(
    ("batches", "text"),
    [
        ([], "batches: found no batch"),
        ([np.array([1]), np.array([], dtype=int)], r"batches\[1\]: found an empty batch"),
        ([np.array([20])], r"batches\[0\]: found index 20, expected 0 to 19"),
        ([np.array([-1])], r"batches\[0\]: found index -1"),
        ([np.array([0.5])], r"batches\[0\]: found dtype float64"),
        ([np.array([[1]])], r"batches\[0\]: found 2 axes"),
    ],
)
def test_bad_index_lists_are_named_by_their_number(batches, text):
    with pytest.raises(ValueError, match=text):
        Listed(*numbered(20), batches)


@pytest.mark.parametrize(("n", "batch_size"), [(8, 3), (9, 3), (5, 8), (1, 1)])
def test_epochs_of_indices_hold_every_datum_once_in_batches_of_nearly_one_size(n, batch_size):
    batches, again = epochs_of_indices(n, batch_size, 4), epochs_of_indices(n, batch_size, 4)
    orders = []
    for _ in range(3):
        epoch = [next(batches) for _ in range(-(-n // batch_size))]
        np.testing.assert_array_equal(np.concatenate(epoch), np.concatenate([next(again) for _ in epoch]))
        assert sorted(np.concatenate(epoch).tolist()) == list(range(n))
        assert max(part.size for part in epoch) - min(part.size for part in epoch) <= 1
        orders.append(tuple(np.concatenate(epoch).tolist()))
    assert n < 8 or len(set(orders)) == 3


@pytest.mark.parametrize(("n", "batch_size"), [(8, 3), (5, 8), (40, 11)])
def test_random_indices_are_sorted_without_repetition_and_go_on_with_their_generator(n, batch_size):
    rng = np.random.default_rng(2)
    batches = [random_indices(n, batch_size, rng) for _ in range(60)]
    for batch in batches:
        assert batch.size == min(n, batch_size)
        assert (np.diff(batch) > 0).all()
    assert set(np.concatenate(batches).tolist()) == set(range(n))
    assert n <= batch_size or len({tuple(batch.tolist()) for batch in batches}) > 10
