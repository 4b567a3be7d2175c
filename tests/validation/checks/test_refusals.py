"""The checks of what an optimiser is told, and a mistake in each search."""

import pytest

_SEARCH, _CLASSES = "fast.solve.lbfgs", "fast.full_classes.learning"
_JOINT = "fast.one_latent.quadratic_search"
_TOLD = "-self._worst + 1e3 * (1.0 + abs(self._worst))"
_PLANTED = (
    ("identity/ep/refused_places", _SEARCH, _TOLD, _TOLD.removeprefix("-")),
    ("identity/ep/refused_places", _SEARCH, "self._worst = min(self", "self._worst = max(self"),
    ("identity/ep/refused_places", _SEARCH, "vector.copy()", "vector"),
    ("identity/ep/refused_places", _SEARCH, f"{_TOLD}, np.zeros", f"{_TOLD}, np.ones"),
    ("identity/laplace/refused_places", _CLASSES, "Place(value, derivative,", "Place(value, -derivative,"),
    ("identity/laplace/refused_places", _CLASSES, "search.n_evaluations, search.n_refused", "search.n_refused, 8"),
    ("identity/laplace/refused_places", "reference.common._search", "where - start", "start - where"),
    ("identity/svi/refused_places", "fast.methods.svi", "1e-8, tolerance", "tolerance, 1e-8"),
    (
        "identity/svi/refused_places",
        _JOINT,
        "Place(end.value + log_prior, derivative)",
        "Place(end.value + log_prior, -derivative)",
    ),
)


@pytest.mark.parametrize("asked", sorted({row[0] for row in _PLANTED}))
def test_healthy_witnesses_pass(reds, asked):
    assert reds("refusals", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("refusals", asked, (module, old, new))
