"""One module of each package factorises matrices: a failure elsewhere would pass as NumPy's error, or as NaN."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = {"fast": "fast/core/linalg.py", "gibbs": "gibbs/core/linalg.py"}  # the one of each package that factorises
PACKAGES = tuple(MODULES)

# what may be called anywhere, by module: nothing here factorises
ALLOWED = {
    "numpy.linalg": {"norm", "LinAlgError"},
    # substitution with a known factor, assembly
    "scipy.linalg": {"solve_triangular", "block_diag"},
    # products, and substitution with a known factor (trsm, trsv)
    "scipy.linalg.blas": {"daxpy", "dgemm", "dtrmm", "dtrsm", "dtrsv", "dsyrk"},
    "scipy.linalg.lapack": set(),
    # iterative: products alone, and it reports whether it arrived
    "scipy.sparse.linalg": {"LinearOperator", "gmres"},
}
# names of NumPy and SciPy that factorise under another roof
HIDDEN = {"multivariate_normal", "polyfit", "lsq_linear", "least_squares", "nnls", "matrix_rank", "bmat", "matrix"}
FOREIGN = ("numpy", "scipy")


def full_names(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for, by full name."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.expr) -> str | None:
    """a.b.c of a chain of attributes."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None


def spectral(call: ast.Call) -> bool:
    """Whether a call of norm may take singular values: it names an order."""
    return len(call.args) > 1 or any(word.arg in ("ord", None) for word in call.keywords)


def forbidden(source: str) -> list[str]:
    """Lines and names of what factorises or solves by NumPy or SciPy."""
    tree = ast.parse(source)
    names = full_names(tree)
    results = []

    def judge(full: str, line: int) -> None:
        module, _, name = full.rpartition(".")
        if full in ALLOWED:
            return  # a module on its way to one of its names
        if module in ALLOWED:
            if name not in ALLOWED[module]:
                results.append(f"{line}: {full}")
        elif full.startswith(FOREIGN) and (name in HIDDEN or "linalg" in module):
            results.append(f"{line}: {full}")

    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(FOREIGN):
            for alias in node.names:
                judge(f"{node.module}.{alias.name}", node.lineno)
        elif isinstance(node, ast.Attribute) and id(node) not in inner:
            chain = dotted(node)
            if chain is None:
                if node.attr in HIDDEN:  # of a generator, say
                    results.append(f"{node.lineno}: .{node.attr}")
                continue
            head, _, rest = chain.partition(".")
            full = f"{names.get(head, head)}.{rest}"
            judge(full, node.lineno)
            if not full.startswith(FOREIGN) and node.attr in HIDDEN and head not in names:
                results.append(f"{node.lineno}: .{node.attr}")
        elif isinstance(node, ast.Call):
            chain = dotted(node.func)
            if chain is not None:
                head, _, rest = chain.partition(".")
                full = names.get(head, head) + (f".{rest}" if rest else "")
                if full == "numpy.linalg.norm" and spectral(node):
                    results.append(f"{node.lineno}: {full} with an order")
                if full == "getattr" and node.args and (inside := dotted(node.args[0])) is not None:
                    head, _, rest = inside.partition(".")
                    if "linalg" in names.get(head, head) + rest:
                        results.append(f"{node.lineno}: getattr of {inside}")
    return results


@pytest.mark.parametrize("package", PACKAGES)
def test_matrices_are_factorised_in_one_module(package):
    own = ROOT / MODULES[package]
    results = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / package).rglob("*.py"))
        if path != own and (lines := forbidden(path.read_text(encoding="utf-8")))
    }
    assert results == {}, f"factorise by {MODULES[package]}, which names the matrix that fails"
    assert forbidden(own.read_text(encoding="utf-8"))  # and the scan sees what is there


@pytest.mark.parametrize(
    "planted",
    [
        "import numpy as np\nL = np.linalg.cholesky(K)",
        "import numpy\nL = numpy.linalg.inv(K)",
        "from numpy import linalg\nx = linalg.solve(K, y)",
        "import numpy.linalg as nla\nx = nla.eigvalsh(K)",
        "from numpy.linalg import slogdet as s",
        "import scipy\nx = scipy.linalg.cho_factor(K)",
        "import scipy.linalg as sl\nx = sl.lu(K)",
        "from scipy import linalg\nx = linalg.expm(K)",
        "from scipy.linalg import pinv",
        "from scipy.linalg import lapack\nx = lapack.dpotrf(K)",
        "from scipy.linalg.lapack import dposv",
        "from scipy.linalg import get_lapack_funcs",
        "from scipy.sparse.linalg import splu",
        "import numpy as np\nx = np.linalg.norm(K, 2)",
        "import numpy as np\nx = np.linalg.norm(K, ord='nuc')",
        "import numpy as np\nf = np.linalg.svd\nf(K)",
        "import numpy as np\nf = getattr(np.linalg, 'svd')",
        "x = rng.multivariate_normal(m, K)",
        "x = self.rng().multivariate_normal(m, K)",
        "from scipy.stats import multivariate_normal",
        "def f():\n    from numpy.linalg import det\n    return det",
    ],
)
def test_a_planted_factorisation_is_found(planted):
    assert len(forbidden(planted)) >= 1


@pytest.mark.parametrize(
    "harmless",
    [
        "import numpy as np\nx = np.linalg.norm(v)\ny = np.linalg.norm(V, axis=1)",
        "import numpy as np\nclass E(np.linalg.LinAlgError): ...",
        "from scipy.linalg import solve_triangular\nfrom scipy.linalg.blas import dtrsm",
        "from fast.core.linalg import cholesky, least_squares\nL = cholesky(K, 'K', 'raise jitter')",
    ],
)
def test_norms_substitution_and_own_factors_pass(harmless):
    assert forbidden(harmless) == []
