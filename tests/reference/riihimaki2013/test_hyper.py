"""Section 5.5: priors by scipy's densities, their readings, the objective by differences; Table 2."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import lognorm, t

from reference.riihimaki2013.complexity import COUNTED, complexity_table
from reference.riihimaki2013.fit import Prior
from reference.riihimaki2013.laplace import fit_laplace, laplace_gradients
from reference.riihimaki2013.priors import half_t_scale, log_half_student_t, log_normal
from reference.riihimaki2013.type2 import log_hyperprior, type2_map, type2_map_objective

HYPERPRIOR = {"variance": ("half-student-t", 4.0, 10.0), "lengthscales": ("half-student-t", 4.0, 3.0)}


@pytest.mark.verifies("riihimaki2013", "u5.5-prior", route="twice scipy's Student-t density; total mass one")
def test_half_student_t():
    x = np.array([0.3, 4.0, 55.0])
    wanted = np.sum(np.log(2.0) + t.logpdf(x, 4.0, scale=10.0))
    assert log_half_student_t(x, 4.0, 10.0) == pytest.approx(wanted, rel=1e-12, abs=0)
    mass = quad(lambda v: np.exp(log_half_student_t(np.array([v]), 4.0, 10.0)), 0.0, np.inf, epsabs=0, epsrel=1e-9)[0]
    assert mass == pytest.approx(1.0, rel=1e-8, abs=0)
    assert log_normal(x, 0.7, 2.0) == pytest.approx(np.sum(lognorm.logpdf(x, 0.7, scale=2.0)), rel=1e-12, abs=0)


def test_three_readings_of_a_variance_of_one_hundred():
    assert half_t_scale() == 10.0
    assert half_t_scale(reading="scale") == 100.0
    scale = half_t_scale(reading="moment")
    assert t.var(4.0, scale=scale) == pytest.approx(100.0, rel=1e-12, abs=0)
    with pytest.raises(ValueError, match="reading: found 'sd'"):
        half_t_scale(reading="sd")
    with pytest.raises(ValueError, match="df: found 2"):
        half_t_scale(df=2.0, reading="moment")


def laplace_evidence(s):
    def evidence(prior):
        fit = fit_laplace(s.X, s.y, 3, prior)
        return fit.log_evidence, laplace_gradients(fit, s.X, s.y, prior)

    return evidence


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("prior_on", "density"), [("field", "value"), ("root", "log")])
@pytest.mark.verifies("riihimaki2013", "u5.5-map", route="sum of log Z and scipy's densities, central differences")
def test_objective_and_derivative(model, shared, prior_on, density):
    s = model
    prior = Prior(np.full(3, 1.7), np.tile([0.9, 1.4], (3, 1)), np.full(3, 0.2), np.zeros(3))
    learn = ("variance", "lengthscales", "noise")

    def wanted(where):
        rows = 1 if shared else 3
        v, ell, e = np.exp(where[:rows]), np.exp(where[rows : 3 * rows]).reshape(rows, 2), np.exp(where[3 * rows :])
        fit = fit_laplace(
            s.X, s.y, 3, Prior(np.broadcast_to(v, 3), np.broadcast_to(ell, (3, 2)), np.broadcast_to(e, 3), np.zeros(3))
        )
        x = np.sqrt(v) if prior_on == "root" else v
        value = fit.log_evidence + np.sum(np.log(2.0) + t.logpdf(x, 4.0, scale=10.0))
        value += np.sum(np.log(2.0) + t.logpdf(ell, 4.0, scale=3.0))
        return value + (np.sum(np.log(x)) + np.sum(np.log(ell)) if density == "log" else 0.0)

    rows = slice(0, 1) if shared else slice(0, 3)
    at = np.log(np.concatenate([prior.variance[rows], prior.lengthscales[rows].ravel(), prior.noise[rows]]))
    value, derivative = type2_map_objective(laplace_evidence(s), prior, HYPERPRIOR, learn, shared, prior_on, density)
    assert value == pytest.approx(wanted(at), rel=1e-10, abs=0)
    differences = [(wanted(at + 1e-5 * e) - wanted(at - 1e-5 * e)) / 2e-5 for e in np.eye(len(at))]
    np.testing.assert_allclose(derivative, differences, rtol=1e-5, atol=1e-7)  # step 1e-5


def test_map_is_a_stationary_point_and_shared_vectors_stay_equal(model):
    s = model
    prior = Prior(np.full(3, 1.7), np.tile([0.9, 1.4], (3, 1)), np.full(3, 0.2), np.zeros(3))
    result = type2_map(laplace_evidence(s), prior, HYPERPRIOR, learn=("variance", "lengthscales"), shared=True)
    assert result.converged
    assert np.all(np.diff(result.trace) >= -1e-10)
    np.testing.assert_array_equal(result.prior.lengthscales, np.tile(result.prior.lengthscales[0], (3, 1)))
    with pytest.raises(ValueError, match=r"learn: found \('Z',\)"):
        type2_map(laplace_evidence(s), prior, None, learn=("Z",), shared=True)
    with pytest.raises(ValueError, match="learn: found 'noise' with noise = 0"):
        type2_map(laplace_evidence(s), prior._replace(noise=np.zeros(3)), None, learn=("noise",), shared=True)
    assert log_hyperprior(prior, None, True)[0] == 0.0


@pytest.mark.verifies("riihimaki2013", "u5.4-complexity", route="Table 2 by hand for n = 10, c = 3")
def test_table_of_counts():
    rows = {name: complexity_table(name, 10, 3, 2, 5, 7) for name in COUNTED}
    assert rows["nested-ep"] == (4000.0, 160.0)
    assert rows["qep"] == (4000.0, 250.0)
    assert rows["nested-iep"] == (3000.0, 160.0)
    assert rows["qiep"] == (3000.0, 750.0)
    assert rows["vb-probit"] == (1000.0, 200.0)
    assert rows["laplace"] == (4000.0, 30.0)
    assert rows["gibbs-probit"] == (3000.0, 210.0)
    with pytest.raises(ValueError, match="method: found 'svgp'"):
        complexity_table("svgp", 10, 3, 2, 5, 7)
