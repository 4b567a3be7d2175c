"""The test kit in a project that has nothing but the installed packages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from validation.judge.testing import checks_of

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
from dataclasses import replace

from validation import solve
from validation.judge.testing import parametrize_with_checks


def answer(method, problem):
    asked = problem.replace(lengthscales=problem.lengthscales / FACTOR)
    return replace(solve("reference", method, asked), problem=problem, implementation="mine", gradients=None)


@parametrize_with_checks(answer, method="laplace", problems=["two-points-3-softmax"])
def test_my_classifier(check):
    check()
"""


def run(folder, factor):
    (folder / "test_mine.py").write_text(PROGRAM.replace("FACTOR", factor))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "test_mine.py"], cwd=folder, text=True,
        capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=300, check=False,
    )  # fmt: skip


def test_a_right_program_passes_each_of_its_tests(tmp_path):
    done = run(tmp_path, "1.0")
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


def test_a_wrong_program_fails_by_readable_ids_and_is_told_why(tmp_path):
    done = run(tmp_path, "2.0**0.5")
    assert done.returncode == 1
    assert "test_my_classifier[laplace-two-points-3-softmax-identity-latent_mean]" in done.stdout
    assert "worst at latent_mean[" in done.stdout
    assert "suspect: in yours the kernel lacks the factor 2" in done.stdout


def test_ids_are_unique_and_say_method_problem_kind_and_quantity():
    names = [check.name for check in checks_of(lambda method, problem: None, "x-gpc")]
    assert len(set(names)) == len(names)
    assert "x-gpc-toy-identity-latent_cov" in names
    assert "x-gpc-toy-truth-probabilities" in names
    assert "x-gpc-toy-invariance-order_of_rows" in names
    assert not any("order_of_classes" in name for name in names)
    with pytest.raises(ValueError, match="limit: found 0, expected a number > 0"):
        checks_of(lambda method, problem: None, "x-gpc", limit=0.0)
