"""What is stated as an error against what errs: averages over draws and log Z of many seeds.

Over 32 seeds the squared distance from the truth, over the squared error stated, is a chi-square of 32 degrees of
freedom over 32 where the error is right; an error that forgets autocorrelation, or divides by n in place of its root,
is far outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr
from scipy.stats import chi2, norm
from scipy.stats import t as student

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Tested, check
from validation.checks.definitions import hyper_model as own
from validation.checks.definitions.few_data import Few, X, Z
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.door.statistics import QUANTITIES

Array = NDArray[np.float64]
PAPER = {"gibbs-logit": "wenzel2019", "gibbs-threshold": "villacampa2017", "gibbs-pairwise": "villacampa2017"}
SEEDS = 32
LEVEL = 1e-6  # of each bound: some hundred of them stand here


class Estimates(NamedTuple):
    """One quantity from every seed: values and errors (seeds, ...)."""

    values: Array
    errors: Array


def spread(value: Estimates, truth: Any, *, cautious: float = 1.0, unsure: float = 1.1) -> tuple[float, float]:
    """How far the ratio of mean squares is beyond its upper and its lower bound: above one is outside.

    cautious: factor by which an error may be stated too large on purpose; unsure: on either side, for what the mean of
    32 squared errors is itself in doubt by, with 15 degrees of freedom each 6 %.
    """
    n = len(value.values)
    values, errors = value.values.reshape(n, -1), value.errors.reshape(n, -1)
    gap = values - np.ravel(truth)
    with np.errstate(divide="ignore", invalid="ignore"):  # no error at all is told below
        ratio = np.square(gap).mean(axis=0) / np.square(errors).mean(axis=0)
    upper, lower = chi2.isf(LEVEL, n) / n * unsure, chi2.ppf(LEVEL, n) / n / unsure / cautious**2
    if not np.all(np.isfinite(ratio)):
        return np.inf, np.inf
    return float(ratio.max() / upper), float(lower / ratio.min())


def judged(name: str, value: Estimates, truth: Any, *, cautious: float = 1.0) -> Iterable[Outcome]:
    """Both bounds, and the mean over the seeds against the truth."""
    n = len(value.values)
    above, below = spread(value, truth, cautious=cautious)
    why = f"chi-square of {n} degrees of freedom, 1e-6 on either side, a tenth for the doubt in {n} squared errors"
    yield Compared(above, 1.0, f"{name}: errors are not stated too small; {why}", "gibbs", "truth", "of the bound")
    yield Compared(below, 1.0, f"{name}: nor too large; {why}", "gibbs", "truth", "of the bound")
    gap = value.values.reshape(n, -1) - np.ravel(truth)
    z = gap.mean(axis=0) / (gap.std(axis=0, ddof=1) / np.sqrt(n))
    # a t of n - 1 degrees of freedom, read as a normal of the same tail
    z = -norm.ppf(np.maximum(student.sf(np.abs(z), n - 1), 1e-300))
    yield Tested(
        z, f"{name}: mean over {n} seeds, t read as z; Holm over the run at 1e-4", "gibbs", "truth",
        "a bias of one and a half stated errors would show",
    )  # fmt: skip


def widening(n_batches: int) -> float:
    """Student's quantile over the normal one at 5e-6, as the errors from batches are documented to be widened by."""
    return float(student.isf(5e-6, n_batches - 1) / norm.isf(5e-6))


# -- runs of many seeds ------------------------------------------------------------------------------------------------


class Sampler(NamedTuple):
    """A sampler on two data, and what one run is asked."""

    method: str
    few: Few
    options: Mapping[str, Any]

    def runs(self, context: Context, **more: Any) -> list[Solution]:
        """Answers of all seeds."""
        distributions = DISTRIBUTIONS if "learn" in self.options else None
        problem = self.few.problem(distributions)
        return [
            context.solve("gibbs", self.method, problem, **{**self.options, **more}, seed=seed) for seed in range(SEEDS)
        ]


def _lengths(**more: Any) -> dict[str, Any]:
    # 32 chains: as many batches as the errors need, of which each is a chain
    own = {} if "learn" in more else {"evidence": "none"}
    return {"n_chains": 32, "n_draws": 40, "n_warmup": 40} | own | more


DISTRIBUTIONS = {
    "variance": ("log-normal", 0.5, 1.5),
    "lengthscales": ("log-normal", 0.4, 0.9),
    "noise": ("log-normal", 0.5, 0.4),
}
_LEARNT = {"learn": ("variance", "lengthscales"), "n_steps": 3}
SAMPLERS = (
    Sampler("gibbs-logit", Few("logit", fitc=True), _lengths(moves=())),
    Sampler("gibbs-logit", Few("logit"), _lengths(moves=("scale", "ellipse"))),
    Sampler("gibbs-probit", Few("multinomial-probit"), _lengths(moves=())),
    Sampler("gibbs-probit", Few("probit", fitc=True), _lengths()),
    Sampler("gibbs-threshold", Few("threshold", 0.3), _lengths()),
    Sampler("gibbs-threshold", Few("threshold", 0.0, True), _lengths()),
    Sampler("mh-softmax", Few("softmax"), _lengths(moves=("scaled", "ellipse"))),
    Sampler("mh-softmax", Few("softmax", fitc=True), _lengths()),
    Sampler("exact-probit", Few("multinomial-probit", fitc=True), {"n_draws": 200}),
    Sampler("gibbs-pairwise", Few("threshold", fitc=True), _lengths()),
    Sampler("gibbs-logit", Few("logit"), _lengths(**_LEARNT)),
    Sampler("gibbs-probit", Few("multinomial-probit"), _lengths(**_LEARNT)),
    Sampler("mh-softmax", Few("softmax"), _lengths(**_LEARNT)),
)
# of 32 batches and more; the errors of chains are widened on purpose (`widening`)
_WIDENED = widening(32)


def _flat(answer: Solution) -> dict[str, tuple[Array, Array]]:
    """Each average with its error."""
    given: dict[str, Any] = {**vars(answer), **answer.local}
    # a parameter's own mean states its error without the word
    errors = {f"{name}_mean": f"{name}_se" for name in answer.settings.get("learn", ())}
    names = [*QUANTITIES, *(name for name in answer.local if name.startswith("log_") and not name.endswith("_se"))]
    pairs = {name: f"{name}_se" for name in names if "evidence" not in name} | errors
    return {
        name: (np.asarray(given[name]), np.asarray(given[error]))
        for name, error in pairs.items()
        if given.get(name) is not None and given.get(error) is not None
    }


def _averages(context: Context, entry: Sampler) -> Iterable[Outcome]:
    parts = [_flat(answer) for answer in entry.runs(context)]
    worst: list[tuple[float, float, str]] = []
    for name in parts[0]:
        values, errors = (np.array([part[name][k] for part in parts]).reshape(SEEDS, -1) for k in (0, 1))
        # what is the same in every run is known: blocks between latents that no datum links
        moves = (np.ptp(values, axis=0) > 1e-12) | (errors.max(axis=0) > 1e-12)
        if not moves.any():
            continue
        values, errors = values[:, moves], errors[:, moves]
        # about their own mean: one degree of freedom less, which the factor gives back
        centre, grow = values.mean(axis=0), np.sqrt(SEEDS / (SEEDS - 1.0))
        scaled = Estimates(centre + grow * (values - centre), errors)
        worst.append((*spread(scaled, centre, cautious=_WIDENED, unsure=1.3), name))
    why = (
        f"{entry.few.likelihood}: largest of {len(worst)} averages over {SEEDS} seeds, chi-square at 1e-6 either side; "
        "errors from 32 batches and more of correlated draws are in doubt by a tenth each"
    )
    above, below = max(worst), max(worst, key=lambda value: value[1])
    yield Compared(above[0], 1.0, f"{above[2]}: not stated too small; {why}", "gibbs", "itself", "of the bound")
    yield Compared(below[1], 1.0, f"{below[2]}: not stated too large; {why}", "gibbs", "itself", "of the bound")


def _log_evidence(context: Context, entry: Sampler) -> Iterable[Outcome]:
    """Each route to log Z of a run, and log Z itself where a method has one route alone."""
    answers = entry.runs(context)
    routes = [name for name in answers[0].local if name.startswith("log_evidence_")] or ["log_evidence"]
    for name in routes:
        pairs = [a.local.get(name, (a.log_evidence, a.log_evidence_se)) for a in answers]
        values, errors = np.array(pairs, dtype=np.float64).T
        # a bridge averages two halves as if they were one: errors up to √2 too large
        cautious = np.sqrt(2.0) if "bridge" in name else 1.0
        text = f"{name}, {entry.few.likelihood}{', FITC' if entry.few.fitc else ''}"
        yield from judged(text, Estimates(values, errors), entry.few.log_evidence(), cautious=float(cautious))


_ROUTED = {"n_chains": 4, "n_draws": 160, "n_warmup": 40, "evidence": "all", "target_error": 1.0}
ROUTES = (
    Sampler("gibbs-logit", Few("logit"), _ROUTED),
    Sampler("gibbs-logit", Few("logit", fitc=True), _ROUTED),
    Sampler("gibbs-probit", Few("multinomial-probit"), _ROUTED),
    Sampler("gibbs-probit", Few("probit"), _ROUTED),
    Sampler("gibbs-threshold", Few("threshold", 0.3, True), _ROUTED),
    Sampler("exact-probit", Few("multinomial-probit"), {"n_draws": 16, "target_error": 0.02, "max_proposals": 2000}),
    Sampler("mh-softmax", Few("softmax"), _ROUTED),
)


def _register(method: str) -> None:
    # 32 runs of a chain take seconds, of independent draws a fifth of one
    always = method == "exact-probit"
    problems, full = ((NO_PROBLEM,), ()) if always else ((), (NO_PROBLEM,))

    @check(
        f"exactness/{method}/average_errors",
        paper=PAPER.get(method, "riihimaki2013"),
        question="Over 32 seeds averages over draws err by as much as they state.",
        problems=problems,
        full=full,
    )
    def average_errors(context: Context, problem: Problem) -> Iterable[Outcome]:
        for entry in SAMPLERS:
            if entry.method == method:
                yield from _averages(context, entry)

    if all(entry.method != method for entry in ROUTES):
        return

    @check(
        f"exactness/{method}/log_evidence_errors",
        paper=PAPER.get(method, "riihimaki2013"),
        question="The errors of each route to log Z over 32 seeds are as large as it states.",
        problems=problems,
        full=full,
    )
    def log_evidence_errors(context: Context, problem: Problem) -> Iterable[Outcome]:
        for entry in ROUTES:
            if entry.method == method:
                yield from _log_evidence(context, entry)


for _method in dict.fromkeys(entry.method for entry in SAMPLERS):
    _register(_method)


# -- the pairwise model -----------------------------------------------------------------------------------------------


def _log_white(white: Array) -> Array:
    return np.asarray(-0.5 * (white**2).sum(axis=1) - 0.5 * white.shape[1] * np.log(2.0 * np.pi))


def _latents(few: Few, u: Array) -> tuple[Array, Array]:
    """Means (N, L, n) and variances (L, n) of f, each value independent of the others, given u (N, L, m)."""
    means, variances = [], []
    for k, theta in enumerate(few.thetas):
        K, cross = few.blocks[k].inducing, own.kernel(theta, Z, X)
        assert K is not None
        gain = np.linalg.solve(K, cross)
        means.append(u[:, k] @ gain)
        variances.append(theta[0] + theta[-1] - (cross * gain).sum(axis=0))
    return np.stack(means, axis=1), np.array(variances)


def pairwise_log_joint(few: Few, white: Array) -> Array:
    """Σ log Φ((m^y - m^k)/√(s^y + s^k)) + log N(ξ; 0, I), u = chol(K_ZZ) ξ."""
    (mean, s), total_log = _latents(few, inducing_of(few, white)), _log_white(white)
    for i, label in enumerate(few.y):
        for k in range(few.n_latents):
            if k != label:
                gap = mean[:, label, i] - mean[:, k, i]
                total_log = total_log + log_ndtr(gap / np.sqrt(s[label, i] + s[k, i]))
    return total_log


def inducing_of(few: Few, white: Array) -> Array:
    """u (N, L, m) of white coordinates (N, L m)."""
    at = white.reshape(len(white), few.n_latents, -1)
    roots = [np.linalg.cholesky(value.inducing) for value in few.blocks]  # type: ignore[arg-type]
    return np.stack([at[:, k] @ root.T for k, root in enumerate(roots)], axis=1)


@check(
    "exactness/gibbs-pairwise/draws",
    paper=PAPER["gibbs-pairwise"],
    question="Inducing values of the pairwise model have the means and second moments of draws by rejection.",
    problems=(NO_PROBLEM,),
)
def gibbs_pairwise_draws(context: Context, problem: Problem) -> Iterable[Outcome]:
    few = Few("threshold", fitc=True)
    lengths = {"n_chains": 64, "n_draws": 60 if context.quick else 1000, "n_warmup": 20, "evidence": "none"}
    answer = context.solve("gibbs", "gibbs-pairwise", few.problem(), **lengths, seed=6)
    rng = np.random.default_rng(25)
    white = rng.standard_normal((60_000, few.n_latents * len(Z)))
    u = inducing_of(few, white[np.log(rng.random(len(white))) < pairwise_log_joint(few, white) - _log_white(white)])
    centred = u - u.mean(axis=0)
    products = np.einsum("nki,nkj->nkij", centred, centred)
    found = _flat(answer)
    for name, truth in (("inducing_mean", u), ("inducing_cov", products)):
        value, error = found[name]
        z = (value - truth.mean(axis=0)) / np.hypot(error, truth.std(axis=0, ddof=1) / np.sqrt(len(truth)))
        yield Tested(
            np.ravel(z), f"{name}; two-sided z, Holm over the run at 1e-4", "gibbs", "rejection",
            "a sixth of a deviation would show",
        )  # fmt: skip
