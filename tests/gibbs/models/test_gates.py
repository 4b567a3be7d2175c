"""When chains call themselves a truth, and whose files they go on from: for every sampler."""

import numpy as np
import pytest

from gibbs_samplers import (
    sample_fitc,
    sample_full,
    sample_hyper,
    sample_pairwise,
    sample_probit,
    sample_softmax,
    sample_threshold,
)

X2 = np.array([[0.0], [1.5]])
EASY = {"X": X2, "y": np.array([0, 1]), "n_classes": 2, "variance": 1.0, "lengthscales": [1.0], "noise": 0.1,
        "jitter": 1e-3, "X_test": X2[:1]}  # fmt: skip
LONG = {"n_chains": 40, "n_draws": 500, "n_warmup": 100, "seed": 1}
PAIRS = EASY | {"Z": X2[:1] + 0.3, "prior_model": "fitc"}
VARIANCE = {"hyperprior": {"variance": ("log-normal", 0.5, 1.0)}, "learn": ("variance",)}


@pytest.mark.parametrize(
    ("sample", "given"),
    [
        (sample_softmax, EASY), (sample_pairwise, PAIRS),
        pytest.param(sample_hyper, {"likelihood": "probit"} | EASY | VARIANCE, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_chains_that_mix_pass_the_gate_once_they_are_long_enough(sample, given):
    assert sample(**given, **LONG).gate
    assert not sample(**given, **(LONG | {"n_draws": 90})).gate  # less than a hundred autocorrelation times


@pytest.mark.parametrize(
    ("sample", "given", "n_draws"),
    [
        (sample_pairwise, PAIRS, 5000),
        pytest.param(sample_probit, EASY | {"likelihood": "probit"}, 5000, marks=pytest.mark.slow),
        pytest.param(sample_hyper, {"likelihood": "probit"} | EASY | VARIANCE, 5000, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_three_chains_are_no_truth_however_long_they_are(sample, given, n_draws):
    chains = sample(**given, n_chains=3, n_draws=n_draws, n_warmup=50, seed=1)
    # all but their number is as it should be
    assert chains.settled
    assert all(each.gate() for each in chains.convergence.values())
    assert not chains.gate


def test_a_run_that_ends_before_its_target_is_no_truth():
    short = sample_softmax(**EASY, **LONG, target_ess=1e9, max_draws=500)
    assert not short.target_reached
    assert all(each.gate() for each in short.convergence.values())
    assert not short.gate


# -- files -----------------------------------------------------------------------------------------------------------

THREE = {
    "X": np.array([[-0.6, 0.1], [0.5, -0.2], [0.2, 0.9]]), "y": np.array([2, 0, 1]), "n_classes": 3,
    "variance": np.array([2.0, 1.2, 3.1]), "lengthscales": np.array([[0.9, 1.2], [0.7, 0.8], [1.3, 0.6]]),
    "noise": np.array([0.3, 0.5, 0.2]), "jitter": 1e-3, "X_test": np.array([[0.2, 0.3]]), "smoothness": 1.5,
}  # fmt: skip
Z = np.array([[-0.4, 0.0], [0.6, 0.2]])
TWO = {"X": THREE["X"], "y_sign": np.array([1.0, -1.0, 1.0]), "variance": 2.0, "lengthscales": np.array([0.9, 1.2]),
       "noise": 0.3, "jitter": 1e-3, "X_test": THREE["X_test"], "smoothness": 1.5}  # fmt: skip
DISTRIBUTIONS = {"variance": ("half-student-t", 4.0, 3.0)}
SAMPLERS = {
    "logit": (sample_full, TWO),
    "logit, FITC": (sample_fitc, TWO | {"Z": Z}),
    "probit": (sample_probit, THREE | {"Z": Z, "prior_model": "fitc"}),
    "threshold": (sample_threshold, THREE | {"epsilon": 0.3}),
    "softmax": (sample_softmax, THREE),
    "pairwise": (sample_pairwise, THREE | {"Z": Z}),
    "parameters": (
        sample_hyper,
        {name: value for name, value in THREE.items() if name != "smoothness"}
        | {"likelihood": "softmax", "hyperprior": DISTRIBUTIONS, "learn": ("variance",)},
    ),
}
# what is asked for in place of what was: everything that moves a number
OTHER = {
    "y": np.array([2, 1, 0]), "y_sign": np.array([1.0, 1.0, 1.0]), "smoothness": 1.6, "epsilon": 0.29,
    "hyperprior": {"variance": ("half-student-t", 4.0, 2.9)}, "learn": ("variance", "lengthscales"),
    "prior_model": "full", "likelihood": "multinomial-probit",
}  # fmt: skip


def other(name, value):
    return OTHER[name] if name in OTHER else (1.0 + 1e-12) * np.asarray(value)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_file_goes_on_with_its_own_question_and_with_no_other(name, tmp_path):
    sample, given = SAMPLERS[name]
    run = {"n_chains": 2, "n_draws": 4, "n_warmup": 0, "seed": 3, "checkpoint": tmp_path / "run.npz"}
    first = sample(**given, **run)
    np.testing.assert_array_equal(sample(**given, **run).log_joint, first.log_joint)
    changes = [{each: other(each, value)} for each, value in given.items() if each not in ("n_classes", "hyperprior")]
    changes += [{"seed": 4}, {"n_draws": 5}, {"n_warmup": 1}, {"n_chains": 3}]
    changes += [{"smoothness": None}] if "smoothness" in given else [{"hyperprior": OTHER["hyperprior"]}]
    for change in changes:
        if change.get("learn"):
            change["hyperprior"] = DISTRIBUTIONS | {"lengthscales": ("log-normal", 0.8, 0.7)}
        with pytest.raises(ValueError, match=r"^checkpoint: found run\.npz of another run"):
            sample(**(given | run | change))
    another = sample(**(given | run | {"seed": 4, "checkpoint": None}))
    assert not np.array_equal(another.log_joint, first.log_joint)
