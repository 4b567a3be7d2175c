"""Changes that a slip of the pen makes, found in one statement: each is a piece of source put in place of another.

Sites are found in the syntax tree and written back as text, so that a mutant is the original file with a few bytes
changed and its diff reads like a mistake.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from validation.mutation.symmetry import COMMUTE, symmetric_functions


class Change(NamedTuple):
    """Bytes [start, end) of a file are replaced; `operator` names the kind of the mistake."""

    start: int
    end: int
    text: str
    operator: str


_ARITHMETIC = {
    ast.Add: ("+", ("-",)),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("/",)),
    ast.Div: ("/", ("*",)),
    ast.Pow: ("**", ("*",)),
    ast.FloorDiv: ("//", ("/",)),
    ast.Mod: ("%", ("*",)),
}
_LOGIC = {ast.BitAnd: ("&", ("|",)), ast.BitOr: ("|", ("&",))}
_EVEN = frozenset({"abs", "absolute", "cosh", "norm", "square"})
_COMPARISON = {
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<", ">=")),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">", "<=")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
_TWINS = {
    "maximum": "minimum",
    "minimum": "maximum",
    "max": "min",
    "min": "max",
    "argmax": "argmin",
    "argmin": "argmax",
    "any": "all",
    "all": "any",
    "sum": "mean",
    "mean": "sum",
    "zeros": "ones",
    "ones": "zeros",
    "zeros_like": "ones_like",
    "ones_like": "zeros_like",
    "exp": "expm1",
    "expm1": "exp",
    "log": "log1p",
    "log1p": "log",
    "sqrt": "square",
    "square": "sqrt",
    "tril": "triu",
    "triu": "tril",
}


# what counts things: only there do < and <= differ, since two real numbers are equal with probability zero
_COUNTS = re.compile(
    r"[ijklmnC]|[nk]_\w+|\w*(count|iterations?|steps|size|rank|length|number|rounds?|draws|chains|sweeps)"
)

# steps of an iteration, from which on one more or less is patience
_LONG = 20

# arguments that say when a search is given up which its own rule has not ended
_GIVING_UP = frozenset({"max_iterations", "maxiter", "maxfun"})

# Gauss's rules, whose nodes are as many as rounding needs, and then some
_RULES = re.compile(r"(leg|herm|lag)gauss|roots_\w+")

# functions that factorise a symmetric matrix
_FACTORISATIONS = re.compile(r"factorise\w*|cholesky|factor")

# how far a sum or an integral goes, or by how many terms: further is as good, half as far is a mistake
_EXTENTS = re.compile(r"\w*_(REACH|RANGE|HALF_WIDTH|SPREAD|DROP|OUT_OF_SIGHT|TERMS|LEVELS|NEWTON_STEPS)")

# where one form of a formula gives way to another: nearby both hold, and so they do at twice the size
_CROSSOVERS = re.compile(r"_(SPLIT|BROAD|STEEP|APART|SERIES_BELOW|MAGNIFIED|NEARLY_SURE|NEARLY_ALL|RIGHT)")

# stands for 0 where one divides or takes a logarithm: so does twice as much
_TINY = 1e-100

# a whole number that counts by its magnitude: who mistakes it is not wrong by one
_LARGE = 100

# a number with which something is compared, and below which it is rounding
_ROUNDING = 1e-6


class Source:
    """A file with its tree; offsets are bytes, as the tree counts columns.

    symmetric       functions that it calls, and the arguments of each that may change places with the next one
    functions_of    a module's functions that have such arguments
    """

    def __init__(self, text: str, functions_of: Callable[[str], Mapping[str, frozenset[int]]] = lambda _: {}) -> None:
        self.data = text.encode("utf-8")
        self.tree = ast.parse(text)
        self.limits, self.patience = _uses(self.tree)
        self.rising = _rising(self.tree)
        self.mirrored = _outer_of_mirrored(self.tree)
        self.idle = _idle_lines(self.tree)
        self.words = _words(self.tree)
        imported = {
            name.asname or name.name: functions_of(str(node.module)).get(name.name, frozenset())
            for node in self.tree.body if isinstance(node, ast.ImportFrom)
            for name in node.names
        }  # fmt: skip
        self.symmetric = imported | symmetric_functions(self.tree)
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """First byte of a node and the one behind its last."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self, node: ast.expr | ast.stmt) -> str:
        """The node as it is written."""
        start, end = self.span(node)
        return self.data[start:end].decode("utf-8")

    def changed(self, change: Change) -> str:
        """The file with one change made."""
        return (self.data[: change.start] + change.text.encode("utf-8") + self.data[change.end :]).decode("utf-8")


def _words(tree: ast.Module) -> frozenset[str]:
    """Constants of a module that are text."""
    return frozenset(
        name
        for node in tree.body
        for name, value in _given(node)
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    )


def _uses(tree: ast.Module) -> tuple[frozenset[str], frozenset[str]]:
    """Constants of a module that are only compared with, and those that only say when an iteration is given up."""
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    compared: dict[str, bool] = {}
    patient: dict[str, bool] = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
            continue
        above = parents[id(node)]
        compared[node.id] = compared.get(node.id, True) and isinstance(above, ast.Compare)
        loop = parents.get(id(above))
        gives_up = isinstance(loop, ast.For) and loop.iter is above and _ends_by_itself(loop)
        gives_up = gives_up or (isinstance(above, ast.keyword) and above.arg in _GIVING_UP)
        patient[node.id] = patient.get(node.id, True) and gives_up
    limits, patience = (frozenset(name for name in table if table[name]) for table in (compared, patient))
    return limits, patience


def _rising(tree: ast.Module) -> frozenset[int]:
    """Numbers at which a running maximum of sizes begins: from below zero it comes to the same."""
    begun: set[int] = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        starts: dict[str, list[ast.Constant]] = {}
        later: dict[str, bool] = {}
        taken = _taken_if_larger(function)
        for node in ast.walk(function):
            for name, value in _given(node):
                if isinstance(value, ast.Constant) and isinstance(value.value, float) and value.value >= 0.0:
                    starts.setdefault(name, []).append(value)
                else:
                    larger = id(value) in taken or _larger_of(name, value)
                    later[name] = later.get(name, True) and larger
        begun |= {id(value) for name, values in starts.items() if later.get(name) for value in values}
    return frozenset(begun)


def _outer_of_mirrored(tree: ast.Module) -> frozenset[int]:
    """Outer products x that are only used as x + x.T: with their arguments the other way round they are the same."""
    found: set[int] = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        outer: dict[str, list[ast.expr]] = {}
        for node in ast.walk(function):
            for name, value in _given(node):
                outer.setdefault(name, []).append(value)
        for name, values in outer.items():
            calls = [isinstance(entry, ast.Call) and ast.unparse(entry.func).endswith("outer") for entry in values]
            if all(calls) and _only_mirrored(function, name):
                found |= {id(entry) for entry in values}
    return frozenset(found)


def _only_mirrored(function: ast.FunctionDef, name: str) -> bool:
    """Whether each use of a name is one of the two in name + name.T, which may be terms of a longer sum."""
    uses = [ast.unparse(node) for node in ast.walk(function) if isinstance(node, ast.BinOp)]
    loads = sum(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
                for node in ast.walk(function))  # fmt: skip
    pairs = sum(re.search(rf"(^|\+ ){name} \+ {name}\.T$", text) is not None for text in uses)
    return pairs > 0 and loads == 2 * pairs


def _idle_lines(tree: ast.Module) -> frozenset[int]:
    """Lines without which only more is done: the end of an iteration that arrived, super().__init__() of nothing.

    The former is a break of a loop of so many steps at most, as its last line or where something is below a number at
    rounding or a tolerance: the steps after it are steps from where the iteration stands still.
    """
    lines: list[ast.stmt] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and _ends_by_itself(node):
            lines += [
                line for entry in node.body if isinstance(entry, ast.If) and (entry is node.body[-1] or _arrived(entry))
                for line in entry.body if isinstance(line, ast.Break)
            ]  # fmt: skip
        elif isinstance(node, ast.Expr) and ast.unparse(node) == "super().__init__()":
            lines.append(node)
    return frozenset(id(entry) for entry in lines)


def _arrived(choice: ast.If) -> bool:
    """Whether a condition says that something is below a tolerance, or a number at rounding."""
    if not (isinstance(choice.test, ast.Compare) and isinstance(choice.test.ops[0], (ast.Lt, ast.LtE))):
        return False
    small = [
        (isinstance(entry, ast.Constant) and isinstance(entry.value, float) and 0.0 < entry.value < _ROUNDING)
        or "tol" in (getattr(entry, "id", "") + getattr(entry, "attr", "")).lower()
        for entry in ast.walk(choice.test.comparators[0])
    ]  # fmt: skip
    return any(small)


def _taken_if_larger(function: ast.FunctionDef) -> set[int]:
    """What a name is given where it is larger than the name: if x > worst: worst = x."""
    taken: set[int] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.Gt):
            new, old = ast.unparse(node.test.left), ast.unparse(node.test.comparators[0])
            given = [pair for entry in node.body for pair in _given(entry)]
            taken |= {id(value) for name, value in given if name == old and ast.unparse(value) == new}
    return taken


def _given(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names that a statement gives a value, one by one."""
    if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
        return
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, of_it in zip(target.elts, value.elts, strict=True):
            if isinstance(one, ast.Name):
                yield one.id, of_it


def _larger_of(name: str, value: ast.expr) -> bool:
    """Whether a value is the larger one of a name's and others."""
    return (
        isinstance(value, ast.Call)
        and ast.unparse(value.func) in ("max", "np.maximum")
        and name in [ast.unparse(entry) for entry in value.args]
    )


def changes(source: Source, statement: ast.stmt, known: frozenset[str] = frozenset()) -> list[Change]:
    """All changes of one statement: of its own expressions, not of the statements in its body.

    Parameters
    ----------
    source : Source
    statement : ast.stmt     of that source
    known : names            that have a value when the statement is reached, so that it can be left out

    Returns
    -------
    list of Change, in the order of the text, without repetition
    """
    results = [*_of_statement(source, statement, known)]
    named = _named(statement)
    stand_ins, extents = _stand_ins(statement), _extents(statement)
    results += [Change(*source.span(node), repr(half), "constant") for node, half in extents]
    stand_ins |= {id(node) for node, _ in extents}
    crossovers = frozenset(
        id(entry)
        for name, value in _given(statement) if _CROSSOVERS.fullmatch(name)
        for entry in ast.walk(value)
    )  # fmt: skip
    if named in source.patience:
        return sorted(set(results))
    for expression in own_expressions(statement):
        limit = named in source.limits and isinstance(expression, ast.Constant)
        results += _of_expression(source, expression, limit=limit, held=stand_ins, crossovers=crossovers)
    return sorted(set(results))


def _stand_ins(statement: ast.stmt) -> frozenset[int]:
    """The 1.0 of safe = np.where(size > 0.0, size, 1.0): what comes of it is put aside by the same condition."""
    return frozenset(
        id(entry)
        for name, value in _given(statement)
        if name.startswith("safe") and isinstance(value, ast.Call) and ast.unparse(value.func) == "np.where"
        for entry in value.args[1:]
        if isinstance(entry, ast.Constant)
    )


def _extents(statement: ast.stmt) -> list[tuple[ast.Constant, float]]:
    """The numbers that a statement gives to constants that say how far something goes, and half of each."""
    return [
        (node, 0.5 * node.value if isinstance(node.value, float) else node.value // 2)
        for name, node in _given(statement)
        if _EXTENTS.fullmatch(name) and isinstance(node, ast.Constant) and isinstance(node.value, (int, float))
    ]


def _named(statement: ast.stmt) -> str:
    """The one name that a statement gives a long number, or any real one; "" if it does something else."""
    if not (
        isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.value, ast.Constant)
    ):
        return ""
    target, value = statement.targets[0], statement.value.value
    long = isinstance(value, float) or (isinstance(value, int) and value >= _LONG)
    return target.id if isinstance(target, ast.Name) and long else ""


def own_expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions that run when the statement itself runs; a message or an annotation computes nothing."""
    if isinstance(statement, (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)):
        return
    for name, value in ast.iter_fields(statement):
        if name == "iter" and isinstance(statement, ast.For) and _patience(statement):
            continue
        if name in ("annotation", "returns", "decorator_list", "body", "orelse", "finalbody", "handlers"):
            continue
        for entry in value if isinstance(value, list) else [value]:
            if isinstance(entry, ast.expr):
                yield entry
            elif isinstance(entry, ast.withitem):
                yield entry.context_expr
            elif isinstance(entry, ast.arguments):
                yield from [default for default in (*entry.defaults, *entry.kw_defaults) if default is not None]


def _patience(loop: ast.For) -> bool:
    """Whether a loop makes a written number of twenty steps or more that are not counted: one more or less is no news.

    Such a number says when an iteration is given up that its own rule has not ended; the rule and the steps are drawn.
    """
    call = loop.iter
    return (
        _ends_by_itself(loop) and isinstance(call, ast.Call) and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, int) and call.args[0].value >= _LONG
    )  # fmt: skip


def _ends_by_itself(loop: ast.For) -> bool:
    """Whether a loop makes at most so many steps that nobody counts, and can end before."""
    call = loop.iter
    return (
        isinstance(loop.target, ast.Name) and loop.target.id == "_" and _leaves(loop.body)
        and isinstance(call, ast.Call) and ast.unparse(call.func) == "range" and len(call.args) == 1
    )  # fmt: skip


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether a loop's body can end it before its number of steps is over."""
    return any(isinstance(node, (ast.Break, ast.Return)) for entry in body for node in ast.walk(entry))


def _of_statement(source: Source, statement: ast.stmt, known: frozenset[str]) -> Iterator[Change]:
    start, end = source.span(statement)
    if isinstance(statement, ast.AugAssign) and type(statement.op) in _ARITHMETIC and not _by_sign(statement):
        symbol, others = _ARITHMETIC[type(statement.op)]
        between = source.span(statement.target)[1], source.span(statement.value)[0]
        yield from _swapped(source, between, f"{symbol}=", tuple(f"{other}=" for other in others), "operator")
    if isinstance(statement, (ast.AugAssign, ast.Break, ast.Continue)) or _only_effect(statement):
        if id(statement) not in source.idle:
            yield Change(start, end, "pass", "removed line")
    elif isinstance(statement, ast.Assign):
        targets = [target for target in statement.targets if isinstance(target, ast.Name)]
        kept = all(isinstance(target, (ast.Subscript, ast.Attribute)) for target in statement.targets)
        if _only_converts(statement):
            return
        if _only_mirrors(statement):
            return
        if kept or (len(targets) == len(statement.targets) and all(target.id in known for target in targets)):
            yield Change(start, end, "pass", "removed line")


def _only_converts(statement: ast.Assign) -> bool:
    """x = np.asarray(x, ...): what comes from inside is an array already, and its order in memory changes no number."""
    value = statement.value
    converts = ("np.asarray", "np.ascontiguousarray", "np.asfortranarray")
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) in converts and value.args):
        return False
    return [ast.unparse(target) for target in statement.targets] == [ast.unparse(value.args[0])]


def _only_mirrors(statement: ast.Assign) -> bool:
    """X = 0.5 * (X + X.T): takes the rounding out of a symmetric matrix."""
    targets = [ast.unparse(target) for target in statement.targets]
    return any(targets == [ast.unparse(entry.value)] for entry in _means_with_transposes(statement.value))


def _only_effect(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def _of_expression(
    source: Source,
    root: ast.expr,
    *,
    limit: bool = False,
    held: frozenset[int] = frozenset(),
    crossovers: frozenset[int] = frozenset(),
) -> Iterator[Change]:
    """Changes of one expression of a statement.

    limit    the root is a number with which something is compared elsewhere
    held     constants that are let be
    crossovers      constants at twice the size of which both forms of a formula still hold
    """
    tolerances = {
        id(entry)
        for node in ast.walk(root)
        if isinstance(node, ast.Compare) or limit
        for entry in ast.walk(node)
        if isinstance(entry, ast.Constant) and isinstance(entry.value, float) and 0.0 < entry.value < _ROUNDING
    }
    even, nodes, mirrored = _seen_without_sign(root), _nodes(root), _mirrored(root)
    slack, inside = _slack(root, tolerances)
    clamped, idle = _clamps(root), held | _without_effect(root) | inside
    lengths = {key: length for key, length in _lengths(root).items() if id(length) not in idle}
    idle |= {id(entry) for length in lengths.values() for entry in ast.walk(length)} | _last_axes(root)
    memory = _in_buffers(root)
    for node in _computing(root):
        if id(node) in lengths:
            # of a stack of square matrices the last two are the same: what is mistaken is the one end for the other
            length = lengths[id(node)]
            yield Change(*source.span(length), "1" if _whole(length) == 0 else "0", "constant")
        if id(node) in slack:
            # a slack at rounding by another size is one still; without its small factor it is none
            assert isinstance(node, ast.BinOp)
            yield Change(*source.span(node), f"({source.text(node.right)})", "dropped factor")
        elif isinstance(node, ast.BinOp) and id(node) not in inside:
            # the square and the size of a difference do not know which operand came first
            of_node = _of_operation(source, node)
            either = id(node) in even or id(node) in idle
            yield from (entry for entry in of_node if not (either and entry.operator == "swapped operands"))
        elif isinstance(node, ast.Compare):
            yield from _of_comparison(source, node)
        elif isinstance(node, ast.BoolOp):
            symbol, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            strided = any(".strides[" in ast.unparse(entry) for entry in node.values)  # seen at once, or by all entries
            for left, right in [] if strided else itertools.pairwise(node.values):
                between = source.span(left)[1], source.span(right)[0]
                yield from _swapped(source, between, symbol, (other,), "condition")
        elif isinstance(node, ast.UnaryOp) and id(node) not in idle:
            kind = "sign" if isinstance(node.op, ast.USub) else "condition"
            yield Change(*source.span(node), f"({source.text(node.operand)})", kind)
        elif isinstance(node, ast.IfExp) and not _only_words(node):
            yield Change(*source.span(node.test), f"(not ({source.text(node.test)}))", "condition")
        elif isinstance(node, ast.Constant):
            # rounding is told from the rest by orders of magnitude: a limit twice as large does so as well
            doubled = id(node) in tolerances or id(node) in crossovers
            if id(node) in nodes:
                yield Change(*source.span(node), str(nodes[id(node)] // 2), "constant")
            elif id(node) not in idle:
                rises = id(node) in source.rising
                for entry in _of_constant(source, node):
                    below = entry.text.startswith("-")
                    if not (rises if below else doubled) and entry.text != clamped.get(id(node)):
                        yield entry
        elif isinstance(node, ast.Attribute) and node.attr in ("T", "mT") and id(node) not in mirrored:
            yield Change(*source.span(node), f"({source.text(node.value)})", "transpose")
        elif isinstance(node, ast.Call) and id(node) not in memory:
            yield from _of_call(source, node)


def _slack(root: ast.expr, tolerances: set[int]) -> tuple[set[int], set[int]]:
    """Products of a number at rounding and a size that something is compared with, and what is inside the size."""
    products = [
        node
        for comparison in ast.walk(root)
        if isinstance(comparison, ast.Compare)
        for node in ast.walk(comparison)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and id(node.left) in tolerances
    ]
    inside = {
        id(entry) for node in products for entry in ast.walk(node.right) if isinstance(entry, (ast.BinOp, ast.Constant))
    }
    return {id(node) for node in products} - inside, inside


def _in_buffers(root: ast.expr) -> set[int]:
    """The larger or the smaller of two lengths of a buffer: one that is too long costs memory, a short one fails."""
    return {
        id(entry)
        for node in ast.walk(root)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.empty"
        for argument in node.args
        for entry in ast.walk(argument)
        if isinstance(entry, ast.Call) and ast.unparse(entry.func) in ("min", "max")
    }


def _seen_without_sign(root: ast.expr) -> set[int]:
    """Differences whose sign is lost at once: arguments of even functions, and what an even power is of."""
    lost: set[int] = set()
    for node in ast.walk(root):
        if isinstance(node, ast.Call) and len(node.args) == 1:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _EVEN:
                lost.add(id(node.args[0]))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            power = getattr(node.right, "value", None)
            if isinstance(power, int) and power % 2 == 0:
                lost.add(id(node.left))
    # of a product that has no sign no factor has one
    for node in ast.walk(root):  # from the outside to the inside
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)) and id(node) in lost:
            lost |= {id(node.left), id(node.right)}
    return lost


def _without_effect(root: ast.expr) -> set[int]:
    """Constants for which the next one is as good: a negative length of a shape, a seed, LAPACK's `trans`.

    That is 2 for the conjugate of the transpose, which of a real matrix is the transpose. And a matrix to which an
    identity is added is square: either of its lengths is that of the identity. Strides say whether something is stored
    once for all, and if not it is computed for each. Of what an array is made like, its shape is read, and of several
    arrays that are alike any has it; and how many steps a search remembers decides on its way.
    """
    held = _lengths_of_squares(root)
    for node in ast.walk(root):
        if isinstance(node, ast.Compare) and re.fullmatch(r"[\w.]+\.strides\[0\]", ast.unparse(node.left)):
            held |= {id(entry) for entry in ast.walk(node) if isinstance(entry, ast.Constant)}
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "size") and isinstance(node.value, ast.Subscript):
            held.add(id(node.value.slice))
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "reshape":
            lengths = [entry for argument in node.args for entry in ast.walk(argument)]
            held |= {id(entry.operand) for entry in lengths
                     if isinstance(entry, ast.UnaryOp) and isinstance(entry.op, ast.USub)}  # fmt: skip
            held |= {id(entry) for entry in lengths
                     if isinstance(entry, ast.BinOp) and isinstance(entry.op, ast.Sub)}  # fmt: skip
        elif name in ("default_rng", "RandomState", "SeedSequence", "PCG64"):
            held |= {id(argument) for argument in node.args}
        elif name == "where" and len(node.args) == 3:
            held |= _never_taken(node)
        elif name in ("zeros_like", "ones_like", "empty_like"):
            held |= {id(entry) for argument in node.args for entry in ast.walk(argument)}
        held |= {id(keyword.value) for keyword in node.keywords if keyword.arg in ("trans", "memory")}
    return held


def _lengths_of_squares(root: ast.expr) -> set[int]:
    """The numbers 0 and 1 in X + ... np.eye(X.shape[0])."""
    sums = [node for node in ast.walk(root) if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub))]
    return {
        id(length.slice)
        for total in sums
        for here, there in ((total.left, total.right), (total.right, total.left))
        for call in ast.walk(there)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "np.eye" and len(call.args) == 1
        for length in call.args
        if isinstance(length, ast.Subscript) and ast.unparse(length.value) == f"{ast.unparse(here)}.shape"
        and isinstance(length.slice, ast.Constant) and length.slice.value in (0, 1)
    }  # fmt: skip


def _never_taken(outer: ast.Call) -> set[int]:
    """Numbers of a choice inside a choice by the same condition, on the side that this one does not take there."""
    condition = ast.unparse(outer.args[0])
    inside = [
        (side, node)
        for side in (1, 2)
        for node in ast.walk(outer.args[side])
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("where") and len(node.args) == 3
    ]
    return {
        id(entry)
        for side, node in inside
        if ast.unparse(node.args[0]) == condition
        for entry in ast.walk(node.args[3 - side])
        if isinstance(entry, ast.Constant)
    }


def _last_axes(root: ast.expr) -> set[int]:
    """The -1 of axis=-1: of two axes it is the second, and so is 1."""
    return {
        id(node.value) for node in ast.walk(root)
        if isinstance(node, ast.keyword) and node.arg == "axis" and _whole(node.value) == -1
    }  # fmt: skip


def _lengths(root: ast.expr) -> dict[int, ast.expr]:
    """The whole number in each x.shape[k], by its subscript."""
    return {
        id(node): node.slice
        for node in ast.walk(root)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        and _whole(node.slice) is not None
    }  # fmt: skip


def _clamps(root: ast.expr) -> dict[int, str]:
    """Bounds at 0 and 1 that rounding may pass, each with a looser one: np.maximum(x, 0.0) is as good with -1.0."""
    looser = {"max": {0.0: "-1.0"}, "min": {0.0: "1.0", 1.0: "2.0"}}
    bounds: dict[int, str] = {}
    for node in ast.walk(root):
        name = ast.unparse(node.func).removeprefix("np.").removesuffix("imum") if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or name not in ("max", "min", "clip"):
            continue
        ends = zip(("max", "min"), node.args[1:], strict=False) if name == "clip" else ((name, x) for x in node.args)
        for side, end in ends:
            if isinstance(end, ast.Constant) and isinstance(end.value, float) and end.value in looser[side]:
                bounds[id(end)] = looser[side][end.value]
    return bounds


def _mirrored(root: ast.expr) -> set[int]:
    """Transposes of symmetric matrices: in the mean of one and its transpose, and of one that is factorised.

    The latter says in which order LAPACK finds it in memory.
    """
    factorised = {
        id(node.args[0])
        for node in ast.walk(root)
        if isinstance(node, ast.Call) and node.args and _FACTORISATIONS.fullmatch(ast.unparse(node.func))
    }
    return {id(entry) for entry in _means_with_transposes(root)} | factorised


def _means_with_transposes(root: ast.expr) -> list[ast.Attribute]:
    """The X.T of each 0.5 * (X + X.T)."""
    means = [node for node in ast.walk(root) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)]
    sums = [
        node.right for node in means
        if isinstance(node.left, ast.Constant) and node.left.value == 0.5
        and isinstance(node.right, ast.BinOp) and isinstance(node.right.op, ast.Add)
    ]  # fmt: skip
    return [
        entry.right for entry in sums
        if isinstance(entry.right, ast.Attribute) and entry.right.attr in ("T", "mT")
        and ast.unparse(entry.right.value) == ast.unparse(entry.left)
    ]  # fmt: skip


def _only_words(node: ast.IfExp) -> bool:
    """Whether a choice is between a part of a message and none."""
    branches = (node.body, node.orelse)
    texts = [isinstance(entry, ast.JoinedStr) or isinstance(getattr(entry, "value", None), str) for entry in branches]
    return all(texts) and any(isinstance(entry, ast.JoinedStr) or entry.value == "" for entry in branches)  # type: ignore[attr-defined]


def _nodes(root: ast.expr) -> dict[int, int]:
    """Numbers of nodes of Gauss's rules: one more or less is below rounding, half of them is a mistake."""
    calls = [node for node in ast.walk(root) if isinstance(node, ast.Call)]
    return {
        id(entry): entry.value
        for call in calls
        if _RULES.fullmatch(ast.unparse(call.func).rpartition(".")[2])
        for entry in call.args
        if isinstance(entry, ast.Constant) and isinstance(entry.value, int)
    }


def _commute(name: str, node: ast.Call, first: ast.expr, second: ast.expr) -> bool:
    """Whether two neighbouring arguments may stand either way round."""
    if name == "clip":  # min(max(x, low), high)
        return first is node.args[0] and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "np"
    if name == "einsum" and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
        subscripts = node.args[0].value.replace(" ", "").split("->")[0].split(",")
        k = node.args.index(first) - 1
        return 0 <= k < len(subscripts) - 1 and subscripts[k] == subscripts[k + 1]
    if name in ("moveaxis", "swapaxes"):
        here, there = _whole(first), _whole(second)
        if here is None or there is None:
            return False
        # neighbours change places either way; -1 and 0 are none
        return name == "swapaxes" or (abs(here - there) == 1 and (here < 0) == (there < 0))
    return name in COMMUTE


def _whole(node: ast.expr) -> int | None:
    """A whole number that is written there, with its sign."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _whole(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None


def _computing(root: ast.expr) -> Iterator[ast.AST]:
    """Nodes of an expression; text that is formatted computes nothing, and neither does what a warning is told."""
    stack: list[ast.AST] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.Call) and re.search(r"\bwarn\b|\w(Error|Warning)$", ast.unparse(node.func)):
            continue
        yield node
        stack.extend(
            entry for entry in ast.iter_child_nodes(node) if not (isinstance(entry, ast.keyword) and _only_care(entry))
        )


def _only_care(keyword: ast.keyword) -> bool:
    """An argument whose other value changes no number: lengths or entries looked at, the order of products, a copy."""
    value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
    if keyword.arg in ("strict", "check_finite", "optimize"):
        return True
    # the other way round an array would be shared or written over, which is a mistake
    overwrites = keyword.arg is not None and keyword.arg.startswith("overwrite")
    return (keyword.arg == "copy" and value is False) or (overwrites and value in (True, 1))


def _of_operation(source: Source, node: ast.BinOp) -> Iterator[Change]:
    between = source.span(node.left)[1], source.span(node.right)[0]
    if type(node.op) in _ARITHMETIC and not _by_sign(node):
        symbol, others = _ARITHMETIC[type(node.op)]
        yield from _swapped(source, between, symbol, others, "operator")
    if type(node.op) in _LOGIC:
        symbol, others = _LOGIC[type(node.op)]
        yield from _swapped(source, between, symbol, others, "condition")
    left, right = f"({source.text(node.left)})", f"({source.text(node.right)})"
    if isinstance(node.op, (ast.Add, ast.Sub)):
        minus = "-" if isinstance(node.op, ast.Sub) else ""
        yield Change(*source.span(node), left, "dropped term")
        yield Change(*source.span(node), f"({minus}{right})", "dropped term")
    if isinstance(node.op, (ast.Mult, ast.Div)):
        yield Change(*source.span(node), left, "dropped factor")
        if isinstance(node.op, ast.Mult):
            yield Change(*source.span(node), right, "dropped factor")
    if isinstance(node.op, ast.Sub) and ast.unparse(node.left) != ast.unparse(node.right):
        yield Change(*source.span(node), f"({right} - {left})", "swapped operands")


def _by_sign(node: ast.BinOp | ast.AugAssign) -> bool:
    """Whether something is multiplied or divided by -1 and 1: their own inverses, to the last bit."""
    by = node.value if isinstance(node, ast.AugAssign) else node.right
    return isinstance(node.op, (ast.Mult, ast.Div)) and _is_sign(by)


def _is_sign(node: ast.expr) -> bool:
    """Whether an expression is -1, labels of -1 and 1 or some of them, or is made of labels 0 and 1 as 2 y - 1."""
    value = node.value if isinstance(node, ast.Subscript) else node
    name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
    return (
        name in ("y_sign", "sign", "signs")
        or re.fullmatch(r"-1\.0|2\.0 \* [\w.]+ - 1\.0", ast.unparse(node)) is not None
    )


def _of_comparison(source: Source, node: ast.Compare) -> Iterator[Change]:
    sides = [node.left, *node.comparators]
    for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
        if type(op) in _COMPARISON:
            symbol, others = _COMPARISON[type(op)]
            # a label of -1 or 1 is never 0
            if len(others) > 1 and (_is_sign(left) or _is_sign(right) or not (_counts(left) or _counts(right))):
                others = others[1:]
            between = source.span(left)[1], source.span(right)[0]
            yield from _swapped(source, between, symbol, others, "comparison")


def _counts(node: ast.expr) -> bool:
    """Whether an expression is a count: a whole number that is written there, a length, a name that says so."""
    if isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.Div, ast.Pow)):
        return _counts(node.left) or _counts(node.right)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) and not isinstance(node.value, bool)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("len", "int") or ast.unparse(node.func).endswith("count_nonzero")
    if isinstance(node, ast.Subscript):
        return ast.unparse(node.value).endswith(".shape")
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in ("ndim", "size") or re.fullmatch(_COUNTS, name.lstrip("_")) is not None


def _of_constant(source: Source, node: ast.Constant) -> Iterator[Change]:
    value = node.value
    span = source.span(node)
    if isinstance(value, bool):
        yield Change(*span, str(not value), "constant")
    elif isinstance(value, int) and value >= _LARGE:
        yield Change(*span, str(2 * value), "constant")
        yield Change(*span, str(value // 2), "constant")
    elif isinstance(value, int):
        yield Change(*span, str(value + 1), "constant")
        if value > 0:
            yield Change(*span, str(value - 1), "constant")
    elif isinstance(value, float):
        if not 0.0 < abs(value) <= _TINY:
            yield Change(*span, "1.0" if value == 0.0 else repr(2.0 * value), "constant")
        yield Change(*span, "-1.0" if value == 0.0 else repr(-value), "constant")


def _of_call(source: Source, node: ast.Call) -> Iterator[Change]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in _TWINS and not _of_no_numbers(node):
        end = source.span(node.func)[1]
        yield Change(end - len(name.encode()), end, _TWINS[name], "function")
    plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
    if len(plain) == len(node.args):
        either = source.symmetric.get(ast.unparse(node.func), frozenset())
        for k, (first, second) in enumerate(itertools.pairwise(plain)):
            a, b = source.text(first), source.text(second)
            texts = any(_is_word(source, x) for x in (first, second))
            if a != b and not (
                texts or k in either or id(node) in source.mirrored or _commute(name, node, first, second)
            ):
                between = source.data[source.span(first)[1] : source.span(second)[0]].decode("utf-8")
                yield Change(source.span(first)[0], source.span(second)[1], f"{b}{between}{a}", "swapped arguments")
    for keyword in node.keywords:
        if keyword.arg is not None and not isinstance(keyword.value, ast.Constant):
            continue
        if keyword.arg in ("axis", "keepdims", "initial", "lower", "upper", "trans", "transposed"):
            start, end = source.span(keyword)
            comma = re.search(rb",\s*\Z", source.data[:start])
            if comma:
                yield Change(comma.start(), end, "", "dropped argument")


def _of_no_numbers(node: ast.Call) -> bool:
    """np.zeros(0): filled with ones it is the same."""
    return len(node.args) == 1 and _whole(node.args[0]) == 0


def _is_word(source: Source, node: ast.expr) -> bool:
    """Whether an argument is text: written there, a constant of the module, or what a message calls something."""
    if isinstance(node, ast.Name):
        return node.id in source.words or node.id in ("name", "remedy") or node.id.lstrip("_").startswith("REMEDY")
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _swapped(
    source: Source, between: tuple[int, int], symbol: str, others: tuple[str, ...], kind: str
) -> Iterator[Change]:
    """The operator between two operands, which parentheses and line ends may surround, replaced by others."""
    gap = source.data[slice(*between)].decode("utf-8")
    if "#" in gap:  # a comment between two operands may hold the symbol too
        return
    pattern = r"\s+".join(re.escape(word) for word in symbol.split())
    if symbol[0].isalpha():
        pattern = rf"\b{pattern}\b"
    optimum = re.search(pattern, gap)
    if optimum is None:
        return
    start = between[0] + len(gap[: optimum.start()].encode("utf-8"))
    for other in others:
        yield Change(start, start + len(optimum[0].encode("utf-8")), other, kind)
