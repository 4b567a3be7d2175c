"""What is left of a run is told from what its parts took before, and not before anybody can know."""

import pytest

from validation.screen.forecast import EARLIEST, Forecast, Lines, Steps, work

A, B, C = ("identity/x/a", "toy"), ("identity/x/b", "toy"), ("bound/x/c", "-")


def test_what_is_left_is_the_rest_of_the_work_at_the_speed_so_far():
    forecast = Forecast({A: 1.0, B: 3.0, C: 6.0})
    forecast.done(A)
    forecast.done(B)
    # four tenths took 20 s: the other six take 30
    assert forecast.left(20.0) == pytest.approx(30.0, rel=1e-12)
    assert forecast.words(20.0) == "about 30 s left"
    assert forecast.words(200.0) == "about 5 min left"
    forecast.done(C)
    assert forecast.left(30.0) == 0.0
    assert forecast.words(30.0) == ""


def test_nothing_is_told_too_early_or_of_parts_that_were_not_asked():
    forecast = Forecast({A: 1.0, B: 99.0})
    assert forecast.words(60.0) == ""
    forecast.done(("other", "toy"))
    forecast.done(A)
    assert forecast.left(60.0) is None  # a hundredth of the work
    forecast.done(B)
    assert forecast.left(EARLIEST / 2.0) is None
    assert Forecast({}).words(10.0) == ""


def test_work_is_what_parts_took_the_last_time(tmp_path):
    file = tmp_path / "checks.csv"
    file.write_text("check,problem,seconds\nidentity/x/a,toy,2\nidentity/x/a,toy,0.5\nbound/x/c,-,4.5\n", "utf-8")
    # two verdicts of one check are one part; b was not there and gets the mean
    assert work([A, B, C], file) == {A: 2.5, B: 3.5, C: 4.5}
    assert work([A], file) == {A: 2.5}


@pytest.mark.parametrize("text", [None, "", "a,b\n1,2\n", "check,problem,seconds\nx,toy,soon\n", "\x00"])
def test_a_file_that_says_nothing_makes_all_parts_alike(tmp_path, text):
    file = tmp_path / "checks.csv"
    if text is not None:
        file.write_text(text, "utf-8")
    assert work([A, B], file) == {A: 1.0, B: 1.0}


def test_steps_count_themselves_and_forecast_once_one_can_tell(monkeypatch):
    now = iter([0.0, 0.1, 10.0, 20.0])
    monkeypatch.setattr("validation.screen.forecast.time.perf_counter", lambda: next(now))
    steps = Steps(["a", "a", "b"])
    assert steps.begin() == "1 of 3"
    assert steps.begin() == "2 of 3; about 20 s left"
    assert steps.begin() == "3 of 3; about 10 s left"


class Clock:
    """Seconds that pass when the test says so."""

    now = 0.0

    def __call__(self):
        return self.now


def test_lines_of_progress_say_what_is_left_by_what_is_done(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("validation.screen.forecast.time.perf_counter", clock)
    done, begun = Lines(4), Lines(4, ahead=True)
    clock.now = 5.0
    assert done.said() == " (1 of 4; about 15 s left)"
    assert begun.said() == " (1 of 4)"  # a line that announces the first part says nothing of how long it takes
    clock.now = 10.0
    assert done.said() == " (2 of 4; about 10 s left)"
    assert begun.said() == " (2 of 4; about 30 s left)"
    clock.now = 16.0
    assert done.words() == "2 of 4; about 5 s left"
    clock.now = 60.0
    assert done.words() == "2 of 4"  # the third takes longer than two did: nobody can tell
    for _ in range(3):
        told = done.said()
    assert told == " (5 of 5)"


def test_lines_nobody_knows_the_number_of_foresee_nothing():
    lines = Lines(None)
    assert lines.said() == ""
    assert lines.words() == ""
