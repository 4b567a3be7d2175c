"""Suspects that are transformations of an answer: no problem is solved for them.

Each is a `Candidate`: what the suspected side would have said had it made that mistake, made from the answer of the
other side. Those with a constant that is fitted to the two answers (a ratio, an offset) come last in rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr, roots_hermitenorm

from validation.door.problem import Problem

Arrays = Mapping[str, NDArray[np.float64]]

MEANS = ("latent_mean", "test_latent_mean", "inducing_mean")
COVARIANCES = ("latent_cov", "test_latent_cov", "inducing_cov")
ARRAYS = (*MEANS, *COVARIANCES, "probabilities")

# rank among suspects that explain equally much: what has no free constant first
EXACT, NAMED, FITTED = 0, 1, 2

_ALL_ORDERS = 5  # classes up to which every order of them is tried
_LEAST = 3  # entries from which on a fitted constant, or an order of rows, says something
# of rules that programs have
_NODES = (3, 5, 7, 10, 11, 15, 16, 20, 21, 25, 30, 31, 32, 40, 50, 60, 64, 80, 99, 100, 101, 128)
_SHOWN = 5  # rows of an order that are told


class Candidate(NamedTuple):
    """A suspect before it is held against the answer.

    name     a word for tables and tests
    text     the sentence, with `suspected` and `trusted` for the sides
    values   quantity -> what the suspected side would have said
    rank     EXACT, NAMED or FITTED
    """

    name: str
    text: str
    values: dict[str, Any]
    rank: int = EXACT


def gradients(problem: Problem, name: str, trusted: NDArray[np.float64]) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Derivatives by a field of a problem as programs get them wrong, each with what it is."""
    yield "has the wrong sign", -trusted
    yield "is twice what it should be", 2.0 * trusted
    yield "is half of what it should be", 0.5 * trusted
    if name != "Z":
        parameter = getattr(problem, name)
        yield "is the derivative by the logarithm", trusted * parameter
        yield "is the derivative by the root, a standard deviation", 2.0 * trusted * np.sqrt(parameter)


def candidates(problem: Problem, suspected: Arrays, trusted: Arrays) -> Iterator[Candidate]:
    """Every transformation that applies to what both sides have."""
    yield from _constants(problem, suspected, trusted)
    yield from _labels(problem, suspected, trusted)
    yield from _variances(problem, trusted)
    yield from _conditional(problem, trusted)
    yield from _probabilities(problem, trusted)
    yield from _layout(trusted)
    yield from _rows(problem, suspected, trusted)
    yield from _coordinates(problem, trusted)
    yield from _rounding(trusted)
    yield from _fitted(problem, suspected, trusted)


# -- log Z ---------------------------------------------------------------------------------------------------------


def _constants(problem: Problem, suspected: Arrays, trusted: Arrays) -> Iterator[Candidate]:
    if "log_evidence" not in suspected or "log_evidence" not in trusted:
        return
    z = float(trusted["log_evidence"])
    name = "log_evidence"
    for word, told, value in (
        ("sign", "is the negative log evidence", -z),
        ("deviance", "is -2 log Z", -2.0 * z),
        ("per datum", "is log Z / n: a mean over the data for a sum", z / problem.n),
        ("log10", "is a logarithm to base 10", z / np.log(10.0)),
        ("log2", "is a logarithm to base 2", z / np.log(2.0)),
        ("exp", "is Z and not its logarithm", float(np.exp(min(z, 700.0)))),
    ):
        yield Candidate(word, f"log_evidence of suspected {told}", {name: value})
    gap = float(suspected[name]) - z
    for word, constant in (constants(problem) | posterior_terms(problem, trusted)).items():
        for sign in (1.0, -1.0):
            # of equal evidences none is further off: then every constant is tried
            if constant and (abs(gap - sign * constant) < abs(gap) or not gap):
                verb = "has" if sign > 0.0 else "lacks"
                what = f"log_evidence of suspected {verb} {word} = {constant:.6g} nat beside trusted's"
                yield Candidate(f"constant {word}", what, {name: z + sign * constant}, NAMED)


def constants(problem: Problem) -> dict[str, float]:
    """Constants that get lost from, or stay in, a log evidence, in nats."""
    n, L, C = problem.n, problem.n_latents, problem.n_classes
    m = n if problem.m is None else problem.m
    halved = 0.5 * np.log(2.0 * np.pi)
    results = {
        "n log 2": n * np.log(2.0),
        "n/2 log 2 pi": n * halved,
        "n L/2 log 2 pi": n * L * halved,
        "m/2 log 2 pi": m * halved,
        "m L/2 log 2 pi": m * L * halved,
        "n/2": 0.5 * n,
        "n L/2": 0.5 * n * L,
        "m/2": 0.5 * m,
        "m L/2": 0.5 * m * L,
        "n/2 log 2": 0.5 * n * np.log(2.0),
        "n log C": n * np.log(C),
        "n log sqrt pi": 0.5 * n * np.log(np.pi),
    }
    if problem.epsilon > 0.0:
        results["n log(1 - epsilon)"] = -n * np.log1p(-problem.epsilon)
    K, with_jitter = _log_dets(problem)
    results["1/2 log det K"] = 0.5 * abs(with_jitter)
    results["log det K"] = abs(with_jitter)
    if np.isfinite(K):
        results["1/2 log det of the jitter"] = 0.5 * abs(with_jitter - K)
        results["log det of the jitter"] = abs(with_jitter - K)
    jitter = problem.jitter[problem.jitter > 0.0]
    if jitter.size:
        results["m/2 log jitter"] = 0.5 * m * abs(float(np.log(jitter).sum()))
    kept: dict[str, float] = {}
    for word, value in results.items():  # m = n, C = 2, L = 1: one constant, one name
        if not any(abs(value - other) <= 1e-9 * abs(value) for other in kept.values()):
            kept[word] = float(value)
    return kept


def posterior_terms(problem: Problem, trusted: Arrays) -> dict[str, float]:
    """Terms of a log evidence, or of a bound, that the posterior decides, in nats; none without its full moments."""
    from validation.judge.compare import prior_matrix

    mean, cov = trusted.get("inducing_mean"), trusted.get("inducing_cov")
    if mean is None or cov is None:
        return {}
    log_det = trace = square = 0.0
    for latent in range(problem.n_latents):
        K = prior_matrix(problem, latent)
        try:
            log_det += float(np.linalg.slogdet(K)[1] - np.linalg.slogdet(cov[latent])[1])
            trace += float(np.trace(np.linalg.solve(K, cov[latent])))
            square += float(mean[latent] @ np.linalg.solve(K, mean[latent]))
        except np.linalg.LinAlgError:
            return {}
    kl = 0.5 * (trace + square - mean.size + log_det)
    return {
        "1/2 log det (K V^-1), V the posterior covariance": 0.5 * log_det,
        "1/4 log det (K V^-1), V the posterior covariance": 0.25 * log_det,
        "1/2 m'K^-1 m, m the posterior mean": 0.5 * square,
        "1/2 tr K^-1 V, V the posterior covariance": 0.5 * trace,
        "KL(posterior, prior)": kl,
        "2 KL(posterior, prior): its sign is wrong": 2.0 * kl,
    }


def _log_dets(problem: Problem) -> tuple[float, float]:
    """Sums over latents of log det of the matrix that is factorised, without jitter (NaN if singular) and with it."""
    from validation.judge.compare import prior_matrix

    plain, jittered = 0.0, 0.0
    for latent in range(problem.n_latents):
        K = prior_matrix(problem, latent)
        sign, value = np.linalg.slogdet(K - problem.jitter[latent] * np.eye(len(K)))
        plain += value if sign > 0.0 else np.nan
        jittered += np.linalg.slogdet(K)[1]
    return float(plain), float(jittered)


# -- classes and labels ----------------------------------------------------------------------------------------------


def _labels(problem: Problem, suspected: Arrays, trusted: Arrays) -> Iterator[Candidate]:
    if problem.n_latents == 1:
        flipped = {name: -trusted[name] for name in MEANS if name in trusted}
        if "probabilities" in trusted:
            flipped["probabilities"] = trusted["probabilities"][:, ::-1]
        told = "y is coded the other way: latent means change sign, columns of probabilities change places"
        yield Candidate("labels flipped", told, flipped)
        for name in (*MEANS, "probabilities"):
            if name in flipped:
                part = {name: flipped[name]}
                what = "has its columns" if name == "probabilities" else "has its sign"
                yield Candidate("labels flipped", f"{name} of suspected {what} the other way round", part)
        return
    for order in _orders(problem.n_classes, suspected, trusted):
        told = f"columns of classes are permuted: class c of suspected is class {order}[c] of trusted"
        yield Candidate("classes permuted", told, _permuted(trusted, order))
        if "probabilities" in trusted:
            told = f"columns of probabilities are permuted: column c of suspected is column {order}[c] of trusted"
            yield Candidate("classes permuted", told, {"probabilities": trusted["probabilities"][:, order]})
        latents = _permuted({k: v for k, v in trusted.items() if k != "probabilities"}, order)
        told = f"latent functions are permuted, probabilities are not: latent c is latent {order}[c] of trusted"
        yield Candidate("classes permuted", told, latents)
    means = {name: trusted[name] for name in MEANS if name in trusted}
    columns = {k: v.T if k.startswith("inducing") else v for k, v in means.items()}
    for word, told, shift in (
        ("centred", "relative to their mean over the classes", lambda f: f.mean(axis=1, keepdims=True)),
        ("first class", "relative to the first class", lambda f: f[:, :1]),
        ("last class", "relative to the last class", lambda f: f[:, -1:]),
    ):
        moved = {k: v - shift(v) for k, v in columns.items()}
        values = {k: v.T if k.startswith("inducing") else v for k, v in moved.items()}
        yield Candidate(f"latents {word}", f"latent means of suspected are {told}", values)


def _orders(n_classes: int, suspected: Arrays, trusted: Arrays) -> Iterator[list[int]]:
    if n_classes <= _ALL_ORDERS:
        yield from (list(p) for p in permutations(range(n_classes)) if p != tuple(range(n_classes)))
        return
    from scipy.optimize import linear_sum_assignment

    for name in ("probabilities", "latent_mean", "test_latent_mean"):
        if name in suspected and name in trusted:
            cost = np.abs(suspected[name][:, :, None] - trusted[name][:, None, :]).sum(axis=0)
            order = [int(c) for c in linear_sum_assignment(cost)[1]]
            if order != list(range(n_classes)):
                yield order


def _permuted(arrays: Arrays, order: list[int]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, value in arrays.items():
        if name.startswith("inducing"):
            results[name] = value[order]
        elif name.endswith("_cov"):
            results[name] = value[:, order][:, :, order]
        elif name in ARRAYS:
            results[name] = value[:, order]
    return results


# -- variances ---------------------------------------------------------------------------------------------------------


def _variances(problem: Problem, trusted: Arrays) -> Iterator[Candidate]:
    cov = {name: trusted[name] for name in COVARIANCES if name in trusted}
    data = {name: value for name, value in cov.items() if not name.startswith("inducing")}

    def each(word: str, told: str, change: Any, arrays: dict[str, Any], rank: int = EXACT) -> Iterator[Candidate]:
        if not arrays:
            return
        values = {}
        for name, value in arrays.items():
            try:
                values[name] = change(value)
            except np.linalg.LinAlgError:
                continue
        yield Candidate(word, told, values, rank)

    def diagonal(change: Any) -> Any:
        def changed(value: NDArray[np.float64]) -> NDArray[np.float64]:
            out = value.copy()
            i = np.arange(value.shape[-1])
            out[..., i, i] = change(value[..., i, i])
            return out

        return changed

    told = "variances of suspected are the square roots of trusted's: standard deviations for variances"
    yield from each("sd for variance", told, diagonal(np.sqrt), cov)
    told = "variances of suspected are the squares of trusted's: variances squared as if they were sds"
    yield from each("variance squared", told, diagonal(np.square), cov)
    if problem.noise.any():
        told = "the noise is not counted in the latent variances of suspected: they are those of f, not of f + noise"
        yield from each("noise left out of variances", told, diagonal(lambda v: v - problem.noise), data)
        told = "the noise is counted twice in the latent variances of suspected"
        yield from each("noise twice in variances", told, diagonal(lambda v: v + problem.noise), data)
    if problem.jitter.any():
        told = "the jitter is added to the latent variances of suspected"
        yield from each("jitter in variances", told, diagonal(lambda v: v + problem.jitter), data)
    told = "variances of suspected are one larger: the probit's unit noise is counted in them"
    yield from each("unit noise in variances", told, diagonal(lambda v: v + 1.0), data)
    told = "variances of suspected are what the data took from the prior: k(x, x) less trusted's"
    prior = problem.variance + problem.noise
    yield from each("variance reduction", told, diagonal(lambda v: prior - v), data)
    told = "the prior variance k(x, x) is given for the posterior's by suspected"
    yield from each("prior variance", told, diagonal(lambda v: np.broadcast_to(prior, v.shape)), data)
    told = "covariances of suspected are the inverses of trusted's: precisions for covariances"
    yield from each("precision for covariance", told, np.linalg.inv, cov)
    told = "covariances of suspected are Cholesky factors, lower triangular, of trusted's"
    yield from each("Cholesky factor", told, np.linalg.cholesky, cov)
    told = "covariances of suspected are L'L where trusted's are L L': a factor was transposed"
    yield from each("transposed factor", told, lambda v: _gram(np.linalg.cholesky(v)), cov)
    told = "covariances of suspected have no entries off the diagonal: only variances were given"
    yield from each("only variances", told, _only_variances, {k: v for k, v in cov.items() if v.shape[-1] > 1})


def _conditional(problem: Problem, trusted: Arrays) -> Iterator[Candidate]:
    """Variances without the conditional one given the process at its points, or with nothing else."""
    from validation.judge.compare import kernel, prior_matrix

    points = {"test_latent_cov": problem.X_test}
    if problem.Z is not None:
        points["latent_cov"] = problem.X
    without, alone = {}, {}
    for name, X in points.items():
        if name not in trusted or X is None or not len(X):
            continue
        var = np.empty((len(X), problem.n_latents))
        for latent in range(problem.n_latents):
            at = problem.X if problem.Z is None else problem.Z[latent]
            cross = kernel(problem, latent, at, X)
            try:
                explained = (cross * np.linalg.solve(prior_matrix(problem, latent), cross)).sum(axis=0)
            except np.linalg.LinAlgError:
                return
            var[:, latent] = problem.variance[latent] + problem.noise[latent] - explained
        diagonal = var[:, :, None] * np.eye(problem.n_latents)
        without[name], alone[name] = trusted[name] - diagonal, diagonal
    if without:
        told = "latent variances of suspected lack the conditional variance k(x, x) - k(x, Z) K^-1 k(Z, x)"
        yield Candidate("conditional variance left out", told, without)
        told = "latent variances of suspected are those given the latent values themselves: K is inverted for K + W^-1"
        yield Candidate("conditional variance alone", told, alone)


def _gram(factor: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.swapaxes(factor, -1, -2) @ factor


def _only_variances(value: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(value * np.eye(value.shape[-1]))


# -- probabilities ------------------------------------------------------------------------------------------------


def _probabilities(problem: Problem, trusted: Arrays) -> Iterator[Candidate]:
    if not {"probabilities", "test_latent_mean", "test_latent_cov"} <= set(trusted):
        return
    mean, cov = trusted["test_latent_mean"], trusted["test_latent_cov"]
    if not mean.size:
        return
    var = np.einsum("tll->tl", cov)
    p = trusted["probabilities"]
    hard = np.eye(p.shape[1])[p.argmax(axis=1)]
    yield Candidate("hard labels", "probabilities of suspected are hard labels: 0 and 1", {"probabilities": hard})
    squared = p**2 / (p**2).sum(axis=1, keepdims=True)
    told = "probabilities of suspected are squared and normalised again: the link was applied twice as log-odds"
    yield Candidate("probabilities sharpened", told, {"probabilities": squared})
    for least in (1e-2, 1e-3, 1e-4):
        if p.min() < least:
            clipped = np.clip(p, least, 1.0 - least)
            told = f"probabilities of suspected are clipped at {least:g}"
            yield Candidate("clipped", told, {"probabilities": clipped})
            clipped = clipped / clipped.sum(axis=1, keepdims=True)
            yield Candidate("clipped", f"{told} and normalised again", {"probabilities": clipped})
    variants = {
        "sd in the integral": (np.sqrt(var), "take the standard deviation for the variance of the latent"),
        "noise left out of the integral": (var - problem.noise, "leave the noise out of the latent variance"),
        "noise twice in the integral": (var + problem.noise, "count the noise twice in the latent variance"),
        "half the variance in the integral": (
            0.5 * var, "take half the latent variance: nodes of Gauss-Hermite without their factor root 2"
        ),
        "twice the variance in the integral": (2.0 * var, "take twice the latent variance"),
    }  # fmt: skip
    if problem.likelihood == "logit":
        for count in _NODES:
            told = f"are the integral by Gauss-Hermite quadrature of {count} nodes"
            by_rule = {"probabilities": _logistic(mean, var, count)}
            yield Candidate("few nodes", f"probabilities of suspected {told}", by_rule, NAMED)
    for word, told, value in _links(problem, mean, var):
        yield Candidate(word, f"probabilities of suspected {told}", {"probabilities": value})
    own = _own_link(problem)
    for word, (v, told) in variants.items():
        if own is not None and (v >= 0.0).all() and not np.array_equal(v, var):
            yield Candidate(word, f"probabilities of suspected {told}", {"probabilities": own(mean, v)})


def _links(
    problem: Problem, mean: NDArray[np.float64], var: NDArray[np.float64]
) -> Iterator[tuple[str, str, NDArray[np.float64]]]:
    if mean.shape[1] == 1:
        m, v = mean[:, 0], var[:, 0]
        plug = expit(m) if problem.likelihood == "logit" else ndtr(m)
        yield "plug-in", "are the link at the latent mean: the latent variance is not integrated over", _two(plug)
        if problem.likelihood == "logit":
            yield "another link", "integrate the probit link over trusted's latents", _probit(mean, var)
            mackay = expit(m / np.sqrt(1.0 + np.pi * v / 8.0))
            yield "MacKay's approximation", "are MacKay's approximation of the logistic integral", _two(mackay)
            scaled = ndtr(m / np.sqrt(8.0 / np.pi + v))
            yield "probit for logistic", "are the probit integral that approximates the logistic one", _two(scaled)
        else:
            yield "another link", "integrate the logistic link over trusted's latents", _logistic(mean, var)
            mackay = expit(m / np.sqrt(1.0 + np.pi * v / 8.0))
            yield "another link", "are MacKay's approximation of the integral of the logistic link", _two(mackay)
            steep = ndtr(m / (1.0 + v))
            yield "root left out of the integral", "divide by 1 + variance where its root is meant", _two(steep)
            wide = ndtr(m / (1.0 + np.sqrt(v)))
            yield "sd in the integral", "divide by 1 + sd where sqrt(1 + variance) is meant", _two(wide)
            if (v > 0.0).all():
                bare = ndtr(m / np.sqrt(v))
                yield "unit noise left out of the integral", "leave out the unit noise of the probit", _two(bare)
        return
    for word, told, odds in (
        ("softmax of means", "are the softmax of the latent means: no variance is integrated over", mean),
    ):
        e = np.exp(odds - odds.max(axis=1, keepdims=True))
        yield word, told, e / e.sum(axis=1, keepdims=True)
    rest = ndtr(mean / np.sqrt(1.0 + var))
    if (rest.sum(axis=1) > 0.0).all():
        told = "are one class against the rest, by the probit of each latent, normalised afterwards"
        yield "one against rest", told, rest / rest.sum(axis=1, keepdims=True)
    logistic = expit(mean / np.sqrt(1.0 + np.pi * var / 8.0))
    told = "are one class against the rest, by the logistic function of each latent, normalised afterwards"
    yield "one against rest", told, logistic / logistic.sum(axis=1, keepdims=True)
    if problem.likelihood in ("multinomial-probit", "threshold"):
        extra = 1.0 if problem.likelihood == "threshold" else -1.0
        if (var + extra > 0.0).all():
            word = "multinomial probit" if extra > 0.0 else "threshold"
            told = f"are those of the {word} likelihood over trusted's latents"
            yield "another link", told, _largest(mean, var + extra + (problem.likelihood != "threshold"))


def _own_link(problem: Problem) -> Any:
    if problem.likelihood == "logit":
        return _logistic
    if problem.likelihood == "probit":
        return _probit
    if problem.likelihood == "threshold" and not problem.epsilon:
        return _largest
    if problem.likelihood == "multinomial-probit":
        return lambda mean, var: _largest(mean, var + 1.0)
    return None


def _two(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([1.0 - p, p], axis=1)


def _probit(mean: NDArray[np.float64], var: NDArray[np.float64]) -> NDArray[np.float64]:
    return _two(ndtr(mean[:, 0] / np.sqrt(1.0 + var[:, 0])))


def _logistic(mean: NDArray[np.float64], var: NDArray[np.float64], count: int = 100) -> NDArray[np.float64]:
    nodes, weights = roots_hermitenorm(count)
    f = mean[:, :1] + np.sqrt(var[:, :1]) * nodes
    return _two(expit(f) @ weights / weights.sum())


def _largest(mean: NDArray[np.float64], var: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(latent c is the largest) of independent normals, (t, C)."""
    nodes, weights = roots_hermitenorm(100)
    sd = np.sqrt(var)
    p = np.empty_like(mean)
    for c in range(mean.shape[1]):
        f = mean[:, c, None] + sd[:, c, None] * nodes
        below = ndtr((f[:, :, None] - mean[:, None, :]) / sd[:, None, :])
        below[:, :, c] = 1.0
        p[:, c] = below.prod(axis=2) @ weights / weights.sum()
    return np.asarray(p / p.sum(axis=1, keepdims=True))


# -- layout, rounding, fitted constants --------------------------------------------------------------------------


def _layout(trusted: Arrays) -> Iterator[Candidate]:
    for name in (*MEANS, "probabilities"):
        if name in trusted and min(trusted[name].shape) > 1:
            told = f"{name} of suspected is filled along the other axis: class by class, not datum by datum"
            yield Candidate("axes", told, {name: trusted[name].T.reshape(trusted[name].shape)})
            told = f"{name} of suspected is read along the other axis: datum by datum, not class by class"
            rows, columns = trusted[name].shape
            yield Candidate("axes", told, {name: trusted[name].reshape(columns, rows).T})
    reverse = {name: trusted[name][::-1] for name in ARRAYS if name in trusted and not name.startswith("inducing")}
    yield Candidate("rows reversed", "rows of suspected are in reverse order", reverse)


def _rows(problem: Problem, suspected: Arrays, trusted: Arrays) -> Iterator[Candidate]:
    """Rows in the order that matches the two sides best: sorted by a program and not put back."""
    from scipy.optimize import linear_sum_assignment

    for prefix, keys, X, y in (
        ("latent", ("latent_mean", "latent_cov"), problem.X, problem.y),
        ("test", ("test_latent_mean", "test_latent_cov", "probabilities"), problem.X_test, problem.y_test),
    ):
        both = [name for name in keys if name in suspected and name in trusted]
        if not both or X is None or suspected[both[0]].shape != trusted[both[0]].shape:
            continue
        a, b = (side[both[0]].reshape(len(X), -1) for side in (suspected, trusted))
        order = linear_sum_assignment(np.abs(a[:, None] - b[None]).sum(axis=-1))[1]
        if len(X) < _LEAST or np.array_equal(order, np.arange(len(X))):
            continue
        known = {"by the first input": np.argsort(X[:, 0], kind="stable")}
        known |= {} if y is None else {"by label": np.argsort(y, kind="stable")}
        how = next(
            (f", sorted {word}" for word, known_order in known.items() if np.array_equal(order, known_order)), ""
        )
        rows = ", ".join(map(str, order[:_SHOWN])) + (", ..." if len(order) > _SHOWN else "")
        what = "rows" if prefix == "latent" else "test rows"
        told = f"{what} of suspected are in another order{how}: they are rows {rows} of trusted"
        # values of many rows lie so close that the best match of any two sides brings them near: NAMED asks for more
        yield Candidate("rows permuted", told, {name: trusted[name][order] for name in both}, NAMED)


def _coordinates(problem: Problem, trusted: Arrays) -> Iterator[Candidate]:
    """Latent values in the coordinates in which programs keep them: whitened by the prior's factor, or as weights."""
    from validation.judge.compare import prior_matrix

    at = "latent" if problem.Z is None else "inducing"
    mean, cov = trusted.get(f"{at}_mean"), trusted.get(f"{at}_cov")
    if mean is None:
        return
    rows = mean.T if problem.Z is None else mean  # (L, n) or (L, m)
    K = np.stack([prior_matrix(problem, latent) for latent in range(problem.n_latents)])
    try:
        L = np.linalg.cholesky(K)
    except np.linalg.LinAlgError:
        return
    for word, told, factor in (
        ("whitened", "are whitened: L^-1 of trusted's, with K = L L'", L),
        ("weights", "are K^-1 of trusted's: the weights of the kernel functions", K),
    ):
        moved = np.linalg.solve(factor, rows[..., None])[..., 0]
        values = {f"{at}_mean": moved.T if problem.Z is None else moved}
        if problem.Z is not None and cov is not None:
            one_side = np.linalg.solve(factor, cov)
            values["inducing_cov"] = np.linalg.solve(factor, np.swapaxes(one_side, -1, -2))
        elif "inducing_cov" in trusted and "latent_cov" in trusted:  # of all rows the whole covariance matrix
            one_side = np.linalg.solve(factor, trusted["inducing_cov"])
            whole = np.linalg.solve(factor, np.swapaxes(one_side, -1, -2))
            values["latent_cov"] = np.einsum("lnn->nl", whole)[:, :, None] * np.eye(problem.n_latents)
        yield Candidate(word, f"{at} values of suspected {told}", values)


def _rounding(trusted: Arrays) -> Iterator[Candidate]:
    for word, told, dtype in (
        ("float32", "numbers of suspected are trusted's rounded to float32 (seven digits)", np.float32),
        ("float16", "numbers of suspected are trusted's rounded to float16 (three digits)", np.float16),
    ):
        with np.errstate(over="ignore"):
            yield Candidate(word, told, {k: np.asarray(v).astype(dtype).astype(float) for k, v in trusted.items()})


def _fitted(problem: Problem, suspected: Arrays, trusted: Arrays) -> Iterator[Candidate]:
    for name in ARRAYS:
        if name not in suspected or name not in trusted:
            continue
        a, b = suspected[name], trusted[name]
        live = np.abs(b) > 1e-6 * np.abs(b).max(initial=0.0)
        # two data have one degree of freedom or two: a constant could be fitted to anything
        if a.shape != b.shape or live.sum() < _LEAST or problem.n < _LEAST:
            continue
        ratio = float(np.median(a[live] / b[live]))
        if abs(ratio - 1.0) > 1e-9 and ratio != 0.0:
            told = f"suspected/trusted = {ratio:.6g} in every entry of {name}{_named(ratio, problem)}"
            yield Candidate("constant ratio", told, {name: ratio * b}, FITTED)
        offset = float(np.median((a - b)[live]))
        if not name.endswith("_cov") and offset:
            told = f"suspected - trusted = {offset:.6g} in every entry of {name}"
            yield Candidate("constant offset", told, {name: np.where(live, b + offset, a)}, FITTED)
        elif offset:
            i = np.arange(b.shape[-1])
            moved = b.copy()
            step = float(np.median(a[..., i, i] - b[..., i, i]))
            moved[..., i, i] += step
            told = f"suspected - trusted = {step:.6g} in every variance of {name}"
            yield Candidate("constant offset", told, {name: moved}, FITTED)


def _named(ratio: float, problem: Problem) -> str:
    n = problem.n
    known = {
        "2": 2.0,
        "1/2": 0.5,
        "-1": -1.0,
        "sqrt 2": np.sqrt(2.0),
        "1/sqrt 2": np.sqrt(0.5),
        "n": n,
        "1/n": 1.0 / n,
        "n/(n - 1)": n / (n - 1.0),
        "(n - 1)/n": (n - 1.0) / n,
        "pi/8": np.pi / 8.0,
        "C": problem.n_classes,
        "1/C": 1.0 / problem.n_classes,
    }
    return "".join(f" ({word})" for word, value in known.items() if abs(ratio / value - 1.0) < 1e-6)[:40]
