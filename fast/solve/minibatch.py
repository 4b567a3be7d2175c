"""Mini-batches: every draw of them, as rows or as indices.

Rows come from arrays, memory maps or blocks: shuffled, every datum once an epoch, nothing of length n held.

Blocks of consecutive rows are read in random order until a pool of some thousand rows is full; the pool is shuffled and
cut into batches. The order of the blocks is a keyed bijection of 0 .. count - 1, evaluated where it is needed: neither
a permutation of the rows nor of the blocks is stored, and the whole state is five integers. An epoch is cut into
ceil(n / batch_size) batches whose sizes differ by one at most: no small last batch with a gradient of large variance.

Mixing is that of a pool: rows of one batch come from at most pool_size / block_size random places of the data. A plain
iterable is read in its own order, which then has to be random enough.

A method that keeps something of each datum, as sites, asks for indices: epoch by epoch in the order of a permutation,
or each batch by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from fast.core import inputs
from fast.core.checkpoint import Digest, digest, lists_digest
from fast.core.types import FloatArray, IntArray

#: Rows y of a block to what the method works with, n rows expected: fast.core.inputs.labels gives signs.
Encode = Callable[[Any, int], FloatArray]
_ROUNDS = 6
_ROWS = 2**20  # labels encoded at a time for a digest


class Batch(NamedTuple):
    """Rows of the data."""

    X: FloatArray  # (b, d)
    y: FloatArray  # (b,), encoded


class Source(Protocol):
    """Where batches come from."""

    n: int
    d: int

    def draw(self) -> Batch:
        """The next batch."""

    def state(self) -> IntArray:
        """Integers from which `restore` continues."""

    def restore(self, state: IntArray) -> None:
        """Continue where `state` was taken."""


def _arrays(X: Any, y: Any) -> tuple[Any, Any]:
    """Inputs and labels, of one length and not empty."""
    X, y = inputs.real_array("X", X, 2), inputs.real_array("y", y, 1)
    n, d = X.shape
    if n == 0 or d == 0:
        raise ValueError(f"X: found shape {X.shape}, expected at least one row and one column")
    if y.shape != (n,):
        raise ValueError(f"y: found shape {y.shape}, expected ({n},)")
    return X, y


class _ArrayBlocks:
    """Consecutive rows of arrays or memory maps."""

    def __init__(self, X: Any, y: Any, block_size: int) -> None:
        self.X, self.y = _arrays(X, y)
        self.n, self.d = self.X.shape
        self.block_size = block_size

    def __len__(self) -> int:
        return -(-self.n // self.block_size)

    def __getitem__(self, k: int) -> tuple[Any, Any, int]:
        part = slice(k * self.block_size, min((k + 1) * self.block_size, self.n))
        return self.X[part], self.y[part], part.start


def permuted(index: int, count: int, keys: IntArray) -> int:
    """Where a keyed bijection of 0 .. count - 1 sends an index: a balanced Feistel network with cycle walking.

    The network permutes the next power of four; walking until the value is below count keeps it a bijection and takes
    fewer than four rounds on average. Time O(1), no memory.

    Parameters
    ----------
    index : int      in 0 .. count - 1
    count : int      >= 1
    keys : (6,)      random integers below 2^32
    """
    middle = ((count - 1).bit_length() + 1) // 2
    mask = (1 << middle) - 1
    value = index
    while True:
        left, right = value >> middle, value & mask
        for key in keys.tolist():
            # a multiplicative hash of the right half; its high bits are the mixed ones
            mixed = ((right ^ key) * 0x9E3779B97F4A7C15 + key) & 0xFFFFFFFFFFFFFFFF
            mixed = ((mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
            left, right = right, left ^ ((mixed >> 32) & mask)
        value = (left << middle) | right
        if value < count:
            return value


class Shuffled:
    """Batches of data cut into blocks; see the text of the module.

    X, y                 arrays or memory maps; or y None and X a sequence (random access) or re-iterable (read in its
                         order) of blocks (X_block, y_block) of any sizes
    batch_size, seed     rows a batch at most; the order of everything
    encode               labels of a block to numbers, checked as they are read
    block_size           rows read at a time from arrays
    pool_size            rows shuffled together, at least one block
    n                    number of rows; None: counted, for blocks by reading them once
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        batch_size: int,
        seed: int,
        *,
        encode: Encode = inputs.labels,
        block_size: int = 256,
        pool_size: int = 8192,
        n: int | None = None,
    ) -> None:
        self.batch_size = inputs.count("batch_size", batch_size)
        self.block_size = inputs.count("block_size", block_size)
        self.pool_size = inputs.count("pool_size", pool_size)
        self.seed, self.encode = inputs.whole("seed", seed), encode
        self._blocks: Any = X
        self._arrays = y is not None
        if self._arrays:
            self._blocks = _ArrayBlocks(X, y, self.block_size)
            self.n, self.d = self._blocks.n, self._blocks.d
        else:
            self.n, self.d = _count_blocks(X, n)
        self.batches_per_epoch = -(-self.n // self.batch_size)
        self._epoch = self._batch = 0
        self._open()

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return self._epoch

    def _open(self, skip: int = 0) -> None:
        """Start the epoch at its block number `skip`."""
        self._first_block = self._next_block = skip
        self._pool, self._emitted = Batch(np.empty((0, self.d)), np.empty(0)), 0  # rows, and how many were given away
        self._stream = self._read(skip)

    def _rng(self, purpose: int, number: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(purpose, self._epoch, number)))

    def _read(self, skip: int) -> Iterator[Batch]:
        """Checked blocks of the epoch, from number `skip` on."""
        if hasattr(self._blocks, "__getitem__") and hasattr(self._blocks, "__len__"):
            keys = self._rng(0, 0).integers(0, 2**32, size=_ROUNDS)
            total = len(self._blocks)
            raw: Iterable[Any] = (self._blocks[permuted(k, total, keys)] for k in range(skip, total))
        else:
            raw = islice(iter(self._blocks), skip, None)
        for entry in raw:
            X, y = entry[0], entry[1]
            first = entry[2] if self._arrays else 0
            X = _block_inputs(X, self.d, first)
            yield Batch(X, self.encode(y, X.shape[0]))

    def _fill(self) -> None:
        """Read and shuffle the next pool."""
        self._first_block = self._next_block
        parts: list[Batch] = []
        rows = 0
        while rows < self.pool_size:
            block = next(self._stream, None)
            if block is None:
                break
            self._next_block += 1
            rows += block.X.shape[0]
            parts.append(block)
        if not parts:
            raise ValueError(f"n: found fewer rows than {self.n} in an epoch, expected the same rows in every epoch")
        order = self._rng(1, self._first_block).permutation(rows)
        X, y = np.empty((rows, self.d)), np.empty(rows)
        start = 0
        for part in parts:
            stop = start + part.X.shape[0]
            # scattering a permutation is a permutation: no second copy of the pool
            X[order[start:stop]], y[order[start:stop]] = part
            start = stop
        self._pool, self._emitted = Batch(X, y), 0

    def draw(self) -> Batch:
        """The next batch. Time O(batch), and once a pool O(pool)."""
        k, per_epoch = self._batch, self.batches_per_epoch
        wanted = (k + 1) * self.n // per_epoch - k * self.n // per_epoch
        pieces: list[Batch] = []
        while wanted > 0:
            if self._emitted == self._pool.X.shape[0]:
                self._fill()
            part = slice(self._emitted, min(self._emitted + wanted, self._pool.X.shape[0]))
            pieces.append(Batch(self._pool.X[part], self._pool.y[part]))
            wanted -= part.stop - part.start
            self._emitted = part.stop
        batch = Batch(np.concatenate([p.X for p in pieces]), np.concatenate([p.y for p in pieces]))
        self._batch += 1
        if self._batch == per_epoch:
            if self._emitted < self._pool.X.shape[0] or next(self._stream, None) is not None:
                raise ValueError(f"n: found more rows than {self.n} in an epoch, expected the same rows in every epoch")
            self._epoch, self._batch = self._epoch + 1, 0
            self._open()
        return batch

    def digests(self) -> dict[str, str]:
        """Digests of all inputs and labels, and of the cuts of a collection of blocks; one read in their own order."""
        X, y, cuts = Digest(), Digest(), Digest()
        blocks = self._blocks
        random_access = hasattr(blocks, "__getitem__") and hasattr(blocks, "__len__")
        for entry in (blocks[k] for k in range(len(blocks))) if random_access else blocks:
            rows = inputs.real_array("X", entry[0], 2)
            X.add(np.asarray(rows, dtype=np.float64))
            y.add(self.encode(entry[1], rows.shape[0]))
            cuts.add([rows.shape[0]])
        return {"X": str(X), "y": str(y)} | ({} if self._arrays else {"blocks": str(cuts)})

    def state(self) -> IntArray:
        """Epoch, batch in it, first block and position of the pool, and whether there is one."""
        has_pool = self._pool.X.shape[0] > 0
        return np.array([self._epoch, self._batch, self._first_block, self._emitted, int(has_pool)])

    def restore(self, state: IntArray) -> None:
        """Continue where `state` was taken; the pool is read again."""
        self._epoch, self._batch, first_block, emitted, has_pool = (int(value) for value in state)
        self._open(first_block)
        if has_pool:
            self._fill()
            self._emitted = emitted


class Listed:
    """Batches by explicit index lists, in their order; for audits."""

    def __init__(self, X: Any, y: Any, batches: Sequence[Any], *, encode: Encode = inputs.labels) -> None:
        self._X, self._y = _arrays(X, y)
        self.n, self.d = self._X.shape
        self.encode = encode
        self.batches = index_lists("batches", batches, self.n)
        self._next = 0

    def __len__(self) -> int:
        return len(self.batches)

    def at(self, batch: IntArray) -> Batch:
        """The rows of an index list."""
        X = inputs.finite_rows("X", self._X[batch])
        return Batch(X, self.encode(self._y[batch], X.shape[0]))

    def digests(self) -> dict[str, str]:
        """Digests of all inputs, labels and index lists."""
        y = Digest()
        for start in range(0, self.n, _ROWS):
            part = self._y[start : start + _ROWS]
            y.add(self.encode(part, part.shape[0]))
        return {"X": digest(self._X), "y": str(y), "batches": lists_digest(self.batches)}

    def draw(self) -> Batch:
        """The next batch."""
        self._next += 1
        return self.at(self.batches[self._next - 1])

    def state(self) -> IntArray:
        """Number of batches drawn."""
        return np.array([self._next])

    def restore(self, state: IntArray) -> None:
        """Continue where `state` was taken."""
        self._next = int(state[0])


def epochs_of_indices(n: int, batch_size: int, seed: int) -> Iterator[IntArray]:
    """Index lists without end: epoch by epoch a permutation cut into batches that differ by one in size at most.

    Parameters
    ----------
    n : int             data
    batch_size : int    at most
    seed : int          order of the data
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    while True:
        yield from np.array_split(rng.permutation(n), -(-n // batch_size))


def random_indices(n: int, batch_size: int, rng: np.random.Generator) -> IntArray:
    """A batch without repetition, sorted. Time O(batch) for large n.

    Parameters
    ----------
    n : int             data
    batch_size : int    wanted
    rng                 source
    """
    return np.unique(rng.choice(n, min(batch_size, n), replace=False))


def index_lists(name: str, batches: Sequence[Any], n: int) -> list[IntArray]:
    """Checked index lists: integers in 0 .. n - 1, none empty; repetitions are the caller's.

    Parameters
    ----------
    name : str                what an error calls them
    batches : sequence        of index arrays (b,)
    n : int                   rows of the data

    Raises
    ------
    ValueError    an empty batch, an index out of range or no integer, by number of the batch
    """
    checked = []
    for number, batch in enumerate(batches):
        array = np.asarray(batch)
        if array.ndim != 1:
            raise ValueError(f"{name}[{number}]: found {array.ndim} axes, expected 1")
        if array.size == 0:
            raise ValueError(f"{name}[{number}]: found an empty batch, expected at least one index")
        if array.dtype.kind not in "iu":
            raise ValueError(f"{name}[{number}]: found dtype {array.dtype}, expected integers")
        if array.min() < 0 or array.max() >= n:
            worst = array.min() if array.min() < 0 else array.max()
            raise ValueError(f"{name}[{number}]: found index {worst}, expected 0 to {n - 1}")
        checked.append(array.astype(np.int64))
    if not checked:
        raise ValueError(f"{name}: found no batch, expected at least one")
    return checked


def _block_inputs(X: Any, d: int, first: int) -> FloatArray:
    array = inputs.real_array("X", X, 2)
    if array.shape[1] != d:
        raise ValueError(f"X: found {array.shape[1]} columns, expected {d}")
    return inputs.finite_rows("X", array, first)


def _count_blocks(blocks: Any, n: int | None) -> tuple[int, int]:
    """Rows and columns of a collection of blocks; one pass over it unless the rows are known."""
    read_again = isinstance(blocks, Iterable) and not isinstance(blocks, Iterator)
    if not read_again:
        raise ValueError(
            f"X: found {type(blocks).__name__}, expected arrays X and y, or blocks (X_block, y_block) that can be "
            "read again in every epoch (a list, or an object whose __iter__ starts anew)"
        )
    rows, d = 0, None
    for entry in blocks:
        paired = isinstance(entry, (tuple, list)) and len(entry) == 2
        if not paired:
            raise ValueError(f"X: found a block of type {type(entry).__name__}, expected pairs (X_block, y_block)")
        array = inputs.real_array("X", entry[0], 2)
        d = array.shape[1] if d is None else d
        rows += array.shape[0]
        if n is not None:
            rows = inputs.count("n", n)
            break
    if rows == 0 or not d:
        raise ValueError("X: found no data in the blocks, expected at least one row and one column")
    return rows, d
