"""Long runs: warm-up by diagnostics, a target of effective draws, a budget, a kill, and chains that can be added."""

import os
import signal
import subprocess
import sys
import time
import tracemalloc
import types
from pathlib import Path

import numpy as np
import pytest

import gibbs
from gibbs.chains.chain import Measures, Plan, Record, Storage, run
from gibbs.chains.diagnostics import convergence, least_ess
from gibbs.core.generators import spawn_streams
from gibbs.models.export import to_inference_data
from gibbs_samplers import sample_fitc, sample_full, sample_probit, sample_threshold

X = np.random.default_rng(0).normal(size=(6, 2))
Y = np.array([0, 1, 2, 0, 1, 2])
SIGNS = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
SCALES = np.array([1.0, 1.5])
RUN = {"seed": 3, "n_warmup": 5}


def logit(**options):
    return sample_full(X, SIGNS, 9.0, SCALES, 0.1, 1e-6, X[:2], **(RUN | options))


def logit_fitc(**options):
    return sample_fitc(X, SIGNS, X[:3], 9.0, SCALES, 0.1, 1e-6, X[:2], **(RUN | options))


def probit(**options):
    return sample_probit(X, Y, 3, 9.0, SCALES, 0.1, 1e-6, X[:3], "fitc", X[:2], **(RUN | options))


def cut(**options):
    moves = ("components", "bounce")
    return sample_threshold(X, Y, 3, 9.0, SCALES, 0.1, 1e-6, epsilon=0.1, moves=moves, **(RUN | options))


def walk(rho, *, start=0.0, step_too=None, **options):
    """Autoregressions of 8 chains; `start` far out makes a warm-up necessary."""
    rngs = spawn_streams(4, ("walk",), 8)

    def step(state, generators):
        if step_too is not None:
            step_too()
        return {"x": rho * state["x"] + np.sqrt(1 - rho**2) * generators["walk"].standard_normal((8, 1))}

    def record(state):
        return Record({"x": state["x"]}, {}, {"x": state["x"]})

    measures = Measures(
        accumulate=lambda terms: {"x": terms["x"].sum(axis=0)},
        effective=lambda kept, keep_every: least_ess({"x": convergence(kept["x"])}),
    )
    kept = {name: options.pop(name) for name in ("checkpoint", "max_kept_bytes") if name in options}
    plan = Plan(**({"n_draws": 50, "n_warmup": "auto"} | options))
    return run({"x": np.full((8, 1), start)}, step, record, rngs, plan, measures=measures, storage=Storage(**kept))


def assert_same(one, two):
    for name, value in one._asdict().items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(two, name), value, err_msg=name)


@pytest.mark.parametrize("sample", [logit, logit_fitc, probit, cut])
def test_a_chain_is_the_same_in_a_larger_run(sample):
    few, many = sample(n_chains=2, n_draws=30), sample(n_chains=9, n_draws=30)
    np.testing.assert_array_equal(few.latent_draws, many.latent_draws[:2])
    assert not np.array_equal(many.latent_draws[0], many.latent_draws[1])


def test_a_warmup_by_diagnostics_waits_for_the_start_to_be_forgotten():
    quick, slow = walk(0.0), walk(0.98, start=1000.0)
    assert quick.n_warmup == 100
    assert slow.warmed_up
    # 0.98^n 1000 is below the spread of a window's mean after some 450 sweeps, and R-hat asks for twenty times in one
    assert 1600 <= slow.n_warmup <= 12_800
    assert slow.n_sweeps == slow.n_warmup + 50


def test_a_warmup_that_never_settles_says_so():
    drifting = walk(0.9999, start=1000.0, max_warmup=500)
    assert not drifting.warmed_up
    assert drifting.n_warmup == 400
    assert not logit(n_chains=4, n_draws=8, n_warmup="auto", max_warmup=100).gate


@pytest.mark.parametrize("n_chains", [2, 8])
def test_quantities_that_are_no_numbers_are_no_agreement(n_chains):
    def watched(values):
        plan = Plan(n_draws=1, n_warmup="auto", max_warmup=100)
        measures = Measures(monitor=lambda state: {"x": np.broadcast_to(values, (n_chains, np.size(values)))})
        rngs = spawn_streams(4, ("walk",), n_chains)
        record = Record({"x": np.zeros((n_chains, 1))}, {})
        return run({}, lambda state, generators: state, lambda state: record, rngs, plan, measures=measures).warmed_up

    assert watched([1.0, 2.0])
    assert not watched([1.0, np.nan])
    assert watched([])  # nothing is watched, nothing disagrees


def test_a_run_goes_on_until_its_target_and_no_further_than_its_limit():
    got = walk(0.5, n_warmup=0, target_ess=2000.0)
    assert got.target_reached
    assert least_ess({"x": convergence(got.kept["x"])}) >= 2000.0
    assert got.n_draws < 4000  # 8 chains, autocorrelation time 3: some 800 draws are enough
    short = walk(0.5, n_warmup=0, target_ess=2000.0, max_draws=120)
    assert not short.target_reached
    assert short.n_draws == 120
    assert probit(n_chains=4, n_draws=20, target_ess=300.0).target_reached


def test_a_spent_budget_thins_the_draws_and_leaves_the_averages_alone():
    one = probit(n_chains=4, n_draws=300)
    size = sum(a.nbytes for a in (one.latent_draws, one.auxiliary_draws, one.log_joint)) // 300
    two = probit(n_chains=4, n_draws=300, max_kept_bytes=100 * size)
    assert one.keep_every == 1
    assert two.keep_every == 4
    np.testing.assert_array_equal(two.latent_draws, one.latent_draws[:, 3::4])
    for name in ("latent_mean", "latent_cov", "probabilities", "inducing_cov"):
        # the same sums, joined in another order
        np.testing.assert_allclose(getattr(two, name), getattr(one, name), rtol=1e-11, atol=1e-13)


def test_memory_is_flat_in_the_number_of_draws():
    peaks = []
    for n_draws in (1000, 8000):
        tracemalloc.start()
        walk(0.5, n_warmup=0, n_draws=n_draws, max_kept_bytes=40_000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("sample", [logit, logit_fitc, probit])
def test_a_run_with_every_comfort_resumes_bit_by_bit(tmp_path, sample):
    def go(checkpoint=None, stop=0):
        def callback(progress):
            if progress.sweep == stop:
                raise KeyboardInterrupt

        return sample(n_chains=4, n_draws=20, n_warmup="auto", max_warmup=200, target_ess=150.0, max_draws=90, thin=2,
                      max_kept_bytes=30_000, callback=callback, checkpoint=checkpoint, checkpoint_every=30)  # fmt: skip

    whole, path = go(), tmp_path / "run.npz"
    for stop in (70, 130, whole.n_warmup + 33, whole.n_sweeps - 3):
        with pytest.raises(KeyboardInterrupt):
            go(path, stop)
    assert_same(whole, go(path))


SCRIPT = """
import sys
import numpy as np
from gibbs_samplers import sample_full
X = np.random.default_rng(0).normal(size=(6, 2))
signs = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
got = sample_full(X, signs, 9.0, [1.0, 1.5], 0.1, 1e-6, n_chains=4, n_draws=600, n_warmup="auto", max_warmup=400,
                  seed=3, checkpoint=sys.argv[1], checkpoint_every=20)
np.savez(sys.argv[2], draws=got.latent_draws, var=got.latent_var, se=got.latent_var_se)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_process_goes_on_from_its_file_bit_by_bit(tmp_path):
    root = Path(gibbs.__file__).parents[1]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (root, root / "tests", root / "tests" / "support")))}

    def start(name):
        return subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / f"{name}.npz"),
                                 str(tmp_path / f"{name}-out.npz")], env=env)  # fmt: skip

    assert start("whole").wait(timeout=120) == 0
    process, deadline = start("killed"), time.monotonic() + 120
    while not (tmp_path / "killed.npz").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    assert not (tmp_path / "killed-out.npz").exists()
    assert start("killed").wait(timeout=120) == 0
    one, two = np.load(tmp_path / "whole-out.npz"), np.load(tmp_path / "killed-out.npz")
    for name in one.files:
        np.testing.assert_array_equal(one[name], two[name])


def test_a_logit_chain_that_stands_still_is_seen(monkeypatch):
    assert logit(n_chains=4, n_draws=20).settled
    monkeypatch.setattr("gibbs.models.sampling.draw_latent", lambda rng, K_XX, chol_K, y_sign, omega: 0.0 * omega)
    stuck = logit(n_chains=4, n_draws=20)
    assert not stuck.settled
    assert not stuck.gate
    assert stuck.movement.max() == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_warmup": "some"}, r"n_warmup: found 'some', expected an integer in \[0, 2147483647\] or 'auto'"),
        ({"n_warmup": "auto", "max_warmup": 99}, r"max_warmup: found 99, expected an integer >= 100"),
        ({"target_ess": 0.0}, r"target_ess: found 0.0, expected a finite number > 0"),
        ({"max_draws": 100}, r"max_draws: found 100, expected None without target_ess"),
        ({"target_ess": 5.0, "max_draws": 3}, r"max_draws: found 3, expected an integer >= 8"),
    ],
)
@pytest.mark.parametrize("sample", [logit, probit, cut])
def test_bad_lengths_are_refused_by_name(sample, change, message):
    with pytest.raises(ValueError, match=message):
        sample(**({"n_draws": 8} | change))


# -- export ------------------------------------------------------------------------------------------------------------


def test_an_export_without_arviz_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"gpc-triad\[arviz\]"):
        to_inference_data(logit(n_chains=2, n_draws=4))


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(("sample", "names"), [(logit_fitc, {"f", "u", "omega"}), (probit, {"f", "h"})])
def test_an_export_names_every_axis_in_either_form_of_arviz(monkeypatch, modern, sample, names):
    def old(posterior=None, *, sample_stats=None, coords=None, dims=None, attrs=None):
        return {"posterior": posterior, "sample_stats": sample_stats}, coords, dims

    def new(data, *, coords=None, dims=None, attrs=None):
        return data, coords, dims

    monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(from_dict=new if modern else old))
    chains = sample(n_chains=2, n_draws=30)
    groups, coords, dims = to_inference_data(chains)
    assert set(groups["posterior"]) == names
    np.testing.assert_array_equal(groups["sample_stats"]["log_joint"], chains.log_joint)
    for name, values in groups["posterior"].items():
        assert values.shape == tuple(len(coords[axis]) for axis in ("chain", "draw", *dims[name]))
    draws = {"f": chains.latent_draws, "u": getattr(chains, "inducing_draws", None),
             "omega": getattr(chains, "omega_draws", None), "h": getattr(chains, "auxiliary_draws", None)}  # fmt: skip
    for name, values in groups["posterior"].items():  # every chain and draw, in order
        np.testing.assert_array_equal(values, draws[name].reshape(values.shape))
    small = sample(n_chains=2, n_draws=30, max_kept_bytes=sum(a.nbytes for a in draws.values() if a is not None) // 3)
    _, coords, _ = to_inference_data(small)
    assert small.keep_every == 4
    assert list(coords["draw"]) == list(range(3, 30, 4))  # which of the draws, counted from zero
