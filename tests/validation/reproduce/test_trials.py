"""Trials of statements: what is asked for is run, every trial's claim is in the inventory, and two are seen to fail."""

import numpy as np
import pytest

from validation.claims import inventory
from validation.reproduce import trials as common
from validation.reproduce.decisions import below
from validation.reproduce.izmailov2016 import trials as of_izmailov
from validation.reproduce.riihimaki2013 import trials as of_riihimaki
from validation.reproduce.villacampa2017 import trials as of_2017
from validation.reproduce.villacampa2020 import trials as of_2020
from validation.reproduce.wenzel2019 import trials as of_wenzel

MODULES = {
    "izmailov2016": of_izmailov, "riihimaki2013": of_riihimaki, "villacampa2017": of_2017, "villacampa2020": of_2020,
    "wenzel2019": of_wenzel,
}  # fmt: skip


@pytest.mark.parametrize("paper", MODULES)
def test_every_trial_is_of_a_claim(paper):
    assert set(MODULES[paper].TRIALS) <= {claim.id for claim in inventory.load()[paper]}


def test_the_trials_asked_for_are_run_with_the_seed():
    seeds = []

    def trial(name, value):
        def run(seed):
            seeds.append((name, seed))
            yield below(name, "a number", value, 1.0)

        return run

    both = {"a": trial("a", 0.5), "b": trial("b", 2.0)}
    lines = []
    outcome = common.run(both, common.TrialOptions(claims=("b",), seed=3), lines.append, ("a note",))
    assert seeds == [("b", 3)]
    assert [row[-2] for row in outcome.tables[0].rows] == ["fails"]
    assert outcome.notes == ("a note",)
    assert any("fails" in line for line in lines)
    common.run(both, common.TrialOptions(), lines.append)
    assert seeds[1:] == [("a", 0), ("b", 0)]
    with pytest.raises(ValueError, match="claims: found 'c'"):
        common.run(both, common.TrialOptions(claims=("c",)), lines.append)


def test_the_joint_view_of_ep_holds_and_sees_a_wrong_prior(monkeypatch):
    assert [one.held for one in of_2020.TRIALS["ep-joint-view"](0)] == [True, True]
    small = of_2020._small

    def without_noise(*sizes):
        problem, joint, inner = small(*sizes)
        n = problem.n
        return problem, [K - np.diag(np.append(np.full(n, 0.05), np.zeros(len(K) - n))) for K in joint], inner

    monkeypatch.setattr(of_2020, "_small", without_noise)
    assert [one.held for one in of_2020.TRIALS["ep-joint-view"](0)] == [False, False]


def test_exact_class_probabilities_are_those_of_many_draws():
    K, y = of_riihimaki._problem(5)
    n = len(y) + 1
    f = np.random.default_rng(0).multivariate_normal(np.zeros(2 * n), K, 200_000)
    p = 1.0 / (1.0 + np.exp(f[:, n:] - f[:, :n]))  # of class 0 at the data and the test point
    weights = np.prod(np.where(y == 0, p[:, :-1], 1.0 - p[:, :-1]), axis=1)
    share = weights / weights.sum()
    estimate = float(share @ p[:, -1])
    error = float(np.sqrt(np.sum((share * (p[:, -1] - estimate)) ** 2)))
    assert abs(of_riihimaki._exact(K, y)[0] - estimate) < 4.0 * error  # 1 in 16 000


def test_a_newton_step_finds_the_mode_where_the_prior_leaves_it_next_to_none_to_go():
    K, y = of_riihimaki._problem(5)
    K *= 1e-3  # the mode is 1e-3 from the start, and Newton's method squares what is left
    one, whole = of_riihimaki._one_step(K, y), of_riihimaki.la_tkp(K, y, 2)
    np.testing.assert_allclose(one, whole, rtol=0.0, atol=1e-6)
    # at the prior's mean the probabilities are a half: what the data say is seeds, not that alone
    assert np.abs(whole - 0.5).max() > 1e-5


@pytest.mark.parametrize("ends", ["falls", "overflows"])
def test_the_rate_is_raised_until_svi_diverges(ends, monkeypatch):
    """It goes on while accuracy is near its best, and no further; an error of another kind is raised."""
    tried = []

    def score(method, parts, seed, rounds, *, rate):
        tried.append(rate)
        if rate > 1.0:
            if ends == "overflows":
                raise ValueError("variance: found 1e+15, expected at most 1e+12")
            return 0.5
        return 0.9 if rate * rounds > 100.0 else 0.8

    monkeypatch.setattr(of_izmailov, "_parts", lambda name, seed: None)
    monkeypatch.setattr(of_izmailov, "_score", score)
    drop, soonest = of_izmailov._rates(0)
    assert sorted(set(tried)) == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert drop.observed == pytest.approx(0.4 if ends == "falls" else 0.9)
    assert "at rate 1.6" in drop.compared
    assert (soonest.observed, soonest.limit) == (200.0, 1600.0)  # steps at .8 and at .1
    assert drop.held
    assert soonest.held

    def broken(*_, **__):
        raise ValueError("X: found nothing, expected rows")

    monkeypatch.setattr(of_izmailov, "_score", broken)
    with pytest.raises(ValueError, match=r"^X: found nothing"):
        list(of_izmailov._rates(0))
