"""The checks of decisions by a number, and a mistake in each of the decisions."""

import sys

import pytest

import fast.methods.apep
import fast.sparse_classes.alpha_runs

_PLANTED = (
    ("identity/gibbs-logit/budgets", "gibbs.chains.store", "one * min(_LEAST", "one / min(_LEAST"),
    ("identity/gibbs-logit/budgets", "gibbs.evidence.softmax_bridge", '_enough("latent_values", contrast)', "pass"),
    ("identity/gibbs-probit/islands", "gibbs.evidence.result", "log_z - log_z.max()", "log_z"),
    ("identity/gibbs-probit/islands", "gibbs.evidence.sequential", "last = t == D - 1", "last = t != D - 1"),
    ("identity/gibbs-probit/islands", "gibbs.evidence.sequential", "last = t == D - 1", "last = False"),
    ("identity/gibbs-threshold/cut_paths", "gibbs.moves.region", "moved = np.zeros(r", "moved = np.ones(r"),
    ("identity/x-gpc/patience", "reference.common._iteration", "min(observed[-200:])", "min(observed[-199:])"),
    ("identity/x-gpc/patience", "reference.common._iteration", "len(observed) > 200", "len(observed) > 201"),
    ("identity/x-gpc/patience", "reference.common._iteration", "max(observed[-3:]) < 1e-12", "False"),
    ("identity/svi/told_and_ended", "fast.blockwise.sep", "(len(changes), changes[-1])", "(changes[-1], len(changes))"),
    ("identity/svi/told_and_ended", "fast.methods.svi", "at_least = 1", "at_least = 30"),
    ("identity/svi/told_and_ended", "fast.sparse_classes.alpha_runs", "of class {k} grows without", "{k} grows"),
    ("identity/nested-ep/inner_ends", "reference.riihimaki2013.inner_ep", "change, True, n_imp", "True, change, n_imp"),
    ("identity/nested-ep/inner_ends", "reference.riihimaki2013.qep", "precision, 0.0), loc", "precision, -1.0), loc"),
    ("identity/pep/halvings", "fast.sparse_classes.power_factors", "improper + halvings)", "improper)"),
    ("identity/pep/halvings", "fast.sparse_classes.power_factors", "n_improper + halvings)", "n_improper)"),
    ("identity/pep/halvings", "fast.core.linalg", 'dtrcon(factor, uplo="L")[0]', 'dtrcon(factor, uplo="L")[1]'),
)
_MISTAKE = ("fast.sparse_classes.alpha_runs", "of class {k} grows without", "{k} grows")
# modules that have what they use of the planted one by name
_IMPORTERS = {
    "gibbs.evidence.result": tuple(
        f"gibbs.evidence.{route}" for route in ("annealed", "softmax_annealed", "sequential")
    ),
    "fast.sparse_classes.alpha_runs": ("fast.methods.apep",),
}
_ASKED = sorted({row[0] for row in _PLANTED})


@pytest.mark.parametrize("asked", _ASKED)
def test_healthy_witnesses_pass(reds, asked):
    assert reds("thresholds", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("thresholds", asked, (module, old, new), _IMPORTERS.get(module, ()))


def test_a_planted_mistake_is_gone_afterwards(planting):
    names = ("fast.sparse_classes.alpha_runs", "fast.methods.apep")
    healthy = [sys.modules[name] for name in names]
    with pytest.MonkeyPatch.context() as patch:
        planting(patch)("thresholds", "identity/svi/told_and_ended", _MISTAKE, names[1:])
        assert all(sys.modules[name] is not module for name, module in zip(names, healthy, strict=True))
    assert [sys.modules[name] for name in names] == healthy
    assert [fast.sparse_classes.alpha_runs, fast.methods.apep] == healthy  # as `import ... as` takes them
