"""villacampa2020, section 5.6, Fig. 6 and 7: active learning on Waveform by predictive entropy and at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from reference.common.priors import Prior
from reference.villacampa2020.experiments import select_by_entropy
from validation import datasets
from validation.datasets.splits import standardise
from validation.door import arguments
from validation.ledger.marker import equation
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, above, below, surely
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.printed import option
from validation.reproduce.protocols import scores
from validation.reproduce.villacampa2020 import plots, setting

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
RULES = ("entropy", "random")


class Learner(Protocol):
    """What can be trained on rows, and again on these and further ones."""

    def fit(self, X: Array, y: Labels) -> bool:
        """Train; rows of the call before come first. False: there is nothing to predict with."""

    def probabilities(self, X: Array) -> Array:
        """(t, C)."""


class Pool(NamedTuple):
    """Rows to begin with, to choose from, and to be scored by; inputs standardised by the first."""

    X: Array
    y: Labels
    X_pool: Array
    y_pool: Labels
    X_test: Array
    y_test: Labels


class Schedule(NamedTuple):
    """How much is done."""

    n_train: int  # rows to begin with
    n_pool: int  # to choose from
    n_test: int
    n_additions: int
    n_first: int  # steps of L-BFGS before the first addition
    n_next: int  # after each
    repetitions: int


@equation("villacampa2020", "u43-active-learning")
def printed_schedule(method: str) -> Schedule:
    """Section 5.6 of villacampa2020: PEP, whose factors are refined within each iteration, has a fifth of the others'.

    Parameters
    ----------
    method : str         pep, apep, arpep or rpapep
    """
    steps = (50, 5) if arguments.choice(method, setting.METHODS, "method") == "pep" else (250, 25)
    return Schedule(100, 400, 500, 100, *steps, 100)


@equation("villacampa2020", "u43-active-learning")
def active_learning_experiment(
    learner: Learner, pool: Pool, *, rule: str = "entropy", n_additions: int = 100, seed: int = 0
) -> Array:
    """(n_additions + 1,) test errors before and after each addition of a row of the pool: villacampa2020, section 5.6.

    Infinite from where the learner has nothing to predict with.

    Parameters
    ----------
    learner              trained anew after every addition, from where it stands
    pool : Pool          the paper: 100 rows to begin with, 400 to choose from, 500 test rows
    rule : str           "entropy": the row whose predictive class distribution has the largest; "random"
    n_additions : int    the paper: 100
    seed : int           of the random rows

    Raises
    ------
    ValueError           more additions than rows to choose from
    """
    arguments.choice(rule, RULES, "rule")
    if not 0 <= arguments.integer(n_additions, "n_additions", at_least=0) <= pool.y_pool.size:
        raise ValueError(f"n_additions: found {n_additions}, expected at most {pool.y_pool.size}, the rows of the pool")
    rng = np.random.default_rng(arguments.integer(seed, "seed", at_least=0))
    X, y, left = pool.X, pool.y, np.arange(pool.y_pool.size)
    errors = np.full(n_additions + 1, np.inf)
    for k in range(n_additions + 1):
        if not learner.fit(X, y):
            break
        errors[k] = scores(learner.probabilities(pool.X_test), pool.y_test)[0]
        if k == n_additions:
            break
        if rule == "entropy":
            place = select_by_entropy(learner.probabilities(pool.X_pool[left]))
        else:
            place = int(rng.integers(left.size))
        chosen, left = left[place], np.delete(left, place)
        X, y = np.vstack([X, pool.X_pool[chosen]]), np.append(y, pool.y_pool[chosen])
    return errors


class Trained:
    """One of the four methods as a learner: a long first training, short ones after each addition."""

    def __init__(
        self,
        method: str,
        alpha: float,
        *,
        n_inducing: int,
        n_first: int,
        n_next: int,
        seed: int,
        training: setting.Training,
        budget: float = np.inf,
    ) -> None:
        self.method, self.alpha, self.n_inducing, self.seed = method, alpha, n_inducing, seed
        self.n_first, self.n_next, self.training = n_first, n_next, training
        self.watch = setting.Watch(budget=budget, evaluate=False)
        self.run: setting.Run | None = None
        self.prior: Prior | None = None

    def fit(self, X: Array, y: Labels) -> bool:
        """Train on all rows, from the run before if there is one."""
        if self.prior is None:
            self.prior = setting.start(X, self.n_inducing, 3, self.seed)
        steps = self.n_first if self.run is None else self.n_next
        training = self.training._replace(n_steps=steps)
        self.run = setting.train(self.method, self.alpha, X, y, self.prior, training, self.watch, before=self.run)
        return not self.run.lost

    def probabilities(self, X: Array) -> Array:
        """(t, C)."""
        assert self.run is not None  # trained before
        return self.run.probabilities(X)


def drawn_pool(seed: int, n: int = 100, n_test: int = 500, n_pool: int = 400) -> Pool:
    """Rows of a generated Waveform: section 5.6."""
    data = datasets.make_waveform(np.random.default_rng(seed), n + n_test + n_pool)
    edges = np.array([n, n + n_test])
    parts = np.split(np.arange(data.n), edges)
    X, X_test, X_pool = standardise(*(data.X[part] for part in parts))
    return Pool(X, data.y[parts[0]], X_pool, data.y[parts[2]], X_test, data.y[parts[1]])


def _surely(claim: str, compared: str, left: Array, right: Array) -> Decided:
    return surely(claim, compared, left.tolist(), right.tolist())


def decide(errors: Mapping[tuple[str, float, str], Array]) -> list[Decided]:
    """What section 5.6 says of Fig. 6 and 7, from errors (repetitions, additions + 1) by method, alpha and rule.

    Needs two repetitions, both rules, and alphas that begin with 0 and end with 1.
    """
    every = list(dict.fromkeys(method for method, _, _ in errors))
    lost = {method for (method, _, _), each in errors.items() if not np.isfinite(each).all()}
    methods = [method for method in every if method not in lost]
    alphas = sorted({alpha for _, alpha, _ in errors})
    low, high = [a for a in alphas if a <= 0.2], [a for a in alphas if a >= 0.8]

    def along(method: str, some: Sequence[float], rule: str) -> Array:
        return np.mean([errors[method, a, rule].mean(axis=1) for a in some], axis=0)

    def fallen(method: str, alpha: float) -> Array:
        curve = errors[method, alpha, "entropy"]
        return curve[:, 0] - curve[:, -1]

    of_6: list[Decided] = []
    of_7: list[Decided] = []
    for method in (one for one in every if one in lost):
        text = f"{setting.NAMES[method]}: no optimum in some repetition"
        of_6 += [Decided(claim, text, np.nan, np.nan, None) for claim in ("fig6-alpha-one", "fig6-entropy-wins")]
        of_7 += [
            Decided(claim, text, np.nan, np.nan, None)
            for claim in ("fig7-pep" if method == "pep" else "fig7-others", "fig7-start-worse", "fig7-end-alike")
        ]
    for method in methods:
        name = setting.NAMES[method]
        of_6 += [
            _surely("fig6-alpha-one", f"{name}, {rule}: error at alpha near 1 less that near 0, along the additions",
                    along(method, high, rule), along(method, low, rule)) for rule in RULES
        ]  # fmt: skip
        for alpha in alphas:
            by_entropy, at_random = (errors[method, alpha, rule] for rule in RULES)
            of_6 += [
                _surely("fig6-entropy-wins", f"{name}, alpha = {alpha:g}: error by entropy less that at random, {what}",
                        ours, theirs)
                for what, ours, theirs in (
                    ("at the end", by_entropy[:, -1], at_random[:, -1]),
                    ("along the additions", by_entropy.mean(axis=1), at_random.mean(axis=1)),
                )
            ]  # fmt: skip
        first, last = alphas[0], alphas[-1]
        order = (fallen(method, first), fallen(method, last))
        key, text = ("fig7-pep", "at 0 less that at 1") if method == "pep" else ("fig7-others", "at 1 less that at 0")
        of_7.append(_surely(key, f"{name}: reduction {text}", *(order if method == "pep" else order[::-1])))
        before = [errors[method, alpha, "entropy"][:, 0] for alpha in (last, first)]
        of_7.append(_surely("fig7-start-worse", f"{name}: first error at alpha 1 less that at 0", *before))
    ends = {method: [float(errors[method, a, "entropy"][:, -1].mean()) for a in alphas] for method in methods}
    spread = {method: float(np.ptp(values)) for method, values in ends.items()}
    if "pep" in methods and len(methods) > 1:
        others = max(value for method, value in spread.items() if method != "pep")
        text = "range over alpha of the last error: PEP's above the largest of the others'"
        of_7.append(above("fig7-end-alike", text, spread["pep"], others))
    of_7 += [
        below("fig7-end-alike", f"{setting.NAMES[method]}: last error at alpha 1, below that at 0", end[-1], end[0])
        for method, end in ends.items()
    ]
    return [decisions.figure("fig6", of_6), *of_6, decisions.figure("fig7", of_7), *of_7]


_OTHERS, _PEP = printed_schedule("apep"), printed_schedule("pep")


@dataclass(frozen=True, kw_only=True)
class Fig6Options:
    """Options of `fig6`."""

    methods: Sequence[str] = setting.METHODS
    alphas: Sequence[float] = option((0.0, 0.5, 1.0), setting.ALPHAS, "alphas")
    rules: Sequence[str] = RULES
    n_additions: int = option(15, _OTHERS.n_additions, "additions")
    n_run: int = option(1, _OTHERS.repetitions, "repetitions")
    m: int = 15
    n_first: int = option(40, _OTHERS.n_first, "steps before the first addition")
    n_next: int = option(3, _OTHERS.n_next, "steps after each addition")
    n_first_pep: int = option(40, _PEP.n_first, "PEP's steps before the first addition")
    n_next_pep: int = option(3, _PEP.n_next, "PEP's steps after each addition")
    optimizer: str = option("adaptive", "lbfgs", "optimisers of the priors")
    rate: float = 0.01
    budget: float = option(4.0, np.inf, setting.CUT)
    seed: int = 0


@experiment(
    "villacampa2020",
    "fig6",
    "active learning on Waveform by predictive entropy, and at random",
    "the error is lower for alpha near 1, by either rule; it is always lower when rows are chosen by entropy; it falls "
    "most from where it begins for alpha near 0, but for PEP, where it does for alpha near 1 (section 5.6, Fig. 6, 7)",
    cells=lambda asked: len(asked.methods) * len(asked.alphas) * len(asked.rules),
)
def fig6(asked: Fig6Options, say: Say) -> Outcome:
    """PEP makes n_first_pep steps first and n_next_pep after each addition, the others n_first and n_next."""
    for method in asked.methods:
        arguments.choice(method, setting.METHODS, "methods")
    for rule in asked.rules:
        arguments.choice(rule, RULES, "rules")
    arguments.integer(asked.n_run, "n_run", at_least=1)
    curves: dict[tuple[str, float, str], Array] = {}
    runs: dict[tuple[str, float, str], Array] = {}
    notes: list[str] = []
    for method in asked.methods:
        steps = {"n_first": asked.n_first, "n_next": asked.n_next}
        if method == "pep":
            steps = {"n_first": asked.n_first_pep, "n_next": asked.n_next_pep}
        for alpha in asked.alphas:
            for rule in asked.rules:
                every = []
                for k in range(asked.n_run):
                    learner = Trained(
                        method, float(alpha), n_inducing=asked.m, **steps, seed=k, budget=asked.budget,
                        training=setting.Training(optimizer=asked.optimizer, rate=asked.rate),
                    )  # fmt: skip
                    every.append(
                        active_learning_experiment(
                            learner,
                            drawn_pool(asked.seed + k),
                            rule=rule,
                            n_additions=asked.n_additions,
                            seed=asked.seed + k,
                        )
                    )
                    assert learner.run is not None  # trained by it
                    notes += learner.run.notes
                runs[method, float(alpha), rule] = np.array(every)
                curves[method, float(alpha), rule] = np.mean(every, axis=0)
                end = curves[method, float(alpha), rule]
                say(f"{setting.NAMES[method]}, alpha = {alpha:g}, {rule}: {_text(end[0])} to {_text(end[-1])}")
    rows = [_row(method, alpha, rule, errors) for (method, alpha, rule), errors in curves.items()]
    every_row = [
        (setting.NAMES[method], alpha, rule, k, _text(error), _text(errors[0] - error))
        for (method, alpha, rule), errors in curves.items()
        for k, error in enumerate(errors)
    ]
    made = (
        f"{asked.n_first} steps first and {asked.n_next} after each addition, PEP {asked.n_first_pep} and "
        f"{asked.n_next_pep}"
    )
    notes.append(f"{asked.m} inducing points: the paper does not say how many")
    notes.append(f"start: {setting.START}")
    notes += [setting.LIMIT, setting.OPTIMISER, "Fig. 6 and 7 print no numbers"]
    message: tuple[Table, ...] = ()
    if asked.n_run > 1 and set(asked.rules) == set(RULES) and min(asked.alphas) <= 0.2 and max(asked.alphas) >= 0.8:
        message = (decisions.table(decide(runs), "What section 5.6 says of Fig. 6 and 7"),)
    return Outcome(
        {
            "data": "waveform, generated: 100 rows first, 400 to choose from, 500 test rows",
            "inducing points": asked.m,
            "additions": asked.n_additions,
            "repetitions": asked.n_run,
            "steps": f"{made}, {asked.optimizer}, rate {asked.rate:g}",
            "label errors": setting.EPSILON,
            "seed": asked.seed,
        },
        (
            Table(
                "summary",
                ("method", "alpha", "rule", "error, first", "error, last", "mean error", "reduction"),
                tuple(rows),
                "Test error before and after the additions, and its mean along them",
            ),
            Table(
                "curves",
                ("method", "alpha", "rule", "additions", "error", "reduction"),
                tuple(every_row),
                "Test error after each addition (Fig. 6), and how far it has fallen (Fig. 7)",
            ),
            *message,
        ),
        tuple(
            Picture(
                f"test error, rows chosen by {rule}" if rule == "entropy" else "test error, rows chosen at random",
                tuple(f"alpha = {float(alpha):g}" for alpha in asked.alphas),
                tuple(
                    plots.lines(
                        setting.NAMES[method],
                        [
                            plots.Line(f"alpha = {alpha:g}", np.arange(errors.size, dtype=np.float64), errors)
                            for (name, alpha, by), errors in curves.items()
                            if name == method and by == rule
                        ],
                        "additions",
                        f"fig6-{method}-{rule}",
                    )
                    for method in asked.methods
                ),
            )
            for rule in asked.rules
        ),
        tuple(dict.fromkeys(notes)),
    )


def _row(method: str, alpha: float, rule: str, errors: Array) -> tuple[object, ...]:
    values = (errors[0], errors[-1], float(errors.mean()))
    fallen = _text(errors[0] - errors[-1]) if np.isfinite(errors).all() else setting.NONE
    return (setting.NAMES[method], alpha, rule, *(_text(value) for value in values), fallen)


def _text(value: float) -> float | str:
    """A number, or "none" where there is no optimum."""
    return float(value) if np.isfinite(value) else setting.NONE
