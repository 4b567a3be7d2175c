"""Recorded defaults: a change of any is red and named, and the file says what the code says."""

import pytest

from fast.sparse_classes import training
from validation.checks import defaults


@pytest.mark.parametrize("package", defaults.PACKAGES)
def test_the_record_is_of_this_code(package):
    (result,) = defaults.compared(package)
    assert (result.observed, result.why.endswith("are the recorded ones")) == (0, True)
    assert len(defaults.recorded()[package]) > 40


def test_a_default_that_changed_is_named(monkeypatch):
    function = training.settings_of
    names = dict(function.__kwdefaults__ or {})
    (changed, *_) = [name for name, value in names.items() if isinstance(value, (int, float, type(None)))]
    monkeypatch.setattr(function, "__kwdefaults__", names | {changed: 12345})
    (result,) = defaults.compared("fast")
    assert result.observed >= 1
    assert f"{changed}: found 12345, recorded {names[changed]!r}" in result.why


def test_no_default_is_an_address_in_memory():
    values = [
        value for package in defaults.recorded().values() for table in package.values() for value in table.values()
    ]
    assert not [value for value in values if " at 0x" in value]
