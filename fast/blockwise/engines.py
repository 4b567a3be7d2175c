"""Who visits the leaves: this process, or the workers of a Dask cluster, each with the leaves of its part of the tree.

What a visit needs of q comes with it. So a part of a worker that died is looked at again by another one, and its sums
are the same to the last bit. In a sweep a worker receives q once and two sums at most, however many workers there are;
the caller receives the root alone.

A visit that keeps something beside a leaf (sites) counts. The caller remembers what such visits brought, and a part
that is behind makes up for those it missed: q of a sweep and the sites before are all that the sites after depend on.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from fast.blockwise.rows import Leaf, Rows
from fast.blockwise.tree import Plan, Sums, SumsT, add, over, parts, plan
from fast.core.places import Place, here
from fast.core.places import here as mine
from fast.core.threads import blas_threads
from fast.core.types import IntArray

Look = Callable[[Leaf], Any]  # what visits need of a leaf, made once where it lives


class Visit(NamedTuple, Generic[SumsT]):
    """What is asked of every leaf in a sweep: functions of a module, so that a task carries no arrays but the state."""

    ready: Callable[[Any], Any]  # state -> what all leaves of a part need of it, made once
    leaf: Callable[[Any, Any], SumsT]  # (look, ready) -> sums of the leaf
    keeps: bool = False  # what visits of a leaf keep is changed by this one: it is made once, in its turn


_ATTEMPTS = 30  # at one sweep, while workers die under it
_MOMENT = 0.1  # seconds
_LOOK = 0.5  # seconds between two looks at whether the client is connected
_WITHOUT_WORKERS = 120.0  # seconds to wait for a worker while there is none

AnswerT = TypeVar("AnswerT")


class Spread(Protocol):
    """Leaves that were looked at, ready to be summed over."""

    def total(self, visit: Visit[SumsT], state: Any) -> SumsT:
        """The sum of a visit over all leaves."""
        ...

    def missed(self, visit: Visit[SumsT], state: Any) -> None:
        """A visit whose sum is known: what it keeps beside the leaves is made, now or when it is needed."""
        ...

    def check(self) -> None:
        """Wait until all leaves were looked at, and raise what was found."""
        ...

    def taken(self, wanted: IntArray, *, labels: bool = False) -> list[tuple[IntArray, Any]]:
        """(places among the wanted rows, inputs and labels there), or labels alone, of rows by their numbers."""
        ...


class ClusterLostError(RuntimeError):
    """The scheduler does not answer, or worker after worker dies."""


class Here:
    """All leaves in this process."""

    def __init__(self, rows: Rows, look: Look) -> None:
        with blas_threads(0):
            self._looks = [look(leaf) for leaf in rows.leaves]

    def check(self) -> None:
        """All leaves have been looked at."""

    def taken(self, wanted: IntArray, *, labels: bool = False) -> list[tuple[IntArray, Any]]:
        """Rows by their numbers.

        Parameters
        ----------
        wanted, labels    see `Spread`
        """
        return [(np.arange(wanted.size), _rows(self._looks, wanted, labels))]

    def total(self, visit: Visit[SumsT], state: Any) -> SumsT:
        """The sum of a visit over all leaves.

        Parameters
        ----------
        visit, state    see `Spread`
        """
        with blas_threads(0):  # more threads would add in an order of their own
            ready = visit.ready(state)
            return over(0, len(self._looks), lambda k: visit.leaf(self._looks[k], ready))

    def missed(self, visit: Visit[SumsT], state: Any) -> None:
        """A visit whose sum is known.

        Parameters
        ----------
        visit, state    see `Spread`
        """
        if visit.keeps:
            self.total(visit, state)


class Workers:
    """Leaves on the workers of a Dask client, in parts that are nodes of the tree.

    client     of the cluster
    rows       the data
    look       made of every leaf where it lives
    n_parts    at least so many; None: one a worker, rounded up to a power of two
    """

    def __init__(self, client: Any, rows: Rows, look: Look, n_parts: int | None = None) -> None:
        self.client, self.rows, self.look = client, rows, look
        try:
            workers = sorted(_answered(client, client.nthreads))
            if workers:
                _alike(client)
        except (CancelledError, OSError) as error:  # the scheduler goes at this moment
            raise _lost(client, f"{type(error).__name__}: {error}") from error
        if not workers:
            raise ClusterLostError(f"client: found no worker at {client.scheduler.address}, expected at least one")
        depth = max(0, ((n_parts or len(workers)) - 1).bit_length())
        self.plan: Plan = plan(0, len(rows.leaves), depth)
        self.parts = list(parts(self.plan))
        self._homes = [workers[k * len(workers) // len(self.parts)] for k in range(len(self.parts))]
        self._leaves = _on_cluster(client, rows)
        self._held: list[Any] = []
        self._past: list[tuple[Visit[Any], Any]] = []  # visits that keep something, with what they brought
        self._hold()

    def _hold(self) -> None:
        self._held = [
            self._submit(self._homes[k], _hold, self.look, self._leaves[start:stop])
            for k, (start, stop) in enumerate(self.parts)
        ]

    def _submit(self, home: str, function: Callable[..., Any], *values: Any) -> Any:
        """A task on a worker, or on another one once that has died."""
        return self.client.submit(function, *values, workers=[home], allow_other_workers=True, pure=False)

    def _at(self, k: int, function: Callable[..., Any], *values: Any) -> Any:
        """A task about what is held of a part, where the part lives."""
        return self._submit(self._homes[k], function, self._held[k], *values)

    def total(self, visit: Visit[SumsT], state: Any) -> SumsT:
        """The sum of a visit over all leaves; begun again where workers die under it.

        Parameters
        ----------
        visit, state    see `Spread`

        Raises
        ------
        ClusterLostError    the scheduler is lost, or workers die faster than a sweep takes
        """
        due = len(self._past)
        if visit.keeps:
            self._past.append((visit, state))
        result: SumsT = self._again(lambda: self._once(visit, state, due))
        return result

    def missed(self, visit: Visit[SumsT], state: Any) -> None:
        """A visit whose sum is known; parts make up for it before the next one.

        Parameters
        ----------
        visit, state    see `Spread`
        """
        if visit.keeps:
            self._past.append((visit, state))

    def check(self) -> None:
        """Wait until all leaves were looked at, and raise what was found."""
        self._again(lambda: self._gathered([self._at(k, _done) for k in range(len(self._held))]))

    def taken(self, wanted: IntArray, *, labels: bool = False) -> list[tuple[IntArray, Any]]:
        """Rows by their numbers, one message from every part that has some of them.

        Parameters
        ----------
        wanted, labels    see `Spread`

        Raises
        ------
        ClusterLostError    the scheduler is lost, or workers die faster than they answer
        """
        first = np.array([self.rows.leaves[start].first for start, _ in self.parts])
        part = np.searchsorted(first, wanted, side="right") - 1
        places = [(k, np.flatnonzero(part == k)) for k in np.unique(part).tolist()]

        def ask() -> list[Any]:
            flying = [self._at(k, _taken, wanted[at], labels) for k, at in places]
            return self._gathered(flying)

        return [(at, rows) for (_, at), rows in zip(places, self._again(ask), strict=True)]

    def _gathered(self, tasks: list[Any]) -> list[Any]:
        """What tasks gave."""
        return list(_answered(self.client, partial(self.client.gather, tasks)))

    def _scattered(self, value: Any) -> Any:
        """A value that workers fetch where they need it.

        Raises
        ------
        CancelledError    it was given to a worker that has just died
        """
        try:
            (task,) = _answered(self.client, partial(self.client.scatter, [value], hash=False))
        except OSError as error:
            time.sleep(_MOMENT)
            raise CancelledError(f"{type(error).__name__}: {error}") from error
        return task

    def _again(self, attempt: Callable[[], Any]) -> Any:
        from distributed import KilledWorker
        from distributed.comm import CommClosedError

        why: BaseException | None = None
        for _ in range(_ATTEMPTS):
            if self.client.status != "running":
                break
            try:
                return attempt()
            except _BehindError as error:
                why = error
                with suppress(CancelledError, CommClosedError, KilledWorker):
                    self._make_up()
            except CancelledError as error:  # what was scattered died with its worker, or on its way there
                why = error
            except CommClosedError as error:  # the scheduler has gone, which the client learns in a moment
                why = error
                time.sleep(_MOMENT)
            except KilledWorker as error:
                why = error
                self._hold()
        raise _lost(self.client, f"{type(why).__name__}: {why}") from why

    def _make_up(self) -> None:
        """Visits that parts of dead workers have missed, brought to them alone."""
        done = self._gathered([self._at(k, _done) for k in range(len(self._held))])
        missed = []
        for k, count in enumerate(done):
            if past := self._past[count:]:
                missed.append(self._at(k, _missed, count, self._scattered(_Past(past))))
        self._gathered(missed)

    def _once(self, visit: Visit[SumsT], state: Any, due: int) -> SumsT:
        shared = self._scattered(state)
        sums = [self._at(k, _visit, visit, shared, due) for k in range(len(self._held))]

        def root(node: Plan, first: int) -> tuple[Any, int]:
            """The sum over a node whose first part is this one, and the number of its parts."""
            if not isinstance(node, list):
                return sums[first], 1
            left, n_left = root(node[0], first)
            other, n_other = root(node[1], first + n_left)
            # added where the first part of the right side lives: no worker adds twice, so none receives more than two
            home = self._homes[first + n_left]
            return self._submit(home, add, left, other), n_left + n_other

        total, _ = root(self.plan, 0)
        result: SumsT = _answered(self.client, total.result)
        return result


def _answered(client: Any, ask: Callable[[], AnswerT]) -> AnswerT:
    """What a call of the client brings. One that is under way when the scheduler goes may never return: not waited for.

    Raises
    ------
    ClusterLostError    the client is not connected any more, or has had no worker for long
    """
    answer = _begun(ask)
    workers: Future[Any] | None = None
    someone = time.monotonic()
    while True:
        try:
            return answer.result(_LOOK)
        except TimeoutError:
            if answer.done():  # in this moment
                return answer.result()
        if client.status != "running":
            raise _lost(client, "no answer")
        if workers is not None and workers.done():
            someone = time.monotonic() if not workers.exception() and workers.result() else someone
            workers = None
        if time.monotonic() - someone > _WITHOUT_WORKERS:
            raise _lost(client, f"no worker for {_WITHOUT_WORKERS:.0f} s")
        workers = workers or _begun(client.nthreads)


def _begun(ask: Callable[[], AnswerT]) -> Future[AnswerT]:
    """A call in a thread of its own."""
    answer: Future[AnswerT] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever asked
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer


def _lost(client: Any, why: str) -> ClusterLostError:
    return ClusterLostError(
        f"client: found the sums of a sweep lost ({why}; client {client.status}), "
        "expected workers that live longer than a sweep, and a scheduler that answers"
    )


def _alike(client: Any) -> None:
    """Refuse workers with other code; warn of other versions and kernels, with which digits depend on who computes."""
    own = mine()
    for worker, answer in sorted(_answered(client, partial(client.run, here, on_error="return")).items()):
        if isinstance(answer, OSError):  # it has died meanwhile
            continue
        if not isinstance(answer, Place):
            raise ClusterLostError(
                f"worker {worker}: found {type(answer).__name__}: {answer}, expected gpc-triad as here"
            )
        differences = "; ".join(answer.differences(own))
        if answer.code != own.code:
            raise ClusterLostError(f"worker {worker}: found {differences} here, expected the same code")
        if differences:
            warnings.warn(
                f"worker {worker}: found {differences} here, expected the same; digits depend on who computes",
                stacklevel=4,
            )


def _on_cluster(client: Any, rows: Rows) -> list[tuple[int, int, Any, Any]]:
    """Leaves as a worker is given them; chunks of a Dask collection are computed there and stay there."""
    lazy = [part for leaf in rows.leaves for part in (leaf.X, leaf.y) if hasattr(part, "compute")]
    computed = iter(client.compute(lazy) if lazy else ())
    return [
        (leaf.first, leaf.size, *(next(computed) if hasattr(part, "compute") else part for part in (leaf.X, leaf.y)))
        for leaf in rows.leaves
    ]


class _BehindError(Exception):
    """A part has not seen all visits that came before: its worker died, and it was looked at anew."""


class _Held:
    """On a worker: a part's leaves, each looked at, and how many visits changed what they keep."""

    def __init__(self, looks: list[Any]) -> None:
        self.looks, self.count = looks, 0
        self.last: Sums | None = None
        self.lock = threading.Lock()  # a sweep that was begun again may still be under way

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            return {"looks": self.looks, "count": self.count, "last": self.last}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.Lock())

    def __sizeof__(self) -> int:
        """What it would take to move it."""
        from dask.sizeof import sizeof

        return int(sizeof(self.looks))

    def sums(self, visit: Visit[Any], state: Any) -> Sums:
        """The sum over its leaves, by the same tree as everywhere."""
        with blas_threads(0):
            ready = visit.ready(state)
            return over(0, len(self.looks), lambda k: visit.leaf(self.looks[k], ready))


def _hold(look: Look, leaves: list[tuple[int, int, Any, Any]]) -> _Held:
    """On a worker: its part of the leaves, each looked at."""
    with blas_threads(0):
        return _Held([look(Leaf(*leaf)) for leaf in leaves])


def _visit(held: _Held, visit: Visit[Any], state: Any, due: int) -> Sums:
    """On a worker: the sum over its part, after so many visits that keep something."""
    with held.lock:
        if visit.keeps and held.count == due + 1 and held.last is not None:
            return held.last  # made already, before another part was lost
        if held.count != due:
            raise _BehindError(f"found {held.count} visits made, expected {due}")
        sums = held.sums(visit, state)
        if visit.keeps:
            held.count, held.last = due + 1, sums
        return sums


def _done(held: _Held) -> int:
    return held.count


class _Past(NamedTuple):
    """Visits that keep something, with what they brought; one value to Dask."""

    visits: list[tuple[Visit[Any], Any]]


def _missed(held: _Held, first: int, past: _Past) -> None:
    for number, (visit, state) in enumerate(past.visits, start=first):
        with held.lock:
            if held.count == number:
                sums = held.sums(visit, state)
                held.count, held.last = number + 1, sums


def _taken(held: _Held, wanted: IntArray, labels: bool) -> Any:
    return _rows(held.looks, wanted, labels)


def _rows(leaves: list[Any], wanted: IntArray, labels: bool) -> Any:
    """Inputs and labels of listed rows, or labels alone, in the order of the list."""
    first = np.array([leaf.first for leaf in leaves])
    where = np.searchsorted(first, wanted, side="right") - 1
    y = np.empty(wanted.size, dtype=np.int64)
    X = None if labels else np.empty((wanted.size, leaves[0].X.shape[1]))
    for k in np.unique(where).tolist():
        at = np.flatnonzero(where == k)
        rows = wanted[at] - first[k]
        y[at] = leaves[k].y[rows]
        if X is not None:
            X[at] = leaves[k].X[rows]
    return y if X is None else (X, y)


@contextmanager
def spread(rows: Rows, look: Look, client: Any = None) -> Iterator[Spread]:
    """Leaves looked at, here or on the workers of a client.

    Parameters
    ----------
    rows      the data
    look      leaf -> what visits need of it
    client    a dask.distributed.Client; None: this process
    """
    # what the caller makes of sums is small beside them, and its bits are not to depend on its threads either; on a
    # machine that it shares with workers, threads of linear algebra that wait for each other would take their places
    with blas_threads(0):
        yield engine(rows, look, client)


def engine(rows: Rows, look: Look, client: Any = None) -> Spread:
    """`spread`, the caller's threads left as they are.

    Parameters
    ----------
    rows, look, client    see `spread`
    """
    return Here(rows, look) if client is None else Workers(client, rows, look)


def streamed(rows: Rows, answer: Callable[[Leaf], Any], client: Any = None) -> Iterator[tuple[int, Any]]:
    """(first row, answer) leaf by leaf, in order; on a cluster some leaves ahead of the one that is asked for.

    Parameters
    ----------
    rows      inputs
    answer    leaf -> anything
    client    a dask.distributed.Client; None: this process
    """
    if client is None:
        for leaf in rows.leaves:
            yield leaf.first, answer(leaf)
        return
    ahead = 2 * len(_answered(client, client.nthreads))
    flying: list[tuple[int, Any]] = []
    for leaf in rows.leaves:
        ((first, size, X, y),) = _on_cluster(client, Rows((leaf,), leaf.size, rows.d))
        flying.append((first, client.submit(_answer, answer, first, size, X, y, pure=False)))
        if len(flying) >= ahead:
            yield _received(flying.pop(0), client)
    for entry in flying:
        yield _received(entry, client)


def _received(entry: tuple[int, Any], client: Any) -> tuple[int, Any]:
    try:
        return entry[0], _answered(client, entry[1].result)
    except CancelledError as error:
        raise ClusterLostError(
            f"client: found the answer to row {entry[0]} and those after lost (client {client.status}), "
            "expected a scheduler that answers"
        ) from error


def _answer(answer: Callable[[Leaf], Any], first: int, size: int, X: Any, y: Any) -> Any:
    with blas_threads(0):
        return answer(Leaf(first, size, X, y))
