"""One table of options in each witness: the adapters take what it says, and check it before any work."""

import importlib
import inspect
import pkgutil
from pathlib import Path

import numpy as np
import pytest

from validation import problems, solve
from validation.door import options
from validation.door.options import checked, options_of
from validation.door.solve import methods
from validation.implementations.witness import Adapter

WITNESSES = ("reference", "fast", "gibbs")
ROWS = [(witness, method) for witness in WITNESSES for method in methods()[witness]]


def adapter(witness, method):
    """The function behind a method."""
    package = importlib.import_module(f"validation.implementations.{witness}")
    for value in pkgutil.iter_modules(package.__path__):
        table = getattr(importlib.import_module(f"{package.__name__}.{value.name}"), "TABLE", {})
        if method in table:
            return table[method]
    raise AssertionError(method)


def keywords(function):
    """Keyword-only parameters with their defaults; a bound `method` is none."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "method"}


def doors():
    """Functions of the witnesses that check their options, with the records that they check against."""
    for witness in WITNESSES:
        package = importlib.import_module(witness)
        for result in pkgutil.walk_packages(package.__path__, f"{witness}."):
            if any(part in result.name for part in ("estimators",)):
                continue
            module = importlib.import_module(result.name)
            for name, value in vars(module).items():
                if inspect.isfunction(value) and value.__module__ == result.name and hasattr(value, "options"):
                    yield f"{result.name}.{name}", value


@pytest.mark.parametrize(("witness", "method"), ROWS)
def test_a_row_has_the_names_and_defaults_of_its_adapter(witness, method):
    row, asked = options_of(witness, method), adapter(witness, method)
    if isinstance(asked, Adapter):  # made from the class that the adapter hands on: no second list
        assert row.items() <= asked.options.declared().items()
        return
    assert {name: option.default for name, option in row.items()} == keywords(asked)


@pytest.mark.parametrize(("witness", "method"), ROWS)
def test_every_default_passes_its_own_check_and_is_explained(witness, method):
    for option in options_of(witness, method).values():
        assert option.check(option.default) == option.default
        assert option.meaning
        assert option.expected


@pytest.mark.parametrize(("name", "function"), list(doors()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_defaults_of_a_door_pass_the_checks_of_that_door(name, function):
    signature = inspect.signature(function)
    for option in function.options.values():
        default = signature.parameters[option.name].default
        assert option.default is default
        if default is not inspect.Parameter.empty:
            assert option.check(default) == default


def test_the_fit_functions_are_doors():
    names = {name for name, _ in doors()}
    for witness, method in ROWS:
        if witness == "fast":
            module = method.replace("-", "_")
            module = {"qep": "quadrature_ep", "qiep": "quadrature_ep", "laplace_tkp": "laplace"}.get(module, module)
            module = {"arpep": "apep", "rpapep": "apep", "bb_alpha": "apep"}.get(module, module)
            module = {"vi_jj_full": "vi_jj", "vi_jj_hybrid": "vi_jj"}.get(module, module)
            if isinstance(adapter(witness, method), Adapter):  # its options are checked where they are made
                continue
            assert any(name.startswith(f"fast.methods.{module}.fit") for name in names), method
    # samplers of `gibbs` and fits of `reference` are handed a value, which is checked where it is made
    wanted = {"gibbs.evidence.bridge.log_evidence_full", "gibbs.models.ensemble.sample_ensemble"}
    assert wanted <= names


BAD = {
    "number": [np.nan, np.inf, -1.0, "0.5", None, True, [0.5], np.array([0.5]), 1j, np.longdouble("1e400"), 10**400],
    "integer": [1.0, -1, "3", None, True, [3], np.nan, np.float64(3), 1j],
    "flag": ["no", 0, 1, None, np.array(True)],
    "choice": ["", "wibble", 3, None, ["a"], b"parallel"],
    "names": [3, None, "wibble", ("variance", "variance"), [3], {"variance": 1}, np.array([1.0])],
    "rate": [np.nan, [np.nan], "decay", ("decay", 1.0), ("decay", np.nan, 1.0, 1.0), 0.0, 2.0, True],
    "batches": [
        3,
        "text",
        [],
        [[]],
        [[0.5]],
        [[-1]],
        [3],
        [[0], [10**9]],
        [[True]],
        {0: [1]},
        [[[0]]],
        [[0, 1], [[1], 2]],
    ],
    "path": [3, b"name", "", "no/such/folder/x.npz", "/", "a\0b", ["x"]],
    "callable": [3, "print", [print]],
}


@pytest.mark.parametrize(("witness", "method"), ROWS)
def test_a_bad_value_is_refused_by_name_whether_it_would_be_used_or_not(witness, method):
    for name, option in options_of(witness, method).items():
        for value in BAD[option.kind]:
            if value is None and option.takes_none:
                continue
            with pytest.raises(ValueError, match=rf"^{name}(\[\d+\])?: found (?s:.*), expected ") as caught:
                checked(witness, method, {name: value}, 100)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value", [np.longdouble("1e-9"), np.float32(1e-3), np.float16(1e-3), np.float64(0.25), np.array(1e-6)]
)
def test_any_kind_of_real_number_is_a_tolerance(value):
    for witness in ("reference", "fast"):
        actual = checked(witness, "x-gpc", {"tolerance": value}, 3)["tolerance"]
        assert type(actual) is float
        assert actual == float(value)


def test_a_share_below_what_rounding_leaves_of_it_is_refused():
    shares = {"damping", "inner_damping", "nat_rate"}
    visited = set()
    for witness, method in ROWS:
        for name, option in options_of(witness, method).items():
            if name in shares or option.kind == "rate":
                visited.add(name)
                assert option.check(1e-8) == 1e-8
                for value in (5e-324, 1e-300, 9.9e-9):
                    with pytest.raises(ValueError, match=rf"^{name}: found .*, expected .*in \[1e-8, 1\]"):
                        checked(witness, method, {name: value}, 100)
    assert visited == shares | {"rate"}


def test_an_unused_option_is_refused_through_solve():
    toy = problems.get("toy")
    for implementation, method, given in [
        ("fast", "svgpc", {"rate": [np.nan]}),
        ("reference", "svgpc", {"window": np.nan}),
        ("fast", "x-gpc", {"learn": 3}),
        ("gibbs", "gibbs-logit", {"checkpoint": 3}),
        ("fast", "x-gpc", {"learning_iterations": "many"}),
    ]:
        (name,) = given
        with pytest.raises(ValueError, match=f"^{name}: found"):
            solve(implementation, method, toy, **given)


def test_the_page_of_options_is_what_the_tables_say():
    page = Path(__file__).resolve().parents[3] / "docs" / "options.md"
    assert page.read_text(encoding="utf-8") == options.markdown()


def test_an_unknown_method_is_named_with_the_near_miss():
    with pytest.raises(ValueError, match=r"^method: found 'x-gcp', expected one of .*\(did you mean 'x-gpc'\?\)"):
        options.rows("x-gcp")
