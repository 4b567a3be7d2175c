"""Sums of sweeps kept in files, so that a run whose scheduler or process has gone goes on with the same digits.

All that the caller makes of a run follows from the sums, in their order. So a run that is called again takes those
that it finds as they are, and asks leaves only for what comes after. Sites follow from the q of every sweep
(`fast.blockwise.engines`): they are made again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from fast.blockwise.engines import ClusterLostError, Spread, Visit
from fast.blockwise.tree import Most, SumsT
from fast.core.checkpoint import Digest, fingerprint, load, save
from fast.core.places import here
from fast.core.types import IntArray
from fast.core.values import Prior

_APART = ("callback", "checkpoint", "checkpoint_every")  # options that say nothing of what is computed


class Kept:
    """Leaves whose sums are in the files of a folder, one file a sum, each whole or absent.

    leaves      whoever visits them
    folder      made if it is not there
    settings    what a run depends on besides the data, by name
    arrays      likewise
    """

    def __init__(
        self, leaves: Spread, folder: str | os.PathLike[str], settings: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> None:
        self._leaves, self._folder = leaves, Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                error.errno, f"checkpoint: found {error.strerror} at {folder}, expected a folder or a place for one"
            ) from error
        (data,) = leaves.total(_DIGEST, None)
        self._settings = {**here()._asdict(), **settings}
        self._arrays = {**arrays, "data": data.astype("<u8").tobytes().hex()}
        self._count = 0

    def total(self, visit: Visit[SumsT], state: Any) -> SumsT:
        """The sum of a visit over all leaves, from its file if there is one.

        Parameters
        ----------
        visit, state    see `Spread`

        Raises
        ------
        ValueError          the file is damaged, or of another run
        OSError             no room for a file; those before are whole
        ClusterLostError    the scheduler is lost; the message says where sums are
        """
        path = self._folder / f"{self._count:06d}.npz"
        mark = fingerprint({**self._settings, "sum": self._count, "visit": visit.leaf.__qualname__}, self._arrays)
        stored = load(path, mark)
        if stored is not None:
            self._leaves.missed(visit, state)
            sums: Any = tuple(
                Most(float(stored[f"most_{k}"])) if f"most_{k}" in stored else stored[f"sum_{k}"]
                for k in range(len(stored))
            )
        else:
            try:
                sums = self._leaves.total(visit, state)
            except ClusterLostError as error:
                raise ClusterLostError(
                    f"{error}; {self._count} sums are in {self._folder}: the same call goes on from there"
                ) from error
            save(path, mark, dict(_named(k, value) for k, value in enumerate(sums)))
        self._count += 1
        return sums

    def missed(self, visit: Visit[SumsT], state: Any) -> None:
        """A visit whose sums are known already.

        Parameters
        ----------
        visit, state    see `Spread`
        """
        self._leaves.missed(visit, state)

    def check(self) -> None:
        """Wait until all leaves were looked at, and raise what was found."""
        self._leaves.check()

    def taken(self, wanted: IntArray, *, labels: bool = False) -> list[tuple[IntArray, Any]]:
        """Rows by their numbers.

        Parameters
        ----------
        wanted, labels    see `Spread`
        """
        return self._leaves.taken(wanted, labels=labels)


def _named(k: int, value: Any) -> tuple[str, Any]:
    return (f"most_{k}", value.value) if isinstance(value, Most) else (f"sum_{k}", value)


def _nothing(state: object) -> None:
    return None


def _leaf_digest(leaf_data: Any, ready: object) -> tuple[Any]:
    """SHA-256 of a leaf and its place as four integers: their sums, modulo 2^64, tell data from other data."""
    leaf = leaf_data.leaf
    sha = hashlib.sha256(f"{leaf.first} {leaf.size}".encode())
    for part in (leaf.inputs(), leaf.labels()):
        rows = Digest()
        rows.add(part)
        sha.update(str(rows).encode())
    return (np.frombuffer(sha.digest(), dtype="<u8").astype(np.uint64),)


_DIGEST = Visit(_nothing, _leaf_digest)


def kept(leaves: Spread, checkpoint: str | os.PathLike[str] | None, method: str, prior: Prior, options: Any) -> Spread:
    """Leaves whose sums are kept where that is asked for.

    Parameters
    ----------
    leaves               whoever visits them
    checkpoint : path    a folder; None: the leaves as they are
    method : str         its id, and what else it was asked beside its options
    prior : Prior        as it was given
    options              those of the method, a dataclass

    Raises
    ------
    OSError    the folder cannot be made
    """
    if checkpoint is None:
        return leaves
    settings = {field.name: getattr(options, field.name) for field in fields(options) if field.name not in _APART}
    arrays = {name: value for name, value in vars(prior).items() if isinstance(value, (np.ndarray, list, tuple))}
    settings |= {name: value for name, value in vars(prior).items() if name not in arrays}
    return Kept(leaves, checkpoint, {**settings, "method": method}, arrays)
