"""Rules inside solvers that decide little, each asked by numbers that leave it one right answer.

What is reported beside an answer, which form a solver runs, when it gives up: answers of ordinary problems do not say.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import log_ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]


def _panels(cuts: Array, degree: int = 32) -> tuple[Array, Array]:
    """Nodes and weights of Clenshaw and Curtis on each panel between cuts: sums of cosines, which no witness uses."""
    angle = np.pi * np.arange(degree + 1) / degree
    even = np.arange(2, degree + 1, 2)
    share = np.where(even == degree, 1.0, 2.0) / (1.0 - even**2)
    w = (1.0 + np.cos(np.outer(angle, even)) @ share) * 2.0 / degree
    w[[0, -1]] *= 0.5
    half, middle = 0.5 * np.diff(cuts), 0.5 * (cuts[1:] + cuts[:-1])
    return (middle[:, None] + half[:, None] * np.cos(angle)).ravel(), (half[:, None] * w).ravel()


# -- kernels ------------------------------------------------------------------------------------------------------


@check(
    "identity/sep/far_products",
    paper="villacampa2017",
    question="Do distances from products keep their digits for inputs many lengthscales from the centre of Z?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.kernel.kernels import PreparedKernel

    rng = np.random.default_rng(95)
    lengthscales = rng.uniform(0.5, 2.0, 64)
    for away in (10.0, 24.0, 60.0):
        Z = rng.standard_normal((6, 64)) * 0.1
        Z[::2] += away
        Z[1::2] -= away
        X = Z + 0.1 * rng.standard_normal((6, 64))
        kernel = PreparedKernel(Z * lengthscales, 1.7, lengthscales)
        K = kernel.cross_by_product(X * lengthscales)
        with np.errstate(under="ignore"):
            wanted = 1.7 * np.exp(-0.5 * np.square(X[:, None] - Z).sum(axis=2))
        gap = float(np.abs(np.diag(K) / np.diag(wanted) - 1.0).max())
        # within 16 lengthscales products may lose 4 eps 256 a column; beyond, differences lose a few roundings
        limit = 4.0 * 2.2e-16 * 256.0 * 64.0 if away < 16.0 else 1e-13
        yield Compared(gap, limit, f"neighbours {away:g} lengthscales out, 64 columns", "fast", "definition")


# -- what rounding changes ----------------------------------------------------------------------------------------


class _Prior(NamedTuple):
    variance: Any
    lengthscales: Any
    noise: Any = 0.3


@check(
    "identity/vi-robust/doubts",
    paper="villacampa2017",
    question="Is an answer doubted by its largest change beside it, in units of its parameters?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _neighbours

    prior = _Prior(np.array([2.0, 3.0]), np.array([[0.5, 4.0], [1.0, 2.0]]), np.array([0.5, 0.25]))
    given = {
        "variance": np.array([1.0, -2.0]), "noise": np.array([3.0, 4.0]), "lengthscales": np.ones((2, 2)),
        "Z": np.ones((2, 5, 2)),
    }  # fmt: skip
    told = _neighbours.gradient_answers(given, prior, -300.0)
    units = {
        "variance": np.array([2.0, -6.0]), "noise": np.array([7.5, 13.0]), "lengthscales": prior.lengthscales,
        "Z": np.repeat(prior.lengthscales[:, None, :], 5, axis=1),
    }  # fmt: skip
    wrong = [name for name, value in units.items() if not np.array_equal(told[f"gradient by {name}"].value, value)]
    wrong += [name for name in units if told[f"gradient by {name}"][1:] != (3.0, 10.0)]
    yield flaws(bool(wrong), f"derivatives times the units of their parameters {wrong}", "reference", "definition")

    singular = [np.diag([1.0, 1e-9])]  # a condition of 1e9: 100 eps of it are claimed
    for shares in ((0.5, 3.0), (3.0, 0.5), (0.5, 0.5), (0.0, 3.0)):
        limit = _neighbours.left_open(singular, 1e-10)
        changes = iter((0.0, *shares))

        def answers(_: Any, changes: Any = changes, limit: float = limit) -> dict[str, Any]:
            value = 4.0 * (1.0 + limit * next(changes))
            return {"the answer": _neighbours.Answer(np.array([value, -1.0]), 0.0)}

        doubt = _neighbours.rounding_doubt(answers, _Prior(1.0, np.ones(1)), singular)
        # a first neighbour that changes next to nothing is enough
        largest = 0.0 if shares[0] == 0.0 else max(shares)
        right = f"change the answer by {limit * largest:.1e}" in doubt if largest > 1.0 else doubt == ""
        yield flaws(
            not right, f"changes of {shares} of what is left open: {doubt or 'no doubt'}", "reference", "sentences"
        )

    for beside, there in ((True, 2.0), (False, 2.0), (True, 1.0)):
        doubled = iter((1.0, there, there))

        def twice(_: Any, doubled: Any = doubled) -> dict[str, Any]:
            return {"the answer": _neighbours.Answer(np.array([4.0 * next(doubled)]), 0.0)}

        doubt = _neighbours.rounding_doubt(twice, _Prior(1.0, np.ones(1)), singular, beside)
        begins = "a start beside the optimum and last digits" if beside else "last digits"
        right = doubt == "" if there == 1.0 else doubt.startswith(begins) and "by 1.0e+00," in doubt
        yield flaws(
            not right, f"an answer {there:g} times as large, beside {beside}: {doubt}", "reference", "sentences"
        )


# -- sweeps -------------------------------------------------------------------------------------------------------


@check(
    "identity/gfitc/factors_of_moves",
    paper="villacampa2017",
    question="Are contractions read off moves that rounding leaves alone, and off no other?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _sweeps

    rising = np.array([1.5**k * np.array([1.0, 2.0]) for k in range(4)])
    yield Compared(
        abs(_sweeps._slowest(rising)), 0.0, "moves that grow contain no contraction", "reference", "definition"
    )

    def factors(size: float) -> list[float]:
        """What is remembered after two cycles of moves that fall by .9 and then, of this size, by .5."""
        sweeps = _sweeps.Sweeps(1.0, 1e-300)
        x, moves = np.array([1.0, 1.0]), np.array([1e-3, -1e-3])
        remembered = []
        for cycle, rate in enumerate((0.9, 0.5)):
            if cycle:
                moves = size * np.array([1.0, -1.0])
            for _ in range(_sweeps._PLAIN + 1 if not cycle else _sweeps._CYCLE + 1):
                x, moves = x + moves, rate * moves
                sweeps.see((x.copy(),), float(np.abs(moves).max()), 0)
            sweeps._saved = None
            sweeps.propose((x.copy(),))
            sweeps._saved = None
            remembered.append(list(sweeps._rates))
        return [float(each) for each in remembered[-1]]

    kept, more = factors(1e-12), factors(1e-5)
    yield flaws(
        len(kept) != 1 or abs(kept[0] - 0.9) > 1e-6,
        f"moves of rounding's size change nothing: {kept}",
        "reference",
        "rates",
    )
    yield flaws(
        len(more) != 2 or abs(more[1] - 0.5) > 1e-6, f"larger ones tell their factor: {more}", "reference", "rates"
    )


# -- forms --------------------------------------------------------------------------------------------------------


@check(
    "identity/qiep/form_rule",
    paper="riihimaki2013",
    question="Is the printed form left where the norm of K costs more digits than answers have?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _forms
    from reference.common._forms import DIGITS
    from reference.riihimaki2013 import fit
    from reference.villacampa2017 import gfitc, printed

    # a class less than there are counts: just as many data as the time allows, and one more
    for name, ask in (
        ("gfitc", lambda n: gfitc.gfitc_form(None, np.tile(np.eye(n), (3, 1, 1)))),
        ("sep", lambda n: printed.sep_form(None, n, 3)),
    ):
        factor = gfitc.FACTOR if name == "gfitc" else printed.FACTOR
        most = int(_forms.SECONDS / (2.0 * factor))
        forms = [ask(n) for n in (most, most + 1)]
        yield flaws(
            forms != ["printed", "projected"], f"{name}: {most} data, and one more: {forms}", "reference", "forms"
        )
    kind = cast("Any", SimpleNamespace(diagonal=lambda: ()))
    options = cast("Any", SimpleNamespace(form=None))
    n = 8
    others = []
    for largest in (0.99 * DIGITS, 1.01 * DIGITS):
        K = np.eye(2 * n)
        K[:n, 3] = K[3, :n] = -largest / n  # the largest column sum of magnitudes is that of column 3
        form = fit._form(options, kind, K)
        if form != ("printed" if largest <= DIGITS else "projected"):
            others.append(f"{form} at {largest:g}")
    yield flaws(bool(others), f"the largest absolute column sum decides {others}", "reference", "forms")


@check(
    "print/arpep/data_terms",
    paper="villacampa2020",
    question="Is what the data add to a printed objective their weight times the sum of their log expectations?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.villacampa2020 import energies
    from reference.villacampa2020.hyper import prior_matrices
    from reference.villacampa2020.posterior import Gaussians

    asked = tiny("threshold errors")
    assert asked.Z is not None
    K = prior_matrices(asked.X, Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z))
    rng = np.random.default_rng(97)
    q = Gaussians(0.3 * rng.standard_normal((3, 4)), np.array([0.5 * each + 0.02 * np.eye(4) for each in K.K_ZZ]))
    rows = np.array([0, 2, 3, 6])
    for method in ("arpep", "rpapep", "apep"):
        told = energies.printed_energy(method, q, asked.y[rows], K.of(rows), asked.epsilon, 0.6, 8).data
        gap = abs(told.value / (2.0 * float(np.sum(told.log_norm))) - 1.0)
        yield Compared(gap, 1e-13, f"{method}: four of eight data count twice", "reference", "definition")


# -- what is kept, and when one gives up --------------------------------------------------------------------------


@check(
    "invariance/gibbs-probit/room_and_patience",
    paper="riihimaki2013",
    question="Does a store take room as draws come, and are draws given up only beyond four standard errors?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.chains import store as stores
    from gibbs.draws import truncated_normal as box

    for n_draws in (40, 10**6):
        store = stores.ThinnedStore({"x": np.zeros(3)}, n_draws, 2**30)
        rows = store._rows["x"].shape[0]
        yield flaws(
            rows != min(n_draws, stores._FIRST), f"{n_draws} draws asked: room for {rows} at first", "gibbs", "rows"
        )

    # half of all blocks are accepted whole, half not at all: the acceptance is .5 to some error e, and n draws are
    # hoped for if n <= .5 (1 + 4 e) (most - proposals) + those at hand + 4 sqrt(n)
    class _Half:
        def __init__(self, _tilting: Any) -> None:
            self.count = 0

        def add(self, log_weight: Array) -> Array:
            self.count += log_weight.size
            return log_weight

        def probability(self) -> Any:
            return box.Probability(-1.0, 0.1, -0.5, 0.5, self.count)

    def proposed(_rng: Any, _tilting: Any, size: int) -> tuple[Array, Array]:
        weight = np.zeros(size)
        weight[::2] = -np.inf
        return np.zeros((1, size)), weight

    tilting = cast("Any", SimpleNamespace(mean=np.zeros(1), log_bound=0.0))
    most = 100 * box._BLOCK
    outcomes = []
    with mock.patch.object(box, "_Weights", _Half), mock.patch.object(box, "propose", proposed):
        for share in (1.03, 1.3, 1.6):  # of what half of all proposals bring: with .1 of error 1.4 is within four
            n = int(share * 0.5 * most)
            try:
                box.draw_truncated(np.random.default_rng(98), tilting, n, max_proposals=most)
                outcomes.append(0)
            except ValueError as error:
                outcomes.append(int(str(error).split("found ")[1].split(" ")[0]))
    pilot = box._PILOT
    yield flaws(outcomes[2] != pilot, f"1.6 times what is likely: given up at {outcomes[2]}", "gibbs", "proposals")
    yield flaws(
        any(not most >= observed > pilot for observed in outcomes[:2]),
        f"1.03 and 1.3 times: tried further {outcomes[:2]}",
        "gibbs",
        "proposals",
    )


@check(
    "invariance/ep/marks",
    paper="villacampa2017",
    question="Does the mark of a run know its density of the parameters, and is it the same for the same run?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.hyperprior import Hyperprior
    from fast.core.values import Data, Prior
    from fast.methods.ep import EPOptions
    from fast.sparse_classes.inference import start

    asked = tiny("threshold")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    densities = (
        None,
        Hyperprior({"variance": ("log-normal", 1.0, 2.0)}),
        Hyperprior({"variance": ("log-normal", 1.0, 3.0)}),
        Hyperprior({"variance": ("log-normal", 1.0, 3.0)}, map_density="log"),
    )

    def mark(density: Hyperprior | None) -> str:
        made = EPOptions(learn=("variance",), n_steps=2, hyperprior=density, checkpoint="never-written.npz")
        return start("ep", Data(asked.X, asked.y, asked.n_classes), prior, made).settings.mark

    marks = [mark(density) for density in densities]
    wrong = len(set(marks)) != len(marks) or marks != [mark(density) for density in densities] or "" in marks
    yield flaws(wrong, "none, and three that differ in a scale or in the measure", "fast", "marks")


@check(
    "identity/laplace/search_limits",
    paper="riihimaki2013",
    question="Do searches end after the iterations that are asked for, 200 where nobody asks?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.riihimaki2013 import type2

    limits = [type2._limit(cast("Any", SimpleNamespace(max_iterations=most))) for most in (None, 1, 7)]
    yield flaws(limits != [200, 1, 7], f"none, one, seven: {limits}", "reference", "limits")


@check(
    "identity/label-regression/doubtful",
    paper="villacampa2020",
    question="Is a closed form that last digits change called unconverged, with that change as what is left?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import label_regression

    asked = tiny("threshold errors")
    data, prior = (
        Data(asked.X, asked.y, asked.n_classes),
        Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z),
    )
    wrong = []
    for learn in ((), ("variance",)):
        made = label_regression.RegressionOptions(epsilon=asked.epsilon, learn=learn, n_steps=60 if learn else None)
        sure = label_regression.fit(data, prior, made).trained
        with mock.patch.object(label_regression, "uncertainty", return_value=3e-4):
            told = label_regression.fit(data, prior, made).trained
        left = sure.residual if learn else 3e-4
        if not sure.converged or told.converged or told.residual != left or "3.0e-04" not in told.reason:
            wrong.append((learn, told.residual, told.reason))
    yield flaws(bool(wrong), f"held and learned parameters {wrong}", "fast", "runs")


@check(
    "invariance/gibbs-probit/averages",
    paper="riihimaki2013",
    question="Is the error of a covariance that of at least 32 batch means, whatever the number of chains?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import pairwise

    rng = np.random.default_rng(99)
    for r, s, batches in ((1, 67, 32), (3, 40, 11), (4, 5, 5), (40, 6, 1)):
        means, own = rng.standard_normal((r, s, 2, 3)), np.array([np.eye(3), 2.0 * np.eye(3)])
        told = pairwise._average(means, own)
        flat = means.reshape(r * s, 2, 3)
        grand = flat.mean(axis=0)
        off = means - grand
        cov = own + np.einsum("rsak,rsal->akl", off, off) / (r * s)
        length = s // batches
        outer = np.array([
            np.einsum("sak,sal->akl", part, part) / length
            for chain in off for part in np.split(chain[s - batches * length :], batches)
        ])  # fmt: skip
        error = outer.std(axis=0, ddof=1) / np.sqrt(len(outer))
        gap = max(float(np.abs(told.cov - cov).max()), float(np.abs(told.cov_se - error).max()))
        yield Compared(gap, 1e-12, f"{r} chains of {s}: {r * batches} batches", "gibbs", "definition")


@check(
    "identity/ep/most_gain",
    paper="villacampa2017",
    question="Is what lengthscales of each input may add the gain of a quadratic with the prior's own curvature?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.hyperprior import Hyperprior
    from fast.estimators._hyper import HyperLearning

    lengths = np.array([[0.5, 2.0, 1.3], [1.0, 0.7, 3.0]])
    by_length = np.array([[0.3, -1.0, 2.0], [0.1, 0.4, -0.7], [5.0, 5.0, 5.0]])  # the third belongs to no function
    common, each, centre = 1.5, 0.4, np.array([1.0, 1.2, 0.9])
    density = Hyperprior({"lengthscales": ("tied-log-normal", (common, each), tuple(centre))}, map_density="log")
    stub = SimpleNamespace(
        _density=density, _values=lambda _: lambda _name: lengths, _functions=lambda: 2,
        _lengthscale_gradient=lambda _: by_length,
    )  # fmt: skip
    told = HyperLearning._most_gain(cast("Any", stub), cast("Any", SimpleNamespace(posterior=None)))
    C = each**2 * np.eye(3) + common**2
    in_logs = by_length[:2] * lengths - np.log(lengths / centre) @ np.linalg.inv(C)
    across = in_logs - in_logs.mean(axis=1, keepdims=True)
    wanted = 0.5 * each**2 * float(np.sum(across**2))  # across the common factor the prior's curvature is 1 / each^2
    yield Compared(abs(told / wanted - 1.0), 1e-12, f"{wanted:.3f} nat for two functions", "fast", "definition")


@check(
    "identity/apep/step_lengths",
    paper="villacampa2020",
    question="Are residual and length of a step those of its change of q, in the metric of q?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._ascent import step_length
    from reference.villacampa2020.posterior import Gaussians, Natural

    rng = np.random.default_rng(101)
    for by_mean in (0.0, 1.0, 30.0):
        A, B = rng.standard_normal((2, 3, 4, 4))
        V, dT = A @ np.swapaxes(A, 1, 2) + np.eye(4), B + np.swapaxes(B, 1, 2)
        m, dt = rng.standard_normal((2, 3, 4))
        dt = np.einsum("kij,kj->ki", dT, m) + by_mean * dt
        residual, length = step_length(Natural(dT, dt), Gaussians(m, V))
        parts = []
        for k in range(3):
            root = np.linalg.cholesky(V[k])
            parts.append((np.sum((root.T @ dT[k] @ root) ** 2), np.sum((root.T @ (dt[k] - dT[k] @ m[k])) ** 2)))
        own = np.array(parts)
        wanted = float(np.sqrt(own.max())), float(np.sqrt(0.5 * own[:, 0].sum() + own[:, 1].sum()))
        gap = max(abs(residual / wanted[0] - 1.0), abs(length / wanted[1] - 1.0))
        yield Compared(gap, 1e-10, f"means that move by {by_mean:g}", "reference", "definition")


@check(
    "identity/pep/improper_rows",
    paper="villacampa2020",
    question="Is each datum without a cavity counted once, and left where it was, and its halvings not endless?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.linalg import NotPositiveDefiniteError
    from fast.core.values import Data, Prior
    from fast.methods import pep
    from fast.sparse_classes import power_factors
    from fast.sparse_classes.projections import ScalarMoments

    rng = np.random.default_rng(102)
    y, shape = np.array([0, 2, 1, 0, 1]), (5, 3)
    moments = ScalarMoments(rng.standard_normal(shape), rng.uniform(0.5, 2.0, shape))
    factors = power_factors.PowerDatum(0.5, 0.05)
    for rows in ((), (1,), (0, 3)):
        sites = 0.1 * np.ones(shape), 0.2 * rng.standard_normal(shape)
        for row in rows:
            sites[0][row, 1] = 1.01 / (0.5 * moments.var[row, 1])
        told = factors.visit(y, moments, 0.2 * np.ones(shape), sites)
        moved = [bool((told.target[0][i] != sites[0][i]).any()) for i in range(5)]
        wrong = told.n_improper != len(rows) or moved != [i not in rows for i in range(5)]
        wrong |= bool(np.isfinite(told.value)) == bool(rows)
        yield flaws(bool(wrong), f"rows {rows} have no cavity: {told.n_improper} counted", "fast", "data")

    asked = tiny("threshold errors")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    run = pep.fit(
        Data(asked.X, asked.y, asked.n_classes), prior, pep.PEPOptions(epsilon=0.05, alpha=0.5, max_iterations=2)
    ).run
    down, still = -np.array([np.eye(4)] * 3), np.zeros((3, 4))
    least = min(float(np.linalg.eigvalsh(np.tril(P) + np.tril(P, -1).T)[0]) for P in run.q.precision)
    before = run.q
    taken, halvings = run._move_damped(8.0 * least * down, still, 0.9)
    # the largest of .9, .45, ... below 1/8
    yield flaws(
        (taken, halvings) != (0.9 / 8.0, 3), f"a precision that an eighth of the step keeps: {taken:g}", "fast", "steps"
    )
    run.q = before
    try:
        run._move_damped(1e40 * down, still, 1.0)
        wrong = True
    except NotPositiveDefiniteError:
        wrong = run.q is not before
    yield flaws(wrong, "no step at all keeps it: refused, and q stands where it was", "fast", "steps")


@check(
    "identity/gibbs-probit/far_tails",
    paper="riihimaki2013",
    question="Does an exponential become the excess whose tail it is, beyond ten standard deviations too?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.draws import univariate_truncated as tail

    nodes, weights = _panels(np.array([0.0, 1.0, 3.0, 7.0, 14.0, 25.0, 45.0]))
    bound = np.array([-3.0, 0.5, 4.0, tail._FAR + 0.1, 20.0, 40.0, 1e3])
    for drop in (1e-3, 0.4, 3.0, 30.0):
        excess = tail._far(bound[3:], np.full(4, drop))
        # Q(z) = phi(z)/z int exp(-t - t^2 / (2 z^2)) dt, so that logarithms of ratios keep their digits
        far = bound[3:]
        there = far + excess
        log_tail = [
            np.log(np.exp(-nodes - 0.5 * (nodes / z[:, None]) ** 2) @ weights) - np.log(z) for z in (far, there)
        ]
        fallen = excess * (far + 0.5 * excess) + log_tail[0] - log_tail[1]
        yield Compared(
            float(np.abs(fallen / drop - 1.0).max()), 1e-9, f"log Q falls by {drop:g}", "gibbs", "definition"
        )


@check(
    "identity/vi-jj/looked_at_once",
    paper="izmailov2016",
    question="Is a block of data looked at once where its rows are kept, and in each sweep where they are not?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.likelihood import sobol_rule
    from fast.methods import vi_jj
    from fast.one_latent.quadratic_sweep import BlockPrior

    asked = tiny("logit many")
    assert asked.Z is not None
    prior, compute = Prior(1.7, np.array([0.9, 1.4]), 0.2, 2e-3, asked.Z[0]), BlockPrior._compute
    looked = []
    for budget in (2**26, 1):
        starts: list[int] = []

        def counted(self: Any, start: int, stop: int, starts: list[int] = starts) -> Any:
            starts.append(start)
            return compute(self, start, stop)

        with mock.patch.object(BlockPrior, "_compute", counted):
            made = vi_jj.JJOptions(max_iterations=3, block_size=64, memory_budget=budget)
            vi_jj.fit(Data(asked.X, asked.y), prior, made)
        looked.append({start: starts.count(start) for start in sorted(set(starts))})
    yield flaws(looked[0] != {0: 1, 64: 1, 128: 1}, f"kept: {looked[0]}", "fast", "looks")
    yield flaws(min(looked[1].values()) < 3, f"not kept: {looked[1]}", "fast", "looks")
    shared = sobol_rule.uniform_points(2, 64), sobol_rule.normal_points(2, 64)
    yield flaws(
        any(part.flags.writeable for part in shared),
        "points that all calls share cannot be written to",
        "fast",
        "arrays",
    )


@check(
    "identity/ep/unlike_widths",
    paper="villacampa2017",
    question="Is the probability of the largest value that of a rule cut at every class, however unlike their widths?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood.largest import argmax_moments

    rng = np.random.default_rng(103)
    n, C = 500, 4
    mean = rng.standard_normal((n, C)) * np.exp(rng.uniform(-2.0, 3.0, (n, 1)))
    var, y = np.exp(rng.uniform(-12.0, 6.0, (n, C))), rng.integers(0, C, n)
    rows = np.arange(n)
    behind = (mean - mean[rows, y][:, None]) / np.sqrt(var + var[rows, y][:, None])
    reached = (behind < 5.0).all(axis=1)  # where the label's class may win within thirteen of its deviations
    mean, var, y = mean[reached], var[reached], y[reached]
    told = argmax_moments(mean, var, y)
    assert told.derivative is not None
    gaps = []
    for i in range(len(y)):
        others = np.delete(np.arange(C), y[i])
        m, s, m_y, s_y = mean[i, others], np.sqrt(var[i, others]), mean[i, y[i]], np.sqrt(var[i, y[i]])
        cuts = np.concatenate(
            [m_y + s_y * np.arange(-13.0, 14.0), (m[:, None] + s[:, None] * np.arange(-9.0, 10.0)).ravel()]
        )
        cuts = np.unique(np.clip(cuts, m_y - 13.0 * s_y, m_y + 13.0 * s_y))
        f, weight = _panels(cuts)
        z = (f[:, None] - m) / s
        log_terms = -0.5 * ((f - m_y) / s_y) ** 2 - np.log(s_y) - 0.5 * np.log(2.0 * np.pi) + log_ndtr(z).sum(axis=1)
        top = log_terms.max()
        mass = weight * np.exp(log_terms - top)
        log_P = top + np.log(mass.sum())
        hazard = np.exp(-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(z))
        by_mean = -(mass @ hazard) / mass.sum()  # times s: in deviations
        gaps.append(
            (abs(told.log_mass[i] - log_P) / max(1.0, -log_P), np.abs(told.derivative[i, others] * s - by_mean).max())
        )
    worst = np.array(gaps).max(axis=0)
    yield Compared(
        float(worst[0]), 1e-11, f"log P of {len(y)} data, widths up to 8000 times apart", "fast", "definition"
    )
    yield Compared(float(worst[1]), 1e-10, "derivatives by the means, in deviations", "fast", "definition")


@check(
    "identity/ep/learned_density",
    paper="villacampa2017",
    question="Do steps of a prior follow the gradient of log Z and of the density of its parameters, added?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from importlib import import_module

    from fast.core.hyperprior import Hyperprior
    from fast.core.values import Data, Prior
    from fast.sparse_classes import training

    step = training.adam_step
    for method, name, more in (
        ("ep", "EPOptions", {}), ("sep", "SEPOptions", {}), ("pep", "PEPOptions", {"epsilon": 0.05}),
    ):  # fmt: skip
        module = import_module(f"fast.methods.{method}")
        asked = tiny("threshold errors" if more else "threshold")
        prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
        gradients: dict[bool, list[Array]] = {False: [], True: []}
        for dense in gradients:

            def watched(gradient: Array, *rest: Any, into: list[Array] = gradients[dense], **given: Any) -> Any:
                into.append(np.array(gradient))
                return step(gradient, *rest, **given)

            density = Hyperprior({"variance": ("log-normal", 0.7, 2.0)}, map_density="log") if dense else None
            made = getattr(module, name)(
                learn=("variance", "noise"),
                batches=[[0, 3, 5], [1, 2, 6]],
                optimizer="adam",
                hyperprior=density,
                **more,
            )
            with mock.patch.object(training, "adam_step", watched):
                module.fit(Data(asked.X, asked.y, asked.n_classes), prior, made)
        by_density = np.concatenate([-np.log(np.asarray(asked.variance) / 2.0) / 0.7**2, np.zeros(asked.n_classes)])
        gap = float(np.abs(gradients[True][0] - gradients[False][0] - by_density).max())
        yield Compared(
            gap, 1e-11, f"{method}: the first step's gradient with the density and without", "fast", "definition"
        )


@check(
    "identity/qep/refused_sites",
    paper="riihimaki2013",
    question="Is a datum without a site counted and left, and an ascent that is cut short not called an optimum?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.riihimaki2013 import qep
    from reference.villacampa2020 import fit_gaussian_factor
    from validation.solve import solve

    asked = tiny("multinomial-probit full")
    propose = qep.QuadratureEP._propose

    def refused(self: Any, i: int, without: Any) -> Any:
        return None if i == 2 else propose(self, i, without)

    given = {"max_iterations": 2, "nodes": 6, "gradients": False}
    plain = solve("reference", "qep", asked, **given)
    with mock.patch.object(qep.QuadratureEP, "_propose", refused):
        told = solve("reference", "qep", asked, **given)
    wrong = plain.n_improper != 0 or told.n_improper != 2 or bool(np.any(told.local["lambda_tilde"][2]))
    yield flaws(bool(wrong), f"two sweeps without datum 2: {told.n_improper} counted", "reference", "sites")
    errors = tiny("threshold errors")
    end = solve("reference", "apep", errors, tied_factor="gaussian", alpha=0.5, max_iterations=2)
    stopped = end.settings["optimum"]
    yield flaws(
        end.converged or stopped != fit_gaussian_factor.NOT_REACHED, f"two iterations: {stopped}", "reference", "ends"
    )


@check(
    "identity/vi-jj/distance_left",
    paper="izmailov2016",
    question="Is what plain sweeps leave the sum of the steps to come, and the draw of a density a draw of it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import vi_jj
    from gibbs.core.hyperpriors import Hyperprior, draw

    for rate in (0.3, 0.9):
        steps = iter(2.0 * rate ** np.arange(400))
        end = SimpleNamespace(value=0.0)
        state = cast("Any", SimpleNamespace(update=lambda steps=steps: float(next(steps)), end=end))
        trace, residual, converged = vi_jj._plain(state, 1e-4, 400, None)
        # step k is 2 rate^(k - 1), and all steps from it on add up to that over 1 - rate
        wanted = 2.0 * rate ** (len(trace) - 1) / (1.0 - rate)
        wrong = not converged or wanted > 1e-4 or wanted / rate <= 1e-4
        yield flaws(wrong, f"steps that fall by {rate:g}: ended after {len(trace)}", "fast", "sweeps")
        yield Compared(abs(residual / wanted - 1.0), 1e-10, f"steps that fall by {rate:g}", "fast", "definition")

    n = 40_000
    for family, df, distribution in (("half-student-t", 4.0, stats.t(4.0)), ("log-normal", 0.7, stats.norm(scale=0.7))):
        for root in (False, True):
            x = draw(np.random.default_rng(104), Hyperprior(family, df, 3.0, root), n)
            x = np.sqrt(x) if root else x
            below = [0.1, 0.3, 0.5, 0.7, 0.9]
            quantiles = (
                distribution.ppf(0.5 + 0.5 * np.array(below))
                if family == "half-student-t"
                else np.exp(distribution.ppf(below))
            )
            share = (x[:, None] < 3.0 * quantiles).mean(axis=0)
            z = (share - below) / np.sqrt(np.array(below) * (1.0 - np.array(below)) / n)
            # ten z at a level of 1e-4 by Bonferroni; draws of another scale or shape are tens of deviations off
            why = f"{family}, root {root}: shares below quantiles"
            yield Compared(float(np.abs(z).max()), 4.42, why, "gibbs", "scipy.stats", "z")


@check(
    "identity/gfitc/circles",
    paper="villacampa2017",
    question="Does an iteration of sites that only circles end by its own count, and call nothing converged?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.solve import site_iteration as iteration

    def visit(precision: Array, shift: Array) -> Any:
        # a quarter turn of (tau, nu) about (3, 0), by a step that full damping makes
        target = 3.0 - shift, precision - 3.0
        return iteration.Visit(precision, shift, *target, np.ones(1), 0.0, 0, None)

    start = np.array([4.0]), np.array([0.0])
    steps = iteration.SiteSteps(1e-10, 5000, monotone=False, accelerate=False)
    told = iteration.iterate_sites(visit, start, steps)
    # the step never falls below its first value: so many visits after that of the first
    wrong = told.converged or len(told.trace) != iteration._CIRCLES + 1
    yield flaws(wrong, f"ended after {len(told.trace)} visits, converged {told.converged}", "fast", "ends")


@check(
    "identity/apep/doubted_ends",
    paper="villacampa2020",
    question="Is a converged ascent asked for doubts, one that is cut short not, and a bad matrix named?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import algebra
    from reference.common.errors import NotPositiveDefiniteError
    from reference.villacampa2020 import fit_energies
    from validation.solve import solve

    asked = tiny("threshold errors")
    for most, converged in ((1, False), (None, True)):
        calls: list[str] = []

        def doubtful(*_: Any, calls: list[str] = calls, **__: Any) -> str:
            calls.append("asked")
            return "a made-up doubt"

        given = {"tolerance": 1e-4} if most is None else {"max_iterations": most}
        with mock.patch.object(fit_energies, "rounding_doubt", doubtful):
            told = solve("reference", "apep", asked, alpha=0.5, gradients=False, **given)
        wrong = told.converged or (len(calls) == 1) != converged
        yield flaws(wrong, f"max_iterations {most}: asked {len(calls)} times", "reference", "ends")
    bad = np.full((3, 3), np.nan)
    silent = []
    for ask in (
        lambda: algebra.eigenvalues(bad, "the matrix"), lambda: algebra.eigenvectors(bad, "the matrix"),
        lambda: algebra.spectrum(bad, "the matrix"), lambda: algebra.inverted(np.zeros((3, 3)), "the matrix"),
        lambda: algebra.solution(np.zeros((3, 3)), np.ones(3), "the matrix"),
    ):  # fmt: skip
        try:
            value = ask()
            if np.isfinite(np.asarray(value[0] if isinstance(value, tuple) else value)).any():
                silent.append("a number")
        except NotPositiveDefiniteError as error:
            if "the matrix" not in str(error):
                silent.append(str(error))
    yield flaws(bool(silent), f"NaN, or zero where an inverse is asked for {silent}", "reference", "errors")


@check(
    "identity/vi-robust/derivatives_of_the_bound",
    paper="villacampa2017",
    question="Are the derivatives of the bound in q those of its values, and do moves say which of them closed?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.sparse_classes import alpha_joint
    from gibbs.moves.hyper import slice_move
    from reference.common._classes import Prior
    from reference.villacampa2017.hyper import prior_matrices
    from reference.villacampa2017.posterior import Gaussians
    from reference.villacampa2017.vi_fit import Data

    asked = tiny("threshold errors")
    assert asked.Z is not None
    K = prior_matrices(asked.X, Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z))
    rng = np.random.default_rng(105)
    mean, cov = 0.4 * rng.standard_normal((3, 4)), np.array([0.5 * each + 0.05 * np.eye(4) for each in K.K_ZZ])
    along, turned = rng.standard_normal((3, 4)), rng.standard_normal((3, 4, 4))
    turned = turned + np.swapaxes(turned, 1, 2)
    data, h = Data(asked.X, asked.y, asked.epsilon, "projected"), 1e-5
    at = data.at(Gaussians(mean, cov), K)
    ends = [data.at(Gaussians(mean + sign * h * along, cov), K).value for sign in (-1.0, 1.0)]
    gap = abs((ends[1] - ends[0]) / (2.0 * h) / float(np.sum(at.by_mean * along)) - 1.0)
    ends = [data.at(Gaussians(mean, cov + sign * 1e-3 * h * turned), K).value for sign in (-1.0, 1.0)]
    gap = max(gap, abs((ends[1] - ends[0]) / (2e-3 * h) / float(np.sum(at.by_cov * turned)) - 1.0))
    # values of some tens round to 1e-14, over steps of 1e-8
    yield Compared(gap, 1e-4, "by differences in all means, and in all covariances", "reference", "definition")

    # sixty rows of which every third has no other point on its level: its interval closes on the state; nowhere to be
    # is no place of one more row, whose interval never closes
    position = rng.standard_normal((61, 2))
    lonely, nowhere = np.arange(61) % 3 == 1, np.arange(61) == 60

    def height(rows: Array, x: Array) -> Array:
        still = (x == position[rows]).all(axis=1)
        none = (lonely[rows] & ~still) | nowhere[rows]
        return np.where(none, -np.inf, -0.5 * np.sum(x * x, axis=1))

    told = slice_move(np.random.default_rng(106), position, np.ones((61, 2)), cast("Any", height), 2.0)
    moved = (told[0] != position).any(axis=1)
    yield flaws(bool((moved == (lonely | nowhere)).any()), "rows that have somewhere to go move", "gibbs", "rows")
    yield flaws(bool((told[1] == nowhere).any()), "and all intervals close but that of the last", "gibbs", "rows")

    for least, sure in ((1.0, True), (1e-9, False)):
        B = np.array([np.eye(4), np.diag([1.0, 1.0, 1.0, least])])
        wrong = alpha_joint._surely_positive(alpha_joint.White(np.zeros((2, 4)), B)) != sure
        yield flaws(wrong, f"a factor of q with the least entry {least:g}", "fast", "factors")


@check(
    "identity/vb-probit/narrow_regions",
    paper="riihimaki2013",
    question="Are probabilities of a region right where it hardly bends, and where it bends much?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood.region import region_moments

    rng = np.random.default_rng(107)
    u = np.linspace(-12.0, 12.0, 48_001)
    density = np.exp(-0.5 * u * u) * (u[1] - u[0]) / np.sqrt(2.0 * np.pi)
    for width in (1e-3, 0.1, 1.0, 8.0):
        a, b = rng.standard_normal((6, 3)), width * rng.uniform(0.5, 1.0, (6, 3))
        told = region_moments(a, b, moments=True)
        t = a[:, None, :] + b[:, None, :] * u[:, None]
        terms = np.exp(log_ndtr(t).sum(axis=2)) * density
        mass = terms.sum(axis=1)
        hazard = np.exp(-0.5 * t * t - 0.5 * np.log(2.0 * np.pi) - log_ndtr(t))
        gradient = np.einsum("nu,nuj->nj", terms, hazard) / mass[:, None]
        assert told.hazards is not None
        gap = max(float(np.abs(told.log_mass - np.log(mass)).max()), float(np.abs(told.hazards / gradient - 1.0).max()))
        # the hazards of the judge lose digits where log Phi is large
        yield Compared(gap, 1e-11, f"widths up to {width:g}", "fast", "definition")


@check(
    "identity/apep/told_after_steps",
    paper="villacampa2020",
    question="Is a listener told what the trace holds, and does an alternation wait for all parameters?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.hyper import ClassHyper
    from fast.core.values import Data, Prior
    from fast.full_classes.prior import MulticlassPrior
    from fast.methods import apep, ep, pep, sep, vb_probit
    from reference.villacampa2017 import protocol

    asked = tiny("threshold errors")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    lists: dict[str, Any] = {"batches": [[0, 3, 5], [1, 2, 6]], "learn": ("variance",), "trace": True}
    fits: tuple[tuple[Any, Any, bool], ...] = (
        (apep, apep.EnergyOptions, True), (pep, pep.PEPOptions, True), (ep, ep.EPOptions, False),
        (sep, sep.SEPOptions, False),
    )  # fmt: skip
    for module, options, robust in fits:
        events: list[Any] = []
        own: dict[str, Any] = {"epsilon": 0.05} if robust else {}
        made = options(**lists, **own, optimizer="adam", callback=events.append)
        end = module.fit(Data(asked.X, asked.y, asked.n_classes), prior, made).trained
        numbers = [(each.iteration, each.log_evidence, each.n_improper) for each in events]
        wrong = numbers != [(k + 1, value, 0) for k, value in enumerate(end.trace)] or len(numbers) != 2
        wrong |= not np.isfinite(end.trace).all()
        yield flaws(wrong, f"{options.__name__}: {len(numbers)} steps of a run on two batches", "fast", "events")

    full = tiny("multinomial-probit full")
    start = ClassHyper(full.variance, full.lengthscales, full.noise, full.jitter)
    # the variances move in the first round, the noises in the second, and nothing in the third
    first = start._replace(variance=2.0 * start.variance)
    second = first._replace(noise=2.0 * first.noise)
    ahead, rounds = mock.Mock(side_effect=(first, second, second, second)), list[Any]()
    with mock.patch.object(vb_probit, "update_hyperparameters", ahead):
        vb_probit.alternate(
            MulticlassPrior(full.X, full.y, 3, start, False), learn=("variance", "noise"), learning_tolerance=1e-3,
            callback=rounds.append,
        )  # fmt: skip
    yield flaws(len(rounds) != 3, f"rounds until nothing moves: {len(rounds)}", "fast", "rounds")
    for method in ("ep", "x-gpc", ""):
        try:
            protocol.batch_optimiser_choice(method)
            refused = False
        except ValueError as error:
            refused = str(error).startswith("method: found")
        yield flaws(refused != (method != "ep"), f"the protocol of {method or 'no method'}", "reference", "refusals")
