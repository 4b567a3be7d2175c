"""What is stated as an error against what errs: over many seeds, and on series whose error is known.

Over 32 seeds the squared distance from the truth, over the squared error stated, is a chi-square of 32 degrees of
freedom over 32 where the error is right; an error that forgets autocorrelation, or divides by n in place of its root,
is far outside. Series of known autocorrelation hold the same formulas to a few percent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm
from scipy.stats import t as student

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Tested, check
from validation.checks.definitions.few_data import Few
from validation.door.problem import Problem
from validation.implementations.by_name import sampler_by_name

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


# -- series of known autocorrelation -----------------------------------------------------------------------------------

PHI = 0.8


def series(rng: np.random.Generator, shape: tuple[int, int], size: int, phi: float = PHI) -> Array:
    """(r, s, size) stationary autoregressions of unit variance."""
    r, s = shape
    noise = np.sqrt(1.0 - phi**2) * rng.standard_normal((s, r, size))
    out = np.empty((s, r, size))
    out[0] = rng.standard_normal((r, size))
    for k in range(1, s):
        out[k] = phi * out[k - 1] + noise[k]
    return np.moveaxis(out, 0, 1)


def error_of_mean(r: int, s: int, phi: float) -> float:
    """Standard deviation of the mean of r such chains of s draws: Σ_k (s - |k|) φ^|k| / s²."""
    k = np.arange(1, s)
    return float(np.sqrt((s + 2.0 * ((s - k) * phi**k).sum()) / (r * s**2)))


def widening(n_batches: int) -> float:
    """Student's quantile over the normal one at 5e-6, as the errors from batches are documented to be widened by."""
    return float(student.isf(5e-6, n_batches - 1) / norm.isf(5e-6))


def _mean_in_batches(draws: Array, n_batches: int) -> tuple[Any, int]:
    """Running sums as a run makes them, block by block, then joined."""
    from gibbs.chains.moments import BatchSums, batch_average

    r, s = draws.shape[:2]
    sums, at = BatchSums(r), 0
    while at < s:
        step = min(sums.room, 7, s - at)
        sums.add({"x": draws[:, at : at + step].sum(axis=1)}, step)
        at += step
    batches = sums.batches().joined(n_batches)
    return batch_average(batches.means("x"), batches.widths), r * batches.widths.size


@check(
    "exactness/gibbs-logit/errors_of_series",
    paper="wenzel2019",
    question="Are the errors of averages over correlated draws those that are known for the series?",
    problems=(NO_PROBLEM,),
)
def gibbs_logit_errors_of_series(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.chains.diagnostics import convergence, standard_error, variance_influence

    # 300 columns of 4 chains of 640 draws: their mean squared error is known to 8 % and less
    r, s, size = 4, 640, 300
    rng = np.random.default_rng(11)
    draws = series(rng, (r, s), size)
    known, known_square = error_of_mean(r, s, PHI), np.sqrt(2.0) * error_of_mean(r, s, PHI**2)
    results = [("standard_error", standard_error(draws), known, 1.0)]
    average, count = _mean_in_batches(draws, 8)
    results.append(("batch_average", average.se, known, widening(count)))
    squares = variance_influence(draws, np.zeros_like(draws))
    results.append(("standard_error of squares", standard_error(squares), known_square, 1.0))
    for name, se, truth, wide in results:
        ratio = float(np.sqrt(np.square(se / wide).mean())) / truth
        # autocorrelation estimates, and batches of 80 draws, nine times the autocorrelation time, are low by percents
        yield Compared(
            abs(ratio - 0.97), 0.10, f"{name}: root mean square over 300 series, known to 3 %, low by up to 7 %",
            "gibbs", "autoregression", "ratio of errors",
        )  # fmt: skip
    yield Compared(
        float(np.abs(average.mean - draws.mean(axis=(0, 1))).max()), 1e-13, "sums in batches lose nothing", "gibbs",
        "definition",
    )  # fmt: skip
    trust = convergence(draws[:, :, :60], 3)
    time = 3.0 * (1.0 + PHI) / (1.0 - PHI)
    yield Compared(
        abs(float(np.median(trust.autocorrelation_time)) / time - 1.0), 0.1,
        "autocorrelation time in sweeps, thinned by 3: (1 + φ)/(1 - φ), the median of 60", "gibbs", "autoregression",
    )  # fmt: skip
    yield Compared(
        float(np.abs(trust.autocorrelation_time * trust.ess_bulk / (r * s * 3.0) - 1.0).max()), 1e-12,
        "it is sweeps in all over the effective size", "gibbs", "definition",
    )  # fmt: skip


# -- log Z -----------------------------------------------------------------------------------------------------------


class Route(NamedTuple):
    """A route to log Z: what it is asked about, how it answers, and how cautious its error is on purpose."""

    method: str
    name: str
    few: Few
    answer: Callable[..., Any]  # of a generator, the data, and options in place of its own
    truth: Callable[[Few], float] = Few.log_evidence
    cautious: float = 1.0
    quick: bool = True

    @property
    def islands(self) -> bool:
        """Whether islands of particles are averaged."""
        return self.name.startswith(("annealed", "sequential"))

    @property
    def below(self) -> float:
        """Distance of the mean of logarithms, in half squared errors: the number of islands or batches less one."""
        return 15.0 if self.islands else -31.0 if self.name.startswith("chib") else 0.0


def _shaped(few: Few, rng: np.random.Generator, r: int = 4, s: int = 160) -> Array:
    """(r, s, L, n) posterior draws."""
    return few.draws(rng, r * s).reshape(r, s, few.n_latents, -1)


def _fitc_parts(few: Few) -> tuple[Array, Array, Array]:
    value = few.blocks[0]
    assert value.cross is not None
    assert value.inducing is not None
    return value.inducing, value.cross.T, np.full(len(few.y), few.thetas[0, 0] + few.thetas[0, -1])


def _inducing_draws(few: Few, f: Array, rng: np.random.Generator) -> Array:
    """Draws of u given those of f (r, s, n), conditional on conditional: (r, s, m)."""
    value = few.blocks[0]
    assert value.cross is not None
    assert value.inducing is not None
    gain = np.linalg.solve(value.data, value.cross.T).T  # cov(u, f) cov(f)^-1
    root = np.linalg.cholesky(value.inducing - gain @ value.cross.T)
    return np.asarray(f @ gain.T + rng.standard_normal((*f.shape[:2], len(root))) @ root.T)


def _sign(few: Few) -> Array:
    return np.asarray(2.0 * few.y - 1.0, dtype=np.float64)


_ISLANDS = {"n_particles": 16, "n_islands": 16, "target_error": 1.0, "max_rounds": 1}


def _annealed(rng: np.random.Generator, few: Few, **options: Any) -> Any:
    from gibbs.evidence import annealed

    asked = replace(annealed.DEFAULTS, **(_ISLANDS | options))
    if few.fitc:
        return annealed.log_evidence_fitc(rng, *_fitc_parts(few), _sign(few), asked)
    return annealed.log_evidence(rng, few.cov[0], _sign(few), asked)


def _bridge(rng: np.random.Generator, few: Few, **options: Any) -> Any:
    from gibbs.evidence import bridge

    f = _shaped(few, rng)[:, :, 0]
    if few.fitc:
        return bridge.log_evidence_fitc(rng, *_fitc_parts(few), _sign(few), _inducing_draws(few, f, rng), **options)
    return bridge.log_evidence_full(rng, few.cov[0], _sign(few), f, **options)


def polya_gamma(rng: np.random.Generator, tilt: Array) -> Array:
    """ω ~ PG(1, tilt) as its sum of gammas, 200 of them, and the mean of the rest: Polson, Scott & Windle (2013)."""
    k = np.arange(1, 201)
    scale = 2.0 * np.pi**2 * ((k - 0.5) ** 2 + tilt[..., None] ** 2 / (4.0 * np.pi**2))
    rest = np.tanh(0.5 * tilt) / (2.0 * tilt) - (1.0 / scale).sum(axis=-1)
    return np.asarray((rng.exponential(size=scale.shape) / scale).sum(axis=-1) + rest)


def _chib(rng: np.random.Generator, few: Few, **options: Any) -> Any:
    from gibbs.evidence import chib

    omega = polya_gamma(rng, _shaped(few, rng)[:, :, 0])
    if few.fitc:
        return chib.log_evidence_fitc(*_fitc_parts(few), _sign(few), omega, **options)
    return chib.log_evidence_full(few.cov[0], _sign(few), omega, **options)


def _fitted(rng: np.random.Generator, few: Few, **options: Any) -> Any:
    from gibbs.evidence import fitted

    return fitted.log_evidence(rng, few.cov, few.y, _shaped(few, rng), few.epsilon, **options)


def _sequential(rng: np.random.Generator, few: Few, **options: Any) -> Any:
    from gibbs.evidence import sequential

    asked = replace(sequential.DEFAULTS, **(_ISLANDS | {"n_particles": 24} | options))
    return sequential.log_evidence(rng, few.cov, few.y, few.epsilon, asked)


def _softmax_annealed(rng: np.random.Generator, few: Few, **options: Any) -> Any:
    from gibbs.evidence import softmax_annealed

    asked = replace(softmax_annealed.DEFAULTS, **(_ISLANDS | options))
    return softmax_annealed.log_evidence(rng, few.cov, few.y, asked)


def _softmax_bridge(rng: np.random.Generator, few: Few, **options: Any) -> Any:
    from gibbs.evidence import softmax_bridge

    return softmax_bridge.log_evidence(rng, few.cov, few.y, np.moveaxis(_shaped(few, rng), 2, 3), **options)


def _tilted(rng: np.random.Generator, few: Few) -> Any:
    from gibbs.models.exact_probit import log_evidence

    seed = int(rng.integers(1 << 30))
    estimate = sampler_by_name(log_evidence)(
        few.likelihood, **few.arguments(), seed=seed, target_error=0.02, max_proposals=2000
    )
    return _Answer(estimate.log_evidence, estimate.log_evidence_se)


class _Answer(NamedTuple):
    value: float
    standard_error: float


LOADINGS = np.array([[1.1, -0.4], [0.3, 0.9], [-0.6, 1.4]])


def _pairwise(rng: np.random.Generator, few: Few, **options: Any) -> Any:
    from scipy.special import ndtr

    from gibbs.evidence import pairwise

    white = rng.standard_normal((16_000, 2))
    white = white[rng.random(len(white)) < ndtr(white @ LOADINGS.T).prod(axis=1)][: 4 * 160]
    return pairwise.log_evidence(rng, LOADINGS, white.reshape(4, 160, 2), **options)


def _pairwise_truth(few: Few) -> float:
    from validation.checks.definitions.few_data import orthant

    return float(np.log(orthant(LOADINGS @ LOADINGS.T + np.eye(len(LOADINGS)))))


# bridges average two halves as if they were one: errors up to √2 too large
_HALVES = float(np.sqrt(2.0))
ROUTES = (
    Route("gibbs-logit", "annealed", Few("logit"), _annealed, quick=False),
    Route("gibbs-logit", "annealed, FITC", Few("logit", fitc=True), _annealed),
    Route("gibbs-logit", "bridge", Few("logit"), _bridge, cautious=_HALVES),
    Route("gibbs-logit", "bridge, FITC", Few("logit", fitc=True), _bridge, cautious=_HALVES, quick=False),
    Route("gibbs-logit", "chib", Few("logit"), _chib, quick=False),
    Route("gibbs-logit", "chib, FITC", Few("logit", fitc=True), _chib),
    Route("gibbs-probit", "bridge", Few("multinomial-probit"), _fitted, cautious=_HALVES),
    Route("gibbs-probit", "bridge, two classes", Few("probit"), _fitted, cautious=_HALVES, quick=False),
    Route("gibbs-probit", "sequential", Few("multinomial-probit"), _sequential),
    Route("gibbs-probit", "sequential, two classes", Few("probit"), _sequential),
    Route("gibbs-threshold", "bridge", Few("threshold", 0.3, True), _fitted, cautious=_HALVES),
    Route("gibbs-threshold", "sequential", Few("threshold", 0.3, True), _sequential),
    Route("exact-probit", "tilting", Few("multinomial-probit"), _tilted),
    Route("exact-probit", "tilting, threshold", Few("threshold", 0.0, True), _tilted, quick=False),
    Route("mh-softmax", "bridge", Few("softmax"), _softmax_bridge, cautious=_HALVES),
    Route("mh-softmax", "annealed", Few("softmax"), _softmax_annealed),
    Route("gibbs-pairwise", "bridge", Few("threshold"), _pairwise, _pairwise_truth, cautious=_HALVES),
)


def route(entry: Route, seeds: int) -> Iterable[Outcome]:
    """One route over many seeds."""
    rngs = [np.random.default_rng(child) for child in np.random.SeedSequence(17).spawn(seeds)]
    answers = [entry.answer(rng, entry.few) for rng in rngs]
    values, errors = np.array([(value.value, value.standard_error) for value in answers]).T
    if entry.method != "exact-probit":
        yield from _stated(entry, answers, 0.5 * float(np.square(errors).mean()))
    yield from judged(
        f"log Z by {entry.name}", Estimates(values, errors), entry.truth(entry.few), cautious=entry.cautious
    )


def _stated(entry: Route, answers: list[Any], half_width: float) -> Iterable[Outcome]:
    """What else an answer says, in units of half the squared error: bias, mean of logarithms, trust.

    The logarithm of an average lies below that of its expectation by half its relative variance; Chib's average
    divides. The mean of logarithms lies below by half the variance of one of its terms.
    """
    sign = -1.0 if entry.islands else 1.0
    bias = float(np.mean([value.bias for value in answers])) / half_width
    below = float(np.mean([value.value - value.mean_log for value in answers])) / half_width
    why = f"log Z by {entry.name}: {{}}, 32 seeds and terms of third order allowed for"
    yield Compared(
        abs(sign * bias - 1.0), 0.35, why.format("the bias of a logarithm"), "gibbs", "half the squared error", "of it"
    )
    yield Compared(
        abs(below - entry.below) / max(abs(entry.below), 1.0), 0.35 if entry.below else 1e-9,
        why.format("the mean of logarithms"), "gibbs", "half the variance", "of it",
    )  # fmt: skip
    trusted = all(value.trusted for value in answers)
    # asked for a fifth of their error, which they cannot give: one seed, two rounds of particles where there are rounds
    more = {"max_rounds": 2} if entry.islands else {}
    strict = entry.answer(np.random.default_rng(18), entry.few, target_error=0.2 * np.sqrt(2.0 * half_width), **more)
    wrong = float(not trusted) + float(strict.trusted)
    if entry.islands:
        first = [value.detail["n_particles"] for value in answers]
        wrong += float(strict.detail["rounds"] != 2.0) + float({value.detail["rounds"] for value in answers} != {1.0})
        wrong += float(strict.detail["n_particles"] != 8.0 * first[0])
        spreads = [value.detail["island_spread"] for value in answers]
        # the error of the mean of 16 islands that differ by so much
        wrong += float(abs(np.mean(spreads) / 4.0 / np.sqrt(2.0 * half_width) - 1.0) > 0.25)
    yield Compared(
        wrong, 0.0, f"log Z by {entry.name}: trusted where its target is met, after eight times the particles or not",
        "gibbs", "definition", "statements that are wrong",
    )  # fmt: skip


def _register_routes(method: str) -> None:
    @check(
        f"exactness/{method}/log_evidence_errors",
        paper=PAPER.get(method, "riihimaki2013"),
        question="Does each route to log Z err by what it states, over 32 seeds?",
        problems=(NO_PROBLEM,),
    )
    def log_evidence_errors(context: Context, problem: Problem) -> Iterable[Outcome]:
        for entry in ROUTES:
            if entry.method == method and (entry.quick or not context.quick):
                yield from route(entry, SEEDS if context.quick else 8 * SEEDS)


for _method in dict.fromkeys(entry.method for entry in ROUTES):
    _register_routes(_method)


# -- averages over draws ---------------------------------------------------------------------------------------------


class Sampler(NamedTuple):
    """A sampler on two data, and the lengths of one run."""

    method: str
    few: Few
    options: Mapping[str, Any]


def _lengths(**more: Any) -> dict[str, Any]:
    # 32 chains: as many batches as the errors need, of which each is a chain
    return {"n_chains": 32, "n_draws": 40, "n_warmup": 40} | more


def sampled(entry: Sampler, seed: int, given: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """One run of the sampler, fields of `gibbs` as they are; given: inputs in place of those of the data."""
    from gibbs.models import exact_probit, hyper, multinomial_probit, pairwise, sampling, softmax, threshold

    few, given = entry.few, {**entry.few.arguments(), **(given or {})}
    options = {**entry.options, **more, "seed": seed}
    if "learn" in options:
        return sampler_by_name(hyper.sample)(few.likelihood, **given, epsilon=few.epsilon, **options)
    if entry.method == "exact-probit":
        return sampler_by_name(exact_probit.sample_exact)(few.likelihood, **given, **options)
    if entry.method == "gibbs-logit":
        given |= {name: given[name][0] for name in ("variance", "lengthscales", "noise")}
    samplers: dict[str, tuple[ModuleType, Mapping[str, str | float]]] = {
        "gibbs-logit": (sampling, {}), "mh-softmax": (softmax, {}), "gibbs-pairwise": (pairwise, {}),
        "gibbs-probit": (multinomial_probit, {"likelihood": few.likelihood}),
        "gibbs-threshold": (threshold, {"epsilon": few.epsilon}),
    }  # fmt: skip
    module, own = samplers[entry.method]
    return sampler_by_name(module.sample)(**given, **own, **options)


DISTRIBUTIONS = {
    "variance": ("log-normal", 0.5, 1.5),
    "lengthscales": ("log-normal", 0.4, 0.9),
    "noise": ("log-normal", 0.5, 0.4),
}
_LEARNT = {"hyperprior": DISTRIBUTIONS, "learn": ("variance", "lengthscales"), "n_steps": 3}
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


def _flat(chains: Any) -> dict[str, tuple[Array, Array]]:
    """Each average with its error."""
    results: dict[str, tuple[Array, Array]] = {}
    for name in type(chains)._fields:
        value, error = getattr(chains, name), getattr(chains, f"{name}_se", None)
        if error is None:
            continue
        if isinstance(value, dict):
            results |= {f"{name}.{key}": (np.asarray(value[key]), np.asarray(error[key])) for key in value}
        else:
            results[name] = (np.asarray(value), np.asarray(error))
    return results


def _averages(entry: Sampler, seeds: int) -> Iterable[Outcome]:
    runs = [sampled(entry, seed) for seed in range(seeds)]
    parts = [_flat(chains) for chains in runs]
    worst: list[tuple[float, float, str]] = []
    for name in parts[0]:
        values, errors = (np.array([part[name][k] for part in parts]).reshape(seeds, -1) for k in (0, 1))
        # what is the same in every run is known: blocks between latents that no datum links
        moves = (np.ptp(values, axis=0) > 1e-12) | (errors.max(axis=0) > 1e-12)
        if not moves.any():
            continue
        values, errors = values[:, moves], errors[:, moves]
        # about their own mean: one degree of freedom less, which the factor gives back
        centre, grow = values.mean(axis=0), np.sqrt(seeds / (seeds - 1.0))
        scaled = Estimates(centre + grow * (values - centre), errors)
        worst.append((*spread(scaled, centre, cautious=_WIDENED, unsure=1.3), name))
    why = (
        f"{entry.few.likelihood}: largest of {len(worst)} averages over {seeds} seeds, chi-square at 1e-6 either side; "
        "errors from 32 batches and more of correlated draws are in doubt by a tenth each"
    )
    above, below = max(worst), max(worst, key=lambda value: value[1])
    yield Compared(above[0], 1.0, f"{above[2]}: not stated too small; {why}", "gibbs", "itself", "of the bound")
    yield Compared(below[1], 1.0, f"{below[2]}: not stated too large; {why}", "gibbs", "itself", "of the bound")
    if (entry.few.likelihood == "threshold" and entry.method == "gibbs-pairwise") or "learn" in entry.options:
        return
    draws = [np.asarray(chains.latent_draws, dtype=np.float64) for chains in runs]
    yield _second_moments(entry, [value.reshape(-1, len(entry.few.y), entry.few.n_latents) for value in draws])


def _second_moments(entry: Sampler, draws: list[Array]) -> Outcome:
    """Means and all products of two latent values, data and classes mixed, against draws by rejection."""
    few = entry.few
    truth = few.draws(np.random.default_rng(23), 20_000)  # h of the probits: f given h is Gaussian
    unit = own_unit(few)
    if unit:
        truth = given_auxiliary(np.random.default_rng(24), few, truth)
    pairs = np.triu_indices(truth[0].size)

    def terms(values: Array) -> Array:
        flat = values.reshape(len(values), -1)
        return np.concatenate([flat, flat[:, pairs[0]] * flat[:, pairs[1]]], axis=1)

    right = terms(truth)
    left = np.array([terms(np.swapaxes(value, 1, 2)).mean(axis=0) for value in draws])
    n = len(left)
    error = np.hypot(left.std(axis=0, ddof=1) / np.sqrt(n), right.std(axis=0, ddof=1) / np.sqrt(len(right)))
    z = (left.mean(axis=0) - right.mean(axis=0)) / error
    z = np.sign(z) * -norm.ppf(np.maximum(student.sf(np.abs(z), n - 1), 1e-300))
    return Tested(
        z, f"{few.likelihood}: means and second moments of draws, across data and classes, t as z; Holm over a run",
        "gibbs", "rejection", "a tenth of a variance would show",
    )  # fmt: skip


def own_unit(few: Few) -> bool:
    """Whether h has noise of its own over f."""
    return few.likelihood in ("probit", "multinomial-probit")


def given_auxiliary(rng: np.random.Generator, few: Few, h: Array) -> Array:
    """Draws of f given h = f + e, latent by latent."""
    out = np.empty_like(h)
    for k, cov in enumerate(few.cov):
        prior = cov - np.eye(len(cov))
        gain = np.linalg.solve(cov, prior).T
        root = np.linalg.cholesky(prior - gain @ prior)
        out[:, k] = h[:, k] @ gain.T + rng.standard_normal(h[:, k].shape) @ root.T
    return out


def _register_averages(method: str) -> None:
    @check(
        f"exactness/{method}/average_errors",
        paper=PAPER.get(method, "riihimaki2013"),
        question="Do averages over draws err by what they state, over 32 seeds, and have draws the right covariance?",
        # 32 runs of a chain take two seconds, of independent draws a fifth; `errors_of_series` is asked every time
        problems=(NO_PROBLEM,) if method == "exact-probit" else (),
        full=() if method == "exact-probit" else (NO_PROBLEM,),
    )
    def average_errors(context: Context, problem: Problem) -> Iterable[Outcome]:
        for entry in SAMPLERS:
            if entry.method == method:
                yield from _averages(entry, SEEDS)


for _method in dict.fromkeys(entry.method for entry in SAMPLERS):
    _register_averages(_method)
