"""The draw of mutants: seeded, of every statement, one change each."""

import ast

import pytest

pytest.importorskip("cosmic_ray", reason="of the extra `mutation`")

import mutants


@pytest.fixture(scope="module")
def sample():
    return mutants.draw(12, 3, ["gibbs"])


def test_a_seed_names_its_mutants_and_fewer_are_the_first_of_them(sample):
    assert [mutant.name for mutant in mutants.draw(5, 3, ["gibbs"])] == [mutant.name for mutant in sample[:5]]
    assert [mutant.name for mutant in mutants.draw(5, 4, ["gibbs"])] != [mutant.name for mutant in sample[:5]]


def test_each_mutant_is_another_program_that_python_reads(sample):
    for mutant in sample:
        before = (mutants.ROOT / mutant.path).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(before)), mutant.diff


def test_constants_of_modules_defaults_and_literals_are_drawn(tmp_path, monkeypatch):
    text = 'LEAF = 4096\n\n\ndef f(x: float | None, n=3):\n    """Text."""\n    return x + n * 2.0\n'
    (tmp_path / "fast").mkdir()
    (tmp_path / "fast" / "some.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    drawn = [mutant for seed in range(40) for mutant in mutants.draw(9, seed, ["fast"])]
    assert {mutant.kind for mutant in drawn} >= {"constant", "default", "literal", "arithmetic"}
    assert {mutant.points for mutant in drawn} == {(("fast/some.py", 6),)}
    assert all("x: float | None" in mutant.text for mutant in drawn)


def test_heads_of_blocks_and_decorators_are_drawn_and_what_cannot_be_compiled_is_not(tmp_path, monkeypatch):
    text = """from functools import cache


@cache
def g(x, *, y=1):
    try:
        return {**x}
    except (KeyError, ValueError):
        return x & y
"""
    (tmp_path / "gibbs").mkdir()
    (tmp_path / "gibbs" / "other.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    drawn = [mutant for seed in range(60) for mutant in mutants.draw(9, seed, ["gibbs"])]
    operators = {mutant.operator for mutant in drawn}
    assert {"RemoveDecorator", "ExceptionReplacer", "ReplaceBinaryOperator_BitAnd_BitOr"} <= operators
    for mutant in drawn:
        ast.parse(mutant.text)


def test_what_runs_at_import_is_passed_by_the_functions_that_use_it(tmp_path, monkeypatch):
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "sizes.py").write_text("LIMIT = 3\n", encoding="utf-8")
    user = "from reference.sizes import LIMIT\n\n\ndef f():\n    return LIMIT\n"
    (tmp_path / "reference" / "user.py").write_text(user, encoding="utf-8")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    assert {mutant.points for mutant in mutants.draw(1, 0, ["reference"])} == {(("reference/user.py", 5),)}
