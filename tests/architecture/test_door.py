"""The judge asks through the door: which rooms of `validation` import what of a witness, read off the sources.

Adapters, the ledger and the checks of printed equations import witnesses; benches, experiments and draws of the truth
import public faces; no other room imports one. Nobody uses a private name of a witness, a mock, or a patch.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JUDGE = ROOT / "validation"
WITNESSES = ("reference", "fast", "gibbs")
OPEN = ("implementations", "ledger", "checks.print")  # rooms that import witnesses
USERS = ("bench", "reproduce", "truth")  # rooms that import their faces
FACES = ("fast.methods", "fast.estimators", "fast.core.values", "gibbs.models", "gibbs.core")  # and marked functions
TUPLE = {"_fields", "_replace", "_asdict", "_make", "_field_defaults"}  # what every NamedTuple has
IMPORTERS = {"import_module", "__import__"}


def is_within(name, package):
    return name == package or name.startswith(package + ".")


def is_witness(name):
    return any(is_within(name, witness) for witness in WITNESSES)


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


@cache
def is_module(name):
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


@cache
def printed(module):
    """Marked functions and classes of a module of `reference`."""
    tree = ast.parse(ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        or (isinstance(node, ast.FunctionDef) and any("equation" in ast.unparse(one) for one in node.decorator_list))
    }


def imports_of(tree):
    """(line, module, name) of everything that a program imports, strings that are programs included; name "" if none.

    An f-string counts by what stands before its first value.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, one.name, "") for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, node.module, one.name) for one in node.names)
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func).rpartition(".")[2] in IMPORTERS:
            first = node.args[0]
            first = first.values[0] if isinstance(first, ast.JoinedStr) else first
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield node.lineno, first.value.strip("."), ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            try:
                inner = ast.parse(node.value)
            except SyntaxError:
                continue
            yield from ((node.lineno, module, name) for _, module, name in imports_of(inner))


def bound(tree):
    """Names that a program has from a witness."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {one.asname or one.name.partition(".")[0] for one in node.names if is_witness(one.name)}
        elif isinstance(node, ast.ImportFrom) and node.module and is_witness(node.module):
            names |= {one.asname or one.name for one in node.names}
    return names


def root_of(node):
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def import_complaint(room, module, name):
    """What the rule has against one import, or None."""
    full = f"{module}.{name}" if name else module
    if is_within(full, "unittest.mock") or is_within(module, "mock"):
        return f"found {full}, expected no mock"
    if not is_witness(module):
        return None
    if any(is_private(part) for part in full.split(".")):
        return f"found {full}, expected public names"
    if any(is_within(room, one) for one in OPEN):
        return None
    if not any(is_within(room, one) for one in USERS):
        return f"found {full}, expected no import of a witness in {room}"
    ours = is_within(module, "reference") and is_module(module) and name in printed(module)
    if ours or any(is_within(full, face) for face in FACES):
        return None
    return f"found {full}, expected {', '.join(FACES)} or marked functions of reference"


def use_complaint(node, names):
    """What the rule has against one use of names from a witness, or None."""
    if isinstance(node, ast.Attribute) and root_of(node) in names and is_private(node.attr) and node.attr not in TUPLE:
        return f"found {ast.unparse(node)}, expected public names"
    targets = node.targets if isinstance(node, ast.Assign) else ()
    if any(isinstance(target, ast.Attribute) and root_of(target) in names for target in targets):
        return f"found {ast.unparse(node)}, expected no patch of a witness"
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and root_of(node.args[0]) in names:
        return f"found {ast.unparse(node)}, expected no patch of a witness"
    return None


def complaints(room, text):
    """What the rule has against the source of a module in a room."""
    tree, dotted = ast.parse(text), room.replace("/", ".")
    found = [(line, import_complaint(dotted, module, name)) for line, module, name in imports_of(tree)]
    names = bound(tree)
    found += [(getattr(node, "lineno", 0), use_complaint(node, names)) for node in ast.walk(tree)]
    return [f"{line}: {what}" for line, what in found if what]


def test_every_room_of_the_judge_asks_where_it_may():
    found = []
    for path in sorted(JUDGE.rglob("*.py")):
        inside = path.relative_to(JUDGE)
        room = inside.with_suffix("").as_posix()
        found += [f"{inside}:{one}" for one in complaints(room, path.read_text(encoding="utf-8"))]
    assert found == []


def test_the_rooms_and_faces_that_are_named_are_there():
    assert [name for name in (*OPEN, *USERS) if not JUDGE.joinpath(*name.split(".")).is_dir()] == []
    assert [name for name in FACES if not is_module(name)] == []


@pytest.mark.parametrize(
    ("room", "text"),
    [
        ("checks/witnesses", "from fast.methods import ep"),
        ("judge", "def f():\n    import gibbs.core.options"),
        ("checks", "import importlib\nimportlib.import_module('reference.villacampa2017.fit')"),
        ("report", "import importlib\nimportlib.import_module(f'fast.methods.{name}')"),
        ("bench", "from fast.solve.adam import adam_step"),
        ("bench", "CHILD = '''\nimport sys\nfrom fast.solve import adam\n'''"),
        ("reproduce/riihimaki2013", "from fast.core import linalg"),
        ("reproduce/villacampa2017", "from reference.villacampa2017.protocol import no_such_function"),
        ("truth", "from gibbs.evidence import bridge"),
        ("implementations/reference", "from reference.common._classes import checked_input"),
        ("implementations/fast", "from fast.methods import svi\nsvi._Vector(1)"),
        ("checks/print", "from fast.likelihood import region\nregion.STEP = 2"),
        ("checks/print", "from fast.likelihood import region\nsetattr(region, 'log_ndtr', print)"),
        ("checks/print", "from unittest import mock"),
        ("reproduce", "from unittest.mock import patch"),
        ("door", "import fast"),
    ],
)
def test_a_module_that_breaks_the_rule_is_found(room, text):
    assert complaints(room, text) != []


@pytest.mark.parametrize(
    ("room", "text"),
    [
        ("implementations/fast", "from fast.solve.adam import adam_step"),
        ("checks/print", "from reference.villacampa2020 import energies\nenergies.Energy._fields"),
        ("bench", "from fast.methods import ep\nfrom fast.core.values import Data\nfrom gibbs.models import logit"),
        ("reproduce", "from reference.riihimaki2013.complexity import complexity_table"),
        ("reproduce", "from fast.core import values"),
        ("judge", "from validation.door.solve import solve"),
    ],
)
def test_a_module_that_keeps_the_rule_is_left_alone(room, text):
    assert complaints(room, text) == []
