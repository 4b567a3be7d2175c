"""The checks of rules that ordinary runs do not come to, and a mistake in each."""

import pytest

_GAPS, _CLUSTERS = "identity/ep/moment_gaps", "print/svi/empty_clusters"
_SWEEPS = "identity/apep/sweeps_end"
_FACTORS, _TRAINING = "reference.villacampa2017.factors", "fast.sparse_classes.training"
_KMEANS = "reference.izmailov2016.experiments"
_PLANTED = (
    (_GAPS, _FACTORS, "if not v > 0.0:", "if not v > -1.0:"),
    (_GAPS, _FACTORS, "np.sqrt(v) / v_hat", "v / v_hat"),
    (_CLUSTERS, _KMEANS, "centres[p] = X[np.argmax(gap)]", "pass"),
    (_CLUSTERS, _KMEANS, "X[np.argmax(gap)]", "X[np.argmin(gap)]"),
    (_CLUSTERS, _KMEANS, "if np.any(owner == p):", "if True:"),
    (_SWEEPS, _TRAINING, "improper + swept.n_improper, swept.why", "swept.n_improper, swept.why"),
    (_SWEEPS, _TRAINING, "if enough(values, _SLOW):", "if False:"),
    (_SWEEPS, _TRAINING, "> _ALLOWED * settings.tolerance:", "> 2 * _ALLOWED * settings.tolerance:"),
    (_SWEEPS, _TRAINING, "_SLOW = 8", "_SLOW = 9"),
)


@pytest.mark.parametrize("asked", [_GAPS, _CLUSTERS, _SWEEPS])
def test_healthy_witnesses_pass(reds, asked):
    assert reds("seldom_reached", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("seldom_reached", asked, (module, old, new))
