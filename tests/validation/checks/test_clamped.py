"""The checks of what rounding leaves on the wrong side of a bound, and a mistake in each kind of bound."""

import pytest

_TRUTHS = "clamped_truths"
_DRAWS, _FITC = (f"identity/gibbs-{method}/variances_of_rounding" for method in ("probit", "logit"))
_SHARES, _LIMITS = "identity/gibbs-logit/probabilities_of_rounding", "identity/gibbs-threshold/limits_of_rounding"
_PLANTED = (
    (_TRUTHS, _DRAWS, "gibbs.models.multilatent", "np.maximum(test_var, 0.0)", "np.maximum(test_var, -1.0)"),
    (_TRUTHS, _DRAWS, "gibbs.models.sampling", "np.maximum(var, 0.0)", "np.minimum(var, 0.0)"),
    (_TRUTHS, _DRAWS, "gibbs.models.exact_probit", "np.maximum(values, 0.0)", "values"),
    (_TRUTHS, _DRAWS, "gibbs.models.multinomial_probit", "np.maximum(values, 0.0)", "np.maximum(values, -1.0)"),
    (_TRUTHS, _DRAWS, "gibbs.models.pairwise", "white_rows).sum(axis=2), 0.0)", "white_rows).sum(axis=2), -1.0)"),
    (_TRUTHS, _DRAWS, "gibbs.models.pairwise", "white_test).sum(axis=2), 0.0)", "white_test).sum(axis=2), -1.0)"),
    (_TRUTHS, _FITC, "gibbs.evidence.chib", "np.maximum(rest, 0.0)", "rest"),
    (_TRUTHS, _FITC, "gibbs.evidence.bridge", "np.maximum(left, 0.0)", "np.maximum(left, -1.0)"),
    (_TRUTHS, _FITC, "gibbs.evidence.annealed", "np.maximum(rest, 0.0)", "rest"),
    (_TRUTHS, _SHARES, "gibbs.models.quadrature", "np.clip(out, 0.0, 1.0)", "np.clip(out, 0.0, 2.0)"),
    (_TRUTHS, _SHARES, "gibbs.models.softmax_probability", "np.clip(out, 0.0, 1.0)", "np.clip(out, -1.0, 1.0)"),
    (_TRUTHS, _SHARES, "gibbs.moves.hyper", "end - energy, 0.0)", "end - energy, 1.0)"),
    (_TRUTHS, _LIMITS, "gibbs.chains.warmup", "np.square(means), 0.0)", "np.square(means), 1.0)"),
    (_TRUTHS, _LIMITS, "gibbs.chains.warmup", "np.maximum(sums", "np.minimum(sums"),
    (_TRUTHS, _LIMITS, "gibbs.chains.warmup", "(length / (length - 1.0))", "(length / (length - 2.0))"),
    (_TRUTHS, _LIMITS, "gibbs.chains.warmup", "(length / (length - 1.0))", "1.0"),
    (_TRUTHS, _LIMITS, "gibbs.draws.univariate_truncated", "drop) - bound, 0.0)", "drop) - bound, -1.0)"),
    (_TRUTHS, _LIMITS, "gibbs.moves.region", "np.maximum(energy, 0.0)", "energy"),
)


@pytest.mark.parametrize(("module", "asked"), sorted({row[:2] for row in _PLANTED}))
def test_healthy_witnesses_pass(reds, module, asked):
    assert reds(module, asked) == []


@pytest.mark.parametrize(("checks", "asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, checks, asked, module, old, new):
    assert reds(checks, asked, (module, old, new))
