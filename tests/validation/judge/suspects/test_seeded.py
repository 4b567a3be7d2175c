"""Programs with one well-known mistake each: is the right suspect named first?

The strangers here are the methods of `reference` (and two programs of a page, written out below) with the mistake
planted by hand; the suspects are worked out with `fast`. A row of `SEEDS` says which names count as right.
"""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.special import expit, ndtr

from validation import Problem, Solution, solve
from validation.judge.suspects import search
from validation.judge.suspects.search import suspects

RNG = np.random.default_rng(20261122)
X = RNG.uniform(-2.0, 2.0, (14, 2))
X_TEST = RNG.uniform(-2.5, 2.5, (7, 2))
BINARY = {
    "name": "seeded", "X": X, "y": (X[:, 0] + 0.4 * X[:, 1] > 0.1).astype(int), "n_classes": 2, "variance": 2.3,
    "lengthscales": [0.8, 1.7], "noise": 0.3, "jitter": 1e-3, "X_test": X_TEST,
}  # fmt: skip
CLASSES = BINARY | {
    "y": np.digitize(X[:, 0] - 0.5 * X[:, 1], [-0.8, 0.7]), "n_classes": 3, "variance": [2.3, 1.4, 3.1],
    "lengthscales": [[0.8, 1.7], [1.2, 0.9], [1.5, 2.1]],
}  # fmt: skip
Z = {"Z": X[:5] + 0.1, "prior_model": "fitc"}
# one latent, full classes, inducing classes
METHODS = {
    "x-gpc": BINARY | Z | {"likelihood": "logit"},
    "svgpc": BINARY | Z | {"likelihood": "probit"},
    "epgpc": BINARY | {"likelihood": "probit"},
    "svi": BINARY | {"likelihood": "logit"},
    "vi-jj": BINARY | Z | {"likelihood": "logit"},
    "vi-taylor": BINARY | Z | {"likelihood": "probit"},
    "nested-ep": CLASSES | {"likelihood": "multinomial-probit"},
    "nested-iep": CLASSES | {"likelihood": "multinomial-probit"},
    "laplace": CLASSES | {"likelihood": "softmax"},
    "vb-probit": CLASSES | {"likelihood": "multinomial-probit"},
    "ep": CLASSES | Z | {"likelihood": "threshold"},
    "gfitc": CLASSES | Z | {"likelihood": "threshold"},
    "vi-robust": CLASSES | Z | {"likelihood": "threshold", "epsilon": 0.1},
    "pep": CLASSES | Z | {"likelihood": "threshold", "epsilon": 0.05},
    "apep": CLASSES | Z | {"likelihood": "threshold"},
    "laplace-sparse": CLASSES | Z | {"likelihood": "softmax"},
}
MOMENTS = ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "inducing_mean", "inducing_cov")


@cache
def problem(method):
    return Problem(**METHODS[method])


_answers = {}


def answer(implementation, method, posed, **options):
    """One answer for each question, whoever asks."""
    key = (implementation, method, tuple((k, v.tobytes()) for k, v in posed.to_arrays().items()), repr(options))
    if key not in _answers:
        _answers[key] = solve(implementation, method, posed, **options)
    return _answers[key]


def other_question(method, as_method=None, **changes):
    """What the reference says to a changed problem, given out as the answer to the problem itself."""
    posed = problem(method)
    result = answer("reference", as_method or method, posed.replace(**changes))
    kept = {name: getattr(result, name) for name in (*MOMENTS, "probabilities", "log_evidence", "log_evidence_kind")}
    if posed.Z is not None and result.problem.Z is None:
        kept |= {"inducing_mean": None, "inducing_cov": None}
    return Solution(posed, "mine", method, **kept, converged=result.converged)


def changed(method, **values):
    """The reference's answer with some arrays replaced; a callable gets the old one."""
    result = answer("reference", method, problem(method))
    new = {k: v(getattr(result, k)) if callable(v) else v for k, v in values.items() if getattr(result, k) is not None}
    return replace(result, implementation="mine", **new) if new else None


def everywhere(method, change, names=MOMENTS):
    result = answer("reference", method, problem(method))
    return changed(method, **{name: change for name in names if getattr(result, name) is not None})


def diagonal(change):
    def made(cov):
        out, i = cov.copy(), np.arange(cov.shape[-1])
        out[..., i, i] = change(cov[..., i, i])
        return out

    return made


def flipped(method):
    posed = problem(method)
    if posed.n_latents > 1:
        return None
    return other_question(method, y=1 - posed.y)


def permuted(method, order=(2, 0, 1)):
    """The program codes its classes in another order, hyper-parameters with them."""
    posed, order = problem(method), list(order)
    if posed.n_latents == 1:
        return None
    result = other_question(method)
    value = {}
    for name in (*MOMENTS, "probabilities"):
        old = getattr(result, name)
        if old is not None:
            axis = 0 if name.startswith("inducing") else 1
            value[name] = np.take(old, order, axis)
            if name.endswith("_cov") and axis:
                value[name] = np.take(value[name], order, 2)
    return replace(result, **value)


def without_noise(method):
    posed = problem(method)
    if posed.Z is not None:
        return None  # given inducing values the means of f and f + noise are one
    result = answer("reference", method, posed.replace(X_test=X))
    return changed(method, latent_mean=result.test_latent_mean)


def plugged(method):
    posed = problem(method)
    mean = answer("reference", method, posed).test_latent_mean
    if posed.n_latents == 1:
        p = (expit if posed.likelihood == "logit" else ndtr)(mean)
        return changed(method, probabilities=np.hstack([1.0 - p, p]))
    return changed(method, probabilities=np.exp(mean) / np.exp(mean).sum(axis=1, keepdims=True))


def against_rest(method):
    result = answer("reference", method, problem(method))
    if result.problem.n_latents == 1:
        return None
    p = ndtr(result.test_latent_mean / np.sqrt(1.0 + np.einsum("tll->tl", result.test_latent_cov)))
    return changed(method, probabilities=p / p.sum(axis=1, keepdims=True))


def deviations_to_the_end(method):
    """Standard deviations where variances are meant, and probabilities made from them."""
    posed = problem(method)
    if posed.likelihood != "probit":
        return None
    result = answer("reference", method, posed)
    sd = np.sqrt(result.test_latent_cov)
    p = ndtr(result.test_latent_mean / np.sqrt(1.0 + sd[:, 0]))
    return changed(method, test_latent_cov=sd, probabilities=np.hstack([1.0 - p, p]))


def half_log_det(method):
    """1/2 log det(K + jitter I), by eigenvalues, of all latents."""
    posed, total = problem(method), 0.0
    for k in range(posed.n_latents):
        A = (posed.X if posed.Z is None else posed.Z[k]) / posed.lengthscales[k]
        K = posed.variance[k] * np.exp(-0.5 * ((A[:, None] - A[None]) ** 2).sum(-1))
        K = K + (posed.jitter[k] + (posed.noise[k] if posed.Z is None else 0.0)) * np.eye(len(A))
        total += 0.5 * np.log(np.linalg.eigvalsh(K)).sum()
    return total


def other_link(method):
    other = {
        "svi": ("svi", "probit"), "svgpc": ("svi", "logit"), "x-gpc": ("svgpc", "probit"), "vi-jj": ("svgpc", "probit"),
        "vi-taylor": ("vi-taylor", "logit"), "nested-ep": ("laplace", "softmax"),
        "laplace": ("nested-ep", "multinomial-probit"),
    }  # fmt: skip
    if problem(method).likelihood == "threshold":
        return other_question(method, noise=1.3)  # unit noise of the multinomial probit on top
    return other_question(method, other[method][0], likelihood=other[method][1]) if method in other else None


ANY = tuple(METHODS)
CONSTANT = ("constant n log 2", "constant n/2 log 2")
SEEDS = {
    "log Z + n log 2": (lambda m: changed(m, log_evidence=lambda z: z + 14 * np.log(2.0)), ("constant n log 2",)),
    "log Z - n/2 log 2 pi": (
        lambda m: changed(m, log_evidence=lambda z: z - 7 * np.log(2.0 * np.pi)), ("constant n/2 log 2 pi",)
    ),
    "log Z + 1/2 log det K": (
        lambda m: changed(m, log_evidence=lambda z: z + half_log_det(m)), ("constant 1/2 log det K",)
    ),
    "-log Z": (lambda m: changed(m, log_evidence=lambda z: -z), ("sign",)),
    "log Z / n": (lambda m: changed(m, log_evidence=lambda z: z / 14), ("per datum",)),
    "covariances 5 % up": (lambda m: changed(m, latent_cov=lambda v: 1.05 * v), ("constant ratio",)),
    "test means halved": (lambda m: changed(m, test_latent_mean=lambda v: 0.5 * v), ("constant ratio",)),
    "sd for variance": (lambda m: changed(m, test_latent_cov=diagonal(np.sqrt)), ("sd for variance",)),
    "sd in probabilities too": (deviations_to_the_end, ("sd for variance", "sd in the integral")),
    "y the other way": (flipped, ("labels flipped",)),
    "classes permuted": (permuted, ("classes permuted",)),
    "columns permuted": (
        lambda m: changed(m, probabilities=lambda p: p[:, ::-1]), ("classes permuted", "labels flipped")
    ),
    "f at test points": (
        lambda m: changed(m, test_latent_cov=diagonal(lambda v: v - 0.3)), ("noise left out of variances",)
    ),
    "noise twice at test points": (
        lambda m: changed(m, test_latent_cov=diagonal(lambda v: v + 0.3)), ("noise twice in variances",)
    ),
    "means of f at the data": (without_noise, ("latent without noise",)),
    "plug-in": (plugged, ("plug-in", "softmax of means")),
    "one against rest": (against_rest, ("one against rest",)),
    "transposed factor": (
        lambda m: changed(m, inducing_cov=lambda v: np.swapaxes(c := np.linalg.cholesky(v), -1, -2) @ c),
        ("transposed factor",),
    ),
    "precision": (lambda m: changed(m, inducing_cov=np.linalg.inv), ("precision for covariance",)),
    "factor": (lambda m: changed(m, inducing_cov=np.linalg.cholesky), ("Cholesky factor",)),
    "other axis": (
        lambda m: changed(m, latent_mean=lambda v: v.T.reshape(v.shape)) if problem(m).n_latents > 1 else None,
        ("axes",),
    ),
    "float32": (
        lambda m: everywhere(m, lambda v: v.astype(np.float32).astype(float), MOMENTS[:4]), ("float32",)
    ),
    "noise twice": (lambda m: other_question(m, noise=0.6), ("noise twice",)),
    "noise left out": (lambda m: other_question(m, noise=0.0), ("noise left out",)),
    "noise on K_ZZ": (
        lambda m: other_question(m, jitter=0.301) if problem(m).Z is not None else None, ("noise on K_ZZ",)
    ),
    "jitter left out": (lambda m: other_question(m, jitter=0.0), ("jitter left out",)),
    "jitter as noise": (lambda m: other_question(m, jitter=0.0, noise=0.301), ("jitter on the wrong matrix",)),
    "exp(-r^2/l^2)": (
        lambda m: other_question(m, lengthscales=problem(m).lengthscales * 0.5**0.5), ("lengthscale factor 2",)
    ),
    "l^2": (lambda m: other_question(m, lengthscales=problem(m).lengthscales ** 2), ("lengthscale squared",)),
    "sqrt l": (lambda m: other_question(m, lengthscales=problem(m).lengthscales ** 0.5), ("lengthscale squared",)),
    "prior sd": (lambda m: other_question(m, variance=problem(m).variance ** 2), ("prior variance squared",)),
    "Matern 5/2": (lambda m: other_question(m, kernel="matern", smoothness=2.5), ("another kernel",)),
    "another link": (other_link, ("another link",)),
    "no labelling errors": (
        lambda m: other_question(m, epsilon=0.0) if problem(m).epsilon and m != "vi-robust" else None,
        ("epsilon left out",),
    ),
}  # fmt: skip


@pytest.fixture
def one_answer_each(monkeypatch):
    """Changed problems are solved once for all seeds of a method."""
    monkeypatch.setattr(search, "solve", answer)
    yield
    _answers.clear()


@pytest.mark.slow
def test_the_right_suspect_is_named_first_in_nine_of_ten_programs(one_answer_each, tmp_path):
    right, missed, by_seed = 0, [], Counter()
    asked = 0
    for method in METHODS:
        fair = answer("reference", method, problem(method))
        for seed, (plant, names) in SEEDS.items():
            try:
                mine = plant(method)
            except (ValueError, np.linalg.LinAlgError):
                continue  # the method refuses the changed problem: no program could do so
            if mine is None:
                continue
            asked += 1
            actual = suspects(mine, fair, seconds=300.0).ranked
            if actual and actual[0].name in names:
                right += 1
            else:
                missed.append((method, seed, [(s.name, s.explains) for s in actual[:3]]))
                by_seed[seed] += 1
    (tmp_path / "missed.txt").write_text("\n".join(map(str, missed)))
    # no kind of mistake is told by some methods only: of the sixteen three at most may call it something else
    assert not [line for line in by_seed.items() if line[1] > 3], missed
    assert asked > 350
    assert right >= 0.9 * asked


CONTROLS = {
    "2 % of noise in every array": lambda m: everywhere(
        m, lambda v: v * (1.0 + 0.02 * np.random.default_rng(5).standard_normal(v.shape))
    ),
    "log Z + 0.37": lambda m: changed(m, log_evidence=lambda z: z + 0.37),
    "lengthscales 30 % up": lambda m: other_question(m, lengthscales=1.3 * problem(m).lengthscales),
    "prior variance 20 % up": lambda m: other_question(m, variance=1.2 * problem(m).variance),
}


@pytest.mark.slow
def test_no_suspect_is_named_where_the_mistake_is_none_of_them(one_answer_each):
    named = []
    for method in METHODS:
        fair = answer("reference", method, problem(method))
        for control, plant in CONTROLS.items():
            actual = suspects(plant(method), fair, seconds=300.0).ranked
            named += [(method, control, s.name, s.explains) for s in actual]
    # 64 programs, each with more than a hundred suspects
    assert len(named) <= 1, named


# -- programs of a page ----------------------------------------------------------------------------------------------


def newton(posed, *, factor=2.0, root=False, noise=1, transposed=False):
    """Laplace's approximation for the softmax by dense algebra, with the mistakes that one makes in it."""
    n, C = posed.n, posed.n_classes

    def kernel(A, B, k):
        r = (A[:, None] - B[None]) / posed.lengthscales[k]
        amplitude = np.sqrt(posed.variance[k]) if root else posed.variance[k]
        return amplitude * np.exp(-(r**2).sum(-1) / factor)

    K = block_diag(*(kernel(X, X, k) + (noise * posed.noise[k] + posed.jitter[k]) * np.eye(n) for k in range(C)))
    onehot, f = np.eye(C)[posed.y], np.zeros(n * C)
    for _ in range(60):
        e = np.exp(f.reshape(C, n).T)
        p = e / e.sum(axis=1, keepdims=True)
        W = np.zeros((n * C, n * C))
        for i in range(n):
            at = i + n * np.arange(C)
            W[np.ix_(at, at)] = np.diag(p[i]) - np.outer(p[i], p[i])
        B = np.eye(n * C) + K @ W
        f = np.linalg.solve(B, K @ (W @ f + (onehot - p).T.ravel()))
    cov = np.linalg.solve(B, K).reshape(C, n, C, n)
    log_z = np.log(p[np.arange(n), posed.y]).sum() - 0.5 * f @ np.linalg.solve(K, f) - 0.5 * np.linalg.slogdet(B)[1]
    mean = f.reshape(n, C) if transposed else f.reshape(C, n).T
    return Solution(posed, "mine", "laplace", log_evidence=log_z, latent_mean=mean,
                    latent_cov=np.einsum("cidi->icd", cov))  # fmt: skip


@pytest.mark.parametrize(
    ("mistake", "name", "words"),
    [
        ({"factor": 1.0}, "lengthscale factor 2", r"exp\(-r\^2/l\^2\)"),
        ({"root": True}, "prior variance root", "root of the prior variance"),
        ({"noise": 2}, "noise twice", "noise is counted twice"),
        ({"noise": 0}, "noise left out", "noise is not counted"),
        ({"transposed": True}, "axes", "latent_mean of left is (read|filled) along the other axis"),
    ],
)
def test_a_program_of_a_page_is_told_its_mistake(mistake, name, words):
    posed = problem("laplace").replace(X_test=None)
    fair = solve("reference", "laplace", posed)
    assert suspects(newton(posed), fair).ranked == ()
    actual = suspects(newton(posed, **mistake), fair).ranked
    assert actual[0].name == name
    assert pytest.importorskip("re").search(words, actual[0].text)
