"""The checks of arrays whose entries take different branches, and wrong conditions."""

import pytest

_PLANTED = (
    ("identity/qep/full_cavities", "fast.full_classes.nested_sites", "proper & solid", "proper | solid"),
    ("identity/qep/full_cavities", "fast.full_classes.nested_sites", "proper & solid", "proper"),
    ("identity/laplace-binary/third_derivatives", "fast.likelihood.third_derivatives", "left.any()", "left.all()"),
    ("identity/laplace/odds_of_differences", "fast.full_classes.predict", "+ 1e-300", "- 1e-300"),
    ("identity/mh-softmax/smoothed_gumbel", "gibbs.models.softmax_probability", "if sd > _BROAD", "if sd < _BROAD"),
    (
        "identity/gibbs-pairwise/inverted_intervals",
        "gibbs.draws.truncated_normal",
        "    far = a > _TAIL\n    # near",
        "    far = a < _TAIL\n    # near",
    ),
    (
        "identity/vi-jj/told_changes",
        "fast.one_latent.quadratic_search",
        "np.hypot(self._moments[0], np.sqrt(self._moments[1]))",
        "np.hypot(self._moments[0], np.square(self._moments[1]))",
    ),
    ("identity/ep/predicted_errors", "reference.villacampa2017.prediction", "epsilon == 0.0", "epsilon == 1.0"),
)

# who holds functions of the module by their names
_AGAIN = {
    "fast.one_latent.quadratic_search": ("fast.methods.vi_jj",),
    "fast.likelihood.third_derivatives": ("fast.one_latent.links",),
}


@pytest.mark.parametrize("asked", sorted({row[0] for row in _PLANTED}))
def test_healthy_branches_pass(reds, asked):
    assert reds("branches", asked) == []


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")  # a wrong branch may divide by zero
@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("branches", asked, (module, old, new), _AGAIN.get(module, ()))
