"""Random numbers of chains that advance side by side: one stream for each pair of purpose and chain.

Chain k sees the same numbers whatever the number of chains, so that chains can be added to a run. A `ChainStreams`
stands where a sampler expects a numpy.random.Generator: draws of shape (r, ...) take row k from stream k. Where only
some entries of such an array draw again (rejection), `subset` says which chains they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gibbs.core.checks import shown
from gibbs.core.errors import Array, _count

Generators = Mapping[str, np.random.Generator]
_NEVER_DRAWN_FROM = np.random.PCG64(0)  # one for all: to seed one takes longer than most draws
_MOST_CHAINS = 1_000_000  # each is a generator of its own
_SUPPORTED = ("random", "standard_normal", "standard_exponential", "uniform")


def spawn_generators(seed: int, purposes: tuple[str, ...]) -> dict[str, np.random.Generator]:
    """One generator per purpose, spawned from SeedSequence(seed) in the order of `purposes`.

    seed: integer >= 0; ValueError otherwise.
    """
    _count("seed", seed, 0)
    _names("purposes", purposes)
    children = np.random.SeedSequence(seed).spawn(len(purposes))
    return {name: np.random.default_rng(child) for name, child in zip(purposes, children, strict=True)}


def spawn_streams(seed: int, purposes: tuple[str, ...], n_chains: int) -> dict[str, np.random.Generator]:
    """A `ChainStreams` per purpose: SeedSequence(seed) spawns the purposes in their order, each spawns its chains.

    seed: integer >= 0; purposes: names; 1 <= n_chains <= 1e6. Stream k of a purpose depends on neither n_chains nor the
    purposes named after it. Raises ValueError for counts out of range.
    """
    _count("seed", seed, 0)
    if _count("n_chains", n_chains, 1) > _MOST_CHAINS:
        raise ValueError(f"n_chains: found {shown(n_chains)}, expected at most {_MOST_CHAINS}")
    _names("purposes", purposes)
    children = np.random.SeedSequence(seed).spawn(len(purposes))
    return {
        name: ChainStreams([np.random.default_rng(grandchild) for grandchild in child.spawn(n_chains)])
        for name, child in zip(purposes, children, strict=True)
    }


def _names(name: str, value: Any) -> None:
    """Refuse anything but a tuple or list of different names: an entry named twice would lose a stream."""
    listed = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    if not listed or len(set(value)) < len(value):
        raise ValueError(f"{name}: found {shown(value)}, expected different names")


def _cells(size: Any) -> tuple[int, ...]:
    return (int(size),) if isinstance(size, int | np.integer) else tuple(int(k) for k in size)


class _Numbers(np.random.Generator):
    """What stands in for a Generator; everything that it cannot give chain by chain is refused by name."""

    def __init__(self) -> None:
        super().__init__(_NEVER_DRAWN_FROM)

    def _fill(self, kind: str, size: Any) -> Array:
        raise NotImplementedError

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Uniforms in [0, 1)."""
        return self._fill("random", size)

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Standard normals."""
        return self._fill("standard_normal", size)

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: Any = "zig", out: Any = None
    ) -> Any:
        """Standard exponentials."""
        return self._fill("standard_exponential", size)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Uniforms in [low, high), of the shape of the limits if none is given."""
        shape = np.broadcast_shapes(np.shape(low), np.shape(high)) if size is None else size
        return low + (np.asarray(high) - low) * self._fill("random", shape)


def _refuse(name: str) -> Any:
    def refused(self: Any, *arguments: Any, **options: Any) -> Any:
        raise TypeError(f"rng: found a call of {name}, expected one of {_SUPPORTED}: chains have streams of their own")

    return refused


for _name in dir(np.random.Generator):
    if not _name.startswith("_") and _name not in _SUPPORTED:
        setattr(_Numbers, _name, _refuse(_name))


class ChainStreams(_Numbers):
    """One numpy Generator per chain behind the methods of one.

    Shapes start with the number of chains r, or are one number that r divides (entries in the order of the chains);
    anything else is a ValueError.
    """

    def __init__(self, streams: Sequence[np.random.Generator]) -> None:
        super().__init__()
        plain = isinstance(streams, list | tuple) and all(isinstance(one, np.random.Generator) for one in streams)
        if not plain or not streams:
            raise ValueError(f"streams: found {shown(streams)}, expected a generator for each of at least one chain")
        self.streams = tuple(streams)

    def _fill(self, kind: str, size: Any) -> Array:
        shape, r = _cells(() if size is None else size), len(self.streams)
        flat = len(shape) == 1 and shape[0] % r == 0
        if not flat and (not shape or shape[0] != r):
            raise ValueError(f"size: found {shape}, expected the leading axis {r}, one row per chain")
        out = np.empty(shape)
        draw = getattr(np.random.Generator, kind)
        for stream, row in zip(self.streams, out.reshape(r, -1), strict=True):
            draw(stream, out=row)
        return out

    def select(self, entries: NDArray[np.intp], n_entries: int) -> np.random.Generator:
        """Numbers for some entries, ascending, of n_entries in the order of the chains."""
        return _Rows(self, entries, n_entries)


class _Rows(_Numbers):
    """Numbers for many of the entries of all chains: whole rows are drawn, which is faster than to count per chain."""

    def __init__(self, rng: ChainStreams, entries: NDArray[np.intp], n_entries: int) -> None:
        super().__init__()
        self.rng, self.entries, self.n_entries = rng, entries, n_entries
        self.chains = entries // (n_entries // len(rng.streams))
        self.drawing = set(self.chains.tolist())  # a chain without entries draws nothing, whatever the others do

    def _fill(self, kind: str, size: Any) -> Array:
        shape = _cells(() if size is None else size)
        if shape != self.entries.shape:
            raise ValueError(f"size: found {shape}, expected {self.entries.shape}, one number per entry")
        out = np.empty((len(self.rng.streams), self.n_entries // len(self.rng.streams)))
        draw = getattr(np.random.Generator, kind)
        for k in self.drawing:
            draw(self.rng.streams[k], out=out[k])
        return out.ravel()[self.entries]

    def select(self, entries: NDArray[np.intp], n_entries: int) -> np.random.Generator:
        """Numbers for a few of these entries, ascending."""
        return _Ragged(self.rng.streams, self.chains[entries])


class _Ragged(_Numbers):
    """As many numbers from each chain's stream as it has entries."""

    def __init__(self, streams: tuple[np.random.Generator, ...], chains: NDArray[np.intp]) -> None:
        super().__init__()
        self.streams, self.chains = streams, chains
        cuts = np.flatnonzero(chains[1:] != chains[:-1]) + 1
        firsts, lasts = [0, *cuts.tolist()], [*cuts.tolist(), chains.size]
        owners = chains[firsts].tolist() if chains.size else []
        self.pieces = [(streams[k], first, last) for k, first, last in zip(owners, firsts, lasts, strict=False)]

    def _fill(self, kind: str, size: Any) -> Array:
        shape = _cells(() if size is None else size)
        if shape != (self.chains.size,):
            raise ValueError(f"size: found {shape}, expected ({self.chains.size},), one number per entry")
        out = np.empty(shape)
        draw = getattr(np.random.Generator, kind)
        for stream, first, last in self.pieces:
            draw(stream, out=out[first:last])
        return out

    def select(self, entries: NDArray[np.intp], n_entries: int) -> np.random.Generator:
        """Numbers for some of these entries, ascending."""
        return _Ragged(self.streams, self.chains[entries])


class Replay(_Numbers):
    """Numbers drawn earlier, given out in order: for code that draws piece by piece.

    numbers: one array; every call, of whatever kind, takes the next ones.
    """

    def __init__(self, numbers: Array) -> None:
        super().__init__()
        if not isinstance(numbers, np.ndarray) or numbers.dtype.kind != "f":
            raise ValueError(f"numbers: found {shown(numbers)}, expected an array of floats")
        self.numbers, self.used = numbers.ravel(), 0

    def _fill(self, kind: str, size: Any) -> Array:
        shape = _cells(() if size is None else size)
        first, self.used = self.used, self.used + int(np.prod(shape))
        return self.numbers[first : self.used].reshape(shape)


def subset(rng: np.random.Generator, entries: NDArray[np.intp], n_entries: int) -> np.random.Generator:
    """The generator for some entries of an array drawn side by side.

    rng: a plain Generator, returned as it is, or streams of chains; entries: ascending flat indices into an array of
    n_entries, stored chain after chain. The result draws one number per entry, from the stream of its chain.
    """
    return rng.select(entries, n_entries) if isinstance(rng, ChainStreams | _Rows | _Ragged) else rng


def chunk(rng: np.random.Generator, first: int, last: int, n_entries: int) -> np.random.Generator:
    """The generator for entries first to last - 1, of whole chains, of n_entries stored chain after chain.

    rng: a plain Generator, returned as it is, or streams of chains.
    """
    if not isinstance(rng, ChainStreams):
        return rng
    one = n_entries // len(rng.streams)
    return ChainStreams(rng.streams[first // one : last // one])


def rows_per_chain(rng: np.random.Generator, n_entries: int) -> int:
    """Entries of one chain: of n_entries stored chain after chain; 1 where rng does not tell chains apart."""
    return max(1, n_entries // len(rng.streams)) if isinstance(rng, ChainStreams) else 1


def snapshot(rngs: Generators) -> dict[str, Any]:
    """States of rngs, generators by purpose: what `restore` needs; holds nothing but numbers and text."""
    return {
        name: [stream.bit_generator.state for stream in rng.streams]
        if isinstance(rng, ChainStreams)
        else rng.bit_generator.state
        for name, rng in rngs.items()
    }


def restore(rngs: Generators, states: Mapping[str, Any]) -> None:
    """Put rngs, generators by purpose, back to states that `snapshot` took."""
    for name, state in states.items():
        rng = rngs[name]
        if isinstance(rng, ChainStreams):
            for stream, one in zip(rng.streams, state, strict=True):
                stream.bit_generator.state = one
        else:
            rng.bit_generator.state = state
