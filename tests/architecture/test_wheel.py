"""Wheels built from the repository in three ways, and one of them used where there is nothing else: no repository, no
package of the developers, no file in the home folder. What is installed comes from this environment, so that no network
is asked."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
import typer.main
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from validation.command.cli import app

pytest.importorskip("hatchling", reason="builds of the wheel need the build backend here: no network is asked")

ROOT = Path(__file__).resolve().parents[2]
PIP = [sys.executable, "-m", "pip", "--no-cache-dir", "--disable-pip-version-check", "-q"]


def needed(name):
    """A distribution and all that it needs without extras, by name."""
    found = {}

    def add(name):
        key = canonicalize_name(name)
        if key not in found:
            found[key] = distribution(name)
            for text in found[key].requires or ():
                one = Requirement(text)
                if one.marker is None or one.marker.evaluate({"extra": ""}):
                    add(one.name)

    add(name)
    return found


def environment(folder, distributions):
    """An interpreter that has these distributions of this environment, and nothing else."""
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    python = folder / ("Scripts" if os.name == "nt" else "bin") / Path(sys.executable).name
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    place = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    for one in distributions:
        for name in {file.parts[0] for file in one.files or () if file.parts[0] not in ("..", "__pycache__")}:
            source, goal = Path(one.locate_file(name)), Path(place, name)
            if goal.exists():
                continue
            if os.name == "nt":
                (shutil.copytree if source.is_dir() else shutil.copyfile)(source, goal)
            else:
                goal.symlink_to(source)
    return python


def _besides_sources(folder, names):
    """What a checkout has besides its sources, in folders that no build reads."""
    top = [name for name in names if Path(folder) == ROOT and name in (".git", "results", "dist")]
    return [*top, *(name for name in names if name in ("__pycache__", "_build") or name.startswith(".venv"))]


def only(folder):
    """The one file in a folder."""
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Wheels by how they were built: from a copy of the sources, from a source distribution, from the checkout."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(ROOT, folder / "copy", ignore=_besides_sources)
    alone = environment(folder / "backend", needed("hatchling").values())
    hatchling = [alone, "-m", "hatchling", "build", "-d"]
    subprocess.run([*hatchling, folder / "sdist", "-t", "sdist"], check=True, timeout=300, cwd=folder / "copy")
    shutil.unpack_archive(only(folder / "sdist"), folder / "unpacked", filter="data")
    for name, place in (("alone", folder / "copy"), ("from sdist", only(folder / "unpacked"))):
        subprocess.run([*hatchling, folder / name, "-t", "wheel"], check=True, timeout=300, cwd=place)
    beside = [*PIP, "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "-w", str(folder / "beside")]
    subprocess.run(beside, check=True, timeout=300, capture_output=True)
    return {name: only(folder / name) for name in ("alone", "from sdist", "beside")}


@pytest.fixture(scope="module")
def installed(wheels, tmp_path_factory):
    """(python, folder): an interpreter that has the wheel and what it needs, and an empty folder."""
    folder = tmp_path_factory.mktemp("wheel")
    own = {name: one for name, one in needed("gpc-triad").items() if name != "gpc-triad"}
    python = environment(folder / "venv", own.values())
    to = [*PIP, "--python", str(python), "install", "--no-deps", "--no-index", str(wheels["alone"])]
    subprocess.run(to, check=True, timeout=300)
    (folder / "away").mkdir()
    (folder / "home").mkdir()
    return python, folder / "away"


def run(installed, *arguments, code=0):
    python, folder = installed
    elsewhere = ("PYTHONPATH", "VIRTUAL_ENV", "TRIAD_DATA")
    kept = {name: value for name, value in os.environ.items() if name not in elsewhere}
    home = {"HOME": str(folder.parent / "home"), "USERPROFILE": str(folder.parent / "home")}
    done = subprocess.run(
        [python, *arguments], capture_output=True, text=True, timeout=600, cwd=folder, env=kept | home, check=False,
        encoding="utf-8",
    )  # fmt: skip
    told = f"{arguments}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    assert done.returncode == code, told
    assert "Traceback" not in done.stderr, told
    return done.stdout if code == 0 else done.stderr


def contents(file):
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_wheel_has_the_same_files_however_it_is_built(wheels):
    first, *others = (contents(file) for file in wheels.values())
    assert "validation/ledger/stored.json" in first
    for other in others:
        assert sorted(other) == sorted(first)
        assert [name for name in first if other[name] != first[name]] == []


def test_the_packages_are_those_of_the_wheel_and_pytest_is_not_there(installed):
    python, _ = installed
    program = (
        "import importlib.util, triad, validation, fast, gibbs, reference\n"
        "for module in (triad, validation, fast, gibbs, reference): print(module.__file__)\n"
        "triad.Problem, triad.XGPClassifier, triad.truths.load('toy')\n"
        "assert importlib.util.find_spec('pytest') is None"
    )
    places = run(installed, "-c", program).split()
    assert all(place.startswith(str(python.parents[1])) for place in places), places


# A program of a user, for `triad judge`.
PROGRAM = (
    "from validation import solve\n\ndef mine(method, problem, **o):\n    return solve('fast', method, problem, **o)\n"
)
# What a user types first of each command: arguments, and of those that fail the exit code and what they say.
COMMANDS = {
    "list problems": [([], ""), (["toy", "--output", "toy.npz"], "")],
    "list methods": [([], "")],
    "list data": [([], ""), (["iris"], "")],
    "solve": [
        (["fast", "x-gpc", "toy.npz", "--output", "a.npz"], ""),
        (["reference", "x-gpc", "toy", "--output", "b.npz"], ""),
    ],
    "compare": [(["a.npz", "b.npz", "--why"], "")],
    "audit": [
        ([], ""),
        (["wenzel2019"], ""),
        (["wenzel2019:11"], ""),
        (["--json"], ""),
        (["wenzel2019:11", "--run"], "1: --run needs a checkout"),
    ],
    "verify": [(["--check", "identity/x-gpc/*", "--problem", "toy", "--junit", "verdicts.xml"], "")],
    "bench": [(["--stored"], ""), (["--only", "quality", "--stored"], ""), (["--only", "league"], "")],
    "truth list": [([], "")],
    "truth show": [(["iris-2-30-logit-v8"], "")],
    "truth make": [(["two-points", "--method", "quadrature", "--output", "made.npz"], "")],
    "judge": [(["mine:mine", "--method", "x-gpc", "--problem", "toy", "--no-power"], "")],
    "claims list": [([], ""), (["villacampa2017:sep-memory-factor"], "")],
    "claims run": [(["wenzel2019"], "")],
}


def test_every_command_is_tried():
    commands = typer.main.get_command(app).commands
    assert set(COMMANDS) == {
        f"{name} {part}".strip() for name in commands for part in getattr(commands[name], "commands", [""])
    }


def test_every_command_works_without_a_checkout(installed):
    _, folder = installed
    (folder / "mine.py").write_text(PROGRAM, encoding="utf-8")
    told = {}
    for command, calls in COMMANDS.items():
        for arguments, error in calls:
            code, _, words = error.partition(": ")
            text = run(installed, "-m", "triad", *command.split(), *arguments, code=int(code or 0))
            assert words in " ".join(text.replace("│", " ").split()), (command, arguments, text)
            told[(command, *arguments)] = text
    assert "AGREE" in told["compare", "a.npz", "b.npz", "--why"]
    assert "0 failed" in told["verify", "--check", "identity/x-gpc/*", "--problem", "toy", "--junit", "verdicts.xml"]
    assert (folder / "results" / "report.html").is_file()
    assert "states as they were when this package was built" in told[("audit",)]
    assert "verified" in told["audit", "wenzel2019:11"]
    assert "open" not in told["audit", "wenzel2019:11"].split("Source")[0]


@pytest.mark.slow
def test_all_of_the_quick_verification_works(installed):
    assert " 0 failed" in run(installed, "-m", "triad", "verify")
