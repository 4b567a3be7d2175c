"""Rules inside solvers that decide little, each asked by numbers that leave it one right answer.

Which form a solver runs, how far a step goes, what is kept: answers of ordinary problems do not say.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]


@check(
    "identity/gfitc/factors_of_moves",
    paper="villacampa2017",
    question="Are contractions read off moves that rounding leaves alone, and off no other?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _sweeps
    from reference.common.errors import NotPositiveDefiniteError

    rising = np.array([1.5**k * np.array([1.0, 2.0]) for k in range(4)])
    yield Compared(
        abs(_sweeps._slowest(rising)), 0.0, "moves that grow contain no contraction", "reference", "definition"
    )

    rates = []
    for sizes in ((), (1.0, 0.5), (1.0, 0.5, 0.25), (1.0, 2.0, 4.0), (1e-13, 1e-13, 1e-13)):
        sweeps = _sweeps.Sweeps(1.0, 1e-300)
        sweeps._residuals = list(sizes)
        rates.append(sweeps._rate())
    yield flaws(rates != [1.0, 1.0, 0.5, 1.0, 0.5], f"none, two, three that fall, that grow, rounding: {rates}",
                "reference", "rates")  # fmt: skip

    sweeps = _sweeps.Sweeps(1.0, 1e-300)
    sweeps._residuals, sweeps._rates = [1.0, 0.9, 0.81], [0.5]  # 0.81 at 0.9 a sweep is 7.29 from the end
    yield Compared(abs(sweeps._distance() - 7.29), 1e-12, "what falls more slowly than before is farther away",
                   "reference", "definition", "distance")  # fmt: skip
    # a leap to where no distribution is: sweeps go on from where it began
    seen: list[float] = []

    class Leaping(_sweeps.Sweeps):
        def propose(self, sites: Any) -> Any:
            if self._count != 2:
                return None
            self._saved = (sites, self.change, 0)
            return (np.array([-1.0]),)

    def sweep(sites: Any, q: float) -> Any:
        seen.append(float(sites[0][0]))
        return _sweeps.Step((0.5 * sites[0],), 0.5 * float(sites[0][0]), 0)

    def posterior(sites: Any) -> float:
        if sites[0][0] < 0.0:
            raise NotPositiveDefiniteError("a leap")
        return float(sites[0][0])

    end = _sweeps.to_fixed_point(sweep, posterior, (np.array([1.0]),), Leaping(1.0, 1e-300), 4)
    yield flaws(seen != [1.0, 0.5, 0.25, 0.125] or float(end.sites[0][0]) != 0.0625, f"sweeps from {seen}", "reference",
                "sweeps")  # fmt: skip

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
            rows != min(n_draws, stores._ROWS), f"{n_draws} draws asked: room for {rows} at first", "gibbs", "rows"
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
    from scipy.stats import multivariate_normal

    from fast.core.hyperprior import Hyperprior, log_tied_lognormal
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
    by_log, normal = log_tied_lognormal(lengths, (common, each), centre), multivariate_normal(np.log(centre), C)
    value = normal.logpdf(np.log(lengths)) - np.log(lengths).sum(axis=1)
    derivative = -1.0 - np.log(lengths / centre) @ np.linalg.inv(C)
    gap = max(_largest(by_log.value.sum(axis=1) / value - 1.0), _largest(by_log.derivative / derivative - 1.0))
    yield Compared(gap, 1e-12, "a log-normal density of two functions' lengthscales", "fast", "SciPy")


def _largest(gap: Array) -> float:
    return float(np.abs(gap).max())


@check(
    "identity/apep/far_blocks",
    paper="villacampa2020",
    question="Is the gradient in Z the same where no product of matrices gives distances?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.kernel.kernels import PreparedKernel
    from fast.methods import apep, vi_robust

    few = tiny("threshold")
    given = Data(few.X, few.y, few.n_classes), Prior(few.variance, few.lengthscales, few.noise, few.jitter, few.Z)
    for module, options in ((apep, apep.EnergyOptions(max_iterations=3)), (vi_robust, vi_robust.RobustOptions())):
        posterior = module.fit(*given, options)
        near = posterior.run.gradient()
        with mock.patch.object(PreparedKernel, "sums", return_value=None):
            far = posterior.run.gradient()
        gap = max(_largest(a - b) / _largest(b) for a, b in zip(far, near, strict=True))
        yield Compared(gap, 1e-9, f"{module.__name__}: differences of rows, or products", "fast", "fast")


@check(
    "identity/nested-ep/watch",
    paper="riihimaki2013",
    question="Does an iteration end where five changes of its objective stay within what counts, and not before?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.ending import ENOUGH, Watch, ended, ending

    rng = np.random.default_rng(46)
    for worth in (0.5, 2.0):
        values = np.cumsum(rng.standard_normal(400)) * np.exp(-0.03 * np.arange(400.0)) + 10.0
        values[rng.random(400) < 0.3] = np.nan  # a step that was not taken leaves the value before
        values[0] = 10.0
        for gap in np.flatnonzero(np.isnan(values)):
            values[gap] = values[gap - 1]
        fresh = [k for k in range(400) if k == 0 or values[k] != values[k - 1]]
        spans = (fresh[k - 5 : k + 1] for k in range(5, len(fresh)))
        wanted = next(span[-1] for span in spans if np.ptp(values[span]) < worth)
        with ending(None, worth=worth), ending(None):
            watch, k = Watch(), -1
            while not ended():
                k += 1
                watch.after(float(values[k]))
            why = ended()
        yield flaws(k != wanted or why != ENOUGH, f"ended by value {k}, {wanted} wanted", "fast", "ends")


@check(
    "identity/svi/trace_without_hyperprior",
    paper="izmailov2016",
    question="Is what a run on mini-batches tells the bound, without the density of its parameters?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.hyperprior import Hyperprior
    from fast.core.values import Data, Prior
    from fast.methods import svi

    few = tiny("logit")
    assert few.Z is not None
    data = Data(few.X, few.y, 2)
    prior = Prior(float(few.variance[0]), few.lengthscales[0], float(few.noise[0]), float(few.jitter[0]), few.Z[0])
    density = Hyperprior({"variance": ("half-student-t", 4.0, 0.05)})
    told = [
        svi.fit_stochastic(
            data, prior, svi.SVISteps(batch_size=len(few.y), n_steps=1, learn=("variance",), hyperprior=which)
        ).trace[0]
        for which in (None, density)
    ]  # the first step's batch is all rows, at the start
    at_start = svi.fit(data, prior, svi.SVIOptions(max_iterations=1))[0]
    yield Compared(abs(told[1] / told[0] - 1.0), 1e-12, "with a density and without", "fast", "fast")
    yield flaws(not told[0] < at_start.elbo, "the bound at the start is no larger than later", "fast", "bounds")


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
