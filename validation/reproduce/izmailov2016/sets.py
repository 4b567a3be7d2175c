"""izmailov2016, section 5.2: which of five methods is sooner at its accuracy, and how good that is, on six sets."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from validation.datasets import load
from validation.datasets.splits import standardise, train_test_split
from validation.door import arguments
from validation.reproduce import decisions
from validation.reproduce.classifiers import tractable_classifier
from validation.reproduce.decisions import Decided, above, below, surely
from validation.reproduce.experiment import Outcome, Say, Table, experiment
from validation.reproduce.printed import rows_taken
from validation.reproduce.protocols import accuracy_against_time
from validation.reproduce.wenzel2019.table1 import binary, smaller

Array = NDArray[np.float64]
SETS = ("german20", "svmguide1", "magic", "ijcnn1", "cod_rna", "skin_nonskin")
METHODS = ("svi", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor")
_THREE = ("vi-jj", "vi-jj-hybrid", "vi-taylor")
_NEAR = 0.01  # of the final accuracy: what counts as there
_FACTOR = 3.0  # of times that are alike
_MISSING = "a8a has no copy at hand"


class Runs(NamedTuple):
    """One method on one data set, a row a split and a column a number of iterations."""

    seconds: Array
    accuracy: Array

    @property
    def final(self) -> list[float]:
        """Accuracy after the most iterations."""
        return [float(x) for x in self.accuracy[:, -1]]

    @property
    def first(self) -> list[float]:
        """Accuracy after the fewest."""
        return [float(x) for x in self.accuracy[:, 0]]

    @property
    def log_time(self) -> list[float]:
        """Log seconds of the shortest run whose accuracy is near the final one."""
        there = self.accuracy >= self.accuracy[:, -1:] - _NEAR
        return [float(np.log(row[np.argmax(near)])) for row, near in zip(self.seconds, there, strict=True)]

    def at(self, seconds: Array) -> list[float]:
        """Accuracy of the longest run that takes no more than so many seconds (a split each), or of the shortest."""
        within = np.maximum((self.seconds <= seconds[:, None]).sum(axis=1) - 1, 0)
        return [float(row[k]) for row, k in zip(self.accuracy, within, strict=True)]


def runs_of(
    splits: Iterable[tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]],
    budgets: Mapping[str, Sequence[int]],
    *,
    m: int,
    steps: int,
    seed: int,
) -> dict[str, Runs]:
    """Methods with m cluster centres over splits, each with its numbers of iterations; for svi, `steps` steps each."""
    kept: dict[str, list[tuple[Array, Array]]] = {method: [] for method in budgets}
    for k, split in enumerate(splits):
        for method, numbers in budgets.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # runs are cut short on purpose
                kept[method].append(
                    accuracy_against_time(
                        lambda budget, method=method, k=k: tractable_classifier(  # type: ignore[misc]
                            method, n_inducing=m, max_iter=budget * (steps if method == "svi" else 1), seed=seed + k
                        ),
                        numbers, *split,
                    )
                )  # fmt: skip
    return {method: Runs(*map(np.array, zip(*pairs, strict=True))) for method, pairs in kept.items()}


def _spread(runs: Mapping[str, Runs], methods: Sequence[str]) -> float:
    means = [np.mean(runs[method].final) for method in methods]
    return float(max(means) - min(means))


def _factor(runs: Mapping[str, Runs], methods: Sequence[str]) -> float:
    means = [np.mean(runs[method].log_time) for method in methods]
    return float(np.exp(max(means) - min(means)))


def _sooner(claim: str, name: str, runs: Mapping[str, Runs], quick: str, slow: str) -> Decided:
    text = f"{name}: log time to its final accuracy - {_NEAR:g}, {quick} less {slow}"
    return surely(claim, text, runs[quick].log_time, runs[slow].log_time)


def _fails(claim: str, name: str, runs: Mapping[str, Runs]) -> Decided:
    text = f"{name}: final accuracy of vi-jj-full less that of vi-jj-hybrid, .02 put aside"
    return surely(claim, text, runs["vi-jj-full"].final, runs["vi-jj-hybrid"].final, -0.02)


def decide(value: Mapping[str, Mapping[str, Runs]]) -> list[Decided]:
    """What section 5.2 says of Fig. 4 to 6 and in its end, by data set and method; needs SETS and two splits."""
    german, guide, magic, ijcnn, cod, skin = (value[name] for name in SETS)
    others = [method for method in METHODS if method != "svi"]

    def alike(claim: str, name: str, methods: Sequence[str], near: float = _NEAR) -> Iterable[Decided]:
        yield below(claim, f"{name}: range of final accuracies of {', '.join(methods)}", _spread(value[name], methods),
                    near)  # fmt: skip
        yield below(claim, f"{name}: largest ratio of their times", _factor(value[name], methods), _FACTOR)

    def missing(claim: str) -> Decided:
        return Decided(claim, _MISSING, float("nan"), float("nan"), None)

    most = len(SETS) / 2.0
    close = sum(_spread(value[name], ("svi", *_THREE)) < 0.02 for name in SETS)
    best = sum(min(np.mean(value[name][m].log_time) for m in _THREE) <= np.mean(value[name]["svi"].log_time)
               for name in SETS)  # fmt: skip
    listed = [
        *(_sooner("fig4-german", "german20", german, method, "svi") for method in others),
        below("fig4-german", "german20: largest ratio of the other four's times", _factor(german, others), _FACTOR),
        *(_sooner("fig4-svmguide", "svmguide1", guide, quick, slow) for slow in ("vi-jj-full", "svi")
          for quick in _THREE),
        *(surely("fig5-magic-start", f"magic: accuracy after one iteration, {method} less svi after the same time",
                 magic[method].first, magic["svi"].at(magic[method].seconds[:, 0]))
          for method in ("vi-jj", "vi-taylor")),
        *(_sooner("fig5-magic-start", "magic", magic, method, "svi") for method in ("vi-jj", "vi-taylor")),
        *(surely("fig5-magic-hybrid", f"magic: accuracy after the first iteration, {method} less vi-jj-hybrid",
                 magic[method].first, magic["vi-jj-hybrid"].first) for method in ("vi-jj", "vi-taylor")),
        below("fig5-magic-hybrid", "magic: range of final accuracies of the three", _spread(magic, _THREE), _NEAR),
        *alike("fig5-ijcnn-hybrid", "ijcnn1", _THREE),
        _fails("fig5-full-fails", "magic", magic),
        _fails("fig5-full-fails", "ijcnn1", ijcnn),
        _fails("fig6-full-fails", "cod_rna", cod),
        _fails("fig6-full-fails", "skin_nonskin", skin),
        *alike("fig6-others-alike", "cod_rna", ("svi", *_THREE)),
        *alike("fig6-others-alike", "skin_nonskin", ("svi", *_THREE)),
    ]  # fmt: skip
    listed += [
        surely("as-good-or-better", f"{name}: final accuracy of svi less that of {method}, .01 put aside",
               value[name]["svi"].final, value[name][method].final, _NEAR) for name in SETS for method in _THREE
    ]  # fmt: skip
    listed += [
        above("alike-in-general", "data sets of six on which four methods end within .02", close, most),
        above("no-tuning", "data sets of six on which the soonest of the three is not later than svi", best, most),
        _sooner("hybrid-against-svi", "skin_nonskin", skin, "svi", "vi-jj-hybrid"),
        *(_sooner("hybrid-against-svi", name, value[name], "vi-jj-hybrid", "svi") for name in SETS[:-1]),
        *(one for name in SETS for one in alike("jj-taylor-against-hybrid", name, _THREE)),
        missing("jj-taylor-against-hybrid"),
        _sooner("svi-small-and-big", "german20", german, "vi-jj-hybrid", "svi"),
        _sooner("svi-small-and-big", "svmguide1", guide, "vi-jj-hybrid", "svi"),
        below("svi-small-and-big", "skin_nonskin: time of the soonest other over svi's",
              float(np.exp(min(np.mean(skin[m].log_time) for m in others) - np.mean(skin["svi"].log_time))), _FACTOR),
        *(below("full-small-and-a8a", f"{name}: best final accuracy of the others less that of vi-jj-full",
                max(float(np.mean(value[name][m].final)) for m in METHODS if m != "vi-jj-full")
                - float(np.mean(value[name]["vi-jj-full"].final)), _NEAR) for name in SETS[:2]),
        *(above("full-small-and-a8a", f"{name}: best final accuracy of the others less that of vi-jj-full",
                max(float(np.mean(value[name][m].final)) for m in METHODS if m != "vi-jj-full")
                - float(np.mean(value[name]["vi-jj-full"].final)), 0.02) for name in SETS[2:]),
        missing("full-small-and-a8a"),
    ]  # fmt: skip
    return listed


@dataclass(frozen=True, kw_only=True)
class SetsOptions:
    """Options of `sets`."""

    datasets: Sequence[str] = SETS
    m: int = 50
    n_max: int = 2000
    n_run: int = 4
    budgets: Sequence[int] = (1, 2, 4, 8, 16, 32)
    steps: int = 100
    seed: int = 0


@experiment(
    "izmailov2016",
    "sets",
    "accuracy and time of five methods on six data sets, over splits",
    "vi-JJ, vi-Taylor and vi-JJ-hybrid end where svi does and mostly sooner; vi-JJ-full does on small sets only "
    "(section 5.2, Fig. 4 to 6)",
    cells=lambda asked: len(asked.datasets) * len(METHODS),
)
def sets(asked: SetsOptions, say: Say) -> Outcome:
    """Each method with m cluster centres on n_run splits; svi makes `steps` steps for each iteration of the others."""
    arguments.integer(asked.n_run, "n_run", at_least=1)
    value: dict[str, dict[str, Runs]] = {}
    rows: list[tuple[object, ...]] = []
    notes: list[str] = []
    for name in asked.datasets:
        full = load(arguments.string(name, "datasets"))
        data, how = binary(full)
        data = smaller(data, arguments.integer(asked.n_max, "n_max", at_least=20), asked.seed)
        notes += [how] if how else []
        notes += rows_taken(data, full, "n_max", name=name)
        splits = []
        for k in range(asked.n_run):
            split = train_test_split(data, asked.seed + k, test_size=0.2)  # as the paper where a set has no test part
            X, X_test = standardise(data.X[split.train], data.X[split.test])
            splits.append((X, data.y[split.train], X_test, data.y[split.test]))
        budgets = dict.fromkeys(METHODS, asked.budgets)
        value[name] = runs_of(splits, budgets, m=asked.m, steps=asked.steps, seed=asked.seed)
        for method, runs in value[name].items():
            deviation = float(np.std(runs.final, ddof=1)) if asked.n_run > 1 else None
            rows.append((name, method, data.n, asked.n_run, float(np.mean(runs.final)), deviation,
                         float(np.exp(np.mean(runs.log_time))), float(runs.seconds[:, -1].mean())))  # fmt: skip
            say(f"{name}, {method}: accuracy {rows[-1][4]:.3f}, there after {rows[-1][6]:.2f} s")
    message: tuple[Table, ...] = ()
    if asked.n_run > 1 and set(SETS) <= value.keys():
        message = (decisions.table(decide(value), "What section 5.2 says of the curves"),)
    notes.append("hyper-parameters are learned from the training rows; each number of iterations is a run of its own")
    notes.append(f"there: within {_NEAR:g} of the method's own final accuracy; seconds are of this machine")
    return Outcome(
        {
            "inducing points": asked.m,
            "iterations": ", ".join(map(str, asked.budgets)),
            "svi": f"{asked.steps} steps of AdaDelta for each iteration of the others",
            "splits": asked.n_run,
            "seed": asked.seed,
        },
        (
            Table(
                "sets",
                ("data", "method", "n", "splits", "accuracy", "± sd", "seconds until there", "seconds in all"),
                tuple(rows),
                "After the most iterations, means over splits",
            ),
            *message,
        ),
        (),
        tuple(dict.fromkeys(notes)),
    )
