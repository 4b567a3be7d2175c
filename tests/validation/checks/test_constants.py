"""Recorded constants: a change of any is red and named, and the file says what the code says."""

import numpy as np
import pytest

from gibbs.draws import truncated_normal
from gibbs.models import multilatent
from validation.checks import constants


def asked(package):
    (result,) = constants.compared(package)
    return result


@pytest.mark.parametrize("package", constants.PACKAGES)
def test_the_record_is_of_this_code(package):
    result = asked(package)
    assert (result.observed, result.why.endswith("tables are rounded")) == (0, True)
    assert len(constants.recorded()[package]) > 80


@pytest.mark.parametrize(
    ("module", "name", "other"),
    [
        (truncated_normal, "_TERMS", 61),
        (truncated_normal, "_ROOT_2_PI", truncated_normal._ROOT_2_PI * (1.0 + 1e-8)),
        (multilatent, "_STEP", -0.85),
        (multilatent, "_STEP", np.ones(2)),
        (multilatent, "_STEP", "none"),
    ],
)
def test_a_constant_that_changed_is_named(monkeypatch, module, name, other):
    monkeypatch.setattr(module, name, other)
    result = asked("gibbs")
    assert (result.observed, result.why) == (1, f"{module.__name__}:{name}")


def test_rounding_of_a_table_is_none(monkeypatch):
    monkeypatch.setattr(truncated_normal, "_ROOT_2_PI", truncated_normal._ROOT_2_PI * (1.0 + 1e-13))
    assert asked("gibbs").observed == 0


def test_parts_of_tables_are_found_and_types_are_not():
    table = constants.in_code("gibbs")
    assert table["gibbs.models.softmax:TARGET_ACCEPTANCE.scaled"] == (0.25,)
    assert table["gibbs.models.softmax:_REFITS.1"] == (0.25,)
    assert "gibbs.core.errors:Array" not in table
