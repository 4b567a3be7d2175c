"""The judge's own marker of equations."""

import inspect

import pytest

from validation.ledger import marker
from validation.ledger.marker import equation


def test_stacked_markers_accumulate_on_one_wrapper_that_calls_the_hook_once(monkeypatch):
    @equation("a2000", "1", "2")
    @equation("b2001", "7")
    def double(x: float) -> float:
        """Twice x."""
        return 2.0 * x

    assert double.__equations__ == (("a2000", "1"), ("a2000", "2"), ("b2001", "7"))
    assert double.__as_printed__ is False
    assert double.__doc__ == "Twice x."
    assert not hasattr(inspect.unwrap(double), "__equations__")
    assert double(3.0) == 6.0
    calls = []
    monkeypatch.setattr(marker, "hook", lambda function, output: calls.append(function) or output + 1.0)
    assert double(3.0) == 7.0
    assert calls == [double]


def test_a_misprint_says_so():
    @equation("a2000", "1", as_printed=True)
    def wrong() -> None: ...

    assert wrong.__as_printed__ is True


@pytest.mark.parametrize("args", [("a2000",), ("", "1"), (1, "1"), ("a2000", 11), ("a2000", "")])
def test_a_marker_without_a_paper_or_an_id_is_an_error(args):
    with pytest.raises(ValueError, match="expected"):
        equation(*args)
