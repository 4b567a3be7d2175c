"""Every option of every method refuses by its own name what it cannot be, before any work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from validation import problems, solve
from validation.checks.runs import CATALOGUE, posed
from validation.door.options import options_of

_NOTHING = object()
ASKED = [(witness, method) for method in CATALOGUE for witness in method.witnesses]


@pytest.mark.parametrize(("witness", "method"), ASKED, ids=lambda value: getattr(value, "name", value))
def test_an_option_names_itself_where_its_value_is_none_of_its_own(witness: str, method: Any) -> None:
    problem = posed(method, problems.get(method.problem))
    for name, option in options_of(witness, method.name).items():
        wrong = [_NOTHING, [["a"]], {"a": 1}]
        wrong += (
            [np.nan, -1, "no such word"] if getattr(option, "kind", "number") in ("number", "integer", "rate") else []
        )
        for value in wrong:
            with pytest.raises((ValueError, TypeError), match=rf"^{name}"):
                solve(witness, method.name, problem, **{name: value})
