import copy
import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from validation import Problem
from validation.door import storage
from validation.door.problem import SCHEMA
from validation.door.storage import FileFormatError

NUMBERS = st.floats(-1e6, 1e6)
POSITIVE = st.floats(1e-3, 1e6)
NAMES = st.text(min_size=1, max_size=12).filter(lambda text: text.strip() and text.isprintable())


@st.composite
def problems(draw):
    """Problems of every likelihood and kernel, with every field there or left out."""
    likelihood = draw(st.sampled_from(["logit", "probit", "softmax", "multinomial-probit", "threshold"]))
    binary = likelihood in ("logit", "probit")
    C = 2 if binary else draw(st.integers(2, 4))
    L = 1 if binary else C
    n, d, m, t = (draw(st.integers(low, high)) for low, high in [(2, 5), (1, 3), (1, 3), (0, 3)])
    shared = draw(st.booleans())

    def per_latent(strategy, *shape):
        rows = 1 if shared else L
        return np.broadcast_to(draw(hnp.arrays(float, (rows, *shape), elements=strategy)), (L, *shape))

    y = draw(hnp.arrays(np.int64, n, elements=st.integers(0, C - 1)))
    y[:2] = [0, 1]
    Z = per_latent(NUMBERS, m, d) if draw(st.booleans()) else None
    kernel = draw(st.sampled_from(["se", "matern"]))
    with_test = draw(st.booleans())
    prior = st.tuples(st.sampled_from(["half-student-t", "log-normal"]), POSITIVE, POSITIVE)
    hyperprior = st.dictionaries(st.sampled_from(["variance", "lengthscales", "noise"]), prior)
    return Problem(
        name=draw(NAMES),
        X=draw(hnp.arrays(float, (n, d), elements=NUMBERS)),
        y=y,
        n_classes=C,
        likelihood=likelihood,
        variance=per_latent(POSITIVE),
        lengthscales=per_latent(POSITIVE, d),
        noise=per_latent(st.floats(0.0, 10.0)),
        jitter=per_latent(st.floats(0.0, 1.0)),
        kernel=kernel,
        smoothness=per_latent(POSITIVE) if kernel == "matern" else None,
        Z=Z,
        shared=shared,
        prior_model=draw(st.sampled_from(["full", "fitc"])) if Z is not None else "full",
        epsilon=draw(st.floats(0.0, 0.9)) if likelihood == "threshold" else 0.0,
        hyperprior=draw(st.none() | hyperprior),
        X_test=draw(hnp.arrays(float, (t, d), elements=NUMBERS)) if with_test else None,
        y_test=draw(hnp.arrays(np.int64, t, elements=st.integers(0, C - 1))) if with_test else None,
    )


def assert_same(left, right):
    """Every field equal bit for bit."""
    for f in dataclasses.fields(Problem):
        a, b = getattr(left, f.name), getattr(right, f.name)
        if isinstance(a, np.ndarray):
            assert isinstance(b, np.ndarray)
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert a.tobytes() == b.tobytes()
            assert not b.flags.writeable
        else:
            assert a == b
            assert type(a) is type(b)


# -- round trips -------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problem=problems())
def test_a_problem_comes_back_from_its_file_bit_for_bit(tmp_path, problem):
    path = tmp_path / "p.npz"
    problem.save(path)
    got = Problem.load(path)
    assert_same(problem, got)
    assert problem.differences(got, ignore=()) == []


@settings(deadline=None, max_examples=20)
@given(problem=problems())
def test_a_problem_comes_back_from_arrays_pickles_and_copies(problem):
    for got in (
        Problem.from_arrays(problem.to_arrays()),
        pickle.loads(pickle.dumps(problem)),
        copy.deepcopy(problem),
        dataclasses.replace(problem),
        problem.replace(),
    ):
        assert_same(problem, got)


@pytest.mark.parametrize("name", ["iris", "Ξενία ½ 数据", "a/b:c", "😀", "[bold]x[/bold]"])
def test_names_of_all_scripts_are_kept(tmp_path, make_problem, name):
    make_problem(name=name).save(tmp_path / "p.npz")
    assert Problem.load(tmp_path / "p.npz").name == name


def test_no_test_points_are_not_the_same_as_no_test_set(tmp_path, make_problem):
    empty = make_problem(X_test=np.empty((0, 2)), y_test=np.empty(0, dtype=int))
    empty.save(tmp_path / "p.npz")
    got = Problem.load(tmp_path / "p.npz")
    assert got.X_test is not None
    assert got.X_test.shape == (0, 2)
    assert got.t == 0
    none = make_problem(X_test=None)
    assert none.t == 0
    assert none.differences(got) == ["X_test", "y_test"]


# -- frozen ------------------------------------------------------------------------------------------------


def test_the_callers_arrays_and_mappings_do_not_reach_the_problem(make_problem):
    X, y, scale, Z = np.ones((3, 2)), np.array([0, 1, 0]), np.array([1.0, 2.0]), np.ones((2, 2))
    hyperprior = {"variance": ("log-normal", 1.0, 2.0)}
    problem = make_problem(X=X, y=y, lengthscales=scale, Z=Z, hyperprior=hyperprior, X_test=X, y_test=y)
    before = problem.to_arrays()
    for array in (X, y, scale, Z):
        array[:] = 7
    hyperprior["noise"] = ("log-normal", 1.0, 1.0)
    after = problem.to_arrays()
    assert {k: v.tobytes() for k, v in before.items()} == {k: v.tobytes() for k, v in after.items()}


def test_nothing_of_a_problem_can_be_changed(make_problem):
    problem = make_problem(Z=np.zeros((2, 2)), hyperprior={"variance": ("log-normal", 1.0, 2.0)}, y_test=[0, 1, 1])
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.name = "other"
    with pytest.raises(TypeError, match="does not support item assignment"):
        problem.hyperprior["variance"] = None
    for f in dataclasses.fields(problem):
        value = getattr(problem, f.name)
        if isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                value[...] = 0


def test_read_only_and_strided_arrays_are_taken(make_problem):
    X = np.arange(20.0).reshape(5, 4)[:, ::2]
    X.flags.writeable = False
    problem = make_problem(X=X)
    np.testing.assert_array_equal(problem.X, X)
    assert problem.X.flags.c_contiguous


# -- shapes that stand for more ----------------------------------------------------------------------------


def test_one_number_stands_for_all_entries(make_problem):
    problem = make_problem(likelihood="softmax", n_classes=3, variance=2.0, lengthscales=0.5, noise=0.25, Z=np.eye(2))
    assert problem.n_latents == 3
    np.testing.assert_array_equal(problem.variance, [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(problem.lengthscales, np.full((3, 2), 0.5))
    np.testing.assert_array_equal(problem.jitter, np.zeros(3))
    np.testing.assert_array_equal(problem.Z, np.broadcast_to(np.eye(2), (3, 2, 2)))
    assert (problem.n, problem.d, problem.m, problem.t) == (5, 2, 2, 3)


def test_signs_are_of_binary_problems_only(make_problem):
    np.testing.assert_array_equal(make_problem().y_sign, [-1.0, 1.0, 1.0, -1.0, 1.0])
    with pytest.raises(ValueError, match=r"y_sign: found 3 classes, expected a binary problem"):
        _ = make_problem(likelihood="softmax", n_classes=3).y_sign


# -- bad input ---------------------------------------------------------------------------------------------

BAD = [
    ({"X": np.array([[0.0, np.nan]] * 5)}, ValueError, r"X: found nan at \(0, 1\) \(5 such entries\)"),
    ({"X": np.array([[0.0, -np.inf]] * 5)}, ValueError, r"X: found -inf at \(0, 1\)"),
    ({"X": np.zeros(5)}, ValueError, r"X: found shape \(5,\), expected two axes"),
    ({"X": np.zeros((5, 2, 1))}, ValueError, r"X: found shape \(5, 2, 1\)"),
    ({"X": np.zeros((0, 2)), "y": []}, ValueError, r"X: found shape \(0, 2\), expected at least one row"),
    ({"X": np.zeros((5, 0))}, ValueError, r"X: found shape \(5, 0\)"),
    ({"X": np.full((5, 2), None)}, TypeError, r"X: found ndarray of dtype object"),
    ({"X": np.full((5, 2), 1j)}, TypeError, r"X: found ndarray of dtype complex128"),
    ({"X": np.full((5, 2), "1")}, TypeError, r"X: found ndarray of dtype <U1"),
    ({"X": None}, TypeError, r"X: found NoneType"),
    ({"X": [[1.0, 2.0], [3.0]]}, TypeError, r"X: found list"),
    ({"y": np.zeros(5, dtype=int)}, ValueError, r"y: found the one class \[0\], expected at least two"),
    ({"y": np.ones(5, dtype=int)}, ValueError, r"y: found the one class \[1\]"),
    ({"y": [0, 1, 2, 0, 1]}, ValueError, r"y: found the label 2, expected 0\.\.1"),
    ({"y": [-1, 1, 1, -1, 1]}, ValueError, r"y: found the label -1, expected 0\.\.1"),
    ({"y": [0.0, 1.0, 1.0, 0.0, 1.0]}, TypeError, r"y: found dtype float64, expected integer labels"),
    ({"y": [False, True, True, False, True]}, TypeError, r"y: found dtype bool"),
    ({"y": list("abcde")}, TypeError, r"y: found dtype <U1"),
    ({"y": np.array([0, 1, 1, 0, None])}, TypeError, r"y: found dtype object"),
    ({"y": [0, 1]}, ValueError, r"y: found shape \(2,\), expected \(5,\)"),
    ({"y": [[0], [1], [1], [0], [1]]}, ValueError, r"y: found shape \(5, 1\)"),
    ({"n_classes": 3}, ValueError, r"n_classes: found 3, expected 2 for the binary likelihood 'logit'"),
    ({"n_classes": 3, "likelihood": "probit"}, ValueError, r"n_classes: found 3, expected 2 .*'probit'"),
    ({"n_classes": 1}, ValueError, r"n_classes: found 1, expected at least 2"),
    ({"n_classes": 2.0}, TypeError, r"n_classes: found float 2\.0, expected an integer"),
    ({"n_classes": True}, TypeError, r"n_classes: found bool"),
    ({"likelihood": "Logit"}, ValueError, r"likelihood: found 'Logit', expected one of logit, probit"),
    ({"kernel": "rbf"}, ValueError, r"kernel: found 'rbf', expected one of se, matern"),
    ({"prior_model": "sparse"}, ValueError, r"prior_model: found 'sparse', expected one of full, fitc"),
    ({"prior_model": "fitc"}, ValueError, r"Z: found None, expected inducing inputs"),
    ({"variance": 0.0}, ValueError, r"variance: found 0, expected numbers > 0"),
    ({"variance": -1.0}, ValueError, r"variance: found -1, expected numbers > 0"),
    ({"variance": np.nan}, ValueError, r"variance: found nan"),
    ({"variance": np.inf}, ValueError, r"variance: found inf"),
    ({"variance": [1.0, 2.0]}, ValueError, r"variance: found shape \(2,\), expected \(1,\)"),
    ({"variance": 1e51}, ValueError, r"variance: found 1e\+51, expected 1e-50 to 1e\+50"),
    ({"variance": 1e-51}, ValueError, r"variance: found 1e-51, expected 1e-50 to 1e\+50"),
    ({"noise": 1e51}, ValueError, r"noise: found 1e\+51, expected at most 1e\+50"),
    ({"jitter": 1e51}, ValueError, r"jitter: found 1e\+51, expected at most 1e\+50"),
    ({"lengthscales": 1e200}, ValueError, r"lengthscales: found 1e\+200, expected 1e-50 to 1e\+50"),
    ({"lengthscales": [1.0, 0.0]}, ValueError, r"lengthscales: found 0, expected numbers > 0"),
    ({"lengthscales": [1.0, -2.0]}, ValueError, r"lengthscales: found -2"),
    ({"lengthscales": [1.0, np.inf]}, ValueError, r"lengthscales: found inf at \(0, 1\)"),
    ({"lengthscales": [1.0, np.nan]}, ValueError, r"lengthscales: found nan at \(0, 1\)"),
    ({"lengthscales": [1.0, 1.0, 1.0]}, ValueError, r"lengthscales: found shape \(3,\), expected \(1, 2\)"),
    ({"lengthscales": 1e-200}, ValueError, r"lengthscales: found 1e-200, expected 1e-50 to 1e\+50"),
    ({"X_test": [[1e200, 0.0]]}, ValueError, r"lengthscales: found 1 for input 0, which reaches 1e\+200, .*ratio"),
    ({"noise": -1e-12}, ValueError, r"noise: found -1e-12, expected numbers >= 0"),
    ({"noise": np.nan}, ValueError, r"noise: found nan"),
    ({"jitter": -1.0}, ValueError, r"jitter: found -1, expected numbers >= 0"),
    ({"jitter": np.inf}, ValueError, r"jitter: found inf"),
    ({"kernel": "matern"}, ValueError, r"smoothness: found None, expected the order"),
    ({"kernel": "matern", "smoothness": 0.0}, ValueError, r"smoothness: found 0, expected numbers > 0"),
    ({"smoothness": 1.5}, ValueError, r"smoothness: found 1\.5, expected None for the kernel 'se'"),
    ({"Z": np.zeros((0, 2))}, ValueError, r"Z: found shape \(1, 0, 2\), expected \(1, m, 2\) with m >= 1"),
    ({"Z": np.zeros((3, 1))}, ValueError, r"Z: found shape \(1, 3, 1\)"),
    ({"Z": np.zeros((2, 3, 2))}, ValueError, r"Z: found shape \(2, 3, 2\)"),
    ({"Z": np.zeros(2)}, ValueError, r"Z: found shape \(2,\)"),
    ({"Z": [[np.nan, 0.0]]}, ValueError, r"Z: found nan at \(0, 0, 0\)"),
    ({"shared": 1}, TypeError, r"shared: found int, expected True or False"),
    ({"epsilon": 1.0, "likelihood": "threshold"}, ValueError, r"epsilon: found 1\.0, expected a probability"),
    ({"epsilon": -0.1, "likelihood": "threshold"}, ValueError, r"epsilon: found -0\.1"),
    ({"epsilon": np.nan, "likelihood": "threshold"}, ValueError, r"epsilon: found nan"),
    ({"epsilon": 0.1}, ValueError, r"epsilon: found 0\.1, expected 0 for the likelihood 'logit'"),
    ({"X_test": np.zeros((3, 1))}, ValueError, r"X_test: found 1 columns, expected 2 as in X"),
    ({"X_test": np.zeros(2)}, ValueError, r"X_test: found shape \(2,\), expected two axes"),
    ({"X_test": [[np.nan, 0.0]]}, ValueError, r"X_test: found nan at \(0, 0\)"),
    ({"X_test": None, "y_test": [0, 1, 1]}, ValueError, r"y_test: found labels without X_test"),
    ({"y_test": [0, 1]}, ValueError, r"y_test: found shape \(2,\), expected \(3,\)"),
    ({"y_test": [0, 1, 2]}, ValueError, r"y_test: found the label 2"),
    ({"name": ""}, ValueError, r"name: found ''"),
    ({"name": "a\nb"}, ValueError, r"name: found 'a\\nb'"),
    ({"name": 3}, TypeError, r"name: found int"),
    ({"hyperprior": [("variance", 1)]}, TypeError, r"hyperprior: found list, expected a mapping"),
    ({"hyperprior": {"jitter": ("log-normal", 1.0, 1.0)}}, ValueError, r"hyperprior: found 'jitter'"),
    ({"hyperprior": {"noise": ("gamma", 1.0, 1.0)}}, ValueError, r"hyperprior\['noise'\]: found 'gamma'"),
    ({"hyperprior": {"noise": ("log-normal", 0.0, 1.0)}}, ValueError, r"hyperprior\['noise'\]: found 0"),
    ({"hyperprior": {"noise": ("log-normal", 1.0, np.nan)}}, ValueError, r"hyperprior\['noise'\] scale: found nan"),
    ({"hyperprior": {"noise": ("log-normal", 1.0)}}, ValueError, r"hyperprior\['noise'\]: found .*expected \(family"),
]


@pytest.mark.parametrize(
    ("changes", "error", "match"), BAD, ids=[f"{i}-{next(iter(c))}" for i, (c, _, _) in enumerate(BAD)]
)
def test_bad_input_is_refused_by_name_with_what_was_found_and_expected(make_problem, changes, error, match):
    with pytest.raises(error, match=rf"^{match}"):
        make_problem(**changes)


def test_shared_parameters_are_equal_between_latents(make_problem):
    many = {"likelihood": "softmax", "n_classes": 3, "shared": True}
    assert make_problem(**many).shared
    for key, value in {
        "variance": [1.0, 1.0, 2.0],
        "lengthscales": [[1.0, 1.0], [1.0, 1.0], [1.0, 2.0]],
        "noise": [0.0, 0.0, 1.0],
        "jitter": [0.0, 0.0, 1.0],
        "Z": np.arange(3.0).reshape(3, 1, 1) * np.ones((3, 2, 2)),
    }.items():
        with pytest.raises(ValueError, match=rf"^{key}: found entries that differ between latents"):
            make_problem(**many, **{key: value})


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(array=hnp.arrays(float, hnp.array_shapes(max_dims=3, max_side=3), elements=st.floats(width=64)))
@pytest.mark.parametrize("field", ["X", "Z", "X_test", "variance", "lengthscales", "noise", "jitter"])
def test_no_array_of_floats_brings_anything_but_finite_numbers_into_a_problem(make_problem, field, array):
    try:
        problem = make_problem(**{field: array})
    except ValueError:
        return  # refused, as most are; the tests above say how
    assert np.isfinite(getattr(problem, field)).all()


def test_duplicate_rows_and_constant_features_are_no_error(make_problem):
    X = np.tile([[1.0, 2.0]], (5, 1))
    assert make_problem(X=X, Z=X).n == 5


# -- loud on anything unknown ------------------------------------------------------------------------------


def store(path, problem, **changes):
    """The problem's file with some arrays changed; None takes one away."""
    arrays = problem.to_arrays() | changes
    storage.save_npz(path, SCHEMA, {k: v for k, v in arrays.items() if v is not None})


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"alpha": np.asarray(0.5)}, r"found unknown fields \['alpha'\]"),
        ({"y": None, "X": None}, r"found no fields \['X', 'y'\]"),
        ({"X": np.full((5, 2), np.nan)}, r"X: found nan"),
        ({"y": np.zeros(5)}, r"y: found dtype float64"),
        ({"hyperprior": np.asarray("{")}, r"hyperprior: found '\{', expected JSON"),
        ({"hyperprior": np.asarray("[]")}, r"hyperprior: found list"),
        ({"name": np.asarray(b"bytes")}, r"name: found bytes"),
        ({"name": np.array(["a", "b"])}, r"name: found ndarray"),
        ({"n_classes": np.asarray(2.0)}, r"n_classes: found float"),
        ({"shared": np.asarray(1)}, r"shared: found int"),
    ],
    ids=lambda value: str(next(iter(value))) if isinstance(value, dict) else "",
)
def test_a_file_with_wrong_fields_is_refused_by_its_path_and_the_field(tmp_path, make_problem, changes, match):
    store(tmp_path / "p.npz", make_problem(), **changes)
    with pytest.raises(FileFormatError, match=rf"p\.npz: {match}"):
        Problem.load(tmp_path / "p.npz")


def test_unknown_fields_of_a_changed_copy_are_refused(make_problem):
    with pytest.raises(TypeError, match=r"replace: found unknown fields \['alpha'\]"):
        make_problem().replace(alpha=0.5)
    with pytest.raises(ValueError, match=r"variance: found 0"):
        make_problem().replace(variance=0.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("X", np.ones((5, 2))),
        ("y", [1, 0, 1, 0, 1]),
        ("likelihood", "probit"),
        ("variance", 3.0),
        ("lengthscales", 3.0),
        ("noise", 0.5),
        ("jitter", 0.5),
        ("Z", np.ones((1, 2))),
        ("hyperprior", {"noise": ("log-normal", 1.0, 1.0)}),
        ("X_test", None),
        ("y_test", [0, 0, 1]),
        ("shared", True),
    ],
)
def test_two_problems_differ_in_the_field_that_was_changed(make_problem, field, value):
    problem = make_problem()
    assert problem.differences(make_problem()) == []
    assert problem.differences(problem.replace(**{field: value})) == [field]
    assert problem.replace(**{field: value}).differences(problem) == [field]


def test_a_name_makes_no_difference_unless_asked(make_problem):
    assert make_problem().differences(make_problem(name="other")) == []
    assert make_problem().differences(make_problem(name="other"), ignore=()) == ["name"]
