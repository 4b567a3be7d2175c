"""The checks of what neighbours are asked, and a mistake in each answer."""

import pytest

from reference.common import _training
from reference.villacampa2017 import methods
from reference.villacampa2020 import fit_pep, laplace_sparse


@pytest.mark.parametrize("method", ["ep", "sep", "pep", "label-regression", "laplace-sparse"])
def test_healthy_witnesses_pass(reds, method):
    assert reds("neighbours", f"identity/{method}/neighbours") == []


@pytest.mark.parametrize(("method", "module"), [("ep", methods), ("pep", fit_pep)], ids=["ep", "pep"])
def test_matrices_of_another_prior_are_seen(reds, monkeypatch, method, module):
    known = []

    def first(X, prior, real=module.prior_matrices):
        known.append(real(X, prior))
        return known[0]

    monkeypatch.setattr(module, "prior_matrices", first)
    assert reds("neighbours", f"identity/{method}/neighbours")


@pytest.mark.parametrize(
    ("method", "module"), [("sep", _training), ("pep", _training), ("laplace-sparse", laplace_sparse)]
)
def test_an_answer_of_other_moments_is_seen(reds, monkeypatch, method, module):
    def doubled(size, real=module.moment_answers, **moments):
        return real(size, **{name: 2.0 * value for name, value in moments.items()})

    monkeypatch.setattr(module, "moment_answers", doubled)
    assert reds("neighbours", f"identity/{method}/neighbours")


_REGRESSION = "reference.villacampa2020.label_regression"


@pytest.mark.parametrize(
    "plant",
    [
        ("reference.common._neighbours", "float(np.max(np.abs(value), initial=0.0))", "float(np.min(np.abs(value)))"),
        ("reference.common._neighbours", "return max(changes", "return min(changes"),
        (_REGRESSION, "return max(largest_change", "return min(largest_change"),
    ],
)
def test_another_rounding_is_seen(reds, plant):
    assert reds("neighbours", "identity/label-regression/neighbours", plant, again=(_REGRESSION,))
