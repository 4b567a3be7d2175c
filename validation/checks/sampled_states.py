"""What chains hand on from sweep to sweep, and what is made of their draws: states, summaries, marks of a run.

States are watched while they are made; summaries are held against their definitions on numbers that the judge draws.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check, flaws
from validation.checks.few_data import Few
from validation.checks.standard_errors import DISTRIBUTIONS, Sampler, sampled
from validation.problem import Problem

Array = NDArray[np.float64]

_METHODS = {"logit": "gibbs-logit", "probit": "gibbs-probit", "threshold": "gibbs-threshold", "softmax": "mh-softmax"}


def _forms(state: Mapping[str, Array]) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (value.shape, str(value.dtype)) for name, value in state.items()}


@check(
    "invariance/gibbs-logit/states",
    paper="riihimaki2013",
    question="Does every sweep hand on a state of one form, with counts that begin at zero?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import hyper_models

    model = hyper_models.HyperModel
    start, step = model.start, model.step
    rows: list[tuple[str, object, object]] = []
    for likelihood, method in _METHODS.items():
        states: list[dict[str, Array]] = []

        def started(*given: Any, states: list[dict[str, Array]] = states, **more: Any) -> Any:
            states.append(start(*given, **more))
            return states[-1]

        def stepped(*given: Any, states: list[dict[str, Array]] = states, **more: Any) -> Any:
            states.append(step(*given, **more))
            return states[-1]

        options = {"n_chains": 2, "n_draws": 8, "n_warmup": 8, "hyperprior": DISTRIBUTIONS, "n_steps": 2}
        sampler = Sampler(method, Few(likelihood), options | {"learn": ("variance", "noise")})
        with mock.patch.object(model, "start", started), mock.patch.object(model, "step", stepped):
            sampled(sampler, 3)
        first, later = states[0], states[1:]
        counts = [name for name in first if name in ("sweep", "acceptance", "taken") or name.startswith("refused")]
        begun = sorted(name for name in counts if np.any(first[name]))
        other = sorted({name for each in later for name in first if _forms(each).get(name) != _forms(first)[name]})
        # for the first quarter of a warm-up, and at most twenty sweeps, parameters stay where they are
        refused = [float(np.abs(each["refused_slice"]).max()) for each in later[:2]]
        still = [k for k in range(1, 9) if np.array_equal(states[k]["hyper"], states[k - 1]["hyper"])]
        rows += [
            (f"{likelihood}: sweeps that hold the parameters", still, [1, 2]),
            (f"{likelihood}: counts that do not begin at zero", begun, []),
            (f"{likelihood}: entries of another form after a sweep", other, []),
            (f"{likelihood}: refused while parameters are held", refused, [0.0, 0.0]),
            (f"{likelihood}: sweeps", [float(each["sweep"][0]) for each in states], list(map(float, range(17)))),
        ]
    yield as_documented(rows, "gibbs", "states")


@check(
    "identity/mh-softmax/warm_up_ends",
    paper="riihimaki2013",
    question="Are steps learnt in the last sweep of a warm-up, and no longer in the first draw?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import hyper_models, softmax

    hyper: Any = SimpleNamespace(
        n_warmup=100,
        _sweep=lambda state, rngs, held: {"acceptance": np.full((2, 1), 0.3), "taken": np.full(2, 0.2)},
    )
    rows: list[tuple[str, object, object]] = []
    for sweeps, learnt in ((99.0, True), (100.0, False)):
        state = {"sweep": np.full(2, sweeps), "log_step": np.full((2, 1), -2.0), "log_turn": np.full(2, -5.0)}
        new = hyper_models.HyperModel.step(hyper, state, {})
        gain = (sweeps + 1.0) ** -0.6 if learnt else 0.0
        wanted = [-2.0 - 0.5 * gain, -5.0 - 0.6 * gain]
        came = [float(new["log_step"][0, 0]), float(new["log_turn"][0])]
        rows.append((f"parameters after {sweeps:g} of 100: learnt", bool(np.allclose(came, wanted, 1e-12, 0.0)), True))
        given: Any = SimpleNamespace(
            n_warmup=100, moves=(), shift=None, target=SimpleNamespace(latent=lambda white: white)
        )
        seen: list[float] = []
        given._adapt = lambda new, seen=seen: seen.append(float(new["sweep"][0]))
        before = {"white": np.zeros((2, 3)), "sweep": np.array([sweeps])}
        with mock.patch.object(softmax, "draw_shift", lambda rng, latent, shift: latent):
            softmax._Softmax.step(given, before, {"shift": None})  # type: ignore[dict-item]
        rows.append((f"latent values after {sweeps:g} of 100: learnt", seen, [sweeps + 1.0] if learnt else []))

        # the watch over a warm-up never ends one in which steps are learnt: they are a trend there, and zero after it
        kept = {"contrast": np.zeros((2, 1)), "log_joint": np.zeros(2)}
        given.record = lambda state, kept=kept: SimpleNamespace(kept=kept)
        monitored = softmax._Softmax.monitor(given, {"white": np.zeros((2, 3)), "sweep": np.array([sweeps + 1.0])})
        trend = monitored["adapting"].tolist()
        rows.append((f"a trend after sweep {sweeps + 1.0:g}", trend, [sweeps + 1.0 if learnt else 0.0] * 2))

    # a reference is fitted again where a share of the warm-up is a sweep; a warm-up without one keeps no sums for it
    for n_warmup in (0, 1, 2, 100):
        sampler: Any = SimpleNamespace(n_warmup=n_warmup)
        refits = softmax._Softmax._refits(sampler)
        at = [int(share * n_warmup) for share in softmax._REFITS]
        rows.append((f"references fitted again in {n_warmup} sweeps", refits, [sweep for sweep in at if sweep]))
    yield as_documented(rows, "gibbs", "sweeps")


@check(
    "identity/gibbs-logit/hyper_summary",
    paper="riihimaki2013",
    question="Is everything that is told of draws over parameters what its name says, for every latent function?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains.diagnostics import standard_error
    from gibbs.models import hyper

    rng = np.random.default_rng(5)
    r, s, L, B, d, n, t, m, C = 4, 12, 4, 2, 2, 3, 2, 2, 4
    kept = {
        "hyper": rng.gamma(2.0, size=(r, s, B, d + 2)),
        "latent": rng.standard_normal((r, s, L, n)),
        "latent_mean": rng.standard_normal((r, s, L, n)),
        "latent_var": rng.gamma(2.0, size=(r, s, L, n)),
        "test_mean": rng.standard_normal((r, s, L, t)),
        "test_var": rng.gamma(2.0, size=(r, s, L, t)),
        "inducing_mean": rng.standard_normal((r, s, L, m)),
        "probability": rng.random((r, s, t, C)),
        "log_joint": rng.standard_normal((r, s)),
    }
    # the second chain's parameter of the second block and one latent value rest in a third of the steps
    kept["hyper"][1, 5:9, 1, -1] = kept["hyper"][1, 4, 1, -1]
    kept["latent"][2, 5:9, 3, 1] = kept["latent"][2, 4, 3, 1]
    totals = {
        "mass": s * rng.random((r, t)), "inducing_cov": s * rng.random((r, L, m, m)),
        "acceptance": s * rng.random((r, B)), "log_step": s * rng.standard_normal((r, B)),
        "refused_gradient": rng.random((r, B)), "refused_slice": rng.random((r, B)),
    }  # fmt: skip
    model: Any = SimpleNamespace(n_latents=L, hyper=np.zeros((B, d + 2)), columns=(0, d + 1))
    finished: Any = SimpleNamespace(kept=kept, totals=totals, n_sweeps=50, seconds=2.0)
    plan: Any = SimpleNamespace(n_draws=s, thin=3)
    told = hyper._summary(model, finished, ("variance", "lengthscales", "noise"), plan, r)

    def of_draws(values: Array) -> Array:
        return np.asarray(values.mean(axis=(0, 1)))

    def error(values: Array) -> Array:
        return np.asarray(standard_error(values))

    def moments(mean: Array, var: Array) -> tuple[Array, Array, Array, Array]:
        """Mean and covariance of each point's latent values over draws of their conditional moments."""
        means, variances = np.swapaxes(mean, 2, 3), np.swapaxes(var, 2, 3)
        gap = means - of_draws(means)
        terms = np.stack([
            np.stack([gap[..., a] * gap[..., b] + (variances[..., a] if a == b else 0.0) for b in range(L)], -1)
            for a in range(L)
        ], -2)  # fmt: skip
        return of_draws(means), error(means), of_draws(terms), error(terms)

    wanted: dict[str, Any] = {}
    for name, where in (("variance", 0), ("lengthscales", slice(1, 1 + d)), ("noise", 1 + d)):
        draws = kept["hyper"][..., where]
        logs = np.log(draws)
        # each block of parameters belongs to L / B latent functions in a row
        for what, values in (
            ("hyper_mean", draws), ("log_hyper_mean", logs), ("log_hyper_var", (logs - of_draws(logs)) ** 2),
        ):  # fmt: skip
            wanted[f"{what}.{name}"] = np.stack([of_draws(values)[b * B // L] for b in range(L)])
            wanted[f"{what}_se.{name}"] = np.stack([error(values)[b * B // L] for b in range(L)])
        wanted[f"hyper_draws.{name}"] = draws
    names = ("latent_mean", "latent_mean_se", "latent_cov", "latent_cov_se")
    wanted |= dict(zip(names, moments(kept["latent_mean"], kept["latent_var"]), strict=True))
    wanted |= {f"test_{name}": value
               for name, value in zip(names, moments(kept["test_mean"], kept["test_var"]), strict=True)}  # fmt: skip
    u = kept["inducing_mean"]
    gap = u - of_draws(u)
    spread = np.array([np.cov(gap[:, :, k].reshape(-1, m).T, bias=True) for k in range(L)])
    wanted |= {
        "inducing_mean": of_draws(u),
        "inducing_mean_se": error(u),
        "inducing_cov": totals["inducing_cov"].sum(axis=0) / (r * s) + spread,
        "probabilities": of_draws(kept["probability"]),
        "probabilities_se": error(kept["probability"]),
        "probability_mass": totals["mass"].sum(axis=0) / (r * s),
        "latent_draws": np.swapaxes(kept["latent"], 2, 3),
        "log_joint": kept["log_joint"],
        "acceptance": totals["acceptance"].sum() / (r * B * s),
        "step_size": np.exp(totals["log_step"] / s),
        "refused.gradient": totals["refused_gradient"].sum() / (r * B * s),
        "refused.slice": totals["refused_slice"].sum() / (r * B * s),
        "movement": np.array([1.0, 1.0 - 4.0 / (s - 1), 1.0 - 4.0 / (s - 1), 1.0]),
        "n_sweeps": 50,
        "seconds": 2.0,
        "sweeps_per_second": 25.0,
    }
    rows: list[tuple[str, object, object]] = []
    for name, value in wanted.items():
        field, _, part = name.partition(".")
        came = getattr(told, field)[part] if part else getattr(told, field)
        same = np.shape(came) == np.shape(value) and bool(np.allclose(came, value, 1e-11, 1e-11))
        rows.append((f"{name}: as defined", same, True))
    rows += [("settled", told.settled, True), ("gate", told.gate, False)]
    yield as_documented(rows, "gibbs", "fields")


@check(
    "exactness/gibbs-logit/ensemble_errors",
    paper="wenzel2019",
    question="Are moments of an ensemble, and their errors, those of the series of its averages?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains.diagnostics import standard_error
    from gibbs.models.ensemble import sample_ensemble

    K = np.array([[1.2, 0.4, 0.1], [0.4, 0.9, 0.3], [0.1, 0.3, 1.5]])
    told = sample_ensemble(
        np.random.default_rng(2), K, np.array([1.0, -1.0, 1.0]), n_walkers=10, n_draws=24, n_warmup=3
    )
    draws = np.asarray(told.draws)
    squares = (draws - draws.mean(axis=(0, 1))) ** 2
    wanted = {
        "latent_mean": draws.mean(axis=(0, 1)),
        "latent_var": squares.mean(axis=(0, 1)),
        # walkers depend on one another: what is averaged over them is one series
        "latent_mean_se": standard_error(draws.mean(axis=1)[None]),
        "latent_var_se": standard_error(squares.mean(axis=1)[None]),
    }
    for name, value in wanted.items():
        came = np.asarray(getattr(told, name))
        gap = float(np.abs(came - value).max()) if came.shape == value.shape else np.inf
        yield Compared(gap, 1e-12, f"{name} of an ensemble of ten walkers", "gibbs", "definition", "absolute")


@check(
    "identity/gibbs-logit/marks_of_a_run",
    paper="wenzel2019",
    question="Does a run's mark know names in any order, and its refusal say what is another?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains import checkpoint

    numbers = np.arange(3.0)
    settings: dict[str, object] = {"seed": 3, "moves": ["flow"], "thin": 2}
    arrays = {"X": numbers, "y": np.arange(2)}
    mark = checkpoint.fingerprint(settings, arrays)
    turned = checkpoint.fingerprint(dict(reversed(settings.items())), dict(reversed(arrays.items())))
    yield flaws(mark != turned, "names in another order are the same run", "gibbs", "marks")

    rows: list[tuple[str, object, object]] = [
        ("names of the mark", sorted(json.loads(mark)),
         ["arrays.X", "arrays.y", "settings.moves", "settings.seed", "settings.thin"]),
    ]  # fmt: skip
    others: dict[str, tuple[dict[str, object], dict[str, Any]]] = {
        "thin = 3 instead of 2": ({"thin": 3}, {}),
        "moves = ['scaled'] instead of ['flow']": ({"moves": ["scaled"]}, {}),
        "another X": ({}, {"X": numbers + 1.0}),
        "another X, seed = 4 instead of 3, thin = 1 instead of 2": ({"seed": 4, "thin": 1}, {"X": numbers[:2]}),
        # the same numbers of another type, or in another shape
        "another y": ({}, {"y": np.arange(2.0)}),
        "another X, another y": ({}, {"X": numbers[None], "y": np.arange(2)[:, None]}),
    }
    for wanted, (by_settings, by_arrays) in others.items():
        other = checkpoint.fingerprint(settings | by_settings, arrays | by_arrays)
        try:
            checkpoint._same("run.npz", other, mark)
            why = "taken"
        except ValueError as error:
            why = str(error)
        start = f"checkpoint: found run.npz of another run ({wanted}), expected one of the same inputs"
        rows.append((f"refused for {wanted}", why.startswith(start), True))
    for text in ("", "[1]", "3"):
        try:
            checkpoint._same("run.npz", text, mark)
            why = "taken"
        except ValueError as error:
            why = str(error)
        # a file without a mark is of no run that is known
        rows.append((f"a mark of {text!r}", why.startswith("checkpoint: found run.npz of another run ("), True))
    yield as_documented(rows, "gibbs", "marks")
