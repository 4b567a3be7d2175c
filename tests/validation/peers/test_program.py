"""The door of programs of other libraries: what they refuse, what a solution of theirs has."""

import numpy as np
import pytest

from validation.door.solution import Solution
from validation.judge.posing import posed
from validation.peers import Program, programs
from validation.peers.program import alike, binary, diagonal, no_jitter, no_repeats, one_jitter


def program(**changes):
    values = {
        "name": "mine", "library": "numpy", "module": "numpy", "methods": ("laplace-binary",),
        "likelihoods": ("logit",), "points": "all rows", "run": lambda problem: {"log_evidence": -1.0},
    }  # fmt: skip
    return Program(**values | changes)


@pytest.fixture
def toy():
    return posed("toy")


def test_a_solution_says_who_gave_it(toy):
    answer = program()("laplace-binary", toy)
    assert isinstance(answer, Solution)
    assert answer.implementation == "mine"
    assert answer.log_evidence == -1.0
    assert answer.versions == {"numpy": np.__version__}


def test_probabilities_are_normalised_and_their_mass_is_kept(toy):
    raw = np.full((toy.t, 2), 0.4)
    answer = program(run=lambda problem: {"probabilities": raw})("laplace-binary", toy)
    np.testing.assert_allclose(answer.probabilities, 0.5)
    np.testing.assert_allclose(answer.probability_mass, 0.8)


@pytest.mark.parametrize(
    ("method", "options", "word"),
    [("ep", {}, "method: found 'ep'"), ("laplace-binary", {"alpha": 1}, "option: found alpha")],
)
def test_another_method_or_an_option_is_an_error(toy, method, options, word):
    with pytest.raises(ValueError, match=word):
        program()(method, toy, **options)


def test_what_a_library_cannot_pose_is_refused(toy):
    with pytest.raises(NotImplementedError, match="likelihood logit"):
        program(likelihoods=("probit",))("laplace-binary", toy)
    with pytest.raises(NotImplementedError, match="kernel matern"):
        program()("laplace-binary", toy.replace(kernel="matern", smoothness=1.5))
    with pytest.raises(NotImplementedError, match="inducing points"):
        program(points="inducing points")("laplace-binary", toy)
    with pytest.raises(NotImplementedError, match="all rows"):
        program()("laplace-binary", posed("toy-sparse"))


def test_a_library_that_is_missing_is_named(toy):
    missing = program(module="no_such_module_at_all", library="nobody")
    assert not missing.installed()
    assert missing.version() == ""
    with pytest.raises(ModuleNotFoundError, match="nobody: found it not installed"):
        missing("laplace-binary", toy)


def test_the_list_can_be_read_where_nothing_is_installed():
    listed = programs()
    assert len({one.name for one in listed}) == len(listed)
    assert {one.library for one in listed} >= {"scikit-learn", "gpflow", "gpytorch", "GPy", "GPML", "kernlab"}
    assert all(len(one.methods) == 1 for one in listed)


def test_jitter_and_parameters_of_each_class():
    three = posed("toy-3")
    assert alike(three)
    assert not alike(three.replace(shared=False, noise=[0.1, 0.1, 0.2]))
    assert one_jitter(three) == 1e-12
    assert one_jitter(three.replace(jitter=1e-4)) == 1e-4
    with pytest.raises(NotImplementedError, match="jitter for each class"):
        one_jitter(three.replace(shared=False, jitter=[0.0, 0.0, 1e-3]))
    no_jitter(three)
    with pytest.raises(NotImplementedError, match="jitter"):
        no_jitter(three.replace(jitter=1e-4))


def test_test_rows_that_are_data_are_refused_where_noise_goes_by_equal_rows(toy):
    no_repeats(toy)
    again = toy.replace(X_test=toy.X[:2], y_test=None)
    no_repeats(again.replace(noise=0.0))
    with pytest.raises(NotImplementedError, match="test rows that are data"):
        no_repeats(again)


def test_shapes_of_two_classes_and_of_independent_latents():
    np.testing.assert_array_equal(binary([[0.25]]), [[0.75, 0.25]])
    np.testing.assert_array_equal(diagonal([[1.0, 2.0]]), [[[1.0, 0.0], [0.0, 2.0]]])
