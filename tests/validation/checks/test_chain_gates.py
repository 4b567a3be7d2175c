"""The checks of when chains are a truth, and a mistake in each condition."""

import pytest

from in_every_run import asked_by_verify

_FOUR = ("n_chains >= 4 and settled", "n_chains >= 3 and settled")
_MOST = ("n_chains >= 4 and settled", "n_chains > 4 and settled")
_NO_MATTER = ("and settled and trusted", "and trusted")
_LEAST = ("movement.min() > 0.0", "movement.max() > 0.0")
_PLANTED = (
    ("gibbs-logit", "sampling", *_FOUR),
    ("gibbs-logit", "sampling", *_LEAST),
    ("gibbs-logit", "sampling", "and finished.warmed_up and", "and"),
    ("gibbs-logit", "sampling", "and all(q.gate() for", "and any(q.gate() for"),
    ("gibbs-probit", "multilatent", *_MOST),
    ("gibbs-probit", "multilatent", *_LEAST),
    ("gibbs-threshold", "multilatent", *_NO_MATTER),
    ("gibbs-threshold", "multilatent", "and finished.target_reached", ""),
    ("mh-softmax", "softmax", *_LEAST),
    ("mh-softmax", "softmax", "10.0 * _LEAST_STEP", "_LEAST_STEP"),
    ("mh-softmax", "softmax", "acceptance[move].min()", "acceptance[move].max()"),
    ("mh-softmax", "softmax", "sound=not collapsed", "sound=True"),
    ("gibbs-pairwise", "pairwise", "np.all(np.ptp", "np.any(np.ptp"),
    ("gibbs-pairwise", "pairwise", "long_enough(trust, plan.n_draws * plan.thin) and all", "all"),
    ("gibbs-pairwise", "pairwise", *_FOUR),
    ("gibbs-probit", "hyper", *_LEAST),
    ("gibbs-probit", "hyper", "np.minimum(chain_movement(learnt)", "np.maximum(chain_movement(learnt)"),
    ("gibbs-probit", "hyper", "long_enough(trust, n_draws * thin) and all", "all"),
    ("gibbs-probit", "hyper", "not any(refused", "not all(refused"),
)

_SUMMARY, _OWN = "gibbs.chains.summary", ("10.0 * _LEAST_STEP", "acceptance[move].min()")


def _asked(method, module):
    return f"identity/{method}/gate_of_{'sampled' if module == 'hyper' else module}"


@asked_by_verify
@pytest.mark.parametrize(("method", "module"), sorted({row[:2] for row in _PLANTED}))
def test_healthy_samplers_pass(reds, method, module):
    assert reds("chain_gates", _asked(method, module)) == []


@pytest.mark.parametrize(("method", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, method, module, old, new):
    place = f"gibbs.models.{module}" if module in ("pairwise", "hyper") or "coll" in old or old in _OWN else _SUMMARY
    own = (f"gibbs.models.{module}",) if place == _SUMMARY else ()  # which has taken the healthy rule from there
    assert reds("chain_gates", _asked(method, module), (place, old, new), own)
