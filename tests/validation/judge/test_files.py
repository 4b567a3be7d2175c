"""Questions and answers as files, expected failures, and the JSON of the command."""

import json
from pathlib import Path

import numpy as np
import pytest

from validation import Problem, problems, solve
from validation.command import cli
from validation.judge.files import Files, export
from validation.judge.judging import judge
from validation.judge.posing import questions_for
from validation.judge.testing import parametrize_with_checks
from validation.judge.verdict import read_expected

WORDS = {"likelihoods": ("logit",)}


def answered(folder, answers, factor=1.0):
    """What a program in another language does: arrays by name, without the problem or a schema."""
    for path in sorted(folder.rglob("*.npz")):
        solution = solve("fast", path.parent.name, Problem.load(path))
        target = answers / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        np.savez(target, latent_mean=factor * solution.latent_mean, latent_cov=solution.latent_cov)


@pytest.fixture
def folders(tmp_path):
    questions, answers = tmp_path / "questions", tmp_path / "answers"
    export(questions, questions_for(Files(answers, "x-gpc"), problems=["two-points", "toy", "judge-sparse"]))
    return questions, answers


def test_answers_of_files_are_judged_with_invariances(folders):
    answered(*folders)
    verdict = judge(Files(folders[1], "x-gpc"), problems=["two-points", "toy", "judge-sparse"], power=False)
    assert verdict.verdict == "AGREE", [case.name for case in verdict.failed]
    assert {case.row.kind for case in verdict.passed} >= {"answer", "identity", "discrepancy", "invariance"}
    assert not [why for why in verdict.not_judged.values() if "found no file" in why]


def test_wrong_answers_of_files_disagree_and_missing_ones_are_named(folders):
    answered(*folders, factor=1.01)
    for path in folders[1].rglob("judge-sparse*.npz"):
        path.unlink()
    verdict = judge(Files(folders[1], "x-gpc"), problems=["toy", "judge-sparse"], power=False)
    assert verdict.verdict == "DISAGREE"
    assert "found no file" in verdict.not_judged["x-gpc on judge-sparse"]


def test_a_file_that_is_no_answer_is_a_failure_that_names_it(folders):
    answered(*folders)
    (damaged,) = [path for path in folders[1].rglob("two-points*.npz") if path.name == _first(folders[0]).name]
    damaged.write_bytes(b"no archive")
    (case,) = judge(Files(folders[1], "x-gpc"), problems="two-points", power=False).failed
    assert f"{damaged}: found a file that cannot be read" in case.row.why
    np.savez(damaged, latent_mean=np.zeros((2, 1)), latent_var=np.ones((2, 1)))
    (case,) = judge(Files(folders[1], "x-gpc"), problems="two-points", power=False).failed
    assert "found unknown fields ['latent_var']" in case.row.why


def _first(questions):
    """The file of the question itself: with the inputs as they are."""
    plain = problems.get("two-points")
    return next(path for path in questions.rglob("two-points*.npz") if not Problem.load(path).differences(plain))


@pytest.fixture
def triad(monkeypatch, capfd):
    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["triad", "judge", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capfd.readouterr()
        return caught.value.code or 0, out, err

    return run


def test_the_command_exports_judges_files_and_prints_json(triad, tmp_path):
    asked = ("--method", "x-gpc", "--problem", "two-points")
    code, out, _ = triad(*asked, "--export", tmp_path / "q")
    assert (code, out) == (0, f"4 questions in {tmp_path / 'q'}\n")
    answered(tmp_path / "q", tmp_path / "a", factor=1.01)
    code, out, _ = triad(*asked, "--answers", tmp_path / "a", "--json", "--no-power")
    told = json.loads(out)
    failed = {case["check"] for case in told["cases"] if case["verdict"] == "FAIL"}
    assert (code, told["verdict"]) == (1, "DISAGREE")
    assert "x-gpc/two-points/identity/latent_mean" in failed
    assert any(case["worst"].startswith("latent_mean[") and "yours" in case["worst"] for case in told["cases"])
    # every failure excused, and one that passes
    lines = [f"{name}: one per cent off" for name in failed]
    lines += ["x-gpc/two-points/identity/latent_cov: never", "x-gpc/wine/identity/latent_cov: not asked"]
    (tmp_path / "expected").write_text("# known\n\n" + "\n".join(lines))
    code, out, _ = triad(*asked, "--answers", tmp_path / "a", "--expected", tmp_path / "expected", "--no-power")
    assert code == 0
    assert "identity/latent_cov: passes, a failure was expected" in " ".join(out.split())
    assert "x-gpc/wine/identity/latent_cov: no check of this run has that id" in " ".join(out.split())
    code, _, err = triad("--no-power")
    assert (code, "program: expected module:function" in err) == (2, True)


def test_expected_failures_need_a_reason(tmp_path):
    path = Path(tmp_path, "expected")
    path.write_text("x-gpc/toy/identity/latent_mean:\n")
    with pytest.raises(ValueError, match=r"expected:1: found .* expected the id of a check, a colon, and a reason"):
        read_expected(path)
    path.write_text("a: b\na: c\n")
    with pytest.raises(ValueError, match="expected:2: found 'a' again"):
        read_expected(path)
    path.write_text("a: b\n")
    with pytest.raises(ValueError, match="found a, expected ids of checks of this program"):
        parametrize_with_checks(lambda method, problem: None, "x-gpc", problems="two-points", expected=path)
