"""The marker of equations."""

import pytest

from reference.common import ledger
from reference.common.ledger import equation


def test_markers_accumulate_in_one_wrapper_and_are_printed_in_order():
    @equation("paper-a", "1", "2")
    @equation("paper-b", "7", as_printed=True)
    def double(x):
        """Twice x."""
        return 2 * x

    assert double.__equations__ == (("paper-a", "1"), ("paper-a", "2"), ("paper-b", "7"))
    assert double.__as_printed__ is True
    assert (double.__name__, double.__doc__, double(4)) == ("double", "Twice x.", 8)


def test_the_hook_sees_the_public_function_once_and_replaces_its_output(monkeypatch):
    visited = []

    @equation("paper-a", "1")
    @equation("paper-b", "7")
    def double(x):
        return 2 * x

    def hook(function, output):
        visited.append((function, output))
        return output + 1

    monkeypatch.setattr(ledger, "hook", hook)
    assert double(4) == 9
    assert visited == [(double, 8)]


def test_a_marker_without_an_id_is_refused():
    with pytest.raises(ValueError, match="ids: found none"):
        equation("paper-a")
