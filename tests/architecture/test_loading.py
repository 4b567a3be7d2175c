"""What a command loads: nobody waits for a package that his command does not compute with."""

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import typer

from validation.command.cli import app
from validation.implementations import fast, gibbs, reference

ROOT = Path(__file__).resolve().parents[2]
# of a third to three seconds each
HEAVY = ("scipy.stats", "scipy.optimize", "scipy.interpolate", "pandas", "matplotlib", "sklearn", "jinja2", "emcee",
         "arviz_stats", "pytest", "pygments")  # fmt: skip
CASES = {
    "--help": ("numpy", "scipy", "rich.progress", *HEAVY),
    "--version": ("numpy", "scipy", "rich.progress", *HEAVY),
    "list data --help": HEAVY,
    "verify --help": ("pandas", "matplotlib", "sklearn", "jinja2", "emcee", "pytest", "pygments"),
    "audit --help": tuple(name for name in HEAVY if name != "pygments"),
    "list problems toy": HEAVY,
    "solve fast x-gpc toy": ("rich.progress", "reference", "gibbs", "fast.methods.nested_ep", *HEAVY),
    "solve reference x-gpc toy": ("fast", "gibbs", "sklearn", "pandas", "matplotlib"),
}

_PROBE = """
import json, sys
from validation.command.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(command: str) -> set[str]:
    """Names of the modules that a fresh process has loaded when the command has done its work."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, *command.split()],
        capture_output=True, text=True, check=True, timeout=120, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return set(json.loads(done.stderr.splitlines()[-1]))


@cache
def of_typer() -> frozenset[str]:
    """What typer loads by itself: before it put rich off, pygments."""
    program = "import sys, typer.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return frozenset(done.stdout.split())


@pytest.mark.parametrize("command", CASES)
def test_a_command_loads_nothing_heavy_that_it_does_not_need(command):
    result = loaded(command)
    assert "validation.command.cli" in result
    assert sorted(result.intersection(CASES[command]) - of_typer()) == []


def test_the_probe_sees_what_a_command_needs():
    result = loaded("solve fast x-gpc toy -o learn=variance")
    assert {"numpy", "scipy.optimize", "fast.methods.x_gpc"} <= result


def test_importing_validation_alone_loads_no_numpy_and_solve_is_the_function():
    program = (
        "import sys, validation; assert 'numpy' not in sys.modules; import validation.door.solve; "
        "assert callable(validation.solve); assert validation.Problem.__name__ == 'Problem'; "
        "assert {'Problem', 'Solution', 'solve'} <= set(dir(validation))"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )


def test_what_is_listed_of_a_command_is_the_first_line_of_its_own_help():
    group = typer.main.get_command(app)
    for name, listed in group.commands.items():
        own = group.resolve_command(None, [name])[1]
        assert own.help is not None
        assert listed.help is not None
        assert listed.help.strip().splitlines()[0] == own.help.strip().splitlines()[0], name


@pytest.mark.parametrize("package", [fast, gibbs, reference], ids=lambda package: package.__name__)
def test_each_adapter_has_the_methods_that_its_package_lists(package):
    results = {}
    for entry in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{entry.name}")
        if hasattr(module, "TABLE"):
            results[entry.name] = tuple(module.TABLE)
    assert results == package.ADAPTERS
    assert package.answer.methods == tuple(method for methods in package.ADAPTERS.values() for method in methods)
