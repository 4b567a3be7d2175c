"""Runs of `reference` by their own sentences: first steps, ends, searches around them, what is told and kept.

Where a run ends seldom depends on these rules. So it is cut short, or led by made-up steps, and asked what it says.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check, flaws
from validation.checks.learning import tiny
from validation.checks.reference_pieces import kernel, one_latent
from validation.problem import Problem

Array = NDArray[np.float64]


# -- one sweep, few steps -------------------------------------------------------------------------------------------


@check(
    "identity/ep/one_damped_sweep",
    paper="villacampa2017",
    question="Is what one damped sweep from factors of one leaves in q that share of what a whole sweep leaves?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from validation.solve import solve

    for method, kind, forms in (
        ("ep", "threshold", ("printed", "projected")),
        ("sep", "threshold", ("printed", "projected")), ("pep", "threshold errors", ("printed", "projected")),
        ("epgpc", "probit", ("",)),
    ):  # fmt: skip
        asked = tiny(kind)
        for form in forms:
            sites = []
            for damping in (1.0, 0.3):
                given = {
                    "damping": damping,
                    "max_iterations": 1,
                    "gradients": False,
                    **({"form": form} if form else {}),
                }
                end = solve("reference", method, asked, **given)
                assert end.inducing_mean is not None
                assert end.inducing_cov is not None
                assert asked.Z is not None
                parts = []
                for k, (m, V) in enumerate(zip(end.inducing_mean, end.inducing_cov, strict=True)):
                    Z = asked.Z[k]
                    K = kernel(Z, Z, float(asked.variance[k]), asked.lengthscales[k])
                    K += float(asked.jitter[k]) * np.eye(len(Z))
                    inverse = np.linalg.inv(V)
                    parts += [(inverse - np.linalg.inv(K)).ravel(), inverse @ m]
                sites.append(np.concatenate(parts))
            gap = float(np.abs(sites[1] - 0.3 * sites[0]).max() / np.abs(sites[0]).max())
            yield Compared(gap, 1e-9, f"{method} {form}: damping of 0.3 and of 1", "reference", "a whole sweep")


@check(
    "identity/gfitc/damped_steps",
    paper="villacampa2017",
    question="Does a damped step take sites that share of the way from where they were to where a whole one leads?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.villacampa2017 import gfitc
    from reference.villacampa2017.hyper import prior_matrices

    asked = tiny("threshold")
    assert asked.Z is not None
    K = prior_matrices(asked.X, Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z))
    K_XX = gfitc.fitc_covariance(K.upsilon, K.cond_var, K.K_ZZ)
    rng = np.random.default_rng(23)
    other = np.arange(3) != asked.y[:, None]  # the label's own class has no factor
    low, high = np.array([0.05, -0.2, 0.05, -0.2]), np.array([0.3, 0.2, 0.3, 0.2])
    here = gfitc.Coefficients(*(other * rng.uniform(a, b, (8, 3)) for a, b in zip(low, high, strict=True)))
    for form in (gfitc._Printed, gfitc._Projected):
        sites = []
        for damping in (1.0, 0.3):
            run = form(K_XX, asked.y, damping)
            sites.append(np.array(run.step(here, run.posterior(here)).sites))
        gap = float(np.abs(sites[1] - (0.7 * np.array(here) + 0.3 * sites[0])).max() / np.abs(sites[0]).max())
        yield Compared(gap, 1e-9, f"{form.__name__[1:].lower()}: damping of 0.3 and of 1, from sites of their own",
                       "reference", "a whole step")  # fmt: skip


@check(
    "identity/ep/factors_left_alone",
    paper="villacampa2017",
    question="Are factors without a cavity left where they are and counted, by every schedule and form?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.villacampa2017 import gfitc, methods, printed
    from reference.villacampa2017.hyper import prior_matrices

    asked = tiny("threshold")
    assert asked.Z is not None
    K = prior_matrices(asked.X, Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z))
    K_XX, everything = gfitc.fitc_covariance(K.upsilon, K.cond_var, K.K_ZZ), np.arange(asked.n)
    runs: list[tuple[str, Any, Any]] = [
        (f"{form.__name__}, {schedule}", form(asked.y, 3, 0.5, schedule), (K, everything))
        for form in (methods.PairwiseEP, methods.DatumEP, printed.PrintedEP) for schedule in ("parallel", "sequential")
    ]  # fmt: skip
    runs += [(f"gfitc{form.__name__}", form(K_XX, asked.y, 0.5), ()) for form in (gfitc._Projected, gfitc._Printed)]
    rows: list[tuple[str, object, object]] = []
    for name, run, given in runs:
        zero = gfitc.Coefficients(*(np.zeros((asked.n, 3)) for _ in range(4)))
        sites = run.start(K) if given else zero
        q = run.posterior(sites, K) if given else run.posterior(sites)
        # datum 0 has label 0, and comes first: what it claims to know of class 0 or 1 is half as much again as q does
        for place, k in ((0, 0), (2, 1)) if len(sites) == 4 else ((0, 1),):
            spread = K.upsilon[k, 0] @ q.cov[k] @ K.upsilon[k, 0] if given else q.cov[k][0, 0]
            bad = type(sites)(*(part.copy() for part in sites))
            bad[place][0, 1] = 1.5 / float(spread)
            end = run.step(bad, q, *given)
            held = [bool(part[0, 1] == was[0, 1]) for part, was in zip(end.sites, bad, strict=True)]
            moved = [bool(part[4, 0] != was[4, 0]) for part, was in zip(end.sites, bad, strict=True)]
            sound = all(np.isfinite(part).all() for part in end.sites)
            rows += [
                (f"{name}, class {k}: held, others moved, finite", (all(held), all(moved), sound), (True, True, True)),
                (f"{name}, class {k}: counted", end.n_improper, 1),
            ]
    yield as_documented(rows, "reference", "factors")


@check(
    "identity/svi/one_step",
    paper="izmailov2016",
    question="Has a run of one step no change from an earlier one to state, and that of two that of its last step?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016.fit import fit_svi_batches

    asked, y, hyper, _ = one_latent("logit")
    ends = [fit_svi_batches(asked.X, y, hyper, batches=[[0, 3, 5], [1, 6], [2, 7]][:steps]) for steps in (1, 2, 3)]
    yield flaws(ends[0].residual != np.inf, "after one step: infinite", "reference", "statements")
    for old, new in itertools.pairwise(ends):
        wanted = max(
            float(np.abs(a - b).max() / np.abs(a).max())
            for a, b in ((new.inducing_mean, old.inducing_mean), (new.inducing_cov, old.inducing_cov))
        )
        yield Compared(abs(new.residual / wanted - 1.0), 1e-9, f"{new.iterations} steps, from a run of one less",
                       "reference", "a shorter run")  # fmt: skip


@check(
    "identity/vi-taylor/one_round",
    paper="izmailov2016",
    question="Is an iteration towards the fixed point one round of (15), (13), (12), or of xi = m, (18), (17)?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016._prior import Inputs
    from reference.izmailov2016.algorithm1 import Variational
    from reference.izmailov2016.fit import _settle

    asked, y, hyper, K = one_latent("logit")
    inverse = np.linalg.inv(K.K_ZZ)
    kappa = K.K_XZ @ inverse
    start = 0.3 * np.arange(4.0), 0.5 * K.K_ZZ
    f, var = kappa @ start[0], K.k_xx + np.einsum("im,mp,ip->i", kappa, start[1] - K.K_ZZ, kappa)
    for method in ("vi-jj", "vi-taylor"):
        if method == "vi-jj":
            xi = np.sqrt(f**2 + var)
            weight, pull = np.tanh(0.5 * xi) / (2.0 * xi), 0.5 * y
        else:
            xi, weight = f, expit(f) * expit(-f)
            pull = y * expit(-y * f) + weight * f
        cov = np.linalg.inv(inverse + (kappa.T * weight) @ kappa)
        wanted = cov @ kappa.T @ pull, cov, xi
        from_there = Variational(*start, np.zeros(asked.n))
        end = _settle(method, Inputs(asked.X, y, hyper), "logit", 1e-14, 1, None, from_there)
        assert end.xi is not None
        found = end.inducing_mean, end.inducing_cov, end.xi
        gap = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, wanted, strict=True))
        yield Compared(gap, 1e-9, f"{method}: mean, covariance and xi after one, by dense algebra", "reference",
                       "definition")  # fmt: skip
        yield flaws(end.iterations != 1 or len(end.trace) != 1, f"{method}: one iteration", "reference", "statements")


@check(
    "identity/vi-jj/relative_changes",
    paper="izmailov2016",
    question="Are rounds ended by the change of the bound, relative above one, and are searches told as they end?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._search import Top
    from reference.izmailov2016 import algorithm1 as place

    asked, y, hyper, _ = one_latent("logit")
    rows: list[tuple[str, object, object]] = []
    for bounds, most, wanted in (
        ([-50.0, -40.0, -39.9999], 9, (3, True, 1e-4 / 40.0)), ([-40.0, -50.0], 2, (2, False, 0.2)),
        ([-0.5, -0.4, -0.39999], 9, (3, True, 1e-5)), ([-0.5, -0.4], 2, (2, False, 0.1)),
        ([-3.0], 1, (1, False, np.inf)),
    ):  # fmt: skip
        script, told = iter(bounds), list[Any]()

        def second(at: Any, xi: Array, script: Any = script) -> Any:
            return place.Adapted(at, xi, next(script), 1)

        end = place.alternate(asked.X, hyper, lambda q, K: q, second, 1e-3, most, told.append)
        rows += [
            (f"bounds {bounds}: iterations, converged", (end.iterations, end.converged), wanted[:2]),
            (f"bounds {bounds}: the last change", round(end.residual, 12), round(wanted[2], 12)),
            (f"bounds {bounds}: told", [(state.iteration, state.elbo) for state in told],
             list(enumerate(bounds, start=1))),
            (f"bounds {bounds}: kept", (end.trace.tolist(), len(end.moves)), (bounds, len(bounds))),
        ]  # fmt: skip
    xi = np.linspace(0.4, 1.9, asked.n)
    for trace, iterations, stated in (
        ([-50.0, -40.0], 5, (0.25, True, [-50.0, -40.0])), ([-0.5, -0.4], 9, (0.1, False, [-0.5, -0.4])),
        ([-0.7], 1, (0.0, True, [-0.7])), ([], 0, (0.0, True, [-0.4])),
    ):  # fmt: skip
        top = Top(xi, -0.4, 0.3, np.array(trace), iterations, 12)
        with mock.patch.object(place, "maximise", return_value=top):
            end = place.vi_jj_full(asked.X, y, hyper, (), 1e-3, 9)
        came = round(end.residual, 12), end.converged, end.trace.tolist()
        rows.append((f"one search of {iterations} iterations, values {trace}", came, stated))
        rows.append(("its xi", np.array_equal(end.q.xi, xi), True))
    yield as_documented(rows, "reference", "ends")


@check(
    "identity/svi/positions_and_ends",
    paper="izmailov2016",
    question="Are the places of a stochastic run those that it tells, and derivatives at an end those of the bound?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016.fit import fit_vi
    from reference.izmailov2016.svi import Parameters, as_vector, batch_bound, svi_adadelta

    asked, y, hyper, _ = one_latent("logit")
    told: list[Array] = []
    learn = ("variance",)
    batches = [np.array([0, 3]), np.array([5]), np.array([1, 2])]
    run = svi_adadelta(
        asked.X, y, hyper, batches, learn=learn, callback=lambda state: told.append(as_vector(state.parameters, learn))
    )
    same = run.positions.shape == (3, len(told[0])) and np.array_equal(run.positions, np.array(told))
    yield flaws(not same or not np.array_equal(told[-1], as_vector(run.parameters, learn)), "after each of three steps",
                "reference", "places")  # fmt: skip

    everything, step = np.arange(asked.n), 1e-5
    for most in (1, 10_000):
        end = fit_vi("svi", asked.X, y, hyper, max_iterations=most)
        assert end.derivatives is not None
        L: Any = np.linalg.cholesky(end.inducing_cov)
        worst = 0.0
        for p in range(len(L)):
            for q in (None, *range(p + 1)):
                ends = []
                for sign in (1.0, -1.0):
                    mean, root = end.inducing_mean.copy(), L.copy()
                    if q is None:
                        mean[p] += sign * step
                    else:
                        root[p, q] += sign * step
                    ends.append(batch_bound(Parameters(mean, root, hyper), asked.X, y, everything))
                found = end.derivatives.inducing_mean[p] if q is None else end.derivatives.inducing_chol[p, q]
                worst = max(worst, abs(float(found) - (ends[0] - ends[1]) / (2.0 * step)))
        yield Compared(worst, 1e-7, f"{end.iterations} steps: by means and factors", "reference", "differences",
                       "largest difference")  # fmt: skip


# -- what is left of an iteration -----------------------------------------------------------------------------------


@check(
    "identity/x-gpc/what_arrival_states",
    paper="wenzel2019",
    question="Is the distance to a fixed point that of the slowest of the last five ratios, held where rounding rules?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._iteration import Arrival

    def after(changes: Iterable[float]) -> float:
        arrival = Arrival(1e-10)
        for each in changes:
            arrival.see(each)
        return arrival.residual

    inf = np.inf
    half, tenth = [0.5**k for k in range(20)], [0.9**k for k in range(20)]
    slow = [1.0, 0.99, *(0.99 * 0.6**k for k in range(1, 8))]
    small = [1e-7 * 0.5**k for k in range(8)]  # the last is 8e-10: what comes after is held
    rows: list[tuple[str, float, float]] = [
        ("one change", after([1e-3]), inf),
        ("two", after([1e-3, 1e-4]), inf),
        ("a change of zero", after([1e-3, 0.0]), 0.0),
        ("halved", after(half), half[-1]),
        ("less by a tenth", after(tenth), 9.0 * tenth[-1]),
        ("equal", after([1e-3] * 9), inf),
        ("growing", after([1e-3, 2e-3, 3e-3]), inf),
        ("a slow ratio, five back", after(slow[:6]), 99.0 * slow[5]),
        ("a slow ratio, six back", after(slow[:7]), 1.5 * slow[6]),
        ("equal after it has fallen: the ratio is held", after([*slow[:8], slow[7]]), 1.5 * slow[7]),
        ("below 1e-9 the ratio is held", after([*small, 0.9 * small[-1]]), 0.9 * small[-1]),
        ("above 1e-9 it is not", after([*(10.0 * each for each in small), 9.0 * small[-1]]), 9.0 * 9.0 * small[-1]),
        ("there at once: three below 1e-14", after([5e-15, 9e-15, 5e-15]), 5e-15),
        ("two below 1e-14, one above", after([2e-14, 5e-15, 9e-15]), 9e-15),
        ("one far above, then two equal below 1e-14", after([1e-9, 5e-15, 5e-15]), inf),
        ("three equal below 1e-12, nothing known before", after([5e-13, 5e-13, 5e-13]), 5e-13),
        ("three about 1e-12", after([2e-12, 5e-13, 5e-13]), inf),
        ("three equal below 1e-12, a ratio known", after([*tenth[:6], *[5e-13] * 3]), 9.0 * 5e-13),
        ("falling after a zero", after([1e-3, 0.0, 1e-4, 5e-5]), 5e-5),
    ]
    wrong = [
        f"{what}: {found:.6g}, expected {wanted:.6g}"
        for what, found, wanted in rows
        if found != wanted and not (np.isfinite(wanted) and abs(found - wanted) <= 1e-9 * wanted)
    ]
    yield flaws(len(wrong), "; ".join(wrong) or f"{len(rows)} sequences of changes, by hand", "reference", "distances")


@check(
    "identity/ep/sweeps_that_stood_still",
    paper="villacampa2017",
    question="Do sweeps whose residuals stood still state a distance again as soon as they fall?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._sweeps import Sweeps

    damping, factor = 0.5, 0.9
    for still in (60, 75):
        sweeps = Sweeps(damping, 1e-12)
        x, move = np.zeros(3), np.array([1.0, -0.5, 0.25])
        for residual in [1.0] * still + [0.9 * 0.5**k for k in range(8)]:
            x, move = x + move, factor * move
            back = sweeps.see((x,), residual, 0)
            x = x if back is None else back[0]
            sweeps.propose((x,))  # whatever it is, nobody follows it
        # halved eight times in a row, of moves that fall by a tenth
        wanted = residual * damping * factor / (1.0 - factor)
        yield Compared(abs(sweeps.distance / wanted - 1.0), 1e-6, f"{still} residuals of one size, then eight halved",
                       "reference", "definition")  # fmt: skip


@check(
    "identity/x-gpc/stalled_loops",
    paper="wenzel2019",
    question="Does each loop end, unconverged, when 200 iterations have brought no smaller change, and no sooner?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._iteration import Arrival
    from validation.solve import solve

    rows: list[tuple[str, object, object]] = []
    for what, changes, wanted in (
        ("all equal", [1e-3] * 300, 201),
        ("falling for thirty", [0.5**k for k in range(30)] + [1.0] * 300, 230),
        ("a smaller one in between", [1e-3] * 150 + [9e-4] + [1e-3] * 300, 351),
    ):
        arrival, count = Arrival(1e-300), 0
        for each in changes:
            arrival.see(each)
            count += 1
            if arrival.stalled:
                break
        rows.append((f"{what}: given up after", count, wanted))
    for method, kind in (("x-gpc", "logit"), ("svgpc", "probit"), ("epgpc", "probit"), ("svi", "logit"),
                         ("qep", "multinomial-probit full"), ("qiep", "multinomial-probit full")):  # fmt: skip
        with mock.patch.object(Arrival, "stalled", property(lambda arrival: len(arrival.changes) >= 3)):
            end = solve("reference", method, tiny(kind), tolerance=1e-14, gradients=False)
        rows.append((f"{method} that is told after three: iterations, converged", (end.iterations, end.converged),
                     (3, False)))  # fmt: skip
    yield as_documented(rows, "reference", "ends")


@check(
    "identity/nested-ep/inner_cavities",
    paper="riihimaki2013",
    question="Are inner cavities that are no distributions skipped, all counted, and no end while there are any?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.riihimaki2013 import inner_ep as place

    mean, cov = np.array([0.4, -0.3, 0.8]), np.diag([1.4, 0.9, 2.2]) + 0.2
    zero, healthy = np.zeros(2), place.inner_cavity
    whole = place.inner_ep(mean, cov, 1, zero, zero)
    rows: list[tuple[str, object, object]] = [("none of them improper", (whole.converged, whole.n_improper), (True, 0))]
    for sweeps in (1, 4, 10**6):
        count = itertools.count()

        def improper(*given: Any, sweeps: int = sweeps, count: Any = count) -> Any:
            sweep, site = divmod(next(count), 2)
            return healthy(*given)._replace(var=-1.0) if site == 0 and sweep < sweeps else healthy(*given)

        with mock.patch.object(place, "inner_cavity", improper):
            end = place.inner_ep(mean, cov, 1, zero, zero)
        ever = sweeps < 100
        near = float(np.abs(end.alpha - whole.alpha).max()) < 1e-6
        rows += [
            (f"the first is skipped in {sweeps} sweeps: converged, near", (end.converged, near), (ever, ever)),
            (f"the first is skipped in {sweeps} sweeps: counted", end.n_improper, min(sweeps, place.LIMIT)),
        ]
        if not ever:
            rows.append(
                ("a site that is never visited", (end.alpha[0], end.beta[0], end.alpha[1] > 0.0), (0.0, 0.0, True))
            )
    with mock.patch.object(place, "change_of_site", side_effect=[0.25, 0.5]):
        rows.append(("a sweep's change", place.inner_ep(mean, cov, 1, zero, zero, inner="incremental").change, 0.75))
    yield as_documented(rows, "reference", "runs")


@check(
    "identity/qep/rules_without_a_site",
    paper="riihimaki2013",
    question="Is a site left, and nothing told of it, where the moments of its rule belong to no distribution or site?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common.options import options_of
    from reference.riihimaki2013 import qep as place
    from reference.riihimaki2013.sites import Tilted

    mean, cov = np.array([0.4, -0.3, 0.8]), np.diag([1.4, 0.9, 2.2])
    rows: list[tuple[str, object, object]] = []
    for kind, method, name, options in (
        (place.QuadratureEP, "qep", "tilted_moments_quadrature", {}),
        (place.QuadratureEP, "qep", "tilted_moments_quadrature", {"lambda_": "full"}),
        (place.QuadratureIEP, "qiep", "qiep_tilted_moments", {}),
    ):
        healthy = getattr(place, name)
        for what, norm, spread, taken in (
            ("as it is", 1.0, 1.0, True), ("no mass", 0.0, 1.0, False), ("mass below zero", -1.0, 1.0, False),
            ("variances below zero", 1.0, -1.0, False), ("a point", 1.0, 0.0, False),
            ("wider than the cavity", 1.0, 30.0, False), ("one variance below zero", 1.0, (1.0, -1.0, 1.0), False),
            ("one wider than the cavity", 1.0, (1.0, 30.0, 1.0), False), ("one a point", 1.0, (1.0, 0.0, 1.0), False),
        ):  # fmt: skip
            run = kind(np.array([2, 0]), 3, options_of(method)(**options))
            before = {key: value.copy() for key, value in vars(run).items() if isinstance(value, np.ndarray)}

            def changed(*given: Any, healthy: Any = healthy, norm: float = norm, spread: Any = spread) -> Tilted:
                hat = healthy(*given)
                if isinstance(spread, tuple) and hat.cov.ndim == 2:  # of two differences, without their covariance
                    return hat._replace(cov=np.diag(np.diag(hat.cov) * spread[:2]))
                return hat._replace(norm=norm * hat.norm, cov=np.array(spread) * hat.cov)

            with mock.patch.object(place, name, changed):
                step = run.visit(1, mean, cov)
            same = all(np.array_equal(value, getattr(run, key)) for key, value in before.items())
            rows.append((f"{method} {options}, {what}: a step, nothing moved", (step is not None, same),
                         (taken, not taken)))  # fmt: skip
    yield as_documented(rows, "reference", "sites")


# -- steps that do not rise -----------------------------------------------------------------------------------------


def _binary(kind: str) -> Any:
    """What fits of wenzel2019 are given."""
    from reference.wenzel2019 import _prior

    asked = tiny(kind)
    return _prior.checked(
        asked.X, 2.0 * asked.y - 1.0, float(asked.variance[0]), asked.lengthscales[0], float(asked.noise[0]),
        float(asked.jitter[0]), None if asked.Z is None else asked.Z[0],
    )  # fmt: skip


@check(
    "identity/svgpc/steps_that_do_not_rise",
    paper="wenzel2019",
    question="Is a step halved to a millionth while the bound falls, and a run that no length helps not converged?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.wenzel2019 import fit_svgpc

    given = _binary("probit")
    rows: list[tuple[str, object, object]] = []
    healthy = fit_svgpc.natural_gradient_step
    for falls, ended in ((0, False), (3, False), (19, False), (60, True)):
        values = [0.0, *[-1.0] * falls, *np.arange(1.0, 100.0)]
        rates: list[float] = []

        def step(*given: Any, rates: list[float] = rates) -> Any:
            rates.append(float(given[-1]))
            return healthy(*given)

        for moved, steps in ((0.0, 1), (1.0, 1 if ended else 4)):  # as if it had arrived, and as if it never would
            with (
                mock.patch.object(fit_svgpc, "svgpc_bound", mock.Mock(side_effect=values)),
                mock.patch.object(fit_svgpc, "natural_gradient_step", step),
                mock.patch.object(fit_svgpc, "change", return_value=moved),
            ):
                end = fit_svgpc._ascend(given, 1e-300, 4, None)
            what = f"a bound that falls {falls} times, moves of {moved:g}: "
            rows += [
                (what + "converged", end.converged, moved == 0.0 and not ended),
                (what + "steps", (end.iterations, len(end.trace)), (steps, steps)),
            ]
        tried = [0.5**k for k in range(min(falls, 20) + 1)]
        rows.append((f"rates until a bound rises that falls {falls} times", rates[: len(tried)], tried))
    yield as_documented(rows, "reference", "statements")


@check(
    "identity/epgpc/whole_steps",
    paper="wenzel2019",
    question="Is the distance of damped sweeps measured by whole ones, and does a run whose labels cancel arrive?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.wenzel2019 import fit_epgpc
    from reference.wenzel2019.fit_svgpc import fit_svgpc

    given = _binary("probit")
    for damping in (1.0, 0.4):
        seen: list[float] = []
        states: list[Any] = []

        class Told(fit_epgpc.Arrival):
            def see(self, moved: float, seen: list[float] = seen) -> None:
                seen.append(moved)
                super().see(moved)

        def tell(state: Any, states: list[Any] = states) -> None:
            states.append(state.sites)

        with mock.patch.object(fit_epgpc, "Arrival", Told):
            fit_epgpc._propagate(given, 1e-10, 4, damping, None, tell)
        wanted = [1.0 / damping]  # from zero
        wanted += [
            max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(new, old, strict=True)) / damping
            for old, new in itertools.pairwise(states)
        ]
        gap = float(np.abs(np.array(seen) / np.array(wanted) - 1.0).max())
        yield Compared(gap, 1e-12, f"damping {damping:g}: four sweeps", "reference", "definition")

    # each input twice, with either label: the mean of q is zero, and its digits are those of rounding
    X = np.array([0.3, -1.1, 0.9, 1.7, -0.4])[:, None]
    both, y = np.vstack([X, X[[2, 0, 4, 1, 3]]]), np.repeat([1.0, -1.0], 5)
    end = fit_svgpc(both, y, 1.7, [0.8], 0.2, 1e-3, np.array([[-1.0], [0.1], [1.3]]))
    largest = float(np.abs(end.inducing_mean).max())
    yield flaws(not end.converged or largest > 1e-12, f"labels that cancel: converged {end.converged}", "reference",
                "runs")  # fmt: skip


@check(
    "identity/vi-robust/ascents_by_two_methods",
    paper="villacampa2017",
    question="Is each step of an ascent told, by either method, kept to its number, and a q that runs away no answer?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _ascent
    from reference.common._gaussians import Gaussians, Natural, natural_parameters

    rng = np.random.default_rng(41)
    roots = 0.6 * rng.standard_normal((2, 3, 3)) + np.eye(3)
    top = Gaussians(rng.standard_normal((2, 3)), roots @ roots.transpose(0, 2, 1))
    K = np.array([np.eye(3) + 0.3, 2.0 * np.eye(3) + 0.1])

    def objective(q: Any) -> Any:
        """Minus the divergence from a Gaussian: one whole natural-gradient step leads to its maximum, which is zero."""
        theta, there = natural_parameters(q), natural_parameters(top)
        value, by_mean, by_cov = 0.0, [], []
        for m, V, P, a in zip(*q, there.precision, top.mean, strict=True):
            value -= 0.5 * float(np.trace(P @ V) + (a - m) @ P @ (a - m) - 3.0 - np.linalg.slogdet(P @ V)[1])
            by_mean.append(P @ (a - m))
            by_cov.append(0.5 * (np.linalg.inv(V) - P))
        direction = Natural(there.precision - theta.precision, there.shift - theta.shift)
        return SimpleNamespace(value=value, direction=direction, by_mean=np.array(by_mean), by_cov=np.array(by_cov))

    rows: list[tuple[str, object, object]] = []
    for patience, most in ((40, 100), (0, 100), (0, 4), (1, 100)):
        told: list[tuple[float, float]] = []
        goal = _ascent.Goal(1e-5, most, patience)
        end = _ascent.ascend(objective, K, None, goal, lambda *state, told=told: told.append(state))
        by_search = sum(np.isnan(residual) for _, residual in told)
        what = f"{patience} steps, then L-BFGS, {most} at most: "
        rows += [
            (what + "told what is kept", [value for value, _ in told], end.values.tolist()),
            (what + "its number", len(told) <= most, True),
            (what + "steps of L-BFGS", by_search > 0, patience == 0),
            (what + "the end", (end.converged, end.optimum), (most > 4, "finite" if most > 4 else "not reached")),
            (what + "near the maximum", float(np.abs(end.q.mean - top.mean).max()) < 1e-4, most > 4),
        ]
        if most == 4:
            rows.append((what + "all of them made", len(told), 4))
    with mock.patch.object(_ascent, "maximise", return_value=SimpleNamespace(where=np.zeros(2 * (3 + 6)))) as search:
        _ascent.quasi_newton(objective, K, Gaussians(np.zeros((2, 3)), K), 17, lambda *_: None)
    rows.append(("iterations of L-BFGS", search.call_args.args[2].iterations, 17))
    # mixed steps that leave residuals of 1.0, then of these: L-BFGS is asked again where one is below half the last
    for left, searches in (([0.7], 1), ([0.4, 0.3], 2), ([0.4, 0.1, 0.06], 3), ([0.4, 1e-6], 2)):
        places = [(top, SimpleNamespace(direction=each)) for each in (1.0, *left)]
        with (
            mock.patch.object(_ascent, "mixed_steps", side_effect=places),
            mock.patch.object(_ascent, "step_length", lambda residual, _: (residual, 3.0 / max(residual, 0.1))),
            mock.patch.object(_ascent, "quasi_newton", return_value=top) as searched,
        ):
            end = _ascent.ascend(objective, K, top, _ascent.Goal(1e-5, 50), lambda *_: None)
        rows.append((f"residuals 1.0, {left}: searches, converged", (searched.call_count, end.converged),
                     (searches, left[-1] < 1e-5)))  # fmt: skip
    # at a place where nothing pulls any more, and far from any prior
    still = SimpleNamespace(value=0.0, direction=Natural(np.zeros((2, 3, 3)), np.zeros((2, 3))))
    for size, shift, gone in ((1.0, 0.0, ""), (2e6, 0.0, "none: the variance of class 0"),
                              (1.0, 3e6, "none: the mean of class 0")):  # fmt: skip
        start = Gaussians(np.full((2, 3), shift), size * K)
        end = _ascent.ascend(lambda q: still, K, start, _ascent.Goal(1e-5, 50), lambda *_: None)
        rows.append((f"variances times {size:g}, means of {shift:g}", (end.converged, end.optimum.startswith(gone)),
                     (gone == "", True)))  # fmt: skip
    yield as_documented(rows, "reference", "ascents")


@check(
    "identity/arpep/another_maximum",
    paper="villacampa2020",
    question="Is a second maximum told with both values and its change relative to the fit, and one that is none not?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._gaussians import Gaussians
    from reference.common._neighbours import Answer
    from reference.villacampa2020 import fit_energies

    K = np.array([np.diag([1.0, 2.0, 3.0]), np.diag([0.5, 1.0, 2.0])])
    fit: Any = SimpleNamespace(prior="the prior", posterior=Gaussians(np.ones((2, 3)), 1.5 * K), value=-7.25)
    data: Any = SimpleNamespace(X=None, form="printed")
    data._replace = lambda **changes: SimpleNamespace(**{**vars(data), **changes})
    asked: Any = SimpleNamespace(tolerance=1e-10)
    rows: list[tuple[str, object, object]] = []
    for size, converged in ((4.0, True), (0.25, True), (1.0 + 1e-12, True), (4.0, False)):
        starts: list[Any] = []
        forms: list[str] = []

        def search(objective: Any, K_ZZ: Any, start: Any, most: int, told: Any, starts: Any = starts) -> str:
            starts.append(start)
            return "the end of L-BFGS"

        def again(there: Any, prior: Any, start: Any, options: Any, size: float = size, converged: bool = converged,
                  forms: Any = forms) -> Any:  # fmt: skip
            forms.extend((there.form, prior, start, options is asked))
            return SimpleNamespace(converged=converged, value=-3.5, posterior=size)

        def answer(data: Any, there: Any, q: Any, units: Any) -> dict[str, Any]:
            return {"energy": Answer(np.array([2.0 * (q if isinstance(q, float) else 1.0)]))}

        with (
            mock.patch.object(fit_energies, "prior_matrices", return_value=SimpleNamespace(K_ZZ=K)),
            mock.patch.object(fit_energies, "quasi_newton", search),
            mock.patch.object(fit_energies, "_ascend", again),
            mock.patch.object(fit_energies, "_answer", answer),
        ):
            told = fit_energies._another_optimum(data, fit, asked)
        what = f"an answer {size:g} times as large, converged {converged}"
        if converged and abs(size - 1.0) > 1e-6:
            parts = ("-7.25 by natural", "-3.5 by L-BFGS", f"energy changes by {abs(size - 1.0):.1e}")
            rows += [(f"{what}: {part}", part in told, True) for part in parts]
        else:
            rows.append((what, told, ""))
        from_prior = all(np.array_equal(start.cov, K) and not start.mean.any() for start in starts)
        rows.append((f"{what}: from the prior", from_prior and len(starts) == 1, True))
        rows.append((f"{what}: then steps", forms, ["projected", "the prior", "the end of L-BFGS", True]))
    yield as_documented(rows, "reference", "statements")


# -- searches around runs -------------------------------------------------------------------------------------------


class _AskedError(Exception):
    """A search was asked for; nobody makes it."""


def _limits(method: str, kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options that SciPy's search would be given."""
    from reference.common import _search
    from validation.solve import solve

    found: dict[str, Any] = {}

    def taken(loss: Any, start: Array, *, options: dict[str, Any], bounds: Any, **_: Any) -> None:
        # how many coordinates may move by a factor of 1e4 in a logarithm, and how many anywhere
        away = np.abs(np.array(bounds, dtype=float) - start[:, None])
        held, free = np.abs(away / np.log(1e4) - 1.0).max(axis=1) < 1e-9, np.isinf(away).all(axis=1)
        found.update(options, held=int(held.sum()), free=int(free.sum()), all=len(start))
        raise _AskedError

    with mock.patch.object(_search, "minimize", taken), suppress(_AskedError):
        solve("reference", method, tiny(kind), **options)
    return found


# method, problem, what asks for a search, the option that says how long, iterations where it does not
_SEARCHES: tuple[tuple[str, str, dict[str, Any], str, int], ...] = (
    ("svgpc", "probit", {}, "", 200),
    ("epgpc", "probit", {}, "", 200),
    ("x-gpc", "logit", {}, "learning_iterations", 200),
    ("laplace-binary", "logit full", {}, "learning_iterations", 200),
    ("svi", "logit", {}, "max_iterations", 10_000),
    ("vi-jj-full", "logit", {}, "max_iterations", 10_000),
    ("ep", "threshold", {"optimizer": "lbfgs"}, "n_steps", 200),
    ("pep", "threshold errors", {"optimizer": "lbfgs"}, "n_steps", 200),
    ("gfitc", "threshold", {}, "n_steps", 200),
    ("arpep", "threshold errors", {"optimizer": "lbfgs", "tolerance": 0.1}, "n_steps", 200),
    ("bb-alpha", "threshold errors", {"tolerance": 0.1}, "n_steps", 200),
    ("vi-robust", "threshold errors", {"optimizer": "lbfgs"}, "n_steps", 200),
    ("label-regression", "threshold errors", {}, "n_steps", 200),
)


@check(
    "identity/ep/iterations_of_searches",
    paper="villacampa2017",
    question="Do searches of all methods end after the iterations that are asked for, and within a factor of 1e4?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common.options import options_of

    rows: list[tuple[str, object, object]] = []
    for method, kind, more, name, default in _SEARCHES:
        given = {"learn": ("variance",), **more}
        found = [_limits(method, kind, given)]
        if name:
            found.append(_limits(method, kind, given | {name: 7}))
        rows.append((method, [each["maxiter"] for each in found], [default, 7][: len(found)]))
        classes = 3 if kind.startswith("threshold") else 1
        # the mean and factor of q(u) of svi, and xi of vi-jj-full, are searched with the parameters
        free = {"svi": 4 + 10, "vi-jj-full": 8}.get(method, 0)
        shape = found[0]["held"], found[0]["free"], found[0]["all"]
        rows.append((f"{method}: logarithms, what is free, all", shape, (classes, free, classes + free)))
        if "Z" in options_of(method).declared()["learn"].choices and method not in ("svi", "vi-jj-full"):
            there = _limits(method, kind, {**more, "learn": ("variance", "Z")})
            rows.append((f"{method} with Z", (there["held"], there["free"]), (classes, 8 * classes)))
    yield as_documented(rows, "reference", "limits")


def _undoubted(module: Any) -> Any:
    """Nobody looks for another answer beside one that has converged."""
    if hasattr(module, "_certain"):
        return mock.patch.object(module, "_certain", lambda data, fit, options: fit)
    return mock.patch.object(module, "_doubt", return_value="")


@check(
    "identity/ep/searches_around",
    paper="villacampa2017",
    question="Does a search start each run where the last ended, claim no more than its runs, and tell what is asked?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from validation.solve import solve

    rows: list[tuple[str, object, object]] = []
    short = {"learn": ("variance",), "n_steps": 1, "optimizer": "lbfgs", "learn_tolerance": 1e9, "gradients": False}
    for method, kind, place, name in (
        ("ep", "threshold", "reference.common._training", "settled"),
        ("vi-robust", "threshold errors", "reference.villacampa2017.vi_fit", "_ascend"),
        ("arpep", "threshold errors", "reference.villacampa2020.fit_energies", "_ascend"),
    ):
        module = importlib.import_module(place)
        healthy = getattr(module, name)
        starts: list[Any] = []
        ends: list[Any] = []

        def noted(*given: Any, healthy: Any = healthy, starts: Any = starts, ends: Any = ends, **more: Any) -> Any:
            result = healthy(*given, **more)
            # a run of sweeps is given a state, an ascent its start as the third of its arguments
            starts.append(given[1].sites if hasattr(given[1], "sites") else given[2])
            ends.append(result.sites if hasattr(result, "sites") else result.posterior)
            return result

        with mock.patch.object(module, name, noted), _undoubted(module):
            first = solve("reference", method, tiny(kind), tolerance=1e-2, **short)
        follow = [new is old for old, new in zip(ends, starts[1:], strict=False)]
        rows += [
            (f"{method}: each of {len(starts)} runs from the end of the last", len(follow) > 1 and all(follow), True),
            (f"{method}: converged, iterations", (first.converged, first.iterations), (True, 1)),
        ]
        cut = solve("reference", method, tiny(kind), tolerance=1e-12, max_iterations=1, **short)
        rows.append((f"{method}, of runs of one iteration: converged", cut.converged, False))
        if method == "ep":
            told = solve("reference", method, tiny(kind), tolerance=1e-2, trace=True, **short)
            lengths = [0 if each.trace is None else len(each.trace) for each in (first, told)]
            rows.append((f"{method}: lengths of traces, not asked for and asked for", lengths, [0, 1]))
    for method, kind in (("svgpc", "probit"), ("epgpc", "probit"), ("svi", "logit")):
        cut = solve("reference", method, tiny(kind), tolerance=1e-12, max_iterations=2, learn=("variance",))
        rows.append((f"{method}, of runs of two iterations: converged", cut.converged, False))
    yield as_documented(rows, "reference", "statements")


@check(
    "identity/gfitc/where_searches_start",
    paper="villacampa2017",
    question="Does a search start from sites that have converged, and is what does not converge no answer?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._classes import Found, Prior
    from reference.common.errors import NotPositiveDefiniteError
    from reference.villacampa2017 import gfitc as place
    from reference.villacampa2020 import fit_energies

    asked = tiny("threshold")
    assert asked.Z is not None
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    starts: list[Any] = []
    script = iter([True, False, True, False])

    def run(X: Any, y: Any, there: Any, start: Any, options: Any) -> Any:
        starts.append(start)
        converged = next(script)
        sites: Any = f"end {len(starts)}"
        return place.GFITCFit(
            place.Gaussians(np.zeros((3, 4)), K_ZZ), np.zeros((8, 3)), np.ones((8, 3)), sites, np.zeros((8, 3)),
            -4.0, np.zeros(0), 0.1, converged, 0, 5, there, "projected",
        )  # fmt: skip

    K_ZZ, refused = np.tile(np.eye(4), (3, 1, 1)), []

    def search(evidence: Any, start: Any, *_: Any) -> Found:
        for _turn in range(3):
            try:
                evidence(start)
                refused.append(False)
            except NotPositiveDefiniteError:
                refused.append(True)
        return Found(start, np.array([-5.0]), 0.25, True, 2)

    with (
        mock.patch.object(place, "_expectation_propagation", run),
        mock.patch.object(place, "search", search),
        mock.patch.object(place, "gfitc_gradients", return_value={}),
    ):
        end = place.gfitc_baseline(asked.X, asked.y, prior, learn=("variance",))
    # an energy that has no maximum at the start is told, and not searched
    none: Any = SimpleNamespace(optimum="none: the variance of class 0 grows without bound", converged=False)
    with mock.patch.object(fit_energies, "_ascend", return_value=none), mock.patch.object(fit_energies, "search") as no:
        told = fit_energies.fit_energy(asked.X, asked.y, prior, "arpep", 0.05, learn=("variance",))
    rows: list[tuple[str, object, object]] = [
        ("an energy without a maximum", (told is none, no.call_count), (True, 0)),
        ("places without an answer", refused, [False, True, False]),
        ("starts after the first", starts[1:], ["end 1", "end 1", "end 3"]),
        ("the first start", [float(np.abs(part).max()) for part in starts[0]], [0.0] * 4),
        ("a last run that does not converge", end.converged, False),
        ("iterations, residual, trace", (end.iterations, end.residual, end.trace.tolist()), (2, 0.25, [-5.0])),
    ]
    yield as_documented(rows, "reference", "statements")


@check(
    "identity/laplace/iterations_of_loops",
    paper="riihimaki2013",
    question="Do loops of full models give up after the iterations that are asked for, or as many as documented?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common.options import options_of
    from reference.riihimaki2013 import fit, laplace, type2, variational
    from validation.solve import solve

    rows: list[tuple[str, object, object]] = []
    for method, module, name, place, default in (
        ("laplace", laplace, "laplace_posterior", 3, 100), ("vb-probit", variational, "vb_posterior", 3, 10_000),
    ):  # fmt: skip
        kind = "softmax full" if method == "laplace" else "multinomial-probit full"
        for most in (None, 7):
            with mock.patch.object(module, name, side_effect=_AskedError) as loop, suppress(_AskedError):
                solve("reference", method, tiny(kind), **({} if most is None else {"max_iterations": most}))
            rows.append((f"{method}, {most}", loop.call_args.args[place], most or default))
    for method in ("nested-ep", "qiep"):
        for most in (None, 7):
            # sweeps in which no site has a step: nothing arrives, nothing stands still
            with mock.patch.object(fit, "outer_schedule", lambda K, precision, location, *_: (precision, location, K)):
                options = options_of(method)(max_iterations=most) if most else options_of(method)()
                kind = fit.KINDS[method](np.array([0, 1, 2]), 3, options)
                end = fit.outer_iterations(kind, np.eye(9), "projected", options)
            rows.append((f"{method}, {most}", (end.iterations, end.converged, end.n_improper),
                         (most or 1000, False, 3 * (most or 1000))))  # fmt: skip
    made: list[int] = []
    full, options = tiny("multinomial-probit full"), options_of("vb-probit")

    def away(factors: Any, X: Any, prior: Any, *_: Any) -> Any:
        made.append(len(made))
        return prior._replace(variance=1.01 * prior.variance)

    prior = fit.Prior(full.variance, full.lengthscales, full.noise, full.jitter)
    one = SimpleNamespace(factors=None, log_evidence=-1.0)
    for most in (None, 7):
        made.clear()
        asked = options(learn=("variance",)) if most is None else options(learn=("variance",), max_iterations=most)
        with mock.patch.multiple(type2, vb_update_hyperparameters=away, fit_vb=lambda *_, **__: one):
            top = type2.vb_alternate(full.X, full.y, 3, prior, options=asked)
        told = len(made), top.iterations, top.converged, len(top.trace)
        rows.append((f"rounds of vb-probit, {most}", told, (most or 200, most or 200, False, most or 200)))
        rows.append((f"the last move of vb-probit, {most}", abs(top.residual / np.log(1.01) - 1.0) < 1e-9, True))
    yield as_documented(rows, "reference", "limits")


# -- mini-batches, what is kept, settings left open -----------------------------------------------------------------


@check(
    "identity/x-gpc-svi/plans",
    paper="wenzel2019",
    question="Are batches drawn as many and as large as documented where nobody says, and at most all data?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._batches import ascending_batches
    from reference.common.options import options_of
    from reference.izmailov2016 import fit as izmailov
    from reference.wenzel2019 import _stochastic

    rows: list[tuple[str, object, object]] = []

    def told(what: str, plan: Any, steps: int, size: int, n: int) -> None:
        lists = [np.asarray(batch) for batch in plan]
        good = all(
            len(batch) == size == len(np.unique(batch)) and 0 <= batch.min() <= batch.max() < n for batch in lists
        )
        rows.append((f"{what}: steps, all of {size} different rows of {n}", (len(lists), good), (steps, True)))

    for method in ("x-gpc-svi", "svgpc", "epgpc"):
        for n in (40, 250):
            for given, steps, size in (({}, 1000, 100), ({"batch_size": 7}, 1000, 7), ({"n_steps": 12}, 12, 100)):
                plan, first = _stochastic.plan_batches(n, options_of(method)(**given))
                told(f"{method}, {given}", plan, steps, min(size, n), n)
                rows.append((f"{method}, {given}: the first ten", [list(each) for each in first],
                             [list(each) for each in plan[:10]]))  # fmt: skip
        if method != "epgpc":
            lists = ([0, 3], [1], [2, 2])
            plan, first = _stochastic.plan_batches(4, options_of(method)(batches=lists, init_batches=([1, 2],)))
            rows.append((f"{method}, given", [[list(each) for each in part] for part in (plan, first)],
                         [[list(each) for each in lists], [[1, 2]]]))  # fmt: skip
    for given, steps, size in (({}, 250, 8), ({"batch_size": 3}, 250, 3), ({"n_steps": 5}, 5, 8),
                               ({"batch_size": 20, "n_steps": 5}, 5, 8)):  # fmt: skip
        options: dict[str, Any] = {"batches": None, "batch_size": None, "n_steps": None, "seed": 0, **given}
        plan = ascending_batches(8, **options)
        told(f"ep, {given}", plan, steps, size, 8)
        rows.append((f"ep, {given}: ascending", all((np.diff(each) > 0).all() for each in plan), True))
    taken: list[Any] = []

    def take(X: Any, y: Any, hyper: Any, plan: Any, *_: Any) -> None:
        taken.append(plan)
        raise _AskedError

    for n in (40, 250):
        hyper = one_latent("logit")[2]
        X = np.random.default_rng(4).standard_normal((n, 2))
        with mock.patch.object(izmailov, "svi_adadelta", take), suppress(_AskedError):
            izmailov.fit_svi_batches(X, np.resize([1.0, -1.0], n), hyper)
        told("svi", taken.pop(), 1000, min(100, n), n)
    for first_rate, accepted in ((0.6, True), (1.0, True), (1.001, False), (2.0, False)):
        rate = ("decay", 2.0 * first_rate, 3.0, 0.5)  # over the root of four
        try:
            _stochastic.planned(_binary("logit"), options_of("x-gpc-svi")(rate=rate))
            came = True
        except ValueError as error:
            came = not str(error).startswith("rate: ")
        rows.append((f"a rate that starts at {first_rate:g} is accepted", came, accepted))
    rules: tuple[tuple[dict[str, Any], float | None], ...] = (
        ({}, 1e-4), ({"batches": ([0, 1],)}, None), ({"stop": 0.3}, 0.3), ({"stop": None}, None),
        ({"batches": ([0, 1],), "stop": 0.3}, 0.3),
    )  # fmt: skip
    for rule, stop in rules:
        whole = _stochastic.planned(_binary("logit"), options_of("x-gpc-svi")(**rule))
        rows.append((f"the stopping rule of {rule}", whole.stop, stop))
    yield as_documented(rows, "reference", "plans")


@check(
    "identity/x-gpc-svi/untraced_runs",
    paper="wenzel2019",
    question="Is a run on mini-batches the same whether its values are kept or not, and are its steps counted?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from validation.solve import solve

    rows: list[tuple[str, object, object]] = []
    for method, kind in (("x-gpc-svi", "logit"), ("svgpc", "probit"), ("epgpc", "probit"), ("svi", "logit"),
                         ("ep", "threshold"), ("sep", "threshold"), ("pep", "threshold errors"),
                         ("vi-robust", "threshold errors"), ("arpep", "threshold errors")):  # fmt: skip
        ends = []
        for trace in (False, True):
            seen: list[int] = []
            end = solve(
                "reference", method, tiny(kind), batches=((0, 3, 5), (1, 6)), trace=trace, gradients=False,
                callback=lambda state, seen=seen: seen.append(state.iteration),
            )  # fmt: skip
            length = 0 if end.trace is None else len(end.trace)
            ends.append(end)
            rows.append((f"{method}, values kept {trace}: iterations, values, what is told",
                         (end.iterations, length, seen), (2, 2 * trace, [1, 2])))  # fmt: skip
        same = all(
            np.array_equal(getattr(ends[0], name), getattr(ends[1], name))
            for name in ("inducing_mean", "inducing_cov", "latent_mean", "residual")
        )
        rows.append((f"{method}: the same answer", same, True))
    yield as_documented(rows, "reference", "runs")


@check(
    "identity/ep/what_is_kept",
    paper="villacampa2017",
    question="Is log Z kept of the sweeps that have one, and is each told with its number and all improper cavities?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._sweeps import Step
    from reference.common._training import Record

    told: list[tuple[int, float, int]] = []
    values = iter([-5.0, None, -4.0])
    method = SimpleNamespace(posterior=lambda sites, K: (sites, K), traced=lambda sites, q, K: next(values))
    for trace in (True, False):
        options = SimpleNamespace(trace=trace, callback=lambda seen: told.append(tuple(seen)))
        record = Record(SimpleNamespace(method=method, options=options))  # type: ignore[arg-type]
        for count, improper in enumerate((2, 0, 3)):
            record.tell(Step("sites", 0.5**count, improper), "K")
        kept = [-5.0, -4.0] if trace else []
        yield flaws(record.trace != kept, f"trace {trace}: {record.trace}", "reference", "values")
    wanted = [(1, 1.0, 2), (2, 0.5, 2), (3, 0.25, 5)] * 2
    yield flaws(told != wanted, f"told {told[:3]}", "reference", "statements")


def _settled_by_sentences(asked: dict[str, Any], tied: bool, inner: tuple[str, ...]) -> dict[str, Any] | str:
    """Optimiser, scheme and rate by the sentences of `with_defaults`, or the option that is refused."""
    parts = "batches" in asked or "batch_size" in asked
    scheme, optimizer = asked.get("scheme"), asked.get("optimizer")
    if "batches" in asked and "batch_size" in asked:
        return "batch_size"
    if optimizer is None:
        optimizer = "lbfgs" if not (tied or parts or "n_steps" in asked or scheme in inner) else "adam"
    if optimizer == "lbfgs" and (tied or parts):
        return "optimizer"
    if optimizer == "lbfgs" and scheme not in (None, "outer"):
        return "scheme"
    if parts and scheme == "outer":
        return "scheme"
    if "n_steps" in asked and not parts and not asked["learn"]:
        return "n_steps"
    scheme = scheme or ("outer" if optimizer == "lbfgs" else inner[0])
    rate = asked.get("rate") or {"adaptive": 0.01}.get(optimizer, 0.001)
    return {"optimizer": optimizer, "scheme": scheme, "rate": rate}


@check(
    "identity/sep/settings_by_sentences",
    paper="villacampa2017",
    question="Are optimiser, scheme and rate that a run of `reference` leaves open those of its documentation?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.common._training import with_defaults
    from reference.common.options import options_of

    asked = tiny("threshold")
    assert asked.Z is not None
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    parts: tuple[dict[str, Any], ...] = (
        {}, {"batches": ([0, 1], [2])}, {"batch_size": 3}, {"batches": ([0, 1], [2]), "batch_size": 3},
    )  # fmt: skip
    rows: list[tuple[str, object, object]] = []
    for method, inner in (("ep", ("inner-approximate", "inner-exact")), ("sep", ("inner-approximate", "inner-exact")),
                          ("pep", ("inner",))):  # fmt: skip
        tied = method == "sep"
        optimizers = (None, "adaptive", "adam") if tied else (None, "lbfgs", "adaptive", "adam")
        for part, learn, optimizer, scheme, steps, rate in itertools.product(
            parts, ((), ("noise", "variance")), optimizers, (None, "outer", *inner), (None, 2), (None, 0.3)
        ):
            given = {"learn": learn, "optimizer": optimizer, "scheme": scheme, "n_steps": steps, "rate": rate}
            given = {name: value for name, value in given.items() if value is not None} | part
            try:
                end = with_defaults(options_of(method)(**given), prior, inner, tied)
                found: Any = {name: getattr(end, name) for name in ("optimizer", "scheme", "rate")}
                if end.learn != tuple(name for name in ("variance", "noise") if name in learn):
                    found = "learn"
            except ValueError as error:
                found = str(error).partition(":")[0]
            rows.append((f"{method} {given}", found, _settled_by_sentences(given, tied, inner)))
    wrong = [f"{what}: {came}, expected {wanted}" for what, came, wanted in rows if came != wanted]
    yield flaws(len(wrong), "; ".join(wrong[:2]) or f"{len(rows)} combinations, each by the sentences", "reference",
                "settings")  # fmt: skip


# those of the last three are told once, as one run
_TOLD: tuple[tuple[str, str], ...] = (
    ("x-gpc", "logit"), ("epgpc", "probit"), ("svi", "logit"), ("vi-jj", "logit"), ("vi-jj-full", "logit"),
    ("vi-jj-hybrid", "logit"), ("vi-taylor", "logit"), ("laplace-binary", "logit full"), ("ep", "threshold"),
    ("sep", "threshold"), ("pep", "threshold errors"), ("gfitc", "threshold"), ("vi-robust", "threshold errors"),
    ("arpep", "threshold errors"), ("nested-ep", "multinomial-probit full"),
    ("qiep", "multinomial-probit full"), ("laplace-sparse", "softmax"), ("laplace", "softmax full"),
    ("vb-probit", "multinomial-probit full"),
)  # fmt: skip


@check(
    "identity/x-gpc/told_of_each_iteration",
    paper="wenzel2019",
    question="Is a listener told of every iteration of a run, in order, and of none that only looks for doubts?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _neighbours
    from validation.solve import solve

    rows: list[tuple[str, object, object]] = []
    for place, (method, kind) in enumerate(_TOLD):
        told: list[int] = []

        def tell(state: Any, told: list[int] = told) -> None:
            told.append(int(getattr(state, "iteration", state)))

        with mock.patch.object(_neighbours, "_SURE", 0.0):  # neighbours are asked whatever the condition is
            # energies and bounds are ascended again from beside their maximum, which takes no step to a loose tolerance
            close = 1e-6 if method in ("arpep", "vi-robust") else 1e-3
            end = solve("reference", method, tiny(kind), tolerance=close, callback=tell)
        count = int(end.iterations or 0)
        rows.append((f"{method} of {count} iterations", told,
                     list(range(1, count + 1)) if place < len(_TOLD) - 3 else [count]))  # fmt: skip
    yield as_documented(rows, "reference", "listeners")
