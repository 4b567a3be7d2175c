"""Common blind spots: third-party calls that two witnesses share are found by reading imports, and each is checked
once against mpmath, on extreme arguments.

Two routes to one number are independent up to the calls that they have in common. docs/independence.md lists those.
"""

import ast
from collections import defaultdict
from pathlib import Path

import mpmath
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.special
import scipy.stats
from scipy.integrate import quad
from scipy.linalg import lapack

ROOT = Path(__file__).resolve().parents[2]
EPS = np.finfo(float).eps
TINY = 5e-324
EVIDENCE = ROOT / "gibbs" / "evidence"
# The routes whose agreement is a verdict: the three witnesses, each route to log Z, and the judge's own quadrature.
ROUTES = {
    "reference": sorted((ROOT / "reference").rglob("*.py")),
    "fast": sorted((ROOT / "fast").rglob("*.py")),
    "gibbs": sorted(set((ROOT / "gibbs").rglob("*.py")) - set(EVIDENCE.glob("*.py"))),
    **{file.stem: [file] for file in EVIDENCE.glob("*.py") if file.stem not in ("__init__", "result")},
    "quadrature": sorted((ROOT / "validation" / "implementations").glob("quadrature*.py")),
    # integrals and definitions of the judge's own, which hold both witnesses at once
    "judge": [
        ROOT / "validation" / "judge" / "class_integrals.py",
        *sorted((ROOT / "validation" / "checks").rglob("*.py")),
    ],
}
# Of NumPy itself only functions that approximate; sums, products and reshaping are no approximations.
_NAMES = (
    *("exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "logaddexp", "logaddexp2", "sqrt", "hypot", "power"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "arctan", "arctan2", "arcsinh", "arccosh", "arctanh", "sinc", "i0"),
)
# modules, and what only arranges entries
NO_APPROXIMATION = {"blas", "lapack", "distance", "array_stats", "block_diag"}
ELEMENTARY = {f"numpy.{name}" for name in _NAMES}


def calls_of(files):
    """Dotted names of everything from numpy, scipy, emcee and arviz_stats that the files use."""
    result = set()
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
                result.add(name)
    return result


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
    parts = name.split(".")
    if name.startswith("numpy."):
        # rules of quadrature are four names deep: numpy.polynomial.legendre.leggauss
        rule = name.startswith("numpy.polynomial.") and len(parts) > 3 and parts[3][0].islower()
        return name in ELEMENTARY or rule or (name.startswith("numpy.linalg.") and name[13].islower())
    if name.startswith("scipy.stats.qmc."):
        return len(parts) == 4  # its sequences are classes
    return len(parts) > 2 and parts[-1][0].islower() and parts[-1] not in NO_APPROXIMATION


def shared_calls():
    """Name -> routes, for each approximating call on at least two routes."""
    routes = defaultdict(set)
    for route, files in ROUTES.items():
        for name in calls_of(files):
            if approximates(name):
                routes[name].add(route)
    return {name: sorted(who) for name, who in routes.items() if len(who) > 1}


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


def _besselk(nu, x):
    with mpmath.workdps(60):  # hundreds of digits take many seconds here, and nothing cancels
        return mpmath.besselk(nu, x)


def _ndtri_exp(y):
    """x with log Φ(x) = y; the root is the only one, and the secant only starts where SciPy says it is."""
    start = mpmath.mpf(float(scipy.special.ndtri_exp(float(y))))
    # log Φ flattens to zero above: there its complement is solved for
    high = y > mpmath.log(mpmath.mpf(1) / 2)

    def gap(x):
        return _log_ndtr(-x) - mpmath.log(-mpmath.expm1(y)) if high else _log_ndtr(x) - y

    return mpmath.findroot(gap, (start * (1 - mpmath.mpf("1e-9")), start * (1 + mpmath.mpf("1e-9"))), maxsteps=40)


# name -> (call, the same in mpmath, arguments, limit). The limits are in relative error. Elementary functions are good
# to about one unit in the last place, 2.2e-16, of which four are allowed for any platform's library; special functions
# to some tens of units. A wrong branch or a lost tail is wrong in the first digits.
SCALAR = {
    "numpy.exp": (np.exp, mpmath.exp, [x for x in _BOTH if x > -745], 4 * EPS),
    "numpy.expm1": (np.expm1, mpmath.expm1, _BOTH, 4 * EPS),
    "numpy.log": (np.log, mpmath.log, _POSITIVE, 4 * EPS),
    "numpy.log2": (np.log2, lambda x: mpmath.log(x, 2), _POSITIVE, 4 * EPS),
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
    "scipy.special.ndtri_exp": (
        # relative error is asked for, so not at the median, where x itself vanishes
        scipy.special.ndtri_exp, _ndtri_exp,
        [-1e8, -1e4, -700.0, -100.0, -37.0, -5.0, -2.0, -1.0, -0.5, -1e-2, -1e-6, -1e-14, -1e-17], 256 * EPS,
    ),
    "scipy.special.log_softmax": (
        # two classes, the log probability of the first
        lambda x, y: scipy.special.log_softmax([x, y])[0], lambda x, y: -mpmath.log(1 + mpmath.exp(y - x)),
        [(0.0, -1e3), (0.0, -3.0), (0.0, 0.0), (0.3, 0.0), (-3.0, 0.0), (-1e3, 1e3), (1e308, -1e308)], 16 * EPS,
    ),
    "scipy.special.softmax": (
        lambda x, y: scipy.special.softmax([x, y])[0], lambda x, y: 1 / (1 + mpmath.exp(y - x)),
        # the difference of two numbers of size 1e3 is exact here
        [(0.0, -1e3), (0.0, 700.0), (0.0, 3.0), (0.0, 0.0), (0.3, 0.0), (-3.0, 0.0), (1e3, 999.5)], 8 * EPS,
    ),
    "scipy.special.gamma": (
        scipy.special.gamma, mpmath.gamma, [1e-300, 1e-8, 0.3, 0.5, 1.0, 1.5, 2.5, 7.25, 25.0, 100.0, 170.5], 16 * EPS,
    ),
    "scipy.special.gammaln": (
        # log Γ vanishes at 1 and 2: the error is relative elsewhere
        scipy.special.gammaln, mpmath.loggamma, [1e-300, 1e-8, 0.3, 0.5, 1.5, 2.5, 7.25, 25.0, 1e3, 1e8], 16 * EPS,
    ),
    "scipy.special.kv": (
        scipy.special.kv, _besselk,
        # orders and arguments of Matérn kernels; x^-ν turns one rounding of x into ν of them, up to 25 here
        [(0.3, 1e-8), (0.3, 2.0), (0.5, 1.0), (1.0, 1e-3), (1.7, 0.1), (3.2, 0.5), (3.2, 40.0), (7.5, 1e-6), (7.5, 3.0),
         (24.9, 1e-3), (24.9, 10.0), (24.9, 300.0), (0.01, 600.0)], 512 * EPS,
    ),
    "scipy.special.kve": (
        scipy.special.kve, lambda nu, x: _besselk(nu, x) * mpmath.exp(x),
        [(0.3, 1e-8), (0.5, 1.0), (1.0, 1e-3), (3.2, 0.5), (3.2, 40.0), (7.5, 3.0), (24.9, 10.0), (24.9, 3e3),
         (0.01, 1e4)], 128 * EPS,
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


def relative_gap(actual, truth):
    """Largest difference over the largest entry of the truth."""
    return float(largest(mp_matrix(actual) - truth) / largest(truth))


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
    result = TRIANGULAR[name](factor, rhs)
    with mpmath.workdps(60):
        truth = mpmath.lu_solve(mp_matrix(factor), mp_matrix(rhs[:, :1]))
    # substitution is backward stable row by row: n eps times the condition of the factor, the root of the matrix's;
    # the second column, 1e8 times the first, must not disturb it
    limit = len(matrix) * EPS * np.sqrt(condition)
    assert relative_gap(result[:, :1], truth) <= limit
    np.testing.assert_allclose(result[:, 1], 1e8 * result[:, 0], rtol=0, atol=limit * np.abs(result[:, 1]).max())


def _cho_solve(matrix, rhs):
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix, lower=True), rhs)


def _inverse(matrix, rhs):
    return np.linalg.inv(matrix) @ rhs


def _dpotri(matrix, rhs):
    lower = np.tril(lapack.dpotri(np.linalg.cholesky(matrix), lower=1)[0])
    return (lower + np.tril(lower, -1).T) @ rhs


SOLVE = {
    "scipy.linalg.cho_solve": _cho_solve,
    "numpy.linalg.solve": np.linalg.solve,
    "numpy.linalg.inv": _inverse,
    "scipy.linalg.lapack.dpotri": _dpotri,
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
    result = np.linalg.eigvalsh(matrix)
    # eigenvalues of symmetric matrices are perfectly conditioned: n eps of the largest in size
    assert abs(result[0] - float(truth[0])) <= len(matrix) * EPS * float(truth[-1])
    assert float(truth[-1] / truth[0]) <= condition


@pytest.mark.parametrize("size", [2, 6, 12])
def test_eigenvalues_of_any_matrix_are_exact_to_rounding_times_their_condition(size):
    rng = np.random.default_rng(size)
    # eigenvectors of condition below 10: eigenvalues move by no more than that many n eps of the norm
    basis = np.eye(size) + 0.3 * rng.standard_normal((size, size)) / np.sqrt(size)
    matrix = basis @ np.diag(rng.uniform(-1.0, 1.0, size)) @ np.linalg.inv(basis)
    with mpmath.workdps(60):
        values = mpmath.eig(mp_matrix(matrix), left=False, right=False)
        truth = sorted((complex(x) for x in values), key=lambda x: x.real)
    result = sorted(np.linalg.eigvals(matrix).astype(complex), key=lambda x: x.real)
    assert np.linalg.cond(basis) < 10.0
    np.testing.assert_allclose(result, truth, rtol=0, atol=10 * size * EPS)


@pytest.mark.parametrize(("matrix", "condition"), MATRICES)
def test_eigenvectors_are_orthonormal_and_rebuild_the_matrix(matrix, condition):
    values, vectors = np.linalg.eigh(matrix)
    with mpmath.workdps(60):
        V, A = mp_matrix(vectors), mp_matrix(matrix)
        truth = mpmath.eigsy(A, eigvals_only=True)
        # backward stable: some n eps, of the largest entry where the matrix is rebuilt
        limit = 4 * len(matrix) * EPS
        assert float(largest(V.T * V - mpmath.eye(len(matrix)))) <= limit
        assert float(largest(V * mpmath.diag(list(values)) * V.T - A) / largest(A)) <= limit
    # eigenvalues are perfectly conditioned, so the small ones have absolute accuracy only
    np.testing.assert_allclose(values, [float(x) for x in sorted(truth)], rtol=0, atol=limit * values[-1])
    assert values[-1] / values[0] <= condition


def test_least_squares_are_those_of_the_exact_normal_equations():
    x = np.linspace(-1.0, 2.0, 12)
    A, b = np.vander(x, 5), np.cos(3.0 * x)
    actual = np.linalg.lstsq(A, b, rcond=None)[0]
    with mpmath.workdps(60):
        M, right = mp_matrix(A), mp_matrix(b[:, None])
        truth = mpmath.lu_solve(M.T * M, M.T * right)
    # the residual is not small: n eps times the squared condition of A
    assert relative_gap(actual[:, None], truth) <= len(x) * EPS * np.linalg.cond(A) ** 2


def test_logsumexp_neither_overflows_nor_loses_small_terms():
    cases = [[1e3, 1e3], [-1e3, -1e3 - 0.1, -2e3], [0.0, -40.0], [700.0, -700.0], [-1e308, -1e308], [0.1] * 5]
    for case in cases:
        with mpmath.workdps(60):
            truth = mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(x)) for x in case))
            result = scipy.special.logsumexp(case)
            # one logarithm and a sum of at most five terms
            assert abs(mpmath.mpf(float(result)) - truth) <= 8 * EPS * max(1, abs(truth))


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


def test_the_norm_is_the_exact_one_for_vectors_and_rows():
    rows = np.cos(np.arange(60.0)).reshape(3, 20) * np.array([[1e-140], [1.0], [1e140]])
    with mpmath.workdps(60):
        truth = [mpmath.sqrt(mpmath.fsum(mpmath.mpf(float(x)) ** 2 for x in row)) for row in rows]
        for value in ([np.linalg.norm(row) for row in rows], np.linalg.norm(rows, axis=1)):
            # a root of a sum of 20 positive squares
            assert max(abs(mpmath.mpf(float(f)) / t - 1) for f, t in zip(value, truth, strict=True)) <= 20 * EPS


def test_log_determinants_are_those_of_the_matrix_in_many_digits():
    for shrink in (1.0, 1e-6):
        A = hilbert_like(6, shrink) * np.where(np.arange(6) == 0, -1.0, 1.0)  # one column turned: the sign is -1
        sign, log_det = np.linalg.slogdet(A)
        with mpmath.workdps(60):
            truth = mpmath.det(mp_matrix(A))
        assert sign == -1.0
        # a pivot of an LU factorisation carries eps times the condition, at most 1e7 here
        assert abs(mpmath.mpf(float(log_det)) - mpmath.log(-truth)) <= 1e8 * EPS


def test_the_minimiser_finds_minima_inside_the_box_and_on_its_edge():
    A = hilbert_like(6, 1e-2)
    b = np.cos(np.arange(6.0))

    def bowl(x):
        """½ x'Ax - b'x + Σ x⁴/4: strictly convex."""
        return 0.5 * x @ A @ x - b @ x + 0.25 * (x**4).sum(), A @ x - b + x**3

    for edge in (np.inf, 0.6):
        optimum = scipy.optimize.minimize(
            bowl, np.zeros(6), jac=True, method="L-BFGS-B", bounds=[(-edge, edge)] * 6,
            options={"gtol": 1e-9, "ftol": 1e-15, "maxiter": 500},
        )  # fmt: skip
        with mpmath.workdps(30):
            matrix, right, x = mp_matrix(A), mp_matrix(b[:, None]), mpmath.matrix(6, 1)
            # coordinate by coordinate, each the root of a cubic, clipped: converges for a convex function in a box
            for _ in range(400):
                for i in range(6):
                    rest = right[i] - sum(matrix[i, j] * x[j] for j in range(6) if j != i)
                    a = mpmath.sqrt(rest**2 / 4 + matrix[i, i] ** 3 / 27)  # Cardano
                    root = sum(mpmath.sign(t) * mpmath.cbrt(abs(t)) for t in (rest / 2 + a, rest / 2 - a))
                    x[i] = max(-edge, min(edge, root))
        # gradient below 1e-9 at a curvature of at least 1e-2
        np.testing.assert_allclose(optimum.x, [float(v) for v in x], rtol=0, atol=1e-7)
        assert np.isinf(edge) or np.count_nonzero(np.abs(optimum.x) == edge) in range(1, 6)


# the published table of Joe and Kuo (2008): degree and inner coefficients of a primitive polynomial, first directions
JOE_KUO = [
    (1, 0, [1]), (2, 1, [1, 3]), (3, 1, [1, 3, 1]), (3, 2, [1, 1, 1]), (4, 1, [1, 1, 3, 3]), (4, 4, [1, 3, 5, 13]),
    (5, 2, [1, 1, 5, 5, 17]), (5, 4, [1, 1, 5, 5, 5]), (5, 7, [1, 1, 7, 11, 19]), (5, 11, [1, 1, 5, 1, 1]),
]  # fmt: skip


def test_points_of_sobol_are_those_of_the_published_directions():
    bits = 8
    directions = [[1] * bits]  # the first coordinate is van der Corput's
    for degree, inner, first in JOE_KUO:
        m = list(first)
        for j in range(degree, bits):
            new = m[j - degree] ^ (m[j - degree] << degree)
            for i in range(1, degree):
                new ^= ((inner >> (degree - 1 - i)) & 1) * (m[j - i] << i)
            m.append(new)
        directions.append(m)
    points = np.zeros((2**bits, len(directions)))
    for column, m in enumerate(directions):
        x = 0
        for i in range(1, 2**bits):
            lowest = (i & -i).bit_length() - 1  # the bit that changes in the Gray code
            x ^= m[lowest] << (bits - 1 - lowest)
            points[i, column] = x / 2**bits
    result = scipy.stats.qmc.Sobol(len(directions), scramble=False).random_base2(bits)
    np.testing.assert_array_equal(result, points)  # fractions with eight binary digits


def _weight_moments(kind):
    """Integrals of x^k over the weight of a rule: over (-1, 1), with exp(-x²), with exp(-x²/2)."""
    if kind == "leggauss":
        return lambda k: mpmath.mpf(2) / (k + 1) if k % 2 == 0 else mpmath.mpf(0)
    scale = 1 if kind == "hermgauss" else 2
    return lambda k: mpmath.gamma(mpmath.mpf(k + 1) / 2) * mpmath.mpf(scale) ** (mpmath.mpf(k + 1) / 2) * (1 - k % 2)


RULES = {
    "numpy.polynomial.legendre.leggauss": np.polynomial.legendre.leggauss,
    "numpy.polynomial.hermite.hermgauss": np.polynomial.hermite.hermgauss,
    "numpy.polynomial.hermite_e.hermegauss": np.polynomial.hermite_e.hermegauss,
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("size", [2, 5, 10, 16, 24, 50])
def test_a_gaussian_rule_has_the_moments_that_define_it(name, size):
    # a rule of n nodes is the only one that integrates the polynomials of degree up to 2n - 1
    x, w = RULES[name](size)
    moment = _weight_moments(name.rpartition(".")[2])
    with mpmath.workdps(60):
        nodes, weights = ([mpmath.mpf(float(v)) for v in values] for values in (x, w))
        for k in (*range(min(2 * size, 20)), 2 * size - 2, 2 * size - 1):
            result = mpmath.fsum(a * b**k for a, b in zip(weights, nodes, strict=True))
            size_of_terms = mpmath.fsum(abs(a * b**k) for a, b in zip(weights, nodes, strict=True))
            # a node off by rounding changes its power by k times as much
            assert abs(result - moment(k)) <= 20 * (k + 2) * EPS * size_of_terms


def test_no_integral_of_the_judge_takes_a_rule_of_the_witnesses():
    rules = {name for name in calls_of(ROUTES["judge"] + ROUTES["quadrature"]) if "qmc" in name or "polynomial" in name}
    assert rules == set()


TESTED = {
    *RULES,
    *SCALAR, *CHOLESKY, *TRIANGULAR, *SOLVE,
    "numpy.linalg.eigvals", "numpy.linalg.eigvalsh", "numpy.linalg.eigh", "numpy.linalg.norm", "numpy.linalg.slogdet",
    "numpy.linalg.lstsq",
    "scipy.special.logsumexp", "scipy.integrate.quad", "scipy.optimize.minimize",
    "scipy.stats.qmc", "scipy.stats.qmc.Sobol",
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
        "from scipy.stats import qmc\nqmc.Sobol(2)\nnp.polynomial.Polynomial([1])\n"
        "from numpy.polynomial.legendre import leggauss\nleggauss(3)\n"
    )
    results = {name for name in calls_of([file]) if approximates(name)}
    assert results == {
        *("numpy.linalg.cholesky", "scipy.special.expit", "scipy.linalg.cho_solve"),
        *("numpy.polynomial.legendre.leggauss", "scipy.stats.qmc", "scipy.stats.qmc.Sobol"),
    }
