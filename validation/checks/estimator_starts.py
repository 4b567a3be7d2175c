"""Where classifiers start and what all of them share: defaults, lengthscales, inducing points, jitter.

Definitions are written anew: distances of all pairs, centres by scikit-learn's k-means in units of the lengthscales.
Draws follow one another as documented: lengthscales, inducing points, training.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable
from contextlib import redirect_stdout
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.estimator_priors import looked_at, median_lengthscales
from validation.checks.estimator_requests import LARGEST_SEED, asked_of, request
from validation.checks.estimator_settings import ENTRIES, Data, Entry, data, difference
from validation.problem import Problem

Array = NDArray[Any]
_MOST = {
    "two": 100,
    "quadratic": 100,
    "adadelta": 100,
    "classes": 50,
}  # of n_inducing="auto" on mini-batches, and at least
_SWEEP = 1e8  # multiplications of a sweep in batch that inducing points may cost
_LOOKED_AT, _SAMPLE, _BLOCK = 1000, 20_000, 100  # rows that distances are taken of, that k-means++ sees, of a block
_WHY = "one definition, two programs: sums of at most 1e6 terms differ by less than 1e-10 of the largest entry"


def _compared(observed: float, why: str, limit: float = 1e-10, unit: str = "relative difference") -> Compared:
    return Compared(observed, limit, why, "fast", "judge", unit)


def _entry(method: str) -> Entry:
    return next(entry for entry in ENTRIES if entry.method == method)


# -- defaults of __init__ --------------------------------------------------------------------------------------------


def defaults() -> Iterable[Outcome]:
    """Every setting of every classifier: its documented default, and that it is kept as it was given."""
    from sklearn.utils import get_tags

    wrong = []
    for entry in ENTRIES:
        model, wanted = entry.cls(), dict(entry.defaults)
        if model.get_params() != wanted:
            wrong.append(f"{entry.name}: defaults")
        kept = {name: object() for name in wanted}
        if any(getattr(entry.cls(**kept), name) is not value for name, value in kept.items()):
            wrong.append(f"{entry.name}: what is kept")
        if get_tags(model).classifier_tags.multi_class != (entry.n_classes > 2):
            wrong.append(f"{entry.name}: two classes or more")
    yield _compared(float(len(wrong)), f"defaults are as documented; departures: {wrong}", 0.0, "departures")


# -- lengthscales ----------------------------------------------------------------------------------------------------


def lengthscales() -> Iterable[Outcome]:
    """The median of distances on inputs of all kinds, and of a subsample of many rows."""
    from fast.kernel.defaults import default_lengthscales

    rng = np.random.default_rng(4)
    X = rng.normal(size=(40, 3)) * [1.0, 5.0, 0.2]
    repeated, constant = np.repeat(X[:7], 4, axis=0), X.copy()
    constant[:, 1], constant[:, 2] = 0.1, 0.0
    # of the same size as the units, so that a threshold on either is seen
    large, small = X * [1e200, 1.0, 1.0], X * [1e-200, 1.0, 1e30]
    inputs = [X, repeated, constant, large, small, X[:1], np.repeat(X[:1], 5, axis=0), np.zeros((4, 2)), X[:2]]
    observed = max(difference(default_lengthscales(one, rng), median_lengthscales(one)) for one in inputs)
    # 2^20 plus and minus a few units of its last place, on either side of 1e-12: what counts as a constant's rounding
    for units, varies in ((6579, True), (3152, False)):
        column = 2.0**20 + units * 2.0**-32 * (-1.0) ** np.arange(40)
        result = default_lengthscales(np.column_stack([column, X[:, 0]]), rng)
        wanted = median_lengthscales(np.column_stack([column if varies else np.ones(40), X[:, 0]]))
        observed = max(observed, difference(result, wanted))
    yield _compared(observed, f"{_WHY}; columns that do not vary, rows that repeat, units from 1e-200 to 1e200")
    many = rng.normal(size=(2 * _LOOKED_AT + 501, 2)) * [1.0, 3.0]
    for rows in (many[:_LOOKED_AT], many[: _LOOKED_AT + 1], many):
        n = len(rows)
        chosen = looked_at(n, 9)
        result = default_lengthscales(rows, np.random.default_rng(9))
        yield _compared(difference(result, median_lengthscales(rows[chosen])), f"{_WHY}; one row of each stride of {n}")


# -- inducing points -------------------------------------------------------------------------------------------------


def spread_points(X: Array, units: Array, m: int, rng: Any) -> Array:
    """Rows that k-means++ chooses among the distinct ones, in units of the lengthscales."""
    from sklearn.cluster import kmeans_plusplus

    distinct = np.unique(X, axis=0)
    if m >= len(distinct):
        return distinct
    return distinct[kmeans_plusplus((distinct - distinct.mean(axis=0)) / units, m, random_state=rng)[1]]


def centres(X: Array, units: Array, m: int, rng: Any) -> Array:
    """Means of the rows that k-means puts together, in units of the lengthscales."""
    from sklearn.cluster import KMeans

    spread_points(X, units, m, rng)  # drawn first, as every sparse classifier does
    distinct = np.unique(X, axis=0)
    if m >= len(distinct):
        return distinct
    middle = distinct.mean(axis=0)
    return middle + KMeans(m, n_init=1, random_state=rng).fit((distinct - middle) / units).cluster_centers_ * units


def _start(entry: Entry, given: dict[str, Any], X: Array, y: Array) -> tuple[Array, Any]:
    """Lengthscales and inducing points that a classifier starts from; nothing is trained."""
    wanted = request(entry, given | {"lengthscales": 1.0, "inducing_points": None}, X, np.zeros(len(X), dtype=int))
    owner = entry.cls if entry.family == "quadratic" else __import__(wanted.module, fromlist=["-"])
    function = "_fit" if entry.family == "quadratic" else wanted.function
    arguments, _ = asked_of(entry.cls(**given), X, y, owner, function)
    if entry.family == "full":
        return arguments[0].hyper.lengthscales[0], None
    first = 4 if entry.family == "classes" else 3
    return arguments[first], arguments[first + 3]


def points_by_default(entry: Entry, n: int, distinct: int, *, batches: bool) -> int:
    """How many inducing points n_inducing="auto" stands for: on mini-batches a number, in batch what a sweep affords.

    That is m with C n m^2 of 1e8, C latent functions of n rows, at least the number and at most the distinct rows.
    """
    functions = entry.n_classes if entry.family == "classes" else 1
    least = _MOST[entry.family]
    m = least if batches else max(least, int(np.floor(np.sqrt(_SWEEP / (functions * n)))))
    return min(m, distinct)


def _points_wanted(entry: Entry, X: Array, units: Array, n_inducing: Any, rng: Any, *, batches: bool = False) -> Any:
    count = len(np.unique(X, axis=0))
    if n_inducing is None:
        return np.unique(X, axis=0) if entry.family == "classes" else None
    m = points_by_default(entry, len(X), count, batches=batches) if n_inducing == "auto" else n_inducing
    place = centres if entry.family in ("quadratic", "adadelta") else spread_points
    return place(X, units, m, rng)


def starts(entry: Entry) -> Iterable[Outcome]:
    """Default lengthscales and inducing points, some that are given, and what is said where rows are too few."""
    problem = data(entry.n_classes, n=104)
    X, y = problem.X[:101].copy(), problem.labels[:101]
    X[7] = X[8]  # 100 distinct rows
    given: dict[str, Any] = {"random_state": 5, "learn": ()}
    if entry.family == "full":
        result, _ = _start(entry, given, X, y)
        yield _compared(difference(result, median_lengthscales(X)), _WHY)
        return
    observed = 0.0
    for wanted, units in ((6, "median"), ("auto", (0.5, 4.0)), (None, 0.7), (np.int64(100), "median"), (120, 1.0)):
        rng = np.random.RandomState(5)
        if isinstance(units, str):
            rng.randint(LARGEST_SEED)  # drawn for the subsample of the distances
        lengths = median_lengthscales(X) if isinstance(units, str) else np.broadcast_to(units, (2,)).astype(float)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result, Z = _start(entry, given | {"n_inducing": wanted, "lengthscales": units}, X, y)
        points = _points_wanted(entry, X, lengths, wanted, rng)
        observed = max(observed, difference(result, lengths), difference(Z, points))
        texts = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
        told = ["n_inducing: found 120 inducing points for 100 distinct rows; 100 are used"] if wanted == 120 else []
        observed = max(observed, 0.0 if texts == told else np.inf)
    yield _compared(observed, f"{_WHY}; 6, as many as documented, all, 100 and 120 of 100 distinct rows")
    yield _compared(_by_default(entry, given | {"lengthscales": (0.7, 2.5)}), f"{_WHY}; as many as 1600 rows are given")
    shapes = [X[::20]] + ([np.stack([X[k::20][:5] for k in range(3)])] if entry.family == "classes" else [])
    given["n_inducing"] = None  # what is given comes first
    same = [_start(entry, given | {"inducing_points": Z, "lengthscales": 1.0}, X, y)[1] for Z in shapes]
    yield _compared(max(difference(a, b) for a, b in zip(same, shapes, strict=True)), "points that are given", 0.0)


def _by_default(entry: Entry, given: dict[str, Any]) -> float:
    """1600 rows: in batch 250 points, 144 of three classes; on mini-batches 100 and 50.

    Of fewer rows most would be points, and k-means++ has ties: of two rows next to one another either may be chosen.
    """
    problem = data(entry.n_classes, n=1600)
    observed, units = 0.0, np.array(given["lengthscales"])
    for training in ("batch", "minibatch") if entry.steps else (None,):
        more = {} if training is None else {"training": training}
        _, Z = _start(entry, given | more, problem.X, problem.labels)
        batches = training == "minibatch"
        points = _points_wanted(entry, problem.X, units, "auto", np.random.RandomState(5), batches=batches)
        observed = max(observed, difference(Z, points))
    return observed


def many_rows() -> Iterable[Outcome]:
    """More rows than k-means++ looks at, and rows far from the origin."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(_SAMPLE + 1, 2))
    y = (X[:, 0] > 0).astype(int)
    entry, given = _entry("x-gpc"), {"random_state": 5, "n_inducing": 4, "lengthscales": (1.0, 2.0)}
    observed = 0.0
    for n in (_SAMPLE, _SAMPLE + 1):
        draws = np.random.RandomState(5)
        rows = X[:n]
        if n > _SAMPLE:
            blocks = np.sort(draws.choice(n // _BLOCK, size=_SAMPLE // _BLOCK, replace=False))
            rows = np.concatenate([X[block * _BLOCK : (block + 1) * _BLOCK] for block in blocks])
        _, Z = _start(entry, given, X[:n], y[:n])
        observed = max(observed, difference(Z, spread_points(rows, np.array([1.0, 2.0]), 4, draws)))
    yield _compared(observed, "k-means++ looks at 20 000 rows in blocks of 100 that are drawn", 0.0)
    few = np.round(X[:60] * 2**10) / 2**10  # so that a shift by 2^30 is exact
    for method in ("x-gpc", "vi-jj"):
        near, far = (_start(_entry(method), given, few + shift, y[:60])[1] for shift in (0.0, 2.0**30))
        yield _compared(
            float(np.abs(far - 2.0**30 - near).max()), "2^30 holds 22 digits behind the point: centres round to 2e-7",
            1e-6, "largest difference",
        )  # fmt: skip


# -- jitter, outcomes of training, predictions -----------------------------------------------------------------------


def _stub(name: str, train: Any, **given: Any) -> Any:
    """A classifier whose training is replaced."""
    cls = _entry(name).cls
    # nothing is learned: learn="auto" looks at the posterior of its first stage before it starts a second
    return type(cls.__name__, (cls,), {"_train": train, "__init__": cls.__init__})(**{"learn": (), **given})


def _trained(predicted: Any = None, n_iter: int = 5) -> Any:
    from fast.estimators._base import Fitted

    return Fitted(lambda X: predicted, None, 1.0, np.ones(2), 0.0, None, -1.0, n_iter, True, "done")


def machinery() -> Iterable[Outcome]:
    """A stub in the place of training: jitter that is raised, counts of steps, odds of certain predictions, lines."""
    from sklearn.exceptions import NotFittedError

    from fast.core.errors import NotPositiveDefiniteError

    problem = data(2)
    cases = ((0.0, 3.0, 1), (1e-7, 3.0, 3), (1e-12, 2.0, 2), (0.0, 1.0, 4), (0.0, 1.0, 0), (0.0, 7.0, 2))
    for jitter, variance, times in cases:
        tried: list[tuple[float, int]] = []

        def train(self: Any, X: Any, codes: Any, start: Any, rng: Any, callback: Any) -> Any:
            tried.append((start.jitter, int(rng.randint(LARGEST_SEED))))  # noqa: B023 - used before the next turn
            if len(tried) <= times:  # noqa: B023
                raise NotPositiveDefiniteError("K_ZZ")
            return _trained()

        given = {"jitter": jitter, "variance": variance, "inducing_points": problem.X[:4], "random_state": 2}
        model = _stub("x-gpc", train, **given)
        if variance == 7.0:  # the largest of those that a guide found for each class
            model._guided = lambda X, codes, start, rng: start._replace(variance=np.array([2.0, 7.0, 4.0]))
        wanted = [jitter]
        for _ in range(min(times, 3)):  # tenfold, from 1e-10 of the variance; three times at most
            wanted.append(max(10.0 * wanted[-1], 1e-10 * variance))
        raised = False
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                model.fit(problem.X, problem.labels)
            except NotPositiveDefiniteError:
                raised = True
        wrong = [raised != (times > 3), len({seed for _, seed in tried}) != 1]
        texts = [str(one.message) for one in caught if issubclass(one.category, RuntimeWarning)]
        form = "K_ZZ (4, 4) has no Cholesky factor: jitter raised to "
        wrong.append(texts != [f"{form}{one:.3g}" for one in wanted[1:]])
        observed = difference([one for one, _ in tried], wanted)
        if not raised:
            observed = max(observed, difference(model.jitter_spent_, wanted[-1] - jitter))
        yield _compared(observed, f"jitter tenfold or 1e-10 of the variance, {times} failures", 1e-12)
        yield _compared(float(sum(wrong)), "a warning each, an error after the fourth, one seed for all", 0.0, "wrong")
    yield from _certain(problem)
    cls = _entry("x-gpc").cls
    fitted = _stub("x-gpc", lambda *_: _trained(SimpleNamespace(probabilities=problem.X_new))).fit(
        problem.X, problem.labels
    )
    refusals = (
        (NotFittedError, lambda: cls().predict_proba(problem.X_new)),
        (ValueError, lambda: cls().fit(problem.X, problem.labels, callback=3)),
        (ValueError, lambda: cls(batch_size=0).fit(problem.X, problem.labels)),
        (ValueError, lambda: fitted.predict_proba(problem.X_new[:, :1])),
        (ValueError, lambda: fitted.predict_proba(problem.X_new * np.nan)),
    )
    yield _compared(
        float(sum(not _refuses(*one) for one in refusals)), "what cannot be answered is refused", 0.0, "taken"
    )


def _refuses(kind: type[Exception], ask: Any) -> bool:
    try:
        ask()
    except kind:
        return True
    except Exception:  # noqa: BLE001 - any other is the wrong one
        return False
    return False


def _certain(problem: Data) -> Iterable[Outcome]:
    rows = np.array([[0.0, 1.0], [1.0, 0.0], [0.3, 0.7]])
    predicted = SimpleNamespace(probabilities=rows, latent_mean=np.zeros(3), latent_var=np.ones(3))
    tiny = float(np.finfo(np.float64).tiny)
    observed, lines = 0.0, []
    for steps, verbose in ((0, 0), (1, 1), (5, 2)):
        out = io.StringIO()
        fitted = _trained(predicted, steps)
        model = _stub("x-gpc", lambda *_, fitted=fitted: fitted, verbose=verbose)
        with redirect_stdout(out):
            model.fit(problem.X, problem.labels)
        lines.append(len(out.getvalue().splitlines()) - (verbose > 0))
        observed = max(observed, difference(model.n_iter_, max(steps, 1)))
        odds = [-np.log(tiny), np.log(tiny), np.log(0.7) - np.log(0.3)]
        observed = max(observed, difference(model.decision_function(problem.X_new[:3]), odds))
    yield _compared(
        observed, "odds by definition, the smallest float for a probability of zero; a step at least", 1e-12
    )
    yield _compared(float(np.abs(lines).sum()), "one line if verbose, none if not", 0.0, "lines too many or missing")


# -- registration ----------------------------------------------------------------------------------------------------

_SHARED = (
    ("identity/x-gpc/classifier_defaults", defaults, "Are the defaults of all classifiers those that are documented?"),
    ("identity/x-gpc/median_lengthscales", lengthscales, "Are default lengthscales the median distance of two rows?"),
    ("identity/x-gpc/points_of_many_rows", many_rows, "Are inducing points spread by k-means++ whatever the rows?"),
    ("identity/x-gpc/raised_jitter", machinery, "Is the jitter raised as documented, and are odds those of the model?"),
)


def _register_shared(id: str, ask: Any, question: str) -> None:
    @check(id, paper="wenzel2019", question=question, problems=(NO_PROBLEM,))
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        return list(ask())


def _register(entry: Entry) -> None:
    @check(
        f"identity/{entry.method}/classifier_starts",
        paper=entry.paper,
        question="Does the classifier start from the documented lengthscales and inducing points?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, problem: Problem) -> Iterable[Outcome]:
        return list(starts(entry))


for _row in _SHARED:
    _register_shared(*_row)
for _entry_of in ENTRIES:
    _register(_entry_of)
