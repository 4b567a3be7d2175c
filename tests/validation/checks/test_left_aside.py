"""The checks of what runs leave aside, and a mistake in each piece that they ask about."""

import pytest

from gibbs.models.hyper_models import HyperModel

_PLANTED = (
    (
        "identity/ep/known_values",
        "reference.villacampa2017.datum",
        "line.s / sd[y_i] ** 2",
        "line.s",
    ),
    ("identity/ep/known_values", "reference.villacampa2017.datum", "h * (rise + h)", "h * (rise - h)"),
    (
        "identity/bb-alpha/few_draws",
        "reference.villacampa2020.black_box",
        "Averages(log_norm, np.inf)",
        "Averages(log_norm, 0.0)",
    ),
    (
        "identity/bb-alpha/few_draws",
        "reference.villacampa2020.black_box",
        "np.mean(log_ratio, axis=0), float",
        "np.mean(log_ratio), float",
    ),
    ("identity/ep/inputs_of_a_step", "fast.sparse_classes.projections", "variance + self.hyper.noise", "variance"),
    ("identity/ep/inputs_of_a_step", "fast.sparse_classes.projections", "w=self._weights", "w=None"),
    ("identity/ep/inputs_of_a_step", "fast.sparse_classes.projections", "self._last[0] is not X", "False"),
    ("identity/ep/inputs_of_a_step", "fast.solve.minibatch", "            break\n    if rows == 0", "    if rows == 0"),
    (
        "identity/x-gpc/single_sweep",
        "fast.methods.x_gpc",
        "Sweep(update_local(evaluation.latent_mean, evaluation.latent_var)",
        "Sweep(update_local(evaluation.latent_var, evaluation.latent_mean)",
    ),
    ("identity/x-gpc/single_sweep", "fast.methods.vi_jj", "size == 0.0, jj_local", "size != 0.0, jj_local"),
    ("identity/laplace/tiles", "fast.full_classes.couplings", "start:stop].T", "start:stop]"),
    ("identity/laplace/first_order_mean", "fast.methods.laplace", "at.weights + mode_", "at.weights - mode_"),
    (
        "identity/laplace/first_order_mean",
        "fast.methods.laplace",
        "mean_corrected(posterior), X",
        "posterior.posterior, X",
    ),
    (
        "identity/nested-ep/single_step",
        "fast.methods.nested_ep",
        '"sequential", 1.0).target',
        '"parallel", 1.0).target',
    ),
    (
        "identity/laplace-tkp/no_points",
        "fast.methods.laplace",
        "np.empty((0, C, C)), scores",
        "np.empty((0, C)), scores",
    ),
    (
        "identity/x-gpc-svi/natural_parameters",
        "fast.methods.x_gpc_svi",
        "-0.5 * self.state.precision",
        "-1.0 * self.state.precision",
    ),
    ("identity/gibbs-logit/given_point", "gibbs.evidence.chib", "0.5 * n * _LOG_2PI", "0.5 / n * _LOG_2PI"),
    ("identity/gibbs-logit/given_point", "gibbs.evidence.chib", "0.5 * m * _LOG_2PI", "0.5 / m * _LOG_2PI"),
    (
        "identity/exact-probit/nothing_drawn",
        "gibbs.chains.moments",
        "rest = rest + pending[name]",
        "rest = rest - pending[name]",
    ),
    ("identity/exact-probit/nothing_drawn", "gibbs.draws.truncated_normal", "1.0 / self.count))", "2.0 / self.count))"),
    ("invariance/x-gpc-svi/orphans", "fast.core.checkpoint", "unlink(missing_ok=True)", "exists()"),
    ("invariance/x-gpc-svi/orphans", "fast.core.checkpoint", "follow_symlinks=False", "follow_symlinks=True"),
    ("invariance/x-gpc-svi/orphans", "gibbs.chains.checkpoint", "== 8", "<= 8"),
    (
        "invariance/x-gpc-svi/orphans",
        "gibbs.chains.checkpoint",
        "            Path(temporary).unlink(missing_ok=True)",
        "            pass",
    ),
)


@pytest.mark.parametrize("asked", sorted({row[0] for row in _PLANTED} | {"identity/gibbs-logit/noise_from_zero"}))
def test_healthy_witnesses_pass(reds, asked):
    assert reds("left_aside", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("left_aside", asked, (module, old, new))


def test_a_noise_that_starts_elsewhere_is_seen(reds, monkeypatch):
    start = HyperModel.start
    monkeypatch.setattr(HyperModel, "start", lambda self, *asked: _doubled(start(self, *asked)))
    assert reds("left_aside", "identity/gibbs-logit/noise_from_zero")


def _doubled(state):
    return {**state, "hyper": 2.0 * state["hyper"]}
