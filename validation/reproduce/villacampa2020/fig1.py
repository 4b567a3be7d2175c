"""villacampa2020, section 5.1 and appendix D, Fig. 1 and D.8: ranks of alphas and of methods on eight data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr

from validation.claims.verdict import CONFIDENCE
from validation.datasets.dataset import Dataset
from validation.door import arguments
from validation.jobs.each import each
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, above, below, surely
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.printed import option, rows_taken
from validation.reproduce.villacampa2020 import plots, setting, uci

Array = NDArray[np.float64]
Settings = NDArray[np.int64]  # indices of settings, as drawn
_DRAWS = 400
_DIGITS = 9  # methods that are one at alpha = 0 differ by rounding, which is no reason for a rank


class Scores(NamedTuple):
    """Scores of all methods and alphas in one setting; infinite where there is no optimum."""

    nll: Array  # (methods, alphas)
    wrong: Array  # wrong labels
    n_test: int
    seconds: Array
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Fig1Options:
    """Options of `fig1`."""

    datasets: Sequence[str] = option(("new_thyroid", "wine"), uci.DATASETS, "data sets")
    methods: Sequence[str] = setting.METHODS
    alphas: Sequence[float] = option((0.0, 0.5, 1.0), setting.ALPHAS, "alphas")
    fractions: Sequence[float] = option((0.05,), uci.FRACTIONS, "shares of inducing points")
    n_run: int = option(2, 20, "repetitions")
    n_steps: int = option(50, 500, "steps")
    n_max: int = 1000
    optimizer: str = "adaptive"
    rate: float = 0.01
    damping: float = 0.5
    n_start: int = 60
    budget: float = option(5.0, np.inf, setting.CUT)
    seed: int = 0


def one_setting(data: Dataset, fraction: float, repetition: int, asked: Fig1Options) -> Scores:
    """All methods and alphas on one split from one start."""
    methods, alphas = asked.methods, asked.alphas
    shape = (len(methods), len(alphas))
    nll, wrong, seconds = np.empty(shape), np.empty(shape), np.empty(shape)
    notes: list[str] = []
    n_test = 0
    for j, alpha in enumerate(alphas):
        plan = uci.uci_protocol(data, fraction, alpha, repetition, seed=asked.seed)
        prior = setting.start(plan.X, plan.n_inducing, data.n_classes, repetition)
        n_test = plan.y_test.size
        for i, method in enumerate(methods):
            chosen = asked.optimizer if method in plan.quasi_newton else "adaptive"
            training = setting.Training(
                n_steps=min(asked.n_steps, plan.n_steps), rate=asked.rate, optimizer=chosen, damping=asked.damping,
                n_start=asked.n_start if method == "pep" else setting.TRAINING.n_start,
            )  # fmt: skip
            watch = setting.Watch(budget=asked.budget, evaluate=False)
            run = setting.train(method, plan.alpha, plan.X, plan.y, prior, training, watch)
            error, score = run.scores(plan.X_test, plan.y_test)
            nll[i, j] = np.round(score, _DIGITS)
            wrong[i, j] = np.rint(error * n_test) if np.isfinite(error) else np.inf
            seconds[i, j] = run.seconds
            notes += run.notes
    return Scores(nll, wrong, n_test, seconds, tuple(notes))


def _best(ranks: Array, alphas: Sequence[float]) -> float:
    """The alpha of the least average rank, (alphas,) ranks."""
    return float(alphas[int(np.argmin(ranks))])


def _often(claim: str, text: str, holds: Callable[[Settings], bool], n: int) -> Decided:
    """That something holds of average ranks, at 95 % over settings drawn again; open where neither it nor its opposite.

    `holds` has the settings of a draw, n of n with repetition.
    """
    rng = np.random.default_rng(0)
    share = float(np.mean([holds(rng.integers(n, size=n)) for _ in range(_DRAWS)]))
    held = True if share >= CONFIDENCE else False if share <= 1.0 - CONFIDENCE else None
    return Decided(claim, f"{text}: share of {_DRAWS} draws of the {n} settings", share, CONFIDENCE, held, n)


def decide(
    results: Mapping[tuple[str, float], Sequence[Scores]], methods: Sequence[str], alphas: Sequence[float]
) -> list[Decided]:
    """What section 5.1 and appendix D say of the ranks, from the scores of each data set and number of points.

    Needs all four methods, 0, 0.5 and 1 among the alphas, and two settings.
    """
    settings = [scores for every in results.values() for scores in every]
    tables = {
        "nll": np.array([each.nll for each in settings]),
        "error": np.array([each.wrong / each.n_test for each in settings]),
    }
    heights = {score: np.asarray(rankdata(table, axis=2)) for score, table in tables.items()}  # (s, methods, alphas)
    means = {score: table.mean(axis=0) for score, table in heights.items()}
    colours = np.asarray(rankdata(tables["nll"], axis=1))  # among methods
    place, scaled = {method: i for i, method in enumerate(methods)}, list(alphas).index(0.5)
    step = float(np.diff(alphas).max())
    of_nll: list[Decided] = []
    of_error: list[Decided] = []

    n = len(settings)

    def best_of(method: str, score: str, drawn: Settings) -> float:
        return _best(heights[score][drawn, place[method]].mean(axis=0), alphas)

    def among(claim: str, method: str, score: str, low: float, high: float) -> Decided:
        best = _best(means[score][place[method]], alphas)
        text = f"{setting.NAMES[method]}: least average rank by {score}, at {best:g} here, at {low:g} to {high:g}"
        return _often(claim, text, lambda drawn: low - 1e-9 <= best_of(method, score, drawn) <= high + 1e-9, n)

    pep = heights["nll"][:, place["pep"]]
    of_nll.append(among("fig1-pep-half", "pep", "nll", 0.4, 0.6))
    of_nll += [
        surely("fig1-pep-half", f"PEP: rank at 0.5 less that at {alphas[j]:g}", pep[:, scaled].tolist(),
               pep[:, j].tolist()) for j in (0, -1)
    ]  # fmt: skip
    of_nll += [among("fig1-apep-arpep", method, "nll", 0.6, 0.8) for method in ("apep", "arpep")]
    of_nll.append(_often(
        "fig1-rpapep-worst", f"RPAPEP has the largest average rank at nine alphas of eleven, here of {len(alphas)}",
        lambda drawn: float(np.mean(colours[drawn].mean(axis=0).argmax(axis=0) == place["rpapep"])) > 8.5 / 11.0, n,
    ))  # fmt: skip
    more: list[Decided] = []
    for score in tables:
        count = 0
        for every in {name for name, _ in results}:
            mine = [s for (name, _), group in results.items() if name == every for s in group]
            for i in range(len(methods)):
                column = np.array([(s.nll if score == "nll" else s.wrong / s.n_test)[i] for s in mine])
                if np.isfinite(column).all() and len(mine) > 1:
                    told = [surely("", "", column[:, scaled].tolist(), column[:, j].tolist()).held for j in (0, -1)]
                    count += all(told)
        text = f"methods on data sets of {len(methods) * len({name for name, _ in results})} whose {score} at 0.5 is "
        more.append(above("half-better", text + "below that at 0 and that at 1, each at 95 %", count, 0.5))
    three = [place[method] for method in ("pep", "apep", "arpep")]
    own = np.asarray(rankdata(tables["nll"][:, three], axis=1))
    mean, error = own.mean(axis=0), own.std(axis=0, ddof=1) / np.sqrt(len(own))
    apart = 0
    for j in range(len(alphas)):
        order = np.argsort(mean[:, j])
        first, second = order[:2]
        apart += bool(mean[first, j] + 1.96 * error[first, j] < mean[second, j] - 1.96 * error[second, j])
    text = "alphas at which the best of PEP, APEP and ARPEP has a 95 % interval of its rank below that of the next"
    more.append(below("no-superior", text, apart, 0.5))
    for score, table in tables.items():
        pair = table[:, [place["apep"], place["arpep"]]]
        gap = np.abs(np.diff(pair.mean(axis=0), axis=0)[0])
        bar = np.hypot(*(pair.std(axis=0, ddof=1) / np.sqrt(len(pair))))
        text = f"largest distance of mean {score} of APEP and ARPEP over alphas, in standard errors of two means"
        more.append(below("apep-arpep-alike", text, float((gap / np.maximum(bar, 1e-12)).max()), 1.0))
    for method in ("pep", "apep"):

        def like(drawn: Settings, i: int = place[method]) -> bool:
            pair = [heights[score][drawn, i].mean(axis=0) for score in tables]
            return float(spearmanr(*pair).statistic) > 0.5

        rho = spearmanr(means["nll"][place[method]], means["error"][place[method]]).statistic
        text = f"{setting.NAMES[method]}: rank correlation of average ranks by nll and error, {rho:.2g} here, above .5"
        of_error.append(_often("figd8-pep-apep", text, like, n))
    of_error.append(among("figd8-arpep", "arpep", "error", 0.8, 0.9))
    for method in methods:

        def near(drawn: Settings, method: str = method) -> bool:
            return abs(best_of(method, "error", drawn) - best_of(method, "nll", drawn)) < step + 1e-9

        ends = " and ".join(f"{_best(means[score][place[method]], alphas):g}" for score in tables)
        text = f"{setting.NAMES[method]}: best alphas by nll and error, {ends} here, a step of {step:g} apart at most"
        of_error.append(_often("ranks-alike", text, near, n))
    return [decisions.figure("fig1", of_nll), *of_nll, *more, decisions.figure("figd8", of_error), *of_error]


@experiment(
    "villacampa2020",
    "fig1",
    "average ranks of alphas and of methods on eight data sets, by log-likelihood and by error",
    "PEP is best near alpha = 0.5, APEP and ARPEP between 0.6 and 0.8, RPAPEP is worse than the others at almost all "
    "alphas; by the test error the same, ARPEP being best at 0.8 or 0.9 (section 5.1, Fig. 1; appendix D, Fig. D.8)",
    in_parts=True,
    cells=lambda asked: len(asked.datasets) * len(asked.fractions),
)
def fig1(asked: Fig1Options, say: Say) -> Outcome:
    """A setting is a data set, a share of inducing points and a repetition."""
    for method in asked.methods:
        arguments.choice(method, setting.METHODS, "methods")
    arguments.integer(asked.n_run, "n_run", at_least=1)
    results: dict[tuple[str, float], list[Scores]] = {}
    notes: list[str] = []
    for name in asked.datasets:
        full = uci.load(name, asked.seed)
        data = setting.smaller(full, arguments.integer(asked.n_max, "n_max", at_least=20), asked.seed)
        notes += rows_taken(data, full, "n_max", name=name)
        for fraction in asked.fractions:
            same = {"data": data, "fraction": fraction, "asked": asked}
            calls = {f"{name}-{fraction:g}-{k}": {**same, "repetition": k} for k in range(asked.n_run)}
            every = each(one_setting, calls, (Scores,))
            results[name, float(fraction)] = every
            notes += [f"{name}: {note}" for scores in every for note in scores.notes]
            best = np.mean([scores.nll for scores in every], axis=0)
            i, j = divmod(int(np.argmin(best)), len(asked.alphas))
            say(
                f"{name}, M = {fraction:.0%}: least nll {best[i, j]:.3f}, {asked.methods[i]} at alpha = "
                f"{asked.alphas[j]:g}"
            )
    settings = [scores for every in results.values() for scores in every]
    by_nll = uci.rank_study(np.array([each.nll for each in settings]))
    by_error = uci.error_rank_experiments([each.wrong for each in settings], [each.n_test for each in settings])
    ranks = [
        (setting.NAMES[method], float(alpha), *(float(part[i, j]) for part in (*by_nll, *by_error)))
        for i, method in enumerate(asked.methods)
        for j, alpha in enumerate(asked.alphas)
    ]
    rows = [
        row
        for (name, fraction), every in results.items()
        for row in _scores(name, fraction, every, asked.methods, asked.alphas)
    ]
    notes += [setting.sweeps(asked.damping, asked.n_start), f"start: {setting.START}", setting.LIMIT, setting.OPTIMISER]
    notes.append("Fig. 1 and D.8 print no numbers")
    message: tuple[Table, ...] = ()
    if set(asked.methods) == set(setting.METHODS) and {0.0, 0.5, 1.0} <= set(asked.alphas) and len(settings) > 1:
        message = (
            decisions.table(decide(results, asked.methods, asked.alphas), "What section 5.1 and appendix D say"),
        )
    return Outcome(
        {
            "data": ", ".join(asked.datasets),
            "settings": f"{len(settings)}: data sets, numbers of inducing points and splits",
            "optimiser": f"{asked.optimizer}, {asked.n_steps} steps, rate {asked.rate:g}",
            "jitter": setting.JITTER,
            "label errors": setting.EPSILON,
            "seed": asked.seed,
        },
        (
            Table(
                "ranks",
                ("method", "alpha", "nll: among alphas", "among methods", "error: among alphas", "among methods "),
                tuple(ranks),
                "Average ranks, 1 the best; ties share the mean of their ranks, no optimum is last",
            ),
            Table(
                "scores",
                ("data", "M", "method", "alpha", "nll", "error", "seconds", "without optimum"),
                tuple(rows),
                "Averages over repetitions that have an optimum",
            ),
            *message,
        ),
        tuple(
            Picture(
                title,
                tuple(setting.NAMES[method] for method in asked.methods),
                tuple(
                    plots.lines(
                        label,
                        [
                            plots.Line(setting.NAMES[method], np.array(asked.alphas, dtype=np.float64), table[i])
                            for i, method in enumerate(asked.methods)
                        ],
                        "alpha",
                        f"fig1-{score}-{k}",
                    )
                    for k, (label, table) in enumerate(
                        zip(("rank among alphas", "rank among methods"), study, strict=True)
                    )
                ),
            )
            for score, title, study in (
                ("nll", "ranks by the negative test log-likelihood (Fig. 1)", by_nll),
                ("error", "ranks by the test error (Fig. D.8)", by_error),
            )
        ),
        tuple(dict.fromkeys(notes)),
    )


def _scores(
    name: str, fraction: float, every: Sequence[Scores], methods: Sequence[str], alphas: Sequence[float]
) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for i, method in enumerate(methods):
        for j, alpha in enumerate(alphas):
            kept = [each for each in every if np.isfinite(each.nll[i, j])]
            means: tuple[object, ...] = (setting.NONE, setting.NONE)
            if kept:
                error = np.mean([each.wrong[i, j] / each.n_test for each in kept])
                means = (float(np.mean([each.nll[i, j] for each in kept])), float(error))
            seconds = float(np.mean([each.seconds[i, j] for each in every]))
            rows.append((name, f"{fraction:.0%}", setting.NAMES[method], float(alpha), *means, seconds,
                         len(every) - len(kept)))  # fmt: skip
    return rows
