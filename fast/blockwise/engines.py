"""Who visits the leaves: this process, or the workers of a Dask cluster, each with the leaves of its part of the tree.

A visit has no memory of the one before: what it needs of q comes with it. So a part of a worker that died is looked at
again by another one, and its sums are the same to the last bit. In a sweep a worker receives q once and two sums at
most, however many workers there are; the caller receives the root alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from threadpoolctl import threadpool_limits

from fast.blockwise.rows import Leaf, Rows
from fast.blockwise.tree import Plan, Sums, add, over, parts, plan

Look = Callable[[Leaf], Any]  # what visits need of a leaf, made once where it lives


class Visit(NamedTuple):
    """What is asked of every leaf in a sweep: functions of a module, so that a task carries no arrays but the state."""

    ready: Callable[[Any], Any]  # state -> what all leaves of a part need of it, made once
    leaf: Callable[[Any, Any], Sums]  # (look, ready) -> sums of the leaf


_ATTEMPTS = 30  # at one sweep, while workers die under it


class Spread(Protocol):
    """Leaves that were looked at, ready to be summed over."""

    def total(self, visit: Visit, state: Any) -> Sums:
        """The sum of a visit over all leaves."""
        ...


class ClusterLostError(RuntimeError):
    """The scheduler does not answer, or worker after worker dies."""


class Here:
    """All leaves in this process."""

    def __init__(self, rows: Rows, look: Look) -> None:
        with threadpool_limits(limits=1):
            self._looks = [look(leaf) for leaf in rows.leaves]

    def total(self, visit: Visit, state: Any) -> Sums:
        """The sum of a visit over all leaves.

        Parameters
        ----------
        visit, state    see `Spread`
        """
        with threadpool_limits(limits=1):  # more threads would add in an order of their own
            ready = visit.ready(state)
            return over(0, len(self._looks), lambda k: visit.leaf(self._looks[k], ready))


class Workers:
    """Leaves on the workers of a Dask client, in parts that are nodes of the tree.

    client     of the cluster
    rows       the data
    look       made of every leaf where it lives
    n_parts    at least so many; None: one a worker, rounded up to a power of two
    """

    def __init__(self, client: Any, rows: Rows, look: Look, n_parts: int | None = None) -> None:
        self.client, self.rows, self.look = client, rows, look
        workers = sorted(client.nthreads())
        if not workers:
            raise ClusterLostError(f"client: found no worker at {client.scheduler.address}, expected at least one")
        depth = max(0, ((n_parts or len(workers)) - 1).bit_length())
        self.plan: Plan = plan(0, len(rows.leaves), depth)
        self.parts = list(parts(self.plan))
        self._homes = [workers[k * len(workers) // len(self.parts)] for k in range(len(self.parts))]
        self._leaves = _on_cluster(client, rows)
        self._held: list[Any] = []
        self._hold()

    def _hold(self) -> None:
        self._held = [
            self.client.submit(
                _hold, self.look, self._leaves[start:stop], workers=[home],
                allow_other_workers=True, pure=False,
            )
            for (start, stop), home in zip(self.parts, self._homes, strict=True)
        ]  # fmt: skip

    def total(self, visit: Visit, state: Any) -> Sums:
        """The sum of a visit over all leaves; begun again where workers die under it.

        Parameters
        ----------
        visit, state    see `Spread`

        Raises
        ------
        ClusterLostError    the scheduler is lost, or workers die faster than a sweep takes
        """
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        why: BaseException | None = None
        for _ in range(_ATTEMPTS):
            if self.client.status != "running":
                break
            try:
                return self._once(visit, state)
            except CancelledError as error:  # what was scattered died with its worker
                why = error
            except KilledWorker as error:
                why = error
                self._hold()
        raise ClusterLostError(
            f"client: found the sums of a sweep lost ({type(why).__name__}: {why}; client {self.client.status}), "
            "expected workers that live longer than a sweep, and a scheduler that answers"
        ) from why

    def _once(self, visit: Visit, state: Any) -> Sums:
        (shared,) = self.client.scatter([state], hash=False)
        sums = [self.client.submit(_visit, held, visit, shared, pure=False) for held in self._held]

        def root(node: Plan, first: int) -> tuple[Any, int]:
            """The sum over a node whose first part is this one, and the number of its parts."""
            if not isinstance(node, list):
                return sums[first], 1
            left, n_left = root(node[0], first)
            other, n_other = root(node[1], first + n_left)
            # added where the first part of the right side lives: no worker adds twice, so none receives more than two
            home = self._homes[first + n_left]
            added = self.client.submit(add, left, other, workers=[home], allow_other_workers=True, pure=False)
            return added, n_left + n_other

        result: Sums = root(self.plan, 0)[0].result()
        return result


def _on_cluster(client: Any, rows: Rows) -> list[tuple[int, int, Any, Any]]:
    """Leaves as a worker is given them; chunks of a Dask collection are computed there and stay there."""
    lazy = [part for leaf in rows.leaves for part in (leaf.X, leaf.y) if hasattr(part, "compute")]
    computed = iter(client.compute(lazy) if lazy else ())
    return [
        (leaf.first, leaf.size, *(next(computed) if hasattr(part, "compute") else part for part in (leaf.X, leaf.y)))
        for leaf in rows.leaves
    ]


def _hold(look: Look, leaves: list[tuple[int, int, Any, Any]]) -> list[Any]:
    """On a worker: its part of the leaves, each looked at."""
    with threadpool_limits(limits=1):
        return [look(Leaf(*leaf)) for leaf in leaves]


def _visit(held: list[Any], visit: Visit, state: Any) -> Sums:
    """On a worker: the sum over its part, by the same tree as everywhere."""
    with threadpool_limits(limits=1):
        ready = visit.ready(state)
        return over(0, len(held), lambda k: visit.leaf(held[k], ready))


@contextmanager
def spread(rows: Rows, look: Look, client: Any = None) -> Iterator[Spread]:
    """Leaves looked at, here or on the workers of a client.

    Parameters
    ----------
    rows      the data
    look      leaf -> what visits need of it
    client    a dask.distributed.Client; None: this process
    """
    yield Here(rows, look) if client is None else Workers(client, rows, look)


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
    ahead = 2 * len(client.nthreads())
    flying: list[tuple[int, Any]] = []
    for leaf in rows.leaves:
        ((first, size, X, y),) = _on_cluster(client, Rows((leaf,), leaf.size, rows.d))
        flying.append((first, client.submit(_answer, answer, first, size, X, y, pure=False)))
        if len(flying) >= ahead:
            yield _received(flying.pop(0))
    for entry in flying:
        yield _received(entry)


def _received(entry: tuple[int, Any]) -> tuple[int, Any]:
    return entry[0], entry[1].result()


def _answer(answer: Callable[[Leaf], Any], first: int, size: int, X: Any, y: Any) -> Any:
    with threadpool_limits(limits=1):
        return answer(Leaf(first, size, X, y))
