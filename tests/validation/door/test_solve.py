import importlib
import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from validation import Problem, Solution, problems, solve
from validation.door.solve import (
    ENTRY_POINT_GROUP,
    ImplementationError,
    check_options,
    find_implementation,
    implementations,
    known_methods,
    methods,
    versions,
)

ROOT = Path(__file__).resolve().parents[3]

HEADER = "import numpy as np\nfrom validation import Problem, Solution\n"
ANSWER = HEADER + (
    "def answer(method, problem, **options):\n"
    "    return Solution(problem, 'mine', method, log_evidence=-2.0, settings={'own': 1})\n"
    "answer.methods = ('constant',)\n"
)


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """Writes modules into a folder that is the working directory, and forgets them afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)

    def write(name, text):
        path = tmp_path / Path(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        importlib.invalidate_caches()

    yield write
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    importlib.invalidate_caches()


# -- unknown names -----------------------------------------------------------------------------------------


def test_a_near_miss_of_an_implementation_is_told(make_problem):
    with pytest.raises(
        ValueError, match=r"implementation: found 'refrence', expected one of .*did you mean 'reference'"
    ):
        solve("refrence", "x-gpc", make_problem())


@pytest.mark.parametrize("name", ["reference", "fast"])
def test_a_near_miss_of_a_method_is_told(make_problem, name):
    with pytest.raises(ValueError, match=rf"method: found 'xgpc', expected .*did you mean 'x-gpc'\?\) \({name}\)"):
        solve(name, "xgpc", make_problem())


@pytest.mark.parametrize("name", ["reference", "fast"])
def test_a_near_miss_of_an_option_is_told(make_problem, name):
    with pytest.raises(
        ValueError, match=rf"option: found 'tolerence', .*did you mean 'tolerance'\?\) \({name} x-gpc\)"
    ):
        solve(name, "x-gpc", make_problem(), tolerence=1e-6)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((3, "x-gpc"), r"implementation: found int, expected a string"),
        (("reference", 3), r"method: found int, expected a string"),
        (("reference", None), r"method: found NoneType"),
    ],
)
def test_names_are_strings(make_problem, arguments, match):
    with pytest.raises(TypeError, match=match):
        solve(*arguments, make_problem())


def test_what_is_no_problem_is_refused():
    with pytest.raises(TypeError, match=r"problem: found str, expected a validation\.Problem"):
        solve("reference", "x-gpc", "iris")


@pytest.mark.parametrize("name", ["reference", "fast"])
@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"tolerance": 0.0}, ValueError, r"tolerance: found 0\.0"),
        ({"tolerance": -1e-8}, ValueError, r"tolerance: found -1e-08"),
        ({"tolerance": np.nan}, ValueError, r"tolerance: found nan"),
        ({"tolerance": "small"}, ValueError, r"tolerance: found 'small', expected a number in \(0, 1\)"),
        ({"tolerance": [1e-8]}, ValueError, r"tolerance: found \[1e-08\]"),
        ({"max_iterations": 0}, ValueError, r"max_iterations: found 0, expected .* >= 1"),
        ({"max_iterations": 10.0}, ValueError, r"max_iterations: found 10\.0"),
        ({"max_iterations": True}, ValueError, r"max_iterations: found True"),
        ({"gradients": "no"}, ValueError, r"gradients: found 'no', expected True or False"),
        ({"callback": "print"}, ValueError, r"callback: found 'print', expected (a callable|something to call)"),
    ],
)
def test_settings_with_which_a_loop_would_do_something_else_are_refused(make_problem, name, options, error, match):
    with pytest.raises(error, match=rf"^{match}"):
        solve(name, "x-gpc", make_problem(), **options)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"block_size": 0}, ValueError, r"block_size: found 0"),
        ({"block_size": 2.5}, ValueError, r"block_size: found 2\.5"),
        ({"accelerate": 1}, ValueError, r"accelerate: found 1"),
    ],
)
def test_settings_of_fast_are_refused_by_name(make_problem, options, error, match):
    with pytest.raises(error, match=rf"^{match}"):
        solve("fast", "x-gpc", make_problem(), **options)


@pytest.mark.parametrize("name", ["reference", "fast"])
@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"likelihood": "probit"}, r"likelihood: found 'probit', expected 'logit'"),
        ({"likelihood": "softmax", "n_classes": 3}, r"likelihood: found 'softmax', expected 'logit'"),
        ({"kernel": "matern", "smoothness": 1.5}, r"kernel: found 'matern', expected 'se'"),
    ],
)
def test_a_problem_that_a_method_cannot_answer_is_refused(make_problem, name, changes, match):
    with pytest.raises(ValueError, match=match):
        solve(name, "x-gpc", make_problem(**changes))


def test_the_options_of_a_function_are_its_keywords():
    def function(problem, *, seed=0, thin=1):
        """Nothing."""

    check_options(function, {"seed": 1}, "f")
    for wrong in ("problem", "seeds", "Seed"):
        with pytest.raises(ValueError, match=rf"option: found '{wrong}', expected one of seed, thin.*\(f\)"):
            check_options(function, {wrong: 1}, "f")


# -- what survives -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reference", "fast"])
@pytest.mark.parametrize(
    "changes",
    [
        {"X_test": None},
        {"X_test": np.empty((0, 2))},
        {"X": np.tile([[1.0, 2.0]], (5, 1))},
        {"X": np.tile([[1.0, 2.0]], (5, 1)), "Z": [[1.0, 2.0]]},
        {"Z": np.tile([[1.0, 2.0]], (3, 1)), "jitter": 1e-6},
        {"X": np.column_stack([np.linspace(-1.0, 1.0, 5), np.full(5, 1e6)])},
        {"lengthscales": 1e-45},
        {"lengthscales": 1e50, "noise": 1.0},
        {"variance": 1e-50, "noise": 1e-50},
        {"Z": np.full((1, 2), 1e49)},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_unusual_problems_have_finite_answers(make_problem, name, changes):
    solution = solve(name, "x-gpc", make_problem(**changes), max_iterations=2000)
    assert np.isfinite(solution.log_evidence)
    assert solution.log_evidence < 0.0
    assert np.isfinite(solution.latent_mean).all()
    if solution.probabilities is not None:
        assert solution.probabilities.shape == (solution.problem.t, 2)


SAME = np.tile([[1.0, 2.0]], (5, 1))


@pytest.mark.parametrize(
    ("name", "changes", "wanted"),
    [
        ("reference", {"Z": SAME[:3]}, r"K_ZZ.*\(3, 3\)"),
        ("fast", {"Z": SAME[:3]}, r"K_ZZ.*\(3, 3\)"),
        ("reference", {"X": SAME, "noise": 0.0}, r"K_XX.*\(5, 5\)"),
    ],
)
def test_a_singular_prior_names_matrix_size_eigenvalue_and_what_to_raise(make_problem, name, changes, wanted):
    with pytest.raises(np.linalg.LinAlgError, match=rf"{wanted}.*eigenvalue .*expected.*jitter") as caught:
        solve(name, "x-gpc", make_problem(**changes))
    assert type(caught.value).__name__ == "NotPositiveDefiniteError"
    assert type(caught.value).__module__.startswith(name)


def test_duplicate_rows_without_noise_are_answered_by_fast_as_the_limit_of_small_jitter(make_problem):
    # fast factorises I + Ω^½ K_XX Ω^½, which stays positive definite where K_XX is singular
    got = solve("fast", "x-gpc", make_problem(X=SAME, noise=0.0))
    near = solve("reference", "x-gpc", make_problem(X=SAME, noise=0.0, jitter=1e-6))
    # the answer moves by about the jitter, 1e-6 of the variance
    np.testing.assert_allclose(got.log_evidence, near.log_evidence, rtol=0, atol=1e-5)
    np.testing.assert_allclose(got.latent_mean, near.latent_mean, rtol=0, atol=1e-5)
    np.testing.assert_allclose(got.latent_cov, near.latent_cov, rtol=0, atol=1e-5)
    np.testing.assert_allclose(got.probabilities, near.probabilities, rtol=0, atol=1e-5)


SIZES = st.sampled_from([1e-50, 1e-8, 1e-3, 0.3, 1.0, 7.0, 1e3, 1e8, 1e50])


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    variance=SIZES,
    lengthscale=SIZES,
    noise=SIZES | st.just(0.0),
    jitter=SIZES | st.just(0.0),
    spread=SIZES,
    sparse=st.booleans(),
    seed=st.integers(0, 2**16),
)
@pytest.mark.parametrize("name", ["reference", "fast"])
def test_extreme_problems_give_finite_answers_or_clear_errors(
    name, variance, lengthscale, noise, jitter, spread, sparse, seed
):
    rng = np.random.default_rng(seed)
    X = spread * rng.standard_normal((4, 1))
    try:
        problem = Problem("extreme", X, [0, 1, 1, 0], 2, "logit", variance, lengthscale, noise, jitter,
                          Z=X[:2] if sparse else None, X_test=spread * rng.standard_normal((2, 1)))  # fmt: skip
        solution = solve(name, "x-gpc", problem, max_iterations=50)
    except ValueError as error:  # of the problem, of the factorisation, or of an answer that is not finite
        told = str(error)
    else:
        told = "log_evidence: found it, expected it" if np.isfinite(solution.log_evidence) else ""
    # an argument, or a matrix that may be an expression such as -2 eta_2
    assert re.match(r"[^:\n]{1,40}?( \(\d+, \d+\))?: found .*expected", told)


@pytest.mark.parametrize("name", ["reference", "fast"])
def test_one_iteration_is_an_answer_that_says_it_has_not_converged(make_problem, name):
    solution = solve(name, "x-gpc", make_problem(), max_iterations=1, tolerance=1e-12)
    assert not solution.converged
    assert solution.iterations == 1


def test_one_factor_of_all_lengthscales_may_be_learned(make_problem):
    problem = make_problem()
    solution = solve("fast", "x-gpc", problem, learn="scale", learning_iterations=2)
    assert problem.differences(solution.problem) == ["lengthscales"]
    factor = solution.problem.lengthscales / problem.lengthscales
    np.testing.assert_allclose(factor, factor[0, 0])


# -- what solve adds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reference", "fast"])
def test_the_answer_says_who_how_when_and_with_what(make_problem, name):
    problem = make_problem()
    solution = solve(name, "x-gpc", problem, tolerance=1e-9)
    assert solution.problem.differences(problem) == []
    assert (solution.implementation, solution.method) == (name, "x-gpc")
    assert solution.settings["tolerance"] == 1e-9
    assert solution.seconds > 0.0
    assert {"python", "numpy", "scipy", "gpc-triad"} <= set(solution.versions)
    assert versions()["numpy"] == np.__version__


def test_the_callback_is_called_and_is_no_setting(make_problem):
    visited = []
    solution = solve("reference", "x-gpc", make_problem(), callback=visited.append, max_iterations=3)
    assert len(visited) == 3
    assert "callback" not in solution.settings


def test_an_interrupt_reaches_the_caller(make_problem):
    def stop(state):
        raise KeyboardInterrupt

    for name in ("reference", "fast"):
        with pytest.raises(KeyboardInterrupt):
            solve(name, "x-gpc", make_problem(), callback=stop)


def test_the_judge_knows_all_witnesses_and_their_methods():
    assert list(implementations())[:4] == ["reference", "fast", "gibbs", "quadrature"]
    known = methods()
    assert set(known["reference"]) == set(known["fast"]) >= {"x-gpc", "x-gpc-svi", "svgpc", "epgpc"}
    assert "gibbs-logit" in known["gibbs"]
    assert known["quadrature"] == ("exact",)


# -- third parties by module:function ------------------------------------------------------------------------


def test_a_module_in_the_working_directory_is_a_third_party(beside, make_problem):
    beside("mine_beside", ANSWER)
    solution = solve("mine_beside:answer", "constant", make_problem(), seed=3, start=np.zeros(2), hook=len)
    assert solution.log_evidence == -2.0
    assert solution.settings == {"own": 1, "seed": 3, "start": [0.0, 0.0]}
    assert solution.label == "mine constant"


def test_a_function_inside_a_package_and_a_class_is_found(beside, make_problem):
    beside("mine_pack.deep.er", HEADER + "class A:\n    @staticmethod\n    def b(method, problem):\n"
           "        return Solution(problem, 'deep', method)\n")  # fmt: skip
    assert solve("mine_pack.deep.er:A.b", "anything", make_problem()).implementation == "deep"


def test_the_methods_of_a_third_party_are_checked_before_any_work(beside, make_problem):
    beside("mine_methods", ANSWER.replace("    return", "    raise AssertionError\n    return"))
    with pytest.raises(
        ValueError, match=r"method: found 'constnt', expected one of constant \(did you mean 'constant'"
    ):
        solve("mine_methods:answer", "constnt", make_problem())


@pytest.mark.parametrize("stated", ["'constant'", "(1, 2)"])
def test_methods_that_are_no_tuple_of_names_are_refused(beside, make_problem, stated):
    beside("mine_said", ANSWER.replace("('constant',)", stated))
    with pytest.raises(TypeError, match=r"mine_said:answer: found methods = .*, expected a tuple of method ids"):
        solve("mine_said:answer", "const", make_problem())


@pytest.mark.parametrize("name", ["nowhere_at_all:f", "nowhere_at_all.deep:f", "json.nowhere:f", "json.decoder.x:f"])
def test_a_missing_module_is_named(make_problem, name):
    with pytest.raises(ValueError, match=r"implementation: found no module '.*', expected module:function"):
        solve(name, "m", make_problem())


@pytest.mark.parametrize("name", ["json:nowhere", "json:decoder.nowhere", "json:dumps.nowhere"])
def test_a_missing_attribute_is_named(make_problem, name):
    with pytest.raises(ValueError, match=r"implementation: found no '.*' in json, expected a function"):
        solve(name, "m", make_problem())


@pytest.mark.parametrize(
    "name", ["json:", ":dumps", ":", "a:b:c", "a b:c", ".json:dumps", "json:dumps()", "../x:y", "a.:b"]
)
def test_what_is_no_module_and_function_is_refused(make_problem, name):
    with pytest.raises(ValueError, match=r"implementation: found '.*', expected module:function"):
        solve(name, "m", make_problem())


@pytest.mark.parametrize(("name", "kind"), [("json:decoder", "module"), ("math:pi", "float"), ("sys:path", "list")])
def test_what_cannot_be_called_is_refused(make_problem, name, kind):
    with pytest.raises(TypeError, match=rf"implementation: found '{name}' to be a {kind}, expected a callable"):
        solve(name, "m", make_problem())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import nowhere_at_all\n", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("from json import nowhere\n", "ImportError: cannot import name 'nowhere'"),
        ("def broken(:\n", "SyntaxError"),
        ("undefined\n", "NameError: name 'undefined' is not defined"),
        ("{}['key']\n", "KeyError: 'key'"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)\n", "SystemExit: 0"),  # a script without a guard
    ],
    ids=["missing import", "missing name", "syntax", "undefined", "key", "division", "end"],
)
def test_a_module_that_does_not_load_says_why(beside, make_problem, text, why):
    beside("mine_broken", text)
    with pytest.raises(ValueError, match=rf"found 'mine_broken', which cannot be imported \({why}"):
        solve("mine_broken:answer", "m", make_problem())


def test_a_module_that_needs_one_that_our_packages_hide_is_told_so(beside, make_problem, tmp_path, monkeypatch):
    beside("mine_shadowed", "from validation import nowhere\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"cannot import name 'nowhere'.*expected module:function$"):
        solve("mine_shadowed:answer", "m", make_problem())
    (tmp_path / "validation.py").write_text("def nowhere(): pass\n")
    with pytest.raises(ValueError, match=r"gpc-triad's own packages hide validation\.py: rename it$"):
        solve("mine_shadowed:answer", "m", make_problem())


def test_a_file_in_place_of_a_module_is_told_the_module(beside, make_problem):
    beside("mine_file", ANSWER)
    with pytest.raises(ValueError, match=r"found no module 'mine_file\.py'.*did you mean 'mine_file:answer'"):
        solve("mine_file.py:answer", "m", make_problem())


FAILING = """
import numpy as np
from validation import Solution

def deeper():
    return {}["alpha_tilde"]

def key(method, problem, **options):
    return deeper()

def below(method, problem, **options):
    return np.linalg.cholesky(-np.eye(2))

def few(method, problem):
    return None

def empty(method, problem, **options):
    raise AssertionError

def made(method, problem, **options):
    return Solution(problem, "mine", method, log_evidence=float("nan"))

class Asked:
    def __call__(self, method, problem, **options):
        raise RuntimeError("first\\nsecond")

asked = Asked()
"""


@pytest.mark.parametrize(
    ("name", "what", "line"),
    [
        ("key", "KeyError: 'alpha_tilde'", 6),
        ("below", "LinAlgError: Matrix is not positive definite", 12),  # theirs, not that of NumPy below it
        ("empty", "AssertionError", 18),
        ("made", "ValueError: log_evidence: found nan, expected finite numbers", 21),  # nor ours
        ("asked", "RuntimeError: first second", 25),
    ],
)
def test_an_error_inside_a_third_party_says_who_what_and_where(beside, make_problem, name, what, line):
    beside("mine_failing", FAILING)
    with pytest.raises(ImplementationError) as caught:
        solve(f"mine_failing:{name}", "m", make_problem(), seed=None)
    assert str(caught.value).startswith(f"mine_failing:{name} m: {what} (")
    assert str(caught.value).endswith(f"mine_failing.py:{line})")
    assert type(caught.value.__cause__).__name__ == what.partition(":")[0]


def test_options_that_a_third_party_does_not_take_are_told_as_the_call(beside, make_problem):
    beside("mine_failing", FAILING)
    with pytest.raises(ImplementationError, match=r"m: TypeError: .*'alpha' \(raised by the call itself\)"):
        solve("mine_failing:few", "m", make_problem(), alpha=1.0)


def test_a_third_party_that_ends_the_process_has_given_no_answer(beside, make_problem):
    beside("mine_leaving", "def answer(method, problem, **options):\n    raise SystemExit(0)\n")
    with pytest.raises(ImplementationError, match=r"m: SystemExit: 0 \(.*mine_leaving.py:2\)"):
        solve("mine_leaving:answer", "m", make_problem())


def test_an_interrupt_inside_a_third_party_is_no_error_of_it(beside, make_problem):
    beside("mine_stopped", "def answer(method, problem, **options):\n    raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        solve("mine_stopped:answer", "m", make_problem())


def test_a_witness_raises_its_own_errors(make_problem):
    with pytest.raises(ValueError, match="max_iterations: found 0") as caught:
        solve("fast", "x-gpc", make_problem(), max_iterations=0)
    assert not isinstance(caught.value, ImplementationError)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "a"])
@pytest.mark.parametrize(("name", "method"), [("gibbs", "gibbs-logit"), ("fast", "svi")])
def test_a_seed_that_is_none_is_refused_by_name(make_problem, name, method, seed):
    with pytest.raises(ValueError, match=r"seed: found .*, expected"):
        solve(name, method, make_problem(), seed=seed)


@pytest.mark.parametrize("name", ["reference", "fast"])
def test_one_name_to_learn_stands_for_itself(name):
    problem = problems.get("toy-3")
    with pytest.raises(ValueError, match=r"learn: found \('variance',\), expected \(\)"):
        solve(name, "qep", problem, learn="variance")


@pytest.mark.parametrize(
    ("body", "error", "match"),
    [
        ("None", TypeError, r"mine_garbage:answer: found NoneType returned, expected a validation\.Solution"),
        ("{'log_evidence': 1.0}", TypeError, r"mine_garbage:answer: found dict returned"),
        ("Solution", TypeError, r"mine_garbage:answer: found type returned"),
        ("Solution(None, 'a', 'b')", TypeError, r"problem: found NoneType"),
        ("Solution(problem, 'a', 'b', log_evidence=np.nan)", ValueError, r"log_evidence: found nan"),
        ("Solution(problem, 'a', 'b', latent_mean=np.zeros(5))", ValueError, r"latent_mean: found shape \(5,\)"),
        ("Solution(problem, 'a', 'b', latent_cov=-np.ones((5, 1, 1)))", ValueError, r"latent_cov: found a variance -1"),
        ("Solution(problem, 'a', 'b', probabilities=np.ones((3, 2)))", ValueError, r"probabilities: found a row that"),
        ("Solution(problem, 'a', 'b', probabilities=np.full((3, 2), np.nan))", ValueError, r"probabilities: found nan"),
        ("Solution(problem, 'a', 'b', settings={'f': len})", TypeError, r"settings\['f'\]: found builtin_function"),
        ("Solution(problem, 'a\\n', 'b')", ValueError, r"implementation: found 'a\\n'"),
        ("Solution(problem, 'a', 'b', mood=1)", TypeError, r".*unexpected keyword argument 'mood'"),
    ],
)  # fmt: skip
def test_garbage_from_a_third_party_is_refused_by_what_is_wrong(beside, make_problem, body, error, match):
    beside("mine_garbage", HEADER + f"def answer(method, problem, **options):\n    return {body}\n")
    with pytest.raises((error, ImplementationError)) as caught:
        solve("mine_garbage:answer", "m", make_problem())
    actual = caught.value.__cause__ or caught.value  # refused where it was made, or where it came back
    assert isinstance(actual, error)
    assert re.match(match, str(actual))


def test_a_solution_of_another_problem_is_refused_by_the_fields_that_differ(beside, make_problem):
    beside(
        "mine_other",
        HEADER + "def answer(method, problem, **options):\n"
        "    return Solution(problem.replace(noise=9.0, name='other', y=1 - problem.y), 'a', method)\n",
    )
    with pytest.raises(ValueError, match=r"mine_other:answer: found a solution of another problem.*\['y', 'noise'\]"):
        solve("mine_other:answer", "m", make_problem())


@pytest.mark.parametrize("learn", ["noise", ("noise",), ["noise", "variance"]])
def test_only_what_was_to_be_learned_may_change(beside, make_problem, learn):
    text = (
        HEADER
        + "def answer(method, problem, learn=()):\n    return Solution(problem.replace(noise=9.0), 'a', method)\n"
    )
    beside("mine_learning", text)
    solution = solve("mine_learning:answer", "m", make_problem(), learn=learn)
    np.testing.assert_array_equal(solution.problem.noise, [9.0])
    for other in ("variance", ("lengthscales",), None, ()):
        with pytest.raises(ValueError, match=r"differs in \['noise'\]"):
            solve("mine_learning:answer", "m", make_problem(), learn=other)


def test_a_third_party_that_says_nothing_of_its_methods_takes_any(beside):
    beside("mine_silent", "def answer(method, problem):\n    return None\n")
    assert known_methods(find_implementation("mine_silent:answer"), "x") == ()


# -- third parties by entry point ----------------------------------------------------------------------------


@pytest.fixture
def installed(beside, tmp_path, monkeypatch):
    """A distribution in a folder on the path; takes the lines of its entry points."""

    def install(lines):
        folder = tmp_path / "site" / "third_party-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n", encoding="utf-8")
        (folder / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{lines}\n", encoding="utf-8")
        beside("site.third_party_module", ANSWER)
        monkeypatch.syspath_prepend(str(tmp_path / "site"))

    return install


def test_an_entry_point_is_found_listed_and_asked(installed, make_problem):
    installed("third = third_party_module:answer")
    assert implementations()["third"] == "entry point third_party_module:answer"
    assert "third" not in methods()
    assert solve("third", "constant", make_problem()).log_evidence == -2.0
    with pytest.raises(ValueError, match=r"method: found 'x-gpc', expected one of constant \(third\)"):
        solve("third", "x-gpc", make_problem())
    with pytest.raises(ValueError, match=r"implementation: found 'thirt', .*did you mean 'third'"):
        solve("thirt", "constant", make_problem())


def test_an_entry_point_cannot_take_the_name_of_a_witness(installed):
    installed("reference = third_party_module:answer")
    assert implementations()["reference"] == "witness"
    assert find_implementation("reference").__module__ == "validation.implementations.reference"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("nowhere_at_all:answer", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("third_party_module:nowhere", "AttributeError: module 'third_party_module' has no attribute 'nowhere'"),
    ],
)
def test_an_entry_point_that_does_not_load_says_why(installed, make_problem, target, why):
    installed(f"third = {target}")
    with pytest.raises(
        ValueError, match=rf"found the entry point 'third' = '{target}', which cannot be loaded \({why}"
    ):
        solve("third", "constant", make_problem())


def test_an_entry_point_that_cannot_be_called_is_refused(installed, make_problem):
    installed("third = third_party_module:answer.methods")
    with pytest.raises(TypeError, match=r"implementation: found 'third' to be a tuple, expected a callable"):
        solve("third", "constant", make_problem())


# -- the worked example --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["two-points", "iris"])
def test_the_example_of_the_documentation_answers(monkeypatch, name):
    monkeypatch.chdir(ROOT)
    solution = solve("docs.examples.sklearn_laplace:answer", "laplace-binary", problems.get(name))
    assert isinstance(solution, Solution)
    assert solution.label == "scikit-learn laplace-binary"
    assert "scikit-learn" in solution.versions


@pytest.mark.parametrize(
    ("changes", "options", "match"),
    [
        ({"jitter": 1e-6}, {}, r"problem: found .*no jitter"),
        ({"Z": np.eye(2)}, {}, r"problem: found .*full GP"),
        ({"likelihood": "probit"}, {}, r"problem: found .*expected logit"),
        ({}, {"seed": 1}, r"option: found \['seed'\], expected none"),
    ],
)
def test_the_example_refuses_what_it_cannot_answer(monkeypatch, make_problem, changes, options, match):
    monkeypatch.chdir(ROOT)
    with pytest.raises(ImplementationError, match=rf"sklearn_laplace:answer laplace-binary: ValueError: {match}"):
        solve("docs.examples.sklearn_laplace:answer", "laplace-binary", make_problem(**changes), **options)


def test_the_example_is_short_enough_to_read():
    source = (ROOT / "docs" / "examples" / "sklearn_laplace.py").read_text(encoding="utf-8")
    assert source.count("\n") < 80
    assert "triad solve docs.examples.sklearn_laplace:answer laplace-binary iris --output laplace.npz" in source
    assert inspect.cleandoc(source)
