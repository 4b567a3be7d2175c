"""Islands of particles worked apart: one schedule, a stream for each, digits that no order of work moves."""

from dataclasses import replace

import numpy as np
import pytest

from gibbs.evidence import annealed, sequential, softmax_annealed

N = 5


def covariance():
    X = np.random.default_rng(2).standard_normal((N, 2))
    square = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    return 3.0 * np.exp(-0.5 * square) + 0.1 * np.eye(N)


def full():
    y_sign = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    return annealed, annealed.choose_schedule(np.random.default_rng(1), covariance(), y_sign)


def fitc():
    K = covariance()
    y_sign = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    arguments = (K[:2, :2], K[:, :2], np.full(N, 3.2), y_sign)
    return annealed, annealed.choose_schedule_fitc(np.random.default_rng(1), *arguments)


def probit():
    cov = np.stack([covariance() + np.eye(N)] * 3)
    return sequential, sequential.choose_schedule_of_labels(cov, np.array([0, 1, 2, 0, 1]), 0.05)


def softmax():
    cov = np.stack([covariance()] * 3)
    return softmax_annealed, softmax_annealed.choose_schedule(np.random.default_rng(1), cov, np.array([0, 1, 2, 0, 1]))


SCHEDULES = {"full": full, "fitc": fitc, "probit": probit, "softmax": softmax}


def estimate(name, spread, **options):
    module, plan = SCHEDULES[name]()
    return module.estimate(np.random.default_rng(3), plan, spread, replace(module.DEFAULTS, **options))


class Backwards:
    """Works the last share first, and keeps what it was given."""

    def __init__(self):
        self.parts = []

    def __call__(self, function, parts):
        self.parts.append(list(parts))
        return [function(part) for part in reversed(parts)][::-1]


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_order_of_work_moves_no_digit(name):
    backwards = Backwards()
    assert estimate(name, map, max_rounds=1) == estimate(name, backwards, max_rounds=1)
    (parts,) = backwards.parts
    assert len(parts) == 16
    assert len({part.seed for part in parts}) == 16
    # all but the seed is common: one schedule
    assert all(part.common is parts[0].common for part in parts)


@pytest.mark.parametrize("name", SCHEDULES)
def test_islands_apart_and_side_by_side_agree_by_their_errors(name):
    together, apart = estimate(name, None), estimate(name, map)
    assert together != apart
    assert abs(together.value - apart.value) < 3.9 * np.hypot(together.standard_error, apart.standard_error)
    assert apart.trusted
    assert together.detail.keys() == apart.detail.keys()


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_second_round_has_more_particles_and_other_streams(name):
    backwards = Backwards()
    result = estimate(name, backwards, n_particles=8, n_islands=6, target_error=0.02, max_rounds=2)
    first, second = backwards.parts
    assert result.detail["rounds"] == 2.0
    assert second[0].n_particles > first[0].n_particles
    assert not {part.seed for part in first} & {part.seed for part in second}
