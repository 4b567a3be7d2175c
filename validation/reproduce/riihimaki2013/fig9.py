"""riihimaki2013, section 5.5, Fig. 9 to 11: predictive performance on seven data sets, hyper-parameters estimated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from reference.riihimaki2013.priors import log_half_student_t
from validation.datasets.dataset import Dataset
from validation.datasets.splits import Split, duplicate_groups, kfold, standardise, train_test_split
from validation.door import arguments
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.ledger.marker import equation
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, above, alike, below
from validation.reproduce.experiment import Outcome, Say, Table, experiment
from validation.reproduce.published import published
from validation.reproduce.riihimaki2013 import setting
from validation.reproduce.riihimaki2013.comparison import accuracy_comparison, bayesian_bootstrap, outcomes

Array = NDArray[np.float64]
METHODS = ("nested-ep", "nested-iep", "vb-probit", "laplace", "laplace-tkp", "gibbs-probit")
FIELDS = ("variance", "lengthscales")
_DF = 4.0
_REFUSED = 1e12  # for the search, where a method finds no evidence
_LARGEST_FACTOR = float(np.log(1e4))  # from the start, either way


class Predicted(NamedTuple):
    """Held-out labels in the order in which the parts are scored, and what was learned for each part."""

    log_density: Array  # (t,) of the label
    right: Array  # (t,) 1 where it is the likeliest class
    variance: Array  # (parts,) at the mode; exp of the mean logarithm for chains
    lengthscales: Array  # (parts, d)


@equation("riihimaki2013", "u5.5-benchmark")
def benchmark(
    data: Dataset,
    method: str,
    splits: Sequence[Split],
    *,
    ard: bool = True,
    reading: str = "scale squared",
    prior_on: str = "field",
    learn_tolerance: float = 1e-5,
    max_iterations: int = 100,
    options: Mapping[str, Any] | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> Predicted:
    """Log predictive densities and hits on the test part of each split: riihimaki2013, section 5.5.

    Covariates are standardised by the training rows; one variance and one set of lengthscales serve all classes, under
    half-Student-t priors with four degrees of freedom. Approximations take their type-II mode, chains sample it.

    Parameters
    ----------
    data : Dataset
    method : str              nested-ep, nested-iep, vb-probit, laplace, laplace-tkp or gibbs-probit
    splits : Splits           ten folds or one split
    ard : bool                a lengthscale for each covariate, or one for all (approximations only)
    reading : str             of "variance equal to one hundred": "scale squared", "scale" or "moment"
    prior_on : str             "field": the prior of the magnitude is one of σ²; "root": of σ
    learn_tolerance, max_iterations    of the search for the mode
    options : mapping         of the sampler
    """
    arguments.choice(method, METHODS, "method")
    if method == "gibbs-probit" and not ard and data.d > 1:
        raise ValueError(
            "ard: found False for gibbs-probit, expected True: chains have a lengthscale for each covariate"
        )
    scales = {"scale squared": 10.0, "scale": 100.0, "moment": float(np.sqrt(100.0 * (_DF - 2.0) / _DF))}
    distribution = ("half-student-t", _DF, scales[arguments.choice(reading, tuple(scales), "reading")])
    density, right, variances, lengthscales = [], [], [], []
    for k, split in enumerate(splits):
        X, X_test = standardise(data.X[split.train], data.X[split.test])
        start = Problem(
            name=f"{data.name}-{split.train.size}",
            X=X,
            y=data.y[split.train],
            n_classes=data.n_classes,
            likelihood="multinomial-probit",
            variance=4.0,
            lengthscales=np.full(data.d, np.sqrt(data.d)),
            jitter=setting.JITTER,
            shared=True,
            hyperprior={"variance": distribution, "lengthscales": distribution},
            X_test=X_test,
            y_test=data.y[split.test],
        )
        if method == "gibbs-probit":
            answer = setting.answer(method, start, learn=FIELDS, prior_on=prior_on, **(options or {}))
        elif ard:
            answer = setting.answer(
                method, start, learn=FIELDS, prior_on=prior_on, learn_tolerance=learn_tolerance,
                max_iterations=max_iterations,
            )  # fmt: skip
        else:
            answer = _one_lengthscale(method, start, prior_on, learn_tolerance, max_iterations)
        labels = data.y[split.test]
        assert answer.probabilities is not None  # the problem has test inputs
        with np.errstate(divide="ignore"):
            density.append(np.log(setting.of_labels(answer, labels)))
        right.append((answer.probabilities.argmax(axis=1) == labels).astype(np.float64))
        variances.append(float(answer.problem.variance[0]))
        lengthscales.append(answer.problem.lengthscales[0])
        say(
            f"{setting.NAMES[method]}, {data.name}, part {k + 1} of {len(splits)}: "
            f"mlpd {density[-1].mean():.3f}, accuracy {right[-1].mean():.3f}, {answer.seconds:.0f} s"
        )
    return Predicted(np.concatenate(density), np.concatenate(right), np.array(variances), np.array(lengthscales))


def vb_at(data: Dataset, splits: Sequence[Split], held: Predicted) -> Predicted:
    """VB's predictions where another method's search for hyper-parameters ended, part by part."""
    density, right = [], []
    for split, variance, lengthscales in zip(splits, held.variance, held.lengthscales, strict=True):
        X, X_test = standardise(data.X[split.train], data.X[split.test])
        labels = data.y[split.test]
        problem = Problem(
            f"{data.name}-{split.train.size}", X, data.y[split.train], data.n_classes, "multinomial-probit",
            variance, lengthscales, jitter=setting.JITTER, shared=True, X_test=X_test, y_test=labels,
        )  # fmt: skip
        answer = setting.answer("vb-probit", problem)
        assert answer.probabilities is not None  # the problem has test inputs
        with np.errstate(divide="ignore"):
            density.append(np.log(setting.of_labels(answer, labels)))
        right.append((answer.probabilities.argmax(axis=1) == labels).astype(np.float64))
    return Predicted(np.concatenate(density), np.concatenate(right), held.variance, held.lengthscales)


def _one_lengthscale(method: str, start: Problem, prior_on: str, tolerance: float, max_iterations: int) -> Solution:
    """The solution at the type-II mode where all covariates share a lengthscale: L-BFGS-B in (log σ², log l).

    The derivative in log l is the sum over covariates of those that the method gives.
    """
    assert start.hyperprior is not None  # set by the caller
    distributions = dict(start.hyperprior)
    learner = "laplace" if method == "laplace-tkp" else method  # the correction has no evidence of its own
    silent = start.replace(X_test=None, y_test=None)

    def objective(w: Array) -> tuple[float, Array]:
        value, derivative = 0.0, np.zeros(2)
        scales = np.exp(w)
        for j, name in enumerate(FIELDS):
            _, df, scale = distributions[name]
            power = 0.5 if prior_on == "root" and name == "variance" else 1.0
            at_power = scales[j] ** power
            value += log_half_student_t(np.array([at_power]), df, scale)
            derivative[j] = -power * (df + 1.0) * at_power**2 / (df * scale**2 + at_power**2)
        at = silent.replace(variance=scales[0], lengthscales=scales[1])
        answer = setting.answer(learner, at, gradients=True)
        if answer.log_evidence is None or answer.gradients is None:
            return _REFUSED, np.zeros(2)
        derivative[0] += scales[0] * _summed(answer.gradients["variance"], start.shared)
        derivative[1] += scales[1] * _summed(answer.gradients["lengthscales"], start.shared)
        return -(answer.log_evidence + value), -derivative

    first = np.log([start.variance[0], start.lengthscales[0, 0]])
    end = minimize(
        objective, first, jac=True, method="L-BFGS-B",
        bounds=[(x - _LARGEST_FACTOR, x + _LARGEST_FACTOR) for x in first],
        options={"maxiter": max_iterations, "gtol": tolerance, "ftol": 1e-14},
    )  # fmt: skip
    return setting.answer(method, start.replace(variance=np.exp(end.x[0]), lengthscales=np.exp(end.x[1])))


def _summed(gradient: Array, shared: bool) -> float:
    """Over classes and covariates; a shared parameter has its own sum over classes, repeated, in every row."""
    return float(gradient[0].sum() if shared else gradient.sum())


def splits_of(
    name: str, data: Dataset, n_run: int, n: int, n_test: int, seed: int, *, keep_leaks: bool = True
) -> tuple[list[Split], list[str]]:
    """The parts of Table 3, the first n_run of ten folds or one split; at most n and n_test rows of each part.

    keep_leaks: rows of a fold may repeat training rows, as they do in folds at random.
    """
    how = published("riihimaki2013", "text")["table3"].get(name, {"folds": True})
    notes = []
    if how["folds"]:
        splits = list(kfold(data, 10, seed, keep_leaks=keep_leaks))[: arguments.integer(n_run, "n_run", at_least=1)]
        if len(splits) < 10:
            notes.append(f"{name}: {len(splits)} folds of 10, fewer than the paper's")
        equal = data.n - 1 - int(duplicate_groups(data.X).max())
        if equal:
            how_apart = "fall where they may" if keep_leaks else "stay together"
            notes.append(f"{name}: {equal} rows repeat the inputs of others, which {how_apart} in the folds")
    elif data.n_train:
        splits = [train_test_split(data, seed, keep_leaks=True)]  # the paper scores all of the official test part
    else:
        splits = [train_test_split(data, seed, test_size=int(how["n_test"]))]
    cut = [Split(s.train[: max(n, 4)], s.test[: max(n_test, 1)]) for s in splits]
    if any(a.train.size < b.train.size or a.test.size < b.test.size for a, b in zip(cut, splits, strict=True)):
        notes.append(f"{name}: at most {n} training and {n_test} test rows, fewer than the paper's")
    return cut, notes


class Gap(NamedTuple):
    """Mean and 95 % interval of a difference between two methods."""

    mean: float
    low: float
    high: float


def density_gap(left: Predicted, right: Predicted, seed: int) -> Gap:
    """Of log predictive densities, by the Bayesian bootstrap of the paired rows."""
    result = bayesian_bootstrap(left.log_density - right.log_density, seed=seed)
    return Gap(result.mean, result.low, result.high)


def accuracy_gap(left: Predicted, right: Predicted, seed: int) -> Gap:
    """Of accuracies, by the Dirichlet-multinomial model."""
    result = accuracy_comparison(outcomes(left.right, right.right), seed=seed)
    return Gap(result.mean, result.low, result.high)


_SIX = ("new_thyroid", "teaching", "glass", "wine", "segment", "usps-357")
_EP, _IEP, _VB, _LA, _TKP, _MCMC = METHODS
_FOLDS = 10  # that an interval over test rows joins
_ALIKE = 0.02  # within which accuracies and densities are alike; the paper prints no margin
_AT_EP = "vb-probit at nested-ep's"  # VB where EP's search for hyper-parameters ended


def _missing(claim: str, what: str) -> Decided:
    return Decided(claim, f"{what}: not run", float("nan"), float("nan"), None)


def _ahead(claim: str, text: str, value: Gap) -> Decided:
    """That an interval is above zero; it fails where it is below, and is open where it holds zero."""
    held = True if value.low > 0.0 else False if value.high < 0.0 else None
    return Decided(claim, text, value.low, 0.0, held, _FOLDS)


def _behind(claim: str, text: str, value: Gap) -> Decided:
    """The same of an interval below zero."""
    held = True if value.high < 0.0 else False if value.low > 0.0 else None
    return Decided(claim, text, value.high, 0.0, held, _FOLDS)


def decide(found: Mapping[str, Mapping[str, Predicted]], seed: int) -> list[Decided]:
    """What section 5.5 says of Fig. 9 to 11, from the predictions by data set and method: all six sets, and usps.

    All methods but gibbs-probit, which cannot have one lengthscale, have all sets but usps; that has no chains and no
    LA-TKP in the paper.
    """
    names = [name for name in _SIX if name in found]
    chained = [name for name in names if _MCMC in found[name]]

    def gap(name: str, left: str, right: str) -> Gap:
        return density_gap(found[name][left], found[name][right], seed)

    def change(name: str, left: str, right: str) -> Gap:
        return accuracy_gap(found[name][left], found[name][right], seed)

    def mean_of(method: str, against: str, among: Sequence[str]) -> float:
        return float(np.mean([gap(name, method, against).mean for name in among]))

    def accuracy(name: str, method: str) -> float:
        return float(found[name][method].right.mean())

    of_9: list[Decided] = []
    ahead = {name: gap(name, _MCMC, _EP) for name in chained}
    key = "fig9-mcmc-better"
    for name in ("teaching", "segment"):
        text = f"{name}: mlpd of MCMC less EP, lower end"
        of_9.append(_ahead(key, text, ahead[name]) if name in ahead else _missing(key, text))
    others = sum(value.low > 0.0 for name, value in ahead.items() if name not in ("teaching", "segment"))
    of_9.append(below(key, "other sets on which that interval is above zero", others, 0.5))
    of_9 += [
        _behind("fig9-iep-worse", f"{name}: mlpd of IEP less EP, upper end", gap(name, _IEP, _EP))
        for name in names if name not in ("teaching", "glass")
    ]  # fmt: skip
    for method in (_VB, _LA):
        label = setting.NAMES[method]
        own = mean_of(method, _EP, names)
        of_9.append(below("fig9-vb-la-worse", f"{label}: mean over sets of mlpd less EP", own, 0.0))
        of_9.append(below("fig9-vb-la-worse", f"{label}: the same, below that of IEP", own, mean_of(_IEP, _EP, names)))
        of_9.append(
            below("fig9-vb-la-worse", f"{label}: on sets with chains, below that of MCMC",
                  mean_of(method, _EP, chained), mean_of(_MCMC, _EP, chained))
        )  # fmt: skip
    of_9 += [
        above("fig9-tkp", f"{name}: mlpd of LA-TKP less LA", gap(name, _TKP, _LA).mean, 0.0)
        for name in names if name != "teaching"
    ]  # fmt: skip
    far = {
        method: float(np.mean([abs(gap(name, method, _MCMC).mean) for name in chained]))
        for method in (_EP, _IEP, _VB, _LA, _TKP)
    }
    text = "mean over sets of the distance of mlpd to MCMC, EP's below the least of the others"
    of_9.append(below("ep-near-mcmc", text, far[_EP], min(value for method, value in far.items() if method != _EP)))

    of_10: list[Decided] = []
    level = {name: {method: accuracy(name, method) for method in METHODS if method in found[name]} for name in names}
    of_10 += [
        below(
            "fig10-small", f"{name}: range of accuracies", max(level[name].values()) - min(level[name].values()), 0.03
        )
        for name in names
    ]
    key = "fig10-teaching"
    rest = min(level[name][_EP] for name in names if name != "teaching")
    of_10.append(
        below(key, "EP's accuracy on Teaching, below the least of the other sets", level["teaching"][_EP], rest)
    )
    for method in (_EP, _IEP, _VB, _LA, _TKP):
        text = f"teaching: accuracy of MCMC less {setting.NAMES[method]}, lower end"
        chain = "teaching" in chained
        if chain:
            of_10.append(_ahead(key, text, change("teaching", _MCMC, method)))
        else:
            of_10.append(_missing(key, text))
    key = "fig10-ep-iep"
    for name in names:
        value = change(name, _IEP, _EP)
        of_10.append(alike(key, f"{name}: accuracy of IEP less EP", (value.low, value.high), _ALIKE, _FOLDS))
    of_10 += [
        above(key, "wine: accuracy of IEP less EP, as counted", level["wine"][_IEP] - level["wine"][_EP], 0.0),
        *(above(key, f"{name}: accuracy of EP less IEP, as counted", level[name][_EP] - level[name][_IEP], 0.0)
          for name in ("glass", "segment")),
        above("fig10-la-segment", "segment: accuracy of LA, above EP's", level["segment"][_LA], level["segment"][_EP]),
    ]  # fmt: skip
    for name in names:
        value = change(name, _TKP, _LA)
        text = f"{name}: accuracy of LA-TKP less LA"
        of_10.append(alike("fig10-tkp-unnecessary", text, (value.low, value.high), _ALIKE, _FOLDS))
    key = "fig10-vb-lowest"
    overall = {
        method: float(np.mean([level[name][method] for name in names])) for method in (_EP, _IEP, _VB, _LA, _TKP)
    }
    least = min(value for method, value in overall.items() if method != _VB)
    of_10.append(below(key, "mean over sets of VB's accuracy, below the least of the others", overall[_VB], least))
    of_10 += [
        _behind(key, f"{name}: accuracy of VB less {setting.NAMES[method]}, upper end",
              change(name, _VB, method))
        for name in ("segment", "usps-357") for method in (_EP, _IEP, _LA, _TKP)
    ]  # fmt: skip
    moved = float(np.mean([accuracy(name, _AT_EP) - level[name][_VB] for name in names]))
    of_10.append(
        above("fig10-vb-hyper", "mean over sets of VB's accuracy at EP's hyper-parameters less its own", moved, 0.0)
    )

    of_11: list[Decided] = []
    for rival in (_EP, _IEP):
        for method in (_VB, _LA):
            text = f"usps: {setting.NAMES[method]} less {setting.NAMES[rival]}, upper end of"
            ends = {"mlpd": gap("usps", method, rival), "accuracy": change("usps", method, rival)}
            of_11 += [_behind("fig11-ep-significant", f"{text} {score}", value) for score, value in ends.items()]
    density, right = gap("usps", _IEP, _EP), change("usps", _IEP, _EP)
    count = accuracy("usps", _IEP) - accuracy("usps", _EP)
    key = "fig11-ep-iep"
    of_11 += [
        below(key, "usps: mlpd of IEP less EP", density.mean, 0.0),
        above(key, "usps: accuracy of IEP less EP, as counted", count, 0.0),
        alike(key, "usps: mlpd", (density.low, density.high), _ALIKE, _FOLDS),
        alike(key, "usps: accuracy", (right.low, right.high), _ALIKE, _FOLDS),
    ]
    return [
        decisions.figure("fig9", of_9), *of_9, decisions.figure("fig10", of_10), *of_10,
        decisions.figure("fig11", of_11), *of_11,
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Fig9Options:
    """Options of `fig9`."""

    datasets: Sequence[str] = ("new_thyroid", "wine")
    methods: Sequence[str] = METHODS[:4]
    n_run: int = 3
    n: int = 5000
    n_test: int = 5000
    reading: str = "scale squared"
    prior_on: str = "field"
    keep_leaks: bool = True
    max_iterations: int = 100
    n_chains: int = 8
    n_draws: int = 500
    n_warmup: int = 300
    seed: int = 0


@experiment(
    "riihimaki2013",
    "fig9",
    "predictive performance with estimated hyper-parameters",
    "EP is close to MCMC in log predictive density and better than IEP, VB and LA on most sets; LA-TKP improves LA; "
    "classification accuracies hardly differ (section 5.5, Fig. 9 to 11, Table 3)",
)
def fig9(asked: Fig9Options, say: Say) -> Outcome:
    """The paper's sets: new_thyroid, teaching, glass, wine, segment, usps-357 and usps; methods laplace-tkp and
    gibbs-probit, its two others, take much longer."""
    for method in asked.methods:
        arguments.choice(method, METHODS, "methods")
    if "nested-ep" not in asked.methods:
        raise ValueError(
            f"methods: found {tuple(asked.methods)}, expected nested-ep among them: others are set against it"
        )
    text = published("riihimaki2013", "text")
    rows: list[tuple[object, ...]] = []
    notes: list[str] = []
    everything: dict[str, dict[str, Predicted]] = {}
    sizes: list[tuple[object, ...]] = []
    for name in asked.datasets:
        data, note = setting.find(name)
        notes += [note] if note else []
        how = text["table3"].get(name)
        ard = bool(how["ard"]) if how else True
        splits, message = splits_of(
            name, data, asked.n_run, asked.n, asked.n_test, asked.seed, keep_leaks=asked.keep_leaks
        )  # fmt: skip
        notes += message
        sizes.append(
            (name, len(splits), splits[0].train.size, splits[0].test.size, data.n_classes, data.d,
             *((how["n_train"], how["n_test"], how["c"], how["d"]) if how else (None,) * 4), "yes" if ard else "no")
        )  # fmt: skip
        results: dict[str, Predicted] = {}
        for method in ("nested-ep", *(m for m in asked.methods if m != "nested-ep")):
            if name == "usps" and method in (_TKP, _MCMC):
                notes.append(f"{name}: {setting.NAMES[method]} is not in Fig. 11")
                continue
            if method == "gibbs-probit" and not ard:
                notes.append(f"{name}: no MCMC, whose chains have a lengthscale for each covariate")
                continue
            lengths = {
                "n_chains": asked.n_chains,
                "n_draws": asked.n_draws,
                "n_warmup": asked.n_warmup,
                "seed": asked.seed,
            }
            results[method] = benchmark(
                data, method, splits, ard=ard, reading=asked.reading, prior_on=asked.prior_on,
                max_iterations=asked.max_iterations, options=lengths, say=say,
            )  # fmt: skip
        everything[name] = dict(results)
        if "vb-probit" in results:
            everything[name][_AT_EP] = vb_at(data, splits, results["nested-ep"])
        for method, predicted in results.items():
            rows += _rows(name, method, predicted, results["nested-ep"], text["against_ep"].get(method, {}), asked.seed)
    sentence: tuple[Table, ...] = ()
    if {*_SIX, "usps"} <= everything.keys() and set(asked.methods) == set(METHODS):
        sentence = (decisions.table(decide(everything, asked.seed), "What section 5.5 says of the figures"),)
    notes.append("Fig. 9 to 11 print no numbers: the last column is what the text says of the log predictive density")
    return Outcome(
        {
            "hyper-priors": f"half-Student-t, 4 degrees of freedom, variance 100 read as {asked.reading!r}, on the "
            f"{asked.prior_on}",
            "search": f"L-BFGS-B, at most {asked.max_iterations} iterations",
            "seed": asked.seed,
        },
        (
            Table(
                "scores",
                ("data", "method", "score", "here", "2.5 %", "97.5 %", "less EP's", "2.5 % ", "97.5 % ", "paper"),
                tuple(rows),
                "Mean log predictive densities and accuracies, with 95 % intervals; differences are paired",
            ),
            Table(
                "sizes",
                (
                    "data",
                    "parts",
                    "n",
                    "test rows",
                    "C",
                    "d",
                    "n (paper)",
                    "test rows (paper)",
                    "C (paper)",
                    "d (paper)",
                    "ARD",
                ),
                tuple(sizes),
                "The data, here (first part) and in the paper's Table 3",
            ),
            *sentence,
        ),
        (),
        tuple(dict.fromkeys(notes)),
    )


def _rows(
    name: str, method: str, value: Predicted, ep: Predicted, says: Mapping[str, str], seed: int
) -> list[tuple[object, ...]]:
    shown: list[tuple[object, ...]] = []
    label = setting.NAMES[method]
    mlpd = bayesian_bootstrap(value.log_density, seed=seed)
    accuracy = bayesian_bootstrap(value.right, seed=seed)
    against: list[tuple[object, ...]] = [(None, None, None), (None, None, None)]
    if method != "nested-ep":
        pair = bayesian_bootstrap(value.log_density - ep.log_density, seed=seed)
        change = accuracy_comparison(outcomes(value.right, ep.right), seed=seed)
        against = [(pair.mean, pair.low, pair.high), (change.mean, change.low, change.high)]
    message = says.get(name, says.get("all"))
    shown.append((name, label, "mlpd", mlpd.mean, mlpd.low, mlpd.high, *against[0], message))
    shown.append((name, label, "accuracy", accuracy.mean, accuracy.low, accuracy.high, *against[1], None))
    return shown
