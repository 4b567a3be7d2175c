"""Statements of cost, scales and energies: a program of which they are not true is seen."""

from __future__ import annotations

import numpy as np
import pytest

from reference.villacampa2017 import evidence
from reference.villacampa2020 import energies
from validation import solve
from validation.checks import core
from validation.checks.core import Compared
from validation.checks.print import scale_statements


class Context:
    """What a check asks."""

    solve = staticmethod(solve)


def failures(name):
    outcomes = [one for one in core.registered()[name].function(Context(), None) if isinstance(one, Compared)]
    assert outcomes
    return [one for one in outcomes if not one.observed <= one.limit]


@pytest.mark.parametrize(
    ("name", "part", "other"),
    [
        ("print/svi/says_cost_svi_bound", "_elbo", lambda n, m: float(n * m**2)),
        ("print/svi/says_cost_svi_bound", "_elbo", lambda n, m: float(n * m**3 + m**3)),
        ("print/gibbs-probit/says_cost_gibbs_likelihood", "_cone_draws", lambda n, c: float(n * c**2)),
        ("print/gibbs-probit/says_cost_mcmc", "_factors_a_sweep", lambda c, learn: float(c**2)),
        ("print/gibbs-probit/says_cost_mcmc", "_factors_a_sweep", lambda c, learn: float(c)),
        ("print/ep/says_parallel_unstable", "_unstable", lambda context, method: (0.5, 1e-4, 1e-9)),
        ("print/ep/says_parallel_unstable", "_unstable", lambda context, method: (3.0, 1e-4, 1e-3)),
        ("print/pep/says_parallel_unstable", "_unstable", lambda context, method, alpha: (3.0, 1.0, 1.0)),
        ("print/pep/says_parallel_faster", "_until", lambda context: (2.0, 1.0, 9.0, 9, 1.0)),
        ("print/pep/says_parallel_faster", "_until", lambda context: (0.5, 1.0, 9.0, 9, 1e-9)),
        ("print/nested-ep/says_seeger_form", "_tilted", lambda variance: (np.zeros(3), np.diag(variance))),
        ("print/vi-robust/says_cost_ep_vb_alike", "_a_step", lambda method, n, m, C: 4.0 - 3.0 * (method == "ep")),
    ],
)
def test_a_program_of_another_cost_is_seen(name, part, other, monkeypatch):
    monkeypatch.setattr(scale_statements, part, other)
    assert failures(name)


def test_another_scale_of_a_factor_is_seen(monkeypatch):
    true = evidence.factor_log_scale_rank_one
    monkeypatch.setattr(evidence, "factor_log_scale_rank_one", lambda *given: true(*given) + 1e-6)
    assert failures("print/ep/says_log_scale_efficient")


def test_another_energy_at_alpha_one_is_seen(monkeypatch):
    true = energies.rpapep_objective
    monkeypatch.setattr(energies, "rpapep_objective", lambda *given: true(*given) * (1.0 + 1e-6))
    assert failures("print/rpapep/says_rpapep_alpha_1")


def test_random_numbers_are_counted_one_by_one():
    rng = scale_statements._Counting()
    assert np.shape(rng.standard_exponential((3, 4))) == (3, 4)
    rng.standard_normal()
    assert rng.count == 13
