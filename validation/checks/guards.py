"""Guards of steps: what becomes of one at whose end the objective is said to have fallen, or where there is none.

Newton's and natural-gradient steps of ordinary problems are whole. So the judge says of the first trials of a step
that they lead nowhere: it has to be the first of 1, 1/2, 1/4, ... of the whole step that is not refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.checks.villacampa2020_dense import inverse
from validation.problem import Problem

Array = NDArray[np.float64]
_TIMES, _SHARE = 3, 0.125
_THRICE = "refused three times: an eighth of the whole step, in its own coordinates"
_Y = np.array([0, 1, 2, 0, 1, 2, 1, 0])


def _apart(one: Iterable[Any], other: Iterable[Any]) -> float:
    """Largest difference over the largest entry, of all arrays; infinite where shapes differ."""
    gaps = []
    for a, b in zip(one, other, strict=True):
        left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
        same = left.shape == right.shape
        gaps.append(float(np.abs(left - right).max() / max(1e-300, np.abs(right).max())) if same else np.inf)
    return float(np.max(gaps))


def _eighth(why: str, left: str, one: Iterable[Any], other: Iterable[Any]) -> Compared:
    return Compared(_apart(one, other), 1e-10, f"{why}: {_THRICE}", left, left, "relative difference")


class _Refusing:
    """A function whose calls after the first are answered otherwise, a number of times: the trials of one step.

    calls : int    how many there were
    """

    def __init__(self, function: Callable[..., Any], times: int, lower: Callable[[Any], Any], first: int = 1) -> None:
        self._function, self._times, self._lower, self._first = function, times, lower, first
        self.calls = 0

    def __call__(self, *asked: Any, **named: Any) -> Any:
        self.calls += 1
        answer = self._function(*asked, **named)
        return self._lower(answer) if self._first < self.calls <= self._first + self._times else answer


def _fallen(value: Any) -> Any:
    return value - 1e3


def _terms_fallen(terms: Any) -> Any:
    return terms._replace(value=terms.value - 1e3)


def _refusing(module: Any, name: str, times: int, lower: Callable[[Any], Any] = _fallen) -> Any:
    return mock.patch.object(module, name, _Refusing(getattr(module, name), times, lower))


def _mixed(ends: Sequence[Array], share: float) -> Array:
    return np.asarray((1.0 - share) * ends[0] + share * ends[1])


def _stacked(scale: float) -> Array:
    """Covariance of the values of three classes at eight data, class-major."""
    rng = np.random.default_rng(61)
    X = rng.standard_normal((8, 2))
    k = np.exp(-0.25 * np.square(X[:, None] - X[None]).sum(axis=2)) + 0.1 * np.eye(8)
    K = np.zeros((24, 24))
    for c in range(3):
        K[8 * c : 8 * c + 8, 8 * c : 8 * c + 8] = scale * (1.0 + c) * k
    return K


@check(
    "identity/laplace/guards",
    paper="riihimaki2013",
    question="Are Newton steps to the mode halved while the objective falls, in both witnesses and in the baseline?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.hyper import class_hyper
    from fast.full_classes import softmax_laplace
    from fast.full_classes.prior import MulticlassPrior
    from reference.riihimaki2013 import laplace
    from reference.villacampa2020 import laplace_sparse

    K = _stacked(1.3)
    whole: Any = laplace._laplace_mode(K, _Y, 1e-9, 1)
    with _refusing(laplace, "log_softmax_sum", _TIMES):
        part: Any = laplace._laplace_mode(K, _Y, 1e-9, 1)
    yield _eighth("from f = 0", "reference", (part[0],), (_SHARE * whole[0],))
    whole = laplace_sparse.laplace_mode(K, _Y, 3, 1e-9, 1)
    with _refusing(laplace_sparse, "softmax_log_likelihood", _TIMES):
        part = laplace_sparse.laplace_mode(K, _Y, 3, 1e-9, 1)
    yield _eighth("baseline, from f = 0", "reference", (part.latent_values,), (_SHARE * whole.latent_values,))
    asked = tiny("softmax full")
    hyper = class_hyper(asked.variance, asked.lengthscales, asked.noise, asked.jitter, 3, 2)
    prior = MulticlassPrior(asked.X, asked.y, 3, hyper, False)
    whole = softmax_laplace.find_mode(prior, tolerance=1e-9, max_iterations=1)
    with _refusing(softmax_laplace, "softmax_terms", _TIMES, _terms_fallen):
        part = softmax_laplace.find_mode(prior, tolerance=1e-9, max_iterations=1)
    yield _eighth("from f = 0", "fast", (part.latent,), (_SHARE * whole.latent,))
    # rounding: a step that comes no nearer ends it, and says that it has not arrived
    far = softmax_laplace.find_mode(prior, tolerance=1e-300, max_iterations=50)
    wrong = far.converged or not 3 < far.iterations < 20 or not far.residual < 1e-12
    yield flaws(wrong, f"a tolerance below rounding: {far.iterations} steps, residual {far.residual:.1e}", "fast",
                 "ends")  # fmt: skip


@check(
    "identity/vi-taylor/guards",
    paper="izmailov2016",
    question="Are steps of the two bounds halved while the height falls?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import vi_taylor
    from fast.one_latent.links import link_of
    from reference.izmailov2016 import _prior, algorithm1, fit

    asked = tiny("logit")
    assert asked.Z is not None
    sign = asked.y_sign
    hyper = _prior.Prior(asked.variance[0], asked.lengthscales[0], asked.noise[0], asked.jitter[0], asked.Z[0])
    K = _prior.matrices(asked.X, hyper)
    m = len(K.K_ZZ)

    def stage() -> Any:
        return algorithm1.taylor_stage_one(np.zeros(m), np.eye(m), sign, *K, 1, "logit")

    whole = stage()
    with _refusing(algorithm1, "taylor_log_likelihood", _TIMES):
        part = stage()
    yield _eighth("stage one, from mu = 0", "reference", part[:2], (_SHARE * whole.inducing_mean, whole.inducing_cov))

    start = fit.Variational(np.zeros(m), K.K_ZZ, np.zeros(len(sign)))
    whole, rate = fit._svi_update(K, sign, "logit")[0](start)
    with _refusing(fit, "elbo", _TIMES):
        update, _ = fit._svi_update(K, sign, "logit")
        part, used = update(start)
        _, again = update(part)
    inverses = [inverse(each) for each in (part.inducing_cov, K.K_ZZ, whole.inducing_cov)]
    yield _eighth("natural parameters of q(u)", "reference", (inverses[0], inverses[0] @ part.inducing_mean),
                   (_mixed(inverses[1:], _SHARE), _SHARE * inverses[2] @ whole.inducing_mean))  # fmt: skip
    yield flaws((rate, used, again) != (1.0, _SHARE, 2.0 * _SHARE), f"rates {rate}, {used}, then twice that: {again}",
                 "reference", "rates")  # fmt: skip

    prepared = vi_taylor.prepare(
        Data(asked.X, asked.y),
        Prior(asked.variance[0], asked.lengthscales[0], asked.noise[0], asked.jitter[0], asked.Z[0]),
        vi_taylor.DEFAULTS,
    )
    expansion = vi_taylor.Expanded(link_of("logit").log_likelihood)
    whole_mean, heights, *_ = vi_taylor._newton(prepared, expansion, None, 1e-9, 1, None)
    refusing = vi_taylor.Expanded(_Refusing(expansion.log_likelihood, _TIMES, _terms_fallen, first=2))
    part_mean, lower, *_ = vi_taylor._newton(prepared, refusing, None, 1e-9, 1, None)
    yield _eighth("the mode, from f = 0", "fast", (part_mean,), (_SHARE * whole_mean,))
    yield flaws(not lower[0] == heights[0] <= lower[-1], "the height does not fall", "fast", "heights")
    # log p(y|f) - u'K_ZZ^-1 u/2 with f = kappa u: kappa has as many rows as data, and u is known from f
    kappa = np.linalg.solve(K.K_ZZ, K.K_XZ.T).T
    for most in (1, 2, 3):
        mean, heights, *_ = vi_taylor._newton(prepared, expansion, None, 1e-9, most, None)
        u = np.linalg.lstsq(kappa, mean, rcond=None)[0]
        wanted = -np.logaddexp(0.0, -sign * mean).sum() - 0.5 * u @ np.linalg.solve(K.K_ZZ, u)
        yield Compared(abs(heights[-1] - wanted), 1e-8, f"height after {most} steps: conditions below 1e4", "fast",
                       "definition", "nat")  # fmt: skip


@check(
    "identity/svgpc/guards",
    paper="wenzel2019",
    question="Are natural-gradient steps halved while the bound falls, and is a run stuck where no length helps?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.wenzel2019 import _prior, fit_svgpc

    asked = tiny("probit")
    assert asked.Z is not None
    hyper = _prior.Hyper(asked.variance[0], asked.lengthscales[0], asked.noise[0], asked.jitter[0], asked.Z[0])
    given = _prior.Inputs(asked.X, asked.y_sign, hyper)
    K_ZZ = _prior.matrices(asked.X, hyper).K_ZZ
    whole = fit_svgpc._ascend(given, 1e-9, 1, None)
    with _refusing(fit_svgpc, "svgpc_bound", _TIMES):
        part = fit_svgpc._ascend(given, 1e-9, 1, None)
    inverses = [inverse(each) for each in (part.inducing_cov, K_ZZ, whole.inducing_cov)]
    yield _eighth("natural parameters of q(u)", "reference", (inverses[0], inverses[0] @ part.inducing_mean),
                   (_mixed(inverses[1:], _SHARE), _SHARE * inverses[2] @ whole.inducing_mean))  # fmt: skip
    yield flaws(part.converged or whole.converged, "one step from the prior is no end", "reference", "ends")
    with _refusing(fit_svgpc, "svgpc_bound", _TIMES):
        two = fit_svgpc._ascend(given, 1e-9, 2, None)
    # the second step starts at twice the rate of the first
    start = fit_svgpc.Gaussian(part.inducing_mean, part.inducing_cov)
    after = fit_svgpc._ascend(given, 1e-9, 1, start)
    target, here = inverse(after.inducing_cov), inverses[0]
    wanted = _mixed((here, target), 2.0 * _SHARE)
    shift = (1.0 - 2.0 * _SHARE) * here @ part.inducing_mean + 2.0 * _SHARE * target @ after.inducing_mean
    precision = inverse(two.inducing_cov)
    yield Compared(_apart((precision, precision @ two.inducing_mean), (wanted, shift)), 1e-10,
                   "the step after it is twice as long as it", "reference", "reference")  # fmt: skip
    with _refusing(fit_svgpc, "svgpc_bound", 10**6):
        stuck = fit_svgpc._ascend(given, 1e-9, 50, None)
    yield flaws(stuck.converged or stuck.iterations != 1, "no length of a step leads up: it ends there, unconverged",
                 "reference", "ends")  # fmt: skip


@check(
    "identity/vb-probit/guards",
    paper="riihimaki2013",
    question="Are the steps of the bound halved while it falls?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import vb_probit

    asked = tiny("multinomial-probit full")
    data = Data(asked.X, asked.y, 3)
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, None)

    def run(most: int, accelerate: bool = True) -> Any:
        return vb_probit.fit(data, prior, vb_probit.VBOptions(max_iterations=most, accelerate=accelerate))

    whole = run(1)
    with _refusing(vb_probit, "vb_bound", _TIMES):
        part = run(1)
    yield _eighth("weights and means, from zero", "fast", (part.posterior.weights, part.latent_mean),
                   (_SHARE * whole.posterior.weights, _SHARE * whole.latent_mean))  # fmt: skip
    with _refusing(vb_probit, "vb_bound", _TIMES):
        plain = run(1, accelerate=False)
    gap = _apart((plain.latent_mean,), (run(1, accelerate=False).latent_mean,))
    yield Compared(gap, 0.0, "a plain sweep is never halved", "fast",
                   "fast")  # fmt: skip


@check(
    "identity/pep/guards",
    paper="villacampa2020",
    question="Is the damping of a sweep halved until q is a distribution, counted, and an error if that never is?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core import errors as of_fast
    from fast.sparse_classes import power_factors
    from reference.common.errors import NotPositiveDefiniteError
    from reference.villacampa2020 import fit_pep

    asked = tiny("threshold errors")
    for form in ("projected", "printed"):
        name = f"_{form}_sweep"
        sweep = getattr(fit_pep, name)
        for times, fails in ((_TIMES, False), (10**6, True)):
            count: list[float] = []

            def refused(*arguments: Any, sweep: Any = sweep, count: list[float] = count, times: int = times) -> Any:
                count.append(arguments[4])  # the damping
                if len(count) <= times:
                    raise NotPositiveDefiniteError("precision of q", 4, -1.0, "nothing")
                return sweep(*arguments)

            with mock.patch.object(fit_pep, name, refused):
                try:
                    part = context.solve("reference", "pep", asked.replace(name=f"{form} {times}"), alpha=0.7,
                                         damping=0.8, max_iterations=1, form=form)  # fmt: skip
                except np.linalg.LinAlgError:
                    part = None
            if fails:
                yield flaws(part is not None or count != [0.8 * 0.5**k for k in range(len(count))] or len(count) < 5,
                             f"{form}: refused {len(count)} times, each half of the one before, then an error",
                             "reference", "ends")  # fmt: skip
                continue
            if part is None:
                yield flaws(1, f"{form}: given up after {len(count)} sweeps", "reference", "ends")
                continue
            plain = context.solve(
                "reference", "pep", asked, alpha=0.7, damping=_SHARE * 0.8, max_iterations=1, form=form
            )
            yield Compared(_apart((part.inducing_mean, part.inducing_cov), (plain.inducing_mean, plain.inducing_cov)),
                           1e-10, f"{form}: refused three times at damping 0.8: a sweep at 0.1", "reference",
                           "reference")  # fmt: skip
            yield flaws(abs(part.n_improper - plain.n_improper - _TIMES), "each counted", "reference", "miscounted")

    made: list[int] = []
    of = power_factors.ClassDistribution.of

    def refused_of(*parts: Any, times: int = _TIMES) -> Any:
        made.append(0)
        if len(made) <= times:
            raise of_fast.NotPositiveDefiniteError("precision of q: found nothing")
        return of(*parts)

    with mock.patch.object(power_factors, "ClassDistribution", mock.Mock(of=refused_of)):
        part = context.solve("fast", "pep", asked.replace(name="refused"), alpha=0.7, damping=0.8, max_iterations=1)
    plain = context.solve("fast", "pep", asked, alpha=0.7, damping=_SHARE * 0.8, max_iterations=1)
    yield Compared(_apart((part.inducing_mean, part.inducing_cov), (plain.inducing_mean, plain.inducing_cov)), 1e-10,
                   "refused three times at damping 0.8: a sweep at 0.1", "fast", "fast")  # fmt: skip
    yield flaws(abs(part.n_improper - plain.n_improper - _TIMES), "each counted", "fast", "miscounted")


@check(
    "identity/mh-softmax/guards",
    paper="riihimaki2013",
    question="Do the searches that samplers start from shorten a step that leads down, and arrive all the same?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.draws import truncated_normal
    from gibbs.moves import softmax

    chol = np.asarray(np.linalg.cholesky(_stacked(1.3)[:16, :16]), dtype=np.float64)
    basis = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])

    class Falling(softmax.Target):
        """The first step is said to lead down, some times."""

        times, calls = 0, 0

        def log_likelihood(self, white: Array) -> Array:
            Falling.calls += 1
            value = super().log_likelihood(white)
            return value - 1e3 if 1 < Falling.calls <= 1 + Falling.times else value

    def run(times: int, most: int) -> Any:
        Falling.times, Falling.calls = times, 0
        return softmax.laplace(Falling(_Y, basis, chol), most)

    whole = run(0, 1)
    yield _eighth("the mode, from zero", "gibbs", (run(_TIMES, 1)[0],), (_SHARE * whole[0],))
    yield Compared(_apart(run(_TIMES, 100), run(0, 100)), 1e-4, "ended by a gain of 1e-9: 5e-5 at curvature 1", "gibbs",
                   "gibbs")  # fmt: skip
    mode, root = run(10**6, 100)
    wrong = bool(mode.any())
    yield flaws(wrong, "no step leads up: it stays at zero", "gibbs", "ends")
    # curvature at zero: each class has probability 1/3
    T = np.kron(basis @ (np.eye(3) / 3.0 - 1.0 / 9.0) @ basis.T, np.eye(8))
    H = np.eye(16) + chol.T @ T @ chol
    yield Compared(_apart((root @ root.T,), (inverse(H),)), 1e-9, "and gives the covariance there", "gibbs",
                   "definition")  # fmt: skip

    rng = np.random.default_rng(62)
    loadings = rng.standard_normal((5, 9))
    matrix = loadings @ loadings.T / 9.0
    lower, upper = np.full(5, 0.3), np.full(5, np.inf)
    plain = truncated_normal.tilt(matrix, lower, upper)
    merit, count = truncated_normal._Point.merit, [0]

    def steep(point: Any, var: Any) -> float:
        count[0] += 1
        return np.inf if 1 < count[0] <= 1 + _TIMES else float(merit(point, var))

    with mock.patch.object(truncated_normal._Point, "merit", steep):
        other = truncated_normal.tilt(matrix, lower, upper)
    yield Compared(abs(other.log_bound - plain.log_bound), 1e-10, "a saddle point does not depend on the way", "gibbs",
                   "gibbs", "nat")  # fmt: skip
    yield flaws(count[0] < 3 + _TIMES, "three trials were refused", "gibbs", "trials")


@check(
    "identity/vi-robust/guards",
    paper="villacampa2020",
    question="Are natural-gradient steps on bounds and energies halved while these fall, given up where none helps?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.common import _ascent
    from reference.common._classes import Prior
    from reference.common._gaussians import Gaussians
    from reference.villacampa2017 import hyper, vi_fit
    from reference.villacampa2020 import fit_energies
    from reference.villacampa2020.hyper import prior_matrices

    asked = tiny("threshold errors")
    assert asked.Z is not None
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    own, K = hyper.prior_matrices(asked.X, prior), prior_matrices(asked.X, prior)
    start = Gaussians(np.zeros((3, 4)), K.K_ZZ)
    bound = vi_fit.Data(asked.X, asked.y, 0.05)

    def energy(method: str) -> Any:
        data = fit_energies.Data(asked.X, asked.y, method, 0.05, 0.7)
        return lambda q: data.at(q, K)

    def stepped(objective: Any, times: int, most: int) -> tuple[Any, list[float]]:
        """Steps of which the first trials are said to lower the objective, some times."""
        values: list[float] = []
        calls = count()

        def falling(q: Any) -> Any:
            at = objective(q)
            return at._replace(value=at.value - 1e3) if 1 <= next(calls) <= times else at

        told = lambda value, residual: values.append(value)  # noqa: E731
        return _ascent.mixed_steps(falling, K.K_ZZ, start, _ascent.Goal(1e-9, most), told)[0], values

    for method, objective in (
        ("vi-robust", lambda q: bound.at(q, own)), ("apep", energy("apep")), ("bb-alpha", energy("bb-alpha")),
    ):  # fmt: skip
        (whole, _), (part, observed) = stepped(objective, 0, 1), stepped(objective, _TIMES, 1)
        yield _eighth(f"{method}, natural parameters of q", "reference", _naturals(part), _between(start, whole))
        stuck, none = stepped(objective, 10**6, 9)
        yield flaws(len(observed) != 1 or bool(none) or stuck is not start, f"{method}: no length leads up: no step",
                     "reference", "ends")  # fmt: skip


def _naturals(q: Any) -> tuple[Array, Array]:
    precision = inverse(q.cov)
    return precision, np.einsum("kij,kj->ki", precision, q.mean)


def _between(start: Any, whole: Any) -> tuple[Array, Array]:
    here, there = _naturals(start), _naturals(whole)
    return _mixed((here[0], there[0]), _SHARE), _mixed((here[1], there[1]), _SHARE)
