"""The checks of ends and ways round that few runs come to, and a mistake in each."""

import pytest

_LEAPT, _MEMORY = "identity/vi-taylor/leapt", "invariance/vi-jj/without_memory"
_WORDS, _DERIVATIVES = "identity/x-gpc/words_before_checks", "identity/laplace/shared_gradients"
_HESSIANS, _ROUNDS = "identity/rpapep/few_hessians", "exactness/gibbs-threshold/rounds_of_islands"
_ISLANDS = "exactness/mh-softmax/islands_unbiased"
_ESTIMATORS = ("._classes", ".binary", ".multiclass", ".izmailov", ".villacampa2017", ".villacampa2020", "")
_SIZES, _SIGN = "identity/x-gpc/sizes_of_steps", "identity/qiep/sites_without_sign"
_ORDER = "identity/epgpc/changes_in_order"
_ORTHANTS = "limit/laplace/orthants_of_one_factor"
_KEYS = "invariance/x-gpc-svi/order_of_keys"
_SEQUENTIAL = "gibbs.evidence.sequential"
_PLANTED = (
    (_LEAPT, "fast.methods.vi_taylor", "None, 1e-6, 100, None)[0]", "None, 1e-6, 1, None)[0]"),
    (_LEAPT, "fast.methods.vi_taylor", ".value.sum()) >= zero", ".value.sum()) <= zero"),
    (_MEMORY, "fast.one_latent.quadratic_sweep", "return Whitened(rows, self.cond_var[start:stop])",
     "return Whitened(rows, self.cond_var[:stop])"),
    (_MEMORY, "fast.blockwise.taylor", "len(steps), height, np.nan", "len(steps) + 1, height, np.nan"),
    (_WORDS, "fast.estimators._base", "if isinstance(training, str)", "if isinstance(training, object)"),
    (_DERIVATIVES, "fast.estimators.multiclass", ".lengthscales[0]", ".lengthscales[0] / 3.0"),
    (_SIZES, "fast.estimators._base", "n = min(n, batch)", "n = max(n, batch)"),
    (_SIGN, "fast.full_classes.quadrature_tilt", "kept = np.maximum(kept, 0.0)", "pass"),
    (_ORDER, "fast.methods.epgpc_svi", "parameter_change(before, after)", "parameter_change(after, before)"),
    (_ORDER, "fast.one_latent.stochastic", "parameter_change(before, after)", "parameter_change(after, before)"),
    (_ORDER, "fast.one_latent.stochastic", "            self.previous = None\n", "            pass\n"),
    (_ORDER, "fast.solve.stopping", "np.abs(new).max()))", "np.abs(old).max()))"),
    (_ORTHANTS, "fast.likelihood.sobol_rule", "mean[:, j, None] - (rows", "mean[:, j, None] + (rows"),
    (_ORTHANTS, "fast.likelihood.sobol_rule", "d = root[part] @ x", "d = root[part].transpose(0, 2, 1) @ x"),
    (_KEYS, "fast.solve.minibatch", "(mixed >> 32) & mask", "(mixed >> 31) & mask"),
    (_HESSIANS, "fast.sparse_classes.alpha_search", "formed == _HESSIANS:", "formed > _HESSIANS:"),
    (_ROUNDS, _SEQUENTIAL, "apart <= 0.5", "apart <= 0.6"),
    (_ROUNDS, _SEQUENTIAL, "size * 1.3", "size * 1.2"),
    (_ROUNDS, _SEQUENTIAL, "2 * size, 8 * size", "2 * size, 9 * size"),
)  # fmt: skip


@pytest.mark.parametrize(
    "asked",
    [_KEYS, _ORTHANTS, _ORDER, _SIZES, _SIGN, _LEAPT, _MEMORY, _WORDS, _DERIVATIVES, _HESSIANS, _ROUNDS, _ISLANDS],
)
def test_healthy_witnesses_pass(reds, asked):
    assert reds("rare_ends", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    again = {
        _MEMORY: ("fast.one_latent.quadratic_search", "fast.methods.vi_jj"),
        _ORDER: ("fast.methods.x_gpc_svi",),
        _SIZES: tuple(f"fast.estimators{name}" for name in _ESTIMATORS),
        _WORDS: tuple(f"fast.estimators{name}" for name in _ESTIMATORS),
        _DERIVATIVES: ("fast.estimators",),
    }.get(asked, ())
    assert reds("rare_ends", asked, (module, old, new), again=again)
