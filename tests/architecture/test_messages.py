"""Errors quote what they found by `shown`: a list that holds itself, or a number of 400 digits, has no short repr."""

import re
from pathlib import Path

import numpy as np
import pytest

import fast.core.checks
import gibbs.core.checks
import reference.common._options
import validation.door.quoting

ROOT = Path(__file__).resolve().parents[2]
SHOWN = [
    package.shown
    for package in (fast.core.checks, gibbs.core.checks, reference.common._options, validation.door.quoting)
]


def deep():
    results = []
    for _ in range(20_000):
        results = [results]
    return results


@pytest.mark.parametrize("package", ["fast", "gibbs", "reference", "validation"])
def test_no_message_takes_the_repr_of_what_it_was_given(package):
    results = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"found \{[^}]*!r\}", line)
    ]
    assert results == [], "quote values by `shown`"


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.__module__)
def test_any_value_is_quoted_in_one_short_line(shown):
    itself = []
    itself.append(itself)
    for value in (deep(), itself, 10**5000, "x" * 500, "two\nlines", np.zeros((3, 4)), object(), [deep()], None, 1.5):
        text = shown(value)
        assert 0 < len(text) <= 100
        assert "\n" not in text
    for size in range(60, 100):
        path = "/tmp/" + "x" * size + "/nowhere"
        assert shown(path).endswith("nowhere'")
    assert shown(0.25) == "0.25"
    assert shown("ep") == "'ep'"
