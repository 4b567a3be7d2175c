"""What static import contracts miss: a fresh process imports one witness and shows what came along."""

import json
import subprocess
import sys

import pytest

ALLOWED = {
    "reference": {"numpy", "scipy"},
    "fast": {"numpy", "scipy", "threadpoolctl"},
    "gibbs": {"numpy", "scipy", "threadpoolctl", "emcee", "arviz_stats"},
}
WITNESSES = tuple(ALLOWED)
ESTIMATORS = ("fast.estimators",)  # scikit-learn classifiers: the one place of a witness that loads it

# every module of the package, then the roots of everything that is loaded, as JSON
_PROBE = """
import importlib, json, pkgutil, sys
name = sys.argv[1]
before = set(sys.modules)
package = importlib.import_module(name)
left_out = sys.argv[2:]

def walk(path, prefix):
    for found in pkgutil.iter_modules(path, prefix):
        if found.name not in left_out:
            module = importlib.import_module(found.name)
            if found.ispkg:
                walk(module.__path__, found.name + ".")

walk(package.__path__, name + ".")
roots = sorted({m.partition(".")[0] for m in set(sys.modules) - before})
third = [r for r in roots if r not in sys.stdlib_module_names and not r.startswith("_")]
print(json.dumps(third))
"""

# the closure of what each allowed package loads by itself, found by importing it alone
_CLOSURE = """
import importlib, json, sys
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({m.partition(".")[0] for m in set(sys.modules) - before})))
"""


def _run(code: str, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("witness", WITNESSES)
def test_importing_all_of_a_witness_loads_no_other_and_nothing_off_the_list(witness):
    loaded = _run(_PROBE, witness, *ESTIMATORS)
    submodules = {"scipy": ["scipy.special", "scipy.linalg", "scipy.integrate", "scipy.stats", "scipy.optimize"]}
    allowed = ALLOWED[witness]
    modules = [m for name in sorted(allowed) for m in submodules.get(name, [name])]
    if "arviz_stats" in allowed:
        modules.append("arviz_stats.base")
    closure = _run(_CLOSURE, *modules)
    assert loaded - closure - {witness} == set()
    assert not loaded & ({*WITNESSES, "validation"} - {witness})


def test_fast_loads_scikit_learn_for_its_estimators_only():
    assert "sklearn" not in _run(_PROBE, "fast", *ESTIMATORS)
    assert "sklearn" in _run(_PROBE, "fast")
    assert not _run(_PROBE, "fast") & {"reference", "gibbs", "validation"}


def test_the_probe_sees_an_import_that_is_not_allowed(tmp_path):
    package = tmp_path / "witness_with_a_leak"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "deep.py").write_text("import pandas\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + _PROBE
    assert "pandas" in _run(code, "witness_with_a_leak")
