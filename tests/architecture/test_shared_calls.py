"""Common blind spots: third-party calls that two witnesses share are found by reading imports, and each is checked
once against mpmath, on extreme arguments.

Two roads to one number are independent up to the calls that they have in common. docs/independence.md lists those.
"""

import ast
from collections import defaultdict
from pathlib import Path

import mpmath
import numpy as np
import pytest
import scipy.linalg
import scipy.special
from scipy.integrate import quad
from scipy.linalg import lapack

ROOT = Path(__file__).resolve().parents[2]
EPS = np.finfo(float).eps
TINY = 5e-324
EVIDENCE = ROOT / "gibbs" / "evidence"
# The roads whose agreement is a verdict: the three witnesses, each route to log Z, and the judge's own quadrature.
ROADS = {
    "reference": sorted((ROOT / "reference").rglob("*.py")),
    "fast": sorted((ROOT / "fast").rglob("*.py")),
    "gibbs": sorted(set((ROOT / "gibbs").rglob("*.py")) - set(EVIDENCE.glob("*.py"))),
    **{file.stem: [file] for file in EVIDENCE.glob("*.py") if file.stem not in ("__init__", "result")},
    "quadrature": [ROOT / "validation" / "implementations" / "quadrature.py"],
}
# Of NumPy itself only functions that approximate; sums, products and reshaping are no approximations.
_NAMES = (
    *("exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "logaddexp", "logaddexp2", "sqrt", "hypot", "power"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "arctan", "arctan2", "arcsinh", "arccosh", "arctanh", "sinc", "i0"),
)
ELEMENTARY = {f"numpy.{name}" for name in _NAMES}


def calls_of(files):
    """Dotted names of everything from numpy, scipy, emcee and arviz_stats that the files use."""
    found = set()
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        alias = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                alias |= {a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                          for a in node.names}  # fmt: skip
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                alias |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        for node in ast.walk(tree):
            name = dotted(node, alias)
            if name and name.partition(".")[0] in ("numpy", "scipy", "emcee", "arviz_stats"):
                found.add(name)
    return found


def dotted(node, alias):
    """The full name behind `np.linalg.cholesky` or an imported `cho_solve`; None for anything else."""
    if isinstance(node, ast.Name):
        return alias.get(node.id)
    if isinstance(node, ast.Attribute):
        before = dotted(node.value, alias)
        return before and f"{before}.{node.attr}"
    return None


def approximates(name):
    """Whether a wrong value of this name could be shared unseen: numerical routines, no classes, no modules."""
    if name.startswith("numpy."):
        return name in ELEMENTARY or (name.startswith("numpy.linalg.") and name[13].islower())
    parts = name.split(".")
    return len(parts) > 2 and parts[-1][0].islower() and parts[-1] not in {"blas", "lapack", "distance", "array_stats"}


def shared_calls():
    """Name -> roads, for each approximating call on at least two roads."""
    roads = defaultdict(set)
    for road, files in ROADS.items():
        for name in calls_of(files):
            if approximates(name):
                roads[name].add(road)
    return {name: sorted(who) for name, who in roads.items() if len(who) > 1}


# -- the checks, one for each call -----------------------------------------------------------------------------


def exact(function, *arguments):
    """The value with 400 digits, so that 1 + 1e-300 is not 1, of the very doubles that the call gets."""
    with mpmath.workdps(400):
        return function(*(mpmath.mpf(float(x)) for x in arguments))


def worst_relative_error(call, function, cases):
    """Largest error over the cases, relative to the exact value or, where that underflows, to the smallest double."""
    worst = 0.0
    with np.errstate(all="ignore"), mpmath.workdps(400):
        for case in cases:
            arguments = case if isinstance(case, tuple) else (case,)
            truth = exact(function, *arguments)
            # below the normal doubles a result has absolute accuracy only
            scale = max(abs(truth), mpmath.mpf(2.3e-308))
            worst = max(worst, float(abs(mpmath.mpf(float(call(*arguments))) - truth) / scale))
    return worst


_BOTH = [-1e3, -745.0, -40.0, -3.7, -1.0, -1e-3, -1e-8, -1e-300, 0.0, 1e-300, 1e-8, 1e-3, 1.0, 3.7, 40.0, 700.0]
_POSITIVE = [TINY, 1e-300, 1e-17, 1e-3, 0.5, 1.0 - EPS, 1.0, 1.0 + EPS, 2.0, 1e3, 1e17, 1e308]


def _log_ndtr(x):
    return mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2)


def _ndtri(p):
    return -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * p) if p > 1e-3 else mpmath.findroot(
        lambda x: _log_ndtr(x) - mpmath.log(p), -mpmath.sqrt(-2 * mpmath.log(p)) * mpmath.mpf("0.95")
    )  # fmt: skip


# name -> (call, the same in mpmath, arguments, limit). The limits are in relative error. Elementary functions are good
# to about one unit in the last place, 2.2e-16, of which four are allowed for any platform's library; special functions
# to some tens of units. A wrong branch or a lost tail is wrong in the first digits.
SCALAR = {
    "numpy.exp": (np.exp, mpmath.exp, [x for x in _BOTH if x > -745], 4 * EPS),
    "numpy.expm1": (np.expm1, mpmath.expm1, _BOTH, 4 * EPS),
    "numpy.log": (np.log, mpmath.log, _POSITIVE, 4 * EPS),
    "numpy.log1p": (np.log1p, lambda x: mpmath.log(1 + x), [-1.0 + EPS, -0.5, -1e-17, *_POSITIVE], 4 * EPS),
    "numpy.sqrt": (np.sqrt, mpmath.sqrt, _POSITIVE, EPS),
    "numpy.sinh": (np.sinh, mpmath.sinh, [x for x in _BOTH if x > -700], 4 * EPS),
    "numpy.cosh": (np.cosh, mpmath.cosh, [x for x in _BOTH if x > -700], 4 * EPS),
    "numpy.tanh": (np.tanh, mpmath.tanh, _BOTH, 4 * EPS),
    "numpy.sin": (np.sin, mpmath.sin, [-6.2, -1e-8, 0.0, 1e-300, 1e-3, 1.0, 3.0, 6.28], 4 * EPS),
    "numpy.cos": (np.cos, mpmath.cos, [-6.2, -1e-8, 0.0, 1e-300, 1e-3, 1.0, 3.0, 6.28], 4 * EPS),
    "numpy.hypot": (
        np.hypot, lambda x, y: mpmath.sqrt(x * x + y * y),
        [(3e200, 4e200), (3e-200, 4e-200), (1.0, 1e-17), (0.0, 2.0), (1e-160, 1e160), (-3.0, 4.0)], 4 * EPS,
    ),
    "numpy.logaddexp": (
        np.logaddexp, lambda x, y: mpmath.log(mpmath.exp(x) + mpmath.exp(y)),
        [(0.0, -1e3), (0.0, -40.0), (0.0, 1e3), (1e3, 1e3), (-1e3, -1e3 - 0.1), (0.0, 0.3), (5.0, -5.0)], 4 * EPS,
    ),
    "scipy.special.expit": (scipy.special.expit, lambda x: 1 / (1 + mpmath.exp(-x)), [*_BOTH[2:], -700.0], 8 * EPS),
    "scipy.special.log_expit": (
        scipy.special.log_expit, lambda x: -mpmath.log(1 + mpmath.exp(-x)), [*_BOTH, -1e5], 8 * EPS,
    ),
    "scipy.special.ndtr": (
        scipy.special.ndtr, lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
        # the tail exp(-x²/2) turns one rounding of x/√2 into x² of them: 37² eps is 3e-13
        [-37.0, -20.0, -8.0, -3.0, -1.0, -1e-8, 0.0, 1e-8, 1.0, 3.0, 8.0, 40.0], 2e-12,
    ),
    "scipy.special.log_ndtr": (
        scipy.special.log_ndtr, _log_ndtr,
        [-1e8, -1e3, -37.6, -20.0, -5.0, -1.0, -1e-8, 0.0, 1e-8, 1.0, 4.9, 5.1, 8.0, 20.0, 37.0], 2e-12,
    ),
    "scipy.special.ndtri": (
        scipy.special.ndtri, _ndtri, [1e-300, 1e-100, 1e-17, 1e-5, 0.02425, 0.1, 0.3, 0.7, 0.97], 64 * EPS,
    ),
    "scipy.special.erfcx": (
        scipy.special.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
        # as ndtr: exp(x²) at x = -25 turns one rounding of x² into 625 of them
        [-25.0, -5.0, -1.0, 0.0, 1e-300, 1e-3, 0.5, 1.0, 5.0, 50.0, 1e4, 1e7], 2e-13,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALAR)
def test_a_shared_function_of_numbers_is_right_at_the_extremes(name):
    call, function, cases, limit = SCALAR[name]
    assert worst_relative_error(call, function, cases) <= limit


def hilbert_like(size, shift):
    """A kernel matrix whose condition grows fast: squared exponential on a line, `shift` on its diagonal."""
    x = np.linspace(0.0, 2.0, size)
    return np.exp(-0.5 * (x[:, None] - x) ** 2) + shift * np.eye(size)


# (matrix, its condition number rounded up): easy, near the judge's own limit of 1e5, and beyond it
MATRICES = [(hilbert_like(12, 1.0), 1e2), (hilbert_like(12, 1e-4), 2e5), (1e150 * hilbert_like(12, 1e-9), 2e10)]


def mp_matrix(array):
    """The doubles of an array, exactly."""
    return mpmath.matrix([[mpmath.mpf(float(x)) for x in row] for row in np.atleast_2d(array)])


def largest(array):
    """Largest entry in size."""
    return max(abs(x) for x in array)


def relative_gap(found, truth):
    """Largest difference over the largest entry of the truth."""
    return float(largest(mp_matrix(found) - truth) / largest(truth))


def _lower(array):
    return np.tril(array)


CHOLESKY = {
    "numpy.linalg.cholesky": np.linalg.cholesky,
    "scipy.linalg.cholesky": lambda a: scipy.linalg.cholesky(a, lower=True),
    "scipy.linalg.cho_factor": lambda a: _lower(scipy.linalg.cho_factor(a, lower=True)[0]),
    "scipy.linalg.lapack.dpotrf": lambda a: _lower(lapack.dpotrf(a, lower=1, clean=1)[0]),
}


@pytest.mark.parametrize("name", CHOLESKY)
@pytest.mark.parametrize(("matrix", "condition"), MATRICES)
def test_a_cholesky_factor_is_the_exact_one_up_to_the_condition(name, matrix, condition):
    factor = CHOLESKY[name](matrix)
    size = len(matrix)
    with mpmath.workdps(60):
        A = mp_matrix(matrix)
        L = mp_matrix(factor)
        # backward error: (n + 1) eps of the largest entry, whatever the condition (Higham 2002, theorem 10.3)
        assert float(largest(L * L.T - A) / largest(A)) <= (size + 1) * EPS
        # forward error: the same, times the condition
        assert relative_gap(factor, mpmath.cholesky(A)) <= (size + 1) * EPS * condition


def _solve_triangular(factor, rhs):
    return scipy.linalg.solve_triangular(factor, rhs, lower=True)


def _dtrsm(factor, rhs):
    return scipy.linalg.blas.dtrsm(1.0, factor, rhs, side=0, lower=1)


def _dtrtrs(factor, rhs):
    return lapack.dtrtrs(factor, rhs, lower=1)[0]


TRIANGULAR = {
    "scipy.linalg.solve_triangular": _solve_triangular,
    "scipy.linalg.blas.dtrsm": _dtrsm,
    "scipy.linalg.lapack.dtrtrs": _dtrtrs,
}


@pytest.mark.parametrize("name", TRIANGULAR)
@pytest.mark.parametrize(("matrix", "condition"), MATRICES)
def test_a_triangular_solve_is_the_exact_one_up_to_the_condition(name, matrix, condition):
    factor = np.linalg.cholesky(matrix)
    rhs = np.cos(np.arange(float(len(matrix))))[:, None] * [1.0, 1e8]
    found = TRIANGULAR[name](factor, rhs)
    with mpmath.workdps(60):
        truth = mpmath.lu_solve(mp_matrix(factor), mp_matrix(rhs[:, :1]))
    # substitution is backward stable row by row: n eps times the condition of the factor, the root of the matrix's;
    # the second column, 1e8 times the first, must not disturb it
    limit = len(matrix) * EPS * np.sqrt(condition)
    assert relative_gap(found[:, :1], truth) <= limit
    np.testing.assert_allclose(found[:, 1], 1e8 * found[:, 0], rtol=0, atol=limit * np.abs(found[:, 1]).max())


def _cho_solve(matrix, rhs):
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix, lower=True), rhs)


def _inverse(matrix, rhs):
    return np.linalg.inv(matrix) @ rhs


SOLVE = {
    "scipy.linalg.cho_solve": _cho_solve,
    "numpy.linalg.solve": np.linalg.solve,
    "numpy.linalg.inv": _inverse,
}


@pytest.mark.parametrize("name", SOLVE)
@pytest.mark.parametrize(("matrix", "condition"), MATRICES)
def test_a_linear_solve_is_the_exact_one_up_to_the_condition(name, matrix, condition):
    rhs = np.cos(np.arange(float(len(matrix))))[:, None]
    with mpmath.workdps(60):
        truth = mpmath.lu_solve(mp_matrix(matrix), mp_matrix(rhs))
    # factorisation and two substitutions: 3 n eps times the condition
    assert relative_gap(SOLVE[name](matrix, rhs), truth) <= 3 * len(matrix) * EPS * condition


@pytest.mark.parametrize(("matrix", "condition"), MATRICES)
def test_the_smallest_eigenvalue_is_exact_to_rounding_of_the_largest(matrix, condition):
    with mpmath.workdps(60):
        truth = sorted(mpmath.eigsy(mp_matrix(matrix), eigvals_only=True))
    found = np.linalg.eigvalsh(matrix)
    # eigenvalues of symmetric matrices are perfectly conditioned: n eps of the largest in size
    assert abs(found[0] - float(truth[0])) <= len(matrix) * EPS * float(truth[-1])
    assert float(truth[-1] / truth[0]) <= condition


def test_logsumexp_neither_overflows_nor_loses_small_terms():
    cases = [[1e3, 1e3], [-1e3, -1e3 - 0.1, -2e3], [0.0, -40.0], [700.0, -700.0], [-1e308, -1e308], [0.1] * 5]
    for case in cases:
        with mpmath.workdps(60):
            truth = mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(x)) for x in case))
            found = scipy.special.logsumexp(case)
            # one logarithm and a sum of at most five terms
            assert abs(mpmath.mpf(float(found)) - truth) <= 8 * EPS * max(1, abs(truth))


def test_adaptive_quadrature_meets_a_gaussian_integral_of_the_logistic():
    value, error = quad(lambda f: np.exp(-0.5 * f * f) / np.sqrt(2 * np.pi) / (1 + np.exp(-f - 1.0)), -12, 12,
                        epsabs=1e-14, epsrel=1e-13)  # fmt: skip
    with mpmath.workdps(30):
        truth = mpmath.quad(
            lambda f: mpmath.exp(-f * f / 2) / mpmath.sqrt(2 * mpmath.pi) / (1 + mpmath.exp(-f - 1)),
            [-12, -4, 0, 4, 12],
        )
    # the stated error covers the true one, up to the rounding of the sum
    assert abs(value - float(truth)) <= error + 4 * EPS


TESTED = {
    *SCALAR, *CHOLESKY, *TRIANGULAR, *SOLVE,
    "numpy.linalg.eigvalsh", "scipy.special.logsumexp", "scipy.integrate.quad",
}  # fmt: skip


def test_every_call_that_two_roads_share_is_tested_and_named_in_the_documentation():
    page = (ROOT / "docs" / "independence.md").read_text(encoding="utf-8")
    shared = shared_calls()
    assert {name: who for name, who in shared.items() if name not in TESTED} == {}
    assert [name for name in shared if f"`{name}`" not in page] == []


def test_the_reader_of_imports_sees_every_way_to_name_a_call(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(
        "import numpy as np\nimport scipy.special\nfrom scipy.linalg import cho_solve as solve\n"
        "np.linalg.cholesky(1)\nscipy.special.expit(0)\nsolve\nnp.zeros(3)\n"
    )
    found = {name for name in calls_of([file]) if approximates(name)}
    assert found == {"numpy.linalg.cholesky", "scipy.special.expit", "scipy.linalg.cho_solve"}
