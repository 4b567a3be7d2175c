"""The tree's shape depends on the number of leaves alone."""

import numpy as np
import pytest

from fast.blockwise import tree


@pytest.mark.parametrize("n", [1, 2, 3, 7, 123])
@pytest.mark.parametrize("depth", [0, 1, 2, 3, 6])
def test_parts_are_nodes_of_the_tree_so_that_every_division_gives_the_same_bits(n, depth):
    rng = np.random.default_rng(n)
    leaves = rng.standard_normal((n, 5)) * 10.0 ** rng.integers(-8, 8, size=(n, 1))
    whole = tree.over(0, n, lambda k: (leaves[k],))

    def joined(node):
        if isinstance(node, list):
            return tree.add(*(joined(side) for side in node))
        return tree.over(*node, lambda k: (leaves[k],))

    result = tree.plan(0, n, depth)
    assert joined(result)[0].tobytes() == whole[0].tobytes()
    ends = list(tree.parts(result))
    assert [start for start, _ in ends] == [0, *(stop for _, stop in ends[:-1])]
    assert ends[-1][1] == n
    sizes = [stop - start for start, stop in ends]
    assert max(sizes) - min(sizes) <= 1
    np.testing.assert_allclose(whole[0], leaves.sum(axis=0), rtol=0, atol=1e-12 * np.abs(leaves).sum())
