"""Every command ends as it should whatever the encoding of its streams is, and what it writes has that encoding."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.main import get_command

from validation import problems, solve
from validation.command import cli
from validation.peers.by_file import program

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = '''
from dataclasses import replace
from validation import solve

def answer(method, problem, **options):
    """Right on the smallest problem; its words are in letters that no old encoding has all of."""
    print("Größe √n, naïve ε")
    return replace(solve("fast", method, problem), implementation="größe-√n")

def broken(method, problem, **options):
    raise ValueError("größe √n")
'''

# what each command is asked, cheap, and where its output has them with letters beyond ASCII
ARGUMENTS = {
    "audit": ["wenzel2019:11"],
    "bench": ["--stored"],
    "claims list": ["wenzel2019"],
    "claims run": ["wenzel2019"],
    "compare": ["größe.npz", "größe.npz"],
    "judge": ["mine_encoded:answer", "--method", "x-gpc", "--problem", "two-points", "--no-power", "--html", "ε.html"],
    "list data": ["iris"],
    "list methods": ["x-gpc"],
    "list problems": ["two-points"],
    "solve": ["mine_encoded:answer", "x-gpc", "two-points", "--output", "ε.npz"],
    "truth list": [],
    "truth show": ["toy"],
    "truth make": ["two-points", "--method", "quadrature", "--second", "none", "--output", "ε.npz"],
    "verify": ["--method", "x-gpc", "--problem", "two-points", "--check", "identity/x-gpc/latent_mean"],
}
JSON = {"claims list": ["wenzel2019"], "truth list": [], "bench": ["--only", "league"], "audit": ["wenzel2019:11"]}

# the environment, and the encoding that its streams have
ENVIRONMENTS = {
    "ascii": ({"PYTHONIOENCODING": "ascii"}, "ascii"),
    "cp1252": ({"PYTHONIOENCODING": "cp1252"}, "cp1252"),
    "latin-1": ({"PYTHONIOENCODING": "latin-1:strict"}, "latin-1"),
    "C": ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "ascii"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a program and a solution whose names and words are not ASCII."""
    solution = solve("fast", "x-gpc", problems.get("two-points"))
    problem = solution.problem.replace(name="größe √n")
    path = tmp_path_factory.mktemp("encoded")
    (path / "mine_encoded.py").write_text(PROGRAM, encoding="utf-8")
    replace(solution, problem=problem, implementation="größe-√n").save(path / "größe.npz")
    return path


def ended(arguments, folder, variables):
    """A command in a process of its own, its output in bytes."""
    taken = ("PYTHONIOENCODING", "PYTHONUTF8", "PYTHONCOERCECLOCALE", "LC_ALL", "LC_CTYPE", "LANG", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in taken}
    command = [sys.executable, "-m", "validation", *arguments]
    environment = kept | variables | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=300, check=False)


def test_every_command_is_asked():
    commands = get_command(cli.app).commands
    assert ARGUMENTS.keys() == {
        f"{name} {part}".strip() for name in commands for part in getattr(commands[name], "commands", [""])
    }


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        pytest.param(name, environment, marks=[] if environment == "C" else pytest.mark.slow)
        for environment in ENVIRONMENTS
        for name in ARGUMENTS
    ],
)
def test_a_command_ends_well_in_any_encoding(name, environment, folder):
    variables, encoding = ENVIRONMENTS[environment]
    done = ended([*name.split(), *ARGUMENTS[name]], folder, variables)
    assert done.returncode == 0, done.stderr.decode(encoding)
    assert done.stdout.decode(encoding).strip()
    done.stderr.decode(encoding)


@pytest.mark.parametrize("words", [["--help"], *([*name.split(), "--help"] for name in ARGUMENTS)], ids=" ".join)
@pytest.mark.slow
def test_help_is_in_the_encoding_of_the_stream(words, folder):
    done = ended(words, folder, {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Usage: " in done.stdout
    done.stdout.decode("ascii")


@pytest.mark.parametrize("name", ["claims list", pytest.param("audit", marks=pytest.mark.slow),
                                  pytest.param("truth list", marks=pytest.mark.slow), "bench"])  # fmt: skip
def test_json_loses_no_letter(name, folder):
    plain, narrow = (
        ended([*name.split(), *JSON[name], "--json"], folder, {"PYTHONIOENCODING": encoding})
        for encoding in ("utf-8", "ascii")
    )
    assert json.loads(narrow.stdout.decode("ascii")) == json.loads(plain.stdout.decode("utf-8"))


def test_files_are_utf_8_whatever_the_locale(folder):
    words = ["judge", "mine_encoded:broken", *ARGUMENTS["judge"][1:-1], "page.html"]
    done = ended(words, folder, ENVIRONMENTS["C"][0])
    assert done.returncode == 1, done.stderr
    assert "ValueError: gr??e ?n" in done.stdout.decode("ascii")
    assert "ValueError: größe √n" in (folder / "page.html").read_text(encoding="utf-8")


def test_a_program_in_another_encoding_may_say_anything(tmp_path):
    latin = "import sys; sys.stderr.buffer.write('Lösung fehlt'.encode('latin-1')); sys.exit(3)"
    answer = program([sys.executable, "-c", latin], "x-gpc", ["logit"])
    with pytest.raises(RuntimeError, match=r"found exit code 3, expected an answer; it says: L.sung fehlt"):
        answer("x-gpc", problems.get("two-points"))
