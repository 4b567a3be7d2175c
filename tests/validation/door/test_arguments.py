import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from validation.door import arguments

SCALAR_KINDS = st.sampled_from([np.float32, np.float64, np.int8, np.int64, np.uint8, np.bool_])


@settings(deadline=None, max_examples=60)
@given(hnp.arrays(SCALAR_KINDS, hnp.array_shapes(min_dims=0, max_dims=3), elements={"allow_nan": False}))
def test_real_arrays_become_float64_with_the_same_numbers(array):
    got = arguments.float_array(array, "X")
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, array.astype(np.float64))


@pytest.mark.parametrize(
    "value",
    [
        np.array([1.0 + 2.0j]),
        np.array(["1.0"]),
        np.array([b"1.0"]),
        np.array([1.0, None]),
        np.array([object()]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.array([(1.0, 2)], dtype=[("a", float), ("b", int)]),
        [[1.0, 2.0], [3.0]],
        None,
        "text",
        {"a": 1.0},
        np.ma.array([1.0, 2.0], mask=[False, True]),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
)
def test_what_is_no_array_of_real_numbers_is_refused_by_name(value):
    with pytest.raises(TypeError, match=r"^inputs: found .*, expected an array of real numbers$"):
        arguments.float_array(value, "inputs")


def test_a_masked_array_without_missing_entries_is_an_array():
    np.testing.assert_array_equal(arguments.float_array(np.ma.array([1.0, 2.0]), "X"), [1.0, 2.0])


def test_a_number_beyond_float64_is_refused_as_infinite():
    huge = np.array([np.longdouble("1e400")])
    if not np.isfinite(huge).all():
        pytest.skip("long double is float64 on this machine")
    with pytest.raises(ValueError, match=r"X: found inf"):
        arguments.finite(arguments.float_array(huge, "X"), "X")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2), (2, 1, 3)], ids=str)
def test_one_number_that_is_not_finite_is_found_wherever_it_is(bad, shape):
    array = np.zeros(shape)
    array[(-1,) * len(shape)] = bad
    with pytest.raises(ValueError, match=rf"^a: found {bad}( at .*1 such entries\))?, expected finite numbers$"):
        arguments.finite(array, "a")


def test_the_place_of_a_number_that_is_not_finite_is_named():
    with pytest.raises(ValueError, match=r"found nan at \(1, 0\) \(2 such entries\)"):
        arguments.matrix([[0.0, 1.0], [np.nan, np.inf]], "X")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_number_must_be_finite(bad):
    with pytest.raises(ValueError, match=r"tolerance: found .*, expected finite numbers"):
        arguments.real(bad, "tolerance")


@pytest.mark.parametrize("bad", [[1.0], np.zeros((1, 1))])
def test_one_number_has_no_axes(bad):
    with pytest.raises(ValueError, match=r"tolerance: found shape"):
        arguments.real(bad, "tolerance")


@pytest.mark.parametrize("shape", [(), (3,), (2, 2, 2)])
def test_a_matrix_has_two_axes(shape):
    with pytest.raises(ValueError, match=r"X: found shape .*, expected two axes"):
        arguments.matrix(np.zeros(shape), "X")


@pytest.mark.parametrize("bad", [0.0, -1.0, -0.0, np.nan, np.inf])
def test_scales_are_finite_and_positive(bad):
    with pytest.raises(ValueError, match=r"variance: found"):
        arguments.per_latent(bad, 2, "variance", positive=True)
    with pytest.raises(ValueError, match=r"lengthscales: found"):
        arguments.positive_array(np.array([1.0, bad]), "lengthscales")


@pytest.mark.parametrize("bad", [-1e-300, np.nan, np.inf, -np.inf])
def test_noise_and_jitter_are_finite_and_not_negative(bad):
    with pytest.raises(ValueError, match=r"noise: found"):
        arguments.per_latent(bad, 1, "noise", positive=False)


def test_one_number_stands_for_all_latents_and_a_wrong_count_does_not():
    np.testing.assert_array_equal(arguments.per_latent(2.0, 3, "noise", positive=False), [2.0, 2.0, 2.0])
    with pytest.raises(ValueError, match=r"noise: found shape \(2,\), expected \(3,\)"):
        arguments.per_latent([1.0, 2.0], 3, "noise", positive=False)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.sampled_from([np.int8, np.uint8, np.int64, np.uint64]))
def test_integer_labels_of_any_width_are_taken(values, dtype):
    got = arguments.labels(np.array(values, dtype=dtype), len(values), 4, "y")
    assert got.dtype == np.int64
    assert got.tolist() == values


@pytest.mark.parametrize(
    "value",
    [
        np.array([0.0, 1.0]),
        np.array([True, False]),
        np.array(["0", "1"]),
        np.array([0, 1], dtype=object),
        np.array([0j, 1j]),
        [[0, 1], [1]],
        None,
        [0, None],
        np.ma.array([0, 1], mask=[True, False]),
    ],
    ids=str,
)
def test_labels_that_are_no_integers_are_refused_by_name(value):
    with pytest.raises(TypeError, match=r"^y: found .*, expected integer labels 0\.\.1$"):
        arguments.labels(value, 2, 2, "y")


@pytest.mark.parametrize(("value", "wrong"), [([0, 2], 2), ([-1, 1], -1), ([-3, 7], -3)])
def test_labels_out_of_range_are_named(value, wrong):
    with pytest.raises(ValueError, match=rf"y: found the label {wrong}, expected 0\.\.1"):
        arguments.labels(value, 2, 2, "y")


@pytest.mark.parametrize("value", [[[0], [1]], [0, 1, 0], 0])
def test_labels_have_one_axis_of_the_right_length(value):
    with pytest.raises(ValueError, match=r"y: found shape .*, expected \(2,\)"):
        arguments.labels(value, 2, 2, "y")


@pytest.mark.parametrize("bad", [True, np.True_, 2.0, "2", None])
def test_an_integer_is_no_truth_value_and_no_float(bad):
    with pytest.raises(TypeError, match=r"seed: found .*, expected an integer"):
        arguments.integer(bad, "seed", at_least=0)


def test_an_integer_below_its_least_value_is_refused():
    with pytest.raises(ValueError, match=r"seed: found -1, expected at least 0"):
        arguments.integer(np.int64(-1), "seed", at_least=0)


@pytest.mark.parametrize("bad", [1, 0, "yes", None, 1.0])
def test_a_truth_value_is_true_or_false(bad):
    with pytest.raises(TypeError, match=r"shared: found .*, expected True or False"):
        arguments.boolean(bad, "shared")


@pytest.mark.parametrize("bad", ["Logit", "logit ", 3, None, ["logit"]])
def test_a_choice_is_one_of_the_known_words(bad):
    with pytest.raises(ValueError, match=r"likelihood: found .*, expected one of logit, probit"):
        arguments.choice(bad, ("logit", "probit"), "likelihood")


@pytest.mark.parametrize("bad", ["", "   ", "two\nlines", "a\0", "\x1b[31mred", "tab\there", "\ud800"])
def test_a_name_is_printable_on_one_line(bad):
    with pytest.raises(ValueError, match=r"name: found .*, expected a name of printable characters on one line"):
        arguments.label(bad, "name")


@pytest.mark.parametrize("bad", [b"name", 3, None])
def test_a_name_is_a_string(bad):
    with pytest.raises(TypeError, match=r"name: found .*, expected a string"):
        arguments.label(bad, "name")


def test_settings_come_back_as_json_keeps_them():
    given_values = {"a": (1, 2.5), "b": np.float64(0.1), "c": np.arange(3), "d": {"e": None}, "f": True, "g": "ü"}
    kept = {"a": [1, 2.5], "b": 0.1, "c": [0, 1, 2], "d": {"e": None}, "f": True, "g": "ü"}
    assert arguments.json_mapping(given_values, "settings") == kept


def test_long_doubles_come_back_as_plain_numbers():
    given_values = {"a": np.longdouble("1e-9"), "b": np.array([np.longdouble(2)])}
    assert arguments.json_mapping(given_values, "settings") == {"a": 1e-9, "b": [2.0]}


def nested(depth):
    """A list in a list in a list."""
    inner = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize("bad", [object(), {1, 2}, 1j, np.array([None]), len, np.clongdouble(1j), nested(100_000)])
def test_settings_that_no_file_could_hold_are_named(bad):
    with pytest.raises(TypeError, match=r"^settings\['seed'\]: found .*, expected numbers, text, lists or mappings$"):
        arguments.json_mapping({"seed": bad}, "settings")


@pytest.mark.parametrize("bad", [[("a", 1)], "a", 3, None])
def test_a_mapping_is_a_mapping(bad):
    with pytest.raises(TypeError, match=r"local: found .*, expected a mapping"):
        arguments.mapping(bad, "local")


def test_the_keys_of_a_mapping_are_names():
    with pytest.raises(TypeError, match=r"local key: found int, expected a string"):
        arguments.mapping({3: 1.0}, "local")


def test_a_read_only_copy_is_apart_from_the_original():
    original = np.arange(6.0).reshape(2, 3)
    copy = arguments.read_only(original)
    original[:] = -1.0
    np.testing.assert_array_equal(copy, np.arange(6.0).reshape(2, 3))
    with pytest.raises(ValueError, match="read-only"):
        copy[0, 0] = 1.0
