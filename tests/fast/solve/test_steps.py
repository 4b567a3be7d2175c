"""The loop of steps: how it ends, what a checkpoint continues, who looks on."""

import numpy as np
import pytest

from fast.solve.steps import Ended, Saving, run_steps


class Walk:
    """x <- x/2 + 1, which fails beyond a number of steps."""

    def __init__(self, fails_at=None):
        self.iteration, self.x, self.trace, self.fails_at = 0, 0.0, [], fails_at

    def step(self):
        if self.iteration + 1 == self.fails_at:
            raise ValueError("x: found 7, expected less")
        self.x = 0.5 * self.x + 1.0
        self.iteration += 1
        self.trace.append(self.x)
        return self.x

    def arrays(self):
        return {"x": np.array(self.x), "iteration": np.array(self.iteration), "trace": np.array(self.trace)}

    def restore(self, arrays):
        self.x, self.iteration = float(arrays["x"]), int(arrays["iteration"])
        self.trace = arrays["trace"].tolist()


def test_all_steps_are_made_and_each_is_looked_at():
    walk, looks = Walk(), []
    assert run_steps(walk, 5, after=lambda value: looks.append((walk.iteration, value))) == Ended(False, "5 steps made")
    # x_k = 2 - 2^(1 - k), exact in binary
    assert looks == [(k, 2.0 - 2.0 ** (1 - k)) for k in range(1, 6)]


def test_a_step_that_raises_ends_the_run_at_the_state_before_it():
    walk = Walk(fails_at=4)
    assert run_steps(walk, 9) == Ended(True, "step 4: x: found 7, expected less")
    assert walk.iteration == 3
    assert walk.x == 1.75


def test_errors_of_other_kinds_are_not_taken_for_divergence():
    walk = Walk()
    walk.step = lambda: [][0]
    with pytest.raises(IndexError):
        run_steps(walk, 3)


def test_a_run_goes_on_from_its_checkpoint_and_another_run_does_not_take_it(tmp_path):
    saving = Saving(tmp_path / "walk.npz", 2, "walk")
    first = Walk(fails_at=6)
    run_steps(first, 9, saving)
    again = Walk()
    looks = []
    assert run_steps(again, 9, saving, looks.append) == Ended(False, "9 steps made")
    assert len(looks) == 5  # steps 5 to 9: the file is of step 4, the last even one
    assert again.trace == [2.0 - 2.0 ** (1 - k) for k in range(1, 10)]
    with pytest.raises(ValueError, match="checkpoint"):
        run_steps(Walk(), 9, saving._replace(mark="another"))


def test_overflow_in_a_step_is_the_steps_own_affair():
    walk = Walk()

    def step():
        walk.iteration += 1
        return float(np.float64(1e300) * np.float64(1e300))

    walk.step = step
    assert run_steps(walk, 1) == Ended(False, "1 steps made")
