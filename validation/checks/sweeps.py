"""Sweeps of chains and rounds of particles, one at a time: where they start, what they keep, what they write and when.

Each is held against the sentence that documents it, with numbers of the judge's own in place of random ones where a
rule can be followed by hand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import ttest_1samp

from validation.by_name import sampler_by_name
from validation.checks import hyper_model as own
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Tested, as_documented, check, flaws
from validation.problem import Problem

Array = NDArray[np.float64]
State = dict[str, Array]
PAPER = "riihimaki2013"


# -- files and memory ----------------------------------------------------------------------------------------------


@check(
    "identity/gibbs-logit/files_of_a_run",
    paper="wenzel2019",
    question="Is a file written as often as was asked, at the end, and where an interruption stopped?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains import chain

    def step(state: State, _rngs: Mapping[str, Any]) -> State:
        return {"x": state["x"] + 1.0}

    def record(state: State) -> Any:
        return chain.Record({"x": state["x"]}, {})

    rows: list[tuple[str, object, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for every, stop, wanted in ((3, None, [3, 6, 9, 10]), (5, None, [5, 10]), (4, 7, [4, 7]), (1, 2, [1, 2])):
            written: list[int] = []

            def write(_path: Path, _mark: str, arrays: Mapping[str, Any], written: list[int] = written) -> None:
                written.append(int(arrays["sweep"]))

            def interrupt(progress: Any, stop: int | None = stop) -> None:
                if progress.sweep == stop:
                    raise KeyboardInterrupt

            storage = chain.Storage(Path(folder, "run.npz"), every)
            with mock.patch.object(chain, "write", write):
                try:
                    chain.run(
                        {"x": np.zeros((2, 1))}, step, record, {}, chain.Plan(n_draws=8, n_warmup=2), storage=storage,
                        callback=interrupt,
                    )  # fmt: skip
                except KeyboardInterrupt:
                    written.append(-1)
            rows.append((f"every {every}, stopped at {stop}", written, wanted + [-1] * (stop is not None)))
        # a clock that ticks when it is read: once when a run begins, once at the end of every sweep
        seen: list[float] = []

        def note(progress: Any, seen: list[float] = seen) -> None:
            seen.append(progress.seconds)
            if len(seen) == 4:
                raise KeyboardInterrupt

        def timed(path: Path) -> Any:
            clock: Any = SimpleNamespace(perf_counter=iter(np.arange(50.0, 99.0).tolist()).__next__)
            with mock.patch.object(chain, "time", clock):
                return chain.run(
                    {"x": np.zeros((2, 1))}, step, record, {}, chain.Plan(8, 0), storage=chain.Storage(path),
                    callback=note,
                )  # fmt: skip

        path = Path(folder, "timed.npz")
        try:
            timed(path)
        except KeyboardInterrupt:
            seen.append(-1.0)
        whole = timed(path)
        wanted_seconds = [1.0, 2.0, 3.0, 4.0, -1.0, 5.0, 6.0, 7.0, 8.0]
        rows.append(("seconds after each sweep, of an interrupted run too", seen, wanted_seconds))
        rows.append(("seconds in all", whole.seconds, 8.0))
    yield as_documented(rows, "gibbs", "sweeps whose end was written")


@check(
    "identity/gibbs-logit/budget_of_draws",
    paper="wenzel2019",
    question="Does a budget hold an even number of draws, every second of which goes where it is spent?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains.store import ThinnedStore

    rows: list[tuple[str, object, object]] = []
    for affordable in (8, 9, 13):
        capacity = affordable - affordable % 2
        store = ThinnedStore({"x": np.zeros(2)}, 60, 16 * affordable)
        held: list[int] = []
        every = 1
        for number in range(1, 61):
            store.offer(number, {"x": np.full(2, float(number))})
            if number % every == 0:
                if len(held) == capacity:
                    held, every = held[1::2], 2 * every
                if number % every == 0:
                    held.append(number)
            came = store.kept()["x"][1].astype(int).tolist()
            if (came, store.every) != (held, every):
                break
        rows.append((f"room for {affordable}: draws {number}", (came, store.every), (held, every)))
    store = ThinnedStore({"x": np.zeros((2, 0))}, 30, 100)
    for number in range(1, 31):
        store.offer(number, {"x": np.zeros((2, 0))})
    rows.append(("draws without an entry", store.kept()["x"].shape, (2, 30, 0)))
    yield as_documented(rows, "gibbs", "budgets")


# -- where chains start --------------------------------------------------------------------------------------------

_X = np.array([[-1.0], [-0.4], [0.1], [0.5], [1.2]])
_LAWS: Mapping[str, own.Distribution] = {
    "variance": ("half-student-t", 4.0, 2.0),
    "lengthscales": ("log-normal", 1.0, 1.0),
    "noise": ("log-normal", 1.0, 0.3),
}


def hyper_model(likelihood: str, n_classes: int, y: NDArray[np.int64], **more: Any) -> Any:
    """What chains over kernel parameters of these labels are made of."""
    from gibbs.models.hyper import make_model

    options: dict[str, Any] = {"hyperprior": dict(_LAWS), "learn": own.FIELDS, "shared": True, **more}
    epsilon, n_warmup = options.pop("epsilon", 0.0), options.pop("n_warmup", 0)
    made, _ = sampler_by_name(make_model, n_warmup=n_warmup)(
        likelihood, _X, y, n_classes, 1.5, np.array([1.4]), 0.05, 1e-4, None, "full", _X[:1], epsilon, **options
    )
    return made


@check(
    "identity/gibbs-probit/starts_near_the_apex",
    paper=PAPER,
    question="Does no chain of constraints start farther out under its prior than its values are many?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    y = np.array([0, 2, 1, 2, 0])
    for likelihood in ("multinomial-probit", "threshold"):
        for shared in (True, False):
            model = hyper_model(likelihood, 3, y, shared=shared)
            state = model.start(np.random.default_rng(3), 12, 1)
            unit = own.unit_noise(likelihood) * np.eye(len(_X))
            given = own.Given(_X, _X[:1], None, 1e-4)
            depth = np.zeros(12)
            for k in range(12):
                for latent in range(3):
                    v = state["latent"][k, latent]
                    cov = own.blocks(state["hyper"][k, 0 if shared else latent], given).data + unit
                    depth[k] += 0.5 * float(v @ np.linalg.solve(cov, v))
            # half a value's square on average: what a draw of the prior has
            most = 0.5 * 3 * len(_X)
            wrong = int(np.any(depth > most * (1.0 + 1e-9))) + int(not np.any(np.abs(depth / most - 1.0) < 1e-9))
            wrong += int(np.any(state["latent"].argmax(axis=1) != y))
            why = f"{likelihood}, {'one vector' if shared else 'a vector for each class'}: {wrong} of three"
            yield flaws(wrong, f"{why} (at most as far as a draw of the prior, some drawn in, all inside)", "gibbs",
                        "starts")  # fmt: skip


@check(
    "identity/mh-softmax/rough_starts",
    paper=PAPER,
    question="Is a start that is rough drawn in as far as values are many, and a smooth one left where it is?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import softmax, threshold
    from gibbs.moves import softmax as moves

    cov, y = _classes()
    target, shift = moves.make_target(cov, y), moves.shift_distribution(cov)
    p = len(target.factor)
    rng = np.random.default_rng(31)
    start = rng.standard_normal((5, 3, 3)) * np.array([0.05, 0.1, 8.0, 20.0, 300.0])[:, None, None]
    for latent in start:
        for i, label in enumerate(y):
            top = int(latent[:, i].argmax())
            latent[[label, top], i] = latent[[top, label], i]
    given: Any = SimpleNamespace(chol_cov=np.linalg.cholesky(cov))
    inverse = np.linalg.inv(cov)
    with mock.patch.object(softmax, "overdispersed", return_value=start):
        white = softmax._Softmax(given, target, shift, (), 0, 1).start(np.random.default_rng(1), 5)["white"]
    with mock.patch.object(threshold, "overdispersed", return_value=start.copy()):
        made = threshold._Threshold(given, np.asarray(inverse, dtype=np.float64), y, 0.1, ())
        latent = made.start(np.random.default_rng(1), 5)["auxiliary"]
    for name, came, plain, depth, size in (
        ("softmax", white, moves.to_white(start, target), lambda at: 0.5 * np.square(at).sum(axis=1), p),
        ("threshold", latent, start, lambda at: 0.5 * np.einsum("rli,lij,rlj->r", at, inverse, at), 9),
    ):  # fmt: skip
        scale = np.sqrt(np.minimum(1.0, 0.5 * size / depth(plain)))
        wanted = plain * scale.reshape(-1, *(1,) * (plain.ndim - 1))
        yield Compared(own.difference(came, wanted), 1e-10, f"{name}: five starts", "gibbs", "definition")
        rows = [(f"{name}: left where they are, drawn in", bool(scale.max() == 1.0 and scale.min() < 0.1), True)]
        yield as_documented(rows, "gibbs", "starts")


# -- islands that others work --------------------------------------------------------------------------------------


@check(
    "identity/mh-softmax/rounds_of_particles",
    paper=PAPER,
    question="Are particles multiplied by what their error asks for, twice to eight times, until it is met?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.options import Particles
    from gibbs.evidence import result

    rng = np.random.default_rng(37)
    shape = rng.standard_normal(8)
    shape = (shape - shape.mean()) / shape.std(ddof=1)
    rows: list[tuple[str, object, object]] = []
    for spreads, seen, most, target in (
        ((0.2, 0.1, 0.04), (0.5, 0.5, 0.5), 5, 0.02), ((0.2, 0.1, 0.04), (0.5, 0.5, 0.5), 2, 0.02),
        ((0.04,), (0.5,), 5, 0.02), ((0.04, 0.04), (0.29, 0.3), 3, 0.02), ((3.0, 2.0, 1.0), (0.5,) * 3, 3, 0.02),
        ((0.51, 0.49), (0.5, 0.5), 3, 0.5),
    ):  # fmt: skip
        options = Particles(n_particles=10, n_islands=8, max_rounds=most, target_error=target)
        sizes: list[int] = []

        def work(size: int, sizes: list[int] = sizes, spreads: Any = spreads, seen: Any = seen) -> Any:
            sizes.append(size)
            return -7.0 + spreads[len(sizes) - 1] * shape, seen[len(sizes) - 1]

        answer = result._of_annealed(work, options, 5, "number", least=0.3)
        wanted, size, trusted = [], 10, False
        for spread, number in list(zip(spreads, seen, strict=True))[:most]:
            wanted.append(size)
            relative = np.exp(spread * shape)
            error = float(relative.std(ddof=1) / relative.mean() / np.sqrt(8.0))
            trusted = error <= target and spread <= 0.5 and number >= 0.3
            if trusted:
                break
            size *= int(min(max(np.ceil(1.3 * (error / target) ** 2), 2), 8))
        told = (sizes, answer.trusted, answer.detail["rounds"], answer.detail["n_particles"], answer.detail["number"],
                answer.detail["n_powers"], round(answer.detail["island_spread"], 12))  # fmt: skip
        last = len(wanted) - 1
        rows.append((f"spreads {spreads}", told, (wanted, trusted, len(wanted), 8.0 * wanted[-1], seen[last], 4.0,
                                                 spreads[last])))  # fmt: skip
        # the jackknife: left out one by one, as if the number of islands were the size of a sample
        p = np.exp(spreads[last] * shape)
        left = np.array([np.log(np.delete(p, k).mean()) for k in range(8)])
        gap = max(abs(answer.value + 7.0 - np.log(p.mean())), abs(answer.bias - 7.0 * (left.mean() - np.log(p.mean()))),
                  abs(answer.mean_log + 7.0), abs(answer.standard_error - p.std(ddof=1) / p.mean() / np.sqrt(8.0)))  # fmt: skip
        yield Compared(float(gap), 1e-12, f"spreads {spreads}: average, bias, error", "gibbs", "definition", "absolute")
    yield as_documented(rows, "gibbs", "rounds")


@check(
    "identity/mh-softmax/islands_of_others",
    paper=PAPER,
    question="Are islands that workers return taken in their order, with the least acceptance and the mean fraction?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.options import Particles
    from gibbs.evidence import annealed, softmax_annealed

    told = np.array([[-3.0, 0.9], [-3.02, 0.4], [-2.99, 0.7], [-3.01, 0.8], [-3.0, 0.6]])
    options = Particles(n_particles=4, n_islands=5, max_rounds=1, target_error=0.1)
    rows: list[tuple[str, object, object]] = []
    for module, name, number in (
        (softmax_annealed, "acceptance", 0.4), (annealed, "ess_fraction", float(told[:, 1].mean()))
    ):  # fmt: skip
        asked: list[Any] = []

        def workers(function: Any, parts: Any, asked: list[Any] = asked) -> Iterable[Array]:
            asked.extend((function, part) for part in parts)
            return iter(told)

        common: Any = mock.Mock(ladder=[0.0, 0.5, 1.0])
        result = module.estimate(np.random.default_rng(1), common, workers, options)
        log_z, seen = module._islands(np.random.default_rng(1), common, workers, (5, 4))
        rows += [
            (f"{name}: number", (round(result.detail[name], 12), round(seen, 12)), (round(number, 12),) * 2),
            (f"{name}: islands", log_z.tolist(), told[:, 0].tolist()),
            (f"{name}: who works", {function for function, _ in asked}, {module.island}),
            (f"{name}: seeds that differ", len({part.seed for _, part in asked}), 5),
            (f"{name}: particles", {part.n_particles for _, part in asked}, {4}),
            (f"{name}: one common part", all(part.common is common for _, part in asked), True),
            (f"{name}: powers", result.detail["n_powers"], 2.0),
            (f"{name}: trusted", result.trusted, True),
        ]
        gap = abs(result.value - float(np.log(np.exp(told[:, 0]).mean())))
        yield Compared(gap, 1e-12, f"{name}: log of the average", "gibbs", "definition", "nat")
    yield as_documented(rows, "gibbs", "answers")


# -- paths ---------------------------------------------------------------------------------------------------------


def _classes() -> tuple[Array, NDArray[np.int64]]:
    """Covariances of three classes at three data, no two alike, and labels."""
    X = np.array([[-0.8], [0.1], [0.9]])
    square = np.square(X - X.T)
    parts = [v * np.exp(-0.5 * square / length**2) + noise * np.eye(3)
             for v, length, noise in ((2.0, 0.9, 0.3), (1.1, 0.5, 0.4), (3.0, 1.4, 0.2))]  # fmt: skip
    return np.stack(parts), np.array([2, 0, 1])


@check(
    "identity/mh-softmax/slopes_of_paths",
    paper=PAPER,
    question="Are the slopes that paths follow those of the densities that decide about them?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import softmax_annealed
    from gibbs.models import pairwise
    from gibbs.moves import softmax as moves

    rng = np.random.default_rng(21)
    cov, y = _classes()
    target = moves.make_target(cov, y)
    p = len(target.factor)
    root = np.tril(0.3 * rng.standard_normal((p, p)), -1) + np.diag(rng.uniform(0.5, 1.2, p))
    mean = rng.standard_normal(p)
    reference = moves.make_reference(mean, root, target)
    z = rng.standard_normal((2, p))

    def height(at: Array) -> float:
        """-log [p(y | f) N(ξ; 0, I)] at ξ = mean + root z, of values f whose mean over the classes is zero."""
        xi = mean + root @ at
        f = (target.basis.T @ (target.factor @ xi).reshape(2, 3)).T
        return float(0.5 * xi @ xi - own.log_likelihood("softmax", f.T, y, 0.0))

    value, gradient = moves.energy(z, target, reference)
    worst = own.difference(value, [height(at) for at in z])
    yield Compared(worst, 1e-10, "energy around a Gaussian", "gibbs", "definition")
    worst = own.difference(gradient, [own.derivative(height, at) for at in z])
    yield Compared(worst, 1e-8, "its slope, by differences of fourth order", "gibbs", "differences")

    # a shift of all classes, as large as it may be, is not seen
    f = rng.standard_normal((1, 3, 2))
    wanted = np.exp(f - f.max()) / np.exp(f - f.max()).sum(axis=1, keepdims=True)
    for shift in (0.0, 900.0, -900.0):
        worst = own.difference(moves._softmax(f + shift), wanted)
        yield Compared(worst, 1e-12, f"class probabilities of values raised by {shift:g}", "gibbs", "definition")

    model = softmax_annealed._model(cov, y)
    e = rng.standard_normal((2, 6))

    def score(at: Array) -> float:
        f = np.concatenate([at.reshape(2, 3), np.zeros((1, 3))])
        return own.log_likelihood("softmax", f, y, 0.0)

    value, gradient = model.log_lik(e, with_gradient=True)
    worst = max(own.difference(value, [score(at) for at in e]), own.difference(model.log_lik(e)[0], value))
    yield flaws(model.log_lik(e)[1].size, "its slope where nobody asked for it", "gibbs", "entries")
    yield Compared(worst, 1e-10, "log likelihood of differences to the last class", "gibbs", "definition")
    worst = own.difference(gradient, [own.derivative(score, at) for at in e])
    yield Compared(worst, 1e-8, "its slope, by differences of fourth order", "gibbs", "differences")

    loadings = np.array([[1.1, -0.4], [0.3, 0.9], [-0.6, 1.4]])
    sampler = pairwise._Sampler(loadings, pairwise._peak(loadings), 0.3)
    zeta = rng.standard_normal((2, 2))
    for name, density, slope in (
        ("margins, turned", sampler.log_density, sampler.gradient),
        ("margins", lambda at: pairwise.log_joint(loadings, at), lambda at: pairwise.log_joint_gradient(loadings, at)),
    ):
        wanted = [own.derivative(lambda at, density=density: float(density(at[None])[0]), at) for at in zeta]
        worst = own.difference(slope(zeta), wanted)
        yield Compared(worst, 1e-8, f"{name}: slope of the log density", "gibbs", "differences")


@check(
    "limit/mh-softmax/small_steps",
    paper=PAPER,
    question="Is a path of small steps accepted, to the square of its step, and moved as far as it is long?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.hyperpriors import LogDensity
    from gibbs.evidence import softmax_annealed
    from gibbs.models import pairwise
    from gibbs.moves import softmax as moves
    from gibbs.moves.hyper import hamiltonian_move

    rng = np.random.default_rng(22)
    cov, y = _classes()
    target = moves.make_target(cov, y)
    p, r = len(target.factor), 60
    root = np.tril(0.2 * rng.standard_normal((p, p)), -1) + np.diag(rng.uniform(0.6, 1.0, p))
    mean = 0.5 * rng.standard_normal(p)
    reference = moves.make_reference(mean, root, target)
    xi = rng.standard_normal((r, p))
    model = softmax_annealed._model(cov, y)
    around = softmax_annealed._Around(mean, root, 0.04)
    chains = hyper_model("softmax", 3, np.array([0, 2, 1, 2, 0]))
    white = rng.standard_normal((r, 1, 3, 5))
    chol = np.tile(np.linalg.cholesky(np.exp(-0.5 * np.square(_X - _X.T)) + 0.1 * np.eye(5)), (r, 1, 1, 1))
    loadings = np.array([[1.1, -0.4], [0.3, 0.9], [-0.6, 1.4]])
    sampler = pairwise._Sampler(loadings, pairwise._peak(loadings), 0.04)
    x = rng.standard_normal((r, 3))

    def quartic(at: Array) -> LogDensity:
        return LogDensity(-0.25 * (at**4).sum(axis=-1), -(at**3))

    moved = hamiltonian_move(rng, x, quartic, np.full(r, 0.04), 25)
    paths: tuple[tuple[str, Any, Any, Any], ...] = (
        ("rotations around a Gaussian", xi, *moves.flow_move(rng, xi, target, reference, 0.04, 25)),
        ("particles", xi, *softmax_annealed._path(rng, model, 0.6, around, xi, 25)),
        ("rotations around the prior", white, *chains.rotation_move(rng, white, chol, np.full(r, 0.04))),
        ("margins", xi[:, :2], *sampler.path(rng, xi[:, :2])),
        ("leapfrog", x, moved.position, moved.acceptance),
    )
    for name, before, after, accepted in paths:
        # errors of energy are a few squares of 0.04, refusals a part of them; a first kick twice as long leaves 0.01
        yield Compared(1.0 - float(np.mean(accepted)), 0.003, f"{name}: refused of paths", "gibbs", "limit", "share")
        # a path of length one half to one and a half in unit coordinates changes each by about that, never by less
        # than a fifth on average
        far = float(np.abs(np.asarray(after) - before).mean())
        yield flaws(not 0.15 < far < 2.0, f"{name}: coordinates change by {far:.2f} on average", "gibbs", "paths")


# -- what the likelihood does not see ------------------------------------------------------------------------------


@check(
    "identity/mh-softmax/common_shifts",
    paper=PAPER,
    question="Has the common shift of the classes the mean and covariance of dense algebra, classes alike or not?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models.hyper_models import HyperModel
    from gibbs.moves import softmax as moves

    rng = np.random.default_rng(23)
    every, _ = _classes()
    for name, cov in (("three classes", every), ("two", every[:2]), ("alike", np.stack([every[0]] * 3))):
        L, n = cov.shape[:2]
        f = rng.standard_normal((n + 1, L, n))
        given: Any = mock.Mock()
        # no normal, and one at a time: the mean, and the columns of the root
        given.standard_normal.side_effect = lambda shape, n=n: np.concatenate([np.zeros((1, n)), np.eye(n)]).reshape(
            shape
        )
        inverses = np.linalg.inv(cov)
        joined = np.linalg.inv(inverses.sum(axis=0))
        mean = -np.einsum("nm,lmk,rlk->rn", joined, inverses, f)
        distribution = moves.shift_distribution(cov)
        results = [("move", moves.draw_shift(given, f, distribution) - f)]
        alike = name == "alike"
        model: Any = mock.Mock(n_latents=L, hyper=np.zeros((1 if alike else L, 3)), y=np.zeros(n))
        chol = np.linalg.cholesky(np.tile(cov, (n + 1, 1, 1, 1)))
        results.append(("parameters", HyperModel.draw_shift(model, given, chol, f)[:, None] + np.zeros_like(f)))
        for what, moved in results:
            same = float(np.abs(moved - moved[:, :1]).max())
            root = (moved[1:, 0] - mean[1:]).T
            worst = max(same, own.difference(moved[0, 0], mean[0]), own.difference(root @ root.T, joined))
            yield Compared(worst, 1e-9, f"{name}, {what}: one shift for all classes, mean and covariance", "gibbs",
                           "dense algebra")  # fmt: skip
        weights = joined @ inverses
        worst = max(own.difference(distribution.weights, weights), own.difference(distribution.cov, joined))
        yield Compared(worst, 1e-9, f"{name}: weights of the classes", "gibbs", "dense algebra")


# -- slices of parameters ------------------------------------------------------------------------------------------


@check(
    "identity/gibbs-logit/slices_of_a_sweep",
    paper=PAPER,
    question="Does a sweep slice along each logarithm in turn and once at random, block by block, and count refusals?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import hyper_models
    from gibbs.moves.hyper import Moved

    y = np.array([0, 2, 1, 2, 0])
    rows: list[tuple[str, object, object]] = []
    for learn in (own.FIELDS, ("noise",)):
        model = hyper_model("softmax", 3, y, shared=False, learn=learn)
        r, p = 4, len(learn)
        rng = np.random.default_rng(24)
        hyper = np.tile(model.hyper, (r, 1, 1))
        directions: list[Array] = []

        def slice_move(rng: Any, position: Array, direction: Array, function: Any, width: float,
                       directions: list[Array] = directions) -> Any:  # fmt: skip
            directions.append(direction.copy())
            return Moved(position, np.ones(len(position)), np.arange(len(position)) * 10.0 ** len(directions))

        with mock.patch.object(hyper_models, "slice_move", slice_move):
            result = model.ancillary_move(rng, hyper, rng.standard_normal((r, 3, 1, 5)), np.zeros((r, 5)))
        each = p + 1 if p > 1 else 1
        refused = np.array([[k * sum(10.0 ** (b * each + j + 1) for j in range(each)) for b in range(3)]
                            for k in range(r)])  # fmt: skip
        rows.append((f"{p} learnt: slices", len(directions), 3 * each))
        rows.append((f"{p} learnt: refused", result[3].tolist(), refused.tolist()))
        blocks = [directions[b * each : (b + 1) * each] for b in range(3)]
        axes = all(np.array_equal(one[j], np.tile(np.eye(p)[j], (r, 1))) for one in blocks for j in range(p))
        rows.append((f"{p} learnt: axes in turn", axes, True))
        if p > 1:
            random = np.array([one[p] for one in blocks])
            lengths = float(np.abs(np.linalg.norm(random, axis=-1) - 1.0).max())
            rows.append(("directions at random of length one", lengths < 1e-12, True))
            rows.append(("directions at random, all others", len(np.unique(random.round(9))), random.size))
    yield as_documented(rows, "gibbs", "slices")


# -- islands and streams -------------------------------------------------------------------------------------------


@check(
    "exactness/gibbs-threshold/resampled_islands",
    paper="villacampa2017",
    question="Is Z unbiased where particles know nothing of the labels ahead and are drawn anew again and again?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import sequential

    D, rho = 6, 0.9
    # equal correlations by one common factor: the orthant is an integral in one variable
    sign = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    cov = (rho + (1.0 - rho) * np.eye(D)) * sign * sign[:, None]
    z = np.linspace(-9.0, 9.0, 2001)
    weight = np.exp(-0.5 * z**2) * (z[1] - z[0]) / np.sqrt(2.0 * np.pi)
    at = sign[:, None] * np.sqrt(rho / (1.0 - rho)) * z
    chol: Array = np.asarray(np.linalg.cholesky(cov), dtype=np.float64)
    blind = sequential.Factors.of(chol, np.zeros(D), np.zeros(D))
    count = 250 if context.quick else 20_000
    z_values = []
    for constraints, epsilon, n_classes in ((1, 0.0, 2), (2, 0.2, 3)):
        inside = ndtr(at).reshape(-1, constraints, z.size).prod(axis=1)
        truth = float(weight @ ((1.0 - epsilon) * inside + epsilon / n_classes).prod(axis=0))
        common = sequential.Schedule(blind, constraints, epsilon, n_classes)
        rng, drawn_anew = np.random.default_rng(25), 0
        systematic = sequential._systematic

        def counted(rng: np.random.Generator, weights: Array, systematic: Any = systematic) -> Any:
            nonlocal drawn_anew
            drawn_anew += 1
            return systematic(rng, weights)

        with mock.patch.object(sequential, "_systematic", counted):
            islands = np.exp([sequential._island(rng, common, 6) for _ in range(count)])
        z_values.append((islands.mean() - truth) / (islands.std(ddof=1) / np.sqrt(count)))
        yield flaws(drawn_anew < count // 5, f"{constraints} a datum: drawn anew {drawn_anew} times", "gibbs", "runs")
    yield Tested(
        np.array(z_values), f"{count} islands of 6; two-sided z, Holm over the run at 1e-4", "gibbs",
        "quadrature", f"a bias of {6.0 * float(islands.std()) / truth / np.sqrt(count):.0%} would show",
    )  # fmt: skip


@check(
    "identity/gibbs-logit/ladders",
    paper="wenzel2019",
    question="Does a ladder rise from no likelihood to all of it, with a Gaussian for every power between?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.evidence import annealed, softmax_annealed

    cov, y = _classes()
    sign = np.array([1.0, -1.0, 1.0])
    rows: list[tuple[str, object, object]] = []
    for name, module, given, gaussians in (
        ("logit", annealed, (9.0 * cov[0], sign), "references"),
        ("softmax", softmax_annealed, (16.0 * cov, y), "around"),
    ):
        common = module.choose_schedule(np.random.default_rng(26), *given, n_pilot=300)
        ladder = common.ladder
        rows += [
            (f"{name}: ends", (ladder[0], ladder[-1]), (0.0, 1.0)),
            (f"{name}: powers between", len(ladder) > 3, True),
            (f"{name}: rising", bool(np.all(np.diff(ladder) > 0.0)), True),
            (f"{name}: Gaussians", len(getattr(common, gaussians)), len(ladder) - 2),
        ]
    yield as_documented(rows, "gibbs", "ladders")


@check(
    "invariance/gibbs-logit/draws_of_a_chain",
    paper="wenzel2019",
    question="Are draws of a chain's own stream those that it has alone, however many chains are beside it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.generators import ChainStreams
    from gibbs.draws import polya_gamma

    tilt = np.linspace(0.0, 9.0, 70)
    for b in (1, 2):
        with mock.patch.object(polya_gamma, "_CHUNK", 150):  # two chains at a time, and then one
            streams = ChainStreams([np.random.default_rng(k) for k in range(5)])
            together = polya_gamma.sample_polya_gamma(streams, np.tile(tilt, (5, 1)), b)
        alone = [
            polya_gamma.sample_polya_gamma(ChainStreams([np.random.default_rng(k)]), tilt[None], b) for k in range(5)
        ]
        worst = float(np.abs(together - np.concatenate(alone)).max())
        yield Compared(worst, 0.0, f"PG({b}, c): five chains and each alone", "gibbs", "gibbs", "absolute")


@check(
    "identity/gibbs-probit/parameters_beside_noise",
    paper=PAPER,
    question="Are parameters moved where only the noise of h gives a covariance a factor, and refused for the logit?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models.hyper import make_model

    twins = np.array([[-0.5], [-0.5], [0.4], [0.4], [1.0]])
    y = np.array([0, 0, 1, 1, 1])
    rows: list[tuple[str, object, object]] = []
    for likelihood, factorised in (("probit", False), ("logit", True)):
        model, _ = sampler_by_name(make_model, n_warmup=0)(
            likelihood, twins, y, 2, 1.5, np.array([1.4]), 0.0, 0.0, None, "full", twins[:1],
            hyperprior=dict(_LAWS), learn=("variance", "lengthscales"), shared=True, n_steps=3,
        )  # fmt: skip
        hyper = np.tile(model.hyper, (6, 1, 1))
        values = np.tile(np.where(y == 1, 0.8, -0.8), (6, 1, 1, 1))
        more: dict[str, Any] = {"factorised": True} if factorised else {}
        moved, _, refused = model._sufficient(
            {"gradient": np.random.default_rng(27)}, False, hyper, values, 1.0, np.full((6, 1), 0.2), **more
        )
        changed = bool(np.all(moved[..., :-1] != hyper[..., :-1]))
        rows.append((f"{likelihood}: moved, refused", (changed, refused.sum()), (not factorised, 6.0 * factorised)))
    yield as_documented(rows, "gibbs", "moves")


@check(
    "invariance/gibbs-logit/warm_up_of_an_ensemble",
    paper="wenzel2019",
    question="Are draws after a warm-up, and thinned ones, those of a run that keeps all?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models.ensemble import sample_ensemble

    K, sign = np.array([[1.5, 0.4], [0.4, 1.1]]), np.array([1.0, -1.0])

    def drawn(n_draws: int, n_warmup: int, thin: int = 1) -> Array:
        asked = {"n_walkers": 8, "n_draws": n_draws, "n_warmup": n_warmup, "thin": thin}
        return np.asarray(sample_ensemble(np.random.default_rng(28), K, sign, **asked).draws)

    whole = drawn(30, 0)
    for name, came, wanted in (
        ("after a warm-up of ten", drawn(20, 10), whole[10:]),
        ("every third", drawn(10, 0, 3), whole[2::3]),
        ("every second after a warm-up of six", drawn(12, 6, 2), whole[7::2]),
    ):
        apart = float(np.abs(came - wanted).max()) if came.shape == wanted.shape else np.inf
        yield Compared(apart, 0.0, name, "gibbs", "gibbs", "absolute")


@check(
    "identity/mh-softmax/shared_parameters",
    paper=PAPER,
    question="Are parameters that latents share refused where they are given unequal, whichever they are?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models.hyper import make_model

    inducing = np.stack([_X[:2], _X[1:3], _X[2:4]])
    fields: dict[str, Any] = {"variance": 1.5, "lengthscales": np.array([1.4]), "noise": 0.05, "jitter": 1e-4,
                              "Z": inducing[:1].repeat(3, axis=0)}  # fmt: skip
    unequal: dict[str, Any] = {
        "variance": np.array([1.5, 1.5, 1.6]), "lengthscales": np.array([[1.4], [1.3], [1.4]]),
        "noise": np.array([0.05, 0.05, 0.06]), "jitter": np.array([1e-4, 2e-4, 1e-4]), "Z": inducing,
    }  # fmt: skip
    rows: list[tuple[str, object, object]] = []
    for name in ("nothing", *fields):
        for shared in (True, False):
            given = fields | ({name: unequal[name]} if name in unequal else {})
            try:
                sampler_by_name(make_model, n_warmup=0)(
                    "softmax", _X, np.array([0, 2, 1, 2, 0]), 3, *given.values(), "fitc", _X[:1],
                    hyperprior=dict(_LAWS), learn=own.FIELDS, shared=shared,
                )  # fmt: skip
                told = "taken"
            except ValueError as error:
                told = str(error).split(":")[0]
            rows.append((f"{name} unequal, {'shared' if shared else 'apart'}", told,
                         name if shared and name in unequal else "taken"))  # fmt: skip
    yield as_documented(rows, "gibbs", "requests")


@check(
    "identity/mh-softmax/drift_of_four",
    paper=PAPER,
    question="Is a drift that chains share seen from four chains on, and is what never moves told as settled?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains import warmup

    rows: list[tuple[str, object, object]] = []
    for r in (2, 3, 4, 5):
        # a tenth of a deviation from quarter to quarter, by nearly as much in every chain: no chain is far from another
        watch, each = warmup.Watch(100), 1e-3 * np.arange(r)
        ended = False
        for sweep in range(1, 101):
            swing = 1.0 if sweep % 2 else -1.0
            ended = watch.add(sweep, {"x": swing + (0.1 + each if sweep > 75 else np.zeros(r))})
        rows.append((f"{r} chains: ended, agreed", (ended, watch.passed), (True, r < 4)))
    first, second = np.random.default_rng(32).standard_normal((2, 6, 3))
    t = ttest_1samp(second - first, 0.0).statistic
    gap = float(np.abs(warmup._drift_t(first, second) - t).max())
    yield Compared(gap, 1e-12, "Student's t of changes of six chains", "gibbs", "scipy.stats", "absolute")
    pieces = np.concatenate([first, second])
    ratio = pieces.var(axis=0, ddof=1) / np.full(3, 0.7)
    gap = float(np.abs(warmup._split_r_hat(pieces, np.full((12, 3), 0.7), 25) ** 2 - 24.0 / 25.0 - ratio).max())
    yield Compared(gap, 1e-12, "R-hat of twelve pieces of 25 draws", "gibbs", "definition", "absolute")
    still = warmup._split_r_hat(np.full((6, 2), 3.0), np.zeros((6, 2)), 25)
    rows.append(("R-hat of what never moves", still.round(12).tolist(), [1.0, 1.0]))
    apart = warmup._split_r_hat(np.arange(6.0)[:, None], np.zeros((6, 1)), 25)
    rows.append(("R-hat of what stands still in places of its own", apart.tolist(), [np.inf]))
    yield as_documented(rows, "gibbs", "looks")


# -- limits of paths and of searches -------------------------------------------------------------------------------


@check(
    "identity/gibbs-threshold/planes_by_default",
    paper="villacampa2017",
    question="Is a path taken back from 101 + 50 n (L - 1) planes on, where nothing else is asked for?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.moves.region import bounce_move

    rng = np.random.default_rng(29)
    rows: list[tuple[str, object, object]] = []
    for n, L, most in ((2, 2, 200), (3, 2, 250), (2, 3, 300)):
        # two data that are nearly one, of labels that differ: a wedge between planes in which a path meets hundreds
        rho = float(np.cos(np.pi / 450.0))
        K = np.eye(n)
        K[:2, :2] = [[1.0, rho], [rho, 1.0]]
        cov = np.stack([K] * L)
        y = np.arange(n) % 2
        apart = np.sqrt(2.0 * (1.0 - rho)) * np.abs(rng.standard_normal((40, n))) * np.where(y == 0, 1.0, -1.0)
        start = np.zeros((40, L, n))
        start[:, 0], start[:, 1] = 0.5 * apart, -0.5 * apart
        start[:, :2] += rng.standard_normal((40, 1, 1))
        start[:, 2:] = start.min() - 3.0
        root = np.linalg.cholesky(cov)
        whole = bounce_move(np.random.default_rng(30), start, cov, root, y, max_events=10**6)
        usual = bounce_move(np.random.default_rng(30), start, cov, root, y)
        within = whole.events <= most
        rows += [
            (f"{n} data, {L} classes: moved", bool(np.array_equal(usual.moved, whole.moved & within)), True),
            (f"{n} data, {L} classes: both happen", bool(within.any() and not within.all()), True),
            (f"{n} data, {L} classes: planes met by those taken back", set(usual.events[~within].tolist()),
             {most + 1}),
        ]  # fmt: skip
    yield as_documented(rows, "gibbs", "paths")


@check(
    "identity/gibbs-pairwise/steps_halved",
    paper="villacampa2017",
    question="Is a step to the mode halved as long as the density falls, and the mode found all the same?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import pairwise
    from gibbs.moves import softmax as moves

    loadings = np.array([[1.1, -0.4], [0.3, 0.9], [-0.6, 1.4]])
    cov, y = _classes()
    target = moves.make_target(cov, y)

    def falling(function: Any, points: list[Array]) -> Any:
        """The same, but for two steps of which it says that they lead down."""

        def told(*given: Any) -> Array:
            points.append(np.array(given[-1][0]))
            value = np.asarray(function(*given))
            return value - 1e9 if len(points) in (2, 3) else value

        return told

    tried: list[Array] = []
    with mock.patch.object(pairwise, "log_joint", falling(pairwise.log_joint, tried)):
        peak = pairwise._peak(loadings)
    mode = peak.mode
    slope = float(np.abs(pairwise.log_joint_gradient(loadings, mode[None])).max())
    curved = [
        own.derivative(lambda at, k=k: float(pairwise.log_joint_gradient(loadings, at[None])[0, k]), mode)
        for k in range(2)
    ]
    pieces = (
        (peak.R @ peak.R.T, -np.array(curved)), (peak.inverse @ peak.R, np.eye(2)),
        (peak.turned @ peak.R.T, loadings), (peak.centre, loadings @ mode),
    )  # fmt: skip
    worst = max(own.difference(came, wanted) for came, wanted in pieces)
    yield Compared(worst, 1e-8, "margins: root of the precision at the mode, and what is turned by it", "gibbs",
                   "differences")  # fmt: skip
    of_classes: list[Array] = []
    met: list[Array] = []

    def latent(white: Array) -> Array:
        met.append(white[0].copy())
        return target.latent(white)

    slow = SimpleNamespace(
        factor=target.factor, y=y, basis=target.basis, latent=latent,
        log_likelihood=falling(target.log_likelihood, of_classes),
    )  # fmt: skip
    white, root = moves.laplace(slow)  # type: ignore[arg-type]
    apart = float(np.abs(met[1] - of_classes[3]).max())
    yield Compared(apart, 0.0, "classes: goes on from the step that is taken", "gibbs", "gibbs", "absolute")
    slopes = own.derivative(lambda at: float(target.log_likelihood(at[None])[0] - 0.5 * at @ at), white)
    for name, points, steepest in (
        ("margins", tried, slope), ("classes", of_classes, float(np.abs(slopes).max()))
    ):  # fmt: skip
        start, whole, half, quarter = points[:4]
        apart = max(
            float(np.abs(half - start - 0.5 * (whole - start)).max()),
            float(np.abs(quarter - start - 0.25 * (whole - start)).max()),
        )
        yield Compared(apart, 1e-12, f"{name}: steps that are tried", "gibbs", "definition", "absolute")
        yield Compared(steepest, 1e-6, f"{name}: slope at the mode", "gibbs", "definition", "absolute")
    at = np.array([own.derivative(lambda x, k=k: float(_score(target, x)[k]), white) for k in range(len(white))])
    worst = own.difference(root @ root.T, np.linalg.inv(-at))
    yield Compared(worst, 1e-6, "classes: inverse of minus the second derivatives", "gibbs", "differences")


def _score(target: Any, at: Array) -> Array:
    """Gradient of log [p(y | f) N(ξ; 0, I)], by the probabilities of the classes."""
    f = target.latent(at[None])[0]
    p = np.exp(f - f.max(axis=0))
    p /= p.sum(axis=0)
    one_hot = (target.y == np.arange(len(f))[:, None]).astype(np.float64)
    return np.asarray(target.factor.T @ (target.basis @ (one_hot - p)).ravel() - at)


# -- what is read and what is stated -------------------------------------------------------------------------------


@check(
    "identity/gibbs-logit/changed_files",
    paper="wenzel2019",
    question="Is a checkpoint in which any array is another one than was written refused?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains import checkpoint

    rng = np.random.default_rng(35)
    arrays = {"sweep": np.array(7), "state.x": rng.standard_normal((2, 3)), "course.store.rows.x": np.arange(4.0)}
    rows: list[tuple[str, object, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.npz")
        checkpoint.write(path, "mark", arrays)
        with np.load(path) as file:
            written = {name: file[name] for name in file.files}
        changes: list[tuple[str, dict[str, Any]]] = [("nothing", {})]
        changes += [(name, {name: value + 1}) for name, value in arrays.items()]
        changes += [("an array more", {"state.y": np.zeros(2)}), ("the shape", {"state.x": arrays["state.x"].T})]
        for name, change in changes:
            np.savez(path, **(written | change))
            try:
                same = checkpoint.read(path, "mark")
                told = "read" if all(np.array_equal(same[key], value) for key, value in arrays.items()) else "other"
            except ValueError:
                told = "refused"
            rows.append((f"{name} changed", told, "refused" if change else "read"))
        # another run is refused by what is different in it, what was before what is asked for
        marks = [checkpoint.fingerprint({"n_draws": n, "seed": 3}, {"X": np.full(2, x)}) for n, x in ((5, 1), (6, 2))]
        checkpoint.write(path, marks[0], arrays)
        try:
            checkpoint.read(path, marks[1])
            told = "read"
        except ValueError as error:
            told = str(error)
        for what in ("another X", "n_draws = 5 instead of 6"):
            rows.append((f"{what!r} is told", what in told, True))
        rows.append(("what is the same is told", "seed" in told.split("(")[1].split(")")[0], False))
        np.savez(path, **{name: value for name, value in written.items() if name != "state.x"})
        try:
            checkpoint.read(path, "mark")
            rows.append(("an array less", "read", "refused"))
        except ValueError:
            rows.append(("an array less", "refused", "refused"))
    yield as_documented(rows, "gibbs", "files")


@check(
    "invariance/gibbs-logit/errors_in_other_units",
    paper="wenzel2019",
    question="Do errors of averages follow the units, also where an entry is zero and the others' squares overflow?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains.diagnostics import standard_error

    draws = np.random.default_rng(36).standard_normal((4, 60, 2))
    draws[0, 0] = 0.0
    plain = standard_error(draws)
    for power in (-600, 600, 1000):
        unit = float(np.ldexp(1.0, power))
        worst = float(np.abs(standard_error(draws * unit) / unit / plain - 1.0).max())
        yield Compared(worst, 1e-12, f"in units of 2^{power}", "gibbs", "gibbs")


@check(
    "identity/gibbs-logit/batches_of_a_run",
    paper="wenzel2019",
    question="Are batches of a run twenty of its slowest autocorrelation times long, in draws, thinned or not?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains.moments import Batches
    from gibbs.chains.summary import Averages

    times = {"a": SimpleNamespace(autocorrelation_time=np.array([1.5, 4.0])),
             "b": SimpleNamespace(autocorrelation_time=np.array([2.0]))}  # fmt: skip
    made = Batches({"x": np.ones((4, 64, 2))}, np.full(64, 10.0))
    rows: list[tuple[str, object, object]] = []
    # 640 draws, of which the slowest quantity needs 4/thin to forget: 640 thin/80 batches, two a chain at least
    for thin, n_draws, wanted in ((1, 640, 8), (3, 640, 24), (8, 640, 64), (1, 120, 2)):
        finished: Any = SimpleNamespace(batches=made, n_draws=n_draws)
        came = Averages.of(finished, times, 4, thin).batches  # type: ignore[arg-type]
        rows.append((f"{n_draws} draws, one of {thin} sweeps: batches", came.widths.size, wanted))
        rows.append((f"{n_draws} draws, one of {thin} sweeps: draws in them", float(came.widths.sum()), 640.0))
    yield as_documented(rows, "gibbs", "batches")
