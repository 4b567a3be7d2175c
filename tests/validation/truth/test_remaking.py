"""Making truths a second time: what agrees passes, and what is stored wrongly does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from validation.jobs.run import Processes
from validation.truth import library, making, remaking, shelf

SAMPLED = "riihimaki-15-mprobit-v4.62"  # independent draws
EXACT = "gp-2-3-probit-v0"  # quadrature


@pytest.fixture
def made():
    """The two posteriors from the library's own seed, by name."""
    return {name: shelf.load(name) for name in (SAMPLED, EXACT)}


def changed(truth, **fields):
    return truth._replace(solution=replace(truth.solution, **fields))


def test_a_lot_has_no_name_twice_and_depends_on_its_seed_alone():
    names = shelf.made()
    lot = remaking.lot(names, 10, 3)
    assert len(set(lot)) == 10
    assert lot == remaking.lot(tuple(reversed(names)), 10, 3)
    assert lot != remaking.lot(names, 10, 4)
    assert sorted(remaking.lot(names[:4], 10, 3)) == sorted(names[:4])
    with pytest.raises(ValueError, match="--remake: found no made truth"):
        remaking.lot([], 10, 3)


def test_candidates_are_made_and_not_dearer_than_asked():
    chosen = remaking.candidates(lambda name: name.startswith("gp-"), 20.0)
    assert chosen
    assert all(shelf.is_made(name) and shelf.card_of(name).seconds <= 20.0 for name in chosen)
    assert all(name.startswith("gp-") for name in chosen)


@pytest.fixture(scope="module")
def second():
    """Both from another seed, made once for the whole file."""
    return {name: making.make(name, 12) for name in (SAMPLED, EXACT)}


@pytest.fixture
def made_once(monkeypatch, second):
    """`making.make` without its seconds of work."""
    monkeypatch.setattr(making, "make", lambda name, seed: second[name])


def test_a_second_making_runs_as_a_job_with_a_seed_of_its_own():
    (done,) = remaking.remake_all([EXACT], 11, Processes(1))
    assert (done.name, done.what) == (EXACT, "agrees"), done
    assert done.seed not in (library.SEED, 11)
    assert done.seconds > 0.0


@pytest.mark.parametrize("name", [SAMPLED, EXACT])
def test_a_second_making_from_another_seed_agrees(name, made_once):
    done = remaking.work(remaking.Unit(name, 12, None), print)
    assert (done.name, done.what) == (name, "agrees"), done
    assert done.entries > 20
    assert 0.0 <= done.worst <= done.limit
    # draws of the second making are others, a rule of quadrature has none
    assert (done.worst > 1e-3) == (name == SAMPLED)


def test_draws_of_another_seed_are_others(made, second):
    first = made[SAMPLED]
    assert not np.array_equal(first.solution.latent_mean, second[SAMPLED].solution.latent_mean)
    assert second[SAMPLED].card.seed == 12


@pytest.mark.parametrize(
    ("name", "field", "change"),
    [
        # ten standard errors of a mean, 5 % of a covariance, 0.01 of log Z where quadrature has it
        (SAMPLED, "latent_mean", lambda s: s.latent_mean + 10.0 * s.latent_mean_se),
        (SAMPLED, "latent_cov", lambda s: 1.05 * s.latent_cov),
        (EXACT, "latent_cov", lambda s: (1.0 + 1e-5) * s.latent_cov),
        (EXACT, "log_evidence", lambda s: s.log_evidence + 1e-3),
    ],
)
def test_a_wrong_number_on_the_shelf_is_told(made, made_once, monkeypatch, name, field, change):
    wrong = changed(made[name], **{field: change(made[name].solution)})
    if field == "latent_cov":  # variances go with it
        assert np.allclose(wrong.solution.latent_var, np.diagonal(wrong.solution.latent_cov, axis1=-2, axis2=-1))
    monkeypatch.setattr(shelf, "load", lambda asked: wrong)
    done = remaking.work(remaking.Unit(name, 11, None), print)
    assert done.what == "differs"
    assert done.worst > done.limit
    assert done.where.startswith(field)


def test_no_number_differs_from_every_number(made):
    nothing = np.full_like(made[SAMPLED].solution.latent_mean, np.nan)
    worst, limit, _, where = remaking.held(
        made[SAMPLED], made[SAMPLED]._replace(solution=_Bare(made[SAMPLED].solution, nothing))
    )
    assert worst == np.inf
    assert worst > limit
    assert where.startswith("latent_mean[")


class _Bare:
    """A solution with another latent mean, which the constructor of a solution would refuse."""

    def __init__(self, solution, latent_mean):
        self._solution, self.latent_mean = solution, latent_mean

    def __getattr__(self, name):
        return getattr(self._solution, name)


def test_a_second_making_that_misses_its_own_gates_is_refused(made, monkeypatch):
    card = replace(made[SAMPLED].card, gate="not met", gate_reason="ESS 12")
    monkeypatch.setattr(making, "make", lambda name, seed: made[SAMPLED]._replace(card=card))
    done = remaking.work(remaking.Unit(SAMPLED, 11, None), print)
    assert (done.what, done.where) == ("refused", "gate not met: ESS 12")
    assert np.isnan(done.worst)


def test_none_is_begun_when_the_time_is_over():
    done = remaking.work(remaking.Unit(SAMPLED, 11, 0.0), print)
    assert (done.what, done.seconds) == ("later", 0.0)
