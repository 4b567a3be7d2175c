"""What stochastic runs stand on: the order of the data, the rules that end a run, and the files that continue one.

Each against a definition of the judge's own: epochs by counting rows, stopping rules by means over windows, digests by
the bytes that they are said to cover.
"""

from __future__ import annotations

import copy
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.problem import Problem

Array = NDArray[Any]
_EPOCHS = 3


# -- order of the data -------------------------------------------------------------------------------------------


def _source(n: int, batch: int, block: int, pool: int, seed: int) -> Any:
    from fast.solve.minibatch import Shuffled

    rows = np.arange(n, dtype=np.float64)
    return Shuffled(
        np.column_stack([rows, -rows]), rows, batch, seed, encode=lambda y, n: np.asarray(y, dtype=np.float64),
        block_size=block, pool_size=pool,
    )  # fmt: skip


def epochs(n: int, batch: int, block: int, pool: int) -> list[str]:
    """What is wrong with three epochs of a shuffled source; nothing for a healthy one."""
    wrong: list[str] = []
    source = _source(n, batch, block, pool, 7)
    count = -(-n // batch)
    orders = []
    for number in range(_EPOCHS):
        if source.epoch != number:
            wrong.append(f"epoch {source.epoch} where {number} begins")
        drawn, states = [], []
        for _ in range(count):
            states.append(source.state().copy())
            drawn.append(source.draw())
        sizes = [part.y.size for part in drawn]
        order = np.concatenate([part.y for part in drawn])
        orders.append(order)
        if sorted(order.tolist()) != list(range(n)):
            wrong.append("a row is not there once an epoch")
        if max(sizes) - min(sizes) > 1 or max(sizes) > batch:
            wrong.append(f"batches of {sizes}")
        if any(not np.array_equal(part.X, np.column_stack([part.y, -part.y])) for part in drawn):
            wrong.append("inputs without their labels")
        # from anywhere in the epoch, in another object
        for k in range(0, count, max(1, count // 4)):
            other = _source(n, batch, block, pool, 7)
            other.restore(states[k])
            if any(not np.array_equal(other.draw().y, part.y) for part in drawn[k:]):
                wrong.append(f"another order when continued at batch {k}")
    if n > 6 and any(np.array_equal(a, b) for a, b in pairwise(orders)):
        wrong.append("two epochs in one order")
    if n > 6 and np.array_equal(np.sort(orders[0][:block]), np.sort(orders[0])[:block]) and pool >= n > 2 * block:
        wrong.append("the first block stays first")
    if n > 6 and np.array_equal(_source(n, batch, block, pool, 8).draw().y, orders[0][:batch]):
        wrong.append("another seed in the same order")
    return wrong


def shuffling() -> Iterable[Outcome]:
    """Epochs of several shapes, the bijection behind them, and index lists drawn for epgpc and the classes."""
    wrong = []
    for shape in ((8, 3, 3, 4), (23, 5, 4, 9), (40, 7, 4, 100), (5, 9, 2, 3), (1, 1, 1, 1), (64, 64, 8, 16)):
        wrong += [f"{shape}: {text}" for text in epochs(*shape)]
    yield Compared(
        float(len(wrong)), 0.0, f"a promise of whole numbers; {wrong[:3] or 'all kept'}", "fast", "the definition",
        "promises broken in three epochs of six sources",
    )  # fmt: skip
    yield Compared(
        float(sum(_wrong_bijection(count) for count in range(1, 40))), 0.0,
        "a keyed bijection of 0 .. count - 1, another one for other keys", "fast", "the definition",
        "counts up to 39 whose map is none",
    )  # fmt: skip
    yield _even()
    lengths = _wrong_lengths()
    yield Compared(
        float(len(lengths)), 0.0, f"an epoch has the rows that were announced; {lengths or 'all told'}",
        "fast", "the definition", "sources with more or fewer rows that were not refused",
    )  # fmt: skip
    yield Compared(
        float(_wrong_lists()), 0.0, "drawn without repetition, epoch by epoch", "fast", "the definition",
        "index lists that repeat a row, or epochs that miss one",
    )  # fmt: skip
    steps = _epochs_by_default()
    yield Compared(
        float(abs(steps - 30)), 0.0, "ten epochs of eight data in batches of three are thirty steps", "fast",
        "the definition", "steps too many or too few",
    )  # fmt: skip


def _wrong_bijection(count: int) -> bool:
    from fast.solve.minibatch import permuted

    rng = np.random.default_rng(count)
    maps = [[permuted(k, count, keys) for k in range(count)] for keys in rng.integers(0, 2**32, size=(3, 6))]
    return any(sorted(value) != list(range(count)) for value in maps) or (count > 8 and maps[0] == maps[1])


def _even() -> Compared:
    """Where the first two of nine blocks go, over 900 keys: chi-square of 72 cells, each 12.5 expected."""
    from scipy.stats import chi2

    from fast.solve.minibatch import permuted

    count, draws = 9, 900
    cells = np.zeros((count, count))
    for keys in np.random.default_rng(20190127).integers(0, 2**32, size=(draws, 6)):
        cells[permuted(0, count, keys), permuted(1, count, keys)] += 1.0
    expected = draws / (count * (count - 1))
    off = ~np.eye(count, dtype=bool)
    return Compared(
        float(((cells[off] - expected) ** 2).sum() / expected), float(chi2.isf(1e-6, count * (count - 1) - 1)),
        "a pair of blocks goes anywhere alike: chi-square of 71 degrees at the level 1e-6", "fast", "even",
        "chi-square",
    )  # fmt: skip


def _wrong_lengths() -> list[str]:
    from fast.solve.minibatch import Shuffled

    rng = np.random.default_rng(0)
    blocks = [(rng.normal(size=(3, 2)), np.array([0, 1, 0])) for _ in range(3)]
    wrong = []
    for n in (8, 10, 7, 12):
        source = Shuffled(blocks, None, 4, 0, n=n, pool_size=2)
        try:
            for _ in range(source.batches_per_epoch):
                source.draw()
        except ValueError as error:
            if not str(error).startswith("n: found"):
                wrong.append(f"{n}: {error}")
        else:
            wrong.append(f"{n} of 9")
    source = Shuffled(blocks, None, 4, 0)
    if source.n != 9 or sum(source.draw().y.size for _ in range(source.batches_per_epoch)) != 9 or source.epoch != 1:
        wrong.append("9 of 9 refused")
    return wrong


def _epochs_by_default() -> int:
    """Steps of epgpc where nobody says how many."""
    from fast.core.values import Data, Prior
    from fast.methods import epgpc_svi

    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(8, 2)), np.arange(8) % 2
    prior = Prior(1.0, [1.0, 1.0], 0.1, 1e-3, X[:3])
    return int(epgpc_svi.fit(Data(X, y), prior, epgpc_svi.EPGPCSteps(batch_size=3)).iterations)


def _wrong_lists() -> int:
    from fast.solve.minibatch import epochs_of_indices, random_indices

    wrong = 0
    for n, batch in ((8, 3), (9, 3), (5, 8)):
        rng = np.random.default_rng(2)
        lists = [random_indices(n, batch, rng) for _ in range(60)]
        wrong += sum(len(set(part.tolist())) != min(n, batch) for part in lists)
        wrong += set(np.concatenate(lists).tolist()) != set(range(n))
        if n > batch:
            wrong += len({tuple(part) for part in lists}) < 10
        source = epochs_of_indices(n, batch, 4)
        visited = []
        for _ in range(_EPOCHS):
            parts = [next(source) for _ in range(-(-n // batch))]
            visited.append(np.concatenate(parts))
            wrong += sorted(visited[-1].tolist()) != list(range(n))
            wrong += max(part.size for part in parts) - min(part.size for part in parts) > 1
        wrong += any(np.array_equal(a, b) for a, b in pairwise(visited))
    return int(wrong)


# -- rules that end a run ----------------------------------------------------------------------------------------


def stopping() -> Iterable[Outcome]:
    """Criteria of both witnesses on the same sequences, and the watch over a falling bound against its definition."""
    from fast.solve import stopping as ours
    from reference.wenzel2019 import experiments as theirs

    rng = np.random.default_rng(11)
    apart = 0
    for _ in range(200):
        window, values = int(rng.integers(1, 6)), rng.exponential(size=int(rng.integers(0, 14))).tolist()
        level = float(rng.choice([0.2, 0.6, 1.0, 1.5]))
        apart += ours.converged_parameters(values, window, level) != bool(
            theirs.converged_parameters(values, window, level).converged
        )
        apart += ours.converged_holdout(values, window, level) != bool(
            theirs.converged_holdout(values, window, level).converged
        )
        last, earlier = values[-window:], values[-2 * window : -window]
        apart += ours.converged_parameters(values, window, level) != (
            len(values) >= window and sum(last) / window < level
        )
        apart += ours.converged_holdout(values, window, level) != (
            len(values) >= 2 * window and abs(sum(last) - sum(earlier)) / window < level
        )
    yield Compared(float(apart), 0.0, "rules of a few means, on 200 sequences", "fast", "reference",
                   "sequences on which the rules differ")  # fmt: skip
    worst = 0.0
    for scale in (0.1, 5.0):
        moments = [(scale * rng.normal(size=4), scale * rng.normal(size=(4, 4))) for _ in range(2)]
        (a, A), (b, B) = moments
        wanted = max(np.abs(new - old).max() / max(1.0, np.abs(new).max()) for old, new in ((a, b), (A, B)))
        worst = max(worst, abs(ours.parameter_change(_moments(a, A), _moments(b, B)) / wanted - 1.0))
        worst = max(worst, abs(theirs.parameter_change(_gaussian(b, B), _gaussian(a, A)) / wanted - 1.0))
    yield Compared(worst, 1e-14, "one division of two maxima", "fast", "reference", "relative difference of the change")
    yield Compared(
        float(_wrong_watch(rng)), 0.0, "means of 20, six falls running, half of n log 2 under the best: counted again "
        "from the whole sequence", "fast", "the definition", "of 40 sequences, those ended elsewhere",
    )  # fmt: skip


def _moments(mean: Array, cov: Array) -> Any:
    from fast.solve.natural import Moments

    return Moments(mean, cov)


def _gaussian(mean: Array, cov: Array) -> Any:
    from reference.wenzel2019.experiments import Gaussian

    return Gaussian(mean, cov)


def falls(estimates: Array, n: int) -> int:
    """The step in which a bound counts as falling without end, by its definition; 0 for never."""
    means = estimates[: estimates.size // 20 * 20].reshape(-1, 20).mean(axis=1)
    for k in range(means.size):
        falling = k >= 6 and all(means[j] < means[j - 1] for j in range(k - 5, k + 1))
        # the first mean falls below infinity
        falling = falling or (k == 5 and all(means[j] < means[j - 1] for j in range(1, 6)))
        if falling and means[k] < means[: k + 1].max() - 0.5 * n * np.log(2.0):
            return 20 * (k + 1)
    return 0


def _wrong_watch(rng: np.random.Generator) -> int:
    from fast.solve.stopping import Falling

    wrong = 0
    for number in range(40):
        n = int(rng.integers(2, 12))
        steps = rng.normal(size=400) * 0.3 - rng.choice([0.0, 0.05, 0.2, 0.5])
        values = np.cumsum(steps) - 5.0
        if number % 4 == 0:
            values = -0.0087 * n * np.maximum(np.arange(400) - 60, 0) - 3.0  # without noise: limits met to a step
        watch, ended = Falling(n), 0
        for step, value in enumerate(values, 1):
            if step % 33 == 0:  # continued in another object
                other = Falling(n)
                other.restore(watch.state())
                watch = other
            if watch.add(float(value)):
                ended = step
                break
        wrong += ended != falls(values, n)
    return wrong


# -- files -------------------------------------------------------------------------------------------------------


def own_digest(array: Array) -> str:
    """SHA-256 of all bytes, then how many rows there are, the type of their numbers and their shape."""
    plain = np.ascontiguousarray(array, dtype="<i8" if array.dtype.kind in "biu" else "<f8")
    text = f"{plain.shape[0]} {plain.dtype.str} {plain.shape[1:]}"
    return hashlib.sha256(plain.tobytes() + text.encode()).hexdigest()


def files() -> Iterable[Outcome]:
    """Digests, a round trip, and every file that must be refused."""
    from fast.core import checkpoint

    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=shape) for shape in ((7,), (5, 3), (2, 3, 4))] + [np.arange(6), np.arange(4) > 1]
    arrays += [rng.normal(size=(5, 3)).astype("f4"), np.arange(3, dtype="u2")]
    large = np.arange(2**20 + 5, dtype=np.float64)  # three of the pieces in which a digest reads
    wrong = [array.shape for array in (*arrays, large) if checkpoint.digest(array) != own_digest(array)]
    lists = [np.array([1, 2]), np.array([3])]
    joined = hashlib.sha256("\n".join(own_digest(part) for part in lists).encode()).hexdigest()
    wrong += [(0,)] * (checkpoint.lists_digest(lists) != joined)
    wrong += [(0,)] * (checkpoint.digest(2.5) != own_digest(np.array([2.5])))
    cut = checkpoint.Digest()
    for part in (arrays[1][:2], arrays[1][2:]):
        cut.add(part)
    wrong += [(0,)] * (str(cut) != own_digest(arrays[1]))
    yield Compared(float(len(wrong)), 0.0, "the bytes that are promised, in the order that is", "fast",
                   "the definition", "digests that differ")  # fmt: skip
    refused = list(_files_refused(checkpoint))
    yield Compared(
        float(len(refused)), 0.0, f"a file is whole and of this run, or there is an error that says why; {refused}",
        "fast", "the definition", "files that were accepted, or refused in other words",
    )  # fmt: skip


def _files_refused(checkpoint: Any) -> Iterator[str]:
    """What went wrong with files, one by one."""
    arrays: dict[str, Any] = {
        "a": np.arange(6.0).reshape(2, 3),
        "trace": np.zeros(2),
        "n": np.array(3),
        "text": np.array("abc"),
    }
    mark = checkpoint.fingerprint({"rate": 0.5, "learn": ("variance",)}, {"X": arrays["a"], "y": np.arange(3)})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.npz"
        if checkpoint.load(path, mark) is not None:
            yield "a file that is not there was read"
        checkpoint.save(path, mark, arrays)
        checkpoint.save(path, mark, arrays)
        result = checkpoint.load(path, mark, arrays)
        if sorted(result) != sorted(arrays) or any(not np.array_equal(result[name], arrays[name]) for name in arrays):
            yield "a round trip changes arrays"
        if [entry.name for entry in Path(folder).iterdir()] != ["run.npz"]:
            yield "something else is left in the folder"
        whole = path.read_bytes()

        def says(text: str, like: Any = arrays, run: str = mark, **more: Any) -> str | None:
            try:
                checkpoint.load(path, run, like, **more)
            except ValueError as error:
                return None if text in str(error) else f"{text}: {error}"
            return f"{text}: accepted"

        def other(settings: Any, **inputs: Any) -> str:
            given = {"X": arrays["a"], "y": np.arange(3)} | inputs
            return str(checkpoint.fingerprint({"rate": 0.5, "learn": ("variance",)} | settings, given))

        longer = {**arrays, "trace": np.zeros(5)}
        cases: list[str | None] = [
            says("rate = 0.5, expected rate = 0.25", run=other({"rate": 0.25})),
            says("more = None, expected more = 1", run=other({"more": 1})),
            says("another X,", run=other({}, X=arrays["a"] + 1.0)),
            says("another X, y", run=other({"rate": 0.25}, X=arrays["a"] + 1.0, y=np.arange(4))),
            says("another run", run="something else"),
            says("trace has shape (2,), not (5,)", longer),
            says("a has type float64, not int64", {**arrays, "a": np.zeros((2, 3), dtype=np.int64)}),
            says("a has shape (2, 3), not (6,)", {**arrays, "a": np.zeros(6)}, growing=("a",)),
            says("arrays ['a'] too many", {name: arrays[name] for name in ("trace", "n", "text")}),
            says("['b'] too few", {**arrays, "b": np.zeros(1)}),
        ]
        if checkpoint.load(path, mark, longer, ("trace",)) is None:
            cases.append("what may grow did not")
        if checkpoint.load(path, mark, {**arrays, "b": np.zeros(1)}, (), ("b",)) is None:
            cases.append("what may be missing may not")
        damaged = [whole[:-200], whole[: len(whole) // 2], b"", b"no archive"]
        place = whole.index(np.arange(6.0).tobytes())
        damaged.append(whole[: place + 1] + bytes([whole[place + 1] ^ 1]) + whole[place + 2 :])
        for content in damaged:
            path.write_bytes(content)
            cases.append(says("cannot be read"))
        for store, name in ((np.savez_compressed, "packed"), (np.savez, "changed")):
            with path.open("wb") as file:
                store(file, **arrays, schema=np.array(checkpoint.SCHEMA), mark=np.array(mark), content=np.array("0"))
            cases.append(says("is packed" if name == "packed" else "content that was changed"))
        with path.open("wb") as file:
            np.savez(file, a=np.zeros(1000))
        with zipfile.ZipFile(path) as archive, path.open("rb") as stored_file:
            again = copy.copy(archive.filelist[0])
            again.filename = "b.npy"
            archive.filelist.append(again)
            try:
                checkpoint._members(archive, stored_file)
            except ValueError as refused:
                cases.append(None if "larger than the file" in str(refused) else str(refused))
            else:
                cases.append("two arrays that together are larger than the file were read")
        with path.open("wb") as file:
            np.savez(file, **arrays)
        cases.append(says("no schema"))
        with path.open("wb") as file:
            np.savez(file, **arrays, schema=np.array("fast-checkpoint/1"), mark=np.array(mark), content=np.array("0"))
        cases.append(says("fast-checkpoint/1"))
        with path.open("wb") as file:
            np.savez(file, **arrays | {"a": np.array([None])}, schema=np.array(checkpoint.SCHEMA))
        cases.append(says("holds objects"))
        # a name that only one side has is another setting, even where its value is None
        checkpoint.save(path, mark, arrays)
        cases += [says("stop = None", run=other({"stop": None})), says("another Z,", run=other({}, Z=np.zeros(2)))]
        # the same run: in whatever order it is told, of whatever type its whole numbers are
        told = checkpoint.fingerprint(
            {"learn": ["variance"], "rate": 0.5},
            {"y": np.arange(3, dtype=np.int16), "X": np.asfortranarray(arrays["a"])},
        )
        if checkpoint.load(path, told, arrays) is None:
            cases.append("the same run is told otherwise")
        # numbers that have gone from one array to the next are not where they were written
        grown = {"r": np.array([1.0, 2.0]), "s": np.array([3.0])}
        checkpoint.save(path, mark, grown)
        with np.load(path) as stored:
            rest = {name: stored[name] for name in ("schema", "mark", "content")}
        first, second = grown["r"], grown["s"]
        for pair in (
            (first[:1], np.array([2.0, 3.0])), (first.view(np.int64), second), (second, first), (first[None], second),
            (first[::-1], second),
        ):  # fmt: skip
            moved = dict(zip("rs", pair, strict=True))
            with path.open("wb") as file:
                np.savez(file, **moved, **rest)  # type: ignore[arg-type]
            cases.append(says("content that was changed", None))
        for error, words in ((OSError(28, "No room"), "found 'No room' when"), (OSError("no number"), "'no number'")):
            with mock.patch.object(checkpoint.os, "replace", side_effect=error):
                try:
                    checkpoint.save(path, mark, grown)
                except OSError as raised:
                    cases.append(None if words in str(raised) else f"{words}: {raised}")
                else:
                    cases.append(f"{words}: nobody said so")
        yield from (case for case in cases if case is not None)
        yield from _orphans(checkpoint, path, mark, arrays)
        try:
            checkpoint.save(Path(folder) / "nowhere" / "run.npz", mark, arrays)
        except OSError as error:
            if "nowhere" not in str(error) or "checkpoint" not in str(error):
                yield f"a folder that is missing: {error}"
        else:
            yield "a folder that is missing was written to"


def _orphans(checkpoint: Any, path: Path, mark: str, arrays: Any) -> Iterator[str]:
    """What a killed writer left is removed, what somebody holds or is another's stays."""
    import fcntl

    checkpoint.save(path, mark, arrays)
    names = {name: path.parent / name for name in (
        ".run.npz.abcdefg1.part", "run.npzabcdefg2.part", ".run.npz.abcdefg3.part", ".other.npz.abcdefg4.part",
        ".run.npz.part", "my.run.npz.abcdefg5.part",
    )}  # fmt: skip
    for entry in names.values():
        entry.write_bytes(b"half")
    with names[".run.npz.abcdefg3.part"].open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        checkpoint.load(path, mark)
        left = sorted(name for name, entry in names.items() if entry.exists())
    expected = sorted(list(names)[2:])
    if left != expected:
        yield f"left in the folder: {left}"
    before = set(os.listdir(path.parent))
    try:
        checkpoint.save(path, mark, {"a": _Unwritable()})
    except RuntimeError:
        pass
    else:
        yield "an array that cannot be had was written"
    if set(os.listdir(path.parent)) - before:
        yield "a failed writer leaves its file"
    checkpoint.load(path, mark)
    if names[".run.npz.abcdefg3.part"].exists():
        yield "what nobody holds any more stays"


class _Unwritable:
    """An array that fails when it is asked for."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise RuntimeError


def _register(id: str, question: str, function: Callable[[], Iterable[Outcome]]) -> None:
    @check(id, paper="wenzel2019", question=question, problems=(NO_PROBLEM,))
    def _(context: Context, problem: Problem) -> list[Outcome]:
        return list(function())


_register(
    "invariance/x-gpc-svi/shuffling", "Does every row come once an epoch, and epochs in different orders?", shuffling
)
_register("identity/x-gpc-svi/stopping", "Are runs ended by the rules that are stated?", stopping)
_register("invariance/x-gpc-svi/files", "Are files of other runs, damaged ones and left ones told apart?", files)
