"""Operations of linear algebra, counted: what a program takes, in multiplications and not in seconds.

`counted()` loads the witnesses anew with each `@`, `+`, `-`, `*`, `/`, `**` and each call of NumPy, BLAS, LAPACK or a
ufunc routed through a counter, which adds what the shapes of the arguments say: m p k for a product, m³/3 for a factor
of Cholesky, an element each for what is elementwise. Iterative routines of LAPACK count by their order. Inside the
block `solve` asks these copies; afterwards the usual modules are there again.

Counts are polynomials in the sizes wherever the course of a run does not depend on values, so that orders of growth
are exact: `order` takes differences of counts at sizes evenly apart until they vanish.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import scipy.linalg
import scipy.linalg.blas
import scipy.linalg.lapack
from scipy.spatial import distance
from scipy.special import log_ndtr

_OURS = ("fast", "reference", "gibbs", "validation.implementations")  # loaded anew
_ADAPTERS = "validation.implementations"
_NAME = "__operations__"
_BINARY = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.MatMult)
_ELEMENTWISE = [np.sum, np.mean, np.prod, np.max, np.min, np.var, np.std, np.cumsum, np.where, np.clip]
_CHOLESKY = (np.linalg.cholesky, scipy.linalg.cholesky, scipy.linalg.cho_factor, scipy.linalg.lapack.dpotrf)
_FRAMES = ("super", "locals", "vars", "globals", "dir", "eval", "exec")  # builtins that look at their caller


class Counter:
    """What the rewritten programs call.

    linear, elementwise    operations so far, those of products, factors and solves, and all others
    factors                side of a matrix -> Cholesky factors of it
    log_normal             values of log Φ
    """

    def __init__(self) -> None:
        self.clear()

    @property
    def total(self) -> float:
        """All of them."""
        return self.linear + self.elementwise

    def clear(self) -> None:
        """Begin anew."""
        self.linear = self.elementwise = 0.0
        self.factors: dict[int, int] = {}
        self.log_normal = 0

    def result(self, value: Any) -> Any:
        """An elementwise result: an operation for each of its elements."""
        if isinstance(value, np.ndarray):
            self.elementwise += value.size
        return value

    def product(self, left: Any, right: Any) -> Any:
        """left @ right."""
        value = left @ right
        self.linear += np.size(value) * np.shape(left)[-1]
        return value

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """function(*args, **kwargs), counted if it is one of those that are known."""
        value = function(*args, **kwargs)
        if isinstance(function, np.ufunc):
            if function is np.matmul:
                self.linear += np.size(value) * np.shape(args[0])[-1]
            else:
                self.result(value)
                self.log_normal += np.size(value) if function is log_ndtr else 0
            return value
        if any(function is one for one in _ELEMENTWISE):
            self.elementwise += _larger(args, kwargs, value)
            return value
        cost = _costs().get(id(function))
        if cost is not None:
            self.linear += cost(args, kwargs, value)
            if any(function is one for one in _CHOLESKY):
                shape = np.shape(args[0])
                self.factors[shape[-1]] = self.factors.get(shape[-1], 0) + int(np.prod(shape[:-2]))
            return value
        of = getattr(function, "__self__", None)
        if isinstance(of, np.ndarray) and function.__name__ in ("sum", "mean", "prod", "max", "min", "std", "var"):
            self.elementwise += of.size
        elif isinstance(of, np.ndarray) and function.__name__ == "dot":
            self.linear += np.size(value) * of.shape[-1]
        elif isinstance(of, np.ufunc):  # reduce, accumulate, outer
            self.elementwise += max(np.size(value), np.size(args[0]))
        return value


Cost = Callable[[tuple[Any, ...], dict[str, Any], Any], float]


def _cubic(share: float) -> Cost:
    """A routine on square matrices (..., m, m): share · m³ each."""

    def cost(args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> float:
        shape = np.shape(args[0])
        return share * float(np.prod(shape[:-2], dtype=float)) * shape[-1] ** 3

    return cost


def _solved(triangular: int, right: int, factor: float = 1.0, setup: float = 0.0) -> Cost:
    """Solves with a square matrix at one place of the arguments, right-hand sides at another."""

    def cost(args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> float:
        matrix = args[triangular]
        matrix = matrix[0] if isinstance(matrix, tuple) else matrix
        m, stack = np.shape(matrix)[-1], float(np.prod(np.shape(matrix)[:-2], dtype=float))
        return factor * m * np.size(args[right]) + setup * stack * m**3

    return cost


def _square(args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> float:
    return float(np.size(args[0]))


def _larger(args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> float:
    return float(max(np.size(args[0]), np.size(value)))


def _einsum(args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> float:
    """Product of the extents of all letters, as one loop over them takes; with `optimize`, one for each pair."""
    if kwargs.get("optimize"):
        path = np.einsum_path(*args, optimize=kwargs["optimize"])[1]
        line = next(line for line in path.splitlines() if "Optimized FLOP" in line)
        return float(line.split(":")[1])
    inputs = str(args[0]).replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for letters, operand in zip(inputs, args[1:], strict=True):
        shape, names = np.shape(operand), letters.replace("...", "")
        sizes |= dict(zip(names, shape[-len(names) :] if letters.startswith("...") else shape, strict=False))
        if letters.startswith("..."):
            sizes["..."] = max(sizes.get("...", 1), int(np.prod(shape[: len(shape) - len(names)])))
    return float(np.prod(list(sizes.values()), dtype=float))


def _rank_k(args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> float:
    return float(np.size(value) * np.size(args[1]) / np.shape(value)[0])


def _inner(args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> float:
    return float(np.size(value) * np.shape(args[0])[-1])


@cache
def _costs() -> dict[int, Cost]:
    """id of a function of a library -> its cost; the libraries keep the functions, so that no id is used again."""
    linalg, blas, lapack = np.linalg, scipy.linalg.blas, scipy.linalg.lapack
    table: dict[Any, Cost] = {
        linalg.cholesky: _cubic(1 / 3), linalg.inv: _cubic(1.0), linalg.slogdet: _cubic(1 / 3),
        linalg.det: _cubic(1 / 3), linalg.eigvalsh: _cubic(1.0), linalg.eigh: _cubic(1.0), linalg.svd: _cubic(1.0),
        linalg.solve: _solved(0, 1, setup=1 / 3), scipy.linalg.solve: _solved(0, 1, setup=1 / 3),
        scipy.linalg.inv: _cubic(1.0), scipy.linalg.cholesky: _cubic(1 / 3), scipy.linalg.cho_factor: _cubic(1 / 3),
        scipy.linalg.cho_solve: _solved(0, 1, 2.0), scipy.linalg.solve_triangular: _solved(0, 1),
        lapack.dpotrf: _cubic(1 / 3), lapack.dpotri: _cubic(2 / 3), lapack.dtrtri: _cubic(1 / 3),
        lapack.dlauum: _cubic(1 / 3), lapack.dpotrs: _solved(0, 1, 2.0), lapack.dpocon: _square, lapack.dtrcon: _square,
        blas.dtrsm: _solved(1, 2), blas.dtrmm: _solved(1, 2), blas.dtrsv: _solved(0, 1), blas.dsyrk: _rank_k,
        blas.dgemm: lambda args, kwargs, value: float(np.size(args[1]) * np.size(args[2]) / np.shape(args[2])[0]),
        blas.daxpy: _square, np.einsum: _einsum, np.dot: _inner, np.inner: _inner, np.outer: _larger,
        np.tensordot: lambda args, kwargs, value: float(np.sqrt(np.size(args[0])) * np.sqrt(np.size(args[1]))
                                                        * np.sqrt(max(np.size(value), 1))),
        distance.cdist: lambda args, kwargs, value: float(np.size(value) * np.shape(args[0])[1]),
    }  # fmt: skip
    return {id(function): cost for function, cost in table.items() if not isinstance(function, np.ufunc)}


class _Rewrite(ast.NodeTransformer):
    """Routes operators and calls through the counter."""

    @staticmethod
    def _to(name: str, *args: ast.expr) -> ast.Call:
        return ast.Call(ast.Attribute(ast.Name(_NAME, ast.Load()), name, ast.Load()), list(args), [])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.MatMult):
            return ast.copy_location(self._to("product", node.left, node.right), node)
        return ast.copy_location(self._to("result", node), node) if isinstance(node.op, _BINARY) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            node.value = ast.copy_location(self._to("result", node.value), node.value)
            return node
        after = ast.Expr(self._to("result", ast.Name(node.target.id, ast.Load())))
        return [node, ast.copy_location(after, node)]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _FRAMES:
            return node
        routed = self._to("call", node.func, *node.args)
        routed.keywords = node.keywords
        return ast.copy_location(routed, node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a module with its operators and calls routed; nothing is kept on disk."""

    counter: Counter

    def get_code(self, fullname: str) -> Any:
        tree = ast.parse(self.get_data(self.path), self.path)
        return compile(ast.fix_missing_locations(_Rewrite().visit(tree)), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[_NAME] = self.counter
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not _is_ours(fullname):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            loader = _Loader(spec.loader.name, spec.loader.path)
            loader.counter = self.counter
            spec.loader = loader
        return spec


def _is_ours(name: str) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in _OURS)


_kept: dict[str, ModuleType] = {}  # the routed copies, once loaded
_counter = Counter()


@contextmanager
def counted() -> Iterator[Counter]:
    """Inside, `solve` and every import of a witness reach copies that count into what is yielded."""
    validation = importlib.import_module("validation")
    outside = {name: module for name, module in sys.modules.items() if _is_ours(name)}
    attribute = vars(validation).get("implementations")
    for name in outside:
        del sys.modules[name]
    sys.modules.update(_kept)
    finder = _Finder(_counter)
    sys.meta_path.insert(0, finder)
    _counter.clear()
    try:
        yield _counter
    finally:
        sys.meta_path.remove(finder)
        inside = {name: module for name, module in sys.modules.items() if _is_ours(name)}
        _kept.update(inside)
        for name in inside:
            del sys.modules[name]
        sys.modules.update(outside)
        if attribute is not None:
            vars(validation)["implementations"] = attribute


def operations(run: Callable[[], object], *, elementwise: bool = True) -> float:
    """Operations of a run, whose imports are taken before; without the elementwise ones, products and factors alone.

    Values decide which elements a series or a rule is used for, so that elementwise counts are not always polynomials.
    """
    with counted() as counter:
        run()  # loads what it needs, and fills what is kept from call to call
        counter.clear()
        run()
        return counter.total if elementwise else counter.linear


def order(counts: Sequence[float], relative: float = 1e-9) -> int:
    """Degree of the polynomial that has these values at sizes evenly apart; -1 if all are zero.

    Raises
    ------
    ValueError    no difference of the counts vanishes before one is left
    """
    values, scale = np.asarray(counts, dtype=np.float64), float(np.abs(counts).max())
    for degree in range(-1, len(values) - 1):
        if scale == 0.0 or np.abs(values).max() <= relative * scale:
            return degree
        values = np.diff(values)
    raise ValueError(f"counts: found {[float(f'{c:.6g}') for c in counts]}, expected values of a polynomial of degree "
                     f"{len(counts) - 2} at most")  # fmt: skip
