"""The checks of cavities that are no distribution, and a mistake in each place that meets one."""

import pytest

_PLANTED = (
    ("identity/ep/improper_factors", "reference.villacampa2017.methods", "n_improper += 1", "n_improper += 2"),
    (
        "identity/ep/improper_factors",
        "reference.villacampa2017.methods",
        "return Value(None, refined.log_norm)",
        "return Value(0.0, refined.log_norm)",
    ),
    ("identity/ep/improper_factors", "reference.villacampa2017.printed", "n_improper += 1", "n_improper -= 1"),
    (
        "identity/ep/improper_data",
        "reference.villacampa2017.methods",
        "if tilted is None:\n            return marginals(posterior, K)",
        "if tilted is None:\n            return projections(posterior, K.upsilon)",
    ),
    ("identity/epgpc/improper_sites", "fast.methods.epgpc_svi", "self.n_improper += 1", "self.n_improper += 0"),
    (
        "identity/nested-ep/passed_by",
        "reference.riihimaki2013.posterior",
        "if site is None:\n            continue",
        "if site is None:\n            break",
    ),
    ("identity/nested-ep/passed_by", "reference.riihimaki2013.inner_ep", "skipped += 1", "skipped += 2"),
    (
        "identity/nested-ep/passed_by",
        "reference.riihimaki2013.fit",
        "return None, np.zeros(0)",
        "return 0.0, np.zeros(0)",
    ),
    (
        "identity/qiep/refused_moments",
        "reference.riihimaki2013.qep",
        "np.any(precision * var < -ROUNDING)",
        "np.any(precision / var < -ROUNDING)",
    ),
    ("identity/qiep/refused_moments", "reference.riihimaki2013.qep", "kept * np.diag(cov_g)", "kept / np.diag(cov_g)"),
    (
        "identity/qiep/refused_moments",
        "reference.riihimaki2013.quadrature_ep",
        "return Tilted(0.0, mean, var)",
        "return Tilted(1.0, mean, var)",
    ),
    ("identity/qiep/passed_by", "fast.full_classes.independent_sites", "improper += 1", "improper += 2"),
    ("identity/qiep/passed_by", "fast.full_classes.independent_sites", "running.update(i, tau[i], nu[i])", "pass"),
)


@pytest.mark.parametrize("asked", sorted({row[0] for row in _PLANTED}))
def test_healthy_witnesses_pass(reds, asked):
    assert reds("improper", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("improper", asked, (module, old, new))
