"""The numbers by which the ledger calls a display of villacampa2017 misprinted or a slip, from definitions alone."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import multivariate_normal, norm

from reference.villacampa2017.complexity import complexity_table
from reference.villacampa2017.errata import (
    approximate_inducing_posterior_as_printed,
    ep_log_evidence_as_printed,
    ep_log_evidence_gradient_as_printed,
    factor_linear_from_moments_as_printed,
    factor_log_scale_as_printed,
    sep_tied_factor_as_printed,
)
from reference.villacampa2017.evidence import ep_log_evidence, factor_log_scale, gaussian_log_normaliser
from reference.villacampa2017.factors import (
    factor_linear_from_moments,
    posterior_of,
)
from reference.villacampa2017.gradients import (
    distributions_of,
    ep_log_evidence_gradient,
    hyper_directions,
    minibatch_log_evidence_gradient,
)
from reference.villacampa2017.model import approximate_inducing_posterior
from reference.villacampa2017.posterior import Coefficients, Natural
from reference.villacampa2017.sep import sep_tied_factor
from validation.ledger.numbers import assert_recorded, told_apart

PAPER = "villacampa2017"
CLOSE = {"rtol": 1e-8, "atol": 1e-10}  # quadrature over a line asks for 1.5e-8; inverses of 3 x 3 matrices
AT, Y, K = 1, 1, 2  # a datum, its label, and the class that it is compared with
ORDER = [3, 0, 2, 1, 4]  # of the data: as they stand, the label of datum k is k for every class k


class Pair:
    """One factor of the model with its cavities; everything along the projections, by one-dimensional sums."""

    def __init__(self, model):
        s = self.model = model
        self.cavities = [(s.mean, s.cov, s.upsilon[Y, AT]), (s.mean_other, s.cov_other, s.upsilon[K, AT])]
        self.a, self.v = (
            [f(*each) for each in self.cavities] for f in (lambda m, V, u: u @ m, lambda m, V, u: u @ V @ u)
        )
        self.s = s.cond_var[Y, AT], s.cond_var[K, AT]
        self.largest = [int(np.argmax(np.abs(u))) for _, _, u in self.cavities]

    def log_z(self, shift=0.0, grow=0.0):
        """log Z with another entry of m of class k, or of V of the label's class, where the projection is largest."""
        (at_u, at_w), (u, w) = self.largest, (self.cavities[0][2], self.cavities[1][2])
        gap = self.a[0] - self.a[1] - shift * w[at_w]
        return float(log_ndtr(gap / np.sqrt(sum(self.s) + sum(self.v) + grow * u[at_u] ** 2)))

    def tilted(self, which):
        """Z, mean and variance of the projection of one class under cavity times exact factor, by quadrature."""
        a, v, other = self.a[which], self.v[which], 1 - which
        sign, rest = (1.0, -1.0)[which], sum(self.s) + self.v[other]

        def weight(w, power=0):
            return w**power * norm.pdf(w, a, np.sqrt(v)) * norm.cdf(sign * (w - self.a[other]) / np.sqrt(rest))

        ends = a - 12 * np.sqrt(v), a + 12 * np.sqrt(v)
        z, first, second = (quad(weight, *ends, args=(p,), epsabs=1e-14, epsrel=1e-12)[0] for p in range(3))
        return z, first / z, second / z - (first / z) ** 2

    def refined(self, which):
        """C¹ and C² of one class: tilted over cavity, both seen along the projection."""
        _, mean, var = self.tilted(which)
        return 1.0 / var - 1.0 / self.v[which], mean / var - self.a[which] / self.v[which]


@pytest.fixture
def pair(model):
    return Pair(model)


def reordered(model):
    """The model with its data in another order: labels, k_xx, K_XZ, upsilon and the factors' coefficients."""
    s = model
    sites = Coefficients(*(part[ORDER] for part in (s.c1_label, s.c2_label, s.c1_other, s.c2_other)))
    return s.y[ORDER], s.k_xx[:, ORDER], s.K_XZ[:, ORDER], s.upsilon[:, ORDER], sites


# -- misprints -------------------------------------------------------------------------------------------------------


@pytest.mark.verifies(PAPER, "7", route="distribution functions of pairs", printed=True)
@pytest.mark.verifies(PAPER, "9", route="scales of pairs added up", printed=True)
@pytest.mark.verifies(PAPER, "u15-sep-tied-factor", route="outer products of pairs added up", printed=True)
def test_labels_of_the_competitors_in_place_of_the_datums_own_are_other_numbers(model):
    s = model
    y, k_xx, K_XZ, upsilon, sites = reordered(s)
    pairs = [(i, k) for i in range(s.n) for k in range(s.C) if k != y[i]]
    literal = [(i, k) for i in range(s.n) for k in range(s.C) if k != y[k]]
    assert set(literal) - set(pairs)
    assert set(pairs) - set(literal)

    def log_phi(i, k):
        gap, var = 0.0, 0.0
        for sign, c in ((1.0, y[i]), (-1.0, k)):
            gap += sign * (upsilon[c, i] @ s.inducing_values[c])
            var += k_xx[c, i] - upsilon[c, i] @ K_XZ[c, i]
        return norm.logcdf(gap / np.sqrt(var))

    prior = sum(multivariate_normal.logpdf(u, cov=V) for u, V in zip(s.inducing_values, s.K_ZZ, strict=True))
    data = s.inducing_values, y, k_xx, K_XZ, s.K_ZZ
    right, printed = approximate_inducing_posterior(*data), approximate_inducing_posterior_as_printed(*data)
    assert right == pytest.approx(prior + sum(log_phi(*at) for at in pairs), rel=1e-10)
    assert printed == pytest.approx(prior + sum(log_phi(*at) for at in literal), rel=1e-10)
    told_apart(PAPER, "7", printed, right)
    assert_recorded(PAPER, "7", right, printed)

    q = posterior_of(sites, y, upsilon, s.K_ZZ)
    theta = [Natural(np.linalg.inv(V), np.linalg.solve(V, m)) for m, V in zip(q.mean, q.cov, strict=True)]
    theta_prior = [Natural(np.linalg.inv(V), np.zeros(s.m)) for V in s.K_ZZ]
    scales = sites.c2_other - sites.c2_label
    constant = sum(multivariate_normal.logpdf(np.zeros(s.m), np.zeros(s.m), V) for V in s.K_ZZ) - sum(
        multivariate_normal.logpdf(np.zeros(s.m), m, V) for m, V in zip(q.mean, q.cov, strict=True)
    )
    right = constant + sum(scales[at] for at in pairs)
    assert ep_log_evidence(theta, theta_prior, scales) == pytest.approx(right, rel=1e-10)
    printed = ep_log_evidence_as_printed(theta, theta_prior, scales, y)
    assert printed == pytest.approx(constant + sum(scales[at] for at in literal), rel=1e-10)
    told_apart(PAPER, "9", printed, right)
    assert_recorded(PAPER, "9", right, printed)

    tied, wrong = sep_tied_factor(sites, y, upsilon), sep_tied_factor_as_printed(sites, y, upsilon)
    for listed, got in ((pairs, tied), (literal, wrong)):
        wanted = np.zeros((s.C, s.m, s.m))
        for i, k in listed:
            if k != y[i]:  # there is no factor of a label with itself
                wanted[y[i]] += sites.c1_label[i, k] * np.outer(upsilon[y[i], i], upsilon[y[i], i])
                wanted[k] += sites.c1_other[i, k] * np.outer(upsilon[k, i], upsilon[k, i])
        np.testing.assert_allclose([part.precision for part in got], wanted, rtol=1e-9, atol=1e-12)
    traces = [float(np.trace(part[1].precision)) for part in (wrong, tied)]
    told_apart(PAPER, "u15-sep-tied-factor", *traces)
    assert_recorded(PAPER, "u15-sep-tied-factor", *traces[::-1])


@pytest.mark.verifies(PAPER, "51", route="tilted moments by quadrature over the projection", printed=True)
def test_the_third_line_of_the_linear_part_from_its_end_has_a_projection_too_many(pair):
    m, V, u = pair.cavities[0]
    c1, c2 = pair.refined(0)
    z, mean, var = pair.tilted(0)
    b = sum(pair.s) + sum(pair.v)
    beta = norm.pdf((pair.a[0] - pair.a[1]) / np.sqrt(b)) / z
    printed = factor_linear_from_moments_as_printed(beta, b, c1, u, m, V)
    # given the projection the rest keeps its cavity distribution
    gain = V @ u / pair.v[0]
    tilted = m + gain * (mean - pair.a[0]), V + np.outer(gain, gain) * (var - pair.v[0])
    right = factor_linear_from_moments(*tilted, m, V)
    np.testing.assert_allclose(right, c2 * u, rtol=1e-6, atol=1e-9)
    excess = beta / np.sqrt(b) * c1 * pair.v[0] * (u @ u - 1.0)
    np.testing.assert_allclose(printed, (c2 + excess) * u, **CLOSE)
    told_apart(PAPER, "51", printed, right)
    j = pair.largest[0]
    assert_recorded(PAPER, "51", c2 * u[j], printed[j])


@pytest.mark.verifies(PAPER, "58", route="the refined factor's integral under its cavity, by quadrature", printed=True)
@pytest.mark.verifies(PAPER, "u10-log-scale-inline", route="the refined factor's integral by quadrature", printed=True)
@pytest.mark.verifies(PAPER, "56", route="the refined factor's integral under its cavity, by quadrature")
def test_the_scale_needs_q_after_the_update_of_its_own_factor_alone(model):
    """A sweep refines all factors at once: with q rebuilt from all of them a factor's integral is not Z."""
    s = model
    # first sweep: every cavity is the prior
    new = Coefficients(*(np.zeros((s.n, s.C)) for _ in range(4)))
    for i, y in enumerate(s.y):
        for k in set(range(s.C)) - {y}:
            at = Pair(s)
            at.cavities = [(np.zeros(s.m), s.K_ZZ[c], s.upsilon[c, i]) for c in (y, k)]
            at.a, at.v = [0.0, 0.0], [u @ V @ u for _, V, u in at.cavities]
            at.s = s.cond_var[y, i], s.cond_var[k, i]
            new.c1_label[i, k], new.c2_label[i, k] = at.refined(0)
            new.c1_other[i, k], new.c2_other[i, k] = at.refined(1)
            if (i, k) == (AT, K):
                v = at.v
    log_z, log_integral, cavities, alone = np.log(0.5), 0.0, [], []
    for c, v_c, c1, c2 in (
        (Y, v[0], new.c1_label[AT, K], new.c2_label[AT, K]),
        (K, v[1], new.c1_other[AT, K], new.c2_other[AT, K]),
    ):
        ends = -12 * np.sqrt(v_c), 12 * np.sqrt(v_c)
        log_integral += np.log(
            quad(lambda w, c1=c1, c2=c2, v=v_c: np.exp(-0.5 * c1 * w**2 + c2 * w) * norm.pdf(w, 0, np.sqrt(v)), *ends)[
                0
            ]
        )
        prior = Natural(np.linalg.inv(s.K_ZZ[c]), np.zeros(s.m))
        u = s.upsilon[c, AT]
        cavities.append(prior)
        alone.append(Natural(prior.precision + c1 * np.outer(u, u), c2 * u))
    wanted = log_z - log_integral
    assert factor_log_scale(log_z, cavities, alone) == pytest.approx(wanted, rel=1e-8, abs=0)
    printed = factor_log_scale_as_printed(log_z, cavities, new, (AT, K), s.y, s.upsilon, s.K_ZZ)
    q = posterior_of(new, s.y, s.upsilon, s.K_ZZ)
    rebuilt = sum(gaussian_log_normaliser(q.mean[c], q.cov[c]) for c in (Y, K))
    before = sum(gaussian_log_normaliser(np.zeros(s.m), s.K_ZZ[c]) for c in (Y, K))
    assert printed == pytest.approx(log_z + before - rebuilt, rel=1e-8, abs=0)
    for id in ("58", "u10-log-scale-inline"):
        told_apart(PAPER, id, printed, wanted)
        assert_recorded(PAPER, id, wanted, printed)


def prior_at(model, k, step):
    """K_ZZ, K_XZ and k_xx with the variance of class k moved by a step."""
    s, K_ZZ, K_XZ, k_xx = model, model.K_ZZ.copy(), model.K_XZ.copy(), model.k_xx.copy()
    K_ZZ[k] += step / s.variance[k] * (s.K_ZZ[k] - s.jitter[k] * np.eye(s.m))
    K_XZ[k] *= 1.0 + step / s.variance[k]
    k_xx[k] += step
    return K_ZZ, K_XZ, k_xx


def evidence(model, fixed_point, k, step):
    """log Z_q of a fixed point found anew, from moments and divided Gaussians."""
    s, (K_ZZ, K_XZ, k_xx) = model, prior_at(model, k, step)
    run = fixed_point(K_ZZ, K_XZ, k_xx)
    q, at = run.q, run.coefficients
    g = [gaussian_log_normaliser(q.mean[c], q.cov[c]) for c in range(s.C)]
    total = sum(g) - sum(gaussian_log_normaliser(np.zeros(s.m), K) for K in K_ZZ)
    for i, y in enumerate(s.y):
        for j in set(range(s.C)) - {y}:
            total += run.log_norm[i, j]
            for c, c1, c2 in ((y, at.c1_label[i, j], at.c2_label[i, j]), (j, at.c1_other[i, j], at.c2_other[i, j])):
                u = run.upsilon[c, i]
                cov = np.linalg.inv(np.linalg.inv(q.cov[c]) - c1 * np.outer(u, u))
                mean = cov @ (np.linalg.solve(q.cov[c], q.mean[c]) - c2 * u)
                total += gaussian_log_normaliser(mean, cov) - g[c]
    return total


def log_z_of_the_class(model, cavities, k, step):
    """Sum of log Z_{i,j} over the data of class k, with the cavities held."""
    s, (K_ZZ, K_XZ, k_xx) = model, prior_at(model, k, step)
    total = 0.0
    for i in np.flatnonzero(s.y == k):
        for j in set(range(s.C)) - {k}:
            gap = var = 0.0
            for sign, c, left in zip((1.0, -1.0), (k, j), cavities[i, j], strict=True):
                u = np.linalg.solve(K_ZZ[c], K_XZ[c, i])
                gap += sign * (u @ left.mean)
                var += k_xx[c, i] - u @ K_XZ[c, i] + u @ left.cov @ u
            total += float(log_ndtr(gap / np.sqrt(var)))
    return total


@pytest.mark.verifies(PAPER, "10", route="central differences of log Z_q of fixed points", printed=True)
@pytest.mark.verifies(PAPER, "12", route="central differences of log Z_q of fixed points", printed=True)
@pytest.mark.verifies(PAPER, "62", route="central differences of log Z_q of fixed points", printed=True)
def test_one_letter_for_two_classes_leaves_out_the_data_of_the_class(model, fixed_point):
    s, k, step = model, 1, 1e-4
    end = fixed_point(s.K_ZZ, s.K_XZ, s.k_xx)
    distributions = distributions_of(end.coefficients, end.q, s.y, s.k_xx, s.K_XZ, s.K_ZZ)
    direction = hyper_directions(s.X, s.Z, s.variance, s.lengthscales)["variance"][k]
    everything = np.arange(s.n)
    wanted = (evidence(s, fixed_point, k, step) - evidence(s, fixed_point, k, -step)) / (2 * step)
    right = float(ep_log_evidence_gradient(distributions, s.y, s.K_ZZ, direction))
    batch = float(minibatch_log_evidence_gradient(distributions, s.y, s.K_ZZ, direction, everything))
    # central differences err by step² and by 1e-12/step
    assert (right, batch) == pytest.approx((wanted, wanted), rel=1e-6, abs=1e-8)
    printed = float(ep_log_evidence_gradient_as_printed(distributions, s.y, s.K_ZZ, direction, k, everything))
    ends = [log_z_of_the_class(s, distributions.cavities, k, sign * step) for sign in (1.0, -1.0)]
    left_out = (ends[0] - ends[1]) / (2 * step)
    assert printed == pytest.approx(wanted - left_out, rel=1e-5, abs=1e-8)
    assert abs(left_out) > 0.01
    for id in ("10", "12", "62"):
        told_apart(PAPER, id, printed, right)
        assert_recorded(PAPER, id, wanted, printed)


# -- slips -----------------------------------------------------------------------------------------------------------


def test_projections_are_columns(pair):
    m, V, u = pair.cavities[0]
    column = u[:, None]
    size, basis = np.linalg.eigh(V)
    assert_recorded(PAPER, "slip-1", float(np.sum(size * (basis.T @ u) ** 2)))  # variance of the projection
    with pytest.raises(ValueError, match="matmul"):
        column @ V @ column.T
    # the cavity's mean without the factor C^2: natural parameters subtracted
    c1, c2 = 0.4 / pair.v[0], 0.7
    precision = np.linalg.inv(V) - c1 * np.outer(u, u)
    assert_recorded(PAPER, "slip-2", np.linalg.solve(precision, np.linalg.solve(V, m) - c2 * u)[0])
    with pytest.raises(ValueError, match="matmul"):
        column @ np.linalg.inv(precision)


def test_a_derivative_by_a_covariance_is_a_matrix(pair):
    u = pair.cavities[0][2]
    step = 1e-4
    wanted = (pair.log_z(grow=step) - pair.log_z(grow=-step)) / (2 * step)
    b = sum(pair.s) + sum(pair.v)
    alpha = (pair.a[0] - pair.a[1]) / np.sqrt(b)
    middle = -0.5 * norm.pdf(alpha) / norm.cdf(alpha) * alpha / b
    assert middle * u[pair.largest[0]] ** 2 == pytest.approx(wanted, rel=1e-6)
    assert_recorded(PAPER, "slip-3", wanted, middle)


def test_the_refined_precision_adds_to_that_of_the_cavity(pair):
    """Precision of the tilted distribution along the projection: by quadrature, from the cavity, and from q."""
    c1, _ = pair.refined(0)
    held = 0.4 / pair.v[0]  # C^1 of the factor that q still holds
    v = 1.0 / (1.0 / pair.v[0] + held)  # of the projection under q
    assert 1.0 / pair.v[0] + c1 == pytest.approx(1.0 / pair.tilted(0)[2], rel=1e-9)
    assert_recorded(PAPER, "slip-4", 1.0 / pair.tilted(0)[2], 1.0 / v + c1)


def test_a_quotient_without_its_differential_is_no_derivative(pair):
    step = 1e-5
    assert_recorded(PAPER, "slip-5", (pair.log_z(shift=step) - pair.log_z(shift=-step)) / (2 * step), pair.log_z())


def test_batches_of_a_partition_average_to_all_data(model):
    s = model
    terms = [
        float(np.sum([log_ndtr(s.upsilon[y, i] @ s.mean - s.upsilon[k, i] @ s.mean) for k in range(s.C) if k != y]))
        for i, y in enumerate(s.y)
    ][:4]
    batches = [[0, 1], [2, 3]]
    mean = np.mean([2.0 * sum(terms[i] for i in batch) for batch in batches])
    assert_recorded(PAPER, "slip-6", sum(terms), mean)


def test_an_integral_over_latents_needs_their_density():
    """Two classes: the region where class 1 wins, with a density and without one, over boxes that grow."""
    probability = norm.cdf((0.3 + 0.2) / np.sqrt(1.1 + 0.7))
    areas = [2 * half * half for half in (1, 10)]  # half of (2 half)^2
    total = probability + norm.cdf((-0.2 - 0.3) / np.sqrt(1.1 + 0.7))
    assert_recorded(PAPER, "slip-7", float(total), *areas)


def gaussian_bound():
    """E_q[log p(y|u)], KL(q||p) and log p(y) of one value u ~ N(0, 1.3) seen with noise 0.5, q = N(0.2, 0.4)."""
    K, noise, y, m, S = 1.3, 0.5, 0.7, 0.2, 0.4
    expected = -0.5 * np.log(2 * np.pi * noise) - 0.5 * ((y - m) ** 2 + S) / noise
    divergence = 0.5 * (S / K + m * m / K - 1.0 + np.log(K / S))
    return expected, divergence, float(norm.logpdf(y, 0.0, np.sqrt(K + noise)))


def test_the_divergence_is_subtracted():
    expected, divergence, evidence = gaussian_bound()
    assert expected - divergence < evidence < expected * -divergence + 2.0
    assert_recorded(PAPER, "slip-8", expected - divergence, evidence, expected * divergence)


def test_a_mean_of_logarithms_may_rise_while_the_logarithm_of_the_mean_falls():
    """Two data whose labels win with probability P, epsilon = 1e-3, C = 2."""
    win, lose = np.log(1.0 - 0.5e-3), np.log(0.5e-3)

    def both(P):
        P = np.array(P)
        return float(np.mean(P * win + (1 - P) * lose)), float(
            np.mean(np.log(P * np.exp(win) + (1 - P) * np.exp(lose)))
        )

    (mean, log), (mean_later, log_later) = both([0.74, 0.74]), both([0.99, 0.50])
    assert mean_later > mean
    assert log_later < log
    assert_recorded(PAPER, "slip-9", mean, mean_later, log, log_later)


def test_each_class_has_a_covariance_of_its_own(model):
    s = model
    assert_recorded(PAPER, "slip-10", s.kernel(s.X[:1], s.X[1:2], 0)[0, 0], s.kernel(s.X[:1], s.X[1:2], 1)[0, 0])


def test_conditional_moments_by_the_joint_gaussian(model):
    s = model
    joint = np.block([[s.k_xx[K, AT], s.K_XZ[K, AT][None]], [s.K_XZ[K, AT][:, None], s.K_ZZ[K]]])
    precision = np.linalg.inv(joint)
    variance = 1.0 / precision[0, 0]
    mean = -variance * (precision[0, 1:] @ s.inducing_values[K])
    assert variance == pytest.approx(s.cond_var[K, AT], rel=1e-9)
    assert_recorded(PAPER, "slip-11", variance)
    assert_recorded(PAPER, "slip-12", s.m, mean)
    assert_recorded(PAPER, "slip-13", s.m, float(s.k_xx[K, AT]), mean)


def test_moments_come_from_the_derivative_of_log_z(pair):
    step = 1e-5
    v, sign = pair.v[1], -1.0
    w = pair.cavities[1][2]
    slope = (pair.log_z(shift=step) - pair.log_z(shift=-step)) / (2 * step) / w[pair.largest[1]]
    mean = pair.a[1] + v * slope
    assert mean == pytest.approx(pair.tilted(1)[1], rel=1e-8)
    assert sign * slope > 0.0
    assert_recorded(PAPER, "slip-15", pair.tilted(1)[1], pair.a[1] + v * slope * np.exp(pair.log_z()))


def test_each_approximation_has_a_normaliser_of_its_own(model):
    """One datum, one inducing value a class: the integrals of (2) and of (7), with prior means of zero."""
    upsilon, var, K_ZZ = np.array([0.9, 0.7, 0.8]), np.array([0.3, 0.5, 0.4]), np.array([1.2, 0.9, 1.1])
    x, w = np.polynomial.hermite_e.hermegauss(40)
    grid = np.stack(np.meshgrid(x, x, x, indexing="ij"))
    weights = np.einsum("i,j,k->ijk", w, w, w) / np.sqrt(2 * np.pi) ** 3
    f = grid * (upsilon * np.sqrt(K_ZZ))[:, None, None, None]
    pairs = norm.cdf((f[0] - f[1]) / np.sqrt(var[0] + var[1])) * norm.cdf((f[0] - f[2]) / np.sqrt(var[0] + var[2]))
    total = upsilon**2 * K_ZZ + var
    exact = quad(
        lambda t: norm.pdf(t, 0, np.sqrt(total[0])) * norm.cdf(t / np.sqrt(total[1])) * norm.cdf(t / np.sqrt(total[2])),
        -20, 20, epsabs=1e-13,
    )[0]  # fmt: skip
    assert_recorded(PAPER, "slip-16", float(np.log(exact)), float(np.log(np.sum(weights * pairs))))


def test_a_cavity_is_not_the_factor_that_it_lacks(pair):
    """The variance of the projection: under q, without the factor, and of the factor itself."""
    held = 0.4 / pair.v[0]
    q = 1.0 / (1.0 / pair.v[0] + held)
    assert_recorded(PAPER, "slip-17", pair.v[0], q, 1.0 / held)


def test_bounds_of_data_are_equal_to_their_marginals(model):
    """(15): the expectation of one datum under q(f_i), and under q(f-bar) of that under p(f_i|f-bar)."""
    upsilon, var, mean, cov = np.array([0.9, 0.7]), np.array([0.3, 0.5]), np.array([0.4, -0.2]), np.array([0.6, 0.8])
    win, lose = np.log(1.0 - 0.5e-3), np.log(0.5e-3)
    x, w = np.polynomial.hermite_e.hermegauss(80)
    u = mean[:, None] + np.sqrt(cov)[:, None] * x
    inside = norm.cdf((upsilon[0] * u[0][:, None] - upsilon[1] * u[1][None]) / np.sqrt(var.sum()))
    nested = float(np.sum(np.outer(w, w) / (2 * np.pi) * (lose + (win - lose) * inside)))
    total = upsilon**2 * cov + var
    direct = lose + (win - lose) * norm.cdf((upsilon @ (mean * [1, -1])) / np.sqrt(total.sum()))
    assert nested == pytest.approx(direct, rel=1e-10)
    assert_recorded(PAPER, "slip-20", nested, float(direct))


def test_z_is_an_integral_over_the_two_classes_of_the_factor(pair):
    x, w = np.polynomial.hermite_e.hermegauss(80)
    a, b = (pair.a[c] + np.sqrt(pair.v[c]) * x for c in range(2))
    total = np.sum(np.outer(w, w) / (2 * np.pi) * norm.cdf((a[:, None] - b[None]) / np.sqrt(sum(pair.s))))
    assert np.log(total) == pytest.approx(pair.log_z(), rel=1e-8)
    assert_recorded(PAPER, "slip-22", len(pair.s), float(np.log(total)))


def test_a_class_has_a_mean_of_its_own_and_a_factor_touches_two(model):
    s = model
    one = Coefficients(*(np.where(np.arange(s.n)[:, None] == AT, part, 0.0) * (np.arange(s.C) == K) for part in (
        s.c1_label, s.c2_label, s.c1_other, s.c2_other)))  # fmt: skip
    q = posterior_of(one, s.y, s.upsilon, s.K_ZZ)
    moved = [c for c in range(s.C) if np.max(np.abs(q.cov[c] - s.K_ZZ[c])) > 1e-9]
    assert moved == [Y, K]
    assert_recorded(PAPER, "slip-23", s.inducing_values.size, len(q.mean[0]), len(moved), s.C)


def test_the_derivative_by_the_mean_of_class_k(pair):
    step = 1e-5
    wanted = (pair.log_z(shift=step) - pair.log_z(shift=-step)) / (2 * step)
    b = sum(pair.s) + sum(pair.v)
    assert_recorded(PAPER, "slip-24", wanted, b)


def test_latent_values_at_new_inputs_are_a_product_given_q(model):
    """Gauss-Hermite over q(f-bar) of the conditional's moments, two classes and one inducing value each."""
    upsilon, var, mean, cov = np.array([0.9, 0.7]), np.array([0.3, 0.5]), np.array([0.4, -0.2]), np.array([0.6, 0.8])
    x, w = np.polynomial.hermite_e.hermegauss(20)
    w = w / w.sum()
    f = upsilon[:, None] * (mean[:, None] + np.sqrt(cov)[:, None] * x)
    variance = var + np.sum(w * f**2, axis=1) - np.sum(w * f, axis=1) ** 2
    between = np.sum(np.outer(w, w) * np.outer(f[0], f[1])) - np.sum(w * f[0]) * np.sum(w * f[1])
    assert abs(between) < 1e-14
    np.testing.assert_allclose(variance, upsilon**2 * cov + var, rtol=1e-12, atol=0)
    assert_recorded(PAPER, "slip-25", float(variance[0]), float(variance[1]))


def test_a_new_latent_value_has_one_mean(model):
    s = model
    assert_recorded(PAPER, "slip-26", np.size(s.upsilon[K, AT] @ s.mean), s.m)


def test_time_and_memory_count_the_classes():
    """Operations of a sweep in proportion to the classes, and numbers that EP holds over those of SEP."""
    few, many = (complexity_table("ep", 1000, 40, C) for C in (3, 6))
    assert many.operations == 2 * few.operations
    assert many.memory == 2 * few.memory
    assert_recorded(PAPER, "slip-18", many.operations // few.operations, 1)
    assert_recorded(PAPER, "slip-19", few.memory // complexity_table("sep", 1000, 40, 3).memory, 1000 * (3 - 1))


def test_damping_moves_the_coefficients_of_the_factor(pair):
    """The weight of the new C^1 is the share of the way from the old one, 0.3 of it here."""
    c1, _ = pair.refined(0)
    old = 0.4 / pair.v[0]
    assert_recorded(PAPER, "slip-27", old, c1, 0.3 * c1 + 0.7 * old)


def test_the_last_line_but_one_of_the_linear_part_adds_a_number_to_a_vector(pair):
    m, V, u = pair.cavities[0]
    c1, c2 = pair.refined(0)
    b = sum(pair.s) + sum(pair.v)
    beta = norm.pdf((pair.a[0] - pair.a[1]) / np.sqrt(b)) / pair.tilted(0)[0]
    literal = beta / np.sqrt(b) * np.outer(u, u) @ m + beta / np.sqrt(b) * c1 * (u @ V @ u)
    j = pair.largest[0]
    assert_recorded(PAPER, "slip-28", c2 * u[j], literal[j])


def test_the_margin_of_a_factor_has_one_value(pair):
    b = sum(pair.s) + sum(pair.v)
    assert_recorded(PAPER, "slip-29", float((pair.a[0] - pair.a[1]) / np.sqrt(b)))


def test_latents_are_listed_class_by_class(model):
    s = model
    assert_recorded(PAPER, "slip-30", s.C, s.n, s.n, s.C)
    f = np.stack([s.kernel(s.X, s.Z[c], c)[:, 0] for c in range(s.C)])
    assert f.shape == (s.C, s.n)
