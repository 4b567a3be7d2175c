"""The option form: which ran, what is refused, and that both are one method."""

import numpy as np
import pytest

from reference.common._classes import Prior
from reference.common._forms import DIGITS, SECONDS
from reference.villacampa2020.fit_energies import fit_energy
from reference.villacampa2020.fit_pep import fit_pep
from reference.villacampa2020.forms import UNIT, form_of

CLOSE = {"rtol": 1e-9, "atol": 1e-10}  # both stop within 1e-10 of one fixed point
METHODS = ("apep", "arpep", "rpapep", "bb-alpha")


@pytest.fixture
def prior(model):
    s = model
    return Prior(s.variance, s.lengthscales, s.noise, s.jitter, s.Z)


def test_small_problems_with_all_their_digits_run_as_printed_and_others_contracted():
    few = int(SECONDS / UNIT / 20.0)  # data, of four inducing values and five classes
    K = np.stack([np.eye(4)] * 5)
    assert form_of(None, few, K, 0.5, False) == "printed"
    assert form_of(None, few + 1, K, 0.5, False) == "projected"
    assert form_of(None, few, K, 0.5, True) == "projected"
    assert form_of(None, few, K, 0.99 * few / DIGITS, False) == "projected"
    assert form_of(None, few, K, 1.01 * few / DIGITS, False) == "printed"
    assert form_of(None, few, K, 0.0, False) == "printed"
    K = np.stack([np.diag([1.0, 1.0, 1.0, few / (0.99 * DIGITS)])] * 5)
    assert form_of(None, few, K, 1.0, False) == "printed"  # the condition times n is 0.99 DIGITS
    assert form_of(None, few, K, 0.9, False) == "projected"
    for form in ("printed", "projected"):
        assert form_of(form, 1000, K, 1e-8, True) == form


def test_a_form_that_is_none_is_refused(model, prior):
    s = model
    with pytest.raises(ValueError, match="form: found 'dense', expected one of printed, projected"):
        fit_energy(s.X, s.y, prior, "apep", s.epsilon, form="dense")
    with pytest.raises(ValueError, match="form: found 'dense', expected one of printed, projected"):
        fit_pep(s.X, s.y, prior, s.epsilon, form="dense")
    with pytest.raises(ValueError, match="form: found 'printed' with alpha 0, expected 'projected'"):
        fit_pep(s.X, s.y, prior, s.epsilon, alpha=0.0, form="printed")
    assert fit_pep(s.X, s.y, prior, s.epsilon, alpha=0.0).form == "projected"


@pytest.mark.parametrize("alpha", [0.6, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", [
    {"trace": True},
    {"batches": [[0, 1], [2, 4], [3]], "learn": ("variance", "Z"), "rate": 0.02, "trace": True},
    {"learn": ("noise",), "optimizer": "adaptive", "n_steps": 3, "gradient_rule": "exact"},
    {"learn": ("variance",), "optimizer": "adam", "scheme": "outer", "n_steps": 2},
])  # fmt: skip
def test_both_forms_of_pep_go_the_same_way(model, prior, alpha, options):
    s = model
    one, other = (
        fit_pep(s.X, s.y, prior, s.epsilon, alpha=alpha, form=form, **options) for form in ("printed", "projected")
    )
    assert (one.form, other.form) == ("printed", "projected")
    assert (one.iterations, one.converged, one.n_improper) == (other.iterations, other.converged, other.n_improper)
    for name in ("posterior", "sites", "prior"):
        for left, right in zip(getattr(one, name), getattr(other, name), strict=True):
            np.testing.assert_allclose(left, right, err_msg=name, **CLOSE)
    for name in ("latent_mean", "latent_var", "log_norm", "log_evidence", "trace"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), err_msg=name, **CLOSE)
    for name, derivative in one.gradients.items():
        np.testing.assert_allclose(derivative, other.gradients[name], err_msg=name, **CLOSE)
    assert one.residual == pytest.approx(other.residual, rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", [{}, {"batches": [[0, 1], [2, 4], [3]], "learn": ("variance", "Z")}])
def test_both_forms_of_an_energy_go_the_same_way(model, prior, method, options):
    s = model
    alpha = 0.25 if method == "rpapep" else s.alpha
    one, other = (
        fit_energy(s.X, s.y, prior, method, s.epsilon, alpha=alpha, form=form, trace=True, rate=0.02, **options)
        for form in ("printed", "projected")
    )
    assert (one.form, other.form) == ("printed", "projected")
    assert (one.converged, one.optimum) == (other.converged, other.optimum)
    for name in ("posterior", "prior"):
        for left, right in zip(getattr(one, name), getattr(other, name), strict=True):
            np.testing.assert_allclose(left, right, err_msg=name, rtol=1e-7, atol=1e-8)  # variances reach a hundred
    for name in ("log_norm", "value"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), err_msg=name, **CLOSE)
