"""The checks of what rounding leaves on the wrong side of a bound, and a mistake in each kind of bound."""

import pytest

_ONE, _SPARSE, _FULL = (f"identity/{method}/variances_of_rounding" for method in ("x-gpc", "ep", "nested-ep"))
_PLANTED = (
    (_ONE, "fast.one_latent.predict", "explained, 0.0)", "explained, -1.0)"),
    (_ONE, "fast.one_latent.explicit_q", "np.maximum(hyper", "np.minimum(hyper"),
    (_ONE, "fast.one_latent.sites", "np.maximum(var, 0.0)", "np.maximum(var, 1.0)"),
    (_ONE, "fast.one_latent.stochastic", "squared_norms(rows), 0.0)", "squared_norms(rows), -1.0)"),
    (_SPARSE, "fast.sparse_classes.projections", "np.maximum(left, 0.0)", "left"),
    (_SPARSE, "fast.sparse_classes.pairwise_factors", "np.maximum(total, np.finfo(np.float64).tiny)", "total"),
    (_SPARSE, "fast.solve.site_iteration", "np.sqrt(np.maximum(var, 0.0))", "np.sqrt(var)"),
    (_FULL, "fast.full_classes.couplings", "np.maximum(cond_var, 0.0)", "np.maximum(cond_var, -1.0)"),
    (_FULL, "fast.full_classes.inner_ep", "np.minimum(r * excess, 1.0)", "np.minimum(r * excess, 2.0)"),
    (_FULL, "fast.full_classes.quadrature_tilt", "np.maximum(kept, 0.0)", "kept"),
    (_FULL, "fast.full_classes.sequential_posterior", "np.maximum(left, 0.0)", "left"),
)


@pytest.mark.parametrize("asked", sorted({row[0] for row in _PLANTED}))
def test_healthy_witnesses_pass(reds, asked):
    assert reds("clamped", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("clamped", asked, (module, old, new))
