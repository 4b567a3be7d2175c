"""Sparse methods of several classes from their definitions: ep, gfitc, vi-robust and the energies of villacampa2020.

Factors of pairs: with sites C1, C2 on a linear w_k = r_ik'x_k of Gaussian values x (inducing values for ep, latent
values at the data for gfitc), and each pair's Phi((f_y - f_k)/deviation) integrated over its own two cavities,

    log Z_q = G(q) - G(p) + sum over pairs of [log Phi(z) + G(cavity of w_y) - G(w_y) + G(cavity of w_k) - G(w_k)],

which is stationary in all sites where they match moments. Batches are replayed: sites side by side and damped, natural
gradients, Adam over means and Cholesky factors. Everything is dense, moments are sums over fine grids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from validation.checks.apart import apart, unconverged
from validation.checks.core import Compared, Context, Outcome, check
from validation.checks.definitions.binary import Adam
from validation.checks.definitions.differences import parameter_differences
from validation.checks.definitions.power import Dense, G, differences, free_gradients, inverse, power, value
from validation.checks.definitions.power import largest as probabilities_of
from validation.checks.witnesses import villacampa2020
from validation.checks.witnesses.villacampa2017 import (
    DATUM,
    EP,
    GFITC,
    PARAMETERS,
    SEP,
    VI,
    WITNESSES,
    Cavity,
    Setup,
    largest,
    tilted_pair,
)
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.quadrature_rule import kernel
from validation.judge.compare import gradient_unit, identity_limit, relative_difference

Array = NDArray[np.float64]
Sites = Array  # (4, n, C): precision and shift of the label's side, of the other's

_DAMPING, _RATE = 0.7, 0.05


# -- factors of pairs ------------------------------------------------------------------------------------------------


class Model(NamedTuple):
    """Where sites of pairs stand: x_k ~ N(0, prior^-1), w_ik = rows_ik'x_k, f_ik = w_ik + noise of variance open_ik."""

    y: NDArray[np.int64]
    prior: Array  # (C, D, D) precision
    rows: Array  # (n, C, D)
    open: Array  # (n, C)


def on_inducing(problem: Problem) -> Model:
    """Sites of ep."""
    dense = Dense(problem)
    return Model(dense.y, dense.K_inv, dense.upsilon, dense.cond_var)


def fitc_prior(problem: Problem) -> Array:
    """(C, n, n) covariance of the latent values at the data, noise included."""
    dense = Dense(problem)
    Q = np.einsum("nkm,kmp,jkp->knj", dense.upsilon, inverse(dense.K_inv), dense.upsilon)
    return np.asarray(Q + np.einsum("nk,nj->knj", dense.cond_var, np.eye(problem.n)))


def on_latents(problem: Problem) -> Model:
    """Sites of gfitc."""
    rows = np.repeat(np.eye(problem.n)[:, None], problem.n_classes, axis=1)
    return Model(problem.y, inverse(fitc_prior(problem)), rows, np.zeros((problem.n, problem.n_classes)))


def posterior(model: Model, sites: Sites) -> tuple[Array, Array]:
    """Natural parameters of q: each pair adds to the label's class and to the other."""
    P, h = model.prior.copy(), np.zeros(model.prior.shape[:2])
    for i, y in enumerate(model.y):
        for k in range(len(P)):
            if k != y:
                for j, c1, c2 in ((int(y), sites[0, i, k], sites[1, i, k]), (k, sites[2, i, k], sites[3, i, k])):
                    P[j] += c1 * np.outer(model.rows[i, j], model.rows[i, j])
                    h[j] += c2 * model.rows[i, j]
    return P, h


def _side(model: Model, V: Array, h: Array, i: int, k: int, c1: float, c2: float) -> tuple[Cavity, float]:
    """The cavity of one side of a pair, and G(cavity) - G(q) of its w."""
    row = model.rows[i, k]
    var, mean = float(row @ V[k] @ row), float(row @ V[k] @ h[k])
    tau, nu = 1.0 / var, mean / var
    left, shift = tau - c1, nu - c2
    gap = 0.5 * (shift**2 / left - np.log(left) - nu**2 / tau + np.log(tau))
    return Cavity(shift / left, 1.0 / left, mean, var), float(gap)


def _pairs(model: Model) -> Iterable[tuple[int, int, int]]:
    for i, y in enumerate(model.y):
        for k in range(model.prior.shape[0]):
            if k != y:
                yield i, int(y), k


def pair_evidence(model: Model, sites: Sites) -> float:
    """log Z_q at any sites."""
    P, h = posterior(model, sites)
    V = inverse(P)
    total = G(P, h) - G(model.prior, 0.0 * h)
    for i, y, k in _pairs(model):
        label, gap = _side(model, V, h, i, y, *sites[:2, i, k])
        other, more = _side(model, V, h, i, k, *sites[2:, i, k])
        var = label.var + other.var + model.open[i, y] + model.open[i, k]
        total += float(norm.logcdf((label.mean - other.mean) / np.sqrt(var))) + gap + more
    return total


def pair_matched(model: Model, sites: Sites, chosen: Iterable[int]) -> Sites:
    """Sites of some data by the moments of their cavities times Phi, which sums over a grid give."""
    P, h = posterior(model, sites)
    V = inverse(P)
    new, wanted = sites.copy(), set(chosen)
    for i, y, k in _pairs(model):
        if i in wanted:
            label, _ = _side(model, V, h, i, y, *sites[:2, i, k])
            other, _ = _side(model, V, h, i, k, *sites[2:, i, k])
            tilted = tilted_pair(label, other, model.open[i, y] + model.open[i, k])
            for at, side, mean, var in ((0, label, *tilted[1:3]), (2, other, *tilted[3:5])):
                new[at : at + 2, i, k] = 1.0 / var - 1.0 / side.var, mean / var - side.mean / side.var
    return new


def _sites(answer: Solution) -> Sites:
    names = ("c1_label", "c2_label", "c1_other", "c2_other")
    if "c1_label" not in answer.local:
        names = ("site_precision_label", "site_shift_label", "site_precision_other", "site_shift_other")
    return np.array([answer.local[name] for name in names])


# -- definitions -----------------------------------------------------------------------------------------------------


_apart = partial(apart, floor=1e-3)  # a mean can vanish by symmetry


def _flat(derivatives: Array, answer: Solution) -> Outcome:
    return Compared(
        float(np.abs(derivatives).max()),
        1e-6,
        "stationary: central differences of 1e-4 are good to 1e-8; a wrong term leaves 1e-2",
        answer.label,
        "differences of the definition",
        "largest entry of the gradient in a site, in its unit",
    )


def _gradients(answer: Solution, of: Callable[[Problem], float]) -> Iterable[Outcome]:
    assert answer.gradients is not None
    assert answer.log_evidence is not None
    for name in PARAMETERS:
        derivatives = parameter_differences(of, answer.problem, name, 1e-4)
        yield Compared(
            relative_difference(answer.gradients[name] * gradient_unit(answer.problem, name), derivatives,
                                0.01 * abs(answer.log_evidence)),
            1e-6,
            f"gradient in {name}: what sites or q do not add at a stationary point; differences leave 1e-8",
            answer.label,
            "differences of the definition",
            f"relative difference of the gradient in {name}",
        )  # fmt: skip


def pairs_definition(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """ep and gfitc: log Z_q, flat in the sites, its derivatives; q(u) of the sites."""
    on = on_latents if setup is GFITC else on_inducing
    limit, why = identity_limit(problem)
    for witness in WITNESSES:
        answer = setup.solve(context, witness, problem)
        yield from unconverged((answer,))
        sites, model = _sites(answer), on(problem)
        P, h = posterior(model, sites)
        mean, cov = _inducing(setup, problem, P, h)
        stated = {
            "log_evidence": (answer.log_evidence, pair_evidence(model, sites)),
            "inducing_mean": (answer.inducing_mean, mean),
            "inducing_cov": (answer.inducing_cov, cov),
        }
        yield from _apart(stated, limit, f"dense natural parameters; {why}", answer.label)
        V = inverse(P)
        projected = np.einsum("nki,kij,nkj->nk", model.rows, V, model.rows)
        label = np.repeat(projected[np.arange(problem.n), problem.y][:, None], projected.shape[1], axis=1)
        units = np.array([1.0 / label, 1.0 / np.sqrt(label), 1.0 / projected, 1.0 / np.sqrt(projected)])
        yield _flat(differences(lambda x, model=model: pair_evidence(model, x), sites, units), answer)  # type: ignore[misc]
        yield from _gradients(answer, lambda moved, sites=sites: pair_evidence(on(moved), sites))  # type: ignore[misc]


def _inducing(setup: Setup, problem: Problem, P: Array, h: Array) -> tuple[Array, Array]:
    """q(u) of natural parameters of the inducing values, or of the latent values at the data."""
    V = inverse(P)
    mean = np.einsum("kij,kj->ki", V, h)
    if setup is not GFITC:
        return mean, V
    dense = Dense(problem)
    K = inverse(dense.K_inv)
    gain = np.einsum("kmp,nkp,knj->kmj", K, dense.upsilon, inverse(fitc_prior(problem)))
    explained = np.einsum("kmj,jkp,kpq->kmq", gain, dense.upsilon, K)
    return np.einsum("kmj,kj->km", gain, mean), K - explained + gain @ V @ gain.transpose(0, 2, 1)


def datum_definition(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """ep with one factor a datum: power EP of power one."""
    limit, why = identity_limit(problem)
    for witness in WITNESSES:
        answer = setup.solve(context, witness, problem)
        yield from unconverged((answer,))
        sites = np.array([answer.local["site_precision"], answer.local["site_shift"]])
        dense = Dense(problem)
        yield from _apart(
            {"log_evidence": (answer.log_evidence, dense.with_sites(1.0, *sites))}, limit, why, answer.label
        )
        assert answer.inducing_cov is not None
        projected = np.einsum("nki,kij,nkj->nk", dense.upsilon, answer.inducing_cov, dense.upsilon)
        units = np.array([1.0 / projected, 1.0 / np.sqrt(projected)])
        yield _flat(differences(lambda x, dense=dense: dense.with_sites(1.0, *x), sites, units), answer)  # type: ignore[misc]
        yield from _gradients(answer, lambda moved, sites=sites: Dense(moved).with_sites(1.0, *sites))  # type: ignore[misc]


def variational_definition(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """vi-robust: E_q log p - KL, flat in q, and its derivatives."""
    limit, why = identity_limit(problem)
    for witness in WITNESSES:
        answer = setup.solve(context, witness, problem)
        yield from unconverged((answer,))
        yield from _apart({"log_evidence": (answer.log_evidence, value(answer))}, limit, why, answer.label)
        yield _flat(free_gradients(answer), answer)
        yield from _gradients(answer, lambda moved, answer=answer: value(answer, moved))  # type: ignore[misc]


# -- predictions -----------------------------------------------------------------------------------------------------


def predictions(
    context: Context, solve: Callable[[str], Solution], problem: Problem, *, at_data: str = "q"
) -> Iterable[Outcome]:
    """Latent moments and class probabilities at test points, and latent moments at the data, of the reported q(u).

    at_data    "q": p(f | u) averaged over q(u); "sites": of gfitc's own posterior of the latent values; "" : judged
               elsewhere, where a datum's own label has been seen
    """
    limit, why = identity_limit(problem)
    dense = Dense(problem)
    assert problem.X_test is not None
    assert problem.Z is not None
    for witness in WITNESSES:
        answer = solve(witness)
        assert answer.inducing_mean is not None
        assert answer.inducing_cov is not None
        C = problem.n_classes
        mean, var = np.empty((2, len(problem.X_test), C))
        for k in range(C):
            cross = kernel(problem, k, problem.X_test, problem.Z[k])
            rows = cross @ dense.K_inv[k]
            mean[:, k] = rows @ answer.inducing_mean[k]
            var[:, k] = problem.variance[k] + problem.noise[k] - (rows * cross).sum(axis=1)
            var[:, k] += np.einsum("tm,mp,tp->t", rows, answer.inducing_cov[k], rows)
        assert answer.test_latent_cov is not None
        # laplace-sparse couples the classes, which blocks of q(u) do not tell
        test_cov = answer.test_latent_cov * (np.eye(C) if problem.likelihood == "softmax" else 1.0)
        stated: dict[str, tuple[Any, Any]] = {
            "test_latent_mean": (answer.test_latent_mean, mean),
            "test_latent_cov": (test_cov, var[:, :, None] * np.eye(C)),
        }
        if problem.likelihood == "threshold":
            labels = np.repeat(np.arange(C)[None], len(mean), axis=0)
            right = np.stack([probabilities_of(labels[:, k], mean, var) for k in range(C)], axis=1)
            likely = dense.labels[0] * right + dense.labels[1] * (1.0 - right)
            stated["probabilities"] = answer.probabilities, likely / likely.sum(axis=1, keepdims=True)
        if at_data == "q":
            P = inverse(answer.inducing_cov)
            data_mean, data_var = dense.moments(P, np.einsum("kij,kj->ki", P, answer.inducing_mean))
        elif at_data == "sites":
            P, h = posterior(on_latents(problem), _sites(answer))
            V = inverse(P)
            data_mean, data_var = np.einsum("kij,kj->ik", V, h), np.einsum("kii->ik", V)
        if at_data:
            stated["latent_mean"] = answer.latent_mean, data_mean
            stated["latent_cov"] = answer.latent_cov, data_var[:, :, None] * np.eye(C)
        yield from _apart(
            stated, limit, f"of the reported q(u), by dense matrices and a trapezoidal rule; {why}", answer.label
        )


# -- batches ---------------------------------------------------------------------------------------------------------


def _rows(problem: Problem) -> list[list[int]]:
    """Batches that are never all of the data, with one that comes back."""
    size = max(1, min(5, problem.n // 2))
    drawn = [np.random.default_rng([2020, i]).choice(problem.n, size, replace=False).tolist() for i in range(3)]
    return [*drawn, drawn[0]]


def pair_batches(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """ep: sites of each batch side by side, damped."""
    limit, why = identity_limit(problem)
    model, sites = on_inducing(problem), np.zeros((4, problem.n, problem.n_classes))
    for rows in _rows(problem):
        sites = _moved_rows(sites, pair_matched(model, sites, rows), rows)
    mean, cov = _inducing(setup, problem, *posterior(model, sites))
    for witness in WITNESSES:
        answer = setup.solve(context, witness, problem, batches=_rows(problem), damping=_DAMPING)
        stated = {"sites": (_sites(answer), sites), "inducing_mean": (answer.inducing_mean, mean),
                "inducing_cov": (answer.inducing_cov, cov),
                "log_evidence": (answer.log_evidence, pair_evidence(model, sites))}  # fmt: skip
        yield from _apart(stated, limit, f"moments by a trapezoidal rule each way; {why}", answer.label)


def _moved_rows(old: Array, new: Array, rows: list[int]) -> Array:
    result = old.copy()
    result[:, rows] = (1.0 - _DAMPING) * old[:, rows] + _DAMPING * new[:, rows]
    return result


def power_matched(problem: Problem, alpha: float, sites: Array, rows: Iterable[int]) -> Array:
    """(2, n, C) sites of power EP, those of some data by the moments of cavity times p^alpha, over alpha."""
    dense = Dense(problem)
    P = dense.K_inv + np.einsum("nk,nki,nkj->kij", sites[0], dense.upsilon, dense.upsilon)
    h = np.einsum("nk,nki->ki", sites[1], dense.upsilon)
    new = sites.copy()
    for i in rows:
        u = dense.upsilon[i]
        V = inverse(P - alpha * sites[0, i][:, None, None] * u[:, :, None] * u[:, None])
        e = np.einsum("ki,kij,kj->k", u, V, h - alpha * sites[1, i][:, None] * u)
        v = np.einsum("ki,kij,kj->k", u, V, u)
        whole = v + dense.cond_var[i]
        log_norm, mean, var = largest(int(dense.y[i]), e, whole)
        right, wrong = (label**alpha for label in dense.labels)
        # the label's region weighs `right`, the rest `wrong`: all of the Gaussian, and what the region has on top
        share = (right - wrong) * np.exp(log_norm)
        share /= share + wrong
        first = share * mean + (1.0 - share) * e
        second = share * (var + (mean - first) ** 2) + (1.0 - share) * (whole + (e - first) ** 2)
        gain = v / whole
        w_mean, w_var = e + gain * (first - e), v - gain * v + gain**2 * second
        new[:, i] = np.array([1.0 / w_var - 1.0 / v, w_mean / w_var - e / v]) / alpha
    return new


def power_batches(context: Context, solve: Callable[..., Solution], problem: Problem) -> Iterable[Outcome]:
    """pep: sites of each batch side by side, damped."""
    limit, why = identity_limit(problem)
    alpha = villacampa2020.POWER["pep"]
    sites = np.zeros((2, problem.n, problem.n_classes))
    for rows in _rows(problem):
        sites = _moved_rows(sites, power_matched(problem, alpha, sites, rows), rows)
    for witness in WITNESSES:
        answer = solve(witness, batches=_rows(problem), damping=_DAMPING)
        result = np.array([answer.local["site_precision"], answer.local["site_shift"]])
        stated = {"sites": (result, sites),
                "log_evidence": (answer.log_evidence, Dense(problem).with_sites(alpha, *sites))}  # fmt: skip
        yield from _apart(stated, limit, f"moments by adaptive quadrature; {why}", answer.label)


def energy_batches(context: Context, solve: Callable[..., Solution], problem: Problem) -> Iterable[Outcome]:
    """apep, arpep and rpapep: Adam over means, Cholesky factors (logarithms of diagonals) and log variances."""
    batches = _rows(problem)
    options: dict[str, Any] = {"batches": batches, "learn": ("variance",), "rate": _RATE}
    results = {witness: solve(witness, **options) for witness in WITNESSES}
    method, alpha = results["fast"].method, power(results["fast"])
    C, m = problem.n_classes, Dense(problem).K_inv.shape[1]
    low = np.tril_indices(m, -1)

    def unpacked(x: Array) -> tuple[Array, Array, Problem]:
        rows = x[:-C].reshape(C, -1)
        roots = np.zeros((C, m, m))
        roots[:, np.arange(m), np.arange(m)] = np.exp(rows[:, m : 2 * m])
        roots[:, low[0], low[1]] = rows[:, 2 * m :]
        return rows[:, :m], roots @ roots.transpose(0, 2, 1), problem.replace(variance=np.exp(x[-C:]))

    roots = np.linalg.cholesky(inverse(Dense(problem).K_inv))
    packed = [np.concatenate([np.zeros(m), np.log(np.diag(root)), root[low]]) for root in roots]
    where, adam = np.concatenate([*packed, np.log(problem.variance)]), Adam(_RATE)
    for rows in batches:

        def at(x: Array, rows: list[int] = rows) -> float:
            mean, cov, moved = unpacked(x)
            return Dense(moved).batch_energy(method, alpha, mean, cov, rows)

        where = where + adam.step(differences(at, where, np.ones_like(where)))
    mean, cov, moved = unpacked(where)
    for answer in results.values():
        stated = {"inducing_mean": (answer.inducing_mean, mean), "inducing_cov": (answer.inducing_cov, cov),
                "variance": (answer.problem.variance, moved.variance),
                "log_evidence": (answer.log_evidence, Dense(moved).energy(method, alpha, mean, cov))}  # fmt: skip
        yield from _apart(stated, 1e-5, "Adam divides by derivatives, which differences know to 1e-8", answer.label)


def variational_batches(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """vi-robust: natural gradients of the scaled bound, each at most half of q's own scale."""
    dense, batches = Dense(problem), _rows(problem)
    P, h = dense.K_inv, np.zeros(dense.K_inv.shape[:2])
    for rows in batches:
        V = inverse(P)
        mean, var = dense.moments(P, h)
        by_mean, by_var = _label_derivatives(dense, mean, var)
        scale = problem.n / len(rows)
        u, w = dense.upsilon[rows], -2.0 * by_var[rows]
        to_P = dense.K_inv + scale * np.einsum("nk,nki,nkj->kij", w, u, u)
        to_h = scale * np.einsum("nk,nki->ki", by_mean[rows] + w * mean[rows], u)
        dP, dh = to_P - P, to_h - h
        turned = V @ dP
        rest = dh - np.einsum("kij,kj->ki", dP, np.einsum("kij,kj->ki", V, h))
        size = max(np.einsum("kij,kji->k", turned, turned).max(), np.einsum("ki,kij,kj->k", rest, V, rest).max())
        step = min(_RATE, 0.5 / float(np.sqrt(size)))
        P, h = P + step * dP, h + step * dh
    V = inverse(P)
    mean = np.einsum("kij,kj->ki", V, h)
    for witness in WITNESSES:
        answer = setup.solve(context, witness, problem, batches=batches, nat_rate=_RATE)
        stated = {"inducing_mean": (answer.inducing_mean, mean), "inducing_cov": (answer.inducing_cov, V),
                "log_evidence": (answer.log_evidence, dense.energy("vi-robust", 0.0, mean, V))}  # fmt: skip
        yield from _apart(stated, 1e-6, "derivatives by differences of 1e-4 leave 1e-8", answer.label)


def _label_derivatives(dense: Dense, mean: Array, var: Array) -> tuple[Array, Array]:
    """Derivatives of E log p(y_i|f_i) in the means and variances of the latent values."""
    gap = np.log(dense.labels[0]) - np.log(dense.labels[1])
    results = []
    for name in ("mean", "var"):
        derivatives = np.empty_like(mean)
        for k in range(mean.shape[1]):
            ends = []
            step = 1e-4 * np.sqrt(var[:, k]) if name == "mean" else 1e-4 * var[:, k]
            for sign in (1.0, -1.0):
                moved = {"mean": mean.copy(), "var": var.copy()}
                moved[name][:, k] += sign * step
                ends.append(probabilities_of(dense.y, moved["mean"], moved["var"]))
            derivatives[:, k] = gap * (ends[0] - ends[1]) / (2.0 * step)
        results.append(derivatives)
    return results[0], results[1]


# -- registration ----------------------------------------------------------------------------------------------------


def _add(
    id: str,
    paper: str,
    question: str,
    function: Callable[[Context, Problem], Iterable[Outcome]],
    problems: tuple[str, ...],
    full: tuple[str, ...] = (),
) -> None:
    @check(id, paper=paper, question=question, problems=problems, full=full)
    def ask(context: Context, problem: Problem) -> Iterable[Outcome]:
        return function(context, problem)


def _setup(function: Callable[..., Iterable[Outcome]], setup: Setup) -> Callable[[Context, Problem], Iterable[Outcome]]:
    return lambda context, problem: function(context, setup, problem)


def _solver(context: Context, method: str, problem: Problem) -> Callable[..., Solution]:
    options = {"alpha": villacampa2020.POWER[method]} if method in villacampa2020.POWER else {}
    return lambda witness, **more: context.solve(witness, method, problem, **options, **more)


_FEW, _TOY, _ERRORS = "two-points-3-sparse-threshold", "toy-3-sparse-threshold", "two-points-3-sparse-errors"
_P17, _P20 = "villacampa2017", "villacampa2020"
_FLAT = "Log Z is the defined one and stationary in sites or q, and has these derivatives."
_BATCH = "Batches move sites or q as the definition says."
_OF_Q = "Predictions are those of the reported q."
_add("limit/ep/definition", _P17, _FLAT, _setup(pairs_definition, EP), (_FEW,), ("toy-2-sparse-threshold",))
_add("limit/ep/datum_definition", _P17, _FLAT, _setup(datum_definition, DATUM), (_FEW,))
_add("limit/gfitc/definition", _P17, _FLAT, _setup(pairs_definition, GFITC), (_FEW,), ("toy-2-sparse-threshold",))
_add("limit/vi-robust/definition", _P17, _FLAT, _setup(variational_definition, VI), (_ERRORS,))
_add("limit/ep/batch_definition", _P17, _BATCH, _setup(pair_batches, EP), (_TOY,))
_add("limit/vi-robust/batch_definition", _P17, _BATCH, _setup(variational_batches, VI), (_ERRORS,))
_add("limit/pep/batch_definition", _P20, _BATCH,
     lambda context, problem: power_batches(context, _solver(context, "pep", problem), problem),
     (_ERRORS,))  # fmt: skip
for _method in ("apep", "arpep", "rpapep"):
    _add(f"limit/{_method}/batch_definition", _P20, _BATCH,
         lambda context, problem, method=_method: energy_batches(  # type: ignore[misc]
             context, _solver(context, method, problem), problem), (_ERRORS,))  # fmt: skip
for _one, _at in ((EP, "q"), (DATUM, ""), (SEP, "q"), (GFITC, "sites"), (VI, "q")):
    _add(f"limit/{_one.method}/{_one.prefix}predictions", _P17, _OF_Q,
         lambda context, problem, one=_one, at=_at: predictions(  # type: ignore[misc]
             context, lambda witness: one.solve(context, witness, problem), problem, at_data=at),
         (f"two-points-3-sparse{_one.end}",))  # fmt: skip
for _method in (*villacampa2020.METHODS, "label-regression", "laplace-sparse"):
    _at = "" if _method == "laplace-sparse" else "q"
    _add(f"limit/{_method}/predictions", _P20, _OF_Q,
         lambda context, problem, method=_method, at=_at: predictions(  # type: ignore[misc]
             context, _solver(context, method, problem), problem, at_data=at),
         ("toy-3-sparse-softmax",) if _method == "laplace-sparse" else (_ERRORS,))  # fmt: skip
