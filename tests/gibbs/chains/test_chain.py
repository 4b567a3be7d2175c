"""The runner: what is kept, what is saved, and what an interruption leaves behind."""

import numpy as np
import pytest

import gibbs.chains.chain
from gibbs.chains.chain import Plan, Record, Storage, fingerprint, run, spawn_generators


def walk(**options):
    """A random walk of two chains; keeps the position, adds up its square."""
    rngs = spawn_generators(4, ("walk",))

    def step(state, generators):
        return {"x": state["x"] + generators["walk"].standard_normal((2, 1))}

    def record(state):
        return Record({"x": state["x"]}, {"square": state["x"] ** 2})

    settings = {"n_draws": 10, "n_warmup": 4, "thin": 3} | options
    callback = settings.pop("callback", None)
    plan = Plan(*(settings.pop(name) for name in ("n_draws", "n_warmup", "thin")))
    return run({"x": np.zeros((2, 1))}, step, record, rngs, plan, storage=Storage(**settings), callback=callback)


def test_every_thin_th_sweep_after_the_warmup_is_kept():
    normals = spawn_generators(4, ("walk",))["walk"].standard_normal((34, 2, 1))
    path = np.cumsum(normals, axis=0)
    got = walk()
    assert got.n_sweeps == 34
    np.testing.assert_array_equal(got.kept["x"], np.moveaxis(path[6::3], 0, 1))
    np.testing.assert_allclose(got.totals["square"], np.sum(path[6::3] ** 2, axis=0), rtol=1e-14)  # sums of ten


def test_progress_is_reported_after_every_sweep():
    visited = []
    walk(callback=visited.append)
    assert [p.sweep for p in visited] == list(range(1, 35))
    assert {p.n_sweeps for p in visited} == {34}
    assert visited[-1].n_kept == 10
    assert [p.n_kept for p in visited[:8]] == [0, 0, 0, 0, 0, 0, 1, 1]


def test_an_interruption_in_the_middle_of_a_sweep_loses_only_that_sweep(tmp_path):
    rngs = spawn_generators(4, ("walk",))
    calls = []

    def step(state, generators):
        new = {"x": state["x"] + generators["walk"].standard_normal((2, 1))}
        calls.append(1)
        if len(calls) == 20:
            raise KeyboardInterrupt  # the generator has moved on, the state has not
        return new

    def record(state):
        return Record({"x": state["x"]}, {"square": state["x"] ** 2})

    path = tmp_path / "walk.npz"
    with pytest.raises(KeyboardInterrupt):
        run({"x": np.zeros((2, 1))}, step, record, rngs, Plan(10, 4, 3), storage=Storage(path))
    whole, resumed = walk(), walk(checkpoint=path)
    np.testing.assert_array_equal(resumed.kept["x"], whole.kept["x"])
    np.testing.assert_array_equal(resumed.totals["square"], whole.totals["square"])


def test_a_finished_checkpoint_gives_the_same_result_again(tmp_path):
    first = walk(checkpoint=tmp_path / "a.npz", checkpoint_every=5)
    again = walk(checkpoint=tmp_path / "a.npz")
    np.testing.assert_array_equal(first.kept["x"], again.kept["x"])


def test_a_failed_write_leaves_the_old_checkpoint_whole_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "walk.npz"

    def stop_at(sweep):
        def callback(progress):
            if progress.sweep == sweep:
                raise KeyboardInterrupt

        return callback

    with pytest.raises(KeyboardInterrupt):
        walk(checkpoint=path, callback=stop_at(10))
    old = path.read_bytes()

    def half_a_write(stream, **arrays):
        stream.write(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gibbs.chains.chain.np, "savez", half_a_write)
        with pytest.raises(KeyboardInterrupt):
            walk(checkpoint=path, checkpoint_every=2)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["walk.npz"]
    np.testing.assert_array_equal(walk(checkpoint=path).kept["x"], walk().kept["x"])


def test_foreign_truncated_and_mismatched_checkpoints_are_refused(tmp_path):
    path = tmp_path / "walk.npz"
    walk(checkpoint=path, mark="one")
    with pytest.raises(ValueError, match=r"checkpoint: found walk.npz of another run"):
        walk(checkpoint=path, mark="two")
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"not a zip"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"checkpoint: found walk.npz unreadable"):
            walk(checkpoint=path, mark="one")
    np.savez(path, x=np.zeros(3))
    with pytest.raises(ValueError, match=r"checkpoint: found schema .none. in walk.npz"):
        walk(checkpoint=path, mark="one")
    np.savez(path, schema=np.array({"a": 1}, dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"checkpoint: found walk.npz unreadable"):
        walk(checkpoint=path, mark="one")


def test_purposes_have_independent_generators_and_fingerprints_see_every_change():
    two = spawn_generators(1, ("a", "b"))
    assert two["a"].random() != two["b"].random()
    assert spawn_generators(1, ("a",))["a"].random() == spawn_generators(1, ("a", "b"))["a"].random()
    base = fingerprint({"n": 1}, {"x": np.zeros(2)})
    assert base == fingerprint({"n": 1}, {"x": np.zeros(2)})
    assert base != fingerprint({"n": 2}, {"x": np.zeros(2)})
    assert base != fingerprint({"n": 1}, {"x": np.array([0.0, 1e-300])})
    assert base != fingerprint({"n": 1}, {"x": np.zeros((1, 2))})
