"""Running chains: warm-up, thinning, progress, interruption, checkpoint and resume with identical results.

A run is a start state, a step and a record. All chains advance together (leading axis r); randomness is one generator
per purpose, spawned from one SeedSequence, so that a move switched on or off leaves the other purposes' seeds alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gibbs.errors import _count

State = dict[str, NDArray[Any]]
SCHEMA = "gibbs-chain-1"


class Progress(NamedTuple):
    """What a callback sees after every sweep."""

    sweep: int  # sweeps done, warm-up included
    n_sweeps: int  # sweeps in all
    n_kept: int  # draws kept so far, per chain
    seconds: float  # running time so far, earlier parts of a resumed run included


class Record(NamedTuple):
    """What one kept draw leaves behind."""

    kept: State  # each (r, ...): stored for every draw
    totals: State  # added up over the draws


class Run(NamedTuple):
    """A finished run."""

    kept: State  # each (r, s, ...)
    totals: State
    n_sweeps: int
    seconds: float


def spawn_generators(seed: int, purposes: tuple[str, ...]) -> dict[str, np.random.Generator]:
    """One generator per purpose, spawned from SeedSequence(seed) in the order of `purposes`.

    seed: integer >= 0; ValueError otherwise.
    """
    _count("seed", seed, 0)
    children = np.random.SeedSequence(seed).spawn(len(purposes))
    return {name: np.random.default_rng(child) for name, child in zip(purposes, children, strict=True)}


def fingerprint(settings: Mapping[str, object], arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of everything a run depends on: a checkpoint is resumed only under the same value.

    settings: names and values that JSON can hold; arrays: names and arrays. Returns 64 hexadecimal digits.
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


class _Snapshot(NamedTuple):
    """Everything at the end of a sweep; a sweep that is interrupted is done again from here."""

    sweep: int
    state: State
    generators: str
    n_kept: int
    totals: State
    seconds: float


def _generators_to_json(rngs: Mapping[str, np.random.Generator]) -> str:
    return json.dumps({name: rng.bit_generator.state for name, rng in rngs.items()})


def _save(path: Path, mark: str, snapshot: _Snapshot, stores: State) -> None:
    """Write beside the target and rename: the target is the old file or the new one, never half of either."""
    arrays: State = {
        "schema": np.array(SCHEMA),
        "fingerprint": np.array(mark),
        "sweep": np.array(snapshot.sweep),
        "n_kept": np.array(snapshot.n_kept),
        "seconds": np.array(snapshot.seconds),
        "generators": np.array(snapshot.generators),
    }
    arrays |= {f"state.{name}": value for name, value in snapshot.state.items()}
    arrays |= {f"totals.{name}": value for name, value in snapshot.totals.items()}
    arrays |= {f"kept.{name}": value[: snapshot.n_kept] for name, value in stores.items()}
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _load(path: Path, mark: str) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"checkpoint: found {path.name} unreadable ({error}), expected a file of a run") from error
    schema = str(arrays.get("schema", "none"))
    if schema != SCHEMA:
        raise ValueError(f"checkpoint: found schema {schema!r} in {path.name}, expected {SCHEMA!r}")
    if str(arrays.get("fingerprint", "")) != mark:
        raise ValueError(
            f"checkpoint: found {path.name} of another run, expected one of the same inputs, settings and seed; "
            "remove the file to start afresh"
        )
    return arrays


def _resume(path: Path, mark: str, stores: State, totals: State, rngs: Mapping[str, np.random.Generator]) -> _Snapshot:
    arrays = _load(path, mark)
    n_kept = int(arrays["n_kept"])
    for name, store in stores.items():
        store[:n_kept] = arrays[f"kept.{name}"]
    for name, rng_state in json.loads(str(arrays["generators"])).items():
        rngs[name].bit_generator.state = rng_state
    state = {name[6:]: value for name, value in arrays.items() if name.startswith("state.")}
    return _Snapshot(
        int(arrays["sweep"]),
        state,
        str(arrays["generators"]),
        n_kept,
        {name: arrays[f"totals.{name}"] for name in totals},
        float(arrays["seconds"]),
    )


def run(
    start: State,
    step: Callable[[State, Mapping[str, np.random.Generator]], State],
    record: Callable[[State], Record],
    rngs: Mapping[str, np.random.Generator],
    *,
    n_draws: int,
    n_warmup: int,
    thin: int = 1,
    callback: Callable[[Progress], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1000,
    mark: str = "",
    max_kept_bytes: int = 2_000_000_000,
) -> Run:
    """Advance all chains by n_warmup + n_draws · thin sweeps and keep every thin-th after the warm-up.

    start: arrays with leading axis r; step(state, rngs) returns a new state and leaves the old one alone;
    record(state) draws no random numbers. rngs: generators by purpose. callback: called with a Progress after every
    sweep. checkpoint: an .npz file, written every checkpoint_every sweeps, at the end, and when the run is
    interrupted (KeyboardInterrupt and any exception of the callback pass through after the writing); if it exists
    already the run continues from it, with results identical bit by bit. mark: fingerprint of the run.
    max_kept_bytes: bound on the memory of the kept draws.

    Raises ValueError for counts out of range, for more memory than allowed (raise thin), and for a checkpoint that is
    unreadable, foreign or of another run.
    """
    _count("n_draws", n_draws, 1)
    _count("n_warmup", n_warmup, 0)
    _count("thin", thin, 1)
    _count("checkpoint_every", checkpoint_every, 1)
    first = record(start)
    needed = n_draws * sum(value.nbytes for value in first.kept.values())
    if needed > max_kept_bytes:
        raise ValueError(
            f"max_kept_bytes: found {max_kept_bytes}, expected >= {needed} for {n_draws} draws per chain; "
            "lower n_draws and raise thin"
        )
    stores = {name: np.empty((n_draws, *value.shape)) for name, value in first.kept.items()}
    totals = {name: np.zeros_like(value) for name, value in first.totals.items()}
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and not path.parent.is_dir():
        raise ValueError(f"checkpoint: found no folder {path.parent}, expected one that exists")
    last = _Snapshot(0, start, _generators_to_json(rngs), 0, totals, 0.0)
    if path is not None and path.exists():
        last = _resume(path, mark, stores, totals, rngs)
    n_sweeps = n_warmup + n_draws * thin
    saved = last.sweep
    began = time.perf_counter() - last.seconds
    try:
        while last.sweep < n_sweeps:
            state = step(last.state, rngs)
            sweep, n_kept, totals = last.sweep + 1, last.n_kept, last.totals
            if sweep > n_warmup and (sweep - n_warmup) % thin == 0:
                entry = record(state)
                for name, value in entry.kept.items():
                    stores[name][n_kept] = value
                totals = {name: total + entry.totals[name] for name, total in totals.items()}
                n_kept += 1
            now = time.perf_counter() - began
            # one assignment: an interruption sees the end of this sweep or of the one before
            last = _Snapshot(sweep, state, _generators_to_json(rngs) if path else "", n_kept, totals, now)
            if path is not None and sweep - saved >= checkpoint_every and sweep < n_sweeps:
                _save(path, mark, last, stores)
                saved = sweep
            if callback is not None:
                callback(Progress(sweep, n_sweeps, n_kept, now))
    finally:
        if path is not None and last.sweep > saved:
            _save(path, mark, last, stores)
    kept = {name: np.moveaxis(store, 0, 1) for name, store in stores.items()}
    return Run(kept, last.totals, n_sweeps, last.seconds)
