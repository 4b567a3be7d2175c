"""The checks that add up improper cavities, and sums with a wrong sign, a lost sweep, an end that does not look."""

import pytest

from reference.common import _training
from validation.checks import counted
from validation.checks.core import Context


def test_healthy_sums_are_right():
    for way in counted.WAYS:
        outcomes = list(counted.counted(Context(), way))
        assert len(outcomes) == (3 if way.told else 2) * len(way.runs)
        assert [each.why for each in outcomes if each.observed] == []


@pytest.mark.parametrize(
    ("where", "spoilt"),
    [
        ("villacampa2017.methods:PairwiseEP.step", lambda run: run._replace(n_improper=run.n_improper + 1)),
        ("villacampa2017.tied:TiedEP.step", lambda run: run._replace(converged=True)),
    ],
)
def test_a_run_that_counts_or_ends_otherwise_is_seen(monkeypatch, where, spoilt):
    healthy = _training.to_fixed_point
    monkeypatch.setattr(_training, "to_fixed_point", lambda *asked: spoilt(healthy(*asked)))
    way = next(way for way in counted.WAYS if way.where == where)
    assert [each.why for each in counted.counted(Context(), way._replace(runs=way.runs[:1])) if each.observed]
