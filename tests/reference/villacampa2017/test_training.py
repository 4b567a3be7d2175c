"""Gradients away from fixed points by differences, schedules step by step, and what SEP's formula is not."""

import numpy as np
import pytest

from reference.common._steps import Rule
from reference.common._training import State, Task, begin
from reference.common.errors import NotPositiveDefiniteError
from reference.common.options import options_of
from reference.common.priors import Prior
from reference.villacampa2017.cavity import Cavity, cavity
from reference.villacampa2017.datum import DatumEP
from reference.villacampa2017.errata import sep_log_evidence_gradient_as_printed
from reference.villacampa2017.factors import (
    ep_refine_factors,
    moment_mismatch,
    posterior_of,
    probit_ratio,
    sequential_ep_sweep,
    update_c1,
    update_c2_label,
    update_c2_other,
)
from reference.villacampa2017.fit import fit_ep, fit_sep, minibatch_training_step, to_fixed_point, training_schedule
from reference.villacampa2017.gradients import (
    direct_dlogz_dhyper,
    distributions_of,
    ep_log_evidence_gradient,
    hyper_directions,
    minibatch_log_evidence_gradient,
    prior_term_gradient,
    prior_term_matrix,
)
from reference.villacampa2017.hyper import prior_matrices
from reference.villacampa2017.methods import EP, SEP
from reference.villacampa2017.posterior import Coefficients
from validation.ledger.numbers import assert_recorded, told_apart

FIELDS = ("variance", "lengthscales", "noise", "Z")
ENTRIES = [("variance", 0), ("variance", 1), ("lengthscales", 3), ("noise", 1), ("Z", 4), ("Z", 13)]


@pytest.fixture
def prior(model):
    s = model
    return Prior(s.variance, s.lengthscales, s.noise, s.jitter, s.Z)


def moved(prior, field, entry, step):
    fields = getattr(prior, field).copy()
    fields.flat[entry] += step
    return prior._replace(**{field: fields})


def difference(function, prior, field, entry, step=1e-4):
    """Central difference; errs by step² times a third derivative of size one."""
    return (function(moved(prior, field, entry, step)) - function(moved(prior, field, entry, -step))) / (2 * step)


def swept(method, s, prior, sweeps, start=None):
    """The state after sweeps from factors of one, or from those of another state."""
    task = Task(method, s.X, options_of("ep")(tolerance=1e-12, max_iterations=sweeps), False)
    state = begin(task, prior)
    if start is not None:
        state = state._replace(sites=start.sites, posterior=method.posterior(start.sites, state.K))
    return to_fixed_point(task, state)


METHODS = {
    "pairwise": lambda s: EP(s.y, s.C, 0.9, "parallel"),
    "datum": lambda s: DatumEP(s.y, s.C, 0.9, "parallel"),
    "all": lambda s: SEP(s.y, s.C, 0.9, "all"),
    "per-class": lambda s: SEP(s.y, s.C, 0.9, "per-class"),
}


@pytest.mark.parametrize("kind", METHODS)
def test_the_exact_gradient_is_that_of_log_z_with_the_factors_held(model, prior, kind):
    s, method = model, METHODS[kind](model)
    run = swept(method, s, prior, 2)  # far from convergence
    assert not run.converged
    exact = method.gradients(s.X, run, exact=True)
    rule = method.gradients(s.X, run)

    def held(there):
        K = prior_matrices(s.X, there)
        return method.value(run.sites, method.posterior(run.sites, K), K).log_evidence

    wanted = np.array([difference(held, prior, *at) for at in ENTRIES])
    got, other = (np.array([value[field].flat[entry] for field, entry in ENTRIES]) for value in (exact, rule))
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-8)
    assert np.max(np.abs(other - wanted)) > 1e-4  # (10) needs convergence
    # terms of the data scale with a mini-batch, the prior's do not: the mean over all single data is the whole
    single = [method.gradients(s.X, run, np.array([i]), exact=True) for i in range(s.n)]
    for field in FIELDS:
        mean = np.mean([value[field] for value in single], axis=0)
        np.testing.assert_allclose(mean, exact[field], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["pairwise", "datum"])
def test_at_a_fixed_point_of_ep_both_gradients_are_that_of_the_evidence(model, prior, kind):
    s, method = model, METHODS[kind](model)
    run = swept(method, s, prior, 500)
    assert run.converged
    results = [method.gradients(s.X, run, exact=exact) for exact in (False, True)]
    for field in FIELDS:
        np.testing.assert_allclose(results[0][field], results[1][field], rtol=0, atol=1e-9)

    def anew(there):
        end = swept(method, s, there, 500, run)
        return method.value(end.sites, end.posterior, end.K).log_evidence

    for field, entry in ENTRIES[::2]:
        wanted = difference(anew, prior, field, entry)
        assert results[0][field].flat[entry] == pytest.approx(wanted, rel=1e-6, abs=1e-8)


def test_all_derivatives_at_once_are_those_of_the_printed_formulas_one_by_one(model, prior):
    s = model
    method = EP(s.y, s.C, 0.9, "parallel")
    sites = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)  # in no special state
    K = prior_matrices(s.X, prior)
    q = method.posterior(sites, K)
    batch = np.array([0, 2, 3])
    got = method.gradients(s.X, State(sites, q, prior, K), batch)
    distributions = distributions_of(sites, q, s.y, s.k_xx, s.K_XZ, s.K_ZZ)
    for field, directions in hyper_directions(s.X, s.Z, s.variance, s.lengthscales).items():
        wanted = [
            minibatch_log_evidence_gradient(distributions, s.y, s.K_ZZ, direction, batch) for direction in directions
        ]
        np.testing.assert_allclose(got[field].ravel(), wanted, rtol=1e-8, atol=1e-10)


def test_refinement_along_projections_is_that_with_matrices(model):
    """Appendices C to E as they stand, one factor at a time."""
    s = model
    sites = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)
    q = posterior_of(sites, s.y, s.upsilon, s.K_ZZ)
    got = ep_refine_factors(sites, q, s.y, s.k_xx, s.K_XZ, s.K_ZZ).coefficients
    for i, label in enumerate(s.y):
        for k in set(range(s.C)) - {label}:
            own, other = s.upsilon[label, i], s.upsilon[k, i]
            left = cavity(q.mean[label], q.cov[label], own, s.c1_label[i, k], s.c2_label[i, k])
            right = cavity(q.mean[k], q.cov[k], other, s.c1_other[i, k], s.c2_other[i, k])
            b = s.cond_var[label, i] + own @ left.cov @ own, s.cond_var[k, i] + other @ right.cov @ other
            ratio = probit_ratio(own @ left.mean, other @ right.mean, *b)
            c1, d1 = update_c1(*ratio, sum(b), own, left.cov), update_c1(*ratio, sum(b), other, right.cov)
            wanted = (
                c1,
                update_c2_label(ratio.beta, sum(b), c1, own, *left),
                d1,
                update_c2_other(ratio.beta, sum(b), d1, other, *right),
            )
            np.testing.assert_allclose([part[i, k] for part in got], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.verifies("villacampa2017", "10", route="central differences of SEP's log Z_q", printed=True)
def test_the_gradient_that_sep_takes_over_is_not_that_of_its_log_z(model, prior):
    s = model
    method = SEP(s.y, s.C, 0.9, "all")
    run = swept(method, s, prior, 500)
    assert run.converged
    printed = sep_log_evidence_gradient_as_printed(run.sites, s.X, s.y, prior)
    exact = method.gradients(s.X, run, exact=True)

    def value(there, again):
        K = prior_matrices(s.X, there)
        end = swept(method, s, there, 500, run).sites if again else run.sites
        return method.value(end, method.posterior(end, K), K).log_evidence

    wanted = {("variance", 0): (-0.0582, -0.0161, 0.0040), ("noise", 1): (-0.0049, -0.0049, 0.0136)}
    for (field, entry), (rule, held, anew) in wanted.items():
        assert printed[field].flat[entry] == pytest.approx(rule, rel=0, abs=5.1e-5)  # digits that are given
        by_holding = difference(lambda there: value(there, False), prior, field, entry)
        assert by_holding == pytest.approx(held, rel=0, abs=5.1e-5)
        assert exact[field].flat[entry] == pytest.approx(by_holding, rel=1e-6, abs=1e-8)
        assert difference(lambda there: value(there, True), prior, field, entry) == pytest.approx(
            anew, rel=0, abs=5.1e-5
        )
    told_apart("villacampa2017", "10", printed["variance"].flat[0], exact["variance"].flat[0])
    assert_recorded("villacampa2017", "10", exact["variance"].flat[0], printed["variance"].flat[0])
    # of EP the same formula is the derivative
    pairwise = EP(s.y, s.C, 0.9, "parallel")
    of_ep = swept(pairwise, s, prior, 500)

    def anew_of_ep(there):
        end = swept(pairwise, s, there, 500, of_ep)
        return pairwise.value(end.sites, end.posterior, end.K).log_evidence

    directions = hyper_directions(s.X, s.Z, s.variance, s.lengthscales)
    distributions = distributions_of(of_ep.sites, of_ep.posterior, s.y, s.k_xx, s.K_XZ, s.K_ZZ)
    for field, entry in wanted:
        got = ep_log_evidence_gradient(distributions, s.y, s.K_ZZ, directions[field][entry])
        assert got == pytest.approx(difference(anew_of_ep, prior, field, entry), rel=1e-6, abs=1e-8)
    # what is printed, from its parts: (63) and the direct dependence of every log Z under the cavities of SEP
    cavities, q = method.cavities(run.sites, run.K), run.posterior
    without = [Cavity(*each) for each in zip(*cavities, strict=True)]
    for field, entry in ENTRIES:
        direction = directions[field][entry]
        total = sum(
            prior_term_gradient(prior_term_matrix(q.mean[k], q.cov[k], s.K_ZZ[k]), direction.K_ZZ[k])
            for k in range(s.C)
        )
        for i, label in enumerate(s.y):
            for k in set(range(s.C)) - {label}:
                pair = (label, k)
                d_upsilon = [
                    np.linalg.solve(s.K_ZZ[j], direction.K_XZ[j, i] - direction.K_ZZ[j] @ s.upsilon[j, i]) for j in pair
                ]
                d_cond_var = [
                    direction.k_xx[j, i]
                    - 2 * s.upsilon[j, i] @ direction.K_XZ[j, i]
                    + s.upsilon[j, i] @ direction.K_ZZ[j] @ s.upsilon[j, i]
                    for j in pair
                ]
                at = [s.upsilon[j, i] for j in pair], [s.cond_var[j, i] for j in pair]
                total += direct_dlogz_dhyper([without[j] for j in pair], *at, d_upsilon, d_cond_var)
        assert printed[field].flat[entry] == pytest.approx(total, rel=1e-7, abs=1e-10)


@pytest.mark.verifies("villacampa2017", "u13-inner-outer-schemes", route="sentences of section 2.3")
def test_the_three_schemes():
    # (sweeps until convergence, exact gradient)
    wanted = {"outer": (True, False), "inner-approximate": (False, False), "inner-exact": (False, True)}
    for scheme, move in wanted.items():
        assert training_schedule(scheme, 3) == (move,) * 3
    with pytest.raises(ValueError, match="scheme"):
        training_schedule("inner", 3)


@pytest.mark.verifies("villacampa2017", "u17-minibatch-schedule", route="its sentences, step by step from definitions")
def test_a_training_step_refines_the_batch_and_then_moves_the_prior(model, prior):
    s = model
    method = EP(s.y, s.C, 0.6, "parallel")
    sites = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)
    K = prior_matrices(s.X, prior)
    state = State(sites, method.posterior(sites, K), prior, K, Rule.start(6, 0.01))
    task = Task(method, s.X, options_of("ep")(learn=("variance", "noise")), False)
    batch = np.array([1, 4])
    got = minibatch_training_step(task, state, batch, False)
    target = ep_refine_factors(sites, posterior_of(sites, s.y, s.upsilon, s.K_ZZ), s.y, s.k_xx, s.K_XZ, s.K_ZZ)
    new = Coefficients(*(part.copy() for part in sites))
    for part, wanted in zip(new, target.coefficients, strict=True):
        part[batch] = 0.4 * part[batch] + 0.6 * wanted[batch]
    for part, wanted in zip(got.sites, new, strict=True):
        np.testing.assert_allclose(part, wanted, rtol=1e-9, atol=1e-12)
    directions = hyper_directions(s.X, s.Z, s.variance, s.lengthscales)
    # q is rebuilt from the new factors before the gradient is taken
    rebuilt = posterior_of(new, s.y, s.upsilon, s.K_ZZ)
    data = distributions_of(new, rebuilt, s.y, s.k_xx, s.K_XZ, s.K_ZZ), s.y, s.K_ZZ
    for field in ("variance", "noise"):
        derivatives = [minibatch_log_evidence_gradient(*data, direction, batch) for direction in directions[field]]
        # the first step of Adam has the size of its rate, in logarithms
        wanted = getattr(prior, field) * np.exp(0.01 * np.sign(derivatives))
        np.testing.assert_allclose(getattr(got.prior, field), wanted, rtol=1e-6, atol=0)
        begun = 0.1 * np.array(derivatives) * getattr(prior, field)
        where = slice(0, 3) if field == "variance" else slice(3, 6)
        np.testing.assert_allclose(got.rule.adam.first[where], begun, rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(got.prior.lengthscales, prior.lengthscales)
    after = prior_matrices(s.X, got.prior)
    np.testing.assert_allclose(got.K.cond_var, after.cond_var, rtol=1e-12, atol=0)
    q = posterior_of(new, s.y, after.upsilon, after.K_ZZ)
    np.testing.assert_allclose(got.posterior.mean, q.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(got.posterior.cov, q.cov, rtol=1e-8, atol=1e-10)


def test_adaptive_steps_are_those_of_the_rule(model, prior):
    s = model
    fit = fit_ep(
        s.X, s.y, prior, learn=("noise", "variance"), optimizer="adaptive", n_steps=3, rate=0.05, scheme="inner-exact"
    )
    method = EP(s.y, s.C, 0.5, "parallel")
    there, sites, rates, before = prior, None, np.full(6, 0.05), None
    for _ in range(3):
        K = prior_matrices(s.X, there)
        sites = method.start(K) if sites is None else sites
        sites = method.sweep(sites, method.posterior(sites, K), K, np.arange(s.n)).sites
        gradients = method.gradients(s.X, State(sites, method.posterior(sites, K), there, K), exact=True)
        derivative = np.concatenate([gradients["variance"] * there.variance, gradients["noise"] * there.noise])
        if before is not None:
            rates = rates * np.where(np.sign(derivative) == np.sign(before), 1.02, 0.5)
        before, step = derivative, rates * derivative
        there = there._replace(variance=there.variance * np.exp(step[:3]), noise=there.noise * np.exp(step[3:]))
    np.testing.assert_allclose(fit.prior.variance, there.variance, rtol=1e-10, atol=0)
    np.testing.assert_allclose(fit.prior.noise, there.noise, rtol=1e-10, atol=0)
    assert (fit.iterations, fit.converged) == (3, False)


def test_outer_steps_meet_a_fixed_point_each_time(model, prior):
    s = model
    options = {"learn": "lengthscales", "optimizer": "adam", "rate": 0.05, "scheme": "outer", "trace": True}
    fit = fit_ep(s.X, s.y, prior, n_steps=3, **options)
    there, traced = prior, []
    for steps in (1, 2):
        traced.append(fit_ep(s.X, s.y, there).log_evidence)
        there = fit_ep(s.X, s.y, prior, n_steps=steps, **options).prior
    traced.append(fit_ep(s.X, s.y, there).log_evidence)
    np.testing.assert_allclose(fit.trace, traced, rtol=0, atol=1e-8)
    assert np.all(np.diff(fit.trace) > 0.0)


@pytest.mark.slow
def test_the_search_ends_where_the_evidence_has_zero_gradient(model, prior):
    s = model
    for shared in (False, True):
        start = Prior(*(np.broadcast_to(part[:1], part.shape).copy() for part in prior)) if shared else prior
        fit = fit_ep(s.X, s.y, start, damping=0.9, shared=shared, learn=("noise", "lengthscales"))
        assert fit.converged
        assert fit.log_evidence > fit_ep(s.X, s.y, start).log_evidence
        for field in ("noise", "lengthscales"):
            derivative, value = fit.gradients[field], getattr(fit.prior, field)
            derivative = np.sum(derivative, axis=0) * value[0] if shared else derivative * value
            at_edge = np.abs(np.abs(np.log(value / getattr(start, field))) - np.log(1e4)) < 1e-6
            assert np.max(np.abs(np.where(at_edge[0] if shared else at_edge, 0.0, derivative))) < 1e-4
            if shared:
                assert np.all(value == value[0])


@pytest.mark.parametrize("count", ["all", "per-class"])
def test_sep_learns_from_drawn_mini_batches(model, prior, count):
    s = model
    options = {"count": count, "learn": ("variance", "Z"), "rate": 0.02, "trace": True}
    told = []
    drawn = fit_sep(s.X, s.y, prior, batch_size=2, n_steps=6, seed=3, callback=told.append, **options)
    rng = np.random.default_rng(3)
    listed = [rng.choice(s.n, 2, replace=False) for _ in range(6)]
    again = fit_sep(s.X, s.y, prior, batches=listed, **options)
    np.testing.assert_array_equal(again.prior.Z, drawn.prior.Z)
    np.testing.assert_array_equal(again.trace, drawn.trace)
    assert len(drawn.trace) == 6
    assert [state.iteration for state in told] == [1, 2, 3, 4, 5, 6]
    assert np.max(np.abs(np.log(drawn.prior.variance / prior.variance))) > 0.01
    # the trace is of all data, before the prior moves: the first of it has the prior of the start
    first = fit_sep(s.X, s.y, prior, count=count, batches=listed[:1])
    assert drawn.trace[0] == pytest.approx(first.log_evidence, rel=0, abs=1e-10)


def test_an_improper_cavity_leaves_no_evidence_and_no_gradient(model, prior):
    s = model
    K = prior_matrices(s.X, prior)
    for kind in ("pairwise", "datum"):
        method = METHODS[kind](s)
        sites = method.start(K)
        q = method.posterior(sites, K)
        wide = type(sites)(*(part.copy() for part in sites))
        wide[0][0, 1] = 1e6  # not in q: removing it leaves nothing
        step = method.sweep(wide, q, K, np.arange(s.n))
        assert step.n_improper == 1
        assert step.sites[0][0, 1] == 1e6
        assert method.value(wide, q, K).log_evidence is None
        for exact in (False, True):
            assert method.gradients(s.X, State(wide, q, prior, K), exact=exact) is None
    in_turn = EP(s.y, s.C, 0.5, "sequential")
    zero = in_turn.start(K)
    wide = zero._replace(c1_label=np.where(s.c1_label > 0, 1e6, 0.0))
    assert in_turn.sweep(wide, q, K, np.array([0])).n_improper >= 1
    with pytest.raises(NotPositiveDefiniteError, match="K_ZZ"):
        in_turn.gradients(s.X, State(zero, q, prior, K._replace(K_ZZ=0.0 * K.K_ZZ)))


def test_options_that_do_not_go_together_are_refused_by_name(model, prior):
    s = model
    for name, given in (
        ("scheme", {"learn": "Z", "scheme": "inner"}),
        ("scheme", {"learn": "Z", "scheme": "outer", "batch_size": 2}),
        ("scheme", {"learn": "Z", "scheme": "inner-exact", "optimizer": "lbfgs"}),
        ("optimizer", {"learn": "Z", "optimizer": "newton"}),
        ("optimizer", {"learn": "Z", "optimizer": "lbfgs", "batch_size": 2}),
        ("gradient_rule", {"gradient_rule": "11"}),
        ("rate", {"learn": "Z", "optimizer": "adam", "rate": 0.0}),
        ("learn", {"learn": ("jitter",)}),
        ("n_steps", {"n_steps": 3}),
        ("n_steps", {"batches": [[0]], "n_steps": 2}),
        ("batch_size", {"batch_size": 0}),
        ("batch_size", {"batches": [[0]], "batch_size": 1}),
        ("learn_tolerance", {"learn_tolerance": 0.0}),
    ):
        with pytest.raises(ValueError, match=name):
            fit_ep(s.X, s.y, prior, **given)
    with pytest.raises(ValueError, match="noise"):
        fit_ep(s.X, s.y, prior._replace(noise=np.zeros(3)), learn="noise")
    with pytest.raises(ValueError, match="optimizer"):
        fit_sep(s.X, s.y, prior, learn="Z", optimizer="lbfgs")
    with pytest.raises(ValueError, match="factors"):
        fit_ep(s.X, s.y, prior, factors="triples")
    with pytest.raises(ValueError, match="schedule"):
        fit_ep(s.X, s.y, prior, schedule="random")


def test_the_mismatch_of_moments_is_the_standardised_change_of_the_factors(model):
    s = model
    sites = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)
    q = posterior_of(sites, s.y, s.upsilon, s.K_ZZ)
    got = ep_refine_factors(sites, q, s.y, s.k_xx, s.K_XZ, s.K_ZZ)
    d1_label, d2_label, d1, d2 = (new - old for new, old in zip(got.coefficients, sites, strict=True))
    p, v = np.einsum("kim,km->ik", s.upsilon, q.mean), np.einsum("kim,kmp,kip->ik", s.upsilon, q.cov, s.upsilon)
    p_y, v_y = (part[np.arange(s.n), s.y][:, None] for part in (p, v))
    wanted = [np.abs(d1_label) * v_y, np.abs(d2_label - d1_label * p_y) * np.sqrt(v_y)]
    wanted += [np.abs(d1) * v, np.abs(d2 - d1 * p) * np.sqrt(v)]
    assert got.mismatch == pytest.approx(np.max(wanted), rel=1e-10, abs=0)
    assert moment_mismatch(q.mean[0], q.cov[0], Cavity(q.mean[0], q.cov[0]), np.zeros(s.m)) == 0.0


def test_factors_in_turn_see_those_before_and_leave_their_argument_alone(model):
    s = model
    sites = Coefficients(s.c1_label, s.c2_label, s.c1_other, s.c2_other)
    at, q = sites, posterior_of(sites, s.y, s.upsilon, s.K_ZZ)
    given = s.y, s.k_xx, s.K_XZ, s.K_ZZ
    got = sequential_ep_sweep(sites, q, *given, 0.7, np.array([1, 3]))
    for i in (1, 3):
        for k in set(range(s.C)) - {s.y[i]}:
            wanted = ep_refine_factors(at, q, *given).coefficients
            at = Coefficients(*(part.copy() for part in at))
            for part, after in zip(at, wanted, strict=True):
                part[i, k] += 0.7 * (after[i, k] - part[i, k])
            q = posterior_of(at, s.y, s.upsilon, s.K_ZZ)
    for a, b in zip(got.coefficients, at, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(got.posterior.mean, q.mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(sites.c1_label[1], s.c1_label[1])


def test_sweeps_that_leave_no_distribution_end_with_the_reason(model, prior):
    s = model
    method = SEP(s.y, s.C, 1.0, "all")
    task = Task(method, s.X, options_of("sep")(), False)
    state = begin(task, prior)
    negative = [each._replace(precision=-10.0 * np.eye(s.m) / s.n) for each in state.sites]
    got = to_fixed_point(task, state._replace(sites=negative))
    assert (got.converged, got.residual) == (False, np.inf)
    assert got.reason.startswith("a sweep leaves no distribution: ")
