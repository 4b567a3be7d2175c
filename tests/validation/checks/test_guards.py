"""The checks of guarded steps, and a mistake in each guard."""

import pytest

from reference.villacampa2020 import fit_pep

_PLANTED = (
    ("identity/vi-robust/guards", "reference.common._ascent", "if step else 0.5", "if step else 0.25"),
    ("identity/laplace/guards", "reference.riihimaki2013.laplace", "size *= 0.5", "size *= 1.0"),
    ("identity/laplace/guards", "reference.villacampa2020.laplace_sparse", "size *= 0.5", "pass"),
    ("identity/laplace/guards", "fast.full_classes.softmax_laplace", "share *= 0.5", "share *= 1.0"),
    (
        "identity/laplace/guards",
        "fast.full_classes.softmax_laplace",
        "            break  # rounding",
        "            pass  # rounding",
    ),
    ("identity/laplace/guards", "fast.full_classes.softmax_laplace", "residual < 1e-7", "residual > 1e-7"),
    ("identity/vi-taylor/guards", "reference.izmailov2016.algorithm1", "step *= 0.5", "step *= 0.25"),
    (
        "identity/vi-taylor/guards",
        "reference.izmailov2016.algorithm1",
        "mu + step * (new - mu)",
        "mu - step * (new - mu)",
    ),
    ("identity/vi-taylor/guards", "fast.methods.vi_taylor", "length *= 0.5", "length *= 0.25"),
    ("identity/svgpc/guards", "reference.wenzel2019.fit_svgpc", "rate *= 0.5", "rate *= 0.25"),
    (
        "identity/svgpc/guards",
        "reference.wenzel2019.fit_svgpc",
        "            if stuck:\n                break",
        "            if stuck:\n                pass",
    ),
    (
        "identity/svgpc/guards",
        "reference.wenzel2019.fit_svgpc",
        "arrival.converged and not stuck",
        "arrival.converged or not stuck",
    ),
    (
        "identity/svgpc/guards",
        "reference.wenzel2019.fit_svgpc",
        "rate = min(ceiling, 2.0 * rate)",
        "rate = min(ceiling, 4.0 * rate)",
    ),
    ("identity/vb-probit/guards", "fast.methods.vb_probit", "share *= 0.5", "share *= 0.25"),
    (
        "identity/vb-probit/guards",
        "fast.methods.vb_probit",
        "if not accelerate or new_value",
        "if accelerate or new_value",
    ),
    ("identity/mh-softmax/guards", "gibbs.moves.softmax", "scale *= 0.5", "scale *= 0.25"),
    (
        "identity/mh-softmax/guards",
        "gibbs.moves.softmax",
        "        if new < here:\n            break",
        "        if new < here:\n            pass",
    ),
    ("identity/mh-softmax/guards", "gibbs.draws.truncated_normal", "step *= 0.5", "step *= -0.5"),
)
_ASKED = sorted({row[0] for row in _PLANTED} | {"identity/pep/guards"})


@pytest.mark.parametrize("asked", _ASKED)
def test_healthy_witnesses_pass(reds, asked):
    assert reds("guards", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("guards", asked, (module, old, new))


def test_fewer_halvings_are_seen(reds, monkeypatch):
    monkeypatch.setattr(fit_pep, "_HALVINGS", 2)
    assert reds("guards", "identity/pep/guards")
