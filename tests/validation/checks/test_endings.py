"""The checks of how runs end, and a mistake in each of the rules that they ask about."""

import pytest

_PLANTED = (
    ("identity/ep/extrapolation", "reference.common._sweeps", "_PLAIN = 50", "_PLAIN = 52"),
    ("identity/ep/extrapolation", "reference.common._sweeps", "weights @ moves[1:]", "weights @ moves[:-1]"),
    (
        "identity/ep/extrapolation",
        "reference.common._sweeps",
        "and n_improper <= saved[2]",
        "or n_improper <= saved[2]",
    ),
    ("identity/ep/extrapolation", "reference.common._sweeps", "_PATIENCE = 300", "_PATIENCE = 301"),
    (
        "identity/ep/what_is_left",
        "fast.sparse_classes.training",
        "1.0 / (1.0 - rate) - self.damping",
        "1.0 / (1.0 - rate) + self.damping",
    ),
    (
        "identity/ep/what_is_left",
        "fast.solve.outer_loop",
        "self.damping / (1.0 - self.slowest)",
        "1.0 / (1.0 - self.slowest)",
    ),
    ("identity/x-gpc-svi/sinking", "fast.one_latent.stochastic", "falling.add(", "falling.add(-1.0 * "),
    ("identity/gibbs-pairwise/peak", "gibbs.models.pairwise", "hazard * (hazard + alpha)", "hazard * (hazard - alpha)"),
    (
        "identity/rpapep/trust_region",
        "fast.sparse_classes.alpha_search",
        "return -derivative / (values + high)",
        "return -derivative / (values + 1.1 * high)",
    ),
)


@pytest.mark.parametrize("asked", sorted({row[0] for row in _PLANTED}))
def test_healthy_witnesses_pass(reds, asked):
    assert reds("endings", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("endings", asked, (module, old, new))
