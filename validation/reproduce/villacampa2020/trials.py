"""villacampa2020, sections 2.2, 3.1, 5.6 and appendix C: statements that small problems decide, each by a trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_ndtr

from validation import datasets
from validation.datasets.splits import standardise
from validation.door.problem import Problem
from validation.door.solve import solve
from validation.implementations import power_runs
from validation.reproduce.decisions import Decided, above, below, surely
from validation.reproduce.experiment import Outcome, Say, experiment
from validation.reproduce.operations import counted
from validation.reproduce.protocols import scores
from validation.reproduce.trials import Trial, TrialOptions, run
from validation.reproduce.villacampa2020 import setting, uci

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
_SPLITS = 6
_WRONG = 0.1  # share of wrong labels
_NODES = np.linspace(-8.0, 8.0, 161)  # the trapezoidal rule, exact to rounding for what is smooth on the scale of one
_WEIGHTS = np.exp(-0.5 * _NODES**2) * (_NODES[1] - _NODES[0]) / np.sqrt(2.0 * np.pi)


def _wine(split: int, wrong: float = 0.0) -> tuple[Problem, Labels]:
    """Ninety rows of wine with nine inducing points, some labels made wrong, and the labels of the other rows."""
    data = datasets.load("wine")
    rng = np.random.default_rng(split)
    rows = rng.permutation(data.n)
    X, X_test = standardise(data.X[rows[:90]], data.X[rows[90:]])
    y = data.y[rows[:90]].copy()
    moved = rng.permutation(90)[: round(90 * wrong)]
    y[moved] = (y[moved] + rng.integers(1, 3, moved.size)) % 3
    problem = Problem(f"wine-{split}", X, y, 3, "threshold", 1.0, np.full(data.d, np.sqrt(2.0 * data.d)), noise=0.01,
                      jitter=1e-4, Z=X[:9], X_test=X_test, epsilon=0.001)  # fmt: skip
    return problem, data.y[rows[90:]]


# -- section 2.2 ---------------------------------------------------------------------------------------------------


def _small(seed: int, n: int, m: int, epsilon: float) -> tuple[Problem, list[Array], list[Array]]:
    """Labels of three classes drawn from the model, all there; of each the full prior of (f, fbar) with its noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1))
    Z = np.linspace(-1.0, 1.0, m)[:, None] if m > 1 else np.zeros((1, 1))
    problem = Problem("small", X, np.arange(n) % 3, 3, "threshold", [1.0, 1.5, 0.7], [[0.8], [1.2], [1.0]],
                      noise=[0.1, 0.2, 0.3], jitter=1e-4, Z=Z, epsilon=epsilon)  # fmt: skip
    points = np.concatenate([X, Z])
    joint, inner = [], []
    for k in range(3):
        K = problem.variance[k] * np.exp(-0.5 * ((points - points.T) / problem.lengthscales[k, 0]) ** 2)
        K += np.diag(np.concatenate([np.full(n, problem.noise[k]), np.full(m, problem.jitter[k])]))
        joint.append(K)
        inner.append(K[n:, n:])
    y = np.zeros(n, dtype=np.int64)
    while len(set(y)) < 3:
        y = np.argmax([(np.linalg.cholesky(K) @ rng.standard_normal(n + m))[:n] for K in joint], axis=0)
    return problem.replace(y=y), joint, inner


def _log_likelihood(y: int, mean: Array, var: Array, epsilon: float) -> Array:
    """log E[p(y | f)] of independent f_k ~ N(mean_k, var_k), (..., 3): the label's is largest, or a random label."""
    f = mean[..., y, None] + np.sqrt(var[y]) * _NODES
    others = [k for k in range(3) if k != y]
    logs = sum(log_ndtr((f - mean[..., k, None]) / np.sqrt(var[k])) for k in others)
    largest = (_WEIGHTS * np.exp(logs)).sum(axis=-1)
    return np.asarray(np.log((1.0 - epsilon) * largest + epsilon / 3.0))


def _g(precision: Array, shift: Array) -> float:
    """Log normaliser of exp(shift·x - x'precision x / 2)."""
    root = np.linalg.cholesky(precision)
    whitened = np.linalg.solve(root, shift)
    return float(0.5 * whitened @ whitened - np.log(np.diag(root)).sum() + 0.5 * shift.size * np.log(2.0 * np.pi))


def _joint_view(seed: int) -> Iterable[Decided]:
    n, m, epsilon = 5, 2, 0.05
    problem, joint, inner = _small(seed, n, m, epsilon)
    answer = solve("fast", "pep", problem, alpha=1.0, gradients=False, tolerance=1e-13)
    precision, shift = answer.local["site_precision"], answer.local["site_shift"]
    prior: list[Array] = [
        np.asarray(np.linalg.inv(K)) for K in joint
    ]  # of f and fbar together: the full prior, nothing of FITC
    weights = [np.linalg.solve(K, J[n:, :n]) for K, J in zip(inner, joint, strict=True)]  # E[f|fbar] = weights'fbar

    def natural(k: int, without: int | None = None) -> tuple[Array, Array]:
        """Of class k in (f, fbar): the prior times all sites but one, functions of fbar alone."""
        P, h = prior[k].copy(), np.zeros(n + m)
        for i in (i for i in range(n) if i != without):
            a = weights[k][:, i]
            P[n:, n:] += precision[i, k] * np.outer(a, a)
            h[n:] += shift[i, k] * a
        return P, h

    whole = sum(_g(*natural(k)) for k in range(3))
    log_z = whole - sum(_g(P, np.zeros(n + m)) for P in prior)
    worst = 0.0
    for i, y in enumerate(problem.y):
        distributions = [natural(k, i) for k in range(3)]
        cov = [np.linalg.inv(P) for P, _ in distributions]
        mean = [C @ h for C, (_, h) in zip(cov, distributions, strict=True)]
        mu, var = np.array([v[i] for v in mean]), np.array([C[i, i] for C in cov])
        log_z += (
            float(_log_likelihood(y, mu, var, epsilon))
            + sum(_g(*distribution) for distribution in distributions)
            - whole
        )
        for k in range(3):
            step = 1e-3 * np.sqrt(var[k]) * np.eye(3)[k]
            low, at, high = (float(_log_likelihood(y, mu + s * step, var, epsilon)) for s in (-1, 0, 1))
            first, second = (high - low) / (2.0 * step[k]), (high - 2.0 * at + low) / step[k] ** 2
            across = cov[k][n:, i]  # of fbar with f_i, under the cavity
            tilted = mean[k][n:] + across * first
            spread = cov[k][n:, n:] + np.outer(across, across) * second
            assert answer.inducing_mean is not None
            assert answer.inducing_cov is not None
            worst = max(worst, float(np.abs(tilted - answer.inducing_mean[k]).max()),
                        float(np.abs(spread - answer.inducing_cov[k]).max()))  # fmt: skip
    text = "moments of fbar under the tilted distributions of (f, fbar) with the full prior, less those of q"
    yield below("ep-joint-view", text, worst, 1e-5)  # of the central differences
    assert answer.log_evidence is not None
    text = "log Z of EP in (f, fbar) with the full prior, less that with FITC's factors"
    yield below("ep-joint-view", text, abs(log_z - answer.log_evidence), 1e-9)


# -- section 3.1 ---------------------------------------------------------------------------------------------------


def _distances(seed: int) -> Iterable[tuple[float, float]]:
    """D_alpha from PEP's q and the least of any q, at two alphas; one inducing value a class, tabled on a cube."""
    n, epsilon, size = 8, 0.05, 61
    problem, joint, inner = _small(seed, n, 1, epsilon)
    scale = np.sqrt([K[0, 0] for K in inner])
    axis = np.linspace(-5.0, 5.0, size)
    cube = np.stack(np.meshgrid(*(s * axis for s in scale), indexing="ij"), axis=-1).reshape(-1, 3)
    volume = float(np.prod(scale) * (axis[1] - axis[0]) ** 3)
    log_p = -0.5 * ((cube / scale) ** 2).sum(axis=1)
    for i, y in enumerate(problem.y):
        weight = np.array([joint[k][n, i] / inner[k][0, 0] for k in range(3)])
        rest = np.array([joint[k][i, i] - weight[k] * joint[k][n, i] for k in range(3)])
        log_p += _log_likelihood(int(y), cube * weight, rest, epsilon)
    log_p -= log_p.max()
    log_p -= np.log(np.exp(log_p).sum() * volume)

    def distance(w: Array, alpha: float) -> float:
        mean, deviation = w[:3], np.exp(w[3:])
        log_q = (
            -0.5 * (((cube - mean) / deviation) ** 2).sum(axis=1) - np.log(deviation).sum() - 1.5 * np.log(2 * np.pi)
        )
        if alpha == 1.0:
            return float((np.exp(log_p) * (log_p - log_q)).sum() * volume)
        overlap = float(np.exp(alpha * log_p + (1.0 - alpha) * log_q).sum() * volume)
        return (1.0 - overlap) / (alpha * (1.0 - alpha))

    for alpha in (0.5, 1.0):
        answer = solve("fast", "pep", problem, alpha=alpha, gradients=False, tolerance=1e-11)
        assert answer.inducing_mean is not None
        assert answer.inducing_cov is not None
        start = np.concatenate([answer.inducing_mean[:, 0], 0.5 * np.log(answer.inducing_cov[:, 0, 0])])
        best = minimize(distance, start, (alpha,), "L-BFGS-B", options={"ftol": 1e-13})
        yield distance(start, alpha), float(best.fun)


def _global(seed: int) -> Iterable[Decided]:
    pairs = np.array([list(_distances(draw)) for draw in range(seed, seed + 5)])
    for k, alpha in enumerate((0.5, 1.0)):
        ours, best = pairs[:, k].mean(axis=0)
        text = f"alpha = {alpha:g}, five draws: mean D_alpha of the posterior from PEP's q over the least, {best:.3g}"
        yield below("global-accurate", text, ours / best, 1.1)


def _together(seed: int) -> Iterable[Decided]:
    for split in (seed, seed + 1):
        problem, _ = _wine(split)
        problem = problem.replace(X_test=None)
        values, products = [], []
        for scheme, optimizer, steps in (("inner", "adaptive", 800), ("outer", "lbfgs", 200)):
            with counted() as counter:
                answer = solve(
                    "fast", "pep", problem, alpha=0.5, learn=("variance", "scale", "noise"), scheme=scheme,
                    optimizer=optimizer, n_steps=steps, tolerance=1e-6, gradients=False,
                )  # fmt: skip
                products.append(counter.linear)
            assert answer.log_evidence is not None
            values.append(answer.log_evidence)
        gap = abs(values[0] - values[1]) / abs(values[1])
        text = f"wine, split {split}: log Z with a sweep a step, less that with sweeps to convergence, relative"
        yield below("joint-updates", text, gap, 1e-3)
        text = f"wine, split {split}: multiplications of products and factors of the first, and of the second"
        yield below("joint-updates", text, products[0], products[1])


# -- section 5.6 and appendix C ------------------------------------------------------------------------------------


def _new_factor(seed: int) -> Iterable[Decided]:
    before, after, wrong_before, wrong_after = [], [], [], []
    for draw in range(seed, seed + 8):
        data = uci.load("waveform", draw)
        rows = np.random.default_rng(draw).permutation(data.n)
        X, X_test = standardise(data.X[rows[:80]], data.X[rows[300:]])
        y, y_test = data.y[rows[:80]], data.y[rows[300:]]
        prior = setting.start(X[:40], 15, data.n_classes, draw)
        first = setting.train("pep", 0.5, X[:40], y[:40], prior, setting.Training(n_steps=50, rate=0.001),
                              setting.Watch(evaluate=False))  # fmt: skip
        new = setting.grown(first, X, y)
        before.append(float(new.log_evidence()))
        wrong_before.append(scores(first._replace(run=new).probabilities(X_test), y_test)[0])
        power_runs.settle(new, max_iterations=200, tolerance=1e-4)
        after.append(float(new.log_evidence()))
        wrong_after.append(scores(first._replace(run=new).probabilities(X_test), y_test)[0])
    text = "forty rows and forty more, eight draws of waveform: log Z with flat new factors less that after updates"
    yield surely("pep-new-factor", text, before, after)
    yield surely(
        "pep-new-factor", "test error after the updates less that with flat factors", wrong_after, wrong_before
    )


def _robust(seed: int) -> Iterable[Decided]:
    """Hyper-parameters are those that PEP learns without label errors, which Laplace takes over, as in appendix C."""
    kept: dict[str, list[float]] = {"softmax": [], "threshold": [], "errors": []}
    for split in range(seed, seed + _SPLITS):
        problem, y = _wine(split, _WRONG)
        learn = {"learn": ("variance", "scale", "noise"), "optimizer": "adaptive", "scheme": "inner", "rate": 0.01}
        own = {"alpha": 1.0, "n_steps": 200, "gradients": False, **learn}
        plain = solve("fast", "pep", problem.replace(epsilon=0.0), **own)
        robust = solve("fast", "pep", problem.replace(epsilon=_WRONG), **own)
        at = plain.problem.replace(likelihood="softmax", epsilon=0.0, noise=0.0)
        soft = solve("fast", "laplace-sparse", at)
        for name, answer in (("softmax", soft), ("threshold", plain), ("errors", robust)):
            assert answer.probabilities is not None  # test rows were given
            kept[name].append(scores(np.asarray(answer.probabilities), y)[1])
    text = f"{_SPLITS} splits of wine, {_WRONG:.0%} wrong labels, nll:"
    yield surely("softmax-robust", f"{text} softmax less threshold at epsilon = 0", kept["softmax"], kept["threshold"])
    yield surely("softmax-robust", f"{text} epsilon = {_WRONG:g} less 0", kept["errors"], kept["threshold"])
    yield surely("softmax-robust", f"{text} softmax less epsilon = {_WRONG:g}", kept["softmax"], kept["errors"])


def _overfits(seed: int) -> Iterable[Decided]:
    """The same steps twice, scored on test and on training rows."""
    data = uci.load("satellite", seed)
    plan = uci.uci_protocol(data, 1.0, 0.0, 0, seed=seed)
    prior = setting.start(plan.X, 20, data.n_classes, seed)
    for alpha in (0.5, 0.8, 1.0):
        rises = {}
        for name, rows in (("test", (plan.X_test, plan.y_test)), ("training", (plan.X, plan.y))):
            watch = setting.Watch(rows, growth=1.1, evaluate=False)
            training = setting.Training(n_steps=150, rate=0.001)
            result = setting.train("rpapep", alpha, plan.X, plan.y, prior, training, watch)
            if result.course is None:
                break
            rises[name] = float(result.course.nll[-1] - result.course.nll.min())
        if len(rises) == 2:
            text = f"satellite, m = 20, RPAPEP at {alpha:g}: rise of the nll of {{}} rows after its least"
            yield above("fig3-rpapep-overfits", text.format("test"), rises["test"], 0.002)
            yield below("fig3-rpapep-overfits", text.format("training"), rises["training"], 0.002)


TRIALS: Mapping[str, Trial] = MappingProxyType({
    "ep-joint-view": _joint_view, "global-accurate": _global, "joint-updates": _together,
    "pep-new-factor": _new_factor, "softmax-robust": _robust,
    "fig3-rpapep-overfits": _overfits,
})  # fmt: skip


@experiment(
    "villacampa2020",
    "trials",
    "statements of sections 2.2, 3.1, 5.6 and appendix C, each by a trial",
    "EP in f and fbar together is EP with FITC's factors; PEP's q is near the best; factors and priors move together; "
    "a new factor starts PEP badly; the softmax is more robust than Gaussian noise",
)
def trials(asked: TrialOptions, say: Say) -> Outcome:
    """On small problems, wine and waveform."""
    notes = (
        "wine: ninety training rows and nine inducing points; waveform: fifteen",
        "the paper names no data, share of wrong labels or epsilon for these statements",
    )
    return run(TRIALS, asked, say, notes)
