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


def test_each_mutant_is_another_program_of_the_same_lines(sample):
    for mutant in sample:
        before = (mutants.ROOT / mutant.path).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(before)), mutant.diff
        assert mutant.text.count("\n") == before.count("\n")


def test_constants_of_modules_defaults_and_literals_are_drawn(tmp_path, monkeypatch):
    text = 'LEAF = 4096\n\n\ndef f(x: float | None, n=3):\n    """Text."""\n    return x + n * 2.0\n'
    (tmp_path / "fast").mkdir()
    (tmp_path / "fast" / "some.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    drawn = [mutant for seed in range(40) for mutant in mutants.draw(9, seed, ["fast"])]
    assert {mutant.kind for mutant in drawn} >= {"constant", "default", "literal", "arithmetic"}
    assert {mutant.watched for mutant in drawn if mutant.kind == "constant"} == {range(1, 7)}
    assert all("x: float | None" in mutant.text for mutant in drawn)
