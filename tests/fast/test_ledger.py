"""The marker."""

import pytest

from fast import ledger


def test_ids_of_stacked_markers_add_up_and_the_hook_sees_the_output_once(monkeypatch):
    @ledger.equation("wenzel2019", "11")
    @ledger.equation("wenzel2019", "10", "18", as_printed=True)
    def double(x):
        return 2 * x

    visited = []

    def hook(function, output):
        visited.append((function, output))
        return output + 1

    assert double.__equations__ == (("wenzel2019", "11"), ("wenzel2019", "10"), ("wenzel2019", "18"))
    assert double.__as_printed__ is True
    assert double.__name__ == "double"
    assert double(3) == 6
    monkeypatch.setattr(ledger, "hook", hook)
    assert double(3) == 7
    assert visited == [(double, 6)]


@pytest.mark.parametrize(
    "module",
    [
        "kernel.kernels",
        "likelihood.polya_gamma",
        "likelihood.quadrature",
        "one_latent.bound",
        "one_latent.prior",
        "one_latent.predict",
    ],
)
def test_every_mechanism_that_realises_equations_is_marked(module):
    import importlib

    members = vars(importlib.import_module(f"fast.{module}")).values()
    assert any(hasattr(member, "__equations__") for member in members)
