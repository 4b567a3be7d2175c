"""Functions and tests with an address, read from the text of the files: nothing is imported and no library is needed.

The markers of functions and of tests are written with literal arguments, so that their syntax trees say what importing
the packages and collecting the tests would say, within seconds; a marker that is written otherwise is a problem.
"""

from __future__ import annotations

import ast
import importlib.util
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from validation.ledger.collection import Claim, Collection, MarkedTest, read_claims
from validation.ledger.inventory import Equation
from validation.ledger.registry import Function, Package, Registry

_Def: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def functions(packages: Sequence[Package], paper: str = "", root: Path | None = None) -> Registry:
    """Every function that carries equations, as `registry.collect` lists them; with `paper` those of its modules alone.

    The packages are those in the folder `root`, or else those that an import would find. A file that cannot be read is
    a problem.
    """
    results: list[Function] = []
    problems: list[str] = []
    for package in packages:
        rows = []
        for file, name in _modules(package, root):
            source = file.read_text(encoding="utf-8")
            if "equation(" not in source or paper not in source:
                continue
            try:
                tree = ast.parse(source)
            except SyntaxError as error:
                problems.append(f"module {name}: failed to parse: {error}")
                continue
            try:
                rows += [_function(package, name, file, source, *item) for item in _marked(tree, name)]
            except ValueError as error:
                problems.append(f"module {name}: marker equation: {error}, expected texts or constants of the module")
        results += sorted(rows, key=lambda item: item.address)
    return Registry(tuple(results), tuple(problems))


def _modules(package: Package, root: Path | None) -> Iterator[tuple[Path, str]]:
    """Files of a package with the names of their modules."""
    spec = importlib.util.find_spec(package.name) if root is None else None
    places = [root / package.name] if root is not None else spec.submodule_search_locations or () if spec else ()
    for place in places:
        for file in sorted(Path(place).rglob("*.py")):
            parts = file.relative_to(place).with_suffix("").parts
            yield file, ".".join([package.name, *(part for part in parts if part != "__init__")])


def _definitions(body: Iterable[ast.stmt], within: str = "") -> Iterator[tuple[str, _Def, list[ast.expr]]]:
    """Functions of a module, methods of its classes: qualified name, definition, decorators of the classes."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield within + node.name, node, []
        elif isinstance(node, ast.ClassDef):
            for name, inner, around in _definitions(node.body, f"{within}{node.name}."):
                yield name, inner, [*node.decorator_list, *around]
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from _definitions(node.body, within)


def _call_of(node: ast.expr, name: str) -> ast.Call | None:
    """The node as a call of `name` or of something.name."""
    if isinstance(node, ast.Call):
        called = node.func
        if (isinstance(called, ast.Name) and called.id == name) or (
            isinstance(called, ast.Attribute) and called.attr == name
        ):
            return node
    return None


def _arguments(call: ast.Call, names: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a call: literals, or names of constants of the module. ValueError for anything else."""

    def value(node: ast.expr) -> Any:
        return names[node.id] if isinstance(node, ast.Name) and node.id in names else ast.literal_eval(node)

    return [value(item) for item in call.args], {str(item.arg): value(item.value) for item in call.keywords}


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Texts and numbers that a module gives names to."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _marked(tree: ast.Module, module: str) -> Iterator[tuple[str, _Def, tuple[Equation, ...], bool]]:
    names = _constants(tree)
    for name, node, _ in _definitions(tree.body):
        marks: list[Equation] = []
        printed = False
        for decorator in node.decorator_list:
            call = _call_of(decorator, "equation")
            if call is None:
                continue
            args, kwargs = _arguments(call, names)
            marks += [(args[0], id) for id in args[1:]]
            printed = printed or kwargs.get("as_printed") is True
        if marks:
            yield f"{module}.{name}", node, tuple(dict.fromkeys(marks)), printed


def _function(
    package: Package, module: str, file: Path, source: str, address: str, node: _Def, marks: tuple[Equation, ...],
    printed: bool,
) -> Function:  # fmt: skip
    first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
    lines = source.splitlines(keepends=True)[first - 1 : node.end_lineno]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return Function(
        package=package.name,
        address=address,
        equations=marks,
        as_printed=printed,
        file=str(file),
        line=first,
        docstring=ast.get_docstring(node) or "",
        signature=f"{node.name}({ast.unparse(node.args)}){returns}",
        source=textwrap.dedent("".join(lines)),
    )


def marked_tests(root: Path, paper: str = "") -> Collection:
    """Tests under root/tests that are marked `verifies`, ordered by key.

    With `paper` only files that name it are read. A file or a marker that cannot be read is a problem.
    """
    results: list[MarkedTest] = []
    problems: list[str] = []
    for file in sorted((root / "tests").rglob("test_*.py")):
        source = file.read_text(encoding="utf-8")
        if "verifies(" not in source or paper not in source:
            continue
        name = file.relative_to(root).as_posix()
        try:
            tree = ast.parse(source)
        except SyntaxError as error:
            problems.append(f"test file {name}: failed to parse: {error}")
            continue
        results += _tests_of(tree, name, problems)
    return Collection(tuple(sorted(results, key=lambda test: test.key)), tuple(problems))


def _tests_of(tree: ast.Module, name: str, problems: list[str]) -> Iterator[MarkedTest]:
    everywhere = [
        item
        for node in tree.body
        if isinstance(node, ast.Assign)
        if any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)
        for item in (node.value.elts if isinstance(node.value, (ast.List, ast.Tuple)) else [node.value])
    ]  # fmt: skip
    parts, names = name.split("/"), _constants(tree)
    for address, node, around in _definitions(tree.body):
        if not node.name.startswith("test"):
            continue
        key = f"{name}::{address.replace('.', '::')}"
        claims: list[Claim] = []
        slow = False
        # the nearest mark comes first, as pytest lists them: marks of cases, of the function, its class, the module
        for mark in [*_of_cases(node), *reversed(node.decorator_list), *reversed(around), *everywhere]:
            slow = slow or (isinstance(mark, ast.Attribute) and mark.attr == "slow")
            call = _call_of(mark, "verifies")
            if call is None:
                continue
            try:
                claims += read_claims(*_arguments(call, names))
            except ValueError as error:
                problems.append(f"test {key}: marker verifies: {error}")
        if claims:
            yield MarkedTest(
                key=key,
                package=parts[1] if len(parts) > 2 else "",
                file=name,
                line=min([node.lineno, *(item.lineno for item in node.decorator_list)]),
                name=node.name,
                slow=slow,
                claims=tuple(dict.fromkeys(claims)),
            )


def _of_cases(node: _Def) -> Iterator[ast.expr]:
    """Marks of single cases: pytest.param(..., marks=...) inside the decorators."""
    for decorator in node.decorator_list:
        for inner in ast.walk(decorator):
            call = _call_of(inner, "param") if isinstance(inner, ast.expr) else None
            for keyword in call.keywords if call is not None else ():
                if keyword.arg == "marks":
                    value = keyword.value
                    # slow cases make no slow test
                    listed = value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]
                    yield from (item for item in listed if _call_of(item, "verifies") is not None)
