"""The checks of what rounding leaves on the wrong side of a bound, and a mistake in each kind of bound."""

import pytest

_FAST, _TRUTHS, _REFERENCE = "clamped", "clamped_truths", "clamped_reference"
_ONE, _SPARSE, _FULL = (f"identity/{method}/variances_of_rounding" for method in ("x-gpc", "ep", "nested-ep"))
_SURE = "identity/x-gpc/probabilities_of_rounding"
_DRAWS, _FITC = (f"identity/gibbs-{method}/variances_of_rounding" for method in ("probit", "logit"))
_SHARES, _LIMITS = "identity/gibbs-logit/probabilities_of_rounding", "identity/gibbs-threshold/limits_of_rounding"
_PRINTED = {
    paper: f"identity/{method}/printed_variances_of_rounding"
    for paper, method in (("2017", "ep"), ("2020", "pep"), ("wenzel", "x-gpc"), ("izm", "svi"), ("riih", "nested-ep"))
}
_STEPS, _RATES, _PATHS = "clamped_steps", "identity/x-gpc/distances_of_rates", "identity/mh-softmax/acceptances"
_TINY = "np.finfo(np.float64).tiny"
_PLANTED = (
    (_FAST, _ONE, "fast.one_latent.predict", "explained, 0.0)", "explained, -1.0)"),
    (_FAST, _ONE, "fast.one_latent.explicit_q", "np.maximum(hyper", "np.minimum(hyper"),
    (_FAST, _ONE, "fast.one_latent.sites", "np.maximum(var, 0.0)", "np.maximum(var, 1.0)"),
    (_FAST, _ONE, "fast.one_latent.stochastic", "squared_norms(rows), 0.0)", "squared_norms(rows), -1.0)"),
    (_FAST, _SPARSE, "fast.sparse_classes.projections", "np.maximum(left, 0.0)", "left"),
    (_FAST, _SPARSE, "fast.sparse_classes.pairwise_factors", f"np.maximum(total, {_TINY})", "total"),
    (_FAST, _SPARSE, "fast.solve.site_iteration", "np.sqrt(np.maximum(var, 0.0))", "np.sqrt(var)"),
    (_FAST, _FULL, "fast.full_classes.couplings", "np.maximum(cond_var, 0.0)", "np.maximum(cond_var, -1.0)"),
    (_FAST, _FULL, "fast.full_classes.inner_ep", "np.minimum(r * excess, 1.0)", "np.minimum(r * excess, 2.0)"),
    (_FAST, _FULL, "fast.full_classes.quadrature_tilt", "np.maximum(kept, 0.0)", "kept"),
    (_FAST, _FULL, "fast.full_classes.sequential_posterior", "np.maximum(left, 0.0)", "left"),
    (_FAST, _SURE, "fast.kernel.matern", "return np.minimum(value, 1.0)", "return value"),
    (_FAST, _SURE, "fast.likelihood.power", "log_P = np.minimum(largest.log_mass, 0.0)", "log_P = largest.log_mass"),
    (_FAST, _SURE, "fast.solve.natural", "min(signal / memory.squared_norm, 1.0)", "signal / memory.squared_norm"),
    (_FAST, _SURE, "fast.methods.x_gpc_svi", f"np.maximum(chosen, {_TINY})", "chosen"),
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
    (_STEPS, _RATES, "fast.one_latent.fixed_point", "max(0.0, *rates[-5:])", "max(*rates[-5:], -1.0)"),
    (_STEPS, _RATES, "fast.one_latent.fixed_point", "0.0, *rates[-5:]), 1.0 - 1e-9", "0.0, *rates[-5:]), 2.0"),
    (_STEPS, _RATES, "fast.solve.site_iteration", "max(0.0, *self.rates[-5:])", "max(0.0, *self.rates[-6:])"),
    (_STEPS, _RATES, "fast.solve.mixing", "max(0.0, largest", "max(-1.0, largest"),
    (_STEPS, _RATES, "fast.sparse_classes.alpha_runs", "1.0 - 1e-9)", "2.0)"),
    (_STEPS, _PATHS, "gibbs.moves.softmax", "np.minimum(change, 0.0)", "np.minimum(change, 1.0)"),
    (_STEPS, _PATHS, "gibbs.evidence.softmax_annealed", '"kp,kp->k", v, v), 0.0', '"kp,kp->k", v, v), 1.0'),
    (_STEPS, _PATHS, "gibbs.models.hyper_models", "speed) - before, 0.0)", "speed) - before, 1.0)"),
    (_STEPS, _PATHS, "gibbs.models.softmax", "np.minimum(1.0, 0.5 * p", "np.minimum(2.0, 0.5 * p"),
    (_STEPS, _PATHS, "gibbs.models.threshold", "np.minimum(1.0, 0.5", "np.minimum(2.0, 0.5"),
    (_REFERENCE, _PRINTED["2017"], "reference.villacampa2017.model", "max(var, 0.0)", "max(var, -1.0)"),
    (_REFERENCE, _PRINTED["2017"], "reference.villacampa2017.prediction", "axis=1), 0.0)", "axis=1), -1.0)"),
    (_REFERENCE, _PRINTED["2020"], "reference.villacampa2020.sparse", "np.maximum(rest, 0.0)", "rest"),
    (_REFERENCE, _PRINTED["2020"], "reference.villacampa2020.tied", "np.maximum(sigma, 0.0)", "sigma"),
    (_REFERENCE, _PRINTED["wenzel"], "reference.wenzel2019.rates", "squared, 1.0)", "squared, 2.0)"),
    (_REFERENCE, _PRINTED["wenzel"], "reference.wenzel2019.rates", "squared > 0.0 else 1.0", "squared > 0.0 else 2.0"),
    (_REFERENCE, _PRINTED["izm"], "reference.izmailov2016.bound", "np.maximum(latent_var, 0.0)", "latent_var"),
    (_REFERENCE, _PRINTED["izm"], "reference.izmailov2016.kernels", "np.minimum(value, 1.0)", "value"),
    (_REFERENCE, _PRINTED["riih"], "reference.riihimaki2013.posterior", "np.maximum(values, 0.0)", "values"),
    (_REFERENCE, _PRINTED["riih"], "reference.riihimaki2013.nested_ep", "full.precision, 0.0", "full.precision, -1.0"),
)


@pytest.mark.parametrize(("module", "asked"), sorted({row[:2] for row in _PLANTED}))
def test_healthy_witnesses_pass(reds, module, asked):
    assert reds(module, asked) == []


@pytest.mark.parametrize(("checks", "asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, checks, asked, module, old, new):
    assert reds(checks, asked, (module, old, new))
