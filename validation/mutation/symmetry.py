"""Functions that compute the same whichever way round two of their arguments stand, told from their text.

Sums, products, comparisons for equality and NumPy's functions that commute are brought into an order of their own; a
function whose text is then the same after two names have changed places does not know which of them came first.
"""

from __future__ import annotations

import ast
import itertools

# functions that give the same for their arguments in another order
COMMUTE = frozenset(
    {
        "maximum",
        "minimum",
        "max",
        "min",
        "hypot",
        "logaddexp",
        "array_equal",
        "allclose",
        "isclose",
        "vecdot",
        "vdot",
        "add",
        "multiply",
        "samestat",
        "broadcast_shapes",
        "suppress",
    }
)


def symmetric_functions(tree: ast.Module) -> dict[str, frozenset[int]]:
    """Functions at the top of a module: k for each argument that may change places with the next one."""
    results = {}
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        body = [
            node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        ]
        pairs = enumerate(itertools.pairwise(names))
        either = frozenset(k for k, (a, b) in pairs if _ordered(body, {}) == _ordered(body, {a: b, b: a}))
        if either:
            results[function.name] = either
    return results


def _ordered(node: object, names: dict[str, str]) -> str:
    """A piece of a program as text, names replaced; operands that commute stand in the order of their texts."""
    if isinstance(node, list):
        return "[" + ", ".join(_ordered(entry, names) for entry in node) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)):
        operands = sorted(_ordered(entry, names) for entry in _operands(node, type(node.op)))
        return f"{type(node.op).__name__}({', '.join(operands)})"
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
        sides = sorted(_ordered(entry, names) for entry in (node.left, *node.comparators))
        return f"{type(node.ops[0]).__name__}({', '.join(sides)})"
    fields = {
        name: _ordered(value, names) for name, value in ast.iter_fields(node) if name not in ("ctx", "annotation")
    }
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in COMMUTE:
        fields["args"] = ", ".join(sorted(_ordered(entry, names) for entry in node.args))
    return f"{type(node).__name__}({fields})"


def _operands(node: ast.expr, operation: type[ast.operator]) -> list[ast.expr]:
    """The terms of a sum of sums, or what of the kind an operation joins."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, operation):
        return [*_operands(node.left, operation), *_operands(node.right, operation)]
    return [node]
