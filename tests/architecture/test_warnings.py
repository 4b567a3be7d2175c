"""The filters of pyproject.toml: a warning that our own lines cause is an error, a library's deprecation is not."""

import warnings

import numpy as np
import pytest

OURS = [
    "reference",
    "reference.common.product",
    "fast.kernel",
    "gibbs.chains.chain",
    "validation.command.cli",
    "tests.fast.test_x",
]
THEIRS = ["sklearn.base", "typer.main", "matplotlib", "fastapi", "gibbsite.model", "reference_data", "numpy.lib"]
DEPRECATIONS = [DeprecationWarning, PendingDeprecationWarning, FutureWarning]


def run_in(module: str, line: str) -> list[warnings.WarningMessage]:
    """Run one line as that module would, under the filters of this very run; what was only shown is returned."""
    with warnings.catch_warnings(record=True) as shown:
        exec(line, {"__name__": module, "np": np, "warnings": warnings, "huge": np.array([1e300, -1e300])})
    return shown


@pytest.mark.parametrize("category", [*DEPRECATIONS, UserWarning, RuntimeWarning])
@pytest.mark.parametrize("module", OURS)
def test_a_warning_attributed_to_our_own_module_is_an_error(module, category):
    with pytest.raises(category, match=r"^planted$"):
        run_in(module, f"warnings.warn('planted', {category.__name__})")


@pytest.mark.parametrize("category", DEPRECATIONS)
@pytest.mark.parametrize("module", THEIRS)
def test_a_deprecation_inside_a_library_is_shown_and_no_error(module, category):
    shown = run_in(module, f"warnings.warn('planted', {category.__name__})")
    assert [(str(warning.message), warning.category) for warning in shown] == [("planted", category)]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("huge * huge", id="in our own line"),
        pytest.param("np.var(huge)", id="in a file of NumPy"),
        pytest.param("np.mean(huge[:0])", id="of nothing"),
    ],
)
def test_arithmetic_that_overflows_is_an_error_wherever_it_is_met(line):
    with pytest.raises(RuntimeWarning):
        run_in("fast.kernel", line)


def test_doubt_about_an_integral_is_an_error_also_where_scipy_integrates_over_two_axes():
    from scipy.integrate import IntegrationWarning

    line = "__import__('scipy.integrate').integrate.dblquad(lambda x, y: 1 / abs(x - 0.3), 0, 1, 0, 1)"
    with pytest.raises(IntegrationWarning):
        run_in("validation.truth", line)


def test_a_warning_in_this_very_file_is_an_error():
    with pytest.raises(DeprecationWarning, match=r"^planted$"):
        warnings.warn("planted", DeprecationWarning, stacklevel=1)
