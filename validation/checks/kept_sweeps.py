"""What a run of chains keeps, writes and states: files, budgets, batches, warm-ups, errors and seconds.

A run of a few numbers, whose draws are known, stands for every sampler: they all run by the same rules.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student
from scipy.stats import ttest_1samp

from validation.checks import hyper_model as own
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check, flaws
from validation.checks.few_data import Few
from validation.checks.standard_errors import Sampler, sampled
from validation.problem import Problem

Array = NDArray[np.float64]
State = dict[str, Array]


def _step(state: State, _rngs: Mapping[str, Any]) -> State:
    return {"x": state["x"] + 1.0}


def _record(state: State) -> Any:
    from gibbs.chains import chain

    return chain.Record({"x": state["x"]}, {})


@check(
    "identity/gibbs-logit/files_of_a_run",
    paper="wenzel2019",
    question="Is a file written as often as was asked, at the end, and where an interruption stopped?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains import chain

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
                        {"x": np.zeros((2, 1))}, _step, _record, {}, chain.Plan(n_draws=8, n_warmup=2), storage=storage,
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
                    {"x": np.zeros((2, 1))}, _step, _record, {}, chain.Plan(8, 0), storage=chain.Storage(path),
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
    "invariance/gibbs-logit/batches_after_an_end",
    paper="wenzel2019",
    question="Are sums over batches the same wherever a run was interrupted, in the middle of a batch too?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains import chain

    # sixteen batches a chain, whose width doubles after 16, 32 and 64 draws; three draws are handed over at a time
    r = 64
    scale = 1.0 + np.arange(r)

    def step(state: State, _rngs: Mapping[str, Any]) -> State:
        return {"x": state["x"] + 1.0}

    def record(state: State) -> Any:
        value = {"x": np.sin(state["x"] * scale)}
        return chain.Record(value, {"sum": value["x"]}, value)

    def run(path: Path | None, stop: int | None = None) -> Any:
        def interrupt(progress: Any) -> None:
            if progress.sweep == stop:
                raise KeyboardInterrupt

        with mock.patch.object(chain, "_BLOCK", 3):
            return chain.run(
                {"x": np.zeros(r)}, step, record, {}, chain.Plan(n_draws=90, n_warmup=1),
                measures=chain.Measures(accumulate=lambda terms: {"x": terms["x"].sum(axis=0)}),
                storage=chain.Storage(path), callback=interrupt,
            )  # fmt: skip

    whole = run(None)
    draws = np.sin((np.arange(2.0, 92.0)[:, None]) * scale)
    widths = whole.batches.widths.astype(int)
    starts = np.cumsum(widths) - widths
    wanted = np.stack([draws[k : k + w].sum(axis=0) for k, w in zip(starts, widths, strict=True)], axis=1)
    gap = own.difference(whole.batches.sums["x"], wanted)
    yield Compared(gap, 1e-12, f"sums of batches of {sorted(set(widths.tolist()))} draws", "gibbs", "definition")
    yield Compared(own.difference(whole.totals["sum"], draws.sum(axis=0)), 1e-12, "totals", "gibbs", "definition")
    rows: list[tuple[str, object, object]] = [("draws in batches", int(widths.sum()), 90)]
    with tempfile.TemporaryDirectory() as folder:
        for stop in (1, 9, 18, 19, 20, 70, 74, 77, 90):
            path = Path(folder, f"{stop}.npz")
            try:
                run(path, stop)
            except KeyboardInterrupt:
                again = run(path)
                same = np.array_equal(again.batches.sums["x"], whole.batches.sums["x"])
                same = same and np.array_equal(again.batches.widths, whole.batches.widths)
                same = same and np.array_equal(again.totals["sum"], whole.totals["sum"])
                rows.append((f"interrupted after {stop} sweeps: the same", bool(same), True))
    yield as_documented(rows, "gibbs", "runs")


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


@check(
    "invariance/gibbs-logit/draws_of_a_chain",
    paper="wenzel2019",
    question="Are draws of a chain's own stream those that it has alone, however many chains are beside it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.core.generators import ChainStreams
    from gibbs.draws import polya_gamma

    plain, between = (ChainStreams([np.random.default_rng(k) for k in range(3)]) for _ in range(2))
    numbers = plain.random((3, 50))
    rows = [("uniforms of no limits", np.array_equal(between.uniform(size=(3, 50)), numbers), True),
            ("are from 0 to 1", bool(numbers.min() < 0.2 and numbers.max() > 0.8), True)]  # fmt: skip
    yield as_documented(rows, "gibbs", "numbers")
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
    "identity/mh-softmax/drift_of_four",
    paper="riihimaki2013",
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
    # a change at a level of 3e-4: a drift where one quantity is watched, none among fifty
    change = 1.0 + np.sqrt(3.0) / student.isf(1.5e-4, 3) * np.array([-1.0, -1.0, 1.0, 1.0])
    for columns in (1, 50):
        watch = warmup.Watch(100)
        for sweep in range(1, 101):
            value = np.full((4, columns), 40.0 * ((sweep - 1) % 5 - 2))  # nothing on average over a quarter
            value[:, 0] += change if sweep > 75 else 0.0
            watch.add(sweep, {"x": value})
        rows.append((f"a change at 3e-4 among {columns}: agreed", watch.passed, columns > 1))
    first, second = np.random.default_rng(32).standard_normal((2, 6, 3))
    t = ttest_1samp(second - first, 0.0).statistic
    fixed = warmup._drift_t(np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([[1.0, 2.5], [1.0, 2.5]]))
    rows.append(("drift of what never moves, and of what moves as one", fixed.tolist(), [0.0, np.inf]))
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
        rows += [(f"{what!r} is told", what in told, True) for what in ("another X", "n_draws = 5 instead of 6")]
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
    from gibbs.chains.diagnostics import convergence, least_ess, standard_error

    draws = np.random.default_rng(36).standard_normal((4, 60, 2))
    draws[0, 0] = 0.0
    plain = standard_error(draws)
    rough = draws.astype(np.float32)
    for name, given in (("lists", draws.tolist()), ("numbers of half the digits", rough)):
        wanted = standard_error(np.asarray(given, dtype=np.float64))
        yield Compared(float(np.abs(standard_error(given) - wanted).max()), 0.0, name, "gibbs", "gibbs", "absolute")
    fixed = standard_error(np.full((4, 60, 1), 0.3))
    yield Compared(float(np.abs(fixed).max()), 0.0, "what never moves", "gibbs", "its documentation", "absolute")
    diagnostics: dict[str, Any] = {
        "moves": SimpleNamespace(ess_bulk=np.array([90.0, 70.0]), ess_tail=np.array([80.0, 60.0])),
        "slowly": SimpleNamespace(ess_bulk=np.array([40.0]), ess_tail=np.array([50.0])),
    }
    never: dict[str, Any] = {"never": SimpleNamespace(ess_bulk=np.array([np.nan]), ess_tail=np.array([np.nan]))}
    beside = np.stack([draws[:, :, 0], np.full(draws.shape[:2], 0.3)], axis=2)
    halves = [[True, False]] * 4
    rows: list[tuple[str, object, object]] = [
        ("least effective size", least_ess(diagnostics), 40.0),
        ("where one never moves", least_ess(diagnostics | never), 0.0),
        ("least of a tail", least_ess({"moves": diagnostics["moves"]}), 60.0),
        ("what moves, and what never does", [np.isfinite(part).tolist() for part in convergence(beside)], halves),
    ]
    yield as_documented(rows, "gibbs", "sizes")
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


@check(
    "identity/gibbs-probit/started_auxiliaries",
    paper="wenzel2019",
    question="Do auxiliaries of two classes start on the side of their labels, whatever was drawn for them?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import multinomial_probit

    y = np.array([0, 1, 1, 0])
    drawn = np.array([[0.3, -0.4, 1.2, -2.0], [-0.7, 0.1, -0.2, 0.9]])
    model: Any = SimpleNamespace(conditionals=SimpleNamespace(chol_cov=None), binary=True, y=y, gain=None, root=None)
    with mock.patch.multiple(multinomial_probit, overdispersed=lambda *_: drawn, draw_latent=lambda *_: drawn):
        state = multinomial_probit._Probit.start(model, np.random.default_rng(0), 2)
    wanted = np.where(y == 1, np.abs(drawn), -np.abs(drawn))
    yield flaws(not np.array_equal(state["auxiliary"], wanted), f"{state['auxiliary']}", "gibbs", "starts")


@check(
    "invariance/gibbs-threshold/masses_of_classes",
    paper="villacampa2017",
    question="Are class probabilities normalised draw by draw, whatever their sum, and the sums told?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains import moments
    from gibbs.models import hyper, multinomial_probit, pairwise, softmax, threshold

    lengths: dict[str, Any] = {"n_chains": 2, "n_draws": 4, "n_warmup": 2}
    learnt = lengths | {"learn": ("noise",), "hyperprior": {"noise": ("log-normal", 0.5, 0.3)}, "n_steps": 2}
    for method, likelihood, options, module, name in (
        ("gibbs-pairwise", "threshold", lengths, pairwise, "argmax_probability"),
        ("gibbs-probit", "multinomial-probit", lengths, multinomial_probit, "argmax_probability"),
        ("gibbs-threshold", "threshold", lengths, threshold, "argmax_probability"),
        ("mh-softmax", "softmax", lengths, softmax, "softmax_probability"),
        ("gibbs-probit", "multinomial-probit", learnt, hyper, "argmax_probability"),
    ):
        entry = Sampler(method, Few(likelihood), options)
        whole = sampled(entry, 38)
        function = getattr(module, name)

        def more(mean: Array, var: Array, function: Any = function) -> Array:
            """Five quarters of what they are where the first class has less than the third, which is some draws."""
            value = np.asarray(function(mean, var))
            return value * np.where(mean[:, :1] < mean[:, 2:3], 1.25, 1.0)

        with mock.patch.object(module, name, more):
            scaled = sampled(entry, 38)
        what = f"{method}{', parameters sampled' if options is learnt else ''}"
        gap = own.difference(scaled.probabilities, whole.probabilities)
        yield Compared(gap, 1e-9, f"{what}: probabilities", "gibbs", "gibbs", "absolute")
        share = (scaled.probability_mass - whole.probability_mass) / 0.25  # of the draws
        draws = 8.0 * share
        wrong = int(np.any(np.abs(draws - draws.round()) > 1e-6)) + int(np.any(whole.probability_mass > 1.0 + 1e-6))
        wrong += int(not 0.0 < share.mean() <= 1.0)
        yield flaws(wrong, f"{what}: sums before, {draws.round(2).tolist()} of eight draws raised", "gibbs", "sums")
    # of so many draws that only every second one is asked for its probabilities: batches are of several draws there
    few_batches = {"_IN_ALL": 4, "_FEWEST": 2}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(softmax, "_PROBABILITY_DRAWS", 16))
        for limit, value in few_batches.items():
            stack.enter_context(mock.patch.object(moments, limit, value))
        thinned = sampled(Sampler("mh-softmax", Few("softmax"), lengths | {"n_draws": 24}), 38)
    gap = max(
        own.difference(told, np.ones(1)) for told in (thinned.probability_mass, thinned.probabilities.sum(axis=1))
    )
    yield Compared(gap, 1e-6, "mh-softmax, every third draw: sums", "gibbs", "definition", "absolute")


@check(
    "identity/gibbs-logit/longest_run",
    paper="wenzel2019",
    question="Does a run whose target stays out of reach end after a hundred times its draws, or where it was told?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains import chain

    rows: list[tuple[str, object, object]] = []
    for n_draws, most, reached, wanted in (
        (4, None, 0.0, (400, False)), (5, 12, 0.0, (12, False)), (4, None, 5.0, (4, True)),
        (4, 40, np.nan, (40, False)),
    ):  # fmt: skip

        def effective(_kept: State, _every: int, reached: float = reached) -> float:
            return reached

        plan, measures = chain.Plan(n_draws, 1, target_ess=5.0, max_draws=most), chain.Measures(effective=effective)
        done = chain.run({"x": np.zeros((2, 1))}, _step, _record, {}, plan, measures=measures)
        rows.append((f"{n_draws} draws, at most {most}, {reached:g} of 5", (done.n_draws, done.target_reached), wanted))
        rows.append((f"{n_draws} draws, at most {most}: sweeps", done.n_sweeps, 1 + wanted[0]))
    yield as_documented(rows, "gibbs", "runs")


@check(
    "identity/exact-probit/better_of_two",
    paper="riihimaki2013",
    question="Is log Z the better known of two where proposals of the draws do not know it well enough?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import exact_probit

    few = Few("probit")
    entry = Sampler("exact-probit", few, {"n_draws": 50, "target_error": 1e-9})
    rows: list[tuple[str, object, object]] = []
    first = sampled(Sampler("exact-probit", few, {"n_draws": 50, "target_error": 10.0}), 43)
    given: list[float] = []
    for name, error in (("better", 0.1), ("worse", 10.0)):
        other = exact_probit.Probability(-5.0, error * first.log_evidence_se, 0.0, 0.5, 99)

        def more(*_: Any, target_error: float, max_proposals: int, other: Any = other) -> Any:
            given.append(target_error)
            return other

        with mock.patch.object(exact_probit, "log_probability", more):
            result = sampled(entry, 43)
        wanted = (-5.0, other.standard_error) if error < 1.0 else (first.log_evidence, first.log_evidence_se)
        rows.append((f"the second is {name}", (result.log_evidence, result.log_evidence_se), wanted))
    rows.append(("errors that were asked for", given, [1e-9, 1e-9]))
    yield as_documented(rows, "gibbs", "answers")
