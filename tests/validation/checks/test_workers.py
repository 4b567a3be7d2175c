"""The checks of data in parts on workers, and a mistake in each piece that they ask about."""

import pytest

_PLANTED = (
    (
        "invariance/x-gpc/workers",
        "fast.blockwise.engines",
        "(n_parts or len(workers)) - 1",
        "(n_parts or len(workers)) + 1",
    ),
    (
        "invariance/x-gpc/workers",
        "fast.blockwise.engines",
        "k * len(workers) // len(self.parts)",
        "k * len(self.parts) // len(workers)",
    ),
    (
        "invariance/x-gpc/workers",
        "fast.blockwise.engines",
        "home = self._homes[first + n_left]",
        "home = self._homes[first]",
    ),
    (
        "invariance/x-gpc/workers",
        "fast.blockwise.engines",
        "root(node[1], first + n_left)",
        "root(node[1], first)",
    ),
    (
        "invariance/x-gpc/workers",
        "fast.blockwise.engines",
        "                why = error\n                self._hold()",
        "                why = error",
    ),
    (
        "invariance/x-gpc/workers",
        "fast.blockwise.engines",
        '!= "running"',
        '== "running"',
    ),
    (
        "invariance/ep/workers",
        "fast.blockwise.engines",
        "sums = held.sums(visit, state)\n                held.count",
        "sums = held.sums(*past.visits[-1])\n                held.count",
    ),
    (
        "invariance/gfitc/workers",
        "fast.blockwise.engines",
        "_Past(past)",
        "_Past(past[::-1])",
    ),
    (
        "invariance/pep/workers",
        "fast.blockwise.engines",
        "visit.keeps and held.count == due + 1",
        "visit.keeps and held.count >= due",
    ),
    (
        "invariance/x-gpc/rows_taken",
        "fast.blockwise.engines",
        "y[at] = leaves[k].y[rows]",
        "y[at] = leaves[k].y[at]",
    ),
    (
        "invariance/x-gpc/rows_taken",
        "fast.blockwise.engines",
        'side="right") - 1\n    y = ',
        'side="left") - 1\n    y = ',
    ),
    (
        "invariance/x-gpc/rows_taken",
        "fast.blockwise.engines",
        "X = None if labels else",
        "X = None if not labels else",
    ),
    (
        "invariance/x-gpc/rows_taken",
        "fast.blockwise.engines",
        "[self.rows.leaves[start].first for",
        "[start for",
    ),
    (
        "invariance/x-gpc/rows_taken",
        "fast.blockwise.engines",
        "                    self._make_up()\n            except",
        "                    self._make_up()\n                break\n            except",
    ),
    (
        "invariance/x-gpc/rows_taken",
        "fast.blockwise.engines",
        "isinstance(answer, OSError)",
        "isinstance(answer, ValueError)",
    ),
    (
        "invariance/x-gpc/rows_taken",
        "fast.blockwise.engines",
        "state, lock=threading.Lock()",
        'state | {"count": 0}, lock=threading.Lock()',
    ),
    (
        "invariance/x-gpc/rows_taken",
        "fast.blockwise.engines",
        "range(_ATTEMPTS)",
        "range(_ATTEMPTS + 1)",
    ),
    (
        "invariance/x-gpc/rows_taken",
        "fast.blockwise.engines",
        "self.client.gather, tasks",
        "self.client.gather, tasks[::-1]",
    ),
    (
        "invariance/x-gpc/leaves",
        "fast.blockwise.engines",
        "ahead = 2 * len",
        "ahead = 3 * len",
    ),
    (
        "invariance/x-gpc/leaves",
        "fast.blockwise.engines",
        "flying.pop(0)",
        "flying.pop()",
    ),
    (
        "invariance/x-gpc/leaves",
        "fast.blockwise.rows",
        "lengths=True",
        "lengths=False",
    ),
    (
        "invariance/x-gpc/leaves",
        "fast.blockwise.rows",
        "if size > 0",
        "if size >= 0",
    ),
    (
        "invariance/x-gpc/leaves",
        "fast.blockwise.rows",
        "int(array.offset)",
        "0",
    ),
    (
        "invariance/x-gpc/leaves",
        "fast.blockwise.rows",
        "firsts[:-1]",
        "firsts[1:]",
    ),
    (
        "invariance/x-gpc/leaves",
        "fast.blockwise.quadratic",
        "return 0.0",
        "return 1.0",
    ),
)


@pytest.mark.parametrize("asked", sorted({row[0] for row in _PLANTED}))
def test_healthy_witnesses_pass(reds, asked):
    assert reds("workers", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    rooms = ("quadratic", "classes", "sites", "energies", "multiclass")
    assert reds("workers", asked, (module, old, new), tuple(f"fast.blockwise.{room}" for room in rooms))
