"""The loop of steps: how it ends, what a checkpoint continues, who looks on."""

import numpy as np
import pytest

from fast.core.ending import ending
from fast.solve.steps import Ended, Saving, Stepping, run_steps


class Walk(Stepping):
    """x <- x/2 + 1, which fails beyond a number of steps."""

    def __init__(self, fails_at=None):
        self.iteration, self.x, self.trace, self.fails_at = 0, 0.0, [], fails_at

    def step(self, batch):
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
    end = run_steps(walk, 9)
    assert end[:3] == (True, "step 4: x: found 7, expected less", False)
    with pytest.raises(ValueError, match="x: found 7"):  # what a method that does not return a diverged run raises
        raise end.error
    assert walk.iteration == 3
    assert walk.x == 1.75


def test_errors_of_other_kinds_are_not_taken_for_divergence():
    walk = Walk()
    walk.step = lambda batch: [][0]
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

    def step(batch):
        walk.iteration += 1
        return float(np.float64(1e300) * np.float64(1e300))

    walk.step = step
    assert run_steps(walk, 1) == Ended(False, "1 steps made")


class Told(Walk):
    """A walk that says what was asked of it, in order."""

    def __init__(self, **options):
        super().__init__(**options)
        self.log = []

    def start(self):
        self.log.append("start")

    def draw(self):
        self.log.append("draw")
        return self.iteration

    def step(self, batch):
        self.log.append(f"step on {batch}")
        return super().step(batch)

    def measure(self, value):
        self.log.append(f"measure {value}")

    def arrays(self):
        self.log.append("arrays")
        return super().arrays()


def test_a_step_is_drawn_made_measured_saved_told_and_looked_at_in_this_order(tmp_path, monkeypatch):
    monkeypatch.setattr("fast.core.ending._FIRST", 0.0)
    walk = Told()
    with ending(None, lambda line: walk.log.append(line.split(",")[0])):
        run_steps(walk, 1, Saving(tmp_path / "walk.npz", 1, "walk"), lambda value: walk.log.append("after"))
    # arrays are asked for twice: for their types and shapes, then for the checkpoint
    assert walk.log == ["arrays", "start", "draw", "step on 0", "measure 1.0", "arrays", "step 1 of 1", "after"]


def test_a_run_that_continues_another_does_not_start_anew(tmp_path):
    saving = Saving(tmp_path / "walk.npz", 1, "walk")
    run_steps(Told(), 1, saving)
    again = Told()
    run_steps(again, 2, saving)
    assert "start" not in again.log
    assert again.iteration == 2


def test_the_run_ends_where_the_look_after_a_step_says_so_once_that_step_is_saved(tmp_path):
    saving, stands = Saving(tmp_path / "walk.npz", 1, "walk"), Ended(False, "x stands still", converged=True)
    walk = Walk()
    assert run_steps(walk, 9, saving, lambda value: stands if value > 1.8 else None) is stands
    assert walk.iteration == 4  # 2 - 1/8
    again = Walk()
    assert run_steps(again, 4, saving) == Ended(False, "4 steps made")
    assert again.x == walk.x


@pytest.mark.parametrize("name", ["start", "draw", "measure"])
def test_errors_beside_a_step_are_raised_and_do_not_count_as_divergence(name):
    walk = Walk()

    def fail(*given):
        raise ValueError("X: found a value that is not finite, expected finite numbers")

    setattr(walk, name, fail)
    with pytest.raises(ValueError, match="X: found a value"):
        run_steps(walk, 3)


@pytest.mark.parametrize("at_least", [0, 1, 3])
def test_first_steps_are_made_though_the_time_is_spent(at_least):
    walk = Walk()
    walk.at_least = at_least
    with ending(1e-9):
        end = run_steps(walk, 9)
    assert walk.iteration == at_least
    assert end == Ended(False, f"max_time of 1e-09 s spent, {at_least} of 9 steps made")


class Halves(Walk):
    """A walk whose checkpoints hold x of the step before from the second step on."""

    growing = ("trace",)

    def arrays(self):
        return super().arrays() | ({"before": np.array(self.trace[-2])} if self.iteration > 1 else {})

    def optional(self):
        return {"before": np.array(0.0)}

    def restore(self, arrays):
        super().restore(arrays)
        self.before = float(arrays["before"]) if "before" in arrays else None


@pytest.mark.parametrize(("made", "before"), [(1, None), (3, 1.5)])
def test_an_array_may_be_in_some_checkpoints_only(tmp_path, made, before):
    saving = Saving(tmp_path / "walk.npz", 1, "walk")
    run_steps(Halves(), made, saving)
    again = Halves()
    run_steps(again, made, saving)
    assert again.iteration == made
    assert again.before == before


def test_an_array_that_does_not_grow_has_the_shape_of_the_run_or_is_refused(tmp_path):
    saving = Saving(tmp_path / "walk.npz", 1, "walk")
    run_steps(Walk(), 2, saving)
    other = Walk()
    other.growing = ()
    with pytest.raises(ValueError, match="trace has shape"):
        run_steps(other, 3, saving)
