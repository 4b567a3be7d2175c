"""The picture of the start page shows what the witnesses answer, and says so where it does not."""

import importlib.util
import math
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from validation import problems, solve, truth

DOCS = Path(__file__).resolve().parents[2] / "docs"
spec = importlib.util.spec_from_file_location("picture", DOCS / "picture.py")
picture = importlib.util.module_from_spec(spec)
sys.modules["picture"] = picture
spec.loader.exec_module(picture)
TEXT = picture.PICTURE.read_text(encoding="utf-8")
SHOWN = picture.read(TEXT)


def test_the_picture_is_drawn_from_the_numbers_that_it_holds():
    assert picture.draw(SHOWN) == TEXT
    words = [node.text for node in ElementTree.fromstring(TEXT).iter("{http://www.w3.org/2000/svg}text")]
    assert f"{SHOWN['variance']:.2f} of the truth" in words
    assert f"means agree to 1e{SHOWN['apart']}" in words


def test_the_numbers_are_those_of_the_witness_and_of_the_stored_truth():
    answer, exact = solve("fast", "x-gpc", problems.get("iris")), truth.load("iris").solution
    flower = SHOWN["flower"]
    # four decimals are shown
    assert answer.latent_mean[flower, 0] == pytest.approx(SHOWN["mean"], rel=0, abs=6e-5)
    assert math.sqrt(answer.latent_cov[flower, 0, 0]) == pytest.approx(SHOWN["deviation"], rel=0, abs=6e-5)
    assert answer.log_evidence == pytest.approx(SHOWN["bound"], rel=0, abs=6e-3)
    assert exact.log_evidence == pytest.approx(SHOWN["log_evidence"], rel=0, abs=6e-3)
    ratios = answer.latent_cov[:, 0, 0] / exact.latent_cov[:, 0, 0]
    assert ratios.argmin() == flower
    assert ratios[flower] == pytest.approx(SHOWN["variance"], rel=0, abs=6e-3)


def test_the_histogram_has_the_moments_of_the_stored_truth():
    exact = truth.load("iris").solution
    low, high = SHOWN["range"]
    width = (high - low) / len(SHOWN["density"])
    middles = [low + (i + 0.5) * width for i in range(len(SHOWN["density"]))]
    total = sum(SHOWN["density"]) * width
    mean = sum(m * d for m, d in zip(middles, SHOWN["density"], strict=True)) * width / total
    flower = SHOWN["flower"]
    deviation = math.sqrt(exact.latent_cov[flower, 0, 0])
    # 16 000 draws with an autocorrelation time of some ten sweeps: a standard error of 0.025 deviations
    assert mean == pytest.approx(exact.latent_mean[flower, 0], rel=0, abs=0.1 * deviation)
    assert total == pytest.approx(1.0, rel=0, abs=0.01)  # 3.2 deviations to one side leave less than that


def test_another_number_is_seen_and_rounding_or_other_draws_are_not():
    assert picture.same(SHOWN, {**SHOWN, "apart": -13, "density": [d * 1.01 for d in SHOWN["density"]]})
    assert not picture.same(SHOWN, {**SHOWN, "mean": SHOWN["mean"] + 1e-4})
    assert not picture.same(SHOWN, {**SHOWN, "apart": -5})
    assert not picture.same(SHOWN, {**SHOWN, "density": SHOWN["density"][1:] + SHOWN["density"][:1]})


@pytest.mark.slow
def test_the_command_finds_its_own_picture(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["picture.py", "--check"])
    assert picture.main() == 0, capsys.readouterr().err
