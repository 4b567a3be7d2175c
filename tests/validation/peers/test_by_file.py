"""Programs in any language: a JSON file out, a JSON file back, and every way in which that goes wrong."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from validation.door.solve import solve
from validation.judge.judging import judge
from validation.judge.posing import posed
from validation.peers import by_file

ANSWER = """
import json, sys
import numpy as np
p = json.load(open(sys.argv[1]))
X, y = np.array(p["X"]), np.array(p["y"])
X_test = np.array(p["X_test"])
r = lambda a, b: ((a[:, None] - b[None]) / np.array(p["lengthscales"])[0]) ** 2
k = lambda a, b: p["variance"][0] * np.exp(-0.5 * r(a, b).sum(-1))
K = k(X, X) + p["noise"][0] * np.eye(len(y))
f = np.zeros(len(y))
for _ in range(100):
    q = 1.0 / (1.0 + np.exp(-f))
    w = q * (1.0 - q)
    f = K @ np.linalg.solve(np.eye(len(y)) + w[:, None] * K, w * f + y - q)
q = 1.0 / (1.0 + np.exp(-f))
json.dump({"latent_mean": list(f), "test_latent_mean": list(k(X_test, X) @ (y - q))}, open(sys.argv[2], "w"))
"""


@pytest.fixture
def toy():
    return posed("toy")


def python(code):
    return [sys.executable, "-c", code]


def test_a_command_answers_and_lost_dimensions_come_back(toy):
    fields = by_file.ask(python(ANSWER), toy)
    ours = solve("fast", "laplace-binary", toy)
    assert fields["latent_mean"].shape == (toy.n, 1)
    np.testing.assert_allclose(fields["latent_mean"], ours.latent_mean, atol=1e-8)
    np.testing.assert_allclose(fields["test_latent_mean"], ours.test_latent_mean, atol=1e-8)


def test_a_command_is_a_program_that_the_judge_takes(tmp_path):
    path = tmp_path / "newton.py"
    path.write_text(ANSWER)
    program = by_file.program([sys.executable, str(path)], "laplace-binary", ["logit"])
    assert program.installed()
    verdict = judge(program, problems=["toy"], power=False)
    assert verdict.program == "newton"
    assert verdict.verdict == "AGREE", verdict.failed


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("raise SystemExit('no licence')", "exit code 1, expected an answer; it says: no licence"),
        ("pass", "no answer written"),
    ],
)
def test_a_command_that_fails_is_told_with_its_words(toy, code, word):
    with pytest.raises(RuntimeError, match=word):
        by_file.ask(python(code), toy)


def test_a_command_has_a_limit_of_time(toy):
    with pytest.raises(RuntimeError, match=r"no answer after 0\.5 s"):
        by_file.ask(python("import time; time.sleep(60)"), toy, seconds=0.5)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("not json", "found no JSON"),
        ("[1]", "found a JSON list"),
        ('{"mean": [1]}', "found mean, expected fields of"),
        ('{"latent_mean": [[1], [1, 2]]}', "latent_mean ragged"),
        ('{"latent_mean": ["a"]}', "latent_mean ragged or no numbers"),
    ],
)
def test_an_answer_that_is_none_is_an_error(toy, text, word):
    with pytest.raises(ValueError, match=word):
        by_file.from_lists(text, toy)


def test_an_array_of_another_size_is_left_for_the_solution_to_refuse(toy):
    assert by_file.from_lists('{"latent_mean": [1, 2]}', toy)["latent_mean"].shape == (2,)


def test_a_problem_is_plain_lists_without_what_is_none(toy):
    values = json.loads(json.dumps(by_file.as_lists(toy)))
    assert np.array(values["X"]).shape == toy.X.shape
    assert values["y"] == toy.y.tolist()
    assert "Z" not in values
    sparse = posed("toy-sparse")
    assert np.array(by_file.as_lists(sparse)["Z"]).shape == sparse.Z.shape


def test_a_command_is_a_list():
    with pytest.raises(TypeError, match=r"command: found 'Rscript a\.R'"):
        by_file.program("Rscript a.R", "laplace-binary", ["logit"])


def test_the_example_in_julia_agrees():
    julia = shutil.which("julia")
    if julia is None or subprocess.run([julia, "-e", "using JSON"], capture_output=True, check=False).returncode:
        pytest.skip("Julia with its package JSON is not installed")
    script = Path(__file__).resolve().parents[3] / "docs" / "examples" / "peers" / "laplace.jl"
    program = by_file.program([julia, str(script)], "laplace-binary", ["logit"])
    verdict = judge(program, problems=["toy", "toy-steep"], power=False)
    assert verdict.verdict == "AGREE", verdict.failed
