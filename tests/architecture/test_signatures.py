"""No function takes more than eight parameters: options are values, declared once and handed on whole."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST = 8


def options_of(path):
    """Names that a module of commands gives to options."""
    if path.parts[:2] != ("validation", "command"):
        return set()
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    return {node.targets[0].id for node in body if isinstance(node, ast.Assign) and "typer." in ast.unparse(node.value)}


def excepted(path, function):
    """Printed equations have the symbols of print, commands the options of a shell, classifiers flat parameters.

    `Problem` is itself the value that everything is asked by: its constructor has a parameter a field.
    """
    marks = [ast.unparse(mark) for mark in function.decorator_list]
    if any(mark.startswith("equation(") or ".command(" in mark for mark in marks):
        return True
    given = function.args
    told = [ast.unparse(each.annotation) for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)
            if each.annotation is not None]  # fmt: skip
    # a command that is registered elsewhere (`validation.command.later`) is known by its options: spelt out, or by name
    if told and all("typer." in each or each in options_of(path) for each in told):
        return True
    return function.name == "__init__" and ("estimators" in path.parts or path == Path("validation/door/problem.py"))


def over(path, text):
    """Qualified name and number of parameters of every function that takes too many; a method's first is none."""

    def walk(node, prefix, in_class):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.", True)
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                given = child.args
                count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
                static = any(ast.unparse(mark) == "staticmethod" for mark in child.decorator_list)
                count -= in_class and not static
                if count > MOST and not excepted(path, child):
                    yield f"{prefix}{child.name}", count
                yield from walk(child, f"{prefix}{child.name}.", False)
            else:
                yield from walk(child, prefix, in_class)

    yield from walk(ast.parse(text), "", False)


def counted(package):
    """Address to count, of all modules of a package."""
    return {
        f"{path.relative_to(ROOT).as_posix()}:{name}": count
        for path in sorted((ROOT / package).rglob("*.py"))
        for name, count in over(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    }


@pytest.mark.parametrize("package", ["fast", "gibbs", "reference", "validation", "triad"])
def test_no_function_takes_more_than_eight_parameters(package):
    assert counted(package) == {}


def test_a_function_with_nine_is_seen_and_the_exceptions_are_none():
    nine = "a, b, c, d, e, f, *, g, h, i"
    text = f"def plain({nine}): pass\nclass C:\n def method(self, {nine}): pass\n def eight(self, {nine[3:]}): pass\n"
    text += f"@equation('p', '1')\ndef printed({nine}): pass\n"
    text += f"@app.command('x')\ndef command({nine}): pass\n"
    text += f"@staticmethod\ndef outer():\n def inner({nine}): pass\n"
    assert dict(over(Path("fast/x.py"), text)) == {"plain": 9, "C.method": 9, "outer.inner": 9}
    options = ", ".join(f"{name}: Annotated[int, typer.Option()] = 0" for name in "abcdefghi")
    assert dict(over(Path("validation/x.py"), f"def command({options}): pass\n")) == {}
    init = f"class C:\n def __init__(self, {nine}): pass\n"
    assert dict(over(Path("fast/estimators/x.py"), init)) == {}
    for path in ("fast/solve/x.py", "validation/problems.py"):
        assert dict(over(Path(path), init)) == {"C.__init__": 9}
    assert dict(over(Path("validation/door/problem.py"), init)) == {}
