"""The checks of orders, of steps that may not fall and of runs that are given up, and a mistake in each."""

import pytest

_ORDER, _RISE = "identity/exact-probit/least_likely_first", "identity/laplace/steps_that_rise"
_PLANTED = (
    (_ORDER, "gibbs.draws.truncated_normal", "sd = np.sqrt(var[k:])", "sd = np.square(var[k:])"),
    (_ORDER, "gibbs.evidence.sequential", "log_p.sum(axis=1).argmin()", "log_p.sum(axis=1).argmax()"),
    ("identity/exact-probit/given_up", "gibbs.draws.truncated_normal", "if np.isfinite(result.standard_error) else 0.0",
     "if not np.isfinite(result.standard_error) else 0.0"),
    ("identity/gibbs-logit/averages_of_unequal_spread", "gibbs.evidence.bridge", "widest = float(scale.max())",
     "widest = float(scale.min())"),
    (_RISE, "fast.full_classes.softmax_laplace", "joint - 1e-12 * (1.0 + abs(joint))", "joint - (1.0 + abs(joint))"),
    ("invariance/gibbs-logit/orphans_of_chains", "gibbs.chains.checkpoint", "    sweep_out(path)\n    held",
     "    held"),
    ("identity/gfitc/back_from_a_mixed_step", "fast.sparse_classes.fitc_latents",
     "damped(past.sites, past.sites + past.gap, damping)", "damped(past.sites + past.gap, past.sites, damping)"),
    ("identity/exact-probit/evidence_by_name", "gibbs.models.exact_probit",
     "model.constraints.datum.size,\n        result.n_proposals,",
     "result.n_proposals,\n        model.constraints.datum.size,"),
)  # fmt: skip


@pytest.mark.parametrize("asked", sorted({row[0] for row in _PLANTED}))
def test_healthy_witnesses_pass(reds, asked):
    assert reds("orders_and_ends", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("orders_and_ends", asked, (module, old, new))
