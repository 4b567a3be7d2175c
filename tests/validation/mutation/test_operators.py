"""A change is a mistake in the text: it must be the one that was meant, and the file must still be a program."""

import ast

import pytest

from validation.mutation import statements
from validation.mutation.operators import Source, changes


def mutations(text, known=frozenset()):
    """operator -> texts of the first statement, changed."""
    source = Source(text)
    results = {}
    for change in changes(source, source.tree.body[0], known):
        results.setdefault(change.operator, set()).add(source.changed(change))
    return results


@pytest.mark.parametrize(
    ("text", "operator", "expected"),
    [
        ("x = a + b", "operator", {"x = a - b"}),
        ("x = (a) * (b)", "operator", {"x = (a) / (b)"}),
        ("x = a * y_sign", "operator", None),
        ("x = a / self.y_sign[i, None]", "operator", None),
        ("x = y_sign * a", "operator", {"x = y_sign / a"}),
        ("x = a - y_sign", "operator", {"x = a + y_sign"}),
        ("x = a - b", "dropped term", {"x = (a)", "x = (-(b))"}),
        ("x = a - b", "swapped operands", {"x = ((b) - (a))"}),
        ("x = np.square(a - b)", "swapped operands", None),
        ("x = (a - b) ** 2", "swapped operands", None),
        ("x = abs(f(a - b))", "swapped operands", {"x = abs(f(((b) - (a))))"}),
        ("x = (a - b) ** 3", "swapped operands", {"x = (((b) - (a))) ** 3"}),
        ("x = 2 * b", "dropped factor", {"x = (2)", "x = (b)"}),
        ("x = -a", "sign", {"x = (a)"}),
        ("x = a < b", "comparison", {"x = a > b"}),
        ("x = n < limit", "comparison", {"x = n <= limit", "x = n > limit"}),
        ("x = y.size >= limit", "comparison", {"x = y.size > limit", "x = y.size <= limit"}),
        ("x = residual < tolerance", "comparison", {"x = residual > tolerance"}),
        ("x = len(y) > limit + 1", "comparison", {"x = len(y) >= limit + 1", "x = len(y) < limit + 1"}),
        ("x = zip(a, b, strict=True)", "constant", None),
        ("x = a.astype(b, copy=False)", "constant", None),
        ("x = a.astype(b, copy=True)", "constant", {"x = a.astype(b, copy=False)"}),
        ("x = solve(a, check_finite=False)", "constant", None),
        ("x = solve(a, overwrite_a=True)", "constant", None),
        ("x = solve(a, overwrite_b=False)", "constant", {"x = solve(a, overwrite_b=True)"}),
        ("for _ in range(60):\n    if x: break", "constant", None),
        (
            "for _ in range(2):\n    if x: break",
            "constant",
            {"for _ in range(3):\n    if x: break", "for _ in range(1):\n    if x: break"},
        ),
        ("for _ in range(60): f(x)", "constant", {"for _ in range(61): f(x)", "for _ in range(59): f(x)"}),
        ("x = np.vdot(a, b)", "swapped arguments", None),
        ("x = a < 1e-12 * b", "constant", {"x = a < -1e-12 * b"}),
        ("x = a < 0.1 * b", "constant", {"x = a < 0.2 * b", "x = a < -0.1 * b"}),
        ("x = a + 1e-12", "constant", {"x = a + 2e-12", "x = a + -1e-12"}),
        ("x = a is not b", "comparison", {"x = a is b"}),
        ("x = a and b", "condition", {"x = a or b"}),
        ("x = a if c else b", "condition", {"x = a if (not (c)) else b"}),
        ("x = 0.5", "constant", {"x = 1.0", "x = -0.5"}),
        ("x = y[0]", "constant", {"x = y[1]"}),
        ("x = 99", "constant", {"x = 100", "x = 98"}),
        ("x = 15_000", "constant", {"x = 30000", "x = 7500"}),
        ("x = np.einsum(a, b, c, optimize=True)", "dropped argument", None),
        ("x = np.einsum(a, b, c, optimize=True)", "constant", None),
        ("x = y[-1]", "sign", {"x = y[(1)]"}),
        ("x = A.T @ b", "transpose", {"x = (A) @ b"}),
        ("x = f(a, b)", "swapped arguments", {"x = f(b, a)"}),
        ("x = np.minimum(a, b)", "function", {"x = np.maximum(a, b)"}),
        ("x = a.sum(axis=0)", "dropped argument", None),
        ("x = s.sum(b, axis=0)", "dropped argument", {"x = s.sum(b)"}),
        ("x += a", "operator", {"x -= a"}),
        ("x += a", "removed line", {"pass"}),
        ("out[i] = a", "removed line", {"pass"}),
        ("f(a)", "removed line", {"pass"}),
        ("def f(a, b=True): pass", "constant", {"def f(a, b=False): pass"}),
        ("for i in range(n - 1): pass", "operator", {"for i in range(n + 1): pass"}),
        ("ö = λ + b  # ä", "operator", {"ö = λ - b  # ä"}),
    ],
)
def test_a_slip_of_the_pen_is_found_where_it_can_be_made(text, operator, expected):
    result = mutations(text)
    assert result.get(operator) == expected


def test_a_line_is_left_out_only_where_its_name_has_a_value_before():
    assert "removed line" not in mutations("x = a")
    assert mutations("x = a", frozenset({"x"}))["removed line"] == {"pass"}


@pytest.mark.parametrize(
    "text",
    [
        "raise ValueError(f'{a + 1}')",
        "assert a + 1 > 2",
        "import a",
        "warnings.warn(f'{a}', stacklevel=2)",
        "x: tuple[1, 2] = a",
        "x = f'{a + 1}'",
        "f(np.maximum)",
    ],
)
def test_messages_annotations_and_checks_are_let_be(text):
    assert mutations(text).keys() <= {"removed line"}


def test_arguments_of_functions_that_commute_are_not_swapped():
    assert "swapped arguments" not in mutations("x = np.maximum(a, b)")


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("flat = a.reshape(r, -1)", "flat = a.reshape(r, -2)"),
        ("rng = np.random.default_rng(0)", "rng = np.random.default_rng(1)"),
        ("x = solve(R, b, trans=1)", "x = solve(R, b, trans=2)"),
        ('x = np.einsum("tn,tn->t", a, b)', 'x = np.einsum("tn,tn->t", b, a)'),
        ("x = np.clip(a, b, c)", "x = np.clip(b, a, c)"),
        ("x = np.moveaxis(a, 2, 3)", "x = np.moveaxis(a, 3, 2)"),
        ("x = np.swapaxes(a, 0, -1)", "x = np.swapaxes(a, -1, 0)"),
        ("x = y_sign > 0", "x = y_sign >= 0"),
        ("x = a.strides[0] == 0", "x = a.strides[1] == 0"),
        ("x = a.strides[0] == 0", "x = a.strides[0] == 1"),
        ("x = np.ones_like(a[0])", "x = np.ones_like(a[1])"),
        ("x = np.empty(a[0].shape)", "x = np.empty(a[1].shape)"),
        ("x = np.cumsum(a[0].size)", "x = np.cumsum(a[1].size)"),
        ("x = a.reshape(r - 1, -1)", "x = a.reshape(((1) - (r)), -1)"),
        ("x = np.maximum(a, 1e-300)", "x = np.maximum(a, 2e-300)"),
        ("x = np.random.PCG64(0)", "x = np.random.PCG64(1)"),
        ("x = factorise(K.T, name)", "x = factorise((K), name)"),
        ("x = move(a, overwrite=True)", "x = move(a, overwrite=False)"),
        ("_SPLIT = 3.0", "_SPLIT = 6.0"),
        ("x = a.shape[1]", "x = a.shape[2]"),
        ("x = a.shape[-1]", "x = a.shape[-2]"),
        ("x = a.shape[-1]", "x = a.shape[(1)]"),
        ("x = np.maximum(a, 0.0)", "x = np.maximum(a, -1.0)"),
        ("x = np.clip(a, 0.0, 1.0)", "x = np.clip(a, 0.0, 2.0)"),
        ("x = np.clip(a, 0.0, 1.0)", "x = np.clip(a, -1.0, 1.0)"),
        ("x = min(0.0, a)", "x = min(1.0, a)"),
        ("_REACH = 9.0", "_REACH = 18.0"),
        ("x = a * sign[:, None]", "x = a / sign[:, None]"),
        ("x = a * (2.0 * y - 1.0)", "x = a / (2.0 * y - 1.0)"),
        ("x *= -1.0", "x /= -1.0"),
        ("x = a.sum(axis=-1)", "x = a.sum(axis=(1))"),
        ("x = np.ascontiguousarray(x)", "pass"),
        ("_WIDTH, _SERIES_TERMS = 3.0, 24", "_WIDTH, _SERIES_TERMS = 3.0, 25"),
        ("x = f(a, b)\ndef f(a, b):\n    return 2.0 * (b + a)", "x = f(b, a)\ndef f(a, b):\n    return 2.0 * (b + a)"),
        ("x = Limits(memory=30)", "x = Limits(memory=31)"),
        ("x = np.empty(min(a, b))", "x = np.empty(max(a, b))"),
        ("x = new >= old - 1e-12 * (1.0 + a)", "x = new >= old - 1e-12 / (1.0 + a)"),
        ("x = new >= old - 1e-12 * (1.0 + a)", "x = new >= old - 1e-12 * ((1.0))"),
        ("x = new >= old - 1e-12 * (1.0 + a)", "x = new >= old - 1e-12 * (2.0 + a)"),
        ("with suppress(A, B): pass", "with suppress(B, A): pass"),
        ("x = np.asarray(x, dtype=float)", "pass"),
        (
            "nodes, weights = np.polynomial.legendre.leggauss(24)",
            "nodes, weights = np.polynomial.legendre.leggauss(25)",
        ),
        ("x = dsyrk(1.0, a, c=x, overwrite_c=1)", "x = dsyrk(1.0, a, c=x, overwrite_c=0)"),
        ("x = np.where(a, y / np.where(a, z, 1.0), 3.0)", "x = np.where(a, y / np.where(a, z, 2.0), 3.0)"),
        ("x = 0.5 * (A + A.T)", "x = 0.5 * (A + (A))"),
        ("x = f'{a}: ' if a else ''", "x = f'{a}: ' if (not (a)) else ''"),
        ("LIMIT = 1e-8\nif x > LIMIT: pass", "LIMIT = 2e-08\nif x > LIMIT: pass"),
        ("MOST = 50\nfor _ in range(MOST):\n    break", "MOST = 51\nfor _ in range(MOST):\n    break"),
        ("MOST = 50\nx = search(y, max_iterations=MOST)", "MOST = 51\nx = search(y, max_iterations=MOST)"),
        ("x = K + s * np.eye(K.shape[0])", "x = K + s * np.eye(K.shape[1])"),
        ("root = cholesky(K, name, remedy)", "root = cholesky(K, remedy, name)"),
        ("root = solve(K, WHAT)\nWHAT = 'K'", "root = solve(WHAT, K)\nWHAT = 'K'"),
        ("x = 0.5 * (x + x.T)", "pass"),
        ("safe = np.where(s > 0, s, 1.0)", "safe = np.where(s > 0, s, 2.0)"),
        ("safe_m, safe_v = f(m), np.where(b, 1.0, v)", "safe_m, safe_v = f(m), np.where(b, -1.0, v)"),
    ],
)
def test_what_changes_no_number_is_not_drawn(text, other):
    source = Source(text)
    assert other not in {source.changed(change) for change in changes(source, source.tree.body[0], frozenset({"x"}))}


def test_what_may_not_stand_the_other_way_round_is_drawn():
    for text, other in (
        ('x = np.einsum("tn,nm->tm", a, b)', 'x = np.einsum("tn,nm->tm", b, a)'),
        ("x = np.clip(a, b, c)", "x = np.clip(a, c, b)"),
        ("x = np.moveaxis(a, 0, 2)", "x = np.moveaxis(a, 2, 0)"),
        ("x = np.moveaxis(a, 0, -1)", "x = np.moveaxis(a, -1, 0)"),
        ("x = n_draws > 0", "x = n_draws >= 0"),
        ("x = a.shape[0] == 0", "x = a.shape[1] == 0"),
        ("x = np.ones(a[0])", "x = np.ones(a[1])"),
        ("x = a.reshape(r - 1, -1)", "x = a.reshape(r + 1, -1)"),
        ("x = np.maximum(a, 1e-300)", "x = np.maximum(a, -1e-300)"),
        ("x = solve(K.T, name)", "x = solve((K), name)"),
        ("x = factorise(A @ K.T, name)", "x = factorise(A @ (K), name)"),
        ("_SPLIT = 3.0", "_SPLIT = -3.0"),
        ("x = a.shape[1]", "x = a.shape[0]"),
        ("x = a.shape[-1]", "x = a.shape[0]"),
        ("x = np.maximum(a, 0.0)", "x = np.maximum(a, 1.0)"),
        ("x = np.clip(a, 0.0, 1.0)", "x = np.clip(a, 0.0, -1.0)"),
        ("x = np.minimum(a, 0.0)", "x = np.minimum(a, -1.0)"),
        ("_REACH = 9.0", "_REACH = 4.5"),
        ("x = a * (2.0 * y - 1.0)", "x = a * (2.0 * y + 1.0)"),
        ("x = a * -2.0", "x = a / -2.0"),
        ("x = a.sum(axis=-1)", "x = a.sum(axis=-2)"),
        ("x = a.sum(axis=-1)", "x = a.sum(axis=-0)"),
        ("x = f(a, -1)", "x = f(a, (1))"),
        ("_WIDTH, _SERIES_TERMS = 3.0, 24", "_WIDTH, _SERIES_TERMS = 3.0, 12"),
        ("x = f(a, b)\ndef f(a, b):\n    return 2.0 * (b - a)", "x = f(b, a)\ndef f(a, b):\n    return 2.0 * (b - a)"),
        ("x = f(a, b)\ndef f(a, b):\n    return a / b", "x = f(b, a)\ndef f(a, b):\n    return a / b"),
        ("x = np.zeros(min(a, b))", "x = np.zeros(max(a, b))"),
        ("x = new >= old - 1e-12 * (1.0 + a)", "x = new >= old - (1.0 + a)"),
        ("x = new >= old - 1e-12 * (1.0 + a)", "x = new >= old + 1e-12 * (1.0 + a)"),
        ("x = new >= old - 0.1 * (1.0 + a)", "x = new >= old - 0.1 / (1.0 + a)"),
        ("x = y_sign > 0", "x = y_sign < 0"),
        ("x = a.reshape(r, 2)", "x = a.reshape(r, 3)"),
        ("x, w = leggauss(24)", "x, w = leggauss(12)"),
        ("x = np.where(a, y / np.where(a, z, 1.0), 3.0)", "x = np.where(a, y / np.where(a, z, 1.0), 6.0)"),
        ("x = np.where(a, y / np.where(b, z, 1.0), 3.0)", "x = np.where(a, y / np.where(b, z, 2.0), 3.0)"),
        ("x = 0.5 * (A + B.T)", "x = 0.5 * (A + (B))"),
        ("x = A + A.T", "x = A + (A)"),
        ("x = 'L' if a else 'U'", "x = 'L' if (not (a)) else 'U'"),
        ("LIMIT = 1e-8\nif x > LIMIT: pass", "LIMIT = -1e-08\nif x > LIMIT: pass"),
        ("LIMIT = 1e-8\nif x > LIMIT: y = LIMIT", "LIMIT = 2e-08\nif x > LIMIT: y = LIMIT"),
        ("LIMIT = 1e-3\nif x > LIMIT: pass", "LIMIT = 0.002\nif x > LIMIT: pass"),
        ("MOST = 50\nfor _ in range(MOST):\n    pass", "MOST = 51\nfor _ in range(MOST):\n    pass"),
        ("MOST = 5\nfor _ in range(MOST):\n    break", "MOST = 6\nfor _ in range(MOST):\n    break"),
        ("x = K + s * np.eye(A.shape[0])", "x = K + s * np.eye(A.shape[1])"),
        ("safe = np.where(s > 0.0, s, 1.0)", "safe = np.where(s > 1.0, s, 1.0)"),
        ("root = solve(K, names)", "root = solve(names, K)"),
        ("x[k] = 0.5 * (y + y.T)", "pass"),
        ("x = np.where(s > 0, s, 1.0)", "x = np.where(s > 0, s, 2.0)"),
    ):
        source = Source(text)
        assert other in {source.changed(change) for change in changes(source, source.tree.body[0])}


def test_a_running_maximum_of_sizes_may_begin_below_zero():
    def drawn(begins: str, later: str) -> set[str]:
        source = Source(f"def f(a):\n    {begins}\n    for x in a:\n        {later}\n    return worst\n")
        return {
            change.text for change in changes(source, source.tree.body[0].body[0], frozenset()) if "0" in change.text
        }

    assert drawn("worst = 0.0", "worst = max(worst, x)") == {"1.0"}
    assert drawn("worst, at = 0.0, 5", "worst = np.maximum(x, worst)") == {"1.0"}
    assert drawn("worst, name = 0.0, 5", "if x > worst: worst, name = x, 6") == {"1.0"}
    assert drawn("worst = 0.0", "if y > worst: worst = x") == {"1.0", "-1.0"}
    assert drawn("worst = 0.0", "worst = worst + x") == {"1.0", "-1.0"}
    assert drawn("worst = 0.0", "worst = max(other, x)") == {"1.0", "-1.0"}


def inside(text):
    """All changes of the statements in a function's body, at any depth."""
    source = Source(text)
    body = [node for node in ast.walk(source.tree.body[0]) if isinstance(node, ast.stmt)][1:]
    return {source.changed(change) for node in body for change in changes(source, node, frozenset())}


def test_an_iteration_that_arrived_may_go_on():
    loop = "def f(x):\n    for _ in range(9):\n        x = step(x)\n        {}\n        {}\n    return x\n"

    def drawn(*lines: str) -> bool:
        text = loop.format(*lines)
        return text.replace("break", "pass") in inside(text)

    assert not drawn("x = more(x)", "if still(x): break")
    assert not drawn("if gap(x) < 1e-9 * size: break", "x = more(x)")
    assert not drawn("if gap(x) <= tolerance: break", "x = more(x)")
    assert drawn("if gap(x) < other(x): break", "x = more(x)")
    assert drawn("if gap(x) > 1e-9: break", "x = more(x)")
    assert drawn("if gap(x) < 0.1: break", "x = more(x)")


def test_an_outer_product_that_is_added_to_its_transpose_has_no_order():
    def drawn(use: str) -> bool:
        text = f"def f(a, b):\n    x = np.outer(a, b)\n    return {use}\n"
        return text.replace("np.outer(a, b)", "np.outer(b, a)") in inside(text)

    assert not drawn("x + x.T")
    assert not drawn("c + x + x.T")
    assert drawn("x - x.T")
    assert drawn("x + y.T")
    assert drawn("x + x.T + g(x)")


def test_every_change_of_every_statement_gives_a_program_that_is_another():
    # a file with Greek letters, line breaks inside expressions and comments between operands
    for module in ("fast.one_latent.sites", "reference.riihimaki2013.sites", "gibbs.models.exact_probit"):
        text = statements.source_of(module)
        source = Source(text)
        healthy = ast.dump(source.tree)
        results = [change for entry in statements.statements(module) for change in entry.changes]
        assert len(results) > 50
        for change in results[::7]:
            assert ast.dump(ast.parse(source.changed(change))) != healthy, change
