"""What a run of chains keeps between sweeps: interruptions, budgets, batches, warm-up by diagnostics, and the export.

An interrupted run is held against one that was not, to the last bit; stores, batches and the watch over the warm-up are
held against what they are defined to be, from all values at once.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.stats import norm
from scipy.stats import t as student

from gibbs.chains import chain
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.few_data import Few
from validation.checks.standard_errors import DISTRIBUTIONS, PAPER, Sampler, sampled, series
from validation.problem import Problem

Array = NDArray[np.float64]


# -- interruptions -----------------------------------------------------------------------------------------------------


class Interrupted(NamedTuple):
    """A sampler, and after how many sweeps it is stopped, once by an interrupt and once by a kill."""

    sampler: Sampler
    stop: tuple[int, int]


_SHORT = {"n_chains": 2, "n_draws": 20, "n_warmup": 8}
_LEARNT = {"hyperprior": DISTRIBUTIONS, "learn": ("variance", "noise"), "n_steps": 2}
# long enough for a second look at the warm-up, with a budget that holds eight draws and lets go of the rest
_AUTO = {"n_chains": 4, "n_draws": 30, "n_warmup": "auto", "max_warmup": 200, "target_ess": 60.0, "max_draws": 120}
RUNS = (
    Interrupted(
        Sampler("gibbs-logit", Few("logit"), _AUTO | {"moves": ("ellipse",), "max_kept_bytes": 3000}), (77, 170)
    ),
    Interrupted(Sampler("gibbs-logit", Few("logit", fitc=True), _SHORT | {"thin": 2}), (5, 17)),
    Interrupted(Sampler("gibbs-logit", Few("logit"), {**_SHORT, "n_draws": 8, **_LEARNT}), (6, 11)),
    Interrupted(
        Sampler("gibbs-probit", Few("multinomial-probit"), _AUTO | {"n_warmup": 20, "max_warmup": 100}), (9, 40)
    ),
    Interrupted(Sampler("gibbs-probit", Few("probit", fitc=True), {**_SHORT, "n_draws": 8, **_LEARNT}), (6, 11)),
    Interrupted(Sampler("gibbs-threshold", Few("threshold", 0.3), _SHORT), (5, 17)),
    Interrupted(Sampler("gibbs-threshold", Few("threshold", 0.3), {**_SHORT, "n_draws": 8, **_LEARNT}), (6, 11)),
    Interrupted(Sampler("mh-softmax", Few("softmax"), _SHORT | {"moves": ("scaled", "ellipse", "flow")}), (5, 17)),
    Interrupted(Sampler("mh-softmax", Few("softmax", fitc=True), {**_SHORT, "n_draws": 8, **_LEARNT}), (6, 11)),
    Interrupted(Sampler("gibbs-pairwise", Few("threshold", fitc=True), _SHORT), (5, 17)),
)
_CLOCKS = ("seconds", "sweeps_per_second")


def leaves(value: Any) -> list[NDArray[Any]]:
    """All arrays and numbers of an answer but what a clock says."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if hasattr(value, "_fields"):
        return [leaf for name in value._fields if name not in _CLOCKS for leaf in leaves(getattr(value, name))]
    return [] if value is None else [np.asarray(value)]


def apart(left: Any, right: Any) -> float:
    """Number of leaves that differ in a bit."""
    a, b = leaves(left), leaves(right)
    if len(a) != len(b):
        return np.inf
    return float(sum(not np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(a, b, strict=True)))


def stopped(entry: Interrupted, folder: Path) -> Iterable[tuple[str, Any]]:
    """What comes of a run that is interrupted twice, and of one that goes on from a file of long ago."""
    path, old = folder / "run.npz", folder / "old.npz"
    visited: list[int] = []

    def interrupt(after: int) -> Callable[[Any], None]:
        def call(progress: Any) -> None:
            visited.append(progress.sweep)
            if progress.sweep == after:
                raise KeyboardInterrupt

        return call

    for after in entry.stop:
        with suppress(KeyboardInterrupt):
            sampled(entry.sampler, 3, checkpoint=path, callback=interrupt(after))
    went_on = len(visited) == entry.stop[1] and visited == list(range(1, entry.stop[1] + 1))
    yield "sweeps", went_on
    yield "interrupted", sampled(entry.sampler, 3, checkpoint=path)

    def keep(progress: Any) -> None:
        if progress.sweep == entry.stop[1]:
            shutil.copy(killed, old)

    # inside a sweep's own record, half of which is there: the file before it is what is gone on from
    torn, taken = folder / "torn.npz", 0
    take = chain._Course.take

    def tear(self: Any, *given: Any) -> None:
        nonlocal taken
        take(self, *given)
        taken += 1
        if taken == entry.stop[1]:
            raise KeyboardInterrupt

    with mock.patch.object(chain._Course, "take", tear), suppress(KeyboardInterrupt):
        sampled(entry.sampler, 3, checkpoint=torn, checkpoint_every=3)
    yield "torn", sampled(entry.sampler, 3, checkpoint=torn)

    killed = folder / "killed.npz"
    sampled(entry.sampler, 3, checkpoint=killed, checkpoint_every=4, callback=keep)
    yield "killed", sampled(entry.sampler, 3, checkpoint=old)
    yield "finished", sampled(entry.sampler, 3, checkpoint=killed)


def _interruptions(entry: Interrupted) -> Iterable[Outcome]:
    whole = sampled(entry.sampler, 3)
    name = f"{entry.sampler.few.likelihood}{', parameters sampled' if 'learn' in entry.sampler.options else ''}"
    with tempfile.TemporaryDirectory() as folder:
        for what, value in stopped(entry, Path(folder)):
            differ = float(not value) if what == "sweeps" else apart(value, whole)
            yield Compared(
                differ, 0.0, f"{name}, {what}: a file holds all that the sweeps depend on: every bit comes again",
                "gibbs", "gibbs", "arrays that differ",
            )  # fmt: skip
        path = Path(folder) / "run.npz"
        refused = 0
        few = entry.sampler.few
        names = ("X", "X_test", "variance", "lengthscales", "noise", "jitter", *(("Z",) if few.fitc else ()))
        moved = [{"given": {name: 1.01 * np.asarray(few.arguments()[name])}} for name in names]
        for change in ({"seed": 4}, {"n_draws": entry.sampler.options["n_draws"] + 1}, *moved):
            try:
                sampled(
                    entry.sampler,
                    change.get("seed", 3),
                    checkpoint=path,
                    **{k: v for k, v in change.items() if k != "seed"},
                )
            except ValueError as error:
                refused += "another run" in str(error)
        yield Compared(
            float(2 + len(names) - refused),
            0.0,
            f"{name}: a file of another seed, length or input is refused",
            "gibbs",
            "gibbs",
            "accepted",
        )
    other = sampled(entry.sampler, 4)
    same = np.array_equal(other.log_joint, whole.log_joint)
    yield Compared(float(same), 0.0, f"{name}: another seed is another run", "gibbs", "gibbs", "1 if equal")


def _register(method: str) -> None:
    @check(
        f"invariance/{method}/interrupted_chains",
        paper=PAPER.get(method, "riihimaki2013"),
        question="Does an interrupted or killed run of chains go on to the last bit, and with its own question only?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        for entry in RUNS:
            # sampled parameters keep the same state for every likelihood, with constraints and without
            long = "learn" in entry.sampler.options and method in ("gibbs-probit", "mh-softmax")
            if entry.sampler.method == method and not (long and context.quick):
                yield from _interruptions(entry)


for _method in dict.fromkeys(entry.sampler.method for entry in RUNS):
    _register(_method)


# -- what is kept ------------------------------------------------------------------------------------------------------


def kept_numbers(capacity: int, n: int) -> tuple[int, list[int]]:
    """Draws per kept draw and the draws kept: the least power of two with which all offered so far fit."""
    every = 1
    while n // every > capacity:
        every *= 2
    return every, list(range(every, n + 1, every))


@check(
    "invariance/gibbs-logit/kept_draws",
    paper="wenzel2019",
    question="Does a budget let go of every second draw, and of nothing that is averaged?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.chains.store import ThinnedStore

    wrong = 0
    for n_draws, budget in ((700, 1 << 20), (700, 2 * 8 * 8), (700, 2 * 8 * 301), (600, 2 * 8 * 300), (5, 2 * 8 * 5)):
        one = {"x": np.zeros(2)}
        store = ThinnedStore(one, n_draws, budget)
        room = budget // 16
        capacity = n_draws if n_draws <= room else room - room % 2
        for number in range(1, n_draws + 1):
            store.offer(number, {"x": np.array([number, -number], dtype=float)})
            if number in (n_draws, 263, 512, 601):
                every, numbers = kept_numbers(capacity, number)
                again = ThinnedStore(one, n_draws, budget)
                again.load({name: value.copy() for name, value in store.arrays().items()})
                for result in (store, again):
                    expected = np.array([numbers, np.negative(numbers)], dtype=float)
                    held = result.kept()["x"]
                    wrong += not np.array_equal(held, expected) or result.every != every
                store = again
    yield Compared(float(wrong), 0.0, "every k-th draw, k the least power of two that fits; also after a resume",
                   "gibbs", "definition", "stores that differ")  # fmt: skip
    entry = Sampler("gibbs-logit", Few("logit", fitc=True), {"n_chains": 4, "n_draws": 70, "n_warmup": 3})
    whole, thinned = sampled(entry, 1), sampled(entry, 1, max_kept_bytes=4 * 8 * (2 + 2 + 2 + 1) * 20)
    k = thinned.keep_every
    differ = [
        float(not np.array_equal(getattr(thinned, name), getattr(whole, name)[:, k - 1 :: k]))
        for name in ("latent_draws", "omega_draws", "inducing_draws", "log_joint")
    ]
    yield Compared(sum(differ) + float(k < 4), 0.0, "70 draws, a budget of 20: every fourth is kept", "gibbs", "gibbs",
                   "arrays that differ")  # fmt: skip
    names = ("latent_mean", "latent_var", "inducing_mean", "inducing_cov", "test_latent_mean", "probabilities")
    worst = max(float(np.abs(getattr(thinned, name) - getattr(whole, name)).max()) for name in names)
    # batches may be joined otherwise; where they are of unequal width their grand mean enters in second order
    yield Compared(worst, 1e-8, "averages are over all draws, whatever is kept", "gibbs", "gibbs")


@check(
    "invariance/gibbs-logit/batches",
    paper="wenzel2019",
    question="Are batch means, their joining and their errors what they are defined to be?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.chains.moments import BatchSums, batch_average, batch_covariance, batches_per_chain, widening

    rng, wrong = np.random.default_rng(3), 0
    for r, s in ((4, 1000), (40, 333), (3, 7), (1, 600), (300, 40)):
        draws = rng.standard_normal((r, s, 2))
        sums, capacity = BatchSums(r), max(16, 2 * -(-256 // (2 * r)))
        at = 0
        while at + 5 <= s:  # the last draws are still pending, as in a run
            step = min(sums.room, 5)
            sums.add({"x": draws[:, at : at + step].sum(axis=1)}, step)
            at += step
            if at in (100, 250):
                again = BatchSums(r)
                again.load({name: np.array(value) for name, value in sums.arrays().items()})
                sums = again
        pending = {"x": draws[:, at:].sum(axis=1)} if at < s else None
        result = sums.batches(pending, s - at)
        width = 1
        while s // width >= capacity and at // width >= capacity:
            width *= 2
        edges = [k * width for k in range(max(at // width, 1))] + [s]
        expected = np.stack([draws[:, a:b].mean(axis=1) for a, b in itertools.pairwise(edges)], axis=1)
        right = result.widths.tolist() == np.diff(edges).tolist()
        wrong += not right or not np.allclose(result.means("x"), expected, rtol=0.0, atol=1e-12)
        joined = result.joined(5)
        pieces = np.linspace(0, len(edges) - 1, min(5, len(edges) - 1) + 1).astype(int)
        ends = [edges[k] for k in pieces]
        expected = np.stack([draws[:, a:b].mean(axis=1) for a, b in itertools.pairwise(ends)], axis=1)
        wrong += not np.allclose(joined.means("x"), expected, rtol=0.0, atol=1e-12)
    yield Compared(float(wrong), 0.0, "batches of equal width, a power of two; the rest joins the last; also resumed",
                   "gibbs", "definition", "batches that differ")  # fmt: skip

    means, widths = rng.standard_normal((3, 4, 2)), np.array([5.0, 5.0, 5.0, 9.0])
    weight = widths / (3.0 * widths.sum())
    mean = np.einsum("rbx,b->x", means, weight)
    wide = student.isf(5e-6, 11) / norm.isf(5e-6)
    se = np.sqrt((np.square(weight[:, None] * (means - mean))).sum(axis=(0, 1)) * 12.0 / 11.0) * wide
    found_average = batch_average(means, widths)
    # conditional covariance plus the second moment about the grand mean
    spread = np.einsum("rbsi,rbsj->rbsij", *[means[:, :, None] + 0.3 * rng.standard_normal((3, 4, 6, 2))] * 2).mean(
        axis=2
    )
    cond = np.array([[1.0, 0.2], [0.2, 0.7]])
    cov = np.einsum("rbij,b->ij", cond + spread, weight) - np.outer(mean, mean)
    found_cov = batch_covariance(means, spread, cond, widths)
    terms = (
        cond
        + spread
        - np.einsum("rbi,j->rbij", means, mean)
        - np.einsum("i,rbj->rbij", mean, means)
        + np.outer(mean, mean)
    )
    worst = max(
        float(np.abs(found_average.mean - mean).max()),
        float(np.abs(found_average.se / se - 1.0).max()),
        float(np.abs(found_cov.mean - cov).max()),
        float(np.abs(found_cov.se - batch_average(terms, widths).se).max()),
        *(abs(widening(n) - float(student.isf(5e-6, max(n - 1, 1)) / norm.isf(5e-6))) for n in (1, 2, 8, 128)),
    )
    yield Compared(worst, 1e-9, "averages, covariances and their errors, to rounding", "gibbs", "definition")
    counts = [
        (4, 1000, 5.0, 10),
        (4, 1000, 40.0, 2),
        (1, 50, 9.0, 8),
        (16, 100, 9.0, 1),
        (4, 100, np.nan, 2),
        (3, 9, 1.0, 3),
    ]
    wrong = sum(batches_per_chain(r, s, tau) != expected for r, s, tau, expected in counts)
    yield Compared(float(wrong), 0.0, "twenty autocorrelation times a batch, but eight batches in all", "gibbs",
                   "definition", "counts that differ")  # fmt: skip


# -- warm-up -----------------------------------------------------------------------------------------------------------


def watched(values: dict[str, Array], max_warmup: int) -> tuple[int, bool]:
    """Sweeps at which the warm-up ends and whether the chains agree then, from all values (r, s, ...) at once."""
    end = 100
    while True:
        agree, columns = True, sum(int(np.prod(v.shape[2:])) for v in values.values())
        for v in values.values():
            third, last = v[:, end // 2 : 3 * end // 4], v[:, 3 * end // 4 : end]
            pieces, length = np.concatenate([third, last]), end // 4
            within = pieces.var(axis=1, ddof=1).mean(axis=0)
            between = pieces.mean(axis=1).var(axis=0, ddof=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                r_hat = np.sqrt((length - 1.0) / length + between / within)
            # what never moves is fine where it is the same everywhere
            r_hat = np.where(within > 0.0, r_hat, np.where(between > 0.0, np.inf, 1.0))
            agree &= bool(np.all(r_hat <= 1.05))
            if len(v) >= 4:
                a, b = third.mean(axis=1).reshape(len(v), -1), last.mean(axis=1).reshape(len(v), -1)
                for k in range(a.shape[1]):
                    same = np.array_equal(a[:, k], b[:, k])
                    agree &= same or bool(stats.ttest_rel(b[:, k], a[:, k]).pvalue >= 1e-3 / columns)
        if agree or 2 * end > max_warmup:
            return end, agree
        end *= 2


@check(
    "invariance/gibbs-logit/warm_up",
    paper="wenzel2019",
    question="Does a warm-up by diagnostics end where chains agree over its third and last quarter, and not before?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.chains.warmup import Watch

    rng, wrong, ends = np.random.default_rng(4), 0, []
    for trial in range(48):
        r = (2, 3, 4, 8)[trial % 4]
        phi = (0.0, 0.5, 0.9, 0.97)[trial // 4 % 4]
        limit = (100, 399, 800)[trial // 16]
        x = series(rng, (r, 800), 3, phi)
        x[..., 2] += (0.0, 0.4, 3.0)[trial % 3] * np.exp(-np.arange(800) / 60.0)  # a start that is forgotten
        values = {"x": x, "y": series(rng, (r, 800), 1, phi)[..., 0]}
        if trial % 5 == 0:
            values["still"] = np.ones((r, 800))
        if trial == 47:  # a trend that split R-hat lets pass, and the change from window to window does not
            limit, values = 100, {"x": rng.standard_normal((16, 800, 1)) + 0.02 * np.arange(800.0)[None, :, None]}
        watch, sweep = Watch(limit), 0
        while True:
            sweep += 1
            if watch.add(sweep, {name: v[:, sweep - 1] for name, v in values.items()}):
                break
            if sweep in (63, 90, 260):
                again = Watch(limit)
                again.load({name: np.array(v) for name, v in watch.arrays().items()})
                watch = again
        expected = watched(values, limit)
        ends.append(expected)
        wrong += (sweep, watch.passed) != expected
    distinct = len(set(ends))
    yield Compared(float(wrong), 0.0, f"48 sets of series, {distinct} ways to end, as found from all values at once; "
                   "also after a resume", "gibbs", "definition", "ends that differ")  # fmt: skip
    yield Compared(float(4 - min(distinct, 4)), 0.0, "ends early and late, agreed or not, all occur", "judge", "itself",
                   "ways that are missing")  # fmt: skip


# -- export ------------------------------------------------------------------------------------------------------------


@check(
    "invariance/gibbs-logit/export",
    paper="wenzel2019",
    question="Does the export hand over every chain and draw, in order and under its name?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.models.export import to_inference_data

    calls: list[dict[str, Any]] = []

    def old(
        posterior: Any = None, *, sample_stats: Any = None, coords: Any = None, dims: Any = None, attrs: Any = None
    ) -> None:
        calls.append(
            {"posterior": posterior, "sample_stats": sample_stats, "coords": coords, "dims": dims, "attrs": attrs}
        )

    def new(data: Any, *, coords: Any = None, dims: Any = None, attrs: Any = None) -> None:
        calls.append({**data, "coords": coords, "dims": dims, "attrs": attrs["/"]})

    wrong = 0
    lengths = {"n_chains": 3, "n_draws": 30, "n_warmup": 2}
    asked = (
        (Sampler("gibbs-logit", Few("logit", fitc=True), lengths), 3 * 8 * 7 * 16),
        (Sampler("gibbs-logit", Few("logit"), lengths), 3 * 8 * 5 * 16),
        (Sampler("gibbs-probit", Few("multinomial-probit"), lengths), 10**9),
    )
    before = sys.modules.get("arviz")
    for entry, budget in asked:
        chains = sampled(entry, 2, max_kept_bytes=budget)
        logit = entry.method == "gibbs-logit"
        expected = {"f": chains.latent_draws[..., None] if logit else chains.latent_draws}
        dims = {"f": ["data", "latent"]}
        if logit:
            expected["omega"], dims["omega"] = chains.omega_draws, ["data"]
        else:
            expected["h"], dims["h"] = chains.auxiliary_draws, ["data", "latent"]
        if entry.few.fitc:
            expected["u"], dims["u"] = chains.inducing_draws[..., None], ["inducing_point", "latent"]
        k, s = chains.keep_every, chains.latent_draws.shape[1]
        coords = {
            "chain": range(3),
            "draw": range(k - 1, 30, k),
            "data": range(2),
            "latent": range(entry.few.n_latents),
        }
        if entry.few.fitc:
            coords["inducing_point"] = range(2)
        for from_dict in (old, new):
            sys.modules["arviz"] = SimpleNamespace(from_dict=from_dict)  # type: ignore[assignment]
            try:
                to_inference_data(chains)
            finally:
                sys.modules.pop("arviz")
                if before is not None:
                    sys.modules["arviz"] = before
            value = calls[-1]
            right = value["posterior"].keys() == expected.keys() and value["dims"] == dims and s == len(coords["draw"])
            right = right and all(np.array_equal(value["posterior"][name], expected[name]) for name in expected)
            right = right and np.array_equal(value["sample_stats"]["log_joint"], chains.log_joint)
            right = right and {name: list(v) for name, v in value["coords"].items()} == {
                n: list(v) for n, v in coords.items()
            }
            right = right and value["attrs"]["tuning_steps"] == 2 and value["attrs"]["gate"] == int(chains.gate)
            wrong += not (right and value["attrs"]["sampling_time"] == chains.seconds)
    yield Compared(float(wrong), 0.0, "arrays, axes, numbers of draws and attributes, in both forms of ArviZ", "gibbs",
                   "chains", "exports that differ")  # fmt: skip
