"""The record of what a run sees: made from a healthy run and a sample, read by the summary, the report and the docs."""

import numpy as np
import pytest
from typer.testing import CliRunner

from validation.checks import runner
from validation.cli import app
from validation.jobs.run import Processes
from validation.mutation import baseline, power, statements
from validation.mutation.report import Rates

ALL = Rates(drawn=10, red=5, crash=2, survived=1, never=1, equivalent=1)
SEEN = {"identity/x-gpc/latent_mean on toy": 7}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    selection = runner.select(
        check=["identity/x-gpc/latent_mean", "invariance/x-gpc/classes"], problem=["two-points", "toy"]
    )
    return baseline.measure(selection, tmp_path_factory.mktemp("healthy"), Processes(1))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(power, "folder", lambda: tmp_path)
    power.executed.cache_clear()
    yield tmp_path
    power.executed.cache_clear()


def sample(seed=1, code="a", **changed):
    settings = {"n": 10, "seed": seed, "packages": ("fast", "gibbs", "reference"), "against": "verify", "full": False}
    return power.sample_of(settings | {"code": code} | changed, {"fast": ALL, "chains": ALL, "all": ALL}, SEEN)


def test_functions_count_the_statements_that_compute(healthy):
    result = power.measured(healthy)
    own = [name for name in result.functions if name.startswith("gibbs.")]
    assert len(set(result.functions)) == len(result.functions)
    assert result.statements.sum() == sum(
        len(statements.population(package)) for package in ("fast", "gibbs", "reference")
    )
    assert np.all(result.executed <= result.statements)
    # no check of x-gpc's two witnesses touches a sampler
    assert own
    shares = result.shares(result.checks)
    assert shares["gibbs"] == 0.0
    assert 0.0 < shares["fast"] < 0.2
    assert result.shares([]) == {"fast": 0.0, "gibbs": 0.0, "reference": 0.0}
    updates = result.functions.index("fast.likelihood.polya_gamma:update_local")
    assert result.table[result.checks.index("identity/x-gpc/latent_mean"), updates]
    assert result.executed[updates] > 0


def test_what_is_recorded_is_read_again(healthy, folder):
    assert power.samples() == []
    assert power.executed() is None
    assert power.sentence([]) == "power: not recorded (triad mutate --record)"
    power.record(sample(), healthy)
    assert power.samples() == [sample()]
    stored, fresh = power.executed(), power.measured(healthy)
    assert stored.functions == fresh.functions
    assert stored.checks == fresh.checks
    for name in ("statements", "executed", "table"):
        assert np.array_equal(getattr(stored, name), getattr(fresh, name))


def test_samples_of_other_code_go_and_the_same_draw_is_replaced(healthy, folder):
    for entry in (sample(1), sample(2), sample(2, n=20)):
        power.record(entry, healthy)
    assert [(entry.seed, entry.n) for entry in power.samples()] == [(1, 10), (2, 20)]
    assert power.total(power.samples())["all"] == Rates(20, 10, 4, 2, 2, 2)
    power.record(sample(3, code="b"), healthy)
    assert [entry.seed for entry in power.samples()] == [3]


def test_a_run_of_all_checks_tells_its_power_and_one_of_some_its_reach(healthy, folder):
    power.record(sample(), healthy)
    whole = power.sentence(power.executed().checks)
    assert whole.startswith("judged of the statements that compute: ")
    assert "0.0% of gibbs" in whole
    assert "; not: " in whole
    assert "87.5% of the executed mutants turned it red (N = 10 random mutants, seeds 1, commit" in whole
    assert "mutants" not in power.sentence(["identity/x-gpc/latent_mean"])


def test_the_documentation_shows_the_table(healthy, folder):
    power.record(sample(), healthy)
    outcome = CliRunner().invoke(app, ["mutate", "--show"])
    assert outcome.exit_code == 0
    assert "| chains | 10 | 1 | 1 | 8 | 87.5% |" in outcome.stdout
    assert outcome.stdout == power.markdown()


def test_the_documentation_shows_what_the_seconds_buy(healthy, folder):
    assert power.price() is None
    power.record(sample(), healthy)
    bought = power.price()
    assert bought.pairs == len(healthy.selection.pairs)
    assert [(step.check, step.problem, step.mutants) for step in bought.cover] == [
        ("identity/x-gpc/latent_mean", "toy", 1.0)
    ]
    assert "identity/x-gpc/latent_mean" not in [entry.check for entry in bought.idle if entry.problem == "toy"]
    outcome = CliRunner().invoke(app, ["mutate", "--price"])
    assert outcome.exit_code == 0
    assert outcome.stdout == power.markdown_of_price()
    assert f"| 100% | 1 of {bought.pairs} | " in outcome.stdout


def test_samples_of_the_same_code_are_covered_together(healthy, folder):
    power.record(sample(1), healthy)
    power.record(sample(2)._replace(seen={"invariance/x-gpc/classes on toy": 7}), healthy)
    assert {step.check for step in power.price().cover} == {"identity/x-gpc/latent_mean", "invariance/x-gpc/classes"}


def test_a_part_of_the_question_is_no_record():
    outcome = CliRunner().invoke(app, ["mutate", "--record", "--package", "fast"])
    assert outcome.exit_code == 2
    assert "expected all packages against verify" in " ".join(outcome.output.split())
