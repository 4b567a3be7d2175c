"""The checks of recorded runs of `reference`: they pass, and see a loop that goes another way to the same end."""

import pytest

from in_every_run import asked_by_verify
from reference.common._sweeps import Sweeps
from reference.riihimaki2013 import laplace, variational
from reference.villacampa2017 import methods
from reference.villacampa2020 import fit_pep
from reference.wenzel2019 import fit_epgpc

_METHODS = ("epgpc", "laplace", "vb-probit", "pep", "ep")


def _asked(method):
    return f"discrepancy/{method}/recorded_reference"


@asked_by_verify
@pytest.mark.parametrize("method", _METHODS)
def test_healthy_witnesses_pass(reds, method):
    assert reds("recorded_reference", _asked(method)) == []


def test_a_residual_that_is_half_of_what_it_was_is_seen(reds, monkeypatch):
    see = Sweeps.see
    monkeypatch.setattr(Sweeps, "see", lambda self, sites, residual, n: see(self, sites, 0.5 * residual, n))
    assert reds("recorded_reference", _asked("ep"))


@pytest.mark.parametrize(("method", "module"), [("ep", methods), ("pep", fit_pep)], ids=["ep", "pep"])
def test_another_damping_is_seen(reds, monkeypatch, method, module):
    update = module.damped_update
    monkeypatch.setattr(module, "damped_update", lambda new, old, damping: update(new, old, 0.9 * damping))
    assert reds("recorded_reference", _asked(method))


def test_sites_that_are_refreshed_half_way_are_seen(reds, monkeypatch):
    refreshed = fit_epgpc._refreshed
    monkeypatch.setattr(fit_epgpc, "_refreshed", lambda *asked: refreshed(*asked[:-1], 0.5 * asked[-1]))
    assert reds("recorded_reference", _asked("epgpc"))


def test_a_bound_without_its_newton_steps_is_seen(reds, monkeypatch):
    monkeypatch.setattr(variational, "_vb_newton", lambda m, swept, b_swept, y, K: (swept, b_swept))
    assert reds("recorded_reference", _asked("vb-probit"))


def test_a_mode_that_is_given_up_early_is_seen(reds, monkeypatch):
    mode = laplace._laplace_mode
    monkeypatch.setattr(laplace, "_laplace_mode", lambda K, y, tolerance, most: mode(K, y, 30.0 * tolerance, most))
    assert reds("recorded_reference", _asked("laplace"))
