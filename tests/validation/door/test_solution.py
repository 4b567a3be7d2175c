import copy
import dataclasses
import json
import pickle

import numpy as np
import pytest

from validation import Solution
from validation.door import storage
from validation.door.solution import SCHEMA
from validation.door.storage import FileFormatError

FULL = {
    "log_evidence_kind": "sampled",
    "log_evidence_se": 0.01,
    "evidence_prior_model": "full",
    "ess": 12_345.0,
    "r_hat": 1.001,
    "gradients": {"variance": [0.1], "lengthscales": [[0.2, -0.3]], "noise": [1e-300]},
    "local": {"c": np.linspace(0.0, 1.0, 5), "a/b": np.arange(3), "ξ": np.zeros((2, 0)), "text": np.array(["ü", "b"])},
    "trace": [-5.0, -4.0, -3.25],
    "residual": 1e-11,
    "converged": False,
    "n_improper": 2,
    "iterations": 17,
    "seconds": 0.25,
    "settings": {"seed": 3, "moves": ("scale", "shift"), "tolerance": 1e-10, "start": None, "name": "ü"},
    "versions": {"numpy": "2.0"},
}


def filled(make_solution, **changes):
    """A solution in which no field has its default, standard errors included."""
    plain = make_solution()
    errors = {
        f"{f.name}_se": np.abs(getattr(plain, f.name))
        for f in dataclasses.fields(plain)
        if hasattr(plain, f"{f.name}_se") and isinstance(getattr(plain, f.name), np.ndarray)
    }
    return make_solution(**(FULL | errors | changes))


def assert_same(left, right):
    """Every field equal bit for bit."""
    for f in dataclasses.fields(Solution):
        a, b = getattr(left, f.name), getattr(right, f.name)
        if f.name == "problem":
            assert a.differences(b, ignore=()) == []
        elif isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert a.tobytes() == b.tobytes()
            assert not b.flags.writeable
        elif f.name in ("gradients", "local") and a is not None:
            assert set(a) == set(b)
            for key in a:
                assert a[key].dtype == b[key].dtype
                assert a[key].shape == b[key].shape
                assert a[key].tobytes() == b[key].tobytes()
        else:
            assert a == b
            assert type(a) is type(b)


# -- round trips -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", [filled, lambda make: make()], ids=["filled", "plain"])
def test_a_solution_comes_back_from_files_arrays_pickles_and_copies(tmp_path, make_solution, fill):
    solution = fill(make_solution)
    solution.save(tmp_path / "s.npz")
    for got in (
        Solution.load(tmp_path / "s.npz"),
        Solution.from_arrays(solution.to_arrays()),
        pickle.loads(pickle.dumps(solution)),
        copy.deepcopy(solution),
        dataclasses.replace(solution),
    ):
        assert_same(solution, got)


def test_an_answer_without_any_number_comes_back(tmp_path, make_problem):
    solution = Solution(make_problem(X_test=None), "a", "b")
    solution.save(tmp_path / "s.npz")
    got = Solution.load(tmp_path / "s.npz")
    assert_same(solution, got)
    assert got.latent_mean is None
    assert got.gradients is None


@pytest.mark.parametrize("likelihood", ["softmax", "multinomial-probit", "threshold"])
def test_solutions_of_many_classes_and_sparse_problems_come_back(tmp_path, make_problem, make_solution, likelihood):
    problem = make_problem(likelihood=likelihood, n_classes=3, Z=np.eye(2), X_test=np.empty((0, 2)))
    solution = make_solution(problem, gradients={"Z": np.ones((3, 2, 2))})
    assert solution.latent_cov.shape == (5, 3, 3)
    assert solution.inducing_cov.shape == (3, 2, 2)
    assert solution.probabilities.shape == (0, 3)
    solution.save(tmp_path / "s.npz")
    assert_same(solution, Solution.load(tmp_path / "s.npz"))


# -- frozen ------------------------------------------------------------------------------------------------


def test_the_callers_arrays_and_mappings_do_not_reach_the_solution(make_solution):
    mean, c, gradient = np.zeros((5, 1)), np.ones(5), np.ones(1)
    local, gradients, settings = {"c": c}, {"variance": gradient}, {"moves": ["a"]}
    solution = make_solution(latent_mean=mean, local=local, gradients=gradients, settings=settings)
    mean[:], c[:], gradient[:] = 9.0, 9.0, 9.0
    local["d"], gradients["noise"] = c, c
    settings["moves"].append("b")
    np.testing.assert_array_equal(solution.latent_mean, np.zeros((5, 1)))
    np.testing.assert_array_equal(solution.local["c"], np.ones(5))
    np.testing.assert_array_equal(solution.gradients["variance"], [1.0])
    assert set(solution.local) == {"c"}
    assert set(solution.gradients) == {"variance"}
    assert solution.settings == {"moves": ["a"]}


def test_nothing_of_a_solution_can_be_changed(make_solution):
    solution = filled(make_solution)
    with pytest.raises(dataclasses.FrozenInstanceError):
        solution.log_evidence = 0.0
    for key in ("local", "gradients", "settings", "versions"):
        with pytest.raises(TypeError, match="does not support item assignment"):
            getattr(solution, key)["x"] = 1
    for f in dataclasses.fields(solution):
        value = getattr(solution, f.name)
        if isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                value[...] = 0
    with pytest.raises(ValueError, match="read-only"):
        solution.local["c"][0] = 1.0


def test_variances_are_the_diagonals(make_solution, make_problem):
    solution = make_solution(make_problem(likelihood="softmax", n_classes=3))
    np.testing.assert_array_equal(solution.latent_var, np.diagonal(solution.latent_cov, axis1=1, axis2=2))
    np.testing.assert_array_equal(solution.test_latent_var, np.diagonal(solution.test_latent_cov, axis1=1, axis2=2))
    assert make_solution(latent_cov=None).latent_var is None


def test_the_prior_of_an_evidence_is_the_problems_unless_it_says_otherwise(make_solution, make_problem):
    problem = make_problem(Z=np.eye(2), prior_model="fitc")
    assert make_solution(problem).prior_model == "fitc"
    assert make_solution(problem, evidence_prior_model="full").prior_model == "full"


# -- what an implementation may get wrong --------------------------------------------------------------------

NAN = np.array([[np.nan]] * 5)
BAD = [
    ({"problem": None}, TypeError, r"problem: found NoneType, expected a validation\.Problem"),
    ({"implementation": 3}, TypeError, r"implementation: found int"),
    ({"method": ""}, ValueError, r"method: found ''"),
    ({"log_evidence": np.nan}, ValueError, r"log_evidence: found nan, expected finite"),
    ({"log_evidence": -np.inf}, ValueError, r"log_evidence: found -inf"),
    ({"log_evidence": [1.0]}, ValueError, r"log_evidence: found shape \(1,\), expected one number"),
    ({"log_evidence": "-3"}, TypeError, r"log_evidence: found str"),
    ({"log_evidence": 1j}, TypeError, r"log_evidence: found complex"),
    ({"log_evidence_se": -0.1}, ValueError, r"log_evidence_se: found -0\.1, expected a number >= 0"),
    ({"log_evidence_se": np.nan}, ValueError, r"log_evidence_se: found nan"),
    ({"log_evidence_kind": "sampled"}, ValueError, r"log_evidence_se: found None, expected the standard error"),
    ({"log_evidence_kind": "bound"}, ValueError, r"log_evidence_kind: found 'bound', expected one of estimate"),
    ({"evidence_target": "p(y)"}, ValueError, r"evidence_target: found 'p\(y\)'"),
    ({"evidence_prior_model": "sparse"}, ValueError, r"evidence_prior_model: found 'sparse'"),
    ({"latent_mean": NAN}, ValueError, r"latent_mean: found nan at \(0, 0\) \(5 such entries\)"),
    ({"latent_mean": np.zeros(5)}, ValueError, r"latent_mean: found shape \(5,\), expected \(5, 1\)"),
    ({"latent_mean": np.zeros((1, 5))}, ValueError, r"latent_mean: found shape \(1, 5\)"),
    ({"latent_mean": np.zeros((5, 1), dtype=complex)}, TypeError, r"latent_mean: found ndarray of dtype complex128"),
    ({"latent_mean": "zeros"}, TypeError, r"latent_mean: found str"),
    ({"latent_cov": np.zeros((5, 1))}, ValueError, r"latent_cov: found shape \(5, 1\), expected \(5, 1, 1\)"),
    ({"latent_cov": np.full((5, 1, 1), -1e-9)}, ValueError, r"latent_cov: found a variance -1e-09, expected"),
    ({"test_latent_cov": np.full((3, 1, 1), -1.0)}, ValueError, r"test_latent_cov: found a variance -1"),
    ({"inducing_cov": -np.eye(5)[None]}, ValueError, r"inducing_cov: found a variance -1"),
    ({"latent_mean_se": -np.ones((5, 1))}, ValueError, r"latent_mean_se: found -1, expected standard errors >= 0"),
    ({"latent_mean_se": NAN}, ValueError, r"latent_mean_se: found nan"),
    ({"probabilities": np.full((3, 2), 0.4)}, ValueError, r"probabilities: found a row that sums to 1 -0\.2"),
    ({"probabilities": np.array([[1.5, -0.5]] * 3)}, ValueError, r"probabilities: found -0\.5, expected numbers in"),
    ({"probabilities": np.full((3, 2), np.nan)}, ValueError, r"probabilities: found nan"),
    ({"probabilities": np.full(3, 0.5)}, ValueError, r"probabilities: found shape \(3,\), expected \(3, 2\)"),
    ({"probability_mass": np.ones((3, 1))}, ValueError, r"probability_mass: found shape \(3, 1\)"),
    ({"probability_mass": np.full(3, np.nan)}, ValueError, r"probability_mass: found nan"),
    ({"ess": -1.0}, ValueError, r"ess: found -1"),
    ({"r_hat": np.inf}, ValueError, r"r_hat: found inf"),
    ({"residual": np.nan}, ValueError, r"residual: found nan"),
    ({"seconds": -1.0}, ValueError, r"seconds: found -1"),
    ({"gradients": [1.0]}, TypeError, r"gradients: found list, expected a mapping"),
    ({"gradients": {"jitter": [1.0]}}, ValueError, r"gradients: found 'jitter', expected one of variance"),
    ({"gradients": {"variance": 1.0}}, ValueError, r"gradients\['variance'\]: found shape \(\), expected \(1,\)"),
    ({"gradients": {"lengthscales": [1.0, 2.0]}}, ValueError, r"gradients\['lengthscales'\]: found shape \(2,\)"),
    ({"gradients": {"noise": [np.nan]}}, ValueError, r"gradients\['noise'\]: found nan"),
    ({"local": [("c", 1.0)]}, TypeError, r"local: found list, expected a mapping"),
    ({"local": {"c": [None]}}, TypeError, r"local\['c'\]: found dtype object"),
    ({"local": {3: [1.0]}}, TypeError, r"local key: found int"),
    ({"local": {"c\0": [1.0]}}, ValueError, r"local key: found 'c\\x00'"),
    ({"trace": 1.0}, ValueError, r"trace: found shape \(\), expected one axis"),
    ({"trace": [1.0, np.inf]}, ValueError, r"trace: found inf at \(1,\)"),
    ({"converged": "yes"}, TypeError, r"converged: found str, expected True or False"),
    ({"converged": None}, TypeError, r"converged: found NoneType"),
    ({"iterations": -1}, ValueError, r"iterations: found -1, expected at least 0"),
    ({"iterations": 3.0}, TypeError, r"iterations: found float"),
    ({"n_improper": True}, TypeError, r"n_improper: found bool"),
    ({"settings": None}, TypeError, r"settings: found NoneType, expected a mapping"),
    ({"settings": {"kernel": object()}}, TypeError, r"settings\['kernel'\]: found object"),
    ({"versions": ["numpy"]}, TypeError, r"versions: found list, expected a mapping"),
]


@pytest.mark.parametrize(
    ("changes", "error", "match"), BAD, ids=[f"{i}-{next(iter(c))}" for i, (c, _, _) in enumerate(BAD)]
)
def test_a_wrong_answer_is_refused_by_the_field_that_is_wrong(make_problem, make_solution, changes, error, match):
    with pytest.raises(error, match=rf"^{match}"):
        dataclasses.replace(make_solution(), **changes)


def test_probabilities_may_miss_one_by_rounding_but_not_by_more(make_solution):
    # 1e-9 is the line between float64 sums and a forgotten normalisation
    just = np.array([[0.5, 0.5 + 5e-10]] * 3)
    make_solution(probabilities=just)
    with pytest.raises(ValueError, match=r"probabilities: found a row that sums to 1 \+2e-09"):
        make_solution(probabilities=np.array([[0.5, 0.5 + 2e-9]] * 3))


def test_a_number_of_numpy_is_a_number(make_solution):
    solution = make_solution(log_evidence=np.float64(-1.0), converged=np.False_, iterations=np.int64(3))
    assert type(solution.log_evidence) is float
    assert solution.converged is False
    assert type(solution.iterations) is int


# -- loud on anything unknown ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"mood": np.asarray(1.0)}, r"found unknown fields \['mood'\]"),
        ({"problem/mood": np.asarray(1.0)}, r"problem: found unknown fields \['mood'\]"),
        ({"gradients": np.asarray(1.0)}, r"found unknown fields \['gradients'\]"),
        ({"other/c": np.asarray(1.0)}, r"found unknown fields \['other/c'\]"),
        ({"gradients/jitter": np.asarray([1.0])}, r"gradients: found 'jitter'"),
        ({"method": None}, r"found no fields \['method'\]"),
        ({"problem/X": None}, r"problem: found no fields \['X'\]"),
        ({"problem/X": np.full((5, 2), np.inf)}, r"problem: X: found inf"),
        ({"latent_mean": np.zeros((4, 1))}, r"latent_mean: found shape \(4, 1\)"),
        ({"settings": np.asarray("{not json")}, r"settings: found '\{not json', expected JSON"),
        ({"settings": np.asarray("[1]")}, r"settings: found list"),
        ({"settings": np.asarray(3.0)}, r"settings: found '3\.0', expected JSON"),
        ({"converged": np.asarray(1)}, r"converged: found int"),
        ({"log_evidence": np.asarray(np.nan)}, r"log_evidence: found nan"),
    ],
    ids=lambda value: str(next(iter(value))) if isinstance(value, dict) else "",
)
def test_a_file_with_wrong_fields_is_refused_by_its_path_and_the_field(tmp_path, make_solution, changes, match):
    arrays = make_solution().to_arrays() | changes
    storage.save_npz(tmp_path / "s.npz", SCHEMA, {k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(FileFormatError, match=rf"s\.npz: {match}"):
        Solution.load(tmp_path / "s.npz")


def test_a_problem_is_no_solution_and_a_solution_no_problem(tmp_path, make_problem, make_solution):
    make_problem().save(tmp_path / "p.npz")
    make_solution().save(tmp_path / "s.npz")
    with pytest.raises(FileFormatError, match=r"found schema 'gpc-triad/problem/1', expected 'gpc-triad/solution/1'"):
        Solution.load(tmp_path / "p.npz")
    with pytest.raises(FileFormatError, match=r"found schema 'gpc-triad/solution/1', expected 'gpc-triad/problem/1'"):
        type(make_problem()).load(tmp_path / "s.npz")


def test_settings_are_stored_as_json_that_other_programs_read(make_solution):
    stored = str(filled(make_solution).to_arrays()["settings"])
    assert json.loads(stored)["moves"] == ["scale", "shift"]


def test_variances_in_place_of_covariances_get_a_hint(make_solution):
    problem = make_solution().problem
    for value in (np.ones(problem.n), np.ones((problem.n, problem.n_latents))):
        with pytest.raises(ValueError, match=r"latent_cov: found shape .* v\[:, None, None\]"):
            make_solution(latent_cov=value)


def test_extension_fields_of_a_file_are_not_read(make_solution, tmp_path):
    solution = make_solution()
    arrays = solution.to_arrays() | {"x-mine": np.arange(3), "problem/x-mine": np.asarray("text")}
    storage.save_npz(tmp_path / "a.npz", SCHEMA, arrays)
    assert_same(Solution.load(tmp_path / "a.npz"), solution)
    storage.save_npz(tmp_path / "b.npz", SCHEMA, arrays | {"mine": np.arange(3)})
    with pytest.raises(FileFormatError, match="found unknown fields \\['mine'\\]"):
        Solution.load(tmp_path / "b.npz")
