"""Lines of the benches beside other programs: their ratios, targets and verdicts from given seconds and curves."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from validation import problems
from validation.bench import evidence, gpflow_steps, nuts, peers, peers_multiclass
from validation.bench.peers_multiclass import Curve


def lines(rows):
    return {row.quantity: row for row in rows}


def curve(nll, step):
    """Scores after every step of so many seconds."""
    return Curve(list(range(1, len(nll) + 1)), [step * (k + 1) for k in range(len(nll))], list(nll), [], step)


@pytest.mark.parametrize(("seconds", "met"), [((1.0, 6.5), True), ((1.0, 5.5), False)])
def test_a_peers_step_is_asked_to_take_so_many_times_ours(seconds, met):
    held = lines(peers.step_rows("GPflow natural gradients", seconds, False))
    row = held["GPflow natural gradients, kernel and Z held: its step over ours"]
    assert (row.value, row.target, row.met) == (seconds[1], ">= 6", met)
    free = lines(peers.step_rows("GPyTorch Pólya-Gamma", seconds, False))
    assert free["GPyTorch Pólya-Gamma, kernel and Z held: its step over ours"].met is None


def test_steps_and_memory_of_several_classes_are_compared_with_both_of_gpflows():
    seconds = dict(zip(peers_multiclass._STEP_PROGRAMS, (1.0, 2.0, 5.0, 3.0), strict=True))
    rows = lines(peers_multiclass.step_rows("b", "shape", seconds))
    assert rows["GPflow, natural gradients and Adam: its step over that of sep"].met is True
    assert rows["GPflow, Adam: its step over that of apep"].value == 1.5
    grown = dict(zip(peers_multiclass._STEP_PROGRAMS, (50.0, 60.0, 300.0, 250.0), strict=True))
    share = lines(peers_multiclass.memory_rows("b", grown))["sep: its memory over GPflow's"]
    assert (share.value, share.met) == (0.2, True)


def test_the_robust_likelihood_is_judged_by_the_soonest_run_of_each_side():
    ours = {"a": curve([0.3, 0.1, 0.02], 1.0), "b": curve([0.5, 0.4, 0.3], 0.1)}
    theirs = {"c": curve([0.2, 0.09, 0.03], 5.0), "d": curve([0.2, 0.2, 0.2], 1.0)}
    rows = lines(peers_multiclass.robust_rows("wine", ours, theirs))
    assert rows["wine: to 0.0300, a"].value == 3.0
    assert np.isnan(rows["wine: to 0.0300, b"].value)
    ratio = rows["wine: to 0.0300, GPflow's seconds over ours"]
    assert (ratio.value, ratio.target, ratio.met) == (5.0, ">= 5", True)
    digits = lines(peers_multiclass.robust_rows("digits", ours, theirs))
    assert "digits: to 0.0200, a" not in digits  # its fixed targets are others
    alone = digits["digits: to 0.0520, GPflow's seconds over ours"]
    assert alone.met is True


def test_effective_draws_and_their_ratio():
    rng = np.random.default_rng(0)
    assert 1200 < nuts.worst_effective(rng.standard_normal((4, 500, 3))) < 3000
    ratio = lines(nuts.rows("toy", "gibbs-logit", 500.0, 4.0))["toy: gibbs-logit over NUTS"]
    assert (ratio.value, ratio.met) == (125.0, True)


@pytest.mark.parametrize("name", ["toy", "toy-3"])
def test_the_peers_prior_is_that_of_the_problem(name):
    problem = problems.get(name)
    roots = nuts.prior_roots(problem)
    assert roots.shape == (len(problem.variance), problem.n, problem.n)
    K = roots[0] @ roots[0].T
    i, j = 0, problem.n - 1
    gap = (problem.X[i] - problem.X[j]) / problem.lengthscales[0]
    assert K[i, j] == pytest.approx(problem.variance[0] * np.exp(-0.5 * gap @ gap), rel=1e-12)
    assert K[i, i] == pytest.approx(problem.variance[0] + problem.noise[0] + problem.jitter[0], rel=1e-12)


def test_a_missing_program_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LookupError, match=r"^numpyro: found no such package, expected .*pip install numpyro"):
        list(nuts.nuts())
    for bench in (peers_multiclass.classes_step, peers_multiclass.robust):
        with pytest.raises(LookupError, match=r"^gpflow: found no such package"):
            list(bench())


def test_evidence_beyond_reach_is_a_line_too():
    few = evidence.labelled(4, 3, 0.0, "multinomial-probit")
    cases = ((few, "exact-probit", {"n_draws": 200}), (few, "exact-probit", {"n_draws": 0}))
    good, error, refused = evidence.evidence(cases=cases)
    assert (good.unit, good.met) == ("s", True)
    assert error.unit == "nat"
    assert refused.met is False
    assert "n_draws: found 0" in refused.quantity


class _Variable:
    """A variable as TensorFlow's: it is assigned and read."""

    def __init__(self, value):
        self.value = value

    def assign(self, value):
        self.value = value


def test_a_run_that_leaves_the_numbers_starts_again_at_half_the_rate(monkeypatch):
    class InvalidArgumentError(Exception):
        pass

    tensorflow = SimpleNamespace(errors=SimpleNamespace(InvalidArgumentError=InvalidArgumentError))
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    seen = []

    def run(rate):
        gamma = _Variable(0.0)
        steps = gpflow_steps.NaturalSteps(gamma, rate)

        def step():
            seen.append(gamma.value)
            if gamma.value > bound:
                raise InvalidArgumentError

        for _ in range(gpflow_steps.RAMP + 5):
            steps.make(step)
        return steps.made

    bound = 0.06
    assert gpflow_steps.at_finite_rate(run, 0.2) == (gpflow_steps.RAMP + 5, 2)
    second = seen[-gpflow_steps.RAMP - 5 :]  # from its start
    assert second[0] == pytest.approx(0.05e-3)
    assert second[-5:] == pytest.approx([0.05] * 5)
    bound = -1.0
    with pytest.raises(gpflow_steps.NotFiniteError, match="step 0"):
        gpflow_steps.at_finite_rate(run, 0.2)
    with pytest.raises(ZeroDivisionError):  # another error is no matter of the rate
        gpflow_steps.at_finite_rate(lambda rate: 1 / 0, 0.2)


def test_a_warm_run_counts_its_start_as_one_step():
    cold = peers.Curve([7.0, 7.5, 9.0], [0.3, 0.2, 0.1])  # 2 s for the four steps after the first
    assert peers.without_start(cold, 5) == peers.Curve([0.5, 1.0, 2.5], [0.3, 0.2, 0.1])
