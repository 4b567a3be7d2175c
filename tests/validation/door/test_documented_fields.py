"""What docs/bring-your-own.md says an own solution should state is what the witnesses state."""

import re
from pathlib import Path

import pytest

from validation import problems, solve
from validation.door.solve import methods

PAGE = Path(__file__).resolve().parents[3] / "docs" / "bring-your-own.md"
ROW = re.compile(
    r"^\| (?P<methods>`.*?) \| `(?P<kind>[^`]+)` \| (?P<target>[^|]+) \| (?P<prior>[^|]+) \| (?P<local>.+) \|$"
)

# (method, options, problem): what three iterations give already has its shapes
ASKED = [
    ("x-gpc", {}, "toy"),
    ("vi-jj", {}, "toy-spread"),
    ("vi-taylor", {}, "toy-spread"),
    ("laplace-binary", {}, "toy-spread"),
    ("nested-ep", {}, "toy-3"),
    ("qep", {}, "toy-3"),
    ("qiep", {}, "toy-3"),
    ("laplace", {}, "toy-3-softmax"),
    ("vb-probit", {}, "toy-3"),
    ("ep", {}, "toy-3-sparse-threshold"),
    ("ep", {"factors": "datum"}, "toy-3-sparse-threshold"),
    ("sep", {}, "toy-3-sparse-threshold"),
    ("gfitc", {}, "toy-3-sparse-threshold"),
    ("pep", {}, "toy-3-sparse-threshold"),
    ("apep", {}, "toy-3-sparse-threshold"),
    ("arpep", {}, "toy-3-sparse-threshold"),
    ("vi-robust", {}, "toy-2-sparse-errors"),
    ("laplace-sparse", {}, "toy-3-sparse-softmax"),
]


def documented():
    """The rows of the table, each with the methods that it is for."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if (row := ROW.match(line)) is not None:
            yield re.findall(r"`([a-z0-9-]+)`", row["methods"]), row


def row_of(method, options):
    """The row of a method; that of EP with factors by datum names the option."""
    datum = options.get("factors") == "datum"
    (row,) = [
        row for names, row in documented()
        if method in names and ("datum" in row["methods"]) == (datum or method == "pep")
    ]  # fmt: skip
    return row


def speaks_of(part, witness, method):
    """Whether a part of a cell, "of `method`, by `witness` alone, ...", is about this answer."""
    of, by = re.match(r"of `([a-z0-9-]+)`", part), re.search(r"by `(\w+)` alone", part)
    return (of is None or of[1] == method) and (by is None or by[1] == witness)


def test_every_method_of_the_witnesses_has_a_row():
    listed = {name for names, _ in documented() for name in names}
    assert listed == set(methods()["reference"]) | set(methods()["fast"])


@pytest.mark.parametrize(("method", "options", "name"), ASKED)
@pytest.mark.parametrize("witness", ["reference", "fast"])
def test_a_row_says_what_a_witness_states(witness, method, options, name):
    problem, row = problems.get(name), row_of(method, options)
    solution = solve(witness, method, problem, max_iterations=3, **options)
    assert solution.log_evidence_kind == row["kind"]
    assert solution.evidence_target == re.findall("`([^`]+)`", row["target"])[0]
    prior = re.findall("`([^`]+)`", row["prior"])
    assert solution.prior_model == (prior[0] if prior else problem.prior_model)
    # without inducing inputs every row of X is one
    sizes = {"n": problem.n, "C": problem.n_classes, "C-1": problem.n_classes - 1, "m": problem.m or problem.n,
             "t": problem.t}  # fmt: skip
    parts = [part for part in row["local"].split("; ") if speaks_of(part, witness, method)]
    shapes = {}
    for names, letters in re.findall(r"((?:`\w+`(?:, )?)+) \(([^)]*)\)", "; ".join(parts)):
        shape = tuple(sizes.get(letter.strip()) for letter in letters.split(",") if letter.strip())
        shapes |= dict.fromkeys(re.findall(r"`(\w+)`", names), shape)
    assert {key: array.shape for key, array in solution.local.items()} == {
        key: shape for key, shape in shapes.items() if key not in ("rates", "tkp_scores")
    }
