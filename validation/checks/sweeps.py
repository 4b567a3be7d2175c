"""Sweeps of chains and rounds of particles, one at a time: where they start, what they keep, what they write and when.

Each is held against the sentence that documents it, with numbers of the judge's own in place of random ones where a
rule can be followed by hand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.by_name import sampler_by_name
from validation.checks import hyper_model as own
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check, flaws
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


# -- islands that others work --------------------------------------------------------------------------------------


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
