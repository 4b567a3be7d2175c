"""The draw is over all that computes, and over nothing else; it is the same for the same seed."""

import pytest

from validation.mutation import statements
from validation.mutation.statements import PACKAGES, Statement


def lines(text):
    return [(entry.function, entry.first, entry.last) for entry in statements.statements("fast.x", text)]


def test_statements_are_found_with_their_function_and_their_own_lines():
    text = (
        '"""Words."""\n'  # 1
        "HALF = 0.5\n"
        "class A:\n"
        '    """Words."""\n'
        "    def f(self, x=1):\n"  # 5
        '        """Words."""\n'
        "        if x > 1:\n"
        "            y = x + 1\n"
        "        return y\n"
        "def _check(x):\n"  # 10
        "    return x + 1\n"
    )
    assert lines(text) == [("", 2, 2), ("A.f", 5, 5), ("A.f", 7, 7), ("A.f", 8, 8)]


def test_an_if_that_only_raises_is_a_check_of_arguments():
    assert lines("def f(x):\n    if x > 1:\n        raise ValueError('x')\n    return x + 1\n") == [("f", 4, 4)]
    assert ("f", 2, 2) in lines("def f(x):\n    if x > 1:\n        x = 1\n        y = g(x)\n    return x + 1\n")


def test_how_much_is_done_at_a_time_is_not_drawn():
    assert lines("_CELLS = 10\ndef f(n):\n    rows = max(1, _CELLS // n)\n    return rows + 1\n") == [("f", 4, 4)]
    # a number that nothing says to be one, and another use of one that is
    for text in ("max(1, MOST // n)", "max(2, _CELLS // n)", "max(1, _CELLS // n) * n", "_CELLS // n"):
        assert ("f", 2, 2) in lines(f"def f(n):\n    rows = {text}\n    return rows + 1\n"), text


def test_names_of_the_vocabulary_that_end_in_checks_are_no_reason_to_leave_a_module_out():
    for package in PACKAGES:
        result = statements.modules(package)
        assert len(result) > 30
        assert not any(name.endswith((".errors", ".ledger", "._types", ".__init__")) for name in result)


def test_every_statement_has_an_area_and_every_area_has_statements():
    areas = {
        statements.area(entry.module, entry.function)
        for package in PACKAGES
        for entry in statements.population(package)
    }
    assert areas == set(statements.area_names())
    with pytest.raises(LookupError, match=r"areas: found no area for 'other\.module:f'"):
        statements.area("other.module", "f")


def test_a_smaller_draw_is_the_beginning_of_a_larger_one():
    assert statements.draw(("gibbs",), 5, 3) == statements.draw(("gibbs",), 9, 3)[:5]


def test_a_draw_is_repeated_by_its_seed_and_takes_each_statement_once():
    first, again, other = (statements.draw(("fast",), 40, seed) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert len({(mutant.module, mutant.function, mutant.first, mutant.last) for mutant in first}) == 40


def test_a_draw_larger_than_the_population_is_refused():
    with pytest.raises(ValueError, match=r"n: found 1000000, expected 1\.\."):
        statements.draw(("fast",), 1_000_000, 0)


def test_a_mutant_shows_the_lines_that_differ():
    module = "fast.one_latent.sites"
    entry = next(entry for entry in statements.statements(module) if len(entry.changes) > 1)
    assert isinstance(entry, Statement)
    for change in entry.changes:
        mutant = statements.make(entry, change)
        assert mutant.before != mutant.after
        assert mutant.diff.startswith(("-", "+"))
        assert mutant.before in statements.source_of(module)
        assert mutant.after in statements.mutated_source(mutant)


def test_a_default_is_seen_by_what_runs_in_its_function_and_a_constant_by_the_whole_module():
    text = "A = 1.0\ndef f(x=1):\n    return x + A\n\n\ndef g(x):\n    return x + 2\n"
    results = {(entry.function, entry.first): entry.watched for entry in statements.statements("fast.x", text)}
    assert results == {("", 1): (1, 8), ("f", 2): (3, 3), ("f", 3): (3, 3), ("g", 7): (7, 7)}


def test_checks_of_arguments_and_sizes_of_blocks_are_no_candidates():
    text = (
        "_BLOCK = 4096\n_STEP = 0.5\n\n\n"
        "def f(X, y, n):\n"
        "    X = inputs.inputs('X', X)\n    _check.count(n, 'n')\n    y = y + 1\n    return X @ y\n"
    )
    results = [entry.first for entry in statements.statements("fast.somewhere", text)]
    assert results == [2, 8]


def test_what_another_operating_system_runs_is_no_candidate():
    text = "def f(a):\n    if fcntl is None:\n        a = a + 1\n    else:\n        a = a - 1\n    return a\n"
    assert [entry.first for entry in statements.statements("fast.core.linalg", text)] == [5]
