"""The checks of turns that few runs take, and a mistake in each."""

import pytest

_NEWTON, _INNER = "identity/laplace-binary/halved_steps", "identity/nested-ep/inner_edges"
_AT_ONCE, _RESTARTS = "identity/ep/ended_at_once", "identity/x-gpc/refused_restarts"
_ORPHANS, _FILE = "invariance/x-gpc-svi/unreadable_orphans", "invariance/gibbs-logit/kernel_of_a_file"
_BRIDGE, _REFUSED = "exactness/gibbs-logit/bridge_of_odd_chains", "identity/epgpc/refused_steps"
_MIXING, _WAYS = "identity/ep/mixing_refused", "identity/apep/refused_ways"
_UNSURE, _READINGS = "identity/apep/unsure_factors", "identity/laplace/readings_of_a_variance"
_RUNS = "fast.sparse_classes.alpha_runs"
_BINARY, _EP = "reference.common.laplace_binary", "reference.riihimaki2013.inner_ep"
_PLANTED = (
    (_NEWTON, "fast.one_latent.mode", "share *= 0.5", "share *= 0.25"),
    (_NEWTON, "fast.one_latent.mode", "value >= lowest or", "True or"),
    (_NEWTON, _BINARY, "size *= 0.5", "size *= 0.6"),
    (_NEWTON, _BINARY, "value >= trace[-1] - 1e-12", "value <= trace[-1] - 1e-12"),
    (_INNER, _EP, "d_alpha = -float(alpha[j])", "d_alpha = -2.0 * float(alpha[j])"),
    (_INNER, _EP, "** LIMIT > 0.5", "** LIMIT > 0.51"),
    (_INNER, _EP, "skipped += 1", "skipped -= 1"),
    (_INNER, _EP, "min(2.0 * damping, 1.0)", "min(1.0 * damping, 1.0)"),
    (_AT_ONCE, "fast.sparse_classes.training", "elif best is None and ended():", "elif best is None:"),
    (_AT_ONCE, "fast.sparse_classes.training", "value, gradient = -np.inf,", "value, gradient = np.inf,"),
    (_RESTARTS, "fast.methods.x_gpc", "continue  # a restart", "break  # a restart"),
    (_RESTARTS, "fast.methods.x_gpc", "value > best[0]", "value < best[0]"),
    (_ORPHANS, "fast.core.checkpoint", "except OSError:\n            continue", "except OSError:\n            break"),
    (_FILE, "gibbs.models.sampling", 'arrays["smoothness"] = np.array(p.smoothness)', "pass"),
    (_FILE, "gibbs.models.multilatent", 'arrays["smoothness"] = _per_latent', 'unused = _per_latent'),
    (_BRIDGE, "gibbs.evidence.bridge", "white[:, -middle:]).reshape", "white[:, middle:]).reshape"),
    (_BRIDGE, "gibbs.evidence.bridge", "else white[:, :middle]\n", "else white[:, -middle:]\n"),
    (_BRIDGE, "gibbs.evidence.bridge", "max(32 // r, 2)", "max(32 // r, 1)"),
    (_BRIDGE, "gibbs.evidence.bridge", "s - per_chain * length :]", ": per_chain * length]"),
    (_BRIDGE, "gibbs.evidence.bridge", "0.5 * (errors[0] + errors[1])", "0.5 * np.hypot(errors[0], errors[1])"),
    (_REFUSED, "fast.methods.epgpc_svi", "run.move(*good, rebuild=True)", "pass"),
    (_REFUSED, "fast.methods.epgpc_svi", "                rebuild = True", "                rebuild = False"),
    (_REFUSED, "fast.methods.epgpc_svi", "packing.size and self.falling.add", "packing.size and not self.falling.add"),
    (_MIXING, "fast.sparse_classes.mixing", "0.0, count + 1, None", "0.0, count - 1, None"),
    (_MIXING, "fast.sparse_classes.mixing", "run.rebuild()\n        return Mixed(0, 0", "return Mixed(1, 0"),
    (_WAYS, _RUNS, "(q):\n            return False\n        self.rho", "(q):\n            self.rho"),
    (_WAYS, _RUNS, "self.rho = 1.0\n        self._mixing.clear()\n        return True", "return True"),
    (_WAYS, _RUNS, "                return -v", "                return v"),
    (_WAYS, "fast.blockwise.energies", "self.points, energy, self.epsilon)", "self.points, self.energy, self.epsilon)"),
    (_UNSURE, "fast.sparse_classes.alpha_joint", "run.points, self.vector, self.white = before", "pass"),
    (_READINGS, "fast.core.hyperprior", "number * (df - 2.0) / df", "number * df / (df - 2.0)"),
    (_READINGS, "fast.core.hyperprior", "variance: float = 100.0", "variance: float = 10.0"),
)  # fmt: skip


@pytest.mark.parametrize(
    "asked",
    [_MIXING, _WAYS, _UNSURE, _READINGS, _NEWTON, _INNER, _AT_ONCE, _RESTARTS, _ORPHANS, _FILE, _BRIDGE, _REFUSED],
)
def test_healthy_witnesses_pass(reds, asked):
    assert reds("rare_turns", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    again = ("fast.methods.ep",) if asked == _AT_ONCE else ()
    if asked in (_MIXING, _WAYS, _UNSURE):
        again = ("fast.methods.ep", "fast.methods.apep", "fast.blockwise.multiclass")
    if module == "gibbs.models.multilatent":
        again = ("gibbs.models.multinomial_probit",)
    assert reds("rare_turns", asked, (module, old, new), again=again)
