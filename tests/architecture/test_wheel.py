"""A wheel built from the repository, installed into an environment of its own and used outside the repository."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="builds of the wheel need the build backend here: no network is asked")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """(python, folder): an interpreter that has the wheel, and an empty folder."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--no-cache-dir", "--disable-pip-version-check", "-q"]
    build = [*pip, "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "-w", str(folder / "dist")]
    subprocess.run(build, check=True, timeout=300, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=os.name != "nt")
    below = "Scripts" if os.name == "nt" else "bin"
    python = folder / "venv" / below / Path(sys.executable).name
    subprocess.run(
        [*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], check=True, timeout=300
    )
    # its dependencies are those at hand; a plain line of a .pth reads no other .pth, so not the repository itself
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    (Path(own) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "away").mkdir()
    return python, folder / "away"


def run(installed, *arguments, code=0):
    python, folder = installed
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [python, *arguments], capture_output=True, text=True, timeout=600, cwd=folder, env=environment, check=False
    )
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_packages_are_those_of_the_wheel(installed):
    python, _ = installed
    program = (
        "import triad, validation, fast, gibbs, reference\n"
        "for module in (triad, validation, fast, gibbs, reference): print(module.__file__)\n"
        "triad.Problem, triad.XGPClassifier, triad.truths.load('toy')"
    )
    places = run(installed, "-c", program).split()
    assert all(place.startswith(str(python.parents[1])) for place in places), places


def test_problems_solve_compare_and_verify_work(installed):
    _, folder = installed
    assert "toy-steep" in run(installed, "-m", "triad", "problems")
    for witness in ("reference", "fast"):
        run(installed, "-m", "triad", "solve", witness, "x-gpc", "toy", "--output", f"{witness}.npz")
    assert "AGREE" in run(installed, "-m", "triad", "compare", "reference.npz", "fast.npz")
    asked = ("--check", "identity/x-gpc/*", "--problem", "toy", "--output", "results")
    assert "0 failed" in run(installed, "-m", "triad", "verify", *asked)
    assert (folder / "results" / "report.html").is_file()


def test_the_audit_states_what_was_true_when_the_wheel_was_built(installed):
    told = run(installed, "-m", "triad", "audit")
    assert "states as they were when this package was built" in told
    assert "complete" in told
    one = run(installed, "-m", "triad", "audit", "wenzel2019:11")
    assert "verified" in one
    assert "unknown" not in one
    run(installed, "-m", "triad", "audit", "wenzel2019:11", "--perturb", code=1)


@pytest.mark.slow
def test_all_of_the_quick_verification_works(installed):
    assert " 0 failed" in run(installed, "-m", "triad", "verify")
