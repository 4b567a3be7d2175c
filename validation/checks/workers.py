"""Data in parts on workers: the same bits as here, a tree that no worker adds up twice in, and workers that die.

A cluster of the judge's own stands in for one of Dask: tasks run when they are submitted, where they are told is
written down, and a task may be said to have died. The data come as arrays, as memory maps, as lazy chunks.
"""

from __future__ import annotations

import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Context, Outcome, as_documented, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]


class _KilledError(Exception):
    """What a scheduler says of a task whose workers died."""


class _ClosedError(Exception):
    """What a client says of a scheduler that hangs up."""


class _Fine(Exception):  # noqa: N818 - no error: its place in a list of them
    """Nothing happens this time."""


class _Task:
    """A result, or the error that asking for it raises."""

    def __init__(self, value: Any, error: Exception | None = None) -> None:
        self._value, self._error = value, error

    def result(self) -> Any:
        """The value, or the error."""
        if self._error is not None:
            raise self._error
        return self._value


class _Cluster:
    """A client whose workers are this process.

    errors    of the next sweeps: what asking for their root raises
    """

    def __init__(self, n_workers: int, errors: Iterable[Exception] = ()) -> None:
        self.names = [f"worker {k}" for k in range(n_workers)]
        self.errors = list(errors)
        self.status, self.scheduler = "running", SimpleNamespace(address="here")
        self.placed: list[tuple[str, str]] = []
        self.outstanding, self.most, self.scattered = 0, 0, 0

    def nthreads(self) -> dict[str, int]:
        """One thread a worker, names out of order."""
        return dict.fromkeys(reversed(self.names), 1)

    def scatter(self, values: list[Any], *, hash: bool) -> list[_Task]:
        """Values as they are; the next sweep may be one that dies."""
        self.scattered += 1
        error = self.errors.pop(0) if self.errors else None
        error = None if isinstance(error, _Fine) else error
        return [_Task(value, error) for value in values]

    def compute(self, lazy: list[Any]) -> list[_Task]:
        """Chunks, computed."""
        return [_Task(part.compute()) for part in lazy]

    def run(self, function: Callable[[], Any], *, on_error: str) -> dict[str, Any]:
        """What each worker says of itself."""
        return {name: function() for name in self.names}

    def gather(self, tasks: list[_Task]) -> list[Any]:
        """What tasks gave."""
        return [task.result() for task in tasks]

    def submit(self, function: Callable[..., Any], *asked: Any, workers: Iterable[str] = (), **_: Any) -> _Task:
        """The function of what the tasks among its arguments gave."""
        for name in workers:
            self.placed.append((function.__name__, name))
        try:
            return _Task(function(*_resolved(list(asked))))
        except Exception as error:  # noqa: BLE001 - raised where the result is asked for, as Dask does
            return _Task(None, error)


def _resolved(value: Any) -> Any:
    if isinstance(value, _Task):
        return value.result()
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_resolved(entry) for entry in value)
    return value


class _Chunk:
    """A lazy part of an array."""

    def __init__(self, values: Array) -> None:
        self._values = values

    def compute(self, scheduler: str = "") -> Array:
        """The part."""
        return self._values


class _Lazy:
    """An array in chunks of rows, as far as leaves are made of it."""

    __dask_graph__ = None

    def __init__(self, values: Array, sizes: tuple[float, ...], known: bool = True) -> None:
        self.values, self._sizes = values, sizes
        self.shape, self.ndim = values.shape, values.ndim
        given = sizes if known else tuple(np.nan for _ in sizes)
        self.chunks = (given, *((size,) for size in values.shape[1:]))

    def compute_chunk_sizes(self) -> _Lazy:
        """The same with its sizes counted."""
        return _Lazy(self.values, self._sizes)

    def rechunk(self, chunks: Any) -> _Lazy:
        """Cut by other rows; columns are together anyway."""
        return self if isinstance(chunks, dict) else _Lazy(self.values, chunks[0])

    def to_delayed(self) -> NDArray[np.object_]:
        """One chunk after the other."""
        ends = np.cumsum([0, *self._sizes]).astype(int)
        parts: NDArray[np.object_] = np.empty(len(self._sizes), dtype=object)
        parts[:] = [_Chunk(self.values[a:b]) for a, b in pairwise(ends)]
        return parts


_Lazy.__module__ = "dask.lazy"


class _Frame(_Lazy):
    """A table, whose lengths have to be counted."""

    def to_dask_array(self, lengths: bool) -> _Lazy:
        """An array with known chunks, or with unknown ones."""
        return _Lazy(self.values, self._sizes, known=lengths)


_Frame.__module__ = "dask.frame"


def _fit(rows: Any, client: Any = None, heard: list[Any] | None = None) -> Any:
    from fast.blockwise import quadratic
    from fast.core.values import Prior

    asked = tiny("logit")
    assert asked.Z is not None
    prior = Prior(asked.variance[0], asked.lengthscales[0], asked.noise[0], asked.jitter[0], asked.Z[0])
    hear = None if heard is None else lambda *told: heard.append(told)
    return quadratic.fit("x-gpc", rows, prior, quadratic.BlockwiseOptions(1e-300, 3, callback=hear), client=client)


@contextmanager
def _distributed() -> Iterator[None]:
    modules: Any = {
        "distributed": SimpleNamespace(KilledWorker=_KilledError),
        "distributed.comm": SimpleNamespace(CommClosedError=_ClosedError),
    }
    with mock.patch.dict("sys.modules", modules):
        yield


@check(
    "invariance/x-gpc/workers",
    paper="wenzel2019",
    question="Have sums on workers the bits of those here, each worker adding once, and are dead workers' made again?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.blockwise import quadratic
    from fast.blockwise.engines import ClusterLostError, Workers
    from fast.blockwise.rows import rows_of

    asked = tiny("logit")
    rows = rows_of(asked.X, asked.y, leaf=1)
    heard: list[Any] = []
    here = _fit(rows, heard=heard)
    plain = np.concatenate([part.latent_mean for _, part in quadratic.predictions(here, rows)])
    told = [entry[:2] for entry in heard] != list(zip(range(1, 4), here.trace, strict=True))
    yield flaws(told or not all(entry[2] > 0.0 for entry in heard), "who listens hears three sweeps", "fast", "calls")
    for n_workers in (1, 2, 3, 4, 9):
        with _distributed():
            cluster = _Cluster(n_workers)
            there = _fit(rows, cluster)
            parts = list(quadratic.predictions(there, rows, client=cluster))
        same = np.array_equal(there.trace, here.trace) and np.array_equal(there.inducing_cov, here.inducing_cov)
        same &= np.array_equal(np.concatenate([part.latent_mean for _, part in parts]), plain)
        same &= [first for first, _ in parts] == list(range(8))
        yield flaws(not same, f"eight leaves on {n_workers} workers: the same to the last bit", "fast", "answers")
        # parts: a power of two, at most one a leaf, spread evenly
        wanted = min(8, 1 << (n_workers - 1).bit_length())
        held = [name for function, name in cluster.placed if function == "_hold"]
        homes = [sorted(cluster.names)[k * n_workers // wanted] for k in range(wanted)]
        yield flaws(held != homes, f"parts live on {held}", "fast", "homes")
        added = [name for function, name in cluster.placed if function == "add"]
        per_sweep = added[: len(added) // 3]
        # the right-hand side's first part of each node: all homes but the first, each once
        wrong = sorted(per_sweep) != sorted(homes[1:]) or added != 3 * per_sweep
        yield flaws(wrong, f"sums are added on {per_sweep}, each a right side's first", "fast", "homes")
    uneven = rows_of(asked.X, asked.y, leaf=3)
    alone = _fit(uneven)
    for n_workers in (2, 3, 4):
        with _distributed():
            there = _fit(uneven, _Cluster(n_workers))
        same = np.array_equal(there.trace, alone.trace) and np.array_equal(there.inducing_cov, alone.inducing_cov)
        yield flaws(not same, f"three leaves on {n_workers} workers: the same to the last bit", "fast", "answers")
    with _distributed():
        deaths = [CancelledError(), _KilledError("gone"), CancelledError()]
        cluster = _Cluster(2, deaths)
        there = _fit(rows, cluster)
    held_again = sum(function == "_hold" for function, _ in cluster.placed)
    wrong = not np.array_equal(there.trace, here.trace) or cluster.scattered != 3 + 3 or held_again != 2 + 2
    yield flaws(wrong, "three sweeps that died are made again, parts of a killed worker held anew", "fast", "answers")

    def lost(cluster: _Cluster) -> str:
        with _distributed():
            try:
                _fit(rows, cluster)
            except ClusterLostError as error:
                return str(error)
        return ""

    gone = _Cluster(2)
    gone.status = "closed"
    message = lost(gone)
    yield flaws("client closed" not in message or gone.scattered, f"no scheduler: {message[:80]}", "fast", "errors")
    dying = _Cluster(2, [_KilledError("gone")] * 1000)
    message = lost(dying)
    yield flaws("_KilledError: gone" not in message or dying.scattered != 30, f"thirty in a row: {message[:80]}",
                 "fast", "errors")  # fmt: skip
    yield flaws("no worker" not in lost(_Cluster(0)), "a cluster without workers", "fast", "errors")
    with _distributed():
        forced = Workers(_Cluster(2), rows, lambda leaf: leaf, 5)
    yield flaws(len(forced.parts) != 8, "five parts are asked for: eight", "fast", "parts")


def _in_parts(method: str, asked: Problem, client: Any = None, *, checkpoint: Any = None, callback: Any = None) -> Any:
    from fast.blockwise import multiclass
    from fast.blockwise.rows import rows_of
    from fast.core.values import Prior

    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    options = multiclass.METHODS[method].options(max_iterations=4, tolerance=1e-300, callback=callback)
    rows = rows_of(asked.X, asked.y, leaf=1)
    return multiclass.fit(method, rows, asked.n_classes, prior, options, client=client, checkpoint=checkpoint)


for _method, _paper in (("ep", "villacampa2017"), ("gfitc", "villacampa2017"), ("pep", "villacampa2020")):

    @check(
        f"invariance/{_method}/workers",
        paper=_paper,
        question="Have sites that live with workers the bits of those here, workers that die and are replaced or none?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem, method: str = _method) -> Iterable[Outcome]:
        asked = tiny("threshold")
        here = _in_parts(method, asked)
        deaths: dict[str, list[Exception]] = {
            "nobody dies": [],
            "a sweep's q is lost": [CancelledError()],
            "all are looked at anew in the third sweep": [_Fine(), _Fine(), _Fine(), _KilledError("gone")],
            "two deaths in the last sweep": [*[_Fine()] * 4, _KilledError("gone"), CancelledError()],
            "a death when log Z is asked for": [*[_Fine()] * 5, _KilledError("gone")],
        }
        for name, errors in deaths.items():
            for n_workers in (2,) if errors else (1, 3):
                with _distributed():
                    there = _in_parts(method, asked, _Cluster(n_workers, errors))
                same = there.log_evidence == here.log_evidence and np.array_equal(there.inducing_cov, here.inducing_cov)
                same &= there.trained.residual == here.trained.residual
                yield flaws(not same, f"{name}, {n_workers} workers: the same to the last bit", "fast", "answers")


@check(
    "invariance/x-gpc/leaves",
    paper="wenzel2019",
    question="Are leaves of arrays, lists, memory maps and lazy chunks the same rows in the same order?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.blockwise.engines import streamed
    from fast.blockwise.quadratic import estimated_distance
    from fast.blockwise.rows import rows_of

    asked = tiny("logit")
    X, y = asked.X, asked.y.astype(np.float64)
    with tempfile.TemporaryDirectory(prefix="triad-leaves-") as folder:
        maps: list[Array] = []
        for name, values in (("X", X), ("y", y)):
            path = Path(folder) / name
            path.write_bytes(b"0123456789abcdef" + values.tobytes())  # the map begins after sixteen bytes
            maps.append(np.memmap(path, dtype=np.float64, mode="r", shape=values.shape, offset=16))
        sizes = (3, 0, 4, 1)
        kinds: dict[str, tuple[Any, list[int]]] = {
            "array": (rows_of(X, y, leaf=3), [3, 3, 2]),
            "list": (rows_of([X[:5], X[5:]], [y[:5], y[5:]], leaf=3), [3, 2, 3]),
            "memory map": (rows_of(maps[0], maps[1], leaf=5), [5, 3]),
            "inputs alone": (rows_of(maps[0], leaf=8), [8]),
            "lazy chunks": (rows_of(_Lazy(X, sizes), _Lazy(y, (5, 3))), [3, 4, 1]),
            "chunks of unknown sizes": (rows_of(_Lazy(X, sizes, known=False), _Lazy(y, sizes)), [3, 4, 1]),
            "tables": (rows_of(_Frame(X, sizes), _Frame(y, sizes)), [3, 4, 1]),
            "lazy inputs alone": (rows_of(_Lazy(X, sizes)), [3, 4, 1]),
        }
        for name, (rows, wanted) in kinds.items():
            ends = np.cumsum([0, *wanted])
            wrong = rows.n != 8 or rows.d != 2 or [leaf.size for leaf in rows.leaves] != wanted
            wrong |= [leaf.first for leaf in rows.leaves] != ends[:-1].tolist()
            for client in (None, _Cluster(1), _Cluster(3)):
                parts = list(streamed(rows, lambda leaf: leaf.inputs(), client))
                wrong |= [first for first, _ in parts] != ends[:-1].tolist()
                wrong |= not np.array_equal(np.concatenate([part for _, part in parts]), X)
                edges = [edge for _, edge in streamed(rows, lambda leaf: (leaf.first, leaf.size), client)]
                wrong |= edges != list(zip(ends[:-1].tolist(), wanted, strict=True))
            if "alone" not in name:
                wrong |= not np.array_equal(np.concatenate([leaf.labels() for leaf in rows.leaves]), y)
            yield flaws(wrong, f"{name}: eight rows in leaves of {wanted}", "fast", "rows")
        del maps
    # at most two leaves a worker are asked for ahead of the one that is given
    for n_workers in (1, 2):
        flying: list[int] = []
        read: list[int] = []

        def answer(leaf: Any, flying: list[int] = flying) -> int:
            flying.append(leaf.first)
            return int(leaf.first)

        ahead = []
        for first, _ in streamed(rows_of(X, y, leaf=1), answer, _Cluster(n_workers)):
            read.append(first)
            ahead.append(len(flying) - len(read) + 1)
        wrong = read != list(range(8)) or max(ahead) != 2 * n_workers
        yield flaws(wrong, f"{max(ahead)} leaves at a time on {n_workers} workers", "fast", "leaves")
    for changes, wanted_distance in (([1e-3, 0.0], 0.0), ([1.0, 0.5, 0.3], 0.3 / 0.4), ([1.0], np.inf)):
        yield flaws(abs(estimated_distance(changes) - wanted_distance) > 1e-12 if np.isfinite(wanted_distance)
                     else np.isfinite(estimated_distance(changes)), f"what is left after changes of {changes}", "fast",
                     "distances")  # fmt: skip


class _Seen(NamedTuple):
    """A leaf that was looked at: all that rows are taken from."""

    first: int
    X: Any
    y: Any


def _looked_at(leaf: Any) -> _Seen:
    return _Seen(leaf.first, leaf.inputs(), leaf.labels())


class _Interrupted(_Cluster):
    """A cluster whose next answers are lost, and whose workers may say something else of themselves.

    lost    what asking for the next answers raises
    say     of the first worker
    """

    def __init__(self, n_workers: int, lost: Iterable[Exception] = (), say: Any = None) -> None:
        super().__init__(n_workers)
        self.lost, self.say, self.asked = list(lost), say, 0

    def gather(self, tasks: list[_Task]) -> list[Any]:
        """What tasks gave, or nothing this time."""
        self.asked += 1
        if self.lost:
            raise self.lost.pop(0)
        return super().gather(tasks)

    def run(self, function: Callable[[], Any], *, on_error: str) -> dict[str, Any]:
        """What each worker says of itself."""
        answers = super().run(function, on_error=on_error)
        return answers if self.say is None else {**answers, self.names[0]: self.say}


@check(
    "invariance/x-gpc/rows_taken",
    paper="wenzel2019",
    question="Are rows taken by their numbers those rows, on workers too, and are other workers refused or named?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.blockwise import engines
    from fast.blockwise.rows import rows_of

    asked = tiny("logit")
    X, y = asked.X, asked.y
    rows = rows_of(X, y, leaf=3)
    lists = ([5, 0, 7, 2], [3, 3, 1], [6], [0, 1, 2, 3, 4, 5, 6, 7], [7, 2, 5, 2])

    def wrong(engine: Any) -> int:
        count = 0
        for numbers in lists:
            wanted = np.array(numbers)
            parts = engine.taken(wanted)
            places = np.concatenate([at for at, _ in parts])
            count += not np.array_equal(np.sort(places), np.arange(wanted.size))
            count += not np.array_equal(np.concatenate([part[0] for _, part in parts]), X[wanted[places]])
            count += not np.array_equal(np.concatenate([part[1] for _, part in parts]), y[wanted[places]])
            alone = engine.taken(wanted, labels=True)
            count += not np.array_equal(np.concatenate([part for _, part in alone]), y[wanted[places]])
        return count

    with _distributed():
        for n_workers in (0, 1, 2, 3):
            engine = (
                engines.Workers(_Cluster(n_workers), rows, _looked_at) if n_workers else engines.Here(rows, _looked_at)
            )
            engine.check()
            yield flaws(wrong(engine), f"five lists of eight rows, on {n_workers or 'no'} workers", "fast", "lists")
        # a message that is lost is asked for again, a client that is closed, or thirty losses in a row, are the end
        with mock.patch.object(engines, "_MOMENT", 0.0):
            lost = [CancelledError(), _ClosedError("gone"), _KilledError("dead")]
            cluster = _Interrupted(2, lost)
            engine = engines.Workers(cluster, rows, _looked_at)
            parts = engine.taken(np.array([7, 1]), labels=True)
            made = sorted(int(label) for _, part in parts for label in part) == sorted(y[[7, 1]].tolist())
            yield flaws(not made or cluster.asked != 4, f"three losses: asked {cluster.asked} times", "fast", "answers")
            cluster = _Interrupted(2, [_ClosedError("gone")] * 31)
            engine = engines.Workers(cluster, rows, _looked_at)
            told = ""
            try:
                engine.taken(np.array([7, 1]))
            except engines.ClusterLostError as error:
                told = str(error)
            yield flaws(
                "_ClosedError: gone" not in told or cluster.asked != 30, f"thirty: {told[:80]}", "fast", "errors"
            )
        # a worker that is lost while its missing visits are made up is asked again
        cluster = _Interrupted(2, [CancelledError()])
        engine = engines.Workers(cluster, rows, _looked_at)
        behind = [engines._BehindError("found 0 visits made, expected 1"), None]

        def attempt() -> str:
            if (error := behind.pop(0)) is not None:
                raise error
            return "made"

        yield flaws(
            engine._again(attempt) != "made" or bool(behind), "a loss while visits are made up", "fast", "answers"
        )

        own = engines.mine()
        other = {"other code": own._replace(code="0123"), "another kernel": own._replace(kernel="of the judge"),
                 "dead": OSError("gone"), "no answer": ValueError("no gpc-triad")}  # fmt: skip
        wanted_words = {"other code": "expected the same code", "another kernel": "kernel of the judge against",
                        "dead": "", "no answer": "found ValueError: no gpc-triad"}  # fmt: skip
        for name, say in other.items():
            told = ""
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                try:
                    engines.Workers(_Interrupted(2, say=say), rows, _looked_at)
                except engines.ClusterLostError as error:
                    told = str(error)
            told = told or " ".join(str(each.message) for each in heard)
            right = wanted_words[name] in told and bool(told) is (name != "dead")
            right &= bool(heard) is (name == "another kernel")
            yield flaws(not right, f"a worker that is {name}: {told[:80]}", "fast", "answers")

    held = engines._hold(_looked_at, engines._on_cluster(_Cluster(1), rows))
    held.count, held.last = 4, (np.arange(3.0),)
    moved = pickle.loads(pickle.dumps(held))
    same = moved.count == 4 and np.array_equal(moved.last[0], held.last[0]) and not moved.lock.locked()
    same &= all(np.array_equal(a.X, b.X) and a.first == b.first for a, b in zip(moved.looks, held.looks, strict=True))
    yield flaws(not same, "a part that moves to another worker: its leaves, visits and last sum", "fast", "parts")


class _Waiting:
    """An answer that comes after so many looks at it; a clock goes on by fifty seconds at each."""

    def __init__(self, looks: float) -> None:
        self.looks, self.seconds = looks, 0.0

    def result(self, timeout: float | None = None) -> str:
        """The answer, or that it is not there yet."""
        if self.done():
            return "answer"
        self.looks, self.seconds = self.looks - 1, self.seconds + 50.0
        raise TimeoutError

    def done(self) -> bool:
        """Whether it is there."""
        return self.looks <= 0


@check(
    "identity/x-gpc/waits",
    paper="wenzel2019",
    question="Is an answer waited for while there are workers, two minutes while there are none, and not without "
    "a scheduler?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.blockwise import engines

    def waited(looks: float, present: Iterable[Any], status: str = "running", delay: float = 0.0) -> tuple[str, float]:
        """What came, and the seconds until then.

        `present` says of one question after the other who is there, each after a delay.
        """
        answer, said = _Waiting(looks), list(present)

        def nthreads() -> dict[str, int]:
            one = said.pop(0) if len(said) > 1 else said[0]
            if isinstance(one, Exception):
                raise one
            return dict.fromkeys(range(one), 1)  # type: ignore[arg-type]

        def begun(question: Any) -> Any:
            if question is not nthreads:
                return answer
            if delay:
                due, here = answer.seconds + delay, question()
                return SimpleNamespace(done=lambda: answer.seconds >= due, exception=lambda: None, result=lambda: here)
            told: Future[Any] = Future()
            if said[0] == _NEVER:
                return told
            try:
                told.set_result(question())
            except ValueError as error:
                told.set_exception(error)
            return told

        client: Any = SimpleNamespace(status=status, nthreads=nthreads)
        clock = SimpleNamespace(monotonic=lambda: answer.seconds)
        with mock.patch.multiple(engines, _begun=begun, time=clock):
            try:
                came = engines._answered(client, lambda: "answer")
            except engines.ClusterLostError as error:
                came = str(error).split("(")[1].split(";")[0]
        return came, answer.seconds

    rows: list[tuple[str, object, object]] = [
        ("at once", waited(0, [0]), ("answer", 0.0)),
        ("after six minutes, with a worker", waited(8, [1]), ("answer", 400.0)),
        ("never, without workers", waited(40, [0]), ("no worker for 120 s", 150.0)),
        # those who were there when asked the second time are heard of at the third look
        ("never, workers that go", waited(40, [2, 1, 0]), ("no worker for 120 s", 300.0)),
        ("workers that come too late", waited(9, [0, 0, 1]), ("no worker for 120 s", 150.0)),
        ("one that comes at the second look", waited(9, [0, 1]), ("answer", 450.0)),
        ("nobody tells of workers", waited(40, [_NEVER]), ("no worker for 120 s", 150.0)),
        ("asking for workers fails", waited(40, [ValueError("gone")]), ("no worker for 120 s", 150.0)),
        # who was asked at the first look is waited for, and heard of at the third
        ("a scheduler that tells slowly", waited(9, [1], delay=100.0), ("answer", 450.0)),
        ("no scheduler", waited(40, [1], "closed"), ("no answer", 50.0)),
    ]
    with mock.patch.object(engines, "_begun", return_value=_Raised()):
        try:
            came = engines._answered(SimpleNamespace(status="closed"), lambda: "answer")
        except TimeoutError as error:
            came = f"{error}"
    rows.append(("an answer that is itself that time is over", came, "of the question"))
    yield as_documented(rows, "fast", "answers")


_NEVER = -1


class _Raised(_Waiting):
    """A question that fails by its own time."""

    def __init__(self) -> None:
        super().__init__(0)

    def result(self, timeout: float | None = None) -> str:
        """Its error."""
        raise TimeoutError("of the question")


class _StoppedError(Exception):
    """Stands for a process that ends."""


@check(
    "invariance/x-gpc/kept_sums",
    paper="wenzel2019",
    question="Does a run on parts go on from the sums in its folder, with the same digits, and with no other run's?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.blockwise import engines, quadratic, sep, taylor
    from fast.blockwise.rows import rows_of
    from fast.core.values import Prior

    asked = tiny("logit")
    assert asked.Z is not None
    given: dict[str, Any] = {"variance": asked.variance[0], "lengthscales": asked.lengthscales[0],
                             "noise": asked.noise[0], "jitter": asked.jitter[0], "Z": asked.Z[0]}  # fmt: skip
    summed = [0]
    total = engines.Here.total

    def counted(self: Any, visit: Any, state: Any) -> Any:
        summed[0] += 1
        return total(self, visit, state)

    def run(method: str, folder: Any, **changed: Any) -> tuple[Any, int]:
        """The end, and how many sums over the leaves were made for it."""
        own = {name: changed.pop(name, value) for name, value in given.items()}
        rows = rows_of(changed.pop("X", asked.X), changed.pop("y", asked.y), leaf=changed.pop("leaf", 3))
        likelihood = changed.pop("likelihood", "logit")
        options = quadratic.BlockwiseOptions(**{"tolerance": 1e-300, "max_iterations": 3} | changed)
        before = summed[0]
        with mock.patch.object(engines.Here, "total", counted), mock.patch("os.fsync"):  # whole files: others ask
            if method == "vi-taylor":
                end = taylor.fit(rows, Prior(**own), options, likelihood=likelihood, checkpoint=folder)
            else:
                end = quadratic.fit(method, rows, Prior(**own), options, checkpoint=folder)
        return end, summed[0] - before

    def stop(step: int, *_: float) -> None:
        if step == 2:
            raise _StoppedError

    rows: list[tuple[str, object, object]] = []
    for method in ("x-gpc", "vi-taylor"):
        with tempfile.TemporaryDirectory(prefix="triad-sums-") as name:
            folder = Path(name) / "of" / "a run"  # made, with what is above it
            plain, made = run(method, None)
            digits = (plain.trace.tolist(), plain.inducing_mean.tolist(), plain.inducing_cov.tolist())

            def same(end: Any, digits: Any = digits) -> bool:
                return (end.trace.tolist(), end.inducing_mean.tolist(), end.inducing_cov.tolist()) == digits

            with suppress(_StoppedError):
                run(method, folder, callback=stop)
            half = sorted(path.name for path in folder.iterdir())
            rows.append((f"{method}: files after two steps", half, [f"{k:06d}.npz" for k in range(len(half))]))
            end, again = run(method, folder)
            # the digest of the data is always made
            rows.append((f"{method}: goes on, digits and sums", (same(end), again), (True, made - len(half) + 1)))
            rows.append((f"{method}: fewer sums than anew", 0 < len(half) < made, True))
            end, again = run(method, folder, callback=lambda *_: None)
            rows.append((f"{method}: once more, digits and sums", (same(end), again), (True, 1)))
            X, Z = asked.X.copy(), asked.Z[0].copy()
            X[-1, -1], Z[0, 0] = np.nextafter(X[-1, -1], 9.0), np.nextafter(Z[0, 0], 9.0)
            others: dict[str, tuple[Any, str]] = {
                "leaf": (4, "another data"),
                "X": (X, "another data"), "y": (1 - asked.y, "another data"), "Z": (Z, "another Z"),
                "lengthscales": (2.0 * given["lengthscales"], "another lengthscales"),
                "variance": (3.0, "variance ="), "noise": (0.5, "noise ="), "jitter": (0.01, "jitter ="),
                "tolerance": (1e-200, "tolerance ="), "max_iterations": (4, "max_iterations ="),
            }  # fmt: skip
            if method == "vi-taylor":
                others = {"likelihood": ("probit", "method =")}
            for field, (value, words) in others.items():
                try:
                    run(method, folder, **{field: value})
                    told = "accepted"
                except ValueError as error:
                    told = str(error)
                rows.append((f"{method}: another {field}", words in told, True))
            rest = sorted(path.name for path in folder.iterdir())
            rows.append((f"{method}: one file a sum, none of other runs", len(rest), made))
            (folder / rest[0]).write_bytes((folder / rest[1]).read_bytes())
            try:
                run(method, folder)
                told = "accepted"
            except ValueError as error:
                told = str(error)
            rows.append((f"{method}: the second sum in the place of the first", "sum =" in told, True))
            (Path(name) / "file").write_bytes(b"")
            try:
                run(method, Path(name) / "file")
                told = "accepted"
            except OSError as error:
                told = str(error)
            rows.append((f"{method}: a file in the place of a folder", "checkpoint: found File exists" in told, True))

    # sites that live with the leaves are made again
    few = tiny("threshold")
    ends = [_in_parts("ep", few)]
    with tempfile.TemporaryDirectory(prefix="triad-sums-") as name, mock.patch("os.fsync"):

        def killed(progress: Any) -> None:
            if progress.iteration == 2:
                raise _StoppedError

        with suppress(_StoppedError):
            _in_parts("ep", few, checkpoint=name, callback=killed)
        ends.append(_in_parts("ep", few, checkpoint=name))
        ends.append(_in_parts("ep", few, checkpoint=name))
    same_digits = [(end.log_evidence, end.trained.residual, end.inducing_mean.tolist()) for end in ends]
    rows.append(("ep: the same digits", same_digits[1:], [same_digits[0]] * 2))

    def dies(sweep: int, _: float) -> None:
        if sweep == 2:
            raise _StoppedError

    prior_of_classes = Prior(few.variance, few.lengthscales, few.noise, few.jitter, few.Z)
    leaves, ends = rows_of(few.X, few.y, leaf=3), []
    with tempfile.TemporaryDirectory(prefix="triad-sums-") as name, mock.patch("os.fsync"):
        for place, hear in ((None, None), (name, dies), (name, lambda *_: None), (name, None)):
            sweeps = sep.SEPSweeps(tolerance=1e-300, max_iterations=4, callback=hear)
            with suppress(_StoppedError):
                ends.append(sep.fit(leaves, 3, prior_of_classes, sweeps, checkpoint=place))
        of_sep = [(end.log_evidence, end.inducing_mean.tolist()) for end in ends]
        rows.append(("sep: the same digits, whoever listens", of_sep[1:], [of_sep[0]] * 2))
        try:
            sep.fit(leaves, 3, prior_of_classes, sep.SEPSweeps(tolerance=1e-300, max_iterations=5), checkpoint=name)
            told = "accepted"
        except ValueError as error:
            told = str(error)
        rows.append(("sep: another length", "max_iterations = 4, expected max_iterations = 5" in told, True))

    # a run whose scheduler goes says how far it is
    with tempfile.TemporaryDirectory(prefix="triad-sums-") as name, mock.patch("os.fsync"):
        seen = [0]

        def lost(self: Any, visit: Any, state: Any) -> Any:
            seen[0] += 1
            if seen[0] == 4:  # the digest, two sums
                raise engines.ClusterLostError("gone")
            return total(self, visit, state)

        try:
            with mock.patch.object(engines.Here, "total", lost):
                prior, leaves = Prior(**given), rows_of(asked.X, asked.y, leaf=3)
                quadratic.fit("x-gpc", leaves, prior, quadratic.BlockwiseOptions(1e-300, 5), checkpoint=name)
            told = "not lost"
        except engines.ClusterLostError as error:
            told = str(error).replace(name, "FOLDER")
        rows.append(("a loss is told", told, "gone; 2 sums are in FOLDER: the same call goes on from there"))
    yield as_documented(rows, "fast", "runs")
